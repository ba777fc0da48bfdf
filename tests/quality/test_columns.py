"""Rules on a source's own column: values as they are, decided exactly, counted like ours."""

from __future__ import annotations

import json
import random
import re
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from corpora import document
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu_curate import config, quality
from gpu_curate.api import pipeline
from gpu_curate.errors import ConfigError, InputError
from gpu_curate.quality.columns import ColumnBounds, Values, rules
from gpu_curate.runs import finished
from gpu_curate.sources.parquet import scalar_text
from gpu_curate.stages.rule_values import bits_of_run, rules_of_run
from gpu_curate.store.files import read_json
from gpu_curate.tools.export import export
from gpu_curate.tools.samples import samples


def bounds(**keys) -> ColumnBounds:
    return ColumnBounds.model_validate(keys)


# ------------------------------------------------------------------------------------------------- definition


def plain_value(text: str | None):
    """A number (int or float), None where the value is missing, or the text."""
    if text is None:
        return None
    bare = text.strip(" \t\n\r\f\v").removeprefix('"').removesuffix('"').removeprefix("+")
    if bare in ("", "NaN", "nan"):
        return None
    if bare.lower() in ("true", "false"):
        return int(bare.lower() == "true")
    if bare.lower() in ("infinity", "-infinity"):
        return float(bare)
    if re.fullmatch(r"-?[0-9]+", bare):
        return int(bare)
    if re.fullmatch(r"-?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?", bare):
        return float(bare)
    return text


def plain_fails(text: str | None, b: ColumnBounds) -> set[str]:
    value = plain_value(text)
    if value is None:
        return {"no"} if b.missing == "drop" else set()
    fails = set()
    if not isinstance(value, str):
        if b.min is not None and value < b.min:  # Python compares int and float exactly
            fails.add("min")
        if b.max is not None and value > b.max:
            fails.add("max")
    if b.in_ is not None:
        numbers = [v for v in b.in_ if not isinstance(v, str)]
        if text not in b.in_ and (isinstance(value, str) or value not in numbers):
            fails.add("in")
    return fails


NUMBERS = st.one_of(
    st.integers(-(2**70), 2**70),
    st.integers(2**53 - 3, 2**53 + 3),
    st.floats(allow_nan=True),
    st.sampled_from([0, 1, 3, 2.5, -0.0, 1e300]),
    st.booleans(),
)
TEXTS = st.sampled_from(
    ["", " ", "high", "3", " 3 ", "+3", "3.", ".5", "1e999", "007", "0x10", "1_000", "٣", "-", "en", "TRUE"]
)


@given(
    st.lists(st.one_of(NUMBERS, TEXTS, st.none()), max_size=12),
    st.one_of(st.none(), st.integers(-3, 2**54), st.floats(-4, 4)),
    st.one_of(st.none(), st.integers(-3, 2**54), st.floats(-4, 4)),
    st.one_of(st.none(), st.lists(st.one_of(NUMBERS.filter(lambda v: v == v and abs(v) < 1e308), TEXTS), min_size=1)),
    st.sampled_from(["keep", "drop"]),
)
@settings(max_examples=300, deadline=None)
def test_a_bound_says_what_its_definition_says(values, low, high, among, missing):
    if low is not None and high is not None and low > high:
        low, high = high, low
    if low is high is among is None and missing == "keep":
        low = 0
    b = bounds(min=low, max=high, missing=missing, **({} if among is None else {"in": among}))
    texts = [scalar_text(v) for v in values]
    scores = {"columns:c": Values.of(pa.array(texts, pa.string()))}
    found = [set() for _ in texts]
    for rule in rules({"c": b}):
        for row in np.flatnonzero(rule.fails(scores)).tolist():
            found[row].add(rule.bound)
    assert found == [plain_fails(t, b) for t in texts]


def test_columns_of_any_type_are_read_by_value():
    for array, numbers in (
        (pa.array([1, None, 2**62 + 1], pa.int64()), [1.0, np.nan, float(2**62)]),
        (pa.array([0.1, float("nan"), None], pa.float64()), [0.1, np.nan, np.nan]),
        (pa.array([True, False, None]), [1.0, 0.0, np.nan]),
        (pa.array(["a", "3", "a"]).dictionary_encode(), [np.nan, 3.0, np.nan]),
        (pa.array([scalar_text(Decimal("2.50"))]), [2.5]),
        (pa.chunked_array([["1"], [], ["2"]]), [1.0, 2.0]),
        (pa.chunked_array([], pa.string()), []),
    ):
        made = Values.of(array)
        assert np.array_equal(made.number_N, np.array(numbers), equal_nan=True)
    large = Values.of(pa.array([2**53, 2**53 + 1]))
    assert large.beyond("max", 2**53).tolist() == [False, True]
    assert large.among((2**53 + 1,)).tolist() == [False, True]


