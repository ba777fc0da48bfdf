"""Git LFS pointers: what a clone holds in the place of a file that was not fetched. Format: git-lfs, docs/spec.md."""

from __future__ import annotations

import os
import shlex

from gpu_curate.errors import ConfigError

MAX_BYTES = 1024  # the format's limit
_VERSIONS = (b"version https://git-lfs.github.com/spec/", b"version https://hawser.github.com/spec/")


def is_pointer(head: bytes) -> bool:
    """True if a file that begins with `head` is a pointer."""
    return head.startswith(_VERSIONS)


def remedy(path: str) -> str:
    """What gets the file itself."""
    if "://" in path:
        return "name the URL of the file itself (on the Hugging Face hub /resolve/ in place of /raw/), or a copy"
    folder, name = os.path.split(os.path.abspath(path))
    return f"git -C {shlex.quote(folder)} lfs pull --include {shlex.quote(name)}"


def refuse(path: str | os.PathLike[str], what: str) -> None:
    """Raises: ConfigError: a local file is a pointer. A file that is not there, or cannot be read, passes."""
    try:
        if os.path.getsize(path) > MAX_BYTES:
            return
        with open(path, "rb") as f:
            head = f.read(64)
    except OSError:
        return
    if is_pointer(head):
        raise ConfigError(
            f"{what} {os.fspath(path)} is a Git LFS pointer, not the file itself", remedy(os.fspath(path))
        )
