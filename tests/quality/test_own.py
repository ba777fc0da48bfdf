"""Scores of the user's own, in one file outside the package: run, counted, fingerprinted and shown like ours."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from corpora import document
from typer.testing import CliRunner

import gpu_curate as gc
from gpu_curate import cli, config, own_code
from gpu_curate.api import pipeline
from gpu_curate.errors import ConfigError, FatalError, InputError
from gpu_curate.quality.score import Score, scores_of
from gpu_curate.runs import finished
from gpu_curate.runs.fingerprints import fingerprints
from gpu_curate.runs.planning import make_plan
from gpu_curate.stages.rule_values import bits_of_run
from gpu_curate.store.files import read_json
from gpu_curate.tools.export import export
from gpu_curate.tools.samples import samples

RULES = Path(__file__).with_name("own_rules.py")


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    """A folder with s.jsonl: 60 documents, every other one with digits put in; two are empty."""
    folder = tmp_path_factory.mktemp("own")
    rng = random.Random(11)
    made = [document(rng) + (f" {rng.randrange(10**60)}" * rng.randrange(4) if i % 2 else "") for i in range(60)]
    made[17] = made[40] = ""
    (folder / "s.jsonl").write_text("".join(json.dumps({"text": t}) + "\n" for t in made))
    return folder, made


def write(folder, texts, tokenizer, quality, name="r.yaml", rules=True, **keys):
    """A recipe in `folder`, and own_rules.py beside it."""
    folder.mkdir(exist_ok=True)
    if rules:
        shutil.copy(RULES, folder / "my_rules.py")
    data = {
        "sources": [{"name": "s", "type": "jsonl", "path": str(texts / "s.jsonl")}],
        "tokenizer": {"path": str(tokenizer)},
        "quality": quality,
        "min_tokens": 0,
        "shards": {"validation": {"tokens": 0}},
        "run": {"engine": "inline", "partition_bytes": 65536},
        **keys,
    }
    (folder / name).write_text(yaml.safe_dump(data, sort_keys=False))
    return folder / name


def load(path, *overrides):
    return config.load(path, list(overrides), trust_code=True)


def boxes(run, name):
    folder = read_json(run / "run.json")["folders"][name]
    return [r for p in sorted((run / folder).glob("*.parquet")) for r in pq.read_table(p).to_pylist()]


def digits(text):
    return sum(c in "0123456789" for c in text) / len(text) if text else 0.0


QUALITY = {
    "gopher_quality": {"min_words": 60, "min_stop_words": None, "max_mean_word_chars": None},
    "my_rules.py:Shape": {"max_longest_line_chars": 120},
    "my_rules.py:Digits": {"max": 0.08},
}


def wanted(text):
    """The rules of QUALITY's own classes that a text fails."""
    longest = max(map(len, text.split("\n")))
    found = ["Shape:max_longest_line_chars"] if text and longest > 120 else []
    return found + (["Digits:max_digit_fraction"] if digits(text) > 0.08 else [])


@pytest.fixture(scope="module")
def reference(tmp_path_factory, texts, tokenizer):
    folder = tmp_path_factory.mktemp("reference")
    path = write(folder, texts[0], tokenizer, QUALITY)
    outcome = pipeline.execute(load(path), folder / "run")
    return path, folder / "run", outcome


# ------------------------------------------------------------------------------------------------- a run


