"""The funnel: its numbers are those of a run with the same toggles and thresholds."""

from __future__ import annotations

import dataclasses
import json
import random
import shutil

import numpy as np
import pytest
from corpora import document
from inquiry.conftest import LOOSE, made

import gpu_curate as gc
from gpu_curate.errors import ConfigError
from gpu_curate.inquiry import funnel as funnels
from gpu_curate.inquiry.stored import Stored
from gpu_curate.inquiry.toggles import key_of, question, rule_names, rule_of
from gpu_curate.quality import FAMILIES
from gpu_curate.runs.fingerprints import active_stages
from gpu_curate.stages.part import Part
from gpu_curate.store.files import read_json


def decided(stored, wanted):
    """The accounts that the stage `decisions` itself makes, over the boxes of the run, without duplicates changed."""
    folders = {**stored.context.folders, "decisions": "decisions-asked"}
    shutil.rmtree(stored.run / "decisions-asked", ignore_errors=True)
    context = dataclasses.replace(stored.context, config=wanted, folders=folders)
    total: dict[str, np.ndarray] = {}
    failing: dict[str, int] = {}
    stage = next(s for s in active_stages(wanted) if s.name == "decisions")
    for part in stored.parts:
        counts = stage.run(Part(stage, context.boxes, part)).counts
        for unit, by_reason in enumerate(vars(counts.by_reason).values()):
            for reason, n in by_reason.items():
                total.setdefault(reason, np.zeros(3, np.int64))[unit] += n
        for name, n in counts.failing.items():
            failing[name] = failing.get(name, 0) + n
    shutil.rmtree(stored.run / "decisions-asked")
    return {reason: sums.tolist() for reason, sums in total.items()}, failing


def told(facts):
    """The funnel in the shape of `decided`."""
    found = {step["rule"]: list(step["took"].values()) for step in facts["steps"]}
    kept = {"kept": list(facts["kept"].values())} if facts["kept"]["documents"] else {}
    return found | kept, {r["rule"]: r["fails"]["documents"] for r in facts["rules"]}


def random_question(rng, stored):
    """Some toggles and thresholds, each a value that this corpus' scores have."""
    names = [n for n in rule_names(stored.config) if n not in ("exact_duplicate", "fuzzy_duplicate", "language")]
    without, only, sets = [], [], []
    if rng.random() < 0.4:
        only = [*rng.sample(names, rng.randint(1, 4)), "exact_duplicate", "fuzzy_duplicate"]
    else:
        without = rng.sample([*names, *FAMILIES], rng.randint(0, 5))
    for name in rng.sample([n for n in names if ":" in n], rng.randint(0, 4)):
        rule = rule_of(stored.config, name)
        part = rng.choice(stored.parts)
        values = stored.columns("scores", part, rule.score)[0]
        if len(values) and rule.score != "stop_words":
            sets.append(f"{key_of(stored.config, name)}={json.dumps(values[rng.randrange(len(values))].item())}")
    if rng.random() < 0.5:
        sets.append(f"min_tokens={rng.randrange(300)}")
    if rng.random() < 0.3:
        sets.append(f"references.bench.max_coverage={rng.random()}")
    return without, only, sets


def test_fifty_questions_count_what_the_stage_decides(run):
    stored, rng, asked = Stored(run), random.Random(5), 0
    while asked < 50:
        without, only, sets = random_question(rng, stored)
        try:
            wanted = question(stored.config, without, only, sets).config
        except ConfigError as e:  # min_words above max_words
            assert "above" in e.message  # noqa: PT017
            continue
        by_reason, failing = decided(stored, wanted)
        assert told(funnels.funnel(stored, without, only, sets)) == (by_reason, failing), (without, only, sets)
        asked += 1


