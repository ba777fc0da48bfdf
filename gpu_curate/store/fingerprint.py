"""Fingerprints: what a box's content depends on, as one short hash.

code (see `store.code`), the part of the config it reads, the versions of the libraries it uses and
the fingerprints of its inputs. Same fingerprint, same bytes; anything else is another folder.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
from typing import Any

DIGITS = 16


def digest(value: Any) -> str:
    """16 hex digits of plain data, independent of the order of keys."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, default=str)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:DIGITS]


def versions(distributions: tuple[str, ...]) -> dict[str, str | None]:
    """Installed version of each distribution, None where it is not installed."""
    found: dict[str, str | None] = {}
    for name in distributions:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = None
    return found
