"""The text of a documents partition: a column of its own or, by reference, read again from the source's files.

It lies in a file apart, texts/part-000000.parquet beside documents/part-000000.parquet, row by row: ids, sources and kept
columns are read without it. The items of reference sets are few, so references/ holds theirs with the ids.
By reference, `text` is no string column but {bytes, content_hi, content_lo}: length and content hash of every text as the
documents stage saw it; `row` is the document's in its file. The schema's metadata says under `gpu_curate.origin` where the texts lie: reader, text_column, and
the splits with the number of documents that each gave. Only Parquet sources are read by reference: whatever is read again, by
pyarrow or cuDF, must have those lengths and hashes: on the host a difference means that the source changed, on the device that cuDF reads it
otherwise, and then the host reads it.

# N documents, G row groups, L lines
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from gpu_curate.document import TextColumn
from gpu_curate.errors import CorruptError, FatalError, InputError, one_line
from gpu_curate.sources import Split
from gpu_curate.sources.files import is_remote
from gpu_curate.sources.sections import SourceBase
from gpu_curate.store.artifact import Box
from gpu_curate.store.receipts import Counts, Receipt, Written

TYPE = pa.struct([("bytes", pa.int64()), ("content_hi", pa.uint64()), ("content_lo", pa.uint64())])
_KEY = b"gpu_curate.origin"
STORED = "stored"  # column of the texts that are others than the source's; null: as there
_BATCH_ROWS = 1024
# what pylibcudf raises for libcudf's exceptions, beside MemoryError; InputError is ours, of a column with nulls
_CUDF_ERRORS = (ArithmeticError, LookupError, OSError, RuntimeError, TypeError, ValueError, InputError)


class Extent(NamedTuple):
    """Neighbouring documents of a partition that come from one split."""

    split: Split
    documents: int


class Origin(NamedTuple):
    """Where the texts of a partition lie, in the order of its documents."""

    text_column: str
    extents: list[Extent]

    def of(self, numbers: np.ndarray) -> Origin:
        """Where the documents of these (increasing) numbers lie."""
        ends = np.cumsum([e.documents for e in self.extents])
        counts = np.diff(np.searchsorted(numbers, ends), prepend=0)
        return self._replace(extents=[Extent(e.split, int(n)) for e, n in zip(self.extents, counts, strict=True) if n])

    def files(self, row_N: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
        """Every file with the rows of its documents; splits that follow each other in a file are one."""
        start = stop = 0
        path = None
        for split, documents in self.extents:
            if path not in (None, split.path):
                yield path, row_N[start:stop]
                start = stop
            path, stop = split.path, stop + documents
        if path is not None:
            yield path, row_N[start:stop]


# ------------------------------------------------------------------------------------------------- what is by reference


def can_refer(splits: Iterable[Split], longest: int | None) -> bool:
    """True if these splits can be read again at will: local, not compressed, none of more than `longest` bytes of text.

    Every partition that is made of a Parquet row group reads all of it again: one that makes many is copied once instead.
    """
    return all(not is_remote(s.path) and s.plain and (longest is None or s.nbytes <= longest) for s in splits)


def reference_table(
    source: SourceBase, extents: list[Extent], row_N: np.ndarray, texts: list[TextColumn], changed_N: np.ndarray
) -> pa.Table:
    """The texts of a partition by reference.

    Args:
        extents: of its documents, in order; neighbours may be of one split.
        row_N: int64, of every document in its file.
        texts: columns that hold the N documents one after the other.
        changed_N: bool: the text is another than the source's. It is stored.
    """
    from gpu_curate.ops.content_hash import content_hash

    hash_N2 = np.concatenate([np.zeros((0, 2), np.uint64), *map(content_hash, texts)])
    size_N = np.concatenate([np.zeros(0, np.int64), *(np.diff(t.offsets) for t in texts)])
    values = (pa.array(size_N, pa.int64()), pa.array(hash_N2[:, 0]), pa.array(hash_N2[:, 1]))
    columns = {"text": pa.StructArray.from_arrays(values, fields=list(TYPE)), "row": pa.array(row_N, pa.int64())}
    if changed_N.any():
        whole = pa.chunked_array([t.to_arrow() for t in texts], pa.large_string())
        columns[STORED] = pc.if_else(pa.array(changed_N), whole, None).combine_chunks()
    else:  # a partition has the same columns as its neighbours
        columns[STORED] = pa.nulls(len(changed_N), pa.large_string())
    splits: list[list[Any]] = []
    for split, documents in extents:
        place = [split.path, split.start, split.stop, split.first_row]
        if splits and splits[-1][:4] == place:
            splits[-1][4] += documents
        else:
            splits.append([*place, documents])
    value = {"reader": source.type, "text_column": source.text_column, "splits": splits}  # type: ignore[attr-defined]  # of a source that is read by reference
    return pa.table(columns, metadata={_KEY: json.dumps(value, ensure_ascii=False).encode("utf-8")})


def read_origin(schema: pa.Schema) -> Origin | None:
    """Where the texts of a partition lie; None if it holds them itself."""
    stored = (schema.metadata or {}).get(_KEY)
    if stored is None:
        return None
    value = json.loads(stored)
    extents = [Extent(Split(path, start, stop, first, 0), n) for path, start, stop, first, n in value["splits"]]
    if value["reader"] != "parquet":
        raise CorruptError("its texts lie in JSON Lines files, which this version copies")
    return Origin(value["text_column"], extents)


# --------------------------------------------------------------------------------------------------------- where it lies


def text_entry(receipt: Receipt[Counts]) -> Written:
    """What the receipt of a partition says of the file of its texts. In runs of version 0.2 it is that of the ids."""
    return next((f for f in receipt.files if f.file.startswith("../texts")), receipt.files[0])


def text_hash(receipt: Receipt[Counts]) -> str:
    """What tells the texts of a partition from others."""
    return text_entry(receipt).xxh3


def text_file(box: Box, part: str) -> Path:
    """The file that will hold the texts of a partition of documents/."""
    return box.folder.parent / box.folder.name.replace("documents", "texts", 1) / f"part-{part}.parquet"


def verified_text(box: Box, part: str) -> Path:
    """The file that holds the texts of a partition of documents/ or references/. Raises: CorruptError."""
    receipt = box.receipt(part)
    if receipt is None:
        raise CorruptError(f"{box.path(part, '.parquet')} differs from its receipt")
    name = text_entry(receipt).file
    box.verified_file(part, name)
    return box.folder.parent / os.path.normpath(f"{box.folder.name}/{name}")


# ----------------------------------------------------------------------------------------------------------- on the host


def host_text(path: str | PathLike[str], numbers: np.ndarray | None = None) -> TextColumn:
    """The texts of a documents or references partition, on the host.

    Args:
        path: the Parquet file of its texts, as `verified_text` gives it.
        numbers: increasing numbers of the documents wanted; only the row groups and splits that hold some are read.
            None: all.
    Returns:
        TextColumn of N.
    Raises:
        FatalError: by reference, and a source's file is not what it was; names the file and the row.
    Memory: the texts; by reference another 1,024 rows of a Parquet source.
    """
    with pq.ParquetFile(path, memory_map=True) as file:
        origin = read_origin(file.schema_arrow)
        if origin is None:
            return _own_text(file, numbers)
        row_N, bytes_N, hash_N2 = _expected(file)
        stored = _stored(file)
    if numbers is not None:
        origin, row_N, bytes_N, hash_N2 = origin.of(numbers), row_N[numbers], bytes_N[numbers], hash_N2[numbers]
        stored = None if stored is None else stored.take(pa.array(numbers))
    if stored is None or not len(stored) or stored.null_count == len(stored):
        text = _host_read(origin, row_N, bytes_N)
    else:
        there = np.flatnonzero(stored.is_null().to_numpy(zero_copy_only=False))
        read = _host_read(origin.of(there), row_N[there], bytes_N[there])
        text = TextColumn.from_arrow(pa.concat_arrays([read.to_arrow(), stored.drop_null()]).take(_order(stored)))
    differs = _differences(text, hash_N2)
    if len(differs):
        raise _changed(*_place(origin, row_N, int(differs[0])), "another text")
    return text


def _own_text(file: pq.ParquetFile, numbers: np.ndarray | None) -> TextColumn:
    if numbers is None:
        return TextColumn.from_arrow(file.read(["text"], use_threads=False)["text"])
    groups, positions = _row_groups(file.metadata, numbers)
    return TextColumn.from_arrow(file.read_row_groups(groups, ["text"], use_threads=False)["text"].take(positions))


def _expected(file: pq.ParquetFile) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """row int64, bytes int64, and content hash uint64 (N, 2) of every document."""
    table = file.read(["row", "text"], use_threads=False).flatten()
    hash_N2 = np.stack([table["text.content_hi"].to_numpy(), table["text.content_lo"].to_numpy()], axis=1)
    return table["row"].to_numpy(), table["text.bytes"].to_numpy(), hash_N2


def _stored(file: pq.ParquetFile) -> Any | None:
    """Texts that are others than the source's, null where they are not; None: there are none."""
    if STORED not in file.schema_arrow.names:  # as version 0.2 wrote it
        return None
    stored = file.read([STORED], use_threads=False)[STORED].combine_chunks()
    return None if stored.null_count == len(stored) else stored