@pytest.mark.parametrize(
    ("base", "without", "only", "sets"),
    [
        ({}, ["exact_duplicate"], [], []),
        ({}, ["fuzzy_duplicate", "gopher_quality:too_few_words"], [], ["min_tokens=70"]),
        ({}, ["exact_duplicate", "fuzzy_duplicate"], [], []),
        ({}, [], ["fineweb:too_many_newlines", "exact_duplicate"], ["quality.c4=true"]),
        ({"dedup": {"exact": False}}, [], [], ["dedup.exact=true"]),
        ({"dedup": {"fuzzy": {"scope": "group"}}}, ["fuzzy_duplicate"], [], []),
        ({"dedup": {"fuzzy": {"scope": "group"}}}, ["exact_duplicate"], [], []),
        ({"dedup": {"fuzzy": {"verify": "exact", "threshold": 0.8, "keep": "longest"}}}, ["exact_duplicate"], [], []),
        ({"dedup": {"exact": False, "fuzzy": {"verify": "exact"}}}, [], [], ["dedup.exact=true"]),
        ({"old": True}, ["fuzzy_duplicate"], [], []),
        ({"old": True}, ["exact_duplicate"], [], []),
        ({"old": True, "dedup": {"exact": False}}, [], [], ["dedup.exact=true"]),
    ],
    ids=str,
)
def test_a_run_with_what_is_printed_counts_the_same(inputs, tmp_path, base, without, only, sets):
    """Duplicates among the toggles: the real run chooses other survivors where that is so."""
    keys = {"quality": {"gopher_quality": LOOSE}, **base}
    if keys.pop("old", False):
        keys["references"] = [{"name": "old", "path": str(inputs / "old.jsonl"), "action": "dedup_against"}]
    data = made(inputs, **keys)
    if base.get("dedup", {}).get("fuzzy", {}).get("scope"):
        data["sources"] = data["sources"][:1]
    gc.run(data, tmp_path / "r")
    facts = funnels.funnel(Stored(tmp_path / "r"), without, only, sets)
    other = gc.run(data, tmp_path / "r", overrides=facts["set"])
    after = other.report
    for unit in ("documents", "tokens", "bytes"):
        assert {s["rule"]: s["took"][unit] for s in facts["steps"]} == after[unit]["dropped"]
        assert facts["kept"][unit] == after[unit]["kept"]
        assert facts["read"][unit] == after[unit]["read"]
    assert {r["rule"]: r["fails"]["documents"] for r in facts["rules"]} == after["failing"]
    assert {r["rule"]: r["only"]["documents"] for r in facts["rules"] if r["only"]["documents"]} == {
        r: n for r, n in after["only"].items() if r not in (*FAMILIES, "columns")
    }


def test_the_yaml_is_the_recipe_that_was_asked_for(run):
    from gpu_curate.config.yaml import read_yaml

    stored = Stored(run)
    sets = ["references.bench.max_coverage=0.5", "quality.fineweb.min_terminal_line_fraction=0.3", "min_tokens=0"]
    asked = question(stored.config, ["gopher_quality", "exact_duplicate"], [], [*sets, "quality.c4.min_sentences=2"])
    data = read_yaml(asked.yaml, "yaml")
    assert data == {
        "quality": {
            "gopher_quality": None,
            "c4": {"min_sentences": 2},
            "fineweb": {"min_terminal_line_fraction": 0.3},
        },
        "dedup": {"exact": False},
        "min_tokens": 0,
        "references": [{"name": "bench", "max_coverage": 0.5}],
    }
    again = question(stored.config, changes=asked.overrides)
    assert again.config == asked.config


@pytest.mark.parametrize(
    ("rule", "limits"),
    [
        ("fineweb:too_few_terminal_lines", ("0", "1", "0.125")),
        ("gopher_quality:words_too_long", ("4", "5", "0.05")),
        ("gopher_repetition:top_2_gram_chars", ("0", "0.3", "0.01")),
        ("gopher_quality:too_many_words", ("50", "400", "7")),
        ("too_few_tokens", ("0", "300", "11")),
        ("contaminated", ("0", "1", "0.25")),
    ],
)
def test_a_sweep_counts_what_every_limit_alone_counts(run, rule, limits):
    stored = Stored(run)
    without = ["fineweb:too_many_newlines"]
    swept = funnels.sweep(stored, rule, *limits, without=without)
    kept = set()
    for row in swept["rows"]:
        alone = funnels.funnel(stored, without, changes=[f"{swept['key']}={row['limit']}"])
        of_rule = next((r for r in alone["rules"] if r["rule"] == rule), None)
        nothing = dict.fromkeys(("documents", "tokens", "bytes"), 0)
        assert row["kept"] == alone["kept"], row["limit"]
        assert row["fails"] == (of_rule["fails"] if of_rule else nothing)
        assert row["only"] == (of_rule["only"] if of_rule else nothing)
        kept.add(row["kept"]["documents"])
    assert len(kept) > 1 or rule == "contaminated"


