"""Rows of token shards, gathered by compiled code: no Python per row. Numba is imported with this module, on first need.

A batch of rows is described by what it holds beside its tokens: segments and targets that there are none of. A segment is a
run of tokens of one document within one row. Segments of a batch follow each other in the order of its flattened tokens, so
their ends say all: cu_seqlens, positions, and which token is of which document.

# B rows, T tokens of a row, S shards, G segments, D documents
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numba import carray, types

from gpu_curate.jit import Context, Lowered, Signature, intrinsic, njit

Shard = np.ndarray[Any, np.dtype[Any]]
Array = np.ndarray[Any, np.dtype[Any]]


class Segments(NamedTuple):
    """What the tokens of a batch belong to.

    Attributes:
        cu_seqlens: int32 of G + 1, where segments begin in the flattened batch, and its length; padding is a segment too.
        document_G: int32, the document's number in the split; -1 for padding.
        untargeted: int32, places in the flattened batch whose token has no target.
        longest: tokens of the longest segment.
    """

    cu_seqlens: Array
    document_G: Array
    untargeted: Array
    longest: int


class Rows:
    """Gathers rows that begin anywhere in a stream of shards read as one.

    Args:
        shards: S mapped arrays of uint16 or of uint32; kept, since rows are read through their addresses.
        starts: S + 1 positions of the stream at which shards begin, and its length.
    """

    def __init__(self, shards: Sequence[Shard], starts: Sequence[int]):
        self._shards = list(shards)
        self._address_S = np.array([shard.ctypes.data for shard in self._shards], np.int64)
        self._starts = np.array(starts, np.int64)
        self._like = np.empty(0, self._shards[0].dtype)

    def gather(self, first_B: Array, x_BT: Array, y_BT: Array, slot_B: Array) -> None:
        """Row slot_B[k] of x becomes T tokens from first_B[k] on, that of y the T tokens from the next one on.

        The caller answers for 0 <= first and first + T + 1 <= length: no bound is checked.
        """
        _gather(self._address_S, self._starts, first_B, x_BT, y_BT, slot_B, self._like)

    def gather_packed(
        self, plan: Plan, row_B: Array, x_BT: Array, y_BT: Array, slot_B: Array, padding: int, cut: int, crossing: bool
    ) -> Segments:
        """Row slot_B[k] of x and y becomes row row_B[k] of a plan.

        Args:
            padding: id that fills what no document does.
            cut: segments end at multiples of it in a row; T for rows as they are.
            crossing: True gives the last token of a document the first one of the document behind it in the row as target;
                False gives it none.
        """
        B, T = len(row_B), x_BT.shape[1]
        scratch = np.empty(3 * (B * T + 3), np.int32)
        found = _packed(
            self._address_S,
            self._starts,
            *plan,
            row_B,
            x_BT,
            y_BT,
            slot_B,
            padding,
            cut,
            crossing,
            scratch,
            self._like,
        )
        cu, document, untargeted, longest = _segments(scratch, *found)
        return Segments(cu.copy(), document.copy(), untargeted.copy(), longest)  # scratch is larger than they are


class Plan(NamedTuple):
    """Rows made of pieces of documents, as `gpu_curate.loader.packing` makes them.

    Piece p is document document_P[p] from its token offset_P[p] on, as long as the document or the row goes on; row r is
    pieces row_R[r] .. row_R[r + 1] - 1, one behind the other.
    """

    bounds: Array  # int64 of D + 1: where documents start in the stream, and its length
    row_R: Array  # int64 of R + 1
    document_P: Array  # uint32
    offset_P: Array  # uint32


def stream_segments(bounds: Array, first_B: Array, T: int, slot_B: Array, crossing: bool, room: int) -> Segments:
    """What the tokens of rows that begin at first_B of the stream belong to; `crossing` as for `Rows.gather_packed`.

    Args:
        room: segments that there are usually at most; more cost a second look.
    """
    scratch = np.empty(3 * room, np.int32)
    segments, missing, longest = _stream_segments(bounds, first_B, T, slot_B, crossing, scratch)
    if segments < 0:
        scratch = np.empty(3 * (len(first_B) * T + 3), np.int32)
        segments, missing, longest = _stream_segments(bounds, first_B, T, slot_B, crossing, scratch)
    return _segments(scratch, segments, missing, longest)


def window_segments(bounds: Array, first: int, B: int, T: int, crossing: bool, room: int) -> Segments:
    """`stream_segments` of B rows that follow each other from `first` on."""
    scratch = np.empty(3 * room, np.int32)  # cu_seqlens, documents, places without a target
    segments, missing, longest = _window_segments(bounds, first, B, T, crossing, scratch)
    if segments < 0:
        scratch = np.empty(3 * (B * T + 3), np.int32)
        segments, missing, longest = _window_segments(bounds, first, B, T, crossing, scratch)
    return _segments(scratch, segments, missing, longest)


_nothing = np.empty(0, np.int32)


def _segments(scratch: Array, segments: int, missing: int, longest: int) -> Segments:
    third = len(scratch) // 3
    untargeted = scratch[2 * third : 2 * third + missing] if missing else _nothing
    found = (scratch[: segments + 1], scratch[third : third + segments], untargeted, longest)
    return tuple.__new__(Segments, found)  # half the time of Segments(...)


def spread(cu_seqlens: Array, document_G: Array, B: int, T: int) -> tuple[Array, Array]:
    """position_BT, document_BT of int32, for every token."""
    position, document = np.empty((B, T), np.int32), np.empty((B, T), np.int32)
    _spread(cu_seqlens, document_G, position.reshape(-1), document.reshape(-1))
    return position, document


@njit
def _spread(cu_seqlens: np.ndarray, document_G: np.ndarray, position: np.ndarray, document: np.ndarray) -> None:
    for g in range(len(document_G)):
        run = position[cu_seqlens[g] : cu_seqlens[g + 1]]  # slices, so that indices count from 0 and loops are vectors
        for j in range(len(run)):
            run[j] = j
        document[cu_seqlens[g] : cu_seqlens[g + 1]] = document_G[g]


@njit
def _row_segments(
    bounds: np.ndarray,
    first: int,
    T: int,
    base: int,
    crossing: bool,
    scratch: np.ndarray,
    segments: int,
    missing: int,
    longest: int,
) -> tuple[int, int, int]:
    """The segments of one row, behind those that scratch holds."""
    d, third = np.searchsorted(bounds, first, "right") - 1, len(scratch) // 3
    done = 0
    while done < T:
        if segments + 2 >= third:  # no room, which the caller can mend
            return -1, 0, 0
        end = bounds[d + 1] - first
        if end <= T and not crossing:
            scratch[2 * third + missing] = base + end - 1
            missing += 1
        longest = max(longest, min(end, T) - done)
        done = min(end, T)
        scratch[third + segments] = d
        segments += 1
        scratch[segments] = base + done
        d += 1
    return segments, missing, longest


@njit
def _stream_segments(
    bounds: np.ndarray, first_B: np.ndarray, T: int, slot_B: np.ndarray, crossing: bool, scratch: np.ndarray
) -> tuple[int, int, int]:
    scratch[0] = 0
    found = (0, 0, 0)
    for k in range(len(first_B)):
        found = _row_segments(bounds, first_B[k], T, slot_B[k] * T, crossing, scratch, *found)
        if found[0] < 0:
            break
    return found


@njit
def _window_segments(
    bounds: np.ndarray, first: int, B: int, T: int, crossing: bool, scratch: np.ndarray
) -> tuple[int, int, int]:
    scratch[0] = 0
    found = (0, 0, 0)
    for k in range(B):
        found = _row_segments(bounds, first + k * T, T, k * T, crossing, scratch, *found)
        if found[0] < 0:
            break
    return found


@intrinsic(returns=int)
def _pointer(typingctx: Any, address: types.Type, like: types.Array) -> Lowered:
    """An address as a pointer to elements of the dtype of an array."""

    def codegen(context: Context, builder: Any, signature: Signature, args: list[Any]) -> Any:
        return builder.inttoptr(args[0], context.get_value_type(signature.return_type))

    return types.CPointer(like.dtype)(types.int64, like), codegen


# `like` is an empty array of the shards' dtype: one kernel for both widths, without a closure, which Numba would compile anew
# in every process.


@njit
def _copy(address_S: np.ndarray, starts: np.ndarray, position: int, out: np.ndarray, like: np.ndarray) -> None:
    """out = tokens of the stream from `position` on; what lies behind its end is left as it is."""
    if position >= starts[-1]:
        return
    s = np.searchsorted(starts, position, "right") - 1
    done = 0
    while done < len(out) and s < len(address_S):
        count = min(len(out) - done, starts[s + 1] - position)
        tokens = carray(_pointer(address_S[s] + (position - starts[s]) * like.itemsize, like), (count,))
        part = out[done : done + count]
        for j in range(len(part)):
            part[j] = tokens[j]
        done += count
        position += count
        s += 1


@njit
def _gather(
    address_S: np.ndarray,
    starts: np.ndarray,
    first_B: np.ndarray,
    x_BT: np.ndarray,
    y_BT: np.ndarray,
    slot_B: np.ndarray,
    like: np.ndarray,
) -> None:
    T = x_BT.shape[1]
    for k in range(len(first_B)):
        position, slot = first_B[k], slot_B[k]
        s = np.searchsorted(starts, position, "right") - 1  # the shard that holds it: empty ones lie before
        done = 0  # tokens of this row and the one behind it
        while done <= T:
            while starts[s + 1] == position:
                s += 1
            count = min(T + 1 - done, starts[s + 1] - position)
            tokens = carray(_pointer(address_S[s] + (position - starts[s]) * like.itemsize, like), (count,))
            x = x_BT[slot, done : min(done + count, T)]  # slices, so that indices count from 0 and loops are vectors
            for j in range(len(x)):
                x[j] = tokens[j]
            skipped = 1 if done == 0 else 0
            tokens = tokens[skipped:]
            y = y_BT[slot, done + skipped - 1 : done + count - 1]
            for j in range(len(y)):
                y[j] = tokens[j]
            done += count
            position += count


@njit
def _packed(
    address_S: np.ndarray, starts: np.ndarray, bounds: np.ndarray, row_R: np.ndarray, document_P: np.ndarray, offset_P: np.ndarray, row_B: np.ndarray, x_BT: np.ndarray, y_BT: np.ndarray, slot_B: np.ndarray, padding: int, cut: int, crossing: bool, scratch: np.ndarray, like: np.ndarray
) -> tuple[int, int, int]:  # fmt: skip
    T = x_BT.shape[1]
    segments, missing, longest, third = 0, 0, 0, len(scratch) // 3
    scratch[0] = 0
    for k in range(len(row_B)):
        slot = slot_B[k]
        x, y, base, done = x_BT[slot], y_BT[slot], slot * T, 0
        last = row_R[row_B[k] + 1]
        for p in range(row_R[row_B[k]], last + 1):
            if p < last:
                d = np.int64(document_P[p])
                first, behind = bounds[d] + np.int64(offset_P[p]), bounds[d + 1]
                count = min(behind - first, T - done)
                _copy(address_S, starts, first, x[done : done + count], like)
                _copy(address_S, starts, first + 1, y[done : done + count], like)
                if first + count == behind:  # the document ends here: its next token in the stream is another one's
                    place = done + count - 1
                    if crossing and p + 1 < last and offset_P[p + 1] == 0:
                        _copy(address_S, starts, bounds[np.int64(document_P[p + 1])], y[place : place + 1], like)
                    else:
                        y[place] = 0
                        scratch[2 * third + missing] = base + place
                        missing += 1
            else:
                d, count = np.int64(-1), T - done
                for j in range(done, T):
                    x[j] = padding
                    y[j] = 0
                    scratch[2 * third + missing] = base + j
                    missing += 1
            end = done + count
            while done < end:  # in pieces that end at multiples of `cut`
                begin, done = done, min(end, (done // cut + 1) * cut)
                longest = max(longest, done - begin)
                scratch[third + segments] = d
                segments += 1
                scratch[segments] = base + done
    return segments, missing, longest
