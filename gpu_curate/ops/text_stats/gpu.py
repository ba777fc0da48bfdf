"""GPU twin of `text_stats`: the order of launches.

    mark_documents, mark_lines, find_marks, rank_documents     where lines start
    read_lines        thread per line          all that needs no comparison
    hash_lines        thread per line          hashes of words and lines
    join_paragraphs   thread per line          hashes of paragraphs
    insert_items, count_duplicates             duplicate lines, duplicate paragraphs
    insert_ngrams, count_ngrams, keep_repeated, for n = 2..10: only n-grams whose first n - 1 words repeat go on
    weigh_best, walk_duplicates                thread per document

A line is read by one thread: a line of 50 MB keeps that thread busy for seconds while the others are long done.

# N documents, L lines, W words, G groups of 32 bytes, K statistics
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gpu_curate.document import TextColumn
from gpu_curate.gpu_runtime import Device, Footprint, cuda
from gpu_curate.ops.text_stats import DUPLICATE_N, NAMES, STOP_WORDS, TOP_N, character_classes, word_hash

GROUP = 32  # bytes of text per mask word
# Masks 0.66; 70 bytes a line, of which prose has one in 150 bytes; 52 a word (hash, length, document, two heads, slots,
# times, two table slots, candidates), of which English has 0.17 a byte. At worst, one-letter words, 26 bytes a byte.
FOOTPRINT = Footprint(per_text_byte=0.66 + 70 / 150 + 52 * 0.17, per_document=4 * len(NAMES) + 60)
DEFINES = tuple(f"C_{name.upper()}={row}" for row, name in enumerate(NAMES) if "_gram_chars" not in name)


def text_stats(text: TextColumn, device: Device | None = None) -> Any:
    """stats_KN: int32, in the order of NAMES. The contract is in the package.

    Device memory: 10 bytes a byte of English, at most 26 of any text, 208 a document.
    """
    device = device or cuda()
    xp, n_docs = device.xp, len(text)
    stats_KN = xp.zeros((len(NAMES), n_docs), np.int32)
    base, end = int(text.offsets[0]), int(text.offsets[-1])
    if base == end:
        return stats_KN
    line_start_L, line_offsets = _lines(text, base, end, device)
    n_lines = np.int64(len(line_start_L))
    line_doc_L = xp.searchsorted(line_offsets[1:], xp.arange(int(n_lines), dtype=np.int64), side="right")
    table = tuple(device.upload(stage) for stage in character_classes())
    chars = (text.chars, np.int64(text.chars.size), *table)
    line_words_L, line_chars_L = xp.empty(int(n_lines), np.int32), xp.empty(int(n_lines), np.int32)
    first_word_N, last_word_N = xp.full(n_docs, 2**63 - 1, np.uint64), xp.zeros(n_docs, np.uint64)
    args = (*chars, text.offsets, np.int64(n_docs), line_start_L, line_doc_L, n_lines, line_offsets)
    results = (line_words_L, line_chars_L, first_word_N, last_word_N, stats_KN)
    _launch(device, "read_lines", int(n_lines), (*args, *results))

    words_before = xp.zeros(int(n_lines) + 1, np.int64)
    xp.cumsum(line_words_L, dtype=np.int64, out=words_before[1:])
    n_words = int(words_before[-1])
    word_offsets = words_before[line_offsets]
    line_hash_L, part_hash_L = xp.empty(int(n_lines), np.uint64), xp.empty(int(n_lines), np.uint64)
    part_chars_L, part_kind_L = xp.empty(int(n_lines), np.int32), xp.empty(int(n_lines), np.uint8)
    word_hash_W, word_chars_W = xp.empty(n_words, np.uint64), xp.empty(n_words, np.uint32)
    word_doc_W, stop_found_N = xp.empty(n_words, np.int32), xp.zeros(n_docs, np.uint32)
    stop_words = device.upload(np.array([word_hash(w.encode()) for w in STOP_WORDS], np.uint64))
    args = (*chars, text.offsets, line_start_L, line_doc_L, n_lines, line_offsets, words_before, line_chars_L)
    args = (*args, first_word_N, last_word_N, stop_words, np.int32(len(STOP_WORDS)))
    results = (line_hash_L, part_hash_L, part_chars_L, part_kind_L, word_hash_W, word_chars_W, word_doc_W, stop_found_N)
    _launch(device, "hash_lines", int(n_lines), (*args, *results))
    for bit in range(len(STOP_WORDS)):
        stats_KN[NAMES.index("stop_words")] += (stop_found_N >> np.uint32(bit) & np.uint32(1)).astype(np.int32)

    line_chars_L[line_words_L == 0] = -1  # blank lines are no items
    _duplicates(device, line_hash_L, line_chars_L, line_doc_L, line_offsets, "duplicate_lines", stats_KN)
    paragraph_hash_L, paragraph_chars_L = xp.empty(int(n_lines), np.uint64), xp.empty(int(n_lines), np.int32)
    args = (line_doc_L, n_lines, line_offsets, np.int64(n_docs), part_hash_L, part_chars_L, part_kind_L)
    _launch(device, "join_paragraphs", int(n_lines), (*args, paragraph_hash_L, paragraph_chars_L, stats_KN))
    args = (paragraph_hash_L, paragraph_chars_L, line_doc_L, line_offsets, "duplicate_paragraphs")
    _duplicates(device, *args, stats_KN)
    _ngrams(device, word_hash_W, word_chars_W, word_doc_W, word_offsets, stats_KN)
    return stats_KN


def _launch(device: Device, kernel: str, n_threads: int, args: tuple[Any, ...]) -> None:
    device.launch("text_stats", kernel, n_threads, args, DEFINES)


def _lines(text: TextColumn, base: int, end: int, device: Device) -> tuple[Any, Any]:
    """Where lines start; and the first line of each document, and one more."""
    xp, n = device.xp, np.int64(len(text))
    head = (device.address(text.chars) + base) % GROUP
    origin, groups = np.int64(base - head), -(-(head + end - base) // GROUP)
    doc_starts = xp.zeros(groups + 1, np.uint32)
    device.launch("words", "mark_documents", len(text), (text.offsets, n, origin, doc_starts))
    starts, counts, before = xp.empty(groups, np.uint32), xp.empty(groups, np.uint8), xp.zeros(groups + 1, np.int64)
    place = (origin, np.int64(base), np.int64(end), np.int64(groups))
    _launch(device, "mark_lines", groups, (text.chars, doc_starts, *place, starts, counts))
    xp.cumsum(counts, dtype=np.int64, out=before[1:])
    n_lines = int(before[-1])
    line_start_L, line_offsets = xp.empty(n_lines, np.int64), xp.empty(len(text) + 1, np.int64)
    _launch(device, "find_marks", groups, (starts, before, np.int64(groups), origin, line_start_L))
    args = (text.offsets, n, origin, np.int64(end), starts, before, np.int64(n_lines), line_offsets)
    device.launch("words", "rank_documents", len(text) + 1, args)
    return line_start_L, line_offsets


def _duplicates(device: Device, hashes: Any, chars: Any, docs: Any, offsets: Any, name: str, stats_KN: Any) -> None:
    """Items that an equal one of their document precedes; those with chars < 0 are no items."""
    xp, n = device.xp, len(hashes)
    table, slots = xp.full(2 * n, 2**32 - 1, np.uint32), xp.empty(n, np.uint32)
    _launch(device, "insert_items", n, (hashes, chars, docs, np.int64(n), offsets, table, slots))
    args = (chars, docs, np.int64(n), offsets, table, slots, np.int32(NAMES.index(name)), np.int64(stats_KN.shape[1]))
    _launch(device, "count_duplicates", n, (*args, stats_KN))


def _ngrams(device: Device, words: Any, chars: Any, docs: Any, offsets: Any, stats_KN: Any) -> None:
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
