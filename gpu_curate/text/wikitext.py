"""Wikitext to plain text, by two linear scans and one walk over the lines.

The first scan finds what MediaWiki's preprocessor finds: comments, extension tags and templates. The second runs on
what is left and finds links, tables and HTML tags. Each keeps a stack of open brackets and a list of cuts (start, end,
replacement); closing a bracket replaces the cuts made inside it, so that every character is looked at a fixed number
of times however the markup nests, and markup that never closes costs no more than its own characters.

What goes: templates (but those that carry prose, see `wikitext.yaml`), files with their captions, categories,
interlanguage links, references, tables, galleries, formulas, comments, HTML tags, bold and italic marks. What stays: the
visible text of links, headings, list items, quotations, code. A template that is dropped inside a sentence is a *gap*,
and named in the result: nothing is lost from a sentence in silence.

Source: the grammar is MediaWiki's (Preprocessor_Hash, Parser::doQuotes, Parser::replaceInternalLinks,
Parser::doTableStuff); what a prose template shows is that template's own documentation.
"""

from __future__ import annotations

import functools
import html
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any, NamedTuple

MAX_TEMPLATE_DEPTH = 40  # prose templates inside each other, as MediaWiki's $wgMaxTemplateDepth; deeper is a gap
_TARGET_CHARS = 1024  # a link target is at most 255 bytes (MediaWiki) and a section; further no bar is looked for

FILE, CATEGORY, MEDIA, TEMPLATE = 6, 14, -2, 10

_KNOWN = "\x0e"  # stands where a template was dropped that never carries prose
_UNKNOWN = "\x7f"  # stands where any other was; followed by its number in _DIGITS. None of them is valid in a page
_DIGITS = "\x10\x11\x12\x13\x14\x15\x16\x17\x18\x19\x1a\x1b\x1c\x1d\x1e\x1f"
_MARKS = _KNOWN + _UNKNOWN + _DIGITS
_TABLE, _TABLE_END = "\x02", "\x03"  # lines that hold them frame a table whose cells are kept
_BAR = "\x04"  # a bar that separates the arguments of a template
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


class Extracted(NamedTuple):
    """The text of a page.

    text: paragraphs and headings separated by newlines; "" for a page without any.
    gaps: names of the templates (or `<math>`) dropped inside a sentence, in order, with repetitions.
    unclosed: brackets, tags and tables that never close, or close without being open. 0 in well-formed wikitext.
    """

    text: str
    gaps: tuple[str, ...] = ()
    unclosed: int = 0


class Cut(NamedTuple):
    start: int
    end: int
    new: str | Template  # what stands there instead


class Template(NamedTuple):
    start: int  # of the text between the braces
    end: int
    braces: int  # 2: a template, 3: a parameter
    cuts: list[Cut]  # inside it


@dataclass(frozen=True)
class Namespaces:
    """Namespace numbers by lower-case name: canonical English, well-known aliases, and the wiki's own names."""

    numbers: Mapping[str, int]

    @classmethod
    def of(cls, local: Iterable[tuple[int, str]] = ()) -> Namespaces:
        """Of a wiki whose `<siteinfo>` lists `local` (number, name); () knows the canonical names and aliases only."""
        numbers = dict(_rules().namespaces)
        numbers.update((_fold_title(name), number) for number, name in local if name)
        return cls(numbers)

    def number(self, title: str) -> int:
        """The namespace of a title: 0 if what precedes the first colon is no namespace."""
        prefix, colon, _ = title.partition(":")
        return self.numbers.get(_fold_title(prefix), 0) if colon else 0


def extract(
    wikitext: str, namespaces: Namespaces | None = None, *, title: str = "", keep_tables: bool = False
) -> Extracted:
    """The readable text of a page.

    Args:
        wikitext: source of the page. Empty gives empty; time and memory are linear in its length, whatever it holds.
        namespaces: of the wiki; None: canonical names and aliases.
        title: what `{{PAGENAME}}` shows.
        keep_tables: the cells of tables are text, one row a line, cells separated by a tab.
    Returns:
        Extracted. Captions of files are dropped with the file, so that a caption never interrupts a sentence.
    """
    if _CONTROL.search(wikitext):
        wikitext = _CONTROL.sub("", wikitext)
    page = _Page(wikitext.replace("\r\n", "\n") if "\r" in wikitext else wikitext, namespaces or _canonical(), title)
    text = page.without_templates()
    links = _LinkScan("\n" + text, page, keep_tables)
    text = _lines(links.result())
    text, gaps = _fill_gaps(text, page.dropped)
    text = _entities(text)
    return Extracted(_blank_lines(text), gaps, page.unclosed + links.unclosed)


