"""CPU twin of `content_hash`, in Numba: the xxhash library takes 0.3 us to be called from Python, once a document.

# N documents
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numpy.typing import NDArray

from gpu_curate.document import TextColumn
from gpu_curate.jit import U64, Context, Lowered, Signature, intrinsic, njit
from gpu_curate.ops.simd import as_input, borrowed, load_u64, pointer

Bytes: TypeAlias = NDArray[np.uint8]
Ints: TypeAlias = NDArray[np.int64]
Words: TypeAlias = NDArray[np.uint64]
Pair: TypeAlias = tuple[int, int]  # low, high

PRIME32_1, PRIME32_2, PRIME32_3 = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D
PRIME64_1, PRIME64_2, PRIME64_3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
PRIME64_4, PRIME64_5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5
PRIME_MX1, PRIME_MX2 = 0x165667919E3779F9, 0x9FB21C651E98DF25
START = (PRIME32_3, PRIME64_1, PRIME64_2, PRIME64_3, PRIME64_4, PRIME32_2, PRIME64_5, PRIME32_1)  # of the accumulators
SECRET = bytes.fromhex(  # the specification's 192 bytes
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671fcb79e64eccc0e578825ad07dccff7221b8084674f743248e"
    "e03590e6813a264c3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8a8fa763fe39c343ff9dcbbc7c70b4f1d"
    "8a51e04bcdb45931c89f7ec9d9787364eac5ac8334d3ebc3c581a0fffa1363eb170ddd51b7f0da49d316552629d4689e2b16be587d47a1fc"
    "8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
)
_I64, _I128 = ir.IntType(64), ir.IntType(128)
_V8 = ir.VectorType(_I64, 8)


def content_hash(text: TextColumn) -> np.ndarray:
    """See `gpu_curate.ops.content_hash.content_hash`."""
    hash_N2 = np.empty((len(text), 2), np.uint64)
    _hash_all(as_input(text.chars), as_input(text.offsets), as_input(np.frombuffer(SECRET, np.uint8)), hash_N2)
    return hash_N2


@njit
def _hash_all(chars: Bytes, offsets: Ints, secret: Bytes, hash_N2: Words) -> None:
    chars, secret = borrowed(chars), borrowed(secret)
    start_8 = np.array(START, np.uint64)
    acc_8 = np.empty(8, np.uint64)
    acc = borrowed(acc_8)
    for d in range(hash_N2.shape[0]):
        at, n = offsets[d], offsets[d + 1] - offsets[d]
        if n > 240:
            for k in range(8):
                acc_8[k] = start_8[k]
            low, high = _hash_long(chars, at, n, secret, acc)
        elif n > 16:
            low, high = _hash_17_to_240(chars, at, n, secret)
        elif n > 8:
            low, high = _hash_9_to_16(chars, at, n, secret)
        elif n > 3:
            low, high = _hash_4_to_8(chars, at, n, secret)
        elif n > 0:
            low, high = _hash_1_to_3(chars, at, n, secret)
        else:
            low = _avalanche64(load_u64(secret, 64) ^ load_u64(secret, 72))
            high = _avalanche64(load_u64(secret, 80) ^ load_u64(secret, 88))
        hash_N2[d, 0], hash_N2[d, 1] = high, low


# ------------------------------------------------------------------------------------------------------------- the pieces


@intrinsic(returns=int)
def _high_product(typing_context: Any, a: types.Type, b: types.Type) -> Lowered:
    """The upper 64 bits of a product of two uint64."""

    def codegen(context: Context, builder: ir.IRBuilder, signature: Signature, args: list[ir.Value]) -> ir.Value:
        product = builder.mul(builder.zext(args[0], _I128), builder.zext(args[1], _I128))
        return builder.trunc(builder.lshr(product, _I128(64)), _I64)

    return types.uint64(types.uint64, types.uint64), codegen


@njit(inline="always")
def _fold_product(a: int, b: int) -> int:
    return a * b ^ _high_product(a, b)


@njit(inline="always")
def _avalanche(h: int) -> int:
    h ^= h >> U64(37)
    h *= U64(PRIME_MX1)
    return h ^ (h >> U64(32))


@njit(inline="always")
def _avalanche64(h: int) -> int:
    """XXH64's."""
    h ^= h >> U64(33)
    h *= U64(PRIME64_2)
    h ^= h >> U64(29)
    h *= U64(PRIME64_3)
    return h ^ (h >> U64(32))


