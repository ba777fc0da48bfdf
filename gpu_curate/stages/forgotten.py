"""Texts that must not be kept: a list of content hashes that stays in the run directory. `gpu-curate forget` writes it.

By content, not by doc_id: an equal text in a file that is added later is not kept either.

# N documents, F hashes
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
from pathlib import Path
from typing import Any

import numpy as np

from gpu_curate.config import Config
from gpu_curate.errors import ConfigError

LIST = "forgotten.txt"  # in a run directory: xxh3-128 of the normalised text in hex, a line each, in order
_HASH = re.compile(r"[0-9a-f]{32}")


def remembering(config: Config, run: Path) -> Config:
    """The config with the list of its run directory, where the recipe names no other."""
    own = run / LIST
    return config.model_copy(update={"forget": str(own)}) if config.forget is None and own.is_file() else config


def list_identity(path: str) -> str:
    """What tells a list from another, for a fingerprint. Raises: ConfigError, as `hashes`."""
    return hashlib.sha256(hashes(path).tobytes()).hexdigest()


def hashes(path: str) -> np.ndarray[Any, np.dtype[np.uint64]]:
    """The list: uint64 (F, 2), high and low halves, in order, each once.

    Raises:
        ConfigError: no such file, or a line that is no hash: file, line and remedy.
    """
    try:
        stat = os.stat(path)
    except OSError as e:
        raise ConfigError(f"forget: {path}: {e.strerror}", "gpu-curate forget writes such a list") from e
    return _hashes(path, stat.st_mtime_ns, stat.st_size)


@functools.lru_cache(maxsize=2)
def _hashes(path: str, *_: int) -> np.ndarray[Any, np.dtype[np.uint64]]:
    found = set()
    for number, line in enumerate(Path(path).read_text(encoding="utf-8", errors="replace").splitlines(), 1):
        value = line.partition("#")[0].strip().lower()
        if value and not _HASH.fullmatch(value):
            raise ConfigError(
                f"forget: {path}: line {number}: {value[:60]!r} is no xxh3-128 of a text (32 hex digits)",
                "gpu-curate forget RUN --list FILE takes doc_ids, places and URLs, too",
            )
        if value:
            found.add(int(value, 16))
    halves = [(value >> 64, value & ((1 << 64) - 1)) for value in sorted(found)]
    return np.array(halves, np.uint64).reshape(-1, 2)


def listed(path: str, content_hi: np.ndarray[Any, Any], content_lo: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """bool of N: the text of this hash is on the list."""
    known = hashes(path)
    if not len(known):
        return np.zeros(len(content_hi), np.bool_)
    maybe = np.flatnonzero(np.isin(content_lo, known[:, 1]))
    both = set(map(tuple, known.tolist()))
    found_N = np.zeros(len(content_hi), np.bool_)
    found_N[[i for i in maybe.tolist() if (int(content_hi[i]), int(content_lo[i])) in both]] = True
    return found_N