def test_own_scores_stand_in_scores_and_decide(reference, texts):
    _, run, outcome = reference
    table = boxes(run, "scores")
    assert [r["digit_fraction"] for r in table] == [digits(t) for t in texts[1]]
    assert [r["own_lines"] for r in table] == [len(t.split("\n")) if t else 0 for t in texts[1]]
    schema = pq.read_schema(next((run / "scores").glob("*.parquet")))
    assert [schema.field(n).type for n in ("digit_fraction", "own_lines", "longest_line_chars")] == [
        pa.float64(),
        pa.int32(),
        pa.int64(),
    ]
    bits = bits_of_run(outcome.context)
    assert (bits["Shape:max_longest_line_chars"], bits["Digits:max_digit_fraction"]) == (
        32,
        33,
    )  # as the recipe has them
    rows = boxes(run, "decisions")
    own = [
        [n for n in ("Shape:max_longest_line_chars", "Digits:max_digit_fraction") if r["failing"] >> bits[n] & 1]
        for r in rows
    ]
    assert own == [wanted(t) for t in texts[1]]
    assert 3 < sum(map(bool, own)) < 57
    for row, fails in zip(rows, own, strict=True):
        if fails:
            assert row["reason"] == ("gopher_quality:too_few_words" if row["failing"] & 1 else fails[0])


