"""What the words of a wiki mean: wikitext.yaml and wikitext.tsv, read once."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any

from gpu_curate.text.wikitext.templates import Recipe, recipe_of

MAX_TEMPLATE_DEPTH = 40  # prose templates inside each other, as MediaWiki's $wgMaxTemplateDepth; deeper is a gap
TARGET_CHARS = 1024  # a link target is at most 255 bytes (MediaWiki) and a section; further no bar is looked for

FILE, CATEGORY, MEDIA, TEMPLATE = 6, 14, -2, 10


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
        numbers = wikitext_rules().namespaces | wiki_words().namespaces(language)
        numbers.update((fold_title(name), number) for number, name in local if name)
        return cls(numbers, language)

    def number(self, title: str) -> int:
        """The namespace of a title: 0 if what precedes the first colon is no namespace."""
        prefix, colon, _ = title.partition(":")
        return self.numbers.get(fold_title(prefix), 0) if colon else 0


@functools.cache
def canonical_spaces() -> Namespaces:
    return Namespaces.of()


# ------------------------------------------------------------------------------------------------------------ rules


class _Rules:
    """wikitext.yaml, compiled."""

    def __init__(self, data: dict[str, Any]):
        self.templates: dict[str, Recipe] = {}
        for recipe, names in data["prose"].items():
            compiled = recipe_of(recipe)
            for name in names:
                self.templates[fold_title(name)] = compiled
        self.prefixes = {prefix: recipe_of(recipe) for prefix, recipe in data["prose_prefixes"].items()}
        self.dropped = {fold_title(name) for name in data["dropped"]}
        self.dropped_prefixes = tuple(data["dropped_prefixes"])
        self.dropped_suffixes = tuple(data["dropped_suffixes"])
        self.languages = frozenset(data["languages"])
        for recipe, patterns in data["prose_languages"].items():
            compiled = recipe_of(recipe)
            for pattern in patterns:
                for language in self.languages:
                    self.templates.setdefault(pattern.replace("{}", language), compiled)
        self.switches = frozenset(data["switches"])
        self.namespaces = {fold_title(name): int(n) for n, names in data["namespaces"].items() for name in names}
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
def wikitext_rules() -> _Rules:
    from ruamel.yaml import YAML

    text = resources.files(__package__).joinpath("wikitext.yaml").read_text(encoding="utf-8")
    return _Rules(YAML(typ="safe", pure=True).load(text))


@dataclass(frozen=True)
class _Variants:
    """A language with variants (LanguageConverter)."""

    codes: Mapping[str, tuple[str, ...]]  # of the variants, to those that stand in, the best first
    flags: Mapping[str, str]
    after_code: str
    after_text: str
    separator: re.Pattern[str]  # a semicolon that ends a rule, not one inside a text


class Words:
    """wikitext.tsv: what MediaWiki translates."""

    def __init__(self, rows: Iterable[list[str]]):
        self.redirects: set[str] = set()
        self.switches: set[str] = set(wikitext_rules().switches)
        self.folded_switches: set[str] = set()  # case does not matter
        self.codes: dict[str, str] = {}
        self.names: dict[str, str] = {}  # of variants
        self.variants: dict[str, _Variants] = {}
        self._fallbacks: dict[str, list[str]] = {}
        self._namespaces: dict[str, dict[str, int]] = {}
        codes: dict[str, dict[str, tuple[str, ...]]] = {}
        flags: dict[str, dict[str, str]] = {}
        separators: dict[str, tuple[str, str]] = {}
        for kind, language, key, joined in rows:
            words = joined.split("|")
            if kind == "namespace":
                names = self._namespaces.setdefault(language, {})
                names.update((fold_title(word), int(key)) for word in words)
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
                after_code, after_text = words
                separators[language] = after_code, after_text
        for language, own in codes.items():
            spelt = "|".join([*own, *(code for code, today in self.codes.items() if today in own)])
            ends = re.compile(rf";\s*+(?=(?:[^;=]*+=>\s*+)?(?i:{spelt})\s*+:|\Z)")
            known = {flag: flag for flag in "ATRDHN-"} | flags.get(language, {})
            self.variants[language] = _Variants(own, known, *separators[language], ends)
        odd = [word for word in self.switches | self.folded_switches if not word.endswith(("__", "＿＿"))]
        self.odd_switches = re.compile("|".join(map(re.escape, odd)), re.IGNORECASE)  # MediaWiki's own are wrong there
        self.languages = {*wikitext_rules().languages, *self._namespaces, *self._fallbacks, *self.variants}
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
def wiki_words() -> Words:
    text = resources.files(__package__).joinpath("wikitext.tsv").read_text(encoding="utf-8")
    return Words(line.split("\t") for line in text.splitlines() if line[:1] != "#")


def language_code(name: str) -> str:
    """MediaWiki's code of a language by its code or an old one, as in names of wikis ("zh_yue"); "" if it knows none."""
    code = name.lower().replace("_", "-")
    return wiki_words().codes.get(code, code) if code in wiki_words().languages else ""


def fold_title(name: str) -> str:
    return " ".join(name.replace("_", " ").split()).lower()
