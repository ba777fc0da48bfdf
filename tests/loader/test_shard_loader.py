"""ShardLoader against a plain definition of its batch stream, and verify against damaged folders."""

import hashlib
import itertools
import json
import os
import pickle
import subprocess
import sys
import textwrap

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from token_shards import EOT, TOKENIZER, VOCAB, documents, make

from gpu_curate import loader as loader_module
from gpu_curate.errors import ConfigError, FatalError
from gpu_curate.formats import FORMATS
from gpu_curate.loader import ShardLoader, Stream
from gpu_curate.loader import arguments as loader_arguments
from gpu_curate.loader.order import permute, splitmix64
from gpu_curate.loader.rows import Rows
from gpu_curate.shards_check import head, info, verify


def plain_batches(stream, B, T, W, rank, epochs):
    """The definition, token by token."""
    rows = (len(stream) - 1) // T
    for _ in range(epochs):
        for i in range(rows // (B * W)):
            x, y = [], []
            for b in range(B):
                row = i * W * B + rank * B + b
                x.append([int(stream[row * T + t]) for t in range(T)])
                y.append([int(stream[row * T + t + 1]) for t in range(T)])
            yield x, y


def as_lists(batches):
    return [(np.asarray(x).tolist(), np.asarray(y).tolist()) for x, y in batches]


@pytest.fixture
def folder(tmp_path):
    make(tmp_path / "s", {"train": documents(60), "validation": documents(9, 1)}, per_shard=101)
    return tmp_path / "s"


def numpy_loader(*args, **kwargs):
    return ShardLoader(*args, as_torch=False, **kwargs)


# ---------------------------------------------------------------------------------------------------------- the stream


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=12),
    st.integers(1, 4),
    st.integers(1, 9),
    st.integers(1, 3),
    st.sampled_from(["llmc", "nanogpt", "megatron"]),
)
def test_batches_equal_the_definition_whatever_the_shards(tmp_path_factory, lens, B, T, W, format):
    folder = tmp_path_factory.mktemp("s")
    docs = [[i % EOT] for i in range((sum(lens) + 1) // 2)]
    stream = make(folder, {"train": docs}, lens=[*lens, 1000], format=format)["train"]
    if (len(stream) - 1) // T < B * W:
        with pytest.raises(ConfigError, match="fewer than one batch"):
            numpy_loader(folder, "train", B, T, 0, W)
        return
    for rank in range(W):
        loader = numpy_loader(folder, "train", B, T, rank, W)
        expected = list(plain_batches(stream, B, T, W, rank, epochs=2))
        assert len(loader) * 2 == len(expected)
        assert as_lists(loader.batch(i) for i in range(len(expected))) == expected


def test_read_stitches_any_range_over_shards_of_any_length(tmp_path):
    streams = make(tmp_path / "s", {"train": documents(5)}, lens=[1, 2, 3, 5, 8, 13, 1000])
    stream, tokens = Stream(tmp_path / "s", "train"), streams["train"]
    assert stream.length == len(tokens)
    for start in range(0, 40):
        for stop in range(start, 45):
            np.testing.assert_array_equal(stream.read(start, stop), tokens[start:stop])


def test_x_and_y_are_fresh_int64_arrays(folder):
    loader = numpy_loader(folder, "train", 2, 8)
    x, y = loader.batch(0)
    assert x.dtype == y.dtype == np.int64
    assert x.shape == y.shape == (2, 8)
    before = y.copy()
    x[:] = -1  # masking one must not touch the other, nor the files
    np.testing.assert_array_equal(y, before)
    assert as_lists([loader.batch(0)])[0][1] == before.tolist()
    assert (loader.batch(0)[0] >= 0).all()


def test_uint32_ids_above_65535_come_back_whole(tmp_path):
    make(tmp_path / "s", {"train": [[70_000, 66_000, 1]] * 8}, dtype=np.uint32, vocab=80_000)
    x, _ = numpy_loader(tmp_path / "s", "train", 1, 4).batch(0)
    assert x.tolist() == [[70_000, 66_000, 1, EOT]]


def test_positions_beyond_two_to_the_31_tokens(tmp_path):
    count = (1 << 31) + 10
    entry = {"file": "train_000000.bin", "tokens": count, "bytes": count * 2, "sha256": ""}
    manifest = {"version": 1, "format": "nanogpt", "dtype": "uint16", "eot_id": EOT, "vocab_size": VOCAB}
    manifest["splits"] = {"train": {"tokens": count, "documents": 1, "shards": [entry, {**entry, "file": "b.bin"}]}}
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    for name in ("train_000000.bin", "b.bin"):  # sparse files
        with (tmp_path / name).open("wb") as f:
            f.seek((count - 1) * 2)
            f.write(b"\x07\x00")
    loader = numpy_loader(tmp_path, "train", 1, 1 << 20)
    assert loader.tokens == 2 * count
    x, _ = loader.batch(len(loader) // 2)  # across the border of the files
    at = count - 1 - (len(loader) // 2 << 20)
    assert x[0, at] == 7
    assert x.sum() == 7


# ----------------------------------------------------------------------------------------------------- ranks and epochs


def test_one_global_position_decides_for_all_ranks(tmp_path):
    """Shards of 100, 150 and 200 tokens on 4 ranks: equal counts, no target twice, the rest reported."""
    docs = [[i] for i in range(225)]
    stream = make(tmp_path / "s", {"train": docs}, lens=[100, 150, 200])["train"]
    loaders = [numpy_loader(tmp_path / "s", "train", 1, 10, r, 4) for r in range(4)]
    assert [len(loader) for loader in loaders] == [11] * 4
    assert loaders[0].leftover_tokens == 9
    targets = np.concatenate([loader.batch(i)[1] for i in range(11) for loader in loaders], axis=None)
    np.testing.assert_array_equal(targets, stream[1:441])


@pytest.mark.parametrize(("ranks", "batch"), [(1, 1), (2, 3), (4, 2), (5, 1)])
@pytest.mark.parametrize("shuffle", [None, 7])
def test_ranks_are_disjoint_and_equal_and_miss_only_the_leftover(tmp_path, ranks, batch, shuffle):
    stream = np.arange(997, dtype=np.uint16)  # prime
    FORMATS["llmc"].write(make_folder(tmp_path) / "x_train_0.bin", stream)
    loaders = [numpy_loader(tmp_path / "p", "train", batch, 7, r, ranks, shuffle=shuffle) for r in range(ranks)]
    seen = np.concatenate([ld.batch(i)[0] for ld in loaders for i in range(len(ld))], axis=None)
    assert len(np.unique(seen)) == len(seen) == 996 - loaders[0].leftover_tokens
    assert len({len(loader) for loader in loaders}) == 1
    assert loaders[0].leftover_tokens < ranks * batch * 7 + 7


def make_folder(tmp_path):
    (tmp_path / "p").mkdir()
    return tmp_path / "p"


@pytest.mark.parametrize("shuffle", [None, 3])
@pytest.mark.parametrize("align", [False, True])
def test_resuming_at_any_step_continues_the_same_stream_over_epochs(folder, shuffle, align):
    arguments = {"shuffle": shuffle, "align_documents": align}
    loader = numpy_loader(folder, "train", 2, 16, 1, 2, **arguments)
    accum = 3
    steps = 5 * len(loader) // accum + 2
    whole = as_lists(itertools.islice(loader.batches(accum=accum), steps * accum))
    for step in range(steps):
        fresh = numpy_loader(folder, "train", 2, 16, 1, 2, **arguments)
        rest = as_lists(itertools.islice(fresh.batches(step, accum), (steps - step) * accum))
        assert rest == whole[step * accum :]


def rows_in_order(folder, W, B, state, batches, **arguments):
    """The rows that W ranks together take, as one list, and the state behind them."""
    streams = [numpy_loader(folder, "train", B, 16, rank, W, **arguments).batches(state=state) for rank in range(W)]
    rows = [x.tolist() for _ in range(batches) for stream in streams for x in next(stream)[0]]
    states = [stream.state_dict() for stream in streams]
    assert all(s == states[0] for s in states)
    return rows, json.loads(json.dumps(states[0]))


@pytest.mark.parametrize(("shuffle", "align"), [(None, False), (7, False), (7, True)])
def test_a_state_goes_on_in_the_same_order_of_rows_with_other_ranks_and_batch_sizes(folder, shuffle, align):
    arguments = {"shuffle": shuffle, "align_documents": align}
    count = numpy_loader(folder, "train", 1, 16, 0, 1, **arguments).rows
    every = []
    for epoch in (0, 1):
        loader = numpy_loader(folder, "train", 1, 16, 0, 1, **arguments)
        every.append([x[0].tolist() for x, _ in loader.epoch(epoch)])
        assert len(every[-1]) == count
    for (W, B), (W2, B2) in itertools.product([(1, 1), (2, 1), (4, 2), (8, 1), (3, 2)], repeat=2):
        for batches in (0, 1, 2, count // (W * B) - 1, count // (W * B)):
            taken, state = rows_in_order(folder, W, B, None, batches, **arguments)
            assert taken == every[0][: W * B * batches]
            rest = count - len(taken)
            full = rest // (W2 * B2)  # batches that are left of epoch 0, if the next one did not begin
            then, _ = rows_in_order(folder, W2, B2, state, full + 1, **arguments)
            if state["epoch"] == 1:  # fewer rows were left than the first loader takes at once
                assert state["row"] == 0
                assert then[: W2 * B2] == every[1][: W2 * B2]
            else:
                assert then[: full * W2 * B2] == every[0][len(taken) : len(taken) + full * W2 * B2]
                assert then[full * W2 * B2 :] == every[1][: W2 * B2]


def test_a_step_and_its_state_are_one_place(folder):
    loader = numpy_loader(folder, "train", 2, 16, 1, 2, shuffle=3)
    for step in (0, 1, 5, len(loader), 3 * len(loader) + 2):
        stream = loader.batches(step)
        assert stream.state_dict() == loader.state_dict(step)
        again = loader.batches(state=loader.state_dict(step))
        assert as_lists(itertools.islice(stream, 9)) == as_lists(itertools.islice(again, 9))
        assert stream.state_dict() == again.state_dict() == loader.state_dict(step + 9)
    assert loader.state_dict(2, accum=3) == loader.state_dict(6)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"seq_len": 8}, "state: seq_len is 16, this loader's is 8"),
        ({"shuffle": 2}, "state: shuffle is 1, this loader's is 2"),
        ({"shuffle": None}, "state: shuffle is 1, this loader's is None"),
        ({"align_documents": True}, "state: align_documents is False, this loader's is True"),
        ({"split": "validation"}, "state: shards is "),
    ],
)
def test_a_state_of_other_arguments_is_refused(folder, change, said):
    arguments = {"split": "train", "batch_size": 1, "seq_len": 16, "rank": 0, "world_size": 1, "shuffle": 1}
    state = numpy_loader(folder, **arguments).state_dict(3)
    with pytest.raises(ConfigError, match=said):
        numpy_loader(folder, **{**arguments, **change}).batches(state=state)


def test_a_state_of_other_shards_is_refused_and_odd_ones_are_named(folder, tmp_path):
    make(tmp_path / "other", {"train": documents(60, seed=1)}, per_shard=101)
    loader = numpy_loader(folder, "train", 1, 16)
    state = loader.state_dict(3)
    with pytest.raises(ConfigError, match="state: shards is"):
        numpy_loader(tmp_path / "other", "train", 1, 16).batches(state=state)
    for odd, said in (
        (3, "state: expected a mapping"),
        ({}, "state: version is None"),
        ({**state, "row": loader.rows + 1}, "an epoch has"),
        ({**state, "row": "1"}, "state: row '1'"),
        ({**state, "epoch": -1}, "state: epoch -1"),
    ):
        with pytest.raises(ConfigError, match=said):
            loader.batches(state=odd)
    with pytest.raises(ConfigError, match="step=2 and a state"):
        loader.batches(2, state=state)


def test_shards_without_a_manifest_have_a_state_too(tmp_path):
    make(tmp_path / "s", {"train": documents(60)}, per_shard=101)
    (tmp_path / "s" / "manifest.json").unlink()
    loader = numpy_loader(tmp_path / "s", "train", 1, 16)
    assert as_lists([next(loader.batches(state=loader.state_dict(4)))]) == as_lists([loader.batch(4)])


def test_a_loop_over_the_loader_is_one_epoch(folder):
    loader = numpy_loader(folder, "train", 2, 16, shuffle=1)
    assert as_lists(loader) == as_lists(loader.batch(i) for i in range(len(loader)))
    assert as_lists(loader.epoch(2)) == as_lists(loader.batch(2 * len(loader) + i) for i in range(len(loader)))
    assert as_lists([loader[3]]) == as_lists([loader.batch(3)])
    for outside in (-1, len(loader)):
        with pytest.raises(IndexError):
            loader[outside]


def test_rank_and_world_size_come_from_the_launcher(folder, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "3")
    loader = numpy_loader(folder, "train", 2, 16)
    assert (loader.rank, loader.world_size) == (1, 3)
    assert numpy_loader(folder, "train", 2, 16, 0, 1).world_size == 1  # what is given counts
    data = pickle.dumps(loader)
    monkeypatch.setenv("RANK", "2")
    assert pickle.loads(data).rank == 1  # a worker of rank 1 reads for rank 1
    monkeypatch.setenv("RANK", "one")
    with pytest.raises(ConfigError, match="RANK='one': expected an integer"):
        numpy_loader(folder, "train", 2, 16)
    monkeypatch.delenv("RANK")
    monkeypatch.delenv("WORLD_SIZE")
    assert (numpy_loader(folder, "train", 2, 16).rank, numpy_loader(folder, "train", 2, 16).world_size) == (0, 1)


def test_documents_of_a_run_directory_are_those_of_its_shards(folder, tmp_path):
    (tmp_path / "run.json").write_text(json.dumps({"folders": {"documents": "documents", "shards": folder.name}}))
    for own, of_run in zip(
        loader_module.documents(folder, "train"), loader_module.documents(tmp_path, "train"), strict=True
    ):
        assert own.tolist() == of_run.tolist()


def test_every_epoch_is_complete_after_a_resume_in_the_middle(folder):
    loader = numpy_loader(folder, "train", 1, 16, shuffle=5)
    n = len(loader)
    rest = as_lists(itertools.islice(loader.batches(step=n // 2), 3 * n))[n - n // 2 :]  # from epoch 1 on
    epochs = [rest[:n], rest[n : 2 * n]]
    first = as_lists(loader.batch(i) for i in range(n))
    everything = sorted(first)
    for epoch in epochs:
        assert len(epoch) == n
        # the leftover differs between shuffled epochs, by less than one batch; here every row is in every epoch
        assert sorted(epoch) == everything
        assert epoch != first


def test_two_passes_without_shuffle_are_identical_in_another_process(folder):
    code = f"""
        import hashlib
        from gpu_curate.loader import ShardLoader
        loader = ShardLoader({str(folder)!r}, "train", 2, 16, as_torch=False, shuffle=1)
        digest = hashlib.sha256()
        for i in range(2 * len(loader)):
            for a in loader.batch(i): digest.update(a.tobytes())
        print(digest.hexdigest())
    """
    run = [sys.executable, "-c", textwrap.dedent(code)]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    out = {subprocess.check_output(run, env={**env, "PYTHONHASHSEED": seed}, text=True) for seed in ("0", "1")}
    assert len(out) == 1


def test_a_copy_by_pickle_reads_the_same(folder):
    loader = numpy_loader(folder, "train", 2, 16, 1, 2, shuffle=4)
    data = pickle.dumps(loader)
    assert len(data) < 2000  # arguments, not tokens
    assert as_lists([pickle.loads(data).batch(9)]) == as_lists([loader.batch(9)])


# ---------------------------------------------------------------------------------------------------------- shuffling


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 3000), st.integers(0, 2**64 - 1))
def test_permutation_is_a_bijection(count, key):
    out = permute(np.arange(count, dtype=np.uint64), count, key)
    assert sorted(out.tolist()) == list(range(count))


def plain_permute(place, count, key):
    """A Feistel network of six rounds over the smallest even number of bits, walked until it is inside."""
    half, mask64 = max((count - 1).bit_length() + 1, 2) // 2, 2**64 - 1
    while True:
        left, right = place >> half, place & (2**half - 1)
        for r in range(6):
            mixed = (right + splitmix64(key + r)) * 0xBF58476D1CE4E5B9 & mask64
            mixed = (mixed ^ mixed >> 29) * 0xBF58476D1CE4E5B9 & mask64
            left, right = right, left ^ (mixed >> 32 & (2**half - 1))
        place = left << half | right
        if place < count:
            return place


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 2**50), st.integers(0, 2**64 - 1))
def test_permutation_equals_the_definition(count, key):
    """So that an order that a checkpoint relies on stays."""
    places = np.linspace(0, count - 1, 9).astype(np.uint64)
    assert permute(places, count, key).tolist() == [plain_permute(p, count, key) for p in places.tolist()]


