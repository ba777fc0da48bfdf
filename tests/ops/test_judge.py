"""The sums of a judge: the plain definition, the CPU twin and, by the emulator, the GPU twin."""

from __future__ import annotations

import numpy as np
import pytest
from cudasim.columns import columns
from cudasim.device import emulated, run
from cudasim.module import available
from hypothesis import given, settings
from hypothesis import strategies as st
from ops.judge_reference import raw, sums

from gpu_curate.document import TextColumn
from gpu_curate.ops.judge import NONE, Tables, features, judge_sums, raw_scores, trial
from gpu_curate.ops.text_stats import cpu, gpu, text_stats

needs_emulator = pytest.mark.skipif(not available(), reason="no C++ compiler: the emulator compiles kernels with g++")
RNG = np.random.default_rng(4)
WIDE = Tables.of([RNG.integers(-(1 << 15), 1 << 15, 1 << b).astype(np.int16) for b in (10, 13, 11)], [3, 1, 2])
WORDS = ["the", "a", "cat", "Cat", "cat.", "é", "数据清洗", "\xa0", "\u2003", "x" * 40, "\n", "!", "the the the"]
TEXTS = st.lists(st.lists(st.sampled_from(WORDS), max_size=70).map(" ".join), max_size=9)


@settings(max_examples=60, deadline=None)
@given(TEXTS, st.sampled_from([1, 2, 3]))
def test_sums_equal_the_definition(texts, bits_less):
    column = TextColumn.from_texts(texts)
    for tables in (trial(7, 10 + bits_less), WIDE):
        sum_JN, words_N = judge_sums(column, tables)
        assert sum_JN.dtype == np.int64
        assert sum_JN.T.tolist() == [sums(t.encode(), tables) for t in texts]
        beside = text_stats(column, judges=tables)  # in one pass with all statistics
        assert words_N.tolist() == beside["words"].tolist()
        for j in range(len(tables)):
            assert beside[f"judge:{j}"].tolist() == sum_JN[j].tolist()


@settings(max_examples=40, deadline=None)
@given(TEXTS, st.integers(0, 9))
def test_a_batch_changes_nothing(texts, cut):
    column = TextColumn.from_texts(texts)
    cut = min(cut, len(texts))
    whole = judge_sums(column, WIDE)[0]
    parts = [judge_sums(column.slice(a, b), WIDE)[0] for a, b in ((0, cut), (cut, len(texts)))]
    np.testing.assert_array_equal(whole, np.concatenate(parts, axis=1))


def test_no_judge_leaves_the_statistics_alone():
    column = TextColumn.from_texts(["a b c", ""])
    assert list(text_stats(column, judges=NONE)) == list(text_stats(column))
    assert list(text_stats(column, judges=WIDE))[-3:] == ["judge:0", "judge:1", "judge:2"]


def test_raw_score_is_the_floor_of_the_mean():
    weights = RNG.integers(-128, 128, 1 << 10).astype(np.int8)
    texts = ["", "one", "one two", "one two three", "-", "a b " * 500]
    for ngrams in (1, 2, 3):
        for prior in (0, 1, 30):
            sum_JN, words_N = judge_sums(TextColumn.from_texts(texts), Tables.of([weights], [ngrams]))
            got = raw_scores(sum_JN[0], words_N, ngrams, prior).tolist()
            assert got == [raw(t.encode(), weights.tolist(), 10, ngrams, prior) for t in texts]
    assert features(np.array([0, 1, 2, 3, 10], np.int32), 3).tolist() == [0, 1, 3, 6, 27]


@needs_emulator
@settings(max_examples=15, deadline=None)
@given(TEXTS)
def test_the_kernel_equals_the_cpu_twin(texts):
    column = TextColumn.from_texts(texts)
    for tables in (trial(3, 11), WIDE):
        for checked, schedule in ((False, 0), (True, 1)):
            got = run(emulated(checked, schedule), lambda t, d, own=tables: gpu.judge_sums(t, own, d), column)
            for mine, want in zip(got, cpu.judge_sums(column, tables), strict=True):
                assert mine.dtype == want.dtype
                np.testing.assert_array_equal(mine, want)


@needs_emulator
def test_odd_columns_equal_the_cpu_twin():
    for _, column in columns():
        got = run(emulated(True, 2), lambda t, d: gpu.judge_sums(t, WIDE, d), column)
        for mine, want in zip(got, cpu.judge_sums(column, WIDE), strict=True):
            np.testing.assert_array_equal(mine, want)
