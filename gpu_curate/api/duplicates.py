"""Duplicates among texts in memory: `gpu_curate.deduplicate`.

# N texts (then those of `against`), B bands
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from gpu_curate import dedup
from gpu_curate.api.batches import Array, Progress, integer, one_of, telling
from gpu_curate.api.corpus import MemoryCorpus
from gpu_curate.document import TextColumn
from gpu_curate.errors import ConfigError, InputError
from gpu_curate.lsh import Fuzzy
from gpu_curate.ops.bands import BandSpec
from gpu_curate.ops.minhash import MinHashSpec
from gpu_curate.ops.mix import fmix64

KINDS = ("", "exact", "fuzzy")
_KEEP = re.compile(r"random|first|longest|highest:[a-z0-9_]+")
_GIVEN = "highest:given"  # by the numbers that the caller gives


def deduplicate(
    texts: Any,
    *,
    shingle_words: int = 5,
    num_bands: int = 14,
    rows_per_band: int = 8,
    seed: int = 42,
    exact: bool | Literal["compare"] = True,
    fuzzy: bool = True,
    verify: Literal["none", "signature", "exact"] = "none",
    verify_against: Literal["survivor", "pair"] = "survivor",
    threshold: float = 0.7,
    keep: Any = "random",
    groups: Any = None,
    against: Any = None,
    progress: Progress | None = None,
) -> Duplicates:
    """Find exact and near duplicates by MinHash LSH, and choose the survivors.

    A run chooses the same survivors among the same documents: `keep: random` goes by content, ties by position.

    Args:
        texts: N texts: a pandas, polars or cuDF Series, an Arrow array, a list; see `TextColumn.of`. A null or empty text
            is never a duplicate; one without words only an exact one.
        shingle_words, num_bands, rows_per_band: two texts of Jaccard similarity s of their sets of `shingle_words` words
            share a bucket with probability 1 - (1 - s^rows_per_band)^num_bands.
        seed: of the permutations and of `keep="random"`.
        exact: texts of equal content (xxh3-128) are duplicates; "compare" compares the texts too.
        fuzzy: False looks for exact duplicates only.
        verify: "none": a shared bucket is enough; "signature": the estimated, "exact": the exact similarity must reach
            `threshold`.
        verify_against: "survivor": no text is dropped that is below the threshold to the one that is kept for it; "pair":
            candidate pairs reach it, and chains of them go.
        keep: which one of a component survives: "random", "first", "longest", "highest:SCORE" (a column of
            `gpu_curate.score`), or N numbers, the highest of which wins (NaN loses).
        groups: N keys (str, int, ...; nulls are one group): only texts of one group are compared.
        against: texts of an earlier corpus. What matches one of them is dropped; they are neither dropped nor listed.
        progress: called with (step, done, total); None shows a bar where standard error is a terminal.
    Returns:
        Duplicates, on the host. Where `texts` lie on a GPU they are hashed and sorted there, with the same result.
    Raises:
        ConfigError: a value out of range. InputError: no texts, or numbers or groups of another length.
    Memory: beside the texts, 70 + 8 * num_bands bytes a text that the result holds, and 40 more while it works: 2.2 GB for
        10 million texts (216 bytes a text were measured at a million). verify="signature" adds 4 * num_bands *
        rows_per_band bytes a text while it works, verify="exact" the texts that are compared at a time, about 1 GB at most by arithmetic, and on
        disk 8 bytes a shingle of those that share buckets.
    Time: 1,000 texts take 0.5 s from the start of Python, for nothing is compiled for up to 8,192 texts of 1 MiB; then 80 to
        100 MB/s on one core, after 1 s of loading (once on a machine: 5 s of compiling).
    """
    sizes = {"shingle_words": shingle_words, "num_bands": num_bands, "rows_per_band": rows_per_band, "seed": seed}
    shingle_words, num_bands, rows_per_band, seed = (integer(name, value) for name, value in sizes.items())
    bands = BandSpec(num_bands, rows_per_band)
    settings, given = _settings(
        MinHashSpec(shingle_words, bands.num_hashes, seed) if fuzzy else None,
        bands,
        exact,
        (verify, verify_against, threshold),
        keep,
        groups is not None,
        seed,
    )
    columns = _columns(texts, against, groups is not None)
    scope_N = None if groups is None else _scopes(groups, len(columns[0]))
    score_N = None if given is None else _given(given, len(columns[0]))
    total = sum(c.nbytes for c in columns)
    with telling(progress, total) as tell:
        corpus = MemoryCorpus(columns, settings, scope_N, score_N, lambda done: tell("hashes", done, total))
        components = corpus.ops.Components(len(corpus))
        duplicates, firsts = dedup.exact_duplicates(corpus, settings)
        components.add_edges(firsts, duplicates)
        pairs = 0
        if settings.fuzzy is not None:
            corpus.on_band = lambda b: tell("bands", b + 1, num_bands)
            pairs = dedup.connect_bands(corpus, settings.fuzzy, components)
            corpus.on_band = None
        label_N = components.labels()
        del components
        found = dedup.clusters(corpus, settings, label_N, duplicates, firsts)
    corpus.forget_signatures()
    return _result(corpus, settings, label_N, found, pairs)


def _columns(texts: Any, against: Any, by_group: bool) -> list[TextColumn]:
    """The texts, and those of `against`. Raises: ConfigError, InputError."""
    if by_group and against is not None:
        raise ConfigError(
            "groups and against: the texts of `against` have no group",
            "call deduplicate once for each group, with the texts of `against` that belong to it",
        )
    columns = [TextColumn.of(texts)]
    if against is not None:
        columns.append(TextColumn.of(against))
        if columns[1].nbytes == 0:
            raise InputError(
                "against: no text in it: nothing could match", "leave it out, or give the texts to compare with"
            )
    return columns


def _settings(
    minhash: MinHashSpec | None,
    bands: BandSpec,
    exact: Any,
    verification: tuple[Any, Any, Any],
    keep: Any,
    by_group: bool,
    seed: int,
) -> tuple[dedup.Settings, Any]:
    """Settings, and the numbers given as `keep`. Raises: ConfigError."""
    verify, verify_against, threshold = verification
    one_of("exact", exact, (True, False, "compare"))
    one_of("verify", verify, ("none", "signature", "exact"))
    one_of("verify_against", verify_against, ("survivor", "pair"))
    if isinstance(threshold, bool) or not isinstance(threshold, int | float | np.floating) or not 0 < threshold <= 1:
        raise ConfigError(f"threshold={threshold!r}: a Jaccard similarity above 0, at most 1")
    if not exact and minhash is None:
        raise ConfigError("exact=False, fuzzy=False: nothing is looked for", "leave one of them out")
    if isinstance(keep, str) and not _KEEP.fullmatch(keep):
        raise ConfigError(f"keep={keep!r}: expected random, first, longest, highest:SCORE, or a number for each text")
    if isinstance(keep, str) and keep.startswith("highest:"):
        from gpu_curate.quality import score_types

        if keep.removeprefix("highest:") not in score_types():
            raise ConfigError(f"keep={keep!r}: no such score", f"there are {', '.join(score_types())}")
    given = None if isinstance(keep, str) else keep
    rule = _GIVEN if given is not None else keep
    fuzzy = None if minhash is None else Fuzzy(minhash, bands, verify, verify_against, float(threshold))
    return dedup.Settings(exact, fuzzy, rule, seed, by_group), given


@dataclass(frozen=True, eq=False, repr=False)
class Duplicates:
    """Who survives. Positions are those of the texts given, from 0.

    Attributes:
        keep: bool of N, True for a survivor; `texts[result.keep]` are the deduplicated texts.
        survivor: int64 of N: the text that is kept for this one (itself if it is kept); -1: one of `against`.
        reference: int64 of N: the text of `against` that this one was dropped for; -1: none.
        component: int64 of N: the first text of those that buckets (or verified pairs) chain with this one; itself if alone.
        candidate_pairs: pairs of neighbours in one bucket, over all bands.
    """

    keep: Array
    survivor: Array
    reference: Array
    component: Array
    candidate_pairs: int
    _code_N: Array
    _corpus: MemoryCorpus = field(compare=False)
    _settings: dedup.Settings

    def __len__(self) -> int:
        return len(self.keep)

    def __repr__(self) -> str:
        exact, fuzzy = (int((self._code_N == code).sum()) for code in (1, 2))
        of_reference = int((self.reference >= 0).sum())
        among = f", {of_reference:,} of them of `against`" if of_reference else ""
        return f"<{len(self):,} texts: {int(self.keep.sum()):,} kept, {exact:,} exact and {fuzzy:,} fuzzy duplicates{among}>"

    @cached_property
    def kind(self) -> Array:
        """str of N: "exact" or "fuzzy" for a duplicate, "" for a survivor."""
        return np.array(KINDS)[self._code_N]

    def pairs(self, jaccard: bool = False) -> pa.Table:
        """What was dropped, and for whom.

        Args:
            jaccard: measure the exact similarity of each pair.
        Returns:
            text, survivor, reference int64 (null where it is the other), kind; with `jaccard` also jaccard float64, 1.0
            for equal texts.
        """
        text = np.flatnonzero(~self.keep)
        survivor, reference = self.survivor[text], self.reference[text]
        columns: dict[str, Any] = {
            "text": text,
            "survivor": pa.array(survivor, pa.int64(), mask=survivor < 0),
            "reference": pa.array(reference, pa.int64(), mask=reference < 0),
            "kind": pa.DictionaryArray.from_arrays(self._code_N[text] - 1, list(KINDS[1:])),
        }
        if jaccard:
            columns["jaccard"] = self._jaccard(text)
        return pa.table(columns)

    def explain(self, i: int) -> Explanation:
        """Why text i was kept or dropped. Raises: IndexError."""
        if not 0 <= i < len(self):
            raise IndexError(f"text {i}: there are {len(self)}")
        survivor, reference = int(self.survivor[i]), int(self.reference[i])
        other = self._partner(np.array([i]))[0]
        equal = None
        if self._settings.fuzzy is not None:
            bands = self._corpus.bands_BN
            both = self._corpus.has_shingles_N[[i, other]].all()
            equal = int((bands[:, i] == bands[:, other]).sum()) if both and not self.keep[i] else 0
        return Explanation(
            text=i,
            kept=bool(self.keep[i]),
            kind=str(KINDS[self._code_N[i]]),
            survivor=survivor,
            reference=reference,
            jaccard=None if self.keep[i] else float(self._jaccard(np.array([i]))[0]),
            equal_bands=None if self.keep[i] else equal,
            component_texts=int((self.component == self.component[i]).sum()),
        )

    def _partner(self, text: Array) -> Array:
        """Numbers, in the corpus, of those that texts were dropped for."""
        reference = self.reference[text]
        return np.where(reference >= 0, len(self) + reference, self.survivor[text])

    def _jaccard(self, text: Array) -> Array:
        other = self._partner(text)
        minhash = MinHashSpec() if self._settings.fuzzy is None else self._settings.fuzzy.minhash
        value = np.ones(len(text), np.float64)
        hi, lo = self._corpus.column("content_hi"), self._corpus.column("content_lo")
        differ = (hi[text] != hi[other]) | (lo[text] != lo[other])
        value[differ] = dedup.similarity(self._corpus, text[differ], other[differ], minhash)
        return value


@dataclass(frozen=True)
class Explanation:
    """Why a text was kept or dropped.

    Attributes:
        kind: "exact", "fuzzy", or "" for a survivor.
        survivor, reference: the text it was dropped for, of `texts` or of `against`; -1: none of these.
        jaccard: exact similarity to it; None for a survivor.
        equal_bands: bands whose hash both have (0 where a chain of others joins them); None for a survivor or without fuzzy.
        component_texts: texts in its component.
    """

    text: int
    kept: bool
    kind: str
    survivor: int
    reference: int
    jaccard: float | None
    equal_bands: int | None
    component_texts: int

    def __str__(self) -> str:
        if self.kept and self.component_texts == 1:
            return f"text {self.text} is kept: it shares no bucket and no content with another"
        if self.kept:
            return f"text {self.text} is kept: it survives in a component of {self.component_texts:,} texts"
        other = f"text {self.reference} of `against`" if self.reference >= 0 else f"text {self.survivor}"
        bands = "" if self.equal_bands is None else f", {self.equal_bands} equal bands"
        return f"text {self.text} is dropped as {self.kind} duplicate of {other}: Jaccard similarity {self.jaccard:.3f}{bands}"


def _scopes(groups: Any, n: int) -> Array:
    """uint64 key of the group of each text: different for different groups, never 0."""
    if isinstance(groups, str | bytes):
        raise InputError("groups: expected a key for each text, got one string")
    try:
        array = groups if isinstance(groups, pa.Array | pa.ChunkedArray) else None
        if array is None and hasattr(groups, "__arrow_c_stream__"):
            array = pa.chunked_array(groups)
        if array is None:
            array = pa.array(groups.to_arrow() if hasattr(groups, "to_arrow") else groups, from_pandas=True)
        if isinstance(array, pa.ChunkedArray):
            array = array.combine_chunks()
        if pa.types.is_dictionary(array.type):
            array = array.cast(array.type.value_type)
        codes = array.dictionary_encode("encode").indices.to_numpy(zero_copy_only=False)
    except (pa.ArrowException, TypeError, ValueError) as e:
        raise InputError(f"groups: keys must be of one kind: {' '.join(str(e).split())}") from e
    if len(codes) != n:
        raise InputError(f"groups: {len(codes)} keys for {n} texts: give one for each")
    keys: Array = fmix64(codes.astype(np.uint64) + np.uint64(1))  # a bijection that maps 0 to 0
    return keys


def _given(numbers: Any, n: int) -> Array:
    """float64 of N from `keep`; NaN and null lose against every number."""
    try:
        values = np.asarray(numbers.get() if hasattr(numbers, "get") and hasattr(numbers, "device") else numbers)
        values = values.astype(np.float64)
    except (TypeError, ValueError) as e:
        raise InputError(f"keep: expected a number for each text: {e}") from e
    if values.shape != (n,):
        raise InputError(f"keep: {values.shape} numbers for {n} texts: give one for each")
    ranked: Array = np.where(np.isnan(values), -np.inf, values)
    return ranked


def _result(
    corpus: MemoryCorpus, settings: dedup.Settings, label_N: Array, found: dedup.Clusters, pairs: int
) -> Duplicates:
    n = int(corpus._starts[1])
    own = found.member < n
    member, partner = found.member[own], found.survivor[own]
    survivor, reference, code = np.arange(n), np.full(n, -1), np.zeros(n, np.int8)
    survivor[member] = np.where(partner < n, partner, -1)
    reference[member] = np.where(partner < n, -1, partner - n)
    kind = found.kind[own]
    code[member] = np.where(kind == "exact", 1, np.where(kind == "fuzzy", 2, 0))
    return Duplicates(code == 0, survivor, reference, label_N[:n].copy(), pairs, code, corpus, settings)
