"""Token shards on disk: llm.c, nanoGPT, Megatron. Writers, readers, and what is checked on opening.

A shard is a run of a split's token stream: documents back to back, each ended by one end-of-text token; a document may be
cut by the end of a shard and go on in the next. All numbers are little-endian. Ids are uint16, or uint32 when the
vocabulary has more than 65,536 entries; a writer takes the dtype of the array it is given and never narrows it.

    llmc      256 int32 header: magic 20240520, version 1, token count; then uint16 ids.
              uint32 ids: magic 20240801, version 7 (Karpathy, llm.c, dev/data/data_common.py, its Llama 3 variant).
    nanogpt   ids alone; dtype and count are in manifest.json (Karpathy, nanoGPT, data/openwebtext/prepare.py).
    megatron  ids alone in .bin, and .idx: magic MMIDIDX, version 1, dtype code, counts, int32 lengths and int64 byte
              offsets of the sequences, int64 document bounds (NVIDIA, megatron/core/datasets/indexed_dataset.py).
              A sequence is a document: what ends in the end-of-text token, or at an end of the shard. uint32 ids are
              written as int32, the type Megatron has for them.

# N tokens, S sequences
"""

from __future__ import annotations

import hashlib
import os
import stat
import struct
from pathlib import Path
from typing import ClassVar

import numpy as np

from gpu_curate.errors import FatalError, InputError
from gpu_curate.store.mapped import mapped

_BLOCK_TOKENS = 1 << 22  # tokens per write: bounds what is copied on the way to disk


class Format:
    """A shard format. `write` and `index` give the bytes of one shard, `open` maps and checks it."""

    name: str
    suffix = ".bin"
    index_suffix: str | None = None  # of the second file, where the format has one

    def header(self, count: int, dtype: np.dtype) -> bytes:
        """What precedes `count` ids of `dtype`."""
        return b""

    def write(self, path: str | os.PathLike[str], tokens: np.ndarray) -> str:
        """Write one shard to `path` (a temporary name that the caller publishes; not flushed to disk here).

        Args:
            tokens: N ids, uint16 or uint32; N = 0 gives a header alone.
        Returns:
            sha256 of the file, in hex, taken while writing.
        Raises:
            InputError: another dtype or shape; FatalError: more tokens than the header can count.
        """
        if tokens.dtype not in (np.uint16, np.uint32) or tokens.ndim != 1:
            raise InputError(f"a shard is one row of uint16 or uint32 ids, got {tokens.ndim} axes of {tokens.dtype}")
        header = self.header(len(tokens), tokens.dtype)
        digest = hashlib.sha256(header)
        with open(path, "wb") as f:
            f.write(header)
            for start in range(0, len(tokens), _BLOCK_TOKENS):
                block = tokens[start : start + _BLOCK_TOKENS]
                data = np.ascontiguousarray(block, block.dtype.newbyteorder("<")).data.cast("B")
                digest.update(data)
                f.write(data)
        return digest.hexdigest()

    def index(self, tokens: np.ndarray, eot_id: int) -> bytes | None:
        """Bytes of the second file (at the shard's path with `index_suffix`); None for a format of one file."""
        return None

    def open(
        self, path: str | os.PathLike[str], dtype: np.dtype | None = None, tokens: int | None = None
    ) -> np.ndarray:
        """Map a shard, read-only.

        Args:
            dtype: ids expected; nanogpt needs it, the others say it themselves and are checked against it.
            tokens: count expected; None takes what is there.
        Returns:
            N ids over the mapped file, without a copy; an empty array for a shard without tokens.
        Raises:
            FatalError: the file is missing or is none (a folder), or header, version, dtype, count or size differ from
                what they should be: names the file, what was found and what was expected.
        """
        path = os.fspath(path)
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # what is no file must not wait for a writer
        except OSError as e:
            raise FatalError(
                f"{path}: {e.strerror or e}", hint="the manifest or the glob names a shard that is gone"
            ) from e
        try:
            return self._open(path, fd, dtype, tokens)
        finally:
            os.close(fd)

    def _open(self, path: str, fd: int, dtype: np.dtype | None, tokens: int | None) -> np.ndarray:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            kind = "a folder" if stat.S_ISDIR(status.st_mode) else "not a regular file"
            raise FatalError(f"{path}: {kind}, expected a shard", hint="the manifest or the glob names something else")
        nbytes = status.st_size
        found, count, start = self._describe(path, fd, nbytes, dtype)
        if dtype is not None and found.newbyteorder("=") != np.dtype(dtype):
            raise FatalError(f"{path}: holds {found.name} ids, expected {np.dtype(dtype).name}")
        if nbytes != start + count * found.itemsize:
            raise FatalError(
                f"{path}: {nbytes} bytes, expected {start + count * found.itemsize} "
                f"({start} of header, {count} ids of {found.itemsize} bytes)",
                hint="the file is cut or still being written; run gpu-curate shards verify",
            )
        if tokens is not None and count != tokens:
            raise FatalError(f"{path}: holds {count} tokens, expected {tokens}")
        if count == 0:
            return np.zeros(0, found)
        try:
            return mapped(fd, nbytes, found, start, count)
        except OSError as e:
            raise FatalError(f"{path}: cannot be mapped ({e.strerror})", "see vm.max_map_count and ulimit -v") from e

    def _describe(self, path: str, fd: int, nbytes: int, dtype: np.dtype | None) -> tuple[np.dtype, int, int]:
        """Little-endian dtype of the ids, how many there should be, byte at which they start."""
        raise NotImplementedError


