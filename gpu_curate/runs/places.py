"""Where the boxes of a run lie: in its directory, or in a cache that several runs share."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gpu_curate.config import Config
from gpu_curate.errors import ConfigError, CorruptError
from gpu_curate.runs.fingerprints import DOCUMENTS
from gpu_curate.sources.files import is_remote
from gpu_curate.sources.listing import fixed_folder
from gpu_curate.stages.documents.corpus import Numbers
from gpu_curate.stages.order import BESIDE
from gpu_curate.store.artifact import Box
from gpu_curate.store.files import publish, write_json
from gpu_curate.store.lock import refuse_links, remove_temporaries, run_lock
from gpu_curate.store.run_directory import (
    CACHE_FILE,
    FINGERPRINT,
    FINGERPRINT_CHARS,
    RUN_FILE,
    below,
    owner,
    place,
    read_run_file,
)
from gpu_curate.store.snapshot import Snapshot, read_snapshot, snapshot_path

_CACHE_VERSION = 1


def folders(
    run: Path, own: dict[str, str], cache: Path | None = None, shared: frozenset[str] = frozenset()
) -> dict[str, str]:
    """The folder of every box: its plain name, or NAME-FINGERPRINT where the plain one holds, or held, something else.

    Shards have their fingerprint in their name always; the plain one is a link to the latest.
    """
    chosen = {}
    for name, fingerprint in own.items():
        if name == "shards":
            chosen[name] = place(run, name, fingerprint)
            continue
        root = cache if cache is not None and name in shared else run
        named = f"{name}-{fingerprint[:FINGERPRINT_CHARS]}"
        taken = owner(root / name) not in (None, fingerprint) or owner(root / named) == fingerprint
        chosen[name] = named if taken else name
    for beside in BESIDE:
        chosen[beside] = chosen[DOCUMENTS].replace(DOCUMENTS, beside, 1)
    return chosen


def make_folders(
    run: Path,
    own: dict[str, str],
    places: dict[str, str],
    cache: Path | None = None,
    shared: frozenset[str] = frozenset(),
) -> None:
    for beside in BESIDE:
        ((cache or run) / places[beside]).mkdir(exist_ok=True)
    for name, fingerprint in own.items():
        root = cache if cache is not None and name in shared else run
        marker = root / places[name] / FINGERPRINT
        marker.parent.mkdir(parents=True, exist_ok=True)
        if owner(marker.parent) != fingerprint:
            with publish(marker) as temp:
                temp.write_text(fingerprint + "\n")


class Boxes:
    """The boxes of a run as its run file names them.

    Args:
        facts: of run.json, or its `latest` part.
    Raises: ConfigError: they do not lie below the run directory, or its cache; the cache is none.
    """

    def __init__(self, run: Path, facts: dict[str, Any]):
        self._run, self._cache = run, cache_in(facts, run / RUN_FILE)
        folders = facts.get("folders")
        self.folders: dict[str, Any] = folders if isinstance(folders, dict) else {}
        fingerprint_of = facts.get("fingerprints")
        fingerprint = facts.get("documents") or (
            fingerprint_of.get(DOCUMENTS) if isinstance(fingerprint_of, dict) else None
        )
        self._path = snapshot_path(run, str(fingerprint))
        self._snapshot: Snapshot | None = None
        with contextlib.suppress(OSError, CorruptError):
            self._snapshot = read_snapshot(self._path)

    def box(self, name: str) -> Box:
        snapshot = self._snapshot
        if snapshot is None:
            return Box(below(self._run, self.folders.get(name, name)))
        shared = self._cache is not None and name in snapshot.shared
        root = self._cache if shared and self._cache is not None else self._run
        return Box(below(root, self.folders.get(name, name)), self._path if name in snapshot.following else None)


def check_output(folder: Path, config: Config, what: str) -> None:
    """Refuse a folder to write to that a source would read.

    Args:
        what: the folder is, for the message.
    Raises:
        ConfigError: it lies in a folder, or below a `**` glob, that a source names.
    """
    place_ = folder.resolve()
    for source in config.sources:
        for pattern in source.paths:
            if not pattern or is_remote(pattern):
                continue
            named = Path(pattern)
            if not named.is_dir():
                if "**" not in pattern:
                    continue
                named = Path(fixed_folder(pattern) or ".")
            if place_.is_relative_to(named.resolve()):
                option = "with --out" if what == "run directory" else f"with {what}"
                raise ConfigError(
                    f"{what} {folder} lies in {named}, which source {source.name} reads",
                    f"choose a folder outside the sources {option}",
                )


# ---------------------------------------------------------------------------------------------------------- file numbers


def read_numbers(root: Path) -> Numbers:
    """The numbers of the files that were read before, as run.json or the cache's file has them; {} if it has none."""
    facts = read_run_file(root) if (root / RUN_FILE).exists() else _read_json(root / CACHE_FILE)
    files = facts.get("files")
    if not isinstance(files, dict):
        return {}
    found: Numbers = {}
    for source, own in files.items():
        if not isinstance(own, dict) or not all(
            isinstance(n, int) and not isinstance(n, bool) and n >= 0 for n in own.values()
        ):
            return {}
        found[source] = dict(own)
    numbers = [n for own in found.values() for n in own.values()]
    return found if len(set(numbers)) == len(numbers) else {}


