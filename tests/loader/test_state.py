"""Restoring: at every batch, over ranks and workers; twice in a row; after a kill; batches read ahead."""

import itertools
import json
import os
import signal
import subprocess
import sys
import textwrap

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from token_shards import documents, make

from gpu_curate.errors import ConfigError
from gpu_curate.loader import ShardLoader
from gpu_curate.loader.mixture import MixtureLoader

T = 16
OPTIONS = [
    {},
    {"shuffle": 5},
    {"shuffle": 5, "shuffle_buffer": 7},
    {"shuffle": 5, "random_offsets": True},
    {"shuffle": 5, "packing": "best_fit"},
    {"packing": "pad", "labels": "document"},
    {"align_documents": True, "shuffle": 1},
    {"shuffle": 2, "boundaries": True, "labels": "document"},
    {"curriculum": {0: 4, 500: 16}},
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("s") / "s"
    make(folder, {"train": documents(60)}, per_shard=101)
    return folder


def flat(batch):
    x, y = batch
    return [*zip(np.asarray(x).reshape(-1, T).tolist(), np.asarray(y).reshape(-1, T).tolist(), strict=True)]


def rows_of(folder, W, B, state, batches, options):
    """Rows that W ranks together take, in order, and the state behind them."""
    ranks = [ShardLoader(folder, "train", B, T, r, W, as_torch=False, **options) for r in range(W)]
    streams = [loader.batches(state=state) for loader in ranks]
    rows = [row for _ in range(batches) for stream in streams for row in flat(next(stream))]
    return rows, json.loads(json.dumps(streams[-1].state_dict()))


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from(OPTIONS),
    st.lists(st.tuples(st.sampled_from([1, 2, 4, 8]), st.integers(1, 2), st.integers(0, 3)), max_size=4),
)
def test_restored_at_any_batch_by_other_ranks_the_rows_go_on_in_the_same_order(folder, options, legs):
    """Each leg is a run of W ranks with B rows each for some batches, from the state of the one before."""
    one = ShardLoader(folder, "train", 1, T, 0, 1, as_torch=False, **options)
    epochs = [[row for i in range(one.rows) for row in flat(one.batch(e * one.rows + i))] for e in range(3)]
    state, epoch, at = None, 0, 0
    for W, B, batches in legs:
        got, state = rows_of(folder, W, B, state, batches, options)
        for i in range(batches + 1):
            if at + W * B > one.rows:  # the rule: rows that do not fill a batch of all ranks are left out of an epoch
                epoch, at = epoch + 1, 0
            if i == batches:
                break
            if epoch < 3 and "curriculum" not in options:
                assert got[i * W * B : (i + 1) * W * B] == epochs[epoch][at : at + W * B]
            at += W * B
    if "curriculum" in options:  # lengths hold for a whole batch, so rows are compared where batches are equal
        a, _ = rows_of(folder, 2, 1, None, 6, options)
        b, state = rows_of(folder, 2, 1, None, 3, options)
        assert a == b + rows_of(folder, 2, 1, state, 3, options)[0]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_restored_at_every_batch_and_twice_in_a_row(folder, options):
    loader = ShardLoader(folder, "train", 2, T, 1, 2, as_torch=False, **options)
    count = len(loader) + 3
    whole = [flat(b) for b in itertools.islice(loader.batches(), count)]
    for n in range(count):
        first = loader.batches(state=loader.state_dict(n))
        assert first.state_dict() == loader.state_dict(n)
        begun = [flat(next(first))]
        again = ShardLoader(folder, "train", 2, T, 1, 2, as_torch=False, **options).batches(state=first.state_dict())
        assert begun + [flat(b) for b in itertools.islice(again, count - n - 1)] == whole[n:]


@pytest.mark.parametrize("workers", [0, 1, 3])
@pytest.mark.parametrize("kind", ["one", "mixture"])
def test_restored_in_workers_the_stream_is_that_of_one_process(folder, workers, kind, monkeypatch):
    """The workers' part of the data set, without their processes: test_shard_loader.py has those."""
    pytest.importorskip("torch")
    from types import SimpleNamespace

    from gpu_curate import torch_dataset as module

    def loader():
        if kind == "one":
            return ShardLoader(folder, "train", 2, T, 1, 2, as_torch=False, shuffle=3)
        parts = {"a": folder, "b": {"directory": folder, "sources": "s"}}
        return MixtureLoader(parts, "train", 2, T, 1, 2, weights={"a": 2, "b": 1}, max_epochs=4.0, as_torch=False)

    whole = [flat(b) for b in itertools.islice(loader().batches(), 12)]
    for n in range(12):
        data = module.torch_dataset(loader(), num_batches=12 - n, state=module.torch_dataset(loader()).state_after(n))
        parts = []
        for w in range(max(workers, 1)):
            info = None if workers == 0 else SimpleNamespace(id=w, num_workers=workers)
            monkeypatch.setattr(module, "get_worker_info", lambda info=info: info)
            parts.append([flat(b) for b in data])
        got = [b for turn in itertools.zip_longest(*parts) for b in turn if b is not None]  # as DataLoader asks in turn
        assert got == whole[n:]


