"""Hypothesis strategies for texts, documents and columns of them. Sizes are small: what is long has its own tests."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import strategies as st

from gpu_curate.document import TextColumn

# One or more members of every kind that text code has been seen to get wrong.
AWKWARD_TEXTS = [
    "ΦΘΣ",  # a final sigma, which str.lower() treats by context
    "İa",  # lower case of two code points
    "STRASSE straße ẞ",
    "ȺȾ",  # lower case of more bytes than upper
    "K Å",  # Kelvin and Angstrom: lower case of fewer bytes, and one in ASCII
    "so\u00adft",  # soft hyphen
    "zero\u200bwidth\u200djoin\ufeff",
    "tag\U000e0061\U000e0fff",  # SKIP above the table
    "e\u0301 é",
    "渡り鳥が北へ飛ぶ",
    "渡船在早上九点从北码头离开",
    "เรือออกเก้าโมงเช้า",
    "ກຳປັ່ນ",
    "ကူးတို့သင်္ဘော",
    "བོད་ཡིག",
    "កប៉ាល់",
    "한국어 낱말",
    "❽ ٣ ½ Ⅷ",
    "_x_ __ a_b",
    "3-4 3.14 1,000",
    "a\nb\r\nc\td\x0be\x0cf",
    "one\u2028two\u2029three\u0085four",
    "\x00\x01\x7f\x1f",
    "\U0001f600\U0001f468\u200d\U0001f469",
    "\U00020000\U0003ffff\U00040000\U0010ffff",
    "don’t can't",
    "abcdefghijklmnop abcdefghijklmnopq",  # 16 and 17 bytes
    " ",
    "",
]
# Sequences that are no UTF-8, each whole or cut.
BROKEN_BYTES = [
    b"\x80",
    b"\xbf\xbf",
    b"\xc0\xaf",  # overlong "/"
    b"\xc1\xa1",  # overlong "a"
    b"\xe0\x80\xaf",
    b"\xe0\x81\xa1",
    b"\xe0\x9f\xbf",
    b"\xf0\x80\x81\xa1",
    b"\xf0\x8f\xbf\xbf",
    b"\xed\xa0\x80",  # surrogate
    b"\xed\xbf\xbf",
    b"\xf4\x90\x80\x80",  # U+110000
    b"\xf5\x80\x80\x80",
    b"\xfe",
    b"\xff",
    b"\xc3",
    b"\xe4\xb8",
    b"\xf0\x9f\x98",
    b"\xe4a",
    b"\xe4\xb8a",
    b"\xf0\x9f\x98a",
]


def texts(max_size: int = 60) -> st.SearchStrategy[str]:
    """Unicode texts: random code points, awkward ones, and words from a small vocabulary so that n-grams repeat."""
    word = st.sampled_from(["the", "quick", "brown", "Fox", "jumps", "über", "dog", "北", "へ", "12", "a_b"])
    piece = st.one_of(
        st.text(max_size=8), st.sampled_from(AWKWARD_TEXTS), word, st.sampled_from([" ", "  ", "\n", "-"])
    )
    return st.lists(piece, max_size=max_size).flatmap(lambda p: st.sampled_from(["", " "]).map(lambda gap: gap.join(p)))


def random_bytes(max_size: int = 60) -> st.SearchStrategy[bytes]:
    """Bytes that need not be UTF-8: random ones, broken sequences, and text between them."""
    piece = st.one_of(
        st.binary(max_size=6),
        st.sampled_from(BROKEN_BYTES),
        st.sampled_from(AWKWARD_TEXTS).map(lambda t: t.encode("utf-8")),
        st.sampled_from([b" ", b"word", b"Word", b"9_z", b"a" * 17]),
    )
    return st.lists(piece, max_size=max_size).map(b"".join)


def documents(max_documents: int = 8) -> st.SearchStrategy[list[bytes]]:
    """Documents of both kinds, empty ones and equal ones among them."""
    document = st.one_of(
        texts(20).map(lambda t: t.encode("utf-8")), random_bytes(20), st.sampled_from([b"", b"a", b" "])
    )
    return st.lists(document, max_size=max_documents)


def columns(max_documents: int = 8) -> st.SearchStrategy[TextColumn]:
    """Columns of such documents, whole or a slice of a larger column whose neighbours would show if they leaked."""
    around = st.sampled_from([(b"", b""), (b"left", b"right"), (b"\xe4\xb8", b"\xad\xad"), (b"_" * 70, b"z" * 70)])
    return st.builds(lambda docs, sides: column(docs, *sides), documents(max_documents), around)


def column(docs: Sequence[bytes], before: bytes = b"", after: bytes = b"") -> TextColumn:
    """Documents between bytes that belong to somebody else."""
    offsets = len(before) + np.concatenate([[0], np.cumsum([len(d) for d in docs])]).astype(np.int64)
    return TextColumn(np.frombuffer(before + b"".join(docs) + after, np.uint8), offsets)
