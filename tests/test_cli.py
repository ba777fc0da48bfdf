"""The command line: exit statuses, one clear error, help with an example, JSON for programs."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from corpora import recipe, write_corpus
from typer.testing import CliRunner

from gpu_curate import cli, config

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A recipe with a trained tokenizer, and its finished run."""
    folder = tmp_path_factory.mktemp("cli")
    write_corpus(folder / "c", documents=60)
    data = recipe(folder / "c", Path("unused")) | {"tokenizer": {"train": {"vocab_size": 500}}}
    (folder / "r.yaml").write_text(yaml.safe_dump(data))
    done = run("run", folder / "r.yaml", "--out", folder / "r")
    assert done.returncode == 0, done.stderr
    return folder, done


def run(*args, **options):
    command = [sys.executable, "-m", "gpu_curate", *map(str, args)]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=120, check=False, **options)


def test_a_run_prints_what_was_read_dropped_kept_and_where_things_are(finished):
    folder, done = finished
    out = done.stdout
    for said in (
        "backend: cpu (",
        "dropped: exact_duplicate",
        "kept",
        "validation",
        "MB/s per worker",
        f"report    {folder}/r/report/index.html",
        f"shards    {folder}/r/shards",
    ):
        assert said in out, said
    assert "Traceback" not in done.stderr


def test_status_shards_and_head_read_a_run(finished):
    folder, _ = finished
    facts = json.loads(run("status", folder / "r", "--json").stdout)
    assert facts["complete"]
    assert set(facts["boxes"]) >= {"documents", "scores", "signatures", "tokens", "decisions", "shards", "tokenizer"}
    assert "complete" in run("status", folder / "r").stdout
    info = json.loads(run("shards", "info", folder / "r", "--json").stdout)
    assert info["splits"]["train"]["tokens"] > 0
    assert "vocabulary" in run("shards", "info", folder / "r" / "shards").stdout
    verify = run("shards", "verify", folder / "r")
    assert (verify.returncode, verify.stdout.endswith("every check passed\n")) == (0, True)
    head = run("shards", "head", folder / "r", "-n", "1")
    assert "doc_id" in head.stdout
    assert len(head.stdout.splitlines()) > 3


def test_verify_finds_a_changed_byte(finished, tmp_path):
    import shutil

    folder, _ = finished
    shutil.copytree(folder / "r" / "shards", tmp_path / "s")
    shard = tmp_path / "s" / "train_000000.bin"
    data = bytearray(shard.read_bytes())
    data[5000] ^= 1
    shard.write_bytes(data)
    verify = run("shards", "verify", tmp_path / "s")
    assert verify.returncode == 1
    assert "train_000000.bin: sha256" in verify.stdout


def test_tokenizer_train_writes_a_tokenizer_that_a_run_takes(finished, tmp_path):
    folder, _ = finished
    out = tmp_path / "t.json"
    done = run(
        "tokenizer", "train", folder / "c" / "b.jsonl", folder / "c" / "a.parquet", "--vocab-size", 400, "--out", out
    )
    assert done.returncode == 0, done.stderr
    assert "400 entries" in done.stdout
    assert "asked for" not in done.stderr
    data = recipe(folder / "c", out)
    (tmp_path / "r.yaml").write_text(yaml.safe_dump(data))
    assert run("run", tmp_path / "r.yaml", "--out", tmp_path / "r").returncode == 0


