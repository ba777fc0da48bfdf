"""Signatures and the n-grams of an index in one pass over the words of a text, on the CPU: words are hashed once for both.

What `ops.minhash.signatures` and `ops.ngrams.probe` give, bit for bit.

# N documents, H hashes, M hits
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpu_curate.document import TextColumn
from gpu_curate.jit import I64, U32, U64, njit
from gpu_curate.ops.minhash import EMPTY_ROW, MinHashSpec
from gpu_curate.ops.minhash.cpu import parameters_of, update
from gpu_curate.ops.ngrams import Anchors, NgramIndex
from gpu_curate.ops.ngrams.anchored import anchors_among, find_around
from gpu_curate.ops.ngrams.cpu import in_order
from gpu_curate.ops.simd import as_input
from gpu_curate.ops.words.cpu import CHUNK_WORDS, Work, chunk_words, scratch


@njit
def _sign_and_probe(
    chars: NDArray[np.uint8],
    offsets: NDArray[np.int64],
    work: Work,
    shingle: int,
    multiplier_H: NDArray[np.uint32],
    seed_H: NDArray[np.uint64],
    sig_NH: NDArray[np.uint32],
    n_shingles_N: NDArray[np.int64],
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
    """As `sign_documents` and `probe_anchored`, whose comments say why."""
    doc, gram, hits = np.empty(1024, np.int64), np.empty(1024, np.int64), I64(0)
    last_doc_G = np.full(gram_G.size, -1, np.int64)
    longest = width_K[width_K.size - 1]
    hash_W = np.empty(2 * longest + step + shingle + CHUNK_WORDS, np.uint64)
    unweighted = np.empty(0, np.uint8)
    x, at = np.empty(hash_W.size // step + 1, np.uint64), np.empty(hash_W.size // step + 1, np.int64)
    row = np.empty(multiplier_H.size + seed_H.size, np.uint32)
    for d in range(offsets.size - 1):
        row[:] = U32(EMPTY_ROW)
        total = I64(0)
        words, anchor, signed = I64(0), I64(0), I64(0)  # in hash_W: where the next anchor and the next shingle begin
        i, end, cut, h = offsets[d], offsets[d + 1], I64(0), U64(0)
        while i < end:
            i, count, cut, h = chunk_words(chars, i, end, cut, h, work, hash_W, unweighted, words)
            words += count
            fresh = words - signed - shingle + 1
            if fresh > 0:
                update(hash_W[signed:], fresh, shingle, multiplier_H, seed_H, row)
                total += fresh
                signed += fresh
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
            first = max(min(min(anchor + anchor_words - longest, words), signed), I64(0))
            words -= first
            anchor -= first
            signed -= first
            for t in range(words):
                hash_W[t] = hash_W[first + t]
        if total == 0 and words > 0:
            update(hash_W, I64(1), words, multiplier_H, seed_H, row)
            total = I64(1)
        n_shingles_N[d] = total
        for r in range(sig_NH.shape[1]):
            sig_NH[d, r] = row[r]
    return doc[:hits], gram[:hits]


def sign_and_probe(text: TextColumn, spec: MinHashSpec, index: NgramIndex, anchors: Anchors) -> tuple[Any, Any]:
    """What `signatures` and `probe` give.

    Args:
        text: N documents on the host.
        anchors: of the index.
    """
    multiplier_H, seed_H = parameters_of(spec)
    sig_NH, n_shingles_N = np.empty((len(text), spec.num_hashes), np.uint32), np.empty(len(text), np.int64)
    hits = _sign_and_probe(
        as_input(text.chars),
        as_input(text.offsets),
        scratch(),
        spec.shingle_words,
        multiplier_H,
        seed_H,
        sig_NH,
        n_shingles_N,
        anchors.words,
        anchors.step,
        anchors.gram_A,
        anchors.filter_bits,
        anchors.filter,
        anchors.directory,
        index.width_K,
        index.gram_G,
        index.filter_bits,
        index.filter,
        index.directory,
    )
    return (sig_NH, n_shingles_N), in_order(*hits)
