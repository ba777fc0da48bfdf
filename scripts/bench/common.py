"""What every benchmark shares: interleaved CPU timings and one row format."""

from __future__ import annotations

import csv
import datetime
import os
import platform
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

RESULTS = Path(__file__).with_name("results.csv")
COLUMNS = ["date", "commit", "machine", "bench", "case", "unit", "p20", "p50", "p80", "baseline", "ratio", "notes"]


def interleaved(cases: dict[str, Callable[[], object]], rounds: int = 5) -> dict[str, list[float]]:
    """CPU seconds of this process per call, each case once a round, so that noise hits all alike."""
    seconds: dict[str, list[float]] = {name: [] for name in cases}
    for name in cases:  # once untimed: compiles and warms
        cases[name]()
    for _ in range(rounds):
        for name, call in cases.items():
            start = time.process_time()
            call()
            seconds[name].append(time.process_time() - start)
    return seconds


def quantiles(values: list[float]) -> tuple[float, float, float]:
    """p20, p50, p80."""
    return tuple(float(q) for q in np.quantile(values, [0.2, 0.5, 0.8]))  # type: ignore[return-value]


def machine() -> str:
    """Processor name and core count."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        name = next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        name = platform.processor() or platform.machine()
    return f"{name} x{os.cpu_count()}"


def record(bench: str, case: str, unit: str, values: list[float], baseline: str, ratio: float, notes: str = "") -> None:
    """Append one row to results.csv; `ratio` is ours over the baseline, in the same run."""
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=RESULTS.parent)
    new = not RESULTS.exists()
    with RESULTS.open("a", newline="") as f:
        writer = csv.writer(f, lineterminator="\n")
        if new:
            writer.writerow(COLUMNS)
        p20, p50, p80 = (f"{v:.4g}" for v in quantiles(values))
        row = [datetime.date.today().isoformat(), commit.stdout.strip(), machine(), bench, case, unit, p20, p50, p80]
        writer.writerow([*row, baseline, f"{ratio:.3g}", notes])
