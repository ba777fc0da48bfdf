"""What can go wrong, and what the runner does about it.

    GpuCurateError
    ├── ConfigError      the run never starts: a key, a value, a path or a tool is wrong
    │   └── UnreachableError   nothing is known of a path: the network or a permission stands before it
    ├── InputError       one record is wrong: it goes to rejects, the run goes on (strict: the run stops)
    │   └── RefusedFooter      of one file nothing can be read: the process that read its footer did not survive it
    ├── CorruptError     a published file differs from its receipt: it is discarded and made again
    ├── RetryableError   the same task may succeed if tried again (a network hiccup)
    ├── DeviceError      the GPU cannot be used: the run stops and says why
    │   ├── DeviceFull         one document does not fit on it: the CPU twin takes the partition, and the report says so
    │   └── DeviceLost         it failed in the middle of a task: the partition goes on elsewhere, the report names the device
    └── FatalError       the run stops; nothing half-written stays under a final name
        └── NothingKeptError   there is nothing to write: the report is written all the same

A message says what, the value, where, and what would do; `hint` is one more line.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gpu_curate.privacy import redacted

MAX_ATTEMPTS = 3  # at what raises RetryableError, with 1, 2, ... seconds between them


class GpuCurateError(Exception):
    """Base of every error this package raises on purpose."""

    def __init__(self, message: str, hint: str | None = None):
        message, hint = redacted(message), hint and redacted(hint)
        super().__init__(message, hint)  # both in args, so that the error survives pickling between processes
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return self.message if self.hint is None else f"{self.message}\nhint: {self.hint}"


class ConfigError(GpuCurateError):
    pass


class UnreachableError(ConfigError):
    pass


class InputError(GpuCurateError):
    pass


class RefusedFooter(InputError):
    pass


class CorruptError(GpuCurateError):
    pass


class RetryableError(GpuCurateError):
    pass


class DeviceError(GpuCurateError):
    pass


class DeviceFull(DeviceError):
    pass


class DeviceLost(DeviceError):
    """CUDA failed, other than by lack of memory; the process that it failed in can use no device any more.

    Attributes:
        device: as in CUDA_VISIBLE_DEVICES, or the address of the worker that has it.
        gone: the device itself is out of order or taken: another process would fare no better.
    """

    def __init__(self, message: str, hint: str | None = None, device: str = "", gone: bool = False):
        super().__init__(message, hint)
        self.args = (self.message, self.hint, device, gone)  # so that it survives pickling
        self.device, self.gone = device, gone


class FatalError(GpuCurateError):
    pass


class NothingKeptError(FatalError):
    pass


def install(extra: str) -> str:
    """The hint for what an optional part of the package lacks: the one command that brings it."""
    return f"pip install 'gpu_curate[{extra}]'"


def one_line(e: BaseException, limit: int = 300) -> str:
    """What another library's error says, without its line ends; at most `limit` characters."""
    return redacted(" ".join(str(e).split()))[:limit]


def did_you_mean(word: Any, known: Iterable[str]) -> str:
    """ " (did you mean 'x'?)" if a known word is close to this one, else ""."""
    import difflib

    by_lower = {k.lower(): k for k in reversed(list(known))}
    close = difflib.get_close_matches(str(word).lower(), by_lower, n=1)
    return f" (did you mean {by_lower[close[0]]!r}?)" if close else ""
