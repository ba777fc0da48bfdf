"""Whatever documents and files are named, and whatever they hold, a terminal is given nothing that it would obey."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from corpora import recipe
from places import ROOT

from gpu_curate.report.markup import escape
from gpu_curate.visible import ODD, one, visible

# ESC, BEL, CSI as one byte of C1, DEL, overrides of direction, line and paragraph separators, carriage return, a forged line
EVIL = "\x1b]0;owned\x07\x1b[2J\x9b31m\x7f\u202eevil\u2066\u2028\u2029\r\nerror: forged"
NAME = "a\x1b[31m\x9b7m\u202e\u2028b\x7f\nerror: forged\r.jsonl"


def test_every_kind_of_character_that_a_terminal_obeys_is_written_out():
    for code in range(0x11_0000):
        char = chr(code)
        obeyed = code < 0x20 or 0x7F <= code < 0xA0 or 0xD800 <= code < 0xE000
        obeyed |= code in (0x61C, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A), 0xFEFF)
        if obeyed:
            assert not ODD.search(one(char)), hex(code)
            assert one(char) != char, hex(code)
            assert (visible(char) == char) == (char in "\t\n"), hex(code)
    assert (one("\x1b\x7f\x9b\u202e\udc80\n\t"), visible("a\tb\nc")) == ("␛␡⟨U+009B⟩⟨U+202E⟩⟨U+DC80⟩␊␉", "a\tb\nc")
    for plain in ("é日本語 😀", "שלום مرحبا", "e\u0301", "\u200d\u200c"):
        assert one(plain) == plain
    assert escape("\x1b\u202e<") == "␛⟨U+202E⟩&lt;"  # the report's table is this one


def command(*args, cwd=None, **env):
    done = subprocess.run(
        [sys.executable, "-m", "gpu_curate", *map(str, args)],
        env={**os.environ, "PYTHONPATH": str(ROOT), **env}, capture_output=True, timeout=300, cwd=cwd,
    )  # fmt: skip
    for stream in (done.stdout, done.stderr):
        said = stream.decode("utf-8")
        found = ODD.search(said)
        assert found is None, (args, said[max(0, found.start() - 80) : found.end() + 40])
        assert "\nerror: forged" not in said, args
    return done


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    """A run over texts, names and columns that hold all of it."""
    folder = tmp_path_factory.mktemp("terminal")
    data = folder / "d\x1b[5m"
    data.mkdir()
    lines = [
        json.dumps({"text": f"{EVIL} The ferry number {i} leaves at nine from the north pier. " * 3, "k": EVIL})
        for i in range(30)
    ]
    (data / NAME).write_text(
        "\n".join([*lines, lines[0], "{broken " + EVIL.replace("\n", " "), '{"text": "x", "k": 1}'])
    )
    (data / "z\u202e.jsonl").write_text(lines[1] + "\n")
    own = recipe(data, "unused") | {"tokenizer": {"train": {"vocab_size": 400}}, "normalize": None}
    own["sources"] = [{"name": "s", "type": "jsonl", "path": str(data), "keep_columns": ["k"]}]
    (folder / "r.yaml").write_text(yaml.safe_dump(own))
    done = command("run", folder / "r.yaml", "--out", folder / "r", "--workers", "1")
    assert done.returncode == 0, done.stderr
    return folder


def test_a_run_and_what_looks_at_it_print_no_control(hostile):
    run = hostile / "r"
    for args in (
        ("plan", hostile / "r.yaml", "--out", run),
        ("status", run), ("status", run, "--json"),
        ("shards", "info", run), ("shards", "head", run, "-n", 3), ("shards", "head", run, "--json"), ("shards", "verify", run),
        ("samples", run, "--reason", "kept"), ("samples", run, "--reason", "exact_duplicate", "--json"),
        ("export", run, "--out", hostile / "e"),
        ("clean", run),
    ):  # fmt: skip
        assert command(*args).returncode == 0, args
    assert (
        b"\xe2\x90\x9b" in command("shards", "head", run).stdout
    )  # the picture of ESC: nothing is left out in silence
    log = (run / "run.log").read_text()
    assert ODD.search(log) is None


def test_errors_and_findings_print_no_control(hostile, tmp_path):
    import shutil

    run = tmp_path / "r"
    shutil.copytree(hostile / "r", run, symlinks=True)
    (run / "shards" / f"x{EVIL[:9]}\u202e\n.bin").write_text("")
    manifest = json.loads((run / "shards" / "manifest.json").read_text())
    manifest["tokenizer"] |= {"path": EVIL, "sha256": "\x1b[2J" + "0" * 60}
    manifest["splits"]["train"]["shards"][0]["file"] = "\x1b[31m.bin"
    (run / "shards" / "manifest.json").write_text(json.dumps(manifest))
    assert command("shards", "verify", run).returncode == 1
    command("shards", "verify", run, "--json")
    command("shards", "info", run)
    command("shards", "head", run)
    for args in (
        ("plan", "\x1b[31m.yaml"), ("status", "none\x9b\n"), ("shards", "info", "\u202enone"), ("export", "\x7fnone\r"),
        ("samples", run, "--reason", "\x1b[2J"), ("plan", hostile / "r.yaml", "--set", "sources.s.path=\x1b[31mnone*"),
        ("init", "none\x1b*", "--out", "-"), ("run", hostile / "r.yaml", "--out", str(next(hostile.glob("d*")) / "in")),
    ):  # fmt: skip
        assert command(*args, cwd=tmp_path).returncode != 0, args


def test_the_holder_of_a_lock_is_told_without_what_it_wrote(hostile, tmp_path):
    from gpu_curate.store.lock import run_lock

    run = tmp_path / "r"
    told: list[str] = []
    with run_lock(run):
        (run / ".lock").write_text(EVIL)
        done = command("status", run)
        assert b"running (process" in done.stdout
    assert told == []


def test_names_in_rich_tables_are_text_and_no_markup(capsys):
    from gpu_curate import terminal

    table = terminal.new_table("a", "b")
    table.add_row("[bold]x[/bold]\x1b[31m", "[/nothing]")
    terminal.show(table)
    said = capsys.readouterr().out
    assert "[bold]x[/bold]␛[31m" in said
    assert "[/nothing]" in said
    assert Path is not None
