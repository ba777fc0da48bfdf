"""gpu-curate doctor: honest where there is no GPU, and never silent or stuck where something is broken."""

from __future__ import annotations

import ctypes
import functools
import importlib.metadata
import json
import os
import shutil
import sys
import time
import tomllib
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import reference
import xxhash
from cudasim.device import StrictModule, emulated
from cudasim.module import EmulatedModule, available
from ops import judge_reference
from ops.text_stats_reference import reference as stats_reference
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from places import ROOT
from typer.testing import CliRunner

from gpu_curate import cli
from gpu_curate.device import probe
from gpu_curate.device.runtime import source
from gpu_curate.errors import ConfigError
from gpu_curate.ops.catalogue import OPS
from gpu_curate.ops.judge import trial
from gpu_curate.ops.text_stats import NAMES
from gpu_curate.tools.doctor import diagnosis, libraries, ops, probes
from gpu_curate.tools.doctor.check import Check

emulator = pytest.mark.skipif(not available(), reason="no C++ compiler: the emulator compiles kernels with g++")


def only(monkeypatch, *names: str, seconds: float | None = None) -> None:
    """Leave a few of the probes, with another time limit."""
    kept = {n: probes.PROBES[n] for n in names}
    if seconds is not None:
        kept = {n: p._replace(seconds=seconds) for n, p in kept.items()}
    for module in (probes, diagnosis):
        monkeypatch.setattr(module, "PROBES", kept)


def named(facts, name):
    (check,) = [c for c in facts["checks"] if c["name"] == name]
    return check


# ---------------------------------------------------------------------------------------------------------- the whole


def test_a_machine_without_a_gpu_is_usable_and_says_what_is_missing(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    done = CliRunner().invoke(cli.app, ["doctor", "--json"])
    facts = json.loads(done.stdout)
    assert done.exit_code == 0, [c for c in facts["checks"] if c["status"] == "failed"]
    assert facts["usable"]
    assert not facts["gpu_usable"]
    hidden = named(facts, "CUDA_VISIBLE_DEVICES")
    assert (hidden["status"], hidden["for_gpu"]) == ("missing", True)
    assert "is empty" in named(facts, "kernels")["detail"]
    self_tests = [c["name"] for c in facts["checks"] if c["group"] == "self-test, CPU" and c["status"] == "ok"]
    assert self_tests == list(ops.GOLDEN)
    assert [op for op in self_tests if op in OPS] == list(OPS)  # none is left out
    assert "numpy" in named(facts, "required")["detail"]
    assert "probe texts" in named(facts, "gigatoken")["detail"]
    assert all(c["remedy"] for c in facts["checks"] if c["status"] != "ok")
    groups = [c["group"] for c in facts["checks"]]
    assert groups == sorted(groups, key=probes.GROUPS.index)


def test_what_the_gpu_path_lacks_fails_when_it_is_required(monkeypatch):
    if probe.device_ids()[0]:
        pytest.skip("this machine has a CUDA device")
    only(monkeypatch, "driver", "kernels")
    assert CliRunner().invoke(cli.app, ["doctor"]).exit_code == 0
    done = CliRunner().invoke(cli.app, ["doctor", "--gpu"])
    assert done.exit_code == 1
    assert "FAILED: " in done.output
    assert "GPU path: not usable: " in done.output
    assert "-> install the NVIDIA driver" in done.output or "libcuda" not in done.output


def test_a_probe_that_hangs_crashes_or_dies_is_a_line(monkeypatch, tmp_path):
    only(monkeypatch, "nvml", seconds=20)
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.syspath_prepend(tmp_path)
    for body, said in [
        ("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)", "killed by SIGSEGV"),
        ("import sys\nsys.exit(7)", "exit status 7"),
        ("raise RuntimeError('no good')", "exit status 1: RuntimeError: no good"),
    ]:
        (tmp_path / "pynvml.py").write_text(body)
        check = named(diagnosis.diagnose(), "NVML")
        assert check["status"] == "failed"
        assert said in check["detail"]
        assert check["remedy"]
    # the process, and what it started that keeps its output open, is ended at the limit
    (tmp_path / "pynvml.py").write_text(
        "import subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        f"open({str(tmp_path / 'pid')!r}, 'w').write(str(child.pid))\n"
        "time.sleep(600)\n"
    )
    only(monkeypatch, "nvml", seconds=6)
    assert named(diagnosis.diagnose(), "NVML")["detail"] == "no answer within 6 s"
    import psutil

    pid = int((tmp_path / "pid").read_text())
    deadline = time.monotonic() + 10  # a killed process is gone when the kernel gets round to it
    while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_crash_on_the_device_leaves_no_usable_gpu_path(monkeypatch, tmp_path):
    (tmp_path / "cupy.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    only(monkeypatch, "cupy")
    facts = diagnosis.diagnose()
    assert (facts["usable"], facts["gpu_usable"]) == (False, False)
    assert "killed by SIGSEGV" in named(facts, "CuPy")["detail"]


def test_a_full_disk_or_a_folder_that_cannot_be_written_is_said(monkeypatch, tmp_path):
    only(monkeypatch)
    assert named(diagnosis.diagnose(folder=tmp_path), "disk")["status"] == "ok"
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=1000, total=1 << 40))
    assert named(diagnosis.diagnose(folder=tmp_path), "disk")["status"] == "failed"
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert "not writable" in named(diagnosis.diagnose(folder=tmp_path), "disk")["detail"]


