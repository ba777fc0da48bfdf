"""`score`, `decide` and `contaminated` against a run, and against the definitions."""

from __future__ import annotations

import random

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import reference
from corpora import document

import gpu_curate as gc
from gpu_curate.quality import RULES, score_types

ENGLISH = "It was the best of times, and it was the worst of times. Some of us have that book with pictures. " * 4
TEXTS = [document(random.Random(i)) for i in range(40)] + [ENGLISH, "", None, "short", "Here is { lorem ipsum."]


def test_scores_are_the_columns_of_a_run_whatever_holds_the_texts(monkeypatch):
    made = gc.score(TEXTS)
    assert {n: made.schema.field(n).type.to_pandas_dtype() for n in made.column_names} == {
        n: t.type for n, t in score_types().items()
    }
    assert made["chars"].to_pylist() == [len(t or "") for t in TEXTS]
    for table in (
        {"text": TEXTS},
        pa.table({"text": TEXTS}),
        pd.DataFrame({"text": TEXTS}),
        pl.DataFrame({"text": TEXTS}),
    ):
        assert gc.score(table).equals(made)
    assert gc.score(pd.DataFrame({"body": TEXTS}), text_column="body").equals(made)
    assert gc.score([]).num_rows == 0
    monkeypatch.setattr("gpu_curate.api.batches.BATCH_TEXTS", 7)
    told = []
    assert gc.score(TEXTS, progress=lambda *facts: told.append(facts)).equals(made)
    assert told[-1][1] == told[-1][2] == sum(len((t or "").encode()) for t in TEXTS)
    assert gc.score(["der die das"], stop_words=["die", "und"])["stop_words"].to_pylist() == [1]
    with pytest.raises(gc.ConfigError, match="'text': the table has no such column \\(it has body\\)"):
        gc.score({"body": TEXTS})


def test_rules_decide_as_their_bounds_say():
    scores = gc.score(TEXTS)
    made = gc.decide(scores, {"gopher_quality": {"min_words": 30}, "c4": "on"})
    words = scores["non_symbol_words"].to_numpy()
    too_few = np.array(["gopher_quality:too_few_words" in names for names in made.failing])
    assert np.array_equal(too_few, words < 30)
    assert made.counts["gopher_quality:too_few_words"] == too_few.sum()
    assert np.array_equal(made.keep, [not names for names in made.failing])
    assert made.rule.tolist() == [names[0] if names else None for names in made.failing]
    assert all(list(names) == sorted(names, key=RULES.index) for names in made.failing)
    assert made.rule[-1] == "gopher_quality:too_few_words"
    assert "c4:lorem_ipsum" in made.failing[-1]
    assert 0 < made.keep.sum() < len(TEXTS)
    for same in (scores.to_pandas(), pl.from_arrow(scores), scores.to_pydict()):
        assert gc.decide(same, {"gopher_quality": {"min_words": 30}, "c4": "on"}).rule.tolist() == made.rule.tolist()
    assert gc.decide(scores, "c4").counts.keys() == {r for r in RULES if r.startswith("c4:")}


@pytest.mark.parametrize(
    ("quality", "says"),
    [
        ({"gopher_qualty": "on"}, "quality.gopher_qualty: unknown key .did you mean 'gopher_quality'"),
        (
            {"gopher_quality": {"min_wrods": 3}},
            "quality.gopher_quality.min_wrods: unknown key .did you mean 'min_words'",
        ),
        ({"c4": {"min_sentences": -1}}, "quality.c4.min_sentences"),
        ([], "no family is on"),
        ({"c4": "off"}, "no family is on"),
        ("c5", "quality.c5: unknown key"),
    ],
)
def test_a_wrong_rule_is_named(quality, says):
    with pytest.raises(gc.ConfigError, match=says):
        gc.decide(gc.score(["a"]), quality)


def test_a_table_without_a_score_is_named():
    with pytest.raises(gc.ConfigError, match="no column 'non_symbol_words', which a rule needs"):
        gc.decide({"chars": np.array([1])}, "gopher_quality")
    with pytest.raises(gc.InputError, match="no table of scores"):
        gc.decide(7, "gopher_quality")


def test_contamination_is_that_of_the_definition(monkeypatch):
    rng = random.Random(2)
    items = [" ".join(rng.choices("abcdefgh", k=k)) for k in (20, 14, 5, 30)]
    texts = [f"x {items[0]} y", items[1][:19], "", None, f"{items[3]} {items[1]}", "nothing of it"]
    wanted = reference.contamination([(t or "").encode() for t in texts], [i.encode() for i in items], 4, False)
    monkeypatch.setattr("gpu_curate.api.batches.BATCH_TEXTS", 2)
    made = gc.contaminated(texts, items, ngram_words=4)
    assert made.column_names == ["coverage", "item", "hits"]
    assert made["hits"].to_pylist() == [len(hits) for hits, _, _ in wanted]
    assert made["item"].to_pylist() == [item for _, _, item in wanted]
    assert made["coverage"].to_pylist() == [np.float32(best) for _, best, _ in wanted]
    assert made["item"].to_pylist()[2:4] == [-1, -1]
    with pytest.raises(gc.ConfigError, match="none of 1 items has 13 words"):
        gc.contaminated(texts, ["too short"])
    assert gc.contaminated(["so it is too short ."], ["too short"], whole_items=True)["coverage"].to_pylist() == [1.0]
