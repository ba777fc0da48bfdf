"""`gpu-curate forget`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from gpu_curate.commands.options import AsJson, RunFolder, tell

EXAMPLES = "Examples:  gpu-curate forget runs/web --list takedown.txt  |  gpu-curate forget runs/web --list takedown.txt --near --pad"


def forget(
    run: RunFolder,
    list_: Annotated[
        Path, typer.Option("--list", metavar="FILE", help="A doc_id, source:path:row, URL or content hash a line.")
    ],
    near: Annotated[bool, typer.Option("--near", help="Their near-duplicates, too.")] = False,
    pad: Annotated[
        bool, typer.Option("--pad", help="Leave end-of-text tokens in their place, so that all others keep theirs.")
    ] = False,
    keep_earlier: Annotated[
        bool, typer.Option("--keep-earlier", help="Keep the earlier set of shards, which holds them still.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Take documents out of the shards again: only shards that hold one are written anew. Later runs do not bring them back."""
    from gpu_curate.inquiry.forget import forget as take_out
    from gpu_curate.inquiry.forget import read_list
    from gpu_curate.visible import say

    facts = take_out(run, read_list(list_), near, pad, keep_earlier, lambda text: say(text, file=sys.stderr))
    tell(facts, as_json, _print)


def _print(facts: dict[str, Any]) -> None:
    from gpu_curate.visible import one, say

    held = [d for d in facts["documents"] if d["places"]]
    say(
        f"{len(facts['documents']):,} documents have a listed text; {len(held):,} of them were in the shards, with "
        f"{facts['tokens']:,} tokens, and are out"
    )
    for shard in facts["shards"]:
        now = "left out: nothing remained" if shard["new_sha256"] is None else f"sha256 {shard['new_sha256'][:16]}"
        say(f"  {one(shard['file'])}: {shard['old_tokens']:,} tokens, now {shard['new_tokens']:,}; {now}")
    say(f"{facts['unchanged']:,} shards are the same files as before; the latest set is {facts['to']}")
    for entry in facts["not_found"][:20]:
        say(f"not found: {one(entry['entry'])}: {one(entry['reason'])}")
    if len(facts["not_found"]) > 20:
        say(f"... and {len(facts['not_found']) - 20:,} more, in the receipt")
    say(f"their text is still in {', '.join(map(one, facts['holds_still']))} of the run directory, and in the sources")
    say(f"receipt: {one(facts['receipt'])}")
