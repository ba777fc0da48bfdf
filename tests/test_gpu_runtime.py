"""Batches, out-of-memory, footprints: the device side of the ops, on NumPy and the emulator."""

from __future__ import annotations

import mmap
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from cudasim.columns import text
from cudasim.device import DeviceArray, download, emulated, run, upload
from cudasim.module import available

from gpu_curate.device import runtime as gpu_runtime
from gpu_curate.document import TextColumn
from gpu_curate.errors import DeviceError, InputError
from gpu_curate.ops.content_hash import gpu as content_hash_gpu
from gpu_curate.ops.minhash import MinHashSpec
from gpu_curate.ops.minhash import cpu as minhash_cpu
from gpu_curate.ops.minhash import gpu as minhash_gpu
from gpu_curate.ops.text_stats import gpu as text_stats_gpu
from gpu_curate.ops.words import gpu as words_gpu

needs_compiler = pytest.mark.skipif(not available(), reason="no C++ compiler: the emulator compiles kernels with g++")
RNG = np.random.default_rng(2)


class DeviceFull(Exception):
    """Stands in for cupy.cuda.memory.OutOfMemoryError."""


def device_of(limit_bytes: int, released: list[int] | None = None) -> tuple[gpu_runtime.Device, object]:
    """A device, and an op that runs out of memory on more than `limit_bytes` of text."""

    def lengths(column: TextColumn) -> tuple[np.ndarray, np.ndarray]:
        if column.nbytes > limit_bytes:
            raise DeviceFull(f"{column.nbytes} bytes")
        n = np.diff(column.offsets)
        return n, np.stack([n, -n], axis=1)

    release = (lambda: released.append(1)) if released is not None else (lambda: None)
    return gpu_runtime.Device(np, None, None, (DeviceFull,), release), lengths


@pytest.mark.parametrize("limit", [1, 3, 10, 100])
@pytest.mark.parametrize("sizes", [[], [0], [1], [1, 1, 1, 1, 1], [0, 0, 1, 0, 0, 1, 0], [0] * 9 + [1], [1] + [0] * 9])
def test_halves_until_it_fits(limit, sizes):
    column = TextColumn.from_texts([b"x" * n for n in sizes])
    device, op = device_of(limit)
    n, pair = gpu_runtime.in_batches(column, op, device)
    assert n.tolist() == sizes
    assert pair[:, 1].tolist() == [-s for s in sizes]


def test_memory_is_released_before_each_retry():
    released: list[int] = []
    device, op = device_of(1, released)
    gpu_runtime.in_batches(TextColumn.from_texts(["a", "b", "c", "d"]), op, device)
    assert len(released) == 3  # 4 -> 2 + 2 -> 1 + 1 + 1 + 1


def test_one_document_that_does_not_fit_is_a_device_error():
    device, op = device_of(10)
    with pytest.raises(DeviceError, match="document of 11 bytes"):
        gpu_runtime.in_batches(TextColumn.from_texts(["a", "b" * 11, "c"]), op, device)


def test_other_errors_are_not_retried():
    device, _ = device_of(1)

    def broken(column: TextColumn) -> tuple[np.ndarray]:
        raise ValueError("a bug")

    with pytest.raises(ValueError, match="a bug"):
        gpu_runtime.in_batches(TextColumn.from_texts(["a", "b"]), broken, device)


@needs_compiler
def test_split_signatures_equal_whole_ones():
    column, spec = TextColumn.from_texts([text(RNG, int(n)) for n in RNG.integers(0, 60, 30)]), MinHashSpec()
    device = replace(emulated(), out_of_memory=(DeviceFull,))

    def sign(part: TextColumn) -> tuple[np.ndarray, np.ndarray]:
        if len(part) > 4:
            raise DeviceFull
        return minhash_gpu.signatures(upload(part), spec, device)

    for got, expected in zip(
        gpu_runtime.in_batches(column, sign, device), minhash_cpu.signatures(column, spec), strict=True
    ):
        np.testing.assert_array_equal(got, expected)


def test_to_device_takes_only_its_own_bytes():
    column = TextColumn.from_texts(["skipped", "one", "", "two", "skipped"]).slice(1, 4)
    device, _ = device_of(0)
    moved = gpu_runtime.to_device(column, device)
    assert moved.chars.tobytes() == b"onetwo"
    assert moved.offsets.tolist() == [0, 3, 3, 6]


@needs_compiler
@pytest.mark.parametrize("documents", [[b"word " * 60] * 400, [b"a b c d e f g h\n"] * 4000, [b""] * 5000])
@pytest.mark.parametrize(
    ("op", "stated", "word_bytes"),
    [
        (lambda c: minhash_gpu.signatures(c, MinHashSpec(), emulated()), minhash_gpu.footprint(MinHashSpec()), 8),
        (lambda c: text_stats_gpu.text_stats(c, emulated()), text_stats_gpu.FOOTPRINT, 52),
        (lambda c: content_hash_gpu.content_hash(c, emulated()), content_hash_gpu.FOOTPRINT, 0),
    ],
    ids=["signatures", "text_stats", "content_hash"],
)
def test_device_memory_stays_within_the_stated_footprint(documents, op, stated, word_bytes):
    """Stated for English with 0.17 words a byte; a text with more takes `word_bytes` for each of them."""
    column = TextColumn.from_texts(documents)
    word_share = sum(len(d.split()) for d in documents) / max(column.nbytes, 1)
    stated = stated._replace(per_text_byte=stated.per_text_byte + word_bytes * max(word_share - 0.17, 0))
    on_device = upload(column)
    op(on_device)  # compiles
    tracemalloc.start()
    op(on_device)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak <= stated.of(column.nbytes, len(column))
    assert peak > 0.3 * (stated.of(column.nbytes, len(column)) - stated.fixed)  # and it is not stated idly


def test_footprint_of_a_partition():
    assert words_gpu.FOOTPRINT.of(256 << 20, 80_000) < 4 * (256 << 20)
    assert words_gpu.FOOTPRINT.of(0, 0) == words_gpu.FOOTPRINT.fixed


@pytest.mark.parametrize("offsets", [[0, 5, 3, 9], [-1, 3], [0, 11]])
def test_offsets_that_decrease_or_leave_the_buffer_never_reach_a_kernel(offsets):
    with pytest.raises(InputError, match="offsets decrease or leave"):
        TextColumn(np.zeros(10, np.uint8), np.array(offsets, np.int64))


@needs_compiler
def test_positions_are_64_bit():
    """A column that begins above 2^31 in its buffer: the buffer is address space only, of which one page is touched."""
    start = (1 << 32) + 7
    try:
        chars = np.frombuffer(mmap.mmap(-1, start + 4096), np.uint8)
    except (OSError, ValueError, MemoryError):
        pytest.skip("no 4 GiB of address space")
    chars[start - 3 : start + 11] = np.frombuffer(b"xx one two thr", np.uint8)
    column = TextColumn(chars, np.array([start, start + 4, start + 9], np.int64))
    column = TextColumn(chars.view(DeviceArray), column.offsets.view(DeviceArray))  # not copied
    hashes, offsets = download(words_gpu.word_hashes(column, emulated()))
    expected = run(emulated(), words_gpu.word_hashes, TextColumn.from_texts([b"one ", b"two t"]))
    np.testing.assert_array_equal(hashes, expected[0])
    np.testing.assert_array_equal(offsets, expected[1])
