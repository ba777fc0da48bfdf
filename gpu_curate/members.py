"""Some of the numbers 0..N - 1, numbered anew 0..M - 1 in their order: what is done with them takes M of everything, not N.

# N numbers there could be, M that are members
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gpu_curate.jit import njit
from gpu_curate.ops.simd import as_input

U64, I64 = np.uint64, np.int64
_WORDS = 8  # of 64 bits, between two counts


@njit
def _add(bits, numbers):  # type: ignore[no-untyped-def]
    for n in numbers:
        bits[n >> 6] |= U64(1) << U64(n & 63)


@njit
def _ones(x):  # type: ignore[no-untyped-def]
    """Bits that are set in a uint64."""
    x -= (x >> U64(1)) & U64(0x5555555555555555)
    x = (x & U64(0x3333333333333333)) + ((x >> U64(2)) & U64(0x3333333333333333))
    x = (x + (x >> U64(4))) & U64(0x0F0F0F0F0F0F0F0F)
    return I64((x * U64(0x0101010101010101)) >> U64(56))


@njit
def _count(bits, before):  # type: ignore[no-untyped-def]
    """Members before every block of words; returns how many there are."""
    count = 0
    for w in range(bits.size):
        if w % _WORDS == 0:
            before[w // _WORDS] = count
        count += _ones(bits[w])
    return count


@njit
def _list(bits, numbers_M):  # type: ignore[no-untyped-def]
    at = 0
    for w in range(bits.size):
        word = bits[w]
        while word:
            low = word & (~word + U64(1))
            numbers_M[at] = (w << 6) + _ones(low - U64(1))
            word ^= low
            at += 1


@njit
def _places(bits, before, numbers, place):  # type: ignore[no-untyped-def]
    """The place of each number among the members; -1 for one that is none."""
    for i in range(numbers.size):
        n = numbers[i]
        word = n >> 6
        bit = U64(1) << U64(n & 63)
        if bits[word] & bit == U64(0):
            place[i] = -1
            continue
        block = word // _WORDS
        count = before[block]
        for w in range(block * _WORDS, word):
            count += _ones(bits[w])
        place[i] = count + _ones(bits[word] & (bit - U64(1)))


class Members:
    """A set of numbers below n, which is filled first and asked afterwards.

    Memory: n / 7 bytes, and 8 * M for `numbers`.
    """

    def __init__(self, n: int):
        self._bits = np.zeros(n + 63 >> 6, np.uint64)
        self._before: NDArray[np.int64] | None = None
        self._size = 0

    def add(self, numbers: NDArray[np.int64]) -> None:
        """int64 numbers, in any order, as often as one likes."""
        if len(numbers) and (numbers.min() < 0 or numbers.max() >> 6 >= len(self._bits)):
            raise ValueError(f"numbers {numbers.min()}..{numbers.max()} for {64 * len(self._bits)}")
        _add(self._bits, as_input(numbers))
        self._before = None

    def _counts(self) -> NDArray[np.int64]:
        if self._before is None:
            self._before = np.zeros(-(-len(self._bits) // _WORDS), np.int64)
            self._size = int(_count(self._bits, self._before))
        return self._before

    def __len__(self) -> int:
        self._counts()
        return self._size

    @property
    def numbers(self) -> NDArray[np.int64]:
        """int64 of M, in order."""
        numbers_M = np.empty(len(self), np.int64)
        _list(self._bits, numbers_M)
        return numbers_M

    def places(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """int64: the place of each number among the members, -1 for one that is none."""
        place = np.empty(len(numbers), np.int64)
        _places(self._bits, self._counts(), as_input(numbers), place)
        return place
