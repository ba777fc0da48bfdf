#!/usr/bin/env python3
"""LSH of many documents on one core: 14 bands to components, from files of band hashes.

    scripts/bench/lsh.py [--documents 10000000] [--record]

One document in five is a near-duplicate: in each band it has the hash of its original with probability 0.8^8, and shares
at least one band with it more often than not. Bands are written to disk first, one file of N uint64 a band, and come back
one at a time, as a run does it. Peers, on the first bands and the same labels: NumPy's argsort with SciPy's components,
and polars' group-by with SciPy's components.
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from common import record
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

from gpu_curate.ops.components import Components

os.environ.setdefault("POLARS_MAX_THREADS", "1")
NUM_BANDS, PEER_BANDS = 14, 2
SIMILARITY, ROWS_PER_BAND = 0.8, 8


def write_bands(folder: Path, n: int) -> None:
    """A fifth of the documents get the hash of an earlier one where their band matches."""
    rng = np.random.default_rng(0)
    duplicate = np.flatnonzero(rng.random(n) < 0.2)[1:]
    original = rng.integers(0, duplicate)
    for b in range(NUM_BANDS):
        hash_N = rng.integers(0, 1 << 64, n, dtype=np.uint64)
        match = rng.random(len(duplicate)) < SIMILARITY**ROWS_PER_BAND
        hash_N[duplicate[match]] = hash_N[original[match]]
        hash_N.tofile(folder / f"band-{b:02}")


def ours(folder: Path, n: int, bands: int) -> np.ndarray:
    components = Components(n)
    for b in range(bands):
        components.add_band(np.fromfile(folder / f"band-{b:02}", np.uint64))
    return components.labels()


def scipy_labels(n: int, edges: list[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    a, b = (np.concatenate(side) for side in zip(*edges, strict=True))
    graph = coo_matrix((np.ones(len(a), np.bool_), (a, b)), (n, n))
    _, component = connected_components(graph, directed=False)
    first = np.unique(component, return_index=True)[1]
    return first[component]


def numpy_scipy(folder: Path, n: int, bands: int) -> np.ndarray:
    edges = []
    for b in range(bands):
        hash_N = np.fromfile(folder / f"band-{b:02}", np.uint64)
        order = np.argsort(hash_N, kind="stable")
        same = np.flatnonzero(hash_N[order[1:]] == hash_N[order[:-1]])
        edges.append((order[same], order[same + 1]))
    return scipy_labels(n, edges)


def polars_scipy(folder: Path, n: int, bands: int) -> np.ndarray:
    import polars as pl

    edges = []
    for b in range(bands):
        frame = pl.DataFrame({"h": np.fromfile(folder / f"band-{b:02}", np.uint64), "d": np.arange(n)})
        pair = frame.with_columns(pl.col("d").min().over("h").alias("first")).filter(pl.col("d") != pl.col("first"))
        edges.append((pair["first"].to_numpy(), pair["d"].to_numpy()))
    return scipy_labels(n, edges)


def peak_mb() -> float:
    """Largest resident size of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1e6 if sys.platform == "darwin" else 1e3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--documents", type=int, default=10_000_000)
    parser.add_argument("--record", action="store_true", help="append the rows to results.csv")
    args = parser.parse_args()
    n, millions = args.documents, args.documents / 1e6

    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        if os.fork() == 0:  # in a process of its own, so that its memory does not count in our peak
            write_bands(folder, n)
            os._exit(0)
        if os.wait()[1]:
            raise SystemExit("the bands could not be written: disk full?")
        warm = Components(1000)  # compiles
        warm.add_band(np.arange(1000, dtype=np.uint64) % np.uint64(7))
        warm.labels()

        before, start = peak_mb(), time.process_time()
        labels = ours(folder, n, NUM_BANDS)
        seconds, memory = time.process_time() - start, peak_mb() - before
        print(f"{n} documents, {NUM_BANDS} bands, {n - len(np.unique(labels))} removed, CPU time of one core")
        print(f"gpu_curate cpu      {seconds / millions:6.2f} s and {memory / millions:6.1f} MB per million documents")
        if args.record:
            record(
                "lsh", "14 bands", "s per M documents", [seconds / millions], "", 1.0, f"{n} documents, 20 % near-dup."
            )
            record(
                "lsh", "peak memory", "MB per M documents", [memory / millions], "", 1.0, "labels and one band included"
            )

        start = time.process_time()
        expected = ours(folder, n, PEER_BANDS)
        ours_seconds = time.process_time() - start
        for name, peer in (("numpy + scipy", numpy_scipy), ("polars + scipy", polars_scipy)):
            start = time.process_time()
            if not np.array_equal(peer(folder, n, PEER_BANDS), expected):
                raise SystemExit(f"{name} finds other components")
            seconds = time.process_time() - start
            print(f"{name:18}{seconds / ours_seconds:6.1f} x the CPU time of ours over {PEER_BANDS} bands")
            if args.record:
                ratio = seconds / ours_seconds
                record("lsh", f"{PEER_BANDS} bands", "s per M documents", [ours_seconds / millions], name, ratio)


if __name__ == "__main__":
    main()
