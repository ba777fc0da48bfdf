"""JSON Lines: one object a line. Lines end at LF (a CR before it belongs to the end), and nowhere else.

Files of other layouts under these names are read too: a JSON array of objects, and objects over several lines or back to
back. UTF-16 and UTF-32 are turned into UTF-8.
"""

from __future__ import annotations

import codecs
import contextlib
import itertools
import json
import re
from collections.abc import Iterator
from typing import IO, Any, Literal

from pydantic import Field

from gpu_curate.guard import refusal
from gpu_curate.sources import Batch, Record, Reject, Skip, Split
from gpu_curate.sources.compression import compression_by, damage
from gpu_curate.sources.files import compression_of, is_remote, open_raw, open_stream, read_head
from gpu_curate.sources.json_values import Value, too_long, values
from gpu_curate.sources.sections import CompressedSource

HEAD_BYTES = 200
RECORDS = 100  # that `columns` looks at
_MAX_NAMES = 10_000  # that it gives
_LAYOUT_BYTES = 1 << 20  # of which the layout of a file is told
MAX_VALUES = 1 << 22  # of one line: a Python object takes some 70 bytes, and "[],[],[]," has one every three
_COUNTED_BYTES = 4 << 20  # shorter lines cannot hold so many
_CHUNK = 1 << 22
_BATCH_ROWS = 1024  # of a batch; fewer where the texts take more than a chunk
_FEW = 8  # records that are as quick one by one
BOM = b"\xef\xbb\xbf"
BLANK = b" \t\r\n"

try:
    from orjson import loads as fast_loads
except ImportError:
    from gpu_curate.sources.plain_json import loads as fast_loads  # type: ignore[assignment]


class JsonlSource(CompressedSource):
    """JSON Lines, one object a line, or a JSON array of objects: .jsonl .json .ndjson, plain or compressed."""

    type: Literal["jsonl"]
    text_column: str = Field("text", description="key that holds the document; dots reach into objects")
    max_line_bytes: int = Field(128 << 20, gt=0, description="a longer line, or element of an array, is rejected")


