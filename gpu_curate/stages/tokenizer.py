"""Tokenizer: train one on the documents of the run, where the config asks for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np

from gpu_curate import guard
from gpu_curate.config import Config, Tokenizer
from gpu_curate.errors import ConfigError, NothingKeptError
from gpu_curate.stages import Context, Stage, Stopwatch
from gpu_curate.stages.partition_text import host_text, verified_text
from gpu_curate.store.files import publish


class TrainedTokenizer(Stage):
    """Train a byte-level BPE on a content-keyed sample: the documents of lowest content hash, each text once.

    Reads: documents, signatures(content hash).  Writes: part-000000.tokenizer.json.
    The sample and its order depend on the texts alone, so the tokenizer does not depend on partitions or workers.
    Memory: `max_bytes` of text, 24 bytes a document, and the trainer's word counts.
    """

    name: ClassVar[str] = "tokenizer"
    code: ClassVar[tuple[str, ...]] = ("stages.tokenizer", "tokenizer")

    def active(self, config: Config) -> bool:
        return config.tokenizer.train is not None

    def reads(self, config: Config) -> tuple[str, ...]:
        return ("documents", "signatures")

    def settings(self, config: Config) -> Any:
        return config.tokenizer.model_dump(include={"train", "eot"})

    def libraries(self, config: Config) -> tuple[str, ...]:
        return ("tokenizers",)

    def plan(self, context: Context) -> dict[str, Any]:
        return {"000000": None}

    def run(self, context: Context, part: str, task: Any) -> dict[str, Any]:
        from gpu_curate.tokenizer.training import train

        watch = Stopwatch()
        options = context.config.tokenizer
        assert options.train is not None
        texts = sample(context, options.train.max_bytes)
        if not texts:
            raise NothingKeptError("tokenizer.train: there is no text to train on: every document is empty")
        box = context.box(self.name)
        path = box.path(part, ".tokenizer.json")
        with publish(path) as temp:
            entries = train(texts, options.train.vocab_size, options.eot, temp)
        nbytes = sum(len(t.encode("utf-8")) for t in texts)
        facts = {"documents": len(texts), "bytes": nbytes, "backend": "cpu"}
        warnings = _shortfall(options.train.vocab_size, entries, nbytes)
        return box.commit(part, [path], {**facts, "warnings": warnings, **watch.facts()})


def _shortfall(wanted: int, entries: int, nbytes: int) -> list[str]:
    """The warning of a tokenizer that is smaller than it should be, if it is."""
    if entries == wanted:
        return []
    return [
        f"tokenizer: {wanted} entries asked for, {entries} made: no other pair of tokens occurs twice in the "
        f"{nbytes / 1e6:.3g} MB of the sample (more text, or a larger max_bytes, gives more)"
    ]


def sample(context: Context, max_bytes: int) -> list[str]:
    """Texts of the lowest content hashes, up to `max_bytes`, in the order of their hash, no text twice."""
    signatures, documents = context.box("signatures"), context.box("documents")
    parts = signatures.parts()
    hashes, sizes, owner, row = [], [], [], []
    for number, part in enumerate(parts):
        hi, nbytes = signatures.columns(part, "content_hi", "bytes")
        hashes.append(hi)
        sizes.append(nbytes)
        owner.append(np.full(len(hi), number, np.int32))
        row.append(np.arange(len(hi)))
    hash_N, bytes_N = np.concatenate(hashes), np.concatenate(sizes)
    owner_N, row_N = np.concatenate(owner), np.concatenate(row)
    _, first = np.unique(hash_N, return_index=True)  # sorted by hash, one document of each
    first = first[bytes_N[first] > 0]
    taken = first[: int(np.searchsorted(np.cumsum(bytes_N[first]), max_bytes, side="right")) or 1]
    texts: list[Any] = [None] * len(taken)
    for number in np.unique(owner_N[taken]):
        where = np.flatnonzero(owner_N[taken] == number)
        where = where[np.argsort(row_N[taken[where]])]
        column = host_text(verified_text(documents, parts[number]), row_N[taken[where]])
        for i, text in zip(where, column.to_arrow().to_pylist(), strict=True):
            texts[i] = text
    return texts


def resolved(context: Context) -> Tokenizer:
    """The tokenizer section with `train` replaced by the path of what was trained."""
    options = context.config.tokenizer
    if options.train is None:
        return options
    path = context.box("tokenizer").path("000000", ".tokenizer.json")
    return options.model_copy(update={"path": str(path), "train": None})


def train_from_files(
    paths: list[str], out: Any, vocab_size: int, eot: str, text_column: str, max_bytes: int
) -> dict[str, Any]:
    """Train on files outside a run, in sorted order of their paths, as `gpu-curate tokenizer train` does.

    Raises:
        ConfigError: a path matches nothing, or no text was found.
    """
    from pathlib import Path

    from gpu_curate.config import JsonlSource, ParquetSource, TextSource
    from gpu_curate.sources import Record, Reject
    from gpu_curate.sources.files import find, stem
    from gpu_curate.sources.jsonl import JsonlReader
    from gpu_curate.sources.parquet import ParquetReader
    from gpu_curate.stages.columns import check_columns
    from gpu_curate.stages.documents.listing import make_reader
    from gpu_curate.stages.rejects import place_of
    from gpu_curate.text.normalize import well_formed
    from gpu_curate.tokenizer.training import train

    facts: dict[str, Any] = {"documents": 0, "bytes": 0}
    rejected: list[str] = []

    readers = {
        ParquetReader.suffixes: make_reader(ParquetSource(name="parquet", type="parquet", text_column=text_column)),
        JsonlReader.suffixes: make_reader(JsonlSource(name="jsonl", type="jsonl", text_column=text_column)),
        "": make_reader(TextSource(name="text", type="text")),
    }
    files = find(paths, (), {}, "tokenizer train: PATH").files
    reader_of = [next(r for suffixes, r in readers.items() if stem(f.path).endswith(suffixes)) for f in files]
    of_reader = {r: [f for f, own in zip(files, reader_of, strict=True) if own is r] for r in readers.values()}
    check_columns([r.source for r in of_reader], of_reader, of_reader.values(), {"text_column": "--text-column"})

    def texts() -> Iterator[str]:
        for file, reader in zip(files, reader_of, strict=True):
            for split in guard.splits(reader, file.path, file.size, 1 << 40):
                for item in guard.read(reader, split):
                    if isinstance(item, Reject):
                        rejected.append(f"{place_of(file.path, item.row, item.offset)}: {item.reason}")
                    if isinstance(item, Record):
                        if facts["bytes"] >= max_bytes:
                            return
                        text = well_formed(item.text)
                        facts["documents"] += 1
                        facts["bytes"] += len(text.encode("utf-8"))
                        yield text

    with publish(Path(out)) as temp:
        facts["vocab_size"] = train(texts(), vocab_size, eot, temp)
        facts["warnings"] = _shortfall(vocab_size, facts["vocab_size"], facts["bytes"])
        if not facts["bytes"]:
            raise ConfigError(f"no text in {', '.join(paths)}", "check --text-column")
    return {**facts, "rejected": rejected}
