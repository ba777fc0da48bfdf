"""Hostile text made visible: what a terminal or a page would obey, or would not show, is written out.

Documents, file names and whatever others wrote into files hold escape sequences that repaint a terminal, bidirectional
overrides that reverse what follows them, and line ends that forge a line. One table for terminal and report. Needs the
standard library alone.
"""

from __future__ import annotations

import json
import re
from typing import Any

# Controls (C0 but tab and line feed, DEL, C1), what changes the direction of text around it, line separators, surrogates,
# noncharacters; the tag characters and the byte order mark, which nobody sees.
ODD = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff\ufff9-\ufffb\ud800-\udfff"
    "\ufdd0-\ufdef\U000e0000-\U000e007f"
    + "".join(chr(plane << 16 | low) for plane in range(17) for low in (0xFFFE, 0xFFFF))
    + "]"
)
_LINE = re.compile(ODD.pattern[:-1] + "\t\n]")


def shown(match: re.Match[str]) -> str:
    """What stands for one such character: a control's Unicode picture, else ⟨U+202E⟩."""
    code = ord(match.group())
    if code < 0x20:
        return chr(0x2400 + code)
    return "␡" if code == 0x7F else f"⟨U+{code:04X}⟩"


def visible(text: object) -> str:
    """Text of several lines: tabs and line feeds stay."""
    return ODD.sub(shown, str(text))


def one(text: object) -> str:
    """A name, or what stands in one line: tabs and line feeds are shown, too."""
    return _LINE.sub(shown, str(text))


def say(text: object = "", **options: Any) -> None:
    """`print`, of text that may hold anybody's."""
    print(visible(text), **options)


def say_json(value: Any) -> None:
    """Print JSON for programs; what a terminal would obey is escaped as JSON does it."""
    text = json.dumps(value, indent=1, ensure_ascii=False)
    print(ODD.sub(lambda match: json.dumps(match.group())[1:-1], text))
