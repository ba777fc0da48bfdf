"""A split of a folder of shards, as those that write it anew read it.

# N tokens, D documents
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np

from gpu_curate.errors import ConfigError
from gpu_curate.loader.folder import read_manifest, shards_folder
from gpu_curate.loader.stream import Stream, document_bounds

Array = np.ndarray[Any, np.dtype[Any]]
BLOCK_TOKENS = 1 << 22  # read and written together


class SplitSource:
    """Tokens and documents of one split.

    Attributes:
        stream; bounds: int64 of D + 1; dtype: of the ids; eot_id, vocab_size, manifest.
    Raises:
        ConfigError: no manifest.json: it says the end-of-text token; as `Stream` and `document_bounds`.
    """

    def __init__(self, directory: str | os.PathLike[str], split: str):
        self.stream = Stream(directory, split)
        if self.stream.manifest is None:
            raise ConfigError(
                f"{self.stream.directory}: no manifest.json, which says the end-of-text token and the type of ids"
            )
        self.manifest: dict[str, Any] = self.stream.manifest
        self.split = self.stream.split
        self.bounds = document_bounds(self.stream)
        self.dtype = np.dtype(self.manifest["dtype"])
        self.eot_id, self.vocab_size = int(self.manifest["eot_id"]), int(self.manifest["vocab_size"])

    @property
    def length(self) -> int:
        return self.stream.length

    def blocks(self, start: int = 0, stop: int | None = None) -> Iterator[Array]:
        """Tokens start..stop - 1, some millions at a time."""
        stop = self.length if stop is None else stop
        for at in range(start, stop, BLOCK_TOKENS):
            yield self.stream.read(at, min(at + BLOCK_TOKENS, stop))


def splits_of(directory: str | os.PathLike[str]) -> list[SplitSource]:
    """The splits of a folder of shards that hold a token, train first."""
    folder = shards_folder(directory)
    manifest = read_manifest(folder)
    if manifest is None:
        raise ConfigError(f"{folder}: no manifest.json, which says the end-of-text token and the type of ids")
    there = [split for split in ("train", "validation") if manifest["splits"].get(split, {}).get("shards")]
    if not there:
        raise ConfigError(f"{folder}: no shard in any split")
    return [SplitSource(folder, split) for split in there]
