"""Text normalisation: one blank, one line end, one Unicode form.

`clean` below stands for one pass over the UTF-8 bytes that does, in this order,

1. delete control characters (C0 and C1 without those named next), U+007F and U+FEFF (the byte order mark, anywhere);
2. CR LF, CR, vertical tab and form feed become LF (the latter two break lines and pages: deleting would join words);
3. tab and every space separator (Unicode category Zs: no-break, thin, ideographic, ...) become U+0020;
4. a run of blanks becomes one; blanks at the end of a line go; three or more LF become two; blanks and LF at both ends
   of the document go.

U+0085, U+2028 and U+2029 are characters of the text, neither ends nor blanks: files hold them inside records, and
readers that took them for line ends lost text. U+3000 is a blank like the others: in CJK text it indents and
separates, as U+0020 does, and copies of a page differ in it. Zero-width characters other than U+FEFF join or split
letters in many scripts and stay.

The whole is: surrogates, `clean`, normal form, and `clean` again after NFKC or NFKD, which make blanks of other
characters (U+00A8 → U+0020 U+0308). Idempotent: a normal form brings no character that step 1 to 3 would change (what
decomposes to U+2002 and U+2003 is gone by then) except those blanks, and taking out blanks and LF, which are starters
that compose with nothing, leaves a text in normal form.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray

from gpu_curate.jit import U64, njit
from gpu_curate.text.sections import Normalize
from gpu_curate.text.swar import HIGH, ONES, at_most, equals, words


def normalize(text: str, config: Normalize) -> bytes:
    """UTF-8 of the text with one kind of blank, one kind of line end and one Unicode form.

    Args:
        text: any string; surrogate pairs are joined, lone surrogates become U+FFFD.
        config: normal form, and whether indentation is kept (`keep_indentation`: blanks at the start of a line stay as
            they are, tabs too, other space separators as U+0020; blanks before the first text then stay as well).
    Returns:
        Bytes, since whoever stores or scans the text needs them. Empty if it had nothing but blanks and controls.
        normalize(normalize(t).decode()) == normalize(t).
    Memory: about 3 times the UTF-8 size of the text.
    """
    text, raw = _encode(text)
    cleaned = _clean(raw, text.isascii(), config.keep_indentation)
    if cleaned is not None:
        raw = cleaned
    if config.form is None or raw.isascii():
        return raw
    if cleaned is not None:
        text = raw.decode("utf-8")
    formed = unicodedata.normalize(config.form, text)
    if formed == text:
        return raw
    raw = formed.encode("utf-8")
    cleaned = _clean(raw, raw.isascii(), config.keep_indentation) if config.form in ("NFKC", "NFKD") else None
    return raw if cleaned is None else cleaned


def normalizer(config: Normalize | None) -> Callable[[str], bytes]:
    """What every text of a run goes through; without a config only lone surrogates change, since UTF-8 has none."""
    return _well_formed_utf8 if config is None else partial(normalize, config=config)


def _well_formed_utf8(text: str) -> bytes:
    return _encode(text)[1]


def well_formed(text: str) -> str:
    """The text with surrogate pairs joined and lone surrogates as U+FFFD; the same object if it has none."""
    return text if text.isascii() else _encode(text)[0]


def _encode(text: str) -> tuple[str, bytes]:
    """The well-formed text and its UTF-8."""
    try:
        return text, text.encode("utf-8")
    except UnicodeEncodeError:
        text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        return text, text.encode("utf-8")


def _clean(raw: bytes, is_ascii: bool, keep_indentation: bool) -> bytes | None:
    """`clean` of the module's docstring, on well-formed UTF-8; None if nothing changes."""
    if not raw:
        return None
    if raw[0] > 32 and raw[-1] > 32 and not _is_suspect(words(raw), is_ascii):
        return None
    source = np.frombuffer(raw, np.uint8)
    target = np.empty(len(raw), np.uint8)
    size = _clean_bytes(source, target, keep_indentation)
    cleaned = target[:size].tobytes()
    return None if cleaned == raw else cleaned


_8, _16, _48, _56 = U64(8), U64(16), U64(48), U64(56)


