"""Numba's jit for every twin here: no GIL, and a disk cache that knows all of the package's compiled source.

Numba's own cache looks at the file of a function only. A function that calls one in another file would go on running the
old one after an upgrade, and wheels give every version's files the same time.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba


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
