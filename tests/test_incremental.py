"""A run goes on when its inputs or recipe change: what stands, what is made again, and that the shards are those of a run from
nothing."""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from corpora import document, edited, texts_of

import gpu_curate as gc
from gpu_curate import config
from gpu_curate.api import pipeline
from gpu_curate.document import ROW_BITS
from gpu_curate.errors import ConfigError, CorruptError
from gpu_curate.inquiry.certificate import certificate
from gpu_curate.inquiry.clusters import clusters
from gpu_curate.inquiry.diff import diff
from gpu_curate.inquiry.locate import locate
from gpu_curate.inquiry.stored import Stored
from gpu_curate.report import samples
from gpu_curate.runs import finished
from gpu_curate.runs.cleaning import clean
from gpu_curate.runs.pipeline import Outcome
from gpu_curate.runs.state import run_state
from gpu_curate.stages.documents.schema import LEDGER
from gpu_curate.stages.partition_text import text_file
from gpu_curate.store.artifact import Box
from gpu_curate.store.files import read_json
from gpu_curate.tokenizer.training import train
from gpu_curate.tools.export import export

BY_PARTITION = ("documents", "signatures", "scores", "tokens")  # boxes in which old partitions stand
WHOLE = ("duplicates", "decisions", "shards")


def texts(seed: int, count: int = 30) -> list[str]:
    """Most of a partition of text, so that two files do not share one, with copies and near copies of another file's."""
    rng, shared = random.Random(seed), random.Random(0)
    common = [document(shared, 9) for _ in range(12)]
    own = [document(rng, 24) for _ in range(count)]
    return [*own[:9], *common[seed % 4 :: 3], *own[9:], *(edited(t, rng, 0.01) for t in common[seed % 3 :: 4])]


def write(path: Path, seed: int, count: int = 30) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps({"text": t, "url": f"http://{seed}/{i}", "n": i}) for i, t in enumerate(texts(seed, count))]
    path.write_text("\n".join(lines) + "\n")


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    train(texts(99), 600, "<|endoftext|>", path)
    return path


@pytest.fixture
def corpus(tmp_path):
    for name, seed in (("b", 2), ("d", 4), ("f", 6)):
        write(tmp_path / "in" / f"{name}.jsonl", seed)
    return tmp_path / "in"


class Runs:
    """Runs of one corpus with one tokenizer."""

    def __init__(self, folder: Path, tokenizer: Path):
        self.folder, self.tokenizer = folder, tokenizer

    def recipe(self, source: dict[str, Any] | None = None, **keys: Any) -> dict[str, Any]:
        run = {"engine": "inline", "partition_bytes": 65536, **keys.pop("run", {})}
        first = {"name": "s", "type": "jsonl", "path": str(self.folder / "in" / "*.jsonl"), **(source or {})}
        return {
            "sources": [first],
            "tokenizer": {"path": str(self.tokenizer)},
            "min_tokens": 10,
            "dedup": {"fuzzy": {"keep": "first"}},
            "shards": {"tokens_per_shard": 9973, "validation": {"tokens": 3000}},
            **keys,
            "run": run,
        }

    def __call__(self, name: str, source: dict[str, Any] | None = None, fresh: bool = False, **keys: Any) -> Outcome:
        return pipeline.execute(config.parse(self.recipe(source, **keys)), self.folder / name, fresh=fresh)

    def from_nothing(self, like: Outcome, source: dict[str, Any] | None = None, **keys: Any) -> Outcome:
        """A run in an empty folder, with the bound that the other one kept."""
        bound = manifest(like)["split"]["bound"]
        shards = {"tokens_per_shard": 9973, "validation": {"tokens": 3000, "bound": bound}}
        shutil.rmtree(self.folder / "nothing", ignore_errors=True)
        return self("nothing", source, shards=shards, **keys)


@pytest.fixture
def runs(tmp_path, corpus, tokenizer):
    return Runs(tmp_path, tokenizer)


def text_files(outcome: Outcome) -> list[Path]:
    box = outcome.context.box("documents")
    return [text_file(box, part) for part in box.parts()]


def manifest(outcome: Outcome) -> dict[str, Any]:
    return read_json(outcome.context.box("shards").folder / "manifest.json")


