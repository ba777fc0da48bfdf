"""Columns in batches, each computed where it lies, and how far a call is."""

from __future__ import annotations

import contextlib
import operator
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from gpu_curate.document import TextColumn
from gpu_curate.errors import ConfigError, DeviceFull

Array = np.ndarray[Any, np.dtype[Any]]
Progress = Callable[[str, int, int], None]  # (step, done, total); the unit is the step's

BATCH_BYTES, BATCH_TEXTS = 64 << 20, 1 << 16  # of text that is worked on at once
_LONG_BYTES = 256 << 20  # below that no bar is shown


def batches(text: TextColumn) -> Iterator[tuple[int, int]]:
    """(start, stop) of consecutive slices of at most BATCH_BYTES and BATCH_TEXTS; a longer text is a slice of its own."""
    for start, stop in text.batches(BATCH_BYTES):
        for first in range(start, stop, BATCH_TEXTS):
            yield first, min(first + BATCH_TEXTS, stop)


def computed(text: TextColumn, function: Callable[[TextColumn], dict[str, Any]]) -> dict[str, Array]:
    """`function` of a slice where it lies, its arrays on the host; a text that the device cannot hold is the CPU's."""
    if not text.on_gpu:
        return function(text)
    from gpu_curate.device.runtime import in_batches

    names: list[str] = []

    def arrays(part: TextColumn) -> tuple[Any, ...]:
        made = function(part)
        names[:] = made
        return tuple(made.values())

    try:
        made = in_batches(text, arrays)
    except DeviceFull:
        return function(on_host(text))
    return dict(zip(names, made, strict=True))


def on_host(text: TextColumn) -> TextColumn:
    """The column on the host: itself, or a copy of its own texts."""
    if not text.on_gpu:
        return text
    first, last = int(text.offsets[0]), int(text.offsets[-1])
    return TextColumn(text.chars[first:last].get(), (text.offsets - first).get())


def column_of(texts: Any, text_column: str) -> TextColumn:
    """The texts of a column, or of a table's column `text_column`.

    Raises:
        ConfigError: the table has no such column. InputError: no texts.
    """
    names = getattr(texts, "column_names", None)  # Arrow
    if names is None and not isinstance(texts, TextColumn):
        names = getattr(texts, "columns", None)  # pandas, polars, cuDF
    if names is None and isinstance(texts, dict):
        names = texts.keys()
    if names is None:
        return TextColumn.of(texts)
    known = [str(name) for name in names]
    if text_column not in known:
        raise ConfigError(
            f"text_column={text_column!r}: the table has no such column (it has {', '.join(known)})",
            "name the one with the texts, or give the column itself",
        )
    return TextColumn.of(texts[text_column])


def integer(name: str, value: Any) -> int:
    """An argument as int. Raises: ConfigError: no integer."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise ConfigError(f"{name}={value!r}: expected an integer")
    return operator.index(value)


def one_of(name: str, value: Any, known: Iterable[Any]) -> None:
    """Raises: ConfigError: `value` is none of `known`."""
    if not any(value is k or (type(value) is type(k) and value == k) for k in known):
        raise ConfigError(f"{name}={value!r}: expected one of {', '.join(map(repr, known))}")


@contextlib.contextmanager
def telling(progress: Progress | None, nbytes: int) -> Iterator[Progress]:
    """`progress`, or a bar where standard error is a terminal and there is much to do; else nobody is told."""
    if progress is not None:
        yield progress
    elif nbytes < _LONG_BYTES or not sys.stderr.isatty():
        yield lambda step, done, total: None
    else:
        from rich.console import Console
        from rich.progress import Progress as Bar

        with Bar(console=Console(stderr=True), transient=True) as bar:
            tasks: dict[str, Any] = {}

            def tell(step: str, done: int, total: int) -> None:
                if step not in tasks:
                    tasks[step] = bar.add_task(step, total=total)
                bar.update(tasks[step], completed=done, total=total)

            yield tell
