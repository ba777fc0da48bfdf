"""Rows of a source by column: which of them are documents, and their texts normalised and without personal data.

Only texts whose normal form may change, or in which personal data was found, are touched one by one.

# N rows, M documents among them
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from gpu_curate import guard
from gpu_curate.document import TextColumn
from gpu_curate.ops.normalize import INVALID, classify, normalize_column, replaced
from gpu_curate.sources import Batch, Record, Reject
from gpu_curate.sources.parquet import HEAD_BYTES, plain_values, scalar_text
from gpu_curate.text.sections import Normalize

_SCRUB_BYTES = 1 << 18  # texts that are searched for personal data in one call; four times as much is no faster
_DECODED_BYTES = 64 << 20  # of a batch of numbers into a dictionary: more of it is read one by one


@dataclass
class Prepared:
    """What becomes of the rows of a batch.

    Attributes:
        row_M: number in the batch of every row that is a document.
        text: of the documents, M.
        changed_M: bool: the text is another than the source's.
        rejects: number in the batch → why it is none, in order.
        spans: document → its personal data; `originals`: its text before that was replaced.
    """

    row_M: NDArray[np.int64]
    text: TextColumn
    changed_M: NDArray[np.bool_]
    rejects: dict[int, Reject]
    spans: dict[int, Any] = field(default_factory=dict)
    originals: dict[int, bytes] = field(default_factory=dict)


def plain_strings(array: Any) -> Any | None:
    """The texts of a batch as string, large_string, binary or large_binary; None: better read one by one.

    A value that a dictionary holds once may stand in many rows; decoded, they could take more memory than there is.
    """
    if pa.types.is_dictionary(array.type):
        values = array.dictionary
        if not _is_plain(values.type):
            return None
        sizes = pc.binary_length(values)
        if (pc.sum(sizes.take(array.indices)).as_py() or 0) > _DECODED_BYTES:
            return None
        array = array.dictionary_decode()
    return array if _is_plain(array.type) else None


def _is_plain(kind: pa.DataType) -> bool:
    tests = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
    return any(test(kind) for test in tests)


def text_column(array: Any) -> TextColumn:
    """The column over the buffers of `plain_strings`; a null is an empty text."""
    if array.null_count:
        array = array.fill_null(b"" if "binary" in str(array.type) else "")
    if pa.types.is_binary(array.type):
        array = array.view(pa.string())
    elif pa.types.is_large_binary(array.type):
        array = array.view(pa.large_string())
    return TextColumn.from_arrow(array)


def are_texts(array: Any, text: TextColumn) -> NDArray[np.bool_]:
    """Which rows hold a text: not null, and UTF-8."""
    valid_N: NDArray[np.bool_] = classify(text, None) != INVALID
    if array.null_count:
        valid_N &= array.is_valid().to_numpy(zero_copy_only=False)
    return valid_N


def sizes_of(batch: Batch, reader: Any) -> NDArray[np.int64]:
    """What the limits of a source count of every row, (rows, 2): 1 and the bytes of its text, or 0 and 0 where it has none."""
    array = plain_strings(batch.texts)
    if array is None:
        items = list(reader.records(batch))
        sizes = [len(i.text.encode("utf-8", "surrogatepass")) if isinstance(i, Record) else -1 for i in items]
        size_N = np.array(sizes, np.int64)
        return np.stack([size_N >= 0, np.maximum(size_N, 0)], axis=1).astype(np.int64)
    text = text_column(array)
    valid_N = are_texts(array, text)
    return np.stack([valid_N, np.diff(text.offsets) * valid_N], axis=1).astype(np.int64)


def prepare(batch: Batch, array: Any, text_name: str, config: Normalize | None, scanner: Any) -> Prepared:
    """The documents of a batch.

    Args:
        array: its texts, as `plain_strings` gives them.
        text_name: of the column.
        scanner: a PiiScanner, or None.
    """
    text = text_column(array)
    made = normalize_column(text, config)
    rejects: dict[int, Reject] = {}
    bad_N = made.class_N == INVALID
    null_N = array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None
    if null_N is not None:
        bad_N |= null_N
    for i in [*np.flatnonzero(bad_N).tolist(), *made.refused]:
        row = batch.row + i
        if null_N is not None and null_N[i]:
            rejects[i] = Reject(row, None, f"{text_name!r} is null")
        elif i in made.refused:
            rejects[i] = Reject(row, None, f"normalize: {_refusal(made.refused[i])}", guard.head(text.raw(i)))
        else:
            rejects[i] = Reject(row, None, "not UTF-8", text.raw(i)[:HEAD_BYTES])
    prepared = Prepared(np.arange(len(text)), made.text, made.changed_N, rejects)
    if scanner is not None:
        _scrub(prepared, batch.row, scanner)
    if prepared.rejects:
        prepared = _without_rejects(prepared)
    return prepared


def _refusal(error: BaseException) -> str:
    try:
        raise error
    except BaseException as e:
        return guard.refusal(e)


def _scrub(prepared: Prepared, first_row: int, scanner: Any) -> None:
    """Take personal data out of the texts, and reject those that the scanner cannot take."""
    new: dict[int, bytes] = {}
    text = prepared.text

    def scan(start: int, stop: int) -> None:
        part = text.slice(start, stop)
        try:
            found = scanner.scrub_column(part)
        except BaseException as e:
            reason = guard.refusal(e)
            if stop - start > 1:
                for i in range(start, stop):
                    scan(i, i + 1)
            else:
                raw = text.raw(start)
                prepared.rejects[start] = Reject(first_row + start, None, f"pii: {reason}", guard.head(raw))
            return
        for i, spans in found.spans.items():
            prepared.spans[start + i] = spans
            prepared.originals[start + i] = part.raw(i)
        new.update({start + i: raw for i, raw in found.texts.items()})

    for start, stop in text.batches(_SCRUB_BYTES):
        scan(start, stop)
    prepared.text = replaced(text, new)
    prepared.changed_M[list(new)] = True


def _without_rejects(prepared: Prepared) -> Prepared:
    """The documents alone, numbered anew."""
    keep_N = np.ones(len(prepared.row_M), np.bool_)
    keep_N[list(prepared.rejects)] = False
    row_M = np.flatnonzero(keep_N)
    text = TextColumn.from_arrow(prepared.text.to_arrow().take(pa.array(row_M)))
    place = {row: i for i, row in enumerate(row_M.tolist())} if prepared.spans else {}
    spans = {place[i]: s for i, s in prepared.spans.items() if i in place}
    originals = {place[i]: o for i, o in prepared.originals.items() if i in place}
    return Prepared(row_M, text, prepared.changed_M[row_M], dict(sorted(prepared.rejects.items())), spans, originals)


# ------------------------------------------------------------------------------------------------------- other columns


def strings_of(array: Any) -> Any:
    """`scalar_text` of every value of a column: a string array."""
    made = _converters(array.type)
    if made is not None:
        try:
            return made(array)
        except (pa.ArrowException, ValueError):  # not UTF-8, say
            pass
    return pa.array([scalar_text(value) for value in plain_values(array)], pa.string())


def _converters(kind: pa.DataType) -> Callable[[Any], Any] | None:
    """What makes strings of a whole column as `scalar_text` does of one value."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _checked
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_null(kind):
        return lambda array: array.cast(pa.string())
    return _floats if pa.types.is_float64(kind) or pa.types.is_float32(kind) else None


