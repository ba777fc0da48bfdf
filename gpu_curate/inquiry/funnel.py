"""What each rule takes, in the order in which rules are tried, under this or another recipe: `gpu-curate funnel`.

# M distinct sets of failing rules, L limits of a sweep
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

import numpy as np

from gpu_curate.config import Config, parse
from gpu_curate.config.load import apply_override
from gpu_curate.errors import ConfigError
from gpu_curate.inquiry.masks import Change, Masks, changes, histogram, mask
from gpu_curate.inquiry.stored import UNITS, Array, Stored
from gpu_curate.inquiry.toggles import Question, key_of, plain, question, with_classes
from gpu_curate.report.reasons import meaning
from gpu_curate.section import Stored as AsStored
from gpu_curate.stages.reasons import NOT_DRAWN
from gpu_curate.stages.rejects import REJECTED

MAX_SWEEP = 1000  # limits of a sweep: more are a mistake in STEP


def funnel(
    stored: Stored, without: Iterable[str] = (), only: Iterable[str] = (), changes: Iterable[str] = ()
) -> dict[str, Any]:
    """Documents, tokens and bytes behind each rule, as a run with these toggles and thresholds would count them.

    Args:
        without, only, changes: see `toggles.question`.
    Returns:
        run; set: the overrides that make it so; yaml: the same; notes;
        read, rejected, kept: {documents, tokens, bytes} (what was rejected by a reader has no tokens and bytes);
        cut: {documents, tokens, bytes} that were cut out of documents, of a run whose recipe cuts; what follows is after cuts;
        steps: per rule that takes some, in order, {rule, why, took, left}, each of both {documents, tokens, bytes};
        rules: per rule that fails some, in order, {rule, fails, only}: all that fail it, those that fail nothing else;
        overlaps: pairs of rules {a, b, documents} that some documents fail both, most first.
    Raises:
        ConfigError: see `toggles.question`; a box is not whole.
    Cost: three columns of decisions/, and one of scores/ for each rule that is moved or switched on.
    """
    asked = question(stored.config, without, only, changes)
    masks = Masks(stored, asked.config)
    facts = counted(*histogram(masks), masks.bit, asked.config)
    cut = stored.cut()
    if cut is not None:
        facts["cut"] = cut
        for unit in ("tokens", "bytes"):
            facts["read"][unit] += cut[unit]
    early = stored.rejected()
    facts["read"]["documents"] += early
    facts["rejected"]["documents"] += early
    notes = [*asked.notes, *_mixture(stored, asked, facts)]
    return {"run": str(stored.run), "set": list(asked.overrides), "yaml": asked.yaml, "notes": notes, **facts}


def counted(failing_M: Array, sums_M3: Array, bit: dict[str, int], config: Config) -> dict[str, Any]:
    """The funnel of a histogram of failing rules: read, rejected, steps, kept, rules, overlaps; see `funnel`.

    Args:
        bit: reason → its bit, in the order in which the reasons are tried.
    """
    left_M = np.ones(len(failing_M), np.bool_)
    late = _has(failing_M, bit[REJECTED])
    rejected = _sums(sums_M3, late)
    left_M &= ~late
    steps: list[dict[str, Any]] = []
    single: list[dict[str, Any]] = []
    for name in (name for name in bit if name != REJECTED):
        fails_M = _has(failing_M, bit[name]) & ~late
        if not sums_M3[fails_M].any():
            continue
        took_M = left_M & fails_M
        left_M &= ~fails_M
        if took_M.any():
            steps.append(
                {
                    "rule": name,
                    "why": meaning(name, config),
                    "took": _sums(sums_M3, took_M),
                    "left": _sums(sums_M3, left_M),
                }
            )
        alone_M = failing_M == np.uint64(1 << bit[name])
        single.append({"rule": name, "fails": _sums(sums_M3, fails_M), "only": _sums(sums_M3, alone_M)})
    return {
        "read": _sums(sums_M3, np.ones(len(failing_M), np.bool_)),
        "rejected": rejected,
        "steps": steps,
        "kept": _sums(sums_M3, left_M),
        "rules": single,
        "overlaps": _overlaps(failing_M, sums_M3, {entry["rule"]: bit[entry["rule"]] for entry in single}),
    }


def _has(failing_M: Array, bit: int) -> Array:
    found: Array = failing_M & np.uint64(1 << bit) != 0
    return found


def _sums(sums_M3: Array, where_M: Array) -> dict[str, int]:
    return dict(zip(UNITS, sums_M3[where_M].sum(axis=0).tolist(), strict=True))


def _overlaps(failing_M: Array, sums_M3: Array, bit: dict[str, int]) -> list[dict[str, Any]]:
    """Documents that fail both of two rules, the most first."""
    names = list(bit)
    fails_RM = np.array([_has(failing_M, bit[name]) for name in names], np.int64).reshape(len(names), len(failing_M))
    both_RR = (fails_RM * sums_M3[:, 0]) @ fails_RM.T
    pairs = [(int(both_RR[i, j]), i, j) for i in range(len(names)) for j in range(i) if both_RR[i, j]]
    return [
        {"a": names[j], "b": names[i], "documents": n} for n, i, j in sorted(pairs, key=lambda p: (-p[0], p[2], p[1]))
    ]


def _mixture(stored: Stored, asked: Question, facts: dict[str, Any]) -> list[str]:
    """The step of the mixture for the run's own recipe; for another one a word that it would draw anew."""
    left = stored.not_drawn()
    if not left["documents"]:
        return []
    if asked.overrides:
        return ["kept is before the mixture, which would be drawn anew from it"]
    facts["kept"] = {unit: facts["kept"][unit] - left[unit] for unit in UNITS}
    step = {"rule": NOT_DRAWN, "why": meaning(NOT_DRAWN, asked.config), "took": left, "left": dict(facts["kept"])}
    facts["steps"].append(step)
    return []


