"""Parquet: row groups, columns, rows that cannot be read, files that cannot be opened."""

from __future__ import annotations

import datetime
import functools
import random
import zipfile

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gpu_curate.config import ParquetSource
from gpu_curate.errors import ConfigError
from gpu_curate.sources import Record, Reject, Skip
from gpu_curate.sources.parquet import ParquetReader, scalar_text


def reader(**options):
    return ParquetReader(ParquetSource(name="s", type="parquet", path="x", **options))


def read(path, max_bytes=1 << 30, **options):
    r = reader(**options)
    return [i for split in r.splits(str(path), path.stat().st_size, max_bytes) for i in r.read(split)]


def texts(items):
    return [i.text for i in items if isinstance(i, Record)]


@pytest.fixture
def ten_groups(tmp_path):
    path = tmp_path / "a.parquet"
    table = pa.table({"text": [f"text {i}" for i in range(103)], "dump": [f"d{i % 3}" for i in range(103)]})
    pq.write_table(table, path, row_group_size=11)
    return path


@pytest.mark.parametrize("max_bytes", [1, 200, 1 << 20])
def test_records_and_rows_are_the_same_whatever_the_splits(ten_groups, max_bytes):
    items = read(ten_groups, max_bytes, group_column="dump")
    assert items == [Record(i, f"text {i}", {"dump": f"d{i % 3}"}) for i in range(103)]


def test_sampled_row_groups_keep_the_rows_of_the_whole_file(ten_groups):
    items = read(ten_groups, row_groups={"every": 4, "offset": 1})
    expected = [i for i in range(103) if i // 11 % 4 == 1]
    assert [i.row for i in items] == expected
    assert texts(items) == [f"text {i}" for i in expected]


def test_only_the_columns_asked_for_are_read(ten_groups, monkeypatch):
    asked = []
    original = pq.ParquetFile.iter_batches

    def spy(self, *args, columns=None, **options):
        asked.append(columns)
        return original(self, *args, columns=columns, **options)

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", spy)
    read(ten_groups)
    assert {tuple(c) for c in asked} == {("text",)}


def test_a_missing_column_is_an_error_that_names_those_there_are(ten_groups):
    with pytest.raises(ConfigError, match=r"a\.parquet has no column 'body' \(it has text, dump\)"):
        read(ten_groups, text_column="body")


@pytest.mark.parametrize("kept", ["text", "url"])
def test_a_column_name_that_is_there_twice_is_an_error(tmp_path, kept):
    path = tmp_path / "twice.parquet"
    names = ["text", "url", kept]
    pq.write_table(pa.Table.from_arrays([pa.array(["a"])] * 3, names=names), path)
    with pytest.raises(ConfigError, match=rf"two columns '{kept}' \(it has text, url, {kept}\)"):
        read(path, keep_columns=["url"])


def test_a_column_that_is_no_string_is_an_error(tmp_path):
    path = tmp_path / "n.parquet"
    pq.write_table(pa.table({"text": [1, 2]}), path)
    with pytest.raises(ConfigError, match="'text' is INT64, not a string"):
        read(path)


def test_null_and_invalid_rows_are_rejected_one_by_one(tmp_path):
    path = tmp_path / "b.parquet"
    pq.write_table(pa.table({"text": pa.array([b"good", None, b"\xff\xfe", b"caf\xc3\xa9"], pa.binary())}), path)
    items = read(path)
    assert texts(items) == ["good", "café"]
    assert [(i.row, i.reason) for i in items if isinstance(i, Reject)] == [(1, "'text' is null"), (2, "not UTF-8")]


def test_invalid_utf8_in_a_string_column_is_rejected_row_by_row(tmp_path):
    path = tmp_path / "c.parquet"
    broken = pa.array([b"good", b"\xff", b"end"], pa.binary()).view(pa.string())
    pq.write_table(pa.table({"text": broken}), path)
    items = read(path)
    assert texts(items) == ["good", "end"]
    assert [i.row for i in items if isinstance(i, Reject)] == [1]


def test_a_kept_value_that_python_cannot_hold_is_null_and_its_row_is_read(tmp_path):
    path = tmp_path / "k.parquet"
    far = pa.array([0, 2**62, None, 1], pa.int64()).view(pa.timestamp("us"))
    broken = pa.array([b"good", b"\xff", b"caf\xc3\xa9", None], pa.binary()).view(pa.string())
    nested = pa.StructArray.from_arrays([far, broken], ["at", "name"])
    listed = pa.ListArray.from_arrays([0, 1, 2, 3, 4], far)
    columns = {"text": list("abcd"), "at": far, "name": broken, "both": nested, "all": listed}
    pq.write_table(pa.table(columns), path, row_group_size=3)
    items = read(path, keep_columns=["at", "both", "both.name", "all"], group_column="name")
    assert texts(items) == list("abcd")
    epoch, after = datetime.datetime(1970, 1, 1), datetime.datetime(1970, 1, 1, 0, 0, 0, 1)
    assert [i.columns["at"] for i in items] == [epoch, None, None, after]
    assert [i.columns["name"] for i in items] == ["good", None, "café", None]
    assert [i.columns["both.name"] for i in items] == ["good", None, "café", None]
    assert [i.columns["both"] for i in items][::3] == [{"at": epoch, "name": "good"}, {"at": after, "name": None}]
    assert items[1].columns["both"] is None
    assert [i.columns["all"] for i in items] == [[epoch], None, [None], [after]]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, None),
        ("caf\ud83c", "caf\ufffd"),
        ("\ud83c\udf0d", "\U0001f30d"),
        ("é", "é"),
        ({"b": ["x\udfff"], "a\ud800": 1}, '{"a\ufffd": 1, "b": ["x\ufffd"]}'),
        (True, "true"),
        (functools.reduce(lambda inner, _: [inner], range(2000), 0), None),
        (datetime.date(2024, 1, 2), '"2024-01-02"'),
    ],
)
def test_kept_values_become_text_that_utf8_can_hold(value, text):
    assert scalar_text(value) == text


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())])
def test_every_string_type_reads_alike(tmp_path, kind):
    path = tmp_path / "d.parquet"
    pq.write_table(pa.table({"text": pa.array(["a", "b", "a", ""]).cast(kind)}), path)
    assert texts(read(path)) == ["a", "b", "a", ""]


