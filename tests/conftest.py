"""Fixtures that more than one test file uses."""

from __future__ import annotations

from pathlib import Path

import pytest
from places import SHARED


@pytest.fixture
def shared_data():
    """Path of a real input by its name below the data folder; skips the test where the folder is absent."""

    def find(name: str) -> Path:
        path = SHARED / name
        if not path.exists():
            pytest.skip(f"real input {name} is absent (set GPU_CURATE_TEST_DATA to the folder that holds it)")
        return path

    return find
