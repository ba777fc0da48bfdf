"""What a reason means, in words and in the numbers of the config, and which group it is shown with."""

from __future__ import annotations

from collections.abc import Iterable

from gpu_curate.config import Config, Quality
from gpu_curate.quality import bits, rules
from gpu_curate.quality.columns import PREFIX
from gpu_curate.stages.reasons import BEHIND, BY_NAME, NOT_DRAWN, in_order, rule_bits

REASONS = (
    *in_order(bits(Quality())),
    *(reason.name for reason in BEHIND),
)  # that every run may have, in the order they are tried

GROUPS = {  # group → its name; the key is also the class that colours it
    "rejected": "rejected",
    "language": "language",
    "quality": "quality rules",
    "duplicate": "duplicates",
    "contaminated": "contaminated",
    "forgotten": "forgotten",
    "short": "empty or short",
    "mixture": "not drawn",
    "kept": "kept",
}


def group(reason: str) -> str:
    """The group of a reason, a key of GROUPS."""
    if family(reason) is not None:
        return "quality"
    known = BY_NAME.get(reason)
    return "short" if known is None else known.group


def family(reason: str) -> str | None:
    """The family of a quality rule, one that the recipe brings too; None for other reasons."""
    name, _, rule = reason.partition(":")
    return name if rule and reason != NOT_DRAWN else None


def ordered(reasons: Iterable[str], config: Config) -> list[str]:
    """Reasons in the order they are tried; one that is not known here comes last."""
    place = {
        reason: i
        for i, reason in enumerate((*in_order(rule_bits(config.quality, config.forget)), *(r.name for r in BEHIND)))
    }
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
    known = BY_NAME.get(reason)
    return "" if known is None else known.meaning


def scored(reason: str, config: Config) -> str | None:
    """The score that a quality rule looks at; None for a rule on a column, and for other reasons."""
    scores = (r.score for r in rules(config.quality) if r.name == reason and not r.score.startswith(PREFIX))
    return next(scores, None)


def column_of(reason: str, config: Config) -> str | None:
    """The kept column that a quality rule looks at."""
    scores = (r.score for r in rules(config.quality) if r.name == reason and r.score.startswith(PREFIX))
    return next((score.removeprefix(PREFIX) for score in scores), None)
