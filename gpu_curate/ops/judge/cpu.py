"""CPU twin of `judge`: the sums of one document, called with its word hashes while they are in the cache."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gpu_curate.jit import I64, U64, njit
from gpu_curate.ops.mix import GOLDEN

G1 = U64(GOLDEN)
# what the first value of x has become behind n words: n * GOLDEN^n
START_1 = G1
START_2 = U64(2 * GOLDEN * GOLDEN % (1 << 64))
START_3 = U64(3 * GOLDEN * GOLDEN * GOLDEN % (1 << 64))


@njit
def add_words(
    word: NDArray[np.uint64],
    words: int,
    weights: NDArray[np.int8],
    begin: int,
    bits: int,
    ngrams: int,
) -> int:
    """The sum of one judge over the hashes word[:words]."""
    shift = U64(64) - U64(bits)
    base = U64(begin)  # an unsigned index: a signed one is looked at for being negative
    total = I64(0)
    if ngrams == 1:
        for i in range(words):
            total += I64(weights[base + ((word[i] + START_1) >> shift)])
        return total
    if ngrams == 2:
        for i in range(words - 1):
            first = word[i]
            total += I64(weights[base + ((first + START_1) >> shift)])
            total += I64(weights[base + ((first * G1 + word[i + 1] + START_2) >> shift)])
    else:
        for i in range(words - 2):
            first = word[i]
            pair = first * G1 + word[i + 1]
            total += I64(weights[base + ((first + START_1) >> shift)])
            total += I64(weights[base + ((pair + START_2) >> shift)])
            total += I64(weights[base + ((pair * G1 + word[i + 2] + START_3) >> shift)])
        if words >= 2:  # the last word but one begins no run of three
            first = word[words - 2]
            total += I64(weights[base + ((first + START_1) >> shift)])
            total += I64(weights[base + ((first * G1 + word[words - 1] + START_2) >> shift)])
    if words >= 1:
        total += I64(weights[base + ((word[words - 1] + START_1) >> shift)])
    return total
