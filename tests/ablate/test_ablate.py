"""Ablations: bits per byte by their definition, the same numbers again, and a difference that is there is found."""

import json
import math
import random

import numpy as np
import pytest
from token_shards import make
from typer.testing import CliRunner

import gpu_curate as gc
from gpu_curate.ablate import table
from gpu_curate.cli import app
from gpu_curate.errors import ConfigError


def test_bits_per_byte_is_the_loss_of_the_text_over_its_bytes():
    assert gc.bits_per_byte(math.log(2), 8, 4) == pytest.approx(2.0)  # one bit a token, two tokens a byte
    assert gc.bits_per_byte(math.log(256), 100, 100) == pytest.approx(8.0)  # a byte-level model that knows nothing
    assert gc.bits_per_byte(0.0, 5, 5) == 0.0
    for odd in ((1.0, 5, 0), (-1.0, 5, 5), (1.0, -5, 5)):
        with pytest.raises(ConfigError, match="bits_per_byte"):
            gc.bits_per_byte(*odd)


@pytest.fixture(scope="module")
def sets(tmp_path_factory):
    """A corpus of two sentences, clean, and one of which half is noise; one byte-level tokenizer."""
    pytest.importorskip("torch")
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    root = tmp_path_factory.mktemp("a")
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
    tokenizer.add_special_tokens([AddedToken("<eot>", special=True)])
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    rng = random.Random(0)

    def text():
        return " ".join(rng.choice(["the cat sees a dog.", "one bird hears the rain."]) for _ in range(8))

    def noise():
        return "".join(rng.choice("abcdefghijklmnopqrstuvwxyz ") for _ in range(160))

    for name, make_text in (("clean", text), ("raw", lambda: text() if rng.random() < 0.5 else noise())):
        train = [tokenizer.encode(make_text()).ids for _ in range(150)]
        held = [tokenizer.encode(text()).ids for _ in range(12)]
        folder = root / name
        make(folder, {"train": [], "validation": []})
        _write(folder, {"train": train, "validation": held})
        tokenizer.save(str(folder / "tokenizer.json"))
    return root


def _write(folder, splits):
    """Shards whose end-of-text token is 256."""
    import token_shards

    before = token_shards.EOT
    token_shards.EOT = 256
    try:
        make(folder, splits, vocab=257)
    finally:
        token_shards.EOT = before


OPTIONS = {
    "parameters": 60_000,
    "tokens": 40_000,
    "seeds": 2,
    "seq_len": 64,
    "batch_size": 8,
    "eval_tokens": 1500,
    "device": "cpu",
}


def test_noise_costs_bits_and_the_same_call_gives_the_same_numbers(sets, tmp_path):
    arms = [table.parse_arm(f"{name}={sets / name}") for name in ("clean", "raw")]
    facts = table.ablate(arms, tmp_path / "out", **OPTIONS)
    on_clean = facts["bits_per_byte"]
    assert on_clean["clean"]["clean"]["mean"] < on_clean["raw"]["clean"]["mean"] < 8
    found = facts["differences"]["clean"]["raw"]
    assert 0 < found["low"] < found["mean"] < found["high"]
    assert found["mean"] == pytest.approx(on_clean["raw"]["clean"]["mean"] - on_clean["clean"]["clean"]["mean"])
    assert found["mean"] == pytest.approx(np.mean(found["seeds"]))
    assert json.loads((tmp_path / "out" / "ablate.json").read_text())["differences"] == facts["differences"]
    assert (tmp_path / "out" / "curves.csv").read_text().startswith("arm,seed,step,loss\n")
    again = table.ablate(arms, tmp_path / "again", **OPTIONS)
    assert again["bits_per_byte"] == facts["bits_per_byte"]


