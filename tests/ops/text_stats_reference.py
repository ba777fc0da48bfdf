"""The definition of `ops.text_stats` as slow, plain Python over a str."""

import re
from collections import Counter

from gpu_curate.ops.text_stats import (
    ALPHABETIC,
    CLOSING,
    DOUBLE,
    DUPLICATE_N,
    HAN,
    KANA,
    KIND,
    NAMES,
    SPACE,
    STOP_WORDS,
    SYMBOL,
    TABLE_LIMIT,
    TERMINAL,
    TOP_N,
    UNSPACED,
    UPPERCASE,
    character_classes,
)

POLICIES = ("terms of use", "privacy policy", "cookie policy", "uses cookies", "use of cookies", "use cookies")
CITATIONS_AT_END = re.compile(r"(?:\[[0-9]*\]|\[edit\]|\[citation needed\])+\Z")
ASCII_LOWER = {c: c + 32 for c in range(65, 91)}


def classes(c: str) -> int:
    """Classes of one character; an ill-formed byte has been decoded to a surrogate, U+DC80 + (byte - 0x80)."""
    if "\udc80" <= c <= "\udcff":
        return SYMBOL
    if ord(c) >= TABLE_LIMIT:
        return 0
    stage1, stage2 = character_classes()
    return int(stage2[int(stage1[ord(c) >> 8]) * 256 + (ord(c) & 255)])


def size(s: str) -> int:
    """Characters: bytes that are no continuation bytes, so a stray one (U+DC80..U+DCBF) is none."""
    return sum(not "\udc80" <= c <= "\udcbf" for c in s)


def letters(s: str, *kinds: int) -> int:
    return sum(classes(c) & KIND in kinds for c in s)


def measure(line: str) -> int:
    """Its characters, as short lines count them."""
    return size(line) + 3 * letters(line, HAN) + letters(line, KANA, DOUBLE)


def c4_words(line: str) -> int:
    return len(split(line)) + (8 * letters(line, HAN) + 3 * letters(line, KANA, UNSPACED)) // 12


def without_closing(s: str) -> str:
    while s and classes(s[-1]) & KIND == CLOSING:
        s = s[:-1]
    return s


def split(s: str) -> list[str]:
    return re.findall(r"\S+", "".join(" " if classes(c) & SPACE else c for c in s))


def strip(s: str) -> str:
    spaces = "".join({c for c in s if classes(c) & SPACE})
    return s.strip(spaces) if spaces else s


def duplicates(parts: list[str]) -> tuple[int, int]:
    seen: set[str] = set()
    again = [p for p in parts if p in seen or seen.add(p)]
    return len(again), sum(map(size, again))


def ngrams(words: list[str], n: int) -> list[tuple[str, ...]]:
    return [tuple(words[i : i + n]) for i in range(len(words) - n + 1)]


def top_ngram(words: list[str], n: int) -> int:
    counts = Counter(ngrams(words, n))
    if not counts:
        return 0
    ngram, times = counts.most_common(1)[0]  # of equals, the one met first
    return (sum(map(size, ngram)) + n - 1) * times


def duplicate_ngrams(words: list[str], n: int) -> int:
    seen, chars, i = set(), 0, 0
    while i + n <= len(words):
        ngram = tuple(words[i : i + n])
        if ngram in seen:
            chars += sum(map(size, ngram))
            i += n
        else:
            seen.add(ngram)
            i += 1
    return chars


def sentences(line: str) -> int:
    kinds = "".join(
        "." if c == "." else "T" if classes(c) & TERMINAL else "U" if classes(c) & UPPERCASE else "x" for c in line
    )
    kinds = "".join("q" if c in "\"'" or classes(c) & KIND == CLOSING else k for c, k in zip(line, kinds, strict=True))
    return max(1, len(re.findall(r"(?:U\.|.)+?[.T]+q?", kinds)))


