"""What is written and printed tells no user, password, signature or key, and no folder of whoever made the shards."""

from __future__ import annotations

import functools
import http.server
import json
import os
import pickle
import threading
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml
from corpora import recipe
from test_cli import run as command
from typer.testing import CliRunner

from gpu_curate import cli, config, privacy
from gpu_curate.api.pipeline import execute
from gpu_curate.errors import ConfigError, RetryableError
from gpu_curate.sources.files import PROTOCOLS, check_protocol, find, open_raw

CLEAN = [
    ("https://h/a.jsonl", "https://h/a.jsonl"),
    ("https://user:pass@h:8443/a.jsonl?X-Amz-Signature=abc&x=1#part", "https://h:8443/a.jsonl"),
    ("https://token@h/a", "https://h/a"),
    ("HTTPS://u:p@H/a?b", "HTTPS://H/a"),
    ("http://h?x=1", "http://h"),
    ("http://h/a@b/c", "http://h/a@b/c"),
    ("http://[::1]:80/x?y", "http://[::1]:80/x"),
    ("s3://key:secret@bucket/a?versionId=7", "s3://bucket/a"),
    ("s3://bucket/a?b#c.jsonl", "s3://bucket/a?b#c.jsonl"),
    ("abfs://container@account.dfs.core.windows.net/a?sv=1&sig=x", "abfs://container@account.dfs.core.windows.net/a"),
    ("hf://datasets/o/n@abc/a.parquet", "hf://datasets/o/n@abc/a.parquet"),
    ("file:///a?b#c", "file:///a?b#c"),
    ("memory://a?b=c", "memory://a?b=c"),
    ("/home/a?b=c#d", "/home/a?b=c#d"),
    ("ftp://u:p@h/x", "ftp://h/x"),
]


@pytest.mark.parametrize(("url", "name"), CLEAN)
def test_the_clean_name_of_a_url(url, name):
    assert privacy.clean(url) == name
    assert privacy.clean(name) == name
    place = privacy.located(url)
    assert (place, privacy.opened(place)) == (name, url)
    again = pickle.loads(pickle.dumps(place))
    assert (again, privacy.opened(again)) == (name, url)
    assert json.dumps([place]) == json.dumps([name])


def test_a_url_signed_anew_is_the_same_file_and_another_id_is_not():
    a, b, c = (f"https://h/d?id={i}&X-Amz-Signature={s}" for i, s in ((1, "a"), (1, "b"), (2, "b")))
    assert privacy.identity(a) == privacy.identity(b) != privacy.identity(c)
    assert "Signature" not in privacy.identity(a)


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("/home/alice/data/*.jsonl", "*.jsonl"),
        ("/home/alice", "alice"),
        ("/home/alice/", "."),
        ("/home/*/x/a.jsonl", "*/x/a.jsonl"),
        ("~/a.jsonl", "a.jsonl"),
        ("../alice/b.jsonl", "b.jsonl"),
        ("data/*.jsonl", "data/*.jsonl"),
        ("https://u@h/a?b", "https://h/a"),
    ],
)
def test_a_published_path_has_no_folder_above_the_source(path, told):
    assert privacy.published(path) == told


class Server(http.server.SimpleHTTPRequestHandler):
    def do_GET(self):
        if "sig=good-signature" not in self.path:
            self.send_error(403, f"no: {self.path}")
            return
        super().do_GET()

    do_HEAD = do_GET

    def log_message(self, *_):
        pass


@pytest.fixture
def server(tmp_path):
    pytest.importorskip("aiohttp")
    (tmp_path / "served").mkdir()
    handler = functools.partial(Server, directory=tmp_path / "served")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as s:
        threading.Thread(target=s.serve_forever, daemon=True).start()
        yield tmp_path / "served", f"127.0.0.1:{s.server_address[1]}"
        s.shutdown()


SECRETS = ("good-signature", "hunter2hunter2", "alicealice", "s3cr3t-key-value")


