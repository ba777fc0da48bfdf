"""CPU twin of `normalize`, in Numba: 64 bytes a step where they are ASCII, a table of code points where they are not.

# N documents
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from gpu_curate.document import TextColumn
from gpu_curate.jit import U64, njit
from gpu_curate.ops.masks import copy64, high64
from gpu_curate.ops.normalize import BLANK, BLANKS, DELETED, FORM, INVALID, Normalized, forms
from gpu_curate.ops.normalize.masks import REACH, stops64, untidy64
from gpu_curate.ops.simd import BLOCK, as_input, borrowed, ctz64
from gpu_curate.text.normalize import BLANK as _BLANK
from gpu_curate.text.normalize import LINE_END, TEXT, kind_at, normalize, write_gap
from gpu_curate.text.sections import Normalize

Bytes: TypeAlias = NDArray[np.uint8]
Ints: TypeAlias = NDArray[np.int64]
Flags: TypeAlias = NDArray[np.bool_]

_ROOM = BLOCK + REACH  # a mask reads so far
_TAIL = 2 * BLOCK  # of the buffer's end that are copied to where there is room


def classify(text: TextColumn, config: Normalize | None) -> np.ndarray:
    """See `gpu_curate.ops.normalize.classify`."""
    class_N = np.empty(len(text), np.uint8)
    table = forms(None if config is None else config.form)
    chars, offsets = as_input(text.chars), as_input(text.offsets)
    _classify(chars, offsets, as_input(table.stage1), as_input(table.stage2), config is not None, class_N)
    return class_N


def normalize_column(text: TextColumn, config: Normalize | None) -> Normalized:
    """See `gpu_curate.ops.normalize.normalize_column`."""
    class_N = classify(text, config)
    changed_N = np.zeros(len(text), np.bool_)
    if not class_N.any():
        return Normalized(text, class_N, changed_N, {})
    made: list[bytes] = []
    refused: dict[int, BaseException] = {}
    if config is not None:
        for i in np.flatnonzero(class_N & FORM).tolist():
            raw = text.raw(i)
            try:
                made.append(normalize(raw.decode("utf-8"), config))
            except (KeyboardInterrupt, SystemExit):
                raise
            except BaseException as e:
                made.append(b"")
                refused[i] = e
            changed_N[i] = made[-1] != raw
    return _assembled(text, class_N, changed_N, made, refused, config is not None and config.keep_indentation)


def replaced(text: TextColumn, new: dict[int, bytes]) -> TextColumn:
    """See `gpu_curate.ops.normalize.replaced`."""
    class_N = np.zeros(len(text), np.uint8)
    class_N[list(new)] = FORM
    made = [new[i] for i in sorted(new)]
    return _assembled(text, class_N, np.zeros(len(text), np.bool_), made, {}, False).text


def _assembled(
    text: TextColumn,
    class_N: np.ndarray,
    changed_N: np.ndarray,
    made: list[bytes],
    refused: dict[int, BaseException],
    keep_indentation: bool,
) -> Normalized:
    """The column of texts as they are, rewritten ones, and those `made` for class FORM."""
    own = TextColumn.from_texts(made)
    target = np.empty(text.nbytes + own.nbytes + BLOCK, np.uint8)
    offsets = np.empty(len(text) + 1, np.int64)
    chars, starts = as_input(text.chars), as_input(text.offsets)
    _assemble(
        chars, starts, class_N, as_input(own.chars), as_input(own.offsets), keep_indentation, target, offsets, changed_N
    )
    return Normalized(TextColumn(target, offsets), class_N, changed_N, refused)


@njit
def _classify(
    chars: Bytes, offsets: Ints, stage1: NDArray[np.uint16], stage2: Bytes, tidy: bool, class_N: Bytes
) -> None:
    """`tidy`: blanks, line ends and controls are looked at, too."""
    chars, stage1, stage2 = borrowed(chars), borrowed(stage1), borrowed(stage2)
    base = max(0, chars.size - _TAIL)
    tail = np.full(_TAIL + _ROOM, 120, np.uint8)
    tail[: chars.size - base] = chars[base:]
    tail_view = borrowed(tail)
    for n in range(class_N.size):
        start, stop = offsets[n], offsets[n + 1]
        if start == stop:
            class_N[n] = 0
            continue
        untidy, high = _ascii_masks(chars, tail_view, base, start, stop)
        found = 0
        if tidy and (untidy != U64(0) or chars[start] <= 32 or chars[stop - 1] <= 32):
            found = BLANKS
        if high != U64(0):
            found = _class_of(chars, tail_view, base, start, stop, stage1, stage2, tidy, found)
        class_N[n] = found


@njit
def _ascii_masks(chars: Bytes, tail: Bytes, base: int, start: int, stop: int) -> tuple[int, int]:
    """Whether anything of ASCII may have to change, and whether there is anything else: not 0.

    What untidy64 sees behind the end of a text does not count: there it can only say that the text ends in a blank.
    """
    untidy = high = U64(0)
    i = start
    while i < stop:
        inside = ~U64(0)
        if stop - i < BLOCK:
            inside = (U64(1) << U64(stop - i)) - U64(1)
        if i + _ROOM <= chars.size:
            untidy |= untidy64(chars, i) & inside
            high |= high64(chars, i) & inside
        else:
            untidy |= untidy64(tail, i - base) & inside
            high |= high64(tail, i - base) & inside
        i += BLOCK
    return untidy, high


@njit
def _class_of(
    chars: Bytes,
    tail: Bytes,
    base: int,
    start: int,
    stop: int,
    stage1: NDArray[np.uint16],
    stage2: Bytes,
    tidy: bool,
    found: int,
) -> int:
    """The class of a text that is not ASCII; `found`: what its ASCII tells."""
    last = 0  # combining class of the code point before
    marks = deleted = False
    i = start
    while i < stop:
        c = int(chars[i])
        if c < 0x80:  # on to the next one that is not
            last = 0
            i += 1
            while i < stop:
                high = high64(chars, i) if i + _ROOM <= chars.size else high64(tail, i - base)
                i += int(ctz64(high))
                if high != U64(0):
                    break
            continue
        # Well-formed UTF-8: table 3-7 of the Unicode standard.
        left = stop - i
        if c < 0xC2 or c > 0xF4 or left < 2:
            return INVALID
        d = int(chars[i + 1])
        if d & 0xC0 != 0x80:
            return INVALID
        if c < 0xE0:
            point = (c & 31) << 6 | (d & 63)
            i += 2
        elif left < 3 or int(chars[i + 2]) & 0xC0 != 0x80:
            return INVALID
        elif c < 0xF0:
            if (c == 0xE0 and d < 0xA0) or (c == 0xED and d > 0x9F):
                return INVALID
            point = (c & 15) << 12 | (d & 63) << 6 | (int(chars[i + 2]) & 63)
            i += 3
        else:
            if left < 4 or int(chars[i + 3]) & 0xC0 != 0x80 or (c == 0xF0 and d < 0x90) or (c == 0xF4 and d > 0x8F):
                return INVALID
            point = (c & 7) << 18 | (d & 63) << 12 | (int(chars[i + 2]) & 63) << 6 | (int(chars[i + 3]) & 63)
            i += 4
        if not tidy:
            continue
        entry = int(stage2[int(stage1[point >> 7]) << 7 | (point & 127)])
        if entry == 0:
            last = 0
        elif entry < DELETED:
            marks = True
            if last > entry:
                found |= FORM
            last = entry
        elif entry == DELETED:
            deleted = True
            found |= BLANKS
        else:
            last = 0
            found |= BLANKS if entry == BLANK else FORM
    # Marks that a deleted control kept apart may be out of order without it.
    if marks and found == BLANKS and (deleted or _deletes(chars, start, stop)):
        found |= FORM
    return found


@njit
def _deletes(chars: Bytes, start: int, stop: int) -> bool:
    """Whether a control of ASCII is deleted."""
    for i in range(start, stop):
        c = chars[i]
        if (c < 32 and (c < 9 or c > 13)) or c == 127:
            return True
    return False


@njit
def _assemble(
    chars: Bytes,
    offsets: Ints,
    class_N: Bytes,
    made: Bytes,
    made_offsets: Ints,
    keep_indentation: bool,
    target: Bytes,
    target_offsets: Ints,
    changed_N: Flags,
) -> None:
    chars, made, target = borrowed(chars), borrowed(made), borrowed(target)
    out = k = 0
    for n in range(class_N.size):
        target_offsets[n] = out
        start, stop = offsets[n], offsets[n + 1]
        if class_N[n] == 0:
            out = _copy(chars, start, stop, target, out)
        elif class_N[n] & FORM:
            out = _copy(made, made_offsets[k], made_offsets[k + 1], target, out)
            k += 1
        elif class_N[n] == BLANKS:
            first = out
            out = _rewrite(chars, start, stop, target, out, keep_indentation)
            changed_N[n] = out - first != stop - start or _differ(chars, start, target, first, out - first)
    target_offsets[class_N.size] = out


@njit
def _copy(source: Bytes, start: int, stop: int, target: Bytes, out: int) -> int:
    """Returns: where the copy ends. Overwrites up to 64 bytes behind it."""
    i = start
    while i + BLOCK <= source.size and i < stop:
        copy64(source, i, target, out + (i - start))
        i += BLOCK
    for j in range(i, stop):
        target[out + (j - start)] = source[j]
    return out + (stop - start)


@njit
def _differ(a: Bytes, i: int, b: Bytes, j: int, size: int) -> bool:
    different = False
    for k in range(size):
        different |= a[i + k] != b[j + k]
    return different


@njit
def _rewrite(source: Bytes, start: int, stop: int, target: Bytes, first: int, keep_indentation: bool) -> int:
    """What `text.normalize` leaves of the blanks, line ends and controls of source[start:stop], to target[first:]; where it ends.

    Overwrites up to 64 bytes behind it. Between what changes, text is copied 64 bytes a step.
    """
    out = first
    newlines = 0  # LF since the last text, not yet written
    blanks = 0  # blanks since the last text or LF, not yet written
    indent = start  # where the last line's blanks start in `source`
    after_cr = False
    i = start
    while i < stop:
        kind, width = kind_at(source, i)
        if kind == _BLANK:
            if blanks == 0:
                indent = i
            blanks += 1
            after_cr = False
        elif kind == LINE_END:
            if not (source[i] == 10 and after_cr):
                newlines += 1
            blanks = 0
            after_cr = source[i] == 13
        elif kind == TEXT:
            if newlines or blanks:
                indent = indent if blanks else i
                out = write_gap(source, indent, i, target, out, out > first, newlines, keep_indentation)
                newlines = blanks = 0
            for j in range(width):
                target[out + j] = source[i + j]
            out += width
            after_cr = False
            i += width
            while i < stop and i + _ROOM <= source.size:  # on to what changes
                stops = stops64(source, i)
                if stop - i <= BLOCK:  # what comes behind the end is another text's; a blank there goes
                    stops |= ~U64(0) << U64(stop - i - 1) << U64(1)
                    if source[stop - 1] <= 32:
                        stops |= U64(1) << U64(stop - i - 1)
                copy64(source, i, target, out)
                step = int(ctz64(stops))
                i += step
                out += step
                if step < BLOCK:
                    break
            continue
        i += width
    return out
