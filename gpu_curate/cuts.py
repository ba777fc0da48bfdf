"""What is left of a text when ranges of its bytes are cut out, and how the pieces are joined.

Definition:

1. A range is [start, end) in bytes of the text. It is clipped to the text and widened to whole code points, so that none is
   split. An empty range cuts nothing.
2. Ranges that touch, overlap or nest, and ranges with nothing but blanks between them, are one.
3. Where a range is cut out of the middle, of the blanks before it and those behind it one run stays as it is: the one with
   more line breaks, the run before where both have as many or the run behind has none. So paragraphs stay paragraphs, lines
   stay lines, and a sentence does not get a second space.
4. Where neither side has a blank and both neighbours are word characters (`ops.words`, class WORD), one space is put
   between: no word is glued to another. Characters that `ops.words` skips (soft hyphen, joiners) are looked through.
   In scripts without spaces nothing is put between, as nothing is needed.
5. At the beginning of the text the blanks before the range stay and those behind it go; at its end the other way round. A
   text of which nothing but blanks is left is empty.

So the words of what is left are words of the text, in its order, less those that are cut (a word that a range cuts in two
leaves its pieces).
Blanks are the characters for which Python's `str.isspace` is true, without the four separators U+001C to U+001F.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from gpu_curate.ops.words import SEPARATOR, SKIP, TABLE_LIMIT, WORD, fold_table

Range = tuple[int, int]

BLANKS = frozenset(
    "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
)
_BLANK_BYTES = frozenset(c.encode() for c in BLANKS)
_LAST_BYTES = frozenset(c[-1] for c in _BLANK_BYTES)
_FIRST_BYTES = frozenset(c[0] for c in _BLANK_BYTES)
_MAX_BLANK = max(map(len, _BLANK_BYTES))


def merged(text: bytes, ranges: Iterable[Range]) -> list[Range]:
    """The ranges that are cut out of a text (rules 1 and 2): increasing, with something other than blanks between them."""
    found: list[Range] = []
    for start, end in sorted(whole(text, r) for r in ranges):
        if start >= end:
            continue
        if found and start <= _skip_blanks(text, found[-1][1]):
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found


def joined(text: bytes, ranges: Iterable[Range]) -> bytes:
    """What is left of a text without these ranges (rules 3 to 5).

    Args:
        text: any bytes.
        ranges: in any order.
    """
    cut = merged(text, ranges)
    if not cut:
        return text
    pieces: list[bytes] = []
    at = 0  # what lies before has been taken or left out
    for start, end in cut:
        low, high = _skip_blanks_back(text, start, at), _skip_blanks(text, end)
        pieces.append(text[at:low])
        before, behind = text[low:start], text[end:high]
        first, last = low == 0, high == len(text)
        if first and last:
            return b""
        if first:
            pieces.append(before)
        elif last:
            pieces.append(behind)
        elif not before and not behind:
            pieces.append(b" " if _word_before(text, low) and _word_from(text, high) else b"")
        else:
            pieces.append(behind if not before or _breaks(behind) > _breaks(before) else before)
        at = high
    return b"".join([*pieces, text[at:]])


def whole(text: bytes, given: Range) -> Range:
    """A range clipped to the text and widened to whole code points."""
    start, end = max(given[0], 0), min(given[1], len(text))
    if start >= end:
        return start, start
    for _ in range(3):
        if start > 0 and start < len(text) and text[start] & 0xC0 == 0x80:
            start -= 1
    for _ in range(3):
        if end < len(text) and text[end] & 0xC0 == 0x80:
            end += 1
    return start, end


def _skip_blanks(text: bytes, at: int) -> int:
    """Where the blanks from `at` on end."""
    while at < len(text) and text[at] in _FIRST_BYTES:
        size = next((n for n in range(1, _MAX_BLANK + 1) if text[at : at + n] in _BLANK_BYTES), 0)
        if not size:
            break
        at += size
    return at


def _skip_blanks_back(text: bytes, at: int, first: int) -> int:
    """Where the blanks that end at `at` begin, not before `first`."""
    while at > first and text[at - 1] in _LAST_BYTES:
        size = next((n for n in range(1, _MAX_BLANK + 1) if text[max(at - n, first) : at] in _BLANK_BYTES), 0)
        if not size:
            break
        at -= size
    return at


def _breaks(run: bytes) -> int:
    """Line breaks in a run of blanks; a paragraph separator counts as two."""
    return max(run.count(b"\n"), run.count(b"\r")) + run.count("\u2028".encode()) + 2 * run.count("\u2029".encode())


@cache
def _kind(cp: int) -> int:
    """Class of a code point in `ops.words`."""
    if cp < TABLE_LIMIT:
        stage1, stage2 = fold_table()
        return int(stage2[int(stage1[cp >> 8]) * 256 + (cp & 255)]) >> 24
    return SKIP if 0xE0000 <= cp < 0xE1000 else SEPARATOR


def _word_before(text: bytes, at: int) -> bool:
    """True if the last character before `at` that `ops.words` does not skip belongs to a spaced word."""
    while at > 0:
        start = at - 1
        while start > max(at - 4, 0) and text[start] & 0xC0 == 0x80:
            start -= 1
        kind = _kind_of(text[start:at])
        if kind != SKIP:
            return kind == WORD
        at = start
    return False


def _word_from(text: bytes, at: int) -> bool:
    """Likewise of the first character from `at` on."""
    while at < len(text):
        stop = at + 1
        while stop < min(at + 4, len(text)) and text[stop] & 0xC0 == 0x80:
            stop += 1
        kind = _kind_of(text[at:stop])
        if kind != SKIP:
            return kind == WORD
        at = stop
    return False


def _kind_of(sequence: bytes) -> int:
    try:
        return _kind(ord(sequence.decode("utf-8")))
    except (UnicodeDecodeError, TypeError):
        return SEPARATOR