def test_they_are_counted_in_report_funnel_samples_and_export(reference, texts, tmp_path):
    _, run, outcome = reference
    facts = read_json(run / "report" / "report.json")
    rows = boxes(run, "decisions")
    for name in ("Shape:max_longest_line_chars", "Digits:max_digit_fraction"):
        n = sum(r["reason"] == name for r in rows)
        assert facts["documents"]["dropped"][name] == n > 0
        assert facts["failing"][name] == sum(name in wanted(t) for t in texts[1])
    order = list(facts["documents"]["dropped"])
    assert order.index("Shape:max_longest_line_chars") < order.index("Digits:max_digit_fraction")
    assert (
        order.index("empty") < order.index("gopher_quality:too_few_words") < order.index("Shape:max_longest_line_chars")
    )
    assert [c["name"] for c in facts["code"]] == ["my_rules.py:Shape", "my_rules.py:Digits"]
    assert len(facts["code"][0]["sha256"]) == 64
    spread = facts["spreads"]["digit_fraction"]
    values = np.array([digits(t) for t in texts[1]])
    kept = np.array([r["keep"] for r in rows])
    places = np.clip((values - spread["start"]) // spread["step"], 0, len(spread["kept"]) - 1).astype(int)
    assert spread["kept"] == np.bincount(places[kept], minlength=len(spread["kept"])).tolist()
    assert spread["dropped"] == np.bincount(places[~kept], minlength=len(spread["kept"])).tolist()
    page = (run / "report" / "index.html").read_text()
    assert "histogram of digit_fraction" in page
    assert "digit_fraction above 0.08" in page
    context = finished.open_run(run)  # without the class
    assert samples(context, "Digits:max_digit_fraction", 1)[0]["why"] == "digit_fraction above 0.08"
    made = export(context, tmp_path / "out", "dropped", reasons=["Digits"], columns=["failing", "digit_fraction"])
    found = [r for f in made["files"] for r in pq.read_table(tmp_path / "out" / f).to_pylist()]
    assert found
    assert all("Digits:max_digit_fraction" in r["failing"] and r["digit_fraction"] > 0.08 for r in found)
    assert facts == read_json(run / "report" / "report.json")
    assert outcome.context.config.quality.own["my_rules.py:Digits"].resolved.code is not None


def test_from_the_command_line_with_two_workers_the_bytes_are_the_same(reference, tmp_path):
    path, run, _ = reference
    options = ["--set", "run.engine=local", "--workers", "2", "--trust-code"]
    shown = CliRunner().invoke(cli.app, ["plan", str(path), "--out", str(tmp_path / "r"), *options])
    assert shown.exit_code == 0, shown.output
    assert f"code         my_rules.py:Digits: {path.parent / 'my_rules.py'}, sha256" in shown.output
    assert "own rules    Shape:max_longest_line_chars, Digits:max_digit_fraction" in shown.output
    done = CliRunner().invoke(cli.app, ["run", str(path), "--out", str(tmp_path / "r"), *options])
    assert done.exit_code == 0, done.output
    assert "code: my_rules.py:Digits (" in done.output
    assert "dropped: Digits:max_digit_fraction" in done.output
    for name in ("scores", "decisions"):
        for file in sorted((run / name).glob("*.parquet")):
            assert (tmp_path / "r" / name / file.name).read_bytes() == file.read_bytes()
    status = CliRunner().invoke(cli.app, ["status", str(tmp_path / "r")])
    assert status.exit_code == 0, status.output


def changed(before, after):
    return {name for name, fingerprint in after.fingerprint_of.items() if before.fingerprint_of[name] != fingerprint}


def test_a_bound_that_moves_makes_decisions_anew_and_a_source_that_changes_scores(
    reference, texts, tokenizer, tmp_path
):
    _, _, first = reference
    path = write(tmp_path / "a", texts[0], tokenizer, QUALITY)  # in another folder, the same class
    assert fingerprints(load(path)) == first.fingerprint_of
    run = tmp_path / "run"
    one = pipeline.execute(load(path), run)
    two = pipeline.execute(load(path, "quality.my_rules.py:Digits.max=0.2"), run)
    assert changed(one, two) == {"decisions", "shards"}
    assert two.reused["scores"]
    three = pipeline.execute(load(path, "quality.my_rules.py:Digits.alphabet='01'"), run)
    assert changed(one, three) == {"scores", "decisions", "shards"}
    source = (path.parent / "my_rules.py").read_text()
    (path.parent / "my_rules.py").write_text(source.replace("/ len(text)", "/ (2 * len(text))"))
    four = pipeline.execute(load(path), run)
    assert changed(one, four) == {"scores", "decisions", "shards"}
    assert [r["digit_fraction"] for r in boxes(run, "scores")] == [digits(t) / 2 for t in texts[1]]


def test_what_runs_is_what_was_read_at_the_start(texts, tokenizer, tmp_path):
    path = write(tmp_path / "a", texts[0], tokenizer, {"my_rules.py:Digits": {"max": 0.2}}, run={"workers": 1})
    loaded = load(path)
    (path.parent / "my_rules.py").write_text("raise SystemExit(3)")
    pipeline.execute(loaded, tmp_path / "run")
    assert [r["digit_fraction"] for r in boxes(tmp_path / "run", "scores")] == [digits(t) for t in texts[1]]


def test_a_score_without_a_bound_drops_nothing_and_can_choose_the_survivor(texts, tokenizer, tmp_path):
    keep = {"fuzzy": {"keep": "highest:digit_fraction"}}
    path = write(
        tmp_path / "a", texts[0], tokenizer, {"my_rules.py:Digits": "on", "my_rules.py:Shape": "off"}, dedup=keep
    )
    outcome = pipeline.execute(load(path), tmp_path / "run")
    facts = read_json(tmp_path / "run" / "report" / "report.json")
    assert set(facts["documents"]["dropped"]) <= {"empty", "exact_duplicate", "fuzzy_duplicate"}
    assert list(facts["spreads"]) == ["digit_fraction"]
    assert "own_lines" not in boxes(tmp_path / "run", "scores")[0]
    assert outcome.context.config.dedup.fuzzy.keep == "highest:digit_fraction"
    with pytest.raises(ConfigError, match="highest:digit_fractio: no such score\nhint: did you mean 'digit_fraction'"):
        fingerprints(load(path, "dedup.fuzzy.keep=highest:digit_fractio"))


# ------------------------------------------------------------------------------------------------- trust


@pytest.mark.parametrize("command", ["run", "plan", "compare"])
def test_a_recipe_with_code_needs_trust(reference, tmp_path, command, monkeypatch):
    path, _, _ = reference
    (path.parent / "touched").unlink(missing_ok=True)
    done = CliRunner().invoke(cli.app, [command, str(path), "--out", str(tmp_path / "r")])
    assert isinstance(done.exception, ConfigError)
    assert f"{path}: quality.my_rules.py:Shape: the recipe runs code of {path.parent / 'my_rules.py'}" in str(
        done.exception
    )
    assert "--trust-code, GPU_CURATE_TRUST_CODE=1" in str(done.exception)
    assert not (tmp_path / "r").exists()


def test_code_is_not_run_without_trust(texts, tokenizer, tmp_path, monkeypatch):
    path = write(tmp_path / "a", texts[0], tokenizer, {"bad.py:Digits": {}}, rules=False)
    (path.parent / "bad.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nclass Digits: pass")
    for call in (lambda: config.load(path), lambda: gc.run(path, tmp_path / "r")):
        with pytest.raises(ConfigError, match=r"trust_code=True in gpu_curate\.run"):
            call()
    parsed = config.parse(yaml.safe_load(path.read_text()))
    for call in (lambda: pipeline.execute(parsed, tmp_path / "r"), lambda: make_plan(parsed, tmp_path / "r")):
        with pytest.raises(ConfigError, match=r"quality.bad.py:Digits: this code is not loaded"):
            call()
    assert not (tmp_path / "ran").exists()
    monkeypatch.setenv("GPU_CURATE_TRUST_CODE", "1")
    with pytest.raises(ConfigError, match="Digits is no score"):
        config.load(path)
    assert (tmp_path / "ran").exists()


def test_a_run_from_python_with_trust(texts, tokenizer, tmp_path, monkeypatch):
    path = write(tmp_path / "a", texts[0], tokenizer, {"my_rules.py:Digits": {"max": 0.2}})
    monkeypatch.chdir(path.parent)
    data = yaml.safe_load(path.read_text())
    made = gc.run(data, tmp_path / "r", trust_code=True, overrides=["quality.my_rules.py:Digits.max=0.08"])
    dropped = made.report["documents"]["dropped"]["Digits:max_digit_fraction"]
    assert dropped == sum(digits(t) > 0.08 for t in texts[1])
    again = gc.run(
        load(path), tmp_path / "r", overrides=["quality.my_rules.py:Digits.max=0.2"]
    )  # trusted when it was loaded
    assert again.report["documents"]["dropped"].get("Digits:max_digit_fraction", 0) < dropped


# ------------------------------------------------------------------------------------------------- what is wrong

HEAD = "import gpu_curate as gc\n\n"
GOOD = HEAD + "class A(gc.Score):\n    name = 'a'\n    low: int = 0\n    def score(self, text): return 1.0\n"


@pytest.mark.parametrize(
    ("source", "entry", "says"),
    [
        (None, {"no.py:A": {}}, r"quality\.no\.py:A: \S+/no\.py: No such file.*\n.*relative to the recipe's folder"),
        (GOOD, {"my.py:B": {}}, r"quality\.my\.py:B: \S+/my\.py has no class B.*\n.*it has A"),
        (GOOD, {"my.py:gc": {}}, r"gc is no score"),
        ("x = (", {"my.py:A": {}}, r"my\.py, line 1: SyntaxError"),
        (HEAD + "1 / 0", {"my.py:A": {}}, r"my\.py, line 3: ZeroDivisionError: division by zero"),
        ("import sys\nsys.exit(1)", {"my.py:A": {}}, r"my\.py, line 2: SystemExit: 1"),
        ("import beside", {"my.py:A": {}}, r"ModuleNotFoundError.*\n.*a file imports what is installed, and no file beside it"),
        ("import nowhere_at_all", {"my.py:A": {}}, r"ModuleNotFoundError.*\n.*install nowhere_at_all"),
        (GOOD, {"my.py:A": {"mx": 1}}, r"quality\.my\.py:A\.mx: unknown key.*'max'"),
        (GOOD, {"my.py:A": {"max_b": 1}}, r"quality\.my\.py:A\.max_b: unknown key"),
        (GOOD, {"my.py:A": {"max": "1"}}, r"quality\.my\.py:A\.max: expected a number, got '1'"),
        (GOOD, {"my.py:A": {"max": True}}, r"quality\.my\.py:A\.max: expected a number, got True"),
        (GOOD, {"my.py:A": {"max": 1, "max_a": 2}}, r"quality\.my\.py:A\.max_a: this bound is given twice"),
        (GOOD, {"my.py:A": {"max": 1, "min": 2}}, r"quality\.my\.py:A: min 2 above max 1 of a drops every document"),
        (GOOD, {"my.py:A": {"low": "x"}}, r"quality\.my\.py:A\.low: input should be a valid integer, got 'x'"),
        (GOOD, {"my.py:A": 3}, r"quality\.my\.py:A: expected a mapping of keys, got 3"),
        (GOOD.replace("'a'", "'words'"), {"my.py:A": {}}, r"the score words has the name of one of gpu_curate"),
        (GOOD.replace("'a'", "'doc_id'"), {"my.py:A": {}}, r"the score doc_id has the name of one of gpu_curate"),
        (GOOD.replace("'a'", "''"), {"my.py:A": {}}, r"class A: it names no score"),
        (GOOD.replace("'a'", "'a b'"), {"my.py:A": {}}, r"class A: 'a b' is no name of a score"),
        (GOOD.replace("name = 'a'", "names = {'a': 'int8'}"), {"my.py:A": {}}, r"a has dtype 'int8'"),
        (GOOD.replace("low", "max_a"), {"my.py:A": {}}, r"class A: max_a is a parameter and a bound"),
        (GOOD.replace("class A", "class c4"), {"my.py:c4": {}}, r"the class c4 has the name of one of gpu_curate"),
        (GOOD.replace("1.0", "text / 2"), {"my.py:A": {}}, r"my\.py, line 6: TypeError: unsupported operand.*\n.*on the text"),
        (GOOD.replace("1.0", "float('nan')"), {"my.py:A": {}}, r"A gives no float64 for a: nan"),
        (GOOD.replace("1.0", "None"), {"my.py:A": {}}, r"A gives no float64 for a: None"),
        (GOOD.replace("score(self, text): return 1.0", "score_all(self, t): return []"), {"my.py:A": {}}, "0 values of a for 1"),
        (HEAD + "class A(gc.Score):\n    name = 'a'", {"my.py:A": {}}, "A has neither `score` nor `score_all`"),
        (GOOD, {"my.py:A": {}, "./my.py:A": {}}, r"quality\.\./my\.py:A: the score a has the name of one of my\.py:A"),
    ],
)  # fmt: skip
def test_a_wrong_class_or_entry_is_named(texts, tokenizer, tmp_path, source, entry, says):
    path = write(tmp_path / "a", texts[0], tokenizer, entry, rules=False)
    (path.parent / "beside.py").write_text("")
    if source is not None:
        (path.parent / "my.py").write_text(source)
    with pytest.raises(ConfigError, match=says) as told:
        load(path)
    assert str(told.value).startswith(str(path))


def test_what_is_no_regular_file_is_refused(tmp_path, texts, tokenizer):
    import os

    path = write(tmp_path / "a", texts[0], tokenizer, {"my.py:A": {}}, rules=False)
    os.mkfifo(path.parent / "my.py")
    with pytest.raises(ConfigError, match="is no regular file"):
        load(path)
    (path.parent / "my.py").unlink()
    (path.parent / "my.py").mkdir()
    with pytest.raises(ConfigError, match="is no regular file"):
        load(path)


def test_a_document_that_the_class_refuses_is_a_reject(texts, tokenizer, tmp_path):
    path = write(tmp_path / "a", texts[0], tokenizer, {"my.py:A": {"max": 0.5}}, rules=False)
    body = (
        "class A(gc.Score):\n    name = 'a'\n"
        "    def score(self, text):\n"
        "        if text.count('7') > 20: raise ValueError(f'sevens: {text.count(\"7\")}')\n"
        "        return float('inf') if '99' in text else 0.25\n"
    )
    (path.parent / "my.py").write_text(HEAD + body)
    pipeline.execute(load(path), tmp_path / "run")
    raised = [i for i, t in enumerate(texts[1]) if t.count("7") > 20]
    infinite = [i for i, t in enumerate(texts[1]) if "99" in t and i not in raised]
    assert raised
    assert infinite
    rows = boxes(tmp_path / "run", "decisions")
    assert [i for i, r in enumerate(rows) if r["reason"] == "rejected"] == sorted([*raised, *infinite])
    facts = read_json(tmp_path / "run" / "report" / "report.json")
    assert facts["rejected_by_reason"] == {
        "A raises ValueError": len(raised),
        "A gives no float64 for a": len(infinite),
    }
    assert sum(facts["spreads"]["a"]["kept"]) == facts["documents"]["kept"]
    lines = [json.loads(x) for p in (tmp_path / "run" / "rejects").glob("*.jsonl") for x in p.read_text().splitlines()]
    assert sorted(x["row"] for x in lines) == sorted([*raised, *infinite])
    with pytest.raises(InputError, match=r"s\.jsonl: row \d+, doc_id \d+: A (raises|gives)"):
        pipeline.execute(load(path, "run.strict=true"), tmp_path / "strict")


def test_wrong_lengths_later_stop_the_run_and_name_the_class(texts, tokenizer, tmp_path):
    path = write(tmp_path / "a", texts[0], tokenizer, {"my.py:A": {}}, rules=False)
    (path.parent / "my.py").write_text(
        HEAD + "class A(gc.Score):\n    name = 'a'\n    def score_all(self, texts): return [1] * min(len(texts), 3)\n"
    )
    with pytest.raises(FatalError, match="A: score_all gives 3 values of a for 58 texts"):
        pipeline.execute(load(path), tmp_path / "run")


class Any_(Score):
    name = "a"
    dtype = "int32"

    def score_all(self, texts):
        return GIVEN[0]


GIVEN: list = []


@pytest.mark.parametrize(
    ("dtype", "given", "values", "wrong"),
    [
        ("int32", [1, 2.0, True], [1, 2, 1], []),
        ("int32", [1.5, 2**31, -(2**31)], [0, 0, -(2**31)], [0, 1]),
        ("int64", [2**63 - 1, 2**63, -(2**63)], [2**63 - 1, 0, -(2**63)], [1]),
        ("int64", np.array([2.0**63, 2.0**62, np.nan]), [0, 2**62, 0], [0, 2]),
        ("int64", np.array([2**64 - 1, 5, 0], np.uint64), [0, 5, 0], [0]),
        ("float32", [1e39, 1.0, -np.inf], [0, 1, 0], [0, 2]),
        ("float64", ["x", None, 2], [0, 0, 2], [0, 1]),
        ("float64", pa.array([1, None, 3]), [1, 0, 3], [1]),
        ("float64", np.array([True, False, True]), [1, 0, 1], []),
        ("int32", pa.array([True, False, None]), [1, 0, 0], [2]),
    ],
)
def test_values_are_held_in_their_type_or_refused(monkeypatch, dtype, given, values, wrong):
    monkeypatch.setattr(Any_, "dtype", dtype)
    GIVEN[:] = [given]
    found, refused = scores_of(Any_(), pa.array(["x", "y", "z"], pa.large_string()), "A")
    assert found["a"].dtype == dtype
    assert found["a"].tolist() == values
    assert list(refused) == wrong


@pytest.mark.parametrize(("n", "size"), [(0, 1), (1, 1), (1023, 1), (1025, 1), (2051, 7), (5, 3 << 20)])
def test_batches_hold_every_text_once(n, size):
    seen = []

    class Length(Score):
        name = "length"
        dtype = "int64"

        def score_all(self, texts):
            seen.append(len(texts))
            if "bad" in texts.to_pylist():
                raise ValueError("one of them")
            return [len(t) for t in texts.to_pylist()]

    rng = random.Random(n)
    made = ["" if rng.random() < 0.1 else "x" * rng.randrange(1, 2 * size) for _ in range(n)]
    bad = sorted(rng.sample(range(n), min(n, 3)))
    for i in bad:
        made[i] = "bad"
    found, refused = scores_of(Length(), pa.array(made, pa.large_string()), "L")
    assert found["length"].tolist() == [0 if i in bad else len(t) for i, t in enumerate(made)]
    assert list(refused) == bad
    assert all(why == "L raises ValueError: one of them" for why in refused.values())
    assert all(k <= 1025 for k in seen)


# ------------------------------------------------------------------------------------------------- entry points


def test_an_entry_point_of_an_installed_package_needs_no_trust(texts, tokenizer, tmp_path, monkeypatch):
    site = tmp_path / "site"
    (site / "digits_of_mine-1.2.dist-info").mkdir(parents=True)
    (site / "digits_of_mine.py").write_text(RULES.read_text())
    info = site / "digits_of_mine-1.2.dist-info"
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: digits-of-mine\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text("[gpu_curate.scores]\ndigits = digits_of_mine:Digits\n")
    monkeypatch.syspath_prepend(str(site))
    own_code.entry_points.cache_clear()
    path = write(tmp_path / "a", texts[0], tokenizer, {"digits": {"max": 0.08}}, rules=False)
    try:
        outcome = pipeline.execute(config.load(path), tmp_path / "run")
        facts = read_json(tmp_path / "run" / "report" / "report.json")
        assert facts["documents"]["dropped"]["Digits:max_digit_fraction"] == sum(digits(t) > 0.08 for t in texts[1])
        assert facts["code"][0]["package"] == "digits-of-mine 1.2"
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: digits-of-mine\nVersion: 1.3\n")
        own_code.entry_points.cache_clear()
        assert fingerprints(config.load(path))["scores"] != outcome.fingerprint_of["scores"]
        path.write_text(path.read_text().replace("digits:", "digit:"))
        with pytest.raises(ConfigError, match=r"quality\.digit: unknown key"):
            config.load(path)
    finally:
        monkeypatch.undo()
        own_code.entry_points.cache_clear()
    context = finished.open_run(tmp_path / "run")  # the package is gone
    assert samples(context, "Digits:max_digit_fraction", 1)


# ------------------------------------------------------------------------------------------------- in memory


def test_score_and_decide_take_the_class_itself(texts):
    from own_rules import Digits, Shape

    table = gc.score([*texts[1], None], own=[Digits, Shape()])
    assert table["digit_fraction"].to_pylist() == [*(digits(t) for t in texts[1]), 0.0]
    made = gc.decide(
        table, {"gopher_quality": {"min_words": 5}, Digits: {"max": 0.08}, "columns": {"own_lines": {"min": 4}}}
    )
    expected = [(("Digits:max_digit_fraction",) if digits(t) > 0.08 else ()) for t in texts[1]]
    assert [tuple(n for n in names if n.startswith("Digits")) for names in made.failing[:-1]] == expected
    assert made.counts["Digits:max_digit_fraction"] == sum(map(len, expected))
    assert made.counts["columns:min_own_lines"] == sum(n < 4 for n in table["own_lines"].to_pylist())
    with pytest.raises(ConfigError, match="there is a score digit_fraction already"):
        gc.score(["a"], own=[Digits, Digits])
    with pytest.raises(ConfigError, match=r"quality\.Digits\.mx: unknown key"):
        gc.decide(table, {Digits: {"mx": 1}})
    with pytest.raises(ConfigError, match="give the class itself"):
        gc.decide(table, {"my_rules.py:Digits": {"max": 0.1}})

    class Picky(gc.Score):
        name = "picky"

        def score(self, text):
            return float(text)

    with pytest.raises(InputError, match="text 1: Picky raises ValueError: could not convert"):
        gc.score(["3", "x"], own=[Picky])
