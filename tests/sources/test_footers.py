"""Footers that end the process which reads them: refused by name, and nobody else is lost."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from places import ROOT

from gpu_curate import config, guard
from gpu_curate.api import pipeline
from gpu_curate.config import HuggingFaceSource, ParquetSource
from gpu_curate.errors import ConfigError, FatalError
from gpu_curate.runs.planning import make_plan
from gpu_curate.sources import Record, Reject, footers
from gpu_curate.sources.huggingface import HuggingFaceReader
from gpu_curate.sources.parquet import ParquetReader
from gpu_curate.stages.columns import check_columns
from gpu_curate.stages.documents.listing import find_files
from gpu_curate.stages.reference_sets import items
from gpu_curate.store.files import read_json
from gpu_curate.tokenizer.training import train
from gpu_curate.tools.look import look

REASON = "unreadable: the process that read its footer was ended by SIGABRT"


def parquet(**columns):
    f = io.BytesIO()
    pq.write_table(pa.table(columns), f)
    return f.getvalue()


def fatal(name="text", **columns):
    """A file at whose footer Arrow 26 aborts: its schema says that no value is null, its histogram of levels that some are."""
    data = parquet(**(columns or {name: ["a", None]}))
    at = data.rindex(b"\x25\x02\x18" + bytes([len(name)]) + name.encode())  # field 3, repetition_type, is 1 (OPTIONAL)
    return data[: at + 1] + b"\x00" + data[at + 2 :]


@pytest.fixture
def reader():
    yield ParquetReader(ParquetSource(name="s", type="parquet", path="x"))
    footers.close()


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    train(["some text about the ferry"] * 3, 300, "<|endoftext|>", path)
    return path


def write(path, data):
    path.write_bytes(data)
    return str(path)


def test_a_footer_that_ends_its_process_refuses_that_file_and_no_other(tmp_path, reader):
    paths = [
        write(tmp_path / f"{i:02d}.parquet", fatal() if i in (3, 4) else parquet(text=["a", "b"])) for i in range(12)
    ]
    with ThreadPoolExecutor(12) as pool:
        found = list(pool.map(lambda p: guard.splits(reader, p, 400, 1 << 20), paths))
    assert [s[0].refused for s in found] == [REASON if i in (3, 4) else None for i in range(12)]
    assert [(s[0].stop, len(s)) for s in found if s[0].refused is None] == [(1, 1)] * 10
    assert reader.rows == {p: 2 for i, p in enumerate(paths) if i not in (3, 4)}
    for path, splits in zip(paths, found, strict=True):
        read = list(guard.read(reader, splits[0]))
        if splits[0].refused:
            assert read == [Reject(0, None, REASON, cut=True)]
            assert list(guard.read(reader, splits[0], skip=1)) == []
        else:
            assert [i.text for i in read if isinstance(i, Record)] == ["a", "b"], path


def test_chunks_of_the_columns_that_are_kept_are_looked_at_too(tmp_path, reader):
    path = write(tmp_path / "a.parquet", fatal("url", text=["a"], url=["u"]))
    keeps = ParquetReader(ParquetSource(name="s", type="parquet", path="x", keep_columns=["url"]))
    assert guard.splits(keeps, path, 400, 1 << 20)[0].refused == REASON
    assert [i.text for s in guard.splits(reader, path, 400, 1 << 20) for i in guard.read(reader, s)] == ["a"]


def test_a_footer_without_an_answer_is_refused_in_time(tmp_path, reader, monkeypatch):
    monkeypatch.setattr(footers, "ANSWER_S", 0.3)
    good = write(tmp_path / "a.parquet", parquet(text=["a"]))
    guard.splits(reader, good, 400, 1 << 20)  # the child is there
    footers._alone.get()
    pipe = tmp_path / "b.parquet"
    os.mkfifo(pipe)  # nobody writes into it
    assert guard.splits(reader, str(pipe), 0, 1 << 20)[0].refused == (
        "unreadable: the process that read its footer gave no answer within 0.3 s"
    )
    monkeypatch.setattr(footers, "ANSWER_S", 60)
    assert guard.splits(reader, good, 400, 1 << 20)[0].refused is None


def test_a_process_that_somebody_kills_is_no_word_about_the_file(tmp_path, reader, monkeypatch):
    path = write(tmp_path / "a.parquet", parquet(text=["a"]))
    kill = tmp_path / "sitecustomize.py"
    kill.write_text(
        "import os, sys\nif any('footers' in a for a in sys.orig_argv):\n"
        "    import pyarrow.parquet as pq\n    pq.read_metadata = lambda f: os.kill(os.getpid(), 9)\n"
    )
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    with pytest.raises(FatalError, match=r"a\.parquet: the process that read its footer was killed"):
        guard.splits(reader, path, 400, 1 << 20)


def test_errors_of_ours_come_back_as_they_are(tmp_path, reader):
    path = write(tmp_path / "a.parquet", parquet(body=["a"]))
    with pytest.raises(ConfigError, match=r"has no column 'text' \(it has body\)"):
        guard.splits(reader, path, 400, 1 << 20)
    with pytest.raises(ConfigError, match="no such file"):
        guard.splits(reader, str(tmp_path / "b.parquet"), 400, 1 << 20)


def test_a_data_set_of_hugging_face_and_the_check_of_columns(tmp_path):
    (tmp_path / "data").mkdir()
    write(tmp_path / "data/train-00000-of-00002.parquet", fatal())
    write(tmp_path / "data/train-00001-of-00002.parquet", parquet(text=["b"]))
    source = HuggingFaceSource(name="h", type="huggingface", dataset=str(tmp_path))
    reader = HuggingFaceReader(source)
    files = find_files(source, reader).files
    seen, warnings = check_columns([source], [reader], [files])
    assert (seen[0].names, warnings) == (["text"], [])
    found = [guard.splits(reader, f.path, f.size, 1 << 20)[0] for f in files]
    assert [s.refused for s in found] == [REASON, None]
    footers.close()


def test_a_reference_set_names_the_file(tmp_path):
    path = write(tmp_path / "a.parquet", fatal())
    with pytest.raises(ConfigError, match=r"reference file .*a\.parquet cannot be read: .* was ended by SIGABRT"):
        list(items(path, ["text"]))
    assert list(items(write(tmp_path / "b.parquet", parquet(text=["b"])), ["text"])) == ["b"]
    footers.close()


def test_a_look_at_files_for_a_recipe_names_it(tmp_path):
    assert look(write(tmp_path / "a.parquet", fatal())).why_not.startswith("unreadable: ")
    assert look(write(tmp_path / "b.parquet", parquet(text=["b" * 50]))).kind == "parquet"
    footers.close()


def recipe(tmp_path, tokenizer):
    return {
        "sources": [{"name": "s", "type": "parquet", "path": str(tmp_path / "in")}],
        "tokenizer": {"path": str(tokenizer)},
        "min_tokens": 0,
        "run": {"engine": "inline", "workers": 1},
    }


def test_plan_and_run_name_the_file_and_take_the_rest(tmp_path, tokenizer):
    (tmp_path / "in").mkdir()
    write(tmp_path / "in/a.parquet", fatal())
    write(tmp_path / "in/b.parquet", parquet(text=["some text", "other text"]))
    (tmp_path / "r.yaml").write_text(yaml.safe_dump(recipe(tmp_path, tokenizer)))
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    said = {}
    for command in ("plan", "run"):
        done = subprocess.run(
            [sys.executable, "-m", "gpu_curate.cli", command, "r.yaml", "--out", "r"],
            cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        said[command] = (done.returncode, done.stdout + done.stderr)
    assert said["plan"][0] == 0
    assert said["run"][0] == 1  # nothing could be read of one file
    for _, text in said.values():
        assert f"{tmp_path}/in/a.parquet: {REASON}" in text
        assert "Traceback" not in text
    facts = read_json(tmp_path / "r/report/report.json")["documents"]
    assert (facts["kept"], facts["rejected"]) == (2, 1)
    (rejected,) = [json.loads(line) for p in tmp_path.glob("r/rejects/*.jsonl") for line in p.read_text().splitlines()]
    assert (rejected["reason"], rejected["path"]) == (REASON, str(tmp_path / "in/a.parquet"))


def test_a_run_with_nothing_to_do_reads_no_footer(tmp_path, tokenizer, monkeypatch):
    (tmp_path / "in").mkdir()
    for name, data in {"a": fatal(), "b": parquet(text=["some text"])}.items():
        write(tmp_path / f"in/{name}.parquet", data)
    recipe_ = config.parse(recipe(tmp_path, tokenizer))
    pipeline.execute(recipe_, tmp_path / "r")
    expected = (tmp_path / "r/shards/manifest.json").read_bytes()
    with monkeypatch.context() as m:
        m.setattr(footers, "_Child", lambda: pytest.fail("a child was started"))
        pipeline.execute(recipe_, tmp_path / "r")
    assert (tmp_path / "r/shards/manifest.json").read_bytes() == expected
    tasks = tmp_path / "r/documents/.ledger.json"
    whole = tasks.read_text()
    tasks.write_text(whole[:-30])  # not what was written: cut anew
    pipeline.execute(recipe_, tmp_path / "r")
    assert json.loads(tasks.read_text().splitlines()[1])["tasks"].keys() == {"000000"}
    assert make_plan(recipe_, tmp_path / "r")["partitions"] == 1
