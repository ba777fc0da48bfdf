"""The scores and rules that a recipe brings: `quality: {my_rules.py:Digits: {max: 0.2}}`.

What stands below the name is, by key, a bound (`min`, `max` of a class with one score; `min_SCORE`, `max_SCORE`) or a parameter
of the class. Reading a recipe runs nothing; `resolve` imports the class, and from then on its rules are known. A run reads its
own recipe back with the rules that its decisions state, without the class.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, PrivateAttr, RootModel

from gpu_curate.errors import ConfigError, did_you_mean
from gpu_curate.own_code import Code, failure, load, wrong_values
from gpu_curate.quality.rule import ANY_SCRIPT, Rule
from gpu_curate.quality.score import Score, scores_of
from gpu_curate.section import SWITCHES

_TRIAL = "It was made in 1912, and 3 of 4 people know it.\nSo they say."


@dataclass(frozen=True)
class Resolved:
    """What is known of a class of the user's.

    Attributes:
        code: None of a run that was read back: nothing is run then.
        label: of the class, the family of its rules.
        types: score → dtype.
        parameters: as the recipe gives them.
        rules: its bounds.
    """

    code: Code | None
    label: str
    types: Mapping[str, str]
    parameters: Mapping[str, Any]
    rules: tuple[Rule, ...]

    def identity(self) -> dict[str, Any]:
        """What the values of its scores depend on, for a fingerprint; no bound is among it."""
        from gpu_curate.store.fingerprint import versions

        scorer = self.scorer()
        return {
            "code": self.code and self.code.identity(),
            "parameters": scorer.model_dump(mode="json"),
            "libraries": versions(scorer.libraries),
            "files": [self._hash(path) for path in scorer.files()],
        }

    def _hash(self, path: str) -> str:
        from gpu_curate.store.files import file_hash

        try:
            return file_hash(Path(path))
        except OSError as e:
            raise ConfigError(f"{self.label}: its file {path}: {e.strerror}") from e

    def scorer(self) -> Score:
        """An object of the class; one a process."""
        assert self.code is not None, "a run that was read back scores nothing"
        return _scorer(self.code, json.dumps(self.parameters, sort_keys=True, default=str))


@functools.lru_cache(maxsize=64)
def _scorer(code: Code, parameters: str) -> Score:
    """JSON in, so that a list is a set or a tuple where the class wants one."""
    made: Score = load(code, f"quality.{code.reference}").model_validate_json(parameters)
    return made


class Own(RootModel[dict[str, Any]]):
    """What a recipe says below the name of a class of the user's."""

    model_config = ConfigDict(frozen=True)

    _resolved: Resolved | None = PrivateAttr(None)

    @property
    def resolved(self) -> Resolved | None:
        return self._resolved

    def known(self, resolved: Resolved) -> Own:
        """The same with its class."""
        own = Own(self.root)
        own._resolved = resolved
        return own


def switched(value: Any) -> Any:
    """What stands behind the name of a class: a mapping; {} for `on`; None for `off`."""
    value = SWITCHES.get(value, value) if isinstance(value, str) else value
    return None if value is None or value is False else {} if value is True else value


def resolve(reference: str, own: Own, code: Code) -> Own:
    """Import the class, and take its bounds and parameters out of the recipe.

    Raises:
        ConfigError: the class cannot be had, is no Score, or fails on a trial text; a bound or a parameter is wrong.
    """
    key = f"quality.{reference}"
    kind = load(code, key)
    if not (isinstance(kind, type) and issubclass(kind, Score)) or kind is Score:
        raise ConfigError(
            f"{key}: {code.origin}: {code.name} is no score", "write class " + code.name + "(gc.Score): ..."
        )
    try:
        types = kind.types()
    except ConfigError as e:
        raise ConfigError(f"{key}: {code.origin}: {e.message}", e.hint) from e
    bounds, parameters = _told_apart(kind, types, own.root, key)
    label = kind.__name__
    rules = tuple(_rules(reference, label, bounds))
    resolved = Resolved(code, label, types, parameters, rules)
    _try(kind, resolved, key)
    return own.known(resolved)