def test_a_run_over_signed_urls_reads_them_and_writes_none_of_their_secrets(server, tmp_path, monkeypatch):
    folder, host = server
    texts = [
        f"The ferry number {i} leaves at nine from the north pier and comes back before the evening." for i in range(40)
    ]
    (folder / "a.jsonl").write_text("".join(json.dumps({"text": t}) + "\n" for t in texts) + "broken\n")
    home = tmp_path / "alicealice" / "data"
    home.mkdir(parents=True)
    (home / "b.jsonl").write_text("".join(json.dumps({"text": t + " Twice."}) + "\n" for t in texts))
    urls = [f"http://{host}/a.jsonl?part={i}&sig=good-signature" for i in (1, 2)]
    data = recipe(home, "unused") | {"tokenizer": {"train": {"vocab_size": 400}}}
    data["sources"] = [
        {"name": "s", "type": "jsonl", "path": urls, "storage_options": {"client_kwargs": {"headers": {"X": "s3cr3t-key-value"}}}},
        {"name": "l", "type": "jsonl", "path": str(home)},
    ]  # fmt: skip
    data["dedup"] = None
    (tmp_path / "r.yaml").write_text(yaml.safe_dump(data))
    out = tmp_path / "r"
    done = command("run", tmp_path / "r.yaml", "--out", out, "--workers", "1", "--set", "sources.s.storage_options.client_kwargs.headers.Y=hunter2hunter2")  # fmt: skip
    assert done.returncode == 0, done.stderr
    head = command("shards", "head", out, "-n", "200")
    said = done.stdout + done.stderr + head.stdout + command("plan", tmp_path / "r.yaml", "--out", out).stdout
    told = command("export", out, "--what", "all", "--format", "jsonl", "--out", tmp_path / "e")
    assert told.returncode == 0, told.stderr
    made = tmp_path / "made"
    for args in (
        ("funnel", out), ("explain", out, f"s:http://{host}/a.jsonl:3"), ("explain", out, "s:http://alicealice:hunter2hunter2@none/x:3"),
        ("trace", out, "--step", "0", "--batch-size", "2", "--seq-len", "8"), ("trace", out, "--step", "0", "--batch-size", "2", "--seq-len", "8", "--json"),
        ("diff", out, out), ("clusters", out), ("budget", out, "--params", "1M"), ("sql", out, "select * from documents"), ("sql", out, "select * from tokens", "--json"),
        ("samples", out, "--reason", "kept"), ("status", out), ("clean", out), ("shards", "info", out), ("shards", "packing", out, "--seq-len", "8"),
        ("shards", "convert", out, "--to", "litgpt", "--out", made / "c"), ("shards", "convert", out, "--to", "nanochat", "--out", made / "n"),
        ("shards", "merge", out, out, "--out", made / "m"), ("shards", "split", out, "--parts", "2", "--out", made / "s"),
        ("shards", "sample", out, "--tokens", "100", "--out", made / "t"),
    ):  # fmt: skip
        asked = CliRunner().invoke(cli.app, [str(a) for a in args])
        assert asked.exit_code == 0 or args[0] in ("explain", "clusters", "sql"), (args, asked.exception)
        said += asked.output + str(asked.exception or "")
    files = [p for f in (out, tmp_path / "e", made) for p in f.rglob("*") if p.is_file() and not p.is_symlink()]
    published = [p for p in made.rglob("*") if p.is_file()]
    assert [p.name for p in published if b"alicealice" in _bytes(p) or str(tmp_path).encode() in _bytes(p)] == []
    for secret in ("good-signature", "hunter2hunter2", "s3cr3t-key-value"):
        assert secret not in said
        assert [p for p in files if secret.encode() in _bytes(p)] == []
    shards = out / "shards"
    assert [p.name for p in shards.rglob("*") if p.is_file() and b"alicealice" in _bytes(p)] == []
    assert "alicealice" not in head.stdout
    rows = pq.read_table(shards / "documents.parquet").to_pylist()
    clean = f"http://{host}/a.jsonl"
    assert {r["path"] for r in rows} == {"b.jsonl", clean, f"{clean} (2)"}
    assert len({r["doc_id"] for r in rows}) == len(rows) == 120
    rejects = [json.loads(line) for p in (out / "rejects").glob("*.jsonl") for line in p.read_text().splitlines()]
    assert {r["path"] for r in rejects} == {clean, f"{clean} (2)"}
    config.parse(json.loads((out / "run.json").read_text())["config"])
    config.parse(json.loads((shards / "manifest.json").read_text())["config"])


def _bytes(path: Path) -> bytes:
    if path.suffix != ".parquet":
        return path.read_bytes()
    table = pq.read_table(path)
    return repr(table.to_pydict()).encode() + repr(table.schema).encode()


def test_what_a_client_says_of_a_refused_url_is_told_without_its_secrets(server):
    _, host = server
    url = f"http://alicealice:hunter2hunter2@{host}/none.jsonl?token=s3cr3t-key-value"
    with pytest.raises(ConfigError) as listed:
        find([url], (".jsonl",), {"client_kwargs": {"headers": {"A": "hunter2hunter2"}}}, "source s: path")
    with pytest.raises((RetryableError, FileNotFoundError)) as opened:
        open_raw(privacy.located(url)).read()
    for said in (str(listed.value), str(opened.value)):
        assert host in said
        for secret in ("hunter2", "s3cr3t", "alicealice"):
            assert secret not in said


