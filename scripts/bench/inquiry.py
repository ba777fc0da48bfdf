#!/usr/bin/env python3
"""Questions to a run of many short synthetic documents: wall seconds, each in a process of its own, from import to answer.

    scripts/bench/inquiry.py [--documents 10000000] [--folder DIR] [--record]

The boxes are written as a run writes them (a partition of 100,000 documents, all scores, a tenth of the documents in clusters);
their values are drawn, the texts are short. --folder keeps them for another time.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
from common import record

from gpu_curate import __version__, config
from gpu_curate.document import ROW_BITS
from gpu_curate.quality import RULES, bits, evaluate, score_types
from gpu_curate.stages.decisions import _table
from gpu_curate.stages.duplicates import CLUSTERS
from gpu_curate.stages.reasons import OTHER_BITS as BITS
from gpu_curate.stages.reasons import in_order
from gpu_curate.stages.rule_values import with_rules
from gpu_curate.store.artifact import Box
from gpu_curate.store.files import write_json, write_table
from gpu_curate.store.receipts import Counts, Receipt

PART = 100_000
TOGGLES = {
    "funnel as it is": [],
    "funnel, two rules off": ["--without", "gopher_quality:too_few_words", "--without", "exact_duplicate"],
    "funnel, three thresholds moved": [
        *("--set", "quality.gopher_quality.min_words=40"),
        *("--set", "quality.gopher_repetition.max_top_2_gram_char_fraction=0.3"),
        *("--set", "min_tokens=30"),
    ],
    "funnel, another family on (5 scores)": ["--set", "quality.fineweb=true"],
    "funnel, only one family": ["--only", "gopher_repetition"],
    "funnel, fuzzy off": ["--without", "fuzzy_duplicate"],
    "funnel, sweep of 31 limits": ["--sweep", "gopher_quality:too_few_words", "0", "300", "10"],
}


def make(folder: Path, documents: int) -> None:
    """A run directory with documents/, scores/, signatures/, decisions/, duplicates/ and the documents.parquet of shards/."""
    rng = np.random.default_rng(0)
    names = ("documents", "scores", "signatures", "decisions", "duplicates", "shards", "tokens")
    boxes = {name: Box(folder / name) for name in names}
    recipe = {
        "sources": [{"name": "s", "type": "parquet", "path": "s/*.parquet"}],
        "tokenizer": {"path": "tokenizer.json"},
        "quality": {"gopher_quality": True, "gopher_repetition": True},
    }
    parsed = config.parse(recipe)
    for box in boxes.values():
        box.folder.mkdir(parents=True, exist_ok=True)
        (box.folder / ".fingerprint").write_text(f"{box.folder.name:0<12}\n")
    facts = {
        "version": __version__,
        "config": config.public(parsed),
        "folders": {name: name for name in names},
        "fingerprints": {name: f"{name:0<12}" for name in names},
    }
    members = []
    rows = []
    for number in range(-(-documents // PART)):
        part, n = f"{number:06d}", min(PART, documents - number * PART)
        doc_id = (np.int64(number) << ROW_BITS) + np.arange(n)
        tokens = rng.integers(20, 900, n)
        texts = pa.array(np.char.add("a short text of document ", doc_id.astype(str)))
        path = pa.array([f"s/{number:06d}.parquet"] * n).dictionary_encode()
        columns = {
            "doc_id": doc_id,
            "source": pa.array(["s"] * n).dictionary_encode(),
            "path": path,
            "row": np.arange(n),
            "group": pa.nulls(n, pa.string()).dictionary_encode(),
        }
        write_table(
            boxes["documents"].folder.parent / "texts" / f"part-{part}.parquet",
            pa.table({"text": texts.cast(pa.large_string())}),
        )
        commit(boxes["documents"], part, pa.table(columns), documents=n, bytes=int(texts.nbytes), rejected={})
        scores = {name: _drawn(rng, n, name, dtype) for name, dtype in score_types().items()}
        commit(boxes["scores"], part, pa.table(scores), documents=n)
        shingles = np.maximum(tokens - 5, 0)
        hashes = {name: rng.integers(0, 1 << 63, n).astype(np.uint64) for name in ("content_hi", "content_lo")}
        signatures = {**hashes, "bytes": tokens * 4, "scope": np.zeros(n, np.uint64), "n_shingles": shingles}
        commit(boxes["signatures"], part, pa.table(signatures), documents=n)
        failing = evaluate(scores, parsed.quality)
        copy = np.flatnonzero(rng.random(n) < 0.1)
        kinds = rng.integers(0, 2, len(copy))
        failing[copy] |= np.where(kinds, 1 << BITS["fuzzy_duplicate"], 1 << BITS["exact_duplicate"]).astype(np.uint64)
        failing |= (tokens - 1 < 64).astype(np.uint64) << np.uint64(BITS["too_few_tokens"])
        partner = np.full(n, -1)
        survivor = doc_id[copy] - copy + copy // 10 * 10
        partner[copy] = survivor
        decided = with_rules(
            _table(in_order(bits(parsed.quality)), doc_id, failing, partner, tokens, tokens * 4), parsed.quality
        )
        counts = {r["values"]: r["counts"] for r in decided["reason"].cast(pa.string()).value_counts().to_pylist()}
        by_reason = {"documents": {key or "kept": count for key, count in counts.items()}, "tokens": {}}
        commit(boxes["decisions"], part, decided, documents=n, by_reason=by_reason)
        members.append(
            pa.table(
                {
                    "doc_id": doc_id[copy],
                    "component": survivor,
                    "cluster": survivor,
                    "size": np.full(len(copy), 2),
                    "survivor": survivor,
                    "kind": pa.array(["exact", "fuzzy"]).take(pa.array(kinds)),
                    "jaccard": np.ones(len(copy), np.float32),
                }
            )
        )
        keep = failing == 0
        rows.append(pa.table({"doc_id": doc_id[keep], "tokens": tokens[keep], "row": np.arange(n)[keep]}))
    clusters = pa.concat_tables(members)
    clusters = clusters.set_column(5, "kind", clusters["kind"].dictionary_encode().cast(CLUSTERS.field("kind").type))
    place = boxes["duplicates"].folder / "clusters.parquet"
    write_table(place, clusters.cast(CLUSTERS), row_group_size=65536)
    boxes["duplicates"].commit(Receipt("000000", boxes["duplicates"].written([place]), Counts()))
    kept = pa.concat_tables(rows)
    kept = kept.take(rng.permutation(kept.num_rows))
    position = np.cumsum(kept["tokens"].to_numpy()) - kept["tokens"].to_numpy()
    split = pa.array(["train"] * kept.num_rows).dictionary_encode()
    write_table(
        boxes["shards"].folder / "documents.parquet",
        kept.append_column("position", [position]).append_column("split", split),
    )
    files = [{"source": "s", "path": f"s/{i:06d}.parquet", "relative": f"{i:06d}.parquet"} for i in range(len(rows))]
    write_json(boxes["documents"].folder / ".files.json", files)
    write_json(folder / "run.json", facts)


def _drawn(rng: np.random.Generator, n: int, name: str, dtype: np.dtype) -> np.ndarray:
    """Values of one score: most documents far from its bound, as in a corpus of web pages."""
    if dtype.kind == "i":
        return (rng.integers(0, 9, n) if name == "stop_words" else rng.lognormal(5.5, 1, n)).astype(dtype)
    if name == "mean_word_chars":
        return np.round(rng.normal(5, 0.8, n), 2)
    low = np.round(rng.random(n) ** 6 * 256) / 512
    return 1 - low if name in ("alphabetic_word_fraction", "terminal_line_fraction") else low


def commit(box: Box, part: str, table: pa.Table, **facts: object) -> None:
    path = box.path(part, ".parquet")
    write_table(path, table)
    texts = box.folder.parent / "texts" / path.name
    files = [path, *([texts] if box.folder.name == "documents" else [])]
    entries = [{"file": w.file, "bytes": w.bytes, "xxh3": w.xxh3} for w in box.written(files)]
    write_json(box.folder / ".receipts" / f"part-{part}.json", {"part": part, "files": entries, **facts})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--documents", type=int, default=10_000_000)
    parser.add_argument("--folder", type=Path, help="keep the run directory there; one that is there is asked as it is")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--record", action="store_true", help="append the rows to results.csv")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.folder or Path(temporary) / "run"
        if not (folder / "run.json").exists():
            make(folder, args.documents)
        cases = {name: ["funnel", str(folder), *more] for name, more in TOGGLES.items()}
        number = args.documents // PART // 2
        cases["explain, by doc_id"] = ["explain", str(folder), str((number << ROW_BITS) + 777)]
        cases["explain, by source:path:row"] = ["explain", str(folder), f"s:s/{number:06d}.parquet:778"]
        cases["explain, by a piece of text"] = ["explain", str(folder), f"of document {(number << ROW_BITS) + 779}"]
        for name, words in cases.items():
            seconds = []
            for _ in range(args.rounds):
                start = time.perf_counter()
                done = subprocess.run(
                    [sys.executable, "-m", "gpu_curate", *words, "--json"], capture_output=True, text=True
                )
                seconds.append(time.perf_counter() - start)
                if done.returncode:
                    raise SystemExit(f"{name}: {done.stderr}")
            print(f"{name:40} {min(seconds):6.2f} to {max(seconds):6.2f} s")
            if args.record:
                record(
                    "inquiry",
                    name,
                    "s",
                    seconds,
                    "",
                    1.0,
                    f"{args.documents} documents, {len(RULES)} rules, start included",
                )


if __name__ == "__main__":
    main()
