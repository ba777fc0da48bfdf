"""The rows of the statistics by name: places in `NAMES`, for compiled code."""

from __future__ import annotations

from gpu_curate.ops.text_stats import (
    DUPLICATE_N,
    NAMES,
    TOP_N,
)

(
    CHARS,
    NEWLINES,
    WORDS,
    ALPHABETIC_WORDS,
    NON_SYMBOL_WORDS,
    NON_SYMBOL_WORD_CHARS,
    STOP,
    HASHES,
    ELLIPSES,
    LINES,
    NONBLANK_LINES,
    BULLET_LINES,
    ELLIPSIS_LINES,
    TERMINAL_LINES,
    SHORT_LINES,
    DUPLICATE_LINES,
    DUPLICATE_LINE_CHARS,
    PARAGRAPHS,
    DUPLICATE_PARAGRAPHS,
    DUPLICATE_PARAGRAPH_CHARS,
    LONGEST_REPEATED_NGRAM,
    TOP_NGRAM,  # the first of len(TOP_N)
    *_,
) = range(len(NAMES))
DUPLICATE_NGRAM = TOP_NGRAM + len(TOP_N)  # the first of len(DUPLICATE_N)
HAN_LETTERS = DUPLICATE_NGRAM + len(DUPLICATE_N)
UNSPACED_LETTERS, DOUBLE_LETTERS, C4 = range(HAN_LETTERS + 1, HAN_LETTERS + 4)
MAX_TOP_N, MIN_DUPLICATE_N, MAX_N = TOP_N[-1], DUPLICATE_N[0], DUPLICATE_N[-1]
