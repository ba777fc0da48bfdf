"""Batches drawn from several shard sets by weight: MixtureLoader.

The order of rows is a pure function of the weights, the sources and their sizes. Row after row, the source that is furthest
behind its share gives the next of its rows; so after any number of rows each is within a row or two of its share, and every
stretch of rows has nearly the shares asked for. Batches, ranks and states read that one order.

# B batch size, T sequence length, K sources, G rows of a step, N rows
"""

from __future__ import annotations

import functools
import math
import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from gpu_curate.errors import ConfigError
from gpu_curate.jit import njit
from gpu_curate.loader.arguments import integer
from gpu_curate.loader.base import START, Array, Loader, Position, Raw
from gpu_curate.loader.rows import Segments
from gpu_curate.loader.split_rows import RowOptions, SplitRows

_ONE = 1 << 32  # a share of 1
_BLOCK_ROWS = 1 << 14
_MANY_EPOCHS = (
    4.0  # repeats up to four times are nearly as good as fresh text: Muennighoff et al. 2023, arXiv:2305.16264
)

Source = str | os.PathLike[str] | Mapping[str, Any]
Weights = Mapping[str, float] | Mapping[int, Mapping[str, float]]


class Share(NamedTuple):
    """What a source gives to a range of steps.

    Attributes:
        rows, tokens: tokens without padding.
        share: of the tokens of all sources. asked: by the weights, over the same steps.
        epochs: times its rows have been seen at the end of the range, from step 0 on.
    """

    source: str
    rows: int
    tokens: int
    share: float
    asked: float
    epochs: float


@dataclass(frozen=True)
class _Phases:
    """Weights by rows: phase p holds from row first_P[p] on."""

    first_P: Array  # int64
    weight_PK: Array  # int64, rows of _ONE: each sums to it
    token_PK: Array  # float64, shares of tokens as asked for


