"""Candidate pairs of equal band hashes, and the components they connect.

A bucket of k documents (equal 64-bit hash, in one band) is chained in increasing document number: k - 1 candidate
pairs, each of neighbours. That connects the bucket as well as its k * (k - 1) / 2 pairs would. Hashes are compared in
full: a tie of the sorted prefix is never taken for a match.

Source: union-find with path halving: Tarjan, van Leeuwen 1984; linked by index, so a root is the least of its component.

# N documents, E candidate pairs (edges)
"""

from __future__ import annotations

import numpy as np

from gpu_curate.document import Array, is_cupy
from gpu_curate.errors import InputError
from gpu_curate.ops import twin


def band_edges(hash_N: Array, valid_N: Array = None) -> tuple[Array, Array]:
    """The candidate pairs of one band.

    Args:
        hash_N: uint64, the band hash of document 0..N - 1.
        valid_N: bool, False leaves a document out (it has no shingles); None: all are valid.
    Returns:
        a_E, b_E: int64, a < b, neighbours in one bucket, sorted by a. Every document is at most once in each.
    Raises:
        InputError: dtypes or lengths.
    Memory: 8 * N bytes and 32 * E (CPU).
    """
    _check_band(hash_N, valid_N)
    a_E, b_E = twin("components", is_cupy(hash_N)).band_edges(hash_N, valid_N)
    return a_E, b_E


class Components:
    """Connected components of documents 0..N - 1, grown band by band, in any order, without a list of edges.

    Memory: 4 bytes a document (8 from 2^31 documents up), and 8 more while a band is added: `Components.plan_bytes`.
    Time: near linear in documents and edges, whatever their shape (a path and a star of 10^6 take milliseconds).
    """

    def __init__(self, n: int):
        if n < 0:
            raise InputError(f"{n} documents: a count is not negative")
        self._parent_N = np.arange(n, dtype=index_dtype(n))

    def __len__(self) -> int:
        return len(self._parent_N)

    @staticmethod
    def plan_bytes(n: int) -> int:
        """Peak bytes for n documents while a band is added, the band's own hashes (8 a document) not counted."""
        return n * (index_dtype(n).itemsize + 8)

    def add_band(self, hash_N: Array, valid_N: Array = None) -> int:
        """Connect the documents of equal hash in one band.

        Args:
            hash_N, valid_N: as for `band_edges`; NumPy, or CuPy (the pairs are then found on the device).
        Returns:
            Number of candidate pairs (k - 1 a bucket), whether or not they connect anything new.
        Raises:
            InputError: dtypes or lengths.
        """
        _check_band(hash_N, valid_N)
        if len(hash_N) != len(self):
            raise InputError(f"a band of {len(hash_N)} documents for components of {len(self)}")
        if is_cupy(hash_N):
            from gpu_curate.ops.components import gpu

            a_E, b_E = gpu.band_edges(hash_N, valid_N)
            self.add_edges(a_E.get(), b_E.get())
            return len(a_E)
        from gpu_curate.ops.components import cpu

        return cpu.connect_band(self._parent_N, hash_N, valid_N)

    def add_edges(self, a_E: np.ndarray, b_E: np.ndarray) -> int:
        """Connect a_E[i] with b_E[i] (int64 document numbers on the host).

        Returns:
            Number of edges that joined two components.
        Raises:
            InputError: a number out of 0..N - 1, or different lengths.
        """
        if a_E.shape != b_E.shape or a_E.ndim != 1:
            raise InputError(f"edges are two arrays of one length, got {a_E.shape} and {b_E.shape}")
        if len(a_E) == 0:
            return 0
        low, high = int(min(a_E.min(), b_E.min())), int(max(a_E.max(), b_E.max()))
        if low < 0 or high >= len(self):
            raise InputError(f"edges name documents {low}..{high}, there are {len(self)}")
        from gpu_curate.ops.components import cpu

        return cpu.connect_edges(self._parent_N, a_E, b_E)

    def labels(self) -> np.ndarray:
        """int64 of N: the smallest document number of the component that each document is in."""
        from gpu_curate.ops.components import cpu

        cpu.flatten(self._parent_N)
        return self._parent_N.astype(np.int64)


def index_dtype(n: int) -> np.dtype:
    """Narrowest type that numbers n documents: int32 to 2^31, int64 beyond."""
    return np.dtype(np.int32 if n <= 1 << 31 else np.int64)


def _check_band(hash_N: Array, valid_N: Array) -> None:
    if hash_N.dtype != np.uint64 or hash_N.ndim != 1:
        raise InputError(f"a band is uint64 of N, got {hash_N.dtype} of {hash_N.shape}")
    if valid_N is not None and (valid_N.dtype != np.bool_ or valid_N.shape != hash_N.shape):
        raise InputError(f"valid is bool, one a document: got {valid_N.dtype} of {valid_N.shape} for {len(hash_N)}")
