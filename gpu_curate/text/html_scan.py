"""How large and how deep an HTML page is, told without building a tree: what a parser would choke on is not shown to it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpu_curate.jit import U8, U64, njit

# What each element means for nesting, one word: flags, end priority << 4, class << 8, classes that it ends << 17.
_INLINE_FLAG, _RAW_FLAG, _VOID_FLAG = 2, 4, 8
_CLASS_SHIFT, _ENDS_SHIFT = 8, 17
_INLINE = (
    b"a abbr acronym b bdi bdo big cite code del dfn em font i ins kbd label mark q s samp small span strike strong sub "
    b"sup time tt u var"
)
_RAW = b"script style textarea title xmp iframe noembed noframes"
_VOID = b"area base basefont bgsound br col embed frame hr img input keygen link meta param source track wbr"
# An end tag does not end an open element of higher priority than its own (libxml2, HTMLparser.c: htmlEndPriority).
_PRIORITY = {b"div": 1, b"td th": 2, b"tr": 3, b"thead tbody tfoot": 4, b"table": 5, b"head body": 6, b"html": 7}
# A start tag ends the open elements of these classes (`<li>` the `<li>` before it), as in libxml2's htmlStartClose.
_P, _LI, _DD, _OPTION, _GROUP, _CELL, _ROW, _SECTION, _RUBY = (1 << i for i in range(9))
_OPTIONAL = {
    b"p": (_P, _P),
    b"li": (_LI, _P | _LI),
    b"dt dd": (_DD, _P | _DD),
    b"option": (_OPTION, _OPTION),
    b"optgroup": (_GROUP, _OPTION | _GROUP),
    b"td th": (_CELL, _P | _CELL),
    b"tr": (_ROW, _P | _CELL | _ROW),
    b"thead tbody tfoot": (_SECTION, _P | _CELL | _ROW | _SECTION),
    b"rt rp": (_RUBY, _RUBY),
}


def _hash(name: bytes) -> int:
    h = 0
    for c in name:
        h = (h * 131 + c) & 0xFFFFFFFFFFFFFFFF
    return h


def _elements() -> tuple[np.ndarray, np.ndarray]:
    """Sorted name hashes, and the word of each."""
    words: dict[int, int] = {}

    def put(names: bytes, bits: int) -> None:
        for name in names.split():
            words[_hash(name)] = words.get(_hash(name), 0) | bits

    put(_INLINE, _INLINE_FLAG)
    put(_RAW, _RAW_FLAG)
    put(_VOID, _VOID_FLAG)
    for names, priority in _PRIORITY.items():
        put(names, priority << 4)
    for names, (own, ends) in _OPTIONAL.items():
        put(names, own << _CLASS_SHIFT | ends << _ENDS_SHIFT)
    return np.array(sorted(words), np.uint64), np.array([words[h] for h in sorted(words)], np.int64)


_NAMES, _WORDS = _elements()


@njit
def _word(h: int, names: NDArray[np.uint64], words: NDArray[np.int64]) -> int:
    low, high = 0, len(names)
    while low < high:
        middle = (low + high) // 2
        if names[middle] < h:
            low = middle + 1
        else:
            high = middle
    word: int = words[low] if low < len(names) and names[low] == h else 0
    return word


@njit
def _scan(
    b: NDArray[np.uint8], max_depth: int, known: NDArray[np.uint64], words: NDArray[np.int64]
) -> tuple[int, int, int, int]:
    """Elements, greatest depth, longest inline run and most attributes, in one pass; stops where max_depth is passed.

    One function: one loop over bytes, which a tag, its attributes and its text move on.
    """
    n = len(b)
    names = np.zeros(max_depth + 1, np.uint64)  # of the open elements
    kinds = np.zeros(max_depth + 1, np.int64)  # their words
    runs = np.zeros(max_depth + 2, np.int64)  # inline elements since the block at this depth was opened
    depth = deepest = elements = longest = most = 0
    i = 0
    while i < n:
        if b[i] != 60:  # <
            i += 1
            continue
        i += 1
        if i >= n:
            break
        c = b[i]
        if c == 33 and i + 2 < n and b[i + 1] == 45 and b[i + 2] == 45:  # <!-- up to -->, or <!--> at once
            i += 1
            while i + 2 < n and not (b[i] == 45 and b[i + 1] == 45 and b[i + 2] == 62):
                i += 1
            i += 3
            continue
        closing = c == 47
        if closing:
            i += 1
            c = b[i] if i < n else U8(0)
        if not (97 <= (c | 32) <= 122):
            if closing or c == 33 or c == 63:  # </ <! <? up to >
                while i < n and b[i] != 62:
                    i += 1
            continue  # anything else is a lone "<"
        h = U64(0)
        while i < n and b[i] > 32 and b[i] != 62 and b[i] != 47:
            c = b[i]
            h = h * U64(131) + U64(c | 32 if 65 <= c <= 90 else c)
            i += 1
        selfclosing = False
        attributes = 0
        between, in_value = True, False  # attributes; within a value without quotes
        while i < n and b[i] != 62:  # attributes: a quoted value may hold ">"
            c = b[i]
            selfclosing = c == 47
            if c == 32 or 9 <= c <= 13:
                between, in_value = True, False
            elif c == 47:
                between = not in_value
            elif between and c != 61:
                attributes += 1
                between = False
            if c == 61:  # =
                between, in_value = False, True
                i += 1
                while i < n and (b[i] == 32 or 9 <= b[i] <= 13):
                    i += 1
                if i < n and (b[i] == 34 or b[i] == 39):
                    quote = b[i]
                    i += 1
                    while i < n and b[i] != quote:
                        i += 1
                    between, in_value = True, False
                elif i < n and b[i] == 62:
                    break
            i += 1
        i += 1
        if not closing:
            most = max(most, attributes)
        word = _word(h, known, words)
        if closing:
            k = depth - 1
            while k >= 0 and names[k] != h and (kinds[k] & 0x70) <= (word & 0x70):
                k -= 1
            if k >= 0 and names[k] == h:
                while depth > k:  # what an inline element leaves behind still counts in its block
                    depth -= 1
                    if kinds[depth] & 2:
                        runs[depth] += runs[depth + 1]
                        longest = max(longest, runs[depth])
            continue
        elements += 1
        while depth and (kinds[depth - 1] >> 8) & (word >> 17) & 0x1FF:
            depth -= 1
        if word & 2:
            runs[depth] += 1
            longest = max(longest, runs[depth])
        if word & 8:
            continue
        if word & 4:
            if not selfclosing:  # text up to </name
                while i < n:
                    if b[i] == 60 and i + 1 < n and b[i + 1] == 47:
                        k, g = i + 2, U64(0)
                        while k < n and (97 <= (b[k] | 32) <= 122):
                            g = g * U64(131) + U64(b[k] | 32)
                            k += 1
                        if g == h:
                            break
                    i += 1
            continue
        if depth >= max_depth:
            return elements, depth + 1, longest, most
        names[depth], kinds[depth] = h, word
        depth += 1
        deepest = max(deepest, depth)
        runs[depth] = 0
    return elements, deepest, longest, most


class Measures(NamedTuple):
    """What a page is made of."""

    elements: int  # start tags
    depth: int  # greatest nesting
    inline_run: int  # most inline elements in one block
    attributes: int  # most of one element, twice the same one counted twice


def measure(html: bytes, max_depth: int) -> Measures:
    """The measures of a page, counted without building a tree.

    Knows void elements, optional end tags (`<li>`, `<p>`, `<td>`, ...), comments, quoted attributes, and that `<script>`
    holds no tags. Bounded: linear, but for an end tag that looks for its start tag among at most `max_depth` open ones.

    Returns: a page deeper than `max_depth` gives depth = max_depth + 1 and the counts up to there.
    """
    if not html:
        return Measures(0, 0, 0, 0)
    return Measures(*(int(x) for x in _scan(np.frombuffer(html, np.uint8), max_depth, _NAMES, _WORDS)))


def scan(html: bytes, max_depth: int) -> tuple[int, int, int]:
    """Elements, depth and inline run of `measure`."""
    return measure(html, max_depth)[:3]
