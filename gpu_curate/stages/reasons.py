"""Why a document is dropped: the names, their bits in `failing`, and the order in which they are tried."""

from __future__ import annotations

from collections.abc import Mapping

from gpu_curate.quality import MAX_RULES
from gpu_curate.stages.rejects import REJECTED

# The bits of these are the same in every run; those of quality rules are below MAX_RULES, see `quality.bits`.
OTHER_REASONS = (
    "empty",
    "language",
    "exact_duplicate",
    "fuzzy_duplicate",
    "reference_duplicate",
    "contaminated",
    "too_few_tokens",
    REJECTED,
)
OTHER_BITS = {name: MAX_RULES + i for i, name in enumerate(OTHER_REASONS)}


def in_order(rules: Mapping[str, int]) -> dict[str, int]:
    """Reason → its bit, in the order in which they are tried; quality rules come with theirs."""
    first = (REJECTED, "empty", "language")
    return {
        **{name: OTHER_BITS[name] for name in first},
        **rules,
        **{name: bit for name, bit in OTHER_BITS.items() if name not in first},
    }
