"""Contamination: which documents hold n-grams of a benchmark, and how much of one item."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from gpu_curate.config import Config
from gpu_curate.document import TextColumn
from gpu_curate.errors import CorruptError
from gpu_curate.stages import Context, Stage, Stopwatch
from gpu_curate.stages.partition_text import text_hash, verified_text
from gpu_curate.store.artifact import RECEIPTS
from gpu_curate.store.files import read_json, write_json, write_table

_SELF_TEST = "self_test.json"  # beside the receipts of the box


# fields of a reference that an index depends on, in the order of NgramIndex.build
_RULE = ("ngram_words", "whole_items", "min_unspaced_words")


class Contamination(Stage):
    """Probe every document against the n-grams of every `decontaminate` set; decide nothing.

    Reads: documents(text), references.  Writes, per set NAME: hits_NAME int32 (distinct n-grams found), coverage_NAME
    float32 (highest share of one item's n-grams that the document holds), item_NAME int64 (doc_id of that item, -1).
    Source: Brown et al. 2020, arXiv:2005.14165, appendix C (13-grams).
    Deviates: words, folding and the weights of words are those of ops.words; the share of one item decides, not the
    number of collisions.
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

    def made_of(self, config: Config, receipt: dict[str, Any]) -> str:
        return text_hash(receipt)

    def settings(self, config: Config) -> Any:
        return [r.model_dump(include={"name", *_RULE}) for r in benchmarks(config)]

    def run(self, context: Context, part: str, task: Any) -> dict[str, Any]:
        from gpu_curate.device.backend import compute

        watch = Stopwatch()
        path = verified_text(context.box(self.follows), part)
        indexes = indexes_of(context)

        def match(text: TextColumn) -> dict[str, Any]:
            found = {name: best_matches(text, index) for name, (index, _) in indexes.items()}
            return {f"{key}_{name}": made[key] for name, made in found.items() for key in ("hits", "coverage", "item")}

        columns, how, more = compute(context, path, match)  # once for all sets: the text is read and uploaded once
        for name, (_, ids) in indexes.items():
            item = columns[f"item_{name}"]
            columns[f"item_{name}"] = np.where(item >= 0, ids[item], -1)
        box = context.box(self.name)
        out = box.path(part, ".parquet")
        write_table(out, pa.table(columns))
        found = {r.name: int((columns[f"hits_{r.name}"] > 0).sum()) for r in benchmarks(context.config)}
        source = context.box(self.follows).receipt(part) or {}
        facts = {"documents": source["documents"], "bytes": source["bytes"], "backend": how, **more}
        return box.commit(part, [out], {**facts, "matches": found, **watch.facts()})

    def finish(self, context: Context) -> None:
        """Test the indexes, once a fingerprint: a run with nothing to do finds the result beside the receipts."""
        if tested(context) is None:
            results = {name: dataclasses.asdict(t) for name, t in self_test(context).items()}
            write_json(context.box(self.name).folder / RECEIPTS / _SELF_TEST, results)


def benchmarks(config: Config) -> list[Any]:
    return [r for r in config.references if r.action == "decontaminate"]


def best_matches(text: TextColumn, index: Any) -> dict[str, Any]:
    """coverage float32, item int64 (number in the index, -1 none) and hits int32 of N documents, where `text` lives."""
    from gpu_curate.ops.ngrams import coverage, probe

    best, item, hits = coverage(probe(text, index), index, len(text))
    return {"coverage": best, "item": item, "hits": hits}


_indexes: dict[tuple[Any, ...], tuple[Any, np.ndarray]] = {}  # those of one run, by the content of their items


def indexes_of(context: Context) -> dict[str, tuple[Any, np.ndarray]]:
    """By set, the n-gram index and the doc_ids of its items; built once a process and run, however many sets there are.

    A process that outlives a run (inline, a Dask worker) keeps no index whose items or rule have changed.
    """
    from gpu_curate.ops.ngrams import NgramIndex

    box = context.box("references")
    keys, found = {}, {}
    for number, reference in enumerate(context.config.references):
        if reference.action == "decontaminate":
            part = f"{number:06d}"
            keys[reference.name] = (part, box.content(part), *reference.model_dump(include=set(_RULE)).values())
    for key in list(_indexes):
        if key not in keys.values():
            _indexes.pop(key, None)
    for name, key in keys.items():
        built = _indexes.get(key)
        if built is None:
            table = box.read_table(key[0], ["doc_id", "text"])
            built = NgramIndex.build(TextColumn.from_arrow(table["text"]), *key[2:]), table["doc_id"].to_numpy()
            _indexes[key] = built
        found[name] = built
    return found


def index_of(context: Context, name: str) -> tuple[Any, np.ndarray]:
    """The n-gram index of a set and the doc_ids of its items."""
    return indexes_of(context)[name]


@dataclasses.dataclass(frozen=True)
class SelfTest:
    """What became of probing a set with an item of its own.

    Attributes:
        items: texts in the set.
        too_short: of those the ones that have no n-gram, and so are never found.
        wrong: what is wrong, or None: a set that cannot hit anything is named, never silent.
    """

    items: int
    too_short: int
    wrong: str | None


def self_test(context: Context) -> dict[str, SelfTest]:
    """Probe the item of every set that has most n-grams with itself, between other words."""
    found = {}
    for reference in benchmarks(context.config):
        index, _ = index_of(context, reference.name)
        wrong = None
        if len(index.gram_G) == 0:
            remedy = (
                f"min_unspaced_words: {reference.min_unspaced_words}" if reference.whole_items else "whole_items: true"
            )
            wrong = f"no item has {reference.ngram_words} words: nothing can match ({remedy}?)"
        else:
            number = next(i for i, r in enumerate(context.config.references) if r.name == reference.name)
            table = context.box("references").read_table(f"{number:06d}", ["text"])
            planted = table["text"][int(index.item_grams_I.argmax())].as_py()
            if best_matches(TextColumn.from_texts([f"x y {planted} z"]), index)["coverage"][0] != 1:
                wrong = "a planted copy of its longest item was not found"
        found[reference.name] = SelfTest(index.num_items, index.unfindable, wrong)
    return found


def tested(context: Context) -> dict[str, SelfTest] | None:
    """What `finish` found out; None: nothing yet."""
    try:
        results = read_json(context.box(Contamination.name).folder / RECEIPTS / _SELF_TEST)
        return {r.name: SelfTest(**results[r.name]) for r in benchmarks(context.config)}
    except (FileNotFoundError, CorruptError, KeyError, TypeError):
        return None
