from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gpu_curate.errors import ConfigError


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


@contextlib.contextmanager
def run_lock(run: Path, on_wait: Any = None) -> Iterator[None]:
    """Only one process works in a run directory; the next one waits (the lock goes with its holder, however it dies).

    Args:
        on_wait: called with the holder's process id before waiting.
    """
    import fcntl

    try:
        run.mkdir(parents=True, exist_ok=True)
        f = (run / ".lock").open("a+")
    except OSError as e:
        raise ConfigError(f"run directory {run}: {e.strerror or e}", "choose another folder with --out") from e
    with f:
        try:
            fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            f.seek(0)
            if on_wait is not None:
                on_wait(f.read().strip() or "unknown")
            fcntl.flock(f, fcntl.LOCK_EX)
        f.seek(0)
        f.truncate()
        f.write(str(os.getpid()))
        f.flush()
        yield
