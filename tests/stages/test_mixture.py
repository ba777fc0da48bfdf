"""Mixtures: shares by weight and by tokens, repeats at pack time, accounts that add up."""

from __future__ import annotations

import json
import random

import pyarrow.parquet as pq
import pytest
from corpora import document

from gpu_curate import config, shards_check
from gpu_curate.api import pipeline
from gpu_curate.store.files import read_json
from gpu_curate.tokenizer.training import train


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mixture")
    rng = random.Random(0)
    for name, count in (("big", 120), ("small", 30)):
        (folder / f"{name}.jsonl").write_text("\n".join(json.dumps({"text": document(rng, 8)}) for _ in range(count)))
    train([document(rng) for _ in range(20)], 400, "<|endoftext|>", folder / "tokenizer.json")
    return folder


def execute(tmp_path, place, big, small, **shards):
    data = {
        "sources": [
            {"name": "big", "type": "jsonl", "path": str(place / "big.jsonl"), **big},
            {"name": "small", "type": "jsonl", "path": str(place / "small.jsonl"), **small},
        ],
        "tokenizer": {"path": str(place / "tokenizer.json")},
        "min_tokens": 0,
        "shards": {"tokens_per_shard": 5000, "validation": {"tokens": 1000}, **shards},
        "run": {"engine": "inline"},
    }
    pipeline.execute(config.parse(data), tmp_path / "r")
    assert shards_check.verify(tmp_path / "r" / "shards") == []
    return read_json(tmp_path / "r" / "report" / "report.json"), pq.read_table(
        tmp_path / "r" / "shards" / "documents.parquet"
    ).to_pylist()


def share(rows, source):
    tokens = {s: sum(r["tokens"] for r in rows if r["source"] == s and r["split"] == "train") for s in ("big", "small")}
    return tokens[source] / sum(tokens.values())


def test_weights_share_out_as_much_as_no_source_must_be_repeated_for(tmp_path, place):
    facts, rows = execute(tmp_path, place, {"weight": 0.5}, {"weight": 0.5})
    assert share(rows, "small") == pytest.approx(0.5, abs=0.03)
    assert facts["documents"]["dropped"]["mixture:not_drawn"] > 50
    assert any("source small has the fewest for its weight" in w for w in facts["warnings"])
    assert len({r["doc_id"] for r in rows}) == len(rows)


def test_a_small_source_is_repeated_in_the_shuffle_to_reach_its_share(tmp_path, place):
    facts, rows = execute(tmp_path, place, {"weight": 0.5}, {"weight": 0.5}, mixture_tokens=16_000)
    assert share(rows, "small") == pytest.approx(0.5, abs=0.03)
    train_rows = [r for r in rows if r["split"] == "train"]
    times = {}
    for row in train_rows:
        times[row["doc_id"]] = times.get(row["doc_id"], 0) + 1
    small = {d: n for d, n in times.items() if d >> 36 == 1}
    assert set(small.values()) <= {1, 2, 3, 4}
    assert max(small.values()) > 1
    assert max(small.values()) - min(small.values()) <= 1
    held = {r["doc_id"] for r in rows if r["split"] == "validation"}
    assert held.isdisjoint(times)
    epochs = {m["source"]: m["epochs"] for m in facts["mixture"]["sources"]}
    assert epochs["small"] > 1.5


def test_repeats_stop_at_max_epochs(tmp_path, place):
    facts, _ = execute(tmp_path, place, {}, {"tokens": 10_000_000}, max_epochs=2)
    small = facts["mixture"]["sources"][1]
    assert small["epochs"] == pytest.approx(2, abs=0.1)
    assert small["drawn_tokens"] < small["asked_tokens"]
    assert any("small" in w and "max_epochs" in w for w in facts["warnings"])


def test_tokens_of_one_source_are_drawn_and_the_other_is_taken_whole(tmp_path, place):
    facts, rows = execute(tmp_path, place, {"tokens": 4000}, {})
    drawn = {m["source"]: m for m in facts["mixture"]["sources"]}
    assert drawn["big"]["drawn_tokens"] == pytest.approx(4000, abs=300)
    assert drawn["small"]["epochs"] == 1.0
    assert (
        sum(r["tokens"] for r in rows if r["source"] == "big" and r["split"] == "train") == drawn["big"]["drawn_tokens"]
    )
