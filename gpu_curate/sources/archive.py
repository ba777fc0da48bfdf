"""Records of WARC and ARC files, as a stream that survives damage.

fastwarc 2.0 and warcio 1.8 were tried: the first ends at a bad record header or an ARC file and takes a cut file for a
whole one, the second reads neither .lz4 nor .zst and stops at a gzip file of one member or a wrong length. The formats
are small, and what a curator needs (every record counted, the byte where a file was cut, the records after a damaged
one) is decided in the framing, so the framing is here. Decompression is the libraries'.

Formats: https://iipc.github.io/warc-specifications (WARC 1.0, 1.1, zstd), Internet Archive's ARC 1 and 2.
"""

from __future__ import annotations

import re
import zlib
from collections import deque
from collections.abc import Iterator
from typing import IO, Any, NamedTuple

_IN = 32 << 10  # compressed bytes read at once: zlib copies what is left of them at every member
_STEP = 512  # of zstd, whose output has no bound: up to 32 KiB for a byte
_OUT = 64 << 10  # decompressed bytes asked for at once
_LONGEST_BLOCK = (4 << 20) + 64  # of an lz4 frame (zstd: 128 KiB); nothing comes out before its end
_MAX_HEADER = 1 << 20
_RECORD_LINE = 16  # bytes that tell whether a WARC record begins
_GZIP, _ZSTD, _LZ4 = b"\x1f\x8b\x08", b"\x28\xb5\x2f\xfd", b"\x04\x22\x4d\x18"
_ZSTD_DICTIONARY = b"\x5d\x2a\x4d\x18"  # skippable frame that holds the dictionary of a .warc.zst
_WARC_LINE = re.compile(rb"WARC/\d\.\d{1,2}[ \t]*\r?\n")
_NEXT_WARC = re.compile(rb"\n(WARC/\d\.\d{1,2}[ \t]*\r?\n)")
_ARC_LINE = re.compile(rb"[a-z]+://[^\n ]{1,8192} ")
_NEXT_ARC = re.compile(rb"\n([a-z]+://[^\n ]{1,8192} [0-9A-Fa-f.:]{3,45} \d{14} [^\n]{1,1024}\n)")


class Damage(NamedTuple):
    """Where the bytes of a file stop being what was written."""

    reason: str
    final: bool  # nothing can be read after it


class Part(NamedTuple):
    """Decompressed bytes. `first`: the first of a gzip member or a frame, which begins at byte `origin` of the file."""

    data: bytes
    first: bool
    origin: int


# ---------------------------------------------------------------------------------------------------- decompression


class _Member:
    """One gzip member or frame. Feed it once with bytes, then with b"" while `more`."""

    magic: bytes
    step = _IN  # bytes to feed at once
    error: type[Exception]  # what damage raises
    _d: Any  # the library's decompressor

    @property
    def eof(self) -> bool:
        return self._d.eof

    @property
    def rest(self) -> bytes:
        """What was fed beyond the end; lz4 says None for nothing."""
        return self._d.unused_data or b""


class _Gzip(_Member):
    magic, error = _GZIP, zlib.error

    def __init__(self, dictionary: Any = None):
        self._d = zlib.decompressobj(31)

    def feed(self, data: bytes) -> bytes:
        return self._d.decompress(data or self._d.unconsumed_tail, _OUT)

    @property
    def more(self) -> bool:
        return bool(self._d.unconsumed_tail) and not self._d.eof


class _Lz4(_Member):
    magic, error = _LZ4, RuntimeError

    def __init__(self, dictionary: Any = None):
        import lz4.frame

        self._d = lz4.frame.LZ4FrameDecompressor()

    def feed(self, data: bytes) -> bytes:
        return self._d.decompress(data, _OUT)

    @property
    def more(self) -> bool:
        return not self._d.needs_input and not self._d.eof


