"""GPU twin of `minhash`: the order of launches.

    word_hashes     see ops/words/gpu.py
    hash_shingles   warp per tile             shingle hashes (when asked for)
    sign_tiles      warp per tile             signatures; several tiles of a document meet in atomicMin

A tile is at most 1024 shingles of one document. Shingles are made from word hashes where they are used and not stored.

# N documents, W words, S shingles, H hashes (rows), P pairs, T tiles
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gpu_curate.device.runtime import Device, Footprint, cuda
from gpu_curate.document import Array, TextColumn
from gpu_curate.ops.minhash import EMPTY_ROW, MinHashSpec
from gpu_curate.ops.words import gpu as words

TILE = 1024  # shingles, as in kernels.cu
MAX_LANE_ROWS = 12  # rows in a lane's registers; more rows take more passes
PAIRS_BYTES = 1 << 28  # scratch of `jaccard`


def footprint(spec: MinHashSpec) -> Footprint:
    """Device memory of `signatures`: that of the words, 4 bytes a row, and 8-byte counts (shingles, tiles, tile numbers)."""
    f = words.FOOTPRINT
    return Footprint(f.per_text_byte, f.per_document + 4 * spec.num_hashes + 48)


def signatures(text: TextColumn, spec: MinHashSpec, device: Device | None = None) -> tuple[Array, Array]:
    """See `gpu_curate.ops.minhash.signatures`.

    Device memory: `footprint(spec)`: 0.9 bytes a byte of text, 8 a word, 4 * H + 56 a document.
    """
    device = device or cuda()
    xp = device.xp
    hash_W, word_offsets = words.word_hashes(text, device)
    n_shingles_N, tile_doc_T, tiles_before = _tiles(word_offsets, spec.shingle_words, xp)
    sig_NH = xp.full((len(text), spec.num_hashes), EMPTY_ROW, np.uint32)
    passes = -(-spec.num_hashes // (16 * MAX_LANE_ROWS))
    lane_rows = -(-spec.num_hashes // (16 * passes))
    defines = (*_defines(spec), f"LANE_ROWS={lane_rows}")
    parameters = spec.parameters()
    if spec.family == "fmix64":
        parameters = parameters ^ parameters >> np.uint64(33)
    tiles = (tile_doc_T, tiles_before, np.int64(len(tile_doc_T)))
    args = (hash_W, word_offsets, *tiles, device.upload(parameters), np.int32(spec.num_hashes), sig_NH)
    device.launch("minhash", "sign_tiles", 32 * len(tile_doc_T), args, defines, rows=passes)
    return sig_NH, n_shingles_N


def shingles(text: TextColumn, spec: MinHashSpec, device: Device | None = None) -> tuple[Array, Array]:
    """See `gpu_curate.ops.minhash.shingles`.

    Device memory: that of `word_hashes`, 8 bytes a shingle, 56 a document.
    """
    device = device or cuda()
    xp = device.xp
    hash_W, word_offsets = words.word_hashes(text, device)
    n_shingles_N, tile_doc_T, tiles_before = _tiles(word_offsets, spec.shingle_words, xp)
    offsets = _offsets(n_shingles_N, xp)
    hash_S = xp.empty(int(offsets[-1]), np.uint64)
    tiles = (tile_doc_T, tiles_before, np.int64(len(tile_doc_T)))
    defines = (*_defines(spec), "LANE_ROWS=1")
    device.launch(
        "minhash", "hash_shingles", 32 * len(tile_doc_T), (hash_W, word_offsets, *tiles, offsets, hash_S), defines
    )
    return hash_S, offsets


def jaccard(sig_NH: Array, pairs_P2: Array, device: Device | None = None) -> Array:
    """See `gpu_curate.ops.minhash.jaccard`. Device memory: 256 MiB of scratch and 8 bytes a pair."""
    xp = (device or cuda()).xp
    out = xp.empty(len(pairs_P2), np.float64)
    step = max(1, PAIRS_BYTES // (9 * max(sig_NH.shape[1], 1)))  # two gathered rows and their comparison
    for i in range(0, len(pairs_P2), step):
        a_H, b_H = sig_NH[pairs_P2[i : i + step, 0]], sig_NH[pairs_P2[i : i + step, 1]]
        agree = (a_H == b_H).sum(axis=1) / np.float64(sig_NH.shape[1])
        out[i : i + step] = xp.where((a_H == EMPTY_ROW).all(axis=1) | (b_H == EMPTY_ROW).all(axis=1), 0.0, agree)
    return out


def jaccard_exact(hash_S: Array, offsets: Array, pairs_P2: Array, device: Device | None = None) -> Array:
    """See `gpu_curate.ops.minhash.jaccard_exact`. Device memory: 64 bytes a shingle."""
    device = device or cuda()
    xp, n = device.xp, len(offsets) - 1
    out = xp.zeros(len(pairs_P2), np.float64)
    if len(pairs_P2) == 0 or len(hash_S) == 0:
        return out
    doc_S = xp.searchsorted(offsets[1:], xp.arange(len(hash_S), dtype=np.int64), side="right")
    order = xp.lexsort(xp.stack([hash_S, doc_S.astype(np.uint64)]))  # by document, then hash
    hash_S, doc_S = hash_S[order], doc_S[order]
    first = xp.ones(len(hash_S), np.bool_)
    first[1:] = (hash_S[1:] != hash_S[:-1]) | (doc_S[1:] != doc_S[:-1])
    set_offsets = xp.searchsorted(doc_S[first], xp.arange(n + 1, dtype=np.int64), side="left")
    args = (hash_S[first], set_offsets, xp.ascontiguousarray(pairs_P2), np.int64(len(pairs_P2)), out)
    defines = ("SHINGLE_WORDS=1", "FAMILY=1", "LANE_ROWS=1")  # none of them matters to this kernel
    device.launch("minhash", "intersect_sets", 32 * len(pairs_P2), args, defines)
    return out


def _defines(spec: MinHashSpec) -> tuple[str, str]:
    return f"SHINGLE_WORDS={spec.shingle_words}", f"FAMILY={int(spec.family == 'affine')}"


def _tiles(word_offsets: Array, n: int, xp: Any) -> tuple[Array, Array, Array]:
    """Shingles of each document; the document of each tile; tiles before each document."""
    n_words = word_offsets[1:] - word_offsets[:-1]
    n_shingles_N = xp.where(n_words >= n, n_words - (n - 1), xp.minimum(n_words, 1))
    tiles_before = _offsets((n_shingles_N + (TILE - 1)) // TILE, xp)
    n_tiles = int(tiles_before[-1])
    tile_doc_T = xp.searchsorted(tiles_before[1:], xp.arange(n_tiles, dtype=np.int64), side="right")
    return n_shingles_N, tile_doc_T, tiles_before


def _offsets(counts: Array, xp: Any) -> Array:
    """int64 of N + 1: the sum of the counts before each."""
    offsets = xp.zeros(len(counts) + 1, np.int64)
    if len(counts):
        xp.cumsum(counts, out=offsets[1:])
    return offsets
