"""gpu-curate doctor and compare: is this machine fit, and how fast is it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from gpu_curate.commands.options import (
    EXIT_FATAL,
    AsJson,
    BackendOption,
    ConfigPath,
    Set,
    TrustCode,
    TrustEngine,
    Workers,
    load_recipe,
    tell,
)
from gpu_curate.visible import say


def doctor(
    gpu: Annotated[bool, typer.Option("--gpu", help="The GPU path is required, not optional.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Touch no GPU, which another program may be using.")] = False,
    as_json: AsJson = False,
) -> None:
    """Say what is installed, missing or broken here, and test every op. Exit status 1 if something is broken."""
    from gpu_curate.console import print_doctor
    from gpu_curate.tools.doctor.diagnosis import diagnose

    facts = diagnose(gpu, tell=lambda text: say(text, file=sys.stderr, flush=True), quick=quick)
    tell(facts, as_json, print_doctor)
    if not facts["usable"]:
        raise typer.Exit(EXIT_FATAL)


def compare(
    config: ConfigPath,
    out: Annotated[Path | None, typer.Option("--out", help="Folder of results. Default: runs/NAME-compare.")] = None,
    max_bytes: Annotated[int, typer.Option("--max-bytes", min=1, help="Bytes of text compared.")] = 64 << 20,
    workers: Workers = None,
    backend: BackendOption = None,
    set_: Set = None,
    trust_engine: TrustEngine = False,
    trust_code: TrustCode = False,
    as_json: AsJson = False,
) -> None:
    """Run the CPU and the GPU path on a sample: equal arrays, speeds, price ratio. Exit status 1 if an array differs."""
    from gpu_curate.console import print_compare
    from gpu_curate.tools.compare import compare as run_both

    recipe, _ = load_recipe(config, None, workers, backend, set_, trust_engine, trust_code)
    folder = out or Path("runs") / f"{config.stem}-compare"
    facts = run_both(recipe, folder, max_bytes, note=(lambda text: None) if as_json else print)
    tell(facts, as_json, lambda f: print_compare(f, folder))
    if not facts["equal"]:
        raise typer.Exit(EXIT_FATAL)
