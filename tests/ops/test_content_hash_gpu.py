"""The xxh3-128 kernels, on the emulator, give the xxhash library's digests."""

from __future__ import annotations

import numpy as np
import pytest
import xxhash
from cudasim.columns import columns
from cudasim.device import emulated, run
from cudasim.module import available

from gpu_curate.document import TextColumn
from gpu_curate.ops.content_hash import gpu

pytestmark = pytest.mark.skipif(not available(), reason="no C++ compiler: the emulator compiles kernels with g++")
RANDOM = np.random.default_rng(1).integers(0, 256, 9000, dtype=np.uint8).tobytes()


def assert_digests(text: TextColumn, checked: bool, schedule: int) -> None:
    hash_N2 = run(emulated(checked, schedule), gpu.content_hash, text)
    assert hash_N2.shape == (len(text), 2)
    assert hash_N2.dtype == np.uint64
    digests = [int(high) << 64 | int(low) for high, low in hash_N2]
    assert digests == [xxhash.xxh3_128_intdigest(text.raw(i)) for i in range(len(text))]


@pytest.mark.parametrize("schedule", [0, 1, 2])
def test_every_length_to_two_blocks(schedule):
    lengths = [*range(260), *range(1000, 1100, 7), 1023, 1024, 1025, 1088, 1089, 2047, 2048, 2049, 2112, 8209]
    text = TextColumn.from_texts([RANDOM[k : k + n] for k, n in enumerate(lengths)])
    assert_digests(text, schedule == 2, schedule)


@pytest.mark.parametrize("start", range(9))
def test_any_address(start):
    chars = np.frombuffer(RANDOM, np.uint8)[start : start + 1600]
    ends = np.array([0, 1, 4, 12, 40, 200, 500, 1600 - start], np.int64)
    assert_digests(TextColumn(chars, ends), True, 3)


def test_columns():
    for _, text in columns():
        assert_digests(text, True, 1)
