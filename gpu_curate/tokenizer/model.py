"""A tokenizer.json that was read: what makes it one, its tokens and ids, its split pattern."""

from __future__ import annotations

import json
import logging
from typing import Any

from gpu_curate.errors import ConfigError
from gpu_curate.tokenizer import limits
from gpu_curate.tokenizer.limits import Content
from gpu_curate.tokenizer.patterns import GPT2

log = logging.getLogger(__name__)

SPARE_IDS = 1 << 20  # by which the highest id may exceed twice the number of entries: a table of some MB


def dump(tokenizer: Content) -> bytes:
    return json.dumps(tokenizer, ensure_ascii=False, separators=(",", ":")).encode()


def _byte_to_char() -> list[str]:
    """The printable character that stands for each byte in a byte-level vocabulary. Source: Radford et al. 2019, code."""
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = [b for b in range(256) if b not in printable]
    return [chr(b) if b in printable else chr(256 + others.index(b)) for b in range(256)]


BYTE_TO_CHAR = _byte_to_char()
CHAR_TO_BYTE = {c: b for b, c in enumerate(BYTE_TO_CHAR)}


def parse(data: bytes, path: str) -> Content:
    limits.check_values(data, path)
    try:
        tokenizer: Content = json.loads(data)
        vocab = tokenizer["model"]["vocab"]
    except (ValueError, KeyError, TypeError, RecursionError) as e:
        raise ConfigError(f"tokenizer {path}: not a tokenizer.json (no model.vocab)") from e
    if not vocab:
        raise ConfigError(f"tokenizer {path}: its vocabulary is empty")
    added = added_tokens(tokenizer)
    if not _is_vocabulary(vocab) or not isinstance(added, list) or not all(map(_is_added_token, added)):
        raise ConfigError(f"tokenizer {path}: not a tokenizer.json (a token without a text or an id from 0 up)")
    wrong = [key for key in PARTS if not _is_part(tokenizer.get(key), PARTS[key])]
    if not isinstance(tokenizer["model"].get("merges"), list | None):
        wrong.append("model.merges")
    if wrong:
        raise ConfigError(f"tokenizer {path}: not a tokenizer.json ({wrong[0]} is of another kind)")
    limits.check_costs(tokenizer, path)
    highest, entries = max(ids_in(tokenizer)), len(vocab) + len(added)
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


def unknown_token(tokenizer: Content) -> tuple[int, str] | None:
    model, vocab = tokenizer["model"], tokenizer["model"]["vocab"]
    if isinstance(vocab, list):  # Unigram
        number = model.get("unk_id")
        return (number, vocab[number][0]) if isinstance(number, int) and 0 <= number < len(vocab) else None
    text = model.get("unk_token")
    known = {**{t["content"]: t["id"] for t in added_tokens(tokenizer)}, **vocab}
    return (known[text], text) if isinstance(text, str) and text in known else None


def _drops_unknown(tokenizer: Content) -> bool:
    """Whether characters that its vocabulary lacks vanish without an id: a BPE of characters without an unknown token."""
    model = tokenizer["model"]
    is_bpe = isinstance(model["vocab"], dict) and model.get("type", "BPE") == "BPE"
    return (
        is_bpe and unknown_token(tokenizer) is None and not _is_byte_level(tokenizer) and not model.get("byte_fallback")
    )


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


PARTS = {  # key → what those of a sequence stand under
    "normalizer": "normalizers",
    "pre_tokenizer": "pretokenizers",
    "post_processor": "processors",
    "decoder": "decoders",
}


def _is_part(part: Any, key: str) -> bool:
    """Whether it is a normalizer, pre-tokenizer or the like, or none: an object, and so on in sequences."""
    left = [part]
    while left:
        step = left.pop()
        if step is None and step is part:
            continue
        if not isinstance(step, dict) or not isinstance(step.get("pattern"), dict | None):
            return False
        if not isinstance(step.get("type"), str | None):
            return False
        if step.get("type") == "Sequence":
            if not isinstance(step.get(key), list):
                return False
            left += step[key]
    return True


def _missing_bytes(tokenizer: Content) -> list[int]:
    """Bytes of UTF-8 that a byte-level BPE has no entry for and would leave out without a word.

    A normalizer other than a Unicode form may see to it that such bytes never come: then none are named.
    """
    model, vocab = tokenizer["model"], tokenizer["model"]["vocab"]
    if not isinstance(vocab, dict) or model.get("type", "BPE") != "BPE" or model.get("unk_token") is not None:
        return []
    if not _is_byte_level(tokenizer) or not keeps_all_characters(tokenizer):
        return []
    never = {0xC0, 0xC1, *range(0xF5, 0x100)}  # RFC 3629, section 1
    return [b for b in range(256) if b not in never and BYTE_TO_CHAR[b] not in vocab]


def _is_byte_level(tokenizer: Content) -> bool:
    pre = tokenizer.get("pre_tokenizer")
    steps = pre.get("pretokenizers") if isinstance(pre, dict) and pre.get("type") == "Sequence" else [pre]
    return any(isinstance(step, dict) and step.get("type") == "ByteLevel" for step in steps or [])


def keeps_all_characters(tokenizer: Content) -> bool:
    """Whether its normalizer, if any, is made of Unicode normal forms."""
    normalizer = tokenizer.get("normalizer") or {}
    steps = normalizer.get("normalizers", []) if normalizer.get("type") == "Sequence" else [normalizer]
    return all(step.get("type", "NFC") in ("NFC", "NFD", "NFKC", "NFKD") for step in steps)


def added_tokens(tokenizer: Content) -> list[dict[str, Any]]:
    return tokenizer.get("added_tokens") or []


def special_tokens(tokenizer: Content) -> list[str]:
    return [t["content"] for t in added_tokens(tokenizer) if t.get("special")]


def ids_in(tokenizer: Content) -> list[int]:
    vocab = tokenizer["model"]["vocab"]
    in_model = vocab.values() if isinstance(vocab, dict) else range(len(vocab))  # Unigram: a list of [piece, score]
    return [max(in_model), *(t["id"] for t in added_tokens(tokenizer))]


def resolve_eot(tokenizer: Content, eot: str | int, path: str) -> int:
    vocab = tokenizer["model"]["vocab"]
    known = vocab if isinstance(vocab, dict) else {piece: i for i, (piece, _) in enumerate(vocab)}
    known = {**known, **{t["content"]: t["id"] for t in added_tokens(tokenizer)}}
    if (isinstance(eot, int) and eot in known.values()) or eot in known:
        return eot if isinstance(eot, int) else known[eot]
    raise ConfigError(
        f"tokenizer.eot {eot!r}: {path} has no such token",
        hint=f"its special tokens: {', '.join(map(repr, special_tokens(tokenizer)[:20])) or 'none'}",
    )


def split_pattern(tokenizer: Content) -> str | None:
    """The split pattern of a byte-level pre-tokenizer; None if it is of another kind."""
    pre = tokenizer.get("pre_tokenizer") or {}
    steps = pre.get("pretokenizers", []) if pre.get("type") == "Sequence" else [pre]
    if not steps or steps[-1].get("type") != "ByteLevel":
        return None
    if len(steps) == 1:
        return GPT2 if steps[0].get("use_regex", True) else None
    split = steps[0]
    whole = (split.get("behavior"), split.get("invert")) in (("Isolated", False), ("Removed", True))
    if len(steps) == 2 and split.get("type") == "Split" and whole and not steps[1].get("use_regex", True):
        pattern = (split.get("pattern") or {}).get("Regex")
        return pattern if isinstance(pattern, str) else None
    return None
