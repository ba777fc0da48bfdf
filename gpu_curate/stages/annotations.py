"""Annotations: properties that others have published of documents, found by URL or by a hash of the text.

# N documents, K distinct keys, A annotated documents
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from gpu_curate import guard
from gpu_curate.document import TextColumn
from gpu_curate.errors import ConfigError
from gpu_curate.sources import Batch, Record, Reject
from gpu_curate.sources.files import find
from gpu_curate.sources.listing import File
from gpu_curate.sources.parquet import ParquetReader
from gpu_curate.sources.sections import ParquetSource
from gpu_curate.stages import Boxes, Made, Stage
from gpu_curate.stages.columns import check_columns
from gpu_curate.stages.documents.columns import strings_of
from gpu_curate.stages.part import Part
from gpu_curate.stages.partition_text import host_text, verified_text
from gpu_curate.stages.rejects import place_of
from gpu_curate.stages.sections import Annotation
from gpu_curate.store.receipts import Counts

_SPLIT_BYTES = 256 << 20


@dataclass(frozen=True, kw_only=True)
class AnnotationCounts(Counts):
    """Attributes:
    annotated: annotation → documents that it has something of.
    unreadable: rows of the published files that could not be read.
    """

    annotated: dict[str, int]
    unreadable: int = 0


class Annotations(Stage):
    """Look up every document in the published files.

    Reads: documents(the columns that are keys, or the texts), `annotations`.
    Writes: doc_id and a string column for each column taken, a row for each document that some annotation has; in the order of
    documents/. Of several rows with one key the first counts, in the order of the files.
    Memory: 40 bytes a document, and the values that were found. The published files are read once, batch by batch.
    """

    name: ClassVar[str] = "annotations"
    counts: ClassVar[type[Counts]] = AnnotationCounts

    def __init__(self, annotations: Sequence[Annotation]):
        self.annotations = annotations
        by_hash = any(a.by == "text:xxh3" for a in annotations)
        self.inputs = ("documents", "signatures") if by_hash else ("documents",)

    def settings(self) -> Any:
        return [[a.name, a.key, a.by, a.taken] for a in self.annotations]

    def outside(self) -> Any:
        return [[(f.relative, f.size, f.identity) for f in files_of(a)] for a in self.annotations]

    def make(self, part: Part) -> Made:
        boxes = part.boxes
        parts = boxes.box("documents").parts()
        ids = [boxes.box("documents").columns(name, "doc_id")[0] for name in parts]
        doc_id_N = np.concatenate([np.zeros(0, np.int64), *ids])
        columns: dict[str, pa.Array] = {}
        annotated: dict[str, int] = {}
        unreadable: list[str] = []
        some_N = np.zeros(len(doc_id_N), np.bool_)
        for annotation in self.annotations:
            keys = _Keys(_hashes(pa.concat_arrays(_keys(boxes, name, annotation.by) for name in parts)))
            found = _look_up(annotation, keys, unreadable)
            place_N = keys.places(found.of_key_K)
            columns |= {name: values.take(pa.array(place_N, mask=place_N < 0)) for name, values in found.values.items()}
            annotated[annotation.name] = int((place_N >= 0).sum())
            some_N |= place_N >= 0
            if not annotated[annotation.name] and len(doc_id_N):
                part.warn(
                    f"annotations.{annotation.name}: of {len(doc_id_N):,} documents none is among the {found.rows:,} rows of its "
                    f"files; is `{annotation.by}` here what `{annotation.key}` is there?"
                )
        for reason in unreadable[:1]:
            part.warn(f"annotations: {len(unreadable):,} rows could not be read, the first: {reason}")
        rows = pa.array(np.flatnonzero(some_N))
        table = pa.table({"doc_id": doc_id_N[some_N], **{name: column.take(rows) for name, column in columns.items()}})
        counts = AnnotationCounts(documents=table.num_rows, annotated=annotated, unreadable=len(unreadable))
        return Made(counts, table)


def files_of(annotation: Annotation) -> list[File]:
    """The published files. Raises: ConfigError: there are none."""
    key = f"annotations.{annotation.name}.path"
    return find(
        annotation.paths, ParquetReader.suffixes, {}, key, annotation.follow_links, annotation.hidden_files
    ).files


def _keys(boxes: Boxes, part: str, by: str) -> pa.Array:
    """What the key of every document of a partition is: large_string of N, null where it has none."""
    box = boxes.box("documents")
    if not by.startswith("text:"):
        if by not in pq.read_schema(box.path(part, ".parquet")).names:
            return pa.nulls(len(box.columns(part, "doc_id")[0]), pa.large_string())
        column = box.read_table(part, [by])[by].cast(pa.large_string())
        return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    if by == "text:xxh3":
        hi, lo = boxes.box("signatures").columns(part, "content_hi", "content_lo")
        digits = [f"{a:016x}{b:016x}" for a, b in zip(hi.tolist(), lo.tolist(), strict=True)]
        return pa.array(digits, pa.large_string())
    text = host_text(verified_text(box, part))
    name = by.removeprefix("text:")
    digits = [hashlib.new(name, text.raw(i), usedforsecurity=False).hexdigest() for i in range(len(text))]
    return pa.array(digits, pa.large_string())


def _hashes(keys: pa.Array) -> np.ndarray:
    """uint64 of (N, 2): xxh3-128 of every key; zeros where there is none."""
    from gpu_curate.ops.content_hash import content_hash

    blank_N = np.asarray(keys.is_null())
    hash_N2: np.ndarray = np.array(content_hash(TextColumn.from_arrow(keys.fill_null(""))))
    hash_N2[blank_N] = 0
    return hash_N2


class _Keys:
    """The distinct keys of N documents, sorted, and which document has which.

    Attributes:
        hash_K2: uint64.
        of_N: int64, a document's place among them; -1: it has no key.
    """

    def __init__(self, hash_N2: np.ndarray):
        order = np.lexsort((hash_N2[:, 0], hash_N2[:, 1]))
        ordered = hash_N2[order]
        first = np.ones(len(order), np.bool_)
        first[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
        self.hash_K2 = ordered[first]
        self.of_N = np.empty(len(order), np.int64)
        self.of_N[order] = np.cumsum(first) - 1
        self.of_N[(hash_N2 == 0).all(axis=1)] = -1

    def find(self, hash_B2: np.ndarray) -> np.ndarray:
        """int64 of B: the place of every key of a batch, -1 of one that no document has."""
        low = np.searchsorted(self.hash_K2[:, 1], hash_B2[:, 1])
        found = np.full(len(hash_B2), -1, np.int64)
        for step in range(2):  # lower halves that are equal: never more than by chance
            at = low + step
            inside = at < len(self.hash_K2)
            equal = np.zeros(len(hash_B2), np.bool_)
            equal[inside] = (self.hash_K2[at[inside]] == hash_B2[inside]).all(axis=1)
            found[equal & (found < 0)] = at[equal & (found < 0)]
        return found

    def places(self, of_key_K: np.ndarray) -> np.ndarray:
        """int64 of N: what `of_key_K` has for every document's key; -1 without one."""
        return (
            np.where(self.of_N < 0, -1, of_key_K[self.of_N]) if len(of_key_K) else np.full(len(self.of_N), -1, np.int64)
        )