def test_permutation_of_a_huge_range_stays_inside_and_spreads():
    count = (1 << 40) + 12345
    out = permute(np.arange(100_000, dtype=np.uint64), count, 42)
    assert out.max() < count
    assert len(np.unique(out)) == 100_000
    # uniform: the mean of n draws from 0..1 lies within 5 sigma = 5 / sqrt(12 n)
    assert abs(out.mean() / count - 0.5) < 5 / np.sqrt(12 * 100_000)


def test_shuffled_rows_do_not_follow_their_places():
    n = 20_000
    for key in (0, 1, 2**63):
        out = permute(np.arange(n, dtype=np.uint64), n, key).astype(float)
        correlation = np.corrcoef(np.arange(n), out)[0, 1]
        assert abs(correlation) < 5 / np.sqrt(n)  # 5 sigma of the correlation of independent draws


def test_shuffle_changes_with_seed_and_epoch_and_not_with_world_size(folder):
    def order(shuffle, world, epoch=0):
        loaders = [numpy_loader(folder, "train", 1, 16, r, world, shuffle=shuffle) for r in range(world)]
        n = len(loaders[0])
        return [tuple(ld.batch(epoch * n + i)[0][0].tolist()) for i in range(n) for ld in loaders]

    assert order(1, 1) != order(2, 1)
    assert order(1, 1) != order(1, 1, epoch=1)
    assert order(1, 2) == order(1, 1)[: len(order(1, 2))]


