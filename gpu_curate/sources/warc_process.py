"""Archives read in a process that can be killed: the backstop behind the limits of `text.html`.

The extraction libraries' C code cannot be interrupted from outside (a signal waits for it, a thread cannot be ended), and
a fault in it would take the worker down. So each worker has a child process that reads and extracts, and passes the
documents on through a pipe. Before a page is extracted the child says so; if its text does not follow within `timeout_s`,
or the child ends, that page is rejected and a new child goes on behind it. The child never waits for an answer, so this
costs a pickled document per page.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import pickle
import select
import signal
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from typing import Any, BinaryIO, NamedTuple

from gpu_curate.config import WarcSource
from gpu_curate.errors import FatalError, GpuCurateError, RetryableError
from gpu_curate.sources import Record, Reject, Skip, Split

_SIZE = struct.Struct("<Q")
_START_S = 120.0  # imports on a busy machine
_BATCH_ITEMS, _BATCH_CHARS = 64, 1 << 18  # sent together where no page is extracted
_FILES = 1000  # then the child is replaced, so that what a library leaks stays bounded


class Extracting(NamedTuple):
    """The page that is extracted next."""

    row: int
    offset: int
    head: bytes


class _Process:
    """A child process that reads archives, one at a time."""

    def __init__(self) -> None:
        self.files = 0
        self._errors: Any = tempfile.TemporaryFile()  # noqa: SIM115 (lives as long as the child)
        self.child = subprocess.Popen(
            [sys.executable, "-m", "gpu_curate.sources.warc_process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            bufsize=0,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
        )
        try:
            self.receive(_START_S)
        except (EOFError, TimeoutError) as e:
            self._errors.seek(0)
            last = self._errors.read().decode("utf-8", "replace").strip().splitlines()[-1:]
            self.close()
            raise FatalError(
                f"the process that reads archives does not start: {''.join(last) or type(e).__name__}"
            ) from e

    def request(self, source: WarcSource, split: Split, first_row: int) -> None:
        self.files += 1
        with contextlib.suppress(BrokenPipeError):  # it has ended: `receive` says so
            _send(self.child.stdin, (source, split, first_row))

    def receive(self, timeout_s: float | None) -> Any:
        """The next message.

        Raises:
            TimeoutError: it did not begin within `timeout_s`.
            EOFError: the child has ended.
        """
        fd = self.child.stdout.fileno()  # type: ignore[union-attr]
        if timeout_s is not None:
            poll = select.poll()
            poll.register(fd, select.POLLIN)
            if not poll.poll(timeout_s * 1000):
                raise TimeoutError
        return pickle.loads(_read(fd, _SIZE.unpack(_read(fd, _SIZE.size))[0]))

    def close(self) -> int:
        """End the child. Returns: its exit status, negative for a signal."""
        child = self.child
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(0.05)  # one that has just died is reported by what it died of
        child.kill()  # does nothing to one that has ended
        code = child.wait()
        for stream in (child.stdin, child.stdout, self._errors):
            with contextlib.suppress(OSError):
                stream.close()
        return code


def _read(fd: int, size: int) -> bytes:
    """Exactly `size` bytes of a pipe. Raises: EOFError."""
    pieces = []
    while size:
        piece = os.read(fd, min(size, 1 << 20))
        if not piece:
            raise EOFError
        pieces.append(piece)
        size -= len(piece)
    return b"".join(pieces)


def _send(pipe: Any, message: Any) -> None:
    """One message into an unbuffered pipe."""
    data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    rest = memoryview(_SIZE.pack(len(data)) + data)
    while rest:
        rest = rest[pipe.write(rest) :]


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


def read(source: WarcSource, split: Split) -> Iterator[Record | Reject | Skip]:
    """What `WarcReader.records` of that source gives, read in a child process.

    Raises:
        FatalError: the child does not start.
        RetryableError: the child ended while it was not extracting (the system was out of memory, somebody killed it).
    """
    first_row = split.first_row
    process = _take()
    try:
        process.request(source, split, first_row)
        page: Extracting | None = None
        while True:
            try:
                items = process.receive(source.timeout_s if page is not None else None)
            except (TimeoutError, EOFError) as e:
                code = process.close()
                how = signal.Signals(-code).name if code < 0 else f"status {code}"
                if page is None:
                    raise RetryableError(f"{split.path}: the process that reads it ended ({how})") from None
                reason = f"extraction ended its process ({how})"
                if isinstance(e, TimeoutError):
                    reason = f"timeout: extraction took more than {source.timeout_s:g} s"
                yield Reject(page.row, page.offset, reason, page.head)
                first_row, page = page.row + 1, None
                process = _take()
                process.request(source, split, first_row)
                continue
            page = None
            for item in items:
                if isinstance(item, Extracting):
                    page = item
                elif isinstance(item, Exception):
                    raise item
                elif item is None:  # the end of the file
                    if process.files < _FILES:
                        _idle.append(process)
                    else:
                        process.close()
                    return
                else:
                    yield item
    except BaseException:  # an error, or nobody wants the rest: the child is in the middle of a file
        process.close()
        raise


# ------------------------------------------------------------------------------------------------------------ child


class _Outbox:
    """Items on their way to the parent."""

    def __init__(self, pipe: Any):
        self._pipe = pipe
        self._items: list[Any] = []
        self._chars = 0
        self._at_once = False  # the page that was announced is due

    def extracting(self, row: int, offset: int, head: bytes) -> None:
        self._items.append(Extracting(row, offset, head))
        self.flush()
        self._at_once = True

    def put(self, item: Any) -> None:
        self._items.append(item)
        self._chars += len(item.text) if isinstance(item, Record) else 0
        if self._at_once or len(self._items) >= _BATCH_ITEMS or self._chars >= _BATCH_CHARS:
            self.flush()

    def flush(self) -> None:
        _send(self._pipe, self._items)
        self._items, self._chars, self._at_once = [], 0, False


def _serve(requests: BinaryIO, replies: Any) -> None:
    """Read archives until the parent closes the pipe."""
    from gpu_curate.sources.warc import WarcReader
    from gpu_curate.text.html import DEFAULT, page_text

    _send(replies, None)
    warm: set[str] = set()
    while size := requests.read(_SIZE.size):
        source, split, first_row = pickle.loads(requests.read(_SIZE.unpack(size)[0]))
        outbox = _Outbox(replies)
        try:
            if source.extractor not in warm:  # imports, so that the first page is not charged for them
                page_text(b"<html><body><p>x", None, DEFAULT._replace(extractor=source.extractor))
                warm.add(source.extractor)
            for item in WarcReader(source).records(split, first_row, outbox.extracting):
                outbox.put(item)
            outbox.put(None)
        except BrokenPipeError:
            return
        except (GpuCurateError, OSError) as e:
            outbox.put(e)
        except Exception as e:
            outbox.put(FatalError(f"{split.path}: {type(e).__name__}: {e}"))
        outbox.flush()


def _main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent decides
    logging.disable(logging.CRITICAL)
    requests, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # nothing that a library prints may get into the replies
    with contextlib.suppress(BrokenPipeError):
        _serve(requests, replies)


if __name__ == "__main__":
    from gpu_curate.sources import warc_process  # classes pickled here must be the parent's, not __main__'s

    warc_process._main()