def new_parts(outcome: Outcome, before: Outcome) -> int:
    """Partitions of documents/ that the run before did not have."""
    now, then = (set(o.context.box("documents").parts()) for o in (outcome, before))
    assert now - then
    return len(now - then)


def made(outcome: Outcome) -> dict[str, int]:
    """Box → partitions that were computed, not taken over."""
    boxes = {name: outcome.context.box(name).parts() for name in outcome.fingerprint_of}
    return {name: len(parts) - outcome.reused[name] for name, parts in boxes.items()}


def shard_bytes(outcome: Outcome) -> dict[str, str]:
    folder = outcome.context.box("shards").folder
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in sorted(folder.glob("*.bin"))}


def places(outcome: Outcome) -> dict[int, tuple[str, int]]:
    """doc_id → path and row."""
    box = outcome.context.box("documents")
    rows = [r for p in box.parts() for r in box.read_table(p, ["doc_id", "path", "row"]).to_pylist()]
    assert len({r["doc_id"] for r in rows}) == len(rows)
    return {r["doc_id"]: (r["path"], r["row"]) for r in rows}


def without_ids(outcome: Outcome) -> dict[str, Any]:
    """All that a run found out, with documents told by path and row."""
    at, context = places(outcome), outcome.context
    decided = {}
    for part in context.box("decisions").parts():
        for row in context.box("decisions").read_table(part).to_pylist():
            place = at[row.pop("doc_id")]
            decided[place] = {**row, "partner": at.get(row["partner"], row["partner"])}
    clusters = pq.read_table(context.box("duplicates").folder / "clusters.parquet").to_pylist()
    assert [r["doc_id"] for r in clusters] == sorted(r["doc_id"] for r in clusters)
    ids = ("doc_id", "component", "cluster", "survivor")
    sets = sorted((tuple(at[r[c]] for c in ids), r["size"], r["kind"] or "", repr(r["jaccard"])) for r in clusters)
    shards = pq.read_table(context.box("shards").folder / "documents.parquet").to_pylist()
    for row in shards:
        assert at[row.pop("doc_id")][1] == row["row"]
    return {"decisions": decided, "clusters": sets, "shards": shards}


def assert_same(outcome: Outcome, fresh: Outcome) -> None:
    """The shards of both hold the same bytes, and all else is the same but for doc_ids."""
    assert shard_bytes(outcome) == shard_bytes(fresh)
    assert without_ids(outcome) == without_ids(fresh)
    accounts = [read_json(o.context.run / "report" / "report.json") for o in (outcome, fresh)]
    for key in ("documents", "tokens", "bytes", "text", "duplicates", "splits", "failing"):
        assert accounts[0][key] == accounts[1][key], key


def numbers(outcome: Outcome) -> dict[str, int]:
    """File → its number, by the doc_ids."""
    return {Path(path).stem: doc_id >> ROW_BITS for doc_id, (path, _) in places(outcome).items()}


# --------------------------------------------------------------------------------------------------------------- files


@pytest.mark.parametrize("name", ["a", "c", "g"])
def test_a_file_that_is_added_costs_its_own_partitions(runs, corpus, name):
    first = runs("r")
    before = places(first)
    assert numbers(first) == {"b": 0, "d": 1, "f": 2}
    write(corpus / f"{name}.jsonl", 7)
    second = runs("r")
    of_file = new_parts(second, first)
    assert {box: made(second)[box] for box in BY_PARTITION} == dict.fromkeys(BY_PARTITION, of_file)
    assert second.context.folders["documents"] == first.context.folders["documents"]
    assert numbers(second) == {"b": 0, "d": 1, "f": 2, name: 3}
    assert before.items() <= places(second).items()
    assert_same(second, runs.from_nothing(second))
    third = runs("r")
    assert set(made(third).values()) == {0}


