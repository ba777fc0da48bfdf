"""What lies below a folder that a pattern names: files, and what is passed over, each folder listed once.

One rule for folders and globs. Links that stay below the named folder (for a glob: the folder before its first wildcard)
are followed; those that leave it only if the source says so. A folder is listed once, whatever loops lead to it. Names that
begin with "." or "_" are passed over unless the pattern writes that character or the source takes them.
"""

from __future__ import annotations

import fnmatch
import functools
import glob
import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from gpu_curate.privacy import opened

EXAMPLES = 5
_HUB_SNAPSHOT = re.compile(r"(.*/(?:datasets|models|spaces)--[^/]+)/snapshots/[^/]+(?:/|\Z)")


class File(NamedTuple):
    path: str  # as it is opened
    relative: str  # to the fixed folder of the pattern it came from: what file numbers are sorted by
    size: int
    identity: str  # changes when the content does: mtime, ETag or the like


@dataclass
class PassedOver:
    """What lies where a source's patterns point and is not read. Paths as they would have been opened."""

    linked: dict[str, str] = field(default_factory=dict)  # link that leaves the named folder → where it leads
    dangling: set[str] = field(default_factory=set)  # links that lead nowhere
    hidden: set[str] = field(default_factory=set)  # names that begin with "." or "_"; a folder ends in "/"
    repeated: dict[str, str] = field(default_factory=dict)  # further name of a file or folder → name it is read under
    unread: dict[str, int] = field(default_factory=dict)  # suffix that no file of this type has → files

    def add(self, other: PassedOver) -> None:
        self.linked.update(other.linked)
        self.repeated.update(other.repeated)
        self.dangling |= other.dangling
        self.hidden |= other.hidden
        for suffix, count in other.unread.items():
            self.unread[suffix] = self.unread.get(suffix, 0) + count

    def facts(self) -> dict[str, Any]:
        """For JSON: how many of each kind, with examples. Empty if nothing was passed over."""
        groups: dict[str, Any] = {
            "linked": [f"{link} -> {target}" for link, target in sorted(self.linked.items())],
            "dangling_links": sorted(self.dangling),
            "hidden": sorted(self.hidden),
            "repeated": [f"{name} = {kept}" for name, kept in sorted(self.repeated.items())],
        }
        found = {name: {"count": len(g), "examples": g[:EXAMPLES]} for name, g in groups.items() if g}
        return {**found, **({"other_suffixes": dict(sorted(self.unread.items()))} if self.unread else {})}

    def sentence(self) -> str:
        """For people, in one line; "" if nothing was passed over."""
        return passed_over_sentence(self.facts())


def passed_over_sentence(facts: dict[str, Any]) -> str:
    """`PassedOver.sentence` of `PassedOver.facts`."""
    texts = {
        "linked": "{n} that lead out of the named folder by a link (follow_links: true reads them)",
        "dangling_links": "{n} links that lead nowhere",
        "hidden": "{n} whose names begin with . or _ (hidden_files: true reads them)",
        "repeated": "{n} further names of what is read once",
    }
    parts = []
    for kind, text in texts.items():
        if kind in facts:
            shown = ", ".join(facts[kind]["examples"])
            more = ", ..." if facts[kind]["count"] > len(facts[kind]["examples"]) else ""
            parts.append(f"{text.format(n=facts[kind]['count'])}: {shown}{more}")
    if others := facts.get("other_suffixes"):
        counts = ", ".join(f"{n} {suffix}" for suffix, n in sorted(others.items(), key=lambda kv: (-kv[1], kv[0])))
        parts.append(f"{sum(others.values())} files of other types: {counts}")
    return "passed over: " + "; ".join(parts) if parts else ""


class Listing(NamedTuple):
    """The files of a source in order, and what is not read."""

    files: list[File]
    passed_over: PassedOver


class Entry(NamedTuple):
    """A name in a folder."""

    path: str
    name: str
    is_folder: bool  # links followed
    is_link: bool
    is_file: bool  # an ordinary one, and no link


def is_hidden(name: str) -> bool:
    return name.startswith((".", "_"))


def suffix_of(path: str) -> str:
    """The suffix a file is counted under: with a compression's, the one before it too."""
    name = os.path.basename(path).lower()
    stem, suffix = os.path.splitext(name)
    if suffix in (".gz", ".zst", ".bz2", ".xz", ".lz4", ".gzip", ".zstd"):
        suffix = os.path.splitext(stem)[1] + suffix
    return suffix or "without a suffix"


