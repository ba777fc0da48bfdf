"""Fingerprints: what moves them, what does not, and that every module a stage runs is in its own."""

from __future__ import annotations

import subprocess
import sys

import pytest
from corpora import recipe
from places import ROOT

from gpu_curate import config
from gpu_curate.runs.fingerprints import fingerprints
from gpu_curate.stages.order import all_stages
from gpu_curate.store import fingerprint
from gpu_curate.tokenizer.training import train


def prints(tmp_path, **keys):
    for name, text in (("a.jsonl", '{"text": "a b c"}\n'),):
        (tmp_path / name).write_text(text) if not (tmp_path / name).exists() else None
    tokenizer = tmp_path / "t.json"
    if not tokenizer.exists():
        train(["some text to train on"] * 3, 300, "<|endoftext|>", tokenizer)
    data = recipe(tmp_path, tokenizer, **keys)
    data["sources"] = [{"name": "s", "type": "jsonl", "path": str(tmp_path / "a.jsonl")}]
    return fingerprints(config.parse(data))


@pytest.mark.parametrize(
    ("keys", "moved"),
    [
        ({"min_tokens": 11}, {"decisions", "shards"}),
        ({"quality": {"c4": True}}, {"decisions", "shards"}),
        ({"quality": {"gopher_quality": {"stop_words": ["der", "und"]}}}, {"scores", "decisions", "shards"}),
        ({"shards": {"shuffle_seed": 1}}, {"shards"}),
        ({"dedup": {"fuzzy": {"keep": "first"}}}, {"duplicates", "decisions", "shards"}),
        ({"dedup": {"fuzzy": {"seed": 7}}}, {"signatures", "duplicates", "decisions", "shards"}),
        ({"dedup": {"fuzzy": {"max_source_share": 0.5}}}, set()),
        ({"run": {"workers": 7, "partition_bytes": 65536}}, set()),
    ],
)
def test_a_key_moves_the_boxes_that_read_it_and_what_follows(tmp_path, keys, moved):
    before, after = prints(tmp_path), prints(tmp_path, **keys)
    assert {n for n in before if before[n] != after[n]} == moved


def test_an_input_that_changes_moves_everything(tmp_path):
    before = prints(tmp_path)
    (tmp_path / "a.jsonl").write_text('{"text": "other"}\n')
    after = prints(tmp_path)
    assert all(before[n] != after[n] for n in before)


def test_another_tokenizer_of_the_same_size_moves_the_tokens(tmp_path):
    before = prints(tmp_path)
    train(["quite other words here"] * 3, 300, "<|endoftext|>", tmp_path / "t.json")
    after = prints(tmp_path)
    assert before["tokens"] != after["tokens"]
    assert before["documents"] == after["documents"]


def test_code_of_a_module_its_data_and_imported_filters_are_covered(tmp_path, monkeypatch):
    package = tmp_path / "p"
    (package / "ops" / "x").mkdir(parents=True)
    (package / "text").mkdir()
    files = [package / "ops" / "x" / "cpu.py", package / "text" / "w.py", package / "text" / "w.yaml"]
    for file in files:
        file.write_text("1")
    (package / "ops" / "x" / "gpu.py").write_text("1")
    monkeypatch.setattr(fingerprint, "_PACKAGE", package)

    def digest():
        fingerprint.code_digest.cache_clear()
        return fingerprint.code_digest(("ops.x", "text.w"))

    try:
        first = digest()
        for file in files:
            file.write_text("2")
            assert digest() != first, file
            file.write_text("1")
        (package / "ops" / "x" / "gpu.py").write_text("2")
        assert digest() == first
    finally:
        fingerprint.code_digest.cache_clear()


@pytest.mark.parametrize("stage", all_stages(), ids=lambda s: s.name)
def test_every_module_that_a_stage_imports_is_in_its_fingerprint(stage):
    """What a stage's ops and text modules import, found by importing them in a process of its own."""
    package = ROOT / "gpu_curate"
    own = [c for c in stage.code if c.split(".")[0] in ("ops", "quality", "text")]
    modules = [f"gpu_curate.{c}" for c in own if (package / c.replace(".", "/")).with_suffix(".py").exists()]
    modules += [f"gpu_curate.{c}" for c in own if (package / c.replace(".", "/")).is_dir()]
    modules += [f"gpu_curate.{c}.cpu" for c in own if (package / c.replace(".", "/") / "cpu.py").exists()]
    code = f"import sys\nfor m in {modules!r}: __import__(m)\nprint(*[m for m in sys.modules if m.startswith('gpu_curate.')])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    imported = {m.removeprefix("gpu_curate.") for m in done.stdout.split()}
    # jit compiles and does not compute; privacy is what errors say (where it makes names, it is in `code`); what sections say is in the settings of a stage
    common = {"section", "text.sections", "errors", "document", "jit", "compiled", "privacy", "ops", "text"}
    covered = {*stage.code, *(c for s in all_stages() if s.name in upstream(stage) for c in s.code)}
    assert not {m for m in imported - common if not any(m == c or m.startswith(f"{c}.") for c in covered)}


def upstream(stage):
    """Names of the boxes a stage depends on, however far: their fingerprints are part of its own."""
    everything = config.parse(
        {
            "sources": [{"name": "s", "type": "jsonl", "path": "x"}],
            "tokenizer": {"path": "t"},
            "references": [{"name": a, "path": "x", "action": a} for a in ("decontaminate", "train_only")],
        }
    )
    found, left = set(), [stage]
    while left:
        s = left.pop()
        names = {*s.reads(everything), *([s.follows] if s.follows else [])} - found
        found |= names
        left += [t for t in all_stages() if t.name in names]
    return found
