"""What is checked before a run begins: its directory, and its sources."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

from gpu_curate.config import Config, public
from gpu_curate.errors import ConfigError, CorruptError
from gpu_curate.runs.places import Boxes
from gpu_curate.stages.order import intake_of
from gpu_curate.store.files import read_json
from gpu_curate.store.run_directory import RUN_FILE, run_faults

_ROOTS = ("sources", "normalize", "pii")  # what a run directory is about: another one is another run


def without_effect(config: Config) -> list[str]:
    """A warning for every type in an explicit `run.by_reference`, and every key of `dedup.fuzzy`, that changes nothing."""
    return [*_fuzzy_without_effect(config), *_by_reference_without_effect(config)]


def _fuzzy_without_effect(config: Config) -> list[str]:
    fuzzy = config.dedup.fuzzy
    if fuzzy is None or fuzzy.verify != "none":
        return []
    changed = [k for k in ("verify_against", "threshold") if getattr(fuzzy, k) != type(fuzzy).model_fields[k].default]
    return [f"dedup.fuzzy.{key} has no effect: dedup.fuzzy.verify is none" for key in changed]


def _by_reference_without_effect(config: Config) -> list[str]:
    if "by_reference" not in config.run.model_fields_set:
        return []
    intake = intake_of(config)
    types = {s.type for s in config.sources}
    reasons = {
        t: intake.why_not(t) or (None if t in types else "no source is of that type") for t in config.run.by_reference
    }
    return [f"run.by_reference: {kind} has no effect: {reason}" for kind, reason in reasons.items() if reason]


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
        facts = read_json(path)
        faults = run_faults(facts)
        before = facts["config"]
    except (CorruptError, KeyError, TypeError) as e:
        raise ConfigError(f"{path} is not a run file of this program", "choose another folder with --out") from e
    if faults:
        raise ConfigError(
            f"{path} is not a run file of this program ({'; '.join(faults[:3])})", "choose another folder with --out"
        )
    boxes: Boxes | None = None
    with contextlib.suppress(ConfigError):  # its cache is gone, and is made again
        boxes = Boxes(run, facts)
    if boxes is not None and not any(r.counts.documents for r in boxes.box("documents").receipts()):
        return  # a first try that read nothing: nothing would be mixed
    now = public(config)
    for root in _ROOTS:
        difference = (_other_sources if root == "sources" else _first_difference)(before.get(root), now[root], root)
        if difference is not None:
            key, old, new = difference
            raise ConfigError(
                f"{path} was made with {key} = {old!r}, this config has {new!r}",
                "normalize, pii and what is taken from a source do not change in a run directory; files, paths and sources may "
                "be added: choose another one with --out",
            )


_FREE = {
    "weight",
    "tokens",
    "storage_options",
    "follow_links",
    "hidden_files",
    "content_fingerprint",
}  # no document's content
_FREE |= {
    "keep_columns",
    "group_column",
    "max_documents",
    "max_bytes",
}  # the partitions that this changes are made again


def _other_sources(old: Any, new: list[dict[str, Any]], key: str) -> tuple[str, Any, Any] | None:
    """The first difference of sources that were added to, if it is more than that."""
    if not isinstance(old, list) or len(old) > len(new):
        return _first_difference(old, new, key)
    for i, (a, b) in enumerate(zip(old, new, strict=False)):
        if isinstance(a, dict) and _paths(a) <= _paths(b):
            a = {**a, "path": b["path"]}
        found = _first_difference(a, b, f"{key}.{i}")
        if found is not None:
            return found
    return None


def _paths(source: dict[str, Any]) -> set[str]:
    path = source.get("path")
    return {str(p) for p in (path if isinstance(path, list) else [path])}


def _first_difference(old: Any, new: Any, key: str) -> tuple[str, Any, Any] | None:
    if isinstance(old, dict) and isinstance(new, dict):
        for name in sorted(old.keys() | new.keys()):
            if name in _FREE:
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
