"""One finished run that the questions are asked of: copies and near-copies, a benchmark's item, groups, URLs, a rejected line."""

from __future__ import annotations

import json

import pytest
from corpora import recipe, write_inputs

import gpu_curate as gc

LOOSE = {"min_words": 30, "min_stop_words": None, "max_mean_word_chars": 4.6, "max_words": 150}


@pytest.fixture(scope="session")
def inputs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("inputs")
    write_inputs(folder, 200)
    texts = ["?! ?! ?!", "?! ?! ?!", "..."]  # no word, so no shingle: exact duplicates alone
    lines = "".join(json.dumps({"text": t}) + "\n" for t in texts)
    (folder / "corpus" / "z.jsonl").write_text(lines)
    notes = sorted((folder / "corpus" / "notes").iterdir())[1:4]
    some = "".join(json.dumps({"text": p.read_text()}) + "\n" for p in notes)
    (folder / "old.jsonl").write_text(lines[: lines.index("\n") + 1] + some)
    return folder


def made(folder, **keys):
    data = recipe(folder / "corpus", folder / "tokenizer.json", **keys)
    data["references"] = [
        {"name": "bench", "path": str(folder / "bench.jsonl"), "text_fields": ["question"], "action": "decontaminate"},
        *keys.get("references", []),
    ]
    return data


@pytest.fixture(scope="session")
def run(inputs, tmp_path_factory):
    place = tmp_path_factory.mktemp("run") / "r"
    quality = {"gopher_quality": LOOSE, "fineweb": {"max_duplicate_line_text_fraction": 0.2}}
    gc.run(made(inputs, quality=quality), place)
    return place
