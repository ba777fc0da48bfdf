"""Dask by resources: a real cluster of CPU workers and of workers with an emulated device each."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
import yaml
from corpora import recipe, write_inputs
from cudasim.module import available
from fake_cuda import contexts, environment
from test_devices import held

from gpu_curate import config
from gpu_curate.api import pipeline
from gpu_curate.runs.dask_engine import GPU, DaskEngine
from gpu_curate.runs.workers import CPU
from gpu_curate.store.files import read_json

pytest.importorskip("distributed")


def test_a_task_goes_to_a_worker_that_states_what_it_needs(monkeypatch):
    from distributed import Client, KilledWorker, LocalCluster

    engine = DaskEngine("dask", 1, {"GPU-a": 1})
    try:
        assert engine.places() == {CPU: 1, GPU: 1}
        seen = [engine.submit(place, os.getenv, "CUDA_VISIBLE_DEVICES") for place in (CPU, GPU) for _ in range(3)]
        assert [f.result(60) for f in seen] == ["", "", "", "GPU-a", "GPU-a", "GPU-a"]
        assert engine.submit(GPU, os.getenv, "CUDF_SPILL").result(60) == "0"
        assert KilledWorker in engine.worker_died  # no BrokenExecutor: it would have ended the run
        (address,) = [name for name, (_, has) in engine._stated().items() if "GPU" in has]
        assert engine.retire(GPU, address) == [GPU]
        assert engine.places() == {CPU: 1}
    finally:
        engine.close(kill=True)

    # a cluster that was there before, whose workers state nothing: all of their threads are CPUs
    with LocalCluster(n_workers=1, threads_per_worker=2, processes=False, dashboard_address=None) as cluster:
        other = DaskEngine(cluster.scheduler_address, 1, {})
        try:
            assert other.places() == {CPU: 2}
            assert other.submit(CPU, len, "abc").result(60) == 3
        finally:
            other.close()
        with Client(cluster, set_as_default=False):
            pass


@pytest.mark.skipif(not available(), reason="no C++ compiler: the emulator compiles kernels with g++")
def test_a_run_on_a_cluster_with_a_device_that_fails_writes_the_cpu_s_bytes(tmp_path):
    write_inputs(tmp_path, documents=40)
    folder, run = tmp_path / "machine", tmp_path / "r"
    env = environment(folder, ["GPU-a"])
    faults = [{"device": "GPU-a", "kernel": "rank_documents", "error": "cudaErrorIllegalAddress"}]
    (folder / "faults.json").write_text(json.dumps(faults))
    data = recipe(tmp_path / "corpus", tmp_path / "tokenizer.json", run={"engine": "inline", "backend": "cpu"})
    pipeline.execute(config.parse(data), tmp_path / "c")
    (tmp_path / "r.yaml").write_text(yaml.safe_dump({**data, "run": {"engine": "dask", "backend": "gpu"}}))
    command = [sys.executable, "-m", "gpu_curate.cli", "run", str(tmp_path / "r.yaml"), "--workers", "1"]
    command += ["--set", "run.gpu.workers=1", "--out", str(run)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert held(run, read_json(run / "run.json")) == held(tmp_path / "c", read_json(tmp_path / "c" / "run.json"))
    assert {device for _, device in contexts(folder)} == {"GPU-a"}
    said = [w for w in read_json(run / "report" / "report.json")["warnings"] if "cudaErrorIllegalAddress" in w]
    assert len(said) == 1
