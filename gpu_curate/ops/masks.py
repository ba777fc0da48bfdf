"""Bit masks of 64 bytes of text, bit b for byte b, out of tests over vectors of bytes: what the ops' own masks are made of.

Portable LLVM vector code, like `ops.simd`; no bounds are checked: a mask reads array[i : i + 64 + reach].
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from llvmlite import ir
from numba import types
from numpy.typing import NDArray

from gpu_curate.jit import Context, Lowered, Signature, intrinsic
from gpu_curate.ops.simd import BLOCK, pointer

_I64 = ir.IntType(64)
_V64 = ir.VectorType(ir.IntType(8), BLOCK)
Mask: TypeAlias = Callable[[NDArray[np.uint8], int], int]


def filled(byte: int) -> ir.Constant:
    """64 times the byte."""
    return ir.Constant(_V64, [byte & 0xFF] * BLOCK)


def equal(b: ir.IRBuilder, v: ir.Value, byte: int) -> ir.Value:
    """Which of 64 bytes are this one."""
    return b.icmp_unsigned("==", v, filled(byte))


def within(b: ir.IRBuilder, v: ir.Value, first: int, last: int) -> ir.Value:
    """Which of 64 bytes are first..last."""
    return b.icmp_unsigned("<", b.sub(v, filled(first)), filled(last - first + 1))


def any_of(b: ir.IRBuilder, tests: list[ir.Value]) -> ir.Value:
    """Where one of the tests holds."""
    result = tests[0]
    for test in tests[1:]:
        result = b.or_(result, test)
    return result


def mask_of(test: Callable[..., ir.Value], reach: int = 0) -> Mask:
    """The mask function of a test over the bytes and, with `reach`, the 1..reach bytes after each."""

    @intrinsic(returns=int)
    def mask(typing_context: Any, array: types.Array, i: types.Type) -> Lowered:
        def codegen(context: Context, builder: ir.IRBuilder, signature: Signature, args: list[ir.Value]) -> ir.Value:
            vectors = []
            for offset in range(reach + 1):
                at = builder.add(args[1], _I64(offset))
                address = pointer(context, builder, signature.args[0], args[0], at, _V64)
                vectors.append(builder.load(address, align=1))
            return builder.bitcast(test(builder, *vectors), _I64)

        return types.uint64(array, types.int64), codegen

    return mask


@intrinsic(returns=type(None))
def copy64(typing_context: Any, source: types.Array, i: types.Type, target: types.Array, j: types.Type) -> Lowered:
    """target[j : j + 64] = source[i : i + 64], at any alignment."""

    def codegen(context: Context, builder: ir.IRBuilder, signature: Signature, args: list[ir.Value]) -> ir.Value:
        v = builder.load(pointer(context, builder, signature.args[0], args[0], args[1], _V64), align=1)
        builder.store(v, pointer(context, builder, signature.args[2], args[2], args[3], _V64), align=1)
        return context.get_dummy_value()

    return types.none(source, types.int64, target, types.int64), codegen


high64 = mask_of(lambda b, v: b.icmp_signed("<", v, filled(0)))  # 0x80 up
