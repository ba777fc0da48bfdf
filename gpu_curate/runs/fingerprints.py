"""The boxes of a recipe and their fingerprints; where they lie: `places`.

A box that is made partition by partition of documents/ holds those of every set of inputs that was asked for: its folder's
fingerprint covers code, settings and what else it reads, and each partition is known by what it was made of. What is made of
the whole corpus has a folder for each set of inputs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpu_curate.config import Config
from gpu_curate.errors import ConfigError
from gpu_curate.quality import check_survivor
from gpu_curate.runs.split import Earlier, bound_of, earlier_split, with_bound
from gpu_curate.stages import Stage
from gpu_curate.stages.documents.corpus import Corpus
from gpu_curate.stages.documents.stage import Documents
from gpu_curate.stages.order import BESIDE, STAGES, OfRecipe, stages_of
from gpu_curate.store.code import code_digest, file_of
from gpu_curate.store.fingerprint import digest, versions
from gpu_curate.store.run_directory import owner, place

DOCUMENTS = "documents"


def active_stages(
    config: Config, corpus: Corpus | None = None, stages: Iterable[OfRecipe | Stage] = STAGES
) -> list[Stage]:
    """The stages that a config uses.

    Args:
        corpus: what the documents stage reads; None: nobody has looked.
        stages: as for `stages_of`.
    """
    built = stages_of(config, stages)
    for stage in built:
        if isinstance(stage, Documents):
            stage.corpus = corpus
    return built


def fingerprints(
    config: Config, corpus: Corpus | None = None, stages: Iterable[OfRecipe | Stage] = STAGES
) -> dict[str, str]:
    """Fingerprint of every box of this config, its inputs included. Looks at the input files; reads none of their content unless
    asked to.

    Args:
        corpus: what is read; None: the files as they are numbered and cut in an empty run directory.
        stages: as for `stages_of`.
    Raises:
        ConfigError: an input, a tokenizer or a model is missing.
    """
    if config.dedup.fuzzy is not None:
        check_survivor(config.dedup.fuzzy.keep, config.language.model is not None, config.quality)
    found: dict[str, str] = {}
    for stage in active_stages(config, corpus, stages):
        found[stage.name] = fingerprint(stage, found)
    return found


def fingerprint(stage: Stage, found: dict[str, str]) -> str:
    """That of one box, by those that it reads."""
    upstream = [*([stage.follows] if stage.follows else []), *stage.inputs]
    return digest(
        {
            "box": stage.name,
            "code": _code(stage),
            "settings": stage.settings(),
            "libraries": versions(stage.libraries()),
            "inputs": stage.outside(),
            "upstream": {b: found[b] for b in upstream},
        }
    )


def _code(stage: Stage) -> str:
    """Raises: ConfigError: the class stands in no file."""
    try:
        return code_digest(file_of(type(stage)))
    except OSError as e:
        raise ConfigError(
            f"stage {stage.name}: {e}", "put its class into a file: its source is part of the fingerprint"
        ) from e


def pinned(
    config: Config, run: Path, fingerprint_of: dict[str, str], fresh: bool = False
) -> tuple[Config, dict[str, str], Earlier | None]:
    """The config with the split bound that an earlier set of shards gives it, its fingerprints, and that set.

    A set that this config made without a pin, and whose bound is the same, has the same bytes: it is taken as it is.

    Raises:
        ConfigError: `shards.validation.earlier` names no set that can be kept to.
    """
    earlier = earlier_split(config, run, fresh)
    if earlier is None or not earlier.pinned or earlier.bound is None:
        return config, fingerprint_of, earlier
    own = run / place(run, "shards", fingerprint_of["shards"])
    if owner(earlier.folder) == fingerprint_of["shards"] or bound_of(own) == earlier.bound:
        return config, fingerprint_of, earlier
    config = with_bound(config, earlier.bound)
    stage = next(s for s in active_stages(config) if s.name == "shards")
    return config, {**fingerprint_of, "shards": fingerprint(stage, fingerprint_of)}, earlier


@dataclass(frozen=True)
class Parts:
    """Which boxes go by partitions of documents/, and which are made of the whole corpus.

    Attributes:
        following: boxes whose partitions are those of documents/.
        kept: of these, the ones that hold partitions of more than the present run, each known by what it was made of.
        shared: boxes that lie in the cache of a run that has one: those kept, and what depends on no corpus.
    """

    following: frozenset[str]
    kept: frozenset[str]
    shared: frozenset[str]

    def facts(self, own: dict[str, str]) -> dict[str, Any]:
        """For the snapshot. `own`: of `own_fingerprints`."""
        boxes = {name: own[name] for name in sorted(self.kept)}
        return {"boxes": boxes, "following": sorted(self.following), "shared": sorted(self.shared)}


def parts_of(stages: Sequence[Stage]) -> Parts:
    following, kept, of_corpus = {DOCUMENTS}, {DOCUMENTS}, {DOCUMENTS}
    names = []
    for stage in stages:
        names.append(stage.name)
        reads = set(stage.inputs)
        if stage.follows in following:
            following.add(stage.name)
        if stage.follows in kept and not reads & of_corpus:
            kept.add(stage.name)
        if stage.follows in of_corpus or reads & of_corpus:
            of_corpus.add(stage.name)
    apart = {name for name in names if name not in of_corpus}
    return Parts(frozenset(following), frozenset(kept), frozenset(kept | apart | set(BESIDE)))


def own_fingerprints(stages: Sequence[Stage], fingerprint_of: dict[str, str], parts: Parts) -> dict[str, str]:
    """The fingerprints of folders: those of `fingerprint_of`, but of a box that is kept without the inputs.

    Args:
        fingerprint_of: of `fingerprints`, which cover the inputs.
    """
    own: dict[str, str] = {}
    for stage in stages:
        if stage.name not in parts.kept:
            own[stage.name] = fingerprint_of[stage.name]
            continue
        common = stage.common() if isinstance(stage, Documents) else None
        own[stage.name] = digest(
            {
                "box": stage.name,
                "code": _code(stage),
                "settings": stage.settings() if common is None else common,
                "libraries": versions(stage.libraries()) if common is None else None,
                "follows": own.get(stage.follows or ""),
                "reads": {b: fingerprint_of[b] for b in stage.inputs},
            }
        )
    return own