def _order(stored: Any) -> Any:
    """Where the texts stand in a column of those of the source and, behind them, those stored."""
    stored_N = stored.is_valid().to_numpy(zero_copy_only=False)
    there = int(np.count_nonzero(~stored_N))
    return pa.array(np.where(stored_N, there + np.cumsum(stored_N) - 1, np.cumsum(~stored_N) - 1))


def _host_read(origin: Origin, row_N: np.ndarray, bytes_N: np.ndarray) -> TextColumn:
    """Raises: FatalError: a file is gone or damaged, has too few rows, or a text has another length."""
    offsets = np.zeros(len(row_N) + 1, np.int64)
    np.cumsum(bytes_N, out=offsets[1:])
    chars = np.empty(int(offsets[-1]), np.uint8)
    done = 0
    try:
        for piece in _parquet_texts(origin, row_N):
            stop = done + len(piece)
            differs = np.flatnonzero(np.diff(piece.offsets) != bytes_N[done:stop])
            if len(differs):
                raise _changed(*_place(origin, row_N, done + int(differs[0])), "a text of another length")
            chars[offsets[done] : offsets[stop]] = piece.chars[piece.offsets[0] : piece.offsets[-1]]
            done = stop
    except (OSError, LookupError, pa.ArrowException, InputError) as e:
        what = getattr(e, "strerror", None) or one_line(e)
        raise _changed(*_place(origin, row_N, done), what) from e
    if done < len(row_N):
        raise _changed(*_place(origin, row_N, done), "no text there")
    return TextColumn(chars, offsets)


