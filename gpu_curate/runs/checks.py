"""What is checked before a run begins: its directory, and its sources."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gpu_curate.config import Config, public
from gpu_curate.errors import ConfigError, CorruptError
from gpu_curate.sources.files import is_remote
from gpu_curate.sources.listing import fixed_folder
from gpu_curate.store.artifact import Box
from gpu_curate.store.files import read_json
from gpu_curate.store.run_directory import RUN_FILE, below

_ROOTS = ("sources", "normalize", "pii")  # what a run directory is about: another one is another run


def check_run_directory(run: Path, config: Config) -> None:
    """Refuse a run directory that was made from other sources.

    Raises:
        ConfigError: names the file, the first key that differs, and both values.
    """
    path = run / RUN_FILE
    if run.exists() and not run.is_dir():
        raise ConfigError(f"run directory {run} is a file", "choose another folder with --out")
    if not path.exists():
        if run.is_dir() and any(not p.name.startswith(".") for p in run.iterdir()):
            raise ConfigError(
                f"run directory {run} is not empty and has no {RUN_FILE}", "choose an empty folder with --out"
            )
        return
    try:
        before = read_json(path)["config"]
    except (CorruptError, KeyError, TypeError) as e:
        raise ConfigError(f"{path} is not a run file of this program", "choose another folder with --out") from e
    documents = Box(below(run, read_json(path).get("folders", {}).get("documents", "documents")))
    if not any(r.get("documents") for r in documents.receipts()):
        return  # a first try that read nothing: nothing would be mixed
    now = public(config)
    for root in _ROOTS:
        difference = _first_difference(before.get(root), now[root], root)
        if difference is not None:
            key, old, new = difference
            raise ConfigError(
                f"{path} was made with {key} = {old!r}, this config has {new!r}",
                "sources, normalize and pii of a run directory do not change: choose another one with --out",
            )


def _first_difference(old: Any, new: Any, key: str) -> tuple[str, Any, Any] | None:
    if isinstance(old, dict) and isinstance(new, dict):
        for name in sorted(old.keys() | new.keys()):
            if name in ("weight", "tokens", "storage_options"):
                continue
            found = _first_difference(old.get(name), new.get(name), f"{key}.{name}")
            if found is not None:
                return found
        return None
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for i, (a, b) in enumerate(zip(old, new, strict=True)):
            found = _first_difference(a, b, f"{key}.{i}")
            if found is not None:
                return found
        return None
    return None if old == new else (key, old, new)


def check_columns(config: Config, documents: Box) -> list[str]:
    """Warnings about columns that are not in the first records, unless these have been read before.

    Raises:
        ConfigError: columns that the recipe names are not there.
    """
    from gpu_curate.stages.columns import check_sources
    from gpu_curate.stages.documents.listing import inventory

    return [] if documents.parts() else check_sources(config, inventory(config))[1]


def check_output(run: Path, config: Config) -> None:
    """Refuse a run directory that a source would read.

    Raises:
        ConfigError: it lies in a folder, or below a `**` glob, that a source names.
    """
    place = run.resolve()
    for source in config.sources:
        for pattern in source.paths:
            if not pattern or is_remote(pattern):
                continue
            folder = Path(pattern)
            if not folder.is_dir():
                if "**" not in pattern:
                    continue
                folder = Path(fixed_folder(pattern) or ".")
            if place.is_relative_to(folder.resolve()):
                raise ConfigError(
                    f"run directory {run} lies in {folder}, which source {source.name} reads",
                    "choose a folder outside the sources with --out",
                )
