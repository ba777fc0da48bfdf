"""What a file holds, by its first bytes and records: its format, and the column with the text."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from gpu_curate.errors import GpuCurateError, RefusedFooter, one_line

_HEAD_BYTES = 1 << 20  # of a file that is looked at, decompressed
_RECORDS = 50  # looked at for the text column
# What the text of a document is called most often: such a column is taken unless another one holds eight times as much.
_TEXT_NAMES = (
    "text",
    "content",
    "contents",
    "body",
    "raw_content",
    "page_content",
    "document",
    "article",
    "markdown",
    "code",
)
_TEXT_NAME_WEIGHT = 8
CODE_SUFFIXES = {
    ".py",
    ".c",
    ".h",
    ".cc",
    ".cpp",
    ".hpp",
    ".cu",
    ".rs",
    ".go",
    ".java",
    ".js",
    ".ts",
    ".rb",
    ".sh",
    ".jl",
    ".kt",
    ".swift",
}
SETTINGS_SUFFIXES = {".yaml", ".yml", ".toml", ".ini", ".cfg", ".lock"}
_TABLE_REMEDY = "convert it to Parquet (pyarrow.csv.read_csv, pyarrow.parquet.write_table)"


@dataclass
class Look:
    """What a file is."""

    path: str
    size: int
    kind: str | None  # a source's type; None: no reader takes it
    why_not: str = ""
    text_column: str | None = None
    columns: list[str] = field(default_factory=list)
    chars: float = 0.0  # of a text in the sample, on average
    encoding: str = "utf-8"


def look(path: str) -> Look:
    """A file's kind and text column. Reads its first MiB, of Parquet its footer and some rows; never raises for its content."""
    from gpu_curate.sources.compression import damage
    from gpu_curate.sources.files import open_raw, open_stream

    size = os.path.getsize(path)
    if size == 0:
        return Look(path, 0, None, "empty")
    damages: tuple[type[BaseException], ...] = (GpuCurateError, *damage())
    try:
        with open_raw(path) as f:
            magic = f.read(16)
        if magic.startswith(b"PAR1"):
            return _look_at_parquet(path, size)
        with open_stream(path) as f:
            head = f.read(_HEAD_BYTES)
    except damages as e:
        return Look(path, size, None, f"unreadable: {one_line(e, 120)}")
    start = head.lstrip(b"\xef\xbb\xbf \t\r\n\0")
    if start.startswith((b"WARC/", b"filedesc:")) or re.match(rb"https?://\S+ [\d.]+ \d{14} \S+ \d+\r?\n", start):
        return Look(path, size, "warc")
    if b"<mediawiki" in start[:4096]:
        return Look(path, size, "wikipedia")
    if start.startswith((b"{", b"[")) and (found := _look_at_json(path, size, start)) is not None:
        return found
    return _look_at_text(path, size, head)


class _Parquet:
    """Looks at a Parquet file; asked in another process, which a damaged one may end."""

    def __init__(self, source: None):
        self.source = source

    def look(self, path: str, size: int) -> Look:
        return _look_inside(path, size)


def _look_at_parquet(path: str, size: int) -> Look:
    from gpu_curate.sources import footers

    try:
        look: Look
        look, _ = footers.ask(_Parquet(None), "look", path, size)
        return look
    except RefusedFooter as e:
        return Look(path, size, None, f"unreadable: {e.message}")


def _look_inside(path: str, size: int) -> Look:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            schema = file.schema_arrow
            wanted = [f.name for f in schema if _may_hold_text(f.type)]
            batch = next(file.iter_batches(_RECORDS, columns=wanted, use_threads=False), None)
            records = batch.to_pylist() if batch is not None else []
    except (pa.ArrowException, OSError, ValueError) as e:
        return Look(path, size, None, f"unreadable: {one_line(e, 120)}")
    return _with_column(Look(path, size, "parquet", columns=list(schema.names)), records)


