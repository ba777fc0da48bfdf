"""GPU twin of `text_stats`: the order of launches.

    mark_documents, mark_lines, find_marks, rank_documents     where lines start
    read_lines        thread per line          all that needs no comparison
    hash_lines        thread per line          hashes of lines and of parts of paragraphs
    join_paragraphs   thread per line          hashes of paragraphs
    insert_items, count_duplicates             duplicate lines, duplicate paragraphs
    mark_spaces, rank_documents                where words start
    hash_words        warp per 1 KB            hashes and lengths of words
    judge_words       see ops/judge/gpu.py
    insert_ngrams, count_ngrams, keep_repeated, for n = 2..10: only n-grams whose first n - 1 words repeat go on
    weigh_best, walk_duplicates                thread per document

A line is read by one thread, and a word hashed by one: a line of 50 MB keeps its thread busy for seconds while the others
are long done.

# N documents, L lines, W words, G groups of 32 bytes, K statistics
"""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np

from gpu_curate.device.runtime import Device, Footprint, cuda
from gpu_curate.document import Array, TextColumn
from gpu_curate.ops.judge import NONE, Tables
from gpu_curate.ops.judge import gpu as judge
from gpu_curate.ops.text_stats import DUPLICATE_N, NAMES, STOP_WORDS, TOP_N, character_classes, word_hash
from gpu_curate.ops.words.gpu import GROUP, SPARE

# Masks 1.6; 86 bytes a line, of which prose has one in 150 bytes; 44 a word (hash, length, document, two heads, slots,
# times, two table slots, candidates), of which English has 0.17 a byte. At worst, one-letter words, 24 bytes a byte.
FOOTPRINT = Footprint(per_text_byte=1.6 + 86 / 150 + 44 * 0.17, per_document=4 * len(NAMES) + 60)
_tables: weakref.WeakKeyDictionary[Device, tuple[Array, Array]] = weakref.WeakKeyDictionary()


def defines(stop_words: tuple[str, ...]) -> tuple[str, ...]:
    """Macros of the kernels: rows, and hashes of the stop words as constants of the code."""
    hashes = ",".join(f"{word_hash(word.encode())}ull" for word in stop_words) or "0ull"
    rows = (f"C_{name.upper()}={row}" for row, name in enumerate(NAMES) if "_gram_chars" not in name)
    return (*rows, f"STOP_WORD_HASHES={hashes}")


DEFINES = defines(STOP_WORDS)


def text_stats(text: TextColumn, device: Device | None = None, stop_words: tuple[str, ...] = STOP_WORDS) -> Array:
    """stats_KN: int32, in the order of NAMES. The contract is in the package."""
    return judged_stats(text, device, stop_words)[0]


def judged_stats(
    text: TextColumn,
    device: Device | None = None,
    stop_words: tuple[str, ...] = STOP_WORDS,
    judges: Tables = NONE,
) -> tuple[Array, Array]:
    """stats_KN: int32, in the order of NAMES; sum_JN: int64, of the judges. The contracts are in the packages.

    Device memory: FOOTPRINT: 10 bytes a byte of English, at most 24 of any text, 60 and the result a document.
    """
    device = device or cuda()
    xp = device.xp
    stats_KN = xp.zeros((len(NAMES), len(text)), np.int32)
    if text.nbytes == 0:
        return stats_KN, xp.zeros((len(judges), len(text)), np.int64)
    mask = _Mask(text, device)
    _lines(text, mask, device, stats_KN)
    hash_W, chars_W, doc_W, word_offsets = _words(text, mask, device, stats_KN, stop_words)
    sum_JN = judge.sums(hash_W, doc_W, len(text), judges, device)
    _ngrams(device, hash_W, chars_W, doc_W, word_offsets, stats_KN)
    return stats_KN, sum_JN


def judge_sums(text: TextColumn, tables: Tables, device: Device | None = None) -> tuple[Array, Array]:
    """See `gpu_curate.ops.judge.judge_sums`."""
    stats_KN, sum_JN = judged_stats(text, device, judges=tables)
    return sum_JN, stats_KN[NAMES.index("words")]


def _launch(device: Device, kernel: str, n_threads: int, args: tuple[Any, ...]) -> None:
    device.launch("text_stats", kernel, n_threads, args, DEFINES)


