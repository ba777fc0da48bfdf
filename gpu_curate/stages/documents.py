"""Documents: read the sources, normalise, give every document its id, cut partitions by bytes."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import pyarrow as pa

from gpu_curate import guard
from gpu_curate.config import Config, ParquetSource, SourceBase, WarcSource
from gpu_curate.document import MAX_FILES, doc_id
from gpu_curate.errors import (
    MAX_ATTEMPTS,
    ConfigError,
    CorruptError,
    FatalError,
    InputError,
    RetryableError,
    UnreachableError,
)
from gpu_curate.privacy import identity
from gpu_curate.sources import Reader, Record, Reject, Skip, Split, footers
from gpu_curate.sources.files import find, refuse_stand_in
from gpu_curate.sources.listing import File, Listing
from gpu_curate.stages import Context, Stage, Stopwatch
from gpu_curate.stages.partition_text import OriginWriter, by_reference, can_refer
from gpu_curate.stages.rejects import add_kinds, first_reject, kind_of, place_of, write_reject
from gpu_curate.store.files import file_hash, open_fresh, publish, read_json, write_json, write_table

# what documents/ always has; `keep_columns` follow as strings
SCHEMA = pa.schema(
    [
        ("doc_id", pa.int64()),
        ("text", pa.large_string()),
        ("source", pa.dictionary(pa.int32(), pa.string())),
        ("path", pa.dictionary(pa.int32(), pa.string())),
        ("row", pa.int64()),
        ("group", pa.dictionary(pa.int32(), pa.string())),
    ]
)
_MAX_TASKS = 999_999
_CLOCK_S = 60.0  # clocks of machines that share a run directory may differ by so much
TASKS = ".tasks.json"  # in documents/: what its tasks read, so that a run that goes on opens no file again to cut it
FILES = ".files.json"  # in documents/: file number → source, path, size, records where the file says how many
PASSED_OVER = ".passed_over.json"  # in documents/ and references/: source → what its patterns hold and is not read
MARKUP_SUFFIX = ".markup.json"  # [markup, text] of the first documents of a partition that were extracted from markup
MARKUP_SAMPLE_CHARS = 1 << 16
_SCRUB_BYTES = 1 << 18  # texts that are searched for personal data in one call; four times as much is no faster
_SCRUB_ITEMS = 1 << 14
_MAX_FILES = 1000  # with rejects, in a receipt
MAX_TEXT_BYTES = (1 << 31) - 1  # of a document: int32 offsets in a string column, and in the kernels' statistics


class Piece(NamedTuple):
    """One split of one file, with the number of the file."""

    split: Split
    file_number: int


class ReadTask(NamedTuple):
    """What one task reads: pieces of one source, about a partition's worth."""

    source: int  # index in config.sources
    pieces: list[Piece]
    nbytes: int  # estimate


def make_reader(source: SourceBase) -> Reader:
    """The reader of a source's type."""
    match source.type:  # type: ignore[attr-defined]
        case "parquet":
            from gpu_curate.sources.parquet import ParquetReader as Kind
        case "jsonl":
            from gpu_curate.sources.jsonl import JsonlReader as Kind
        case "text":
            from gpu_curate.sources.text import TextReader as Kind
        case "wikipedia":
            from gpu_curate.sources.wikipedia import WikipediaReader as Kind
        case "warc":
            from gpu_curate.sources.warc import WarcReader as Kind
        case _:
            from gpu_curate.sources.huggingface import HuggingFaceReader as Kind
    return Kind(source)  # type: ignore[arg-type]


def find_files(source: SourceBase, reader: Reader) -> Listing:
    """The files of a source in order, and what is passed over. Raises: ConfigError."""
    try:
        return _find_files(source, reader)
    except BaseException as e:
        reason = guard.refusal(e)
        raise ConfigError(f"source {source.name}: its files cannot be listed: {reason}") from e


