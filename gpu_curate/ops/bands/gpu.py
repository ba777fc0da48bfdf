"""GPU twin of `bands`.

# N documents, H hashes (rows), B bands, R rows per band
"""

from __future__ import annotations

import numpy as np

from gpu_curate.device.runtime import Device, Footprint, cuda
from gpu_curate.document import Array
from gpu_curate.ops.bands import BandSpec

MAX_GRID_ROWS = 65535  # CUDA's limit of a grid's second dimension


def footprint(spec: BandSpec) -> Footprint:
    """Device memory of `band_hashes`: the result."""
    return Footprint(0, 8 * spec.num_bands)


def band_hashes(sig_NH: Array, spec: BandSpec, scope_N: Array = None, device: Device | None = None) -> Array:
    """See `gpu_curate.ops.bands.band_hashes`. Device memory: 8 * B bytes a document."""
    device = device or cuda()
    n = len(sig_NH)
    band_BN = device.xp.empty((spec.num_bands, n), np.uint64)
    assert spec.num_bands <= MAX_GRID_ROWS
    args = (
        device.xp.ascontiguousarray(sig_NH),
        np.int64(n),
        np.int32(sig_NH.shape[1]),
        np.int32(spec.rows_per_band),
        band_BN if scope_N is None else device.xp.ascontiguousarray(scope_N),
        np.int32(scope_N is not None),
        band_BN,
    )
    device.launch("bands", "hash_bands", n, args, rows=spec.num_bands)
    return band_BN