def test_several_files_in_one_task_and_ties_between_files(runs, corpus):
    """Small files share a partition; equal texts in files that came later go by the files' order, not by their numbers."""
    shutil.rmtree(corpus)
    for name, seed in (("c", 1), ("e", 2), ("g", 3)):
        write(corpus / f"{name}.jsonl", seed, 3)
    first = runs("r")
    assert len(first.context.box("documents").parts()) == 1
    same = (corpus / "c.jsonl").read_text() + (corpus / "g.jsonl").read_text()
    for name in ("a", "d", "f"):
        (corpus / f"{name}.jsonl").write_text(same)
    second = runs("r")
    assert made(second)["documents"] == made(second)["tokens"] == 1
    assert numbers(second) == {"c": 0, "e": 1, "g": 2, "a": 3, "d": 4, "f": 5}
    assert_same(second, runs.from_nothing(second))
    kept = {place for place, row in without_ids(second)["decisions"].items() if row["reason"] is None}
    assert {Path(path).stem for path, _ in kept} == {"a", "e"}  # `keep: first`


@pytest.mark.parametrize("name", ["b", "d", "f"])
def test_a_file_that_is_removed_costs_no_partition(runs, corpus, name):
    first = runs("r")
    (corpus / f"{name}.jsonl").rename(corpus / f"{name}.away")
    second = runs("r")
    assert {box: made(second)[box] for box in BY_PARTITION} == dict.fromkeys(BY_PARTITION, 0)
    assert numbers(second) == {k: v for k, v in numbers(first).items() if k != name}
    assert_same(second, runs.from_nothing(second))
    (corpus / f"{name}.away").rename(corpus / f"{name}.jsonl")
    third = runs("r")  # and back again: all is there
    assert made(third) == dict.fromkeys(third.fingerprint_of, 0)
    assert shard_bytes(third) == shard_bytes(first)


def test_a_file_that_is_removed_from_a_task_of_several_leaves_the_others_to_be_read_again(runs, corpus):
    shutil.rmtree(corpus)
    for name, seed in (("a", 1), ("b", 2), ("c", 3)):
        write(corpus / f"{name}.jsonl", seed, 3)
    runs("r")
    (corpus / "b.jsonl").unlink()
    second = runs("r")
    assert made(second)["documents"] == 1
    assert numbers(second) == {"a": 0, "c": 2}
    assert_same(second, runs.from_nothing(second))


def test_a_file_that_changed_keeps_its_number_and_is_read_again(runs, corpus):
    first = runs("r")
    write(corpus / "d.jsonl", 8)
    second = runs("r")
    assert {box: made(second)[box] for box in BY_PARTITION} == dict.fromkeys(BY_PARTITION, new_parts(second, first))
    assert numbers(second) == numbers(first)
    assert_same(second, runs.from_nothing(second))


def test_a_file_that_was_only_touched_costs_its_reading(runs, corpus):
    first = runs("r")
    os.utime(corpus / "d.jsonl", (1, 1))
    second = runs("r")
    assert made(second)["documents"] == new_parts(second, first)
    assert {box: made(second)[box] for box in BY_PARTITION[1:]} == dict.fromkeys(BY_PARTITION[1:], 0)
    assert shard_bytes(second) == shard_bytes(first)


def test_a_further_path_and_a_further_source_are_added_to_a_run(runs, corpus):
    first = runs("r", {"path": [str(corpus / "b.jsonl")]})
    paths = {"path": [str(corpus / "d.jsonl"), str(corpus / "b.jsonl")]}
    second = runs("r", paths)
    assert made(second)["documents"] == new_parts(second, first)
    assert_same(second, runs.from_nothing(second, paths))
    more = {"name": "t", "type": "jsonl", "path": str(corpus / "f.jsonl")}
    both = [runs.recipe(paths)["sources"][0], more]
    third = runs("r", sources=both)
    assert made(third)["documents"] == new_parts(third, second)
    assert numbers(third) == {"b": 0, "d": 1, "f": 2}
    assert_same(third, runs.from_nothing(third, sources=both))


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"source": {"text_column": "url"}}, "sources.0.text_column"),
        ({"source": {"name": "other"}}, "sources.0.name"),
        ({"source": {"path": "elsewhere/*.jsonl"}}, "sources.0.path"),
        ({"normalize": {"form": "NFKC"}}, "normalize.form"),
        ({"pii": {"email": "replace"}}, "pii.email"),
    ],
)
def test_what_is_taken_from_a_source_does_not_change(runs, change, key):
    runs("r")
    with pytest.raises(ConfigError, match=rf"was made with {key.replace('.', '[.]')} = "):
        runs("r", **change)


