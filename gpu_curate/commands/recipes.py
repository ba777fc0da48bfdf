"""gpu-curate init and config: write a recipe, and say what it may hold."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gpu_curate.errors import ConfigError
from gpu_curate.visible import say, say_json

app = typer.Typer(help="What a recipe may say.", no_args_is_help=True, rich_markup_mode=None)


def recipe_names() -> list[str]:
    from gpu_curate.tools.recipes import names

    return names()


@app.command(epilog="Example:  gpu-curate config schema > recipe.schema.json")
def schema() -> None:
    """Print the JSON Schema of recipes, for editors and other programs."""
    from gpu_curate.tools.config_reference import json_schema

    say_json(json_schema())


@app.command(name="reference", epilog="Example:  gpu-curate config reference | less")
def config_reference() -> None:
    """Print every key of a recipe with its type, default and meaning, as Markdown."""
    from gpu_curate.tools.config_reference import markdown

    say(markdown())


def init(
    paths: Annotated[
        list[str] | None, typer.Argument(metavar="[PATH...]", help="Your files, folders or globs.")
    ] = None,
    out: Annotated[Path, typer.Option("--out", help="The recipe to write; - fingerprint_of it.")] = Path("recipe.yaml"),
    recipe: Annotated[
        str | None,
        typer.Option(
            "--recipe", metavar="NAME", help="Copy a recipe that comes with the package.", autocompletion=recipe_names
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the recipe that is there.")] = False,
) -> None:
    """Look at your files and write a recipe for them, or copy one that comes with the package. Default: this folder."""
    from gpu_curate.console import print_init
    from gpu_curate.tools import recipes
    from gpu_curate.tools.look import Look

    if recipe is not None and paths:
        raise ConfigError(
            f"init: --recipe {recipe} copies a recipe as it is, so it takes no PATH", "give one of the two"
        )
    if out.exists() and not force and str(out) != "-":
        raise ConfigError(f"init: {out} exists", "choose another one with --out, or overwrite it with --force")
    sources, left = None, list[Look]()
    if recipe is not None:
        text = recipes.read(recipe)
    else:
        text, sources, left = recipes.compose(list(paths or ["."]), "recipe.yaml" if str(out) == "-" else str(out))
    if str(out) == "-":
        print(text, end="")
        return
    out.write_text(text, encoding="utf-8")
    print_init(out, sources, left)
