"""cuDF and CuPy offer what the GPU path calls: imports, signatures, and a real Series over host memory."""

from __future__ import annotations

import builtins
import ctypes
import inspect
import io

import cudf
import cupy
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pylibcudf
import pytest
from cudasim.device import XP_FUNCTIONS, DeviceArray, EmulatedCuPy, download, emulated
from cudasim.module import available
from pylibcudf.gpumemoryview import gpumemoryview

from gpu_curate.device import runtime as gpu_runtime
from gpu_curate.device.cudf_columns import text_column
from gpu_curate.device.runtime import Device
from gpu_curate.document import TextColumn, is_cupy
from gpu_curate.errors import DeviceError, InputError
from gpu_curate.ops.words import cpu, gpu
from gpu_curate.sources import Split
from gpu_curate.stages.partition_text import _CUDF_ERRORS, Extent, Origin, _cudf_parquet

TEXTS = [b"skipped", b"The quick brown fox", b"", "naïve 你好 café".encode(), b"a b c"]


class HostArray:
    """A NumPy array that says it is device memory."""

    def __init__(self, array: np.ndarray):
        self.array = array

    @property
    def __cuda_array_interface__(self) -> dict:
        of = self.array.__array_interface__
        return {"shape": of["shape"], "typestr": of["typestr"], "data": of["data"], "strides": None, "version": 3}


class HostViews(EmulatedCuPy):
    """NumPy whose asarray follows __cuda_array_interface__, as CuPy's does."""

    @staticmethod
    def asarray(source: object) -> np.ndarray:
        interface = source.__cuda_array_interface__
        dtype = np.dtype(interface["typestr"])
        size = interface["shape"][0] * dtype.itemsize
        if size == 0:
            return np.zeros(0, dtype).view(DeviceArray)
        return (
            np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(interface["data"][0]))
            .view(dtype)
            .view(DeviceArray)
        )


HOST = Device(HostViews(), None, None, (MemoryError,), lambda: None)


def host_series(
    texts: list[bytes], width: type, at: int, n: int, nulls: int = 0
) -> tuple[cudf.Series, list[np.ndarray]]:
    """A cudf.Series whose buffers are host memory, and the arrays that must outlive it."""
    offsets = np.cumsum([0, *map(len, texts)]).astype(width)
    chars = np.frombuffer(b"".join(texts) or b"\0", np.uint8).copy()
    mask = np.full(64, 0xFF, np.uint8)
    kind = {4: pylibcudf.TypeId.INT32, 8: pylibcudf.TypeId.INT64}[offsets.itemsize]
    child = pylibcudf.Column(pylibcudf.DataType(kind), len(offsets), gpumemoryview(HostArray(offsets)), None, 0, 0, [])
    validity = gpumemoryview(HostArray(mask)) if nulls else None
    string = pylibcudf.DataType(pylibcudf.TypeId.STRING)
    column = pylibcudf.Column(string, n, gpumemoryview(HostArray(chars)), validity, nulls, at, [child])
    return cudf.Series.from_pylibcudf(column), [offsets, chars, mask]


@pytest.mark.parametrize("width", [np.int32, np.int64])
@pytest.mark.parametrize(("at", "n"), [(0, 5), (1, 4), (2, 1), (5, 0)])
def test_real_series_unpacks_without_a_copy(width, at, n):
    series, (_, chars, _) = host_series(TEXTS, width, at, n)
    text = text_column(series, HOST)
    assert [text.raw(i) for i in range(len(text))] == TEXTS[at : at + n]
    if n:
        assert text.chars.ctypes.data == chars.ctypes.data


def test_nulls_are_refused():
    series, _keep = host_series(TEXTS, np.int32, 0, 5, nulls=1)
    with pytest.raises(InputError, match="text has 1 nulls"):
        text_column(series, HOST)


def test_spilling_is_refused():
    series, _keep = host_series(TEXTS, np.int32, 0, 5)
    with cudf.option_context("spill", True), pytest.raises(DeviceError, match="spilling is on"):
        text_column(series, HOST)


