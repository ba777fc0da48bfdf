"""A finished run's boxes as questions read them: columns of partitions, in the order of documents/.

The one place that knows how boxes and receipts look. Files are not hashed here, as a stage does before it reads: a question
about ten million documents is to be answered in a second. Their sizes are compared with their receipts.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from gpu_curate.buckets import Tables
from gpu_curate.config import Config
from gpu_curate.document import TextColumn
from gpu_curate.errors import ConfigError
from gpu_curate.runs.finished import open_run
from gpu_curate.stages import Context
from gpu_curate.stages.cut_tokens import CutTokenCounts
from gpu_curate.stages.documents.counts import DocumentCounts
from gpu_curate.stages.partition_text import host_text, read_origin, text_file
from gpu_curate.stages.rule_values import bits_of_run
from gpu_curate.stages.shards import published_names
from gpu_curate.stages.signatures import TABLES
from gpu_curate.store.artifact import Box
from gpu_curate.store.run_directory import read_run_file

Array = np.ndarray[Any, np.dtype[Any]]
T = TypeVar("T")


class Stored:
    """The boxes of a run whose documents are decided.

    Attributes:
        context: of the run.
        config: the recipe that it was made with.
    Raises:
        ConfigError: no run directory, no such shards, or its documents are not decided yet (`runs.finished.open_run`).
    """

    def __init__(self, run: str | os.PathLike[str], shards: str | None = None):
        self.context: Context = open_run(Path(run), shards)
        self.config: Config = self.context.config

    @property
    def run(self) -> Path:
        return self.context.run

    @cached_property
    def bits(self) -> dict[str, int]:
        """Reason → its bit in `failing` of decisions/, in the order in which the reasons are tried."""
        return bits_of_run(self.context)

    def failing(self, failing: int) -> list[str]:
        """The rules of a bit set of decisions/, in that order."""
        return [name for name, bit in self.bits.items() if failing >> bit & 1]

    def late_rejects(self, box: str) -> int:
        """Documents that the step of a box rejected."""
        return sum(r.late_rejects for r in self.box(box).receipts())

    def has(self, name: str) -> bool:
        return self.context.has(name)

    def box(self, name: str) -> Box:
        """Raises: ConfigError: the run has no such box."""
        if not self.has(name):
            there = ", ".join(sorted(self.context.folders))
            raise ConfigError(f"{self.run}: this run has no {name}", f"it has {there}")
        return self.context.box(name)

    @cached_property
    def parts(self) -> list[str]:
        """Names of the partitions, in the order of their doc_ids."""
        return self.box("documents").parts()

    def path(self, box: str, part: str, suffix: str = ".parquet") -> Path:
        """A partition's file. Raises: ConfigError: it is not there, or has another size than its receipt says."""
        of = self.box(box)
        if of.receipt(part) is None:
            raise ConfigError(
                f"{of.path(part, suffix)} is gone, or has another size than its receipt says",
                "run the recipe again: it makes what is missing",
            )
        return of.path(part, suffix)

    def table(self, box: str, part: str, columns: list[str] | None = None) -> pa.Table:
        """Columns of a partition. Raises: ConfigError: it lacks one, as that of an earlier version may."""
        with pq.ParquetFile(self.path(box, part), memory_map=True) as file:
            self._check(box, columns or [], file.schema_arrow.names)
            return file.read(columns, use_threads=False)

    def columns(self, box: str, part: str, *names: str) -> list[Array]:
        """Columns without nulls as arrays of N."""
        table = self.table(box, part, list(names))
        return [table[name].to_numpy() for name in names]

    def _check(self, box: str, wanted: list[str], there: list[str]) -> None:
        lacking = [name for name in wanted if name not in there]
        if lacking:
            version = read_run_file(self.run).get("version", "an unknown version")
            raise ConfigError(
                f"{self.run}: {box}/ has no column {', '.join(lacking)} (the run was made by gpu_curate {version})",
                "run its recipe again with this version",
            )

    def text(self, part: str, numbers: Array | None = None) -> TextColumn:
        """The texts of a partition, wherever they lie; of these (increasing) numbers, if some are given."""
        self.path("documents", part)
        return host_text(text_file(self.box("documents"), part), numbers)

    def text_files(self, parts: list[str]) -> dict[str, dict[str, Path]]:
        """Kind (text, reference) → partition → the file of its texts."""
        found: dict[str, dict[str, Path]] = {}
        for part in parts:
            path = text_file(self.box("documents"), part)
            kind = "text" if read_origin(pq.read_schema(path)) is None else "reference"
            found.setdefault(kind, {})[part] = path
        return found

    def each(self, work: Callable[[str], T]) -> Iterator[T]:
        """`work` of every partition, in order; some at a time, since reading and most of NumPy let others run."""
        with ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool:
            yield from pool.map(work, self.parts)

    @cached_property
    def parts_with_documents(self) -> list[str]:
        """Those of `parts` that hold a document."""
        return [r.part for r in self.box("documents").receipts() if r.counts.documents]

    def first_id(self, part: str) -> int:
        """The lowest doc_id of a partition, from its footer."""
        with pq.ParquetFile(self.path("documents", part), memory_map=True) as file:
            column = file.schema_arrow.get_field_index("doc_id")
            return int(file.metadata.row_group(0).column(column).statistics.min)

    def files(self) -> list[dict[str, Any]]:
        """The input files by number: source, path as it was opened, relative: below the source's folder. All are "" of a number
        that no file has: one that was taken from the run."""
        files = self.context.snapshot().files
        nothing = {"source": "", "path": "", "relative": ""}
        found: list[dict[str, Any]] = [nothing] * (max((f["number"] for f in files), default=-1) + 1)
        for file in files:
            found[file["number"]] = file
        return found

    def file_names(self) -> list[tuple[str, str, str, str]]:
        """Of every input file its source and the names that it goes by: as opened, below its folder, as published."""
        files = self.context.snapshot().files
        names = {f["number"]: name for f, name in zip(files, published_names(files), strict=True)}
        return [(f["source"], f["path"], str(f["relative"]), names.get(i, "")) for i, f in enumerate(self.files())]

    def bands(self, part: str, num_bands: int) -> Array:
        """uint64 (N, bands): the bucket of every document of a partition in every band; of one without a shingle, which is in no
        bucket, a number that no other has."""
        (doc_id_N,) = self.columns("documents", part, "doc_id")
        found = np.repeat((doc_id_N.astype(np.uint64) | np.uint64(1 << 63))[:, None], num_bands, axis=1)
        tables = Tables(self.path("signatures", part, TABLES))
        for band in range(num_bands):
            hash_M, row_M = tables.read(1 + band, 0, (1 << 64) - 1)
            found[row_M, band] = hash_M
        return found

    def clusters(self) -> pa.Table:
        """clusters.parquet, in order of doc_id."""
        path = self.box("duplicates").folder / "clusters.parquet"
        with pq.ParquetFile(path, memory_map=True) as file:
            return file.read(use_threads=False)

    def documents(self) -> int:
        return sum(r.counts.documents for r in self.box("documents").receipts())

    def source_documents(self) -> dict[str, int]:
        """Source → documents in documents/."""
        found = {s.name: 0 for s in self.config.sources}
        for receipt in self.box("documents").receipts(DocumentCounts):
            for name, count in receipt.counts.sources.items():
                found[name] += count
        return found

    def rejects(self) -> list[Path]:
        """Files of JSON lines, one a rejected record, of those that documents/ was made with."""
        box = self.box("documents")
        folder = box.folder.parent / box.folder.name.replace("documents", "rejects", 1)
        here = set(box.parts())
        return [
            p for p in sorted(folder.glob("part-*.jsonl")) if p.name.removeprefix("part-").partition(".")[0] in here
        ]

    def rejected(self) -> int:
        """Records that could not be read into documents/."""
        return sum(sum(r.counts.rejected.values()) for r in self.box("documents").receipts(DocumentCounts))

    def cut(self) -> dict[str, int] | None:
        """Documents with a cut, and the tokens and bytes that they lost; None where the recipe cuts nothing."""
        if not self.has("cut_tokens"):
            return None
        made = [r.counts for r in self.box("cut_tokens").receipts(CutTokenCounts)]
        sums = (sum(c.cut_documents for c in made), sum(c.cut_tokens for c in made), sum(c.cut_bytes for c in made))
        return dict(zip(UNITS, sums, strict=True))

    def not_drawn(self) -> dict[str, int]:
        """Documents, tokens and bytes that passed every rule and that the mixture of the shards left out."""
        from gpu_curate.loader import read_manifest

        folder = self.box("shards").folder if self.has("shards") else None
        manifest = read_manifest(folder) if folder is not None and folder.is_dir() else None
        left = ((manifest or {}).get("mixture") or {}).get("not_drawn") or {}
        return {unit: left.get(key, 0) for unit, key in NOT_DRAWN_KEYS.items()}


UNITS = ("documents", "tokens", "bytes")
NOT_DRAWN_KEYS = {"documents": "documents", "tokens": "tokens", "bytes": "bytes_of_text"}  # as the manifest has them
