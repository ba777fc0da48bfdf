"""Cuts: how much of what was cut out of documents, by rule, and where most was."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from gpu_curate.report.markup import Html, count, details, join, plural, section, share, size, table, tag
from gpu_curate.report.samples import Document, Library
from gpu_curate.stages import Context
from gpu_curate.stages.cut_tokens import CutTokenCounts
from gpu_curate.stages.cuts import Cut, CutCounts, cuts_of

_SHOWN = 5  # documents of which most is cut
_MAX_PARTITIONS = 4  # with most cuts, that they are taken from
_CHARS = 400  # of a range that is shown


def cut_facts(context: Context) -> dict[str, Any] | None:
    """What was cut: documents, tokens, bytes; by rule its documents, ranges and bytes. None where the recipe cuts nothing."""
    receipts = context.receipts("cuts", CutCounts)
    if not context.has("cuts"):
        return None
    made = [r.counts for r in context.receipts("cut_tokens", CutTokenCounts)]
    rules: dict[str, Counter[str]] = {}
    for receipt in receipts:
        for rule, counts in receipt.counts.rules.items():
            rules.setdefault(rule, Counter()).update(counts)
    return {
        "documents": sum(c.cut_documents for c in made),
        "tokens": sum(c.cut_tokens for c in made),
        "bytes": sum(c.cut_bytes for c in made),
        "rules": {rule: dict(rules[rule]) for rule in sorted(rules)},
    }


def cuts(facts: dict[str, Any], context: Context, library: Library) -> Html | None:
    """None where the recipe cuts nothing."""
    cut = facts.get("cuts")
    if cut is None:
        return None
    total = facts["documents"]["read"] - facts["documents"]["rejected"]
    rows = [
        [rule, c["documents"], share(c["documents"], total), c["ranges"], size(c["bytes"])]
        for rule, c in cut["rules"].items()
    ]
    lead = join(
        (
            f"{count(cut['tokens'])} tokens and ",
            size(cut["bytes"]),
            f" of text were cut out of {plural(cut['documents'], 'document')}, before their tokens were made. ",
            "Ranges that touch are cut as one; the blanks on either side are joined.",
        )
    )
    columns = ("rule", "documents", "of all", "ranges", "text in them")
    return section("cuts", "Cuts", lead, table(columns, rows), _most(context, library))


def _most(context: Context, library: Library) -> Html | None:
    """The documents of which most is cut, of the partitions with most cuts."""
    found: list[tuple[int, int, list[Cut]]] = []
    by_most = sorted(context.receipts("cuts", CutCounts), key=lambda r: (-r.counts.cut_documents, r.part))
    for receipt in by_most[:_MAX_PARTITIONS]:
        of = cuts_of(context, receipt.part)
        most = sorted(of, key=lambda n: (-sum(c.end - c.start for c in of[n]), n))[:_SHOWN]
        if most:
            (doc_id_N,) = context.box("documents").columns(receipt.part, "doc_id")
            found += [(sum(c.end - c.start for c in of[n]), int(doc_id_N[n]), of[n]) for n in most]
    found = sorted(found, key=lambda f: (-f[0], f[1]))[:_SHOWN]
    documents = library.read([doc_id for _, doc_id, _ in found])
    shown = [_document(documents[doc_id], ranges) for _, doc_id, ranges in found if doc_id in documents]
    return details("Documents of which most was cut", shown) if shown else None


def _document(document: Document, ranges: list[Cut]) -> Html:
    lines = [
        tag("li", tag("code", c.rule), f" bytes {count(c.start)} to {count(c.end)}: ", tag("q", text))
        for c, text in zip(ranges, cut_texts(document.text, ranges), strict=True)
    ]
    where = f"{document.source}: {document.path}, row {document.row}"
    return tag("div", tag("h3", f"doc_id {document.doc_id}"), tag("p", where), tag("ul", lines))


def cut_texts(text: str, ranges: list[Cut]) -> list[str]:
    """What each range held, its first characters; "" of one behind what was read of the document."""
    data = np.frombuffer(text.encode("utf-8"), np.uint8)
    return [
        data[c.start : min(c.end, c.start + 4 * _CHARS)].tobytes().decode("utf-8", "ignore")[:_CHARS] for c in ranges
    ]
