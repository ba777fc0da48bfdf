"""JSON values one after the other in a stream: the elements of arrays, objects over several lines, objects back to back.

Only brackets and strings are looked at; whether a value is JSON is for the parser to say. So a value that is broken costs
itself, as long as its brackets and quotes are whole. Where they are not, values that begin lines of their own at the same
indentation are told apart by that (one record a line, or pretty-printed); in one long line they are not.
"""

from __future__ import annotations

import json
import re
from collections.abc import Generator, Iterator
from typing import NamedTuple

_HEAD = 200  # bytes that are kept of a value that is too long
_GAP = re.compile(rb"[ \t\r\n,]*")
_BRACKET = re.compile(rb'["\[\]{}]')
_STRING = re.compile(rb'[^"\\\x00-\x1f]*+(?:\\.[^"\\\x00-\x1f]*+)*+')  # up to the quote that ends it
_FLAT = rb'(?:[^"\[\]{}]++|"[^"\\\x00-\x1f]*+(?:\\.[^"\\\x00-\x1f]*+)*+"'
_ONE_DEEP = _FLAT + rb"|[\[{]" + _FLAT + rb")*+[\]}])*+[\]}]"
_SHALLOW = re.compile(
    rb"[\[{]" + _FLAT + rb"|[\[{]" + _ONE_DEEP + rb")*+[\]}]"
)  # at most two brackets within each other
_SCALAR_END = re.compile(rb'[",\[\]{\n]')
_MAX_INDENT = 1024


class Value(NamedTuple):
    """One value, whole; with a problem, its beginning."""

    offset: int | None  # None: its text was put into UTF-8, so it has no place in the file
    data: bytes
    problem: str | None = None
    lines: int = 1  # more: so many blank ones


class _Lost(Exception):
    """A bracket or quote is missing: where the value at hand ends has to be told by lines."""


class _Input:
    """A buffer over chunks, and the bytes of the value at hand, of which not many more than `limit` are held."""

    def __init__(self, chunks: Iterator[bytes], limit: int):
        self.chunks, self.limit = chunks, limit
        self.data, self.at, self.base = b"", 0, 0  # base: offset of data[0]
        self._pieces: list[bytes] = []  # of the value at hand, from earlier chunks
        self._piece_bytes = 0
        self._start: int | None = None  # where it begins or goes on in `data`
        self.start = 0  # its offset
        self.dropped = False  # it is longer than the limit, and only its beginning is held
        self.separator: bytes | None = None  # what begins the lines of further values, line end before it
        self.alone = False  # the value begins such a line itself

    def begin(self, separator: bytes | None, alone: bool) -> None:
        self._pieces, self._piece_bytes, self._start, self.dropped = [], 0, self.at, False
        self.start, self.separator, self.alone = self.base + self.at, separator, alone

    def end(self) -> None:
        self._start = None

    @property
    def size(self) -> int:
        """Bytes of the value up to here."""
        return self._piece_bytes + (0 if self._start is None else self.at - self._start)

    def held(self) -> bytes:
        """The value up to here; its first bytes if it was dropped."""
        return b"".join([*self._pieces, b"" if self._start is None else self.data[self._start : self.at]])

    def holds_lines(self) -> bool:
        """True if the value up to here holds a line that may begin another one."""
        return self.separator is not None and self.separator in self.held()

    def value(self) -> Value:
        """The value that ends here."""
        if self.dropped or self.size > self.limit:
            return Value(self.start, self.held()[:_HEAD], too_long(self.limit))
        return Value(self.start, self.held().strip())

    def more(self) -> bool:
        """The next chunk, behind what is not yet looked at; False at the end. Raises: _Lost."""
        if self._start is not None and self.size > self.limit and not self.dropped and self.holds_lines():
            raise _Lost
        chunk = next(self.chunks, b"")
        if not chunk:
            return False
        if self._start is not None:
            if self.size > self.limit:
                self._piece_bytes, self._pieces, self.dropped = self.size, [self.held()[:_HEAD]], True
            else:
                self._piece_bytes = self.size
                self._pieces.append(self.data[self._start : self.at])
            self._start = 0
        self.base += self.at
        self.data, self.at = self.data[self.at :] + chunk, 0
        return True


def too_long(limit: int) -> str:
    return f"longer than max_line_bytes ({limit})"


