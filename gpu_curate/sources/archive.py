"""Records of WARC and ARC files, as a stream that survives damage.

fastwarc 2.0 and warcio 1.8 were tried: the first ends at a bad record header or an ARC file and takes a cut file for a
whole one, the second reads neither .lz4 nor .zst and stops at a gzip file of one member or a wrong length. The formats
are small, and what a curator needs (every record counted, the byte where a file was cut, the records after a damaged
one) is decided in the framing, so the framing is here. Decompression is the libraries'.

Formats: https://iipc.github.io/warc-specifications (WARC 1.0, 1.1, zstd), Internet Archive's ARC 1 and 2.
"""

from __future__ import annotations

import base64
import hashlib
import re
import zlib
from collections import deque
from collections.abc import Iterator
from typing import IO, Any, NamedTuple

_IN = 32 << 10  # compressed bytes read at once: zlib copies what is left of them at every member
_STEP = 512  # of zstd, whose output has no bound: up to 32 KiB for a byte
_OUT = 64 << 10  # decompressed bytes asked for at once
_LONGEST_BLOCK = (4 << 20) + 64  # of an lz4 frame (zstd: 128 KiB); nothing comes out before its end
_MAX_DICTIONARY = 64 << 20
_MAX_HEADER = 1 << 20
_MAX_LINE = 32 << 10  # of a record's first line: an ARC header has a whole URL in it
_KEPT = 8 << 20  # bytes of a record that are held until its length has proved right
_MAX_LENGTH = 1 << 40  # of a record; a greater one is a wrong one
_GZIP, _ZSTD, _LZ4 = b"\x1f\x8b\x08", b"\x28\xb5\x2f\xfd", b"\x04\x22\x4d\x18"
_ZSTD_DICTIONARY = b"\x5d\x2a\x4d\x18"  # skippable frame that holds the dictionary of a .warc.zst

# A record's first line, as it is read where one is due and as it is looked for: any version, any case. In the midst of
# a line (that of a record that was cut) only a line as the standard has it counts, with a header line behind it.
_WARC_LINE = re.compile(rb"[ \t]*[Ww][Aa][Rr][Cc]/\d[^\n]{0,4096}\n")
_NEXT_WARC = re.compile(
    rb"[Ww](?:(?<=\n.)[Aa][Rr][Cc]/\d[^\n]{0,4096}\n|(?<=W)ARC/\d\.\d{1,2}\r?\n(?=[A-Za-z][A-Za-z-]*:))", re.S
)
# a damaged first line before a header that can only be a record's
_WARC_FIELDS = re.compile(rb"[^\n]{0,100}\n(?i:WARC-(?:Type|Date|Record-ID|Target-URI)[ \t]*:)")
_WARC_FIELD = re.compile(rb"WARC-[A-Z][A-Za-z-]{1,30}[ \t]*:")
_LENGTH_LINE = re.compile(rb"^content-length[ \t]*:[ \t]*\d+[ \t]*\r?$", re.I | re.M)
_HEADER_END = re.compile(rb"\n[ \t\r\f\v]*\n")
# what a block cannot hold in front: the rest of a record of which the header is damaged
_FOREIGN_WARC = re.compile(rb"\r?\n(?=WARC-(?:Type|Date|Record-ID|Target-URI):)")
_FOREIGN_ARC = re.compile(rb"\n(?=HTTP/\d\.\d \d{3}[ \r\n])")

