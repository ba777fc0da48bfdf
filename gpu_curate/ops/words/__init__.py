"""Words of a text, as 64-bit hashes.

Definition, version 1 (CPU and GPU give the same integers; arithmetic is unsigned and wraps):

1. UTF-8 is decoded inside the document's own bytes. Every byte of an ill-formed sequence (bad lead, missing
   continuation, overlong, surrogate, above U+10FFFF, cut by the document's end) is a SEPARATOR.
2. A code point has a class and a folded code point, from a table made of Python's `unicodedata` (`fold_table`):
   WORD: categories L*, M*, N*, Pc. UNSPACED: of those, scripts written without spaces (Han, Kana, Bopomofo, Yi, Thai, Lao,
   Khmer, Myanmar, Tai Le, Tai Lue, Tai Tham, Tibetan, Javanese, Balinese). SKIP: Cf. SEPARATOR: the rest, and
   everything from U+40000 up but U+E0000..U+E0FFF (SKIP).
   The fold is the lower case where that is one code point (U+0130 folds to "i"; no final-sigma rule).
   For ASCII: [0-9A-Za-z_] are WORD, all else SEPARATOR.
3. SKIP code points are deleted and do not split a word. A UNSPACED code point is a word of its own and ends the word
   before it. Any other word is a longest run of WORD code points.
4. Word hash over the word's folded UTF-8 in 16-byte steps, each two little-endian uint64 c0, c1, zero-padded; h = 0:
       u = (c0 ^ h) * 0x9E3779B97F4A7C15;  u ^= u >> 32
       v = c1 * 0xC2B2AE3D27D4EB4F;        v ^= v >> 29
       h = (u + v) * 0xD6E8FEB86659FD93;   h ^= h >> 32
5. Word weight, in sixtieths of an English word: what the script of the word's first folded code point says
   (`SCRIPT_WEIGHTS`), 60 where it says nothing. N-grams are measured in it, so that they are as long in every script.

Source: Unicode 14.0, general categories (UAX #44) and simple lower case. The hash is our own: a byte-wise FNV-1a-64
has one dependent multiplication a byte and caps a core at 134 MB/s; with this one the whole path to signatures runs at
over twice that. No collision among 403,093 English and 199,646 multilingual words.

# N documents, W words of all documents
"""

from __future__ import annotations

from functools import cache
from importlib import resources

import numpy as np

from gpu_curate.document import Array, TextColumn
from gpu_curate.errors import FatalError
from gpu_curate.ops import twin

UNICODE_VERSION = "14.0.0"
SEPARATOR, WORD, UNSPACED, SKIP = range(4)
TABLE_LIMIT = 0x40000  # code points below this are in the table
UNIT = 60  # weight of an English word
MAX_FOLD_GROWTH = 5 / 3  # folded bytes per byte of text, at most: a UNSPACED of 3 bytes with a separator on either side

# (first, last, weight) of scripts whose words carry much less or more than an English word; every bound is a multiple of
# 16. An unspaced script's words are its code points, marks among them. The weights are those of the Universal
# Declaration of Human Rights, which has 1,754 words in English: 8,900 code points in Thai weigh as much (5 to a word),
# 1,190 words in Korean (1.5 English ones each). Han is the exception: it has 1.5 characters to a word, and titles and
# names of state bodies of up to 25 characters, which stand in many unrelated texts, so 2 count as one. Measured in
# scripts/bench/decontamination.py; docs/decontamination.md has the table.
SCRIPT_WEIGHTS = (
    (0x0B80, 0x0BFF, 90),  # Tamil
    (0x0C00, 0x0CFF, 90),  # Telugu, Kannada
    (0x0D00, 0x0D7F, 120),  # Malayalam
    (0x0E00, 0x0E7F, 12),  # Thai: 5 to a word
    (0x0E80, 0x0EFF, 11),  # Lao: 5.5
    (0x0F00, 0x0FFF, 12),  # Tibetan
    (0x1000, 0x109F, 8),  # Myanmar: 7.5
    (0x1100, 0x11FF, 90),  # Hangul
    (0x1200, 0x139F, 90),  # Ethiopic
    (0x1400, 0x167F, 120),  # Canadian syllabics
    (0x1780, 0x17FF, 11),  # Khmer
    (0x18B0, 0x18FF, 120),  # Canadian syllabics
    (0x1950, 0x19DF, 11),  # Tai Le, New Tai Lue
    (0x1A20, 0x1AAF, 11),  # Tai Tham
    (0x1B00, 0x1B7F, 11),  # Balinese
    (0x2D80, 0x2DDF, 90),  # Ethiopic
    (0x2E80, 0x303F, 30),  # Han: 2 to a word
    (0x3040, 0x312F, 20),  # kana, Bopomofo: 3
    (0x3130, 0x318F, 90),  # Hangul
    (0x31A0, 0x31FF, 20),  # Bopomofo, kana
    (0x3400, 0x4DBF, 30),  # Han
    (0x4E00, 0x9FFF, 30),  # Han
    (0xA000, 0xA48F, 30),  # Yi: 2 to a word
    (0xA960, 0xA97F, 90),  # Hangul
    (0xA980, 0xA9DF, 11),  # Javanese
    (0xA9E0, 0xA9FF, 8),  # Myanmar
    (0xAA60, 0xAA7F, 8),  # Myanmar
    (0xAB00, 0xAB2F, 90),  # Ethiopic
    (0xAC00, 0xD7FF, 90),  # Hangul
    (0xF900, 0xFAFF, 30),  # Han
    (0xFF60, 0xFF9F, 20),  # half-width kana
    (0xFFA0, 0xFFDF, 90),  # half-width Hangul
    (0x11AB0, 0x11ABF, 120),  # Canadian syllabics
    (0x11FC0, 0x11FFF, 90),  # Tamil
    (0x1AFF0, 0x1B16F, 20),  # kana
    (0x1E7E0, 0x1E7FF, 90),  # Ethiopic
    (0x20000, 0x3FFFF, 30),  # Han
)
MIN_WEIGHT = min(weight for _, _, weight in SCRIPT_WEIGHTS)


def word_hashes(text: TextColumn) -> tuple[Array, Array]:
    """Hashes of all words of all documents, in reading order.

    Args:
        text: N documents, any bytes.
    Returns:
        hash_W: uint64.
        offsets: int64 of N + 1; document i has hash_W[offsets[i] : offsets[i + 1]]. An empty document has no words.
    Memory: 8 bytes a word, plus scratch that does not depend on the text (CPU: under 100 kB).
    """
    hash_W, offsets = twin("words", text.on_gpu).word_hashes(text)
    return hash_W, offsets


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


@cache
def weight_table() -> np.ndarray:
    """uint8: weight of a word whose first folded code point is cp, at cp >> 4; cp < 0x40000."""
    table = np.full(TABLE_LIMIT >> 4, UNIT, np.uint8)
    for first, last, weight in SCRIPT_WEIGHTS:
        table[first >> 4 : (last >> 4) + 1] = weight
    return table


def word_weight(word: str) -> int:
    """Weight of a folded word, in sixtieths of an English word."""
    return int(weight_table()[ord(word[0]) >> 4]) if ord(word[0]) < TABLE_LIMIT else UNIT
