"""Contamination: which documents hold n-grams of a benchmark, and how much of one item."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
import pyarrow as pa

from gpu_curate.document import TextColumn
from gpu_curate.errors import CorruptError
from gpu_curate.stages import Boxes, Made, Stage
from gpu_curate.stages.part import Part
from gpu_curate.stages.partition_text import text_hash
from gpu_curate.stages.sections import Reference
from gpu_curate.stages.text_counts import TextCounts
from gpu_curate.store.artifact import RECEIPTS
from gpu_curate.store.files import read_json, write_json, write_table
from gpu_curate.store.receipts import Counts, Receipt

if TYPE_CHECKING:
    from gpu_curate.ops.ngrams import NgramIndex
    from gpu_curate.ops.ngrams.joint import JointIndex

_SELF_TEST = "self_test.json"  # beside the receipts of the box


HITS = ".hits"  # suffix; Parquet
HITS_SCHEMA = pa.schema(
    [
        ("set", pa.dictionary(pa.int16(), pa.string())),
        ("number", pa.int64()),  # of the document in the partition
        ("ngram", pa.uint64()),  # hash; each once a document
    ]
)
_COLUMNS = ("hits", "coverage", "item")
# fields of a reference that an index depends on, in the order of NgramIndex.build
RULE = ("ngram_words", "whole_items", "min_unspaced_words")


class Benchmark(NamedTuple):
    """A reference set that documents are searched for, and the partition of references/ that holds its items."""

    reference: Reference
    part: str


def benchmarks(references: Sequence[Reference]) -> list[Benchmark]:
    """The sets whose action is `decontaminate`, but for the run's own held-out documents (`stages.held_out`)."""
    own = [(n, r) for n, r in enumerate(references) if r.action == "decontaminate" and r.from_ is None]
    return [Benchmark(r, f"{n:06d}") for n, r in own]


@dataclass(frozen=True, kw_only=True)
class ContaminationCounts(TextCounts):
    """Attributes:
    matches: documents with a hit, by set.
    """

    matches: dict[str, int] = field(default_factory=dict)


class Contamination(Stage):
    """Probe every document against the n-grams of every `decontaminate` set; decide nothing.

    Reads: documents(text), references.  Writes, per set NAME: hits_NAME int32 (distinct n-grams found), coverage_NAME
    float32 (highest share of one item's n-grams that the document holds), item_NAME int64 (doc_id of that item, -1), before
    anybody knows what is a template (`stages.overlaps` does); and part.hits (Parquet): every n-gram of every document.
    Source: Brown et al. 2020, arXiv:2005.14165, appendix C (13-grams).
    Deviates: words, folding and the weights of words are those of ops.words; the share of one item decides, not the
    number of collisions.
    """

    name: ClassVar[str] = "contamination"
    counts: ClassVar[type[Counts]] = ContaminationCounts
    follows: ClassVar[str | None] = "documents"
    on_device: ClassVar[bool] = True
    inputs: tuple[str, ...] = ("references",)

    def __init__(self, benchmarks: list[Benchmark]):
        self.benchmarks = benchmarks

    def made_of(self, receipt: Receipt[Counts]) -> str:
        return text_hash(receipt)

    def settings(self) -> Any:
        return [b.reference.model_dump(include={"name", *RULE}) for b in self.benchmarks]

    def make(self, part: Part) -> Made:
        joint = self.joint(part.boxes)

        def match(text: TextColumn) -> dict[str, Any]:
            from gpu_curate.ops.ngrams.joint import probe_all

            return self.matched(text, part.boxes, probe_all(text, joint))  # words are hashed once for all sets

        return self.made(part, *part.compute(match))

    def joint(self, boxes: Boxes) -> JointIndex:
        """All sets, to be looked for at once."""
        return _joint([index for index, _ in indexes_of(boxes, self.benchmarks).values()])

    def matched(self, text: TextColumn, boxes: Boxes, hits: list[Any]) -> dict[str, Any]:
        """The columns of a partition, from the hits of each set in its texts."""
        indexes = indexes_of(boxes, self.benchmarks)
        found = {n: _matches(h, i, len(text)) for h, (n, (i, _)) in zip(hits, indexes.items(), strict=True)}
        return {f"{key}_{name}": made[key] for name, made in found.items() for key in (*_COLUMNS, "ngram")}

    def made(self, part: Part, columns: dict[str, Any], how: str, more: dict[str, Any]) -> Made:
        """What is written of a partition."""
        indexes = indexes_of(part.boxes, self.benchmarks)
        write_table(part.path(HITS), _hits(indexes, columns))
        for name, (_, ids) in indexes.items():
            item = columns[f"item_{name}"]
            columns[f"item_{name}"] = np.where(item >= 0, ids[item], -1)
        found = {name: int((columns[f"hits_{name}"] > 0).sum()) for name in indexes}
        source = part.counts(str(self.follows), Counts)
        counts = ContaminationCounts(documents=source.documents, bytes=source.bytes, backend=how, matches=found, **more)
        return Made(counts, pa.table(columns), (part.path(HITS),))

    def finish(self, boxes: Boxes) -> None:
        """Test the indexes, once a fingerprint: a run with nothing to do finds the result beside the receipts."""
        if tested(boxes, self.benchmarks) is None:
            results = {name: dataclasses.asdict(t) for name, t in self_test(boxes, self.benchmarks).items()}
            write_json(boxes.box(self.name).folder / RECEIPTS / _SELF_TEST, results)


