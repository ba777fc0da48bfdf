"""CPU twin of `text_stats`: a document is read once in blocks of 64 bytes, then its words and lines are compared.

    scan     bit masks of a block → word bounds; words by class, counted by one addition whose carries run through the
             words; and events in their order: line ends, sentence ends, candidates for phrases
    hash     hash and length of every word
    judges   sums of learned weights over them (ops/judge)
    n-grams  a table of the 2-grams, then n-grams only where the (n-1)-gram occurs twice or more: no other can repeat
    lines    tables of line and paragraph hashes

Vector loads reach PAD bytes beyond a document's end; the last documents of a buffer are copied to one that has them.

# N documents, K statistics
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gpu_curate.document import TextColumn
from gpu_curate.jit import I64, U64, njit
from gpu_curate.ops.judge import NONE, Tables
from gpu_curate.ops.judge.cpu import add_words
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
    weights: NDArray[np.int8],
    begin_J: NDArray[np.int64],
    bits_J: NDArray[np.int32],
    ngrams_J: NDArray[np.int32],
    sum_NJ: NDArray[np.int64],
) -> None:
    """Fill out_NK and sum_NJ for every document of the column."""
    weights, begin_J, bits_J, ngrams_J = borrowed(weights), borrowed(begin_J), borrowed(bits_J), borrowed(ngrams_J)
    sum_NJ = borrowed(sum_NJ)
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
            sum_NJ[d] = 0
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
        for j in range(len(begin_J)):
            sum_NJ[d, j] = add_words(word, words, weights, begin_J[j], I64(bits_J[j]), I64(ngrams_J[j]))
        n_chars = I64(out_NK[d, CHARS])
        ngrams(word, reach, words, n_chars, out_NK, d, table, seen, first, other, where, count, rest)
        repeated, size = duplicates(line_hash, line_chars, lines, table)
        out_NK[d, DUPLICATE_LINES], out_NK[d, DUPLICATE_LINE_CHARS] = repeated, size
        repeated, size = duplicates(part_hash, part_chars, parts, table)
        out_NK[d, DUPLICATE_PARAGRAPHS], out_NK[d, DUPLICATE_PARAGRAPH_CHARS] = repeated, size


@njit
def _words_of(
    chars: NDArray[np.uint8],
    start: int,
    end: int,
    stage1: Table,
    stage2: Table,
    row: NDArray[np.int32],
    work: Work,
    slots: NDArray[np.uint64],
    places: NDArray[np.uint8],
) -> int:
    """Find and hash the words of one document, into work[1]; returns how many. Nothing is counted of n-grams and lines."""
    if start >= end:
        return I64(0)
    bounds, word, reach, letters_to = borrowed(work[0]), borrowed(work[1]), borrowed(work[2]), borrowed(work[14])
    line_hash, line_chars = borrowed(work[10]), borrowed(work[11])
    part_hash, part_chars = borrowed(work[12]), borrowed(work[13])
    words, _, _ = scan(
        chars,
        start,
        end,
        stage1,
        stage2,
        row,
        0,
        bounds,
        line_hash,
        line_chars,
        part_hash,
        part_chars,
        letters_to,
    )
    hash_words(chars, start, words, bounds, word, reach, slots, places, U64(1), U64(60))
    return I64(words)


@njit
def _word_hashes(
    chars: NDArray[np.uint8],
    offsets: NDArray[np.int64],
    stage1: Table,
    stage2: Table,
    row: NDArray[np.int32],
    work: Work,
    slots: NDArray[np.uint64],
    places: NDArray[np.uint8],
    hash_W: NDArray[np.uint64],
    word_offsets: NDArray[np.int64],
) -> None:
    word, at = borrowed(work[1]), I64(0)
    for d in range(len(offsets) - 1):
        words = _words_of(chars, offsets[d], offsets[d + 1], stage1, stage2, row, work, slots, places)
        for k in range(words):
            hash_W[at + k] = word[k]
        at += words
        word_offsets[d + 1] = at


def word_hashes(text: TextColumn) -> tuple[np.ndarray, np.ndarray]:
    """hash_W uint64 and offsets int64 of N + 1: the words that the statistics count, document by document. On the host."""
    offsets = text.offsets - text.offsets[0]
    chars = np.zeros(text.nbytes + PAD, np.uint8)
    chars[: text.nbytes] = text.chars[int(text.offsets[0]) : int(text.offsets[-1])]
    stage1, stage2 = (as_input(stage) for stage in character_classes())
    work = scratch(int((offsets[1:] - offsets[:-1]).max(initial=0)))
    slots, places, _, _ = _stop_slots(())
    hash_W = np.empty(text.nbytes // 2 + len(text) + 1, np.uint64)
    word_offsets = np.zeros(len(text) + 1, np.int64)
    row = np.zeros((1, len(NAMES)), np.int32)
    tables = (as_input(slots), as_input(places))
    _word_hashes(as_input(chars), as_input(offsets), stage1, stage2, row, work, *tables, hash_W, word_offsets)
    return hash_W[: int(word_offsets[-1])].copy(), word_offsets


def _with_room(text: TextColumn) -> Iterator[tuple[np.ndarray, np.ndarray, slice]]:
    """chars, offsets and which documents they are: those that PAD bytes follow, then a copy of the last ones, so that some do."""
    offsets = text.offsets
    stop = int(offsets[-1])
    with_room = int(np.searchsorted(offsets[1:], text.chars.size - PAD, side="right"))
    yield as_input(text.chars), as_input(offsets[: with_room + 1]), slice(0, with_room)
    tail_start = int(offsets[with_room])
    tail = np.zeros(stop - tail_start + PAD, np.uint8)
    tail[:-PAD] = text.chars[tail_start:stop]
    yield as_input(tail), as_input(offsets[with_room:] - tail_start), slice(with_room, len(text))


def text_stats(text: TextColumn, stop_words: tuple[str, ...] = STOP_WORDS) -> np.ndarray:
    """stats_KN: int32, in the order of NAMES. The contract is in the package."""
    return judged_stats(text, stop_words)[0]


def judged_stats(
    text: TextColumn, stop_words: tuple[str, ...] = STOP_WORDS, judges: Tables = NONE
) -> tuple[np.ndarray, np.ndarray]:
    """stats_KN: int32, in the order of NAMES; sum_JN: int64, of the judges. The contracts are in the packages."""
    n = len(text)
    stats_NK, sum_NJ = np.empty((n, len(NAMES)), np.int32), np.empty((n, len(judges)), np.int64)
    stage1, stage2 = (as_input(stage) for stage in character_classes())
    work = scratch(int((text.offsets[1:] - text.offsets[:-1]).max(initial=0)))
    slots, places, multiplier, shift = _stop_slots(stop_words)
    how = (as_input(slots), as_input(places), multiplier, shift)
    weights, begin_J = as_input(judges.weights), as_input(judges.begin_J)
    tables = (weights, begin_J, as_input(judges.bits_J), as_input(judges.ngrams_J))
    for chars, offsets, own in _with_room(text):
        documents(chars, offsets, stage1, stage2, stats_NK[own], work, *how, *tables, sum_NJ[own])
    return np.ascontiguousarray(stats_NK.T), np.ascontiguousarray(sum_NJ.T)


@njit
def _judge(
    chars: NDArray[np.uint8],
    offsets: NDArray[np.int64],
    stage1: Table,
    stage2: Table,
    row: NDArray[np.int32],
    work: Work,
    slots: NDArray[np.uint64],
    places: NDArray[np.uint8],
    weights: NDArray[np.int8],
    begin_J: NDArray[np.int64],
    bits_J: NDArray[np.int32],
    ngrams_J: NDArray[np.int32],
    sum_NJ: NDArray[np.int64],
    words_N: NDArray[np.int32],
) -> None:
    """Fill sum_NJ and words_N: words are found and hashed, and nothing is counted of n-grams, lines and paragraphs."""
    chars, offsets, stage1, stage2 = borrowed(chars), borrowed(offsets), borrowed(stage1), borrowed(stage2)
    row, slots, places, weights = borrowed(row), borrowed(slots), borrowed(places), borrowed(weights)
    word = borrowed(work[1])
    for d in range(len(offsets) - 1):
        words = _words_of(chars, offsets[d], offsets[d + 1], stage1, stage2, row, work, slots, places)
        words_N[d] = words
        for j in range(len(begin_J)):
            sum_NJ[d, j] = add_words(word, words, weights, begin_J[j], I64(bits_J[j]), I64(ngrams_J[j]))


def judge_sums(text: TextColumn, tables: Tables) -> tuple[np.ndarray, np.ndarray]:
    """See `gpu_curate.ops.judge.judge_sums`."""
    sum_NJ, words_N = np.empty((len(text), len(tables)), np.int64), np.empty(len(text), np.int32)
    stage1, stage2 = (as_input(stage) for stage in character_classes())
    work = scratch(int((text.offsets[1:] - text.offsets[:-1]).max(initial=0)))
    slots, places, _, _ = _stop_slots(())
    row = np.zeros((1, len(NAMES)), np.int32)
    how = (stage1, stage2, row, work, as_input(slots), as_input(places))
    weights, begin_J = as_input(tables.weights), as_input(tables.begin_J)
    models = (weights, begin_J, as_input(tables.bits_J), as_input(tables.ngrams_J))
    for chars, offsets, own in _with_room(text):
        _judge(chars, offsets, *how, *models, sum_NJ[own], words_N[own])
    return np.ascontiguousarray(sum_NJ.T), words_N
