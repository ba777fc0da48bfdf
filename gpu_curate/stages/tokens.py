"""Tokens: every document as token ids, beside the GPU's work, before anyone knows what is kept."""

from __future__ import annotations

import dataclasses
import functools
import json
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from gpu_curate.config import Config
from gpu_curate.errors import FatalError
from gpu_curate.stages import Context, Stage, Stopwatch
from gpu_curate.stages.partition_text import host_text, text_hash, verified_text
from gpu_curate.stages.rejects import LateRejects
from gpu_curate.store.artifact import RECEIPTS
from gpu_curate.store.files import publish, write_json
from gpu_curate.tokenizer.encoder import Encoder

TOKENIZER, ENCODER = "tokenizer.json", "encoder.json"  # in tokens/: the tokenizer, and who runs it
MAX_UNKNOWN_SHARE, MUCH_UNKNOWN = 0.5, 0.01  # of the tokens that are kept: an error, a warning
_PROOF = "encoder_proof.json"  # beside the receipts: why that library, and for what content and versions
PROOFS = f"tokens*/{RECEIPTS}/{_PROOF}"  # in a run directory
_BATCH_BYTES = 4 << 20


class Tokens(Stage):
    """Tokenise every document. Tokenising one that is dropped later is cheaper than waiting for the decision.

    Reads: documents(text), tokenizer.  Writes: part.bin (ids back to back, uint16 or uint32, little-endian, no EOT) and
    part.len (int64 ids of each document); part.unk (int64 unknown tokens of each) where there are some. A text that no library can encode has none and is rejected (`LateRejects`).
    Memory: partition text and a few MiB of ids.
    """

    name: ClassVar[str] = "tokens"
    follows: ClassVar[str | None] = "documents"
    code: ClassVar[tuple[str, ...]] = ("stages.tokens", "stages.rejects", "tokenizer", "guard")

    def made_of(self, config: Config, receipt: dict[str, Any]) -> str:
        return text_hash(receipt)

    def reads(self, config: Config) -> tuple[str, ...]:
        return ("tokenizer",) if config.tokenizer.train is not None else ()

    def settings(self, config: Config) -> Any:
        if config.tokenizer.train is not None:
            return config.tokenizer.model_dump(include={"eot", "library"})
        from gpu_curate.tokenizer.loading import load

        return {"identity": load(config.tokenizer).identity, **config.tokenizer.model_dump(include={"eot", "library"})}

    def libraries(self, config: Config) -> tuple[str, ...]:
        of_tiktoken = (config.tokenizer.path or "").startswith("tiktoken:")
        return ("tiktoken", "tokenizers") if of_tiktoken else ("tokenizers",)  # the second stands in for the first

    def prepare(self, context: Context) -> None:
        """Choose the library here, once: workers, and a later run of the same box, open it without proving its ids again."""
        from gpu_curate.stages.tokenizer import resolved
        from gpu_curate.tokenizer.loading import load

        folder = context.box(self.name).folder
        encoder = load(resolved(context), folder / RECEIPTS / _PROOF)
        with publish(folder / TOKENIZER) as temp:
            encoder.save(temp)
        chosen = {k: v for k, v in dataclasses.asdict(encoder).items() if k != "data"}
        write_json(folder / ENCODER, chosen)

    def run(self, context: Context, part: str, task: Any) -> dict[str, Any]:
        watch = Stopwatch()
        encoder = open_encoder(context.box(self.name).folder)
        text = host_text(verified_text(context.box(self.follows), part))
        box = context.box(self.name)
        rejects = LateRejects(context, self.name, part)
        path, lengths = box.path(part, ".bin"), np.zeros(len(text), np.int64)
        special, unknown_N = 0, np.zeros(len(text), np.int64)
        with publish(path) as temp, temp.open("wb") as f:
            for start, stop in text.batches(_BATCH_BYTES):
                batch = text.slice(start, stop)
                special += encoder.count_special_in(batch)
                refused: dict[int, str] = {}
                ids, lengths[start:stop] = encoder.encode_column(batch, refused)
                for number, reason in refused.items():
                    rejects.add(start + number, f"the tokenizer cannot encode it: {reason}", batch.raw(number))
                if len(ids) != lengths[start:stop].sum():
                    raise FatalError(f"partition {part}: {encoder.library} gave {len(ids)} ids for other lengths")
                unknown_N[start:stop] = _unknown(encoder, ids, lengths[start:stop])
                f.write(memoryview(np.ascontiguousarray(ids, encoder.dtype.newbyteorder("<"))))
        lengths_path = box.path(part, ".len")
        with publish(lengths_path) as temp:
            temp.write_bytes(lengths.astype("<i8").tobytes())
        more = []
        if unknown_N.any():
            more = [box.path(part, ".unk")]
            with publish(more[0]) as temp:
                temp.write_bytes(unknown_N.astype("<i8").tobytes())
        late, counts = rejects.write()
        facts = {
            **counts,
            "documents": len(text),
            "bytes": text.nbytes,
            "tokens": int(lengths.sum()) + len(text),
            "special_texts": special,
            "unknown_tokens": int(unknown_N.sum()),
            "unknown_token": encoder.unknown[1] if encoder.unknown else None,
            "without_tokens": int(((lengths == 0) & (np.diff(text.offsets) > 0)).sum()),
            "dtype": encoder.dtype.name,
            "eot_id": encoder.eot_id,
            "vocab_size": encoder.vocab_size,
            "identity": encoder.identity,
            "library": encoder.library,
            "library_reason": encoder.reason,
            "backend": "cpu",
        }
        return box.commit(part, [path, lengths_path, *more, *late], {**facts, **watch.facts()})


