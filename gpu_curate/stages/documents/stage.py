"""Documents: read the sources, normalise, give every document its id, cut partitions by bytes."""

from __future__ import annotations

import os
import unicodedata
from typing import Any, ClassVar

from gpu_curate.config import Config
from gpu_curate.errors import ConfigError, FatalError, UnreachableError
from gpu_curate.privacy import identity
from gpu_curate.sources import Split
from gpu_curate.stages import Context, Stage
from gpu_curate.stages.documents.beginnings import take_over
from gpu_curate.stages.documents.corpus import LIBRARIES, Corpus, plain_identity, survey
from gpu_curate.stages.documents.listing import inventory, make_reader
from gpu_curate.stages.documents.reading import TaskItems, marker_path
from gpu_curate.stages.documents.schema import PASSED_OVER
from gpu_curate.stages.documents.tasks import Piece, ReadTask, refers
from gpu_curate.stages.documents.writing import PartitionWriter
from gpu_curate.stages.partition_text import by_reference
from gpu_curate.store.files import write_json
from gpu_curate.store.fingerprint import versions
from gpu_curate.store.snapshot import snapshot_path, write_snapshot

_CLOCK_S = 60.0  # clocks of machines that share a run directory may differ by so much


class Documents(Stage):
    """Read, normalise, scrub and number every document.

    Reads: the sources.  Writes: documents/ (doc_id, source, path, row, group, kept columns), texts/ (text) and rejects/.
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

    def __init__(self, corpus: Corpus | None = None):
        self.corpus = corpus

    def __getstate__(self) -> dict[str, Any]:
        return {"corpus": None}  # a task is told its own part

    def settings(self, config: Config) -> Any:
        dropped = {"weight", "tokens", "storage_options", "follow_links", "hidden_files"}  # files are among the inputs
        if config.pii.phone != "off":
            from gpu_curate.text.pii import PiiScanner

            PiiScanner(config.pii)  # fails now if it lacks a library
        return {
            **self.common(config),
            "sources": [
                {**s.model_dump(exclude=dropped), "path": [identity(p) for p in s.paths]} for s in config.sources
            ],
            "by_reference": [s.name for s in config.sources if by_reference(config, s)],
        }

    def common(self, config: Config) -> Any:
        """The settings that bear on every partition, whatever its source."""
        return {
            "normalize": config.normalize and config.normalize.model_dump(),
            "pii": config.pii.model_dump(),
            "partition_bytes": config.run.partition_bytes,
            "strict": config.run.strict,
            # the normal forms' tables
            "unicode": unicodedata.unidata_version if config.normalize is not None else None,
            "libraries": versions(("phonenumbers",) if config.pii.phone != "off" else ()),
        }

    def libraries(self, config: Config) -> tuple[str, ...]:
        used = {d for s in config.sources for d in LIBRARIES.get(s.type, ())}
        if any(by_reference(config, s) for s in config.sources):
            used.add("xxhash")
        return tuple(sorted(used))

    def inputs(self, config: Config) -> Any:
        """Identity of every input file, for the fingerprint at the root."""
        return plain_identity(config) if self.corpus is None else self.corpus.identity()

    def plan(self, context: Context) -> dict[str, Any]:
        folder = context.box(self.name).folder
        if self.corpus is None:  # nobody planned the run: a box of its own
            self.corpus = survey(context.config, folder)
            self.corpus.ledger.write(folder)
            nothing: dict[str, Any] = {"boxes": {}, "following": [], "shared": []}
            write_snapshot(snapshot_path(context.run, ""), {**self.corpus.facts(context.config), **nothing})
        passed = {s.name: l.passed_over.facts() for s, l in zip(context.config.sources, self.corpus.found, strict=True)}
        write_json(folder / PASSED_OVER, {name: facts for name, facts in passed.items() if facts})
        take_over(context, self.corpus)
        return dict(self.corpus.tasks)

    def finish(self, context: Context) -> None:
        """Raises: FatalError: a file changed while it was read; what was read is forgotten. Or nobody can tell: it stays."""
        box, corpus = context.box(self.name), self.corpus
        assert corpus is not None
        if box.newest_s() < corpus.listed_s - _CLOCK_S:
            return  # nothing was read since the files were listed: every partition is of an earlier run
        try:
            now = {(f.path, f.relative): (f.size, f.identity) for own in inventory(context.config) for f in own}
        except UnreachableError as e:
            raise FatalError(
                f"all is read, but did a file change meanwhile? {e.message}", "run again: it goes on"
            ) from e
        except ConfigError:
            now = {}  # all files of a source are gone
        read = [k for own in corpus.files for k in own]
        changed = [k for k in read if now.get((k.file.path, k.file.relative)) != (k.file.size, k.file.identity)]
        if changed:
            tasks_of = corpus.tasks_of()
            box.discard_tasks(name for k in changed for name in tasks_of.get(k.number, []))
            raise FatalError(
                f"{changed[0].file.path} changed while it was read ({len(changed)} files did)",
                "run again when it is still",
            )

    def run(self, context: Context, part: str, task: Any) -> dict[str, Any]:
        task = ReadTask(task[0], [Piece(Split(*p[0]), *p[1:]) for p in task[1]], task[2])
        source = context.config.sources[task.source]
        items = TaskItems(source, make_reader(source), task.pieces, marker_path(context, part))
        writer = PartitionWriter(context, self.name, part, source, refers(context.config, task))
        with writer:
            while (start := writer.begin()) is not None:
                for place, piece, item in items.read(start):
                    writer.take(place, piece, item)
                    if writer.moved:
                        break
                else:
                    writer.end(items.stopped)
        marker_path(context, part).unlink(missing_ok=True)
        return writer.close()

    def at_hand(self, context: Context, part: str) -> str:
        try:
            path = marker_path(context, part).read_bytes().partition(b"\n")[0]
        except OSError:
            return ""
        return f"reading {os.fsdecode(path)}"
