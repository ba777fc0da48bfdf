"""The boxes of a recipe: their fingerprints, and the folders that hold them."""

from __future__ import annotations

from pathlib import Path

from gpu_curate.config import Config
from gpu_curate.quality import check_survivor
from gpu_curate.runs.split import Earlier, bound_of, earlier_split, with_bound
from gpu_curate.stages import Stage
from gpu_curate.stages.order import BESIDE, all_stages
from gpu_curate.store.fingerprint import code_digest, digest, versions
from gpu_curate.store.run_directory import owner, place


def active_stages(config: Config) -> list[Stage]:
    return [s for s in all_stages() if s.active(config)]


def fingerprints(config: Config) -> dict[str, str]:
    """Fingerprint of every box of this config. Looks at the input files; reads none of their content unless asked to.

    Raises:
        ConfigError: an input, a tokenizer or a model is missing.
    """
    if config.dedup.fuzzy is not None:
        check_survivor(config.dedup.fuzzy.keep, config.language.model is not None, config.quality)
    found: dict[str, str] = {}
    for stage in active_stages(config):
        found[stage.name] = _fingerprint(stage, config, found)
    return found


def _fingerprint(stage: Stage, config: Config, found: dict[str, str]) -> str:
    inputs = stage.inputs(config) if hasattr(stage, "inputs") else None
    upstream = [b for b in ((stage.follows,) if stage.follows else ()) + stage.reads(config) if b is not None]
    return digest(
        {
            "box": stage.name,
            "code": code_digest((*stage.code, "document", "store")),
            "settings": stage.settings(config),
            "libraries": versions(stage.libraries(config)),
            "inputs": inputs,
            "upstream": {b: found[b] for b in upstream},
        }
    )


def pinned(
    config: Config, run: Path, prints: dict[str, str], fresh: bool = False
) -> tuple[Config, dict[str, str], Earlier | None]:
    """The config with the split bound that an earlier set of shards gives it, its fingerprints, and that set.

    A set that this config made without a pin, and whose bound is the same, has the same bytes: it is taken as it is.

    Raises:
        ConfigError: `shards.validation.earlier` names no set that can be kept to.
    """
    earlier = earlier_split(config, run, fresh)
    if earlier is None or not earlier.pinned or earlier.bound is None:
        return config, prints, earlier
    own = run / place(run, "shards", prints["shards"])
    if owner(earlier.folder) == prints["shards"] or bound_of(own) == earlier.bound:
        return config, prints, earlier
    config = with_bound(config, earlier.bound)
    stage = next(s for s in active_stages(config) if s.name == "shards")
    return config, {**prints, "shards": _fingerprint(stage, config, prints)}, earlier


def folders(run: Path, prints: dict[str, str]) -> dict[str, str]:
    """The folder of every box: its plain name, or NAME-FINGERPRINT where the plain one holds something else.

    Shards have their fingerprint in their name always; the plain one is a link to the latest.
    """
    chosen = {}
    for name, print_ in prints.items():
        if name == "shards":
            chosen[name] = place(run, name, print_)
            continue
        taken = owner(run / name) not in (None, print_)
        chosen[name] = f"{name}-{print_[:12]}" if taken else name
    for beside in BESIDE:
        chosen[beside] = chosen["documents"].replace("documents", beside, 1)
    return chosen
