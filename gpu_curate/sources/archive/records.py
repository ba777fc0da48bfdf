"""The records of an archive, one after the other, whatever is wrong with them."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator
from typing import IO, NamedTuple

from gpu_curate.sources.archive.heads import LENGTH, NEXT_WARC, WARC_FIELDS, WARC_LINE, arc_header, decoded
from gpu_curate.sources.archive.unpacked import KEPT, Unpacked, line_end

_MAX_HEADER = 1 << 20
_MAX_LENGTH = 1 << 40  # of a record; a greater one is a wrong one
_WARC_FIELD = re.compile(rb"WARC-[A-Z][A-Za-z-]{1,30}[ \t]*:")
_LENGTH_LINE = re.compile(rb"^content-length[ \t]*:[ \t]*\d+[ \t]*\r?$", re.I | re.M)
_HEADER_END = re.compile(rb"\n[ \t\r\f\v]*\n")
# what a block cannot hold in front: the rest of a record of which the header is damaged
_FOREIGN_WARC = re.compile(rb"\r?\n(?=WARC-(?:Type|Date|Record-ID|Target-URI):)")
_FOREIGN_ARC = re.compile(rb"\n(?=HTTP/\d\.\d \d{3}[ \r\n])")


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
        self,
        data: Unpacked,
        offset: int,
        origin: int,
        head: bytes,
        fields: dict[str, str],
        length: int | None,
        arc: bool,
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
            if self.length - self._left > KEPT:
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
        while self._left and self._piece(KEPT):
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
    data = Unpacked(raw)
    arc: bool | None = None  # known from the first record on
    while True:
        _skip_blank(data)
        line = data.peek(line_end(data))
        offset, origin = data.offset, data.origin()
        if not line:
            if data.damage is None:
                return
            reason = data.damage_reason()
            yield Broken(offset, reason, b"", origin, data.pass_damage())
            continue
        head, cut = data.peek(max(200, len(line) + 40)), False
        reason = "no record header where one is due"
        if arc is not True and (WARC_LINE.match(line) or WARC_FIELDS.match(head)):
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
            found = arc_header(line, head[len(line) :]) if line.endswith(b"\n") else None
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


def _skip_blank(data: Unpacked) -> None:
    while chunk := data.peek(64):
        blank = len(chunk) - len(chunk.lstrip(b"\r\n"))
        data.take(blank)
        if blank < len(chunk):
            return


def _header(data: Unpacked) -> bytes | None:
    """Takes the header block with its blank line; None (and takes nothing) if it does not end before another begins."""
    n = 2048
    while True:
        chunk = data.peek(n)
        end = _HEADER_END.search(chunk)
        if NEXT_WARC.search(chunk, chunk.find(b"\n") + 1, end.start() if end else len(chunk)):
            return None
        if end:
            return data.take(end.end())
        if len(chunk) < n or n >= _MAX_HEADER:
            return None
        n *= 4


def _more_header(data: Unpacked) -> bytes:
    """Takes the rest of a header in which something looked like the blank line at its end."""
    chunk = data.peek(4096)
    end = _HEADER_END.search(chunk)
    if end is None:
        return b""
    first = chunk.partition(b"\n")[0]
    has_length = b":" in first and b"HTTP/" not in first and _LENGTH_LINE.search(chunk, 0, end.start() + 1)
    return data.take(end.end()) if has_length or _WARC_FIELD.match(chunk) else b""


def _warc_record(data: Unpacked, offset: int, origin: int, header: bytes, head: bytes) -> ArchiveRecord:
    fields: dict[str, str] = {}
    first, *lines = header.split(b"\n")
    bad = [] if WARC_LINE.match(first + b"\n") else [first]
    name = ""
    for line in lines:
        text = decoded(line.rstrip(b"\r"))
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
    number = LENGTH.fullmatch(fields.get("content-length", ""))
    record = ArchiveRecord(
        data, offset, origin, header if number else head, fields, int(number[1]) if number else None, False
    )
    record.bad_lines = bad
    return record
