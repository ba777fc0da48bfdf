"""What `compare` says and writes: rates per step and way, as a table, CSV and a picture."""

from __future__ import annotations

import csv
import platform
from pathlib import Path
from typing import Any

from gpu_curate.device.runtime import Device
from gpu_curate.ops.catalogue import OPS
from gpu_curate.store.fingerprint import versions

COPY = "copy to the device"
# what a run does per partition: `signature` hashes the words itself
PARTITION_STEPS = ("content_hash", "signature", "bands", "text_stats", "ngrams")
TOTAL = "a partition"


def rates_of(seconds: float, nbytes: int, documents: int, processes: int) -> dict[str, float]:
    s = max(seconds, 1e-9)
    return {
        "seconds": seconds,
        "bytes": nbytes,
        "documents": documents,
        "processes": processes,
        "mb_per_s": nbytes / s / 1e6,
        "documents_per_s": documents / s,
    }


def table(measured: dict[str, dict[str, dict[str, Any]]]) -> list[dict[str, Any]]:
    """Rows of the result: per step and way the rates, their ratio to one core, and the break-even price of the GPU.

    The price: a GPU-hour may cost so many core-hours until the cores do the same work for less. A core counts with what it
    does while all others are busy too, where that was measured.
    """
    rows = []
    for step, ways in measured.items():
        one = ways.get("1 core")
        for rates in ways.values():
            rates["times_one_core"] = rates["mb_per_s"] / one["mb_per_s"] if one else None
        break_even = None
        if "GPU" in ways and one:
            cores = ways.get("all cores", one)
            break_even = ways["GPU"]["mb_per_s"] / (cores["mb_per_s"] / cores["processes"])
        rows.append({"step": step, "what": _what(step), "ways": ways, "break_even_price": break_even})
    return rows


def _what(step: str) -> str:
    return OPS[step].what if step in OPS else "text and offsets from host memory" if step == COPY else ""


def with_total(measured: dict[str, dict[str, dict[str, float]]]) -> dict[str, dict[str, dict[str, float]]]:
    """The steps and their sum, for the ways that do all that a run does per partition."""
    total: dict[str, dict[str, float]] = {}
    for way in ("1 core", "all cores", "GPU"):
        steps = [s for s in measured if s in PARTITION_STEPS or (way == "GPU" and s == COPY)]
        if all(way in measured[s] for s in steps):
            some = measured[steps[-1]][way]
            seconds = sum(measured[s][way]["seconds"] for s in steps)
            total[way] = rates_of(seconds, int(some["bytes"]), int(some["documents"]), int(some["processes"]))
    return {**measured, TOTAL: total}


def write_csv(path: Path, result: dict[str, Any]) -> None:
    """A line per step and way."""
    columns = ("seconds", "bytes", "documents", "processes", "mb_per_s", "documents_per_s", "times_one_core")
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["step", "way", *columns, "break_even_price"])
        for row in result["steps"]:
            for way, rates in row["ways"].items():
                price = row["break_even_price"] if way == "GPU" else None
                writer.writerow([row["step"], way, *(rates[c] for c in columns), price])


_COLOURS = {
    "NumPy": "#9a9a9a",
    "1 core": "#8fb8de",
    "all cores": "#2f6fab",
    "GPU": "#76b900",
    "NeMo Curator": "#3d5c00",
}


def write_png(path: Path, result: dict[str, Any]) -> None:
    """Bars of MB/s per step and way, on a logarithmic axis. Raises: ImportError: no matplotlib."""
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    matplotlib.rcdefaults()  # the matplotlibrc of the current folder may be anybody's

    rows = list(reversed(result["steps"]))
    ways = [w for w in _COLOURS if any(w in row["ways"] for row in rows)]
    figure = Figure(figsize=(9, 1.2 + 0.24 * sum(len(row["ways"]) + 1 for row in rows)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    y, ticks = 0.0, []
    for row in rows:
        own = [w for w in reversed(ways) if w in row["ways"]]
        for k, way in enumerate(own):
            rates = row["ways"][way]
            axes.barh(y + k, rates["mb_per_s"], height=0.85, color=_COLOURS[way])
            times = rates["times_one_core"]
            more = "" if times is None or way == "1 core" else f"   {_digits(times)} x"
            axes.text(rates["mb_per_s"] * 1.04, y + k, f"{_digits(rates['mb_per_s'])}{more}", va="center", fontsize=8)
        ticks.append((y + (len(own) - 1) / 2, row["step"]))
        y += len(own) + 0.8
    axes.set_yticks([t[0] for t in ticks], [t[1] for t in ticks])
    axes.set_xscale("log")
    low, high = axes.get_xlim()
    axes.set_xlim(low, high * (high / low) ** 0.18)  # room for the numbers
    axes.set_xlabel("MB of text a second (x: times one core)")
    sample, machine = result["sample"], result["machine"]
    verdict = "all arrays equal" if result["equal"] else f"{len(result['differences'])} ARRAYS DIFFER"
    title = f"{sample['documents']:,} documents, {sample['bytes'] / 1e6:,.1f} MB; {verdict}\n{machine['cpu']}"
    axes.set_title(title + (f", {machine['gpu']}" if machine["gpu"] else ""), fontsize=9, loc="left")
    axes.spines[["top", "right"]].set_visible(False)
    handles: list[Any] = [axes.barh(0, 0, color=_COLOURS[w]) for w in ways]
    figure.legend(
        handles, [_label(w, machine) for w in ways], loc="outside lower center", ncols=len(ways), frameon=False
    )
    figure.savefig(path, dpi=130)


def _digits(value: float) -> str:
    """Three digits of a small number, all before the point of a large one."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _label(way: str, machine: dict[str, Any]) -> str:
    return f"all {machine['cores']} cores" if way == "all cores" else way


def machine_facts(workers: int, device: Device | None) -> dict[str, Any]:
    """What the numbers were measured on."""
    gpu = None
    if device is not None:
        cuda = getattr(device.xp, "cuda", None)
        gpu = "emulated" if cuda is None else cuda.runtime.getDeviceProperties(0)["name"].decode()
    return {
        "cpu": _cpu_name(),
        "cores": workers,
        "gpu": gpu,
        "system": platform.platform(),
        "python": platform.python_version(),
        **versions(("numpy", "numba", "cupy-cuda13x", "cudf-cu13")),
    }


def _cpu_name() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text(errors="replace").splitlines():
            if line.startswith("model name"):
                return " ".join(line.partition(":")[2].split())
    return platform.processor() or platform.machine()
