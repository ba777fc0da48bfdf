"""Fingerprints: what a box's content depends on, as one short hash.

code (the source text of the modules it names), the part of the config it reads, the versions of the libraries it uses and
the fingerprints of its inputs. Same fingerprint, same bytes; anything else is another folder.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import json
from pathlib import Path
from typing import Any

_PACKAGE = Path(__file__).parents[1]
DIGITS = 16


def digest(value: Any) -> str:
    """16 hex digits of plain data, independent of the order of keys."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, default=str)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:DIGITS]


_SAME_BYTES = {"gpu.py", "kernels.cu", "common.cu", "plain.py"}  # GPU twins and a peer: the same bytes, or wrong


@functools.cache
def code_digest(names: tuple[str, ...]) -> str:
    """Hash of modules, packages and data files below gpu_curate ("ops.words", "stages.tokens", "text.charsets").

    A package stands for all its files, a module for the files of its name: wikitext.py and wikitext.yaml.
    """
    state = hashlib.sha256()
    for name in sorted(set(names)):
        path = _PACKAGE / name.replace(".", "/")
        files = sorted(
            p for p in (path.rglob("*") if path.is_dir() else path.parent.glob(f"{path.name}.*")) if p.is_file()
        )
        assert files, f"{name}: no such module"
        for file in files:
            if file.name not in _SAME_BYTES and "__pycache__" not in file.parts:
                state.update(str(file.relative_to(_PACKAGE)).encode() + b"\0" + file.read_bytes() + b"\0")
    return state.hexdigest()[:DIGITS]


def versions(distributions: tuple[str, ...]) -> dict[str, str | None]:
    """Installed version of each distribution, None where it is not installed."""
    found: dict[str, str | None] = {}
    for name in distributions:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = None
    return found
