"""A gpu_curate.gpu_runtime.Device that is NumPy and the emulator: the GPU twins' launch code runs on it unchanged."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from cudasim.module import EmulatedModule

from gpu_curate.gpu_runtime import Device

POISON = 0xA5  # what fresh device memory holds: a result that depends on it differs from the CPU twin's


class PoisonedNumPy:
    """NumPy, but `empty` gives memory full of POISON, and nothing that CuPy lacks by name is offered silently."""

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)

    @staticmethod
    def empty(shape: Any, dtype: Any = np.float64) -> np.ndarray:
        array = np.zeros(shape, dtype)
        array.view(np.uint8).fill(POISON)
        return array


@functools.cache
def emulated(checked: bool = False, schedule: int = 0) -> Device:
    """The emulated device; `checked` and `schedule` as for EmulatedModule."""

    @functools.cache
    def load(source: str, name: str, defines: tuple[str, ...]) -> EmulatedModule:
        return EmulatedModule(source, name, defines, checked, schedule)

    return Device(PoisonedNumPy(), load, lambda array: int(array.ctypes.data), (MemoryError,), lambda: None)
