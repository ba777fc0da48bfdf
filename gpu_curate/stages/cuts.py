"""Cuts: byte ranges that rules take out of documents, before their tokens are made anew and they are exported.

A rule is a class beside the stage whose box it reads: it says which ranges of which documents go (`CutRule`), and
`stages.order` names it. Nothing else need be changed for a further rule: what is cut by several of them is cut once.

# N documents of a partition, C of them with a range
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from gpu_curate.cuts import joined, merged, whole
from gpu_curate.document import TextColumn
from gpu_curate.stages import Boxes, Made, Stage
from gpu_curate.stages.part import Part
from gpu_curate.stages.partition_text import host_text, text_hash, verified_text
from gpu_curate.store.code import code_digest, file_of
from gpu_curate.store.receipts import Counts, Receipt

SCHEMA = pa.schema(
    [
        ("number", pa.int64()),  # of the document in the partition
        ("start", pa.int64()),  # bytes of its text: [start, end)
        ("end", pa.int64()),
        ("rule", pa.dictionary(pa.int16(), pa.string())),
    ]
)


class Cut(NamedTuple):
    """One range that a rule cuts out of a document."""

    number: int  # of the document in the partition
    start: int  # bytes of its text: [start, end)
    end: int
    rule: str  # for people: `contaminated:gsm8k`


class CutRule(Protocol):
    """What cuts. A frozen dataclass of plain values, so that it travels; its module is part of the fingerprint."""

    @property
    def boxes(self) -> tuple[str, ...]:
        """Those that it reads, whole before the first partition is asked for."""

    def settings(self) -> Any:
        """What its ranges depend on besides its boxes and its code, as plain data."""

    def ranges(self, part: Part) -> Iterable[Cut]:
        """The ranges of one partition, in any order. They may touch, overlap and nest."""


@dataclass(frozen=True, kw_only=True)
class CutCounts(Counts):
    """Attributes:
    cut_documents: documents with a range.
    rules: by rule, documents, ranges, and bytes of those ranges (bytes that two rules cut count for both).
    """

    cut_documents: int = 0
    rules: dict[str, dict[str, int]] = field(default_factory=dict)


class Cuts(Stage):
    """Collect the ranges that all rules cut, in one order: by document, start, end, rule.

    Reads: the boxes of the rules, documents(text of those with a range).  Writes: number, start, end, rule, each range once;
    a range lies in its text and splits no code point.  How what is left is joined: `gpu_curate.cuts`.
    Memory: the texts of the documents that are cut.
    """

    name: ClassVar[str] = "cuts"
    counts: ClassVar[type[Counts]] = CutCounts
    follows: ClassVar[str | None] = "documents"

    def __init__(self, rules: Sequence[CutRule]):
        self.rules = list(rules)
        self.inputs = tuple(dict.fromkeys(box for rule in self.rules for box in rule.boxes))

    def made_of(self, receipt: Receipt[Counts]) -> str:
        return text_hash(receipt)

    def settings(self) -> Any:
        return [(type(r).__name__, code_digest(file_of(type(r))), r.settings()) for r in self.rules]

    def make(self, part: Part) -> Made:
        documents = part.counts("documents", Counts)
        asked = sorted({cut for rule in self.rules for cut in rule.ranges(part)})
        texts = texts_of(part.boxes, part.name, sorted({cut.number for cut in asked}))
        found = sorted({Cut(c.number, *whole(texts[c.number], c[1:3]), c.rule) for c in asked})
        found = [c for c in found if c.start < c.end]
        rules: dict[str, dict[str, int]] = {}
        for rule in sorted({c.rule for c in found}):
            own = [c for c in found if c.rule == rule]
            rules[rule] = {
                "documents": len({c.number for c in own}),
                "ranges": len(own),
                "bytes": sum(end - start for n, ranges in _by_document(own) for start, end in merged(texts[n], ranges)),
            }
        counts = CutCounts(
            documents=documents.documents,
            bytes=documents.bytes,
            cut_documents=len({c.number for c in found}),
            rules=rules,
        )
        columns = {f.name: pa.array([getattr(c, f.name) for c in found], _plain(f.type)) for f in SCHEMA}
        table = pa.table(columns)
        return Made(counts, table.cast(SCHEMA))


def _plain(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _by_document(cuts: Iterable[Cut]) -> Iterator[tuple[int, list[tuple[int, int]]]]:
    """Number and ranges of every document, in order."""
    found: dict[int, list[tuple[int, int]]] = {}
    for cut in cuts:
        found.setdefault(cut.number, []).append((cut.start, cut.end))
    yield from found.items()


def texts_of(boxes: Boxes, part: str, numbers: Sequence[int]) -> dict[int, bytes]:
    """The texts of some documents of a partition, as they were read. `numbers`: increasing."""
    if not len(numbers):
        return {}
    column = host_text(verified_text(boxes.box("documents"), part), np.array(numbers, np.int64))
    return {number: column.raw(i) for i, number in enumerate(numbers)}


def cuts_of(boxes: Boxes, part: str) -> dict[int, list[Cut]]:
    """The ranges of every document of a partition that has some, by its number; empty where a recipe cuts nothing."""
    if not boxes.has(Cuts.name):
        return {}
    found: dict[int, list[Cut]] = {}
    for row in boxes.box(Cuts.name).read_table(part).to_pylist():
        found.setdefault(row["number"], []).append(Cut(**row))
    return found


def without_cuts(boxes: Boxes, part: str, numbers: Sequence[int] | np.ndarray, text: TextColumn) -> TextColumn:
    """Texts as they are tokenised and exported: what their cuts leave.

    Args:
        numbers: of the documents in the partition.
        text: their texts as they were read.
    """
    found = cuts_of(boxes, part)
    cut = [i for i, number in enumerate(numbers) if int(number) in found]
    if not cut:
        return text
    texts = [text.raw(i) for i in range(len(text))]
    for i in cut:
        texts[i] = joined(texts[i], [c[1:3] for c in found[int(numbers[i])]])
    return TextColumn.from_texts(texts)