def test_rules_of_columns_follow_ours_and_are_named_by_bound():
    section = config.Quality.model_validate(
        {"columns": {"score": {"min": 3, "max": 5, "missing": "drop"}, "lang": {"in": ["en"]}}, "c4": "on"}
    )
    names = ["columns:no_score", "columns:min_score", "columns:max_score", "columns:in_lang"]
    assert list(quality.bits(section))[len(quality.RULES) :] == names
    assert [quality.bits(section)[n] for n in names] == [32, 33, 34, 35]
    assert {r.name: r.meaning for r in quality.rules(section) if r.name in names} == {
        "columns:no_score": "no value of column score",
        "columns:min_score": "column score below 3",
        "columns:max_score": "column score above 5",
        "columns:in_lang": "column lang is none of en",
    }
    assert config.Quality.model_validate(section.model_dump(mode="json")) == section


# ------------------------------------------------------------------------------------------------- recipes


def parse(quality, *sources):
    own = sources or ({"name": "s", "type": "jsonl", "path": "x", "keep_columns": ["score", "lang"]},)
    return config.parse({"sources": list(own), "tokenizer": {"path": "t"}, "quality": quality}, "r.yaml")


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ({"score": {}}, r"quality\.columns\.score: bounds nothing: give min, max, in, or missing: drop"),
        ({"score": {"min": 5, "max": 3}}, r"quality\.columns\.score: min=5 above max=3 drops every document"),
        ({"score": {"mn": 5}}, r"quality\.columns\.score\.mn: unknown key .did you mean 'min'"),
        (
            {"score": {"min": "3"}},
            r"quality\.columns\.score\.min: .*got '3' \(text: write the number without quotes, 3\)",
        ),
        ({"score": {"in": []}}, r"quality\.columns\.score\.in: list should have at least 1 item"),
        ({"score": {"missing": "dorp"}}, r"quality\.columns\.score\.missing: .*got 'dorp' \(did you mean 'drop'"),
        (
            {"scor": {"min": 3}},
            r"quality\.columns\.scor: no source carries .*did you mean 'score'.*keep_columns: \[scor\]",
        ),
        ({"path": {"in": ["a"]}}, r"quality\.columns\.path: every document has a path of its own"),
        ({f"c{i}": {"min": 1} for i in range(3)}, "no source carries"),
    ],
)
def test_a_wrong_bound_is_named(columns, says):
    with pytest.raises(ConfigError, match=says):
        parse({"columns": columns})


def test_more_rules_than_bits_are_refused():
    names = [f"c{i}" for i in range(25)]
    source = {"name": "s", "type": "jsonl", "path": "x", "keep_columns": names}
    parse({"columns": {n: {"min": 1} for n in names[:24]}}, source)
    with pytest.raises(ConfigError, match=r"25 rules .*24 are possible.*first too many is columns:min_c24"):
        parse({"columns": {n: {"min": 1} for n in names}}, source)


@pytest.mark.parametrize(("kind", "column"), [("wikipedia", "template_gaps"), ("warc", "domain")])
def test_columns_that_a_format_gives_need_no_keep_columns(kind, column):
    parse({"columns": {column: {"missing": "drop"}}}, {"name": "s", "type": kind, "path": "x"})


# ------------------------------------------------------------------------------------------------- a run


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """120 documents of FineWeb-Edu's kind in Parquet (a float score, null at times) and 30 of a source without scores."""
    folder = tmp_path_factory.mktemp("columns")
    rng = random.Random(3)
    scores = [None if i % 20 == 7 else round(rng.uniform(2, 5), 4) for i in range(120)]
    table = {
        "text": [document(rng) for _ in scores],
        "score": scores,
        "lang": [rng.choice(["en", "de"]) for _ in scores],
    }
    pq.write_table(pa.table(table), folder / "edu.parquet", row_group_size=25)
    (folder / "b.jsonl").write_text("".join(json.dumps({"text": document(rng)}) + "\n" for _ in range(30)))
    return folder, table


def recipe(folder, tokenizer, columns, **keys):
    edu = {"name": "edu", "type": "parquet", "path": str(folder / "edu.parquet"), "keep_columns": ["score", "lang"]}
    return {
        "sources": [edu, {"name": "plain", "type": "jsonl", "path": str(folder / "b.jsonl")}],
        "tokenizer": {"path": str(tokenizer)},
        "quality": {"columns": columns},
        "min_tokens": 0,
        "shards": {"validation": {"tokens": 0}},
        "run": {"engine": "inline", "partition_bytes": 65536},
        **keys,
    }


def decided(run):
    folder = read_json(run / "run.json")["folders"]["decisions"]
    return [r for p in sorted((run / folder).glob("*.parquet")) for r in pq.read_table(p).to_pylist()]


