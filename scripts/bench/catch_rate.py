#!/usr/bin/env python3
"""Catch rate of known near-duplicates by similarity, against the formula: usage: catch_rate.py BENCH_FOLDER

BENCH_FOLDER holds corpus.parquet (id, text), truth.parquet (src_id, dup_id, jac5: injected copies and the exact Jaccard
similarity of their word 5-grams) and oracle_pairs.parquet (a, b, jac: all pairs of the corpus above 0.5 or so).
"""

from __future__ import annotations

import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from gpu_curate.document import TextColumn
from gpu_curate.ops.bands import BandSpec, band_hashes, s_curve
from gpu_curate.ops.components import Components
from gpu_curate.ops.minhash import MinHashSpec, jaccard_exact, shingles, signatures

BINS = np.array([0.0, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0 + 1e-9])


def main(folder: Path) -> None:
    corpus = pq.read_table(folder / "corpus.parquet", columns=["id", "text"])
    ids = corpus["id"].to_numpy()
    order = np.argsort(ids)
    text = TextColumn.from_arrow(corpus["text"])
    spec, bands = MinHashSpec(), BandSpec()
    sig_NH, n_shingles = signatures(text, spec)
    hash_BN = band_hashes(sig_NH, bands)
    components = Components(len(text))
    pairs = sum(components.add_band(h, n_shingles > 0) for h in hash_BN)
    label = components.labels()
    size = np.bincount(label)
    print(f"{len(text)} documents, {pairs} candidate pairs, {int((size > 1).sum())} components of two or more,")
    print(f"{int((size[size > 1] - 1).sum())} documents removed\n")
    hash_S, offsets = shingles(text, spec)

    def rows(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.stack([order[np.searchsorted(ids, v, sorter=order)] for v in (x, y)], axis=1).astype(np.int64)

    truth = pq.read_table(folder / "truth.parquet")
    oracle = pq.read_table(folder / "oracle_pairs.parquet")
    for name, found in (
        ("injected copies", rows(truth["src_id"].to_numpy(), truth["dup_id"].to_numpy())),
        ("oracle pairs", rows(oracle["a"].to_numpy(), oracle["b"].to_numpy())),
    ):
        similarity = jaccard_exact(hash_S, offsets, found)
        shared = (hash_BN[:, found[:, 0]] == hash_BN[:, found[:, 1]]).any(axis=0)
        together = label[found[:, 0]] == label[found[:, 1]]
        print(f"{name} ({len(found)})\n")
        print(
            "| Jaccard (word 5-grams) | pairs | formula | share a bucket | z | same component |\n|---|---|---|---|---|---|"
        )
        for low, high in pairwise(BINS):
            inside = (similarity >= low) & (similarity < high)
            n = int(inside.sum())
            if not n:
                continue
            p = s_curve(similarity[inside], bands)
            z = (shared[inside].sum() - p.sum()) / max(np.sqrt((p * (1 - p)).sum()), 1e-9)
            told = f"{z:+.1f}" if (p * (1 - p)).sum() > 1 else ""
            print(
                f"| {low:.1f} to {min(high, 1.0):.1f} | {n} | {p.mean():.3f} | {shared[inside].mean():.3f} | {told} "
                f"| {together[inside].mean():.3f} |"
            )
        print()
    removed = np.flatnonzero(label != np.arange(len(label)))
    chained = np.stack([label[removed], removed], axis=1).astype(np.int64)
    print("removed documents with a similarity below 0.5 to the first of their component: ", end="")
    print(int((jaccard_exact(hash_S, offsets, chained) < 0.5).sum()))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
