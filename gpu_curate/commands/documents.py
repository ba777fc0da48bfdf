"""gpu-curate export and samples: the documents of a finished run."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated, cast

import typer

from gpu_curate.commands.options import (
    AsJson,
    RunFolder,
    ShardsName,
    Workers,
    choice,
)
from gpu_curate.visible import say, say_json


def _export_name(what: str, reasons: list[str], split: str | None, sources: list[str], format: str) -> str:
    parts = [what, *reasons, *([split] if split else []), *sources, format]
    return "-".join(p.replace(":", "_") for p in parts)


def export(
    run: RunFolder,
    what: Annotated[str, choice("--what", "kept", "dropped", "all", help="Which documents.")] = "kept",
    format: Annotated[str, choice("--format", "parquet", "jsonl", help="File format.")] = "parquet",
    out: Annotated[Path | None, typer.Option("--out", help="Folder to write. Default: RUN-export/WHAT-...")] = None,
    reason: Annotated[
        list[str] | None,
        typer.Option("--reason", metavar="R", help="Only those dropped for this, or its family; repeatable."),
    ] = None,
    split: Annotated[str | None, choice("--split", "train", "validation", "val", help="Only of this split.")] = None,
    source: Annotated[
        list[str] | None, typer.Option("--source", metavar="S", help="Only of this source; repeatable.")
    ] = None,
    columns: Annotated[
        list[str] | None,
        typer.Option(
            "--columns", metavar="A,B", help="Columns, in order; `scores`: all scores. Default: all but scores."
        ),
    ] = None,
    shards: ShardsName = None,
    workers: Workers = None,
    as_json: AsJson = False,
) -> None:
    """Write the curated text, or what was dropped with its reasons, as Parquet or JSON Lines. Goes on where it stopped."""
    from gpu_curate.runs.finished import open_run
    from gpu_curate.tools.export import Format, What
    from gpu_curate.tools.export import export as write

    reasons, sources = list(reason or []), list(source or [])
    place = out or Path(f"{run}-export") / _export_name(what, reasons, split, sources, format)
    names = [name for some in columns or [] for name in some.split(",") if name]
    facts = write(
        open_run(run, shards),
        place,
        cast(What, what),
        cast(Format, format),
        reasons,
        split,
        sources,
        names,
        workers,
        note=_now_and_then,
    )
    if as_json:
        say_json(facts)
    else:
        again = f" ({facts['reused']:,} partitions were there)" if facts["reused"] else ""
        say(f"{place}: {facts['documents']:,} documents in {len(facts['files']):,} files{again}")


def _now_and_then(text: str, _last: list[float] = [0.0]) -> None:  # noqa: B006  one clock for all calls
    """Say how far it is, at most every five seconds."""
    if time.monotonic() - _last[0] > 5.0:
        _last[0] = time.monotonic()
        say(text, file=sys.stderr)


def samples(
    run: RunFolder,
    reason: Annotated[str, typer.Option("--reason", metavar="R", help="A reason of the report, or `kept`.")],
    n: Annotated[int, typer.Option("-n", min=1, help="Documents shown.")] = 20,
    chars: Annotated[int, typer.Option("--chars", min=40, help="Characters shown of each.")] = 800,
    shards: ShardsName = None,
    as_json: AsJson = False,
) -> None:
    """Show documents that were dropped for a reason, with what tripped the rule pointed out. Always the same ones."""
    from gpu_curate.console import print_samples
    from gpu_curate.runs.finished import open_run
    from gpu_curate.tools.samples import samples as find

    found = find(open_run(run, shards), reason, n)
    if as_json:
        say_json(found)
    else:
        print_samples(found, chars)
