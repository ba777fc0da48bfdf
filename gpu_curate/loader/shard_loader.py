"""Batches of one split: ShardLoader.

The batch stream is a pure function of: the shards, split, batch_size, seq_len, rank, world_size and the options of rows.
Nothing else changes its order: no clock or global random generator is asked. So a step number resumes it as long as
batch_size, world_size and the micro-batches of a step stay; a state resumes it where they change.

Row r of an epoch is tokens [r * seq_len, r * seq_len + seq_len] of the split's stream, shards read as one, unless an option
makes rows otherwise. What does not fill a batch of all ranks is left over; every rank has the same number of batches,
whatever the shard lengths.

# B batch size, T sequence length, W world size, R rows of an epoch
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gpu_curate.errors import ConfigError
from gpu_curate.loader.arguments import batch_number, integer
from gpu_curate.loader.base import START, Array, Batch, Loader, Position, Raw
from gpu_curate.loader.split_rows import RowOptions, SplitRows

if TYPE_CHECKING:
    from gpu_curate.loader.waste import Waste


class ShardLoader(Loader):
    """Batches of one split for one rank.

    Args:
        directory, split: see Stream.
        batch_size, seq_len: rows and tokens per row of one micro-batch on one rank.
        rank, world_size: this process and how many there are; ranks are disjoint and equal. None: RANK and WORLD_SIZE of
            the environment, as torchrun sets them; 0 of 1 without them.
        shuffle: seed of a permutation of the rows, another one every epoch; None (default) keeps the order of the
            shards, which are shuffled by document already.
        shuffle_buffer: permutes within blocks of so many rows only. random_offsets: rows begin anywhere, drawn with
            replacement, as nanoGPT does. Both need a seed, and are there to show what they cost.
        packing: `stream` (default), `best_fit` or `pad`: see `gpu_curate.loader.packing`. The last two need
            documents.parquet, and keep an index in the folder `packing` beside the shards, or in `index_folder`.
        align_documents: rows start where a document starts, or go on with one that has at least T + 1 tokens left;
            what else is left of a document behind its row is skipped. Needs documents.parquet; 8 bytes a row.
        sources: the documents of these sources alone (a name, or several). document_order: `dump` takes documents in the
            order of the files they came from. Both need documents.parquet.
        boundaries: True gives a DocumentBatch: positions, documents and segments of every token, from documents.parquet.
        labels: `all`: the target of a document's last token is the first of the next; `document`: it has none, and y is
            `ignore_index` there, as it is on padding.
        padding: id that fills rows; None: the end-of-text token.
        curriculum: {tokens taken by all ranks: length}: from so many tokens on, rows of that length, which divides
            seq_len. A row is cut into shorter ones, so batches keep their tokens and the order stays.
        as_torch: True gives torch tensors (torch must be there), False NumPy arrays, None torch if it is installed.
        tokenizer_sha256: refuse shards made with another tokenizer.json.
    Attributes:
        batches_per_epoch (also len()), rows, tokens (of the split), leftover_tokens (of an epoch, on all ranks together:
            tokens that are no target; the first token of the stream never is and is not counted), waste.
    Raises:
        ConfigError: no integer or a number out of range, fewer tokens than one batch of all ranks, another tokenizer, torch or
            documents.parquet missing. FatalError: a shard differs from its manifest or header, or documents.parquet from
            the shards.
    Memory: pages of the mapped files, one batch, and 8 bytes a document where documents matter. Cheap to make; picklable (a
        copy opens the files again).
    """

    rows: int

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
        shuffle_buffer: int | None = None,
        random_offsets: bool = False,
        packing: str = "stream",
        align_documents: bool = False,
        sources: str | Sequence[str] | None = None,
        document_order: str = "shards",
        boundaries: bool = False,
        labels: str = "all",
        ignore_index: int = -100,
        padding: int | None = None,
        curriculum: Mapping[int, int] | None = None,
        index_folder: str | os.PathLike[str] | None = None,
        as_torch: bool | None = None,
        tokenizer_sha256: str | None = None,
    ):
        arguments = {k: v for k, v in locals().items() if k not in ("self", "__class__")}
        self._take_arguments(batch_size, seq_len, rank, world_size, curriculum, boundaries, ignore_index, as_torch)
        names = RowOptions.__dataclass_fields__
        options = RowOptions(**{k: v for k, v in arguments.items() if k in names})
        self._split_rows = SplitRows(directory, split, self.seq_len, options, self.boundaries, self.ignore_index)
        self.stream = self._split_rows.stream
        # A copy elsewhere is of the same rank, and of what is the latest now.
        self._arguments = arguments | {
            "directory": self.stream.directory,
            "rank": self.rank,
            "world_size": self.world_size,
        }
        check_tokenizer(self.stream, tokenizer_sha256)
        self.shuffle, self.align_documents, self.packing = options.shuffle, align_documents, packing
        self.tokens = self.stream.length
        self.rows = self._split_rows.count
        size = self.batch_size * self.world_size
        self.batches_per_epoch = self.rows // size
        if self.batches_per_epoch == 0:
            raise ConfigError(
                f"{directory}: split {self.stream.split} has {self.tokens} tokens in {self.rows} rows of {self.seq_len}, "
                f"fewer than one batch of {self.batch_size} rows on {self.world_size} ranks",
                hint="lower batch_size, seq_len or world_size",
            )
        self.state_at(
            START
        )  # so that what every state holds is known: a hash over all shards takes longer than a state may

    @property
    def leftover_tokens(self) -> int:
        targets = self.batches_per_epoch * self.batch_size * self.world_size * self.seq_len
        return max(int(self.tokens) - 1 - targets, 0)  # rows that hold padding have more room than there are tokens

    @functools.cached_property
    def waste(self) -> Waste:
        """What these rows waste: print it before training. Raises: ConfigError: no documents.parquet."""
        return self._split_rows.waste()

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
        if type(i) is not int or i < 0:  # else at once: it is asked for every batch
            i = batch_number(i)
        if self.curriculum is not None:
            return super().batch(i)
        epoch, i = divmod(i, self.batches_per_epoch)
        first = (i * self.world_size + self.rank) * self.batch_size
        x, y, segments = self._split_rows.read(epoch, first, self.batch_size, self.seq_len)
        return self._finish(x, y, segments)

    batch.__doc__ = Loader.batch.__doc__

    def row_starts(self, i: int) -> Array:
        """int64 (B,): where the rows of micro-batch i start in the split's stream.

        Raises: ConfigError: rows are pieces of documents, not ranges of the stream: `document_ids` says which.
        """
        position = self.after(START, batch_number(i))
        first = position.row + self.rank * self.batch_size
        return self._split_rows.starts(position.epoch, first, self.batch_size)

    def trace(self, i: int) -> list[dict[str, Any]]:
        """The documents behind every row of micro-batch i, the odd ones first; see `gpu_curate.trace.trace`."""
        from gpu_curate.trace import trace

        return trace(self, i)

    def raw(self, position: Position, narrow: bool = False) -> Raw:
        first = position.row + self.rank * self.batch_size
        return self._split_rows.read(position.epoch, first, self.batch_size, self.length_at(position), narrow)

    def _identity(self) -> dict[str, Any]:
        return self._split_rows.identity()


def check_tokenizer(stream: Any, expected: str | None) -> None:
    """Raises: ConfigError: the shards of a stream were made with another tokenizer.json, or do not say with which."""
    if expected is None:
        return
    named = (stream.manifest or {}).get("tokenizer")
    if named is None:
        what = "no manifest.json" if stream.manifest is None else "manifest.json names no tokenizer"
        raise ConfigError(f"{stream.directory}: {what}, so the tokenizer cannot be checked")
    if named["sha256"] != expected:
        raise ConfigError(
            f"{stream.directory}: made with tokenizer sha256 {named['sha256']} ({named.get('path')}), the model's is {expected}"
        )
