"""gpu-curate shards: look at shards and check them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gpu_curate.commands import shards_rows
from gpu_curate.commands.options import (
    EXIT_FATAL,
    AsJson,
    choice,
    tell,
)
from gpu_curate.errors import ConfigError
from gpu_curate.visible import one, say, say_json

app = typer.Typer(help="Look at shards and check them.", no_args_is_help=True, rich_markup_mode=None)
shards_rows.register(app)


ShardsFolder = Annotated[Path, typer.Argument(metavar="DIR", help="Folder of shards, or run directory.")]


def _shards_folder(folder: Path) -> Path:
    """A run directory stands for its shards."""
    from gpu_curate.loader import shards_folder

    if not folder.is_dir():
        raise ConfigError(f"{folder}: no such folder")
    return shards_folder(folder)


@app.command(epilog="Example:  gpu-curate shards info runs/quickstart/shards")
def info(folder: ShardsFolder, as_json: AsJson = False) -> None:
    """Tokens, documents, files, tokenizer and split of a folder of shards."""
    from gpu_curate.console import print_shards
    from gpu_curate.shards_check import info as shards_info
    from gpu_curate.store.run_directory import RUN_FILE, shard_sets

    place = _shards_folder(folder)
    facts = shards_info(place)
    if not any(split["shards"] for split in facts["splits"].values()):
        raise ConfigError(
            f"{place}: no shard", "expected manifest.json, or files like train_000000.bin; or a run directory"
        )
    tell({**facts, "sets": shard_sets(folder)} if (folder / RUN_FILE).exists() else facts, as_json, print_shards)


@app.command(epilog="Example:  gpu-curate shards verify runs/quickstart/shards")
def verify(folder: ShardsFolder, as_json: AsJson = False) -> None:
    """Check sizes, headers, hashes, EOT counts and token ranges against the manifest. Exit status 1 on a finding."""
    from gpu_curate.shards_check import verify as verify_shards

    place = _shards_folder(folder)
    findings = verify_shards(place)
    if as_json:
        say_json({"shards": str(place), "findings": [f._asdict() for f in findings]})
    else:
        for finding in findings:
            say(f"FAILED  {one(finding.file)}: {one(finding.what)}")
        say(f"{place}: {len(findings)} findings" if findings else f"{place}: every check passed")
    if findings:
        raise typer.Exit(EXIT_FATAL)


@app.command(epilog="Example:  gpu-curate shards head runs/quickstart/shards -n 2 --split validation")
def head(
    folder: ShardsFolder,
    n: Annotated[int, typer.Option("-n", min=1, help="Documents shown.")] = 3,
    split: Annotated[str, choice("--split", "train", "validation", "val", help="Which split.")] = "train",
    tokenizer: Annotated[
        str | None, typer.Option("--tokenizer", help="tokenizer.json; default: the one beside the shards.")
    ] = None,
    chars: Annotated[int, typer.Option("--chars", min=1, help="Characters shown of each.")] = 400,
    as_json: AsJson = False,
) -> None:
    """Show the first documents of a split: where they come from, their tokens, their text."""
    from gpu_curate import config
    from gpu_curate.console import print_head
    from gpu_curate.loader import read_manifest
    from gpu_curate.shards_check import head as shards_head
    from gpu_curate.tokenizer.loading import load

    place = _shards_folder(folder)
    path = Path(tokenizer) if tokenizer else place / "tokenizer.json"
    manifest = read_manifest(place)
    eot = manifest["eot_id"] if manifest else 0
    decode = load(config.Tokenizer(path=str(path), eot=eot, library="tokenizers")).decode if path.exists() else None
    documents = shards_head(place, n, split, decode)
    if as_json:
        say_json([{**d, "ids": d["ids"].tolist()} for d in documents])
    else:
        print_head(documents, chars)
