"""`gpu-curate clusters`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from gpu_curate.commands.options import AsJson, RunFolder, ShardsName, share, tell

EXAMPLES = "Examples:  gpu-curate clusters runs/web  |  gpu-curate clusters runs/web -n 3 --json"


def clusters(
    run: RunFolder,
    n: Annotated[int, typer.Option("-n", min=0, help="Clusters shown with a text.")] = 5,
    chars: Annotated[int, typer.Option("--chars", min=0, help="Characters shown of each.")] = 160,
    shards: ShardsName = None,
    as_json: AsJson = False,
) -> None:
    """Say how large clusters of duplicates are, across what they go, whom they cost most, and what holds giants together."""
    from gpu_curate.inquiry.clusters import clusters as ask
    from gpu_curate.inquiry.stored import Stored

    tell(ask(Stored(run, shards), n), as_json, lambda facts: _print(facts, chars))


def _print(facts: dict[str, Any], chars: int) -> None:
    from gpu_curate.terminal import new_table, show
    from gpu_curate.visible import one, say

    removed = facts["removed"]
    say(
        f"{facts['clusters']:,} clusters of {facts['members']:,} documents (of {facts['documents']:,}); removed: "
        f"{removed['exact']:,} exact, {removed['fuzzy']:,} fuzzy duplicates"
    )
    for name, across in facts["across"].items():
        if across["values"] > 1:
            say(
                f"{across['share']:.1%} of clusters span two or more of {across['values']:,} {name}s ({across['across']:,})"
            )
    say()
    sizes = new_table("size", "clusters", "documents")
    for octave in facts["sizes"]:
        sizes.add_row(f"{octave['from']:,} to {octave['to']:,}", f"{octave['clusters']:,}", f"{octave['members']:,}")
    sources = new_table("source", "documents", "removed", "share", "")
    for source in facts["sources"]:
        alarm = "ALARM" if source["alarm"] else ""
        numbers = (f"{source['documents']:,}", f"{source['removed']:,}", share(source["removed"], source["documents"]))
        sources.add_row(source["source"], *numbers, alarm)
    show(*([sizes] if facts["sizes"] else []), sources)
    for cluster in facts["largest"]:
        of = ", ".join(f"{cluster[k]:,} {k}" for k in ("groups", "sources", "files") if cluster.get(k, 0) > 1)
        say(f"cluster {cluster['cluster']}: {cluster['size']:,} documents{f' of {of}' if of else ''}")
        where = f"{one(cluster['source'])}: {one(cluster['path'])}, row {cluster['row']}"
        say(f"  survivor doc_id {cluster['doc_id']}  {where}")
        if chars:
            say(f"  {one(cluster['text'][:chars])}")
    for giant in facts["giants"]:
        say(f"component {giant['component']}: {giant['members']:,} documents in {giant['clusters']:,} clusters")
        if giant["bridges"] is None:
            say("  too many members to look for what holds them together")
        for bridge in giant["bridges"] or []:
            what = f"doc_id {bridge['doc_id']}" if bridge["kind"] == "document" else f"a bucket of {bridge['doc_ids']}"
            say(f"  held by {what}: without it {bridge['cuts_off']:,} are cut off: {one(bridge['text'][:chars])}")
        if giant["bridges"] == []:
            say("  no single document or bucket holds it together")
