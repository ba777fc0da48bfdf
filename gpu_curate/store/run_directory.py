"""What lies in a run directory: sets of shards, each with its report, and which of them is the latest.

A set of shards and its report have folders named by fingerprint, `shards-0123456789ab` and `report-0123456789ab`, which never
change their names. `shards` and `report` are links to those of the latest run that wrote shards. A link is swapped by
renaming another over it: at every moment there is a whole set behind it, and who opened the earlier one goes on with that.
tar, rsync -a and cp -a copy links; tools that follow them copy the latest set a second time, under the plain name. Both
kinds of copies are read, and so are runs of version 0.1, where `shards` and `report` are folders and only the first ones.
This module needs the standard library and our errors alone: the loader imports it.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import re
import secrets
import time
from pathlib import Path
from typing import Any

from gpu_curate.errors import ConfigError

RUN_FILE = "run.json"
CACHE_FILE = "cache.json"  # in a folder of boxes that several runs share
FINGERPRINT = ".fingerprint"
MANIFEST = "manifest.json"
LINKS = ("shards", "report")  # plain names that stand for the latest
FINGERPRINT_CHARS = 12  # of a fingerprint, in a folder's name
_LONGEST_NAME = 255  # of a file; the system refuses a longer one
_EXCHANGE = 2  # RENAME_EXCHANGE
_AT_FDCWD = -100


def nameable(name: Any) -> bool:
    """Whether a file system can hold a file of this name or path: what others wrote may be any text, or none."""
    try:
        parts = os.fsencode(name).split(b"/")
    except (TypeError, UnicodeEncodeError):  # no text, or half a surrogate pair
        return False
    return b"\0" not in b"".join(parts) and max(map(len, parts)) <= _LONGEST_NAME


def below(run: Path, name: Any) -> Path:
    """The file or folder of a run directory that a file in it names.

    Raises:
        ConfigError: the name is absolute, goes up, or is a link that leads out: others may have written it.
    """
    if not name or not nameable(name) or os.path.isabs(name) or ".." in name.split("/"):
        raise ConfigError(
            f"run directory {run} names {name!r}, which is not a file or folder below it",
            "restore its files from a copy",
        )
    place: Path = run / name
    root = os.path.realpath(run)
    real = os.path.realpath(place)
    if real != root and not real.startswith(root.rstrip("/") + "/"):
        raise ConfigError(
            f"{place} is a link that leads out of the run directory, to {real}",
            "move what it stands for to its place; to have a run on another disk, link the run directory itself",
        )
    return place


def owner(box: Path) -> str | None:
    """The fingerprint whose box this folder is; None: nobody's, since nothing is in it (a try that failed at its start)."""
    marker = box / FINGERPRINT
    if not marker.exists() or all(p.name.startswith(".") and p.name != ".receipts" for p in box.iterdir()):
        return None
    return marker.read_text().strip()


def place(run: Path, name: str, fingerprint: str) -> str:
    """The folder of the shards or the report of a fingerprint: its own name, or the plain one in a run of version 0.1."""
    plain = run / name
    if plain.is_dir() and not plain.is_symlink() and _owner_of(plain, name) == fingerprint:
        return name
    return f"{name}-{fingerprint[:FINGERPRINT_CHARS]}"


def _owner_of(folder: Path, name: str) -> str | None:
    """The fingerprint of the shards that a folder of shards or a report belongs to."""
    if name == "shards":
        return owner(folder)
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        return str(json.loads((folder / "report.json").read_bytes())["fingerprints"]["shards"])
    return None


