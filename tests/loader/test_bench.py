"""`gpu-curate shards bench`: every way is there, and the numbers belong together."""

import json

import pytest
from token_shards import documents, make
from typer.testing import CliRunner

from gpu_curate.cli import app
from gpu_curate.errors import ConfigError
from gpu_curate.tools.loader_bench import BASELINE, bench


@pytest.fixture
def folder(tmp_path):
    make(tmp_path / "s", {"train": documents(200)}, per_shard=1000)
    return tmp_path / "s"


def test_every_way_is_measured_cold_and_warm(folder):
    speeds = {s.case: s for s in bench(folder, batch_size=2, seq_len=16, batches=20, rounds=1)}
    assert list(speeds)[:2] == [BASELINE, "nanoGPT, random rows"]
    assert {"in order", "shuffled rows", "in order, boundaries", "aligned rows", "best fit"} <= set(speeds)
    assert speeds[BASELINE].ratio == 1.0
    for s in speeds.values():
        assert s.cold > 0
        assert s.ratio == pytest.approx(s.warm / speeds[BASELINE].warm)


def test_the_command_prints_a_table_and_json(folder):
    words = [
        "shards",
        "bench",
        str(folder),
        "--batch-size",
        "2",
        "--seq-len",
        "16",
        "--batches",
        "5",
        "--rounds",
        "1",
        "--no-cold",
    ]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    assert "in order, boundaries" in done.output
    found = json.loads(CliRunner().invoke(app, [*words, "--json"]).output)
    assert all(s["cold"] is None and s["warm"] > 0 for s in found)


def test_without_documents_parquet_only_the_stream_is_measured(folder):
    (folder / "documents.parquet").unlink()
    cases = [s.case for s in bench(folder, batch_size=2, seq_len=16, batches=5, rounds=1, cold=False)]
    assert cases == [BASELINE, "nanoGPT, random rows", "in order", "shuffled rows"]


def test_too_few_batches_are_named(folder):
    with pytest.raises(ConfigError, match=r"holds \d+ batches of 16 x 1024, fewer than 200"):
        bench(folder)
