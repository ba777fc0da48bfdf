"""A machine with CUDA devices that are not there: the environment of processes that believe in them."""

from __future__ import annotations

import functools
import os
import subprocess
from pathlib import Path

from cudasim.module import CACHE, CXX

HERE = Path(__file__).resolve().parent


@functools.cache
def driver() -> Path:
    """The folder of the fake libcuda.so.1, compiled once."""
    folder = CACHE / "driver"
    target = folder / "libcuda.so.1"
    source = HERE / "driver.c"
    if not target.exists() or target.stat().st_mtime < source.stat().st_mtime:
        folder.mkdir(parents=True, exist_ok=True)
        temporary = folder / f"{os.getpid()}.so"
        subprocess.run([CXX, "-x", "c", "-shared", "-fPIC", "-o", temporary, source], check=True)
        os.replace(temporary, target)
    return folder


def environment(folder: Path, devices: list[str]) -> dict[str, str]:
    """Variables under which a process, and those that it starts, see these devices.

    Args:
        folder: what the fake CuPy takes for the machine.
    """
    folder.mkdir(exist_ok=True)
    (folder / "exclusive").mkdir(exist_ok=True)
    path = os.pathsep.join([str(HERE.parents[1]), str(HERE.parent), str(HERE)])
    return {
        **os.environ,
        "PYTHONPATH": path,
        "LD_LIBRARY_PATH": str(driver()),
        "FAKE_CUDA": str(folder),
        "FAKE_CUDA_COUNT": str(len(devices)),
        "CUDA_VISIBLE_DEVICES": ",".join(devices),
    }


def contexts(folder: Path) -> list[tuple[int, str]]:
    """Process and device of every context that was made."""
    log = folder / "contexts"
    lines = log.read_text().split("\n") if log.exists() else []
    return [(int(pid), device) for pid, device in (line.split() for line in lines if line)]
