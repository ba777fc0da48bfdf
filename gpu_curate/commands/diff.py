"""`gpu-curate diff`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from gpu_curate.commands.options import AsJson, tell

EXAMPLES = "Examples:  gpu-curate diff runs/web runs/web-stricter  |  gpu-curate diff runs/a runs/b -n 1 --json"


def diff(
    a: Annotated[Path, typer.Argument(metavar="RUN_A", help="Run directory.")],
    b: Annotated[Path, typer.Argument(metavar="RUN_B", help="Run directory of the same sources.")],
    n: Annotated[int, typer.Option("-n", min=0, help="Documents shown of each change.")] = 2,
    shards_a: Annotated[
        str | None, typer.Option("--shards-a", metavar="NAME", help="An earlier set of shards in RUN_A.")
    ] = None,
    shards_b: Annotated[
        str | None, typer.Option("--shards-b", metavar="NAME", help="An earlier set of shards in RUN_B.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Say what one run keeps and another does not, by reason, with examples. Documents are matched by their places."""
    from gpu_curate.inquiry.diff import diff as compare
    from gpu_curate.inquiry.stored import Stored

    tell(compare(Stored(a, shards_a), Stored(b, shards_b), n), as_json, _print)


def _print(facts: dict[str, Any]) -> None:
    from gpu_curate.inquiry.diff import lines
    from gpu_curate.terminal import new_table, show
    from gpu_curate.visible import one, say

    for name in ("a", "b"):
        side = facts[name]
        say(f"{name}  {one(side['run'])}: {side['kept']:,} of {side['documents']:,} documents kept")
    for key, (old, new) in facts["set"].items():
        say(f"   {key}: {one(old)} -> {one(new)}")
    say()
    rows = new_table("in a", "in b", "documents", "tokens", "equal text kept")
    for row in lines(facts):
        rows.add_row(*row)
    both = facts["both_kept"]
    rows.add_row("kept", "kept", f"{both['documents']:,}", f"{both['tokens']:,}", "")
    for name in ("only_a", "only_b"):
        if facts[name]["documents"]:
            ends = ("read", "not read") if name == "only_a" else ("not read", "read")
            rows.add_row(*ends, f"{facts[name]['documents']:,}", f"{facts[name]['tokens']:,}", "")
    show(rows)
    if not facts["changes"]:
        say("they keep the same documents")
    for change in facts["changes"]:
        if change["examples"]:
            say(f"a: {change['a']}, b: {change['b']}")
        for example in change["examples"]:
            ids = f"doc_id {example['doc_id_a']}"
            ids += f" (b: {example['doc_id_b']})" if example["doc_id_b"] != example["doc_id_a"] else ""
            say(f"  {ids}  {one(example['source'])}: {one(example['path'])}, row {example['row']}")
            say("    " + example["text"].replace("\n", "\n    "))
