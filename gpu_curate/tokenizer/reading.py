"""Where a tokenizer is read from: a file, the Hugging Face hub, a tiktoken encoding."""

from __future__ import annotations

import base64
import contextlib
import re
from pathlib import Path

from gpu_curate import lfs
from gpu_curate.errors import ConfigError, install, one_line
from gpu_curate.tokenizer import limits
from gpu_curate.tokenizer.limits import Content
from gpu_curate.tokenizer.model import BYTE_TO_CHAR, dump
from gpu_curate.tokenizer.patterns import GPT2, PORTABLE, RANK_FILES


def read(path: str) -> tuple[bytes, str | None]:
    """Bytes of the tokenizer.json, and the split pattern of a tiktoken encoding."""
    if path.startswith("tiktoken:"):
        return _read_tiktoken(path.removeprefix("tiktoken:"))
    file = Path(path)
    if file.is_dir():
        file = file / "tokenizer.json"
    if file.is_file():
        lfs.refuse(file, "tokenizer")
        limits.check_size(file.stat().st_size, path)
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
            limits.check_size(file.stat().st_size, f"tiktoken:{name}")
            lines = [line.split() for line in file.read_bytes().splitlines() if line]
            ranks = {base64.b64decode(token): int(rank) for token, rank in lines}
        except (OSError, ValueError) as e:
            raise ConfigError(f"tokenizer tiktoken:{name}: {e}") from e
        pattern, specials = RANK_FILES[file.stem]
        return from_ranks(ranks, pattern, specials), pattern
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
    return from_ranks(encoding._mergeable_ranks, pattern, encoding._special_tokens), pattern


def from_ranks(ranks: dict[bytes, int], pattern: str, specials: dict[str, int]) -> bytes:
    """A tiktoken encoding as a tokenizer.json.

    tiktoken merges any two neighbours whose concatenation is a token, lowest rank first; so every such pair is a merge
    here, in order of the rank of the result. The pattern is the portable one of the same family: where a tiktoken release
    has changed its own (cl100k: white space at the very end of a text), the ids of a conversion may differ in that spot,
    which `load` finds and answers by taking tiktoken itself.
    """
    names = {token: "".join(map(BYTE_TO_CHAR.__getitem__, token)) for token in ranks}
    merges = []
    for token, rank in ranks.items():
        for cut in range(1, len(token)):
            left, right = token[:cut], token[cut:]
            if left in ranks and right in ranks:
                merges.append((rank, ranks[left], ranks[right], [names[left], names[right]]))
    merges.sort(key=lambda m: m[:3])
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    portable = PORTABLE.get(pattern, pattern)
    pre_tokenizer: Content = byte_level  # GPT-2's pattern is built in
    if portable != GPT2:
        split = {"type": "Split", "pattern": {"Regex": portable}, "behavior": "Isolated", "invert": False}
        pre_tokenizer = {"type": "Sequence", "pretokenizers": [split, {**byte_level, "use_regex": False}]}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return dump(
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
