"""TextColumn: what it is made of, and whose texts it takes."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from gpu_curate.document import TextColumn
from gpu_curate.errors import InputError

TEXTS = ["a", "", "zwei Wörter", "三", "a much longer text that no view holds inline", "a"]


def values(column: TextColumn) -> list[str]:
    return [column.raw(i).decode() for i in range(len(column))]


class OneArray:
    """An object that only speaks the Arrow C data interface."""

    def __init__(self, array):
        self._array = array

    def __arrow_c_array__(self, requested_schema=None):
        return self._array.__arrow_c_array__(requested_schema)


OWNERS = {
    "list": lambda t: t,
    "tuple": tuple,
    "generator": lambda t: (x for x in t),
    "bytes": lambda t: [x if x is None else x.encode() for x in t],
    "string": lambda t: pa.array(t, pa.string()),
    "large_string": lambda t: pa.array(t, pa.large_string()),
    "string_view": lambda t: pa.array(t, pa.string_view()),
    "dictionary": lambda t: pa.array(t, pa.string()).dictionary_encode(),
    "chunks": lambda t: pa.chunked_array([pa.array(t[:2], pa.string()), pa.array(t[2:], pa.string())]),
    "no chunks": lambda t: pa.chunked_array([], pa.string()) if not t else pa.chunked_array([pa.array(t, pa.string())]),
    "C array": lambda t: OneArray(pa.array(t, pa.string())),
    "pandas": lambda t: pd.Series(t, dtype=object if not t else None),
    "pandas object": lambda t: pd.Series(t, dtype=object),
    "pandas category": lambda t: pd.Series(t).astype("category") if t else pd.Series(t, dtype=object),
    "polars": lambda t: pl.Series(t, dtype=pl.String),
    "polars chunks": lambda t: pl.concat(
        [pl.Series(t[:1], dtype=pl.String), pl.Series(t[1:], dtype=pl.String)], rechunk=False
    ),
    "polars categorical": lambda t: pl.Series(t, dtype=pl.String).cast(pl.Categorical),
}


@pytest.mark.parametrize("owner", OWNERS)
@pytest.mark.parametrize("texts", [TEXTS, [], [""], ["x"], TEXTS * 11], ids=len)
def test_texts_of_any_owner_are_the_same_column(owner, texts):
    assert values(TextColumn.of(OWNERS[owner](texts))) == texts


@pytest.mark.parametrize("owner", OWNERS)
def test_a_null_is_an_empty_text(owner):
    texts = [None, "a", None, "b", None]
    assert values(TextColumn.of(OWNERS[owner](texts))) == ["", "a", "", "b", ""]
    if owner not in ("no chunks",):
        assert values(TextColumn.of(OWNERS[owner]([None]))) == [""]


def test_arrow_and_polars_buffers_are_not_copied():
    array = pa.array(TEXTS * 100, pa.large_string())
    column = TextColumn.of(array)
    assert column.chars.ctypes.data == array.buffers()[2].address
    assert column.offsets.ctypes.data == array.buffers()[1].address
    sliced = TextColumn.of(array[3:9])
    assert values(sliced) == (TEXTS * 100)[3:9]
    assert sliced.chars.ctypes.data == array.buffers()[2].address


@pytest.mark.parametrize(
    "wrong", [[1, 2], pa.array([1, 2]), pd.Series([1.5]), pl.Series([True]), 7, [["a"]], pa.array([["a"]])]
)
def test_what_is_no_column_of_texts_is_named(wrong):
    with pytest.raises(InputError, match="texts"):
        TextColumn.of(wrong)


def test_one_text_is_no_column():
    for one in ("abc", b"abc"):
        with pytest.raises(InputError, match="put it in a list"):
            TextColumn.of(one)
    column = TextColumn.from_texts(["a"])
    assert TextColumn.of(column) is column


def test_half_a_surrogate_pair_is_named():
    with pytest.raises(InputError, match="half a surrogate pair at character 5"):
        TextColumn.of(["half \ud83c end"])


def test_offsets_are_of_int64_and_start_anywhere():
    column = TextColumn(np.frombuffer(b"xxabcyy", np.uint8), np.array([2, 3, 5], np.int64))
    assert values(column) == ["a", "bc"]
    assert column.nbytes == 3


def test_a_series_of_cudf_stays_on_the_device(monkeypatch):
    class Series:  # the part of cudf.Series that is called; tests/gpu_contracts holds it to the real one
        def __init__(self, nulls):
            self.null_count = nulls

        def fillna(self, value):
            assert value == ""
            return Series(0)

        def to_pylibcudf(self):
            raise AssertionError("text_column does that")

    taken = []
    monkeypatch.setattr("gpu_curate.device.cudf_columns.text_column", lambda s: taken.append(s.null_count) or "column")
    assert TextColumn.of(Series(0)) == TextColumn.of(Series(3)) == "column"
    assert taken == [0, 0]
