"""Decompressed bytes: gzip members, zstd and lz4 frames back to back, up to what is damaged and on behind it."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from typing import IO, Any, NamedTuple

from gpu_curate.sources.archive.heads import begins, tells
from gpu_curate.sources.compression import library

IN = 32 << 10  # compressed bytes read at once: zlib copies what is left of them at every member
_STEP = 512  # of zstd, whose output has no bound: up to 32 KiB for a byte
OUT = 64 << 10  # decompressed bytes asked for at once
_LONGEST_BLOCK = (4 << 20) + 64  # of an lz4 frame (zstd: 128 KiB); nothing comes out before its end
_MAX_DICTIONARY = 64 << 20
_GZIP, _ZSTD, _LZ4 = b"\x1f\x8b\x08", b"\x28\xb5\x2f\xfd", b"\x04\x22\x4d\x18"
_ZSTD_DICTIONARY = b"\x5d\x2a\x4d\x18"  # skippable frame that holds the dictionary of a .warc.zst


class Damage(NamedTuple):
    """Where the bytes of a file stop being what was written."""

    reason: str
    final: bool  # nothing can be read after it
    passed: int = 0  # bytes of the file that could not be unpacked
    origin: int = -1  # where the damaged member begins


class Part(NamedTuple):
    """Decompressed bytes. `first`: the first of a gzip member or a frame, which begins at byte `origin` of the file."""

    data: bytes
    first: bool
    origin: int


class Member:
    """One gzip member or frame. Feed it once with bytes, then with b"" while `more`."""

    magic: bytes
    step = IN  # bytes to feed at once
    error: type[Exception]  # what damage raises
    _d: Any  # the library's decompressor

    def __init__(self, dictionary: Any = None):
        raise NotImplementedError

    def feed(self, data: bytes) -> bytes:
        raise NotImplementedError

    @property
    def more(self) -> bool:
        """Whether it holds bytes that have not been asked for."""
        raise NotImplementedError

    @property
    def eof(self) -> bool:
        return bool(self._d.eof)

    @property
    def rest(self) -> bytes:
        """What was fed beyond the end; lz4 says None for nothing."""
        return bytes(self._d.unused_data or b"")


class _Gzip(Member):
    magic, error = _GZIP, zlib.error

    def __init__(self, dictionary: Any = None):
        self._d = zlib.decompressobj(31)
        self._failed: zlib.error | None = None

    def feed(self, data: bytes) -> bytes:
        if self._failed is not None:
            raise self._failed
        data = data or self._d.unconsumed_tail
        before = self._d.copy()
        try:
            whole: bytes = self._d.decompress(data, OUT)
            return whole
        except zlib.error as e:
            self._failed = e  # raised when the bytes before it have been asked for
        out, step = [], 4096
        while step and data:  # in ever smaller steps up to the error
            after = before.copy()
            try:
                out.append(after.decompress(data, step))
                before, data = after, after.unconsumed_tail
            except zlib.error:
                step //= 16
        return b"".join(out)

    @property
    def more(self) -> bool:
        return self._failed is not None or (bool(self._d.unconsumed_tail) and not self._d.eof)


class _Lz4(Member):
    magic, error = _LZ4, RuntimeError

    def __init__(self, dictionary: Any = None):
        self._d = library(".lz4").LZ4FrameDecompressor()

    def feed(self, data: bytes) -> bytes:
        out: bytes = self._d.decompress(data, OUT)
        return out

    @property
    def more(self) -> bool:
        return not self._d.needs_input and not self._d.eof


class _Zstd(Member):
    magic, step = _ZSTD, _STEP

    def __init__(self, dictionary: Any = None):
        zstandard = library(".zst")
        self.error = zstandard.ZstdError
        self._d = zstandard.ZstdDecompressor(dict_data=dictionary).decompressobj()

    def feed(self, data: bytes) -> bytes:
        out: bytes = self._d.decompress(data)
        return out

    @property
    def more(self) -> bool:
        return False  # the library has no bound on its output, so it is fed little at a time


def compression(head: bytes) -> type[Member] | None:
    """What a file that begins with `head` is compressed by, told by its bytes and not by its name; None if it is not."""
    if head.startswith(_GZIP):
        return _Gzip
    if head.startswith(_LZ4):
        return _Lz4
    return _Zstd if head.startswith(_ZSTD) or _skippable(head) else None


def parts(raw: IO[bytes], head: bytes) -> Iterator[Part | Damage]:
    """The decompressed bytes of a file of which `head` has been read.

    A member that is cut or corrupt gives a Damage; reading goes on at the next member that begins with a record.
    Memory: about 100 KiB, plus one block of an lz4 frame, or what 512 bytes of zstd may give (16 MiB of zeros).
    """
    kind = compression(head)
    if kind is not None:
        dictionary, size = None, len(head)
        if kind is _Zstd and head.startswith(_ZSTD_DICTIONARY):
            zstandard = library(".zst")
            try:
                dictionary, size, head = _dictionary(raw, head)
                kind(dictionary)
            except zstandard.ZstdError as e:
                yield Damage(f"damaged dictionary at byte 0 of the file: {e}", final=True)
                return
        yield from _members(raw, head, size, kind, dictionary)
        return
    yield from plain(raw, head)


def plain(raw: IO[bytes], data: bytes) -> Iterator[Part]:
    first = True
    while data:
        yield Part(data, first, 0)
        first = False
        data = raw.read(OUT)


def _skippable(data: bytes) -> bool:
    return data[1:4] == b"\x2a\x4d\x18" and 0x50 <= data[0] <= 0x5F


def _dictionary(raw: IO[bytes], head: bytes) -> tuple[Any, int, bytes]:
    """The dictionary in the first frame of a .warc.zst, the bytes read so far, and those of them beyond it."""
    zstandard = library(".zst")
    size = int.from_bytes(head[4:8], "little")
    if size > _MAX_DICTIONARY:
        raise zstandard.ZstdError(f"{size} bytes are too many")
    pieces, have = [head], len(head)
    while have < 8 + size and (more := raw.read(8 + size - have)):
        pieces.append(more)
        have += len(more)
    if have < 8 + size:
        raise zstandard.ZstdError("it is cut")
    head = b"".join(pieces)
    content = head[8 : 8 + size]
    if content.startswith(_ZSTD):  # as a stream: one call would make room for what the frame's header claims
        content = zstandard.ZstdDecompressor().stream_reader(content).read(_MAX_DICTIONARY + 1)
        if len(content) > _MAX_DICTIONARY:
            raise zstandard.ZstdError(f"more than {_MAX_DICTIONARY} bytes are too many")
    return zstandard.ZstdCompressionDict(content), len(head), head[8 + size :]


def _members(
    raw: IO[bytes], data: bytes, at: int, kind: type[Member], dictionary: Any = None
) -> Iterator[Part | Damage]:
    """Members back to back. `at`: how many bytes of `raw` have been read; `data`: the last of them."""
    step = kind.step

    def read() -> bytes:
        nonlocal at
        piece = raw.read(step)
        at += len(piece)
        return piece

    while True:
        data = data.lstrip(b"\0")  # some writers pad with zeros
        while not data:
            piece = read()
            if not piece:
                return
            data = piece.lstrip(b"\0")
        while len(data) < 8 and (piece := read()):
            data += piece
        if kind is _Zstd and _skippable(data):
            skip = 8 + int.from_bytes(data[4:8], "little")
            while len(data) < skip and (piece := read()):
                data, skip = piece, skip - len(data)
            data = data[skip:]
            continue
        start = at - len(data)
        member, first, out = kind(dictionary), True, b""
        head = b""  # of the member: held back until it says whether a record begins here
        try:
            while not member.eof:
                chunk, data = data[:step], data[step:]
                out = member.feed(chunk)
                while out or member.more:
                    head += out
                    if head and (not first or tells(head) or member.eof):
                        yield Part(head, first, start)
                        head, first = b"", False
                    if not member.more:
                        break
                    out = member.feed(b"")
                if not member.eof and not data:
                    data = read()
                    if not data:
                        if head:
                            yield Part(head, first, start)
                        yield Damage("truncated", final=True)
                        return
            if head:
                yield Part(head, first, start)
        except member.error as e:
            if head:
                yield Part(head, first, start)
            data = _resync(chunk[1:] + data, read, kind, dictionary)
            reason = f"damaged compressed data at byte {start} of the file: {e}"
            yield Damage(reason, final=False, passed=at - len(data) - start, origin=start)
            continue
        data = member.rest + data


def _resync(data: bytes, read: Callable[[], bytes], kind: type[Member], dictionary: Any) -> bytes:
    """The compressed bytes from the next member on that begins with a record; b"" if there is none."""
    magic, step = kind.magic, kind.step
    i = 0
    while True:
        i = data.find(magic, i)
        if i < 0:
            data, i = data[1 - len(magic) :], 0
            piece = read()
            if not piece:
                return b""
            data += piece
            continue
        member, head, fed = kind(dictionary), b"", i
        try:
            while not tells(head) and fed - i < _LONGEST_BLOCK and not member.eof:
                while len(data) - fed < step and (piece := read()):
                    data, fed, i = data[i:] + piece, fed - i, 0
                if fed >= len(data):
                    break
                head += member.feed(data[fed : fed + step])
                fed += step
            if begins(head):
                return data[i:]
        except member.error:
            pass
        # so that the time is linear whatever comes after the magic bytes
        i += 1 if fed - i <= IN else (fed - i) // 2
