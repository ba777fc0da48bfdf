"""GPU twin of `ngrams`.

    word_hashes    see ops/words/gpu.py
    find_ngrams    thread per word      hits in any order and with repeats; sorted and made unique afterwards

# G distinct n-grams of the index, N documents, W words, M hits
"""

from __future__ import annotations

import weakref

import numpy as np

from gpu_curate.device.runtime import Device, Footprint, cuda
from gpu_curate.document import Array, TextColumn, is_cupy
from gpu_curate.ops.mix import GOLDEN
from gpu_curate.ops.ngrams import NgramIndex
from gpu_curate.ops.words import gpu as words

FOOTPRINT = Footprint(words.FOOTPRINT.per_text_byte, words.FOOTPRINT.per_document)  # and the index, 100 bytes a hit
MIN_HITS = 1 << 16  # room for hits on the first try

_uploaded: dict[int, tuple[Array, ...]] = {}  # id of a live index -> its arrays on the device


def probe(text: TextColumn, index: NgramIndex, device: Device | None = None) -> tuple[Array, Array]:
    """See `gpu_curate.ops.ngrams.probe`.

    Device memory: that of `word_hashes`, 14 bytes an n-gram of the index (kept while the index lives), 100 a hit.
    """
    device = device or cuda()
    xp, n_grams = device.xp, len(index.gram_G)
    if n_grams == 0 or len(text) == 0:
        return xp.zeros(0, np.int64), xp.zeros(0, np.int64)
    hash_W, word_offsets = words.word_hashes(text, device)
    width_K, start_K, bit_filter, directory, gram_G = _on_device(index, device)
    words_of = (hash_W, np.int64(len(hash_W)), word_offsets, np.int64(len(text)))
    looked_for = (width_K, start_K, np.int32(len(width_K)), bit_filter, directory, np.int32(index.filter_bits), gram_G)
    capacity = MIN_HITS
    while True:  # twice at most: the first try counts all hits, also those it has no room for
        count, doc, gram = xp.zeros(1, np.uint64), xp.empty(capacity, np.int64), xp.empty(capacity, np.int64)
        device.launch(
            "ngrams", "find_ngrams", len(hash_W), (*words_of, *looked_for, count, np.int64(capacity), doc, gram)
        )
        hits = int(count[0])
        if hits <= capacity:
            break
        capacity = hits
    if hits == 0:
        return xp.zeros(0, np.int64), xp.zeros(0, np.int64)
    key = xp.unique(doc[:hits] * n_grams + gram[:hits])  # below 2^63: documents of a partition times n-grams
    return key // n_grams, key % n_grams


def coverage(
    hits: tuple[Array, Array], index: NgramIndex, n_docs: int, device: Device | None = None
) -> tuple[Array, Array, Array]:
    """See `gpu_curate.ops.ngrams.coverage`. Hits are few and the index lies on the host: the CPU twin does it there."""
    from gpu_curate.ops.ngrams import cpu

    device = device or cuda()
    host = tuple(a.get() if is_cupy(a) else a for a in hits)
    return tuple(device.upload(a) for a in cpu.coverage(host, index, n_docs))


def _on_device(index: NgramIndex, device: Device) -> tuple[Array, ...]:
    """The arrays that find_ngrams reads, uploaded once for each index."""
    if id(index) not in _uploaded:
        starts = [int(w) * pow(GOLDEN, int(w), 1 << 64) % (1 << 64) for w in index.width_K]
        arrays = (index.width_K, np.array(starts, np.uint64), index.filter, index.directory, index.gram_G)
        _uploaded[id(index)] = tuple(device.upload(a) for a in arrays)
        weakref.finalize(index, _uploaded.pop, id(index), None)
    return _uploaded[id(index)]
