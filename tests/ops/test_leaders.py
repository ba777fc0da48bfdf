"""Clusters around survivors against the definition, with the similarities of the plain reference."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu_curate.ops.components.leaders import distinct, lead_by_rows, lead_by_sets


def by_rounds(sets, fixed, starts, threshold, similarity):
    """The definition: the best member of what is left of a component survives and takes all that reach the threshold with
    it; those that fall out begin anew, until none is left. Who is fixed is taken by nobody."""
    leader = list(range(len(sets)))
    for start, stop in itertools.pairwise(starts):
        left = list(range(start, stop))
        while left:
            best, *rest = left
            taken = [r for r in rest if not fixed[r] and similarity(sets[best], sets[r]) >= threshold]
            for r in taken:
                leader[r] = best
            left = [r for r in rest if r not in taken]
    return leader


def jaccard(a, b):
    return len(a & b) / len(a | b)


SETS = st.lists(st.frozensets(st.integers(0, 9), min_size=1), max_size=14)
THRESHOLDS = st.one_of(st.sampled_from([0.5, 0.7, 0.8, 1.0, 1 / 3, 0.01]), st.floats(0.001, 1.0))


@settings(max_examples=300, deadline=None)
@given(SETS, st.data(), THRESHOLDS)
def test_sets_follow_the_definition(sets, data, threshold):
    cuts = sorted(data.draw(st.sets(st.integers(0, len(sets)))) | {0, len(sets)})
    fixed = np.array(data.draw(st.lists(st.booleans(), min_size=len(sets), max_size=len(sets))), np.bool_)
    count = np.array([len(s) for s in sets], np.int64)
    flat = np.array([v for s in sets for v in sorted(s)], np.uint64)
    found, compared = lead_by_sets(flat, np.cumsum(count) - count, count, fixed, np.array(cuts), threshold)
    assert found.tolist() == by_rounds(sets, fixed, cuts, threshold, jaccard)
    assert compared <= len(sets) ** 2 / 2


@pytest.mark.parametrize(("size", "bits"), [(20, 64), (600, 64), (600, 55)])
def test_large_components_follow_the_definition(size, bits):
    """Many members, so that ranges are counted; hashes of 55 bits lie in one range, which holds more than is counted."""
    rng = np.random.default_rng(size)
    n = 60
    pool = rng.integers(0, 2**bits, size, dtype=np.uint64)
    sets = []
    for i in range(n):
        own = pool if i % 3 else rng.integers(0, 2**bits, size, dtype=np.uint64)
        swapped = rng.random(size) < (i % 7) / 14
        sets.append(set(np.where(swapped, rng.integers(0, 2**bits, size, dtype=np.uint64), own).tolist()))
    count = np.array([len(s) for s in sets])
    flat = np.concatenate([np.sort(np.array(list(s), np.uint64)) for s in sets])
    found, _ = lead_by_sets(flat, np.cumsum(count) - count, count, np.zeros(n, np.bool_), np.array([0, n]), 0.7)
    expected = by_rounds(sets, [False] * n, [0, n], 0.7, jaccard)
    assert found.tolist() == expected
    assert 3 < len(set(expected)) < n


@settings(max_examples=100, deadline=None)
@given(st.lists(st.lists(st.integers(0, 2), min_size=5, max_size=5), max_size=12), st.data(), THRESHOLDS)
def test_signature_rows_follow_the_definition(rows, data, threshold):
    cuts = sorted(data.draw(st.sets(st.integers(0, len(rows)))) | {0, len(rows)})
    fixed = np.array(data.draw(st.lists(st.booleans(), min_size=len(rows), max_size=len(rows))), np.bool_)
    order = np.array(data.draw(st.permutations(range(len(rows)))), np.int64)  # where the row of each lies
    table = np.zeros((len(rows), 5), np.uint32)
    for r, row in zip(order, rows, strict=True):
        table[r] = row
    found, _ = lead_by_rows(table, order, fixed, np.array(cuts), threshold)

    def share(a, b):
        return sum(x == y for x, y in zip(a, b, strict=True)) / 5

    assert found.tolist() == by_rounds(rows, fixed, cuts, threshold, share)


@pytest.mark.parametrize("shape", ["path", "star", "none"])
def test_shapes(shape):
    """A path a-b-c-...: every other one survives; a star around the best: all join; nothing alike: all survive."""
    n = 101
    sets = {
        "path": [set(range(10 * i, 10 * i + 20)) for i in range(n)],  # neighbours share 10 of 30
        "star": [set(range(20)) | {100 + i} for i in range(n)],
        "none": [{100 * i + k for k in range(20)} for i in range(n)],
    }[shape]
    count = np.array([len(s) for s in sets])
    flat = np.concatenate([sorted(s) for s in sets]).astype(np.uint64)
    found, _ = lead_by_sets(
        flat, np.cumsum(count) - count, count, np.zeros(n, np.bool_), np.array([0, n]), 0.3 if shape == "path" else 0.9
    )
    expected = {"path": [i - i % 2 for i in range(n)], "star": [0] * n, "none": list(range(n))}[shape]
    assert found.tolist() == expected


def test_distinct_sorts_and_leaves_out_repeats_of_each_document():
    hash_S = np.array([5, 1, 5, 7, 7, 2**64 - 1, 0], np.uint64)
    offsets, out, count = np.array([0, 3, 3, 5, 7]), np.zeros(7, np.uint64), np.zeros(4, np.int64)
    distinct(hash_S, offsets, out, count)
    assert count.tolist() == [2, 0, 1, 2]
    assert out[:5].tolist() == [1, 5, 7, 0, 2**64 - 1]
