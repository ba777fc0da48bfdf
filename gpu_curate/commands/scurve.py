"""`gpu-curate scurve`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from gpu_curate.commands.options import AsJson, Plot, tell

EXAMPLES = (
    "Examples:  gpu-curate scurve runs/web --threshold 0.8 --plot curve.svg  |  "
    "gpu-curate scurve web.yaml --set dedup.fuzzy.num_bands=20 --csv curve.csv"
)


def scurve(
    what: Annotated[
        Path, typer.Argument(metavar="RUN|CONFIG", help="Run directory, or a recipe: its first documents.")
    ],
    threshold: Annotated[
        float | None, typer.Option("--threshold", help="Similarity that should be caught. Default: of dedup.fuzzy.")
    ] = None,
    recall: Annotated[float, typer.Option("--recall", help="Share of those that should be caught.")] = 0.95,
    pairs: Annotated[int, typer.Option("--pairs", min=100, help="Edited copies made.")] = 12_000,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override a key of the recipe; repeatable.")
    ] = None,
    max_bytes: Annotated[int, typer.Option("--max-bytes", min=1, help="Of a recipe's text that is read.")] = 8 << 20,
    csv: Annotated[Path | None, typer.Option("--csv", metavar="FILE", help="Write the table as CSV.")] = None,
    plot: Plot = None,
    as_json: AsJson = False,
) -> None:
    """Measure which near-duplicates are caught, on edited copies of this corpus, and list other bands and rows."""
    from gpu_curate.inquiry import scurve as curves

    facts = _measure(what, pairs, threshold, recall, set_ or [], max_bytes)
    if csv is not None:
        curves.write_csv(facts, csv)
    if plot is not None:
        curves.draw(facts, plot)
    tell(facts, as_json, _print)


def _measure(
    what: Path, pairs: int, threshold: float | None, recall: float, changes: list[str], max_bytes: int
) -> dict[str, Any]:
    import tempfile

    from gpu_curate import config
    from gpu_curate.config.load import apply_override
    from gpu_curate.errors import ConfigError
    from gpu_curate.inquiry import scurve as curves
    from gpu_curate.inquiry.stored import Stored
    from gpu_curate.inquiry.toggles import plain
    from gpu_curate.store.run_directory import RUN_FILE
    from gpu_curate.tools.compare import documents, read_sample

    estimates = None
    if (what / RUN_FILE).exists():
        stored = Stored(what)
        data = plain(stored.config)
        for change in changes:
            apply_override(data, change)
        recipe = config.parse(data, str(what))
        text = curves.sample(stored)
        estimates = None if changes else curves.estimates(stored)
    else:
        recipe = config.load(what, changes)
        with tempfile.TemporaryDirectory() as scratch:
            text = documents(read_sample(recipe, Path(scratch), max_bytes))[0]
    if recipe.dedup.fuzzy is None:
        raise ConfigError(f"{what}: dedup.fuzzy is off, so there is no curve", "ask with --set dedup.fuzzy=true")
    return {**curves.scurve(text, recipe.dedup.fuzzy, pairs, threshold, recall), "estimates": estimates}


def _print(facts: dict[str, Any]) -> None:
    from gpu_curate.terminal import new_table, show
    from gpu_curate.visible import say

    bins = new_table("similarity", "pairs", "caught", "95 %", "formula", "")
    for b in facts["bins"]:
        if b["pairs"]:
            outside = "" if b["low"] <= b["formula"] <= b["high"] else "outside"
            interval = f"{b['low']:.3f} to {b['high']:.3f}"
            bins.add_row(
                f"{b['from']:.2f} to {b['to']:.2f}",
                f"{b['pairs']:,}",
                f"{b['measured']:.3f}",
                interval,
                f"{b['formula']:.3f}",
                outside,
            )
    advice = facts["advice"]
    t = advice["threshold"]
    around = [f"at {max(t + d, 0):.2f}" for d in (-0.2, -0.1, 0, 0.1)]
    rows = new_table("bands x rows", "hashes", *around, "half at", "CPU s per M", "bytes each")
    for row in advice["rows"]:
        mark = " (this recipe)" if row["own"] else ""
        rows.add_row(
            f"{row['bands']} x {row['rows']}{mark}",
            f"{row['hashes']}",
            *(f"{p:.3f}" for p in row["at"]),
            f"{row['half']:.2f}",
            f"{row['cpu_s']:,.0f}",
            f"{row['disk_bytes']}",
        )
    say(
        f"{facts['pairs']:,} edited copies of {facts['documents']:,} documents, shingles of {facts['shingle_words']} words"
    )
    say()
    show(bins)
    say(f"{facts['outside']} of {facts['tested']} intervals do not hold the formula (5 % would not by chance)")
    say()
    say(f"to catch {advice['recall']:.0%} of the pairs of similarity {t:g}:")
    show(rows)
    found = facts["estimates"]
    if found is not None:
        own = new_table("threshold", "of the removed reach it", "95 %", "of such pairs caught")
        for row in found["rows"]:
            caught = "" if row["recall"] is None else f"{row['recall']:.1%}"
            low, high = row["interval"]
            own.add_row(f"{row['threshold']:g}", f"{row['precision']:.1%}", f"{low:.1%} to {high:.1%}", caught)
        say(f"this run, {found['measured']:,} near-duplicates measured against their survivors:")
        show(own)