# ----------------------------------------------------------------------------------------------------------- self-test


def test_the_stored_results_are_those_of_the_definitions(monkeypatch):
    monkeypatch.setattr(reference, "shingles", functools.cache(reference.shingles))  # else made anew for every row
    text = ops.self_test_column()
    documents = [text.raw(i) for i in range(len(text))]
    some = list(dict.fromkeys(documents))  # each stands there four times; the definitions are slow
    places = [some.index(d) for d in documents]
    words = [reference.word_hashes(d) for d in some]
    words = [words[i] for i in places]
    rows = {f: [reference.signature(d, family=f) for d in some] for f in ("affine", "fmix64")}
    rows = {f: [of_some[i] for i in places] for f, of_some in rows.items()}
    bands = [reference.band_hashes(r) for r in rows["affine"]]
    valid = [bool(w) for w in words]
    edges = [reference.band_edges([b[k] for b in bands], valid) for k in range(14)]
    labels = reference.components(len(documents), [e for of_band in edges for e in of_band])
    hits = reference.contamination(some, documents[:2], 13, False)
    hits = [hits[i] for i in places]
    digests = [xxhash.xxh3_128_intdigest(d) for d in documents]
    stats = [stats_reference(d) for d in some]
    stats = [stats[i] for i in places]
    pairs = [pair for own in edges for pair in own]
    shingles = [reference.shingles(d, 5) for d in documents]
    windows = np.array([len(s) for s in shingles], np.int64)
    in_items = sorted(set().union(*(reference.item_ngrams(d, 13, False) for d in documents[:2])))
    grams = {gram: place for place, gram in enumerate(in_items)}
    of_judge = np.array([judge_reference.sums(d, trial()) for d in some], np.int64)[places]
    judged = {"sum_N": of_judge, "words_N": np.array([s["words"] for s in stats], np.int32)}
    expected = {
        "content_hash": {"content_N": np.array([(h >> 64, h & (1 << 64) - 1) for h in digests], np.uint64)},
        "words": {
            "hash_W": np.array([h for w in words for h in w], np.uint64),
            "words_N": np.array([len(w) for w in words], np.int64),
        },
        "signature": {"sig_N": np.array(rows["affine"], np.uint32), "n_shingles_N": windows},
        "signature fmix64": {"sig_N": np.array(rows["fmix64"], np.uint32), "n_shingles_N": windows},
        "shingles": {"hash_S": np.array([h for s in shingles for h in s], np.uint64), "shingles_N": windows},
        "bands": {"band_N": np.array(bands, np.uint64)},
        "components": {
            "low_E": np.array([a for a, _ in pairs], np.int64),
            "high_E": np.array([b for _, b in pairs], np.int64),
            "pairs_B": np.array([len(own) for own in edges], np.int64),
            "label_N": np.array(labels, np.int64),
        },
        "text_stats": {"stats_N": np.array([[s[name] for name in NAMES] for s in stats], np.int32)},
        "judge": judged,
        "judge int16": judged,
        "ngrams": {
            "items gram_M": np.array([grams[g] for own, _, _ in hits for g in sorted(own)], np.int64),
            "items coverage_N": np.array([share for _, share, _ in hits], np.float32),
            "items item_N": np.array([item for _, _, item in hits], np.int64),
            "items hits_N": np.array([len(own) for own, _, _ in hits], np.int32),
        },
    }
    assert {op: ops.fingerprint(arrays) for op, arrays in expected.items()} == ops.GOLDEN
    assert len(edges[0]) > 10  # the column has candidate pairs, or the ops on them would be tested on nothing
    assert len(set(labels)) < len(labels)


