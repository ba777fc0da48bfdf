"""What benchmarks with `on_match: cut` take out of documents: the runs of words that they share with an item.

# N documents of a partition, W words of one
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gpu_curate.document import TextColumn
from gpu_curate.stages import Boxes
from gpu_curate.stages.contamination import RULE, Benchmark, indexes_of
from gpu_curate.stages.cuts import Cut, texts_of
from gpu_curate.stages.ngrams import MEMBERS, Ngrams, grams_by_item, read_ngrams
from gpu_curate.stages.overlaps import of_set, pairs_over
from gpu_curate.stages.part import Part
from gpu_curate.stages.reference_sets import item_of_texts

if TYPE_CHECKING:
    from gpu_curate.ops.ngrams import NgramIndex
    from gpu_curate.ops.words.places import WordPlaces

_CLOSING, _OPENING = frozenset({"Pe", "Pf", "Po"}), frozenset({"Ps", "Pi"})  # categories of marks that go with a word
_NOTHING = np.zeros(0, np.uint64)
_QUOTES = "\"'"
_MAX_MARKS = 8  # marks on either side that go with a range


@dataclass(frozen=True)
class ContaminationCuts:
    """Cut what a document shares with the items of which it holds more than `max_coverage`, and no other item's words.

    A range runs from the first to the last of the words that such an item's n-grams cover without a gap, with the marks that
    close or open it. It is `CutRule`'s.
    """

    benchmarks: tuple[Benchmark, ...]

    @property
    def boxes(self) -> tuple[str, ...]:
        return ("contamination", "ngrams", "overlaps", "references")

    @property
    def _cutting(self) -> list[Benchmark]:
        return [b for b in self.benchmarks if b.reference.on_match == "cut"]

    def settings(self) -> Any:
        return [b.reference.model_dump(include={"name", *RULE}) for b in self._cutting]

    def ranges(self, part: Part) -> Iterable[Cut]:
        """See `CutRule`."""
        over: dict[int, dict[str, list[int]]] = {}  # document → set → items of which it holds too much
        known = pairs_over(part.boxes, part.name)
        for benchmark in self._cutting:
            name = benchmark.reference.name
            own = of_set(known, name)
            for number, item in zip(own["number"].to_pylist(), own["item"].to_pylist(), strict=True):
                over.setdefault(number, {}).setdefault(name, []).append(item)
        if not over:
            return
        from gpu_curate.ops.words.places import word_places

        indexes = indexes_of(part.boxes, list(self.benchmarks))
        grams = {b.reference.name: _grams(part.boxes, b) for b in self._cutting}
        for number, text in texts_of(part.boxes, part.name, sorted(over)).items():
            places = word_places(TextColumn.from_texts([text]))
            for name, items in over[number].items():
                wanted = np.unique(np.concatenate([grams[name].get(item, _NOTHING) for item in items]))
                for start, end in shared_ranges(places, indexes[name][0], wanted):
                    yield Cut(number, *_with_marks(text, start, end), f"contaminated:{name}")


_known: dict[str, dict[tuple[str, bool], dict[int, NDArray[np.uint64]]]] = {}  # of one run, by the content of ngrams/


def _grams(boxes: Boxes, benchmark: Benchmark) -> dict[int, NDArray[np.uint64]]:
    """Item → its n-grams that documents hold, templates too: of a copy of an item nothing is left."""
    reference = benchmark.reference
    made_of = boxes.box(Ngrams.name).content("000000")
    if made_of not in _known:
        _known.clear()
    known, key = _known.setdefault(made_of, {}), (reference.name, reference.field_weights is None)
    if key in known:
        return known[key]
    members = of_set(read_ngrams(boxes, MEMBERS), reference.name)
    item_E, gram_E = members["item"].to_numpy(), members["ngram"].to_numpy()
    if reference.field_weights is not None:
        item_E = item_of_texts(boxes, benchmark.part, item_E)
    return known.setdefault(key, grams_by_item(item_E, gram_E))


def shared_ranges(places: WordPlaces, index: NgramIndex, wanted: NDArray[np.uint64]) -> Iterator[tuple[int, int]]:
    """Bytes of one document from the first to the last word of every run of words that n-grams cover without a gap.

    Args:
        places: of that document.
        wanted: the n-grams, sorted.
    """
    from gpu_curate.ops.minhash.cpu import roll

    words = len(places.hash_W)
    change = np.zeros(words + 1, np.int64)  # +1 where an n-gram begins, -1 behind its last word
    for width in index.width_K.tolist():
        count = words - width + 1
        if count < 1:
            continue
        gram = np.empty(count, np.uint64)
        roll(places.hash_W, 0, count, width, gram)
        at = np.minimum(np.searchsorted(wanted, gram), max(len(wanted) - 1, 0))
        begins = np.flatnonzero(wanted[at] == gram) if len(wanted) else np.zeros(0, np.int64)
        np.add.at(change, begins, 1)
        np.add.at(change, begins + width, -1)
    inside = np.concatenate([[False], np.cumsum(change)[:-1] > 0, [False]])
    turns = np.flatnonzero(inside[1:] != inside[:-1])
    for first, behind in zip(turns[::2].tolist(), turns[1::2].tolist(), strict=True):
        yield int(places.start_W[first]), int(places.end_W[behind - 1])


def _with_marks(text: bytes, start: int, end: int) -> tuple[int, int]:
    """A range with the closing marks that follow it and the opening ones before it: `?`, `)`, quotes."""
    behind = text[end : end + 4 * _MAX_MARKS].decode("utf-8", "ignore")[:_MAX_MARKS]
    before = text[max(start - 4 * _MAX_MARKS, 0) : start].decode("utf-8", "ignore")[-_MAX_MARKS:]
    for char in behind:
        if unicodedata.category(char) not in _CLOSING:
            break
        end += len(char.encode())
    for char in reversed(before):
        if unicodedata.category(char) not in _OPENING and char not in _QUOTES:
            break
        start -= len(char.encode())
    return start, end
