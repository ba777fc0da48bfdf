"""What the text is made of: characters per token, languages, personal data."""

from __future__ import annotations

from typing import Any

from gpu_curate.config import Config
from gpu_curate.report.charts import Segment, bar
from gpu_curate.report.markup import Html, count, details, plural, section, share, size, table, tag

_SHOWN = 12
_MAX_SOURCES = 100
_MAX_LANGUAGES = 30


def text(facts: dict[str, Any], config: Config) -> Html:
    rows = facts["text"]
    names = sorted(rows, key=lambda s: -rows[s]["bytes"]) if len(rows) > _SHOWN else list(rows)
    total = {k: sum(r[k] for r in rows.values()) for k in ("documents", "bytes", "chars", "tokens")}
    columns = ("source", "documents", "text", "characters", "tokens", "characters per token", "bytes per token")
    lines = (
        [_row("all", total), *(_row(s, rows[s]) for s in names[:_SHOWN])] if len(rows) != 1 else [_row(names[0], total)]
    )
    body: list[object] = [table(columns, lines)]
    rest = names[_SHOWN:_MAX_SOURCES]
    if rest:
        body.append(details(plural(len(rest), "more source"), table(columns, [_row(s, rows[s]) for s in rest])))
    special = facts["special_texts"]
    if special:
        body.append(
            tag(
                "p",
                f"The text of a special token stands {count(special)} times in documents; there it was encoded as "
                "ordinary text.",
            )
        )
    body += [_markup(facts), _languages(facts, config), _pii(facts, config)]
    lead = "Everything that was read, before any rule. Characters are code points; end-of-text tokens are not counted."
    return section("text", "Text", lead, *body)


def _row(name: str, r: dict[str, int]) -> list[object]:
    def per(key: str) -> str:
        return f"{r[key] / r['tokens']:.2f}" if r["tokens"] else ""

    return [name, r["documents"], size(r["bytes"]), r["chars"], r["tokens"], per("chars"), per("bytes")]


def _markup(facts: dict[str, Any]) -> Html | None:
    """What extraction left of the markup, where a source has some."""
    if not facts["markup"]:
        return None
    columns = ("source", "", "characters", "sample: characters", "tokens", "characters per token")
    rows: list[list[object]] = []
    for source, r in facts["markup"].items():
        for name in ("markup", "text"):
            chars, tokens = r[f"sample_{name}_chars"], r[f"sample_{name}_tokens"]
            per = f"{chars / tokens:.2f}" if tokens else ""
            rows.append([source, name, r[f"{name}_chars"], chars, tokens, per])
    lead = tag("p", "Raw markup against the text extracted from it, documents of all fates; tokens of a sample.")
    return tag("div", tag("h3", "Extraction"), lead, table(columns, rows))


def _languages(facts: dict[str, Any], config: Config) -> Html | None:
    languages = facts["languages"]
    if not languages:
        return None
    total = sum(languages.values())
    shown = list(languages.items())[:_MAX_LANGUAGES]
    rows = [
        [
            [
                tag("span", name, class_="name"),
                bar([Segment(n, "plain", f"{name}: {count(n)}")], max(languages.values())),
            ],
            n,
            share(n, total),
        ]
        for name, n in shown
    ]
    rest = list(languages.values())[_MAX_LANGUAGES:]
    if rest:
        rows.append([f"{len(rest)} others", sum(rest), share(sum(rest), total)])
    keep = config.language.keep
    wanted = (
        f"Kept: {', '.join(keep)} with a score of {config.language.min_score:g} or more."
        if keep
        else "No language was dropped (language.keep: null)."
    )
    return tag(
        "div",
        tag("h3", "Languages"),
        tag(
            "p",
            "Documents by identified language; “unknown” is text too short or too close between two languages. ",
            wanted,
        ),
        table(("language", "documents", "of all"), rows, class_="funnel"),
    )


def _pii(facts: dict[str, Any], config: Config) -> Html | None:
    actions = {kind: action for kind, action in config.pii.model_dump().items() if action != "off"}
    if not actions:
        return None
    counts, samples = facts["pii"]["counts"], facts["pii"]["samples"]
    rows = [
        [kind, action, counts.get(kind, 0), [tag("code", s) for s in samples.get(kind, [])]]
        for kind, action in actions.items()
    ]
    return tag(
        "div",
        tag("h3", "Personal data"),
        tag(
            "p",
            "What the scanner took for personal data, with what was done about it and a few findings in masked form.",
        ),
        table(("type", "action", "found", "samples"), rows, text=(1, 3), class_="wrap"),
    )
