"""A fastText classifier becomes an exact judge; what it says is compared with fastText's own library."""

from __future__ import annotations

import math
import random
import struct

import numpy as np
import pytest
from corpora import WORDS

from gpu_curate.errors import ConfigError
from gpu_curate.judges.fasttext import as_judge, hash32, read
from gpu_curate.text import fasttext_file

DIM, BUCKETS = 4, 500
LABELS = ["__label__hq", "__label__cc"]
RNG = np.random.default_rng(12)


def model(
    path, word_ngrams=2, minn=0, maxn=0, loss=3, labels=LABELS, quantized=False, words=WORDS[:80], buckets=BUCKETS
):
    """A file as fastText writes it, with drawn weights."""
    names = ["</s>", *words]
    args = (DIM, 5, 5, 1, 5, word_ngrams, loss, 3, buckets, minn, maxn, 100)
    rows = len(names) + buckets * (word_ngrams > 1 or maxn > 0)
    first = RNG.normal(0, 1, (rows, DIM)).astype("<f4")
    last = RNG.normal(0, 1, (len(labels), DIM)).astype("<f4")
    entries = b"".join(n.encode() + b"\0" + struct.pack("<qb", 9, 0) for n in names)
    entries += b"".join(n.encode() + b"\0" + struct.pack("<qb", 9, 1) for n in labels)
    matrix = b"\0" + struct.pack("<qq", rows, DIM) + first.tobytes()
    if quantized:  # two parts of two dimensions, norms apart
        code = RNG.integers(0, 256, (rows, 2)).astype("u1")
        books, norms = RNG.normal(0, 1, 256 * DIM).astype("<f4"), RNG.uniform(0.5, 2, 256).astype("<f4")
        matrix = b"\1" + struct.pack("<?qqi", True, rows, DIM, code.size) + code.tobytes()
        matrix += struct.pack("<4i", DIM, 2, 2, 2) + books.tobytes()
        matrix += RNG.integers(0, 256, rows).astype("u1").tobytes() + struct.pack("<4i", 1, 1, 1, 1) + norms.tobytes()
    path.write_bytes(
        b"".join(
            [
                struct.pack("<ii12id", fasttext_file.MAGIC, 12, *args, 1e-4),
                struct.pack("<iiiqq", len(names) + len(labels), len(names), len(labels), 99, -1),
                entries,
                matrix,
                b"\0" + struct.pack("<qq", len(labels), DIM) + last.tobytes(),
            ]
        )
    )
    return path


def texts(count=300, unknown=True):
    rng = random.Random(4)
    pool = WORDS if unknown else WORDS[:80]
    return [" ".join(rng.choices(pool, k=rng.randint(1, 60))) for _ in range(count)]


CASES = {
    "words": dict(word_ngrams=1),
    "pairs": dict(word_ngrams=2),
    "characters": dict(word_ngrams=2, minn=2, maxn=4),
    "quantized": dict(word_ngrams=2, quantized=True),
    "one against all": dict(word_ngrams=1, loss=4, labels=[*LABELS, "__label__other"]),
}


@pytest.mark.parametrize("name", CASES)
def test_the_score_is_that_of_the_library(tmp_path, name):
    fasttext = pytest.importorskip("fasttext", reason="fasttext-predict is not installed")
    path = model(tmp_path / "m.bin", **CASES[name])
    predict = fasttext.load_model(str(path)).f.predict
    own = read(path, "hq")
    for text in texts(40):  # one against all looks sigmoids up in a table of 512
        found = {label: p for p, label in predict(text + "\n", 5, 0.0, "strict")}
        assert 1 / (1 + math.exp(-own.score(text))) == pytest.approx(
            found["__label__hq"], abs=0.01 if name == "one against all" else 2e-4
        )


def test_known_words_and_seen_pairs_keep_their_weights(tmp_path):
    judge, likeness = as_judge(read(model(tmp_path / "m.bin"), "hq"), texts(unknown=False), bits=18)
    assert likeness > 0.93
    assert judge.ngrams == 2
    assert judge.weights.dtype == np.int16
    coarse, of_coarse = as_judge(read(tmp_path / "m.bin", "hq"), texts(unknown=False), bits=18, wide=False)
    assert 0.9 < of_coarse <= likeness + 0.01
    assert coarse.weights.dtype == np.int8
    _, other = as_judge(read(tmp_path / "m.bin", "cc"), texts(unknown=False), bits=18)
    assert other > 0.93


def test_the_hash_is_fasttexts():
    assert hash32(b"") == 2166136261
    assert hash32(b"a") == (2166136261 ^ 97) * 16777619 % 2**32
    assert hash32("é".encode()) != hash32(b"e")


def test_what_is_no_sum_over_words_is_refused(tmp_path):
    for changes, said in (
        (dict(loss=1), "hierarchical softmax is not supported"),
        (dict(labels=[*LABELS, "__label__other"]), "softmax over 3 labels"),
    ):
        with pytest.raises(ConfigError, match=said):
            read(model(tmp_path / "m.bin", word_ngrams=1, **changes), "hq")
    with pytest.raises(ConfigError, match="no label 'xx'"):
        read(model(tmp_path / "m.bin"), "xx")
    (tmp_path / "n.bin").write_bytes(b"hello")
    with pytest.raises(ConfigError, match="no fastText model"):
        read(tmp_path / "n.bin")
    data = (tmp_path / "m.bin").read_bytes()
    (tmp_path / "c.bin").write_bytes(data[:-3])
    with pytest.raises(ConfigError, match="cannot be read"):
        read(tmp_path / "c.bin")
    with pytest.raises(ConfigError, match="No such file"):
        read(tmp_path / "absent.bin")


def test_the_command_writes_a_judge_and_says_what_was_lost(tmp_path):
    import json

    from typer.testing import CliRunner

    from gpu_curate.cli import app
    from gpu_curate.judges.model import load

    model(tmp_path / "m.bin")
    (tmp_path / "t.jsonl").write_text("".join(json.dumps({"text": t}) + "\n" for t in texts(80)))
    given = ["judge", "import", str(tmp_path / "m.bin"), str(tmp_path / "t.jsonl"), "--label", "hq"]
    made = CliRunner().invoke(app, [*given, "--out", str(tmp_path / "m.judge"), "--bits", "16", "--json"])
    assert made.exit_code == 0, made.output
    facts = json.loads(made.stdout)
    assert 0.8 < facts["rank_correlation"] <= 1
    assert load(str(tmp_path / "m.judge")).about["rank_correlation"] == round(facts["rank_correlation"], 4)
