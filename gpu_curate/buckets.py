"""Hashes of many partitions on disk, cut by ranges of the hash: equal ones are found range by range, whatever there is in all.

A partition's file holds tables: one of content hashes, one a band. A table is (hash, row) in order of the top K bits of the
hash, rows in order within; a count of each of the 2^K slots comes first, so that a range is read without the rest.
Whoever takes a range of one table from every partition has whole buckets of equal hashes, and needs memory for that range.

    "GPUCBKT1", uint32 K, uint32 T, T x uint64 rows, T x 2^K x uint32 counts, T x (uint64 hashes, uint32 rows), little-endian

Disk: 12 bytes a row and table, and 4 * 2^K a table.

# N rows of a partition, M rows of a table, K bits, T tables, P partitions, E candidate pairs
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpu_curate.errors import CorruptError
from gpu_curate.jit import njit
from gpu_curate.ops.simd import as_input

U64, I64 = np.uint64, np.int64
Hashes = NDArray[np.uint64]
Numbers = NDArray[np.int64]
BandEdges = Callable[[Hashes], tuple[Numbers, Numbers]]

MAGIC = b"GPUCBKT1"
MAX_BITS = 12  # slots are planned with in 2^12 steps; of 250,000 rows a slot holds about 60
SLOTS = 1 << MAX_BITS
_SLOT_WIDTH = 1 << (64 - MAX_BITS)
_ROWS_OF_SLOT = 64
_ENTRY = 12  # bytes of a row in a table
PIECE_ROWS = 4 << 20  # of one table that are sorted at once: 12 bytes each, 8 to sort, 32 a pair
TASK_ROWS = 8 << 20


@njit
def _scatter(hash_N, valid_N, shift, next_B, hash_M, row_M):  # type: ignore[no-untyped-def]
    """Put the valid rows in order of their top bits; next_B holds where each slot begins and is moved on."""
    for d in range(hash_N.size):
        if valid_N[d]:
            slot = I64(hash_N[d] >> U64(shift))
            at = next_B[slot]
            hash_M[at] = hash_N[d]
            row_M[at] = d
            next_B[slot] = at + 1


@njit
def _count(hash_N, valid_N, shift, count_B):  # type: ignore[no-untyped-def]
    for d in range(hash_N.size):
        if valid_N[d]:
            count_B[I64(hash_N[d] >> U64(shift))] += 1


def write_tables(file: BinaryIO, tables: Sequence[tuple[Hashes, NDArray[np.bool_]]]) -> None:
    """Write one partition's tables.

    Args:
        tables: uint64 hash of every row, and whether the row is in the table. Up to 2^32 rows.
    """
    most = max((len(hash_N) for hash_N, _ in tables), default=0)
    bits = min(max((most // _ROWS_OF_SLOT).bit_length(), 1), MAX_BITS)
    shift, valid = 64 - bits, [as_input(valid_N) for _, valid_N in tables]
    counts = np.zeros((len(tables), 1 << bits), np.int64)
    for t, (hash_N, _) in enumerate(tables):
        _count(as_input(hash_N), valid[t], shift, counts[t])
    rows = counts.sum(axis=1)
    file.write(MAGIC + np.array([bits, len(tables)], "<u4").tobytes() + rows.astype("<u8").tobytes())
    file.write(counts.astype("<u4").tobytes())
    for t, (hash_N, _) in enumerate(tables):
        hash_M, row_M = np.empty(rows[t], np.uint64), np.empty(rows[t], np.uint32)
        _scatter(as_input(hash_N), valid[t], shift, np.cumsum(counts[t]) - counts[t], hash_M, row_M)
        file.write(hash_M.astype("<u8", copy=False).data)
        file.write(row_M.astype("<u4", copy=False).data)


class Tables:
    """The tables of one partition, as they lie on disk. Holds the counts of the slots; a slice is read when it is asked for.

    Raises:
        CorruptError: no such file, or one of another kind or length.
    """

    def __init__(self, path: Path):
        self.path = path
        try:
            with path.open("rb") as file:
                head = file.read(16)
                if head[:8] != MAGIC or len(head) < 16:
                    raise CorruptError(f"{path} is no file of bucket tables")
                self.bits, tables = (int(v) for v in np.frombuffer(head, "<u4", offset=8))
                if not 1 <= self.bits <= MAX_BITS or tables > 1 << 20:
                    raise CorruptError(f"{path} is no file of bucket tables")
                self.rows_T = np.fromfile(file, "<u8", tables).astype(np.int64)
                counts = np.fromfile(file, "<u4", tables << self.bits).astype(np.int64)
                begin = file.tell()
        except OSError as e:
            raise CorruptError(f"{path}: {e.strerror}") from e
        if len(counts) != tables << self.bits or (counts.reshape(tables, -1).sum(axis=1) != self.rows_T).any():
            raise CorruptError(f"{path} is cut short or damaged")
        self.starts = np.zeros((tables, (1 << self.bits) + 1), np.int64)
        np.cumsum(counts.reshape(tables, -1), axis=1, out=self.starts[:, 1:])
        self._begin_T = begin + _ENTRY * (np.cumsum(self.rows_T) - self.rows_T)
        if path.stat().st_size != begin + _ENTRY * int(self.rows_T.sum()):
            raise CorruptError(f"{path} is cut short or damaged")

    def slots(self, table: int) -> NDArray[np.float64]:
        """Rows of each of 2^12 slots; where the file has fewer, their rows are taken to lie evenly."""
        wide = SLOTS >> self.bits
        return np.repeat(np.diff(self.starts[table]) / wide, wide)

    def read(self, table: int, low: int, high: int) -> tuple[Hashes, NDArray[np.uint32]]:
        """(hash, row) with low <= hash <= high, in order of the file. Raises: CorruptError: the file was cut."""
        shift = 64 - self.bits
        start, stop = int(self.starts[table, low >> shift]), int(self.starts[table, (high >> shift) + 1])
        n, begin = stop - start, int(self._begin_T[table])
        with self.path.open("rb") as file:
            file.seek(begin + 8 * start)
            hash_M = np.fromfile(file, "<u8", n)
            file.seek(begin + 8 * int(self.rows_T[table]) + 4 * start)
            row_M = np.fromfile(file, "<u4", n)
        if len(hash_M) != n or len(row_M) != n:
            raise CorruptError(f"{self.path} is cut short")
        mask = (1 << shift) - 1
        if low & mask or (high & mask) != mask:  # the slots reach beyond the range
            inside = (hash_M >= np.uint64(low)) & (hash_M <= np.uint64(high))
            hash_M, row_M = hash_M[inside], row_M[inside]
        return hash_M, row_M


class Range(NamedTuple):
    """The hashes low..high of one table."""

    table: int
    low: int
    high: int


@dataclass(frozen=True)
class Partition:
    """The tables of a partition and the number of its first document.

    Attributes:
        shift: its tables are so many before those that a range names.
    """

    tables: Tables
    start: int
    shift: int = 0

    def read(self, found: Range, only: Hashes | None = None) -> tuple[Hashes, Numbers]:
        """(hash, document number) of a range, in order of the file; of hashes in `only` (in order) if that is given."""
        hash_M, row_M = self.tables.read(found.table - self.shift, found.low, found.high)
        if only is not None:
            place = np.minimum(np.searchsorted(only, hash_M), max(len(only) - 1, 0))
            same = only[place] == hash_M if len(only) else np.zeros(len(hash_M), np.bool_)
            hash_M, row_M = hash_M[same], row_M[same]
        return hash_M, row_M.astype(np.int64) + self.start

    def rows(self, found: Range) -> float:
        """How many rows the slots of a range have."""
        wide = 64 - MAX_BITS
        slots = self.tables.slots(found.table - self.shift)
        return float(slots[found.low >> wide : (found.high >> wide) + 1].sum())


def hashes_of(partitions: Sequence[Partition], found: Range) -> Hashes:
    """The hashes of a range, each once, in order."""
    return np.unique(np.concatenate([np.zeros(0, np.uint64), *(p.read(found)[0] for p in partitions)]))


def plan_ranges(partitions: Sequence[Tables], tables: int | range, piece: int = PIECE_ROWS) -> list[tuple[Range, int]]:
    """Ranges that cover some tables (all of the first `tables`), each of about `piece` rows at most, with the rows that are expected in each.

    A slot of 2^-12 of all hashes is not cut here: `pairs_in` cuts what is too large for it.
    """
    ranges: list[tuple[Range, int]] = []
    for table in range(tables) if isinstance(tables, int) else tables:
        slots = np.zeros(SLOTS)
        for partition in partitions:
            slots += partition.slots(table)
        first, held = 0, 0.0
        for slot, rows in enumerate(slots.tolist()):
            if held and held + rows > piece:
                ranges.append((Range(table, first * _SLOT_WIDTH, slot * _SLOT_WIDTH - 1), round(held)))
                first, held = slot, 0.0
            held += rows
        if held:
            ranges.append((Range(table, first * _SLOT_WIDTH, (1 << 64) - 1), round(held)))
    return ranges


def grouped(ranges: Sequence[tuple[Range, int]], rows: int = TASK_ROWS) -> list[list[Range]]:
    """Ranges in order, as many together as make about `rows` rows: one task each."""
    tasks: list[list[Range]] = []
    held = 0
    for found, expected in ranges:
        if not tasks or held + expected > rows:
            tasks.append([])
            held = 0
        tasks[-1].append(found)
        held += expected
    return tasks


def _gather(partitions: Sequence[Partition], found: Range, only: Hashes | None) -> tuple[Hashes, Numbers]:
    """All of a range: (hash, document number), partitions in order."""
    pieces = [p.read(found, only) for p in partitions]
    hashes = np.concatenate([np.zeros(0, np.uint64), *(h for h, _ in pieces)])
    return hashes, np.concatenate([np.zeros(0, np.int64), *(n for _, n in pieces)])


def pairs_in(
    partitions: Sequence[Partition],
    found: Range,
    band_edges: BandEdges,
    piece: int = PIECE_ROWS,
    only: Sequence[Partition] | None = None,
) -> Iterator[tuple[Numbers, Numbers]]:
    """The candidate pairs of a range: documents of equal hash, neighbours in their bucket or each with its first.

    Args:
        partitions: in order of their document numbers.
        band_edges: `ops.components.band_edges`, on either side.
        piece: rows that are held at once; more are cut by the next bits of their hashes.
        only: buckets in which none of these has a document give no pair.
    Yields:
        a_E, b_E: int64 document numbers, a < b. A bucket of k documents gives k - 1 pairs that connect it.
    Memory: about 60 bytes a row of a piece; a bucket larger than a piece goes through partition by partition.
    """
    wanted = None if only is None else hashes_of(only, found)
    if wanted is None or len(wanted):
        yield from _pairs(partitions, found, band_edges, piece, wanted, sum(p.rows(found) for p in partitions))


def _pairs(
    partitions: Sequence[Partition], found: Range, band_edges: BandEdges, piece: int, only: Hashes | None, rows: float
) -> Iterator[tuple[Numbers, Numbers]]:
    """See `pairs_in`. `rows`: how many there are, at most."""
    if rows <= piece:
        hashes, numbers = _gather(partitions, found, only)
        a_E, b_E = band_edges(hashes)
        if len(a_E):
            yield numbers[a_E], numbers[b_E]
    elif found.low == found.high:
        yield from _star(partitions, found, only)
    else:
        for smaller, held in _cut(partitions, found, piece):
            yield from _pairs(partitions, smaller, band_edges, piece, only, held)


def _cut(partitions: Sequence[Partition], found: Range, piece: int) -> list[tuple[Range, int]]:
    """A range cut by the next 12 bits of its hashes, with the rows of each part; parts hold up to `piece` where they can."""
    step = max((found.high - found.low + 1) >> MAX_BITS, 1)
    counts = np.zeros((found.high - found.low) // step + 1, np.int64)
    for p in partitions:
        hash_M, _ = p.read(found)
        place = ((hash_M - np.uint64(found.low)) // np.uint64(step)).astype(np.int64)
        counts += np.bincount(place, minlength=len(counts))
    parts: list[tuple[Range, int]] = []
    first, last, held = 0, 0, 0

    def end() -> None:
        if held:
            high = min(found.low + (last + 1) * step - 1, found.high)
            parts.append((Range(found.table, found.low + first * step, high), held))

    for i in np.flatnonzero(counts).tolist():
        if held and held + counts[i] > piece:
            end()
            held = 0
        first, last, held = (first if held else i), i, held + int(counts[i])
    end()
    return parts


def _star(partitions: Sequence[Partition], found: Range, only: Hashes | None) -> Iterator[tuple[Numbers, Numbers]]:
    """One bucket, each document with its first."""
    first: int | None = None
    for p in partitions:
        _, numbers = p.read(found, only)
        if len(numbers) and first is None:
            first, numbers = int(numbers[0]), numbers[1:]
        if len(numbers) and first is not None:
            yield np.full(len(numbers), first), numbers
