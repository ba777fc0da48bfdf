"""The ops: each a package with its contract, its CPU twin (cpu.py, Numba) and its GPU twin (gpu.py, kernels.cu).

    words           text → hashes of its words               content_hash   text → xxh3-128
    minhash         words → shingles → signatures            text_stats     text → every statistic of the quality rules
    bands           signatures → band hashes                 ngrams         text → what it shares with reference items
    components      band hashes → candidate pairs → components
    normalize       text → what normalising it takes, and the text normalised (CPU only)

Both twins return the same integers, bit for bit; where the text lies decides which one runs. `catalogue` lists the ops for
whoever walks them all.
"""

from __future__ import annotations

import importlib
from typing import Any


def twin(package: str, on_gpu: bool) -> Any:
    """The module of an op's twin: gpu_curate.ops.PACKAGE.gpu or .cpu, imported when it is first needed."""
    return importlib.import_module(f"gpu_curate.ops.{package}.{'gpu' if on_gpu else 'cpu'}")
