"""The documents of one partition while it is collected: columns of many at once, or one by one.

# N documents
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from gpu_curate.document import ROW_BITS, TextColumn
from gpu_curate.sources import Split
from gpu_curate.sources.sections import SourceBase
from gpu_curate.stages.documents.schema import SCHEMA
from gpu_curate.stages.partition_text import Extent, reference_table

MAX_STORED = 0.25  # share of a partition's bytes; above it the whole is copied, which is quicker to read again
_NUMBERS = pa.dictionary(pa.int32(), pa.string())


class Chunk(NamedTuple):
    """Neighbouring documents that come from one split."""

    split: Split
    file_number: int
    row_N: NDArray[np.int64]
    text: TextColumn
    changed_N: NDArray[np.bool_]  # another text than the source's
    group: Any  # string array; None: none has any
    kept: Mapping[str, Any]  # name → string array

    def slice(self, start: int, stop: int) -> Chunk:
        """Documents start..stop - 1."""
        group = None if self.group is None else self.group.slice(start, stop - start)
        kept = {name: column.slice(start, stop - start) for name, column in self.kept.items()}
        text, changed_N = self.text.slice(start, stop), self.changed_N[start:stop]
        return Chunk(self.split, self.file_number, self.row_N[start:stop], text, changed_N, group, kept)


class _Single(NamedTuple):
    """The same, while it is made of single documents."""

    split: Split
    file_number: int
    rows: list[int]
    texts: list[bytes]
    changed: list[bool]
    groups: list[str | None]
    kept: dict[str, list[str | None]]

    def chunk(self) -> Chunk:
        kept = {name: pa.array(values, pa.string()) for name, values in self.kept.items()}
        row_N, changed_N = np.array(self.rows, np.int64), np.array(self.changed, np.bool_)
        text, groups = TextColumn.from_texts(self.texts), pa.array(self.groups, pa.string())
        return Chunk(self.split, self.file_number, row_N, text, changed_N, groups, kept)


class Rows:
    """Documents in order."""

    def __init__(self) -> None:
        self.documents = self.nbytes = 0
        self.beside = 0  # what ids, groups and kept columns take
        self._chunks: list[Chunk] = []
        self._single: _Single | None = None

    def add(
        self,
        split: Split,
        file_number: int,
        row: int,
        text: bytes,
        changed: bool,
        group: str | None,
        kept: Mapping[str, str | None],
        beside: int,
    ) -> None:
        """One more; `changed`: its text is another than the source's."""
        single = self._single
        if single is None or single.split != split or single.file_number != file_number:
            self._close()
            single = self._single = _Single(split, file_number, [], [], [], [], {})
        single.rows.append(row)
        single.texts.append(text)
        single.changed.append(changed)
        single.groups.append(group)
        if kept.keys() != single.kept.keys():
            for name in kept:
                if name not in single.kept:
                    single.kept[name] = [None] * (len(single.rows) - 1)
        for name, values in single.kept.items():
            values.append(kept.get(name))
        self.documents += 1
        self.nbytes += len(text)
        self.beside += beside

    def extend(self, chunk: Chunk, beside: int) -> None:
        """Many more."""
        self._close()
        self._chunks.append(chunk)
        self.documents += len(chunk.row_N)
        self.nbytes += chunk.text.nbytes
        self.beside += beside

    def _close(self) -> None:
        if self._single is not None:
            self._chunks.append(self._single.chunk())
            self._single = None

    @property
    def chunks(self) -> Sequence[Chunk]:
        self._close()
        return self._chunks

    def groups(self) -> Any:
        """The group of every document: string."""
        return _whole((_of(c, c.group) for c in self.chunks), pa.string())

    def table(self, source: str) -> pa.Table:
        """What documents/ holds of them; the source is one for all."""
        chunks = self.chunks
        row_N = np.concatenate([np.zeros(0, np.int64), *(c.row_N for c in chunks)])
        sizes = [len(c.row_N) for c in chunks]
        files = np.repeat(np.array([c.file_number for c in chunks], np.int64), sizes)
        paths: dict[str, int] = {}
        numbers = np.array([paths.setdefault(c.split.path, len(paths)) for c in chunks], np.int32)
        groups = self.groups().dictionary_encode()
        columns = {
            "doc_id": pa.array(files << ROW_BITS | row_N),
            "source": _numbered(np.zeros(self.documents, np.int32), [source] if self.documents else []),
            "path": _numbered(np.repeat(numbers, sizes), list(paths)),
            "row": pa.array(row_N),
            "group": groups.cast(_NUMBERS),
        }
        names = sorted({name for c in chunks for name in c.kept})
        kept = {name: _whole((_of(c, c.kept.get(name)) for c in chunks), pa.string()) for name in names}
        return pa.table({**{f.name: columns[f.name] for f in SCHEMA}, **kept})

    def text(self) -> Any:
        """The text of every document: large_string, in one piece, so that pages are cut alike however they were collected."""
        return _whole((c.text.to_arrow() for c in self.chunks), pa.large_string())

    def references(self, source: SourceBase) -> pa.Table | None:
        """What texts/ holds where texts stay in the source, but for those that are others there; None: too many are."""
        chunks = self.chunks
        stored = sum(int(np.diff(c.text.offsets)[c.changed_N].sum()) for c in chunks)
        if stored > MAX_STORED * self.nbytes:
            return None
        extents = [Extent(c.split, len(c.row_N)) for c in chunks]
        row_N = np.concatenate([np.zeros(0, np.int64), *(c.row_N for c in chunks)])
        changed_N = np.concatenate([np.zeros(0, np.bool_), *(c.changed_N for c in chunks)])
        return reference_table(source, extents, row_N, [c.text for c in chunks], changed_N)


def _of(chunk: Chunk, column: Any) -> Any:
    return pa.nulls(len(chunk.row_N), pa.string()) if column is None else column


def _whole(arrays: Iterable[Any], kind: pa.DataType) -> Any:
    return pa.chunked_array(list(arrays), kind).combine_chunks()


def _numbered(number_N: NDArray[np.int32], names: list[str]) -> Any:
    return pa.DictionaryArray.from_arrays(pa.array(number_N, pa.int32()), pa.array(names, pa.string()))
