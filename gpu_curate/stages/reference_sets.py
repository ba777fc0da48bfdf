"""Reference sets: benchmarks, a tokenizer's training sample, an older corpus.

Their items are read once into references/, numbered above every document of the sources, so that a match can be named.
"""

from __future__ import annotations

import io
import json
import os
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, ClassVar, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from gpu_curate import lfs
from gpu_curate.document import MAX_FILES, doc_id
from gpu_curate.errors import ConfigError, InputError
from gpu_curate.guard import refusal
from gpu_curate.sources import footers
from gpu_curate.sources.compression import decompressed
from gpu_curate.sources.files import find, open_raw, stem
from gpu_curate.sources.jsonl import MAX_VALUES, get_field, holds_more_values, parse_object
from gpu_curate.sources.listing import File, Listing, PassedOver, is_hidden
from gpu_curate.sources.parquet_pages import MAX_PAGE_BYTES, largest_page
from gpu_curate.stages import Boxes, Made, Stage
from gpu_curate.stages.documents.schema import PASSED_OVER, SCHEMA, TEXT
from gpu_curate.stages.part import Part
from gpu_curate.stages.sections import Reference
from gpu_curate.store.files import write_json, write_table
from gpu_curate.store.receipts import Counts
from gpu_curate.text.sections import Normalize

_PARQUET = (".parquet", ".pq", ".parq")
COLUMNS = pa.schema([*SCHEMA, *TEXT])
FIELDS = ".fields"  # suffix; Parquet, of sets whose fields are weighed
_FIELDS = pa.schema([("item", pa.int64()), ("field", pa.string())])
MAX_FILE_BYTES = 1 << 30  # of a file that is held whole while its items are taken out
# A set is held whole. So a small file may not give so much, nor so many items: nothing but what was made to do so does.
_EXPANDED_BYTES, _EXPANDED_TIMES = 128 << 20, 100
_EXPANDED_ITEMS, _BYTES_OF_ITEM = 1 << 20, 2
_BATCH_BYTES = 32 << 20  # of a Parquet column in one step, were each row the largest page
SUFFIXES = (".jsonl", ".ndjson", ".json", *_PARQUET, ".txt", ".zip")


def reference_listings(references: Sequence[Reference]) -> list[tuple[Reference, Listing]]:
    """The files of every reference set, and what is passed over. Raises: ConfigError."""
    return [(r, _listing(r)) for r in references]


def _listing(reference: Reference) -> Listing:
    if reference.from_ is not None:
        return Listing([], PassedOver())
    if reference.dataset is None:
        links = (reference.follow_links, reference.hidden_files)
        return find(reference.paths, SUFFIXES, {}, f"reference {reference.name}: path", *links)
    from gpu_curate.sources.huggingface import HuggingFaceReader
    from gpu_curate.sources.sections import HuggingFaceSource

    keys = {"name", "dataset", "config", "split", "revision", "follow_links", "hidden_files"}
    source = HuggingFaceSource(type="huggingface", **reference.model_dump(include=keys))
    try:
        return HuggingFaceReader(source).files()
    except ConfigError as e:
        message = str(e.args[0]).replace(f"source {reference.name}:", f"reference {reference.name}:", 1)
        raise type(e)(message, e.hint) from e


def reference_files(references: Sequence[Reference]) -> list[tuple[Reference, list[File]]]:
    """The files of every reference set. Raises: ConfigError."""
    return [(r, listing.files) for r, listing in reference_listings(references)]


@dataclass(frozen=True, kw_only=True)
class ReferenceCounts(Counts):
    """Attributes:
    set: name of the reference set.
    """

    set: str = ""


class SetTask(NamedTuple):
    """One set to read."""

    number: int  # in the recipe
    first_file: int  # number of its first file


