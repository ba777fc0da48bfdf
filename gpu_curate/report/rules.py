"""Every rule that a document failed, and documents that stand for it."""

from __future__ import annotations

from typing import Any

from gpu_curate.config import Config
from gpu_curate.report.charts import Segment, bar
from gpu_curate.report.markup import Html, count, details, plural, section, share, table, tag
from gpu_curate.report.reasons import NOT_DRAWN, group, meaning, ordered
from gpu_curate.report.samples import MAX_PARTITIONS, Document, Dropped, Library, difference, dropped_samples, excerpt
from gpu_curate.stages import Context


def rules(facts: dict[str, Any], context: Context, library: Library) -> Html:
    config = context.config
    dropped = {r: n for r, n in facts["documents"]["dropped"].items() if r != NOT_DRAWN}
    failing = facts["failing"]
    if not failing:
        return section("rules", "Rules", "No document failed a rule.")
    total = facts["documents"]["read"] - facts["documents"]["rejected"]
    rows = []
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
            tag("small", meaning(reason, config)),
            bar(segments, max(failing.values())),
        ]
        rows.append([name, any_, share(any_, total), first])
    samples, parts = dropped_samples(context)
    lead = (
        "How many documents fail each rule at all, and how many fail it first and are counted under it. "
        "A rule with many failures and few first ones mostly repeats what earlier rules say."
    )
    return section(
        "rules",
        "Rules",
        lead,
        table(("rule", "fail it", "of all", "fail it first"), rows, class_="funnel"),
        tag("h3", "Samples"),
        tag(
            "p",
            f"Drawn by hash from {plural(len(parts), 'partition')} ({', '.join(parts)}; at most {MAX_PARTITIONS} are opened), so the same "
            "run shows the same documents. Fuzzy duplicates: the least similar pair, the most similar one, and one between.",
        ),
        _samples(samples, config, library),
    )


def _samples(samples: dict[str, list[Dropped]], config: Config, library: Library) -> list[Html]:
    ids = [s.doc_id for own in samples.values() for s in own]
    partners = [s.partner for own in samples.values() for s in own if s.partner is not None]
    documents = library.read([*ids, *partners])
    blocks = []
    for reason in ordered({r: len(s) for r, s in samples.items()}):
        shown = [s for s in samples[reason] if s.doc_id in documents]
        if reason == "contaminated" or not shown:  # contamination has a section of its own
            continue
        summary = [
            tag("i", class_=group(reason)),
            tag("span", reason, class_="name"),
            tag("small", meaning(reason, config)),
        ]
        blocks.append(details(summary, [_sample(s, documents) for s in shown], open_=reason == "fuzzy_duplicate"))
    return blocks


def _sample(sample: Dropped, documents: dict[int, Document]) -> Html:
    document = documents[sample.doc_id]
    partner = documents.get(sample.partner) if sample.partner is not None else None
    if partner is None:
        return card(document, [(excerpt(document.text), False)], f"{count(sample.tokens)} tokens", sample.score)
    similarity = "not measured" if sample.jaccard is None else f"{sample.jaccard:.3f}"
    left, right = difference(document.text, partner.text)
    return tag(
        "div",
        card(document, left, f"removed, Jaccard {similarity}"),
        card(partner, right, "survivor"),
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
