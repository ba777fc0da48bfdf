"""Scores, rules and bit sets, for all families alike."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from judge import SECTIONS, failing, scores_of

from gpu_curate import config, quality
from gpu_curate.config import Quality
from gpu_curate.errors import ConfigError
from gpu_curate.ops.text_stats import SCHEMA

ALL_ON = Quality(**{family: section() for family, section in SECTIONS.items()})
TEXTS = [
    "",
    " \n",
    "word",
    "The cat sat on the mat and the dog sat with the cat. " * 3,
    "\n".join(f"- {i} # ... {{" for i in range(20)),
    "\n\n".join(["Same again and again."] * 5),
    "渡船在早上九点从北码头离开。",
    "渡船 " * 40 + "เรือ" * 50 + "한국어 カナ",
    "\ufeff\x00\u2028\x85",
    *(
        " ".join(np.random.default_rng(seed).choice(["the", "of", "a.", "{", "#", "...", "x\n", "- y\n\n"], 80))
        for seed in range(20)
    ),
]


def test_rules_have_distinct_names_and_leave_the_top_bits_free():
    assert len(set(quality.RULES)) == len(quality.RULES) <= quality.MAX_RULES == 56
    assert [name.split(":")[0] for name in quality.RULES] == sorted(
        (name.split(":")[0] for name in quality.RULES), key=quality.FAMILIES.index
    )


def test_places_of_rules_do_not_move():
    assert quality.FAMILIES == ("gopher_quality", "gopher_repetition", "c4", "fineweb")
    for bit, rule in {
        0: "gopher_quality:too_few_words",
        9: "gopher_quality:too_few_stop_words",
        10: "gopher_repetition:no_text",
        23: "gopher_repetition:duplicate_10_gram_chars",
        24: "c4:lorem_ipsum",
        26: "c4:too_few_sentences",
        27: "fineweb:no_text",
        31: "fineweb:too_many_newlines",
    }.items():
        assert quality.RULES[bit] == rule


def test_scores_have_the_stated_names_and_types():
    scores = scores_of(*TEXTS)
    assert {name: v.dtype for name, v in scores.items()} == quality.score_types()
    assert all(v.shape == (len(TEXTS),) for v in scores.values())
    assert {name for name, dtype in quality.score_types().items() if dtype == np.float64} == {
        name for name in quality.score_types() if name.endswith(("_fraction", "_ratio")) or name.startswith("mean_")
    }
    assert {rule.score for rule in quality.rules(ALL_ON)} <= set(quality.score_types())


def test_every_rule_says_what_it_was_made_for_and_the_reference_repeats_it():
    from gpu_curate.tools.config_reference import markdown

    by_purpose = {rule.name: rule.made_for for rule in quality.rules(ALL_ON)}
    assert by_purpose["gopher_quality:too_few_stop_words"] == "English"
    assert by_purpose["gopher_repetition:top_2_gram_chars"] == "scripts with spaces between words"
    assert by_purpose["fineweb:too_few_terminal_lines"] == "scripts that mark the end of a sentence"
    rows = {line.split("`")[1]: line for line in markdown().splitlines() if line.startswith("| `")}
    assert all(f"for {rule.made_for}; " in rows[rule.key] for rule in quality.rules(ALL_ON))


@pytest.mark.parametrize(
    ("rule", "script", "language", "suits"),
    [
        ("gopher_quality:too_few_stop_words", "Latin", "en", True),
        ("gopher_quality:too_few_stop_words", "Latin", "de", False),
        ("gopher_quality:too_few_stop_words", "Latin", None, None),
        ("gopher_quality:too_few_stop_words", "Arabic", None, False),
        ("gopher_repetition:duplicate_5_gram_chars", "Han", "zh", False),
        ("gopher_repetition:duplicate_5_gram_chars", "Hangul", "ko", True),
        ("fineweb:too_few_terminal_lines", "Thai", "th", False),
        ("fineweb:too_few_terminal_lines", "Han", None, True),
        ("gopher_quality:too_few_words", "Han", "zh", True),
        ("gopher_quality:too_few_words", None, None, None),
    ],
)
def test_which_texts_a_rule_suits(rule, script, language, suits):
    assert next(r for r in quality.rules(ALL_ON) if r.name == rule).suits(script, language) is suits


def test_stop_words_and_bounds_of_the_recipe_are_for_its_language():
    def made_for(**thresholds):
        own = quality.rules(Quality(gopher_quality=config.GopherQuality(**thresholds)))
        return {rule.key: rule.made_for for rule in own}

    assert made_for(min_stop_words=3)["min_stop_words"] == "English"
    assert made_for(stop_words=["der", "und"])["min_stop_words"] == "all scripts"
    assert made_for(max_mean_word_chars=15)["max_mean_word_chars"] == "all scripts"
    assert made_for(max_mean_word_chars=15)["min_mean_word_chars"] == "English"


def test_scores_of_no_documents():
    scores = quality.scores({name: np.zeros(0, np.int32) for name in SCHEMA})
    assert list(scores) == list(quality.score_types())
    assert quality.evaluate(scores, ALL_ON).shape == (0,)


def test_fractions_are_from_0_to_1_and_nothing_is_nan():
    for name, values in scores_of(*TEXTS).items():
        assert np.isfinite(values).all()
        assert (values >= 0).all()
        if name.endswith("_fraction"):
            assert (values <= 1).all(), name


def test_every_threshold_has_one_rule_whose_direction_its_key_tells():
    for family, section in SECTIONS.items():
        keys = [key for key in section.model_fields if key.startswith(("min_", "max_"))]
        assert len(keys) == len([name for name in quality.RULES if name.startswith(f"{family}:")])
        for key in keys:
            changed = section(**{key: None})
            before = quality.rules(Quality(**{family: section()}))
            after = quality.rules(Quality(**{family: changed}))
            (differs,) = [(a, b) for a, b in zip(before, after, strict=True) if a != b]
            assert differs[0].bound == key[:3]
            assert differs[1].limit is None
            field = section.model_fields[key]
            assert field.description.startswith("drops a document with ")
            assert "null: off" in field.description


def test_the_first_failing_rule_is_the_reason():
    failing_N = quality.evaluate(scores_of("", "{" * 9), ALL_ON)
    assert quality.reasons(failing_N) == ["gopher_quality:too_few_words"] * 2
    assert quality.reasons(np.array([0, 1 << 31 | 1 << 25, 1 << 31], np.uint64)) == [
        None,
        "c4:curly_bracket",
        "fineweb:too_many_newlines",
    ]


def test_bits_do_not_depend_on_the_families_that_are_on():
    scores = scores_of(*TEXTS)
    together = quality.evaluate(scores, ALL_ON)
    apart = [quality.evaluate(scores, Quality(**{family: section()})) for family, section in SECTIONS.items()]
    assert np.array_equal(together, np.bitwise_or.reduce(apart))
    assert not quality.evaluate(scores, Quality()).any()


def test_every_family_drops_a_text_without_words():
    for text in ("", " ", "\n\u3000\n"):
        assert all(failing(text, family) for family in SECTIONS)


SCORES_OF_TEXTS = scores_of(*TEXTS)


@given(st.data())
@settings(max_examples=100, deadline=None)
def test_loosening_a_threshold_never_adds_drops(data):
    family = data.draw(st.sampled_from(quality.FAMILIES))
    section = SECTIONS[family]
    key = data.draw(st.sampled_from([k for k in section.model_fields if k.startswith(("min_", "max_"))]))
    kind = type(section.model_fields[key].default)
    values = st.floats(0, 1) if kind is float else st.integers(0, 200)
    low, high = sorted([data.draw(values), data.draw(values)])
    strict, loose = (high, low) if key.startswith("min_") else (low, high)
    others = {"max_words": None, "max_mean_word_chars": None} if family == "gopher_quality" else {}
    others |= {"min_words": None, "min_mean_word_chars": None} if key.startswith("max_") and others else {}

    def drops(limit: float | None) -> np.ndarray:
        return quality.evaluate(SCORES_OF_TEXTS, Quality(**{family: section(**(others | {key: limit}))}))

    assert not (drops(loose) & ~drops(strict)).any()
    assert not (drops(None) & ~drops(loose)).any()


@pytest.mark.parametrize("value", ["on", True, {}])
def test_families_are_switched_on_and_off(value):
    assert config.Quality.model_validate({"c4": value}).c4 == config.C4()
    assert config.Quality.model_validate({"c4": "off"}).c4 is None


def keeping(keep, **keys):
    source = {"name": "a", "type": "jsonl", "path": "x"}
    return config.parse({"sources": [source], "tokenizer": {"path": "t"}, "dedup": {"fuzzy": {"keep": keep}}, **keys})


def check(recipe):
    quality.check_survivor(recipe.dedup.fuzzy.keep, recipe.language.model is not None)


@pytest.mark.parametrize("keep", ["random", "first", "longest", *(f"highest:{name}" for name in quality.score_types())])
def test_every_score_can_choose_the_survivor(keep):
    check(keeping(keep))


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("word", "did you mean 'words'"),
        ("zzz", "there are chars, words, "),
        ("language_score", "set language.model"),
        ("language", ""),
        ("doc_id", ""),
        ("text", ""),
    ],
)
def test_a_survivor_by_an_unknown_score_is_refused_before_any_work(name, hint):
    with pytest.raises(ConfigError, match=f"dedup.fuzzy.keep: highest:{name}: no such score\nhint: .*{hint}"):
        check(keeping(f"highest:{name}"))


def test_the_language_score_can_choose_with_a_model():
    check(keeping("highest:language_score", language={"model": "lid.176.ftz"}))