def _find_files(source: SourceBase, reader: Reader) -> Listing:
    own = getattr(reader, "files", None)  # a data set by name knows its files itself
    if own is not None:
        return own()
    key, suffixes = f"source {source.name}: path", reader.suffixes  # type: ignore[attr-defined]
    return find(source.paths, suffixes, source.storage_options, key, source.follow_links, source.hidden_files)


def inventory(config: Config) -> list[list[File]]:
    """The files of every source. Raises: ConfigError: one is missing, or there are too many."""
    return [listing.files for listing in listings(config)]


def listings(config: Config) -> list[Listing]:
    """As `inventory`, with what every source passes over."""
    found = [find_files(s, make_reader(s)) for s in config.sources]
    files = [listing.files for listing in found]
    if sum(map(len, files)) > MAX_FILES:
        raise ConfigError(
            f"{sum(map(len, files))} input files; a doc_id holds {MAX_FILES}", "pack them into fewer files"
        )
    return found


def read_tasks(config: Config, files: list[list[File]], rows: dict[str, int] | None = None) -> list[ReadTask]:
    """Cut every source into tasks of about `partition_bytes` of text. Reads headers and footers at most.

    A source with `max_documents` or `max_bytes` is one task, read in order until the limit.
    `rows` takes path → records, of the files that say how many they hold.
    """
    limit = config.run.partition_bytes
    tasks: list[ReadTask] = []
    wrong: list[ConfigError] = []  # files that do not fit the recipe
    file_number = 0
    for index, (source, own) in enumerate(zip(config.sources, files, strict=True)):
        reader = make_reader(source)
        with ThreadPoolExecutor(16) as pool:  # footers over a network wait, they do not compute
            splits = list(pool.map(lambda f, s=source, r=reader: _splits(s, r, f, limit, wrong), own))
        if rows is not None:
            rows.update(getattr(reader, "rows", {}))
        pieces: list[Piece] = []
        nbytes = 0
        limited = source.max_documents is not None or source.max_bytes is not None
        for number, of_file in enumerate(splits, file_number):
            for split in of_file:
                if pieces and nbytes + split.nbytes > limit and not limited:
                    tasks.append(ReadTask(index, pieces, nbytes))
                    pieces, nbytes = [], 0
                pieces.append(Piece(split, number))
                nbytes += split.nbytes
        if pieces:
            tasks.append(ReadTask(index, pieces, nbytes))
        file_number += len(own)
    footers.close()  # who has read them is of no more use
    if wrong:
        told = sorted({e.message for e in wrong})
        rest = [f"... and {len(told) - 10:,} other files"] if len(told) > 10 else []
        raise ConfigError("\n".join(told[:10] + rest), wrong[0].hint)
    if len(tasks) > _MAX_TASKS:
        raise ConfigError(
            f"run.partition_bytes: {limit} cuts the input into {len(tasks)} partitions; at most {_MAX_TASKS} are possible",
            "set a larger run.partition_bytes",
        )
    return tasks


def refers(config: Config, task: ReadTask) -> bool:
    """True if the partitions of a task refer to the texts of their source (`run.by_reference`)."""
    source = config.sources[task.source]
    splits = (piece.split for piece in task.pieces)
    longest = config.run.partition_bytes if isinstance(source, ParquetSource) else None
    return by_reference(config, source) and can_refer(splits, longest)


def _splits(source: SourceBase, reader: Reader, file: File, max_bytes: int, wrong: list[ConfigError]) -> list[Split]:
    """`reader.splits`, tried again like a task when the network fails. `wrong` takes what is wrong with the recipe.

    Raises: FatalError: the network goes on failing.
    """
    for attempt in range(MAX_ATTEMPTS):
        if attempt:
            time.sleep(2.0 ** (attempt - 1))
        try:
            if source.type != "text":  # type: ignore[attr-defined]  # of texts, anything may be one
                key, window = f"source {source.name}", getattr(source, "max_window_bytes", None)
                refuse_stand_in(file, key, source.storage_options, window)
            return guard.splits(reader, file.path, file.size, max_bytes)
        except UnreachableError:
            raise
        except ConfigError as e:
            wrong.append(e)
            return []
        except RetryableError as e:
            error = e
    raise FatalError(f"{error.message} ({MAX_ATTEMPTS} times)", "run again when the server answers") from error


