"""Documents on either side of a judge's thresholds, for the report: what the number means is best seen in texts."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gpu_curate.ops.mix import fmix64
from gpu_curate.quality import own_rules
from gpu_curate.quality.judges import COLUMN, UNSCORED, JudgeRule
from gpu_curate.report.markup import Html, details, plural, tag
from gpu_curate.report.rules import card
from gpu_curate.report.samples import MAX_PARTITIONS, Library, excerpt
from gpu_curate.stages import Context
from gpu_curate.stages.judged import thresholds

EACH = 3  # documents on either side
_PLACES = 8  # sources or groups whose threshold is told


class Threshold(NamedTuple):
    """A number that a judge's score is compared with: the score, where it comes from, and the lowest score that stays (of `max`:
    the highest)."""

    score: str
    label: str
    bound: str
    limit: int


def threshold_of(context: Context) -> list[Threshold]:
    """The thresholds of every judge: those of the recipe, and those that a top share came to."""
    judges = context.config.quality.judges
    found = []
    tops = thresholds(context, {n: j for n, j in judges.items() if j.top_share is not None})
    for rule in own_rules(context.config.quality):
        if not isinstance(rule, JudgeRule) or rule.bound == "no" or rule.limit is None:
            continue
        if rule.bound != "top":
            found.append(Threshold(rule.score, f"{rule.bound} {rule.limit:g}", rule.bound, int(rule.limit)))
            continue
        places = tops[rule.score.removeprefix(COLUMN)]
        for place, limit in list(places.items())[:_PLACES]:
            of = " ".join(place.split("\t")).strip()
            found.append(
                Threshold(rule.score, f"top {rule.limit:.4g}{f' of {of}' if of else ''}: {limit}", "min", limit)
            )
    return found


def around(context: Context, library: Library) -> Html | None:
    """Documents whose score is next to a threshold, below and above it; None where no judge decides."""
    if not context.config.quality.judges or not context.has("scores"):
        return None
    blocks = []
    for threshold in threshold_of(context):
        below, above = _nearest(context, threshold)
        documents = library.read([doc_id for doc_id, _ in (*below, *above)])
        for name, side in (("just below", below), ("just above", above)):
            cards = [
                card(documents[doc_id], [(excerpt(documents[doc_id].text), False)], f"{threshold.score} {score}")
                for doc_id, score in side
            ]
            if cards:
                title = f"{threshold.score}, {threshold.label}: {plural(len(cards), 'document')} {name}"
                blocks.append(details([tag("span", title, class_="name")], cards))
    return tag("div", blocks) if blocks else None


def _nearest(context: Context, threshold: Threshold) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """(doc_id, score) of the documents nearest to a threshold on either side, in the first partitions; equals by hash."""
    sides: tuple[list[tuple[int, int, int]], list[tuple[int, int, int]]] = ([], [])
    for part in context.box("documents").parts()[:MAX_PARTITIONS]:
        (score_N,) = context.box("scores").columns(part, threshold.score)
        (doc_id_N,) = context.box("documents").columns(part, "doc_id")
        first_above = threshold.limit if threshold.bound == "min" else threshold.limit + 1
        gap_N = score_N.astype(np.int64) - first_above
        known_N = score_N != UNSCORED
        for side, own_N in zip(sides, (known_N & (gap_N < 0), known_N & (gap_N >= 0)), strict=True):
            rows = np.flatnonzero(own_N)
            order = rows[np.lexsort((fmix64(doc_id_N[rows].astype(np.uint64)), np.abs(gap_N[rows])))][:EACH]
            side.extend((abs(int(gap_N[r])), int(doc_id_N[r]), int(score_N[r])) for r in order)
    below, above = ([(doc_id, score) for _, doc_id, score in sorted(side)[:EACH]] for side in sides)
    return below, above
