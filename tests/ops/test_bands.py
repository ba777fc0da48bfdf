"""Band hashes against the definition, and the S-curve they are there for."""

from __future__ import annotations

import sysconfig
from fractions import Fraction
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import reference
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu_curate.document import TextColumn
from gpu_curate.errors import ConfigError, InputError
from gpu_curate.ops.bands import BandSpec, band_hashes, s_curve
from gpu_curate.ops.minhash import MinHashSpec, jaccard_exact, shingles, signatures

MASK32 = (1 << 32) - 1


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 5), st.integers(1, 9), st.integers(0, 7), st.integers(0, 3), st.data())
def test_equals_the_definition(num_bands, rows_per_band, n, spare, data):
    rows = st.lists(
        st.integers(0, MASK32), min_size=num_bands * rows_per_band + spare, max_size=num_bands * rows_per_band + spare
    )
    sig = data.draw(st.lists(rows, min_size=n, max_size=n))
    scope = data.draw(st.lists(st.sampled_from([0, 1, 5, reference.MASK]), min_size=n, max_size=n))
    sig_NH = np.array(sig, np.uint32).reshape(n, num_bands * rows_per_band + spare)
    spec = BandSpec(num_bands, rows_per_band)
    band_BN = band_hashes(sig_NH, spec)
    assert band_BN.dtype == np.uint64
    assert band_BN.shape == (num_bands, n)
    assert band_BN.flags.c_contiguous
    assert band_BN.T.tolist() == [reference.band_hashes(row, num_bands, rows_per_band) for row in sig]
    scoped = band_hashes(sig_NH, spec, np.array(scope, np.uint64))
    assert scoped.T.tolist() == [
        reference.band_hashes(row, num_bands, rows_per_band, k) for row, k in zip(sig, scope, strict=True)
    ]


def test_golden_value():
    """From the plain definition in tests/reference.py."""
    sig_NH = np.arange(112, dtype=np.uint32).reshape(1, 112)
    assert f"{int(band_hashes(sig_NH, BandSpec())[13, 0]):016x}" == GOLDEN


GOLDEN = "9c359fd036358e76"


def test_documents_of_different_scopes_share_no_bucket():
    sig_NH = np.full((3, 112), 7, np.uint32)
    band_BN = band_hashes(sig_NH, BandSpec(), np.array([1, 1, 2], np.uint64))
    assert (band_BN[:, 0] == band_BN[:, 1]).all()
    assert not (band_BN[:, 0] == band_BN[:, 2]).any()


def test_equal_rows_in_different_bands_share_no_hash():
    band_BN = band_hashes(np.full((1, 112), 7, np.uint32), BandSpec())
    assert len(np.unique(band_BN)) == 14


def test_too_few_rows_are_refused():
    with pytest.raises(ConfigError, match="num_bands=20 x rows_per_band=13 needs num_hashes=260, got 256"):
        band_hashes(np.zeros((1, 256), np.uint32), BandSpec(20, 13))


@pytest.mark.parametrize("scope", [np.zeros(2, np.uint64), np.zeros(3, np.int64)])
def test_scope_of_another_length_or_type_is_refused(scope):
    with pytest.raises(InputError, match="scope keys are uint64, one a document"):
        band_hashes(np.zeros((3, 112), np.uint32), BandSpec(), scope)


@pytest.mark.parametrize("spec", [(0, 8), (14, 0)])
def test_no_bands_or_rows_are_refused(spec):
    with pytest.raises(ConfigError, match="at least one"):
        BandSpec(*spec)


def test_s_curve_values():
    """1 - (1 - s^8)^14 in exact fractions."""
    spec = BandSpec()
    assert s_curve(0.0, spec) == 0.0
    assert s_curve(1.0, spec) == 1.0
    half, fifths = Fraction(1, 2), Fraction(4, 5)
    assert s_curve(0.5, spec) == pytest.approx(float(1 - (1 - half**8) ** 14), abs=1e-12)
    assert s_curve(np.array([0.8]), spec)[0] == pytest.approx(float(1 - (1 - fifths**8) ** 14), abs=1e-12)


# ------------------------------------------------------------------------------------------------------------- S-curve


def numbered_words(sets: list[np.ndarray]) -> TextColumn:
    return TextColumn.from_texts([" ".join(f"w{n}" for n in s) for s in sets])


