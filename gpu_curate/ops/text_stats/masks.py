"""Bit masks of 64 bytes of text, bit b for byte b: which of them satisfy a test.

Portable LLVM vector code, like `ops.simd`; no bounds are checked: a mask reads array[i : i + 64 + reach].
"""

from __future__ import annotations

from functools import partial, reduce
from typing import Any

from llvmlite import ir
from numba import types

from gpu_curate.jit import Context, Lowered, Signature, intrinsic
from gpu_curate.ops.masks import any_of, equal, filled, mask_of, within


def _lower(b: ir.IRBuilder, v: ir.Value) -> ir.Value:
    return b.or_(v, filled(0x20))  # right for letters; what else it makes equal is sorted out by who reads the text


def _candidates(b: ir.IRBuilder, v: ir.Value, v1: ir.Value, v2: ir.Value) -> ir.Value:
    """Bytes where a part of a phrase starts that is rare in prose: each phrase of `cpu.PHRASES` holds one."""
    v = [_lower(b, x) for x in (v, v1, v2)]
    return any_of(
        b, [reduce(b.and_, map(partial(equal, b), v, part)) for part in (b"jav", b"psu", b"vac", b"f u", b"kie")]
    )


@intrinsic(returns=int)
def clz64(typing_context: Any, x: types.Type) -> Lowered:
    """Number of leading zero bits of a uint64; 64 of 0."""

    def codegen(context: Context, builder: ir.IRBuilder, signature: Signature, args: list[ir.Value]) -> ir.Value:
        return builder.ctlz(args[0], ir.IntType(1)(0))

    return types.uint64(types.uint64), codegen


continuation64 = mask_of(lambda b, v: b.icmp_signed("<", v, filled(-64)))  # 0x80..0xBF
space64 = mask_of(lambda b, v: b.or_(within(b, v, 0x09, 0x0D), within(b, v, 0x1C, 0x20)))
letter64 = mask_of(lambda b, v: within(b, _lower(b, v), ord("a"), ord("z")))
digit64 = mask_of(lambda b, v: within(b, v, ord("0"), ord("9")))
newline64 = mask_of(lambda b, v: equal(b, v, ord("\n")))
terminal64 = mask_of(lambda b, v: any_of(b, [equal(b, v, c) for c in b".?!"]))
hash64 = mask_of(lambda b, v: equal(b, v, ord("#")))
brace64 = mask_of(lambda b, v: equal(b, v, ord("{")))
ellipsis64 = mask_of(lambda b, *v: reduce(b.and_, map(partial(equal, b), v, b"...")), 2)
candidate64 = mask_of(_candidates, 2)
