"""Runs that cut: accounts, tokens, export, questions; and runs that do not, of which nothing changes."""

from __future__ import annotations

import dataclasses
import json
import random
import shutil

import numpy as np
import pyarrow.parquet as pq
import pytest
from corpora import document

import gpu_curate as gc
from gpu_curate import config
from gpu_curate.api import pipeline
from gpu_curate.cuts import joined
from gpu_curate.errors import ConfigError
from gpu_curate.inquiry.certificate import certificate
from gpu_curate.inquiry.diff import diff
from gpu_curate.inquiry.explain import explain
from gpu_curate.inquiry.forget import forget
from gpu_curate.inquiry.funnel import funnel
from gpu_curate.inquiry.stored import Stored
from gpu_curate.report.page import page
from gpu_curate.runs.finished import open_run
from gpu_curate.shards_check import verify
from gpu_curate.stages import order
from gpu_curate.stages.cuts import Cut, Cuts
from gpu_curate.store.files import read_json
from gpu_curate.tokenizer.loading import load
from gpu_curate.tokenizer.section import Tokenizer
from gpu_curate.tools.export import export

ITEM = " ".join(f"word{i}" for i in range(20))
QUOTE = f"“{ITEM.upper()}?”"


def write(path, rows):
    path.write_text("\n".join(json.dumps({"text": r}) for r in rows))
    return str(path)


def recipe(tmp_path, tokenizer, texts, on_match="cut", **keys):
    write(tmp_path / "e.jsonl", [ITEM, "another item of the set that nobody quotes in all of these documents here"])
    reference = {"name": "e", "path": str(tmp_path / "e.jsonl"), "action": "decontaminate", "on_match": on_match}
    return {
        "sources": [{"name": "s", "type": "jsonl", "path": write(tmp_path / "s.jsonl", texts)}],
        "tokenizer": {"path": str(tokenizer)},
        "min_tokens": 20,
        "dedup": {"fuzzy": None},
        "references": [reference],
        "shards": {"validation": {"tokens": 100, "max_fraction": 0.3}},
        "run": {"engine": "inline"},
        **keys,
    }


def texts_of(rng, count=8):
    texts = [document(rng) for _ in range(count)]
    texts[2] = f"{document(rng)}\n\n{QUOTE}\n\n{document(rng)}"
    texts[5] = QUOTE  # nothing is left
    texts[6] = f"It says: {ITEM}. Good."  # too little is left
    return texts


def decided(run):
    folder = run / read_json(run / "run.json")["folders"]["decisions"]
    return [r for p in sorted(folder.glob("*.parquet")) for r in pq.read_table(p).to_pylist()]


@pytest.fixture(scope="module")
def cut_run(tmp_path_factory, tokenizer):
    """A run that cuts, its texts as they were read, and what should be left of them."""
    tmp_path = tmp_path_factory.mktemp("cut")
    texts = texts_of(random.Random(3))
    left = list(texts)
    left[2] = texts[2].replace(f"{QUOTE}\n\n", "")
    left[5], left[6] = "", "It says: Good."
    run = tmp_path / "run"
    pipeline.execute(config.parse(recipe(tmp_path, tokenizer, texts)), run)
    return run, texts, left


def test_tokens_in_are_those_kept_dropped_and_cut(cut_run, tokenizer):
    run, texts, left = cut_run
    facts, encoder = read_json(run / "report" / "report.json"), load(Tokenizer(path=str(tokenizer)))
    before, after = (encoder.encode_batch(t)[1].astype(int) + 1 for t in (texts, left))
    rows = decided(run)
    assert [r["tokens"] for r in rows] == after.tolist()
    assert [r["bytes"] for r in rows] == [len(t.encode()) for t in left]
    assert [r["reason"] for r in rows] == [None] * 5 + ["empty", "too_few_tokens", None]
    tokens, nbytes = facts["tokens"], facts["bytes"]
    assert tokens["read"] == before.sum() == tokens["kept"] + sum(tokens["dropped"].values()) + tokens["cut"]
    assert tokens["cut"] == before.sum() - after.sum() > 0
    assert nbytes["read"] == sum(len(t.encode()) for t in texts)
    assert nbytes["cut"] == nbytes["read"] - sum(len(t.encode()) for t in left)
    counts = {"documents": 3, "ranges": 3, "bytes": 2 * len(QUOTE.encode()) + len(ITEM) + 1}
    assert facts["cuts"] == {
        "documents": 3, "tokens": tokens["cut"], "bytes": nbytes["cut"], "rules": {"contaminated:e": counts}
    }  # fmt: skip


