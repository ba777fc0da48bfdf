"""The n-grams of benchmarks that documents of the run hold: how many hold each, and which are template sentences.

The rule. An n-gram is a template where more than `template_documents` documents of the run and at least `template_items`
items of its set hold it: it is then a phrase in which both are written ("Which of the following statements is true of"), and
not a trace of one item. What stands in one item alone is never one, however often that item was copied. A template counts for no
item, but an item all of whose n-grams are templates keeps them: no item becomes unfindable.
Source: Brown et al. 2020, arXiv:2005.14165, appendix C, ignore 13-grams that more than 10 documents hold.
Deviates: an n-gram must stand in several items, too; theirs would spare an item that is mirrored by eleven pages.

# G distinct n-grams that documents hold, E (n-gram, item) memberships of these, I items
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from gpu_curate.document import TextColumn
from gpu_curate.stages import Boxes, Made, Stage
from gpu_curate.stages.contamination import HITS, RULE, Benchmark, indexes_of
from gpu_curate.stages.part import Part
from gpu_curate.store.files import write_table
from gpu_curate.store.receipts import Counts

if TYPE_CHECKING:
    from gpu_curate.ops.ngrams import NgramIndex

SHOWN = 10  # n-grams of a set that the receipt, and so the report, names
NGRAMS, MEMBERS, ITEMS = "ngrams.parquet", "members.parquet", "items.parquet"
_NAME = pa.dictionary(pa.int16(), pa.string())
SCHEMAS = {
    NGRAMS: pa.schema(
        [
            ("set", _NAME),
            ("ngram", pa.uint64()),
            ("documents", pa.int64()),  # of the run that hold it
            ("items", pa.int64()),  # of the set that hold it
            ("template", pa.bool_()),
            ("text", pa.string()),  # as the first of those items has it
        ]
    ),
    MEMBERS: pa.schema([("set", _NAME), ("ngram", pa.uint64()), ("item", pa.int64()), ("counts", pa.bool_())]),
    ITEMS: pa.schema([("set", _NAME), ("item", pa.int64()), ("ngrams", pa.int64()), ("counting", pa.int64())]),
}


@dataclass(frozen=True)
class Common:
    """An n-gram that documents hold; as in ngrams.parquet."""

    text: str
    documents: int
    items: int
    template: bool


@dataclass(frozen=True, kw_only=True)
class NgramCounts(Counts):
    """Attributes:
    matched, templates: n-grams that documents hold, and of these the templates, by set.
    commonest: those that most documents hold, by set.
    """

    matched: dict[str, int] = field(default_factory=dict)
    templates: dict[str, int] = field(default_factory=dict)
    commonest: dict[str, list[Common]] = field(default_factory=dict)


class Ngrams(Stage):
    """Count the documents of every n-gram that some hold, and tell templates.

    Reads: contamination(hits), references.  Writes ngrams.parquet (a row an n-gram that a document holds, the commonest first),
    members.parquet (its items; `counts`: not as a template) and items.parquet (every item of every set: its distinct
    n-grams, and those that count).
    Memory: 40 bytes an n-gram that some document holds, and the index of one set.
    """

    name: ClassVar[str] = "ngrams"
    counts: ClassVar[type[Counts]] = NgramCounts
    inputs: tuple[str, ...] = ("contamination", "references")

    def __init__(self, benchmarks: list[Benchmark]):
        self.benchmarks = benchmarks

    def settings(self) -> Any:
        keys = {"name", *RULE, "template_documents", "template_items"}
        return [b.reference.model_dump(include=keys) for b in self.benchmarks]

    def make(self, part: Part) -> Made:
        boxes, folder = part.boxes, part.box.folder
        documents = self._documents(boxes)
        tables: dict[str, list[pa.Table]] = {name: [] for name in SCHEMAS}
        matched, templates, commonest = {}, {}, {}
        for benchmark in self.benchmarks:
            name = benchmark.reference.name
            index, doc_id_I = indexes_of(boxes, self.benchmarks)[name]
            made = _of_set(boxes, benchmark, index, doc_id_I, *documents[name])
            for kind, table in made.items():
                label = pa.array([name] * table.num_rows, pa.string())
                tables[kind].append(table.add_column(0, "set", label).cast(SCHEMAS[kind]))
            matched[name] = made[NGRAMS].num_rows
            templates[name] = int(made[NGRAMS]["template"].to_numpy().sum())
            first = made[NGRAMS].select(["text", "documents", "items", "template"]).slice(0, SHOWN).to_pylist()
            commonest[name] = [Common(**row) for row in first]
        for kind, found in tables.items():
            write_table(folder / kind, pa.concat_tables(found).unify_dictionaries())
        counts = NgramCounts(matched=matched, templates=templates, commonest=commonest)
        return Made(counts, files=tuple(folder / n for n in SCHEMAS))

    def _documents(self, boxes: Boxes) -> dict[str, tuple[NDArray[np.uint64], NDArray[np.int64]]]:
        """Set → its n-grams that documents hold, increasing, and how many hold each."""
        nothing = np.zeros(0, np.uint64), np.zeros(0, np.int64)
        found = {b.reference.name: nothing for b in self.benchmarks}
        box = boxes.box("contamination")
        for part in box.parts():
            for name, _, gram_M in hits_of(boxes, part):
                gram, count = np.unique(gram_M, return_counts=True)  # a document holds an n-gram once
                both = np.concatenate([found[name][0], gram])
                sums, place = np.unique(both, return_inverse=True)
                total = np.bincount(place, np.concatenate([found[name][1], count]), len(sums))
                found[name] = sums, total.astype(np.int64)
        return found


def hits_of(boxes: Boxes, part: str) -> list[tuple[str, NDArray[np.int64], NDArray[np.uint64]]]:
    """Per set that documents of a partition hit its name, and document (its number) and n-gram of every hit."""
    path = boxes.box("contamination").verified(part, HITS)
    table = pq.read_table(path, use_threads=False)
    found = []
    for name in pc.unique(table["set"].cast(pa.string())).to_pylist():
        own = table.filter(pc.equal(table["set"].cast(pa.string()), name))
        found.append((str(name), own["number"].to_numpy(), own["ngram"].to_numpy()))
    return found


def _of_set(
    boxes: Boxes,
    benchmark: Benchmark,
    index: NgramIndex,
    doc_id_I: NDArray[np.int64],
    gram_G: NDArray[np.uint64],
    documents_G: NDArray[np.int64],
) -> dict[str, pa.Table]:
    """The three tables of one set."""
    reference = benchmark.reference
    at_G = np.searchsorted(index.gram_G, gram_G)
    items_G = index.item_offsets[at_G + 1] - index.item_offsets[at_G]
    most = reference.template_documents
    template_G = (documents_G > most) & (items_G >= reference.template_items) if most is not None else items_G < 0
    number_E = np.repeat(np.arange(len(gram_G)), items_G)
    item_E = index.item_E[
        np.repeat(index.item_offsets[at_G] - (np.cumsum(items_G) - items_G), items_G) + np.arange(len(number_E))
    ]
    counting_I = index.item_grams_I - np.bincount(item_E[template_G[number_E]], minlength=index.num_items)
    counts_E = ~template_G[number_E] | (counting_I[item_E] == 0)  # an item of templates only keeps them
    counting_I = np.where(counting_I == 0, index.item_grams_I, counting_I)
    order = np.lexsort((gram_G, -documents_G))
    texts = _texts(boxes, benchmark, index, gram_G)
    columns = {
        "ngram": gram_G,
        "documents": documents_G,
        "items": items_G,
        "template": template_G,
        "text": pa.array(texts, pa.string()),
    }
    return {
        NGRAMS: pa.table(columns).take(pa.array(order)),
        MEMBERS: pa.table({"ngram": gram_G[number_E], "item": doc_id_I[item_E], "counts": counts_E}),
        ITEMS: pa.table({"item": doc_id_I, "ngrams": index.item_grams_I, "counting": counting_I}),
    }


def _texts(boxes: Boxes, benchmark: Benchmark, index: NgramIndex, gram_G: NDArray[np.uint64]) -> list[str]:
    """Each n-gram as the first item that holds it has it."""
    from gpu_curate.ops.minhash.cpu import roll
    from gpu_curate.ops.words.places import word_places

    if not len(gram_G):
        return []
    text = TextColumn.from_arrow(boxes.box("references").read_table(benchmark.part, ["text"])["text"])
    places = word_places(text)
    words = len(places.hash_W)
    item_W = np.searchsorted(places.offsets, np.arange(words), side="right") - 1
    found: list[str | None] = [None] * len(gram_G)
    first_G = np.full(len(gram_G), words, np.int64)
    for width in index.width_K.tolist():
        count = words - width + 1
        if count < 1:
            continue
        gram_W = np.empty(count, np.uint64)
        roll(places.hash_W, 0, count, width, gram_W)
        at_W = np.minimum(np.searchsorted(gram_G, gram_W), len(gram_G) - 1)
        inside_W = (gram_G[at_W] == gram_W) & (item_W[:count] == item_W[width - 1 :])
        for w in np.flatnonzero(inside_W)[::-1].tolist():  # the first place of each comes last
            if w < first_G[at_W[w]]:
                first_G[at_W[w]] = w
                item = int(item_W[w])
                low, high = int(places.start_W[w]), int(places.end_W[w + width - 1])
                found[at_W[w]] = text.raw(item)[low:high].decode("utf-8", "replace")
    return [f or "" for f in found]


def grams_by_item(item_E: NDArray[np.int64], gram_E: NDArray[np.uint64]) -> dict[int, NDArray[np.uint64]]:
    """Item → its n-grams, increasing."""
    order = np.lexsort((gram_E, item_E))
    items, first = np.unique(item_E[order], return_index=True)
    return dict(zip(items.tolist(), np.split(gram_E[order], first[1:]), strict=False))


def read_ngrams(boxes: Boxes, name: str, columns: list[str] | None = None) -> pa.Table:
    """One of the tables of the box. Raises: CorruptError."""
    return pq.read_table(boxes.box(Ngrams.name).verified_file("000000", name), columns=columns, use_threads=False)
