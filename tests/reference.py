"""The definitions of the hot ops in plain Python: slow, short, and what every fast twin is compared with.

They follow the text of the contracts, not the code of a twin: bytes are decoded by Python's own decoder, sets are sets.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from fractions import Fraction
from functools import cache

from gpu_curate.ops.words import SEPARATOR, SKIP, TABLE_LIMIT, UNSPACED, WORD, fold_table

MASK = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15


def fmix64(x: int) -> int:
    x = (x ^ x >> 33) * 0xFF51AFD7ED558CCD & MASK
    x = (x ^ x >> 33) * 0xC4CEB9FE1A85EC53 & MASK
    return x ^ x >> 33


def splitmix64(seed: int, count: int) -> list[int]:
    out = []
    for _ in range(count):
        seed = (seed + GOLDEN) & MASK
        z = (seed ^ seed >> 30) * 0xBF58476D1CE4E5B9 & MASK
        z = (z ^ z >> 27) * 0x94D049BB133111EB & MASK
        out.append(z ^ z >> 31)
    return out


# ---------------------------------------------------------------------------------------------------------------- words


@cache
def class_and_fold(cp: int) -> tuple[int, int]:
    """Class of a code point, and the code point it folds to."""
    if cp >= TABLE_LIMIT:
        return (SKIP if 0xE0000 <= cp < 0xE1000 else SEPARATOR), cp
    stage1, stage2 = fold_table()
    entry = int(stage2[int(stage1[cp >> 8]) * 256 + cp % 256])
    return entry >> 24, (cp + entry) % (1 << 24)


def code_points(data: bytes) -> Iterable[int | None]:
    """Code points of UTF-8, None for every byte that belongs to none."""
    at = 0
    while at < len(data):
        for size in (1, 2, 3, 4):
            try:
                char = data[at : at + size].decode("utf-8")
            except UnicodeDecodeError:
                continue
            yield ord(char)
            at += size
            break
        else:
            yield None
            at += 1


def words(data: bytes) -> list[str]:
    """The folded words of a document."""
    found, current = [], ""
    for cp in code_points(data):
        kind, folded = (SEPARATOR, 0) if cp is None else class_and_fold(cp)
        if kind == WORD:
            current += chr(folded)
        elif kind != SKIP:
            found += [current] if current else []
            found += [chr(folded)] if kind == UNSPACED else []
            current = ""
    return found + ([current] if current else [])


def word_hash(word: str) -> int:
    data, h = word.encode("utf-8"), 0
    for at in range(0, len(data), 16):
        step = data[at : at + 16].ljust(16, b"\0")
        c0, c1 = int.from_bytes(step[:8], "little"), int.from_bytes(step[8:], "little")
        u = (c0 ^ h) * 0x9E3779B97F4A7C15 & MASK
        u ^= u >> 32
        v = c1 * 0xC2B2AE3D27D4EB4F & MASK
        v ^= v >> 29
        h = (u + v) * 0xD6E8FEB86659FD93 & MASK
        h ^= h >> 32
    return h


def word_hashes(data: bytes) -> list[int]:
    return [word_hash(word) for word in words(data)]


# ------------------------------------------------------------------------------------------------------------- minhash


def shingle(hashes: Sequence[int]) -> int:
    """Hash of the n words whose hashes are given."""
    h = len(hashes)
    for w in hashes:
        h = (h * GOLDEN + w) & MASK
    return fmix64(h)


def shingles(data: bytes, n: int) -> list[int]:
    w = word_hashes(data)
    if not w:
        return []
    return [shingle(w[j : j + n]) for j in range(max(len(w) - n + 1, 1))]


def signature(data: bytes, n: int = 5, num_hashes: int = 112, seed: int = 42, family: str = "affine") -> list[int]:
    stream = splitmix64(seed, num_hashes)
    rows = []
    for s in stream:
        if family == "affine":
            a = s >> 32 | 1
            values = [((x & 0xFFFFFFFF) * a + (x >> 32)) & 0xFFFFFFFF for x in shingles(data, n)]
        else:
            values = [fmix64(x ^ s) >> 32 for x in shingles(data, n)]
        rows.append(min(values, default=0xFFFFFFFF))
    return rows


def jaccard(a: Iterable[int], b: Iterable[int]) -> float:
    a, b = set(a), set(b)
    return len(a & b) / len(a | b) if a or b else 0.0


# ------------------------------------------------------------------------------------------------ bands and components


def band_hashes(rows: Sequence[int], num_bands: int = 14, rows_per_band: int = 8, scope: int = 0) -> list[int]:
    bands = []
    for b in range(num_bands):
        h = b + 1
        if scope:
            h ^= fmix64(scope)
        for r in rows[b * rows_per_band : (b + 1) * rows_per_band]:
            h = (h ^ r) * GOLDEN & MASK
            h ^= h >> 32
        bands.append(fmix64(h))
    return bands


def band_edges(hashes: Sequence[int], valid: Sequence[bool] | None = None) -> list[tuple[int, int]]:
    """Neighbours in every bucket, sorted."""
    last: dict[int, int] = {}
    edges = []
    for d, h in enumerate(hashes):
        if valid is None or valid[d]:
            if h in last:
                edges.append((last[h], d))
            last[h] = d
    return sorted(edges)


def components(n: int, edges: Iterable[tuple[int, int]]) -> list[int]:
    """Smallest document number of the component of every document."""
    neighbours: list[list[int]] = [[] for _ in range(n)]
    for a, b in edges:
        neighbours[a].append(b)
        neighbours[b].append(a)
    labels = [-1] * n
    for d in range(n):
        todo = [d] if labels[d] < 0 else []
        while todo:
            k = todo.pop()
            if labels[k] < 0:
                labels[k] = d
                todo += neighbours[k]
    return labels


# ------------------------------------------------------------------------------------------------------------- n-grams

# Code points that weigh as much as an English word, or English words that one word weighs, by the name of a script.
CHARS_A_WORD = {
    "CJK": 2,
    "IDEOGRAPHIC": 2,
    "HANGZHOU": 2,
    "VERTICAL": 2,  # kana repeat marks, in a block with those of Han
    "MASU": 2,
    "KANGXI": 2,
    "HIRAGANA": 3,
    "KATAKANA": 3,
    "KATAKANA-HIRAGANA": 3,
    "COMBINING": 3,  # the voiced sound marks of kana
    "HENTAIGANA": 3,
    "BOPOMOFO": 3,
    "THAI": 5,
    "TIBETAN": 5,
    "LAO": Fraction(60, 11),
    "KHMER": Fraction(60, 11),
    "TAI": Fraction(60, 11),
    "NEW": Fraction(60, 11),  # Tai Lue
    "MYANMAR": Fraction(15, 2),
    "YI": 2,
    "JAVANESE": Fraction(60, 11),
    "BALINESE": Fraction(60, 11),
}
WORDS_A_WORD = {
    "HANGUL": Fraction(3, 2),
    "TAMIL": Fraction(3, 2),
    "TELUGU": Fraction(3, 2),
    "KANNADA": Fraction(3, 2),
    "ETHIOPIC": Fraction(3, 2),
    "MALAYALAM": 2,
    "CANADIAN": 2,
}


@cache
def word_weight(word: str) -> Fraction:
    """Weight of a folded word, in English words."""
    if "\u302a" <= word[0] <= "\u302f":
        return Fraction(1, 2)  # a tone mark without a letter, among the numerals of Han
    script = unicodedata.name(word[0], "").removeprefix("HALFWIDTH ").split(" ")[0]
    if len(word) == 1 and class_and_fold(ord(word))[0] == UNSPACED:
        return 1 / Fraction(CHARS_A_WORD[script])
    return Fraction(WORDS_A_WORD.get(script, 1))


def weighed_runs(words_: Sequence[str], n: int) -> list[Sequence[str]]:
    """From every word the shortest run that weighs n, where there is one."""
    runs = []
    for start in range(len(words_)):
        total = Fraction(0)
        for stop in range(start, len(words_)):
            total += word_weight(words_[stop])
            if total >= n:
                runs.append(words_[start : stop + 1])
                break
        else:
            break
    return runs


def is_whole(item: Sequence[str], n: int, min_unspaced_words: int) -> bool:
    """True if an item is too light for an n-gram of n words and heavy enough for one of all its words."""
    weight = sum(map(word_weight, item))
    unspaced = any(word_weight(w) < 1 for w in item)
    return bool(item) and weight < n and (not unspaced or weight >= min_unspaced_words)


def _hash(run: Sequence[str]) -> int:
    return shingle([word_hash(w) for w in run])


def item_ngrams(item: bytes, n: int, whole_items: bool, min_unspaced_words: int = 3) -> set[int]:
    w = words(item)
    if whole_items and is_whole(w, n, min_unspaced_words):
        return {_hash(w)}
    return {_hash(run) for run in weighed_runs(w, n)}


def contamination(
    documents: Sequence[bytes], items: Sequence[bytes], n: int, whole_items: bool, min_unspaced_words: int = 3
) -> list[tuple[set[int], float, int]]:
    """For each document: the n-grams of any item that it holds, its best coverage, and the item of that (or -1)."""
    grams = [item_ngrams(item, n, whole_items, min_unspaced_words) for item in items]
    wholes = {len(w) for w in map(words, items) if whole_items and is_whole(w, n, min_unspaced_words)}
    out = []
    for document in documents:
        w = words(document)
        own = {_hash(run) for run in weighed_runs(w, n)}
        own |= {_hash(w[j : j + width]) for width in wholes for j in range(len(w) - width + 1)}
        shares = [(len(own & g) / len(g), -item) for item, g in enumerate(grams) if own & g]
        best, item = max(shares, default=(0.0, 1))
        out.append((own & set().union(*grams), best, -item))
    return out
