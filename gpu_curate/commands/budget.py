"""`gpu-curate budget`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from gpu_curate.commands.options import AsJson, tell

EXAMPLES = "Examples:  gpu-curate budget --params 88M  |  gpu-curate budget runs/web --params 1.5B --gpu h100 --gpus 8 --tokens 30B"


def budget(
    corpus: Annotated[
        Path | None, typer.Argument(metavar="[RUN]", help="Run directory or folder of shards, for the epochs.")
    ] = None,
    params: Annotated[str, typer.Option("--params", help="Parameters of the model: 88M, 1.5B.")] = "88M",
    tokens: Annotated[str | None, typer.Option("--tokens", help="Tokens trained on. Default: 20 a parameter.")] = None,
    gpu: Annotated[str, typer.Option("--gpu", help="h200, h100, a100, ...")] = "h200",
    gpus: Annotated[int, typer.Option("--gpus", help="How many of them.")] = 1,
    utilisation: Annotated[float, typer.Option("--utilisation", help="Share of the peak that is reached.")] = 0.4,
    as_json: AsJson = False,
) -> None:
    """Work out tokens, operations, GPU-hours and epochs of a training run, with the sources of every figure."""
    from gpu_curate.inquiry.budget import budget as work_out

    tell(work_out(params, tokens, gpu, gpus, utilisation, corpus), as_json, _print)


def _print(facts: dict[str, Any]) -> None:
    from gpu_curate.inquiry.budget import short
    from gpu_curate.visible import one, say

    own = (
        ""
        if facts["tokens"] == facts["chinchilla_tokens"]
        else f" (20 a parameter: {short(facts['chinchilla_tokens'])})"
    )
    gpu = facts["gpu"]
    say(f"parameters   {short(facts['params'])}")
    say(f"tokens       {short(facts['tokens'])}{own}")
    say(f"operations   {facts['flops']:.3g} (6 x parameters x tokens)")
    say(
        f"GPU-hours    {facts['gpu_hours']:,.3g} of {gpu['name']} ({gpu['tflops']:,g} TFLOP/s dense bf16) at "
        f"{facts['utilisation']:.0%} of the peak"
    )
    if facts["gpus"] > 1:
        say(f"hours        {facts['hours']:,.3g} on {facts['gpus']:,}")
    corpus = facts["corpus"]
    if corpus is not None:
        say(
            f"corpus       {corpus['tokens']:,} tokens in {one(corpus['folder'])}: {corpus['epochs']:,.3g} epochs; {corpus['advice']}"
        )
        say(f"             one epoch is 20 tokens a parameter for {short(corpus['best_params'])} parameters")
    for what, source in facts["sources"].items():
        say(f"  {what}: {source}")
