"""diff and sql: what two runs keep, and a run's boxes as views."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from inquiry.conftest import made
from typer.testing import CliRunner

import gpu_curate as gc
from gpu_curate import cli
from gpu_curate.errors import ConfigError
from gpu_curate.inquiry.diff import diff
from gpu_curate.inquiry.sql import sql
from gpu_curate.inquiry.stored import Stored
from gpu_curate.visible import ODD


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


FILES = """
select * from '{csv}'
select * from read_csv('{csv}')
select * from read_text('{csv}')
select * from glob('{place}/*')
select * from '{run}/documents/part-000000.parquet'
select * from 'https://example.com/a.parquet'
copy (select 1) to '{place}/out.csv'
with x as (copy (select 1) to '{place}/out.csv') select * from x
export database '{place}/out'
attach '{place}/out.duckdb'
install httpfs
load httpfs
set enable_external_access = true
set allowed_directories = ['/']
copy (select 7 x) to '{own}' (format parquet, use_tmp_file false)
with x as (copy (select 7 x) to '{own}' (format parquet, use_tmp_file false)) select * from x
explain analyze copy (select 7 x) to '{own}' (format parquet, use_tmp_file false)
select 1; copy (select 7 x) to '{own}' (format parquet, use_tmp_file false)
select * from secret_of_ours
"""


@pytest.mark.parametrize("query", FILES.strip().splitlines(), ids=range(FILES.strip().count("\n") + 1))
def test_a_query_reaches_the_views_and_nothing_else(run, tmp_path, monkeypatch, query):
    duckdb = pytest.importorskip("duckdb")
    secret_of_ours = pa.table({"a": [1]})  # a local variable, which DuckDB takes for a table elsewhere
    place = tmp_path / "place"
    place.mkdir()
    (place / "a.csv").write_text("a,b\n1,2\n")
    monkeypatch.chdir(place)
    before = {p: p.stat().st_mtime_ns for p in [*run.rglob("*"), *place.rglob("*")]}
    with pytest.raises(ConfigError) as e:
        sql(
            Stored(run),
            query.format(csv=place / "a.csv", place=place, run=run, own="gpu-curate-run://0/part-000000.parquet"),
        )
    assert "Traceback" not in e.value.message
    assert {p: p.stat().st_mtime_ns for p in [*run.rglob("*"), *place.rglob("*")]} == before
    assert len(secret_of_ours) == 1
    assert duckdb.sql("select a from secret_of_ours").fetchall() == [(1,)]  # by itself it does


def test_what_a_query_spills_goes_to_a_private_folder_that_is_removed(run, tmp_path, monkeypatch):
    pytest.importorskip("duckdb")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    place = sql(Stored(run), "select current_setting('temp_directory') place")["place"][0].as_py()
    assert Path(place).parent == tmp_path
    assert list(tmp_path.iterdir()) == []


def test_a_column_that_commands_a_terminal_is_printed_visibly(run):
    pytest.importorskip("duckdb")
    query = "select 'a\x1b[31m' as \"b\x1b]0;c\x07[red]\u202e\", ['\x9b2J', '\u2066'] as d"
    done = CliRunner().invoke(cli.app, ["sql", str(run), query])
    assert done.exit_code == 0
    assert not ODD.search(done.output)
    assert "b␛]0;c␇[red]⟨U+202E⟩" in done.output
    assert "a␛[31m" in done.output
