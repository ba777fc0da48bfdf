"""Finding and opening files: globs, folders, compressions, http range requests that fetch only what is read."""

from __future__ import annotations

import functools
import gzip
import http.server
import json
import os
import random
import socket
import threading

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gpu_curate.config import JsonlSource, ParquetSource, TextSource
from gpu_curate.errors import ConfigError, RetryableError
from gpu_curate.sources import Record, Reject
from gpu_curate.sources.files import find, open_stream
from gpu_curate.sources.jsonl import JsonlReader
from gpu_curate.sources.listing import fixed_folder
from gpu_curate.sources.parquet import ParquetReader
from gpu_curate.sources.text import TextReader


def test_files_come_in_order_of_their_path_below_the_pattern(tmp_path):
    for name in ("z/b.jsonl", "a/c.jsonl.gz", "a/a.json", "a/notes.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    suffixes = (".jsonl", ".json")
    for pattern in (str(tmp_path), str(tmp_path / "**" / "*"), str(tmp_path) + "/"):
        assert [f.relative for f in find([pattern], suffixes, {}, "k").files] == [
            "a/a.json",
            "a/c.jsonl.gz",
            "z/b.jsonl",
        ]


def test_a_file_named_twice_is_read_once(tmp_path):
    (tmp_path / "a.jsonl").write_text("x")
    patterns = [str(tmp_path / "a.jsonl"), str(tmp_path / "*.jsonl")]
    assert len(find(patterns, (".jsonl",), {}, "k").files) == 1


def test_a_file_of_several_names_is_read_once_under_the_shortest(tmp_path, monkeypatch):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.jsonl").write_text("x")
    (tmp_path / "data" / "loop").symlink_to(tmp_path / "data")
    (tmp_path / "data" / "z.jsonl").symlink_to("a.jsonl")
    monkeypatch.chdir(tmp_path)
    spellings = ["data/**/*.jsonl", "./data/a.jsonl", "data/../data/a.jsonl", str(tmp_path / "data")]
    for patterns in (spellings[:1], spellings, spellings[:0:-1]):
        (file,) = find(patterns, (".jsonl",), {}, "k").files
        assert file.relative == "a.jsonl"


def test_copies_and_files_of_one_name_in_two_folders_are_all_read(tmp_path):
    for name in ("a/x.jsonl", "b/x.jsonl"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text("x")
    assert len(find([str(tmp_path / "a"), str(tmp_path / "b")], (".jsonl",), {}, "k").files) == 2


@pytest.mark.parametrize("pattern", ["", "**/*.jsonl", "**", "*/*.jsonl", "*/b/*.jsonl", "*/**/*.jsonl"])
def test_a_folder_that_cannot_be_listed_is_an_error_that_names_it(tmp_path, monkeypatch, pattern):
    (tmp_path / "open" / "b" / "closed").mkdir(parents=True)
    (tmp_path / "closed" / "b").mkdir(parents=True)
    for folder in (".", "open", "open/b"):
        (tmp_path / folder / "a.jsonl").write_text("x")
    assert find([str(tmp_path / pattern)], (".jsonl",), {}, "k").files
    scandir = os.scandir

    def refuse(path="."):  # as the kernel does, except to root
        if "closed" in str(path):
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    monkeypatch.chdir(tmp_path)
    for given in (pattern or ".", str(tmp_path / pattern)):
        with pytest.raises(ConfigError, match=r"k: the folder .*closed.* cannot be listed: Permission denied"):
            find([given], (".jsonl",), {}, "k")
    assert find([str(tmp_path / "*.jsonl")], (".jsonl",), {}, "k").files  # what lies below is not asked for


@pytest.mark.parametrize("scheme", ["", "file://", "memory://"])
@pytest.mark.parametrize("name", ["a [1]", "a?", "a#", "a b", "a*", "a%20b", "a{1,2}", "~a", "$a"])
def test_a_name_with_special_characters_is_taken_as_it_stands_if_it_exists(tmp_path, scheme, name):
    for folder in (name, "other"):
        for file in (f"{name}.jsonl.gz", "a 1.jsonl.gz", "other.jsonl.gz"):
            with fsspec.open(f"{scheme}{tmp_path}/{folder}/{file}", "wb") as f:
                f.write(gzip.compress(f"{folder}/{file}".encode()))
    folder = f"{scheme}{tmp_path}/{name}"

    def found(pattern):
        return sorted(text(f) for f in find([pattern], (".jsonl",), {}, "k").files)

    def text(file):
        with open_stream(file.path) as f:
            return f.read().decode()

    assert found(f"{folder}/{name}.jsonl.gz") == [f"{name}/{name}.jsonl.gz"]
    every = sorted(f"{name}/{f}.jsonl.gz" for f in (name, "a 1", "other"))
    assert found(folder) == every
    if not scheme:  # fsspec takes every wildcard for one
        assert found(f"{folder}/*.jsonl.gz") == found(f"{folder}/**/*.gz") == found(f"{folder}/**") == every
        assert [f.relative for f in find([f"{folder}/[o]*"], (), {}, "k").files] == ["other.jsonl.gz"]


@pytest.mark.parametrize("query", ["", "?download=true", "?signature=a/b&part=[1]&all=*"])
def test_the_query_of_a_url_is_no_part_of_the_name(tmp_path, server, query):
    pytest.importorskip("aiohttp")
    (tmp_path / "a b.jsonl.gz").write_bytes(gzip.compress(b'{"text": "t"}'))
    reader = JsonlReader(JsonlSource(name="s", type="jsonl", path=f"{server}/a%20b.jsonl.gz{query}"))
    (file,) = find(reader.source.paths, reader.suffixes, {}, "k").files
    assert [i.text for i in read(reader, file.path, file.size)] == ["t"]


def test_a_name_that_is_not_utf8_is_an_error_that_shows_it(tmp_path):
    path = os.fsencode(tmp_path) + b"/caf\xe9.jsonl"
    try:
        open(path, "wb").close()
    except OSError:
        pytest.skip("this file system takes UTF-8 names only")
    with pytest.raises(ConfigError, match=r"caf\\udce9\.jsonl' is not UTF-8"):
        find([str(tmp_path)], (".jsonl",), {}, "k")


@pytest.mark.parametrize("pattern", ["gone.jsonl", "gone/*.jsonl", ""])
def test_a_pattern_without_a_file_is_an_error_that_names_the_key(tmp_path, pattern):
    with pytest.raises(ConfigError, match=r"source s: path"):
        find([str(tmp_path / pattern) if pattern else ""], (".jsonl",), {}, "source s: path")


def test_the_folder_before_the_first_wildcard(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a [1]").mkdir()
    patterns = ["*.txt", "/*.txt", "/a/b/*.txt", "a/**", "a [1]/*.txt", "a [2]/*.txt"]
    assert [fixed_folder(p) for p in patterns] == ["", "/", "/a/b", "a", "a [1]", ""]


def test_an_unknown_protocol_is_an_error():
    with pytest.raises(ConfigError, match="gopher"):
        find(["gopher://x/y.jsonl"], (".jsonl",), {}, "k")


class Ranges(http.server.SimpleHTTPRequestHandler):
    """A file server that knows ranges and counts the bytes it sends."""

    sent = 0

    def do_GET(self):
        path = self.translate_path(self.path)
        try:
            data = open(path, "rb").read()  # noqa: SIM115
        except OSError:
            self.send_error(404)
            return
        wanted = self.headers.get("Range")
        start, stop = 0, len(data)
        if wanted:
            first, last = wanted.removeprefix("bytes=").split("-")
            start, stop = int(first), min(int(last) + 1, len(data)) if last else len(data)
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{stop - 1}/{len(data)}")
        else:
            self.send_response(200)
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("Content-Length", str(stop - start))
        self.end_headers()
        self.wfile.write(data[start:stop])
        type(self).sent += stop - start

    def log_message(self, *args):
        pass


@pytest.fixture
def server(tmp_path):
    Ranges.sent = 0
    handler = functools.partial(Ranges, directory=str(tmp_path))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as s:
        threading.Thread(target=s.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{s.server_address[1]}"
        s.shutdown()


def read(reader, path, size):
    return [i for split in reader.splits(path, size, 1 << 20) for i in reader.read(split)]


def test_only_the_row_groups_and_columns_asked_for_cross_the_network(tmp_path, server):
    pytest.importorskip("aiohttp")
    noise = random.Random(1)
    rows = ["".join(noise.choices("abcdefghijklmnopqrstuvwxyz", k=500)) for _ in range(4000)]
    pq.write_table(pa.table({"text": rows, "other": rows[::-1]}), tmp_path / "a.parquet", row_group_size=500)
    size = os.path.getsize(tmp_path / "a.parquet")
    source = ParquetSource(name="s", type="parquet", path=f"{server}/a.parquet", row_groups={"every": 4})
    (file,) = find(source.paths, (".parquet",), {}, "k").files
    assert file.size == size
    items = read(ParquetReader(source), file.path, file.size)
    assert [i.text for i in items] == rows[:500] + rows[2000:2500]
    footers = 4 * 65536  # of the plan and of each split; Arrow asks for 64 KiB at the end
    assert Ranges.sent < size / 8 + footers  # a quarter of the groups of one of two columns


def test_jsonl_over_http_and_from_memory_reads_like_a_local_file(tmp_path, server):
    pytest.importorskip("aiohttp")
    lines = "\n".join(json.dumps({"text": f"t{i}"}) for i in range(50))
    (tmp_path / "a.jsonl").write_text(lines)
    with fsspec.open("memory://folder/a.jsonl", "w") as f:
        f.write(lines)
    for url in (f"{server}/a.jsonl", "memory://folder/*.jsonl"):
        reader = JsonlReader(JsonlSource(name="s", type="jsonl", path=url))
        (file,) = find([url], reader.suffixes, {}, "k").files
        assert [i.text for i in read(reader, file.path, file.size) if isinstance(i, Record)] == [
            f"t{i}" for i in range(50)
        ]


def test_a_url_that_is_not_there_is_an_error_before_any_work(server):
    pytest.importorskip("aiohttp")
    with pytest.raises(ConfigError, match="matches no file"):
        find([f"{server}/gone.jsonl"], (".jsonl",), {}, "k")


class Unsized(Ranges):
    """Sends pages it makes while it sends them, as servers without a Content-Length do."""

    def do_GET(self):
        self.send_response(200)
        if self.path.startswith("/packed"):
            self.send_header("Content-Encoding", "gzip")
            self.send_header("Content-Length", "30")
        self.end_headers()

    do_HEAD = do_GET


@pytest.mark.parametrize("name", ["a.jsonl", "packed.jsonl"])
def test_a_server_that_does_not_say_how_long_a_file_is_is_named_as_such(name):
    pytest.importorskip("aiohttp")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Unsized) as s:
        threading.Thread(target=s.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{s.server_address[1]}/{name}"
        with pytest.raises(ConfigError, match=rf"k: {url}: the server does not say how long it is.*\n.*download"):
            find([url], (".jsonl",), {}, "k")
        s.shutdown()


class Failing(Ranges):
    """Answers what is asked `fail_after` times, then as `how` says."""

    fail_after, how = 1 << 30, "error"

    def do_GET(self):
        cls = type(self)
        cls.fail_after -= 1
        if cls.fail_after >= 0:
            super().do_GET()
        elif cls.how == "cut":
            self.send_response(206)
            self.send_header("Content-Length", "1000")
            self.end_headers()
            self.wfile.write(b"x")
            self.close_connection = True
        else:
            self.send_error({"error": 503, "gone": 404}[cls.how])


@pytest.fixture
def failing(tmp_path):
    pytest.importorskip("aiohttp")
    Failing.fail_after = 1 << 30
    handler = functools.partial(Failing, directory=str(tmp_path))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as s:
        threading.Thread(target=s.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{s.server_address[1]}"
        s.shutdown()


SOURCES = {
    "a.jsonl": lambda url: JsonlReader(JsonlSource(name="s", type="jsonl", path=url)),
    "a.jsonl.gz": lambda url: JsonlReader(JsonlSource(name="s", type="jsonl", path=url)),
    "a.txt": lambda url: TextReader(TextSource(name="s", type="text", path=url)),
    "a.parquet": lambda url: ParquetReader(ParquetSource(name="s", type="parquet", path=url)),
}


def remote_file(tmp_path, url, name):
    lines = b"".join(json.dumps({"text": f"t{i}"}).encode() + b"\n" for i in range(50))
    if name == "a.parquet":
        pq.write_table(pa.table({"text": [f"t{i}" for i in range(50)]}), tmp_path / name)
    else:
        (tmp_path / name).write_bytes(gzip.compress(lines) if name.endswith(".gz") else lines)
    reader = SOURCES[name](f"{url}/{name}")
    (file,) = find([f"{url}/{name}"], reader.suffixes, {}, "k").files
    (split,) = reader.splits(file.path, file.size, 1 << 20)
    return reader, split


@pytest.mark.parametrize("how", ["error", "cut"])
@pytest.mark.parametrize("name", SOURCES)
def test_a_network_that_fails_while_reading_is_tried_again_and_rejects_nothing(tmp_path, failing, name, how):
    reader, split = remote_file(tmp_path, failing, name)
    Failing.fail_after, Failing.how = 0, how
    with pytest.raises(RetryableError, match=name):
        list(reader.read(split))
    Failing.fail_after = 1 << 30
    items = list(reader.read(split))
    assert items
    assert all(isinstance(i, Record) for i in items)


@pytest.mark.parametrize("name", SOURCES)
def test_a_remote_file_that_is_gone_while_reading_is_rejected(tmp_path, failing, name):
    reader, split = remote_file(tmp_path, failing, name)
    Failing.fail_after, Failing.how = 0, "gone"
    (tmp_path / name).unlink()
    (reject,) = reader.read(split)
    assert isinstance(reject, Reject)


@pytest.mark.parametrize("name", ["a.jsonl", "*.jsonl"])
def test_a_refused_connection_is_named_as_such(name):
    pytest.importorskip("aiohttp")
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))  # bound, not listening
        with pytest.raises(ConfigError, match="cannot be listed: connection refused"):
            find([f"http://127.0.0.1:{s.getsockname()[1]}/{name}"], (".jsonl",), {}, "k")


def test_a_server_error_while_listing_is_named_as_such(failing, monkeypatch):
    monkeypatch.setattr(Failing, "do_HEAD", Failing.do_GET)
    Failing.fail_after, Failing.how = 0, "error"
    with pytest.raises(ConfigError, match=r"cannot be listed: .*503"):
        find([f"{failing}/a.jsonl"], (".jsonl",), {}, "k")
