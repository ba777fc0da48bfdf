"""Gopher's rules: for each one a text that it keeps and one that it drops, and why."""

import pytest
from judge import failing, scores_of

from gpu_curate.config import parse
from gpu_curate.errors import ConfigError

# 56 words, 4.2 letters each, every one different enough that nothing repeats
PROSE = (
    "The ferry to the northern island leaves at nine in the morning and comes back before dark. Anglers take it in spring, "
    "when herring run close to shore. Nobody has counted how many boats sank here, but old charts show seven wrecks. "
    "A small museum, open on Sundays, keeps what divers have found: bells, plates, one brass lamp."
)
EMPTY = ["", " ", "\n\n\n", " \n \u3000\n"]


def test_prose_is_kept():
    assert failing(PROSE, "gopher_quality") == []
    assert failing(PROSE, "gopher_repetition") == []


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("Only a few words that have no need to be more.", "too_few_words"),
        (PROSE * 1800, "too_many_words"),
        ("a of to be it " * 20, "words_too_short"),
        ("the internationalization of characterizations and incomprehensibilities " * 12, "words_too_long"),
        (PROSE + " # # # # # # #", "too_many_hashes"),
        (PROSE.replace(" the ", "... the ").replace(". ", "\u2026 ").replace(", ", "\u2026 "), "too_many_ellipses"),
        ("\n".join(f"- {line}" for line in PROSE.split(",")), "too_many_bullet_lines"),
        ("\n".join(f" \u2022{line}" for line in PROSE.split(",")), "too_many_bullet_lines"),
        ("\n".join(f"{line}... " for line in PROSE.split(". ")), "too_many_ellipsis_lines"),
        ("\n".join(f"{line}\u2026" for line in PROSE.split(". ")), "too_many_ellipsis_lines"),
        (PROSE + " 1815" * 20, "too_few_alphabetic_words"),
        (
            PROSE.replace("the", "de").replace("The", "De").replace("to", "till").replace("and", "och"),
            "too_few_stop_words",
        ),
    ],
)
def test_each_quality_rule_drops(text, reason):
    assert reason in failing(text, "gopher_quality")
    if reason not in ("words_too_short", "words_too_long", "too_many_ellipses"):
        assert failing(text, "gopher_quality") == [reason]


LINES = [f"Line {number} stands alone here" for number in range(1000, 1010)]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (" \n ", "no_text"),
        ("\n\n".join(["Again.", "Again.", "Again.", PROSE]), "duplicate_paragraphs"),
        (PROSE + "\n\n" + PROSE, "duplicate_paragraph_chars"),
        ("\n".join(["Again.", "Again.", "Again.", PROSE]), "duplicate_lines"),
        (PROSE + "\n" + PROSE, "duplicate_line_chars"),
        ("\n".join(LINES).replace("Line ", "one line "), "top_2_gram_chars"),
        ("\n".join(LINES), "top_3_gram_chars"),
        (" ".join(f"of all the ships {i}" for i in range(20)), "top_4_gram_chars"),
        *((f"{PROSE} {PROSE}", f"duplicate_{n}_gram_chars") for n in range(5, 11)),
    ],
)
def test_each_repetition_rule_drops(text, reason):
    assert reason in failing(text, "gopher_repetition")


def test_ngrams_of_each_length_are_told_apart():
    def text(n: int) -> str:  # 40 times the same n words, between words that occur once
        return " ".join(f"{' '.join('abcdefghij'[:n])} x{i}" for i in range(40))

    for n in range(5, 11):
        dropped = [f"duplicate_{k}_gram_chars" for k in range(5, n + 1)]
        assert [r for r in failing(text(n), "gopher_repetition") if r.startswith("dup")] == dropped


def test_blank_lines_are_no_duplicate_lines():
    text = PROSE.replace(". ", ".\n\n")
    for blank in ("\n\n", "\n \n", "\n\t\n\n"):
        assert failing(text.replace("\n\n", blank) + blank, "gopher_repetition") == []
        assert scores_of(text.replace("\n\n", blank))["duplicate_line_fraction"].tolist() == [0.0]
    scores = scores_of("a\n\na\n\nb\n\n")
    assert scores["duplicate_line_fraction"].tolist() == [1 / 3]
    assert scores["duplicate_paragraph_fraction"].tolist() == [1 / 3]
    assert scores["duplicate_line_char_fraction"].tolist() == [1 / 9]


@pytest.mark.parametrize("text", EMPTY)
def test_a_text_without_words_has_scores_and_is_dropped_by_both(text):
    assert all(float(v[0]) == 0.0 for name, v in scores_of(text).items() if name != "chars")
    assert failing(text, "gopher_quality")[0] == "too_few_words"
    assert failing(text, "gopher_repetition") == ["no_text"]


def test_alphabetic_words_bound_what_is_kept():
    def text(percent: int) -> str:
        return " ".join(["word"] * percent + ["1815"] * (100 - percent))

    off = {"min_stop_words": None}
    assert failing(text(85), "gopher_quality", **off) == []
    assert failing(text(80), "gopher_quality", **off) == []
    assert failing(text(70), "gopher_quality", **off) == ["too_few_alphabetic_words"]
    assert failing(text(70), "gopher_quality", **off, min_alphabetic_word_fraction=0.7) == []


