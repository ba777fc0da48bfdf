"""Compressed files as a stream of bounded memory: what they are told by their bytes, frames back to back.

A step gives at most 1 MiB, whatever the file expands to; frames, members and streams that follow each other are one
stream. Formats: RFC 1952 (gzip), RFC 8878 (zstd), the xz, bzip2 and lz4 frame formats.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from typing import IO, Any

from gpu_curate.errors import ConfigError

COMPRESSIONS = (".gz", ".zst", ".bz2", ".xz", ".lz4", ".gzip", ".zstd")
DEFAULT_MAX_WINDOW_BYTES = 128 << 20  # what the zstd command allows without --long
LARGEST_WINDOW_BYTES = 1 << 31  # what the zstd library can do (--long=31)
HEAD = 18  # bytes that tell what a file is compressed by, and of zstd the window: a frame header has at most so many

_IN = 1 << 16
_OUT = 1 << 20
_ZSTD = b"\x28\xb5\x2f\xfd"
_ZSTD_BLOCK = 1 << 17  # the largest block, decompressed
_MAGIC = ((b"\x1f\x8b", ".gz"), (_ZSTD, ".zst"), (b"\xfd7zXZ\0", ".xz"), (b"\x04\x22\x4d\x18", ".lz4"))


class WindowError(OSError):
    """A frame needs more memory to decompress than is allowed."""


def compression(head: bytes) -> str:
    """The suffix of the format that a file which begins with `head` is compressed in; "" if in none."""
    for magic, suffix in _MAGIC:
        if head.startswith(magic):
            return suffix
    if head[:3] == b"BZh" and head[3:4].isdigit() and head[4:10] in (b"1AY&SY", b"\x17rE8P\x90"):
        return ".bz2"
    if head[1:4] == b"\x2a\x4d\x18" and 0x50 <= head[0] <= 0x5F:  # a skippable frame of zstd or lz4
        return ".zst"
    return ""


def named_compression(path: str) -> str:
    """The suffix of the format that a name promises; "" if none."""
    lower = path.lower()
    found = next((c for c in COMPRESSIONS if lower.endswith(c)), "")
    return {".gzip": ".gz", ".zstd": ".zst"}.get(found, found)


def compression_by(head: bytes, name: str) -> str:
    """`compression`, or what the name promises where the first bytes are neither a format's nor text."""
    promised = named_compression(name)
    found = compression(head)
    if found or not promised or not head:
        return found
    magic = next((m for m, suffix in (*_MAGIC, (b"BZh", ".bz2")) if suffix == promised))
    return promised if magic.startswith(head) or head.startswith(magic) or not _is_text(head) else ""


