"""Fixtures that more than one test file uses."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from places import SHARED

os.environ.pop(
    "COLUMNS", None
)  # set by those that run tests in several processes; tests of narrow output set their own


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
