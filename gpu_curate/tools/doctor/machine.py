"""The machine: Python, memory, disk, what the environment hides."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from pathlib import Path

from gpu_curate.tools.doctor.check import MIN_FREE_BYTES, Check, error_text, gigabytes


def system(folder: Path) -> list[Check]:
    version = platform.python_version()
    good = (3, 11) <= sys.version_info[:2] <= (3, 14)
    checks = [
        Check("machine", "Python", "ok" if good else "failed", f"{version}, {sys.executable}", None if good else "use Python 3.11 to 3.14")
    ]  # fmt: skip
    checks.append(_memory())
    try:
        free = shutil.disk_usage(folder).free
        writable = os.access(folder, os.W_OK)
        what = f"{gigabytes(free)} free in {folder.resolve()}"
        if not writable:
            checks.append(Check("machine", "disk", "missing", f"{what}, not writable", "give --out a folder that is"))
        elif free < MIN_FREE_BYTES:
            checks.append(Check("machine", "disk", "failed", what, "`gpu-curate plan` says what a run needs"))
        else:
            checks.append(Check("machine", "disk", "ok", what))
    except OSError as e:
        checks.append(Check("machine", "disk", "failed", error_text(e), "choose another folder"))
    return checks


def _memory() -> Check:
    try:
        import psutil
    except ImportError as e:
        return Check("machine", "memory", "failed", error_text(e), "pip install psutil")
    memory = psutil.virtual_memory()
    available, said = memory.available, f"{gigabytes(memory.available)} of {gigabytes(memory.total)} available"
    limit = Path("/sys/fs/cgroup/memory.max")  # of a container; the figures above are the host's
    if limit.exists() and (text := limit.read_text().strip()).isdigit():
        available = min(available, int(text))
        said += f", {gigabytes(int(text))} allowed to this container"
    if available < MIN_FREE_BYTES:
        return Check("machine", "memory", "failed", said, "a worker takes 0.35 GB and five times run.partition_bytes")
    return Check("machine", "memory", "ok", f"{said}, {len(_cores())} of {os.cpu_count()} cores")


def _cores() -> set[int]:
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))


def environment() -> list[Check]:
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
        checks.append(Check("machine", "shared memory", "ok" if enough else "missing", gigabytes(total), remedy))
    return checks
