"""A task of many partitions that is stopped goes on where its last whole partition ended, with the same bytes."""

from __future__ import annotations

import bz2
import gzip
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from corpora import document
from places import ROOT
from sources.test_warc import page

from gpu_curate import config
from gpu_curate.api import pipeline
from gpu_curate.errors import FatalError
from gpu_curate.sources import Record
from gpu_curate.sources.jsonl import JsonlReader
from gpu_curate.sources.wikipedia import WikipediaReader
from gpu_curate.stages.documents import writing
from gpu_curate.store.artifact import Box
from gpu_curate.store.files import read_json
from gpu_curate.tokenizer.training import train

LIMIT = 65536


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    rng = random.Random(1)
    train([document(rng) for _ in range(20)], 300, "<|endoftext|>", path)
    return path


@pytest.fixture(scope="module")
def texts():
    rng = random.Random(2)
    return [document(rng, 12) + f"\nWrite to a{i}@example.org." for i in range(400)]


def lines(texts):
    """JSON Lines with blank lines and rejects between."""
    for i, text in enumerate(texts):
        yield json.dumps({"text": text, "n": i})
        if i % 7 == 0:
            yield '{"text": null}'
        if i % 11 == 0:
            yield ""


def write(folder: Path, kind: str, texts) -> dict:
    """A source whose documents are one task of several partitions."""
    source = {"name": "s", "type": "jsonl", "path": str(folder)}
    data = "\n".join(lines(texts)).encode()
    folder.mkdir()
    if kind == "jsonl.gz":
        (folder / "a.jsonl.gz").write_bytes(
            gzip.compress(data[: len(data) // 2]) + gzip.compress(data[len(data) // 2 :])
        )
        (folder / "b.jsonl.gz").write_bytes(gzip.compress(data)[:-400])  # cut
    elif kind == "max_documents":
        (folder / "a.jsonl").write_bytes(data)
        (folder / "b.jsonl").write_bytes(data)
        source["max_documents"] = 600
    elif kind == "max_bytes":
        pq.write_table(pa.table({"text": [*texts[:100], None, *texts[100:]]}), folder / "a.parquet", row_group_size=70)
        source |= {"type": "parquet", "max_bytes": 320_000}
    elif kind == "wikipedia":
        pages = "".join(
            f"<page><title>T{i}</title><ns>{i % 9 and 0}</ns><id>{i}</id><revision><id>1</id><model>wikitext</model>"
            f"<text>'''T{i}''' {text}</text></revision></page>\n"
            for i, text in enumerate(texts)
        )
        dump = f"<mediawiki><siteinfo></siteinfo>{pages}<page>no end</mediawiki>"
        (folder / "wiki.xml.bz2").write_bytes(bz2.compress(dump.encode(), 1))
        source |= {"type": "wikipedia", "max_documents": 340}
    elif kind == "warc":
        html = (f"<html><body><article><p>{t}</p></article></body></html>".encode() for t in texts[:300])
        records = [page(h) for h in html]
        bad = records[5].replace(b"WARC-Target-URI", b"no colon here\r\nanother\r\nWARC-Target-URI", 1)
        records[5] = records[200] = bad
        (folder / "a.warc.gz").write_bytes(b"".join(map(gzip.compress, records)))
        source |= {"type": "warc", "max_documents": 295, "extractor": "resiliparse"}
    return source


def recipe(source, tokenizer, **keys):
    return {
        "sources": [source],
        "tokenizer": {"path": str(tokenizer)},
        "dedup": {"fuzzy": None},
        "pii": {"email": "replace"},
        "run": {"engine": "inline", "partition_bytes": LIMIT},
        **keys,
    }


def contents(run: Path) -> dict[str, object]:
    """Every file of documents/ and rejects/, and every receipt without times."""
    found = {}
    for path in sorted([*(run / "documents").rglob("*"), *(run / "rejects").rglob("*")]):
        if path.is_file() and path.parent.name == ".receipts":
            receipt = read_json(path)
            found[str(path.relative_to(run))] = {k: v for k, v in receipt.items() if "seconds" not in k}
        elif path.is_file():
            found[str(path.relative_to(run))] = path.read_bytes()
    return found


class Flushes:
    """Counts the partitions that are written, and fails at one."""

    def __init__(self, monkeypatch, fail_at=0):
        self.count, self.fail_at = 0, fail_at
        flush = writing.PartitionWriter._flush

        def counted(writer, place):
            self.count += 1
            if self.count == self.fail_at:
                raise FatalError("planted")
            flush(writer, place)

        monkeypatch.setattr(writing.PartitionWriter, "_flush", counted)


KINDS = ["jsonl.gz", "max_documents", "max_bytes", "wikipedia", "warc"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_task_goes_on_behind_its_last_whole_partition(tmp_path, tokenizer, texts, kind, monkeypatch):
    source = write(tmp_path / "in", kind, texts)
    parsed = config.parse(recipe(source, tokenizer))
    with monkeypatch.context() as m:
        flushes = Flushes(m)
        pipeline.execute(parsed, tmp_path / "whole")
    total = flushes.count
    assert total >= 4
    expected = contents(tmp_path / "whole")
    facts = read_json(tmp_path / "whole/report/report.json")
    for fail_at in (1, total // 2, total):
        run = tmp_path / f"r{fail_at}"
        with monkeypatch.context() as m:
            Flushes(m, fail_at)
            with pytest.raises(FatalError, match="planted"):
                pipeline.execute(parsed, run)
        with monkeypatch.context() as m:
            flushes = Flushes(m)
            pipeline.execute(parsed, run)
        assert flushes.count == total - (fail_at - 1)  # none of those that were whole
        assert contents(run) == expected
        again = read_json(run / "report/report.json")
        for key in ("documents", "rejected_by_reason", "skipped", "pii", "markup", "incomplete", "sampled", "warnings"):
            assert again[key] == facts[key], key


def test_a_damaged_partition_in_the_middle_is_the_only_one_made_again(tmp_path, tokenizer, texts, monkeypatch):
    parsed = config.parse(recipe(write(tmp_path / "in", "jsonl.gz", texts), tokenizer))
    pipeline.execute(parsed, tmp_path / "r")
    expected = contents(tmp_path / "r")
    for name in ("part-000000-003", "part-000000"):
        path = tmp_path / "r/documents" / f"{name}.parquet"
        path.write_bytes(path.read_bytes()[:-1])
        with monkeypatch.context() as m:
            flushes = Flushes(m)
            pipeline.execute(parsed, tmp_path / "r")
        assert flushes.count == 1
        assert contents(tmp_path / "r") == expected


def test_what_is_passed_over_is_not_parsed(tmp_path, texts, monkeypatch):
    source = write(tmp_path / "j", "jsonl.gz", texts)
    reader = JsonlReader(config.JsonlSource(**source))
    (split,) = reader.splits(str(tmp_path / "j/a.jsonl.gz"), 1, 1)
    items = list(reader.read(split))
    parsed = []
    record = JsonlReader._record
    monkeypatch.setattr(JsonlReader, "_record", lambda *a: parsed.append(a[1]) or record(*a))
    assert list(reader.read(split, 300)) == items[300:]
    assert len(parsed) == len(items) - 300
    source = write(tmp_path / "w", "wikipedia", texts)
    wiki = WikipediaReader(config.WikipediaSource(**source))
    path = tmp_path / "w/wiki.xml.bz2"
    (split,) = wiki.splits(str(path), path.stat().st_size, 1 << 40)
    items = list(wiki.read(split))
    pages = []
    page_ = WikipediaReader._page
    monkeypatch.setattr(WikipediaReader, "_page", lambda *a: pages.append(a[1]) or page_(*a))
    assert list(wiki.read(split, 250)) == items[250:]
    assert sum(isinstance(i, Record) for i in items[250:]) <= len(pages) <= len(items) - 250


@pytest.mark.parametrize("skip", [0, 1, 5, 6, 7, 8, 9, 199, 250, 10_000])
@pytest.mark.parametrize("timeout_s", [None, 20.0])
def test_items_of_an_archive_are_passed_over_exactly(tmp_path, texts, skip, timeout_s):
    from gpu_curate.sources.warc import WarcReader

    source = write(tmp_path / "w", "warc", texts)
    reader = WarcReader(config.WarcSource(**source, timeout_s=timeout_s))
    path = tmp_path / "w/a.warc.gz"
    (split,) = reader.splits(str(path), path.stat().st_size, 1 << 40)
    assert list(reader.read(split, skip)) == list(reader.read(split))[skip:]


@pytest.mark.parametrize("kind", ["jsonl.gz", "max_documents", "wikipedia"])
def test_a_kill_late_in_a_file_of_many_partitions_costs_one_of_them(tmp_path, tokenizer, texts, kind, monkeypatch):
    source = write(tmp_path / "in", kind, texts)
    if kind == "jsonl.gz":
        source["path"] += "/a.jsonl.gz"
    data = recipe(source, tokenizer, run={"partition_bytes": LIMIT, "workers": 1})
    pipeline.execute(config.parse(data), tmp_path / "whole")
    expected = contents(tmp_path / "whole")
    total = len(list((tmp_path / "whole/documents").glob("*.parquet")))
    (tmp_path / "r.yaml").write_text(yaml.safe_dump(data))
    run = tmp_path / "r"
    # the worker waits before its last partition but one, to be killed there
    (tmp_path / "sitecustomize.py").write_text(
        "import os, time\n"
        "from gpu_curate.stages.documents import writing\n"
        "flush = writing.PartitionWriter._flush\n"
        "def slow(self, place):\n"
        f"    if len(self._written) == {total - 2}: time.sleep(60)\n"
        "    flush(self, place)\n"
        "writing.PartitionWriter._flush = slow\n"
    )
    env = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    command = [sys.executable, "-m", "gpu_curate.cli", "run", str(tmp_path / "r.yaml"), "--out", str(run)]
    process = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while len(list((run / "documents/.receipts").glob("*-0*.json"))) < total - 2 and time.monotonic() < deadline:
        assert process.poll() is None
        time.sleep(0.01)
    workers = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGKILL)
    process.wait()
    psutil.wait_procs(workers, timeout=60)  # they go with their parent
    before = {p.name: p.stat().st_mtime_ns for p in (run / "documents").glob("*.parquet")}
    assert len(before) == total - 2
    assert Box(run / "documents").receipt("000000") is None  # nobody takes the task for whole
    pipeline.execute(config.parse(data), run)
    assert contents(run) == expected
    after = {p.name: p.stat().st_mtime_ns for p in (run / "documents").glob("*.parquet")}
    assert {n: after[n] for n in before} == before
