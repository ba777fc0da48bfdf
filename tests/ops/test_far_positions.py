"""Positions and products beyond 2^31 and 2^32, on address space alone: only the pages that a kernel touches exist."""

from __future__ import annotations

import mmap
import sys

import numpy as np
import pytest
from cudasim.module import EmulatedModule, available

from gpu_curate.device.runtime import source
from gpu_curate.ops.bands import BandSpec
from gpu_curate.ops.bands.cpu import band_hashes
from gpu_curate.ops.text_stats import character_classes
from gpu_curate.ops.text_stats.gpu import DEFINES
from gpu_curate.ops.words import fold_table

pytestmark = pytest.mark.skipif(not available(), reason="no C++ compiler: the emulator compiles kernels with g++")
BLOCK = 256


def far(n: int, dtype: type) -> np.ndarray:
    """An array of n zeros that takes no memory until it is written."""
    no_reserve = 0x4000 if sys.platform == "linux" else 0  # MAP_NORESERVE, which the module names from Python 3.13 on
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | no_reserve
    try:
        return np.frombuffer(mmap.mmap(-1, n * np.dtype(dtype).itemsize, flags=flags), dtype)
    except (OSError, ValueError, MemoryError):
        pytest.skip("not so much address space")


TAIL = "one two é thr ".encode() * 9


def marks(kernel: str, n_bytes: int, tail: bytes) -> tuple[np.ndarray, np.ndarray]:
    """Starts and counts of the last groups of a text of zeros that ends in `tail`, by a kernel that marks them."""
    chars = far(n_bytes, np.uint8)
    head = chars.ctypes.data % 32
    assert head == 0
    chars[n_bytes - len(tail) :] = np.frombuffer(tail, np.uint8)
    groups = n_bytes // 32
    starts, counts, doc_starts = far(groups, np.uint32), far(groups, np.uint8), far(groups + 2, np.uint32)
    place = (np.int64(0), np.int64(0), np.int64(n_bytes), np.int64(groups))
    more = far(groups + 2, np.uint32)
    if kernel == "mark_words":
        module = EmulatedModule(source("words"), "words.cu")
        args = (chars, doc_starts, *place, *fold_table(), starts, counts, more)
    elif kernel == "mark_spaces":
        module = EmulatedModule(source("text_stats"), "text_stats.cu", DEFINES)
        args = (chars, doc_starts, *place, *character_classes(), more, starts, counts)
    else:
        module = EmulatedModule(source("text_stats"), "text_stats.cu", DEFINES)
        args = (chars, doc_starts, *place, starts, counts)
    blocks = -(-groups // BLOCK)
    module.get_function(kernel)((blocks,), (BLOCK,), args, only=(blocks - 1, 1))
    return np.array(starts[-4:]), np.array(counts[-4:])


@pytest.mark.parametrize("kernel", ["mark_words", "mark_spaces", "mark_lines"])
@pytest.mark.parametrize("n_bytes", [(1 << 31) + (1 << 13), (1 << 32) + (1 << 13)])
def test_a_text_beyond_2_to_the_31_bytes_is_marked_like_a_short_one(kernel, n_bytes):
    tail = TAIL.replace(b"two ", b"two\n")
    near = marks(kernel, 1 << 13, tail)
    for got, expected in zip(marks(kernel, n_bytes, tail), near, strict=True):
        np.testing.assert_array_equal(got, expected)
    assert near[1].any()


def test_a_document_that_starts_beyond_2_to_the_31_bytes_is_marked():
    n_bytes = (1 << 32) + (1 << 13)
    offsets = np.array([0, n_bytes - 100, n_bytes - 31], np.int64)
    doc_starts = far(n_bytes // 32 + 2, np.uint32)
    module = EmulatedModule(source("words"), "words.cu")
    module.get_function("mark_documents")((1,), (BLOCK,), (offsets, np.int64(2), np.int64(0), doc_starts))
    place = n_bytes - 100
    assert doc_starts[place >> 5] == 1 << (place & 31)


def test_band_hashes_of_more_documents_than_32_bits_count_with_the_bands():
    """Band 13 of document 330 million is element 4.6 billion of the result."""
    n, spec = 330_000_000, BandSpec()
    signatures, bands = far(n * spec.num_hashes, np.uint32), far(n * spec.num_bands, np.uint64)
    own = np.random.default_rng(1).integers(0, 2**32, (BLOCK, spec.num_hashes), dtype=np.uint32)
    blocks = -(-n // BLOCK)
    first = (blocks - 1) * BLOCK
    signatures[first * spec.num_hashes :] = own[: n - first].ravel()
    module = EmulatedModule(source("bands"), "bands.cu")
    args = (signatures, np.int64(n), np.int32(spec.num_hashes), np.int32(spec.rows_per_band))
    args = (*args, bands, np.int32(0), bands)
    for band in (0, 6, spec.num_bands - 1):
        only = (band * blocks + blocks - 1, 1)
        module.get_function("hash_bands")((blocks, spec.num_bands), (BLOCK,), args, only=only)
        expected = band_hashes(own[: n - first], spec)[band]
        np.testing.assert_array_equal(bands[band * n + first : (band + 1) * n], expected)