_REDIRECT = re.compile(r"\s*+[#＃]\s*+([^\s:\[#]+)\s*+:?+\s*+\[\[")


@functools.cache
def _canonical() -> Namespaces:
    return Namespaces.of()


def is_redirect(wikitext: str) -> bool:
    """True if the page is a redirect in any language MediaWiki knows the word of."""
    start = _REDIRECT.match(wikitext)
    return start is not None and start[1].casefold() in _rules().redirect_words


# ------------------------------------------------------------------------------------------------------------ rules


class _Rules:
    """wikitext.yaml, compiled."""

    def __init__(self, data: dict[str, Any]):
        self.templates: dict[str, _Recipe] = {}
        for recipe, names in data["prose"].items():
            compiled = _recipe(recipe)
            for name in names:
                self.templates[_fold_title(name)] = compiled
        self.prefixes = {prefix: _recipe(recipe) for prefix, recipe in data["prose_prefixes"].items()}
        self.dropped = {_fold_title(name) for name in data["dropped"]}
        self.dropped_prefixes = tuple(data["dropped_prefixes"])
        self.dropped_suffixes = tuple(data["dropped_suffixes"])
        self.redirect_words = frozenset(word.casefold() for word in data["redirect_words"])
        self.languages = frozenset(data["languages"])
        self.namespaces = {_fold_title(name): int(n) for n, names in data["namespaces"].items() for name in names}
        self.units: dict[str, str] = data["units"]
        self.ranges: dict[str, str] = data["ranges"]
        self.months: list[str] = data["months"]
        tags = data["tags"]
        self.literal_tags = frozenset(tags["literal"])
        self.formula_tags = frozenset(tags["formula"])
        raw = [*tags["literal"], *tags["dropped"], *tags["formula"]]
        self.block_tags = frozenset(tags["block"])
        self.stripped_tags = frozenset([*tags["inline"], *tags["block"], *raw])
        self.first_scan = re.compile(rf"\{{\{{+|\}}\}}+|<!--|<(?i:({'|'.join(raw)}))(?=[\s/>])")
        # a mixed-case class a letter keeps the literal prefix "</", which the regex engine searches for at memory speed
        self.close = {
            tag: re.compile("</" + "".join(f"[{c}{c.upper()}]" if c.isalpha() else c for c in tag) + r"\s*+>")
            for tag in raw
        }


@functools.cache
def _rules() -> _Rules:
    import yaml

    text = resources.files(__package__).joinpath("wikitext.yaml").read_text(encoding="utf-8")
    return _Rules(yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)))


def _fold_title(name: str) -> str:
    return " ".join(name.replace("_", " ").split()).lower()


# The inside of a tag up to ">": quoted values may hold ">"; a quote that does not close is no quote.
_ATTRIBUTES = r"""(?:\s(?:(?:[^<>"']++|"[^"<]*+"|'[^'<]*+')*+(?=>)|[^<>]*+))?+"""
_RAW_TAG = re.compile(rf"<\w++{_ATTRIBUTES}(?:(?<=/)|/)?>")
_SECOND_SCAN = re.compile(
    r"\[\[(?:[^|\[\]\n{}<>:]*+(\|[^|\[\]\n{}<>]*+)?+\]\])?+|\]+"  # most links are whole: [[target]], [[target|label]]
    r"|\[(?=(?i:https?:|ftps?:|ircs?:|news:|mailto:|tel:|geo:|urn:|magnet:|gopher:|git:|sftp:|ssh:|svn:|telnet:)|//)"
    rf"|<(/?)([a-zA-Z][a-zA-Z0-9]*+)(?:{_ATTRIBUTES}/?>|(?=\s[^<>\n=]*+=)[^<>\n]*+)"
    rf"|\n[ \t:*#;{_MARKS}]*+\{{\||\n[ \t:*#;]*+\|\}}"
)
_TARGET = re.compile(rf"[^|\[\]\n{{}}<>]{{0,{_TARGET_CHARS}}}+")
_URL = re.compile(r"""[^\s\[\]<>"]*+[ \t]*+""")
_PROTECT = str.maketrans({c: f"&#{ord(c)};" for c in "[]{}|'<>=*#:;_-!"})
_NAME = re.compile(r"\s*+([^|{}<\[\]\n]*+)")