def of_class(kind: type[Score] | Score, settings: Mapping[str, Any]) -> tuple[str, Own]:
    """As `resolve`, of a class or an object that is at hand."""
    cls = kind if isinstance(kind, type) else type(kind)
    key = f"quality.{cls.__name__}"
    types = cls.types()
    bounds, parameters = _told_apart(cls, types, dict(settings), key)
    if parameters:
        raise ConfigError(
            f"{key}.{min(parameters)}: a table of scores is decided by bounds alone", "give it to the class"
        )
    rules = tuple(_rules(cls.__name__, cls.__name__, bounds))
    return cls.__name__, Own(dict(settings)).known(Resolved(None, cls.__name__, types, {}, rules))


def _told_apart(
    kind: type[Score], types: Mapping[str, str], given: Mapping[str, Any], key: str
) -> tuple[dict[str, tuple[str, str, Any]], dict[str, Any]]:
    """Bounds (key → score, min or max, value), and parameters. Raises: ConfigError."""
    names = {f"{bound}_{name}": (name, bound) for name in types for bound in ("min", "max")}
    if len(types) == 1:
        names |= {bound: (next(iter(types)), bound) for bound in ("min", "max")}
    bounds: dict[str, tuple[str, str, Any]] = {}
    parameters: dict[str, Any] = {}
    for name, value in given.items():
        if name in names:
            bounds[name] = (*names[name], _limit(value, f"{key}.{name}"))
        elif name in kind.model_fields:
            parameters[name] = value
        else:
            known = [*names, *kind.model_fields]
            near = did_you_mean(name, known) or f" (known: {', '.join(known)})"
            raise ConfigError(f"{key}.{name}: unknown key{near}")
    limits: dict[tuple[str, str], Any] = {}
    for name, (score, bound, value) in bounds.items():
        if (score, bound) in limits:
            raise ConfigError(f"{key}.{name}: this bound is given twice")
        limits[score, bound] = value
    for score in types:
        low, high = limits.get((score, "min")), limits.get((score, "max"))
        if low is not None and high is not None and low > high:
            raise ConfigError(f"{key}: min {low} above max {high} of {score} drops every document", "swap them")
    return bounds, parameters


def _limit(value: Any, key: str) -> int | float | None:
    if value is None or switched(value) is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ConfigError(f"{key}: expected a number, got {value!r}", "null switches the bound off")
    return value


def _rules(reference: str, label: str, bounds: Mapping[str, tuple[str, str, Any]]) -> Iterable[Rule]:
    for key, (score, bound, limit) in bounds.items():
        if limit is not None:
            at = f"quality.{reference}.{key}"
            yield Rule(f"{label}:{bound}_{score}", score, bound, limit, key, ANY_SCRIPT, at)  # type: ignore[arg-type]  # bound is min or max


def _try(kind: type[Score], resolved: Resolved, key: str) -> None:
    """Make an object of the class, and score a text before any work. Raises: ConfigError."""
    import pyarrow as pa

    from gpu_curate.errors import FatalError

    code = resolved.code
    try:
        scorer = resolved.scorer()
        scorer.score_all(pa.array([_TRIAL], pa.large_string()))
        _, refused = scores_of(scorer, pa.array([_TRIAL, ""], pa.large_string()), resolved.label)
    except FatalError as e:
        raise ConfigError(f"{key}: {code and code.origin}: {e.message}", f"on the text {_TRIAL!r}") from e
    except ConfigError:
        raise
    except (Exception, SystemExit) as e:
        from pydantic import ValidationError

        if isinstance(e, ValidationError) and e.title == kind.__name__:
            raise ConfigError("\n".join(wrong_values(e, key))) from e
        raise ConfigError(f"{key}: {failure(e, code)}", f"on the text {_TRIAL!r}") from e
    if refused:
        raise ConfigError(f"{key}: {code and code.origin}: {refused[0]}", f"on the text {_TRIAL!r}")


def read_back(reference: str, own: Own, stated: Iterable[Mapping[str, Any]]) -> Own:
    """A class whose rules are what a run's decisions state.

    Args:
        stated: of `rules_of_run`.
    """
    rules = tuple(
        Rule(r["name"], r["score"], r["bound"], r["limit"], r["at"].rpartition(".")[2], ANY_SCRIPT, r["at"])
        for r in stated
        if r.get("at", "").startswith(f"quality.{reference}.")
    )
    label = reference.rpartition(":")[2]
    return own.known(Resolved(None, label, {r.score: "" for r in rules}, {}, rules))
