"""Which document is meant: a doc_id, source:path:row, a URL, or a piece of its text."""

from __future__ import annotations

import json
import re
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from gpu_curate.document import ROW_BITS, matching
from gpu_curate.errors import ConfigError, did_you_mean
from gpu_curate.inquiry.stored import Array, Stored
from gpu_curate.stages.duplicates import FIRST_REFERENCE
from gpu_curate.visible import one

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://\S+")
_PLACE = re.compile(r"(?s)(?:([^:]+):)?(.+):([0-9]+)")
_NAMED = 10  # documents that an ambiguous text is said to be in


@dataclass(frozen=True)
class Found:
    """Where a document lies, and what looking for it took.

    Attributes:
        doc_id: of it.
        part, number: its partition, and its place in that.
        scanned: documents, bytes and seconds of the scan, where one was needed.
    """

    doc_id: int
    part: str
    number: int
    scanned: dict[str, float] | None = None


def locate(stored: Stored, wanted: str | int) -> Found:
    """The one document that is meant.

    Args:
        wanted: a doc_id; `source:path:row` or `path:row`, the path as documents/ or documents.parquet has it; a URL, which is
            looked for in the columns that sources carry and in the paths; or a piece of a text, from which white space at both
            ends is taken.
    Raises:
        ConfigError: there is none, or a URL or text that several have: they are named.
    Cost: of a doc_id or place, the footers of a few partitions and one column of one; of a URL, its columns; of a text, the
        whole of documents/.
    """
    text = str(wanted).strip()
    if re.fullmatch(r"[0-9]+", text):
        return by_id(stored, int(text))
    if _URL.fullmatch(text):
        found = _scan(stored, text, _with_url)
        if found is not None:
            return found
    named = by_place(stored, text)
    if named is not None:
        return named
    place = _PLACE.fullmatch(text)
    if _URL.fullmatch(text) and place is None:
        raise ConfigError(
            f"{text}: no document has this URL", "a URL is compared as the source has it, letter by letter"
        )
    if place is not None and place[1] in [s.name for s in stored.config.sources]:
        paths = [f["path"] for f in stored.files() if f["source"] == place[1]]
        raise ConfigError(
            f"{text}: source {place[1]} has no file {place[2]}{did_you_mean(place[2], paths)}", _some(paths)
        )
    if not text:
        raise ConfigError(
            "explain: no document is named", "give a doc_id, source:path:row, a URL or a piece of its text"
        )
    found = _scan(stored, text, _with_text)
    if found is None:
        raise ConfigError(
            f"{one(text[:80])!r}: no document holds this text, and it is no doc_id, place or URL of this run",
            "a place is source:path:row, as in `gpu-curate samples`; a text is compared letter by letter, after normalising",
        )
    return found


def _some(paths: list[str]) -> str:
    return f"it has {', '.join(paths[:5])}{f' and {len(paths) - 5:,} more' if len(paths) > 5 else ''}"


def by_id(stored: Stored, doc_id: int) -> Found:
    """A document of the sources by its id. Raises: ConfigError: there is none."""
    if doc_id >= FIRST_REFERENCE:
        raise ConfigError(
            f"doc_id {doc_id}: an item of a reference set, not a document", "sources are numbered below it"
        )
    there = _found(stored, doc_id)
    if there is not None:
        return there
    files = stored.files()
    number, row = doc_id >> ROW_BITS, doc_id & ((1 << ROW_BITS) - 1)
    if number >= len(files) or not files[number]["source"]:
        raise ConfigError(
            f"doc_id {doc_id}: no such document: it would be of file {number}, and there are {len(files)}"
        )
    raise _no_row(stored, files[number]["path"], row, f"doc_id {doc_id}")


def by_place(stored: Stored, text: str) -> Found | None:
    """The document at `source:path:row` or `path:row`; None: no such file is named. Raises: ConfigError: it has no such row."""
    place = _PLACE.fullmatch(text)
    number = None if place is None else _file(stored, place[1], place[2])
    return None if place is None or number is None else _of_file(stored, number, int(place[3]), text)


def _found(stored: Stored, doc_id: int) -> Found | None:
    """A document, if there is one of this id."""
    for part in parts_of(stored, doc_id):
        rows, _ = matching(stored.columns("documents", part, "doc_id")[0], np.array([doc_id]))
        if len(rows):
            return Found(doc_id, part, int(rows[0]))
    return None


def parts_of(stored: Stored, doc_id: int) -> list[str]:
    """The partitions that may hold a doc_id: one, by bisection over the lowest id of each, where these lie in order."""
    parts = stored.parts_with_documents
    snapshot = stored.context.snapshot()
    if not snapshot.plain:
        tasks = set(snapshot.tasks_of(doc_id >> ROW_BITS))
        return [part for part in parts if part.partition("-")[0] in tasks]
    place = bisect_right(parts, doc_id, key=stored.first_id) - 1
    return parts[place : place + 1] if place >= 0 else []