# An ARC header line may be odd in every field. What tells it from a line of text: each of these counts once, and an
# HTTP status line behind it (or the line with the version of ARC) twice.
_ARC_HINT = re.compile(rb"\n(?=[A-Za-z][A-Za-z0-9+.-]{0,30}:|[^\n]{0,8192}?[ \t]\d{14}[ \t])")
_ARC_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:|www\.")
_ARC_IP = re.compile(r"\d{1,3}(?:\.\d{1,3}){3}|(?=.*::|(?:[^:]*:){3})[0-9A-Fa-f:.]{2,45}")
_ARC_DATE = re.compile(r"(?:19|20)\d{6}(?:\d{4}(?:\d{2}(?:\d{3})?)?)?")
_LENGTH = re.compile(r"\+?(\d{1,18})")
_ARC_NEXT = re.compile(rb"(?i:HTTP/)|[12] \d ")
_ENOUGH = 3  # points of evidence, of 6
_VERSION_1, _VERSION_2 = 5, 10  # fields


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
        self._failed: zlib.error | None = None

    def feed(self, data: bytes) -> bytes:
        if self._failed is not None:
            raise self._failed
        data = data or self._d.unconsumed_tail
        before = self._d.copy()
        try:
            return self._d.decompress(data, _OUT)
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
                    if head and (not first or _tells(head) or member.eof):
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
            while not _tells(head) and fed - i < _LONGEST_BLOCK and not member.eof:
                while len(data) - fed < step and (piece := read()):
                    data, fed, i = data[i:] + piece, fed - i, 0
                if fed >= len(data):
                    break
                head += member.feed(data[fed : fed + step])
                fed += step
            if _begins(head):
                return data[i:]
        except member.error:
            pass
        # so that the time is linear whatever comes after the magic bytes
        i += 1 if fed - i <= _IN else (fed - i) // 2


# ----------------------------------------------------------------------------------------------- where a record begins


class _ArcHeader(NamedTuple):
    """An ARC header line as WARC fields."""

    fields: dict[str, str]
    length: int | None
    sure: bool  # enough of it is what it should be; else it is one only because one is due


def _arc_header(line: bytes, after: bytes) -> _ArcHeader | None:
    """An ARC header line, odd as it may be; None if it is none.

    Version 1: URL, IP, date, type, length. Version 2 puts result, checksum, location, offset and file name before length.
    A URL or type may have spaces, any field may be empty, missing or nonsense.

    Args:
        after: the first bytes behind the line.
    """
    words = re.split("[ \t]", _decoded(line).strip())
    n = len(words)
    number = _LENGTH.fullmatch(words[-1])
    # the date, told by its digits; else by its place
    dates = [k for k in range(1, n) if _ARC_DATE.fullmatch(words[k]) and (k < n - 1 or number is None)]
    places = (n - _VERSION_1 + 2, n - _VERSION_2 + 2)
    date = next(
        (k for k in reversed(dates) if len(words[k]) == 14),
        next((k for k in places if k in dates), None),
    )
    address = next((k for k in range(1, n) if _ARC_IP.fullmatch(words[k])), None)
    if address is not None and address + 1 in dates:
        date = address + 1
    found = (_ARC_URL.match(words[0]), address, date, number)
    evidence = sum(f is not None for f in found) + 2 * (_ARC_NEXT.match(after) is not None)
    sure = evidence >= _ENOUGH and n >= 3
    if not sure and (n < _VERSION_1 or not evidence):
        return None
    if date is None:
        by_name = n >= _VERSION_2 and ".arc" in words[-2]
        place = places[by_name] if n >= _VERSION_1 else (address + 1 if address else 1)
    else:
        place = date
    url = words[:place]
    if len(url) > 1 and "/" not in url[-1]:
        url.pop()  # the address, or what stands for it
    while len(url) > 1 and (not url[-1] or _ARC_IP.fullmatch(url[-1])):
        url.pop()
    target = " ".join(url)
    when = words[date] if date is not None else ""
    fields = {
        "warc-type": "warcinfo" if target.startswith("filedesc:") else "response",
        "warc-target-uri": target,
        "arc-content-type": words[place + 1] if place + 1 < n - 1 else "",
    }
    if when:
        d = when[:14].ljust(14, "0")
        iso = f"{d[:4]}-{d[4:6]}-{d[6:8]}T{d[8:10]}:{d[10:12]}:{d[12:14]}Z"
        fields["warc-date"] = iso if "01" <= d[4:6] <= "12" and "01" <= d[6:8] <= "31" and d[8:10] < "24" else when
    return _ArcHeader(fields, int(number[1]) if number else None, sure)


