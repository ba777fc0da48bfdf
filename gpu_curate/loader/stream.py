"""The tokens of one split as one stream, and where its documents lie in it."""

from __future__ import annotations

import functools
import hashlib
import json
import os
from bisect import bisect_right
from typing import Any

import numpy as np

from gpu_curate.errors import ConfigError, FatalError
from gpu_curate.formats import open_shard
from gpu_curate.loader.folder import PREFIX, SPLITS, read_manifest, shard_paths, shards_folder

_PROBES = 64  # documents whose last token is looked at

Tokens = np.ndarray[Any, np.dtype[Any]]


class Stream:
    """The tokens of one split, shard after shard, memory-mapped.

    Args:
        directory: a run directory, or of a manifest.json, or of llm.c shards alone (`*train*.bin`, `*val*.bin`, in order
            of their names).
        split: train, or validation (val is the same).
    Attributes:
        manifest: its content; None without one.
        shards: one array of ids per shard. paths: of their files.
        length: tokens in all.
    Raises:
        ConfigError: no such directory, no such split, no shard. FatalError: see `Format.open`.
    """

    def __init__(self, directory: str | os.PathLike[str], split: str):
        self.directory = shards_folder(directory)
        if split not in SPLITS:
            raise ConfigError(f"split {split!r}: expected train, validation or val")
        self.split = SPLITS[split]
        self.manifest = read_manifest(self.directory)
        if self.manifest is None:
            paths = [str(path) for path in shard_paths(self.directory, self.split)]
            self.shards = [open_shard(path) for path in paths]
        else:
            entries = self.manifest["splits"].get(self.split, {"shards": []})["shards"]
            folder = f"{self.directory}{os.sep}"
            paths = [f"{folder}{entry['file']}" for entry in entries]  # no Path each: there may be 25,000
            dtype, format = np.dtype(self.manifest["dtype"]), self.manifest["format"]
            self.shards = [
                open_shard(path, format, dtype, entry["tokens"]) for path, entry in zip(paths, entries, strict=True)
            ]
        if not paths:
            raise ConfigError(
                f"{self.directory}: no shard of split {self.split}",
                hint=f"expected {PREFIX[self.split]}_000000.bin, ...",
            )
        odd = next((i for i, shard in enumerate(self.shards) if shard.dtype != self.shards[0].dtype), None)
        if odd is not None:  # rows are read by address, in one width
            raise FatalError(
                f"{paths[odd]}: holds {self.shards[odd].dtype.name} ids, {paths[0]} {self.shards[0].dtype.name}",
                "shards of one folder have one type of ids: these are of two vocabularies",
            )
        self.paths = paths
        self.starts = np.cumsum([0, *map(len, self.shards)], dtype=np.int64).tolist()  # Python ints: no overflow
        self.length: int = self.starts[-1]

    def identity(self) -> str:
        """A hash of the split's content as its manifest states it; without one, of the shards' names and lengths."""
        return self._identity

    @functools.cached_property
    def _identity(self) -> str:
        if self.manifest is None:
            facts = [[os.path.basename(path), len(shard)] for path, shard in zip(self.paths, self.shards, strict=True)]
        else:
            facts = [[e["tokens"], e["sha256"]] for e in self.manifest["splits"][self.split]["shards"]]
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()

    def read(self, start: int, stop: int) -> Tokens:
        """Tokens start..stop - 1 of the stream; a view where one shard holds them all, else a copy."""
        first = min(bisect_right(self.starts, start), len(self.shards)) - 1
        if stop <= self.starts[first + 1]:
            return self.shards[first][start - self.starts[first] : stop - self.starts[first]]
        pieces = []
        for shard, begin in zip(self.shards[first:], self.starts[first:], strict=False):
            if begin >= stop:
                break
            pieces.append(shard[max(start - begin, 0) : stop - begin])
        return np.concatenate(pieces)


def documents(directory: str | os.PathLike[str], split: str) -> tuple[Tokens, Tokens]:
    """The documents of a split in the order of its stream, from documents.parquet.

    Args:
        directory: a run directory, or its folder of shards.
    Returns:
        position_D, tokens_D: int64; document d is tokens position_D[d] .. position_D[d] + tokens_D[d] - 1 of the stream,
        the last of them its end-of-text token.
    Raises:
        ConfigError: there is no documents.parquet. FatalError: it cannot be read, or lacks these columns.
    """
    table = document_columns(directory, split, [])
    position, tokens = (table[name].cast("int64").to_numpy() for name in ("position", "tokens"))
    return position, tokens


def document_columns(directory: str | os.PathLike[str], split: str, columns: list[str]) -> Any:
    """`position`, `tokens` and more columns of documents.parquet, a row a document of the split, in the order of its stream.

    Returns: pyarrow Table. Raises: as `documents`.
    """
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    path = shards_folder(directory) / "documents.parquet"
    if not path.exists():
        raise ConfigError(f"{path}: no such file; it says where documents start")
    try:
        with pq.ParquetFile(path, memory_map=True) as file:
            table = file.read(["split", "position", "tokens", *columns])
        missing = [name for name in ("split", "position", "tokens", *columns) if name not in table.column_names]
        if missing:
            raise KeyError(f"no column {', '.join(missing)}")
        nulls = sum(table[name].null_count for name in ("split", "position", "tokens"))
        if nulls:
            raise FatalError(f"{path}: {nulls} nulls in split, position or tokens")
        table = table.filter(pc.equal(table["split"].cast("string"), SPLITS[split])).drop_columns(["split"])
        position = table["position"].cast("int64").to_numpy()
        table["tokens"].cast("int64")
    except (pa.ArrowException, OSError, ValueError, KeyError) as e:  # a name that is not UTF-8, too
        raise FatalError(f"{path}: cannot be read ({type(e).__name__}: {' '.join(str(e).split())})") from e
    if len(position) and bool((position[1:] < position[:-1]).any()):
        table = table.take(np.argsort(position, kind="stable"))
    return table


def document_bounds(stream: Stream) -> Tokens:
    """int64 of D + 1: where the documents of a stream start, and its length.

    Raises:
        ConfigError: no documents.parquet. FatalError: it is of other shards: its documents do not lie one behind the other
            from the first token to the last, or (looked at in 64 places) do not end where an end-of-text token is.
    """
    position, tokens = documents(stream.directory, stream.split)
    path = stream.directory / "documents.parquet"
    hint = "it is of other shards, or damaged: run gpu-curate shards verify"
    bounds = np.append(position, stream.length)
    wrong = np.flatnonzero((bounds[1:] - position != tokens) | (tokens < 1))
    if len(wrong) or (len(position) and position[0] != 0) or (not len(position) and stream.length):
        d = int(wrong[0]) if len(wrong) else 0
        said = f"document {d} has {tokens[d]} tokens from {position[d]} on" if len(position) else "there is no document"
        raise FatalError(f"{path}: split {stream.split} has {stream.length} tokens, and {said}", hint)
    if stream.manifest is not None and len(tokens):
        for d in np.unique(np.linspace(0, len(tokens) - 1, _PROBES).astype(np.int64)).tolist():
            last = int(stream.read(int(bounds[d + 1]) - 1, int(bounds[d + 1]))[0])
            if last != stream.manifest["eot_id"]:
                raise FatalError(
                    f"{path}: document {d} of split {stream.split} ends in token {last}, not in the end-of-text token "
                    f"{stream.manifest['eot_id']}",
                    hint,
                )
    return bounds
