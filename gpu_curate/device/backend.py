"""Where documents are put: one choice a run, with its reason."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from gpu_curate.device.probe import probe_devices
from gpu_curate.document import TextColumn
from gpu_curate.errors import ConfigError, DeviceFull, DeviceLost, GpuCurateError, install, one_line


class Backend(NamedTuple):
    choice: str  # cpu | gpu
    reason: str
    devices: tuple[str, ...]  # ids for CUDA_VISIBLE_DEVICES, () on the CPU
    exclusive: frozenset[str] = frozenset()  # devices that take one process at a time

    def processes(self, workers: int) -> dict[str, int]:
        """How many processes each device gets, where `run.gpu.workers` are wanted."""
        return {device: 1 if device in self.exclusive else workers for device in self.devices}


def choose(wanted: str) -> Backend:
    """The backend for `run.backend`.

    Raises:
        ConfigError: `gpu` was asked for and cannot be had. Only `auto` falls back.
    """
    if wanted == "cpu":
        return Backend("cpu", "asked for", ())
    found = probe_devices()
    if found.devices:
        return Backend("gpu", found.reason, found.devices, found.exclusive)
    if wanted == "gpu":
        raise ConfigError(
            f"backend gpu: {found.reason}",
            "run `gpu-curate doctor` for what is missing, or use --backend auto to take the CPU where there is no GPU",
        )
    return Backend("cpu", found.reason, ())


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
        DeviceLost: CUDA failed; the runner has the partition made elsewhere, and names the device.
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
        with losing_the_device():
            try:
                text, reason = on_device()
            except cuda().out_of_memory:  # the whole partition does not fit: its halves may
                text = None
            if text is None:
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


# What says that the device is out of order or taken, not only this process's use of it: names of cudaError_t.
_GONE = (
    "cudaErrorDevicesUnavailable",
    "cudaErrorECCUncorrectable",
    "cudaErrorNoDevice",
    "cudaErrorInvalidDevice",
    "cudaErrorInitializationError",
    "cudaErrorInsufficientDriver",
    "cudaErrorSystemDriverMismatch",
    "cudaErrorSystemNotReady",
    "cudaErrorNvlinkUncorrectable",
    "cudaErrorHardwareStackError",
    "cudaErrorUnknown",
)


@contextlib.contextmanager
def losing_the_device() -> Iterator[None]:
    """Name what CUDA raises inside as the loss of the device. Out of memory and our own errors go through as they are.

    Raises: DeviceLost.
    """
    try:
        yield
    except GpuCurateError:
        raise
    except Exception as e:
        from gpu_curate.device.runtime import cuda

        if isinstance(e, cuda().out_of_memory) or not cuda().fault(e):
            raise
        said = f"{type(e).__name__}: {one_line(e)}"
        device = os.environ.get("CUDA_VISIBLE_DEVICES", "")
        raise DeviceLost(
            f"{said}{_remedy(e)}", "`nvidia-smi` and dmesg say more", device, any(name in said for name in _GONE)
        ) from e


def _remedy(e: Exception) -> str:
    if isinstance(e, OSError):
        return " (CuPy keeps compiled kernels in CUPY_CACHE_DIR, by default ~/.cupy: it must be writable)"
    if "headers" in str(e):
        return f" ({install('gpu')} brings them)"
    return ""


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