def _row_groups(metadata: pq.FileMetaData, row_N: np.ndarray) -> tuple[list[int], np.ndarray]:
    """The row groups that hold these (increasing) rows, and the rows' places in what they hold together.

    Raises: InputError: the file is shorter.
    """
    sizes_G = np.array([metadata.row_group(g).num_rows for g in range(metadata.num_row_groups)], np.int64)
    starts_G = np.cumsum(sizes_G) - sizes_G
    if len(row_N) and row_N[-1] >= sizes_G.sum():
        raise InputError(f"the file has {sizes_G.sum()} rows")
    of_N = np.searchsorted(starts_G, row_N, side="right") - 1
    groups, inverse_N = np.unique(of_N, return_inverse=True)
    before = np.cumsum(sizes_G[groups]) - sizes_G[groups]
    return groups.tolist(), row_N - starts_G[of_N] + before[inverse_N]


def _parquet_texts(origin: Origin, row_N: np.ndarray) -> Iterator[TextColumn]:
    from gpu_curate.sources.parquet import leaf

    for path, rows in origin.files(row_N):
        with pq.ParquetFile(path, buffer_size=1 << 20) as file:
            groups, positions = _row_groups(file.metadata, rows)
            start = done = 0
            for batch in file.iter_batches(_BATCH_ROWS, groups, columns=[origin.text_column], use_threads=False):
                start += batch.num_rows
                stop = int(np.searchsorted(positions, start))
                if stop > done:
                    taken = positions[done:stop] - (start - batch.num_rows)
                    yield _strings(leaf(batch, origin.text_column), taken)
                    done = stop


