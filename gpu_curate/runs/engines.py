"""Who runs a task: a `concurrent.futures.Executor`, local processes or a Dask cluster. Nothing home-made distributes work.

Local processes are spawned, never forked (a fork after threads hangs), one a core, each with one thread: the libraries'
own pools would fight over the cores. A worker dies with the process that made it, so a killed run leaves nobody behind.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import BrokenExecutor, Future, ProcessPoolExecutor
from typing import Any

from gpu_curate.errors import ConfigError
from gpu_curate.runs.dask_engine import DaskEngine
from gpu_curate.runs.workers import CPU, ONE_THREAD, Place, device_environment, environment

_GRACE_S = 10.0  # for idle workers to leave
_MANAGER_S = 10.0  # for a pool's thread to close its pipes after its workers are gone


def _start_worker(parent: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the runner's business

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.2)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


class LocalEngine:
    """Spawned processes on this machine: a pool for the CPU, and one for each process of a device, so that one which dies
    takes nothing with it but its own task.

    Args:
        workers: processes for CPU tasks.
        devices: id of a CUDA device → its processes; {} sends all tasks to the CPU.
    """

    name = "local"
    max_failures = 2  # of a device, after which it is left out: the first may be the fault of one text
    steals = True  # a task for a device goes to a CPU worker that has nothing else to do
    worker_died: tuple[type[BaseException], ...] = (BrokenExecutor,)

    def __init__(self, workers: int, devices: Mapping[str, int]):
        self.workers = workers
        self._places = {CPU: workers}
        # the first process of every device before the second of any: tasks are spread over the devices
        for process in range(max(devices.values(), default=0)):
            self._places |= {Place("gpu", d, process): 1 for d, n in devices.items() if process < n}
        self._pools: dict[Place, ProcessPoolExecutor] = {}

    def places(self) -> dict[Place, int]:
        """Every place with the tasks that it takes at once."""
        return dict(self._places)

    def submit(self, place: Place, function: Callable[..., Any], *args: Any) -> Future[Any]:
        """Run `function(*args)` in a worker of `place`."""
        with environment({**ONE_THREAD, **(device_environment(place.device) if place.kind == "gpu" else {})}):
            if place not in self._pools:
                self._pools[place] = ProcessPoolExecutor(
                    self._places[place],
                    mp_context=multiprocessing.get_context("spawn"),
                    initializer=_start_worker,
                    initargs=(os.getpid(),),
                )
            return self._pools[place].submit(function, *args)

    def restart(self, place: Place) -> None:
        """Start over after a worker of this place died, or can no longer use its device: the pool is of no more use then."""
        if place in self._pools:
            _close(self._pools.pop(place), kill=True)

    def retire(self, place: Place, device: str) -> list[Place]:
        """Leave a device out from now on; returns the places that are no more."""
        gone = [p for p in self._places if p.kind == "gpu" and p.device == place.device]
        for p in gone:
            del self._places[p]
            self.restart(p)
        return gone

    def release(self) -> None:
        """Give the devices back; who submits to one again starts its process anew. None of them has a task."""
        for place in [p for p in self._pools if p.kind == "gpu"]:
            _close(self._pools.pop(place), kill=False)

    def close(self, kill: bool = False) -> None:
        """Wait for the workers, or end them now (what they were writing never gets its final name)."""
        for pool in self._pools.values():
            _close(pool, kill)


def _close(pool: ProcessPoolExecutor, kill: bool) -> None:
    processes = list((getattr(pool, "_processes", None) or {}).values())
    manager = getattr(pool, "_executor_manager_thread", None)
    pool.shutdown(wait=False, cancel_futures=True)
    deadline = time.monotonic() + (0 if kill else _GRACE_S)
    for process in processes:
        process.join(max(0.0, deadline - time.monotonic()))
        if process.is_alive():
            process.kill()
            process.join()
    # The interpreter wakes this thread at its end through a pipe that the thread itself closes, without a lock
    # (CPython 3.11): where both happen at once, a finished command ends with "Bad file descriptor".
    if manager is not None:
        manager.join(_MANAGER_S)


class InlineEngine:
    """This process, one task after the other: for a debugger and for tests.

    Args:
        on_device: it may use a device.
    """

    name = "inline"
    max_failures = 1  # this process is the only one: where CUDA has failed in it, it fails again
    steals = False
    worker_died: tuple[type[BaseException], ...] = (BrokenExecutor,)

    def __init__(self, on_device: bool):
        self._places = {CPU: 1, **({Place("gpu"): 1} if on_device else {})}

    def places(self) -> dict[Place, int]:
        return dict(self._places)

    def submit(self, place: Place, function: Callable[..., Any], *args: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(function(*args))
        except Exception as e:
            future.set_exception(e)
        return future

    def restart(self, place: Place) -> None:
        pass

    def retire(self, place: Place, device: str) -> list[Place]:
        return [p for p in (place,) if self._places.pop(p, None)]

    def release(self) -> None:
        pass

    def close(self, kill: bool = False) -> None:
        pass


Engine = LocalEngine | InlineEngine | DaskEngine


def make_engine(name: str, workers: int, devices: Mapping[str, int]) -> Engine:
    """The engine that `run.engine` names.

    Args:
        workers: processes for CPU tasks.
        devices: id of a CUDA device → processes that may use it at once; {}: all tasks run on the CPU.
    Raises: ConfigError.
    """
    if name == "local":
        return LocalEngine(workers, devices)
    if name == "inline":
        return InlineEngine(bool(devices))
    if name in ("dask", "dask-cuda") or "://" in name:
        return DaskEngine(name, workers, devices)
    raise ConfigError(
        f"run.engine: {name!r}: choose local, inline, dask, dask-cuda or a scheduler address (tcp://host:port)"
    )
