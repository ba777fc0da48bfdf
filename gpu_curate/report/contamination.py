"""Contamination: what of each benchmark was found, and where."""

from __future__ import annotations

from typing import Any

from gpu_curate.report.markup import Html, count, details, plural, section, share, table, tag
from gpu_curate.report.rules import card
from gpu_curate.report.samples import Document, Library, excerpt, overlap, worst_documents
from gpu_curate.stages import Context
from gpu_curate.stages.order import benchmarks_of

_WORST = 3  # documents shown for each set
_MAX_SETS = 10  # sets with samples


def contamination(facts: dict[str, Any], context: Context, library: Library) -> Html | None:
    """None where no set is searched for."""
    sets = facts["contamination"]
    if not sets:
        return None
    total = facts["documents"]["read"] - facts["documents"]["rejected"]
    by_name = {r.name: r for r, _ in benchmarks_of(context.config)}
    rows = [
        [
            name,
            by_name[name].ngram_words,
            s["matches"],
            share(s["matches"], total),
            f"{s['max_coverage']:g}",
            s["items_too_short"],
            s["self_test"],
        ]
        for name, s in sets.items()
    ]
    failed = facts["failing"].get("contaminated", 0)
    lead = (
        "A document matches a benchmark when it holds n of an item’s words in a row (in scripts without spaces, as many "
        "characters as say as much: 26 in Chinese, 65 in Thai for n = 13); it fails when it holds more than "
        f"max_coverage of one item’s n-grams. {plural(failed, 'document')} did."
    )
    blocks = [
        _worst(name, context, library, by_name[name].ngram_words)
        for name in list(sets)[:_MAX_SETS]
        if sets[name]["matches"]
    ]
    blocks = [
        _items(sets),
        *blocks,
        *(_commonest(name, s) for name, s in list(sets.items())[:_MAX_SETS] if s["commonest"]),
    ]
    columns = ("reference set", "n", "documents that match", "of all", "max_coverage", "items too short", "self-test")
    return section("contamination", "Contamination", lead, table(columns, rows, text=(6,)), blocks)


def _items(sets: dict[str, Any]) -> Html:
    """Items that documents hold, before and after."""
    rows = []
    for name, s in sets.items():
        found = s["items_found"]
        if found:
            n = found["items"]
            rows.append(
                [
                    name,
                    n,
                    *(
                        f"{count(found[f'{what}_before'])} → {count(found[f'{what}_after'])} "
                        f"({share(found[f'{what}_before'], n)} → {share(found[f'{what}_after'], n)})"
                        for what in ("over", "touched")
                    ),
                    s["on_match"],
                ]
            )
    columns = ("reference set", "items", "above max_coverage: read → kept", "any n-gram: read → kept", "on_match")
    text = "Items of which some document that was read, and some that is kept, holds more than max_coverage, or an n-gram at all."
    return tag("div", tag("h3", "Items"), tag("p", text), table(columns, rows, text=(2, 3, 4)))


def _commonest(name: str, facts: dict[str, Any]) -> Html:
    """The n-grams of a set that most documents hold."""
    rows = [[c["text"], c["documents"], c["items"], "template" if c["template"] else ""] for c in facts["commonest"]]
    lead = f"{count(facts['ngrams'])} n-grams of {name} stand in documents, {count(facts['templates'])} of them are templates"
    return details(
        [tag("span", name, class_="name"), " ", tag("small", lead)],
        table(("n-gram", "documents", "items", ""), rows, text=(3,)),
    )


def _worst(name: str, context: Context, library: Library, n: int) -> Html:
    worst, read, hit = worst_documents(context, name, _WORST)
    documents = library.read([i for w in worst for i in (w["doc_id"], w["item"]) if i >= 0])
    shown = [_pair(w, documents, n) for w in worst if w["doc_id"] in documents and w["item"] in documents]
    of = "" if read == hit else f" of the {read} partitions with most matches of {hit}"
    return details(
        [tag("i", class_="contaminated"), tag("span", name, class_="name"), " ", tag("small", f"highest coverage{of}")],
        shown,
        open_=True,
    )


def _pair(found: dict[str, Any], documents: dict[int, Document], n: int) -> Html:
    document, item = documents[found["doc_id"]], documents[found["item"]]
    shared = overlap(document.text, item.text, n)
    pieces, words = shared if shared else ([(excerpt(document.text), False)], 0)
    back = overlap(item.text, document.text, n) if shared else None
    grams = f"{count(found['hits'])} n-grams" if found["hits"] != 1 else "1 n-gram"
    return tag(
        "div",
        card(
            document, pieces, f"coverage {found['coverage']:.2f}", grams, f"{words} words in a row" if words else None
        ),
        card(item, back[0] if back else [(excerpt(item.text), False)], "item"),
        class_="pair",
    )
