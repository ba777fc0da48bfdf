"""The plain NumPy peer gives the integers of the definition; its speed is what others are measured by, so it must be right."""

from __future__ import annotations

import numpy as np
import pytest
import reference

from gpu_curate.ops.bands import BandSpec
from gpu_curate.ops.minhash import MinHashSpec, plain

TEXTS = [
    "",
    "one",
    " ,. ",
    "The quick brown fox jumps over the lazy dog, twice over the lazy dog",
    "漢字かな交じり文 ไทย soft\u00adhyphen \U000e0041tag \U00040000 İstanbul ΣΊΣΥΦΟΣ",
    "w" * 255 + " " + "v" * 257 + " " + "u" * 3000 + " and so on to the end",
    "x" * 5000,
]


@pytest.mark.parametrize("family", ["affine", "fmix64"])
@pytest.mark.parametrize("words", [1, 5])
def test_signatures_and_bands_are_those_of_the_definition(family, words):
    spec, bands = MinHashSpec(shingle_words=words, num_hashes=12, seed=7, family=family), BandSpec(3, 4)
    expected = [reference.signature(text.encode(), words, 12, 7, family) for text in TEXTS]
    sig_NH = plain.signatures(TEXTS, spec)
    assert sig_NH.dtype == np.uint32
    assert sig_NH.tolist() == expected
    assert plain.band_hashes(sig_NH, bands).T.tolist() == [reference.band_hashes(rows, 3, 4) for rows in expected]


def test_no_documents():
    assert plain.band_hashes(plain.signatures([], MinHashSpec()), BandSpec()).shape == (14, 0)
