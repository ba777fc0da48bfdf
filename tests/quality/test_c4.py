"""C4's rules: for each one a text that it keeps and one that it drops, and why."""

import pytest
from judge import failing, scores_of

FIVE = "No braces here. Five sentences follow. They end well. All is fine. That is all."


def test_prose_is_kept():
    assert failing(FIVE, "c4") == []


def test_four_sentences_without_braces_fail_only_for_their_number():
    text = "No braces here. Three sentences follow. They end well. All fine."
    assert failing(text, "c4") == ["too_few_sentences"]
    assert failing(text, "c4", min_sentences=4) == []


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (FIVE + "\nThis is Lorem Ipsum dolor sit amet.", "lorem_ipsum"),
        (FIVE + "\nvoid main() { return now; } is code.", "curly_bracket"),
        ("One sentence is not enough.", "too_few_sentences"),
        ("", "too_few_sentences"),
        (" \n\n ", "too_few_sentences"),
    ],
)
def test_each_rule_drops(text, reason):
    assert failing(text, "c4") == [reason]


@pytest.mark.parametrize(
    "line",
    [
        "Lorem ipsum without an end mark {",  # C4 removes the line before it looks for the phrase
        "{ x. }",
        "Please enable JavaScript { and reload.",
        "lorem-ipsum is spelt otherwise.",
    ],
)
def test_lines_that_c4_removes_first_do_not_drop_the_document(line):
    assert failing(f"{FIVE}\n{line}", "c4") == []


@pytest.mark.parametrize(
    ("line", "sentences"),
    [
        ("It has three words.", 1),
        ("Two words.", 0),
        ("It has no end mark", 0),
        ("It trails off...", 0),
        ("It trails off…", 0),
        ("他说：“渡船九点离开。”", 1),
        ("「船は九時に出ます。」と彼は言った。", 2),
        ("「船は九時に出ます！？」", 1),
        ("渡船在早上九点离开", 0),
        ("渡船。", 0),  # 2 letters: 2 words
        ("渡船来。", 1),
        ("नौका नौ बजे निकलती है। वह शाम को लौटती है।", 2),
        ("هل تغادر العبارة؟ نعم، في التاسعة.", 2),
        ("배가 아홉 시에 떠난다.", 1),
        ("“Not one,” he said. “None.”", 2),
        ("It trails off...”", 0),
        ("เรือออกเก้าโมงเช้า", 0),  # Thai has no mark for the end of a sentence
        ("它是" + "船" * 1000 + "。", 1),  # no word of 1,000 characters
        ("Is it so? Yes! It is.", 3),
        ('She said "no." He said "why?"', 2),
        ("  Spaces around it do not matter. \t", 1),
        ("A citation follows it.[3][edit][citation needed]", 1),
        ("A citation follows it. [3]", 0),  # what is left ends in a space, in datatrove too
        ("Ends before a citation[3]", 0),
        ("J. R. Smith met the U.S. envoy.", 1),
        ("He left for the U.S.", 1),
        ("What...? It is so!", 2),
        ("He likes our privacy POLICY a lot.", 0),
        ("This site uses cookies. Really.", 0),
        ("We USE COOKIES here.", 0),
        ("Read the terms of use now.", 0),
        ("Turn on javascript now.", 0),
        ("It is " + "x" * 1000 + ".", 0),
        ("It is " + "x" * 999 + ".", 1),
        ("It is " + "é" * 999 + ".", 1),
    ],
)
def test_sentences_of_the_lines_that_c4_keeps(line, sentences):
    assert scores_of(line)["c4_sentences"].tolist() == [sentences]
    assert scores_of(f"{FIVE}\n{line}\n")["c4_sentences"].tolist() == [5 + sentences]


def test_without_the_rule_on_line_ends():
    text = "\n".join(["a headline without a mark"] * 5)
    assert failing(text, "c4") == ["too_few_sentences"]
    assert failing(text, "c4", end_punctuation=False) == []
    assert failing(text + "\n{ so be it", "c4", end_punctuation=False) == ["curly_bracket"]
    assert failing(text + "\nlorem ipsum dolor", "c4", end_punctuation=False) == ["lorem_ipsum"]


def test_share_of_words_that_c4_would_keep():
    scores = scores_of("Three words stay.\nnot this one", "", "all of it stays.\nReally all of it.")
    assert scores["c4_kept_word_fraction"].tolist() == [0.5, 0.0, 1.0]


def test_zero_is_a_bound_and_null_is_none():
    text = FIVE + "\nOne line has a { in it."
    assert failing(text, "c4", max_curly_bracket_lines=None) == []
    assert failing(text, "c4", max_curly_bracket_lines=1) == []
    assert failing(text, "c4", max_curly_bracket_lines=0) == ["curly_bracket"]
    assert failing("", "c4", min_sentences=0) == []
