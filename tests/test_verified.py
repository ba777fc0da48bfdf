"""A file is hashed once a run, and one that changed is found."""

from __future__ import annotations

import json
import os
from collections import Counter

import pytest
from corpora import recipe, write_inputs

from gpu_curate import config
from gpu_curate.api import pipeline
from gpu_curate.errors import CorruptError
from gpu_curate.store import artifact, verified
from gpu_curate.store.artifact import Box
from gpu_curate.store.receipts import Counts, Receipt
from gpu_curate.store.verified import Verified, recording


@pytest.fixture
def run(tmp_path):
    """A recipe with every kind of box, as a function of its keys, and its directory."""
    write_inputs(tmp_path, documents=120)
    item = {"path": str(tmp_path / "bench.jsonl"), "text_fields": ["question"]}
    keys = {
        "references": [{**item, "name": "b", "action": "decontaminate"}, {**item, "name": "o", "action": "train_only"}],
        "dedup": {"fuzzy": {"verify": "exact"}},
    }
    data = recipe(tmp_path / "corpus", tmp_path / "tokenizer.json", **keys)
    return lambda **more: pipeline.execute(config.parse({**data, **more}), tmp_path / "r")


@pytest.fixture
def hashed(monkeypatch):
    """File → how often it was read to be hashed, in this process."""
    found = Counter()
    real = artifact.file_hash

    def counted(path):
        found[os.path.normpath(path)] += 1
        return real(path)

    monkeypatch.setattr(artifact, "file_hash", counted)
    monkeypatch.setattr(verified, "file_hash", counted)
    return found


def of_boxes(hashed, *boxes):
    return {path: n for path, n in hashed.items() if path.split("/")[-2].partition("-")[0] in boxes}


def test_every_file_is_hashed_once_by_the_run_that_writes_it_and_once_by_one_that_reads_it(run, hashed):
    outcome = run()
    boxes = ("documents", "texts", "signatures", "scores", "contamination", "tokens", "decisions", "references")
    first = of_boxes(hashed, *boxes)
    assert len(of_boxes(first, "texts")) == len(outcome.context.box("documents").parts()) >= 3
    assert set(first.values()) == {1}  # when they were written; stages and report trusted that
    hashed.clear()
    run(min_tokens=12)  # decisions and shards are made anew
    again = of_boxes(hashed, *boxes)
    assert set(of_boxes(first, "documents")) <= set(again)
    assert set(again.values()) == {1}
    assert not list(outcome.context.run.rglob("*verified*"))


def flip(path):
    """Another byte in the middle, by somebody who restores the time."""
    before = path.stat()
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.mark.parametrize("box", ["documents", "signatures", "tokens"])
def test_a_byte_that_was_flipped_before_a_run_is_found_by_it(run, box):
    first = run()
    part = sorted(p for p in first.context.box(box).folder.iterdir() if p.suffix in (".parquet", ".bin"))[1]
    whole = part.read_bytes()
    flip(part)
    outcome = run(min_tokens=12)
    assert any(part.name in w and "differs from its receipt" in w for w in outcome.warnings)
    assert part.read_bytes() == whole


@pytest.fixture
def box(tmp_path):
    with recording(tmp_path / "record") as path:
        box = Box(tmp_path / "box", verified=path)
        box.folder.mkdir()
        box.path("0", ".bin").write_bytes(b"x" * 100)
        box.commit(Receipt("0", box.written([box.path("0", ".bin")]), Counts()))
        yield box


def test_a_file_that_changes_while_the_run_is_on_is_found_where_size_time_or_inode_tell(box, hashed):
    path = box.path("0", ".bin")
    box.verified("0", ".bin")
    assert hashed == {}
    os.utime(path)
    box.verified("0", ".bin")
    box.verified("0", ".bin")
    assert hashed == {str(path): 1}
    path.with_suffix(".other").write_bytes(b"x" * 100)
    os.utime(path.with_suffix(".other"), ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns))
    os.replace(path.with_suffix(".other"), path)  # the same but for its inode
    box.verified("0", ".bin")
    assert hashed == {str(path): 2}
    path.write_bytes(b"x" * 99 + b"y")
    os.utime(path)
    with pytest.raises(CorruptError, match="differs from its receipt"):
        box.verified("0", ".bin")


def test_what_one_process_verified_another_takes_and_a_broken_line_is_no_proof(tmp_path, hashed):
    (tmp_path / "a").write_bytes(b"1")
    xxh3 = artifact.file_hash(tmp_path / "a")
    hashed.clear()
    with recording(tmp_path / "record") as path:
        one, two = Verified(path), Verified(path)
        assert one.is_whole(tmp_path / "a", xxh3)
        (tmp_path / "x").mkdir()
        assert two.is_whole(tmp_path / "x" / ".." / "a", xxh3)  # a name that is written otherwise
        assert hashed == {str(tmp_path / "a"): 1}
        assert not two.is_whole(tmp_path / "a", "0" * 16)
        with (tmp_path / "record").open("ab") as f:
            f.write(json.dumps("no line").encode() + b"\n" + f"{tmp_path / 'a'}\t1\n".encode())
        assert one.is_whole(tmp_path / "a", xxh3)
        assert hashed == {str(tmp_path / "a"): 3}
        one.close()
        two.close()
    assert not (tmp_path / "record").exists()
