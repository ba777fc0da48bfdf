"""Our own xxh3 has the digests of the xxhash library, at every length and however the bytes come."""

from __future__ import annotations

import numpy as np
import pytest
import xxhash

from gpu_curate import xxh3, xxh3_own

DATA = np.random.default_rng(0).integers(0, 256, 300_000, dtype=np.uint8).tobytes()
LENGTHS = [*range(300), 511, 512, 513, 1023, 1024, 1025, 1087, 1088, 1089, 2047, 2048, 2049, 2112, 2113, 4999, 300_000]


@pytest.mark.parametrize("at", [0, 1])
def test_digests_at_every_length(at):
    for n in LENGTHS:
        data = DATA[at : at + n]
        assert xxh3_own.xxh3_64_intdigest(data) == xxhash.xxh3_64_intdigest(data), n


def test_pieces_of_any_size_give_the_digest_of_the_whole():
    rng = np.random.default_rng(1)
    for n in LENGTHS[290:]:
        for longest in (1, 65, 1024, 5000)[n > 5000 :]:
            state, at = xxh3_own.Xxh3Of64(), 0
            while at < n:
                size = int(rng.integers(0, longest + 1))
                state.update(memoryview(DATA)[at : min(at + size, n)])
                at += size
                if at < 2000:
                    assert state.intdigest() == xxhash.xxh3_64_intdigest(DATA[: min(at, n)])
            assert state.hexdigest() == xxhash.xxh3_64(DATA[:n]).hexdigest()


def test_the_library_is_used_where_it_is():
    assert xxh3.xxh3_64 is xxhash.xxh3_64
    assert xxh3.xxh3_64_intdigest is xxhash.xxh3_64_intdigest
