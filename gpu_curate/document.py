"""Documents as arrays: a text column is `chars` and `offsets`; where they lie decides where an op runs.

# N documents
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from gpu_curate.errors import InputError

ROW_BITS = 36  # doc_id = file_number << 36 | row: 2^27 files of up to 2^36 rows in a positive int64
MAX_FILES = 1 << 26  # file numbers from here up belong to reference sets
MAX_ROWS = 1 << ROW_BITS

# An array where the text lies: of NumPy, or of CuPy, which has no types. Docstrings say of what.
Array: TypeAlias = Any


def doc_id(file_number: int, row: int) -> int:
    """The identity of a document: the place it was read from, and nothing else.

    Args:
        file_number: 0-based number of the file in sorted order of its path.
        row: 0-based number of the record in that file.
    Raises:
        InputError: a number does not fit.
    """
    if not 0 <= file_number < 2 * MAX_FILES or not 0 <= row < MAX_ROWS:
        raise InputError(f"file {file_number}, row {row}: a doc_id holds {2 * MAX_FILES} files of {MAX_ROWS} rows")
    return file_number << ROW_BITS | row


def is_cupy(array: object) -> bool:
    """True if `array` lives on a CUDA device. Does not import CuPy."""
    return type(array).__module__.split(".")[0] == "cupy"


def matching(
    doc_id_N: np.ndarray[Any, Any], wanted_K: np.ndarray[Any, Any]
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Which of N documents are among K others.

    Args:
        doc_id_N: of a partition, in any order: a file that was added to a run has a higher number, wherever its name sorts.
        wanted_K: increasing.
    Returns:
        rows, places: int64; doc_id_N[rows] == wanted_K[places], rows increasing.
    """
    places = np.searchsorted(wanted_K, doc_id_N)
    inside = places < len(wanted_K)
    inside[inside] = wanted_K[places[inside]] == doc_id_N[inside]
    rows = np.flatnonzero(inside)
    return rows, places[rows]


