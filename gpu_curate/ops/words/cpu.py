"""CPU twin of `words`: a document streams through scratch of fixed size, CHUNK bytes of text at a time.

fold    text -> folded UTF-8: ASCII lowered 64 bytes at a time, the rest through the table; SEPARATOR becomes a
        space, UNSPACED gets one on either side, SKIP vanishes: a word byte is then [0-9a-z_] or >= 0x80
bounds  folded UTF-8 -> where words start and end, from bit masks of 64 bytes
hash    8-byte loads masked to the word's length
weigh   the script of a word's first code point, where weights are asked for
A word that the chunk's end cuts moves to the front of the next chunk: its last 1 to 16 bytes, and the hash so far.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gpu_curate.document import TextColumn
from gpu_curate.jit import I64, U8, U64, njit
from gpu_curate.ops.simd import BLOCK, as_input, ctz64, load_u64, lower64, popcount64, word_mask64
from gpu_curate.ops.words import SEPARATOR, SKIP, TABLE_LIMIT, UNIT, UNSPACED, WORD, fold_table, weight_table

CHUNK = 4096  # bytes of text: with the scratch that English fills, it stays in a 48 kB first-level cache
CHUNK_WORDS = CHUNK // 2 + 8  # two bytes a word at least, a cut word from before, one sequence beyond the end
STEP = 16  # bytes that the hash takes at once
USUAL = 24  # starts and ends of words in 64 bytes, rarely more (19 of English)

KA, KB, KC = U64(0x9E3779B97F4A7C15), U64(0xC2B2AE3D27D4EB4F), U64(0xD6E8FEB86659FD93)
HIGH_BITS = U64(0x8080808080808080)
SPACE = U8(0x20)
# masks of the first and the second 8 bytes of a step of 0..16 bytes
MASK_0 = np.array([(1 << 8 * min(n, 8)) - 1 for n in range(STEP + 1)], np.uint64)
MASK_1 = np.array([(1 << 8 * max(n - 8, 0)) - 1 for n in range(STEP + 1)], np.uint64)


Table: TypeAlias = NDArray[np.integer[Any]]
Work: TypeAlias = tuple[
    NDArray[np.uint8],
    NDArray[np.int32],
    NDArray[np.uint64],
    NDArray[np.int32],
    Table,
    Table,
    NDArray[np.uint8],
    NDArray[np.uint8],
]


def scratch() -> Work:
    """What `chunk_words` works with: 0.1 MB, whatever the text, the two stages of the table, and weights."""
    return (
        # folded bytes: at most 5/3 of the text (MAX_FOLD_GROWTH), a cut word of 16, one sequence beyond the chunk's end,
        # and one block that vector stores overrun
        np.zeros(2 * CHUNK + 2 * BLOCK, np.uint8),
        np.zeros(2 * CHUNK_WORDS + USUAL, np.int32),  # starts and ends of words; the unrolled loop overruns
        np.zeros((3, CHUNK_WORDS), np.uint64),  # first 8 bytes, next 8 bytes, length
        np.zeros(CHUNK_WORDS, np.int32),  # words longer than a step
        *fold_table(),
        weight_table(),
        np.zeros(1, np.uint8),  # weight of a word that the chunk's end cuts
    )


@njit
def fold(
    chars: NDArray[np.uint8],
    i: int,
    stop: int,
    end: int,
    folded: NDArray[np.uint8],
    o: int,
    stage1: Table,
    stage2: Table,
) -> tuple[int, int]:
    """Fold chars[i:stop] into folded[o:]; a sequence that starts before `stop` may read on to `end`. Returns (i, o).

    One function: a loop over bytes whose state stays in registers, the hottest one of all.
    """
    safe = I64(chars.size) - BLOCK  # a vector load from here on would leave the buffer
    while i < stop:
        while i <= safe:
            high = lower64(chars, i, folded, o)
            if high == U64(0) and stop - i >= BLOCK:  # a branch: the next load need not wait for arithmetic on this one
                i += BLOCK
                o += BLOCK
                continue
            run = min(I64(ctz64(high)), stop - i)  # up to 63 bytes beyond `stop` were read and count for nothing
            i += run
            o += run
            break
        while i < stop:  # code points one by one, until 8 bytes in a row are ASCII
            c = I64(chars[i])
            if c < 0x80:
                if i <= safe and (load_u64(chars, i) & HIGH_BITS) == U64(0):
                    break
                if c >= 65 and c <= 90:
                    c |= 32
                folded[o] = U8(c)
                i += 1
                o += 1
                continue
            cp = I64(TABLE_LIMIT)  # a SEPARATOR, unless a well-formed sequence follows
            size = 1
            if c >= 0xC2 and c < 0xE0 and i + 1 < end:
                a = I64(chars[i + 1])
                if (a & 0xC0) == 0x80:
                    cp = (c & 0x1F) << 6 | a & 0x3F
                    size = 2
            elif c >= 0xE0 and c < 0xF0 and i + 2 < end:
                a, b = I64(chars[i + 1]), I64(chars[i + 2])
                if (a & 0xC0) == 0x80 and (b & 0xC0) == 0x80:
                    long = (c & 0x0F) << 12 | (a & 0x3F) << 6 | b & 0x3F
                    if long >= 0x800:  # surrogates are SEPARATOR in the table
                        cp = long
                        size = 3
            elif c >= 0xF0 and c < 0xF5 and i + 3 < end:
                a, b, d = I64(chars[i + 1]), I64(chars[i + 2]), I64(chars[i + 3])
                if (a & 0xC0) == 0x80 and (b & 0xC0) == 0x80 and (d & 0xC0) == 0x80:
                    long = (c & 0x07) << 18 | (a & 0x3F) << 12 | (b & 0x3F) << 6 | d & 0x3F
                    if long >= 0x10000:  # above U+10FFFF is SEPARATOR like everything outside the table
                        cp = long
                        size = 4
            i += size
            kind = I64(SEPARATOR)
            if cp < TABLE_LIMIT:
                entry = I64(stage2[I64(stage1[cp >> 8]) * 256 + (cp & 255)])
                kind = entry >> 24
                cp = (cp + entry) & 0xFFFFFF
            elif cp >= 0xE0000 and cp < 0xE1000:
                kind = I64(SKIP)
            if kind == SKIP:
                continue
            if kind != WORD:
                folded[o] = SPACE
                o += 1
                if kind == SEPARATOR:
                    continue
            if cp < 0x80:
                folded[o] = U8(cp)
                o += 1
            elif cp < 0x800:
                folded[o] = U8(0xC0 | cp >> 6)
                folded[o + 1] = U8(0x80 | cp & 0x3F)
                o += 2
            elif cp < 0x10000:
                folded[o] = U8(0xE0 | cp >> 12)
                folded[o + 1] = U8(0x80 | cp >> 6 & 0x3F)
                folded[o + 2] = U8(0x80 | cp & 0x3F)
                o += 3
            else:
                folded[o] = U8(0xF0 | cp >> 18)
                folded[o + 1] = U8(0x80 | cp >> 12 & 0x3F)
                folded[o + 2] = U8(0x80 | cp >> 6 & 0x3F)
                folded[o + 3] = U8(0x80 | cp & 0x3F)
                o += 4
            if kind == UNSPACED:
                folded[o] = SPACE
                o += 1
    return i, o


@njit
def bounds(folded: NDArray[np.uint8], n: int, position: NDArray[np.int32]) -> int:
    """Write start, end, start, end ... of the words of folded[:n], returns how many; a word that reaches n has no end."""
    count = I64(0)
    carry = U64(0)
    for i in range(0, n, BLOCK):
        word = word_mask64(folded, i)
        if n - i < BLOCK:
            inside = (U64(1) << U64(n - i)) - U64(1)
            word &= inside
            change = (word ^ (word << U64(1) | carry)) & inside  # the text ends here, its last word need not
        else:
            change = word ^ (word << U64(1) | carry)
        carry = word >> U64(BLOCK - 1)
        more = I64(popcount64(change))
        at = count
        while True:
            for _ in range(USUAL):  # always as many, so that there is little to mispredict; the surplus is overwritten
                position[at] = i + I64(ctz64(change))
                change &= change - U64(1)
                at += 1
            if at >= count + more:
                break
        count += more
    return count


@njit
def mix_step(c0: int, c1: int) -> int:
    u = c0 * KA
    u ^= u >> U64(32)
    v = c1 * KB
    v ^= v >> U64(29)
    h = (u + v) * KC
    return h ^ (h >> U64(32))


@njit
def hash_word(folded: NDArray[np.uint8], start: int, stop: int, h: int) -> int:
    """Hash of folded[start:stop], which continues a word whose steps so far gave h."""
    while start < stop:
        n = min(stop - start, I64(STEP))
        h = mix_step((load_u64(folded, start) & MASK_0[n]) ^ h, load_u64(folded, start + 8) & MASK_1[n])
        start += STEP
    return h


@njit
def hash_words(
    folded: NDArray[np.uint8],
    position: NDArray[np.int32],
    count: int,
    step: NDArray[np.uint64],
    long_words: NDArray[np.int32],
    hash_W: NDArray[np.uint64],
    at: int,
) -> None:
    """hash_W[at + k] of words k = 0..count - 1. Loads first, then arithmetic, which is vectorised; few words are longer."""
    num_long = 0
    for k in range(count):
        start = I64(position[2 * k])
        n = I64(position[2 * k + 1]) - start
        step[0, k] = load_u64(folded, start)
        step[1, k] = load_u64(folded, start + 8)
        step[2, k] = U64(n)
        long_words[num_long] = k
        num_long += n > STEP
    for k in range(count):
        n = step[2, k]
        bits_0, bits_1 = min(n, U64(8)) << U64(2), (min(max(n, U64(8)), U64(16)) - U64(8)) << U64(2)
        mask_0 = (U64(1) << bits_0 << bits_0) - U64(1)  # 8 n bits: in two shifts, as 64 at once are not defined
        mask_1 = (U64(1) << bits_1 << bits_1) - U64(1)
        hash_W[at + k] = mix_step(step[0, k] & mask_0, step[1, k] & mask_1)
    for q in range(num_long):
        k = long_words[q]
        start = I64(position[2 * k])
        hash_W[at + k] = hash_word(folded, start + STEP, I64(position[2 * k + 1]), hash_W[at + k])


@njit
def weigh_word(folded: NDArray[np.uint8], start: int, table: NDArray[np.uint8]) -> int:
    """Weight of the word whose first code point is at folded[start]. Scripts below U+0800 have the usual one."""
    lead = I64(folded[start])
    if lead < 0xE0:
        return U8(UNIT)
    row = (lead & 0x0F) << 6 | I64(folded[start + 1]) & 0x3F  # the code point without its last 6 bits
    last = I64(folded[start + 2]) & 0x3F
    if lead >= 0xF0:
        row = (lead & 0x07) << 12 | (I64(folded[start + 1]) & 0x3F) << 6 | last
        last = I64(folded[start + 3]) & 0x3F
    weight: int = table[row << 2 | last >> 4]
    return weight


@njit
def chunk_words(
    chars: NDArray[np.uint8],
    i: int,
    end: int,
    cut: int,
    h: int,
    work: Work,
    hash_W: NDArray[np.uint64],
    weight_W: NDArray[np.uint8],
    at: int,
) -> tuple[int, int, int, int]:
    """Hash the words that end in the next CHUNK bytes of a document.

    Args:
        i, end: what is left of the document: chars[i:end], not empty.
        cut, h: bytes of a cut word at the front of the folded scratch (0..16) and its hash so far; 0, 0 at first.
        work: `scratch()`.
        hash_W, at: where word hashes go: up to CHUNK_WORDS from hash_W[at] on.
        weight_W: where weights go, likewise; none are made for an empty array.
    Returns:
        i, number of words, cut, h: as above, for the next call. At the document's end nothing is cut.
    """
    folded, position, step, long_words, stage1, stage2, weights, cut_weight = work
    i, n = fold(chars, i, min(i + CHUNK, end), end, folded, cut, stage1, stage2)
    num_bounds = bounds(folded, n, position)
    open_word = num_bounds & 1
    if open_word and i == end:
        position[num_bounds] = n
        num_bounds += 1
        open_word = 0
    count = num_bounds >> 1
    hash_words(folded, position, count, step, long_words, hash_W, at)
    if h != U64(0) and count > 0:  # the first word began in an earlier chunk
        hash_W[at] = hash_word(folded, I64(0), I64(position[1]), h)
    if weight_W.size:
        for k in range(count):
            weight_W[at + k] = weigh_word(folded, I64(position[2 * k]), weights)
        if h != U64(0) and count > 0:
            weight_W[at] = cut_weight[0]
        if open_word and (h == U64(0) or count > 0):
            cut_weight[0] = weigh_word(folded, I64(position[2 * count]), weights)
    if not open_word:
        return i, count, I64(0), U64(0)
    start = I64(position[2 * count])
    if start > 0:
        h = U64(0)
    while n - start > STEP:
        h = hash_word(folded, start, start + STEP, h)
        start += STEP
    for k in range(n - start):
        folded[k] = folded[start + k]
    return i, count, n - start, h


@njit
def hash_documents(
    chars: NDArray[np.uint8],
    offsets: NDArray[np.int64],
    work: Work,
    hash_W: NDArray[np.uint64],
    weight_W: NDArray[np.uint8],
    word_offsets: NDArray[np.int64],
) -> None:
    at = I64(0)
    for d in range(offsets.size - 1):
        i, end, cut, h = offsets[d], offsets[d + 1], I64(0), U64(0)
        while i < end:
            i, count, cut, h = chunk_words(chars, i, end, cut, h, work, hash_W, weight_W, at)
            at += count
        word_offsets[d + 1] = at


def word_hashes(text: TextColumn) -> tuple[np.ndarray, np.ndarray]:
    """See `gpu_curate.ops.words.word_hashes`."""
    hash_W, _, offsets = _words(text, 0)
    return hash_W, offsets


def weighted_words(text: TextColumn) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(hash_W, weight_W uint8, offsets): `word_hashes`, and the weight of every word."""
    return _words(text, 1)


def _words(text: TextColumn, weighted: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    # A word and its separator take two bytes. Address space for as many is reserved, 4 bytes a byte of text; what no hash
    # is written to costs no memory and is given back.
    room = (text.nbytes + len(text)) // 2 + CHUNK_WORDS
    hash_W, weight_W = np.empty(room, np.uint64), np.empty(room * weighted, np.uint8)
    offsets = np.zeros(len(text) + 1, np.int64)
    hash_documents(as_input(text.chars), as_input(text.offsets), scratch(), hash_W, weight_W, offsets)
    hash_W.resize(int(offsets[-1]), refcheck=False)
    weight_W.resize(int(offsets[-1]) * weighted, refcheck=False)
    return hash_W, weight_W, offsets
