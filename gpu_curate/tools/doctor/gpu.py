"""The GPU: driver, who holds the devices, CuPy, cuDF, NeMo Curator."""

from __future__ import annotations

import ctypes
import importlib
import importlib.metadata
import importlib.util
from typing import Any, Literal

from gpu_curate.errors import install
from gpu_curate.tools.doctor.check import MIN_FREE_BYTES, Check, error_text, gigabytes, version_of

MIN_DRIVER_CUDA = 13000  # what cupy-cuda13x needs, as cuDriverGetVersion says it: a driver from 580 up
CUDA_ERROR_NO_DEVICE = 100
_GPU = install("gpu")


def driver() -> list[Check]:
    """libcuda, asked without CuPy."""

    def check(status: Literal["ok", "missing", "failed"], detail: str, remedy: str | None = None) -> list[Check]:
        return [Check("GPU", "driver", status, detail, remedy, True)]

    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        remedy = "install the NVIDIA driver (580 or newer); in a container: docker run --gpus all"
        return check("missing", "libcuda.so.1 not found", remedy)
    version = ctypes.c_int()
    cuda.cuDriverGetVersion(ctypes.byref(version))
    said = f"CUDA {_cuda(version.value)}"
    status = cuda.cuInit(0)
    if status == CUDA_ERROR_NO_DEVICE:
        return check("missing", f"{said}, no device", "`nvidia-smi` lists devices; see CUDA_VISIBLE_DEVICES above")
    if status:
        name = ctypes.c_char_p()
        cuda.cuGetErrorName(status, ctypes.byref(name))
        what = f"{said}, cuInit: {(name.value or b'error').decode()} ({status})"
        return check(
            "failed", what, "a driver that was updated needs a restart; in a container: is it the host's libcuda?"
        )
    if version.value < MIN_DRIVER_CUDA:
        return check("missing", f"{said}: too old for cupy-cuda13x", "update the driver to 580 or newer")
    count = ctypes.c_int()
    cuda.cuDeviceGetCount(ctypes.byref(count))
    return check("ok", f"{said}, {count.value} device{'s' if count.value != 1 else ''} visible")


def nvml() -> list[Check]:
    """Driver version, and for each device its memory and who holds it. Sees devices that CUDA_VISIBLE_DEVICES hides."""
    try:
        import pynvml
    except ImportError:
        return [Check("GPU", "NVML", "missing", "nvidia-ml-py is not installed", "pip install nvidia-ml-py (says who holds a GPU)")]  # fmt: skip
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError_LibraryNotFound:
        return [Check("GPU", "NVML", "missing", f"nvidia-ml-py {version_of('nvidia-ml-py')}; no libnvidia-ml.so.1", "comes with the NVIDIA driver")]  # fmt: skip
    except pynvml.NVMLError as e:
        return [Check("GPU", "NVML", "failed", error_text(e), "a driver that was updated needs a restart; see `nvidia-smi`")]  # fmt: skip
    try:
        checks = [Check("GPU", "NVML", "ok", f"driver {_text(pynvml.nvmlSystemGetDriverVersion())}")]
        for number in range(pynvml.nvmlDeviceGetCount()):
            checks.append(_device(pynvml, number))
        return checks
    finally:
        pynvml.nvmlShutdown()


def _device(pynvml: Any, number: int) -> Check:
    """Whether a device has room, and who takes it."""
    try:
        handle = pynvml.nvmlDeviceGetHandleByIndex(number)
        name, memory = _text(pynvml.nvmlDeviceGetName(handle)), pynvml.nvmlDeviceGetMemoryInfo(handle)
    except pynvml.NVMLError as e:
        return Check("GPU", f"device {number}", "failed", error_text(e), "`nvidia-smi` and dmesg say more (fallen off the bus?)")  # fmt: skip
    held = []
    try:
        for p in pynvml.nvmlDeviceGetComputeRunningProcesses(handle):
            used = "" if p.usedGpuMemory is None else f", {gigabytes(p.usedGpuMemory)}"
            held.append(f"{p.pid} ({_process_name(pynvml, p.pid)}{used})")
    except pynvml.NVMLError as e:  # not told in some containers and under MIG
        held = [f"not told ({error_text(e)})"]
    detail = f"{name}, {gigabytes(memory.free)} of {gigabytes(memory.total)} free"
    detail += f"; held by {', '.join(held)}" if held else ""
    if memory.free < MIN_FREE_BYTES:
        return Check("GPU", f"device {number}", "missing", detail, "wait for that process, or choose another device with CUDA_VISIBLE_DEVICES")  # fmt: skip
    return Check("GPU", f"device {number}", "ok", detail)


