"""What one task reads: the items of its pieces, up to the limits of the source."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from gpu_curate import guard
from gpu_curate.sources import Batch, ColumnReader, Reader, Record, Reject, Skip
from gpu_curate.sources.sections import SourceBase
from gpu_curate.stages.documents.counts import Place
from gpu_curate.stages.documents.tasks import Piece
from gpu_curate.store.files import open_fresh


def marker_path(folder: Path, part: str) -> Path:
    """In the box's folder: holds the path of the file that a task reads, who it was when a library takes the process down."""
    return folder / f".reading-{part}"


class Block(NamedTuple):
    """A batch, and where each of its rows stands."""

    place: Place  # of the first
    piece: Piece
    batch: Batch
    counted: Any = None  # int64 (rows + 1, 2): documents and bytes that the limits counted in the batch before each row

    def at(self, row: int) -> Place:
        """The place of a row of the batch."""
        place = self.place._replace(items=self.place.items + row)
        if self.counted is None:
            return place
        documents, nbytes = self.counted[row].tolist()
        return place._replace(documents=place.documents + documents, nbytes=place.nbytes + nbytes)

    def before(self, row: int) -> Block:
        """The rows before this one."""
        batch = self.batch
        columns = {name: c.slice(0, row) for name, c in batch.columns.items()}
        return self._replace(batch=Batch(batch.row, batch.texts.slice(0, row), columns))


class TaskItems:
    """What a task's reader gives, up to the source's limits.

    Args:
        marker: file that is told which file is read.
    """

    def __init__(self, source: SourceBase, reader: Reader, pieces: list[Piece], marker: Path):
        self._source, self._reader, self._pieces, self._marker = source, reader, pieces, marker
        self.stopped: str | None = None  # the limit that left something out

    def read(self, start: Place) -> Iterator[tuple[Place, Piece, Record | Reject | Skip]]:
        """The items from `start` on."""
        documents, nbytes = start.documents, start.nbytes
        for number, piece, skip in self._open(start):
            for items, item in enumerate(guard.read(self._reader, piece.split, skip), skip):
                if self._full(documents, nbytes):
                    return
                yield Place(number, items, documents, nbytes), piece, item
                if isinstance(item, Record) and self._limited:
                    documents += 1
                    nbytes += len(item.text.encode("utf-8", "surrogatepass"))

    def blocks(
        self, start: Place, reader: ColumnReader
    ) -> Iterator[Block | tuple[Place, Piece, Record | Reject | Skip]]:
        """The items from `start` on, most records by column; `reader` is the same."""
        documents, nbytes = start.documents, start.nbytes
        for number, piece, items in self._open(start):
            for item in guard.read_batches(reader, piece.split, items):
                if self._full(documents, nbytes):
                    return
                place = Place(number, items, documents, nbytes)
                if not isinstance(item, Batch):
                    yield place, piece, item
                    items += 1
                    if isinstance(item, Record) and self._limited:
                        documents += 1
                        nbytes += len(item.text.encode("utf-8", "surrogatepass"))
                    continue
                block = Block(place, piece, item)
                rows = len(item.texts)
                if self._limited:
                    block, rows = self._counted(block, reader)
                    documents, nbytes = block.at(rows)[2:]
                yield block if rows == len(item.texts) else block.before(rows)
                if rows < len(item.texts):
                    self._full(documents, nbytes)
                    return
                items += rows

    def _open(self, start: Place) -> Iterator[tuple[int, Piece, int]]:
        """Number, piece, and how many of its items to leave out, for each piece from `start` on."""
        with open_fresh(self._marker) as marker:  # never flushed: it is there when the process is not
            for number, piece in enumerate(self._pieces[start.piece :], start.piece):
                marker.seek(0)
                marker.write(os.fsencode(piece.split.path) + b"\n")
                yield number, piece, start.items if number == start.piece else 0

    @property
    def _limited(self) -> bool:
        return self._source.max_documents is not None or self._source.max_bytes is not None

    def _full(self, documents: int, nbytes: int) -> bool:
        """Whether a limit leaves out the next item."""
        most, most_bytes = self._source.max_documents, self._source.max_bytes
        if most is not None and documents >= most:
            self.stopped = "max_documents"
        elif most_bytes is not None and nbytes >= most_bytes:
            self.stopped = "max_bytes"
        return self.stopped is not None

    def _counted(self, block: Block, reader: ColumnReader) -> tuple[Block, int]:
        """The block with what the limits count, and how many of its rows they let through."""
        from gpu_curate.stages.documents.columns import sizes_of

        counted = np.zeros((len(block.batch.texts) + 1, 2), np.int64)
        np.cumsum(sizes_of(block.batch, reader), axis=0, out=counted[1:])
        rows = len(counted) - 1
        for limit, column, before in (
            (self._source.max_documents, 0, block.place.documents),
            (self._source.max_bytes, 1, block.place.nbytes),
        ):
            if limit is not None:
                rows = min(rows, int(np.searchsorted(counted[:, column], limit - before)))
        return block._replace(counted=counted), rows
