"""Links, tags and tables: what is left of them in the text."""

from __future__ import annotations

import re
from typing import NamedTuple

from gpu_curate.text.wikitext.marks import BEFORE_TAG, KNOWN, TABLE, TABLE_END, Cut
from gpu_curate.text.wikitext.page import EXTERNAL_URL, SECOND_SCAN, TARGET, VARIANT_IN_TARGET, Page
from gpu_curate.text.wikitext.tables import CATEGORY, FILE, MEDIA, TARGET_CHARS, fold_title
from gpu_curate.text.wikitext.templates import apply_recipe

# ------------------------------------------------------------------------------------------------------ second scan


class _Open(NamedTuple):
    kind: str  # "[[", "{|" or "<table"
    start: int
    cut: int  # index of its own cut; those after it are inside


class _External(NamedTuple):
    start: int  # of [http://...
    cut: int
    label: int  # where its text begins


class LinkScan:
    """The second scan: links, tables and tags replaced by what they show. Its text begins with a newline."""

    def __init__(self, text: str, page: Page, keep_tables: bool):
        self.text, self.rules, self.namespaces, self.keep_tables = text, page.rules, page.namespaces, keep_tables
        self.cuts: list[Cut] = []
        self.stack: list[_Open] = []
        self.tables = {"{|": 0, "<table": 0}  # open ones
        self.external: _External | None = None  # they do not nest
        self.unclosed = 0

    def result(self) -> str:
        text, cuts = self.text, self.cuts
        end_of_last = 0  # closing brackets
        for found in SECOND_SCAN.finditer(text):
            start, end = found.span()
            first = text[start]
            if first == "[":
                if end - start > 2:
                    cuts.append(Cut(start, start + 2 if found[1] is None else found.start(1) + 1, ""))
                    cuts.append(Cut(end - 2, end, ""))
                elif end - start == 2:
                    self._open("[[", start, Cut(start, end, ""))
                else:
                    self.external = _External(start, len(cuts), EXTERNAL_URL.match(text, end).end())  # type: ignore[union-attr]  # the pattern matches nothing, too
                    cuts.append(Cut(start, start, ""))
            elif first == "]":
                self._close_brackets(start, end, end_of_last)
                end_of_last = end
            elif first == "<":
                self._tag(start, end, found[3].lower(), closing=bool(found[2]))
            elif text[end - 1] == "|":
                line_end = text.find("\n", end)
                new = f"\n{TABLE}" if self.keep_tables else ""
                self._open("{|", start, Cut(start, len(text) if line_end < 0 else line_end, new))
            elif self.tables["{|"]:
                self._close_table("{|", start, end)
            else:
                cuts.append(Cut(start, end, "\n"))
                self.unclosed += 1
        for entry in self.stack:
            self._abandon(entry)
        return apply_recipe(text, cuts)

    def _open(self, kind: str, start: int, cut: Cut) -> None:
        if kind != "[[":
            self.tables[kind] += 1
        self.stack.append(_Open(kind, start, len(self.cuts)))
        self.cuts.append(cut)

    def _close_brackets(self, start: int, end: int, end_of_last: int) -> None:
        """A run of closing brackets: two end a link, one an external link; internal links are found first."""
        text, cuts = self.text, self.cuts
        while start < end:
            link = self.stack[-1] if self.stack and self.stack[-1].kind == "[[" else None
            external = self.external
            inside = external is not None and (link is None or external.start > link.start)
            if external is not None and inside and (link is None or end - start != 2):
                self.external = None
                if "\n" in text[external.start : start]:
                    continue
                if external.label >= start:
                    del cuts[external.cut :]
                    cuts.append(Cut(external.start, start + 1, self._nothing(external.start, start + 1)))
                else:
                    cuts[external.cut] = Cut(external.start, external.label, "")
                    cuts.append(Cut(start, start + 1, ""))
                start += 1
            elif link is not None and end - start >= 2:
                self.stack.pop()
                self._close_link(link, start)
                start += 2
            else:
                if end - start >= 2 and "[" not in text[max(start - 200, end_of_last) : start]:
                    self.unclosed += 1
                    cuts.append(Cut(start, end, ""))
                return

    def _close_link(self, link: _Open, end: int) -> None:
        """Cut what a link, whose closing brackets are at `end`, does not show."""
        text, cuts, start = self.text, self.cuts, link.start
        stop = TARGET.match(text, start + 2, end).end()  # type: ignore[union-attr]  # the pattern matches nothing, too
        if in_target := VARIANT_IN_TARGET.match(text, stop, end):
            stop = in_target.end()
        number, escaped, interlanguage = self._resolve(text[start + 2 : stop])
        if number in (FILE, CATEGORY, MEDIA) or (interlanguage and stop == end):
            self._cut_all(link, end + 2, self._nothing(start, end + 2))
        else:
            cuts[link.cut] = Cut(start, stop + 1 if text[stop] == "|" else start + 2 + escaped, "")
            cuts.append(Cut(end, end + 2, ""))

    def _nothing(self, start: int, end: int) -> str:
        """What stands for something without text: a mark where what stood around it may have to go too."""
        before, after = self.text[start - 1], self.text[end : end + 1]
        return KNOWN if before in BEFORE_TAG and after not in ("", "\n") else ""

    def _resolve(self, target: str) -> tuple[int, bool, bool]:
        """Of a link target: its namespace, is it escaped by a colon, does it lead to another language."""
        prefix, colon, _ = target.partition(":")
        if not colon:
            return 0, False, False
        prefix = prefix.strip()
        number = self.namespaces.numbers.get(fold_title(prefix), 0)
        return number, not prefix, number == 0 and prefix in self.rules.languages

    def _tag(self, start: int, end: int, tag: str, closing: bool) -> None:
        if tag == "table":
            if not closing:
                self._open("<table", start, Cut(start, end, "\n"))
            elif self.tables["<table"]:
                self._close_table("<table", start, end)
            else:
                self.cuts.append(Cut(start, end, "\n"))
        elif tag in self.rules.stripped_tags:
            cell = tag in ("td", "th") and not closing
            self.cuts.append(Cut(start, end, "\n" if tag in self.rules.block_tags else "\t" if cell else ""))

    def _close_table(self, kind: str, start: int, end: int) -> None:
        """The innermost open table of a kind ends with the mark at start..end, and all that is open in it with it."""
        while (entry := self.stack.pop()).kind != kind:
            if entry.kind != "[[":
                self.tables[entry.kind] -= 1
            self._abandon(entry)
        self.tables[kind] -= 1
        if self.keep_tables:
            self.cuts.append(Cut(start, end, f"\n{TABLE_END}\n" if kind == "{|" else "\n"))
        else:
            self._cut_all(entry, end, "\n")

    def _cut_all(self, entry: _Open, end: int, new: str) -> None:
        """All from where an entry opened to `end` goes."""
        del self.cuts[entry.cut :]
        self.cuts.append(Cut(entry.start, end, new))
        if self.external is not None and self.external.start > entry.start:
            self.external = None

    def _abandon(self, entry: _Open) -> None:
        """Something stays open: its own mark goes, and with a file the rest of its line."""
        self.unclosed += 1
        text, start = self.text, entry.start
        if entry.kind == "[[" and self._resolve(TARGET.match(text, start + 2)[0])[0] in (FILE, CATEGORY):  # type: ignore[index]  # the pattern matches nothing, too
            reach = start + TARGET_CHARS  # bounded, so that many of them on one line take linear time
            end = text.find("\n", start, reach)
            end = end if end >= 0 else max(text.rfind("|", start, reach) + 1, start + 2)
            self.cuts[entry.cut] = Cut(start, end, "")


# ------------------------------------------------------------------------------------------------------------ lines


_RUN = re.compile("''+")


def unquoted(source: str) -> str:
    """A line without its bold and italic marks (Parser::doQuotes).

    In a line with an odd number of both, one bold mark is an apostrophe and an italic mark: L'''Amleto'' is L'Amleto.
    """
    if "'''" in source:
        source = _balanced(source)
    return source.replace("'''''", "").replace("'''", "").replace("''", "")


def _balanced(source: str) -> str:
    runs = list(_RUN.finditer(source))
    bold = sum(len(r[0]) >= 3 for r in runs)
    italic = sum(len(r[0]) == 2 or len(r[0]) >= 5 for r in runs)
    if bold % 2 == 0 or italic % 2 == 0:
        return source
    chosen = None
    for run in runs:
        if len(run[0]) in (3, 4):
            start = run.end() - 3
            if start >= 2 and source[start - 1] != " " and source[start - 2] == " ":
                chosen = start
                break
            if chosen is None or (source[chosen - 1 : chosen] == " " and source[start - 1 : start] != " "):
                chosen = start
    return source if chosen is None else f"{source[:chosen]}'{source[chosen + 3 :]}"
