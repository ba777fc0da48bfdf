"""Tokens of the documents that something is cut out of.

tokens/ holds those of every document as it was read, made beside the work that finds what to cut. Here the few documents with
a cut are tokenised once more, without it; from here on these tokens stand for them.

# N documents of a partition, C of them with a cut
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from gpu_curate.document import TextColumn
from gpu_curate.stages import Boxes, Made, Stage
from gpu_curate.stages.cuts import cuts_of, texts_of, without_cuts
from gpu_curate.stages.part import Part
from gpu_curate.stages.partition_text import text_hash
from gpu_curate.stages.tokens import encode_texts, lengths, open_encoder, unknown_tokens
from gpu_curate.store.receipts import Counts, Receipt

Ints = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class CutTokenCounts(Counts):
    """Attributes:
    cut_documents: documents with a cut.
    cut_tokens, cut_bytes: tokens and bytes of text that those documents had more before.
    """

    cut_documents: int = 0
    cut_tokens: int = 0
    cut_bytes: int = 0


class CutTokens(Stage):
    """Tokenise what is left of the documents with a cut.

    Reads: documents(text), cuts, tokens (its tokenizer).  Writes: part.bin (ids back to back, as in tokens/) and per document
    with a cut its number in the partition, tokens (without EOT), unknown tokens, and bytes of text.
    A text that no library can encode has none and is rejected (`LateRejects`).  Memory: those texts and their ids.
    """

    name: ClassVar[str] = "cut_tokens"
    counts: ClassVar[type[Counts]] = CutTokenCounts
    follows: ClassVar[str | None] = "documents"
    rejects: ClassVar[bool] = True
    inputs: tuple[str, ...] = ("tokens", "cuts")

    def made_of(self, receipt: Receipt[Counts]) -> str:
        return text_hash(receipt)

    def libraries(self) -> tuple[str, ...]:
        return ("tokenizers", "tiktoken")

    def make(self, part: Part) -> Made:
        boxes = part.boxes
        numbers = sorted(cuts_of(boxes, part.name))
        read = texts_of(boxes, part.name, numbers)
        text = without_cuts(boxes, part.name, numbers, TextColumn.from_texts([read[n] for n in numbers]))
        encoder = open_encoder(boxes.box("tokens").folder)
        path = part.path(".bin")
        made = encode_texts(encoder, text, path, part, numbers)
        bytes_C = np.diff(text.offsets)
        before_C = lengths(boxes, part.name)[numbers] - 1
        counts = CutTokenCounts(
            documents=part.counts("documents", Counts).documents,
            bytes=text.nbytes,
            cut_documents=len(numbers),
            cut_tokens=int((before_C - made.tokens_N).sum()),
            cut_bytes=sum(map(len, read.values())) - text.nbytes,
        )
        columns = {"number": numbers, "tokens": made.tokens_N, "unknown": made.unknown_N, "bytes": bytes_C}
        return Made(counts, pa.table({n: pa.array(v, pa.int64()) for n, v in columns.items()}), (path,))


class Lengths(NamedTuple):
    """What every document of a partition comes to, after cuts.

    Attributes:
        tokens_N: int64, the EOT included.
        bytes_N: int64 of text.
        unknown_N: int64 unknown tokens; None where the partition has none.
        cut_N: bool: something was cut out of it.
        offset_N: int64: where its tokens begin, in cut_tokens/ of one with a cut, in tokens/ of another.
    """

    tokens_N: Ints
    bytes_N: Ints
    unknown_N: Ints | None
    cut_N: NDArray[np.bool_]
    offset_N: Ints


def lengths_after_cuts(boxes: Boxes, part: str, bytes_N: Ints) -> Lengths:
    """Args: bytes_N: of text, as it was read."""
    tokens_N, unknown_N = lengths(boxes, part), unknown_tokens(boxes, part)
    offset_N = np.cumsum(tokens_N - 1) - (tokens_N - 1)
    cut_N = np.zeros(len(tokens_N), np.bool_)
    if boxes.has(CutTokens.name):
        names = ("number", "tokens", "unknown", "bytes")
        number_C, tokens_C, unknown_C, bytes_C = boxes.box(CutTokens.name).columns(part, *names)
        tokens_N, bytes_N, cut_N = tokens_N.copy(), bytes_N.copy(), cut_N.copy()
        tokens_N[number_C], bytes_N[number_C], cut_N[number_C] = tokens_C + 1, bytes_C, True
        offset_N[number_C] = np.cumsum(tokens_C) - tokens_C
        if unknown_N is not None or unknown_C.any():
            unknown_N = np.zeros(len(tokens_N), np.int64) if unknown_N is None else unknown_N
            unknown_N[number_C] = unknown_C
    return Lengths(tokens_N, bytes_N, unknown_N, cut_N, offset_N)
