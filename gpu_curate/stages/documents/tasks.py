"""Sources are cut into tasks of about a partition of text each."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from gpu_curate import guard
from gpu_curate.errors import (
    MAX_ATTEMPTS,
    ConfigError,
    FatalError,
    RetryableError,
    UnreachableError,
)
from gpu_curate.sources import Reader, Split, footers
from gpu_curate.sources.files import refuse_stand_in
from gpu_curate.sources.listing import File
from gpu_curate.sources.sections import ParquetSource, SourceBase
from gpu_curate.stages.documents.intake import Intake
from gpu_curate.stages.documents.listing import make_reader
from gpu_curate.stages.partition_text import can_refer


class Piece(NamedTuple):
    """One split of one file, with the number of the file."""

    split: Split
    file_number: int
    nth: int = 0  # among the splits of the file
    of: int = 1  # how many these are


class ReadTask(NamedTuple):
    """What one task reads: pieces of one source, about a partition's worth."""

    source: int  # index in the recipe
    pieces: list[Piece]
    nbytes: int  # estimate


def read_tasks(intake: Intake, files: list[list[File]]) -> list[ReadTask]:
    """Cut every source into tasks of about `partition_bytes` of text, files numbered in order. Reads headers and footers at most.

    A source with `max_documents` or `max_bytes` is one task, read in order until the limit.
    """
    tasks: list[ReadTask] = []
    wrong: list[ConfigError] = []
    first = 0
    for index, own in enumerate(files):
        cut = split_files(intake, index, dict(enumerate(own, first)), wrong)
        tasks += pack(intake, index, [piece for pieces, _ in cut.values() for piece in pieces])
        first += len(own)
    footers.close()  # who has read them is of no more use
    refuse_wrong(wrong)
    return tasks


def split_files(
    intake: Intake, index: int, files: dict[int, File], wrong: list[ConfigError]
) -> dict[int, tuple[list[Piece], int | None]]:
    """The pieces of files of a source, by number, and how many records each has, where the file says.

    Args:
        index: of the source in the config.
        files: by number.
        wrong: takes what is wrong with the recipe, for `refuse_wrong`.
    """
    source, limit = intake.sources[index], intake.partition_bytes
    reader = make_reader(source)
    with ThreadPoolExecutor(16) as pool:  # footers over a network wait, they do not compute
        splits = list(pool.map(lambda f: _splits(source, reader, f, limit, wrong), files.values()))
    rows: dict[str, int] = getattr(reader, "rows", {})
    return {
        number: ([Piece(split, number, i, len(own)) for i, split in enumerate(own)], rows.get(file.path))
        for (number, file), own in zip(files.items(), splits, strict=True)
    }


def pack(intake: Intake, index: int, pieces: list[Piece]) -> list[ReadTask]:
    """Put pieces of a source into tasks, in their order."""
    source, limit = intake.sources[index], intake.partition_bytes
    limited = source.max_documents is not None or source.max_bytes is not None
    tasks: list[ReadTask] = []
    own: list[Piece] = []
    nbytes = 0
    for piece in pieces:
        if own and nbytes + piece.split.nbytes > limit and not limited:
            tasks.append(ReadTask(index, own, nbytes))
            own, nbytes = [], 0
        own.append(piece)
        nbytes += piece.split.nbytes
    return [*tasks, ReadTask(index, own, nbytes)] if own else tasks


def refuse_wrong(wrong: list[ConfigError]) -> None:
    """Raises: ConfigError: files do not fit the recipe; names ten of them."""
    if wrong:
        told = sorted({e.message for e in wrong})
        rest = [f"... and {len(told) - 10:,} other files"] if len(told) > 10 else []
        raise ConfigError("\n".join(told[:10] + rest), wrong[0].hint)


def refers(intake: Intake, task: ReadTask) -> bool:
    """True if the partitions of a task refer to the texts of their source (`run.by_reference`)."""
    source = intake.sources[task.source]
    splits = (piece.split for piece in task.pieces)
    longest = intake.partition_bytes if isinstance(source, ParquetSource) else None
    return intake.refers(source) and can_refer(splits, longest)


def _splits(source: SourceBase, reader: Reader, file: File, max_bytes: int, wrong: list[ConfigError]) -> list[Split]:
    """`reader.splits`, tried again like a task when the network fails. `wrong` takes what is wrong with the recipe.

    Raises: FatalError: the network goes on failing.
    """
    for attempt in range(MAX_ATTEMPTS):
        if attempt:
            time.sleep(2.0 ** (attempt - 1))
        try:
            if source.type != "text":  # type: ignore[attr-defined]  # of texts, anything may be one
                key, window = f"source {source.name}", getattr(source, "max_window_bytes", None)
                refuse_stand_in(file, key, source.storage_options, window)
            return guard.splits(reader, file.path, file.size, max_bytes)
        except UnreachableError:
            raise
        except ConfigError as e:
            wrong.append(e)
            return []
        except RetryableError as e:
            error = e
    raise FatalError(f"{error.message} ({MAX_ATTEMPTS} times)", "run again when the server answers") from error
