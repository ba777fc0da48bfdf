"""Text statistics: every count that the rules of `quality/` need, of every document, in one pass over its bytes.

All results are integers; `quality` makes the fractions. So the CPU and the GPU agree bit for bit.

Definitions, version 2 (a document is its own bytes; nothing outside them is read as text):

Characters. A character is a byte that is not a UTF-8 continuation byte (0x80..0xBF). A well-formed UTF-8 sequence has the
    classes of its code point in `character_classes` (SPACE, ALPHABETIC, SYMBOL, TERMINAL, UPPERCASE; Unicode 14.0) and at
    most one KIND; code points from U+40000 up have none. The bytes of ill-formed sequences are SYMBOL.
    SPACE is Python's `str.isspace`, ALPHABETIC its `str.isalpha`, UPPERCASE the category Lu, SYMBOL datatrove's set of
    punctuation, TERMINAL its set of sentence ends and Unicode's Sentence_Terminal (17.0), so those of all scripts.
    In ASCII: space is 0x09..0x0D and 0x1C..0x20, terminal is `.?!`, symbol is all that is no letter, digit or space.
    CLOSING: quotation marks and closing brackets (Quotation_Mark, Pf, Pe, but Ps) outside ASCII that are not TERMINAL.
    The other kinds are scripts, of ALPHABETIC characters only, with a measure that makes the 1,748 words and 10,647
    characters of the Universal Declaration of Human Rights out of its translations (scripts/bench/script_measure.py):
        HAN        Han, Bopomofo                       a letter is 4 characters of a line and 2/3 of a word
        KANA       Hiragana, Katakana                  a letter is 2 characters of a line and 1/4 of a word
        UNSPACED   Thai, Lao, Khmer, Burmese, Tibetan  a letter is 1 character  of a line and 1/4 of a word
                   (also Tai Le, New Tai Lue, Tai Tham, Javanese)
        DOUBLE     Hangul, Ethiopic                    a letter is 2 characters of a line; words are those between spaces
    The counts below are of characters and of words between spaces; `han_letters`, `unspaced_letters` and `double_letters`
    say what to add (`quality.scores` does). Only short lines and C4's words of a line are measured here.
Words. A word is a longest run of bytes without SPACE, as in `str.split()`. Letter case counts. A text in a script without
    spaces (Chinese) is one word a line or so.
    The hash of a word, and of a line, is the hash of `words`, but over its raw bytes and starting from h = their number:
    two little-endian uint64 c0, c1 a step, zero-padded,
        u = (c0 ^ h) * 0x9E3779B97F4A7C15;  u ^= u >> 32
        v = c1 * 0xC2B2AE3D27D4EB4F;        v ^= v >> 29
        h = (u + v) * 0xD6E8FEB86659FD93;   h ^= h >> 32
    Words, lines and paragraphs with equal hashes count as equal (two different ones do so with probability 2^-64).
Lines. "\\n" ends a line; a last line needs none. A line is blank if it holds no word. Blank lines are lines (`lines`), but
    never short, duplicate or terminal ones. A terminal line's last character, CLOSING ones left out, is TERMINAL. A short
    one measures at most 30 characters: each HAN counts 4, KANA and DOUBLE 2, all others 1. A bullet line's first word starts with "-" or U+2022; an ellipsis line's last word ends with "..." or U+2026.
Paragraphs. Consecutive lines that are not empty, at least one of them not blank. (A line of spaces does not end a
    paragraph.) Spaces before the document's first and after its last word are left out. Hash: h = 0; for each line
    h = h * 0x9E3779B97F4A7C15 + hash of the line. Its characters include the line ends inside.
Duplicates. A line that is not blank, or a paragraph, is a duplicate if an equal one stands before it.
n-grams. n words in a row; equal if their words are. top_n_gram_chars: of the n-gram that occurs most often (if two do,
    the one that starts first) occurrences times length, a space between words, at most `chars`; 0 if there is none.
    duplicate_n_gram_chars: walk from the first word; if the n-gram that starts here equals one where the walk has stopped
    before, count the characters of its words and go on n words later; else go on with the next word.
C4. Every line has exactly one fate, the first that holds: (1) a word of more than 1000 characters and without HAN, KANA or
    UNSPACED letters; (2) no end mark: after spaces, then citations (`[digits]`, `[edit]`, `[citation needed]`, ASCII digits)
    and then CLOSING characters at its end are left out, it does not end in one of `"'` or a TERMINAL character or it ends in
    "..."; (3) fewer than 3 words, that is words + (8 HAN + 3 KANA + 3 UNSPACED) / 12, rounded down, below 3; (4) contains "lorem ipsum"; (5) contains "javascript";
    (6) contains "{"; (7) contains "terms of use", "privacy policy", "cookie policy", "uses cookies", "use of cookies" or
    "use cookies"; (8) kept. Phrases ignore ASCII case. `c4_*` count by these fates; `c4_unended_*` leave fate 2 out.
Sentences of a line (from its first word): read characters; an UPPERCASE one followed by "." is read as one. A sentence is at
    least one such item, then as many TERMINAL characters as follow, then at most one of `"`, `'` or CLOSING. If the rest of the
    line holds no sentence but an UPPERCASE one with its ".", it is one more. A line has at least one sentence.

Source: Rae et al. 2021, arXiv:2112.11446, table A1; Raffel et al. 2020, arXiv:1910.10683, section 2.2; Penedo et al. 2024,
arXiv:2406.17557, section 3.6; sentences and character sets: datatrove 0.10.1. Deviations from it: see `quality`. A text of
ASCII alone has the same statistics as in version 1.

# N documents
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import resources

import numpy as np

from gpu_curate.document import Array, TextColumn
from gpu_curate.errors import FatalError, InputError
from gpu_curate.ops import twin
from gpu_curate.ops.judge import NONE, PREFIX, Tables

UNICODE_VERSION, PROPERTIES_VERSION = "14.0.0", "17.0.0"
SPACE, ALPHABETIC, SYMBOL, TERMINAL, UPPERCASE = (1 << bit for bit in range(5))
CLOSING, HAN, KANA, UNSPACED, DOUBLE = (kind << 5 for kind in range(1, 6))  # classes & KIND is one of these, or 0
KIND = 0xE0
TABLE_LIMIT = 0x40000  # code points below this are in the table; the others have no class
MAX_DOCUMENT_BYTES = 2**31 - 1  # positions and counts are int32

SHORT_LINE_CHARS = 30  # FineWeb, section 3.6
HAN_CHARS, DOUBLE_CHARS = 4, 2  # what a letter measures in a line; all others are 1
WORD_PARTS, HAN_PARTS, UNSPACED_PARTS = 12, 8, 3  # a letter is 8/12 or 3/12 of a word
C4_MIN_LINE_WORDS, C4_MAX_WORD_CHARS = 3, 1000  # C4's released code, c4_utils.py
MAX_STOP_WORDS = 32
STOP_WORDS = ("the", "be", "to", "of", "and", "that", "have", "with")  # Gopher, section A.1.1
TOP_N = (2, 3, 4)  # n-gram lengths of Gopher, table A1
DUPLICATE_N = (5, 6, 7, 8, 9, 10)

_MASK = 2**64 - 1

# name → what is counted. The order is that of the rows which both twins fill.
STATISTICS = {
    "chars": "characters",
    "newlines": r'"\n"',
    "words": "words",
    "alphabetic_words": "words with an ALPHABETIC character",
    "non_symbol_words": "words with a character that is not SYMBOL",
    "non_symbol_word_chars": "characters of the non-symbol words",
    "stop_words": "how many of the stop words (by default the 8 STOP_WORDS) occur as words",
    "hashes": '"#"',
    "ellipses": '"...", not overlapping, and U+2026',
    "lines": "lines, blank ones too",
    "nonblank_lines": "lines with a word",
    "bullet_lines": "lines whose first word starts with a bullet",
    "ellipsis_lines": "lines whose last word ends with an ellipsis",
    "terminal_lines": "lines that end with a TERMINAL character, but for CLOSING ones, no space after it",
    "short_lines": "lines with a word that measure at most 30 characters",
    "duplicate_lines": "lines with a word that an equal one precedes",
    "duplicate_line_chars": "characters of the duplicate lines",
    "paragraphs": "paragraphs",
    "duplicate_paragraphs": "paragraphs that an equal one precedes",
    "duplicate_paragraph_chars": "characters of the duplicate paragraphs",
    "longest_repeated_n_gram": "the largest n of 2..10 for which an n-gram occurs twice, or 0",
    **{f"top_{n}_gram_chars": f"occurrences times length of the commonest {n}-gram" for n in TOP_N},
    **{f"duplicate_{n}_gram_chars": f"characters of duplicate {n}-grams" for n in DUPLICATE_N},
    "han_letters": "letters of the kind HAN",
    "unspaced_letters": "letters of the kinds KANA and UNSPACED",
    "double_letters": "letters of the kinds KANA and DOUBLE",
    "c4_kept_lines": "lines that C4 keeps",
    "c4_kept_words": "words of the lines that C4 keeps",
    "c4_sentences": "sentences of the lines that C4 keeps",
    "c4_lorem_ipsum_lines": "lines of C4's fate 4",
    "c4_curly_bracket_lines": "lines of C4's fate 6",
    "c4_unended_sentences": "the same without C4's rule on the end of a line: sentences of kept lines",
    "c4_unended_lorem_ipsum_lines": "... lines of fate 4",
    "c4_unended_curly_bracket_lines": "... lines of fate 6",
}
NAMES = tuple(STATISTICS)
SCHEMA = {name: np.dtype(np.int32) for name in NAMES}


def word_hash(word: bytes) -> int:
    """The hash of a word, in plain Python: for constants and tests."""
    h = len(word)
    for at in range(0, max(len(word), 1), 16):
        c0, c1 = (int.from_bytes(word[at + k : at + k + 8], "little") for k in (0, 8))
        u = (c0 ^ h) * 0x9E3779B97F4A7C15 & _MASK
        v = c1 * 0xC2B2AE3D27D4EB4F & _MASK
        h = ((u ^ u >> 32) + (v ^ v >> 29)) * 0xD6E8FEB86659FD93 & _MASK
        h ^= h >> 32
    return h


def text_stats(
    text: TextColumn, stop_words: tuple[str, ...] = STOP_WORDS, judges: Tables = NONE
) -> Mapping[str, Array]:
    """Every statistic of every document; decides nothing.

    Args:
        text: N documents, any bytes.
        stop_words: at most MAX_STOP_WORDS different words.
        judges: whose sums are made of the same words (`ops.judge`).
    Returns:
        name → int32 array of N, the names of NAMES in order, in the library of the column; then the sums of the judges, int64,
        as PREFIX and their number. An empty document has zeros.
    Raises:
        InputError: a document is longer than 2^31 - 1 bytes.
    Time: linear in the bytes, for any text.
    Memory (CPU): 164 bytes a document for the result, twice that for a moment; scratch for the longest document, about 12
        bytes a byte of prose and 40 at worst (one-letter words).
    """
    if len(text):
        lengths = text.offsets[1:] - text.offsets[:-1]
        if int(lengths.max()) > MAX_DOCUMENT_BYTES:
            i = int(lengths.argmax())
            raise InputError(
                f"document {i} of the column has {int(lengths[i])} bytes; text statistics take at most "
                f"{MAX_DOCUMENT_BYTES}",
                hint="split the document before scoring it",
            )
    stats_KN, sum_JN = twin("text_stats", text.on_gpu).judged_stats(text, stop_words=stop_words, judges=judges)
    return {**dict(zip(NAMES, stats_KN, strict=True)), **{f"{PREFIX}{j}": sum_N for j, sum_N in enumerate(sum_JN)}}


@cache
def character_classes() -> tuple[np.ndarray, np.ndarray]:
    """The class table, read once from the package's own file (scripts/make_character_classes makes it).

    Returns:
        stage1: uint8 of 1024: page of code points cp >> 8.
        stage2: uint8 of 256 a page: the classes of a code point, or-ed.
        So for cp < 0x40000 the classes are stage2[stage1[cp >> 8] * 256 + (cp & 255)].
    Raises:
        FatalError: the file is of another Unicode version than the code.
    """
    with resources.files(__package__).joinpath("character_classes.npz").open("rb") as file, np.load(file) as table:
        found = [str(table[name]) for name in ("unicode_version", "properties_version")]
        stage1, stage2 = table["stage1"], table["stage2"]
    if found != [UNICODE_VERSION, PROPERTIES_VERSION]:
        raise FatalError(
            f"character_classes.npz is of Unicode {' and '.join(found)}, this code expects {UNICODE_VERSION} and "
            f"{PROPERTIES_VERSION}: reinstall gpu_curate"
        )
    return stage1, stage2