def _process_name(pynvml: Any, pid: int) -> str:
    try:
        import psutil

        return " ".join(psutil.Process(pid).cmdline()[:3])[:80] or psutil.Process(pid).name()
    except Exception:  # of another user, of another container, or gone: NVML may still know
        try:
            return _text(pynvml.nvmlSystemGetProcessName(pid))[:80]
        except pynvml.NVMLError:
            return "unknown, perhaps in another container"


def _text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def cupy_works() -> list[Check]:
    if importlib.util.find_spec("cupy") is None:
        return [Check("GPU", "CuPy", "missing", "not installed", _GPU, True)]
    try:
        import cupy
    except Exception as e:
        return [Check("GPU", "CuPy", "failed", error_text(e), f"two builds of CuPy side by side? pip list | grep cupy; {_GPU}", True)]  # fmt: skip
    said = f"{cupy.__version__}, CUDA runtime {_cuda(cupy.cuda.runtime.runtimeGetVersion())}"
    try:
        nvrtc = ".".join(map(str, cupy.cuda.nvrtc.getVersion()))
        said += f", NVRTC {nvrtc}"
    except Exception as e:
        return [
            Check("GPU", "CuPy", "failed", f"{said}; NVRTC: {error_text(e)}", "pip install 'cupy-cuda13x[ctk]'", True)
        ]
    from gpu_curate.device import probe

    devices, reason, exclusive = probe.probe_devices()
    if devices:
        own = f"; one process at a time: {', '.join(sorted(exclusive))}" if exclusive else ""
        checks = [Check("GPU", "CuPy", "ok", f"{said}; compiles and runs a kernel on {reason}{own}", None, True)]
        if "left out" in reason:  # the others do
            checks.append(Check("GPU", "devices", "failed", reason, "a run goes on without them; `nvidia-smi` and dmesg say more"))  # fmt: skip
        return checks
    full = any(mark in reason for mark in ("OutOfMemory", "cudaErrorMemoryAllocation"))
    absent = any(mark in reason for mark in ("libcuda", "is empty", "sees no CUDA device", "cudaErrorNoDevice"))
    remedy = "see above who holds the device" if full else "the lines above say what is missing"
    if "headers" in reason:
        remedy = "pip install 'cupy-cuda13x[ctk]'"
    return [Check("GPU", "CuPy", "missing" if full or absent else "failed", f"{said}; {reason}", remedy, True)]


def _cuda(version: int) -> str:
    return f"{version // 1000}.{version % 1000 // 10}"


def cudf_works() -> list[Check]:
    if importlib.util.find_spec("cudf") is None:
        return [Check("GPU", "cuDF", "missing", "not installed: pyarrow reads on the CPU and the bytes are copied", _GPU)]  # fmt: skip
    try:
        import cudf

        from gpu_curate.device.cudf_columns import text_column
        from gpu_curate.device.probe import device_ids

        if device_ids()[0]:
            texts = ["", "one", "zwei drei", "漢字"]
            column = text_column(cudf.Series(texts))
            got = column.chars.get()[int(column.offsets[0]) :].tobytes()
            if got != "".join(texts).encode():
                return [Check("GPU", "cuDF", "failed", f"{cudf.__version__}: a column came back as {got!r}", _GPU)]
            return [Check("GPU", "cuDF", "ok", f"{cudf.__version__}, a column of strings read without a copy")]
    except Exception as e:
        return [Check("GPU", "cuDF", "failed", error_text(e), f"{_GPU} (cudf-cu13 26.8)")]
    return [Check("GPU", "cuDF", "ok", f"{cudf.__version__}; not tried: there is no device")]


def curator() -> list[Check]:
    wanted = f"{install('curator')} (components on many GPUs; the CPU builds them otherwise)"
    checks = []
    for name, module in (("NeMo Curator", "nemo_curator"), ("Ray", "ray")):
        if importlib.util.find_spec(module) is None:
            checks.append(Check("GPU", name, "missing", "not installed", wanted))
            continue
        try:
            imported = importlib.import_module(module)
            if module == "nemo_curator":
                importlib.import_module("nemo_curator.stages.deduplication.fuzzy.connected_components")
                importlib.import_module("nemo_curator.backends.ray_actor_pool")
            checks.append(Check("GPU", name, "ok", str(getattr(imported, "__version__", "version unknown"))))
        except Exception as e:
            checks.append(Check("GPU", name, "failed", error_text(e), f"{wanted}; or set dedup.fuzzy.components: cpu"))
    return checks
