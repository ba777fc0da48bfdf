"""The split bound over several runs: pinned to that of an earlier set of shards, and who changed sides where it moved."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from gpu_curate.config import Config
from gpu_curate.document import ROW_BITS
from gpu_curate.errors import ConfigError
from gpu_curate.store.run_directory import MANIFEST, RUN_FILE, latest_shards, resolved


class Earlier(NamedTuple):
    """An earlier set of shards, and what it means for the split of this one."""

    folder: Path
    bound: str | None  # its bound
    pinned: bool  # this run keeps it
    reason: str  # for people: why, or why not


def earlier_split(config: Config, run: Path, fresh: bool = False) -> Earlier | None:
    """The set of shards whose bound a run takes over: that of `shards.validation.earlier`, or the latest of its directory.

    Args:
        fresh: choose the bound anew; the run directory's shards are still compared with.
    Raises:
        ConfigError: `shards.validation.earlier` is no set of shards, has no bound, or was shuffled with another seed.
    """
    wanted = config.shards.validation
    if wanted.earlier is not None:
        return _named(config, Path(wanted.earlier))
    folder = latest_shards(run) if run.is_dir() else None
    if folder is None:
        return None
    manifest = _manifest(folder)
    bound = manifest.get("split", {}).get("bound")
    before = (manifest.get("config") or {}).get("shards") or {}
    asked = before.get("validation") or {}
    now = {"tokens": wanted.tokens, "max_fraction": wanted.max_fraction}
    changed = [f"validation.{k}" for k, v in now.items() if asked.get(k, v) != v]
    if manifest.get("shuffle", {}).get("seed") != config.shards.shuffle_seed:
        changed.append("shuffle_seed")
    if wanted.bound is not None:
        return Earlier(folder, bound, False, "shards.validation.bound is given")
    if bound is None:
        return Earlier(folder, bound, False, "nothing was held out")
    if fresh:
        return Earlier(folder, bound, False, "--fresh")
    if changed:
        return Earlier(folder, bound, False, f"shards.{changed[0]} is another one")
    return Earlier(folder, bound, True, "a run directory keeps its split; --fresh chooses it anew")


def _named(config: Config, path: Path) -> Earlier:
    key = "shards.validation.earlier"
    folder = path.parent if path.name == MANIFEST else path
    if (folder / RUN_FILE).is_file():
        folder = latest_shards(folder) or folder
    folder = resolved(folder)
    if not (folder / MANIFEST).is_file():
        raise ConfigError(f"{key}: {path} is no run directory, folder of shards or {MANIFEST}")
    manifest = _manifest(folder)
    bound, seed = manifest.get("split", {}).get("bound"), manifest.get("shuffle", {}).get("seed")
    if bound is None:
        raise ConfigError(f"{key}: {folder} holds nothing out, so it has no bound", f"leave {key} out")
    if seed != config.shards.shuffle_seed:
        raise ConfigError(
            f"{key}: {folder} was shuffled with seed {seed}, this config has {config.shards.shuffle_seed}: a bound means "
            "nothing under another seed",
            f"set shards.shuffle_seed: {seed}",
        )
    return Earlier(folder, bound, True, key)


def _manifest(folder: Path) -> dict[str, Any]:
    try:
        manifest = json.loads((folder / MANIFEST).read_bytes())
    except (OSError, ValueError):
        return {}
    return manifest if isinstance(manifest, dict) else {}


def with_bound(config: Config, bound: str) -> Config:
    """The config with its split pinned."""
    validation = config.shards.validation.model_copy(update={"bound": bound})
    return config.model_copy(update={"shards": config.shards.model_copy(update={"validation": validation})})


def bound_of(folder: Path) -> str | None:
    """The bound of a set of shards; None: it holds nothing out, or is no set."""
    bound = _manifest(folder).get("split", {}).get("bound")
    return None if bound is None else str(bound)


def changed_sides(old: Path, new: Path) -> dict[str, int]:
    """Documents of two sets of shards, told by source, path and row, that lie on other sides: to_training, to_validation.

    Memory: 8 bytes a document that either set holds out, and a batch of rows.
    """
    paths: dict[str, int] = {}
    held_old, held_new = (_places(f, "validation", paths) for f in (old, new))
    return {
        "to_training": _count(new, held_old, paths),
        "to_validation": _count(old, held_new, paths),
    }


def _count(folder: Path, held: np.ndarray, paths: dict[str, int]) -> int:
    """Documents among `held` that a set has in its training split; one that is repeated counts once."""
    if not len(held):
        return 0
    return len(np.intersect1d(_places(folder, "train", paths, held), held))


def _places(folder: Path, split: str, paths: dict[str, int], among: np.ndarray | None = None) -> np.ndarray:
    """A number for every document of a split; `among`: of these only. `paths` numbers paths, and grows."""
    found = [np.zeros(0, np.int64)]
    path = folder / "documents.parquet"
    if not path.is_file():
        return found[0]
    for batch in pq.ParquetFile(path).iter_batches(columns=["split", "source", "path", "row"]):
        table = pa.table(batch)
        wanted = pc.equal(table["split"].cast(pa.string()), split).to_numpy()
        whole = pc.binary_join_element_wise(table["source"].cast(pa.string()), table["path"].cast(pa.string()), ": ")
        names = whole.combine_chunks().dictionary_encode()
        numbers = np.array([paths.setdefault(p, len(paths)) for p in names.dictionary.to_pylist()], np.int64)
        if not len(numbers):
            continue
        place = numbers[names.indices.to_numpy()] << ROW_BITS | table["row"].to_numpy()
        place = place[wanted]
        found.append(place if among is None else place[np.isin(place, among)])
    return np.unique(np.concatenate(found))
