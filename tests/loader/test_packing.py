"""Packing against plain definitions: what lies in which row, and what it wastes."""

import itertools
import json
import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from token_shards import EOT, documents, make

from gpu_curate.errors import ConfigError
from gpu_curate.loader import ShardLoader
from gpu_curate.loader.packing import make_plan, open_plan
from gpu_curate.loader.waste import of_plan, packing_table

IGNORE = -100


def plain_best_fit(lens, T):
    """Best-fit decreasing by looking at every bin: rows of pieces (document, offset, length)."""
    pieces = [(d, o, min(T, n - o)) for d, n in enumerate(lens) for o in range(0, n, T)]
    bins = []
    for piece in sorted(pieces, key=lambda p: -p[2]):  # stable: equal ones in order
        fitting = [b for b in bins if T - sum(p[2] for p in b) >= piece[2]]
        if piece[2] == T or not fitting:
            bins.append([piece])
        else:
            # the least room; of equal ones the bin that came to have it last
            room = min(T - sum(p[2] for p in b) for b in fitting)
            equal = [b for b in fitting if T - sum(p[2] for p in b) == room]
            chosen = max(equal, key=lambda b: changed[id(b)])
            chosen.append(piece)
        last = bins[-1] if piece[2] == T or not fitting else chosen
        changed[id(last)] = next(clock)
    bins.sort(key=lambda b: b[0][:2])  # as their longest pieces lie in the stream
    return [sorted(b) for b in bins]


changed, clock = {}, itertools.count()


def plain_rows(lens, T, packing):
    if packing == "best_fit":
        return plain_best_fit(lens, T)
    if packing == "pad":
        return [[(d, o, min(T, n - o))] for d, n in enumerate(lens) for o in range(0, n, T)]
    tokens = [(d, o) for d, n in enumerate(lens) for o in range(n)]
    rows = [tokens[r : r + T] for r in range(0, len(tokens) - T + 1, T)]
    return [
        [(d, part[0][1], len(part)) for d, g in itertools.groupby(row, lambda t: t[0]) if (part := list(g))]
        for row in rows
    ]


def pieces_of(plan, T):
    """Rows of (document, offset, length), as a plan means them."""
    rows = []
    for r in range(len(plan.row_R) - 1):
        row, done = [], 0
        for p in range(plan.row_R[r], plan.row_R[r + 1]):
            d, o = int(plan.document_P[p]), int(plan.offset_P[p])
            n = min(int(plan.bounds[d + 1] - plan.bounds[d]) - o, T - done)
            row.append((d, o, n))
            done += n
        rows.append(row)
    return rows


def bounds_of(lens):
    return np.concatenate([[0], np.cumsum(lens)]).astype(np.int64)


lengths = st.lists(st.integers(1, 40), max_size=60)


@settings(max_examples=150, deadline=None)
@given(lengths, st.integers(1, 33), st.sampled_from(["best_fit", "pad", "stream"]))
def test_rows_equal_the_definition(lens, T, packing):
    assert pieces_of(make_plan(bounds_of(lens), T, packing), T) == plain_rows(lens, T, packing)


@settings(max_examples=100, deadline=None)
@given(lengths, st.integers(1, 33), st.sampled_from(["best_fit", "pad"]))
def test_every_token_is_placed_once_and_no_document_that_fits_is_cut(lens, T, packing):
    rows = pieces_of(make_plan(bounds_of(lens), T, packing), T)
    placed = sorted((d, o + j) for row in rows for d, o, n in row for j in range(n))
    assert placed == [(d, j) for d, n in enumerate(lens) for j in range(n)]
    assert all(sum(n for _, _, n in row) <= T for row in rows)
    assert all(o == 0 and n == lens[d] for row in rows for d, o, n in row if lens[d] <= T)


def test_best_fit_leaves_less_than_first_come(tmp_path):
    rng = np.random.default_rng(0)
    lens = np.exp(rng.normal(6, 1, 20_000)).astype(np.int64) + 1
    waste = of_plan("best_fit", make_plan(bounds_of(lens), 2048, "best_fit"), 2048)
    assert waste.lost_fraction == waste.cut_fraction == 0
    assert waste.padding_fraction < 0.005  # Ding et al. 2024, table 1: below 0.1 % at 1 M documents