def c4(line: str) -> tuple[str, bool]:
    """(fate without the rule on the end of a line, whether the end is right)."""
    words, line = split(line), strip(line)
    lower = line.translate(ASCII_LOWER)
    end = without_closing(CITATIONS_AT_END.sub("", line))
    ended = bool(end) and (end[-1] in "\"'" or bool(classes(end[-1]) & TERMINAL)) and not end.endswith("...")
    if any(size(w) > 1000 and not letters(w, HAN, KANA, UNSPACED) for w in words):
        return "long word", ended
    if c4_words(line) < 3:
        return "few words", ended
    if "lorem ipsum" in lower:
        return "lorem ipsum", ended
    if "javascript" in lower:
        return "javascript", ended
    if "{" in line:
        return "curly bracket", ended
    return "policy" if any(p in lower for p in POLICIES) else "kept", ended


def reference(data: bytes, stop_words: tuple[str, ...] = STOP_WORDS) -> dict[str, int]:
    text = data.decode("utf-8", "surrogateescape")
    words = split(text)
    solid = [w for w in words if any(not classes(c) & SYMBOL for c in w)]
    lines = text.removesuffix("\n").split("\n") if text else []
    written = [line for line in lines if split(line)]
    last = [split(line)[-1] for line in written]
    paragraphs = [p for p in re.split("\n{2,}", strip(text)) if split(p)]
    fates = [(line, *c4(line)) for line in written]
    kept = [line for line, fate, ended in fates if fate == "kept" and ended]

    r = {
        "chars": size(text),
        "newlines": text.count("\n"),
        "words": len(words),
        "alphabetic_words": sum(any(classes(c) & ALPHABETIC for c in w) for w in words),
        "non_symbol_words": len(solid),
        "non_symbol_word_chars": sum(map(size, solid)),
        "stop_words": len(set(stop_words) & set(words)),
        "hashes": text.count("#"),
        "ellipses": text.count("...") + text.count("\u2026"),
        "lines": len(lines),
        "nonblank_lines": len(written),
        "bullet_lines": sum(strip(line).startswith(("-", "\u2022")) for line in written),
        "ellipsis_lines": sum(w.endswith(("...", "\u2026")) for w in last),
        "terminal_lines": sum(bool(classes((without_closing(line) or "x")[-1]) & TERMINAL) for line in written),
        "short_lines": sum(measure(line) <= 30 for line in written),
        "paragraphs": len(paragraphs),
        "han_letters": letters(text, HAN),
        "unspaced_letters": letters(text, KANA, UNSPACED),
        "double_letters": letters(text, KANA, DOUBLE),
        "c4_kept_lines": len(kept),
        "c4_kept_words": sum(len(split(line)) for line in kept),
        "c4_sentences": sum(sentences(strip(line)) for line in kept),
        "c4_lorem_ipsum_lines": sum(fate == "lorem ipsum" and ended for _, fate, ended in fates),
        "c4_curly_bracket_lines": sum(fate == "curly bracket" and ended for _, fate, ended in fates),
        "c4_unended_sentences": sum(sentences(strip(line)) for line, fate, _ in fates if fate == "kept"),
        "c4_unended_lorem_ipsum_lines": sum(fate == "lorem ipsum" for _, fate, _ in fates),
        "c4_unended_curly_bracket_lines": sum(fate == "curly bracket" for _, fate, _ in fates),
    }
    r["duplicate_lines"], r["duplicate_line_chars"] = duplicates(written)
    r["duplicate_paragraphs"], r["duplicate_paragraph_chars"] = duplicates(paragraphs)
    repeated = [n for n in range(2, 11) if len(ngrams(words, n)) > len(set(ngrams(words, n)))]
    r["longest_repeated_n_gram"] = max(repeated, default=0)
    r |= {f"top_{n}_gram_chars": min(top_ngram(words, n), size(text)) for n in TOP_N}
    r |= {f"duplicate_{n}_gram_chars": duplicate_ngrams(words, n) for n in DUPLICATE_N}
    return {name: r[name] for name in NAMES}
