"""How sources are cut into tasks when the network fails meanwhile."""

from __future__ import annotations

import time
from collections import Counter

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gpu_curate import guard
from gpu_curate.config import Config
from gpu_curate.errors import MAX_ATTEMPTS, FatalError, RetryableError
from gpu_curate.stages.documents.listing import inventory
from gpu_curate.stages.documents.tasks import read_tasks
from gpu_curate.stages.order import intake_of


@pytest.fixture
def failing(tmp_path, monkeypatch):
    """A config of three files, tries per file, and a setter of how often the footer of b.parquet cannot be fetched."""
    for name in "abc":
        pq.write_table(pa.table({"text": [name]}), tmp_path / f"{name}.parquet")
    config = Config.model_validate(
        {"sources": [{"name": "s", "type": "parquet", "path": str(tmp_path)}], "tokenizer": {"path": "gpt2"}}
    )
    tries, splits = Counter(), guard.splits

    def set_failures(failures):
        def fail_first(reader, path, size, max_bytes):
            tries[path[-9:]] += 1
            if path.endswith("b.parquet") and tries["b.parquet"] <= failures:
                raise RetryableError(f"{path}: connection reset")
            return splits(reader, path, size, max_bytes)

        monkeypatch.setattr(guard, "splits", fail_first)

    return config, tries, set_failures


def test_a_footer_that_the_network_fails_to_give_is_asked_for_again(failing, monkeypatch):
    config, tries, set_failures = failing
    set_failures(0)
    expected = read_tasks(intake_of(config), inventory(config.sources))
    tries.clear()
    waits = []
    monkeypatch.setattr(time, "sleep", waits.append)
    set_failures(MAX_ATTEMPTS - 1)
    assert read_tasks(intake_of(config), inventory(config.sources)) == expected
    assert tries == {"a.parquet": 1, "b.parquet": MAX_ATTEMPTS, "c.parquet": 1}  # the others are not read again
    assert waits == [1.0, 2.0]


def test_a_network_that_goes_on_failing_ends_the_planning(failing, monkeypatch):
    config, tries, set_failures = failing
    monkeypatch.setattr(time, "sleep", lambda s: None)
    set_failures(1 << 30)
    with pytest.raises(FatalError, match=rf"b\.parquet: connection reset \({MAX_ATTEMPTS} times\)"):
        read_tasks(intake_of(config), inventory(config.sources))
    assert tries["b.parquet"] == MAX_ATTEMPTS
