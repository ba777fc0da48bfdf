"""Every rule that a document failed, folded by family, and documents that stand for it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from gpu_curate.report.charts import Segment, bar
from gpu_curate.report.markup import Html, count, details, plural, section, share, table, tag
from gpu_curate.report.reasons import family, group, meaning, ordered
from gpu_curate.report.samples import MAX_PARTITIONS, Document, Drawn, Library, difference, draw_samples, excerpt
from gpu_curate.stages import Context
from gpu_curate.stages.reasons import NOT_DRAWN

_OPEN = 12  # with no more rules than this that took something, the families are unfolded


def rules(facts: dict[str, Any], context: Context, library: Library) -> Html:
    """Every rule once: how many documents fail it, fail nothing else, and are counted under it, with samples of these."""
    dropped = {r: n for r, n in facts["documents"]["dropped"].items() if r != NOT_DRAWN}
    names = ordered({**facts["failing"], **dropped}, context.config)
    samples, note = _samples(context, library)
    kept = samples.pop("kept", None)
    blocks: list[Html] = []
    for name in dict.fromkeys(family(r) for r in names):
        own = [r for r in names if family(r) == name]
        found = table(
            ("rule", "fail it", "only it", "counted here", "tokens"),
            [row for r in own for row in _rows(r, facts, context, samples.get(r))],
            class_="funnel rules",
        )
        blocks.append(found if name is None else _folded(name, own, facts, found, len(names) <= _OPEN))
    lead = (
        "How many documents fail each rule, how many fail it and nothing else, and how many are counted under it because it "
        "is the first they fail. Without the rule, exactly those of “only it” would be kept as well."
    )
    shown = details([tag("i", class_="kept"), tag("span", "kept", class_="name")], kept) if kept else None
    body = [*blocks, tag("h3", "Samples"), tag("p", note), shown]
    return section("rules", "Rules", lead if names else "No document failed a rule.", *body)


def _folded(name: str, own: list[str], facts: dict[str, Any], found: Html, open_: bool) -> Html:
    """A family of rules behind one line."""
    counted = sum(facts["documents"]["dropped"].get(r, 0) for r in own)
    only = facts["only"].get(name, 0)
    notes = f"{plural(len(own), 'rule')}, {plural(counted, 'document')} counted, {count(only)} fail nothing outside it"
    summary = [tag("i", class_="quality"), tag("span", name, class_="name"), " ", tag("small", notes)]
    return details(summary, found, open_=open_)


def _rows(
    reason: str, facts: dict[str, Any], context: Context, samples: list[Html] | None
) -> Iterator[list[object] | Html]:
    """The line of a rule, and its samples."""
    most = max(facts["failing"].values(), default=0)
    any_, only = facts["failing"].get(reason, 0), facts["only"].get(reason, 0)
    counted = facts["documents"]["dropped"].get(reason, 0)
    total = facts["documents"]["read"] - facts["documents"]["rejected"]
    segments = [
        Segment(only, group(reason), f"{reason}: {plural(only, 'document')} fail nothing else"),
        Segment(any_ - only, f"{group(reason)} pale", f"{plural(any_ - only, 'document')} fail it and another rule"),
    ]
    name = [
        tag("span", reason, class_="name"),
        " ",
        tag("small", meaning(reason, context.config)),
        bar(segments, most),
    ]
    tokens = facts["tokens"]["dropped"].get(reason, 0)
    yield [name, [count(any_), tag("small", share(any_, total))], only, counted, tokens]
    if samples:
        yield details(plural(len(samples), "sample"), samples, open_=reason == "fuzzy_duplicate")


def _samples(context: Context, library: Library) -> tuple[dict[str, list[Html]], str]:
    """Reason → documents that were dropped for it, and how they were drawn."""
    drawn, parts = draw_samples(context)
    if context.has("contamination"):  # has a section of its own
        drawn.pop("contaminated", None)
    documents = library.read([i for own in drawn.values() for s in own for i in (s.doc_id, s.partner) if i is not None])
    shown = {reason: [_sample(reason, s, documents) for s in own] for reason, own in drawn.items()}
    of = f"{plural(len(parts), 'partition')} ({', '.join(parts)}; at most {MAX_PARTITIONS} are opened)"
    note = (
        f"Under each rule, drawn by hash from {of}, so the same run shows the same documents. Fuzzy duplicates: the least "
        "similar pair, the most similar one, and one between."
    )
    return shown, note


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
    kind = "code" if looks_like_code("".join(t for t, _ in pieces)) else None
    return tag(
        "div",
        tag("p", about, class_="about"),
        tag("blockquote", text or tag("em", "no text"), dir="auto", class_=kind),
        tag("p", tag("code", where), class_="where"),
        class_="sample",
    )


_CODE = re.compile(r"^[ \t]|[{};=<>|\\]|\w\(|\w_\w|::|->|[-+=*_]{4}")


def looks_like_code(text: str) -> bool:
    """True for source code, tables and figures made of characters: half of the lines or more are indented or hold signs of
    such. They are read wrongly where letters differ in width."""
    lines = [line for line in text.splitlines() if line.strip()]
    return len(lines) >= 3 and 2 * sum(bool(_CODE.search(line)) for line in lines) >= len(lines)
