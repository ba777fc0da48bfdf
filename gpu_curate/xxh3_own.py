"""xxh3-64, seed 0, without the xxhash library: see `xxh3`. Of xxh3-128 the op `content_hash` has its own.

Inputs of up to 240 bytes have formulas of their own, by length; longer ones go through 8 accumulators, 64 bytes a stripe,
16 stripes a block.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gpu_curate.jit import njit

U64 = np.uint64
MASK32 = U64(0xFFFFFFFF)
PRIME32_1, PRIME32_2, PRIME32_3 = U64(0x9E3779B1), U64(0x85EBCA77), U64(0xC2B2AE3D)
PRIME64_1, PRIME64_2, PRIME64_3 = U64(0x9E3779B185EBCA87), U64(0xC2B2AE3D27D4EB4F), U64(0x165667B19E3779F9)
PRIME64_4, PRIME64_5 = U64(0x85EBCA77C2B2AE63), U64(0x27D4EB2F165667C5)
PRIME_MX1, PRIME_MX2 = U64(0x165667919E3779F9), U64(0x9FB21C651E98DF25)
STRIPE, BLOCK, SHORT = 64, 1024, 240
# The specification's 192 bytes.
SECRET = np.frombuffer(
    bytes.fromhex(
        "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671fcb79e64eccc0e578825ad07dccff7221b8084674f743248e"
        "e03590e6813a264c3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8a8fa763fe39c343ff9dcbbc7c70b4f1d"
        "8a51e04bcdb45931c89f7ec9d9787364eac5ac8334d3ebc3c581a0fffa1363eb170ddd51b7f0da49d316552629d4689e2b16be587d47a1fc"
        "8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
    ),
    np.uint8,
)
START = np.array([PRIME32_3, PRIME64_1, PRIME64_2, PRIME64_3, PRIME64_4, PRIME32_2, PRIME64_5, PRIME32_1], np.uint64)


@njit(inline="always")
def _read8(data: Any, at: Any) -> Any:
    value = U64(0)
    for k in range(8):
        value |= U64(data[at + k]) << U64(8 * k)
    return value


@njit(inline="always")
def _read4(data: Any, at: Any) -> Any:
    value = U64(0)
    for k in range(4):
        value |= U64(data[at + k]) << U64(8 * k)
    return value


@njit(inline="always")
def _high_product(a: Any, b: Any) -> Any:
    """The upper half of a product of 128 bits."""
    a0, a1, b0, b1 = a & MASK32, a >> U64(32), b & MASK32, b >> U64(32)
    middle = a1 * b0 + (a0 * b0 >> U64(32))
    other = a0 * b1 + (middle & MASK32)
    return a1 * b1 + (middle >> U64(32)) + (other >> U64(32))


@njit(inline="always")
def _fold_product(a: Any, b: Any) -> Any:
    return a * b ^ _high_product(a, b)


@njit(inline="always")
def _swap8(x: Any) -> Any:
    value = U64(0)
    for k in range(8):
        value |= (x >> U64(8 * k) & U64(0xFF)) << U64(56 - 8 * k)
    return value


@njit(inline="always")
def _rotated(x: Any, by: Any) -> Any:
    return x << U64(by) | x >> U64(64 - by)


@njit(inline="always")
def _avalanche(h: Any) -> Any:
    h ^= h >> U64(37)
    h *= PRIME_MX1
    return h ^ h >> U64(32)


@njit(inline="always")
def _avalanche64(h: Any) -> Any:
    """XXH64's."""
    h ^= h >> U64(33)
    h *= PRIME64_2
    h ^= h >> U64(29)
    h *= PRIME64_3
    return h ^ h >> U64(32)


@njit(inline="always")
def _mix16(data: Any, at: Any, secret: Any) -> Any:
    """16 bytes."""
    return _fold_product(_read8(data, at) ^ _read8(SECRET, secret), _read8(data, at + 8) ^ _read8(SECRET, secret + 8))


