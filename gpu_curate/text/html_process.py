"""Extraction in a process that can be killed: the backstop behind the limits of `html`.

The libraries' C code cannot be interrupted from outside (a signal waits for it, a thread cannot be ended), and a fault in
it would take the worker down. So one child process per worker extracts, fed through pipes, and is replaced when a page
takes too long or ends it. It costs a worker two copies of the page through a pipe, about 1 % of the extraction.
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
import threading
import time
from typing import Any, BinaryIO

from gpu_curate.errors import FatalError, InputError
from gpu_curate.text.html import Extraction, Page, page_text

_SIZE = struct.Struct("<Q")
_START_S = 120.0  # imports on a busy machine
_PAGES = 50_000  # then the child is replaced, so that what a library leaks stays bounded


class HtmlProcess:
    """A child process that runs `page_text`. Not for use by two threads at once."""

    def __init__(self) -> None:
        self._child: subprocess.Popen[bytes] | None = None
        self._errors: Any = None
        self._pages = 0

    def page_text(self, body: bytes, http_charset: str | None, how: Extraction, timeout_s: float) -> Page:
        """`html.page_text`, ended after `timeout_s` seconds of wall clock.

        Raises:
            InputError: as there; or the page took too long ("timeout"), or ended the process.
            FatalError: the process does not start.
        """
        if self._child is None or self._pages >= _PAGES:
            self._start(how.extractor)
        self._pages += 1
        request = pickle.dumps((body, http_charset, how), pickle.HIGHEST_PROTOCOL)
        try:
            kind, value = self._ask(request, timeout_s)
        except TimeoutError:
            self.close()
            raise InputError(f"timeout: extraction took more than {timeout_s:g} s") from None
        except (EOFError, BrokenPipeError):
            code = self.close()
            how_it_ended = signal.Signals(-code).name if code < 0 else f"status {code}"
            raise InputError(f"extraction ended its process ({how_it_ended})") from None
        if kind == "page":
            return Page(*value)
        raise InputError(value)

    def _ask(self, request: bytes | None, timeout_s: float) -> tuple[str, Any]:
        child = self._child
        assert child is not None
        if request is not None:
            rest = memoryview(_SIZE.pack(len(request)) + request)
            while rest:
                rest = rest[child.stdin.write(rest) :]
        deadline = time.monotonic() + timeout_s
        size = _SIZE.unpack(_receive(child.stdout, _SIZE.size, deadline))[0]
        return pickle.loads(_receive(child.stdout, size, deadline))

    def _start(self, extractor: str) -> None:
        self.close()
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (lives as long as the child)
        self._child = subprocess.Popen(
            [sys.executable, "-m", "gpu_curate.text.html_process", extractor],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            bufsize=0,
            env=environment,
        )
        self._pages = 0
        try:
            self._ask(None, _START_S)
        except (EOFError, TimeoutError) as e:
            self._errors.seek(0)
            last = self._errors.read().decode("utf-8", "replace").strip().splitlines()[-1:]
            self.close()
            raise FatalError(f"the HTML extraction process does not start: {''.join(last) or type(e).__name__}") from e

    def close(self) -> int:
        """End the child. Returns: its exit status, negative for a signal."""
        child, self._child = self._child, None
        if child is None:
            return 0
        if child.poll() is None and self._pages:
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(0.05)  # one that has just died is reported by what it died of
        code = child.poll()
        if code is None:
            child.kill()
            code = child.wait()
        for stream in (child.stdin, child.stdout, self._errors):
            with contextlib.suppress(OSError):
                stream.close()
        return code


def _receive(stream: BinaryIO, size: int, deadline: float) -> bytes:
    """Exactly `size` bytes of a pipe. Raises: TimeoutError, EOFError."""
    fd, pieces = stream.fileno(), []
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    while size:
        if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
            raise TimeoutError
        piece = os.read(fd, min(size, 1 << 20))
        if not piece:
            raise EOFError
        pieces.append(piece)
        size -= len(piece)
    return b"".join(pieces)


_process: HtmlProcess | None = None
_owner = 0  # process id: a fork must not share its parent's pipes
_lock = threading.Lock()


def page_text_guarded(body: bytes, http_charset: str | None, how: Extraction, timeout_s: float | None) -> Page:
    """`html.page_text` in this process's extraction process, started at the first page.

    Args:
        timeout_s: seconds per page; None runs in this process, without a backstop.
    Raises:
        InputError, FatalError: see `HtmlProcess.page_text`.
    """
    global _process, _owner
    if timeout_s is None:
        return page_text(body, http_charset, how)
    with _lock:
        if _process is None or _owner != os.getpid():
            _process, _owner = HtmlProcess(), os.getpid()
            atexit.register(_process.close)
        return _process.page_text(body, http_charset, how, timeout_s)


def _serve(requests: BinaryIO, replies: BinaryIO, how: Extraction) -> None:
    """The child: answer pages until the parent closes the pipe."""

    def reply(kind: str, value: Any) -> None:
        data = pickle.dumps((kind, value), pickle.HIGHEST_PROTOCOL)
        replies.write(_SIZE.pack(len(data)) + data)
        replies.flush()

    page_text(b"<html><body><p>imports and compiles, so that the first page is not charged for it", None, how)
    reply("ready", None)
    while size := requests.read(_SIZE.size):
        body, http_charset, how = pickle.loads(requests.read(_SIZE.unpack(size)[0]))
        try:
            page = tuple(page_text(body, http_charset, how))
        except InputError as e:
            reply("refused", e.message)
        else:
            reply("page", page)


def _main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent decides
    logging.disable(logging.CRITICAL)  # trafilatura logs every page that it drops
    requests, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # nothing that a library prints may get into the replies
    with contextlib.suppress(BrokenPipeError):
        _serve(requests, replies, Extraction(sys.argv[1]))  # type: ignore[arg-type]


if __name__ == "__main__":
    _main()