def _listing(config: Config, files: list[list[File]], rows: Mapping[str, int]) -> list[dict[str, Any]]:
    return [
        {
            "source": s.name,
            "path": f.path,
            "relative": f.relative,
            "bytes": f.size,
            "identity": f.identity,
            "rows": rows.get(f.path),
        }
        for s, own in zip(config.sources, files, strict=True)
        for f in own
    ]


def _kept_tasks(folder: Path, config: Config, files: list[list[File]]) -> list[ReadTask] | None:
    """The tasks as they were cut before, of the same files; None if that is not known.

    The folder is of one fingerprint: the same recipe and code. Paths may differ (they were moved), and then are cut again.
    """
    try:
        before = read_json(folder / FILES)
        seal, _, body = (folder / TASKS).read_text(encoding="ascii").partition("\n")
        rows = {f["path"]: f["rows"] for f in before}
    except (OSError, CorruptError, ValueError, LookupError, TypeError):
        return None
    if seal != _seal(body) or before != _listing(config, files, rows):
        return None
    paths = [f.path for own in files for f in own]  # with what is opened, which is written nowhere
    return [
        ReadTask(source, [Piece(Split(*s)._replace(path=paths[n]), n) for s, n in pieces], size)
        for source, pieces, size in json.loads(body)
    ]


def _seal(body: str) -> str:
    return hashlib.sha256(body.encode("ascii")).hexdigest()


