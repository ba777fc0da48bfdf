"""Words that announce a telephone number, in some 130 languages."""

from __future__ import annotations

import unicodedata
from functools import cache
from importlib import resources
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from gpu_curate.jit import U8, njit
from gpu_curate.text.pii.marks import is_letter, stands_left


@njit
def may_be_called(
    raw: NDArray[np.uint8],
    start: int,
    edges: NDArray[np.int32],
    targets: NDArray[np.int32],
    chars: NDArray[np.uint8],
    ends: NDArray[np.uint8],
) -> bool:
    """Whether what stands before a run makes it a number to call: `+`, or a label."""
    if raw[start - 1] == 43:
        return raw[start] != 48 and stands_left(raw[start - 2])  # no country code starts with 0
    sign = start - 1 if raw[start - 1] == 40 else start
    if sign == start and raw[start - 1] != 46 and not stands_left(raw[start - 1]):
        return False
    return is_called(raw, sign, edges, targets, chars, ends)


# ------------------------------------------------------------------------------------------------------------- labels
#
# Words that say that a number is one to call, and those that may stand between ("call us at", "phone number is"), as a tree
# of their bytes from the last to the first: node n has the edges edges[n]..edges[n + 1] - 1, edge e the byte chars[e] and the
# node targets[e]; ends[n] says what word ends there. Node 0, where every word begins, has an edge for each byte.

_LABEL, _BETWEEN = 1, 2  # of a script with case: nothing of a word may stand before it
_LABEL_ANYWHERE, _BETWEEN_ANYWHERE = 4, 8  # other scripts write words together, or glue articles to them
_LABEL_BYTES = 96  # how far back labels are looked for
_WORDS_BETWEEN = 3
Labels = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


@cache
def phone_labels() -> Labels:
    """The tree: edges int32[N + 1], targets int32[E], chars uint8[E], ends uint8[N]."""
    tree: list[dict[int, int]] = [{}]
    ends = [0]
    for words, kind in ((label_words("label"), _LABEL), (label_words("between"), _BETWEEN)):
        for word in words:
            anywhere = word.lower() == word.upper() and (len(word) > 2 or word[0] > "\u2e80")
            for spelt in _spellings(word):
                node = 0
                for byte in reversed(spelt.encode()):
                    if byte not in tree[node]:
                        tree[node][byte] = len(tree)
                        tree.append({})
                        ends.append(0)
                    node = tree[node][byte]
                ends[node] |= kind * 4 if anywhere else kind
    tree[0] = {byte: tree[0].get(byte, 0) for byte in range(256)}
    edges = np.array([0, *accumulate(map(len, tree))], np.int32)
    chars = np.array([byte for node in tree for byte in node], np.uint8)
    targets = np.array([target for node in tree for target in node.values()], np.int32)
    return edges, targets, chars, np.array(ends, np.uint8)


def label_words(kind: str) -> set[str]:
    """The words of a kind in the tables, in small letters."""
    rows = [line.split("\t") for line in _table("labels.tsv")]
    joined = [words for name, _, words, _ in rows if name == kind]
    if kind == "label":
        joined += [line.split("\t")[1] for line in _table("cldr.tsv")]
    return {word for words in joined for word in words.lower().split("|")} - _NO_LABELS


def _table(name: str) -> list[str]:
    text = resources.files(__package__).joinpath(name).read_text(encoding="utf-8")
    return [line for line in text.splitlines() if line[:1] != "#"]


# CLDR's words for what telephones do, not for telephones
_NO_LABELS = frozenset(("iphone", "kommunikation", "通信", "溝通", "通訊", "שיחה", "ҫыхӑну", "برقی آلہ", "waya", "அழை"))


def _spellings(word: str) -> set[str]:
    """A word as it is written at the start of a line and in capitals, without accents too; ASCII letters small."""
    spelt = {word, word.upper(), word.title(), word[0].upper() + word[1:]}
    if word[0].lower() != word[0].upper():
        bare = unicodedata.normalize("NFD", word.upper())
        spelt.add("".join(c for c in bare if not unicodedata.combining(c)))
    return {"".join(c.lower() if c.isascii() else c for c in s) for s in spelt}


@njit(inline="always")
def _blank_before(raw: NDArray[np.uint8], i: int) -> int:
    """Bytes of the blank, colon, full stop or number sign that ends before `i`; 0: another character."""
    c = raw[i - 1]
    if c == 32 or c == 58 or c == 46 or c == 35 or c == 9:
        return 1
    if c < 128:
        return 0
    if c == 0xA0 and raw[i - 2] == 0xC2:  # no-break space
        return 2
    x, y = raw[i - 3], raw[i - 2]
    full = x == 0xEF and y == 0xBC and (c == 0x9A or c == 0x8E or c == 0x83)  # full-width : . #
    cjk = x == 0xE3 and y == 0x80 and (c == 0x80 or c == 0x91)  # ideographic space, a bracket that closes a label
    other = (x == 0xE2 and y == 0x88 and c == 0xB6) or (x == 0xEF and y == 0xB9 and c == 0x95)  # ratio, small colon
    thin = (
        x == 0xE2 and y == 0x80 and (c == 0xAF or c == 0x89 or c == 0x8E or c == 0x8F)
    )  # thin spaces, direction marks
    picture = x == 0xEF and y == 0xB8 and (c == 0x8E or c == 0x8F)  # how a sign before it is shown
    return 3 if full or cjk or other or thin or picture else 0


@njit(inline="always")
def _word_goes_on(raw: NDArray[np.uint8], i: int) -> bool:
    """Whether a letter or digit of ASCII, or a character that is no punctuation, ends before `i`."""
    c = raw[i - 1]
    if c < 128:
        return is_letter(c)
    if raw[i - 2] == 0xC2:
        return not (c <= 0xBF and c != 0xAA and c != 0xB5 and c != 0xBA)  # signs of Latin-1
    x, y = raw[i - 3], raw[i - 2]
    general = x == 0xE2 and (y == 0x80 or y == 0x81)
    cjk = x == 0xE3 and y == 0x80 and c != 0x85 and c != 0x86 and c != 0x87
    full = x == 0xEF and y == 0xBC and (c <= 0x8F or (c >= 0x9A and c <= 0xA0) or c >= 0xBB)
    return not (general or cjk or full)


@njit
def is_called(
    raw: NDArray[np.uint8],
    sign: int,
    edges: NDArray[np.int32],
    targets: NDArray[np.int32],
    chars: NDArray[np.uint8],
    ends: NDArray[np.uint8],
) -> bool:
    """Whether a label stands before the number that starts at `sign`, maybe with words between, blanks and colons."""
    low = max(4, sign - _LABEL_BYTES)
    i = sign
    for _ in range(_WORDS_BETWEEN + 1):
        while i > low and _blank_before(raw, i):
            i -= _blank_before(raw, i)
        if i > low and raw[i - 1] == 10:
            i -= 1
        node = between = 0
        j = i
        while j > low:
            c = raw[j - 1]
            if c >= 65 and c <= 90:
                c |= U8(32)
            following = targets[c] if node == 0 else 0
            for e in range(edges[node], edges[node + 1] if node else 0):
                if chars[e] == c:
                    following = targets[e]
            if following == 0:
                break
            node = following
            j -= 1
            end = ends[node]
            if end == 0:
                continue
            free = not _word_goes_on(raw, j)
            if end & _LABEL_ANYWHERE or (end & _LABEL and free):
                return True
            if end & _BETWEEN_ANYWHERE or (end & _BETWEEN and free):
                between = j
        if between == 0:
            return False
        i = between
    return False
