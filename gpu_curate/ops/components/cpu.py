"""CPU twin of `components`: packed keys, sorted in place, chained, united.

A key is one uint64: the top bits of the hash, then the document number in as many bits as N needs. NumPy sorts those
with vector instructions where there are any. Documents whose top bits tie although their hashes differ (of 10^7 documents,
with 40 bits left, about 45 pairs by chance) are put in order by the full hash afterwards, so buckets are contiguous.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gpu_curate.jit import I64, U64, njit
from gpu_curate.ops.simd import as_input


@njit
def _pack(hash_N: NDArray[np.uint64], valid_N: NDArray[np.bool_], id_bits: int, key_K: NDArray[np.uint64]) -> int:
    """Keys of the valid documents (valid_N empty: all); returns how many."""
    numbers = (U64(1) << U64(id_bits)) - U64(1)
    count = 0
    for d in range(hash_N.size):
        key_K[count] = hash_N[d] & ~numbers | U64(d)
        count += 1 if valid_N.size == 0 else I64(valid_N[d])
    return count


@njit
def _mixed_runs(
    key_K: NDArray[np.uint64], hash_N: NDArray[np.uint64], id_bits: int, position: NDArray[np.int64]
) -> int:
    """Positions in runs of equal top bits that hold different hashes, as many as fit; returns how many there are."""
    numbers = (U64(1) << U64(id_bits)) - U64(1)
    count = 0
    start = 0
    while start < key_K.size:
        stop = start + 1
        mixed = False
        while stop < key_K.size and (key_K[stop] ^ key_K[start]) <= numbers:
            mixed |= hash_N[I64(key_K[stop] & numbers)] != hash_N[I64(key_K[stop - 1] & numbers)]
            stop += 1
        if mixed:
            for k in range(start, stop):
                if count < position.size:
                    position[count] = k
                count += 1
        start = stop
    return count


def sorted_keys(hash_N: np.ndarray, valid_N: np.ndarray | None, id_bits: int) -> np.ndarray:
    """Keys of the valid documents in order of (hash, document number).

    Args:
        id_bits: the low bits that number the document; at least bit_length(N - 1).
    Memory: 8 * N bytes, and 40 a document whose top bits tie by chance.
    """
    hash_N = as_input(hash_N)
    valid_N = as_input(np.zeros(0, np.bool_) if valid_N is None else valid_N)
    key_K = np.empty(len(hash_N), np.uint64)
    count = _pack(hash_N, valid_N, id_bits, key_K)
    key_K = key_K[:count]
    key_K.sort()
    position = np.empty(1024, np.int64)
    mixed = _mixed_runs(key_K, hash_N, id_bits, position)
    if mixed > len(position):
        position = np.empty(mixed, np.int64)
        _mixed_runs(key_K, hash_N, id_bits, position)
    if mixed:
        position = position[:mixed]
        document = (key_K[position] & np.uint64((1 << id_bits) - 1)).astype(np.int64)
        # Runs follow each other in order of their top bits, so sorting all of them at once leaves each in its place.
        key_K[position] = key_K[position[np.lexsort((document, hash_N[document]))]]
    return key_K


@njit
def _root(parent_N: NDArray[np.int64], d: int) -> int:
    while parent_N[d] != d:
        parent_N[d] = parent_N[parent_N[d]]
        d = parent_N[d]
    return d


@njit
def _unite(parent_N: NDArray[np.int64], a: int, b: int) -> int:
    """1 if a and b were in different components, else 0. The smaller root stays a root."""
    a = I64(_root(parent_N, a))
    b = I64(_root(parent_N, b))
    if a == b:
        return 0
    if a < b:
        parent_N[b] = a
    else:
        parent_N[a] = b
    return 1


@njit
def _unite_runs(
    parent_N: NDArray[np.int64], key_K: NDArray[np.uint64], hash_N: NDArray[np.uint64], id_bits: int
) -> int:
    numbers = (U64(1) << U64(id_bits)) - U64(1)
    edges = 0
    for k in range(1, key_K.size):
        if (key_K[k] ^ key_K[k - 1]) <= numbers:
            a, b = I64(key_K[k - 1] & numbers), I64(key_K[k] & numbers)
            if hash_N[a] == hash_N[b]:
                _unite(parent_N, a, b)
                edges += 1
    return edges


@njit
def _unite_edges(parent_N: NDArray[np.int64], a_E: NDArray[np.int64], b_E: NDArray[np.int64]) -> int:
    joined = 0
    for e in range(a_E.size):
        joined += _unite(parent_N, a_E[e], b_E[e])
    return joined


@njit
def flatten(parent_N: NDArray[np.int64]) -> None:
    """Make every parent the root: a parent has a smaller number, so it is done before its children."""
    for d in range(parent_N.size):
        parent_N[d] = parent_N[parent_N[d]]


def id_bits(n: int) -> int:
    """Bits that number n documents."""
    return max(n - 1, 1).bit_length()


def connect_band(parent_N: np.ndarray, hash_N: np.ndarray, valid_N: np.ndarray | None) -> int:
    """See `gpu_curate.ops.components.Components.add_band`."""
    bits = id_bits(len(hash_N))
    return _unite_runs(parent_N, sorted_keys(hash_N, valid_N, bits), as_input(hash_N), bits)


def connect_edges(parent_N: np.ndarray, a_E: np.ndarray, b_E: np.ndarray) -> int:
    """See `gpu_curate.ops.components.Components.add_edges`."""
    return _unite_edges(parent_N, as_input(a_E), as_input(b_E))


def band_edges(hash_N: np.ndarray, valid_N: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """See `gpu_curate.ops.components.band_edges`."""
    bits = id_bits(len(hash_N))
    key_K = sorted_keys(hash_N, valid_N, bits)
    numbers = np.uint64((1 << bits) - 1)
    tie = np.flatnonzero((key_K[1:] ^ key_K[:-1]) <= numbers)
    a_E, b_E = (key_K[tie] & numbers).astype(np.int64), (key_K[tie + 1] & numbers).astype(np.int64)
    same = hash_N[a_E] == hash_N[b_E]
    a_E, b_E = a_E[same], b_E[same]
    order = np.argsort(a_E)
    return a_E[order], b_E[order]
