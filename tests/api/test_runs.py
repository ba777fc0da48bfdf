"""`run` and `open_run`: a recipe from Python, and its folder as tables."""

from __future__ import annotations

import json
import random
import subprocess
import sys

import pyarrow.parquet as pq
import pytest
from corpora import document

import gpu_curate as gc


@pytest.fixture(scope="module")
def recipe(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    rng = random.Random(4)
    texts = [document(rng) for _ in range(60)]
    (folder / "s.jsonl").write_text("\n".join(json.dumps({"text": t}) for t in [*texts, *texts[:5]]))
    return {
        "sources": [{"name": "s", "type": "jsonl", "path": folder / "s.jsonl"}],
        "tokenizer": {"train": {"vocab_size": 300}},
        "quality": {"gopher_quality": {"min_words": 5, "min_stop_words": None}},
        "shards": {"validation": {"tokens": 300}},
        "run": {"engine": "inline"},
    }


def test_a_run_from_python_and_what_lies_in_it(recipe, tmp_path):
    run = gc.run(recipe, tmp_path / "r", overrides=["min_tokens=10"])
    decided = run.decisions.to_table()
    assert decided.num_rows == run.documents.count_rows() == run.scores.count_rows() == 65
    dropped = [r for r in decided["reason"].to_pylist() if r is not None]
    assert dropped.count("exact_duplicate") == 5
    assert run.report["documents"]["kept"] == sum(decided["keep"].to_pylist())
    assert run.tokens.count_rows() == run.report["documents"]["kept"]
    assert run.tokens.to_table().equals(pq.read_table(run.shards / "documents.parquet"))
    assert run.clusters.to_table(columns=["kind"])["kind"].to_pylist().count("exact") == 5
    texts = [t for table in run.texts() for t in table["text"].to_pylist()]
    assert gc.score(texts).equals(run.scores.to_table().select(gc.score(texts).column_names))
    x, y = next(iter(run.loader("train", 2, 16, as_torch=False)))
    assert x.shape == y.shape == (2, 16)
    again = gc.open_run(tmp_path / "r")
    assert again.shards == run.shards
    assert again.warnings == ()
    assert gc.run(
        gc.Config.model_validate(json.loads(json.dumps(recipe, default=str))), tmp_path / "r2"
    ).shards.exists()


def test_a_recipe_that_is_wrong_is_named(recipe, tmp_path):
    with pytest.raises(gc.ConfigError, match="recipe: min_tokns: unknown key"):
        gc.run({**recipe, "min_tokns": 3}, tmp_path / "r")
    with pytest.raises(gc.ConfigError, match="no such file"):
        gc.run(tmp_path / "none.yaml", tmp_path / "r")
    with pytest.raises(gc.ConfigError, match="--set min_tokens"):
        gc.run(recipe, tmp_path / "r", overrides=["min_tokens"])
    with pytest.raises(gc.ConfigError, match="no run directory"):
        gc.open_run(tmp_path)
    assert not (tmp_path / "r").exists()


def test_a_box_that_a_run_has_not_is_named(recipe, tmp_path):
    run = gc.run({**recipe, "dedup": {"exact": False, "fuzzy": None}}, tmp_path / "r", overrides=["min_tokens=10"])
    with pytest.raises(gc.ConfigError, match="this run has no duplicates"):
        _ = run.clusters


def test_a_script_that_runs_without_a_guard_is_told_so(recipe, tmp_path):
    data = {**json.loads(json.dumps(recipe, default=str)), "run": {"engine": "local", "workers": 1}}
    script = tmp_path / "script.py"
    script.write_text(f"import gpu_curate as gc\ngc.run({data!r}, {str(tmp_path / 'r')!r})\n")
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=120)
    assert done.returncode != 0
    assert '__name__ == "__main__"' in done.stderr