@njit
def _short64(data: Any, at: Any, n: Any) -> Any:
    """xxh3-64 of up to 240 bytes that begin at `at`."""
    if n == 0:
        return _avalanche64(_read8(SECRET, 56) ^ _read8(SECRET, 64))
    length = U64(n)
    if n < 4:
        combined = (
            U64(data[at]) << U64(16) | U64(data[at + (n >> 1)]) << U64(24) | U64(data[at + n - 1]) | length << U64(8)
        )
        return _avalanche64(combined ^ _read4(SECRET, 0) ^ _read4(SECRET, 4))
    if n < 9:
        h = (_read4(data, at + n - 4) + (_read4(data, at) << U64(32))) ^ _read8(SECRET, 8) ^ _read8(SECRET, 16)
        h ^= _rotated(h, 49) ^ _rotated(h, 24)
        h *= PRIME_MX2
        h ^= (h >> U64(35)) + length
        h *= PRIME_MX2
        return h ^ h >> U64(28)
    if n < 17:
        low = _read8(data, at) ^ _read8(SECRET, 24) ^ _read8(SECRET, 32)
        high = _read8(data, at + n - 8) ^ _read8(SECRET, 40) ^ _read8(SECRET, 48)
        return _avalanche(length + _swap8(low) + high + _fold_product(low, high))
    h = length * PRIME64_1
    if n <= 128:
        for k in range((n - 1) // 32, -1, -1):
            h += _mix16(data, at + 16 * k, 32 * k)
            h += _mix16(data, at + n - 16 * (k + 1), 32 * k + 16)
        return _avalanche(h)
    for k in range(8):
        h += _mix16(data, at + 16 * k, 16 * k)
    h = _avalanche(h)
    for k in range(8, n // 16):
        h += _mix16(data, at + 16 * k, 16 * (k - 8) + 3)
    return _avalanche(h + _mix16(data, at + n - 16, 136 - 17))


@njit
def _stripes(acc_8: Any, data: Any, at: Any, count: Any, secret: Any) -> Any:
    """Add `count` stripes that begin at `at`; the key of the first begins at `secret`, 8 bytes further for each."""
    for s in range(count):
        for i in range(8):
            value = _read8(data, at + STRIPE * s + 8 * i)
            key = value ^ _read8(SECRET, secret + 8 * s + 8 * i)
            acc_8[i ^ 1] += value
            acc_8[i] += (key & MASK32) * (key >> U64(32))


@njit
def _blocks(acc_8: Any, data: Any, at: Any, count: Any) -> Any:
    """Add `count` whole blocks."""
    for b in range(count):
        _stripes(acc_8, data, at + BLOCK * b, BLOCK // STRIPE, 0)
        for i in range(8):
            acc_8[i] = (acc_8[i] ^ acc_8[i] >> U64(47) ^ _read8(SECRET, 128 + 8 * i)) * PRIME32_1


@njit
def _merged(acc_8: Any, secret: Any, start: Any) -> Any:
    for k in range(4):
        start += _fold_product(
            acc_8[2 * k] ^ _read8(SECRET, secret + 16 * k), acc_8[2 * k + 1] ^ _read8(SECRET, secret + 16 * k + 8)
        )
    return _avalanche(start)


@njit
def _ended(acc_8: Any, data: Any, at: Any, left: Any, n: Any) -> Any:
    """xxh3-64 of an input of `n` bytes whose last `left` (1 to 1024), behind whole blocks, begin at `at`.

    The 64 bytes that the input ends in lie in `data`, be they of those blocks.
    """
    _stripes(acc_8, data, at, (left - 1) // STRIPE, 0)
    _stripes(acc_8, data, at + left - STRIPE, 1, 192 - STRIPE - 7)
    return _merged(acc_8, 11, U64(n) * PRIME64_1)


class Xxh3Of64:
    """What `xxhash.xxh3_64` is. Memory: a piece of the input, and a block."""

    def __init__(self, data: Any = b""):
        self._acc_8 = START.copy()
        self._size = 0
        self._tail = b""  # the end of the blocks that were added: the last stripe may begin in it
        self._left = b""  # behind them; not empty once there is anything
        self.update(data)

    def update(self, data: Any) -> None:
        self._size += memoryview(data).nbytes
        left = b"".join((self._left, data)) if self._left else bytes(data)
        blocks = max(len(left) - 1, 0) // BLOCK
        if blocks:
            _blocks(self._acc_8, np.frombuffer(left, np.uint8), 0, blocks)
            self._tail = left[BLOCK * blocks - STRIPE : BLOCK * blocks]
        self._left = left[BLOCK * blocks :]

    def intdigest(self) -> int:
        data = np.frombuffer(self._tail + self._left, np.uint8)
        if self._size <= SHORT:
            return int(_short64(data, 0, self._size))
        return int(_ended(self._acc_8.copy(), data, len(self._tail), len(self._left), self._size))

    def hexdigest(self) -> str:
        return f"{self.intdigest():016x}"


def xxh3_64_intdigest(data: Any) -> int:
    return Xxh3Of64(data).intdigest()
