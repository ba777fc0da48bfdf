"""gpu-curate tokenizer: make tokenizers."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from gpu_curate.visible import one, say

app = typer.Typer(help="Make tokenizers.", no_args_is_help=True, rich_markup_mode=None)


@app.command(epilog="Example:  gpu-curate tokenizer train 'data/*.txt' --vocab-size 32768 --out tokenizer.json")
def train(
    paths: Annotated[list[str], typer.Argument(metavar="PATH...", help="JSONL, Parquet or text files; globs.")],
    out: Annotated[Path, typer.Option("--out", help="tokenizer.json to write.")] = Path("tokenizer.json"),
    vocab_size: Annotated[int, typer.Option("--vocab-size", min=257, help="Entries, the EOT among them.")] = 32768,
    eot: Annotated[str, typer.Option("--eot", help="End-of-text token; the last id.")] = "<|endoftext|>",
    text_column: Annotated[str, typer.Option("--text-column", help="Key or column that holds the text.")] = "text",
    max_bytes: Annotated[int, typer.Option("--max-bytes", min=1, help="Read at most so much text.")] = 1 << 30,
    bytes_per_file: Annotated[
        int | None, typer.Option("--bytes-per-file", min=1, help="Read at most so much text of each file.")
    ] = None,
    reserved: Annotated[
        list[str] | None, typer.Option("--reserved", metavar="TOKEN", help="Special token kept for later; repeatable.")
    ] = None,
) -> None:
    """Train a byte-level BPE. Same input in the same order, same file."""
    from gpu_curate.tools.train_tokenizer import train_from_files

    facts = train_from_files(paths, out, vocab_size, eot, text_column, max_bytes, reserved, bytes_per_file)
    for reason in facts["rejected"][:5]:
        say(f"warning: {one(reason)}", file=sys.stderr)
    if len(facts["rejected"]) > 5:
        say(f"warning: {len(facts['rejected'])} records could not be read", file=sys.stderr)
    for text in facts["warnings"]:
        say(f"warning: {text}", file=sys.stderr)
    say(f"{out}: {facts['vocab_size']} entries from {facts['documents']} documents ({facts['bytes'] / 1e6:.1f} MB)")
