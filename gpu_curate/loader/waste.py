"""What each way of making rows wastes on a split: padding, tokens that are never seen, documents that are cut.

Known before training, from the lengths of the documents alone. Two other programs' ways are computed beside ours:

    nanochat         rows of T + 1 tokens from a buffer of 1,000 documents: the longest that fits, and when none fits the shortest
                     one cropped; what is cropped away is gone (karpathy/nanochat, nanochat/dataloader.py)
    OLMo-core        best-fit decreasing with documents truncated to a row; what is truncated is gone (allenai/OLMo-core,
                     long_doc_strategy: truncate; `fragment` is our best_fit)

# D documents, R rows, T tokens of a row
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpu_curate.jit import njit
from gpu_curate.loader.order import aligned_starts
from gpu_curate.loader.packing import make_plan
from gpu_curate.loader.rows import Plan
from gpu_curate.loader.stream import Stream, document_bounds

Array = np.ndarray[Any, np.dtype[Any]]
BUFFER = 1000  # documents: nanochat's buffer_size
_MOST_TOKENS = (
    1 << 28
)  # of the documents that nanochat's way is tried on: it looks at the whole buffer for every document


@dataclass(frozen=True)
class Waste:
    """What a way of making rows does to documents.

    Attributes:
        way: its name.
        rows, seq_len: R and T.
        padding_fraction: places of rows that hold no token, of all.
        lost_fraction: tokens that are in no row, of all tokens.
        cut_fraction: documents of up to T tokens that do not lie whole in one row, of all of these.
    """

    way: str
    rows: int
    seq_len: int
    padding_fraction: float
    lost_fraction: float
    cut_fraction: float

    def __str__(self) -> str:
        return (
            f"{self.way}: {self.rows:,} rows of {self.seq_len}, {self.padding_fraction:.2%} padding, "
            f"{self.lost_fraction:.2%} of tokens in no row, {self.cut_fraction:.2%} of documents that fit are cut"
        )


def of_plan(way: str, plan: Plan, T: int, order: Array | None = None) -> Waste:
    """Waste of rows made of pieces. `order`: the documents that were to be placed; None: all."""
    length_D = np.diff(plan.bounds)
    used = length_D if order is None else length_D[order]
    placed, whole = _placed(*plan, T)
    rows = len(plan.row_R) - 1
    fit = int(np.count_nonzero(used <= T))
    return _waste(way, rows, T, int(placed), int(used.sum()), fit, int(whole))


def of_starts(way: str, bounds: Array, starts_R: Array, T: int) -> Waste:
    """Waste of rows that are ranges of the stream, in its order; what two rows share counts once."""
    begin, end = bounds[:-1], bounds[1:]
    row = np.searchsorted(starts_R, begin, "right") - 1  # the last row that begins no later than the document
    inside = (row >= 0) & (end <= starts_R[np.maximum(row, 0)] + T) if len(starts_R) else np.zeros(len(begin), np.bool_)
    seen = int(np.minimum(np.diff(starts_R, append=np.int64(1 << 62)), T).sum())
    fit = int(np.count_nonzero(end - begin <= T))
    whole = int(np.count_nonzero(inside & (end - begin <= T)))
    return _waste(way, len(starts_R), T, seen, int(bounds[-1]), fit, whole)


def _waste(way: str, rows: int, T: int, placed: int, tokens: int, fit: int, whole: int) -> Waste:
    room = rows * T
    return Waste(
        way,
        rows,
        T,
        1 - min(placed, room) / room if room else 0.0,
        1 - placed / tokens if tokens else 0.0,
        1 - whole / fit if fit else 0.0,
    )


def packing_table(directory: str | os.PathLike[str], split: str, seq_len: int) -> list[Waste]:
    """What every way of making rows wastes on a split.

    Raises: as `ShardLoader`. Memory: 40 bytes a document.
    """
    stream = Stream(directory, split)
    bounds = document_bounds(stream)
    in_order = np.arange(max(stream.length - 1, 0) // seq_len, dtype=np.int64) * seq_len
    found = [of_starts("stream", bounds, in_order, seq_len)]
    found += [of_plan(way, make_plan(bounds, seq_len, way), seq_len) for way in ("best_fit", "pad")]
    found.append(of_starts("align_documents", bounds, aligned_starts(bounds, stream.length, seq_len), seq_len))
    found += [_truncated(bounds, seq_len), _nanochat(bounds, seq_len)]
    return found


def _truncated(bounds: Array, T: int) -> Waste:
    length_D = np.diff(bounds)
    short = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.minimum(length_D, T))])
    rows = len(make_plan(short, T, "best_fit").row_R) - 1
    fit = int(np.count_nonzero(length_D <= T))
    return _waste("OLMo-core, best fit, truncated", rows, T, int(short[-1]), int(bounds[-1]), fit, fit)


def _nanochat(bounds: Array, T: int) -> Waste:
    """Its rows hold T + 1 tokens, of which T are inputs; the same documents never come back."""
    last = int(np.searchsorted(bounds, min(int(bounds[-1]), _MOST_TOKENS), "right")) - 1
    length_D = np.diff(bounds[: last + 1])
    rows, used, placed, fit, whole = _crop_rows(length_D, T + 1, BUFFER)
    return _waste(
        "nanochat, best fit of 1,000, cropped", int(rows), T + 1, int(placed), int(used), int(fit), int(whole)
    )


@njit
def _placed(
    bounds: np.ndarray, row_R: np.ndarray, document_P: np.ndarray, offset_P: np.ndarray, T: int
) -> tuple[int, int]:
    """Tokens that rows hold, and documents of up to T tokens that lie whole in one of them."""
    placed, whole = 0, 0
    for r in range(len(row_R) - 1):
        done = 0
        for p in range(row_R[r], row_R[r + 1]):
            d = np.int64(document_P[p])
            length = bounds[d + 1] - bounds[d]
            count = min(length - np.int64(offset_P[p]), T - done)
            whole += count == length and length <= T
            done += count
        placed += done
    return placed, whole


@njit
def _crop_rows(length_D: np.ndarray, capacity: int, size: int) -> tuple[int, int, int, int, int]:
    """Rows of nanochat's way while its buffer can be filled, or what is left of it holds a row.

    Returns: rows, tokens of the documents used, tokens placed, documents used that fit a row, those of them placed whole.
    """
    buffer = np.empty(min(size, len(length_D)), np.int64)
    held, following = 0, 0
    rows, used, placed, fit, whole, position = 0, 0, 0, 0, 0, 0
    while True:
        while held < len(buffer) and following < len(length_D):
            buffer[held] = length_D[following]
            held += 1
            following += 1
        if held == 0:
            break
        room, best, shortest = capacity - position, -1, 0
        for i in range(held):
            if buffer[i] <= room and (best < 0 or buffer[i] > buffer[best]):
                best = i
            if buffer[i] < buffer[shortest]:
                shortest = i
        chosen = best if best >= 0 else shortest
        length = buffer[chosen]
        count = min(length, room)
        fit += length <= capacity
        whole += count == length and length <= capacity
        used += length
        placed += count
        position += count
        for i in range(chosen, held - 1):  # as a list closes up: the first of equal ones is the oldest
            buffer[i] = buffer[i + 1]
        held -= 1
        if position == capacity:
            position = 0
            rows += 1
    return rows + (position > 0), used, placed, fit, whole
