"""GPU twin of `content_hash`.

    hash_short   thread per document     up to 240 bytes
    hash_long    warp per document       longer: one warp reads a document, so 50 MB take about 20 ms

# N documents
"""

from __future__ import annotations

import numpy as np

from gpu_curate.device.runtime import Device, Footprint, cuda
from gpu_curate.document import Array, TextColumn

SHORT_BYTES = 240  # the specification's border between its two families
FOOTPRINT = Footprint(0, 16 + 8 + 8 + 1)  # the result, lengths, numbers of long documents


def content_hash(text: TextColumn, device: Device | None = None) -> Array:
    """See `gpu_curate.ops.content_hash.content_hash`. Device memory: 33 bytes a document."""
    device = device or cuda()
    xp, n = device.xp, len(text)
    hash_N2 = xp.empty((n, 2), np.uint64)
    if n == 0:
        return hash_N2
    long = xp.flatnonzero(text.offsets[1:] - text.offsets[:-1] > SHORT_BYTES)
    args = (text.chars, np.int64(text.chars.size), text.offsets)
    device.launch("content_hash", "hash_short", n, (*args, np.int64(n), hash_N2))
    device.launch("content_hash", "hash_long", 32 * len(long), (*args, long, np.int64(len(long)), hash_N2))
    return hash_N2
