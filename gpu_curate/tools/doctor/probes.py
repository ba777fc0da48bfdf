"""The probes, each in a process of its own with a time limit."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from gpu_curate.device.probe import child_environment, device_ids
from gpu_curate.tools.doctor.check import REINSTALL, Check
from gpu_curate.tools.doctor.gpu import cudf_works, cupy_works, curator, driver, nvml
from gpu_curate.tools.doctor.libraries import PARTS, libraries, numba_works, part, tokenizers
from gpu_curate.tools.doctor.ops import components, cpu_ops, kernels

MARK = "gpu_curate.tools.doctor:"


class Probe(NamedTuple):
    """A function that returns checks, run in its own process for at most `seconds`; `group` and `name` if it does not return."""

    group: str
    name: str
    run: Callable[[], list[Check]]
    seconds: float


def in_process(probe: str, device: str | None = None) -> list[Check]:
    """The checks of a probe, or one that says how its process ended. `device`: the only one that its process sees."""
    group, name, _, seconds = PROBES[probe]
    for_gpu = probe in ("driver", "cupy", "kernels")
    path = os.pathsep.join(p for p in [str(Path(__file__).parents[3]), *sys.path] if p)
    env = {**os.environ, "PYTHONPATH": path, "NO_VCS_VERSION": "1"}  # NeMo Curator runs git when imported
    env |= {} if device is None else child_environment(device)
    with (
        tempfile.TemporaryFile() as out,
        tempfile.TemporaryFile() as err,
    ):  # no pipes: what it starts may keep them open
        command = [sys.executable, "-P", "-m", "gpu_curate.tools.doctor", probe]
        process = subprocess.Popen(
            command, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True
        )
        try:
            status = process.wait(seconds)
        except subprocess.TimeoutExpired:
            remedy = _HANGS.get(probe, "run it again")
            return [Check(group, name, "failed", f"no answer within {seconds:.0f} s", remedy, for_gpu)]
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)  # with all that it started
            process.wait()
        out.seek(0)
        err.seek(0)
        for line in out.read().decode(errors="replace").splitlines():
            if line.startswith(MARK):
                return [Check(**c) for c in json.loads(line.removeprefix(MARK))]
        said = err.read().decode(errors="replace").strip().splitlines()
    how = f"killed by {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
    return [Check(group, name, "failed", f"{how}: {said[-1][:300] if said else 'it said nothing'}", REINSTALL, for_gpu)]


def kernels_everywhere() -> list[Check]:
    """Every kernel on every device, each in a process of its own: what is wrong with one says nothing of the others."""
    devices, _ = device_ids()
    if len(devices) < 2:
        return kernels()
    checks = []
    with ThreadPoolExecutor(len(devices)) as pool:
        for device, found in zip(devices, pool.map(lambda d: in_process("kernels", d), devices), strict=True):
            wrong = [replace(c, name=f"{c.name}, device {device}") for c in found if c.status != "ok"]
            right = f"{len(found)} ops equal the CPU"
            checks += wrong or [Check("self-test, GPU", f"device {device}", "ok", right, None, True)]
    return checks


_HANGS = {
    "nvml": "the driver hangs: `nvidia-smi` will too; look at dmesg, restart the driver or the machine",
    "driver": "the driver hangs: `nvidia-smi` will too; look at dmesg, restart the driver or the machine",
    "curator": "an import from a slow network disk? Put the environment on a local one",
    "components": "Ray does not start: is there another one on this host (`ray status`)? Or set components: cpu",
}


QUICK = ("kernels", "components", "cupy", "cudf", "curator")  # what takes a device, or minutes
GROUPS = ("machine", "GPU", "libraries", "optional parts", "self-test, CPU", "self-test, GPU")
PROBES: dict[str, Probe] = {
    "cpu": Probe("self-test, CPU", "every op", cpu_ops, 300),  # the longest first; compiles on a fresh machine
    "kernels": Probe("self-test, GPU", "every kernel", kernels_everywhere, 300),
    "tokenizers": Probe("libraries", "tokenizer libraries", tokenizers, 120),
    "driver": Probe("GPU", "driver", driver, 20),
    "nvml": Probe("GPU", "NVML", nvml, 20),
    "cupy": Probe("GPU", "CuPy", cupy_works, 60),
    "cudf": Probe("GPU", "cuDF", cudf_works, 120),
    "curator": Probe("GPU", "NeMo Curator", curator, 180),
    "components": Probe("self-test, GPU", "components (NeMo Curator)", components, 300),
    "numba": Probe("libraries", "Numba", numba_works, 60),
    "libraries": Probe("libraries", "required", libraries, 120),
    **{f"part {name}": Probe("optional parts", name, partial(part, name), 60) for name in PARTS},
}


def answer(name: str) -> None:
    """What runs in a process of its own."""
    checks = PROBES[name].run()
    print(f"\n{MARK}{json.dumps([asdict(c) for c in checks])}", flush=True)
    os._exit(0)  # a library's threads or exit handlers must not hold the answer up
