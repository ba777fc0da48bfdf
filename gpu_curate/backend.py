"""Where documents are put: one choice a run, with its reason. The only module that asks for a CUDA device."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from gpu_curate.document import TextColumn, is_cupy
from gpu_curate.errors import ConfigError, DeviceError


class Backend(NamedTuple):
    choice: str  # cpu | gpu
    reason: str
    devices: tuple[str, ...]  # ids for CUDA_VISIBLE_DEVICES, () on the CPU


def probe_devices() -> tuple[list[str], str]:
    """Ids of the CUDA devices that CuPy can use, and why there are none."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None and not visible.strip():
        return [], "CUDA_VISIBLE_DEVICES is empty"
    import ctypes

    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return [], "no CUDA device: libcuda.so.1 not found"
    try:
        import cupy
    except ImportError as e:
        return [], f"CuPy is not installed ({e})"
    try:
        count = cupy.cuda.runtime.getDeviceCount()
        for device in range(count):
            with cupy.cuda.Device(device):
                cupy.zeros(1).sum().get()
    except Exception as e:  # CuPy raises classes of its own for a driver too old, a mismatch, a full device
        return [], f"{type(e).__name__}: {' '.join(str(e).split())}"
    if count == 0:
        return [], "the driver sees no CUDA device"
    names = visible.split(",") if visible is not None else [str(d) for d in range(count)]
    return [n.strip() for n in names[:count]], f"{count} CUDA device{'s' if count > 1 else ''}"


def choose(wanted: str) -> Backend:
    """The backend for `run.backend`.

    Raises:
        ConfigError: `gpu` was asked for and cannot be had. Only `auto` falls back.
    """
    if wanted == "cpu":
        return Backend("cpu", "asked for", ())
    devices, reason = probe_devices()
    if devices:
        return Backend("gpu", reason, tuple(devices))
    if wanted == "gpu":
        raise ConfigError(
            f"backend gpu: {reason}",
            "run `gpu-curate doctor` for what is missing, or use --backend auto to take the CPU where there is no GPU",
        )
    return Backend("cpu", reason, ())


def to_host(array: Any) -> np.ndarray:
    """A NumPy array, copied down if it lives on a device."""
    return array.get() if is_cupy(array) else array


def to_device(array: np.ndarray) -> Any:
    import cupy

    return cupy.asarray(array)


def on_device(function: Callable[..., Any], text: TextColumn, *args: Any) -> tuple[Any, str]:
    """Run `function(text, *args)` with the text on the device.

    A text that does not fit is run by the CPU twin: same integers, and the second value, `cpu (device full)`, tells.
    """
    import cupy

    try:
        column = TextColumn(cupy.asarray(text.chars), cupy.asarray(text.offsets))
        return function(column, *args), "gpu"
    except (cupy.cuda.memory.OutOfMemoryError, DeviceError):
        cupy.get_default_memory_pool().free_all_blocks()
        return function(text, *args), "cpu (device full)"


def curator_available(required: bool) -> bool:
    """True if NeMo Curator can be imported. Raises: ConfigError if it is required and missing."""
    import importlib.util

    there = importlib.util.find_spec("nemo_curator") is not None
    if required and not there:
        raise ConfigError(
            "dedup.fuzzy.components: NeMo Curator is not installed", "pip install 'gpu_curate[curator]', or set it to auto"
        )
    return there


def curator_components(context: Any, corpus: Any, valid: np.ndarray, components: Any) -> int:
    """Connect all bands through NeMo Curator; returns the number of candidate pairs."""
    raise DeviceError("not wired")
