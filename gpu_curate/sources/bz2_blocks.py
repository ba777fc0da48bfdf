"""Blocks of a bz2 file: where each begins, so that a large dump is read in parallel."""

from __future__ import annotations

import bz2
from collections.abc import Iterator
from typing import IO, NamedTuple

from gpu_curate.sources.compression import damage

CHUNK = 1 << 20


class Chunk(NamedTuple):
    origin: int  # where it lies: byte offset of the bz2 block, or of the text itself
    data: bytes
    problem: str = ""  # why there is no data
    room: int = 0  # bytes the bz2 block takes in the file


def rows_per_byte(size: int) -> int:
    """Rows per byte of a .bz2 file of `size` bytes: a power of two, such that all rows are under 2^36."""
    from gpu_curate.document import ROW_BITS  # loads pyarrow, and a recipe's reading imports this module

    return 1 << max(ROW_BITS - size.bit_length(), 0)


def text_of(f: IO[bytes], start: int, stop: int | None) -> Iterator[Chunk]:
    """The text of a file that stands at byte `start`, cut at `stop` so that a chunk lies on one side of it."""
    while True:
        count = CHUNK if stop is None or start >= stop else min(CHUNK, stop - start)
        try:
            data = f.read(count)
        except damage() as e:
            cut = "truncated at offset" if isinstance(e, EOFError) else f"damaged ({e}) after offset"
            yield Chunk(start, b"", f"{cut} {start}")
            return
        if not data:
            return
        yield Chunk(start, data)
        start += len(data)


_MAX_BLOCK_BYTES = 4 << 20  # 900 kB that do not compress take less; further no end of a block is looked for
_BLOCK, _FOOTER = 0x314159265359, 0x177245385090  # 48 bits each: digits of pi and of its root


def _patterns() -> Iterator[tuple[bytes, int, int, int, bool]]:
    """Whole bytes in the middle of each mark at each bit shift, the shift, and the bits before and after them."""
    for magic, is_footer in ((_BLOCK, False), (_FOOTER, True)):
        for shift in range(8):
            middle = (magic >> shift) & ((1 << 40) - 1)
            yield middle.to_bytes(5, "big"), shift, magic >> (40 + shift), magic & ((1 << shift) - 1), is_footer


_PATTERNS = tuple(_patterns())


def bz2_blocks(f: IO[bytes], start: int) -> Iterator[Chunk]:
    """The blocks of a bzip2 file that stands at byte `start`, from there to its end, decompressed one by one.

    A block belongs to the byte that holds its first bit.

    A block that does not decompress (its checksum included) is a chunk with a problem; so is one that the end of the
    file cuts. Streams back to back, empty streams and garbage between them are passed over.
    Memory: one decompressed block (900 kB, at most 46 MB of one repeated character) and 4 MiB.
    """
    marks = _Marks(f, start)
    mark = next(marks, None)
    while mark is not None:
        at, is_footer = mark
        mark = next(marks, None)
        if is_footer:
            continue
        origin = at >> 3
        if mark is None:
            yield Chunk(origin, b"", f"truncated at offset {marks.end}")
            return
        data = _decompress(marks.bits(at, mark[0]))
        if data is None and not mark[1]:
            # The bits of a mark can turn up inside a block by chance (once in some 10^14): then it ends at the next one
            beyond = next(marks, None)
            if beyond is not None:
                data = _decompress(marks.bits(at, beyond[0]))
                if data is None:
                    marks.push(beyond)
                else:
                    mark = beyond
        if data is None:
            yield Chunk(origin, b"", f"corrupt bz2 block at byte {origin}")
        else:
            yield Chunk(origin, data, room=(mark[0] >> 3) - origin)
        if mark is not None:
            marks.forget(mark[0])


def _decompress(bits: tuple[int, int]) -> bytes | None:
    """A block (its bits as a number, and how many) as a stream of its own; None if it is damaged."""
    value, count = bits
    if count < 80:
        return None
    checksum = (value >> (count - 80)) & 0xFFFFFFFF  # of a stream of one block it is the stream's too
    value = ((value << 48 | _FOOTER) << 32) | checksum
    padding = -(count + 80) % 8
    try:
        stream = bz2.BZ2Decompressor()
        data = stream.decompress(b"BZh9" + (value << padding).to_bytes((count + 80 + padding) // 8, "big"))
    except (OSError, EOFError):
        return None
    return data if stream.eof else None


class _Marks:
    """Iterates over (bit position, is it a stream's footer) of the marks in a bzip2 file, and keeps the bytes between."""

    def __init__(self, f: IO[bytes], start: int):
        self._f = f
        self._base = start  # of the buffer, in bytes
        self._buffer = bytearray()
        self._scanned = start  # marks that begin before are known
        self._found: list[tuple[int, bool]] = []  # in descending order
        self._eof = False

    @property
    def end(self) -> int:
        return self._base + len(self._buffer)

    def __iter__(self) -> _Marks:
        return self

    def __next__(self) -> tuple[int, bool]:
        while not self._found:
            if self._eof:
                raise StopIteration
            self._read()
        return self._found.pop()

    def push(self, mark: tuple[int, bool]) -> None:
        self._found.append(mark)

    def bits(self, start: int, stop: int) -> tuple[int, int]:
        """The bits start..stop - 1 as a number, and how many they are; none if they are forgotten."""
        if start >> 3 < self._base:
            return 0, 0
        first, last = (start >> 3) - self._base, ((stop + 7) >> 3) - self._base
        value = int.from_bytes(self._buffer[first:last], "big") >> (-stop % 8)
        return value & ((1 << (stop - start)) - 1), stop - start

    def forget(self, bit: int) -> None:
        """Bytes before the one that holds `bit` are not needed any more."""
        count = (bit >> 3) - self._base
        del self._buffer[:count]
        self._base += count

    def _read(self) -> None:
        data = self._f.read(CHUNK)
        self._eof = not data
        self._buffer += data
        # a mark spans up to 7 bytes; one that begins in the last 6 is found with the next chunk
        until = self.end if self._eof else self.end - 6
        buffer, base = self._buffer, self._base
        found = []
        for middle, shift, before, after, is_footer in _PATTERNS:
            at = buffer.find(middle, self._scanned - base)
            while at >= 0:
                first = at - 1
                if first >= 0 and self._scanned <= base + first < until:
                    mask = (1 << (8 - shift)) - 1
                    rest = buffer[at + 5] >> (8 - shift) if shift and at + 5 < len(buffer) else 0
                    if buffer[first] & mask == before and rest == after:
                        found.append(((base + first) * 8 + shift, is_footer))
                at = buffer.find(middle, at + 1)
        if not found and len(buffer) > _MAX_BLOCK_BYTES:  # no bzip2 data
            self.forget(until * 8)
        found.sort(reverse=True)
        self._found = found
        self._scanned = max(until, self._scanned)
