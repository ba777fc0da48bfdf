"""Shard formats: bytes against their published layouts, and every check on opening."""

import hashlib
import os
import struct

import numpy as np
import pytest

from gpu_curate.errors import FatalError, InputError
from gpu_curate.formats import FORMATS, Megatron, open_shard

EOT = 9
SIZES = (0, 1, 7, 257, 65_537)


def stream(count, dtype, seed=0):
    return np.random.default_rng(seed).integers(0, np.iinfo(dtype).max, count, dtype=dtype, endpoint=True)


def write(path, name, tokens):
    digest = FORMATS[name].write(path, tokens)
    index = FORMATS[name].index(tokens, EOT)
    if index is not None:
        path.with_suffix(FORMATS[name].index_suffix).write_bytes(index)
    return digest


@pytest.mark.parametrize("count", SIZES)
@pytest.mark.parametrize("dtype", [np.uint16, np.uint32])
@pytest.mark.parametrize("name", list(FORMATS))
def test_what_is_written_is_read_back_and_hashed(tmp_path, name, dtype, count):
    path, tokens = tmp_path / "train_000000.bin", stream(count, dtype)
    assert write(path, name, tokens) == hashlib.sha256(path.read_bytes()).hexdigest()
    got = open_shard(path, name, np.dtype(dtype), count)
    assert got.dtype == dtype
    np.testing.assert_array_equal(got, tokens)


def test_a_shard_longer_than_one_write_block_is_whole(tmp_path, monkeypatch):
    monkeypatch.setattr("gpu_curate.formats._BLOCK_TOKENS", 100)
    for count in (99, 100, 101, 1009):
        tokens = stream(count, np.uint16)
        write(tmp_path / "a.bin", "nanogpt", tokens[::-1])  # not contiguous
        np.testing.assert_array_equal(open_shard(tmp_path / "a.bin", "nanogpt", np.uint16), tokens[::-1])


def test_llmc_header_is_the_published_one(tmp_path):
    path = tmp_path / "a.bin"
    for dtype, magic, version in ((np.uint16, 20240520, 1), (np.uint32, 20240801, 7)):
        write(path, "llmc", stream(12, dtype))
        header = np.fromfile(path, "<i4", 256)
        assert header[:3].tolist() == [magic, version, 12]
        assert not header[3:].any()
        np.testing.assert_array_equal(np.fromfile(path, dtype, offset=1024), stream(12, dtype))


def plain_megatron_reader(path):
    """Sequences and document bounds, field by field from the description of the format."""
    data = path.with_suffix(".idx").read_bytes()
    assert data[:9] == b"MMIDIDX\x00\x00"
    (version,) = struct.unpack("<Q", data[9:17])
    (code,) = struct.unpack("<B", data[17:18])
    sequences, documents = struct.unpack("<QQ", data[18:34])
    assert version == 1
    at = 34
    lengths = struct.unpack(f"<{sequences}i", data[at : at + 4 * sequences])
    at += 4 * sequences
    pointers = struct.unpack(f"<{sequences}q", data[at : at + 8 * sequences])
    at += 8 * sequences
    bounds = struct.unpack(f"<{documents}q", data[at:])
    dtype = {8: np.uint16, 4: np.int32}[code]
    raw = path.read_bytes()
    return [np.frombuffer(raw, dtype, n, p).tolist() for n, p in zip(lengths, pointers, strict=True)], list(bounds)


@pytest.mark.parametrize("dtype", [np.uint16, np.uint32])
def test_megatron_sequences_are_documents(tmp_path, dtype):
    tokens = np.array(
        [5, 1, EOT, EOT, 2, 3, 4, EOT, 6], dtype
    )  # an empty document, and one cut by the end of the shard
    write(tmp_path / "a.bin", "megatron", tokens)
    sequences, bounds = plain_megatron_reader(tmp_path / "a.bin")
    assert sequences == [[5, 1, EOT], [EOT], [2, 3, 4, EOT], [6]]
    assert bounds == [0, 1, 2, 3, 4]
    write(tmp_path / "b.bin", "megatron", tokens[:8])
    assert plain_megatron_reader(tmp_path / "b.bin")[0] == [[5, 1, EOT], [EOT], [2, 3, 4, EOT]]
    write(tmp_path / "c.bin", "megatron", tokens[:0])
    assert plain_megatron_reader(tmp_path / "c.bin") == ([], [0])


def test_megatron_offsets_pass_two_to_the_31():
    lens = np.array([(1 << 31) - 1, 10, 3], np.int64)
    index = Megatron().index_of(lens, 4)
    np.testing.assert_array_equal(
        np.frombuffer(index, "<i8", 3, 34 + 12), [0, 4 * ((1 << 31) - 1), 4 * ((1 << 31) + 9)]
    )
    with pytest.raises(FatalError, match="2147483648"):
        Megatron().index_of(lens + 1, 4)