def read_run_file(run: Path) -> dict[str, Any]:
    """run.json; {} where there is none that can be read."""
    try:
        facts = json.loads((run / RUN_FILE).read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return {} if run_faults(facts) else dict(facts)


def run_faults(facts: Any) -> list[str]:
    """What in the data of a run.json is of another kind than this program writes: `key: value`."""
    if not isinstance(facts, dict):
        return [f"{facts!r:.80}"]
    kinds = {"started": str, "config": dict, "fingerprints": dict, "folders": dict, "backend": dict}
    kinds |= {"machine": dict, "versions": dict}
    faults = [
        f"{key}: {facts[key]!r:.80}" for key, kind in kinds.items() if key in facts and not isinstance(facts[key], kind)
    ]
    faults += [
        f"{key}: {facts[key]!r:.80}" for key in ("latest", "split") if not isinstance(facts.get(key), dict | None)
    ]
    if not faults:
        latest = facts.get("latest") or {}
        named = {"latest.shards": latest.get("shards"), "latest.report": latest.get("report")}
        named |= {"cache": facts.get("cache"), "latest.cache": latest.get("cache")}
        named |= {f"folders.{box}": name for box, name in facts.get("folders", {}).items()}
        named |= {f"fingerprints.{box}": fingerprint for box, fingerprint in facts.get("fingerprints", {}).items()}
        if isinstance(latest.get("folders"), dict | None):
            named |= {f"latest.folders.{box}": name for box, name in (latest.get("folders") or {}).items()}
        else:
            faults.append(f"latest.folders: {latest['folders']!r:.80}")
        faults += [f"{key}: {name!r:.80}" for key, name in named.items() if not isinstance(name, str | None)]
        boxes = facts.get("folders", {"documents": "", "shards": ""})
        faults += [f"folders.{box}: None" for box in ("documents", "shards") if box not in boxes]
    return faults


def latest_shards(run: Path) -> Path | None:
    """The folder of the latest whole set of shards of a run, under a name that it keeps; None: there is no set yet."""
    link = run / "shards"
    facts = read_run_file(run)
    names = [os.readlink(link)] if link.is_symlink() else []
    names += [str(_part(facts, key).get("shards")) for key in ("latest", "folders")]
    names += ["shards", *(s.name for s in sorted(_sets(run), key=_made, reverse=True))]
    for name in names:
        folder = below(run, name)
        if (folder / MANIFEST).is_file() and not folder.is_symlink():
            return folder
    return None


def _sets(run: Path) -> list[Path]:
    """Every whole set of shards of a run."""
    pattern = re.compile(rf"shards(-[0-9a-f]{{{FINGERPRINT_CHARS}}}(-\d+)?)?")
    return sorted(
        p for p in run.iterdir() if pattern.fullmatch(p.name) and not p.is_symlink() and (p / MANIFEST).is_file()
    )


def _made(folder: Path) -> float:
    return (folder / MANIFEST).stat().st_mtime


def resolved(folder: Path) -> Path:
    """A folder by the name that it keeps: what a link stands for now."""
    return folder.parent / os.readlink(folder) if folder.is_symlink() else folder


def shard_sets(run: Path) -> list[dict[str, Any]]:
    """Every whole set of shards of a run, the latest first: folder, report, sizes, and what its config has otherwise."""
    latest = latest_shards(run)
    if latest is None:
        return []
    folders = [latest, *(f for f in sorted(_sets(run), key=_made, reverse=True) if f != latest)]
    manifests = [_manifest(f) for f in folders]
    found = []
    for folder, manifest in zip(folders, manifests, strict=True):
        named = run / f"report{folder.name.removeprefix('shards')}"
        report = next((r for r in (named, run / "report") if not r.is_symlink() and _same_print(r, folder)), None)
        found.append(
            {
                "folder": folder.name,
                "latest": folder == latest,
                "report": report and report.name,
                "made": time.strftime("%Y-%m-%dT%H:%M:%S%z", time.localtime(_made(folder))),
                "disk_bytes": disk_bytes(folder),
                "documents": _total(manifest, "documents"),
                "tokens": _total(manifest, "tokens"),
                "bound": _part(manifest, "split").get("bound"),
                "differs": differences(manifests[0].get("config"), manifest.get("config")),
            }
        )
    return found


def _manifest(shards: Path) -> dict[str, Any]:
    """manifest.json as it is; {} of one that cannot be read: `shards verify` says what is wrong with it."""
    try:
        manifest = json.loads((shards / MANIFEST).read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return manifest if isinstance(manifest, dict) else {}


def _part(facts: dict[str, Any], key: str) -> dict[str, Any]:
    part = facts.get(key)
    return part if isinstance(part, dict) else {}


def _total(manifest: dict[str, Any], key: str) -> int:
    counts = [s.get(key) for s in _part(manifest, "splits").values() if isinstance(s, dict)]
    return sum(c for c in counts if isinstance(c, int))


def _same_print(report: Path, shards: Path) -> bool:
    return report.is_dir() and _owner_of(report, "report") == owner(shards)


def differences(old: Any, new: Any, key: str = "") -> dict[str, list[Any]]:
    """Key → [old value, new value] of two configs, where they differ."""
    if isinstance(old, dict) and isinstance(new, dict):
        found: dict[str, list[Any]] = {}
        for name in sorted(old.keys() | new.keys()):
            found.update(differences(old.get(name), new.get(name), f"{key}.{name}" if key else name))
        return found
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        found = {}
        for i, (a, b) in enumerate(zip(old, new, strict=True)):
            found.update(differences(a, b, f"{key}.{i}"))
        return found
    return {} if old == new else {key: [old, new]}


def disk_bytes(folder: Path) -> int:
    """Bytes of the files in a folder, however deep; links count nothing and are not followed."""
    total = 0
    for place_, _, files in os.walk(folder):
        for name in files:
            with contextlib.suppress(OSError):
                path = os.path.join(place_, name)
                total += 0 if os.path.islink(path) else os.path.getsize(path)
    return total


# ------------------------------------------------------------------------------------------------------------- links


def point(run: Path, name: str, target: str) -> bool:
    """Make `name` a link to the folder `target` of the same run, in one step. False where the file system has no links.

    A folder that has the plain name (a run of version 0.1, or a copy made by a tool that follows links) gets a name of its
    own: exchanged with the link where the kernel can do that, else there are two renames, and a moment without the name.
    """
    link = run / name
    if target == name or (link.is_symlink() and os.readlink(link) == target):
        return True
    temp = run / f".{name}.tmp-{os.getpid()}-{secrets.token_hex(8)}"
    try:
        os.symlink(target, temp)
    except OSError:
        return False
    try:
        if link.is_dir() and not link.is_symlink():
            _step_aside(link, name, target)
        if not link.is_symlink() or os.readlink(link) != target:
            os.replace(temp, link)
    finally:
        temp.unlink(missing_ok=True)
    fd = os.open(run, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
    return True


def _step_aside(folder: Path, name: str, target: str) -> None:
    """Give a real folder a name of its own, and the plain one to a link to `target`."""
    fingerprint = _owner_of(folder, name)
    own = (
        f"{name}-{fingerprint[:FINGERPRINT_CHARS]}"
        if fingerprint and "/" not in fingerprint
        else f"{name}-{'0' * FINGERPRINT_CHARS}"
    )
    aside, number = folder.parent / own, 1
    while aside.exists() and not aside.is_symlink():
        number += 1
        aside = folder.parent / f"{own}-{number}"
    aside.unlink(missing_ok=True)
    os.symlink(target, aside)
    if not _exchange(aside, folder):
        aside.unlink()
        os.rename(folder, aside)


def _exchange(a: Path, b: Path) -> bool:
    """Swap two names in one step. False where the C library, the kernel or the file system cannot."""
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError):
        return False
    return bool(rename(_AT_FDCWD, os.fsencode(a), _AT_FDCWD, os.fsencode(b), _EXCHANGE) == 0)


def repair_links(run: Path) -> None:
    """After a kill between the two swaps: the report is that of the latest shards. Call only under the run's lock."""
    link = run / "shards"
    if link.is_symlink():
        report = f"report{os.readlink(link).removeprefix('shards')}"
        if (run / report / "report.json").is_file():
            point(run, "report", report)