class Tree:
    """What lies below a folder.

    Args:
        root: the named folder; "" is the current one.
        unreadable: called with the OSError of a folder that cannot be listed; raises.
        hidden: which names are passed over.
        entries: folder → names in it, of folders that another tree has listed.
    """

    def __init__(
        self,
        root: str,
        follow_links: bool,
        unreadable: Callable[[OSError], None],
        hidden: Callable[[str], bool] = is_hidden,
        entries: dict[str, list[Entry]] | None = None,
    ):
        self.root, self._follow, self._unreadable, self._hidden = root, follow_links, unreadable, hidden
        self.passed_over = PassedOver()
        real = os.path.realpath(root or ".")
        # The hub's cache keeps the files of a snapshot beside it, as links: the folder that is meant is the repository's
        snapshot = _HUB_SNAPSHOT.match(real)
        self._inside = snapshot[1] if snapshot else real
        self._entries = {} if entries is None else entries
        self._folders: dict[str, list[str]] = {}

    def files(self) -> Iterator[str]:
        """Paths of every file, folders in no particular order."""
        for folder in self._below(self.root):
            yield from self._files(folder, lambda name: not self._skip(name))

    def matches(self, pattern: str) -> Iterator[str]:
        """Paths of the files that fit a glob below the root; a path may come twice."""
        yield from self._match(self.root, pattern.split("/"))

    def _match(self, folder: str, parts: list[str]) -> Iterator[str]:
        part, rest = parts[0], parts[1:]
        if part == "":  # a//b, a/
            if rest:
                yield from self._match(folder, rest)
        elif part == "**":
            for below in self._below(folder):
                if rest:
                    yield from self._match(below, rest)
                else:
                    yield from self._files(below, lambda name: not self._skip(name))
        elif not glob.has_magic(part):
            path = os.path.join(folder, part)
            if rest and self._exists(path, os.path.isdir) and self._allowed(path, os.path.islink(path)):
                yield from self._match(path, rest)
            elif not rest and self._exists(path, os.path.isfile) and self._allowed(path, os.path.islink(path)):
                yield path
        else:
            fits = _compiled(part)

            def wanted(name: str) -> bool:
                return fits(name) is not None and (part[0] == name[0] or not self._skip(name))

            if not rest:
                yield from self._files(folder, wanted, fits)
                return
            for entry in self._list(folder):
                if entry.is_folder and fits(entry.name):
                    if not wanted(entry.name):
                        self._note_hidden(entry)
                    elif self._allowed(entry.path, entry.is_link):
                        yield from self._match(entry.path, rest)

    def _skip(self, name: str) -> bool:
        return self._hidden(name)

    def _note_hidden(self, entry: Entry) -> None:
        self.passed_over.hidden.add(entry.path + "/" * entry.is_folder)

    def _files(
        self, folder: str, wanted: Callable[[str], bool], fits: Callable[[str], Any] = lambda name: True
    ) -> Iterator[str]:
        """The files of one folder."""
        for entry in self._list(folder):
            if entry.is_folder or not fits(entry.name):
                continue
            if not wanted(entry.name):
                self._note_hidden(entry)
            elif entry.is_link and not os.path.exists(entry.path):
                self.passed_over.dangling.add(entry.path)
            elif self._allowed(entry.path, entry.is_link) and (entry.is_file or os.path.isfile(entry.path)):
                yield entry.path

    def _exists(self, path: str, kind: Callable[[str], bool]) -> bool:
        try:
            os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as e:
            if e.errno is not None and e.errno in (1, 13):  # a folder on the way may not be entered
                self._unreadable(OSError(e.errno, e.strerror, os.path.dirname(path)))
            return False
        return kind(path)

    def _allowed(self, path: str, is_link: bool) -> bool:
        """False, and noted, if a link leaves the named folder."""
        if not is_link or self._follow:
            return True
        target = os.path.realpath(path)
        if target == self._inside or target.startswith(self._inside.rstrip("/") + "/"):
            return True
        self.passed_over.linked[path] = target
        return False

    def _below(self, start: str) -> list[str]:
        """`start` and the folders below it. Real folders first, so that a link never names what has a name of its own."""
        if start in self._folders:
            return self._folders[start]
        found: list[str] = []
        seen: dict[str, str] = {}
        links: list[Entry] = []

        def walk(folder: str, real: str) -> None:
            waiting = [(folder, real)]
            while waiting:
                at, place = waiting.pop()
                if place in seen:
                    continue
                seen[place] = at
                found.append(at)
                for entry in self._list(at):
                    if not entry.is_folder:
                        continue
                    if self._skip(entry.name):
                        self._note_hidden(entry)
                    elif entry.is_link:
                        links.append(entry)
                    else:
                        waiting.append((entry.path, os.path.join(place, entry.name)))

        walk(start, os.path.realpath(start or "."))
        while links:
            links.sort(key=lambda e: (-e.path.count("/"), e.path), reverse=True)
            link = links.pop()
            real = os.path.realpath(link.path)
            if real in seen:
                self.passed_over.repeated[link.path + "/"] = (seen[real] or ".") + "/"
            elif self._allowed(link.path, True):
                walk(link.path, real)
        self._folders[start] = found
        return found

    def _list(self, folder: str) -> list[Entry]:
        """The names in a folder, in order."""
        if folder not in self._entries:
            entries = []
            prefix = os.path.join(folder, "")
            try:
                with os.scandir(folder or ".") as names:
                    for name in names:
                        path = f"{prefix}{name.name}"
                        is_link = name.is_symlink()
                        is_folder = _is_folder(name)
                        is_file = not is_link and not is_folder and _is_file(name)
                        entries.append(Entry(path, name.name, is_folder, is_link, is_file))
            except (FileNotFoundError, NotADirectoryError):
                pass
            except OSError as e:
                self._unreadable(e)
            self._entries[folder] = sorted(entries, key=lambda e: e.name)
        return self._entries[folder]


