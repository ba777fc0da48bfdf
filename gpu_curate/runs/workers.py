"""What tasks and engines share: where a task may run, and what a worker process runs under."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from typing import NamedTuple

from gpu_curate.device.probe import cache_environment

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
def environment(values: dict[str, str]) -> Iterator[None]:
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


class Place(NamedTuple):
    """Where a task may run: the CPU workers together, or one process of a CUDA device."""

    kind: str  # cpu | gpu
    device: str = ""  # as in CUDA_VISIBLE_DEVICES; "" where the engine deals its devices out itself
    process: int = 0  # which of those of the device

    def __str__(self) -> str:
        return f"device {self.device or '0'}" if self.kind == "gpu" else self.kind


CPU = Place("cpu")


def device_environment(device: str) -> dict[str, str]:
    """What a process of one device runs under."""
    return {
        "CUDA_VISIBLE_DEVICES": device,
        "CUDF_SPILL": "0",  # cuDF would move a column's memory while a kernel reads it
        **cache_environment(),
    }
