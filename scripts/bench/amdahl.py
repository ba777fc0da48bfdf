#!/usr/bin/env python3
"""What a GPU makes of a whole run: usage: amdahl.py [--measure CORPUS.parquet TOKENIZER.json [--record]]

Without options: a table, for nodes of 16 to 128 cores and 1 to 8 GPUs and for kinds of source, of the text that a run gets
through in a second by CPU alone, and with GPUs. Whatever was measured comes from rows of results.csv, what the kernels move
from sass.md. An entry is marked `~` as long as no device has measured it: kernels and copies are then computed from the bytes
that they move. A row of `gpu_check` replaces them.

    CPU      every byte costs what the steps cost, on one of the cores
    devices  processes of a device feed it: read, copy up, write down. They run on the same cores
    stealing what the devices cannot take in time the cores do, so the share on devices is the best one

--measure makes the rows: CPU seconds of every step of a run over the corpus, and what feeding a device costs with kernels
that take no time (their results are made before).
"""

from __future__ import annotations

import argparse
import csv
import re
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from common import RESULTS, record

SASS = Path(__file__).with_name("sass.md")
BENCH = "amdahl"
ON_DEVICE = ("signatures", "scores")
# One GPU: what an H200 copies in a second by its data sheet, and over PCIe 5 x16; a half and a third of that is assumed of our
# kernels and copies. A row of gpu_check takes their place.
ASSUMED = {"device bytes per ns": 4800 * 0.33, "copy bytes per ns": 55 * 0.5}
NODES = [(16, 1), (32, 1), (32, 2), (64, 4), (128, 8)]
PROCESSES = 3  # run.gpu.workers
# Kinds of source: bench, case, unit of the row that says what they cost beside; bytes a unit of what the row counts.
KINDS = {
    "clean text": None,
    "language identified": ("language", "", "MB/s", 1e6),
    "Wikipedia dump": ("wikitext", "enwiki-pages-articles-excerpt.xml.bz2", "Mchar/s", 1e6),
    "WARC, trafilatura": ("warc", "trafilatura", "s/page", 2433.0),
    "WARC, resiliparse": ("warc", "resiliparse", "s/page", 4370.0),
}


def rows(path: Path = RESULTS) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def latest(table: list[dict[str, str]], bench: str, case: str, unit: str) -> float | None:
    """The median of the newest row; `case` "" takes any."""
    found = [r for r in table if r["bench"] == bench and r["unit"] == unit and (not case or r["case"] == case)]
    return float(found[-1]["p50"]) if found else None


def traffic(text: str) -> float:
    """Bytes that the kernels of scores and signatures move, read and written, for a byte of text: the sum over sass.md."""
    total = 0.0
    for line in text.splitlines():
        cells = [c.strip() for c in line.strip("|").split("|")]
        ours = re.match(r"(words|text_stats|content_hash|bands)\.|minhash\.sign_tiles", cells[0])
        if ours and len(cells) == 7 and cells[5]:
            total += float(cells[5]) + float(cells[6])
    return total


@dataclass(frozen=True)
class Costs:
    """Nanoseconds a byte of text.

    Attributes:
        cpu: of all steps, on a core.
        moved: of those, the steps that a device can take.
        feed: on a core, for what a device does.
        device: on a device, its kernels and copies.
        measured: no part of it is computed.
    """

    cpu: float
    moved: float
    feed: float
    device: float
    measured: bool


def costs(table: list[dict[str, str]], sass: str, beside: float = 0.0) -> Costs:
    """Of the rows. `beside`: what a kind of source costs more, on the CPU.

    Raises: LookupError: a row is missing.
    """

    def ns(case: str) -> float:
        value = latest(table, BENCH, case, "ns per byte")
        if value is None:
            raise LookupError(f"results.csv has no row {BENCH}, {case}: scripts/bench/amdahl.py --measure ... --record")
        return value

    kernels = traffic(sass) / ASSUMED["device bytes per ns"]
    copies = 1 / ASSUMED["copy bytes per ns"]
    stage = {s: latest(table, "gpu_check", f"stage: {s}", "GB/s") for s in ("ops", "copy up", "copy down")}
    measured = all(stage.values())
    device = sum(1 / v for v in stage.values() if v) if measured else kernels + copies
    moved = sum(ns(step) for step in ON_DEVICE)
    feed = sum(ns(f"feed: {step}") for step in (*ON_DEVICE, "copy")) + len(ON_DEVICE) * ns("feed: read")
    return Costs(ns("all steps") + beside, moved, feed, device, measured)


def throughput(c: Costs, cores: int, gpus: int, processes: int = PROCESSES) -> tuple[float, float]:
    """Bytes per ns of a run, and the share of the movable work that devices do: the best, since idle cores take the rest."""
    best = (cores / c.cpu, 0.0)
    if not gpus:
        return best
    for share in np.linspace(0.0, 1.0, 201)[1:]:
        host = cores / (c.cpu - share * (c.moved - c.feed))
        feeders = gpus * processes / (share * (c.feed + c.device))
        kernels = gpus / (share * c.device)
        best = max(best, (min(host, feeders, kernels), float(share)))
    return best


def kinds(table: list[dict[str, str]]) -> dict[str, float]:
    """Kind of source → ns a byte that it costs beside; those without a row are left out."""
    found = {}
    for kind, row in KINDS.items():
        if row is None:
            found[kind] = 0.0
            continue
        bench, case, unit, nbytes = row
        value = latest(table, bench, case, unit)
        if value is not None:
            found[kind] = value * 1e9 / nbytes if unit == "s/page" else 1e9 / (value * nbytes)
    return found