def test_what_asks_a_finished_run_takes_one_that_grew(runs, corpus):
    """Partitions are not in the order of doc_ids then, nor are doc_ids in that of the files."""
    runs("r", {"group_column": "n"})
    write(corpus / "c.jsonl", 7)
    write(corpus / "d.jsonl", 8)  # changed
    (corpus / "b.jsonl").unlink()
    outcome = runs("r", {"group_column": "n"})
    runs.from_nothing(outcome, {"group_column": "n"})
    grown, fresh = (Stored(runs.folder / name) for name in ("r", "nothing"))
    at, texts_ = places(outcome), texts_of(runs.folder / "r")
    assert not grown.context.snapshot().plain
    assert fresh.context.snapshot().plain
    read = samples.Library(grown.context).read([*at, 5])
    assert {i: (d.path, d.row, d.text[:40]) for i, d in read.items()} == {i: (*at[i], texts_[i][:40]) for i in at}
    for doc_id in list(at)[::17]:
        found = locate(grown, doc_id)
        assert (found.doc_id, locate(grown, f"s:{at[doc_id][0]}:{at[doc_id][1]}")) == (doc_id, found)
    with pytest.raises(ConfigError, match="no such document"):
        locate(grown, 0)  # of the file that is gone
    told = diff(grown, fresh)
    assert told["changes"] == told["reasons"] == []
    assert told["only_a"]["documents"] == told["only_b"]["documents"] == 0
    assert told["both_kept"]["documents"] + told["both_dropped"]["documents"] == len(at)
    keys = ("documents", "clusters", "members", "removed", "components", "sizes", "sources")
    both = [clusters(stored) for stored in (grown, fresh)]
    assert [both[0][k] for k in keys] == [both[1][k] for k in keys]
    assert {k: v["clusters"] for k, v in both[0]["across"].items()} == {
        k: v["clusters"] for k, v in both[1]["across"].items()
    }
    both = [certificate(stored) for stored in (grown, fresh)]
    assert [both[0][k] for k in both[0] if k not in ("run", "worst")] == [
        both[1][k] for k in both[0] if k not in ("run", "worst")
    ]
    exported = export(
        finished.open_run(runs.folder / "r"),
        runs.folder / "out",
        what="all",
        columns=["doc_id", "text", "split", "jaccard"],
    )
    rows = [r for f in exported["files"] for r in pq.read_table(runs.folder / "out" / f).to_pylist()]
    assert {r["doc_id"]: r["text"] for r in rows} == texts_
    split = {
        r["doc_id"]: r["split"]
        for r in pq.read_table(outcome.context.box("shards").folder / "documents.parquet").to_pylist()
    }
    assert {r["doc_id"]: r["split"] for r in rows if r["split"]} == split


# ------------------------------------------------------------------------------------------------------------- recipes


def test_a_kept_column_that_is_added_reads_again_and_computes_nothing(runs):
    first = runs("r")
    second = runs("r", {"keep_columns": ["url"]})
    parts = len(second.context.box("documents").parts())
    assert made(second) == {
        "documents": parts, "signatures": 0, "scores": 0, "tokens": 0, "candidates": 1, "duplicates": 1, "decisions": parts, "shards": made(second)["shards"],
    }  # fmt: skip
    assert second.context.folders["documents"] == first.context.folders["documents"]
    assert shard_bytes(second) == shard_bytes(first)
    files = [[p.stat().st_ino for p in text_files(o)] for o in (first, second)]
    assert files[0] == files[1]  # one place on the disk
    rows = pq.read_table(second.context.box("shards").folder / "documents.parquet").to_pylist()
    assert all(r["url"].endswith(f"/{r['row']}") for r in rows)
    assert_same(second, runs.from_nothing(second, {"keep_columns": ["url"]}))
    assert texts_of(runs.folder / "r") == texts_of(runs.folder / "nothing")
    third = runs("r")  # the first one's partitions are still there
    assert made(third) == dict.fromkeys(third.fingerprint_of, 0)


