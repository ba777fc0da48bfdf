"""What a run tells: lines, bars, run.log, status, JSON; and its last words."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from corpora import recipe, write_inputs
from rich.console import Console
from typer.testing import CliRunner

from gpu_curate import __version__, cli, config, console, terminal
from gpu_curate.api import pipeline
from gpu_curate.errors import ConfigError, FatalError
from gpu_curate.runs import progress, scheduler
from gpu_curate.runs.state import run_state
from gpu_curate.store.lock import run_lock

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    """A corpus of several partitions and its recipe on disk."""
    folder = tmp_path_factory.mktemp("progress")
    write_inputs(folder, documents=300)
    data = recipe(folder / "corpus", folder / "tokenizer.json")
    (folder / "r.yaml").write_text(yaml.safe_dump(data))
    return folder, data


class Clock:
    """A time.monotonic that the test turns."""

    def __init__(self, monkeypatch):
        self.now = 100.0
        monkeypatch.setattr(progress.time, "monotonic", lambda: self.now)


def lines_of(monkeypatch, *calls, quiet=False):
    clock, out = Clock(monkeypatch), io.StringIO()
    lines = progress.Lines(quiet, out, out, begun=100.0)
    for seconds, *call in calls:
        clock.now = 100.0 + seconds
        lines.box(*call)
    return out.getvalue().splitlines()


def test_a_line_says_how_many_of_how_many_how_fast_how_long_yet_and_when_a_box_ends(monkeypatch):
    assert lines_of(
        monkeypatch,
        (0.0, "scores", 0, None, 0, 0),
        (11.0, "scores", 10, None, 22_000_000, 0),
        (22.0, "scores", 2_000, 4_000, 44_000_000, 0),
        (23.0, "scores", 2_001, 4_000, 44_000_000, 0),
        (44.0, "scores", 4_000, 4_000, 88_000_000, 0),
    ) == [
        "[   11.0 s] scores: 10 of ? partitions, 22.0 MB, 2.0 MB/s",
        "[   22.0 s] scores: 2,000 of 4,000 partitions, 44.0 MB, 2.0 MB/s, 0:00:22 left",
        "[   44.0 s] scores: done, 4,000 partitions, 88.0 MB, 2.0 MB/s",
    ]


def test_reused_partitions_count_as_done_and_make_nothing_faster(monkeypatch):
    assert lines_of(
        monkeypatch,
        (0.0, "documents", 3, 10, 300_000_000, 3),
        (20.0, "documents", 5, 10, 500_000_000, 3),
        (70.0, "documents", 10, 10, 1_000_000_000, 3),
    ) == [
        "[   20.0 s] documents: 5 of 10 partitions, 3 reused, 500.0 MB, 10.0 MB/s, 0:00:50 left",
        "[   70.0 s] documents: done, 10 partitions, 3 reused, 1.0 GB, 10.0 MB/s",
    ]


@pytest.mark.parametrize("width", [80, 100, 200, 66, 50])
def test_bars_fit_the_terminal_and_cut_no_number(monkeypatch, width):
    clock = Clock(monkeypatch)
    screen = Console(width=width, force_terminal=True, file=io.StringIO(), color_system=None)
    bars = terminal.Bars(screen, 100.0)
    calls = [
        ("documents", 123_456, 234_567, 999_900_000_000, 1_000),
        ("reference_signatures", 0, None, 0, 0),
        ("scores", 99_999, None, 888_800_000_000, 0),
        ("shards", 7, 7, 700, 7),
    ]
    for call in calls:
        bars.box(*call[:1], 0, *call[2:3], 0, 0)
    clock.now += 5000.0
    for call in calls:
        bars.box(*call)
    with screen.capture() as shown:
        screen.print(bars._bars.get_renderable())
    text = shown.get()
    rows = text.splitlines()
    assert all(len(row) <= width for row in rows), rows
    assert len(rows) == len(calls) + 1
    for whole in ("123,456/234,567", "99,999/?", "7/7", "1:15:", "1:23:20", *(["999.9 GB"] if width >= 60 else [])):
        assert whole in text, whole
    if width >= 66:
        assert "177.8 MB/s" in text
    if width >= 80:
        bar = [task for task in bars._bars.tasks if task.description == "scores"]
        drawn = bars._bars.columns[1].render(bar[0])
        assert (drawn.completed, drawn.pulse) == (0, False)  # empty, not full


@pytest.mark.parametrize("width", [80, 60])
def test_tables_cut_no_number_on_a_narrow_terminal(monkeypatch, capsys, width):
    monkeypatch.setenv("COLUMNS", str(width))
    step = {
        "name": "reference_signatures", "wall_seconds": 123456.78, "seconds": 9876543.21, "cpu_seconds": 8765432.1,
        "bytes": 987_600_000_000, "partitions": 123456, "reused": 12345, "backend": "gpu (text read by the CPU)",
    }  # fmt: skip
    table = console._steps({"steps": [step]})
    terminal.show(table)
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= width
    for whole in ("123,456.78", "8,765,432.10", "123,456"):
        assert whole in out
    assert "\u2026" not in out
    counts = {"read": 1, "rejected": 0, "dropped": {"gopher_repetition:duplicate_10_gram_chars": 123456789}, "kept": 0}
    facts = {"documents": counts, "tokens": {**counts}, "bytes": {**counts}, "skipped": {}, "passed_bytes": {}}
    terminal.show(console._funnel(facts))
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= width
    assert out.count("123,456,789") == 2


# ------------------------------------------------------------------------------------------------- in the run directory


def test_a_run_keeps_its_log_and_says_how_far_it_is(inputs, tmp_path):
    _, data = inputs
    seen = []

    class Spy(progress.Quiet):
        def box(self, *call):
            seen.append((call, run_state(tmp_path / "r")))

    pipeline.execute(config.parse(data), tmp_path / "r", Spy())
    ends = {}
    for (name, done, total, _, _), state in seen:
        assert (state["state"], state["pid"], state["complete"] and name != "shards") == ("running", os.getpid(), False)
        assert total is None or done <= total
        if done == total:
            assert name not in ends  # told once
            ends[name] = done
    state = run_state(tmp_path / "r")
    assert ends == {name: box["partitions"] for name, box in state["boxes"].items()}
    assert (state["state"], state["complete"], state["pid"]) == ("complete", True, None)
    assert all(box["total"] == box["partitions"] > 0 for box in state["boxes"].values())
    log = (tmp_path / "r" / "run.log").read_text()
    assert "backend: cpu (" in log
    assert re.search(r"\] documents: done, [0-9]+ partitions, [0-9.]+ kB", log)
    assert log.rstrip().endswith("complete")
    pipeline.execute(config.parse(data), tmp_path / "r")
    again = (tmp_path / "r" / "run.log").read_text()
    assert again.startswith(log)
    assert re.search(r"\] documents: done, ([0-9]+) partitions, \1 reused", again[len(log) :])


def test_a_task_that_made_three_partitions_counts_three(tmp_path):
    text = "".join(json.dumps({"text": f"number {i} " * 400}) + "\n" for i in range(60))
    (tmp_path / "a.jsonl").write_text(text)
    data = {
        "sources": [{"name": "a", "type": "jsonl", "path": str(tmp_path / "a.jsonl"), "max_documents": 60}],
        "tokenizer": {"train": {"vocab_size": 300}},
        "run": {"engine": "inline", "partition_bytes": 65536},
    }
    told = []

    class Spy(progress.Quiet):
        def box(self, *call):
            told.append(call)

    for _ in range(2):
        told.clear()
        pipeline.execute(config.parse(data), tmp_path / "r", Spy())
        n = len(list((tmp_path / "r" / "documents").glob("*.parquet")))
        assert n > 2
        (end,) = [c for c in told if c[0] == "documents" and c[1] == c[2]]
        assert end[1] == n
    assert end[4] == n  # all of them reused


def test_status_tells_stopped_failed_killed_and_starting_apart(inputs, tmp_path, monkeypatch):
    _, data = inputs

    def end_with(error):
        def stop(*_):
            raise error

        with monkeypatch.context() as m:
            m.setattr(scheduler.Runner, "_collect", stop)
            with pytest.raises(type(error)):
                pipeline.execute(config.parse(data), tmp_path / "r")
        return run_state(tmp_path / "r")

    state = end_with(KeyboardInterrupt())
    assert (state["state"], state["complete"], state["pid"]) == ("stopped", False, None)
    state = end_with(FatalError("the disk is full", "free some"))
    assert (state["state"], state["why"]) == ("failed", "the disk is full")
    shown = CliRunner().invoke(cli.app, ["status", str(tmp_path / "r")]).output
    assert f"{tmp_path}/r: failed: the disk is full" in shown
    file = tmp_path / "r" / ".status.json"
    said = json.loads(file.read_text()) | {"state": "running", "why": None}
    file.write_text(json.dumps(said))
    assert run_state(tmp_path / "r")["state"] == "killed"  # it says that it runs, and nobody holds its lock
    file.write_text(json.dumps(said | {"host": "another"}))
    assert run_state(tmp_path / "r")["state"] == "running"
    with pytest.raises(ConfigError, match="is not a run directory"):
        run_state(tmp_path / "nowhere")
    with run_lock(tmp_path / "new"):  # its first moment
        state = run_state(tmp_path / "new")
        assert (state["state"], state["pid"], state["boxes"]) == ("running", os.getpid(), {})
        shown = CliRunner().invoke(cli.app, ["status", str(tmp_path / "new")]).output
        assert f"{tmp_path}/new: running (process {os.getpid()})" in shown


def test_status_tells_of_how_many_how_fast_and_how_long_yet(inputs, tmp_path):
    _, data = inputs
    pipeline.execute(config.parse(data), tmp_path / "r")
    file = tmp_path / "r" / ".status.json"
    said = json.loads(file.read_text())
    said["boxes"]["scores"] |= {"total": 1234, "bytes_per_s": 45_600_000, "left_s": 3700.0}
    file.write_text(json.dumps(said | {"state": "running", "updated": time.time() - 40}))
    with run_lock(tmp_path / "r"):
        state = run_state(tmp_path / "r")
        shown = CliRunner().invoke(cli.app, ["status", str(tmp_path / "r")]).output
    assert state["boxes"]["scores"]["total"] == 1234
    assert state["boxes"]["scores"]["left_s"] == pytest.approx(3660, abs=5)
    assert re.search(r"scores .* of 1,234 .* 45\.6 +1:0[01]:[0-9]{2}", shown), shown
    assert f"running (process {os.getpid()} on {said['host']})" in shown


def test_shards_info_of_a_folder_without_shards_is_an_error(tmp_path):
    done = CliRunner().invoke(cli.app, ["shards", "info", str(tmp_path)])
    assert done.exit_code != 0
    assert "no shard" in str(done.exception)


# ------------------------------------------------------------------------------------------------------- the command


def start(*args, **options):
    command = [sys.executable, "-m", "gpu_curate", *map(str, args)]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)


def test_json_and_quiet_keep_to_their_streams_and_one_clock_runs_to_done(inputs, tmp_path):
    folder, _ = inputs
    first = start("run", folder / "r.yaml", "--out", tmp_path / "r", "--json")
    out, errors = first.communicate(timeout=120)
    facts = json.loads(out)
    assert facts["documents"]["kept"] > 0
    assert facts["shards"] == str(tmp_path / "r" / "shards")
    assert "backend: cpu (" in errors
    assert "documents: done" in errors
    clocks = [float(t) for t in re.findall(r"^\[ *([0-9.]+) s\]", errors, re.M)]
    done = float(re.search(r"done in ([0-9.]+) s", errors)[1])
    assert clocks == sorted(clocks)
    assert clocks[-1] <= done <= clocks[-1] + 5
    assert f"done in {done} s" in (tmp_path / "r" / "run.log").read_text()
    quiet = start("run", folder / "r.yaml", "--out", tmp_path / "r", "--quiet")
    out, errors = quiet.communicate(timeout=120)
    assert quiet.returncode == 0
    assert errors == ""
    kept, read = (f"{facts['documents'][k]:,}" for k in ("kept", "read"))
    assert f"kept      {kept} of {read} documents" in out
    assert "MB/s" not in out
    assert len(out.splitlines()) < 10


def test_the_first_line_comes_before_anything_heavy_is_loaded(inputs, tmp_path):
    folder, _ = inputs
    code = (
        "import sys, builtins\n"
        "from gpu_curate import cli\n"
        "sys.argv = ['gpu-curate', 'run', sys.argv[1], '--out', sys.argv[2]]\n"
        "def told(*a, **k):\n"
        "    heavy = {'numba', 'pyarrow', 'numpy', 'scipy', 'tokenizers'} & set(sys.modules)\n"
        "    sys.__stdout__.write(f'{a[0]} | {sorted(heavy)}\\n'); sys.__stdout__.flush(); sys.exit(7)\n"
        "builtins.print = told\n"
        "cli.main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(folder / "r.yaml"), str(tmp_path / "r")],
        env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.stdout.splitlines()[0] == f"gpu_curate {__version__}: {folder / 'r.yaml'} | []", (
        done.stdout + done.stderr
    )


@pytest.mark.parametrize("engine", ["inline", "local"])
@pytest.mark.parametrize("times", [1, 2, 5])
def test_ctrl_c_pressed_again_ends_with_the_last_words_and_no_traceback(inputs, tmp_path, engine, times):
    """The whole group gets it, as from a terminal: workers that are just starting, too."""
    _, data = inputs
    (tmp_path / "r.yaml").write_text(yaml.safe_dump({**data, "run": {"engine": engine, "partition_bytes": 65536}}))
    process = start("run", tmp_path / "r.yaml", "--out", tmp_path / "r", start_new_session=True)
    deadline = time.monotonic() + 60
    while not (tmp_path / "r" / ".status.json").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    for _ in range(times):
        try:
            os.killpg(process.pid, signal.SIGINT)
        except ProcessLookupError:
            break
        time.sleep(0.02)
    out, errors = process.communicate(timeout=60)
    assert process.returncode == 130, out + errors
    assert "Traceback" not in errors, errors
    assert out.count("stopped; finished partitions are kept in") == 1
    assert out.count("to go on: gpu-curate run") == 1


def test_a_table_that_goes_without_a_column_cuts_no_number():
    from rich.console import Console

    from gpu_curate.terminal import _fit, new_table

    table = new_table("box", "folder", "MB/s", "left", spare=("folder",))
    table.add_row("scores", "scores-0123456789ab", "45.6", "1:01:00")
    console = Console(width=26, highlight=False)
    with console.capture() as captured:
        console.print(_fit(table, console))
    assert captured.get().split() == ["box", "MB/s", "left", "scores", "45.6", "1:01:00"]
