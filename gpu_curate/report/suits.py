"""Warnings about rules that drop much of a source: perhaps they were not made for its language or script."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np

from gpu_curate.config import ENGLISH
from gpu_curate.quality import rules
from gpu_curate.quality.rule import Rule
from gpu_curate.report.reasons import group, meaning, ordered
from gpu_curate.stages import Context
from gpu_curate.stages.documents.counts import DocumentCounts
from gpu_curate.stages.partition_text import host_text, verified_text
from gpu_curate.stages.reasons import NOT_DRAWN
from gpu_curate.stages.rejects import REJECTED
from gpu_curate.stages.scores import ScoreCounts
from gpu_curate.text.scripts import commonest

MUCH, MOST = 1 / 3, 1 / 2
_SAMPLE_DOCUMENTS, _SAMPLE_CHARS = 50, 400  # of a source, to see its script


def rule_warnings(context: Context, by_source: Mapping[str, Counter[str]]) -> list[str]:
    """A warning for every rule that drops more than a third of a source, another for one that drops more than half.

    Args:
        by_source: source → reason, or `kept` → documents. Those that were rejected are none of it.
    Duplicates are not meant (`dedup.fuzzy.max_source_share` is for them), nor what a mixture leaves.
    """
    of_reason = {rule.name: rule for rule in rules(context.config.quality)}
    found = []
    for source, counts in by_source.items():
        total = sum(n for reason, n in counts.items() if reason not in (REJECTED, NOT_DRAWN))
        for reason in ordered(counts, context.config):
            if (
                reason in ("kept", REJECTED, NOT_DRAWN)
                or group(reason) == "duplicate"
                or counts[reason] <= MUCH * total
            ):
                continue
            n = counts[reason]
            much = "most of" if n > MOST * total else "more than a third of"
            text = f"source {source}: {reason} drops {much} it, {n} of {total} documents ({n / total:.0%})"
            about = [meaning(reason, context.config), _advice(context, source, of_reason.get(reason), reason)]
            found.append("; ".join([text, *(a for a in about if a)]))
    return found


def _advice(context: Context, source: str, rule: Rule | None, reason: str) -> str:
    """Whether the rule suits the source, and what to set."""
    script, language = script_of(context, source), language_of(context, source)
    written = _written(script, language)
    if rule is None:
        return f"most of the source is {written}" if reason == "language" and written else ""
    key = rule.path
    suits = rule.suits(script, language)
    if suits is False:
        other = ", or stop_words of that language" if rule.key == "min_stop_words" else ""
        return f"the rule is made for {rule.made_for} and most of the source is {written}: set {key}: null{other}"
    if suits is None and rule.made_for == ENGLISH:
        return f"the rule is made for English; if the source is in another language, set {key}: null"
    return f"look at what it drops; {key} moves the bound, null switches it off"


def _written(script: str | None, language: str | None) -> str:
    from gpu_curate.text.language import name_of

    if language is not None:
        return f"{name_of(language)} ({language})"
    return f"in {script} script" if script else ""


def script_of(context: Context, source: str) -> str | None:
    """The script of most letters of some documents of a source."""
    box = context.box("documents")
    found = next((r for r in box.receipts(DocumentCounts) if r.counts.sources.get(source)), None)
    if found is None:
        return None
    part, n = found.part, found.counts.documents
    rows = np.unique(np.linspace(0, n - 1, min(n, _SAMPLE_DOCUMENTS)).astype(np.int64))
    text = host_text(verified_text(box, part), rows)
    return commonest(text.raw(i).decode("utf-8", "replace")[:_SAMPLE_CHARS] for i in range(len(text)))


def language_of(context: Context, source: str) -> str | None:
    """The label of most documents of a source; None without a language model or where most are unknown."""
    parts = [r.part for r in context.receipts("documents", DocumentCounts) if r.counts.sources.get(source)]
    counts: Counter[str] = Counter()
    for part in parts:  # a partition holds one source
        counts.update(context.box("scores").counts(part, ScoreCounts).languages)
    label = max(sorted(counts), key=counts.__getitem__) if counts else "unknown"
    return None if label == "unknown" else label
