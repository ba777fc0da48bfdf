"""Word n-grams that documents share with reference items (benchmark questions): contamination.

Words carry weights (`ops.words`, rule 5), so that an n-gram says as much in one script as in another: an English word
weighs 1, a Han character 1/2, a Thai code point 1/5, a Korean word 3/2.

1. An n-gram of n words is the shortest run of words from a given word on that weighs n or more: in English n words, in
   Chinese 2 n characters, in mixed text what adds up. It is hashed like a shingle of as many words (`ops.minhash`, rule 1).
2. An item that weighs n or more has one n-gram for each word from which such a run fits. A lighter one has none, or with
   `whole_items` one of all its words; but one that holds an unspaced script must weigh `min_unspaced_words` for that,
   since a Chinese word of two characters stands in every other text. An item without words has none.
3. A document has the n-grams of rule 1, and every run of as many words as a whole item of the index has. Equal hashes
   mean equal words, and equal words weigh the same: so to look at runs of all numbers of words that n-grams of the index
   have (GPU) finds the same as to weigh the document (CPU).

Source: 13-grams: Brown et al. 2020, arXiv:2005.14165, appendix C.
Deviates: coverage is per item (the share of one item's distinct n-grams that a document holds), no n-gram is discarded
as too frequent, and nothing is cut out of a document.

# I items, G distinct n-grams of all items, E (n-gram, item) memberships, N documents, M hits
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gpu_curate.document import Array, TextColumn, is_cupy
from gpu_curate.errors import ConfigError
from gpu_curate.ops import twin

MAX_NGRAM_WORDS = 256


@dataclass(frozen=True)
class Anchors:
    """Runs of `words` words of every n-gram of an index. A run of `step` + `words` - 1 words, so every n-gram, holds one that
    begins at a word whose number is a multiple of `step`: where none of those is an anchor, there is no n-gram.

    Attributes:
        words, step: numbers of words.
        gram_A: uint64, sorted, distinct: hashes of the runs.
        filter_bits, filter, directory: as in `NgramIndex`, of these.
    """

    words: int
    step: int
    gram_A: np.ndarray
    filter_bits: int
    filter: np.ndarray
    directory: np.ndarray


@dataclass(frozen=True)
class NgramIndex:
    """Distinct n-grams of a set of items and whom they belong to. Host arrays; build one with `NgramIndex.build`.

    Attributes:
        gram_G: uint64, sorted, distinct: the n-gram hashes.
        item_offsets: int64 of G + 1; n-gram g is in items item_E[item_offsets[g] : item_offsets[g + 1]].
        item_E: int64, increasing within an n-gram.
        item_grams_I: int32, distinct n-grams of each item (0: the item can never be hit).
        width_K: int64, sorted, distinct: numbers of words that n-grams of the index have.
        whole_K: int64, of width_K those of whole items.
        weight: what n-grams weigh at least, in the unit of `ops.words`.
        filter_bits: log2 of the size of the filter in bits.
        filter: uint64; bit (hash >> (64 - filter_bits)) is set for every n-gram, about 1 in 16 are set.
        directory: int64 of 2^(filter_bits - 4) + 1; the n-grams whose hash >> (64 - filter_bits + 4) is p are
            gram_G[directory[p] : directory[p + 1]].
        anchors: by which the CPU looks for them; None where they have too few words.
    """

    gram_G: np.ndarray
    item_offsets: np.ndarray
    item_E: np.ndarray
    item_grams_I: np.ndarray
    width_K: np.ndarray
    whole_K: np.ndarray
    weight: int
    filter_bits: int
    filter: np.ndarray
    directory: np.ndarray
    anchors: Anchors | None = None

    @classmethod
    def build(
        cls, items: TextColumn, n: int = 13, whole_items: bool = False, min_unspaced_words: int = 3
    ) -> NgramIndex:
        """Index the n-grams of items.

        Args:
            items: I texts on the host, any bytes.
            n: words per n-gram, 1..256; words of other scripts by their weight.
            whole_items: items that weigh less than n words count as one n-gram of all their words.
            min_unspaced_words: so many words an item in an unspaced script must weigh to count as a whole.
        Raises:
            ConfigError: n out of range.
        Memory: about 60 bytes an n-gram.
        """
        if not 1 <= n <= MAX_NGRAM_WORDS:
            raise ConfigError(f"ngram_words={n}: an n-gram has 1 to {MAX_NGRAM_WORDS} words")
        from gpu_curate.ops.ngrams import cpu

        return cpu.build(items, n, whole_items, min_unspaced_words)

    @classmethod
    def lookup(
        cls, gram_G: np.ndarray, width_K: np.ndarray, whole_K: np.ndarray, weight: int, anchors: Anchors | None
    ) -> NgramIndex:
        """An index of n-grams without their items, for `probe`. Args: gram_G: sorted, distinct."""
        from gpu_curate.ops.ngrams import cpu

        filters = cpu.filters(gram_G)
        offsets, item_E = np.zeros(len(gram_G) + 1, np.int64), np.zeros(0, np.int64)
        return cls(gram_G, offsets, item_E, np.zeros(0, np.int32), width_K, whole_K, weight, *filters, anchors)

    @property
    def num_items(self) -> int:
        return len(self.item_grams_I)

    @property
    def unfindable(self) -> int:
        """Items without an n-gram: too short, or without words."""
        return int((self.item_grams_I == 0).sum())


def probe(text: TextColumn, index: NgramIndex) -> tuple[Array, Array]:
    """Which n-grams of the index each document holds.

    Args:
        text: N documents, any bytes.
    Returns:
        doc_M, gram_M: int64, every (document, position in index.gram_G) once, sorted by document, then position.
    Memory: 16 bytes a hit, 8 an n-gram of the index, plus scratch that does not depend on the text.
    """
    doc_M, gram_M = twin("ngrams", text.on_gpu).probe(text, index)
    return doc_M, gram_M


def coverage(hits: tuple[Array, Array], index: NgramIndex, n_docs: int) -> tuple[Array, Array, Array]:
    """How much of its best item each document holds.

    Args:
        hits: (doc_M, gram_M) as `probe` returns them.
        n_docs: N.
    Returns:
        coverage_N: float32, 0..1, the largest share of one item's distinct n-grams found; 0.0 without a hit.
        item_N: int64, that item, the lowest number among equals; -1 without a hit.
        hits_N: int32, distinct n-grams of the index found in the document.
    """
    coverage_N, item_N, hits_N = twin("ngrams", is_cupy(hits[0])).coverage(hits, index, n_docs)
    return coverage_N, item_N, hits_N
