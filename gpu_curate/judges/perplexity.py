"""Perplexity by a KenLM model (extra `perplexity`): how well a text's words follow each other, in whole numbers.

The score is -1000 times the decimal logarithm of the perplexity, rounded: -2500 is a perplexity of 316. Higher is better, as of
every judge, so `min`, `top_share` and bands mean the same. KenLM adds 32-bit floats in the order of the words, one text at a
time, so nothing depends on batch, thread or device.

Source: Heafield 2011, KenLM; Wenzek et al. 2020, arXiv:1911.00359, section 3.3: perplexity per paragraph, head, middle and tail.
Deviates: words are what stands between spaces; CCNet's own models want SentencePiece pieces and their normalisation.

# N texts
"""

from __future__ import annotations

import functools
import hashlib
import math
import os
import statistics
import subprocess
import sys
from collections.abc import Iterable
from typing import Any, Literal

import numpy as np

from gpu_curate.errors import ConfigError, install
from gpu_curate.quality.judges import LIMIT, UNSCORED

MAX_BYTES = 64 << 30
TRIAL_S, BYTES_PER_S = 20, 50e6  # of loading a model in a process of its own
_MAX_WORDS = 1 << 20  # of a piece that is scored in one call: a longer one is cut, and its parts are added up
_TRIAL = "import sys, kenlm; m = kenlm.Model(sys.argv[1]); print(m.order, m.score('a b', bos=True, eos=True))"
Unit = Literal["document", "paragraph"]


def library() -> Any:
    """KenLM. Raises: ConfigError: it is not installed."""
    try:
        import kenlm
    except ImportError as e:
        raise ConfigError(
            f"a judge of perplexity needs KenLM, which cannot be imported: {e}", install("perplexity")
        ) from e
    return kenlm


def identity(path: str, key: str) -> str:
    """sha256 of a model that another process could load; once a process and state of the file.

    Raises: ConfigError: KenLM or the file is missing, or it does not load within bounds of time.
    """
    library()
    try:
        state = os.stat(path)
        return _identity(path, key, state.st_size, state.st_mtime_ns, state.st_ino)
    except OSError as e:
        raise ConfigError(
            f"{key}: {path}: {e.strerror or e}", "give a KenLM model: .arpa, or what build_binary wrote"
        ) from e


@functools.lru_cache(maxsize=16)
def _identity(path: str, key: str, size: int, changed_ns: int, inode: int) -> str:
    """Raises: ConfigError, OSError."""
    if size > MAX_BYTES:
        raise ConfigError(f"{key}: {path} has {size} bytes; models up to {MAX_BYTES} are loaded")
    with open(path, "rb") as f:
        digest = hashlib.file_digest(f, "sha256").hexdigest()
    try:
        command = [sys.executable, "-P", "-c", _TRIAL, path]
        done = subprocess.run(command, capture_output=True, timeout=TRIAL_S + size / BYTES_PER_S, check=False)
    except subprocess.TimeoutExpired as e:
        raise ConfigError(f"{key}: {path} does not load within {e.timeout:.0f} s", "get it anew") from e
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise ConfigError(
            f"{key}: {path} is no KenLM model: {said[-1][:200] if said else f'exit status {done.returncode}'}",
            "give an .arpa file, or what build_binary wrote",
        )
    return digest


@functools.lru_cache(maxsize=4)
def _load(path: str, digest: str) -> Any:
    return library().Model(path)


def scores(path: str, key: str, texts: Iterable[str], unit: Unit) -> np.ndarray:
    """int32 of N; UNSCORED for a text without words.

    Args:
        unit: `document`: over all words; `paragraph`: the median of the lines that have words, the lower of two.
    """
    model = _load(path, identity(path, key))
    return np.array([_score(model, text, unit) for text in texts], np.int32)


def _score(model: Any, text: str, unit: Unit) -> int:
    lines = [line for line in text.split("\n") if line.split()]
    if not lines:
        return UNSCORED
    if unit == "paragraph":
        return statistics.median_low(_fixed(*_logarithm(model, line)) for line in lines)
    pairs = [_logarithm(model, line) for line in lines]
    return _fixed(math.fsum(log for log, _ in pairs), sum(count for _, count in pairs))


def _logarithm(model: Any, line: str) -> tuple[float, int]:
    """Sum of the decimal logarithms of a line's words and its end, and how many those are."""
    words = line.replace("\0", " ").split()
    pieces = [words[i : i + _MAX_WORDS] for i in range(0, len(words), _MAX_WORDS)]
    total = math.fsum(float(model.score(" ".join(piece), bos=True, eos=True)) for piece in pieces)
    return total, len(words) + len(pieces)


def _fixed(log: float, count: int) -> int:
    """-1000 log10 of the perplexity, half to even."""
    return max(round(1000 * log / count), -LIMIT)
