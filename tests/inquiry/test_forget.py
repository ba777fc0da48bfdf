"""forget: only shards that hold a listed document differ, the rest keeps its order, and no later run brings it back."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pyarrow.parquet as pq
import pytest
from inquiry.conftest import LOOSE, made
from typer.testing import CliRunner

import gpu_curate as gc
from gpu_curate import cli, shards_check
from gpu_curate.errors import ConfigError
from gpu_curate.inquiry.explain import explain
from gpu_curate.inquiry.forget import forget, read_list
from gpu_curate.inquiry.funnel import funnel
from gpu_curate.inquiry.stored import Stored
from gpu_curate.loader import Stream, read_manifest
from gpu_curate.store.lock import run_lock


@pytest.fixture
def copied(run, tmp_path):
    shutil.copytree(run, tmp_path / "r", symlinks=True)
    return tmp_path / "r"


def rows(folder, split="train"):
    return [r for r in pq.read_table(folder / "shards" / "documents.parquet").to_pylist() if r["split"] == split]


def texts(folder):
    """Tokens of every document of the train stream, in order."""
    stream = Stream(folder, "train")
    return [(r["doc_id"], stream.read(r["position"], r["position"] + r["tokens"]).tolist()) for r in rows(folder)]


def hashes(folder):
    manifest = read_manifest((folder / "shards").resolve())
    return {s["file"]: s["sha256"] for split in manifest["splits"].values() for s in split["shards"]}


@pytest.mark.parametrize("pad", [False, True])
def test_only_shards_that_hold_one_differ(copied, pad):
    before, old, order = rows(copied), hashes(copied), texts(copied)
    total = Stream(copied, "train").length
    size = read_manifest(copied / "shards")["tokens_per_shard"]
    across = next(r for r in before if r["position"] // size != (r["position"] + r["tokens"] - 1) // size)
    chosen = [before[2]["doc_id"], across["doc_id"], before[-1]["doc_id"]]
    touched = {
        f"train_{n:06d}.bin"
        for r in before
        if r["doc_id"] in chosen
        for n in range(r["position"] // size, (r["position"] + r["tokens"] - 1) // size + 1)
    }
    receipt = forget(copied, list(map(str, chosen)), pad=pad)
    new = hashes(copied)
    assert {f for f in old if new.get(f) != old[f]} == touched
    assert 0 < len(touched) < len(old)
    assert {s["file"] for s in receipt["shards"]} == touched
    assert {s["file"]: (s["old_sha256"], s["new_sha256"]) for s in receipt["shards"]} == {
        f: (old[f], new.get(f)) for f in touched
    }
    assert receipt["unchanged"] == len(old) - len(touched)
    assert shards_check.verify((copied / "shards").resolve()) == []
    left = [(i, ids) for i, ids in order if i not in chosen]
    assert [(i, ids) for i, ids in texts(copied) if i >= 0] == left
    lost = sum(r["tokens"] for r in before if r["doc_id"] in chosen)
    assert receipt["tokens"] == lost
    assert Stream(copied, "train").length == (total if pad else total - lost)
    if pad:  # every other token is where it was
        kept = {r["doc_id"]: r["position"] for r in rows(copied) if r["doc_id"] >= 0}
        assert kept == {r["doc_id"]: r["position"] for r in before if r["doc_id"] not in chosen}
        eot = read_manifest(copied / "shards")["eot_id"]
        assert Stream(copied, "train").read(before[2]["position"], before[2]["position"] + 5).tolist() == [eot] * 5
    places = {d["doc_id"]: d["places"] for d in receipt["documents"]}
    assert places[across["doc_id"]][0]["position"] == across["position"]
    assert sum(n for _, _, n in places[across["doc_id"]][0]["files"]) == across["tokens"]
    assert len(places[across["doc_id"]][0]["files"]) == 2
    assert len(list(copied.glob("shards-*"))) == 1  # the set that held them is gone


def test_a_later_run_does_not_bring_them_back(inputs, copied):
    chosen = [rows(copied)[0]["doc_id"], rows(copied)[5]["doc_id"]]
    forget(copied, list(map(str, chosen)))
    kept = {i for i, _ in texts(copied)}
    stored = Stored(copied)
    assert explain(stored, chosen[0])["reason"] == "forgotten"
    asked = funnel(stored)
    assert next(s for s in asked["steps"] if s["rule"] == "forgotten")["took"]["documents"] >= 2
    again = gc.run(
        made(inputs, quality={"gopher_quality": LOOSE, "fineweb": {"max_duplicate_line_text_fraction": 0.2}}), copied
    )
    assert (
        again.report["documents"]["dropped"]["forgotten"]
        == asked["steps"][[s["rule"] for s in asked["steps"]].index("forgotten")]["took"]["documents"]
    )
    assert {i for i, _ in texts(copied)} == kept
    assert next(s for s in again.report["steps"] if s["name"] == "decisions")["reused"] > 0
    fresh = gc.run(
        {**made(inputs), "forget": str(copied / "forgotten.txt")}, copied.parent / "other"
    )  # the list elsewhere
    assert fresh.report["documents"]["dropped"]["forgotten"] >= 2


def test_equal_texts_go_and_near_ones_if_asked(copied):
    clusters = gc.open_run(copied).clusters.to_table().to_pylist()
    near = next(c for c in clusters if c["kind"] == "fuzzy")
    exact = next(c for c in clusters if c["kind"] == "exact" and c["survivor"] in {i for i, _ in texts(copied)})
    receipt = forget(copied, [str(exact["doc_id"])])  # a copy that is in no shard: its text is
    assert {d["doc_id"] for d in receipt["documents"]} >= {exact["doc_id"], exact["survivor"]}
    assert exact["survivor"] not in {i for i, _ in texts(copied)}
    members = {c["doc_id"] for c in clusters if c["component"] == near["component"]}
    receipt = forget(copied, [str(near["doc_id"])], near=True)
    assert {d["doc_id"] for d in receipt["documents"]} >= members
    assert not members & {i for i, _ in texts(copied)}
    assert sorted(p.name for p in (copied / "forgotten").iterdir()) == ["000000.json", "000001.json"]


def test_entries_of_all_kinds_and_what_is_not_found(copied, tmp_path):
    stored = Stored(copied)
    part = next(p for p in stored.parts if "url" in stored.table("documents", p).column_names)
    by_url = next(r for r in stored.table("documents", part).to_pylist() if r["url"])
    first = rows(copied)[0]
    hi, lo = stored.columns("signatures", stored.parts[0], "content_hi", "content_lo")
    own = f"{int(hi[0]):016x}{int(lo[0]):016x}"
    (tmp_path / "list.txt").write_text(
        f"# taken down\n{by_url['url']}\n{first['source']}:{first['path']}:{first['row']}\n{own} # by hash\n\n"
        f"{'0' * 31}1\nhttp://nowhere/\n77777777777777777\nsome words\n"
    )
    done = CliRunner().invoke(
        cli.app, ["forget", str(copied), "--list", str(tmp_path / "list.txt"), "--json"], catch_exceptions=False
    )
    receipt = json.loads(done.stdout)
    assert {d["doc_id"] for d in receipt["documents"]} >= {by_url["doc_id"], first["doc_id"]}
    assert {e["entry"] for e in receipt["not_found"]} == {
        "0" * 31 + "1",
        "http://nowhere/",
        "77777777777777777",
        "some words",
    }
    listed = (copied / "forgotten.txt").read_text().split()
    assert own in listed
    assert "0" * 31 + "1" in listed
    assert json.loads((copied / "forgotten" / "000000.json").read_text())["to"] == (copied / "shards").resolve().name
    assert "texts" in receipt["holds_still"]


def test_bad_input_changes_nothing(copied, tmp_path):
    before = {p: p.stat().st_mtime_ns for p in copied.rglob("*")}
    with pytest.raises(ConfigError, match="no entry of the list is found"):
        forget(copied, ["http://nowhere/"])
    (tmp_path / "empty").write_text("\n# nothing\n")
    with pytest.raises(ConfigError, match="it has no entry"):
        read_list(tmp_path / "empty")
    with pytest.raises(ConfigError, match="No such file"):
        read_list(tmp_path / "none")
    everything = [str(i) for i, _ in texts(copied)]
    with run_lock(copied), pytest.raises(ConfigError, match="is working in it"):
        forget(copied, everything[:1])
    after = {p: p.stat().st_mtime_ns for p in copied.rglob("*") if p.name != ".lock"}
    assert after == {p: t for p, t in before.items() if p.name != ".lock"}
    (tmp_path / "bad.txt").write_text("zz\n")
    with pytest.raises(ConfigError, match=r"bad.txt: line 1: 'zz' is no xxh3-128"):
        from gpu_curate.stages.forgotten import hashes as read

        read(str(tmp_path / "bad.txt"))


def test_a_second_time_and_nothing_in_the_shards(copied):
    dropped = next(
        r
        for r in gc.open_run(copied).decisions.to_table().to_pylist()
        if r["reason"] == "gopher_quality:too_many_words"
    )
    target = (copied / "shards").resolve()
    receipt = forget(copied, [str(dropped["doc_id"])])
    assert (receipt["tokens"], receipt["to"], receipt["shards"]) == (0, target.name, [])
    assert (copied / "shards").resolve() == target
    first = rows(copied)[0]["doc_id"]
    a = forget(copied, [str(first)])
    b = forget(copied, [str(first)])
    assert a["tokens"] > 0 == b["tokens"]
    assert np.array_equal(texts(copied)[0][1], texts(copied)[0][1])
