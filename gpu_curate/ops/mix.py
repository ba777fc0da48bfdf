"""The integer mixers that every hash here is made of. Arithmetic is unsigned 64-bit and wraps.

Source: fmix64: Appleby, MurmurHash3 (public domain). splitmix64: Steele, Lea, Flood 2014, "Fast splittable
pseudorandom number generators", figure 16. The multiplier of shingles and bands is 2^64 over the golden ratio.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

GOLDEN = 0x9E3779B97F4A7C15
FMIX_1, FMIX_2 = 0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53


def fmix64(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """MurmurHash3's 64-bit finaliser of every element of a uint64 array; a bijection that keeps 0 at 0."""
    x = x ^ x >> np.uint64(33)
    x = x * np.uint64(FMIX_1)
    x = x ^ x >> np.uint64(33)
    x = x * np.uint64(FMIX_2)
    return x ^ x >> np.uint64(33)


def splitmix64(seed: int, count: int) -> np.ndarray:
    """The first `count` outputs of splitmix64 from state `seed` (0..2^64 - 1), uint64."""
    z = np.uint64(seed) + np.uint64(GOLDEN) * np.arange(1, count + 1, dtype=np.uint64)
    z = (z ^ z >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ z >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return z ^ z >> np.uint64(31)
