"""Which CUDA devices can be used, found out without a context in the process that asks.

The driver counts devices without one. Each is then tried by a process of its own, which compiles and runs a kernel: a device
that is broken, taken or full is named, and the others are used. When the run begins nobody of ours holds any of them, so a
device in compute mode EXCLUSIVE_PROCESS can be used as well, by one process.

    python -m gpu_curate.device.probe     what such a process runs; prints its answer as JSON after MARK
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from gpu_curate.errors import GpuCurateError, install, one_line

MARK = "gpu_curate.device.probe:"
SECONDS = 120.0  # for all devices together; a first import of CuPy from a slow disk takes half a minute
CUDA_ERROR_NO_DEVICE = 100
_COMPUTE_MODE = 20  # cudaDevAttrComputeMode
_EXCLUSIVE_PROCESS = 3  # cudaComputeModeExclusiveProcess


class Probed(NamedTuple):
    """One device, as its own process saw it."""

    device: str  # as in CUDA_VISIBLE_DEVICES
    error: str | None  # why it cannot be used
    exclusive: bool = False  # it takes one process at a time


class Found(NamedTuple):
    """The devices of this machine."""

    devices: tuple[str, ...]  # ids for CUDA_VISIBLE_DEVICES, those that work
    reason: str  # what was found, or why there are none
    exclusive: frozenset[str] = frozenset()  # devices that take one process at a time


def device_ids() -> tuple[list[str], str]:
    """Ids of the devices that the driver shows, and why there are none. Makes no context and compiles nothing."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None and not visible.strip():
        return [], "CUDA_VISIBLE_DEVICES is empty"
    count, reason = _count()
    if not count:
        return [], reason
    ids = _named(visible, count)
    return ids, f"{len(ids)} CUDA device{'s' if len(ids) != 1 else ''}"


