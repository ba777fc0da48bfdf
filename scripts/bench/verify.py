#!/usr/bin/env python3
"""What `dedup.fuzzy.verify` and `verify_against` change on a corpus with known pairs: usage: verify.py BENCH_FOLDER WORK_FOLDER

BENCH_FOLDER holds corpus.parquet (id, text, source) and oracle_pairs.parquet (a, b, jac). Every setting is a run's
`duplicates` box over the same documents and signatures; CPU seconds are those of its receipt, after one run that compiles.

    removed          near-duplicates (and exact ones) removed
    below            of these, below the threshold to the document that is kept for them (exact similarity)
    lost shingles    different runs of five words that only removed documents hold
    pairs kept       of the oracle's pairs at or above the threshold: both documents are kept
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from gpu_curate import config
from gpu_curate.document import TextColumn
from gpu_curate.ops.minhash import MinHashSpec, jaccard_exact, shingles
from gpu_curate.stages import Context
from gpu_curate.stages.documents.stage import Documents
from gpu_curate.stages.duplicates import DuplicateCounts, Duplicates
from gpu_curate.stages.order import intake_of
from gpu_curate.stages.part import make_box
from gpu_curate.stages.signatures import Signatures
from gpu_curate.store.receipts import Receipt

THRESHOLD = 0.7
SETTINGS = [
    ("none", "pair"),
    ("signature", "pair"),
    ("signature", "survivor"),
    ("exact", "pair"),
    ("exact", "survivor"),
]


def main(bench: Path, work: Path) -> None:
    corpus = pq.read_table(bench / "corpus.parquet", columns=["id", "text"])
    ids = corpus["id"].to_numpy()
    hash_S, offsets = shingles(TextColumn.from_arrow(corpus["text"]), MinHashSpec())
    oracle = pq.read_table(bench / "oracle_pairs.parquet")
    order = np.argsort(ids)
    a, b = (order[np.searchsorted(ids, oracle[c].to_numpy(), sorter=order)] for c in ("a", "b"))
    near = oracle["jac"].to_numpy() >= THRESHOLD
    print("| verify | against | removed | below | lost shingles | pairs kept | pairs compared | CPU s |")
    print("|---|---|---|---|---|---|---|---|")
    for number, (verify, against) in enumerate(SETTINGS + SETTINGS):
        fuzzy = {"verify": verify, "verify_against": against, "threshold": THRESHOLD}
        recipe = config.parse(
            {
                "sources": [{"name": "b", "type": "parquet", "path": str(bench / "corpus.parquet")}],
                "normalize": None,
                "tokenizer": {"path": "none"},
                "dedup": {"fuzzy": fuzzy},
                "run": {"engine": "inline"},
            }
        )
        receipt, removed, survivor = deduplicate(recipe, work, f"{verify}-{against}")
        if number < len(SETTINGS):
            continue  # this one compiled
        kept = np.ones(len(ids), np.bool_)
        kept[removed] = False
        held = np.repeat(kept, np.diff(offsets))
        cells = (
            len(removed),
            int((jaccard_exact(hash_S, offsets, np.stack([survivor, removed], axis=1)) < THRESHOLD).sum()),
            len(np.setdiff1d(np.unique(hash_S[~held]), np.unique(hash_S[held]), assume_unique=True)),
            int((near & kept[a] & kept[b]).sum()),
        )
        told = " | ".join(f"{n:,}" for n in cells)
        compared = "" if receipt.counts.compared_pairs is None else f"{receipt.counts.compared_pairs:,}"
        print(
            f"| {verify} | {against if verify != 'none' else ''} | {told} | {compared} | {receipt.cost.cpu_seconds:.2f} |"
        )
    print(f"\n{len(ids):,} documents, {int(near.sum()):,} pairs of the oracle at or above {THRESHOLD}")


def deduplicate(
    recipe: config.Config, work: Path, name: str
) -> tuple[Receipt[DuplicateCounts], np.ndarray, np.ndarray]:
    """The receipt of the duplicates box, the rows removed and the row kept for each."""
    folders = {n: n for n in ("documents", "rejects")} | {"duplicates": f"duplicates-{name}"}
    folders["signatures"] = "signatures" + ("-stored" if name.startswith("signature") else "")  # the rows, for `verify`
    context = Context.of(work, recipe, folders)
    for stage in (Documents(intake_of(recipe)), Signatures(recipe.dedup.fuzzy)):
        if not context.box(stage.name).parts():
            make_box(stage, context)
    make_box(Duplicates(recipe.dedup, recipe.references), context)
    (receipt,) = context.receipts("duplicates", DuplicateCounts)
    clusters = pq.read_table(context.box("duplicates").folder / "clusters.parquet")
    dropped = clusters.filter(clusters["kind"].is_valid())
    rows = []
    for column in ("doc_id", "survivor"):
        number = dropped[column].to_numpy()
        rows.append(number & ((1 << 36) - 1))  # one file: the row
    return receipt, rows[0], rows[1]


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
