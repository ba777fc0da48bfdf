"""Text to signatures and bands with one NumPy operation a step: the definition as a user of NumPy would write it.

Slow (7 MB/s a core) and not used by a run. `gpu-curate compare` and scripts/bench/minhash.py measure the twins against
it, and require equal integers. Texts are well-formed strings here, so rule 1 of `words` has nothing to do.

# N documents, H hashes, B bands
"""

from __future__ import annotations

import numpy as np

from gpu_curate.ops.bands import BandSpec
from gpu_curate.ops.minhash import EMPTY_ROW, MinHashSpec
from gpu_curate.ops.mix import GOLDEN, fmix64
from gpu_curate.ops.words import SEPARATOR, SKIP, TABLE_LIMIT, UNSPACED, fold_table

_A, _B, _C = (np.uint64(k) for k in (GOLDEN, 0xC2B2AE3D27D4EB4F, 0xD6E8FEB86659FD93))
_U32 = np.uint64(32)
LONG_WORD = 256  # bytes; a matrix as wide as a document's longest word would not end if that were megabytes


class FoldTable(dict[int, str]):
    """For str.translate: the table of `words`, looked up once a code point."""

    def __init__(self) -> None:
        self.stage1, self.stage2 = fold_table()

    def __missing__(self, cp: int) -> str:
        if cp < TABLE_LIMIT:
            entry = int(self.stage2[int(self.stage1[cp >> 8]) * 256 + (cp & 255)])
        else:
            entry = (SKIP if 0xE0000 <= cp < 0xE1000 else SEPARATOR) << 24
        kind, folded = entry >> 24, chr((cp + entry) & 0xFFFFFF)
        if kind == SEPARATOR:
            folded = " "
        elif kind == UNSPACED:
            folded = f" {folded} "
        elif kind == SKIP:
            folded = ""
        self[cp] = folded
        return folded


def hash_words(words: list[str]) -> np.ndarray:
    """uint64 hash of every word, already folded; at least one."""
    encoded = [word.encode() for word in words]
    size = np.fromiter(map(len, encoded), np.int64, len(encoded))
    if len(words) > 1 and int(size.max()) > LONG_WORD:
        hash_W = np.empty(len(words), np.uint64)
        short = np.flatnonzero(size <= LONG_WORD)
        if len(short):
            hash_W[short] = hash_words([words[i] for i in short])
        for i in np.flatnonzero(size > LONG_WORD):
            hash_W[i] = hash_words([words[i]])[0]
        return hash_W
    width = -(-int(size.max()) // 16) * 16
    step = np.array(encoded, f"S{width}").view(np.uint64).reshape(len(words), -1)
    h = np.zeros(len(words), np.uint64)
    for k in range(width // 16):
        u = (step[:, 2 * k] ^ h) * _A
        u ^= u >> _U32
        v = step[:, 2 * k + 1] * _B
        v ^= v >> np.uint64(29)
        new = (u + v) * _C
        new ^= new >> _U32
        h = new if k == 0 else np.where(size > 16 * k, new, h)
    return h


def signatures(texts: list[str], spec: MinHashSpec) -> np.ndarray:
    """sig_NH: uint32. Memory: 4 * H bytes a shingle of the longest document (8 with `fmix64`)."""
    fold, parameters = FoldTable(), spec.parameters()
    sig_NH = np.full((len(texts), spec.num_hashes), EMPTY_ROW, np.uint32)
    for d, text in enumerate(texts):
        words = text.translate(fold).split(" ")
        words = [word for word in words if word]
        if not words:
            continue
        w = hash_words(words)
        width = min(len(w), spec.shingle_words)
        count = len(w) - width + 1
        x = np.full(count, width, np.uint64)
        for k in range(width):
            x = x * _A + w[k : k + count]
        x = fmix64(x)
        if spec.family == "affine":
            low, high = x.astype(np.uint32), (x >> _U32).astype(np.uint32)
            sig_NH[d] = (low[:, None] * parameters.astype(np.uint32) + high[:, None]).min(axis=0)
        else:
            sig_NH[d] = (fmix64(x[:, None] ^ parameters) >> _U32).min(axis=0)
    return sig_NH


def band_hashes(sig_NH: np.ndarray, spec: BandSpec) -> np.ndarray:
    """band_BN: uint64, of documents that are all in one scope."""
    h = np.repeat(np.arange(1, spec.num_bands + 1, dtype=np.uint64)[:, None], len(sig_NH), axis=1)
    for r in range(spec.rows_per_band):
        h = (h ^ sig_NH[:, r : spec.num_hashes : spec.rows_per_band].T) * _A
        h ^= h >> _U32
    return fmix64(h)