def test_a_run_drops_by_a_column_and_counts_it(corpus, tokenizer, tmp_path):
    folder, table = corpus
    columns = {"score": {"min": 3, "missing": "drop"}, "lang": {"in": ["en"]}}
    run = tmp_path / "r"
    outcome = pipeline.execute(config.parse(recipe(folder, tokenizer, columns)), run)
    wanted = []
    for score, lang in zip(table["score"], table["lang"], strict=True):
        fails = ["columns:no_score"] if score is None else ["columns:min_score"] if score < 3 else []
        wanted.append(fails + ([] if lang == "en" else ["columns:in_lang"]))
    wanted += [["columns:no_score"]] * 30  # the other source carries none
    bits = bits_of_run(finished.open_run(run))
    rows = decided(run)
    assert [[n for n, b in bits.items() if r["failing"] >> b & 1] for r in rows] == wanted
    assert [r["reason"] for r in rows] == [fails[0] if fails else None for fails in wanted]
    facts = read_json(run / "report" / "report.json")
    assert facts["documents"]["dropped"] == {
        name: n for name in bits if (n := sum(f[:1] == [name] for f in wanted))
    }  # in the order of the recipe
    assert facts["failing"]["columns:in_lang"] == sum("columns:in_lang" in f for f in wanted)
    assert facts["only"]["columns"] == sum(bool(f) for f in wanted)
    stated = {r["name"]: r for r in facts["rules"]}
    assert stated["columns:min_score"] == {
        "bit": 33, "name": "columns:min_score", "score": "columns:score", "bound": "min", "limit": 3,
        "at": "quality.columns.score.min",
    }  # fmt: skip
    assert facts["rules"] == rules_of_run(outcome.context)
    page = (run / "report" / "index.html").read_text()
    assert "columns:min_score" in page
    assert "column score below 3" in page
    context = finished.open_run(run)
    shown = samples(context, "columns:min_score", 2)
    assert [s["why"] for s in shown] == ["column score below 3"] * 2
    assert {s["score"] for s in shown} <= {f"score = {s}" for s in table["score"]}
    assert samples(context, "columns:no_score", 1)[0]["score"] is None
    made = export(context, tmp_path / "out", "dropped", reasons=["columns:in_lang"])
    rows = [r for f in made["files"] for r in pq.read_table(tmp_path / "out" / f).to_pylist()]
    assert [r["failing"] for r in rows] == [f for f in wanted if f[:1] == ["columns:in_lang"]]
    # a bound that moves makes decisions and shards anew, nothing else
    again = pipeline.execute(config.parse(recipe(folder, tokenizer, {"score": {"min": 4}})), run)
    changed = {n for n, fingerprint in again.fingerprint_of.items() if outcome.fingerprint_of[n] != fingerprint}
    assert changed == {"decisions", "shards"}
    assert sum(not r["keep"] for r in decided(run)) == sum(s is not None and s < 4 for s in table["score"])


def test_partitions_workers_and_values_do_not_change_a_decision(corpus, tokenizer, tmp_path):
    folder, _ = corpus
    columns = {"score": {"max": 3.25}}
    made = []
    for name, run in (("a", {"engine": "inline"}), ("b", {"workers": 2, "partition_bytes": 65536})):
        pipeline.execute(config.parse(recipe(folder, tokenizer, columns, run=run)), tmp_path / name)
        made.append([(r["doc_id"], r["reason"], r["failing"]) for r in decided(tmp_path / name)])
    assert made[0] == made[1]


def words(folder, values):
    rng = random.Random(5)
    lines = [json.dumps({"text": document(rng), "score": v}) for v in values]
    (folder / "w.jsonl").write_text("\n".join(lines) + "\n")
    return {"name": "w", "type": "jsonl", "path": str(folder / "w.jsonl"), "keep_columns": ["score"]}


def test_a_value_that_is_no_number_is_a_reject(tmp_path, tokenizer):
    values = [3, "n/a", 2.5, 9, None]
    data = recipe(tmp_path, tokenizer, {"score": {"min": 3}}, sources=[words(tmp_path, values)])
    pipeline.execute(config.parse(data), tmp_path / "r")
    assert [r["reason"] for r in decided(tmp_path / "r")] == [None, "rejected", "columns:min_score", None, None]
    facts = read_json(tmp_path / "r" / "report" / "report.json")
    assert facts["rejected_by_reason"] == {"column score is no number": 1}
    assert facts["documents"]["rejected"] == 1
    (line,) = [x for p in (tmp_path / "r" / "rejects").glob("*.jsonl") for x in p.read_text().splitlines()]
    assert json.loads(line)["row"] == 1
    assert json.loads(line)["reason"] == "column score is no number: 'n/a'"
    with pytest.raises(InputError, match=r"w\.jsonl: row 1, .*column score is no number: 'n/a'"):
        pipeline.execute(config.parse({**data, "run": {"engine": "inline", "strict": True}}), tmp_path / "strict")


def test_a_column_without_a_number_stops_the_run_and_is_named(tmp_path, tokenizer):
    data = recipe(tmp_path, tokenizer, {"score": {"min": 3}}, sources=[words(tmp_path, [None, "high", "low"])])
    says = r"quality\.columns\.score: .*w\.jsonl: row 1: 'high' is no number, and none of the first 2 values is"
    with pytest.raises(ConfigError, match=says):
        pipeline.execute(config.parse(data), tmp_path / "r")
    data["quality"] = {"columns": {"score": {"in": ["high"]}}}
    pipeline.execute(config.parse(data), tmp_path / "r")
    assert [r["reason"] for r in decided(tmp_path / "r")] == [None, None, "columns:in_score"]
