"""The scores of the user's own classes, beside ours in scores/."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from gpu_curate.errors import ConfigError
from gpu_curate.quality.own import Own
from gpu_curate.quality.score import scores_of
from gpu_curate.stages.rejects import LateRejects


def own_scores(classes: Mapping[str, Own], texts: pa.Array, rejects: LateRejects) -> dict[str, np.ndarray]:
    """Every score of the recipe's own classes of N texts. What a class refuses is rejected.

    Raises: FatalError: a class gives another number of values, or other scores than it says.
    """
    found: dict[str, np.ndarray] = {}
    for own in classes.values():
        assert own.resolved is not None
        values, refused = scores_of(own.resolved.scorer(), texts, own.resolved.label)
        found |= values
        for number, reason in refused.items():
            rejects.add(number, reason, texts[number].as_py().encode("utf-8", "surrogatepass"))
    return found


def own_identity(classes: Mapping[str, Own]) -> list[object]:
    """What those scores depend on, for the fingerprint. Raises: ConfigError: code that nobody has loaded."""
    missing = [name for name, own in classes.items() if own.resolved is None or own.resolved.code is None]
    if missing:
        raise ConfigError(
            f"quality.{missing[0]}: this code is not loaded",
            "gpu_curate.config.load and gpu_curate.run load it, with trust_code=True",
        )
    return [own.resolved.identity() for own in classes.values() if own.resolved is not None]