def values(chunks: Iterator[bytes], limit: int) -> Iterator[Value]:
    """The values of a stream, those of its arrays one by one.

    A value of more than `limit` bytes comes with a problem and its first bytes. An array that does not end is a last
    value with a problem. Memory: one value of at most `limit` bytes, and a chunk. Time: linear.
    """
    source = _Input(chunks, limit)
    in_array = opened = False
    gap = b"\n"  # white space before the value: how far its line is indented
    while True:
        match = _GAP.match(source.data, source.at)
        assert match is not None
        gap = (gap + match[0])[-_MAX_INDENT:]
        source.at = match.end()
        if source.at == len(source.data):
            if source.more():
                continue
            if in_array:
                yield Value(source.base + source.at, b"", "this is a JSON array that does not end: cut short")
            return
        char = source.data[source.at : source.at + 1]
        if char == (b"]" if in_array else b"["):
            in_array = not in_array
            source.at += 1
            gap, opened = b"", in_array
            continue
        if char in b"{[":
            _, newline, indent = gap.rpartition(b"\n")
            alone = bool(newline) and not indent.strip(b" \t")
            first = opened and not indent  # [{...},
            source.begin((newline or b"\n") + indent + char if alone or first else None, alone)
            if (yield from _bracketed(source, in_array)):
                return
        else:
            source.begin(None, False)
            _scalar(source, in_array)
            yield source.value()
        source.end()
        gap, opened = b"", False


def _scalar(source: _Input, in_array: bool) -> None:
    """Move behind a string, a number, or what is neither."""
    in_string = source.data[source.at : source.at + 1] == b'"'
    source.at += 1
    while True:
        while in_string:
            char = _string(source)
            if not char:
                return
            in_string = char != b'"'
        match = _SCALAR_END.search(source.data, source.at)
        if match is None:
            source.at = len(source.data)
            if not source.more():
                return
            continue
        source.at = match.start()
        in_string = match[0] == b'"'
        if not in_string and not (match[0] == b"\n" and in_array) and not (match[0] == b"]" and not in_array):
            return
        source.at += 1


def _string(source: _Input) -> bytes:
    """Move behind the quote that ends a string, or a character that no string has (a line end, a tab); b"" at the end."""
    while True:
        match = _STRING.match(source.data, source.at)
        assert match is not None
        source.at = match.end()
        char = source.data[source.at : source.at + 1]
        if not char or (char == b"\\" and source.at + 1 == len(source.data)):
            if source.more():
                continue
            source.at = len(source.data)
            return b""
        source.at += 1
        return char


def _bracketed(source: _Input, in_array: bool) -> Generator[Value, None, bool]:
    """Yield the object or array at hand. True: what follows was yielded too, or there is nothing."""
    try:
        shallow = _SHALLOW.match(source.data, source.at)
        if shallow is not None:
            source.at = shallow.end()
        ended = shallow is not None or _walk(source)
        if not source.dropped and source.holds_lines() and not (ended and _is_json(source.held())):
            raise _Lost
    except _Lost:
        yield from _by_lines(source, in_array)
        return True
    if not ended:
        what = "array that ends inside a record" if in_array else "object that does not end"
        yield Value(source.start, source.held()[:_HEAD], f"this is a JSON {what}: cut short, or a bracket is missing")
        return True
    yield source.value()
    return False


def _is_json(data: bytes) -> bool:
    try:
        json.loads(data)
    except (ValueError, RecursionError):
        return False
    return True


def _walk(source: _Input) -> bool:
    """Move behind the object or array at hand; False if it does not end. Raises: _Lost."""
    source.at += 1
    depth = 1
    while depth:
        match = _BRACKET.search(source.data, source.at)
        if match is None:
            source.at = len(source.data)
            if not source.more():
                return False
            continue
        source.at = match.end()
        if match[0] == b'"':
            while (char := _string(source)) != b'"':
                if not char:
                    return False
                if source.alone:
                    raise _Lost
        else:
            depth += 1 if match[0] in b"{[" else -1
    return True


def _by_lines(source: _Input, in_array: bool) -> Iterator[Value]:
    """The value at hand and all that follow, each from a line that begins as this one's to before the next such line."""
    separator, limit = source.separator, source.limit
    assert separator is not None
    offset, pending = source.start, source.held()
    skipped = source.size - len(pending)  # bytes of the pending value that are not held
    chunk = source.data[source.at :]
    while True:
        first, *others = (pending + chunk).split(separator)
        blocks = [first, *(separator[1:] + other for other in others)]
        for block in blocks[:-1]:
            yield _block(offset, block, skipped, limit, False)
            offset, skipped = offset + len(block) + skipped + 1, 0
        pending = blocks[-1]
        if len(pending) > max(limit, 2 * _HEAD + len(separator)):
            shorter = pending[:_HEAD] + b"\0" + pending[-len(separator) :]
            skipped += len(pending) - len(shorter)
            pending = shorter
        chunk = next(source.chunks, b"")
        if not chunk:
            yield _block(offset, pending, skipped, limit, in_array)
            return


def _block(offset: int, data: bytes, skipped: int, limit: int, closes: bool) -> Value:
    if len(data) + skipped > limit:
        return Value(offset, data[:_HEAD], too_long(limit))
    data = data.strip(b" \t\r\n,")
    if closes and data.endswith(b"]"):
        data = data[:-1].rstrip(b" \t\r\n,")
    return Value(offset, data)
