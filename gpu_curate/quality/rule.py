"""What a rule is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np


@dataclass(frozen=True)
class Rule:
    """One bound on one score. A document fails if its score lies beyond the bound; on it, it passes.

    Args:
        name: `family:rule`, the reason of a dropped document.
        score: a name of `quality.SCORES`.
        bound: `min`: lower scores fail. `max`: higher ones do.
        limit: the bound; None: the rule is off and fails nothing. 0 is a bound like any other.
    """

    name: str
    score: str
    bound: Literal["min", "max"]
    limit: float | None

    def fails(self, scores: Mapping[str, np.ndarray]) -> np.ndarray:
        """bool of N."""
        score_N = scores[self.score]
        if self.limit is None:
            return np.zeros(len(score_N), np.bool_)
        return score_N < self.limit if self.bound == "min" else score_N > self.limit


def fraction(part_N: np.ndarray, whole_N: np.ndarray) -> np.ndarray:
    """part / whole as float64, the correctly rounded quotient of the two integers; 0.0 where whole is 0."""
    out_N = np.zeros(len(part_N), np.float64)
    return np.divide(part_N, whole_N, out=out_N, where=whole_N != 0)
