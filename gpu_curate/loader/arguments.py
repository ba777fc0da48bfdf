"""Arguments of loaders: integers, the launcher's environment, torch or NumPy."""

from __future__ import annotations

import importlib.util
import numbers
import os
from collections.abc import Callable
from typing import Any

import numpy as np

from gpu_curate.errors import ConfigError

Array = np.ndarray[Any, np.dtype[Any]]


def from_environment(name: str, default: int) -> int:
    """An integer that a launcher sets. Raises: ConfigError: it is none."""
    value = os.environ.get(name, "").strip()
    if not value:
        return default
    if not value.isdecimal():
        raise ConfigError(
            f"environment variable {name}={value!r}: expected an integer", "unset it, or give rank and world_size"
        )
    return int(value)


def integer(name: str, value: object) -> int:
    """An argument as an int; NumPy's integers count, floats, texts and switches do not."""
    if type(value) is int:  # at once: it is asked for every batch
        return value
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise ConfigError(f"{name} {value!r}: expected an integer, got {type(value).__name__}")
    return int(value)


def batch_number(i: Any) -> int:
    """Raises: ConfigError: it is no integer, or negative."""
    number = integer("batch", i)
    if number < 0:
        raise ConfigError(f"batch {i}: batches are numbered from 0")
    return number


def first_batch(step: int, accum: int) -> int:
    step, accum = integer("step", step), integer("accum", accum)
    if step < 0 or accum < 1:
        raise ConfigError(f"step {step} must not be negative, accum {accum} must be positive")
    return step * accum


def wrapper(as_torch: bool | None) -> Callable[[Array], Any]:
    """What makes of an array what a loader gives: torch's tensor over the same memory, or the array itself.

    Raises: ConfigError: torch is asked for and not installed.
    """
    if as_torch is None:
        as_torch = importlib.util.find_spec("torch") is not None
    if not as_torch:
        return _identity
    try:
        import torch
    except ImportError as e:
        raise ConfigError("as_torch: torch is not installed", hint="pip install torch, or as_torch=False") from e
    from_numpy: Callable[[Array], Any] = torch.from_numpy
    return from_numpy


def _identity(array: Array) -> Array:
    return array