class References(Stage):
    """Read the items of every reference set.

    Reads: `references`.  Writes: documents as in documents/, with their texts, `source` = name of the set, one per text field.
    A field that is missing in an item is passed over; a set that gives no text at all is an error.
    Formats: JSON Lines, one JSON document (every list of objects in it, every object that has the fields), Parquet,
    plain text (one item a file), compressed or not, and zip archives of these. A file that cannot be read to its end
    is an error: a benchmark of which a part is missing protects nothing.
    """

    name: ClassVar[str] = "references"
    counts: ClassVar[type[Counts]] = ReferenceCounts

    def __init__(self, references: Sequence[Reference], normalize: Normalize | None):
        self.references, self.normalize = references, normalize

    def settings(self) -> Any:
        sets = [r.model_dump(include={"name", "text_fields"}) for r in self.references]
        for known, reference in zip(sets, self.references, strict=True):
            known |= {} if reference.field_weights is None else {"fields": True}
        return sets, self.normalize and self.normalize.model_dump()

    def outside(self) -> Any:
        return [[(f.relative, f.size, f.identity) for f in files] for _, files in reference_files(self.references)]

    def plan(self, boxes: Boxes) -> Mapping[str, SetTask]:
        listings = reference_listings(self.references)
        passed = {r.name: listing.passed_over.facts() for r, listing in listings}
        write_json(boxes.box(self.name).folder / PASSED_OVER, {name: facts for name, facts in passed.items() if facts})
        first = MAX_FILES + np.cumsum([0, *(len(listing.files) for _, listing in listings)])
        own = [i for i, r in enumerate(self.references) if r.from_ is None]
        return {f"{i:06d}": SetTask(i, int(first[i])) for i in own}

    def make(self, part: Part) -> Made:
        from gpu_curate.text.normalize import normalizer

        normalize = normalizer(self.normalize)
        task: SetTask = part.task
        ((reference, files),) = reference_files([self.references[task.number]])  # the hub is asked for this set alone
        first = task.first_file
        rows: dict[str, list[Any]] = {name: [] for name in COLUMNS.names}
        fields: dict[str, list[Any]] = {name: [] for name in _FIELDS.names}
        nbytes = 0
        marker = _marker(part.box.folder, part.name)
        for number, file in enumerate(files, first):
            marker.write_bytes(os.fsencode(file.path))
            for row, text in enumerate(items(file.path, reference.text_fields)):
                if text.begins or not fields["item"]:
                    item = doc_id(number, row)
                fields["item"].append(item)
                fields["field"].append(text.field)
                try:
                    utf8 = normalize(str(text))
                except BaseException as e:
                    raise ConfigError(f"reference file {file.path}: item {row}: normalize: {refusal(e)}") from e
                values = (doc_id(number, row), reference.name, file.path, row, None, utf8)
                for name, value in zip(COLUMNS.names, values, strict=True):
                    rows[name].append(value)
                nbytes += len(utf8)
        marker.unlink(missing_ok=True)
        footers.close()
        if not rows["doc_id"]:
            raise ConfigError(
                f"reference {reference.name}: no text under {', '.join(reference.text_fields)} in {len(files)} files",
                "set text_fields to fields the files have",
            )
        counts = ReferenceCounts(documents=len(rows["doc_id"]), bytes=nbytes, set=reference.name)
        table = pa.table({f.name: pa.array(rows[f.name], f.type) for f in COLUMNS})
        if reference.field_weights is None:
            return Made(counts, table)
        write_table(part.path(FIELDS), pa.table({f.name: pa.array(fields[f.name], f.type) for f in _FIELDS}))
        return Made(counts, table, (part.path(FIELDS),))

    def at_hand(self, boxes: Boxes, part: str) -> str:
        try:
            return f"reading {os.fsdecode(_marker(boxes.box(self.name).folder, part).read_bytes())}"
        except OSError:
            return ""


def _marker(folder: Path, part: str) -> Path:
    """Holds the path of the file that a task reads: who it was when a library takes the process down."""
    return folder / f".reading-{part}"


class ItemText(str):
    """A text of a reference file.

    Attributes:
        field: that it stands under; "" of a whole file.
        begins: it is the first text of its object, so of an item of several fields.
    """

    field: str = ""
    begins: bool = True

    @classmethod
    def of(cls, text: str, field: str, begins: bool) -> ItemText:
        made = cls(text)
        made.field, made.begins = field, begins
        return made


