"""Words, n-grams, lines and paragraphs that repeat, by their hashes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gpu_curate.jit import I64, U32, U64, njit
from gpu_curate.ops.simd import load_u64, popcount64
from gpu_curate.ops.text_stats.characters import (
    HIGH_BITS,
    KA,
    MASK_0,
    MASK_1,
    ONE,
    STEP,
    ZERO,
    count_chars,
    hash_bytes,
    mix,
)
from gpu_curate.ops.text_stats.rows import (
    DUPLICATE_NGRAM,
    HAN_LETTERS,
    LONGEST_REPEATED_NGRAM,
    MAX_N,
    MAX_TOP_N,
    MIN_DUPLICATE_N,
    TOP_NGRAM,
)


@njit
def continuations_in(c: int) -> int:
    """How many of the 8 bytes are 10xxxxxx."""
    return popcount64(c & ~(c << ONE) & HIGH_BITS)


@njit
def hash_words(
    chars: NDArray[np.uint8],
    start: int,
    words: int,
    bounds: NDArray[np.int32],
    word: NDArray[np.uint64],
    reach: NDArray[np.uint32],
    slots: NDArray[np.uint64],
    places: NDArray[np.uint8],
    multiplier: int,
    shift: int,
) -> int:
    """Hash of every word, and the characters of the words up to it modulo 2^32. Returns how many stop words occur."""
    stop = ZERO
    total = U32(0)
    reach[0] = total
    for k in range(words):
        first, last = start + bounds[2 * k], start + bounds[2 * k + 1]
        size = last - first
        if size <= STEP:
            c0 = load_u64(chars, first) & MASK_0[size]
            c1 = load_u64(chars, first + 8) & MASK_1[size]
            h = mix(U64(size), c0, c1)
            total += U32(size) - U32(continuations_in(c0) + continuations_in(c1))
        else:
            h = hash_bytes(chars, first, last)
            total += U32(count_chars(chars, first, last))
        word[k] = h
        reach[k + 1] = total
        slot = (h * multiplier) >> shift
        stop |= U64(slots[slot] == h) << U64(places[slot])
    return I64(popcount64(stop))


@njit
def clear(table: NDArray[np.int32], entries: int) -> int:
    """Empty a table for up to `entries` keys, at most half full; returns how far to shift a 64-bit product down."""
    bits = 4
    while (1 << bits) < 2 * entries:
        bits += 1
    table[: 1 << bits] = 0
    return U64(64 - bits)


@njit
def duplicates(
    hashes: NDArray[np.uint64], chars: NDArray[np.int32], n: int, table: NDArray[np.int32]
) -> tuple[int, int]:
    """(how many of n hashes an equal one precedes, the sum of their characters)."""
    if n < 2:
        return I64(0), I64(0)
    shift = clear(table, n)
    last = (ONE << (U64(64) - shift)) - ONE
    count = total = I64(0)
    for k in range(n):
        slot = hashes[k] >> shift
        while True:
            other = table[slot]
            if other == 0:
                table[slot] = k + 1
                break
            if hashes[other - 1] == hashes[k]:
                count += 1
                total += I64(chars[k])
                break
            slot = (slot + ONE) & last
    return count, total


@njit
def likely_repeats(
    word: NDArray[np.uint64], words: int, slots: NDArray[np.int32], seen: NDArray[np.uint8], where: NDArray[np.int32]
) -> int:
    """List in `where` the 2-grams that share a slot of `seen` with another: all that occur twice, and one in eight others.

    Two passes without a branch; a table of the 2-grams themselves mispredicts at every other word.
    """
    bits = 6
    while (1 << bits) < 8 * words:
        bits += 1
    shift = U64(64 - bits)
    seen[: 1 << bits] = 0
    for i in range(words - 1):
        slot = I64((word[i] * KA + word[i + 1]) >> shift)
        slots[i] = slot
        seen[slot] += seen[slot] < 2
    found = 0
    for i in range(words - 1):
        where[found] = i
        found += seen[slots[i]] == 2
    return found


@njit
def match_ngrams(
    word: NDArray[np.uint64],
    n: int,
    first: NDArray[np.int32],
    where: NDArray[np.int32],
    candidates: int,
    other: NDArray[np.int32],
    count: NDArray[np.int32],
    rest: NDArray[np.int32],
) -> int:
    """Guess that an n-gram occurs first where its (n-1)-gram does, and check it; no branch depends on the text.

    other[i] = j: so guessed; count[j]: how many equal that of word j; rest: the i whose guess is wrong. Returns its length.
    """
    n_rest = 0
    for k in range(candidates):
        i = I64(where[k])
        j = I64(first[i])
        same = word[j + n - 1] == word[i + n - 1]
        other[i] = j
        count[j] = I64(count[j]) * (j < i) + same
        rest[n_rest] = i
        n_rest += 1 - same
    return n_rest


@njit
def match_rest(
    word: NDArray[np.uint64],
    n: int,
    first: NDArray[np.int32],
    rest: NDArray[np.int32],
    n_rest: int,
    table: NDArray[np.int32],
    other: NDArray[np.int32],
    count: NDArray[np.int32],
) -> None:
    """Find out where the n-grams of `rest` occur first, by a table; they equal none of those that were guessed right."""
    if n_rest == 0:
        return
    shift = clear(table, n_rest)
    last = (ONE << (U64(64) - shift)) - ONE
    for k in range(n_rest):
        i = I64(rest[k])
        # an n-gram is its first word (n = 2) or where its (n-1)-gram occurs first, and its last word
        head = word[i] if n == 2 else U64(first[i])
        tail = word[i + n - 1]
        slot = (head * KA + tail) >> shift
        while True:
            j = I64(table[slot]) - 1
            if j < 0:
                table[slot] = i + 1
                other[i] = i
                count[i] = 1
                break
            if word[j + n - 1] == tail and (word[j] if n == 2 else U64(first[j])) == head:
                other[i] = j
                count[j] += 1
                break
            slot = (slot + ONE) & last


@njit
def ngrams(
    word: NDArray[np.uint64],
    reach: NDArray[np.uint32],
    words: int,
    n_chars: int,
    out_NK: NDArray[np.int32],
    d: int,
    table: NDArray[np.int32],
    seen: NDArray[np.uint8],
    first: NDArray[np.int32],
    other: NDArray[np.int32],
    where: NDArray[np.int32],
    count: NDArray[np.int32],
    rest: NDArray[np.int32],
) -> None:
    """Fills the n-gram columns of out_NK[d].

    `where` lists in order the words where an n-gram starts that occurs twice or more; only there can an (n+1)-gram do so.
    first[i] is where the n-gram of word i occurs first, count[first[i]] how often.
    """
    for row in range(LONGEST_REPEATED_NGRAM, HAN_LETTERS):
        out_NK[d, row] = 0
    for n in range(2, min(MAX_TOP_N, words) + 1):  # until one repeats, the commonest is the first
        out_NK[d, TOP_NGRAM + n - 2] = I64(U32(reach[n] - reach[0])) + n - 1
    candidates = likely_repeats(word, words, other, seen, where)
    for n in range(2, MAX_N + 1):
        while candidates > 0 and where[candidates - 1] + n > words:
            candidates -= 1
        if n == 2:
            match_rest(word, n, first, where, candidates, table, other, count)
        else:
            n_rest = match_ngrams(word, n, first, where, candidates, other, count, rest)
            match_rest(word, n, first, rest, n_rest, table, other, count)
        starts = candidates
        candidates = 0
        best, best_at = I64(1), I64(-1)
        for k in range(starts):
            i = I64(where[k])
            times = I64(count[other[i]])
            where[candidates] = i
            candidates += times > 1
            if times > best:
                best, best_at = times, i
        if candidates == 0:
            return
        first, other = other, first
        out_NK[d, LONGEST_REPEATED_NGRAM] = n
        if n <= MAX_TOP_N:
            size = I64(U32(reach[best_at + n] - reach[best_at])) + n - 1
            out_NK[d, TOP_NGRAM + n - 2] = min(best * size, n_chars)
        if n >= MIN_DUPLICATE_N:
            total = resume = I64(0)
            for k in range(candidates):
                i = I64(where[k])
                if i >= resume:
                    if count[first[i]] < 0:  # the walk has stopped at an equal one before
                        total += I64(U32(reach[i + n] - reach[i]))
                        resume = i + n
                    else:
                        count[first[i]] = -1
            out_NK[d, DUPLICATE_NGRAM + n - MIN_DUPLICATE_N] = total
