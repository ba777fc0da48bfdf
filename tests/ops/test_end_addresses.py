"""No kernel reads behind its buffers, wherever the last byte of a text lies: all 32 places in a group of 32 bytes.

A read whose value is not used faults all the same where a mapped page ends. The checker sees every one.
"""

from __future__ import annotations

import numpy as np
import pytest
from cudasim.device import DeviceArray, download, emulated
from cudasim.module import available

from gpu_curate.document import TextColumn
from gpu_curate.ops.content_hash import cpu as content_hash_cpu
from gpu_curate.ops.content_hash import gpu as content_hash_gpu
from gpu_curate.ops.minhash import MinHashSpec
from gpu_curate.ops.minhash import cpu as minhash_cpu
from gpu_curate.ops.minhash import gpu as minhash_gpu
from gpu_curate.ops.text_stats import cpu as stats_cpu
from gpu_curate.ops.text_stats import gpu as stats_gpu
from gpu_curate.ops.words import cpu as words_cpu
from gpu_curate.ops.words import gpu as words_gpu

pytestmark = pytest.mark.skipif(not available(), reason="no C++ compiler: the emulator compiles kernels with g++")

# Words whose last step of 16 bytes, last 32 bytes of ASCII, last code point or last line ends the text.
TEXTS = (
    b"x" * 64,
    b"x" * 16,
    b"a b " + b"y" * 60,
    "é".encode() * 40,
    b"one two\n" + b"z" * 32,
    "漢".encode() * 11,
    b"w" * 31 + b"\xe2\x80",
    b"a  \n\n",
)
OPS = {
    "words": (words_gpu.word_hashes, words_cpu.word_hashes),
    "text_stats": (stats_gpu.text_stats, stats_cpu.text_stats),
    "signatures": (lambda t, d: minhash_gpu.signatures(t, SPEC, d), lambda t: minhash_cpu.signatures(t, SPEC)),
    "shingles": (lambda t, d: minhash_gpu.shingles(t, SPEC, d), lambda t: minhash_cpu.shingles(t, SPEC)),
    "content_hash": (content_hash_gpu.content_hash, content_hash_cpu.content_hash),
}
SPEC = MinHashSpec(shingle_words=1, num_hashes=16)


def ending_at(text: bytes, place: int, on_device: bool) -> TextColumn:
    """A column of one document, whose end is `place` bytes above a multiple of 32, and with it its buffer."""
    room = np.zeros(len(text) + 96, np.uint8)
    start = (place - len(text) - room.ctypes.data) % 32
    chars = room[start : start + len(text)]
    chars[:] = np.frombuffer(text, np.uint8)
    assert (chars.ctypes.data + len(text)) % 32 == place
    offsets = np.array([0, len(text)], np.int64)
    return TextColumn(chars.view(DeviceArray), offsets.view(DeviceArray)) if on_device else TextColumn(chars, offsets)


@pytest.mark.parametrize("op", OPS)
def test_nothing_is_read_behind_the_end_of_a_text(op):
    on_device, on_host = OPS[op]
    device = emulated(checked=True)
    for text in TEXTS:
        expected = on_host(ending_at(text, 0, False))
        for place in range(32):
            got = download(on_device(ending_at(text, place, True), device))
            pairs = zip(got, expected, strict=True) if isinstance(got, tuple) else [(got, expected)]
            for g, e in pairs:
                np.testing.assert_array_equal(g, e, err_msg=f"{text!r}, end at {place} of 32")
