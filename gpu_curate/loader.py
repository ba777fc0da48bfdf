"""Read token shards back: batches for a training loop.

    loader = ShardLoader("runs/NAME", "train", batch_size=16, seq_len=1024)   # rank and world size: of torchrun
    stream = loader.batches(state=checkpoint.get("loader"))
    for x, y in stream: ...; checkpoint["loader"] = stream.state_dict()

The batch stream is a pure function of: the shards, split, batch_size, seq_len, rank, world_size, `shuffle` and
`align_documents`. Nothing else changes its order: no clock or global random generator is asked. So a step number resumes it
as long as batch_size, world_size and the micro-batches of a step stay; a state resumes it where they change.

Row r of an epoch is tokens [r * seq_len, r * seq_len + seq_len] of the split's stream, shards read as one. Batch i of the
epoch takes rows [i * world_size * batch_size, ...), rank after rank. What does not fill a batch of all ranks is left over;
every rank has the same number of batches, whatever the shard lengths.

A state is a place in that global order of rows: an epoch, and how many of its rows all ranks together have taken. Whoever
goes on from it takes the rows behind it in the same order, however many ranks they are and whatever their batch size.

# B batch size, T sequence length, W world size, R rows of an epoch
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import json
import numbers
import os
from bisect import bisect_right
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from gpu_curate.errors import ConfigError, FatalError
from gpu_curate.formats import FORMATS, open_shard
from gpu_curate.store.run_directory import RUN_FILE, below, latest_shards, read_run_file, resolved

if TYPE_CHECKING:
    from gpu_curate.rows import Rows

_SPLITS = {"train": "train", "val": "validation", "validation": "validation"}
PREFIX = {"train": "train", "validation": "val"}  # of file names
_MASK64 = (1 << 64) - 1
_BLOCK_ROWS = 4096  # rows whose shuffled places are computed at once

_STATE_VERSION = 1

Batch = tuple[Any, Any]
Tokens = np.ndarray[Any, np.dtype[Any]]


class Position(NamedTuple):
    """A place in the order in which all ranks together take rows."""

    epoch: int
    row: int  # of the epoch: so many were taken


_START = Position(0, 0)


# --------------------------------------------------------------------------------------------------------- the stream


class Stream:
    """The tokens of one split, shard after shard, memory-mapped.

    Args:
        directory: a run directory, or of a manifest.json, or of llm.c shards alone (`*train*.bin`, `*val*.bin`, in order
            of their names).
        split: train, or validation (val is the same).
    Attributes:
        manifest: its content; None without one.
        shards: one array of ids per shard.
        length: tokens in all.
    Raises:
        ConfigError: no such directory, no such split, no shard. FatalError: see `Format.open`.
    """

    def __init__(self, directory: str | os.PathLike[str], split: str):
        self.directory = shards_folder(directory)
        if split not in _SPLITS:
            raise ConfigError(f"split {split!r}: expected train, validation or val")
        self.split = _SPLITS[split]
        self.manifest = read_manifest(self.directory)
        if self.manifest is None:
            paths = shard_paths(self.directory, self.split)
            self.shards = [open_shard(path) for path in paths]
        else:
            entries = self.manifest["splits"].get(self.split, {"shards": []})["shards"]
            paths = [self.directory / entry["file"] for entry in entries]
            dtype, format = np.dtype(self.manifest["dtype"]), self.manifest["format"]
            self.shards = [
                open_shard(path, format, dtype, entry["tokens"]) for path, entry in zip(paths, entries, strict=True)
            ]
        if not paths:
            raise ConfigError(
                f"{self.directory}: no shard of split {self.split}",
                hint=f"expected {PREFIX[self.split]}_000000.bin, ...",
            )
        self._paths = paths
        self.starts = np.cumsum([0, *map(len, self.shards)], dtype=np.int64).tolist()  # Python ints: no overflow
        self.length = self.starts[-1]

    def identity(self) -> str:
        """A hash of the split's content as its manifest states it; without one, of the shards' names and lengths."""
        if self.manifest is None:
            facts = [[path.name, len(shard)] for path, shard in zip(self._paths, self.shards, strict=True)]
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


def shards_folder(directory: str | os.PathLike[str]) -> Path:
    """The shards of a run directory (its latest whole ones), or the folder itself.

    Under the name that it keeps: a later run may give the link `shards` to its own, and a copy of a loader that is opened in
    another process must not read those.
    """
    folder = Path(directory)
    if not (folder / RUN_FILE).exists():
        return resolved(folder)
    latest = latest_shards(folder)
    return latest or below(folder, str((read_run_file(folder).get("folders") or {}).get("shards", "shards")))


def shard_paths(directory: Path, split: str) -> list[Path]:
    """Shards of a folder without a manifest."""
    return sorted(directory.glob(f"*{PREFIX[split]}*.bin"))


def read_manifest(directory: str | os.PathLike[str]) -> dict[str, Any] | None:
    """manifest.json of a shards folder; None where there is none.

    Raises:
        ConfigError: no such folder. FatalError: not JSON, or written by another version.
    """
    directory = Path(directory)
    if not directory.is_dir():
        raise ConfigError(f"shards {directory}: no such folder")
    path = directory / "manifest.json"
    if not path.exists():
        return None
    try:
        manifest = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as e:
        raise FatalError(f"{path}: not a manifest of shards ({type(e).__name__}: {e})") from e
    faults = _manifest_faults(manifest)
    if faults:
        raise FatalError(f"{path}: not a manifest of shards ({'; '.join(faults)})")
    return cast(dict[str, Any], manifest)


def _manifest_faults(manifest: Any) -> list[str]:
    """What in the data of a manifest.json readers could not use."""
    if not isinstance(manifest, dict):
        return [f"expected a mapping, got {type(manifest).__name__}"]
    version, format = manifest.get("version"), manifest.get("format")
    if version != 1 or format not in list(FORMATS):
        return [f"version {version!r}, format {format!r}; expected version 1, one of {', '.join(FORMATS)}"]
    faults: list[str] = []

    def check(place: str, entry: Any, kinds: dict[str, Callable[[Any], bool]]) -> bool:
        if not isinstance(entry, dict):
            faults.append(f"{place.rstrip('.')}: expected a mapping, got {entry!r}")
            return False
        wrong = [f"{place}{key}: {entry.get(key)!r}" for key, right in kinds.items() if not right(entry.get(key))]
        faults.extend(wrong)
        return not wrong

    kinds = {"dtype": lambda v: v in ("uint16", "uint32"), "eot_id": _is_count, "vocab_size": _is_count}
    check("", manifest, {**kinds, "tokens_per_shard": lambda v: v is None or (_is_count(v) and v > 0)})
    if manifest.get("tokenizer") is not None:
        check("tokenizer.", manifest["tokenizer"], {"sha256": _is_text})
    if not check("", manifest, {"splits": lambda v: isinstance(v, dict) and set(v) <= set(PREFIX)}):
        return faults
    for split, entry in manifest["splits"].items():
        place = f"splits.{split}."
        if check(place, entry, {"tokens": _is_count, "documents": _is_count, "shards": lambda v: isinstance(v, list)}):
            kinds = {"file": _is_file_name, "tokens": _is_count, "bytes": _is_count, "sha256": _is_text}
            for number, shard in enumerate(entry["shards"]):
                check(f"{place}shards.{number}.", shard, kinds)
    return faults


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 62  # sums stay in int64


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_file_name(value: Any) -> bool:
    """A name in the folder itself: a manifest names no file elsewhere."""
    return isinstance(value, str) and value not in ("", ".", "..") and not set(value) & set("/\\\0")


# --------------------------------------------------------------------------------------------------------- the loader


class ShardLoader:
    """Batches of one split for one rank.

    Args:
        directory, split: see Stream.
        batch_size, seq_len: rows and tokens per row of one micro-batch on one rank.
        rank, world_size: this process and how many there are; ranks are disjoint and equal. None: RANK and WORLD_SIZE of
            the environment, as torchrun sets them; 0 of 1 without them.
        shuffle: seed of a permutation of the rows, another one every epoch; None (default) keeps the order of the
            shards, which are shuffled by document already.
        align_documents: rows start where a document starts, or go on with one that has at least T + 1 tokens left;
            what else is left of a document behind its row is skipped. Needs documents.parquet; 8 bytes a row.
        as_torch: True gives torch tensors (torch must be there), False NumPy arrays, None torch if it is installed.
        tokenizer_sha256: refuse shards made with another tokenizer.json.
    Attributes:
        batches_per_epoch (also len()), rows, tokens (of the split), leftover_tokens (of an epoch, on all ranks together:
            tokens that are no target; the first token of the stream never is and is not counted).
    Raises:
        ConfigError: no integer or a number out of range, fewer tokens than one batch of all ranks, another tokenizer, torch or
            documents.parquet missing. FatalError: a shard differs from its manifest or header.
    Memory: pages of the mapped files, and one batch. Cheap to make; picklable (a copy opens the files again).
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        split: str,
        batch_size: int,
        seq_len: int,
        rank: int | None = None,
        world_size: int | None = None,
        *,
        shuffle: int | None = None,
        align_documents: bool = False,
        as_torch: bool | None = None,
        tokenizer_sha256: str | None = None,
    ):
        batch_size, seq_len = integer("batch_size", batch_size), integer("seq_len", seq_len)
        rank = _from_environment("RANK", 0) if rank is None else integer("rank", rank)
        world_size = _from_environment("WORLD_SIZE", 1) if world_size is None else integer("world_size", world_size)
        self._arguments = {k: v for k, v in locals().items() if k != "self"}  # a copy elsewhere is of the same rank
        if batch_size < 1 or seq_len < 1 or not 0 <= rank < world_size:
            raise ConfigError(
                f"batch_size {batch_size} and seq_len {seq_len} must be positive, rank {rank} in 0..{world_size - 1}"
            )
        self.stream = Stream(directory, split)
        self._arguments["directory"] = self.stream.directory  # what is the latest now
        self._check_tokenizer(tokenizer_sha256)
        self.align_documents = align_documents
        self.batch_size, self.seq_len, self.rank, self.world_size = batch_size, seq_len, rank, world_size
        self.shuffle = None if shuffle is None else integer("shuffle", shuffle)
        self.tokens = self.stream.length
        self._starts_R = self._aligned_starts() if align_documents else None
        self.rows = max(self.tokens - 1, 0) // seq_len if self._starts_R is None else len(self._starts_R)
        self.batches_per_epoch = self.rows // (batch_size * world_size)
        self.leftover_tokens = max(self.tokens - 1, 0) - self.batches_per_epoch * batch_size * world_size * seq_len
        if self.batches_per_epoch == 0:
            raise ConfigError(
                f"{directory}: split {self.stream.split} has {self.tokens} tokens in {self.rows} rows of {seq_len}, fewer "
                f"than one batch of {batch_size} rows on {world_size} ranks",
                hint="lower batch_size, seq_len or world_size",
            )
        if as_torch is None:
            as_torch = importlib.util.find_spec("torch") is not None
        self._wrap: Callable[[Tokens], Any] = _from_numpy() if as_torch else _identity
        self._shuffled = functools.lru_cache(maxsize=8)(self._shuffled_block)
        self._rows: Rows | None = None
        if self.shuffle is not None or self._starts_R is not None:
            from gpu_curate.rows import Rows

            self._rows = Rows(self.stream.shards, self.stream.starts)

    def __len__(self) -> int:
        return self.batches_per_epoch

    def __reduce__(self) -> Any:
        return functools.partial(ShardLoader, **self._arguments), ()

    def __getitem__(self, i: int) -> Batch:
        """Micro-batch i of epoch 0, for code that wants a sequence. Raises: IndexError: the epoch has no such batch."""
        if not 0 <= integer("batch", i) < self.batches_per_epoch:
            raise IndexError(f"batch {i}: an epoch has {self.batches_per_epoch}")
        return self.batch(i)

    def __iter__(self) -> Iterator[Batch]:
        """The len() micro-batches of epoch 0."""
        return self.epoch(0)

    def epoch(self, number: int) -> Iterator[Batch]:
        """The micro-batches of one epoch; with `shuffle`, every epoch has an order of its own."""
        first = integer("epoch", number) * self.batches_per_epoch
        return (self.batch(i) for i in range(first, first + self.batches_per_epoch))

    def batch(self, i: int) -> Batch:
        """Micro-batch i >= 0 of this rank, counted over all epochs.

        Returns:
            x, y: int64 (B, T); y is x one token later in the stream. Fresh arrays: the caller may write to them.
        """
        i = integer("batch", i)
        if i < 0:
            raise ConfigError(f"batch {i}: batches are numbered from 0")
        epoch, i = divmod(i, self.batches_per_epoch)
        return self._read(epoch, (i * self.world_size + self.rank) * self.batch_size)

    def row_starts(self, i: int) -> Tokens:
        """int64 (B,): where the rows of micro-batch i start in the split's stream."""
        i = integer("batch", i)
        if i < 0:
            raise ConfigError(f"batch {i}: batches are numbered from 0")
        epoch, i = divmod(i, self.batches_per_epoch)
        first = (i * self.world_size + self.rank) * self.batch_size
        if self._rows is None:
            return np.arange(first, first + self.batch_size, dtype=np.int64) * self.seq_len
        return self._row_starts(epoch, first, first + self.batch_size)

    def trace(self, i: int) -> list[dict[str, Any]]:
        """The documents behind every row of micro-batch i, the odd ones first; see `gpu_curate.trace.trace`."""
        from gpu_curate.trace import trace

        return trace(self, i)

    def batch_at(self, position: Position) -> Batch:
        """This rank's part of the batch that begins at a row of an epoch; as `batch`."""
        return self._read(position.epoch, position.row + self.rank * self.batch_size)

    def _read(self, epoch: int, row: int) -> Batch:
        """Rows row..row + B - 1 of an epoch."""
        B, T = self.batch_size, self.seq_len
        if self._rows is None:
            window = self.stream.read(row * T, (row + B) * T + 1)
            x, y = window[:-1].astype(np.int64).reshape(B, T), window[1:].astype(np.int64).reshape(B, T)
        else:
            x, y = self._rows.gather(self._row_starts(epoch, row, row + B), T)
        return self._wrap(x), self._wrap(y)

    def batches(self, step: int = 0, accum: int = 1, *, state: dict[str, Any] | None = None) -> Batches:
        """Micro-batches without end, epoch follows epoch.

        Args:
            step: optimizer steps done; each took `accum` micro-batches of every rank. Right only if batch_size, world_size
                and accum are those of the steps that were done: with others, rows would be repeated or left out.
            state: what `state_dict` of an earlier stream gave, on any rank; its rank, world size, batch size and accum may
                have been others. Not with `step`.
        Raises:
            ConfigError: step and state; a state of other shards, another split, seq_len, shuffle or align_documents.
        """
        if state is None:
            return Batches(self, self.after(_START, _first_batch(step, accum)))
        if step:
            raise ConfigError(f"step={step} and a state: both say where to go on", "leave out step")
        return Batches(self, self._position(state))

    def state_dict(self, step: int, accum: int = 1) -> dict[str, Any]:
        """The state after `step` optimizer steps of this loader; see `batches`."""
        return self.state_at(self.after(_START, _first_batch(step, accum)))

    def after(self, position: Position, batches: int) -> Position:
        """Where batch number `batches` behind `position` begins. Only a position taken over from a loader with other ranks or
        another batch size is not a whole number of batches from the start of its epoch."""
        size = self.world_size * self.batch_size
        left = (self.rows - position.row) // size  # of this epoch
        if batches < left:
            return Position(position.epoch, position.row + batches * size)
        epochs, batch = divmod(batches - left, self.batches_per_epoch)
        return Position(position.epoch + 1 + epochs, batch * size)

    def _identity(self) -> dict[str, Any]:
        """What must be the same for a place in the order of rows to mean the same."""
        return {
            "version": _STATE_VERSION,
            "shards": self.stream.identity(),
            "split": self.stream.split,
            "seq_len": self.seq_len,
            "shuffle": self.shuffle,
            "align_documents": self.align_documents,
        }

    def state_at(self, position: Position) -> dict[str, Any]:
        return {**self._identity(), "epoch": position.epoch, "row": position.row}

    def _position(self, state: Any) -> Position:
        if not isinstance(state, dict):
            raise ConfigError(f"state: expected a mapping from state_dict, got {type(state).__name__}")
        for name, own in self._identity().items():
            if state.get(name) != own:
                raise ConfigError(
                    f"state: {name} is {state.get(name)!r}, this loader's is {own!r}",
                    "a state goes on only over the same shards with the same arguments; rank, world_size and batch_size "
                    "may differ",
                )
        epoch, row = integer("state: epoch", state.get("epoch")), integer("state: row", state.get("row"))
        if epoch < 0 or not 0 <= row <= self.rows:
            raise ConfigError(f"state: epoch {epoch}, row {row}: an epoch has {self.rows} rows")
        return self.after(Position(epoch, row), 0)

    def _row_starts(self, epoch: int, first: int, last: int) -> Tokens:
        """int64: where rows first..last - 1 of an epoch start in the stream."""
        if self.shuffle is None:
            assert self._starts_R is not None
            return self._starts_R[first:last]
        block, begin = divmod(first, _BLOCK_ROWS)
        starts = self._shuffled(epoch, block)[begin : begin + last - first]
        while len(starts) < last - first:
            block += 1
            starts = np.concatenate([starts, self._shuffled(epoch, block)[: last - first - len(starts)]])
        return starts

    def _shuffled_block(self, epoch: int, block: int) -> Tokens:
        """Starts of a block of shuffled rows."""
        assert self.shuffle is not None
        places = np.arange(block * _BLOCK_ROWS, min((block + 1) * _BLOCK_ROWS, self.rows), dtype=np.uint64)
        rows = permute(places, self.rows, _splitmix64(_splitmix64(self.shuffle & _MASK64) + epoch)).astype(np.int64)
        return rows * self.seq_len if self._starts_R is None else self._starts_R[rows]

    def _check_tokenizer(self, expected: str | None) -> None:
        if expected is None:
            return
        manifest = self.stream.manifest
        if manifest is None:
            raise ConfigError(f"{self.stream.directory}: no manifest.json, so the tokenizer cannot be checked")
        found = manifest["tokenizer"]["sha256"]
        if found != expected:
            raise ConfigError(
                f"{self.stream.directory}: made with tokenizer sha256 {found} ({manifest['tokenizer'].get('path')}), "
                f"the model's is {expected}"
            )

    def _aligned_starts(self) -> Tokens:
        from gpu_curate.jit import njit

        position, _ = documents(self.stream.directory, self.stream.split)
        bounds = np.append(position, self.tokens)
        return cast(Tokens, njit(_align)(bounds, self.tokens, self.seq_len))


