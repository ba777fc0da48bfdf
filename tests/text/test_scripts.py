"""Scripts by name, and the one measure of letters that the statistics and the language filter share."""

import pytest

from gpu_curate.ops import text_stats as op
from gpu_curate.text.scripts import chars_of, commonest, script


@pytest.mark.parametrize(
    ("letters", "name"),
    [
        ("aßЖ"[:2] + "Ａ", "Latin"),
        ("Жё", "Cyrillic"),
        ("中々"[:1] + "豈", "Han"),
        ("かカーｶ", "Kana"),
        ("한ㄱ", "Hangul"),
        ("ก", "Thai"),
        ("अ", "Devanagari"),
        ("عﻉ", "Arabic"),
        ("አ", "Ethiopic"),
        ("𝐀ʰ\u0378", None),
    ],
)
def test_the_script_of_a_letter(letters, name):
    assert [script(c) for c in letters] == [name] * len(letters)


def test_the_measure_is_that_of_the_statistics():
    stage1, stage2 = op.character_classes()
    table = stage2.reshape(-1, 256)[stage1].ravel() & op.KIND
    sizes = {op.HAN: op.HAN_CHARS, op.KANA: op.DOUBLE_CHARS, op.DOUBLE: op.DOUBLE_CHARS}
    letters = [cp for cp in range(op.TABLE_LIMIT) if chr(cp).isalpha()]
    others = {cp for cp in letters if chars_of(chr(cp)) != sizes.get(int(table[cp]), 1)}
    assert others == {0x3006, 0x303B, 0xFF9E, 0xFF9F, 0x16FE3}  # marks whose name and script differ


def test_the_commonest_script_of_texts():
    assert commonest(["https://example.org/ferry", "渡船在早上九点从北码头离开"]) == "Han"
    assert commonest(["The ferry", "渡"]) == "Latin"
    assert commonest(["", "12 !"]) is None
