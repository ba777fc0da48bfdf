"""Candidates: pairs of documents that share a hash, found range by range of the hash, each range a task of its own.

# E candidate pairs
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from gpu_curate.errors import CorruptError
from gpu_curate.ops.components import band_edges
from gpu_curate.stages import Boxes, Made, Stage
from gpu_curate.stages.part import Part
from gpu_curate.stages.sections import Dedup, Reference
from gpu_curate.stages.signatures import TABLES
from gpu_curate.store.artifact import Box
from gpu_curate.store.files import publish, read_json, write_json
from gpu_curate.store.receipts import Counts

if TYPE_CHECKING:
    from gpu_curate.buckets import Partition, Range, Tables

PAIRS, MATCHED = ".pairs", ".matched"  # suffixes
_PLAN = ".plan.json"
CONTENT = 0  # the table of content hashes; band b is table 1 + b


@dataclass(frozen=True, kw_only=True)
class CandidateCounts(Counts):
    """Attributes:
    pairs: [table, how many], in the order of the file.
    matched: [table, how many], likewise.
    """

    pairs: tuple[tuple[int, int], ...] = ()
    matched: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class Numbered:
    """A partition whose documents may be duplicates: the sources', then the reference sets'.

    Attributes:
        documents, signatures: its boxes.
        name: of the partition in both.
        start: number of its first document; numbers are in order of doc_id.
        rows: how many documents it has.
        action: of its reference set; None: a source's.
    """

    documents: Box
    signatures: Box
    name: str
    start: int
    rows: int
    action: str | None


def numbered(boxes: Boxes, references: Sequence[Reference]) -> list[Numbered]:
    """Every partition whose documents are compared, in order of doc_id."""
    found: list[Numbered] = []
    start = 0
    pairs = [("documents", "signatures")]
    if boxes.has("reference_signatures"):
        pairs.append(("references", "reference_signatures"))
    for of_documents, of_signatures in pairs:
        documents, signatures = boxes.box(of_documents), boxes.box(of_signatures)
        for name in documents.parts():
            action = references[int(name)].action if of_documents == "references" else None
            if action == "decontaminate":
                continue
            rows = documents.counts(name, Counts).documents
            found.append(Numbered(documents, signatures, name, start, rows, action))
            start += rows
    return found


class Candidates(Stage):
    """Find documents of equal hash: of content, and of each band.

    Reads: the tables of signatures/ and reference_signatures/.  Writes, per task: part.pairs (int64 pairs a < b of document
    numbers, k - 1 of a bucket of k, that connect it) and part.matched (int64 numbers of documents that share a hash with an
    item of a `train_only` set). A task is some ranges of hashes, so it needs memory for those, whatever there is in all.
    With `scope: group` documents of one group meet in the tables with the scope, and the items of sets in those without.
    Memory: about 60 bytes a row of a range, of which there are 2^22 at most (`buckets.PIECE_ROWS`).
    """

    name: ClassVar[str] = "candidates"
    on_device: ClassVar[bool] = True

    def __init__(self, dedup: Dedup, references: Sequence[Reference]):
        self.section, self.references = dedup, references
        self._actions = [(r.name, r.action) for r in references if r.action != "decontaminate"]
        of_sets = ("references", "reference_signatures") if self._actions else ()
        self.inputs = ("documents", "signatures", *of_sets)

    def settings(self) -> Any:
        return {"exact": bool(self.section.exact), "actions": self._actions}

    @property
    def _num_tables(self) -> int:
        """Of one scope."""
        return 1 + (0 if self.section.fuzzy is None else self.section.fuzzy.num_bands)

    @property
    def _by_group(self) -> bool:
        return self.section.fuzzy is not None and self.section.fuzzy.scope == "group"

    def plan(self, boxes: Boxes) -> Mapping[str, Any]:
        """The ranges of each task. They are kept in the box, so that a run with nothing to do reads no table."""
        path = boxes.box(self.name).folder / _PLAN
        try:
            tasks: dict[str, Any] = read_json(path)
        except (OSError, CorruptError):
            tasks = self._plan(boxes)
            write_json(path, tasks)
        return tasks

    def _plan(self, boxes: Boxes) -> dict[str, Any]:
        from gpu_curate.buckets import grouped, plan_ranges  # loads Numba, which a run with nothing to do does without

        parts = numbered(boxes, self.references)
        ranges: list[tuple[Range, int]] = []
        if self._by_group:  # the items stand in the first tables of their sets, and in the last of the documents
            ranges += plan_ranges([_tables(p) for p in parts if p.action is None], self._num_tables)
            if self._actions:
                last = range(self._num_tables, 2 * self._num_tables)
                ranges += plan_ranges([_tables(p) for p in parts if p.action is None], last)
        else:
            ranges += plan_ranges([_tables(p) for p in parts], self._num_tables)
        sets = any(action == "train_only" for _, action in self._actions)
        wanted = [
            (r, rows) for r, rows in ranges if self.section.exact or sets or r.table % self._num_tables != CONTENT
        ]
        return {f"{i:06d}": task for i, task in enumerate(grouped(wanted) or [[]])}

    def make(self, part: Part) -> Made:
        from gpu_curate.buckets import Partition, Range, pairs_in

        parts = [(p, _tables(p)) for p in numbered(part.boxes, self.references)]
        finder = _OnDevice() if part.backend == "gpu" else None
        edges = band_edges if finder is None else finder.edges
        pairs: list[tuple[int, int]] = []
        matched: list[tuple[int, int]] = []
        with (
            publish(part.path(PAIRS)) as pairs_temp,
            pairs_temp.open("wb") as pairs_file,
            publish(part.path(MATCHED)) as matched_temp,
            matched_temp.open("wb") as matched_file,
        ):
            for found in (Range(*r) for r in part.task):
                table = found.table % self._num_tables
                unscoped = found.table >= self._num_tables
                documents = [Partition(t, p.start) for p, t in parts if p.action is None]
                shift = self._num_tables if unscoped else 0
                compared, items = (
                    [Partition(t, p.start, shift) for p, t in parts if p.action == action]
                    for action in ("dedup_against", "train_only")
                )
                if table != CONTENT or self.section.exact:
                    among = documents if self._by_group and not unscoped else documents + compared
                    only = compared if unscoped else None
                    count = 0
                    for a_E, b_E in pairs_in(among, found, edges, only=only):
                        pairs_file.write(np.stack([a_E, b_E], axis=1).astype("<i8").data)
                        count += len(a_E)
                    pairs.append((table, count))
                if items and (unscoped or not self._by_group):
                    count = 0
                    for numbers in _matched(documents + compared, items, found):
                        matched_file.write(numbers.astype("<i8").data)
                        count += len(numbers)
                    matched.append((table, count))
        how = part.backend if finder is None else finder.how
        counts = CandidateCounts(backend=how, pairs=tuple(pairs), matched=tuple(matched))
        return Made(counts, files=(part.path(PAIRS), part.path(MATCHED)))


def _tables(partition: Numbered) -> Tables:
    from gpu_curate.buckets import Tables

    return Tables(partition.signatures.verified(partition.name, TABLES))


class _OnDevice:
    """`band_edges` on the device; a range that does not fit there is left to the CPU twin.

    Attributes:
        how: where ranges were sorted, as the report names it.
    """

    def __init__(self) -> None:
        self.how = "gpu"

    def edges(self, hashes: NDArray[np.uint64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        from gpu_curate.device.backend import losing_the_device, to_device
        from gpu_curate.device.runtime import cuda

        with losing_the_device():
            try:
                a_E, b_E = band_edges(to_device(hashes))
                return a_E.get(), b_E.get()
            except cuda().out_of_memory:
                self.how = "gpu+cpu (device full)"
            cuda().release()  # behind the handler: while the error is handled its traceback holds the arrays
        return band_edges(hashes)


def _matched(chosen: list[Partition], items: list[Partition], found: Range) -> Iterator[NDArray[np.int64]]:
    """Numbers of the documents of a range whose hash an item has."""
    from gpu_curate.buckets import hashes_of

    hashes = hashes_of(items, found)
    for p in chosen:
        yield p.read(found, hashes)[1]


def pairs_of(box: Box, table: int) -> Iterator[NDArray[np.int64]]:
    """(E, 2) int64: the pairs of one table, task by task. Raises: CorruptError."""
    yield from _slices(box, PAIRS, table, 2)


def matched_of(box: Box, table: int) -> Iterator[NDArray[np.int64]]:
    """(E, 1) int64: the documents of one table that an item matched, task by task. Raises: CorruptError."""
    yield from _slices(box, MATCHED, table, 1)


def _slices(box: Box, suffix: str, table: int, width: int) -> Iterator[NDArray[np.int64]]:
    for receipt in box.receipts(CandidateCounts):
        at = 0
        for of_table, count in receipt.counts.pairs if suffix == PAIRS else receipt.counts.matched:
            if of_table == table and count:
                path = box.verified(receipt.part, suffix)
                yield np.fromfile(path, "<i8", count * width, offset=8 * width * at).reshape(-1, width)
            at += count
