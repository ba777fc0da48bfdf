"""The rows of one split: which there are, in what order an epoch has them, and their tokens.

# B rows, T tokens of a row, D documents
"""

from __future__ import annotations

import functools
import operator
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gpu_curate.errors import ConfigError
from gpu_curate.loader.arguments import integer
from gpu_curate.loader.base import Raw
from gpu_curate.loader.stream import Stream, document_bounds, document_columns

if TYPE_CHECKING:
    from gpu_curate.loader.order import RowOrder
    from gpu_curate.loader.rows import Plan, Segments
    from gpu_curate.loader.waste import Waste

LABELS = ("all", "document")
DOCUMENT_ORDERS = ("shards", "dump")

_INT64 = np.dtype(np.int64)

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class RowOptions:
    """How rows are made of documents and in what order they come; `ShardLoader` says what each means."""

    shuffle: int | None = None
    shuffle_buffer: int | None = None
    random_offsets: bool = False
    align_documents: bool = False
    packing: str = "stream"
    sources: str | Sequence[str] | None = None
    document_order: str = "shards"
    labels: str = "all"
    padding: int | None = None
    index_folder: str | os.PathLike[str] | None = None

    def __post_init__(self) -> None:
        if self.packing not in ("stream", "best_fit", "pad"):
            raise ConfigError(f"packing {self.packing!r}: expected stream, best_fit or pad")
        if self.labels not in LABELS:
            raise ConfigError(f"labels {self.labels!r}: expected {' or '.join(LABELS)}")
        if self.document_order not in DOCUMENT_ORDERS:
            raise ConfigError(f"document_order {self.document_order!r}: expected {' or '.join(DOCUMENT_ORDERS)}")
        if self.shuffle is not None:
            object.__setattr__(self, "shuffle", integer("shuffle", self.shuffle))
        if self.shuffle_buffer is not None and integer("shuffle_buffer", self.shuffle_buffer) < 1:
            raise ConfigError(f"shuffle_buffer {self.shuffle_buffer}: expected a row or more")
        if self.shuffle is None and (self.shuffle_buffer is not None or self.random_offsets):
            raise ConfigError("shuffle_buffer and random_offsets need a seed", "give shuffle an integer")
        if self.shuffle_buffer is not None and self.random_offsets:
            raise ConfigError("random_offsets draws rows by itself: no shuffle_buffer with it")
        if self.planned and (self.align_documents or self.random_offsets):
            raise ConfigError(
                "align_documents and random_offsets take rows of the stream as it lies",
                "not with packing, sources or document_order",
            )
        if self.align_documents and self.random_offsets:
            raise ConfigError("align_documents and random_offsets: both say where rows begin", "give one of the two")

    @property
    def planned(self) -> bool:
        """True if rows are pieces of documents, not ranges of the stream."""
        return self.packing != "stream" or self.sources is not None or self.document_order != "shards"

    def source_names(self) -> list[str] | None:
        if self.sources is None:
            return None
        return sorted({self.sources} if isinstance(self.sources, str) else set(self.sources))

    def identity(self) -> dict[str, Any]:
        """What of this decides which row stands where. An option at its default is left out, so that states of earlier
        versions go on."""
        facts: dict[str, Any] = {"shuffle": self.shuffle, "align_documents": self.align_documents}
        more = {
            "shuffle_buffer": self.shuffle_buffer,
            "random_offsets": self.random_offsets or None,
            "packing": None if self.packing == "stream" else self.packing,
            "sources": self.source_names(),
            "document_order": None if self.document_order == "shards" else self.document_order,
        }
        return {**facts, **{name: value for name, value in more.items() if value is not None}}