@functools.lru_cache(maxsize=256)
def _compiled(part: str) -> Callable[[str], Any]:
    return re.compile(fnmatch.translate(part)).match


def _is_folder(name: os.DirEntry[str]) -> bool:
    try:
        return name.is_dir()
    except OSError:  # a link that loops, or leads where nobody may look
        return False


def _is_file(name: os.DirEntry[str]) -> bool:
    try:
        return name.is_file(follow_symlinks=False)
    except OSError:
        return False


def fixed_folder(pattern: str) -> str:
    """The folder before the first wildcard; a folder of that very name has none. "" is the current one."""
    fixed: list[str] = []
    for part in pattern.split("/"):
        if glob.has_magic(part) and not os.path.isdir("/".join([*fixed, part])):
            break
        fixed.append(part)
    return "/".join(fixed) or "/" * pattern.startswith("/")


def local_file(path: str, root: str) -> File:
    """Of a path below `root`."""
    stat = os.stat(path)
    below = os.path.join(root, "") if root else ""
    plain = path.startswith(below) and "/./" not in path and "//" not in path and ".." not in path
    relative = path[len(below) :] if plain else os.path.relpath(path, root or ".")
    return File(path, relative, stat.st_size, str(stat.st_mtime_ns))


def once(candidates: Iterable[File], passed_over: PassedOver, by_name: bool = False) -> list[File]:
    """Each file once, under the name with the fewest folders, then the one that is no link; in order of their names.

    `by_name`: a path is a file of its own (remote ones).
    """
    found: dict[str, File] = {}
    folders: dict[str, str] = {}

    def real(file: File) -> str:
        if by_name:
            return opened(file.path)
        folder, name = os.path.split(file.path)
        if folder not in folders:
            folders[folder] = os.path.realpath(folder or ".")
        return os.path.realpath(file.path) if os.path.islink(file.path) else os.path.join(folders[folder], name)

    keyed = [(file, real(file)) for file in candidates]
    keyed.sort(
        key=lambda k: (
            k[0].relative.count("/"),
            not by_name and k[1] != os.path.abspath(k[0].path),
            k[0].relative,
            k[0].path,
        )
    )
    for file, place in keyed:
        kept = found.setdefault(place, file)
        if not by_name and os.path.abspath(kept.path) != os.path.abspath(file.path):
            passed_over.repeated[file.path] = kept.path
    return sorted(found.values(), key=lambda f: (f.relative, f.path))
