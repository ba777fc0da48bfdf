"""Mutants of every kind of file that may come from somewhere else: no traceback, no hang, nothing written outside.

Each kind runs in a child process (`fuzz.py`) with limits on memory and on the time of a case.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from places import ROOT

WHOLE = 10_000
# kind → mutants in scripts/test; a trial of a model takes 0.3 s
KINDS = {
    "jsonl": 80,
    "parquet": 60,
    "text": 80,
    "wikipedia": 60,
    "warc": 30,
    "huggingface": 40,
    "reference": 60,
    "recipe": 60,
    "manifest": 40,
    "run": 40,
    "shards": 30,
    "receipts": 20,
    "tokenizer": 25,
    "model": 6,
}
PEAK_BYTES = 1 << 30
LEFT_BYTES = {"tokenizer": 200 << 10}  # of every case: what libraries keep of each tokenizer that a process has loaded


@pytest.mark.soak
@pytest.mark.parametrize("kind", KINDS)
def test_mutants_are_read_or_refused(kind, tmp_path, soak_cases):
    if kind == "model":
        pytest.importorskip("fasttext")
    count = soak_cases(KINDS[kind], WHOLE)
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    inside.mkdir()
    outside.mkdir()
    env = {**os.environ, "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1", "TMPDIR": str(inside)}
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("fuzz.py")), kind, "1", str(count), str(inside)],
        cwd=outside, env=env, capture_output=True, text=True, timeout=120 + 0.5 * count, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    said = json.loads(done.stdout)
    assert said["wrong"] == [], said
    assert "Traceback" not in done.stderr
    assert sum(said["outcomes"].values()) == count
    assert len(said["outcomes"]) > 1 or kind in ("text", "receipts"), said
    assert said["peak"] < PEAK_BYTES + LEFT_BYTES.get(kind, 0) * count
    assert list(outside.iterdir()) == []
