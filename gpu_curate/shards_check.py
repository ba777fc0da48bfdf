"""What `gpu-curate shards` does with a folder: verify, info, head."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from gpu_curate.errors import ConfigError, FatalError, one_line
from gpu_curate.formats import FORMATS, open_shard
from gpu_curate.loader import PREFIX, Stream, documents, read_manifest, shard_paths

_BLOCK_TOKENS = 1 << 23  # looked at together when verifying
_HEAD_ROWS = 64  # of documents.parquet in one step of `head`


class Finding(NamedTuple):
    """Something in a shards folder that is not as it should be."""

    file: str
    what: str


def verify(directory: str | os.PathLike[str]) -> list[Finding]:
    """Check every byte of a shards folder. An empty list means: as the manifest says.

    Sizes, headers, sha256 and lengths of all shards; sums per split; one end-of-text token per document, at its end; ids
    below vocab_size; documents.parquet tiles each split without gap or overlap; no shard that the manifest does not name;
    tokenizer.json is the one that the manifest names. What cannot be read is a finding too.

    Memory: 32 bytes a document, and a few bytes for each token of a block. Time: about that of sha256sum.
    Raises:
        ConfigError: no folder, or no manifest.json in it.
    """
    directory = Path(directory)
    try:
        manifest = read_manifest(directory)
    except FatalError as e:
        return [Finding("manifest.json", e.message)]
    if manifest is None:
        raise ConfigError(f"{directory}: no manifest.json to verify against")
    findings: list[Finding] = []
    named = set()
    for split, entry in manifest["splits"].items():
        position_D, tokens_D = _verify_documents(directory, split, entry, findings)
        ends_D = np.sort(position_D + tokens_D - 1)
        position, eots = 0, 0
        for number, shard in enumerate(entry["shards"]):
            named.add(shard["file"])
            last = number == len(entry["shards"]) - 1
            size = manifest.get("tokens_per_shard")
            if size is not None and (shard["tokens"] > size or (not last and shard["tokens"] != size)):
                findings.append(Finding(shard["file"], f"{shard['tokens']} tokens, tokens_per_shard is {size}"))
            inside = ends_D[np.searchsorted(ends_D, position) : np.searchsorted(ends_D, position + shard["tokens"])]
            try:
                eots += _verify_shard(directory, shard, manifest, inside - position, findings)
            except (FatalError, OSError) as e:
                findings.append(Finding(shard["file"], e.message if isinstance(e, FatalError) else str(e)))
            position += shard["tokens"]
        if position != entry["tokens"]:
            findings.append(
                Finding("manifest.json", f"{split}: {entry['tokens']} tokens, its shards add up to {position}")
            )
        if eots != entry["documents"]:
            findings.append(Finding(f"split {split}", f"{eots} end-of-text tokens, {entry['documents']} documents"))
    _verify_tokenizer(directory, manifest, findings)
    findings += [Finding(p.name, "not in the manifest") for p in sorted(directory.glob("*.bin")) if p.name not in named]
    return findings


def _verify_tokenizer(directory: Path, manifest: dict[str, Any], findings: list[Finding]) -> None:
    file, named = "tokenizer.json", manifest.get("tokenizer")
    if named is None:
        findings.append(Finding("manifest.json", "names no tokenizer"))
        return
    try:
        digest = hashlib.sha256((directory / file).read_bytes()).hexdigest()
    except OSError as e:
        findings.append(Finding(file, str(e)))
        return
    if digest != named["sha256"]:
        findings.append(Finding(file, f"sha256 {digest}, the manifest has {named['sha256']}"))


def _verify_documents(
    directory: Path, split: str, entry: dict[str, Any], findings: list[Finding]
) -> tuple[np.ndarray, np.ndarray]:
    file = "documents.parquet"
    try:
        position, tokens = documents(directory, split)
    except (ConfigError, FatalError) as e:
        findings.append(Finding(file, e.message))
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    if len(position) != entry["documents"]:
        findings.append(
            Finding(file, f"{split}: {len(position)} rows, the manifest has {entry['documents']} documents")
        )
    expected = np.cumsum(tokens) - tokens
    wrong = np.flatnonzero((position != expected) | (tokens < 1))
    if len(wrong):
        d = wrong[0]
        findings.append(
            Finding(file, f"{split}: document {d} at {position[d]} with {tokens[d]} tokens, expected at {expected[d]}")
        )
    elif tokens.sum() != entry["tokens"]:
        findings.append(Finding(file, f"{split}: {tokens.sum()} tokens, the manifest has {entry['tokens']}"))
    return position, tokens


def _verify_shard(
    directory: Path, shard: dict[str, Any], manifest: dict[str, Any], ends: np.ndarray, findings: list[Finding]
) -> int:
    """Check one shard; `ends` are the places in it where a document ends. Returns its end-of-text tokens.

    Raises: FatalError, OSError: it cannot be opened.
    """
    path, format, eot_id = directory / shard["file"], FORMATS[manifest["format"]], manifest["eot_id"]
    tokens = format.open(path, np.dtype(manifest["dtype"]), shard["tokens"])
    if path.stat().st_size != shard["bytes"]:
        findings.append(Finding(shard["file"], f"{path.stat().st_size} bytes, the manifest has {shard['bytes']}"))
    with path.open("rb") as f:
        digest = hashlib.file_digest(f, "sha256").hexdigest()
    if digest != shard["sha256"]:
        findings.append(Finding(shard["file"], f"sha256 {digest}, the manifest has {shard['sha256']}"))
    if format.index_suffix and path.with_suffix(format.index_suffix).read_bytes() != format.index(tokens, eot_id):
        findings.append(Finding(path.with_suffix(format.index_suffix).name, "does not name the documents of its shard"))
    eots, highest = 0, -1
    for start in range(0, len(tokens), _BLOCK_TOKENS):
        block = tokens[start : start + _BLOCK_TOKENS]
        eots += int(np.count_nonzero(block == eot_id))
        highest = max(highest, int(block.max()))
    if highest >= manifest["vocab_size"]:
        findings.append(Finding(shard["file"], f"token id {highest}, vocab_size is {manifest['vocab_size']}"))
    wrong = ends[tokens[ends] != eot_id]
    if len(wrong):
        findings.append(
            Finding(shard["file"], f"{len(wrong)} documents do not end in {eot_id}, the first at {wrong[0]}")
        )
    return eots


def info(directory: str | os.PathLike[str]) -> dict[str, Any]:
    """What a shards folder holds: {"format", "dtype", "eot_id", "vocab_size", "tokenizer", "splits": {name: {"tokens",
    "documents", "shards", "bytes"}}}; what only a manifest.json could say is None without one."""
    manifest = read_manifest(directory)
    if manifest is None:
        splits: dict[str, Any] = {}
        dtypes: set[str] = set()
        for split in PREFIX:
            paths = shard_paths(Path(directory), split)
            shards = [open_shard(path) for path in paths]
            dtypes.update(shard.dtype.name for shard in shards)
            nbytes = sum(path.stat().st_size for path in paths)
            splits[split] = {"tokens": sum(map(len, shards)), "documents": None, "shards": len(shards), "bytes": nbytes}
        known = {"format": "llmc", "dtype": " and ".join(sorted(dtypes)) or None}
        return {**known, "eot_id": None, "vocab_size": None, "tokenizer": None, "splits": splits}
    splits = {
        split: {
            "tokens": entry["tokens"],
            "documents": entry["documents"],
            "shards": len(entry["shards"]),
            "bytes": sum(shard["bytes"] for shard in entry["shards"]),
        }
        for split, entry in manifest["splits"].items()
    }
    keys = ("format", "dtype", "eot_id", "vocab_size", "tokenizer")
    return {**{key: manifest.get(key) for key in keys}, "splits": splits}


def head(
    directory: str | os.PathLike[str],
    count: int,
    split: str = "train",
    decode: Callable[[Iterable[int]], str] | None = None,
) -> list[dict[str, Any]]:
    """The first `count` documents of a split.

    Args:
        decode: ids to text (`Encoder.decode`); None leaves the text out.
    Returns:
        Per document its columns in documents.parquet (split, position, tokens, doc_id, source, path, row, ...), "ids"
        (array, end-of-text token included), and "text" (without it) if there is a decoder. Fewer if there are fewer.
    Raises:
        ConfigError: no documents.parquet. FatalError: it cannot be read, or names what the shards do not hold.
    """
    import pyarrow.parquet as pq

    stream = Stream(directory, split)
    path = stream.directory / "documents.parquet"
    if not path.exists():
        raise ConfigError(f"{path}: no such file; it says where documents start")
    found: list[dict[str, Any]] = []
    try:
        for batch in pq.ParquetFile(path).iter_batches(_HEAD_ROWS):
            rows = (row for row in batch.to_pylist() if row["split"] == stream.split)
            for row, _ in zip(rows, range(count - len(found)), strict=False):
                start, stop = row["position"], row["position"] + row["tokens"]
                if not 0 <= start < stop <= stream.length:
                    raise FatalError(f"{path}: a document at {start} to {stop} of {stream.length} tokens")
                ids = stream.read(start, stop)
                found.append({**row, "ids": ids, **({} if decode is None else {"text": decode(ids[:-1])})})
            if len(found) >= count:
                break
    except (OSError, ValueError, NotImplementedError, TypeError, LookupError) as e:  # Arrow's errors are among these
        raise FatalError(f"{path} cannot be read: {one_line(e)}", f"gpu-curate shards verify {stream.directory}") from e
    return found
