"""The documents of a run that share a hash with another, as `dedup` sees them: read from the boxes, numbered 0..M - 1.

# N documents (sources first, then reference sets), M that share a hash, E candidate pairs
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from gpu_curate.document import TextColumn
from gpu_curate.errors import ConfigError
from gpu_curate.lsh import content_key
from gpu_curate.members import Members
from gpu_curate.ops import components as components_ops
from gpu_curate.stages import Boxes
from gpu_curate.stages.candidates import CONTENT, Numbered, matched_of, numbered, pairs_of
from gpu_curate.stages.partition_text import host_text, verified_text
from gpu_curate.stages.sections import Reference
from gpu_curate.store.files import DISK_ERRORS, disk_error

Numbers = NDArray[np.int64]


class RunCorpus:
    """A `dedup.Corpus` of a run: the documents that share a hash with another, or with an item of a `train_only` set.

    Memory: N / 7 bytes, and about 100 a member.

    Attributes:
        documents: how many there are in all.
        doc_id_N: int64 of each member.
    """

    ops = components_ops

    def __init__(self, boxes: Boxes, references: Sequence[Reference], num_bands: int):
        self.boxes, self._num_bands = boxes, num_bands
        self._parts: list[Numbered] = numbered(boxes, list(references))
        self.documents = sum(p.rows for p in self._parts)
        self._columns: dict[str, NDArray[Any]] = {}
        # Of this object, not of the process: a process may outlive a run, and its folder.
        self._text_column = functools.lru_cache(maxsize=2)(self._read_text)
        members = Members(self.documents)
        for table in range(1 + num_bands):
            for found in (*self._pairs_of(table), *self._matched_of(table)):
                members.add(found.ravel())
        items = [p for p in self._parts if p.action == "train_only"]
        for p in items:  # all of them: their hashes are compared with those of what they matched
            members.add(np.arange(p.start, p.start + p.rows))
        self._members, lies_M = members, members.numbers
        starts = [p.start for p in self._parts]
        owner_M = np.searchsorted(starts, lies_M, side="right") - 1
        doc_id_M = np.empty(len(lies_M), np.int64)
        for i in np.unique(owner_M).tolist():
            p, here = self._parts[i], slice(*np.searchsorted(owner_M, [i, i + 1]).tolist())
            doc_id_M[here] = p.documents.columns(p.name, "doc_id")[0][lies_M[here] - p.start]
        # Documents are in the order of the files, whatever their numbers; they lie so unless files were added to the run.
        order_M = np.argsort(boxes.snapshot().places(doc_id_M), kind="stable")
        self._rank_M = np.empty(len(order_M), np.int64)  # place among the members as they lie → number here
        self._rank_M[order_M] = np.arange(len(order_M))
        self._lies_M, self._owner_M, self.doc_id_N = lies_M[order_M], owner_M[order_M], doc_id_M[order_M]
        action = np.array([p.action or "" for p in self._parts] or [""])[self._owner_M]
        self.is_reference_N, self.train_only_N = action != "", action == "train_only"

    def _pairs_of(self, table: int) -> Iterator[Numbers]:
        """(E, 2): the pairs of one table, by where documents lie."""
        return pairs_of(self.boxes.box("candidates"), table)

    def _matched_of(self, table: int) -> Iterator[Numbers]:
        """(E, 1): the documents of one table that an item matched."""
        return matched_of(self.boxes.box("candidates"), table)

    def __len__(self) -> int:
        return len(self.doc_id_N)

    def _gather(self, read: Callable[[Numbered], NDArray[Any]], dtype: Any) -> NDArray[Any]:
        """One value of every member, partition by partition."""
        values = np.empty(len(self), dtype)
        for where, p, rows in self._rows(np.arange(len(self))):
            values[where] = read(p)[rows]
        return values

    def column(self, name: str, dtype: Any = np.uint64) -> NDArray[Any]:
        """One column of signatures/ for every member."""
        if name not in self._columns:
            self._columns[name] = self._gather(lambda p: p.signatures.columns(p.name, name)[0], dtype)
        return self._columns[name]

    def release(self) -> None:
        """Forget columns and texts that were read; they are read again where they are asked for."""
        self._columns.clear()
        self._text_column.cache_clear()

    def _pairs(self, table: int) -> tuple[Numbers, Numbers]:
        found = [self._places(pairs) for pairs in self._pairs_of(table)]
        pairs_E2 = np.concatenate([np.zeros((0, 2), np.int64), *found])
        return pairs_E2[:, 0], pairs_E2[:, 1]

    def _places(self, numbers: Numbers) -> Numbers:
        """The numbers here of documents by where they lie, in an array of the same shape."""
        return self._rank_M[self._members.places(numbers.ravel())].reshape(numbers.shape)

    def equal_content(self) -> tuple[Numbers, Numbers]:
        """See `dedup.Corpus`."""
        return self._pairs(CONTENT)

    def equal_band(self, b: int) -> tuple[Numbers, Numbers]:
        """See `dedup.Corpus`."""
        return self._pairs(1 + b)

    def connect_band(self, b: int, components: Any) -> int:
        """See `dedup.Corpus`."""
        count = 0
        for pairs in self._pairs_of(1 + b):
            place = self._places(pairs)
            components.add_edges(place[:, 0], place[:, 1])
            count += len(place)
        return count

    def matched(self) -> Numbers:
        """See `dedup.Corpus`."""
        found = [np.zeros(0, np.int64)]
        lo = self.column("content_lo")
        same = np.isin(lo, lo[self.train_only_N])
        for table in range(1 + self._num_bands):
            for numbers in self._matched_of(table):
                place = self._places(numbers.ravel())
                found.append(place[same[place]] if table == CONTENT else place)
        return np.unique(np.concatenate(found))

    def _rows(self, members: Numbers) -> list[tuple[Numbers, Numbered, Numbers]]:
        """Places in `members`, the partition they are of, and their rows there."""
        owner = self._owner_M[members]
        found = []
        for part in np.unique(owner).tolist():
            where, p = np.flatnonzero(owner == part), self._parts[part]
            found.append((where, p, self._lies_M[members[where]] - p.start))
        return found

    def texts(self, numbers: Numbers) -> list[bytes]:
        """See `dedup.Corpus`."""
        out: list[bytes] = [b""] * len(numbers)
        for where, p, rows in self._rows(numbers):
            column = self._text_column(p)
            for i, row in zip(where.tolist(), rows.tolist(), strict=True):
                out[i] = column.raw(row)
        return out

    def _read_text(self, partition: Numbered) -> TextColumn:
        return host_text(verified_text(partition.documents, partition.name))

    def signature_rows(self, numbers: Numbers) -> NDArray[np.uint32]:
        """See `dedup.Corpus`."""
        rows_NH: NDArray[np.uint32] | None = None
        for where, p, rows in self._rows(numbers):
            column = p.signatures.read_table(p.name, ["signature"])["signature"].combine_chunks()
            taken = column.take(pa.array(rows))
            width = column.type.byte_width // 4
            flat = np.frombuffer(taken.buffers()[1], np.uint32)[taken.offset * width :][: len(taken) * width]
            if rows_NH is None:
                rows_NH = np.empty((len(numbers), width), np.uint32)
            rows_NH[where] = flat.reshape(-1, width)
        return np.zeros((0, 1), np.uint32) if rows_NH is None else rows_NH

    def score(self, name: str) -> NDArray[np.float64]:
        """See `dedup.Corpus`: a column of scores/."""
        scores = self.boxes.box("scores")

        def read(p: Numbered) -> NDArray[Any]:
            if p.action is not None:
                return np.zeros(p.rows)
            table = scores.read_table(p.name)
            if name not in table.column_names:
                raise ConfigError(
                    f"dedup.fuzzy.keep: highest:{name}: no such score (there are {', '.join(sorted(table.column_names))})"
                )
            values: NDArray[Any] = table[name].to_numpy()
            return values

        return self._gather(read, np.float64)

    @property
    def scratch(self) -> Path:
        return self.boxes.box("duplicates").folder

    def disk_error(self, error: OSError) -> Exception:
        return disk_error(self.scratch, error) if error.errno in DISK_ERRORS else error


class ContentCorpus(RunCorpus):
    """The documents of a run that have the text of another, found from signatures/, whatever the run looked for.

    Memory: about 60 bytes a document.
    """

    def __init__(self, boxes: Boxes, references: Sequence[Reference], by_group: bool):
        """Args: by_group: only within a group, but for the items of reference sets."""
        self._scoped = by_group
        super().__init__(boxes, references, num_bands=0)

    def _pairs_of(self, table: int) -> Iterator[Numbers]:
        columns = [p.signatures.columns(p.name, "content_hi", "scope", "bytes") for p in self._parts]
        if not columns:
            return
        hi_N, scope_N, bytes_N = (np.concatenate(arrays) for arrays in zip(*columns, strict=True))
        edges = components_ops.band_edges(content_key(hi_N, scope_N if self._scoped else None), bytes_N > 0)
        yield np.stack([np.asarray(e, np.int64) for e in edges], axis=1)
        if self._scoped:  # an item of a reference set is compared with documents of every scope
            of_set_N = np.repeat([p.action is not None for p in self._parts], [p.rows for p in self._parts])
            key, item = np.unique(np.where(of_set_N & (bytes_N > 0), hi_N, 0), return_index=True)
            own = np.flatnonzero(~of_set_N & (bytes_N > 0) & np.isin(hi_N, key[key > 0]))
            yield np.stack([own, item[np.searchsorted(key, hi_N[own])]], axis=1)

    def _matched_of(self, table: int) -> Iterator[Numbers]:
        return iter(())