def test_shards_hold_what_is_left(cut_run, tokenizer):
    run, _, left = cut_run
    encoder = load(Tokenizer(path=str(tokenizer)))
    shards = run / "shards"
    held = {}
    for row in pq.read_table(shards / "documents.parquet").to_pylist():
        loader = gc.ShardLoader(run, row["split"], 1, 8)
        ids = np.asarray(loader.stream.read(row["position"], row["position"] + row["tokens"]))
        held[row["row"]] = ids.tolist()
    assert sorted(held) == [0, 1, 2, 3, 4, 7]
    for row, ids in held.items():
        assert ids[:-1] == encoder.encode_batch([left[row]])[0].tolist()
    assert verify(shards) == []


def test_an_export_holds_what_is_left(cut_run, tmp_path):
    run, _, left = cut_run
    out = tmp_path / "out"
    out.mkdir()
    export(open_run(run), out, what="all", columns=["row", "text", "tokens", "bytes"], workers=1)
    rows = [r for p in sorted(out.glob("*.parquet")) for r in pq.read_table(p).to_pylist()]
    assert [r["text"] for r in rows] == left
    assert [r["bytes"] for r in rows] == [len(t.encode()) for t in left]


def test_explain_funnel_and_report_show_what_was_cut(cut_run):
    run, texts, _ = cut_run
    stored = Stored(run)
    facts = explain(stored, 2)
    start = texts[2].encode().index("“".encode())
    cut = {"start": start, "end": start + len(QUOTE.encode()), "rule": "contaminated:e", "text": QUOTE}
    assert facts["cuts"] == [cut]
    assert facts["kept"]
    assert facts["text"] == texts[2]
    assert explain(stored, 0)["cuts"] == []
    report = read_json(run / "report" / "report.json")
    told = funnel(stored)
    assert told["cut"] == {n: report["cuts"][n] for n in ("documents", "tokens", "bytes")}
    for unit in ("documents", "tokens", "bytes"):
        assert told["read"][unit] == report[unit]["read"]
        assert told["kept"][unit] == report[unit]["kept"]
    html = page(report, open_run(run))
    assert 'id="cuts"' in html
    assert "&lt;data" not in html  # markup that went through a string and was escaped
    assert "WORD0 WORD1" in html
    with pytest.raises(ConfigError, match="cut out of documents"):
        funnel(stored, changes=["references.e.max_coverage=0.5"])


def test_cuts_are_a_view_of_sql(cut_run):
    pytest.importorskip("duckdb")
    run, _, _ = cut_run
    rows = gc.open_run(run).sql('select doc_id, "end" - start as size, rule from cuts order by doc_id').to_pylist()
    assert [(r["doc_id"], r["size"]) for r in rows] == [
        (2, len(QUOTE.encode())), (5, len(QUOTE.encode())), (6, len(ITEM) + 1)
    ]  # fmt: skip


def test_a_cut_document_is_forgotten_and_runs_are_compared(cut_run, tmp_path, tokenizer):
    run, texts, left = cut_run
    copied = tmp_path / "copied"
    shutil.copytree(run, copied, symlinks=True)
    receipt = forget(copied, ["2"])
    tokens = load(Tokenizer(path=str(tokenizer))).encode_batch([left[2]])[1].tolist()
    assert receipt["tokens"] == tokens[0] + 1
    assert "cut_tokens" in receipt["holds_still"]
    assert verify((copied / "shards").resolve()) == []
    assert explain(Stored(copied), 2)["reason"] == "forgotten"
    (tmp_path / "drop").mkdir()
    data = recipe(tmp_path, tokenizer, texts, "drop")
    data["sources"][0]["path"] = read_json(run / "run.json")["config"]["sources"][0]["path"]
    pipeline.execute(config.parse(data), tmp_path / "other")
    changes = diff(Stored(run), Stored(tmp_path / "other"))["changes"]
    assert [(c["a"], c["b"], c["documents"]) for c in changes] == [("kept", "contaminated", 1)]


