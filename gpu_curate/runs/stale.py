"""Partitions that a run's boxes hold and its latest shards were not made of: of files that are gone or changed, or of settings
that were. `gpu-curate clean` removes them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from gpu_curate.errors import ConfigError, CorruptError
from gpu_curate.runs.fingerprints import DOCUMENTS
from gpu_curate.stages.documents.corpus import Ledger
from gpu_curate.stages.documents.schema import LEDGER
from gpu_curate.store.artifact import RECEIPTS, Box
from gpu_curate.store.receipts import Counts, Receipt
from gpu_curate.store.run_directory import owner
from gpu_curate.store.snapshot import FOLDER, Snapshot, read_snapshot, snapshot_path


class Stale(NamedTuple):
    """Partitions of one folder."""

    folder: str
    partitions: int
    disk_bytes: int


def stale(run: Path, facts: dict[str, Any]) -> list[Stale]:
    """What of the boxes in a run directory neither its latest shards nor its last run need. Nothing where that is not known.

    Args:
        facts: of run.json.
    """
    found = []
    for folder, snapshots in _folders(run, facts):
        receipts = list(_unneeded(folder, snapshots))
        if receipts:
            names = {r.part for r in receipts}
            size = sum(p.stat().st_size for r in receipts for p in _files(folder, r) if p.is_file())
            found.append(Stale(folder.name, len(names), size))
    return found


def remove_stale(run: Path, facts: dict[str, Any]) -> None:
    """Remove them, and what is known of inputs that no shards are made of. Call only under the run's lock."""
    folders = list(_folders(run, facts))
    for folder, snapshots in folders:
        for receipt in list(_unneeded(folder, snapshots)):
            for name in (f"part-{receipt.part}.json", f"open-{receipt.part}.json"):
                (folder / RECEIPTS / name).unlink(
                    missing_ok=True
                )  # first: a file that is missing is none of a partition
            for path in _files(folder, receipt):
                path.unlink(missing_ok=True)
        if (folder / LEDGER).exists():
            ledger = Ledger.read(folder)
            ledger.tasks = {n: e for n, e in ledger.tasks.items() if any(s.holds(n) for s in snapshots)}
            if not ledger.damage:
                ledger.write(folder)
    if folders:
        needed = {snapshot_path(run, fingerprint).name for fingerprint in _fingerprints(facts)}
        for path in (run / FOLDER).glob("*.json"):
            if path.name not in needed:
                path.unlink()


def _fingerprints(facts: dict[str, Any]) -> set[str]:
    """Fingerprints of documents/ of the latest shards and of the last run."""
    latest, fingerprint_of = facts.get("latest") or {}, facts.get("fingerprints") or {}
    return {str(p) for p in (latest.get(DOCUMENTS), fingerprint_of.get(DOCUMENTS)) if p}


def _folders(run: Path, facts: dict[str, Any]) -> Iterator[tuple[Path, list[Snapshot]]]:
    """Folders that hold partitions of more than one run, with the snapshots of the runs that are needed."""
    if facts.get("cache") is not None:  # other runs need what this one does not
        return
    try:
        snapshots = [read_snapshot(snapshot_path(run, fingerprint)) for fingerprint in sorted(_fingerprints(facts))]
    except (OSError, CorruptError):
        return
    for name in dict.fromkeys(name for s in snapshots for name in s.boxes):
        for folder in sorted(run.glob(f"{name}*")):
            of = [s for s in snapshots if name in s.boxes and owner(folder) == s.boxes[name]]
            if of and not folder.is_symlink():
                yield folder, of


def _unneeded(folder: Path, snapshots: Iterable[Snapshot]) -> Iterator[Receipt[Counts]]:
    snapshots = list(snapshots)
    return (r for r in Box(folder).stored() if not any(s.holds(r.part) for s in snapshots))


def _files(folder: Path, receipt: Receipt[Counts]) -> Iterator[Path]:
    """The files of a partition, those beside its folder too; nothing that lies elsewhere."""
    for entry in receipt.files:
        with contextlib.suppress(ConfigError):
            yield Path(os.path.normpath(Box(folder).named(entry.file)))
