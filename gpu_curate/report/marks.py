"""What in a text tripped a rule, as spans to be pointed out. Close to what ops.text_stats counts, for people to look at."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator

from gpu_curate.ops.text_stats import (
    CLOSING,
    KIND,
    SHORT_LINE_CHARS,
    STOP_WORDS,
    TERMINAL,
    character_classes,
)
from gpu_curate.text.scripts import chars_of

Span = tuple[int, int]  # start and stop, in characters


def marks(text: str, reason: str) -> list[Span]:
    """The spans of a text that a rule of this reason counts, in order, not overlapping; [] where it counts all of it."""
    family, _, rule = reason.partition(":")
    if family not in ("gopher_quality", "gopher_repetition", "c4", "fineweb"):
        return []
    n = re.search(r"_(\d+)_gram_", rule)
    if n is not None:
        return _joined(_top_ngram(text, int(n[1])) if rule.startswith("top_") else _repeated_ngrams(text, int(n[1])))
    if "paragraph" in rule:
        return _repeated(text, r"[^\n]+(?:\n[^\n]+)*")
    if "duplicate_line" in rule:
        return _repeated(text, r"[^\n]+")
    finder = _FINDERS.get(rule)
    return [] if finder is None else list(finder(text))


def _repeated(text: str, pattern: str) -> list[Span]:
    """Pieces that occurred before."""
    seen: set[str] = set()
    spans = []
    for m in re.finditer(pattern, text):
        piece = m.group()
        if not piece.strip():
            continue
        if piece in seen:
            spans.append(m.span())
        seen.add(piece)
    return spans


def _ngrams(text: str, n: int) -> Iterator[tuple[tuple[str, ...], Span]]:
    words = [(m.group(), m.span()) for m in re.finditer(r"\S+", text)]
    for i in range(len(words) - n + 1):
        yield tuple(w for w, _ in words[i : i + n]), (words[i][1][0], words[i + n - 1][1][1])


def _top_ngram(text: str, n: int) -> Iterator[Span]:
    counts = Counter(gram for gram, _ in _ngrams(text, n))
    if counts:
        top = counts.most_common(1)[0][0]
        yield from (span for gram, span in _ngrams(text, n) if gram == top)


def _repeated_ngrams(text: str, n: int) -> Iterator[Span]:
    seen: set[tuple[str, ...]] = set()
    free = 0  # words up to here are counted already
    for i, (gram, span) in enumerate(_ngrams(text, n)):
        if i < free:
            continue
        if gram in seen:
            yield span
            free = i + n
        seen.add(gram)


def _lines(wanted: Callable[[str], bool]) -> Callable[[str], Iterator[Span]]:
    def find(text: str) -> Iterator[Span]:
        for m in re.finditer(r"[^\n]+", text):
            line = m.group().strip()
            if line and wanted(line):
                yield m.span()

    return find


def _pieces(pattern: str) -> Callable[[str], Iterator[Span]]:
    return lambda text: (m.span() for m in re.finditer(pattern, text))


def _words(wanted: Callable[[str], bool]) -> Callable[[str], Iterator[Span]]:
    return lambda text: (m.span() for m in re.finditer(r"\S+", text) if wanted(m.group()))


def _classes(c: str) -> int:
    stage1, stage2 = character_classes()
    place = ord(c)
    return int(stage2[int(stage1[place >> 8]) * 256 + (place & 255)]) if place >> 8 < len(stage1) else 0


def _is_ended(line: str) -> bool:
    """A TERMINAL character stands at its end, or before the CLOSING ones there."""
    while line and _classes(line[-1]) & KIND == CLOSING:
        line = line[:-1]
    return bool(line) and bool(_classes(line[-1]) & TERMINAL)


def _c4_ended(line: str) -> bool:
    return (_is_ended(line) or line.endswith(('"', "'"))) and not line.endswith("...")


def _is_short(line: str) -> bool:
    return sum(map(chars_of, line)) <= SHORT_LINE_CHARS


_ELLIPSIS = r"\.\.\.|\u2026"
_FINDERS: dict[str, Callable[[str], Iterator[Span]]] = {
    "too_many_hashes": _pieces("#"),
    "too_many_ellipses": _pieces(_ELLIPSIS),
    "too_many_bullet_lines": _lines(lambda line: line.startswith(("-", "\u2022"))),
    "too_many_ellipsis_lines": _lines(lambda line: line.endswith(("...", "\u2026"))),
    "too_few_alphabetic_words": _words(lambda word: not any(c.isalpha() for c in word)),
    "too_few_stop_words": _words(lambda word: word.lower() in _STOP_WORDS),
    "too_few_terminal_lines": _lines(lambda line: not _is_ended(line)),
    "too_many_short_lines": _lines(_is_short),
    "too_many_newlines": _pieces("\n"),
    "lorem_ipsum": _pieces("(?i)lorem ipsum"),
    "curly_bracket": _pieces(r"\{"),
    "too_few_sentences": _lines(lambda line: not _c4_ended(line)),
}
_STOP_WORDS: set[str] = {w.decode() if isinstance(w, bytes) else str(w) for w in STOP_WORDS}


def _joined(spans: Iterator[Span]) -> list[Span]:
    """Spans in order, those that touch or overlap as one."""
    found: list[Span] = []
    for start, stop in spans:
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(stop, found[-1][1]))
        else:
            found.append((start, stop))
    return found
