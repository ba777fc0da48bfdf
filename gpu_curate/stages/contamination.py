"""Contamination: which documents hold n-grams of a benchmark, and how much of one item."""

from __future__ import annotations

import functools
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from gpu_curate.config import Config
from gpu_curate.document import TextColumn
from gpu_curate.stages import Context, Stage, Stopwatch
from gpu_curate.storage import write_table


class Contamination(Stage):
    """Probe every document against the n-grams of every `decontaminate` set; decide nothing.

    Reads: documents(text), references.  Writes, per set NAME: hits_NAME int32 (distinct n-grams found), coverage_NAME
    float32 (highest share of one item's n-grams that the document holds), item_NAME int64 (doc_id of that item, -1).
    Source: Brown et al. 2020, arXiv:2005.14165, appendix C (13-grams).
    Deviates: words and folding are those of ops.words; the share of one item decides, not the number of collisions.
    """

    name: ClassVar[str] = "contamination"
    follows: ClassVar[str | None] = "documents"
    code: ClassVar[tuple[str, ...]] = (
        "stages.contamination",
        "ops.words",
        "ops.ngrams",
        "ops.minhash",
        "ops.simd",
        "ops.mix",
    )
    on_device: ClassVar[bool] = True

    def active(self, config: Config) -> bool:
        return bool(benchmarks(config))

    def reads(self, config: Config) -> tuple[str, ...]:
        return ("references",)

    def settings(self, config: Config) -> Any:
        return [r.model_dump(include={"name", "ngram_words", "whole_items"}) for r in benchmarks(config)]

    def run(self, context: Context, part: str, task: Any) -> dict[str, Any]:
        from gpu_curate.backend import compute

        watch = Stopwatch()
        path = context.box(self.follows).verified(part, ".parquet")
        columns: dict[str, Any] = {}
        how, facts = set(), {}
        for reference in benchmarks(context.config):
            index, ids = index_of(context, reference.name)
            made, where, more = compute(context, path, lambda text, i=index: best_matches(text, i))
            how.add(where)
            facts.update(more)
            item = made["item"]
            columns[f"hits_{reference.name}"] = made["hits"]
            columns[f"coverage_{reference.name}"] = made["coverage"]
            columns[f"item_{reference.name}"] = np.where(item >= 0, ids[item], -1)
        box = context.box(self.name)
        out = box.path(part, ".parquet")
        write_table(out, pa.table(columns))
        found = {r.name: int((columns[f"hits_{r.name}"] > 0).sum()) for r in benchmarks(context.config)}
        source = context.box(self.follows).receipt(part) or {}
        facts |= {"documents": source["documents"], "bytes": source["bytes"], "backend": "+".join(sorted(how))}
        return box.commit(part, [out], {**facts, "matches": found, **watch.facts()})


def benchmarks(config: Config) -> list[Any]:
    return [r for r in config.references if r.action == "decontaminate"]


def best_matches(text: TextColumn, index: Any) -> dict[str, Any]:
    """coverage float32, item int64 (number in the index, -1 none) and hits int32 of N documents, where `text` lives."""
    from gpu_curate.ops.ngrams import coverage, probe

    best, item, hits = coverage(probe(text, index), index, len(text))
    return {"coverage": best, "item": item, "hits": hits}


@functools.lru_cache(maxsize=8)
def _index(folder: str, part: str, n: int, whole_items: bool) -> tuple[Any, np.ndarray]:
    from pathlib import Path

    from gpu_curate.ops.ngrams import NgramIndex
    from gpu_curate.storage import Box

    table = Box(Path(folder)).read_table(part, ["doc_id", "text"])
    text = TextColumn.from_arrow(table["text"])
    return NgramIndex.build(text, n, whole_items), table["doc_id"].to_numpy()


def index_of(context: Context, name: str) -> tuple[Any, np.ndarray]:
    """The n-gram index of a set and the doc_ids of its items; built once a process."""
    number = next(i for i, r in enumerate(context.config.references) if r.name == name)
    reference = context.config.references[number]
    folder = str(context.box("references").folder)
    return _index(folder, f"{number:06d}", reference.ngram_words, reference.whole_items)


def self_test(context: Context) -> dict[str, str]:
    """Probe the longest item of every set with itself: a set that cannot hit anything is named, never silent.

    Returns:
        set name → what is wrong, for the sets that have no usable item or do not find a planted one.
    """
    wrong = {}
    for reference in benchmarks(context.config):
        index, _ = index_of(context, reference.name)
        number = next(i for i, r in enumerate(context.config.references) if r.name == reference.name)
        table = context.box("references").read_table(f"{number:06d}", ["text"])
        planted = max(table["text"].to_pylist(), key=len)
        if len(index.gram_G) == 0:
            wrong[reference.name] = f"no item has {reference.ngram_words} words: nothing can match (whole_items: true?)"
        else:
            found = best_matches(TextColumn.from_texts([f"x y {planted} z"]), index)
            if not found["coverage"][0] > 0:
                wrong[reference.name] = "a planted copy of its longest item was not found"
    return wrong
