"""Does the GPU of this machine give the integers of the CPU? Every op with two twins, on a small text or on any other.

for result in self_test():
    print(result.op, result.difference or "equal")
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from gpu_curate.document import TextColumn, is_cupy
from gpu_curate.gpu_runtime import Device, cuda, to_device
from gpu_curate.ops.bands import BandSpec
from gpu_curate.ops.bands import cpu as bands_cpu
from gpu_curate.ops.bands import gpu as bands_gpu
from gpu_curate.ops.components import cpu as components_cpu
from gpu_curate.ops.components import gpu as components_gpu
from gpu_curate.ops.content_hash import gpu as content_hash_gpu
from gpu_curate.ops.minhash import MinHashSpec
from gpu_curate.ops.minhash import cpu as minhash_cpu
from gpu_curate.ops.minhash import gpu as minhash_gpu
from gpu_curate.ops.ngrams import NgramIndex
from gpu_curate.ops.ngrams import cpu as ngrams_cpu
from gpu_curate.ops.ngrams import gpu as ngrams_gpu
from gpu_curate.ops.text_stats import cpu as text_stats_cpu
from gpu_curate.ops.text_stats import gpu as text_stats_gpu
from gpu_curate.ops.words import cpu as words_cpu
from gpu_curate.ops.words import gpu as words_gpu

SPEC, FMIX, BANDS = MinHashSpec(), MinHashSpec(family="fmix64"), BandSpec()

# Prose, scripts with and without spaces, skipped and ill-formed bytes, repetition, and documents of no and of one byte.
DOCUMENTS = [
    b"The quick brown fox jumps over the lazy dog. The quick brown fox jumps over the lazy cat.\n\n- and so on ...\n"
    * 9,
    "Ünïcode naïve café ΦΘΣ Straße 你好世界 かな ไทย soft\u00adhyphen \u2022 \u2026\n".encode() * 20,
    b"ab\xc3 \xed\xa0\x80 \xf0\x9f\x98 \x80\xff lone bytes {lorem ipsum} Use Cookies.",
    b"",
    b"a",
    b"x" * 3000,
    b"one two three four five " * 300,
]


class Result(NamedTuple):
    """`difference`: None if both twins gave the same, else where they first differ."""

    op: str
    difference: str | None


def self_test(device: Device | None = None) -> list[Result]:
    """Compare every op on DOCUMENTS; about a second, and a few more to compile the kernels the first time.

    Raises:
        DeviceError: there is no device.
    """
    device = device or cuda()
    column = TextColumn.from_texts(DOCUMENTS)
    results = comparisons(column, to_device(column, device), device)
    return [Result(op, first_difference(got, expected)) for op, got, expected in results]


def comparisons(column: TextColumn, on_device: TextColumn, device: Device) -> Iterator[tuple[str, Any, Any]]:
    """(op, arrays of the GPU twin, arrays of the CPU twin) for a column and its copy on the device."""
    yield "words", words_gpu.word_hashes(on_device, device), words_cpu.word_hashes(column)
    for spec in (SPEC, FMIX):
        sig, n = minhash_gpu.signatures(on_device, spec, device)
        expected_sig, expected_n = minhash_cpu.signatures(column, spec)
        yield f"minhash {spec.family}", (sig, n), (expected_sig, expected_n)
    yield "shingles", minhash_gpu.shingles(on_device, SPEC, device), minhash_cpu.shingles(column, SPEC)
    scope = np.arange(len(column), dtype=np.uint64) % np.uint64(3)
    bands = bands_gpu.band_hashes(sig, BANDS, device.upload(scope), device)
    expected_bands = bands_cpu.band_hashes(expected_sig, BANDS, scope)
    yield "bands", (bands,), (expected_bands,)
    valid = expected_n > 0
    edges = components_gpu.band_edges(bands[0], device.upload(valid), device)
    yield "band_edges", edges, components_cpu.band_edges(expected_bands[0], valid)
    digests = xxh3_128(column)
    if digests is not None:
        yield "content_hash", (content_hash_gpu.content_hash(on_device, device),), (digests,)
    items = TextColumn.from_texts([column.raw(i)[:3000] for i in range(0, len(column), max(1, len(column) // 50))])
    index = NgramIndex.build(items, 13)
    hits, expected_hits = ngrams_gpu.probe(on_device, index, device), ngrams_cpu.probe(column, index)
    yield "ngrams", hits, expected_hits
    covered = ngrams_gpu.coverage(hits, index, len(column), device)
    yield "coverage", covered, ngrams_cpu.coverage(expected_hits, index, len(column))
    yield "text_stats", (text_stats_gpu.text_stats(on_device, device),), (text_stats_cpu.text_stats(column),)


def xxh3_128(column: TextColumn) -> np.ndarray | None:
    """Digests by the xxhash library; None where it is not installed."""
    try:
        from gpu_curate.ops.content_hash import cpu
    except ImportError:
        return None
    return cpu.content_hash(column)


def first_difference(got: tuple[Any, ...], expected: tuple[Any, ...]) -> str | None:
    """Where two tuples of arrays first differ, in words; None if they are equal in type, shape and every element."""
    for k, (g, e) in enumerate(zip(got, expected, strict=True)):
        g = to_host(g)
        if g.shape != e.shape or g.dtype != e.dtype:
            return f"array {k}: {g.dtype} {g.shape} instead of {e.dtype} {e.shape}"
        if not np.array_equal(g, e):
            at = tuple(int(i) for i in np.argwhere(g != e)[0])
            return f"array {k} at {at}: {g[at]} instead of {e[at]}"
    return None


def to_host(array: Any) -> np.ndarray:
    return array.get() if is_cupy(array) else array
