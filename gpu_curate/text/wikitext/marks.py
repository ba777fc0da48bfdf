"""Characters that stand for something while a page is worked on, and what a scan finds."""

from __future__ import annotations

import re
from typing import NamedTuple

KNOWN = "\x0e"  # stands where a template was dropped that never carries prose
UNKNOWN = "\x7f"  # stands where any other was; followed by its number in _DIGITS. None of them is valid in a page
_DIGITS = "\x10\x11\x12\x13\x14\x15\x16\x17\x18\x19\x1a\x1b\x1c\x1d\x1e\x1f"
MARKS = KNOWN + UNKNOWN + _DIGITS
TABLE, TABLE_END = "\x02", "\x03"  # lines that hold them frame a table whose cells are kept
BAR = "\x04"  # a bar that separates the arguments of a template
HEADINGS = "\x00\x01\x05\x06\x07\x08"  # what a heading's line begins with, by its level
GONE = "\x0b"  # on the line of a mark that is done
CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


class Cut(NamedTuple):
    start: int
    end: int
    new: str | Template  # what stands there instead


class Template(NamedTuple):
    start: int  # of the text between the braces
    end: int
    braces: int  # 2: a template, 3: a parameter
    cuts: list[Cut]  # inside it


BEFORE_TAG = frozenset("\n(（[「“«")
HEX_MARKS = str.maketrans("0123456789abcdef", _DIGITS)
NO_KEY = re.compile(r"[\[\]<>{}\n]\s*\S")  # what cannot stand in the name of an argument: then "=" belongs to the text


BLANK = " \t\xa0" + MARKS


# ----------------------------------------------------------------------------------------------------- gaps, sections

MARK_RUN = re.compile(f"[{MARKS}]++")
UNKNOWN_MARK = re.compile(f"{UNKNOWN}([{_DIGITS}]++)")
FROM_MARKS = str.maketrans(_DIGITS, "0123456789abcdef")


NEWLINES = re.compile("\n\n\n+")
