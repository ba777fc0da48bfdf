"""The scores of the user's own classes, beside ours in scores/."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from gpu_curate.config import Config
from gpu_curate.config.own import require
from gpu_curate.quality.score import scores_of
from gpu_curate.stages.rejects import LateRejects


def own_scores(config: Config, texts: pa.Array, rejects: LateRejects) -> dict[str, np.ndarray]:
    """Every score of the recipe's own classes of N texts. What a class refuses is rejected.

    Raises: FatalError: a class gives another number of values, or other scores than it says.
    """
    found: dict[str, np.ndarray] = {}
    for own in config.quality.own.values():
        assert own.resolved is not None
        values, refused = scores_of(own.resolved.scorer(), texts, own.resolved.label)
        found |= values
        for number, reason in refused.items():
            rejects.add(number, reason, texts[number].as_py().encode("utf-8", "surrogatepass"))
    return found


def own_identity(config: Config) -> list[object]:
    """What those scores depend on, for the fingerprint. Raises: ConfigError: code that nobody has loaded."""
    require(config)
    return [own.resolved.identity() for own in config.quality.own.values() if own.resolved is not None]
