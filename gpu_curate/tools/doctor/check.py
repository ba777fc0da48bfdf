"""A line of the result, and how it is worded."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
from dataclasses import dataclass
from typing import Literal

MIN_FREE_BYTES = 1 << 30
Status = Literal["ok", "missing", "failed", "unused"]


@dataclass(frozen=True)
class Check:
    """One line of the result.

    Args:
        status: ok; missing: optional and absent or not usable now; failed: required or installed, and broken; unused: what a
            machine without an NVIDIA GPU has no use for.
        remedy: what would do, None if nothing has to be done.
        for_gpu: the GPU path cannot do without it.
    """

    group: str
    name: str
    status: Status
    detail: str
    remedy: str | None = None
    for_gpu: bool = False


REINSTALL = "reinstall: pip install --force-reinstall gpu_curate"


def error_text(e: BaseException) -> str:
    return f"{type(e).__name__}: {' '.join(str(e).split())}"[:300]


def version_of(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def gigabytes(n: float) -> str:
    return f"{n / 1e9:.1f} GB"