def test_a_wrong_result_of_the_cpu_is_failed_with_its_op(monkeypatch):
    monkeypatch.setattr(ops, "GOLDEN", {**ops.GOLDEN, "bands": "0" * 16})
    checks = {c.name: c for c in probes.PROBES["cpu"].run()}
    assert [n for n, c in checks.items() if c.status == "failed"] == ["bands"]
    assert "instead of 0000" in checks["bands"].detail


def test_numba_without_a_place_for_its_cache_has_its_own_remedy(monkeypatch):
    def refuse():
        raise RuntimeError("cannot cache function 'f': no locator available for file 'x.py'")
        yield

    monkeypatch.setattr(ops, "cpu_results", refuse)
    (check,) = probes.PROBES["cpu"].run()
    assert check.status == "failed"
    assert "NUMBA_CACHE_DIR" in check.remedy


@emulator
def test_every_kernel_is_tested_and_a_broken_one_is_named():
    checks = ops.kernel_checks(emulated())
    assert {c.status for c in checks} == {"ok"}
    assert all(c.for_gpu for c in checks)
    assert set(OPS) <= {c.name for c in checks}
    device = emulated()

    def load(code, name, defines):
        wrong = code.replace("u64 h = band + 1;", "u64 h = band;")
        return (
            StrictModule(EmulatedModule(wrong, name, defines))
            if name == "bands.cu"
            else device.load(code, name, defines)
        )

    checks = ops.kernel_checks(replace(device, load=load))
    assert {c.name for c in checks if c.status == "failed"} >= {"bands"}
    assert "u64 h = band + 1;" in source("bands")


@emulator
def test_a_kernel_that_does_not_load_is_failed_not_raised():
    def load(code, name, defines):
        raise RuntimeError("CUDA_ERROR_UNSUPPORTED_PTX_VERSION")

    (check,) = ops.kernel_checks(replace(emulated(), load=load))
    assert check.status == "failed"
    assert "UNSUPPORTED_PTX" in check.detail


# --------------------------------------------------------------------------------------------------------- the probes


class NvmlError(Exception):
    pass


class NvmlMissing(NvmlError):
    pass


def nvml(free: int, processes: list[tuple[int, int | None]], **more):
    def fail(*_):
        raise NvmlError("unknown")

    return SimpleNamespace(
        NVMLError=NvmlError,
        NVMLError_LibraryNotFound=NvmlMissing,
        nvmlInit=lambda: None,
        nvmlShutdown=lambda: None,
        nvmlSystemGetDriverVersion=lambda: b"580.95.05",
        nvmlDeviceGetCount=lambda: 1,
        nvmlDeviceGetHandleByIndex=lambda i: i,
        nvmlDeviceGetName=lambda h: "NVIDIA H200",
        nvmlDeviceGetMemoryInfo=lambda h: SimpleNamespace(free=free, total=150_000_000_000),
        nvmlDeviceGetComputeRunningProcesses=lambda h: [SimpleNamespace(pid=p, usedGpuMemory=u) for p, u in processes],
        nvmlSystemGetProcessName=fail,
        **more,
    )


def test_a_device_tells_its_memory_and_who_holds_it(monkeypatch):
    import os

    monkeypatch.setitem(sys.modules, "pynvml", nvml(90_000_000_000, [(os.getpid(), 60_000_000_000), (2**22 + 1, None)]))
    driver, device = probes.PROBES["nvml"].run()
    assert (driver.status, driver.detail) == ("ok", "driver 580.95.05")
    assert device.status == "ok"
    assert device.detail.startswith("NVIDIA H200, 90.0 GB of 150.0 GB free; held by ")
    assert f"{os.getpid()} (" in device.detail
    assert "60.0 GB" in device.detail
    assert f"{2**22 + 1} (unknown, perhaps in another container)" in device.detail


