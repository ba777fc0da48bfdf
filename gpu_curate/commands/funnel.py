"""`gpu-curate funnel`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from gpu_curate.commands.options import AsJson, Plot, RunFolder, ShardsName, share, tell

EXAMPLES = (
    "Examples:  gpu-curate funnel runs/web --without gopher_repetition  |  gpu-curate funnel runs/web "
    "--set quality.fineweb.min_terminal_line_fraction=0.1  |  gpu-curate funnel runs/web "
    "--sweep fineweb:too_few_terminal_lines 0 0.3 0.02"
)
_OVERLAPS = 12  # pairs that are printed


def funnel(
    run: RunFolder,
    without: Annotated[
        list[str] | None, typer.Option("--without", metavar="RULE", help="Switch off a rule or family; repeatable.")
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option("--only", metavar="RULE", help="Switch off all but this rule or family; repeatable."),
    ] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Move a threshold of the recipe; repeatable.")
    ] = None,
    sweep: Annotated[
        tuple[str, str, str, str] | None,
        typer.Option("--sweep", metavar="RULE FROM TO STEP", help="Try many thresholds of one rule."),
    ] = None,
    plot: Plot = None,
    shards: ShardsName = None,
    as_json: AsJson = False,
) -> None:
    """Count what every rule takes, as it is or with other rules and thresholds, from stored scores. Changes nothing."""
    from gpu_curate.errors import ConfigError
    from gpu_curate.inquiry import funnel as funnels
    from gpu_curate.inquiry.stored import Stored

    toggles = (without or [], only or [], set_ or [])
    if plot is not None and sweep is None:
        raise ConfigError(f"funnel: --plot {plot} draws a sweep", "add --sweep RULE FROM TO STEP")
    stored = Stored(run, shards)
    if sweep is None:
        tell(funnels.funnel(stored, *toggles), as_json, _print)
        return
    facts = funnels.sweep(stored, *sweep, *toggles)
    if plot is not None:
        funnels.draw_sweep(facts, plot)
    tell(facts, as_json, _print_sweep)


def _print(facts: dict[str, Any]) -> None:
    from gpu_curate.runs.progress import human_bytes
    from gpu_curate.terminal import new_table, show
    from gpu_curate.visible import one, say

    read = facts["read"]
    steps = new_table(
        "rule", "takes", "of read", "left", "tokens left", "text left", spare=("text left", "tokens left")
    )
    steps.add_row("read", "", "", f"{read['documents']:,}", f"{read['tokens']:,}", human_bytes(read["bytes"]))
    rejected = facts["rejected"]["documents"]
    if rejected:
        left = read["documents"] - rejected
        steps.add_row("rejected", f"{rejected:,}", share(rejected, read["documents"]), f"{left:,}", "", "")
    if "cut" in facts:
        cut = facts["cut"]
        tokens, text = f"{read['tokens'] - cut['tokens']:,}", human_bytes(read["bytes"] - cut["bytes"])
        steps.add_row("cut", f"(out of {cut['documents']:,})", "", f"{read['documents'] - rejected:,}", tokens, text)
    for step in facts["steps"]:
        took, left = step["took"]["documents"], step["left"]
        numbers = (f"{left['documents']:,}", f"{left['tokens']:,}", human_bytes(left["bytes"]))
        steps.add_row(step["rule"], f"{took:,}", share(took, read["documents"]), *numbers)
    kept = facts["kept"]
    numbers = (f"{kept['documents']:,}", f"{kept['tokens']:,}", human_bytes(kept["bytes"]))
    steps.add_row("kept", "", share(kept["documents"], read["documents"]), *numbers)
    single = new_table("rule", "fail it", "fail nothing else", "tokens of these", spare=("tokens of these",))
    for entry in facts["rules"]:
        only = entry["only"]
        single.add_row(
            entry["rule"], f"{entry['fails']['documents']:,}", f"{only['documents']:,}", f"{only['tokens']:,}"
        )
    pairs = new_table("fail both", "documents")
    for pair in facts["overlaps"][:_OVERLAPS]:
        pairs.add_row(f"{pair['a']} + {pair['b']}", f"{pair['documents']:,}")
    show(steps, *([single] if facts["rules"] else []), *([pairs] if facts["overlaps"] else []))
    if len(facts["overlaps"]) > _OVERLAPS:
        say(f"... and {len(facts['overlaps']) - _OVERLAPS:,} more pairs (--json)")
    for note in facts["notes"]:
        say(f"note: {one(note)}")
    if facts["yaml"]:
        say("this recipe makes it so:\n\n  " + facts["yaml"].replace("\n", "\n  "))


def _print_sweep(facts: dict[str, Any]) -> None:
    from gpu_curate.terminal import new_table, show
    from gpu_curate.visible import say

    most = max((row["kept"]["documents"] for row in facts["rows"]), default=0)
    rows = new_table("limit", "fail it", "fail nothing else", "kept", "tokens kept", "", spare=("tokens kept",))
    for row in facts["rows"]:
        kept = row["kept"]
        bar = "█" * round(24 * kept["documents"] / most) if most else ""
        now = " (now)" if row["limit"] == facts["now"] else ""
        numbers = (f"{row[name]['documents']:,}" for name in ("fails", "only", "kept"))
        rows.add_row(f"{row['limit']:g}{now}", *numbers, f"{kept['tokens']:,}", f"{bar:<24}")
    show(rows)
    now = "off" if facts["now"] is None else f"{facts['now']:g}"
    say(f"{facts['rule']}: {facts['key']} is {now} in this run")
