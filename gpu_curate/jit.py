"""Numba's jit for every twin here: no GIL, and a disk cache that knows all of the package's compiled source.

Numba's own cache looks at the file of a function only. A function that calls one in another file would go on running the
old one after an upgrade, and wheels give every version's files the same time.
"""

from __future__ import annotations

import atexit
import functools
import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeAlias, TypeVar, cast, overload

import numba
import numpy as np
from numba.core import config as _numba_config
from numba.core import event
from numba.extending import intrinsic as _intrinsic

from gpu_curate import compiled

P = ParamSpec("P")
R = TypeVar("R")
# What an intrinsic is made of: Numba's context of a target, a signature, and both with the function that writes the code.
Context: TypeAlias = Any
Signature: TypeAlias = Any
Lowered: TypeAlias = tuple[Signature, Callable[[Context, Any, Signature, list[Any]], Any]]
# The casts of compiled code. To the type checker every whole number there is an int, whatever its width, as the code itself
# says nothing else of a sum or a literal; the widths are Numba's business.
U8, U32, U64 = cast(type[int], np.uint8), cast(type[int], np.uint32), cast(type[int], np.uint64)
I32, I64 = cast(type[int], np.int32), cast(type[int], np.int64)

# Numba takes settings from .numba_config.yaml of the current folder: where its cache of pickles lies, which library is the
# CUDA driver. Nothing of that was used yet, and the file counts no more.
if os.path.isfile(_numba_config._config_fname):
    _numba_config._config_fname = os.devnull
    _numba_config.reload_config()
_numba_config._config_fname = os.devnull

CACHE = ".compiled"  # in a run directory, where nothing else can be written


class _Compiling(event.Listener):  # type: ignore[misc]  # Numba has no types for 0.64, so it counts as Any
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


@overload
def njit(function: Callable[P, R], /) -> Callable[P, R]: ...
@overload
def njit(*, inline: str = ...) -> Callable[[Callable[P, R]], Callable[P, R]]: ...
def njit(function: Callable[P, R] | None = None, /, **options: Any) -> Any:
    """`numba.njit(nogil=True, cache=True, **options)`, as a decorator with or without options; types stay as they are."""
    if function is None:
        return functools.partial(njit, **options)
    dispatcher = numba.njit(nogil=True, **options)(function)
    _enable_cache(dispatcher)
    return dispatcher


def intrinsic(*, returns: type[R]) -> Callable[[Callable[Concatenate[Any, P], Lowered]], Callable[P, R]]:
    """`numba.extending.intrinsic`, as a decorator that says what a call in compiled code takes and returns.

    The decorated function gets the typing context and Numba's type of each argument, and returns a signature and the
    function that writes the code.
    """
    return _intrinsic  # type: ignore[no-any-return]  # Numba's own, which has no types


# ------------------------------------------------------------------------------- where what is compiled is kept

# Numba would keep it beside the source or below HOME, whoever else may write there. Here it is kept where `compiled.choose`
# says; where that is nowhere a private folder serves, that of the run once there is one.
_homeless: list[Any] = []  # dispatchers whose cache is in the private folder
private_folder: Path | None = None
refused: list[str] = []  # folders that were named and are not used, and why
_settled = False


def _enable_cache(dispatcher: Any) -> None:
    """Keep what is compiled of a function on disk; if that is not possible, compile it in every process."""
    _settle()
    try:
        if not numba.config.CACHE_DIR:
            raise RuntimeError
        dispatcher.enable_caching()
    except RuntimeError:  # no locator available
        if private_folder is None and not _keep_in(_temporary_folder()):
            return
        try:
            dispatcher.enable_caching()
        except RuntimeError:
            return
    if private_folder is not None:
        _homeless.append(dispatcher)
    file = dispatcher._cache._cache_file  # as in Numba 0.64 to 0.68: pinned in pyproject.toml, and under test
    file._source_stamp = (file._source_stamp, source_digest())


def _settle() -> None:
    """Choose the folder, once, for this process and those that it starts."""
    global _settled
    if _settled:
        return
    _settled = True
    folder, said = compiled.choose()
    refused.extend(said)
    if folder is not None:
        compiled.bring(folder)
    os.environ["NUMBA_CACHE_DIR"] = numba.config.CACHE_DIR = "" if folder is None else str(folder)


def _temporary_folder() -> Path | None:
    """A new folder of mode 0700 that goes with this process; None where there is no place for one."""
    try:
        folder = Path(tempfile.mkdtemp(prefix="gpu_curate-"))
    except OSError:
        return None
    maker = os.getpid()

    def remove() -> None:
        if os.getpid() == maker:
            shutil.rmtree(folder, ignore_errors=True)

    atexit.register(remove)
    return folder


def _keep_in(folder: Path | None) -> bool:
    """Have this process and those that it starts keep what they compile in `folder`."""
    global private_folder
    if folder is None:
        return False
    private_folder = folder
    compiled.bring(folder)
    os.environ["NUMBA_CACHE_DIR"] = numba.config.CACHE_DIR = str(folder)
    return True


def _nothing() -> None:
    """Never called."""


def keep_with_run(run: Path) -> str | None:
    """Keep what is compiled in a private folder of a run directory, if there is no other place for it.

    Returns:
        what to say about it; None if there is another place.
    """
    njit(_nothing)  # nothing of ours may have been compiled in this process yet
    if private_folder is None:
        return "; ".join(refused) or None
    folder = run / CACHE
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        if compiled.unsafe(folder) is None:
            _keep_in(folder)
    except OSError:
        pass  # the temporary one stays
    dispatchers = _homeless[:]
    _homeless.clear()
    for dispatcher in dispatchers:
        _enable_cache(dispatcher)
    return (
        "".join(f"{text}; " for text in refused)
        + f"no folder of the user's own can keep compiled functions: they are kept in {private_folder}; "
        "set NUMBA_CACHE_DIR to a folder that you alone can write to keep them for every run"
    )
