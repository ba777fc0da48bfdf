"""Named rules over scores. Scores are stored; a rule only compares one with its bound, so thresholds move freely.

    gopher    gopher_quality, gopher_repetition        c4    c4        fineweb    fineweb
    columns   rules on a column that the sources carry        own, score   scores and rules that a recipe brings
    judges    rules on learned scores

# N documents
"""

from __future__ import annotations

import difflib
import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import ConfigDict, Field, ValidationError, ValidationInfo, model_validator
from pydantic_core import InitErrorDetails

from gpu_curate.errors import ConfigError
from gpu_curate.own_code import SCORES, entry_points, names_file
from gpu_curate.quality import c4, columns, fineweb, gopher, judges
from gpu_curate.quality.c4 import C4
from gpu_curate.quality.columns import ColumnBounds
from gpu_curate.quality.fineweb import FineWeb
from gpu_curate.quality.gopher import GopherQuality, GopherRepetition
from gpu_curate.quality.judges import Judge, JudgeName
from gpu_curate.quality.own import Own, switched
from gpu_curate.quality.rule import Rule, unwritten_words
from gpu_curate.section import Section, Stored

if TYPE_CHECKING:
    import numpy as np


class Quality(Section):
    """Rule families; scores are always stored, a family that is off removes nothing.

    Further keys are scores of your own, with their bounds and parameters: a class in a file, `my_rules.py:Digits: {max: 0.2}`, or
    an entry point of an installed package.
    """

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Own]

    off: ClassVar[dict[str, Any]] = {"columns": {}, "judges": {}}

    gopher_quality: GopherQuality | None = Field(None, description="on, off, or thresholds")
    gopher_repetition: GopherRepetition | None = Field(None, description="on, off, or thresholds")
    c4: C4 | None = Field(None, description="on, off, or thresholds")
    fineweb: FineWeb | None = Field(None, description="on, off, or thresholds")
    columns: dict[str, ColumnBounds] = Field(
        {},
        description="bounds on columns of `keep_columns`: `{score: {min: 3}, language: {in: [en, de], missing: drop}}`",
    )
    judges: dict[JudgeName, Judge] = Field(
        {},
        description="learned scores, and what they decide: `{edu: {model: edu.judge, min: 600}}`; see docs/judges.md",
    )

    @property
    def own(self) -> dict[str, Own]:
        """Scores of the user's own, by the name that the recipe gives their class."""
        return self.__pydantic_extra__ or {}

    @model_validator(mode="before")
    @classmethod
    def _own_keys(cls, data: Any, info: ValidationInfo) -> Any:
        """A key beside the fields names a class; any other is unknown."""
        if not isinstance(data, dict):
            return data
        own = {key: switched(value) for key, value in data.items() if key not in cls.model_fields}
        unknown = [key for key in own if not _names_class(key, isinstance(info.context, Stored))]
        if unknown:
            errors = [InitErrorDetails(type="extra_forbidden", loc=(key,), input=data[key]) for key in unknown]
            raise ValidationError.from_exception_data(cls.__name__, errors)
        on = {key: value for key, value in own.items() if value is not None}
        return {**{key: value for key, value in data.items() if key not in own}, **on}


def _names_class(key: Any, stored: bool) -> bool:
    return isinstance(key, str) and (stored or names_file(key) or key in entry_points(SCORES))


# Families and, within them, rules have one order for ever: a rule's place is its bit. New ones are appended.
_RULES_OF: dict[str, tuple[Callable[[Any], list[Rule]], type[Section]]] = {
    "gopher_quality": (gopher.quality_rules, GopherQuality),
    "gopher_repetition": (gopher.repetition_rules, GopherRepetition),
    "c4": (c4.rules, C4),
    "fineweb": (fineweb.rules, FineWeb),
}
FAMILIES = tuple(_RULES_OF)
RULES = tuple(rule.name for rules, section in _RULES_OF.values() for rule in rules(section()))
MAX_RULES = 56  # bits from here up belong to the reasons of other stages


