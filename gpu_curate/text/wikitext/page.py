"""One page: its scan from the inside out."""

from __future__ import annotations

import re

from gpu_curate.text.wikitext.marks import BAR, BEFORE_TAG, HEX_MARKS, KNOWN, MARKS, NO_KEY, UNKNOWN, Cut, Template
from gpu_curate.text.wikitext.tables import (
    MAX_TEMPLATE_DEPTH,
    TARGET_CHARS,
    TEMPLATE,
    Namespaces,
    fold_title,
    wiki_words,
    wikitext_rules,
)

# The inside of a tag up to ">": quoted values may hold ">"; a quote that does not close is no quote.
_ATTRIBUTES = r"""(?:\s(?:(?:[^<>"']++|"[^"<]*+"|'[^'<]*+')*+(?=>)|[^<>]*+))?+"""
_RAW_TAG = re.compile(rf"<\w++{_ATTRIBUTES}(?:(?<=/)|/)?>")
SECOND_SCAN = re.compile(
    r"\[\[(?:[^|\[\]\n{}<>:]*+(\|[^|\[\]\n{}<>]*+)?+\]\])?+|\]+"  # most links are whole: [[target]], [[target|label]]
    r"|\[(?=(?i:https?:|ftps?:|ircs?:|news:|mailto:|tel:|geo:|urn:|magnet:|gopher:|git:|sftp:|ssh:|svn:|telnet:)|//)"
    rf"|<(/?)([a-zA-Z][a-zA-Z0-9]*+)(?:{_ATTRIBUTES}/?>|(?=\s[^<>\n=]*+=)[^<>\n]*+)"
    rf"|\n[ \t:*#;{MARKS}]*+\{{\||\n[ \t:*#;]*+\|\}}"
)
TARGET = re.compile(rf"[^|\[\]\n{{}}<>]{{0,{TARGET_CHARS}}}+")
VARIANT_IN_TARGET = re.compile(r"(?<=-)\{[^{}\[\]<>|\n]*+\}-[^|\[\]\n{}<>]*+")
EXTERNAL_URL = re.compile(r"""[^\s\[\]<>"]*+[ \t]*+""")
_PROTECT = str.maketrans({c: f"&#{ord(c)};" for c in "[]{}|'<>=*#:;_-!.,"})
_NAME = re.compile(r"\s*+([^|{}<\[\]\n]*+)")


class Page:
    """State of one extraction."""

    def __init__(self, text: str, namespaces: Namespaces, title: str):
        self.text, self.namespaces, self.title = text, namespaces, title
        self.rules = wikitext_rules()
        self.dropped: list[str] = []  # names behind the UNKNOWN marks
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
        elif self.text[start - 1 : start] in BEFORE_TAG and self.text[end : end + 1] not in ("", "\n"):
            cuts.append(Cut(start, end, KNOWN))  # what stood around it may have to go
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
        folded = fold_title(name)
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
            return KNOWN
        return self._mark(folded or "{{}}")

    def _mark(self, name: str) -> str:
        number = len(self.dropped)
        self.dropped.append(name)
        return UNKNOWN + f"{number:x}".translate(HEX_MARKS)

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
        _, _, default = self._render(template.start, template.end, template.cuts, depth + 1, BAR).partition(BAR)
        return default.replace(BAR, "|")

    def _arguments(self, template: Template, depth: int, is_function: bool) -> dict[str, str]:
        """Arguments by name, positional ones as "1", "2", ...; of a parser function "1" is what follows its colon."""
        pieces = self._render(template.start, template.end, template.cuts, depth + 1, BAR).split(BAR)
        if is_function:
            pieces[0] = pieces[0].partition(":")[2]
        else:
            pieces = pieces[1:]
        arguments: dict[str, str] = {}
        position = 0
        whole: list[str] = []  # pieces of an argument whose bars lie inside links or rules of language variants
        balance = rules = 0
        has_variants = self.namespaces.language in wiki_words().variants
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
            if equals and not is_function and not NO_KEY.search(key):
                if value := value.strip():
                    arguments[key.strip().lower()] = value
            else:
                position += 1
                arguments[str(position)] = argument.strip()
        if whole:
            position += 1
            arguments[str(position)] = "|".join(whole).strip()
        return arguments