class _Page:
    """State of one extraction."""

    def __init__(self, text: str, namespaces: Namespaces, title: str):
        self.text, self.namespaces, self.title = text, namespaces, title
        self.rules = _rules()
        self.dropped: list[str] = []  # names behind the _UNKNOWN marks
        self.unclosed = 0

    # -------------------------------------------------------------------------------------------------- first scan

    def without_templates(self) -> str:
        """Comments, extension tags and templates replaced by what they show."""
        text, rules = self.text, self.rules
        cuts: list[Cut] = []
        braces: list[list[int]] = []  # runs of open braces: position, how many are left, cuts before it
        never_closed: set[str] = set()
        search = rules.first_scan.search
        found = search(text)
        while found:
            start, end = found.span()
            first = text[start]
            if first == "{":
                braces.append([start, end - start, len(cuts)])
            elif first == "}":
                self._close_braces(start, end, braces, cuts)
            elif found[1] is None:
                end = text.find("-->", end)
                end = len(text) if end < 0 else end + 3
                if text[start - 1 : start] == "\n" == text[end : end + 1]:  # a line of its own leaves no blank line
                    end += 1
                cuts.append(Cut(start, end, ""))
            else:
                end = self._raw_tag(start, found[1].lower(), cuts, never_closed)
            found = search(text, end)
        if braces:
            self.unclosed += len(braces)
            for start, count, _ in braces:
                cuts.append(Cut(start, self._unclosed_template(start, count), ""))
            cuts.sort(key=lambda cut: cut.start)
        return self._render(0, len(text), cuts, 0)

    def _close_braces(self, start: int, end: int, braces: list[list[int]], cuts: list[Cut]) -> None:
        """Match the run of closing braces start..end with the innermost open ones, as the preprocessor does."""
        while end - start >= 2 and braces:
            top = braces[-1]
            count = 3 if top[1] >= 3 and end - start >= 3 else 2
            top[1] -= count
            opened = top[0] + top[1]
            inside = cuts[top[2] :]
            del cuts[top[2] :]
            cuts.append(Cut(opened, start + count, Template(opened + count, start, count, inside)))
            start += count
            if top[1] < 2:
                braces.pop()
        if end - start >= 2:
            self.unclosed += 1
            cuts.append(Cut(start, end, ""))

    def _unclosed_template(self, start: int, count: int) -> int:
        """Where the residue of a template that never closes ends: its braces, at a line start its whole line."""
        if self.text[start - 1 : start] not in ("", "\n"):
            return start + count
        end = self.text.find("\n", start)
        return len(self.text) if end < 0 else end

    def _raw_tag(self, start: int, tag: str, cuts: list[Cut], never_closed: set[str]) -> int:
        """Cut an extension tag with its content; returns where the scan goes on."""
        opening = _RAW_TAG.match(self.text, start)
        if opening is None:
            return start + 1
        end = opening.end()
        content = ""
        if self.text[end - 2] != "/":
            closing = None if tag in never_closed else self.rules.close[tag].search(self.text, end)
            if closing is None:
                never_closed.add(tag)
                self.unclosed += 1
            else:
                content, end = self.text[end : closing.start()], closing.end()
        if tag in self.rules.literal_tags:
            content = content.translate(_PROTECT)
            cuts.append(Cut(start, end, f"\n{content}\n" if tag in self.rules.block_tags else content))
        elif tag in self.rules.formula_tags and content:
            cuts.append(Cut(start, end, self._mark(f"<{tag}>")))
        else:
            cuts.append(Cut(start, end, ""))
        return end

    def _render(self, start: int, end: int, cuts: list[Cut], depth: int, bar: str = "|") -> str:
        """The text start..end with its cuts applied; `bar` replaces the bars that no cut covers."""
        pieces: list[str] = []
        text = self.text
        for cut in cuts:
            if cut.end <= start:
                continue
            if cut.start > start:
                piece = text[start : cut.start]
                pieces.append(piece if bar == "|" else piece.replace("|", bar))
            pieces.append(cut.new if isinstance(cut.new, str) else self._expand(cut, cut.new, depth))
            start = cut.end
        piece = text[start:end]
        pieces.append(piece if bar == "|" else piece.replace("|", bar))
        return "".join(pieces)

    # --------------------------------------------------------------------------------------------------- templates

    def _expand(self, cut: Cut, template: Template, depth: int) -> str:
        """What a template shows, or a mark where it is dropped."""
        text, rules = self.text, self.rules
        if template.braces == 3:
            return self._parameter(template, depth)
        name = self._name(template)
        folded = _fold_title(name)
        recipe, is_function = rules.templates.get(folded), False
        if recipe is None and ":" in folded:
            function = folded.partition(":")[0]
            if function + ":" in rules.templates:  # {{lc:TEXT}}
                recipe, is_function = rules.templates[function + ":"], True
            elif self.namespaces.numbers.get(function) == TEMPLATE:
                folded = folded[len(function) + 1 :].strip()
                recipe = rules.templates.get(folded)
        if recipe is None:
            for prefix, of_prefix in rules.prefixes.items():
                if folded.startswith(prefix):
                    recipe = of_prefix
                    break
        if recipe is not None and depth < MAX_TEMPLATE_DEPTH:
            shown = recipe(self._arguments(template, depth, is_function), self)
            if shown is not None:
                return shown
        before, after = text[cut.start - 1 : cut.start], text[cut.end : cut.end + 1]
        if before in ("", "\n") and after in ("", "\n"):
            return ""
        if (
            folded in rules.dropped
            or folded.startswith(rules.dropped_prefixes)
            or folded.endswith(rules.dropped_suffixes)
            or "\n" in text[template.start : min(template.end, template.start + 200)]  # an infobox, not a word
        ):
            return _KNOWN
        return self._mark(folded or "{{}}")

    def _mark(self, name: str) -> str:
        number = len(self.dropped)
        self.dropped.append(name)
        return _UNKNOWN + f"{number:x}".translate(_HEX_MARKS)

    def _name(self, template: Template) -> str:
        start = template.start
        if template.cuts and self.text[start : template.cuts[0].start].strip() == "" and template.cuts[0].new == "":
            start = template.cuts[0].end  # a comment before the name
        found = _NAME.match(self.text, start, template.end)
        return found[1].strip() if found else ""

    def _parameter(self, template: Template, depth: int) -> str:
        """{{{name|default}}} outside a template shows its default."""
        if depth >= MAX_TEMPLATE_DEPTH:
            return ""
        _, _, default = self._render(template.start, template.end, template.cuts, depth + 1, _BAR).partition(_BAR)
        return default.replace(_BAR, "|")

    def _arguments(self, template: Template, depth: int, is_function: bool) -> dict[str, str]:
        """Arguments by name, positional ones as "1", "2", ...; of a parser function "1" is what follows its colon."""
        pieces = self._render(template.start, template.end, template.cuts, depth + 1, _BAR).split(_BAR)
        if is_function:
            pieces[0] = pieces[0].partition(":")[2]
        else:
            pieces = pieces[1:]
        arguments: dict[str, str] = {}
        position = 0
        whole: list[str] = []  # pieces of an argument whose bars lie inside links
        balance = 0
        for piece in pieces:
            whole.append(piece)
            balance += piece.count("[[") - piece.count("]]")
            if balance > 0:
                continue
            argument = "|".join(whole)
            whole, balance = [], 0
            key, equals, value = argument.partition("=")
            if equals and not is_function and not _NO_KEY.search(key):
                if value := value.strip():
                    arguments[key.strip().lower()] = value
            else:
                position += 1
                arguments[str(position)] = argument.strip()
        if whole:
            position += 1
            arguments[str(position)] = "|".join(whole).strip()
        return arguments