# ---------------------------------------------------------------------------------------------------------- alignment


def plain_aligned_starts(docs, T):
    """The definition: at a document's start, or inside one that has T + 1 tokens left."""
    bounds = list(itertools.accumulate((len(d) + 1 for d in docs), initial=0))
    starts, at = [], 0
    while at + T + 1 <= bounds[-1]:
        starts.append(at)
        at += T
        inside = max(b for b in bounds[:-1] if b <= at) if at < bounds[-1] else bounds[-1]
        after = min((b for b in bounds if b > at), default=bounds[-1])
        if inside != at and after - at < T + 1:
            at = after
    return starts


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 30), min_size=1, max_size=20), st.integers(1, 17))
def test_aligned_rows_equal_the_definition(tmp_path_factory, lens, T):
    docs = [[i % EOT] * n for i, n in enumerate(lens)]
    folder = tmp_path_factory.mktemp("s")
    stream = make(folder, {"train": docs}, per_shard=29)["train"]
    starts = plain_aligned_starts(docs, T)
    if not starts:
        with pytest.raises(ConfigError, match="fewer than one batch"):
            numpy_loader(folder, "train", 1, T, align_documents=True)
        return
    loader = numpy_loader(folder, "train", 1, T, align_documents=True)
    got = as_lists(loader.batch(i) for i in range(len(loader)))
    assert got == [([stream[s : s + T].tolist()], [stream[s + 1 : s + T + 1].tolist()]) for s in starts]
    assert loader.leftover_tokens == len(stream) - 1 - len(starts) * T