def test_nats_of_a_document_are_those_of_its_tokens_one_after_the_other(sets):
    import torch

    from gpu_curate.ablate.model import Gpt, shape_for
    from gpu_curate.ablate.trial import held_documents, nats

    torch.manual_seed(0)
    model = Gpt(shape_for(60_000, 257), 257, 64)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.1)
    held = held_documents("clean", sets / "clean", 600, lambda ids: "x" * len(ids))
    assert 2 <= len(held.documents) < 12
    assert held.bytes_D.tolist() == [len(d) - 1 for d in held.documents]
    got = nats(model, held, 64, 5, "cpu")
    for d, ids in enumerate(held.documents):
        whole, expected = [256, *ids.tolist()], 0.0
        for t in range(len(ids)):
            context = torch.tensor([whole[t // 64 * 64 : t + 1]])
            expected -= float(torch.log_softmax(model(context)[0, -1], 0)[whole[t + 1]])
        assert got[d] == pytest.approx(expected, rel=1e-4)


def test_parameters_are_near_what_was_asked_for():
    pytest.importorskip("torch")
    from gpu_curate.ablate.model import Gpt, shape_for

    for asked, vocab in ((500_000, 4096), (1_000_000, 512), (15_000_000, 32_768)):
        shape = shape_for(asked, vocab)
        assert shape.parameters == pytest.approx(asked, rel=0.25)  # heads and layers are whole
        own = sum(p.numel() for p in Gpt(shape, vocab, 16).parameters())
        assert own == pytest.approx(shape.parameters, rel=0.01)  # the norms apart


def test_intervals_hold_the_mean_of_equal_documents_exactly_and_grow_with_spread():
    nbytes = np.full(50, 10)
    draws = table._draws(50)
    same = table._interval([np.full(50, 5.0)] * 2, nbytes, draws)
    assert same["low"] == pytest.approx(same["mean"]) == pytest.approx(same["high"])
    assert same["mean"] == pytest.approx(5 / 10 / math.log(2))
    rng = np.random.default_rng(0)
    spread = table._interval([rng.normal(5, 1, 50)], nbytes, draws)
    # a mean of 50 has a standard error of 1 / sqrt(50), and 95 % are 3.92 of them
    width = 3.92 / np.sqrt(50) / 10 / math.log(2)
    assert spread["high"] - spread["low"] == pytest.approx(width, rel=0.35)


def test_the_command_prints_a_table(sets, tmp_path):
    words = ["ablate", f"clean={sets / 'clean'}", f"in files' order={sets / 'clean'}:dump", "--params", "30000"]
    words += [
        "--tokens",
        "2000",
        "--seeds",
        "1",
        "--seq-len",
        "32",
        "--eval-tokens",
        "300",
        "--out",
        str(tmp_path / "o"),
    ]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    assert "more than clean, on the same documents" in done.output
    assert "in files' order on clean: " in done.output


def test_odd_arms_are_named(sets, tmp_path):
    one = table.parse_arm(f"clean={sets / 'clean'}")
    with pytest.raises(ConfigError, match="1 arm, expected two or more"):
        table.ablate([one], tmp_path)
    with pytest.raises(ConfigError, match="two arms are named clean"):
        table.ablate([one, one], tmp_path)
    with pytest.raises(ConfigError, match="nowhere: no such folder"):
        table.parse_arm(str(tmp_path / "nowhere"))
    make(tmp_path / "no", {"train": [[1, 2]]})
    with pytest.raises(ConfigError, match="has no validation split"):
        table.ablate([one, table.parse_arm(f"no={tmp_path / 'no'}")], tmp_path / "o")
    make(tmp_path / "other", {"train": [[1, 2]], "validation": [[1]]})
    path = tmp_path / "other" / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["tokenizer"]["sha256"] = "ab" * 32
    path.write_text(json.dumps(manifest))
    with pytest.raises(ConfigError, match="different tokenizers"):
        table.ablate([one, table.parse_arm(f"other={tmp_path / 'other'}")], tmp_path / "o")
