"""CPU twin of `content_hash`: the xxhash library."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import xxhash

from gpu_curate.document import TextColumn


def content_hash(text: TextColumn) -> np.ndarray:
    """See `gpu_curate.ops.content_hash.content_hash`."""
    chars = np.ascontiguousarray(text.chars).data
    offsets = text.offsets.tolist()
    digest = xxhash.xxh3_128_digest  # big-endian: the high half first
    digests = b"".join([digest(chars[a:b]) for a, b in pairwise(offsets)])
    return np.frombuffer(digests, ">u8").reshape(-1, 2).astype(np.uint64)
