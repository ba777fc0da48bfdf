"""The sample that a run's tokenizer is trained on: shares of sources, reserved tokens."""

import json
import random

import pyarrow.parquet as pq
import pytest
from corpora import document

from gpu_curate import config
from gpu_curate.api import pipeline
from gpu_curate.stages import tokenizer as stage
from gpu_curate.tools.train_tokenizer import train_from_files


@pytest.fixture
def sampled(tmp_path, monkeypatch):
    """A function that runs a recipe of a large and a small source and gives the texts that were trained on."""
    rng = random.Random(0)
    texts = {}
    for name, count in (("big", 60), ("small", 6)):
        texts[name] = [document(rng, 6) for _ in range(count)]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(json.dumps({"text": t}) for t in texts[name]))

    def run(out, **train):
        seen = []
        real = stage.sample
        monkeypatch.setattr(stage, "sample", lambda *a: seen.extend(real(*a)) or list(seen))
        data = {
            "sources": [
                {"name": name, "type": "jsonl", "path": str(tmp_path / f"{name}.jsonl")} for name in ("big", "small")
            ],
            "tokenizer": {"train": {"vocab_size": 300, **train}},
            "min_tokens": 0,
            "shards": {"validation": {"tokens": 0}},
            "run": {"engine": "inline"},
        }
        pipeline.execute(config.parse(data), tmp_path / out)
        monkeypatch.setattr(stage, "sample", real)
        return seen, json.loads((tmp_path / out / "shards" / "tokenizer.json").read_bytes())

    return run, texts


def test_each_source_gives_up_to_its_bytes_of_the_lowest_hashes(sampled):
    run, texts = sampled
    whole, _ = run("whole")
    assert sorted(whole) == sorted(texts["big"] + texts["small"])
    limit = sum(len(t.encode()) for t in texts["small"]) + 10
    some, _ = run("some", bytes_per_source=limit)
    assert [t for t in whole if t in some] == some  # in the order of their hash
    assert [t for t in some if t in texts["small"]] == [t for t in whole if t in texts["small"]]
    big = [t for t in whole if t in texts["big"]]
    taken = [t for t in some if t in texts["big"]]
    assert taken == big[: len(taken)]
    assert sum(len(t.encode()) for t in taken) <= limit < sum(len(t.encode()) for t in big[: len(taken) + 1])


def test_each_source_gives_its_first_documents_and_the_narrower_bound_holds(sampled):
    run, texts = sampled
    whole, _ = run("whole")
    big, small = ([t for t in whole if t in texts[name]] for name in ("big", "small"))
    some, _ = run("some", documents_per_source=4)
    assert [[t for t in some if t in own] for own in (big, small)] == [big[:4], small[:4]]
    limit = len(big[0].encode()) + len(big[1].encode())
    some, _ = run("fewer", documents_per_source=4, bytes_per_source=limit)
    assert [t for t in some if t in big] == big[:2]


def test_a_recipe_reserves_tokens(sampled):
    _, made = sampled[0]("reserved", reserved_tokens=["<|user|>"])
    assert [(t["content"], t["id"]) for t in made["added_tokens"]] == [("<|user|>", 298), ("<|endoftext|>", 299)]


def test_what_a_tokenizer_was_trained_on_is_never_held_out(tmp_path):
    """Its sample as a reference of the recipe: exact and near copies are for training only."""
    rng = random.Random(3)
    texts = [document(rng, 12) for _ in range(60)]
    (tmp_path / "a.jsonl").write_text("\n".join(json.dumps({"text": t}) for t in texts))
    near = texts[1].rsplit(" ", 2)[0] + " some other end"
    (tmp_path / "b.jsonl").write_text("\n".join(json.dumps({"text": t}) for t in (texts[0], near)))
    train_from_files(
        [str(tmp_path / "b.jsonl")],
        tmp_path / "t.json",
        300,
        "<|endoftext|>",
        "text",
        1 << 20,
        sample=tmp_path / "s.jsonl",
    )
    data = {
        "sources": [{"name": "s", "type": "jsonl", "path": str(tmp_path / "a.jsonl")}],
        "tokenizer": {"path": str(tmp_path / "t.json")},
        "min_tokens": 0,
        "shards": {"validation": {"tokens": 10**9, "max_fraction": 0.9}},
        "run": {"engine": "inline"},
    }

    def held(out, **more):
        pipeline.execute(config.parse(data | more), tmp_path / out)
        rows = pq.read_table(tmp_path / out / "shards" / "documents.parquet").to_pylist()
        return {row["row"] for row in rows if row["split"] == "validation"}

    sample = {"name": "sample", "path": str(tmp_path / "s.jsonl"), "text_fields": ["text"], "action": "train_only"}
    assert {0, 1} & held("without")
    held_out = held("with", references=[sample])
    assert len(held_out) > 40
    assert not {0, 1} & held_out
