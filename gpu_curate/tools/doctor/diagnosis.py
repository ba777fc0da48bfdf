"""`diagnose`: the machine, and every probe."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from gpu_curate import __version__
from gpu_curate.tools.doctor.check import Check
from gpu_curate.tools.doctor.machine import environment, system
from gpu_curate.tools.doctor.probes import GROUPS, PROBES, QUICK, in_process


def diagnose(
    gpu: bool = False,
    folder: Path = Path("."),
    tell: Callable[[str], None] = lambda text: None,
    quick: bool = False,
) -> dict[str, Any]:
    """Look at everything and test every op.

    Args:
        gpu: the GPU path is required: what it lacks counts as failed.
        folder: whose disk is looked at.
        tell: is told what is being looked at, and when that is done.
        quick: touch no device, which may be another program's: the driver and NVML are asked, no kernel is run.
    Returns:
        version, checks (each a Check as a dict), usable (nothing failed), gpu_usable and gpu_present. Writes nothing but compiled
        functions to Numba's cache. Takes about half a minute, longer where nothing is compiled yet.
    """
    checks = [*system(folder), *environment()]
    begun = time.monotonic()

    def look(probe: str) -> list[Check]:
        what = f"{PROBES[probe].group}: {PROBES[probe].name}"
        tell(f"[{time.monotonic() - begun:5.1f} s] {what} ...")
        found = in_process(probe)
        tell(f"[{time.monotonic() - begun:5.1f} s] {what}: done")
        return found

    with ThreadPoolExecutor(max(2, min(4, os.cpu_count() or 1))) as pool:
        for found in pool.map(look, [p for p in PROBES if not (quick and p in QUICK)]):
            checks += found
    needed = [c for c in checks if c.for_gpu]
    present = gpu_present()
    if not present and not gpu:
        checks = [replace(c, status="unused") if _is_unused(c) else c for c in checks]
    if gpu:
        checks = [replace(c, status="failed") if c.for_gpu and c.status == "missing" else c for c in checks]
    order = {name: i for i, name in enumerate(GROUPS)}
    checks.sort(key=lambda c: order[c.group])  # stable
    return {
        "version": __version__,
        "usable": all(c.status != "failed" for c in checks),
        "gpu_usable": all(c.status == "ok" for c in needed),
        "gpu_present": present,
        "checks": [asdict(c) for c in checks],
    }


def gpu_present() -> bool:
    """True if this machine has an NVIDIA GPU, with a driver or without: a device file, or a display device on the PCI bus."""
    if any(Path("/dev").glob("nvidia[0-9]*")) or Path("/dev/dxg").exists():  # the latter: of Windows, under WSL
        return True
    for device in Path("/sys/bus/pci/devices").glob("*"):
        with contextlib.suppress(OSError):
            if (device / "vendor").read_text().strip() == "0x10de" and (device / "class").read_text().startswith(
                "0x03"
            ):
                return True
    return False


def _is_unused(check: Check) -> bool:
    """True for what is only wanted where there is a GPU. Devices that somebody has hidden are another matter."""
    return (
        check.status == "missing" and check.group in ("GPU", "self-test, GPU") and check.name != "CUDA_VISIBLE_DEVICES"
    )
