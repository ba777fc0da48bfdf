"""Numba's jit for every twin here: no GIL, and a disk cache that knows all of the package's compiled source.

Numba's own cache looks at the file of a function only. A function that calls one in another file would go on running the
old one after an upgrade, and wheels give every version's files the same time.
"""

from __future__ import annotations

import functools
import hashlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
from numba.core import event


class _Compiling(event.Listener):
    """Adds up the time of compiling, that of functions compiled for the sake of others counted once."""

    def __init__(self) -> None:
        self.seconds, self._depth, self._begun = 0.0, 0, 0.0

    def on_start(self, event: Any) -> None:
        if self._depth == 0:
            self._begun = time.perf_counter()
        self._depth += 1

    def on_end(self, event: Any) -> None:
        self._depth -= 1
        if self._depth == 0:
            self.seconds += time.perf_counter() - self._begun


_compiling = _Compiling()
event.register("numba:compile", _compiling)


def compile_seconds() -> float:
    """Seconds that this process has compiled functions; what it loaded from the cache took none."""
    return _compiling.seconds


@functools.cache
def source_digest() -> str:
    """sha256 of every module of the package that compiles something."""
    state = hashlib.sha256()
    for path in sorted(Path(__file__).parent.rglob("*.py")):
        source = path.read_bytes()
        if b"njit" in source or b"intrinsic" in source:
            state.update(source)
    return state.hexdigest()


def njit(function: Callable[..., Any] | None = None, **options: Any) -> Any:
    """`numba.njit(nogil=True, cache=True, **options)`, as a decorator with or without options."""
    if function is None:
        return functools.partial(njit, **options)
    dispatcher = numba.njit(nogil=True, cache=True, **options)(function)
    file = dispatcher._cache._cache_file  # as in Numba 0.64 to 0.68: pinned in pyproject.toml, and under test
    file._source_stamp = (file._source_stamp, source_digest())
    return dispatcher
