"""Engines end what they started: threads, processes, clusters."""

from __future__ import annotations

import concurrent.futures.process as pools
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import BrokenExecutor, ThreadPoolExecutor

import pytest
import yaml
from corpora import recipe, write_inputs
from places import ROOT

from gpu_curate import config
from gpu_curate.api import pipeline
from gpu_curate.errors import ConfigError
from gpu_curate.runs import pipeline as runner
from gpu_curate.runs import scheduler
from gpu_curate.runs.engines import LocalEngine, make_engine
from gpu_curate.runs.workers import CPU


@pytest.mark.parametrize("kill", [True, False])
def test_no_thread_of_a_pool_outlives_its_engine(monkeypatch, kill):
    """The interpreter's end would meet it halfway: slowed down here, it is a race of microseconds elsewhere."""
    close = pools._ThreadWakeup.close

    def slow_close(self):
        time.sleep(0.3)
        close(self)

    monkeypatch.setattr(pools._ThreadWakeup, "close", slow_close)
    engine = LocalEngine(1, {})
    future = engine.submit(CPU, time.sleep, 30 if kill else 0)
    manager = engine._pools[CPU]._executor_manager_thread
    if not kill:
        future.result()
    engine.close(kill=kill)
    assert not manager.is_alive()


@pytest.mark.soak
def test_sigterm_at_any_moment_ends_without_a_traceback_or_a_hang(tmp_path, soak_cases):
    write_inputs(tmp_path, documents=40)
    data = recipe(tmp_path / "corpus", tmp_path / "tokenizer.json", run={"partition_bytes": 65536})
    (tmp_path / "r.yaml").write_text(yaml.safe_dump(data))
    command = [sys.executable, "-m", "gpu_curate.cli", "run", str(tmp_path / "r.yaml"), "--workers", "1", "--out"]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    rng = random.Random(9)
    for i in range(soak_cases(2, 60)):
        run = tmp_path / f"r{i}"
        process = subprocess.Popen(
            [*command, str(run)], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        while not (run / "run.json").exists():
            assert process.poll() is None
            time.sleep(0.01)
        time.sleep(rng.uniform(0.1, 2.5))
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
        assert process.returncode in (0, 143), f"try {i}: {errors}"
        assert "Traceback" not in errors, f"try {i}: {errors}"
        shutil.rmtree(run)


def test_an_interrupt_while_the_runner_waits_leaves_no_lock_taken(tmp_path, monkeypatch):
    """What takes the locks of many futures in a loop can be interrupted in the loop."""
    taken = []

    class Interrupted(scheduler.SimpleQueue):
        def get(self, *args):
            super().get(*args)
            raise KeyboardInterrupt

    monkeypatch.setattr(scheduler, "SimpleQueue", Interrupted)
    write_inputs(tmp_path, documents=20)
    engine = LocalEngine(1, {})
    monkeypatch.setattr(runner, "make_engine", lambda *args: engine)
    submit = engine.submit
    monkeypatch.setattr(engine, "submit", lambda *args: taken.append(submit(*args)) or taken[-1])
    with pytest.raises(KeyboardInterrupt):
        pipeline.execute(config.parse(recipe(tmp_path / "corpus", tmp_path / "tokenizer.json")), tmp_path / "r")
    assert taken
    assert all(future.done() for future in taken)  # those in flight were told; none waits for a lock


class Cluster:
    """Stands for Dask's LocalCluster: counts those that are open."""

    open = 0

    def __init__(self, **options: object):
        Cluster.open += 1

    def close(self) -> None:
        Cluster.open -= 1


@pytest.mark.parametrize(("error", "raised"), [(OSError("refused"), ConfigError), (KeyboardInterrupt(), None)])
def test_a_cluster_whose_client_fails_is_closed(monkeypatch, error, raised):
    distributed = pytest.importorskip("dask.distributed")

    def client(*args: object, **options: object) -> None:
        raise error

    monkeypatch.setattr(distributed, "LocalCluster", Cluster)
    monkeypatch.setattr(distributed, "Client", client)
    with pytest.raises(raised or type(error)):
        make_engine("dask", 1, {})
    assert Cluster.open == 0


@pytest.mark.parametrize("broken", ["_make_directory", "remove_temporaries", "write_json"])
def test_a_run_that_fails_before_its_first_task_closes_its_engine(tmp_path, monkeypatch, broken):
    write_inputs(tmp_path, documents=20)
    closed = []
    engine = LocalEngine(1, {})
    monkeypatch.setattr(engine, "close", lambda kill=False: closed.append(kill))
    monkeypatch.setattr(runner, "make_engine", lambda *args: engine)

    def fail(*args: object) -> None:
        raise PermissionError(13, "no")

    monkeypatch.setattr(runner, broken, fail)
    with pytest.raises((OSError, Exception), match="no"):
        pipeline.execute(config.parse(recipe(tmp_path / "corpus", tmp_path / "tokenizer.json")), tmp_path / "r")
    assert closed


class RecordingEngine:
    """Four slots; records which tasks began and ended, in order. A task ends when no slot is free or nothing else comes."""

    def __init__(self):
        self.events, self._pool = [], ThreadPoolExecutor(4)

    steals, max_failures, worker_died = False, 1, (BrokenExecutor,)

    def places(self):
        return {CPU: 4}

    def submit(self, place, function, *args):
        self.events.append(("begin", args[0].name))

        def task():
            made = function(*args)
            self.events.append(("end", args[0].name))
            return made

        return self._pool.submit(task)

    def restart(self, place):
        raise AssertionError("no worker died")

    def release(self):
        pass

    def close(self, kill=False):
        self._pool.shutdown()


@pytest.mark.parametrize("compiled", [False, True])
def test_one_worker_compiles_a_step_and_the_others_do_something_else(tmp_path, monkeypatch, compiled):
    write_inputs(tmp_path, documents=120)
    engine = RecordingEngine()
    monkeypatch.setattr(runner, "make_engine", lambda *args: engine)
    monkeypatch.setattr(runner, "compiled_before", lambda: compiled)
    data = recipe(tmp_path / "corpus", tmp_path / "tokenizer.json", run={"partition_bytes": 65536})
    pipeline.execute(config.parse(data), tmp_path / "r")
    for step in ("signatures", "scores"):
        own = [what for what, name in engine.events if name == step]
        assert len(own) >= 6
        assert compiled or own[:2] == ["begin", "end"]
    assert compiled or engine.events.index(("begin", "tokens")) < engine.events.index(("end", "scores"))


def test_what_an_older_version_compiled_does_not_count(tmp_path, monkeypatch):
    from gpu_curate import compiled

    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(compiled, "own_folder", lambda: tmp_path / "none")
    monkeypatch.delenv(compiled.IMAGE, raising=False)
    assert not compiled.compiled_before()
    (tmp_path / "cpu.f-1.py311.nbi").touch()
    assert compiled.compiled_before()
    os.utime(tmp_path / "cpu.f-1.py311.nbi", (0, 0))
    assert not compiled.compiled_before()
