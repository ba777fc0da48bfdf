"""Scores, rules and contamination of texts in memory: `gpu_curate.score`, `decide` and `contaminated`.

# N texts
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from gpu_curate.api.batches import Array, Progress, batches, column_of, computed, on_host, telling
from gpu_curate.document import TextColumn
from gpu_curate.errors import ConfigError, InputError
from gpu_curate.quality import FAMILIES, Quality, evaluate
from gpu_curate.quality import bits as rule_bits
from gpu_curate.quality.columns import PREFIX, Values
from gpu_curate.quality.judges import Judge
from gpu_curate.quality.own import of_class, switched
from gpu_curate.quality.score import Score, scores_of


def score(
    texts: Any,
    *,
    text_column: str = "text",
    stop_words: Iterable[str] | None = None,
    own: Iterable[Score | type[Score]] = (),
    judges: Mapping[str, str | os.PathLike[str]] | None = None,
    progress: Progress | None = None,
) -> pa.Table:
    """Every statistic of every text: the columns of a run's scores/, the same values on CPU and GPU.

    Args:
        texts: N texts, as for `deduplicate`; or a table (Arrow, pandas, polars, cuDF, dict) that has them in `text_column`.
        stop_words: at most 32 words that the column `stop_words` counts; None: Gopher's eight of English.
        own: your own scores, classes or objects of them (`gpu_curate.Score`); their columns follow.
        judges: learned scores: name → file of `gpu-curate judge train`. Each is an int32 column `judge_NAME`, thousandths,
            -2147483648 for a text without words.
    Returns:
        table of N rows: counts int32, `..._fraction` (0 to 1), `..._ratio` and `mean_...` float64. A null is an empty
        text, whose every score is 0 (or as its rule says).
    Raises:
        ConfigError: no such column. InputError: no texts, or one that a class of yours refuses.
    Memory: about 300 bytes a text for the result, and some MiB while it works.
    Time: the first call on a machine compiles the kernel, the first in a process loads it.
    """
    from gpu_curate.ops.text_stats import STOP_WORDS, text_stats
    from gpu_curate.quality import scores
    from gpu_curate.stages.judged import scores as judge_scores
    from gpu_curate.stages.judged import tables_of

    text = column_of(texts, text_column)
    words = STOP_WORDS if stop_words is None else tuple(stop_words)
    learned = {name: Judge(model=os.fspath(path)) for name, path in (judges or {}).items()}
    tables = tables_of(learned)
    scorers = [kind() if isinstance(kind, type) else kind for kind in own]
    made: list[Mapping[str, Array]] = []
    with telling(progress, text.nbytes) as tell:
        done = 0
        for start, stop in [*batches(text)] or [(0, 0)]:
            part = text.slice(start, stop)
            stats = computed(part, lambda some: dict(text_stats(some, words, tables)))
            ours = {**scores(stats), **judge_scores(stats, learned, list)}
            made.append({**ours, **_own_scores(scorers, part, start, ours)})
            done += part.nbytes
            tell("scores", done, text.nbytes)
    return pa.table({name: np.concatenate([m[name] for m in made]) for name in made[0]})


def _own_scores(scorers: list[Score], part: TextColumn, start: int, ours: Mapping[str, Array]) -> dict[str, Array]:
    """The scores of the caller's classes. Raises: InputError: one refuses a text. ConfigError: a name is taken."""
    found: dict[str, Array] = {}
    texts = on_host(part).to_arrow() if scorers else None
    for scorer in scorers:
        label = type(scorer).__name__
        taken = {*ours, *found} & set(scorer.types())
        if taken:
            raise ConfigError(f"own: {label}: there is a score {min(taken)} already", "give it another name")
        values, refused = scores_of(scorer, texts, label)
        for number, why in refused.items():
            raise InputError(f"text {start + number}: {why}")
        found |= values
    return found


@dataclass(frozen=True, eq=False, repr=False)
class Decisions:
    """What rules say of N texts.

    Attributes:
        keep: bool of N: no rule fails.
        rule: object of N: the first failing rule, `family:rule`, as a run names it as reason; None if it is kept.
        failing: object of N: a tuple of all failing rules, in order.
        counts: rule → texts that fail it; those that are on, 0 included.
    """

    keep: Array
    rule: Array
    failing: Array
    counts: dict[str, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.keep)

    def __repr__(self) -> str:
        most = sorted(self.counts.items(), key=lambda item: -item[1])[:3]
        told = ", ".join(f"{name} {count:,}" for name, count in most if count)
        return f"<{len(self):,} texts: {int(self.keep.sum()):,} kept{'; ' + told if told else ''}>"


