#!/usr/bin/env python3
"""What a copy of the text costs, on the CPU: usage: by_reference.py CORPUS.parquet TOKENIZER.json [--record]

The same run (`normalize: null`, all rules, dedup, tokens; two workers) with and without `run.by_reference`: CPU seconds by
step, wall seconds, bytes of texts/. The shards of all are compared.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import yaml
from common import record

ROOT = Path(__file__).parents[2]
ROUNDS = 3
READERS = ("documents", "signatures", "scores", "tokens")  # the steps that read text


def run(place: Path, kind: str, path: Path, tokenizer: Path, by_reference: list[str]) -> dict[str, float | str]:
    """One run: seconds, bytes, and a hash of its shards."""
    rules = dict.fromkeys(("gopher_quality", "gopher_repetition", "c4", "fineweb"), True)
    recipe = {
        "sources": [{"name": "corpus", "type": kind, "path": str(path)}],
        "normalize": None,
        "tokenizer": {"path": str(tokenizer)},
        "quality": rules,
        "run": {"partition_bytes": 1 << 25, "workers": 2, "by_reference": by_reference},
    }
    (place / "r.yaml").write_text(yaml.safe_dump(recipe))
    with tempfile.TemporaryDirectory(dir=place) as folder:
        out = Path(folder) / "r"
        command = [sys.executable, "-m", "gpu_curate.cli", "run", place / "r.yaml", "--out", out, "-q"]
        subprocess.run([*map(str, command)], check=True, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        report = json.loads((out / "report" / "report.json").read_text())
        shards = hashlib.sha256()
        for shard in sorted((out / "shards").glob("*.bin")):
            shards.update(shard.read_bytes())
        steps = {s["name"]: s["cpu_seconds"] for s in report["steps"]}
        return {
            **{name: steps[name] for name in READERS},
            "all steps": sum(steps.values()),
            "wall": report["seconds"],
            "texts/ MB": sum(f.stat().st_size for f in (out / "texts").glob("*.parquet")) / 1e6,
            "run MB": sum(f.stat().st_size for f in out.rglob("*") if f.is_file()) / 1e6,
            "shards": shards.hexdigest(),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("corpus", type=Path)
    parser.add_argument("tokenizer", type=Path)
    parser.add_argument("--record", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch)
        files = {"parquet": options.corpus.absolute()}
        cases = {(kind, how): [kind] if how == "reference" else [] for kind in files for how in ("copy", "reference")}
        made: dict[tuple[str, str], list[dict]] = {case: [] for case in cases}
        for i in range(ROUNDS + 1):
            for (kind, how), by_reference in cases.items():
                facts = run(place, kind, files[kind], options.tokenizer.absolute(), by_reference)
                if i:  # the first round warms
                    made[kind, how].append(facts)
    assert len({f["shards"] for runs in made.values() for f in runs}) == 1, "the shards differ"
    names = [n for n in made["parquet", "copy"][0] if n != "shards"]
    print(f"{'':<18}" + "".join(f"{n:>15}" for n in names))
    for (kind, how), runs in made.items():
        middle = {n: float(np.median([r[n] for r in runs])) for n in names}
        print(f"{kind + ' ' + how:<18}" + "".join(f"{middle[n]:>15.2f}" for n in names))
        if options.record and how == "reference":
            for name in ("documents", "all steps"):
                own, copy = ([r[name] for r in made[kind, h]] for h in (how, "copy"))
                ratio = float(np.median(own) / np.median(copy))
                note = "normalize: null, all rules, dedup, tokens; 2 workers"
                record("by_reference", f"{kind}: {name}", "CPU s", own, "with a copy", ratio, note)


if __name__ == "__main__":
    main()