class _Mask:
    """Bit masks over a text, as in ops/words: where they begin, and where documents start."""

    def __init__(self, text: TextColumn, device: Device):
        self.text, self.device = text, device
        base, end = int(text.offsets[0]), int(text.offsets[-1])
        head = (device.address(text.chars) + base) % GROUP
        self.groups = -(-(head + end - base) // GROUP)
        self.place = (np.int64(base - head), np.int64(base), np.int64(end), np.int64(self.groups))
        self.doc_starts = device.xp.zeros(self.groups + SPARE, np.uint32)
        args = (text.offsets, np.int64(len(text)), self.place[0], self.doc_starts)
        device.launch("words", "mark_documents", len(text), args)

    def ranks(self, starts: Array, counts: Array) -> tuple[Array, Array, int]:
        """Marks before each group, before each document, and in all."""
        xp = self.device.xp
        before, of_documents = xp.zeros(self.groups + 1, np.int64), xp.empty(len(self.text) + 1, np.int64)
        xp.cumsum(counts, dtype=np.int64, out=before[1:])
        total = int(before[-1])
        origin, _, end, _ = self.place
        args = (self.text.offsets, np.int64(len(self.text)), origin, end, starts, before, np.int64(total), of_documents)
        self.device.launch("words", "rank_documents", len(self.text) + 1, args)
        return before, of_documents, total


def _lines(text: TextColumn, mask: _Mask, device: Device, stats_KN: Array) -> None:
    """All rows but those of stop words and n-grams."""
    xp, n_docs, groups = device.xp, np.int64(len(text)), mask.groups
    starts, counts = xp.empty(groups, np.uint32), xp.empty(groups, np.uint8)
    _launch(device, "mark_lines", groups, (text.chars, mask.doc_starts, *mask.place, starts, counts))
    before, offsets, n = mask.ranks(starts, counts)
    start_L = xp.empty(n, np.int64)
    _launch(device, "find_marks", groups, (starts, before, np.int64(groups), mask.place[0], start_L))
    del starts, counts, before
    doc_L = xp.searchsorted(offsets[1:], xp.arange(n, dtype=np.int64), side="right")
    length_L = xp.empty(n, np.int64)
    length_L[:-1], length_L[-1] = start_L[1:] - start_L[:-1], int(text.offsets[-1]) - int(start_L[-1])
    order_L = xp.argsort(-length_L)  # the longest first: none is begun when all else is done
    del length_L
    lines = (text.offsets, n_docs, start_L, doc_L, order_L, np.int64(n), offsets)
    words_L, chars_L = xp.empty(n, np.int32), xp.empty(n, np.int32)
    first_word_N, last_word_N = xp.full(len(text), 2**63 - 1, np.uint64), xp.zeros(len(text), np.uint64)
    chars = (text.chars, np.int64(text.chars.size))
    results = (words_L, chars_L, first_word_N, last_word_N, stats_KN)
    _launch(device, "read_lines", n, (*chars, *_table(device), *lines, *results))
    hash_L, part_hash_L = xp.empty(n, np.uint64), xp.empty(n, np.uint64)
    part_chars_L, part_kind_L = xp.empty(n, np.int32), xp.empty(n, np.uint8)
    bounds = (words_L, first_word_N, last_word_N)
    parts = (part_hash_L, part_chars_L, part_kind_L)
    _launch(device, "hash_lines", n, (*chars, text.offsets, *lines[2:], *bounds, hash_L, *parts))

    chars_L[words_L == 0] = -1  # a blank line is no item
    _duplicates(device, hash_L, chars_L, doc_L, offsets, "duplicate_lines", stats_KN)
    place = (doc_L, np.int64(n), offsets, n_docs)
    _launch(
        device, "join_paragraphs", n, (*place, *parts, hash_L, chars_L, stats_KN)
    )  # hash_L, chars_L: now of paragraphs
    _duplicates(device, hash_L, chars_L, doc_L, offsets, "duplicate_paragraphs", stats_KN)


def _words(
    text: TextColumn, mask: _Mask, device: Device, stats_KN: Array, stop_words: tuple[str, ...]
) -> tuple[Array, Array, Array, Array]:
    """Hash, characters and document of every word; words before each document. Fills the row of stop words."""
    xp, groups, n_docs = device.xp, mask.groups, np.int64(len(text))
    spaces = xp.full(groups + SPARE, 2**32 - 1, np.uint32)
    starts, counts = xp.empty(groups, np.uint32), xp.empty(groups, np.uint8)
    classes = _table(device)
    _launch(device, "mark_spaces", groups, (text.chars, mask.doc_starts, *mask.place, *classes, spaces, starts, counts))
    before, offsets, n = mask.ranks(starts, counts)
    hash_W, chars_W, doc_W = xp.empty(n, np.uint64), xp.empty(n, np.uint32), xp.empty(n, np.int32)
    found_N = xp.zeros(len(text), np.uint32)
    chars = (text.chars, np.int64(text.chars.size), mask.doc_starts, mask.place[0], np.int64(groups))
    words = (spaces, starts, before, hash_W, chars_W, doc_W, found_N)
    device.launch("text_stats", "hash_words", groups, (*chars, text.offsets, n_docs, *words), defines(stop_words))
    for bit in range(len(stop_words)):
        stats_KN[NAMES.index("stop_words")] += (found_N >> np.uint32(bit) & np.uint32(1)).astype(np.int32)
    return hash_W, chars_W, doc_W, offsets


def _table(device: Device) -> tuple[Array, Array]:
    """The class table on the device, uploaded once."""
    if device not in _tables:
        stage1, stage2 = character_classes()
        _tables[device] = device.upload(stage1), device.upload(stage2)
    return _tables[device]


def _duplicates(
    device: Device, hashes: Array, chars: Array, docs: Array, offsets: Array, name: str, stats_KN: Array
) -> None:
    """Items that an equal one of their document precedes; those with chars < 0 are no items."""
    xp, n = device.xp, len(hashes)
    table, slots = xp.full(2 * n, 2**32 - 1, np.uint32), xp.empty(n, np.uint32)
    _launch(device, "insert_items", n, (hashes, chars, docs, np.int64(n), offsets, table, slots))
    args = (chars, docs, np.int64(n), offsets, table, slots, np.int32(NAMES.index(name)), np.int64(stats_KN.shape[1]))
    _launch(device, "count_duplicates", n, (*args, stats_KN))


def _ngrams(device: Device, words: Array, chars: Array, docs: Array, offsets: Array, stats_KN: Array) -> None:
    """Rows of the n-grams, from the hashes, lengths and documents of the words."""
    xp, n_words, n_docs = device.xp, len(words), stats_KN.shape[1]
    table, slots = xp.full(2 * n_words, 2**32 - 1, np.uint32), xp.empty(n_words, np.uint32)
    heads, new_heads = xp.empty(n_words, np.uint32), xp.empty(n_words, np.uint32)
    times, where = xp.empty(n_words, np.int32), None
    top_row = NAMES.index(f"top_{TOP_N[0]}_gram_chars")
    args = (offsets, np.int64(n_docs), chars, np.int32(TOP_N[-1]), np.int32(top_row), stats_KN)
    _launch(device, "start_ngrams", n_docs, args)
    for n in range(2, DUPLICATE_N[-1] + 1):
        count = n_words if where is None else len(where)
        if count == 0:
            return
        at = (docs, offsets, slots if where is None else where, np.int64(count), np.int32(n))  # n = 2 reads no `where`
        _launch(device, "insert_ngrams", count, (words, heads, *at, table, slots, times))
        _launch(device, "count_ngrams", count, (*at, table, slots, new_heads, times))
        repeated, best_N = xp.empty(count, np.uint8), xp.zeros(n_docs, np.uint64)
        _launch(device, "keep_repeated", count, (*at, table, slots, new_heads, times, repeated, best_N))
        where = xp.flatnonzero(repeated) if where is None else where[repeated != 0]
        heads, new_heads = new_heads, heads
        row = np.int32(top_row + n - TOP_N[0] if n in TOP_N else -1)
        _launch(device, "weigh_best", n_docs, (best_N, np.int64(n_docs), offsets, chars, np.int32(n), row, stats_KN))
        if n in DUPLICATE_N:
            row = np.int32(NAMES.index(f"duplicate_{n}_gram_chars"))
            args = (where, xp.searchsorted(where, offsets, side="left"), np.int64(n_docs), offsets, chars, heads)
            _launch(device, "walk_duplicates", n_docs, (*args, np.int32(n), row, times, stats_KN))
