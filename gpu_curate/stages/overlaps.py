"""Overlaps: how much of one item of a benchmark each document holds, once it is known which n-grams are templates.

# N documents of a partition, M hits, P (document, item) pairs
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from gpu_curate.stages import Boxes, Made, Stage
from gpu_curate.stages.contamination import Benchmark, Contamination
from gpu_curate.stages.ngrams import ITEMS, MEMBERS, Ngrams, hits_of, read_ngrams
from gpu_curate.stages.part import Part
from gpu_curate.stages.reference_sets import fields_of
from gpu_curate.store.files import write_table
from gpu_curate.store.receipts import Counts

PAIRS = ".items"  # suffix; Parquet: the pairs above the limit
_PAIRS = pa.schema(
    [
        ("set", pa.dictionary(pa.int16(), pa.string())),
        ("number", pa.int64()),  # of the document in the partition
        ("item", pa.int64()),  # doc_id
        ("coverage", pa.float32()),
    ]
)


class Overlaps(Stage):
    """The share of one item's n-grams that each document holds; decide nothing.

    Reads: contamination(hits), ngrams, references(fields).  Writes, per set NAME: hits_NAME int32 (distinct n-grams that count),
    coverage_NAME float32 (the highest share of one item), item_NAME int64 (doc_id of that item, the lowest among equals;
    -1); and part.items (Parquet): every document and item of which it holds more than `max_coverage`.
    With `field_weights` the share of an item is the mean of those of its fields by their weights; a field without an n-gram does not count.
    """

    name: ClassVar[str] = "overlaps"
    follows: ClassVar[str | None] = "documents"
    inputs: tuple[str, ...] = ("contamination", "ngrams", "references")

    def __init__(self, benchmarks: list[Benchmark]):
        self.benchmarks = benchmarks

    def settings(self) -> Any:
        return [b.reference.model_dump(include={"name", "max_coverage", "field_weights"}) for b in self.benchmarks]

    def make(self, part: Part) -> Made:
        source = part.counts("documents", Counts)
        hits = {name: (number_M, gram_M) for name, number_M, gram_M in hits_of(part.boxes, part.name)}
        columns: dict[str, Any] = {}
        pairs = [_PAIRS.empty_table()]
        for benchmark in self.benchmarks:
            name, limit = benchmark.reference.name, np.float32(benchmark.reference.max_coverage)
            hits_N, coverage_N = np.zeros(source.documents, np.int32), np.zeros(source.documents, np.float32)
            item_N = np.full(source.documents, -1, np.int64)
            if name in hits:
                weighing = Weighing.of(part.boxes, benchmark)
                hits_N += weighing.counting(*hits[name], source.documents).astype(np.int32)
                number_P, item_P, share_P = weighing.shares(*hits[name])
                order = np.lexsort((item_P, -share_P, number_P))
                best = order[np.diff(number_P[order], prepend=-1) != 0]
                coverage_N[number_P[best]], item_N[number_P[best]] = share_P[best], item_P[best]
                over = np.flatnonzero(share_P > limit)
                own = {"set": pa.array([name] * len(over), pa.string()), "number": number_P[over], "item": item_P[over]}
                pairs.append(pa.table({**own, "coverage": share_P[over]}).cast(_PAIRS))
            columns |= {f"hits_{name}": hits_N, f"coverage_{name}": coverage_N, f"item_{name}": item_N}
        path = part.path(PAIRS)
        write_table(path, pa.concat_tables(pairs).unify_dictionaries())
        return Made(Counts(documents=source.documents, bytes=source.bytes), pa.table(columns), (path,))


@dataclass(frozen=True)
class Weighing:
    """What makes shares of items out of hits, of one set.

    Attributes:
        gram_E, text_E: uint64 n-grams, increasing, with the doc_id of a text that each is in and counts for.
        text_I, counting_I: int64 doc_ids of all texts, increasing, and n-grams of each that count.
        item_I: int64: of each text the item, which is the doc_id of its first text.
        weight_I: float64: of each text in its item.
    """

    gram_E: NDArray[np.uint64]
    text_E: NDArray[np.int64]
    text_I: NDArray[np.int64]
    counting_I: NDArray[np.int64]
    item_I: NDArray[np.int64]
    weight_I: NDArray[np.float64]

    @classmethod
    def of(cls, boxes: Boxes, benchmark: Benchmark) -> Weighing:
        """Read once a process and run: kept by the content of what it is made of. Raises: CorruptError."""
        reference = benchmark.reference
        made_of = boxes.box(Ngrams.name).content("000000")
        if made_of not in _weighings:
            _weighings.clear()
        known = _weighings.setdefault(made_of, {})
        key = (reference.name, boxes.box("references").content(benchmark.part), repr(reference.field_weights))
        if key not in known:
            known[key] = cls._read(boxes, benchmark)
        return known[key]

    @classmethod
    def _read(cls, boxes: Boxes, benchmark: Benchmark) -> Weighing:
        reference = benchmark.reference
        members, texts = (of_set(read_ngrams(boxes, kind), reference.name) for kind in (MEMBERS, ITEMS))
        members = members.filter(members["counts"])
        order = np.lexsort((members["item"].to_numpy(), members["ngram"].to_numpy()))
        text_I, counting_I = texts["item"].to_numpy(), texts["counting"].to_numpy()
        item_I, weight_I = text_I, np.ones(len(text_I))
        if reference.field_weights is not None:
            fields = fields_of(boxes, benchmark.part)
            item_I = fields["item"].to_numpy()
            known = reference.field_weights
            weight_I = np.array([known.get(f, 1.0) for f in fields["field"].to_pylist()], np.float64)
        gram_E, text_E = members["ngram"].to_numpy()[order], members["item"].to_numpy()[order]
        return cls(gram_E, text_E, text_I, counting_I, item_I, weight_I)

    def counting(self, number_M: NDArray[np.int64], gram_M: NDArray[np.uint64], documents: int) -> NDArray[np.int64]:
        """Distinct n-grams of each document that count for some item."""
        counted = np.isin(gram_M, self.gram_E)
        return np.bincount(number_M[counted], minlength=documents)

    def shares(
        self, number_M: NDArray[np.int64], gram_M: NDArray[np.uint64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]]:
        """Every document and item that share an n-gram: number, item (doc_id), and the share of the item."""
        low_M, high_M = (np.searchsorted(self.gram_E, gram_M, side) for side in ("left", "right"))
        times_M = high_M - low_M
        number_P = np.repeat(number_M, times_M)
        starts = np.repeat(low_M - (np.cumsum(times_M) - times_M), times_M)
        place_P = np.searchsorted(self.text_I, self.text_E[starts + np.arange(len(number_P))])
        number_P, place_P, found_P = _counted(number_P, place_P, np.ones(len(number_P)))
        share_P = found_P / self.counting_I[place_P]
        if not np.array_equal(self.item_I, self.text_I):
            whole, of_I = np.unique(self.item_I, return_inverse=True)
            total = np.bincount(of_I, np.where(self.counting_I > 0, self.weight_I, 0.0), len(whole))
            number_P, item_P, sum_P = _counted(number_P, of_I[place_P], share_P * self.weight_I[place_P])
            return number_P, whole[item_P], np.minimum(sum_P / total[item_P], 1.0).astype(np.float32)
        return number_P, self.text_I[place_P], share_P.astype(np.float32)


_weighings: dict[str, dict[tuple[str, ...], Weighing]] = {}  # of one run


def _counted(
    a_P: NDArray[np.int64], b_P: NDArray[np.int64], value_P: NDArray[np.float64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """The distinct pairs of two columns, in order, with the sums of a third."""
    order = np.lexsort((b_P, a_P))
    a_P, b_P, value_P = a_P[order], b_P[order], value_P[order]
    first = np.flatnonzero((np.diff(a_P, prepend=-1) != 0) | (np.diff(b_P, prepend=-1) != 0))
    sums = np.add.reduceat(value_P, first) if len(first) else np.zeros(0)
    return a_P[first], b_P[first], sums


def of_set(table: pa.Table, name: str) -> pa.Table:
    """The rows of one set."""
    return table.filter(pc.equal(table["set"].cast(pa.string()), name))


def box_of(boxes: Boxes) -> str:
    """The box that has coverage_NAME, hits_NAME, item_NAME; that of a run of an earlier version is another one."""
    return Overlaps.name if boxes.has(Overlaps.name) else Contamination.name


def pairs_over(boxes: Boxes, part: str) -> pa.Table:
    """set, number, item, coverage of every document of a partition that holds more than `max_coverage` of an item."""
    return pq.read_table(boxes.box(Overlaps.name).verified(part, PAIRS), use_threads=False)
