"""What lies in the folder a command is started in, or among the data, is never run: modules of every name that is imported."""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from corpora import recipe, write_corpus
from places import ROOT
from text.test_fasttext_file import model as language_model

SPY = """
import os
with open({log!r}, "a") as f:
    f.write(f"{{__name__}} from {{__file__}} in process {{os.getpid()}}\\n")
raise ImportError("planted")
"""


def archive() -> bytes:
    """A WARC of one page."""
    html = (
        b"<html><body><article><p>"
        + b"The ferry leaves at nine from the north pier. " * 20
        + b"</p></article></body></html>"
    )
    block = b"HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\n\r\n" + html
    head = b"WARC/1.0\r\nWARC-Type: response\r\nWARC-Target-URI: http://one.example/\r\nWARC-Date: 2024-05-01T10:20:30Z\r\n"
    head += b"WARC-Record-ID: <urn:uuid:1>\r\nContent-Length: %d\r\n\r\n" % len(block)
    return head + block + b"\r\n\r\n"


def names() -> set[str]:
    """Of every module that could be imported first: the standard library's, those of all distributions, our own."""
    return {
        *sys.stdlib_module_names, *importlib.metadata.packages_distributions(), "gpu_curate", "sitecustomize", "usercustomize"
    } - {"__main__"}  # fmt: skip


def plant(folder: Path, log: Path, without: set[str] = frozenset()) -> None:
    for name in names() - without:
        with contextlib.suppress(OSError):
            (folder / f"{name}.py").write_text(SPY.format(log=str(log)))
    # settings that a library looks for in the current folder
    (folder / ".numba_config.yaml").write_text(f"cache_dir: {folder}/numba\ndisable_jit: 1\n")


@pytest.fixture
def place(tmp_path):
    """A folder of planted modules, with data of two kinds (one of them read by a process of its own) and a recipe for it."""
    folder, log = tmp_path / "here", tmp_path / "executed"
    write_corpus(folder, documents=30)
    (folder / "a.warc").write_bytes(archive())
    data = recipe(folder, Path("unused")) | {"tokenizer": {"train": {"vocab_size": 400}}}
    data["sources"].append({"name": "w", "type": "warc", "path": str(folder / "a.warc")})
    (folder / "r.yaml").write_text(yaml.safe_dump(data))
    plant(folder, log)
    return folder, log