def test_dots_reach_into_structs(tmp_path):
    path = tmp_path / "e.parquet"
    pq.write_table(pa.table({"doc": [{"body": "x", "n": 1}, {"body": "y", "n": 2}]}), path)
    items = read(path, text_column="doc.body", keep_columns=["doc.n"])
    assert texts(items) == ["x", "y"]
    assert items[1].columns == {"doc.n": 2}


def test_empty_and_broken_files_do_not_stop_the_others(tmp_path):
    empty = tmp_path / "empty.parquet"
    pq.write_table(pa.table({"text": pa.array([], pa.string())}), empty)
    assert read(empty) == [Skip("empty_file")]
    broken = tmp_path / "broken.parquet"
    broken.write_bytes(b"PAR1 nothing")
    (reject,) = read(broken)
    assert isinstance(reject, Reject)
    assert "unreadable" in reject.reason
    zero = tmp_path / "zero.parquet"
    zero.write_bytes(b"")
    (reject,) = read(zero)
    assert isinstance(reject, Reject)


def test_a_damaged_page_rejects_its_row_group_and_keeps_the_others(tmp_path):
    path = tmp_path / "p.parquet"
    noise = random.Random(3)
    rows = ["".join(noise.choices("abcdefghijklmnop", k=200)) for _ in range(300)]
    pq.write_table(pa.table({"text": rows}), path, row_group_size=100, compression="zstd", use_dictionary=False)
    column = pq.read_metadata(path).row_group(1).column(0)
    middle = column.data_page_offset + column.total_compressed_size // 2
    data = bytearray(path.read_bytes())
    data[middle : middle + 400] = b"\xaa" * 400
    path.write_bytes(data)
    items = read(path)
    assert texts(items) == rows[:100] + rows[200:]
    rejects = [i for i in items if isinstance(i, Reject)]
    assert [r.row for r in rejects] == list(range(100, 200))
    assert all("row group 1 unreadable from row 100 to row 199" in r.reason for r in rejects)


def test_real_common_crawl_rows(shared_data):
    path = shared_data("docs/ibm_cc100.parquet")
    with pytest.raises(ConfigError, match="has no column 'text'"):
        read(path)
    assert len(texts(read(path, text_column="contents"))) == 100


def test_malformed_files_of_the_parquet_project_end_in_records_rejects_or_a_clear_error(shared_data, tmp_path):
    seen = 0
    for archive in ("patho/parquet-testing-bad.zip", "patho/parquet-testing-data.zip"):
        with zipfile.ZipFile(shared_data(archive)) as files:
            for name in files.namelist():
                if not name.endswith(".parquet"):
                    continue
                path = tmp_path / name.rsplit("/")[-1]
                path.write_bytes(files.read(name))
                try:
                    schema = pq.read_metadata(path).schema
                    columns = [schema.column(i).path for i in range(len(schema))]
                except Exception:
                    columns = ["text"]
                for column in columns:
                    try:
                        items = read(path, text_column=column)
                    except ConfigError:  # a column of another type
                        continue
                    seen += 1
                    assert all(isinstance(i, Record | Reject) or i.reason == "empty_file" for i in items), name
    assert seen > 20
