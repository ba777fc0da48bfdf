"""CPU twin of `ngrams`: documents stream through the word scratch; a bit filter turns almost every n-gram away.

Where all n-grams have many words (13 in English), not every run of a document is looked up: see `anchored`.

The filter has 16 bits an n-gram of the index or more, one of which is set: at most 6 % of foreign n-grams pass it. The
directory then leads to the few indexed n-grams with the same top bits. Both are addressed by the hash, which is uniform.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gpu_curate.document import TextColumn
from gpu_curate.jit import I64, U64, njit
from gpu_curate.ops.minhash.cpu import roll
from gpu_curate.ops.mix import GOLDEN
from gpu_curate.ops.ngrams import Anchors, NgramIndex
from gpu_curate.ops.ngrams.anchored import probe_anchored
from gpu_curate.ops.simd import as_input, fmix64
from gpu_curate.ops.words import MIN_WEIGHT, UNIT
from gpu_curate.ops.words.cpu import CHUNK_WORDS, Work, chunk_words, scratch, weighted_words

K = U64(GOLDEN)
MIN_FILTER_BITS = 10  # 128 bytes
MIN_ANCHORED = 8  # words that every n-gram has, for anchors to pay


def _powers(weight: int) -> np.ndarray:
    """K^j for every number of words j that an n-gram can have, and one more."""
    power = np.full(weight // MIN_WEIGHT + 3, GOLDEN, np.uint64)
    power[0] = 1
    return np.multiply.accumulate(power)


@njit
def roll_weighted(
    hash_W: NDArray[np.uint64],
    weight_W: NDArray[np.uint8],
    words: int,
    weight: int,
    power: NDArray[np.uint64],
    out: NDArray[np.uint64],
    width: NDArray[np.int32],
) -> int:
    """The n-grams of hash_W[:words] by weight: out[j] of the width[j] words from j on. Returns how many there are.

    Words enter until the run weighs enough, then its first word leaves: two multiplications a word, as in `roll`.
    """
    h, total, end = U64(0), I64(0), I64(0)
    for j in range(words):
        while total < weight and end < words:
            h = h * K + hash_W[end]
            total += I64(weight_W[end])
            end += 1
        if total < weight:
            return j  # what is left is too light, and so is every run from a later word
        width[j] = end - j
        out[j] = fmix64(h + U64(end - j) * power[end - j])
        h -= hash_W[j] * power[end - j - 1]
        total -= I64(weight_W[j])
    return words


@njit
def _item_grams(
    hash_W: NDArray[np.uint64],
    weight_W: NDArray[np.uint8],
    word_offsets: NDArray[np.int64],
    weight: int,
    whole_items: bool,
    min_unspaced: int,
    power: NDArray[np.uint64],
    gram: NDArray[np.uint64],
    item: NDArray[np.int64],
    seen: NDArray[np.bool_],
    seen_whole: NDArray[np.bool_],
) -> int:
    """Every n-gram of every item with its item, repeats kept; returns how many."""
    at = I64(0)
    width = np.empty(hash_W.size, np.int32)
    for k in range(word_offsets.size - 1):
        first, last = word_offsets[k], word_offsets[k + 1]
        count = roll_weighted(hash_W[first:], weight_W[first:], last - first, weight, power, gram[at:], width)
        for j in range(count):
            seen[width[j]] = True
        if count == 0 and last > first and whole_items:
            total, unspaced = I64(0), False
            for w in range(first, last):
                total += I64(weight_W[w])
                unspaced |= weight_W[w] < UNIT
            if not unspaced or total >= min_unspaced:
                roll(hash_W, first, I64(1), last - first, gram[at:])
                seen_whole[last - first] = True
                count = 1
        item[at : at + count] = k
        at += count
    return at


def build(items: TextColumn, n: int, whole_items: bool, min_unspaced_words: int) -> NgramIndex:
    """See `gpu_curate.ops.ngrams.NgramIndex.build`."""
    hash_W, weight_W, word_offsets = weighted_words(items)
    gram, item = np.empty(len(hash_W), np.uint64), np.empty(len(hash_W), np.int64)
    power = _powers(n * UNIT)
    seen, seen_whole = np.zeros(len(power), np.bool_), np.zeros(len(power), np.bool_)
    count = _item_grams(
        hash_W,
        weight_W,
        word_offsets,
        n * UNIT,
        whole_items,
        min_unspaced_words * UNIT,
        power,
        gram,
        item,
        seen,
        seen_whole,
    )
    order = np.lexsort((item[:count], gram[:count]))
    gram, item = gram[order], item[order]
    new_gram = np.ones(count, np.bool_)
    new_gram[1:] = gram[1:] != gram[:-1]
    new_member = new_gram.copy()
    new_member[1:] |= item[1:] != item[:-1]
    gram_G, item_E = gram[new_gram], item[new_member]
    item_offsets = np.append(np.flatnonzero(new_gram[new_member]), len(item_E)).astype(np.int64)
    filter_bits, filter_words, directory = filters(gram_G)
    width_K = np.flatnonzero(seen | seen_whole).astype(np.int64)
    item_grams_I = np.bincount(item_E, minlength=len(items)).astype(np.int32)
    return NgramIndex(
        gram_G=gram_G,
        item_offsets=item_offsets,
        item_E=item_E,
        item_grams_I=item_grams_I,
        width_K=width_K,
        whole_K=np.flatnonzero(seen_whole).astype(np.int64),
        weight=n * UNIT,
        filter_bits=filter_bits,
        filter=filter_words,
        directory=directory,
        anchors=_anchors(hash_W, word_offsets, item_grams_I > 0, int(width_K[0]) if len(width_K) else 0),
    )


@njit
def _anchor_grams(
    hash_W: NDArray[np.uint64],
    word_offsets: NDArray[np.int64],
    wanted_I: NDArray[np.bool_],
    width: int,
    out: NDArray[np.uint64],
) -> int:
    """Every run of `width` words of every wanted item; returns how many."""
    at = I64(0)
    for k in range(word_offsets.size - 1):
        count = word_offsets[k + 1] - word_offsets[k] - width + 1
        if wanted_I[k] and count > 0:
            roll(hash_W, word_offsets[k], count, width, out[at:])
            at += count
    return at


def _anchors(
    hash_W: NDArray[np.uint64], word_offsets: NDArray[np.int64], wanted_I: NDArray[np.bool_], shortest: int
) -> Anchors | None:
    """Args: shortest: words of the shortest n-gram."""
    if shortest < MIN_ANCHORED:
        return None
    words = shortest // 2
    gram = np.empty(len(hash_W), np.uint64)
    gram_A = np.unique(gram[: _anchor_grams(hash_W, word_offsets, wanted_I, words, gram)])
    return Anchors(words, shortest - words + 1, gram_A, *filters(gram_A))


def joined_anchors(anchors: list[Anchors]) -> Anchors | None:
    """Those of several indexes, all of one number of words; None where there are none."""
    if not anchors:
        return None
    gram_A = np.unique(np.concatenate([a.gram_A for a in anchors]))
    return Anchors(anchors[0].words, min(a.step for a in anchors), gram_A, *filters(gram_A))


def filters(gram_G: NDArray[np.uint64]) -> tuple[int, NDArray[np.uint64], NDArray[np.int64]]:
    """filter_bits, filter and directory of an `NgramIndex`, by its n-grams."""
    filter_bits = max((16 * max(len(gram_G), 1) - 1).bit_length(), MIN_FILTER_BITS)
    bit = (gram_G >> np.uint64(64 - filter_bits)).astype(np.int64)
    filter_words = np.zeros(1 << (filter_bits - 6), np.uint64)
    np.bitwise_or.at(filter_words, bit >> 6, np.uint64(1) << (bit & 63).astype(np.uint64))
    prefix = np.arange((1 << (filter_bits - 4)) + 1, dtype=np.int64)
    return filter_bits, filter_words, np.searchsorted(bit >> 4, prefix).astype(np.int64)


@njit
def _probe_documents(
    chars: NDArray[np.uint8],
    offsets: NDArray[np.int64],
    work: Work,
    width_K: NDArray[np.int64],
    weight: int,
    longest: int,
    power: NDArray[np.uint64],
    gram_G: NDArray[np.uint64],
    filter_bits: int,
    bit_filter: NDArray[np.uint64],
    directory: NDArray[np.int64],
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(document, position) of every hit; once a document, in order of first appearance.

    Args:
        width_K: runs of so many words are looked for.
        weight: runs that weigh so much are looked for, too; 0: they are not.
        longest: the most words that an n-gram of the index has.
    """
    doc = np.empty(1024, np.int64)
    gram = np.empty(1024, np.int64)
    hits = I64(0)
    last_doc_G = np.full(gram_G.size, -1, np.int64)  # the document that hit an n-gram last: it is reported once
    hash_W = np.empty(longest - 1 + CHUNK_WORDS, np.uint64)
    weight_W = np.empty(hash_W.size if weight else 0, np.uint8)
    x = np.empty(hash_W.size, np.uint64)
    words_of_x = np.empty(hash_W.size if weight else 0, np.int32)
    filter_shift = U64(64 - filter_bits)
    directory_shift = U64(64 - filter_bits + 4)
    for d in range(offsets.size - 1):
        kept = I64(0)  # words at the front of hash_W that earlier chunks have seen
        i, end, cut, h = offsets[d], offsets[d + 1], I64(0), U64(0)
        while i < end:
            i, count, cut, h = chunk_words(chars, i, end, cut, h, work, hash_W, weight_W, kept)
            words = kept + count
            for turn in range(width_K.size + (weight > 0)):
                if count == 0:
                    continue
                if (
                    turn == width_K.size
                ):  # from every word that is kept: the few that the last chunk had are found again
                    num = roll_weighted(hash_W, weight_W, words, weight, power, x, words_of_x)
                else:
                    width = width_K[turn]
                    first = max(kept - width + 1, I64(0))
                    num = words - first - width + 1
                    if num <= 0:
                        continue
                    roll(hash_W, first, num, width, x)
                for j in range(num):
                    bit = x[j] >> filter_shift
                    if not (bit_filter[I64(bit >> U64(6))] >> (bit & U64(63))) & U64(1):
                        continue
                    prefix = I64(x[j] >> directory_shift)
                    for g in range(directory[prefix], directory[prefix + 1]):
                        if gram_G[g] == x[j] and last_doc_G[g] != d:
                            last_doc_G[g] = d
                            if hits == doc.size:
                                doc = np.append(doc, np.empty_like(doc))
                                gram = np.append(gram, np.empty_like(gram))
                            doc[hits] = d
                            gram[hits] = g
                            hits += 1
            first = max(words - longest + 1, I64(0))  # a run that began earlier has more words than any n-gram
            kept = words - first
            for t in range(kept):
                hash_W[t] = hash_W[first + t]
            if weight:
                for t in range(kept):
                    weight_W[t] = weight_W[first + t]
    return doc[:hits], gram[:hits]


