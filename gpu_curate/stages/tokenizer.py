"""Tokenizer: train one on the documents of the run, where the config asks for it."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from gpu_curate.errors import NothingKeptError
from gpu_curate.stages import Boxes, Made, Stage
from gpu_curate.stages.part import Part
from gpu_curate.stages.partition_text import host_text, verified_text
from gpu_curate.store.files import publish
from gpu_curate.store.receipts import Counts
from gpu_curate.tokenizer.section import Tokenizer, TrainTokenizer


class TrainedTokenizer(Stage):
    """Train a byte-level BPE on a content-keyed sample: the documents of lowest content hash, each text once.

    Reads: documents, signatures(content hash).  Writes: part-000000.tokenizer.json.
    The sample and its order depend on the texts alone, so the tokenizer does not depend on partitions or workers.
    Memory: `max_bytes` of text, 24 bytes a document, and the trainer's word counts.
    """

    name: ClassVar[str] = "tokenizer"
    inputs: tuple[str, ...] = ("documents", "signatures")

    def __init__(self, train: TrainTokenizer, eot: str):
        self.options, self.eot = train, eot

    def settings(self) -> Any:
        new: dict[str, Any] = {
            "bytes_per_source": None,
            "documents_per_source": None,
            "reserved_tokens": [],
        }  # at these, what was trained before stays as it is
        made = {k: v for k, v in self.options.model_dump().items() if k not in new or v != new[k]}
        return {"train": made, "eot": self.eot}

    def libraries(self) -> tuple[str, ...]:
        return ("tokenizers",)

    def make(self, part: Part) -> Made:
        from gpu_curate.tokenizer.training import train

        options = self.options
        texts = sample(part.boxes, options.max_bytes, options.bytes_per_source, options.documents_per_source)
        if not texts:
            raise NothingKeptError("tokenizer.train: there is no text to train on: every document is empty")
        path = part.path(".tokenizer.json")
        with publish(path) as temp:
            entries = train(texts, options.vocab_size, self.eot, temp, options.reserved_tokens)
        nbytes = sum(len(t.encode("utf-8")) for t in texts)
        for warning in shortfall(options.vocab_size, entries, nbytes):
            part.warn(warning)
        return Made(Counts(documents=len(texts), bytes=nbytes), files=(path,))


def shortfall(wanted: int, entries: int, nbytes: int) -> list[str]:
    """The warning of a tokenizer that is smaller than it should be, if it is."""
    if entries == wanted:
        return []
    return [
        f"tokenizer: {wanted} entries asked for, {entries} made: no other pair of tokens occurs twice in the "
        f"{nbytes / 1e6:.3g} MB of the sample (more text, or a larger max_bytes, gives more)"
    ]


def sample(
    boxes: Boxes, max_bytes: int, bytes_per_source: int | None = None, documents_per_source: int | None = None
) -> list[str]:
    """Texts of the lowest content hashes, up to `max_bytes`, in the order of their hash, no text twice.

    bytes_per_source: of each source, only the lowest hashes up to so many bytes, at least one text. documents_per_source: and at
        most so many of them.
    """
    signatures, documents = boxes.box("signatures"), boxes.box("documents")
    parts = signatures.parts()
    hashes, sizes, owner, row = [], [], [], []
    for number, part in enumerate(parts):
        hi, nbytes = signatures.columns(part, "content_hi", "bytes")
        hashes.append(hi)
        sizes.append(nbytes)
        owner.append(np.full(len(hi), number, np.int32))
        row.append(np.arange(len(hi)))
    hash_N, bytes_N = np.concatenate(hashes), np.concatenate(sizes)
    owner_N, row_N = np.concatenate(owner), np.concatenate(row)
    _, first = np.unique(hash_N, return_index=True)  # sorted by hash, one document of each
    first = first[bytes_N[first] > 0]
    if bytes_per_source is not None or documents_per_source is not None:
        source_N = _sources(boxes, parts)[first]
        first = first[_within(source_N, bytes_N[first], bytes_per_source, documents_per_source)]
    taken = first[: int(np.searchsorted(np.cumsum(bytes_N[first]), max_bytes, side="right")) or 1]
    texts: list[Any] = [None] * len(taken)
    for number in np.unique(owner_N[taken]):
        where = np.flatnonzero(owner_N[taken] == number)
        where = where[np.argsort(row_N[taken[where]])]
        column = host_text(verified_text(documents, parts[number]), row_N[taken[where]])
        for i, text in zip(where, column.to_arrow().to_pylist(), strict=True):
            texts[i] = text
    return texts


def _sources(boxes: Boxes, parts: list[str]) -> np.ndarray[Any, np.dtype[np.int64]]:
    """int64 of N: a number for the source of each document."""
    numbers: dict[str, int] = {}
    found = [np.zeros(0, np.int64)]
    for part in parts:
        column = boxes.box("documents").read_table(part, ["source"])["source"].combine_chunks()
        if len(column):
            of_code = [numbers.setdefault(name, len(numbers)) for name in column.dictionary.to_pylist()]
            found.append(np.array(of_code, np.int64)[column.indices.to_numpy()])
    return np.concatenate(found)


def _within(
    group_N: Any, bytes_N: Any, limit: int | None, documents: int | None
) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """bool of N: the first of every group that hold up to `limit` bytes together, and the very first anyway, but no more than
    `documents`; None is no bound."""
    kept = np.zeros(len(group_N), np.bool_)
    for group in np.unique(group_N).tolist():
        own = np.flatnonzero(group_N == group)
        fits = len(own) if limit is None else int(np.searchsorted(np.cumsum(bytes_N[own]), limit, side="right"))
        kept[own[: max(1, fits)][:documents]] = True
    return kept


def resolved(boxes: Boxes, options: Tokenizer) -> Tokenizer:
    """The tokenizer section with `train` replaced by the path of what was trained."""
    if options.train is None:
        return options
    path = boxes.box("tokenizer").path("000000", ".tokenizer.json")
    return options.model_copy(update={"path": str(path), "train": None})