class _Zstd(_Member):
    magic, step = _ZSTD, _STEP
    more = False  # the library has no bound on its output, so it is fed little at a time

    def __init__(self, dictionary: Any = None):
        import zstandard

        self.error = zstandard.ZstdError
        self._d = zstandard.ZstdDecompressor(dict_data=dictionary).decompressobj()

    def feed(self, data: bytes) -> bytes:
        return self._d.decompress(data)


def _compression(head: bytes) -> type[_Member] | None:
    """What a file that begins with `head` is compressed by, told by its bytes and not by its name; None if it is not."""
    if head.startswith(_GZIP):
        return _Gzip
    if head.startswith(_LZ4):
        return _Lz4
    return _Zstd if head.startswith(_ZSTD) or _skippable(head) else None


def _parts(raw: IO[bytes], head: bytes) -> Iterator[Part | Damage]:
    """The decompressed bytes of a file of which `head` has been read.

    A member that is cut or corrupt gives a Damage; reading goes on at the next member that begins with a record.
    Memory: about 100 KiB, plus one block of an lz4 frame, or what 512 bytes of zstd may give (16 MiB of zeros).
    """
    kind = _compression(head)
    if kind is not None:
        dictionary, size = None, len(head)
        if kind is _Zstd and head.startswith(_ZSTD_DICTIONARY):
            import zstandard

            try:
                dictionary, size, head = _dictionary(raw, head)
                kind(dictionary)
            except zstandard.ZstdError as e:
                yield Damage(f"damaged dictionary at byte 0 of the file: {e}", final=True)
                return
        yield from _members(raw, head, size, kind, dictionary)
        return
    yield from _plain(raw, head)


def _plain(raw: IO[bytes], data: bytes) -> Iterator[Part]:
    first = True
    while data:
        yield Part(data, first, 0)
        first = False
        data = raw.read(_OUT)


def _skippable(data: bytes) -> bool:
    return data[1:4] == b"\x2a\x4d\x18" and 0x50 <= data[0] <= 0x5F


def _dictionary(raw: IO[bytes], head: bytes) -> tuple[Any, int, bytes]:
    """The dictionary in the first frame of a .warc.zst, the bytes read so far, and those of them beyond it."""
    import zstandard

    size = int.from_bytes(head[4:8], "little")
    while len(head) < 8 + size and (more := raw.read(8 + size - len(head))):
        head += more
    content = head[8 : 8 + size]
    if content.startswith(_ZSTD):
        content = zstandard.ZstdDecompressor().decompress(content, max_output_size=64 << 20)
    return zstandard.ZstdCompressionDict(content), len(head), head[8 + size :]


