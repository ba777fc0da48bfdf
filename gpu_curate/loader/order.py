"""Orders of rows: the permutation of an epoch, random offsets, and rows that begin where documents do.

# T sequence length, D documents, R rows
"""

from __future__ import annotations

import abc
import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from gpu_curate.jit import njit

_MASK64 = (1 << 64) - 1
_BLOCK_ROWS = 4096  # whose shuffled places are computed at once
_ODD = np.uint64(0xBF58476D1CE4E5B9)

Array = np.ndarray[Any, np.dtype[Any]]


def splitmix64(x: int) -> int:
    """Steele, Lea, Flood 2014: one output for state x."""
    x = (x + 0x9E3779B97F4A7C15) & _MASK64
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK64
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK64
    return x ^ (x >> 31)


def permute(places: Array, count: int, key: int) -> Array:
    """Where each place of 0..count - 1 goes in the permutation of that range that `key` names.

    A Feistel network of six rounds over the smallest even number of bits that holds the range, walked until it lands inside
    (Black and Rogaway 2002): a bijection without a table.

    Args:
        places: uint64, each below count.
        key: 64 bits.
    """
    half = max((count - 1).bit_length() + 1, 2) // 2
    keys = np.array([splitmix64(key + r) for r in range(6)], np.uint64)
    out = np.empty(len(places), np.uint64)
    _permute(places.astype(np.uint64), np.uint64(count), np.uint64(half), keys, out)
    return out


@njit
def _permute(value_N: np.ndarray, count: np.uint64, half: np.uint64, keys: np.ndarray, out: np.ndarray) -> None:
    """Writes over value_N. Round after round over all values that are outside yet, so that loops are vectors."""
    mask = (np.uint64(1) << half) - np.uint64(1)
    place_N, outside = np.arange(len(value_N)), len(value_N)
    while outside:
        for k in keys:
            for i in range(outside):
                left, right = value_N[i] >> half, value_N[i] & mask
                mixed = (right + k) * _ODD  # wraps
                mixed ^= mixed >> np.uint64(29)
                mixed *= _ODD
                value_N[i] = (right << half) | (left ^ ((mixed >> np.uint64(32)) & mask))
        walking, outside = outside, 0
        for i in range(walking):
            value, place = value_N[i], place_N[i]
            if value < count:
                out[place] = value
            else:
                value_N[outside], place_N[outside] = value, place
                outside += 1


class RowOrder(abc.ABC):
    """Where the rows at the places of an epoch start in the stream, or which rows of a plan they are.

    A pure function of epoch and place. Places that follow each other are computed in blocks.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._block = functools.lru_cache(maxsize=8)(self._values_of_block)

    @abc.abstractmethod
    def at(self, epoch: int, place_B: Array) -> Array:
        """int64: the values at places (int64) of an epoch."""

    def range(self, epoch: int, first: int, last: int) -> Array:
        """int64: the values at places first..last - 1 of an epoch. A view: do not write to it."""
        block, begin = divmod(first, _BLOCK_ROWS)
        found = self._block(epoch, block)[begin : begin + last - first]
        while len(found) < last - first:
            block += 1
            found = np.concatenate([found, self._block(epoch, block)[: last - first - len(found)]])
        return found

    def _values_of_block(self, epoch: int, block: int) -> Array:
        return self.at(epoch, np.arange(block * _BLOCK_ROWS, min((block + 1) * _BLOCK_ROWS, self._count)))


class EpochOrder(RowOrder):
    """Every row once an epoch.

    Args:
        count: R, rows of an epoch.
        seed: of the permutation, another one every epoch; None: row r stands at place r.
        buffer: rows are permuted within blocks of so many that follow each other, as a shuffle buffer of that size would
            mix them; None: all with all.
        value: from numbers of rows to the values asked for; None: the numbers.
    """

    def __init__(
        self, count: int, seed: int | None, buffer: int | None = None, value: Callable[[Array], Array] | None = None
    ):
        super().__init__(count)
        self._seed, self._value = seed, value
        self._buffer = None if buffer is None or buffer >= count else buffer

    def at(self, epoch: int, place_B: Array) -> Array:
        row_B = self._rows(epoch, place_B)
        return row_B if self._value is None else self._value(row_B)

    def _rows(self, epoch: int, place_B: Array) -> Array:
        if self._seed is None:
            return place_B
        key = splitmix64(splitmix64(self._seed & _MASK64) + epoch)
        if self._buffer is None:
            return permute(place_B, self._count, key).astype(np.int64)
        out = np.empty(len(place_B), np.int64)
        block_B = place_B // self._buffer
        for block in np.unique(block_B).tolist():
            own, begin = block_B == block, block * self._buffer
            size = min(self._buffer, self._count - begin)
            out[own] = permute(place_B[own] - begin, size, splitmix64(key + block)).astype(np.int64) + begin
        return out


class RandomOffsets(RowOrder):
    """Starts drawn with replacement from 0..choices - 1: nanoGPT's way to take rows."""

    def __init__(self, count: int, seed: int, choices: int):
        super().__init__(count)
        self._seed, self._choices = seed, choices

    def at(self, epoch: int, place_B: Array) -> Array:
        key = (self._seed << 20) + epoch
        x = place_B.astype(np.uint64) + np.uint64(splitmix64(key & _MASK64))  # splitmix64, for arrays
        x = (x ^ (x >> np.uint64(30))) * _ODD
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return ((x ^ (x >> np.uint64(31))) % np.uint64(self._choices)).astype(np.int64)


@njit
def aligned_starts(bounds: np.ndarray, length: int, T: int) -> np.ndarray:
    """Starts of rows that begin where a document does, or go on with one that has at least T + 1 tokens left.

    bounds: int64 of D + 1, starts of the documents and the length of the stream.
    """
    starts = np.empty(length // T + 1, np.int64)
    count, position, d, D = 0, 0, 0, len(bounds) - 1
    while position + T + 1 <= length:
        starts[count] = position
        count += 1
        position += T
        while d + 1 < D and bounds[d + 1] <= position:
            d += 1
        if position != bounds[d] and bounds[d + 1] - position < T + 1:
            d += 1
            if d == D:
                break
            position = bounds[d]
    return starts[:count].copy()
