"""Public IPv4 and IPv6 addresses: the compiled conditions and the patterns."""

from __future__ import annotations

import ipaddress
import re
from bisect import bisect_right
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from gpu_curate.jit import njit
from gpu_curate.text.pii.marks import LEFT, QUAD, RIGHT, V6_START, is_hex, stands_left, stands_right
from gpu_curate.text.pii.phone import word_before
from gpu_curate.text.pii.spans import Candidates, mask


@njit
def may_be_v4(raw: NDArray[np.uint8], start: int, stop: int) -> bool:
    if not (stands_left(raw[start - 1]) and stands_right(raw[stop], raw[stop + 1])):
        return False
    address = part = width = 0
    for i in range(start, stop):
        if raw[i] == 46:
            address = address << 8 | part
            part = width = 0
            continue
        if width and part == 0:
            return False
        part = part * 10 + raw[i] - 48
        width += 1
        if part > 255:
            return False
    address = address << 8 | part
    public = True
    for k in range(len(_RESERVED_V4)):
        public = public and (address < _RESERVED_V4[k, 0] or address > _RESERVED_V4[k, 1])
    return public


@njit
def may_be_v6(raw: NDArray[np.uint8], start: int) -> bool:
    if raw[start - 1] == 58 or not stands_left(raw[start - 1]):
        return False
    if raw[start] == 58 and raw[start - 1] == 62:
        return False
    colons = 0
    gap = False
    i = start
    while i < start + 45 and (is_hex(raw[i]) or raw[i] == 58 or raw[i] == 46):
        if raw[i] == 58:
            colons += 1
            gap = gap or (i > start and raw[i - 1] == 58)
        i += 1
    # without :: seven colons, or six and a quad
    return colons >= 2 and (gap or colons >= 6)


# ----------------------------------------------------------------------------------------------------------------- IP

_V4 = re.compile(LEFT + rb"\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}" + RIGHT)
# What starts with a colon does not follow `>` and what ends in one does not precede `<`: it would only be found once what
# it is glued to has become a placeholder.
_V6 = re.compile(rb"(?<![\w:.\-+%@])(?!(?<=>):)(?=[0-9A-Fa-f]{0,4}:)[0-9A-Fa-f:.]{2,45}+(?![\w@]|[\-%][\w@]|(?<=:)<)")
# Words that a version or section number follows, maybe with others of its kind between ("sections 1.2.3.4 and 1.2.3.5").
_NUMBERED = frozenset(
    rb"version versions ver v release releases build rev revision firmware update patch section sections sec chapter "
    rb"chapters clause clauses article articles paragraph paragraphs para figure figures fig table tables appendix item "
    rb"items step steps rule rules oid \xc2\xa7".split()
)
# Of the quads with no part above 99 most number a section of a text. These do not, nor those after a word of networking.
_RESOLVERS = frozenset((b"8.8.8.8", b"8.8.4.4", b"1.1.1.1", b"1.0.0.1", b"9.9.9.9"))
_CUE = re.compile(
    rb"(?<![\w<>])(?:ips?|ipv4|addr|address|addresses|dns|nameserver|server|hosts?|ping|gateway|router|resolver|subnet|whois|ssh)\b"
)
_HEADING = re.compile(rb"\.?[ \t]+[A-Z\x80-\xff]")
_AND = frozenset((b"and", b"or", b"to"))
# First and last address as integers; documentation ranges are left out on purpose.
_RESERVED = """0.0.0.0/8 10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 169.254.0.0/16 172.16.0.0/12 192.0.0.0/24 192.168.0.0/16
198.18.0.0/15 224.0.0.0/3"""
_NOT_PUBLIC_V4 = [(int(net[0]), int(net[-1])) for net in map(ipaddress.IPv4Network, _RESERVED.split())]
_RESERVED_V4 = np.array(_NOT_PUBLIC_V4)
_V4_STARTS = [low for low, _ in _NOT_PUBLIC_V4]


def find_ips(raw: bytearray, candidates: Candidates) -> Iterator[tuple[int, int]]:
    found = list(_v6(raw, candidates))
    mask(raw, found)  # an IPv6 address may end in an IPv4 one
    for kind, start, _ in candidates:
        match = _V4.match(raw, start) if kind == QUAD else None
        if match and _is_public_v4(match.group()) and not _is_numbering(raw, match):
            found.append(match.span())
    yield from sorted(found)


def _is_public_v4(quad: bytes) -> bool:
    parts = quad.split(b".")
    if any(int(p) > 255 or (len(p) > 1 and p[:1] == b"0") for p in parts):
        return False
    a, b, c, d = map(int, parts)
    address = a << 24 | b << 16 | c << 8 | d
    return _NOT_PUBLIC_V4[bisect_right(_V4_STARTS, address) - 1][1] < address


def _is_numbering(raw: bytearray, match: re.Match[bytes]) -> bool:
    """A version or section number, by what stands before it."""
    start = match.start()
    line = bytes(raw[max(0, start - 96) : start])
    line = line[line.rfind(b"\n") + 1 :]
    if line.endswith(b"/") and line[-2:-1].isalpha():  # Browser/1.2.3.4
        return True
    if word_before(line, b"0123456789.,;:#- \t", _AND) in _NUMBERED:  # also "sections 1.2.3.4 and 1.2.3.5"
        return True
    quad = match.group()
    if any(int(p) > 99 for p in quad.split(b".")):
        return False
    heads_line = not line.strip(b" \t#*>-")
    cue = (
        quad in _RESOLVERS
        or _CUE.search(line.lower(), max(0, len(line) - 48, line.rfind(b"<")))
        or line.endswith(b"://")
    )
    return not cue or (heads_line and bool(_HEADING.match(raw, match.end())))


def _v6(raw: bytearray, candidates: Candidates) -> Iterator[tuple[int, int]]:
    for kind, start, _ in candidates:
        match = _V6.match(raw, start) if kind == V6_START else None
        if match is None:
            continue
        text = match.group().rstrip(b".").decode()
        if text.endswith(":") and not text.endswith("::"):
            text = text[:-1]
        if text.count(":") < 2:
            continue
        try:
            address = ipaddress.IPv6Address(text)
        except ValueError:
            continue
        mapped = address.ipv4_mapped
        if int(address) >> 125 == 1 or (mapped is not None and _is_public_v4(str(mapped).encode())):
            yield match.start(), match.start() + len(text)
