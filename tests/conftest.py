"""Fixtures that more than one test file uses."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from corpora import document
from places import SHARED

os.environ.pop(
    "COLUMNS", None
)  # set by those that run tests in several processes; tests of narrow output set their own
os.fsync = lambda fd: None  # a tenth of the time of a small run; no test cuts the power


@pytest.fixture
def shared_data():
    """Path of a real input by its name below the data folder; skips the test where the folder is absent."""

    def find(name: str) -> Path:
        path = SHARED / name
        if not path.exists():
            pytest.skip(f"real input {name} is absent (set GPU_CURATE_TEST_DATA to the folder that holds it)")
        return path

    return find


@pytest.fixture
def soak_cases():
    """`soak_cases(sample, whole)`: how many cases a test marked `soak` tries, in scripts/test and in scripts/soak."""

    def count(sample: int, whole: int) -> int:
        return whole if os.environ.get("GPU_CURATE_SOAK") else sample

    return count


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    """Path of a byte-level BPE of 400 entries over the words of `corpora.document`, made once a file."""
    from gpu_curate.tokenizer.training import train

    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    rng = random.Random(0)
    train([document(rng) for _ in range(20)], 400, "<|endoftext|>", path)
    return path
