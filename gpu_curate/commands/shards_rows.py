"""Commands of `gpu-curate shards` for who trains: packing."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from gpu_curate.commands.options import AsJson
from gpu_curate.visible import one, say, say_json

Directory = Annotated[Path, typer.Argument(metavar="DIR", help="Folder of shards, or run directory.")]
Split = Annotated[str, typer.Option("--split", help="train or validation.")]
SeqLen = Annotated[int, typer.Option("--seq-len", min=1, help="Tokens of a row.")]


def register(app: typer.Typer) -> None:
    """Add the commands to `gpu-curate shards`."""
    app.command(epilog="Example:  gpu-curate shards packing runs/quickstart --seq-len 2048")(packing)


def packing(folder: Directory, seq_len: SeqLen = 2048, split: Split = "train", as_json: AsJson = False) -> None:
    """Say what each way of making rows of a sequence length wastes: padding, tokens in no row, documents cut."""
    from gpu_curate.loader.waste import packing_table

    table = packing_table(folder, split, seq_len)
    if as_json:
        say_json([asdict(waste) for waste in table])
        return
    say(f"{one(folder)}, {split}, rows of {seq_len:,} tokens")
    say(f"  {'way':<38} {'rows':>12} {'padding':>9} {'in no row':>10} {'cut though it fits':>19}")
    for w in table:
        say(f"  {w.way:<38} {w.rows:>12,} {w.padding_fraction:>9.2%} {w.lost_fraction:>10.2%} {w.cut_fraction:>19.2%}")