def _file(stored: Stored, source: str | None, path: str) -> int | None:
    """The number of a file by its path as it was opened, below its source's folder, or as it is published."""
    wanted = path if source is None else f"{source}:{path}"  # a path may hold a colon
    found = [
        i
        for i, names in enumerate(stored.file_names())
        if (source is not None and source == names[0] and path in names[1:]) or wanted in names[1:]
    ]
    if len(found) > 1:
        files = stored.files()
        places = ", ".join(f"{files[i]['source']}:{files[i]['path']}" for i in found[:_NAMED])
        raise ConfigError(f"{path}: {len(found)} files have this name", f"name one of {places}")
    return found[0] if found else None


def _of_file(stored: Stored, file: int, row: int, asked: str) -> Found:
    doc_id = (file << ROW_BITS) + row
    there = _found(stored, doc_id)
    if there is not None:
        return there
    raise _no_row(stored, stored.files()[file]["path"], row, asked)


def _no_row(stored: Stored, path: str, row: int, asked: str) -> ConfigError:
    """Why there is no such document: it was rejected, or nothing of that number was read."""
    for file in stored.rejects():
        for line in file.open(encoding="utf-8"):
            if f'"row": {row},' in line:
                reject = json.loads(line)
                if reject["path"] == path:
                    return ConfigError(f"{asked}: no document: row {row} of {path} was rejected: {reject['reason']}")
    return ConfigError(
        f"{asked}: no such document: no row {row} of {path} was read",
        "rows count from 0: lines of JSON Lines, rows of Parquet, records of an archive, byte offsets of a Wikipedia dump",
    )


# ------------------------------------------------------------------------------------------------------------ one scan

Finder = Callable[[Stored, str, str], tuple[Array, int, int]]


def _scan(stored: Stored, wanted: str, finder: Finder) -> Found | None:
    """The one document of the run that a finder points out; None: there is none. Raises: ConfigError: several."""
    began = time.perf_counter()
    found: list[tuple[str, int]] = []
    documents = nbytes = 0
    for part, (numbers, n, size) in zip(
        stored.parts, stored.each(lambda part: finder(stored, part, wanted)), strict=True
    ):
        found += [(part, int(i)) for i in numbers]
        documents, nbytes = documents + n, nbytes + size
    seconds = time.perf_counter() - began
    if not found:
        return None
    if len(found) > 1:
        named = [stored.columns("documents", part, "doc_id")[0][i] for part, i in found[:_NAMED]]
        more = f" and {len(found) - _NAMED:,} more" if len(found) > _NAMED else ""
        raise ConfigError(
            f"{one(wanted[:80])!r}: {len(found):,} documents have it",
            f"ask for one of doc_id {', '.join(map(str, named))}{more}, or give a longer piece",
        )
    part, number = found[0]
    doc_id = int(stored.columns("documents", part, "doc_id")[0][number])
    return Found(doc_id, part, number, {"documents": documents, "bytes": nbytes, "seconds": round(seconds, 3)})


def _with_url(stored: Stored, part: str, url: str) -> tuple[Array, int, int]:
    """Documents of a partition with a URL in a column that the source carries, or as the path of a file of one document."""
    path = stored.path("documents", part)
    with pq.ParquetFile(path, memory_map=True) as file:
        fixed = ("doc_id", "text", "source", "row", "group")
        names = [n for n in file.schema_arrow.names if n not in fixed and n != "path"]
        table = file.read([*names, "path"], use_threads=False)
    equal = np.zeros(table.num_rows, np.bool_)
    for name in names:
        if pa.types.is_string(table[name].type) or pa.types.is_large_string(table[name].type):
            equal |= pc.equal(table[name], url).fill_null(False).to_numpy()
    return np.flatnonzero(equal), table.num_rows, table.nbytes


def _with_text(stored: Stored, part: str, piece: str) -> tuple[Array, int, int]:
    """Documents of a partition whose text holds a piece."""
    from gpu_curate.text.normalize import normalizer  # Numba: other questions do without

    text = stored.text(part)
    wanted = normalizer(stored.config.normalize)(piece)
    data = np.asarray(text.chars).tobytes()
    places = np.array(list(_places(data, wanted)), np.int64)
    numbers = np.searchsorted(text.offsets, places, side="right") - 1
    whole = places + len(wanted) <= text.offsets[numbers + 1]  # not over the end of one text
    return np.unique(numbers[whole]), len(text), text.nbytes


def _places(data: bytes, wanted: bytes) -> Iterator[int]:
    at = data.find(wanted)
    while at >= 0:
        yield at
        at = data.find(wanted, at + 1)


def place(files: list[dict[str, Any]], doc_id: int) -> tuple[str, str, int]:
    """Source, path and row of a document."""
    file = files[doc_id >> ROW_BITS]
    return file["source"], file["path"], doc_id & ((1 << ROW_BITS) - 1)