def plain_batch(docs, row, T, padding, labels):
    """x, y, position_ids, document_ids of a row of pieces."""
    x, y, position, document = [], [], [], []
    for number, (d, o, n) in enumerate(row):
        ids = [*docs[d], EOT]
        x += ids[o : o + n]
        y += ids[o + 1 : o + n + 1]
        if o + n == len(ids):
            behind = row[number + 1] if number + 1 < len(row) else None
            starts = labels == "all" and behind is not None and behind[1] == 0
            y.append([*docs[behind[0]], EOT][0] if starts else IGNORE)
        position += range(n)
        document += [d] * n
    left = T - len(x)
    return x + [padding] * left, y + [IGNORE] * left, position + list(range(left)), document + [-1] * left


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(0, 25), min_size=1, max_size=25),
    st.integers(1, 19),
    st.sampled_from(["best_fit", "pad"]),
    st.sampled_from(["all", "document"]),
    st.sampled_from([None, 7]),
    st.sampled_from([None, 3]),
)
def test_packed_batches_equal_the_definition(tmp_path_factory, lens, T, packing, labels, padding, shuffle):
    docs = [[(i * 31 + j) % 900 for j in range(n)] for i, n in enumerate(lens)]
    folder = tmp_path_factory.mktemp("s")
    make(folder, {"train": docs}, per_shard=23)
    rows = plain_rows([n + 1 for n in lens], T, packing)
    options = {"packing": packing, "labels": labels, "padding": padding, "shuffle": shuffle, "as_torch": False}
    loader = ShardLoader(folder, "train", 1, T, boundaries=True, **options)
    assert loader.rows == len(rows)
    expected = [plain_batch(docs, row, T, EOT if padding is None else padding, labels) for row in rows]
    got = [tuple(np.asarray(a)[0].tolist() for a in (b.x, b.y, b.position_ids, b.document_ids)) for b in loader]
    assert (got if shuffle is None else sorted(got)) == (expected if shuffle is None else sorted(expected))
    plain = ShardLoader(folder, "train", 1, T, **options)
    assert [tuple(np.asarray(a)[0].tolist() for a in b) for b in plain] == [g[:2] for g in got]


# ---------------------------------------------------------------------------------------------------- parts of a split


