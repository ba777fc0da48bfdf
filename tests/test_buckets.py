"""Buckets on disk, cut by ranges: the same components as all hashes at once."""

import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu_curate import buckets
from gpu_curate.buckets import MAGIC, Partition, Range, Tables, grouped, pairs_in, plan_ranges, write_tables
from gpu_curate.errors import CorruptError
from gpu_curate.ops.components import Components, band_edges

ALL = (1 << 64) - 1


def written(folder: Path, parts: list[list[tuple[np.ndarray, np.ndarray]]]) -> list[Partition]:
    made, start = [], 0
    for i, tables in enumerate(parts):
        path = folder / f"{i}.buckets"
        with path.open("wb") as file:
            write_tables(file, tables)
        made.append(Partition(Tables(path), start))
        start += len(tables[0][0])
    return made


def plain_labels(hashes: np.ndarray, valid: np.ndarray) -> list[int]:
    """The first document of each one's bucket; its own number where it is in none."""
    first: dict[int, int] = {}
    return [first.setdefault(int(h), d) if v else d for d, (h, v) in enumerate(zip(hashes, valid, strict=True))]


def labels(partitions: list[Partition], table: int, n: int, piece: int) -> tuple[list[int], int]:
    components, count = Components(n), 0
    for found, _ in plan_ranges([p.tables for p in partitions], 1 + table, piece):
        if found.table != table:
            continue
        for a, b in pairs_in(partitions, found, band_edges, piece):
            assert (a < b).all()
            count += len(a)
            components.add_edges(a, b)
    return components.labels().tolist(), count


# few values, values that share their top bits, and any
HASH = st.one_of(
    st.integers(0, 3), st.integers(0, 3).map(lambda x: ALL - x), st.integers(0, 1 << 20), st.integers(0, ALL)
)


@settings(deadline=None)
@given(st.data())
def test_ranges_connect_what_equal_hashes_connect(tmp_path_factory, data):
    sizes = data.draw(st.lists(st.integers(0, 90), min_size=1, max_size=4))
    piece = data.draw(st.sampled_from([1, 2, 7, 1000]))
    pool = data.draw(st.lists(HASH, min_size=1, max_size=30))
    rng = np.random.default_rng(data.draw(st.integers(0, 1000)))
    parts = [[(rng.choice(np.array(pool, np.uint64), n), rng.random(n) < 0.8) for _ in range(2)] for n in sizes]
    partitions = written(tmp_path_factory.mktemp("tables"), parts)
    for table in range(2):
        hashes, valid = (np.concatenate([p[table][i] for p in parts]) for i in range(2))
        expected = plain_labels(hashes, valid)
        found, pairs = labels(partitions, table, len(hashes), piece)
        assert found == expected
        assert pairs == int(valid.sum()) - len(np.unique(hashes[valid]))


def test_every_row_is_in_one_range(tmp_path):
    rng = np.random.default_rng(1)
    n = 30_000
    parts = [[(rng.integers(0, ALL, n, np.uint64, endpoint=True), np.ones(n, bool))] for _ in range(3)]
    partitions = written(tmp_path, parts)
    ranges = plan_ranges([p.tables for p in partitions], 1, 5000)
    assert [ranges[0][0].low, ranges[-1][0].high] == [0, ALL]
    assert [r.low for r, _ in ranges[1:]] == [r.high + 1 for r, _ in ranges[:-1]]
    read = [p.tables.read(0, r.low, r.high) for p in partitions for r, _ in ranges]
    assert sum(len(h) for h, _ in read) == 3 * n
    assert max(rows for _, rows in ranges) <= 5000
    for p, tables in zip(partitions, parts, strict=True):
        for r, _ in ranges:
            hash_M, row_M = p.tables.read(0, r.low, r.high)
            assert (tables[0][0][row_M] == hash_M).all()
    tasks = grouped(ranges, 20_000)
    assert [r for t in tasks for r in t] == [r for r, _ in ranges]
    assert len(tasks) == -(-len(ranges) // 4)


def test_one_bucket_larger_than_a_piece_is_a_star_in_bounded_memory(tmp_path):
    n, hot = 200_000, np.uint64(0xDEADBEEF12345678)
    parts = [[(np.full(n, hot), np.ones(n, bool))] for _ in range(5)]
    parts[2][0][0][7] = np.uint64(0xDEADBEEF12345679)
    partitions = written(tmp_path, parts)
    sorted_rows = []

    def counted(hashes):
        sorted_rows.append(len(hashes))
        return band_edges(hashes)

    tracemalloc.start()
    count = 0
    for a, _ in pairs_in(partitions, Range(0, 0, ALL), counted, 1000):
        assert (a == 0).all()
        count += len(a)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == 5 * n - 2
    assert max(sorted_rows, default=0) <= 1
    assert peak < 60 * n + (1 << 20)  # one partition's slice at a time: hash, row, place, mask


@pytest.mark.parametrize("cut", [0, 5, 15, 30, -1, -13])
def test_a_file_that_is_cut_is_found(tmp_path, cut):
    path = tmp_path / "x.buckets"
    with path.open("wb") as file:
        write_tables(file, [(np.arange(100, dtype=np.uint64) << np.uint64(50), np.ones(100, bool))])
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(CorruptError, match=r"x\.buckets"):
        Tables(path)


def test_a_file_of_another_kind_or_length_is_found(tmp_path):
    path = tmp_path / "x.buckets"
    for content in (b"PAR1" * 20, MAGIC + b"\xff" * 100, MAGIC + (99).to_bytes(4, "little") * 10):
        path.write_bytes(content)
        with pytest.raises(CorruptError):
            Tables(path)
    with pytest.raises(CorruptError, match="No such file"):
        Tables(tmp_path / "none")
    with path.open("wb") as file:
        write_tables(file, [(np.arange(9, dtype=np.uint64), np.ones(9, bool))])
    path.write_bytes(path.read_bytes() + b"x")
    with pytest.raises(CorruptError):
        Tables(path)


def test_an_empty_partition_and_an_empty_table(tmp_path):
    nothing = np.zeros(0, np.uint64)
    partitions = written(
        tmp_path,
        [
            [(nothing, np.zeros(0, bool))] * 2,
            [(np.arange(5, dtype=np.uint64), np.zeros(5, bool)), (np.zeros(5, np.uint64), np.ones(5, bool))],
        ],
    )
    assert [r for r, _ in plan_ranges([p.tables for p in partitions], 2)] == [Range(1, 0, ALL)]
    assert list(pairs_in(partitions, Range(0, 0, ALL), band_edges)) == []
    ((a, b),) = pairs_in(partitions, Range(1, 0, ALL), band_edges)
    assert a.tolist() == [0, 1, 2, 3]
    assert b.tolist() == [1, 2, 3, 4]
    assert buckets.PIECE_ROWS <= 1 << 31
