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


@pytest.fixture
def asked(hostile, tmp_path, monkeypatch, capfdbinary):
    """Runs a command in this process, and looks at every byte that it prints. Returns: exit status, and what was said."""
    from gpu_curate import cli

    monkeypatch.chdir(tmp_path)

    def ask(*args):
        monkeypatch.setattr(sys, "argv", ["gpu-curate", *map(str, args)])
        monkeypatch.setattr(sys, "excepthook", sys.excepthook)
        monkeypatch.setenv("PYTHONSAFEPATH", "1")
        with pytest.raises(SystemExit) as end:
            cli.main()
        said = "".join(part.decode("utf-8") for part in capfdbinary.readouterr())
        found = ODD.search(said)
        assert found is None, (args, said[max(0, found.start() - 80) : found.end() + 40])
        assert "\nerror: forged" not in said, args
        assert "Traceback" not in said, said
        return end.value.code or 0, said

    return ask


def test_questions_to_a_run_print_no_control(hostile, asked, tmp_path):
    pytest.importorskip("duckdb")
    run = hostile / "r"
    place = f"s:{NAME}:3"
    for args in (
        ("funnel", run), ("funnel", run, "--json"), ("funnel", run, "--set", "min_tokens=1000"),
        ("explain", run, place), ("explain", run, place, "--json"), ("explain", run, "ferry number 7"), ("explain", run, f"s:{NAME}:30"),
        ("trace", run, "--step", "0", "--batch-size", "1", "--seq-len", "16"),
        ("trace", run, "--step", "0", "--batch-size", "1", "--seq-len", "16", "--json"),
        ("diff", run, run), ("clusters", run), ("clusters", run, "--json"), ("certificate", run), ("scurve", run), ("budget", run, "--params", "1M"),
        ("sql", run, "select * from documents join texts using (doc_id)"), ("sql", run, "select * from tokens", "--json"),
        ("shards", "packing", run, "--seq-len", "16"), ("shards", "bench", run, "--batch-size", "1", "--seq-len", "16", "--batches", "2", "--rounds", "1", "--no-cold"),
        ("shards", "convert", run, "--to", "nanogpt", "--out", tmp_path / "c\x1b[1m"), ("shards", "merge", run, run, "--out", tmp_path / "m\u202e"),
        ("shards", "split", run, "--parts", "2", "--out", tmp_path / "s\x9b"), ("shards", "sample", run, "--tokens", "50", "--out", tmp_path / "t\n"),
    ):  # fmt: skip
        status, said = asked(*args)
        assert status == 0, (args, said[-500:])


def test_what_questions_refuse_prints_no_control(hostile, asked, tmp_path):
    pytest.importorskip("duckdb")
    run = hostile / "r"
    listed = tmp_path / f"list{EVIL[:9]}"
    listed.write_text(f"{NAME.partition(chr(10))[0]}\ns:\x1b[2J:1\nhttp://a/\x9b\n")
    for args in (
        ("funnel", run, "--set", "quality.\x1b[31m=1"), ("explain", run, EVIL), ("explain", run, f"s:{EVIL}:1"), ("trace", "\x1b[31m", "--step", "1"),
        ("diff", run, "\x9bnone"), ("clusters", "\u202enone"), ("certificate", "\x1b"), ("scurve", f"none{EVIL}"), ("budget", "\x1b[31m", "--params", "1M"),
        ("budget", "--params", "\x1b[31m"), ("sql", run, "select '\x1b[31m"), ("sql", run, "select \x9bnone from documents"),
        ("sql", run, "copy (select 1) to '\x1b[31m'"), ("forget", run, "--list", listed), ("forget", run, "--list", "none\x1b"),
        ("shards", "convert", run, "--to", "\x1b[31m", "--out", tmp_path / "o"), ("shards", "convert", "\x1b[31m", "--to", "llmc", "--out", tmp_path / "o"),
        ("shards", "convert", run, "--to", "llmc", "--out", tmp_path / "o", "--name", "\x1b/"), ("shards", "merge", run, "\x9b", "--out", tmp_path / "o"),
        ("shards", "split", run, "--parts", "900", "--out", tmp_path / "\x1b"), ("shards", "sample", "\u202e", "--tokens", "1", "--out", tmp_path / "o"),
        ("shards", "packing", "\x1b"), ("shards", "bench", "\x1b"), ("shards", "packing", run, "--split", "\x1b[31m"), ("\x1b[31m",), ("status", "--\x1b[31m"),
        ("ablate", "a\x1b=none", "b\x9b=none", "--out", tmp_path / "o"),
    ):  # fmt: skip
        status, said = asked(*args)
        assert status != 0, (args, said[-500:])
