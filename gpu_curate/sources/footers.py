"""Footers read in a process of their own, which may be lost: Arrow ends its process at some damaged ones.

A damaged footer can make Arrow abort (`Definition level histogram size mismatch`) where no exception can be caught. Planning
looks at the footers of every file, so one such file would end the run without a word. Here one child process looks at them;
it is started at the first question and kept until planning ends. When it dies, each file that it had at hand is asked about
again, alone: the one that the child dies of once more is refused by name, and the others are answered.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as NoAnswer
from typing import Any, BinaryIO

from gpu_curate.errors import FatalError, GpuCurateError, InputError, RefusedFooter
from gpu_curate.guard import refusal
from gpu_curate.sources.files import is_remote
from gpu_curate.sources.pipes import end_with_parent, receive, send

ANSWER_S = 60.0  # for one footer; 100,000 row groups take 2 s
REMOTE_ANSWER_S = 600.0  # with every try that `sources.http` makes
_START_S = 120.0  # imports on a busy machine
_THREADS = 16  # as planning has: footers over a network wait, they do not compute


class _Ended(Exception):
    """The child ended, or was ended, before it answered."""


class _Child:
    """A process that answers questions about files, several at a time."""

    def __init__(self) -> None:
        self._errors: Any = tempfile.TemporaryFile()  # noqa: SIM115 (lives as long as the child)
        self._child = subprocess.Popen(
            [sys.executable, "-P", "-m", "gpu_curate.sources.footers"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            bufsize=0,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
        )
        self._lock = threading.Lock()
        self._waiting: dict[int, Future[Any]] = {0: Future()}  # 0: that it has started
        self._number = 0
        self.ended = False
        started = self._waiting[0]
        threading.Thread(target=self._listen, daemon=True).start()
        try:
            started.result(_START_S)
        except (_Ended, NoAnswer) as e:
            self._errors.seek(0)
            last = self._errors.read().decode("utf-8", "replace").strip().splitlines()[-1:]
            self.close()
            raise FatalError(
                f"the process that reads footers does not start: {''.join(last) or type(e).__name__}"
            ) from e

    def ask(self, question: Any, timeout_s: float) -> Any:
        """Raises: _Ended, NoAnswer, or what the child raised."""
        answer: Future[Any] = Future()
        with self._lock:
            if self.ended:
                raise _Ended
            self._number += 1
            self._waiting[self._number] = answer
            try:
                send(self._child.stdin, (self._number, *question))
            except OSError as e:
                raise _Ended from e
        return answer.result(timeout_s)

    def _listen(self) -> None:
        with contextlib.suppress(EOFError, OSError, ValueError, pickle.UnpicklingError):
            fd = self._child.stdout.fileno()  # type: ignore[union-attr]  # opened as pipes
            while True:
                number, failed, answer = receive(fd)
                with self._lock:
                    waiting = self._waiting.pop(number)
                waiting.set_exception(answer) if failed else waiting.set_result(answer)
        with self._lock:
            self.ended = True
            waiting_still, self._waiting = list(self._waiting.values()), {}
        for one in waiting_still:
            one.set_exception(_Ended())

    def close(self) -> int:
        """End the child. Returns: its exit status, negative for a signal."""
        if self.ended:  # it is reported by what it died of
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._child.wait(5.0)
        self._child.kill()  # does nothing to one that has ended
        code = self._child.wait()
        with contextlib.suppress(OSError):
            self._child.stdin.close()  # type: ignore[union-attr]  # opened as pipes
            self._errors.close()
        return code


class _Kept:
    """One child that is kept for the next question."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._child: _Child | None = None

    def get(self) -> _Child:
        with self._lock:
            if self._child is None or self._child.ended:
                if self._child is not None:
                    self._child.close()
                self._child = _Child()
            return self._child

    def drop(self, child: _Child) -> int:
        """End a child, if it has not ended yet. Returns: its exit status."""
        with self._lock:
            if self._child is child:
                self._child = None
        return child.close()

    def close(self) -> None:
        with self._lock:
            if self._child is not None:
                self._child.close()
            self._child = None


_together, _alone = _Kept(), _Kept()
_one_at_a_time = threading.Lock()
_owner = 0  # process id: a fork must not use its parent's pipes


def ask(reader: Any, method: str, path: str, *args: Any) -> Any:
    """`reader.method(path, *args)`, by the child; and what `reader.rows` has for the file then.

    Raises:
        RefusedFooter: the child, alone with this file, ended or gave no answer in time.
        FatalError: it does not start, or was killed (for memory, by somebody): that says nothing about the file.
        What the reader raises of our own errors; InputError for the rest.
    """
    _renew_after_fork()
    question = (type(reader), reader.source, method, path, args)
    timeout_s = REMOTE_ANSWER_S if is_remote(path) else ANSWER_S
    child = _together.get()
    try:
        return child.ask(question, timeout_s)
    except _Ended:
        pass
    except NoAnswer:
        _together.drop(child)
    with _one_at_a_time:
        child = _alone.get()
        try:
            return child.ask(question, timeout_s)
        except NoAnswer:
            _alone.drop(child)
            raise RefusedFooter(f"the process that read its footer gave no answer within {timeout_s:g} s") from None
        except _Ended:
            code = _alone.drop(child)
            how = signal.Signals(-code).name if code < 0 else f"exit status {code}"
            if how == "SIGKILL":
                raise FatalError(
                    f"{path}: the process that read its footer was killed", "the system may be out of memory: run again"
                ) from None
            raise RefusedFooter(f"the process that read its footer was ended by {how}") from None


def close() -> None:
    """End the children, if there are any: planning is done."""
    if _owner == os.getpid():
        _together.close()
        _alone.close()


def _renew_after_fork() -> None:
    global _owner, _together, _alone, _one_at_a_time
    if _owner != os.getpid():
        if _owner:
            _together, _alone, _one_at_a_time = _Kept(), _Kept(), threading.Lock()
        _owner = os.getpid()
        atexit.register(close)


# ------------------------------------------------------------------------------------------------------------ child


def _answer(kind: Any, source: Any, method: str, path: str, args: Any) -> tuple[bool, Any]:
    """Whether it failed, and the answer or the error."""
    try:
        reader = kind(source)
        return False, (getattr(reader, method)(path, *args), getattr(reader, "rows", {}).get(path))
    except GpuCurateError as e:
        return True, e
    except BaseException as e:
        try:
            return True, InputError(refusal(e))
        except MemoryError:
            return True, MemoryError(path)
        except OSError as e:  # the machine's
            return True, OSError(e.errno, e.strerror, path)


def _serve(requests: BinaryIO, replies: Any) -> None:
    """Answer until the parent closes the pipe."""
    lock = threading.Lock()

    def work(number: int, *question: Any) -> None:
        failed, answer = _answer(*question)
        with lock, contextlib.suppress(OSError):
            send(replies, (number, failed, answer))

    send(replies, (0, False, None))
    with ThreadPoolExecutor(_THREADS) as pool, contextlib.suppress(EOFError):
        while True:
            pool.submit(work, *receive(requests.fileno()))


def _main() -> None:
    end_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent decides
    logging.disable(logging.CRITICAL)
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # its end is expected
    requests, replies = os.fdopen(os.dup(0), "rb", buffering=0), os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # nothing that a library prints may get into the replies
    _serve(requests, replies)


if __name__ == "__main__":
    from gpu_curate.sources import footers  # classes pickled here must be the parent's, not __main__'s

    footers._main()
