"""A gpu_curate.device.runtime.Device that is NumPy and the emulator: the GPU twins' launch code runs on it unchanged.

It is as strict as CuPy: device arrays (DeviceArray) and host arrays do not mix, NumPy's functions do not take device
arrays, and only functions that CuPy has are there (XP_FUNCTIONS; tests/gpu_contracts compares them with the real CuPy).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from cudasim.module import EmulatedModule

from gpu_curate.device.runtime import Device
from gpu_curate.document import TextColumn

POISON = 0xA5  # what fresh device memory holds: a result that depends on it differs from the CPU twin's
XP_FUNCTIONS = frozenset(
    [
        "arange",
        "argsort",
        "asarray",
        "ascontiguousarray",
        "concatenate",
        "copyto",
        "cumsum",
        "empty",
        "flatnonzero",
        "full",
        "isin",
        "lexsort",
        "minimum",
        "ones",
        "searchsorted",
        "stack",
        "unique",
        "where",
        "zeros",
    ]
)

NOT_OF_NOTHING = frozenset(["argsort", "cumsum", "lexsort", "unique"])


class DeviceArray(np.ndarray):
    """An array that says it is CuPy's and behaves like it where NumPy would be more lenient."""

    def get(self) -> np.ndarray:
        """A copy on the host."""
        return np.array(self.view(np.ndarray))

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        outputs = options.pop("out", ())
        if outputs:
            options["out"] = tuple(_plain(o) for o in outputs)
        return _device(getattr(ufunc, method)(*(_plain(i) for i in inputs), **options))

    def __array_function__(self, function: Any, *_: Any) -> Any:
        raise TypeError(f"numpy.{function.__name__} of a device array: CuPy refuses the implicit copy to the host")

    def __getitem__(self, key: Any) -> Any:
        return _device(self.view(np.ndarray)[_index(key)])

    def __setitem__(self, key: Any, value: Any) -> None:
        self.view(np.ndarray)[_index(key)] = _plain(value)

    def sort(self, *args: Any, **options: Any) -> None:
        if self.size == 0:
            raise ValueError("sort of an empty array")
        self.view(np.ndarray).sort(*args, **options)

    def any(self, *args: Any, **options: Any) -> Any:
        return _device(self.view(np.ndarray).any(*args, **options))

    def all(self, *args: Any, **options: Any) -> Any:
        return _device(self.view(np.ndarray).all(*args, **options))

    def sum(self, *args: Any, **options: Any) -> Any:
        return _device(self.view(np.ndarray).sum(*args, **options))


DeviceArray.__module__ = "cupy"  # by which gpu_curate.document.is_cupy knows them


def _device(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.view(DeviceArray)
    return value


def _plain(value: Any) -> Any:
    """A device array as NumPy sees it. A host array is refused, as CuPy refuses it."""
    if isinstance(value, DeviceArray):
        return value.view(np.ndarray)
    if isinstance(value, np.ndarray):
        raise TypeError("a host array where a device array belongs")
    if isinstance(value, list | tuple):
        return type(value)(_plain(v) for v in value)
    return value


def _index(key: Any) -> Any:
    return tuple(_plain(k) for k in key) if isinstance(key, tuple) else _plain(key)


class EmulatedCuPy:
    """The part of CuPy's name space that the GPU twins use."""

    def __getattr__(self, name: str) -> Any:
        if name not in XP_FUNCTIONS:
            raise AttributeError(f"{name} is not among XP_FUNCTIONS: add it if CuPy has it")
        function = getattr(np, name)

        @functools.wraps(function)
        def call(*args: Any, **options: Any) -> Any:
            if name in NOT_OF_NOTHING and np.size(_plain(args[0])) == 0:
                raise ValueError(f"{name} of an empty array: whether CuPy takes it depends on its version")
            return _device(function(*_plain(args), **{k: _plain(v) for k, v in options.items()}))

        return call

    @staticmethod
    def asarray(array: Any) -> DeviceArray:
        """A copy, as of host memory to the device; a device array as it is."""
        return array if isinstance(array, DeviceArray) else np.array(array).view(DeviceArray)

    @staticmethod
    def empty(shape: Any, dtype: Any = np.float64) -> DeviceArray:
        array = np.zeros(shape, dtype)
        array.view(np.uint8).fill(POISON)
        return array.view(DeviceArray)


class StrictModule:
    """Kernels of an emulated module that take device arrays only."""

    def __init__(self, module: EmulatedModule):
        self.module = module
        self.traffic = module.traffic

    def get_function(self, name: str) -> Any:
        kernel = self.module.get_function(name)

        def launch(grid: tuple[int, ...], block: tuple[int, ...], args: tuple[Any, ...]) -> None:
            kernel(grid, block, _plain(args))

        return launch


@functools.cache
def emulated(checked: bool = False, schedule: int = 0) -> Device:
    """The emulated device; `checked` and `schedule` as for EmulatedModule."""

    @functools.cache
    def load(source: str, name: str, defines: tuple[str, ...]) -> StrictModule:
        return StrictModule(EmulatedModule(source, name, defines, checked, schedule))

    return Device(EmulatedCuPy(), load, lambda array: int(array.ctypes.data), (MemoryError,), lambda: None)


def upload(value: Any) -> Any:
    """A text column (buffer and offsets as they are) or host array on the emulated device; anything else unchanged."""
    if isinstance(value, TextColumn):
        return TextColumn(EmulatedCuPy.asarray(value.chars), EmulatedCuPy.asarray(value.offsets))
    return EmulatedCuPy.asarray(value) if isinstance(value, np.ndarray) else value


def download(value: Any) -> Any:
    """Device arrays of a result, however nested in tuples, on the host."""
    if isinstance(value, tuple):
        return tuple(download(v) for v in value)
    assert isinstance(value, DeviceArray), f"a result of type {type(value).__name__} is not on the device"
    return value.get()


def run(device: Device, twin: Callable[..., Any], *args: Any) -> Any:
    """`twin(*args, device)` with columns and arrays uploaded, its results downloaded."""
    return download(twin(*(upload(a) for a in args), device))


def install(monkeypatch: Any, device: Device | None = None) -> None:
    """Make the emulated device, or `device`, the one CUDA device of this process."""
    from gpu_curate.device import backend, cudf_columns
    from gpu_curate.device import runtime as gpu_runtime
    from gpu_curate.device.probe import Found
    from gpu_curate.ops.bands import gpu as bands
    from gpu_curate.ops.components import gpu as components
    from gpu_curate.ops.content_hash import gpu as content_hash
    from gpu_curate.ops.minhash import gpu as minhash
    from gpu_curate.ops.ngrams import gpu as ngrams
    from gpu_curate.ops.text_stats import gpu as text_stats
    from gpu_curate.ops.words import gpu as words

    twins = (bands, components, content_hash, minhash, ngrams, text_stats, words)
    for module in (gpu_runtime, cudf_columns, *twins):
        monkeypatch.setattr(module, "cuda", lambda: device or emulated())
    monkeypatch.setattr(cudf_columns, "device_reader", lambda: ("pyarrow", "emulated"))
    monkeypatch.setattr(backend, "probe_devices", lambda: Found(("0",), "emulated"))
    monkeypatch.setattr(backend, "to_device", EmulatedCuPy.asarray)
