#!/usr/bin/env python3
"""The documents stage in CPU seconds: usage: documents.py FILE.parquet ... [--before CHECKOUT] [--record]

For each file (a `text` column): NFC on, partitions of 32 MiB, one process; user and system seconds of the stage alone, compiled
functions loaded before; and those of reading all texts again. With --before, the same of another checkout of this repository, in turns. The texts of both must be equal.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from common import record

ROOT = Path(__file__).parents[2]
ROUNDS = 3

# Runs in a process of its own, with the checkout's package; knows the stage as it was and as it is.
STAGE = """
import hashlib, json, resource, sys, tempfile
from pathlib import Path
from gpu_curate import config as configs

path, by_reference, out = sys.argv[1], json.loads(sys.argv[2]), Path(sys.argv[3])
source = {"name": "s", "type": "parquet", "path": path}
run = {"partition_bytes": 1 << 25, "by_reference": by_reference, "engine": "inline"}
config = configs.parse({"sources": [source], "tokenizer": {"path": "x"}, "run": run})

from gpu_curate.stages import Context
try:
    from gpu_curate.stages.documents.stage import Documents
    from gpu_curate.stages.order import intake_of
    from gpu_curate.stages.part import run_task
    from gpu_curate.stages.partition_text import host_text, text_file
    context, stage = Context.of(out, config, {"documents": "documents", "rejects": "rejects"}), Documents(intake_of(config))
    run_one = lambda part, task: run_task(stage, context, part, task)
except ImportError:
    from gpu_curate.stages.documents import Documents
    from gpu_curate.stages.partition_text import host_text
    text_file = lambda box, part: box.path(part, ".parquet")
    context, stage = Context(out, config, {"documents": "documents", "rejects": "rejects"}), Documents()
    run_one = lambda part, task: stage.run(context, part, task)
from gpu_curate.text.normalize import normalizer
normalizer(config.normalize)("a  b")
try:
    from gpu_curate.document import TextColumn
    from gpu_curate.ops.content_hash import content_hash
    from gpu_curate.ops.normalize import normalize_column
    content_hash(normalize_column(TextColumn.from_texts(["a  b", "e\\u0301", "a"]), config.normalize).text)
except ImportError:
    pass

def cpu():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime

(out / "documents").mkdir()
tasks = stage.plan(context)
start = cpu()
for part, task in tasks.items():
    run_one(part, task)
seconds = cpu() - start
box, texts = context.box("documents"), hashlib.sha256()
for part in box.parts():
    text = host_text(text_file(box, part))
    texts.update(text.chars[text.offsets[0]:text.offsets[-1]].tobytes() + (text.offsets - text.offsets[0]).tobytes())
start = cpu()
for part in box.parts():
    host_text(text_file(box, part))
again = cpu() - start
nbytes = sum(f.stat().st_size for f in out.rglob("*.parquet"))
print(json.dumps({"seconds": seconds, "again": again, "mb": nbytes / 1e6, "texts": texts.hexdigest()}))
"""


def stage(checkout: Path, path: Path, by_reference: list[str]) -> dict[str, float | str]:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-c", STAGE, str(path), json.dumps(by_reference), folder]
        done = subprocess.run(
            command, env={**os.environ, "PYTHONPATH": str(checkout)}, capture_output=True, text=True, check=True
        )
    made: dict[str, float | str] = json.loads(done.stdout.splitlines()[-1])
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("files", type=lambda p: Path(p).resolve(), nargs="+")
    parser.add_argument("--before", type=lambda p: Path(p).resolve())
    parser.add_argument("--record", action="store_true")
    options = parser.parse_args()
    cases = {"copied": (ROOT, []), "by reference": (ROOT, ["parquet"])}
    if options.before:
        cases["before"] = (options.before, [])
    for path in options.files:
        made: dict[str, list[dict]] = {name: [] for name in cases}
        for i in range(ROUNDS + 1):
            for name, (checkout, by_reference) in cases.items():
                facts = stage(checkout, path, by_reference)
                if i:  # the first round compiles
                    made[name].append(facts)
        assert len({f["texts"] for facts in made.values() for f in facts}) == 1, "the texts differ"
        seconds = {name: [float(f["seconds"]) for f in facts] for name, facts in made.items()}
        base = float(np.median(seconds.get("before", seconds["copied"])))
        for name, values in seconds.items():
            ratio = base / float(np.median(values))
            again, written = (float(np.median([f[key] for f in made[name]])) for key in ("again", "mb"))
            print(
                f"{path.stem:<12}{name:<14}{np.median(values):8.2f} s  x{ratio:.2f} {written:8.1f} MB, read again {again:.2f} s"
            )
            if options.record and name != "before":
                note = f"NFC; {written:.1f} MB written; read again {again:.2f} s; baseline p50 {base:.3g}"
                against = "row by row" if options.before else "copied"
                record("documents", f"{path.stem}: {name}", "CPU s", values, against, 1 / ratio, note)


if __name__ == "__main__":
    main()