def test_groups_are_part_of_what_signatures_are_made_of(runs):
    scope = {"dedup": {"fuzzy": {"keep": "first", "scope": "group"}}}
    first = runs("r", {"group_column": "n"}, **scope)
    second = runs("r", {"group_column": "n", "keep_columns": ["url"]}, **scope)
    assert made(second)["signatures"] == 0
    third = runs("r", {"group_column": "url"}, **scope)
    assert made(third)["signatures"] == len(third.context.box("documents").parts())
    assert made(third)["scores"] == made(third)["tokens"] == 0
    assert shard_bytes(second) == shard_bytes(first)
    assert_same(third, runs.from_nothing(third, {"group_column": "url"}, **scope))


@pytest.mark.parametrize(("before", "after"), [(70, 90), (90, 70), (90, 89), (90, None), (None, 90)])
def test_another_limit_reuses_what_stays_equal(runs, before, after):
    first = runs("r", {"max_documents": before})
    second = runs("r", {"max_documents": after})
    assert_same(second, runs.from_nothing(second, {"max_documents": after}))
    old, new = (
        {r.files[1].xxh3: (box.folder / r.files[1].file).stat().st_ino for r in box.receipts()}
        for box in (first.context.box("documents"), second.context.box("documents"))
    )
    assert made(second)["tokens"] == made(second)["scores"] == len(new.keys() - old.keys())
    if None not in (before, after):
        assert new.keys() & old.keys()
        assert all(inode == old[text] for text, inode in new.items() if text in old)  # not even read again


def test_a_threshold_alone_makes_decisions_and_shards(runs):
    runs("r")
    second = runs("r", min_tokens=60)
    assert {box for box, n in made(second).items() if n} == {"decisions", "shards"}
    assert_same(second, runs.from_nothing(second, min_tokens=60))


def test_fresh_numbers_and_cuts_anew(runs, corpus):
    runs("r")
    write(corpus / "a.jsonl", 7)
    second = runs("r")
    third = runs("r", fresh=True)
    assert numbers(second) == {"b": 0, "d": 1, "f": 2, "a": 3}
    assert numbers(third) == {"a": 0, "b": 1, "d": 2, "f": 3}
    assert made(third)["tokens"] == made(third)["scores"] == made(third)["signatures"] == 0  # the texts are the same
    nothing = runs("nothing")
    assert_same(third, nothing)
    assert places(third) == places(nothing)
    assert read_json(runs.folder / "r" / "run.json")["files"] == {
        "s": {"a.jsonl": 0, "b.jsonl": 1, "d.jsonl": 2, "f.jsonl": 3}
    }


KILLED = """
import json, os, signal, sys
from pathlib import Path
from gpu_curate import config
from gpu_curate.runs import pipeline
from gpu_curate.store.artifact import Box
left, commit = int(sys.argv[3]), Box.commit
def counted(self, *args, **options):
    global left
    left -= 1
    if left < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return commit(self, *args, **options)
Box.commit = counted
with pipeline.running(config.parse(json.loads(sys.argv[1])), Path(sys.argv[2])):
    pass
"""


@pytest.mark.parametrize("commits", [2, 9])
def test_a_run_that_was_killed_goes_on_with_a_file_more(runs, corpus, commits):
    data = json.dumps(runs.recipe())
    done = subprocess.run([sys.executable, "-c", KILLED, data, str(runs.folder / "r"), str(commits)], check=False)
    assert done.returncode == -signal.SIGKILL
    there = {b: len(Box(runs.folder / "r" / b).parts()) for b in BY_PARTITION}
    write(corpus / "a.jsonl", 7)
    second = runs("r")
    assert {b: second.reused[b] for b in BY_PARTITION} == there
    assert numbers(second) == {"b": 0, "d": 1, "f": 2, "a": 3}
    assert_same(second, runs.from_nothing(second))


# -------------------------------------------------------------------------------------------------------------- damage


def damage_seal(path: Path) -> None:
    text = path.read_text()
    path.write_text(("1" if text[0] == "0" else "0") + text[1:])  # another digit, whichever it was


def another_version(path: Path) -> None:
    body = path.read_text().partition("\n")[2].replace('"version": 1', '"version": 7')
    path.write_text(hashlib.sha256(body.encode()).hexdigest() + "\n" + body)


