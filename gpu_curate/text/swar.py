"""Eight bytes at a time in a 64-bit word: tests whose answer is the high bit of each byte that passes."""

from __future__ import annotations

import numpy as np

from gpu_curate.jit import U64, njit

ONES = U64(0x0101010101010101)
HIGH = U64(0x8080808080808080)


def words(raw: bytes) -> np.ndarray:
    """The bytes as little-endian uint64, filled up with letters."""
    return np.frombuffer(raw if len(raw) % 8 == 0 else raw + b"xxxxxxx"[len(raw) % 8 - 1 :], np.uint64)


@njit(inline="always")
def equals(word: int, byte: int) -> int:
    """High bit of every byte of `word` that equals `byte`."""
    x = word ^ (ONES * U64(byte))
    return ~x & ~((x | HIGH) - ONES) & HIGH


@njit(inline="always")
def at_most(word: int, byte: int) -> int:
    """High bit of every byte of `word` that is <= `byte`, itself < 127."""
    return ~word & ~((word | HIGH) - ONES * U64(byte + 1)) & HIGH


@njit(inline="always")
def count(flags: int) -> int:
    """How many of the eight high bits are set."""
    flags = flags >> U64(7)  # no multiplication: of 64-bit words it does not vectorise
    flags += flags >> U64(32)
    flags += flags >> U64(16)
    flags += flags >> U64(8)
    return flags & U64(15)
