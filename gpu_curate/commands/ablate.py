"""`gpu-curate ablate`."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from gpu_curate.commands.options import AsJson
from gpu_curate.visible import one, say, say_json

EXAMPLES = (
    "Examples:  gpu-curate ablate raw=runs/raw clean=runs/clean --tokens 2000000  |  "
    "gpu-curate ablate runs/web runs/web:dump --params 15000000 --tokens 300000000 --seeds 2"
)


def ablate(
    arms: Annotated[
        list[str], typer.Argument(metavar="ARM...", help="[NAME=]DIR of shards; DIR:dump: in the order of the files.")
    ],
    params: Annotated[int, typer.Option("--params", min=10_000, help="Parameters of the model.")] = 1_000_000,
    tokens: Annotated[int, typer.Option("--tokens", min=1, help="Seen by every model.")] = 2_000_000,
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="Models of every arm.")] = 2,
    seq_len: Annotated[int, typer.Option("--seq-len", min=8, help="Tokens of a row.")] = 256,
    batch_size: Annotated[int, typer.Option("--batch-size", min=1, help="Rows of a step.")] = 16,
    eval_tokens: Annotated[
        int, typer.Option("--eval-tokens", min=1, help="Of every validation set, at most.")
    ] = 200_000,
    device: Annotated[str | None, typer.Option("--device", help="cuda or cpu. Default: what there is.")] = None,
    out: Annotated[Path, typer.Option("--out", help="Folder of results.")] = Path("ablate"),
    as_json: AsJson = False,
) -> None:
    """Train small models on equal tokens of two or more shard sets, and say in bits per byte what the difference is worth."""
    from gpu_curate.ablate import table

    last = [0.0]

    def tell(text: str) -> None:
        if time.monotonic() - last[0] > 5:
            last[0] = time.monotonic()
            say(text, file=sys.stderr)

    given = [table.parse_arm(arm) for arm in arms]
    facts = table.ablate(given, out, params, tokens, seeds, seq_len, batch_size, eval_tokens, device, tell)
    if as_json:
        say_json(facts)
    else:
        _print(facts, out)


def _print(facts: dict[str, Any], out: Path) -> None:
    model, budget = facts["model"], facts["budget"]
    say(
        f"{model['parameters'] / 1e6:.2f} M parameters ({model['layers']} layers of {model['width']}), "
        f"{budget['tokens']:,} tokens, {budget['seeds']} seeds, on {budget['device']}"
    )
    names = list(facts["validation"])
    width = max(len(one(name)) for name in [*names, *facts["arms"], "trained on"]) + 2
    say("\nbits per byte on the validation set of (95 % interval over documents)")
    say("  " + "trained on".ljust(width) + "epochs".rjust(7) + "".join(one(name).rjust(26) for name in names))
    for arm, own in facts["bits_per_byte"].items():
        cells = "".join(f"{v['mean']:.4f} ({v['low']:.4f}-{v['high']:.4f})".rjust(26) for v in own.values())
        say("  " + one(arm).ljust(width) + f"{facts['arms'][arm]['epochs']:.2f}".rjust(7) + cells)
    first = next(iter(facts["arms"]))
    say(f"\nmore than {one(first)}, on the same documents; each seed by itself")
    for name, arms in facts["differences"].items():
        for arm, v in arms.items():
            each = ", ".join(f"{s:+.4f}" for s in v["seeds"])
            say(f"  {one(arm)} on {one(name)}: {v['mean']:+.4f} ({v['low']:+.4f} to {v['high']:+.4f}); {each}")
    for arm, own in facts["arms"].items():
        say(f"\n{one(arm)} writes: {one(own['samples'][0][:300])}")
    say(f"\n{one(out)}: ablate.json, curves.csv")