def fields_of(boxes: Boxes, part: str) -> pa.Table:
    """item (doc_id of the first text of its object) and field of every text of a set with `field_weights`."""
    return pq.read_table(boxes.box(References.name).verified(part, FIELDS), use_threads=False)


def item_of_texts(boxes: Boxes, part: str, doc_id_E: NDArray[np.int64]) -> NDArray[np.int64]:
    """The item that each of some texts of a set belongs to."""
    (doc_id_I,) = boxes.box(References.name).columns(part, "doc_id")
    order = np.argsort(doc_id_I)
    place = order[np.searchsorted(doc_id_I, doc_id_E, sorter=order)]
    found: NDArray[np.int64] = fields_of(boxes, part)["item"].to_numpy()[place]
    return found


def items(path: str, fields: list[str]) -> Iterator[ItemText]:
    """The texts of a reference file, field by field, in file order.

    Raises:
        ConfigError: it cannot be read to its end.
        RetryableError: the network failed.
    """
    lfs.refuse(path, "reference file")
    try:
        if stem(path).endswith(_PARQUET):
            footers.ask(_Footer(None), "walk", path)
        with open_raw(path) as raw:
            room = _Room(path, raw)
            if not path.lower().endswith(".zip"):
                yield from room.counted(_member(path, raw, fields, room))
                return
            with zipfile.ZipFile(raw) as archive:
                for name in sorted(archive.namelist()):
                    hidden = any(is_hidden(part) for part in name.split("/"))  # __MACOSX/._a.jsonl
                    if stem(name).endswith(SUFFIXES) and not stem(name).endswith(".zip") and not hidden:
                        with archive.open(name) as member:
                            data = _bounded(member, f"{path}!{name}", room)
                        yield from room.counted(_member(f"{path}!{name}", io.BytesIO(data), fields, room))
    except BaseException as e:
        reason = "nested too deeply" if isinstance(e, RecursionError) else refusal(e)
        raise ConfigError(f"reference file {path} cannot be read: {reason}", "repair or replace the file") from e


