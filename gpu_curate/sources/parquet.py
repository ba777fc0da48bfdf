"""Parquet: row groups and columns, only those asked for, from disk or over the network."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Generator, Iterator
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from gpu_curate.errors import ConfigError, one_line
from gpu_curate.sources import Batch, Record, Reject, Skip, Split
from gpu_curate.sources.files import is_remote, open_raw
from gpu_curate.sources.parquet_pages import MAX_PAGE_BYTES, largest_page
from gpu_curate.sources.sections import ParquetSource

_BATCH_ROWS = 1024
_BATCH_BYTES = 32 << 20  # of the columns read, as the footer has them; fewer rows where they are long
_NUMBER_BYTES = 8  # a number into a dictionary takes less
_DICTIONARY_BYTES = 128 << 20  # a larger dictionary is not kept, but read a row at a time
_MAX_REJECTS = 1 << 22  # of one row group: a damaged footer may claim any number of rows
HEAD_BYTES = 200
_Item = TypeVar("_Item")


class ParquetReader:
    """Reads a string column (or UTF-8 bytes) and the columns kept, row group by row group.

    A row is its number in the whole file, whether or not its row group is sampled. A null text, or bytes that are not
    UTF-8, reject the row; a page that cannot be read rejects each row left of its row group. A kept value that Python
    cannot hold (a date past year 9999, text that is not UTF-8) is null. Memory: one batch of 1,024 rows, or of 32 MiB.
    """

    suffixes: tuple[str, ...] = (".parquet", ".pq", ".parq")

    def __init__(self, source: ParquetSource):
        self.source = source
        self.rows: dict[str, int] = {}  # path → rows, of the files that `splits` has looked at
        self._keep = source.extra_columns

    def splits(self, path: str, size: int, max_bytes: int) -> list[Split]:
        """One or more row groups of at most `max_bytes` of text each. Reads the footer.

        Raises:
            ConfigError: the file has no such column, or two of that name; the message names those it has.
        """
        try:
            with open_raw(path, self.source.storage_options, random=True) as f:
                metadata = pq.read_metadata(f)
        except (pa.ArrowException, OSError) as e:
            if isinstance(e, FileNotFoundError):
                raise ConfigError(f"{path}: no such file") from e
            return [Split(path, 0, -1, 0, 0)]  # read() says what is wrong with it, in rejects
        self._check_text(path, metadata)
        self.rows[path] = metadata.num_rows
        if metadata.num_rows == 0:
            return [Split(path, 0, -1, 0, 0)]  # read() says that it is empty
        splits: list[Split] = []
        row = 0
        pick = self.source.row_groups
        leaves = self._leaves(metadata)
        for group in range(metadata.num_row_groups):
            info = metadata.row_group(group)
            rows = info.num_rows
            if group >= pick.offset and (group - pick.offset) % pick.every == 0 and rows:
                chunks = [info.column(i) for i in leaves]  # all that are read: `sources.footers` says why
                nbytes = chunks[0].total_uncompressed_size
                # adjacent groups only: a Split is one range
                last = splits[-1] if splits else None
                if last is not None and last.stop == group and last.nbytes + nbytes <= max_bytes:
                    splits[-1] = last._replace(stop=group + 1, nbytes=last.nbytes + nbytes)
                else:
                    splits.append(Split(path, group, group + 1, row, nbytes))
            row += rows
        return splits

    def in_footer(self, path: str) -> bool:
        """Whether `splits` and `columns` read a footer: Arrow ends the process at some damaged ones."""
        return True

    def columns(self, path: str) -> tuple[list[str], None]:
        """The columns of a file, dotted where they are inside others."""
        with open_raw(path, self.source.storage_options, random=True) as f:
            schema = pq.read_metadata(f).schema
        return list(dict.fromkeys(schema.column(i).path for i in range(len(schema)))), None

    def _check_text(self, path: str, metadata: pq.FileMetaData) -> None:
        names = [metadata.schema.column(i).path for i in range(metadata.num_columns)]
        wanted = dict.fromkeys([self.source.text_column, *self._keep])
        fitting = {c: [n for n in names if n == c or n.startswith(c + ".")] for c in wanted}
        missing = [c for c in wanted if not fitting[c]]
        twice = [c for c in wanted if len(set(fitting[c])) < len(fitting[c])]
        if missing or twice:
            what = "no column" if missing else "two columns"
            raise ConfigError(
                f"source {self.source.name}: {path} has {what} {', '.join(map(repr, missing or twice))} "
                f"(it has {', '.join(names[:20])})"
            )
        if self.source.text_column not in names:
            raise ConfigError(f"source {self.source.name}: {path}: column {self.source.text_column!r} is not a string")
        leaf = names.index(self.source.text_column)
        column = metadata.schema.column(leaf)
        kind, logical = column.physical_type, column.logical_type.type
        if kind != "BYTE_ARRAY" or logical not in ("STRING", "JSON", "NONE") or column.max_repetition_level:
            raise ConfigError(
                f"source {self.source.name}: {path}: column {self.source.text_column!r} is "
                f"{'a list of ' if column.max_repetition_level else ''}{kind if logical == 'NONE' else logical}, not a string"
            )

    def read(self, split: Split, skip: int = 0) -> Iterator[Record | Reject | Skip]:
        yield from self._read(split, skip, self.records)

    def read_batches(self, split: Split, skip: int = 0) -> Iterator[Batch | Reject | Skip]:
        yield from self._read(split, skip, lambda batch: iter([batch]))

    def _read(
        self, split: Split, skip: int, items: Callable[[Batch], Iterator[_Item]]
    ) -> Iterator[_Item | Reject | Skip]:
        """`items`: what is given of a batch."""
        row = split.first_row
        try:
            with open_raw(split.path, self.source.storage_options, random=True) as f:
                file = pq.ParquetFile(f, pre_buffer=is_remote(split.path), buffer_size=1 << 20)
                if file.metadata.num_rows == 0:
                    yield Skip("empty_file")
                    return
                self._check_text(split.path, file.metadata)
                stop = split.stop if split.stop >= 0 else file.metadata.num_row_groups
                if any(self._repeats(file.metadata, g) for g in range(split.start, stop)):  # each value is kept once
                    options = {"metadata": file.metadata, "read_dictionary": [self.source.text_column]}
                    file = pq.ParquetFile(f, pre_buffer=is_remote(split.path), buffer_size=1 << 20, **options)
                for group in range(split.start, stop):
                    first = row
                    row += file.metadata.row_group(group).num_rows
                    skip = yield from self._row_group(file, f, is_remote(split.path), group, first, skip, items)
        except (pa.ArrowException, OSError, OverflowError) as e:
            yield Reject(row, None, f"unreadable: {one_line(e)}", cut=True)

    def _leaves(self, metadata: pq.FileMetaData) -> list[int]:
        """The numbers of the columns that are read, the text's first."""
        names = [metadata.schema.column(i).path for i in range(metadata.num_columns)]
        text = self.source.text_column
        read = [i for i, n in enumerate(names) if any(n == w or n.startswith(w + ".") for w in (text, *self._keep))]
        return sorted(read, key=lambda i: names[i] != text)

    def _chunks(self, metadata: pq.FileMetaData, group: int) -> list[pq.ColumnChunkMetaData]:
        """The chunks of a row group that are read, the text's first. By number: what a chunk says of its path may differ."""
        return [metadata.row_group(group).column(i) for i in self._leaves(metadata)]

    def _repeats(self, metadata: pq.FileMetaData, group: int) -> bool:
        """True if the texts of a row group are numbers into a dictionary, so that they may be far longer than its bytes."""
        text, rows = self._chunks(metadata, group)[0], metadata.row_group(group).num_rows
        if not text.has_dictionary_page:
            return False
        of_dictionary = max(text.data_page_offset - (text.dictionary_page_offset or 0), 0)
        return bool(text.total_compressed_size - of_dictionary <= _NUMBER_BYTES * rows + (1 << 16))

    def _refuse_pages(self, opened: Any, remote: bool, metadata: pq.FileMetaData, group: int) -> None:
        """Raises: OSError: a page that is read would take more memory than a partition, unpacked."""
        for chunk in self._chunks(metadata, group):
            claimed = max(chunk.total_uncompressed_size, chunk.total_compressed_size)
            if remote and claimed <= MAX_PAGE_BYTES:
                continue  # a request for each page would cost more than the file
            offset = chunk.dictionary_page_offset or chunk.data_page_offset
            largest = largest_page(opened, min(offset, chunk.data_page_offset), chunk.total_compressed_size)
            if largest > MAX_PAGE_BYTES:
                raise OSError(
                    f"column {chunk.path_in_schema!r} has a page of {largest} bytes, unpacked; at most {MAX_PAGE_BYTES} are read"
                )

    def _batch_rows(self, metadata: pq.FileMetaData, group: int) -> int:
        nbytes = sum(max(c.total_uncompressed_size, 0) for c in self._chunks(metadata, group))
        if nbytes > _DICTIONARY_BYTES and self._repeats(metadata, group):
            return 1
        rows: int = _BATCH_BYTES * max(metadata.row_group(group).num_rows, 1) // max(nbytes, 1)
        return max(min(_BATCH_ROWS, rows), 1)

    def _row_group(
        self,
        file: pq.ParquetFile,
        opened: Any,
        remote: bool,
        group: int,
        row: int,
        skip: int,
        items: Callable[[Batch], Iterator[_Item]],
    ) -> Generator[_Item | Reject, None, int]:
        """The items of a row group but for the first `skip`. Returns: how many are still to be left out."""
        columns = [self.source.text_column, *self._keep]
        stop = row + file.metadata.row_group(group).num_rows
        try:
            self._refuse_pages(opened, remote, file.metadata, group)
            rows = self._batch_rows(file.metadata, group)
            for batch in file.iter_batches(rows, [group], columns=columns, use_threads=False):
                if skip:
                    passed = min(skip, batch.num_rows)
                    skip, row, batch = skip - passed, row + passed, batch.slice(passed)
                kept = {name: leaf(batch, name) for name in self._keep}
                yield from items(Batch(row, leaf(batch, self.source.text_column), kept))
                row += batch.num_rows
        except (pa.ArrowException, OSError) as e:
            stop, problem = max(stop, row + 1), one_line(e)
        else:
            problem = "its pages end there"  # Arrow takes a page of no values for the last one, and says nothing
        if row < stop:
            lost = range(row, min(stop, row + _MAX_REJECTS))
            reason = f"row group {group} unreadable from row {row} to row {stop - 1}: {problem}"
            yield from (Reject(row, None, reason, cut=True) for row in lost[skip:])
            skip = max(skip - len(lost), 0)
        return skip

    def records(self, batch: Batch) -> Iterator[Record | Reject]:
        """The rows of a batch, one by one."""
        kept = [(name, plain_values(array)) for name, array in batch.columns.items()]
        for i, text in enumerate(_texts(batch.texts)):
            if isinstance(text, str):
                yield Record(batch.row + i, text, {name: values[i] for name, values in kept})
            elif text is None:
                yield Reject(batch.row + i, None, f"{self.source.text_column!r} is null")
            else:
                yield Reject(batch.row + i, None, "not UTF-8", text[:HEAD_BYTES])