class MixtureLoader(Loader):
    """Batches of several sources for one rank.

    Args:
        sources: name → run directory or folder of shards, or {directory, sources}: the documents of these sources of a run.
        split, batch_size, seq_len, rank, world_size: see ShardLoader.
        weights: name → share of tokens; or {step: weights from that step on}, the first at 0. They are scaled to sum to 1; a
            source that is not named has none.
        rows_per_step: rows that all ranks take in an optimizer step: batch size x ranks x micro-batches. None: of one
            micro-batch. It says when weights change, so a state keeps it: give it where batch size or ranks may change.
        max_epochs: how often the rows of a source may be taken, for all or by name; what runs out beyond is an error.
        steps: optimizer steps of the training; None: not known. With it, what runs out is found at once.
        shuffle, shuffle_buffer, packing, boundaries, labels, ignore_index, padding, curriculum, index_folder, as_torch: see
            ShardLoader; the curriculum counts the tokens of all sources. document_ids count on from source to source:
            `first_document` says where each begins.
    Attributes:
        names: of the sources, in order. first_document: of each. steps.
    Raises:
        ConfigError: as ShardLoader; weights that sum to nothing, or of a source that is not there; tokenizers that differ; a
            source that runs out.
    Memory: that of a ShardLoader for each source.
    """

    rows = None

    def __init__(
        self,
        sources: Mapping[str, Source],
        split: str,
        batch_size: int,
        seq_len: int,
        rank: int | None = None,
        world_size: int | None = None,
        *,
        weights: Weights,
        rows_per_step: int | None = None,
        max_epochs: float | Mapping[str, float] = 1.0,
        steps: int | None = None,
        shuffle: int | None = None,
        shuffle_buffer: int | None = None,
        packing: str = "stream",
        boundaries: bool = False,
        labels: str = "all",
        ignore_index: int = -100,
        padding: int | None = None,
        curriculum: Mapping[int, int] | None = None,
        index_folder: str | os.PathLike[str] | None = None,
        as_torch: bool | None = None,
    ):
        arguments = {k: v for k, v in locals().items() if k not in ("self", "__class__")}
        self._take_arguments(batch_size, seq_len, rank, world_size, curriculum, boundaries, ignore_index, as_torch)
        if not isinstance(sources, Mapping) or not sources:
            raise ConfigError(f"sources {sources!r}: expected a mapping of names to folders of shards")
        self.names = sorted(sources)
        self._parts = [self._open(name, sources[name], arguments) for name in self.names]
        _check_tokenizers(self.names, self._parts)
        documents = [0 if part.bounds is None else len(part.bounds) - 1 for part in self._parts]
        self.first_document = dict(zip(self.names, np.cumsum([0, *documents[:-1]]).tolist(), strict=True))
        size = self.batch_size * self.world_size
        self.rows_per_step = size if rows_per_step is None else integer("rows_per_step", rows_per_step)
        if self.rows_per_step < 1:
            raise ConfigError(f"rows_per_step {rows_per_step}: expected a row or more")
        self._tokens_of_row = [part.tokens_of_row() for part in self._parts]
        self._phases = self._make_phases(weights)
        self._limits = self._row_limits(max_epochs)
        self.steps = None if steps is None else integer("steps", steps)
        self._block = functools.lru_cache(maxsize=8)(self._make_block)
        self._known = [(np.zeros(len(self.names), np.int64), np.zeros(len(self.names), np.int64))]  # at block starts
        self._warned: set[int] = set()
        # A copy elsewhere is of the same rank, and of what is the latest now.
        own = {
            name: _at(sources[name], part.stream.directory) for name, part in zip(self.names, self._parts, strict=True)
        }
        self._arguments = arguments | {
            "sources": own,
            "rank": self.rank,
            "world_size": self.world_size,
            "rows_per_step": self.rows_per_step,
        }
        if self.steps is not None:
            self._check_enough(self.steps * self.rows_per_step)
        self.state_at(START)  # so that what every state holds is known, as in ShardLoader

    def __reduce__(self) -> Any:
        return functools.partial(MixtureLoader, **self._arguments), ()

    def shares(self, first: int = 0, last: int | None = None) -> list[Share]:
        """What every source gives to steps first..last - 1 (None: to the end of the training)."""
        last = self.steps if last is None else last
        if last is None or not 0 <= first <= last:
            raise ConfigError(
                f"shares of steps {first} to {last}: expected a range, and an end where steps is not given"
            )
        G = self.rows_per_step
        begin, end = self._counts(first * G), self._counts(last * G)
        tokens = [(int(b) - int(a)) * per_row for a, b, per_row in zip(begin, end, self._tokens_of_row, strict=True)]
        asked = self._asked(first * G, last * G)
        total = sum(tokens) or 1.0
        return [
            Share(name, int(b - a), round(t), t / total, float(wanted), int(b) / max(part.count, 1))
            for name, a, b, t, wanted, part in zip(self.names, begin, end, tokens, asked, self._parts, strict=True)
        ]

    def raw(self, position: Position, narrow: bool = False) -> Raw:
        B, T = self.batch_size, self.seq_len
        first = position.row + self.rank * B
        source_B, nth_B = self._places(first, B)
        dtype = np.dtype(np.int64) if not narrow else max((p.dtype for p in self._parts), key=lambda d: d.itemsize)
        x, y = np.empty((B, T), dtype), np.empty((B, T), dtype)
        cut = self.length_at(position)
        found = []
        for k in np.unique(source_B).tolist():
            slots, part = np.flatnonzero(source_B == k), self._parts[k]
            nth = nth_B[slots]
            self._check_row(k, int(nth[-1]), first)
            for epoch in np.unique(nth // part.count).tolist():
                own = nth // part.count == epoch
                segments = part.take(epoch, nth[own] % part.count, x, y, slots[own], cut)
                if segments is not None:
                    found.append(_moved(segments, self.first_document[self.names[k]]))
        x, y = x.reshape(-1, cut), y.reshape(-1, cut)
        return x, y, _merged(found) if found else None

    def _open(self, name: str, source: Source, arguments: dict[str, Any]) -> SplitRows:
        keys = ("shuffle", "shuffle_buffer", "packing", "labels", "padding", "index_folder")
        given: dict[str, Any] = {key: arguments[key] for key in keys}
        directory: Any = source
        if isinstance(source, Mapping):
            odd = sorted(set(source) - {"directory", "sources"})
            if odd or "directory" not in source:
                raise ConfigError(f"source {name}: expected directory and sources, got {', '.join(map(str, source))}")
            directory, given["sources"] = source["directory"], source.get("sources")
        part = SplitRows(
            directory, arguments["split"], self.seq_len, RowOptions(**given), self.boundaries, self.ignore_index
        )
        if part.count == 0:
            raise ConfigError(
                f"source {name}: {directory} has no row of {self.seq_len} tokens",
                "lower seq_len, or leave the source out",
            )
        return part

    def _make_phases(self, weights: Weights) -> _Phases:
        if not isinstance(weights, Mapping) or not weights:
            raise ConfigError(f"weights {weights!r}: expected a mapping of names to shares")
        by_step: dict[Any, Any] = dict(weights) if isinstance(next(iter(weights.values())), Mapping) else {0: weights}
        steps = sorted(integer("weights: step", step) for step in by_step)
        if steps[0] != 0:
            raise ConfigError(f"weights begin at step {steps[0]}", "give weights from step 0 on")
        token_PK = np.array([_shares(by_step[step], self.names, step) for step in steps])
        rows_PK = token_PK / np.array(self._tokens_of_row)
        weight_PK = np.array([_fixed(rows / rows.sum()) for rows in rows_PK], np.int64)
        return _Phases(np.array(steps, np.int64) * self.rows_per_step, weight_PK, token_PK)

    def _row_limits(self, max_epochs: float | Mapping[str, float]) -> list[float]:
        by_name = max_epochs if isinstance(max_epochs, Mapping) else dict.fromkeys(self.names, max_epochs)
        odd = sorted(set(by_name) - set(self.names))
        if odd:
            raise ConfigError(f"max_epochs of {', '.join(odd)}: sources are {', '.join(self.names)}")
        limits = []
        for name, part in zip(self.names, self._parts, strict=True):
            epochs = by_name.get(name, 1.0)
            if isinstance(epochs, bool) or not isinstance(epochs, int | float) or not epochs > 0:
                raise ConfigError(f"max_epochs of {name} {epochs!r}: expected a number above 0")
            limits.append(math.inf if math.isinf(epochs) else math.floor(epochs * part.count))
        return limits

    def _check_enough(self, rows: int) -> None:
        """Raises: ConfigError: a source runs out before so many rows. Warns of many epochs."""
        for k, count in enumerate(self._counts(rows).tolist()):
            if count:
                self._check_row(k, count - 1, rows - 1)

    def _check_row(self, k: int, nth: int, row: int) -> None:
        name, part = self.names[k], self._parts[k]
        if nth >= self._limits[k]:
            raise ConfigError(
                f"source {name} runs out: {part.count:,} rows of {self.seq_len} tokens, {(nth + 1) / part.count:.2f} epochs "
                f"asked for by step {row // self.rows_per_step}, max_epochs allows {self._limits[k] / part.count:.2f}",
                "lower its weight, or raise max_epochs",
            )
        if nth >= _MANY_EPOCHS * part.count and k not in self._warned:
            self._warned.add(k)
            warnings.warn(
                f"source {name} is taken more than {_MANY_EPOCHS:.0f} times: beyond that repeats are worth much less than "
                "fresh text (Muennighoff et al. 2023, arXiv:2305.16264)",
                RuntimeWarning,
                stacklevel=3,
            )

    def _places(self, first: int, count: int) -> tuple[Array, Array]:
        """Of rows first..first + count - 1 of the order: source, and which row of it, counted over its epochs."""
        source, nth = [], []
        while count:
            block, begin = divmod(first, _BLOCK_ROWS)
            sources_N, nth_N = self._block(block)
            taken = min(count, _BLOCK_ROWS - begin)
            source.append(sources_N[begin : begin + taken])
            nth.append(nth_N[begin : begin + taken])
            first, count = first + taken, count - taken
        return (source[0], nth[0]) if len(source) == 1 else (np.concatenate(source), np.concatenate(nth))

    def _make_block(self, block: int) -> tuple[Array, Array]:
        """Source and number of every row of a block, from the last block start that is known on."""
        for known in range(len(self._known) - 1, block):
            counts, behind = (a.copy() for a in self._known[known])
            _draw(self._phases.first_P, self._phases.weight_PK, known * _BLOCK_ROWS, _BLOCK_ROWS, counts, behind)
            self._known.append((counts, behind))
        counts, behind = (a.copy() for a in self._known[block])
        found: tuple[Array, Array] = _draw(
            self._phases.first_P, self._phases.weight_PK, block * _BLOCK_ROWS, _BLOCK_ROWS, counts, behind
        )
        return found

    def _counts(self, rows: int) -> Array:
        """int64 of K: rows of every source among the first `rows`."""
        block, within = divmod(rows, _BLOCK_ROWS)
        source_N, _ = self._block(block)
        counts: Array = self._known[block][0] + np.bincount(source_N[:within], minlength=len(self.names))
        return counts

    def _asked(self, first: int, last: int) -> Array:
        """float64 of K: shares of tokens that the weights ask for, over rows first..last - 1."""
        edges = np.clip(np.append(self._phases.first_P, np.int64(1) << 62), first, last)
        rows_P = np.diff(edges).astype(np.float64)
        shares: Array = (rows_P @ self._phases.token_PK) / max(rows_P.sum(), 1.0)
        return shares

    def _identity(self) -> dict[str, Any]:
        parts = {name: part.identity() for name, part in zip(self.names, self._parts, strict=True)}
        return {
            "mixture": parts,
            "seq_len": self.seq_len,
            "rows_per_step": self.rows_per_step,
            "weights": [
                [int(f), w.tolist()] for f, w in zip(self._phases.first_P, self._phases.weight_PK, strict=True)
            ],
        }


def _shares(weights: Any, names: list[str], step: int) -> list[float]:
    """Shares of the sources, in order, that sum to 1. Raises: ConfigError."""
    if not isinstance(weights, Mapping):
        raise ConfigError(f"weights from step {step} on: {weights!r}, expected a mapping of names to shares")
    odd = sorted(str(name) for name in weights if name not in names)
    if odd:
        raise ConfigError(f"weights from step {step} on: no source {', '.join(odd)}; there are {', '.join(names)}")
    for name, weight in weights.items():
        number = isinstance(weight, int | float) and not isinstance(weight, bool)
        if not number or not math.isfinite(weight) or weight < 0:
            raise ConfigError(f"weights from step {step} on: {name} {weight!r}, expected a number of 0 or more")
    values = [float(weights.get(name, 0.0)) for name in names]
    total = math.fsum(values)
    if not total > 0:
        raise ConfigError(f"weights from step {step} on sum to nothing: {dict(weights)}", "give one source a share")
    return [value / total for value in values]


def _fixed(shares: Array) -> list[int]:
    """Shares in units of 2^-32 that sum to 1 exactly; the largest takes what rounding leaves. 0 stays 0."""
    units = [round(float(share) * _ONE) for share in shares]
    units[int(np.argmax(shares))] += _ONE - sum(units)
    return units


def _at(source: Source, directory: Any) -> Any:
    return {**source, "directory": directory} if isinstance(source, Mapping) else directory


def _check_tokenizers(names: list[str], parts: list[SplitRows]) -> None:
    """Raises: ConfigError: the shards of two sources were made with different tokenizers."""
    known = {
        name: (part.stream.manifest["tokenizer"] or {}).get("sha256")
        for name, part in zip(names, parts, strict=True)
        if part.stream.manifest is not None and part.stream.manifest.get("tokenizer")
    }
    first = next(iter(known), None)
    for name, sha256 in known.items():
        if sha256 != known[first or name]:
            raise ConfigError(
                f"sources {first} and {name} were made with different tokenizers ({known[first or name]}, {sha256})",
                "ids of one mean nothing to a model of the other: make both with one tokenizer.json",
            )


def _moved(segments: Segments, first_document: int) -> Segments:
    document_G = segments.document_G
    return segments._replace(document_G=np.where(document_G < 0, document_G, document_G + np.int32(first_document)))


def _merged(found: list[Segments]) -> Segments:
    """Segments of several sets of rows as those of one batch."""
    end = np.concatenate([s.cu_seqlens[1:] for s in found])
    order = np.argsort(end)
    return Segments(
        np.concatenate([np.zeros(1, np.int32), end[order]]),
        np.concatenate([s.document_G for s in found])[order],
        np.concatenate([s.untargeted for s in found]),
        max(s.longest for s in found),
    )


@njit
def _draw(first_P, weight_PK, first, count, count_K, behind_K):  # type: ignore[no-untyped-def]
    """Rows first..first + count - 1: the source that is furthest behind gives each. Counts and arrears go on in place.

    Returns: source_N of int32; nth_N of int64, the number of the row among those of its source.
    """
    source_N, nth_N = np.empty(count, np.int32), np.empty(count, np.int64)
    phase = 0
    for n in range(count):
        while phase + 1 < len(first_P) and first_P[phase + 1] <= first + n:
            phase += 1
        best = -1
        for k in range(len(count_K)):
            weight = weight_PK[phase, k]
            behind_K[k] += weight
            if weight > 0 and (best < 0 or behind_K[k] > behind_K[best]):
                best = k
        behind_K[best] -= _ONE
        source_N[n], nth_N[n] = best, count_K[best]
        count_K[best] += 1
    return source_N, nth_N
