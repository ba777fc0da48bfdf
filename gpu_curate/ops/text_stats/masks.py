"""Bit masks of 64 bytes of text, bit b for byte b: which of them satisfy a test.

Portable LLVM vector code, like `ops.simd`; no bounds are checked: a mask reads array[i : i + 64 + reach].
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, reduce
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


def _all(byte: int) -> ir.Constant:
    return ir.Constant(_V64, [byte & 0xFF] * BLOCK)


def _equal(b: ir.IRBuilder, v: ir.Value, byte: str) -> ir.Value:
    return b.icmp_unsigned("==", v, _all(ord(byte)))


def _within(b: ir.IRBuilder, v: ir.Value, first: int, last: int) -> ir.Value:
    return b.icmp_unsigned("<", b.sub(v, _all(first)), _all(last - first + 1))


def _any(b: ir.IRBuilder, tests: list[ir.Value]) -> ir.Value:
    result = tests[0]
    for test in tests[1:]:
        result = b.or_(result, test)
    return result


def _lower(b: ir.IRBuilder, v: ir.Value) -> ir.Value:
    return b.or_(v, _all(0x20))  # right for letters; what else it makes equal is sorted out by who reads the text


def _candidates(b: ir.IRBuilder, v: ir.Value, v1: ir.Value, v2: ir.Value) -> ir.Value:
    """Bytes where a part of a phrase starts that is rare in prose: each phrase of `cpu.PHRASES` holds one."""
    v = [_lower(b, x) for x in (v, v1, v2)]
    return _any(b, [reduce(b.and_, map(partial(_equal, b), v, part)) for part in ("jav", "psu", "vac", "f u", "kie")])


def _mask(test: Callable[..., ir.Value], reach: int = 0) -> Mask:
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


@intrinsic(returns=int)
def clz64(typing_context: Any, x: types.Type) -> Lowered:
    """Number of leading zero bits of a uint64; 64 of 0."""

    def codegen(context: Context, builder: ir.IRBuilder, signature: Signature, args: list[ir.Value]) -> ir.Value:
        return builder.ctlz(args[0], ir.IntType(1)(0))

    return types.uint64(types.uint64), codegen


high64 = _mask(lambda b, v: b.icmp_signed("<", v, _all(0)))  # 0x80 up
continuation64 = _mask(lambda b, v: b.icmp_signed("<", v, _all(-64)))  # 0x80..0xBF
space64 = _mask(lambda b, v: b.or_(_within(b, v, 0x09, 0x0D), _within(b, v, 0x1C, 0x20)))
letter64 = _mask(lambda b, v: _within(b, _lower(b, v), ord("a"), ord("z")))
digit64 = _mask(lambda b, v: _within(b, v, ord("0"), ord("9")))
newline64 = _mask(lambda b, v: _equal(b, v, "\n"))
terminal64 = _mask(lambda b, v: _any(b, [_equal(b, v, c) for c in ".?!"]))
hash64 = _mask(lambda b, v: _equal(b, v, "#"))
brace64 = _mask(lambda b, v: _equal(b, v, "{"))
ellipsis64 = _mask(lambda b, *v: b.and_(_equal(b, v[0], "."), b.and_(_equal(b, v[1], "."), _equal(b, v[2], "."))), 2)
candidate64 = _mask(_candidates, 2)
