"""Personal data: CPU time of a scan against reading and normalising the same documents.

    python scripts/bench/pii.py CORPUS.parquet|CORPUS.jsonl [--record]

Documents of one column `text`. The share is asked for on prose; a corpus of mails or of code costs more.
"""

from __future__ import annotations

import argparse
import io
from pathlib import Path

import common
import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from gpu_curate.config import Normalize, Pii
from gpu_curate.text.normalize import normalize
from gpu_curate.text.pii import PiiScanner


def texts_of(path: str, documents: int) -> list[str]:
    if path.endswith(".parquet"):
        return pq.read_table(path, columns=["text"])["text"].slice(0, documents).to_pylist()
    return [orjson.loads(line)["text"] for line in Path(path).read_bytes().splitlines()[:documents]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("corpus")
    parser.add_argument("--documents", type=int, default=3000)
    parser.add_argument("--without-findings", action="store_true", help="leave out documents with personal data")
    parser.add_argument("--record", action="store_true")
    args = parser.parse_args()

    every = PiiScanner(Pii(email="replace", ip="replace", phone="replace", card="replace", iban="replace"))
    texts = texts_of(args.corpus, args.documents)
    if args.without_findings:
        texts = [t for t in texts if not every.scrub(t)[1]]
    raw = [t.encode() for t in texts]
    nbytes = sum(map(len, raw))
    sink = io.BytesIO()
    pq.write_table(pa.table({"text": texts}), sink, compression="zstd")
    parquet = sink.getvalue()
    norm = Normalize()
    cleaned = [normalize(t, norm) for t in texts]
    pairs = [(t, t.encode()) for t in cleaned]  # the pipeline has the bytes, it counts them

    def read_and_normalize() -> None:
        for text in pq.read_table(io.BytesIO(parquet))["text"].to_pylist():
            normalize(text, norm)

    cases = {"read + normalise": read_and_normalize, "scrub all types": lambda: [every.scrub(t, b) for t, b in pairs]}
    for kind in ("email", "ip", "phone"):
        one = PiiScanner(Pii(**{kind: "replace"}))
        cases[f"scrub {kind}"] = lambda one=one: [one.scrub(t, b) for t, b in pairs]
    cases["scrub all types, no bytes at hand"] = lambda: [every.scrub(t) for t in cleaned]
    seconds = common.interleaved(cases, rounds=7)
    base = float(np.median(seconds["read + normalise"]))
    hit = sum(bool(every.scrub(t)[1]) for t in cleaned)
    print(f"{len(texts)} documents, {nbytes / 1e6:.1f} MB, {hit} with findings")
    print(f"{'case':36} {'MB/s':>8} {'of read + normalise':>20}")
    for name, values in seconds.items():
        ratio = float(np.median(values)) / base
        print(f"{name:36} {nbytes / np.median(values) / 1e6:8.0f} {ratio:20.3f}")
        if args.record and name != "read + normalise":
            rates = [nbytes / v / 1e6 for v in values]
            common.record("pii", f"{name}, {Path(args.corpus).name}", "MB/s", rates, "read + normalise", ratio)


if __name__ == "__main__":
    main()