def open_encoder(folder: Path) -> Encoder:
    """The encoder of a tokens box, as `prepare` chose it; one a process and content, whatever a folder held before."""
    return _encoder((folder / TOKENIZER).read_bytes(), (folder / ENCODER).read_text(encoding="utf-8"))


@functools.lru_cache(maxsize=2)
def _encoder(data: bytes, chosen: str) -> Encoder:
    return Encoder(data=data, **json.loads(chosen))


def lengths(context: Context, part: str) -> np.ndarray:
    """int64 tokens of every document of a partition, its EOT included."""
    path = context.box("tokens").verified(part, ".len")
    return np.fromfile(path, "<i8").astype(np.int64) + 1


def _unknown(encoder: Encoder, ids_N: np.ndarray, lens_D: np.ndarray) -> np.ndarray:
    """int64 of D: unknown tokens of each text."""
    if encoder.unknown is None:
        return np.zeros(len(lens_D), np.int64)
    found = np.flatnonzero(ids_N == encoder.unknown[0])
    return np.diff(np.searchsorted(found, np.concatenate([[0], np.cumsum(lens_D)])))


def unknown_tokens(context: Context, part: str) -> np.ndarray | None:
    """int64 unknown tokens of every document of a partition; None where there are none."""
    box = context.box("tokens")
    receipt = box.receipt(part)
    if not (receipt or {}).get("unknown_tokens"):
        return None
    return np.fromfile(box.verified(part, ".unk"), "<i8").astype(np.int64)


def unknown_share(context: Context) -> tuple[int, int, float]:
    """(unknown tokens, tokens without the end-of-text ones, the first by the second) of the documents that are kept."""
    unknown = tokens = 0
    for receipt in context.box("decisions").receipts():
        unknown += receipt["unknown_tokens"].get("kept", 0)
        tokens += receipt["by_reason"]["tokens"].get("kept", 0) - receipt["by_reason"]["documents"].get("kept", 0)
    return unknown, tokens, unknown / max(tokens, 1)


def check_unknown(context: Context) -> None:
    """Refuse shards most of whose tokens say nothing.

    Raises:
        FatalError: more than half of the tokens that are kept are the unknown one, or most texts have no token at all.
    """
    unknown, tokens, share = unknown_share(context)
    receipts = list(context.box("tokens").receipts())
    hint = (
        "take a tokenizer with byte fallback or a byte-level one, train one (tokenizer.train), or keep other languages"
    )
    if share > MAX_UNKNOWN_SHARE:
        name = receipts[0]["unknown_token"]
        raise FatalError(
            f"tokenizer: {unknown} of the {tokens} tokens that are kept ({share:.0%}) are {name!r}, which stands for what its "
            f"vocabulary lacks; above {MAX_UNKNOWN_SHARE:.0%} no shards are written",
            hint,
        )
    without, documents = (sum(r[key] for r in receipts) for key in ("without_tokens", "documents"))
    if without > documents * MAX_UNKNOWN_SHARE:
        raise FatalError(
            f"tokenizer: it makes no token of {without} of {documents} texts: its vocabulary lacks them", hint
        )
