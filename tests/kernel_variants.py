"""Every kernels.cu and the macros it is compiled with: what the NVRTC test and scripts/sass_table go through."""

from __future__ import annotations

from gpu_curate.ops.text_stats import gpu as text_stats

VARIANTS: dict[str, list[tuple[str, ...]]] = {
    "words": [()],
    "minhash": [
        ("SHINGLE_WORDS=5", "FAMILY=1", "LANE_ROWS=7"),  # the default: 112 rows
        ("SHINGLE_WORDS=5", "FAMILY=0", "LANE_ROWS=7"),
        ("SHINGLE_WORDS=32", "FAMILY=0", "LANE_ROWS=12"),  # the most registers
    ],
    "bands": [()],
    "content_hash": [()],
    "ngrams": [()],
    "judge": [("WEIGHT=signed char",), ("WEIGHT=short",)],
    "text_stats": [text_stats.DEFINES],
}
