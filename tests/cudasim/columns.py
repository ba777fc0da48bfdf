"""Text columns that kernels are compared on: sizes, alphabets and accidents that break them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from gpu_curate.document import TextColumn

WORDS = [
    "the",
    "quick",
    "brown",
    "fox",
    "jumps",
    "over",
    "LLM",
    "Data",
    "naïve",
    "café",
    "Straße",
    "ΦΘΣ",
    "İa",
    "İİ",
    "Ⓚ",
    "KK",
    "12,5",
    "a_b",
    "٣",
    "x\xady",
    "\u200dz",
]
SINGLES = ["你好", "世界", "数据", "かな", "カナ", "ไทย", "ພາສາ", "ភាសា", "မြန်", "བོད", "𠀀𠀁"]
OTHERS = ["\u3000", "\u00a0", "😀", "\U000e0001", "\U00040000", "\ufeff", "\u2028", "𐐀𐐨"]
SEPARATORS = [" ", " ", " ", "\n", "\t", ", ", "", "\x00"]
# leads, continuations, and what makes sequences overlong, surrogate, too large or cut
BYTES = bytes.fromhex(
    "41 61 5f 20 20 c2 ad c3 a9 e0 80 9f e2 80 8d e4 b8 ad ed a0 ef bb bf f0 9f 98 f3 a0 80 81 f4 90 c0 ff"
)


def text(rng: np.random.Generator, n_words: int) -> bytes:
    pool = [*WORDS * 4, *SINGLES, *OTHERS]
    picks = zip(rng.integers(len(pool), size=n_words), rng.integers(len(SEPARATORS), size=n_words), strict=True)
    return "".join(pool[w] + SEPARATORS[s] for w, s in picks).encode()


def broken(rng: np.random.Generator, n: int) -> bytes:
    return bytes(rng.choice(np.frombuffer(BYTES, np.uint8), n))


def columns() -> Iterator[tuple[str, TextColumn]]:
    """Named columns; some are slices of a larger buffer, at an odd address."""
    rng = np.random.default_rng(11)

    def column(documents: list[bytes], before: bytes = b"", after: bytes = b"") -> TextColumn:
        whole = TextColumn.from_texts([before, *documents, after])
        return whole.slice(1, len(whole) - 1)

    yield "no documents", column([])
    yield "one empty", column([b""])
    yield "one byte", column([b"a"])
    yield "empties", column([b"", b"", b"abc", b"", b"  ", b""], before=b"x")
    yield "adjacent", column([b"foo", b"bar", b" baz", b"qux quux", b"A B C D E", b"a b c d e"], b"word", b"word")
    yield "one-byte documents", column([bytes([c]) for c in b"ab 1_-Z\xc3\xa9" * 30])
    yield "short", column([text(rng, int(n)) for n in rng.integers(0, 14, 61)], b"previous \xe4\xb8")
    yield "mixed", column([text(rng, int(n)) for n in rng.integers(0, 300, 13)])
    yield "past a tile", column([text(rng, 1029), b"x" * 8193, b" " * 5000, text(rng, 3)], b"q")
    yield (
        "sequences across documents",
        column([b"ab\xc3", b"\xa9cd", b"\xe4\xb8", b"\xad", b"\xf0\x9f\x98", b"\x80a"], b"\xe4", b"\xad"),
    )
    yield (
        "skips",
        column(
            ["a\u00adb\u200d\u200dc".encode(), "\u00ad".encode() * 100 + b"a", b"a" + "\u200d".encode() * 40 + b"b c"]
        ),
    )
    yield "lone continuations", column([b"\x80" * 100, b"a\xbf\xbfb", b"\xc2" * 70])
    yield (
        "word lengths",
        column(
            [
                b" ".join(b"Z" * n for n in range(70)),
                "é".encode() * 33,
                b"a" * 15 + "é".encode(),
                b"A" * 16 + "É".encode(),
            ]
        ),
    )
    yield "broken", column([broken(rng, int(n)) for n in rng.integers(0, 200, 23)], b"\xf0\x9f")


def random_columns() -> Any:
    """A Hypothesis strategy of columns of random bytes, drawn to be nearly or quite UTF-8."""
    from hypothesis import strategies as st  # scripts/gpu_check runs where Hypothesis is not installed

    piece = st.one_of(
        st.sampled_from([w.encode() for w in [*WORDS, *SINGLES, *OTHERS, " ", "."]]),
        st.binary(max_size=4),
        st.sampled_from([bytes([b]) for b in BYTES]),
    )
    document = st.lists(piece, max_size=24).map(b"".join)
    cut = st.tuples(st.lists(document, min_size=2, max_size=9), st.integers(0, 1))
    return cut.map(lambda c: TextColumn.from_texts(c[0]).slice(c[1], len(c[0])))