def test_three_documents_of_ten_tokens_and_rows_of_sixteen(tmp_path):
    docs = [list(range(10 * i, 10 * i + 9)) for i in range(4)]
    make(tmp_path / "s", {"train": docs})
    rows = numpy_loader(tmp_path / "s", "train", 1, 16, align_documents=True)
    assert [rows.batch(i)[0][0, 0] for i in range(len(rows))] == [0, 20]
    rows = numpy_loader(tmp_path / "s", "train", 1, 16)
    assert [rows.batch(i)[0][0, 0] for i in range(len(rows))] == [0, 16]


def test_alignment_without_documents_parquet_is_an_error(folder):
    (folder / "documents.parquet").unlink()
    with pytest.raises(ConfigError, match=r"documents\.parquet: no such file"):
        numpy_loader(folder, "train", 1, 8, align_documents=True)


# ------------------------------------------------------------------------------------------------------------- opening


def test_val_and_validation_are_one_split(folder):
    a, b = numpy_loader(folder, "val", 1, 8), numpy_loader(folder, "validation", 1, 8)
    assert as_lists([a.batch(0)]) == as_lists([b.batch(0)])


def test_a_plain_folder_of_llmc_shards_needs_no_manifest(tmp_path):
    stream = np.arange(500, dtype=np.uint16)
    for number in range(5):
        FORMATS["llmc"].write(tmp_path / f"fineweb_train_{number:06d}.bin", stream[number * 100 : number * 100 + 100])
    FORMATS["llmc"].write(tmp_path / "fineweb_val_000000.bin", stream[:50])
    loader = numpy_loader(tmp_path, "train", 2, 32)
    assert as_lists(loader.batch(i) for i in range(len(loader))) == list(plain_batches(stream, 2, 32, 1, 0, 1))
    assert numpy_loader(tmp_path, "val", 1, 32).tokens == 50
    assert info(tmp_path)["splits"]["train"] == {"tokens": 500, "documents": None, "shards": 5, "bytes": 5 * 1224}


