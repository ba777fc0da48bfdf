"""Fingerprints: what moves them, what does not, and that every module a stage runs is in its own."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from corpora import recipe
from places import ROOT

from gpu_curate import config
from gpu_curate.runs.fingerprints import fingerprints
from gpu_curate.stages.order import stages_of
from gpu_curate.store import code
from gpu_curate.tokenizer.training import train

PACKAGE = ROOT / "gpu_curate"


def fingerprint_of(tmp_path, **keys):
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
        ({"dedup": {"fuzzy": {"seed": 7}}}, {"signatures", "candidates", "duplicates", "decisions", "shards"}),
        ({"dedup": {"fuzzy": {"max_source_share": 0.5}}}, set()),
        ({"run": {"workers": 7, "partition_bytes": 65536}}, set()),
    ],
)
def test_a_key_moves_the_boxes_that_read_it_and_what_follows(tmp_path, keys, moved):
    before, after = fingerprint_of(tmp_path), fingerprint_of(tmp_path, **keys)
    assert {n for n in before if before[n] != after[n]} == moved


def test_an_input_that_changes_moves_everything(tmp_path):
    before = fingerprint_of(tmp_path)
    (tmp_path / "a.jsonl").write_text('{"text": "other"}\n')
    after = fingerprint_of(tmp_path)
    assert all(before[n] != after[n] for n in before)


def test_another_tokenizer_of_the_same_size_moves_the_tokens(tmp_path):
    before = fingerprint_of(tmp_path)
    train(["quite other words here"] * 3, 300, "<|endoftext|>", tmp_path / "t.json")
    after = fingerprint_of(tmp_path)
    assert before["tokens"] != after["tokens"]
    assert before["documents"] == after["documents"]


# ------------------------------------------------------------------------------------------------ the import graph


def everything(tmp_path):
    """A recipe that has a use for every stage."""
    sets = [{"name": a, "path": "x", "action": a} for a in ("decontaminate", "train_only")]
    return config.parse(
        {
            "sources": [{"name": "s", "type": "jsonl", "path": "x"}],
            "tokenizer": {"train": {"vocab_size": 300}},
            "references": sets,
        }
    )


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A copy of the package that may be changed, and a function: box → its code's digest."""
    copy = tmp_path / "gpu_curate"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(code, "_PACKAGE", copy)

    def forget():
        for cached in (code._modules, code._names, code._own_edges, code._data_files, code._own_content):
            cached.cache_clear()

    def digests():
        forget()
        return {s.name: code.code_digest(code.file_of(type(s))) for s in stages_of(everything(tmp_path))}

    yield copy, digests
    forget()


# These import who made the boxes that they read. They follow those anyway: the fingerprints of inputs are part of theirs.
BEHIND = {"duplicates", "decisions", "shards"}
OF_SETS = {"contamination", "ngrams", "overlaps", "items"}


@pytest.mark.parametrize(
    ("file", "moved"),
    [
        ("ops/text_stats/cpu.py", {"scores", "decisions", "shards"}),
        ("ops/text_stats/character_classes.npz", {"scores", "decisions", "shards"}),
        ("ops/ngrams/cpu.py", OF_SETS),
        ("ops/minhash/cpu.py", {"signatures", "candidates", "reference_signatures", *OF_SETS, *BEHIND}),
        ("ops/components/leaders.py", BEHIND),
        ("stages/shard_layout.py", {"shards"}),
        ("stages/token_copy.py", {"shards"}),
        ("text/language.py", {"scores", "decisions", "shards"}),
        ("text/languages.tsv", {"scores", "decisions", "shards"}),
        ("text/wikitext/wikitext.yaml", {"documents"}),
        ("text/html.py", {"documents"}),
        ("sources/warc_process.py", {"documents"}),
        ("tokenizer/limits.py", {"tokenizer", "tokens", "decisions", "shards"}),
        ("formats.py", {"shards"}),
        ("cli.py", set()),
        ("console.py", set()),
        ("report/accounts.py", set()),
        ("tools/export.py", set()),
        ("runs/scheduler.py", set()),
        ("config/load.py", set()),
        ("errors.py", set()),
        ("jit.py", set()),
        ("device/backend.py", set()),
        ("ops/minhash/gpu.py", set()),
        ("ops/minhash/kernels.cu", set()),
        ("stages/sections.py", set()),
    ],
)
def test_a_changed_file_moves_exactly_the_stages_that_use_it(package, file, moved):
    folder, digests = package
    before = digests()
    path = folder / file
    path.write_bytes(path.read_bytes() + b"\n")
    after = digests()
    found = {name for name in before if before[name] != after[name]}
    assert found == moved


