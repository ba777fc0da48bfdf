"""Stages: one box of the data flow each. A stage does not know who runs it, or in which process.

A stage that `follows` another box makes one partition for each partition of that box, as soon as it is there. The others
say in `plan` what their tasks are, once everything they read is complete. Every task is a pure function of the boxes it
reads and of the stage's own fields, so running it twice writes the same bytes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from gpu_curate.store.receipts import C, Counts, Receipt

if TYPE_CHECKING:  # the sections beside the stages are part of the config, which is read before pyarrow is loaded
    import pyarrow as pa

    from gpu_curate.config import Config
    from gpu_curate.stages.part import Part
    from gpu_curate.store.artifact import Box
    from gpu_curate.store.snapshot import Snapshot


@dataclass(frozen=True)
class Boxes:
    """The boxes of a run: what a task may read. Small and picklable: it travels with every task."""

    run: Path
    folders: dict[str, str] = field(default_factory=dict)  # box name → folder of its present fingerprint
    backend: str = "cpu"
    devices: tuple[str, ...] = ()  # all CUDA devices of the run; a worker sees one of them
    strict: bool = False  # the first record that cannot be taken ends the run
    verified: str | None = None  # the run's record of files whose content was checked
    corpus: str = ""  # fingerprint of documents/, which names the snapshot of what is read; "": all that lies there
    parted: frozenset[str] = frozenset()  # boxes whose partitions are those of documents/
    cache: Path | None = None  # where the boxes in `shared` lie, instead of the run directory
    shared: frozenset[str] = frozenset()
    stamps: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # box → facts of receipts written there

    def root(self, name: str) -> Path:
        """The folder in which that of a box lies: the run directory or the cache."""
        return self.cache if self.cache is not None and name in self.shared else self.run

    def box(self, name: str) -> Box:
        from gpu_curate.store.artifact import Box
        from gpu_curate.store.snapshot import snapshot_path

        snapshot = snapshot_path(self.run, self.corpus) if self.corpus and name in self.parted else None
        return Box(self.root(name) / self.folders[name], snapshot, self.stamps.get(name), self.verified)

    def snapshot(self) -> Snapshot:
        """What the run reads. Raises: OSError, CorruptError."""
        from gpu_curate.store.run_directory import read_run_file
        from gpu_curate.store.snapshot import older_snapshot, read_snapshot, snapshot_path

        fingerprint_of = read_run_file(self.run).get("fingerprints") if not self.corpus else None
        path = snapshot_path(self.run, self.corpus or str((fingerprint_of or {}).get("documents")))
        return read_snapshot(path) if path.exists() else older_snapshot(self.box("documents").folder)

    def has(self, name: str) -> bool:
        return name in self.folders

    def receipts(self, name: str, kind: type[C]) -> list[Receipt[C]]:
        """The receipts of a box, their counts as `kind`; none of a box that the run has not."""
        return list(self.box(name).receipts(kind)) if self.has(name) else []


@dataclass(frozen=True)
class Context(Boxes):
    """A run as a whole, its recipe too: for the report and the tools. No stage sees it."""

    config: Config = field(kw_only=True)

    @classmethod
    def of(
        cls,
        run: Path,
        config: Config,
        folders: dict[str, str],
        backend: str = "cpu",
        devices: tuple[str, ...] = (),
    ) -> Context:
        """The run of a recipe."""
        return cls(run, folders, backend, devices, config.run.strict, config=config)

    @property
    def boxes(self) -> Boxes:
        """What a task may know of it."""
        return Boxes(**{f.name: getattr(self, f.name) for f in dataclasses.fields(Boxes)})


@dataclass(frozen=True)
class Made:
    """What a task made.

    Attributes:
        counts: what it counted.
        table: rows of the partition, for part-NAME.parquet.
        files: further files, under their final names.
        options: of `pyarrow.parquet.write_table`.
    """

    counts: Counts
    table: pa.Table | None = None
    files: tuple[Path, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)


class Stage:
    """Base of the stages: what the runner asks of one.

    Attributes:
        name: of its box, and of the box's folder.
        follows: the box whose partitions it follows one to one.
        inputs: boxes, besides the one it follows, that must be complete before its first task.
        on_device: has a GPU twin, which a worker with a device runs; the bytes are the same.
        counts: class of its counts, by which the report sums them up.
        rejects: it may reject documents, and decisions/ lets those go; `Part.rejects`.
    """

    name: ClassVar[str]
    follows: ClassVar[str | None] = None
    on_device: ClassVar[bool] = False
    rejects: ClassVar[bool] = False
    counts: ClassVar[type[Counts]] = Counts
    inputs: tuple[str, ...] = ()

    def settings(self) -> Any:
        """What its output depends on besides its inputs and its code, as plain data: by default the fields of a dataclass."""
        return dataclasses.asdict(self) if dataclasses.is_dataclass(self) and not isinstance(self, type) else None

    def made_of(self, receipt: Receipt[Counts]) -> str:
        """What tells a partition of the box it follows from others, as far as this stage reads it. Another partition that tells
        the same need not be made again. `receipt`: that of the partition."""
        return "-".join(f.xxh3 for f in receipt.files)

    def libraries(self) -> tuple[str, ...]:
        """Distributions whose version its output depends on."""
        return ()

    def outside(self) -> Any:
        """Identity of the files outside the run that it reads, as plain data."""
        return None

    def prepare(self, boxes: Boxes) -> None:
        """Called in the main process once everything it reads is complete, before its first task."""

    def plan(self, boxes: Boxes) -> Mapping[str, Any]:
        """Partition name → what its task is told, for a stage that follows no other."""
        return {"000000": None}

    def make(self, part: Part) -> Made:
        """Make one partition."""
        raise NotImplementedError(f"stage {self.name} has no make()")

    def run(self, part: Part) -> Receipt[Counts]:
        """Make one partition and publish it. A task that makes several publishes each itself."""
        return part.publish(self.make(part))

    def finish(self, boxes: Boxes) -> None:
        """Called once every partition is there."""

    def takes_devices(self, boxes: Boxes) -> bool:
        """True if its tasks hand all devices of the run to a program of their own: no worker uses one meanwhile."""
        return False

    def at_hand(self, boxes: Boxes, part: str) -> str:
        """What a task of this stage was at when its process died, for a message; "" if nobody knows."""
        return ""
