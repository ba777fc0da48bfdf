"""Rows of token shards, gathered by compiled code: no Python per row. Numba is imported with this module, on first need.

# B rows, T tokens of a row, S shards
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numba import carray, types  # type: ignore[attr-defined]
from numba.extending import intrinsic

from gpu_curate.jit import njit

Shard = np.ndarray[Any, np.dtype[Any]]


class Rows:
    """Gathers rows that begin anywhere in a stream of shards read as one.

    Args:
        shards: S mapped arrays of uint16 or of uint32; kept, since rows are read through their addresses.
        starts: S + 1 positions of the stream at which shards begin, and its length.
    """

    def __init__(self, shards: Sequence[Shard], starts: Sequence[int]):
        self._shards = list(shards)
        self._address_S = np.array([shard.ctypes.data for shard in self._shards], np.int64)
        self._starts = np.array(starts, np.int64)
        self._gather = _gather_16 if self._shards[0].dtype.itemsize == 2 else _gather_32

    def gather(self, first_B: Shard, T: int) -> tuple[Shard, Shard]:
        """x, y of int64 (B, T): row k is T tokens from first_B[k] on, and the T tokens from the next one on.

        The caller answers for 0 <= first and first + T + 1 <= length: no bound is checked.
        """
        x_BT, y_BT = np.empty((len(first_B), T), np.int64), np.empty((len(first_B), T), np.int64)
        self._gather(self._address_S, self._starts, first_B, x_BT, y_BT)
        return x_BT, y_BT


def _pointer_to(element: types.Type) -> Any:
    """An intrinsic that takes an address for a pointer to `element`."""

    @intrinsic
    def pointer(typingctx, address):  # type: ignore[no-untyped-def]
        def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
            return builder.inttoptr(args[0], context.get_value_type(signature.return_type))

        return types.CPointer(element)(types.int64), codegen  # type: ignore[no-untyped-call]

    return pointer


def _kernel(element: types.Type, width: int) -> Any:
    pointer = _pointer_to(element)

    @njit
    def gather(address_S, starts, first_B, x_BT, y_BT):  # type: ignore[no-untyped-def]
        B, T = x_BT.shape
        for k in range(B):
            position = first_B[k]
            s = np.searchsorted(starts, position, "right") - 1  # the shard that holds it: empty ones lie before
            done = 0  # tokens of this row and the one behind it
            while done <= T:
                while starts[s + 1] == position:
                    s += 1
                count = min(T + 1 - done, starts[s + 1] - position)
                tokens = carray(pointer(address_S[s] + (position - starts[s]) * width), (count,))
                x = x_BT[
                    k, done : min(done + count, T)
                ]  # slices, so that all indices count from 0 and loops are vectors
                for j in range(len(x)):
                    x[j] = tokens[j]
                skipped = 1 if done == 0 else 0
                tokens = tokens[skipped:]
                y = y_BT[k, done + skipped - 1 : done + count - 1]
                for j in range(len(y)):
                    y[j] = tokens[j]
                done += count
                position += count

    return gather


_gather_16, _gather_32 = _kernel(types.uint16, 2), _kernel(types.uint32, 4)
