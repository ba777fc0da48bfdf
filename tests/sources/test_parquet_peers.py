"""Parquet beside what pyarrow itself reads: the files of parquet-testing, mutants of real files, and files that expand."""

from __future__ import annotations

import io
import os
import random
import signal
import tracemalloc
import zipfile

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gpu_curate import guard
from gpu_curate.config import ParquetSource
from gpu_curate.errors import ConfigError
from gpu_curate.sources import Record, Reject, footers
from gpu_curate.sources.parquet import ParquetReader


def read(path, column="text", **options):
    reader = ParquetReader(ParquetSource(name="s", type="parquet", path=str(path), text_column=column, **options))
    splits = guard.splits(reader, str(path), path.stat().st_size, 1 << 20)
    return [i for split in splits for i in guard.read(reader, split)]


def peer(data, column):
    """The texts that pyarrow reads of a file, by row, and how many rows it has; None where it refuses.

    A row group may give fewer rows than the footer says; those of the next one keep their numbers.
    """
    texts, first = {}, 0
    try:
        file = pq.ParquetFile(io.BytesIO(data))
        for group in range(file.metadata.num_row_groups):
            values = file.read_row_group(group, [column], use_threads=False)[column].to_pylist()
            texts |= {row: v for row, v in enumerate(values, first) if isinstance(v, str)}
            first += file.metadata.row_group(group).num_rows
    except (pa.ArrowException, OSError, ValueError, OverflowError, KeyError, MemoryError, IndexError):
        return None
    return texts, first


def check(path, data, column):
    path.write_bytes(data)
    reader = ParquetReader(ParquetSource(name="s", type="parquet", path=str(path), text_column=column))
    try:
        splits = guard.splits(reader, str(path), path.stat().st_size, 1 << 20)
    except ConfigError:  # the column is not there, or no string: for the plan to say
        return "refused"
    return in_child(lambda: compare(reader, splits, peer(data, column) if splits[0].refused is None else None))


def compare(reader, splits, expected):
    items = [i for split in splits for i in guard.read(reader, split)]
    found = {i.row: i.text for i in items if isinstance(i, Record)}
    if expected is not None:
        texts, rows = expected
        assert {row: found.get(row) for row in texts} == texts
        numbers = [i.row for i in items if isinstance(i, Record | Reject)]
        assert sorted(numbers) == sorted(set(numbers))
        assert set(numbers) >= set(range(min(rows, 1000))) or any(isinstance(i, Reject) and i.cut for i in items)
        return "read"
    assert any(isinstance(i, Reject) for i in items)
    return "rejected"


def string_columns(data):
    try:
        schema = pq.ParquetFile(io.BytesIO(data)).schema
        leaves = [schema.column(i) for i in range(len(schema.names))]
        return [
            c.path
            for c in leaves
            if c.physical_type == "BYTE_ARRAY" and c.logical_type.type in ("STRING", "NONE") and "." not in c.path
        ]
    except (pa.ArrowException, OSError, ValueError):
        return ["text"]


@pytest.fixture(scope="module")
def seeds():
    noise = random.Random(1)
    texts = [None if i % 17 == 0 else "".join(noise.choices("abc dé漢\n", k=noise.randrange(40))) for i in range(300)]
    made = []
    for options in (
        {"compression": "none", "use_dictionary": False},
        {"compression": "snappy", "row_group_size": 100},
        {"compression": "zstd", "data_page_size": 500, "use_dictionary": False, "write_page_checksum": True},
        {"compression": "gzip", "data_page_version": "2.0"},
        {"compression": "lz4", "use_dictionary": False, "column_encoding": {"text": "DELTA_BYTE_ARRAY"}},
    ):
        f = io.BytesIO()
        columns = {"text": texts} if "column_encoding" in options else {"text": texts, "n": list(range(300))}
        pq.write_table(pa.table(columns), f, **options)
        made.append(f.getvalue())
    return made


@pytest.mark.parametrize("name", ["parquet-testing-data.zip", "parquet-testing-bad.zip"])
def test_the_files_of_parquet_testing_give_what_pyarrow_reads(shared_data, tmp_path, name):
    outcomes = []
    with zipfile.ZipFile(shared_data(f"patho/{name}")) as archive:
        for member in archive.namelist():
            if member.endswith(".parquet"):
                data = archive.read(member)
                outcomes += [check(tmp_path / "a.parquet", data, column) for column in string_columns(data)]
    assert len(outcomes) >= 5
    if "data" in name:
        assert outcomes.count("read") >= 10


