"""docs/schemas.md names the columns and keys that a run writes: all of them, with their types, and no others."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from corpora import recipe, write_inputs
from places import ROOT

from gpu_curate import config
from gpu_curate.api import pipeline

PAGE = ROOT / "docs" / "schemas.md"


def documented() -> dict[str, dict[str, str]]:
    """File → column or key → type ("" for keys of JSON)."""
    found = {}
    for part in re.split(r"^## ", PAGE.read_text(), flags=re.M)[1:]:
        rows = [
            [c.strip() for c in re.split(r"(?<!\\)\|", line)[1:-1]]
            for line in part.splitlines()
            if line.startswith("| `")
        ]
        if rows:
            assert all(row[-1] for row in rows), rows
            found[part.splitlines()[0]] = {row[0].strip("`"): row[1] if len(row) == 3 else "" for row in rows}
    return found


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("schemas")
    write_inputs(folder, documents=60)
    data = recipe(folder / "corpus", folder / "tokenizer.json")
    for source in data["sources"]:
        source.pop("keep_columns", None)
        source.pop("group_column", None)
    item = {"path": str(folder / "bench.jsonl"), "text_fields": ["question"]}
    sets = [
        {**item, "name": "bench", "action": "decontaminate", "on_match": "cut"},
        {**item, "name": "own", "action": "train_only"},
    ]
    pipeline.execute(config.parse(data | {"references": sets}), folder / "r")
    return folder / "r"


def test_every_column_of_a_run_is_documented_with_its_type(run):
    pages = {name: columns for name, columns in documented().items() if name.endswith(".parquet")}
    plain = {p: re.sub(r"^shards-[0-9a-f]{12}", "shards", str(p.relative_to(run))) for p in run.rglob("*.parquet")}
    files = {re.sub(r"part-\d{6}", "part-*", name): path for path, name in plain.items()}
    also = {
        "reference_signatures/part-*.parquet": "signatures/part-*.parquet",
    }
    pages["references/part-*.parquet"] = pages["documents/part-*.parquet"] | pages["texts/part-*.parquet"]
    assert set(files) - set(also) == set(pages)
    for name, path in files.items():
        schema = pq.read_schema(path)
        made = {f.name: "dictionary<string>" if pa.types.is_dictionary(f.type) else str(f.type) for f in schema}
        assert made == pages[also.get(name, name)], f"{PAGE}: {name}"


def test_every_key_of_manifest_report_and_rejects_is_documented(run):
    pages = documented()
    assert list(json.loads((run / "shards/manifest.json").read_text())) == list(pages["shards/manifest.json"])
    missing = set(pages["report/report.json"]) - set(json.loads((run / "report/report.json").read_text()))
    assert not missing, f"{PAGE}: report.json has no {missing}"
    line = next((run / "rejects").glob("*.jsonl")).read_text().splitlines()[0]
    assert list(json.loads(line)) == list(pages["rejects/part-*.jsonl"])
