"""The failing rules of every document under another recipe, from what is stored.

A rule whose score and bound stay keeps its stored bit; a rule that goes loses it; only for one that moves is a column read.
What is equal to what a run would write is checked against the stage `decisions` itself (tests/inquiry/test_funnel.py).

# N documents of a partition, M distinct sets of failing rules
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gpu_curate.config import Config
from gpu_curate.document import matching
from gpu_curate.errors import ConfigError
from gpu_curate.inquiry.stored import Array, Stored
from gpu_curate.quality import rules
from gpu_curate.quality.columns import PREFIX, compared
from gpu_curate.quality.judges import JudgeRule
from gpu_curate.quality.rule import Rule
from gpu_curate.stages.duplicates import FIRST_REFERENCE, settings_of
from gpu_curate.stages.order import dropping_of
from gpu_curate.stages.reasons import OTHER_BITS, in_order, rule_bits
from gpu_curate.stages.rejects import REJECTED
from gpu_curate.stages.rule_values import check_columns_hold_numbers, column_values
from gpu_curate.stages.run_corpus import ContentCorpus

_DUPLICATES = ("exact_duplicate", "fuzzy_duplicate", "reference_duplicate")


def mask(*names: str) -> np.uint64:
    """The set of these reasons, which are no rules of quality."""
    return np.uint64(sum(1 << OTHER_BITS[name] for name in names))


@dataclass(frozen=True)
class Change:
    """A rule that decides otherwise than in the run: it fails a document whose score lies beyond its limit.

    Attributes:
        name: of the rule.
        box, columns: what it is decided by; the rule is off where there are no columns.
        bound: `min`: lower scores fail; `max`: higher ones do.
        scores: the columns → a score of N for each limit, and bool of N where the rule fails whatever the score (or None).
        limits: one, or one a set of `references`.
        rule: of a rule on a source's own column or of a judge, which is decided by the rule itself.
    """

    name: str
    box: str = ""
    columns: tuple[str, ...] = ()
    bound: Literal["min", "max"] = "min"
    scores: Callable[..., tuple[Sequence[Array], Array | None]] | None = None
    limits: tuple[Any, ...] = ()
    rule: Rule | None = None

    @property
    def on(self) -> bool:
        return self.scores is not None or self.rule is not None

    def fails(self, *columns: Any) -> Array:
        """bool of N."""
        if self.rule is not None:
            return self.rule.fails({self.rule.score: columns[0]})
        assert self.scores is not None
        scores, always_N = self.scores(*columns)
        parts = [s < v if self.bound == "min" else s > v for s, v in zip(scores, self.limits, strict=True)]
        fails_N: Array = np.logical_or.reduce(parts if always_N is None else [*parts, always_N])
        return fails_N


def _itself(*columns: Array) -> tuple[Sequence[Array], None]:
    return columns, None


def changes(old: Config, new: Config) -> list[Change]:
    """The rules that decide otherwise; duplicates apart (`_recount`)."""
    found = []
    before, after = ({r.name: r for r in rules(c.quality) if _is_on(r)} for c in (old, new))
    for name in sorted(before.keys() | after.keys()):
        was, now = before.get(name), after.get(name)
        if now is None:
            found.append(Change(name))
        elif was is None or _decides_by(was) != _decides_by(now):
            if now.score.startswith(PREFIX):
                found.append(Change(name, "documents", (now.score.removeprefix(PREFIX),), rule=now))
            elif isinstance(now, JudgeRule):
                found.append(Change(name, "scores", (now.score,), rule=now))
            else:
                assert now.bound in ("min", "max")
                found.append(Change(name, "scores", (now.score,), now.bound, _itself, (now.limit,)))
    if old.min_tokens != new.min_tokens:
        found.append(Change("too_few_tokens", "decisions", ("tokens",), "min", _without_eot, (new.min_tokens,)))
    found += _language(old, new) + _contaminated(old, new)
    return found


def _is_on(rule: Rule) -> bool:
    return rule.limit is not None or rule.bound in ("in", "no")


def _decides_by(rule: Rule) -> tuple[Any, ...]:
    return rule.score, rule.bound, rule.limit, getattr(rule, "among", None)


def _without_eot(tokens_N: Array) -> tuple[Sequence[Array], None]:
    return [tokens_N - 1], None


def _language(old: Config, new: Config) -> list[Change]:
    if (old.language.keep, old.language.min_score) == (new.language.keep, new.language.min_score):
        return []
    if new.language.model is None or new.language.keep is None:
        return [Change("language")]
    from gpu_curate.text.language import keep_labels

    wanted = pa.array(sorted(keep_labels(new.language) or ()), pa.string())

    def other(language_N: Any, score_N: Array) -> tuple[Sequence[Array], Array]:
        return [score_N], ~pc.is_in(language_N.cast(pa.string()), wanted).to_numpy()

    return [Change("language", "scores", ("language", "language_score"), "min", other, (new.language.min_score,))]


def _contaminated(old: Config, new: Config) -> list[Change]:
    limits, before = (  # as the stage compares them
        {f"coverage_{r.name}": np.float32(r.max_coverage) for r, _ in dropping_of(config)} for config in (new, old)
    )
    if limits == before:
        return []
    if not limits:
        return [Change("contaminated")]
    return [Change("contaminated", "overlaps", tuple(limits), "max", _itself, tuple(limits.values()))]


class Masks:
    """The failing rules of every document of a run under another recipe.

    Survivors are chosen among all documents, before any rule of quality, language, length or contamination; so only
    `dedup.exact` and `dedup.fuzzy` change who is one, and what they change is worked out from content hashes and clusters.

    Attributes:
        bit: reason → its bit in what `of` gives, in the order in which the reasons are tried.
    """

    def __init__(self, stored: Stored, config: Config):
        self.stored, self._config = stored, config
        self.bit = in_order(rule_bits(config.quality, config.forget))
        self.changes = changes(stored.config, config)
        self._recount = _recount(stored, config)
        self._moved = _moved(stored.bits, self.bit)
        self._wordy = _newly_compared(stored, config)

    def of(self, part: str) -> tuple[Array, Array, Array]:
        """failing uint64, tokens int64, bytes int64 of a partition's N documents."""
        stored = self.stored
        failing_N, tokens_N, bytes_N = stored.columns("decisions", part, "failing", "tokens", "bytes")
        if not self.changes and self._recount is None and not self._moved:
            return failing_N, tokens_N, bytes_N
        was_N, failing_N = failing_N, failing_N.copy()
        for old, new in self._moved:
            failing_N &= ~old
            if new is not None:
                failing_N |= (was_N & old != 0).astype(np.uint64) * new
        rejected_N = failing_N == mask(REJECTED)
        for change in self.changes:
            own = np.uint64(self.bit.get(change.name, 63))  # of a rule that is gone `_moved` has taken the bit
            if change.name in self.bit:
                failing_N &= ~(np.uint64(1) << own)
            if change.on:
                fails_N = change.fails(*self.columns(change, part, tokens_N))
                failing_N |= fails_N.astype(np.uint64) << own
        if self._recount is not None:
            failing_N = self._recount(part, failing_N)
        for name in self._wordy:
            rejected_N = rejected_N | column_values(stored.context, part, [name])[PREFIX + name].wordy_N
        failing_N[rejected_N] = mask(REJECTED)
        return failing_N, tokens_N, bytes_N

    def columns(self, change: Change, part: str, tokens_N: Array) -> list[Any]:
        """Arrays of N; what is text stays Arrow's, since NumPy would make an object of each."""
        if change.box == "decisions":
            return [tokens_N]
        if change.rule is not None and change.box == "documents":
            return list(column_values(self.stored.context, part, list(change.columns)).values())
        table = self.stored.table(change.box, part, list(change.columns))
        return [table[name] if name == "language" else table[name].to_numpy() for name in change.columns]


