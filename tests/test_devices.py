"""Several devices: who looks at them, who uses them, and what becomes of a run when one of them fails.

The devices are emulated. Processes believe in them by a libcuda.so.1 that counts, and a CuPy over the emulator (fake_cuda).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import BrokenExecutor, Future, ThreadPoolExecutor
from types import SimpleNamespace

import pytest
import yaml
from corpora import recipe, write_inputs
from cudasim.module import available
from fake_cuda import contexts, environment
from test_gpu_pipeline import contents

from gpu_curate import config
from gpu_curate.api import pipeline
from gpu_curate.device import backend, probe
from gpu_curate.device.probe import Found
from gpu_curate.errors import ConfigError, DeviceLost
from gpu_curate.runs import pipeline as runner
from gpu_curate.runs.engines import LocalEngine, make_engine
from gpu_curate.runs.workers import CPU, Place
from gpu_curate.store.files import read_json

emulator = pytest.mark.skipif(not available(), reason="no C++ compiler: the emulator compiles kernels with g++")

LOOK = """
import json, os, sys
from gpu_curate.device.backend import choose
chosen = choose("auto")
print(json.dumps([chosen.choice, chosen.reason, chosen.devices, sorted(chosen.exclusive), os.getpid(), "cupy" in sys.modules]))
"""


def look(folder, devices, **variables):
    """What a run would choose on a machine with these devices."""
    env = {**environment(folder, devices), **variables}
    done = subprocess.run([sys.executable, "-c", LOOK], env=env, capture_output=True, text=True, timeout=120)
    assert not done.returncode, done.stderr
    return SimpleNamespace(
        **dict(zip(("choice", "reason", "devices", "exclusive", "pid", "cupy"), json.loads(done.stdout), strict=True))
    )


# ---------------------------------------------------------------------------------------------------- who looks at them


@emulator
def test_who_chooses_makes_no_context_and_every_device_is_tried_by_a_process_of_its_own(tmp_path):
    found = look(tmp_path / "m", ["GPU-a", "GPU-b", "GPU-c"])
    assert (found.choice, found.reason, found.devices) == ("gpu", "3 CUDA devices", ["GPU-a", "GPU-b", "GPU-c"])
    assert not found.cupy
    made = contexts(tmp_path / "m")
    assert sorted(device for _, device in made) == ["GPU-a", "GPU-b", "GPU-c"]
    assert len({pid for pid, _ in made} - {found.pid}) == 3


@emulator
def test_a_device_that_fails_is_left_out_by_name_and_an_exclusive_one_takes_one_process(tmp_path):
    folder = tmp_path / "m"
    environment(folder, [])
    (folder / "exclusive" / "GPU-b").touch()
    (folder / "faults.json").write_text(
        json.dumps([{"device": "GPU-a", "kernel": None, "error": "cudaErrorECCUncorrectable", "times": 9}])
    )
    found = look(folder, ["GPU-a", "GPU-b"])
    assert (found.devices, found.exclusive) == (["GPU-b"], ["GPU-b"])
    said = "1 of 2 CUDA devices; left out: GPU-a: CUDARuntimeError: cudaErrorECCUncorrectable: planted on GPU-a"
    assert found.reason == said
    both = backend.Backend("gpu", "", ("GPU-b", "GPU-c"), frozenset({"GPU-b"}))
    assert both.processes(3) == {"GPU-b": 1, "GPU-c": 3}


@emulator
def test_without_cuda_s_headers_no_device_is_taken_and_the_reason_says_what_brings_them(tmp_path):
    found = look(tmp_path / "m", ["0"], FAKE_CUDA_NO_HEADERS="1")
    assert found.choice == "cpu"
    assert found.reason.startswith("0: RuntimeError: Failed to find CUDA headers")


@emulator
def test_a_driver_that_fails_is_named_by_its_error(tmp_path):
    assert look(tmp_path / "m", ["0"], FAKE_CUDA_INIT="802").reason == (
        "the CUDA driver fails: CUDA_ERROR_SYSTEM_NOT_READY (802)"
    )
    assert look(tmp_path / "m", ["0"], FAKE_CUDA_INIT="100").reason == "the driver sees no CUDA device"


@pytest.mark.parametrize(
    ("visible", "count", "ids"),
    [
        (None, 2, ["0", "1"]),
        (" 3 , 1 ", 2, ["3", "1"]),
        ("0,7,1", 1, ["0"]),  # CUDA stops at the first that is not there
        ("MIG-a,MIG-b,MIG-a", 1, ["MIG-a", "MIG-b"]),  # CUDA shows a process one of them
        ("GPU-1,GPU-2", 2, ["GPU-1", "GPU-2"]),
    ],
)
def test_ids_are_those_that_the_driver_counts_and_each_mig_instance_is_a_device(monkeypatch, visible, count, ids):
    monkeypatch.setattr(probe, "_count", lambda: (count, ""))
    monkeypatch.setattr(probe, "_instances", list)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert probe.device_ids()[0] == ids


def test_mig_instances_that_nobody_named_are_found_by_nvml(monkeypatch):
    class NVMLError(Exception):
        pass

    def mode(handle):
        if handle == 2:
            raise NVMLError("not supported")
        return (int(handle == 1), 0)

    def instance(handle, i):
        if i == 1:
            raise NVMLError("not found")
        return f"{handle}/{i}"

    monkeypatch.setitem(
        sys.modules,
        "pynvml",
        SimpleNamespace(
            NVMLError=NVMLError,
            nvmlInit=lambda: None,
            nvmlShutdown=lambda: None,
            nvmlDeviceGetCount=lambda: 3,
            nvmlDeviceGetHandleByIndex=lambda i: i,
            nvmlDeviceGetMigMode=mode,
            nvmlDeviceGetMaxMigDeviceCount=lambda handle: 3,
            nvmlDeviceGetMigDeviceHandleByIndex=instance,
            nvmlDeviceGetUUID=lambda handle: f"MIG-{handle}" if "/" in str(handle) else f"GPU-{handle}".encode(),
        ),
    )
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(probe, "_count", lambda: (2, ""))
    assert probe.device_ids()[0] == ["GPU-0", "MIG-1/0", "MIG-1/2", "GPU-2"]


@pytest.mark.parametrize(
    ("cupy", "cudf", "said"),
    [
        (None, None, None),
        ("0", None, None),
        ("1", "1", None),
        ("1", None, "CUPY_CUDA_PER_THREAD_DEFAULT_STREAM is set and CUDF_PER_THREAD_STREAM is not"),
        ("", "1", "CUDF_PER_THREAD_STREAM is set and CUPY_CUDA_PER_THREAD_DEFAULT_STREAM is not"),
    ],
)
def test_a_stream_a_thread_for_one_library_only_is_refused(monkeypatch, cupy, cudf, said):
    for name, value in (("CUPY_CUDA_PER_THREAD_DEFAULT_STREAM", cupy), ("CUDF_PER_THREAD_STREAM", cudf)):
        monkeypatch.delenv(name, raising=False)
        if value is not None:
            monkeypatch.setenv(name, value)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    found = probe.streams_differ()
    assert found is None if said is None else found.startswith(said)
    monkeypatch.setattr(probe, "device_ids", lambda: (["0"], ""))
    monkeypatch.setattr(probe, "_try_all", lambda ids: [probe.Probed(i, None) for i in ids])
    if said is not None:
        with pytest.raises(ConfigError, match="would not wait for each other"):
            backend.choose("gpu")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object() if name == "cupy" else None)
    assert backend.choose("gpu").devices == ("0",)  # CuPy alone may have what it wants


def test_a_cache_folder_that_cannot_be_written_is_not_used(monkeypatch, tmp_path):
    monkeypatch.setenv("CUPY_CACHE_DIR", str(tmp_path / "not yet" / "there"))
    assert probe.cache_environment() == {}
    (tmp_path / "a file").touch()
    monkeypatch.setenv("CUPY_CACHE_DIR", str(tmp_path / "a file" / "cache"))
    assert probe.cache_environment() == {"CUPY_CACHE_IN_MEMORY": "1"}


def test_a_device_whose_process_hangs_is_killed_and_named(monkeypatch):
    monkeypatch.setattr(probe, "SECONDS", 0.2)
    monkeypatch.setattr(probe, "child_environment", lambda device: {**os.environ, "PYTHONSTARTUP": ""})
    monkeypatch.setattr(probe.sys, "executable", "/bin/sleep")
    start = probe.subprocess.Popen
    monkeypatch.setattr(probe.subprocess, "Popen", lambda command, **options: start([command[0], "60"], **options))
    (found,) = probe._try_all(["GPU-a"])
    assert found.error is not None
    assert found.error.startswith("no answer within 0 s")


# ----------------------------------------------------------------------------------------------------- who uses them


def where():
    time.sleep(0.05)
    return os.environ.get("CUDA_VISIBLE_DEVICES"), os.environ.get("CUDF_SPILL"), os.getpid()


def die():
    os._exit(9)


def test_every_process_sees_its_own_device_and_one_that_dies_takes_nothing_with_it(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-a,MIG-b")
    engine = LocalEngine(1, {"GPU-a": 1, "MIG-b": 1})
    a, b = Place("gpu", "GPU-a", 0), Place("gpu", "MIG-b", 0)
    assert engine.places() == {CPU: 1, a: 1, b: 1}
    try:
        found = {place: engine.submit(place, where).result() for place in (CPU, a, b)}
        assert [f[0] for f in found.values()] == ["GPU-a,MIG-b", "GPU-a", "MIG-b"]
        assert [f[1] for f in found.values()] == [None, "0", "0"]
        assert os.environ["CUDA_VISIBLE_DEVICES"] == "GPU-a,MIG-b"
        running = engine.submit(CPU, time.sleep, 0.3)
        with pytest.raises(BrokenExecutor):
            engine.submit(a, die).result()
        engine.restart(a)
        assert running.result() is None  # was lost with the device's process before
        assert engine.submit(b, where).result() == found[b]  # the same process
        again = engine.submit(a, where).result()
        assert again[0] == "GPU-a"
        assert again[2] != found[a][2]
        assert engine.retire(b, "MIG-b") == [b]
        assert b not in engine.places()
        engine.release()
        assert [p.kind for p in engine._pools] == ["cpu"]
    finally:
        engine.close(kill=True)


def test_the_first_process_of_every_device_comes_before_the_second_of_any():
    places = [p for p in LocalEngine(1, {"a": 2, "b": 1, "c": 2}).places() if p.kind == "gpu"]
    assert [(p.device, p.process) for p in places] == [("a", 0), ("b", 0), ("c", 0), ("a", 1), ("c", 1)]


class Devices:
    """An engine of threads: CPU workers, and devices that make partitions by the CPU twin and fail as planned.

    Args:
        fail: device → what its tasks raise, one after the other.
        hold: device tasks wait for this.
    """

    name = "local"
    steals, max_failures, worker_died = True, 2, (BrokenExecutor,)

    def __init__(self, cpus, devices, fail=None, hold=None):
        self._places = {CPU: cpus, **{Place("gpu", d, k): 1 for d, n in devices.items() for k in range(n)}}
        self.fail, self.hold = fail or {}, hold
        self.made, self.events = [], []
        self._threads, self._lock = ThreadPoolExecutor(8), threading.Lock()

    def places(self):
        return dict(self._places)

    def submit(self, place, function, stage, boxes, part, task):
        self.made.append((stage.name, part, place, boxes.backend, boxes.devices))

        def work():
            with self._lock:
                error = self.fail.get(place.device, [None]).pop(0) if self.fail.get(place.device) else None
            if error is not None:
                raise error
            if place.kind == "gpu" and self.hold is not None:
                self.hold.wait(20)
            from dataclasses import replace

            return function(stage, replace(boxes, backend="cpu"), part, task)

        return self._threads.submit(work)

    def restart(self, place):
        self.events.append(("restart", place))

    def retire(self, place, device):
        gone = [p for p in self._places if p.kind == "gpu" and p.device == place.device]
        for p in gone:
            del self._places[p]
        self.events.append(("retire", place.device))
        return gone

    def release(self):
        self.events.append(("release", len([m for m in self.made if m[0] == "tokens"])))

    def close(self, kill=False):
        self._threads.shutdown()


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("inputs")
    write_inputs(folder, documents=60)
    return folder


def execute(inputs, run, monkeypatch, engine, devices=("a", "b")):
    monkeypatch.setattr(backend, "probe_devices", lambda: Found(tuple(devices), "emulated"))
    monkeypatch.setattr(runner, "make_engine", lambda *args: engine)
    monkeypatch.setattr(runner, "compiled_before", lambda: True)
    data = recipe(inputs / "corpus", inputs / "tokenizer.json", run={"partition_bytes": 65536, "backend": "auto"})
    pipeline.execute(config.parse(data), run)
    return read_json(run / "run.json"), read_json(run / "report" / "report.json")


@pytest.fixture(scope="module")
def by_cpu(inputs, tmp_path_factory):
    run = tmp_path_factory.mktemp("cpu") / "r"
    data = recipe(inputs / "corpus", inputs / "tokenizer.json", run={"partition_bytes": 65536, "backend": "cpu"})
    data["run"]["engine"] = "inline"
    pipeline.execute(config.parse(data), run)
    return held(run, read_json(run / "run.json"))


def held(run, facts):
    facts = {**facts, "folders": {**facts["folders"], "contamination": "none"}}
    return contents(run, facts)


def test_a_cpu_worker_takes_what_no_device_is_free_for(inputs, by_cpu, tmp_path, monkeypatch):
    """The devices are busy until the CPU has made some of their tasks: without it the run would wait for ever."""
    hold = threading.Event()
    engine = Devices(2, {"a": 1}, hold=hold)
    submit = engine.submit

    def counted(place, function, stage, *rest):
        if place == CPU and stage.on_device:
            hold.set()
        return submit(place, function, stage, *rest)

    engine.submit = counted
    facts, _ = execute(inputs, tmp_path / "r", monkeypatch, engine, ("a",))
    assert held(tmp_path / "r", facts) == by_cpu
    assert hold.is_set()
    twin = {(place.kind, told) for name, _, place, told, _ in engine.made if name in ("scores", "signatures")}
    assert twin == {("cpu", "cpu"), ("gpu", "gpu")}  # who runs it says which twin makes it
    assert all(place == CPU for name, _, place, *_ in engine.made if name in ("documents", "tokens", "duplicates"))


def test_devices_are_given_back_when_no_task_needs_one(inputs, tmp_path, monkeypatch):
    engine = Devices(1, {"a": 2})
    execute(inputs, tmp_path / "r", monkeypatch, engine, ("a",))
    assert [e for e, _ in engine.events] == ["release"]
    last = max(i for i, m in enumerate(engine.made) if m[2].kind == "gpu")
    assert {"decisions", "shards"} <= {m[0] for m in engine.made[last:]}


def lost(name="cudaErrorIllegalAddress", gone=False):
    return DeviceLost(f"CUDARuntimeError: {name}", None, "", gone)


def test_a_process_that_cuda_failed_in_is_started_anew_and_the_partition_goes_to_the_cpu(
    inputs, by_cpu, tmp_path, monkeypatch
):
    engine = Devices(1, {"a": 1, "b": 1}, {"a": [lost()]})
    facts, report = execute(inputs, tmp_path / "r", monkeypatch, engine)
    assert held(tmp_path / "r", facts) == by_cpu
    assert ("restart", Place("gpu", "a", 0)) in engine.events
    assert "retire" not in [e for e, _ in engine.events]
    (said,) = [w for w in report["warnings"] if "device" in w]
    name, part, place, *_ = next(m for m in engine.made if m[2].device == "a")
    assert (
        said
        == f"{name}, partition {part}: device a failed: CUDARuntimeError: cudaErrorIllegalAddress; the CPU makes the partition"
    )
    assert [m[2] for m in engine.made if m[:2] == (name, part)] == [place, CPU]


@pytest.mark.parametrize("errors", [[lost(), lost()], [lost("cudaErrorECCUncorrectable", gone=True)]])
def test_a_device_that_fails_twice_or_is_gone_is_left_out_and_the_others_go_on(
    inputs, by_cpu, tmp_path, monkeypatch, errors
):
    engine = Devices(1, {"a": 2, "b": 1}, {"a": list(errors)})
    facts, report = execute(inputs, tmp_path / "r", monkeypatch, engine)
    assert held(tmp_path / "r", facts) == by_cpu
    assert ("retire", "a") in engine.events
    after = engine.made[max(i for i, m in enumerate(engine.made) if m[2].device == "a") + 1 :]
    assert {m[2].device for m in after if m[2].kind == "gpu"} == {"b"}
    assert {m[4] for m in after if m[0] == "duplicates"} == {("b",)}  # nobody hands the lost one to Curator
    (said,) = [w for w in report["warnings"] if "left out" in w]
    assert said.startswith("device a is left out for the rest of this run; the others go on")


def test_when_no_device_is_left_the_cpu_does_the_rest(inputs, by_cpu, tmp_path, monkeypatch):
    engine = Devices(1, {"a": 1}, {"a": [lost("cudaErrorNoDevice", gone=True)]})
    facts, report = execute(inputs, tmp_path / "r", monkeypatch, engine, ("a",))
    assert held(tmp_path / "r", facts) == by_cpu
    assert len([m for m in engine.made if m[2].kind == "gpu"]) == 1
    assert any("none is left: the CPU does the rest" in w for w in report["warnings"])


def test_a_device_whose_processes_die_is_left_out_and_the_cpu_s_tasks_are_not_lost(
    inputs, by_cpu, tmp_path, monkeypatch
):
    died = [BrokenExecutor("terminated abruptly"), BrokenExecutor("terminated abruptly")]
    engine = Devices(1, {"a": 1}, {"a": died})
    facts, report = execute(inputs, tmp_path / "r", monkeypatch, engine, ("a",))
    assert held(tmp_path / "r", facts) == by_cpu
    assert ("restart", CPU) not in engine.events
    assert "a worker process of device a died; its partitions are run again" in report["warnings"]
    assert ("retire", "a") in engine.events


class Curator(Devices):
    """Notes which devices' tasks run while duplicates are made."""

    def submit(self, place, function, stage, *rest):
        if stage.name == "duplicates":
            self.events.append(("duplicates", sum(not f.done() for f in self.flying)))
        future = super().submit(place, function, stage, *rest)
        if place.kind == "gpu":
            self.flying.append(future)
        return future

    flying: list[Future] = []  # noqa: RUF012


