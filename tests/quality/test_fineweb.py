"""FineWeb's rules: for each one a text that it keeps and one that it drops, and why."""

import pytest
from judge import failing, scores_of

LONG = [f"Line number {word} is long enough and ends well." for word in ("one", "two", "three", "four", "five")]


def test_prose_is_kept():
    assert failing("\n".join(LONG), "fineweb") == []
    assert failing("\n\n".join(LONG) + "\n", "fineweb") == []


@pytest.mark.parametrize(
    ("text", "reasons"),
    [
        ("", ["no_text", "too_few_terminal_lines"]),
        (" \n\n", ["no_text", "too_few_terminal_lines"]),
        ("\n".join(line.rstrip(".") for line in LONG), ["too_few_terminal_lines"]),
        (
            "\n".join([LONG[0], "Short one here today.", "Short two here today.", "Short three here."]),
            ["too_many_short_lines"],
        ),
        ("\n".join([*LONG, LONG[0]]), ["duplicate_line_chars"]),
        ("\n\n\n\n".join(["A word or two in this line of 33.", LONG[0], LONG[1]]) + "\n" * 6, ["too_many_newlines"]),
    ],
)
def test_each_rule_drops(text, reasons):
    assert failing(text, "fineweb") == reasons


def test_line_ends_of_many_scripts_count_and_a_space_after_them_does_not():
    lines = [
        "これは長い行です。",
        "यह एक पंक्ति है।",
        "Vraiment !",
        "quoted.”",
        "「引用。」",
        "«конец.»",
        "(ascii.)",
        '"ascii."',
    ]
    lines += ["هل هذا سؤال؟", "space after. ", "no", "”", "「」"]
    assert scores_of("\n".join(lines))["terminal_line_fraction"].tolist() == [7 / 13]


def test_thirty_characters_are_short():
    assert scores_of("é" * 30 + "\n" + "é" * 31)["short_line_fraction"].tolist() == [0.5]


def test_short_lines_are_measured_by_script():
    lines = ["的" * 7, "的" * 8, "あ" * 15, "あ" * 16, "한" * 15, "한" * 16, "ไ" * 30, "ไ" * 31, "ж" * 30, "ж" * 31]
    assert [scores_of(line)["short_line_fraction"].tolist()[0] for line in lines] == [1, 0] * 5


def test_newlines_are_not_characters_of_the_text():
    text = "same line here\nsame line here\n"
    assert scores_of(text)["duplicate_line_text_fraction"].tolist() == [0.5]
    assert scores_of(text)["duplicate_line_char_fraction"].tolist() == [14 / 30]
    assert scores_of("\n\n\n")["duplicate_line_text_fraction"].tolist() == [0.0]


def test_zero_is_a_bound_and_null_is_none():
    once_more = "\n".join([*LONG, *(f"{i} {line}" for i in range(60) for line in LONG), LONG[0]])
    assert failing(once_more, "fineweb") == []
    assert failing(once_more, "fineweb", max_duplicate_line_text_fraction=0.0) == ["duplicate_line_chars"]
    assert failing("\n".join([*LONG, LONG[0]]), "fineweb", max_duplicate_line_text_fraction=None) == []
    assert failing("no end here but it is long enough", "fineweb", min_terminal_line_fraction=0.0) == []
