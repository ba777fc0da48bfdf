"""`gpu-curate clean`: what lies in a run directory that its latest shards do not need, and its removal.

A box goes in two steps: it gets a temporary name, then its files are deleted. A kill between leaves a temporary name, which
the next run or clean removes; never half a box under its own name. Only folders that a run makes are looked at, by name; a
link is never followed and never removed, whatever it points to.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from gpu_curate.errors import ConfigError
from gpu_curate.runs.stale import remove_stale, stale
from gpu_curate.stages.order import BESIDE, STAGES
from gpu_curate.store.artifact import Box
from gpu_curate.store.files import temporary_name
from gpu_curate.store.lock import refuse_links, remove_temporaries, run_lock
from gpu_curate.store.run_directory import (
    FINGERPRINT,
    FINGERPRINT_CHARS,
    LINKS,
    RUN_FILE,
    below,
    disk_bytes,
    latest_shards,
    read_run_file,
    shard_sets,
)


class Item(NamedTuple):
    """A folder that can go."""

    folder: str
    disk_bytes: int
    reason: str
    partitions: int = 0  # that go; 0: the whole folder


def clean(
    run: Path, shards: bool = False, remove: bool = False, on_wait: Callable[[str], None] = lambda pid: None
) -> dict[str, Any]:
    """What of a run directory can go; with `remove`, it goes.

    Args:
        run: run directory.
        shards: earlier sets of shards and their reports, too.
        on_wait: called with the id of the process that works in the run directory, before waiting for its end.
    Returns:
        {"run", "items": [{"folder", "disk_bytes", "reason", "partitions"}], "disk_bytes", "removed", "kept": {folder: why}}.
    Raises:
        ConfigError: no run directory, or a link in it leads out of it.
    """
    facts = read_run_file(run)
    if not {"fingerprints", "folders", "config"} <= facts.keys():
        raise ConfigError(
            f"{run} is not a run directory: it has no {RUN_FILE} of this program", "nothing was removed from it"
        )
    if not remove:
        return _told(run, *_unneeded(run, shards), removed=False)
    with run_lock(run, on_wait):
        refuse_links(run)
        remove_temporaries(run)
        items, kept = _unneeded(run, shards)
        told = _told(run, items, kept, removed=True)
        if any(item.partitions for item in items):
            remove_stale(run, read_run_file(run))
        for item in items:
            if not item.partitions:
                _remove(run, item.folder)
    return told


def _told(run: Path, items: list[Item], kept: dict[str, str], removed: bool) -> dict[str, Any]:
    return {
        "run": str(run),
        "items": [i._asdict() for i in items],
        "disk_bytes": sum(i.disk_bytes for i in items),
        "removed": removed,
        "kept": kept,
    }


def _unneeded(run: Path, shards: bool) -> tuple[list[Item], dict[str, str]]:
    """Folders that can go, and those that stay though the latest does not need them."""
    facts = read_run_file(run)
    latest = latest_shards(run)
    needed, unfinished = _needed(run, facts, latest)
    sets = {s["folder"]: s for s in shard_sets(run)}
    reports = {s["report"] for s in sets.values()}
    ours = _pattern("|".join([*(s.name for s in STAGES), *BESIDE, "report"]))
    any_stage = _pattern("[a-z][a-z0-9_]*")  # of the user's own: a folder with a fingerprint
    items, kept = [], {}
    for path in sorted(run.iterdir()):
        made = ours.fullmatch(path.name) or (any_stage.fullmatch(path.name) and (path / FINGERPRINT).is_file())
        if not made or path.name in needed or not (path.is_dir() or path.is_symlink()):
            continue
        if path.is_symlink():
            if path.name not in LINKS:
                kept[path.name] = "a link: only you know what it stands for"
        elif path.name in unfinished:
            kept[path.name] = "of the run that was begun last"
        elif path.name in sets or path.name in reports:
            if shards:
                items.append(Item(path.name, disk_bytes(path), "an earlier set of shards, or its report"))
            else:
                kept[path.name] = "an earlier set of shards, or its report (--shards)"
        else:
            items.append(Item(path.name, disk_bytes(path), "made by another config, code or inputs"))
    going = {item.folder for item in items}
    for of in stale(run, facts):
        if of.folder not in going:
            what = f"{of.partitions:,} partition{'s' * (of.partitions != 1)} of files or settings that the run no longer has"
            items.append(Item(of.folder, of.disk_bytes, what, of.partitions))
    return items, kept


def _pattern(names: str) -> re.Pattern[str]:
    """Folders that a run names after a box."""
    return re.compile(rf"({names})(-[0-9a-f]{{{FINGERPRINT_CHARS}}}(-\d+)?)?")


def _needed(run: Path, facts: dict[str, Any], latest: Path | None) -> tuple[set[str], set[str]]:
    """Folders of the latest shards; and those of the last run, if it has not come to its end."""
    last = dict(facts["folders"])
    needed: set[str] = set()
    if latest is not None:
        report = next((s["report"] for s in shard_sets(run) if s["latest"]), None)
        needed |= {latest.name, report or "report"}
        before = facts.get("latest") or {}
        of = before.get("folders") if before.get("shards") == latest.name else None
        if of is None and last.get("shards") == latest.name:
            of = last
        if of is None and report is not None:
            of = _of_report(below(run, report))
        if of is None:  # not known: nothing that could be its box goes
            return {p.name for p in run.iterdir()}, set()
        needed |= {str(f) for f in of.values()}
    finished = Box(below(run, last["shards"])).sealed() or (latest is not None and last.get("shards") == latest.name)
    unfinished = set() if finished else {str(f) for f in last.values()}
    if not finished:
        unfinished.add(str(last["shards"]).replace("shards", "report", 1))
    return needed, unfinished - needed


def _of_report(report: Path) -> dict[str, str] | None:
    try:
        return dict(json.loads((report / "report.json").read_bytes())["folders"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _remove(run: Path, name: str) -> None:
    path = run / name
    if path.is_symlink() or not path.is_dir():  # it changed meanwhile
        return
    aside = temporary_name(path)
    os.rename(path, aside)
    shutil.rmtree(aside)
