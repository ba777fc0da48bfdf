"""Which shards and report a run directory stands for, whatever ran in it, was killed in it, or was copied how."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from corpora import document, texts_of
from places import ROOT

from gpu_curate import config
from gpu_curate.api import pipeline
from gpu_curate.errors import ConfigError, FatalError, NothingKeptError
from gpu_curate.loader import ShardLoader, shards_folder
from gpu_curate.runs import cleaning
from gpu_curate.runs.cleaning import clean
from gpu_curate.runs.planning import make_plan
from gpu_curate.runs.state import run_state
from gpu_curate.shards_check import verify
from gpu_curate.store import run_directory
from gpu_curate.store.files import read_json
from gpu_curate.store.run_directory import RUN_FILE


@pytest.fixture
def recipe(tmp_path, tokenizer):
    """`recipe(min_tokens=...)`, over a folder `in` of 60 documents."""
    rng = random.Random(1)
    (tmp_path / "in").mkdir()
    write(tmp_path / "in" / "m.jsonl", [document(rng, 1 + i % 9) for i in range(60)])

    def make(**keys):
        return config.parse(
            {
                "sources": [{"name": "s", "type": "jsonl", "path": str(tmp_path / "in" / "*.jsonl")}],
                "tokenizer": {"path": str(tokenizer)},
                "min_tokens": 0,
                "shards": {"validation": {"tokens": 500}},
                "run": {"engine": "inline"},
                **keys,
            }
        )

    return make


def write(path: Path, texts: list[str]) -> None:
    path.write_text("\n".join(json.dumps({"text": t}) for t in texts))


def target(run: Path, name: str = "shards") -> str:
    return (run / name).resolve().name


def is_whole(run: Path) -> None:
    """The plain names give the set of shards that the run names as its latest, and the report of that set."""
    latest = run_directory.latest_shards(run)
    assert (run / "shards").resolve() == latest.resolve()
    assert verify(run / "shards") == []
    facts = read_json(run / "report" / "report.json")
    kept = pq.read_table(run / "shards" / "documents.parquet").num_rows
    assert facts["documents"]["kept"] == kept
    assert (run / "report" / "index.html").exists()


def cli(*args):
    command = [sys.executable, "-m", "gpu_curate.cli", *map(str, args)]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=120, check=False)


# ---------------------------------------------------------------------------------------------------------- the latest


def test_plain_names_are_the_latest_and_earlier_sets_stay_with_their_reports(tmp_path, recipe):
    run = tmp_path / "r"
    names = []
    for least in (0, 60, 120):
        outcome = pipeline.execute(recipe(min_tokens=least), run)
        is_whole(run)
        names.append(target(run))
        assert names[-1] == outcome.context.folders["shards"] != "shards"
        assert target(run, "report") == names[-1].replace("shards", "report")
    assert len(set(names)) == 3
    kept = [read_json(run / n.replace("shards", "report") / "report.json")["documents"]["kept"] for n in names]
    assert kept[0] > kept[1] > kept[2]
    pipeline.execute(recipe(min_tokens=60), run)  # back to an earlier threshold
    is_whole(run)
    assert target(run) == names[1]
    sets = run_state(run)["sets"]
    assert next(s["folder"] for s in sets) == names[1]
    assert {s["folder"]: (s["latest"], s["differs"].get("min_tokens")) for s in sets} == {
        names[0]: (False, [60, 0]),
        names[1]: (True, None),
        names[2]: (False, [60, 120]),
    }
    for one in sets:
        assert one["report"] == one["folder"].replace("shards", "report")
        assert one["disk_bytes"] > sum(p.stat().st_size for p in (run / one["folder"]).glob("*.bin")) > 0
    told = cli("shards", "info", run).stdout
    assert all(name in told for name in names)
    assert "min_tokens: 120" in told
    assert all(name in cli("status", run).stdout for name in names)


def test_a_run_that_kept_nothing_leaves_the_last_good_one(tmp_path, recipe):
    run = tmp_path / "r"
    with pytest.raises(NothingKeptError):
        pipeline.execute(recipe(min_tokens=10**6), run)
    assert read_json(run / "report" / "report.json")["documents"]["kept"] == 0  # nothing else is there: it says why
    assert run_state(run)["shards"] is None
    pipeline.execute(recipe(), run)
    good = target(run)
    is_whole(run)
    with pytest.raises(NothingKeptError, match=f"the latest shards are still those of .*{good}") as caught:
        pipeline.execute(recipe(min_tokens=10**5), run)
    own = caught.value.hint.split("why each went is in ")[1].split(";")[0]
    assert read_json(Path(own).parent / "report.json")["documents"]["kept"] == 0
    is_whole(run)
    assert target(run) == good
    assert run_state(run)["shards"] == str(run / good)
    assert shards_folder(run) == run / good
    checked = cli("shards", "verify", run)
    assert (checked.returncode, checked.stdout) == (0, f"{run / good}: every check passed\n")


def test_a_loader_goes_on_with_what_it_opened(tmp_path, recipe):
    import pickle

    run = tmp_path / "r"
    pipeline.execute(recipe(), run)
    for opened in (run, run / "shards"):
        loader = ShardLoader(opened, "train", 1, 32, as_torch=False)
        before = [loader.batch(i)[0] for i in range(len(loader))]
        kept = pickle.dumps(loader)
        pipeline.execute(recipe(min_tokens=120), run)
        elsewhere = pickle.loads(kept)  # as a worker process opens it
        assert elsewhere.tokens == loader.tokens
        for i, x in enumerate(before):
            np.testing.assert_array_equal(elsewhere.batch(i)[0], x)
        assert ShardLoader(opened, "train", 1, 32, as_torch=False).tokens < loader.tokens
        pipeline.execute(recipe(), run)


@pytest.mark.parametrize("calls", range(1, 9))
def test_killed_while_names_are_swapped_there_is_a_whole_latest(tmp_path, recipe, monkeypatch, calls):
    """Everything that changes a name on disk, from the last shard on, stops the process once."""
    run = tmp_path / "r"
    pipeline.execute(recipe(), run)
    left = [calls]
    originals = {name: getattr(os, name) for name in ("replace", "rename", "symlink")}

    def stops(name):
        def call(*args, **options):
            if (
                any("shards" in str(a) or "report" in str(a) or "run.json" in str(a) for a in args)
                and (run / RUN_FILE).exists()
                and read_json(run / RUN_FILE)["config"]["min_tokens"]
            ):
                left[0] -= 1
                if left[0] == 0:
                    raise KeyboardInterrupt
            return originals[name](*args, **options)

        return call

    for name in originals:
        monkeypatch.setattr(os, name, stops(name))
    try:
        pipeline.execute(recipe(min_tokens=60), run)
    except KeyboardInterrupt:
        assert verify(run / "shards") == []
        assert (run / "report" / "report.json").exists()
        assert shards_folder(run) == (run / "shards").resolve()
    monkeypatch.undo()
    pipeline.execute(recipe(min_tokens=60), run)
    is_whole(run)
    assert not list(run.rglob("*.tmp-*"))


# ------------------------------------------------------------------------------------------------ copies and old runs


def as_version_0_1(run: Path, *sets: str) -> None:
    """Make a run directory what version 0.1 left: the first shards under the plain name, one report, no `latest`."""
    first = sets[0]
    for name in ("shards", "report"):
        (run / name).unlink()
    (run / first).rename(run / "shards")
    last = sets[-1].replace("shards", "report")
    (run / last).rename(run / "report")
    for other in run.glob("report-*"):
        shutil.rmtree(other)
    facts = read_json(run / "run.json")
    del facts["latest"]
    if len(sets) == 1:
        facts["folders"]["shards"] = "shards"
    (run / "run.json").write_text(json.dumps(facts))


@pytest.mark.parametrize("exchange", [True, False])
def test_a_run_of_the_version_before_is_read_and_gone_on_with(tmp_path, recipe, monkeypatch, exchange):
    if not exchange:
        monkeypatch.setattr(run_directory, "_exchange", lambda a, b: False)
    run = tmp_path / "r"
    pipeline.execute(recipe(), run)
    name = target(run)
    as_version_0_1(run, name)
    assert shards_folder(run) == run / "shards"
    assert verify(run / "shards") == []
    again = pipeline.execute(recipe(), run)  # nothing to do: the folder stays as it is
    assert again.context.folders["shards"] == "shards"
    assert not (run / "shards").is_symlink()
    pipeline.execute(recipe(min_tokens=60), run)
    is_whole(run)
    assert verify(run / name) == []
    assert read_json(run / name.replace("shards", "report") / "report.json")["documents"]["kept"] == 60
    pipeline.execute(recipe(), run)
    is_whole(run)
    assert target(run) == name


def test_of_an_older_run_with_two_sets_the_latest_is_the_one_it_names(tmp_path, recipe):
    run = tmp_path / "r"
    pipeline.execute(recipe(), run)
    first = target(run)
    pipeline.execute(recipe(min_tokens=60), run)
    second = target(run)
    as_version_0_1(run, first, second)
    assert shards_folder(run) == run / second
    sets = run_directory.shard_sets(run)
    assert [(s["folder"], s["report"]) for s in sets] == [(second, "report"), ("shards", None)]
    with pytest.raises(NothingKeptError):
        pipeline.execute(recipe(min_tokens=10**6), run)
    assert shards_folder(run).name in (first, second, "shards")
    pipeline.execute(recipe(min_tokens=60), run)
    is_whole(run)
    assert target(run) == second
    assert verify(run / first) == []


@pytest.mark.parametrize("how", [["cp", "-r"], ["cp", "-rL"], ["cp", "-a"]])
def test_copies_stand_for_the_same_latest(tmp_path, recipe, how):
    run, to = tmp_path / "r", tmp_path / "copy"
    pipeline.execute(recipe(), run)
    pipeline.execute(recipe(min_tokens=60), run)
    subprocess.run([*how, str(run), str(to)], check=True)
    assert verify(to / "shards") == []
    manifest = (run / "shards" / "manifest.json").read_bytes()
    assert (to / "shards" / "manifest.json").read_bytes() == manifest
    assert (shards_folder(to) / "manifest.json").read_bytes() == manifest
    pipeline.execute(recipe(min_tokens=120), to)
    is_whole(to)
    assert (to / target(run) / "manifest.json").read_bytes() == manifest


def test_a_file_system_without_links_is_said(tmp_path, recipe, monkeypatch):
    def refused(*args, **options):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "symlink", refused)
    outcome = pipeline.execute(recipe(), tmp_path / "r")
    assert any("has no links" in w and outcome.context.folders["shards"] in w for w in outcome.warnings)
    assert verify(shards_folder(tmp_path / "r")) == []


# ------------------------------------------------------------------------------------------------------------- the split


def sides(run: Path) -> dict[str, str]:
    texts = texts_of(run)
    rows = pq.read_table(shards_folder(run) / "documents.parquet").to_pylist()
    return {texts[r["doc_id"]]: r["split"] for r in rows}


def grow(tmp_path: Path, name: str = "a", seed: int = 2) -> None:
    rng = random.Random(seed)
    write(tmp_path / "in" / f"{name}.jsonl", [document(rng, 1 + i % 9) for i in range(60)])


def test_a_run_directory_keeps_its_split_when_data_is_added(tmp_path, recipe):
    run = tmp_path / "r"
    pipeline.execute(recipe(), run)
    before, bound = sides(run), read_json(run / "shards/manifest.json")["split"]["bound"]
    grow(tmp_path)
    plan = make_plan(recipe(), run)
    assert (plan["split"]["pinned"], plan["split"]["bound"]) == (True, bound)
    outcome = pipeline.execute(recipe(), run)
    after, manifest = sides(run), read_json(run / "shards/manifest.json")
    assert len(after) == 120
    assert {t: after[t] for t in before} == before
    assert manifest["split"]["bound"] == manifest["config"]["shards"]["validation"]["bound"] == bound
    assert manifest["split"]["pinned"]
    assert read_json(run / "run.json")["split"]["bound"] == bound
    assert not any("validation split" in w for w in outcome.warnings)
    elsewhere = recipe(shards={"validation": {"tokens": 500, "bound": bound}})  # the same bytes: a bound is an input
    pipeline.execute(elsewhere, tmp_path / "other")
    assert (tmp_path / "other/shards/manifest.json").read_bytes() == (run / "shards/manifest.json").read_bytes()
    again = pipeline.execute(recipe(), run)
    assert again.context.folders["shards"] == outcome.context.folders["shards"]
    assert again.reused["shards"] > 0


@pytest.mark.parametrize("how", ["fresh", "tokens", "seed"])
def test_a_moved_bound_is_a_warning_with_counts(tmp_path, recipe, how):
    run = tmp_path / "r"
    pipeline.execute(recipe(), run)
    before = sides(run)
    grow(tmp_path)
    shards = {"fresh": {"validation": {"tokens": 500}}, "tokens": {"validation": {"tokens": 900}}}
    changed = recipe(shards=shards.get(how, {"shuffle_seed": 7, "validation": {"tokens": 500}}))
    assert not make_plan(changed, run, fresh=how == "fresh")["split"]["pinned"]
    outcome = pipeline.execute(changed, run, fresh=how == "fresh")
    after = sides(run)
    to_training = sum(before[t] == "validation" and after[t] == "train" for t in before)
    to_validation = sum(before[t] == "train" and after[t] == "validation" for t in before)
    assert to_training + to_validation
    said = f"{to_training} documents went from validation to training and {to_validation} from training to validation"
    assert any(said in w for w in outcome.warnings), outcome.warnings
    assert any(said in w for w in read_json(run / "report/report.json")["warnings"])


def test_an_earlier_run_pins_the_split_of_another_directory(tmp_path, recipe):
    pipeline.execute(recipe(), tmp_path / "old")
    before, bound = sides(tmp_path / "old"), read_json(tmp_path / "old/shards/manifest.json")["split"]["bound"]
    grow(tmp_path)
    bytes_ = set()
    for i, earlier in enumerate(("old", "old/shards", "old/shards/manifest.json")):
        keeps = recipe(shards={"validation": {"tokens": 500, "earlier": str(tmp_path / earlier)}})
        pipeline.execute(keeps, tmp_path / f"new{i}")
        after = sides(tmp_path / f"new{i}")
        assert {t: after[t] for t in before} == before
        bytes_.add(tuple(p.read_bytes() for p in sorted((tmp_path / f"new{i}/shards").glob("*.bin"))))
        assert read_json(tmp_path / f"new{i}/shards/manifest.json")["split"]["bound"] == bound
    assert len(bytes_) == 1


def test_what_cannot_pin_is_an_error_by_key(tmp_path, recipe):
    def validation(**keys):
        return recipe(shards={"shuffle_seed": keys.pop("seed", 1337), "validation": {"tokens": 500, **keys}})

    with pytest.raises(ConfigError, match=r"shards\.validation\.earlier: .*gone is no run directory"):
        pipeline.execute(validation(earlier=str(tmp_path / "gone")), tmp_path / "r")
    with pytest.raises(ConfigError, match="give one of `bound` and `earlier`"):
        validation(earlier="x", bound="0" * 16)
    pipeline.execute(recipe(), tmp_path / "old")
    with pytest.raises(ConfigError, match="shuffled with seed 1337, this config has 7") as caught:
        pipeline.execute(validation(earlier=str(tmp_path / "old"), seed=7), tmp_path / "r")
    assert caught.value.hint == "set shards.shuffle_seed: 1337"
    pipeline.execute(recipe(shards={"validation": {"tokens": 0}}), tmp_path / "none")
    with pytest.raises(ConfigError, match="holds nothing out"):
        pipeline.execute(validation(earlier=str(tmp_path / "none")), tmp_path / "r")


# ----------------------------------------------------------------------------------------------------------------- clean


def entries(run: Path) -> set[str]:
    return {p.name for p in run.iterdir() if not p.name.startswith(".")}


def three_sets(run: Path, recipe) -> list[str]:
    names = []
    for keys in ({"dedup": {"fuzzy": None}}, {"min_tokens": 60}, {}):
        names.append(pipeline.execute(recipe(**keys), run).context.folders["shards"])
    return names


def test_clean_lists_and_removes_what_the_latest_does_not_need(tmp_path, recipe):
    run = tmp_path / "r"
    names = three_sets(run, recipe)
    needed = set(read_json(run / "run.json")["folders"].values())
    before = entries(run)
    told = clean(run)
    listed = {i["folder"] for i in told["items"]}
    assert listed == before - needed - {"run.json", "run.log", "shards", "report"} - {
        n.replace("shards", p) for n in names for p in ("shards", "report")
    }
    assert any(n.startswith("signatures") for n in listed)
    assert told["disk_bytes"] == sum(run_directory.disk_bytes(run / n) for n in listed) > 0
    assert entries(run) == before  # nothing is removed unasked
    done = cli("clean", run, "--yes")
    assert done.returncode == 0, done.stderr
    assert entries(run) == before - listed
    is_whole(run)
    assert all(verify(run / n) == [] for n in names)
    told = clean(run, shards=True, remove=True)
    assert {i["folder"] for i in told["items"]} == {
        n.replace("shards", p) for n in names[:2] for p in ("shards", "report")
    }
    assert entries(run) == needed | {"run.json", "run.log", "shards", "report", names[2].replace("shards", "report")}
    is_whole(run)
    assert clean(run, shards=True)["items"] == []
    again = pipeline.execute(recipe(), run)
    assert again.reused["documents"]
    assert again.reused["shards"]
    pipeline.execute(recipe(min_tokens=60), run)  # what was removed is made again
    is_whole(run)


def test_clean_keeps_what_an_unfinished_run_has_made(tmp_path, recipe, monkeypatch):
    from gpu_curate.stages.shards import Shards

    run = tmp_path / "r"
    pipeline.execute(recipe(), run)
    monkeypatch.setattr(Shards, "run", lambda *args: 1 / 0)
    with pytest.raises(FatalError):
        pipeline.execute(recipe(min_tokens=60), run)
    monkeypatch.undo()
    before = entries(run)
    told = clean(run, shards=True, remove=True)
    assert told["items"] == []
    assert read_json(run / "run.json")["folders"]["decisions"] in told["kept"]
    assert entries(run) == before


def test_clean_touches_nothing_but_boxes_and_goes_through_no_link(tmp_path, recipe):
    run, outside = tmp_path / "r", tmp_path / "outside"
    names = three_sets(run, recipe)
    outside.mkdir()
    (outside / "mine.txt").write_text("mine")
    old = next(
        n
        for n in entries(run)
        if n.startswith("decisions-") and n != read_json(run / "run.json")["folders"]["decisions"]
    )
    shutil.move(run / old, tmp_path / "moved")
    before = entries(run)
    for link in (run / old, run / names[0] / "link"):
        link.symlink_to(outside)
        with pytest.raises(ConfigError, match=rf"{link} is a link that leads out of the run directory"):
            clean(run, shards=True, remove=True)
        link.unlink()
    assert entries(run) == before
    shutil.move(tmp_path / "moved", run / old)
    (run / "notes").mkdir()
    (run / "decisions-of-mine").mkdir()
    (run / "decisions-0123456789ab").write_text("a file")
    told = clean(run, shards=True, remove=True)
    assert old in {i["folder"] for i in told["items"]}
    assert (outside / "mine.txt").read_text() == "mine"
    assert entries(run) >= {"notes", "decisions-of-mine", "decisions-0123456789ab"}
    assert not {old, names[0]} & entries(run)
    is_whole(run)


@pytest.mark.parametrize("content", [None, "{}", "no json", '{"folders": {}}', "[]"])
def test_clean_refuses_a_folder_that_is_no_run(tmp_path, content):
    (tmp_path / "decisions-0123456789ab").mkdir()
    if content is not None:
        (tmp_path / "run.json").write_text(content)
    before = entries(tmp_path)
    done = cli("clean", tmp_path, "--yes", "--shards")
    assert done.returncode == 2
    assert "is not a run directory" in done.stderr
    assert entries(tmp_path) == before


def test_clean_killed_leaves_no_half_of_a_box_and_is_finished_by_the_next(tmp_path, recipe, monkeypatch):
    run = tmp_path / "r"
    three_sets(run, recipe)
    listed = {i["folder"] for i in clean(run)["items"]}

    def killed(path, **options):
        next(p for p in Path(path).rglob("*") if p.is_file()).unlink()
        raise KeyboardInterrupt

    monkeypatch.setattr(cleaning.shutil, "rmtree", killed)
    with pytest.raises(KeyboardInterrupt):
        clean(run, remove=True)
    monkeypatch.undo()
    gone = listed - entries(run)
    assert len(gone) == 1
    assert len(list(run.glob(".*.tmp-*"))) == 1
    assert {i["folder"] for i in clean(run, remove=True)["items"]} == listed - gone
    assert not list(run.glob(".*.tmp-*"))
    is_whole(run)


def test_clean_waits_for_the_process_that_works_in_the_run(tmp_path, recipe):
    import threading

    from gpu_curate.store.lock import run_lock

    run = tmp_path / "r"
    three_sets(run, recipe)
    waited = threading.Event()
    with run_lock(run):
        thread = threading.Thread(target=clean, args=(run, False, True, lambda pid: waited.set()))
        thread.start()
        assert waited.wait(30)
        assert clean(run)["items"]  # nothing went meanwhile
    thread.join(30)
    assert clean(run)["items"] == []
