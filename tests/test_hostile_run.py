"""A run directory that somebody else can write to: nothing outside of it is written, and what leads out is refused by name."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import stat

import pytest
from corpora import recipe, write_corpus

from gpu_curate import config
from gpu_curate.api.pipeline import execute
from gpu_curate.errors import ConfigError, GpuCurateError
from gpu_curate.inquiry.forget import forget
from gpu_curate.loader import shards_folder
from gpu_curate.runs.cleaning import clean
from gpu_curate.runs.finished import open_run
from gpu_curate.runs.state import run_state
from gpu_curate.store.artifact import RECEIPTS, Box
from gpu_curate.store.files import open_log, publish, write_json
from gpu_curate.store.lock import LOCK, lock_holder, run_lock


@pytest.fixture
def victim(tmp_path):
    path = tmp_path / "victim"
    path.write_text("precious")
    return path


@pytest.fixture
def run(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    return folder


def test_a_lock_that_is_a_link_is_refused_and_its_target_stays(run, victim):
    (run / LOCK).symlink_to(victim)
    with pytest.raises(ConfigError, match=r"\.lock is a link"), run_lock(run):
        pass
    with pytest.raises(ConfigError, match=r"\.lock is a link"):
        lock_holder(run)
    assert victim.read_text() == "precious"


def test_a_lock_that_is_another_name_of_a_file_is_refused_and_the_file_stays(run, victim):
    os.link(victim, run / LOCK)
    with pytest.raises(ConfigError, match="holds no process id"), run_lock(run):
        pass
    assert victim.read_text() == "precious"


def test_a_lock_that_is_a_pipe_or_a_folder_is_refused_at_once(run):
    os.mkfifo(run / LOCK)
    with pytest.raises(ConfigError, match="no regular file"), run_lock(run):
        pass
    (run / LOCK).unlink()
    (run / LOCK).mkdir()
    with pytest.raises(ConfigError), run_lock(run):
        pass


@pytest.mark.parametrize(("content", "holder"), [("12 ", 12), ("", 0), ("\x1b[31m7", 0), ("9" * 500, 0), ("-3", 0)])
def test_the_holder_is_digits_or_nobody_known(run, content, holder):
    with run_lock(run):
        (run / LOCK).write_text(content)
        assert lock_holder(run) == holder


def test_a_link_under_a_temporary_or_a_log_name_is_not_followed(run, victim, monkeypatch):
    monkeypatch.setattr("gpu_curate.store.files.secrets.token_hex", lambda n: "00")
    (run / f".a.tmp-{os.getpid()}-00").symlink_to(victim)
    with pytest.raises(FileExistsError), publish(run / "a") as temp:
        temp.write_text("x")
    (run / "run.log").symlink_to(victim)
    with pytest.raises(OSError, match="symbolic links"):
        open_log(run / "run.log")
    assert victim.read_text() == "precious"


@pytest.mark.parametrize("umask", [0o022, 0o027, 0o077, 0o002])
def test_files_and_folders_have_the_mode_that_the_umask_leaves(tmp_path, umask):
    before = os.umask(umask)
    try:
        write_json(tmp_path / "new" / "a.json", {})
        with run_lock(tmp_path / "run"):
            open_log(tmp_path / "run" / "run.log").close()
    finally:
        os.umask(before)
    for path in (tmp_path / "new" / "a.json", tmp_path / "run" / LOCK, tmp_path / "run" / "run.log"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~umask, path
    for path in (tmp_path / "new", tmp_path / "run"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o777 & ~umask, path


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hostile")
    write_corpus(folder / "c", documents=40)
    data = recipe(folder / "c", folder / "unused") | {"tokenizer": {"train": {"vocab_size": 400}}}
    data["run"] = {**data.get("run", {}), "engine": "inline"}
    recipe_ = config.parse(data)
    execute(recipe_, folder / "r")
    return folder, recipe_


@pytest.fixture
def copy(finished, tmp_path):
    folder, recipe_ = finished
    shutil.copytree(folder / "r", tmp_path / "r", symlinks=True)
    return tmp_path / "r", recipe_


@pytest.mark.parametrize("name", ["../elsewhere", "/etc", "a/../../b", "", "half \ud800", "a\0b", "é" * 130])
def test_a_box_that_run_json_puts_elsewhere_is_refused_by_name(copy, name):
    run, recipe_ = copy
    facts = json.loads((run / "run.json").read_text())
    facts["folders"] = {**facts["folders"], "documents": name, "shards": name}
    (run / "run.json").write_text(json.dumps(facts))
    for look in (run_state, lambda r: execute(recipe_, r)):
        with pytest.raises(ConfigError) as e:
            look(run)
        assert repr(name) in str(e.value)
    facts["latest"] = {"shards": name}
    (run / "run.json").write_text(json.dumps(facts))
    (run / "shards").unlink()
    for look in (shards_folder, clean):
        with pytest.raises(ConfigError, match="names"):
            look(run)


@pytest.mark.parametrize(
    "where", ["decisions", "documents/.receipts", "shards", "run.log", "documents/part-000000.parquet"]
)
def test_a_link_that_leaves_the_run_directory_is_refused_by_name(copy, tmp_path, where):
    run, recipe_ = copy
    outside = tmp_path / "outside"
    place = run / where
    if place.is_symlink():
        place.unlink()
        outside.mkdir()
    elif place.exists():
        place.rename(outside)
    else:
        outside.write_text("precious")
    before = sorted(p.name for p in outside.rglob("*")) if outside.is_dir() else outside.read_bytes()
    place.symlink_to(outside)
    with pytest.raises(ConfigError) as e:
        execute(recipe_, run)
    assert where in str(e.value) or "names" in str(e.value)
    assert (sorted(p.name for p in outside.rglob("*")) if outside.is_dir() else outside.read_bytes()) == before
    if where == "decisions":
        with pytest.raises(ConfigError, match="leads out of the run directory"):
            open_run(run)


def test_a_receipt_names_no_file_outside(tmp_path, victim):
    box = Box(tmp_path / "run" / "box")
    for name in ("../../victim", str(victim), "x/../../../victim", "x" * 300, "half \ud800", "a\0b"):
        receipt = {"part": "000000", "files": [{"file": name, "bytes": 8, "xxh3": "0"}]}
        (box.folder / RECEIPTS).mkdir(parents=True, exist_ok=True)
        (box.folder / RECEIPTS / "part-000000.json").write_text(json.dumps(receipt))
        with pytest.raises(ConfigError, match="does not lie below the run directory"):
            box.receipt("000000")


def test_a_run_directory_that_is_itself_a_link_is_worked_in(finished, tmp_path):
    _, recipe_ = finished
    (tmp_path / "disk").mkdir()
    (tmp_path / "r").symlink_to(tmp_path / "disk")
    execute(recipe_, tmp_path / "r")
    assert run_state(tmp_path / "r")["complete"]
    assert (tmp_path / "disk" / "run.json").exists()


@pytest.mark.parametrize(
    ("key", "value"),
    [("config", []), ("folders", "x"), ("folders", {"documents": 1, "shards": "s"}), ("folders", {}), ("latest", 3),
     ("latest", {"folders": [1]}), ("fingerprints", [1]), ("backend", None), ("cache", 7), ("folders", {"documents": "x" * 5000, "shards": "s"})],
)  # fmt: skip
def test_a_run_file_whose_values_are_of_another_kind_is_one_error(copy, key, value):
    run, recipe_ = copy
    facts = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**facts, key: value}))
    for look in (run_state, open_run, clean, lambda r: execute(recipe_, r)):
        with contextlib.suppress(GpuCurateError):  # what does not need the value goes on
            look(run)
    if not isinstance(value, dict) and key != "latest":
        with pytest.raises(ConfigError, match=rf"run\.json is not a run file of this program \({key}"):
            open_run(run)


def test_nothing_is_removed_or_forgotten_through_a_link_in_a_box(copy, tmp_path):
    run, _ = copy
    receipts = (run / "documents").resolve() / RECEIPTS
    receipts.rename(tmp_path / "receipts of another run")
    receipts.symlink_to(tmp_path / "receipts of another run")
    before = sorted((tmp_path / "receipts of another run").iterdir())
    with pytest.raises(ConfigError, match="is a link that leads out of the run directory"):
        clean(run, remove=True)
    with pytest.raises(ConfigError, match="is a link that leads out of the run directory"):
        forget(run, ["0"])
    assert sorted((tmp_path / "receipts of another run").iterdir()) == before != []


def test_a_run_file_that_names_the_cache_of_another_run_lets_nothing_write_there(copy, tmp_path):
    run, _ = copy
    cache = tmp_path / "cache"
    cache.mkdir()
    write_json(cache / "cache.json", {"version": 1, "files": {}})
    for name in ("decisions", "shards"):
        shutil.copytree((run / name).resolve(), cache / (run / name).resolve().name)
    facts = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**facts, "cache": str(cache)}))
    for path in (run / ".corpus").glob("*.json"):
        snapshot = json.loads(path.read_text())
        path.write_text(json.dumps({**snapshot, "shared": ["decisions", "shards"]}))
    before = {p: p.stat().st_mtime_ns for p in cache.rglob("*")}
    with pytest.raises(ConfigError, match=r"its decisions lie in .*cache"):
        forget(run, ["0"])
    with contextlib.suppress(ConfigError):
        clean(run, shards=True, remove=True)
    assert {p: p.stat().st_mtime_ns for p in cache.rglob("*")} == before
    for other in ("relative", str(tmp_path), "/etc", str(tmp_path / "not there")):
        (run / "run.json").write_text(json.dumps({**facts, "cache": other}))
        with pytest.raises(ConfigError, match="is no cache of this program"):
            open_run(run)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("fingerprints", {"documents": None, "decisions": None}),
        ("config", {"sources": [{"type": "of a package that is gone"}]}),
    ],
)
def test_a_run_file_with_half_of_what_it_should_hold_is_one_error(copy, key, value):
    run, _ = copy
    facts = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**facts, key: value}))
    with pytest.raises(ConfigError):
        open_run(run)
