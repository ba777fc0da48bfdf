"""Exports hold what the boxes say, for every document once; samples point out what tripped a rule."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from corpora import recipe, write_inputs
from typer.testing import CliRunner

from gpu_curate import cli, config
from gpu_curate.api import pipeline
from gpu_curate.errors import ConfigError, FatalError
from gpu_curate.quality import Quality, bits
from gpu_curate.report.marks import marks
from gpu_curate.runs import finished
from gpu_curate.stages.partition_text import host_text
from gpu_curate.stages.reasons import in_order
from gpu_curate.tools import export, samples


@pytest.fixture(scope="module", params=["copied", "by reference"])
def finished_run(tmp_path_factory, request):
    """A run with rules, a benchmark, near-copies and a mixture that leaves documents out."""
    folder = tmp_path_factory.mktemp("export")
    write_inputs(folder, documents=200)
    data = recipe(folder / "corpus", folder / "tokenizer.json")
    data["sources"][0] |= {"weight": 0.2}
    data["sources"][1] |= {"weight": 0.8}
    data |= {
        "normalize": None if request.param == "by reference" else {"form": "NFC"},
        "quality": {"gopher_repetition": True, "fineweb": False},
        "references": [
            {
                "name": "bench",
                "path": str(folder / "bench.jsonl"),
                "text_fields": ["question"],
                "action": "decontaminate",
            }
        ],
    }
    data["run"] |= {"by_reference": ["parquet"]}
    pipeline.execute(config.parse(data), folder / "r")
    return folder, data


def truth(run: Path) -> dict[int, dict]:
    """Every document as the boxes of a run have it, read plainly."""
    places = json.loads((run / "run.json").read_text())["folders"]
    in_shards = pq.read_table(run / places["shards"] / "documents.parquet").to_pylist()
    split = {r["doc_id"]: r["split"] for r in in_shards}
    found = {}
    for path in sorted((run / places["documents"]).glob("part-*.parquet")):
        texts = host_text(run / places["texts"] / path.name).to_arrow().to_pylist()
        rows = pq.read_table(path).to_pylist()
        decided = pq.read_table(run / places["decisions"] / path.name).to_pylist()
        for row, text, d in zip(rows, texts, decided, strict=True):
            kept = d["doc_id"] in split
            found[row["doc_id"]] = {
                **{k: row.get(k) for k in ("source", "path", "row", "group", "url")},
                "text": text,
                "keep": kept,
                "split": split.get(row["doc_id"]),
                "reason": None if kept else d["reason"] or "mixture:not_drawn",
                "failing": [r for r, bit in in_order(bits(Quality())).items() if d["failing"] >> bit & 1],
                **{k: d[k] for k in ("partner", "tokens", "bytes")},
            }
    return found


def rows_of(out: Path) -> list[dict]:
    rows = []
    for path in sorted(out.glob("part-*")):
        if path.suffix == ".parquet":
            rows += pq.read_table(path).to_pylist()
        else:
            rows += [json.loads(line) for line in path.read_bytes().splitlines()]
    return rows


@pytest.mark.parametrize("format", ["parquet", "jsonl"])
@pytest.mark.parametrize("what", ["kept", "dropped", "all"])
def test_an_export_holds_every_document_once_with_all_that_is_known_of_it(finished_run, tmp_path, what, format):
    folder, _ = finished_run
    facts = export.export(finished.open_run(folder / "r"), tmp_path / "x", what, format, workers=1)
    expected = {i: d for i, d in truth(folder / "r").items() if what == "all" or d["keep"] == (what == "kept")}
    rows = rows_of(tmp_path / "x")
    assert sorted(r["doc_id"] for r in rows) == sorted(expected)
    assert facts["documents"] == len(expected) > 10
    for row in rows:
        assert {k: row[k] for k in expected[row["doc_id"]]} == expected[row["doc_id"]]
        assert list(row)[: len(export.COLUMNS)] == list(export.COLUMNS)
        if row["reason"] == "fuzzy_duplicate":
            assert row["partner"] != row["doc_id"]
            assert row["cluster_size"] >= 2
            assert 0 <= row["jaccard"] <= 1
    reasons = {r["reason"] for r in rows}
    if what != "kept":
        assert reasons >= {"exact_duplicate", "fuzzy_duplicate", "mixture:not_drawn", "contaminated", "empty"}


def test_reason_split_source_and_columns_choose(finished_run, tmp_path):
    folder, _ = finished_run
    context, every = finished.open_run(folder / "r"), truth(folder / "r")

    def ids(name, *args, **options):
        export.export(context, tmp_path / name, *args, workers=1, **options)
        return {r["doc_id"] for r in rows_of(tmp_path / name)}

    assert ids("near", "dropped", reasons=["fuzzy_duplicate"]) == {
        i for i, d in every.items() if d["reason"] == "fuzzy_duplicate"
    }
    family = {i for i, d in every.items() if (d["reason"] or "").startswith("gopher_repetition:")}
    assert ids("family", "dropped", reasons=["gopher_repetition"]) == family
    assert ids("val", "kept", split="val") == {i for i, d in every.items() if d["split"] == "validation"}
    assert ids("source", "all", sources=["tx"]) == {i for i, d in every.items() if d["source"] == "tx"}
    columns = ["text", "doc_id", "words", "coverage_bench", "url"]
    export.export(context, tmp_path / "c", "all", "jsonl", columns=columns, workers=1)
    rows = rows_of(tmp_path / "c")
    assert all(list(r) == columns for r in rows)
    places = json.loads((folder / "r" / "run.json").read_text())["folders"]
    words = pa.concat_tables(
        pq.read_table(p, columns=["words"]) for p in sorted((folder / "r" / places["scores"]).glob("*.parquet"))
    )["words"].to_pylist()
    assert [r["words"] for r in rows] == words
    assert sum(r["coverage_bench"] > 0 for r in rows) >= 1
    export.export(context, tmp_path / "s", "all", columns=["doc_id", "scores"], workers=1)
    assert {"words", "stop_words", "short_line_fraction"} <= set(rows_of(tmp_path / "s")[0])


def test_a_stopped_export_goes_on_and_gives_the_same_bytes_with_any_workers(finished_run, tmp_path):
    folder, _ = finished_run
    context = finished.open_run(folder / "r")
    export.export(context, tmp_path / "a", "all", workers=1)
    whole = {p.name: p.read_bytes() for p in (tmp_path / "a").glob("part-*")}
    assert len(whole) > 2
    first, *others = sorted(whole)
    (tmp_path / "a" / ".receipts" / f"{first.rpartition('.')[0]}.json").unlink()
    (tmp_path / "a" / first).unlink()
    stamps = {n: (tmp_path / "a" / n).stat().st_mtime_ns for n in others}
    facts = export.export(context, tmp_path / "a", "all", workers=1)
    assert facts["reused"] == facts["partitions"] - 1
    assert {n: (tmp_path / "a" / n).stat().st_mtime_ns for n in others} == stamps
    export.export(context, tmp_path / "b", "all", workers=2)
    for out in ("a", "b"):
        assert {p.name: p.read_bytes() for p in (tmp_path / out).glob("part-*")} == whole
    with pytest.raises(ConfigError, match="holds an export with what = 'all'"):
        export.export(context, tmp_path / "a", "kept", workers=1)
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "mine").write_text("")
    with pytest.raises(ConfigError, match="not empty and no export"):
        export.export(context, tmp_path / "c", "kept", workers=1)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"what": "dropped", "reasons": ["fuzy_duplicate"]},
            "--reason fuzy_duplicate: no such name (did you mean 'fuzzy_duplicate'?)",
        ),
        ({"what": "kept", "reasons": ["empty"]}, "--reason is of dropped documents"),
        ({"what": "dropped", "split": "train"}, "--split is of kept documents"),
        ({"sources": ["jll"]}, "(did you mean 'jl'?)"),
        ({"columns": ["txt"]}, "(did you mean 'text'?)"),
    ],
)
def test_a_wrong_name_is_an_error_and_writes_nothing(finished_run, tmp_path, options, said):
    with pytest.raises(ConfigError) as e:
        export.export(finished.open_run(finished_run[0] / "r"), tmp_path / "x", **options)
    assert said in str(e.value)
    assert not (tmp_path / "x").exists()


def test_an_earlier_set_of_shards_is_exported_as_it_was(finished_run, tmp_path):
    import shutil

    folder, data = finished_run
    shutil.copytree(folder / "r", tmp_path / "r")
    before = {i for i, d in truth(tmp_path / "r").items() if d["keep"]}
    first = finished.open_run(tmp_path / "r").box("shards").folder.joinpath(".fingerprint").read_text()
    pipeline.execute(config.parse(data | {"min_tokens": 120}), tmp_path / "r")
    after = {i for i, d in truth(tmp_path / "r").items() if d["keep"]}
    assert after != before
    earlier = next(p.parent.name for p in (tmp_path / "r").glob("shards*/.fingerprint") if p.read_text() == first)
    for shards, expected in ((None, after), (earlier, before)):
        context = finished.open_run(tmp_path / "r", shards)
        export.export(context, tmp_path / str(shards), "kept", columns=["doc_id"], workers=1)
        assert {r["doc_id"] for r in rows_of(tmp_path / str(shards))} == expected
    with pytest.raises(ConfigError, match="has no shards 'shards-x'"):
        finished.open_run(tmp_path / "r", "shards-x")


def test_a_source_that_changed_since_stops_an_export_of_what_lies_in_it(tmp_path):
    texts = [f"text number {i} " * 20 for i in range(30)]
    pq.write_table(pa.table({"text": texts}), tmp_path / "a.parquet")
    data = {
        "sources": [{"name": "a", "type": "parquet", "path": str(tmp_path / "a.parquet")}],
        "normalize": None,
        "dedup": {"fuzzy": None},
        "tokenizer": {"train": {"vocab_size": 300}},
        "min_tokens": 1,
        "run": {"engine": "inline"},
    }
    pipeline.execute(config.parse(data), tmp_path / "r")
    pq.write_table(pa.table({"text": [t.replace("number 7 ", "number 8 ") for t in texts]}), tmp_path / "a.parquet")
    with pytest.raises(FatalError, match=r"a\.parquet: row \d+ is not what documents/ was made from"):
        export.export(finished.open_run(tmp_path / "r"), tmp_path / "x", workers=1)
    assert not list((tmp_path / "x").glob("part-*"))


def test_the_command_writes_beside_the_run_and_says_what_it_wrote(finished_run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "r").symlink_to(finished_run[0] / "r")
    command = [
        "export",
        "r",
        "--what",
        "dropped",
        "--reason",
        "exact_duplicate",
        "--columns",
        "doc_id,text",
        "--workers",
        "1",
    ]
    done = CliRunner().invoke(cli.app, [*command, "--format", "jsonl", "--json"])
    assert done.exit_code == 0, done.output
    facts = json.loads(done.stdout)
    assert facts["out"] == "r-export/dropped-exact_duplicate-jsonl"
    rows = rows_of(tmp_path / facts["out"])
    assert len(rows) == facts["documents"] > 0
    assert all(list(r) == ["doc_id", "text"] for r in rows)
    for args, said in (
        (["export", "nowhere"], "is not a run directory"),
        (["export", "r", "--what", "droped"], "did you mean 'dropped'?"),
    ):
        assert said in str(CliRunner().invoke(cli.app, args).exception)


# ---------------------------------------------------------------------------------------------------------- samples


def test_samples_are_those_of_lowest_key_with_what_tripped_the_rule(finished_run):
    folder, _ = finished_run
    context, every = finished.open_run(folder / "r"), truth(folder / "r")
    found = samples.samples(context, "fuzzy_duplicate", 4)
    assert found == samples.samples(context, "fuzzy_duplicate", 4)
    assert samples.samples(context, "fuzzy_duplicate", 2) == found[:2]
    for one in found:
        assert every[one["doc_id"]]["reason"] == "fuzzy_duplicate"
        assert one["text"] == every[one["doc_id"]]["text"]
        assert one["partner"]["text"] == every[one["partner"]["doc_id"]]["text"]
        for side in (one, one["partner"]):  # what is not marked is the same
            text, at, rest = side["text"], 0, []
            for start, stop in side["marks"]:
                rest.append(text[at:start])
                at = stop
            side["rest"] = "".join([*rest, text[at:]]).split()
        assert one["rest"] == one["partner"]["rest"]
    (hit,) = samples.samples(context, "contaminated", 1)
    ((start, stop),) = hit["marks"]
    assert " ".join(hit["text"][start:stop].split()) in hit["partner"]["text"]
    assert hit["shared_words"] >= 13
    with pytest.raises(ConfigError, match=r"no such reason \(did you mean 'fuzzy_duplicate'"):
        samples.samples(context, "fuzzy_duplicates", 1)
    done = CliRunner().invoke(cli.app, ["samples", str(folder / "r"), "--reason", "exact_duplicate", "-n", "1"])
    assert "survivor, Jaccard 1.000: doc_id" in done.output
    as_json = CliRunner().invoke(cli.app, ["samples", str(folder / "r"), "--reason", "kept", "-n", "3", "--json"])
    assert len(json.loads(as_json.stdout)) == 3


@pytest.mark.parametrize(
    ("reason", "text", "marked"),
    [
        ("gopher_repetition:duplicate_lines", "one line\ntwo\none line\n\n\none line", ["one line", "one line"]),
        ("gopher_repetition:duplicate_paragraph_chars", "a\nb\n\nc\n\na\nb", ["a\nb"]),
        ("gopher_repetition:top_2_gram_chars", "so it is and so it was so it", ["so it", "so it", "so it"]),
        ("gopher_repetition:duplicate_5_gram_chars", "a b c d e f a b c d e g", ["a b c d e"]),
        ("gopher_quality:too_many_hashes", "a # b ##", ["#", "#", "#"]),
        ("gopher_quality:too_many_bullet_lines", "- a\nb\n\u2022 c", ["- a", "\u2022 c"]),
        ("gopher_quality:too_many_ellipsis_lines", "and so...\nno\nmore\u2026", ["and so...", "more\u2026"]),
        ("gopher_quality:too_few_alphabetic_words", "a 12 b --", ["12", "--"]),
        ("gopher_quality:too_few_stop_words", "The cat of Rome", ["The", "of"]),
        ("fineweb:too_many_short_lines", "short\n" + "long " * 20, ["short"]),
        ("fineweb:too_few_terminal_lines", "It ends.\nit does not\nWhy?", ["it does not"]),
        ("fineweb:duplicate_line_chars", "x\ny\nx", ["x"]),
        ("fineweb:too_many_short_lines", "二十个汉字的一行话按六十个字符计算\n短的一行", ["短的一行"]),
        ("fineweb:too_few_terminal_lines", "他说「好的。」\n没有句号\nक्या?\nसमाप्त।", ["没有句号"]),
        ("c4:too_few_sentences", "他走了。\n没有句号", ["没有句号"]),
        ("c4:curly_bracket", "f() {", ["{"]),
        ("c4:lorem_ipsum", "Lorem Ipsum dolor", ["Lorem Ipsum"]),
        ("c4:too_few_sentences", "No end\nAn end.", ["No end"]),
        ("too_few_tokens", "short", []),
        ("gopher_quality:too_few_words", "short", []),
    ],
)
def test_marks_are_what_the_rule_counts(reason, text, marked):
    assert [text[a:b] for a, b in marks(text, reason)] == marked


def test_every_rule_is_marked_or_counts_the_whole_text():
    whole = {
        "too_few_words", "too_many_words", "words_too_short", "words_too_long", "no_text",
    }  # fmt: skip
    from gpu_curate.quality import RULES
    from gpu_curate.report.marks import _FINDERS

    for name in RULES:
        rule = name.partition(":")[2]
        known = rule in _FINDERS or "_gram_" in rule or "paragraph" in rule or "duplicate_line" in rule
        assert known != (rule in whole), name


def test_head_as_json_holds_ids_and_text(finished_run):
    done = CliRunner().invoke(cli.app, ["shards", "head", str(finished_run[0] / "r"), "-n", "2", "--json"])
    documents = json.loads(done.stdout)
    every = truth(finished_run[0] / "r")
    assert len(documents) == 2
    for document in documents:
        assert len(document["ids"]) == document["tokens"]
        assert document["text"] == every[document["doc_id"]]["text"]
    assert pc.sum(pa.array([d["tokens"] for d in documents])).as_py() > 0
