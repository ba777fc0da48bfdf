"""Files that appear whole or not at all, and receipts that say what a partition holds.

A box (a folder of the run directory) is made of partitions. Each file of a partition is written under a temporary name in
the same folder, flushed to disk and renamed; then the partition's receipt, `.receipts/part-000000.json`, is published the
same way. The receipt names every file with its size and xxh3-64 and carries the facts that the report adds up. A partition
without a receipt does not exist. A file that differs from its receipt raises CorruptError and is made again.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

from gpu_curate.errors import ConfigError, CorruptError, FatalError

RECEIPTS = ".receipts"
_CHUNK = 1 << 24
_SEAL = "whole.json"
DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EFBIG, errno.EMFILE, errno.ENFILE)


def fsync_folder(folder: Path) -> None:
    """Make a rename in `folder` survive a power cut."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


@contextlib.contextmanager
def publish(path: Path) -> Iterator[Path]:
    """A temporary path to write to; on success it becomes `path` in one step, on failure it is removed.

    Raises:
        FatalError: the disk is full or the folder cannot be written; nothing is left under `path`.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temp = path.parent / f".{path.name}.tmp-{os.getpid()}-{time.monotonic_ns()}"
    try:
        yield temp
        fd = os.open(temp, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
        os.replace(temp, path)
        fsync_folder(path.parent)
    except OSError as e:
        temp.unlink(missing_ok=True)
        if e.errno in DISK_ERRORS:
            raise disk_error(path, e) from e
        raise
    except BaseException:
        temp.unlink(missing_ok=True)
        raise


def disk_error(path: Path, e: OSError) -> FatalError:
    """What is said when `path` could not be written."""
    place = next(p for p in (path, *path.absolute().parents) if p.exists())
    free = shutil.disk_usage(place).free
    return FatalError(
        f"cannot write {path}: {e.strerror} ({free / 1e6:.1f} MB free); nothing was left under that name",
        "free some space and run the same command again: finished partitions are kept",
    )


def write_json(path: Path, value: Any) -> None:
    """Publish `value` as JSON, keys in order, readable."""
    with publish(path) as temp:
        temp.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def read_json(path: Path) -> Any:
    """Raises: CorruptError: the file is not whole JSON."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as e:
        raise CorruptError(f"{path}: not JSON ({e})") from e


def write_table(path: Path, table: pa.Table, **options: Any) -> None:
    """Publish a Parquet file. zstd level 1 by default: about half the bytes of text at several hundred MB/s."""
    codec = {} if "compression" in options else {"compression": "zstd", "compression_level": 1}
    with publish(path) as temp:
        pq.write_table(table, temp, **codec, **options)


def file_hash(path: Path) -> str:
    """xxh3-64 of a file, hex."""
    state = xxhash.xxh3_64()
    with path.open("rb", buffering=0) as f:
        while chunk := f.read(_CHUNK):
            state.update(chunk)
    return state.hexdigest()


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
            own = all(file_hash(self.folder / f["file"]) == f["xxh3"] for f in seal["files"])
            return own and all(self.receipt(p) is not None for p in seal["parts"])
        except (OSError, CorruptError, KeyError, TypeError):
            return False

    def receipt(self, part: str) -> dict[str, Any] | None:
        """The receipt of a partition if it has one and every file of it has the right size, else None."""
        return self._whole(self._receipt_path(part))

    def _whole(self, path: Path) -> dict[str, Any] | None:
        try:
            receipt = read_json(path)
            whole = all((self.folder / f["file"]).stat().st_size == f["bytes"] for f in receipt["files"])
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
        path = self.verified(part, ".parquet")
        return pq.read_table(path, columns=columns, use_threads=False, memory_map=True)

    def columns(self, part: str, *names: str) -> tuple[np.ndarray, ...]:
        """Columns without nulls as NumPy arrays."""
        table = self.read_table(part, list(names))
        return tuple(table[name].to_numpy() for name in names)


def remove_temporaries(run: Path) -> int:
    """Delete what a killed process left half-written. Call only under the run's lock."""
    removed = 0
    for path in list(run.rglob(".*.tmp-*")):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
        removed += 1
    return removed


def lock_holder(run: Path) -> int | None:
    """The process that works in a run directory, as far as its lock tells; None: nobody does."""
    import fcntl

    try:
        with (run / ".lock").open("r+") as f:
            try:
                fcntl.flock(f, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                text = f.read().strip()
                return int(text) if text.isdigit() else 0
    except OSError:  # no run, or not ours to look at
        return None
    return None


@contextlib.contextmanager
def run_lock(run: Path, on_wait: Any = None) -> Iterator[None]:
    """Only one process works in a run directory; the next one waits (the lock goes with its holder, however it dies).

    Args:
        on_wait: called with the holder's process id before waiting.
    """
    import fcntl

    try:
        run.mkdir(parents=True, exist_ok=True)
        f = (run / ".lock").open("a+")
    except OSError as e:
        raise ConfigError(f"run directory {run}: {e.strerror or e}", "choose another folder with --out") from e
    with f:
        try:
            fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            f.seek(0)
            if on_wait is not None:
                on_wait(f.read().strip() or "unknown")
            fcntl.flock(f, fcntl.LOCK_EX)
        f.seek(0)
        f.truncate()
        f.write(str(os.getpid()))
        f.flush()
        yield