def test_sources_and_dump_order_take_the_documents_of_the_right_ones_in_order(tmp_path):
    docs = documents(90, seed=3)
    make(tmp_path / "s", {"train": docs}, per_shard=101, sources=["web", "wiki", "code"])
    tokens = {s: [t for d in docs[i::3] for t in (*d, EOT)] for i, s in enumerate(("web", "wiki", "code"))}
    for name, expected in tokens.items():
        loader = ShardLoader(tmp_path / "s", "train", 1, 16, sources=name, as_torch=False)
        got = [t for x, _ in loader for t in x[0].tolist()]
        assert got == expected[: len(expected) // 16 * 16]
    both = ShardLoader(tmp_path / "s", "train", 1, 16, sources=["wiki", "web"], as_torch=False)
    assert both.rows == sum(len(d) + 1 for i, d in enumerate(docs) if i % 3 < 2) // 16
    with pytest.raises(ConfigError, match="no document of source news; it has code, web, wiki"):
        ShardLoader(tmp_path / "s", "train", 1, 16, sources=["web", "news"])


def test_dump_order_is_the_order_of_doc_id(tmp_path):
    import pyarrow.parquet as pq

    docs = documents(50, seed=3)
    make(tmp_path / "s", {"train": docs})
    path = tmp_path / "s" / "documents.parquet"
    table = pq.read_table(path)
    shuffled = np.random.default_rng(0).permutation(50)
    pq.write_table(table.set_column(table.schema.get_field_index("doc_id"), "doc_id", [shuffled]), path)
    expected = [t for d in np.argsort(shuffled) for t in (*docs[d], EOT)]
    loader = ShardLoader(tmp_path / "s", "train", 1, 16, document_order="dump", as_torch=False)
    assert [t for x, _ in loader for t in x[0].tolist()] == expected[: len(expected) // 16 * 16]


def test_a_shuffle_buffer_moves_rows_within_blocks_only(tmp_path):
    make(tmp_path / "s", {"train": documents(200)})
    plain = ShardLoader(tmp_path / "s", "train", 1, 16, as_torch=False)
    mixed = ShardLoader(tmp_path / "s", "train", 1, 16, as_torch=False, shuffle=4, shuffle_buffer=10)
    rows = [x[0].tolist() for x, _ in plain]
    for epoch in (0, 1):
        got = [x[0].tolist() for x, _ in mixed.epoch(epoch)]
        assert got != rows
        for i in range(0, len(rows), 10):
            assert sorted(got[i : i + 10]) == sorted(rows[i : i + 10])


def test_random_offsets_are_ranges_of_the_stream_and_reach_all_of_it(tmp_path):
    stream = make(tmp_path / "s", {"train": [[i] for i in range(60)]}, per_shard=17)["train"].tolist()
    loader = ShardLoader(tmp_path / "s", "train", 4, 8, as_torch=False, shuffle=4, random_offsets=True)
    begins = {tuple(stream[i : i + 9]) for i in range(len(stream) - 8)}
    seen = set()
    for i in range(400):
        x, y = loader.batch(i)
        seen |= {(*a, b) for a, b in zip(map(tuple, x.tolist()), y[:, -1].tolist(), strict=True)}
    assert seen == begins


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"packing": "bestfit"}, "packing 'bestfit': expected stream, best_fit or pad"),
        ({"packing": "pad", "align_documents": True}, "take rows of the stream as it lies"),
        ({"shuffle_buffer": 5}, "need a seed"),
        ({"shuffle": 1, "shuffle_buffer": 0}, "expected a row or more"),
        ({"random_offsets": True}, "need a seed"),
        ({"document_order": "random"}, "expected shards or dump"),
        ({"sources": []}, "no document of source"),
        ({"packing": "pad", "padding": -1}, "padding -1: ids of .* are uint16"),
        ({"packing": "pad", "padding": 65_536}, "padding 65536"),
        ({"packing": "pad", "padding": "0"}, "padding '0': expected an integer"),
    ],
)
def test_odd_options_are_named(tmp_path, options, said):
    make(tmp_path / "s", {"train": documents(60)})
    with pytest.raises(ConfigError, match=said):
        ShardLoader(tmp_path / "s", "train", 1, 8, **options)


# ----------------------------------------------------------------------------------------------------------- the index


def test_the_index_is_made_once_and_anew_when_it_does_not_fit(tmp_path, monkeypatch):
    from gpu_curate.loader import packing as module

    bounds = bounds_of([3, 9, 1, 30, 7])
    made = []
    monkeypatch.setattr(module, "make_plan", lambda *a: made.append(1) or make_plan(*a))

    def open_it(b=bounds):
        return pieces_of(open_plan(tmp_path, "train", b, 8, "best_fit"), 8)

    rows = open_it()
    path = tmp_path / "train.rows"
    data = path.read_bytes()
    assert open_it() == rows
    assert len(made) == 1
    head = json.loads(data[:4096])
    assert (head["rows"], head["pieces"]) == (len(rows), sum(map(len, rows)))
    damages = [
        data[:-1],  # cut
        b"",
        b"x" * len(data),
        data[:4096] + b"\xff" * 8 + data[4104:],  # rows out of order
        data[: -4 * head["pieces"]] + b"\xff\xff\xff\xff" * head["pieces"],  # offsets behind their documents
        data.replace(b'"version": 1', b'"version": 0'),
    ]
    for number, damage in enumerate(damages):
        path.write_bytes(damage)
        assert open_it() == rows
        assert len(made) == number + 2
        assert path.read_bytes() == data
    other = bounds_of([3, 9, 1, 30, 6])
    assert open_it(other) == pieces_of(make_plan(other, 8, "best_fit"), 8)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_to_is_a_warning(tmp_path):
    make(tmp_path / "s", {"train": documents(60)})
    os.chmod(tmp_path / "s", 0o500)
    with pytest.warns(RuntimeWarning, match="could not be kept"):
        loader = ShardLoader(tmp_path / "s", "train", 1, 16, packing="best_fit")
    assert len(loader)
    os.chmod(tmp_path / "s", 0o700)


def test_an_index_that_cannot_be_kept_is_a_warning(tmp_path):
    make(tmp_path / "s", {"train": documents(60)})
    (tmp_path / "s" / "packing").write_bytes(b"")  # a file where the folder would be
    with pytest.warns(RuntimeWarning, match="could not be kept"):
        loader = ShardLoader(tmp_path / "s", "train", 1, 16, packing="best_fit")
    assert len(loader)