# ------------------------------------------------------------------------------------------------------ second scan


class _Open(NamedTuple):
    kind: str  # "[[", "{|" or "<table"
    start: int
    cut: int  # index of its own cut; those after it are inside


class _External(NamedTuple):
    start: int  # of [http://...
    cut: int
    label: int  # where its text begins


class _LinkScan:
    """The second scan: links, tables and tags replaced by what they show. Its text begins with a newline."""

    def __init__(self, text: str, page: _Page, keep_tables: bool):
        self.text, self.rules, self.namespaces, self.keep_tables = text, page.rules, page.namespaces, keep_tables
        self.cuts: list[Cut] = []
        self.stack: list[_Open] = []
        self.tables = {"{|": 0, "<table": 0}  # open ones
        self.external: _External | None = None  # they do not nest
        self.unclosed = 0

    def result(self) -> str:
        text, cuts = self.text, self.cuts
        end_of_last = 0  # closing brackets
        for found in _SECOND_SCAN.finditer(text):
            start, end = found.span()
            first = text[start]
            if first == "[":
                if end - start > 2:
                    cuts.append(Cut(start, start + 2 if found[1] is None else found.start(1) + 1, ""))
                    cuts.append(Cut(end - 2, end, ""))
                elif end - start == 2:
                    self._open("[[", start, Cut(start, end, ""))
                else:
                    self.external = _External(start, len(cuts), _URL.match(text, end).end())  # type: ignore[union-attr]
                    cuts.append(Cut(start, start, ""))
            elif first == "]":
                self._close_brackets(start, end, end_of_last)
                end_of_last = end
            elif first == "<":
                self._tag(start, end, found[3].lower(), closing=bool(found[2]))
            elif text[end - 1] == "|":
                line_end = text.find("\n", end)
                new = f"\n{_TABLE}" if self.keep_tables else ""
                self._open("{|", start, Cut(start, len(text) if line_end < 0 else line_end, new))
            elif self.tables["{|"]:
                self._close_table("{|", start, end)
            else:
                cuts.append(Cut(start, end, "\n"))
                self.unclosed += 1
        for entry in self.stack:
            self._abandon(entry)
        return _apply(text, cuts)

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
                    cuts.append(Cut(external.start, start + 1, ""))
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
        stop = _TARGET.match(text, start + 2, end).end()  # type: ignore[union-attr]
        number, escaped, interlanguage = self._resolve(text[start + 2 : stop])
        if number in (FILE, CATEGORY, MEDIA) or (interlanguage and stop == end):
            self._cut_all(link, end + 2, "")
        else:
            cuts[link.cut] = Cut(start, stop + 1 if text[stop] == "|" else start + 2 + escaped, "")
            cuts.append(Cut(end, end + 2, ""))

    def _resolve(self, target: str) -> tuple[int, bool, bool]:
        """Of a link target: its namespace, is it escaped by a colon, does it lead to another language."""
        prefix, colon, _ = target.partition(":")
        if not colon:
            return 0, False, False
        prefix = prefix.strip()
        number = self.namespaces.numbers.get(_fold_title(prefix), 0)
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
            self.cuts.append(Cut(start, end, f"\n{_TABLE_END}\n" if kind == "{|" else "\n"))
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
        if entry.kind == "[[" and self._resolve(_TARGET.match(text, start + 2)[0])[0] in (FILE, CATEGORY):  # type: ignore[index]
            reach = start + _TARGET_CHARS  # bounded, so that many of them on one line take linear time
            end = text.find("\n", start, reach)
            end = end if end >= 0 else max(text.rfind("|", start, reach) + 1, start + 2)
            self.cuts[entry.cut] = Cut(start, end, "")


