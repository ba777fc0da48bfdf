"""A run with nothing to do: what it imports, starts and asks again."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from places import ROOT

from gpu_curate import config
from gpu_curate.api import pipeline
from gpu_curate.runs.fingerprints import fingerprints
from gpu_curate.tokenizer import loading
from gpu_curate.tokenizer.training import train

# each takes 0.1 s or more to import; pandas, where it is installed, comes with Arrow's arrays
HEAVY = "numba awkward gigatoken tokenizers tiktoken pyarrow.dataset trafilatura lxml torch datasets fasttext dask cupy sklearn"


@pytest.fixture
def finished(tmp_path):
    texts = [f"document number {i} about the ferry and its {i * 7} lamps" for i in range(40)]
    train(texts, 300, "<|endoftext|>", tmp_path / "tokenizer.json")
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"text": t}) + "\n" for t in texts))
    pq.write_table(pa.table({"text": texts}), tmp_path / "b.parquet")
    recipe = {
        "sources": [
            {"name": "lines", "type": "jsonl", "path": str(tmp_path / "a.jsonl")},
            {"name": "rows", "type": "parquet", "path": str(tmp_path / "b.parquet")},
        ],
        "tokenizer": {"path": str(tmp_path / "tokenizer.json")},
        "min_tokens": 0,
        "run": {"engine": "inline"},
    }
    (tmp_path / "r.yaml").write_text(yaml.safe_dump(recipe))
    pipeline.execute(config.parse(recipe), tmp_path / "r")
    return tmp_path, config.parse(recipe)


def test_a_run_with_nothing_to_do_imports_nothing_heavy(finished):
    folder, _ = finished
    code = (
        "import atexit, sys\n"
        f"atexit.register(lambda: print('heavy:', *(m for m in {HEAVY.split()!r} if m in sys.modules)))\n"
        "from gpu_curate import cli\nsys.argv = ['gpu-curate', 'run', 'r.yaml', '--out', 'r']\ncli.main()\n"
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-P", "-c", code],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "heavy:"


def test_the_proof_of_a_run_serves_before_it_starts_and_only_for_that_content(finished, monkeypatch):
    folder, recipe = finished
    chosen = []
    choose = loading._choose
    monkeypatch.setattr(loading, "_choose", lambda *args: chosen.append(args[0]) or choose(*args))
    pipeline.execute(recipe, folder / "r")
    assert chosen == []
    (proof,) = folder.glob("r/tokens/.receipts/encoder_proof.json")
    kept = json.loads(proof.read_text())
    for damaged in ("{", "[]", '{"key": 1}', json.dumps({**kept, "chosen": {**kept["chosen"], "library": "evil"}})):
        proof.write_text(damaged)
        chosen.clear()
        pipeline.execute(recipe, folder / "r")
        assert chosen, damaged
    train(["another sample"] * 9, 280, "<|endoftext|>", folder / "tokenizer.json")
    chosen.clear()
    fingerprints(recipe)
    assert chosen
