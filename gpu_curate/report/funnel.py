"""What was read, what each reason took away, what was left: in all, and by source."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gpu_curate.config import Config
from gpu_curate.report.charts import Segment, bar
from gpu_curate.report.intake import rejects_table, sampled_table
from gpu_curate.report.markup import Html, count, details, plural, section, share, size, table, tag
from gpu_curate.report.reasons import GROUPS, family, group, meaning, ordered

_SHOWN = 12  # sources in the open table
_MAX_SOURCES = 100  # sources on the page; the others are summed up
_MAX_BY_REASON = 12  # sources whose every reason is listed


def funnel(facts: dict[str, Any], config: Config) -> Html:
    documents, tokens, nbytes = facts["documents"], facts["tokens"], facts["bytes"]
    read = documents["read"]
    rows = [
        _row(
            "read", "every record found", read, read, "total", documents["read"], tokens["read"], nbytes["read"], facts
        )
    ]
    left = read
    if documents["rejected"]:
        left -= documents["rejected"]
        rows.append(
            _row(
                "rejected",
                "could not be read; see rejects/",
                left,
                read,
                "rejected",
                documents["rejected"],
                None,
                None,
                facts,
            )
        )
    cut = facts.get("cuts")
    if cut is not None:
        what = f"taken out of {plural(cut['documents'], 'document')}, which stay"
        rows.append(_row("cut", what, left, read, "cut", 0, cut["tokens"], cut["bytes"], facts))
    for name, reasons in folded(documents["dropped"]).items():
        n, n_tokens, n_bytes = (sum(unit["dropped"].get(r, 0) for r in reasons) for unit in (documents, tokens, nbytes))
        left -= n
        what = meaning(name, config) if family(name) is None and name in reasons else plural(len(reasons), "rule")
        rows.append(_row(name, what, left, read, group(reasons[0]), n, n_tokens, n_bytes, facts))
    rows.append(_row("kept", "", 0, read, "kept", documents["kept"], tokens["kept"], nbytes["kept"], facts))
    body = [_whole(facts), table(("", "documents", "tokens", "text"), rows, class_="funnel"), _splits(facts)]
    lead = (
        "Every record that was found, taken away rule by rule in the order in which the rules are tried; a document "
        "counts under the first one it fails. Percentages are of what was read. The rules of a family are under Rules."
    )
    return section("funnel", "Funnel", lead, *body)


def folded(reasons: Iterable[str]) -> dict[str, list[str]]:
    """Reasons in their order, the rules of a family under the family's name."""
    found: dict[str, list[str]] = {}
    for reason in reasons:
        found.setdefault(family(reason) or reason, []).append(reason)
    return found


def _row(
    name: str,
    what: str,
    left: int,
    read: int,
    class_: str,
    documents: int,
    tokens: int | None,
    nbytes: int | None,
    facts: dict[str, Any],
) -> list[object]:
    """One line: what was left below it in pale, what it took in colour."""
    title = f"{name}: {plural(documents, 'document')}, {share(documents, read)}"
    segments = [Segment(left, "left", f"{count(left)} left"), Segment(documents, class_, title)]
    if name in ("read", "kept"):
        segments = segments[1:]
    label = [tag("span", name, class_="name"), tag("small", what) if what else None, bar(segments, read)]
    return [
        label,
        _cell(count(documents), share(documents, read)),
        None if tokens is None else _cell(count(tokens), share(tokens, facts["tokens"]["read"])),
        None if nbytes is None else _cell(size(nbytes), share(nbytes, facts["bytes"]["read"])),
    ]


def _cell(value: object, part: str) -> list[object]:
    return [value, tag("small", part)]


def by_group(unit: dict[str, Any]) -> dict[str, int]:
    """Documents of a unit of the accounts by group of reasons, in the order of GROUPS."""
    sums = dict.fromkeys(GROUPS, 0)
    sums["rejected"] += unit["rejected"]
    sums["kept"] += unit["kept"]
    for reason, n in unit["dropped"].items():
        sums[group(reason)] += n
    return sums


