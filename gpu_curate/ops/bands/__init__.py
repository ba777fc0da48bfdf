"""LSH bands: documents that agree in all rows of one band share its hash.

Definition, version 1 (arithmetic unsigned, wraps): band b (0..B - 1) is rows b * R .. b * R + R - 1 of the signature.
    h = b + 1, and h ^= fmix64(k) with a scope key k != 0
    h = (h ^ r) * 0x9E3779B97F4A7C15, h ^= h >> 32, for each row r
    band hash = fmix64(h)
Documents of different scope keys do not share a bucket: deduplication within a group.
A document without shingles has a band hash too (that of rows of 0xFFFFFFFF): the caller leaves it out, by n_shingles = 0.

Source: Leskovec, Rajaraman, Ullman, "Mining of Massive Datasets", section 3.4.

# N documents, H hashes (rows), B bands, R rows per band
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gpu_curate.document import Array, is_cupy
from gpu_curate.errors import ConfigError, InputError
from gpu_curate.ops import twin


@dataclass(frozen=True)
class BandSpec:
    """B bands of R rows.

    Raises:
        ConfigError: a number below 1.
    """

    num_bands: int = 14
    rows_per_band: int = 8

    def __post_init__(self) -> None:
        if self.num_bands < 1 or self.rows_per_band < 1:
            raise ConfigError(
                f"num_bands={self.num_bands}, rows_per_band={self.rows_per_band}: there is at least one of each"
            )

    @property
    def num_hashes(self) -> int:
        """Rows that a signature needs."""
        return self.num_bands * self.rows_per_band


def band_hashes(sig_NH: Array, spec: BandSpec, scope_N: Array = None) -> Array:
    """Band hashes of every document, band-major: a band is one contiguous row, ready to be sorted or written.

    Args:
        sig_NH: uint32; rows beyond B * R are not used.
        scope_N: uint64 scope key of each document (0 and None: global).
    Returns:
        band_BN: uint64 of shape (B, N), C order.
    Raises:
        ConfigError: fewer than B * R rows.
        InputError: dtype or length of scope_N.
    Memory: 8 * B * N bytes.
    """
    if sig_NH.dtype != np.uint32 or sig_NH.ndim != 2:
        raise InputError(f"signatures are uint32 of (N, H), got {sig_NH.dtype} of {sig_NH.shape}")
    if sig_NH.shape[1] < spec.num_hashes:
        raise ConfigError(
            f"num_bands={spec.num_bands} x rows_per_band={spec.rows_per_band} needs num_hashes={spec.num_hashes}, "
            f"got {sig_NH.shape[1]}"
        )
    if scope_N is not None and (scope_N.dtype != np.uint64 or scope_N.shape != sig_NH.shape[:1]):
        raise InputError(
            f"scope keys are uint64, one a document: got {scope_N.dtype} of {scope_N.shape} for {len(sig_NH)} documents"
        )
    return twin("bands", is_cupy(sig_NH)).band_hashes(sig_NH, spec, scope_N)


def s_curve(s: float | np.ndarray, spec: BandSpec) -> float | np.ndarray:
    """Probability that two documents of Jaccard similarity s (0..1) share at least one bucket: 1 - (1 - s^R)^B."""
    return 1 - (1 - s**spec.rows_per_band) ** spec.num_bands
