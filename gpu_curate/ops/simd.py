"""What the Numba twins share: the jit settings, the scalar mixer, and vector loads that plain Numba cannot express.

The intrinsics are portable LLVM vector code without a processor's own instructions: LLVM lowers a comparison of 64
bytes to AVX-512 masks, to AVX2 or SSE2 byte masks, or to NEON. They check no bounds: callers say why they stay inside.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils

from gpu_curate.jit import U64, Context, Lowered, Signature, intrinsic, njit
from gpu_curate.ops.mix import FMIX_1, FMIX_2

BLOCK = 64  # bytes per vector step
_I1, _I8, _I64 = ir.IntType(1), ir.IntType(8), ir.IntType(64)
_V64 = ir.VectorType(_I8, BLOCK)


def as_input(array: np.ndarray) -> np.ndarray:
    """C-contiguous, read-only view of an array: one Numba type whatever it was, so that a twin is compiled once."""
    array = np.ascontiguousarray(array).view()
    array.flags.writeable = False
    return array


@njit
def fmix64(x: int) -> int:
    """MurmurHash3's 64-bit finaliser of one uint64."""
    x ^= x >> U64(33)
    x *= U64(FMIX_1)
    x ^= x >> U64(33)
    x *= U64(FMIX_2)
    return x ^ (x >> U64(33))


def pointer(
    context: Context,
    builder: ir.IRBuilder,
    array_type: types.Array,
    array: ir.Value,
    index: ir.Value,
    element_type: ir.Type,
) -> ir.Value:
    """Address of array[index] as a pointer to `element_type` (code generation)."""
    data = context.make_array(array_type)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [index]), element_type.as_pointer())


@intrinsic(returns=np.ndarray)
def borrowed(typing_context: Any, array: types.Array) -> Lowered:
    """The array without a reference count: for the arguments of a twin's outermost function, which its caller keeps alive.

    Numba counts references where a function takes an array and has more than one way out, with two atomic instructions an
    array and call. In a function called once a character or word they cost ten times what it does (see LOG.md).
    """

    def codegen(context: Context, builder: ir.IRBuilder, signature: Signature, args: list[ir.Value]) -> ir.Value:
        source = context.make_array(signature.args[0])(context, builder, args[0])
        source.meminfo = cgutils.get_null_value(source.meminfo.type)
        source.parent = cgutils.get_null_value(source.parent.type)
        return source._getvalue()

    return types.Array(array.dtype, array.ndim, array.layout)(array), codegen


@intrinsic(returns=int)
def load_u64(typing_context: Any, array: types.Array, index: types.Type) -> Lowered:
    """The 8 bytes at array[index : index + 8] of a uint8 array, little-endian, at any alignment."""

    def codegen(context: Context, builder: ir.IRBuilder, signature: Signature, args: list[ir.Value]) -> ir.Value:
        return builder.load(pointer(context, builder, signature.args[0], args[0], args[1], _I64), align=1)

    return types.uint64(array, types.int64), codegen


@intrinsic(returns=int)
def ctz64(typing_context: Any, x: types.Type) -> Lowered:
    """Number of trailing zero bits of a uint64; 64 of 0."""

    def codegen(context: Context, builder: ir.IRBuilder, signature: Signature, args: list[ir.Value]) -> ir.Value:
        return builder.cttz(args[0], _I1(0))

    return types.uint64(types.uint64), codegen


@intrinsic(returns=int)
def popcount64(typing_context: Any, x: types.Type) -> Lowered:
    """Number of set bits of a uint64."""

    def codegen(context: Context, builder: ir.IRBuilder, signature: Signature, args: list[ir.Value]) -> ir.Value:
        return builder.ctpop(args[0])

    return types.uint64(types.uint64), codegen


def _splat(byte: int) -> ir.Constant:
    return ir.Constant(_V64, [byte] * BLOCK)


@intrinsic(returns=int)
def lower64(typing_context: Any, source: types.Array, i: types.Type, target: types.Array, j: types.Type) -> Lowered:
    """target[j : j + 64] = source[i : i + 64] with A-Z lowered; returns the bit mask of the bytes from 0x80 up."""

    def codegen(context: Context, builder: ir.IRBuilder, signature: Signature, args: list[ir.Value]) -> ir.Value:
        v = builder.load(pointer(context, builder, signature.args[0], args[0], args[1], _V64), align=1)
        upper = builder.icmp_unsigned("<", builder.sub(v, _splat(ord("A"))), _splat(26))
        lowered = builder.select(upper, builder.or_(v, _splat(0x20)), v)
        builder.store(lowered, pointer(context, builder, signature.args[2], args[2], args[3], _V64), align=1)
        return builder.bitcast(builder.icmp_signed("<", v, _splat(0)), _I64)

    return types.uint64(source, types.int64, target, types.int64), codegen


@intrinsic(returns=int)
def word_mask64(typing_context: Any, array: types.Array, i: types.Type) -> Lowered:
    """Bit mask of the bytes of array[i : i + 64] that are [0-9a-z_] or from 0x80 up."""

    def codegen(context: Context, builder: ir.IRBuilder, signature: Signature, args: list[ir.Value]) -> ir.Value:
        v = builder.load(pointer(context, builder, signature.args[0], args[0], args[1], _V64), align=1)
        word = builder.icmp_unsigned("<", builder.sub(v, _splat(ord("a"))), _splat(26))
        word = builder.or_(word, builder.icmp_unsigned("<", builder.sub(v, _splat(ord("0"))), _splat(10)))
        word = builder.or_(word, builder.icmp_unsigned("==", v, _splat(ord("_"))))
        word = builder.or_(word, builder.icmp_signed("<", v, _splat(0)))
        return builder.bitcast(word, _I64)

    return types.uint64(array, types.int64), codegen
