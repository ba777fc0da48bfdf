"""`gpu-curate tokenizer train`: a tokenizer trained on files outside a run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gpu_curate import guard
from gpu_curate.errors import ConfigError
from gpu_curate.sources import Record, Reject
from gpu_curate.sources.files import find, stem
from gpu_curate.sources.jsonl import JsonlReader, JsonlSource
from gpu_curate.sources.parquet import ParquetReader
from gpu_curate.sources.sections import ParquetSource, SourceBase
from gpu_curate.sources.text import TextSource
from gpu_curate.stages.columns import check_columns
from gpu_curate.stages.documents.listing import make_reader
from gpu_curate.stages.rejects import place_of
from gpu_curate.stages.tokenizer import shortfall
from gpu_curate.store.files import publish
from gpu_curate.text.normalize import well_formed
from gpu_curate.tokenizer.training import train


def train_from_files(
    paths: list[str],
    out: Any,
    vocab_size: int,
    eot: str,
    text_column: str,
    max_bytes: int,
    reserved: list[str] | None = None,
    bytes_per_file: int | None = None,
) -> dict[str, Any]:
    """Train on files outside a run, in sorted order of their paths, as `gpu-curate tokenizer train` does.

    Args:
        reserved: see `train`. bytes_per_file: read at most so much text of each file, and its first text anyway.
    Raises:
        ConfigError: a path matches nothing, or no text was found.
    """
    facts: dict[str, Any] = {"documents": 0, "bytes": 0}
    rejected: list[str] = []

    sources: list[tuple[tuple[str, ...], SourceBase]] = [
        (tuple(ParquetReader.suffixes), ParquetSource(name="parquet", type="parquet", text_column=text_column)),
        (tuple(JsonlReader.suffixes), JsonlSource(name="jsonl", type="jsonl", text_column=text_column)),
        (("",), TextSource(name="text", type="text")),
    ]
    readers = [make_reader(source) for _, source in sources]
    files = find(paths, (), {}, "tokenizer train: PATH").files
    number_of = [next(n for n, (ends, _) in enumerate(sources) if stem(f.path).endswith(ends)) for f in files]
    of_reader = [[f for f, own in zip(files, number_of, strict=True) if own == n] for n in range(len(readers))]
    check_columns([source for _, source in sources], readers, of_reader, {"text_column": "--text-column"})

    def texts() -> Iterator[str]:
        for file, number in zip(files, number_of, strict=True):
            reader, before = readers[number], facts["bytes"]
            for split in guard.splits(reader, file.path, file.size, 1 << 40):
                for item in guard.read(reader, split):
                    if isinstance(item, Reject):
                        rejected.append(f"{place_of(file.path, item.row, item.offset)}: {item.reason}")
                    if isinstance(item, Record):
                        if facts["bytes"] >= max_bytes:
                            return
                        if bytes_per_file is not None and facts["bytes"] - before >= bytes_per_file:
                            break
                        text = well_formed(item.text)
                        facts["documents"] += 1
                        facts["bytes"] += len(text.encode("utf-8"))
                        yield text

    with publish(Path(out)) as temp:
        facts["vocab_size"] = train(texts(), vocab_size, eot, temp, reserved or [])
        facts["warnings"] = shortfall(vocab_size, facts["vocab_size"], facts["bytes"])
        if not facts["bytes"]:
            raise ConfigError(f"no text in {', '.join(paths)}", "check --text-column")
    return {**facts, "rejected": rejected}
