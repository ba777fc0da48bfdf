"""Content hashes against the xxhash library."""

from __future__ import annotations

import numpy as np
import strategies
import xxhash
from hypothesis import given, settings

from gpu_curate.document import TextColumn
from gpu_curate.ops.content_hash import content_hash


def value(row: np.ndarray) -> int:
    return int(row[0]) << 64 | int(row[1])


@settings(max_examples=60, deadline=None)
@given(strategies.columns())
def test_equals_xxhash(column):
    hash_N2 = content_hash(column)
    assert hash_N2.dtype == np.uint64
    assert hash_N2.shape == (len(column), 2)
    assert [value(row) for row in hash_N2] == [xxhash.xxh3_128_intdigest(column.raw(i)) for i in range(len(column))]


def test_every_length_in_every_branch_of_the_algorithm():
    """Branches at 0, 1-3, 4-8, 9-16, 17-128, 129-240 bytes, stripes of 64 and blocks of 1024 beyond."""
    data = np.random.default_rng(0).integers(0, 256, 5000, dtype=np.uint8).tobytes()
    docs = [data[:n] for n in [*range(1100), 1535, 1536, 1537, 2047, 2048, 2049, 4999]]
    hash_N2 = content_hash(TextColumn.from_texts(docs))
    assert [value(row) for row in hash_N2] == [xxhash.xxh3_128_intdigest(d) for d in docs]


def test_published_value_of_no_bytes():
    """XXH3-128 of the empty input with seed 0, from the xxHash project's own test vectors."""
    hash_N2 = content_hash(TextColumn.from_texts([""]))
    assert f"{value(hash_N2[0]):032x}" == "99aa06d3014798d86001c324468d497f"


def test_no_documents():
    assert content_hash(TextColumn.from_texts([])).shape == (0, 2)


def test_the_plain_way_gives_the_same():
    from gpu_curate.ops.content_hash import plain

    column = TextColumn.from_texts([b"x" * n for n in (0, 1, 16, 17, 240, 241, 5000)])
    assert (plain.content_hash(column) == content_hash(column)).all()
    assert plain.content_hash(column.slice(0, 0)).shape == (0, 2)