_HEX_MARKS = str.maketrans("0123456789abcdef", _DIGITS)
_NO_KEY = re.compile(r"[\[\]<>{}\n]\s*\S")  # what cannot stand in the name of an argument: then "=" belongs to the text


def _apply(text: str, cuts: list[Cut]) -> str:
    pieces: list[str] = []
    at = 0
    for start, end, new in cuts:
        if end <= at:
            continue
        if start > at:
            pieces.append(text[at:start])
        pieces.append(new)  # type: ignore[arg-type]
        at = end
    pieces.append(text[at:])
    return "".join(pieces)


# ---------------------------------------------------------------------------------------------------- recipes
# What a prose template shows: literal text, {slots} and [optional parts].

_Recipe = Callable[[dict[str, str], _Page], "str | None"]
_SLOT = re.compile(r"\{(?:(\d*)\*([^{}]*)|([^{}]+))\}")


def _recipe(source: str) -> _Recipe:
    """A recipe from its line in wikitext.yaml; None as its result means: nothing to show, a gap."""
    if source.startswith("=") and len(source) > 1:
        return _HANDLERS[source[1:]]
    if "{" not in source:
        return lambda arguments, page: source
    parts = re.split(r"\[([^\[\]]*)\]", source)  # odd ones are optional

    def show(arguments: dict[str, str], page: _Page) -> str | None:
        pieces = []
        filled = False
        for i, part in enumerate(parts):
            values: list[str] = []

            def fill(slot: re.Match[str], values: list[str] = values) -> str:
                value = _slot(slot, arguments)
                values.append(value)
                return value

            shown = _SLOT.sub(fill, part)
            if any(values):
                filled = True
            elif i % 2:
                continue
            pieces.append(shown)
        return "".join(pieces) if filled else None

    return show