def _decoded(line: bytes) -> str:
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError:
        return line.decode("latin-1")


def _tells(head: bytes) -> bool:
    """True if the first bytes of a member are enough to see whether a record begins with them."""
    return 0 <= head.find(b"\n") < len(head) - 40 or len(head) >= _MAX_LINE


def _begins(head: bytes) -> bool:
    """True if a record begins here for sure."""
    if _WARC_LINE.match(head) or _WARC_FIELDS.match(head):
        return True
    end = head.find(b"\n", 0, _MAX_LINE) + 1
    arc = _arc_header(head[:end], head[end : end + 5]) if end else None
    return arc is not None and arc.sure


def _next_record(buffer: bytes, at: int, arc: bool | None) -> int:
    """Where the next record of a WARC file, an ARC file or (None) either begins behind `at`; -1 if nowhere."""
    found = -1
    if arc is not True and (warc := _NEXT_WARC.search(buffer, at)):
        found = warc.start()
    if arc is not False:
        for hint in _ARC_HINT.finditer(buffer, at, found if found >= 0 else len(buffer)):
            start = hint.end()
            end = buffer.find(b"\n", start, start + _MAX_LINE) + 1
            if end and (header := _arc_header(buffer[start:end], buffer[end : end + 5])) and header.sure:
                return start
    return found


# ------------------------------------------------------------------------------------------------------------ bytes


class _Bytes:
    """Decompressed bytes with their offsets, up to the next damage."""

    def __init__(self, raw: IO[bytes]):
        head = raw.read(_IN)
        self._raw, self._parts = raw, _parts(raw, head)
        self.packed = _compression(head) is not None
        self._seekable = not self.packed and raw.seekable()
        self.end = raw.seek(0, 2) if self._seekable else None  # the offset at which these bytes end, if it is known
        if self._seekable:
            raw.seek(len(head))
        self._buffer = b""
        self._at = 0  # in the buffer
        self.offset = 0  # in the decompressed file
        self._furthest = self.end or 0
        self._back = 0  # bytes gone back so far
        self.damage: Damage | None = None
        self.ended = False
        self.starts: deque[int] = deque()  # offsets of members that begin with a record: no record reaches across one
        self._origins: deque[tuple[int, int]] | None = deque() if self.packed else None

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
                if part.first and self._origins is not None:
                    if _begins(part.data):
                        self.starts.append(self.offset + have)
                    self._origins.append((self.offset + have, part.origin))
                pieces.append(part.data)
                have += len(part.data)
        self._buffer, self._at = b"".join(pieces), 0
        return have >= wanted

    def pass_damage(self) -> int:
        """Go on behind the damage, at a member's start; what was left before it is dropped.

        Returns: bytes of the file that could not be unpacked.
        """
        self.take(len(self._buffer) - self._at)
        damage, self.damage = self.damage, None
        self.ended = self.ended or (damage is not None and damage.final)
        if not self._seekable:
            self.end = None
        return damage.passed if damage else 0

    def back(self, offset: int, pieces: list[bytes] | None) -> bool:
        """Go back to an offset, over `pieces` if they are all that was taken since, else by reading a plain file again.

        Returns: False if that cannot be, or was done too often to end in linear time.
        """
        n = self.offset - offset
        self._furthest = max(self._furthest, self.offset)
        if self._back + n > self._furthest + _OUT or (pieces is None and not self._seekable):
            return False
        self._back += n
        if pieces is not None:
            self._buffer, self._at = b"".join([*pieces, self._buffer[self._at :]]), 0
        else:
            self._raw.seek(offset)
            self._parts = _plain(self._raw, self._raw.read(_OUT))
            self._buffer, self._at, self.ended = b"", 0, False
        self.offset = offset
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

    def ends_damaged(self) -> bool:
        """True if nothing follows in this member but its damage."""
        if self.peek(8).strip() or self.damage is None or not self._origins:
            return False
        return self.damage.origin == self._origins[-1][1]

    def damage_reason(self) -> str:
        assert self.damage is not None
        return f"truncated at {self.place()}" if self.damage.reason == "truncated" else self.damage.reason

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

    def piece(self, n: int) -> bytes:
        """Up to n bytes that are at hand; b"" at the end, at damage, and where another record's member begins."""
        if not self.available() and not self.fill():
            return b""
        return self.take(min(n, self.room(), self.available()))

    def begins(self, arc: bool | None) -> bool:
        """True if a record begins here for sure."""
        if self.room() == 0:
            return True
        if not arc and _WARC_LINE.match(self.peek(5000)):
            return True
        if arc is False:
            return False
        n = _line_end(self)
        line = self.peek(n + 5)
        header = _arc_header(line[:n], line[n:])
        return header is not None and header.sure

    def find(self, arc: bool | None) -> tuple[bool, bytes | None]:
        """Skip to where the next record of a WARC file, an ARC file or (None) either begins; else to the end or damage.

        Returns: whether one begins there, and what was passed over; None for more than 8 MiB.
        """
        passed: list[bytes] | None = []
        size = 0

        def skip(n: int) -> None:
            nonlocal passed, size
            size += n
            if passed is not None:
                passed.append(self.take(n))
                passed = passed if size <= _KEPT else None
            else:
                self.take(n)

        while True:
            at = _next_record(self._buffer, self._at, arc)
            room = self.room()
            stop = at - self._at if at >= 0 else room
            if min(stop, room) <= self.available():
                skip(min(stop, room))
                return True, None if passed is None else b"".join(passed)
            skip(max(0, self.available() - 2 * _MAX_LINE))  # a header line may lie across the edge
            have = self.available()
            if not self.fill(2 * _MAX_LINE) and self.available() == have:
                skip(have)
                return False, None if passed is None else b"".join(passed)