def test_a_tokenizer_of_another_hash_is_refused(folder, tmp_path):
    assert len(numpy_loader(folder, "train", 1, 8, tokenizer_sha256=TOKENIZER))
    with pytest.raises(ConfigError, match=f"made with tokenizer sha256 {TOKENIZER}"):
        numpy_loader(folder, "train", 1, 8, tokenizer_sha256="cd" * 32)
    path = folder / "manifest.json"
    written = path.read_bytes()
    path.write_text(json.dumps({**json.loads(written), "tokenizer": None}))
    with pytest.raises(ConfigError, match="names no tokenizer, so the tokenizer cannot be checked"):
        numpy_loader(folder, "train", 1, 8, tokenizer_sha256=TOKENIZER)
    path.write_bytes(written)
    FORMATS["llmc"].write(make_folder(tmp_path) / "train.bin", np.arange(99, dtype=np.uint16))
    with pytest.raises(ConfigError, match="cannot be checked"):
        numpy_loader(tmp_path / "p", "train", 1, 8, tokenizer_sha256=TOKENIZER)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("test", 1, 8), "split 'test'"),
        (("train", 0, 8), "batch_size 0"),
        (("train", 1, 0), "seq_len 0"),
        (("train", 1, 8, 2, 2), "rank 2 in 0..1"),
        (("train", 1, 8, -1, 2), "rank -1"),
        (("train", 64, 1024), "fewer than one batch of 64 rows"),
        (("train", "4", 8), "batch_size '4': expected an integer, got str"),
        (("train", 4.0, 8), r"batch_size 4\.0: expected an integer"),
        (("train", True, 8), "batch_size True: expected an integer"),
        (("train", 1, None), "seq_len None: expected an integer"),
        (("train", 1, 8, 0.0, 2), r"rank 0\.0: expected an integer"),
        (("train", 1, 8, 0, "2"), "world_size '2': expected an integer"),
        (("train", 1, 8, 0, 0), "rank 0 in 0..-1"),
    ],
)
def test_arguments_out_of_range_are_named(folder, arguments, message):
    with pytest.raises(ConfigError, match=message):
        numpy_loader(folder, *arguments)


@pytest.mark.parametrize("shuffle", ["x", 1.0, True, False])
def test_a_shuffle_seed_is_an_integer(folder, shuffle):
    with pytest.raises(ConfigError, match=f"shuffle {shuffle!r}: expected an integer"):
        numpy_loader(folder, "train", 1, 8, shuffle=shuffle)


def test_positions_are_integers_numpys_too(folder):
    loader = numpy_loader(folder, "train", np.int64(1), np.uint16(8), np.int32(0), np.int64(1), shuffle=np.uint64(3))
    plain = numpy_loader(folder, "train", 1, 8, shuffle=3)
    assert as_lists([loader.batch(np.uint8(2))]) == as_lists([plain.batch(2)])
    for call, said in (
        (lambda: plain.batch(1.5), r"batch 1\.5"),
        (lambda: plain.batch("1"), "batch '1'"),
        (lambda: next(plain.batches(1.0)), r"step 1\.0"),
        (lambda: next(plain.batches(0, True)), "accum True"),
        (lambda: next(plain.batches(-2)), "step -2 must not be negative"),
    ):
        with pytest.raises(ConfigError, match=said):
            call()


def test_negative_positions_are_refused(folder):
    loader = numpy_loader(folder, "train", 1, 8)
    for call in (lambda: loader.batch(-1), lambda: next(loader.batches(-1)), lambda: next(loader.batches(0, 0))):
        with pytest.raises(ConfigError):
            call()


def test_missing_folder_empty_folder_and_foreign_manifests_are_named(tmp_path):
    with pytest.raises(ConfigError, match="no such folder"):
        numpy_loader(tmp_path / "none", "train", 1, 8)
    with pytest.raises(ConfigError, match="no shard of split train"):
        numpy_loader(tmp_path, "train", 1, 8)
    for text, message in (("{", "not a manifest"), ('{"version": 1}', "not a manifest"), ("[]", "not a manifest")):
        (tmp_path / "manifest.json").write_text(text)
        with pytest.raises(FatalError, match=message):
            numpy_loader(tmp_path, "train", 1, 8)
    (tmp_path / "manifest.json").write_text(
        '{"version": 2, "format": "llmc", "dtype": "uint16", "eot_id": 0, "vocab_size": 1, "splits": {}}'
    )
    with pytest.raises(FatalError, match="version 2"):
        numpy_loader(tmp_path, "train", 1, 8)