def _slot(slot: re.Match[str], arguments: dict[str, str]) -> str:
    first, separator, names = slot.groups()
    if names is not None:
        for name in names.split("|"):
            value = (_positional(arguments) or [""])[-1] if name == "-1" else arguments.get(name)
            if value:
                return value
        return ""
    return separator.join(v for v in _positional(arguments)[int(first or 1) - 1 :] if v)


def _positional(arguments: dict[str, str]) -> list[str]:
    values = []
    while (value := arguments.get(str(len(values) + 1))) is not None:
        values.append(value)
    return values


def _convert(arguments: dict[str, str], page: _Page) -> str | None:
    """{{convert|1300|mi|km}}: the value and unit that were written, not those that are computed."""
    rules = page.rules
    values = _positional(arguments)
    if not values:
        return None
    shown, rest = values[0], values[1:]
    while len(rest) >= 2 and rest[0].lower() in rules.ranges:
        shown, rest = shown + rules.ranges[rest[0].lower()] + rest[1], rest[2:]
    if rest:
        shown, rest = f"{shown} {rules.units.get(rest[0], rest[0])}", rest[1:]
    while len(rest) >= 2 and _NUMBER.fullmatch(rest[0]) and not _NUMBER.fullmatch(rest[1]):  # 6 ft 2 in
        shown, rest = f"{shown} {rest[0]} {rules.units.get(rest[1], rest[1])}", rest[2:]
    return shown


_NUMBER = re.compile(r"[+\-−]?[\d.,/]+")


def _date(arguments: dict[str, str], page: _Page) -> str | None:
    """{{start date|1911|5|4}}: year, month, day; the month by name, day first with df=y."""
    year, month, day = [*_positional(arguments), "", "", ""][:3]
    if not year:
        return None
    if month.isdecimal() and 1 <= int(month) <= 12:
        month = page.rules.months[int(month) - 1]
    if not month:
        return year
    if not day:
        return f"{month} {year}"
    return f"{day} {month} {year}" if arguments.get("df", "no") not in ("no", "n") else f"{month} {day}, {year}"


def _as_of(arguments: dict[str, str], page: _Page) -> str | None:
    date = _date({**arguments, "df": arguments.get("df", "y")}, page)
    alternative = arguments.get("alt")
    if alternative:
        return alternative
    word = "since" if "since" in arguments else "as of"
    return date and f"{word if arguments.get('lc') else word.capitalize()} {date}"


def _fraction(arguments: dict[str, str], page: _Page) -> str | None:
    """{{frac|2}} is 1/2, {{frac|3|4}} is 3/4, {{frac|1|3|4}} is 1 3/4."""
    values = _positional(arguments)
    if not values:
        return None
    if len(values) == 1:
        return f"1/{values[0]}"
    whole = "".join(f"{v} " for v in values[:-2])
    return f"{whole}{values[-2]}/{values[-1]}"


def _century(arguments: dict[str, str], page: _Page) -> str | None:
    """{{s|XIX}}, {{s|XIX|e}}: XIXe siècle. On other wikis `s` is something else, and its argument no Roman numeral."""
    number = arguments.get("1", "").upper()
    return f"{number}{arguments.get('2', 'e')} siècle" if _ROMAN.fullmatch(number) else None


_ROMAN = re.compile("[IVX]+")


def _glossed(arguments: dict[str, str], page: _Page) -> str | None:
    """{{nihongo|Tokyo|東京|Tōkyō}}: Tokyo (東京, Tōkyō)."""
    first, *others = _positional(arguments) or [""]
    others = [v for v in others if v]
    return (f"{first} ({', '.join(others)})" if others else first) or None


