#!/usr/bin/env python3
"""All filter statistics and decisions, on one core, beside datatrove's Gopher + C4 + FineWeb chain on the same documents.

    python scripts/bench/filters.py [FILE] [--documents 300] [--rounds 5] [--record]

CPU time, interleaved. Ours does more: datatrove stops at the first filter that drops a document, ours computes every score
of every document. Each filter of datatrove sees the text as it was, so both keep the same documents (in its own pipelines
the C4 filter removes lines first).
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from agreement import ALL_ON, datatrove_filters, read_texts
from common import interleaved, quantiles, record

from gpu_curate import quality
from gpu_curate.document import TextColumn
from gpu_curate.ops.text_stats import text_stats

DATA = Path(__file__).resolve().parents[3] / "shared" / "data" / "bench" / "corpus.parquet"


def main() -> None:
    from datatrove.data import Document
    from datatrove.utils.text import split_into_parts

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", nargs="?", type=Path, default=DATA)
    parser.add_argument("--documents", type=int, default=300, help="evenly sampled")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--record", action="store_true", help="append to results.csv")
    args = parser.parse_args()

    texts = read_texts(args.file, args.documents)
    column = TextColumn.from_texts(texts)
    repeat = max(1, 8_000_000 // column.nbytes)  # enough bytes for a clock that ticks in milliseconds
    many = TextColumn.from_texts(texts * repeat)

    def ours() -> int:
        scores = quality.scores(text_stats(many))
        return int((quality.evaluate(scores, ALL_ON) == 0).sum()) // repeat

    def theirs(splitter: str) -> int:
        kept = 0
        with datatrove_filters(splitter) as filters:
            split_into_parts.cache_clear()
            for i, text in enumerate(texts):
                kept += all(one.filter(Document(text=text, id=str(i))) is True for one in filters.values())
        return kept

    cases = {
        "ours": ours,
        "datatrove, white space": lambda: theirs("whitespace"),
        "datatrove, spaCy": lambda: theirs("english"),
    }
    seconds = interleaved(cases, args.rounds)
    megabytes = {name: (many if name == "ours" else column).nbytes / 1e6 for name in cases}
    speed = {name: [megabytes[name] / s for s in values] for name, values in seconds.items()}
    print(
        f"{len(texts)} documents, {column.nbytes / 1e6:.2f} MB; kept: "
        + ", ".join(f"{n} {c()}" for n, c in cases.items())
    )
    print(f"{'':24} {'MB/s p20':>9} {'p50':>9} {'p80':>9} {'ratio':>7}")
    for name, values in speed.items():
        ratio = float(np.median(speed["ours"]) / np.median(values))
        print(f"{name:24} " + " ".join(f"{q:9.3f}" for q in quantiles(values)) + f" {ratio:7.0f}")
        if args.record and name != "ours":
            notes = f"{len(texts)} documents; baseline p50 {np.median(values):.3g} MB/s"
            record("filters", "all scores and decisions", "MB/s", speed["ours"], name, ratio, notes)


if __name__ == "__main__":
    main()