def _moved(old: dict[str, int], new: dict[str, int]) -> list[tuple[np.uint64, np.uint64 | None]]:
    """Bits of rules that stand elsewhere in another recipe, or nowhere: (bit now, bit then)."""
    return [
        (np.uint64(1 << was), np.uint64(1 << new[name]) if name in new else None)
        for name, was in old.items()
        if new.get(name) != was
    ]


def _newly_compared(stored: Stored, config: Config) -> list[str]:
    """Columns that get a min or max: a document whose value is no number is rejected.

    Raises:
        ConfigError: none of its values is a number; or a column loses its bound, and documents were rejected for it: nothing
            else was decided of these.
    """
    old, new = stored.config.quality.columns, config.quality.columns
    if old == new:
        return []
    gone = [name for name in compared(old) if name not in compared(new)]
    if gone and stored.late_rejects("decisions"):
        raise ConfigError(
            f"quality.columns.{gone[0]}: the run rejected documents whose value is no number, and decided nothing else of them",
            "run the recipe without the bound: decisions and shards are made anew, the rest stays",
        )
    check_columns_hold_numbers(stored.context, config.quality)
    return [name for name in compared(new) if name not in compared(old)]


Recount = Callable[[str, Array], Array]  # partition, failing uint64 of N → the same with other duplicates


