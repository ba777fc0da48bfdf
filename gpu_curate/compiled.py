"""Where compiled functions are kept: a folder of the user's own. Numba's cache is a pickle, so who writes there runs code.

Needs the standard library alone.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
from pathlib import Path

IMAGE = "GPU_CURATE_COMPILED"  # in the environment: a folder of functions that an image brings, copied, never written


def unsafe(folder: Path) -> str | None:
    """Why a folder cannot be trusted with code; None: it can."""
    try:
        found = os.lstat(folder)
    except OSError as e:
        return f"{folder}: {e.strerror}"
    if not stat.S_ISDIR(found.st_mode):
        return f"{folder} is {'a link' if stat.S_ISLNK(found.st_mode) else 'no folder'}"
    if found.st_uid != os.geteuid():
        return f"{folder} belongs to user {found.st_uid}, not to {os.geteuid()}"
    if found.st_mode & 0o022:
        return f"{folder} can be written by others (mode {stat.S_IMODE(found.st_mode):04o})"
    return None


def own_folder() -> Path:
    """The user's own, of this installation: below XDG_CACHE_HOME or ~/.cache. It may not be there."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    package = hashlib.sha256(os.fsencode(Path(__file__).resolve().parent)).hexdigest()[:12]
    return Path(base) / "gpu_curate" / package


def choose() -> tuple[Path | None, list[str]]:
    """The folder to keep compiled functions in, made if missing, and what is said of those that are refused.

    NUMBA_CACHE_DIR first, then the user's own. None: neither can be trusted, or made.
    """
    refused: list[str] = []
    given = os.environ.get("NUMBA_CACHE_DIR")
    if given:
        folder = Path(given).absolute()
        if folder.exists():
            reason = unsafe(folder)
            if reason is None:
                return folder, refused
            refused.append(f"NUMBA_CACHE_DIR is not used: {reason}; compiled functions are code")
        elif _made(folder):
            return folder, refused
    folder = own_folder()
    if not os.path.isabs(folder):
        return None, refused
    if not _made(folder):
        return None, refused
    for part in (folder.parent, folder):
        if (reason := unsafe(part)) is not None:
            return None, [*refused, f"the cache of compiled functions is not used: {reason}"]
    return folder, refused


def _made(folder: Path) -> bool:
    """Make a folder and those above it for this user alone; one that is there stays as it is."""
    try:
        missing = [p for p in (folder, *folder.parents) if not p.exists()]
        for part in reversed(missing):
            part.mkdir(mode=0o700, exist_ok=True)
    except OSError:
        return False
    return os.access(folder, os.W_OK)


def bring(folder: Path) -> None:
    """Copy what the image has compiled into a new folder of one's own, if root or this user alone can have put it there."""
    image = os.environ.get(IMAGE)
    if not image or any(folder.iterdir()):
        return
    try:
        found = os.lstat(image)
        if stat.S_ISDIR(found.st_mode) and found.st_uid in (0, os.geteuid()) and not found.st_mode & 0o022:
            shutil.copytree(image, folder, dirs_exist_ok=True, copy_function=shutil.copyfile)
            folder.chmod(0o700)  # copytree gives it the mode of what it copies
    except (OSError, shutil.Error):
        pass  # they are compiled


def compiled_before() -> bool:
    """True if functions of this package, as it is now, are compiled for this user already. Looks at times, not at content."""
    given, image = os.environ.get("NUMBA_CACHE_DIR"), os.environ.get(IMAGE)
    if image and any(Path(image).rglob("*.nbi")):
        return True
    newest = max(path.stat().st_mtime for path in Path(__file__).parent.rglob("*.py"))
    return any(index.stat().st_mtime > newest for p in (given, own_folder()) if p for index in Path(p).rglob("*.nbi"))
