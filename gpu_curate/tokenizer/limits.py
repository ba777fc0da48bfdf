"""What a tokenizer.json may cost: a file from somewhere else must not take the machine's memory or a day.

Cheap looks first: the file's size, the number of values in its JSON, merges, entries, by how much its normalizer or decoder lets a text
grow. What is left to doubt (a normalizer or a split pattern of another kind than the published ones, a large file) is loaded
and asked for the probe texts by the reference library in a process with a limit on memory and on time.
Largest seen: Gemma 3, 33 MB, 514,906 merges; XLM-V, 901,629 entries.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Collection, Iterator
from typing import Any, TypeAlias

from gpu_curate.errors import ConfigError

Content: TypeAlias = dict[str, Any]  # of a tokenizer.json

MAX_BYTES = 256 << 20  # of the file
MAX_VALUES = 8_000_000  # commas and brackets in it: each value of JSON takes 60 to 120 bytes of memory
MAX_MERGES = 2_000_000
MAX_ENTRIES = 4_000_000
MAX_GROWTH = 32  # of a text by its normalizer; the Unicode forms, 18 at most, are not counted
MAX_PREPEND_CHARS = 1000  # put before every text
TRIAL_S, TRIAL_BYTES_PER_S = 20.0, 2e6  # Gemma 3's loads in 2 s
TRIAL_MEMORY_BYTES = 1 << 30  # ... beside 40 times the file
_LARGE_BYTES = 16 << 20
_UNICODE = {"NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents"}
_TRIAL = """
import json, resource, sys
import tokenizers
memory, seconds = int(sys.argv[1]), int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
model, texts = json.load(sys.stdin)
tokenizer = tokenizers.Tokenizer.from_str(model)
tokenizer.encode_special_tokens = True
for text in texts:
    tokenizer.encode(text, add_special_tokens=False)
"""


def check_size(size: int, path: str) -> None:
    """Before the file is read. Raises: ConfigError."""
    if size > MAX_BYTES:
        raise ConfigError(f"tokenizer {path}: {size:,} bytes; a tokenizer.json of more than {MAX_BYTES:,} is not read")


def check_values(data: bytes, path: str) -> None:
    """Before its JSON is parsed. Raises: ConfigError."""
    check_size(len(data), path)
    values = sum(map(data.count, (b",", b"[", b"{")))
    if values > MAX_VALUES:
        raise ConfigError(
            f"tokenizer {path}: {values:,} values; a tokenizer.json of more than {MAX_VALUES:,} is not read"
        )


def check_costs(tokenizer: Content, path: str) -> None:
    """Of what was parsed. Raises: ConfigError."""
    model = tokenizer["model"]
    for name, what, most in (("merges", "merges", MAX_MERGES), ("vocab", "entries", MAX_ENTRIES)):
        count = len(model.get(name) or ())
        if count > most:
            raise ConfigError(f"tokenizer {path}: {count:,} {what}; at most {most:,} are taken")
    for part, key in (("normalizer", "normalizers"), ("decoder", "decoders")):
        growth, before = 1.0, 0
        for step in _steps(tokenizer.get(part), key):
            if step.get("type") == "Replace":
                growth *= _growth(step)
                before = int(min(before * _growth(step), 1 << 40))
            elif step.get("type") == "Prepend":
                before += len(str(step.get("prepend", "")))
        if growth > MAX_GROWTH or before > MAX_PREPEND_CHARS:
            how = f"to {growth:.3g} times its length" if growth > MAX_GROWTH else f"by {before:,} characters"
            raise ConfigError(
                f"tokenizer {path}: its {part} lets a text grow {how}; at most {MAX_GROWTH} times and "
                f"{MAX_PREPEND_CHARS:,} characters are taken"
            )


def _steps(part: Any, key: str) -> Iterator[dict[str, Any]]:
    """The parts of a normalizer or pre-tokenizer, sequences in sequences opened. JSON's own depth bounds the recursion."""
    left = [part]
    while left:
        step = left.pop(0)
        if isinstance(step, dict):
            inner = step.get(key)
            if step.get("type") == "Sequence" and isinstance(inner, list):
                left[:0] = inner
            else:
                yield step


def _growth(replace: dict[str, Any]) -> float:
    """How many times its length a text can have behind a Replace."""
    pattern, content = replace.get("pattern"), len(str(replace.get("content", "")))
    literal = pattern.get("String") if isinstance(pattern, dict) else None
    if isinstance(literal, str) and literal:
        return max(1.0, content / len(literal))
    return content + 1.0  # a regular expression may match one character, or none before each


def is_plain(tokenizer: Content, size: int, patterns: Collection[str]) -> bool:
    """True if it is of the published kinds, whose cost is known: Unicode forms, byte level, a published split pattern."""
    normal = all(s.get("type") in _UNICODE for s in _steps(tokenizer.get("normalizer"), "normalizers"))
    pre = list(_steps(tokenizer.get("pre_tokenizer"), "pretokenizers"))
    split = all(
        s.get("type") == "ByteLevel" or (s.get("type") == "Split" and (s.get("pattern") or {}).get("Regex") in patterns)
        for s in pre
    )
    return size <= _LARGE_BYTES and normal and bool(pre) and split


def trial(inert: str, texts: list[str], path: str) -> str | None:
    """Load it and encode the probe texts in a process of its own, with a bound on time and memory.

    Returns:
        what the library said of it, without the backtrace that a panic fingerprint_of; None: nothing.
    Raises:
        ConfigError: it takes more.
    """
    size = len(inert)
    seconds, memory = TRIAL_S + size / TRIAL_BYTES_PER_S, TRIAL_MEMORY_BYTES + 40 * size
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-c", _TRIAL, str(memory), str(math.ceil(seconds))],
            input=json.dumps([inert, texts]).encode("ascii"),
            capture_output=True,
            timeout=seconds,
        )
    except subprocess.TimeoutExpired:
        why = f"takes more than {seconds:.0f} s"
    else:
        said = done.stderr[-4000:].decode("utf-8", "replace").strip()
        last = said.rpartition("\n")[2]
        if done.returncode == 0 or last.startswith(("ModuleNotFoundError", "ImportError")):
            return None
        if done.returncode > 0 and "MemoryError" not in last and "memory allocation" not in said:
            return last
        why = f"takes more than {memory >> 20} MiB of memory or {seconds:.0f} s, or ends its process"
    raise ConfigError(
        f"tokenizer {path}: to load it and to encode {len(texts):,} short texts {why}",
        "get it anew from where it was published",
    )
