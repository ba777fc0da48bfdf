"""Perplexity as a judge: KenLM's own numbers in whole thousandths, the same in any batch; models that are none."""

from __future__ import annotations

import importlib.util
import json
import math
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gpu_curate import config
from gpu_curate.api import pipeline
from gpu_curate.errors import ConfigError
from gpu_curate.judges import perplexity
from gpu_curate.quality.judges import UNSCORED
from gpu_curate.tokenizer.training import train
from gpu_curate.tools.judge_texts import cut_offs

ONE = {"<unk>": -3.0, "<s>": -99.0, "</s>": -1.0, "the": -0.7, "cat": -1.2, "sat": -1.5}
TWO = {"<s> the": -0.3, "the cat": -0.4, "cat sat": -0.5, "sat </s>": -0.2}
ARPA = "\n".join(
    [
        "\\data\\", f"ngram 1={len(ONE)}", f"ngram 2={len(TWO)}", "", "\\1-grams:",
        *(f"{p}\t{w}\t{-0.5 if w != '</s>' else 0}" for w, p in ONE.items()), "", "\\2-grams:",
        *(f"{p}\t{w}" for w, p in TWO.items()), "", "\\end\\", "",
    ]
)  # fmt: skip
TEXTS = ["the cat sat", "sat cat the", "the cat\n\nzebra zebra zebra\nthe cat sat", "", " \n ", "the " * 5000, "a\0b"]


needs_kenlm = pytest.mark.skipif(
    importlib.util.find_spec("kenlm") is None, reason="KenLM is not installed (extra `perplexity`)"
)


def line(words: list[str]) -> float:
    """The logarithm of a line by the table: a bigram, or the word with the weight of backing off."""
    total = 0.0
    for a, b in zip(["<s>", *words], [*words, "</s>"], strict=True):
        a, b = (w if w in ONE else "<unk>" for w in (a, b))
        total += TWO.get(f"{a} {b}", ONE[b] + (-0.5))
    return total


def plain(text: str, unit: str) -> int:
    lines = [w for w in (part.replace("\0", " ").split() for part in text.split("\n")) if w]
    if not lines:
        return UNSCORED
    if unit == "paragraph":
        own = sorted(round(1000 * line(w) / (len(w) + 1)) for w in lines)
        return own[(len(own) - 1) // 2]
    return round(1000 * sum(map(line, lines)) / sum(len(w) + 1 for w in lines))


@pytest.fixture
def model(tmp_path):
    (tmp_path / "m.arpa").write_text(ARPA)
    return str(tmp_path / "m.arpa")


@needs_kenlm
@pytest.mark.parametrize("unit", ["document", "paragraph"])
def test_scores_are_those_of_the_table_whatever_the_batch(model, unit):
    whole = perplexity.scores(model, "key", TEXTS, unit)
    assert whole.dtype == np.int32
    for text, score in zip(TEXTS, whole.tolist(), strict=True):
        assert score == UNSCORED == plain(text, unit) or abs(score - plain(text, unit)) <= 1, text[:40]
        assert perplexity.scores(model, "key", [text], unit).tolist() == [score]
    assert whole[0] > whole[1]
    assert math.isclose(10 ** (-whole[0] / 1000), 10 ** (1.4 / 4), rel_tol=0.01)


@needs_kenlm
def test_what_is_no_model_is_one_error(tmp_path):
    (tmp_path / "x.arpa").write_text("hello")
    (tmp_path / "y.bin").write_bytes(b"mmap lm http://kheafield.com/code format version 5\n\0" + bytes(40))
    for name in ("x.arpa", "y.bin"):
        with pytest.raises(ConfigError, match="is no KenLM model"):
            perplexity.identity(str(tmp_path / name), "quality.judges.p.model")
    with pytest.raises(ConfigError, match="No such file"):
        perplexity.identity(str(tmp_path / "z.arpa"), "quality.judges.p.model")


@needs_kenlm
def test_a_run_keeps_what_reads_well(tmp_path, model):
    texts = [f"the cat sat {'the cat sat ' * i}" for i in range(6)] + [
        f"sat zebra the {'zebra ' * i}" for i in range(6)
    ]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"text": t}) + "\n" for t in texts))
    train(texts * 5, 300, "<|endoftext|>", tmp_path / "tokenizer.json")
    cuts = cut_offs(model, [str(tmp_path / "a.jsonl")], "perplexity", "document", 2)
    assert cuts["texts"] == 12
    assert len(cuts["cuts"]) == 1
    data = {
        "sources": [{"name": "a", "type": "jsonl", "path": str(tmp_path / "a.jsonl")}],
        "quality": {"judges": {"fluent": {"type": "perplexity", "model": model, "min": cuts["cuts"][0][1]}}},
        "dedup": {"exact": True, "fuzzy": None},
        "tokenizer": {"path": str(tmp_path / "tokenizer.json")},
        "min_tokens": 0,
        "shards": {"validation": {"tokens": 0}},
        "run": {"engine": "inline"},
    }
    pipeline.execute(config.parse(data), tmp_path / "r")
    part = next((tmp_path / "r").glob("decisions*/part-*.parquet"))
    reasons = pq.read_table(part)["reason"].cast(pa.string()).to_pylist()
    assert reasons == [None] * 6 + ["judges:min_fluent"] * 6


def test_without_kenlm_the_error_names_the_extra(monkeypatch, model):
    monkeypatch.setitem(sys.modules, "kenlm", None)
    with pytest.raises(ConfigError, match="needs KenLM") as e:
        perplexity.identity(model, "quality.judges.p.model")
    assert "gpu_curate[perplexity]" in e.value.hint
