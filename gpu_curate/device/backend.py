"""Where documents are put: one choice a run, with its reason. The only module that asks for a CUDA device."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from gpu_curate.document import TextColumn
from gpu_curate.errors import ConfigError, DeviceFull, install


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


def to_device(array: np.ndarray) -> Any:
    import cupy

    return cupy.asarray(array)


class Computed(NamedTuple):
    """What `compute` made."""

    arrays: dict[str, Any]  # on the host
    backend: str  # where: cpu, gpu, `gpu (text read by the CPU)`, or `cpu (device full)`; the integers are the same
    facts: dict[str, str]  # for the receipt: `read_by_cpu`, why cuDF's text was not taken


def compute(
    backend: str,
    on_host: Callable[[], TextColumn],
    on_device: Callable[[], tuple[TextColumn, str | None]],
    function: Callable[[TextColumn], dict[str, Any]],
) -> Computed:
    """Run `function` on the texts of a partition, where the run puts documents.

    Args:
        backend: cpu or gpu.
        on_host, on_device: read the texts; the second says why it did not take those of cuDF, if it did not.
        function: texts → arrays whose first axis is the document; called with a column on the host or the device.
    Returns:
        the arrays. Text that cuDF reads otherwise than the documents stage did is read by the CPU, and the report says
        so; a text that does not fit on the device alone takes the partition to the CPU twin.
    Raises:
        DeviceError: the device cannot be used for another reason. Falling back would hide it, and its remedy.
    """
    if backend != "gpu":
        return Computed(function(on_host()), "cpu", {})
    from gpu_curate.device.runtime import cuda, in_batches
    from gpu_curate.device.runtime import to_device as upload

    names: list[str] = []
    reason = None

    def arrays(text: TextColumn) -> tuple[Any, ...]:
        made = function(text)
        names[:] = made
        return tuple(made.values())

    try:
        try:
            text, reason = on_device()
        except cuda().out_of_memory:  # the whole partition does not fit: its halves may
            text = on_host()
            made = in_batches(text, lambda part: arrays(upload(part)))
        else:
            made = in_batches(text, arrays)
    except DeviceFull:
        return Computed(function(on_host()), "cpu (device full)", {})
    made_here = dict(zip(names, made, strict=True))
    if reason is None:
        return Computed(made_here, "gpu", {})
    return Computed(made_here, "gpu (text read by the CPU)", {"read_by_cpu": reason})


def curator_available(required: bool) -> bool:
    """True if NeMo Curator can be imported. Raises: ConfigError if it is required and missing."""
    import importlib.util

    there = importlib.util.find_spec("nemo_curator") is not None
    if required and not there:
        raise ConfigError(
            "dedup.fuzzy.components: NeMo Curator is not installed",
            f"{install('curator')}, or set components: auto",
        )
    return there
