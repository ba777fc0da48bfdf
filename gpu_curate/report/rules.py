"""Every rule that a document failed, and documents that stand for it."""

from __future__ import annotations

from typing import Any

from gpu_curate.report.charts import Segment, bar
from gpu_curate.report.markup import Html, count, details, plural, section, share, table, tag
from gpu_curate.report.reasons import NOT_DRAWN, group, meaning, ordered
from gpu_curate.report.samples import MAX_PARTITIONS, Document, Drawn, Library, difference, draw_samples, excerpt
from gpu_curate.stages import Context


def rules(facts: dict[str, Any], context: Context, library: Library) -> Html:
    dropped = {r: n for r, n in facts["documents"]["dropped"].items() if r != NOT_DRAWN}
    failing = facts["failing"]
    total = facts["documents"]["read"] - facts["documents"]["rejected"]
    rows = []
    most = max(failing.values(), default=0)
    for reason in ordered({**failing, **dropped}):
        any_, first = failing.get(reason, 0), dropped.get(reason, 0)
        segments = [
            Segment(first, group(reason), f"{reason}: first failing rule of {plural(first, 'document')}"),
            Segment(
                any_ - first,
                f"{group(reason)} pale",
                f"{plural(any_ - first, 'document')} failed it and an earlier rule",
            ),
        ]
        name = [
            tag("span", reason, class_="name"),
            " ",
            tag("small", meaning(reason, context.config)),
            bar(segments, most),
        ]
        rows.append([name, any_, share(any_, total), first])
    lead = (
        "How many documents fail each rule at all, and how many fail it first and are counted under it. "
        "A rule with many failures and few first ones mostly repeats what earlier rules say."
    )
    found = table(("rule", "fail it", "of all", "fail it first"), rows, class_="funnel") if rows else None
    return section("rules", "Rules", lead if rows else "No document failed a rule.", found, _samples(context, library))


def _samples(context: Context, library: Library) -> list[Html]:
    drawn, parts = draw_samples(context)
    if context.has("contamination"):  # has a section of its own
        drawn.pop("contaminated", None)
    documents = library.read([i for own in drawn.values() for s in own for i in (s.doc_id, s.partner) if i is not None])
    blocks = []
    for reason in ordered(drawn):
        summary = [
            tag("i", class_=group(reason)),
            tag("span", reason, class_="name"),
            " ",
            tag("small", meaning(reason, context.config)),
        ]
        shown = [_sample(reason, s, documents) for s in drawn[reason]]
        blocks.append(details(summary, shown, open_=reason == "fuzzy_duplicate"))
    of = f"{plural(len(parts), 'partition')} ({', '.join(parts)}; at most {MAX_PARTITIONS} are opened)"
    note = (
        f"Drawn by hash from {of}, so the same run shows the same documents. Fuzzy duplicates: the least similar "
        "pair, the most similar one, and one between."
    )
    return [tag("h3", "Samples"), tag("p", note), *blocks]


def _sample(reason: str, sample: Drawn, documents: dict[int, Document]) -> Html:
    document = documents[sample.doc_id]
    if not reason.endswith("_duplicate") or sample.partner is None:
        return card(document, [(excerpt(document.text), False)], f"{count(sample.tokens)} tokens", sample.score)
    partner = documents[sample.partner]
    similarity = "not measured" if sample.jaccard is None else f"{sample.jaccard:.3f}"
    left, right = difference(document.text, partner.text)
    return tag(
        "div",
        card(document, left, f"removed, Jaccard {similarity}"),
        card(partner, right, "item of the reference set" if reason == "reference_duplicate" else "survivor"),
        class_="pair",
    )


def card(document: Document, pieces: list[tuple[str, bool]], *notes: object) -> Html:
    """An excerpt with its place. Pieces that are pointed out are marked."""
    text = [tag("mark", t) if marked else t for t, marked in pieces]
    where = f"{document.source}:{document.path}:{document.row}"
    about = [
        tag("span", n)
        for n in (*notes, f"{count(document.chars)} characters", f"doc_id {document.doc_id}")
        if n is not None
    ]
    return tag(
        "article",
        tag("p", about, class_="about"),
        tag("blockquote", text or tag("em", "no text"), dir="auto"),
        tag("p", tag("code", where), class_="where"),
        class_="sample",
    )