def _read_json(path: Path) -> dict[str, Any]:
    try:
        facts = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return facts if isinstance(facts, dict) else {}


# ------------------------------------------------------------------------------------------------------------- the cache


def cache_of(config: Config, run: Path) -> Path | None:
    """The cache that a recipe names, whole path; None without one. Writes nothing.

    Raises: ConfigError: it is a file, holds something else, or lies in the run directory, a source or the other way round.
    """
    if config.run.cache is None:
        return None
    given = Path(config.run.cache).expanduser()
    cache, directory = Path(os.path.realpath(given)), Path(os.path.realpath(run))
    if os.path.exists(cache) and not os.path.isdir(cache):
        raise ConfigError(f"run.cache: {given} is a file", "name a folder")
    for inner, outer in ((cache, directory), (directory, cache)):
        if inner.is_relative_to(outer):
            which = "lies in the run directory" if inner == cache else "holds the run directory"
            raise ConfigError(
                f"run.cache: {given} {which} {run}", "name a folder beside it, which several runs can share"
            )
    check_output(given, config, "run.cache")
    if os.path.isdir(cache):
        _check_cache(cache, given)
    return cache


def cache_in(facts: dict[str, Any], path: Path) -> Path | None:
    """The cache that a run file names, None without one.

    Args:
        facts: what is in `path`.
    Raises: ConfigError: it is no cache of this program. A run file that somebody else wrote may lead nowhere else.
    """
    named = facts.get("cache")
    if named is None:
        return None
    cache = Path(named) if isinstance(named, str) and os.path.isabs(named) else None
    if cache is None or _read_json(cache / CACHE_FILE).get("version") != _CACHE_VERSION:
        raise ConfigError(f"{path}: cache {named!r} is no cache of this program", "run its recipe again")
    return cache


def _check_cache(cache: Path, given: Path) -> None:
    file = cache / CACHE_FILE
    try:
        if not file.exists():
            if any(not p.name.startswith(".") for p in cache.iterdir()):
                raise ConfigError(
                    f"run.cache: {given} is not empty and has no {CACHE_FILE}", "name an empty folder, or a new one"
                )
            return
    except OSError as e:
        raise ConfigError(f"run.cache: {given}: {e.strerror or e}", "name a folder that can be read and written") from e
    facts = _read_json(file)
    if facts.get("version") != _CACHE_VERSION:
        found = f"is of version {facts['version']!r}" if "version" in facts else "cannot be read"
        raise ConfigError(
            f"run.cache: {file} {found}, this program writes version {_CACHE_VERSION}",
            "name another folder; nothing is lost if this one is deleted: it is made again",
        )


@contextlib.contextmanager
def cache_lock(cache: Path | None, on_wait: Any) -> Iterator[None]:
    """Only one run works in a cache. Raises: ConfigError: it cannot be written."""
    if cache is None:
        yield
        return
    with run_lock(cache, on_wait, "run.cache", "name a folder that can be written"):
        _check_cache(cache, cache)
        refuse_links(cache)
        remove_temporaries(cache)
        yield


def write_cache_file(cache: Path, numbers: Numbers) -> None:
    write_json(cache / CACHE_FILE, {"version": _CACHE_VERSION, "files": numbers})
