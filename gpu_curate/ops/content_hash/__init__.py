"""Content hash: xxh3-128 (seed 0) of a document's bytes: its identity in exact deduplication, shuffle and split.

int(digest) = hi << 64 | lo, as the xxhash library's `xxh3_128_intdigest` gives it. With 10^10 different texts the chance
of any collision is 1.5e-19.

Source: Collet, xxHash, XXH3 specification (doc/xxhash_spec.md of that project).

# N documents
"""

from __future__ import annotations

from gpu_curate.document import Array, TextColumn
from gpu_curate.ops import twin


def content_hash(text: TextColumn) -> Array:
    """xxh3-128 of every document.

    Args:
        text: N documents, any bytes; an empty one has the hash of no bytes.
    Returns:
        hash_N2: uint64 of (N, 2): hi, lo.
    Memory: 16 * N bytes.
    """
    return twin("content_hash", text.on_gpu).content_hash(text)
