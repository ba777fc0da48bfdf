"""What the accounts say of reference sets that documents are searched for."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from gpu_curate.stages import Context
from gpu_curate.stages.contamination import ContaminationCounts, self_test, tested
from gpu_curate.stages.item_counts import ItemCounts
from gpu_curate.stages.ngrams import NgramCounts
from gpu_curate.stages.order import benchmarks_of

if TYPE_CHECKING:
    from gpu_curate.config import Config

PLANTED_FOUND = "a planted copy of an item is found"


def overlap_facts(context: Context) -> dict[str, Any]:
    """Set → what was found of it."""
    receipts = context.receipts("contamination", ContaminationCounts)
    if not receipts:
        return {}
    sets = benchmarks_of(context.config)
    results = tested(context, sets) or self_test(context, sets)
    ngrams, found = context.receipts("ngrams", NgramCounts), context.receipts("items", ItemCounts)
    return {
        r.name: {
            "matches": sum(x.counts.matches[r.name] for x in receipts),
            "max_coverage": r.max_coverage,
            "items": results[r.name].items,
            "items_too_short": results[r.name].too_short,
            "self_test": results[r.name].wrong or PLANTED_FOUND,
            "on_match": r.on_match,
            "items_found": dataclasses.asdict(found[0].counts.sets[r.name]) if found else {},
            "ngrams": ngrams[0].counts.matched[r.name] if ngrams else 0,
            "templates": ngrams[0].counts.templates[r.name] if ngrams else 0,
            "commonest": [dataclasses.asdict(c) for c in ngrams[0].counts.commonest[r.name]] if ngrams else [],
        }
        for r, _ in sets
    }


def overlap_warnings(config: Config, contamination: dict[str, Any], total: int) -> list[str]:
    """Sets that can find nothing, or much of which cannot be found. `total`: documents."""
    silent = {n: c for n, c in contamination.items() if c["matches"] == 0 and c["self_test"] != PLANTED_FOUND}
    found = [f"reference {name}: 0 hits over {total:,} documents; {c['self_test']}" for name, c in silent.items()]
    return found + _too_short(config, contamination)


def _too_short(config: Config, contamination: dict[str, Any]) -> list[str]:
    """A warning for every set of which a tenth or more is too short to be found, but something can be."""
    found = []
    for reference in config.references:
        counts = contamination.get(reference.name)
        if counts and counts["items"] > counts["items_too_short"] >= counts["items"] / 10 > 0:
            what = f"have fewer than {reference.ngram_words} words and are not looked for"
            remedy = "whole_items: true looks for them as wholes"
            if reference.whole_items:
                what = f"are in a script without spaces and have fewer than {reference.min_unspaced_words} words"
                remedy = "min_unspaced_words"
            found.append(
                f"reference {reference.name}: {counts['items_too_short']:,} of {counts['items']:,} items {what} ({remedy})"
            )
    return found


def overlap_notes(units: dict[str, Any], contamination: dict[str, Any]) -> list[str]:
    """What is worth a line and nothing to worry about."""
    total = units["documents"]["read"] - units["documents"]["rejected"]
    return [
        f"reference {name}: 0 hits over {total:,} documents; {PLANTED_FOUND}"
        for name, counts in contamination.items()
        if counts["matches"] == 0 and counts["self_test"] == PLANTED_FOUND
    ]
