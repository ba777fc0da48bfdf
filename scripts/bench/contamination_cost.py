"""What searching for benchmarks adds to signing documents, on one core.

    python scripts/bench/contamination_cost.py --eval FOLDER --corpus corpus.parquet [--mb 40] [--record]

signatures   content hash, signature and bands of every document, as the stage makes them
one set      `probe` and `coverage` of one set          three apart   each of three sets by itself, as it was
together     all sets in one pass over the words, as the stage does
signatures and three sets   both from one pass over the words, as a run on CPUs does where both are missing

--stages times the stages of a run instead: text read, hashed, searched, tables written with their receipts.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable
from pathlib import Path

import common
import coverage_limit
import pyarrow as pa
import pyarrow.parquet as pq

from gpu_curate import config, lsh
from gpu_curate.document import TextColumn
from gpu_curate.ops.bands import BandSpec
from gpu_curate.ops.minhash import MinHashSpec
from gpu_curate.ops.ngrams import NgramIndex, coverage, probe
from gpu_curate.ops.ngrams.joint import JointIndex, probe_all
from gpu_curate.stages import Context, Stage
from gpu_curate.stages.contamination import Contamination
from gpu_curate.stages.documents.stage import Documents
from gpu_curate.stages.order import benchmarks_of, intake_of
from gpu_curate.stages.part import make_box, run_task
from gpu_curate.stages.reference_sets import References
from gpu_curate.stages.signatures import Signatures
from gpu_curate.stages.together import hash_and_probe, run_together

FUZZY = lsh.Fuzzy(
    MinHashSpec(shingle_words=5, num_hashes=112, seed=42, family="affine"), BandSpec(num_bands=14, rows_per_band=8)
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--eval", type=Path, required=True)
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--mb", type=int, default=40)
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--stages", action="store_true")
    args = parser.parse_args()
    text = TextColumn.from_arrow(pq.read_table(args.corpus, columns=["text"])["text"])
    text = text.slice(*next(iter(text.batches(args.mb << 20))))
    sets = coverage_limit.sets(args.eval)
    indexes = [NgramIndex.build(TextColumn.from_texts(items), 13) for items in sets.values()]
    joint = JointIndex.of(indexes)

    def apart() -> None:
        for index in indexes:
            coverage(probe(text, index), index, len(text))

    def together() -> None:
        for found, index in zip(probe_all(text, joint), indexes, strict=True):
            coverage(found, index, len(text))

    cases = {
        "signatures": lambda: lsh.hash_documents(text, FUZZY, True),
        "one set": lambda: coverage(probe(text, indexes[0]), indexes[0], len(text)),
        "three apart": apart,
        "together": together,
        "signatures and three sets": lambda: hash_and_probe(text, FUZZY, True, joint),
    }
    if args.stages:
        with tempfile.TemporaryDirectory() as folder:
            report(common.interleaved(stages(Path(folder), text, sets), 5), text, args.record, " as stages")
        return
    report(common.interleaved(cases, 5), text, args.record, "")


def stages(folder: Path, text: TextColumn, sets: dict[str, list[str]]) -> dict[str, Callable[[], object]]:
    """The stages of a run over a Parquet file of these texts."""
    pq.write_table(pa.table({"text": text.to_arrow()}), folder / "corpus.parquet")
    references = []
    for name, items in sets.items():
        (folder / f"{name}.jsonl").write_text("\n".join(json.dumps({"text": i}) for i in items), encoding="utf-8")
        references.append({"name": name, "path": str(folder / f"{name}.jsonl"), "action": "decontaminate"})
    source = {"name": "s", "type": "parquet", "path": str(folder / "corpus.parquet")}
    recipe = config.parse({"sources": [source], "references": references, "tokenizer": {"path": "unused"}})
    names = ("documents", "texts", "rejects", "references", "signatures", "contamination")
    for name in names:
        (folder / name).mkdir()
    context = Context.of(folder, recipe, {name: name for name in names})
    make_box(Documents(intake_of(recipe)), context)
    make_box(References(recipe.references, recipe.normalize), context)
    signatures, contamination = Signatures(recipe.dedup.fuzzy), Contamination(benchmarks_of(recipe))
    parts = context.box("documents").parts()

    def each(*made: Stage) -> None:
        for part in parts:
            for stage in made:
                run_task(stage, context.boxes, part)

    def both() -> None:
        for part in parts:
            run_together((signatures, contamination), context.boxes, part)

    return {
        "signatures": lambda: each(signatures),
        "each by itself": lambda: each(signatures, contamination),
        "together": both,
    }


def report(seconds: dict[str, list[float]], text: TextColumn, recorded: bool, kind: str) -> None:
    base = common.quantiles(seconds["signatures"])[1]
    for name, values in seconds.items():
        p50 = common.quantiles(values)[1]
        print(f"{name:26} {text.nbytes / p50 / 1e6:8.0f} MB/s  {p50 / base:6.1%} of signatures")
        if recorded:
            rates = [text.nbytes / v / 1e6 for v in values]
            common.record("contamination_cost", name + kind, "MB/s", rates, "signatures", p50 / base, "three sets")


if __name__ == "__main__":
    main()
