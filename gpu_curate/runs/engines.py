"""Who runs a task: a `concurrent.futures.Executor`, local processes or a Dask cluster. Nothing home-made distributes work.

Local processes are spawned, never forked (a fork after threads hangs), one a core, each with one thread: the libraries'
own pools would fight over the cores. A worker dies with the process that made it, so a killed run leaves nobody behind.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from typing import Any

from gpu_curate.errors import ConfigError, install

_GRACE_S = 10.0  # for idle workers to leave
_MANAGER_S = 10.0  # for a pool's thread to close its pipes after its workers are gone
ONE_THREAD = {
    "PYTHONSAFEPATH": "1",  # a worker is started by `-c`, which puts the current folder first among the places of modules
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "NUMBA_NUM_THREADS": "1",
    "RAYON_NUM_THREADS": "1",
    "POLARS_MAX_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "ARROW_IO_THREADS": "1",
}


def default_workers() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextlib.contextmanager
def _environment(values: dict[str, str]) -> Any:
    """Environment variables, and deafness to Ctrl-C, for the processes started inside."""
    before = {k: os.environ.get(k) for k in values}
    os.environ.update(values)
    # Ctrl-C is the runner's business: a process that is just starting would end with a traceback. It inherits the mask.
    signals = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, signals)
        for key, value in before.items():
            if value is None:
                os.environ.pop(key, None)
            else:
                os.environ[key] = value


def _start_worker(parent: int, counter: Any, devices: list[str] | None) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the runner's business
    if devices is not None:  # one process a GPU
        with counter.get_lock():
            device = devices[counter.value % len(devices)]
            counter.value += 1
        os.environ["CUDA_VISIBLE_DEVICES"] = device

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.2)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


class LocalEngine:
    """Spawned processes on this machine.

    Args:
        workers: processes for CPU tasks.
        devices: ids of CUDA devices, one process each for the tasks that run on a GPU; [] sends all tasks to the CPU.
    """

    name = "local"

    def __init__(self, workers: int, devices: list[str]):
        self.workers = workers
        self.devices = devices
        self._pools: dict[str, Executor] = {}

    def _pool(self, kind: str) -> Executor:
        if kind not in self._pools:
            context = multiprocessing.get_context("spawn")
            counter = context.Value("i", 0)
            devices = self.devices if kind == "gpu" else None
            self._pools[kind] = ProcessPoolExecutor(
                len(self.devices) if kind == "gpu" else self.workers,
                mp_context=context,
                initializer=_start_worker,
                initargs=(os.getpid(), counter, devices),
            )
        return self._pools[kind]

    def slots(self, kind: str) -> int:
        """Tasks of a kind that run at once."""
        return len(self.devices) if kind == "gpu" else self.workers

    def submit(self, kind: str, function: Callable[..., Any], *args: Any) -> Future[Any]:
        """Run `function(*args)` in a worker of `kind`, cpu or gpu."""
        with _environment(ONE_THREAD):
            return self._pool(kind).submit(function, *args)

    def restart(self) -> None:
        """Start over after a worker died: the pool is of no more use then."""
        self.close(kill=True)
        self._pools.clear()

    def close(self, kill: bool = False) -> None:
        """Wait for the workers, or end them now (what they were writing never gets its final name)."""
        for pool in self._pools.values():
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
    """This process, one task after the other: for a debugger and for tests."""

    name = "inline"

    def slots(self, kind: str) -> int:
        return 1

    def submit(self, kind: str, function: Callable[..., Any], *args: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(function(*args))
        except Exception as e:
            future.set_exception(e)
        return future

    def restart(self) -> None:
        pass

    def close(self, kill: bool = False) -> None:
        pass


class DaskEngine:
    """A Dask cluster: a scheduler's address, a local cluster (`dask`) or one worker a GPU (`dask-cuda`).

    The run directory must be on storage that every worker sees; partitions are all that moves.
    """

    def __init__(self, address: str, workers: int):
        try:
            from dask.distributed import Client, LocalCluster
        except ImportError as e:
            raise ConfigError(f"run.engine: {address} needs dask.distributed", install("dask")) from e
        self.name = address
        self._cluster: Any = None
        self._closed = False
        os.environ["PYTHONSAFEPATH"] = "1"  # stays: workers are started again when one dies
        if address == "dask":
            with _environment(ONE_THREAD):
                self._cluster = LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=None)
        elif address == "dask-cuda":
            try:
                from dask_cuda import LocalCUDACluster
            except ImportError as e:
                raise ConfigError("run.engine: dask-cuda is not installed", install("gpu")) from e
            self._cluster = LocalCUDACluster(dashboard_address=None)
        try:
            self._client = Client(self._cluster or address, timeout="20s")
        except BaseException as e:
            if self._cluster is not None:
                self._cluster.close()  # its workers would outlive the error
            if isinstance(e, OSError | TimeoutError | ValueError):
                raise ConfigError(f"run.engine: no Dask scheduler answers at {address} ({e})") from e
            raise
        self._executor = self._client.get_executor(pure=False, retries=2)

    def slots(self, kind: str) -> int:
        return max(1, int(sum(self._client.nthreads().values())))

    def submit(self, kind: str, function: Callable[..., Any], *args: Any) -> Future[Any]:
        future: Future[Any] = self._executor.submit(function, *args)
        return future

    def restart(self) -> None:
        self._client.restart()

    def close(self, kill: bool = False) -> None:
        if self._closed:
            return
        self._closed = True
        try:
            self._executor.shutdown(wait=not kill)
            self._client.close()
        finally:
            if self._cluster is not None:
                self._cluster.close()


Engine = LocalEngine | InlineEngine | DaskEngine


def make_engine(name: str, workers: int, devices: list[str]) -> Engine:
    """The engine that `run.engine` names. Raises: ConfigError."""
    if name == "local":
        return LocalEngine(workers, devices)
    if name == "inline":
        return InlineEngine()
    if name in ("dask", "dask-cuda") or "://" in name:
        return DaskEngine(name, workers)
    raise ConfigError(
        f"run.engine: {name!r}: choose local, inline, dask, dask-cuda or a scheduler address (tcp://host:port)"
    )