@pytest.mark.parametrize("damage", [damage_seal, another_version, lambda p: p.write_bytes(b"\xff"), Path.unlink])
def test_a_ledger_that_cannot_be_read_is_made_again(runs, corpus, damage):
    first = runs("r")
    damage(first.context.box("documents").folder / LEDGER)
    again = runs("r")
    assert {box: made(again)[box] for box in BY_PARTITION} == dict.fromkeys(
        BY_PARTITION, 0
    )  # receipts tell what is there
    assert shard_bytes(again) == shard_bytes(first)
    named = [w for w in again.warnings if LEDGER in w and "made again" in w]
    assert len(named) == (damage is not Path.unlink)
    write(corpus / "a.jsonl", 7)
    second = runs("r")
    assert numbers(second) == {"b": 0, "d": 1, "f": 2, "a": 3}
    assert_same(second, runs.from_nothing(second))


@pytest.mark.parametrize(
    "files", [None, {"s": []}, {"s": {"b.jsonl": -1}}, {"s": {"b.jsonl": 0, "d.jsonl": 0}}, {"s": {"b.jsonl": True}}]
)
def test_numbers_that_cannot_be_read_are_given_anew(runs, corpus, files):
    runs("r")
    write(corpus / "a.jsonl", 7)
    facts = read_json(runs.folder / "r" / "run.json")
    (runs.folder / "r" / "run.json").write_text(json.dumps({**facts, "files": files}))
    second = runs("r")
    assert numbers(second) == {"a": 0, "b": 1, "d": 2, "f": 3}
    assert_same(second, runs.from_nothing(second))


def test_a_damaged_partition_is_made_again_under_every_name(runs):
    """A partition that was taken over shares its files with the one it was made as."""
    runs("r")
    second = runs("r", {"keep_columns": ["url"]})
    box = second.context.box("tokens")
    path = box.path(box.parts()[0], ".bin")
    assert path.stat().st_nlink == 2
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    shutil.rmtree(second.context.box("shards").folder)
    again = runs("r", {"keep_columns": ["url"]})
    assert shard_bytes(again) == shard_bytes(runs.from_nothing(second, {"keep_columns": ["url"]}))


def test_a_late_reject_is_not_taken_over_under_another_name(runs, corpus, monkeypatch):
    """What a step rejects names the document, so it is found again for the partition that it belongs to now."""
    from gpu_curate.tokenizer.encoder import Encoder

    real = Encoder.encode_column

    def refusing(self, batch, refused):
        ids, lengths = real(self, batch, refused)
        if len(batch) > 2 and lengths[2]:
            refused[2] = "no"
            start = int(lengths[:2].sum())
            ids = np.delete(ids, np.s_[start : start + int(lengths[2])])
            lengths[2] = 0
        return ids, lengths

    monkeypatch.setattr(Encoder, "encode_column", refusing)
    first = runs("r")
    rejected = [r.late_rejects for r in first.context.box("tokens").receipts()]
    assert all(rejected)
    second = runs("r", {"keep_columns": ["url"]})
    assert made(second)["tokens"] == len(rejected)
    assert_same(second, runs.from_nothing(second, {"keep_columns": ["url"]}))


# --------------------------------------------------------------------------------------------------------------- clean


def test_clean_removes_what_the_run_no_longer_asks_for(runs, corpus):
    runs("r", {"keep_columns": ["url"]})
    (corpus / "d.jsonl").unlink()
    second = runs("r")
    before = {b: {p.name for p in (runs.folder / "r" / b).iterdir()} for b in (*BY_PARTITION, "texts")}
    told = clean(runs.folder / "r")
    here = {b: second.context.box(b).parts() for b in BY_PARTITION}
    extra = {i["folder"]: i["partitions"] for i in told["items"] if i["partitions"]}
    assert extra == {b: len(Box(runs.folder / "r" / b).parts()) - len(here[b]) for b in BY_PARTITION}
    assert min(extra.values()) > 0
    assert all(i["disk_bytes"] for i in told["items"])
    assert {b: {p.name for p in (runs.folder / "r" / b).iterdir()} for b in before} == before  # it only said so
    clean(runs.folder / "r", remove=True)
    for box, parts in here.items():
        assert Box(runs.folder / "r" / box).parts() == parts
    texts_left = {p.name[5:-8] for p in (runs.folder / "r" / "texts").glob("part-*")}
    assert texts_left == set(here["documents"])
    assert not clean(runs.folder / "r")["items"]
    again = runs("r")
    assert made(again) == dict.fromkeys(again.fingerprint_of, 0)
    write(corpus / "a.jsonl", 7)
    assert_same(third := runs("r"), runs.from_nothing(third))