def _members(
    raw: IO[bytes], data: bytes, at: int, kind: type[_Member], dictionary: Any = None
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
                    if head and (not first or len(head) >= _RECORD_LINE or member.eof):
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
            yield Damage(f"damaged compressed data at byte {start} of the file: {e}", final=False)
            data = _resync(chunk[1:] + data, read, kind, dictionary)
            continue
        data = member.rest + data


def _resync(data: bytes, read: Any, kind: type[_Member], dictionary: Any) -> bytes:
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
            while len(head) < _RECORD_LINE and fed - i < _LONGEST_BLOCK and not member.eof:
                while len(data) - fed < step and (piece := read()):
                    data, fed, i = data[i:] + piece, fed - i, 0
                if fed >= len(data):
                    break
                head += member.feed(data[fed : fed + step])
                fed += step
            if _WARC_LINE.match(head) or _ARC_LINE.match(head):
                return data[i:]
        except member.error:
            pass
        # so that the time is linear whatever comes after the magic bytes
        i += 1 if fed - i <= _IN else (fed - i) // 2


# ------------------------------------------------------------------------------------------------------------ bytes


class _Bytes:
    """Decompressed bytes with their offsets, up to the next damage."""

    def __init__(self, raw: IO[bytes]):
        head = raw.read(_IN)
        self._raw, self._parts = raw, _parts(raw, head)
        # a plain file can be read again from where a record's length proves wrong, within reason
        plain = _compression(head) is None and raw.seekable()
        self.size = raw.seek(0, 2) if plain else None
        self._rewindable = self.size or 0
        if plain:
            raw.seek(len(head))
        self._buffer = b""
        self._at = 0  # in the buffer
        self.offset = 0  # in the decompressed file
        self.damage: Damage | None = None
        self.ended = False
        self.starts: deque[int] = deque()  # offsets of members that begin with a record: no record reaches across one
        self._origins: deque[tuple[int, int]] | None = None if _compression(head) is None else deque()

    def fill(self, n: int = 1) -> bool:
        """At least n more bytes into the buffer; False if the file or damage ends before."""
        pieces = [self._buffer[self._at :]]
        have = len(pieces[0])
        wanted = have + n
        while have < wanted and not self.ended and self.damage is None:
            part = next(self._parts, None)
            if part is None:
                self.ended = True
            elif isinstance(part, Damage):
                self.damage = part
            else:
                if part.first and _WARC_LINE.match(part.data):
                    self.starts.append(self.offset + have)
                if part.first and self._origins is not None:
                    self._origins.append((self.offset + have, part.origin))
                pieces.append(part.data)
                have += len(part.data)
        self._buffer, self._at = b"".join(pieces), 0
        return have >= wanted

    def pass_damage(self) -> None:
        """Go on behind the damage, at a member's start; what was left before it is dropped."""
        self.take(len(self._buffer) - self._at)
        self.ended = self.ended or (self.damage is not None and self.damage.final)
        self.damage = None

    def rewind(self, offset: int) -> bool:
        """Go back to an offset of a plain file; False if that cannot be, or was done too often to end in linear time."""
        if self.offset - offset > self._rewindable or self.size is None:
            return False
        self._rewindable -= self.offset - offset
        self._raw.seek(offset)
        self._parts = _plain(self._raw, self._raw.read(_OUT))
        self._buffer, self._at, self.offset, self.ended = b"", 0, offset, False
        self.starts.clear()
        return True

    def origin(self) -> int:
        """The byte of the file at which the member begins that the byte at hand is in; of a plain file, that byte."""
        if self._origins is None:
            return self.offset
        while len(self._origins) > 1 and self._origins[1][0] <= self.offset:
            self._origins.popleft()
        return self._origins[0][1] if self._origins else 0

    def place(self) -> str:
        return f"offset {self.offset}" + ("" if self._origins is None else " of the unpacked file")

    def available(self) -> int:
        return len(self._buffer) - self._at

    def peek(self, n: int) -> bytes:
        if self.available() < n:
            self.fill(n - self.available())
        return self._buffer[self._at : self._at + n]

    def take(self, n: int) -> bytes:
        """n bytes of the buffer."""
        out = self._buffer[self._at : self._at + n]
        self._at += len(out)
        self.offset += len(out)
        return out

    def room(self) -> int:
        """Bytes up to the next member that begins with a record, as far as is known."""
        while self.starts and self.starts[0] < self.offset:
            self.starts.popleft()
        return self.starts[0] - self.offset if self.starts else 1 << 62

    def read(self, n: int, keep: bool = True) -> tuple[bytes, int]:
        """Up to n bytes, fewer at the end, at damage, or where another record's member begins; and their number."""
        out, got = [], 0
        while got < n and (self.available() or self.fill()):
            room = self.room()
            if room == 0:
                break
            piece = self.take(min(n - got, room, self.available()))
            got += len(piece)
            if keep:
                out.append(piece)
            if len(piece) == room:
                break
        return b"".join(out), got

    def find(self, pattern: re.Pattern[bytes]) -> bool:
        """Skip to the next match of group 1 of `pattern` (or to a member that begins with a record); else to the end."""
        while True:
            match = pattern.search(self._buffer, self._at)
            room = self.room()
            if room <= self.available() and (not match or room <= match.start(1) - self._at):
                self.take(room)
                return True
            if match:
                self.take(match.start(1) - self._at)
                return True
            self.take(max(0, self.available() - 10_000))  # a header line may lie across the edge
            if not self.fill():
                self.take(self.available())
                return False


# ---------------------------------------------------------------------------------------------------------- records


class Broken(NamedTuple):
    """Bytes that are no record, or a record that is not whole."""

    offset: int  # in the decompressed file
    reason: str
    head: bytes
    origin: int  # as of a record


class ArchiveRecord:
    """A record whose header has been read. `read` what is wanted of its block, then `finish`.

    Attributes:
        offset: its first byte in the decompressed file.
        origin: byte of the file where the gzip member or frame begins that its first byte is in; of a plain file, that byte.
            It never decreases from one record or Broken to the next, and does not depend on what was read of them.
    """

    def __init__(self, data: _Bytes, offset: int, origin: int, head: bytes, fields: dict[str, str], length: int):
        self._data, self._start, self._left = data, data.offset, length
        self.offset, self.origin, self.head, self.fields, self.length = offset, origin, head, fields, length
        self.bad_lines: list[bytes] = []  # of the header, without a colon
        self._too_long = data.size is not None and data.offset + length > data.size

    def read(self, n: int) -> bytes:
        """The next bytes of the block, at most n; fewer at its end and where the file is cut; none if it is beyond the file."""
        if self._too_long:
            return b""
        out, got = self._data.read(min(n, self._left))
        self._left -= got
        return out

    def finish(self) -> Broken | None:
        """Skip what was not read. Returns: what is wrong with the block, if anything."""
        data = self._data
        if not self._too_long:
            _, got = data.read(self._left, keep=False)
            self._left -= got
        if self._left == 0:
            after = data.peek(5)
            if after[:1] in (b"", b"\r", b"\n") or _WARC_LINE.match(data.peek(16)) or self.is_arc:
                return None
            data.rewind(self._start)  # the next record may lie in the block
            data.find(_NEXT_WARC)
            return self._broken("Content-Length is wrong: no record header follows the block")
        if self._too_long and data.find(_NEXT_WARC):
            return self._broken("Content-Length is wrong: it goes beyond the file")
        if data.available():  # stopped where another record's member begins
            return self._broken("Content-Length is wrong: it goes beyond the record")
        damage = data.damage or Damage("truncated", final=True)
        broken = self._broken(f"truncated at {data.place()}" if damage.final else damage.reason)
        data.pass_damage()
        return broken

    @property
    def is_arc(self) -> bool:
        return "arc-content-type" in self.fields

    def _broken(self, reason: str) -> Broken:
        return Broken(self.offset, reason, self.head[:200], self.origin)


def records(raw: IO[bytes]) -> Iterator[ArchiveRecord | Broken]:
    """Every record of a WARC or ARC file in order, and every place where there is none.

    A record must be finished before the next is asked for. Ends for every input, in time linear in its decompressed size.
    An empty file has no records; a file without any gives one Broken.
    """
    data = _Bytes(raw)
    arc = False
    while True:
        _skip_blank(data)
        line = data.peek(_line_end(data))
        offset, origin = data.offset, data.origin()
        if not line:
            if data.damage is None:
                return
            reason = f"truncated at {data.place()}" if data.damage.final else data.damage.reason
            yield Broken(offset, reason, b"", origin)
            data.pass_damage()
            continue
        arc = arc or (offset == 0 and line.startswith(b"filedesc:"))
        head, cut = data.peek(200), False
        if arc:
            fields = _arc_fields(line)
            if fields is not None:
                data.take(len(line))
                yield ArchiveRecord(data, offset, origin, line, fields, int(fields["content-length"]))
                continue
            reason = "no record header where one is due"
        elif _WARC_LINE.match(line):
            header = _header(data)
            if header is not None and (record := _warc_record(data, offset, origin, header)):
                yield record
                continue
            reason = "bad record header: no valid Content-Length"
            if header is None:
                data.take(len(line))
                cut, reason = True, "bad record header: no blank line ends it"
        else:
            reason = "no record header where one is due"
        if arc:
            data.take(1)  # `find` may stop where it begins
        found = (not arc and _WARC_LINE.match(data.peek(16))) or data.find(_NEXT_ARC if arc else _NEXT_WARC)
        if not found and (cut or (data.damage is not None and data.damage.final)):
            reason = f"truncated at {data.place()}"
        elif not found and offset == 0 and not arc:
            reason = "not a WARC or ARC file"
        if not found and data.damage is not None:
            data.pass_damage()
        yield Broken(offset, reason, head, origin)


def _skip_blank(data: _Bytes) -> None:
    while chunk := data.peek(64):
        blank = len(chunk) - len(chunk.lstrip(b"\r\n"))
        data.take(blank)
        if blank < len(chunk):
            return


def _line_end(data: _Bytes) -> int:
    """Length of the line at hand with its LF; of what there is, at most 16 KiB, if it has none."""
    n = 512
    while True:
        chunk = data.peek(n)
        i = chunk.find(b"\n")
        if i >= 0 or len(chunk) < n or n >= 16 << 10:
            return i + 1 or len(chunk)
        n *= 4


def _header(data: _Bytes) -> bytes | None:
    """Takes the header block with its blank line; None (and takes nothing) if it does not end before another begins."""
    n = 2048
    while True:
        chunk = data.peek(n)
        ends = [(i, len(e)) for e in (b"\r\n\r\n", b"\n\n", b"\n\r\n") if (i := chunk.find(e)) >= 0]
        i, size = min(ends, default=(len(chunk), 0))
        if _NEXT_WARC.search(chunk, 0, i):
            return None
        if ends:
            return data.take(i + size)
        if len(chunk) < n or n >= _MAX_HEADER:
            return None
        n *= 4


def _warc_record(data: _Bytes, offset: int, origin: int, header: bytes) -> ArchiveRecord | None:
    fields: dict[str, str] = {}
    bad = []
    name = ""
    for line in header.split(b"\n")[1:]:
        text = line.rstrip(b"\r").decode("utf-8", "replace")
        if text[:1] in (" ", "\t") and name:
            fields[name] += " " + text.strip()
        elif ":" in text:
            name, _, value = text.partition(":")
            name = name.strip().lower()
            fields.setdefault(name, value.strip())
        elif text.strip():
            bad.append(line)
    length = fields.get("content-length", "")
    if not (length.isascii() and length.isdigit() and len(length) <= 18):
        return None
    record = ArchiveRecord(data, offset, origin, header, fields, int(length))
    record.bad_lines = bad
    return record


def _arc_fields(line: bytes) -> dict[str, str] | None:
    """An ARC header line as WARC fields; None if it is not one.

    Version 1: URL, IP, date, type, length. Version 2 puts result, checksum, location, offset and file name before length.
    """
    words = line.decode("utf-8", "replace").split()
    for back in (3, 8):
        if len(words) >= back + 2 and words[-1].isdigit() and len(words[-1]) <= 18 and ":" in words[0]:
            date = words[-back]
            if date.isdigit() and len(date) in (8, 12, 14):
                d = date.ljust(14, "0")
                url = " ".join(words[: -back - 1])
                return {
                    "warc-type": "warcinfo" if url.startswith("filedesc:") else "response",
                    "warc-target-uri": url,
                    "warc-date": f"{d[:4]}-{d[4:6]}-{d[6:8]}T{d[8:10]}:{d[10:12]}:{d[12:14]}Z",
                    "arc-content-type": words[1 - back],
                    "content-length": words[-1],
                }
    return None