def test_a_tokenizer_smaller_than_asked_for_is_a_warning(tmp_path):
    (tmp_path / "a.txt").write_text("tic tac toe " * 50 + "tic")
    done = run("tokenizer", "train", tmp_path / "a.txt", "--vocab-size", 1000, "--out", tmp_path / "t.json")
    made = len(json.loads((tmp_path / "t.json").read_text())["model"]["vocab"]) + 1
    assert 256 < made < 300
    said = f"warning: tokenizer: 1000 entries asked for, {made} made: no other pair of tokens occurs twice in the 0.000603 MB"
    assert said in done.stderr
    assert f"{made} entries" in done.stdout
    data = {
        "sources": [{"name": "s", "type": "text", "path": str(tmp_path / "a.txt")}],
        "tokenizer": {"train": {"vocab_size": 1000}},
        "min_tokens": 1,
    }
    (tmp_path / "r.yaml").write_text(yaml.safe_dump(data))
    done = run("run", tmp_path / "r.yaml", "--out", tmp_path / "r")
    assert said in done.stderr, done.stderr
    assert said.removeprefix("warning: ") in json.loads((tmp_path / "r/report/report.json").read_text())["warnings"][0]


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["run", "nowhere.yaml"], "config nowhere.yaml: no such file"),
        (["run", "{recipe}", "--set", "dedup.fuzy=1"], "dedup.fuzy: unknown key (did you mean 'fuzzy'?)"),
        (["run", "{recipe}", "--backend", "gpu"], "backend gpu: "),
        (["run", "{recipe}", "--set", "run.engine=slurm"], "run.engine: 'slurm'"),
        (["run", "{recipe}", "--set", "tokenizer={path: gone/tokenizer.json}"], "gone/tokenizer.json"),
        (["status", "nowhere"], "nowhere is not a run directory"),
        (["shards", "info", "nowhere"], "nowhere: no such folder"),
        (["shards", "verify", "."], "no manifest.json"),
        (["tokenizer", "train", "nowhere/*.txt"], "nowhere/*.txt matches no file"),
    ],
)
def test_what_cannot_start_is_one_error_and_exit_status_2(finished, tmp_path, args, said):
    recipe_path = finished[0] / "r.yaml"
    done = run(*[a.replace("{recipe}", str(recipe_path)) for a in args], cwd=tmp_path)
    assert done.returncode == 2, done.stdout + done.stderr
    assert done.stderr.startswith("error: ")
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert os.listdir(tmp_path) == []


