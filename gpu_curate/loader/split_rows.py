"""The rows of one split: which there are, in what order an epoch has them, and their tokens.

# B rows, T tokens of a row, D documents
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gpu_curate.errors import ConfigError
from gpu_curate.loader.arguments import integer
from gpu_curate.loader.base import Raw
from gpu_curate.loader.stream import Stream, document_bounds, document_columns

if TYPE_CHECKING:
    from gpu_curate.loader.order import EpochOrder
    from gpu_curate.loader.rows import Plan, Rows, Segments
    from gpu_curate.loader.waste import Waste

LABELS = ("all", "document")
DOCUMENT_ORDERS = ("shards", "dump")

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
        need_rows: bool = False,
    ):
        self.stream = Stream(directory, split)
        self.seq_len, self.options = seq_len, options
        need_bounds = need_segments or options.planned or options.align_documents or options.labels != "all"
        self.bounds: Array | None = document_bounds(self.stream) if need_bounds else None
        self.dtype = self.stream.shards[0].dtype  # of ids as stored
        self.padding = self._padding()
        self._segments = need_segments or options.labels != "all"  # rows of a batch are told apart by document
        self._windows = not options.planned and not options.align_documents and options.shuffle is None
        self._starts_R: Array | None = None
        self._plan: Plan | None = None
        self._rows: Rows | None = None
        self._order: EpochOrder | None = None
        length = self.stream.length
        self._documents: Array | None = None  # those that are used, in their order; None: all
        self._slot_B = np.arange(0)
        self._crossing = options.labels == "all"
        self._density = (
            0.0 if self.bounds is None else 2 * len(self.bounds) / max(self.stream.length, 1)
        )  # documents a token
        self._choices = max(length - seq_len, 0)  # starts of a row that has a target for every token
        self.count = max(length - 1, 0) // seq_len
        if options.planned:
            self._plan = self._open_plan()
            self.count = len(self._plan.row_R) - 1
        elif options.align_documents:
            from gpu_curate.loader.order import aligned_starts

            assert self.bounds is not None
            self._starts_R = aligned_starts(self.bounds, length, seq_len)
            self.count = len(self._starts_R)
        if need_rows or need_bounds or options.shuffle is not None:  # else Numba is not loaded
            from gpu_curate.loader.order import EpochOrder
            from gpu_curate.loader.rows import Rows, stream_segments, window_segments

            self._of_stream, self._of_window = stream_segments, window_segments
            self._rows = Rows(self.stream.shards, self.stream.starts)
            seed = None if options.random_offsets else options.shuffle
            self._order = EpochOrder(self.count, seed, options.shuffle_buffer)

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
            narrow: True leaves ids in the dtype of the shards, and may give views of the mapped files.
        """
        if self._windows:
            return self._window(first, count, cut, narrow)
        assert self._order is not None
        x, y = (np.empty((count, self.seq_len), self.dtype if narrow else np.int64) for _ in range(2))
        if self._starts_R is not None and self.options.shuffle is None:
            first_B = self._starts_R[first : first + count]
            segments = self._gather(first_B, x, y, self._slots(count), cut)
        else:
            places = np.arange(first, first + count) if self.options.random_offsets else None
            rows_B = self._order.range(epoch, first, first + count) if places is None else places
            segments = self._take(epoch, rows_B, x, y, self._slots(count), cut)
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
        places = np.arange(first, first + count)
        if self._order is None:
            return places * self.seq_len
        return self._starts(epoch, places if self.options.random_offsets else self._order.rows(epoch, places))

    def take(self, epoch: int, place_B: Array, x_BT: Array, y_BT: Array, slot_B: Array, cut: int) -> Segments | None:
        """Rows at places of an epoch, into rows slot_B of x and y; segments are those of these rows, in their order."""
        assert self._order is not None
        rows_B = place_B if self.options.random_offsets else self._order.rows(epoch, place_B)
        return self._take(epoch, rows_B, x_BT, y_BT, slot_B, cut)

    def _take(self, epoch: int, rows_B: Array, x_BT: Array, y_BT: Array, slot_B: Array, cut: int) -> Segments | None:
        if self._plan is not None:
            assert self._rows is not None
            return self._rows.gather_packed(self._plan, rows_B, x_BT, y_BT, slot_B, self.padding, cut, self._crossing)
        return self._gather(self._starts(epoch, rows_B), x_BT, y_BT, slot_B, cut)

    def _starts(self, epoch: int, rows_B: Array) -> Array:
        if self.options.random_offsets:
            from gpu_curate.loader.order import random_starts

            assert self.options.shuffle is not None
            return random_starts(rows_B, self._choices, (self.options.shuffle << 20) + epoch)
        return rows_B * self.seq_len if self._starts_R is None else self._starts_R[rows_B]

    def _gather(self, first_B: Array, x_BT: Array, y_BT: Array, slot_B: Array, cut: int) -> Segments | None:
        assert self._rows is not None
        self._rows.gather(first_B, x_BT, y_BT, slot_B)
        if self.bounds is None or not self._segments:
            return None
        if cut != self.seq_len:  # each row is several
            within = np.arange(0, self.seq_len, cut)
            first_B = (first_B[:, None] + within).reshape(-1)
            slot_B = (slot_B[:, None] * len(within) + within // cut).reshape(-1)
        B = len(first_B)
        room = B * 2 + int(B * cut * self._density)
        return self._of_stream(self.bounds, first_B, cut, slot_B, self._crossing, room)

    def _window(self, first: int, count: int, cut: int, narrow: bool) -> Raw:
        """Rows of the stream as it lies: one range of it."""
        T = self.seq_len
        window = self.stream.read(first * T, (first + count) * T + 1)
        x, y = window[:-1].reshape(-1, cut), window[1:].reshape(-1, cut)
        if not narrow:
            x, y = x.astype(np.int64), y.astype(np.int64)
        if not self._segments:
            return x, y, None
        assert self.bounds is not None
        B = len(x)
        return (
            x,
            y,
            self._of_window(self.bounds, first * T, B, cut, self._crossing, B * 2 + int(B * cut * self._density)),
        )

    def _slots(self, count: int) -> Array:
        if len(self._slot_B) < count:
            self._slot_B = np.arange(count)
        return self._slot_B[:count]

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
