"""The libraries that encode: opened once a process, on the calling thread, with special tokens made inert."""

from __future__ import annotations

import functools
import importlib.metadata
import json
import logging
import os
from collections.abc import Callable
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gpu_curate.document import TextColumn
from gpu_curate.errors import ConfigError, FatalError
from gpu_curate.tokenizer.limits import Content
from gpu_curate.tokenizer.model import CHAR_TO_BYTE, added_tokens, keeps_all_characters, split_pattern
from gpu_curate.tokenizer.patterns import BOUNDARY, CHUNKABLE, GPT2, GPT2_POSSESSIVE

if TYPE_CHECKING:
    from gpu_curate.tokenizer.encoder import Encoder

log = logging.getLogger(__name__)


Ids = tuple[np.ndarray, np.ndarray]  # ids_N uint32, lens_D int64
Texts = list[str] | TextColumn  # a column is of valid UTF-8, on the host

LIBRARIES = (
    "gigatoken",
    "snaptokens",
    "tiktoken",
    "tokenizers",
)  # fastest first; speeds in scripts/bench/tokenizing.py
CACHE_BYTES = 512 << 20  # growth of the process after which a library with an unbounded cache is opened anew
_NO_TEXT = "\U0010ffff" * 3  # a noncharacter (Unicode, section 23.7), three times


def single_thread() -> None:
    """The one place that tells the libraries to start no threads (processes are the engine's business)."""
    os.environ["RAYON_NUM_THREADS"] = "1"
    os.environ["TOKENIZERS_PARALLELISM"] = "false"


def version_of(library: str) -> str:
    try:
        return importlib.metadata.version(library)
    except importlib.metadata.PackageNotFoundError:
        return ""


class Backend:
    """An opened library: texts in, (ids uint32, lens int64) out, on the calling thread.

    gigatoken keeps every pretoken it has seen: 50 MB for 140 MB of English, but 1.2 bytes a byte for random words. So a
    library whose cache has no bound is opened anew (0.2 s) once it has grown by CACHE_BYTES.
    """

    def __init__(self, library: Library, encoder: Encoder):
        self._open = functools.partial(library.open, encoder)
        self._run = self._open()
        self._bounded = library.bounded
        self._grown_bytes = 0
        self.reads_columns = library.reads_columns
        self.chunkable = is_chunkable(json.loads(encoder.data), encoder)

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
def open_backend(encoder: Encoder) -> Backend:
    """The library of `encoder`, opened once per process."""
    single_thread()
    version = version_of(encoder.library)
    if version != encoder.version:
        raise FatalError(
            f"{encoder.source}: chosen for {encoder.library} {encoder.version}, this process has {version or 'none'}"
        )
    return Backend(BACKENDS[encoder.library], encoder)


def _open_gigatoken(encoder: Encoder) -> Callable[[Texts], Ids]:
    import awkward as ak  # gigatoken's own form of a column, over buffers that need no copy
    import gigatoken

    backend = gigatoken.Tokenizer.from_json(inert(encoder, keep_specials=False)).backend

    def encode(texts: Texts) -> Ids:
        texts = ak.from_arrow(texts.to_arrow()) if isinstance(texts, TextColumn) else texts
        layout = backend.encode_batch(texts, parallel=False).layout  # parallel=False: no thread pool, safe after a fork
        return np.asarray(layout.content.data), np.diff(np.asarray(layout.offsets.data))

    return encode


def _open_snaptokens(encoder: Encoder) -> Callable[[list[str]], Ids]:
    import snaptokens

    tokenizer = snaptokens.Tokenizer.from_json_str(inert(encoder, keep_specials=False))
    pid = os.getpid()

    def encode(texts: list[str]) -> Ids:
        if os.getpid() != pid:  # its thread pool did not survive the fork, and encode_batch would wait for it for ever
            return _flat([tokenizer.encode(text).ids for text in texts])
        ids, offsets = tokenizer.encode_batch_flat(texts)
        return np.frombuffer(ids, np.uint32), np.diff(np.frombuffer(offsets, np.int64))

    return encode


def _open_tokenizers(encoder: Encoder) -> Callable[[list[str]], Ids]:
    import tokenizers

    tokenizer = tokenizers.Tokenizer.from_str(inert(encoder, keep_specials=True))
    tokenizer.encode_special_tokens = True  # to `tokenizers` this means: as ordinary text

    def encode(texts: list[str]) -> Ids:
        return _flat([e.ids for e in tokenizer.encode_batch_fast(texts, add_special_tokens=False)])

    return encode


def _open_tiktoken(encoder: Encoder) -> Callable[[list[str]], Ids]:
    import tiktoken

    tokenizer = json.loads(encoder.data)
    pattern = encoder.pattern or split_pattern(tokenizer)
    others = [t for t in added_tokens(tokenizer) if not t.get("special") and t["id"] != encoder.eot_id]
    if pattern is None or tokenizer.get("normalizer") or others or tokenizer["model"]["type"] != "BPE":
        raise ConfigError("its normalizer, pre-tokenizer, model or added tokens are none of tiktoken's")
    vocab = tokenizer["model"]["vocab"]
    ranks = {bytes(map(CHAR_TO_BYTE.__getitem__, t)): i for t, i in vocab.items() if i != encoder.eot_id}
    encoding = tiktoken.Encoding(
        "inert", pat_str=GPT2_POSSESSIVE if pattern == GPT2 else pattern, mergeable_ranks=ranks, special_tokens={}
    )

    def encode(texts: list[str]) -> Ids:
        for text in texts:
            text.encode()  # tiktoken would replace a lone surrogate in silence
        ids = [encoding.encode_to_numpy(text, disallowed_special=()) for text in texts]
        return np.concatenate(ids or [np.zeros(0, np.uint32)]), np.array([len(i) for i in ids], np.int64)

    return encode


class Library(NamedTuple):
    open: Callable[[Encoder], Callable[[Any], Ids]]
    bounded: bool  # its memory, by itself
    reads_columns: bool = False  # and not only lists of strings


BACKENDS = {
    "gigatoken": Library(_open_gigatoken, bounded=False, reads_columns=True),
    "snaptokens": Library(_open_snaptokens, bounded=True),
    "tiktoken": Library(_open_tiktoken, bounded=True),
    "tokenizers": Library(_open_tokenizers, bounded=True),
}


@functools.lru_cache(maxsize=2)
def decoder(data: bytes) -> Any:
    import tokenizers

    return tokenizers.Tokenizer.from_str(data.decode())


def _flat(ids: list[list[int]]) -> Ids:
    lens = np.array([len(i) for i in ids], np.int64)
    return np.fromiter(chain.from_iterable(ids), np.uint32, int(lens.sum())), lens


def inert(encoder: Encoder, keep_specials: bool) -> str:
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
    tokens = [{**t, "special": bool(t.get("special")) or t["id"] == encoder.eot_id} for t in added_tokens(tokenizer)]
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


def is_chunkable(tokenizer: Content, encoder: Encoder) -> bool:
    """Whether a text cut at `letter, space, letter` has the ids of the whole text (see CHUNKABLE).

    Unicode normal forms do not reach across: neither side of the cut combines. A kept added token might.
    """
    kept = [t for t in added_tokens(tokenizer) if not t.get("special") and t["id"] != encoder.eot_id]
    return (
        (encoder.pattern or split_pattern(tokenizer)) in CHUNKABLE
        and tokenizer["model"]["type"] == "BPE"
        and keeps_all_characters(tokenizer)
        and not any(BOUNDARY.search(t["content"]) or t.get("lstrip") or t.get("rstrip") for t in kept)
    )
