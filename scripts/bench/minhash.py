#!/usr/bin/env python3
"""Text to MinHash bands on one core: ours against plain NumPy and against rensa with polars words.

    scripts/bench/minhash.py [--corpus FILE.parquet] [--megabytes 20] [--rounds 5] [--record]

All do words, 5-word shingles and 112 rows; ours and NumPy's then 14 band hashes, and those must be equal (checked). rensa
has hashes of its own and stops at its signature matrix, which favours it.
    numpy    the definition with one array operation a step: str.translate + split, a byte matrix of the words of a document,
             shingles, an S x 112 matrix of row values, its minimum
    strings  polars lower-cases, extracts words and joins five; rensa 0.5's RMinHash signs lists of strings: what a user of its
             documentation would write, and the fastest of several such scripts (five words may straddle two documents)
    hashes   polars lower-cases, extracts and hashes words; NumPy combines five; RMinHash signs from one flat array: the fastest
             way into rensa that we know, at the price of code of one's own
"""

from __future__ import annotations

import argparse
import os

import numpy as np
import pyarrow.parquet as pq
from common import interleaved, quantiles, record

from gpu_curate.document import TextColumn
from gpu_curate.ops.bands import BandSpec, band_hashes
from gpu_curate.ops.minhash import MinHashSpec, plain, signatures
from gpu_curate.ops.mix import GOLDEN

for variable in ("POLARS_MAX_THREADS", "RAYON_NUM_THREADS"):
    os.environ.setdefault(variable, "1")  # before polars and rensa are imported: one core, like the others
SPEC, BANDS = MinHashSpec(), BandSpec()
OUR_CALLS = 10


def ours(column: TextColumn) -> np.ndarray:
    return band_hashes(signatures(column, SPEC)[0], BANDS)


def numpy_plain(texts: list[str]) -> np.ndarray:
    return plain.band_hashes(plain.signatures(texts, SPEC), BANDS)


# --------------------------------------------------------------------------------------------------------------- rensa


def rensa_strings(frame) -> object:
    import polars as pl
    from rensa import RMinHash

    words = frame.select(pl.col("text").str.to_lowercase().str.extract_all(r"\w+").alias("word")).with_row_index("d")
    words = words.explode("word")
    five = pl.concat_str([pl.col("word").shift(-k) for k in range(SPEC.shingle_words)], separator=" ")
    sets = words.select("d", five.alias("five")).drop_nulls().group_by("d", maintain_order=True).agg("five")["five"]
    return RMinHash.digest_matrix_from_token_sets(sets.to_list(), SPEC.num_hashes, SPEC.seed)


def rensa_hashes(frame) -> object:
    import polars as pl
    from rensa import RMinHash

    words = frame.select(pl.col("text").str.to_lowercase().str.extract_all(r"\w+").alias("word"))
    count = words["word"].list.len().to_numpy().astype(np.int64)
    w = words["word"].explode(empty_as_null=False).hash(seed=0).to_numpy()
    x = np.zeros(len(w), np.uint64)
    for k in range(SPEC.shingle_words):
        x[: len(w) - k] = x[: len(w) - k] * np.uint64(GOLDEN) + w[k:]
    # windows that run into the next document are cut off; a document of 1 to 4 words keeps one
    per_document = np.where(count > 0, np.maximum(count - SPEC.shingle_words + 1, 1), 0)
    offsets = np.concatenate([[0], np.cumsum(per_document)])
    inside = np.arange(offsets[-1]) - np.repeat(offsets[:-1], per_document)
    x = x[inside + np.repeat(np.cumsum(count) - count, per_document)]
    return RMinHash.digest_matrix_from_flat_token_hashes(x, offsets.astype(np.uint64), SPEC.num_hashes, SPEC.seed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--corpus", default="../shared/data/bench/corpus.parquet", help="Parquet with a text column")
    parser.add_argument("--megabytes", type=float, default=20)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--record", action="store_true", help="append the rows to results.csv")
    args = parser.parse_args()

    import polars as pl

    table = pq.read_table(args.corpus, columns=["text"])
    whole = TextColumn.from_arrow(table["text"])
    column = whole.slice(*next(iter(whole.batches(int(args.megabytes * 1e6)))))
    texts = [column.raw(i).decode() for i in range(len(column))]
    frame = pl.DataFrame({"text": texts})

    expected = ours(column)
    if not np.array_equal(numpy_plain(texts), expected):
        raise SystemExit("NumPy gives other bands than ours")
    seconds = interleaved(
        {
            "gpu_curate cpu": lambda: [ours(column) for _ in range(OUR_CALLS)],  # long enough to meet the same noise
            "numpy": lambda: numpy_plain(texts),
            "rensa 0.5, strings": lambda: rensa_strings(frame),
            "rensa 0.5, hashes": lambda: rensa_hashes(frame),
        },
        args.rounds,
    )
    print(f"{len(column)} documents, {column.nbytes / 1e6:.1f} MB, CPU time of one core, median of {args.rounds}")
    print(f"{'case':22}{'MB/s':>8}{'ours is faster by':>20}")
    seconds["gpu_curate cpu"] = [s / OUR_CALLS for s in seconds["gpu_curate cpu"]]
    rate = {name: [column.nbytes / 1e6 / s for s in found] for name, found in seconds.items()}
    for name, found in rate.items():
        middle = quantiles(found)[1]
        ratio = quantiles([ours_s / s for ours_s, s in zip(rate["gpu_curate cpu"], found, strict=True)])[1]
        print(f"{name:22}{middle:8.1f}{ratio:20.1f}")
        if args.record:
            note = f"{column.nbytes / 1e6:.0f} MB to 14 x 8 bands; rensa to signatures only"
            record("minhash", name, "MB/s", found, name, ratio, note)


if __name__ == "__main__":
    main()