def _recount(stored: Stored, config: Config) -> Recount | None:
    """What another `dedup` makes of the three duplicate rules; None: the same.

    Exact off: a copy that has a shingle shares every band with its original, so it becomes a fuzzy duplicate with the same
    survivor; one without shingles is in no bucket, so it is kept.
    Fuzzy off: of equal contents all but the first go, as they do beside near-duplicates; content hashes say which.
    """
    old, new = stored.config.dedup, config.dedup
    exact, fuzzy = bool(new.exact), new.fuzzy is not None
    if exact == bool(old.exact) and fuzzy == (old.fuzzy is not None):
        return None
    if any(d.fuzzy is not None and d.fuzzy.spares for d in (old, new)):
        raise ConfigError(
            "dedup: what other duplicates make of dedup.fuzzy.survivors or min_cluster_size is not stored",
            "leave dedup as it is, or run the other recipe: only duplicates, decisions and shards are made anew",
        )
    if not exact and not fuzzy:
        return lambda part, failing_N: failing_N & ~mask(*_DUPLICATES)
    if not exact:

        def without_exact(part: str, failing_N: Array) -> Array:
            shingles_N = stored.columns("signatures", part, "n_shingles")[0]
            failing_N = np.where(shingles_N == 0, failing_N & ~mask(*_DUPLICATES), failing_N)
            copies_N = failing_N & mask("exact_duplicate")
            moved_N = copies_N << np.uint64(OTHER_BITS["fuzzy_duplicate"] - OTHER_BITS["exact_duplicate"])
            moved: Array = failing_N ^ copies_N | moved_N
            return moved

        return without_exact
    if not fuzzy and bool(old.exact) and _copies_are_stored(stored.config):
        return lambda part, failing_N: failing_N & ~mask("fuzzy_duplicate")
    return _exact_anew(stored, config)


def _copies_are_stored(config: Config) -> bool:
    """True if `exact_duplicate` means the same without fuzzy duplicates: no groups, no reference that stands for a copy."""
    fuzzy = config.dedup.fuzzy
    references = any(r.action == "dedup_against" for r in config.references)
    return (fuzzy is None or fuzzy.scope == "global") and not references


def _exact_anew(stored: Stored, config: Config) -> Recount:
    """Exact duplicates from content hashes, as the stage finds them. Memory: about 60 bytes a document."""
    from gpu_curate import dedup
    from gpu_curate.ops.components import Components  # Numba: most questions do without

    settings = settings_of(config.dedup)
    corpus = ContentCorpus(replace(stored.context.boxes, backend="cpu"), config.references, settings.by_group)
    duplicates, firsts = dedup.exact_duplicates(corpus, settings)
    components = Components(len(corpus))
    components.add_edges(firsts, duplicates)
    fuzzy_before = stored.config.dedup.fuzzy is not None
    found = dedup.clusters(corpus, replace(settings, fuzzy=None), components.labels(), duplicates, firsts)
    dropped = found.kind != None  # noqa: E711  elementwise
    of_reference = corpus.doc_id_N[found.survivor] >= FIRST_REFERENCE
    doc_id = corpus.doc_id_N[found.member[dropped]]
    value = np.where(of_reference[dropped], mask("reference_duplicate"), mask("exact_duplicate"))
    by_id = np.argsort(doc_id, kind="stable")
    doc_id, value = doc_id[by_id], value[by_id]
    keeps_fuzzy = config.dedup.fuzzy is not None and fuzzy_before

    def anew(part: str, failing_N: Array) -> Array:
        ids = stored.columns("documents", part, "doc_id")[0]
        exact_N = np.zeros(len(ids), np.uint64)
        rows, places = matching(ids, doc_id)
        exact_N[rows] = value[places]
        if not keeps_fuzzy:
            return failing_N & ~mask(*_DUPLICATES) | exact_N
        # of a near-duplicate that is also a copy the kind changes; a match of a reference set stays one
        other_N = failing_N & mask(*_DUPLICATES)
        matched_N = (other_N | exact_N) & mask("reference_duplicate")
        own_N = np.where(matched_N != 0, matched_N, np.where(exact_N != 0, exact_N, other_N))
        return failing_N & ~mask(*_DUPLICATES) | own_N

    return anew


def histogram(masks: Masks) -> tuple[Array, Array]:
    """The distinct sets of failing rules of a run, and what each holds.

    Returns:
        failing_M: uint64, ascending; sums_M3: int64, documents, tokens and bytes.
    """
    found = list(masks.stored.each(lambda part: grouped(*masks.of(part))))
    failing_K = np.concatenate([np.zeros(0, np.uint64), *(failing_M for failing_M, _ in found)])
    sums_K3 = np.concatenate([np.zeros((0, 3), np.int64), *(sums_M3 for _, sums_M3 in found)])
    failing_M, sums_M3 = grouped(failing_K, sums_K3[:, 1], sums_K3[:, 2], sums_K3[:, 0])
    order = np.argsort(failing_M)
    return failing_M[order], sums_M3[order]


def grouped(failing_N: Array, tokens_N: Array, bytes_N: Array, documents_N: Array | None = None) -> tuple[Array, Array]:
    """Distinct sets of failing rules, and documents, tokens and bytes of each. A hash table: sorting took ten times as long."""
    data = pa.py_buffer(np.ascontiguousarray(failing_N))  # `pa.array` would load pandas: 0.2 s
    coded = pa.Array.from_buffers(pa.uint64(), len(failing_N), [None, data]).dictionary_encode()
    code_N = coded.indices.to_numpy()
    sums = [np.bincount(code_N, weights=w, minlength=len(coded.dictionary)) for w in (documents_N, tokens_N, bytes_N)]
    return coded.dictionary.to_numpy(), np.stack(sums, axis=1).astype(np.int64)  # float64 is exact up to 9e15
