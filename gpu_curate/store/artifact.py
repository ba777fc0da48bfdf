"""A box: one folder of partitions, each with a receipt, under one fingerprint."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, overload

import numpy as np
import pyarrow as pa

from gpu_curate.errors import ConfigError, CorruptError
from gpu_curate.store.files import file_hash, publish, read_columns, read_json, write_json
from gpu_curate.store.receipts import C, Counts, Receipt, Written, parse
from gpu_curate.store.run_directory import nameable
from gpu_curate.store.snapshot import read_snapshot
from gpu_curate.store.verified import verified_of

RECEIPTS = ".receipts"
_SEAL = "whole.json"


class Box:
    """One folder of partitions under one fingerprint.

    Args:
        folder: where its files lie; may not exist yet.
        snapshot: file that says which partitions are those of a run, of a box that holds more than these; None: all are.
        stamp: facts that every receipt written here gets: its `key`, or `of`.
        verified: the record of the run that is going on (`store.verified`); None: every file that is read is hashed.
    """

    def __init__(
        self,
        folder: Path,
        snapshot: Path | None = None,
        stamp: Mapping[str, str] | None = None,
        verified: str | None = None,
    ):
        self.folder, self._snapshot, self._stamp, self._verified = folder, snapshot, dict(stamp or {}), verified

    def __repr__(self) -> str:
        return f"Box({str(self.folder)!r})"

    def path(self, part: str, suffix: str) -> Path:
        return self.folder / f"part-{part}{suffix}"

    def _receipt_path(self, part: str) -> Path:
        return self.folder / RECEIPTS / f"part-{part}.json"

    def parts(self) -> list[str]:
        """Partitions of the run that have a receipt, in order."""
        folder = self.folder / RECEIPTS
        if not folder.is_dir():
            return []
        names = sorted(p.name[5:-5] for p in folder.iterdir() if p.name.startswith("part-") and p.suffix == ".json")
        if self._snapshot is None:
            return names
        snapshot = read_snapshot(self._snapshot)
        return [name for name in names if snapshot.holds(name)]

    def newest_s(self) -> float:
        """When the latest receipt was written, by the clock of the file system; 0.0 without one."""
        folder = self.folder / RECEIPTS
        if not folder.is_dir():
            return 0.0
        return max(
            (entry.stat().st_mtime for entry in os.scandir(folder) if entry.name.startswith("part-")), default=0.0
        )

    def written(self, files: Iterable[Path]) -> tuple[Written, ...]:
        """What a receipt says of files that are under their final names."""
        found = []
        for file in files:
            entry = Written(os.path.relpath(file, self.folder), file.stat().st_size, file_hash(file))
            known = verified_of(self._verified)
            if known is not None:
                known.wrote(file, entry.xxh3)
            found.append(entry)
        return tuple(found)

    def _is_whole(self, path: Path, xxh3: str) -> bool:
        """True if a file has this hash; in a run it is read once."""
        known = verified_of(self._verified)
        return file_hash(path) == xxh3 if known is None else known.is_whole(path, xxh3)

    def commit(self, receipt: Receipt[C]) -> Receipt[C]:
        """Publish the receipt of a partition whose files are already under their final names."""
        receipt = self._stamped(receipt)
        write_json(self._receipt_path(receipt.part), receipt.json())
        return receipt

    def _open_path(self, part: str) -> Path:
        return self.folder / RECEIPTS / f"open-{part}.json"

    def commit_open(self, receipt: Receipt[C]) -> Receipt[C]:
        """Publish what is whole of a partition that nobody but a restart of its task may see before `promote`."""
        receipt = self._stamped(receipt)
        write_json(self._open_path(receipt.part), receipt.json())
        return receipt

    def _stamped(self, receipt: Receipt[C]) -> Receipt[C]:
        return dataclasses.replace(
            receipt, key=self._stamp.get("key", receipt.key), of=self._stamp.get("of", receipt.of)
        )

    def open_receipt(self, part: str, kind: type[C]) -> Receipt[C] | None:
        """What `commit_open` or `commit` said of a partition, as `receipt`."""
        return self._whole(self._open_path(part), kind) or self._whole(self._receipt_path(part), kind)

    def promote(self, part: str, more: tuple[str, ...], kind: type[C]) -> Receipt[C]:
        """Publish the receipt of a partition that is open, with its task's further ones. Raises: CorruptError: there is none."""
        receipt = self.open_receipt(part, kind)
        if receipt is None:
            raise CorruptError(f"{self.path(part, '')} differs from its receipt")
        receipt = self.commit(dataclasses.replace(receipt, more=more))
        self._open_path(part).unlink(missing_ok=True)
        return receipt

    def seal(self, files: list[Path]) -> None:
        """Say that the box is whole, with `files` that belong to no partition."""
        own = [dataclasses.asdict(f) for f in self.written(files)]
        write_json(self.folder / RECEIPTS / _SEAL, {"parts": self.parts(), "files": own})

    def sealed(self) -> bool:
        """True if the box was sealed and every file of it still has its size; those of no partition, their content."""
        try:
            seal = read_json(self.folder / RECEIPTS / _SEAL)
            own = all(file_hash(self.named(f["file"])) == f["xxh3"] for f in seal["files"])
            return own and all(map(self.has, seal["parts"]))
        except (OSError, CorruptError, KeyError, TypeError):
            return False

    def named(self, name: str) -> Path:
        """A file that a receipt names, in this box or beside it. Raises: ConfigError: it lies elsewhere."""
        run = os.path.normpath(self.folder.parent)
        place = os.path.normpath(os.path.join(self.folder, name))
        if not nameable(name) or os.path.relpath(place, run).split("/")[0] in ("..", "."):
            raise ConfigError(
                f"{self.folder / RECEIPTS}: a receipt names {name!r}, which does not lie below the run directory",
                "remove the receipts of that folder and run the recipe again",
            )
        return self.folder / name

    @overload
    def receipt(self, part: str) -> Receipt[Counts] | None: ...
    @overload
    def receipt(self, part: str, kind: type[C]) -> Receipt[C] | None: ...
    def receipt(self, part: str, kind: type[Any] = Counts) -> Receipt[Any] | None:
        """The receipt of a partition if it has one and every file of it has the right size, else None.

        Args:
            kind: class of its counts.
        """
        return self._whole(self._receipt_path(part), kind)

    def has(self, part: str) -> bool:
        """True if a partition is whole, by the sizes of its files."""
        return self.receipt(part) is not None

    def _whole(self, path: Path, kind: type[C]) -> Receipt[C] | None:
        try:
            receipt = parse(read_json(path), kind)
            whole = all(self.named(f.file).stat().st_size == f.bytes for f in receipt.files)
        except (FileNotFoundError, NotADirectoryError, CorruptError):
            return None
        return receipt if whole else None

    @overload
    def receipts(self) -> Iterator[Receipt[Counts]]: ...
    @overload
    def receipts(self, kind: type[C]) -> Iterator[Receipt[C]]: ...
    def receipts(self, kind: type[Any] = Counts) -> Iterator[Receipt[Any]]:
        """The receipts of all partitions that are whole, in order; `part` names the partition."""
        return (r for r in (self.receipt(p, kind) for p in self.parts()) if r is not None)

    def counts(self, part: str, kind: type[C]) -> C:
        """What was counted of a partition. Raises: CorruptError: it has no receipt, or a file of another size."""
        receipt = self.receipt(part, kind)
        if receipt is None:
            raise CorruptError(f"{self._receipt_path(part)}: no receipt, or a file of another size")
        return receipt.counts

    def content(self, part: str) -> str:
        """The hashes of a partition's files, by its receipt: what tells its content from any other. Raises: CorruptError."""
        receipt = self.receipt(part)
        if receipt is None:
            raise CorruptError(f"{self._receipt_path(part)}: no receipt, or a file of another size")
        return "-".join(f.xxh3 for f in receipt.files)

    def discard(self, part: str) -> None:
        """Forget a partition: it will be made again."""
        self._receipt_path(part).unlink(missing_ok=True)
        self._open_path(part).unlink(missing_ok=True)

    def discard_tasks(self, tasks: Iterable[str]) -> None:
        """Forget every partition of these tasks, those that are open too."""
        wanted = set(tasks)
        for path in (self.folder / RECEIPTS).glob("*-*.json"):
            if path.stem.split("-")[1] in wanted:
                path.unlink(missing_ok=True)

    def stored(self) -> Iterator[Receipt[Counts]]:
        """What every receipt says, of open partitions too and whether its files are whole or not."""
        for path in sorted((self.folder / RECEIPTS).glob("*-*.json")):
            with contextlib.suppress(OSError, CorruptError):
                yield parse(read_json(path), Counts)

    def adopt(
        self,
        part: str,
        name: str,
        kind: type[C],
        stamp: Mapping[str, str],
        beside: bool = False,
        is_open: bool = False,
    ) -> Receipt[C] | None:
        """Let a partition stand under a further name, its files by links where the file system has them.

        Args:
            kind: class of its counts.
            stamp: facts that its receipt has otherwise.
            beside: files in other folders, too.
            is_open: as `commit_open`.
        Returns:
            the receipt. None: it is not whole, or has a file in another folder.
        """
        receipt = self.open_receipt(part, kind)
        before, after = f"part-{part}.", f"part-{name}."
        if receipt is None or not (beside or all("/" not in f.file for f in receipt.files)):
            return None
        files = []
        for entry in receipt.files:
            old = self.folder / entry.file
            new = os.path.join(os.path.dirname(entry.file), old.name.replace(before, after, 1))
            link_file(old, self.folder / new)
            files.append(dataclasses.replace(entry, file=new))
        receipt = dataclasses.replace(
            receipt,
            part=name,
            files=tuple(files),
            key=stamp.get("key", receipt.key),
            of=stamp.get("of", receipt.of),
        )
        write_json(self._open_path(name) if is_open else self._receipt_path(name), receipt.json())
        return receipt

    def verified(self, part: str, suffix: str) -> Path:
        """As `verified_file`, for the file of a partition with this suffix."""
        return self.verified_file(part, self.path(part, suffix).name)

    def verified_file(self, part: str, name: str) -> Path:
        """Path of a file of a partition after its content was checked against the receipt.

        Raises:
            CorruptError: no receipt, or the size or hash differs. The receipt is gone then: the partition is made again.
        """
        receipt = self.receipt(part)
        path = self.folder / name
        entry = next((f for f in receipt.files if f.file == name), None) if receipt else None
        if entry is None or not self._is_whole(path, entry.xxh3):
            self.discard(part)
            raise CorruptError(f"{path} differs from its receipt")
        return path

    def read_table(self, part: str, columns: list[str] | None = None) -> pa.Table:
        """A partition's Parquet file, checked against its receipt. Raises: CorruptError."""
        return read_columns(self.verified(part, ".parquet"), columns)

    def columns(self, part: str, *names: str) -> tuple[np.ndarray, ...]:
        """Columns without nulls as NumPy arrays."""
        table = self.read_table(part, list(names))
        return tuple(table[name].to_numpy() for name in names)


def link_file(source: Path, target: Path) -> None:
    """Publish `target` with the content of `source`: a link where the file system has them, else a copy."""
    with publish(target) as temp:
        try:
            temp.unlink()
            os.link(source, temp)
        except OSError:
            shutil.copyfile(source, temp)