def _strings(array: pa.Array, taken: np.ndarray) -> TextColumn:
    """The rows taken of a column of any type that the reader takes for text."""
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if pa.types.is_string_view(array.type):  # has no `take`
        array = array.cast(pa.large_string())
    if len(taken) < len(array):  # the others were rejected or belong to another partition
        array = array.take(taken)
    return TextColumn.from_arrow(array if pa.types.is_string(array.type) else array.cast(pa.large_string()))


def _differences(text: TextColumn, hash_N2: np.ndarray) -> np.ndarray:
    """Numbers of the texts whose content hash is not this, found where `text` lives."""
    from gpu_curate.device import runtime as gpu_runtime
    from gpu_curate.ops.content_hash.plain import hash_few

    found_N2 = hash_few(text)
    if not text.on_gpu:
        return np.flatnonzero((found_N2 != hash_N2).any(axis=1))
    gpu = gpu_runtime.cuda()
    differs: np.ndarray = gpu.xp.flatnonzero((found_N2 != gpu.upload(hash_N2)).any(axis=1)).get()
    return differs


def _place(origin: Origin, row_N: np.ndarray, number: int) -> tuple[str, int]:
    """Path and row of a document."""
    ends = np.cumsum([e.documents for e in origin.extents])
    return origin.extents[int(np.searchsorted(ends, number, side="right"))].split.path, int(row_N[number])


def _changed(path: str, row: int, what: str) -> FatalError:
    return FatalError(
        f"{path}: row {row} is not what documents/ was made from: {what}",
        "texts are read from the sources until a run has ended: run again to begin with the file as it is now, "
        "or set run.by_reference: [] to work on a copy",
    )


# --------------------------------------------------------------------------------------------------------- on the device


def device_text(path: str | PathLike[str], nbytes: int | None = None) -> tuple[TextColumn, str | None]:
    """The texts of a documents partition, on the device.

    cuDF decodes there: the partition's own column, or by reference the source's, checked document by document against
    the stored hashes by the device's kernel. Without cuDF the host's buffers are copied up.

    Args:
        nbytes: of all texts together, as the receipt says: what cuDF reads of the partition's own column has so many.
    Returns:
        the texts, and why cuDF's were not taken: None, or what it raised or read otherwise.
    Raises:
        FatalError: as `host_text`.
        DeviceError: no device.
        The device's out-of-memory error.
    """
    from gpu_curate.device import cudf_columns
    from gpu_curate.device import runtime as gpu_runtime

    with pq.ParquetFile(path, memory_map=True) as file:
        origin = read_origin(file.schema_arrow)
        if origin is None:
            return _own_on_device(path, file.metadata.num_rows, nbytes)
        row_N, _, hash_N2 = _expected(file)
        stored = _stored(file)
    reason = None
    if cudf_columns.device_reader()[0] == "cudf" and len(row_N):
        text, reason = _cudf_read(origin, row_N, hash_N2, stored)
        if text is not None:
            return text, None
        gpu_runtime.cuda().release()
    return gpu_runtime.to_device(host_text(path), gpu_runtime.cuda()), reason