# ---------------------------------------------------------------------------------------------------------- records


class Broken(NamedTuple):
    """Bytes that are no record, or a record that is not whole or not as long as its header says.

    Attributes:
        passed: how many bytes are lost with it: of the decompressed file, or of the file as it is if they could not be
            decompressed. 0 if none is, or if they are missing.
        block: of a record whose length is missing or wrong: all bytes up to where the next record begins, if that is known.
    """

    offset: int  # in the decompressed file
    reason: str
    head: bytes
    origin: int  # as of a record
    passed: int = 0
    block: bytes | None = None


class ArchiveRecord:
    """A record whose header has been read. `read` what is wanted of its block, then `finish`.

    Attributes:
        offset: its first byte in the decompressed file.
        origin: byte of the file where the gzip member or frame begins that its first byte is in; of a plain file, that byte.
            It never decreases from one record or Broken to the next, and does not depend on what was read of them.
        length: as the header says; 0 if it says none, or nothing that is one. Then nothing can be read before `finish`.
    """

    def __init__(
        self, data: _Bytes, offset: int, origin: int, head: bytes, fields: dict[str, str], length: int | None, arc: bool
    ):
        self._data, self._start, self._arc = data, data.offset, arc
        self.offset, self.origin, self.head, self.fields, self.length = offset, origin, head, fields, length or 0
        self.bad_lines: list[bytes] = []  # of the header, without a colon
        self._known = length is not None
        # it cannot be: not worth reading to the end of the file
        self._beyond = self.length > _MAX_LENGTH or (data.end is not None and data.offset + self.length > data.end)
        self._left = 0 if self._beyond else self.length
        self._kept: list[bytes] | None = []  # the block so far, until its length has proved right

    def _piece(self, n: int) -> bytes:
        piece = self._data.piece(min(n, self._left))
        self._left -= len(piece)
        if self._kept is not None:
            self._kept.append(piece)
            if self.length - self._left > _KEPT:
                self._kept = None
        return piece

    def read(self, n: int) -> bytes:
        """The next bytes of the block, at most n; fewer at its end and where the file is cut; none if it is beyond the file."""
        pieces = []
        while n > 0 and self._left and (piece := self._piece(n)):
            n -= len(piece)
            pieces.append(piece)
        return b"".join(pieces)

    def finish(self) -> Broken | None:
        """Skip what was not read. Returns: what is wrong with the record, if anything."""
        data = self._data
        while self._left and self._piece(_KEPT):
            pass
        whole = self._known and not self._beyond and not self._left
        if whole and self._ends():
            if not data.ends_damaged() or self._proved():
                return None
            # nobody knows which of its member's bytes are wrong
            return self._broken(data.damage_reason(), data.pass_damage())
        # Where does the next record begin? It may be in what this one claims.
        if self._left and not data.available():
            data.end = data.offset  # so that no other record is read up to there
        again = data.back(self._start, self._kept)
        found, block = (True, b"") if again and data.begins(self._arc) else data.find(self._arc)
        if not found and data.damage is not None and not (whole and self._proved()):
            reason = data.damage_reason()
            passed = data.pass_damage()
            return self._broken(reason, passed or data.offset - self.offset)
        if not self._known:
            reason = "bad record header: no valid Content-Length"
        elif whole:
            reason = "Content-Length is wrong: no record header follows the block"
        elif not found and not data.packed:  # the last member of a packed file is whole: it is the length that is wrong
            return self._broken(f"truncated at {data.place()}", data.offset - self.offset)
        else:
            reason = f"Content-Length is wrong: it goes beyond the {'file' if self._beyond else 'record'}"
        if block is None or not again:
            return self._broken(reason, data.offset - self.offset)
        return self._broken(reason, data.offset - self.offset, self._own(block, self.length if whole else 0))

    def _ends(self) -> bool:
        """True if what comes next may follow a record."""
        return self._data.peek(1) in (b"", b"\r", b"\n") or self._data.begins(self._arc)

    def _proved(self) -> bool:
        """True if the digest in the header is that of the block."""
        return self._kept is not None and self._digest(b"".join(self._kept)) is True

    def _digest(self, block: bytes) -> bool | None:
        """True if the header has the digest of this block, False if it has another one."""
        name, _, value = self.fields.get("warc-block-digest", "").partition(":")
        name = name.strip().lower().replace("-", "")
        if name not in ("md5", "sha1", "sha256", "sha512"):
            return None
        own = hashlib.new(name, block, usedforsecurity=False).digest()
        return value.strip().upper().rstrip("=") in (base64.b32encode(own).decode().rstrip("="), own.hex().upper())

    def _own(self, block: bytes, certain: int) -> bytes:
        """What of `block`, which goes up to the next header found, is this record's: not the rest of one that was not found."""
        if certain and self._digest(block[:certain]):
            return block[:certain]
        foreign = (_FOREIGN_ARC if self._arc else _FOREIGN_WARC).search(block, certain)
        if foreign:
            return block[: certain or foreign.start()]
        for end in (b"\n",) if self._arc else (b"\r\n\r\n", b"\n\n"):
            if block.endswith(end):
                return block[: -len(end)]
        return block

    def _broken(self, reason: str, passed: int, block: bytes | None = None) -> Broken:
        return Broken(self.offset, reason, self.head[:200], self.origin, passed, block)