# ------------------------------------------------------------------------------------------------------------- training

TRAIN = """
import json, os, signal, sys
import torch
from gpu_curate.loader import ShardLoader

def train(shards, folder, steps, kill_at=None):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = torch.nn.Sequential(torch.nn.Embedding(1000, 8), torch.nn.Linear(8, 1000))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    loader = ShardLoader(shards, "train", 2, 16, 0, 1, shuffle=1, packing="best_fit", labels="document")
    path, state, step = os.path.join(folder, "checkpoint.pt"), None, 0
    if os.path.exists(path):
        saved = torch.load(path)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        state, step = saved["loader"], saved["step"]
    stream = loader.batches(state=state)
    losses = []
    while step < steps:
        x, y = next(stream)
        loss = torch.nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        losses.append((step, loss.item()))
        if step % 7 == 0:
            saved = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "loader": stream.state_dict(), "step": step}
            torch.save(saved, path + ".new")
            os.replace(path + ".new", path)
        if step == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
    return losses
"""


def test_a_training_loop_killed_at_step_30_goes_on_with_the_same_losses(folder, tmp_path):
    pytest.importorskip("torch")
    names = {}
    exec(TRAIN, names)
    for name in ("whole", "killed"):
        (tmp_path / name).mkdir()
    whole = names["train"](str(folder), str(tmp_path / "whole"), 60)
    code = TRAIN + f"\ntrain({str(folder)!r}, {str(tmp_path / 'killed')!r}, 60, kill_at=30)"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], env=env, check=False)
    assert done.returncode == -signal.SIGKILL
    rest = names["train"](str(folder), str(tmp_path / "killed"), 60)
    assert rest[0][0] == 29  # the checkpoint of step 28
    assert rest == whole[28:]


# ------------------------------------------------------------------------------------------------------------- prefetch


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("dtype", [np.uint16, np.uint32])
def test_batches_read_ahead_are_the_loaders_and_the_state_counts_what_was_handed_out(tmp_path, options, dtype):
    torch = pytest.importorskip("torch")
    from gpu_curate.loader.prefetch import Prefetcher

    docs = [[t + (65_000 if dtype == np.uint32 else 0) for t in d] for d in documents(60)]
    make(tmp_path / "s", {"train": docs}, per_shard=101, dtype=dtype, vocab=70_000)
    loader = ShardLoader(tmp_path / "s", "train", 2, T, as_torch=True, **options)
    start = loader.batches()
    next(start)
    with Prefetcher(start, "cpu", depth=2) as ahead:
        for i in range(1, len(loader) + 2):
            assert ahead.state_dict() == loader.state_dict(i)
            got, expected = next(ahead), loader.batch(i)
            for a, b in zip(got, expected, strict=True):
                assert a.dtype == torch.int64
                assert a.tolist() == b.tolist()
            if options.get("boundaries"):
                for name in ("position_ids", "document_ids", "cu_seqlens", "max_seqlen"):
                    a, b = getattr(got, name), getattr(expected, name)
                    assert torch.equal(torch.as_tensor(a), torch.as_tensor(b)), name
                    assert torch.as_tensor(a).dtype == torch.as_tensor(b).dtype


def test_an_error_of_the_reader_reaches_the_training_loop(folder):
    pytest.importorskip("torch")
    from gpu_curate.loader.prefetch import Prefetcher

    loader = MixtureLoader({"a": folder}, "train", 2, T, weights={"a": 1}, as_torch=True)
    ahead = Prefetcher(loader.batches(), "cpu")
    with pytest.raises(ConfigError, match="source a runs out"):
        for _ in ahead:
            pass
    with pytest.raises(ConfigError, match="closed"):
        next(ahead)
    with pytest.raises(ConfigError, match="depth 0"):
        Prefetcher(loader.batches(), "cpu", depth=0)


@pytest.mark.parametrize("kind", ["one", "mixture"])
def test_a_state_costs_no_look_at_the_shards(folder, kind, monkeypatch):
    """What all states of a loader share is found when it is made: a hash over 25,000 shards takes longer than a state may."""
    if kind == "one":
        loader = ShardLoader(folder, "train", 2, T, as_torch=False)
    else:
        loader = MixtureLoader({"a": folder}, "train", 2, T, weights={"a": 1}, as_torch=False)
    monkeypatch.setattr(type(loader), "_identity", lambda self: pytest.fail("found anew"))
    assert loader.batches().state_dict()["row"] == 0