def _own_on_device(path: str | PathLike[str], rows: int, nbytes: int | None) -> tuple[TextColumn, str | None]:
    """The partition's own column. What cuDF cannot read, or reads otherwise, the host reads."""
    from gpu_curate.device import cudf_columns
    from gpu_curate.device import runtime as gpu_runtime

    reason = None
    if cudf_columns.device_reader()[0] == "cudf":
        try:
            text = cudf_columns.device_column(path)
            size = text.nbytes if nbytes is None else nbytes
            if (len(text), text.nbytes) == (rows, size):
                return text, None
            reason = f"cuDF reads {len(text)} texts of {text.nbytes} bytes where there are {rows} of {size}"
        except _CUDF_ERRORS as e:
            if gpu_runtime.cuda().fault(e):
                raise
            reason = f"cuDF: {type(e).__name__}: {one_line(e)}"
        gpu_runtime.cuda().release()
    return gpu_runtime.to_device(host_text(path), gpu_runtime.cuda()), reason


def _cudf_read(
    origin: Origin, row_N: np.ndarray, hash_N2: np.ndarray, stored: Any | None
) -> tuple[TextColumn | None, str | None]:
    """The texts as cuDF reads them, or None and what is wrong with them."""
    from gpu_curate.device import cudf_columns
    from gpu_curate.device import runtime as gpu_runtime

    if "." in origin.text_column:
        return None, f"cuDF is not asked for nested columns ({origin.text_column})"
    try:
        series = _cudf_parquet(origin, row_N) if stored is None else _cudf_merged(origin, row_N, stored)
        text = cudf_columns.text_column(series, gpu_runtime.cuda())
    except _CUDF_ERRORS as e:
        if gpu_runtime.cuda().fault(e):  # of the device, not of what it was to read
            raise
        return None, f"cuDF: {type(e).__name__}: {one_line(e)}"
    if len(text) != len(row_N):
        return None, f"cuDF reads {len(text)} texts where there are {len(row_N)}"
    differs = _differences(text, hash_N2)
    if len(differs) == 0:
        return text, None
    path, row = _place(origin, row_N, int(differs[0]))
    return None, f"cuDF reads {len(differs)} of {len(row_N)} texts otherwise, first {path}, row {row}"


def _cudf_merged(origin: Origin, row_N: np.ndarray, stored: Any) -> Any:
    """The texts of the source and those stored, as a cudf.Series."""
    import cudf

    own = cudf.Series.from_arrow(stored.drop_null())
    there = np.flatnonzero(stored.is_null().to_numpy(zero_copy_only=False))
    if not len(there):
        return own
    return cudf.concat([_cudf_parquet(origin.of(there), row_N[there]), own]).take(_order(stored).to_numpy())


def _cudf_parquet(origin: Origin, row_N: np.ndarray) -> Any:
    """The text column of the row groups, of which only the documents are gathered, as a cudf.Series."""
    import cudf

    paths, groups, positions = [], [], []
    total = 0
    for path, rows in origin.files(row_N):
        metadata = pq.read_metadata(path)
        own, places = _row_groups(metadata, rows)
        paths.append(path)
        groups.append(own)
        positions.append(places + total)
        total += sum(metadata.row_group(g).num_rows for g in own)
    # partitioning: a folder named key=value is no column. Other columns of the files may differ.
    frame = cudf.read_parquet(
        paths,
        columns=[origin.text_column],
        row_groups=groups,
        dataset_kwargs={"partitioning": None},
        allow_mismatched_pq_schemas=True,
    )
    series = frame[origin.text_column]
    if len(series) != total:
        raise InputError(f"{len(series)} rows where there are {total}")
    return series if total == len(row_N) else series.take(np.concatenate(positions))
