"""What a finding is, and how it is shown without telling it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

# Starts and ends in a bracket: a placeholder never becomes part of what another scan could find.
PLACEHOLDERS = {"email": "<EMAIL>", "iban": "<IBAN>", "card": "<CARD>", "ip": "<IP>", "phone": "<PHONE>"}


class Span(NamedTuple):
    """Where something was found: start..stop - 1 of the text given, characters of a string, bytes of UTF-8."""

    kind: str
    start: int
    stop: int


class Scrubbed(NamedTuple):
    """What `PiiScanner.scrub_all` made of some texts."""

    texts: list[bytes]  # UTF-8; the same object where nothing was replaced
    spans: dict[int, list[Span]]  # findings by the index of their text, in bytes of the text given; most have none


class Found(NamedTuple):
    """What `PiiScanner.scrub_column` found in some texts; most have nothing."""

    texts: dict[int, bytes]  # number → UTF-8 of a text in which something was replaced
    spans: dict[int, list[Span]]  # number → findings, in bytes of the text given


def in_characters(raw: bytes, spans: list[Span]) -> list[Span]:
    """Spans of bytes as spans of characters."""
    found = []
    last = chars = 0
    for kind, start, stop in spans:
        start_char = chars + len(raw[last:start].decode("utf-8", "surrogatepass"))
        chars = start_char + len(raw[start:stop].decode("utf-8", "surrogatepass"))
        found.append(Span(kind, start_char, chars))
        last = stop
    return found


def mask(buffer: bytearray, spans: list[tuple[int, int]]) -> None:
    """Overwrite the spans with what a placeholder starts with."""
    for start, stop in spans:
        buffer[start:stop] = b"<" * (stop - start)


def shape(found: str) -> str:
    """A finding without what it says, for reports: letters become x, digits 0."""
    return "".join("0" if c.isdecimal() else "x" if c.isalpha() else c for c in found)


Candidates = list[list[int]]  # kind, start, stop


def is_within(pattern: re.Pattern[bytes], raw: bytearray, candidates: Candidates) -> Iterator[re.Match[bytes]]:
    """Matches inside the candidates, which may start one byte earlier and look two bytes further."""
    for _, start, stop in candidates:
        yield from pattern.finditer(raw, start - 1, stop + 2)
