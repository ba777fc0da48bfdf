"""`gpu-curate explain`."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from gpu_curate.commands.options import AsJson, RunFolder, ShardsName, tell

EXAMPLES = (
    "Examples:  gpu-curate explain runs/web 68719476741  |  gpu-curate explain runs/web web:data/a.jsonl:17  |  "
    "gpu-curate explain runs/web 'a piece of its text' --json"
)
_AROUND = 60  # characters shown on each side of a difference


def explain(
    run: RunFolder,
    document: Annotated[
        str, typer.Argument(metavar="DOC", help="doc_id, source:path:row, a URL, or a piece of its text.")
    ],
    shards: ShardsName = None,
    chars: Annotated[int, typer.Option("--chars", min=40, help="Characters shown of its text.")] = 600,
    as_json: AsJson = False,
) -> None:
    """Say why a document was kept or dropped: every rule with its value, its partner with a diff, where its tokens lie."""
    from gpu_curate.inquiry.explain import explain as ask
    from gpu_curate.inquiry.stored import Stored

    tell(ask(Stored(run, shards), document), as_json, lambda facts: _print(facts, chars))


def _print(facts: dict[str, Any], chars: int) -> None:
    from gpu_curate.terminal import new_table, show
    from gpu_curate.visible import one, say

    say(f"doc_id {facts['doc_id']}  {_where(facts)}")
    for name, value in facts["columns"].items():
        say(f"  {one(name)}: {one(value)}")
    say(f"  {facts['chars']:,} characters, {facts['bytes']:,} bytes, {facts['tokens']:,} tokens")
    say(f"kept: {facts['why']}" if facts["kept"] else f"dropped: {facts['reason']} ({one(facts['why'])})")
    more = [name for name in facts["failing"] if name != facts["reason"]]
    if more:
        say(f"fails too: {', '.join(more)}")
    say()
    rows = new_table("rule", "score", "value", "limit", "")
    for rule in facts["rules"]:
        passes = "" if rule["passes"] else "FAILS"
        rows.add_row(rule["rule"], rule["score"], _number(rule["value"]), _limit(rule), passes)
    show(rows)
    cluster = facts["cluster"]
    if cluster is not None:
        what = "its survivor is this one" if cluster["kind"] is None else f"survivor: doc_id {cluster['survivor']}"
        size = f"{cluster['size']:,} document{'s' if cluster['size'] != 1 else ''}"
        say(f"cluster {cluster['cluster']}, {size} ({what})")
    for match in facts["contamination"]:
        limit = f"max_coverage {match['max_coverage']:g}"
        say(
            f"{one(match['set'])}: holds {match['coverage']:.1%} of item {match['item']} ({limit}), {match['hits']:,} n-grams"
        )
        for run in match["shared"]:
            say(f"  shared: {one(run)}")
    for cut in facts.get("cuts", []):
        say(f"cut by {one(cut['rule'])}: bytes {cut['start']:,} to {cut['end']:,}: {one(cut['text'])}")
    _print_partner(facts["partner"])
    for place in facts["tokens_at"]:
        files = ", ".join(f"{one(file)} from token {first:,} on ({n:,})" for file, first, n in place["files"])
        say(f"{place['split']}: tokens {place['position']:,} to {place['position'] + place['tokens'] - 1:,}: {files}")
    say()
    text = facts["text"]
    say("  " + (text[:chars] + (" ..." if len(text) > chars else "")).replace("\n", "\n  "))
    if "scanned" in facts:
        scan = facts["scanned"]
        rate = scan["bytes"] / max(scan["seconds"], 1e-9) / 1e6
        say(f"found by looking through {scan['documents']:,} documents in {scan['seconds']:.1f} s ({rate:,.0f} MB/s)")


def _print_partner(partner: dict[str, Any] | None) -> None:
    """The partner and the words in which the two differ: red what only this document has, green what the other one has."""
    from gpu_curate.visible import say, visible

    if partner is None:
        return
    what = {"contaminated": "item of the benchmark", "reference_duplicate": "item of the reference set"}
    say(f"{what.get(partner['kind'], 'survivor')}: doc_id {partner['doc_id']}  {_where(partner)}")
    differs = any(kind != "same" for kind, _ in partner["diff"])
    say(f"  Jaccard similarity {partner['jaccard']:.4f}{'' if differs else ', the same words'}")
    if not differs or partner["kind"] == "contaminated":
        return
    colours = sys.stdout.isatty()
    here, there = (("\x1b[31m", "\x1b[0m"), ("\x1b[32m", "\x1b[0m")) if colours else (("[-", "-]"), ("{+", "+}"))
    out = []
    for i, (kind, text) in enumerate(partner["diff"]):
        if kind == "same":
            first, last = i == 0, i == len(partner["diff"]) - 1
            if len(text) > 2 * _AROUND:
                head, tail = ("" if first else text[:_AROUND]), ("" if last else text[-_AROUND:])
                text = f"{head} ... {tail}"
            out.append(visible(text))
        else:
            on, off = here if kind == "here" else there
            out.append(f"{on}{visible(text)}{off}")
    print("  " + "".join(out).replace("\n", "\n  "))  # made visible piece by piece: the colours are ours


def _where(facts: dict[str, Any]) -> str:
    from gpu_curate.visible import one

    return f"{one(facts['source'])}: {one(facts['path'])}, row {facts['row']}"


def _limit(rule: dict[str, Any]) -> str:
    words = {"min": "at least", "max": "at most", "in": "one of", "no": "some value", "top": "in the highest"}
    values = ", ".join(map(str, rule["limit"])) if rule["bound"] == "in" else _number(rule["limit"])
    if rule["bound"] == "top":
        return f"{words['top']} {rule['limit']:.4g}"
    return words[rule["bound"]] + ("" if rule["bound"] == "no" else f" {values}")


def _number(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
