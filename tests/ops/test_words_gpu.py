"""The word kernels, on the emulator, give the CPU twin's integers."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from cudasim.columns import columns, random_columns
from cudasim.device import emulated, run
from cudasim.module import available
from hypothesis import given, settings

from gpu_curate.document import TextColumn
from gpu_curate.ops.words import cpu, gpu

pytestmark = pytest.mark.skipif(not available(), reason="no C++ compiler: the emulator compiles kernels with g++")


def assert_same(text: TextColumn, checked: bool = False, schedule: int = 0) -> None:
    results = run(emulated(checked, schedule), gpu.word_hashes, text)
    for got, expected in zip(results, cpu.word_hashes(text), strict=True):
        assert got.dtype == expected.dtype
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize(("name", "text"), list(columns()), ids=[n for n, _ in columns()])
def test_equals_cpu(name, text):
    for schedule in (0, 1, 5):
        assert_same(text, schedule=schedule)
    assert_same(text, checked=True, schedule=3)


@settings(max_examples=80, deadline=None)
@given(random_columns())
def test_random_bytes_equal_cpu(text):
    assert_same(text, checked=True, schedule=2)


@pytest.mark.parametrize("n", [31, 32, 33, 8191, 8192, 8193])
def test_sizes_around_a_mask_word_and_a_block(n):
    rng = np.random.default_rng(n)
    letters = rng.choice(np.frombuffer(b"ab .", np.uint8), n)
    for shift in (0, 1, 31):  # any address, any place in the buffer
        chars = np.concatenate([np.full(shift, ord("x"), np.uint8), letters])
        assert_same(TextColumn(chars, np.array([shift, shift + n // 3, shift + n], np.int64)))


def test_megabytes_without_a_separator():
    assert_same(TextColumn.from_texts([b"x" * 2_000_003, b"y"]))


@pytest.mark.parametrize("filler", ["\u00ad", "\u200d", "x", "é", "中", "\x80"])
def test_work_is_linear_whatever_a_text_consists_of(filler):
    """Memory accesses of both kernels that read text, counted by the checker."""

    def accesses(n: int) -> int:
        total = 0
        device = emulated(checked=True)

        def load(*args: object) -> object:
            module = device.load(*args)

            def counted(kernel: str) -> object:
                def launch(*launch_args: object) -> None:
                    nonlocal total
                    module.get_function(kernel)(*launch_args)
                    total += module.traffic()[0]

                return launch

            return SimpleNamespace(get_function=counted)

        body = b"\x80" if filler == "\x80" else filler.encode()
        run(replace(device, load=load), gpu.word_hashes, TextColumn.from_texts([b"a" + body * n + b"b c"]))
        return total

    assert accesses(20_000) < 2.2 * accesses(10_000)


def test_very_many_empty_documents():
    text = TextColumn(np.frombuffer(b"one two", np.uint8), np.array([0] * 200_000 + [3] * 100_000 + [7], np.int64))
    assert_same(text)
