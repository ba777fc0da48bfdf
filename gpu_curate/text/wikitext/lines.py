"""Lines, cells, headings and entities of a page whose markup is gone."""

from __future__ import annotations

import functools
import html
import re

from gpu_curate.text.wikitext.links import unquoted
from gpu_curate.text.wikitext.marks import BLANK, CONTROL, HEADINGS, KNOWN, NEWLINES, TABLE, TABLE_END, UNKNOWN
from gpu_curate.text.wikitext.tables import wiki_words

_SWITCH_CHARS = 64  # the longest behaviour switch of MediaWiki has 43


def _without_switches(text: str, mark: str) -> str:
    """The text without behaviour switches: words of MediaWiki between two `mark`s, __NOTOC__."""
    words = wiki_words()
    pieces: list[str] = []
    done = 0
    start = text.find(mark)
    while start >= 0:
        limit = start + _SWITCH_CHARS
        end = text.find(mark, start + len(mark), limit)
        while end >= 0:
            for stop in (end + len(mark) + 1, end + len(mark)):  # one of MediaWiki's ends in three
                switch = text[start:stop]
                if switch in words.switches or switch.lower() in words.folded_switches:
                    pieces.append(text[done:start])
                    done = stop
                    break
            if done > start:
                break
            end = text.find(mark, end + 1, limit)
        start = text.find(mark, max(done, start + 1))
    pieces.append(text[done:])
    return words.odd_switches.sub("", "".join(pieces))


_PUNCTUATION = re.compile(r"[^\w\n]*+")
_LONE = frozenset(".,;:。，、；：")


def lines_of(text: str) -> str:
    """Marks at line starts removed: headings, lists, rules, what is left of tables."""
    for mark in ("__", "＿＿"):
        if mark in text:
            text = _without_switches(text, mark)
    lines: list[str] = []
    tables = 0
    for line in text.split("\n"):
        if "''" in line:
            line = unquoted(line)
        first = line[:1]
        if tables and first in (" ", "\t") and (indented := line.lstrip(" \t"))[:1] in ("|", "!"):
            line, first = indented, indented[:1]
        if first in _LINE_MARKS and first:
            if first == "=":
                heading = line.strip(BLANK)
                if len(heading) > 2 and heading[-1] == "=":
                    line = heading.strip("=")
                    level = min(len(heading) - len(heading.lstrip("=")), len(heading) - len(heading.rstrip("=")), 6)
                    line = HEADINGS[level - 1] + line.strip(" \t") if line else heading
            elif first in "*#:;":
                line = line.lstrip("*#:; \t")
                if not line.strip(BLANK) or (UNKNOWN not in line and _PUNCTUATION.fullmatch(line)):
                    continue
            elif first == "-":
                if line.startswith("----"):
                    line = line.lstrip("-")
            elif first == TABLE:
                tables += 1
                continue
            elif first == TABLE_END:
                tables -= 1
                continue
            elif tables:
                line = cells_of(line)
            elif first == "|" or "||" in line or "!!" in line:
                continue  # of a table that begins or ends in a template
        if first in _LONE and len(line.strip()) == 1:
            continue  # the end of a sentence on the line before
        if line and not line.strip(BLANK):
            if KNOWN in line or UNKNOWN in line:
                continue  # nothing but dropped templates: no paragraph ends here
            line = ""
        lines.append(line)
    return "\n".join(lines)


_LINE_MARKS = "=*#:;-|!" + TABLE + TABLE_END


def cells_of(line: str) -> str:
    """A line of a table: its cells, separated by tabs."""
    if line.startswith(("|-", "|}")):
        return ""
    line = line[2:] if line.startswith("|+") else line[1:]
    cells = (line.replace("!!", "||") if "!!" in line else line).split("||")
    shown = []
    for cell in cells:
        attributes, bar, content = cell.partition("|")
        # attributes without a bar stand before a template that has it
        shown.append((content if bar else _without_attributes(attributes)).strip())
    return "\t".join(cell for cell in shown if cell)


_CELL_ATTRIBUTES = re.compile(
    r"""(?:\s*+(?:style|class|id|title|lang|dir|scope|headers|abbr|(?:row|col)span|v?align|width|height|bgcolor|nowrap|"""
    r"""data-[\w-]++)\s*+=\s*+(?:"[^"]*+"|'[^']*+'|[^\s"']++))++""",
    re.IGNORECASE,
)


def _without_attributes(cell: str) -> str:
    found = _CELL_ATTRIBUTES.match(cell) if "=" in cell else None
    return cell[found.end() :] if found else cell


def with_text_below(text: str) -> str:
    """Headings without their marks; those without text below them, in their own section or a deeper one, gone."""
    parts = _HEADING.split(text)
    if len(parts) == 1:
        return text
    next_level = 0  # of the next heading that stays; deeper ones belong to this one
    for i in range(len(parts) - 2, 0, -2):
        level = HEADINGS.index(parts[i]) + 1
        _, newline, body = parts[i + 1].partition("\n")
        blank = not body or body.isspace()
        parts[i] = ""
        if blank and next_level <= level:
            parts[i + 1] = newline + body
        else:
            next_level = level
    return "".join(parts)


_HEADING = re.compile(f"([{HEADINGS}])")
_ENTITY = re.compile(r"&(?:#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6}|[a-zA-Z][a-zA-Z0-9]{1,31});")


def decode_entities(text: str) -> str:
    """HTML entities decoded once, those that end in a semicolon only: `&sect` in a URL is none."""
    return _ENTITY.sub(lambda found: _decode(found[0]), text) if "&" in text else text


@functools.lru_cache(1024)
def _decode(entity: str) -> str:
    return CONTROL.sub("", html.unescape(entity))  # no mark of ours


def blank_lines(text: str) -> str:
    """Runs of blanks to one, of blank lines to one, none at the ends of lines."""
    while "  " in text:  # halves the longest run
        text = text.replace("  ", " ")
    return NEWLINES.sub("\n\n", text.replace(" \n", "\n").replace("\n ", "\n")).strip()
