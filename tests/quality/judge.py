"""One text through the statistics, scores and rules."""

from collections.abc import Sequence

import numpy as np

from gpu_curate import config, quality
from gpu_curate.document import TextColumn
from gpu_curate.ops.text_stats import STOP_WORDS, text_stats

SECTIONS = {
    "gopher_quality": config.GopherQuality,
    "gopher_repetition": config.GopherRepetition,
    "c4": config.C4,
    "fineweb": config.FineWeb,
}


def scores_of(*texts: str, stop_words: Sequence[str] = STOP_WORDS) -> dict[str, np.ndarray]:
    return quality.scores(text_stats(TextColumn.from_texts(texts), tuple(stop_words)))


def failing(text: str, family: str, **thresholds: object) -> list[str]:
    """Rules of a family that the text fails, in order, without the family's name."""
    stop_words = thresholds.get("stop_words", STOP_WORDS)
    bits = quality.evaluate(
        scores_of(text, stop_words=stop_words), config.Quality(**{family: SECTIONS[family](**thresholds)})
    )
    names = [rule for i, rule in enumerate(quality.RULES) if int(bits[0]) >> i & 1]
    assert all(rule.startswith(f"{family}:") for rule in names)
    return [rule.removeprefix(f"{family}:") for rule in names]
