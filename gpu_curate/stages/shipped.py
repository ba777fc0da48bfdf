"""A stage of the user's own on its way to a worker: its source travels with it, so every worker runs the file that was fingerprinted.

A worker may be on a machine where the file is not among the places of modules. What the file imports must be installed there,
or lie beside it on shared storage.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import pickle
import sys
import types
from dataclasses import dataclass
from pathlib import Path

from gpu_curate.errors import ConfigError
from gpu_curate.stages import Stage
from gpu_curate.store.code import file_of


@dataclass(frozen=True)
class Shipped:
    """Picklable whatever the worker can import.

    Attributes:
        module, path, source: of the class.
        state: the pickled stage.
    """

    module: str
    path: str
    source: bytes
    state: bytes

    def stage(self) -> Stage:
        return _received(self)


def ship(stage: Stage) -> Stage | Shipped:
    """What travels for a stage: ours as it is, and one of the main script, which workers import themselves.

    Raises: ConfigError: it cannot be pickled, or stands in no file.
    """
    module = type(stage).__module__
    if module.startswith("gpu_curate.") or module == "__main__":
        return stage
    try:
        path = file_of(type(stage))
        return Shipped(module, path, Path(path).read_bytes(), pickle.dumps(stage))
    except (OSError, pickle.PicklingError, AttributeError, TypeError) as e:
        raise ConfigError(
            f"stage {stage.name} cannot travel to a worker: {e}",
            "put its class into a file, at the outermost level, with fields that can be pickled",
        ) from e


@functools.lru_cache(maxsize=16)
def _received(shipped: Shipped) -> Stage:
    if not _same(shipped):
        _load(shipped)
    stage: Stage = pickle.loads(shipped.state)
    return stage


def _same(shipped: Shipped) -> bool:
    """True if this process has the module, or finds it, with the same source."""
    module = sys.modules.get(shipped.module)
    if module is not None:
        path = getattr(module, "__file__", None)
        return path is not None and (os.path.realpath(path) == shipped.path or _holds(path, shipped.source))
    try:
        spec = importlib.util.find_spec(shipped.module)
    except (ImportError, ValueError):
        return False
    return spec is not None and spec.origin is not None and _holds(spec.origin, shipped.source)


def _holds(path: str, source: bytes) -> bool:
    try:
        return Path(path).read_bytes() == source
    except OSError:
        return False


def _load(shipped: Shipped) -> None:
    """Make the module of its source, under its own name, which the pickled stage asks for."""
    module = types.ModuleType(shipped.module)
    module.__file__ = shipped.path
    sys.modules[shipped.module] = module
    sys.path.append(os.path.dirname(shipped.path))  # what lies beside it
    try:
        exec(compile(shipped.source, shipped.path, "exec", dont_inherit=True), vars(module))
    except BaseException:
        del sys.modules[shipped.module]
        raise
    finally:
        sys.path.pop()
