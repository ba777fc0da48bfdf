"""`band_edges` and `Components` in NumPy and Python, for few documents: nothing is compiled or loaded.

The definition as a user of NumPy would write it, a Python step an edge.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]


def band_edges(hash_N: Array, valid_N: Array | None = None) -> tuple[Array, Array]:
    """See `gpu_curate.ops.components.band_edges`."""
    document = np.arange(len(hash_N)) if valid_N is None else np.flatnonzero(valid_N)
    order = document[np.argsort(hash_N[document], kind="stable")]  # buckets, each in order of number
    same = hash_N[order[1:]] == hash_N[order[:-1]]
    a_E, b_E = order[:-1][same], order[1:][same]
    by_a = np.argsort(a_E)
    return a_E[by_a], b_E[by_a]


class Components:
    """See `gpu_curate.ops.components.Components`."""

    def __init__(self, n: int):
        self._parent_N = list(range(n))

    def add_band(self, hash_N: Array, valid_N: Array | None = None) -> int:
        a_E, b_E = band_edges(hash_N, valid_N)
        self.add_edges(a_E, b_E)
        return len(a_E)

    def add_edges(self, a_E: Array, b_E: Array) -> int:
        joined = 0
        for a, b in zip(a_E.tolist(), b_E.tolist(), strict=True):
            a, b = self._root(a), self._root(b)
            if a != b:
                self._parent_N[max(a, b)] = min(a, b)  # the smaller root stays one
                joined += 1
        return joined

    def _root(self, d: int) -> int:
        parent = self._parent_N
        while parent[d] != d:
            parent[d] = parent[parent[d]]
            d = parent[d]
        return d

    def labels(self) -> Array:
        return np.array([self._root(d) for d in range(len(self._parent_N))], np.int64)
