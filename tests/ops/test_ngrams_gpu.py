"""The n-gram kernel, on the emulator, finds the CPU twin's hits."""

from __future__ import annotations

import gc

import numpy as np
import pytest
from cudasim.columns import columns, text
from cudasim.device import emulated, run
from cudasim.module import available

from gpu_curate.document import TextColumn
from gpu_curate.ops.ngrams import NgramIndex, cpu, gpu

pytestmark = pytest.mark.skipif(not available(), reason="no C++ compiler: the emulator compiles kernels with g++")
RNG = np.random.default_rng(3)
ITEMS = [text(RNG, int(n)) for n in (40, 13, 12, 1, 0, 30, 90)]
DOCUMENTS = [
    text(RNG, 50) + b" . " + ITEMS[0] + b" . " + text(RNG, 30),
    b"",
    ITEMS[1],
    b" ".join(ITEMS[0].split(b" ")[:20]),
    ITEMS[5][: len(ITEMS[5]) // 2],
    ITEMS[5][len(ITEMS[5]) // 2 :],  # its n-grams across the border belong to neither document
    ITEMS[6] * 7,  # every n-gram many times
    ITEMS[2] + b" | " + ITEMS[3],
]


def coverage(doc_M: np.ndarray, gram_M: np.ndarray, *args: object) -> tuple:
    return gpu.coverage((doc_M, gram_M), *args)


def assert_same(column: TextColumn, index: NgramIndex, checked: bool, schedule: int) -> int:
    device = emulated(checked, schedule)
    hits, expected = run(device, gpu.probe, column, index), cpu.probe(column, index)
    pairs = [*zip(hits, expected, strict=True)]
    covered = run(device, coverage, *hits, index, len(column)), cpu.coverage(expected, index, len(column))
    for got, want in [*pairs, *zip(*covered, strict=True)]:
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(got, want)
    return len(hits[0])


@pytest.mark.parametrize("n", [1, 2, 13, 40])
@pytest.mark.parametrize("whole_items", [False, True])
def test_hits_and_coverage_equal_cpu(n, whole_items):
    index = NgramIndex.build(TextColumn.from_texts(ITEMS), n, whole_items)
    column = TextColumn.from_texts(DOCUMENTS)
    for checked, schedule in ((False, 0), (True, 1), (True, 2)):
        assert assert_same(column.slice(1, len(column)), index, checked, schedule) > 0
        assert assert_same(column, index, checked, schedule) > 0


def test_odd_columns_equal_cpu():
    index = NgramIndex.build(TextColumn.from_texts([b"a b c", b"x", "数据清洗".encode()]), 2, True)
    for _, column in columns():
        assert_same(column, index, True, 3)


def test_more_hits_than_room(monkeypatch):
    monkeypatch.setattr(gpu, "MIN_HITS", 3)
    index = NgramIndex.build(TextColumn.from_texts(ITEMS), 2)
    assert assert_same(TextColumn.from_texts(DOCUMENTS), index, True, 0) > 3


def test_empty_index_finds_nothing():
    index = NgramIndex.build(TextColumn.from_texts([b"too short"]), 13)
    assert assert_same(TextColumn.from_texts(DOCUMENTS), index, False, 0) == 0


def test_device_copy_goes_with_the_index():
    index = NgramIndex.build(TextColumn.from_texts(ITEMS), 5)
    run(emulated(), gpu.probe, TextColumn.from_texts(DOCUMENTS), index)
    key = id(index)
    assert key in gpu._uploaded
    del index
    gc.collect()
    assert key not in gpu._uploaded


def test_mixed_scripts_equal_cpu():
    """The kernel looks at runs of every number of words, the CPU weighs them: both find the same."""
    words = ["a", "Bc", "北", "京", "か", "タ", "ไ", "ไทย", "ကို", "한국", "മല", "ꀀ"]
    rng = np.random.default_rng(11)
    items = [" ".join(rng.choice(words, int(n))).encode() for n in (60, 40, 30, 9, 3, 1)]
    documents = [
        b"x " + items[0] + b" y",
        b" ".join(items),
        items[1][: len(items[1]) // 2],
        items[3] * 3,
        b"",
        items[2],
    ]
    for n, whole_items in ((2, False), (5, True), (13, False), (13, True)):
        index = NgramIndex.build(TextColumn.from_texts(items), n, whole_items, 1)
        assert len(index.width_K) > 3
        assert assert_same(TextColumn.from_texts(documents), index, True, 1) > 20
