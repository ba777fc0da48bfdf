"""Labelled texts, as training and evaluation see them.

# N texts, W words
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpu_curate.jit import njit
from gpu_curate.ops.judge.cpu import add_words
from gpu_curate.ops.simd import as_input


@njit
def _sums(
    hash_W: NDArray[np.uint64],
    offsets: NDArray[np.int64],
    rows: NDArray[np.int64],
    weights: NDArray[np.int8],
    bits: int,
    ngrams: int,
    sum_N: NDArray[np.int64],
) -> None:
    for k in range(rows.size):
        first, last = offsets[rows[k]], offsets[rows[k] + 1]
        sum_N[k] = add_words(hash_W[first:last], last - first, weights, 0, bits, ngrams)


@dataclass(frozen=True, eq=False)
class Labelled:
    """N texts as the training sees them.

    Attributes:
        hash_W: uint64, hashes of all words (`ops.text_stats`); text i has hash_W[offsets[i] : offsets[i + 1]].
        key_N: uint64, half of the content hash: order and folds.
        chars_N: int64, length in bytes: what a judge has to beat.
        value_N: float64: 0 and 1 of two classes, or numbers to learn.
    """

    hash_W: np.ndarray
    offsets: np.ndarray
    key_N: np.ndarray
    chars_N: np.ndarray
    value_N: np.ndarray

    def __len__(self) -> int:
        return len(self.value_N)

    @property
    def classes(self) -> bool:
        """True where the labels are 0 and 1 alone."""
        return bool(np.isin(self.value_N, (0.0, 1.0)).all())

    def sums(self, weights: np.ndarray, ngrams: int, rows: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        """sum_N and words_N of some texts under integer weights, as `ops.judge` makes them."""
        rows = np.arange(len(self)) if rows is None else rows
        sum_N = np.empty(len(rows), np.int64)
        bits = len(weights).bit_length() - 1
        _sums(as_input(self.hash_W), as_input(self.offsets), as_input(rows), as_input(weights), bits, ngrams, sum_N)
        words_N = np.diff(self.offsets)[rows]
        return sum_N, words_N
