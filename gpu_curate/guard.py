"""The guard around other people's libraries: what one raises about a file or a document is that one's reject.

A library may raise anything: its own classes, RecursionError, AssertionError, a Rust panic (a BaseException). Whoever hands
it one file or one document asks `refusal` what the error means, and rejects that file or document with the answer.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from typing import Any

from gpu_curate.errors import GpuCurateError, InputError, RefusedFooter, one_line
from gpu_curate.sources import Batch, Record, Reject, Skip, Split

# the machine's trouble, whatever file it met
_OF_THE_MACHINE = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOSPC, errno.EDQUOT)
_PANIC = "PanicException"  # pyo3's, of each library its own class, which none of them exports


def refusal(e: BaseException) -> str:
    """Why a library refused what it was given.

    Call it in `except BaseException`.
    Raises:
        e itself, where it is no word about the input: our own errors (but InputError, which says that one record is
        wrong), no memory, no file handles, Ctrl-C.
    """
    if isinstance(e, InputError):
        return e.message
    if isinstance(e, GpuCurateError | MemoryError) or getattr(e, "errno", None) in _OF_THE_MACHINE:
        raise e
    if not isinstance(e, Exception) and type(e).__name__ != _PANIC:
        raise e
    if isinstance(e, OSError):
        return one_line(e) or type(e).__name__
    return f"{type(e).__name__}: {one_line(e)}"


def read(reader: Any, split: Split, skip: int = 0) -> Iterator[Record | Reject | Skip]:
    """`reader.read`; whatever it raises about the file is one reject more, and the file is cut there."""
    return _read(reader.read, split, skip)


def read_batches(reader: Any, split: Split, skip: int = 0) -> Iterator[Batch | Record | Reject | Skip]:
    """The same of `reader.read_batches`."""
    return _read(reader.read_batches, split, skip)


def _read(read: Callable[..., Iterator[Any]], split: Split, skip: int) -> Iterator[Any]:
    if split.refused is not None:
        if not skip:
            yield Reject(split.first_row, None, split.refused, cut=True)
        return
    last: Any = None
    try:
        for item in read(split, skip) if skip else read(split):
            last = item
            yield item
        return
    except BaseException as e:
        reason = refusal(e)
    row = getattr(last, "row", None)  # of the last record before the error, or where the split begins
    if isinstance(last, Batch):
        row = last.row + len(last.texts) - 1
    yield Reject(split.first_row if row is None else row, None, f"unreadable: {reason}", cut=True)


def splits(reader: Any, path: str, size: int, max_bytes: int) -> list[Split]:
    """`reader.splits`; a file that its library cannot cut is one split, and `read` says what is wrong with it.

    Footers are read in another process (see `sources.footers`): a file that it did not survive is never opened again.
    """
    try:
        if not _in_footer(reader, path):
            whole: list[Split] = reader.splits(path, size, max_bytes)
            return whole
        from gpu_curate.sources import footers

        found: list[Split]
        found, rows = footers.ask(reader, "splits", path, size, max_bytes)
        if rows is not None:
            reader.rows[path] = rows
        return found
    except RefusedFooter as e:
        return [Split(path, 0, -1, 0, 0, refused=f"unreadable: {e.message}")]
    except BaseException as e:
        refusal(e)
    return [Split(path, 0, -1, 0, 0)]


def columns(reader: Any, path: str) -> tuple[list[str], int | None]:
    """`reader.columns`; footers as in `splits`. Raises: RefusedFooter, and what it raises."""
    found: tuple[list[str], int | None]
    if not _in_footer(reader, path):
        found = reader.columns(path)
        return found
    from gpu_curate.sources import footers

    found, _ = footers.ask(reader, "columns", path)
    return found


def _in_footer(reader: Any, path: str) -> bool:
    in_footer = getattr(reader, "in_footer", None)
    return in_footer is not None and in_footer(path)


def head(text: str | bytes, size: int = 200) -> bytes:
    """The first bytes of a document, for rejects/."""
    return text[:size] if isinstance(text, bytes) else text[:size].encode("utf-8", "replace")[:size]
