"""Tokens: every document as token ids, beside the GPU's work, before anyone knows what is kept."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from gpu_curate.document import TextColumn
from gpu_curate.errors import FatalError
from gpu_curate.stages import Boxes, Made, Stage
from gpu_curate.stages.part import Part
from gpu_curate.stages.partition_text import text_hash
from gpu_curate.store.artifact import RECEIPTS
from gpu_curate.store.files import publish, write_json
from gpu_curate.store.receipts import Counts, Receipt
from gpu_curate.tokenizer.encoder import Encoder
from gpu_curate.tokenizer.section import Tokenizer

TOKENIZER, ENCODER = "tokenizer.json", "encoder.json"  # in tokens/: the tokenizer, and who runs it
_PROOF = "encoder_proof.json"  # beside the receipts: why that library, and for what content and versions
PROOFS = f"tokens*/{RECEIPTS}/{_PROOF}"  # in a run directory
_BATCH_BYTES = 4 << 20


@dataclass(frozen=True, kw_only=True)
class TokenCounts(Counts):
    """Attributes:
    tokens: an end-of-text one for every document included.
    special_texts: special tokens that are written out in a text, and encoded as plain text.
    unknown_tokens: those that stand for what the vocabulary lacks.
    unknown_token: its text; None: the tokenizer has none.
    without_tokens: documents with a text that gave no token.
    dtype: of an id on disk.
    eot_id: id of the end-of-text token.
    vocab_size: ids below which all are.
    identity: sha256 of the tokenizer.
    library, library_reason: who encoded, and why.
    """

    tokens: int = 0
    special_texts: int = 0
    unknown_tokens: int = 0
    unknown_token: str | None = None
    without_tokens: int = 0
    dtype: str = "uint16"
    eot_id: int = 0
    vocab_size: int = 0
    identity: str = ""
    library: str = ""
    library_reason: str = ""


class Tokens(Stage):
    """Tokenise every document. Tokenising one that is dropped later is cheaper than waiting for the decision.

    Reads: documents(text), tokenizer.  Writes: part.bin (ids back to back, uint16 or uint32, little-endian, no EOT) and
    part.len (int64 ids of each document); part.unk (int64 unknown tokens of each) where there are some. A text that no library can encode has none and is rejected (`LateRejects`).
    Memory: partition text and a few MiB of ids.
    """

    name: ClassVar[str] = "tokens"
    counts: ClassVar[type[Counts]] = TokenCounts
    follows: ClassVar[str | None] = "documents"
    rejects: ClassVar[bool] = True

    def __init__(self, tokenizer: Tokenizer):
        self.tokenizer = tokenizer
        self.inputs = ("tokenizer",) if tokenizer.train is not None else ()

    def made_of(self, receipt: Receipt[Counts]) -> str:
        return text_hash(receipt)

    def settings(self) -> Any:
        if self.tokenizer.train is not None:
            return self.tokenizer.model_dump(include={"eot", "library"})
        from gpu_curate.tokenizer.loading import load

        return {"identity": load(self.tokenizer).identity, **self.tokenizer.model_dump(include={"eot", "library"})}

    def libraries(self) -> tuple[str, ...]:
        """The one that encodes. Others are its reference, and stand in where it refuses a text, with the same ids: another
        version of theirs, which some optional part may bring, tokenises nothing anew."""
        if self.tokenizer.train is not None:  # not known before it is trained
            return ("tokenizers",)
        from gpu_curate.tokenizer.loading import load

        return (load(self.tokenizer).library,)

    def prepare(self, boxes: Boxes) -> None:
        """Choose the library here, once: workers, and a later run of the same box, open it without proving its ids again."""
        from gpu_curate.stages.tokenizer import resolved
        from gpu_curate.tokenizer.loading import load

        folder = boxes.box(self.name).folder
        encoder = load(resolved(boxes, self.tokenizer), folder / RECEIPTS / _PROOF)
        with publish(folder / TOKENIZER) as temp:
            encoder.save(temp)
        chosen = {k: v for k, v in dataclasses.asdict(encoder).items() if k != "data"}
        write_json(folder / ENCODER, chosen)

    def make(self, part: Part) -> Made:
        encoder = open_encoder(part.box.folder)
        text = part.text()
        files = [part.path(".bin"), part.path(".len")]
        made = encode_texts(encoder, text, files[0], part)
        lengths, unknown_N = made.tokens_N, made.unknown_N
        with publish(files[1]) as temp:
            temp.write_bytes(lengths.astype("<i8").tobytes())
        if unknown_N.any():
            files.append(part.path(".unk"))
            with publish(files[2]) as temp:
                temp.write_bytes(unknown_N.astype("<i8").tobytes())
        counts = TokenCounts(
            documents=len(text),
            bytes=text.nbytes,
            tokens=int(lengths.sum()) + len(text),
            special_texts=made.special_texts,
            unknown_tokens=int(unknown_N.sum()),
            unknown_token=encoder.unknown[1] if encoder.unknown else None,
            without_tokens=int(((lengths == 0) & (np.diff(text.offsets) > 0)).sum()),
            dtype=encoder.dtype.name,
            eot_id=encoder.eot_id,
            vocab_size=encoder.vocab_size,
            identity=encoder.identity,
            library=encoder.library,
            library_reason=encoder.reason,
        )
        return Made(counts, files=tuple(files))


class Encoded(NamedTuple):
    """What texts came to.

    Attributes:
        tokens_N: int64 ids of each, without EOT.
        unknown_N: int64 unknown tokens of each.
        special_texts: special tokens that are written out in a text, and encoded as plain text.
    """

    tokens_N: np.ndarray
    unknown_N: np.ndarray
    special_texts: int


def encode_texts(
    encoder: Encoder, text: TextColumn, path: Path, part: Part, numbers: Sequence[int] | None = None
) -> Encoded:
    """Write the ids of texts to a file, back to back. One that no library can encode has none and is rejected.

    Args:
        numbers: of the documents in the partition; None: the texts are all of it.
    """
    lengths, unknown_N, special = np.zeros(len(text), np.int64), np.zeros(len(text), np.int64), 0
    with publish(path) as temp, temp.open("wb") as f:
        for start, stop in text.batches(_BATCH_BYTES):
            batch = text.slice(start, stop)
            special += encoder.count_special_in(batch)
            refused: dict[int, str] = {}
            ids, lengths[start:stop] = encoder.encode_column(batch, refused)
            for i, reason in refused.items():
                number = start + i if numbers is None else numbers[start + i]
                part.rejects.add(number, f"the tokenizer cannot encode it: {reason}", batch.raw(i))
            if len(ids) != lengths[start:stop].sum():
                raise FatalError(f"partition {part.name}: {encoder.library} gave {len(ids)} ids for other lengths")
            unknown_N[start:stop] = _unknown(encoder, ids, lengths[start:stop])
            f.write(np.ascontiguousarray(ids, encoder.dtype.newbyteorder("<")).data)
    return Encoded(lengths, unknown_N, special)


def open_encoder(folder: Path) -> Encoder:
    """The encoder of a tokens box, as `prepare` chose it; one a process and content, whatever a folder held before."""
    return _encoder((folder / TOKENIZER).read_bytes(), (folder / ENCODER).read_text(encoding="utf-8"))


@functools.lru_cache(maxsize=2)
def _encoder(data: bytes, chosen: str) -> Encoder:
    return Encoder(data=data, **json.loads(chosen))


def lengths(boxes: Boxes, part: str) -> np.ndarray:
    """int64 tokens of every document of a partition, its EOT included."""
    path = boxes.box("tokens").verified(part, ".len")
    return np.fromfile(path, "<i8").astype(np.int64) + 1


def _unknown(encoder: Encoder, ids_N: np.ndarray, lens_D: np.ndarray) -> np.ndarray:
    """int64 of D: unknown tokens of each text."""
    if encoder.unknown is None:
        return np.zeros(len(lens_D), np.int64)
    found = np.flatnonzero(ids_N == encoder.unknown[0])
    return np.diff(np.searchsorted(found, np.concatenate([[0], np.cumsum(lens_D)])))


def unknown_tokens(boxes: Boxes, part: str) -> np.ndarray | None:
    """int64 unknown tokens of every document of a partition; None where there are none."""
    box = boxes.box("tokens")
    if not box.counts(part, TokenCounts).unknown_tokens:
        return None
    return np.fromfile(box.verified(part, ".unk"), "<i8").astype(np.int64)
