"""Tokens that say nothing: counted, told from 1 % of what is kept, refused above half."""

import json
import logging

import numpy as np
import pytest

from gpu_curate import config
from gpu_curate.api import pipeline
from gpu_curate.document import TextColumn
from gpu_curate.errors import FatalError
from gpu_curate.stages.tokens import _unknown
from gpu_curate.store.files import read_json
from gpu_curate.tokenizer.loading import load
from gpu_curate.tokenizer.model import parse

CHINESE = "渡船 在 早上 九点 从 北码头 离开"
ENGLISH = "the ferry leaves at nine from the north pier"
WORDS = sorted(set(ENGLISH.split()))


def tokenizer(path, kind, **keys):
    """A tokenizer.json of some model over a few English words or letters, split at white space."""
    special = ["<|endoftext|>", "[UNK]"]
    letters = sorted(set("".join(WORDS)))
    model = {
        "WordLevel": {"vocab": {t: i for i, t in enumerate(special + WORDS)}, "unk_token": "[UNK]"},
        "WordPiece": {
            "vocab": {t: i for i, t in enumerate(special + WORDS)},
            "unk_token": "[UNK]",
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100,
        },
        "Unigram": {
            "vocab": [[t, -1.0 - i] for i, t in enumerate(special + letters)],
            "unk_id": 1,
            "byte_fallback": False,
        },
        "BPE": {
            "vocab": {t: i for i, t in enumerate(special + letters)},
            "merges": [],
            "unk_token": "[UNK]",
            "fuse_unk": False,
            "byte_fallback": False,
            "dropout": None,
        },
    }[kind]
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    added = [{"id": i, "content": t, **flags} for i, t in enumerate(special[:2])]
    data = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None}
    data |= {"pre_tokenizer": {"type": "WhitespaceSplit"}, "post_processor": None, "decoder": None}
    path.write_text(json.dumps({**data, "model": {"type": kind, **model, **keys}}))
    return path


def run(tmp_path, texts, path, **keys):
    (tmp_path / "in.jsonl").write_text("".join(json.dumps({"text": t}) + "\n" for t in texts))
    recipe = {
        "sources": [{"name": "s", "type": "jsonl", "path": str(tmp_path / "in.jsonl")}],
        "tokenizer": {"path": str(path)},
        "dedup": {"exact": False, "fuzzy": None},
        "min_tokens": 0,
        "shards": {"validation": {"tokens": 0}},
        "run": {"engine": "inline"},
        **keys,
    }
    pipeline.execute(config.parse(recipe, "here"), tmp_path / "run")
    return read_json(tmp_path / "run" / "report" / "report.json")


@pytest.mark.parametrize("kind", ["WordLevel", "WordPiece", "Unigram", "BPE"])
def test_every_model_says_which_token_is_the_unknown_one(tmp_path, kind):
    encoder = load(config.Tokenizer(path=str(tokenizer(tmp_path / "t.json", kind))))
    assert encoder.unknown == (1, "[UNK]")
    column = TextColumn.from_texts([ENGLISH, "", CHINESE, ENGLISH + " 船"])
    ids, lens = encoder.encode_column(column)
    unknown = _unknown(encoder, ids, lens)
    assert unknown.tolist()[:2] == [0, 0]
    assert unknown[2] == lens[2] >= 7
    assert unknown[3] == 1


def test_a_tokenizer_of_bytes_has_no_unknown_token(tmp_path, shared_data):
    encoder = load(config.Tokenizer(path=str(shared_data("tok/gpt2/tokenizer.json"))))
    assert encoder.unknown is None
    ids, lens = encoder.encode_column(TextColumn.from_texts([CHINESE, ""]))
    assert _unknown(encoder, ids, lens).tolist() == [0, 0]


def test_bytes_that_fall_back_are_known(tmp_path):
    """Only characters whose bytes have no token are unknown."""
    vocab = json.loads(tokenizer(tmp_path / "a.json", "BPE").read_text())["model"]["vocab"]
    some = {f"<0x{b:02X}>": len(vocab) + i for i, b in enumerate("船".encode())}
    path = tokenizer(tmp_path / "t.json", "BPE", vocab={**vocab, **some}, byte_fallback=True)
    encoder = load(config.Tokenizer(path=str(path)))
    ids, lens = encoder.encode_column(TextColumn.from_texts(["船船", "渡船"]))
    assert lens.tolist() == [6, 4]
    assert _unknown(encoder, ids, lens).tolist() == [0, 1]


def test_half_of_what_is_kept_may_be_unknown_and_is_told(tmp_path):
    path = tokenizer(tmp_path / "t.json", "WordLevel")
    facts = run(tmp_path, [ENGLISH, "the 渡船 渡船 at nine " + CHINESE], path)
    expected = {"token": "[UNK]", "read": 9, "kept": 9, "share_of_kept": round(9 / 21, 6), "texts_without_tokens": 0}
    assert facts["unknown_tokens"] == expected
    assert any("42.9% of the tokens that are kept (9) are '[UNK]'" in w for w in facts["warnings"])


def test_above_half_no_shards_are_written(tmp_path):
    path = tokenizer(tmp_path / "t.json", "WordLevel")
    with pytest.raises(FatalError, match=r"7 of the 8 tokens that are kept \(88%\) are '\[UNK\]'") as e:
        run(tmp_path, [CHINESE + " the"], path)
    assert "byte fallback" in e.value.hint
    assert not list((tmp_path / "run" / "shards").glob("*.bin"))


def test_what_is_dropped_may_be_unknown(tmp_path):
    path = tokenizer(tmp_path / "t.json", "WordLevel")
    facts = run(tmp_path, [ENGLISH, CHINESE], path, min_tokens=8)
    assert facts["unknown_tokens"]["read"] == 7
    assert facts["unknown_tokens"]["kept"] == 0
    assert not any("[UNK]" in w for w in facts["warnings"])


def test_under_one_percent_is_counted_only(tmp_path):
    path = tokenizer(tmp_path / "t.json", "WordLevel")
    facts = run(tmp_path, [*(f"{ENGLISH} {w}" for w in WORDS * 3), ENGLISH + " 船"], path)
    assert facts["unknown_tokens"]["kept"] == 1
    assert facts["unknown_tokens"]["share_of_kept"] < 0.01
    assert not any("[UNK]" in w for w in facts["warnings"])


def test_a_tokenizer_that_drops_what_it_lacks_is_named_and_refused(tmp_path, caplog):
    path = tokenizer(tmp_path / "t.json", "BPE", unk_token=None)
    with caplog.at_level(logging.WARNING):
        parse(path.read_bytes(), str(path))
    assert "leave no token" in caplog.text
    with pytest.raises(FatalError, match="makes no token of 2 of 3 texts"):
        run(tmp_path, [CHINESE, "船", ENGLISH], path)


def test_counts_are_per_text():
    class Encoder:
        unknown = (1, "[UNK]")

    ids, lens = np.array([1, 5, 1, 1, 2, 1], np.uint16), np.array([2, 0, 2, 0, 2, 0])
    assert _unknown(Encoder, ids, lens).tolist() == [1, 0, 2, 0, 1, 0]
