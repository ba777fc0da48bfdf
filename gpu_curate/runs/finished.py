"""A run as it lies on disk: which folders belong to its latest shards, or to an earlier set of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from gpu_curate.config import did_you_mean, parse
from gpu_curate.config.own import with_rules_of_run
from gpu_curate.errors import ConfigError, CorruptError
from gpu_curate.runs.fingerprints import DOCUMENTS
from gpu_curate.runs.places import cache_in
from gpu_curate.section import Stored
from gpu_curate.stages import Context
from gpu_curate.stages.order import BESIDE
from gpu_curate.stages.rule_values import rules_of_run
from gpu_curate.store.files import read_json
from gpu_curate.store.run_directory import FINGERPRINT, RUN_FILE, below, run_faults
from gpu_curate.store.snapshot import Snapshot, read_snapshot, snapshot_path


def open_run(run: Path, shards: str | None = None) -> Context:
    """The context of a run whose decisions are made.

    Args:
        run: run directory.
        shards: folder of an earlier set of shards in it; None: the latest.
    Raises:
        ConfigError: no run directory, no such set, its boxes are gone, or its documents are not decided yet.
    """
    path = run / RUN_FILE
    if not path.exists():
        raise ConfigError(f"{run} is not a run directory: it has no {RUN_FILE}")
    try:
        info = read_json(path)
        faults = run_faults(info)
        fingerprint_of, config = info["fingerprints"], info["config"]
    except (CorruptError, KeyError, TypeError) as e:
        raise ConfigError(f"{path} is not a run file of this program") from e
    faults = faults or [f"fingerprints.{box}" for box in ("documents", "decisions") if box not in fingerprint_of]
    if faults:
        raise ConfigError(f"{path} is not a run file of this program ({'; '.join(faults[:3])})")
    cache = cache_in(info, path)
    made_by = {p.parent.name: p.read_text().strip() for p in sorted(run.glob(f"*/{FINGERPRINT}"))}
    if shards is not None:
        fingerprint_of, config = _earlier(run, Path(shards).name, made_by, fingerprint_of, config)
    snapshot = _snapshot(run, fingerprint_of)
    recipe = parse(config, str(path), Stored())
    own = {**fingerprint_of, **(snapshot.boxes if snapshot else {})}
    shared = snapshot.shared if snapshot else frozenset()
    roots = {name: cache if cache is not None and name in shared else run for name in own}
    owners = {root: _owners(root) for root in {*roots.values()}}
    missing = [name for name, fingerprint in own.items() if fingerprint not in owners[roots[name]]]
    if missing:
        raise ConfigError(f"{run}: {', '.join(missing)} of these shards are not there", "run its recipe again")
    folders = {name: below(roots[name], owners[roots[name]][fingerprint]).name for name, fingerprint in own.items()}
    for beside in BESIDE:
        folders[beside] = folders[DOCUMENTS].replace(DOCUMENTS, beside, 1)
    following = snapshot.following if snapshot else frozenset()
    corpus = fingerprint_of[DOCUMENTS] if snapshot else ""
    context = replace(Context.of(run, recipe, folders), corpus=corpus, parted=following, cache=cache, shared=shared)
    context = replace(context, config=with_rules_of_run(context.config, rules_of_run(context)))
    parts = set(context.box("documents").parts())
    there = len(parts & set(context.box("decisions").parts()))
    if not parts or there < len(parts):
        raise ConfigError(
            f"{run}: {there:,} of {len(parts):,} partitions are decided", "run its recipe to the end, then ask again"
        )
    return context


def _owners(root: Path) -> dict[str, str]:
    """Fingerprint → the folder in `root` that has it: of a box and a link to it, the box."""
    return {p.read_text().strip(): p.parent.name for p in sorted(root.glob(f"*/{FINGERPRINT}"))}


def _snapshot(run: Path, fingerprint_of: dict[str, str]) -> Snapshot | None:
    """What the shards were made of; None: a run of a version that kept no others beside it."""
    path = snapshot_path(run, str(fingerprint_of.get(DOCUMENTS)))
    try:
        return read_snapshot(path)
    except FileNotFoundError:
        return None
    except CorruptError as e:
        raise ConfigError(e.message, "run its recipe again") from e


def _earlier(
    run: Path, name: str, made_by: dict[str, str], fingerprint_of: dict[str, str], config: dict[str, Any]
) -> tuple[dict[str, str], dict[str, Any]]:
    """Fingerprints and config of the set of shards in the folder `name`."""
    sets = [folder for folder in made_by if folder.partition("-")[0] == "shards"]
    if name not in sets:
        raise ConfigError(
            f"{run} has no shards {name!r}{did_you_mean(name, sets)}", f"there are {', '.join(sets) or 'none'}"
        )
    if made_by[name] == fingerprint_of.get("shards"):
        return fingerprint_of, config
    for report in sorted(run.glob("report*/report.json")):
        facts = read_json(report)
        if facts.get("fingerprints", {}).get("shards") == made_by[name]:
            return facts["fingerprints"], read_json(run / name / "manifest.json")["config"]
    raise ConfigError(
        f"{run}: the shards {name} have no report that says what they were made from", "run their recipe again"
    )
