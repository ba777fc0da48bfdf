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
import secrets
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from gpu_curate.errors import CorruptError, FatalError
from gpu_curate.xxh3 import xxh3_64

_CHUNK = 1 << 24
DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EFBIG, errno.EMFILE, errno.ENFILE)


def fsync_folder(folder: Path) -> None:
    """Make a rename in `folder` survive a power cut."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def temporary_name(path: Path) -> Path:
    """A name beside `path` that nobody can foresee; `remove_temporaries` knows it by its form."""
    return path.parent / f".{path.name}.tmp-{os.getpid()}-{secrets.token_hex(8)}"


def open_fresh(path: Path) -> IO[bytes]:
    """A new file, unbuffered, in the place of one that a killed process may have left. A link there is removed, not followed."""
    path.unlink(missing_ok=True)
    return path.open("xb", buffering=0)


def open_log(path: Path) -> IO[str]:
    """A text file of the run directory, to add to. Raises: OSError: it is a link or no regular file."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return os.fdopen(fd, "a", encoding="utf-8", errors="backslashreplace")


@contextlib.contextmanager
def publish(path: Path) -> Iterator[Path]:
    """A temporary path to write to; on success it becomes `path` in one step, on failure it is removed.

    Raises:
        FatalError: the disk is full or the folder cannot be written; nothing is left under `path`.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temp = temporary_name(path)
    try:
        # Made here, as the first of its name: a link that somebody laid there is not followed. Mode by the user's umask.
        os.close(os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666))
    except OSError as e:
        if e.errno in DISK_ERRORS:
            raise disk_error(path, e) from e
        raise
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
    except (ValueError, RecursionError) as e:
        raise CorruptError(f"{path}: not JSON ({e})") from e


def read_columns(path: Path, columns: list[str] | None = None) -> pa.Table:
    """A Parquet file of ours, or columns of it in that order. `pq.read_table` brings Arrow's data sets and pandas: 0.3 s."""
    with pq.ParquetFile(path, memory_map=True) as file:
        table = file.read(columns, use_threads=False)
    return table if columns is None else table.select(columns)


def write_table(path: Path, table: pa.Table, **options: Any) -> None:
    """Publish a Parquet file. zstd level 1 by default: about half the bytes of text at several hundred MB/s."""
    codec = {} if "compression" in options else {"compression": "zstd", "compression_level": 1}
    with publish(path) as temp:
        pq.write_table(table, temp, write_batch_size=_batch_rows(table), **codec, **options)


_BATCH_ROWS = 1024  # Arrow's own
_BATCH_BYTES = 64 << 20


def _batch_rows(table: pa.Table) -> int:
    """Rows that Arrow encodes before it looks whether a page is full: fewer where a value is long, since a page of 1,024 values
    of a megabyte is held several times over."""
    import pyarrow.compute as pc

    longest = 1
    for column in table.columns:
        kind = column.type
        if pa.types.is_large_string(kind) or pa.types.is_string(kind) or pa.types.is_large_binary(kind):
            longest = max(longest, pc.max(pc.binary_length(column)).as_py() or 0)
    return max(1, min(_BATCH_ROWS, _BATCH_BYTES // longest))


def file_hash(path: Path) -> str:
    """xxh3-64 of a file, hex."""
    state = xxh3_64()
    with path.open("rb", buffering=0) as f:
        while chunk := f.read(_CHUNK):
            state.update(chunk)
    return state.hexdigest()
