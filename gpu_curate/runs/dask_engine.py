"""A Dask cluster as engine: tasks go by resources, so that CPU work goes to CPU workers and one GPU task to a slot."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Mapping
from concurrent.futures import BrokenExecutor, Future
from typing import Any

from gpu_curate.errors import ConfigError, DeviceLost, install
from gpu_curate.runs.workers import CPU, ONE_THREAD, Place, device_environment, environment

_KNOWN_S = 2.0  # workers come and go: how long what the scheduler said of them holds
GPU = Place("gpu")
RESOURCES = {CPU: "CPU", GPU: "GPU"}  # as workers state them: dask worker --resources "GPU=1"


class DaskEngine:
    """A Dask cluster: a scheduler's address, or a local one of a worker a core and some a GPU (`dask`, `dask-cuda`).

    Workers of a cluster that was there before state what they have: `GPU`, tasks on a device at once, and `CPU`. One that
    states nothing has a CPU for each of its threads. The run directory must be on storage that every worker sees; partitions
    are all that moves.

    Args:
        address: dask | dask-cuda | a scheduler's address.
        workers: CPU workers of a local cluster.
        devices: id of a CUDA device → GPU workers of a local cluster (with dask-cuda one a device).
    """

    steals = True
    max_failures = 2  # of a worker, after which it is left out

    def __init__(self, address: str, workers: int, devices: Mapping[str, int]):
        try:
            from dask.distributed import Client
            from distributed import KilledWorker
        except ImportError as e:
            raise ConfigError(f"run.engine: {address} needs dask.distributed", install("dask")) from e
        self.name = address
        self.worker_died: tuple[type[BaseException], ...] = (BrokenExecutor, KilledWorker)
        self._cluster: Any = None
        self._closed = False
        os.environ["PYTHONSAFEPATH"] = "1"  # stays: workers are started again when one dies
        if address in ("dask", "dask-cuda"):
            self._cluster = _local_cluster(address, workers, devices)
        try:
            self._client = Client(self._cluster or address, timeout="20s")
            if self._cluster is not None:
                self._client.wait_for_workers(len(self._cluster.worker_spec), timeout="60s")
        except BaseException as e:
            if self._cluster is not None:
                self._cluster.close()  # its workers would outlive the error
            if isinstance(e, OSError | TimeoutError | ValueError):
                raise ConfigError(f"run.engine: no Dask scheduler answers at {address} ({e})") from e
            raise
        self._executor = self._client.get_executor(pure=False)
        self._known: dict[str, tuple[int, dict[str, float]]] = {}
        self._known_until = 0.0

    def _stated(self) -> dict[str, tuple[int, dict[str, float]]]:
        """Address of a worker → its threads and resources, as of the last seconds."""
        if time.monotonic() < self._known_until:
            return self._known
        try:
            facts = self._client.scheduler_info(n_workers=-1)
        except TypeError:  # older ones tell all without being asked
            facts = self._client.scheduler_info()
        self._known = {name: (w["nthreads"], w.get("resources") or {}) for name, w in facts["workers"].items()}
        self._known_until = time.monotonic() + _KNOWN_S
        return self._known

    def places(self) -> dict[Place, int]:
        """The CPUs of all workers together, and the GPUs."""
        stated = self._stated().values()
        gpus = int(sum(resources.get("GPU", 0) for _, resources in stated))
        if self._by_cpu:
            cpus = int(sum(resources.get("CPU", 0) for _, resources in stated))
        else:
            cpus = sum(threads for threads, _ in stated)
        return {CPU: max(1, cpus), **({GPU: gpus} if gpus else {})}

    @property
    def _by_cpu(self) -> bool:
        """True if some worker states CPUs: then CPU tasks go to those that do."""
        return any("CPU" in resources for _, resources in self._stated().values())

    def submit(self, place: Place, function: Callable[..., Any], *args: Any) -> Future[Any]:
        wanted = {} if place == CPU and not self._by_cpu else {"resources": {RESOURCES[place]: 1}}
        future: Future[Any] = self._executor.submit(_run, function, *args, **wanted)
        return future

    def restart(self, place: Place) -> None:
        """Dask starts workers that died again by itself."""

    def retire(self, place: Place, device: str) -> list[Place]:
        """Leave the worker at this address out; its task on a device, if it has another, is run elsewhere by Dask."""
        if place == GPU and device in self._stated():
            self._client.retire_workers(workers=[device], close_workers=True)
            self._known_until = 0.0
        return [] if GPU in self.places() else [GPU]

    def release(self) -> None:
        """Workers keep their devices: who runs a cluster deals them out."""

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


def _run(function: Callable[..., Any], *args: Any) -> Any:
    """On a worker: where its device fails, say which worker it was."""
    try:
        return function(*args)
    except DeviceLost as e:
        from distributed import get_worker

        with contextlib.suppress(ValueError):
            raise DeviceLost(e.message, e.hint, get_worker().address, gone=True) from e
        raise


def _local_cluster(name: str, workers: int, devices: Mapping[str, int]) -> Any:
    """CPU workers of one thread, and GPU workers that see one device each. Raises: ConfigError."""
    from distributed import LocalCluster, Nanny

    share = 1 / (workers + sum(devices.values()))

    def spec(env: dict[str, str], resource: str) -> dict[str, Any]:
        options = {
            "nthreads": 1,
            "resources": {resource: 1},
            "env": {**ONE_THREAD, **env},
            "memory_limit": share,
            "dashboard": False,
            "dashboard_address": None,
            "host": "127.0.0.1",
        }
        return {"cls": Nanny, "options": options}

    specs = {f"cpu-{i}": spec({"CUDA_VISIBLE_DEVICES": ""}, "CPU") for i in range(workers)}
    with environment(ONE_THREAD):
        if name == "dask-cuda":
            try:
                from dask_cuda import LocalCUDACluster
            except ImportError as e:
                raise ConfigError("run.engine: dask-cuda is not installed", install("gpu")) from e
            cluster = LocalCUDACluster(
                CUDA_VISIBLE_DEVICES=",".join(devices) or None, resources={"GPU": 1}, dashboard_address=None
            )
        else:
            for device, processes in devices.items():
                own = spec(device_environment(device), "GPU")
                specs |= {f"gpu-{device}-{i}": own for i in range(processes)}
            cluster = LocalCluster(n_workers=0, threads_per_worker=1, dashboard_address=None)
        cluster.worker_spec.update(specs)
        cluster.scale(len(cluster.worker_spec))  # starts those that are not there yet
    return cluster
