#!/usr/bin/env python3
"""Duplicates in ranges: many documents whose hashes are there already, from signatures/ to clusters.

    scripts/bench/ranges.py FOLDER [--documents 100000000] [--workers 1 2] [--record]

One document in ten is in a cluster of five: it has the band hash of its first with probability 0.8^8 in each of 14 bands.
signatures/ and the ids are written to FOLDER first (240 bytes a document) and not timed. Each worker is a process; the peak is
the largest sum of all of them, by their proportional shares of memory, looked at every fifth of a second.
"""

from __future__ import annotations

import argparse
import shutil
import threading
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
from common import record

from gpu_curate.buckets import write_tables
from gpu_curate.stages import Boxes
from gpu_curate.stages.candidates import Candidates
from gpu_curate.stages.duplicates import Duplicates
from gpu_curate.stages.part import run_task
from gpu_curate.stages.sections import Dedup, Fuzzy
from gpu_curate.store.files import write_table
from gpu_curate.store.receipts import Counts, Receipt

ROWS, CLUSTER, SHARE = 500_000, 5, 0.1  # documents of a partition, of a cluster; share of all in clusters
MATCH = 0.8**8


def write(boxes: Boxes, n: int, fuzzy: Fuzzy) -> None:
    """documents/ (ids alone) and signatures/ as a run leaves them."""
    documents, signatures = boxes.box("documents"), boxes.box("signatures")
    for start in range(0, n, ROWS):
        part, rows = f"{start // ROWS:06d}", min(ROWS, n - start)
        number = np.arange(start, start + rows)
        in_cluster = int(n * SHARE) // CLUSTER * CLUSTER
        # the first copies are the first documents: those of a cluster lie a fifth of all duplicates apart
        first = np.where(number < in_cluster, number % (in_cluster // CLUSTER or 1), number).astype(np.uint64)
        own = np.random.default_rng(start)
        tables = [(_mixed(number.astype(np.uint64), 99), np.ones(rows, np.bool_))]
        for band in range(fuzzy.num_bands):
            same = (own.random(rows) < MATCH) | (number < in_cluster // CLUSTER)
            tables.append(
                (_mixed(np.where(same, first, number.astype(np.uint64) + np.uint64(n)), band), np.ones(rows, np.bool_))
            )
        path = signatures.path(part, ".buckets")
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            write_tables(file, tables)
        columns = {
            "content_hi": tables[0][0],
            "content_lo": _mixed(number.astype(np.uint64), 100),
            "bytes": np.full(rows, 2000, np.int64),
            "scope": np.zeros(rows, np.uint64),
            "n_shingles": np.full(rows, 300, np.int64),
        }
        table = signatures.path(part, ".parquet")
        write_table(table, pa.table(columns), use_dictionary=False, compression="none")
        counts = Counts(documents=rows, bytes=2000 * rows)
        signatures.commit(Receipt(part, signatures.written([table, path]), counts))
        ids = documents.path(part, ".parquet")
        ids.parent.mkdir(parents=True, exist_ok=True)
        write_table(ids, pa.table({"doc_id": number}))
        texts = documents.folder.parent / "texts" / ids.name  # short ones: a sample of the duplicates is compared
        texts.parent.mkdir(exist_ok=True)
        write_table(texts, pa.table({"text": pa.array(number).cast(pa.string()).cast(pa.large_string())}))
        documents.commit(Receipt(part, documents.written([ids, texts]), counts))


def _mixed(x: np.ndarray, seed: int) -> np.ndarray:
    from gpu_curate.ops.mix import fmix64

    return fmix64(x * np.uint64(0x9E3779B97F4A7C15) + np.uint64(seed))


class Peak(threading.Thread):
    """Largest proportional set size of this process and its children together."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.bytes, self._end = 0, threading.Event()

    def run(self) -> None:
        while not self._end.wait(0.2):
            own = psutil.Process()
            total = 0
            for process in (own, *own.children(recursive=True)):
                try:
                    total += process.memory_full_info().pss
                except psutil.Error:
                    continue
            self.bytes = max(self.bytes, total)

    def stop(self) -> int:
        self._end.set()
        self.join()
        return self.bytes


def measure(boxes: Boxes, dedup: Dedup, workers: int) -> tuple[float, float, int, int]:
    """Wall seconds, CPU seconds, peak bytes, tasks."""
    for name in ("candidates", "duplicates"):
        shutil.rmtree(boxes.box(name).folder, ignore_errors=True)
        boxes.box(name).folder.mkdir()
    peak = Peak()
    peak.start()
    begun = time.perf_counter()
    candidates, cpu = Candidates(dedup, []), 0.0
    tasks = candidates.plan(boxes)
    with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
        for done in [pool.submit(run_task, candidates, boxes, name, task) for name, task in tasks.items()]:
            cpu += done.result().cost.cpu_seconds
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        last = pool.submit(run_task, Duplicates(dedup, []), boxes, "000000").result()
    return time.perf_counter() - begun, cpu + last.cost.cpu_seconds, peak.stop(), len(tasks)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--documents", type=int, default=100_000_000)
    parser.add_argument("--workers", type=int, nargs="+", default=[1])
    parser.add_argument("--record", action="store_true")
    args = parser.parse_args()
    dedup = Dedup(fuzzy=Fuzzy())
    boxes = Boxes(args.folder, {name: name for name in ("documents", "signatures", "candidates", "duplicates")})
    if not boxes.box("signatures").parts():
        write(boxes, args.documents, dedup.fuzzy)
    first = None
    for workers in args.workers:
        wall, cpu, peak, tasks = measure(boxes, dedup, workers)
        millions = args.documents / 1e6
        print(
            f"{workers} workers: {wall:.1f} s wall, {cpu / millions:.2f} CPU s per million documents, peak {peak / 2**30:.2f} GiB, {tasks} tasks"
        )
        first = first or wall
        if args.record:
            notes = f"{args.documents} documents, 10 % in clusters, {wall:.0f} s wall, peak {peak / 2**30:.2f} GiB, {tasks} tasks"
            case, unit = f"14 bands, {workers} workers", "CPU s per M documents"
            record("ranges", case, unit, [cpu / millions], f"wall of {args.workers[0]} workers", first / wall, notes)


if __name__ == "__main__":
    main()
