"""The lock of a run directory, and what may be done under it alone."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gpu_curate.errors import ConfigError

LOCK = ".lock"
_MAX_BYTES = 32  # of a process id


def remove_temporaries(run: Path) -> int:
    """Delete what a killed process left half-written. Call only under the run's lock."""
    removed = 0
    for path in list(run.rglob(".*.tmp-*")):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
        removed += 1
    return removed


def refuse_links(run: Path) -> None:
    """Look at every name in a run directory: what is written there stays there.

    Raises:
        ConfigError: a link leads out of it, or a file that is added to is no regular file.
    """
    root = os.path.realpath(run)
    for folder, folders, files in os.walk(run):
        for name in (*folders, *files):
            path = os.path.join(folder, name)
            if os.path.islink(path):
                real = os.path.realpath(path)
                if not real.startswith(root.rstrip("/") + "/"):
                    raise ConfigError(
                        f"{path} is a link that leads out of the run directory, to {real}",
                        "remove it, or move what it stands for to its place; to have a run on another disk, link the run "
                        "directory itself",
                    )


def _open_lock(run: Path, create: bool) -> int:
    """The lock file, never through a link. Raises: OSError; ConfigError: it is no lock of this program."""
    path = run / LOCK
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | (os.O_CREAT if create else 0)
    try:
        fd = os.open(path, flags, 0o666)
    except OSError as e:
        if e.errno == errno.ELOOP:
            raise ConfigError(f"{path} is a link, not the lock of a run directory", "remove it") from e
        raise
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise ConfigError(f"{path} is no regular file, so not the lock of a run directory", "remove it")
    return fd


def _pid(fd: int) -> int | None:
    """The process id that a lock holds, 0 if it is empty; None: it holds something else."""
    text = os.pread(fd, _MAX_BYTES + 1, 0).strip()
    if not text:
        return 0
    return int(text) if len(text) <= _MAX_BYTES and text.isdigit() else None


@contextlib.contextmanager
def run_lock(
    run: Path, on_wait: Any = None, what: str = "run directory", hint: str = "choose another folder with --out"
) -> Iterator[None]:
    """Only one process works in a run directory; the next one waits (the lock goes with its holder, however it dies).

    Args:
        on_wait: called with the holder's process id before waiting.
        what, hint: what the directory is, and what to do where it cannot be made, for the message.
    Raises:
        ConfigError: the directory cannot be made, or its lock is a link or holds something else than a process id.
    """
    import fcntl

    try:
        run.mkdir(parents=True, exist_ok=True)
        fd = _open_lock(run, create=True)
    except OSError as e:
        raise ConfigError(f"{what} {run}: {e.strerror or e}", hint) from e
    try:
        if _pid(fd) is None:
            raise ConfigError(f"{run / LOCK} is not the lock of a run directory: it holds no process id", "remove it")
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if on_wait is not None:
                on_wait(str(_pid(fd) or "unknown"))
            fcntl.flock(fd, fcntl.LOCK_EX)
        os.ftruncate(fd, 0)
        os.pwrite(fd, str(os.getpid()).encode(), 0)
        yield
    finally:
        os.close(fd)


def lock_holder(run: Path) -> int | None:
    """The process that works in a run directory, as far as its lock tells, 0 if it does not; None: nobody does."""
    import fcntl

    try:
        fd = _open_lock(run, create=False)
    except OSError:  # no run, or not ours to look at
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _pid(fd) or 0
    finally:
        os.close(fd)
    return None