def _whole(facts: dict[str, Any]) -> Html:
    """One bar of all documents with its legend."""
    unit = facts["documents"]
    sums = {g: n for g, n in by_group(unit).items() if n}
    order = ["kept", *(g for g in sums if g != "kept")] if "kept" in sums else list(sums)
    titles = {g: f"{GROUPS[g]}: {plural(sums[g], 'document')}, {share(sums[g], unit['read'])}" for g in order}
    legend = [tag("li", tag("i", class_=g), f"{GROUPS[g]} ", tag("b", share(sums[g], unit["read"]))) for g in order]
    return tag(
        "figure",
        bar([Segment(sums[g], g, titles[g]) for g in order], unit["read"], class_="bar tall"),
        tag("figcaption", tag("ul", legend, class_="legend")),
    )


def _splits(facts: dict[str, Any]) -> Html:
    splits = facts["splits"]
    total = {unit: sum(s[unit] for s in splits.values()) for unit in ("documents", "tokens")}
    rows = []
    for name, split in splits.items():
        part = Segment(split["tokens"], "kept", f"{name}: {count(split['tokens'])} tokens")
        cells = [_cell(count(split[unit]), share(split[unit], total[unit])) for unit in ("documents", "tokens")]
        rows.append([[tag("span", name, class_="name"), bar([part], total["tokens"])], *cells])
    repeated = facts["mixture"]["repeated"]
    notes = ["Splits are taken by content: the same text always falls on the same side."]
    if repeated["documents"]:
        notes.append(
            f" {plural(repeated['documents'], 'place')} in the stream ({count(repeated['tokens'])} tokens) are repeats "
            "that the mixture asked for; they are in the splits and not in the funnel."
        )
    if facts["split"]["train_only_documents"]:
        notes.append(f" {plural(facts['split']['train_only_documents'], 'document')} may not be held out (train_only).")
    return tag("div", tag("h3", "Splits"), table(("", "documents", "tokens"), rows, class_="funnel"), tag("p", notes))


# ---------------------------------------------------------------------------------------------------------- sources


def sources(facts: dict[str, Any], config: Config) -> Html:
    units = facts["sources"]
    names = sorted(units, key=lambda s: -units[s]["read"]) if len(units) > _SHOWN else list(units)
    used = [g for g in GROUPS if any(by_group(units[s])[g] for s in names) or g in ("rejected", "kept")]
    columns = ("source", "read", *(GROUPS[g] for g in used), "copies", "tokens kept")
    shown, rest = names[:_SHOWN], names[_SHOWN:_MAX_SOURCES]
    body: list[object] = [table(columns, [_source_row(s, facts, used) for s in shown], class_="sources")]
    if rest:
        more = table(columns, [_source_row(s, facts, used, bars=False) for s in rest], class_="sources")
        body.append(details(f"{plural(len(rest), 'more source')}", more))
    if len(names) > _MAX_SOURCES:
        left = names[_MAX_SOURCES:]
        read = sum(units[s]["read"] for s in left)
        body.append(
            tag("p", f"{count(len(left))} smaller sources with {plural(read, 'record')} in all are in report.json.")
        )
    largest = "" if len(names) <= _MAX_BY_REASON else f" (the {_MAX_BY_REASON} largest)"
    body.append(details(f"By reason and source{largest}", _by_reason(facts, names[:_MAX_BY_REASON], config)))
    body += [_mixture(facts), sampled_table(facts), rejects_table(facts), _skipped(facts)]
    body += [_charsets(facts), _passed(facts), _incomplete(facts)]
    lead = "What became of each source. “Copies”: the share of its documents removed as exact or fuzzy duplicates."
    return section("sources", "Sources", lead, *body)


def _source_row(source: str, facts: dict[str, Any], used: list[str], bars: bool = True) -> list[object]:
    unit = facts["sources"][source]
    sums = by_group(unit)
    order = ["kept", *(g for g in sums if g != "kept")]
    segments = [
        Segment(sums[g], g, f"{source}, {GROUPS[g]}: {count(sums[g])}, {share(sums[g], unit['read'])}") for g in order
    ]
    copies = sum(n for r, n in unit["dropped"].items() if r in ("exact_duplicate", "fuzzy_duplicate"))
    kept_tokens = facts["text"].get(source, {}).get("tokens_kept", 0)
    return [
        [tag("span", source, class_="name"), bar(segments, unit["read"]) if bars else None],
        unit["read"],
        *(sums[g] for g in used),
        share(copies, unit["read"] - unit["rejected"]),
        kept_tokens,
    ]


