"""The sizes that the pages of a Parquet column chunk say they have, without unpacking them.

A page is unpacked whole, and a page of a hundred kilobytes may hold a gigabyte: the footer has only the sum of a chunk's.
Format: https://github.com/apache/parquet-format, PageHeader, in Thrift's compact protocol.
"""

from __future__ import annotations

from typing import IO

MAX_PAGE_BYTES = 256 << 20  # unpacked; writers make pages of 1 MiB
HEAD_BYTES = 1 << 10  # read of a page header at first; statistics in it may be long
_LONGEST_HEADER = 1 << 20
_MAX_PAGES = 1 << 20
_STRUCT, _LIST, _SET, _MAP, _BINARY, _DOUBLE = 12, 9, 10, 11, 8, 7


class _Cut(Exception):
    """The header goes on behind what was read."""


class _Header:
    """Fields of a Thrift struct in the compact protocol."""

    def __init__(self, data: bytes):
        self._data, self.at = data, 0

    def _byte(self) -> int:
        if self.at >= len(self._data):
            raise _Cut
        self.at += 1
        return self._data[self.at - 1]

    def _varint(self) -> int:
        value = shift = 0
        while shift < 70:
            byte = self._byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
        raise ValueError("a number without end")

    def _skip(self, kind: int, depth: int = 0) -> None:
        if depth > 16:
            raise ValueError("nested too deeply")
        if kind in (3, 4, 5, 6):  # integers; 1 and 2 are a boolean in the type itself
            self._varint() if kind != 3 else self._byte()
        elif kind == _DOUBLE:
            self.at += 8
        elif kind == _BINARY:
            size = self._varint()
            self.at += size
        elif kind == _STRUCT:
            self.fields(depth + 1)
        elif kind in (_LIST, _SET):
            head = self._byte()
            count = head >> 4 if head >> 4 < 15 else self._varint()
            if count > _LONGEST_HEADER:
                raise ValueError("a list without end")
            for _ in range(count):
                self._skip(head & 15, depth + 1)
        elif kind not in (1, 2):
            raise ValueError(f"a field of type {kind}")

    def fields(self, depth: int = 0) -> dict[int, int]:
        """The integers of a struct by field; the rest is passed over. Raises: _Cut, ValueError."""
        found: dict[int, int] = {}
        field = 0
        while head := self._byte():
            kind, delta = head & 15, head >> 4
            field = field + delta if delta else self._zigzag()
            if kind in (4, 5, 6):
                found[field] = self._zigzag()
            else:
                self._skip(kind, depth)
        return found

    def _zigzag(self) -> int:
        value = self._varint()
        return value >> 1 ^ -(value & 1)


def largest_page(f: IO[bytes], start: int, size: int) -> int:
    """What the largest page of a column chunk, `size` bytes from `start` on, has unpacked, by its header.

    Where a header cannot be read the walk ends: Arrow cannot read it either, and says so.
    """
    largest, at = 0, start
    for _ in range(_MAX_PAGES):
        if at >= start + size:
            break
        wanted = HEAD_BYTES
        while True:
            f.seek(at)
            header = _Header(f.read(wanted))
            try:
                fields = header.fields()
                break
            except _Cut:
                wanted *= 16
                if wanted > _LONGEST_HEADER:
                    return largest
            except ValueError:
                return largest
        unpacked, packed = fields.get(2, 0), fields.get(3, 0)
        if unpacked < 0 or packed < 0:
            return largest
        largest = max(largest, unpacked)
        at += header.at + packed
    return largest
