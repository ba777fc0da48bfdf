"""What every loader is: ranks, numbered batches, places in an order of rows, and states of them.

All ranks together take rows in one global order; batch i takes rows [i * W * B, ...), rank after rank. A place in that order
is an epoch and how many of its rows were taken. A state is a place and what must be the same for it to mean the same.

# B batch size, T sequence length, W world size, R rows of an epoch, G segments
"""

from __future__ import annotations

import abc
import functools
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gpu_curate.errors import ConfigError
from gpu_curate.loader.arguments import batch_number, first_batch, from_environment, integer, wrapper

if TYPE_CHECKING:
    from gpu_curate.loader.rows import Segments

STATE_VERSION = 1

Array = np.ndarray[Any, np.dtype[Any]]


class Position(NamedTuple):
    """A place in the order in which all ranks together take rows."""

    epoch: int
    row: int  # of the epoch: so many were taken


START = Position(0, 0)


def _same(array: Any) -> Any:
    return array


class DocumentBatch:
    """A batch and where its documents lie. `x, y = batch` takes it for a plain one.

    Tensors, or arrays, as the loader gives. position_ids and document_ids are spread over the tokens when they are first asked
    for; who runs varlen attention needs neither.

    Attributes:
        x, y: int64 (B, T); y is `ignore_index` where a token has no target.
        cu_seqlens: int32 (G + 1), where segments begin in the flattened batch, and B * T. A segment is a run of tokens of one
            document within one row; padding at the end of a row is one, too.
        max_seqlen: tokens of the longest segment.
        segment_documents: int32 (G), the document's number in `gpu_curate.loader.documents`; -1 for padding.
    """

    __slots__ = ("_spread", "_wrap", "cu_seqlens", "max_seqlen", "segment_documents", "x", "y")

    def __init__(self, x: Any, y: Any, cu_seqlens: Any, segment_documents: Any, max_seqlen: int, wrap: Any = _same):
        self.x, self.y, self.cu_seqlens, self.segment_documents = x, y, cu_seqlens, segment_documents
        self.max_seqlen = max_seqlen
        self._wrap = wrap
        self._spread: tuple[Any, Any] | None = None

    def __iter__(self) -> Iterator[Any]:
        return iter((self.x, self.y))

    def __reduce__(self) -> Any:  # from a worker process: without what can be made anew
        fields = (self.x, self.y, self.cu_seqlens, self.segment_documents, self.max_seqlen, self._wrap)
        return DocumentBatch, fields

    @property
    def position_ids(self) -> Any:
        """int32 (B, T): 0, 1, ... from the start of every segment."""
        return self._both()[0]

    @property
    def document_ids(self) -> Any:
        """int32 (B, T): the document's number in `gpu_curate.loader.documents`; -1 for padding."""
        return self._both()[1]

    def spread_as(self, position_ids: Any, document_ids: Any) -> None:
        """Take these for position_ids and document_ids: who has them already, say on a device."""
        self._spread = position_ids, document_ids

    def _both(self) -> Any:
        if self._spread is None:
            from gpu_curate.loader.rows import spread

            cu, documents = np.asarray(self.cu_seqlens), np.asarray(self.segment_documents)
            position, document = spread(cu, documents, *self.x.shape)
            self._spread = self._wrap(position), self._wrap(document)
        return self._spread

    def as_dict(self) -> dict[str, Any]:
        """All of it by name, for calls like model(**batch)."""
        names = ("x", "y", "position_ids", "document_ids", "cu_seqlens", "max_seqlen")
        return {name: getattr(self, name) for name in names}

    def to(self, device: Any, non_blocking: bool = False) -> DocumentBatch:
        """The same on a device, all of it; tensors only."""
        return self._moved(lambda tensor: tensor.to(device, non_blocking=non_blocking))

    def pin_memory(self) -> DocumentBatch:
        """In pinned memory: what DataLoader(pin_memory=True) calls."""
        return self._moved(lambda tensor: tensor.pin_memory())

    def _moved(self, move: Callable[[Any], Any]) -> DocumentBatch:
        tensors = (self.x, self.y, self.cu_seqlens, self.segment_documents)
        x, y, cu_seqlens, documents = map(move, tensors)
        moved = DocumentBatch(x, y, cu_seqlens, documents, self.max_seqlen, self._wrap)
        positions, of_tokens = map(move, self._both())
        moved._spread = positions, of_tokens
        return moved