class LlmC(Format):
    name = "llmc"
    header_bytes = 256 * 4
    kinds = ((20240520, 1, np.dtype("<u2")), (20240801, 7, np.dtype("<u4")))  # magic, version, ids

    def header(self, count: int, dtype: np.dtype) -> bytes:
        if count >= 1 << 31:
            raise FatalError(
                f"an llm.c header counts up to {(1 << 31) - 1} tokens, got {count}: lower tokens_per_shard"
            )
        magic, version, _ = self.kinds[dtype.itemsize == 4]
        return struct.pack("<3i", magic, version, count).ljust(self.header_bytes, b"\0")

    def _describe(self, path: str, fd: int, nbytes: int, dtype: np.dtype | None) -> tuple[np.dtype, int, int]:
        if nbytes < self.header_bytes:
            raise FatalError(f"{path}: {nbytes} bytes, an llm.c shard has a header of {self.header_bytes}")
        magic, version, count = struct.unpack("<3i", os.pread(fd, 12, 0))
        for known_magic, known_version, kind in self.kinds:
            if magic == known_magic:
                if version != known_version:
                    raise FatalError(f"{path}: version {version} of magic {magic}, expected {known_version}")
                if count < 0:
                    raise FatalError(f"{path}: the header counts {count} tokens")
                return kind, count, self.header_bytes
        known = " or ".join(str(magic) for magic, _, _ in self.kinds)
        raise FatalError(
            f"{path}: magic {magic}, expected {known}", hint="not an llm.c shard, or of another byte order"
        )


class NanoGpt(Format):
    name = "nanogpt"

    def _describe(self, path: str, fd: int, nbytes: int, dtype: np.dtype | None) -> tuple[np.dtype, int, int]:
        if dtype is None:
            raise FatalError(f"{path}: a nanoGPT shard does not say its dtype, and no manifest.json does")
        kind = np.dtype(dtype).newbyteorder("<")
        return kind, nbytes // kind.itemsize, 0


class Megatron(Format):
    name = "megatron"
    index_suffix = ".idx"
    magic = b"MMIDIDX\x00\x00"
    codes: ClassVar[dict[int, np.dtype]] = {
        8: np.dtype("<u2"),
        4: np.dtype("<i4"),
    }  # Megatron's numbers for uint16 and int32
    head = struct.Struct("<QBQQ")  # version, dtype code, sequences, documents + 1

    def index(self, tokens: np.ndarray, eot_id: int) -> bytes | None:
        ends = np.flatnonzero(tokens == eot_id) + 1
        if len(tokens) and (len(ends) == 0 or ends[-1] != len(tokens)):
            ends = np.append(ends, len(tokens))  # the document that the end of the shard cuts
        return self.index_of(np.diff(ends, prepend=0), tokens.dtype.itemsize)

    def index_of(self, lens_S: np.ndarray, itemsize: int) -> bytes:
        """The .idx of sequences of the given lengths, one document each.

        Raises: FatalError: a sequence of 2^31 tokens or more, which the format cannot say.
        """
        lens_S = lens_S.astype(np.int64)
        if len(lens_S) and lens_S.max() >= 1 << 31:
            raise FatalError(f"a Megatron sequence has up to {(1 << 31) - 1} tokens, got {lens_S.max()}")
        offsets_S = (np.cumsum(lens_S) - lens_S) * itemsize
        parts = (
            self.magic,
            self.head.pack(1, 8 if itemsize == 2 else 4, len(lens_S), len(lens_S) + 1),
            lens_S.astype("<i4").tobytes(),
            offsets_S.astype("<i8").tobytes(),
            np.arange(len(lens_S) + 1, dtype="<i8").tobytes(),
        )
        return b"".join(parts)

    def _describe(self, path: str, fd: int, nbytes: int, dtype: np.dtype | None) -> tuple[np.dtype, int, int]:
        index = Path(path).with_suffix(".idx")
        try:
            data = index.read_bytes()
        except OSError as e:
            raise FatalError(f"{index}: {e.strerror or e}", hint="a Megatron shard is a .bin and an .idx") from e
        start = len(self.magic) + self.head.size
        if len(data) < start or not data.startswith(self.magic):
            raise FatalError(f"{index}: starts with {data[:9]!r}, expected {self.magic!r}")
        version, code, sequences, documents = self.head.unpack_from(data, len(self.magic))
        if version != 1 or code not in self.codes:
            raise FatalError(f"{index}: version {version}, dtype code {code}; expected version 1, code 8 or 4")
        if len(data) != start + sequences * 12 + documents * 8:
            raise FatalError(
                f"{index}: {len(data)} bytes, expected {start + sequences * 12 + documents * 8} "
                f"({sequences} sequences, {documents} document bounds)"
            )
        count = int(np.frombuffer(data, "<i4", sequences, start).sum(dtype=np.int64))
        kind = self.codes[code] if code == 8 else np.dtype("<u4")  # ids are not negative: the same bytes
        return kind, count, 0


FORMATS: dict[str, Format] = {f.name: f for f in (LlmC(), NanoGpt(), Megatron())}


def open_shard(
    path: str | os.PathLike[str], format: str = "llmc", dtype: np.dtype | None = None, tokens: int | None = None
) -> np.ndarray:
    """Map and check one shard: see `Format.open`."""
    if format not in FORMATS:
        raise FatalError(f"{path}: unknown shard format {format!r}, known are {', '.join(FORMATS)}")
    return FORMATS[format].open(path, dtype, tokens)