# --------------------------------------------------------------------------------------------------------------- waste


def plain_nanochat(lens, T, size):
    """Its loop, on lengths."""
    capacity, left, buffer = T + 1, list(lens), []
    rows, placed, whole = 0, 0, 0
    position = 0
    while True:
        while len(buffer) < size and left:
            buffer.append(left.pop(0))
        if not buffer:
            return rows + (position > 0), placed, whole
        fitting = [n for n in buffer if n <= capacity - position]
        n = max(fitting) if fitting else min(buffer)
        buffer.remove(n)
        count = min(n, capacity - position)
        placed += count
        whole += count == n
        position += count
        if position == capacity:
            position, rows = 0, rows + 1


def test_waste_equals_a_plain_count(tmp_path, monkeypatch):
    from gpu_curate.loader import waste as module

    monkeypatch.setattr(module, "BUFFER", 7)
    docs = documents(300, seed=5)
    lens = [len(d) + 1 for d in docs]
    make(tmp_path / "s", {"train": docs}, per_shard=101)
    T, total = 24, sum(lens)
    fit = sum(n <= T for n in lens)
    table = {w.way.split(",")[0]: w for w in packing_table(tmp_path / "s", "train", T)}
    for way in ("best_fit", "pad"):
        rows = plain_rows(lens, T, way)
        assert (table[way].rows, table[way].lost_fraction, table[way].cut_fraction) == (len(rows), 0, 0)
        assert table[way].padding_fraction == pytest.approx(1 - total / (len(rows) * T))
    begins = bounds_of(lens)[:-1]
    rows = (total - 1) // T
    assert table["stream"].rows == rows
    assert table["stream"].lost_fraction == pytest.approx(1 - rows * T / total)
    whole = sum(b // T == (b + n - 1) // T and b + n <= rows * T for b, n in zip(begins, lens, strict=True) if n <= T)
    assert table["stream"].cut_fraction == pytest.approx(1 - whole / fit)
    aligned = ShardLoader(tmp_path / "s", "train", 1, T, align_documents=True, as_torch=False)
    assert table["align_documents"] == aligned.waste
    starts = aligned._split_rows._starts_R.tolist()
    seen = {t for s in starts for t in range(s, s + T)}
    assert aligned.waste.lost_fraction == pytest.approx(1 - len(seen) / total)
    held = sum(any(s <= b and b + n <= s + T for s in starts) for b, n in zip(begins, lens, strict=True) if n <= T)
    assert aligned.waste.cut_fraction == pytest.approx(1 - held / fit)
    assert table["OLMo-core"].lost_fraction == pytest.approx(1 - sum(min(n, T) for n in lens) / total)
    rows, placed, whole = plain_nanochat(lens, T, 7)
    assert table["nanochat"].rows == rows
    assert table["nanochat"].lost_fraction == pytest.approx(1 - placed / total)
    assert table["nanochat"].cut_fraction == pytest.approx(1 - whole / sum(n <= T + 1 for n in lens))


def test_a_loader_says_what_its_rows_waste(tmp_path):
    make(tmp_path / "s", {"train": documents(300)}, sources=["a", "b"])
    loader = ShardLoader(tmp_path / "s", "train", 1, 24, packing="best_fit", sources="a")
    assert str(loader.waste).startswith(f"best_fit: {loader.rows:,} rows of 24, ")
    assert loader.waste.lost_fraction == 0


def test_the_command_prints_the_table(tmp_path):
    from typer.testing import CliRunner

    from gpu_curate.cli import app

    make(tmp_path / "s", {"train": documents(300)})
    done = CliRunner().invoke(app, ["shards", "packing", str(tmp_path / "s"), "--seq-len", "24"])
    assert done.exit_code == 0, done.output
    table = packing_table(tmp_path / "s", "train", 24)
    for waste in table:
        assert f"{waste.way:<38} {waste.rows:>12,}" in done.output
    done = CliRunner().invoke(app, ["shards", "packing", str(tmp_path / "s"), "--seq-len", "24", "--json"])
    assert [w["rows"] for w in json.loads(done.output)] == [w.rows for w in table]
