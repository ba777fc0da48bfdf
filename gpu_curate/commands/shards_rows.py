"""Commands of `gpu-curate shards` for who trains: what packing wastes; other programs' formats; shards made of shards."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from gpu_curate.commands.options import AsJson
from gpu_curate.visible import one, say, say_json

Directory = Annotated[Path, typer.Argument(metavar="DIR", help="Folder of shards, or run directory.")]
Split = Annotated[str, typer.Option("--split", help="train or validation.")]
SeqLen = Annotated[int, typer.Option("--seq-len", min=1, help="Tokens of a row.")]


def register(app: typer.Typer) -> None:
    """Add the commands to `gpu-curate shards`."""
    for command, example in (
        (packing, "packing runs/quickstart --seq-len 2048"),
        (bench, "bench runs/quickstart --batch-size 16 --seq-len 1024"),
        (convert, "convert runs/quickstart --to megatron --out megatron"),
        (merge, "merge runs/web runs/wiki --out both"),
        (split, "split runs/web --parts 2 --out halves"),
        (sample, "sample runs/web --tokens 10000000 --out small"),
    ):
        app.command(epilog=f"Example:  gpu-curate shards {example}")(command)


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


def bench(
    folder: Directory,
    batch_size: Annotated[int, typer.Option("--batch-size", min=1, help="Rows of a batch.")] = 16,
    seq_len: SeqLen = 1024,
    batches: Annotated[int, typer.Option("--batches", min=1, help="Of every round.")] = 200,
    rounds: Annotated[int, typer.Option("--rounds", min=1, help="The median counts.")] = 3,
    split: Split = "train",
    cold: Annotated[
        bool, typer.Option("--cold/--no-cold", help="Read from the disk, too, not from memory only.")
    ] = True,
    as_json: AsJson = False,
) -> None:
    """Measure how fast batches come from this disk, cold and warm, beside a bare memory map."""
    from gpu_curate.tools.loader_bench import bench as measure

    speeds = measure(folder, split, batch_size, seq_len, batches, rounds, cold)
    if as_json:
        say_json([speed._asdict() for speed in speeds])
        return
    tokens = batch_size * seq_len
    say(f"{one(folder)}, {split}: batches of {batch_size} x {seq_len} a second, one process")
    say(f"  {'way':<32} {'cold':>10} {'warm':>10} {'warm, M tokens/s':>17} {'of memmap':>10}")
    for s in speeds:
        first = "-" if s.cold is None else f"{s.cold:,.0f}"
        say(f"  {s.case:<32} {first:>10} {s.warm:>10,.0f} {s.warm * tokens / 1e6:>17,.0f} {s.ratio:>10.2f}")


Result = Annotated[Path, typer.Option("--out", help="Folder to write; empty, or not there yet.")]
PerFile = Annotated[int, typer.Option("--tokens-per-file", min=1, help="Of formats of several files.")]


def convert(
    folder: Directory,
    to: Annotated[str, typer.Option("--to", metavar="FORMAT", help="Who reads it; see docs/adapters.md.")],
    out: Result,
    tokens_per_file: PerFile = 100_000_000,
    block: Annotated[int, typer.Option("--block", min=1, help="Tokens of a row of `datasets`.")] = 1024,
    name: Annotated[str, typer.Option("--name", help="First part of file names of llmc and stacklm.")] = "shards",
    as_json: AsJson = False,
) -> None:
    """Write shards as another program reads them, and read them back."""
    from gpu_curate.adapters.writers import convert as write

    facts = write(folder, out, to, tokens_per_file, block, name)
    if as_json:
        say_json(facts)
        return
    for split, own in facts["splits"].items():
        say(
            f"{one(out)}: {split}, {own['tokens']:,} tokens, {own['documents']:,} documents, {len(own['files']):,} files, read back"
        )


def merge(
    folders: Annotated[list[Path], typer.Argument(metavar="DIR...", help="Folders of shards, or run directories.")],
    out: Result,
    tokens_per_shard: Annotated[
        int | None, typer.Option("--tokens-per-shard", min=1, help="Default: as the first.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Make one folder of shards of several, one behind the other, and verify it."""
    from gpu_curate.adapters.folders import merge as write

    _made(out, write(folders, out, tokens_per_shard), as_json)


def split(
    folder: Directory,
    parts: Annotated[int, typer.Option("--parts", min=2, help="How many.")],
    out: Result,
    as_json: AsJson = False,
) -> None:
    """Make several folders of shards of one, whole documents in turn, and verify them."""
    from gpu_curate.adapters.folders import split as write

    manifests = write(folder, out, parts)
    if as_json:
        say_json({f"part-{number}": manifest["splits"] for number, manifest in enumerate(manifests)})
        return
    for number, manifest in enumerate(manifests):
        _made(out / f"part-{number}", manifest, False)


def sample(
    folder: Directory,
    tokens: Annotated[int, typer.Option("--tokens", min=1, help="Of train; other splits give the same share.")],
    out: Result,
    seed: Annotated[int, typer.Option("--seed", help="Another seed, other documents.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Make a folder of shards of some documents of one, drawn by a seed, and verify it."""
    from gpu_curate.adapters.folders import sample as write

    _made(out, write(folder, out, tokens, seed), as_json)


def _made(out: Path, manifest: dict[str, Any], as_json: bool) -> None:
    if as_json:
        say_json(manifest["splits"])
        return
    for name, own in manifest["splits"].items():
        say(
            f"{one(out)}: {name}, {own['tokens']:,} tokens, {own['documents']:,} documents, {len(own['shards']):,} shards, verified"
        )
