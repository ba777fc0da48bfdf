"""Where a record begins: the first lines of WARC records, odd as they may be, and ARC header lines."""

from __future__ import annotations

import re
from typing import NamedTuple

MAX_LINE = 32 << 10  # of a record's first line: an ARC header has a whole URL in it

# A record's first line, as it is read where one is due and as it is looked for: any version, any case. In the midst of
# a line (that of a record that was cut) only a line as the standard has it counts, with a header line behind it.
WARC_LINE = re.compile(rb"[ \t]*[Ww][Aa][Rr][Cc]/\d[^\n]{0,4096}\n")
NEXT_WARC = re.compile(
    rb"[Ww](?:(?<=\n.)[Aa][Rr][Cc]/\d[^\n]{0,4096}\n|(?<=W)ARC/\d\.\d{1,2}\r?\n(?=[A-Za-z][A-Za-z-]*:))", re.S
)
# a damaged first line before a header that can only be a record's
WARC_FIELDS = re.compile(rb"[^\n]{0,100}\n(?i:WARC-(?:Type|Date|Record-ID|Target-URI)[ \t]*:)")

# An ARC header line may be odd in every field. What tells it from a line of text: each of these counts once, and an
# HTTP status line behind it (or the line with the version of ARC) twice.
_ARC_HINT = re.compile(rb"\n(?=[A-Za-z][A-Za-z0-9+.-]{0,30}:|[^\n]{0,8192}?[ \t]\d{14}[ \t])")
_ARC_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:|www\.")
_ARC_IP = re.compile(r"\d{1,3}(?:\.\d{1,3}){3}|(?=.*::|(?:[^:]*:){3})[0-9A-Fa-f:.]{2,45}")
_ARC_DATE = re.compile(r"(?:19|20)\d{6}(?:\d{4}(?:\d{2}(?:\d{3})?)?)?")
LENGTH = re.compile(r"\+?(\d{1,18})")
_ARC_NEXT = re.compile(rb"(?i:HTTP/)|[12] \d ")
# a date, or an address: without an HTTP status line behind it no line is sure that has neither
_ARC_SIGN = re.compile(rb"(?:19|20)\d{6}|\d\.\d{1,3}\.\d|:[0-9A-Fa-f.]*:|\n(?=(?i:HTTP/)|[12] \d )")
_SIGN_BYTES = 8  # of a sign in the line behind, and more
_ENOUGH = 3  # points of evidence, of 6
_VERSION_1, _VERSION_2 = 5, 10  # fields


class ArcHeader(NamedTuple):
    """An ARC header line as WARC fields."""

    fields: dict[str, str]
    length: int | None
    sure: bool  # enough of it is what it should be; else it is one only because one is due


def arc_header(line: bytes, after: bytes) -> ArcHeader | None:
    """An ARC header line, odd as it may be; None if it is none.

    Version 1: URL, IP, date, type, length. Version 2 puts result, checksum, location, offset and file name before length.
    A URL or type may have spaces, any field may be empty, missing or nonsense.

    Args:
        after: the first bytes behind the line.
    """
    words = re.split("[ \t]", decoded(line).strip())
    n = len(words)
    number = LENGTH.fullmatch(words[-1])
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
    return ArcHeader(fields, int(number[1]) if number else None, sure)


def decoded(line: bytes) -> str:
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError:
        return line.decode("latin-1")


def tells(head: bytes) -> bool:
    """True if the first bytes of a member are enough to see whether a record begins with them."""
    return 0 <= head.find(b"\n") < len(head) - 40 or len(head) >= MAX_LINE


def begins(head: bytes) -> bool:
    """True if a record begins here for sure."""
    if WARC_LINE.match(head) or WARC_FIELDS.match(head):
        return True
    end = head.find(b"\n", 0, MAX_LINE) + 1
    arc = arc_header(head[:end], head[end : end + 5]) if end else None
    return arc is not None and arc.sure


def next_record(buffer: bytes, at: int, arc: bool | None) -> int:
    """Where the next record of a WARC file, an ARC file or (None) either begins behind `at`; -1 if nowhere."""
    found = -1
    if arc is not True and (warc := NEXT_WARC.search(buffer, at)):
        found = warc.start()
    return found if arc is False else _next_arc(buffer, at, found)


def _next_arc(buffer: bytes, at: int, found: int) -> int:
    """The first ARC header line that begins behind `at` and before `found` (-1: anywhere), else `found`.

    Most lines of a file that is no archive have nothing in them that tells one. So what tells one is looked for, not lines.
    """
    stop = found if found >= 0 else len(buffer)
    last = buffer.find(b"\n", stop)  # the end of the last line that may be one; what follows it may tell, too
    last = len(buffer) if last < 0 else last + _SIGN_BYTES
    first = place = at
    while sign := _ARC_SIGN.search(buffer, place, last):
        line = buffer.rfind(b"\n", first, sign.start())
        if line >= stop:
            break
        if line >= 0 and _ARC_HINT.match(buffer, line, stop):
            start = line + 1
            end = buffer.find(b"\n", start, start + MAX_LINE) + 1
            if end and (header := arc_header(buffer[start:end], buffer[end : end + 5])) and header.sure:
                return start
        first = buffer.find(b"\n", sign.start())  # every line is looked at once
        if first < 0:
            break
        place = first + 1
    return found
