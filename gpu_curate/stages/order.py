"""The stages of a run, in the order of the data flow: the one place that knows the whole recipe, and builds them from it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpu_curate.errors import ConfigError
from gpu_curate.stages import Stage

if TYPE_CHECKING:
    from gpu_curate.config import Config
    from gpu_curate.stages.contamination import Benchmark
    from gpu_curate.stages.cuts import CutRule
    from gpu_curate.stages.documents.intake import Intake
    from gpu_curate.stages.sections import Reference

BESIDE = ("texts", "rejects")  # folders that the documents stage writes to beside its own, named after it


@dataclass(frozen=True)
class OfRecipe:
    """A stage that a recipe builds: the name of its box, and how; None where the recipe has no use for it."""

    name: str
    build: Callable[[Config], Stage | None]


def intake_of(config: Config) -> Intake:
    """What the documents stage is made of."""
    from gpu_curate.stages.documents.intake import Intake

    run = config.run
    return Intake(config.sources, config.normalize, config.pii, run.partition_bytes, run.by_reference, run.strict)


def benchmarks_of(config: Config) -> list[Benchmark]:
    """The reference sets that documents are searched for."""
    from gpu_curate.stages.contamination import benchmarks

    return benchmarks(config.references)


def keeps_neighbours(config: Config) -> bool:
    """True if more than one document of a component of duplicates may be kept."""
    fuzzy = config.dedup.fuzzy
    return fuzzy is not None and fuzzy.verify != "none" and fuzzy.verify_against == "survivor"


def _documents(config: Config) -> Stage:
    from gpu_curate.stages.documents.stage import Documents

    return Documents(intake_of(config))


def _references(config: Config) -> Stage | None:
    from gpu_curate.stages.reference_sets import References

    given = [r for r in config.references if r.from_ is None]
    return References(config.references, config.normalize) if given else None


def _against_sets(config: Config) -> bool:
    """True if documents are compared with reference sets as wholes."""
    return any(r.action != "decontaminate" for r in config.references)


def _signatures(config: Config) -> Stage:
    from gpu_curate.stages.signatures import Signatures

    return Signatures(config.dedup.fuzzy, _against_sets(config))


def _reference_signatures(config: Config) -> Stage | None:
    from gpu_curate.stages.signatures import ReferenceSignatures

    return ReferenceSignatures(config.dedup.fuzzy) if _against_sets(config) else None


def _scores(config: Config) -> Stage:
    from gpu_curate.stages.scores import Scores

    quality = config.quality
    return Scores(quality.gopher_quality, config.language, config.normalize, quality.own, quality.judges)


def _annotations(config: Config) -> Stage | None:
    from gpu_curate.stages.annotations import Annotations

    return Annotations(config.annotations) if config.annotations else None


def _contamination(config: Config) -> Stage | None:
    from gpu_curate.stages.contamination import Contamination

    found = benchmarks_of(config)
    return Contamination(found) if found else None


def _ngrams(config: Config) -> Stage | None:
    from gpu_curate.stages.ngrams import Ngrams

    found = benchmarks_of(config)
    return Ngrams(found) if found else None


def _overlaps(config: Config) -> Stage | None:
    from gpu_curate.stages.overlaps import Overlaps

    found = benchmarks_of(config)
    return Overlaps(found) if found else None


def _tokenizer(config: Config) -> Stage | None:
    from gpu_curate.stages.tokenizer import TrainedTokenizer

    options = config.tokenizer
    return TrainedTokenizer(options.train, str(options.eot)) if options.train is not None else None


def _tokens(config: Config) -> Stage:
    from gpu_curate.stages.tokens import Tokens

    return Tokens(config.tokenizer)


def _deduplicates(config: Config) -> bool:
    return bool(config.dedup.exact) or config.dedup.fuzzy is not None


def _candidates(config: Config) -> Stage | None:
    from gpu_curate.stages.candidates import Candidates

    return Candidates(config.dedup, config.references) if _deduplicates(config) else None


def _duplicates(config: Config) -> Stage | None:
    from gpu_curate.stages.duplicates import Duplicates

    return Duplicates(config.dedup, config.references) if _deduplicates(config) else None


def cut_rules(config: Config) -> list[CutRule]:
    """What cuts ranges out of documents."""
    from gpu_curate.stages.contamination_cuts import ContaminationCuts

    found: list[CutRule] = []
    if any(b.reference.on_match == "cut" for b in benchmarks_of(config)):
        found.append(ContaminationCuts(tuple(benchmarks_of(config))))
    return found


def _cuts(config: Config) -> Stage | None:
    from gpu_curate.stages.cuts import Cuts

    rules = cut_rules(config)
    return Cuts(rules) if rules else None


def _cut_tokens(config: Config) -> Stage | None:
    from gpu_curate.stages.cut_tokens import CutTokens

    return CutTokens() if cut_rules(config) else None


def dropping_of(config: Config) -> list[Benchmark]:
    """The reference sets that documents are dropped for."""
    return [b for b in benchmarks_of(config) if b.reference.on_match == "drop"]


def _decisions(config: Config) -> Stage:
    from gpu_curate.stages.decisions import Decisions

    limits = {b.reference.name: b.reference.max_coverage for b in dropping_of(config)}
    switches = _deduplicates(config), config.forget, bool(cut_rules(config)), bool(config.annotations)
    return Decisions(config.quality, config.language, config.min_tokens, limits, *switches)


def _items(config: Config) -> Stage | None:
    from gpu_curate.stages.item_counts import Items

    found = benchmarks_of(config)
    return Items(found) if found else None


def own_of(config: Config) -> Reference | None:
    """The entry of `references` that is the run's own held-out documents."""
    return next((r for r in config.references if r.from_ == "validation"), None)


