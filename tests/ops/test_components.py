"""Candidate pairs and components against breadth-first search, in shapes and sizes that break simple versions."""

from __future__ import annotations

import time

import numpy as np
import pytest
import reference
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

from gpu_curate.errors import InputError
from gpu_curate.ops.components import Components, band_edges, cpu, index_dtype

# Few values, so that buckets are large; alike in the top bits, in the low bits, or in neither.
HASHES = st.one_of(
    st.integers(0, 3),
    st.integers(0, 3).map(lambda v: v << 62),
    st.sampled_from([0, 1, 1 << 63, (1 << 63) + 1, (1 << 64) - 1]),
)
BANDS = st.lists(st.tuples(HASHES, st.booleans()), max_size=40)


def band(drawn: list[tuple[int, bool]]) -> tuple[np.ndarray, np.ndarray]:
    return np.array([h for h, _ in drawn], np.uint64), np.array([v for _, v in drawn], np.bool_)


def scipy_labels(n: int, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Smallest member of each component, by SciPy."""
    _, component = connected_components(coo_matrix((np.ones(len(a), np.bool_), (a, b)), (n, n)), directed=False)
    smallest = np.full(n, n)
    np.minimum.at(smallest, component, np.arange(n))
    return smallest[component]


# --------------------------------------------------------------------------------------------------------------- edges


@settings(max_examples=100, deadline=None)
@given(BANDS, st.booleans())
def test_edges_chain_every_bucket_in_document_order(drawn, all_valid):
    hash_N, valid_N = band(drawn)
    a_E, b_E = band_edges(hash_N, None if all_valid else valid_N)
    expected = reference.band_edges(hash_N.tolist(), None if all_valid else valid_N.tolist())
    assert list(zip(a_E.tolist(), b_E.tolist(), strict=True)) == expected
    assert a_E.dtype == b_E.dtype == np.int64


@settings(max_examples=60, deadline=None)
@given(BANDS, st.sampled_from([6, 33, 40, 60, 63]))
def test_sorted_keys_are_in_order_of_the_full_hash_however_few_bits_are_left_of_it(drawn, id_bits):
    """33 bits number more than 2^32 documents; 63 leave one bit of the hash, so nearly all ties are by chance."""
    hash_N, valid_N = band(drawn)
    keys = cpu.sorted_keys(hash_N, valid_N, id_bits)
    documents = [int(k) & ((1 << id_bits) - 1) for k in keys]
    expected = [d for d in range(len(hash_N)) if valid_N[d]]
    assert documents == sorted(expected, key=lambda d: (int(hash_N[d]), d))


def test_more_chance_ties_than_the_first_buffer_holds():
    rng = np.random.default_rng(1)
    hash_N = rng.integers(0, 500, 5000, dtype=np.uint64)  # the top bits are all 0
    a_E, b_E = band_edges(hash_N)
    assert list(zip(a_E.tolist(), b_E.tolist(), strict=True)) == reference.band_edges(hash_N.tolist())


def test_different_hashes_with_equal_top_bits_are_no_candidates():
    hash_N = np.array([1 << 63, (1 << 63) + 1, 1 << 63, (1 << 63) + 2], np.uint64)
    a_E, b_E = band_edges(hash_N)
    assert (a_E.tolist(), b_E.tolist()) == ([0], [2])


@pytest.mark.parametrize("n", [0, 1, 2])
def test_tiny_bands(n):
    a_E, b_E = band_edges(np.zeros(n, np.uint64))
    assert (a_E.tolist(), b_E.tolist()) == (([0], [1]) if n == 2 else ([], []))
    components = Components(n)
    assert components.add_band(np.zeros(n, np.uint64)) == (n == 2)
    assert components.labels().tolist() == [0] * n


def test_band_of_invalid_documents_connects_nothing():
    assert len(band_edges(np.zeros(5, np.uint64), np.zeros(5, np.bool_))[0]) == 0


# ---------------------------------------------------------------------------------------------------------- components


@settings(max_examples=100, deadline=None)
@given(
    st.integers(1, 30).flatmap(
        lambda n: st.tuples(st.just(n), st.lists(st.tuples(*[st.integers(0, n - 1)] * 2), max_size=40))
    )
)
def test_labels_equal_breadth_first_search(case):
    n, edges = case
    components = Components(n)
    a, b = np.array(edges, np.int64).reshape(-1, 2).T
    joined = components.add_edges(a.copy(), b.copy())
    labels = components.labels()
    assert labels.dtype == np.int64
    assert labels.tolist() == reference.components(n, edges)
    assert joined == n - len(set(labels.tolist()))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.tuples(HASHES, st.booleans()), min_size=17, max_size=17), max_size=4), st.randoms())
def test_bands_connect_what_their_edges_connect_in_any_order(drawn, random):
    bands = [band(d) for d in drawn]
    edges = [e for hash_N, valid_N in bands for e in reference.band_edges(hash_N.tolist(), valid_N.tolist())]
    expected = reference.components(17, edges)
    random.shuffle(bands)
    components = Components(17)
    assert sum(components.add_band(*b) for b in bands) == len(edges)
    assert components.labels().tolist() == expected
    for b in bands:  # once more changes nothing, nor does asking in between
        components.add_band(*b)
    assert components.labels().tolist() == expected


def test_bands_equal_scipy_at_size():
    rng = np.random.default_rng(5)
    n = 30_011
    components, a, b = Components(n), [], []
    for _ in range(3):
        hash_N = rng.integers(0, 1 << 64, n, dtype=np.uint64)
        hash_N[rng.integers(0, n, 9000)] = hash_N[rng.integers(0, n, 9000)]
        components.add_band(hash_N)
        edges = band_edges(hash_N)
        a.append(edges[0])
        b.append(edges[1])
    assert np.array_equal(components.labels(), scipy_labels(n, np.concatenate(a), np.concatenate(b)))


@pytest.mark.parametrize("shape", ["path", "reversed path", "shuffled path", "star", "star of the last", "binary tree"])
def test_a_million_documents_in_one_component_of_any_shape(shape):
    n = 1_000_000
    a, b = np.arange(n - 1), np.arange(1, n)
    if shape == "reversed path":
        a, b = a[::-1].copy(), b[::-1].copy()
    elif shape == "shuffled path":
        order = np.random.default_rng(2).permutation(n - 1)
        a, b = a[order], b[order]
    elif shape == "star":
        a = np.zeros(n - 1, np.int64)
    elif shape == "star of the last":
        b = np.full(n - 1, n - 1)
    elif shape == "binary tree":
        a = (b - 1) // 2
    components = Components(n)
    half = n // 2  # over two partitions
    start = time.process_time()
    assert components.add_edges(a[half:], b[half:]) + components.add_edges(a[:half], b[:half]) == n - 1
    assert not components.labels().any()
    assert time.process_time() - start < 3  # it takes 0.05; quadratic time would take hours


def test_two_paths_stay_apart():
    n = 1_000_000
    components = Components(n)
    assert components.add_edges(np.arange(n - 2), np.arange(2, n)) == n - 2
    assert np.array_equal(components.labels(), np.arange(n) % 2)


def test_one_bucket_of_a_million():
    components = Components(1_000_000)
    assert components.add_band(np.full(1_000_000, 99, np.uint64)) == 999_999
    assert not components.labels().any()


def test_document_numbers_are_wide_enough():
    assert index_dtype(1 << 31) == np.int32
    assert index_dtype((1 << 31) + 1) == np.int64
    assert cpu.id_bits((1 << 31) + 10) == 32
    assert cpu.id_bits((1 << 32) + 1) == 33
    assert Components.plan_bytes(1 << 31) == 12 << 31
    assert Components.plan_bytes(1 << 32) == 16 << 32


def test_wide_document_numbers_give_the_same_components():
    rng = np.random.default_rng(7)
    hash_N = rng.integers(0, 300, 1000, dtype=np.uint64)
    labels = []
    for dtype in (np.int32, np.int64):
        parent_N = np.arange(1000, dtype=dtype)
        cpu.connect_band(parent_N, hash_N, None)
        cpu.flatten(parent_N)
        labels.append(parent_N.tolist())
    assert labels[0] == labels[1]


@pytest.mark.parametrize(
    ("a", "b", "message"),
    [([0], [3], "there are 3"), ([-1], [0], "there are 3"), ([0, 1], [2], "of one length")],
)
def test_edges_that_name_no_document_are_refused(a, b, message):
    with pytest.raises(InputError, match=message):
        Components(3).add_edges(np.array(a, np.int64), np.array(b, np.int64))


def test_bands_of_another_length_or_type_are_refused():
    with pytest.raises(InputError, match="a band of 2 documents for components of 3"):
        Components(3).add_band(np.zeros(2, np.uint64))
    with pytest.raises(InputError, match="a band is uint64"):
        band_edges(np.zeros(3, np.int64))
    with pytest.raises(InputError, match="valid is bool"):
        band_edges(np.zeros(3, np.uint64), np.zeros(2, np.bool_))
    with pytest.raises(InputError, match="-1 documents"):
        Components(-1)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 6), max_size=24), st.integers(1, 3), st.randoms(use_true_random=False))
def test_the_plain_components_are_the_same(values, bands, rng):
    from gpu_curate.ops.components import plain

    n = len(values)
    fast, slow = Components(n), plain.Components(n)
    for _ in range(bands):
        rng.shuffle(values)
        hash_N = np.array(values, np.uint64) << np.uint64(60)
        valid_N = np.array([rng.random() < 0.8 for _ in values], np.bool_)
        for a, b in zip(band_edges(hash_N, valid_N), plain.band_edges(hash_N, valid_N), strict=True):
            assert a.tolist() == b.tolist()
        assert fast.add_band(hash_N, valid_N) == slow.add_band(hash_N, valid_N)
    if n:
        a, b = np.array([rng.randrange(n)]), np.array([rng.randrange(n)])
        assert fast.add_edges(a, b) == slow.add_edges(a, b)
    assert fast.labels().tolist() == slow.labels().tolist()


@pytest.mark.parametrize("k", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("more", [-1, 0, 1])
def test_the_device_s_key_has_room_for_every_document_around_a_power_of_two(k, more):
    """One bit too few at n = 2^k or 2^k + 1, and the last document's number spills into its hash."""
    from cudasim.device import emulated, run

    from gpu_curate.ops.components import gpu

    n = max(2**k + more, 2)
    for hash_N in (
        np.full(n, 2**64 - 1, np.uint64),
        np.zeros(n, np.uint64),
        np.arange(n, dtype=np.uint64) // np.uint64(2) << np.uint64(62),
        np.arange(n, dtype=np.uint64) % np.uint64(2),
    ):
        got, expected = run(emulated(), gpu.band_edges, hash_N, None), cpu.band_edges(hash_N, None)
        for g, e in zip(got, expected, strict=True):
            np.testing.assert_array_equal(g, e)
