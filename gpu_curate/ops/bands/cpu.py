"""CPU twin of `bands`."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gpu_curate.jit import U64, njit
from gpu_curate.ops.bands import BandSpec
from gpu_curate.ops.mix import GOLDEN
from gpu_curate.ops.mix import fmix64 as fmix64_array
from gpu_curate.ops.simd import as_input, fmix64


@njit
def _hash_bands(
    sig_NH: NDArray[np.uint32],
    num_bands: int,
    rows_per_band: int,
    scope_N: NDArray[np.uint64],
    band_BN: NDArray[np.uint64],
) -> None:
    for d in range(sig_NH.shape[0]):
        scope = scope_N[d] if scope_N.size else U64(0)
        r = 0
        for b in range(num_bands):
            h = U64(b + 1) ^ scope
            for _ in range(rows_per_band):
                h = (h ^ U64(sig_NH[d, r])) * U64(GOLDEN)
                h ^= h >> U64(32)
                r += 1
            band_BN[b, d] = fmix64(h)


def band_hashes(sig_NH: np.ndarray, spec: BandSpec, scope_N: np.ndarray | None = None) -> np.ndarray:
    """See `gpu_curate.ops.bands.band_hashes`."""
    scope = np.zeros(0, np.uint64) if scope_N is None else fmix64_array(scope_N)  # fmix64(0) = 0: global stays global
    band_BN = np.empty((spec.num_bands, len(sig_NH)), np.uint64)
    _hash_bands(as_input(sig_NH), spec.num_bands, spec.rows_per_band, scope, band_BN)
    return band_BN
