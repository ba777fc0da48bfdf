"""Items become partitions: normalised, scrubbed, numbered, counted, written."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from gpu_curate import guard
from gpu_curate.document import MAX_FILES, MAX_ROWS, doc_id
from gpu_curate.errors import FatalError, InputError
from gpu_curate.sources import Batch, ColumnReader, Record, Reject, Skip
from gpu_curate.sources.sections import SourceBase
from gpu_curate.stages import Made
from gpu_curate.stages.documents.columns import carried, chars_of, plain_strings, prepare
from gpu_curate.stages.documents.counts import DocumentCounts, Place, Tally
from gpu_curate.stages.documents.intake import Intake
from gpu_curate.stages.documents.reading import Block
from gpu_curate.stages.documents.rows import Chunk, Rows
from gpu_curate.stages.documents.schema import MARKUP_SAMPLE_CHARS, MARKUP_SUFFIX, SCHEMA, TEXT
from gpu_curate.stages.documents.tasks import Piece
from gpu_curate.stages.part import Part
from gpu_curate.stages.partition_text import text_file
from gpu_curate.stages.rejects import place_of, write_reject
from gpu_curate.store.files import publish, write_json, write_table
from gpu_curate.store.fingerprint import digest
from gpu_curate.store.receipts import Counts, Receipt

_SCRUB_BYTES = 1 << 18  # texts that are searched for personal data in one call; four times as much is no faster
_SCRUB_ITEMS = 1 << 14
_GROUP_ROWS = 16384  # of a row group, in documents/ and texts/
ROW_BYTES = 512  # of memory that a document takes beside its text and what is kept, in this stage or a later one
_LEAST_BESIDE_BYTES = 32 << 20  # of these that a partition may have, however small `partition_bytes` is
MAX_TEXT_BYTES = (1 << 31) - 1  # of a document: int32 offsets in a string column, and in the kernels' statistics


class _Waiting(NamedTuple):
    """An item between the reader and its partition."""

    place: Place
    piece: Piece
    item: Record | Reject | Skip
    text: bytes  # of a record: normalised


def _fits(piece: Piece, batch: Batch) -> bool:
    """Whether every row has a doc_id, and no text can be too long."""
    last = batch.row + len(batch.texts)
    return last <= MAX_ROWS and piece.file_number < 2 * MAX_FILES and batch.texts.nbytes <= MAX_TEXT_BYTES


class PartitionWriter:
    """Puts the items of one read task into partitions, each with a receipt as soon as it is whole.

    The first partition has the task's name; more text than `partition_bytes` goes on in `NAME-001`, `NAME-002`, ..., and so
    do more rows and kept values than memory of that size holds. A receipt counts what became of the items from its
    partition's first on, and says at which place the next one begins; so a task that was killed goes on there. The receipt
    of the first appears last and lists the others: it says that the task is whole. Until then it is an open one.

    Args:
        by_reference: the partitions refer to the source's texts.
    """

    def __init__(self, part: Part, intake: Intake, source: SourceBase, by_reference: bool = False):
        from gpu_curate.sources.parquet import scalar_text
        from gpu_curate.text.normalize import normalizer

        self._scalar_text = scalar_text
        self._names = source.kept
        # columns of a record that keep their name nowhere
        self._not_own = frozenset((*SCHEMA.names, *TEXT.names, *source.kept.values()))
        self._task, self._box, self._part, self._source = part, part.box, part.name, source
        self._rejects_box = part.boxes.box("rejects") if part.boxes.has("rejects") else None
        self._beside_limit = max(intake.partition_bytes, _LEAST_BESIDE_BYTES)
        self._limit, self._strict = intake.partition_bytes, intake.strict
        self._refers, self._compares = by_reference, by_reference and not intake.leaves_texts
        self._normal_form, self._normalize = intake.normalize, normalizer(intake.normalize)
        pii = intake.pii
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
        if self._box.open_receipt(self._part, DocumentCounts) is not None:
            self._written.append(self._part)
            self._catch_up()

    def __enter__(self) -> PartitionWriter:
        return self

    def __exit__(self, kind: Any, value: Any, traceback: Any) -> None:
        self._stack.__exit__(kind, value, traceback)

    def _reset(self) -> None:
        self._rows = Rows()
        self._counts = Tally()
        self._markup_sample: list[tuple[str, str]] = []
        self._sampled_chars = 0
        self._rejects: Path | None = None
        self._open_rejects: Any = None
        self._listed = 0  # characters in rejects/

    def _name(self, number: int) -> str:
        """Of the partition that `number` others of the task precede."""
        return self._part if number == 0 else f"{self._part}-{number:03d}"

    def begin(self) -> Place | None:
        """Where reading (re)starts; None: all is written."""
        self.moved = False
        return self._start

    def _catch_up(self) -> None:
        """Pass over the partitions that are there behind the last one written."""
        receipt = self._box.open_receipt(self._written[-1], DocumentCounts)
        while receipt is not None:
            self._start = receipt.counts.next
            if self._start is None:
                return
            receipt = self._box.receipt(self._name(len(self._written)), DocumentCounts)
            if receipt is not None:
                self._written.append(receipt.part)

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
                reject = Reject(entry.item.row, None, f"pii: {found}", guard.head(entry.text))  # type: ignore[union-attr]  # told apart above
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
            doc_id(piece.file_number, item.row)  # there is one
            group, columns = self._values(item.columns) if item.columns else (None, {})
            markup = None if item.markup is None else (item.markup, text.decode("utf-8"))
        except BaseException as e:
            self._reject(Reject(item.row, None, guard.refusal(e), guard.head(text)), piece)
            return
        beside = ROW_BYTES + (sum(len(v) for v in columns.values() if v) if columns else 0) + len(group or "")
        full = self._rows.nbytes + len(text) > self._limit or self._rows.beside + beside > self._beside_limit
        if full and self._rows.documents:
            self._flush(place)
            if self.moved:  # this one is there, too
                return
        changed = self._compares and text != item.text.encode("utf-8", "surrogatepass")
        self._rows.add(piece.split, piece.file_number, item.row, text, changed, group, columns, beside)
        if markup is not None:
            self._sample(*markup)
        self._counts.document(path, item.charset_evidence)
        if spans:
            self._counts.personal(spans, original)

    def take_block(self, block: Block, reader: ColumnReader) -> None:
        """Put the rows of a batch where they belong."""
        if self._waiting:
            self._scrub()
            if self.moved:
                return
        piece, batch = block.piece, block.batch
        array = plain_strings(batch.texts)
        if array is None or not _fits(piece, batch):
            for i, item in enumerate(reader.records(batch)):
                self.take(block.at(i), piece, item)
                if self.moved:
                    return
            return
        made = prepare(batch, array, self._source.text_column, self._normal_form, self._pii)  # type: ignore[attr-defined]  # of a source that comes by column
        group, kept = carried(batch.columns, self._source.group_column, self._names, self._not_own, made.row_M)
        whole = Chunk(piece.split, piece.file_number, batch.row + made.row_M, made.text, made.changed_M, group, kept)
        rejects, spans = deque(made.rejects.items()), deque(sorted(made.spans.items()))
        offsets, start, documents = made.text.offsets, 0, len(made.row_M)
        besides = np.zeros(documents + 1, np.int64)
        np.cumsum(ROW_BYTES + chars_of(group, kept, documents), out=besides[1:])
        while True:
            room, beside_room = self._limit - self._rows.nbytes, self._beside_limit - self._rows.beside
            stop = int(np.searchsorted(offsets, offsets[start] + room, side="right")) - 1
            stop = min(stop, int(np.searchsorted(besides, besides[start] + beside_room, side="right")) - 1)
            stop = min(max(stop, start if self._rows.documents else start + 1), documents)
            if stop > start:
                self._rows.extend(whole.slice(start, stop), int(besides[stop] - besides[start]))
                self._counts.document(piece.split.path, documents=stop - start)
            while spans and spans[0][0] < stop:
                number, found = spans.popleft()
                self._counts.personal(found, made.originals[number])
            while rejects and (stop == documents or rejects[0][0] < made.row_M[stop]):
                self._reject(rejects.popleft()[1], piece)
            if stop == documents:
                return
            self._flush(block.at(int(made.row_M[stop])))
            if self.moved:
                return
            start = stop

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
        if self._open_rejects is not None and self._listed <= self._beside_limit:
            self._listed += write_reject(self._open_rejects, self._source.name, path, reject)
            if self._listed > self._beside_limit:  # a small compressed file of lines that are no records fills no disk
                end = Reject(
                    reject.row, reject.offset, "further rejects of this partition are counted, not listed", b""
                )
                write_reject(self._open_rejects, self._source.name, path, end)
        self._counts.reject(reject, path)

    def _flush(self, place: Place | None) -> None:
        """Write the partition and say where the next one begins; None: nowhere."""
        number = len(self._written)
        if number > 999:
            raise FatalError(f"partition {self._part} holds more than 1,000 partitions' worth of text")
        name, first = self._name(number), number == 0
        rows = self._rows
        files = [text_file(self._box, name)]
        table = rows.table(self._source.name)
        texts = rows.references(self._source) if self._refers else None
        if texts is None:
            texts = pa.table([rows.text()], schema=TEXT)
        write_table(files[0], texts, use_dictionary=False, row_group_size=_GROUP_ROWS)
        if self._markup_sample:
            files.append(self._box.path(name, MARKUP_SUFFIX))
            write_json(files[-1], self._markup_sample)
        self._stack.close()  # rejects/ appear
        files += [self._rejects] if self._rejects else []
        groups = digest([self._source.name, rows.groups().to_pylist() if self._source.group_column else None])
        counts = self._counts.counts(self._source.name, rows.documents, rows.nbytes, groups, place)
        options = {"use_dictionary": ["source", "path", "group"], "row_group_size": _GROUP_ROWS}
        self._task.publish(Made(counts, table, tuple(files), options), name, whole=not first or place is None)
        self._written.append(name)
        self._reset()
        if place is None:
            self._start = None
        elif self._box.has(self._name(number + 1)):
            self.moved = True
            self._catch_up()

    def end(self, stopped: str | None = None) -> None:
        """Write what is left. `stopped`: the limit of the source that left something out."""
        self._scrub()
        if not self.moved:
            self._counts.stopped = stopped
            self._flush(None)

    def close(self) -> Receipt[Counts]:
        """Let the task be seen. Returns: the receipt of its first partition."""
        return self._box.promote(self._part, tuple(self._written[1:]), DocumentCounts)
