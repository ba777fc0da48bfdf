"""Templates, shares of items, items before and after, weighed fields, the run's own held-out documents, ready sets."""

from __future__ import annotations

import json
import random
from collections import defaultdict

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import reference
from corpora import document

import gpu_curate as gc
from gpu_curate import config
from gpu_curate.api import pipeline
from gpu_curate.errors import ConfigError
from gpu_curate.inquiry.explain import explain
from gpu_curate.inquiry.stored import Stored
from gpu_curate.stages.sections import Reference, known_benchmarks
from gpu_curate.store.files import read_json

N = 4
FORMULA = "which of the following statements is true of"


def write(path, rows):
    path.write_text("\n".join(json.dumps(r if isinstance(r, dict) else {"text": r}) for r in rows))
    return str(path)


def execute(tmp_path, tokenizer, texts, references, whole=False, **keys):
    half = len(texts) if whole else -(-len(texts) // 2)
    data = {
        "sources": [  # a partition holds documents of one source only
            {"name": f"s{i}", "type": "jsonl", "path": write(tmp_path / f"s{i}.jsonl", texts[i : i + half])}
            for i in range(0, len(texts), half)
        ],
        "tokenizer": {"path": str(tokenizer)},
        "min_tokens": 0,
        "references": references,
        "shards": {"validation": {"tokens": 300, "max_fraction": 0.5}},
        "run": {"engine": "inline"},
        **keys,
    }
    pipeline.execute(config.parse(data), tmp_path / "run")
    return tmp_path / "run", read_json(tmp_path / "run" / "report" / "report.json")


def box(run, name):
    return run / read_json(run / "run.json")["folders"][name]


def rows(run, name):
    return [r for p in sorted(box(run, name).glob("part-??????.parquet")) for r in pq.read_table(p).to_pylist()]


def expected(texts, items, documents, least):
    """coverage and item of every text, the n-grams with their documents and items, by sets."""
    grams = [reference.item_ngrams(item.encode(), N, False, 3) for item in items]
    held = [reference.contamination([t.encode()], [i.encode() for i in items], N, False, 3)[0][0] for t in texts]
    df, members = defaultdict(int), defaultdict(int)
    for found in held:
        for gram in found:
            df[gram] += 1
    for own in grams:
        for gram in own:
            members[gram] += 1
    template = {g for g in df if df[g] > documents and members[g] >= least}
    counting = [own - template or own for own in grams]
    best = []
    for found in held:
        shares = [len(found & own) / len(own) if own else 0.0 for own in counting]
        top = max(shares)
        best.append((top, shares.index(top) if top else -1))
    return best, {g: (df[g], members[g], g in template) for g in df}


@pytest.mark.parametrize("seed", [1, 2])
def test_templates_and_shares_equal_sets(tmp_path, tokenizer, seed):
    rng = random.Random(seed)
    items = [f"{FORMULA} {document(rng, 1)}" for _ in range(4)] + [document(rng, 1), FORMULA, FORMULA, "too short"]
    texts = [document(rng) for _ in range(10)]
    for i in range(6):
        texts[i] += f"\n{FORMULA} all of them"
    texts[7] += "\n" + items[0]
    texts[8] += "\n" + " ".join(items[1].split()[:9])
    texts[9] += "\n" + items[4].upper()
    set_ = {
        "name": "e", "path": write(tmp_path / "e.jsonl", items), "action": "decontaminate", "ngram_words": N,
        "template_documents": 3, "template_items": 3, "max_coverage": 0.5,
    }  # fmt: skip
    run, facts = execute(tmp_path, tokenizer, texts, [set_])
    best, grams = expected(texts, items, 3, 3)
    found = rows(run, "overlaps")
    assert [r["coverage_e"] for r in found] == pytest.approx([share for share, _ in best], abs=1e-6)
    first = pq.read_table(box(run, "references") / "part-000000.parquet")["doc_id"][0].as_py()
    assert [r["item_e"] for r in found] == [first + item if item >= 0 else -1 for _, item in best]
    told = pq.read_table(box(run, "ngrams") / "ngrams.parquet").to_pylist()
    assert {r["ngram"]: (r["documents"], r["items"], r["template"]) for r in told} == grams
    assert [r["documents"] for r in told] == sorted((r["documents"] for r in told), reverse=True)
    assert any(r["template"] for r in told)
    assert all(r["ngram"] in reference.item_ngrams(r["text"].encode(), N, False, 3) for r in told)
    assert facts["contamination"]["e"]["templates"] == sum(r["template"] for r in told)
    assert facts["contamination"]["e"]["commonest"][0] == {
        k: told[0][k] for k in ("text", "documents", "items", "template")
    }
    reasons = [r["reason"] for r in rows(run, "decisions")]
    assert reasons == ["contaminated" if share > 0.5 else None for share, _ in best]
    assert "contaminated" in reasons


def test_items_are_counted_in_what_is_read_and_in_what_is_kept(tmp_path, tokenizer):
    rng = random.Random(5)
    items = [" ".join(f"w{i}x{k}" for k in range(20)) for i in range(10)]
    texts = [document(rng) for _ in range(6)]
    texts[0] += " " + items[0]  # whole
    texts[1] += " " + items[1]
    texts[2] += " " + " ".join(items[2].split()[:14])  # 2 of 8 n-grams
    path = write(tmp_path / "e.jsonl", items)
    for on_match, over, touched in (("drop", 0, 1), ("cut", 0, 1), ("flag", 2, 3)):
        (tmp_path / on_match).mkdir()
        set_ = {"name": "e", "path": path, "action": "decontaminate", "max_coverage": 0.5, "on_match": on_match}
        _, facts = execute(tmp_path / on_match, tokenizer, texts, [set_])
        assert facts["contamination"]["e"]["items_found"] == {
            "items": 10, "touched_before": 3, "touched_after": touched, "over_before": 2, "over_after": over
        }  # fmt: skip


def test_fields_of_an_item_are_weighed(tmp_path, tokenizer):
    rng = random.Random(6)
    question, answer = (" ".join(f"{c}{k}" for k in range(20)) for c in "qa")
    other = {"question": " ".join(f"z{k}" for k in range(20)), "answer": "short"}
    texts = [document(rng) for _ in range(5)]
    texts[1] += " " + question
    texts[2] += " " + answer
    texts[3] += f" {question} {answer}"
    texts[4] += " " + other["question"]
    path = write(tmp_path / "e.jsonl", [{"question": question, "answer": answer}, other])
    set_ = {
        "name": "e", "path": path, "action": "decontaminate", "text_fields": ["question", "answer"],
        "field_weights": {"question": 3, "answer": 1}, "max_coverage": 0.5,
    }  # fmt: skip
    set_["field_weights"] = {"question": 3.0, "answer": 1.0}
    run, facts = execute(tmp_path, tokenizer, texts, [set_])
    found = rows(run, "overlaps")
    assert [r["coverage_e"] for r in found] == [0.0, 0.75, 0.25, 1.0, 1.0]  # a field without an n-gram does not count
    ids = pq.read_table(box(run, "references") / "part-000000.parquet")["doc_id"].to_pylist()
    assert [r["item_e"] for r in found] == [-1, ids[0], ids[0], ids[0], ids[2]]
    assert [r["reason"] for r in rows(run, "decisions")] == [None, "contaminated", None, "contaminated", "contaminated"]
    assert facts["contamination"]["e"]["items_found"]["items"] == 2
    (match,) = explain(Stored(run), rows(run, "decisions")[2]["doc_id"])["contamination"]
    assert match["shared"] == [answer]  # of the second field
    set_["on_match"] = "cut"
    (tmp_path / "cut").mkdir()
    run, facts = execute(tmp_path / "cut", tokenizer, texts, [set_])
    kept = [r["bytes"] for r in rows(run, "decisions")]
    assert kept[1] == len(texts[0].encode()) - len(texts[0].encode()) + len(texts[1]) - len(question) - 1
    assert kept[2] == len(texts[2])
    assert facts["cuts"]["documents"] == 3


def held_of(run):
    table = pq.read_table(run / "shards" / "documents.parquet").to_pylist()
    return {r["row"] for r in table if r["split"] == "validation"}


@pytest.mark.parametrize("on_match", ["drop", "flag"])
def test_held_out_documents_that_training_holds_are_not_held_out(tmp_path, tokenizer, on_match):
    rng = random.Random(8)
    texts = [document(rng, 12) for _ in range(30)]
    (tmp_path / "before").mkdir()
    run, _ = execute(tmp_path / "before", tokenizer, texts, [], whole=True, dedup={"fuzzy": None})
    held = sorted(held_of(run))
    assert len(held) >= 2
    train = min(set(range(30)) - set(held))
    # Content decides who is held out, so the training document is changed, not the held-out one: it stays in training if its
    # key stays above the bound; a suffix is tried until it does.
    for suffix in range(50):
        changed = list(texts)
        changed[train] += f"\n{texts[held[0]]}\n{suffix}"
        folder = tmp_path / f"try{suffix}"
        folder.mkdir()
        own = {"name": "own", "from": "validation", "action": "decontaminate", "on_match": "flag"}
        keys = {"dedup": {"fuzzy": None}, "shards": {"validation": {"tokens": 300, "max_fraction": 0.5}}}
        run, _ = execute(folder, tokenizer, changed, [own | {"max_coverage": 0.3}], whole=True, **keys)
        if held_of(run) == set(held):
            break
    pairs = rows(run, "leaks")
    assert [(p["doc_id"], p["item"], p["coverage"]) for p in pairs] == [(train, held[0], 1.0)]
    if on_match == "drop":
        run, facts = execute(
            folder, tokenizer, changed, [own | {"max_coverage": 0.3, "on_match": "drop"}], whole=True, **keys
        )
        assert held_of(run) == set(held[1:])
        assert facts["split"]["leaking_documents"] == 1
        assert facts["documents"]["kept"] == 30
    else:
        assert "leaking_documents" not in read_json(run / "report" / "report.json")["split"]


def test_a_ready_set_is_read_from_a_local_copy(tmp_path, tokenizer):
    """Offline: a folder as the hub has it, named by `dataset`, or its files by `path`."""
    item = " ".join(f"q{k}" for k in range(20))
    folder = tmp_path / "gsm8k"
    (folder / "main").mkdir(parents=True)
    pq.write_table(pa.table({"question": [item], "answer": ["4"]}), folder / "main" / "test-00000-of-00001.parquet")
    head = "configs:\n- config_name: main\n  data_files:\n  - split: test\n    path: main/test-*\n"
    (folder / "README.md").write_text(f"---\n{head}---\n")
    texts = [document(random.Random(9)), document(random.Random(10)) + " " + item]
    for number, place in enumerate(({"dataset": str(folder)}, {"path": str(folder / "main" / "*.parquet")})):
        (tmp_path / f"r{number}").mkdir()
        _, facts = execute(tmp_path / f"r{number}", tokenizer, texts, [{"benchmark": "gsm8k", **place}])
        assert facts["documents"]["dropped"] == {"contaminated": 1}
        assert facts["contamination"]["gsm8k"]["items_found"]["items"] == 1
        manifest = (tmp_path / f"r{number}" / "run" / "shards" / "manifest.json").read_text()
        assert str(tmp_path) not in manifest  # no folder of this machine goes out with the shards


def test_every_ready_set_is_a_reference():
    for name in known_benchmarks():
        made = Reference.model_validate({"benchmark": name})
        assert (made.name, made.action) == (name, "decontaminate")
        assert made.dataset is not None
        assert made.dataset.count("/") == 1
    assert len(known_benchmarks()) >= 12


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"benchmark": "gsm9k"}, "'gsm9k' is not known; known are arc_challenge"),
        ({"name": "a", "action": "decontaminate"}, "give one of path, dataset and from"),
        ({"name": "a", "path": "x", "dataset": "y", "action": "decontaminate"}, "not path and dataset"),
        ({"name": "a", "from": "validation", "action": "train_only"}, "from: validation needs action: decontaminate"),
        (
            {"name": "a", "path": "x", "action": "decontaminate", "field_weights": {"q": 1.0}},
            "q is not among text_fields",
        ),
        (
            {"name": "a", "path": "x", "action": "decontaminate", "revision": "main"},
            "config and revision are of `dataset`",
        ),
    ],
)
def test_bad_entries_are_named(tmp_path, tokenizer, entry, message):
    with pytest.raises(ConfigError, match=message):
        execute(tmp_path, tokenizer, ["a"], [entry])


def test_the_commonest_ngrams_are_a_view_of_sql(tmp_path, tokenizer):
    pytest.importorskip("duckdb")
    item = " ".join(f"w{k}" for k in range(14))
    texts = [document(random.Random(i)) + " " + item for i in range(3)]
    set_ = {"name": "e", "path": write(tmp_path / "e.jsonl", [item]), "action": "decontaminate", "max_coverage": 1.0}
    run, _ = execute(tmp_path, tokenizer, texts, [set_])
    told = gc.open_run(run).sql('select "set", documents, items, template, text from ngrams order by text').to_pylist()
    assert [(r["set"], r["documents"], r["items"], r["template"]) for r in told] == [("e", 3, 1, False)] * 2
    assert told[0]["text"] == " ".join(f"w{k}" for k in range(13))