def _is_text(head: bytes) -> bool:
    """True for the beginning of a text in UTF-8, or in UTF-16 with a byte order mark."""
    if head[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return True
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return False
    return not any(b < 9 or 13 < b < 32 for b in head)


def zstd_window(head: bytes) -> int | None:
    """The window in the header of the zstd frame that begins with `head`, in bytes; None if none begins there."""
    if not head.startswith(_ZSTD) or len(head) < 6:
        return None
    descriptor = head[4]
    if not descriptor & 0x20:
        exponent, mantissa = divmod(head[5], 8)
        return (1 << (10 + exponent)) + (1 << (7 + exponent)) * mantissa
    # one segment: the window is the content
    start = 5 + (0, 1, 2, 4)[descriptor & 3]
    width = (1, 2, 4, 8)[descriptor >> 6]
    size = int.from_bytes(head[start : start + width], "little")
    return size + 256 if width == 2 else size


def window_problem(head: bytes, max_window_bytes: int) -> str | None:
    """Why a zstd file that begins with `head` cannot be read within `max_window_bytes`; None if it can."""
    window = zstd_window(head)
    if window is None or window <= max_window_bytes:
        return None
    if window > LARGEST_WINDOW_BYTES:
        return f"zstd with a window of {window} bytes; more than {LARGEST_WINDOW_BYTES} cannot be read"
    return (
        f"zstd with a window of {window} bytes (--long={(window - 1).bit_length()}), "
        f"more than max_window_bytes ({max_window_bytes})"
    )


def decompressed(raw: IO[bytes], name: str, max_window_bytes: int = DEFAULT_MAX_WINDOW_BYTES) -> IO[bytes]:
    """The decompressed bytes of an open file that stands at its start.

    What it is compressed by is told by its first bytes. A file whose name ends in a compression's suffix and whose bytes
    are text is taken as it is; other bytes under such a name are damage.

    Reading raises EOFError (cut short), WindowError or OSError (damaged), after everything before was given.
    """
    head = raw.read(HEAD)
    while 0 < len(head) < HEAD and (more := raw.read(HEAD - len(head))):
        head += more
    suffix = compression_by(head, name)
    if not suffix:
        try:
            raw.seek(0)
            return raw
        except (OSError, ValueError):  # a pipe, a server without ranges
            pass
    source = _Source(raw, head)
    steps = {"": _plain, ".zst": _zstd}.get(suffix, _members)
    return _Stream(steps(source, suffix, max_window_bytes))  # type: ignore[return-value]  # a BufferedReader by what it offers


def damage() -> tuple[type[BaseException], ...]:
    """Errors that reading a damaged file raises."""
    import lzma
    import zlib

    return (EOFError, OSError, RuntimeError, zlib.error, lzma.LZMAError, *_zstd_errors())


def _zstd_errors() -> tuple[type[BaseException], ...]:
    try:
        import zstandard
    except ImportError:
        return ()
    return (zstandard.ZstdError,)


def library(suffix: str) -> Any:
    """The module that reads a format which Python itself does not; None for the others.

    Raises:
        ConfigError: it is not installed.
    """
    try:
        if suffix == ".zst":
            import zstandard

            return zstandard
        if suffix == ".lz4":
            import lz4.frame

            return lz4.frame
    except ImportError as e:
        package = {".zst": "zstandard", ".lz4": "lz4"}[suffix]
        raise ConfigError(
            f"{suffix} data cannot be read: the package {package} is not installed ({e})", f"pip install {package}"
        ) from e
    return None


class _Stream:
    """Pieces as a file that can be read once. What a piece raises comes after all that was given before it."""

    def __init__(self, pieces: Iterator[bytes]):
        self._pieces = pieces
        self._ready, self._at = b"", 0
        self._error: BaseException | None = None  # met while there was something to give first

    def read(self, size: int = -1) -> bytes:
        """`size` bytes; fewer before the end and before damage, which the next call raises; b"" at the end.

        Raises: EOFError: cut short; OSError: damaged.
        """
        if size < 0:
            return b"".join(iter(lambda: self.read(1 << 20), b""))
        taken: list[bytes] = []
        missing = size
        while missing:
            if self._at == len(self._ready):
                try:
                    self._ready, self._at = self._next(), 0
                except (EOFError, OSError) as e:
                    self._error = e
                    if not taken:
                        raise
                    break
                if not self._ready:
                    break
            taken.append(self._ready[self._at : self._at + missing])
            self._at += len(taken[-1])
            missing -= len(taken[-1])
        return b"".join(taken)

    def _next(self) -> bytes:
        if self._error is not None:
            raise self._error
        return next((p for p in self._pieces if p), b"")

    def seekable(self) -> bool:
        return False


class _Source:
    """Compressed bytes, some of which may be given back."""

    def __init__(self, raw: IO[bytes], head: bytes = b""):
        self._raw, self._ready = raw, head

    def some(self) -> bytes:
        """What there is, b"" at the end."""
        data, self._ready = self._ready or self._raw.read(_IN), b""
        return data

    def back(self, data: bytes) -> None:
        self._ready = data + self._ready

    def take(self, count: int) -> bytes:
        """`count` bytes, fewer at the end."""
        while len(self._ready) < count and (more := self._raw.read(max(_IN, count - len(self._ready)))):
            self._ready += more
        data, self._ready = self._ready[:count], self._ready[count:]
        return data

    def all(self, count: int) -> bytes:
        """`count` bytes. Raises: EOFError: there are fewer."""
        data = self.take(count)
        if len(data) < count:
            raise EOFError(_CUT)
        return data


_CUT = "the compressed file is cut short"


def _plain(source: _Source, suffix: str, max_window_bytes: int) -> Iterator[bytes]:
    while data := source.some():
        yield data


def _members(source: _Source, suffix: str, max_window_bytes: int) -> Iterator[bytes]:
    """Members of gzip, streams of xz and bzip2, frames of lz4."""
    while True:
        data = source.some()
        if suffix in (".gz", ".xz"):
            data = data.lstrip(b"\0") if data else data  # padding
        if not data:
            more = source.some()
            if not more:
                return
            source.back(more)
            continue
        member = _member(suffix, max_window_bytes)
        while True:
            try:
                ready = member.decompress(data, _OUT)
            except damage() as e:
                if suffix == ".xz" and "emory usage limit" in str(e):
                    raise WindowError(
                        f"xz with a dictionary that needs more memory than max_window_bytes ({max_window_bytes}) allows"
                    ) from e
                raise OSError(f"damaged {suffix} data: {e}") from e
            if ready:
                yield ready
            if member.eof:
                source.back(member.unused_data or b"")
                break
            data = b""
            if member.needs_input:
                data = source.some()
                if not data:
                    raise EOFError(_CUT)


def _member(suffix: str, max_window_bytes: int) -> Any:
    """An object with decompress(data, max_length), eof, needs_input and unused_data for one member of a format."""
    match suffix:
        case ".gz":
            return _Gzip()
        case ".bz2":
            import bz2

            return bz2.BZ2Decompressor()
        case ".xz":
            import lzma

            return lzma.LZMADecompressor(memlimit=max_window_bytes + (1 << 20))  # the coder's own tables take 64 KiB
        case _:
            return library(".lz4").LZ4FrameDecompressor()


class _Gzip:
    """zlib's object with the face of the others."""

    def __init__(self) -> None:
        import zlib

        self._d = zlib.decompressobj(31)
        self.needs_input = True

    def decompress(self, data: bytes, max_length: int) -> bytes:
        ready = self._d.decompress(self._d.unconsumed_tail + data, max_length)
        self.needs_input = len(ready) < max_length and not self._d.unconsumed_tail
        return ready

    @property
    def eof(self) -> bool:
        return self._d.eof

    @property
    def unused_data(self) -> bytes:
        return self._d.unused_data


def _zstd(source: _Source, suffix: str, max_window_bytes: int) -> Iterator[bytes]:
    """Frames of zstd, block by block.

    The library bounds neither what a call gives nor tells a cut from an end, but a block gives at most 128 KiB and says
    how long it is and whether it is the last of its frame.
    """
    decompressor = library(".zst").ZstdDecompressor(max_window_size=LARGEST_WINDOW_BYTES)
    while head := source.take(HEAD):
        if head[1:4] == b"\x2a\x4d\x18" and 0x50 <= head[0] <= 0x5F:
            source.back(head)
            left = int.from_bytes(source.all(8)[4:], "little")
            while left:
                left -= len(source.all(min(left, _IN)))
            continue
        if not head.startswith(_ZSTD):
            if len(head) < len(_ZSTD) and _ZSTD.startswith(head):
                raise EOFError(_CUT)
            raise OSError("damaged .zst data: no frame begins where one should")
        if problem := window_problem(head, max_window_bytes):
            raise WindowError(problem)
        source.back(head)
        descriptor = head[4] if len(head) > 4 else 0
        single = descriptor >> 5 & 1
        sizes = (1 - single, (0, 1, 2, 4)[descriptor & 3], (single, 2, 4, 8)[descriptor >> 6])
        frame = decompressor.decompressobj()
        start = source.all(5 + sum(sizes))
        last = False
        while not last:
            header = source.all(3)
            value = int.from_bytes(header, "little")
            last, kind, size = bool(value & 1), value >> 1 & 3, value >> 3
            if kind == 3 or size > _ZSTD_BLOCK:
                raise OSError("damaged .zst data: a block of no kind")
            yield _fed(frame, start + header + source.all(1 if kind == 1 else size))
            start = b""
        if descriptor & 4:
            yield _fed(frame, source.all(4))


def _fed(frame: Any, data: bytes) -> bytes:
    try:
        return bytes(frame.decompress(data))
    except _zstd_errors() as e:
        raise OSError(f"damaged .zst data: {e}") from e
