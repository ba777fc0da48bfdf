r"""Text to token ids: the ids of the reference library, at the speed of the fastest library that gives the same ones.

The reference is `tokenizers` for a tokenizer.json and `tiktoken` for a tiktoken encoding. The fast libraries are not
trusted: before a run, `load` encodes a set of awkward texts with the reference and with each of them, and takes the first
whose ids are equal.

Special tokens are inert: `<|endoftext|>` written in a document is encoded as the characters it consists of, so the
end-of-text id stands only where the tokens stage puts it. Truncation, padding, BPE dropout and post-processors (BOS, EOS)
of a tokenizer.json never apply.

One process, one thread: `load` and every encoding set RAYON_NUM_THREADS=1 and TOKENIZERS_PARALLELISM=false, and no call
waits for a thread pool that a fork has lost. Processes are the engine's business.

# D documents, N tokens
"""

from __future__ import annotations

import base64
import contextlib
import functools
import hashlib
import importlib.metadata
import json
import logging
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from gpu_curate import lfs, tokenizer_limits
from gpu_curate.document import TextColumn
from gpu_curate.errors import ConfigError, CorruptError, FatalError, GpuCurateError, InputError, install, one_line
from gpu_curate.guard import refusal
from gpu_curate.tokenizer_section import Tokenizer

log = logging.getLogger(__name__)

Ids = tuple[np.ndarray, np.ndarray]  # ids_N uint32, lens_D int64
Texts = list[str] | TextColumn  # a column is of valid UTF-8, on the host

LIBRARIES = (
    "gigatoken",
    "snaptokens",
    "tiktoken",
    "tokenizers",
)  # fastest first; speeds in scripts/bench/tokenizing.py

BATCH_CHARS = 4 << 20  # per call of a library: bounds its uint32 output at about 4 bytes a character
CHUNK_CHARS = 1 << 20  # a longer document is encoded in chunks, where that is provably the same
SPARE_IDS = 1 << 20  # by which the highest id may exceed twice the number of entries: a table of some MB
CACHE_BYTES = 512 << 20  # growth of the process after which a library with an unbounded cache is opened anew