def _count() -> tuple[int, str]:
    """How many devices the driver shows, and why none."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0, "no CUDA device: libcuda.so.1 not found"
    status = driver.cuInit(0)
    count = ctypes.c_int(0)
    status = status or driver.cuDeviceGetCount(ctypes.byref(count))
    if status and status != CUDA_ERROR_NO_DEVICE:
        name = ctypes.c_char_p()
        driver.cuGetErrorName(status, ctypes.byref(name))
        return 0, f"the CUDA driver fails: {(name.value or b'error').decode()} ({status})"
    return count.value, "" if count.value else "the driver sees no CUDA device"


def _named(visible: str | None, count: int) -> list[str]:
    """Ids of `count` devices. CUDA shows a process one MIG instance, however many are named or there: each is a device here."""
    if visible is None:
        return _instances() or [str(number) for number in range(count)]
    names = [name.strip() for name in visible.split(",")]
    instances = [name for name in names if name.startswith("MIG-")]
    return list(dict.fromkeys(instances)) if instances else names[:count]


def _instances() -> list[str]:
    """Where a device of this machine is cut into MIG instances, the ids of all, and of the devices that are not; else []."""
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception:  # not installed, no library, no permission: then nobody knows of instances
        return []
    found: list[str] = []
    cut = False
    try:
        for number in range(pynvml.nvmlDeviceGetCount()):
            handle = pynvml.nvmlDeviceGetHandleByIndex(number)
            try:
                enabled = pynvml.nvmlDeviceGetMigMode(handle)[0] == 1
            except pynvml.NVMLError:  # a card that has no such mode
                enabled = False
            if not enabled:
                found.append(_text(pynvml.nvmlDeviceGetUUID(handle)))
                continue
            cut = True
            for i in range(pynvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
                try:
                    instance = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, i)
                except pynvml.NVMLError:  # fewer are made than could be
                    continue
                found.append(_text(pynvml.nvmlDeviceGetUUID(instance)))
    except pynvml.NVMLError:
        return []
    finally:
        pynvml.nvmlShutdown()
    return found if cut else []


def _text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def probe_devices() -> Found:
    """The devices that compile and run a kernel, each tried by a process of its own, all at once."""
    ids, reason = device_ids()
    if not ids:
        return Found((), reason)
    import importlib.util

    if importlib.util.find_spec("cupy") is None:
        return Found((), f"CuPy is not installed ({install('gpu')})")
    if said := streams_differ():
        return Found((), said)
    probed = _try_all(ids)
    good = [p for p in probed if p.error is None]
    bad = [f"{p.device}: {p.error}" for p in probed if p.error is not None]
    if not good:
        return Found((), "; ".join(bad))
    reason = f"{len(good)} CUDA device{'s' if len(good) != 1 else ''}"
    if bad:
        reason = f"{len(good)} of {len(probed)} CUDA devices; left out: {'; '.join(bad)}"
    return Found(tuple(p.device for p in good), reason, frozenset(p.device for p in good if p.exclusive))


def streams_differ() -> str | None:
    """Why CuPy and cuDF must not be used together as they are set: one would read what the other has not yet written.

    Both put their work on the default stream. Where a variable gives each thread its own, it must do so for both.
    """
    import importlib.util

    if importlib.util.find_spec("cudf") is None:
        return None
    cupy, cudf = (
        os.environ.get(name, "0").strip() not in ("", "0")
        for name in ("CUPY_CUDA_PER_THREAD_DEFAULT_STREAM", "CUDF_PER_THREAD_STREAM")
    )
    if cupy == cudf:
        return None
    names = ("CUPY_CUDA_PER_THREAD_DEFAULT_STREAM", "CUDF_PER_THREAD_STREAM")
    one, other = names if cupy else names[::-1]
    return f"{one} is set and {other} is not: CuPy and cuDF would not wait for each other; unset it, or set both to 1"


def _try_all(ids: Sequence[str]) -> list[Probed]:
    deadline = time.monotonic() + SECONDS
    with tempfile.TemporaryDirectory(prefix="gpu-curate-probe-") as folder:
        started = [_start(device, Path(folder) / str(number)) for number, device in enumerate(ids)]
        return [_answer(device, *child, deadline) for device, child in zip(ids, started, strict=True)]


def child_environment(device: str) -> dict[str, str]:
    """What a process that looks at one device runs under."""
    path = os.pathsep.join(p for p in [str(Path(__file__).parents[2]), *sys.path] if p)
    own = {"CUDA_VISIBLE_DEVICES": device, "PYTHONPATH": path, "CUDA_LAUNCH_BLOCKING": "1"}  # a fault names its kernel
    return {**os.environ, **own, **cache_environment()}


def cache_environment() -> dict[str, str]:
    """Where CuPy keeps what it compiles: in memory, if its folder cannot be written, which it would stumble over."""
    folder = Path(os.environ.get("CUPY_CACHE_DIR") or "~/.cupy/kernel_cache").expanduser()
    place = folder
    while not place.exists() and place != place.parent:
        place = place.parent
    return {} if place.is_dir() and os.access(place, os.W_OK | os.X_OK) else {"CUPY_CACHE_IN_MEMORY": "1"}


def _start(device: str, out: Path) -> tuple[subprocess.Popen[bytes], Path]:
    command = [sys.executable, "-P", "-m", "gpu_curate.device.probe"]
    with out.open("wb") as stdout, out.with_suffix(".err").open("wb") as stderr:
        process = subprocess.Popen(
            command,
            env=child_environment(device),
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
        )
    return process, out


def _answer(device: str, process: subprocess.Popen[bytes], out: Path, deadline: float) -> Probed:
    try:
        status = process.wait(max(deadline - time.monotonic(), 0.1))
    except subprocess.TimeoutExpired:
        return Probed(device, f"no answer within {SECONDS:.0f} s: the driver hangs, or the disk with CuPy is slow")
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    for line in out.read_text(errors="replace").splitlines():
        if line.startswith(MARK):
            answer = json.loads(line.removeprefix(MARK))
            return Probed(device, answer["error"], answer["exclusive"])
    said = out.with_suffix(".err").read_text(errors="replace").strip().splitlines()
    how = f"killed by {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
    return Probed(device, f"{how}: {said[-1][:300] if said else 'it said nothing'}")


_KERNEL = """
extern "C" __global__ void probe(unsigned* out) { out[threadIdx.x] = threadIdx.x * 3u + 1u; }
"""


def look() -> dict[str, Any]:
    """What the process of one device finds: whether a kernel of ours compiles and runs there."""
    try:
        from gpu_curate.device.runtime import cuda

        device = cuda()
        out = device.xp.zeros(32, "uint32")
        device.load(_KERNEL, "probe.cu", ()).get_function("probe")((1,), (32,), (out,))
        got = out.get().tolist()
        if got != list(range(1, 97, 3)):
            return {"error": f"a kernel gives {got[:4]} instead of [1, 4, 7, 10]", "exclusive": False}
        mode = device.xp.cuda.runtime.deviceGetAttribute(_COMPUTE_MODE, 0)
        return {"error": None, "exclusive": int(mode) == _EXCLUSIVE_PROCESS}
    except GpuCurateError as e:
        return {"error": e.message, "exclusive": False}
    except Exception as e:  # CuPy raises classes of its own for a driver too old, a mismatch, a full device, no headers
        return {"error": f"{type(e).__name__}: {one_line(e)}", "exclusive": False}


if __name__ == "__main__":
    print(f"\n{MARK}{json.dumps(look())}", flush=True)
    os._exit(0)  # a library's exit handlers must not hold the answer up
