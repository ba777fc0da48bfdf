"""Scripts of characters, by their Unicode names; and what a letter of each measures.

Source: the names of the Unicode Character Database begin with the script. The measure is that of `ops.text_stats`, found on
translations of one text (scripts/bench/script_measure.py): 20 letters of English say as much as 5 of Han or 10 of kana.
"""

from __future__ import annotations

import functools
import unicodedata
from collections import Counter
from collections.abc import Iterable

# Letters of other scripts count 1.
CHARS_OF_LETTER = {"Han": 4, "Bopomofo": 4, "Kana": 2, "Hangul": 2, "Ethiopic": 2}
_NAMED_BY = {
    "CJK": "Han",
    "IDEOGRAPHIC": "Han",
    "HANGZHOU": "Han",
    "HIRAGANA": "Kana",
    "KATAKANA": "Kana",
    "HENTAIGANA": "Kana",
}
_NO_SCRIPTS = frozenset(
    ("MODIFIER", "MATHEMATICAL", "SUPERSCRIPT", "SUBSCRIPT", "DOUBLE-STRUCK", "SCRIPT", "BLACK-LETTER")
)


@functools.lru_cache(1 << 14)
def script(letter: str) -> str | None:
    """The script of a letter, as in `Latin`, `Han`, `Kana`, `Hangul`, `Arabic`; None where its name tells none."""
    words = unicodedata.name(letter, "").replace("KATAKANA-HIRAGANA", "KATAKANA").split()
    if not words or words[0] in _NO_SCRIPTS:
        return None
    first = words[0]
    if first in ("HALFWIDTH", "FULLWIDTH") and len(words) > 1:
        first = words[1]
    elif first in ("NEW", "OLD") and len(words) > 1:
        return f"{first} {words[1]}".title()
    return _NAMED_BY.get(first, first.capitalize())


def chars_of(letter: str) -> int:
    """How many characters of an alphabet a letter stands for."""
    return 1 if letter < "\u1100" else CHARS_OF_LETTER.get(script(letter) or "", 1)


def commonest(texts: Iterable[str]) -> str | None:
    """The script of most of the letters of some texts, each as its measure; None without letters."""
    counts: Counter[str | None] = Counter()
    for text in texts:
        for letter in filter(str.isalpha, text):
            counts[script(letter)] += chars_of(letter)
    counts.pop(None, None)
    return max(counts, key=lambda name: (counts[name], name)) if counts else None
