"""Finding and opening files: globs, folders, compressions, http range requests that fetch only what is read."""

from __future__ import annotations

import functools
import http.server
import json
import os
import random
import threading

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gpu_curate.config import JsonlSource, ParquetSource
from gpu_curate.errors import ConfigError
from gpu_curate.sources import Record
from gpu_curate.sources.files import find
from gpu_curate.sources.jsonl import JsonlReader
from gpu_curate.sources.parquet import ParquetReader


def test_files_come_in_order_of_their_path_below_the_pattern(tmp_path):
    for name in ("z/b.jsonl", "a/c.jsonl.gz", "a/a.json", "a/notes.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    suffixes = (".jsonl", ".json")
    for pattern in (str(tmp_path), str(tmp_path / "**" / "*"), str(tmp_path) + "/"):
        assert [f.relative for f in find([pattern], suffixes, {}, "k")] == ["a/a.json", "a/c.jsonl.gz", "z/b.jsonl"]


def test_a_file_named_twice_is_read_once(tmp_path):
    (tmp_path / "a.jsonl").write_text("x")
    patterns = [str(tmp_path / "a.jsonl"), str(tmp_path / "*.jsonl")]
    assert len(find(patterns, (".jsonl",), {}, "k")) == 1


@pytest.mark.parametrize("pattern", ["gone.jsonl", "gone/*.jsonl", ""])
def test_a_pattern_without_a_file_is_an_error_that_names_the_key(tmp_path, pattern):
    with pytest.raises(ConfigError, match=r"source s: path"):
        find([str(tmp_path / pattern) if pattern else ""], (".jsonl",), {}, "source s: path")


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
    (file,) = find(source.paths, (".parquet",), {}, "k")
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
        (file,) = find([url], reader.suffixes, {}, "k")
        assert [i.text for i in read(reader, file.path, file.size) if isinstance(i, Record)] == [
            f"t{i}" for i in range(50)
        ]


def test_a_url_that_is_not_there_is_an_error_before_any_work(server):
    pytest.importorskip("aiohttp")
    with pytest.raises(ConfigError, match="matches no file"):
        find([f"{server}/gone.jsonl"], (".jsonl",), {}, "k")
