"""`gpu_curate.stream`: what a run keeps, without a run; ranks are disjoint, and a number goes on."""

import json
import random
import warnings

import pytest
from corpora import document

import gpu_curate as gc
from gpu_curate.api import stream as module


@pytest.fixture
def recipe(tmp_path, monkeypatch):
    """Three files, of short and long texts, broken lines and empty ones; parts of 20 kB."""
    monkeypatch.setattr(module, "_PART_BYTES", 20_000)
    monkeypatch.setattr(module, "_BATCH_BYTES", 5_000)
    rng = random.Random(0)
    (tmp_path / "data").mkdir()
    for name in "abc":
        lines = [json.dumps({"text": document(rng, rng.choice([3, 40, 200]))}) for _ in range(60)]
        lines[7] = "{broken"
        lines[9] = json.dumps({"text": ""})
        (tmp_path / "data" / f"{name}.jsonl").write_text("\n".join(lines))
    gc.run(
        {
            "sources": [{"name": "t", "type": "jsonl", "path": str(tmp_path / "data" / "*.jsonl")}],
            "tokenizer": {"train": {"vocab_size": 400}},
            "run": {"engine": "inline"},
        },
        tmp_path / "trained",
    )
    return {
        "sources": [{"name": "s", "type": "jsonl", "path": str(tmp_path / "data" / "*.jsonl")}],
        "tokenizer": {"path": str(tmp_path / "trained" / "shards" / "tokenizer.json")},
        "quality": {"gopher_quality": {"min_words": 20, "min_stop_words": None}},
        "dedup": {"exact": False, "fuzzy": None},
        "min_tokens": 64,
        "shards": {"validation": {"tokens": 0}},
        "run": {"engine": "inline"},
    }


def seen(documents):
    return [(d.path, d.row, d.text, d.ids.tolist()) for d in documents]


def test_a_stream_gives_what_a_run_keeps_with_its_counts(recipe, tmp_path):
    run = gc.run(recipe, tmp_path / "run")
    table = run.documents.to_table(columns=["doc_id", "path", "row"]).to_pylist()
    keep = dict(zip(*run.decisions.to_table(columns=["doc_id", "keep"]).to_pydict().values(), strict=True))
    texts = {}
    for part in run.texts():
        texts |= dict(zip(part["doc_id"].to_pylist(), part["text"].to_pylist(), strict=True))
    expected = [(d["path"], d["row"], texts[d["doc_id"]]) for d in table if keep[d["doc_id"]]]
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # all that this recipe asks for is done
        stream = gc.stream(recipe, 0, 1)
    got = seen(stream)
    assert [g[:3] for g in got] == expected
    assert 5 < len(got) < 170
    report = run.report["documents"]
    assert stream.counts["kept"] == report["kept"]
    assert stream.counts["rejected"] == report["rejected"] == 3
    assert dict(stream.counts["dropped"]) == report["dropped"]
    assert stream.counts["read"] == report["read"]
    ids, lengths, eot_id, _ = gc.tokenize([g[2] for g in got], recipe["tokenizer"]["path"], append_eot=True)
    assert [t for g in got for t in g[3]] == ids.tolist()
    assert [len(g[3]) for g in got] == lengths.tolist()
    assert all(g[3][-1] == eot_id for g in got)


@pytest.mark.parametrize("world_size", [2, 3])
def test_ranks_are_disjoint_and_together_all(recipe, world_size):
    whole = seen(gc.stream(recipe, 0, 1))
    ranks = [seen(gc.stream(recipe, r, world_size)) for r in range(world_size)]
    assert all(ranks)
    assert sorted(d for rank in ranks for d in rank) == sorted(whole)


def test_a_number_goes_on_behind_its_document(recipe):
    documents = list(gc.stream(recipe, 1, 2))
    whole = seen(documents)
    for n in range(0, len(whole), 3):
        assert seen(gc.stream(recipe, 1, 2, start=documents[n].number)) == whole[n + 1 :]


def test_what_a_stream_cannot_do_is_said(recipe):
    with pytest.warns(RuntimeWarning, match=r"not applied.*dedup\.exact, dedup\.fuzzy, shards\.validation"):
        gc.stream({k: v for k, v in recipe.items() if k not in ("dedup", "shards")}, 0, 1)
    with pytest.raises(gc.ConfigError, match="train reads the whole corpus"):
        gc.stream({**recipe, "tokenizer": {"train": {"vocab_size": 300}}}, 0, 1)
    with pytest.raises(gc.ConfigError, match="999 ranks and"):
        gc.stream(recipe, 0, 999)
    with pytest.raises(gc.ConfigError, match=r"rank 2 must be in 0\.\.1"):
        gc.stream(recipe, 2, 2)
    with pytest.raises(gc.ConfigError, match="behind the last part"):
        gc.stream(recipe, 0, 1, start=1 << 50)
    with pytest.raises(gc.InputError, match=r"a\.jsonl, row 7"):
        list(gc.stream(recipe, 0, 1, overrides=["run.strict=true"]))