def test_gpu_asked_for_with_no_device_visible_is_an_error_and_auto_says_why(finished, tmp_path):
    env = {**os.environ, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "-m", "gpu_curate.cli", "run", str(finished[0] / "r.yaml"), "--out", str(tmp_path / "r")]
    refused = subprocess.run([*command, "--backend", "gpu"], env=env, capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert "CUDA_VISIBLE_DEVICES is empty" in refused.stderr
    taken = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert taken.returncode == 0
    assert "backend: cpu (CUDA_VISIBLE_DEVICES is empty)" in taken.stdout


def test_output_that_the_locale_cannot_say_is_escaped(finished, tmp_path):
    folder, _ = finished
    env = {**os.environ, "PYTHONPATH": str(ROOT), "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    env.pop("PYTHONIOENCODING", None)
    command = [sys.executable, "-m", "gpu_curate.cli"]
    for args, status, said in (
        (["shards", "head", str(folder / "r"), "-n", "60"], 0, "\\x"),
        (["run", "日本語.yaml"], 2, "error: config "),
        (["tokenizer", "train", "日本語/*.txt"], 2, "matches no file"),
        (["run", str(folder / "r.yaml"), "--out", str(tmp_path / "r")], 0, "kept"),
    ):
        done = subprocess.run([*command, *args], env=env, capture_output=True, cwd=tmp_path, timeout=120, check=False)
        output = (done.stdout + done.stderr).decode("ascii")
        assert done.returncode == status, output
        assert said in output
        assert "Traceback" not in output


@pytest.mark.parametrize("number", ["ENOSPC", "EACCES", "EMFILE"])
def test_what_the_system_refuses_is_one_error(monkeypatch, capsys, number):
    error = OSError(getattr(errno, number), os.strerror(getattr(errno, number)), "some/file")
    monkeypatch.setattr(cli, "app", lambda **_: (_ for _ in ()).throw(error))
    with pytest.raises(SystemExit) as e:
        cli.main()
    assert e.value.code == 1
    assert capsys.readouterr().err == f"error: some/file: {error.strerror}\n"


def test_an_error_of_ours_keeps_its_traceback(monkeypatch):
    monkeypatch.setattr(cli, "app", lambda **_: (_ for _ in ()).throw(OSError(errno.EBADF, "Bad file descriptor")))
    with pytest.raises(OSError, match="Bad file descriptor"):
        cli.main()


@pytest.mark.parametrize("engine", ["inline", "local"])
def test_sigterm_stops_cleanly_and_says_how_to_go_on(finished, tmp_path, engine):
    folder, _ = finished
    write_corpus(tmp_path / "c", documents=600)
    data = yaml.safe_load((folder / "r.yaml").read_text()) | recipe(tmp_path / "c", folder / "r/shards/tokenizer.json")
    (tmp_path / "r.yaml").write_text(yaml.safe_dump(data | {"run": {"engine": engine, "partition_bytes": 65536}}))
    command = [sys.executable, "-m", "gpu_curate.cli", "run", str(tmp_path / "r.yaml"), "--out", str(tmp_path / "r")]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while not list((tmp_path / "r").glob("documents/*.parquet")) and time.monotonic() < deadline:
        time.sleep(0.01)
    process.terminate()
    out, errors = process.communicate(timeout=60)
    assert process.returncode == 143, out + errors
    assert "Traceback" not in errors
    assert "to go on: gpu-curate run" in out
    assert run("run", tmp_path / "r.yaml", "--out", tmp_path / "r").returncode == 0


def commands(app, path=()):
    import typer.main

    group = typer.main.get_command(app)

    def walk(command, names):
        for name, sub in getattr(command, "commands", {}).items():
            if hasattr(sub, "commands"):
                yield from walk(sub, [*names, name])
            else:
                yield [*names, name], sub

    yield from walk(group, list(path))


@pytest.mark.parametrize(
    ("names", "command"), list(commands(cli.app)), ids=lambda v: " ".join(v) if isinstance(v, list) else ""
)
def test_every_command_has_help_with_an_example_whose_options_exist(names, command):
    result = CliRunner().invoke(cli.app, [*names, "--help"])
    assert result.exit_code == 0
    assert command.help
    example = command.epilog or ""
    assert f"gpu-curate {' '.join(names)}" in example
    known = {o for p in command.params for o in p.opts}
    for word in example.split():
        if word.startswith("-") and word != "--":
            assert word.split("=")[0] in known, f"{word} in the example of {names}"


def test_importing_the_package_probes_nothing():
    code = (
        "import sys, gpu_curate, gpu_curate.cli\n"
        "heavy = {'cupy', 'cudf', 'numba', 'pyarrow', 'torch', 'ray', 'dask', 'tokenizers', 'scipy', 'trafilatura'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("path", sorted((ROOT / "configs").glob("*.yaml")), ids=lambda p: p.stem)
def test_every_recipe_loads(path):
    assert config.load(path).sources


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["run", "{recipe}", "--backend", "gpuu"], "--backend gpuu: choose auto, cpu or gpu (did you mean 'gpu'?)"),
        (["shards", "head", "{run}", "--split", "trian"], "(did you mean 'train'?)"),
        (["run", "{folder}"], "a folder, not a recipe"),
        (["run", "{recipe}", "--set", "sources.jll.path=x"], "nor a name in the list (did you mean 'jl'?)"),
    ],
)
def test_a_misspelt_choice_is_an_error_that_suggests_the_right_one(finished, args, said):
    folder, _ = finished
    names = {"{recipe}": folder / "r.yaml", "{run}": folder / "r", "{folder}": folder}
    done = CliRunner().invoke(cli.app, [str(names.get(a, a)) for a in args])
    assert said in str(done.exception)


def test_choices_stand_in_the_help_and_the_shell_completes_them():
    text = CliRunner().invoke(cli.app, ["run", "--help"], env={"COLUMNS": "100"}).output
    assert "--backend auto|cpu|gpu" in text
    assert "--split train|validation|val" in CliRunner().invoke(cli.app, ["shards", "head", "--help"]).output
    for option in ("--install-completion", "--show-completion"):
        assert option in CliRunner().invoke(cli.app, ["--help"]).output
    done = run("--show-completion", "bash")
    assert done.returncode == 0, done.stderr
    assert "gpu-curate" in done.stdout