def probe(text: TextColumn, index: NgramIndex) -> tuple[np.ndarray, np.ndarray]:
    """See `gpu_curate.ops.ngrams.probe`."""
    if len(index.gram_G) == 0:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    anchors = index.anchors
    if anchors is not None:
        found = probe_anchored(
            as_input(text.chars),
            as_input(text.offsets),
            scratch(),
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
        return in_order(*found)
    # Where all n-grams that were weighed have one number of words (13, if the items are English), nothing need be weighed.
    weighed = len(index.width_K) > len(index.whole_K) + 1
    doc_M, gram_M = _probe_documents(
        as_input(text.chars),
        as_input(text.offsets),
        scratch(),
        index.whole_K if weighed else index.width_K,
        index.weight if weighed else 0,
        int(index.width_K[-1]),
        _powers(index.weight),
        index.gram_G,
        index.filter_bits,
        index.filter,
        index.directory,
    )
    return in_order(doc_M, gram_M)


def in_order(doc_M: NDArray[np.int64], gram_M: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    order = np.lexsort((gram_M, doc_M))
    return doc_M[order], gram_M[order]


@njit
def _cover(
    doc_M: NDArray[np.int64],
    gram_M: NDArray[np.int64],
    item_offsets: NDArray[np.int64],
    item_E: NDArray[np.int64],
    item_grams_I: NDArray[np.int32],
    coverage_N: NDArray[np.float32],
    item_N: NDArray[np.int64],
    hits_N: NDArray[np.int32],
) -> None:
    found_I = np.zeros(item_grams_I.size, np.int32)
    m = 0
    while m < doc_M.size:
        d = doc_M[m]
        start = m
        while m < doc_M.size and doc_M[m] == d:
            for e in range(item_offsets[gram_M[m]], item_offsets[gram_M[m] + 1]):
                found_I[item_E[e]] += 1
            m += 1
        best = I64(-1)
        for k in range(start, m):
            for e in range(item_offsets[gram_M[k]], item_offsets[gram_M[k] + 1]):
                item = item_E[e]
                if best < 0:
                    best = item
                # shares are compared as products of integers, so equal shares are equal
                ours, theirs = I64(found_I[item]) * item_grams_I[best], I64(found_I[best]) * item_grams_I[item]
                if ours > theirs or (ours == theirs and item < best):
                    best = item
        coverage_N[d] = found_I[best] / item_grams_I[best]
        item_N[d] = best
        hits_N[d] = m - start
        for k in range(start, m):
            for e in range(item_offsets[gram_M[k]], item_offsets[gram_M[k] + 1]):
                found_I[item_E[e]] = 0


def coverage(
    hits: tuple[np.ndarray, np.ndarray], index: NgramIndex, n_docs: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """See `gpu_curate.ops.ngrams.coverage`."""
    coverage_N = np.zeros(n_docs, np.float32)
    item_N = np.full(n_docs, -1, np.int64)
    hits_N = np.zeros(n_docs, np.int32)
    _cover(
        as_input(hits[0]),
        as_input(hits[1]),
        index.item_offsets,
        index.item_E,
        index.item_grams_I,
        coverage_N,
        item_N,
        hits_N,
    )
    return coverage_N, item_N, hits_N
