"""The decompressed bytes of an archive, with their offsets and where members begin."""

from __future__ import annotations

from collections import deque
from typing import IO

from gpu_curate.sources.archive.heads import MAX_LINE, WARC_LINE, arc_header, begins, next_record
from gpu_curate.sources.archive.members import IN, OUT, Damage, compression, parts, plain

KEPT = 8 << 20  # bytes of a record that are held until its length has proved right


class Unpacked:
    """Decompressed bytes with their offsets, up to the next damage."""

    def __init__(self, raw: IO[bytes]):
        head = raw.read(IN)
        self._raw, self._parts = raw, parts(raw, head)
        self.packed = compression(head) is not None
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
                    if begins(part.data):
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
        if self._back + n > self._furthest + OUT or (pieces is None and not self._seekable):
            return False
        self._back += n
        if n <= self._at:
            self._at -= n  # what was taken is still there
        elif pieces is not None:
            self._buffer, self._at = b"".join([*pieces, self._buffer[self._at :]]), 0
        else:
            self._raw.seek(offset)
            self._parts = plain(self._raw, self._raw.read(OUT))
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
        if not arc and WARC_LINE.match(self.peek(5000)):
            return True
        if arc is False:
            return False
        n = line_end(self)
        line = self.peek(n + 5)
        header = arc_header(line[:n], line[n:])
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
                passed = passed if size <= KEPT else None
            else:
                self.take(n)

        while True:
            at = next_record(self._buffer, self._at, arc)
            room = self.room()
            stop = at - self._at if at >= 0 else room
            if min(stop, room) <= self.available():
                skip(min(stop, room))
                return True, None if passed is None else b"".join(passed)
            skip(max(0, self.available() - 2 * MAX_LINE))  # a header line may lie across the edge
            have = self.available()
            if not self.fill(2 * MAX_LINE) and self.available() == have:
                skip(have)
                return False, None if passed is None else b"".join(passed)


def line_end(data: Unpacked) -> int:
    """Length of the line at hand with its LF; of what there is, at most 32 KiB, if it has none."""
    n = 512
    while True:
        chunk = data.peek(n)
        i = chunk.find(b"\n")
        if i >= 0 or len(chunk) < n or n >= MAX_LINE:
            return i + 1 or len(chunk)
        n *= 4
