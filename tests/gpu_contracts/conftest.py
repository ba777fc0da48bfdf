"""Tests against the real RAPIDS, CuPy and NeMo Curator, without a GPU. scripts/test-gpu-contracts makes their environment."""

from __future__ import annotations

import importlib.util

collect_ignore_glob = (
    [] if importlib.util.find_spec("cudf") and importlib.util.find_spec("nemo_curator") else ["test_*"]
)
