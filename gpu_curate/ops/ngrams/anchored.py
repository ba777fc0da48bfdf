"""N-grams by anchors: of a document not every run of 13 words is looked up, but one run of 6 in 8.

Every n-gram of an index has `Anchors.words` + `Anchors.step` - 1 words or more, so it holds a run of `words` words that begins at a
word whose number is a multiple of `step`, and all such runs are among the anchors: none is missed. Around an anchor that is
found every n-gram that holds it is looked at, so what is found is what is there, and nothing else.

# A distinct anchors, G distinct n-grams of the index, W words
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gpu_curate.jit import I64, U64, njit
from gpu_curate.ops.mix import GOLDEN
from gpu_curate.ops.simd import fmix64
from gpu_curate.ops.words.cpu import CHUNK_WORDS, Work, chunk_words

K = U64(GOLDEN)


@njit
def anchors_among(
    hash_W: NDArray[np.uint64],
    anchor: int,
    count: int,
    step: int,
    anchor_words: int,
    anchor_bits: int,
    anchor_filter: NDArray[np.uint64],
    anchor_directory: NDArray[np.int64],
    anchor_G: NDArray[np.uint64],
    x: NDArray[np.uint64],
    at: NDArray[np.int64],
) -> int:
    """Which of the runs that begin at `anchor`, `anchor` + `step`, ... (`count` of them) are anchors: at[q] is the first word of one.

    Run by run inside the loop over words, so that the arithmetic is vectorised and no run waits for the one before; the filter's
    answer moves a counter instead of a branch, which one run in 16 would mispredict.
    Args:
        x, at: scratch of `count`.
    Returns:
        how many.
    """
    for k in range(count):
        x[k] = U64(anchor_words)
    for t in range(anchor_words):
        for k in range(count):
            x[k] = x[k] * K + hash_W[anchor + k * step + t]
    for k in range(count):
        x[k] = fmix64(x[k])
    passed = I64(0)
    for k in range(count):
        bit = x[k] >> U64(64 - anchor_bits)
        at[passed] = k
        passed += I64((anchor_filter[I64(bit >> U64(6))] >> (bit & U64(63))) & U64(1))
    found = I64(0)
    for q in range(passed):
        k = at[q]
        prefix = I64(x[k] >> U64(64 - anchor_bits + 4))
        for g in range(anchor_directory[prefix], anchor_directory[prefix + 1]):
            if anchor_G[g] == x[k]:
                at[found] = anchor + k * step
                found += 1
    return found


@njit
def is_in(
    x: int, filter_bits: int, bit_filter: NDArray[np.uint64], directory: NDArray[np.int64], gram_G: NDArray[np.uint64]
) -> int:
    """Place of a hash among the sorted ones; -1: it is none of them."""
    bit = x >> U64(64 - filter_bits)
    if not (bit_filter[I64(bit >> U64(6))] >> (bit & U64(63))) & U64(1):
        return I64(-1)
    prefix = I64(bit >> U64(4))
    for g in range(directory[prefix], directory[prefix + 1]):
        if gram_G[g] == x:
            return I64(g)
    return I64(-1)


@njit
def hash_run(hash_W: NDArray[np.uint64], first: int, width: int) -> int:
    h = U64(width)
    for t in range(width):
        h = h * K + hash_W[first + t]
    return fmix64(h)


@njit
def find_around(
    hash_W: NDArray[np.uint64],
    words: int,
    anchor: int,
    anchor_words: int,
    width_K: NDArray[np.int64],
    d: int,
    last_doc_G: NDArray[np.int64],
    gram_G: NDArray[np.uint64],
    filter_bits: int,
    bit_filter: NDArray[np.uint64],
    directory: NDArray[np.int64],
    doc: NDArray[np.int64],
    gram: NDArray[np.int64],
    hits: int,
) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
    """Add the n-grams of hash_W[:words] that hold the anchor to the hits of document d; returns doc, gram and how many."""
    for turn in range(width_K.size):
        width = width_K[turn]
        first = max(anchor + anchor_words - width, I64(0))
        for j in range(first, min(anchor, words - width) + 1):
            g = is_in(hash_run(hash_W, j, width), filter_bits, bit_filter, directory, gram_G)
            if g >= 0 and last_doc_G[g] != d:
                last_doc_G[g] = d
                if hits == doc.size:
                    doc = np.append(doc, np.empty_like(doc))
                    gram = np.append(gram, np.empty_like(gram))
                doc[hits] = d
                gram[hits] = g
                hits += 1
    return doc, gram, hits


@njit
def probe_anchored(
    chars: NDArray[np.uint8],
    offsets: NDArray[np.int64],
    work: Work,
    anchor_words: int,
    step: int,
    anchor_G: NDArray[np.uint64],
    anchor_bits: int,
    anchor_filter: NDArray[np.uint64],
    anchor_directory: NDArray[np.int64],
    width_K: NDArray[np.int64],
    gram_G: NDArray[np.uint64],
    filter_bits: int,
    bit_filter: NDArray[np.uint64],
    directory: NDArray[np.int64],
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(document, position in gram_G) of every hit, once a document."""
    doc = np.empty(1024, np.int64)
    gram = np.empty(1024, np.int64)
    hits = I64(0)
    last_doc_G = np.full(gram_G.size, -1, np.int64)
    longest = width_K[width_K.size - 1]
    # words that an n-gram around the next anchor may begin with, and those that wait for the words behind them
    hash_W = np.empty(2 * longest + step + CHUNK_WORDS, np.uint64)
    unweighted = np.empty(0, np.uint8)
    x, at = np.empty(hash_W.size // step + 1, np.uint64), np.empty(hash_W.size // step + 1, np.int64)
    for d in range(offsets.size - 1):
        words, anchor = I64(0), I64(0)  # words in hash_W, and where there the next anchor begins
        i, end, cut, h = offsets[d], offsets[d + 1], I64(0), U64(0)
        while i < end:
            i, count, cut, h = chunk_words(chars, i, end, cut, h, work, hash_W, unweighted, words)
            words += count
            # of an anchor all n-grams that hold it are looked at, so their words must be there, or the document's end
            last = words - (anchor_words if i == end else longest)
            count = max((last - anchor) // step + 1, I64(0))
            found = anchors_among(
                hash_W, anchor, count, step, anchor_words, anchor_bits, anchor_filter, anchor_directory, anchor_G, x, at
            )
            for q in range(found):
                doc, gram, hits = find_around(
                    hash_W, words, at[q], anchor_words, width_K, d, last_doc_G,
                    gram_G, filter_bits, bit_filter, directory, doc, gram, hits,
                )  # fmt: skip
            anchor += count * step
            first = max(min(anchor + anchor_words - longest, words), I64(0))
            words -= first
            anchor -= first
            for t in range(words):
                hash_W[t] = hash_W[first + t]
    return doc[:hits], gram[:hits]
