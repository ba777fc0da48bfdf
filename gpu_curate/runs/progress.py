"""What a run tells while it goes: as plain lines, into run.log of the run directory, and for `gpu-curate status`.

Partitions are counted as they lie on disk: a read task that made three counts three. Of those that an earlier run made
neither speed nor time left is reckoned.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Protocol

from gpu_curate import __version__
from gpu_curate.privacy import redacted
from gpu_curate.visible import one, say

RUN_LOG = "run.log"
STATUS = ".status.json"
_LINE_SECONDS = 10.0  # between lines of a box that is under way
_STATUS_SECONDS = 1.0


class Progress(Protocol):
    """What a run tells while it goes. Every call is cheap; none must raise."""

    def note(self, text: str) -> None: ...

    def warn(self, text: str) -> None: ...

    def box(self, name: str, done: int, total: int | None, nbytes: int, reused: int) -> None:
        """`done` partitions of `total` (None: not known yet) with `nbytes` of text are there, `reused` of them from an
        earlier run. They are equal once, when the box is whole."""
        ...


class Quiet:
    """A Progress that keeps warnings and says nothing."""

    def __init__(self) -> None:
        self.warnings: list[str] = []

    def note(self, text: str) -> None:
        pass

    def warn(self, text: str) -> None:
        self.warnings.append(text)

    def box(self, name: str, done: int, total: int | None, nbytes: int, reused: int) -> None:
        pass


def human_bytes(n: float) -> str:
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if n < 999.95 or unit == "TB":
            return f"{n:.0f} {unit}" if unit == "B" else f"{n:,.1f} {unit}"
        n /= 1000
    raise AssertionError


def clock(seconds: float) -> str:
    """h:mm:ss."""
    whole = int(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02d}:{whole % 60:02d}"


class Step:
    """How far a box is, and how fast."""

    def __init__(self, now: float):
        self.begun = now
        self.done = self.nbytes = self.reused = self.reused_bytes = 0
        self.total: int | None = None
        self.seconds = 0.0  # from its first news to its latest

    def update(self, done: int, total: int | None, nbytes: int, reused: int, now: float) -> None:
        if reused > self.reused:  # one call tells of one partition: made now, or found
            self.reused_bytes += nbytes - self.nbytes
        self.done, self.total, self.nbytes, self.reused = done, total, nbytes, reused
        self.seconds = now - self.begun

    @property
    def ended(self) -> bool:
        return self.total is not None and self.done == self.total

    @property
    def rate(self) -> float | None:
        """Bytes of text a second."""
        fresh = self.nbytes - self.reused_bytes
        return fresh / self.seconds if fresh > 0 and self.seconds > 0.05 else None

    def left(self, now: float) -> float | None:
        """Seconds to the end, as far as one can tell."""
        fresh = self.done - self.reused
        if self.total is None or self.ended or fresh <= 0 or self.seconds <= 0:
            return None
        return max(0.0, (self.total - self.done) * self.seconds / fresh - (now - self.begun - self.seconds))


class Lines:
    """Progress as plain lines: a box when it ends, and those under way every ten seconds.

    Args:
        file: where to; None: standard output.
        begun: when the clock of the lines started, as `time.monotonic` tells it.
    """

    def __init__(
        self, quiet: bool, file: IO[str] | None = None, errors: IO[str] | None = None, begun: float | None = None
    ):
        self._quiet = quiet
        self._file, self._errors = file, errors
        self._begun = time.monotonic() if begun is None else begun
        self._last = time.monotonic()
        self._steps: dict[str, Step] = {}
        self._ended: set[str] = set()

    def seconds(self) -> float:
        return time.monotonic() - self._begun

    def note(self, text: str) -> None:
        if not self._quiet:
            say(text, file=self._file or sys.stdout, flush=True)

    def warn(self, text: str) -> None:
        if not self._quiet:
            say(f"warning: {one(text)}", file=self._errors or sys.stderr, flush=True)

    def box(self, name: str, done: int, total: int | None, nbytes: int, reused: int) -> None:
        now = time.monotonic()
        step = self._steps.setdefault(name, Step(now))
        step.update(done, total, nbytes, reused, now)
        if step.ended and name not in self._ended:
            self._ended.add(name)
            self._line(name, step, now)
        elif not step.ended:
            self._ended.discard(name)
            if now - self._last > _LINE_SECONDS:
                self._last = now
                self._line(name, step, now)

    def _line(self, name: str, step: Step, now: float) -> None:
        told = [
            f"done, {step.done:,} partitions" if step.ended else f"{step.done:,} of {_count(step.total)} partitions"
        ]
        told += [f"{step.reused:,} reused"] if step.reused else []
        told += [human_bytes(step.nbytes)] if step.nbytes else []
        told += [f"{human_bytes(step.rate)}/s"] if step.rate else []
        left = step.left(now)
        told += [f"{clock(left)} left"] if left is not None else []
        self.note(f"[{self.seconds():7.1f} s] {name}: {', '.join(told)}")


def _count(total: int | None) -> str:
    return "?" if total is None else f"{total:,}"


class Recorder:
    """Tells another Progress everything, and writes it down in the run directory: run.log, and how far each box is.

    Nothing here stops a run: a full disk does that where its work is written.
    """

    def __init__(self, inner: Progress, run: Path, begun: float, opening: str):
        self._inner, self._run = inner, run
        self._begun = begun
        self._log: IO[str] | None = None
        self._steps: dict[str, Step] = {}
        self._written = 0.0
        self.state = {
            "state": "running",
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        }
        from gpu_curate.store.files import open_log  # not with this module: see `_save`

        with contextlib.suppress(OSError):
            self._log = open_log(run / RUN_LOG)
        self._lines = Lines(self._log is None, self._log, self._log, begun)
        command = redacted(" ".join(sys.argv[1:]))
        self._record(
            lambda: self._lines.note(f"\n{self.state['started']}  gpu_curate {__version__}  {command}\n{opening}")
        )
        self._save(force=True)

    def _record(self, write: Callable[[], None]) -> None:
        with contextlib.suppress(OSError, ValueError):
            write()

    def note(self, text: str) -> None:
        self._inner.note(text)
        self._record(lambda: self._lines.note(text))

    def warn(self, text: str) -> None:
        self._inner.warn(text)
        self._record(lambda: self._lines.warn(text))

    def box(self, name: str, done: int, total: int | None, nbytes: int, reused: int) -> None:
        self._inner.box(name, done, total, nbytes, reused)
        self._record(lambda: self._lines.box(name, done, total, nbytes, reused))
        now = time.monotonic()
        self._steps.setdefault(name, Step(now)).update(done, total, nbytes, reused, now)
        self._save()

    def end(self, state: str, why: str | None = None) -> None:
        """Say how the run ended: complete, stopped (by a signal) or failed."""
        self.state["state"] = state
        if why is not None:
            self.state["why"] = why
        self._record(lambda: self._lines.note(f"[{self._lines.seconds():7.1f} s] {state}{': ' + why if why else ''}"))
        self._save(force=True)
        if self._log is not None:
            self._record(self._log.close)

    def _save(self, force: bool = False) -> None:
        now = time.monotonic()
        if not force and now - self._written < _STATUS_SECONDS:
            return
        self._written = now
        boxes = {
            name: {
                "partitions": s.done,
                "total": s.total,
                "reused": s.reused,
                "bytes_per_s": None if s.rate is None else round(s.rate),
                "left_s": None if (left := s.left(now)) is None else round(left, 1),
            }
            for name, s in self._steps.items()
        }
        from gpu_curate.store.files import (
            write_json,  # not with this module: the first line comes before what takes time to load
        )

        with contextlib.suppress(Exception):  # what was to be told is lost, nothing else
            write_json(
                self._run / STATUS,
                {**self.state, "seconds": round(now - self._begun, 1), "updated": time.time(), "boxes": boxes},
            )


@contextlib.contextmanager
def recorded(progress: Progress, run: Path, begun: float, opening: str) -> Iterator[Recorder]:
    """A Recorder for the time of a run, that writes down how it ended.

    Args:
        begun: when the run's clock started, by time.monotonic().
        opening: what was told before there was a run directory.
    """
    recorder = Recorder(progress, run, begun, opening)
    try:
        yield recorder
    except KeyboardInterrupt:
        recorder.end("stopped")
        raise
    except BaseException as e:
        recorder.end("failed", f"{getattr(e, 'message', None) or f'{type(e).__name__}: {e}'}".splitlines()[0][:500])
        raise
    recorder.end("complete")