@njit(inline="always")
def _load_u32(chars: Bytes, at: int) -> int:
    word = U64(chars[at]) | U64(chars[at + 1]) << U64(8) | U64(chars[at + 2]) << U64(16)
    return word | U64(chars[at + 3]) << U64(24)


@njit(inline="always")
def _swap_u32(x: int) -> int:
    """The lower four bytes the other way round."""
    low = (x & U64(0xFF)) << U64(24) | (x & U64(0xFF00)) << U64(8)
    return low | (x >> U64(8) & U64(0xFF00)) | (x >> U64(24) & U64(0xFF))


@njit
def _hash_1_to_3(chars: Bytes, at: int, n: int, secret: Bytes) -> Pair:
    first, middle, last = U64(chars[at]), U64(chars[at + (n >> 1)]), U64(chars[at + n - 1])
    low = first << U64(16) | middle << U64(24) | last | U64(n) << U64(8)
    swapped = _swap_u32(low)
    high = (swapped << U64(13) | swapped >> U64(19)) & U64(0xFFFFFFFF)
    low ^= _load_u32(secret, 0) ^ _load_u32(secret, 4)
    high ^= _load_u32(secret, 8) ^ _load_u32(secret, 12)
    return _avalanche64(low), _avalanche64(high)


@njit
def _hash_4_to_8(chars: Bytes, at: int, n: int, secret: Bytes) -> Pair:
    keyed = _load_u32(chars, at) | _load_u32(chars, at + n - 4) << U64(32)
    keyed ^= load_u64(secret, 16) ^ load_u64(secret, 24)
    factor = U64(PRIME64_1) + (U64(n) << U64(2))
    low = keyed * factor
    high = _high_product(keyed, factor) + (low << U64(1))
    low ^= high >> U64(3)
    low ^= low >> U64(35)
    low *= U64(PRIME_MX2)
    low ^= low >> U64(28)
    return low, _avalanche(high)


@njit
def _hash_9_to_16(chars: Bytes, at: int, n: int, secret: Bytes) -> Pair:
    a, b = load_u64(chars, at), load_u64(chars, at + n - 8)
    keyed = a ^ b ^ load_u64(secret, 32) ^ load_u64(secret, 40)
    low = keyed * U64(PRIME64_1) + (U64(n - 1) << U64(54))
    high = _high_product(keyed, U64(PRIME64_1))
    b ^= load_u64(secret, 48) ^ load_u64(secret, 56)
    high += b + (b & U64(0xFFFFFFFF)) * U64(PRIME32_2 - 1)
    low ^= _swap_u32(high) << U64(32) | _swap_u32(high >> U64(32))
    top = _high_product(low, U64(PRIME64_2)) + high * U64(PRIME64_2)
    return _avalanche(low * U64(PRIME64_2)), _avalanche(top)


@njit(inline="always")
def _mix32(low: int, high: int, chars: Bytes, a: int, b: int, secret: Bytes, s: int) -> Pair:
    """32 bytes more, 16 at a and 16 at b."""
    a0, a1, b0, b1 = load_u64(chars, a), load_u64(chars, a + 8), load_u64(chars, b), load_u64(chars, b + 8)
    low += _fold_product(a0 ^ load_u64(secret, s), a1 ^ load_u64(secret, s + 8))
    high += _fold_product(b0 ^ load_u64(secret, s + 16), b1 ^ load_u64(secret, s + 24))
    return low ^ (b0 + b1), high ^ (a0 + a1)


