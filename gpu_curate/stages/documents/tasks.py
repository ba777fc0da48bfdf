"""Sources are cut into tasks of about a partition of text each."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from gpu_curate import guard
from gpu_curate.config import Config, ParquetSource, SourceBase
from gpu_curate.errors import (
    MAX_ATTEMPTS,
    ConfigError,
    CorruptError,
    FatalError,
    RetryableError,
    UnreachableError,
)
from gpu_curate.sources import Reader, Split, footers
from gpu_curate.sources.files import refuse_stand_in
from gpu_curate.sources.listing import File
from gpu_curate.stages.documents.listing import make_reader
from gpu_curate.stages.documents.schema import FILES, TASKS
from gpu_curate.stages.partition_text import by_reference, can_refer
from gpu_curate.store.files import publish, read_json, write_json

_MAX_TASKS = 999_999


class Piece(NamedTuple):
    """One split of one file, with the number of the file."""

    split: Split
    file_number: int


class ReadTask(NamedTuple):
    """What one task reads: pieces of one source, about a partition's worth."""

    source: int  # index in config.sources
    pieces: list[Piece]
    nbytes: int  # estimate


def read_tasks(config: Config, files: list[list[File]], rows: dict[str, int] | None = None) -> list[ReadTask]:
    """Cut every source into tasks of about `partition_bytes` of text. Reads headers and footers at most.

    A source with `max_documents` or `max_bytes` is one task, read in order until the limit.
    `rows` takes path → records, of the files that say how many they hold.
    """
    limit = config.run.partition_bytes
    tasks: list[ReadTask] = []
    wrong: list[ConfigError] = []  # files that do not fit the recipe
    file_number = 0
    for index, (source, own) in enumerate(zip(config.sources, files, strict=True)):
        reader = make_reader(source)
        with ThreadPoolExecutor(16) as pool:  # footers over a network wait, they do not compute
            splits = list(pool.map(lambda f, s=source, r=reader: _splits(s, r, f, limit, wrong), own))
        if rows is not None:
            rows.update(getattr(reader, "rows", {}))
        pieces: list[Piece] = []
        nbytes = 0
        limited = source.max_documents is not None or source.max_bytes is not None
        for number, of_file in enumerate(splits, file_number):
            for split in of_file:
                if pieces and nbytes + split.nbytes > limit and not limited:
                    tasks.append(ReadTask(index, pieces, nbytes))
                    pieces, nbytes = [], 0
                pieces.append(Piece(split, number))
                nbytes += split.nbytes
        if pieces:
            tasks.append(ReadTask(index, pieces, nbytes))
        file_number += len(own)
    footers.close()  # who has read them is of no more use
    if wrong:
        told = sorted({e.message for e in wrong})
        rest = [f"... and {len(told) - 10:,} other files"] if len(told) > 10 else []
        raise ConfigError("\n".join(told[:10] + rest), wrong[0].hint)
    if len(tasks) > _MAX_TASKS:
        raise ConfigError(
            f"run.partition_bytes: {limit} cuts the input into {len(tasks)} partitions; at most {_MAX_TASKS} are possible",
            "set a larger run.partition_bytes",
        )
    return tasks


def refers(config: Config, task: ReadTask) -> bool:
    """True if the partitions of a task refer to the texts of their source (`run.by_reference`)."""
    source = config.sources[task.source]
    splits = (piece.split for piece in task.pieces)
    longest = config.run.partition_bytes if isinstance(source, ParquetSource) else None
    return by_reference(config, source) and can_refer(splits, longest)


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


def _listing(config: Config, files: list[list[File]], rows: Mapping[str, int]) -> list[dict[str, Any]]:
    return [
        {
            "source": s.name,
            "path": f.path,
            "relative": f.relative,
            "bytes": f.size,
            "identity": f.identity,
            "rows": rows.get(f.path),
        }
        for s, own in zip(config.sources, files, strict=True)
        for f in own
    ]


def keep_tasks(
    folder: Path, config: Config, files: list[list[File]], rows: Mapping[str, int], tasks: list[ReadTask]
) -> None:
    """Write down what was cut, and of which files, for `kept_tasks`."""
    write_json(folder / FILES, _listing(config, files, rows))
    body = json.dumps(tasks)
    with publish(folder / TASKS) as temp:
        temp.write_text(f"{_seal(body)}\n{body}", encoding="ascii")


def kept_tasks(folder: Path, config: Config, files: list[list[File]]) -> list[ReadTask] | None:
    """The tasks as they were cut before, of the same files; None if that is not known.

    The folder is of one fingerprint: the same recipe and code. Paths may differ (they were moved), and then are cut again.
    """
    try:
        before = read_json(folder / FILES)
        seal, _, body = (folder / TASKS).read_text(encoding="ascii").partition("\n")
        rows = {f["path"]: f["rows"] for f in before}
    except (OSError, CorruptError, ValueError, LookupError, TypeError):
        return None
    if seal != _seal(body) or before != _listing(config, files, rows):
        return None
    paths = [f.path for own in files for f in own]  # with what is opened, which is written nowhere
    return [
        ReadTask(source, [Piece(Split(*s)._replace(path=paths[n]), n) for s, n in pieces], size)
        for source, pieces, size in json.loads(body)
    ]


def _seal(body: str) -> str:
    return hashlib.sha256(body.encode("ascii")).hexdigest()