def test_words_that_are_cut_out_of_a_survivor_are_lost_with_its_copy(tmp_path, tokenizer):
    rng = random.Random(4)
    base = document(rng, 40)
    texts = [f"{base}\n\n{QUOTE}", f"{base}\n\n{QUOTE} end", *(document(rng) for _ in range(4))]
    pipeline.execute(config.parse(recipe(tmp_path, tokenizer, texts) | {"dedup": {}}), tmp_path / "run")
    facts = certificate(Stored(tmp_path / "run"))
    assert facts["removed"] == 1
    assert 20 <= facts["lost_words"] <= 21


def files_of(run):
    """The bytes of what goes out."""
    return {p.name: p.read_bytes() for p in sorted((run / "shards").iterdir()) if p.suffix in (".bin", ".parquet")}


@pytest.mark.parametrize("keys", [{}, {"engine": "local", "workers": 2}])
def test_cut_shards_are_the_same_whatever_the_partitions(cut_run, tmp_path, tokenizer, keys):
    run, texts, _ = cut_run
    other = tmp_path / "run"
    data = recipe(tmp_path, tokenizer, texts)
    data["sources"] = [  # a partition holds documents of one source only
        {"name": f"s{i}", "type": "jsonl", "path": write(tmp_path / f"s{i}.jsonl", texts[i : i + 3])} for i in (0, 3, 6)
    ]
    data["run"] |= keys
    pipeline.execute(config.parse(data), other)
    a, b = files_of(run), files_of(other)
    assert a.keys() == b.keys()
    assert all(a[n] == b[n] for n in a if n.endswith(".bin"))


def test_flag_keeps_the_document_whole_and_counts_it(tmp_path, tokenizer):
    texts = texts_of(random.Random(3))
    pipeline.execute(config.parse(recipe(tmp_path, tokenizer, texts, "flag")), tmp_path / "run")
    facts = read_json(tmp_path / "run" / "report" / "report.json")
    assert facts["documents"]["dropped"] == {}
    assert facts["contamination"]["e"]["matches"] == 3
    assert "cuts" not in facts
    assert "cut" not in facts["tokens"]
    told = funnel(Stored(tmp_path / "run"), changes=["references.e.on_match=drop"])
    assert [(s["rule"], s["took"]["documents"]) for s in told["steps"]] == [("contaminated", 3)]


def test_on_match_is_of_benchmarks(tmp_path, tokenizer):
    data = recipe(tmp_path, tokenizer, ["a"])
    data["references"][0]["action"] = "train_only"
    with pytest.raises(ConfigError, match="on_match: cut is of action: decontaminate, not of train_only"):
        config.parse(data)


@dataclasses.dataclass(frozen=True)
class Everything:
    """A rule that cuts ranges which touch, nest, leave the text and would split code points."""

    boxes: tuple[str, ...] = ("signatures",)
    given: tuple[tuple[int, int, int], ...] = ((0, 5, 9), (0, 7, 30), (0, 8, 9), (1, -4, 3), (1, 1, 2), (2, 0, 10**6))

    def settings(self):
        return self.given

    def ranges(self, part):
        documents = part.boxes.box("documents").read_table(part.name, ["row"])["row"].to_pylist()
        for number, row in enumerate(documents):
            yield from (Cut(number, start, end, "test") for r, start, end in self.given if r == row)


def test_another_rule_adds_its_ranges(tmp_path, tokenizer, monkeypatch):
    """What issue 13's further rules do: name their box, yield ranges; accounts, shards and reports follow."""
    texts = [document(random.Random(9)), "é" + document(random.Random(8)), document(random.Random(7)), "x " * 40 + "y"]
    monkeypatch.setattr(order, "cut_rules", lambda config: [Everything()])
    data = recipe(tmp_path, tokenizer, texts, references=[])
    pipeline.execute(config.parse(data), tmp_path / "run")
    facts = read_json(tmp_path / "run" / "report" / "report.json")
    wanted = [texts[0], texts[1], "", texts[3]]
    wanted[0] = joined(texts[0].encode(), [(5, 30)]).decode()
    wanted[1] = joined(texts[1].encode(), [(0, 3)]).decode()
    assert [r["bytes"] for r in decided(tmp_path / "run")] == [len(t.encode()) for t in wanted]
    assert facts["cuts"]["rules"]["test"]["documents"] == 3
    assert facts["cuts"]["rules"]["test"]["bytes"] == 25 + 3 + len(texts[2].encode())
    assert facts["bytes"]["cut"] == sum(len(t.encode()) for t in texts) - sum(len(t.encode()) for t in wanted)
    assert Cuts.name in read_json(tmp_path / "run" / "run.json")["folders"]
