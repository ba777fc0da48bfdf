"""Signatures: content hash, length, shingle count and band hashes of every document.

# N documents, H hashes, B bands
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from gpu_curate.config import Config, Fuzzy
from gpu_curate.document import TextColumn
from gpu_curate.stages import Context, Stage, Stopwatch
from gpu_curate.storage import write_table


def band_column(b: int) -> str:
    return f"band_{b:02d}"


class Signatures(Stage):
    """Hash every document once; compare nothing.

    Reads: documents(text, group).  Writes: content_hi, content_lo uint64, bytes int64, n_shingles int64, scope uint64,
    band_00.. uint64; with `verify: signature` also signature, H uint32 a document.
    Disk: 8 * num_bands + 40 bytes a document (4 * num_hashes more with `verify: signature`).
    Memory: partition text, 4 * H + 8 * B bytes a document.  On the device: see ops.minhash.
    """

    name: ClassVar[str] = "signatures"
    follows: ClassVar[str | None] = "documents"
    code: ClassVar[tuple[str, ...]] = ("stages.signatures", "ops.words", "ops.minhash", "ops.bands", "ops.content_hash")
    on_device: ClassVar[bool] = True

    def settings(self, config: Config) -> Any:
        fuzzy = config.dedup.fuzzy
        if fuzzy is None:
            return None
        keys = {"shingle_words", "num_bands", "rows_per_band", "seed", "family", "scope"}
        return {**fuzzy.model_dump(include=keys), "store_signature": fuzzy.verify == "signature"}

    def libraries(self, config: Config) -> tuple[str, ...]:
        return ("xxhash",)

    def run(self, context: Context, part: str, task: Any) -> dict[str, Any]:
        watch = Stopwatch()
        documents = context.box(self.follows).read_table(part, ["text", "source", "group"])
        text = TextColumn.from_arrow(documents["text"])
        scope_N = scope_keys(documents, context.config.dedup.fuzzy)
        if context.backend == "gpu":
            from gpu_curate.backend import on_device

            columns, how = on_device(hash_documents, text, context.config.dedup.fuzzy, scope_N)
        else:
            columns, how = hash_documents(text, context.config.dedup.fuzzy, scope_N), "cpu"
        box = context.box(self.name)
        path = box.path(part, ".parquet")
        write_table(path, pa.table(columns), use_dictionary=False)
        facts = {"documents": len(text), "bytes": text.nbytes, "backend": how}
        return box.commit(part, [path], {**facts, **watch.facts()})


def hash_documents(text: TextColumn, fuzzy: Fuzzy | None, scope_N: np.ndarray) -> dict[str, Any]:
    """Every column of signatures/, computed where `text` lives.

    Args:
        text: N documents.
        fuzzy: None leaves out the bands.
        scope_N: uint64 key of each document's group, 0 for global.
    Returns:
        column name → host array of N.
    """
    from gpu_curate.backend import to_host
    from gpu_curate.ops.bands import BandSpec, band_hashes
    from gpu_curate.ops.content_hash import content_hash
    from gpu_curate.ops.minhash import signatures

    content_N2 = to_host(content_hash(text))
    offsets = to_host(text.offsets)
    columns: dict[str, Any] = {
        "content_hi": np.ascontiguousarray(content_N2[:, 0]),
        "content_lo": np.ascontiguousarray(content_N2[:, 1]),
        "bytes": np.diff(offsets),
        "scope": scope_N,
    }
    if fuzzy is None:
        return columns
    sig_NH, n_shingles = signatures(text, minhash_spec(fuzzy))
    spec = BandSpec(num_bands=fuzzy.num_bands, rows_per_band=fuzzy.rows_per_band)
    bands_BN = to_host(band_hashes(sig_NH, spec, scope_N=None if not scope_N.any() else scope_N))
    columns["n_shingles"] = to_host(n_shingles)
    columns.update((band_column(b), bands_BN[b]) for b in range(fuzzy.num_bands))
    if fuzzy.verify == "signature":
        rows = np.ascontiguousarray(to_host(sig_NH))
        width = rows.shape[1] * 4
        columns["signature"] = pa.FixedSizeBinaryArray.from_buffers(
            pa.binary(width), len(rows), [None, pa.py_buffer(rows)]
        )
    return columns


def minhash_spec(fuzzy: Fuzzy) -> Any:
    from gpu_curate.ops.minhash import MinHashSpec

    return MinHashSpec(
        shingle_words=fuzzy.shingle_words,
        num_hashes=fuzzy.num_bands * fuzzy.rows_per_band,
        seed=fuzzy.seed,
        family=fuzzy.family,
    )


def scope_keys(documents: pa.Table, fuzzy: Fuzzy | None) -> np.ndarray:
    """uint64 key of (source, group) with `scope: group`, else 0: documents of different keys never meet."""
    import xxhash

    n = documents.num_rows
    if fuzzy is None or fuzzy.scope == "global":
        return np.zeros(n, np.uint64)
    sources, groups = documents["source"].to_pylist(), documents["group"].to_pylist()
    known = {pair: xxhash.xxh3_64_intdigest(repr(pair)) | 1 for pair in set(zip(sources, groups, strict=True))}
    return np.array([known[pair] for pair in zip(sources, groups, strict=True)], np.uint64)