def test_any_character_of_a_word_can_be_its_letter():
    words = ["3-й", "(é)", "１a", "#x", "中"]
    assert scores_of(" ".join(words))["alphabetic_word_fraction"].tolist() == [1.0]
    assert scores_of("❽ ٣ ½ Ⅷ 3-4 _ 1")["alphabetic_word_fraction"].tolist() == [0.0]


def test_letters_of_scripts_without_spaces_make_words():
    scores = scores_of("渡船在早上九点从北码头离开。" * 100, "カナ" * 4 + " x", "ไทย" * 4, "สวัสดี ครับ", "a b 中", "")
    assert scores["words"].tolist() == [1 + 1300 * 8 // 12, 2 + 2, 1 + 3, 2 + 1, 3, 0]  # marks are no letters
    assert scores["mean_word_chars"].tolist()[0] == (1400 + 3 * 1300) / (1 + 866)
    assert scores["alphabetic_word_fraction"].tolist() == [1, 1, 1, 1, 1, 0]


def test_length_of_words_is_measured_by_script():
    scores = scores_of("한국어는 띄어 쓴다", "ሰላም ነው", "привет мир")
    assert scores["mean_word_chars"].tolist() == [2 * 8 / 3, 2 * 5 / 2, 9 / 2]
    assert scores["words"].tolist() == [3, 2, 2]


def test_an_ngram_of_unwritten_words_that_occurs_once_is_none():
    """Five paragraphs of Chinese are five runs, of which any two are two fifths of the text."""
    text = "\n\n".join(f"{c}船在早上九点从北码头离开，晚潮之前回来。" for c in "渡客货渔帆")
    assert failing(text, "gopher_repetition") == []
    assert failing(text + "\n\n再来 一次 " * 30, "gopher_repetition") != []
    mixed = text[:22] + " The ferry to the northern island leaves at nine in the morning and back."
    assert failing(mixed, "gopher_repetition") == ["top_2_gram_chars", "top_3_gram_chars", "top_4_gram_chars"]


def test_stop_words_of_another_language():
    assert scores_of("في البيت")["stop_words"].tolist() == [0]
    with pytest.raises(ConfigError, match=r"stop_words.*'of the' is not one word"):
        parse({"sources": [], "quality": {"gopher_quality": {"stop_words": ["of the"]}}}, "here")
    with pytest.raises(ConfigError, match="min_stop_words=2 of 1 stop_words drops every document"):
        parse({"sources": [], "quality": {"gopher_quality": {"stop_words": ["في"]}}}, "here")


def test_overlapping_ngrams_stay_in_the_text():
    scores = scores_of("ha " * 500, "a a")
    for n in (2, 3, 4):
        assert scores[f"top_{n}_gram_char_fraction"].max() <= 1.0
    assert scores["top_2_gram_char_fraction"].tolist() == [min(499 * 5, 1500) / 1500, 1.0]


def test_a_short_text_in_which_nothing_repeats():
    text = "Gulls nest on the old pier.\n\nRain came late that year.\n\nTwo men sell smoked eel.\n\nIt is cheap."
    assert failing(text, "gopher_repetition") == ["top_4_gram_chars"]
    assert failing(text, "gopher_repetition", unrepeated_top_n_grams=False) == []
    again = " ".join(["the old pier"] * 3)
    rest = {"max_top_2_gram_char_fraction": None, "max_top_4_gram_char_fraction": None}
    for unrepeated in (True, False):
        dropped = failing(text + again, "gopher_repetition", unrepeated_top_n_grams=unrepeated, **rest)
        assert dropped == ["top_3_gram_chars"]


def test_zero_is_a_bound_and_null_is_none():
    one_hash = PROSE + " #"
    assert failing(one_hash, "gopher_quality") == []
    assert failing(one_hash, "gopher_quality", max_hash_to_word_ratio=0.0) == ["too_many_hashes"]
    assert failing("# " * 60, "gopher_quality", max_hash_to_word_ratio=None, min_words=0) != []
    assert "too_many_hashes" not in failing("# " * 60, "gopher_quality", max_hash_to_word_ratio=None)
    assert failing("", "gopher_quality", min_words=0, min_mean_word_chars=0.0, min_stop_words=0) == [
        "too_few_alphabetic_words"
    ]


def test_a_text_on_the_bound_is_kept():
    fifty = " ".join(PROSE.split()[:50])
    assert failing(fifty, "gopher_quality") == []
    assert failing(" ".join(PROSE.split()[:49]), "gopher_quality") == ["too_few_words"]
    ten_lines = "\n".join(["same", "same", "same", "same", *(f"{PROSE} {i} {PROSE.swapcase()}" for i in range(6))])
    assert scores_of(ten_lines)["duplicate_line_fraction"].tolist() == [0.3]
    assert "duplicate_lines" not in failing(ten_lines, "gopher_repetition")


def test_reversed_bounds_are_refused():
    data = {"sources": [{"name": "a", "type": "text", "path": "x"}], "tokenizer": {"path": "t"}}
    with pytest.raises(
        ConfigError, match=r"quality.gopher_quality: min_words=60 above max_words=50 drops every document"
    ):
        parse(data | {"quality": {"gopher_quality": {"min_words": 60, "max_words": 50}}})
    with pytest.raises(ConfigError, match=r"max_hash_to_word_ratio.*-0.1"):
        parse(data | {"quality": {"gopher_quality": {"max_hash_to_word_ratio": -0.1}}})
