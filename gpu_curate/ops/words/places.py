"""Where the words of a text lie: what turns words that match into bytes to cut.

On the CPU alone, a code point at a time: only texts in which something was found are asked. The words, and so their hashes,
are those of `ops.words`, whose definition this follows step by step.

# N documents, W words of all documents
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpu_curate.document import TextColumn
from gpu_curate.jit import I64, U8, U64, njit
from gpu_curate.ops.simd import BLOCK, as_input
from gpu_curate.ops.words import SEPARATOR, SKIP, TABLE_LIMIT, UNSPACED, WORD, fold_table
from gpu_curate.ops.words.cpu import Table, hash_word


class WordPlaces(NamedTuple):
    """Words in reading order. Word w of document d is offsets[d] <= w < offsets[d + 1].

    Attributes:
        hash_W: uint64, as `word_hashes` gives them.
        start_W, end_W: int64, its bytes in its document: from its first WORD or UNSPACED code point to behind its last one.
        offsets: int64 of N + 1.
    """

    hash_W: NDArray[np.uint64]
    start_W: NDArray[np.int64]
    end_W: NDArray[np.int64]
    offsets: NDArray[np.int64]


@njit
def code_point(chars: NDArray[np.uint8], i: int, end: int, stage1: Table, stage2: Table) -> tuple[int, int, int]:
    """(bytes, class, folded code point) of what begins at chars[i]; an ill-formed byte is a SEPARATOR of one byte."""
    c = I64(chars[i])
    cp, size = I64(TABLE_LIMIT), I64(1)
    if c < 0x80:
        cp = c
    elif c >= 0xC2 and c < 0xE0 and i + 1 < end:
        a = I64(chars[i + 1])
        if (a & 0xC0) == 0x80:
            cp, size = (c & 0x1F) << 6 | a & 0x3F, I64(2)
    elif c >= 0xE0 and c < 0xF0 and i + 2 < end:
        a, b = I64(chars[i + 1]), I64(chars[i + 2])
        long = (c & 0x0F) << 12 | (a & 0x3F) << 6 | b & 0x3F
        if (a & 0xC0) == 0x80 and (b & 0xC0) == 0x80 and long >= 0x800:
            cp, size = long, I64(3)
    elif c >= 0xF0 and c < 0xF5 and i + 3 < end:
        a, b, d = I64(chars[i + 1]), I64(chars[i + 2]), I64(chars[i + 3])
        long = (c & 0x07) << 18 | (a & 0x3F) << 12 | (b & 0x3F) << 6 | d & 0x3F
        if (a & 0xC0) == 0x80 and (b & 0xC0) == 0x80 and (d & 0xC0) == 0x80 and long >= 0x10000:
            cp, size = long, I64(4)
    kind = I64(SEPARATOR)
    if cp < TABLE_LIMIT:
        entry = I64(stage2[I64(stage1[cp >> 8]) * 256 + (cp & 255)])
        kind = entry >> 24
        cp = (cp + entry) & 0xFFFFFF
    elif cp >= 0xE0000 and cp < 0xE1000:
        kind = I64(SKIP)
    return size, kind, cp


@njit
def encode(cp: int, out: NDArray[np.uint8], o: int) -> int:
    """Write a code point as UTF-8; returns where the next one goes."""
    if cp < 0x80:
        out[o] = U8(cp)
        return o + 1
    if cp < 0x800:
        out[o] = U8(0xC0 | cp >> 6)
        out[o + 1] = U8(0x80 | cp & 0x3F)
        return o + 2
    if cp < 0x10000:
        out[o] = U8(0xE0 | cp >> 12)
        out[o + 1] = U8(0x80 | cp >> 6 & 0x3F)
        out[o + 2] = U8(0x80 | cp & 0x3F)
        return o + 3
    out[o] = U8(0xF0 | cp >> 18)
    out[o + 1] = U8(0x80 | cp >> 12 & 0x3F)
    out[o + 2] = U8(0x80 | cp >> 6 & 0x3F)
    out[o + 3] = U8(0x80 | cp & 0x3F)
    return o + 4


@njit
def _places(
    chars: NDArray[np.uint8],
    offsets: NDArray[np.int64],
    stage1: Table,
    stage2: Table,
    hash_W: NDArray[np.uint64],
    start_W: NDArray[np.int64],
    end_W: NDArray[np.int64],
    word_offsets: NDArray[np.int64],
) -> None:
    folded = np.zeros(4096 + BLOCK, np.uint8)  # the word that is open; loads go up to a block beyond it
    at = I64(0)
    for d in range(offsets.size - 1):
        first, end = offsets[d], offsets[d + 1]
        i = first
        start, stop, o = I64(-1), I64(0), I64(0)
        while True:
            size, kind, cp = I64(1), I64(SEPARATOR), I64(0)  # behind the last byte: what is open ends
            if i < end:
                size, kind, cp = code_point(chars, i, end, stage1, stage2)
            if start >= 0 and (kind != WORD and kind != SKIP):
                hash_W[at] = hash_word(folded, I64(0), o, U64(0))
                start_W[at], end_W[at] = start - first, stop - first
                at += 1
                start = I64(-1)
            if i >= end:
                break
            if kind != SEPARATOR and kind != SKIP:
                if start < 0:
                    start, o = i, I64(0)
                if o + 4 + BLOCK > folded.size:
                    folded = np.append(folded, np.zeros(folded.size, np.uint8))
                o = encode(cp, folded, o)
                stop = i + size
                if kind == UNSPACED:
                    hash_W[at] = hash_word(folded, I64(0), o, U64(0))
                    start_W[at], end_W[at] = start - first, stop - first
                    at += 1
                    start = I64(-1)
            i += size
        word_offsets[d + 1] = at


def word_places(text: TextColumn) -> WordPlaces:
    """Hash and place of every word.

    Args:
        text: N documents on the host, any bytes.
    Memory: 24 bytes a word; address space for 12 bytes a byte of text.
    """
    room = text.nbytes + 1  # a word has one byte at least
    hash_W, start_W, end_W = np.empty(room, np.uint64), np.empty(room, np.int64), np.empty(room, np.int64)
    offsets = np.zeros(len(text) + 1, np.int64)
    _places(as_input(text.chars), as_input(text.offsets), *fold_table(), hash_W, start_W, end_W, offsets)
    count = int(offsets[-1])
    return WordPlaces(hash_W[:count].copy(), start_W[:count].copy(), end_W[:count].copy(), offsets)
