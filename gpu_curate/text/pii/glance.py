"""The first and the second look: where a pattern is worth trying at all."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gpu_curate.jit import U8, U64, njit
from gpu_curate.text.pii.card import may_be_card
from gpu_curate.text.pii.iban import may_be_iban
from gpu_curate.text.pii.ip import may_be_v4, may_be_v6
from gpu_curate.text.pii.labels import may_be_called
from gpu_curate.text.pii.marks import (
    AT,
    BLOCK,
    CALLED,
    CARD_START,
    IBAN_START,
    MARGIN,
    NORTH_AMERICAN_RUN,
    QUAD,
    RUN,
    V6_START,
    ZEROS,
    colons_meet,
    digits_meet,
    dots_meet,
    glance_at,
    is_digit,
    is_gap,
    is_hex,
    may_join,
    put,
    with_room,
)
from gpu_curate.text.pii.phone import may_hold_north_american
from gpu_curate.text.swar import at_most, count, equals


@njit
def join_texts(
    chars: NDArray[np.uint8], offsets: NDArray[np.int64], raw: NDArray[np.uint8], start_N: NDArray[np.int64]
) -> None:
    """Copy the texts of a column to `raw`, which is full of line ends: MARGIN of them first, two behind each."""
    out = MARGIN
    for n in range(start_N.size):
        start_N[n] = out
        for i in range(offsets[n], offsets[n + 1]):
            raw[out] = chars[i]
            out += 1
        out += 2


def candidates_of(raw: np.ndarray, emails: bool, numbers: bool, ip: bool) -> np.ndarray:
    """Kind, start and stop of what is worth a closer look, int64[N, 3], in order of start for each kind."""
    out = np.empty((max(1024, raw.size // 128), 3), np.int64)
    while (n := _scan(raw.view(np.uint64), raw, emails, numbers, ip, out)) < 0:
        out = np.empty((8 * len(out), 3), np.int64)
    return out[:n]


@njit
def _scan(
    text: NDArray[np.uint64], raw: NDArray[np.uint8], emails: bool, numbers: bool, ip: bool, out: NDArray[np.int64]
) -> int:
    """Write (kind, start, stop) of the candidates to `out`; return their number, -1: too many.

    `text` is `raw` in words. Run: digits with at most three of ` .-()/` between two, 7 of them within 17 bytes. Quad: four
    groups of digits, dots between. Only what is near enough digits or colons is looked at, from 64 bytes before, as far as
    an IBAN may reach, and the start of its run.
    One function: what one kind of candidate has read the next goes on from.
    """
    n = 0
    done = run_stop = MARGIN
    seen = np.empty(raw.size // (8 * BLOCK), np.uint8)
    glance_at(raw, seen)
    wanted = U8(1 * emails | 2 * numbers | 12 * ip)
    for b in range(seen.size):
        flags = seen[b] & wanted
        if flags == 0:
            continue
        block, high = BLOCK * b, BLOCK * (b + 1)
        if flags & 1:
            if n + 8 * BLOCK > out.shape[0]:
                return -1
            for i in range(8 * block, 8 * high):
                if raw[i] == 64 and may_join(raw[i - 1], raw[i + 1]):
                    n = put(out, n, AT, i, i + 1)
            if flags == 1:
                continue
        near_by = text[block - 2 : high]
        addresses = (flags & 4 and dots_meet(near_by)) or (flags & 8 and colons_meet(near_by))
        if not addresses and not (flags & 2 and digits_meet(near_by)):
            continue
        # an IPv4 address has 4 digits or more, an IPv6 address two colons; a number alone has 7 digits
        enough_digits = U64(4) if addresses else U64(7)
        digits_1 = digits_2 = colons_1 = colons_2 = U64(0)
        for w in range(block - 2, high):
            digits_0 = count(at_most(text[w] ^ ZEROS, 9))
            near = digits_0 + digits_1 + digits_2 >= enough_digits
            digits_2, digits_1 = digits_1, digits_0
            if addresses:
                colons = count(equals(text[w], 58))
                near = near or colons + colons_1 + colons_2 >= U64(2)
                colons_2, colons_1 = colons_1, colons
            if w < block or not near:
                continue
            low = max(done, 8 * w - 64)
            while low > done and (is_digit(raw[low - 1]) or is_gap(raw[low - 1])):
                low -= 1
            done = 8 * w + 8
            for i in range(low, done):
                c = raw[i]
                if c < 48 or c > 58:
                    continue
                if n + 3 > out.shape[0]:
                    return -1
                if c == 58:
                    if not ip:
                        continue
                    # four hexadecimal digits of which the first is 2 or 3 (2000::/3), or ::f (mapped IPv4)
                    allocated = raw[i - 4] == 50 or raw[i - 4] == 51
                    if allocated and is_hex(raw[i - 3]) and is_hex(raw[i - 2]) and is_hex(raw[i - 1]):
                        n = put(out, n, V6_START, i - 4, i + 1)
                    if raw[i + 1] == 58 and (raw[i + 2] | 32) == 102:
                        n = put(out, n, V6_START, i, i + 3)
                    continue
                if is_digit(raw[i - 1]):
                    continue
                if ip:
                    dots = 0
                    group = j = i
                    while j - group <= 3:
                        if raw[j] == 46 and j > group and dots < 3:
                            dots += 1
                            group = j + 1
                        elif not is_digit(raw[j]):
                            break
                        j += 1
                    if dots == 3 and j > group and j - group <= 3:
                        n = put(out, n, QUAD, i, j)
                if not numbers:
                    continue
                x, y = raw[i - 2], raw[i - 1]
                if x >= 65 and x <= 90 and y >= 65 and y <= 90 and is_digit(raw[i + 1]):
                    n = put(out, n, IBAN_START, i - 2, i + 2)
                if i < run_stop:
                    continue
                gap = 0
                dense = False
                recent = digits = 0  # bit k: a digit k bytes back, of 17; how many are set
                j = i
                while gap <= 3:
                    digits -= recent >> 16
                    recent = recent << 1 & 0x1FFFF
                    if is_digit(raw[j]):
                        recent |= 1
                        digits += 1
                        gap = 0
                        run_stop = j + 1
                        dense = dense or digits >= 7
                    elif is_gap(raw[j]):
                        gap += 1
                    else:
                        break
                    j += 1
                if dense:
                    n = put(out, n, RUN, i, run_stop)
    return n


@njit
def still_candidates(
    raw: NDArray[np.uint8],
    rows: NDArray[np.int64],
    edges: NDArray[np.int32],
    targets: NDArray[np.int32],
    chars: NDArray[np.uint8],
    ends: NDArray[np.uint8],
) -> NDArray[np.int64]:
    """Those of the candidates that a pattern is worth trying at, int64[N, 3] in the same order; a run as what it may be."""
    out = np.empty((len(rows) + 64, 3), np.int64)
    n = 0
    for k in range(len(rows)):
        candidate, start, stop = rows[k]
        out = with_room(out, n + 3)
        if candidate == RUN:
            for i in range(start, stop - 12):
                if may_be_card(raw, i):
                    n = put(out, n, CARD_START, i, stop)
                    out = with_room(out, n + 3)
            if may_be_called(raw, start, edges, targets, chars, ends):
                n = put(out, n, CALLED, start, stop)
            if may_hold_north_american(raw, start, stop):
                n = put(out, n, NORTH_AMERICAN_RUN, start, stop)
        elif (
            candidate == AT
            or (candidate == IBAN_START and may_be_iban(raw, start))
            or (candidate == QUAD and may_be_v4(raw, start, stop))
            or (candidate == V6_START and may_be_v6(raw, start))
        ):
            n = put(out, n, candidate, start, stop)
    return out[:n]
