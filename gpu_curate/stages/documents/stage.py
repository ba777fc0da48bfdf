"""Documents: read the sources, normalise, give every document its id, cut partitions by bytes."""

from __future__ import annotations

import os
import time
import unicodedata
from pathlib import Path
from typing import Any, ClassVar

from gpu_curate.config import Config, WarcSource
from gpu_curate.errors import ConfigError, FatalError, UnreachableError
from gpu_curate.privacy import identity
from gpu_curate.sources import Split, footers
from gpu_curate.stages import Context, Stage
from gpu_curate.stages.documents.listing import inventory, listings, make_reader
from gpu_curate.stages.documents.reading import TaskItems, marker_path
from gpu_curate.stages.documents.schema import FILES, PASSED_OVER
from gpu_curate.stages.documents.tasks import Piece, ReadTask, keep_tasks, kept_tasks, read_tasks, refers
from gpu_curate.stages.documents.writing import PartitionWriter
from gpu_curate.stages.partition_text import by_reference
from gpu_curate.store.files import file_hash, read_json, write_json

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
        tasks = kept_tasks(folder, context.config, files)
        if tasks is not None:
            footers.close()  # the check of the columns may have asked
        else:
            rows: dict[str, int] = {}
            tasks = read_tasks(context.config, files, rows)
            keep_tasks(folder, context.config, files, rows, tasks)
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
