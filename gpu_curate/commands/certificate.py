"""`gpu-curate certificate`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from gpu_curate.commands.options import AsJson, RunFolder, ShardsName, tell

EXAMPLES = "Examples:  gpu-curate certificate runs/web  |  gpu-curate certificate runs/web --most 5000 -n 3 --json"


def certificate(
    run: RunFolder,
    most: Annotated[int, typer.Option("--most", min=1, help="Removed documents looked at.")] = 100_000,
    n: Annotated[int, typer.Option("-n", min=0, help="Worst pairs shown.")] = 5,
    shards: ShardsName = None,
    as_json: AsJson = False,
) -> None:
    """Say what removing near-duplicates lost: the share of their words that stands in no kept document, worst pairs first."""
    from gpu_curate.inquiry.certificate import certificate as ask
    from gpu_curate.inquiry.stored import Stored

    tell(ask(Stored(run, shards), most, n), as_json, _print)


def _print(facts: dict[str, Any]) -> None:
    from gpu_curate.visible import one, say

    of = "" if facts["looked_at"] == facts["removed"] else f" (of {facts['removed']:,})"
    say(
        f"{facts['looked_at']:,} near-duplicates{of} were removed that fail nothing else: {facts['lost_words']:,} of their "
        f"{facts['words']:,} words ({facts['lost_share']:.2%}) stand in no kept document"
    )
    say(
        f"{facts['whole']:,} of them lost no word: each stands in a run of {facts['shingle_words']} words of a kept document"
    )
    if facts["survivor_dropped"]:
        say(f"{facts['survivor_dropped']:,} went although their survivor was dropped, too")
    tenths = facts["histogram"]
    told = [f"{n:,} lost up to {i * 10} %" for i, n in enumerate(tenths) if n and i]
    if told:
        say("; ".join(told))
    for pair in facts["worst"]:
        if pair["lost_words"]:
            say()
            dropped = "" if pair["survivor_kept"] else ", which was dropped"
            say(f"doc_id {pair['doc_id']}  {one(pair['source'])}: {one(pair['path'])}, row {pair['row']}")
            say(f"  {pair['lost_words']:,} of {pair['words']:,} words; survivor doc_id {pair['survivor']}{dropped}")
            say(f"  lost: {one(pair['lost'])}")
