"""What `test_absent.py` runs in a child that lacks some libraries: recipes, and what came of each.

usage: python absent.py JOBS.json     fingerprint_of {job: digest of the shards, or the error}
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import sys
from pathlib import Path


def digest(shards: Path) -> str:
    """Of the tokens and of the documents' table."""
    state = hashlib.sha256()
    for path in sorted([*shards.glob("*.bin"), shards / "documents.parquet"]):
        state.update(path.name.encode() + path.read_bytes())
    return state.hexdigest()


def outcome(recipe: dict, run: Path, what: str) -> str:
    from gpu_curate import config
    from gpu_curate.errors import GpuCurateError

    try:
        if what == "encode":
            from gpu_curate.tokenizer.loading import load

            return load(config.parse(recipe).tokenizer).library
        import gpu_curate

        if what == "plan":
            from gpu_curate.runs.planning import make_plan

            make_plan(config.parse(recipe), run)
            return "planned"
        gpu_curate.run(recipe, run)
        if what.startswith("export"):
            from gpu_curate.runs.finished import open_run
            from gpu_curate.tools.export import export

            export(open_run(run), run.parent / f"{run.name}.out", format=what.split()[1])
            return "exported"
    except GpuCurateError as e:
        return f"{type(e).__name__}: {e}"
    return digest(run / "shards")


if __name__ == "__main__":
    jobs = json.loads(Path(sys.argv[1]).read_text())
    with contextlib.redirect_stdout(sys.stderr):
        made = {name: outcome(job["recipe"], Path(job["run"]), job["what"]) for name, job in jobs.items()}
    print(json.dumps(made))