# --------------------------------------------------------------------------------------------------------------- cache


def test_runs_with_other_settings_share_the_boxes_of_a_cache(runs, corpus, tmp_path):
    cache = {"cache": str(tmp_path / "cache")}
    first = runs("one", run=cache)
    second = runs(
        "two", run=cache, min_tokens=60, quality={"gopher_quality": {"min_words": 100, "min_stop_words": None}}
    )
    third = runs("three", run=cache, dedup={"exact": True, "fuzzy": None})
    assert {box: made(second)[box] for box in BY_PARTITION} == dict.fromkeys(BY_PARTITION, 0)
    assert {box for box in BY_PARTITION if made(third)[box]} == {"signatures"}
    for name, outcome in (("one", first), ("two", second), ("three", third)):
        assert {p.name for p in (tmp_path / name).iterdir() if not p.name.startswith(".")} == {
            "candidates", "duplicates", "decisions", "report", outcome.report, "shards", outcome.context.folders["shards"], "run.json", "run.log",
        } | ({"rejects"} & {p.name for p in (tmp_path / name).iterdir()})  # fmt: skip
    assert (tmp_path / "cache" / "documents").is_dir()
    assert_same(first, runs.from_nothing(first))
    assert_same(
        second,
        runs.from_nothing(
            second, min_tokens=60, quality={"gopher_quality": {"min_words": 100, "min_stop_words": None}}
        ),
    )
    assert_same(third, runs.from_nothing(third, dedup={"exact": True, "fuzzy": None}))
    for name in ("one", "two", "three"):  # all that reads a finished run
        run = gc.open_run(tmp_path / name)
        assert run.documents.count_rows() == run.decisions.count_rows() == len(texts_of(tmp_path / name))
        context = finished.open_run(tmp_path / name)
        exported = export(context, tmp_path / f"{name}.out", what="all", format="jsonl")
        assert exported["documents"] == run.documents.count_rows()
        state = run_state(tmp_path / name)
        assert state["complete"]
        assert state["boxes"]["documents"]["documents"] == run.documents.count_rows()
    write(corpus / "a.jsonl", 7)
    fourth = runs("two", run=cache)
    assert numbers(fourth)["a"] == 3
    assert gc.open_run(tmp_path / "one").documents.count_rows() < gc.open_run(tmp_path / "two").documents.count_rows()
    assert_same(fourth, runs.from_nothing(fourth))
    fifth = runs("one", run=cache)  # what the other run has read is there
    assert {box: made(fifth)[box] for box in BY_PARTITION} == dict.fromkeys(BY_PARTITION, 0)
    assert places(fifth) == places(fourth)


def test_two_kinds_of_a_corpus_lie_side_by_side_in_a_cache(runs, tmp_path):
    cache = {"cache": str(tmp_path / "cache")}
    kinds: list[dict[str, Any]] = [{}, {"normalize": None}, {"source": {"max_documents": 50}}]
    outcomes = [runs(str(i), **kind, run=cache) for i, kind in enumerate(kinds)]
    again = [runs(str(i), **kind, run=cache) for i, kind in enumerate(kinds)]
    for kind, one, other in zip(kinds, outcomes, again, strict=True):
        assert made(other) == dict.fromkeys(other.fingerprint_of, 0)
        assert_same(one, runs.from_nothing(one, **kind))