# ------------------------------------------------------------------------------------------------------------ a sweep


def sweep(
    stored: Stored,
    rule: str,
    start: str | float,
    stop: str | float,
    step: str | float,
    without: Iterable[str] = (),
    only: Iterable[str] = (),
    changes_: Iterable[str] = (),
) -> dict[str, Any]:
    """What one rule takes, and what is kept, at every limit from start to stop.

    Args:
        rule: one with a threshold.
        start, stop, step: limits, as decimal numbers; both ends are asked.
        without, only, changes_: of the other rules; see `toggles.question`.
    Returns:
        run; set; rule; key; now: the run's limit, None where it is off;
        rows: per limit {limit, fails, only, kept}, each of the last three {documents, tokens, bytes}; only: what nothing
        else takes, so what moving the limit decides about.
    Raises:
        ConfigError: no such rule, one without a threshold, a limit out of range, more than 1,000 limits.
    Cost: as `funnel`, one pass for all limits.
    """
    limits = _limits(rule, start, stop, step)
    key = key_of(stored.config, rule)
    asked = question(stored.config, without, only, changes_)
    configs = [_with(asked.config, key, limit) for limit in limits]  # every limit is checked as a recipe's value
    moving = [_change(asked.config, config, rule) for config in configs]
    masks = Masks(stored, asked.config)

    own = np.uint64(1 << masks.bit[rule]) if rule in masks.bit else np.uint64(0)
    loosest_last = moving[0].bound == "max"  # then limits are taken in falling order

    def one(part: str) -> Array:
        """int64 (L, 3, 3): fails, only, kept at every limit, each in documents, tokens, bytes."""
        failing_N, tokens_N, bytes_N = masks.of(part)
        counts_N = failing_N != mask(REJECTED)
        free_N = (failing_N & ~own == 0) & counts_N
        first_N = _first_failing(moving, masks.columns(moving[0], part, tokens_N))
        weights = (None, tokens_N, bytes_N)
        fails_L3, only_L3 = (_reached(first_N, where_N, weights, len(limits)) for where_N in (counts_N, free_N))
        free_3 = [int(free_N.sum()), int(tokens_N[free_N].sum()), int(bytes_N[free_N].sum())]
        if loosest_last:
            fails_L3, only_L3 = fails_L3[::-1], only_L3[::-1]
        return np.stack([fails_L3, only_L3, np.array(free_3) - only_L3], axis=1)

    total_L33 = sum(stored.each(one), np.zeros((len(limits), 3, 3), np.int64))
    rows = [
        {
            "limit": limit,
            **{
                name: dict(zip(UNITS, sums.tolist(), strict=True))
                for name, sums in zip(("fails", "only", "kept"), sums_33, strict=True)
            },
        }
        for limit, sums_33 in zip(limits, total_L33, strict=True)
    ]
    now = _value(plain(stored.config), key)
    return {"run": str(stored.run), "set": list(asked.overrides), "rule": rule, "key": key, "now": now, "rows": rows}