def _hits(indexes: dict[str, tuple[NgramIndex, np.ndarray]], columns: dict[str, Any]) -> pa.Table:
    """Every hit of a partition; takes the places of n-grams out of `columns`."""
    found = [HITS_SCHEMA.empty_table()]
    for name, (index, _) in indexes.items():
        gram_M, hits_N = columns.pop(f"ngram_{name}"), columns[f"hits_{name}"]
        if len(gram_M):
            number_M = np.repeat(np.arange(len(hits_N)), hits_N)
            label = pa.array([name] * len(gram_M), pa.string())
            found.append(pa.table({"set": label, "number": number_M, "ngram": index.gram_G[gram_M]}).cast(HITS_SCHEMA))
    return pa.concat_tables(found).unify_dictionaries()


def best_matches(text: TextColumn, index: NgramIndex) -> dict[str, Any]:
    """coverage float32, item int64 (number in the index, -1 none) and hits int32 of N documents, and ngram int64: the places in
    the index of what the first document holds, then the second, as many as `hits` says. Where `text` lives."""
    from gpu_curate.ops.ngrams import probe

    return _matches(probe(text, index), index, len(text))


def _matches(found: tuple[Any, Any], index: NgramIndex, documents: int) -> dict[str, Any]:
    """Of hits as `probe` gives them."""
    from gpu_curate.ops.ngrams import coverage

    best, item, hits = coverage(found, index, documents)
    return {"coverage": best, "item": item, "hits": hits, "ngram": found[1]}


_joints: dict[tuple[int, ...], tuple[JointIndex, list[NgramIndex]]] = {}
_indexes: dict[tuple[Any, ...], tuple[NgramIndex, np.ndarray]] = {}  # those of one run, by the content of their items


def indexes_of(boxes: Boxes, benchmarks: list[Benchmark]) -> dict[str, tuple[NgramIndex, np.ndarray]]:
    """By set, the n-gram index and the doc_ids of its items; built once a process and run, however many sets there are.

    A process that outlives a run (inline, a Dask worker) keeps no index whose items or rule have changed.
    """
    from gpu_curate.ops.ngrams import NgramIndex

    box = boxes.box("references")
    keys: dict[str, tuple[Any, ...]] = {}
    found = {}
    for reference, part in benchmarks:
        keys[reference.name] = (part, box.content(part), *reference.model_dump(include=set(RULE)).values())
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


def _joint(indexes: list[NgramIndex]) -> JointIndex:
    """Kept while these indexes are those of the run."""
    from gpu_curate.ops.ngrams.joint import JointIndex

    key = tuple(map(id, indexes))
    if key not in _joints:
        _joints.clear()
        _joints[key] = JointIndex.of(indexes), indexes  # held, so that no other index gets one of their ids
    return _joints[key][0]


def index_of(boxes: Boxes, benchmarks: list[Benchmark], name: str) -> tuple[NgramIndex, np.ndarray]:
    """The n-gram index of a set and the doc_ids of its items."""
    return indexes_of(boxes, benchmarks)[name]


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


def self_test(boxes: Boxes, benchmarks: list[Benchmark]) -> dict[str, SelfTest]:
    """Probe the item of every set that has most n-grams with itself, between other words."""
    found = {}
    for reference, part in benchmarks:
        index, _ = index_of(boxes, benchmarks, reference.name)
        wrong = None
        if len(index.gram_G) == 0:
            remedy = (
                f"min_unspaced_words: {reference.min_unspaced_words}" if reference.whole_items else "whole_items: true"
            )
            wrong = f"no item has {reference.ngram_words} words: nothing can match ({remedy}?)"
        else:
            table = boxes.box("references").read_table(part, ["text"])
            planted = table["text"][int(index.item_grams_I.argmax())].as_py()
            if best_matches(TextColumn.from_texts([f"x y {planted} z"]), index)["coverage"][0] != 1:
                wrong = "a planted copy of its longest item was not found"
        found[reference.name] = SelfTest(index.num_items, index.unfindable, wrong)
    return found


def tested(boxes: Boxes, benchmarks: list[Benchmark]) -> dict[str, SelfTest] | None:
    """What `finish` found out; None: nothing yet."""
    try:
        results = read_json(boxes.box(Contamination.name).folder / RECEIPTS / _SELF_TEST)
        return {b.reference.name: SelfTest(**results[b.reference.name]) for b in benchmarks}
    except (FileNotFoundError, CorruptError, KeyError, TypeError):
        return None
