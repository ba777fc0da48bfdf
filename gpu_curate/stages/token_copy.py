"""The compiled loop of the shards stage."""

from __future__ import annotations

from typing import Any

from gpu_curate.jit import njit


@njit
def copy(source: Any, offset_K: Any, tokens_K: Any, target_K: Any, eot: Any, out: Any) -> None:
    """Copy documents and their EOT into `out`; positions before 0 and beyond the end fall to the neighbouring shards."""
    for k in range(len(offset_K)):
        length = tokens_K[k] - 1
        at = target_K[k]
        first = max(0, -at)
        last = min(length, len(out) - at)
        for i in range(first, last):
            out[at + i] = source[offset_K[k] + i]
        if 0 <= at + length < len(out):
            out[at + length] = eot