def _held_out(config: Config) -> Stage | None:
    from gpu_curate.stages.held_out import HeldOut

    train_only = any(r.action == "train_only" for r in config.references)
    switches = train_only, keeps_neighbours(config), bool(cut_rules(config))
    return HeldOut(config.shards, config.sources, switches) if own_of(config) is not None else None


def _leaks(config: Config) -> Stage | None:
    from gpu_curate.stages.held_out import Leaks

    own = own_of(config)
    return Leaks(own, bool(cut_rules(config))) if own is not None else None


def _shards(config: Config) -> Stage:
    from gpu_curate.config import for_publication
    from gpu_curate.stages.shards import Shards

    train_only = any(r.action == "train_only" for r in config.references)
    tokenizer = config.tokenizer.path or "trained"
    recipe, neighbours = for_publication(config), keeps_neighbours(config)
    own = own_of(config)
    more = [*(["cut_tokens"] if cut_rules(config) else []), *(["leaks"] if own and own.on_match == "drop" else [])]
    judges = {name: judge for name, judge in config.quality.judges.items() if judge.bands}
    return Shards(config.shards, config.sources, train_only, neighbours, tokenizer, recipe, tuple(more), judges)


STAGES = (
    OfRecipe("documents", _documents),
    OfRecipe("references", _references),
    OfRecipe("signatures", _signatures),
    OfRecipe("reference_signatures", _reference_signatures),
    OfRecipe("scores", _scores),
    OfRecipe("annotations", _annotations),
    OfRecipe("contamination", _contamination),
    OfRecipe("ngrams", _ngrams),
    OfRecipe("overlaps", _overlaps),
    OfRecipe("tokenizer", _tokenizer),
    OfRecipe("tokens", _tokens),
    OfRecipe("candidates", _candidates),
    OfRecipe("duplicates", _duplicates),
    OfRecipe("cuts", _cuts),
    OfRecipe("cut_tokens", _cut_tokens),
    OfRecipe("decisions", _decisions),
    OfRecipe("items", _items),
    OfRecipe("held_out", _held_out),
    OfRecipe("leaks", _leaks),
    OfRecipe("shards", _shards),
)


def stages_of(config: Config, stages: Iterable[OfRecipe | Stage] = STAGES) -> list[Stage]:
    """The stages that a recipe has a use for, each behind those that it reads.

    Args:
        stages: all of ours, and further ones.
    Raises:
        ConfigError: one of ours is missing, two have one name, or one reads what nobody makes before it.
    """
    given = list(stages)
    missing = [s.name for s in STAGES if s not in given]
    if missing:
        raise ConfigError(f"stages: {', '.join(missing)} is missing", "begin the list with *gpu_curate.STAGES")
    built: list[Stage] = []
    taken = {*BESIDE, "report", *(s.name for s in STAGES)}
    for stage in given:
        if isinstance(stage, OfRecipe):
            ours = stage.build(config)
            built += [ours] if ours is not None else []
        else:
            _check(stage, taken, {s.name for s in built})
            taken.add(stage.name)
            built.append(stage)
    return built


def _check(stage: Stage, taken: set[str], before: set[str]) -> None:
    """Raises: ConfigError: a stage of the user's own cannot be run."""
    if isinstance(stage, type):
        raise ConfigError(f"stages: {stage.__name__} is a class", f"give an instance: {stage.__name__}()")
    if not isinstance(stage, Stage):
        raise ConfigError(f"stages: {stage!r} is no stage", "a stage is below the class gpu_curate.Stage")
    name = getattr(stage, "name", None)
    if not isinstance(name, str) or not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        raise ConfigError(f"stages: {type(stage).__name__}.name is {name!r}", "give it a name like `my_stage`")
    if name in taken:
        raise ConfigError(f"stages: there is a {name} already", f"give {type(stage).__name__} another name")
    read = [*([stage.follows] if stage.follows is not None else []), *stage.inputs]
    unknown = [box for box in read if box not in before]
    if unknown:
        raise ConfigError(
            f"stage {name} reads {', '.join(unknown)}, which this recipe does not make before it",
            f"there are {', '.join(sorted(before))}",
        )
