"""The classes and recipes of docs/extend.md run as they stand there."""

from __future__ import annotations

import csv
import re

import yaml
from places import ROOT

from gpu_curate import config
from gpu_curate.api import pipeline
from gpu_curate.store.files import read_json

PAGE = (ROOT / "docs" / "extend.md").read_text(encoding="utf-8")


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


def test_the_page_runs_as_written(tmp_path, tokenizer, monkeypatch):
    for source in blocks("python"):
        (tmp_path / re.search(r"# (\w+\.py)\n", source)[1]).write_text(source)
    quality, sources = (yaml.safe_load(text) for text in blocks("yaml")[:2])
    quality["quality"]["gopher_quality"] = "off"  # its texts are short
    (tmp_path / "data").mkdir()
    texts = ["The ferry leaves the northern pier at nine.", "0123456789 is a number", "", "Of 3 lamps 2 are lit."]
    with (tmp_path / "data" / "a.csv").open("w", newline="") as f:
        csv.writer(f).writerows([["url", "body"], *([f"http://x/{i}", text] for i, text in enumerate(texts))])
    more = {"tokenizer": {"path": str(tokenizer)}, "min_tokens": 0, "run": {"engine": "inline"}}
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump({**sources, **quality, **more}))
    monkeypatch.chdir(tmp_path)
    pipeline.execute(config.load("recipe.yaml", trust_code=True), tmp_path / "run")
    facts = read_json(tmp_path / "run" / "report" / "report.json")
    assert facts["documents"]["dropped"] == {"Digits:max_digit_fraction": 1}
    assert facts["documents"]["kept"] == 2
    assert facts["skipped"] == {"mine:empty": 1}
    assert [c["name"] for c in facts["code"]] == ["my_rules.py:Digits", "my_reader.py:Csv"]
    moved = config.load("recipe.yaml", ["quality.my_rules.py:Digits.max=0.5"], trust_code=True)
    assert pipeline.execute(moved, tmp_path / "run").reused["scores"]