def leaf(batch: pa.RecordBatch, name: str) -> pa.Array:
    """A column by name, or through structs by a dotted name."""
    if name in batch.schema.names:
        return batch.column(name)
    head, *rest = name.split(".")
    column = batch.column(head)
    for part in rest:
        column = pc.struct_field(column, part)
    return column


def plain_values(array: pa.Array) -> list[Any]:
    """Python values; None for one that Python cannot hold."""
    try:
        values: list[Any] = array.to_pylist()
        return values
    except (ValueError, OverflowError):  # UnicodeDecodeError and Arrow's errors are ValueErrors
        return [_value(scalar) for scalar in array]


def _value(scalar: pa.Scalar) -> Any:
    try:
        return scalar.as_py()
    except (ValueError, OverflowError):
        return None


def _texts(array: pa.Array) -> list[Any]:
    """str, None for null, or the bytes of a value that is not UTF-8."""
    if pa.types.is_dictionary(array.type):  # a value is one object, however often it is repeated
        distinct = _texts(array.dictionary)
        return [None if i is None else distinct[i] for i in array.indices.to_pylist()]
    if pa.types.is_string(array.type) or pa.types.is_large_string(array.type) or pa.types.is_string_view(array.type):
        try:
            texts: list[Any] = array.to_pylist()
            return texts
        except UnicodeDecodeError:  # Arrow does not check what a file calls UTF-8
            array = array.cast(pa.large_string()).view(pa.large_binary())
    values: list[Any] = array.to_pylist()
    for i, value in enumerate(values):
        if isinstance(value, bytes):
            with contextlib.suppress(UnicodeDecodeError):
                values[i] = value.decode("utf-8")
    return values


def scalar_text(value: Any) -> str | None:
    """A kept value as a string column holds it: strings as they are, the rest as JSON; lone surrogates as U+FFFD.

    None for null, and for what is nested deeper than the JSON library writes (about 990 levels).
    """
    if value is None:
        return None
    try:
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True, default=str)
    except RecursionError:
        return None
    if text.isascii():
        return text
    from gpu_curate.text.normalize import well_formed

    return well_formed(text)
