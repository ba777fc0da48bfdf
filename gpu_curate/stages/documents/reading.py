"""What one task reads: the items of its pieces, up to the limits of the source."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from gpu_curate import guard
from gpu_curate.sources import Reader, Record, Reject, Skip
from gpu_curate.sources.sections import SourceBase
from gpu_curate.stages.documents.counts import Place
from gpu_curate.stages.documents.tasks import Piece
from gpu_curate.store.files import open_fresh


def marker_path(folder: Path, part: str) -> Path:
    """In the box's folder: holds the path of the file that a task reads, who it was when a library takes the process down."""
    return folder / f".reading-{part}"


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
        most, most_bytes = self._source.max_documents, self._source.max_bytes
        documents, nbytes = start.documents, start.nbytes
        with open_fresh(self._marker) as marker:  # never flushed: it is there when the process is not
            for number, piece in enumerate(self._pieces[start.piece :], start.piece):
                skip = start.items if number == start.piece else 0
                marker.seek(0)
                marker.write(os.fsencode(piece.split.path) + b"\n")
                for items, item in enumerate(guard.read(self._reader, piece.split, skip), skip):
                    if most is not None and documents >= most:
                        self.stopped = "max_documents"
                        return
                    if most_bytes is not None and nbytes >= most_bytes:
                        self.stopped = "max_bytes"
                        return
                    yield Place(number, items, documents, nbytes), piece, item
                    if isinstance(item, Record) and (most is not None or most_bytes is not None):
                        documents += 1
                        nbytes += len(item.text.encode("utf-8", "surrogatepass"))