def test_two_runs_at_once_wait_for_each_other(runs, tmp_path):
    code = (
        "import json, sys; from pathlib import Path; from gpu_curate import config; from gpu_curate.api import pipeline\n"
        "pipeline.execute(config.parse(json.loads(sys.argv[1])), Path(sys.argv[2]))"
    )
    recipes = [runs.recipe(run={"cache": str(tmp_path / "cache")}, min_tokens=n) for n in (10, 60)]
    processes = [
        subprocess.Popen([sys.executable, "-c", code, json.dumps(r), str(tmp_path / str(i))])
        for i, r in enumerate(recipes)
    ]
    assert [p.wait(timeout=120) for p in processes] == [0, 0]
    for i, n in enumerate((10, 60)):
        again = runs(str(i), run={"cache": str(tmp_path / "cache")}, min_tokens=n)
        assert made(again) == dict.fromkeys(again.fingerprint_of, 0)
        assert_same(again, runs.from_nothing(again, min_tokens=n))


@pytest.mark.parametrize("loss", ["all", "box", "file", "ledger"])
def test_a_cache_that_is_deleted_or_damaged_is_made_again(runs, tmp_path, loss):
    cache = tmp_path / "cache"
    first = runs("r", run={"cache": str(cache)})
    if loss == "all":
        shutil.rmtree(cache)
        with pytest.raises(ConfigError, match="no cache of this program"):
            gc.open_run(tmp_path / "r").documents.count_rows()
    elif loss == "box":
        shutil.rmtree(cache / "tokens")
        shutil.rmtree(first.context.box("shards").folder)
    elif loss == "file":
        path = sorted((cache / "documents").glob("part-*.parquet"))[0]
        path.write_bytes(path.read_bytes()[:-9])
        shutil.rmtree(first.context.box("shards").folder)
    else:
        (cache / "documents" / LEDGER).write_text("x")
    second = runs("r", run={"cache": str(cache)})
    assert shard_bytes(second) == shard_bytes(first)
    assert without_ids(second) == without_ids(first)


def a_file(path: Path) -> None:
    path.write_text("mine")


def something_else(path: Path) -> None:
    path.mkdir()
    (path / "thesis.tex").write_text("mine")


def another_cache(path: Path) -> None:
    path.mkdir()
    (path / "cache.json").write_text('{"version": 9}')


def no_json(path: Path) -> None:
    path.mkdir()
    (path / "cache.json").write_text("{")


@pytest.mark.parametrize(
    ("name", "prepare", "match"),
    [
        ("cache", a_file, "run.cache: .*cache is a file"),
        ("cache", something_else, "run.cache: .* is not empty and has no cache.json"),
        ("cache", another_cache, "run.cache: .*cache.json is of version 9, this program writes version 1"),
        ("cache", no_json, "run.cache: .*cache.json cannot be read"),
        ("file/cache", lambda p: a_file(p.parent), "run.cache .*: Not a directory"),
        ("r/cache", None, "run.cache: .* lies in the run directory"),
        (".", None, "run.cache: .* holds the run directory"),
        ("r", None, "run.cache: .* lies in the run directory"),
    ],
)
def test_a_cache_that_cannot_be_is_one_error(runs, tmp_path, name, prepare, match):
    if prepare is not None:
        prepare(tmp_path / name)
    with pytest.raises(ConfigError, match=match):
        runs("r", run={"cache": str(tmp_path / name)})
    assert not (tmp_path / "r" / "run.json").exists()


def test_a_cache_in_a_source_is_refused(runs, corpus):
    with pytest.raises(ConfigError, match=r"run\.cache .* lies in .*, which source s reads"):
        runs("r", {"path": str(corpus)}, run={"cache": str(corpus / "cache")})


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_cache_that_cannot_be_written_is_one_error(runs, tmp_path):
    (tmp_path / "cache").mkdir(mode=0o555)
    with pytest.raises(ConfigError, match=r"run\.cache .*: Permission denied"):
        runs("r", run={"cache": str(tmp_path / "cache")})


@pytest.mark.parametrize("where", ["/etc", "../elsewhere", "", 7])
def test_a_run_file_of_another_leads_to_no_folder_that_is_no_cache(runs, where):
    first = runs("r")
    path = runs.folder / "r" / "run.json"
    facts = read_json(path)
    facts["cache"] = facts["latest"]["cache"] = where
    path.write_text(json.dumps(facts))
    for reads in (finished.open_run, run_state, lambda run: gc.open_run(run).documents):
        with pytest.raises(
            (ConfigError, CorruptError),
            match=r"is no cache of this program|is not a run file of .*cache: 7|no run.json of this program",
        ):
            reads(first.context.run)