@njit
def _hash_17_to_240(chars: Bytes, at: int, n: int, secret: Bytes) -> Pair:
    low, high = U64(n) * U64(PRIME64_1), U64(0)
    if n <= 128:
        for k in range((n - 1) // 32, -1, -1):
            low, high = _mix32(low, high, chars, at + 16 * k, at + n - 16 * (k + 1), secret, 32 * k)
    else:
        for k in range(4):
            low, high = _mix32(low, high, chars, at + 32 * k, at + 32 * k + 16, secret, 32 * k)
        low, high = _avalanche(low), _avalanche(high)
        for k in range(4, n // 32):
            low, high = _mix32(low, high, chars, at + 32 * k, at + 32 * k + 16, secret, 3 + 32 * (k - 4))
        low, high = _mix32(low, high, chars, at + n - 16, at + n - 32, secret, 136 - 17 - 16)
    top = low * U64(PRIME64_1) + high * U64(PRIME64_4) + U64(n) * U64(PRIME64_2)
    return _avalanche(low + high), U64(0) - _avalanche(top)


@intrinsic(returns=type(None))
def _add_stripes(
    typing_context: Any, acc: types.Array, chars: types.Array, at: Any, secret: types.Array, s: Any, count: Any
) -> Lowered:
    """Add `count` stripes of 64 bytes from chars[at] on, each with 8 bytes more of the secret from secret[s] on, to 8 sums."""

    def codegen(context: Context, builder: ir.IRBuilder, signature: Signature, args: list[ir.Value]) -> ir.Value:
        kinds = signature.args
        place = pointer(context, builder, kinds[0], args[0], _I64(0), _V8)
        slot = cgutils.alloca_once(builder, _V8)  # LLVM makes a register of it
        builder.store(builder.load(place, align=8), slot)
        neighbours = ir.Constant(ir.VectorType(ir.IntType(32), 8), [1, 0, 3, 2, 5, 4, 7, 6])
        half = ir.Constant(_V8, [32] * 8)
        with cgutils.for_range(builder, args[5], intp=_I64) as loop:
            source = builder.add(args[2], builder.mul(loop.index, _I64(64)))
            key = builder.add(args[4], builder.mul(loop.index, _I64(8)))
            value = builder.load(pointer(context, builder, kinds[1], args[1], source, _V8), align=1)
            keyed = builder.xor(value, builder.load(pointer(context, builder, kinds[3], args[3], key, _V8), align=1))
            low = builder.and_(keyed, ir.Constant(_V8, [0xFFFFFFFF] * 8))
            product = builder.mul(low, builder.lshr(keyed, half))
            swapped = builder.shuffle_vector(value, ir.Constant(_V8, ir.Undefined), neighbours)
            builder.store(builder.add(builder.load(slot), builder.add(product, swapped)), slot)
        builder.store(builder.load(slot), place, align=8)
        return context.get_dummy_value()

    return types.none(acc, chars, types.int64, secret, types.int64, types.int64), codegen


@njit(inline="always")
def _merge(acc: Words, secret: Bytes, s: int, start: int) -> int:
    total = start
    for k in range(4):
        even = acc[2 * k] ^ load_u64(secret, s + 16 * k)
        total += _fold_product(even, acc[2 * k + 1] ^ load_u64(secret, s + 16 * k + 8))
    return _avalanche(total)


@njit
def _hash_long(chars: Bytes, at: int, n: int, secret: Bytes, acc: Words) -> Pair:
    """Blocks of 16 stripes, the sums scrambled behind each; the last stripe ends with the text."""
    n_blocks = (n - 1) // 1024
    for b in range(n_blocks):
        _add_stripes(acc, chars, at + 1024 * b, secret, 0, 16)
        for k in range(8):
            acc[k] = (acc[k] ^ acc[k] >> U64(47) ^ load_u64(secret, 128 + 8 * k)) * U64(PRIME32_1)
    _add_stripes(acc, chars, at + 1024 * n_blocks, secret, 0, (n - 1 - 1024 * n_blocks) // 64)
    _add_stripes(acc, chars, at + n - 64, secret, 192 - 64 - 7, 1)
    low = _merge(acc, secret, 11, U64(n) * U64(PRIME64_1))
    return low, _merge(acc, secret, 192 - 64 - 11, ~(U64(n) * U64(PRIME64_2)))