# Split patterns under which `letter, space, letter` always ends a word before the space: a match that holds the first
# letter cannot hold a space after it, and at the space the only alternative that matches is `space letters`, which does
# not look left. So the ids of a text cut there are the ids of the whole text. Published by OpenAI (tiktoken), Meta, Alibaba.
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
GPT2_POSSESSIVE = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"
CL100K = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
CL100K_POSSESSIVE = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]"
    r"|\s+(?!\S)|\s"
)
QWEN2 = CL100K.replace(r"\p{N}{1,3}", r"\p{N}")
_O200K_UPPER, _O200K_LOWER = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}", r"\p{Ll}\p{Lm}\p{Lo}\p{M}"
O200K = (
    rf"[^\r\n\p{{L}}\p{{N}}]?[{_O200K_UPPER}]*[{_O200K_LOWER}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    rf"|[^\r\n\p{{L}}\p{{N}}]?[{_O200K_UPPER}]+[{_O200K_LOWER}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
CHUNKABLE = {GPT2, GPT2_POSSESSIVE, CL100K, CL100K_POSSESSIVE, QWEN2, O200K}
PORTABLE = {
    GPT2_POSSESSIVE: GPT2,
    CL100K_POSSESSIVE: CL100K,
}  # what the other libraries know; the probe has the last word
_NO_TEXT = "\U0010ffff" * 3  # a noncharacter (Unicode, section 23.7), three times
_BOUNDARY = re.compile(r"(?<=[A-Za-z]) (?=[A-Za-z])")

# What a .tiktoken rank file does not hold: its split pattern and its special tokens. Source: tiktoken's openai_public.py.
RANK_FILES = {
    "r50k_base": (GPT2_POSSESSIVE, {"<|endoftext|>": 50256}),
    "p50k_base": (GPT2_POSSESSIVE, {"<|endoftext|>": 50256}),
    "cl100k_base": (
        CL100K_POSSESSIVE,
        {
            "<|endoftext|>": 100257,
            "<|fim_prefix|>": 100258,
            "<|fim_middle|>": 100259,
            "<|fim_suffix|>": 100260,
            "<|endofprompt|>": 100276,
        },
    ),
    "o200k_base": (O200K, {"<|endoftext|>": 199999, "<|endofprompt|>": 200018}),
}


# --------------------------------------------------------------------------------------------------------- description


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
        return _unknown(json.loads(self.data))

    @functools.cached_property
    def special_texts(self) -> list[str]:
        """Texts of the special tokens, longest first."""
        texts = {t["content"] for t in _added(json.loads(self.data)) if t.get("special") or t["id"] == self.eot_id}
        return sorted(texts, key=lambda t: (-len(t), t))

    def encode_batch(self, texts: Sequence[str], refused: dict[int, str] | None = None) -> Ids:
        """The ids of D texts, back to back; no end-of-text token among them.

        Returns:
            ids_N (`dtype`) and lens_D (int64): text i is ids[lens[:i].sum() :][: lens[i]]. An empty text has no ids.
            A text of more than CHUNK_CHARS is cut at `letter, space, letter` where the tokenizer's pattern makes that the
            same (`CHUNKABLE`), and encoded whole otherwise. Either way no token is lost.
            A text that the library fails on is encoded by another one that gives the same ids (`_stand_ins`).
        Args:
            refused: takes the number of each text that none of them can encode, with what the library said; it has no ids.
        Memory: ids, plus about 30 bytes a character of one call (BATCH_CHARS, or one text that cannot be cut), plus
            CACHE_BYTES at most for what gigatoken remembers.
        Raises:
            InputError: a text has a lone surrogate, or (without `refused`) no library can encode it; names it by its position.
            FatalError: an id is not below vocab_size, or is eot_id.
        """
        backend = _backend(self)
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
        backend = _backend(self)
        if backend.reads_columns and text.nbytes <= BATCH_CHARS and np.diff(text.offsets).max(initial=0) <= CHUNK_CHARS:
            try:
                ids, lens_D = backend.encode(text)
            except BaseException as e:
                refusal(e)  # one text by one, then
            else:
                return self._checked(ids), lens_D
        return self.encode_batch([text.raw(i).decode() for i in range(len(text))], refused)

    def _encode(self, backend: _Backend, parts: list[str], owner: list[int], count: int, failed: dict[int, str]) -> Ids:
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
        for other in _stand_ins(self):
            try:
                ids, lens = _backend(other).encode([part])
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
        return _decoder(self.data).decode([int(i) for i in ids], skip_special_tokens=False)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the tokenizer.json. For a tiktoken encoding its ids are meant for decoding: see `_from_ranks`."""
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
        cut = _BOUNDARY.search(text, start + CHUNK_CHARS)
        if cut is None:
            break
        yield text[start : cut.start()]
        start = cut.start()
    yield text if start == 0 else text[start:]


# --------------------------------------------------------------------------------------------------------------- load


def load(section: Tokenizer, proof: Path | None = None) -> Encoder:
    """Read a tokenizer and choose the library that runs it.

    Args:
        section: the `tokenizer` section of a config.
            `path`: a tokenizer.json or a folder that holds one; a hub name (`org/name`, `org/name@revision`);
            `tiktoken:NAME`, or `tiktoken:` and the path of a published rank file (`cl100k_base.tiktoken`).
            `eot`: the end-of-text token, by text or id.
            `library`: `auto` takes the first of LIBRARIES that is installed and equals the reference on the probe texts,
            and warns by name about each that differs; a name must be installed and equal, or this is an error.
        proof: file in which the choice for a content, a section and the installed libraries is found, or put.
    Returns:
        Encoder. The same file gives the same object as long as this process lives: the probe (1 s) runs once.
    Raises:
        ConfigError: nothing at `path`, no network and no cached copy, not a tokenizer, no such eot token, an eot token
            that ordinary text produces, or a library that cannot be had.
    """
    if section.path is None:
        raise ConfigError("tokenizer.path: missing (a tokenizer that is to be trained can be loaded after that)")
    _single_thread()
    data, pattern = _read(section.path)
    key = _proof_key(section, data, pattern)
    chosen = (_proof(proof) if proof is not None else {}).get(key) or _proved.get(key)
    if chosen is not None:
        return Encoder(source=section.path, data=data, pattern=pattern, **chosen)
    if proof is None:
        return _choose(section.path, data, pattern, section.eot, section.library)
    from gpu_curate.store.files import write_json

    encoder = _choose(section.path, data, pattern, section.eot, section.library)
    fields = ("eot_id", "vocab_size", "library", "version", "reason")
    write_json(proof, {"key": key, "chosen": {name: getattr(encoder, name) for name in fields}})
    return encoder


_proved: dict[str, dict[str, Any]] = {}  # key → the choice, of the run directory at hand


def recall(proofs: Iterable[Path]) -> None:
    """Let `load` take the choices that these files hold, where content, section and installed libraries are the same."""
    _proved.clear()
    for path in proofs:
        _proved.update(_proof(path))


def _proof(path: Path) -> dict[str, dict[str, Any]]:
    """Key → choice of a file; nothing of one that is not there or of another kind."""
    from gpu_curate.store.files import read_json

    with contextlib.suppress(OSError, CorruptError, LookupError, TypeError, ValueError, AttributeError):
        known = read_json(path)
        kinds = {"eot_id": int, "vocab_size": int, "library": str, "version": str, "reason": str}
        if {n: type(v) for n, v in known["chosen"].items()} == kinds and known["chosen"]["library"] in LIBRARIES:
            return {str(known["key"]): known["chosen"]}
    return {}


def _proof_key(section: Tokenizer, data: bytes, pattern: str | None) -> str:
    """What the choice of a library depends on: tokenizer, section, the libraries that are there, and this module."""
    from gpu_curate.store.fingerprint import code_digest, digest

    tokenizer = [hashlib.sha256(data).hexdigest(), pattern, section.eot, section.library]
    return digest(
        [tokenizer, {name: _version(name) for name in LIBRARIES}, code_digest(("tokenizer", "tokenizer_limits"))]
    )


@functools.lru_cache(maxsize=4)
def _choose(path: str, data: bytes, pattern: str | None, eot: str | int, library: str) -> Encoder:
    tokenizer = _parse(data, path)
    eot_id = _resolve_eot(tokenizer, eot, path)
    reference = "tokenizers" if pattern is None else "tiktoken"
    vocab_size = max(eot_id, *_ids(tokenizer)) + 1
    draft = Encoder(path, data, pattern, eot_id, vocab_size, reference, _version(reference), "the reference")
    if pattern is None and not tokenizer_limits.is_plain(tokenizer, len(data), CHUNKABLE):
        said = tokenizer_limits.trial(_inert(draft, keep_specials=True), _probe_of(draft), path)
        if said is not None:
            raise ConfigError(
                f"tokenizer {path}: {reference} {draft.version or '(not installed)'} cannot run it: {said[:300]}"
            )
    try:
        probe, expected = _reference(draft)
    except (GpuCurateError, KeyboardInterrupt, SystemExit, MemoryError):
        raise
    except BaseException as e:  # a Rust panic reaches Python as a BaseException
        said = one_line(e, 200)
        raise ConfigError(
            f"tokenizer {path}: {reference} {draft.version or '(not installed)'} cannot run it: {type(e).__name__}: {said}"
        ) from e
    if (expected[0] == eot_id).any():
        raise ConfigError(
            f"tokenizer.eot {eot!r}: {path} makes id {eot_id} of ordinary text, so it cannot mark the end of a document",
            hint=f"its special tokens: {', '.join(map(repr, _specials(tokenizer)[:20])) or 'none'}",
        )
    refused: list[str] = []
    for name in LIBRARIES if library == "auto" else (library,):
        problem = _problem(draft, name, probe, expected)
        if problem is None:
            why = "the reference" if name == reference else f"equals {reference} on {len(probe)} probe texts"
            why = "; ".join([why, *refused] if library == "auto" else ["asked for", why])
            _backend.cache_clear()  # the reference library, and what the chosen one remembers of the probe
            return replace(draft, library=name, version=_version(name), reason=why)
        if library != "auto":
            how = install("tiktoken") if library == "tiktoken" else f"pip install {library}"
            hint = f"{how}, or " if problem == "not installed" else ""
            raise ConfigError(
                f"tokenizer.library {library}: {problem} (tokenizer {path})", hint=f"{hint}set tokenizer.library: auto"
            )
        refused.append(f"{name}: {problem}")
        if problem != "not installed":
            log.warning("tokenizer %s: not using %s: %s", path, name, problem)
    raise ConfigError(f"tokenizer {path}: no library can run it: {'; '.join(refused)}")


@functools.lru_cache(maxsize=4)
def _reference(draft: Encoder) -> tuple[list[str], Ids]:
    """The probe texts for this tokenizer, and their ids by its reference library."""
    probe = _probe_of(draft)
    return probe, _probe(draft, probe)


def _probe_of(draft: Encoder) -> list[str]:
    return probe_texts([t["content"] for t in _added(json.loads(draft.data))][:2000])


@functools.lru_cache(maxsize=4)
def _stand_ins(encoder: Encoder) -> tuple[Encoder, ...]:
    """The libraries that a text goes to when that of `encoder` fails on it: proven to give its ids on the probe texts.

    Only those whose versions a run's fingerprint holds, or its bytes would depend on what else is installed.
    """
    probe = probe_texts([t["content"] for t in _added(json.loads(encoder.data))][:2000])
    expected = _probe(encoder, probe)
    reference = "tokenizers" if encoder.pattern is None else "tiktoken"
    names = [n for n in dict.fromkeys((reference, "tokenizers")) if n != encoder.library]
    found = [
        replace(encoder, library=n, version=_version(n), reason=f"stands in for {encoder.library}")
        for n in names
        if _problem(encoder, n, probe, expected) is None
    ]
    return tuple(found)


def _single_thread() -> None:
    """The one place that tells the libraries to start no threads (processes are the engine's business)."""
    os.environ["RAYON_NUM_THREADS"] = "1"
    os.environ["TOKENIZERS_PARALLELISM"] = "false"


def _problem(draft: Encoder, name: str, probe: list[str], expected: Ids) -> str | None:
    """Why library `name` cannot stand in for the reference; None if it can."""
    version = _version(name)
    if not version:
        return "not installed"
    candidate = replace(draft, library=name, version=version)
    try:
        ids, lens = _probe(candidate, probe)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as e:  # a Rust panic reaches Python as a BaseException
        return f"{version} cannot run it: {one_line(e, 200)}"
    ends, expected_ends = np.cumsum(lens), np.cumsum(expected[1])
    for i, text in enumerate(probe):
        got, want = ids[ends[i] - lens[i] : ends[i]], expected[0][expected_ends[i] - expected[1][i] : expected_ends[i]]
        if not np.array_equal(got, want):
            return f"{version} gives {got[:8].tolist()} for {text[:40]!r}, the reference {want[:8].tolist()}"
    return None


def _probe(encoder: Encoder, probe: list[str]) -> Ids:
    """Ids of the probe texts, uint32, unchecked; and the proof that neither a column nor chunks change them."""
    backend = _backend(encoder)
    ids, lens = backend.encode(probe)
    if backend.reads_columns:
        of_column = backend.encode(TextColumn.from_texts(probe))
        if not all(map(np.array_equal, of_column, (ids, lens))):
            raise FatalError(f"{encoder.source}: {encoder.library} gives other ids for a column than for its texts")
    if backend.chunkable:
        text = " ".join(probe)
        cuts = [0, *(m.start() for m in _BOUNDARY.finditer(text)), len(text)]
        whole, _ = backend.encode([text])
        chunked, _ = backend.encode([text[a:b] for a, b in pairwise(cuts)])
        if not np.array_equal(whole, chunked):
            raise FatalError(f"{encoder.source}: {encoder.library} gives other ids for a text in chunks")
    return ids, lens


def probe_texts(added: Sequence[str] = ()) -> list[str]:
    """Texts on which tokenizers of the same name have been seen to differ; about 60 KB, the same in every run.

    Args:
        added: texts of added and special tokens, written into the probe in several surroundings.
    """
    ascii_all = [chr(c) for c in range(128)]
    spaces = " \t\n\r\x0b\x0c\x1c\x1d\x85\xa0\u1680\u2003\u2028\u2029\u202f\u205f\u3000\u200b\ufeff"
    words = [
        "a",
        "the",
        "Hello",
        "don't",
        "I'LL",
        "x\u2019s",
        "naïve",
        "Straße",
        "ÉCOLE",
        "中文",
        "日本語です",
        "한국어",
        "ไทย",
    ]
    words += ["Привет", "שלום", "مرحبا", "हिन्दी", "é", "e\u0301\u0302", "\u0301", "ﬁ", "Ǆ", "ʰ", "İ", "ſ", "Ω", "𝔘𝔫𝔦"]
    words += ["0", "12", "1234567", "3.14", "1,000", "٣٤", "Ⅷ", "½", "²", "𝟘"]
    words += ["👩‍👩‍👧‍👦", "🇩🇪", "👍🏽", "❤️", "\ufffd", "\u0378", "\U000e0041", "\U0010ffff", "\x00", "\x7f", "\u0600"]
    words += [
        "...",
        "--",
        "__init__",
        "=>",
        "://",
        "\\n",
        "''",
        '""',
        "#",
        "@x",
        "<b>",
        "{%",
        "'s",
        "'S",
        "'ve",
        "'",
        "’",
    ]
    texts = ["", *ascii_all, *(c * 2 for c in ascii_all), "".join(ascii_all), *spaces]
    texts += [
        f"{a}{s}{b}" for a in ("a", "1", "!", "é", "中", "") for b in ("b", "2", "?", "ß", "文", "") for s in spaces
    ]
    texts += [f"x{a}{b}y" for a in spaces for b in spaces] + [f"{a}{b}" for a in spaces[:8] for b in spaces[:8]]
    texts += [
        f"x{a}{b}{c}" for a in " \n\r\t" for b in " \n\r\t" for c in (" ", "\n", "\xa0", "")
    ]  # at the end of a text
    texts += [f"{a}{b}" for i, a in enumerate(words) for b in words[i % 3 :: 3]]
    texts += [f"{a} {b}" for i, a in enumerate(words) for b in words[i % 5 :: 5]]
    texts += [f"w{' ' * n}w{' ' * n}" for n in range(1, 70)] + ["\n" * n + " x" + "\r\n" * n for n in range(1, 20)]
    texts += [c * n for c in "aA1!= \n\té中" for n in (3, 7, 15, 16, 17, 31, 33, 64, 129, 500)]
    letters = np.random.default_rng(0).integers(97, 123, 4096, np.uint8).tobytes().decode()
    texts += [letters[: 1 << n] for n in range(1, 13)] + [letters[i : i + 40].title() for i in range(0, 400, 40)]
    texts += [
        "Mixed case: aBcDeF XMLHttpRequest snake_case kebab-case a1b2c3 1st 2nd \tTab\r\nCRLF \r\n\r\n  indent\n    "
    ]
    texts += [f"{a}{special}{b}" for special in added for a, b in (("", ""), ("a", "b"), (" ", " "), ("<", ">"))]
    texts += [special[:-1] for special in added] + [special * 2 for special in added]
    return texts


# -------------------------------------------------------------------------------------------------------------- reading


def _read(path: str) -> tuple[bytes, str | None]:
    """Bytes of the tokenizer.json, and the split pattern of a tiktoken encoding."""
    if path.startswith("tiktoken:"):
        return _read_tiktoken(path.removeprefix("tiktoken:"))
    file = Path(path)
    if file.is_dir():
        file = file / "tokenizer.json"
    if file.is_file():
        lfs.refuse(file, "tokenizer")
        tokenizer_limits.check_size(file.stat().st_size, path)
        return file.read_bytes(), None
    if not re.fullmatch(r"[\w.-]+(/[\w.-]+)?(@[\w./-]+)?", path) or path.endswith((".json", ".model", ".tiktoken")):
        raise ConfigError(
            f"tokenizer {path}: no such file", hint="give a tokenizer.json, a hub name (org/name) or tiktoken:NAME"
        )
    name, _, revision = path.partition("@")
    try:
        from huggingface_hub import errors, hf_hub_download
    except ImportError as e:
        raise ConfigError(
            f"tokenizer {path}: no such file, and no huggingface_hub to ask for that name", install("huggingface")
        ) from e
    from gpu_curate import hub

    why = hub.unreachable(name, "model")
    try:
        with hub.offline() if why else contextlib.nullcontext():  # what was fetched before lies in its cache
            return Path(hf_hub_download(name, "tokenizer.json", revision=revision or None)).read_bytes(), None
    except Exception as e:
        reason = why if why and isinstance(e, errors.LocalEntryNotFoundError) else one_line(e, 200)
        raise ConfigError(
            f"tokenizer {path}: no such file, and the hub did not give one: {reason}",
            hint="without a network, give the path of a tokenizer.json, or fill the hub cache (HF_HOME) beforehand",
        ) from e


def _read_tiktoken(name: str) -> tuple[bytes, str]:
    if name.endswith(".tiktoken"):
        file = Path(name)
        if file.stem not in RANK_FILES:
            raise ConfigError(f"tokenizer tiktoken:{name}: not a published rank file ({', '.join(RANK_FILES)})")
        try:
            tokenizer_limits.check_size(file.stat().st_size, f"tiktoken:{name}")
            lines = [line.split() for line in file.read_bytes().splitlines() if line]
            ranks = {base64.b64decode(token): int(rank) for token, rank in lines}
        except (OSError, ValueError) as e:
            raise ConfigError(f"tokenizer tiktoken:{name}: {e}") from e
        pattern, specials = RANK_FILES[file.stem]
        return _from_ranks(ranks, pattern, specials), pattern
    try:
        import tiktoken
    except ImportError as e:
        raise ConfigError(f"tokenizer tiktoken:{name}: tiktoken is not installed", hint=install("tiktoken")) from e
    if name not in tiktoken.list_encoding_names():
        raise ConfigError(f"tokenizer tiktoken:{name}: unknown, known are {', '.join(tiktoken.list_encoding_names())}")
    try:
        encoding = tiktoken.get_encoding(name)
    except Exception as e:
        raise ConfigError(
            f"tokenizer tiktoken:{name}: cannot get its ranks: {one_line(e, 200)}",
            hint="without a network, set TIKTOKEN_CACHE_DIR to a filled cache, or give tiktoken:PATH/NAME.tiktoken",
        ) from e
    pattern = encoding._pat_str
    return _from_ranks(encoding._mergeable_ranks, pattern, encoding._special_tokens), pattern


def _from_ranks(ranks: dict[bytes, int], pattern: str, specials: dict[str, int]) -> bytes:
    """A tiktoken encoding as a tokenizer.json.

    tiktoken merges any two neighbours whose concatenation is a token, lowest rank first; so every such pair is a merge
    here, in order of the rank of the result. The pattern is the portable one of the same family: where a tiktoken release
    has changed its own (cl100k: white space at the very end of a text), the ids of a conversion may differ in that spot,
    which `load` finds and answers by taking tiktoken itself.
    """
    names = {token: "".join(map(_BYTE_TO_CHAR.__getitem__, token)) for token in ranks}
    merges = []
    for token, rank in ranks.items():
        for cut in range(1, len(token)):
            left, right = token[:cut], token[cut:]
            if left in ranks and right in ranks:
                merges.append((rank, ranks[left], ranks[right], [names[left], names[right]]))
    merges.sort(key=lambda m: m[:3])
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    portable = PORTABLE.get(pattern, pattern)
    pre_tokenizer: dict[str, Any] = byte_level  # GPT-2's pattern is built in
    if portable != GPT2:
        split = {"type": "Split", "pattern": {"Regex": portable}, "behavior": "Isolated", "invert": False}
        pre_tokenizer = {"type": "Sequence", "pretokenizers": [split, {**byte_level, "use_regex": False}]}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return _dump(
        {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": [
                {"id": i, "content": t, **flags} for t, i in sorted(specials.items(), key=lambda s: (s[1], s[0]))
            ],
            "normalizer": None,
            "pre_tokenizer": pre_tokenizer,
            "post_processor": None,
            "decoder": byte_level,
            "model": {
                "type": "BPE",
                "dropout": None,
                "unk_token": None,
                "continuing_subword_prefix": None,
                "end_of_word_suffix": None,
                "fuse_unk": False,
                "byte_fallback": False,
                "ignore_merges": True,
                "vocab": {names[token]: rank for token, rank in sorted(ranks.items(), key=lambda r: r[1])},
                "merges": [m[3] for m in merges],
            },
        }
    )


def _dump(tokenizer: dict[str, Any]) -> bytes:
    return json.dumps(tokenizer, ensure_ascii=False, separators=(",", ":")).encode()


def _byte_to_char() -> list[str]:
    """The printable character that stands for each byte in a byte-level vocabulary. Source: Radford et al. 2019, code."""
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = [b for b in range(256) if b not in printable]
    return [chr(b) if b in printable else chr(256 + others.index(b)) for b in range(256)]


_BYTE_TO_CHAR = _byte_to_char()
_CHAR_TO_BYTE = {c: b for b, c in enumerate(_BYTE_TO_CHAR)}


def _parse(data: bytes, path: str) -> dict[str, Any]:
    tokenizer_limits.check_values(data, path)
    try:
        tokenizer = json.loads(data)
        vocab = tokenizer["model"]["vocab"]
    except (ValueError, KeyError, TypeError, RecursionError) as e:
        raise ConfigError(f"tokenizer {path}: not a tokenizer.json (no model.vocab)") from e
    if not vocab:
        raise ConfigError(f"tokenizer {path}: its vocabulary is empty")
    added = _added(tokenizer)
    if not _is_vocabulary(vocab) or not isinstance(added, list) or not all(map(_is_added_token, added)):
        raise ConfigError(f"tokenizer {path}: not a tokenizer.json (a token without a text or an id from 0 up)")
    tokenizer_limits.check_costs(tokenizer, path)
    highest, entries = max(_ids(tokenizer)), len(vocab) + len(added)
    if highest >= 2 * entries + SPARE_IDS:  # the libraries allocate a table up to the highest id
        raise ConfigError(
            f"tokenizer {path}: id {highest} in a vocabulary of {entries} entries; its ids have a gap too wide"
        )
    missing = _missing_bytes(tokenizer)
    if missing:
        raise ConfigError(
            f"tokenizer {path}: a byte-level BPE without the bytes {', '.join(f'0x{b:02x}' for b in missing[:8])} "
            f"({len(missing)} in all) loses text",
            hint="its vocabulary needs an entry for every byte of UTF-8, or an unk_token",
        )
    if _drops_unknown(tokenizer):
        log.warning(
            "tokenizer %s: it has neither bytes nor an unk_token: characters that its vocabulary lacks leave no token",
            path,
        )
    if tokenizer["model"].get("dropout"):
        log.warning("tokenizer %s: BPE dropout %s is ignored", path, tokenizer["model"]["dropout"])
    return tokenizer


def _unknown(tokenizer: dict[str, Any]) -> tuple[int, str] | None:
    model, vocab = tokenizer["model"], tokenizer["model"]["vocab"]
    if isinstance(vocab, list):  # Unigram
        number = model.get("unk_id")
        return (number, vocab[number][0]) if isinstance(number, int) and 0 <= number < len(vocab) else None
    text = model.get("unk_token")
    known = {**{t["content"]: t["id"] for t in _added(tokenizer)}, **vocab}
    return (known[text], text) if isinstance(text, str) and text in known else None


def _drops_unknown(tokenizer: dict[str, Any]) -> bool:
    """Whether characters that its vocabulary lacks vanish without an id: a BPE of characters without an unknown token."""
    model = tokenizer["model"]
    is_bpe = isinstance(model["vocab"], dict) and model.get("type", "BPE") == "BPE"
    return is_bpe and _unknown(tokenizer) is None and not _is_byte_level(tokenizer) and not model.get("byte_fallback")


def _is_vocabulary(vocab: Any) -> bool:
    if isinstance(vocab, dict):
        return all(map(_is_id, vocab.values()))
    return isinstance(vocab, list) and all(
        isinstance(entry, list) and len(entry) == 2 and isinstance(entry[0], str) for entry in vocab
    )


def _is_added_token(token: Any) -> bool:
    return isinstance(token, dict) and isinstance(token.get("content"), str) and _is_id(token.get("id"))


def _is_id(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _missing_bytes(tokenizer: dict[str, Any]) -> list[int]:
    """Bytes of UTF-8 that a byte-level BPE has no entry for and would leave out without a word.

    A normalizer other than a Unicode form may see to it that such bytes never come: then none are named.
    """
    model, vocab = tokenizer["model"], tokenizer["model"]["vocab"]
    if not isinstance(vocab, dict) or model.get("type", "BPE") != "BPE" or model.get("unk_token") is not None:
        return []
    if not _is_byte_level(tokenizer) or not _keeps_all_characters(tokenizer):
        return []
    never = {0xC0, 0xC1, *range(0xF5, 0x100)}  # RFC 3629, section 1
    return [b for b in range(256) if b not in never and _BYTE_TO_CHAR[b] not in vocab]


def _is_byte_level(tokenizer: dict[str, Any]) -> bool:
    pre = tokenizer.get("pre_tokenizer")
    steps = pre.get("pretokenizers") if isinstance(pre, dict) and pre.get("type") == "Sequence" else [pre]
    return any(isinstance(step, dict) and step.get("type") == "ByteLevel" for step in steps or [])


def _keeps_all_characters(tokenizer: dict[str, Any]) -> bool:
    """Whether its normalizer, if any, is made of Unicode normal forms."""
    normalizer = tokenizer.get("normalizer") or {}
    steps = normalizer.get("normalizers", []) if normalizer.get("type") == "Sequence" else [normalizer]
    return all(step.get("type", "NFC") in ("NFC", "NFD", "NFKC", "NFKD") for step in steps)


def _added(tokenizer: dict[str, Any]) -> list[dict[str, Any]]:
    return tokenizer.get("added_tokens") or []


def _specials(tokenizer: dict[str, Any]) -> list[str]:
    return [t["content"] for t in _added(tokenizer) if t.get("special")]


def _ids(tokenizer: dict[str, Any]) -> list[int]:
    vocab = tokenizer["model"]["vocab"]
    in_model = vocab.values() if isinstance(vocab, dict) else range(len(vocab))  # Unigram: a list of [piece, score]
    return [max(in_model), *(t["id"] for t in _added(tokenizer))]


def _resolve_eot(tokenizer: dict[str, Any], eot: str | int, path: str) -> int:
    vocab = tokenizer["model"]["vocab"]
    known = vocab if isinstance(vocab, dict) else {piece: i for i, (piece, _) in enumerate(vocab)}
    known = {**known, **{t["content"]: t["id"] for t in _added(tokenizer)}}
    if (isinstance(eot, int) and eot in known.values()) or eot in known:
        return eot if isinstance(eot, int) else known[eot]
    raise ConfigError(
        f"tokenizer.eot {eot!r}: {path} has no such token",
        hint=f"its special tokens: {', '.join(map(repr, _specials(tokenizer)[:20])) or 'none'}",
    )


# ------------------------------------------------------------------------------------------------------------ libraries


def _version(library: str) -> str:
    try:
        return importlib.metadata.version(library)
    except importlib.metadata.PackageNotFoundError:
        return ""


class _Backend:
    """An opened library: texts in, (ids uint32, lens int64) out, on the calling thread.

    gigatoken keeps every pretoken it has seen: 50 MB for 140 MB of English, but 1.2 bytes a byte for random words. So a
    library whose cache has no bound is opened anew (0.2 s) once it has grown by CACHE_BYTES.
    """

    def __init__(self, library: _Library, encoder: Encoder):
        self._open = lambda: library.open(encoder)
        self._run = self._open()
        self._bounded = library.bounded
        self._grown_bytes = 0
        self.reads_columns = library.reads_columns
        self.chunkable = _is_chunkable(json.loads(encoder.data), encoder)

    def encode(self, texts: Texts) -> Ids:
        before = _resident_bytes()
        ids, lens = self._run(texts)
        if not self._bounded:
            # Signed: what the allocator gives back counts too. Without /proc, twice the text stands for the growth.
            size = texts.nbytes if isinstance(texts, TextColumn) else sum(map(len, texts))
            grown = _resident_bytes() - before - ids.nbytes if before else 2 * size
            self._grown_bytes += grown
            if self._grown_bytes > CACHE_BYTES:
                log.info("the tokenizer's cache has grown by %d MiB: opening it anew", self._grown_bytes >> 20)
                del self._run  # before the new one is there
                self._run = self._open()
                self._grown_bytes = 0
        return ids, lens


def _resident_bytes() -> int:
    """Resident size of this process; 0 where the system does not say."""
    try:
        with open("/proc/self/statm", "rb") as f:
            return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


@functools.lru_cache(maxsize=4)
def _backend(encoder: Encoder) -> _Backend:
    """The library of `encoder`, opened once per process."""
    _single_thread()
    version = _version(encoder.library)
    if version != encoder.version:
        raise FatalError(
            f"{encoder.source}: chosen for {encoder.library} {encoder.version}, this process has {version or 'none'}"
        )
    return _Backend(_LIBRARIES[encoder.library], encoder)


def _open_gigatoken(encoder: Encoder) -> Callable[[Texts], Ids]:
    import awkward as ak  # gigatoken's own form of a column, over buffers that need no copy
    import gigatoken

    backend = gigatoken.Tokenizer.from_json(_inert(encoder, keep_specials=False)).backend

    def encode(texts: Texts) -> Ids:
        texts = ak.from_arrow(texts.to_arrow()) if isinstance(texts, TextColumn) else texts
        layout = backend.encode_batch(texts, parallel=False).layout  # parallel=False: no thread pool, safe after a fork
        return np.asarray(layout.content.data), np.diff(np.asarray(layout.offsets.data))

    return encode


def _open_snaptokens(encoder: Encoder) -> Callable[[list[str]], Ids]:
    import snaptokens

    tokenizer = snaptokens.Tokenizer.from_json_str(_inert(encoder, keep_specials=False))
    pid = os.getpid()

    def encode(texts: list[str]) -> Ids:
        if os.getpid() != pid:  # its thread pool did not survive the fork, and encode_batch would wait for it for ever
            return _flat([tokenizer.encode(text).ids for text in texts])
        ids, offsets = tokenizer.encode_batch_flat(texts)
        return np.frombuffer(ids, np.uint32), np.diff(np.frombuffer(offsets, np.int64))

    return encode


def _open_tokenizers(encoder: Encoder) -> Callable[[list[str]], Ids]:
    import tokenizers

    tokenizer = tokenizers.Tokenizer.from_str(_inert(encoder, keep_specials=True))
    tokenizer.encode_special_tokens = True  # to `tokenizers` this means: as ordinary text

    def encode(texts: list[str]) -> Ids:
        return _flat([e.ids for e in tokenizer.encode_batch_fast(texts, add_special_tokens=False)])

    return encode


def _open_tiktoken(encoder: Encoder) -> Callable[[list[str]], Ids]:
    import tiktoken

    tokenizer = json.loads(encoder.data)
    pattern = encoder.pattern or _split_pattern(tokenizer)
    others = [t for t in _added(tokenizer) if not t.get("special") and t["id"] != encoder.eot_id]
    if pattern is None or tokenizer.get("normalizer") or others or tokenizer["model"]["type"] != "BPE":
        raise ConfigError("its normalizer, pre-tokenizer, model or added tokens are none of tiktoken's")
    vocab = tokenizer["model"]["vocab"]
    ranks = {bytes(map(_CHAR_TO_BYTE.__getitem__, t)): i for t, i in vocab.items() if i != encoder.eot_id}
    encoding = tiktoken.Encoding(
        "inert", pat_str=GPT2_POSSESSIVE if pattern == GPT2 else pattern, mergeable_ranks=ranks, special_tokens={}
    )

    def encode(texts: list[str]) -> Ids:
        for text in texts:
            text.encode()  # tiktoken would replace a lone surrogate in silence
        ids = [encoding.encode_to_numpy(text, disallowed_special=()) for text in texts]
        return np.concatenate(ids or [np.zeros(0, np.uint32)]), np.array([len(i) for i in ids], np.int64)

    return encode


class _Library(NamedTuple):
    open: Callable[[Encoder], Callable[[Any], Ids]]
    bounded: bool  # its memory, by itself
    reads_columns: bool = False  # and not only lists of strings


_LIBRARIES = {
    "gigatoken": _Library(_open_gigatoken, bounded=False, reads_columns=True),
    "snaptokens": _Library(_open_snaptokens, bounded=True),
    "tiktoken": _Library(_open_tiktoken, bounded=True),
    "tokenizers": _Library(_open_tokenizers, bounded=True),
}


@functools.lru_cache(maxsize=2)
def _decoder(data: bytes) -> Any:
    import tokenizers

    return tokenizers.Tokenizer.from_str(data.decode())


def _flat(ids: list[list[int]]) -> Ids:
    lens = np.array([len(i) for i in ids], np.int64)
    return np.fromiter(chain.from_iterable(ids), np.uint32, int(lens.sum())), lens


def _inert(encoder: Encoder, keep_specials: bool) -> str:
    """The tokenizer.json without what may not apply here: truncation, padding, post-processor, dropout, special tokens.

    keep_specials: leave them in, marked special (`tokenizers` can be told to overlook them, and numbers added tokens by
    their place in the list, so none may be missing; the fast libraries go by id and know no such switch).
    A model that looks whole words or pieces up (all but BPE by merges) would still find a special token in its
    vocabulary: there it gets a name that no text has.
    """
    tokenizer = json.loads(encoder.data)
    tokenizer.update(truncation=None, padding=None, post_processor=None)
    model = tokenizer["model"]
    if "dropout" in model:
        model["dropout"] = None
    tokens = [{**t, "special": bool(t.get("special")) or t["id"] == encoder.eot_id} for t in _added(tokenizer)]
    if model.get("type") != "BPE" or model.get("ignore_merges"):
        hidden = {t["content"]: _NO_TEXT + t["content"] for t in tokens if t["special"]}
        vocab = model["vocab"]
        if isinstance(vocab, dict):
            model["vocab"] = {hidden.get(text, text): i for text, i in vocab.items()}
        else:
            model["vocab"] = [[hidden.get(text, text), score] for text, score in vocab]
        if model.get("unk_token") in hidden:
            model["unk_token"] = hidden[model["unk_token"]]
        tokens = [{**t, "content": hidden.get(t["content"], t["content"])} for t in tokens]
    tokenizer["added_tokens"] = [t for t in tokens if keep_specials or not t["special"]]
    return json.dumps(tokenizer, ensure_ascii=False)


def _split_pattern(tokenizer: dict[str, Any]) -> str | None:
    """The split pattern of a byte-level pre-tokenizer; None if it is of another kind."""
    pre = tokenizer.get("pre_tokenizer") or {}
    steps = pre.get("pretokenizers", []) if pre.get("type") == "Sequence" else [pre]
    if not steps or steps[-1].get("type") != "ByteLevel":
        return None
    if len(steps) == 1:
        return GPT2 if steps[0].get("use_regex", True) else None
    split = steps[0]
    whole = (split.get("behavior"), split.get("invert")) in (("Isolated", False), ("Removed", True))
    if len(steps) == 2 and split["type"] == "Split" and whole and not steps[1].get("use_regex", True):
        return split["pattern"].get("Regex")
    return None


def _is_chunkable(tokenizer: dict[str, Any], encoder: Encoder) -> bool:
    """Whether a text cut at `letter, space, letter` has the ids of the whole text (see CHUNKABLE).

    Unicode normal forms do not reach across: neither side of the cut combines. A kept added token might.
    """
    kept = [t for t in _added(tokenizer) if not t.get("special") and t["id"] != encoder.eot_id]
    return (
        (encoder.pattern or _split_pattern(tokenizer)) in CHUNKABLE
        and tokenizer["model"]["type"] == "BPE"
        and _keeps_all_characters(tokenizer)
        and not any(_BOUNDARY.search(t["content"]) or t.get("lstrip") or t.get("rstrip") for t in kept)
    )


# ------------------------------------------------------------------------------------------------------------- training


def train(texts: Iterable[str], vocab_size: int, eot: str, path: str | os.PathLike[str]) -> int:
    """Train a byte-level BPE (GPT-2's split pattern) and write its tokenizer.json.

    The same texts in the same order give the same bytes, whatever PYTHONHASHSEED, threads or their number: pair counts do
    not depend on the order of counting, ties go to the lower pair of ids, and JSON is written with ids in order.

    Args:
        texts: the sample. Text of `eot` in it counts as ordinary text.
        vocab_size: entries wanted: 256 bytes, merges, and `eot` as the last.
        path: the file.
    Returns:
        Entries in it: fewer than asked for when the sample has no more pairs to merge.
    Raises:
        ConfigError: vocab_size is below 257, `eot` is not a text, or there is no text to train on.
    """
    import tokenizers
    from tokenizers import decoders, models, pre_tokenizers, trainers

    if vocab_size < 257:
        raise ConfigError(f"vocab_size {vocab_size}: a byte-level BPE has at least 257 entries (256 bytes and eot)")
    if not isinstance(eot, str):
        raise ConfigError(f"tokenizer.eot {eot!r}: a tokenizer that is trained needs the text of the token, not an id")
    seen = False

    def counted() -> Iterator[str]:
        nonlocal seen
        for text in texts:
            seen = seen or bool(text)
            yield text

    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size - 1,
        min_frequency=2,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    os.environ["TOKENIZERS_PARALLELISM"] = "true"  # training alone may use all cores: no worker runs yet
    try:
        tokenizer.train_from_iterator(counted(), trainer)
    finally:
        _single_thread()
    if not seen:
        raise ConfigError("cannot train a tokenizer: the sample has no text")
    tokenizer.add_special_tokens([eot])
    Path(path).write_bytes(_dump(json.loads(tokenizer.to_str())))
    return tokenizer.get_vocab_size()