def _by_reason(facts: dict[str, Any], names: list[str], config: Config) -> Html:
    """A row a reason, a column a source."""
    units = [facts["sources"][source] for source in names]
    rows: list[list[object]] = [
        [tag("span", reason, class_="name"), *(unit["dropped"].get(reason, 0) or None for unit in units)]
        for reason in ordered({r for unit in units for r in unit["dropped"]}, config)
    ]
    for name in ("rejected", "kept"):
        rows.append([tag("span", name, class_="name"), *(unit[name] for unit in units)])
    return table(("", *names), rows, class_="grid")


def _mixture(facts: dict[str, Any]) -> Html | None:
    mixture = facts["mixture"]
    if all(s["asked_tokens"] is None for s in mixture["sources"]):
        return None
    drawn = sum(s["drawn_tokens"] for s in mixture["sources"])
    rows = [
        [
            s["source"],
            s["available_tokens"],
            "all" if s["asked_tokens"] is None else count(s["asked_tokens"]),
            s["drawn_tokens"],
            share(s["drawn_tokens"], drawn),
            f"{s['epochs']:.2f}",
        ]
        for s in mixture["sources"][:_MAX_SOURCES]
    ]
    left = mixture["not_drawn"]
    return tag(
        "div",
        tag("h3", "Mixture"),
        tag(
            "p",
            "Training tokens each source has, what its weight asks for, and what was drawn; 2 epochs: every document "
            "stands twice.",
        ),
        table(("source", "available", "asked for", "drawn", "share drawn", "epochs"), rows),
        tag("p", f"{plural(left['documents'], 'document')} ({count(left['tokens'])} tokens) were not drawn.")
        if left["documents"]
        else None,
    )


def _skipped(facts: dict[str, Any]) -> Html | None:
    """Records that are no documents: redirects, other namespaces, answers that are not text."""
    if not facts["skipped"]:
        return None
    by_source: dict[str, list[str]] = {}
    for key, n in facts["skipped"].items():
        source, _, reason = key.partition(":")
        by_source.setdefault(source, []).append(f"{reason} {count(n)}")
    return tag(
        "div",
        tag("h3", "Skipped records"),
        tag("p", "Records that are no documents (redirects, other namespaces, images); they are not in the funnel."),
        table(
            ("source", "skipped"),
            [[s, ", ".join(r)] for s, r in list(by_source.items())[:_MAX_SOURCES]],
            text=(1,),
            class_="wrap",
        ),
    )


_EVIDENCE = {
    "bom": "byte order mark",
    "bytes": "the bytes (UTF-8, escape sequences)",
    "header": "HTTP header",
    "meta": "the page's declaration",
    "detector": "detector",
    "default": "nothing",
}


def _charsets(facts: dict[str, Any]) -> Html | None:
    """What told the encoding of documents that came without a sure one."""
    if not facts["charset_evidence"]:
        return None
    kinds = [k for k in _EVIDENCE if any(k in counts for counts in facts["charset_evidence"].values())]
    return tag(
        "div",
        tag("h3", "Encodings"),
        tag("p", "What told the encoding of a document; per file in the receipts of documents/."),
        table(
            ("source", *(_EVIDENCE[k] for k in kinds)),
            [[s, *(c.get(k) for k in kinds)] for s, c in list(facts["charset_evidence"].items())[:_MAX_SOURCES]],
        ),
    )


def _passed(facts: dict[str, Any]) -> Html | None:
    """Bytes that were passed over because no record could be found in them."""
    if not facts["passed_bytes"]:
        return None
    return tag(
        "div",
        tag("h3", "Bytes passed over"),
        tag("p", "Lost with rejected records: damaged ones, and what lies between records; each place is in rejects/."),
        table(("source", "bytes"), [[s, size(n)] for s, n in list(facts["passed_bytes"].items())[:_MAX_SOURCES]]),
    )


def _incomplete(facts: dict[str, Any]) -> Html | None:
    files = facts["incomplete"]
    if not files:
        return None
    return tag(
        "div",
        tag("h3", "Incomplete files"),
        tag("p", "These end before they should; what came before the cut was read."),
        tag("ul", [tag("li", tag("code", f)) for f in files[:50]]),
        tag("p", f"… and {count(len(files) - 50)} more in report.json.") if len(files) > 50 else None,
    )
