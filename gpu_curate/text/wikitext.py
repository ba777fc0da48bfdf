"""Wikitext to plain text, by two linear scans and one walk over the lines.

The first scan finds what MediaWiki's preprocessor finds: comments, extension tags and templates. The second runs on
what is left and finds links, tables and HTML tags. Each keeps a stack of open brackets and a list of cuts (start, end,
replacement); closing a bracket replaces the cuts made inside it, so that every character is looked at a fixed number
of times however the markup nests, and markup that never closes costs no more than its own characters.

What goes: templates (but those that carry prose, see `wikitext.yaml`), files with their captions, categories,
interlanguage links, references, tables, galleries, formulas, comments, HTML tags, bold and italic marks, headings without
text below. What stays: the visible text of links, other headings, list items, quotations, code. A template that is dropped
inside a sentence is a *gap*, and named in the result: nothing is lost from a sentence in silence. The punctuation that only
the dropped one needed goes with it.

What MediaWiki translates (names of namespaces, behaviour switches, `#REDIRECT`) and the languages with variants are in
`wikitext.tsv`, made from MediaWiki's own files by scripts/make_wikitext_words.

Source: the grammar is MediaWiki's (Preprocessor_Hash, Parser::doQuotes, Parser::replaceInternalLinks,
Parser::doTableStuff, ConverterRule); what a prose template shows is that template's own documentation.
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
_HEADINGS = "\x00\x01\x05\x06\x07\x08"  # what a heading's line begins with, by its level
_GONE = "\x0b"  # on the line of a mark that is done
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
    """Namespace numbers by lower-case name (canonical English, MediaWiki's for the language, the wiki's own), and language."""

    numbers: Mapping[str, int]
    language: str = ""  # MediaWiki's code; "": unknown

    @classmethod
    def of(cls, local: Iterable[tuple[int, str]] = (), language: str = "") -> Namespaces:
        """Of a wiki in `language` whose `<siteinfo>` lists `local` (number, name).

        In an unknown language the names of files, categories, media and templates are those of all languages.
        """
        language = language_code(language)
        numbers = _rules().namespaces | _words().namespaces(language)
        numbers.update((_fold_title(name), number) for number, name in local if name)
        return cls(numbers, language)

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
    text = links.result()
    if "-{" in text:
        text = _variants(text, page.namespaces.language)
    text = _entities(_lines(text))
    text, gaps = _fill_gaps(text, page.dropped)
    return Extracted(_blank_lines(_sections(text)), gaps, page.unclosed + links.unclosed)


_REDIRECT = re.compile(r"\s*+[#＃]\s*+([^:\[\]#\n]{1,80})(?<!\s)\s*+:?+\s*+\[\[")


@functools.cache
def _canonical() -> Namespaces:
    return Namespaces.of()


def is_redirect(wikitext: str) -> bool:
    """True if the page is a redirect in any language MediaWiki knows the word of."""
    start = _REDIRECT.match(wikitext)
    return start is not None and start[1].casefold() in _words().redirects


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
        self.languages = frozenset(data["languages"])
        for recipe, patterns in data["prose_languages"].items():
            compiled = _recipe(recipe)
            for pattern in patterns:
                for language in self.languages:
                    self.templates.setdefault(pattern.replace("{}", language), compiled)
        self.switches = frozenset(data["switches"])
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


@dataclass(frozen=True)
class _Variants:
    """A language with variants (LanguageConverter)."""

    codes: Mapping[str, tuple[str, ...]]  # of the variants, to those that stand in, the best first
    flags: Mapping[str, str]
    after_code: str
    after_text: str
    separator: re.Pattern[str]  # a semicolon that ends a rule, not one inside a text


class _Words:
    """wikitext.tsv: what MediaWiki translates."""

    def __init__(self, rows: Iterable[list[str]]):
        self.redirects: set[str] = set()
        self.switches: set[str] = set(_rules().switches)
        self.folded_switches: set[str] = set()  # case does not matter
        self.codes: dict[str, str] = {}
        self.names: dict[str, str] = {}  # of variants
        self.variants: dict[str, _Variants] = {}
        self._fallbacks: dict[str, list[str]] = {}
        self._namespaces: dict[str, dict[str, int]] = {}
        codes: dict[str, dict[str, tuple[str, ...]]] = {}
        flags: dict[str, dict[str, str]] = {}
        separators: dict[str, list[str]] = {}
        for kind, language, key, joined in rows:
            words = joined.split("|")
            if kind == "namespace":
                names = self._namespaces.setdefault(language, {})
                names.update((_fold_title(word), int(key)) for word in words)
            elif kind == "switch" and key == "0":
                self.folded_switches.update(word.lower() for word in words)
            elif kind == "switch":
                self.switches.update(words)
            elif kind == "redirect":
                self.redirects.update(word.casefold() for word in words)
            elif kind == "fallback":
                self._fallbacks[language] = words
            elif kind == "code":
                self.codes[language] = joined
            elif kind == "name":
                self.names[language] = joined
            elif kind == "variant":
                codes.setdefault(language, {})[key] = tuple(words) if joined else ()
            elif kind == "flag":
                flags.setdefault(language, {}).update(dict.fromkeys(words, key))
            elif kind == "separator":
                separators[language] = words
        for language, own in codes.items():
            spelt = "|".join([*own, *(code for code, today in self.codes.items() if today in own)])
            ends = re.compile(rf";\s*+(?=(?:[^;=]*+=>\s*+)?(?i:{spelt})\s*+:|\Z)")
            known = {flag: flag for flag in "ATRDHN-"} | flags.get(language, {})
            self.variants[language] = _Variants(own, known, *separators[language], ends)
        odd = [word for word in self.switches | self.folded_switches if not word.endswith(("__", "＿＿"))]
        self.odd_switches = re.compile("|".join(map(re.escape, odd)), re.IGNORECASE)  # MediaWiki's own are wrong there
        self.languages = {*_rules().languages, *self._namespaces, *self._fallbacks, *self.variants}
        self.of_variant = {code: language for language, of in self.variants.items() for code in of.codes if "-" in code}
        everywhere: dict[str, int] = {}
        for names in self._namespaces.values():
            for name, number in names.items():
                everywhere[name] = number if everywhere.get(name, number) == number else 0
        self._everywhere = {name: number for name, number in everywhere.items() if number}

    def namespaces(self, language: str) -> dict[str, int]:
        """Namespace numbers by name in a language and those it falls back to, or in all; names that differ are in none."""
        if language not in self._namespaces and language not in self._fallbacks:
            return self._everywhere
        chain = [language]
        for code in chain:
            chain += [other for other in self._fallbacks.get(code, ()) if other not in chain]
        names: dict[str, int] = {}
        for code in reversed(chain):
            names |= self._namespaces.get(code, {})
        return names


@functools.cache
def _words() -> _Words:
    text = resources.files(__package__).joinpath("wikitext.tsv").read_text(encoding="utf-8")
    return _Words(line.split("\t") for line in text.splitlines() if line[:1] != "#")


def language_code(name: str) -> str:
    """MediaWiki's code of a language by its code or an old one, as in names of wikis ("zh_yue"); "" if it knows none."""
    code = name.lower().replace("_", "-")
    return _words().codes.get(code, code) if code in _words().languages else ""


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
_VARIANT_IN_TARGET = re.compile(r"(?<=-)\{[^{}\[\]<>|\n]*+\}-[^|\[\]\n{}<>]*+")
_URL = re.compile(r"""[^\s\[\]<>"]*+[ \t]*+""")
_PROTECT = str.maketrans({c: f"&#{ord(c)};" for c in "[]{}|'<>=*#:;_-!.,"})
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
        elif self.text[start - 1 : start] in _BEFORE_TAG and self.text[end : end + 1] not in ("", "\n"):
            cuts.append(Cut(start, end, _KNOWN))  # what stood around it may have to go
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
        whole: list[str] = []  # pieces of an argument whose bars lie inside links or rules of language variants
        balance = rules = 0
        has_variants = self.namespaces.language in _words().variants
        for piece in pieces:
            whole.append(piece)
            balance += piece.count("[[") - piece.count("]]")
            if has_variants:
                rules = max(rules + piece.count("-{") - piece.count("}-"), 0)
            if balance > 0 or rules > 0:
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
        stop = _TARGET.match(text, start + 2, end).end()  # type: ignore[union-attr]
        if in_target := _VARIANT_IN_TARGET.match(text, stop, end):
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
        return _KNOWN if before in _BEFORE_TAG and after not in ("", "\n") else ""

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