def _may_hold_text(kind: Any) -> bool:
    import pyarrow as pa

    t = pa.types
    if t.is_dictionary(kind):
        return _may_hold_text(kind.value_type)
    tests = (t.is_struct, t.is_string, t.is_large_string, t.is_string_view, t.is_binary)
    return any(test(kind) for test in tests)


def _look_at_json(path: str, size: int, start: bytes) -> Look | None:
    """JSON Lines or an array of objects; None: it is no JSON, only text that begins like it."""
    from gpu_curate.sources.jsonl import parse_object

    if start.startswith(b"["):
        records = list(_array_head(start))
        return _with_column(Look(path, size, "jsonl"), records) if records else None
    records = []
    lines = start.split(b"\n")
    for line in lines[: _RECORDS * 2]:
        try:
            records.append(parse_object(line.rstrip(b"\r")))
        except (ValueError, RecursionError):
            continue
    if not records:
        try:
            json.loads(start)
        except (ValueError, RecursionError):
            return None
        return Look(path, size, None, "one JSON object over many lines: write one object a line")
    return _with_column(Look(path, size, "jsonl"), records[:_RECORDS])


def _array_head(start: bytes) -> Iterator[dict[str, Any]]:
    """The first objects of a JSON array."""
    text = start.decode("utf-8", "replace")
    decoder = json.JSONDecoder()
    at = 1
    for _ in range(_RECORDS):
        at += len(text[at:]) - len(text[at:].lstrip(" \t\r\n,"))
        try:
            value, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            return
        if isinstance(value, dict):
            yield value


def _look_at_text(path: str, size: int, head: bytes) -> Look:
    suffix = suffix_of(path)
    if suffix in (".csv", ".tsv"):
        return Look(path, size, None, f"a table: {_TABLE_REMEDY}")
    for encoding in ("utf-8", "utf-16" if head.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf-8"):
        try:
            text = head.decode(encoding)
        except UnicodeDecodeError as e:
            if e.start < len(head) - 4 or len(head) < _HEAD_BYTES:  # not a character that the end of the head cuts
                continue
            text = head[: e.start].decode(encoding)
        if "\0" not in text[:4096]:
            return Look(path, size, "text", encoding=encoding, chars=float(size))
    if b"\0" in head[:4096]:
        return Look(path, size, None, "binary")
    return Look(path, size, "text", encoding="cp1252", chars=float(size))


def _with_column(found: Look, records: list[Any]) -> Look:
    """`found` with the column that holds most text, and the names of all that hold some."""
    chars: Counter[str] = Counter()
    filled: Counter[str] = Counter()
    for record in records:
        for name, text in _strings(record):
            chars[name] += len(text)
            filled[name] += bool(text)

    def weight(name: str) -> float:
        named = name.rsplit(".", 1)[-1].lower() in _TEXT_NAMES
        return chars[name] * (_TEXT_NAME_WEIGHT if named else 1)

    candidates = [n for n in chars if filled[n] * 2 >= len(records)]
    found.columns = list(dict.fromkeys([*found.columns, *(n.split(".")[0] for r in records for n in r), *chars]))
    if candidates:
        found.text_column = max(candidates, key=weight)
        found.chars = chars[found.text_column] / len(records)
    elif found.kind is not None:
        found.kind, found.why_not = (
            None,
            f"no column with text in its first records (it has {', '.join(found.columns[:12])})",
        )
    return found


def _strings(value: Any, prefix: str = "", depth: int = 4) -> Iterator[tuple[str, str]]:
    """Dotted names and values of all strings of a record; bytes count if they are UTF-8."""
    for name, inner in value.items():
        if isinstance(inner, bytes):
            try:
                inner = inner.decode("utf-8")
            except UnicodeDecodeError:
                continue
        if isinstance(inner, str):
            yield prefix + str(name), inner
        elif isinstance(inner, dict) and depth:
            yield from _strings(inner, f"{prefix}{name}.", depth - 1)


def suffix_of(path: str) -> str:
    from gpu_curate.sources.files import stem

    return os.path.splitext(stem(path))[1]
