"""Folders of shards made of documents of other folders: merge, split, sample.

What is made has shards, documents.parquet, tokenizer.json and manifest.json, and is verified like any other.

# D documents
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from gpu_curate.adapters.source import Array, SplitSource, splits_of
from gpu_curate.errors import ConfigError, FatalError
from gpu_curate.formats import FORMATS
from gpu_curate.loader.folder import PREFIX
from gpu_curate.loader.order import permute, splitmix64
from gpu_curate.loader.stream import document_columns
from gpu_curate.privacy import published
from gpu_curate.shards_check import verify
from gpu_curate.store.files import publish, write_json


class _Part(NamedTuple):
    source: SplitSource
    document_D: Array  # numbers of the documents that are taken, in order


def merge(directories: list[Path], out: Path, tokens_per_shard: int | None = None) -> dict[str, Any]:
    """One folder of all documents of several, one folder behind the other. Returns its manifest.

    Raises: ConfigError: fewer than two; other tokenizers, types of ids or end-of-text tokens; `out` holds something.
    """
    if len(directories) < 2:
        raise ConfigError(f"shards merge: {len(directories)} folders, expected two or more")
    sources = [source for directory in directories for source in splits_of(directory)]
    _check_alike(sources)
    parts: dict[str, list[_Part]] = {}
    for source in sources:
        parts.setdefault(source.split, []).append(_Part(source, np.arange(len(source.bounds) - 1)))
    return _write(out, parts, tokens_per_shard)


def split(directory: Path, out: Path, parts: int) -> list[dict[str, Any]]:
    """Folders out/part-0 ... of whole documents: document d of every split goes to part d % parts. Returns their manifests."""
    if parts < 2:
        raise ConfigError(f"shards split: {parts} parts, expected two or more")
    sources = splits_of(directory)
    for source in sources:
        if len(source.bounds) - 1 < parts:
            raise ConfigError(
                f"shards split: split {source.split} has {len(source.bounds) - 1} documents for {parts} parts"
            )
    made = []
    for part in range(parts):
        own = {s.split: [_Part(s, np.arange(part, len(s.bounds) - 1, parts))] for s in sources}
        made.append(_write(out / f"part-{part}", own, None))
    return made


def sample(directory: Path, out: Path, tokens: int, seed: int = 0) -> dict[str, Any]:
    """A folder of documents drawn from every split until they hold `tokens` of train, and the same share of others.

    Documents keep their order; which are drawn depends on the seed and their number. Returns its manifest.
    """
    if tokens < 1:
        raise ConfigError(f"shards sample: {tokens} tokens, expected one or more")
    sources = splits_of(directory)
    share = min(tokens / sources[0].length, 1.0)
    return _write(out, {s.split: [_Part(s, _drawn(s.bounds, share, seed))] for s in sources}, None)


def _drawn(bounds: Array, share: float, seed: int) -> Array:
    count = len(bounds) - 1
    order = permute(np.arange(count), count, splitmix64(seed & ((1 << 64) - 1))).astype(np.int64)
    held = np.cumsum(np.diff(bounds)[order])
    last = int(np.searchsorted(held, share * float(bounds[-1]), "left")) + 1  # the document that reaches it is the last
    found: Array = np.sort(order[:last])
    return found


def _check_alike(sources: list[SplitSource]) -> None:
    first = sources[0]
    for source in sources[1:]:
        for key in ("dtype", "eot_id", "vocab_size"):
            if source.manifest[key] != first.manifest[key]:
                raise ConfigError(
                    f"shards merge: {source.stream.directory} has {key} {source.manifest[key]}, {first.stream.directory} has "
                    f"{first.manifest[key]}"
                )
        own, other = ((s.manifest.get("tokenizer") or {}).get("sha256") for s in (source, first))
        if own != other:
            raise ConfigError(
                f"shards merge: {source.stream.directory} was made with tokenizer {own}, {first.stream.directory} with {other}",
                "ids of one mean nothing to the other",
            )


def _write(out: Path, parts: dict[str, list[_Part]], tokens_per_shard: int | None) -> dict[str, Any]:
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ConfigError(f"{out}: holds something already", "name a folder that is empty or not there yet")
    first = next(iter(parts.values()))[0].source
    size = tokens_per_shard or first.manifest.get("tokens_per_shard") or 100_000_000
    out.mkdir(parents=True, exist_ok=True)
    splits = {}
    for name, own in parts.items():
        shards = _write_shards(out, name, own, int(size))
        documents = sum(len(part.document_D) for part in own)
        splits[name] = {"tokens": sum(s["tokens"] for s in shards), "documents": documents, "shards": shards}
    _write_documents(out, parts)
    beside = first.stream.directory / "tokenizer.json"
    if beside.exists():
        shutil.copyfile(beside, out / "tokenizer.json")
    keys = ("version", "format", "dtype", "eot_id", "vocab_size", "tokenizer")
    # as everything in a folder of shards: what others get to read has no folders of this machine
    made_of = sorted({published(str(part.source.stream.directory)) for own in parts.values() for part in own})
    manifest = {
        **{key: first.manifest.get(key) for key in keys},
        "tokens_per_shard": int(size),
        "splits": splits,
        "made_of": made_of,
    }
    write_json(out / "manifest.json", manifest)
    findings = verify(out)
    if findings:
        raise FatalError(
            f"{out / findings[0].file}: {findings[0].what} ({len(findings)} findings)",
            "run shards verify on the sources",
        )
    return manifest


def _write_shards(out: Path, split: str, parts: list[_Part], size: int) -> list[dict[str, Any]]:
    """Shards of `size` tokens from the documents of parts, back to back. Memory: one shard."""
    format_ = FORMATS[parts[0].source.manifest["format"]]
    shards: list[dict[str, Any]] = []
    most = min(size, sum(part.source.length for part in parts))  # a manifest may claim shards of any size
    buffer, held = np.empty(most, parts[0].source.dtype), 0

    def flush() -> None:
        path = out / f"{PREFIX[split]}_{len(shards):06d}{format_.suffix}"
        tokens = buffer[:held]
        with publish(path) as temp:
            digest = format_.write(temp, tokens)
        index = format_.index(tokens, parts[0].source.eot_id)
        if index is not None:
            with publish(path.with_suffix(format_.index_suffix or "")) as temp:
                temp.write_bytes(index)
        shards.append({"file": path.name, "tokens": held, "bytes": path.stat().st_size, "sha256": digest})

    for part in parts:
        for start, stop in _runs(part):
            while start < stop:
                count = min(stop - start, size - held)
                buffer[held : held + count] = part.source.stream.read(start, start + count)
                start, held = start + count, held + count
                if held == size:
                    flush()
                    held = 0
    if held:
        flush()
    return shards


def _runs(part: _Part) -> Iterator[tuple[int, int]]:
    """Ranges of the stream, documents that follow each other together."""
    document_D, bounds = part.document_D, part.source.bounds
    cuts = np.flatnonzero(np.diff(document_D) != 1) + 1
    for run in np.split(document_D, cuts):
        if len(run):
            yield int(bounds[run[0]]), int(bounds[run[-1] + 1])


def _write_documents(out: Path, parts: dict[str, list[_Part]]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    tables = []
    for split_, own in parts.items():
        position = 0
        for part in own:
            names = pq.read_schema(part.source.stream.directory / "documents.parquet").names
            further = [n for n in names if n not in ("split", "position", "tokens")]
            table = document_columns(part.source.stream.directory, split_, further).take(pa.array(part.document_D))
            tokens = table["tokens"].to_numpy()
            starts = position + np.cumsum(tokens) - tokens
            position += int(tokens.sum())
            table = table.set_column(table.column_names.index("position"), "position", pa.array(starts, pa.int64()))
            side = pa.array([split_]).dictionary_encode().take(pa.array(np.zeros(len(table), np.int32)))
            tables.append(table.add_column(0, "split", side))
    whole = pa.concat_tables(
        [t.unify_dictionaries() for t in tables], promote_options="permissive"
    ).unify_dictionaries()
    with publish(out / "documents.parquet") as temp:
        pq.write_table(whole, temp, compression="zstd")
