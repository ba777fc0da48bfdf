"""Plain text files: one document a file, whole whatever its compression, and what is rejected."""

from __future__ import annotations

import bz2
import gzip
import io
import itertools
import lzma
import random

import lz4.frame
import pytest
import zstandard

from gpu_curate.config import TextSource
from gpu_curate.sources import Record, Reject, Skip
from gpu_curate.sources.compression import decompressed
from gpu_curate.sources.files import open_stream
from gpu_curate.sources.text import TextReader
from gpu_curate.tools.train_tokenizer import train_from_files

COMPRESS = {
    ".gz": gzip.compress,
    ".zst": lambda data: zstandard.ZstdCompressor().compress(data),
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".lz4": lz4.frame.compress,
}


def read(path, **options):
    r = TextReader(TextSource(name="s", type="text", path="x", **options))
    return [item for split in r.splits(str(path), path.stat().st_size, 1 << 20) for item in r.read(split)]


def noise(chars):
    return "".join(random.Random(1).choices("abcdefghijklmnopqrstuvwxyz \n", k=chars))


@pytest.mark.parametrize("suffix", COMPRESS)
@pytest.mark.parametrize("members", [1, 2, 3])
def test_a_compressed_file_is_one_whole_document(tmp_path, suffix, members):
    text = noise(200_003)  # more than one block of input in each format
    cuts = [len(text) * i // members for i in range(members + 1)]
    path = tmp_path / f"a.txt{suffix}"
    parts = itertools.pairwise(cuts)
    path.write_bytes(b"".join(COMPRESS[suffix](text[a:b].encode()) for a, b in parts))
    assert read(path) == [Record(0, text)]


@pytest.mark.parametrize("suffix", COMPRESS)
@pytest.mark.parametrize("kept", [0.1, 0.9])
def test_a_compressed_file_cut_short_is_a_reject_and_no_document(tmp_path, suffix, kept):
    data = COMPRESS[suffix](noise(200_003).encode())
    path = tmp_path / f"a.txt{suffix}"
    path.write_bytes(data[: int(len(data) * kept)])
    (reject,) = read(path)
    assert isinstance(reject, Reject)
    assert "cut short" in reject.reason


@pytest.mark.parametrize("size", [1, 97, 65536, 1 << 20])
def test_reading_gives_all_there_is_before_it_raises_the_damage(tmp_path, size):
    text = noise(150_001).encode()
    good, bad = gzip.compress(text), gzip.compress(text)[:5]
    stream = decompressed(io.BytesIO(good + bad), "a.gz")
    got = []
    with pytest.raises(EOFError):
        while True:
            got.append(stream.read(size))
            assert got[-1]
    assert b"".join(got) == text
    assert {len(piece) for piece in got[:-1]} <= {size}
    with pytest.raises(EOFError):
        stream.read(size)


def test_a_whole_read_of_a_damaged_stream_raises(tmp_path):
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(b"first") + b"\x1f\x8b\x08\xff" + b"\xff" * 20)
    with open_stream(str(path)) as f, pytest.raises(OSError, match=r"damaged \.gz data"):
        f.read()


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_a_file_of_max_file_bytes_is_read_and_one_byte_more_is_rejected(tmp_path, suffix):
    path = tmp_path / f"a.txt{suffix}"
    pack = COMPRESS.get(suffix, lambda data: data)
    path.write_bytes(pack(b"x" * 70_000))
    assert read(path, max_file_bytes=70_000) == [Record(0, "x" * 70_000)]
    (reject,) = read(path, max_file_bytes=69_999)
    assert "larger than max_file_bytes (69999)" in reject.reason


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_an_empty_file_is_skipped(tmp_path, suffix):
    path = tmp_path / f"a.txt{suffix}"
    path.write_bytes(COMPRESS.get(suffix, lambda data: data)(b""))
    assert read(path) == [Skip("empty_file")]


def test_a_file_that_does_not_decode_is_rejected_with_its_offset(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"\xef\xbb\xbfgood\xff")
    (reject,) = read(path)
    assert (reject.offset, "not utf-8" in reject.reason) == (7, True)
    path.write_bytes(b"\xef\xbb\xbfgood")
    assert read(path) == [Record(0, "good")]


def test_a_file_that_is_gone_is_a_reject(tmp_path):
    r = TextReader(TextSource(name="s", type="text", path="x"))
    (split,) = r.splits(str(tmp_path / "gone.txt"), 5, 1 << 20)
    (reject,) = r.read(split)
    assert "No such file" in reject.reason


def test_the_tokenizer_is_trained_on_all_of_a_compressed_file(tmp_path):
    path = tmp_path / "a.txt.gz"
    text = noise(200_003)
    path.write_bytes(gzip.compress(text[:100].encode()) + gzip.compress(text[100:].encode()))
    facts = train_from_files([str(path)], tmp_path / "t.json", 300, "<|eot|>", "text", 1 << 30)
    assert (facts["documents"], facts["bytes"]) == (1, len(text))


MIXED = "Grüße, мир: 漢字 und Text.\r\n" * 20


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32", "utf-8-sig"])
@pytest.mark.parametrize("declared", ["utf-8", "auto", "latin-1"])
def test_a_byte_order_mark_tells_the_encoding(tmp_path, encoding, declared):
    path = tmp_path / "a.txt"
    path.write_bytes(MIXED.encode(encoding))
    (record,) = read(path, encoding=declared)
    if encoding == "utf-8-sig" and declared == "latin-1":
        return
    assert record.text == MIXED


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"])
@pytest.mark.parametrize("text", ["Plain text, in lines.\n" * 9, MIXED])
def test_utf_16_without_a_mark_is_named_or_read_and_never_text_with_zeros(tmp_path, encoding, text):
    path = tmp_path / "a.txt"
    path.write_bytes(text.encode(encoding))
    assert [r.text for r in read(path, encoding="auto")] == [text]
    assert [r.text for r in read(path, encoding=encoding)] == [text]
    (reject,) = read(path)
    assert f"set encoding: {encoding}" in reject.reason


@pytest.mark.parametrize(
    ("encoding", "text"),
    [
        ("utf-8", MIXED),
        ("cp1251", "Все люди рождаются свободными и равными в своём достоинстве и правах. " * 5),
        ("shift_jis", "すべての人間は、生まれながらにして自由であり、かつ、尊厳と権利とについて平等である。" * 5),
        ("gb18030", "人人生而自由,在尊严和权利上一律平等。他们赋有理性和良心。" * 5),
        ("cp1252", "Où est le garçon ? Il a mangé des pâtes à l’huile d’olive, déjà. " * 5),
        ("iso2022_jp", "すべての人間は、生まれながらにして自由であり。" * 5),
    ],
)
def test_the_encoding_is_told_by_the_bytes(tmp_path, encoding, text):
    pytest.importorskip("chardetng_py")
    path = tmp_path / "a.txt"
    path.write_bytes(text.encode(encoding))
    (record,) = read(path, encoding="auto")
    assert record.text == text
    path.write_bytes(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + bytes(range(256)))
    (reject,) = read(path, encoding="auto")
    assert "zero bytes" in reject.reason


def test_labels_that_python_knows_are_read(tmp_path):
    path = tmp_path / "a.txt"
    for encoding, text in (("IBM855", "мир"), ("johab", "한국"), ("cp437", "é"), ("mac_cyrillic", "мир")):
        path.write_bytes(text.encode(encoding))
        assert [r.text for r in read(path, encoding=encoding)] == [text]
