"""What a reason means, in words and in the numbers of the config, and which group it is shown with."""

from __future__ import annotations

from collections.abc import Iterable

from gpu_curate.config import Config, Quality
from gpu_curate.quality import bits, rules
from gpu_curate.quality.columns import PREFIX
from gpu_curate.stages.reasons import in_order

NOT_DRAWN = "mixture:not_drawn"
REASONS = (*in_order(bits(Quality())), NOT_DRAWN, "kept")  # that every run may have, in the order they are tried

GROUPS = {  # group → its name; the key is also the class that colours it
    "rejected": "rejected",
    "language": "language",
    "quality": "quality rules",
    "duplicate": "duplicates",
    "contaminated": "contaminated",
    "short": "empty or short",
    "mixture": "not drawn",
    "kept": "kept",
}

_COMMON = {
    "kept": "every rule passed",
    "empty": "no text left after normalisation",
    "exact_duplicate": "the same text as another document, which survives",
    "fuzzy_duplicate": "in one component of near-duplicates with another document, which survives",
    "reference_duplicate": "a duplicate of an item of a reference set (dedup_against)",
    "contaminated": "holds more of one benchmark item than max_coverage allows",
    NOT_DRAWN: "kept by every rule, left out by the mixture's weights",
}


def group(reason: str) -> str:
    """The group of a reason, a key of GROUPS."""
    if family(reason) is not None:
        return "quality"
    if reason.endswith("_duplicate"):
        return "duplicate"
    own = {"language": "language", "contaminated": "contaminated", NOT_DRAWN: "mixture", "kept": "kept"}
    return own.get(reason, "short")


def family(reason: str) -> str | None:
    """The family of a quality rule, one that the recipe brings too; None for other reasons."""
    name, _, rule = reason.partition(":")
    return name if rule and reason != NOT_DRAWN else None


def ordered(reasons: Iterable[str], config: Config) -> list[str]:
    """Reasons in the order they are tried; one that is not known here comes last."""
    place = {reason: i for i, reason in enumerate((*in_order(bits(config.quality)), NOT_DRAWN, "kept"))}
    return sorted(reasons, key=lambda r: (place.get(r, len(place)), r))


def meaning(reason: str, config: Config) -> str:
    """One line: what fails, with the threshold of this config."""
    for rule in rules(config.quality):
        if rule.name == reason and rule.meaning:
            return rule.meaning
    if reason == "too_few_tokens":
        return f"fewer than {config.min_tokens} tokens"
    if reason == "language":
        return f"not in {', '.join(config.language.keep or [])} with a score of {config.language.min_score:g} or more"
    return _COMMON.get(reason, "")


def scored(reason: str, config: Config) -> str | None:
    """The score that a quality rule looks at; None for a rule on a column, and for other reasons."""
    scores = (r.score for r in rules(config.quality) if r.name == reason and not r.score.startswith(PREFIX))
    return next(scores, None)


def column_of(reason: str, config: Config) -> str | None:
    """The kept column that a quality rule looks at."""
    scores = (r.score for r in rules(config.quality) if r.name == reason and r.score.startswith(PREFIX))
    return next((score.removeprefix(PREFIX) for score in scores), None)
