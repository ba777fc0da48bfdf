"""How many items of each benchmark stand in what was read, and how many in what is kept.

# M hits
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from gpu_curate.stages import Made, Stage
from gpu_curate.stages.contamination import Benchmark
from gpu_curate.stages.ngrams import ITEMS, MEMBERS, grams_by_item, hits_of, read_ngrams
from gpu_curate.stages.overlaps import of_set, pairs_over
from gpu_curate.stages.part import Part
from gpu_curate.stages.reference_sets import item_of_texts
from gpu_curate.store.receipts import Counts


@dataclass(frozen=True)
class ItemsFound:
    """Items of a set, all of them, and those of which some document holds something.

    Attributes:
        items: in the set.
        touched_before, touched_after: of which a document, or one that is kept, holds an n-gram that counts.
        over_before, over_after: of which one holds more than `max_coverage`.
    """

    items: int = 0
    touched_before: int = 0
    touched_after: int = 0
    over_before: int = 0
    over_after: int = 0


@dataclass(frozen=True, kw_only=True)
class ItemCounts(Counts):
    """Attributes:
    sets: by name.
    """

    sets: dict[str, ItemsFound] = field(default_factory=dict)


class Items(Stage):
    """Count the items of every set that documents hold, before and after decisions and cuts.

    Reads: ngrams, overlaps, contamination(hits), decisions.  Writes: nothing but its counts.
    What `on_match: cut` takes out of a document counts as gone: all n-grams of the items of which it holds too much.
    """

    name: ClassVar[str] = "items"
    counts: ClassVar[type[Counts]] = ItemCounts
    inputs: tuple[str, ...] = ("contamination", "ngrams", "overlaps", "references", "decisions")

    def __init__(self, benchmarks: list[Benchmark]):
        self.benchmarks = benchmarks

    def settings(self) -> object:
        return [b.reference.model_dump(include={"name", "on_match", "field_weights"}) for b in self.benchmarks]

    def make(self, part: Part) -> Made:
        boxes = part.boxes
        grams: dict[tuple[str, bool], list[NDArray[np.uint64]]] = {}  # (set, after) → those that documents hold
        over: dict[tuple[str, bool], list[NDArray[np.int64]]] = {}  # → items of which they hold too much
        cuts = {b.reference.name: b.reference.on_match == "cut" for b in self.benchmarks}
        members = {b.reference.name: _Members(part, b) for b in self.benchmarks}
        for name in boxes.box("contamination").parts():
            keep_N = boxes.box("decisions").read_table(name, ["keep"])["keep"].to_numpy()
            pairs = pairs_over(boxes, name)
            for kind, number_M, gram_M in hits_of(boxes, name):
                own = of_set(pairs, kind)
                number_P, item_P = own["number"].to_numpy(), own["item"].to_numpy()
                kept_P, left_M = keep_N[number_P], keep_N[number_M]
                if cuts[kind]:
                    left_M &= ~members[kind].cut(number_M, gram_M, number_P, item_P)
                    kept_P = np.zeros(len(item_P), np.bool_)
                for after, hit_M, pair_P in ((False, slice(None), slice(None)), (True, left_M, kept_P)):
                    grams.setdefault((kind, after), []).append(np.unique(gram_M[hit_M]))
                    over.setdefault((kind, after), []).append(np.unique(item_P[pair_P]))
        sets = {}
        for name, of in members.items():
            touched = [
                of.touched(np.concatenate([_NO_GRAMS, *grams.get((name, after), [])])) for after in (False, True)
            ]
            above = [
                len(np.unique(np.concatenate([_NO_ITEMS, *over.get((name, after), [])]))) for after in (False, True)
            ]
            sets[name] = ItemsFound(of.items, *touched, *above)
        return Made(ItemCounts(sets=sets))


_NO_GRAMS, _NO_ITEMS = np.zeros(0, np.uint64), np.zeros(0, np.int64)


class _Members:
    """The items of a set, and the n-grams of each."""

    def __init__(self, part: Part, benchmark: Benchmark):
        name = benchmark.reference.name
        members, texts = (of_set(read_ngrams(part.boxes, kind), name) for kind in (MEMBERS, ITEMS))
        self._gram_E, self._item_E = members["ngram"].to_numpy(), members["item"].to_numpy()
        self._counts_E = members["counts"].to_numpy()
        item_I = texts["item"].to_numpy()
        if benchmark.reference.field_weights is not None:
            self._item_E = item_of_texts(part.boxes, benchmark.part, self._item_E)
            item_I = item_of_texts(part.boxes, benchmark.part, item_I)
        self.items = len(np.unique(item_I))

    def touched(self, gram_G: NDArray[np.uint64]) -> int:
        """Items that some of these n-grams count for."""
        return len(np.unique(self._item_E[self._counts_E & np.isin(self._gram_E, gram_G)]))

    def cut(
        self,
        number_M: NDArray[np.int64],
        gram_M: NDArray[np.uint64],
        number_P: NDArray[np.int64],
        item_P: NDArray[np.int64],
    ) -> NDArray[np.bool_]:
        """Of the hits of a partition those that belong to an item of which the document (number_P, item_P) holds too much."""
        cut_M = np.zeros(len(number_M), np.bool_)
        grams = grams_by_item(self._item_E, self._gram_E)
        bounds = np.searchsorted(number_M, np.stack([number_P, number_P + 1]))  # hits are in the order of documents
        for low, high, item in zip(*bounds.tolist(), item_P.tolist(), strict=True):
            cut_M[low:high] |= np.isin(gram_M[low:high], grams.get(item, _NO_GRAMS))
        return cut_M