def test_no_worker_uses_a_device_while_curator_has_them_all(inputs, tmp_path, monkeypatch):
    from gpu_curate.stages.duplicates import Duplicates

    monkeypatch.setattr(Duplicates, "takes_devices", lambda self, boxes: True)
    engine = Curator(2, {"a": 1})
    execute(inputs, tmp_path / "r", monkeypatch, engine, ("a",))
    at = next(i for i, (e, _) in enumerate(engine.events) if e == "duplicates")
    assert engine.events[at][1] == 0
    assert engine.events[at - 1][0] == "release"


# ------------------------------------------------------------------------------------------------------- in processes


@emulator
@pytest.mark.soak
def test_a_run_on_several_devices_survives_their_faults_and_writes_the_cpu_s_bytes(
    inputs, by_cpu, tmp_path, soak_cases
):
    """Processes, each with its own device: CUDA fails in one, one dies; one runs out of memory and takes a single process."""
    devices = [f"GPU-{i}" for i in range(soak_cases(2, 8))]
    folder, run = tmp_path / "machine", tmp_path / "r"
    env = environment(folder, devices)
    (folder / "exclusive" / devices[-1]).touch()
    faults = [
        {"device": devices[0], "kernel": "mark_documents", "error": "cudaErrorIllegalAddress"},
        {"device": devices[1], "kernel": "mark_documents", "error": "exit"},
        {"device": devices[-1], "kernel": "rank_documents", "error": "oom"},
    ]
    (folder / "faults.json").write_text(json.dumps(faults))
    data = recipe(inputs / "corpus", inputs / "tokenizer.json", run={"partition_bytes": 65536})
    (tmp_path / "r.yaml").write_text(yaml.safe_dump(data))
    command = [sys.executable, "-m", "gpu_curate.cli", "run", str(tmp_path / "r.yaml"), "--workers", "1"]
    command += ["--backend", "gpu", "--set", "run.gpu.workers=1", "--out", str(run)]
    process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    said, _ = process.communicate(timeout=300)
    assert process.returncode == 0, said
    assert held(run, read_json(run / "run.json")) == by_cpu
    assert process.pid not in {pid for pid, _ in contexts(folder)}
    users = contexts(folder)
    assert {device for _, device in users} == set(devices)
    assert all(len({d for p, d in users if p == pid}) == 1 for pid, _ in users)
    warnings = "\n".join(read_json(run / "report" / "report.json")["warnings"])
    assert f"device {devices[0]} failed: CUDARuntimeError: cudaErrorIllegalAddress: planted on {devices[0]}" in warnings
    assert f"a worker process of device {devices[1]} died" in warnings


def test_an_engine_gets_the_processes_of_every_device(monkeypatch):
    engine = make_engine("local", 2, {"a": 2})
    assert engine.places() == {CPU: 2, Place("gpu", "a", 0): 1, Place("gpu", "a", 1): 1}
    assert make_engine("inline", 2, {"a": 2}).places() == {CPU: 1, Place("gpu"): 1}