def here(folder: Path, *command: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess:
    env = env or {k: v for k, v in os.environ.items() if k not in ("PYTHONSAFEPATH", "NUMBA_CACHE_DIR")}
    return subprocess.run(
        [*command], cwd=folder, env={**env, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=300
    )


def command_line(tmp_path: Path) -> tuple[str, ...]:
    """As pip makes `gpu-curate`: a script in a folder of programs."""
    (tmp_path / "bin").mkdir(exist_ok=True)
    (tmp_path / "bin" / "gpu-curate").write_text(
        "from gpu_curate.cli import main\nif __name__ == '__main__':\n    main()\n"
    )
    return sys.executable, str(tmp_path / "bin" / "gpu-curate")


def test_a_run_executes_no_module_of_the_current_folder_or_of_the_data(place, tmp_path):
    folder, log = place
    for command in (("plan", "r.yaml"), ("run", "r.yaml", "--workers", "2", "--out", str(tmp_path / "r"))):
        done = here(folder, *command_line(tmp_path), *command)
        assert done.returncode == 0, done.stderr
    done = here(folder, *command_line(tmp_path), "shards", "verify", str(tmp_path / "r"))
    assert done.stdout.endswith("every check passed\n"), done.stderr
    assert not log.exists(), log.read_text()
    assert not (folder / "numba").exists()


def test_doctor_executes_no_module_of_the_current_folder(place, tmp_path):
    folder, log = place
    done = here(folder, *command_line(tmp_path), "doctor")
    assert "usable" in done.stdout, done.stderr
    assert not log.exists(), log.read_text()


def test_the_module_form_of_the_command_takes_the_current_folder_out(tmp_path):
    """Python itself imports a few modules from there before any line of ours runs, and they are not planted here."""
    log = tmp_path / "executed"
    plain = "import sys; print(*[m for m in sys.modules if '.' not in m])"
    (tmp_path / "first.py").write_text(plain)
    before = set(here(tmp_path, sys.executable, "-m", "first").stdout.split())
    assert {"pickle", "yaml", "lxml", "typer", "subprocess", "json"} <= names() - before
    folder = tmp_path / "here"
    folder.mkdir()
    plant(folder, log, {*before, "gpu_curate"})
    for module in ("gpu_curate", "gpu_curate.__main__"):
        done = here(folder, sys.executable, "-m", module, "config", "schema")
        assert done.returncode == 0, done.stderr
    assert not log.exists(), log.read_text()


def test_what_the_user_puts_on_the_python_path_stays_his(tmp_path):
    (tmp_path / "extra").mkdir()
    (tmp_path / "extra" / "mine.py").write_text("VALUE = 7\n")
    code = (
        "import sys; sys.argv[1:] = ['--version']\n"
        "import gpu_curate.cli as c\n"
        "try: c.main()\nexcept SystemExit: pass\n"
        "import subprocess\n"
        "print(subprocess.run([sys.executable, '-c', 'import mine; print(mine.VALUE)'], capture_output=True, text=True).stdout)"
    )
    path = os.pathsep.join([str(ROOT), str(tmp_path / "extra")])
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True
    )
    assert done.stdout.split()[-1] == "7", done.stderr


WORKER = """
import os, sys
sys.path[:] = [p for p in sys.path if p not in ("", os.getcwd())]
from gpu_curate.runs.engines import make_engine
from gpu_curate.runs.workers import CPU


def look(_):
    import pickle, lxml
    return sys.path[0], os.getcwd() in sys.path, "" in sys.path


if __name__ == "__main__":
    engine = make_engine(sys.argv[1], 1, {})
    print(engine.submit(CPU, look, 0).result())
    engine.close()
"""


@pytest.mark.parametrize("engine", ["local", "dask"])
def test_workers_do_not_look_into_the_current_folder(tmp_path, engine):
    if engine == "dask":
        pytest.importorskip("distributed")
    folder, log = tmp_path / "here", tmp_path / "executed"
    folder.mkdir()
    plant(folder, log, {"__mp_main__"})
    (tmp_path / "bin").mkdir()
    script = tmp_path / "bin" / "start.py"
    script.write_text(WORKER)
    done = here(folder, sys.executable, str(script), engine)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip().endswith(", False, False)"), done.stdout
    assert not log.exists(), log.read_text()


ASK = """
import sys
from gpu_curate import cli

run, out, model, tokenizer, doc = sys.argv[1:6] if __name__ == "__main__" else "....."
COMMANDS = [
    ["funnel", run], ["explain", run, doc], ["trace", run, "--step", "0", "--batch-size", "1", "--seq-len", "8"], ["diff", run, run],
    ["clusters", run], ["certificate", run], ["scurve", run], ["budget", run, "--params", "1M"], ["sql", run, "select * from documents join texts using (doc_id)"],
    ["shards", "packing", run, "--seq-len", "8"], ["shards", "bench", run, "--batch-size", "1", "--seq-len", "8", "--batches", "2", "--rounds", "1"],
    ["shards", "convert", run, "--to", "datasets", "--block", "8", "--out", out + "/c"], ["shards", "convert", run, "--to", "nanochat", "--out", out + "/n"],
    ["shards", "merge", run, run, "--out", out + "/m"], ["shards", "sample", run, "--tokens", "50", "--out", out + "/s"], ["export", run, "--out", out + "/e"],
    ["samples", run, "--reason", "kept"], ["clean", run], ["forget", run, "--list", out + "/list"],
]
if __name__ == "__main__":
    for command in COMMANDS:
        sys.argv = ["gpu-curate", *command]
        try:
            cli.main()
        except SystemExit as end:
            print(command[0], command[1], end.code or 0, file=sys.stderr)
    from gpu_curate.config import Language, Tokenizer
    from gpu_curate.errors import ConfigError
    from gpu_curate.text.language import LanguageId
    from gpu_curate.tokenizer.loading import load

    for what in (lambda: LanguageId(Language(model=model)), lambda: load(Tokenizer(path=tokenizer, eot=0))):
        try:
            what()
        except ConfigError as e:
            print("tried", str(e)[:300], file=sys.stderr)
"""


def test_questions_and_trials_execute_no_module_of_the_current_folder(place, tmp_path):
    """Every command that asks a finished run or makes something of its shards; the children that try a model and a tokenizer."""
    folder, log = place
    pq.write_table(
        pa.table({"text": [f"A text of some words about the ferry, number {i}." for i in range(20)]}),
        folder / "p.parquet",
    )
    data = yaml.safe_load((folder / "r.yaml").read_text())
    data["sources"].append({"name": "p", "type": "parquet", "path": str(folder / "p.parquet")})
    (folder / "r.yaml").write_text(yaml.safe_dump(data))
    run, out = tmp_path / "r", tmp_path / "out"
    out.mkdir()
    done = here(folder, *command_line(tmp_path), "run", "r.yaml", "--workers", "1", "--out", str(run))
    assert done.returncode == 0, done.stderr
    model = tmp_path / "model.bin"
    model.write_bytes(language_model())
    tokenizer = json.loads((run / "shards" / "tokenizer.json").read_bytes())
    (tmp_path / "t.json").write_text(
        json.dumps({**tokenizer, "normalizer": {"type": "Replace", "pattern": {"Regex": "x"}, "content": "y"}})
    )
    documents = pq.read_table(run / "shards" / "documents.parquet")
    doc = str(documents["doc_id"][0].as_py())
    (out / "list").write_text(f"{doc}\n")
    (tmp_path / "bin" / "ask.py").write_text(ASK)
    done = here(
        folder,
        sys.executable,
        str(tmp_path / "bin" / "ask.py"),
        str(run),
        str(out),
        str(model),
        str(tmp_path / "t.json"),
        doc,
    )
    ended = [line.split() for line in done.stderr.splitlines() if line.split()[-1:] == ["0"]]
    assert len(ended) == ASK.count('["') - 1, done.stderr[-3000:]  # all but the program's own name
    assert "Traceback" not in done.stderr, done.stderr
    assert not log.exists(), log.read_text()
    assert not [
        p for p in folder.iterdir() if p.suffix not in (".py", ".yaml", ".jsonl", ".gz", ".warc", ".parquet", "")
    ], "written there"