_BEFORE_TAG = frozenset("\n(（[「“«")
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


_SHOWN = ("lt", "label", "text", "texte", "d", "display", "نص")  # names of the argument that is shown
_LOCAL = ("fr", "عر")  # of the local title, where it is no positional one


def _named(arguments: dict[str, str], names: Iterable[str]) -> str:
    return next((arguments[name] for name in names if arguments.get(name)), "")


def _interlanguage(arguments: dict[str, str], page: _Page) -> str | None:
    """{{ill|Local|de|Foreign|lt=Shown}}, {{tsl|de|Foreign|Local|Shown}}: as the first argument is a language or not."""
    if shown := _named(arguments, (*_SHOWN, *_LOCAL)):
        return shown
    values = _positional(arguments)
    if len(values) > 1 and values[0] in page.rules.languages:
        return next((value for value in (*values[3:1:-1], values[1]) if value), None)
    return (values[0] if values else "") or _named(arguments, ("trad", "تر")) or None


def _link_helper(arguments: dict[str, str], page: _Page) -> str | None:
    """{{link-en|Local|Foreign|Shown}}, {{internal link helper|Local|Foreign|lang=en|d=Shown}}."""
    values = [*_positional(arguments), "", "", ""]
    return _named(arguments, _SHOWN) or values[2] or values[0] or values[1] or None


