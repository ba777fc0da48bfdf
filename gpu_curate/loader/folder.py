"""A folder of shards: where it is, and what its manifest.json says."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from gpu_curate.errors import ConfigError, FatalError
from gpu_curate.formats import FORMATS
from gpu_curate.store.run_directory import RUN_FILE, below, latest_shards, nameable, read_run_file, resolved

SPLITS = {"train": "train", "val": "validation", "validation": "validation"}
PREFIX = {"train": "train", "validation": "val"}  # of file names


def shards_folder(directory: str | os.PathLike[str]) -> Path:
    """The shards of a run directory (its latest whole ones), or the folder itself.

    Under the name that it keeps: a later run may give the link `shards` to its own, and a copy of a loader that is opened in
    another process must not read those.
    """
    folder = Path(directory)
    if not (folder / RUN_FILE).exists():
        return resolved(folder)
    latest = latest_shards(folder)
    return latest or below(folder, str((read_run_file(folder).get("folders") or {}).get("shards", "shards")))


def shard_paths(directory: Path, split: str) -> list[Path]:
    """Shards of a folder without a manifest."""
    return sorted(directory.glob(f"*{PREFIX[split]}*.bin"))


def read_manifest(directory: str | os.PathLike[str]) -> dict[str, Any] | None:
    """manifest.json of a shards folder; None where there is none.

    Raises:
        ConfigError: no such folder. FatalError: not JSON, or written by another version.
    """
    directory = Path(directory)
    if not directory.is_dir():
        raise ConfigError(f"shards {directory}: no such folder")
    path = directory / "manifest.json"
    if not path.exists():
        return None
    try:
        manifest = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as e:
        raise FatalError(f"{path}: not a manifest of shards ({type(e).__name__}: {e})") from e
    faults = _manifest_faults(manifest)
    if faults:
        raise FatalError(f"{path}: not a manifest of shards ({'; '.join(faults)})")
    return cast(dict[str, Any], manifest)


def _manifest_faults(manifest: Any) -> list[str]:
    """What in the data of a manifest.json readers could not use."""
    if not isinstance(manifest, dict):
        return [f"expected a mapping, got {type(manifest).__name__}"]
    version, format = manifest.get("version"), manifest.get("format")
    if version != 1 or format not in list(FORMATS):
        return [f"version {version!r}, format {format!r}; expected version 1, one of {', '.join(FORMATS)}"]
    faults: list[str] = []

    def check(place: str, entry: Any, kinds: dict[str, Callable[[Any], bool]]) -> bool:
        if not isinstance(entry, dict):
            faults.append(f"{place.rstrip('.')}: expected a mapping, got {entry!r}")
            return False
        wrong = [f"{place}{key}: {entry.get(key)!r}" for key, right in kinds.items() if not right(entry.get(key))]
        faults.extend(wrong)
        return not wrong

    kinds = {"dtype": lambda v: v in ("uint16", "uint32"), "eot_id": _is_count, "vocab_size": _is_count}
    check("", manifest, {**kinds, "tokens_per_shard": lambda v: v is None or (_is_count(v) and v > 0)})
    if manifest.get("tokenizer") is not None:
        check("tokenizer.", manifest["tokenizer"], {"sha256": _is_text})
    if not check("", manifest, {"splits": lambda v: isinstance(v, dict) and set(v) <= set(PREFIX)}):
        return faults
    for split, entry in manifest["splits"].items():
        place = f"splits.{split}."
        if check(place, entry, {"tokens": _is_count, "documents": _is_count, "shards": lambda v: isinstance(v, list)}):
            kinds = {"file": _is_file_name, "tokens": _is_count, "bytes": _is_count, "sha256": _is_text}
            for number, shard in enumerate(entry["shards"]):
                check(f"{place}shards.{number}.", shard, kinds)
    return faults


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 62  # sums stay in int64


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_file_name(value: Any) -> bool:
    """A name in the folder itself: a manifest names no file elsewhere."""
    return isinstance(value, str) and value not in ("", ".", "..") and nameable(value) and not set(value) & set("/\\")
