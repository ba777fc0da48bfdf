"""The code that a recipe names: scores of quality, readers of sources. Reading a recipe runs none of it; `resolve` does, if it is trusted."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from gpu_curate.config.recipe import COLUMNS, Config
from gpu_curate.errors import ConfigError
from gpu_curate.own_code import READERS, SCORES, TRUST_CODE, Code, find
from gpu_curate.quality import FAMILIES, Quality, bits, own_rules
from gpu_curate.quality.columns import FAMILY
from gpu_curate.quality.judges import COLUMN as JUDGE_COLUMN
from gpu_curate.quality.judges import FAMILY as JUDGES
from gpu_curate.quality.own import Own, read_back
from gpu_curate.quality.own import resolve as resolve_score
from gpu_curate.sources.own import OwnSource
from gpu_curate.sources.sections import SourceBase

# columns of other tables and of exports, beside which a score would stand
_TAKEN = (
    *COLUMNS,
    "language",
    "language_score",
    "keep",
    "reason",
    "failing",
    "partner",
    "cluster",
    "cluster_size",
    "jaccard",
    "bytes",
)


def resolve(
    config: Config, folder: Path, trusted: bool | None = None, origin: str = "recipe", known: Iterable[Code] = ()
) -> Config:
    """The config with the classes that it names, imported and tried.

    Args:
        folder: that a file's path is relative to.
        trusted: files may be run; None: if the environment says so. Installed packages are trusted as installed.
        known: code that is at hand and trusted.
    Raises:
        ConfigError: names recipe, key, file and remedy.
    """
    sources = [s for s in config.sources if isinstance(s, OwnSource) and s.code is None]
    if not sources and all(own.resolved is not None for own in config.quality.own.values()):
        return config
    trusted = os.environ.get(TRUST_CODE) == "1" if trusted is None else trusted
    at_hand = {code.reference: code for code in known}
    try:
        resolved = {}
        for name, own in config.quality.own.items():
            code = at_hand.get(name) or find(name, SCORES, folder, trusted, f"quality.{name}")
            resolved[name] = resolve_score(name, own, code)
        quality = with_own(config.quality, resolved)
        _check_names(quality)
        readers = [_with_reader(s, folder, trusted, at_hand) for s in config.sources]
    except ConfigError as e:
        raise ConfigError("\n".join(f"{origin}: {line}" for line in e.message.split("\n")), e.hint) from e
    return config.model_copy(update={"quality": quality, "sources": readers})


def _with_reader(source: SourceBase, folder: Path, trusted: bool, at_hand: Mapping[str, Code]) -> SourceBase:
    if not isinstance(source, OwnSource) or source.code is not None:
        return source
    key = f"sources.{source.name}.type"
    return source.known(at_hand.get(source.type) or find(source.type, READERS, folder, trusted, key))


def with_own(quality: Quality, own: Mapping[str, Own]) -> Quality:
    """The section with these classes."""
    copy = quality.model_copy()
    object.__setattr__(copy, "__pydantic_extra__", dict(own))
    return copy


def _check_names(quality: Quality) -> None:
    """Raises: ConfigError: two classes give one score or one family, or take a name of ours; too many rules."""
    from gpu_curate.quality import score_types

    scores: dict[str, str] = dict.fromkeys(
        (*score_types(), *_TAKEN, *(JUDGE_COLUMN + n for n in quality.judges)), "gpu_curate"
    )
    families: dict[str, str] = dict.fromkeys((*FAMILIES, FAMILY, JUDGES), "gpu_curate")
    for key, own in quality.own.items():
        assert own.resolved is not None
        for names, name, what in (
            *((scores, name, "score") for name in own.resolved.types),
            (families, own.resolved.label, "class"),
        ):
            if name in names:
                raise ConfigError(
                    f"quality.{key}: the {what} {name} has the name of one of {names[name]}", "give it another name"
                )
            names[name] = key
    rules = [rule.name for rule in own_rules(quality)]
    assert len(set(rules)) == len(rules)
    bits(quality)


def codes(config: Config) -> list[Code]:
    """The code that a config was resolved with."""
    resolved = (own.resolved for own in config.quality.own.values())
    readers = (source.code for source in config.sources if isinstance(source, OwnSource))
    of_scores = [of.code for of in resolved if of is not None and of.code is not None]
    return [*of_scores, *(code for code in readers if code is not None)]


def code_lines(config: Config) -> list[str]:
    """A line for every piece of code of the user's that a run uses."""
    found = []
    for code in codes(config):
        package = f" of {' '.join(code.distribution)}" if code.distribution else ""
        found.append(f"code: {code.reference} ({code.origin}{package}, sha256 {code.digest[:12]})")
    return found


def with_rules_of_run(config: Config, stated: list[dict[str, Any]]) -> Config:
    """A config read back from a run, with the rules that its decisions state in the place of the classes."""
    if not config.quality.own:
        return config
    own = {name: read_back(name, of, stated) for name, of in config.quality.own.items()}
    return config.model_copy(update={"quality": with_own(config.quality, own)})
