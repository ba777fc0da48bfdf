"""What stands in the place of a file: Git LFS pointers, pages of servers, servers without ranges, windows too long."""

from __future__ import annotations

import functools
import http.server
import json
import threading
import zipfile

import pytest
from test_compression import long_window

from gpu_curate import lfs
from gpu_curate.config import JsonlSource, Language, Tokenizer, parse
from gpu_curate.errors import ConfigError, RetryableError
from gpu_curate.runs.planning import make_plan
from gpu_curate.sources.files import open_raw
from gpu_curate.sources.jsonl import JsonlReader
from gpu_curate.stages.reference_sets import items
from gpu_curate.text.language import model_path
from gpu_curate.tokenizer.loading import load

POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 12345\n"


def plan(tmp_path, kind, path, **keys):
    source = {"name": "s", "type": kind, **keys, ("dataset" if kind == "huggingface" else "path"): str(path)}
    data = {"sources": [source], "tokenizer": {"train": {"vocab_size": 300}}}
    return make_plan(parse(data, "r.yaml"), tmp_path / "run")


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("parquet", "a.parquet"),
        ("jsonl", "a b.jsonl"),
        ("jsonl", "a.jsonl.gz"),
        ("wikipedia", "a.xml.bz2"),
        ("warc", "a.warc.gz"),
        ("huggingface", "train.parquet"),
    ],
)
def test_a_pointer_is_named_with_the_command_before_any_work(tmp_path, kind, name):
    path = tmp_path / "data" / name
    path.parent.mkdir()
    path.write_bytes(POINTER)
    with pytest.raises(ConfigError, match=rf"{name} is a Git LFS pointer(.|\n)*git -C .* lfs pull --include"):
        plan(tmp_path, kind, path.parent if kind == "huggingface" else path)


def test_other_inputs_that_are_pointers_are_named_too(tmp_path):
    path = tmp_path / "tokenizer.json"
    path.write_bytes(POINTER)
    for call in (
        lambda: load(Tokenizer(path=str(path))),
        lambda: list(items(str(path), ["text"])),
        lambda: model_path(Language(model=str(path))),
    ):
        with pytest.raises(ConfigError, match=r"is a Git LFS pointer(.|\n)*lfs pull --include tokenizer.json"):
            call()
    assert "/resolve/" in lfs.remedy("https://host/a/raw/main/b.parquet")


def test_a_window_that_is_too_long_is_named_before_any_work(tmp_path):
    path = tmp_path / "RC_2020-01.zst"
    path.write_bytes(long_window(b'{"text": "t"}\n', 31))
    with pytest.raises(ConfigError, match=r"--long=31(.|\n)*set max_window_bytes: 2147483648"):
        plan(tmp_path, "jsonl", path)
    assert plan(tmp_path, "jsonl", path, max_window_bytes=1 << 31)["partitions"] == 1


class Odd(http.server.BaseHTTPRequestHandler):
    """Sends whole files only; pages for what asks for a login; less than it announces."""

    data = b""

    def do_HEAD(self):
        self.send_response(200)
        self.send_header("Content-Length", str(len(self.body())))
        self.end_headers()

    def body(self):
        return b"<!DOCTYPE html><html><title>Log in</title></html>" if "login" in self.path else self.data

    def do_GET(self):
        body = self.body()
        if "short" in self.path:
            start = int((self.headers.get("Range") or "bytes=0-").removeprefix("bytes=").split("-")[0])
            piece = body[start : len(body) // 2]
            self.send_response(206)
            self.send_header("Content-Length", str(len(piece)))
            self.end_headers()
            self.wfile.write(piece)
            return
        self.do_HEAD()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


@pytest.fixture
def odd():
    pytest.importorskip("aiohttp")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Odd)) as s:
        threading.Thread(target=s.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{s.server_address[1]}"
        s.shutdown()


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_a_page_in_place_of_a_file_is_named(tmp_path, odd, kind):
    with pytest.raises(ConfigError, match=r"answers with an HTML page in place of the file(.|\n)*storage_options"):
        plan(tmp_path, kind, f"{odd}/login/a.{kind}")


def test_a_server_without_ranges_is_read_in_order_and_named_where_that_is_not_enough(odd):
    lines = [json.dumps({"text": f"t{i} " + "x" * 1000}) for i in range(9000)]
    Odd.data = "\n".join(lines).encode()
    assert len(Odd.data) > 8 << 20  # more than one block
    path = f"{odd}/a.jsonl"
    reader = JsonlReader(JsonlSource(name="s", type="jsonl", path=path))
    (split,) = reader.splits(path, len(Odd.data), 1 << 30)
    assert [i.row for i in reader.read(split)] == list(range(9000))
    with (
        open_raw(path, random=True) as f,
        pytest.raises(ConfigError, match=r"no range requests(.|\n)*download the file"),
    ):
        f.seek(len(Odd.data) - 100)
        f.read(10)


def test_a_server_that_gives_less_than_it_announced_is_named(odd):
    Odd.data = b"".join(json.dumps({"text": f"t{i}"}).encode() + b"\n" for i in range(100))
    path = f"{odd}/short.jsonl"
    reader = JsonlReader(JsonlSource(name="s", type="jsonl", path=path))
    (split,) = reader.splits(path, len(Odd.data), 1 << 30)
    with pytest.raises(RetryableError, match=r"the server gave \d+ of the \d+ bytes that it announced"):
        list(reader.read(split))


def test_hidden_members_of_an_archive_are_passed_over_and_bombs_are_refused(tmp_path, monkeypatch):
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.jsonl", '{"text": "t"}\n')
        archive.writestr("__MACOSX/._a.jsonl", b"\0\5\x16\7" * 9)
        archive.writestr("_b.jsonl", "no JSON")
    assert list(items(str(path), ["text"])) == ["t"]
    monkeypatch.setattr("gpu_curate.stages.reference_sets.MAX_FILE_BYTES", 1 << 20)
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("c.jsonl", bytes(8 << 20))
    with pytest.raises(ConfigError, match=r"c\.jsonl(.|\n)*more than 1048576 bytes"):
        list(items(str(path), ["text"]))
