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

import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

from gpu_curate.errors import CorruptError, FatalError

_CHUNK = 1 << 24
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
