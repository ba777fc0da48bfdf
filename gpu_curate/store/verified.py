"""What a run has written or checked already: a file is hashed once a run, by whichever process reads it first.

A file of lines in the run directory, one a verified file: its path, size, time of change in nanoseconds, inode and hash. Every
process of the run appends to it and reads what others have appended. A file counts as verified while size, time
and inode are what they were and the hash is the one its receipt asks for; a lost or broken line costs another look at the file. It lives as
long as the run: the next one begins with an empty one, and so finds a byte that was flipped meanwhile.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from gpu_curate.store.files import file_hash

_MAX_LINE = 4000  # a write of less is not torn by another
_LOCKS = 1 << 41  # from this place on, far behind the end of the file, there is a byte to lock for every path


class Verified:
    """Args: path: of the file; it is there already (`recording`)."""

    def __init__(self, path: str):
        self._fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC)
        self._read = 0
        self._rest = b""
        self._known: dict[str, str] = {}  # path → what was verified

    def close(self) -> None:
        os.close(self._fd)

    def is_whole(self, path: Path, xxh3: str) -> bool:
        """True if the file has this hash: by what the run knows of it, else by reading it."""
        if self._holds(path, xxh3):
            return True
        with self._alone(path):  # two that want the same file: the second takes what the first found
            if self._holds(path, xxh3):
                return True
            before = _state(path)
            whole = file_hash(path) == xxh3
            if whole and _state(path) == before:
                self._add(path, f"{before}\t{xxh3}")
        return whole

    def wrote(self, path: Path, xxh3: str) -> None:
        """This run has written a file, and hashed it."""
        self._add(path, f"{_state(path)}\t{xxh3}")

    def _holds(self, path: Path, xxh3: str) -> bool:
        name, wanted = _name(path), f"{_state(path)}\t{xxh3}"
        if self._known.get(name) != wanted:
            self._catch_up()
        return self._known.get(name) == wanted

    def _add(self, path: Path, known: str) -> None:
        text = f"{_name(path)}\t{known}\n".encode("utf-8", "surrogateescape")
        if len(text) < _MAX_LINE and "\n" not in _name(path):
            with contextlib.suppress(OSError):  # a full disk: the file is hashed again
                os.write(self._fd, text)

    @contextlib.contextmanager
    def _alone(self, path: Path) -> Iterator[None]:
        """No other process hashes this file meanwhile. Where the file system has no locks, two may."""
        place = _LOCKS + int.from_bytes(hashlib.sha256(os.fsencode(_name(path))).digest()[:5], "big")
        locked = False
        with contextlib.suppress(OSError):
            fcntl.lockf(self._fd, fcntl.LOCK_EX, 1, place)
            locked = True
        try:
            yield
        finally:
            if locked:
                fcntl.lockf(self._fd, fcntl.LOCK_UN, 1, place)

    def _catch_up(self) -> None:
        """Read what was appended since."""
        while data := os.pread(self._fd, 1 << 20, self._read):
            self._read += len(data)
            *lines, self._rest = (self._rest + data).split(b"\n")
            for line in lines:
                name, _, known = line.decode("utf-8", "surrogateescape").partition("\t")
                self._known[name] = known


def _name(path: Path) -> str:
    return os.path.normpath(path)


def _state(path: Path) -> str:
    """What changes with a file's content. Raises: FileNotFoundError."""
    s = path.stat()
    return f"{s.st_size}\t{s.st_mtime_ns}\t{s.st_ino}"


_open: dict[str, Verified] = {}  # those of this process, by path


def verified_of(path: str | None) -> Verified | None:
    """The record of a run, opened once a process. None: there is none, or the run is over."""
    if path is None:
        return None
    if path not in _open:
        for other in [p for p in _open if not os.path.exists(p)]:  # of runs that are over
            _open.pop(other).close()
        try:
            _open[path] = Verified(path)
        except OSError:
            return None
    return _open[path]


@contextlib.contextmanager
def recording(path: Path) -> Iterator[str]:
    """A new record, for the time of a run."""
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666))
    try:
        yield str(path)
    finally:
        path.unlink(missing_ok=True)
        known = _open.pop(str(path), None)
        if known is not None:
            known.close()