def in_child(work):
    """What `work` returns, in a process of its own, which a library may take down."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            outcome = work()
        except BaseException as e:
            outcome = f"{type(e).__name__}: {e}"[:4000]
        os.write(write_end, outcome.encode())
        os._exit(0)
    os.close(write_end)
    with open(read_end, "rb") as f:
        outcome = f.read().decode()
    _, status = os.waitpid(child, 0)
    return outcome if status == 0 else f"ended by {signal.Signals(os.WTERMSIG(status)).name}"


@pytest.mark.soak
def test_mutants_of_parquet_files_lose_nothing_that_pyarrow_reads(seeds, tmp_path, soak_cases):
    noise = random.Random(2)
    outcomes = []
    for _ in range(soak_cases(25, 3000)):
        data = bytearray(noise.choice(seeds))
        footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
        for _ in range(noise.choice([1, 1, 2, 4])):
            at = noise.randrange(footer, len(data)) if noise.random() < 0.5 else noise.randrange(len(data))
            match noise.randrange(3):
                case 0:
                    data[at] ^= 1 << noise.randrange(8)
                case 1:
                    data[at] = noise.choice([0, 1, 0x7F, 0x80, 0xFF])
                case _:
                    del data[at : at + noise.choice([1, 1, 50])]
            if len(data) < 12:
                break
        outcomes.append(check(tmp_path / "a.parquet", bytes(data), "text"))
    footers.close()
    assert set(outcomes) == {"read", "rejected", "refused"}


def test_rows_of_a_row_group_that_ends_early_are_rejected_and_the_next_ones_keep_their_numbers(tmp_path):
    """Arrow takes a page that claims no values for the last of its row group: it gives fewer rows and says nothing."""
    f, path = io.BytesIO(), tmp_path / "a.parquet"
    texts = [f"text {i} " * 3 for i in range(300)]
    pq.write_table(pa.table({"text": texts}), f, row_group_size=100, use_dictionary=False, compression="none")
    data = bytearray(f.getvalue())
    page = pq.ParquetFile(f).metadata.row_group(1).column(0).data_page_offset
    counted = data.index(bytes([0x2C, 0x15, 0xC8, 0x01]), page)  # DataPageHeader: num_values, zigzag 100
    data[counted + 2 : counted + 4] = b"\x80\x00"  # 0, in two bytes
    path.write_bytes(data)
    items = read(path)
    assert [i.row for i in items] == list(range(300))
    assert [i.text for i in items if isinstance(i, Record)] == texts[:100] + texts[200:]
    lost = [i for i in items if isinstance(i, Reject)]
    assert [i.row for i in lost] == list(range(100, 200))
    assert lost[0].reason == "row group 1 unreadable from row 100 to row 199: its pages end there"
    reader = ParquetReader(ParquetSource(name="s", type="parquet", path=str(path)))
    (split,) = reader.splits(str(path), len(data), 1 << 20)
    for skip in (99, 150, 200, 299, 300):
        assert [i.row for i in reader.read(split, skip)] == list(range(skip, 300))


def test_a_column_name_that_is_not_utf8_is_a_reject_that_names_it(tmp_path):
    path = tmp_path / "a.parquet"
    f = io.BytesIO()
    pq.write_table(pa.table({"text": ["a"], "name": ["b"]}), f)
    path.write_bytes(f.getvalue().replace(b"name", b"na\xffe"))
    items = read(path)
    assert items
    assert all(isinstance(i, Reject) for i in items)
    assert "utf" in items[0].reason.lower()


@pytest.mark.parametrize("dictionary", [True, False])
def test_long_texts_come_in_batches_of_few_rows(tmp_path, dictionary):
    path = tmp_path / "a.parquet"
    rows = 600 if dictionary else 60
    pq.write_table(pa.table({"text": ["x" * (1 << 20)] * rows}), path, compression="zstd", use_dictionary=dictionary)
    reader = ParquetReader(ParquetSource(name="s", type="parquet", path=str(path)))
    (split,) = reader.splits(str(path), path.stat().st_size, 1 << 40)
    before = pa.total_allocated_bytes()
    tracemalloc.start()
    peak = count = 0
    for item in reader.read(split):
        count += len(item.text) == 1 << 20
        peak = max(peak, pa.total_allocated_bytes() - before)
    held = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == rows
    assert held < 80 << 20
    assert peak < 160 << 20


@pytest.mark.parametrize(
    "options", [{"use_dictionary": False}, {}, {"data_page_version": "2.0"}, {"write_page_checksum": True}]
)
def test_a_page_that_unpacks_to_more_than_a_partition_is_refused_before_it_is_unpacked(tmp_path, monkeypatch, options):
    """29 kB of zstd with one text of 300 MiB took 4 GiB; the sizes are told by the pages' own headers, whatever the footer says."""
    from gpu_curate.sources import parquet

    monkeypatch.setattr(parquet, "MAX_PAGE_BYTES", 1 << 20)
    path = tmp_path / "a.parquet"
    texts = ["x" * (2 << 20), *(f"text {i}" for i in range(50))]
    pq.write_table(pa.table({"n": range(51), "text": texts}), path, compression="zstd", row_group_size=17, **options)
    before = pa.total_allocated_bytes()
    items = []
    reader = ParquetReader(ParquetSource(name="s", type="parquet", path=str(path)))
    for split in reader.splits(str(path), path.stat().st_size, 1 << 20):
        for item in reader.read(split):
            items.append(item)
            assert pa.total_allocated_bytes() - before < 1 << 20
    assert [i.row for i in items] == list(range(51))
    assert [isinstance(i, Reject) for i in items] == [True] * 17 + [False] * 34
    assert "column 'text' has a page of 2" in items[0].reason
    assert "at most 1048576 are read" in items[0].reason


def test_the_largest_page_is_found_behind_statistics_of_any_length(tmp_path):
    from gpu_curate.sources.parquet_pages import largest_page

    path = tmp_path / "a.parquet"
    texts = ["y" * 3000 + str(i) for i in range(40)] + ["z" * 50_000] + ["w"] * 500
    for options in ({"use_dictionary": False}, {"data_page_version": "2.0"}, {}):
        pq.write_table(
            pa.table({"text": texts}), path, compression="none", data_page_size=4096, write_batch_size=1, **options
        )
        chunk = pq.read_metadata(path).row_group(0).column(0)
        start = chunk.dictionary_page_offset or chunk.data_page_offset
        with path.open("rb") as f:
            assert 50_000 < largest_page(f, start, chunk.total_compressed_size) < 250_000
            assert largest_page(f, 1, 1 << 30) >= 0  # what is no header ends the walk
