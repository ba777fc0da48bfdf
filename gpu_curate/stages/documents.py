"""Documents: read the sources, normalise, give every document its id, cut partitions by bytes."""

from __future__ import annotations

import contextlib
import json
import time
import unicodedata
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import pyarrow as pa

from gpu_curate.config import Config, ParquetSource, SourceBase, WarcSource
from gpu_curate.document import MAX_FILES, doc_id
from gpu_curate.document_text import OriginWriter, by_reference, can_refer
from gpu_curate.errors import MAX_ATTEMPTS, ConfigError, FatalError, InputError, RetryableError, UnreachableError
from gpu_curate.sources import Reader, Record, Reject, Skip, Split
from gpu_curate.sources.files import File, find
from gpu_curate.stages import Context, Stage, Stopwatch
from gpu_curate.storage import file_hash, publish, read_json, write_json, write_table

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
FILES = ".files.json"  # in documents/: file number → source, path, size
MARKUP_SUFFIX = ".markup.json"  # [markup, text] of the first documents of a partition that were extracted from markup
MARKUP_SAMPLE_CHARS = 1 << 16
_SCRUB_BYTES = 1 << 18  # texts that are searched for personal data in one call; four times as much is no faster


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


def find_files(source: SourceBase, reader: Reader) -> list[File]:
    """The files of a source in order. Raises: ConfigError."""
    own = getattr(reader, "files", None)  # a data set by name knows its files itself
    if own is not None:
        return own()
    return find(source.paths, reader.suffixes, source.storage_options, f"source {source.name}: path")  # type: ignore[attr-defined]


def inventory(config: Config) -> list[list[File]]:
    """The files of every source. Raises: ConfigError: one is missing, or there are too many."""
    files = [find_files(s, make_reader(s)) for s in config.sources]
    if sum(map(len, files)) > MAX_FILES:
        raise ConfigError(
            f"{sum(map(len, files))} input files; a doc_id holds {MAX_FILES}", "pack them into fewer files"
        )
    return files


def read_tasks(config: Config, files: list[list[File]]) -> list[ReadTask]:
    """Cut every source into tasks of about `partition_bytes` of text. Reads headers and footers at most.

    A source with `max_documents` or `max_bytes` is one task, read in order until the limit.
    """
    limit = config.run.partition_bytes
    tasks: list[ReadTask] = []
    file_number = 0
    for index, (source, own) in enumerate(zip(config.sources, files, strict=True)):
        reader = make_reader(source)
        with ThreadPoolExecutor(16) as pool:  # footers over a network wait, they do not compute
            splits = list(pool.map(lambda f, r=reader: _splits(r, f, limit), own))
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


