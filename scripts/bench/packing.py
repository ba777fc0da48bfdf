"""Best fit of many documents, and opening many shards: seconds, bytes on disk, peak memory.

scripts/bench/packing.py [--documents 10_000_000] [--shards 25_000] [--record]
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

sys.path[:0] = [str(Path(__file__).resolve().parents[2]), str(Path(__file__).parent)]
from common import record  # noqa: E402

from gpu_curate.formats import FORMATS  # noqa: E402
from gpu_curate.loader import ShardLoader  # noqa: E402
from gpu_curate.loader.packing import make_plan, open_plan  # noqa: E402
from gpu_curate.loader.waste import of_plan  # noqa: E402


def rss_mb() -> float:
    """Resident memory now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--documents", type=int, default=10_000_000)
    parser.add_argument("--shards", type=int, default=25_000)
    parser.add_argument("--record", action="store_true")
    options = parser.parse_args()

    def note(case: str, unit: str, value: float, notes: str = "") -> None:
        print(f"{case}: {value:.4g} {unit} {notes}")
        if options.record:
            record("packing", case, unit, [value], "", 0.0, notes)

    T = 2048
    make_plan(np.array([0, 5, 9000]), T, "best_fit")  # compiled
    rng = np.random.default_rng(0)
    lens = np.exp(rng.normal(6.4, 1.0, options.documents)).astype(np.int64) + 1
    bounds = np.concatenate([np.zeros(1, np.int64), np.cumsum(lens)])
    del lens
    with tempfile.TemporaryDirectory() as name:
        before = rss_mb()
        start = time.process_time()
        plan = open_plan(Path(name), "train", bounds, T, "best_fit")
        seconds = time.process_time() - start
        nbytes = (Path(name) / "train.rows").stat().st_size
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3 - before
        docs = f"{options.documents:,} documents of {bounds[-1] / options.documents:.0f} tokens, rows of {T}"
        note(f"best fit, {docs}", "CPU seconds", seconds)
        note(f"best fit, {docs}", "MB of index", nbytes / 1e6)
        note(f"best fit, {docs}", "MB of memory at most", peak, "while it is made, the documents' bounds apart")
        print(of_plan("best_fit", plan, T))
        del plan
        start = time.process_time()
        open_plan(Path(name), "train", bounds, T, "best_fit")
        note(f"best fit again, {docs}", "CPU seconds", time.process_time() - start)
    with tempfile.TemporaryDirectory() as name:
        folder, entries = Path(name), []
        for i in range(options.shards):
            FORMATS["llmc"].write(folder / f"train_{i:06d}.bin", np.full(100, i % 1000, np.uint16))
            entries.append({"file": f"train_{i:06d}.bin", "tokens": 100, "bytes": 1224, "sha256": f"{i:064x}"})
        split = {"tokens": 100 * options.shards, "documents": 0, "shards": entries}
        manifest = {"version": 1, "format": "llmc", "dtype": "uint16", "eot_id": 1, "vocab_size": 1001}
        (folder / "manifest.json").write_text(json.dumps({**manifest, "splits": {"train": split}}))
        before, start = rss_mb(), time.perf_counter()
        loader = ShardLoader(folder, "train", 4, 64, as_torch=False, shuffle=1)
        note(f"{options.shards:,} shards opened", "seconds", time.perf_counter() - start)
        note(f"{options.shards:,} shards open", "MB of memory per 1,000", (rss_mb() - before) / options.shards * 1e3)
        loader.batch(0)
        stream = loader.batches()
        start = time.perf_counter()
        stream.state_dict()
        note(f"first state of {options.shards:,} shards", "ms", (time.perf_counter() - start) * 1e3)
        start = time.perf_counter()
        for _ in range(100):
            stream.state_dict()
        note(f"state of {options.shards:,} shards", "ms", (time.perf_counter() - start) * 10)


if __name__ == "__main__":
    main()
