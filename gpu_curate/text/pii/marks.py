"""Bytes that may belong to personal data: compiled counts and conditions that the types share."""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

from gpu_curate.jit import U8, U64, njit
from gpu_curate.text.swar import ONES, at_most, count, equals

# ------------------------------------------------------------------------------------------------------- first glance

ZEROS, _COMMAS, _BRACKETS = ONES * U64(48), ONES * U64(44), ONES * U64(40)
BLOCK = 16  # words that are looked at closer, or not, together
MARGIN = 8 * BLOCK  # line ends before the first text and after the last: nothing has to ask whether the buffer goes on
AT, RUN, IBAN_START, QUAD, V6_START = range(5)  # kinds of candidates
CARD_START, CALLED, NORTH_AMERICAN_RUN = range(5, 8)  # what a run may be at the second glance


@njit(inline="always")
def is_digit(c: int) -> bool:
    return c >= 48 and c <= 57


@njit(inline="always")
def is_letter(c: int) -> bool:
    return ((c | 32) >= 97 and (c | 32) <= 122) or c >= 128


@njit(inline="always")
def is_hex(c: int) -> bool:
    return is_digit(c) or ((c | 32) >= 97 and (c | 32) <= 102)


@njit(inline="always")
def is_gap(c: int) -> bool:
    return c == 32 or c == 45 or c == 46 or c == 47 or c == 40 or c == 41


@njit(inline="always")
def put(out: NDArray[np.int64], n: int, kind: int, start: int, stop: int) -> int:
    """Write candidate `n`; return the next one's place."""
    out[n, 0], out[n, 1], out[n, 2] = kind, start, stop
    return n + 1


@njit(inline="always")
def count_digits(text: NDArray[np.uint8], start: int, stop: int) -> int:
    """How many of fewer than 256 bytes are digits: a sum of bytes."""
    digits = U8(0)
    for i in range(start, stop):
        digits = U8(digits + U8(U8(text[i] - U8(48)) <= U8(9)))
    return int(digits)


@njit
def glance_at(raw: NDArray[np.uint8], seen: NDArray[np.uint8]) -> None:
    """For each block of `raw`: 1 for an `@`, 2 if it may hold the end of a number, 4 of an IPv4, 8 of an IPv6 address.

    By how many digits (of two half blocks), dots after one and colons (of this block and the one before) there are, which
    most prose does not pass. The sums are of bytes, since a block is short, and the compiler knows its length: all of it is
    about a hundred instructions.
    """
    half = 4 * BLOCK
    seen[0] = digits_1 = dots_1 = colons_1 = 0
    for block in range(1, seen.size):
        text = raw[2 * half * block - 1 : 2 * half * (block + 1)]
        dots = colons = at_signs = U8(0)
        for i in range(2 * half):
            before, c = text[i], text[i + 1]
            dots = U8(dots + U8(U8(c == U8(46)) & U8(U8(before - U8(48)) <= U8(9))))
            colons = U8(colons + U8(c == U8(58)))
            at_signs = U8(at_signs | U8(c == U8(64)))
        first, second = count_digits(text, 1, half + 1), count_digits(text, half + 1, 2 * half + 1)
        number = (digits_1 + first >= 7) | (first + second >= 7)
        v4, v6 = dots + dots_1 >= 3, colons + colons_1 >= 2
        seen[block] = at_signs | number << 1 | v4 << 2 | v6 << 3
        digits_1, dots_1, colons_1 = second, int(dots), int(colons)


@njit
def digits_meet(text: NDArray[np.uint64]) -> bool:
    """Whether seven bytes of a run start with a digit, as seven digits within 17 bytes do."""
    some = run_1 = pair_1 = digit_1 = U64(0)
    for i in range(text.size):
        word = text[i]
        digit = at_most(word ^ ZEROS, 9)
        mark = at_most(word ^ _BRACKETS, 1) | (at_most(word ^ _COMMAS, 3) & ~equals(word, 44))  # () and -./
        run = digit | equals(word, 32) | mark
        pair = run & (run << U64(8) | run_1 >> U64(56))
        four = pair & (pair << U64(16) | pair_1 >> U64(48))
        some |= four & (pair << U64(32) | pair_1 >> U64(32)) & (digit << U64(48) | digit_1 >> U64(16))
        run_1, pair_1, digit_1 = run, pair, digit
    return some != U64(0)


@njit
def dots_meet(text: NDArray[np.uint64]) -> bool:
    """Whether the three dots of an IPv4 address, 15 bytes at most, each between digits, lie in three words."""
    some = digit_1 = dot_1 = dots_1 = pair_1 = U64(0)
    for i in range(text.size):
        digit, dot = at_most(text[i] ^ ZEROS, 9), equals(text[i], 46)
        dots = count(digit & (dot << U64(8) | dot_1 >> U64(56)) & (digit << U64(16) | digit_1 >> U64(48)))
        some |= U64(dots + pair_1 >= U64(3))
        pair_1 = dots + dots_1  # of this word and the one before
        digit_1, dot_1, dots_1 = digit, dot, dots
    return some != U64(0)


@njit
def colons_meet(text: NDArray[np.uint64]) -> bool:
    """Whether two colons meet, or the first three of an IPv6 address, 14 bytes at most, lie in three words."""
    some = colon_1 = colons_1 = pair_1 = U64(0)
    for i in range(text.size):
        colon = equals(text[i], 58)
        colons = count(colon)
        some |= U64(colons + pair_1 >= U64(3)) | colon & (colon << U64(8) | colon_1 >> U64(56))
        pair_1 = colons + colons_1
        colon_1, colons_1 = colon, colons
    return some != U64(0)


@njit(inline="always")
def may_join(before: int, after: int) -> bool:
    """What stands left and right of the `@` of an address."""
    local = is_letter(before) or is_digit(before) or before in (95, 37, 43, 39, 45)  # _%+'-
    return local and (is_letter(after) or is_digit(after))


# ------------------------------------------------------------------------------------------------------- second glance
#
# Conditions that a candidate meets if the patterns below find something there, maybe also if they do not: most never
# leave compiled code. They look at what the types before left of the text, as the patterns do.


@njit
def with_room(out: NDArray[np.int64], n: int) -> NDArray[np.int64]:
    """`out` for n rows, at most twice as many as it has."""
    return out if n <= len(out) else np.concatenate((out, np.empty_like(out)))


@njit(inline="always")
def _is_word(c: int) -> bool:
    return is_digit(c) or c == 95 or ((c | 32) >= 97 and (c | 32) <= 122)


@njit(inline="always")
def stands_left(c: int) -> bool:
    """`LEFT`: c may stand left of a finding."""
    return not (_is_word(c) or c == 46 or c == 45 or c == 43 or c == 37 or c == 64)


@njit(inline="always")
def stands_right(c: int, d: int) -> bool:
    """`RIGHT`: c and d after it may stand right of a finding."""
    if c == 46 or c == 45 or c == 43 or c == 37:
        return not (_is_word(d) or d == 64)
    return not (_is_word(c) or c == 64)


# What may not stand next to a finding, see the head. An e-mail address's own characters are among it, so that taking
# one finding out never frees another.
LEFT = rb"(?<![\w.\-+%@])"
RIGHT = rb"(?![\w@]|[.\-+%][\w@])"
right_of = re.compile(RIGHT)
