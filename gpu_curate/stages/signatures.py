"""Signatures: content hash, length, shingle count and band hashes of every document.

# N documents, H hashes, B bands
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from gpu_curate import lsh
from gpu_curate.ops.bands import BandSpec
from gpu_curate.ops.minhash import MinHashSpec
from gpu_curate.stages import Made, Stage
from gpu_curate.stages.documents.counts import DocumentCounts
from gpu_curate.stages.part import Part
from gpu_curate.stages.partition_text import text_hash
from gpu_curate.stages.sections import Fuzzy
from gpu_curate.stages.text_counts import TextCounts
from gpu_curate.store.receipts import Counts, Receipt


class Signatures(Stage):
    """Hash every document once; compare nothing.

    Reads: documents(text, group).  Writes: content_hi, content_lo uint64, bytes int64, n_shingles int64, scope uint64,
    band_00.. uint64; with `verify: signature` also signature, H uint32 a document.
    Disk: 8 * num_bands + 40 bytes a document (4 * num_hashes more with `verify: signature`).
    Memory: partition text, 4 * H + 8 * B bytes a document.  On the device: see ops.minhash.
    """

    name: ClassVar[str] = "signatures"
    counts: ClassVar[type[Counts]] = TextCounts
    follows: ClassVar[str | None] = "documents"
    on_device: ClassVar[bool] = True

    def __init__(self, fuzzy: Fuzzy | None):
        self.fuzzy = fuzzy

    def made_of(self, receipt: Receipt[Counts]) -> str:
        of = receipt.counts
        if self.fuzzy is not None and self.fuzzy.scope == "group" and isinstance(of, DocumentCounts):
            return f"{text_hash(receipt)}-{of.groups}"
        return text_hash(receipt)

    def settings(self) -> Any:
        fuzzy = self.fuzzy
        if fuzzy is None:
            return None
        keys = {"shingle_words", "num_bands", "rows_per_band", "seed", "family", "scope"}
        return {**fuzzy.model_dump(include=keys), "store_signature": fuzzy.verify == "signature"}

    def libraries(self) -> tuple[str, ...]:
        return ("xxhash",)

    def make(self, part: Part) -> Made:
        from gpu_curate.ops.bands import band_hashes

        fuzzy, documents = self.fuzzy, str(self.follows)
        plain = None if fuzzy is None else fuzzy_of(fuzzy)
        if fuzzy is not None and fuzzy.scope == "group":
            scope_N = scope_keys(part.read(documents, ["source", "group"]), fuzzy)
        else:
            scope_N = np.zeros(part.counts(documents, Counts).documents, np.uint64)
        made, how, more = part.compute(lambda text: lsh.hash_documents(text, plain, bands=not scope_N.any()))
        columns: dict[str, Any] = {
            "content_hi": made["content"][:, 0],
            "content_lo": made["content"][:, 1],
            "bytes": made["bytes"],
            "scope": scope_N,
        }
        if fuzzy is not None:
            columns["n_shingles"] = made["n_shingles"]
            bands_NB = made.get("bands")
            if bands_NB is None:
                bands_NB = band_hashes(made["signature"], band_spec(fuzzy), scope_N).T
            columns.update((lsh.band_column(b), bands_NB[:, b]) for b in range(fuzzy.num_bands))
            if fuzzy.verify == "signature":
                columns["signature"] = _fixed_width(made["signature"])
        table = pa.table({n: _column(c) for n, c in columns.items()})
        counts = TextCounts(documents=len(scope_N), bytes=int(made["bytes"].sum()), backend=how, **more)
        return Made(counts, table, options={"use_dictionary": False, "compression": "none"})


class ReferenceSignatures(Signatures):
    """Signatures of the sets that documents are compared with as wholes (`dedup_against`, `train_only`)."""

    name: ClassVar[str] = "reference_signatures"
    follows: ClassVar[str | None] = "references"


def _column(values: Any) -> Any:
    return np.ascontiguousarray(values) if isinstance(values, np.ndarray) else values


def _fixed_width(sig_NH: np.ndarray) -> pa.Array:
    rows = np.ascontiguousarray(sig_NH)
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(rows.shape[1] * 4), len(rows), [None, pa.py_buffer(rows)])


def band_spec(fuzzy: Fuzzy) -> BandSpec:
    return BandSpec(num_bands=fuzzy.num_bands, rows_per_band=fuzzy.rows_per_band)


def minhash_spec(fuzzy: Fuzzy) -> MinHashSpec:
    return MinHashSpec(
        shingle_words=fuzzy.shingle_words,
        num_hashes=fuzzy.num_bands * fuzzy.rows_per_band,
        seed=fuzzy.seed,
        family=fuzzy.family,
    )


def fuzzy_of(section: Fuzzy) -> lsh.Fuzzy:
    """`dedup.fuzzy` as plain values."""
    return lsh.Fuzzy(
        minhash_spec(section), band_spec(section), section.verify, section.verify_against, section.threshold
    )


def scope_keys(documents: pa.Table, fuzzy: Fuzzy | None) -> np.ndarray:
    """uint64 key of (source, group) with `scope: group`, else 0: documents of different keys never meet."""
    from gpu_curate.xxh3 import xxh3_64_intdigest

    n = documents.num_rows
    if fuzzy is None or fuzzy.scope == "global":
        return np.zeros(n, np.uint64)
    sources, groups = documents["source"].to_pylist(), documents["group"].to_pylist()
    known = {pair: xxh3_64_intdigest(repr(pair).encode()) | 1 for pair in set(zip(sources, groups, strict=True))}
    return np.array([known[pair] for pair in zip(sources, groups, strict=True)], np.uint64)
