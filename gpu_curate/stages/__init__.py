"""Stages: one box of the data flow each. A stage does not know who runs it, or in which process.

A stage that `follows` another box makes one partition for each partition of that box, as soon as it is there. The others
say in `plan` what their tasks are, once everything they read is complete. Every task is a pure function of the boxes it
reads and of the config, so running it twice writes the same bytes.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:  # the sections beside the stages are part of the config, which is read before pyarrow is loaded
    from gpu_curate.config import Config
    from gpu_curate.store.artifact import Box
    from gpu_curate.store.snapshot import Snapshot


@dataclass(frozen=True)
class Context:
    """What a task knows of its run. Small and picklable: it travels with every task."""

    run: Path
    config: Config
    folders: dict[str, str] = field(default_factory=dict)  # box name → folder of its present fingerprint
    backend: str = "cpu"
    devices: tuple[str, ...] = ()  # all CUDA devices of the run; a worker sees one of them
    corpus: str = ""  # fingerprint of documents/, which names the snapshot of what is read; "": all that lies there
    parted: frozenset[str] = frozenset()  # boxes whose partitions are those of documents/
    cache: Path | None = None  # where the boxes in `shared` lie, instead of the run directory
    shared: frozenset[str] = frozenset()
    stamps: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # box → facts of receipts written there

    def root(self, name: str) -> Path:
        """The folder in which that of a box lies: the run directory or the cache."""
        return self.cache if self.cache is not None and name in self.shared else self.run

    def box(self, name: str) -> Box:
        from gpu_curate.store.artifact import Box
        from gpu_curate.store.snapshot import snapshot_path

        snapshot = snapshot_path(self.run, self.corpus) if self.corpus and name in self.parted else None
        return Box(self.root(name) / self.folders[name], snapshot, self.stamps.get(name))

    def snapshot(self) -> Snapshot:
        """What the run reads. Raises: OSError, CorruptError."""
        from gpu_curate.store.run_directory import read_run_file
        from gpu_curate.store.snapshot import older_snapshot, read_snapshot, snapshot_path

        prints = read_run_file(self.run).get("fingerprints") if not self.corpus else None
        path = snapshot_path(self.run, self.corpus or str((prints or {}).get("documents")))
        return read_snapshot(path) if path.exists() else older_snapshot(self.box("documents").folder)

    def has(self, name: str) -> bool:
        return name in self.folders


class Stage:
    """Base of the stages: names, what the fingerprint covers, and the three calls of the runner."""

    name: ClassVar[str]
    follows: ClassVar[str | None] = None  # the box whose partitions it follows one to one
    code: ClassVar[tuple[str, ...]] = ()  # modules and packages below gpu_curate whose source it depends on
    on_device: ClassVar[bool] = False  # has a GPU twin

    def active(self, config: Config) -> bool:
        """False if this config has no use for the box."""
        return True

    def reads(self, config: Config) -> tuple[str, ...]:
        """Boxes, besides the one it follows, that must be complete before its first task."""
        return ()

    def settings(self, config: Config) -> Any:
        """The part of the config that its output depends on, as plain data."""
        return None

    def made_of(self, config: Config, receipt: dict[str, Any]) -> str:
        """What tells a partition of the box it follows from others, as far as this stage reads it. Another partition that tells
        the same need not be made again. `receipt`: that of the partition."""
        return "-".join(f["xxh3"] for f in receipt["files"])

    def libraries(self, config: Config) -> tuple[str, ...]:
        """Distributions whose version its output depends on."""
        return ()

    def prepare(self, context: Context) -> None:
        """Called in the main process once everything it reads is complete, before its first task."""

    def plan(self, context: Context) -> dict[str, Any]:
        """Partition name → what `run` is told, for a stage that follows no other."""
        raise NotImplementedError

    def run(self, context: Context, part: str, task: Any) -> dict[str, Any]:
        """Make one partition and commit its receipt; returns the receipt."""
        raise NotImplementedError

    def finish(self, context: Context) -> None:
        """Called once every partition is there."""

    def at_hand(self, context: Context, part: str) -> str:
        """What a task of this stage was at when its process died, for a message; "" if nobody knows."""
        return ""


class Stopwatch:
    """Wall and CPU seconds since it was made, for a receipt; of child processes too, those that have ended and been waited for.

    What compiling took of the wall time is named, where it took some.
    """

    def __init__(self) -> None:
        self._wall, self._cpu, self._compiled = time.perf_counter(), _cpu_seconds(), _compile_seconds()

    def facts(self) -> dict[str, float]:
        compiled = _compile_seconds() - self._compiled
        return {
            "seconds": round(time.perf_counter() - self._wall, 6),
            "cpu_seconds": round(max(_cpu_seconds() - self._cpu, 0.0), 6),
            **({"compile_seconds": round(compiled, 6)} if compiled else {}),
        }


def _compile_seconds() -> float:
    jit = sys.modules.get("gpu_curate.jit")
    return jit.compile_seconds() if jit is not None else 0.0


def _cpu_seconds() -> float:
    import psutil

    ended = os.times()  # a child takes its own past, and that of its children, to whoever waits for it
    total = time.process_time() + ended.children_user + ended.children_system
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            times = child.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    return total
