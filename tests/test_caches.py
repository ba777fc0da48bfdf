"""A process that outlives a run, and a cluster that does, serve the next run its own inputs."""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from corpora import document

from gpu_curate import config
from gpu_curate.api import pipeline
from gpu_curate.store.files import read_json
from gpu_curate.text.language import PACKAGED, model_path
from gpu_curate.tokenizer.training import train

pytest.importorskip("fasttext", reason="needs fasttext-predict (the extra `language`)")
pytest.importorskip("trafilatura", reason="needs the extra `warc`")
ENGLISH = "The ferry leaves at nine from the north pier and comes back before the evening tide turns. " * 3


def page(host: str) -> bytes:
    html = f"<html><body><article><p>{ENGLISH} {host} has its own page.</p></article></body></html>".encode()
    block = b"HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\n\r\n" + html
    head = (
        f"WARC/1.0\r\nWARC-Type: response\r\nWARC-Target-URI: http://{host}/\r\nWARC-Date: 2024-05-01T10:20:30Z\r\n"
        f"WARC-Record-ID: <urn:uuid:{host}>\r\nContent-Length: {len(block)}\r\n\r\n"
    )
    return head.encode() + block + b"\r\n\r\n"


TEXTS = [document(random.Random(k), 12) for k in range(6)]


def write_inputs(folder: Path, which: int) -> None:
    """The same names each time; tokenizer, benchmark item, blocked host and the model's label for English differ."""
    folder.mkdir(exist_ok=True)
    (folder / "pages.warc").write_bytes(page("one.example") + page("two.example"))
    (folder / "texts.jsonl").write_text("".join(json.dumps({"text": t}) + "\n" for t in TEXTS))
    train([*TEXTS, "xyz " * 50] if which else TEXTS, 300 + which, "<|endoftext|>", folder / "tokenizer.json")
    items = [TEXTS[which][:150].ljust(150), "A."]
    (folder / "items.jsonl").write_text("".join(json.dumps({"text": t}) + "\n" for t in items))
    for name, entry in (("domains", ("one.example", "two.example")[which]), ("urls", f"http://x.example/{which}")):
        (folder / name).write_text(f"{entry}\n")
    model = model_path(config.Language(model=PACKAGED)).read_bytes()
    label = b"__label__en\0"
    assert label in model
    (folder / "model.ftz").write_bytes(model.replace(label, b"__label__qq\0") if which else model)
    for path in folder.iterdir():
        os.utime(path, (1.7e9, 1.7e9 + which))


def results(folder: Path, run: Path, engine: str) -> dict[str, Any]:
    """What a run in a new folder of the same name made of the inputs."""
    shutil.rmtree(run, ignore_errors=True)
    data = {
        "sources": [
            {"name": "web", "type": "warc", "path": str(folder / "pages.warc"), "domain_blocklist": [str(folder / "domains")],
             "url_blocklist": [str(folder / "urls")]},
            {"name": "texts", "type": "jsonl", "path": str(folder / "texts.jsonl")},
        ],
        "language": {"model": str(folder / "model.ftz")},
        "dedup": {"fuzzy": None},
        "references": [{"name": "e", "path": str(folder / "items.jsonl"), "action": "decontaminate"}],
        "tokenizer": {"path": str(folder / "tokenizer.json")},
        "min_tokens": 0,
        "shards": {"validation": {"tokens": 0}},
        "run": {"engine": engine, "backend": "cpu"},
    }  # fmt: skip
    pipeline.execute(config.parse(data), run)
    places = read_json(run / "run.json")["folders"]

    def column(box: str, name: str) -> list[Any]:
        return [v for p in sorted((run / places[box]).glob("*.parquet")) for v in pq.read_table(p)[name].to_pylist()]

    texts = column("texts", "text")
    return {
        "tokenizer": hashlib.sha256((run / places["shards"] / "tokenizer.json").read_bytes()).hexdigest(),
        "hosts": sorted(h for t in texts for h in ("one.example", "two.example") if isinstance(t, str) and h in t),
        "contaminated": [i for i, r in enumerate(column("decisions", "reason")) if r == "contaminated"],
        "languages": sorted(set(column("scores", "language"))),
    }


@pytest.fixture(params=["inline", "cluster"])
def engine(request):
    if request.param == "inline":
        yield "inline"
        return
    distributed = pytest.importorskip("dask.distributed")
    with distributed.LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None) as cluster:
        yield cluster.scheduler_address


def test_a_second_run_has_its_own_inputs(tmp_path, engine):
    found = []
    for which in (0, 1):
        write_inputs(tmp_path / "in", which)
        made = results(tmp_path / "in", tmp_path / "run", engine)
        assert made["tokenizer"] == hashlib.sha256((tmp_path / "in" / "tokenizer.json").read_bytes()).hexdigest()
        found.append(made)
    assert [f["hosts"] for f in found] == [["two.example"], ["one.example"]]
    assert [[label in f["languages"] for label in ("en", "qq")] for f in found] == [[True, False], [False, True]]
    assert found[1]["contaminated"][0] - found[0]["contaminated"][0] == 1
