"""gpu-curate tokenizer: make tokenizers, and compare them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from gpu_curate.commands.options import AsJson
from gpu_curate.visible import one, say, say_json

app = typer.Typer(help="Make tokenizers, compare them.", no_args_is_help=True, rich_markup_mode=None)


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
    documents_per_file: Annotated[
        int | None, typer.Option("--documents-per-file", min=1, help="Read at most so many texts of each file.")
    ] = None,
    sample: Annotated[
        Path | None, typer.Option("--sample", help="JSONL file to write the texts to that it is trained on.")
    ] = None,
    reserved: Annotated[
        list[str] | None, typer.Option("--reserved", metavar="TOKEN", help="Special token kept for later; repeatable.")
    ] = None,
) -> None:
    """Train a byte-level BPE. Same input in the same order, same file."""
    from gpu_curate.tools.train_tokenizer import train_from_files

    facts = train_from_files(
        paths, out, vocab_size, eot, text_column, max_bytes, reserved, bytes_per_file, documents_per_file, sample
    )
    _tell(facts["rejected"])
    for text in facts["warnings"]:
        say(f"warning: {text}", file=sys.stderr)
    say(f"{out}: {facts['vocab_size']} entries from {facts['documents']} documents ({facts['bytes'] / 1e6:.1f} MB)")


@app.command(
    epilog="Example:  gpu-curate tokenizer compare 'languages/*.txt' --tokenizer tokenizer.json --tokenizer gpt2"
)
def compare(
    paths: Annotated[list[str], typer.Argument(metavar="PATH...", help="JSONL, Parquet or text files; globs.")],
    tokenizer: Annotated[
        list[str], typer.Option("--tokenizer", metavar="TOKENIZER", help="File, hub name, tiktoken:NAME; repeatable.")
    ],
    text_column: Annotated[str, typer.Option("--text-column", help="Key or column that holds the text.")] = "text",
    bytes_per_file: Annotated[
        int, typer.Option("--bytes-per-file", min=1, help="Read about so much text of each file.")
    ] = 10_000_000,
    as_json: AsJson = False,
) -> None:
    """Bytes per token and tokens per word of several tokenizers, file by file: one file a language shows who pays for it."""
    from gpu_curate.tools.train_tokenizer import compare as measured

    facts = measured(paths, tokenizer, text_column, bytes_per_file)
    _tell(facts["rejected"])
    if as_json:
        say_json(facts)
        return
    files = facts["files"]
    whole = {"bytes": sum(f["bytes"] for f in files.values()), "words": sum(f["words"] for f in files.values())}
    tokens = {name: sum(f["tokens"][name] for f in files.values()) for name in tokenizer}
    rows = {**files, "all": {**whole, "tokens": tokens}} if len(files) > 1 else files
    width = max(len(one(path)) for path in rows) + 2
    columns = [max(len(one(name)), 18) + 2 for name in tokenizer]
    say("bytes per token, and tokens per word")
    say(" " * width + "MB".rjust(8) + "".join(one(n).rjust(w) for n, w in zip(tokenizer, columns, strict=True)))
    for path, own in rows.items():
        cells = (
            f"{own['bytes'] / max(own['tokens'][n], 1):.3f}, {own['tokens'][n] / max(own['words'], 1):.2f}".rjust(w)
            for n, w in zip(tokenizer, columns, strict=True)
        )
        say(one(path).ljust(width) + f"{own['bytes'] / 1e6:8.2f}" + "".join(cells))


def _tell(rejected: list[str]) -> None:
    for reason in rejected[:5]:
        say(f"warning: {one(reason)}", file=sys.stderr)
    if len(rejected) > 5:
        say(f"warning: {len(rejected)} records could not be read", file=sys.stderr)