def test_without_toggles_it_is_the_report(run):
    facts, report = funnels.funnel(Stored(run)), read_json(run / "report" / "report.json")
    for unit in ("documents", "tokens", "bytes"):
        assert {s["rule"]: s["took"][unit] for s in facts["steps"]} == report[unit]["dropped"]
        assert (facts["read"][unit], facts["kept"][unit]) == (report[unit]["read"], report[unit]["kept"])
    assert facts["set"] == []
    assert facts["yaml"] == ""


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"without": ["fineweb:too_few_terminal_line"]}, "did you mean 'fineweb:too_few_terminal_lines'"),
        ({"without": ["empty"]}, "empty cannot be taken away"),
        ({"only": ["gopher"]}, "no such rule"),
        ({"only": ["language"]}, "the run's recipe has it off"),
        ({"changes": ["quality.fineweb.min_terminal_line_fraction=1.5"]}, "min_terminal_line_fraction"),
        ({"changes": ["quality.fineweb.min_terminal=0.5"]}, "unknown key"),
        ({"changes": ["dedup.fuzzy.num_bands=20"]}, "dedup.fuzzy.num_bands: what is stored does not tell"),
        ({"changes": ["quality.gopher_quality.stop_words=[der]"]}, "stop_words: what is stored does not tell"),
        ({"changes": ["language.keep=[de]"]}, "no language.model"),
    ],
)
def test_what_cannot_be_asked_is_named(run, asked, says):
    with pytest.raises(ConfigError) as e:
        funnels.funnel(Stored(run), **asked)
    assert says in e.value.message
    with pytest.raises(ConfigError, match="expected FROM, TO and STEP"):
        funnels.sweep(Stored(run), "too_few_tokens", 5, 1, 1)
    with pytest.raises(ConfigError, match="no threshold"):
        funnels.sweep(Stored(run), "exact_duplicate", 0, 1, 1)
    with pytest.raises(ConfigError, match="max_duplicate_line_fraction"):
        funnels.sweep(Stored(run), "gopher_repetition:duplicate_lines", 0.5, 1.5, 0.5)


@pytest.fixture(scope="module")
def scored(tmp_path_factory):
    """A run whose source carries a score; one value is no number, one is a large integer, some are missing."""
    folder = tmp_path_factory.mktemp("scored")
    rng = random.Random(2)
    scores = [*([1, 2, 3.5, None, 9007199254740993] * 8), "a word"]
    lines = [{"text": document(rng), "score": s, "lang": rng.choice(["en", "de", None])} for s in scores]
    (folder / "s.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return {
        "sources": [{"name": "s", "type": "jsonl", "path": str(folder / "s.jsonl"), "keep_columns": ["score", "lang"]}],
        "tokenizer": {"train": {"vocab_size": 300}},
        "min_tokens": 1,
        "shards": {"validation": {"tokens": 0}},
        "run": {"engine": "inline"},
    }


@pytest.mark.parametrize(
    ("columns", "asked"),
    [
        ({"lang": {"in": ["en"]}}, {"without": ["columns:in_lang"]}),
        ({"lang": {"in": ["en"], "missing": "drop"}}, {"without": ["columns:no_lang"]}),
        ({"lang": {"in": ["en"]}}, {"changes": ["quality.columns.score={min: 2}"]}),
        ({"score": {"min": 2}, "lang": {"in": ["en"]}}, {"changes": ["quality.columns.score.min=9007199254740993"]}),
        ({"score": {"min": 2}, "lang": {"missing": "drop"}}, {"only": ["columns:min_score"]}),
        ({"score": {"min": 2}}, {"changes": ["quality.columns={lang: {in: [de]}, score: {min: 3}}"]}),
        ({"lang": {"in": ["de"]}}, {"without": ["columns"], "changes": ["quality.fineweb=true"]}),
    ],
    ids=str,
)
def test_rules_on_a_column_are_asked_like_others(scored, tmp_path, columns, asked):
    gc.run({**scored, "quality": {"columns": columns, "gopher_quality": LOOSE}}, tmp_path / "r")
    facts = funnels.funnel(Stored(tmp_path / "r"), **asked)
    after = gc.run(
        {**scored, "quality": {"columns": columns, "gopher_quality": LOOSE}}, tmp_path / "r", overrides=facts["set"]
    ).report
    assert {s["rule"]: s["took"]["tokens"] for s in facts["steps"]} == after["tokens"]["dropped"]
    assert facts["kept"]["documents"] == after["documents"]["kept"]
    assert facts["rejected"]["documents"] == after["documents"]["rejected"]
    assert {r["rule"]: r["fails"]["documents"] for r in facts["rules"]} == after["failing"]


def test_a_column_is_swept_and_what_its_rejects_hide_is_said(scored, tmp_path):
    gc.run({**scored, "quality": {"columns": {"score": {"min": 2}}}}, tmp_path / "r")
    stored = Stored(tmp_path / "r")
    swept = funnels.sweep(stored, "columns:min_score", 1, 4, "0.5")
    assert [row["fails"]["documents"] for row in swept["rows"]] == [0, 8, 8, 16, 16, 16, 24]
    with pytest.raises(ConfigError, match="decided nothing else of them"):
        funnels.funnel(stored, without=["columns:min_score"])
    with pytest.raises(ConfigError, match="is no number"):
        funnels.funnel(stored, changes=["quality.columns.lang={min: 1}"])
