"""What commands share: their options, a recipe with the command line's say in it, exit statuses."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpu_curate.errors import ConfigError
from gpu_curate.visible import one, say, say_json

if TYPE_CHECKING:
    from gpu_curate.config import Config


EXIT_CONFIG, EXIT_FATAL, EXIT_INTERRUPTED = 2, 1, 130  # the last: 128 + signal number


def choice(name: str, *values: str, help: str) -> Any:
    """An option that takes one of a few words: shown in the help, completed by the shell, and suggested when misspelt."""

    def check(value: str | None) -> str | None:
        if value is None or value in values:
            return value
        from gpu_curate.config import did_you_mean

        raise ConfigError(
            f"{name} {value}: choose {', '.join(values[:-1])} or {values[-1]}{did_you_mean(value, values)}"
        )

    return typer.Option(name, metavar="|".join(values), help=help, callback=check, autocompletion=lambda: list(values))


ConfigPath = Annotated[Path, typer.Argument(metavar="CONFIG.yaml", help="The recipe.")]
Out = Annotated[Path | None, typer.Option("--out", help="Run directory. Default: runs/NAME of CONFIG.yaml.")]
Workers = Annotated[int | None, typer.Option("--workers", min=1, help="Worker processes. Default: one a core.")]
BackendOption = Annotated[
    str | None,
    choice("--backend", "auto", "cpu", "gpu", help="Where documents are put. Default: what the recipe says."),
]
Set = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override a key of the recipe; repeatable.")
]
TrustEngine = Annotated[
    bool, typer.Option("--trust-engine", help="The scheduler that the recipe names as run.engine is yours.")
]
TrustCode = Annotated[bool, typer.Option("--trust-code", help="The files of Python that the recipe names are run.")]


RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="Run directory.")]
ShardsName = Annotated[
    str | None, typer.Option("--shards", metavar="NAME", help="An earlier set of shards in RUN. Default: the latest.")
]
Fresh = Annotated[
    bool,
    typer.Option(
        "--fresh",
        help="Number the files anew, and choose the validation split anew, not by the bound of the latest shards in RUN.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
Plot = Annotated[
    Path | None,
    typer.Option("--plot", metavar="FILE", help="Draw it, too: .svg, .png or .pdf ([plot] brings matplotlib)."),
]


def load_recipe(
    config: Path,
    out: Path | None,
    workers: int | None,
    backend: str | None,
    overrides: list[str] | None,
    trust: bool = False,
    trust_code: bool = False,
) -> tuple[Config, Path]:
    """The config with the command line's say in it, and the run directory."""
    from gpu_curate.config import load

    more = list(overrides or [])
    if workers is not None:
        more.append(f"run.workers={workers}")
    if backend is not None:
        more.append(f"run.backend={backend}")
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", FutureWarning)
        loaded = load(config, more, trust or None, trust_code or None)
    for warning in told:
        say(f"warning: {one(warning.message)}", file=sys.stderr)
    return loaded, out or Path("runs") / config.stem


def tell(facts: Any, as_json: bool, pretty: Callable[[Any], None]) -> None:
    """JSON for programs, or lines for people."""
    if as_json:
        say_json(facts)
    else:
        pretty(facts)


def share(part: int, whole: int) -> str:
    return f"{part / whole:.2%}" if whole else ""
