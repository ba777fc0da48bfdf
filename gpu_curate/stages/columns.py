"""Are the columns there that the recipe names? Asked before any work: the first records of every source tell.

A Parquet file, or a stream, says what it has, and one without a column that is named is an error. Objects of JSON Lines may
lack a key here and there: `text_column` is an error where none of the first records has it, another column a warning.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any, NamedTuple

from gpu_curate import guard
from gpu_curate.errors import ConfigError, GpuCurateError
from gpu_curate.sources import Reader
from gpu_curate.sources.listing import File
from gpu_curate.sources.sections import SourceBase

_FILES = 8  # looked at, of a source whose files need not be alike
_SHOWN = 20  # names in a message


class Seen(NamedTuple):
    """Columns that files of a source show."""

    path: str  # the first of the files
    files: int
    names: list[str]  # dotted where they are inside others
    records: int | None  # that were looked at; None: the files say what they have

    def has(self, column: str) -> bool:
        return any(name == column or name.startswith(f"{column}.") for name in self.names)


def look(reader: Reader, files: list[File], wanted: Iterable[str] = ()) -> Seen | None:
    """The columns of a source by its first records; None if it has none to name, or nothing of it can be read.

    Args:
        wanted: no further file is opened once these are found.
    """
    if not hasattr(reader, "columns"):
        return None
    some = [f for f in files if f.size] or files
    step = max(len(some) // _FILES, 1)
    seen: Seen | None = None
    for file in some[::step][:_FILES]:
        try:
            names, records = guard.columns(reader, file.path)
        except GpuCurateError:  # a network that fails says so when the file is read, a footer that is refused likewise
            continue
        except BaseException as e:
            guard.refusal(e)
            continue
        if not names and records is not None:
            continue
        if seen is None:
            seen = Seen(file.path, 1, names, records)
        else:
            total = None if records is None else (seen.records or 0) + records
            seen = Seen(seen.path, seen.files + 1, list(dict.fromkeys(chain(seen.names, names))), total)
        if records is None or all(seen.has(c) for c in wanted):
            break
    return seen


def check_columns(
    sources: Iterable[SourceBase],
    readers: Iterable[Reader],
    files: Iterable[list[File]],
    keys: dict[str, str] | None = None,
) -> tuple[list[Seen | None], list[str]]:
    """What every source has, and warnings about columns that its first records lack.

    Args:
        keys: what the user calls `text_column`, `group_column` and `keep_columns`, where that differs.
    Raises:
        ConfigError: names every column of every source that is not there, and those that are.
    """
    missing: list[str] = []
    warnings: list[str] = []
    found: list[Seen | None] = []
    for source, reader, own in zip(sources, readers, files, strict=True):
        asked = list(_asked(source))
        seen = look(reader, own, [column for _, column in asked])
        found.append(seen)
        lacking = [(key, column) for key, column in asked if seen is not None and not seen.has(column)]
        if seen is None or not lacking:
            continue
        fatal = [(k, c) for k, c in lacking if seen.records is None or k == "text_column"]
        for some, lines in ((fatal, missing), ([x for x in lacking if x not in fatal], warnings)):
            if some:
                lines.append(f"source {source.name}: {_lacks(seen, some, keys or {})}")
    if missing:
        raise ConfigError("\n".join(missing), "name columns that are there, or leave the keys out")
    return found, warnings


def check_sources(sources: Sequence[SourceBase], files: list[list[File]]) -> tuple[list[Seen | None], list[str]]:
    """`check_columns` of a recipe's sources."""
    from gpu_curate.stages.documents.listing import make_reader

    return check_columns(sources, map(make_reader, sources), files)


def _asked(source: Any) -> Iterable[tuple[str, str]]:
    """Key and column of everything that a source names."""
    if hasattr(source, "text_column"):
        yield "text_column", source.text_column
    if source.group_column is not None:
        yield "group_column", source.group_column
    for column in source.kept.values():
        yield "keep_columns", column


def _lacks(seen: Seen, lacking: list[tuple[str, str]], keys: dict[str, str]) -> str:
    what = ", ".join(f"{column!r} ({keys.get(key, key)})" for key, column in dict.fromkeys(lacking))
    names = ", ".join(seen.names[:_SHOWN]) + (", ..." if len(seen.names) > _SHOWN else "") or "none"
    where = seen.path if seen.files == 1 else f"{seen.path} and {seen.files - 1} other files"
    if seen.records is None:
        return f"{where} has no column {what} (it has {names})"
    first = "the first record" if seen.records == 1 else f"none of the first {seen.records:,} records"
    return f"{first} of {where} has{' no' if seen.records == 1 else ''} key {what} (they have {names})"