def _checked(array: Any) -> Any:
    made = array.cast(pa.string())
    made.validate(full=True)  # Arrow does not check what a file calls UTF-8
    return made


def _floats(array: Any) -> Any:
    values = array.to_pylist()
    texts = json.dumps(values)[1:-1].split(", ") if values else []
    return pa.array([None if t == "null" else t for t in texts], pa.string())


def carried(
    columns: Mapping[str, Any],
    group: str | None,
    names: Mapping[str, str],
    not_own: frozenset[str],
    row_M: NDArray[np.int64],
) -> tuple[Any, dict[str, Any]]:
    """Group and kept columns of the documents of a batch, as string arrays.

    Args:
        columns: of the batch.
        group: column of the source; None: there is none.
        names: name in documents/ → column of the source.
        not_own: columns that do not keep their own name.
        row_M: number in the batch of every document.
    Returns:
        M values, or None; name → M values.
    """
    if not columns:
        return None, {}
    some = len(row_M) < len(next(iter(columns.values())))
    strings = {}
    for name, array in columns.items():
        column = strings_of(array)
        strings[name] = column.take(pa.array(row_M)) if some else column
    kept = {name: strings[column] for name, column in names.items()}
    own = {name: column for name, column in strings.items() if name not in not_own and name not in kept}
    return strings[group] if group else None, {**kept, **own}


def chars_of(group: Any, kept: Mapping[str, Any], documents: int) -> NDArray[np.int64]:
    """Characters of the group and kept columns of every document."""
    total = np.zeros(documents, np.int64)
    for column in kept.values() if group is None else (group, *kept.values()):
        total += pc.utf8_length(column).fill_null(0).to_numpy()
    return total
