"""The examples run as they stand, in a process of their own, from a folder outside the checkout."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

ROOT = Path(__file__).parents[1]
EXAMPLES = sorted(p.name for p in (ROOT / "examples").glob("*.py"))


def run(name, folder, *arguments):
    """Standard output of an example that was copied to `folder`, where nothing else of the checkout is."""
    script = folder / name
    script.write_text((ROOT / "examples" / name).read_text())
    package = str(Path(importlib.util.find_spec("gpu_curate").origin).parents[1])
    environment = {**os.environ, "PYTHONPATH": package, "OMP_NUM_THREADS": "2"}
    done = subprocess.run(
        [sys.executable, script, *map(str, arguments)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_all_examples_are_under_test():
    assert EXAMPLES == [
        "dedup_a_dataframe.py",
        "score_a_parquet_file.py",
        "train_a_small_model.py",
        "your_own_filter.py",
        "your_own_reader.py",
        "your_own_stage.py",
    ]


def test_your_own_stage(tmp_path):
    out = run("your_own_stage.py", tmp_path)
    assert "documents that mention a word: {'ferry': 1, 'lamps': 2}, 0 partitions reused" in out
    assert "{'ferry': 1, 'lamps': 2}, 1 partitions reused" in run("your_own_stage.py", tmp_path)


def test_dedup_a_dataframe(tmp_path):
    out = run("dedup_a_dataframe.py", tmp_path)
    assert "<1,200 texts: 1,000 kept, 100 exact and 100 fuzzy duplicates>" in out
    assert pq.read_metadata(tmp_path / "kept.parquet").num_rows == 1000
    pq.write_table(pa.table({"body": ["the same text here"] * 2 + ["another"]}), tmp_path / "in.parquet")
    run("dedup_a_dataframe.py", tmp_path, tmp_path / "in.parquet", "body")
    assert pq.read_table(tmp_path / "kept.parquet")["body"].to_pylist() == ["the same text here", "another"]


def test_score_a_parquet_file(tmp_path):
    out = run("score_a_parquet_file.py", tmp_path)
    assert "first failing rule of the first texts: [None, " in out
    assert pq.read_table(tmp_path / "scored.parquet")["keep"].to_pylist() == [True, False, False]
    pq.write_table(pa.table({"body": ["short"]}), tmp_path / "in.parquet")
    run("score_a_parquet_file.py", tmp_path, tmp_path / "in.parquet", "body")
    assert pq.read_table(tmp_path / "scored.parquet")["words"].to_pylist() == [1]


def test_your_own_filter(tmp_path):
    out = run("your_own_filter.py", tmp_path)
    assert "my filter drops 1 more, 1 of 3 are left" in out
    assert pq.read_metadata(tmp_path / "filtered.parquet").num_rows == 1


def test_your_own_reader(tmp_path):
    out = run("your_own_reader.py", tmp_path)
    assert "'read': 81, 'rejected': 1" in out
    assert "{\"no column 'body'\": 1}" in out
    rows = pq.read_table(tmp_path / "run" / "shards" / "documents.parquet").to_pylist()
    assert sorted(r["url"] for r in rows) == sorted(f"https://example.org/{i}" for i in range(80))
    assert {r["row"] for r in rows} == {*range(81)} - {40}


def test_train_a_small_model(tmp_path):
    pytest.importorskip("torch")
    out = run("train_a_small_model.py", tmp_path)
    first, last = (float(x) for x in out.rpartition("loss ")[2].split(" in ")[0].split(" -> "))
    assert last < first - 1
    assert (tmp_path / "run" / "shards" / "manifest.json").exists()
