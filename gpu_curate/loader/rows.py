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
from llvmlite import ir
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


class Labels(NamedTuple):
    """Which tokens have no target, and what y is there.

    Attributes:
        crossing: True gives the last token of a document the first one of the document behind it as target; False none.
        ignore_index: what y is where there is no target.
    """

    crossing: bool
    ignore_index: int


class Rows:
    """Gathers rows that begin anywhere in a stream of shards read as one.

    Args:
        shards: S mapped arrays of uint16 or of uint32; kept, since rows are read through their addresses.
        starts: S + 1 positions of the stream at which shards begin, and its length.
        bounds: int64 of D + 1, where documents start in the stream, and its length; None where nobody asks for segments.
    """

    def __init__(self, shards: Sequence[Shard], starts: Sequence[int], bounds: Array | None = None):
        self._shards = list(shards)
        # One array for addresses and starts: each array that a compiled function takes costs a batch 0.1 us.
        self._table = np.array([*(shard.ctypes.data for shard in self._shards), *starts], np.int64)
        self._width = self._shards[0].dtype.itemsize
        self._bounds = bounds
        if bounds is not None:
            # Documents at every 2^shift tokens, about as many as there are documents: a search of all bounds for each row would
            # wait for memory as long as the copying of the row.
            self._shift = int(bounds[-1] // max(len(bounds) - 1, 1)).bit_length()
            self._coarse = np.empty((int(bounds[-1]) >> self._shift) + 2, np.uint32)
            _coarse(bounds, self._shift, self._coarse)
        self._room = 192  # numbers that the segments of a batch need; grows to what is enough

    def gather(self, first_B: Array, x_BT: Array, y_BT: Array, slot_B: Array) -> None:
        """Row slot_B[k] of x becomes T tokens from first_B[k] on, that of y the T tokens from the next one on.

        The caller answers for 0 <= first and first + T + 1 <= length: no bound is checked.
        """
        _gather(self._table, self._width, first_B, x_BT, y_BT, slot_B)

    def gather_segments(
        self, first_B: Array, x_BT: Array, y_BT: Array, slot_B: Array, cut: int, labels: Labels
    ) -> Segments:
        """`gather`, and what the tokens belong to. Segments end at multiples of `cut` in a row; T for rows as they are."""
        assert self._bounds is not None
        while True:
            scratch = np.empty(self._room, _INT32)
            segments, missing, longest = _gather_segments(
                self._table, self._width, self._bounds, self._shift, self._coarse, first_B, x_BT, y_BT, slot_B, cut,
                *labels, scratch,
            )  # fmt: skip
            if segments >= 0:
                return _segments(scratch, segments, missing, longest)
            self._room *= 2

    def gather_packed(
        self, plan: Plan, row_B: Array, x_BT: Array, y_BT: Array, slot_B: Array, padding: int, cut: int, labels: Labels
    ) -> Segments:
        """Row slot_B[k] of x and y becomes row row_B[k] of a plan.

        Args:
            padding: id that fills what no document does.
            cut: segments end at multiples of it in a row; T for rows as they are.
        """
        B, T = len(row_B), x_BT.shape[1]
        scratch = np.empty(3 * (B * T + 3), _INT32)
        found = _packed(self._table, self._width, *plan, row_B, x_BT, y_BT, slot_B, padding, cut, *labels, scratch)
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


_INT32 = np.dtype(np.int32)
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


@intrinsic(returns=int)
def _pointer_16(typingctx: Any, address: types.Type) -> Lowered:
    """An address as a pointer to uint16."""
    return types.CPointer(types.uint16)(types.int64), _as_pointer


@intrinsic(returns=int)
def _pointer_32(typingctx: Any, address: types.Type) -> Lowered:
    """An address as a pointer to uint32."""
    return types.CPointer(types.uint32)(types.int64), _as_pointer


def _as_pointer(context: Context, builder: Any, signature: Signature, args: list[Any]) -> Any:
    return builder.inttoptr(args[0], context.get_value_type(signature.return_type))


@intrinsic(returns=type(None))
def _prefetch(typingctx: Any, address: types.Type) -> Lowered:
    """Ask for the cache line of an address, which may be anywhere: nothing is read."""

    def codegen(context: Context, builder: Any, signature: Signature, args: list[Any]) -> Any:
        pointer = ir.IntType(8).as_pointer()
        kind = ir.FunctionType(ir.VoidType(), [pointer, *[ir.IntType(32)] * 3])
        function = builder.module.declare_intrinsic("llvm.prefetch", [pointer], kind)
        read, keep, data = (ir.Constant(ir.IntType(32), n) for n in (0, 3, 1))
        builder.call(function, [builder.inttoptr(args[0], pointer), read, keep, data])
        return context.get_dummy_value()

    return types.none(types.int64), codegen


# `table` is of `Rows`: S addresses, then S + 1 starts. `width`: bytes of an id.


@njit
def _last(sorted_N: np.ndarray, value: int) -> int:
    """The last place of a sorted array that holds `value` or less; its first place does.

    Without a branch on what is compared, so that searches of several values run at once.
    """
    base, left = 0, len(sorted_N)
    while left > 1:
        half = left // 2
        base += half * (sorted_N[base + half] <= value)
        left -= half
    return base


@njit
def _copy(table: np.ndarray, width: int, s: int, position: int, out: np.ndarray) -> None:
    """out = tokens of the stream from `position` on, none of them before shard s; what lies behind its end is left as it is."""
    S, done = len(table) // 2, 0
    while done < len(out):
        while s < S and table[S + s + 1] <= position:
            s += 1
        if s == S:
            return
        count = min(len(out) - done, table[S + s + 1] - position)
        address = table[s] + (position - table[S + s]) * width
        part = out[done : done + count]  # a slice, so that indices count from 0 and loops are vectors
        if width == 2:
            narrow = carray(_pointer_16(address), (count,))
            for j in range(len(part)):
                part[j] = narrow[j]
        else:
            wide = carray(_pointer_32(address), (count,))
            for j in range(len(part)):
                part[j] = wide[j]
        done += count
        position += count


@njit
def _gather(
    table: np.ndarray, width: int, first_B: np.ndarray, x_BT: np.ndarray, y_BT: np.ndarray, slot_B: np.ndarray
) -> None:
    B, S, nbytes = len(first_B), len(table) // 2, (x_BT.shape[1] + 1) * width
    s = _last(table[S:], first_B[0]) if B else 0
    for k in range(B):
        following = s
        if k + 1 < B:  # its first access would wait for memory: rows lie anywhere
            following = _last(table[S:], first_B[k + 1])
            address = table[following] + (first_B[k + 1] - table[S + following]) * width
            for line in range(0, nbytes, 64):
                _prefetch(address + line)
        _copy(table, width, s, first_B[k], x_BT[slot_B[k]])
        _copy(table, width, s, first_B[k] + 1, y_BT[slot_B[k]])
        s = following


@njit
def _coarse(bounds: np.ndarray, shift: int, coarse: np.ndarray) -> None:
    """coarse[c] = the document of token c << shift; the last one behind the end."""
    d, last = 0, len(bounds) - 2
    for c in range(len(coarse)):
        while d < last and bounds[d + 1] <= c << shift:
            d += 1
        coarse[c] = d


@njit
def _gather_segments(
    table: np.ndarray, width: int, bounds: np.ndarray, shift: int, coarse: np.ndarray, first_B: np.ndarray,
    x_BT: np.ndarray, y_BT: np.ndarray, slot_B: np.ndarray, cut: int, crossing: bool, ignore_index: int, scratch: np.ndarray,
) -> tuple[int, int, int]:  # fmt: skip
    """Number of segments, tokens without a target, longest segment; -1 segments where scratch has no room for them.

    scratch: three parts of equal length: cu_seqlens; documents; places in the flattened batch without a target.
    """
    _gather(table, width, first_B, x_BT, y_BT, slot_B)
    B, T, third = len(first_B), x_BT.shape[1], len(scratch) // 3
    document_B = np.empty(B, np.int64)  # that of the first token of a row
    for k in range(B):
        follows = k > 0 and first_B[k] == first_B[k - 1] + T
        if follows:
            document_B[k] = -1
        else:
            place = first_B[k] >> shift
            low, high = np.int64(coarse[place]), np.int64(coarse[place + 1])
            document_B[k] = low + _last(bounds[low : high + 1], first_B[k])
    segments, missing, longest, d = 0, 0, 0, 0
    scratch[0] = 0
    for k in range(B):
        first, base, done = first_B[k], slot_B[k] * T, 0
        if document_B[k] >= 0:
            d = document_B[k]
        while done < T:
            if segments + 2 >= third:
                return -1, 0, 0
            behind = bounds[d + 1] - first
            end = min(behind, T, done - done % cut + cut)
            if end == behind and not crossing:
                scratch[2 * third + missing] = base + end - 1
                missing += 1
                y_BT[slot_B[k], end - 1] = ignore_index
            longest = max(longest, end - done)
            done = end
            scratch[third + segments] = d
            segments += 1
            scratch[segments] = base + done
            if end == behind:
                d += 1
    return segments, missing, longest


@njit
def _packed(
    table: np.ndarray, width: int, bounds: np.ndarray, row_R: np.ndarray, document_P: np.ndarray, offset_P: np.ndarray,
    row_B: np.ndarray, x_BT: np.ndarray, y_BT: np.ndarray, slot_B: np.ndarray, padding: int, cut: int,
    crossing: bool, ignore_index: int, scratch: np.ndarray,
) -> tuple[int, int, int]:  # fmt: skip
    T = x_BT.shape[1]
    segments, missing, longest, third, S = 0, 0, 0, len(scratch) // 3, len(table) // 2
    scratch[0] = 0
    for k in range(len(row_B)):
        slot = slot_B[k]
        x, y, base, done = x_BT[slot], y_BT[slot], slot * T, 0
        last = row_R[row_B[k] + 1]
        for p in range(row_R[row_B[k]], last + 1):
            if p < last:
                d = np.int64(document_P[p])
                first, behind = bounds[d] + np.int64(offset_P[p]), bounds[d + 1]
                count, s = min(behind - first, T - done), _last(table[S:], first)
                _copy(table, width, s, first, x[done : done + count])
                _copy(table, width, s, first + 1, y[done : done + count])
                if first + count == behind:  # the document ends here: its next token in the stream is another one's
                    place = done + count - 1
                    if crossing and p + 1 < last and offset_P[p + 1] == 0:
                        other = bounds[np.int64(document_P[p + 1])]
                        _copy(table, width, _last(table[S:], other), other, y[place : place + 1])
                    else:
                        y[place] = ignore_index
                        scratch[2 * third + missing] = base + place
                        missing += 1
            else:
                d, count = np.int64(-1), T - done
                for j in range(done, T):
                    x[j] = padding
                    y[j] = ignore_index
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
