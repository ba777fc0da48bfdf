"""Compressed files: told by their bytes, bounded in memory and time, frames and windows of zstd."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import random
import struct
import time
import tracemalloc

import lz4.frame
import pytest
import zstandard

from gpu_curate.config import JsonlSource, TextSource, WikipediaSource
from gpu_curate.sources import Record, Reject
from gpu_curate.sources.compression import WindowError, decompressed
from gpu_curate.sources.jsonl import JsonlReader
from gpu_curate.sources.text import TextReader
from gpu_curate.sources.wikipedia import WikipediaReader

COMPRESS = {
    ".gz": gzip.compress,
    ".zst": lambda data: zstandard.ZstdCompressor(write_checksum=True).compress(data),
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".lz4": lz4.frame.compress,
}


def piped(data, window_log=20):
    """A zstd frame as from a pipe: without the size of its content."""
    parameters = zstandard.ZstdCompressionParameters.from_level(3, window_log=window_log)
    compressor = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    return compressor.compress(data) + compressor.flush()


def long_window(data, log):
    """A zstd frame of one raw block whose header asks for a window of 2^log bytes."""
    assert len(data) < 1 << 17
    return b"\x28\xb5\x2f\xfd\x00" + bytes([(log - 10) << 3]) + struct.pack("<I", len(data) << 3 | 1)[:3] + data


def read_all(data, name="x", size=100_003, **options):
    f = decompressed(io.BytesIO(data), name, **options)
    return b"".join(iter(lambda: f.read(size), b""))


@pytest.mark.parametrize("size", [1, 3, 131072, 1 << 20])
@pytest.mark.parametrize("suffix", COMPRESS)
def test_frames_back_to_back_and_empty_ones_are_one_stream(suffix, size):
    noise = random.Random(1)
    texts = [noise.randbytes(n) * 3 for n in (0, 1, 50_000, 200_003 if size > 3 else 7, 0)]
    packed = b"".join(map(COMPRESS[suffix], texts))
    assert read_all(packed, size=size) == b"".join(texts)
    if suffix == ".zst":
        skippable = b"\x5a\x2a\x4d\x18" + struct.pack("<I", 100_000) + bytes(100_000)
        assert read_all(skippable + packed + skippable + piped(b"end"), size=size) == b"".join(texts) + b"end"
    if suffix in (".gz", ".xz"):
        assert read_all(packed + bytes(4096) + packed, size=size) == b"".join(texts) * 2


@pytest.mark.parametrize("suffix", COMPRESS)
def test_what_a_file_is_compressed_by_is_told_by_its_bytes(tmp_path, suffix):
    text = '{"text": "päper"}\n' * 3
    names = ["a.jsonl", "RC_2020-01.zst", "dump.gz", "a.jsonl.bz2", "a.jsonl.zstd", "a.jsonl.gzip"]
    for name in names:
        for data in (COMPRESS[suffix](text.encode()), text.encode()):
            path = tmp_path / name
            path.write_bytes(data)
            reader = JsonlReader(JsonlSource(name="s", type="jsonl", path=str(path)))
            split = reader.splits(str(path), len(data), 10)[0]
            items = [i for s in reader.splits(str(path), len(data), 1 << 20) for i in reader.read(s)]
            assert [i.text for i in items] == ["päper"] * 3
            assert split.plain == (data == text.encode())


def test_a_damaged_head_under_a_compressed_name_is_damage_and_no_text(tmp_path):
    path = tmp_path / "a.txt.gz"
    path.write_bytes(b"\x1f\x8a" + gzip.compress(b"text" * 99)[2:])
    (item,) = _text(path, encoding="latin-1")
    assert isinstance(item, Reject)
    assert "damaged .gz data" in item.reason


def _text(path, **options):
    reader = TextReader(TextSource(name="s", type="text", path=str(path), **options))
    return [i for s in reader.splits(str(path), path.stat().st_size, 1 << 20) for i in reader.read(s)]


def test_a_long_window_is_read_behind_a_stated_limit(tmp_path):
    text = b'{"text": "t"}\n'
    for log in (20, 27):
        assert read_all(long_window(text, log)) == text
    with pytest.raises(
        WindowError, match=r"window of 2147483648 bytes \(--long=31\), more than max_window_bytes \(134217728\)"
    ):
        read_all(long_window(text, 31))
    path = tmp_path / "RC_2020-01.zst"
    path.write_bytes(long_window(text, 31))
    for limit, kind in ((1 << 27, Reject), (1 << 31, Record)):
        reader = JsonlReader(JsonlSource(name="s", type="jsonl", path=str(path), max_window_bytes=limit))
        (item,) = [i for s in reader.splits(str(path), 30, 1 << 20) for i in reader.read(s)]
        assert isinstance(item, kind)
    xz = lzma.compress(text, filters=[{"id": lzma.FILTER_LZMA2, "dict_size": 256 << 20}])
    with pytest.raises(WindowError, match=r"xz with a dictionary.*max_window_bytes"):
        read_all(xz)
    assert read_all(xz, max_window_bytes=300 << 20) == text


@pytest.mark.parametrize("suffix", COMPRESS)
def test_a_bomb_takes_little_memory_and_linear_time(tmp_path, suffix):
    path = tmp_path / f"a.txt{suffix}"
    path.write_bytes(COMPRESS[suffix](bytes(96 << 20)))
    tracemalloc.start()
    start = time.process_time()
    (item,) = _text(path, max_file_bytes=1 << 20)
    seconds, peak = time.process_time() - start, tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert "larger than max_file_bytes (1048576)" in item.reason
    assert peak < 16 << 20  # of 96 MiB
    assert seconds < 2
    f = decompressed(io.BytesIO(path.read_bytes()), "a")
    start = time.process_time()
    while f.read(4096):
        pass
    assert time.process_time() - start < 8  # quadratic: minutes


def test_all_that_comes_before_damage_is_given_first():
    text = random.Random(1).randbytes(700_000)
    data = bytearray(piped(text))
    data[600_000] ^= 1
    data[600_001:] = b"\x07" * 100  # a block of no kind somewhere
    f = decompressed(io.BytesIO(bytes(data)), "a")
    got = b""
    with pytest.raises((EOFError, OSError)):
        while True:
            got += f.read(1 << 16)
    assert len(got) >= 4 << 17
    assert text.startswith(got[: 4 << 17])


def test_a_dump_is_read_whatever_its_name_says_of_its_compression(tmp_path):
    page = b"<mediawiki><page><title>T</title><ns>0</ns><id>1</id><revision><text>Some text.</text></revision></page></mediawiki>"
    for name in ("d.xml", "d.xml.bz2", "d.xml.gz", "d.zst"):
        for pack in (bytes, bz2.compress, gzip.compress, COMPRESS[".zst"]):
            path = tmp_path / name
            path.write_bytes(pack(page))
            reader = WikipediaReader(WikipediaSource(name="w", type="wikipedia", path=str(path)))
            items = [i for s in reader.splits(str(path), path.stat().st_size, 1 << 20) for i in reader.read(s)]
            assert [i.text for i in items if isinstance(i, Record)] == ["Some text."], (name, items)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be", "utf-32-le"])
def test_a_dump_in_utf_16_is_named(tmp_path, encoding):
    page = "<mediawiki><page><title>T</title><ns>0</ns><id>1</id><revision><text>x</text></revision></page></mediawiki>"
    for pack in (bytes, bz2.compress, gzip.compress):
        path = tmp_path / "d.xml"
        path.write_bytes(pack(page.encode(encoding)))
        reader = WikipediaReader(WikipediaSource(name="w", type="wikipedia", path=str(path)))
        items = [i for s in reader.splits(str(path), path.stat().st_size, 1 << 20) for i in reader.read(s)]
        assert "a dump in UTF-16 or UTF-32" in items[0].reason
        assert not any(isinstance(i, Record) for i in items)
