from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from gpu_curate.errors import ConfigError, CorruptError
from gpu_curate.store.files import file_hash, read_columns, read_json, write_json

RECEIPTS = ".receipts"
_SEAL = "whole.json"


class Box:
    """One folder of partitions under one fingerprint.

    Args:
        folder: where its files lie; may not exist yet.
    """

    def __init__(self, folder: Path):
        self.folder = folder

    def __repr__(self) -> str:
        return f"Box({str(self.folder)!r})"

    def path(self, part: str, suffix: str) -> Path:
        return self.folder / f"part-{part}{suffix}"

    def _receipt_path(self, part: str) -> Path:
        return self.folder / RECEIPTS / f"part-{part}.json"

    def parts(self) -> list[str]:
        """Partitions that have a receipt, in order."""
        folder = self.folder / RECEIPTS
        if not folder.is_dir():
            return []
        return sorted(p.name[5:-5] for p in folder.iterdir() if p.name.startswith("part-") and p.suffix == ".json")

    def newest_s(self) -> float:
        """When the latest receipt was written, by the clock of the file system; 0.0 without one."""
        folder = self.folder / RECEIPTS
        if not folder.is_dir():
            return 0.0
        return max(
            (entry.stat().st_mtime for entry in os.scandir(folder) if entry.name.startswith("part-")), default=0.0
        )

    def commit(self, part: str, files: list[Path], facts: dict[str, Any]) -> dict[str, Any]:
        """Publish the receipt of a partition whose `files` are already under their final names."""
        receipt = {"part": part, "files": [self._entry(f) for f in files], **facts}
        write_json(self._receipt_path(part), receipt)
        return receipt

    def _open_path(self, part: str) -> Path:
        return self.folder / RECEIPTS / f"open-{part}.json"

    def commit_open(self, part: str, files: list[Path], facts: dict[str, Any]) -> None:
        """Publish what is whole of a partition that nobody but a restart of its task may see before `promote`."""
        write_json(self._open_path(part), {"part": part, "files": [self._entry(f) for f in files], **facts})

    def open_receipt(self, part: str) -> dict[str, Any] | None:
        """What `commit_open` or `commit` said of a partition, as `receipt`."""
        return self._whole(self._open_path(part)) or self.receipt(part)

    def promote(self, part: str, facts: dict[str, Any]) -> dict[str, Any]:
        """Publish the receipt of a partition that is open, with more facts. Raises: CorruptError: it is not there."""
        receipt = self.open_receipt(part)
        if receipt is None:
            raise CorruptError(f"{self.path(part, '')} differs from its receipt")
        receipt = {**receipt, **facts}
        write_json(self._receipt_path(part), receipt)
        self._open_path(part).unlink(missing_ok=True)
        return receipt

    def _entry(self, file: Path) -> dict[str, Any]:
        return {"file": os.path.relpath(file, self.folder), "bytes": file.stat().st_size, "xxh3": file_hash(file)}

    def seal(self, files: list[Path]) -> None:
        """Say that the box is whole, with `files` that belong to no partition."""
        write_json(self.folder / RECEIPTS / _SEAL, {"parts": self.parts(), "files": [self._entry(f) for f in files]})

    def sealed(self) -> bool:
        """True if the box was sealed and every file of it still has its size; those of no partition, their content."""
        try:
            seal = read_json(self.folder / RECEIPTS / _SEAL)
            own = all(file_hash(self._named(f["file"])) == f["xxh3"] for f in seal["files"])
            return own and all(self.receipt(p) is not None for p in seal["parts"])
        except (OSError, CorruptError, KeyError, TypeError):
            return False

    def _named(self, name: str) -> Path:
        """A file that a receipt names, in this box or beside it. Raises: ConfigError: it lies elsewhere."""
        run = os.path.normpath(self.folder.parent)
        place = os.path.normpath(os.path.join(self.folder, name))
        if os.path.relpath(place, run).split("/")[0] in ("..", "."):
            raise ConfigError(
                f"{self.folder / RECEIPTS}: a receipt names {name!r}, which does not lie below the run directory",
                "remove the receipts of that folder and run the recipe again",
            )
        return self.folder / name

    def receipt(self, part: str) -> dict[str, Any] | None:
        """The receipt of a partition if it has one and every file of it has the right size, else None."""
        return self._whole(self._receipt_path(part))

    def _whole(self, path: Path) -> dict[str, Any] | None:
        try:
            receipt = read_json(path)
            whole = all(self._named(f["file"]).stat().st_size == f["bytes"] for f in receipt["files"])
        except (FileNotFoundError, NotADirectoryError, CorruptError, KeyError, TypeError):
            return None
        return receipt if whole else None

    def receipts(self) -> Iterator[dict[str, Any]]:
        """The receipts of all partitions that are whole, in order; `part` names the partition."""
        return (r for r in map(self.receipt, self.parts()) if r is not None)

    def content(self, part: str) -> str:
        """The hashes of a partition's files, by its receipt: what tells its content from any other. Raises: CorruptError."""
        receipt = self.receipt(part)
        if receipt is None:
            raise CorruptError(f"{self._receipt_path(part)}: no receipt, or a file of another size")
        return "-".join(f["xxh3"] for f in receipt["files"])

    def discard(self, part: str) -> None:
        """Forget a partition: it will be made again."""
        self._receipt_path(part).unlink(missing_ok=True)
        self._open_path(part).unlink(missing_ok=True)

    def discard_all(self) -> None:
        """Forget every partition, those that are open too."""
        for path in (self.folder / RECEIPTS).glob("*-*.json"):
            path.unlink(missing_ok=True)

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
        entry = next((f for f in receipt["files"] if f["file"] == name), None) if receipt else None
        if entry is None or file_hash(path) != entry["xxh3"]:
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
