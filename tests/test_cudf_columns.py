"""Unpacking of cuDF string columns, on stand-ins over host memory. tests/gpu_contracts does the same with the real cuDF."""

from __future__ import annotations

import builtins
import sys
import types
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gpu_curate.device import cudf_columns
from gpu_curate.device.cudf_columns import host_column, text_column
from gpu_curate.device.runtime import Device
from gpu_curate.errors import DeviceError, InputError

HOST = Device(np, None, None, (MemoryError,), lambda: None)


@dataclass
class FakeColumn:
    """The part of pylibcudf.Column that is called, with the same meaning."""

    kind: str
    buffer: Any
    n: int
    at: int = 0
    nulls: int = 0
    children: list[FakeColumn] = field(default_factory=list)

    def type(self) -> Any:
        return SimpleNamespace(id=lambda: SimpleNamespace(name=self.kind))

    def size(self) -> int:
        return self.n

    def offset(self) -> int:
        return self.at

    def null_count(self) -> int:
        return self.nulls

    def data(self) -> Any:
        return self.buffer

    def num_children(self) -> int:
        return len(self.children)

    def child(self, i: int) -> FakeColumn:
        return self.children[i]


def strings(
    texts: list[bytes], width: type = np.int32, at: int = 0, n: int | None = None, nulls: int = 0
) -> FakeColumn:
    offsets = np.cumsum([0, *map(len, texts)]).astype(width)
    child = FakeColumn(np.dtype(width).name.upper(), offsets.view(np.uint8), len(offsets))
    chars = np.frombuffer(b"".join(texts), np.uint8) if any(texts) else None
    return FakeColumn("STRING", chars, len(texts) - at if n is None else n, at, nulls, [child])


TEXTS = [b"hello", b"", " wörld".encode(), b"abc", b""]


@pytest.mark.parametrize("width", [np.int32, np.int64])
@pytest.mark.parametrize(("start", "stop"), [(0, 5), (1, 3), (2, 2), (4, 5), (0, 1)])
def test_slices_and_both_widths(width, start, stop):
    column = strings(TEXTS, width, start, stop - start)
    text = text_column(column, HOST)
    assert [text.raw(i) for i in range(len(text))] == TEXTS[start:stop]
    assert text.offsets.dtype == np.int64


@pytest.mark.parametrize("width", [np.int32, np.int64])
def test_the_offsets_may_be_a_slice_of_their_own(width):
    """As those of a list's strings are: the child column has an offset as well, and both count."""
    column = strings(TEXTS, width, 1, 3)
    child = column.children[0]
    padded = np.concatenate([np.full(2, 99, width), child.buffer.view(width)])
    column.children[0] = FakeColumn(child.kind, padded.view(np.uint8), child.n, at=2)
    text = text_column(column, HOST)
    assert [text.raw(i) for i in range(len(text))] == TEXTS[1:4]


def test_chars_are_shared_and_int64_offsets_too():
    column = strings(TEXTS, np.int64)
    text = text_column(column, HOST)
    assert np.shares_memory(text.chars, column.buffer)
    assert np.shares_memory(text.offsets, column.children[0].buffer)


def test_columns_without_rows_or_characters():
    assert len(text_column(FakeColumn("STRING", None, 0), HOST)) == 0
    assert len(text_column(strings([]), HOST)) == 0
    text = text_column(strings([b"", b""]), HOST)
    assert (len(text), text.nbytes) == (2, 0)


def test_nulls_and_other_types_are_input_errors():
    with pytest.raises(InputError, match="text has 2 nulls"):
        text_column(strings(TEXTS, nulls=2), HOST)
    with pytest.raises(InputError, match="got INT64"):
        text_column(FakeColumn("INT64", None, 3), HOST)


def test_offsets_that_decrease_are_an_input_error():
    column = strings(TEXTS)
    column.children[0].buffer.view(np.int32)[2] = 1
    with pytest.raises(InputError, match="offsets decrease"):
        text_column(column, HOST)


@pytest.mark.parametrize("spill", [False, True])
def test_series_is_refused_while_cudf_spills(monkeypatch, spill):
    fake = types.ModuleType("cudf")
    fake.get_option = {"spill": spill}.__getitem__
    monkeypatch.setitem(sys.modules, "cudf", fake)
    series = SimpleNamespace(to_pylibcudf=lambda: (strings(TEXTS), {"name": "text"}))
    if spill:
        with pytest.raises(DeviceError, match="spilling is on"):
            text_column(series, HOST)
    else:
        assert len(text_column(series, HOST)) == 5


def test_pyarrow_reads_where_cudf_is_absent(monkeypatch, tmp_path):
    path = tmp_path / "a.parquet"
    table = pa.table({"text": pa.array(["a", "bc", "", "dé"]), "n": [1, 2, 3, 4]})
    pq.write_table(table, path, row_group_size=2)
    real_import = builtins.__import__

    def without_cudf(name: str, *args: Any) -> Any:
        if name == "cudf":
            raise ImportError("No module named 'cudf'")
        return real_import(name, *args)

    monkeypatch.setattr(builtins, "__import__", without_cudf)
    monkeypatch.setattr(cudf_columns, "cuda", lambda: HOST)
    assert cudf_columns.device_reader() == ("pyarrow", "cuDF cannot be imported: No module named 'cudf'")
    text = cudf_columns.device_column(path)
    assert [text.raw(i) for i in range(len(text))] == [b"a", b"bc", b"", "dé".encode()]
    assert len(cudf_columns.device_column(path, row_groups=[1])) == 2


def test_cudf_is_asked_for_the_column_and_row_groups(monkeypatch):
    calls = []

    class Frame:
        columns = ("text",)

        def __getitem__(self, name: str) -> Any:
            return strings(TEXTS)

    fake = types.ModuleType("cudf")
    fake.__version__ = "26.08.01"
    fake.read_parquet = lambda path, **options: calls.append((path, options)) or Frame()
    monkeypatch.setitem(sys.modules, "cudf", fake)
    monkeypatch.setattr(cudf_columns, "cuda", lambda: HOST)
    assert len(cudf_columns.device_column("x.parquet", row_groups=[3])) == 5
    assert calls == [("x.parquet", {"columns": ["text"], "row_groups": [[3]]})]
    with pytest.raises(InputError, match="no column 'body'"):
        cudf_columns.device_column("x.parquet", "body")


def test_missing_column_names_those_there_are(tmp_path):
    pq.write_table(pa.table({"body": ["a"]}), tmp_path / "a.parquet")
    with pytest.raises(InputError, match="no column 'text'; it has body"):
        host_column(tmp_path / "a.parquet")