def table_of(results: list[dict[str, str]], sass: str) -> list[dict[str, Any]]:
    """A row for every kind of source and node."""
    made = []
    for kind, beside in kinds(results).items():
        c = costs(results, sass, beside)
        for cores, gpus in NODES:
            alone, _ = throughput(c, cores, 0)
            auto, share = throughput(c, cores, gpus)
            endless = cores / (c.cpu - c.moved)
            made.append(
                {
                    "kind": kind,
                    "cores": cores,
                    "gpus": gpus,
                    "cpu_mb_per_s": 1000 * alone,
                    "auto_mb_per_s": 1000 * auto,
                    "times": auto / alone,
                    "share": share,
                    "limit": endless / alone,
                    "measured": c.measured,
                }
            )
    return made


def say(made: list[dict[str, Any]]) -> str:
    lines = ["| source | cores | GPUs | CPU MB/s | with GPUs | times | share on GPUs | endless GPU |"]
    lines.append("|---|---|---|---|---|---|---|---|")
    for r in made:
        mark = "" if r["measured"] else "~"
        lines.append(
            f"| {r['kind']} | {r['cores']} | {r['gpus']} | {r['cpu_mb_per_s']:,.0f} | {mark}{r['auto_mb_per_s']:,.0f} "
            f"| {mark}{r['times']:.2f} | {r['share']:.0%} | {r['limit']:.2f} |"
        )
    return "\n".join(lines)


# ---------------------------------------------------------------------------------------------------------- measuring


def measure(corpus: Path, tokenizer: Path) -> dict[str, list[float]]:
    """Case → ns of CPU a byte, of several rounds."""
    from gpu_curate import config
    from gpu_curate.runs.fingerprints import active_stages
    from gpu_curate.runs.pipeline import running
    from gpu_curate.runs.plan_files import Planned
    from gpu_curate.stages.order import STAGES
    from gpu_curate.stages.part import Part
    from gpu_curate.stages.partition_text import host_text

    rules = dict.fromkeys(("gopher_quality", "gopher_repetition", "c4", "fineweb"), True)
    recipe = config.parse(
        {
            "sources": [{"name": "corpus", "type": "parquet", "path": str(corpus)}],
            "tokenizer": {"path": str(tokenizer)},
            "quality": rules,
            "run": {"partition_bytes": 1 << 26, "backend": "cpu", "engine": "inline"},
        }
    )
    found: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for i in range(3):
            start = time.process_time()
            with running(recipe, Path(folder) / f"r{i}") as outcome:
                context = outcome.context
            seconds = time.process_time() - start
            nbytes = sum(r.counts.bytes for r in context.box("documents").receipts())
            if i == 0:  # compiles
                continue
            for step in ("documents", "signatures", "scores", "tokens"):
                cpu = sum(r.cost.cpu_seconds for r in context.box(step).receipts())
                found.setdefault(step, []).append(cpu / nbytes * 1e9)
            found.setdefault("all steps", []).append(seconds / nbytes * 1e9)
        planned = Planned(recipe, Path(folder) / "r0", None, False, list(STAGES))
        stages = {s.name: s for s in active_stages(recipe, planned.corpus, list(STAGES))}
        name = context.box("documents").parts()[0]
        size = next(r.counts.bytes for r in context.box("documents").receipts() if r.part == name)

        def timed(case: str, run: Any) -> None:
            run()
            for _ in range(3):
                start = time.process_time()
                run()
                found.setdefault(case, []).append((time.process_time() - start) / size * 1e9)

        path = Part(stages["scores"], context.boxes, name)._texts
        timed("feed: read", lambda: host_text(path))
        text, staging = host_text(path), np.empty(1 << 25, np.uint8)

        def copy() -> None:
            for at in range(0, text.chars.size, staging.size):
                piece = text.chars[at : at + staging.size]
                staging[: piece.size] = piece

        timed("feed: copy", copy)
        compute = Part.compute
        for step in ON_DEVICE:
            made = compute(Part(stages[step], context.boxes, name), _function(stages[step], context, name))
            Part.compute = lambda self, function, made=made: made  # type: ignore[method-assign]
            try:
                timed(f"feed: {step}", lambda step=step: stages[step].run(Part(stages[step], context.boxes, name)))
            finally:
                Part.compute = compute  # type: ignore[method-assign]
    return found


def _function(stage: Any, context: Any, name: str) -> Any:
    """What a stage hands to `Part.compute`."""
    from gpu_curate.stages.part import Part

    asked: list[Any] = []

    class Asked(Exception):
        pass

    def compute(self: Any, function: Any) -> Any:
        asked.append(function)
        raise Asked

    before, Part.compute = Part.compute, compute  # type: ignore[method-assign]
    try:
        stage.make(Part(stage, context.boxes, name))
    except Asked:
        return asked[0]
    finally:
        Part.compute = before  # type: ignore[method-assign]
    raise AssertionError(f"{stage.name} computes nothing")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--measure", nargs=2, type=Path, metavar=("CORPUS", "TOKENIZER"))
    parser.add_argument("--record", action="store_true")
    options = parser.parse_args()
    if options.measure:
        found = measure(*(p.absolute() for p in options.measure))
        for case, values in found.items():
            print(f"{case:20s} {np.median(values):8.3f} ns a byte")
            if options.record:
                share = float(np.median(values) / np.median(found["all steps"]))
                record(
                    BENCH, case, "ns per byte", values, "all steps", share, "CPU, one process; all rules, dedup, tokens"
                )
    print(say(table_of(rows(), SASS.read_text())))


if __name__ == "__main__":
    main()
