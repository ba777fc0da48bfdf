"""The text statistics kernels, on the emulator, give the CPU twin's integers."""

from __future__ import annotations

import random

import numpy as np
import pytest
from cudasim.columns import columns, random_columns
from cudasim.device import emulated, run
from cudasim.module import available
from hypothesis import given, settings
from hypothesis import strategies as st
from test_text_stats import any_bytes, text_bytes

from gpu_curate.document import TextColumn
from gpu_curate.ops.text_stats import NAMES, cpu, gpu

pytestmark = pytest.mark.skipif(not available(), reason="no C++ compiler: the emulator compiles kernels with g++")


def assert_same(text: TextColumn, checked: bool = False, schedule: int = 0) -> None:
    got, expected = run(emulated(checked, schedule), gpu.text_stats, text), cpu.text_stats(text)
    assert got.dtype == expected.dtype
    for row, name in enumerate(NAMES):
        np.testing.assert_array_equal(got[row], expected[row], err_msg=name)


@pytest.mark.parametrize(("name", "text"), list(columns()), ids=[n for n, _ in columns()])
def test_equals_cpu(name, text):
    for schedule in (0, 1):
        assert_same(text, schedule=schedule)
    assert_same(text, checked=True, schedule=3)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.one_of(text_bytes, any_bytes, st.binary(max_size=200)), max_size=6), st.booleans())
def test_what_the_rules_look_at_equals_cpu(documents, checked):
    assert_same(TextColumn.from_texts(documents), checked, schedule=2)


@settings(max_examples=30, deadline=None)
@given(random_columns())
def test_random_bytes_equal_cpu(text):
    assert_same(text, checked=True, schedule=4)


@pytest.mark.parametrize("seed", range(6))
def test_repeated_ngrams_lines_and_paragraphs_equal_cpu(seed):
    """Few different words, so that n-grams of every length repeat and their first occurrences are contended for."""
    rng = random.Random(seed)
    pool = ["a", "bb", "ccc", "d.", "é", "#", "\n", "\n\n", "the", "\n \n"][: 3 + seed]
    documents = [" ".join(rng.choices(pool, k=rng.randrange(0, 400))).encode() for _ in range(7)]
    documents += [documents[0] * 2, b"same line\n" * 300, b"a " * 700, b"one two three\n\n" * 100]
    assert_same(TextColumn.from_texts(documents), schedule=seed)
    assert_same(TextColumn.from_texts(documents[:3]), checked=True, schedule=seed + 2)


@pytest.mark.parametrize("n", [31, 32, 33, 255, 256, 257, 8193])
def test_sizes_around_a_mask_word_and_a_block(n):
    letters = np.random.default_rng(n).choice(np.frombuffer(b"a. \n#T", np.uint8), n)
    for shift in (0, 1, 31):
        chars = np.concatenate([np.full(shift, ord("\n"), np.uint8), letters])
        assert_same(TextColumn(chars, np.array([shift, shift + n // 3, shift + n], np.int64)))


@pytest.mark.parametrize("words", [(), ("w0",), tuple(f"w{i}" for i in range(32))])
def test_other_stop_words_equal_cpu(words):
    text = TextColumn.from_texts(["w0 w1 w1 w31 the w5\nw7 x", "", "w0"])
    np.testing.assert_array_equal(
        run(emulated(), lambda t, d: gpu.text_stats(t, d, words), text), cpu.text_stats(text, words)
    )


def test_very_many_empty_documents_and_lines():
    assert_same(TextColumn(np.frombuffer(b"one two", np.uint8), np.array([0] * 20_000 + [3] * 10_000 + [7], np.int64)))
    assert_same(TextColumn.from_texts([b"\n" * 20_000, b"", b" \n" * 3000]))
