"""xxh3-64, seed 0: by the xxhash library, or where that is absent by functions of our own with the same digests.

Receipts of files and lists of blocked hosts are xxh3-64; the library may go. Ours reads 0.8 GB/s a core instead of 9 to 15,
and takes 3 s to compile once.

Source: Collet, XXH3 specification (doc/xxhash_spec.md of the xxHash project).
"""

from __future__ import annotations

try:
    from xxhash import xxh3_64, xxh3_64_intdigest
except ImportError:
    from gpu_curate.xxh3_own import Xxh3Of64 as xxh3_64  # type: ignore[assignment]
    from gpu_curate.xxh3_own import xxh3_64_intdigest  # type: ignore[assignment]

__all__ = ["xxh3_64", "xxh3_64_intdigest"]
