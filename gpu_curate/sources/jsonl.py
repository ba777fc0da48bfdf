"""JSON Lines: one object a line. Lines end at LF (a CR before it belongs to the end), and nowhere else."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from itertools import islice
from typing import IO, Any

import orjson

from gpu_curate.config import JsonlSource
from gpu_curate.guard import refusal
from gpu_curate.sources import Record, Reject, Skip, Split
from gpu_curate.sources.files import COMPRESSIONS, damage, is_remote, open_raw, open_stream

HEAD_BYTES = 200
RECORDS = 100  # that `columns` looks at
_MAX_NAMES = 10_000  # that it gives
_CHUNK = 1 << 22
BOM = b"\xef\xbb\xbf"


class JsonlReader:
    """Reads .jsonl, .ndjson and .json, compressed or not.

    A plain local file larger than a partition is read in parallel by byte ranges that end at line ends; its lines are
    counted first, at memory speed, so that rows are the same whatever the ranges. A row is a line, blank ones included.
    A line that is blank is no record and no error; one that is not a JSON object with a string under `text_column` is
    rejected with its byte offset. A file without any record is skipped as `empty_file`. Memory: the longest line.
    """

    suffixes: tuple[str, ...] = (".jsonl", ".ndjson", ".json")

    def __init__(self, source: JsonlSource):
        self.source = source
        self._text = source.text_column.split(".")
        self._keep = {name: name.split(".") for name in source.extra_columns}

    def splits(self, path: str, size: int, max_bytes: int) -> list[Split]:
        if path.lower().endswith(COMPRESSIONS):
            return [Split(path, 0, -1, 0, size * 4)]
        if size <= max_bytes or is_remote(path):
            return [Split(path, 0, -1, 0, size)]
        try:
            return list(_line_ranges(path, size, max_bytes))
        except OSError:
            return [Split(path, 0, -1, 0, size)]  # read() says what is wrong with it, in rejects

    def columns(self, path: str) -> tuple[list[str], int]:
        """Keys of the first objects of a file, dotted where they are inside others, and the number of these objects."""
        names: dict[str, None] = {}
        objects = 0
        with open_stream(path, self.source.storage_options) as f:
            for _, line in islice(_lines(f, 0, None), 10 * RECORDS):
                try:
                    value = parse_object(line.removeprefix(BOM))
                except (ValueError, RecursionError):
                    continue
                objects += 1
                names.update(dict.fromkeys(_keys(value)))
                if len(names) > _MAX_NAMES:  # keys that are data: nobody can say what is missing
                    return [], objects
                if objects == RECORDS:
                    break
        return list(names), objects

    def read(self, split: Split, skip: int = 0) -> Iterator[Record | Reject | Skip]:
        whole = split.stop < 0
        try:
            opened = contextlib.ExitStack()
            f = opened.enter_context((open_stream if whole else open_raw)(split.path, self.source.storage_options))
        except OSError as e:  # it was there when the run was planned
            yield Reject(split.first_row, None, f"unreadable: {e}", cut=True)
            return
        with opened:
            if whole:
                yield from self._records(_lines(f, 0, None), split, skip)
            else:
                f.seek(split.start)
                yield from self._records(_lines(f, split.start, split.stop), split, skip)

    def _records(self, lines: Iterator[tuple[int, bytes]], split: Split, skip: int) -> Iterator[Record | Reject | Skip]:
        row, offset = split.first_row - 1, split.start
        empty = split.stop < 0  # a range is a part of a file that is not
        try:
            for row, (offset, line) in enumerate(lines, split.first_row):
                if offset == 0:
                    line = line.removeprefix(BOM)
                if line.strip(b" \t\r"):
                    empty = False
                    if skip:
                        skip -= 1
                        continue
                    yield self._record(row, offset, line)
        except damage() as e:
            where = "before the end of the first row" if row < 0 else f"after row {row} (offset {offset})"
            yield Reject(row + 1, None, f"truncated or damaged {where}: {e}", cut=True)
            return
        if empty:
            yield Skip("empty_file")

    def _record(self, row: int, offset: int, line: bytes) -> Record | Reject:
        try:
            value = parse_object(line)
            text = get_field(value, self._text)
        except (ValueError, RecursionError) as e:
            return Reject(row, offset, str(e) or "nested too deeply", line[:HEAD_BYTES])
        except KeyError:
            return Reject(row, offset, f"no {self.source.text_column!r} in the object", line[:HEAD_BYTES])
        except BaseException as e:
            return Reject(row, offset, refusal(e), line[:HEAD_BYTES])
        if not isinstance(text, str):
            what = f"{self.source.text_column!r} is {_json_type(text)}, not a string"
            return Reject(row, offset, what, line[:HEAD_BYTES])
        columns = {}
        for name, keys in self._keep.items():
            try:
                columns[name] = get_field(value, keys)
            except KeyError:
                columns[name] = None
        return Record(row, text, columns)


def parse_object(line: bytes) -> dict[str, Any]:
    """The object on a line. Raises: ValueError."""
    try:
        value = orjson.loads(line)
    except orjson.JSONDecodeError:  # stricter than the standard library: lone surrogate escapes, NaN, long integers
        try:
            value = json.loads(line.decode("utf-8"))
        except UnicodeDecodeError as e:
            raise ValueError(f"not UTF-8: {e.reason} at byte {e.start} of the line") from None
        except json.JSONDecodeError as e:
            raise ValueError(f"not JSON: {e.msg} at character {e.pos} of the line") from None
    if not isinstance(value, dict):
        raise ValueError(f"a JSON object was expected, got {_json_type(value)}")
    return value


def get_field(value: Any, keys: list[str]) -> Any:
    """The value under a dotted key; a key that holds dots itself is found first. Raises: KeyError."""
    whole = ".".join(keys)
    if isinstance(value, dict) and whole in value:
        return value[whole]
    for key in keys:
        if not isinstance(value, dict):
            raise KeyError(key)
        value = value[key]
    return value


def _keys(value: dict[str, Any], depth: int = 50) -> Iterator[str]:
    for key, inside in value.items():
        yield key
        if isinstance(inside, dict) and depth:
            yield from (f"{key}.{name}" for name in _keys(inside, depth - 1))


def _json_type(value: Any) -> str:
    names = {
        type(None): "null",
        bool: "a boolean",
        int: "a number",
        float: "a number",
        str: "a string",
        list: "an array",
    }
    return names.get(type(value), "an object")


def _lines(f: IO[bytes], offset: int, stop: int | None) -> Iterator[tuple[int, bytes]]:
    """(offset, line without its LF) of the lines that start before `stop`."""
    pieces: list[bytes] = []  # of a line that began in an earlier chunk
    start = offset
    while stop is None or start < stop:
        try:
            chunk = f.read(_CHUNK)
        except EOFError:
            if pieces:  # what was read of the cut line is not a record
                pieces.clear()
            raise
        if not chunk:
            if pieces:
                yield start, b"".join(pieces)
            return
        *lines, rest = chunk.split(b"\n")
        for line in lines:
            if pieces:
                line = b"".join([*pieces, line])
                pieces.clear()
            yield start, line
            start += len(line) + 1
            if stop is not None and start >= stop:
                return
        if rest:
            pieces.append(rest)


def _line_ranges(path: str, size: int, max_bytes: int) -> Iterator[Split]:
    """Ranges of about `max_bytes` that begin at line starts, with the row each begins at."""
    start = row = 0
    at = 0  # bytes read so far
    rows = 0  # LFs read so far
    with open(path, "rb") as f:
        while chunk := f.read(_CHUNK):
            if at + len(chunk) - start >= max_bytes and at + len(chunk) < size:
                end = chunk.rfind(b"\n")
                if end >= 0:
                    stop = at + end + 1
                    stop_row = rows + chunk.count(b"\n")
                    yield Split(path, start, stop, row, stop - start)
                    start, row = stop, stop_row
            rows += chunk.count(b"\n")
            at += len(chunk)
    if start < size:
        yield Split(path, start, size, row, size - start)
