"""How the GPU twins of the ops reach a device: arrays, kernels, launches, and what to do when memory runs out.

The twins are written against `Device`: an array library and a loader of kernels. CUDA is the one the product uses; tests
put NumPy and an emulator of CUDA on the CPU in its place, so the very same launch code and kernels run there.

Kernels are `ops/<op>/kernels.cu`, without #include, compiled by CuPy's NVRTC for the device at hand when first used (about
a second each; CuPy keeps them in its cache folder). What kernels share is `ops/common.cu`, put in front of each.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, NamedTuple

import numpy as np

from gpu_curate.document import TextColumn, is_cupy
from gpu_curate.errors import DeviceError, DeviceFull, DeviceLost, install

BLOCK = 256  # threads per block of every kernel here


class Footprint(NamedTuple):
    """Device memory an op takes beside its input, in bytes; results included."""

    per_text_byte: float
    per_document: float
    fixed: int = 1 << 20

    def of(self, n_bytes: int, n_documents: int) -> int:
        """Bytes for `n_documents` documents of `n_bytes` bytes in all."""
        return int(self.per_text_byte * n_bytes + self.per_document * n_documents) + self.fixed


@dataclass(frozen=True)
class Device:
    """Where arrays live and kernels run.

    Args:
        xp: array library: cupy, or numpy in tests.
        load: (source, name, defines) -> module with get_function(kernel)(grid, block, args).
        address: byte address of an array's first element.
        out_of_memory: exception classes that mean "does not fit".
        release: gives cached free memory back to the device.
        put: a host array → the same on the device; None: as `xp.asarray` does it.
        fault: tells what CUDA and the libraries on it raise from errors of ours. What does not fit is none.
    """

    xp: Any
    load: Callable[[str, str, tuple[str, ...]], Any]
    address: Callable[[Any], int]
    out_of_memory: tuple[type[BaseException], ...]
    release: Callable[[], None]
    fault: Callable[[BaseException], bool] = lambda e: False
    put: Callable[[np.ndarray], Any] | None = None

    def kernel(self, op: str, name: str, defines: tuple[str, ...] = ()) -> Any:
        """Kernel `name` of ops/<op>/kernels.cu, compiled with macros "NAME=VALUE"."""
        return self.load(source(op), f"{op}.cu", defines).get_function(name)

    def launch(
        self, op: str, name: str, n_threads: int, args: Sequence[Any], defines: tuple[str, ...] = (), rows: int = 1
    ) -> None:
        """Run a kernel with at least `n_threads` x `rows` threads, BLOCK a block; none at all for 0.

        Args:
            args: arrays, and NumPy scalars of the parameter's exact width.
        """
        if n_threads > 0 and rows > 0:
            self.kernel(op, name, defines)((-(-n_threads // BLOCK), rows), (BLOCK,), tuple(args))

    def upload(self, array: np.ndarray) -> Any:
        """A host array on the device."""
        return self.xp.asarray(array) if self.put is None else self.put(array)


@cache
def source(op: str) -> str:
    """Source text of an op's kernels with ops/common.cu in front; line numbers in messages are those of the files."""
    ops = resources.files("gpu_curate.ops")
    common = ops.joinpath("common.cu").read_text(encoding="utf-8")
    kernels = ops.joinpath(op, "kernels.cu").read_text(encoding="utf-8")
    return f'#line 1 "common.cu"\n{common}\n#line 1 "{op}.cu"\n{kernels}'


@cache
def cuda() -> Device:
    """The current CUDA device through CuPy, which shares its memory with cuDF from the first array on.

    Raises:
        DeviceError: CuPy is not installed.
        DeviceLost: it finds no device.
    """
    try:
        import cupy
    except ImportError as e:
        raise DeviceError(f"CuPy cannot be imported: {e}", f"{install('gpu')}, or run with --backend cpu") from e
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as e:
        raise _no_device(f"no usable CUDA device: {e}", "see `gpu-curate doctor`, or run with --backend cpu") from e
    if count == 0:
        raise _no_device("no CUDA device is visible", "check CUDA_VISIBLE_DEVICES, or run with --backend cpu")
    from gpu_curate.device.memory import share_memory
    from gpu_curate.device.pinned import PinnedRing

    release = share_memory(cupy)

    @cache
    def load(text: str, name: str, defines: tuple[str, ...]) -> Any:
        options = ("--std=c++17", *(f"-D{d}" for d in defines))
        return cupy.RawModule(code=text, options=options, name_expressions=None)

    return Device(
        xp=cupy,
        load=load,
        address=lambda array: int(array.data.ptr),
        out_of_memory=(cupy.cuda.memory.OutOfMemoryError, MemoryError),  # RMM raises MemoryError
        release=release,
        fault=cuda_fault,
        put=PinnedRing(cupy).upload,
    )


def _no_device(message: str, hint: str) -> DeviceLost:
    return DeviceLost(message, hint, os.environ.get("CUDA_VISIBLE_DEVICES", ""), gone=True)


def cuda_fault(error: BaseException) -> bool:
    """True of what CuPy, RMM and cuDF raise when CUDA fails, or when CuPy cannot compile or keep what it compiled."""
    if type(error).__module__.split(".")[0] in ("cupy", "cupy_backends", "rmm", "cuda"):
        return not isinstance(error, TypeError | ValueError | LookupError)
    if isinstance(error, OSError):  # of CuPy's cache folder; files of ours are named by errors of ours
        return "cupy" in str(error).lower()
    return isinstance(error, RuntimeError) and "cuda" in str(error).lower()


def to_device(text: TextColumn, device: Device | None = None) -> TextColumn:
    """A host column copied to the device: only the bytes of its own texts travel.

    Raises:
        DeviceError: there is no device.
        The device's out-of-memory error, if it does not fit.
    """
    device = device or cuda()
    first, last = int(text.offsets[0]), int(text.offsets[-1])
    return TextColumn(device.upload(text.chars[first:last]), device.upload(text.offsets - first))


def in_batches(
    text: TextColumn, run: Callable[[TextColumn], tuple[Any, ...]], device: Device | None = None
) -> tuple[Any, ...]:
    """`run` over a column, in halves (by bytes) where the device has too little memory for the whole.

    Args:
        text: N documents, on the host or the device.
        run: op over a column; returns arrays whose first axis is the document.
    Returns:
        The arrays for all N documents, on the host: what is done must not stand in the way of what is left.
    Raises:
        DeviceFull: a single document does not fit; the caller runs the CPU twin.
    """
    device = device or cuda()
    try:
        return tuple(to_host(a) for a in run(text))
    except device.out_of_memory as e:
        if len(text) <= 1:
            raise DeviceFull(
                f"a document of {text.nbytes} bytes does not fit into device memory: {e}",
                "the CPU twin takes it; a smaller run.partition_bytes leaves more room for the rest",
            ) from e
    device.release()  # only here: while the error is handled its traceback holds the arrays of what failed
    middle = _middle(text)
    halves = [in_batches(part, run, device) for part in (text.slice(0, middle), text.slice(middle, len(text)))]
    return tuple(np.concatenate(pair) for pair in zip(*halves, strict=True))


def _middle(text: TextColumn) -> int:
    """Document number that halves the bytes and leaves at least one document on either side."""
    offsets = to_host(text.offsets)
    half = (int(offsets[0]) + int(offsets[-1])) // 2
    return min(max(int(np.searchsorted(offsets, half)), 1), len(text) - 1)


def to_host(array: Any) -> np.ndarray:
    """The array on the host."""
    host: np.ndarray = array.get() if is_cupy(array) else array
    return host
