"""Stands in for CuPy over the emulator of tests/cudasim, under CuPy's own names, in any number of processes.

A folder, named by FAKE_CUDA, is the machine:
    contexts       a line `PID DEVICE` for every process that made a context on a device
    exclusive/D    device D takes one process at a time
    faults.json    [{"device": D, "kernel": name or null, "error": name of a cudaError, "oom" or "exit", "times": n}, ...]
Without it nothing is written and nothing fails.
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
import time
import types
from pathlib import Path
from typing import Any

import numpy as np
from cudasim import device as _device
from cudasim.module import EmulatedModule

__version__ = "14.2.0"
ndarray = _device.DeviceArray
_arrays = _device.EmulatedCuPy()
_folder = Path(os.environ["FAKE_CUDA"]) if os.environ.get("FAKE_CUDA") else None
_held: list[Any] = []  # locks of exclusive devices


class CUDARuntimeError(RuntimeError):
    pass


class OutOfMemoryError(MemoryError):
    pass


class CompileException(Exception):
    pass


CUDARuntimeError.__module__ = "cupy_backends.cuda.api.runtime"
OutOfMemoryError.__module__ = "cupy.cuda.memory"
CompileException.__module__ = "cupy.cuda.compiler"


def _visible() -> list[str]:
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is None:
        return [str(i) for i in range(int(os.environ.get("FAKE_CUDA_COUNT", "1")))]
    return [name for name in named.split(",") if name]


def _context() -> str:
    """The current device, with a context from now on."""
    device = _visible()[0]
    if _folder is None or _held:
        return device
    if (_folder / "exclusive" / device).exists():
        lock = (_folder / "exclusive" / device).open()
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise CUDARuntimeError("cudaErrorDevicesUnavailable: all CUDA-capable devices are busy") from None
        _held.append(lock)
    else:
        _held.append(None)
    with (_folder / "contexts").open("a") as log:
        log.write(f"{os.getpid()} {device}\n")
    return device


def _fail(kernel: str) -> None:
    device = _context()
    if _folder is None or not (_folder / "faults.json").exists():
        return
    for number, fault in enumerate(json.loads((_folder / "faults.json").read_text())):
        if fault["device"] not in (device, "*") or fault["kernel"] not in (None, kernel):
            continue
        for time_ in range(fault.get("times", 1)):
            try:
                os.close(os.open(_folder / f"fault-{number}-{time_}", os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                continue
            if fault["error"] == "exit":
                os._exit(9)
            if fault["error"] == "oom":
                raise OutOfMemoryError("Out of memory allocating 1,024 bytes")
            raise CUDARuntimeError(f"{fault['error']}: planted on {device}")


def _set(self: Any, array: np.ndarray, stream: Any = None) -> None:
    if type(array) is not np.ndarray:
        raise TypeError("Only numpy.ndarray can be set to cupy.ndarray")
    if self.dtype != array.dtype or self.shape != array.shape:
        raise ValueError("another dtype or shape")
    self.view(np.ndarray)[...] = array


_device.DeviceArray.data = property(lambda self: types.SimpleNamespace(ptr=self.ctypes.data))  # type: ignore[assignment]
_device.DeviceArray.set = _set  # type: ignore[attr-defined]


class RawModule:
    def __init__(
        self,
        *,
        code: str | None = None,
        path: str | None = None,
        options: tuple[str, ...] = (),
        name_expressions: Any = None,
    ):
        assert isinstance(options, tuple)
        assert (code is None) != (path is None)
        defines = tuple(o[2:] for o in options if o.startswith("-D"))
        if code is not None:
            assert [o for o in options if not o.startswith("-D")] == ["--std=c++17"], options
            self._arguments = (code, "fake.cu", defines)
        else:
            import fake_cubins  # what tests compiled: path → the arguments of the emulator

            self._arguments = fake_cubins.SOURCES[path]
        self._module: Any = None

    def get_function(self, name: str) -> Any:
        if os.environ.get("FAKE_CUDA_NO_HEADERS"):
            raise RuntimeError("Failed to find CUDA headers. Please install the CUDA Toolkit")
        if self._module is None:
            self._module = _device.StrictModule(EmulatedModule(*self._arguments))
        function = self._module.get_function(name)

        def launch(grid: tuple[int, ...], block: tuple[int, ...], args: tuple[Any, ...]) -> None:
            assert isinstance(grid, tuple)
            assert isinstance(args, tuple)
            _fail(name)
            function(tuple(int(g) for g in grid), block, args)

        return launch


class Event:
    def record(self, stream: Any = None) -> None:
        self.time = time.perf_counter()

    def synchronize(self) -> None:
        assert self.time


class Device:
    id = 0
    compute_capability = "90"

    def __init__(self, number: int = 0):
        pass

    def __enter__(self) -> Device:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def synchronize(self) -> None:
        pass


def _attribute(number: int, device: int) -> int:
    named = _visible()[device]
    return 3 if number == 20 and _folder is not None and (_folder / "exclusive" / named).exists() else 0


def _info() -> tuple[int, int]:
    _context()
    return 1 << 35, 1 << 36


cuda = types.ModuleType("cupy.cuda")
cuda.Event, cuda.Device = Event, Device  # type: ignore[attr-defined]
cuda.get_elapsed_time = lambda a, b: (b.time - a.time) * 1e3  # type: ignore[attr-defined]
cuda.alloc_pinned_memory = lambda n: bytearray(n)  # type: ignore[attr-defined]
cuda.set_allocator = lambda allocator: None  # type: ignore[attr-defined]
cuda.memory = types.SimpleNamespace(OutOfMemoryError=OutOfMemoryError)  # type: ignore[attr-defined]
cuda.nvrtc = types.SimpleNamespace(getVersion=lambda: (13, 0))  # type: ignore[attr-defined]
cuda.runtime = types.SimpleNamespace(  # type: ignore[attr-defined]
    getDeviceCount=lambda: len(_visible()),
    getDeviceProperties=lambda i: {"name": b"FAKE H200"},
    runtimeGetVersion=lambda: 13000,
    deviceGetAttribute=_attribute,
    CUDARuntimeError=CUDARuntimeError,
    memGetInfo=_info,
)
sys.modules["cupy.cuda"] = cuda


def get_default_memory_pool() -> Any:
    return types.SimpleNamespace(free_all_blocks=lambda: None)


get_default_pinned_memory_pool = get_default_memory_pool


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    _context()
    return getattr(_arrays, name)
