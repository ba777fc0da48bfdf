"""GPU twin of `band_edges`: one sort per band of packed 64-bit keys, on the array library alone.

The key is the top bits of the band hash with the document number below them: one radix sort of 8 bytes brings the
documents of a bucket together in increasing order. Neighbours count as a pair only if their full hashes agree. Where the
top bits of different hashes are equal, which the comparison shows, those few documents are sorted once more by full hash.

# N documents, E candidate pairs
"""

from __future__ import annotations

import numpy as np

from gpu_curate.device.runtime import Device, Footprint, cuda
from gpu_curate.document import Array

FOOTPRINT = Footprint(0, 60)  # keys, their sort's second buffer, order, sorted hashes and comparisons


def band_edges(hash_N: Array, valid_N: Array = None, device: Device | None = None) -> tuple[Array, Array]:
    """See `gpu_curate.ops.components.band_edges`. Device memory: 60 bytes a document at most."""
    xp = (device or cuda()).xp
    n = len(hash_N)
    low = np.uint64((1 << max(n - 1, 1).bit_length()) - 1)  # bits that hold a document number
    key = (hash_N & ~low) | xp.arange(n, dtype=np.uint64)
    if valid_N is not None:
        key = key[valid_N]
    if len(key) < 2:
        return xp.zeros(0, np.int64), xp.zeros(0, np.int64)
    key.sort()
    doc, top = (key & low).astype(np.int64), key & ~low
    full = hash_N[doc]
    tied, equal = top[1:] == top[:-1], full[1:] == full[:-1]
    mixed = tied & ~equal
    if bool(mixed.any()):  # buckets whose top bits agree by chance: sorted apart, by full hash
        apart = xp.isin(top, xp.unique(top[:-1][mixed]))
        doc_m, full_m = doc[apart], full[apart]
        order = xp.lexsort(xp.stack([doc_m.astype(np.uint64), full_m]))
        doc_m, full_m = doc_m[order], full_m[order]
        chained = full_m[1:] == full_m[:-1]
        equal &= ~apart[1:]
        a_E = xp.concatenate([doc[:-1][equal], doc_m[:-1][chained]])
        b_E = xp.concatenate([doc[1:][equal], doc_m[1:][chained]])
    else:
        a_E, b_E = doc[:-1][equal], doc[1:][equal]
    order = xp.argsort(a_E) if len(a_E) else slice(None)
    return a_E[order], b_E[order]
