"""Characters and their classes, and the hash of a word or line: what the scan and the comparisons share."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gpu_curate.jit import I64, U64, njit
from gpu_curate.ops.simd import load_u64
from gpu_curate.ops.text_stats import (
    CLOSING,
    HAN,
    KANA,
    KIND,
    SPACE,
    SYMBOL,
    TABLE_LIMIT,
    UNSPACED,
)

ZERO, ONE, ALL = U64(0), U64(1), U64(0xFFFFFFFFFFFFFFFF)

KA, KB, KC = U64(0x9E3779B97F4A7C15), U64(0xC2B2AE3D27D4EB4F), U64(0xD6E8FEB86659FD93)
STEP = 16  # bytes that the hash takes at once
HIGH_BITS = U64(0x8080808080808080)
# masks of the first and the second 8 bytes of a step of 0..16 bytes
MASK_0 = np.array([(1 << 8 * min(n, 8)) - 1 for n in range(STEP + 1)], np.uint64)
MASK_1 = np.array([(1 << 8 * max(n - 8, 0)) - 1 for n in range(STEP + 1)], np.uint64)


Table: TypeAlias = NDArray[np.integer[Any]]  # of classes of characters


@njit
def below(bit: int) -> int:
    """The bits under number `bit` (0..64)."""
    return ALL if bit >= 64 else (ONE << U64(bit)) - ONE


@njit
def mix(h: int, c0: int, c1: int) -> int:
    """One step of the hash of a word or line: see the package."""
    u = (c0 ^ h) * KA
    u ^= u >> U64(32)
    v = c1 * KB
    v ^= v >> U64(29)
    h = (u + v) * KC
    return h ^ (h >> U64(32))


@njit
def hash_bytes(chars: NDArray[np.uint8], start: int, stop: int) -> int:
    """The hash of a word or line."""
    size = stop - start
    h = U64(size)
    while size > STEP:
        h = mix(h, load_u64(chars, start), load_u64(chars, start + 8))
        start += STEP
        size -= STEP
    return mix(h, load_u64(chars, start) & MASK_0[size], load_u64(chars, start + 8) & MASK_1[size])


@njit
def count_chars(chars: NDArray[np.uint8], start: int, stop: int) -> int:
    count = 0
    for i in range(start, stop):
        count += not is_continuation(chars, i)
    return count


@njit
def is_at(chars: NDArray[np.uint8], i: int, a: int, b: int) -> bool:
    is_pair: bool = chars[i] == a and chars[i + 1] == b
    return is_pair


@njit
def is_continuation(chars: NDArray[np.uint8], i: int) -> bool:
    """Whether byte i is a continuation byte."""
    tail: bool = (chars[i] & 0xC0) == 0x80
    return tail


@njit
def character(chars: NDArray[np.uint8], i: int, end: int, stage1: Table, stage2: Table) -> tuple[int, int, int]:
    """(size, classes, code point) of the character at a lead byte; (1, SYMBOL, -1) where the sequence is ill-formed."""
    c = I64(chars[i])
    size, cp = 1, I64(-1)
    if c < 0x80:
        cp = c
    elif c >= 0xC2 and c < 0xE0 and i + 1 < end and is_continuation(chars, i + 1):
        size, cp = 2, (c & 0x1F) << 6 | I64(chars[i + 1] & 0x3F)
    elif c >= 0xE0 and c < 0xF0 and i + 2 < end and is_continuation(chars, i + 1) and is_continuation(chars, i + 2):
        long = (c & 0x0F) << 12 | I64(chars[i + 1] & 0x3F) << 6 | I64(chars[i + 2] & 0x3F)
        if long >= 0x800 and (long < 0xD800 or long > 0xDFFF):
            size, cp = 3, long
    elif (
        c >= 0xF0
        and c < 0xF5
        and i + 3 < end
        and is_continuation(chars, i + 1)
        and is_continuation(chars, i + 2)
        and is_continuation(chars, i + 3)
    ):
        long = (c & 0x07) << 18 | I64(chars[i + 1] & 0x3F) << 12 | I64(chars[i + 2] & 0x3F) << 6
        long |= I64(chars[i + 3] & 0x3F)
        if long >= 0x10000 and long <= 0x10FFFF:
            size, cp = 4, long
    if cp < 0:
        return size, I64(SYMBOL), cp
    if cp >= TABLE_LIMIT:
        return size, I64(0), cp
    return size, I64(stage2[I64(stage1[cp >> 8]) * 256 + (cp & 255)]), cp


@njit
def character_before(chars: NDArray[np.uint8], start: int, i: int, stage1: Table, stage2: Table) -> tuple[int, int]:
    """(start, classes) of the character that ends at i > start; classes SYMBOL if none does."""
    lead = i - 1
    while lead > start and i - lead < 4 and is_continuation(chars, lead):
        lead -= 1
    size, classes, _ = character(chars, lead, i, stage1, stage2)
    if lead + size != i:
        return i - 1, I64(SYMBOL)
    return lead, classes


@njit
def without_closing(chars: NDArray[np.uint8], start: int, stop: int, stage1: Table, stage2: Table) -> tuple[int, int]:
    """(end of chars[start:stop] without the CLOSING characters at its end, classes of the last one left, or 0)."""
    while stop > start:
        c = I64(chars[stop - 1])
        if c < 0x80:
            return stop, I64(stage2[I64(stage1[0]) * 256 + c])
        at, classes = character_before(chars, start, stop, stage1, stage2)
        if classes & KIND != CLOSING:
            return stop, classes
        stop = at
    return stop, I64(0)


@njit
def hides_words(chars: NDArray[np.uint8], start: int, stop: int, stage1: Table, stage2: Table) -> bool:
    """Whether chars[start:stop] holds a letter of a script without spaces."""
    i = start
    while i < stop:
        size, classes, _ = character(chars, i, stop, stage1, stage2)
        kind = classes & KIND
        if kind in (HAN, KANA, UNSPACED):
            return True
        i += size
    return False


@njit
def stripped_end(chars: NDArray[np.uint8], start: int, end: int, stage1: Table, stage2: Table) -> int:
    """Where the last word of chars[start:end] ends; start if there is none."""
    while end > start:
        at, classes = character_before(chars, start, end, stage1, stage2)
        if not classes & SPACE:
            break
        end = at
    return end
