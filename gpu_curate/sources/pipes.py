"""Messages between a process and its child: pickles, each behind its length. Only for children that we start."""

from __future__ import annotations

import os
import pickle
import struct
import threading
import time
from typing import Any

_SIZE = struct.Struct("<Q")


def end_with_parent() -> None:
    """Let this process end when the one that started it has, however: a pipe tells that only once something is said."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.2)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def send(pipe: Any, message: Any) -> None:
    """One message into an unbuffered pipe."""
    data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    rest = memoryview(_SIZE.pack(len(data)) + data)
    while rest:
        rest = rest[pipe.write(rest) :]


def receive(fd: int) -> Any:
    """The next message. Raises: EOFError: the other side has closed the pipe."""
    return pickle.loads(_read(fd, _SIZE.unpack(_read(fd, _SIZE.size))[0]))


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
