"""diff and sql: what two runs keep, and a run's boxes as views."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from inquiry.conftest import made
from typer.testing import CliRunner

import gpu_curate as gc
from gpu_curate import cli
from gpu_curate.errors import ConfigError
from gpu_curate.inquiry.diff import diff
from gpu_curate.inquiry.stored import Stored


@pytest.fixture(scope="module")
def other(inputs, tmp_path_factory):
    """Fewer rules, no near-duplicates, other survivors, and a file less."""
    data = made(inputs, dedup={"fuzzy": None}, min_tokens=40)
    data["sources"][1]["path"] = str(inputs / "corpus" / "[bc].jsonl*")
    place = tmp_path_factory.mktemp("other") / "r"
    gc.run(data, place)
    return place


def fates(folder):
    run = gc.open_run(folder)
    places = run.documents.to_table(columns=["source", "path", "row"]).to_pylist()
    decided = run.decisions.to_table(columns=["reason", "tokens"]).to_pylist()
    return {tuple(p.values()): (d["reason"] or "kept", d["tokens"]) for p, d in zip(places, decided, strict=True)}


def test_changes_are_counted_by_pair_of_reasons(run, other):
    a, b = fates(run), fates(other)
    expected = Counter((a[p][0], b[p][0]) for p in a.keys() & b.keys())
    facts = diff(Stored(run), Stored(other))
    found = {(c["a"], c["b"]): c["documents"] for c in (*facts["changes"], *facts["reasons"])}
    assert found == {pair: n for pair, n in expected.items() if pair[0] != pair[1]}
    assert len({c["b"] for c in facts["changes"]}) > 1
    assert facts["both_kept"]["documents"] == expected["kept", "kept"]
    assert facts["only_a"]["documents"] == len(a.keys() - b.keys()) == 3
    assert facts["only_b"]["documents"] == 0
    tokens = Counter()
    for place in a.keys() & b.keys():
        tokens[a[place][0], b[place][0]] += a[place][1]
    assert all(c["tokens"] == tokens[c["a"], c["b"]] for c in facts["changes"])
    assert facts["set"]["min_tokens"] == [10, 40]
    for change in facts["changes"]:
        for example in change["examples"]:
            place = (example["source"], example["path"], example["row"])
            assert (a[place][0], b[place][0]) == (change["a"], change["b"])
    done = CliRunner().invoke(cli.app, ["diff", str(run), str(other)], catch_exceptions=False)
    assert "fuzzy_duplicate" in done.output
    same = CliRunner().invoke(cli.app, ["diff", str(run), str(run), "--json"], catch_exceptions=False)
    assert json.loads(same.output)["changes"] == []


def test_runs_without_a_common_file_are_not_compared(run, tmp_path):
    (tmp_path / "x.jsonl").write_text(json.dumps({"text": "quite another text that nobody has"}) + "\n")
    data = {
        "sources": [{"name": "x", "type": "jsonl", "path": str(tmp_path / "x.jsonl")}],
        "tokenizer": {"train": {"vocab_size": 300}},
        "min_tokens": 1,
        "shards": {"validation": {"tokens": 0}},
        "run": {"engine": "inline"},
    }
    gc.run(data, tmp_path / "r")
    with pytest.raises(ConfigError, match="no input file in common"):
        diff(Stored(run), Stored(tmp_path / "r"))


def test_views_are_the_boxes(run):
    pytest.importorskip("duckdb")
    opened = gc.open_run(run)
    decided, scores = opened.decisions.to_table(), opened.scores.to_table()
    reasons = Counter(decided["reason"].to_pylist())
    found = opened.sql("select reason, count(*) n from decisions group by all")
    assert dict(zip(*found.to_pydict().values(), strict=True)) == reasons
    joined = opened.sql("select * from scores where words > 40 order by doc_id")
    expected = {i: w for i, w in zip(decided["doc_id"].to_pylist(), scores["words"].to_pylist(), strict=True) if w > 40}
    assert dict(zip(joined["doc_id"].to_pylist(), joined["words"].to_pylist(), strict=True)) == expected
    assert len(expected) > 50
    stored = Stored(run)
    failing = opened.sql("select failing from decisions order by doc_id")["failing"].to_pylist()
    assert failing == [stored.failing(f) for f in decided["failing"].to_pylist()]
    hits = opened.sql("select * from contamination where coverage > 0").to_pylist()
    failed = {i for i, f in zip(decided["doc_id"].to_pylist(), failing, strict=True) if "contaminated" in f}
    assert {h["doc_id"] for h in hits} == failed != set()
    assert {h["set"] for h in hits} == {"bench"}
    assert opened.sql("select count(*) c from tokens")["c"][0].as_py() == opened.tokens.count_rows()
    assert (
        opened.sql("select count(*) c from documents join clusters using (doc_id)")["c"][0].as_py()
        == opened.clusters.count_rows()
    )
    with pytest.raises(ConfigError, match="reson"):
        opened.sql("select reson from decisions")
    done = CliRunner().invoke(cli.app, ["sql", str(run), "select path, row from documents limit 2", "--json"])
    assert len(json.loads(done.output)) == 2
    assert "keep" in CliRunner().invoke(cli.app, ["sql", str(run), "select * from decisions"]).output