class Batches:
    """An endless iterator over the micro-batches of one rank, from a place on.

    `state_dict` says where all ranks together will be once each has taken what this one has: the same on every rank.
    """

    def __init__(self, loader: ShardLoader, start: Position):
        self._loader, self.start, self._taken = loader, start, 0

    def __iter__(self) -> Batches:
        return self

    def __next__(self) -> Batch:
        batch = self._loader.batch_at(self._loader.after(self.start, self._taken))
        self._taken += 1
        return batch

    def state_dict(self) -> dict[str, Any]:
        """Plain data for a checkpoint; `ShardLoader.batches(state=...)` goes on behind the batches taken so far."""
        return self._loader.state_at(self._loader.after(self.start, self._taken))


def _from_environment(name: str, default: int) -> int:
    """An integer that a launcher sets. Raises: ConfigError: it is none."""
    value = os.environ.get(name, "").strip()
    if not value:
        return default
    if not value.isdecimal():
        raise ConfigError(
            f"environment variable {name}={value!r}: expected an integer", "unset it, or give rank and world_size"
        )
    return int(value)


def integer(name: str, value: Any) -> int:
    """An argument as an int; NumPy's integers count, floats, texts and switches do not."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise ConfigError(f"{name} {value!r}: expected an integer, got {type(value).__name__}")
    return int(value)


def _first_batch(step: int, accum: int) -> int:
    step, accum = integer("step", step), integer("accum", accum)
    if step < 0 or accum < 1:
        raise ConfigError(f"step {step} must not be negative, accum {accum} must be positive")
    return step * accum


def _identity(array: Tokens) -> Tokens:
    return array


def _from_numpy() -> Callable[[Tokens], Any]:
    try:
        import torch
    except ImportError as e:
        raise ConfigError("as_torch: torch is not installed", hint="pip install torch, or as_torch=False") from e
    return torch.from_numpy


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
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    path = shards_folder(directory) / "documents.parquet"
    if not path.exists():
        raise ConfigError(f"{path}: no such file; it says where documents start")
    try:
        table = pq.read_table(path, columns=["split", "position", "tokens"])
        nulls = sum(column.null_count for column in table.columns)
        if nulls:
            raise FatalError(f"{path}: {nulls} nulls in split, position or tokens")
        table = table.filter(pc.equal(table["split"].cast("string"), _SPLITS[split]))
        position, tokens = (table[name].cast("int64").to_numpy() for name in ("position", "tokens"))
    except (pa.ArrowException, OSError, KeyError) as e:
        raise FatalError(f"{path}: cannot be read ({type(e).__name__}: {' '.join(str(e).split())})") from e
    order = np.argsort(position, kind="stable")
    return position[order], tokens[order]


def _align(bounds: Any, length: int, T: int) -> Any:
    """Starts of aligned rows (see ShardLoader). Compiled on first use; one pass over the documents.

    bounds: int64 of D + 1, starts of the documents and the length of the stream.
    """
    starts = np.empty(length // T + 1, np.int64)
    count, position, d, D = 0, 0, 0, len(bounds) - 1
    while position + T + 1 <= length:
        starts[count] = position
        count += 1
        position += T
        while d + 1 < D and bounds[d + 1] <= position:
            d += 1
        if position != bounds[d] and bounds[d + 1] - position < T + 1:
            d += 1
            if d == D:
                break
            position = bounds[d]
    return starts[:count].copy()


# -------------------------------------------------------------------------------------------------------- permutation


def _splitmix64(x: int) -> int:
    """Steele, Lea, Flood 2014: one output for state x."""
    x = (x + 0x9E3779B97F4A7C15) & _MASK64
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK64
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK64
    return x ^ (x >> 31)


def permute(places: Tokens, count: int, key: int) -> Tokens:
    """Where each place of 0..count - 1 goes in the permutation of that range that `key` names.

    A Feistel network of six rounds over the smallest even number of bits that holds the range, walked until it lands inside
    (Black and Rogaway 2002): a bijection without a table. Memory: a few arrays as long as `places`.

    Args:
        places: uint64, each below count.
        key: 64 bits.
    """
    half = np.uint64(max((count - 1).bit_length() + 1, 2) // 2)
    mask = np.uint64((1 << int(half)) - 1)
    keys = [np.uint64(_splitmix64(key + r)) for r in range(6)]
    out = places.astype(np.uint64)
    outside = np.ones(len(out), np.bool_)
    while outside.any():
        left, right = out[outside] >> half, out[outside] & mask
        for k in keys:
            mixed = (right + k) * np.uint64(0xBF58476D1CE4E5B9)  # wraps
            mixed ^= mixed >> np.uint64(29)
            mixed *= np.uint64(0x94D049BB133111EB)
            left, right = right, left ^ (mixed >> np.uint64(32) & mask)
        out[outside] = left << half | right
        outside = out >= np.uint64(count)
    return out
