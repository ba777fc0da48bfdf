"""A corpus in memory, on the host or the device, for `deduplicate`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np

from gpu_curate import dedup
from gpu_curate.api.batches import Array, batches, computed
from gpu_curate.document import TextColumn
from gpu_curate.lsh import Fuzzy, content_key, hash_documents
from gpu_curate.ops import components as components_ops
from gpu_curate.ops.bands import band_hashes
from gpu_curate.ops.components import plain as plain_components
from gpu_curate.ops.minhash import EMPTY_ROW

# Below these sizes the definition in NumPy answers before Numba has loaded its twin, or has compiled it (3.5 s).
_PLAIN_BYTES, _PLAIN_BYTES_UNCOMPILED, _PLAIN_TEXT_BYTES = 1 << 20, 6 << 20, 1 << 16
_PLAIN_TEXTS = 1 << 13
_GATHER_BYTES = 16 << 20  # of text taken from the device at once


class MemoryCorpus:
    """A `dedup.Corpus` in memory: the texts, then those of `against`."""

    scratch: Path | None = None

    def __init__(
        self,
        columns: list[TextColumn],
        settings: dedup.Settings,
        scope_N: Array | None,
        score_N: Array | None,
        on_bytes: Any,
    ):
        self._columns, self._settings, self._scope_N, self._score_N = columns, settings, scope_N, score_N
        self._starts = np.cumsum([0, *map(len, columns)])
        self.on_band: Any = None
        self._valid_N: Any = None  # has_shingles_N, where the bands are compared
        n, fuzzy = int(self._starts[-1]), settings.fuzzy
        self.is_reference_N = np.arange(n) >= len(columns[0])
        self.train_only_N = np.zeros(n, np.bool_)
        self._content_2N = np.empty((2, n), np.uint64)
        self._bytes_N = np.empty(n, np.int64)
        self.has_shingles_N = np.zeros(n, np.bool_)
        self.bands_BN = np.empty((0 if fuzzy is None else fuzzy.bands.num_bands, n), np.uint64)
        self._signature_NH: Array | None = None
        if fuzzy is not None and fuzzy.verify == "signature":
            self._signature_NH = np.empty((n, fuzzy.bands.num_hashes), np.uint32)
        plain = _plain_is_faster(columns)
        self.ops = plain_components if plain and n <= _PLAIN_TEXTS else components_ops
        done = 0
        for text, first in zip(columns, self._starts[:-1].tolist(), strict=True):
            for start, stop in batches(text):
                part = text.slice(start, stop)
                self._put(part, slice(first + start, first + stop), plain)
                done += part.nbytes
                on_bytes(done)

    def _put(self, part: TextColumn, where: slice, plain: bool) -> None:
        """Hash a slice of the texts into its place."""
        fuzzy, in_scope = self._settings.fuzzy, self._scope_N is not None
        made = _hashed_plainly(part, fuzzy) if plain else None
        if made is None:
            made = computed(part, lambda text: hash_documents(text, fuzzy, bands=not in_scope))
        self._content_2N[:, where] = made["content"].T
        self._bytes_N[where] = made["bytes"]
        if fuzzy is None:
            return
        self.has_shingles_N[where] = made["n_shingles"] > 0
        if in_scope:
            assert self._scope_N is not None
            self.bands_BN[:, where] = band_hashes(made["signature"], fuzzy.bands, self._scope_N[where])
        else:
            self.bands_BN[:, where] = made["bands"].T
        if self._signature_NH is not None:
            self._signature_NH[where] = made["signature"]

    def __len__(self) -> int:
        return int(self._starts[-1])

    def column(self, name: str, dtype: Any = np.uint64) -> Array:
        """See `dedup.Corpus`. Not a copy: nobody may write to it."""
        if name == "bytes":
            return self._bytes_N
        if name == "scope":
            assert self._scope_N is not None
            return self._scope_N
        half: Array = self._content_2N[0 if name == "content_hi" else 1]
        return half

    def equal_content(self) -> tuple[Array, Array]:
        """See `dedup.Corpus`."""
        scope_N = self._scope_N if self._settings.by_group else None
        a_E, b_E = self.ops.band_edges(content_key(self._content_2N[0], scope_N), dedup.with_text(self))
        return a_E, b_E

    def equal_band(self, b: int) -> tuple[Array, Array]:
        """See `dedup.Corpus`."""
        a_E, b_E = self.ops.band_edges(self.bands_BN[b], self.has_shingles_N)
        return a_E, b_E

    def connect_band(self, b: int, components: Any) -> int:
        """See `dedup.Corpus`."""
        if self.on_band is not None:
            self.on_band(b)
        if self._valid_N is None:
            self._valid_N = self._placed(self.has_shingles_N)
        pairs: int = components.add_band(self._placed(self.bands_BN[b]), self._valid_N)
        return pairs

    def matched(self) -> Array:
        """See `dedup.Corpus`: no text is `train_only`."""
        return np.zeros(0, np.int64)

    def texts(self, numbers: Array) -> list[bytes]:
        """See `dedup.Corpus`."""
        out = [b""] * len(numbers)
        owner = np.searchsorted(self._starts, numbers, side="right") - 1
        for c, column in enumerate(self._columns):
            where = np.flatnonzero(owner == c)
            rows = numbers[where] - self._starts[c]
            raw = _gathered(column, rows) if column.on_gpu else [column.raw(int(row)) for row in rows]
            for i, text in zip(where.tolist(), raw, strict=True):
                out[i] = text
        return out

    def signature_rows(self, numbers: Array) -> Array:
        """See `dedup.Corpus`."""
        assert self._signature_NH is not None
        return np.ascontiguousarray(self._signature_NH[numbers])

    def forget_signatures(self) -> None:
        self._signature_NH = self._scope_N = self._score_N = self._valid_N = None

    def score(self, name: str) -> Array:
        """See `dedup.Corpus`."""
        values = np.zeros(len(self), np.float64)
        if self._score_N is None:
            from gpu_curate.api.statistics import score

            self._score_N = score(self._columns[0])[name].to_numpy()
        values[: len(self._score_N)] = self._score_N
        return values

    def _placed(self, array: Array) -> Any:
        """An array where the texts lie: on the host or the device."""
        if not self._columns[0].on_gpu:
            return array
        from gpu_curate.device.backend import to_device

        return to_device(array)

    def disk_error(self, error: OSError) -> Exception:
        return error


def _gathered(column: TextColumn, rows: Array) -> list[bytes]:
    """Texts of a column on the device, copied from it in pieces of about _GATHER_BYTES."""
    import cupy

    offsets = column.offsets.get()
    size = offsets[rows + 1] - offsets[rows]
    out: list[bytes] = []
    piece = np.cumsum(size) // _GATHER_BYTES
    for some in np.split(np.arange(len(rows)), np.flatnonzero(np.diff(piece)) + 1):
        ends = np.cumsum(size[some])
        shift = offsets[rows[some]] - (ends - size[some])  # from a place in the piece to one in the column
        places = cupy.asarray(np.repeat(shift, size[some])) + cupy.arange(int(ends[-1]) if len(ends) else 0)
        raw = column.chars[places].get().tobytes()
        out += [raw[end - n : end] for end, n in zip(ends.tolist(), size[some].tolist(), strict=True)]
    return out


def _plain_is_faster(columns: list[TextColumn]) -> bool:
    if any(c.on_gpu or (len(c) and int(np.diff(c.offsets).max()) > _PLAIN_TEXT_BYTES) for c in columns):
        return False
    nbytes = sum(c.nbytes for c in columns)
    return nbytes <= _PLAIN_BYTES or (nbytes <= _PLAIN_BYTES_UNCOMPILED and not _compiled())


def _compiled() -> bool:
    """True if Numba has compiled the signatures here before."""
    if "gpu_curate.ops.minhash.cpu" in sys.modules:
        return True
    folders = [Path(__file__).parents[1] / "ops" / "minhash"]
    if os.environ.get("NUMBA_CACHE_DIR"):
        folders = [Path(os.environ["NUMBA_CACHE_DIR"])]
    return any(next(folder.rglob("cpu.sign_documents-*.nbi"), None) is not None for folder in folders)


def _hashed_plainly(text: TextColumn, fuzzy: Fuzzy | None) -> dict[str, Any] | None:
    """`hash_documents` by the definition in NumPy; None: a text is not UTF-8, which only the twins define."""
    from gpu_curate.ops.content_hash.plain import hash_few
    from gpu_curate.ops.minhash import plain

    made: dict[str, Any] = {"content": hash_few(text), "bytes": np.diff(text.offsets)}
    if fuzzy is None:
        return made
    try:
        strings = [text.raw(i).decode("utf-8") for i in range(len(text))]
    except UnicodeDecodeError:
        return None
    sig_NH = plain.signatures(strings, fuzzy.minhash)
    made["signature"], made["bands"] = sig_NH, plain.band_hashes(sig_NH, fuzzy.bands).T
    made["n_shingles"] = (sig_NH != EMPTY_ROW).any(axis=1)  # a shingle leaves no row full but by a chance of 2^-32 each
    return made