Batch = tuple[Any, Any] | DocumentBatch
Raw = tuple[
    Array, Array, "Segments | None"
]  # x, y as gathered: y means nothing where segments say that there is no target


class Loader(abc.ABC):
    """Numbered batches of one rank. `ShardLoader` and `MixtureLoader` say which rows there are."""

    rows: int | None  # of an epoch; None: the order has no end and no epochs

    def _take_arguments(
        self,
        batch_size: int,
        seq_len: int,
        rank: int | None,
        world_size: int | None,
        curriculum: Mapping[int, int] | None,
        boundaries: bool,
        ignore_index: int,
        as_torch: bool | None,
    ) -> None:
        self.batch_size, self.seq_len = integer("batch_size", batch_size), integer("seq_len", seq_len)
        self.rank = from_environment("RANK", 0) if rank is None else integer("rank", rank)
        self.world_size = from_environment("WORLD_SIZE", 1) if world_size is None else integer("world_size", world_size)
        if self.batch_size < 1 or self.seq_len < 1 or not 0 <= self.rank < self.world_size:
            raise ConfigError(
                f"batch_size {batch_size} and seq_len {seq_len} must be positive, rank {self.rank} in "
                f"0..{self.world_size - 1}"
            )
        self.curriculum = _curriculum(curriculum, self.seq_len)
        self.boundaries, self.ignore_index = bool(boundaries), integer("ignore_index", ignore_index)
        self._wrap: Callable[[Array], Any] = wrapper(as_torch)

    @abc.abstractmethod
    def raw(self, position: Position, narrow: bool = False) -> Raw:
        """This rank's part of the batch that begins at a place, before segments are spread.

        Args:
            narrow: True leaves ids in the dtype of the shards.
        """

    @abc.abstractmethod
    def _identity(self) -> dict[str, Any]:
        """What must be the same for a place in the order of rows to mean the same."""

    def batch(self, i: int) -> Batch:
        """Micro-batch i >= 0 of this rank, counted over all epochs.

        Returns:
            x, y: int64 (B, T); y is x one token later. Fresh arrays: the caller may write to them. With `boundaries` a
            DocumentBatch.
        """
        return self.batch_at(self.after(START, batch_number(i)))

    def batch_at(self, position: Position) -> Batch:
        """This rank's part of the batch that begins at a place; as `batch`."""
        return self._finish(*self.raw(position))

    def _finish(self, x: Array, y: Array, segments: Segments | None) -> Batch:
        wrap = self._wrap
        if segments is None or not self.boundaries:
            return wrap(x), wrap(y)
        cu, documents = wrap(segments.cu_seqlens), wrap(segments.document_G)
        return DocumentBatch(wrap(x), wrap(y), cu, documents, segments.longest, wrap)

    def length_at(self, position: Position) -> int:
        """Tokens of a row of the batch that begins at a place: `seq_len`, or what the curriculum says."""
        if self.curriculum is None:
            return self.seq_len
        taken = (position.epoch * (self.rows or 0) + position.row) * self.seq_len
        return next(length for tokens, length in reversed(self.curriculum) if tokens <= taken)

    def batches(self, step: int = 0, accum: int = 1, *, state: dict[str, Any] | None = None) -> Batches:
        """Micro-batches without end, epoch follows epoch.

        Args:
            step: optimizer steps done; each took `accum` micro-batches of every rank. Right only if batch_size, world_size
                and accum are those of the steps that were done: with others, rows would be repeated or left out.
            state: what `state_dict` of an earlier stream gave, on any rank; its rank, world size, batch size and accum may
                have been others. Not with `step`.
        Raises:
            ConfigError: step and state; a state of other shards or of other arguments that decide the order of rows.
        """
        if state is None:
            return Batches(self, self.after(START, first_batch(step, accum)))
        if step:
            raise ConfigError(f"step={step} and a state: both say where to go on", "leave out step")
        return Batches(self, self._position(state))

    def state_dict(self, step: int, accum: int = 1) -> dict[str, Any]:
        """The state after `step` optimizer steps of this loader; see `batches`."""
        return self.state_at(self.after(START, first_batch(step, accum)))

    def state_at(self, position: Position) -> dict[str, Any]:
        """The state of a place: plain data. It takes microseconds: what it holds is found when the loader is made."""
        return {**self._known_identity, "epoch": position.epoch, "row": position.row}

    def after(self, position: Position, batches: int) -> Position:
        """Where batch number `batches` behind `position` begins. Only a position taken over from a loader with other ranks or
        another batch size is not a whole number of batches from the start of its epoch."""
        size = self.world_size * self.batch_size
        if self.rows is None:
            return Position(0, position.row + batches * size)
        left = (self.rows - position.row) // size  # of this epoch
        if batches < left:
            return Position(position.epoch, position.row + batches * size)
        epochs, batch = divmod(batches - left, self.rows // size)
        return Position(position.epoch + 1 + epochs, batch * size)

    @functools.cached_property
    def _known_identity(self) -> dict[str, Any]:
        return {"version": STATE_VERSION, **self._identity()}

    def _position(self, state: Any) -> Position:
        if not isinstance(state, dict):
            raise ConfigError(f"state: expected a mapping from state_dict, got {type(state).__name__}")
        own = self._known_identity
        for name in (*own, *(n for n in state if n not in (*own, "epoch", "row"))):
            if state.get(name) != own.get(name):
                raise ConfigError(
                    f"state: {name} is {state.get(name)!r}, this loader's is {own.get(name)!r}",
                    "a state goes on only over the same shards with the same arguments; rank, world_size and batch_size "
                    "may differ",
                )
        epoch, row = integer("state: epoch", state.get("epoch")), integer("state: row", state.get("row"))
        if epoch < 0 or row < 0 or (self.rows is not None and row > self.rows):
            raise ConfigError(f"state: epoch {epoch}, row {row}: an epoch has {self.rows} rows")
        return self.after(Position(epoch, row), 0)


class Batches:
    """An endless iterator over the micro-batches of one rank, from a place on.

    `state_dict` says where all ranks together will be once each has taken what this one has: the same on every rank.
    """

    def __init__(self, loader: Loader, start: Position):
        self._loader, self.start, self._taken = loader, start, 0

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        batch = self._loader.batch_at(self.place())
        self._taken += 1
        return batch

    def place(self) -> Position:
        """Where the next batch begins."""
        return self._loader.after(self.start, self._taken)

    def state_dict(self) -> dict[str, Any]:
        """Plain data for a checkpoint; `batches(state=...)` goes on behind the batches taken so far."""
        return self._loader.state_at(self.place())


def _curriculum(given: Mapping[int, int] | None, seq_len: int) -> tuple[tuple[int, int], ...] | None:
    """(tokens, length) in order of tokens. Raises: ConfigError: no start at 0, or a length that does not divide seq_len."""
    if given is None:
        return None
    if not isinstance(given, Mapping):
        raise ConfigError(f"curriculum {given!r}: expected a mapping of tokens to sequence lengths")
    pairs = sorted((integer("curriculum: tokens", k), integer("curriculum: length", v)) for k, v in given.items())
    if not pairs or pairs[0][0] != 0:
        raise ConfigError(f"curriculum {dict(pairs)}: the first length holds from 0 tokens on", "give it a key 0")
    for tokens, length in pairs:
        if length < 1 or seq_len % length:
            raise ConfigError(
                f"curriculum: length {length} from {tokens} tokens on does not divide seq_len {seq_len}",
                "a row is cut into shorter ones, so that the order of tokens stays",
            )
    return tuple(pairs)