def test_a_file_of_more_than_two_to_the_31_tokens_is_read_to_its_end(tmp_path):
    path, count = tmp_path / "big.bin", (1 << 31) + 10
    with path.open("wb") as f:  # sparse: takes no disk
        f.seek((count - 1) * 2)
        f.write(struct.pack("<H", 4242))
    tokens = open_shard(path, "nanogpt", np.uint16, count)
    assert len(tokens) == count
    assert tokens[count - 2 :].tolist() == [0, 4242]


def test_llmc_refuses_a_count_its_header_cannot_hold():
    with pytest.raises(FatalError, match="tokens_per_shard"):
        FORMATS["llmc"].header(1 << 31, np.dtype(np.uint16))


def test_writer_takes_ids_of_16_or_32_bits_and_never_narrows(tmp_path):
    for tokens in (np.array([1, 70_000], np.int64), np.array([1.0]), np.zeros((2, 2), np.uint16)):
        with pytest.raises(InputError, match="uint16 or uint32"):
            FORMATS["llmc"].write(tmp_path / "a.bin", tokens)
    FORMATS["llmc"].write(tmp_path / "a.bin", np.array([1, 70_000], np.uint32))
    assert open_shard(tmp_path / "a.bin").tolist() == [1, 70_000]


def damage(path, offset, value):
    data = bytearray(path.read_bytes())
    data[offset : offset + len(value)] = value
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("offset", "value", "message"),
    [
        (0, struct.pack("<i", 20230101), "magic 20230101, expected 20240520 or 20240801"),
        (4, struct.pack("<i", 2), "version 2 of magic 20240520, expected 1"),
        (8, struct.pack("<i", 11), "1048 bytes, expected 1046"),
        (8, struct.pack("<i", -1), "counts -1 tokens"),
    ],
)
def test_a_wrong_llmc_header_is_named(tmp_path, offset, value, message):
    path = tmp_path / "train_000000.bin"
    write(path, "llmc", stream(12, np.uint16))
    damage(path, offset, value)
    with pytest.raises(FatalError, match=message) as e:
        open_shard(path)
    assert str(path) in str(e.value)


@pytest.mark.parametrize("name", ["llmc", "megatron"])
def test_a_cut_file_is_named_with_both_sizes(tmp_path, name):
    path = tmp_path / "a.bin"
    write(path, name, stream(100, np.uint16))
    full = path.stat().st_size
    os.truncate(path, full - 5)
    with pytest.raises(FatalError, match=f"{full - 5} bytes, expected {full}"):
        open_shard(path, name)


def test_a_headerless_shard_of_odd_size_or_wrong_count_is_refused(tmp_path):
    path = tmp_path / "a.bin"
    path.write_bytes(b"12345")
    with pytest.raises(FatalError, match="5 bytes, expected 4"):
        open_shard(path, "nanogpt", np.uint16)
    path.write_bytes(b"1234")
    with pytest.raises(FatalError, match="holds 2 tokens, expected 3"):
        open_shard(path, "nanogpt", np.uint16, 3)
    with pytest.raises(FatalError, match="does not say its dtype"):
        open_shard(path, "nanogpt")


@pytest.mark.parametrize("name", ["llmc", "nanogpt", "megatron"])
def test_a_folder_or_a_pipe_in_the_place_of_a_shard_is_named(tmp_path, name):
    write(tmp_path / "a.bin", name, stream(3, np.uint16))
    for number, make in enumerate((os.mkdir, os.mkfifo)):
        os.replace(tmp_path / "a.bin", tmp_path / f"gone-{number}")
        make(tmp_path / "a.bin")
        with pytest.raises(FatalError, match=rf"a\.bin: {'a folder' if make is os.mkdir else 'not a regular file'}"):
            open_shard(tmp_path / "a.bin", name, np.uint16)


def test_other_things_that_are_not_the_shard_expected(tmp_path):
    path = tmp_path / "a.bin"
    with pytest.raises(FatalError, match="No such file"):
        open_shard(path)
    path.write_bytes(b"x" * 10)
    with pytest.raises(FatalError, match="header of 1024"):
        open_shard(path)
    write(path, "llmc", stream(3, np.uint32))
    with pytest.raises(FatalError, match="holds uint32 ids, expected uint16"):
        open_shard(path, "llmc", np.uint16)
    with pytest.raises(FatalError, match="unknown shard format 'webdataset'"):
        open_shard(path, "webdataset")
    with pytest.raises(FatalError, match=r"a Megatron shard is a \.bin and an \.idx"):
        open_shard(path, "megatron")


@pytest.mark.parametrize(
    ("offset", "value", "message"),
    [
        (0, b"X", "expected b'MMIDIDX"),
        (9, b"\x02", "version 2"),
        (17, b"\x06", "code 6"),
        (18, b"\x07", "bytes, expected"),
    ],
)
def test_a_wrong_megatron_index_is_named(tmp_path, offset, value, message):
    write(tmp_path / "a.bin", "megatron", stream(20, np.uint16))
    damage(tmp_path / "a.idx", offset, value)
    with pytest.raises(FatalError, match=message):
        open_shard(tmp_path / "a.bin", "megatron")