def scores(stats: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """All scores of N documents, whatever the config: the columns of scores/*.parquet.

    Args:
        stats: of `text_stats`, on the host.
    Returns:
        the names of `score_types()` in order → arrays of N. Counts are int32. `..._fraction` (0 to 1), `..._ratio` and `mean_...`
        are float64, the correctly rounded quotient of two counts, so equal on every machine; 0.0 where the lower count is 0.
    """
    import numpy as np

    return {
        "chars": stats["chars"],
        "words": (stats["words"] + unwritten_words(stats)).astype(np.int32),
        **gopher.scores(stats),
        **c4.scores(stats),
        **fineweb.scores(stats),
    }


@functools.cache
def score_types() -> dict[str, np.dtype[Any]]:
    """Every score, in order, with its type."""
    import numpy as np

    from gpu_curate.ops.text_stats import SCHEMA

    return {name: v.dtype for name, v in scores({name: np.zeros(0, dtype) for name, dtype in SCHEMA.items()}).items()}


def own_score_types(quality: Quality) -> dict[str, str]:
    """Every score of the user's own classes and of judges, in order, with its type."""
    resolved = (own.resolved for own in quality.own.values())
    of_classes = {name: dtype for of in resolved if of is not None for name, dtype in of.types.items()}
    return of_classes | {judges.COLUMN + name: "int32" for name in quality.judges}


def check_survivor(keep: str, with_language: bool, quality: Quality | None = None) -> None:
    """Refuse a `dedup.fuzzy.keep` that names a score which the run will not have.

    Raises:
        ConfigError: `dedup.fuzzy.keep: highest:NAME`, where NAME is no score, nor `language_score` with a model.
    """
    name = keep.removeprefix("highest:")
    own = [] if quality is None else list(own_score_types(quality))
    known = [*score_types(), *own, *(["language_score"] if with_language else [])]
    if name != keep and name not in known:
        close = difflib.get_close_matches(name, known, n=1)
        hint = "set language.model to have it" if name == "language_score" else f"there are {', '.join(known)}"
        raise ConfigError(
            f"dedup.fuzzy.keep: highest:{name}: no such score", f"did you mean {close[0]!r}?" if close else hint
        )


def rules(quality: Quality) -> list[Rule]:
    """Every rule that is on, in the order of `bits`; one of a family whose threshold is null has limit None."""
    sections = {family: getattr(quality, family) for family in FAMILIES}
    of_families = [rule for family, t in sections.items() if t is not None for rule in _RULES_OF[family][0](t)]
    return [*of_families, *own_rules(quality)]


def own_rules(quality: Quality) -> list[Rule]:
    """The rules that the recipe brings, in its order."""
    of_classes = [rule for own in quality.own.values() if own.resolved is not None for rule in own.resolved.rules]
    return [*of_classes, *columns.rules(quality.columns), *judges.rules(quality.judges)]


def bits(quality: Quality) -> dict[str, int]:
    """The bit in `failing` of every rule: of RULES its place, whatever is on; those that the recipe brings follow.

    Raises:
        ConfigError: there are more than fit.
    """
    own = [rule.name for rule in own_rules(quality)]
    if len(RULES) + len(own) > MAX_RULES:
        raise ConfigError(
            f"quality: {len(own)} rules of columns, of judges and of your own; {MAX_RULES - len(RULES)} are possible",
            f"leave out some, the first too many is {own[MAX_RULES - len(RULES)]}",
        )
    return {name: bit for bit, name in enumerate((*RULES, *own))}


def identity(quality: Quality) -> dict[str, Any]:
    """What decisions depend on, as plain data: bounds, not where a class of the user's lies."""
    families = quality.model_dump(include={*FAMILIES, "columns"})
    own = [[r.name, r.score, r.bound, r.limit] for r in own_rules(quality) if not isinstance(r, columns.ColumnRule)]
    shares = {"per": [r.per for r in judges.rules(quality.judges)]} if quality.judges else {}
    return {**families, "own": own, **shares}


def evaluate(scores: Mapping[str, Any], quality: Quality) -> np.ndarray:
    """Which rules each document fails.

    Args:
        scores: arrays of N by name, at least those whose families are on; `columns.Values` of the columns that have rules.
        quality: families and thresholds.
    Returns:
        failing_N: uint64; the document fails the rules whose `bits` are set. The lowest bit is the first failing rule; 0:
        kept. The bits of families do not depend on what is on, so bit sets of two configs can be compared.
    """
    import numpy as np

    bit = bits(quality)
    failing_N = np.zeros(len(next(iter(scores.values()))), np.uint64)
    for rule in rules(quality):
        failing_N |= rule.fails(scores).astype(np.uint64) << np.uint64(bit[rule.name])
    return failing_N


def reasons(failing_N: np.ndarray, quality: Quality | None = None) -> list[str | None]:
    """The first failing rule of every document; None where there is none.

    Args:
        quality: of `evaluate`, where it brings rules of its own.
    """
    names = RULES if quality is None else tuple(bits(quality))
    return [names[(failing & -failing).bit_length() - 1] if failing else None for failing in failing_N.tolist()]
