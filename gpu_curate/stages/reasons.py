"""Why a document is dropped: the names, their bits in `failing`, and the order in which they are tried."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from gpu_curate.errors import ConfigError
from gpu_curate.quality import MAX_RULES, Quality, bits
from gpu_curate.stages.rejects import REJECTED


class Reason(NamedTuple):
    """Why a stage lets documents go: one entry here makes it known to decisions, funnel, samples, exports and report."""

    name: str
    group: str  # that the report shows it with
    meaning: str  # in words; "" where a number of the recipe says it


# Those that decisions/ gives. Their bits are the same in every run, so new ones are appended; those of quality rules are below
# MAX_RULES, see `quality.bits`.
DECIDED = (
    Reason("empty", "short", "no text left after normalisation"),
    Reason("language", "language", ""),
    Reason("exact_duplicate", "duplicate", "the same text as another document, which survives"),
    Reason("fuzzy_duplicate", "duplicate", "in one component of near-duplicates with another document, which survives"),
    Reason("reference_duplicate", "duplicate", "a duplicate of an item of a reference set (dedup_against)"),
    Reason("contaminated", "contaminated", "holds more of one benchmark item than max_coverage allows"),
    Reason("too_few_tokens", "short", ""),
    Reason(REJECTED, "rejected", ""),
)
NOT_DRAWN = "mixture:not_drawn"
# What becomes of documents that no rule drops, by the shards.
BEHIND = (
    Reason(NOT_DRAWN, "mixture", "kept by every rule, left out by the mixture's weights"),
    Reason("kept", "kept", "every rule passed"),
)
# Of a run with a list of `gpu-curate forget`; its bit is the first behind the rules of quality, see `rule_bits`.
FORGOTTEN = "forgotten"
LISTED = Reason(FORGOTTEN, "forgotten", "on the list of texts that are not to be kept (gpu-curate forget)")
BY_NAME = {reason.name: reason for reason in (*DECIDED, LISTED, *BEHIND)}
OTHER_REASONS = tuple(reason.name for reason in DECIDED)
OTHER_BITS = {name: MAX_RULES + i for i, name in enumerate(OTHER_REASONS)}


def rule_bits(quality: Quality, forget: str | None) -> dict[str, int]:
    """The bit in `failing` of the rules of quality, and of the list of forgotten texts where there is one.

    Args:
        forget: the list's file.
    Raises:
        ConfigError: there are more than fit.
    """
    found = bits(quality)
    if forget is None:
        return found
    if len(found) == MAX_RULES:
        raise ConfigError(f"quality: {MAX_RULES} rules leave no bit for forgotten texts", "leave one rule out")
    return {**found, FORGOTTEN: len(found)}


def in_order(rules: Mapping[str, int]) -> dict[str, int]:
    """Reason → its bit, in the order in which they are tried; quality rules come with theirs."""
    first = (REJECTED, "empty", "language")
    return {
        **{name: OTHER_BITS[name] for name in first},
        **rules,
        **{name: bit for name, bit in OTHER_BITS.items() if name not in first},
    }
