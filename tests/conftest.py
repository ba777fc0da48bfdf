"""Fixtures that more than one test file uses."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SHARED = Path(os.environ.get("GPU_CURATE_TEST_DATA", ROOT.parent / "shared" / "data"))


@pytest.fixture
def shared_data():
    """Path of a real input by its name below the data folder; skips the test where the folder is absent."""

    def find(name: str) -> Path:
        path = SHARED / name
        if not path.exists():
            pytest.skip(f"real input {name} is absent (set GPU_CURATE_TEST_DATA to the folder that holds it)")
        return path

    return find
