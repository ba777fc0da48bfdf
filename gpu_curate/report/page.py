"""index.html: one page that loads nothing. Sections are in modules of their own; this one puts them together.

funnel   funnel, sources        rules   rules and samples        scores   of the user's own        duplicates   S-curve, similarities, clusters
text     languages, PII         steps   throughput               shards       output        contamination        cuts        ablation
"""

from __future__ import annotations

import io
from importlib.resources import files
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from gpu_curate.config import Config
from gpu_curate.privacy import cleaned
from gpu_curate.report.ablation import ablation
from gpu_curate.report.contamination import contamination
from gpu_curate.report.cuts import cuts
from gpu_curate.report.duplicates import duplicates
from gpu_curate.report.funnel import funnel, sources
from gpu_curate.report.judged import around
from gpu_curate.report.markup import (
    Html,
    count,
    details,
    join,
    pairs,
    plural,
    rate,
    seconds,
    section,
    share,
    short,
    size,
    strip,
    tag,
)
from gpu_curate.report.rules import rules
from gpu_curate.report.samples import Library
from gpu_curate.report.scores import scores
from gpu_curate.report.shards import shards
from gpu_curate.report.steps import steps
from gpu_curate.report.text import text
from gpu_curate.stages import Context
from gpu_curate.store.files import read_json

_MAX_WARNINGS = 50
_MAX_CONFIG_CHARS = 30_000
# Nothing is loaded and nothing runs, whatever a document holds.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def page(facts: dict[str, Any], context: Context) -> str:
    """The report of a run as one HTML page: no script, no link to anywhere, all text of documents inert.

    Args:
        facts: report.json.
        context: of the finished run; a few documents are read from its boxes as samples.
    Cost: see `samples`.
    Size: about 50 kB; 240 kB with every reason and hundreds of sources. A sample takes 1 kB, 4 kB at most.
    """
    library = Library(context)
    name = Path(facts["run"]).name
    config = context.config
    sections = [
        ("Funnel", funnel(facts, config)),
        ("Sources", sources(facts, config)),
        ("Rules", rules(facts, context, library)),
        ("Scores", scores(facts, context, around(context, library))),
        ("Duplicates", duplicates(facts, context, library)),
        ("Contamination", contamination(facts, context, library)),
        ("Cuts", cuts(facts, context, library)),
        ("Text", text(facts, config)),
        ("Throughput", steps(facts)),
        ("Shards", shards(facts, context) if (context.box("shards").folder / "manifest.json").exists() else None),
        ("Ablation", ablation(context.run)),
        ("Config", _config(config)),
    ]
    shown = [(title, body) for title, body in sections if body is not None]
    links = [tag("li", tag("a", title, href=f"#{title.lower()}")) for title, _ in shown]
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        tag("title", f"{name} · gpu_curate report"),
        tag("style", Html(files("gpu_curate.report").joinpath("style.css").read_text(encoding="utf-8"))),
    )
    body = tag(
        "body",
        _header(facts, context, name),
        tag("nav", tag("ul", links), aria_label="Sections"),
        tag("main", [body for _, body in shown]),
        tag("footer", f"gpu_curate {facts['version']} · the same numbers are in report.json beside this page"),
    )
    return join([Html("<!doctype html>\n"), tag("html", head, body, lang="en")]) + "\n"


def _header(facts: dict[str, Any], context: Context, name: str) -> Html:
    run = read_json(context.run / "run.json")
    documents, tokens, splits = facts["documents"], facts["tokens"], facts["splits"]
    backend, tokenizer = facts["backend"], facts["tokenizer"]
    machine = run["machine"]
    figures = [
        (short(documents["read"]), "records read", [size(facts["bytes"]["read"]), " of text"]),
        (short(documents["kept"]), "documents kept", f"{share(documents['kept'], documents['read'])} of what was read"),
        (short(tokens["kept"]), "tokens kept", f"{share(tokens['kept'], tokens['read'])} of those made"),
        (short(splits["train"]["tokens"]), "training tokens", [short(splits["train"]["documents"]), " documents"]),
        (
            short(splits["validation"]["tokens"]),
            "validation tokens",
            [short(splits["validation"]["documents"]), " documents"],
        ),
        (
            seconds(facts["seconds"]),
            "wall clock",
            f"{rate(facts['bytes']['read'], facts['seconds'])} MB/s"
            if not any(s["reused"] for s in facts["steps"])
            else "with parts of an earlier run",
        ),
    ]
    about = pairs(
        [
            ("backend", [tag("b", backend["choice"]), f" ({backend['reason']})"]),
            (
                "tokenizer",
                [
                    tag("code", context.config.tokenizer.path or "trained on this run"),
                    f", {count(tokenizer['vocab_size'])} entries, ",
                    f"{tokenizer['library']} ({tokenizer['library_reason']})",
                ]
                if tokenizer
                else "none: there was no text",
            ),
            ("machine", f"{machine['system']}, {plural(machine['cores'], 'core')}, Python {machine['python']}"),
            ("run directory", tag("code", facts["run"])),
        ]
    )
    versions = [(n, v or "not installed") for n, v in facts["versions"].items()]
    fingerprint_of = [(box, tag("code", p)) for box, p in facts["fingerprints"].items()]
    return tag(
        "header",
        tag(
            "p",
            f"gpu_curate {facts['version']} · run of ",
            tag("time", _date(run["started"]), datetime=run["started"]),
            class_="over",
        ),
        tag("h1", name),
        _warnings(facts["warnings"]),
        strip(figures),
        about,
        details("Versions and fingerprints", tag("div", pairs(versions), pairs(fingerprint_of), class_="columns")),
    )


def _date(started: str) -> str:
    """2026-03-01T14:02:33+0100 as 2026-03-01 14:02."""
    return started[:16].replace("T", " ")


def _warnings(warnings: list[str]) -> Html | None:
    if not warnings:
        return None
    shown = [tag("li", w) for w in warnings[:_MAX_WARNINGS]]
    if len(warnings) > _MAX_WARNINGS:
        shown.append(tag("li", f"… and {count(len(warnings) - _MAX_WARNINGS)} more in report.json"))
    return tag(
        "aside", tag("h2", plural(len(warnings), "warning")), tag("ul", shown), class_="warnings", aria_label="Warnings"
    )


def _config(config: Config) -> Html:
    """The recipe as it was understood; storage options may hold keys and are not shown."""
    data = cleaned(config.model_dump(mode="json"))
    data["sources"] = cleaned([s.model_dump(mode="json", exclude_defaults=True) for s in config.sources])
    for source in data["sources"]:
        if "storage_options" in source:
            source["storage_options"] = dict.fromkeys(source["storage_options"], "(not shown)")
    writer, text = YAML(typ="safe", pure=True), io.StringIO()
    writer.width = 100
    writer.default_flow_style = False
    writer.sort_base_mapping_type_on_output = False  # type: ignore[assignment]  # ruamel declares it None
    writer.dump(data, text)
    dumped = text.getvalue()
    if len(dumped) > _MAX_CONFIG_CHARS:
        dumped = f"{dumped[:_MAX_CONFIG_CHARS]}\n… the rest is in run.json"
    return section(
        "config",
        "Config",
        "The recipe of this run with every default filled in (of the sources, what differs from the defaults).",
        details("Show as YAML", tag("pre", tag("code", dumped))),
    )