def test_shards_of_two_types_of_ids_are_not_read_as_one(tmp_path):
    FORMATS["llmc"].write(tmp_path / "a_train_0.bin", np.arange(50, dtype=np.uint16))
    FORMATS["llmc"].write(tmp_path / "a_train_1.bin", np.arange(50, dtype=np.uint32))
    with pytest.raises(FatalError, match=r"a_train_1\.bin: holds uint32 ids, .*a_train_0\.bin uint16"):
        numpy_loader(tmp_path, "train", 1, 8)


def test_more_shards_than_descriptors_are_opened(tmp_path):
    """A mapping keeps no descriptor: 1,024 are what a process usually has."""
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for number in range(200):
        FORMATS["llmc"].write(tmp_path / f"train_{number:06d}.bin", np.full(10, number, np.uint16))
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(100, soft), hard))
    try:
        loader = numpy_loader(tmp_path, "train", 1, 10, shuffle=1)
        assert len({int(x[0, 0]) for x, _ in loader}) == 199
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_cut_shard_stops_the_loader_before_the_first_batch(folder):
    path = folder / "train_000001.bin"
    os.truncate(path, path.stat().st_size - 5)
    with pytest.raises(FatalError, match=r"train_000001\.bin: \d+ bytes, expected"):
        numpy_loader(folder, "train", 1, 8)


# --------------------------------------------------------------------------------------------------------------- torch


