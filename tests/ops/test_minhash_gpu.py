"""Signatures, shingles, bands and candidate pairs from the kernels, on the emulator, equal the CPU twins'."""

from __future__ import annotations

import numpy as np
import pytest
from cudasim.columns import columns, random_columns, text
from cudasim.device import emulated, run
from cudasim.module import available
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu_curate.document import TextColumn
from gpu_curate.ops.bands import BandSpec
from gpu_curate.ops.bands import cpu as bands_cpu
from gpu_curate.ops.bands import gpu as bands_gpu
from gpu_curate.ops.components import cpu as components_cpu
from gpu_curate.ops.components import gpu as components_gpu
from gpu_curate.ops.minhash import MinHashSpec, cpu, gpu

pytestmark = pytest.mark.skipif(not available(), reason="no C++ compiler: the emulator compiles kernels with g++")
# one row; the default; H no multiple of 16; shingles longer than most documents; more rows than one pass takes
SPECS = [
    MinHashSpec(),
    MinHashSpec(family="fmix64"),
    MinHashSpec(shingle_words=1, num_hashes=1, seed=7),
    MinHashSpec(shingle_words=13, num_hashes=50, seed=2**64 - 1, family="fmix64"),
    MinHashSpec(shingle_words=3, num_hashes=200),
]


def equal(got: tuple, expected: tuple) -> None:
    for g, e in zip(got, expected, strict=True):
        assert g.dtype == e.dtype
        np.testing.assert_array_equal(g, e)


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_signatures_equal_cpu(spec):
    for _, column in columns():
        equal(run(emulated(schedule=1), gpu.signatures, column, spec), cpu.signatures(column, spec))


@pytest.mark.parametrize(("name", "column"), list(columns()), ids=[n for n, _ in columns()])
def test_checked_signatures_and_shingles_equal_cpu(name, column):
    spec = MinHashSpec(num_hashes=32)
    for schedule in (0, 3):
        equal(run(emulated(True, schedule), gpu.signatures, column, spec), cpu.signatures(column, spec))
    equal(run(emulated(True, 2), gpu.shingles, column, spec), cpu.shingles(column, spec))


@settings(max_examples=40, deadline=None)
@given(random_columns(), st.sampled_from(SPECS))
def test_random_bytes_equal_cpu(column, spec):
    equal(run(emulated(True, 4), gpu.signatures, column, spec), cpu.signatures(column, spec))


@pytest.mark.parametrize("n", [1023, 1024, 1025, 2049])
def test_documents_around_a_tile_of_shingles(n):
    column = TextColumn.from_texts([b"a " * (n + 4), b"b c", b" ".join(b"%d" % i for i in range(n + 4))])
    equal(run(emulated(True, 5), gpu.signatures, column, MinHashSpec()), cpu.signatures(column, MinHashSpec()))


def pairs_of(n: int) -> np.ndarray:
    return np.array([(i, j) for i in range(n) for j in range(n)], np.int64)


def test_jaccard_equals_cpu(monkeypatch):
    rng = np.random.default_rng(5)
    base = text(rng, 60)
    column = TextColumn.from_texts([base, base[:400], base[100:], b"", b" ", b"same same same", b"same same same same"])
    spec, pairs = MinHashSpec(shingle_words=2), pairs_of(len(column))
    sig_NH, _ = cpu.signatures(column, spec)
    monkeypatch.setattr(gpu, "PAIRS_BYTES", 9 * spec.num_hashes * 5)  # several batches
    equal((run(emulated(), gpu.jaccard, sig_NH, pairs),), (cpu.jaccard(sig_NH, pairs),))
    hash_S, offsets = cpu.shingles(column, spec)
    for some in (pairs, pairs[:0]):
        expected = cpu.jaccard_exact(hash_S, offsets, some)
        equal((run(emulated(True, 3), gpu.jaccard_exact, hash_S, offsets, some),), (expected,))


@pytest.mark.parametrize("n", [0, 1, 255, 256, 257])
@pytest.mark.parametrize(("num_bands", "rows"), [(14, 8), (1, 1), (3, 5)])
@pytest.mark.parametrize("scoped", [False, True])
def test_band_hashes_equal_cpu(n, num_bands, rows, scoped):
    rng = np.random.default_rng(n)
    sig_NH = rng.integers(0, 2**32, (n, num_bands * rows + 2), dtype=np.uint32)
    scope = rng.integers(0, 3, n).astype(np.uint64) if scoped else None
    spec = BandSpec(num_bands, rows)
    expected = bands_cpu.band_hashes(sig_NH, spec, scope)
    equal((run(emulated(True, 2), bands_gpu.band_hashes, sig_NH, spec, scope),), (expected,))


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3), st.booleans()), max_size=40), st.booleans())
def test_candidate_pairs_equal_cpu(rows, all_valid):
    # few different top bits, so that unequal hashes tie in the packed key, and interleave
    hash_N = np.array([(top << 60) | low for top, low, _ in rows], np.uint64)
    valid_N = None if all_valid else np.array([valid for *_, valid in rows], np.bool_)
    equal(run(emulated(), components_gpu.band_edges, hash_N, valid_N), components_cpu.band_edges(hash_N, valid_N))