def plain_imports(file):
    """The modules of the package that a file names in an import: the whole file parsed."""
    tree = ast.parse(file.read_bytes())
    tests = [n for n in ast.walk(tree) if isinstance(n, ast.If) and "TYPE_CHECKING" in ast.unparse(n.test)]
    typed = {inner for test in tests for line in test.body for inner in ast.walk(line)}
    found = set()
    for node in set(ast.walk(tree)) - typed:
        if isinstance(node, ast.Import):
            found |= {a.name for a in node.names}
        elif isinstance(node, ast.ImportFrom):
            names = {f"{node.module}.{a.name}" for a in node.names}
            found |= {n if code._short(n) in code._modules() else node.module for n in names}
    return {n for n in found if n.partition(".")[0] == "gpu_curate"}


def test_the_imports_of_every_module_are_those_that_a_whole_parse_finds():
    for name, file in code._modules().items():
        source = Path(file).read_bytes()
        found = {n for n in code._imports(source, None) if n.partition(".")[0] == "gpu_curate"}
        plain = plain_imports(Path(file))
        assert plain <= found <= plain | {"gpu_curate"}, name  # the example of a docstring may look like a statement


def test_lazy_imports_count_and_those_for_types_and_prose_do_not():
    source = b'''"""From the docs:
import gpu_curate.cli
"""
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpu_curate.report import page

    from gpu_curate.api import (
        runs,
    )
from gpu_curate.text import (
    html,
    language as l,
)

def f():
    if True:
        import gpu_curate.ops.words, os
    from gpu_curate.sources.jsonl import BOM
'''
    assert code._imports(source, None) - {"gpu_curate.cli"} == {
        "typing",
        "typing.TYPE_CHECKING",
        "gpu_curate.text.html",
        "gpu_curate.text.language",
        "gpu_curate.ops.words",
        "os",
        "gpu_curate.sources.jsonl",
    }


def test_what_is_left_out_has_a_reason_and_is_there():
    assert all(code.EXCLUDED.values())
    assert {name for name in code.EXCLUDED if name not in code._modules()} == set()


def test_every_module_that_a_worker_loads_is_covered_or_left_out_by_name(tmp_path):
    """What importing a stage's module brings, in a process of its own, against the graph."""
    stages = {code.file_of(type(s)) for s in stages_of(everything(tmp_path))}
    covered = {name for root in stages for name in code.files(root)}
    names = [f"gpu_curate.{root}" for root in sorted(stages)]
    script = f"import sys\nfor m in {names!r}: __import__(m)\nprint(*[m for m in sys.modules if m.startswith('gpu_curate.')])"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = {m.removeprefix("gpu_curate.") for m in done.stdout.split()}
    files = {name: os.path.relpath(code._modules()[name], PACKAGE) for name in loaded}
    parents = {
        n for n in loaded if any(m.startswith(f"{n}.") for m in loaded)
    }  # Python runs them first; see test_imports
    assert {n for n, f in files.items() if f not in covered and not code.excluded(n)} <= parents


def test_the_start_of_a_run_takes_no_time_for_its_code(tmp_path):
    """Digests of all stages from nothing: a bound that is loose, since the machine may be busy."""
    script = (
        "import time\nfrom gpu_curate.store import code\n"
        f"roots = {sorted({code.file_of(type(s)) for s in stages_of(everything(tmp_path))})!r}\n"
        "start = time.process_time()\nfor root in roots: code.code_digest(root)\nprint(time.process_time() - start)"
    )
    took = [
        float(
            subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True).stdout
        )
        for _ in range(3)
    ]
    assert min(took) < 0.3


def test_a_library_that_does_not_encode_tokenises_nothing_anew(tmp_path, monkeypatch):
    """NeMo Curator brings an older `tokenizers`: the reference that ids are proved by, not the library that makes them."""
    import importlib.metadata

    from gpu_curate.tokenizer.loading import load

    before = fingerprint_of(tmp_path)
    version = importlib.metadata.version

    def other(of):
        return lambda name: "0.22.2" if name == of else version(name)

    monkeypatch.setattr(importlib.metadata, "version", other("tokenizers"))
    assert fingerprint_of(tmp_path)["tokens"] == before["tokens"]
    encodes = load(config.Tokenizer(path=str(tmp_path / "t.json"), eot="<|endoftext|>")).library
    monkeypatch.setattr(importlib.metadata, "version", other(encodes))
    assert fingerprint_of(tmp_path)["tokens"] != before["tokens"]
