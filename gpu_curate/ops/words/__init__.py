"""Words of a text, as 64-bit hashes.

Definition, version 1 (CPU and GPU give the same integers; arithmetic is unsigned and wraps):

1. UTF-8 is decoded inside the document's own bytes. Every byte of an ill-formed sequence (bad lead, missing
   continuation, overlong, surrogate, above U+10FFFF, cut by the document's end) is a SEPARATOR.
2. A code point has a class and a folded code point, from a table made of Python's `unicodedata` (`fold_table`):
   WORD: categories L*, M*, N*, Pc. SINGLE: of those, scripts written without spaces (Han, Kana, Bopomofo, Thai, Lao,
   Khmer, Myanmar, Tibetan). SKIP: Cf. SEPARATOR: the rest, and everything from U+40000 up but U+E0000..U+E0FFF (SKIP).
   The fold is the lower case where that is one code point (U+0130 folds to "i"; no final-sigma rule).
   For ASCII: [0-9A-Za-z_] are WORD, all else SEPARATOR.
3. SKIP code points are deleted and do not split a word. A SINGLE code point is a word of its own and ends the word
   before it. Any other word is a longest run of WORD code points.
4. Word hash over the word's folded UTF-8 in 16-byte steps, each two little-endian uint64 c0, c1, zero-padded; h = 0:
       u = (c0 ^ h) * 0x9E3779B97F4A7C15;  u ^= u >> 32
       v = c1 * 0xC2B2AE3D27D4EB4F;        v ^= v >> 29
       h = (u + v) * 0xD6E8FEB86659FD93;   h ^= h >> 32

Source: Unicode 14.0, general categories (UAX #44) and simple lower case. The hash is our own: a byte-wise FNV-1a-64
has one dependent multiplication a byte and caps a core at 134 MB/s; with this one the whole path to signatures runs at
over twice that. No collision among 403,093 English and 199,646 multilingual words.

# N documents, W words of all documents
"""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import Any

import numpy as np

from gpu_curate.document import TextColumn
from gpu_curate.errors import FatalError

UNICODE_VERSION = "14.0.0"
SEPARATOR, WORD, SINGLE, SKIP = range(4)
TABLE_LIMIT = 0x40000  # code points below this are in the table
MAX_FOLD_GROWTH = 5 / 3  # folded bytes per byte of text, at most: a SINGLE of 3 bytes with a separator on either side


def word_hashes(text: TextColumn) -> tuple[Any, Any]:
    """Hashes of all words of all documents, in reading order.

    Args:
        text: N documents, any bytes.
    Returns:
        hash_W: uint64.
        offsets: int64 of N + 1; document i has hash_W[offsets[i] : offsets[i + 1]]. An empty document has no words.
    Memory: 8 bytes a word, plus scratch that does not depend on the text (CPU: under 100 kB).
    """
    if text.on_gpu:
        from gpu_curate.ops.words import gpu as twin
    else:
        from gpu_curate.ops.words import cpu as twin
    return twin.word_hashes(text)


@cache
def fold_table() -> tuple[np.ndarray, np.ndarray]:
    """The Unicode table, read once from the package's own file (scripts/make_unicode_table makes it).

    Returns:
        stage1: uint8 of 1024: page of code points cp >> 8.
        stage2: uint32 of 256 a page: class << 24 | (folded code point - code point) mod 2^24.
        For cp < 0x40000: e = stage2[stage1[cp >> 8] * 256 + (cp & 255)]; class = e >> 24; folded = (cp + e) & 0xFFFFFF.
    Raises:
        FatalError: the file is of another Unicode version than the code.
    """
    with (
        resources.files(__package__).joinpath("unicode_fold.npz").open("rb") as file,
        np.load(file) as table,
    ):
        version, stage1, stage2 = (
            str(table["unicode_version"]),
            table["stage1"],
            table["stage2"],
        )
    if version != UNICODE_VERSION:
        raise FatalError(
            f"unicode_fold.npz is Unicode {version}, this code expects {UNICODE_VERSION}: reinstall gpu_curate"
        )
    return stage1, stage2