def test_a_full_device_is_not_usable_now(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", nvml(1000, [(1, 149_000_000_000)]))
    _, device = probes.PROBES["nvml"].run()
    assert device.status == "missing"
    assert "CUDA_VISIBLE_DEVICES" in device.remedy


def test_nvml_without_a_driver_is_missing_and_with_a_wrong_one_failed(monkeypatch):
    def broken(error):
        def fail():
            raise error("driver/library version mismatch")

        return SimpleNamespace(**{**vars(nvml(0, [])), "nvmlInit": fail})

    monkeypatch.setitem(sys.modules, "pynvml", broken(NvmlMissing))
    assert probes.PROBES["nvml"].run()[0].status == "missing"
    monkeypatch.setitem(sys.modules, "pynvml", broken(NvmlError))
    (check,) = probes.PROBES["nvml"].run()
    assert check.status == "failed"
    assert "restart" in check.remedy
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert probes.PROBES["nvml"].run()[0].remedy.startswith("pip install nvidia-ml-py")


@pytest.mark.parametrize(
    ("version", "status", "devices", "outcome", "said"),
    [
        (13000, 0, 2, "ok", "CUDA 13.0, 2 devices visible"),
        (13010, 0, 1, "ok", "CUDA 13.1, 1 device visible"),
        (13000, 100, 0, "missing", "no device"),
        (12040, 0, 1, "missing", "CUDA 12.4: too old"),
        (13000, 803, 0, "failed", "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH (803)"),
    ],
)
def test_the_driver_is_asked_without_cupy(monkeypatch, version, status, devices, outcome, said):
    def put(value):
        def fill(pointer):
            pointer._obj.value = value
            return 0

        return fill

    def error_name(number, pointer):
        pointer._obj.value = b"CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"

    library = SimpleNamespace(
        cuInit=lambda flags: status,
        cuDriverGetVersion=put(version),
        cuDeviceGetCount=put(devices),
        cuGetErrorName=error_name,
    )
    monkeypatch.setattr(ctypes, "CDLL", lambda name: library)
    (check,) = probes.PROBES["driver"].run()
    assert (check.status, check.for_gpu) == (outcome, True)
    assert said in check.detail
    assert (check.remedy is None) == (outcome == "ok")


@pytest.mark.parametrize("name", ["cupy", "cudf", "nemo_curator"])
def test_an_installed_library_that_cannot_be_imported_is_failed(monkeypatch, tmp_path, name):
    if name in sys.modules:
        pytest.skip(f"{name} is loaded")
    (tmp_path / f"{name}.py").write_text("raise ImportError('libcublas.so.13: cannot open shared object file')")
    monkeypatch.syspath_prepend(tmp_path)
    probe = {"nemo_curator": "curator"}.get(name, name)
    check = probes.PROBES[probe].run()[0]
    assert check.status == "failed"
    assert "libcublas.so.13" in check.detail
    assert "pip install" in check.remedy


@pytest.mark.parametrize(
    ("reason", "status"),
    [
        ("no CUDA device: libcuda.so.1 not found", "missing"),
        ("CUDA_VISIBLE_DEVICES is empty", "missing"),
        ("CUDARuntimeError: cudaErrorNoDevice: no CUDA-capable device is detected", "missing"),
        ("OutOfMemoryError: Out of memory allocating 512 bytes", "missing"),
        ("CUDARuntimeError: cudaErrorInsufficientDriver: driver version is insufficient", "failed"),
    ],
)
def test_cupy_without_a_usable_device_is_missing_and_with_a_wrong_driver_failed(monkeypatch, reason, status):
    runtime = SimpleNamespace(runtimeGetVersion=lambda: 13010)
    cuda = SimpleNamespace(runtime=runtime, nvrtc=SimpleNamespace(getVersion=lambda: (13, 1)))
    fake = SimpleNamespace(__version__="14.2.0", cuda=cuda, __spec__=SimpleNamespace(name="cupy"))
    monkeypatch.setitem(sys.modules, "cupy", fake)
    monkeypatch.setattr(probe, "probe_devices", lambda: probe.Found((), reason))
    (check,) = probes.PROBES["cupy"].run()
    assert check.status == status
    assert check.detail == f"14.2.0, CUDA runtime 13.1, NVRTC 13.1; {reason}"


def test_a_library_that_is_absent_or_of_another_version_is_failed_with_the_command(monkeypatch):
    monkeypatch.setattr(libraries, "requirements", lambda: ["numpy<1", "no-such-library>=1", "scipy>=1"])
    ok, numpy, absent = probes.PROBES["libraries"].run()
    assert (ok.status, ok.detail.split()[0]) == ("ok", "scipy")
    assert (numpy.status, numpy.remedy) == ("failed", "pip install 'numpy<1'")
    assert (absent.status, absent.remedy) == ("failed", "pip install 'no-such-library>=1'")


def test_requirements_are_those_of_the_project():
    from packaging.requirements import Requirement

    names = {Requirement(r).name for r in libraries.requirements()}
    assert {"numpy", "numba", "pyarrow", "gigatoken"} <= names


def test_a_tokenizer_library_that_gives_other_ids_is_failed(monkeypatch):
    from gpu_curate.tokenizer import backends

    library = backends.BACKENDS["gigatoken"]

    def wrong(encoder):
        encode = library.open(encoder)
        return lambda texts: (lambda ids, lens: (ids ^ 1, lens))(*encode(texts))

    monkeypatch.setitem(backends.BACKENDS, "gigatoken", library._replace(open=wrong))
    backends.open_backend.cache_clear()
    checks = {c.name: c for c in probes.PROBES["tokenizers"].run()}
    backends.open_backend.cache_clear()
    assert checks["gigatoken"].status == "failed"
    assert checks["tokenizers"].status == "ok"


@pytest.mark.parametrize("part", libraries.PARTS.values(), ids=lambda p: p.extra)
def test_the_modules_of_a_part_are_what_its_extra_installs(part):
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    wanted = {canonicalize_name(Requirement(r).name) for r in extras[part.extra]}
    by_module = importlib.metadata.packages_distributions()
    absent = [m for m in part.modules if m not in by_module]
    if absent:
        pytest.skip(f"{', '.join(absent)} not installed")
    got = {canonicalize_name(d) for m in part.modules for d in by_module[m]}
    if part.extra == "http":  # aiohttp is what fsspec's own extra adds
        wanted = {"aiohttp"}
    assert got == wanted


def test_an_optional_part_is_missing_incomplete_or_there(monkeypatch):
    part = libraries.Part("warc", ("json", "no_such_module"), "archives")
    monkeypatch.setitem(libraries.PARTS, "WARC", part)
    (check,) = libraries.part("WARC")
    assert (check.status, check.detail) == ("missing", "incomplete: no_such_module not installed (archives)")
    monkeypatch.setitem(libraries.PARTS, "WARC", part._replace(modules=("no_such_module",)))
    assert libraries.part("WARC")[0].remedy == "pip install 'gpu_curate[warc]'"
    monkeypatch.setitem(libraries.PARTS, "WARC", part._replace(modules=("json",)))
    assert libraries.part("WARC")[0].status == "ok"


def test_extras_that_are_installed_together_allow_a_common_hub_library():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    allowed = {r.name: r.specifier for extra in ("huggingface", "curator") for r in map(Requirement, extras[extra])}
    # transformers 4.57.6 (the last before 5, which NeMo Curator cannot import) requires huggingface-hub>=0.34.0,<1.0
    assert "4.57.6" in allowed["transformers"]
    assert {"0.34.0", "0.36.2", "1.33.0", "2.4.0"} == set(
        allowed["huggingface_hub"].filter(["0.33.0", "0.34.0", "0.36.2", "1.33.0", "2.4.0"])
    )
    assert "4.12.2" not in allowed["transformers"]  # what pip falls back to where no common version is left


def test_every_hint_to_install_names_an_extra_that_there_is_in_one_spelling():
    import ast

    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    named = set()
    for path in (ROOT / "gpu_curate").rglob("*.py"):
        source = path.read_text()
        assert ("gpu_curate[" in source or "gpu-curate[" in source) == (path.name == "errors.py"), path
        for node in ast.walk(ast.parse(source)):
            called = getattr(getattr(node, "func", None), "id", "") == "install"
            if called and isinstance(node.args[0], ast.Constant):
                named.add(node.args[0].value)
    named |= {part.extra for part in libraries.PARTS.values()}
    assert named <= set(extras), named - set(extras)
    assert {"language", "warc", "s3", "http", "curator", "tiktoken"} <= named


@pytest.mark.parametrize(
    ("url", "hint"),
    [
        ("s3://bucket/a.parquet", "pip install 'gpu_curate[s3]'"),
        ("https://host/a.jsonl", "pip install 'gpu_curate[http]'"),
        ("hf://datasets/a/b.parquet", "pip install 'gpu_curate[huggingface]'"),
        ("gs://bucket/a.parquet", "pip install gcsfs"),
    ],
)
def test_a_backend_of_fsspec_that_is_missing_is_named_with_what_brings_it(monkeypatch, url, hint):
    import fsspec

    from gpu_curate.sources import files

    def missing(*_, **__):
        raise ImportError("Install it to access this")

    monkeypatch.setattr(fsspec, "get_filesystem_class", missing)
    with pytest.raises(ConfigError) as e:
        files.find([url], (), {}, "source a: path")
    assert e.value.hint == hint


def test_what_only_a_gpu_needs_is_not_called_missing_on_a_machine_without_one(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    only(monkeypatch, "driver", "cupy", "curator", "part plots")
    probes = {
        "driver": Check("GPU", "driver", "missing", "libcuda.so.1 not found", "install the NVIDIA driver", True),
        "cupy": Check("GPU", "CuPy", "missing", "not installed", "pip install", True),
        "curator": Check("GPU", "Ray", "missing", "not installed", "pip install"),
        "part plots": Check("optional parts", "plots", "missing", "not installed", "pip install"),
    }
    monkeypatch.setattr(diagnosis, "in_process", lambda probe: [probes[probe]])
    for present, required, status in ((False, False, "unused"), (True, False, "missing"), (False, True, "failed")):
        monkeypatch.setattr(diagnosis, "gpu_present", lambda present=present: present)
        told = []
        facts = diagnosis.diagnose(required, tell=told.append)
        assert [named(facts, n)["status"] for n in ("driver", "CuPy")] == [status, status]
        assert named(facts, "plots")["status"] == "missing"
        for what in ("GPU: driver", "optional parts: plots"):  # said before and after
            (begun, ended) = (i for i, text in enumerate(told) if f"] {what}" in text)
            assert told[begun].endswith("...")
            assert told[ended].endswith("done")
    monkeypatch.setattr(diagnosis, "gpu_present", lambda: False)
    shown = CliRunner().invoke(cli.app, ["doctor"])
    assert "  not used driver" in shown.stdout
    assert "GPU path: not used here: this machine has no NVIDIA GPU" in shown.stdout
    assert "install the NVIDIA driver" not in shown.stdout
    assert "GPU: driver ..." in shown.stderr
    assert "snaptokens" not in shown.stdout


def test_every_device_is_tested_in_a_process_of_its_own(monkeypatch):
    """What is wrong with one says nothing of the others, and none of them keeps a context."""

    def in_process(name, device):
        wrong = [Check("self-test, GPU", "words", "failed", "hash_W at (3,)", "report it", True)]
        return [Check("self-test, GPU", "bands", "ok", "", None, True), *(wrong if device == "GPU-b" else [])]

    monkeypatch.setattr(probes, "device_ids", lambda: (["GPU-a", "GPU-b"], ""))
    monkeypatch.setattr(probes, "in_process", in_process)
    good, bad = probes.PROBES["kernels"].run()
    assert (good.name, good.status, good.detail) == ("device GPU-a", "ok", "1 ops equal the CPU")
    assert (bad.name, bad.status, bad.detail) == ("words, device GPU-b", "failed", "hash_W at (3,)")


def test_a_device_that_is_left_out_is_named_beside_those_that_work(monkeypatch):
    runtime = SimpleNamespace(runtimeGetVersion=lambda: 13000)
    cuda = SimpleNamespace(runtime=runtime, nvrtc=SimpleNamespace(getVersion=lambda: (13, 0)))
    fake = SimpleNamespace(__version__="14.2.0", cuda=cuda, __spec__=SimpleNamespace(name="cupy"))
    monkeypatch.setitem(sys.modules, "cupy", fake)
    reason = "1 of 2 CUDA devices; left out: GPU-a: cudaErrorECCUncorrectable"
    monkeypatch.setattr(probe, "probe_devices", lambda: probe.Found(("GPU-b",), reason, frozenset({"GPU-b"})))
    good, bad = probes.PROBES["cupy"].run()
    assert (good.status, bad.status) == ("ok", "failed")
    assert good.detail.endswith("one process at a time: GPU-b")
    assert bad.detail == reason
    monkeypatch.setattr(probe, "probe_devices", lambda: probe.Found((), "0: RuntimeError: Failed to find CUDA headers"))
    (check,) = probes.PROBES["cupy"].run()
    assert check.remedy == "pip install 'cupy-cuda13x[ctk]'"


def test_quick_touches_no_device(monkeypatch):
    looked = []
    monkeypatch.setattr(diagnosis, "in_process", lambda name: looked.append(name) or [])
    diagnosis.diagnose(quick=True)
    assert not {"kernels", "components", "cupy", "cudf", "curator"} & set(looked)
    assert {"driver", "nvml", "cpu", "libraries"} <= set(looked)
