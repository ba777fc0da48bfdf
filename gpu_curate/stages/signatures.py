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
from gpu_curate.store.files import publish
from gpu_curate.store.receipts import Counts, Receipt

TABLES = ".buckets"  # suffix


class Signatures(Stage):
    """Hash every document once; compare nothing.

    Reads: documents(text, group).  Writes: content_hi, content_lo uint64, bytes int64, n_shingles int64, scope uint64; with
    `verify: signature` also signature, H uint32 a document. And part.buckets (see `buckets`): table 0 the content hashes of
    documents with text, table 1 + b the hashes of band b of those with a shingle. With `scope: group` and reference sets to
    compare with, the same tables once more without the scope, for items stand in no group.
    Disk: 12 * num_bands + 52 bytes a document (4 * num_hashes more with `verify: signature`).
    Memory: partition text, 4 * H + 8 * B bytes a document.  On the device: see ops.minhash.
    """

    name: ClassVar[str] = "signatures"
    counts: ClassVar[type[Counts]] = TextCounts
    follows: ClassVar[str | None] = "documents"
    on_device: ClassVar[bool] = True

    def __init__(self, fuzzy: Fuzzy | None, against_sets: bool = False):
        """
        Args:
            against_sets: whole documents are compared with reference sets.
        """
        self.fuzzy, self.against_sets = fuzzy, against_sets

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
        settings = {**fuzzy.model_dump(include=keys), "store_signature": fuzzy.verify == "signature"}
        return {**settings, "unscoped": True} if self._unscoped else settings

    @property
    def _unscoped(self) -> bool:
        """True if the tables are written without the scope too."""
        return self.against_sets and self._by_group

    @property
    def _by_group(self) -> bool:
        return self.fuzzy is not None and self.fuzzy.scope == "group"

    def libraries(self) -> tuple[str, ...]:
        return ("xxhash",)

    def make(self, part: Part) -> Made:
        return self.made(part, *part.compute(lambda text: lsh.hash_documents(text, self.plain, self.one_scope(part))))

    @property
    def plain(self) -> lsh.Fuzzy | None:
        return None if self.fuzzy is None else fuzzy_of(self.fuzzy)

    def _scope(self, part: Part) -> np.ndarray:
        """uint64 of every document."""
        documents = str(self.follows)
        if self._by_group:
            return scope_keys(part.read(documents, ["source", "group"]), self.fuzzy)
        return np.zeros(part.counts(documents, Counts).documents, np.uint64)

    def one_scope(self, part: Part) -> bool:
        return not self._by_group or not self._scope(part).any()

    def made(self, part: Part, made: dict[str, Any], how: str, more: dict[str, Any]) -> Made:
        """What is written of the hashes of a partition."""
        from gpu_curate.buckets import write_tables  # loads Numba, which a run with nothing to do does without
        from gpu_curate.ops.bands import band_hashes

        fuzzy, scope_N = self.fuzzy, self._scope(part)
        columns: dict[str, Any] = {
            "content_hi": made["content"][:, 0],
            "content_lo": made["content"][:, 1],
            "bytes": made["bytes"],
            "scope": scope_N,
        }
        scopes = (scope_N, None) if self._unscoped else (scope_N,)
        tables: list[tuple[Any, Any]] = []
        if fuzzy is not None:
            columns["n_shingles"] = made["n_shingles"]
            if fuzzy.verify == "signature":
                columns["signature"] = _fixed_width(made["signature"])
        for scope in scopes:
            tables.append((lsh.content_key(columns["content_hi"], scope), made["bytes"] > 0))
            if fuzzy is not None:
                bands_NB = made.get("bands")  # hashed with the signatures where there is one scope
                if bands_NB is None:
                    bands_NB = band_hashes(made["signature"], band_spec(fuzzy), scope).T
                tables += [(band_N, made["n_shingles"] > 0) for band_N in bands_NB.T]
        with publish(part.path(TABLES)) as temp, temp.open("wb") as file:
            write_tables(file, tables)
        table = pa.table({n: _column(c) for n, c in columns.items()})
        counts = TextCounts(documents=len(scope_N), bytes=int(made["bytes"].sum()), backend=how, **more)
        return Made(counts, table, (part.path(TABLES),), {"use_dictionary": False, "compression": "none"})


class ReferenceSignatures(Signatures):
    """Signatures of the sets that documents are compared with as wholes (`dedup_against`, `train_only`)."""

    name: ClassVar[str] = "reference_signatures"
    follows: ClassVar[str | None] = "references"

    @property
    def _by_group(self) -> bool:
        return False  # an item stands in no group


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
