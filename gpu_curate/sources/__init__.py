"""Readers: each turns one kind of file into the same stream of records.

A reader is a module with one class that follows `Reader`. It knows a file format and nothing of partitions, stages or
engines. What it cannot read becomes a `Reject`, what it leaves out on purpose a `Skip`; both are counted, neither stops it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, Protocol


class Split(NamedTuple):
    """A part of one file that one worker reads: what `start` and `stop` count is the reader's own affair."""

    path: str
    start: int  # row group, byte, or 0
    stop: int  # -1: to the end of the file
    first_row: int  # row of the first record in this split; rows number every record of the file, good or bad
    nbytes: int  # estimate of the text in it, for cutting partitions
    plain: bool = True  # records lie in the file as it is and can be read again from `start`; not compressed, no array
    refused: str | None = None  # why nothing of the file can be read: a library would take the process down


class Record(NamedTuple):
    """One document as read. `text` may hold lone surrogates; normalising or the stage replaces them by U+FFFD."""

    row: int
    text: str
    columns: Mapping[str, Any] = {}  # what `keep_columns`, `group_column` or the format itself gives (url, title, ...)
    markup: str | None = None  # what `text` was extracted from, for the report's comparison; not stored
    charset_evidence: str | None = None  # what told the encoding, where it was to be told; counted


class Batch(NamedTuple):
    """Neighbouring rows of a file by column: a text that is null, or not UTF-8, is a reject."""

    row: int  # of the first
    texts: Any  # Arrow array of strings or bytes
    columns: Mapping[str, Any]  # name → Arrow array; as `columns` of a record


class Reject(NamedTuple):
    """A record that could not be read."""

    row: int | None
    offset: int | None  # byte offset in the (decompressed) file
    reason: str
    head: bytes = b""  # first 200 bytes
    cut: bool = False  # the file is cut or damaged here: what comes behind may be missing
    passed_bytes: int = 0  # of the file, lost with it: more than a record, or not known to be one


class Skip(NamedTuple):
    """A record that is left out on purpose (a redirect page, a WARC request). Counted under `reason`, not stored."""

    reason: str


class Reader(Protocol):
    """What every reader offers. Constructed from its section of the config; picklable; opens nothing until asked.

    One with `in_footer(path)` says by it of which files `splits` and `columns` ask a library that may take the process down.
    """

    def splits(self, path: str, size: int, max_bytes: int) -> list[Split]:
        """How the file at `path` (of `size` bytes) is read by several workers, in order. Reads headers at most."""
        ...

    def read(self, split: Split, skip: int = 0) -> Iterator[Record | Reject | Skip]:
        """The records of one split in file order. The same records, whatever the splits.

        skip: so many of the items are known already, from a run that was killed: leave them out, without work on them
        where that can be. What it raises about the file is a reject of that file (see `guard`).
        """
        ...


class ColumnReader(Reader, Protocol):
    """A reader that can give many rows at once: one with `read_batches`."""

    def read_batches(self, split: Split, skip: int = 0) -> Iterator[Batch | Record | Reject | Skip]:
        """As `read`, most records by column."""
        ...

    def records(self, batch: Batch) -> Iterator[Record | Reject]:
        """The rows of a batch as `read` gives them."""
        ...