def test_storage_options_are_not_echoed_by_any_error(tmp_path):
    for options in (
        "s3cr3t-key-value",
        ["s3cr3t-key-value"],
        {"key": "s3cr3t-key-value", "x": {"s3cr3t-key-value": [1]}},
    ):
        data = recipe(tmp_path, "t") | {
            "sources": [{"name": "s", "type": "jsonl", "path": 3, "storage_options": options}]
        }
        with pytest.raises(ConfigError) as e:
            config.parse(data)
        assert "s3cr3t-key-value" not in str(e.value)
    (tmp_path / "r.yaml").write_text(yaml.safe_dump(recipe(tmp_path, "t")))
    for key in ("sources.none.storage_options.key", "sources.0.storage_options"):
        with pytest.raises(ConfigError) as e:
            config.load(tmp_path / "r.yaml", [f"{key}=s3cr3t-key-value2"])
        assert "s3cr3t-key-value2" not in str(e.value)


# ------------------------------------------------------------------------------------------------------------ protocols

REFUSED = [
    "reference::https://h/x.json",
    "reference://x",
    "filecache::https://h/a.jsonl",
    "simplecache::s3://b/a",
    "blockcache::s3://b/a",
    "github://o:r@main/a.jsonl",
    "zip://a.jsonl::https://h/a.zip",
    "tar://a::file:///b",
    "sftp://h/a",
    "ssh://h/a",
    "smb://h/a",
    "local:///a",
    "dask://x",
    "jupyter://h/a",
    "HTTP://h/a.jsonl",
    "Reference://x",
    "hTTps://h/a",
    "https://h/a::reference://b",
    "data:text/plain://x",
    "ftp://h/a",
    "webhdfs://h/a",
    "dir://a::b",
    "libarchive://a::https://h/b",
    "git://r/a",
    "cached://a",
    "file+reference://a",
    "://",
    "http+unix://a",
]


@pytest.mark.parametrize("url", REFUSED)
def test_protocols_that_reach_further_are_refused_before_anything_is_opened(url, monkeypatch):
    import fsspec

    monkeypatch.setattr(fsspec, "get_filesystem_class", lambda *_: pytest.fail("asked for a file system"))
    for call in (lambda: find([url], (), {}, "source s: path"), lambda: open_raw(url, {"fo": "x"})):
        with pytest.raises(ConfigError, match=r"not taken|not chained"):
            call()


def test_the_protocols_in_use_pass():
    for protocol in PROTOCOLS:
        check_protocol(f"{protocol}://bucket/a.jsonl")
    check_protocol("http://[::1]:8000/a.jsonl")


def test_a_double_colon_is_a_part_of_a_name(tmp_path):
    (tmp_path / "a::b.txt").write_text("x")
    (path,) = find([f"file://{tmp_path}/a::b.txt"], (".txt",), {}, "k").files
    with open_raw(path.path) as f:
        assert f.read() == b"x"


def test_a_data_set_cannot_name_other_protocols():
    import subprocess
    import sys

    code = (
        "import fsspec; from gpu_curate.sources.files import refuse_other_protocols as r; r()\n"
        "for u in ('reference::http://127.0.0.1:9/x', 'filecache::memory://a', 'github://o:r@m/a'):\n"
        "    try: fsspec.core.url_to_fs(u); print('taken', u)\n"
        "    except ValueError as e: print(e)\n"
        "print(type(fsspec.core.url_to_fs('zip://a::memory://b', fo=None) if 0 else fsspec.filesystem('memory')).__name__)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ})
    assert done.stdout.splitlines() == ["a data set names a protocol that is not taken"] * 3 + ["MemoryFileSystem"], (
        done
    )


# --------------------------------------------------------------------------------------------------------------- engine


def test_a_scheduler_of_a_recipe_is_refused_unless_the_caller_trusts_it(tmp_path, monkeypatch):
    monkeypatch.delenv(config.TRUST_ENGINE, raising=False)
    path = tmp_path / "r.yaml"
    for engine in ("tcp://h:8786", "tls://h:1", "ws://h/1", "inproc://x"):
        path.write_text(yaml.safe_dump(recipe(tmp_path, "t") | {"run": {"engine": engine}}))
        with pytest.raises(ConfigError, match="--trust-engine"):
            config.load(path)
        with pytest.raises(ConfigError, match="--trust-engine"):
            config.load(path, ["run.workers=2"])
        assert config.load(path, trust_engine=True).run.engine == engine
        assert config.load(path, [f"run.engine={engine}"]).run.engine == engine
        monkeypatch.setenv(config.TRUST_ENGINE, "1")
        assert config.load(path).run.engine == engine
        monkeypatch.delenv(config.TRUST_ENGINE)
    path.write_text(yaml.safe_dump(recipe(tmp_path, "t") | {"run": {"engine": "dask"}}))
    assert config.load(path).run.engine == "dask"


def test_the_command_line_says_whom_it_trusts(tmp_path):
    path = tmp_path / "r.yaml"
    path.write_text(yaml.safe_dump(recipe(tmp_path, "t") | {"run": {"engine": "tcp://127.0.0.1:9"}}))
    refused = command("plan", path)
    assert (refused.returncode, "--trust-engine" in refused.stderr) == (2, True)
    assert "--trust-engine" not in command("plan", path, "--trust-engine").stderr
    assert execute is not None