@dataclass(frozen=True, eq=False)
class _Found:
    """What the published files say: rows read; key → place among the values, -1: nothing; column → string values."""

    rows: int
    of_key_K: np.ndarray
    values: dict[str, pa.Array]


def _look_up(annotation: Annotation, keys: _Keys, unreadable: list[str]) -> _Found:
    of_key_K = np.full(len(keys.hash_K2), -1, np.int64)
    names = annotation.taken
    pieces: dict[str, list[pa.Array]] = {name: [pa.array([], pa.string())] for name in names}
    rows = total = 0
    for key, columns in _rows(annotation, unreadable):
        rows += len(key)
        place_B = keys.find(_hashes(key))
        wanted = np.flatnonzero(place_B >= 0)
        wanted = wanted[of_key_K[place_B[wanted]] < 0]
        _, first = np.unique(place_B[wanted], return_index=True)
        wanted = np.sort(wanted[first])
        of_key_K[place_B[wanted]] = total + np.arange(len(wanted))
        total += len(wanted)
        if len(wanted):
            for name, column in names.items():
                pieces[name].append(strings_of(columns[column].take(pa.array(wanted))))
    return _Found(rows, of_key_K, {name: pa.concat_arrays(parts) for name, parts in pieces.items()})


def _rows(annotation: Annotation, unreadable: list[str]) -> Iterator[tuple[pa.Array, Mapping[str, Any]]]:
    """Keys (large_string) and columns of the published files, batch by batch. Raises: ConfigError: a column is missing."""
    kept: list[Any] = list(dict.fromkeys(annotation.taken.values()))
    source = ParquetSource(name=annotation.name, type="parquet", text_column=annotation.key, keep_columns=kept)
    reader = ParquetReader(source)
    files = files_of(annotation)
    names = {"text_column": "key", "keep_columns": "columns"}
    try:
        check_columns([source], [reader], [files], names)
    except ConfigError as e:
        raise ConfigError(f"annotations.{annotation.name}: {e.message}", e.hint) from e
    for file in files:
        for split in guard.splits(reader, file.path, file.size, _SPLIT_BYTES):
            for item in guard.read_batches(reader, split):
                if isinstance(item, Reject):
                    unreadable.append(f"{place_of(file.path, item.row, item.offset)}: {item.reason}")
                elif isinstance(item, Batch):
                    array = item.texts
                    if pa.types.is_dictionary(array.type):
                        array = array.cast(array.type.value_type)
                    if pa.types.is_binary(array.type) or pa.types.is_large_binary(array.type):
                        array = array.cast(pa.large_binary()).cast(pa.large_string())
                    yield array.cast(pa.large_string()), item.columns
                elif isinstance(item, Record):
                    columns = {name: pa.array([value]) for name, value in item.columns.items()}
                    yield pa.array([item.text], pa.large_string()), columns