class Documents(Stage):
    """Read, normalise, scrub and number every document.

    Reads: the sources.  Writes: documents/ (doc_id, text, source, path, row, group, kept columns) and rejects/.
    With `run.by_reference` the text of some sources stays where it is: see document_text.
    Memory: about four times `partition_bytes` a worker, and the longest record.
    Deviates: a document that is longer than a partition is a partition of its own.
    Raises: InputError for the first rejected record if `run.strict`.
    """

    name: ClassVar[str] = "documents"
    code: ClassVar[tuple[str, ...]] = (
        "stages.documents",
        "stages.rejects",
        "guard",
        "privacy",
        "stages.partition_text",
        "sources",
        "text.normalize",
        "text.pii",
        "text.swar",
        "text.wikitext",
        "text.html",
        "text.html_scan",
        "text.charsets",
    )

    def settings(self, config: Config) -> Any:
        dropped = {"weight", "tokens", "storage_options", "follow_links", "hidden_files"}  # files are among the inputs
        if config.pii.phone != "off":
            from gpu_curate.text.pii import PiiScanner

            PiiScanner(config.pii)  # fails now if it lacks a library
        return {
            "sources": [
                {**s.model_dump(exclude=dropped), "path": [identity(p) for p in s.paths]} for s in config.sources
            ],
            "normalize": config.normalize and config.normalize.model_dump(),
            "pii": config.pii.model_dump(),
            "partition_bytes": config.run.partition_bytes,
            "by_reference": [s.name for s in config.sources if by_reference(config, s)],
            "strict": config.run.strict,
            "unicode": unicodedata.unidata_version
            if config.normalize is not None
            else None,  # the normal forms' tables
        }

    def libraries(self, config: Config) -> tuple[str, ...]:
        by_type = {
            "warc": ("trafilatura", "lxml", "resiliparse", "chardetng-py"),
            "parquet": ("pyarrow",),
            "huggingface": ("pyarrow",),
        }
        used = {d for s in config.sources for d in by_type.get(s.type, ())}
        if any(by_reference(config, s) for s in config.sources):
            used.add("xxhash")
        return tuple(sorted(used | ({"phonenumbers"} if config.pii.phone != "off" else set())))

    def inputs(self, config: Config) -> Any:
        """Identity of every input file, for the fingerprint at the root."""
        from gpu_curate.sources.identity import content_identity

        files = [
            [[f.relative, f.size, content_identity(f, s) if s.content_fingerprint else f.identity] for f in own]
            for s, own in zip(config.sources, inventory(config), strict=True)
        ]
        lists = [
            p for s in config.sources if isinstance(s, WarcSource) for p in (*s.url_blocklist, *s.domain_blocklist)
        ]
        return files, [file_hash(Path(p)) for p in lists if Path(p).is_file()]

    def plan(self, context: Context) -> dict[str, Any]:
        folder = context.box(self.name).folder
        self._planned_s = time.time()
        found = listings(context.config)
        files = [listing.files for listing in found]
        tasks = _kept_tasks(folder, context.config, files)
        if tasks is not None:
            footers.close()  # the check of the columns may have asked
        else:
            rows: dict[str, int] = {}
            tasks = read_tasks(context.config, files, rows)
            write_json(folder / FILES, _listing(context.config, files, rows))  # file number → file
            with publish(folder / TASKS) as temp:
                body = json.dumps(tasks)
                temp.write_text(f"{_seal(body)}\n{body}", encoding="ascii")
        passed = {s.name: l.passed_over.facts() for s, l in zip(context.config.sources, found, strict=True)}
        write_json(folder / PASSED_OVER, {name: facts for name, facts in passed.items() if facts})
        return {f"{number:06d}": task for number, task in enumerate(tasks)}

    def finish(self, context: Context) -> None:
        """Raises: FatalError: a file changed while it was read; what was read is forgotten. Or nobody can tell: it stays."""
        box = context.box(self.name)
        if box.newest_s() < self._planned_s - _CLOCK_S:
            return  # nothing was read since the files were listed: every partition is of an earlier run
        before = read_json(box.folder / FILES)
        try:
            now = {(f.path, f.relative): (f.size, f.identity) for own in inventory(context.config) for f in own}
        except UnreachableError as e:
            raise FatalError(
                f"all is read, but did a file change meanwhile? {e.message}", "run again: it goes on"
            ) from e
        except ConfigError:
            now = {}  # all files of a source are gone
        changed = [f["path"] for f in before if now.get((f["path"], f["relative"])) != (f["bytes"], f["identity"])]
        if changed:
            box.discard_all()
            raise FatalError(
                f"{changed[0]} changed while it was read ({len(changed)} files did)", "run again when it is still"
            )

    def run(self, context: Context, part: str, task: Any) -> dict[str, Any]:
        task = ReadTask(task[0], [Piece(Split(*p[0]), p[1]) for p in task[1]], task[2])
        source = context.config.sources[task.source]
        items = TaskItems(source, make_reader(source), task.pieces, _marker(context, part))
        writer = PartitionWriter(context, self.name, part, source, refers(context.config, task))
        with writer:
            while (start := writer.begin()) is not None:
                for place, piece, item in items.read(start):
                    writer.take(place, piece, item)
                    if writer.moved:
                        break
                else:
                    writer.end(items.stopped)
        _marker(context, part).unlink(missing_ok=True)
        return writer.close()

    def at_hand(self, context: Context, part: str) -> str:
        try:
            path = _marker(context, part).read_bytes().partition(b"\n")[0]
        except OSError:
            return ""
        return f"reading {os.fsdecode(path)}"


def _marker(context: Context, part: str) -> Path:
    """Holds the path of the file that a task reads: who it was when a library takes the process down."""
    return context.box("documents").folder / f".reading-{part}"


class Place(NamedTuple):
    """Where an item stands in a task, and all that a restart must know to begin with it."""

    piece: int  # index in the task
    items: int  # of the piece that come before it
    documents: int  # what `max_documents` and `max_bytes` have counted before it
    nbytes: int