@dataclass(frozen=True)
class TextColumn:
    """N UTF-8 texts back to back: text i is chars[offsets[i] : offsets[i + 1]].

    Args:
        chars: uint8, NumPy or CuPy. Bytes outside offsets[0]..offsets[N] belong to somebody else and are never read
            as text (a slice of a larger column shares its buffer).
        offsets: int64 of N + 1, absolute into chars, never decreasing. Same library as chars.
    Raises:
        InputError: wrong dtype, or offsets that decrease or leave the buffer.
    """

    chars: Array
    offsets: Array

    def __post_init__(self) -> None:
        if self.chars.dtype != np.uint8 or self.offsets.dtype != np.int64 or self.offsets.ndim != 1:
            raise InputError(
                f"a text column needs uint8 chars and int64 offsets, got {self.chars.dtype} and {self.offsets.dtype}"
            )
        if len(self.offsets) == 0:
            raise InputError("a text column of N texts needs N + 1 offsets, got none")
        first, last = int(self.offsets[0]), int(self.offsets[-1])
        if first < 0 or last > self.chars.size or bool((self.offsets[1:] < self.offsets[:-1]).any()):
            raise InputError(
                f"offsets decrease or leave the buffer: first {first}, last {last}, buffer {self.chars.size} bytes"
            )

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def on_gpu(self) -> bool:
        return is_cupy(self.chars)

    @property
    def nbytes(self) -> int:
        """Bytes of text in the column (not of the buffers)."""
        return int(self.offsets[-1]) - int(self.offsets[0])

    def slice(self, start: int, stop: int) -> TextColumn:
        """Texts start..stop - 1; shares both buffers."""
        return TextColumn(self.chars, self.offsets[start : stop + 1])

    def raw(self, i: int) -> bytes:
        """The bytes of text i (host columns only)."""
        text: bytes = self.chars[int(self.offsets[i]) : int(self.offsets[i + 1])].tobytes()
        return text

    def batches(self, max_bytes: int) -> Iterable[tuple[int, int]]:
        """(start, stop) of consecutive slices of at most `max_bytes` bytes; a longer text is a slice of its own."""
        start, n = 0, len(self)
        offsets = self.offsets if not self.on_gpu else self.offsets.get()
        while start < n:
            stop = int(np.searchsorted(offsets, offsets[start] + max_bytes, side="right")) - 1
            stop = min(max(stop, start + 1), n)
            yield start, stop
            start = stop

    @classmethod
    def from_texts(cls, texts: Iterable[str | bytes]) -> TextColumn:
        """A host column of Python strings (strict UTF-8) or bytes (taken as they are)."""
        try:
            encoded = [t if isinstance(t, bytes) else t.encode("utf-8") for t in texts]
        except UnicodeEncodeError as e:
            raise InputError(f"a text holds half a surrogate pair at character {e.start}") from e
        offsets = np.zeros(len(encoded) + 1, np.int64)
        np.cumsum([len(t) for t in encoded], out=offsets[1:])
        return cls(np.frombuffer(b"".join(encoded), np.uint8), offsets)

    @classmethod
    def of(cls, texts: Any) -> TextColumn:
        """The column of whatever holds texts, on the device if they lie there, without a copy where the owner allows it.

        Args:
            texts: a pandas, polars or cuDF Series, an Arrow array or chunked array, any object with `__arrow_c_array__` or
                `__arrow_c_stream__`, a list or other iterable of str, bytes and None, or a TextColumn. Arrow's string,
                large_string and string_view, and dictionaries of them. A null is an empty text.
        Raises:
            InputError: no texts: another type, a single str, half a surrogate pair.
        Memory: offsets of 8 bytes a text; a string_view, a dictionary, several chunks or nulls with bytes behind them are
            copied, and so is a list.
        """
        if isinstance(texts, TextColumn):
            return texts
        if isinstance(texts, str | bytes):
            raise InputError(
                f"texts: expected a column or a list of texts, got one {type(texts).__name__}", "put it in a list"
            )
        if hasattr(texts, "to_pylibcudf"):
            from gpu_curate.device.cudf_columns import text_column

            return text_column(texts.fillna("") if texts.null_count else texts)
        try:
            if isinstance(texts, pa.Array | pa.ChunkedArray):
                array = texts
            elif hasattr(texts, "__arrow_c_stream__"):
                array = pa.chunked_array(texts)
            elif hasattr(texts, "__arrow_c_array__"):
                array = pa.array(texts)
            elif type(texts).__module__.partition(".")[0] == "pandas":  # before pandas 3 a Series has neither
                array = pa.Array.from_pandas(texts)
            else:
                return cls.from_texts("" if t is None else t for t in texts)
        except (pa.ArrowException, TypeError, AttributeError) as e:
            raise InputError(f"texts: {type(texts).__name__} holds no texts: {' '.join(str(e).split())}") from e
        return cls.from_arrow(_plain_strings(array))

    @classmethod
    def from_arrow(cls, array: pa.Array | pa.ChunkedArray) -> TextColumn:
        """A host column over the buffers of an Arrow string array, without a copy where Arrow allows it.

        Raises:
            InputError: the array has nulls or is not of strings.
        """
        if isinstance(array, pa.ChunkedArray):
            array = array.combine_chunks() if array.num_chunks != 1 else array.chunk(0)
            if isinstance(array, pa.ChunkedArray):  # combine_chunks of more than 2 GiB of `string` gives several
                array = pa.concat_arrays([c.cast(pa.large_string()) for c in array.chunks])
        if not (pa.types.is_string(array.type) or pa.types.is_large_string(array.type)):
            raise InputError(f"text must be a string column, got {array.type}")
        if array.null_count:
            raise InputError(f"text has {array.null_count} nulls; a reader rejects such rows")
        if len(array) == 0:
            return cls(np.zeros(0, np.uint8), np.zeros(1, np.int64))
        width = np.int64 if pa.types.is_large_string(array.type) else np.int32
        _, offsets, chars = array.buffers()
        offsets = np.frombuffer(offsets, width, count=len(array) + 1, offset=array.offset * np.dtype(width).itemsize)
        data = np.frombuffer(chars, np.uint8) if chars is not None and chars.size else np.zeros(0, np.uint8)
        return cls(data, offsets.astype(np.int64, copy=False))

    def to_arrow(self) -> pa.Array:
        """The host column as an Arrow large_string array that shares its buffers."""
        return pa.LargeStringArray.from_buffers(len(self), pa.py_buffer(self.offsets), pa.py_buffer(self.chars))


def _plain_strings(array: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """An Arrow array as string or large_string without nulls. Raises: InputError: it is not of strings."""
    kind = array.type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_null(kind):
        return pa.nulls(len(array)).cast(pa.large_string()).fill_null("")
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)):
        raise InputError(f"texts must be strings, got {array.type}")
    if array.type != kind:  # cast knows no dictionary of string_view
        chunks = array.chunks if isinstance(array, pa.ChunkedArray) else [array]
        texts = [chunk.dictionary.cast(pa.large_string()).take(chunk.indices) for chunk in chunks]
        array = pa.chunked_array(texts, pa.large_string())
    elif pa.types.is_string_view(kind):
        array = array.cast(pa.large_string())
    return array.fill_null("") if array.null_count else array
