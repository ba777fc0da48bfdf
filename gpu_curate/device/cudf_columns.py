"""Text columns on the device: from cuDF without a copy, or from Parquet by whichever reader is there.

A libcudf string column is a buffer of characters and a child column of offsets, INT32 or (from 2 GiB of text) INT64,
absolute into it; a slice shares both and has an offset and a size. `Series.to_pylibcudf()` hands them out without a copy.
"""

from __future__ import annotations

from os import PathLike
from typing import Any

import numpy as np

from gpu_curate.device.runtime import Device, cuda, to_device
from gpu_curate.document import TextColumn
from gpu_curate.errors import DeviceError, InputError


def text_column(strings: Any, device: Device | None = None) -> TextColumn:
    """The texts of a cuDF Series or a pylibcudf Column, sharing its memory.

    Args:
        strings: cudf.Series of strings, or pylibcudf.Column of type STRING; may be a slice; may have no rows.
    Returns:
        TextColumn of N; chars are the column's own, offsets too if they are INT64, else a copy of 8 bytes a document.
    Raises:
        InputError: another type, or nulls (a reader rejects such rows before).
        DeviceError: cuDF's spilling is on, which may move the buffers away while a kernel reads them.
    """
    xp = (device or cuda()).xp
    column = _pylibcudf(strings)
    kind = column.type().id().name
    if kind != "STRING":
        raise InputError(f"text must be a string column, got {kind}")
    if column.null_count():
        raise InputError(f"text has {column.null_count()} nulls; a reader rejects such rows")
    if column.size() == 0 or column.num_children() == 0:  # a column without rows may have no offsets at all
        return TextColumn(xp.zeros(0, np.uint8), xp.zeros(1, np.int64))
    child = column.child(0)
    width = {"INT32": np.int32, "INT64": np.int64}[child.type().id().name]
    first = child.offset() + column.offset()
    # .view: a buffer keeps the element type of the array that it was made of
    offsets = xp.asarray(child.data()).view(width)[first : first + column.size() + 1].astype(np.int64, copy=False)
    data = column.data()  # None if all strings are empty
    return TextColumn(xp.zeros(0, np.uint8) if data is None else xp.asarray(data).view(np.uint8), offsets)


def _pylibcudf(strings: Any) -> Any:
    if not hasattr(strings, "to_pylibcudf"):
        return strings
    import cudf

    if cudf.get_option("spill"):
        raise DeviceError(
            "cuDF's spilling is on: it may move a column's memory while a kernel reads it",
            'switch it off: cudf.set_option("spill", False), or unset CUDF_SPILL',
        )
    return strings.to_pylibcudf()[0]


def device_reader() -> tuple[str, str]:
    """Which reader `device_column` takes, and why: ("cudf" | "pyarrow", reason). Imports cuDF."""
    try:
        import cudf
    except (ImportError, OSError) as e:  # OSError: one of its libraries is missing
        return "pyarrow", f"cuDF cannot be imported: {e}"
    return "cudf", f"cuDF {cudf.__version__}"


def device_column(path: str | PathLike[str], column: str = "text", row_groups: list[int] | None = None) -> TextColumn:
    """A text column of a Parquet file, on the device.

    cuDF decodes on the device. Without it pyarrow decodes on the host and the buffers are copied up; the bytes are the same.

    Args:
        path: a local Parquet file.
        column: its string column.
        row_groups: numbers of those to read; None: all.
    Raises:
        InputError: no such column, not of strings, or with nulls.
        DeviceError: no device.
        The device's out-of-memory error.
    """
    device = cuda()
    if device_reader()[0] == "cudf":
        import cudf

        groups = None if row_groups is None else [row_groups]
        frame = cudf.read_parquet(str(path), columns=[column], row_groups=groups)
        if column not in frame.columns:
            raise InputError(f"{path} has no column {column!r}")
        return text_column(frame[column], device)
    return to_device(host_column(path, column, row_groups), device)


def host_column(path: str | PathLike[str], column: str = "text", row_groups: list[int] | None = None) -> TextColumn:
    """The same column on the host, by pyarrow. Raises: InputError, as `device_column`."""
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        if column not in file.schema_arrow.names:
            raise InputError(f"{path} has no column {column!r}; it has {', '.join(file.schema_arrow.names)}")
        groups = list(range(file.num_row_groups)) if row_groups is None else row_groups
        table = file.read_row_groups(groups, columns=[column])
    return TextColumn.from_arrow(table[column])