def test_without_torch_asking_for_tensors_is_an_error(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setattr(loader_arguments.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="torch is not installed"):
        ShardLoader(folder, "train", 1, 8, as_torch=True)
    assert isinstance(ShardLoader(folder, "train", 1, 8).batch(0)[0], np.ndarray)


def test_tensors_hold_what_the_arrays_hold(folder):
    torch = pytest.importorskip("torch")
    x, y = ShardLoader(folder, "train", 2, 8).batch(3)
    assert x.dtype == y.dtype == torch.int64
    assert as_lists([(x.numpy(), y.numpy())]) == as_lists([numpy_loader(folder, "train", 2, 8).batch(3)])


@pytest.mark.parametrize("workers", [0, 1, 2, 3])
def test_torch_workers_and_ranks_give_the_stream_of_one_process(folder, workers):
    data = pytest.importorskip("torch.utils.data")
    from gpu_curate.torch_dataset import torch_dataset

    for rank in range(2):
        loader = ShardLoader(folder, "train", 1, 16, rank, 2, shuffle=2)
        dataset = torch_dataset(loader, step=4, accum=2, num_batches=13)  # 13 over 2 or 3 workers: uneven
        got = [(x, y) for x, y in data.DataLoader(dataset, batch_size=None, num_workers=workers)]
        assert as_lists(got) == as_lists(loader.batch(8 + i) for i in range(13))


@pytest.mark.parametrize("workers", [0, 2])
def test_a_torch_dataset_goes_on_from_the_state_of_other_ranks(folder, workers):
    data = pytest.importorskip("torch.utils.data")
    from gpu_curate.torch_dataset import torch_dataset

    before = torch_dataset(ShardLoader(folder, "train", 1, 16, 1, 3, shuffle=2), num_batches=5)
    state = before.state_after(5)
    loader = ShardLoader(folder, "train", 2, 16, shuffle=2, rank=0, world_size=1)
    dataset = torch_dataset(loader, num_batches=4, state=state)
    got = [(x, y) for x, y in data.DataLoader(dataset, batch_size=None, num_workers=workers)]
    assert as_lists(got) == as_lists(itertools.islice(loader.batches(state=state), 4))


def test_a_torch_data_loader_takes_the_loader_as_a_sequence(folder):
    data = pytest.importorskip("torch.utils.data")

    loader = ShardLoader(folder, "train", 2, 16)
    assert as_lists(data.DataLoader(loader, batch_size=None)) == as_lists(loader)


def test_a_torch_dataset_reaches_spawned_workers(folder):
    data = pytest.importorskip("torch.utils.data")
    from gpu_curate.torch_dataset import torch_dataset

    loader = ShardLoader(folder, "train", 1, 16)
    workers = {"num_workers": 1, "multiprocessing_context": "spawn"}
    got = list(data.DataLoader(torch_dataset(loader, num_batches=3), batch_size=None, **workers))
    assert as_lists(got) == as_lists(loader.batch(i) for i in range(3))


# -------------------------------------------------------------------------------------------------------------- verify


@pytest.mark.parametrize("format", list(FORMATS))
def test_verify_finds_nothing_in_a_sound_folder(tmp_path, format):
    make(tmp_path / "s", {"train": documents(60), "validation": documents(9, 1)}, per_shard=101, format=format)
    assert verify(tmp_path / "s") == []


def edit(folder, change):
    manifest = json.loads((folder / "manifest.json").read_text())
    change(manifest)
    (folder / "manifest.json").write_text(json.dumps(manifest))


def flip(folder, name, offset, value):
    data = bytearray((folder / name).read_bytes())
    data[offset : offset + len(value)] = value
    (folder / name).write_bytes(data)


def rewrite_documents(folder, change):
    """change: what to do to the columns, given as a mapping of lists."""
    columns = pq.read_table(folder / "documents.parquet").to_pydict()
    change(columns)
    pq.write_table(pa.table(columns), folder / "documents.parquet")


def replace_by_folder(path):
    path.unlink()
    path.mkdir()


def add(column, row, number):
    return lambda columns: columns[column].__setitem__(row, columns[column][row] + number)


DAMAGE = {
    "a flipped token": (lambda f: flip(f, "train_000000.bin", 1024 + 4, b"\x01\x00"), "train_000000.bin", "sha256"),
    "an id out of range": (
        lambda f: flip(f, "train_000000.bin", 1024, b"\xff\xff"),
        "train_000000.bin",
        "65535, vocab",
    ),
    "an EOT too many": (
        lambda f: flip(f, "train_000000.bin", 1024, b"\xe7\x03"),
        "split train",
        "61 end-of-text tokens",
    ),
    "a cut file": (lambda f: os.truncate(f / "train_000002.bin", 1100), "train_000002.bin", "1100 bytes, expected"),
    "a missing file": (lambda f: (f / "val_000000.bin").unlink(), "val_000000.bin", "No such file"),
    "a shard nobody named": (
        lambda f: (f / "train_000999.bin").write_bytes(b""),
        "train_000999.bin",
        "not in the manif",
    ),
    "a wrong sum": (lambda f: edit(f, lambda m: m["splits"]["train"].update(tokens=5)), "manifest.json", "add up to"),
    "a wrong size": (
        lambda f: edit(f, lambda m: m["splits"]["train"]["shards"][0].update(bytes=5)),
        "train_000000.bin",
        "5",
    ),
    "a wrong shard length": (
        lambda f: edit(f, lambda m: m.update(tokens_per_shard=100)),
        "train_000000.bin",
        "tokens_per",
    ),
    "a wrong header": (lambda f: flip(f, "train_000000.bin", 0, b"\0"), "train_000000.bin", "magic"),
    "a document too few": (
        lambda f: rewrite_documents(f, lambda c: [v.pop(0) for v in c.values()]),
        "documents.parquet",
        "59 rows",
    ),
    "a gap": (lambda f: rewrite_documents(f, add("position", 3, 1)), "documents.parquet", "train: document 3 at"),
    "a cut documents.parquet": (
        lambda f: os.truncate(f / "documents.parquet", (f / "documents.parquet").stat().st_size // 2),
        "documents.parquet",
        "cannot be read",
    ),
    "an empty documents.parquet": (
        lambda f: os.truncate(f / "documents.parquet", 0),
        "documents.parquet",
        "cannot be read",
    ),
    "a folder for documents.parquet": (lambda f: replace_by_folder(f / "documents.parquet"), "documents.parquet", ""),
    "no column of tokens": (
        lambda f: rewrite_documents(f, lambda c: c.pop("tokens")),
        "documents.parquet",
        "cannot be read",
    ),
    "a position that is null": (
        lambda f: rewrite_documents(f, lambda c: c["position"].__setitem__(3, None)),
        "documents.parquet",
        "1 nulls in",
    ),
    "positions in words": (
        lambda f: rewrite_documents(f, lambda c: c.update(position=["x"] * len(c["position"]))),
        "documents.parquet",
        "cannot be read",
    ),
    "a folder for a shard": (
        lambda f: replace_by_folder(f / "train_000001.bin"),
        "train_000001.bin",
        "a folder, expected a shard",
    ),
    "no tokenizer": (lambda f: (f / "tokenizer.json").unlink(), "tokenizer.json", "No such file"),
    "another tokenizer": (lambda f: flip(f, "tokenizer.json", 2, b"n"), "tokenizer.json", "sha256"),
    "a tokenizer unnamed": (lambda f: edit(f, lambda m: m.pop("tokenizer")), "manifest.json", "names no tokenizer"),
    "a tokenizer without sha256": (
        lambda f: edit(f, lambda m: m["tokenizer"].pop("sha256")),
        "manifest.json",
        "tokenizer.sha256: None",
    ),
    "no manifest in manifest.json": (lambda f: os.truncate(f / "manifest.json", 9), "manifest.json", "not a manifest"),
    "a dtype unknown": (lambda f: edit(f, lambda m: m.update(dtype="x")), "manifest.json", "dtype: 'x'"),
    "a dtype of signed": (lambda f: edit(f, lambda m: m.update(dtype=["i4"])), "manifest.json", "dtype: ['i4']"),
    "a split of null": (
        lambda f: edit(f, lambda m: m["splits"].update(train=None)),
        "manifest.json",
        "splits.train: expected a mapping, got None",
    ),
    "a split unknown": (lambda f: edit(f, lambda m: m["splits"].update(test={})), "manifest.json", "splits: "),
    "no splits": (lambda f: edit(f, lambda m: m.update(splits=None)), "manifest.json", "splits: None"),
    "no shards": (
        lambda f: edit(f, lambda m: m["splits"]["train"].pop("shards")),
        "manifest.json",
        "splits.train.shards: None",
    ),
    "a shard without sha256": (
        lambda f: edit(f, lambda m: m["splits"]["train"]["shards"][1].pop("sha256")),
        "manifest.json",
        "splits.train.shards.1.sha256: None",
    ),
    "a shard elsewhere": (
        lambda f: edit(f, lambda m: m["splits"]["train"]["shards"][0].update(file="../train_000000.bin")),
        "manifest.json",
        "splits.train.shards.0.file: '../train_000000.bin'",
    ),
    "tokens below zero": (
        lambda f: edit(f, lambda m: m["splits"]["train"].update(tokens=-1)),
        "manifest.json",
        "splits.train.tokens: -1",
    ),
    "a shard size of zero": (
        lambda f: edit(f, lambda m: m.update(tokens_per_shard=0)),
        "manifest.json",
        "tokens_per_shard: 0",
    ),
    "an EOT of text": (lambda f: edit(f, lambda m: m.update(eot_id="0")), "manifest.json", "eot_id: '0'"),
    "a vocabulary of true": (lambda f: edit(f, lambda m: m.update(vocab_size=True)), "manifest.json", "vocab_size"),
    "no documents.parquet": (lambda f: (f / "documents.parquet").unlink(), "documents.parquet", "no such file"),
}


@pytest.mark.parametrize("what", list(DAMAGE))
def test_verify_names(folder, what):
    damage, file, message = DAMAGE[what]
    damage(folder)
    assert any(f.file == file and message in f.what for f in verify(folder)), verify(folder)


def test_verify_finds_a_document_that_does_not_end_where_it_should(folder):
    """Lengths moved between two documents: the tiles fit, the end-of-text token is elsewhere."""

    for change in (add("tokens", 1, 1), add("position", 2, 1), add("tokens", 2, -1)):
        rewrite_documents(folder, change)
    assert ["do not end in 999" in finding.what for finding in verify(folder)] == [True]


def test_verify_checks_the_megatron_index(tmp_path):
    make(tmp_path / "s", {"train": documents(20)}, format="megatron")
    data = bytearray((tmp_path / "s" / "train_000000.idx").read_bytes())
    data[-8] ^= 1
    (tmp_path / "s" / "train_000000.idx").write_bytes(data)
    assert verify(tmp_path / "s")[0].file == "train_000000.idx"


@pytest.mark.parametrize("format", list(FORMATS))
@pytest.mark.parametrize("name", ["train_000000.bin", "train_000000.idx", "tokenizer.json", "manifest.json"])
def test_verify_reports_a_folder_in_the_place_of_any_file(tmp_path, format, name):
    make(tmp_path / "s", {"train": documents(20)}, format=format)
    if (tmp_path / "s" / name).exists():
        replace_by_folder(tmp_path / "s" / name)
        assert verify(tmp_path / "s")


def test_verify_needs_a_manifest(tmp_path):
    with pytest.raises(ConfigError, match=r"no manifest\.json"):
        verify(tmp_path)


def test_info_and_head_describe_the_folder(folder):
    docs = documents(60)
    described = info(folder)
    assert described["splits"]["train"]["documents"] == 60
    assert described["splits"]["train"]["tokens"] == sum(len(d) + 1 for d in docs)
    assert described["tokenizer"]["sha256"] == TOKENIZER
    rows = head(folder, 5, decode=lambda ids: " ".join(map(str, ids)))
    assert [row["ids"].tolist() for row in rows] == [[*d, EOT] for d in docs[:5]]
    assert rows[1]["text"] == " ".join(map(str, docs[1]))
    assert rows[4]["row"] == 4
    assert len(head(folder, 100, "validation")) == 9
    assert head(folder, 0) == []
    assert (
        hashlib.sha256((folder / "train_000000.bin").read_bytes()).hexdigest()
        == json.loads((folder / "manifest.json").read_text())["splits"]["train"]["shards"][0]["sha256"]
    )


# ---------------------------------------------------------------------------------------------------------------- rows


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(0, 20), min_size=1, max_size=9),
    st.integers(1, 12),
    st.sampled_from([np.uint16, np.uint32]),
    st.data(),
)
def test_gathered_rows_equal_slices_of_the_stream_wherever_shards_end(lens, T, dtype, data):
    length = sum(lens)
    stream = np.random.default_rng(length).integers(0, np.iinfo(dtype).max, length, dtype, endpoint=True)
    starts = np.cumsum([0, *lens])
    shards = [stream[a:b].copy() for a, b in itertools.pairwise(starts)]
    if length < T + 1:
        return
    first = np.array(data.draw(st.lists(st.integers(0, length - T - 1), max_size=5)), np.int64)
    x, y = (np.zeros((len(first), T), np.int64) for _ in range(2))
    Rows(shards, starts.tolist()).gather(first, x, y, np.arange(len(first)))
    assert x.tolist() == [stream[f : f + T].tolist() for f in first]
    assert y.tolist() == [stream[f + 1 : f + T + 1].tolist() for f in first]


@pytest.mark.parametrize(
    "options", [{}, {"shuffle": 2}, {"align_documents": True}, {"shuffle": 2, "random_offsets": True}]
)
def test_row_starts_are_where_the_rows_are(folder, options):
    loader = numpy_loader(folder, "train", 2, 16, 1, 2, **options)
    for i in (0, 3, len(loader) + 1):
        x, _ = loader.batch(i)
        assert [loader.stream.read(s, s + 16).tolist() for s in loader.row_starts(i).tolist()] == x.tolist()
    with pytest.raises(ConfigError, match="pieces of documents"):
        numpy_loader(folder, "train", 1, 16, packing="best_fit").row_starts(0)
