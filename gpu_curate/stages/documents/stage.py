"""Documents: read the sources, normalise, give every document its id, cut partitions by bytes."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Mapping
from typing import Any, ClassVar, cast

from gpu_curate.errors import ConfigError, FatalError, UnreachableError
from gpu_curate.privacy import identity
from gpu_curate.sources import ColumnReader, Reader, Split
from gpu_curate.stages import Boxes, Stage
from gpu_curate.stages.documents.beginnings import share_texts, take_over
from gpu_curate.stages.documents.corpus import LIBRARIES, Corpus, plain_identity, survey
from gpu_curate.stages.documents.counts import DocumentCounts
from gpu_curate.stages.documents.intake import Intake
from gpu_curate.stages.documents.listing import inventory, make_reader, source_settings
from gpu_curate.stages.documents.reading import Block, TaskItems, marker_path
from gpu_curate.stages.documents.schema import PASSED_OVER
from gpu_curate.stages.documents.tasks import Piece, ReadTask, refers
from gpu_curate.stages.documents.writing import PartitionWriter
from gpu_curate.stages.part import Part
from gpu_curate.store.files import write_json
from gpu_curate.store.fingerprint import versions
from gpu_curate.store.receipts import Counts, Receipt
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

    counts: ClassVar[type[Counts]] = DocumentCounts

    def __init__(self, intake: Intake, corpus: Corpus | None = None):
        """
        Args:
            corpus: what is read; None: nobody has looked.
        """
        self.intake, self.corpus = intake, corpus

    def __getstate__(self) -> dict[str, Any]:
        return {"intake": self.intake, "corpus": None}  # a task is told its own part

    def settings(self) -> Any:
        intake = self.intake
        dropped = {"weight", "tokens", "storage_options", "follow_links", "hidden_files"}  # files are among the inputs
        if intake.pii.phone != "off":
            from gpu_curate.text.pii import PiiScanner

            PiiScanner(intake.pii)  # fails now if it lacks a library
        return {
            **self.common(),
            "sources": [
                {**source_settings(s, dropped), "path": [identity(p) for p in s.paths]} for s in intake.sources
            ],
            "by_reference": [s.name for s in intake.sources if intake.refers(s)],
        }

    def common(self) -> dict[str, Any]:
        """The settings that bear on every partition, whatever its source."""
        intake = self.intake
        return {
            "normalize": intake.normalize and intake.normalize.model_dump(),
            "pii": intake.pii.model_dump(),
            "partition_bytes": intake.partition_bytes,
            "strict": intake.strict,
            # the normal forms' tables
            "unicode": unicodedata.unidata_version if intake.normalize is not None else None,
            "libraries": versions(("phonenumbers",) if intake.pii.phone != "off" else ()),
        }

    def libraries(self) -> tuple[str, ...]:
        sources = self.intake.sources
        used = {d for s in sources for d in LIBRARIES.get(s.type, ())}  # type: ignore[attr-defined]  # every section but their base has one
        if any(map(self.intake.refers, sources)):
            used.add("xxhash")
        return tuple(sorted(used))

    def outside(self) -> Any:
        """Identity of every input file, for the fingerprint at the root."""
        return plain_identity(self.intake) if self.corpus is None else self.corpus.identity()

    def plan(self, boxes: Boxes) -> Mapping[str, ReadTask]:
        folder = boxes.box(self.name).folder
        if self.corpus is None:  # nobody planned the run: a box of its own
            self.corpus = survey(self.intake, folder)
            self.corpus.ledger.write(folder)
            nothing: dict[str, Any] = {"boxes": {}, "following": [], "shared": []}
            write_snapshot(snapshot_path(boxes.run, ""), {**self.corpus.facts(self.intake), **nothing})
        sources = self.intake.sources
        passed = {s.name: l.passed_over.facts() for s, l in zip(sources, self.corpus.found, strict=True)}
        write_json(folder / PASSED_OVER, {name: facts for name, facts in passed.items() if facts})
        take_over(boxes, self.intake, self.corpus)
        return dict(self.corpus.tasks)

    def finish(self, boxes: Boxes) -> None:
        """Raises: FatalError: a file changed while it was read; what was read is forgotten. Or nobody can tell: it stays."""
        box, corpus = boxes.box(self.name), self.corpus
        assert corpus is not None
        if box.newest_s() < corpus.listed_s - _CLOCK_S:
            return  # nothing was read since the files were listed: every partition is of an earlier run
        try:
            now = {(f.path, f.relative): (f.size, f.identity) for own in inventory(self.intake.sources) for f in own}
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
        share_texts(box, corpus)

    def run(self, part: Part) -> Receipt[Counts]:
        task = ReadTask(part.task[0], [Piece(Split(*p[0]), *p[1:]) for p in part.task[1]], part.task[2])
        source = self.intake.sources[task.source]
        marker = marker_path(part.box.folder, part.name)
        reader = make_reader(source)
        items = TaskItems(source, reader, task.pieces, marker)
        by_column = _by_column(reader)
        writer = PartitionWriter(part, self.intake, source, refers(self.intake, task))
        with writer:
            while (start := writer.begin()) is not None:
                for item in items.read(start) if by_column is None else items.blocks(start, by_column):
                    if not isinstance(item, Block):
                        writer.take(*item)
                    elif by_column is not None:
                        writer.take_block(item, by_column)
                    if writer.moved:
                        break
                else:
                    writer.end(items.stopped)
        marker.unlink(missing_ok=True)
        return writer.close()

    def at_hand(self, boxes: Boxes, part: str) -> str:
        try:
            path = marker_path(boxes.box(self.name).folder, part).read_bytes().partition(b"\n")[0]
        except OSError:
            return ""
        return f"reading {os.fsdecode(path)}"


def _by_column(reader: Reader) -> ColumnReader | None:
    """The reader if it gives many rows at once, and the same ones: who overrides `read` alone means what it says."""
    owner = {
        name: next((c for c in type(reader).__mro__ if name in vars(c)), None) for name in ("read", "read_batches")
    }
    same = owner["read_batches"] is not None and owner["read_batches"] is owner["read"]
    return cast(ColumnReader, reader) if same else None
