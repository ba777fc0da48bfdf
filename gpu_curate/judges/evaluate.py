"""How well a score tells good texts from bad ones, beside how well their length alone does.

# N texts
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gpu_curate.judges.labels import Labelled

DECILES = 10
_Z = 1.959964  # 95 % of a normal distribution


def ranks(value_N: np.ndarray) -> np.ndarray:
    """float64 of N, from 1; equal values share the mean of their ranks."""
    by_value = np.sort(value_N)
    low_N, high_N = (np.searchsorted(by_value, value_N, side) for side in ("left", "right"))
    found: np.ndarray = (low_N + high_N + 1) / 2
    return found


def rank_correlation(a_N: np.ndarray, b_N: np.ndarray) -> float:
    """Spearman's; 0.0 where either is constant."""
    a_N, b_N = ranks(a_N), ranks(b_N)
    a_N, b_N = a_N - a_N.mean(), b_N - b_N.mean()
    whole = math.sqrt(float((a_N**2).sum()) * float((b_N**2).sum()))
    return float((a_N * b_N).sum()) / whole if whole else 0.0


def auc(score_N: np.ndarray, good_N: np.ndarray) -> tuple[float, float, float] | None:
    """Share of the pairs of a good and a bad text in which the good one scores higher (a tie is half), and its 95 % interval.

    None with one class only. Source: DeLong et al. 1988.
    """
    good, bad = score_N[good_N], score_N[~good_N]
    if not len(good) or not len(bad):
        return None
    # of every good text the share of bad ones below it, and of every bad one that of good ones above
    above_G = (ranks(np.concatenate([good, bad]))[: len(good)] - ranks(good)) / len(bad)
    below_B = 1.0 - (ranks(np.concatenate([good, bad]))[len(good) :] - ranks(bad)) / len(good)
    area = float(above_G.mean())
    variance = sum(float(v.var(ddof=1)) / len(v) for v in (above_G, below_B) if len(v) > 1)
    half = _Z * math.sqrt(variance)
    return area, max(area - half, 0.0), min(area + half, 1.0)


def evaluate(score_N: np.ndarray, data: Labelled, rows: np.ndarray, good_from: float | None = None) -> dict[str, Any]:
    """Tables of a score over labelled texts.

    Args:
        score_N: of the texts `rows`.
        good_from: the lowest label of a good text; None: 1 of two classes, else the median.
    Returns:
        texts, good; auc and auc_length, each [value, low, high]; auc_same_length: among pairs of one decile of length alone;
        deciles [{from_bytes, to_bytes, texts, good, auc}]; thresholds [{min, kept, precision, recall}]; rank_correlation with
        the labels.
    """
    value_N, chars_N = data.value_N[rows], data.chars_N[rows]
    bound = good_from if good_from is not None else 1.0 if data.classes else float(np.median(value_N))
    good_N = value_N >= bound
    edges = np.quantile(chars_N, np.arange(1, DECILES) / DECILES) if len(rows) else np.zeros(0)
    decile_N = np.searchsorted(edges, chars_N, side="right")
    deciles, pairs, won = [], 0, 0.0
    for number in range(DECILES):
        own = decile_N == number
        if not own.any():
            continue
        found = auc(score_N[own], good_N[own])
        of_pairs = int(good_N[own].sum()) * int((~good_N[own]).sum())
        pairs, won = pairs + of_pairs, won + (found[0] * of_pairs if found else 0.0)
        deciles.append(
            {
                "from_bytes": int(chars_N[own].min()),
                "to_bytes": int(chars_N[own].max()),
                "texts": int(own.sum()),
                "good": int(good_N[own].sum()),
                "auc": found and found[0],
            }
        )
    return {
        "texts": len(rows),
        "good": int(good_N.sum()),
        "good_from": bound,
        "auc": auc(score_N, good_N),
        "auc_length": auc(chars_N, good_N),
        "auc_same_length": won / pairs if pairs else None,
        "rank_correlation": rank_correlation(score_N, value_N),
        "deciles": deciles,
        "thresholds": _thresholds(score_N, good_N),
    }


def _thresholds(score_N: np.ndarray, good_N: np.ndarray) -> list[dict[str, Any]]:
    if not len(score_N):
        return []
    found = []
    for bound in np.unique(np.quantile(score_N, np.arange(1, 10) / 10, method="lower")).tolist():
        kept_N = score_N >= bound
        right = int((kept_N & good_N).sum())
        found.append(
            {
                "min": int(bound),
                "kept": float(kept_N.mean()),
                "precision": right / int(kept_N.sum()),
                "recall": right / int(good_N.sum()) if good_N.any() else None,
            }
        )
    return found


def warnings(facts: dict[str, Any]) -> list[str]:
    """What a user should hear about such a judge."""
    found = []
    if facts["auc"] is None:
        return ["one class only, so nothing can be told apart"]
    value, low, _ = facts["auc"]
    length = facts["auc_length"][0]
    if low <= max(length, 1 - length):
        found.append(
            f"length alone has an AUC of {max(length, 1 - length):.3f}, and this judge {value:.3f} (from {low:.3f}): it is not "
            "known to be better"
        )
    same = facts["auc_same_length"]
    if same is not None and same < 0.55:
        found.append(f"among texts of one length its AUC is {same:.3f}: it measures little but length")
    return found