def _splits(reader: Reader, file: File, max_bytes: int) -> list[Split]:
    """`reader.splits`, tried again like a task when the network fails. Raises: FatalError: it goes on failing."""
    for attempt in range(MAX_ATTEMPTS):
        if attempt:
            time.sleep(2.0 ** (attempt - 1))
        try:
            return reader.splits(file.path, file.size, max_bytes)
        except RetryableError as e:
            error = e
    raise FatalError(f"{error.message} ({MAX_ATTEMPTS} times)", "run again when the server answers") from error


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
        "document_text",
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
        dropped = {"weight", "tokens", "storage_options"}
        if config.pii.phone != "off":
            from gpu_curate.text.pii import PiiScanner

            PiiScanner(config.pii)  # fails now if it lacks a library
        return {
            "sources": [s.model_dump(exclude=dropped) for s in config.sources],
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
        from gpu_curate.fingerprint import content_identity

        files = [
            [[f.relative, f.size, content_identity(f, s) if s.content_fingerprint else f.identity] for f in own]
            for s, own in zip(config.sources, inventory(config), strict=True)
        ]
        lists = [
            p for s in config.sources if isinstance(s, WarcSource) for p in (*s.url_blocklist, *s.domain_blocklist)
        ]
        return files, [file_hash(Path(p)) for p in lists if Path(p).is_file()]

    def plan(self, context: Context) -> dict[str, Any]:
        files = inventory(context.config)
        named = zip(context.config.sources, files, strict=True)
        listing = [
            {"source": s.name, "path": f.path, "bytes": f.size, "identity": f.identity} for s, own in named for f in own
        ]
        write_json(context.box(self.name).folder / FILES, listing)  # file number → file
        tasks = read_tasks(context.config, files)
        return {f"{number:06d}": task for number, task in enumerate(tasks)}

    def finish(self, context: Context) -> None:
        """Raises: FatalError: a file changed while it was read; what was read is forgotten. Or nobody can tell: it stays."""
        box = context.box(self.name)
        before = read_json(box.folder / FILES)
        try:
            now = {f.path: (f.size, f.identity) for own in inventory(context.config) for f in own}
        except UnreachableError as e:
            raise FatalError(
                f"all is read, but did a file change meanwhile? {e.message}", "run again: it goes on"
            ) from e
        except ConfigError:
            now = {}  # all files of a source are gone
        changed = [f["path"] for f in before if now.get(f["path"]) != (f["bytes"], f["identity"])]
        if changed:
            for part in box.parts():
                box.discard(part)
            raise FatalError(
                f"{changed[0]} changed while it was read ({len(changed)} files did)", "run again when it is still"
            )

    def run(self, context: Context, part: str, task: Any) -> dict[str, Any]:
        task = ReadTask(task[0], [Piece(Split(*p[0]), p[1]) for p in task[1]], task[2])
        source = context.config.sources[task.source]
        writer = PartitionWriter(context, self.name, part, source if refers(context.config, task) else None)
        with writer:
            for piece, item in _records(source, make_reader(source), task.pieces):
                if isinstance(item, Record):
                    writer.add(item, piece, source)
                elif isinstance(item, Reject):
                    writer.reject(item, piece, source)
                else:
                    writer.skip(item, piece, source)
        return writer.close()


def _records(source: SourceBase, reader: Reader, pieces: list[Piece]) -> Iterator[tuple[Piece, Record | Reject | Skip]]:
    """The records of a task up to the source's limits."""
    limited = source.max_documents is not None or source.max_bytes is not None
    documents = nbytes = 0
    for piece in pieces:
        for item in reader.read(piece.split):
            if source.max_documents is not None and documents >= source.max_documents:
                return
            if source.max_bytes is not None and nbytes >= source.max_bytes:
                return
            yield piece, item
            if isinstance(item, Record) and limited:
                documents += 1
                nbytes += len(item.text.encode("utf-8", "surrogatepass"))


class PartitionWriter:
    """Collects records of one read task and writes them as one or more partitions.

    The first partition has the task's name; more text than `partition_bytes` goes on in `NAME-001`, `NAME-002`, ... The
    receipt of the first is committed last and lists the others, so that a task is whole or is made again.

    Args:
        origin_of: the source whose texts the partitions refer to; None: they hold the texts.
    """

    def __init__(self, context: Context, box: str, part: str, origin_of: SourceBase | None = None):
        from gpu_curate.text.normalize import normalizer

        config = context.config
        self._box, self._part = context.box(box), part
        self._rejects_box = context.box("rejects") if context.has("rejects") else None
        self._limit, self._strict = config.run.partition_bytes, config.run.strict
        self._origin_of = origin_of
        self._normalize = normalizer(config.normalize)
        pii = config.pii
        self._pii: Any = None
        if any(v in ("count", "replace") for v in pii.model_dump().values()):
            from gpu_curate.text.pii import PiiScanner

            self._pii = PiiScanner(pii)
        self._unscrubbed: list[tuple[bytes, Record, Piece, SourceBase]] = []
        self._unscrubbed_bytes = 0
        self._samples: dict[str, list[str]] = {}
        self._watch = Stopwatch()
        self._written: list[tuple[str, list[Path], dict[str, Any]]] = []
        self._facts = {"rejected": Counter(), "skipped": Counter(), "pii": Counter()}
        self._markup: Counter[str] = Counter()
        self._markup_sample: list[tuple[str, str]] = []
        self._sampled_chars = 0
        self._files: dict[str, Counter[str]] = {}  # per file: what became of its records
        self._empty: dict[str, list[str]] = {}  # per source
        self._reasons: dict[str, str] = {}  # per file: why its first reject was one
        self._incomplete: list[str] = []
        self._rejects: Path | None = None
        self._open_rejects: Any = None
        self._stack = contextlib.ExitStack()
        self._reset()

    def __enter__(self) -> PartitionWriter:
        return self

    def __exit__(self, kind: Any, value: Any, traceback: Any) -> None:
        self._stack.__exit__(kind, value, traceback)

    def _reset(self) -> None:
        self._rows: dict[str, list[Any]] = {name: [] for name in SCHEMA.names}
        self._kept: dict[str, list[str | None]] = {}
        self._origin = None if self._origin_of is None else OriginWriter(self._origin_of)
        self._bytes = 0

    def add(self, record: Record, piece: Piece, source: SourceBase) -> None:
        text = self._normalize(record.text)
        if self._pii is None:
            self._append(text, record, piece, source)
            return
        self._unscrubbed.append((text, record, piece, source))
        self._unscrubbed_bytes += len(text)
        if self._unscrubbed_bytes >= _SCRUB_BYTES:
            self._scrub()

    def _scrub(self) -> None:
        """Append the documents that wait for it, without personal data."""
        waiting, self._unscrubbed, self._unscrubbed_bytes = self._unscrubbed, [], 0
        if not waiting:
            return
        scrubbed = self._pii.scrub_all([text for text, *_ in waiting])
        for index, spans in scrubbed.spans.items():
            self._facts["pii"].update(span.kind for span in spans)
            self._sample(waiting[index][0], spans)
        for text, (_, *rest) in zip(scrubbed.texts, waiting, strict=True):
            self._append(text, *rest)

    def _append(self, text: bytes, record: Record, piece: Piece, source: SourceBase) -> None:
        """Add a row; `text` is what the record's became."""
        from gpu_curate.sources.parquet import scalar_text

        rows = self._rows
        if rows["doc_id"] and self._bytes + len(text) > self._limit:
            self._flush()
            rows = self._rows
        if record.markup is not None:
            chars = text.decode("utf-8")
            self._markup["markup_chars"] += len(record.markup)
            self._markup["text_chars"] += len(chars)
            if self._sampled_chars < MARKUP_SAMPLE_CHARS:
                self._markup_sample.append((record.markup, chars))
                self._sampled_chars += len(record.markup)
        rows["doc_id"].append(doc_id(piece.file_number, record.row))
        if self._origin is None:
            rows["text"].append(text)
        else:
            self._origin.add(text, piece.split)
        rows["source"].append(source.name)
        rows["path"].append(piece.split.path)
        rows["row"].append(record.row)
        rows["group"].append(scalar_text(record.columns.get(source.group_column)) if source.group_column else None)
        for name in record.columns:
            if name not in self._kept and (name in source.keep_columns or name not in SCHEMA.names):
                self._kept[name] = [None] * (len(rows["doc_id"]) - 1)
        for name, values in self._kept.items():
            values.append(scalar_text(record.columns.get(name)))
        self._bytes += len(text)
        self._count(piece, "documents")

    def _sample(self, text: bytes, spans: list[Any]) -> None:
        """Keep the shape of the first few findings of each type, so that the report can show what was taken for what."""
        from gpu_curate.text.pii import shape

        for span in spans:
            seen = self._samples.setdefault(span.kind, [])
            if len(seen) < 3:
                seen.append(shape(text[span.start : span.stop].decode("utf-8")))

    def reject(self, reject: Reject, piece: Piece, source: SourceBase) -> None:
        where = f"{piece.split.path}: row {reject.row}" + ("" if reject.offset is None else f", byte {reject.offset}")
        if self._strict:
            raise InputError(f"{where}: {reject.reason}", "run.strict is on; without it the record goes to rejects")
        if self._open_rejects is None and self._rejects_box is not None:
            self._rejects = self._rejects_box.path(self._part, ".jsonl")
            temp = self._stack.enter_context(publish(self._rejects))
            self._open_rejects = self._stack.enter_context(temp.open("w", encoding="utf-8"))
        row = {
            "source": source.name,
            "path": piece.split.path,
            "row": reject.row,
            "offset": reject.offset,
            "reason": reject.reason,
            "head": reject.head.decode("utf-8", "backslashreplace"),
        }
        if self._open_rejects is not None:
            self._open_rejects.write(json.dumps(row, ensure_ascii=False) + "\n")
        self._facts["rejected"][source.name] += 1
        self._count(piece, "rejected")
        self._reasons.setdefault(piece.split.path, reject.reason)
        if any(word in reject.reason for word in ("truncated", "damaged", "corrupt")):
            self._incomplete.append(piece.split.path)

    def skip(self, skip: Skip, piece: Piece, source: SourceBase) -> None:
        if skip.reason == "empty_file":
            self._empty.setdefault(source.name, []).append(piece.split.path)
        self._facts["skipped"][f"{source.name}:{skip.reason}"] += 1

    def _count(self, piece: Piece, what: str) -> None:
        counts = self._files.get(piece.split.path)
        if counts is None:
            counts = self._files[piece.split.path] = Counter()
        counts[what] += 1

    def _flush(self) -> None:
        number = len(self._written)
        name = self._part if number == 0 else f"{self._part}-{number:03d}"
        if number > 999:
            raise FatalError(f"partition {self._part} holds more than 1,000 partitions' worth of text")
        rows = self._rows
        columns = {f.name: pa.array(rows[f.name], f.type) for f in SCHEMA}  # text from its UTF-8
        metadata = None
        if self._origin is not None:
            columns["text"], metadata = self._origin.column(), self._origin.metadata()
        own = {
            f"{n}" if n not in SCHEMA.names else f"column_{n}": pa.array(v, pa.string()) for n, v in self._kept.items()
        }
        table = pa.table({**columns, **dict(sorted(own.items()))}, metadata=metadata)
        path = self._box.path(name, ".parquet")
        sources = Counter(rows["source"])
        write_table(path, table, use_dictionary=["source", "path", "group"], row_group_size=16384)
        self._written.append(
            (name, [path], {"documents": len(rows["doc_id"]), "bytes": self._bytes, "sources": dict(sources)})
        )
        self._reset()

    def close(self) -> dict[str, Any]:
        """Write what is left and commit every receipt, the task's own last."""
        self._scrub()
        if self._rows["doc_id"] or not self._written:
            self._flush()
        silent = [p for p, c in self._files.items() if not c["documents"] and c["rejected"]]
        paths = list(self._files)
        ends = [p for p in dict.fromkeys(paths[:1] + paths[-1:]) if self._files[p]["documents"]]
        watch = self._watch.facts()
        first, files, facts = self._written[0]
        if self._markup_sample:
            sample = self._box.path(first, MARKUP_SUFFIX)
            write_json(sample, self._markup_sample)
            files = [*files, sample]
        for name, own, more in self._written[1:]:
            self._box.commit(name, own, {**more, "seconds": 0.0, "cpu_seconds": 0.0, "backend": "cpu"})
        more = [name for name, _, _ in self._written[1:]]
        return self._box.commit(
            first,
            files + ([self._rejects] if self._rejects else []),
            {
                **facts,
                "more": more,
                "rejected": dict(self._facts["rejected"]),
                "skipped": dict(self._facts["skipped"]),
                "pii": dict(self._facts["pii"]),
                "pii_samples": self._samples,
                "markup": dict(self._markup),
                "incomplete": sorted(set(self._incomplete)),
                "empty_files": self._empty,
                "unreadable": {p: self._reasons[p] for p in silent[:1000]},
                "ends": ends,  # files that gave documents, of those that other tasks may read parts of
                "backend": "cpu",
                **watch,
            },
        )
