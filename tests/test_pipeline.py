"""The whole run: same bytes whatever the machine does, accounts that add up, reuse, damage, death."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml
from corpora import recipe, texts_of, write_corpus

from gpu_curate import config, loader, shards_check
from gpu_curate.api import pipeline
from gpu_curate.errors import ConfigError, FatalError, UnreachableError
from gpu_curate.store.files import read_json
from gpu_curate.tokenizer.loading import load
from gpu_curate.tokenizer.training import train

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    facts = write_corpus(folder)
    return folder, facts


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory, corpus):
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    train([p.read_text() for p in sorted((corpus[0] / "notes").iterdir())], 700, "<|endoftext|>", path)
    return path


@pytest.fixture(scope="module")
def reference(tmp_path_factory, corpus, tokenizer):
    """One finished run that others are compared with."""
    run = tmp_path_factory.mktemp("run") / "r"
    outcome = pipeline.execute(config.parse(recipe(corpus[0], tokenizer)), run)
    return run, outcome


def shard_bytes(run: Path, outcome=None) -> dict[str, str]:
    """Hash of every shard of a run: of `outcome`, or of the run as it was last."""
    folders = outcome.context.folders if outcome else read_json(run / "run.json")["folders"]
    folder = run / folders["shards"]
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in sorted(folder.glob("*.bin"))}


def report(run: Path):
    return read_json(run / "report" / "report.json")


def execute(folder, corpus, tokenizer, **keys):
    return pipeline.execute(config.parse(recipe(corpus, tokenizer, **keys)), folder)


def copy(run: Path, to: Path) -> None:
    shutil.copytree(run, to, symlinks=True)


def remove(run: Path, *boxes: str) -> None:
    for box in boxes:
        shutil.rmtree((run / box).resolve())


def write_recipe(path: Path, data) -> Path:
    path.write_text(yaml.safe_dump(data))
    return path


def cli(*args, env=None, **options):
    command = [sys.executable, "-m", "gpu_curate.cli", *map(str, args)]
    merged = {**os.environ, "PYTHONPATH": str(ROOT), **(env or {})}
    return subprocess.run(command, env=merged, capture_output=True, text=True, timeout=120, check=False, **options)


# --------------------------------------------------------------------------------------------------------- accounts


def test_documents_in_are_kept_dropped_or_rejected(reference, corpus):
    facts = report(reference[0])
    documents = facts["documents"]
    assert documents["read"] == corpus[1]["documents"] + corpus[1]["rejected"]
    assert documents["rejected"] == corpus[1]["rejected"]
    assert documents["read"] == documents["kept"] + sum(documents["dropped"].values()) + documents["rejected"]
    assert documents["dropped"]["empty"] == corpus[1]["empty"]
    assert documents["dropped"]["exact_duplicate"] >= corpus[1]["copies"]
    assert documents["dropped"]["fuzzy_duplicate"] > 5
    assert sum(s["documents"] for s in facts["splits"].values()) == documents["kept"]
    assert sum(s["tokens"] for s in facts["splits"].values()) == facts["tokens"]["kept"]


def test_rejects_name_file_offset_and_reason(reference, corpus):
    rows = [json.loads(line) for p in (reference[0] / "rejects").glob("*.jsonl") for line in p.read_text().splitlines()]
    lines = (corpus[0] / "b.jsonl").read_bytes().split(b"\n")
    assert sorted(r["row"] for r in rows) == [9, 11]
    assert {r["path"] for r in rows} == {str(corpus[0] / "b.jsonl")}
    assert min(r["offset"] for r in rows) == sum(len(line) + 1 for line in lines[:9])


def test_every_token_range_decodes_to_the_text_of_its_document(reference, tokenizer):
    run, _ = reference
    encoder = load(config.Tokenizer(path=str(tokenizer)))
    texts = texts_of(run)
    rows = pq.read_table(run / "shards" / "documents.parquet").to_pylist()
    streams = {s: np.concatenate(loader.Stream(run / "shards", s).shards) for s in ("train", "validation")}
    assert len(rows) == report(run)["documents"]["kept"]
    for row in rows:
        ids = streams[row["split"]][row["position"] : row["position"] + row["tokens"]]
        assert ids[-1] == encoder.eot_id
        assert encoder.eot_id not in ids[:-1]
        assert encoder.decode(ids[:-1]) == texts[row["doc_id"]]
    assert sum(r["tokens"] for r in rows) == sum(map(len, streams.values()))
    assert shards_check.verify(run / "shards") == []


def test_documents_parquet_names_source_path_row_and_kept_columns(reference, corpus):
    rows = pq.read_table(reference[0] / "shards" / "documents.parquet").to_pylist()
    lines = (corpus[0] / "b.jsonl").read_text().split("\n")
    own = [r for r in rows if r["path"].endswith("b.jsonl")]
    assert own
    for row in own:
        assert row["source"] == "jl"
        assert row["url"] == json.loads(lines[row["row"]])["url"]
    assert {r["url"] for r in rows if r["source"] == "pq"} == {None}


def test_every_duplicate_names_a_kept_or_explained_survivor(reference):
    run, _ = reference
    decisions = {}
    for path in (run / "decisions").glob("*.parquet"):
        decisions.update((r["doc_id"], r) for r in pq.read_table(path).to_pylist())
    clusters = pq.read_table(run / "duplicates" / "clusters.parquet").to_pylist()
    for row in clusters:
        decision = decisions[row["doc_id"]]
        if row["kind"] is None:
            assert row["survivor"] == row["doc_id"]
        else:
            assert decision["reason"] == f"{row['kind']}_duplicate"
            assert decision["partner"] == row["survivor"]
            own = decisions[row["survivor"]]
            assert own["reason"] not in ("exact_duplicate", "fuzzy_duplicate")
            assert 0.2 < row["jaccard"] <= 1.0  # an exact copy of a near-copy has the similarity of that one


def test_no_cluster_is_on_both_sides_of_the_split(reference):
    run, _ = reference
    rows = pq.read_table(run / "shards" / "documents.parquet").to_pylist()
    split = {r["doc_id"]: r["split"] for r in rows}
    sides = {}
    for row in pq.read_table(run / "duplicates" / "clusters.parquet").to_pylist():
        if row["doc_id"] in split:
            sides.setdefault(row["component"], set()).add(split[row["doc_id"]])
    assert sides
    assert all(len(s) == 1 for s in sides.values())


def test_the_stream_is_shuffled_over_sources(reference):
    rows = pq.read_table(reference[0] / "shards" / "documents.parquet").to_pylist()
    train_rows = [r for r in rows if r["split"] == "train"]
    order = np.argsort(np.argsort([r["doc_id"] for r in train_rows]))
    correlation = np.corrcoef(order, np.arange(len(order)))[0, 1]
    assert abs(correlation) < 4 / np.sqrt(len(order))
    half = len(train_rows) // 2
    assert {r["source"] for r in train_rows[:half]} == {r["source"] for r in train_rows[half:]} == {"pq", "jl", "tx"}


# ------------------------------------------------------------------------------------------------------- same bytes


@pytest.mark.parametrize("partition_bytes", [65536, 1 << 20, 1 << 28])
def test_partition_size_does_not_change_a_byte(tmp_path, corpus, tokenizer, reference, partition_bytes):
    execute(tmp_path / "r", corpus[0], tokenizer, run={"engine": "inline", "partition_bytes": partition_bytes})
    assert shard_bytes(tmp_path / "r") == shard_bytes(reference[0])


@pytest.mark.parametrize(("workers", "hash_seed"), [(1, "0"), (2, "1"), (4, "random")])
def test_workers_and_hash_seed_do_not_change_a_byte(tmp_path, corpus, tokenizer, reference, workers, hash_seed):
    path = write_recipe(tmp_path / "r.yaml", recipe(corpus[0], tokenizer, run={"partition_bytes": 65536}))
    done = cli("run", path, "--out", tmp_path / "r", "--workers", workers, env={"PYTHONHASHSEED": hash_seed})
    assert done.returncode == 0, done.stderr
    assert shard_bytes(tmp_path / "r") == shard_bytes(reference[0])


def test_names_and_order_of_files_do_not_change_a_byte(tmp_path, corpus, tokenizer, reference):
    moved = tmp_path / "moved"
    shutil.copytree(corpus[0], moved)
    (moved / "b.jsonl").rename(moved / "zz.jsonl")
    (moved / "c.jsonl.gz").rename(moved / "aa.jsonl.gz")
    for i, path in enumerate(sorted((moved / "notes").iterdir())):
        path.rename(moved / "notes" / f"x{99 - i}.txt")
    data = recipe(moved, tokenizer)
    data["sources"].reverse()
    pipeline.execute(config.parse(data), tmp_path / "r")
    assert shard_bytes(tmp_path / "r") == shard_bytes(reference[0])


def test_dask_gives_the_same_bytes(tmp_path, corpus, tokenizer, reference):
    pytest.importorskip("distributed")
    path = write_recipe(
        tmp_path / "r.yaml", recipe(corpus[0], tokenizer, run={"partition_bytes": 65536, "engine": "dask"})
    )
    done = cli("run", path, "--out", tmp_path / "r", "--workers", "2")
    assert done.returncode == 0, done.stderr
    assert shard_bytes(tmp_path / "r") == shard_bytes(reference[0])


# ------------------------------------------------------------------------------------------------------------ reuse


def test_a_finished_run_is_reused_whole(tmp_path, reference):
    run = tmp_path / "r"
    copy(reference[0], run)
    before = {p: p.stat().st_mtime_ns for p in run.rglob("*.bin")}
    outcome = pipeline.execute(config.Config.model_validate(read_json(run / "run.json")["config"]), run)
    assert {p: p.stat().st_mtime_ns for p in run.rglob("*.bin")} == before
    receipts = {n: len(outcome.context.box(n).parts()) for n in outcome.fingerprint_of}
    assert outcome.reused == receipts


def test_a_threshold_reruns_decisions_and_shards_only_and_mixes_nothing(tmp_path, corpus, tokenizer, reference):
    run = tmp_path / "r"
    copy(reference[0], run)
    earlier = (run / "shards").resolve()
    bound = read_json(earlier / "manifest.json")["split"]["bound"]
    outcome = execute(run, corpus[0], tokenizer, min_tokens=200)
    assert {n for n, f in outcome.context.folders.items() if f != n} == {"decisions", "shards"}
    assert (earlier / "manifest.json").exists()
    assert shard_bytes(run, outcome) != shard_bytes(reference[0])
    fresh = tmp_path / "fresh"
    shards = {"tokens_per_shard": 7919, "validation": {"tokens": 3000, "bound": bound}}  # the run's own split is kept
    again = execute(fresh, corpus[0], tokenizer, min_tokens=200, shards=shards)
    assert shard_bytes(fresh, again) == shard_bytes(run, outcome)
    latest = loader.Stream(run, "train")  # a run directory stands for its latest shards
    assert latest.directory == run / outcome.context.folders["shards"] == (run / "shards").resolve()
    again = execute(run, corpus[0], tokenizer)
    assert run / again.context.folders["shards"] == earlier == (run / "shards").resolve()
    assert again.reused["shards"] == len(again.context.box("shards").parts())


def test_an_edited_source_file_is_read_again(tmp_path, corpus, tokenizer):
    folder = tmp_path / "c"
    shutil.copytree(corpus[0], folder)
    first = execute(tmp_path / "r", folder, tokenizer)
    (folder / "notes" / "new.txt").write_text("A new document that says something else entirely. " * 9)
    second = execute(tmp_path / "r", folder, tokenizer)
    assert second.reused["documents"] == len(first.context.box("documents").parts())  # the old files are not
    assert len(second.context.box("documents").parts()) == second.reused["documents"] + 1
    assert shard_bytes(tmp_path / "r", second) != shard_bytes(tmp_path / "r", first)


def test_a_run_directory_of_other_sources_is_refused_by_key(tmp_path, corpus, tokenizer, reference):
    data = recipe(corpus[0], tokenizer)
    data["sources"][0]["row_groups"] = {"every": 2}
    with pytest.raises(
        ConfigError, match=r"run\.json was made with sources\.0\.row_groups\.every = 1, this config has 2"
    ):
        pipeline.execute(config.parse(data), reference[0])


def test_a_folder_of_something_else_is_refused(tmp_path, corpus, tokenizer):
    (tmp_path / "r").mkdir()
    (tmp_path / "r" / "thesis.tex").write_text("mine")
    with pytest.raises(ConfigError, match=r"not empty and has no run\.json"):
        execute(tmp_path / "r", corpus[0], tokenizer)


def test_plan_writes_nothing_and_foretells_the_partitions(tmp_path, corpus, tokenizer, reference):
    path = write_recipe(tmp_path / "r.yaml", recipe(corpus[0], tokenizer))
    done = cli("plan", path, "--out", tmp_path / "r", "--json")
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert not (tmp_path / "r").exists()
    assert sum(s["files"] for s in facts["sources"]) == 11
    assert facts["partitions"] <= len(list((reference[0] / "documents").glob("*.parquet")))
    assert all(b["state"] == "to do" for b in facts["boxes"])
    later = json.loads(cli("plan", path, "--out", reference[0], "--json").stdout)
    assert {b["state"] for b in later["boxes"]} == {"reused"}


# -------------------------------------------------------------------------------------------------- damage and death


@pytest.mark.parametrize(
    "name",
    [
        "documents/*.parquet",
        "signatures/*.parquet",
        "tokens/*.bin",
        "tokens/*.len",
        "decisions/*.parquet",
        "shards/*.bin",
    ],
)
@pytest.mark.parametrize("damage", ["cut", "flip"])
def test_a_damaged_file_is_made_again(tmp_path, reference, name, damage):
    run = tmp_path / "r"
    copy(reference[0], run)
    path = sorted(run.glob(name))[0]
    data = bytearray(path.read_bytes())
    if damage == "flip":
        if name == "shards/*.bin":
            pytest.skip("a finished shard is checked by `shards verify`, not by every run")
        data[len(data) // 2] ^= 0xFF
        remove(run, "shards")  # so that somebody reads it
        if not name.startswith("decisions"):
            remove(run, "decisions")
    path.write_bytes(data[:-5] if damage == "cut" else data)
    if damage == "cut" and not name.startswith("shards"):
        remove(run, "shards")
    pipeline.execute(config.Config.model_validate(read_json(run / "run.json")["config"]), run)
    assert shard_bytes(run) == shard_bytes(reference[0])
    assert shards_check.verify(run / "shards") == []


@pytest.mark.parametrize("name", ["manifest.json", "documents.parquet", "tokenizer.json"])
def test_a_damaged_file_beside_the_shards_is_made_again(tmp_path, reference, name):
    run = tmp_path / "r"
    copy(reference[0], run)
    whole = (run / "shards" / name).read_bytes()
    (run / "shards" / name).write_bytes(whole[: len(whole) // 2])
    pipeline.execute(config.Config.model_validate(read_json(run / "run.json")["config"]), run)
    assert (run / "shards" / name).read_bytes() == whole
    assert shards_check.verify(run / "shards") == []


def test_many_damaged_files_at_once_are_all_made_again_by_several_workers(tmp_path, corpus, tokenizer, reference):
    run = tmp_path / "r"
    copy(reference[0], run)
    remove(run, "decisions", "duplicates", "shards")
    for path in [*run.glob("signatures/*.parquet"), *run.glob("scores/*.parquet"), *run.glob("documents/*.parquet")]:
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 0xFF
        path.write_bytes(data)
    path = write_recipe(tmp_path / "r.yaml", recipe(corpus[0], tokenizer))
    done = cli("run", path, "--out", run, "--set", "run.engine=local", "--workers", "2")
    assert done.returncode == 0, done.stderr
    assert shard_bytes(run) == shard_bytes(reference[0])


def test_what_a_kill_while_tidying_up_leaves_is_tidied(tmp_path, reference):
    run = tmp_path / "r"
    copy(reference[0], run)
    (run / "shards" / ".order").mkdir()
    pipeline.execute(config.Config.model_validate(read_json(run / "run.json")["config"]), run)
    assert not (run / "shards" / ".order").exists()


def test_a_first_try_that_read_nothing_does_not_lock_the_folder(tmp_path, tokenizer):
    path = tmp_path / "a.jsonl"
    path.write_text('{"id": 1, "text": "first about ferries"}\n{"id": 2, "text": "second about lamps"}\n')
    wrong = {"name": "s", "type": "jsonl", "path": str(path), "text_column": "id"}
    with pytest.raises(FatalError, match="no document was kept"):
        pipeline.execute(one_source(path, tokenizer, sources=[wrong]), tmp_path / "r")
    pipeline.execute(one_source(path, tokenizer), tmp_path / "r")
    assert report(tmp_path / "r")["documents"]["kept"] == 2


def test_a_first_try_that_failed_while_planning_leaves_the_plain_names_free(tmp_path, tokenizer):
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"contents": ["first about ferries", "second about lamps"]}), tmp_path / "a.parquet")
    source = {"name": "s", "type": "parquet", "path": str(tmp_path / "a.parquet")}
    with pytest.raises(ConfigError, match="has no column 'text'"):
        pipeline.execute(one_source("", tokenizer, sources=[source]), tmp_path / "r")
    right = [{**source, "text_column": "contents"}]
    pipeline.execute(one_source("", tokenizer, sources=right), tmp_path / "r")
    assert set(read_json(tmp_path / "r" / "run.json")["folders"].values()) >= {"documents", "rejects", "tokens"}


@pytest.mark.parametrize("pattern", ["", "**/*.txt"])
def test_a_run_inside_what_it_reads_is_refused(tmp_path, tokenizer, pattern):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text("some text")
    with pytest.raises(ConfigError, match="which source s reads"):
        pipeline.execute(one_source(tmp_path / "in" / pattern, tokenizer, kind="text"), tmp_path / "in" / "run")


def test_a_file_that_changes_while_it_is_read_stops_the_run_and_is_read_anew(tmp_path, tokenizer, monkeypatch):
    from gpu_curate.stages.documents.stage import Documents

    path = jsonl(tmp_path / "a.jsonl", ["first about ferries", "second about lamps"])
    original = Documents.run

    def run_and_change(self, *args):
        done = original(self, *args)
        jsonl(path, ["first about ferries", "second about lamps", "third about doors"])
        return done

    monkeypatch.setattr(Documents, "run", run_and_change)
    with pytest.raises(FatalError, match=r"a\.jsonl changed while it was read"):
        pipeline.execute(one_source(path, tokenizer), tmp_path / "r")
    monkeypatch.undo()
    pipeline.execute(one_source(path, tokenizer), tmp_path / "r")
    assert report(tmp_path / "r")["documents"]["kept"] == 3


def test_a_network_that_fails_when_all_is_read_costs_nothing_that_was_read(tmp_path, tokenizer, monkeypatch):
    from gpu_curate.stages.documents import stage as documents

    path = jsonl(tmp_path / "a.jsonl", ["first about ferries", "second about lamps"])
    real, calls = documents.inventory, []

    def unreachable_at_last(config):
        calls.append(1)
        if (tmp_path / "r" / "documents" / ".receipts").exists():
            raise UnreachableError("source s: path: http://x cannot be listed: 503")
        return real(config)

    monkeypatch.setattr(documents, "inventory", unreachable_at_last)
    with pytest.raises(FatalError, match=r"did a file change meanwhile\? source s: .* 503"):
        pipeline.execute(one_source(path, tokenizer), tmp_path / "r")
    assert calls
    monkeypatch.undo()
    pipeline.execute(one_source(path, tokenizer), tmp_path / "r")
    assert report(tmp_path / "r")["documents"]["kept"] == 2
    assert next(s for s in report(tmp_path / "r")["steps"] if s["name"] == "documents")["reused"] == 1


@pytest.mark.soak
def test_sigkill_at_random_moments_changes_no_byte(tmp_path, corpus, tokenizer, reference, soak_cases):
    path = write_recipe(tmp_path / "r.yaml", recipe(corpus[0], tokenizer, run={"partition_bytes": 65536}))
    rng = random.Random(20)
    command = [sys.executable, "-m", "gpu_curate.cli", "run", str(path), "--out", str(tmp_path / "r"), "--workers", "2"]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    start = time.monotonic()
    assert (
        subprocess.run([*command[:-3], str(tmp_path / "warm")], env=env, capture_output=True, check=False).returncode
        == 0
    )
    whole = time.monotonic() - start
    killed, kills = 0, soak_cases(4, 40)
    while killed < kills:
        process = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            process.wait(rng.uniform(0.3, 0.9) * whole)
            shutil.rmtree(tmp_path / "r")  # it got through: begin anew
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
            killed += 1
            if killed % 4 == 0:  # else the kills after the first few would all hit the end
                assert subprocess.run(command, env=env, capture_output=True, check=False).returncode == 0
                assert shard_bytes(tmp_path / "r") == shard_bytes(reference[0])
                shutil.rmtree(tmp_path / "r")
    assert subprocess.run(command, env=env, capture_output=True, check=False).returncode == 0
    assert shard_bytes(tmp_path / "r") == shard_bytes(reference[0])
    assert not list((tmp_path / "r").rglob("*.tmp-*"))


def test_a_killed_worker_costs_its_partition_only(tmp_path, corpus, tokenizer, reference):
    path = write_recipe(tmp_path / "r.yaml", recipe(corpus[0], tokenizer, run={"partition_bytes": 65536}))
    command = [sys.executable, "-m", "gpu_curate.cli", "run", str(path), "--out", str(tmp_path / "r"), "--workers", "2"]
    process = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while not list((tmp_path / "r").glob("tokens/*.bin")) and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.01)
    children = subprocess.run(
        ["pgrep", "-P", str(process.pid), "-f", "spawn_main"], capture_output=True, text=True, check=False
    )
    assert children.stdout.split(), "no worker was found to be killed"
    os.kill(int(children.stdout.split()[0]), signal.SIGKILL)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    assert "a worker process died" in errors
    assert shard_bytes(tmp_path / "r") == shard_bytes(reference[0])


def test_ctrl_c_stops_cleanly_and_says_how_to_go_on(tmp_path, corpus, tokenizer, reference):
    path = write_recipe(tmp_path / "r.yaml", recipe(corpus[0], tokenizer, run={"partition_bytes": 65536}))
    command = [sys.executable, "-m", "gpu_curate.cli", "run", str(path), "--out", str(tmp_path / "r"), "--workers", "2"]
    process = subprocess.Popen(
        command, env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + 60
    while not list((tmp_path / "r").glob("documents/*.parquet")) and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    out, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert "Traceback" not in errors
    assert "to go on: gpu-curate run" in out
    assert (
        subprocess.run(
            command, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, check=False
        ).returncode
        == 0
    )
    assert shard_bytes(tmp_path / "r") == shard_bytes(reference[0])


def test_a_full_disk_is_one_error_and_a_rerun_goes_on(tmp_path, corpus, tokenizer, reference):
    small = tmp_path / "small"
    small.mkdir()
    if (
        os.geteuid() != 0
        or subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", str(small)], capture_output=True, check=False
        ).returncode
    ):
        pytest.skip("cannot mount a small tmpfs here")
    try:
        path = write_recipe(tmp_path / "r.yaml", recipe(corpus[0], tokenizer))
        done = cli("run", path, "--out", small / "r")
        assert done.returncode == 1
        assert "cannot write" in done.stderr
        assert "Traceback" not in done.stderr
        subprocess.run(["mount", "-o", "remount,size=20m", str(small)], check=True)
        done = cli("run", path, "--out", small / "r")
        assert done.returncode == 0, done.stderr
        assert shard_bytes(small / "r") == shard_bytes(reference[0])
    finally:
        subprocess.run(["umount", str(small)], check=False)


# --------------------------------------------------------------------------------------------------- said, not silent


def one_source(path, tokenizer, kind="jsonl", **keys):
    data = {
        "sources": [{"name": "s", "type": kind, "path": str(path)}],
        "tokenizer": {"path": str(tokenizer)},
        "min_tokens": 0,
        "run": {"engine": "inline"},
    }
    return config.parse({**data, **keys})


def jsonl(path, texts):
    path.write_text("\n".join(json.dumps({"text": t}) for t in texts))
    return path


def test_storage_keys_are_written_nowhere(tmp_path, tokenizer):
    path = jsonl(tmp_path / "a.jsonl", ["first about ferries", "second about lamps"])
    source = {"name": "s", "type": "jsonl", "path": str(path), "storage_options": {"secret": "hunter2"}}
    pipeline.execute(one_source(path, tokenizer, sources=[source]), tmp_path / "r")
    for file in (tmp_path / "r").rglob("*"):
        assert file.is_dir() or b"hunter2" not in file.read_bytes(), file


def test_a_missing_path_fails_at_once_by_name(tmp_path, tokenizer):
    with pytest.raises(ConfigError, match=r"source s: path: .*gone\.jsonl matches no file"):
        pipeline.execute(one_source(tmp_path / "gone.jsonl", tokenizer), tmp_path / "r")
    assert not (tmp_path / "r").exists()


def test_a_file_of_another_kind_is_an_error_by_name(tmp_path, tokenizer):
    path = jsonl(tmp_path / "data.json5", ["a", "b"])
    with pytest.raises(ConfigError, match=r"data\.json5 is not of this type"):
        pipeline.execute(one_source(path, tokenizer), tmp_path / "r")
    assert not (tmp_path / "r").exists()


def test_an_empty_corpus_is_said(tmp_path, tokenizer):
    (tmp_path / "empty.jsonl").write_text("")
    with pytest.raises(FatalError, match="no document was kept: 0 were read"):
        pipeline.execute(one_source(tmp_path / "empty.jsonl", tokenizer), tmp_path / "r")
    assert not list((tmp_path / "r").rglob("*.bin.tmp*"))


def test_a_filter_that_drops_everything_is_said_by_name(tmp_path, tokenizer):
    path = jsonl(tmp_path / "a.jsonl", ["short", "texts"])
    with pytest.raises(FatalError, match="too_few_tokens dropped 2"):
        pipeline.execute(one_source(path, tokenizer, min_tokens=1000), tmp_path / "r")
    assert not (tmp_path / "r" / "shards" / "manifest.json").exists()


def test_strict_stops_at_the_first_reject_with_its_place(tmp_path, tokenizer):
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "good"}\n{"text": "cut\n')
    with pytest.raises(Exception, match=r"a\.jsonl: row 1, byte 17: not JSON"):
        pipeline.execute(one_source(path, tokenizer, run={"engine": "inline", "strict": True}), tmp_path / "r")


def test_nothing_removed_is_no_error(tmp_path, tokenizer):
    path = jsonl(tmp_path / "a.jsonl", ["first about ferries", "second about lamps", "third about doors"])
    pipeline.execute(one_source(path, tokenizer), tmp_path / "r")
    facts = report(tmp_path / "r")
    assert facts["documents"]["kept"] == 3
    assert facts["documents"]["dropped"] == {}


def test_short_texts_are_duplicates_only_of_equals_and_empties_are_empty(tmp_path, tokenizer):
    path = jsonl(tmp_path / "a.jsonl", ["red door", "blue lamp", "red door", "", "   ", "!!!", "???"])
    pipeline.execute(one_source(path, tokenizer), tmp_path / "r")
    documents = report(tmp_path / "r")["documents"]
    assert documents["dropped"] == {"empty": 2, "exact_duplicate": 1}
    assert documents["kept"] == 4


def test_long_documents_of_one_vocabulary_are_all_kept(tmp_path, tokenizer):
    rng = random.Random(1)
    vocabulary = ["".join(rng.choices("abcdefghij", k=6)) for _ in range(138)]
    path = jsonl(tmp_path / "a.jsonl", [" ".join(rng.choices(vocabulary, k=8000)) for _ in range(6)])
    pipeline.execute(one_source(path, tokenizer), tmp_path / "r")
    assert report(tmp_path / "r")["documents"]["kept"] == 6


def test_chinese_sentences_that_differ_in_one_character_are_near_duplicates(tmp_path, tokenizer):
    a = "我们今天下午在图书馆里一起讨论了那本关于海洋生物的新书,大家都觉得很有意思也学到了许多知识。" * 2
    path = jsonl(
        tmp_path / "a.jsonl",
        [a, a.replace("海", "河", 1), "另一句完全不同的话,说的是山上的天气和远处的村庄,还有早晨的雾气。"],
    )
    fuzzy = {"shingle_words": 2, "num_bands": 28, "rows_per_band": 4}
    pipeline.execute(one_source(path, tokenizer, dedup={"fuzzy": fuzzy}), tmp_path / "r")
    assert report(tmp_path / "r")["documents"]["dropped"] == {"fuzzy_duplicate": 1}


def test_a_source_that_loses_most_to_duplicates_raises_an_alarm(tmp_path, tokenizer):
    path = jsonl(tmp_path / "a.jsonl", ["the same text again and again"] * 30 + ["one other text"])
    pipeline.execute(one_source(path, tokenizer), tmp_path / "r")
    assert any("source s: 94% of its documents are duplicates" in w for w in report(tmp_path / "r")["warnings"])


@pytest.mark.parametrize("verify", ["none", "signature", "exact"])
def test_what_is_kept_does_not_depend_on_where_documents_lie(tmp_path, tokenizer, verify):
    from corpora import document, edited

    rng = random.Random(11)
    base = [document(rng, 6) for _ in range(12)]
    texts = base + [edited(t, rng, r) for t in base for r in (0.02, 0.05, 0.1, 0.2)]
    fuzzy = {"num_bands": 20, "rows_per_band": 2, "shingle_words": 2, "verify": verify, "threshold": 0.6}
    kept = set()
    for order in range(3):
        rng.shuffle(texts)
        path = jsonl(tmp_path / f"{order}.jsonl", texts)
        pipeline.execute(one_source(path, tokenizer, dedup={"fuzzy": fuzzy}), tmp_path / f"r{order}")
        kept.add(tuple(shard_bytes(tmp_path / f"r{order}").values()))
    assert len(kept) == 1
    assert 0 < report(tmp_path / "r0")["documents"]["dropped"]["fuzzy_duplicate"] < 48


@pytest.mark.parametrize("keep", ["first", "longest", "highest:words"])
def test_the_survivor_rule_is_followed(tmp_path, tokenizer, keep):
    rng = random.Random(12)
    from corpora import document

    text = document(rng, 20)
    path = jsonl(tmp_path / "a.jsonl", [text, text + " one more", text + " and two more words"])
    pipeline.execute(one_source(path, tokenizer, dedup={"fuzzy": {"keep": keep}}), tmp_path / "r")
    clusters = pq.read_table(tmp_path / "r" / "duplicates" / "clusters.parquet").to_pylist()
    assert {r["survivor"] for r in clusters} == {0 if keep == "first" else 2}


def test_exact_duplicates_can_be_compared_as_text(tmp_path, tokenizer):
    path = jsonl(tmp_path / "a.jsonl", ["one text", "another", "one text", "one text"])
    pipeline.execute(one_source(path, tokenizer, dedup={"exact": "compare", "fuzzy": None}), tmp_path / "r")
    assert report(tmp_path / "r")["documents"]["dropped"] == {"exact_duplicate": 2}


def test_scope_group_keeps_copies_of_other_groups_and_says_so(tmp_path, tokenizer):
    rows = [{"text": "the same long text in two crawls and twice in one", "dump": d} for d in ("a", "b", "b")]
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    source = {"name": "s", "type": "jsonl", "path": str(path), "group_column": "dump"}
    pipeline.execute(one_source(path, tokenizer, sources=[source], dedup={"fuzzy": {"scope": "group"}}), tmp_path / "r")
    facts = report(tmp_path / "r")
    assert facts["documents"]["dropped"] == {"exact_duplicate": 1}
    assert any("scope: group" in w for w in facts["warnings"])


def test_validation_never_takes_more_than_its_share_nor_everything(tmp_path, tokenizer):
    rng = random.Random(6)
    from corpora import document

    texts = [document(rng, 3) for _ in range(40)] + [document(rng, 400)]
    for seed in range(4):
        path = jsonl(tmp_path / f"{seed}.jsonl", texts)
        shards = {"shuffle_seed": seed, "validation": {"max_fraction": 0.1}}
        pipeline.execute(one_source(path, tokenizer, shards=shards, dedup={"fuzzy": None}), tmp_path / f"r{seed}")
        splits = report(tmp_path / f"r{seed}")["splits"]
        assert splits["validation"]["tokens"] <= 0.1 * sum(s["tokens"] for s in splits.values())
    path = jsonl(tmp_path / "copies.jsonl", [document(rng, 20) for _ in range(40)] * 9)  # each text goes whole or stays
    copies = {"dedup": {"exact": False, "fuzzy": None}, "shards": {"validation": {"max_fraction": 0.1}}}
    pipeline.execute(one_source(path, tokenizer, **copies), tmp_path / "copies")
    splits = report(tmp_path / "copies")["splits"]
    assert 0 < splits["validation"]["tokens"] <= 0.1 * sum(s["tokens"] for s in splits.values())
    assert splits["validation"]["documents"] % 9 == 0
    path = jsonl(tmp_path / "one.jsonl", ["only text"] * 3)
    pinned = {"validation": {"bound": "f" * 16}}
    with pytest.raises(FatalError, match="all 3 kept documents are held out"):
        pipeline.execute(
            one_source(path, tokenizer, shards=pinned, dedup={"exact": False, "fuzzy": None}), tmp_path / "one"
        )


def test_deduplicating_twice_changes_nothing(tmp_path, corpus, tokenizer, reference):
    run, _ = reference
    kept = set()
    for path in (run / "decisions").glob("*.parquet"):
        kept |= {r["doc_id"] for r in pq.read_table(path).to_pylist() if r["keep"]}
    texts = [text for doc_id, text in texts_of(run).items() if doc_id in kept]
    again = jsonl(tmp_path / "kept.jsonl", texts)
    pipeline.execute(one_source(again, tokenizer), tmp_path / "r")
    assert report(tmp_path / "r")["documents"]["dropped"] == {}


def test_the_validation_bound_pinned_moves_no_document_when_data_is_added(tmp_path, tokenizer):
    rng = random.Random(5)
    from corpora import document

    first = [document(rng) for _ in range(80)]
    jsonl(tmp_path / "a.jsonl", first)
    pipeline.execute(one_source(tmp_path / "a.jsonl", tokenizer), tmp_path / "r")
    bound = read_json(tmp_path / "r" / "shards" / "manifest.json")["split"]["bound"]
    jsonl(tmp_path / "b.jsonl", first + [document(rng) for _ in range(80)])
    pinned = {"validation": {"tokens": 0, "bound": bound}}
    pipeline.execute(one_source(tmp_path / "b.jsonl", tokenizer, shards=pinned), tmp_path / "r2")

    def sides(run):
        texts = texts_of(run)
        return {texts[r["doc_id"]]: r["split"] for r in pq.read_table(run / "shards" / "documents.parquet").to_pylist()}

    before, after = sides(tmp_path / "r"), sides(tmp_path / "r2")
    assert "validation" in before.values()
    assert {t: after[t] for t in before} == before
    assert sum(s == "validation" for s in after.values()) > sum(s == "validation" for s in before.values())


def test_a_cut_file_is_named(tmp_path, tokenizer):
    rng = random.Random(8)
    from corpora import document

    whole = gzip.compress(b"".join(json.dumps({"text": document(rng)}).encode() + b"\n" for _ in range(200)))
    (tmp_path / "cut.jsonl.gz").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "whole.jsonl.gz").write_bytes(whole)
    pipeline.execute(one_source(tmp_path / "*.jsonl.gz", tokenizer), tmp_path / "r")
    facts = report(tmp_path / "r")
    said = f"1 file is cut or damaged, and read as far as possible: {tmp_path}/cut.jsonl.gz; see rejects/"
    assert said in facts["warnings"]
    assert facts["incomplete"] == [f"{tmp_path}/cut.jsonl.gz"]


def test_an_empty_file_beside_a_good_one_is_named(tmp_path, tokenizer):
    jsonl(tmp_path / "good.jsonl", ["first about ferries", "second about lamps"])
    (tmp_path / "empty.jsonl").write_text("")
    pipeline.execute(one_source(tmp_path / "*.jsonl", tokenizer), tmp_path / "r")
    facts = report(tmp_path / "r")
    assert facts["documents"]["kept"] == 2
    assert f"source s: {tmp_path}/empty.jsonl is empty: 0 documents" in facts["warnings"]


def test_file_of_which_one_task_reads_nothing_is_not_called_unreadable_if_another_reads_documents(tmp_path, tokenizer):
    good = [json.dumps({"text": f"document {i} " + "of some words " * 30}) for i in range(300)]
    (tmp_path / "half.jsonl").write_text("\n".join(good + ["no JSON " * 2000] * 500))
    (tmp_path / "none.jsonl").write_text("\n".join(["nor is this " * 50] * 500))
    sources = [{"name": "s", "type": "jsonl", "path": str(tmp_path / "*.jsonl")}]
    execute(tmp_path / "r", tmp_path, tokenizer, sources=sources)
    assert len(list((tmp_path / "r/rejects").glob("*.jsonl"))) == 3  # two of half.jsonl, cut after 4 MiB
    unreadable = [w for w in report(tmp_path / "r")["warnings"] if "nothing could be read" in w]
    assert len(unreadable) == 1
    assert f"source s: nothing could be read of 1 file, e.g. {tmp_path}/none.jsonl: " in unreadable[0]