@pytest.mark.parametrize("family", ["affine", "fmix64"])
@pytest.mark.parametrize("similarity", [0.5, 0.7, 0.8, 0.9])
def test_every_band_catches_its_share_of_synthetic_pairs(family, similarity):
    """3,000 pairs of sets of 40 in all: a band catches s^8 of them, all 14 together 1 - (1 - s^8)^14, within 4 sigma.

    sigma = sqrt(p * (1 - p) / pairs); the pairs have no word in common, so their catches are independent.
    """
    union, pairs = 40, 3000
    common = round(similarity * union)
    sets = []
    for p in range(pairs):
        everything = np.arange(p * union, (p + 1) * union)
        sets += [everything[:common], everything]
    sig_NH, _ = signatures(numbered_words(sets), MinHashSpec(shingle_words=1, seed=3, family=family))
    band_BN = band_hashes(sig_NH, BandSpec())
    caught = band_BN[:, 0::2] == band_BN[:, 1::2]
    per_band = similarity**8
    assert (np.abs(caught.mean(axis=1) - per_band) <= 4 * np.sqrt(per_band * (1 - per_band) / pairs)).all()
    together = s_curve(similarity, BandSpec())
    assert abs(caught.any(axis=0).mean() - together) <= 4 * np.sqrt(together * (1 - together) / pairs)


def corpus_documents(path: Path, count: int) -> list[str]:
    """The first words of real documents of many kinds."""
    texts = next(pq.ParquetFile(path).iter_batches(count, columns=["text"]))["text"].to_pylist()
    return [" ".join(text.split()[:100]) for text in texts]


def python_documents(count: int) -> list[str]:
    """Passages of 100 words of the sources and docstrings of this Python's standard library, which is everywhere."""
    passages: list[str] = []
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("**/*.py")):
        if len(passages) >= count:
            break
        if "site-packages" in path.parts:
            continue
        found = path.read_text(encoding="utf-8", errors="replace").split()
        passages += [" ".join(found[at : at + 100]) for at in range(0, len(found) - 40, 100)]
    return passages[:count]


def edited(texts: list[str], seed: int) -> list[str]:
    """Each text with a share of its words, drawn from 0 to 0.2, replaced by other words of the collection."""
    rng = np.random.default_rng(seed)
    vocabulary = np.array(sorted({word for text in texts[:2000] for word in text.split()}))
    out = []
    for text in texts:
        found = np.array(text.split())
        change = rng.random(len(found)) < rng.random() * 0.2
        found[change] = rng.choice(vocabulary, change.sum())
        out.append(" ".join(found.tolist()))
    return out


@cache
def edited_pairs(path: Path | None) -> tuple[TextColumn, np.ndarray, np.ndarray]:
    """Documents and their edits, the pairs of at least 20 shingles that differ, and their exact Jaccard similarity."""
    texts = python_documents(12_000) if path is None else corpus_documents(path, 12_000)
    both, n = TextColumn.from_texts(texts + edited(texts, seed=11)), len(texts)
    hash_S, offsets = shingles(both, MinHashSpec())
    pairs = np.stack([np.arange(n), np.arange(n) + n], axis=1)[np.diff(offsets)[:n] >= 20]
    similarity = jaccard_exact(hash_S, offsets, pairs)
    return both, pairs[similarity < 1], similarity[similarity < 1]


@pytest.mark.parametrize("family", ["affine", "fmix64"])
@pytest.mark.parametrize("source", ["corpus", "python"])
def test_catch_rate_of_edited_real_documents_follows_the_s_curve(source, family, shared_data):
    """At least 10,000 pairs in bins of exact Jaccard similarity; each bin catches what 1 - (1 - s^8)^14 says.

    A pair is caught with its own probability p, so a bin's number caught has mean m = sum of p and variance v = sum of
    p (1 - p). Bernstein's inequality: it is off by more than L/3 + sqrt(L^2/9 + 2 L v) once in 10^6, L = ln(2 * 10^6);
    that is 5.4 sigma for large bins, and right for rare events too.
    """
    path = shared_data("bench/corpus.parquet") if source == "corpus" else None
    both, pairs, similarity = edited_pairs(path)
    bands = BandSpec()
    band_BN = band_hashes(signatures(both, MinHashSpec(family=family))[0], bands)
    assert len(pairs) >= 10_000
    caught = (band_BN[:, pairs[:, 0]] == band_BN[:, pairs[:, 1]]).any(axis=0)
    probability = s_curve(similarity, bands)
    tail = np.log(2e6)
    checked = 0
    for low in np.arange(0, 1, 0.05):
        inside = (similarity >= low) & (similarity < low + 0.05)
        mean, variance = probability[inside].sum(), (probability[inside] * (1 - probability[inside])).sum()
        allowed = tail / 3 + np.sqrt(tail**2 / 9 + 2 * tail * variance)
        off = caught[inside].sum() - mean
        assert abs(off) <= allowed, f"{low:.2f} <= s: {off:+.1f} of {inside.sum()} pairs"
        checked += inside.sum() >= 100
    assert checked >= 12  # bins with enough pairs to mean something
