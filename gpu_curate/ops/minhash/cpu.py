"""CPU twin of `minhash`: words stream in from `words.cpu.chunk_words`, a chunk's shingles go straight into the minima.

The row kernels are LLVM vector code: a loop over shingles with all rows of a block in registers. The automatic
vectoriser takes half-width vectors for the same loop and is 1.8 times slower (AVX-512). The shingle itself is computed in
that loop, on the scalar units that the vectors leave idle.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numpy.typing import NDArray

from gpu_curate.document import TextColumn
from gpu_curate.jit import I64, U32, U64, Context, Lowered, Signature, intrinsic, njit
from gpu_curate.ops.minhash import EMPTY_ROW, MAX_SHINGLE_WORDS, MinHashSpec
from gpu_curate.ops.mix import FMIX_1, FMIX_2, GOLDEN
from gpu_curate.ops.simd import as_input, fmix64, pointer
from gpu_curate.ops.words.cpu import CHUNK_WORDS, Work, chunk_words, scratch, word_hashes

K = U64(GOLDEN)
_I32, _I64 = ir.IntType(32), ir.IntType(64)
BLOCK_ROWS = 112  # affine: 7 vectors of minima and 7 of multipliers, 14 of AVX-512's 32 registers
TAIL_ROWS = 16
BLOCK_ROWS_FMIX = 56  # fmix64: the same 14 registers, half as many rows each
TAIL_ROWS_FMIX = 8
# hash_W, count, width, the three numbers of `polynomial`, parameters of the rows, row of minima, first row
RowKernel: TypeAlias = Callable[
    [
        NDArray[np.uint64],
        int,
        int,
        int,
        int,
        int,
        NDArray[np.unsignedinteger[Any]],
        NDArray[np.uint32],
        int,
    ],
    None,
]


@njit
def polynomial(hash_W: NDArray[np.uint64], first: int, width: int) -> tuple[int, int, int]:
    """h of hash_W[first : first + width] without its start, the power that leaves a window, and what the start adds."""
    top = U64(1)
    h = U64(0)
    for t in range(width):
        top *= K
        h = h * K + hash_W[first + t]
    return h, top, U64(width) * top


@njit
def roll(hash_W: NDArray[np.uint64], first: int, count: int, width: int, out: NDArray[np.uint64]) -> None:
    """out[j] = shingle of hash_W[first + j : first + j + width], j = 0..count - 1 (at least 1).

    The polynomial rolls: two multiplications a shingle whatever the width.
    """
    h, top, start = polynomial(hash_W, first, width)
    out[0] = fmix64(h + start)
    for j in range(count - 1):
        h = h * K + (hash_W[first + j + width] - hash_W[first + j] * top)
        out[j + 1] = fmix64(h + start)


def _row_kernel(family: str, rows: int) -> RowKernel:
    """Intrinsic that rolls `count` shingles over hash_W and folds them into the minima row[r : r + rows].

    h, top and start are those of `polynomial(hash_W, 0, width)`. It loads one word hash beyond the last shingle, for nothing.
    One function: the code that is written and the vectors that it is written for.
    """
    wide = family == "fmix64"  # minima of 64 bits: the top half of the minimum is the minimum of the top halves
    lane = _I64 if wide else _I32
    lanes = 8 if wide else 16
    vector, vector_32 = ir.VectorType(lane, lanes), ir.VectorType(_I32, lanes)

    def constant(value: int) -> ir.Constant:
        return ir.Constant(vector, [value] * lanes)

    def broadcast(builder: ir.IRBuilder, value: ir.Value) -> ir.Value:
        one = builder.insert_element(ir.Constant(vector, ir.Undefined), value, _I32(0))
        return builder.shuffle_vector(one, ir.Constant(vector, ir.Undefined), ir.Constant(vector_32, [0] * lanes))

    def xorshift(builder: ir.IRBuilder, value: ir.Value, shift: ir.Value) -> ir.Value:
        return builder.xor(value, builder.lshr(value, shift))

    @intrinsic(returns=type(None))
    def kernel(
        typing_context: Any,
        hash_W: types.Array,
        count: types.Type,
        width: types.Type,
        h: types.Type,
        top: types.Type,
        start: types.Type,
        parameters: types.Array,
        row: types.Array,
        r: types.Type,
    ) -> Lowered:
        def codegen(context: Context, builder: ir.IRBuilder, signature: Signature, args: list[ir.Value]) -> ir.Value:
            hash_W, count, width, h, top, start = args[:6]
            word = pointer(context, builder, signature.args[0], hash_W, _I64(0), _I64)

            def at(k: int, group: int, kind: ir.Type) -> ir.Value:
                index = builder.add(args[8], _I64(group * lanes))
                return pointer(context, builder, signature.args[k], args[k], index, kind)

            parameter, minimum = [], []
            for group in range(rows // lanes):
                p = builder.load(at(6, group, vector), align=4)
                parameter.append(xorshift(builder, p, constant(33)) if wide else p)
                old = builder.load(at(7, group, vector_32), align=4)
                if wide:
                    old = builder.shl(builder.zext(old, vector), constant(32))
                slot = cgutils.alloca_once(builder, vector)  # LLVM makes a register of it
                builder.store(old, slot)
                minimum.append(slot)
            rolling = cgutils.alloca_once(builder, _I64)
            builder.store(h, rolling)
            with cgutils.for_range(builder, count, intp=_I64) as loop:
                h = builder.load(rolling)
                x = xorshift(builder, builder.add(h, start), _I64(33))
                x = xorshift(builder, builder.mul(x, _I64(FMIX_1)), _I64(33))
                x = xorshift(builder, builder.mul(x, _I64(FMIX_2)), _I64(33))
                enters = builder.load(builder.gep(word, [builder.add(loop.index, width)]))
                leaves = builder.mul(builder.load(builder.gep(word, [loop.index])), top)
                builder.store(builder.add(builder.mul(h, _I64(GOLDEN)), builder.sub(enters, leaves)), rolling)
                if wide:  # fmix64's first xorshift is linear: one of x and one of the seed
                    low = broadcast(builder, xorshift(builder, x, _I64(33)))
                else:
                    low = broadcast(builder, builder.trunc(x, _I32))
                    high = broadcast(builder, builder.trunc(builder.lshr(x, _I64(32)), _I32))
                for p, slot in zip(parameter, minimum, strict=True):
                    if wide:
                        value = xorshift(builder, builder.mul(builder.xor(low, p), constant(FMIX_1)), constant(33))
                        value = builder.mul(value, constant(FMIX_2))
                    else:
                        value = builder.add(builder.mul(low, p), high)
                    old = builder.load(slot)
                    builder.store(builder.select(builder.icmp_unsigned("<", value, old), value, old), slot)
            for group, slot in enumerate(minimum):
                value = builder.load(slot)
                if wide:
                    value = builder.trunc(builder.lshr(value, constant(32)), vector_32)
                builder.store(value, at(7, group, vector_32), align=4)
            return context.get_dummy_value()

        u64, i64 = types.uint64, types.int64
        return types.void(hash_W, i64, i64, u64, u64, u64, parameters, row, i64), codegen

    return kernel


_affine_block, _affine_tail = _row_kernel("affine", BLOCK_ROWS), _row_kernel("affine", TAIL_ROWS)
_fmix_block, _fmix_tail = _row_kernel("fmix64", BLOCK_ROWS_FMIX), _row_kernel("fmix64", TAIL_ROWS_FMIX)


@njit
def update(
    hash_W: NDArray[np.uint64],
    count: int,
    width: int,
    multiplier_H: NDArray[np.uint32],
    seed_H: NDArray[np.uint64],
    row: NDArray[np.uint32],
) -> None:
    """Fold `count` shingles of hash_W[0:] into the minima; one of multiplier_H (affine) and seed_H (fmix64) is empty."""
    h, top, start = polynomial(hash_W, 0, width)
    r = I64(0)
    while r + BLOCK_ROWS <= multiplier_H.size:
        _affine_block(hash_W, count, width, h, top, start, multiplier_H, row, r)
        r += BLOCK_ROWS
    while r < multiplier_H.size:
        _affine_tail(hash_W, count, width, h, top, start, multiplier_H, row, r)
        r += TAIL_ROWS
    while r + BLOCK_ROWS_FMIX <= seed_H.size:
        _fmix_block(hash_W, count, width, h, top, start, seed_H, row, r)
        r += BLOCK_ROWS_FMIX
    while r < seed_H.size:
        _fmix_tail(hash_W, count, width, h, top, start, seed_H, row, r)
        r += TAIL_ROWS_FMIX


@njit
def sign_documents(
    chars: NDArray[np.uint8],
    offsets: NDArray[np.int64],
    work: Work,
    width: int,
    multiplier_H: NDArray[np.uint32],
    seed_H: NDArray[np.uint64],
    sig_NH: NDArray[np.uint32],
    n_shingles_N: NDArray[np.int64],
) -> None:
    hash_W = np.empty(
        MAX_SHINGLE_WORDS + CHUNK_WORDS, np.uint64
    )  # width - 1 words of the chunk before; one is read beyond
    unweighted = np.empty(0, np.uint8)
    row = np.empty(multiplier_H.size + seed_H.size, np.uint32)  # H rounded up to whole vectors
    for d in range(offsets.size - 1):
        row[:] = U32(EMPTY_ROW)
        total = I64(0)
        words = I64(0)
        i, end, cut, h = offsets[d], offsets[d + 1], I64(0), U64(0)
        while i < end:
            i, count, cut, h = chunk_words(chars, i, end, cut, h, work, hash_W, unweighted, words)
            words += count
            if words >= width:
                count = words - width + 1
                update(hash_W, count, width, multiplier_H, seed_H, row)
                total += count
                words = width - 1
                for t in range(words):
                    hash_W[t] = hash_W[count + t]
        if total == 0 and words > 0:
            update(hash_W, I64(1), words, multiplier_H, seed_H, row)
            total = I64(1)
        n_shingles_N[d] = total
        for r in range(sig_NH.shape[1]):
            sig_NH[d, r] = row[r]


def parameters_of(spec: MinHashSpec) -> tuple[NDArray[np.uint32], NDArray[np.uint64]]:
    """multiplier_H and seed_H of `update`, H rounded up to whole vectors; one is empty."""
    parameters = np.zeros(-(-spec.num_hashes // TAIL_ROWS) * TAIL_ROWS, np.uint64)
    parameters[: spec.num_hashes] = spec.parameters()
    if spec.family == "affine":
        return parameters.astype(np.uint32), parameters[:0]
    return np.zeros(0, np.uint32), parameters


def signatures(text: TextColumn, spec: MinHashSpec) -> tuple[np.ndarray, np.ndarray]:
    """See `gpu_curate.ops.minhash.signatures`."""
    multiplier_H, seed_H = parameters_of(spec)
    sig_NH = np.empty((len(text), spec.num_hashes), np.uint32)
    n_shingles_N = np.empty(len(text), np.int64)
    sign_documents(
        as_input(text.chars),
        as_input(text.offsets),
        scratch(),
        spec.shingle_words,
        multiplier_H,
        seed_H,
        sig_NH,
        n_shingles_N,
    )
    return sig_NH, n_shingles_N


@njit
def shingle_documents(
    hash_W: NDArray[np.uint64],
    word_offsets: NDArray[np.int64],
    width: int,
    hash_S: NDArray[np.uint64],
    offsets: NDArray[np.int64],
) -> None:
    for d in range(offsets.size - 1):
        count = offsets[d + 1] - offsets[d]
        if count > 0:
            first = word_offsets[d]
            roll(hash_W, first, count, min(width, word_offsets[d + 1] - first), hash_S[offsets[d] :])


def shingles(text: TextColumn, spec: MinHashSpec) -> tuple[np.ndarray, np.ndarray]:
    """See `gpu_curate.ops.minhash.shingles`."""
    hash_W, word_offsets = word_hashes(text)
    words_N = np.diff(word_offsets)
    offsets = np.zeros(len(text) + 1, np.int64)
    np.cumsum(np.where(words_N > 0, np.maximum(words_N - spec.shingle_words + 1, 1), 0), out=offsets[1:])
    hash_S = np.empty(int(offsets[-1]), np.uint64)
    shingle_documents(hash_W, word_offsets, spec.shingle_words, hash_S, offsets)
    return hash_S, offsets


@njit
def _count_equal_rows(sig_NH: NDArray[np.uint32], pairs_P2: NDArray[np.int64], equal_P: NDArray[np.int64]) -> None:
    num_rows = sig_NH.shape[1]
    for p in range(len(pairs_P2)):
        a, b = sig_NH[pairs_P2[p, 0]], sig_NH[pairs_P2[p, 1]]
        equal = 0
        empty = 0
        for r in range(num_rows):
            equal += a[r] == b[r]
            empty += (a[r] & b[r]) == U32(EMPTY_ROW)
        equal_P[p] = 0 if empty == num_rows else equal


def jaccard(sig_NH: np.ndarray, pairs_P2: np.ndarray) -> NDArray[np.float64]:
    """See `gpu_curate.ops.minhash.jaccard`."""
    equal_P = np.empty(len(pairs_P2), np.int64)
    _count_equal_rows(as_input(sig_NH), as_input(pairs_P2), equal_P)
    share_P: NDArray[np.float64] = equal_P / sig_NH.shape[1]
    return share_P


@njit
def _compare_sets(
    hash_S: NDArray[np.uint64],
    offsets: NDArray[np.int64],
    pairs_P2: NDArray[np.int64],
    table: NDArray[np.uint64],
    state: NDArray[np.uint8],
    common_P: NDArray[np.int64],
    union_P: NDArray[np.int64],
) -> None:
    """One open-addressing table a pair: state 0 free, 1 in a, 2 in b, 3 in both."""
    for p in range(len(pairs_P2)):
        a, b = pairs_P2[p, 0], pairs_P2[p, 1]
        size = I64(2)
        while size < 2 * (offsets[a + 1] - offsets[a] + offsets[b + 1] - offsets[b]):
            size *= 2
        state[:size] = 0
        union = 0
        common = 0
        for side in range(1, 3):
            document = a if side == 1 else b
            for j in range(offsets[document], offsets[document + 1]):
                slot = I64(hash_S[j]) & (size - 1)
                while state[slot] and table[slot] != hash_S[j]:
                    slot = (slot + 1) & (size - 1)
                if state[slot] == 0:
                    table[slot] = hash_S[j]
                    union += 1
                common += side == 2 and state[slot] == 1
                state[slot] |= side
        common_P[p] = common
        union_P[p] = union


def jaccard_exact(hash_S: np.ndarray, offsets: np.ndarray, pairs_P2: np.ndarray) -> np.ndarray:
    """See `gpu_curate.ops.minhash.jaccard_exact`."""
    if len(pairs_P2) == 0:
        return np.zeros(0, np.float64)
    longest = int((np.diff(offsets)[pairs_P2]).sum(axis=1).max())
    size = 1 << max(2 * longest - 1, 1).bit_length()
    common_P, union_P = np.empty(len(pairs_P2), np.int64), np.empty(len(pairs_P2), np.int64)
    table, state = np.empty(size, np.uint64), np.empty(size, np.uint8)
    _compare_sets(as_input(hash_S), as_input(offsets), as_input(pairs_P2), table, state, common_P, union_P)
    share_P: NDArray[np.float64] = common_P / np.maximum(union_P, 1)
    return share_P
