"""What a run reads, file by file: each under a number that it keeps, in tasks that are known by what they read.

A task's key is a hash of what its partitions depend on beside the settings of the whole box: its source's settings, and of every
piece the number, size and state of the file and the place in it. The ledger, `.ledger.json` in documents/, has every task that
was cut there, under the name of its partitions. A survey keeps the tasks whose keys still hold, so their partitions stand, and
cuts what they do not cover into new ones, under the next names. A file that is added, changed or removed thus costs the tasks
that hold it. What is no longer asked for stays until `gpu-curate clean`.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from gpu_curate.document import MAX_FILES
from gpu_curate.errors import ConfigError
from gpu_curate.sources import Split, footers
from gpu_curate.sources.identity import content_identity
from gpu_curate.sources.listing import File, Listing
from gpu_curate.sources.sections import SourceBase, WarcSource
from gpu_curate.stages.documents.intake import Intake
from gpu_curate.stages.documents.listing import listings, source_settings
from gpu_curate.stages.documents.schema import LEDGER
from gpu_curate.stages.documents.tasks import Piece, ReadTask, pack, refers, refuse_wrong, split_files
from gpu_curate.store.artifact import Box
from gpu_curate.store.files import file_hash, publish
from gpu_curate.store.fingerprint import digest, versions

Numbers = dict[str, dict[str, int]]  # source → file, by its name below the source's folder → number

_VERSION = 1
_MAX_TASKS = 999_999
# of a source's section: what changes no document, or changes only which files are read
_ASIDE = {"path", "weight", "tokens", "storage_options", "follow_links", "hidden_files", "max_documents", "max_bytes"}
LIBRARIES = {
    "warc": ("trafilatura", "lxml", "resiliparse", "chardetng-py"),
    "parquet": ("pyarrow",),
    "huggingface": ("pyarrow",),
}


class Entry(NamedTuple):
    """A task in the ledger."""

    key: str
    source: str
    survey: int  # which one cut it: 0 is the first of an empty ledger
    nbytes: int
    pieces: list[list[Any]]  # number, index and count of the file's pieces, and the split without its path
    limits: list[int | None] | None = None  # max_documents and max_bytes, of a source that has one
    states: dict[str, str] | None = None  # of such a source: of its files, by number


@dataclass
class Ledger:
    """The tasks that a documents box has partitions of, or began."""

    tasks: dict[str, Entry] = field(default_factory=dict)
    cut: dict[str, list[Any]] = field(default_factory=dict)  # state of a file → how many pieces it has, and records
    surveys: int = 0
    lost: dict[str, str] = field(default_factory=dict)  # key → name, as receipts tell where the ledger itself is gone
    damage: str = ""  # what is wrong with the file, for a message

    @classmethod
    def read(cls, folder: Path) -> Ledger:
        """That of a documents box; an empty one where there is none, or none that can be read."""
        path = folder / LEDGER
        try:
            seal, _, body = path.read_text(encoding="utf-8").partition("\n")
            facts = json.loads(body)
            if seal != _seal(body):
                raise ValueError("its seal is not that of its content")
            if facts["version"] != _VERSION:
                raise ValueError(f"it is of version {facts['version']}")
            tasks = {name: Entry(*entry) for name, entry in facts["tasks"].items()}
            return cls(tasks, facts["cut"], facts["surveys"])
        except FileNotFoundError:
            damage = ""
        except (OSError, ValueError, LookupError, TypeError, RecursionError) as e:
            damage = f"{path} cannot be used: {e}"
        lost = {r.key: r.part.partition("-")[0] for r in Box(folder).stored() if r.key}
        return cls(surveys=1 if lost else 0, lost=lost, damage=damage)

    def write(self, folder: Path) -> None:
        facts = {"version": _VERSION, "surveys": self.surveys, "cut": self.cut, "tasks": self.tasks}
        body = json.dumps(facts, ensure_ascii=False)
        with publish(folder / LEDGER) as temp:
            temp.write_text(f"{_seal(body)}\n{body}", encoding="utf-8")

    def free_names(self) -> Iterator[str]:
        """Names that no task has, in order. Raises: ConfigError: there are no more."""
        taken = [int(name) for name in (*self.tasks, *self.lost.values()) if name.isdigit()]
        for number in range(max(taken, default=-1) + 1, _MAX_TASKS + 1):
            yield f"{number:06d}"
        raise ConfigError(
            f"run.partition_bytes: the input is cut into more than {_MAX_TASKS:,} partitions",
            "set a larger run.partition_bytes",
        )


def _seal(body: str) -> str:
    return hashlib.sha256(body.encode("utf-8")).hexdigest()


class Known(NamedTuple):
    """A file of a source, and what tells its present state from any other."""

    file: File
    number: int
    state: str


@dataclass
class Corpus:
    """What a run reads.

    Attributes:
        found: of every source, its files in order and what is passed over.
        files: the same files, with their numbers.
        numbers: of every file that ever had one.
        tasks: by the name of their partitions; keys: what each depends on.
        new: tasks that were cut now.
        plain: files are numbered in order, and tasks cut and named as in an empty run directory.
        listed_s: when the files were looked at, by this machine's clock.
    """

    found: list[Listing]
    files: list[list[Known]]
    numbers: Numbers
    tasks: dict[str, ReadTask]
    keys: dict[str, str]
    new: frozenset[str]
    rows: dict[int, int | None]
    plain: bool
    ledger: Ledger
    listed_s: float

    def news(self) -> str:
        """What of the input is new to a run that goes on, for people; "" if all of it is, or nothing."""
        new, old = len(self.new), len(self.tasks) - len(self.new)
        return f"inputs: {new:,} tasks are new or changed, {old:,} are as they were" if new and old else ""

    def identity(self) -> Any:
        """What the run reads, for the fingerprint of all that is made of the whole of it."""
        files = [[(k.file.relative, k.file.size, k.state, k.number) for k in own] for own in self.files]
        return files, None if self.plain else list(self.keys.items())

    def write(self, folder: Path) -> None:
        """Write the ledger down, if it is to say more than before. `folder`: the documents box."""
        if self.new or self.ledger.damage or self.ledger.lost or not (folder / LEDGER).exists():
            self.ledger.write(folder)

    def listing(self, intake: Intake) -> list[dict[str, Any]]:
        """Every file, for the snapshot."""
        return [
            {
                "number": k.number,
                "source": source.name,
                "path": k.file.path,
                "relative": k.file.relative,
                "bytes": k.file.size,
                "identity": k.file.identity,
                "rows": self.rows.get(k.number),
            }
            for source, own in zip(intake.sources, self.files, strict=True)
            for k in own
        ]

    def facts(self, intake: Intake) -> dict[str, Any]:
        """For the snapshot: its files, tasks, and which tasks read which file."""
        of = {str(number): names for number, names in self.tasks_of().items()}
        return {"files": self.listing(intake), "tasks": list(self.tasks), "tasks_of": of, "plain": self.plain}

    def tasks_of(self) -> dict[int, list[str]]:
        """File number → tasks that read it."""
        found: dict[int, list[str]] = {}
        for name, task in self.tasks.items():
            for number in dict.fromkeys(piece.file_number for piece in task.pieces):
                found.setdefault(number, []).append(name)
        return found


def number_files(intake: Intake, found: list[Listing], before: Mapping[str, Mapping[str, int]]) -> Numbers:
    """The number of every file: the one it had, or the next ones in order of sources and names.

    Raises: ConfigError: there are none left.
    """
    numbers: Numbers = {source: dict(own) for source, own in before.items()}
    free = 1 + max((n for own in numbers.values() for n in own.values()), default=-1)
    for source, listing in zip(intake.sources, found, strict=True):
        own = numbers.setdefault(source.name, {})
        for name in _names(listing.files):
            if name not in own:
                own[name] = free
                free += 1
    if free > MAX_FILES:
        raise ConfigError(
            f"{free:,} input files, with those that were read before; a doc_id holds {MAX_FILES:,}",
            "run with --fresh, which numbers anew, or pack them into fewer files",
        )
    return numbers


def plain_identity(intake: Intake) -> Any:
    """`Corpus.identity` in an empty run directory, where no file has been cut. Looks at the files; opens none."""
    found = listings(intake.sources)
    numbers = number_files(intake, found, {})
    files = _known(intake, found, numbers, [_base(intake, s) for s in intake.sources])
    return [[(k.file.relative, k.file.size, k.state, k.number) for k in own] for own in files], None


def _names(files: list[File]) -> list[str]:
    """What tells the files of a source apart, wherever its folder lies; of two of one name the second goes by its path."""
    seen: set[str] = set()
    names = []
    for file in files:
        names.append(file.path if file.relative in seen else file.relative)
        seen.add(file.relative)
    return names


def _base(intake: Intake, source: SourceBase) -> str:
    """Hash of what the documents of a source depend on beside its files and the settings of the box."""
    lists = (*source.url_blocklist, *source.domain_blocklist) if isinstance(source, WarcSource) else ()
    refers_to = intake.refers(source)
    return digest(
        {
            "settings": source_settings(source, _ASIDE),
            "lists": [file_hash(Path(p)) for p in lists if Path(p).is_file()],
            "by_reference": refers_to,
            "libraries": versions((*LIBRARIES.get(source.type, ()), *(("xxhash",) if refers_to else ()))),  # type: ignore[attr-defined]  # every section but their base has one
        }
    )


def _known(intake: Intake, found: list[Listing], numbers: Numbers, bases: list[str]) -> list[list[Known]]:
    known = []
    for source, listing, base in zip(intake.sources, found, bases, strict=True):
        of_source = numbers[source.name]
        own = []
        for file, name in zip(listing.files, _names(listing.files), strict=True):
            identity = content_identity(file, source) if source.content_fingerprint else file.identity
            state = digest([base, of_source[name], file.relative, file.size, identity])
            own.append(Known(file, of_source[name], state))
        known.append(own)
    return known


def _key(intake: Intake, task: ReadTask, states: Mapping[int, str]) -> str:
    source = intake.sources[task.source]
    refers_to = refers(intake, task)  # its partitions say where the files lie
    pieces = [[states[p.file_number], *p.split[1:], p.split.path if refers_to else None] for p in task.pieces]
    return digest([source.max_documents, source.max_bytes, pieces])


def survey(
    intake: Intake,
    folder: Path,
    numbers: Mapping[str, Mapping[str, int]] | None = None,
    fresh: bool = False,
    before_cutting: Callable[[list[list[File]]], None] = lambda files: None,
) -> Corpus:
    """Look at the files, and cut those of which the ledger does not know how they are cut. Reads their headers and footers at
    most; writes nothing.

    Args:
        folder: the documents box; may not exist.
        numbers: of the files, as they are.
        fresh: number and cut anew. Tasks that come out as they are known keep their partitions all the same.
        before_cutting: is told the files of every source that will be opened.
    Raises:
        ConfigError: a file is missing, or does not fit the recipe. FatalError: the network fails.
    """
    listed_s = time.time()
    found = listings(intake.sources)
    numbers = number_files(intake, found, {} if fresh or numbers is None else numbers)
    ledger = Ledger.read(folder)
    bases = [_base(intake, s) for s in intake.sources]
    files = _known(intake, found, numbers, bases)
    states = {k.number: k.state for own in files for k in own}
    cutter = _Cutter(intake, ledger, files, states)
    kept = [[] if fresh else cutter.keep(index) for index in range(len(files))]
    to_cut = [cutter.uncovered(index, own) for index, own in enumerate(kept)]
    before_cutting([list(own.values()) for own in to_cut])
    tasks = [task for index, own in enumerate(kept) for task in cutter.source(index, own, to_cut[index])]
    footers.close()
    refuse_wrong(cutter.wrong)
    keys = [_key(intake, task, states) for task in tasks]
    names = cutter.named(tasks, keys)
    in_order = [k.number for own in files for k in own] == list(range(len(states)))
    first = all(ledger.tasks[name].survey == 0 for name in names)
    return Corpus(
        found,
        files,
        numbers,
        dict(zip(names, tasks, strict=True)),
        dict(zip(names, keys, strict=True)),
        frozenset(cutter.new),
        {number: ledger.cut[state][1] for number, state in states.items() if state in ledger.cut},
        in_order and first and names == [f"{n:06d}" for n in range(len(names))],
        ledger,
        listed_s,
    )


class _Cutter:
    """Takes tasks from the ledger and cuts the others."""

    def __init__(self, intake: Intake, ledger: Ledger, files: list[list[Known]], states: Mapping[int, str]):
        self._intake, self._ledger, self._files, self._states = intake, ledger, files, states
        self._kept: dict[int, str] = {}  # id of a task that was taken from the ledger → its name
        self.wrong: list[ConfigError] = []
        self.new: list[str] = []

    def uncovered(self, index: int, kept: list[ReadTask]) -> dict[int, File]:
        """The files of a source that have to be cut, by number."""
        covered = {(p.file_number, p.nth) for task in kept for p in task.pieces}
        return {k.number: k.file for k in self._files[index] if not self._is_covered(k, covered)}

    def source(self, index: int, kept: list[ReadTask], to_cut: dict[int, File]) -> list[ReadTask]:
        """The tasks of a source: those kept, and what is cut of other files."""
        if not to_cut:
            return kept
        intake = self._intake
        cut = split_files(intake, index, to_cut, self.wrong)
        for number, (pieces, rows) in cut.items():
            self._ledger.cut[self._states[number]] = [len(pieces), rows]
        if self._limited(index):  # read in order until the limit: all of it is one task
            return pack(intake, index, [p for k in self._files[index] for p in cut[k.number][0]])
        covered = {(p.file_number, p.nth) for task in kept for p in task.pieces}
        left = [p for number in sorted(cut) for p in cut[number][0] if (number, p.nth) not in covered]
        return [*kept, *pack(intake, index, left)]

    def _limited(self, index: int) -> bool:
        source = self._intake.sources[index]
        return source.max_documents is not None or source.max_bytes is not None

    def keep(self, index: int) -> list[ReadTask]:
        """Tasks of the ledger that still hold, in the order of their names, none that reads what another one does."""
        intake, own, limited = self._intake, self._files[index], self._limited(index)
        paths = {k.number: k.file.path for k in own}
        covered: set[tuple[int, int]] = set()
        kept = []
        for name, entry in sorted(self._ledger.tasks.items()):
            if entry.source != intake.sources[index].name or any(p[0] not in paths for p in entry.pieces):
                continue
            pieces = [Piece(Split(paths[p[0]], *p[3:]), *p[:3]) for p in entry.pieces]
            task = ReadTask(index, pieces, entry.nbytes)
            if _key(intake, task, self._states) != entry.key:
                continue
            places = [(p.file_number, p.nth) for p in pieces]
            if not covered.isdisjoint(places) or (limited and not self._is_whole(own, places)):
                continue
            covered.update(places)
            kept.append(task)
            self._kept[id(task)] = name
        return kept

    def _is_whole(self, own: list[Known], places: list[tuple[int, int]]) -> bool:
        """True if these are all pieces of all files, in order."""
        counts = [self._ledger.cut.get(k.state, [None])[0] for k in own]
        if any(n is None for n in counts):
            return False
        return places == [(k.number, i) for k, n in zip(own, counts, strict=True) for i in range(n)]

    def _is_covered(self, known: Known, covered: set[tuple[int, int]]) -> bool:
        count = self._ledger.cut.get(known.state, [None])[0]
        return count is not None and all((known.number, i) in covered for i in range(count))

    def _limits(self, task: ReadTask) -> tuple[list[int | None] | None, dict[str, str] | None]:
        if not self._limited(task.source):
            return None, None
        source = self._intake.sources[task.source]
        states = {str(p.file_number): self._states[p.file_number] for p in task.pieces}
        return [source.max_documents, source.max_bytes], states

    def named(self, tasks: list[ReadTask], keys: list[str]) -> list[str]:
        """A name for every task; those that have none yet are written into the ledger."""
        ledger = self._ledger
        by_key = {**ledger.lost, **{entry.key: name for name, entry in ledger.tasks.items()}}
        free = ledger.free_names()
        names = []
        for task, key in zip(tasks, keys, strict=True):
            name = self._kept.get(id(task)) or by_key.get(key)
            if name is None:
                name = next(free)
                self.new.append(name)
            if name not in ledger.tasks:
                pieces = [[p.file_number, p.nth, p.of, *p.split[1:]] for p in task.pieces]
                source = self._intake.sources[task.source].name
                limits, states = self._limits(task)
                ledger.tasks[name] = Entry(key, source, ledger.surveys, task.nbytes, pieces, limits, states)
            names.append(name)
        if self.new:
            ledger.surveys += 1
        return names
