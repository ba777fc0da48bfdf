"""Copies of host memory to a device through two pinned buffers of a fixed size.

CuPy's own way takes a pinned buffer as large as the array, rounded up to a power of two, and keeps it: 512 MiB for a partition
of 257. Here one buffer is filled while the other is copied.
"""

from __future__ import annotations

from typing import Any

import numpy as np

HALF_BYTES = 32 << 20
RING_BYTES = 2 * HALF_BYTES  # of host memory, pinned by a process that uses a device


class PinnedRing:
    """Two pinned buffers, made when they are first needed.

    Args:
        cupy: the array library.
    """

    def __init__(self, cupy: Any):
        self._cupy = cupy
        self._halves: list[np.ndarray] | None = None
        self._copied: list[Any] = []  # per buffer, the point in the device's work behind which it is free again

    def upload(self, array: np.ndarray) -> Any:
        """The array on the device. Where no memory can be pinned it is copied from where it lies.

        Raises: the device's out-of-memory error.
        """
        if array.nbytes <= HALF_BYTES:  # CuPy's pool has a buffer for it, no larger than one of these
            return self._cupy.asarray(array)
        source = np.ascontiguousarray(array)
        out = self._cupy.empty(source.shape, source.dtype)
        halves = self._buffers()
        if not halves:
            out.set(source)
            return out
        target, data = out.reshape(-1).view(np.uint8), source.reshape(-1).view(np.uint8)
        for i, start in enumerate(range(0, data.size, HALF_BYTES)):
            piece = data[start : start + HALF_BYTES]
            half = halves[i % 2][: piece.size]
            self._copied[i % 2].synchronize()
            half[:] = piece
            target[start : start + piece.size].set(half)
            self._copied[i % 2].record()
        for event in self._copied:
            event.synchronize()
        return out

    def _buffers(self) -> list[np.ndarray]:
        """Both buffers; none if the host has no memory to pin, or not for this user (`ulimit -l`)."""
        if self._halves is None:
            try:
                pinned = [self._cupy.cuda.alloc_pinned_memory(HALF_BYTES) for _ in range(2)]
            except (MemoryError, self._cupy.cuda.runtime.CUDARuntimeError):
                self._halves = []
                return []
            self._halves = [np.frombuffer(memory, np.uint8, HALF_BYTES) for memory in pinned]
            self._copied = [self._cupy.cuda.Event() for _ in range(2)]
            for event in self._copied:
                event.record()
        return self._halves