def records(raw: IO[bytes]) -> Iterator[ArchiveRecord | Broken]:
    """Every record of a WARC or ARC file in order, and every place where there is none.

    A record must be finished before the next is asked for. Ends for every input, in time linear in its decompressed size.
    An empty file has no records; a file without any gives one Broken. An ARC file need not begin with `filedesc:`.
    """
    data = _Bytes(raw)
    arc: bool | None = None  # known from the first record on
    while True:
        _skip_blank(data)
        line = data.peek(_line_end(data))
        offset, origin = data.offset, data.origin()
        if not line:
            if data.damage is None:
                return
            reason = data.damage_reason()
            yield Broken(offset, reason, b"", origin, data.pass_damage())
            continue
        head, cut = data.peek(max(200, len(line) + 40)), False
        reason = "no record header where one is due"
        if arc is not True and (_WARC_LINE.match(line) or _WARC_FIELDS.match(head)):
            header = _header(data)
            if header is not None:
                arc = False
                if not _LENGTH_LINE.search(header) or _WARC_FIELD.match(data.peek(40)):
                    header += _more_header(data)
                yield _warc_record(data, offset, origin, header, head)
                continue
            cut, reason = True, "bad record header: no blank line ends it"
            data.take(len(line))
        elif arc is not False:
            found = _arc_header(line, head[len(line) :]) if line.endswith(b"\n") else None
            if found is not None and (arc or found.sure):
                arc = True
                data.take(len(line))
                own = line if found.length is not None else head
                yield ArchiveRecord(data, offset, origin, own, found.fields, found.length, arc)
                continue
        if not cut:
            data.take(1)  # `find` may stop where it begins
        is_record = (cut and data.begins(arc)) or data.find(arc)[0]
        if not is_record and (cut or (data.damage is not None and data.damage.final)):
            reason = f"truncated at {data.place()}"
        elif not is_record and offset == 0 and arc is None:
            reason = "not a WARC or ARC file"
        passed = 0 if is_record or data.damage is None else data.pass_damage()
        yield Broken(offset, reason, head[:200], origin, passed or data.offset - offset)


