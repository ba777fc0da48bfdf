#!/usr/bin/env python3
"""This version against an older checkout of the project, step by step, in CPU seconds.

    scripts/bench/versions.py OLD CORPUS.parquet TOKENIZER.json [--rounds 5] [--record]

OLD is a checkout with a .venv of its own. Both run one recipe with all rules, deduplication and tokens over the whole corpus,
interleaved, on two workers, compilation caches warm; the steps' CPU seconds are those of their receipts, the whole is that of
all processes. Steps that the older one lacks belong to the step that did their work: `candidates` to `duplicates`.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import shutil
import statistics
import subprocess
import tempfile
from pathlib import Path

import pyarrow.parquet as pq
import yaml
from common import record

ROOT = Path(__file__).parents[2]
PART_OF = {"candidates": "duplicates"}


def run(checkout: Path, recipe: Path, out: Path) -> dict[str, float]:
    """CPU seconds of every step, and of all processes."""
    before = os.times()
    command = [
        checkout / ".venv/bin/python",
        "-m",
        "gpu_curate.cli",
        "run",
        recipe,
        "--out",
        out,
        "-q",
        "--workers",
        "2",
    ]
    subprocess.run([str(c) for c in command], cwd=checkout, stderr=subprocess.DEVNULL, check=True)
    after = os.times()
    seconds: dict[str, float] = collections.Counter()
    for path in out.glob("*/.receipts/part-*.json"):
        name = path.parts[-3].split("-")[0]
        seconds[PART_OF.get(name, name)] += json.loads(path.read_text())["cpu_seconds"]
    seconds["whole run"] = after.children_user + after.children_system - before.children_user - before.children_system
    shutil.rmtree(out)
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("tokenizer", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--record", action="store_true")
    args = parser.parse_args()
    nbytes = sum(len(t.as_py().encode()) for t in pq.read_table(args.corpus, columns=["text"])["text"])
    found: dict[Path, list[dict[str, float]]] = {args.old: [], ROOT: []}
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch)
        recipe = {
            "sources": [{"name": "corpus", "type": "parquet", "path": str(args.corpus.resolve())}],
            "tokenizer": {"path": str(args.tokenizer.resolve())},
            "quality": dict.fromkeys(("gopher_quality", "gopher_repetition", "c4", "fineweb"), "on"),
            "run": {"partition_bytes": 1 << 25},
        }
        (place / "r.yaml").write_text(yaml.safe_dump(recipe))
        for i in range(args.rounds + 1):
            for checkout, rounds in found.items():
                rounds.append(run(checkout, place / "r.yaml", place / f"r{i}"))
    for step in found[ROOT][0]:
        old, new = ([r.get(step, 0.0) for r in rounds[1:]] for rounds in found.values())  # the first compiles
        ratio = statistics.median(new) / max(statistics.median(old), 1e-9)
        print(f"{step:12} {statistics.median(old):7.3f} s before, {statistics.median(new):7.3f} s now, {ratio:.2f}")
        if args.record:
            record(
                "versions",
                step,
                "CPU s",
                new,
                f"{args.old.name}",
                ratio,
                f"{nbytes / 1e6:.0f} MB, 2 workers, before and now",
            )


if __name__ == "__main__":
    main()
