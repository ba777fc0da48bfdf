"""Archives read in a process that can be killed: the backstop behind the limits of `text.html`.

The extraction libraries' C code cannot be interrupted from outside (a signal waits for it, a thread cannot be ended), and
a fault in it would take the worker down. So each worker has a child process that reads and extracts, and passes the
documents on through a pipe, many at a time. In memory that both share stands which page the child extracts and since when.
If that is too long ago, or the child has ended, another one goes on behind what has arrived, and rejects that page.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import logging
import mmap
import os
import select
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any, BinaryIO

from gpu_curate.errors import FatalError, GpuCurateError, RetryableError
from gpu_curate.guard import refusal
from gpu_curate.sources import Record, Reject, Skip, Split
from gpu_curate.sources.pipes import end_with_parent, receive, send
from gpu_curate.sources.sections import WarcSource

_CLOCK = struct.Struct("<qq")
_START_S = 120.0  # imports on a busy machine
_BATCH_ITEMS, _BATCH_CHARS = 64, 1 << 18  # sent together
_FILES = 1000  # then the child is replaced, so that what a library leaks stays bounded


class _Clock:
    """Which page is being extracted, and since when: 16 bytes in memory shared with the child."""

    def __init__(self, fd: int):
        self._memory = mmap.mmap(fd, _CLOCK.size)

    def start(self, row: int) -> None:
        _CLOCK.pack_into(self._memory, 0, row, 0)
        _CLOCK.pack_into(self._memory, 0, row, time.monotonic_ns())  # one clock for all processes of a machine

    def stop(self) -> None:
        _CLOCK.pack_into(self._memory, 0, -1, 0)

    def page(self) -> tuple[int, float] | None:
        """Row and seconds of the page at hand, if there is one."""
        row, start = _CLOCK.unpack_from(self._memory)
        return (row, (time.monotonic_ns() - start) / 1e9) if start else None


class _Process:
    """A child process that reads archives, one at a time."""

    def __init__(self) -> None:
        self.files = 0
        self._shared: Any = tempfile.TemporaryFile()  # noqa: SIM115 (lives as long as the child)
        self._shared.truncate(_CLOCK.size)
        self.clock = _Clock(self._shared.fileno())
        self._errors: Any = tempfile.TemporaryFile()  # noqa: SIM115 (lives as long as the child)
        self.child = subprocess.Popen(
            [sys.executable, "-P", "-m", "gpu_curate.sources.warc_process", str(self._shared.fileno())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            bufsize=0,
            pass_fds=[self._shared.fileno()],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
        )
        try:
            if self.receive(_START_S) is None:
                raise EOFError
        except EOFError as e:
            self._errors.seek(0)
            last = self._errors.read().decode("utf-8", "replace").strip().splitlines()[-1:]
            self.close()
            raise FatalError(
                f"the process that reads archives does not start: {''.join(last) or type(e).__name__}"
            ) from e

    def request(self, source: WarcSource, split: Split, first_row: int, refused: dict[int, str], skip: int) -> None:
        self.files += 1
        with contextlib.suppress(BrokenPipeError):  # it has ended: `receive` says so
            send(self.child.stdin, (source, split, first_row, refused, skip))

    def receive(self, timeout_s: float) -> Any:
        """The next message, or None if none began within `timeout_s`. Raises: EOFError if the child has ended."""
        fd = self.child.stdout.fileno()  # type: ignore[union-attr]  # opened as pipes
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        if not poll.poll(timeout_s * 1000):
            return None
        return receive(fd)

    def close(self) -> int:
        """End the child. Returns: its exit status, negative for a signal."""
        child = self.child
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(0.05)  # one that has just died is reported by what it died of
        child.kill()  # does nothing to one that has ended
        code = child.wait()
        for stream in (child.stdin, child.stdout, self._errors, self._shared):
            with contextlib.suppress(OSError):
                if stream is not None:
                    stream.close()
        return code


# ----------------------------------------------------------------------------------------------------------- parent

_idle: list[_Process] = []
_owner = 0  # process id: a fork must not use its parent's pipes


def _take() -> _Process:
    global _owner
    if _owner != os.getpid():
        _idle.clear()
        _owner = os.getpid()
        atexit.register(_close_idle)
    while _idle:
        process = _idle.pop()
        if process.child.poll() is None:
            return process
        process.close()
    return _Process()


def _close_idle() -> None:
    while _idle and _owner == os.getpid():
        _idle.pop().close()


def read(source: WarcSource, split: Split, skip: int = 0) -> Iterator[Record | Reject | Skip]:
    """What `WarcReader.records` of that source gives, but for the first `skip` items, read in a child process.

    Raises:
        FatalError: the child does not start.
        RetryableError: the child ended while it was not extracting (the system was out of memory, somebody killed it).
    """
    timeout_s = source.timeout_s
    assert timeout_s is not None
    next_row = split.first_row
    refused: dict[int, str] = {}
    process = _take()
    try:
        process.request(source, split, next_row, refused, skip)
        while True:
            page = process.clock.page()
            try:  # a page that is being extracted has what is left of its time
                message = process.receive(timeout_s if page is None else max(timeout_s - page[1], 0.0))
            except EOFError:
                page, code = process.clock.page(), process.close()
                how = signal.Signals(-code).name if code < 0 else f"status {code}"
                if page is None:
                    raise RetryableError(f"{split.path}: the process that reads it ended ({how})") from None
                refused[page[0]] = f"extraction ended its process ({how})"
            else:
                page = process.clock.page() if message is None else None
                if isinstance(message, Exception):
                    raise message
                if message is not None:
                    next_row, items = message
                    yield from items
                    if next_row is None:  # the end of the file
                        if process.files < _FILES:
                            _idle.append(process)
                        else:
                            process.close()
                        return
                    continue
                if page is None or page[1] < timeout_s:
                    continue
                process.close()
                refused[page[0]] = f"timeout: extraction took more than {timeout_s:g} s"
            process = _take()
            process.request(source, split, next_row, refused, skip)
    except BaseException:  # an error, or nobody wants the rest: the child is in the middle of a file
        process.close()
        raise


# ------------------------------------------------------------------------------------------------------------ child


def _serve(requests: BinaryIO, replies: Any, clock: _Clock) -> None:
    """Read archives until the parent closes the pipe."""
    from gpu_curate.sources.warc import WarcReader
    from gpu_curate.text.html import DEFAULT, page_text

    send(replies, "ready")
    warm: set[str] = set()
    while True:
        try:
            source, split, first_row, refused, skip = receive(requests.fileno())
        except EOFError:
            return
        items: list[Any] = []
        chars, last = 0, first_row
        try:
            if source.extractor not in warm:  # imports, so that the first page is not charged for them
                page_text(b"<html><body><p>x", None, DEFAULT._replace(extractor=source.extractor))
                warm.add(source.extractor)
                # the libraries' classes never die: not to be looked at again takes 5 % off extraction, rarer
                # collections 3 % more (a page leaves some thousand objects in cycles)
                gc.collect()
                gc.freeze()
                gc.set_threshold(20_000, 20, 20)
            for row, item in WarcReader(source).records(split, first_row, clock, refused, skip):
                if row > last and (len(items) >= _BATCH_ITEMS or chars >= _BATCH_CHARS):
                    send(replies, (row, items))
                    items, chars = [], 0
                last = row
                items.append(item)
                chars += len(item.text) if isinstance(item, Record) else 0
            send(replies, (None, items))
        except BrokenPipeError:
            return
        except GpuCurateError as e:
            send(replies, e)
        except MemoryError as e:
            send(replies, FatalError(f"{split.path}: out of memory {e}"))
        except BaseException as e:  # the archive reader or a library of it failed: the file is cut there
            reason = refusal(e)
            if isinstance(e, OSError) and not items:
                send(replies, e)
            else:  # after those that were read
                items.append(Reject(last, None, f"unreadable: {reason}", cut=True))
                send(replies, (None, items))


def _main() -> None:
    end_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent decides
    logging.disable(logging.CRITICAL)
    requests, replies = os.fdopen(os.dup(0), "rb", buffering=0), os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # nothing that a library prints may get into the replies
    with contextlib.suppress(BrokenPipeError):
        _serve(requests, replies, _Clock(int(sys.argv[1])))


if __name__ == "__main__":
    from gpu_curate.sources import warc_process  # classes pickled here must be the parent's, not __main__'s

    warc_process._main()