class TaskItems:
    """What a task's reader gives, up to the source's limits.

    Args:
        marker: file that is told which file is read.
    """

    def __init__(self, source: SourceBase, reader: Reader, pieces: list[Piece], marker: Path):
        self._source, self._reader, self._pieces, self._marker = source, reader, pieces, marker
        self.stopped: str | None = None  # the limit that left something out

    def read(self, start: Place) -> Iterator[tuple[Place, Piece, Record | Reject | Skip]]:
        """The items from `start` on."""
        most, most_bytes = self._source.max_documents, self._source.max_bytes
        documents, nbytes = start.documents, start.nbytes
        with open_fresh(self._marker) as marker:  # never flushed: it is there when the process is not
            for number, piece in enumerate(self._pieces[start.piece :], start.piece):
                skip = start.items if number == start.piece else 0
                marker.seek(0)
                marker.write(os.fsencode(piece.split.path) + b"\n")
                for items, item in enumerate(guard.read(self._reader, piece.split, skip), skip):
                    if most is not None and documents >= most:
                        self.stopped = "max_documents"
                        return
                    if most_bytes is not None and nbytes >= most_bytes:
                        self.stopped = "max_bytes"
                        return
                    yield Place(number, items, documents, nbytes), piece, item
                    if isinstance(item, Record) and (most is not None or most_bytes is not None):
                        documents += 1
                        nbytes += len(item.text.encode("utf-8", "surrogatepass"))


class _Waiting(NamedTuple):
    """An item between the reader and its partition."""

    place: Place
    piece: Piece
    item: Record | Reject | Skip
    text: bytes  # of a record: normalised


class Counts:
    """What became of the items of one partition, for its receipt."""

    def __init__(self) -> None:
        self.kinds: Counter[str] = Counter()  # rejects by kind of reason
        self.first: dict[str, Any] | None = None
        self.skipped: Counter[str] = Counter()
        self.pii: Counter[str] = Counter()
        self.samples: dict[str, list[str]] = {}
        self.markup: Counter[str] = Counter()
        self.evidence: dict[str, Counter[str]] = {}  # path → what told the charset
        self.passed_bytes = 0
        # path → documents, rejects, skipped records, and of the first reject row, offset and reason
        self.files: dict[str, list[Any]] = {}
        self.empty: dict[str, list[str]] = {}
        self.incomplete: dict[str, None] = {}
        self.stopped: str | None = None

    def document(self, path: str, evidence: str | None = None) -> None:
        self._of(path)[0] += 1
        if evidence is not None:
            self.evidence.setdefault(path, Counter())[evidence] += 1

    def _of(self, path: str) -> list[Any]:
        counts = self.files.get(path)
        if counts is None:
            counts = self.files[path] = [0, 0, 0, None]
        return counts

    def reject(self, reject: Reject, path: str) -> None:
        add_kinds(self.kinds, {kind_of(reject.reason): 1})
        self.first = self.first or first_reject(reject, path)
        counts = self._of(path)
        counts[1] += 1
        if counts[3] is None:
            counts[3] = [reject.row, reject.offset, reject.reason]
        self.passed_bytes += reject.passed_bytes
        if reject.cut:
            self.incomplete[path] = None

    def skip(self, skip: Skip, path: str, source: str) -> None:
        if skip.reason == "empty_file":
            self.empty.setdefault(source, []).append(path)
        self._of(path)[2] += 1
        self.skipped[f"{source}:{skip.reason}"] += 1

    def personal(self, spans: Sequence[Any], text: bytes) -> None:
        """Count the findings in a text, and keep the shape of the first few of each type, to show what was taken for what."""
        from gpu_curate.text.pii.spans import shape

        self.pii.update(span.kind for span in spans)
        for span in spans:
            seen = self.samples.setdefault(span.kind, [])
            if len(seen) < 3:
                seen.append(shape(text[span.start : span.stop].decode("utf-8")))

    def facts(self, source: str) -> dict[str, Any]:
        paths = list(self.files)
        shared = {*paths[:1], *paths[-1:]}  # other partitions may hold more of them
        told = set([p for p in paths if self.files[p][1]][:_MAX_FILES])
        rejected = sum(self.kinds.values())
        return {
            "rejected": {source: rejected} if rejected else {},
            "reject_reasons": dict(self.kinds),
            "first_reject": self.first,
            "passed_bytes": {source: self.passed_bytes} if self.passed_bytes else {},
            "charset_evidence": {source: self.evidence} if self.evidence else {},
            "skipped": dict(self.skipped),
            "pii": dict(self.pii),
            "pii_samples": self.samples,
            "markup": dict(self.markup),
            "incomplete": sorted(self.incomplete),
            "empty_files": self.empty,
            # of the files with rejects, and of those that other partitions share
            "by_file": {p: self.files[p] for p in paths if p in shared or p in told},
            "stopped": self.stopped,
        }