@njit
def _is_suspect(text: NDArray[np.uint64], is_ascii: bool) -> bool:
    """False only if `_clean_bytes` would change nothing; `text` as `swar.words`, neither starts nor ends in a blank.

    Eight bytes a step, without leaving early: the compiler vectorises it. Windows of three bytes c, p before it and q
    before that: `x_1` and `x_2` below are the flags of p and q moved to where c is.
    """
    bad = U64(0)
    blank_before = newline_before = U64(0)
    for i in range(text.size):
        word = text[i]
        blank, newline = at_most(word, 32), equals(word, 10)
        blank_1 = blank << _8 | blank_before >> _56
        newline_1 = newline << _8 | newline_before >> _56
        newline_2 = newline << _16 | newline_before >> _48
        bad |= (at_most(word, 31) & ~newline) | equals(word, 127)
        # two blanks or LF in a row, but for one blank after LF, and for LF LF after text
        bad |= blank & blank_1 & ~(newline_1 & ~newline) & (~newline | ~newline_1 | newline_2)
        blank_before, newline_before = blank, newline
    if is_ascii or bad:
        return bad != 0
    flipped_before = c2_before = e2_before = e1_e3_before = U64(0)
    for i in range(text.size):
        word = text[i]
        flipped = word ^ HIGH  # continuation bytes 80..BF become 00..3F
        flipped_1 = flipped << _8 | flipped_before >> _56
        c2 = equals(word, 0xC2)
        bad |= (c2 << _8 | c2_before >> _56) & at_most(flipped, 0x20)  # C1, U+00A0
        e2 = equals(word, 0xE2)
        space = at_most(flipped, 0x0A) | equals(flipped, 0x2F) | equals(flipped, 0x1F)
        bad |= (e2 << _16 | e2_before >> _48) & at_most(flipped_1, 1) & space  # U+2000..200A, 202F, 205F, some others
        e1_e3 = equals(word & ~(ONES << U64(1)), 0xE1)
        bad |= (e1_e3 << _16 | e1_e3_before >> _48) & at_most(flipped, 0)  # U+1680, U+3000, some others
        bad |= equals(flipped_1, 0x3B) & equals(flipped, 0x3F)  # U+FEFF, some others
        flipped_before, c2_before, e2_before, e1_e3_before = flipped, c2, e2, e1_e3
    return bad != 0


TEXT, BLANK, LINE_END, DELETED = range(4)  # kinds of characters


@njit(inline="always")
def kind_at(source: NDArray[np.uint8], i: int) -> tuple[int, int]:
    """What `clean` takes the character at `i` of well-formed UTF-8 for, and its length in bytes."""
    c = int(source[i])
    if c < 0x80:
        kind = TEXT
        if c == 32 or c == 9:
            kind = BLANK
        elif c >= 10 and c <= 13:
            kind = LINE_END
        elif c < 32 or c == 127:
            kind = DELETED
        return kind, 1
    if c < 0xC0:  # within a character of the text: columns are copied up to there
        return TEXT, 1
    if c < 0xE0:
        if c == 0xC2:
            d = int(source[i + 1])
            if d == 0xA0:
                return BLANK, 2
            if d < 0xA0 and d != 0x85:
                return DELETED, 2
        return TEXT, 2
    if c < 0xF0:
        point = (c & 15) << 12 | (int(source[i + 1]) & 63) << 6 | (int(source[i + 2]) & 63)
        if (point >= 0x2000 and point <= 0x200A) or point in (0x1680, 0x202F, 0x205F, 0x3000):
            return BLANK, 3
        return (DELETED if point == 0xFEFF else TEXT), 3
    return TEXT, 4


@njit(inline="always")
def write_gap(
    source: NDArray[np.uint8],
    indent: int,
    i: int,
    target: NDArray[np.uint8],
    out: int,
    begun: bool,
    newlines: int,
    keep_indentation: bool,
) -> int:
    """Write what `clean` leaves of the blanks and line ends before the text at `i`; return where it ends.

    Args:
        indent: where the blanks before `i` start in `source`, behind the last line end; `i` where there are none.
        out: where they are written in `target`.
        begun: text stands before them.
        newlines: number of line ends.
    """
    if begun:
        for _ in range(min(newlines, 2)):
            target[out] = 10
            out += 1
    if indent < i and keep_indentation and (newlines > 0 or not begun):
        for j in range(indent, i):  # blanks only, but for deleted controls between them
            b = source[j]
            if b == 9 or b == 32:
                target[out] = b
                out += 1
            elif b == 0xE1 or b == 0xE2 or b == 0xE3 or (b == 0xC2 and source[j + 1] == 0xA0):
                target[out] = 32
                out += 1
    elif indent < i and begun:
        target[out] = 32
        out += 1
    return out


@njit
def _clean_bytes(source: NDArray[np.uint8], target: NDArray[np.uint8], keep_indentation: bool) -> int:
    """Write the cleaned UTF-8 of `source` to `target` (at least as long); return its length in bytes."""
    n = source.size
    out = 0
    newlines = 0  # LF since the last text, not yet written
    blanks = 0  # blanks since the last text or LF, not yet written
    indent = 0  # where the last line's blanks start in `source`
    after_cr = False
    i = 0
    while i < n:
        kind, width = kind_at(source, i)
        if kind == TEXT:
            if newlines or blanks:
                indent = indent if blanks else i
                out = write_gap(source, indent, i, target, out, out > 0, newlines, keep_indentation)
                newlines = blanks = 0
            for j in range(width):
                target[out + j] = source[i + j]
            out += width
            after_cr = False
            if width == 1:  # the common case in a tight loop: words of ASCII, one blank between them
                while i + 2 < n:
                    c, d = source[i + 1], source[i + 2]
                    if not ((c > 32 and c < 127) or (c == 32 and d > 32 and d < 127)):
                        break
                    target[out] = c
                    out += 1
                    i += 1
        elif kind == BLANK:
            if blanks == 0:
                indent = i
            blanks += 1
            after_cr = False
        elif kind == LINE_END:
            if not (source[i] == 10 and after_cr):
                newlines += 1
            blanks = 0
            after_cr = source[i] == 13
        i += width
    return out