def decide(scores: Any, quality: Quality | Mapping[Any, Any] | Iterable[str] | str) -> Decisions:
    """Apply quality rules to scores. Moving a threshold is another call of this, not of `score`.

    Args:
        scores: what `score` returned, or any table with the columns that the rules need.
        quality: as in a recipe: {"gopher_quality": {"min_words": 30}, "c4": "on"}; or names of families, with their
            published thresholds: ["gopher_quality", "fineweb"]. A class of `own` is a key as it is: {Digits: {"max": 0.2}}.
            {"columns": {"score": {"min": 3}}} bounds any column of the table.
    Returns:
        Decisions, on the host.
    Raises:
        ConfigError: an unknown family or threshold, a value out of range, no family that is on, a column that a rule needs
            and the table lacks.
    """
    from gpu_curate.quality import rules

    section = _quality(quality)
    on = rules(section)
    if not on:
        raise ConfigError("quality: no family is on, so nothing would be decided", f"there are {', '.join(FAMILIES)}")
    shares = [name for name, judge in section.judges.items() if judge.top_share is not None]
    if shares:
        raise ConfigError(
            f"quality.judges.{shares[0]}.top_share: a share of a run's documents; a table has no sources",
            "give min: numpy.quantile of the column says which score that is",
        )
    columns: dict[str, Any] = dict(_columns(scores))
    for name in section.columns:
        if name in columns:
            columns[f"{PREFIX}{name}"] = Values.of(pa.array(columns[name], from_pandas=True))
    try:
        failing_N = evaluate(columns, section)
    except KeyError as e:
        raise ConfigError(
            f"scores: no column {e.args[0].removeprefix(PREFIX)!r}, which a rule needs (there are {', '.join(columns)})",
            "give the whole table that gpu_curate.score returned",
        ) from e
    bits, inverse = np.unique(failing_N, return_inverse=True)
    sets = np.empty(len(bits), object)
    names_of = rule_bits(section)
    sets[:] = [tuple(name for name, bit in names_of.items() if int(value) >> bit & 1) for value in bits]
    first = np.empty(len(bits), object)
    first[:] = [names[0] if names else None for names in sets]
    counts = {rule.name: int((failing_N >> np.uint64(names_of[rule.name]) & np.uint64(1)).sum()) for rule in on}
    return Decisions(failing_N == 0, first[inverse], sets[inverse], counts)


def _quality(quality: Any) -> Quality:
    from gpu_curate.config.load import parse_section
    from gpu_curate.config.own import with_own

    if isinstance(quality, Quality):
        return quality
    if isinstance(quality, str):
        quality = [quality]
    if not isinstance(quality, Mapping):
        quality = dict.fromkeys(quality, "on")
    classes = [k for k in quality if isinstance(k, Score) or (isinstance(k, type) and issubclass(k, Score))]
    own = dict(of_class(k, switched(quality[k]) or {}) for k in classes)
    section = parse_section(Quality, "quality", {k: v for k, v in quality.items() if k not in classes})
    if section.own:
        raise ConfigError(
            f"quality.{next(iter(section.own))}: a table is decided by classes at hand", "give the class itself"
        )
    return with_own(section, own) if own else section


def _columns(scores: Any) -> dict[str, Array]:
    """Columns of a table as NumPy arrays."""
    names = getattr(scores, "column_names", None)
    names = list(scores) if names is None and isinstance(scores, Mapping) else names
    names = list(scores.columns) if names is None and hasattr(scores, "columns") else names
    if names is None:
        raise InputError(
            f"scores: {type(scores).__name__} is no table of scores", "give what gpu_curate.score returned"
        )
    columns = {str(n): c.to_numpy() if hasattr(c := scores[n], "to_numpy") else np.asarray(c) for n in names}
    if not columns:
        raise InputError("scores: a table without a column")
    return columns


def contaminated(
    texts: Any,
    against: Any,
    *,
    ngram_words: int = 13,
    whole_items: bool = False,
    min_unspaced_words: int = 3,
    text_column: str = "text",
    progress: Progress | None = None,
) -> pa.Table:
    """Which texts hold word n-grams of benchmark items, and how much of one item.

    Args:
        texts: N texts, or a table, as for `score`.
        against: texts of the items (questions of a benchmark), on the host or the device.
        ngram_words: words of an n-gram; words of other scripts by their weight, as in a recipe.
        whole_items: an item of fewer words matches as a whole; in a script without spaces it needs `min_unspaced_words`.
    Returns:
        table of N rows: coverage float32, the highest share of one item's n-grams that the text holds; item int64, the
        position of that item in `against` (-1: none); hits int32, distinct n-grams found. A recipe drops above
        `max_coverage`, 0 by default: `coverage > 0`.
    Raises:
        ConfigError: no item has an n-gram, so nothing could be found. InputError: no texts.
    Memory: 16 bytes a text, about 60 an n-gram of the items, and some MiB.
    """
    from gpu_curate.ops.ngrams import NgramIndex, coverage, probe

    text, items = column_of(texts, text_column), on_host(TextColumn.of(against))
    index = NgramIndex.build(items, ngram_words, whole_items, min_unspaced_words)
    if len(index.gram_G) == 0:
        raise ConfigError(
            f"against: none of {len(items)} items has {ngram_words} words: nothing could be found",
            "whole_items=True lets shorter items match as a whole",
        )

    def match(part: TextColumn) -> dict[str, Any]:
        return dict(zip(("coverage", "item", "hits"), coverage(probe(part, index), index, len(part)), strict=True))

    made = []
    with telling(progress, text.nbytes) as tell:
        done = 0
        for start, stop in [*batches(text)] or [(0, 0)]:
            part = text.slice(start, stop)
            made.append(computed(part, match))
            done += part.nbytes
            tell("n-grams", done, text.nbytes)
    return pa.table({name: np.concatenate([m[name] for m in made]) for name in made[0]})
