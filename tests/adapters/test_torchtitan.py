"""What torchtitan's trainer does with a data set, in a few lines of it."""

import itertools
import json

import pytest
from token_shards import EOT, documents, make

from gpu_curate.errors import ConfigError

torch = pytest.importorskip("torch")

from gpu_curate.adapters.torchtitan import TorchtitanDataset  # noqa: E402

T = 16


@pytest.fixture
def folder(tmp_path):
    make(tmp_path / "s", {"train": documents(60, seed=3)}, per_shard=101)
    return tmp_path / "s"


def samples(dataset, count):
    found = itertools.islice(iter(dataset), count)
    return [(d["input"].tolist(), d["positions"].tolist(), labels.tolist()) for d, labels in found]


def test_a_batch_is_what_the_trainer_takes(folder):
    loader = torch.utils.data.DataLoader(TorchtitanDataset(folder, T), batch_size=3)
    for input_dict, labels in itertools.islice(loader, 4):  # trainer.py: for input_dict, labels in data_iterator
        inputs = input_dict["input"]
        assert inputs.shape == labels.shape == input_dict["positions"].shape == (3, T)
        assert inputs.dtype == labels.dtype == input_dict["positions"].dtype == torch.int64
        for row, positions, targets in zip(inputs, input_dict["positions"], labels, strict=True):
            for t in range(T - 1):
                ends = int(row[t]) == EOT
                assert int(positions[t + 1]) == (0 if ends else int(positions[t]) + 1)
                assert int(targets[t]) == (-100 if ends else int(row[t + 1]))


def test_states_go_on_twice_in_a_row_and_over_other_ranks(folder):
    whole = samples(TorchtitanDataset(folder, T, shuffle=1), 80)
    state, got = None, []
    for count in (3, 5, 1, 60):
        dataset = TorchtitanDataset(folder, T, shuffle=1)
        if state is not None:
            dataset.load_state_dict(state)
            assert dataset.state_dict() == state
        got += samples(dataset, count)
        state = json.loads(json.dumps(dataset.state_dict()))
    assert got == whole[: len(got)]
    ranks = [TorchtitanDataset(folder, T, r, 2, shuffle=1) for r in range(2)]
    for dataset in ranks:
        dataset.load_state_dict(TorchtitanDataset(folder, T, shuffle=1)._loader.state_dict(8))
    turns = zip(*(samples(dataset, 5) for dataset in ranks), strict=True)
    assert [s for turn in turns for s in turn] == whole[8:18]


def test_one_epoch_ends(folder):
    dataset = TorchtitanDataset(folder, T, infinite=False, packing="best_fit")
    assert len(samples(dataset, 10_000)) == dataset._loader.rows


def test_several_workers_are_refused(folder):
    loader = torch.utils.data.DataLoader(TorchtitanDataset(folder, T), batch_size=1, num_workers=2)
    with pytest.raises(ConfigError, match="2 workers: each would read the same samples"):
        next(iter(loader))
