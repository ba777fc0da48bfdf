"""What a template shows: recipes of wikitext.yaml and handlers."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from gpu_curate.text.wikitext.marks import Cut

if TYPE_CHECKING:
    from gpu_curate.text.wikitext.page import Page


def apply_recipe(text: str, cuts: list[Cut]) -> str:
    pieces: list[str] = []
    at = 0
    for start, end, new in cuts:
        if end <= at:
            continue
        if start > at:
            pieces.append(text[at:start])
        pieces.append(new)  # type: ignore[arg-type]  # text, as that of the cuts here
        at = end
    pieces.append(text[at:])
    return "".join(pieces)


# ---------------------------------------------------------------------------------------------------- recipes
# What a prose template shows: literal text, {slots} and [optional parts].

Recipe = Callable[[dict[str, str], "Page"], "str | None"]
SLOT = re.compile(r"\{(?:(\d*)\*([^{}]*)|([^{}]+))\}")


def recipe_of(source: str) -> Recipe:
    """A recipe from its line in wikitext.yaml; None as its result means: nothing to show, a gap."""
    if source.startswith("=") and len(source) > 1:
        return _HANDLERS[source[1:]]
    if "{" not in source:
        return lambda arguments, page: source
    parts = re.split(r"\[([^\[\]]*)\]", source)  # odd ones are optional

    def show(arguments: dict[str, str], page: Page) -> str | None:
        pieces = []
        filled = False
        for i, part in enumerate(parts):
            values: list[str] = []

            def fill(slot: re.Match[str], values: list[str] = values) -> str:
                value = slot_of(slot, arguments)
                values.append(value)
                return value

            shown = SLOT.sub(fill, part)
            if any(values):
                filled = True
            elif i % 2:
                continue
            pieces.append(shown)
        return "".join(pieces) if filled else None

    return show


def slot_of(slot: re.Match[str], arguments: dict[str, str]) -> str:
    first, separator, names = slot.groups()
    if names is not None:
        for name in names.split("|"):
            value = (_positional(arguments) or [""])[-1] if name == "-1" else arguments.get(name)
            if value:
                return value
        return ""
    return separator.join(v for v in _positional(arguments)[int(first or 1) - 1 :] if v)


def _positional(arguments: dict[str, str]) -> list[str]:
    values: list[str] = []
    while (value := arguments.get(str(len(values) + 1))) is not None:
        values.append(value)
    return values


def _title(arguments: dict[str, str], page: Page) -> str | None:
    return page.title or None


def _convert(arguments: dict[str, str], page: Page) -> str | None:
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


def _date(arguments: dict[str, str], page: Page) -> str | None:
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


def _as_of(arguments: dict[str, str], page: Page) -> str | None:
    date = _date({**arguments, "df": arguments.get("df", "y")}, page)
    alternative = arguments.get("alt")
    if alternative:
        return alternative
    word = "since" if "since" in arguments else "as of"
    return date and f"{word if arguments.get('lc') else word.capitalize()} {date}"


def _fraction(arguments: dict[str, str], page: Page) -> str | None:
    """{{frac|2}} is 1/2, {{frac|3|4}} is 3/4, {{frac|1|3|4}} is 1 3/4."""
    values = _positional(arguments)
    if not values:
        return None
    if len(values) == 1:
        return f"1/{values[0]}"
    whole = "".join(f"{v} " for v in values[:-2])
    return f"{whole}{values[-2]}/{values[-1]}"


def _century(arguments: dict[str, str], page: Page) -> str | None:
    """{{s|XIX}}, {{s|XIX|e}}: XIXe siècle. On other wikis `s` is something else, and its argument no Roman numeral."""
    number = arguments.get("1", "").upper()
    return f"{number}{arguments.get('2', 'e')} siècle" if _ROMAN.fullmatch(number) else None


_ROMAN = re.compile("[IVX]+")


def _glossed(arguments: dict[str, str], page: Page) -> str | None:
    """{{nihongo|Tokyo|東京|Tōkyō}}: Tokyo (東京, Tōkyō)."""
    first, *others = _positional(arguments) or [""]
    others = [v for v in others if v]
    return (f"{first} ({', '.join(others)})" if others else first) or None


def _music(arguments: dict[str, str], page: Page) -> str | None:
    """{{music|flat}}, {{music|sharp}}: the sign."""
    sign = arguments.get("1", "").lower()
    return {"flat": "♭", "b": "♭", "sharp": "♯", "#": "♯", "natural": "♮", "n": "♮"}.get(sign)


def _ordinal(arguments: dict[str, str], page: Page) -> str | None:
    """{{ordinal|3}}: 3rd."""
    number = arguments.get("1", "")
    if not number.isdecimal():
        return number or None
    teens = int(number) % 100 in (11, 12, 13)
    return number + ("th" if teens else {1: "st", 2: "nd", 3: "rd"}.get(int(number) % 10, "th"))


def _if(arguments: dict[str, str], page: Page) -> str | None:
    return arguments.get("2" if arguments.get("1") else "3", "")


_SHOWN = ("lt", "label", "text", "texte", "d", "display", "نص")  # names of the argument that is shown
_LOCAL = ("fr", "عر")  # of the local title, where it is no positional one


def _named(arguments: dict[str, str], names: Iterable[str]) -> str:
    return next((arguments[name] for name in names if arguments.get(name)), "")


def _interlanguage(arguments: dict[str, str], page: Page) -> str | None:
    """{{ill|Local|de|Foreign|lt=Shown}}, {{tsl|de|Foreign|Local|Shown}}: as the first argument is a language or not."""
    if shown := _named(arguments, (*_SHOWN, *_LOCAL)):
        return shown
    values = _positional(arguments)
    if len(values) > 1 and values[0] in page.rules.languages:
        return next((value for value in (*values[3:1:-1], values[1]) if value), None)
    return (values[0] if values else "") or _named(arguments, ("trad", "تر")) or None


def _link_helper(arguments: dict[str, str], page: Page) -> str | None:
    """{{link-en|Local|Foreign|Shown}}, {{internal link helper|Local|Foreign|lang=en|d=Shown}}."""
    values = [*_positional(arguments), "", "", ""]
    return _named(arguments, _SHOWN) or values[2] or values[0] or values[1] or None


def _link_interwiki(arguments: dict[str, str], page: Page) -> str | None:
    """{{link-interwiki|zh=Local|zh_title=Shown|lang=en|lang_title=Foreign}}, elsewhere the local title comes first."""
    own = page.namespaces.language
    for code in [own] if own else [name for name in arguments if name in page.rules.languages]:
        if shown := _named(arguments, (f"{code}_title", f"{code}_text", code)):
            return shown
    return _interlanguage(arguments, page)


def _not_translated(arguments: dict[str, str], page: Page) -> str | None:
    """{{нп5|Local|Shown|en|Foreign}}: the text is the second argument, in its case, if there is one."""
    values = [*_positional(arguments), "", ""]
    text = "" if values[1] in page.rules.languages else values[1]
    local = _named(arguments, ("надо", "треба", "трэба"))
    return _named(arguments, ("текст", "тэкст", *_SHOWN)) or text or local or values[0] or None


_HANDLERS: dict[str, Recipe] = {
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
    "title": _title,
}