class _Room:
    """How much a file may give.

    Args:
        raw: the file, of which nothing was read yet.
    """

    def __init__(self, path: str, raw: IO[bytes]):
        size = raw.seek(0, os.SEEK_END) if raw.seekable() else 0
        if size:
            raw.seek(0)
        self._path, self.nbytes = path, max(_EXPANDED_BYTES, _EXPANDED_TIMES * size)
        self._most = max(_EXPANDED_ITEMS, size // _BYTES_OF_ITEM)
        self._items = self._given = 0

    def counted(self, texts: Iterator[ItemText]) -> Iterator[ItemText]:
        """The same. Raises: InputError: they are too many, or too long."""
        for text in texts:
            self._items += 1
            self._given += len(text)
            if self._items > self._most or self._given > self.nbytes:
                what = f"{self._most} items" if self._items > self._most else f"{self.nbytes} characters of items"
                raise InputError(f"{self._path}: more than {what} in so small a file: unpack it")
            yield text


class _Footer:
    """The footer of a Parquet file, for the process that may be lost with it."""

    def __init__(self, source: None):
        self.source = source

    def walk(self, path: str) -> None:
        with open_raw(path, random=True) as f:
            metadata = pq.read_metadata(f)
        for group in range(metadata.num_row_groups):
            for column in range(metadata.num_columns):
                metadata.row_group(group).column(column)


def _member(path: str, raw: IO[bytes], fields: list[str], room: _Room) -> Iterator[ItemText]:
    """The texts of one file, or of one in an archive."""
    if stem(path).endswith(_PARQUET):
        yield from _parquet(raw, fields)
    else:
        yield from _texts(path, stem(path), _bounded(decompressed(raw, path), path, room), fields)


def _bounded(f: IO[bytes], path: str, room: _Room) -> bytes:
    """All of a file. Raises: InputError: it unpacks to more than MAX_FILE_BYTES, or than there is room for."""
    limit = min(MAX_FILE_BYTES, room.nbytes)
    data = bytearray()
    while piece := f.read(1 << 20):
        data += piece
        if len(data) > limit:
            raise InputError(f"{path}: more than {limit} bytes when unpacked: cut it into smaller files, or unpack it")
    return bytes(data)


def _parquet(raw: IO[bytes], fields: list[str]) -> Iterator[ItemText]:
    file = pq.ParquetFile(raw)
    names = file.schema_arrow.names
    columns = dict.fromkeys(f if f in names else f.partition(".")[0] for f in fields)
    present = [c for c in columns if c in names]
    if present:
        largest = _largest_page(raw, file.metadata)
        rows = max(1, min(1024, _BATCH_BYTES // max(largest, 1)))  # a dictionary may have one value for all
        read = 0
        for batch in file.iter_batches(rows, columns=present, use_threads=False):
            read += batch.num_rows
            for row in batch.to_pylist():
                yield from _fields(row, fields)
        if read != file.metadata.num_rows:  # Arrow takes a page of no values for the last of its row group
            raise InputError(f"{read} rows, its footer has {file.metadata.num_rows}")


def _largest_page(raw: IO[bytes], metadata: pq.FileMetaData) -> int:
    """Bytes of the largest page, unpacked. Raises: InputError: it would take more memory than a partition."""
    largest = 0
    for group in range(metadata.num_row_groups):
        for column in range(metadata.num_columns):
            chunk = metadata.row_group(group).column(column)
            start = min(chunk.dictionary_page_offset or chunk.data_page_offset, chunk.data_page_offset)
            largest = max(largest, largest_page(raw, start, chunk.total_compressed_size))
            if largest > MAX_PAGE_BYTES:
                raise InputError(f"a page of {largest} bytes, unpacked; at most {MAX_PAGE_BYTES} are read")
    return largest


def _texts(path: str, name: str, data: bytes, fields: list[str]) -> Iterator[ItemText]:
    if name.endswith(".txt"):
        yield ItemText(data.decode("utf-8", "replace"))
    elif name.endswith(".json"):
        try:
            if holds_more_values(data, MAX_VALUES):
                raise ValueError("its values would take too much memory")
            value = json.loads(data)
        except ValueError:  # .json that is really JSON Lines
            yield from _lines(path, data, fields)
        else:
            yield from _walk(value, fields)
    else:
        yield from _lines(path, data, fields)


def _lines(path: str, data: bytes, fields: list[str]) -> Iterator[ItemText]:
    for number, line in enumerate(io.BytesIO(data), 1):
        if line.strip():
            try:
                if holds_more_values(line, MAX_VALUES):
                    raise ValueError(f"more than {MAX_VALUES} values in one record")
                value = parse_object(line.removeprefix(b"\xef\xbb\xbf"))
            except (ValueError, RecursionError) as e:
                raise ConfigError(f"reference file {path}: line {number}: {e or 'nested too deeply'}") from e
            yield from _fields(value, fields)


def _walk(value: Any, fields: list[str]) -> Iterator[ItemText]:
    """Every object in a JSON document that has one of the fields; a string under a bare key counts too."""
    if isinstance(value, list):
        for entry in value:
            yield from _walk(entry, fields)
    elif isinstance(value, dict):
        found = list(_fields(value, fields))
        yield from found
        if not found:
            for entry in value.values():
                yield from _walk(entry, fields)


def _fields(item: dict[str, Any], fields: list[str]) -> Iterator[ItemText]:
    begins = True
    for field in fields:
        try:
            text = get_field(item, field.split("."))
        except KeyError:
            continue
        for value in text if isinstance(text, list) else [text]:
            if isinstance(value, bytes):  # a Parquet column of UTF-8 bytes
                value = value.decode("utf-8")
            if isinstance(value, str) and value:
                yield ItemText.of(value, field, begins)
                begins = False