def _music(arguments: dict[str, str], page: _Page) -> str | None:
    """{{music|flat}}, {{music|sharp}}: the sign."""
    sign = arguments.get("1", "").lower()
    return {"flat": "♭", "b": "♭", "sharp": "♯", "#": "♯", "natural": "♮", "n": "♮"}.get(sign)


def _ordinal(arguments: dict[str, str], page: _Page) -> str | None:
    """{{ordinal|3}}: 3rd."""
    number = arguments.get("1", "")
    if not number.isdecimal():
        return number or None
    teens = int(number) % 100 in (11, 12, 13)
    return number + ("th" if teens else {1: "st", 2: "nd", 3: "rd"}.get(int(number) % 10, "th"))


def _if(arguments: dict[str, str], page: _Page) -> str | None:
    return arguments.get("2" if arguments.get("1") else "3", "")


_HANDLERS: dict[str, _Recipe] = {
    "convert": _convert,
    "date": _date,
    "as of": _as_of,
    "fraction": _fraction,
    "century": _century,
    "glossed": _glossed,
    "if": _if,
    "music": _music,
    "ordinal": _ordinal,
    "sic": lambda arguments, page: arguments.get("1") or "[sic]",
    "lower": lambda arguments, page: arguments.get("1", "").lower(),
    "upper": lambda arguments, page: arguments.get("1", "").upper(),
    "lower first": lambda arguments, page: arguments.get("1", "")[:1].lower() + arguments.get("1", "")[1:],
    "upper first": lambda arguments, page: arguments.get("1", "")[:1].upper() + arguments.get("1", "")[1:],
    "title": lambda arguments, page: page.title or None,
}


# ------------------------------------------------------------------------------------------------------------ lines


_RUN = re.compile("''+")


def _unquoted(source: str) -> str:
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


_BLANK = " \t\xa0" + _MARKS
_SWITCH = re.compile(r"__[^\W_a-z]{3,40}__")  # behaviour switches: __NOTOC__, __БЕЗ_ОГЛ__ in one word
_VARIANT = re.compile(r"-\{([^{}]*)\}-")


def _lines(text: str) -> str:
    """Marks at line starts removed: headings, lists, rules, what is left of tables."""
    if "__" in text:
        text = _SWITCH.sub("", text)
    if "-{" in text:
        text = _VARIANT.sub(_variant, text)
    lines: list[str] = []
    tables = 0
    for line in text.split("\n"):
        if "''" in line:
            line = _unquoted(line)
        first = line[:1]
        if tables and first in (" ", "\t") and (indented := line.lstrip(" \t"))[:1] in ("|", "!"):
            line, first = indented, indented[:1]
        if first in _LINE_MARKS and first:
            if first == "=":
                heading = line.strip(_BLANK)
                if len(heading) > 2 and heading[-1] == "=":
                    line = heading.strip("=").strip(" \t")
            elif first in "*#:;":
                line = line.lstrip("*#:; \t")
                if not line.strip(_BLANK):
                    continue
            elif first == "-":
                if line.startswith("----"):
                    line = line.lstrip("-")
            elif first == _TABLE:
                tables += 1
                continue
            elif first == _TABLE_END:
                tables -= 1
                continue
            elif tables:
                line = _cells(line)
            elif first == "|" or "||" in line or "!!" in line:
                continue  # of a table that begins or ends in a template
        if line and not line.strip(_BLANK):
            if _KNOWN in line or _UNKNOWN in line:
                continue  # nothing but dropped templates: no paragraph ends here
            line = ""
        lines.append(line)
    return "\n".join(lines)


_LINE_MARKS = "=*#:;-|!" + _TABLE + _TABLE_END


def _cells(line: str) -> str:
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


_ATTRIBUTES = re.compile(
    r"""(?:\s*+(?:style|class|id|title|lang|dir|scope|headers|abbr|(?:row|col)span|v?align|width|height|bgcolor|nowrap|"""
    r"""data-[\w-]++)\s*+=\s*+(?:"[^"]*+"|'[^']*+'|[^\s"']++))++""",
    re.IGNORECASE,
)


def _without_attributes(cell: str) -> str:
    found = _ATTRIBUTES.match(cell) if "=" in cell else None
    return cell[found.end() :] if found else cell


