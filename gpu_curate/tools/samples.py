"""Documents that stand for a reason, with what tripped the rule pointed out: `gpu-curate samples`.

The same run shows the same ones: those of the lowest fmix64(doc_id), whatever the partitions.
"""

from __future__ import annotations

import heapq
from typing import Any

import numpy as np

from gpu_curate.config import did_you_mean
from gpu_curate.errors import ConfigError
from gpu_curate.ops.mix import fmix64
from gpu_curate.report.marks import Span, marks
from gpu_curate.report.reasons import meaning, ordered
from gpu_curate.report.samples import Document, Library, differences, jaccard_to_survivor, overlap, score_of
from gpu_curate.stages import Context
from gpu_curate.stages.decisions import DecisionCounts
from gpu_curate.stages.duplicates import FIRST_REFERENCE
from gpu_curate.stages.order import benchmarks_of
from gpu_curate.stages.reasons import NOT_DRAWN
from gpu_curate.stages.rule_values import bits_of_run


def samples(context: Context, reason: str, n: int) -> list[dict[str, Any]]:
    """Documents dropped for a reason, or kept ones.

    Args:
        context: of `finished.open_run`.
        reason: `family:rule`, another reason, or `kept`.
    Returns:
        Per document doc_id, source, path, row, tokens, chars, reason, why (the rule with its threshold), score, text (its
        first MiB), marks (spans of the text that tripped the rule); partner: the same of the survivor or the benchmark's
        item, with its marks, and jaccard; shared_words where a benchmark's item was found.
    Raises:
        ConfigError: no such reason, or it dropped nothing; names those that did.
    Cost: three columns of decisions/, and the row groups that hold a chosen document.
    """
    counts = _counts(context)
    if not counts.get(reason):
        there = ordered(counts, context.config)
        what = "dropped no document" if reason in (*bits_of_run(context), NOT_DRAWN) else "no such reason"
        near = did_you_mean(reason, there)
        raise ConfigError(
            f"samples: {reason}: {what}{near}", f"there are {', '.join(f'{r} ({counts[r]:,})' for r in there)}"
        )
    chosen = _choose(context, reason, n)
    ids = [c["doc_id"] for c in chosen] + [c["partner"] for c in chosen if c["partner"] is not None]
    documents = Library(context).read(ids)
    return [_show(context, reason, documents, **c) for c in chosen]


def _counts(context: Context) -> dict[str, int]:
    counts: dict[str, int] = {}
    for receipt in context.receipts("decisions", DecisionCounts):
        for reason, count in receipt.counts.by_reason.documents.items():
            counts[reason] = counts.get(reason, 0) + count
    return counts


def _choose(context: Context, reason: str, n: int) -> list[dict[str, Any]]:
    """doc_id, partner, tokens, score and jaccard of the n documents of lowest key."""
    box = context.box("decisions")
    best: list[tuple[int, str, int]] = []  # key, partition, row
    for receipt in box.receipts(DecisionCounts):
        if not receipt.counts.by_reason.documents.get(reason):
            continue
        table = box.read_table(receipt.part, ["doc_id", "reason"])
        reasons = table["reason"].combine_chunks()
        codes, names = reasons.indices.fill_null(-1).to_numpy(), reasons.dictionary.to_pylist()
        rows = np.flatnonzero(codes == (-1 if reason == "kept" else names.index(reason)))
        keys = fmix64(table["doc_id"].to_numpy()[rows].astype(np.uint64)).tolist()
        own = ((key, receipt.part, row) for key, row in zip(keys, rows.tolist(), strict=True))
        best = heapq.nsmallest(n, [*best, *own])
    chosen: dict[tuple[str, int], dict[str, Any]] = {}
    for part in {p for _, p, _ in best}:
        rows = np.array(sorted(row for _, p, row in best if p == part))
        table = box.read_table(part, ["doc_id", "partner", "tokens"])
        doc_id_N = table["doc_id"].to_numpy()
        similar = jaccard_to_survivor(context, doc_id_N)[rows]
        scores = score_of(context, part, reason, rows)
        for row, one, jaccard, score in zip(rows.tolist(), table.take(rows).to_pylist(), similar, scores, strict=True):
            chosen[part, row] = {**one, "score": score, "jaccard": None if np.isnan(jaccard) else float(jaccard)}
    return [chosen[part, row] for _, part, row in best]


def _show(
    context: Context, reason: str, documents: dict[int, Document], doc_id: int, partner: int | None, **facts: Any
) -> dict[str, Any]:
    document = documents[doc_id]
    jaccard = facts.pop("jaccard")
    shown = {**_place(document), "reason": reason, "why": meaning(reason, context.config), **facts}
    shown |= {"text": document.text, "marks": marks(document.text, reason)}
    other = documents.get(partner) if partner is not None else None
    if other is None:
        return shown
    if reason == "contaminated":
        n = max((r.ngram_words for r, _ in benchmarks_of(context.config)), default=13)
        found = overlap(document.text, other.text, n)
        return {
            **shown,
            "partner": _place(other) | {"text": other.text, "marks": []},
            **_overlap_marks(document.text, found),
        }
    what = "item of the reference set" if doc_id < FIRST_REFERENCE <= other.doc_id else "survivor"
    own, of_other = differences(document.text, other.text)
    partner_shown = {**_place(other), "what": what, "jaccard": jaccard, "text": other.text, "marks": of_other}
    return {**shown, "marks": own, "partner": partner_shown}


def _place(document: Document) -> dict[str, Any]:
    return {
        "doc_id": document.doc_id,
        "source": document.source,
        "path": document.path,
        "row": document.row,
        "chars": document.chars,
    }


def _overlap_marks(text: str, found: tuple[list[tuple[str, bool]], int] | None) -> dict[str, Any]:
    """Where the shared words stand in the whole text."""
    if found is None:
        return {"marks": [], "shared_words": None}
    piece = next(p for p, marked in found[0] if marked)
    start = text.find(piece)
    spans: list[Span] = [(start, start + len(piece))] if start >= 0 else []
    return {"marks": spans, "shared_words": found[1]}
