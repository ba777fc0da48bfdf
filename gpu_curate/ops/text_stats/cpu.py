"""CPU twin of `text_stats`: a document is read once in blocks of 64 bytes, then its words and lines are compared.

    scan     bit masks of a block → word bounds; words by class, counted by one addition whose carries run through the
             words; and events in their order: line ends, sentence ends, candidates for phrases
    hash     hash and length of every word
    n-grams  a table of the 2-grams, then n-grams only where the (n-1)-gram occurs twice or more: no other can repeat
    lines    tables of line and paragraph hashes

Vector loads reach PAD bytes beyond a document's end; the last documents of a buffer are copied to one that has them.

# N documents, K statistics
"""

from __future__ import annotations

import functools
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gpu_curate.document import TextColumn
from gpu_curate.jit import I64, U64, njit
from gpu_curate.ops.simd import BLOCK, as_input, borrowed
from gpu_curate.ops.text_stats import (
    NAMES,
    STOP_WORDS,
    character_classes,
    word_hash,
)
from gpu_curate.ops.text_stats.characters import (
    Table,
)
from gpu_curate.ops.text_stats.repeats import duplicates, hash_words, ngrams
from gpu_curate.ops.text_stats.rows import (
    CHARS,
    DUPLICATE_LINE_CHARS,
    DUPLICATE_LINES,
    DUPLICATE_PARAGRAPH_CHARS,
    DUPLICATE_PARAGRAPHS,
    STOP,
)
from gpu_curate.ops.text_stats.scan import scan

PAD = 2 * BLOCK + 2  # a block may start at the document's end; its loads reach 2 bytes further


@functools.cache
def _stop_slots(words: tuple[str, ...]) -> tuple[np.ndarray, np.ndarray, int, int]:
    """A table of the stop words' hashes, each in a slot of its own: hashes, place in `words`, multiplier m, shift s.

    Hash h is looked for at (h * m mod 2^64) >> s. Eight words fit into 16 slots.
    """
    hashes = [word_hash(word.encode()) for word in words]
    bits, m = 4, 1
    while len({(h * m & (1 << 64) - 1) >> (64 - bits) for h in hashes}) < len(hashes):
        m += 2
        if m > 2000:
            bits, m = bits + 1, 1
    slots, place = np.zeros(1 << bits, np.uint64), np.zeros(1 << bits, np.uint8)  # 0: the hash of no word but by chance
    for k, h in enumerate(hashes):
        slot = (h * m & (1 << 64) - 1) >> (64 - bits)
        slots[slot], place[slot] = h, k
    return slots, place, U64(m), U64(64 - bits)


Work: TypeAlias = tuple[NDArray[np.integer[Any]], ...]  # see `scratch`


def scratch(longest: int) -> Work:
    """What `documents` works in, for documents of up to `longest` bytes; what is not written to is never backed by memory.

    bounds, word, reach: of the words. first, other, where, count, rest, table, seen: of the n-grams. The next four: of lines
    and paragraphs. The last: of a block. Every word, and every line with a word, takes two bytes, but the last; write_bits writes up to 7 entries
    beyond. A table is at most half full, and a power of two.
    """
    most = longest // 2 + 1 + BLOCK
    word, reach, table, seen = (
        np.empty(most, np.uint64),
        np.empty(most, np.uint32),
        np.empty(4 * most, np.int32),
        np.empty(16 * most, np.uint8),
    )
    first, other, where, count, rest = (np.empty(most, np.int32) for _ in range(5))
    line_hash, part_hash = np.empty(most, np.uint64), np.empty(most, np.uint64)
    line_chars, part_chars = np.empty(most, np.int32), np.empty(most, np.int32)
    ngram_work = (word, reach, table, seen, first, other, where, count, rest)
    return (
        np.empty(2 * most, np.int32),
        *ngram_work,
        line_hash,
        line_chars,
        part_hash,
        part_chars,
        np.empty(BLOCK, np.uint64),
    )


@njit
def documents(
    chars: NDArray[np.uint8],
    offsets: NDArray[np.int64],
    stage1: Table,
    stage2: Table,
    out_NK: NDArray[np.int32],
    work: Work,
    slots: NDArray[np.uint64],
    places: NDArray[np.uint8],
    multiplier: int,
    shift: int,
) -> None:
    """Fill out_NK for every document of the column."""
    chars, offsets, stage1, stage2 = borrowed(chars), borrowed(offsets), borrowed(stage1), borrowed(stage2)
    out_NK, slots, places = borrowed(out_NK), borrowed(slots), borrowed(places)
    bounds, word, reach, table = borrowed(work[0]), borrowed(work[1]), borrowed(work[2]), borrowed(work[3])
    seen, first, other, where = borrowed(work[4]), borrowed(work[5]), borrowed(work[6]), borrowed(work[7])
    count, rest, line_hash, line_chars = borrowed(work[8]), borrowed(work[9]), borrowed(work[10]), borrowed(work[11])
    part_hash, part_chars, letters_to = borrowed(work[12]), borrowed(work[13]), borrowed(work[14])
    for d in range(len(offsets) - 1):
        start, end = offsets[d], offsets[d + 1]
        if start == end:
            out_NK[d] = 0
            continue
        words, lines, parts = scan(
            chars,
            start,
            end,
            stage1,
            stage2,
            out_NK,
            d,
            bounds,
            line_hash,
            line_chars,
            part_hash,
            part_chars,
            letters_to,
        )
        out_NK[d, STOP] = hash_words(chars, start, words, bounds, word, reach, slots, places, multiplier, shift)
        n_chars = I64(out_NK[d, CHARS])
        ngrams(word, reach, words, n_chars, out_NK, d, table, seen, first, other, where, count, rest)
        repeated, size = duplicates(line_hash, line_chars, lines, table)
        out_NK[d, DUPLICATE_LINES], out_NK[d, DUPLICATE_LINE_CHARS] = repeated, size
        repeated, size = duplicates(part_hash, part_chars, parts, table)
        out_NK[d, DUPLICATE_PARAGRAPHS], out_NK[d, DUPLICATE_PARAGRAPH_CHARS] = repeated, size


def text_stats(text: TextColumn, stop_words: tuple[str, ...] = STOP_WORDS) -> np.ndarray:
    """stats_KN: int32, in the order of NAMES. The contract is in the package."""
    n = len(text)
    stats_NK = np.empty((n, len(NAMES)), np.int32)
    offsets = text.offsets
    stop = int(offsets[-1])
    with_room = int(np.searchsorted(offsets[1:], text.chars.size - PAD, side="right"))
    tail_start = int(offsets[with_room])
    tail = np.zeros(stop - tail_start + PAD, np.uint8)
    tail[:-PAD] = text.chars[tail_start:stop]
    stage1, stage2 = (as_input(stage) for stage in character_classes())
    work = scratch(int((offsets[1:] - offsets[:-1]).max(initial=0)))
    slots, places, multiplier, shift = _stop_slots(stop_words)
    how = (as_input(slots), as_input(places), multiplier, shift)
    head_offsets, tail_offsets = as_input(offsets[: with_room + 1]), as_input(offsets[with_room:] - tail_start)
    documents(as_input(text.chars), head_offsets, stage1, stage2, stats_NK[:with_room], work, *how)
    documents(as_input(tail), tail_offsets, stage1, stage2, stats_NK[with_room:], work, *how)
    return np.ascontiguousarray(stats_NK.T)
