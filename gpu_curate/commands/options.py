"""Options that several commands have, and how they print a table of numbers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from gpu_curate.visible import say_json

RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="Run directory.")]
ShardsName = Annotated[
    str | None, typer.Option("--shards", metavar="NAME", help="An earlier set of shards in RUN. Default: the latest.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
Plot = Annotated[
    Path | None,
    typer.Option("--plot", metavar="FILE", help="Draw it, too: .svg, .png or .pdf ([plot] brings matplotlib)."),
]


def tell(facts: Any, as_json: bool, pretty: Callable[[Any], None]) -> None:
    """JSON for programs, or lines for people."""
    if as_json:
        say_json(facts)
    else:
        pretty(facts)


def share(part: int, whole: int) -> str:
    return f"{part / whole:.2%}" if whole else ""