def _skip_blank(data: _Bytes) -> None:
    while chunk := data.peek(64):
        blank = len(chunk) - len(chunk.lstrip(b"\r\n"))
        data.take(blank)
        if blank < len(chunk):
            return


def _line_end(data: _Bytes) -> int:
    """Length of the line at hand with its LF; of what there is, at most 32 KiB, if it has none."""
    n = 512
    while True:
        chunk = data.peek(n)
        i = chunk.find(b"\n")
        if i >= 0 or len(chunk) < n or n >= _MAX_LINE:
            return i + 1 or len(chunk)
        n *= 4


def _header(data: _Bytes) -> bytes | None:
    """Takes the header block with its blank line; None (and takes nothing) if it does not end before another begins."""
    n = 2048
    while True:
        chunk = data.peek(n)
        end = _HEADER_END.search(chunk)
        if _NEXT_WARC.search(chunk, chunk.find(b"\n") + 1, end.start() if end else len(chunk)):
            return None
        if end:
            return data.take(end.end())
        if len(chunk) < n or n >= _MAX_HEADER:
            return None
        n *= 4


def _more_header(data: _Bytes) -> bytes:
    """Takes the rest of a header in which something looked like the blank line at its end."""
    chunk = data.peek(4096)
    end = _HEADER_END.search(chunk)
    if end is None:
        return b""
    first = chunk.partition(b"\n")[0]
    has_length = b":" in first and b"HTTP/" not in first and _LENGTH_LINE.search(chunk, 0, end.start() + 1)
    return data.take(end.end()) if has_length or _WARC_FIELD.match(chunk) else b""


def _warc_record(data: _Bytes, offset: int, origin: int, header: bytes, head: bytes) -> ArchiveRecord:
    fields: dict[str, str] = {}
    first, *lines = header.split(b"\n")
    bad = [] if _WARC_LINE.match(first + b"\n") else [first]
    name = ""
    for line in lines:
        text = _decoded(line.rstrip(b"\r"))
        if not text.strip():
            continue
        if text[0] in " \t" and name:
            fields[name] = f"{fields[name]} {text.strip()}".strip()
        elif ":" in text:
            name, _, value = text.partition(":")
            name = name.strip().lower()
            fields.setdefault(name, value.strip())
        else:
            bad.append(line)
    number = _LENGTH.fullmatch(fields.get("content-length", ""))
    record = ArchiveRecord(
        data, offset, origin, header if number else head, fields, int(number[1]) if number else None, False
    )
    record.bad_lines = bad
    return record
