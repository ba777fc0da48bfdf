"""Items of real benchmarks, planted: all of 13 words or more are found, whatever the case, the lines and what stands around."""

from __future__ import annotations

import importlib
import random
import sys

import numpy as np
import pytest
from corpora import document
from places import ROOT

from gpu_curate.document import TextColumn
from gpu_curate.ops.ngrams import NgramIndex
from gpu_curate.stages.sections import Reference


@pytest.fixture(scope="module")
def bench():
    sys.path.insert(0, str(ROOT / "scripts" / "bench"))
    try:
        return importlib.import_module("coverage_limit")
    finally:
        sys.path.pop(0)


@pytest.mark.parametrize("name", ["GSM8K", "HumanEval", "MMLU"])
def test_planted_items_are_found(shared_data, bench, name):
    items = bench.sets(shared_data("eval"))[name]
    limit = np.float32(Reference.model_fields["max_coverage"].default)
    index = NgramIndex.build(TextColumn.from_texts(items), 13)
    own = [item for item, grams in zip(items, index.item_grams_I.tolist(), strict=True) if grams]
    assert len(own) > 0.7 * len(items)
    rng = random.Random(4)
    kinds = bench.planted(own, [document(rng) for _ in range(20)], rng)
    for kind in ("verbatim", "rewrapped", "capitals", "filler"):
        assert (bench.covered(kinds[kind], index) > limit).all(), kind
    quoted = bench.covered(kinds["one n-gram"], index) > limit
    assert quoted.mean() < 0.25  # a page that quotes 13 words is dropped for short items only
    short = [item for item, grams in zip(items, index.item_grams_I.tolist(), strict=True) if not grams]
    whole = NgramIndex.build(TextColumn.from_texts(short), 13, True)
    assert (bench.covered([f"{document(rng)} {item} {document(rng)}" for item in short], whole) > limit).all()