@pytest.mark.skipif(not available(), reason="no C++ compiler: the emulator compiles kernels with g++")
def test_series_to_kernels():
    series, _keep = host_series(TEXTS, np.int32, 1, 4)
    text = text_column(series, HOST)
    got, expected = (
        download(gpu.word_hashes(text, emulated(checked=True))),
        cpu.word_hashes(TextColumn.from_texts(TEXTS[1:])),
    )
    for a, b in zip(got, expected, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    ("function", "args", "options"),
    [
        (cudf.read_parquet, ("part.parquet",), {"columns": ["text"], "row_groups": [[0]]}),
        (
            cudf.read_parquet,
            (["a.parquet", "b.parquet"],),
            {
                "columns": ["text"],
                "row_groups": [[0], [1, 2]],
                "dataset_kwargs": {"partitioning": None},
                "allow_mismatched_pq_schemas": True,
            },
        ),
        (
            cudf.read_json,
            (io.BytesIO(),),
            {
                "engine": "cudf",
                "lines": True,
                "compression": None,
                "dtype": {"text": "str"},
                "prune_columns": True,
                "on_bad_lines": "recover",
            },
        ),
        (cudf.Series.take, (None, np.zeros(1, np.int64)), {}),
        (cudf.Series.from_arrow, (None,), {}),
        (cudf.concat, ([None, None],), {}),
        (cudf.Series.to_pylibcudf, (None,), {}),
        (cudf.Series.fillna, (None, ""), {}),
        (cudf.get_option, ("spill",), {}),
        (cupy.cumsum, (None,), {"dtype": np.int64, "out": None}),
        (cupy.searchsorted, (None, None), {"side": "right"}),
        (cupy.lexsort, (None,), {}),
        (cupy.isin, (None, None), {}),
        (cupy.unique, (None,), {}),
        (cupy.full, ((1, 2), 0, np.uint32), {}),
        (cupy.argsort, (None,), {}),
        (cupy.stack, ([],), {}),
        (cupy.concatenate, ([],), {}),
        (cupy.flatnonzero, (None,), {}),
        (cupy.ascontiguousarray, (None,), {}),
        (cupy.asarray, (None,), {}),
        (cupy.arange, (1,), {"dtype": np.int64}),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_signature_takes_our_call(function, args, options):
    inspect.signature(function).bind(*args, **options)


class Asked(Exception):
    """What libcudf would have been asked to do."""


def asked(monkeypatch, module, name):
    """Stop at `module.name`, and give its arguments."""

    def stop(*args, **options):
        raise Asked(args, options)

    monkeypatch.setattr(module, name, stop)


def test_row_groups_reach_libcudf_in_order(tmp_path, monkeypatch):
    """In a folder that looks like a Hive partition too: no column is made of its name."""
    folder = tmp_path / "text=hive"
    folder.mkdir()
    for name in "ab":
        table = pa.table({"text": [f"{name}{i}" for i in range(9)], name: range(9)})
        pq.write_table(table, folder / f"{name}.parquet", row_group_size=2)
    places = [Extent(Split(str(folder / f"{n}.parquet"), 0, 5, 0, 0), 2) for n in "ba"]
    asked(monkeypatch, cudf.io.parquet, "_read_parquet")
    with pytest.raises(Asked) as e:
        _cudf_parquet(Origin("text", places), np.array([1, 8, 4, 5]))
    args, options = e.value.args
    assert args[0] == [str(folder / "b.parquet"), str(folder / "a.parquet")]
    assert options["columns"] == ["text"]
    assert options["row_groups"] == [[0, 4], [2]]
    assert options["allow_mismatched_pq_schemas"] is True


def test_libcudf_errors_are_read_by_the_host():
    """Its exceptions come as these, so that a parser's complaint never ends a run; what is out of memory is told apart."""
    for name in ("ValueError", "RuntimeError", "TypeError", "OverflowError", "IndexError", "OSError"):
        assert issubclass(getattr(builtins, name), _CUDF_ERRORS)
    assert not issubclass(MemoryError, _CUDF_ERRORS)


@pytest.mark.parametrize("name", sorted(XP_FUNCTIONS))
def test_cupy_has_it(name):
    assert hasattr(cupy, name)


def test_cupy_arrays_are_known_by_their_module():
    assert cupy.ndarray.__module__.split(".")[0] == "cupy"
    assert not is_cupy(np.zeros(1))


def test_out_of_memory_classes():
    assert issubclass(cupy.cuda.memory.OutOfMemoryError, MemoryError)  # RMM's allocator raises MemoryError itself


def test_kernels_load_lazily_and_no_device_is_a_device_error():
    cupy.RawModule(code=gpu_runtime.source("words"), options=("--std=c++17",))  # compiles when first used
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError:
        count = 0
    if count == 0:
        with pytest.raises(DeviceError, match="no usable CUDA device"):
            gpu_runtime.cuda()
