"""The run's own held-out documents against the n-grams of what it trains on (`references: {from: validation}`).

Clusters of duplicates do not cross the split, but a paragraph that two documents share is no duplicate. A held-out document
leaks where a document that is kept, and is not held out itself, holds more than `max_coverage` of its n-grams; with `on_match:
drop` it goes to training, and what leaks to it then follows. The bound of the split is chosen before, so nothing else moves.
An n-gram that `template_items` held-out documents or more hold counts for none: it is how the corpus is written.

# N documents of a partition
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from gpu_curate.document import TextColumn, matching
from gpu_curate.errors import NothingKeptError
from gpu_curate.sources.sections import SourceBase
from gpu_curate.stages import Boxes, Made, Stage
from gpu_curate.stages.contamination import RULE
from gpu_curate.stages.cuts import without_cuts
from gpu_curate.stages.part import Part
from gpu_curate.stages.partition_text import host_text, verified_text
from gpu_curate.stages.sections import Reference
from gpu_curate.stages.sections import Shards as ShardOptions
from gpu_curate.stages.shard_layout import Layout
from gpu_curate.store.receipts import Counts

Ids = NDArray[np.int64]


class HeldOut(Stage):
    """Collect the documents that the split holds out, with their texts.

    Reads: as the shards.  Writes: doc_id, text as it is tokenised; in order of doc_id.
    Memory: as the plan of the shards, and the texts of the validation split.
    """

    name: ClassVar[str] = "held_out"

    def __init__(self, options: ShardOptions, sources: Sequence[SourceBase], switches: tuple[bool, bool, bool]):
        """Args: switches: train_only, neighbours, cuts, as for the shards."""
        self.options, self.sources = options, sources
        self.train_only, self.neighbours, cuts = switches
        boxes = ["documents", "decisions", "tokens", "signatures", *(["cuts", "cut_tokens"] if cuts else [])]
        self.inputs = (*boxes, "duplicates") if self.train_only or self.neighbours else tuple(boxes)

    def settings(self) -> Any:
        validation = self.options.validation.model_dump(include={"tokens", "max_fraction", "bound"})
        return self.options.shuffle_seed, validation, [s.name for s in self.sources]

    def make(self, part: Part) -> Made:
        boxes = part.boxes
        try:
            layout = Layout(boxes, self.options, self.sources, self.train_only, self.neighbours)
            held = np.sort(np.array(layout.splits["validation"]["doc_id"]))
        except NothingKeptError:  # the shards say why
            held = np.zeros(0, np.int64)
        ids, texts = [held[:0]], [pa.array([], pa.large_string())]
        for name in boxes.box("documents").parts():
            (doc_id_N,) = boxes.box("documents").columns(name, "doc_id")
            rows, _ = matching(doc_id_N, held)
            if len(rows):
                ids.append(doc_id_N[rows])
                texts.append(_texts(boxes, name, rows).to_arrow())
        table = pa.table({"doc_id": np.concatenate(ids), "text": pa.concat_arrays(texts)}).sort_by("doc_id")
        return Made(Counts(documents=table.num_rows), table)


def _texts(boxes: Boxes, part: str, rows: Ids) -> TextColumn:
    return without_cuts(boxes, part, rows, host_text(verified_text(boxes.box("documents"), part), rows))


@dataclass(frozen=True, kw_only=True)
class LeakCounts(Counts):
    """Attributes:
    pairs: of a document and a held-out one of which it holds too much.
    """

    pairs: int = 0


class Leaks(Stage):
    """Search every kept document for the n-grams of held-out ones; decide nothing.

    Reads: held_out, decisions, documents(text).  Writes: doc_id of a kept document, item (doc_id of a held-out one, another one)
    and coverage, where that is above `max_coverage`.
    Memory: 60 bytes an n-gram of the validation split in every worker, and the text of a partition.
    """

    name: ClassVar[str] = "leaks"
    counts: ClassVar[type[Counts]] = LeakCounts
    follows: ClassVar[str | None] = "documents"

    def __init__(self, reference: Reference, cuts: bool):
        self.reference = reference
        self.inputs = ("held_out", "decisions", *(["cuts"] if cuts else []))

    def settings(self) -> Any:
        return self.reference.model_dump(include={"max_coverage", "template_items", *RULE})

    def make(self, part: Part) -> Made:
        from gpu_curate.ops.ngrams import probe

        documents = part.counts("documents", Counts)
        doc_id_N, keep_N = part.columns("decisions", "doc_id", "keep")
        rows = np.flatnonzero(keep_N)
        index, held_I = _index(part.boxes, self.reference)
        found: list[tuple[Ids, Ids, NDArray[np.float32]]] = [(doc_id_N[:0], doc_id_N[:0], np.zeros(0, np.float32))]
        if len(rows) and len(index.gram_G):
            text = _texts(part.boxes, part.name, rows)
            doc_M, gram_M = probe(text, index)
            times_M = index.item_offsets[gram_M + 1] - index.item_offsets[gram_M]
            counts = times_M < self.reference.template_items
            doc_M, gram_M, times_M = doc_M[counts], gram_M[counts], times_M[counts]
            starts = np.repeat(index.item_offsets[gram_M] - (np.cumsum(times_M) - times_M), times_M)
            item_P = index.item_E[starts + np.arange(len(starts))]
            pair, count = np.unique(np.stack([np.repeat(doc_M, times_M), item_P]), axis=1, return_counts=True)
            members_G = np.diff(index.item_offsets)
            counting_I = np.bincount(
                index.item_E[np.repeat(members_G < self.reference.template_items, members_G)], minlength=len(held_I)
            )
            share = (count / np.maximum(counting_I[pair[1]], 1)).astype(np.float32)
            doc_id, item = doc_id_N[rows[pair[0]]], held_I[pair[1]]
            over = (share > np.float32(self.reference.max_coverage)) & (doc_id != item)
            found.append((doc_id[over], item[over], share[over]))
        columns = [np.concatenate(c) for c in zip(*found, strict=True)]
        table = pa.table(dict(zip(("doc_id", "item", "coverage"), columns, strict=True)))
        counts_ = LeakCounts(documents=documents.documents, bytes=documents.bytes, pairs=table.num_rows)
        return Made(counts_, table)


_held: dict[tuple[Any, ...], tuple[Any, Ids]] = {}  # of one run, by the content of held_out/


def _index(boxes: Boxes, reference: Reference) -> tuple[Any, Ids]:
    """The n-gram index of the held-out documents and their doc_ids; built once a process and run."""
    from gpu_curate.ops.ngrams import NgramIndex

    rule = tuple(getattr(reference, name) for name in RULE)
    key = (boxes.box(HeldOut.name).content("000000"), rule)
    if key not in _held:
        _held.clear()
        table = boxes.box(HeldOut.name).read_table("000000")
        _held[key] = NgramIndex.build(TextColumn.from_arrow(table["text"]), *rule), table["doc_id"].to_numpy()
    return _held[key]