class JsonlReader:
    """Reads .jsonl, .ndjson and .json, compressed or not.

    A plain local file larger than a partition is read in parallel by byte ranges that end at line ends; its lines are
    counted first, at memory speed, so that rows are the same whatever the ranges. A row is a line, blank ones included.
    A line that is blank is no record and no error; one that is not a JSON object with a string under `text_column` is
    rejected with its byte offset, and so is one of more than `max_line_bytes`. A file without any record is skipped as
    `empty_file`.

    A file that begins with an array, or with an object that ends on a later line or before another one, is read value by
    value by one worker; a row is the number of the value. Memory: `max_line_bytes`, and a chunk.
    """

    suffixes: tuple[str, ...] = (".jsonl", ".ndjson", ".json")

    def __init__(self, source: JsonlSource):
        self.source = source
        self._text = source.text_column.split(".")
        self._keep = {name: name.split(".") for name in source.extra_columns}

    def splits(self, path: str, size: int, max_bytes: int) -> list[Split]:
        if is_remote(path):
            return [Split(path, 0, -1, 0, size * 4 if compression_of(path) else size, False)]
        head = read_head(path, size=_LAYOUT_BYTES)
        if compression_by(head, path):
            return [Split(path, 0, -1, 0, size * 4, False)]
        if _wide_encoding(head) or not _is_lines(head, len(head) == size):
            return [Split(path, 0, -1, 0, size, False)]
        if size <= max_bytes:
            return [Split(path, 0, -1, 0, size)]
        try:
            return list(_line_ranges(path, size, max_bytes))
        except OSError:
            return [Split(path, 0, -1, 0, size)]  # read() says what is wrong with it, in rejects

    def columns(self, path: str) -> tuple[list[str], int]:
        """Keys of the first objects of a file, dotted where they are inside others, and the number of these objects."""
        names: dict[str, None] = {}
        objects = 0
        with open_stream(path, self.source.storage_options, self.source.max_window_bytes) as f:
            for found in itertools.islice(self._values(f), 10 * RECORDS):
                if found.problem is not None:
                    continue
                try:
                    value = parse_object(found.data.removeprefix(BOM))
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
        source, opened = self.source, contextlib.ExitStack()
        try:
            if split.stop < 0:
                f = opened.enter_context(open_stream(split.path, source.storage_options, source.max_window_bytes))
            else:
                f = opened.enter_context(open_raw(split.path, source.storage_options))
        except damage() as e:  # it was there when the run was planned
            yield Reject(split.first_row, None, f"unreadable: {e}", cut=True)
            return
        with opened:
            if split.stop < 0:
                yield from self._records(self._values(f), split, skip)
            else:
                f.seek(split.start)
                chunks = iter(lambda: f.read(_CHUNK), b"")
                yield from self._records(_lines(chunks, split.start, split.stop, source.max_line_bytes), split, skip)

    def read_batches(self, split: Split, skip: int = 0) -> Iterator[Batch | Record | Reject | Skip]:
        """As `read`; records of neighbouring lines by column."""
        held: list[Record] = []
        nbytes = 0
        try:
            for item in self.read(split, skip):
                follows = isinstance(item, Record) and (not held or item.row == held[-1].row + 1)
                if held and (not follows or len(held) == _BATCH_ROWS or nbytes > _CHUNK):
                    yield from self._batch(held)
                    held, nbytes = [], 0
                if isinstance(item, Record):
                    held.append(item)
                    nbytes += len(item.text)
                else:
                    yield item
        except GeneratorExit:
            raise
        except BaseException:  # is told behind what was read
            yield from self._batch(held)
            raise
        yield from self._batch(held)

    def _batch(self, held: list[Record]) -> Iterator[Batch | Record]:
        import pyarrow as pa

        from gpu_curate.sources.parquet import scalar_text

        if len(held) < _FEW:
            yield from held
            return
        try:
            texts = pa.array([r.text for r in held], pa.large_string())
            columns = {name: pa.array([scalar_text(r.columns[name]) for r in held], pa.string()) for name in self._keep}
        except Exception:  # half a surrogate pair; or what is wrong with a value is that record's reject
            yield from held
            return
        yield Batch(held[0].row, texts, columns)

    def records(self, batch: Batch) -> Iterator[Record | Reject]:
        """The rows of a batch, one by one."""
        kept = [(name, array.to_pylist()) for name, array in batch.columns.items()]
        for i, text in enumerate(batch.texts.to_pylist()):
            yield Record(batch.row + i, text, {name: values[i] for name, values in kept})

    def _values(self, f: IO[bytes]) -> Iterator[Value]:
        """The lines or values of a whole file."""
        limit = self.source.max_line_bytes
        head, error = _head(f)
        wide = _wide_encoding(head)
        chunks: Iterator[bytes] = itertools.chain(
            [head] if head else [], _raised(error), iter(lambda: f.read(_CHUNK), b"")
        )
        if wide:
            chunks = _transcoded(chunks, wide)
            head = next(chunks, b"")
            chunks = itertools.chain([head], chunks)
        if _is_lines(head, len(head) < _LAYOUT_BYTES):
            found = _lines(chunks, 0, None, limit)
        else:
            start = len(BOM) if head.startswith(BOM) else 0
            first = next(chunks)[start:]
            found = (
                v._replace(offset=(v.offset or 0) + start) for v in values(itertools.chain([first], chunks), limit)
            )
        return (v._replace(offset=None) for v in found) if wide else found

    def _records(self, found: Iterator[Value], split: Split, skip: int) -> Iterator[Record | Reject | Skip]:
        last = split.first_row - 1
        offset: int | None = split.start
        empty = split.stop < 0  # a range is a part of a file that is not
        try:
            for offset, data, problem, lines in found:
                row, last = last + 1, last + lines
                if offset in (0, None) and row == 0:
                    data = data.removeprefix(BOM)
                if problem is not None:
                    empty = False
                    if skip:
                        skip -= 1
                        continue
                    yield Reject(row, offset, problem + _wrapped(data), data[:HEAD_BYTES])
                elif data.strip(BLANK):
                    empty = False
                    if skip:
                        skip -= 1
                        continue
                    yield self._record(row, offset, data)
        except damage() as e:
            where = "before the end of the first row" if last < 0 else f"after row {last} (offset {offset})"
            yield Reject(last + 1, None, f"truncated or damaged {where}: {e}", cut=True)
            return
        if empty:
            yield Skip("empty_file")

    def _record(self, row: int, offset: int | None, line: bytes) -> Record | Reject:
        if len(line) > _COUNTED_BYTES and holds_more_values(line, MAX_VALUES):
            return Reject(row, offset, f"more than {MAX_VALUES} values in one record", line[:HEAD_BYTES])
        try:
            value = parse_object(line)
            text = get_field(value, self._text)
        except (ValueError, RecursionError) as e:
            return Reject(row, offset, str(e) or "nested too deeply", line[:HEAD_BYTES])
        except KeyError:
            what = f"no {self.source.text_column!r} in the object" + _wrapper(value)
            return Reject(row, offset, what, line[:HEAD_BYTES])
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
        value = fast_loads(line)
    except ValueError:  # stricter than the standard library: lone surrogate escapes, NaN, numbers past float64
        try:
            value = json.loads(line.decode("utf-8", "surrogatepass"))
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


