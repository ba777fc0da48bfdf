"""Language variants, -{ }-, on wikis that have them."""

from __future__ import annotations

import re

from gpu_curate.text.wikitext.tables import Words, wiki_words

# -------------------------------------------------------------------------------------------------- language variants

MAX_VARIANT_DEPTH = 10  # as LanguageConverter::$mMaxDepth
_RULE_MARK = re.compile(r"-\{|\}-")
_RULE_LANGUAGE = re.compile(r"(?:-\{|[;>|])\s*+([a-zA-Z]{2,3}(?:-[a-zA-Z]{1,8}+){1,3}+)\s*+[:;|]")


def without_variants(text: str, language: str) -> str:
    """-{ }- as the wiki shows it in its main variant, that is without conversion: of several texts that of the variant that
    stands in for the main one first (zh: zh-hans, zh-hant, zh-cn, zh-tw, ...; sr: sr-ec; uz: uz-latn; ...), else the first.

    Where the language is unknown, it is that of the variants that the page names; where it has none, nothing is a rule.
    """
    words = wiki_words()
    for named in () if language else _RULE_LANGUAGE.finditer(text):
        code = named[1].lower()
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


def _rule(inside: str, language: str, words: Words) -> str:
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
