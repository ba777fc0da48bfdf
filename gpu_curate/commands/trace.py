"""`gpu-curate trace`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from gpu_curate.commands.options import AsJson, tell

EXAMPLES = (
    "Examples:  gpu-curate trace runs/web --step 1200 --batch-size 16 --seq-len 1024 --world-size 8  |  "
    "gpu-curate trace runs/web/shards --step 40 --steps 3 --batch-size 4 --seq-len 256 -n 10 --json"
)


def trace(
    shards: Annotated[Path, typer.Argument(metavar="SHARDS", help="Folder of shards, or run directory.")],
    step: Annotated[int, typer.Option("--step", min=0, help="Optimizer steps done before it, as of `batches(step)`.")],
    batch_size: Annotated[int, typer.Option("--batch-size", min=1, help="Rows of one micro-batch on one rank.")],
    seq_len: Annotated[int, typer.Option("--seq-len", min=1, help="Tokens of a row.")],
    steps: Annotated[int, typer.Option("--steps", min=1, help="How many steps, from that one on.")] = 1,
    world_size: Annotated[int, typer.Option("--world-size", min=1, help="Ranks; the rows of all are looked at.")] = 1,
    accum: Annotated[int, typer.Option("--accum", min=1, help="Micro-batches of a step on each rank.")] = 1,
    split: Annotated[str, typer.Option("--split", metavar="train|validation", help="Which split.")] = "train",
    shuffle: Annotated[int | None, typer.Option("--shuffle", help="The loader's seed, if it had one.")] = None,
    align_documents: Annotated[
        bool, typer.Option("--align-documents", help="The loader's rows began where documents do.")
    ] = False,
    n: Annotated[int, typer.Option("-n", min=1, help="Documents shown.")] = 20,
    chars: Annotated[int, typer.Option("--chars", min=0, help="Characters shown of each.")] = 160,
    as_json: AsJson = False,
) -> None:
    """Name the documents behind the rows of a training step, the odd ones first: for a spike of the loss."""
    from gpu_curate.loader import ShardLoader
    from gpu_curate.trace import trace as trace_batch

    pieces = []
    for rank in range(world_size):
        loader = ShardLoader(
            shards,
            split,
            batch_size,
            seq_len,
            rank,
            world_size,
            shuffle=shuffle,
            align_documents=align_documents,
            as_torch=False,
        )
        decode = _decoder(loader.stream.directory, loader.stream.manifest)
        for batch in range(step * accum, (step + steps) * accum):
            place = {"step": batch // accum, "micro_batch": batch % accum, "rank": rank}
            pieces += [place | piece for piece in trace_batch(loader, batch, decode)]
    pieces.sort(key=lambda piece: piece.get("odd", {}).get("share", 1.0))  # stable: ties stay in order of steps
    facts = {"shards": str(loader.stream.directory), "split": loader.stream.split, "pieces": pieces}
    tell(facts, as_json, lambda facts: _print(facts, n, chars))


def _decoder(folder: Path, manifest: Any) -> Any:
    """Ids to text by the tokenizer beside the shards; None without one."""
    from gpu_curate import config
    from gpu_curate.tokenizer.loading import load

    path = folder / "tokenizer.json"
    if not path.exists():
        return None
    eot = manifest["eot_id"] if manifest else 0
    return load(config.Tokenizer.model_validate({"path": str(path), "eot": eot, "library": "tokenizers"})).decode


def _print(facts: dict[str, Any], n: int, chars: int) -> None:
    from gpu_curate.visible import one, say

    pieces = facts["pieces"]
    documents = len({piece["doc_id"] for piece in pieces})
    rows = len({(p["step"], p["micro_batch"], p["rank"], p["row"]) for p in pieces})
    say(
        f"{one(facts['shards'])}, {facts['split']}: {documents:,} documents in {rows:,} rows; all passed every rule of the run"
    )
    for piece in pieces[:n]:
        where = f"{one(piece['source'])}: {one(piece['path'])}, row {piece['source_row']}"
        say()
        say(
            f"step {piece['step']} rank {piece['rank']} micro-batch {piece['micro_batch']} row {piece['row']}, tokens "
            f"{piece['offset']:,} to {piece['offset'] + piece['tokens'] - 1:,}: doc_id {piece['doc_id']}  {where}"
        )
        if piece.get("url"):
            say(f"  {one(piece['url'])}")
        odd = piece.get("odd")
        if odd is not None:
            size = piece.get("cluster_size", 1)
            copies = f"; stands for {size:,} documents" if size > 1 else ""
            say(f"  {odd['score']} {odd['value']:.4g}: {odd['share']:.2%} of the kept ones go so far{copies}")
        if chars and piece.get("text"):
            say(f"  {one(piece['text'][:chars])}{' ...' if len(piece['text']) > chars else ''}")
    if len(pieces) > n:
        say(f"\n... and {len(pieces) - n:,} more pieces (-n)")
