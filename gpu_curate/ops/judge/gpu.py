"""GPU twin of `judge`: a thread a word, over the word hashes that `text_stats` has made.

# N documents, W words, J judges
"""

from __future__ import annotations

import weakref

import numpy as np

from gpu_curate.device.runtime import Device, Footprint
from gpu_curate.document import Array
from gpu_curate.ops.judge import Tables

FOOTPRINT = Footprint(per_text_byte=0, per_document=8)  # beside that of text_stats; and the tables, once
_TYPES = {np.dtype(np.int8): "signed char", np.dtype(np.int16): "short"}

_uploaded: dict[int, tuple[Array, ...]] = {}  # id of live tables -> their arrays on the device


def sums(hash_W: Array, doc_W: Array, n_docs: int, tables: Tables, device: Device) -> Array:
    """sum_JN: int64.

    Args:
        hash_W, doc_W: uint64 and int32: hash and document of every word, documents in order.
    Device memory: 8 bytes a document and judge; the tables, kept while they live.
    """
    xp = device.xp
    sum_JN = xp.zeros((len(tables), n_docs), np.int64)
    if len(hash_W) and len(tables):
        weights, begin_J, bits_J, ngrams_J = _on_device(tables, device)
        place = (hash_W, np.int64(len(hash_W)), doc_W, np.int64(n_docs))
        models = (weights, begin_J, bits_J, ngrams_J, np.int32(len(tables)))
        defines = (f"WEIGHT={_TYPES[tables.weights.dtype]}",)
        device.launch("judge", "judge_words", len(hash_W), (*place, *models, sum_JN), defines)
    return sum_JN


def _on_device(tables: Tables, device: Device) -> tuple[Array, ...]:
    """The arrays that judge_words reads, uploaded once for each table."""
    if id(tables) not in _uploaded:
        arrays = (tables.weights, tables.begin_J, tables.bits_J, tables.ngrams_J)
        _uploaded[id(tables)] = tuple(device.upload(a) for a in arrays)
        weakref.finalize(tables, _uploaded.pop, id(tables), None)
    return _uploaded[id(tables)]