class PartitionWriter:
    """Puts the items of one read task into partitions, each with a receipt as soon as it is whole.

    The first partition has the task's name; more text than `partition_bytes` goes on in `NAME-001`, `NAME-002`, ... A receipt
    counts what became of the items from its partition's first on, and says at which place the next one begins; so a task
    that was killed goes on there. The receipt of the first appears last and lists the others: it says that the task is
    whole. Until then it is an open one.

    Args:
        by_reference: the partitions refer to the source's texts.
    """

    def __init__(self, context: Context, box: str, part: str, source: SourceBase, by_reference: bool = False):
        from gpu_curate.sources.parquet import scalar_text
        from gpu_curate.text.normalize import normalizer

        config = context.config
        self._scalar_text = scalar_text
        self._names = source.kept
        self._not_own = {*SCHEMA.names, *source.kept.values()}  # columns of a record that keep their name nowhere
        self._box, self._part, self._source = context.box(box), part, source
        self._rejects_box = context.box("rejects") if context.has("rejects") else None
        self._limit, self._strict = config.run.partition_bytes, config.run.strict
        self._origin_of = source if by_reference else None
        self._normalize = normalizer(config.normalize)
        pii = config.pii
        self._pii: Any = None
        if any(v in ("count", "replace") for v in pii.model_dump().values()):
            from gpu_curate.text.pii import PiiScanner

            self._pii = PiiScanner(pii)
        self._waiting: list[_Waiting] = []
        self._waiting_bytes = 0
        self._written: list[str] = []  # partitions that are whole
        self._start: Place | None = Place(0, 0, 0, 0)
        self.moved = False  # the partition that comes next is there already: nothing more is taken before `begin`
        self._stack = contextlib.ExitStack()
        self._reset()
        if self._box.open_receipt(part) is not None:
            self._written.append(part)
            self._catch_up()

    def __enter__(self) -> PartitionWriter:
        return self

    def __exit__(self, kind: Any, value: Any, traceback: Any) -> None:
        self._stack.__exit__(kind, value, traceback)

    def _reset(self) -> None:
        self._rows: dict[str, list[Any]] = {name: [] for name in SCHEMA.names}
        self._kept: dict[str, list[str | None]] = {}
        self._origin = None if self._origin_of is None else OriginWriter(self._origin_of)
        self._bytes = 0
        self._counts = Counts()
        self._markup_sample: list[tuple[str, str]] = []
        self._sampled_chars = 0
        self._rejects: Path | None = None
        self._open_rejects: Any = None
        self._watch = Stopwatch()

    def _name(self, number: int) -> str:
        """Of the partition that `number` others of the task precede."""
        return self._part if number == 0 else f"{self._part}-{number:03d}"

    def begin(self) -> Place | None:
        """Where reading (re)starts; None: all is written."""
        self.moved = False
        return self._start

    def _catch_up(self) -> None:
        """Pass over the partitions that are there behind the last one written."""
        receipt = self._box.open_receipt(self._written[-1])
        while receipt is not None:
            self._start = receipt["next"] and Place(*receipt["next"])
            if self._start is None:
                return
            receipt = self._box.receipt(self._name(len(self._written)))
            if receipt is not None:
                self._written.append(receipt["part"])

    def take(self, place: Place, piece: Piece, item: Record | Reject | Skip) -> None:
        """Put the next item where it belongs."""
        text = b""
        if isinstance(item, Record):
            try:
                text = self._normalize(item.text)
            except BaseException as e:
                item = Reject(item.row, None, f"normalize: {guard.refusal(e)}", guard.head(item.text))
        if self._pii is None or not (self._waiting or isinstance(item, Record)):
            self._settle(place, piece, item, text)
            return
        self._waiting.append(_Waiting(place, piece, item, text))
        self._waiting_bytes += len(text)
        if self._waiting_bytes >= _SCRUB_BYTES or len(self._waiting) >= _SCRUB_ITEMS:
            self._scrub()

    def _scrub(self) -> None:
        """Settle what waits, without personal data."""
        waiting, self._waiting, self._waiting_bytes = self._waiting, [], 0
        records = [n for n, w in enumerate(waiting) if isinstance(w.item, Record)]
        scrubbed = self._scrubbed([waiting[n].text for n in records])
        texts = dict(zip(records, scrubbed, strict=True))
        for number, entry in enumerate(waiting):
            found = texts.get(number)
            if isinstance(found, str):
                reject = Reject(entry.item.row, None, f"pii: {found}", guard.head(entry.text))  # type: ignore[union-attr]
                self._settle(entry.place, entry.piece, reject, b"")
            elif found is not None:
                self._settle(entry.place, entry.piece, entry.item, found[0], found[1], entry.text)
            else:
                self._settle(*entry)
            if self.moved:
                return

    def _scrubbed(self, texts: list[bytes]) -> list[tuple[bytes, list[Any]] | str]:
        """Of each text: itself without personal data and the spans of it, or why the scanner could not take it."""
        try:
            done = self._pii.scrub_all(texts)
            return [(text, done.spans.get(i, [])) for i, text in enumerate(done.texts)]
        except BaseException as e:
            reason = guard.refusal(e)
        if len(texts) == 1:
            return [reason]
        return [one for text in texts for one in self._scrubbed([text])]

    def _settle(
        self,
        place: Place,
        piece: Piece,
        item: Record | Reject | Skip,
        text: bytes,
        spans: Sequence[Any] = (),
        original: bytes = b"",
    ) -> None:
        """Count an item, and put a record into the partition."""
        if isinstance(item, Reject):
            self._reject(item, piece)
            return
        path = piece.split.path
        if isinstance(item, Skip):
            self._counts.skip(item, path, self._source.name)
            return
        try:
            if len(text) > MAX_TEXT_BYTES:
                raise InputError(f"a text of {len(text)} bytes: at most {MAX_TEXT_BYTES} fit")
            number = doc_id(piece.file_number, item.row)
            group, columns = self._values(item.columns) if item.columns else (None, {})
            markup = None if item.markup is None else (item.markup, text.decode("utf-8"))
        except BaseException as e:
            self._reject(Reject(item.row, None, guard.refusal(e), guard.head(text)), piece)
            return
        if self._bytes + len(text) > self._limit and self._rows["doc_id"]:
            self._flush(place)
            if self.moved:  # this one is there, too
                return
        rows = self._rows
        rows["doc_id"].append(number)
        if self._origin is None:
            rows["text"].append(text)
        else:
            self._origin.add(text, piece.split)
        rows["source"].append(self._source.name)
        rows["path"].append(path)
        rows["row"].append(item.row)
        rows["group"].append(group)
        if columns.keys() != self._kept.keys():
            for name in columns:
                if name not in self._kept:
                    self._kept[name] = [None] * (len(rows["doc_id"]) - 1)
        for name, values in self._kept.items():
            values.append(columns.get(name))
        self._bytes += len(text)
        if markup is not None:
            self._sample(*markup)
        self._counts.document(path, item.charset_evidence)
        if spans:
            self._counts.personal(spans, original)

    def _values(self, columns: Mapping[str, Any]) -> tuple[str | None, dict[str, str | None]]:
        """Group and kept columns of a document, as text."""
        kept = {name: self._scalar_text(columns.get(column)) for name, column in self._names.items()}
        for name, value in columns.items():
            if name not in self._not_own and name not in kept:
                kept[name] = self._scalar_text(value)
        group = self._source.group_column
        return self._scalar_text(columns.get(group)) if group else None, kept

    def _sample(self, markup: str, text: str) -> None:
        self._counts.markup.update(markup_chars=len(markup), text_chars=len(text))
        if not self._written and self._sampled_chars < MARKUP_SAMPLE_CHARS:
            self._markup_sample.append((markup, text))
            self._sampled_chars += len(markup)

    def _reject(self, reject: Reject, piece: Piece) -> None:
        path = piece.split.path
        if self._strict:
            raise InputError(
                f"{place_of(path, reject.row, reject.offset)}: {reject.reason}",
                "run.strict is on; without it the record goes to rejects",
            )
        if self._open_rejects is None and self._rejects_box is not None:
            self._rejects = self._rejects_box.path(self._name(len(self._written)), ".jsonl")
            temp = self._stack.enter_context(publish(self._rejects))
            self._open_rejects = self._stack.enter_context(temp.open("w", encoding="utf-8"))
        if self._open_rejects is not None:
            write_reject(self._open_rejects, self._source.name, path, reject)
        self._counts.reject(reject, path)

    def _flush(self, place: Place | None) -> None:
        """Write the partition and say where the next one begins; None: nowhere."""
        number = len(self._written)
        if number > 999:
            raise FatalError(f"partition {self._part} holds more than 1,000 partitions' worth of text")
        name, first = self._name(number), number == 0
        rows = self._rows
        columns = {f.name: pa.array(rows[f.name], f.type) for f in SCHEMA}  # text from its UTF-8
        metadata = None
        if self._origin is not None:
            columns["text"], metadata = self._origin.column(), self._origin.metadata()
        own = {name: pa.array(values, pa.string()) for name, values in self._kept.items()}
        table = pa.table({**columns, **dict(sorted(own.items()))}, metadata=metadata)
        path = self._box.path(name, ".parquet")
        write_table(path, table, use_dictionary=["source", "path", "group"], row_group_size=16384)
        files = [path]
        if self._markup_sample:
            files.append(self._box.path(name, MARKUP_SUFFIX))
            write_json(files[-1], self._markup_sample)
        self._stack.close()  # rejects/ appear
        files += [self._rejects] if self._rejects else []
        facts = {
            "documents": len(rows["doc_id"]),
            "bytes": self._bytes,
            "sources": dict(Counter(rows["source"])),
            **self._counts.facts(self._source.name),
            "next": place,
            "backend": "cpu",
            **self._watch.facts(),
        }
        commit = self._box.commit_open if first and place is not None else self._box.commit
        commit(name, files, {**facts, "more": []} if first else facts)
        self._written.append(name)
        self._reset()
        if place is None:
            self._start = None
        elif self._box.receipt(self._name(number + 1)) is not None:
            self.moved = True
            self._catch_up()

    def end(self, stopped: str | None = None) -> None:
        """Write what is left. `stopped`: the limit of the source that left something out."""
        self._scrub()
        if not self.moved:
            self._counts.stopped = stopped
            self._flush(None)

    def close(self) -> dict[str, Any]:
        """Let the task be seen. Returns: the receipt of its first partition."""
        return self._box.promote(self._part, {"more": self._written[1:]})
