"""Personal data: CPU time that the documents stage takes more, by what is looked for.

    python scripts/bench/pii.py CORPUS.parquet|CORPUS.jsonl [--record]

Documents of one column `text`, read from Parquet, normalised, measured and scrubbed in batches, as the stage does it. The
share of `scrub` in reading and normalising is asked for on prose; a corpus of mails or of code costs more.
"""

from __future__ import annotations

import argparse
import io
import time
from pathlib import Path

import common
import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from gpu_curate.config import Normalize, Pii
from gpu_curate.stages.documents.writing import _SCRUB_BYTES
from gpu_curate.text.normalize import normalize
from gpu_curate.text.pii import PiiScanner
from gpu_curate.text.pii.spans import PLACEHOLDERS

BASE = "read + normalise"


def texts_of(path: str, documents: int) -> list[str]:
    if path.endswith(".parquet"):
        return pq.read_table(path, columns=["text"])["text"].slice(0, documents).to_pylist()
    return [orjson.loads(line)["text"] for line in Path(path).read_bytes().splitlines()[:documents]]


def stage_seconds(parquet: bytes, scanner: PiiScanner | None) -> tuple[float, float]:
    """CPU seconds of the whole, and of its `scrub_all`."""
    norm = Normalize()
    waiting: list[bytes] = []
    nbytes = 0
    scrubbing = 0.0
    start = time.process_time()
    texts = pq.read_table(io.BytesIO(parquet))["text"].to_pylist()
    for i, text in enumerate(texts, 1):
        waiting.append(normalize(text, norm))
        nbytes += len(waiting[-1])
        if nbytes >= _SCRUB_BYTES or i == len(texts):
            if scanner is not None:
                before = time.process_time()
                scanner.scrub_all(waiting)
                scrubbing += time.process_time() - before
            waiting, nbytes = [], 0
    return time.process_time() - start, scrubbing


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("corpus")
    parser.add_argument("--documents", type=int, default=1 << 30)
    parser.add_argument("--without-findings", action="store_true", help="leave out documents with personal data")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--record", action="store_true")
    args = parser.parse_args()

    scanners = {"all types": PiiScanner(Pii(**dict.fromkeys(PLACEHOLDERS, "replace")))}
    scanners["email and ip"] = PiiScanner(Pii(email="replace", ip="replace"))  # what FineWeb replaces
    scanners |= {kind: PiiScanner(Pii(**{kind: "replace"})) for kind in PLACEHOLDERS}
    every = scanners["all types"]
    texts = texts_of(args.corpus, args.documents)
    if args.without_findings:
        texts = [t for t in texts if not every.scrub(t)[1]]
    nbytes = sum(len(t.encode()) for t in texts)
    found = every.scrub_all([normalize(t, Normalize()) for t in texts]).spans
    sink = io.BytesIO()
    pq.write_table(pa.table({"text": texts}), sink, compression="zstd")
    parquet = sink.getvalue()

    whole: dict[str, list[float]] = {name: [] for name in (BASE, *scanners)}
    own: dict[str, list[float]] = {name: [] for name in scanners}
    for _ in range(args.rounds):
        for name in whole:
            seconds, scrubbing = stage_seconds(parquet, scanners.get(name))
            whole[name].append(seconds)
            if name in own:
                own[name].append(scrubbing)

    base = float(np.median(whole[BASE]))
    findings = sum(map(len, found.values()))
    print(f"{len(texts)} documents, {nbytes / 1e6:.1f} MB, {findings} findings in {len(found)} documents")
    print(f"{BASE}: {nbytes / base / 1e6:.0f} MB/s")
    print(f"{'scrub':12} {'MB/s':>8} {'of ' + BASE:>20} {'more CPU':>10}")
    for name, values in own.items():
        share = float(np.median(values)) / base
        # ratios within a round: what slows the machine down slows both
        more = float(np.median(np.array(whole[name]) / np.array(whole[BASE]))) - 1
        print(f"{name:12} {nbytes / np.median(values) / 1e6:8.0f} {share:20.3f} {more:10.3f}")
        if args.record:
            rates = [nbytes / v / 1e6 for v in values]
            case = f"scrub {name}, {Path(args.corpus).stem}"
            notes = f"{more:+.3f} CPU in the stage's loop; {findings} findings of all types in {nbytes / 1e6:.0f} MB"
            common.record("pii", case, "MB/s", rates, BASE, share, notes)


if __name__ == "__main__":
    main()