def _link_interwiki(arguments: dict[str, str], page: _Page) -> str | None:
    """{{link-interwiki|zh=Local|zh_title=Shown|lang=en|lang_title=Foreign}}, elsewhere the local title comes first."""
    own = page.namespaces.language
    for code in [own] if own else [name for name in arguments if name in page.rules.languages]:
        if shown := _named(arguments, (f"{code}_title", f"{code}_text", code)):
            return shown
    return _interlanguage(arguments, page)


def _not_translated(arguments: dict[str, str], page: _Page) -> str | None:
    """{{нп5|Local|Shown|en|Foreign}}: the text is the second argument, in its case, if there is one."""
    values = [*_positional(arguments), "", ""]
    text = "" if values[1] in page.rules.languages else values[1]
    local = _named(arguments, ("надо", "треба", "трэба"))
    return _named(arguments, ("текст", "тэкст", *_SHOWN)) or text or local or values[0] or None


_HANDLERS: dict[str, _Recipe] = {
    "interlanguage": _interlanguage,
    "link helper": _link_helper,
    "link-interwiki": _link_interwiki,
    "not translated": _not_translated,
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
_SWITCH_CHARS = 64  # the longest behaviour switch of MediaWiki has 43


def _without_switches(text: str, mark: str) -> str:
    """The text without behaviour switches: words of MediaWiki between two `mark`s, __NOTOC__."""
    words = _words()
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


def _lines(text: str) -> str:
    """Marks at line starts removed: headings, lists, rules, what is left of tables."""
    for mark in ("__", "＿＿"):
        if mark in text:
            text = _without_switches(text, mark)
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
                    line = heading.strip("=")
                    level = min(len(heading) - len(heading.lstrip("=")), len(heading) - len(heading.rstrip("=")), 6)
                    line = _HEADINGS[level - 1] + line.strip(" \t") if line else heading
            elif first in "*#:;":
                line = line.lstrip("*#:; \t")
                if not line.strip(_BLANK) or (_UNKNOWN not in line and _PUNCTUATION.fullmatch(line)):
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
        if first in _LONE and len(line.strip()) == 1:
            continue  # the end of a sentence on the line before
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


# -------------------------------------------------------------------------------------------------- language variants

MAX_VARIANT_DEPTH = 10  # as LanguageConverter::$mMaxDepth
_RULE_MARK = re.compile(r"-\{|\}-")
_RULE_LANGUAGE = re.compile(r"(?:-\{|[;>|])\s*+([a-zA-Z]{2,3}(?:-[a-zA-Z]{1,8}+){1,3}+)\s*+[:;|]")


def _variants(text: str, language: str) -> str:
    """-{ }- as the wiki shows it in its main variant, that is without conversion: of several texts that of the variant that
    stands in for the main one first (zh: zh-hans, zh-hant, zh-cn, zh-tw, ...; sr: sr-ec; uz: uz-latn; ...), else the first.

    Where the language is unknown, it is that of the variants that the page names; where it has none, nothing is a rule.
    """
    words = _words()
    for found in () if language else _RULE_LANGUAGE.finditer(text):
        code = found[1].lower()
        language = words.of_variant.get(words.codes.get(code, code), "")
        if language:
            break
    if language not in words.variants:
        return text
    done: list[str] = []  # text outside
    open_: list[list[str]] = []  # text inside the rules that are open
    at = 0
    while True:
        found = _RULE_MARK.search(text, at) if open_ else None
        start = found.start() if found else -1 if open_ else text.find("-{", at)
        if start < 0:
            break
        into = open_[-1] if open_ else done
        into.append(text[at:start])
        at = start + 2
        if text[start] == "-":
            if len(open_) < MAX_VARIANT_DEPTH:
                open_.append([])
            else:
                into.append("-{")
        else:
            inside = "".join(open_.pop())
            (open_[-1] if open_ else done).append(_rule(inside, language, words))
    for rule in open_:  # that never close
        done += ["-{", *rule]
    done.append(text[at:])
    return "".join(done)


def _rule(inside: str, language: str, words: _Words) -> str:
    """What -{inside}- shows."""
    of = words.variants[language]
    head, bar, body = inside.partition("|")
    given = [word.strip() for word in head.split(";")] if bar else []
    flags = {of.flags[word] for word in given if word in of.flags}
    body = body if bar else inside
    of_variants = not flags and any(word.lower() in of.codes for word in given)
    if "R" in flags or of_variants:  # as it stands
        return body
    if "N" in flags:
        return words.names.get(body.strip(), "")
    silent = "H" in flags and "D" not in flags
    if silent or "-" in flags or flags == {"T"}:  # adds a rule, takes one away, names the page
        return ""
    both: dict[str, str] = {}  # variant to its text
    one_way: dict[str, dict[str, str]] = {}  # variant to what it makes of a text
    for rule in of.separator.split(body.replace("=&gt;", "=>")):
        code, colon, shown = rule.partition(":")
        if not colon:
            continue
        source, arrow, code = ("", "", code) if "=>" not in code else code.partition("=>")
        code = code.strip().lower()
        code = words.codes.get(code, code)
        if code not in of.codes:  # a text with a colon in it
            both, one_way = {}, {}
            break
        if arrow:
            if source.strip():
                one_way.setdefault(code, {})[source.strip()] = shown.strip()
        elif shown.strip():
            both[code] = shown.strip()
    if not both and not one_way:
        return body
    if "D" in flags:
        described = [("", code, shown) for code, shown in both.items()]
        described += [(f"{a}⇒", code, b) for code, rules in one_way.items() for a, b in rules.items()]
        return "".join(f"{a}{words.names.get(code, code)}{of.after_code}{b}{of.after_text}" for a, code, b in described)
    main = language if language in of.codes else next(iter(of.codes))
    for code in (main, *of.codes[main]):
        if code in both:
            return both[code]
    if main in one_way:
        return next(iter(one_way[main].values()))
    return next(iter(both.values())) if both else next(iter(next(iter(one_way.values())).values()))


# ----------------------------------------------------------------------------------------------------- gaps, sections

_MARK_RUN = re.compile(f"[{_MARKS}]++")
_UNKNOWN_MARK = re.compile(f"{_UNKNOWN}([{_DIGITS}]++)")
_FROM_MARKS = str.maketrans(_DIGITS, "0123456789abcdef")
# sentence ends of all scripts (Unicode STerm, the common ones), and what may follow them
_TERMINAL = frozenset('.!?:;"”»)…。！？．｡：；」』）।॥؟۔؛։።፧၊။។៕᠃᙮܀܂\u0700\u0701')
_AFTER = frozenset(",.;)!?，、。；）！？．」』।॥؟،؛۔։።၊။។៕་།")  # a sentence goes on or ends with them
_DASHES = "-–—/"
_SEPARATORS = frozenset(" \xa0\u3000,;:·・，、；：،؛" + _DASHES)  # what is left over when one of several things goes
_ENDS = frozenset(".!?。！？．।॥؟۔։።။។៕")
_PAIRS = {"(": ")", "（": "）", "[": "]", "〔": "〕", "【": "】", "「": "」", "『": "』", "“": "”", "„": "“", "«": "»", "‹": "›",
          "⟨": "⟩", "〈": "〉", "《": "》"}  # fmt: skip
_CLOSING = frozenset(_PAIRS.values()) - {"“"}
_OPENING = frozenset(_PAIRS) - {"“", "„", "«", "‹"}
_LINE_STARTS = frozenset(("", "\n", *_HEADINGS))
_GAP_CHARS = 64  # how far separators are followed on either side of a mark
_GONE_TOO = re.compile(
    rf"[{_MARKS}]++|[{re.escape(''.join(_PAIRS))}][{re.escape(''.join(_SEPARATORS))}{_MARKS}]*+[{re.escape(''.join(_PAIRS.values()))}]"
)
_ONLY_PUNCTUATION = re.compile(rf"\n[^\w\n{_GONE}]*+{_GONE}[^\w\n]*+(?=\n|\Z)")


def _fill_gaps(text: str, dropped: list[str]) -> tuple[str, tuple[str, ...]]:
    """Marks removed with the blanks, punctuation and empty brackets they leave; names those inside a sentence.

    Of a row of separators around a mark one stays; at the start and at the end of a line, beside a bracket and before the end
    of a sentence, none. A line without a word that held a mark goes.
    """
    found = _MARK_RUN.search(text)
    if found is None:
        return text, ()
    gaps: list[str] = []
    pieces: list[str] = []
    at = 0  # text before is done
    while found:
        start, end = found.span()
        gaps += _names(found, dropped)
        left, right = _spread(text, start, end, at)
        while True:  # brackets with nothing else in them belong to the mark
            while (more := _GONE_TOO.match(text, right)) and _MARK_RUN.search(text, right, more.end()):
                for run in _MARK_RUN.finditer(text, right, more.end()):
                    gaps += _names(run, dropped)
                left, right = _spread(text, left, more.end(), at)
            before, after = text[left - 1 : left] if left > at else "", text[right : right + 1]
            quoted = (
                before == after == '"' and (left, right) == (start, end) and not text[right + 1 : right + 2].isalnum()
            )
            if not (before and (_PAIRS.get(before) == after or quoted)):
                break
            left, right = left - 1, right + 1
            start, end = left, right
            left, right = _spread(text, left, right, at)
        pieces += [text[at:left], _between(text, left, start, end, right), _GONE]
        if after in _ENDS and text[right + 1 : right + 2] not in _ENDS:  # no ellipsis
            if before in _ENDS:
                right += 1
            elif before in _LINE_STARTS:
                right = _spread(text, right + 1, right + 1, right + 1)[1]
        at = right
        found = _MARK_RUN.search(text, at)
    pieces.append(text[at:])
    text = "".join(pieces)
    return _ONLY_PUNCTUATION.sub("", "\n" + text).replace(_GONE, "")[1:], tuple(gaps)


def _spread(text: str, start: int, end: int, at: int) -> tuple[int, int]:
    """start..end with the separators around it, no further back than `at`."""
    low, high = max(at, start - _GAP_CHARS), min(len(text), end + _GAP_CHARS)
    while start > low and text[start - 1] in _SEPARATORS:
        start -= 1
    while end < high and text[end] in _SEPARATORS:
        end += 1
    return start, end


def _between(text: str, left: int, start: int, end: int, right: int) -> str:
    """What stays of the separators in left..right, of which start..end is gone."""
    before, after = text[left - 1 : left], text[right : right + 1]
    if before in _OPENING or after in _CLOSING or before in _LINE_STARTS:
        return ""
    ahead = text[left:start]
    behind = _MARK_RUN.sub("", text[end:right])
    if after in ("", "\n"):
        return ":" if ":" in ahead + behind else "：" if "：" in ahead + behind else ""
    if after in _ENDS:
        return ""
    sign, other = ahead.strip(" \xa0\u3000"), behind.strip(" \xa0\u3000")
    if not sign and not other:
        return ahead[-1:] or behind[:1]
    if sign and not (other and sign in _DASHES and ahead == sign):  # a hyphen goes with what it was tied to
        return ahead if ahead[-1] == " " or not behind[-1:].isspace() else ahead + " "
    blank = (behind[:1] if behind[0].isspace() else ahead[-1:]) if other[0] in _DASHES else ""
    return blank + other[0] + (" " if behind[-1].isspace() else "")


def _names(run: re.Match[str], dropped: list[str]) -> list[str]:
    """The unknown templates that a run of marks stands for, if it is inside a sentence."""
    if _UNKNOWN not in run[0] or not _inside_sentence(run.string, *run.span()):
        return []
    return [dropped[int(n.translate(_FROM_MARKS), 16)] for n in _UNKNOWN_MARK.findall(run[0])]


def _inside_sentence(text: str, start: int, end: int) -> bool:
    """True if a sentence runs on over start..end: it does not end before, or goes on after, on the same line.

    A sentence goes on with a small letter, or with a letter of a script without case: there a start cannot be told.
    """
    before, after = text[max(start - 2, 0) : start].rstrip(" \xa0")[-1:], text[end : end + 2].lstrip(" \xa0")[:1]
    if before not in _LINE_STARTS and before not in _TERMINAL:
        return True
    return after in _AFTER or (after.isalpha() and not after.isupper() and not after.istitle()) if after else False


def _sections(text: str) -> str:
    """Headings without their marks; those without text below them, in their own section or a deeper one, gone."""
    parts = _HEADING.split(text)
    if len(parts) == 1:
        return text
    next_level = 0  # of the next heading that stays; deeper ones belong to this one
    for i in range(len(parts) - 2, 0, -2):
        level = _HEADINGS.index(parts[i]) + 1
        _, newline, body = parts[i + 1].partition("\n")
        blank = not body or body.isspace()
        parts[i] = ""
        if blank and next_level <= level:
            parts[i + 1] = newline + body
        else:
            next_level = level
    return "".join(parts)


_HEADING = re.compile(f"([{_HEADINGS}])")
_ENTITY = re.compile(r"&(?:#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6}|[a-zA-Z][a-zA-Z0-9]{1,31});")


def _entities(text: str) -> str:
    """HTML entities decoded once, those that end in a semicolon only: `&sect` in a URL is none."""
    return _ENTITY.sub(lambda found: _decode(found[0]), text) if "&" in text else text


@functools.lru_cache(1024)
def _decode(entity: str) -> str:
    return _CONTROL.sub("", html.unescape(entity))  # no mark of ours


_NEWLINES = re.compile("\n\n\n+")


def _blank_lines(text: str) -> str:
    """Runs of blanks to one, of blank lines to one, none at the ends of lines."""
    while "  " in text:  # halves the longest run
        text = text.replace("  ", " ")
    return _NEWLINES.sub("\n\n", text.replace(" \n", "\n").replace("\n ", "\n")).strip()