class SplitRows:
    """Rows of T tokens of one split.

    Attributes:
        stream: its tokens.
        count: rows of an epoch.
        bounds: int64 of D + 1, where documents start, and the length of the stream; None where nothing asks for them.
    Raises: see `ShardLoader`.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        split: str,
        seq_len: int,
        options: RowOptions,
        need_segments: bool = False,
        ignore_index: int = -100,
    ):
        from gpu_curate.loader.rows import Labels, Rows  # here, since it loads Numba: who wants a manifest needs none

        self.stream = Stream(directory, split)
        self.seq_len, self.options = seq_len, options
        self._segments = need_segments or options.labels != "all"  # rows of a batch are told apart by document
        need_bounds = self._segments or options.planned or options.align_documents
        self.bounds: Array | None = document_bounds(self.stream) if need_bounds else None
        self.dtype = self.stream.shards[0].dtype  # of ids as stored
        self.padding = self._padding()
        self._labels = Labels(options.labels == "all", ignore_index)
        self._rows = Rows(self.stream.shards, self.stream.starts, self.bounds)
        self._starts_R: Array | None = None
        self._plan: Plan | None = None
        self._documents: Array | None = None  # those that are used, in their order; None: all
        self._slot_B = np.arange(0)
        self.count = max(self.stream.length - 1, 0) // seq_len
        self._order = self._make_order()

    def _make_order(self) -> RowOrder:
        """Also finds the rows and their number."""
        from gpu_curate.loader.order import EpochOrder, RandomOffsets, aligned_starts

        options, T, length = self.options, self.seq_len, self.stream.length
        if options.random_offsets:
            assert options.shuffle is not None
            return RandomOffsets(self.count, options.shuffle, max(length - T, 0))
        value: Callable[[Array], Array] | None = None
        if options.planned:
            self._plan = self._open_plan()
            self.count = len(self._plan.row_R) - 1
        elif options.align_documents:
            assert self.bounds is not None
            self._starts_R = aligned_starts(self.bounds, length, T)
            self.count = len(self._starts_R)
            value = self._starts_R.__getitem__
        else:
            value = functools.partial(operator.mul, T)
        return EpochOrder(self.count, options.shuffle, options.shuffle_buffer, value)

    def waste(self) -> Waste:
        """What this way of making rows wastes. Raises: ConfigError: no documents.parquet."""
        from gpu_curate.loader import waste

        bounds = document_bounds(self.stream) if self.bounds is None else self.bounds
        T = self.seq_len
        if self._plan is not None:
            return waste.of_plan(self.options.packing, self._plan, T, self._documents)
        starts_R = np.arange(self.count) * T if self._starts_R is None else self._starts_R
        return waste.of_starts("stream" if self._starts_R is None else "align_documents", bounds, starts_R, T)

    def identity(self) -> dict[str, Any]:
        facts = {"shards": self.stream.identity(), "split": self.stream.split, "seq_len": self.seq_len}
        return {**facts, **self.options.identity()}

    def read(self, epoch: int, first: int, count: int, cut: int, narrow: bool = False) -> Raw:
        """Rows at places first..first + count - 1 of an epoch, each cut into T / cut rows.

        Args:
            narrow: True leaves ids in the dtype of the shards.
        """
        shape, dtype = (count, self.seq_len), self.dtype if narrow else _INT64
        x, y = np.empty(shape, dtype), np.empty(shape, dtype)
        if len(self._slot_B) != count:
            self._slot_B = np.arange(count)
        segments = self._take(self._order.range(epoch, first, first + count), x, y, self._slot_B, cut)
        return (x, y, segments) if cut == self.seq_len else (x.reshape(-1, cut), y.reshape(-1, cut), segments)

    def tokens_of_row(self) -> float:
        """Tokens of a row without padding, on average."""
        if self._plan is None or not self.count:
            return float(self.seq_len)
        waste = self.waste()
        return self.seq_len * (1 - waste.padding_fraction)

    def starts(self, epoch: int, first: int, count: int) -> Array:
        """int64: where the rows at places of an epoch start in the stream. Raises: ConfigError: they are no ranges of it."""
        if self._plan is not None:
            raise ConfigError(
                "these rows are pieces of documents, so that they start nowhere in the stream",
                "boundaries=True gives the document of every token; without packing, sources and document_order rows are "
                "ranges of the stream",
            )
        return self._order.at(epoch, np.arange(first, first + count))

    def take(self, epoch: int, place_B: Array, x_BT: Array, y_BT: Array, slot_B: Array, cut: int) -> Segments | None:
        """Rows at places of an epoch, into rows slot_B of x and y; segments are those of these rows, in their order."""
        return self._take(self._order.at(epoch, place_B), x_BT, y_BT, slot_B, cut)

    def _take(self, value_B: Array, x_BT: Array, y_BT: Array, slot_B: Array, cut: int) -> Segments | None:
        if self._plan is not None:
            return self._rows.gather_packed(self._plan, value_B, x_BT, y_BT, slot_B, self.padding, cut, self._labels)
        if self._segments:
            return self._rows.gather_segments(value_B, x_BT, y_BT, slot_B, cut, self._labels)
        self._rows.gather(value_B, x_BT, y_BT, slot_B)
        return None

    def _padding(self) -> int:
        """The id that fills rows: as asked for, else the end-of-text token, else 0. It has no target."""
        if self.options.padding is not None:
            padding = integer("padding", self.options.padding)
            if not 0 <= padding <= np.iinfo(self.dtype).max:
                raise ConfigError(f"padding {padding}: ids of {self.stream.directory} are {self.dtype.name}")
            return padding
        return int(self.stream.manifest["eot_id"]) if self.stream.manifest else 0

    def _open_plan(self) -> Plan:
        from gpu_curate.loader.packing import open_plan

        assert self.bounds is not None
        options, order, name = self.options, None, f"{self.stream.split}-{self.options.packing}-{self.seq_len}"
        names = options.source_names()
        if names is not None or options.document_order == "dump":
            order = self._document_order(names)
            name += "".join(
                f"-{part}" for part in ("dump" if options.document_order == "dump" else "", _short(names)) if part
            )
        folder = Path(options.index_folder) if options.index_folder is not None else self.stream.directory / "packing"
        self._documents = order
        return open_plan(folder, name, self.bounds, self.seq_len, options.packing, order)

    def _document_order(self, names: list[str] | None) -> Array:
        """Numbers of the documents of some sources, in the order of the shards or of the files they came from."""
        wanted = (["source"] if names is not None else []) + (
            ["doc_id"] if self.options.document_order == "dump" else []
        )
        table = document_columns(self.stream.directory, self.stream.split, wanted)
        order = np.arange(table.num_rows, dtype=np.int64)
        if names is not None:
            import pyarrow as pa
            import pyarrow.compute as pc

            source = table["source"].cast(pa.string())
            there = pc.unique(source).to_pylist()
            missing = [name for name in names if name not in there]
            if missing or not names:
                raise ConfigError(
                    f"{self.stream.directory}: split {self.stream.split} has no document of source "
                    f"{', '.join(missing) or '(none named)'}; it has {', '.join(sorted(map(str, there))) or 'none'}"
                )
            order = order[pc.is_in(source, pa.array(names)).to_numpy(zero_copy_only=False)]
        if self.options.document_order == "dump":
            order = order[np.argsort(table["doc_id"].to_numpy()[order], kind="stable")]
        return order


def _short(names: list[str] | None) -> str:
    """A name for a file; what it stands for is in the file's head."""
    import hashlib

    return "" if names is None else hashlib.sha256("\0".join(names).encode()).hexdigest()[:8]
