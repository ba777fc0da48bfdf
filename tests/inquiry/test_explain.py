"""explain: a document is found by whatever names it, and what is told is what the run decided."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import gpu_curate as gc
from gpu_curate import cli
from gpu_curate.errors import ConfigError
from gpu_curate.inquiry.explain import explain, word_diff
from gpu_curate.inquiry.stored import Stored
from gpu_curate.loader import Stream
from gpu_curate.ops.minhash import MinHashSpec
from gpu_curate.tokenizer.loading import load


@pytest.fixture(scope="module")
def rows(run):
    """Every document with its text and decision."""
    opened = gc.open_run(run)
    texts = {i: t for table in opened.texts() for i, t in zip(*table.to_pydict().values(), strict=True)}
    places = {
        r["doc_id"]: r for r in opened.documents.to_table(columns=["doc_id", "source", "path", "row"]).to_pylist()
    }
    return [{**r, **places[r["doc_id"]], "text": texts[r["doc_id"]]} for r in opened.decisions.to_table().to_pylist()]


def first(rows, reason):
    return next(r for r in rows if r["reason"] == reason)


def shingled(text):
    words = "".join(c if c.isalnum() else " " for c in text.lower()).split()
    return {tuple(words[i : i + 5]) for i in range(max(len(words) - 4, 1))}


def test_each_name_finds_the_document(run, rows):
    stored = Stored(run)
    texts = [r["text"] for r in rows]
    unique = next(
        r for r in rows if sum(r["text"] in t for t in texts) == 1 and r["source"] == "jl" and len(r["text"]) > 300
    )
    by_url = next(r for p in stored.parts for r in stored.table("documents", p).to_pylist() if r.get("url"))
    asked = [
        unique["doc_id"],
        f"jl:{unique['path']}:{unique['row']}",
        f"{unique['path']}:{unique['row']}",
        f"jl:{unique['path'].rpartition('/')[2]}:{unique['row']}",
        unique["text"][7:-7],
    ]
    assert {explain(stored, name)["doc_id"] for name in asked} == {unique["doc_id"]}
    assert explain(stored, by_url["url"])["doc_id"] == by_url["doc_id"]
    assert explain(stored, by_url["url"])["scanned"]["documents"] == len(rows)
    assert gc.open_run(run).explain(unique["doc_id"])["text"] == unique["text"]


def test_every_rule_has_the_value_that_decided(run, rows):
    stored = Stored(run)
    scores = gc.open_run(run).scores.to_table()
    reasons = {r["reason"] for r in rows}
    assert {"gopher_quality:too_few_words", "gopher_quality:too_many_words", None} < reasons
    for reason in reasons:
        number, row = next((i, r) for i, r in enumerate(rows) if r["reason"] == reason)
        facts = explain(stored, row["doc_id"])
        assert (facts["kept"], facts["reason"], facts["tokens"]) == (reason is None, reason, row["tokens"])
        assert {r["rule"] for r in facts["rules"] if not r["passes"]} == {
            n for n in facts["failing"] if ":" in n or "tokens" in n
        }
        for rule in facts["rules"]:
            if rule["rule"] != "too_few_tokens":
                assert rule["value"] == scores[rule["score"]][number].as_py()
                assert rule["passes"] == (
                    rule["value"] >= rule["limit"] if rule["bound"] == "min" else rule["value"] <= rule["limit"]
                )
        assert {r["rule"]: r["limit"] for r in facts["rules"]}["gopher_quality:too_few_words"] == 30


def test_the_partner_is_told_with_similarity_and_difference(run, rows):
    row = first(rows, "fuzzy_duplicate")
    facts = explain(Stored(run), row["doc_id"])
    other = next(r for r in rows if r["doc_id"] == row["partner"])
    partner = facts["partner"]
    assert (partner["doc_id"], partner["text"], partner["kind"]) == (other["doc_id"], other["text"], "fuzzy_duplicate")
    a, b = shingled(row["text"]), shingled(other["text"])
    assert partner["jaccard"] == pytest.approx(len(a & b) / len(a | b), abs=1e-12)
    assert 0 < partner["jaccard"] < 1
    assert "".join(t for kind, t in partner["diff"] if kind != "there") == row["text"]
    assert "".join(t for kind, t in partner["diff"] if kind != "here") == other["text"]
    assert facts["cluster"]["survivor"] == other["doc_id"]
    assert facts["cluster"]["size"] >= 2
    assert MinHashSpec().shingle_words == 5


def test_the_partner_of_a_duplicate_that_fails_another_rule_first_is_its_survivor(run, rows):
    stored = Stored(run)
    row = next(
        r
        for r in rows
        if (r["reason"] or "").startswith("gopher") and "exact_duplicate" in stored.failing(r["failing"])
    )
    facts = explain(stored, row["doc_id"])
    assert (facts["reason"], facts["partner"]["kind"], facts["partner"]["jaccard"]) == (
        row["reason"],
        "exact_duplicate",
        1.0,
    )


def test_a_benchmarks_item_is_told_with_the_words_it_shares(run, rows, inputs):
    covered = gc.open_run(run).sql("select doc_id from contamination where coverage = 1")["doc_id"].to_pylist()
    row = next(r for r in rows if r["doc_id"] in covered)
    (match,) = explain(Stored(run), row["doc_id"])["contamination"]
    item = json.loads((inputs / "bench.jsonl").read_text().splitlines()[0])["question"]
    assert match["set"] == "bench"
    assert match["coverage"] == 1.0
    assert match["text"] == item
    assert [" ".join(r.split()) for r in match["shared"]] == [item.strip(" .")]


def test_the_tokens_are_where_it_says(run, rows):
    kept = [r for r in rows if r["keep"]]
    tokenizer = load(gc.Config.model_fields["tokenizer"].annotation(path=str(run / "shards" / "tokenizer.json")))
    for row in kept[:: len(kept) // 5]:
        (place,) = explain(Stored(run), row["doc_id"])["tokens_at"]
        stream = Stream(run, place["split"])
        ids = stream.read(place["position"], place["position"] + place["tokens"])
        assert tokenizer.decode(ids[:-1]) == row["text"]
        of_files = [t for file, start, n in place["files"] for t in _shard(run, stream, file)[start : start + n]]
        assert of_files == ids.tolist()
    assert explain(Stored(run), first(rows, "exact_duplicate")["doc_id"])["tokens_at"] == []


def _shard(run, stream, file):
    return stream.shards[[Path(p).name for p in stream.paths].index(file)].tolist()


@pytest.mark.parametrize(
    ("wanted", "says"),
    [
        ("99999999999999", "it would be of file"),
        ("jl:{b}:9", "row 9 of {b} was rejected"),
        ("jl:{b}:5", "no row 5 of {b} was read"),
        ("jl:b.jsnl:1", "has no file b.jsnl"),
        ("http://x/none", "no document has this URL"),
        ("words that nobody wrote", "no document holds this text"),
        ("?!", "documents have it"),
        ("", "no document is named"),
        (str(1 << 62), "an item of a reference set"),
    ],
)
def test_what_is_not_there_is_said(run, inputs, wanted, says):
    path = str(inputs / "corpus" / "b.jsonl")
    with pytest.raises(ConfigError) as e:
        explain(Stored(run), wanted.format(b=path))
    assert says.format(b=path) in e.value.message


def test_the_command_prints_it_and_lets_nothing_act(run, rows):
    row = first(rows, "fuzzy_duplicate")
    done = CliRunner().invoke(cli.app, ["explain", str(run), str(row["doc_id"])], catch_exceptions=False)
    assert "dropped: fuzzy_duplicate" in done.output
    assert "[-" in done.output
    assert "{+" in done.output
    as_json = CliRunner().invoke(cli.app, ["explain", str(run), str(row["doc_id"]), "--json"], catch_exceptions=False)
    assert json.loads(as_json.output)["reason"] == "fuzzy_duplicate"
    from gpu_curate.commands.explain import _print

    facts = explain(Stored(run), row["doc_id"])
    facts["partner"]["diff"] = [["here", "\x1b[2J"], ["there", "\u202e"]]
    facts["text"] = facts["path"] = "\x1b]0;t\x07"
    import contextlib
    import io

    with contextlib.redirect_stdout(io.StringIO()) as out:
        _print(facts, 600)
    assert "\x1b" not in out.getvalue()
    assert "\u202e" not in out.getvalue()


def test_a_diff_of_words_gives_both_texts_back():
    pieces = word_diff("a b  c\nd", "a x c\nd e")
    assert "".join(t for k, t in pieces if k != "there") == "a b  c\nd"
    assert "".join(t for k, t in pieces if k != "here") == "a x c\nd e"
    assert ["same", "a"] in pieces or pieces[0][0] == "same"


def test_an_earlier_version_and_a_run_that_goes_on_are_named(run, tmp_path):
    import shutil

    shutil.copytree(run, tmp_path / "r", symlinks=True)
    stored = Stored(tmp_path / "r")
    part = stored.parts[0]
    path = stored.path("decisions", part)
    table = pq.read_table(path).drop_columns(["failing"])
    pq.write_table(table, path)
    receipt = path.parent / ".receipts" / f"part-{part}.json"
    facts = json.loads(receipt.read_text())
    facts["files"][0]["bytes"] = path.stat().st_size
    receipt.write_text(json.dumps(facts))
    with pytest.raises(ConfigError, match=r"decisions/ has no column failing \(the run was made by gpu_curate "):
        stored.columns("decisions", part, "failing")
    receipt.unlink()
    with pytest.raises(ConfigError, match="partitions are decided"):
        Stored(tmp_path / "r")
    with pytest.raises(ConfigError, match="not a run directory"):
        Stored(tmp_path)