def _variant(found: re.Match[str]) -> str:
    """-{zh-hans:A; zh-hant:B}- shows its first variant, -{A}- shows A, a rule or a title shows nothing."""
    flags, bar, body = found[1].rpartition("|")
    if bar and set(flags.strip().upper()) & set("THR-"):
        return ""
    first = body.partition(";")[0]
    language, colon, shown = first.partition(":")
    return shown.strip() if colon and _LANGUAGE.fullmatch(language.strip()) else body


_LANGUAGE = re.compile(r"[a-z]{2,3}(?:-[a-z]+)*")
_MARK_RUN = re.compile(f"[{_MARKS}]++")
_UNKNOWN_MARK = re.compile(f"{_UNKNOWN}([{_DIGITS}]++)")
_FROM_MARKS = str.maketrans(_DIGITS, "0123456789abcdef")
_TERMINAL = frozenset('.!?。！？:;"”»)）…')
_SEPARATORS = frozenset(" \xa0,;:/–-")  # what is left over when one of several things in parentheses goes
_GAP_CHARS = 64  # how far separators are followed on either side of a mark


def _fill_gaps(text: str, dropped: list[str]) -> tuple[str, tuple[str, ...]]:
    """Marks removed with the blanks and empty parentheses they leave; names those that stood inside a sentence."""
    found = _MARK_RUN.search(text)
    if found is None:
        return text, ()
    gaps: list[str] = []
    pieces: list[str] = []
    at = 0  # text before is done
    while found:
        start, end = found.span()
        gaps += _names(found, dropped)
        left, right = start, end
        while left > max(at, start - _GAP_CHARS) and text[left - 1] in _SEPARATORS:
            left -= 1
        right = _after_separators(text, end)
        opens = text[left - 1 : left] in ("(", "（") and left > at
        while opens and (more := _MARK_RUN.match(text, right)):  # nothing but separators between the two
            gaps += _names(more, dropped)
            end = more.end()
            right = _after_separators(text, end)
        closes = text[right : right + 1] in (")", "）")
        if opens and closes:  # nothing else was in the parentheses
            left, right = left - 1, right + 1
            if text[left - 1 : left] == " " and left > at:
                left -= 1
        elif opens or closes:
            left, right = (left, right) if opens or right - end <= 1 else (left, end)
        else:
            before, after = start > at and text[start - 1] in " \xa0", text[end : end + 1]
            left, right = start, end
            if before and (after in " \xa0,.;:)!?\n"):
                left -= 1
        pieces.append(text[at:left])
        at = right
        found = _MARK_RUN.search(text, at)
    pieces.append(text[at:])
    return "".join(pieces), tuple(gaps)


def _after_separators(text: str, end: int) -> int:
    right = end
    while right < min(len(text), end + _GAP_CHARS) and text[right] in _SEPARATORS:
        right += 1
    return right


def _names(run: re.Match[str], dropped: list[str]) -> list[str]:
    """The unknown templates that a run of marks stands for, if it is inside a sentence."""
    if _UNKNOWN not in run[0] or not _inside_sentence(run.string, *run.span()):
        return []
    return [dropped[int(n.translate(_FROM_MARKS), 16)] for n in _UNKNOWN_MARK.findall(run[0])]


def _inside_sentence(text: str, start: int, end: int) -> bool:
    """True if a sentence runs on over start..end: it does not end before, or goes on after, on the same line."""
    before, after = text[max(start - 2, 0) : start].rstrip(" \xa0")[-1:], text[end : end + 2].lstrip(" \xa0")[:1]
    return (before not in ("", "\n") and before not in _TERMINAL) or after.islower() or after in (",", ".", ";", ")")


_ENTITY = re.compile(r"&(?:#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6}|[a-zA-Z][a-zA-Z0-9]{1,31});")


def _entities(text: str) -> str:
    """HTML entities decoded once, those that end in a semicolon only: `&sect` in a URL is none."""
    return _ENTITY.sub(lambda found: _decode(found[0]), text) if "&" in text else text


@functools.lru_cache(1024)
def _decode(entity: str) -> str:
    return html.unescape(entity)


_NEWLINES = re.compile("\n\n\n+")


def _blank_lines(text: str) -> str:
    """Runs of blanks to one, of blank lines to one, none at the ends of lines."""
    while "  " in text:  # halves the longest run
        text = text.replace("  ", " ")
    return _NEWLINES.sub("\n\n", text.replace(" \n", "\n").replace("\n ", "\n")).strip()
