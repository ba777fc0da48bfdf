"""How the scores of the recipe's own classes, and the columns that it bounds, are spread: what is kept over what is dropped."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np

from gpu_curate.quality import own_rules, own_score_types
from gpu_curate.quality.columns import PREFIX, Values
from gpu_curate.quality.judges import COLUMN, JudgeRule, known
from gpu_curate.report.charts import Rule, Segment, bar, histogram
from gpu_curate.report.judged import threshold_of
from gpu_curate.report.markup import Html, count, plural, section, table, tag
from gpu_curate.stages import Context
from gpu_curate.stages.reasons import OTHER_BITS
from gpu_curate.stages.rejects import REJECTED
from gpu_curate.stages.rule_values import column_values

_BINS = 30
_TAIL = 0.005  # of the documents on either side may lie beyond the columns of a histogram
_COMMONEST = 12  # values of a column


def spreads(context: Context) -> dict[str, dict[str, Any]]:
    """Score, or `columns:NAME` → its histogram, or its commonest values.

    Of numbers: `start` and `step` of the bins, `kept` and `dropped` documents in each (those beyond count in the first and the
    last), `low` and `high`, the lowest and highest value. Of a column that `in` bounds: `values`, [value, kept, dropped].
    Of a judge: `thresholds`, [what, score], those that a top share came to among them.
    All: `missing`, documents without a value. Rejected documents are left out.
    Memory: 9 bytes a document.
    """
    quality = context.config.quality
    worded = {r.score for r in own_rules(quality) if r.bound == "in"} - {
        r.score for r in own_rules(quality) if r.bound in ("min", "max")
    }
    names = [*own_score_types(quality), *(PREFIX + name for name in quality.columns)]
    parts = context.box("decisions").parts() if context.has("decisions") else []
    found = {}
    thresholds = threshold_of(context) if parts and quality.judges else []
    for name in names if parts else ():
        if name in worded:
            found[name] = _words(context, parts, name)
        else:
            found[name] = _numbers(context, parts, name)
        if name.startswith(COLUMN):
            found[name]["thresholds"] = [[t.label, t.limit] for t in thresholds if t.score == name]
    return found


def _of_part(context: Context, part: str, name: str) -> tuple[Values | np.ndarray, np.ndarray, np.ndarray]:
    """The values of a partition, which documents are kept, and which count."""
    keep_N, failing_N = context.box("decisions").columns(part, "keep", "failing")
    counted_N = failing_N != np.uint64(1 << OTHER_BITS[REJECTED])
    if name.startswith(PREFIX):
        return column_values(context, part, [name.removeprefix(PREFIX)])[name], keep_N, counted_N
    score_N = context.box("scores").columns(part, name)[0]
    judged = name.removeprefix(COLUMN) in context.config.quality.judges and name.startswith(COLUMN)
    return known(score_N) if judged else score_N.astype(np.float64), keep_N, counted_N


def _numbers(context: Context, parts: list[str], name: str) -> dict[str, Any]:
    values, kept, missing = [np.zeros(0)], [np.zeros(0, np.bool_)], 0
    for part in parts:
        of_part, keep_N, counted_N = _of_part(context, part, name)
        number_N = of_part.number_N if isinstance(of_part, Values) else of_part
        known_N = np.isfinite(number_N) & counted_N
        missing += int((counted_N & ~known_N).sum())
        values.append(number_N[known_N])
        kept.append(keep_N[known_N])
    value_N, keep_N = np.concatenate(values), np.concatenate(kept)
    if not len(value_N):
        return {"missing": missing}
    start, step, bins = _scale(value_N)
    place_N = np.clip(np.floor((value_N - start) / step), 0, bins - 1).astype(np.int64)
    return {
        "start": start,
        "step": step,
        "kept": np.bincount(place_N[keep_N], minlength=bins).tolist(),
        "dropped": np.bincount(place_N[~keep_N], minlength=bins).tolist(),
        "low": float(value_N.min()),
        "high": float(value_N.max()),
        "missing": missing,
    }


def _scale(value_N: np.ndarray) -> tuple[float, float, int]:
    """Start, step (1, 2 or 5 times a power of ten) and number of bins."""
    low, high = np.quantile(value_N, [_TAIL, 1 - _TAIL]).tolist()
    whole = bool((value_N == np.floor(value_N)).all())
    span = max(high - low, 1.0 if whole else abs(low) * 1e-6, 1e-300)
    step = 10.0 ** math.floor(math.log10(span / _BINS))
    step = next(step * n for n in (1, 2, 5, 10) if span / (step * n) <= _BINS)
    step = max(step, 1.0) if whole else step
    start = math.floor(low / step) * step
    return start, step, int((high - start) // step) + 1


def _words(context: Context, parts: list[str], name: str) -> dict[str, Any]:
    kept: Counter[str] = Counter()
    dropped: Counter[str] = Counter()
    missing = 0
    for part in parts:
        values, keep_N, counted_N = _of_part(context, part, name)
        assert isinstance(values, Values)
        for text, keep, counts in zip(values.text.to_pylist(), keep_N.tolist(), counted_N.tolist(), strict=True):
            if counts and text is None:
                missing += 1
            elif counts:
                (kept if keep else dropped)[text] += 1
    both = kept + dropped
    first = sorted(both, key=lambda text: (-both[text], text))[:_COMMONEST]
    rest = [text for text in both if text not in first]
    told: list[list[Any]] = [[text[:80], kept[text], dropped[text]] for text in first]
    if rest:
        told.append([None, sum(kept[t] for t in rest), sum(dropped[t] for t in rest)])
    return {"values": told, "missing": missing}


# ------------------------------------------------------------------------------------------------------- the page


def scores(facts: dict[str, Any], context: Context, examples: Html | None) -> Html | None:
    """The section of the report; None where the recipe brings no score and bounds no column.

    Args:
        examples: documents around the thresholds of judges.
    """
    if not facts["spreads"]:
        return None
    figures = [_figure(name, spread, context) for name, spread in facts["spreads"].items()]
    lead = (
        "Learned scores, scores of the recipe's own classes, and columns of the sources that it bounds. Dark: documents that are kept; pale: "
        "dropped, by whatever rule. The first and the last column of a chart also hold what lies beyond."
    )
    near = [tag("h3", "Around the thresholds of judges"), examples] if examples is not None else []
    return section("scores", "Scores", lead, tag("div", figures, class_="figures"), *near)


def _figure(name: str, spread: dict[str, Any], context: Context) -> Html:
    title = f"column {name.removeprefix(PREFIX)}" if name.startswith(PREFIX) else name
    rules = [r for r in own_rules(context.config.quality) if r.score == name]
    told = [f"{r.name}: {r.meaning}" for r in rules]
    if spread["missing"]:
        told.append(f"{plural(spread['missing'], 'document')} without a value")
    if "values" in spread:
        return tag("figure", tag("h3", title), _commonest(spread["values"]), tag("figcaption", "; ".join(told)))
    if "start" not in spread:
        return tag("figure", tag("h3", title), tag("p", "no document has a value"), tag("figcaption", "; ".join(told)))
    start, step = spread["start"], spread["step"]
    told.append(f"from {spread['low']:g} to {spread['high']:g}")
    both = [a + b for a, b in zip(spread["kept"], spread["dropped"], strict=True)]
    edges = [start + step * i for i in range(len(both) + 1)]
    titles = [
        f"{low:g} to {high:g}: {plural(n, 'document')}, {count(kept)} kept"
        for low, high, n, kept in zip(edges[:-1], edges[1:], both, spread["kept"], strict=True)
    ]
    every = -(-len(both) // 6)
    ticks = [(float(i), f"{edges[i]:.6g}") for i in range(0, len(both) + 1, every)]
    bounds = [(float(r.limit or 0), f"{r.bound} {r.limit:g}", f"{r.name}: {r.meaning}") for r in rules if _drawn(r)]
    bounds += [(float(limit), label, label) for label, limit in spread.get("thresholds", [])]
    lines = [Rule(min(max((limit - start) / step, 0.0), float(len(both))), *told_of) for limit, *told_of in bounds]
    chart = histogram(both, ticks, titles, title, f"histogram of {title}", lines, kept=spread["kept"])
    return tag("figure", tag("h3", title), chart, tag("figcaption", "; ".join(told)))


def _drawn(rule: Any) -> bool:
    """True for a bound that is a line of its own; those of judges come as `thresholds`."""
    return rule.limit is not None and rule.bound in ("min", "max") and not isinstance(rule, JudgeRule)


def _commonest(values: list[list[Any]]) -> Html:
    most = max(kept + dropped for _, kept, dropped in values) if values else 0
    rows = []
    for text, kept, dropped in values:
        name = "other values" if text is None else text
        segments = [
            Segment(kept, "kept", f"{name}: {count(kept)} kept"),
            Segment(dropped, "quality pale", f"{count(dropped)} dropped"),
        ]
        rows.append([[tag("span", name, class_="name"), bar(segments, most)], kept, dropped])
    return table(("value", "kept", "dropped"), rows, class_="grid")
