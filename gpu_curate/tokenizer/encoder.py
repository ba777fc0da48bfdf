"""The encoder of a run: texts to ids, in batches that bound the memory."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from gpu_curate.document import TextColumn
from gpu_curate.errors import FatalError, InputError
from gpu_curate.guard import refusal
from gpu_curate.tokenizer.backends import Backend, Ids, decoder, open_backend
from gpu_curate.tokenizer.model import added_tokens, unknown_token
from gpu_curate.tokenizer.patterns import BOUNDARY
from gpu_curate.tokenizer.proof import stand_ins

BATCH_CHARS = 4 << 20  # per call of a library: bounds its uint32 output at about 4 bytes a character
CHUNK_CHARS = 1 << 20  # a longer document is encoded in chunks, where that is provably the same


@dataclass(frozen=True)
class Encoder:
    """A tokenizer and the library that runs it. Picklable; the library is opened at the first call in a process.

    Attributes:
        source: what the config named.
        data: bytes of the tokenizer.json (of a tiktoken encoding: its conversion). `save` writes them.
        pattern: split pattern of a tiktoken encoding; None for a tokenizer.json.
        eot_id: id that the tokens stage puts after every document; `encode_batch` never returns it.
        vocab_size: highest id plus one.
        library, version, reason: who encodes, and why.
    """

    source: str
    data: bytes = field(repr=False)
    pattern: str | None = field(repr=False)
    eot_id: int
    vocab_size: int
    library: str
    version: str
    reason: str

    @functools.cached_property
    def identity(self) -> str:
        """sha256 of `data`, in hex: what `sha256sum tokenizer.json` prints. Does not depend on the library."""
        return hashlib.sha256(self.data).hexdigest()

    @property
    def dtype(self) -> np.dtype:
        """uint16 if every id fits, else uint32."""
        return id_dtype(self.vocab_size)

    @functools.cached_property
    def unknown(self) -> tuple[int, str] | None:
        """Id and text of the token that stands for what the vocabulary lacks; None: there is none, nothing is unknown.

        By model: `unk_token` of BPE, WordPiece and WordLevel, `unk_id` of Unigram. With `byte_fallback` it is left for bytes
        that have no token either, so ids tell in every case.
        """
        return unknown_token(json.loads(self.data))

    @functools.cached_property
    def special_texts(self) -> list[str]:
        """Texts of the special tokens, longest first."""
        texts = {
            t["content"] for t in added_tokens(json.loads(self.data)) if t.get("special") or t["id"] == self.eot_id
        }
        return sorted(texts, key=lambda t: (-len(t), t))

    def encode_batch(self, texts: Sequence[str], refused: dict[int, str] | None = None) -> Ids:
        """The ids of D texts, back to back; no end-of-text token among them.

        Returns:
            ids_N (`dtype`) and lens_D (int64): text i is ids[lens[:i].sum() :][: lens[i]]. An empty text has no ids.
            A text of more than CHUNK_CHARS is cut at `letter, space, letter` where the tokenizer's pattern makes that the
            same (`CHUNKABLE`), and encoded whole otherwise. Either way no token is lost.
            A text that the library fails on is encoded by another one that gives the same ids (`stand_ins`).
        Args:
            refused: takes the number of each text that none of them can encode, with what the library said; it has no ids.
        Memory: ids, plus about 30 bytes a character of one call (BATCH_CHARS, or one text that cannot be cut), plus
            CACHE_BYTES at most for what gigatoken remembers.
        Raises:
            InputError: a text has a lone surrogate, or (without `refused`) no library can encode it; names it by its position.
            FatalError: an id is not below vocab_size, or is eot_id.
        """
        backend = open_backend(self)
        lens_D = np.zeros(len(texts), np.int64)
        pieces: list[np.ndarray] = []
        failed: dict[int, str] = {}
        for start, stop in _groups(texts):
            parts: list[str] = []
            owner: list[int] = []
            for i in range(start, stop):
                for part in _chunks(texts[i]) if backend.chunkable else (texts[i],):
                    parts.append(part)
                    owner.append(i)
            for first, last in _groups(parts):
                ids, lens = self._encode(backend, parts[first:last], owner[first:last], len(texts), failed)
                np.add.at(lens_D, owner[first:last], lens)
                pieces.append(ids)
        ids = np.concatenate(pieces) if pieces else np.zeros(0, self.dtype)
        if failed:
            if refused is None:
                number, reason = next(iter(failed.items()))
                raise InputError(f"text {number} of {len(texts)} cannot be encoded: {reason}")
            refused.update(failed)
            taken_D = np.ones(len(texts), np.bool_)
            taken_D[list(failed)] = False
            ids, lens_D = ids[np.repeat(taken_D, lens_D)], np.where(taken_D, lens_D, 0)
        return ids, lens_D

    def encode_column(self, text: TextColumn, refused: dict[int, str] | None = None) -> Ids:
        """`encode_batch` of a host column of valid UTF-8, where the library can without making a string of each text.

        Memory: as `encode_batch`; a column with more than BATCH_CHARS bytes or a text above CHUNK_CHARS goes through it.
        """
        backend = open_backend(self)
        if backend.reads_columns and text.nbytes <= BATCH_CHARS and np.diff(text.offsets).max(initial=0) <= CHUNK_CHARS:
            try:
                ids, lens_D = backend.encode(text)
            except BaseException as e:
                refusal(e)  # one text by one, then
            else:
                return self._checked(ids), lens_D
        return self.encode_batch([text.raw(i).decode() for i in range(len(text))], refused)

    def _encode(self, backend: Backend, parts: list[str], owner: list[int], count: int, failed: dict[int, str]) -> Ids:
        """Ids of parts of texts; `owner`: the number of each part's text, of `count`. Those not encoded are in `failed`."""
        try:
            ids, lens = backend.encode(parts)
        except BaseException as e:
            reason = refusal(e)
            bad = next((i for i, part in zip(owner, parts, strict=True) if not _is_utf8(part)), None)
            if bad is not None:  # the libraries disagree about the class
                raise InputError(f"text {bad} of {count} has a lone surrogate; normalise it to U+FFFD first") from e
            if len(parts) > 1:
                halves = (slice(len(parts) // 2), slice(len(parts) // 2, None))
                both = [self._encode(backend, parts[h], owner[h], count, failed) for h in halves]
                return np.concatenate([b[0] for b in both]), np.concatenate([b[1] for b in both])
            return self._by_another(parts[0], owner[0], f"{self.library}: {reason}", failed)
        return self._checked(ids), lens

    def _by_another(self, part: str, owner: int, reason: str, failed: dict[int, str]) -> Ids:
        """The ids of a part that the library of this encoder failed on."""
        for other in stand_ins(self):
            try:
                ids, lens = open_backend(other).encode([part])
            except BaseException as e:
                reason += f"; {other.library}: {refusal(e)}"
            else:
                return other._checked(ids), lens
        failed.setdefault(owner, reason)
        return np.zeros(0, self.dtype), np.zeros(1, np.int64)

    def _checked(self, ids: np.ndarray) -> np.ndarray:
        """The ids as `dtype`."""
        highest = int(ids.max(initial=0))
        if highest >= self.vocab_size:  # before they are narrowed
            raise FatalError(f"{self.source}: {self.library} gave id {highest}, vocab_size is {self.vocab_size}")
        ids = ids.astype(self.dtype)
        if (ids == self.eot_id).any():
            raise FatalError(f"{self.source}: {self.library} gave the end-of-text id {self.eot_id} inside a text")
        return ids

    @functools.cached_property
    def _special_pattern(self) -> re.Pattern[str]:
        return re.compile("|".join(map(re.escape, self.special_texts)) or r"(?!)")

    def count_special(self, text: str) -> int:
        """How often the text of a special token is written in `text` (encode_batch makes ordinary ids of it)."""
        if len(self.special_texts) == 1:
            return text.count(self.special_texts[0])
        return sum(1 for _ in self._special_pattern.finditer(text))

    def count_special_in(self, text: TextColumn) -> int:
        """`count_special` of all texts of a host column; nearly always 0, which a search in its bytes tells at once."""
        raw = text.chars[int(text.offsets[0]) : int(text.offsets[-1])].tobytes()
        if not any(special.encode() in raw for special in self.special_texts):
            return 0
        return sum(self.count_special(text.raw(i).decode()) for i in range(len(text)))

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids, special tokens included. Bytes that are not UTF-8 (a cut character) become U+FFFD."""
        text: str = decoder(self.data).decode([int(i) for i in ids], skip_special_tokens=False)
        return text

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the tokenizer.json. For a tiktoken encoding its ids are meant for decoding: see `from_ranks`."""
        Path(path).write_bytes(self.data)


def id_dtype(vocab_size: int) -> np.dtype:
    """The narrowest of uint16 and uint32 that holds ids below `vocab_size`."""
    return np.dtype(np.uint16 if vocab_size <= 1 << 16 else np.uint32)


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _groups(texts: Sequence[str]) -> Iterator[tuple[int, int]]:
    """(start, stop) of runs of at most BATCH_CHARS characters; a longer text is a run of its own."""
    start, size = 0, 0
    for i, text in enumerate(texts):
        if size + len(text) > BATCH_CHARS and i > start:
            yield start, i
            start, size = i, 0
        size += len(text)
    if start < len(texts):
        yield start, len(texts)


def _chunks(text: str) -> Iterator[str]:
    """The text in pieces of about CHUNK_CHARS that end between a letter and a space; whole where there is none."""
    start = 0
    while len(text) - start > CHUNK_CHARS:
        cut = BOUNDARY.search(text, start + CHUNK_CHARS)
        if cut is None:
            break
        yield text[start : cut.start()]
        start = cut.start()
    yield text if start == 0 else text[start:]