def _wrapper(value: dict[str, Any]) -> str:
    """What to say of an object without text that may hold the records itself: {"data": [{...}, ...]}."""
    for name, held in value.items():
        if isinstance(held, list) and held and isinstance(held[0], dict):
            return (
                f"; its {name!r} is a list of {len(held)} objects: if they are the records, take them out "
                f"(jq -c '.[\"{name}\"][]' FILE > NEW.jsonl)"
            )
    return ""


_WRAPPED = re.compile(rb'\s*\{\s*"([^"\\]{1,100})"\s*:\s*\[\s*\{')


def _wrapped(head: bytes) -> str:
    """As `_wrapper`, of an object of which only the beginning is known."""
    found = _WRAPPED.match(head)
    if found is None:
        return ""
    name = found[1].decode("utf-8", "replace")
    return f"; its {name!r} is a list of objects: if they are the records, take them out (jq -c '.[\"{name}\"][]' FILE > NEW.jsonl)"


_COUNTED = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[,\[{]', re.DOTALL)


def holds_more_values(line: bytes, limit: int) -> bool:
    """True if parsing a line would make more than `limit` objects, or nearly so many."""
    marks = line.count(b",") + line.count(b"[") + line.count(b"{")
    if marks <= limit:
        return False  # few even if all lie outside of strings
    return next(itertools.islice(_COUNTED.finditer(line), limit, None), None) is not None


def _head(f: IO[bytes]) -> tuple[bytes, BaseException | None]:
    """The first bytes of a stream, and what was raised behind them."""
    head = b""
    try:
        while len(head) < _LAYOUT_BYTES and (more := f.read(_LAYOUT_BYTES - len(head))):
            head += more
    except damage() as e:
        return head, e
    return head, None


def _raised(error: BaseException | None) -> Iterator[bytes]:
    if error is not None:
        raise error
    yield from ()


_WIDE = (
    (b"\xff\xfe\0\0", "utf-32"),
    (b"\0\0\xfe\xff", "utf-32"),
    (b"\xff\xfe", "utf-16"),
    (b"\xfe\xff", "utf-16"),
    (b"{\0\0\0", "utf-32-le"),
    (b"\0\0\0{", "utf-32-be"),
    (b"[\0\0\0", "utf-32-le"),
    (b"\0\0\0[", "utf-32-be"),
    (b"{\0", "utf-16-le"),
    (b"\0{", "utf-16-be"),
    (b"[\0", "utf-16-le"),
    (b"\0[", "utf-16-be"),
)


def _wide_encoding(head: bytes) -> str | None:
    """UTF-16 or UTF-32, with a byte order mark or without, if that makes JSON of the beginning; None: of one byte."""
    encoding = next((encoding for mark, encoding in _WIDE if head.startswith(mark)), None)
    if encoding is None:
        return None
    text = head[:800].decode(encoding, "replace").strip()
    return encoding if text[:1] in ("{", "[") and ('"' in text or text in ("{}", "[]")) else None


def _transcoded(chunks: Iterator[bytes], encoding: str) -> Iterator[bytes]:
    """Chunks in UTF-8. What is no character is U+FFFD."""
    decoder = codecs.getincrementaldecoder(encoding)("replace")
    for chunk in chunks:
        yield decoder.decode(chunk).encode("utf-8", "replace")
    if last := decoder.decode(b"", True):
        yield last.encode("utf-8", "replace")


def _is_lines(head: bytes, whole: bool) -> bool:
    """True if a file that begins with `head` holds a record a line; False if values that lines do not end.

    These are arrays, and objects of which the first ends on a later line, or before another one on its line.
    """
    body = head.removeprefix(BOM).lstrip(b" \t\r\n")
    if not body.startswith((b"{", b"[")):
        return True
    line, end, following = body.partition(b"\n")
    if body.startswith(b"["):  # lines too if the first is an array of anything but objects
        try:
            return bool(following.strip()) and not all(isinstance(e, dict) for e in json.loads(line))
        except (ValueError, RecursionError):
            return False
    if end or whole:
        try:
            parse_object(line)
            return True
        except (ValueError, RecursionError):
            pass
    first = next(values(iter([body]), len(body)), None)
    if first is None or first.problem is not None:
        # an object of a megabyte over many lines, or lines of which the first is broken
        return not end or whole or b"\n{" in body
    try:
        parse_object(first.data)
    except (ValueError, RecursionError):
        return True
    following = body[len(first.data) :].lstrip(b" \t\r\n")[:1]
    return not (following in (b"{", b"[", b",") or (not following and whole))


def _lines(chunks: Iterator[bytes], offset: int, stop: int | None, limit: int) -> Iterator[Value]:
    """The lines that start before `stop`, without their LF; of one longer than `limit` the beginning, and a problem."""
    pieces: list[bytes] = []  # of a line that began in an earlier chunk
    start, held, size = offset, 0, 0  # bytes of the pieces, and of the line up to here
    while stop is None or start < stop:
        chunk = next(chunks, b"")
        if not chunk:
            if size:
                yield _line(start, pieces, size, limit)
            return
        whole = chunk.rfind(b"\n") + 1
        if whole and not size and whole <= limit and (stop is None or start + whole <= stop) and not chunk.strip(BLANK):
            yield Value(start, b"", lines=chunk.count(b"\n"))  # so many that they are not told apart
            start += whole
            *lines, rest = chunk[whole:].split(b"\n")
        else:
            *lines, rest = chunk.split(b"\n")
        for line in lines:
            if size:
                pieces.append(line)
                size += len(line)
                yield _line(start, pieces, size, limit)
                start += size + 1
                pieces, held, size = [], 0, 0
            else:
                yield Value(start, line) if len(line) <= limit else _line(start, [line], len(line), limit)
                start += len(line) + 1
            if stop is not None and start >= stop:
                return
        size += len(rest)
        if rest and held <= limit:
            pieces.append(rest)
            held += len(rest)


def _line(start: int, pieces: list[bytes], size: int, limit: int) -> Value:
    if size > limit:
        return Value(start, pieces[0][:HEAD_BYTES], too_long(limit))
    return Value(start, b"".join(pieces))


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
