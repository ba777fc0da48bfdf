"""The hashes by which duplicates are found, and the settings that they depend on.

# N documents, H hashes, B bands
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from gpu_curate.document import TextColumn
from gpu_curate.ops.bands import BandSpec, band_hashes
from gpu_curate.ops.content_hash import content_hash
from gpu_curate.ops.minhash import MinHashSpec, signatures
from gpu_curate.ops.mix import fmix64

Hashes = NDArray[np.uint64]


@dataclass(frozen=True)
class Fuzzy:
    """What near-duplicates are found by. The fields are those of `dedup.fuzzy` in a recipe."""

    minhash: MinHashSpec
    bands: BandSpec
    verify: Literal["none", "signature", "exact"] = "none"
    verify_against: Literal["pair", "survivor"] = "survivor"
    threshold: float = 0.7

    @property
    def by_pair(self) -> bool:
        return self.verify != "none" and self.verify_against == "pair"

    @property
    def by_survivor(self) -> bool:
        return self.verify != "none" and self.verify_against == "survivor"


def content_key(content_hi_N: Hashes, scope_N: Hashes | None) -> Hashes:
    """uint64: documents of equal content, and scope, have one; different ones have one by chance only."""
    key: Hashes = content_hi_N if scope_N is None else content_hi_N ^ fmix64(scope_N)
    return key


def hash_documents(
    text: TextColumn, fuzzy: Fuzzy | None, bands: bool, signed: tuple[Any, Any] | None = None
) -> dict[str, Any]:
    """Hashes of every document, computed where `text` lives.

    Args:
        text: N documents.
        fuzzy: None leaves out the signature.
        bands: hash the bands here, for documents of one scope.
        signed: what `signatures` gives, where it was made with something else.
    Returns:
        content uint64 (N, 2), bytes int64; with `fuzzy` n_shingles int64, and bands uint64 (N, B) or signature
        uint32 (N, H), both with `verify: signature`.
    """
    made = {"content": content_hash(text), "bytes": text.offsets[1:] - text.offsets[:-1]}
    if fuzzy is None:
        return made
    sig_NH, made["n_shingles"] = signatures(text, fuzzy.minhash) if signed is None else signed
    if bands:
        made["bands"] = band_hashes(sig_NH, fuzzy.bands).T
    if not bands or fuzzy.verify == "signature":
        made["signature"] = sig_NH
    return made
