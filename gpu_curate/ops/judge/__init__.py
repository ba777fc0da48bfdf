"""Sums of learned weights over the words and word n-grams of a text: what the exact judge computes.

Definition, version 1 (CPU and GPU give the same integers; unsigned arithmetic wraps):

1. The words w_0 .. w_(W-1) of a text, and their 64-bit hashes, are those of `text_stats`: longest runs without SPACE, letter
   case and punctuation count. They are at hand where the other scores are made, so a judge costs a look into a table a feature.
2. A feature is a run of n words, 1 <= n <= ngrams <= 3. Its bucket: x = n; for each word x = x * 0x9E3779B97F4A7C15 + its hash;
   then the highest `bits` bits of x.
3. The sum is that of the weights of the buckets of all features, in 64 bits: at most 3 features a word and 2^15 a weight.
4. F = sum over n of max(W - n + 1, 0) features. The raw score is floor(4096 * sum / (F + prior)); `prior` features of weight 0
   pull a short text to the middle.

Integers add up the same in any order, so a score depends on the text and the model alone.

Source: hashed n-grams under a linear model: Joulin et al. 2016, arXiv:1607.01759; Weinberger et al. 2009, arXiv:0902.2206.
Deviates: integer weights, no embedding in between, one output.

# N documents, W words, J judges
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gpu_curate.document import Array, TextColumn
from gpu_curate.ops import twin

MAX_NGRAMS, MIN_BITS, MAX_BITS = 3, 10, 24
RAW_SHIFT = 12
PREFIX = "judge:"  # of a sum among the statistics of a text


@dataclass(frozen=True, eq=False)
class Tables:
    """The weights of J judges, as both twins read them. Host arrays; make one with `Tables.of`.

    Attributes:
        weights: int8 or int16, those of all judges back to back.
        begin_J: int64, where each judge's weights begin.
        bits_J: int32, log2 of how many it has.
        ngrams_J: int32, the longest run of words that it looks at.
    """

    weights: np.ndarray
    begin_J: np.ndarray
    bits_J: np.ndarray
    ngrams_J: np.ndarray

    @classmethod
    def of(cls, weights: Sequence[np.ndarray], ngrams: Sequence[int]) -> Tables:
        """Args: weights: per judge int8 or int16 of a power of two; int16 for all where one has it."""
        kind = np.int16 if any(w.dtype == np.int16 for w in weights) else np.int8
        bits = [len(w).bit_length() - 1 for w in weights]
        assert all(len(w) == 1 << b and MIN_BITS <= b <= MAX_BITS for w, b in zip(weights, bits, strict=True))
        whole = np.concatenate([np.zeros(0, kind), *(w.astype(kind) for w in weights)])
        begin = np.cumsum([0, *(len(w) for w in weights)])[:-1]
        return cls(whole, begin.astype(np.int64), np.array(bits, np.int32), np.array(ngrams, np.int32))

    def __len__(self) -> int:
        return len(self.begin_J)


def trial(seed: int = 1, bits: int = 12) -> Tables:
    """Two judges of drawn weights, for what compares or times the twins."""
    from gpu_curate.ops.mix import splitmix64

    drawn = [splitmix64(seed + j, 1 << (bits - j)).astype(np.int8) for j in range(2)]
    return Tables.of(drawn, [3, 2])


NONE = Tables(np.zeros(0, np.int8), np.zeros(0, np.int64), np.zeros(0, np.int32), np.zeros(0, np.int32))


def judge_sums(text: TextColumn, tables: Tables) -> tuple[Array, Array]:
    """The sums of J judges over N documents, without the other statistics.

    Args:
        text: N documents, any bytes.
    Returns:
        sum_JN: int64. words_N: int32. An empty document has zeros.
    Memory: as `text_stats`; on the device its time too, on the host a third less.
    """
    sum_JN, words_N = twin("text_stats", text.on_gpu).judge_sums(text, tables)
    return sum_JN, words_N


def features(words_N: np.ndarray, ngrams: int) -> np.ndarray:
    """int64 of N: how many features texts of so many words have."""
    words_N = words_N.astype(np.int64)
    found: np.ndarray = sum((np.maximum(words_N - n, 0) for n in range(1, ngrams)), words_N)
    return found


def raw_scores(sum_N: np.ndarray, words_N: np.ndarray, ngrams: int, prior: int) -> np.ndarray:
    """int64 of N: rule 4, on the host; 0 where both are 0."""
    count_N = features(words_N, ngrams) + prior
    raw_N: np.ndarray = (sum_N.astype(np.int64) << RAW_SHIFT) // np.maximum(count_N, 1)
    return raw_N
