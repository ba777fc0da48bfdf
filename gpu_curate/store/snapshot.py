"""What a run reads: its files in order, each under the number that it keeps, and the partitions made of them.

Boxes are shared by what a run directory (or a cache) held before and holds now, so a folder may have partitions that the
present run does not ask for. A snapshot says which ones it does. `.corpus/FINGERPRINT.json` in the run directory, one for each
set of inputs, so that earlier sets of shards can still be read.
"""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Any

import numpy as np

from gpu_curate.document import MAX_FILES, ROW_BITS
from gpu_curate.errors import CorruptError
from gpu_curate.store.files import read_json, write_json

FOLDER = ".corpus"  # in a run directory
_DIGITS = 16
_FINGERPRINT = re.compile(r"[0-9a-f]{16,64}")


class Snapshot:
    """One of them, as it was written.

    Attributes:
        files: in the order of the sources and of the names in each: number, source, path, relative, bytes, identity, rows.
        tasks: names of the partitions; those of one task are NAME, NAME-001, ...
        boxes: name → fingerprint of the folder that it lies in, of the boxes that hold partitions of more than this run.
        following: boxes whose partitions are those of documents/.
        shared: boxes that lie in the cache, if the run has one.
        plain: partitions lie in the order of their doc_ids.
    """

    def __init__(self, facts: dict[str, Any]):
        self.files: list[dict[str, Any]] = list(facts["files"])
        for file in self.files:
            if type(file["number"]) is not int or not 0 <= file["number"] < MAX_FILES:
                raise ValueError(f"file number {file['number']!r}")
            if not all(isinstance(file[key], str) for key in ("source", "path", "relative")):
                raise TypeError("names of files are texts")
        self.tasks = frozenset(facts["tasks"])
        self.boxes: dict[str, str] = dict(facts["boxes"])
        self.following, self.shared = frozenset(facts["following"]), frozenset(facts["shared"])
        self.plain = bool(facts["plain"])
        self._tasks_of: dict[str, list[str]] = facts["tasks_of"]

    def holds(self, part: str) -> bool:
        """True of the partitions of the run, in documents/ and every box that follows it."""
        return part.partition("-")[0] in self.tasks

    def tasks_of(self, number: int) -> list[str]:
        """The tasks that read the file of that number."""
        return self._tasks_of.get(str(number), [])

    @functools.cached_property
    def in_order(self) -> bool:
        """True if the files' numbers are their places: nothing was added to the run or taken from it."""
        return all(f["number"] == place for place, f in enumerate(self.files))

    @functools.cached_property
    def by_number(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """int64: number of a file → its place in `files`; -1 without one."""
        place = np.full(max((f["number"] for f in self.files), default=-1) + 1, -1, np.int64)
        place[[f["number"] for f in self.files]] = np.arange(len(self.files))
        return place

    def places(self, doc_id_N: np.ndarray[Any, Any]) -> np.ndarray[Any, np.dtype[np.int64]]:
        """int64 of N: what doc_ids would be if the files were numbered in order. Ties go by these, so that no output byte but
        a doc_id depends on which file came first into a run. Items of reference sets keep their numbers."""
        if self.in_order:
            return doc_id_N
        number_N = doc_id_N >> ROW_BITS
        own = number_N < MAX_FILES
        found = np.array(doc_id_N, np.int64)
        found[own] = self.by_number[number_N[own]] << ROW_BITS | doc_id_N[own] & ((1 << ROW_BITS) - 1)
        return found


def snapshot_path(run: Path, fingerprint: str) -> Path:
    """Where that of a documents box with this fingerprint lies. What is no fingerprint names a file that is not there."""
    return run / FOLDER / (f"{fingerprint[:_DIGITS]}.json" if _FINGERPRINT.fullmatch(fingerprint) else "none.json")


def write_snapshot(path: Path, facts: dict[str, Any]) -> None:
    """Publish a snapshot, unless it is there already. `facts`: plain data, by the names of the attributes, and tasks_of."""
    facts = {"version": 1, **facts}
    try:
        if read_json(path) == facts:
            return
    except (OSError, CorruptError):
        pass
    write_json(path, facts)


def read_snapshot(path: Path) -> Snapshot:
    """Raises: CorruptError: it is no snapshot of this version. OSError: it is not there."""
    stat = path.stat()
    return _read(path, stat.st_mtime_ns, stat.st_size, stat.st_ino)


def older_snapshot(documents: Path) -> Snapshot:
    """Of a run of version 0.2 or earlier, whose documents box holds what it read and nothing else. Raises: OSError, CorruptError."""
    files = read_json(documents / ".files.json")
    nothing: dict[str, Any] = {"tasks": [], "tasks_of": {}, "boxes": {}, "following": [], "shared": [], "plain": True}
    try:
        return Snapshot({**nothing, "files": [{**f, "number": i} for i, f in enumerate(files)]})
    except (KeyError, TypeError, ValueError) as e:
        raise CorruptError(f"{documents / '.files.json'} does not say what a run read: {e}") from e


@functools.lru_cache(maxsize=4)
def _read(path: Path, *state: int) -> Snapshot:
    facts = read_json(path)
    try:
        if facts["version"] != 1:
            raise CorruptError(f"{path} is of version {facts['version']}, this program writes 1")
        return Snapshot(facts)
    except (KeyError, TypeError, ValueError, AttributeError) as e:
        raise CorruptError(f"{path} does not say what a run read: {type(e).__name__}: {e}") from e