def _limits(rule: str, start: Any, stop: Any, step: Any) -> list[int | float]:
    """start, start + step, ... up to stop, without the errors of binary sums."""
    try:
        low, high, by = (Decimal(str(value)) for value in (start, stop, step))
    except InvalidOperation:
        low = high = by = Decimal("nan")
    if not all(value.is_finite() for value in (low, high, by)) or by <= 0 or high < low:
        raise ConfigError(
            f"--sweep {rule} {start} {stop} {step}: expected FROM, TO and STEP, numbers, FROM up to TO, STEP above 0"
        )
    count = int((high - low) / by) + 1
    if count > MAX_SWEEP:
        raise ConfigError(f"--sweep {rule} {start} {stop} {step}: {count:,} limits, at most {MAX_SWEEP:,} are tried")
    values = [low + by * i for i in range(count)]
    return [int(v) if v == v.to_integral_value() else float(v) for v in values]


def _with(config: Config, key: str, limit: int | float) -> Config:
    data = plain(config)
    apply_override(data, f"{key}={limit!r}")
    return with_classes(config, parse(data, "--sweep", AsStored()))


def _first_failing(moving: Sequence[Change], columns: list[Any]) -> Array:
    """int64 of N: how many limits, from the loosest on, a document passes before it fails: so it fails all behind."""
    first = moving[0]
    if first.rule is not None:  # of a column: it knows integers that float64 has not
        passes_LN = np.array([~change.fails(*columns) for change in moving])
        return np.asarray(passes_LN.sum(axis=0), np.int64)
    assert first.scores is not None
    (score_N,), always_N = first.scores(*columns)
    # Compared as NumPy compares an array with one number: in the array's float type, or in float64.
    limits_L = np.array([c.limits[0] for c in moving], score_N.dtype if score_N.dtype.kind == "f" else np.float64)
    if first.bound == "min":  # fails where score < limit
        first_N = np.searchsorted(limits_L, score_N, side="right")
    else:  # fails where score > limit: the highest limit is the loosest
        first_N = len(limits_L) - np.searchsorted(limits_L, score_N, side="left")
    first_N = first_N.astype(np.int64)
    if always_N is not None:
        first_N[always_N] = 0
    return first_N


def _reached(first_N: Array, where_N: Array, weights: Sequence[Array | None], count: int) -> Array:
    """int64 (L, 3): what of the documents `where_N` fails each limit, from the loosest on."""
    chosen = first_N[where_N]
    sums = [
        np.bincount(chosen, weights=None if w is None else w[where_N], minlength=count + 1)[:count].cumsum()
        for w in weights
    ]
    return np.stack(sums, axis=1).astype(np.int64)  # float64 is exact up to 9e15


def _change(config: Config, moved: Config, rule: str) -> Change:
    """How a rule decides in a recipe, whether or not that is how it does in another."""
    found = next((c for c in changes(config, moved) if c.name == rule), None)
    if found is not None and found.on:
        return found
    # the limit is the recipe's own: as if it came from one where the rule is off
    off = question(config, without=[rule]).config
    return next(c for c in changes(off, moved) if c.name == rule)


def _value(data: Any, key: str) -> Any:
    """The value of a key, entries of lists by name or number; None: the section is off."""
    node = data
    for part in key.split("."):
        if isinstance(node, list):
            node = next((e for e in node if e.get("name") == part), None) or node[int(part)]
        else:
            node = None if node is None else node.get(part)
    return node


def draw_sweep(facts: dict[str, Any], path: Path) -> None:
    """Documents and tokens kept over the limits of a sweep. Raises: ConfigError: no matplotlib, or no such format."""
    from gpu_curate.inquiry.plot import figure

    with figure(path) as axes:
        limits = [row["limit"] for row in facts["rows"]]
        for unit in ("documents", "tokens"):
            most = max(row["kept"][unit] for row in facts["rows"]) or 1
            axes.plot(limits, [row["kept"][unit] / most for row in facts["rows"]], marker=".", label=f"{unit} kept")
        if facts["now"] is not None:
            axes.axvline(facts["now"], linestyle=":", color="grey", label=f"now: {facts['now']:g}")
        axes.set_xlabel(facts["key"])
        axes.set_ylabel("share of the most")
        axes.set_ylim(0, 1.05)
        axes.legend()
