"""The rules of Gopher: quality, and repetition.

Source: Rae et al. 2021, arXiv:2112.11446, section A.1.1 (quality; repetition with its thresholds in table A1).
Agrees with GopherQualityFilter and GopherRepetitionFilter of datatrove 0.10.1 when those split words at white space.

Deviates from them, on purpose:
    words       are runs without white space; datatrove's English default (spaCy) also splits off punctuation,
                and so drops a fifth of web pages as having too few words with a letter (measured in scripts/bench/LOG.md).
    lines       end at "\\n" only, not at "\\r", form feeds or U+2028 (gopher_quality).
    no text     A document without words is dropped by every family. datatrove's repetition filter keeps one of spaces.
    blank       lines and paragraphs (spaces only) are no duplicates and are not counted in the number of lines or
                paragraphs. datatrove skips only empty ones, and counts the empty text before a leading and after a trailing
                "\\n" as lines.
    top n-gram  Occurrences that overlap cannot make more than all of the text. Where no n-gram
                occurs twice the first one is the commonest, as in datatrove, and so texts of fewer than some 25 words are
                dropped though nothing repeats; `unrepeated_top_n_grams: false` scores them 0.
    n-grams     are equal if their words are; datatrove joins the words first, so that "ab c" equals "a bc" (n from 5).
    identity    of words, lines and paragraphs is that of 64-bit hashes.
A script without spaces (Chinese, Thai) makes one word of a sentence: too_few_words drops it. Keep these families for
languages that space their words; min_stop_words is for English.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from gpu_curate import config
from gpu_curate.ops.text_stats import DUPLICATE_N, TOP_N
from gpu_curate.quality.rule import Rule, fraction


def scores(stats: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The scores of both families from the statistics of N documents."""
    words, lines, chars = stats["words"], stats["lines"], stats["chars"]
    longest = stats["longest_repeated_n_gram"]
    top = {f"top_{n}_gram_char_fraction": fraction(stats[f"top_{n}_gram_chars"], chars) for n in TOP_N}
    return {
        "non_symbol_words": stats["non_symbol_words"],
        "mean_word_chars": fraction(stats["non_symbol_word_chars"], stats["non_symbol_words"]),
        "hash_to_word_ratio": fraction(stats["hashes"], words),
        "ellipsis_to_word_ratio": fraction(stats["ellipses"], words),
        "bullet_line_fraction": fraction(stats["bullet_lines"], lines),
        "ellipsis_line_fraction": fraction(stats["ellipsis_lines"], lines),
        "alphabetic_word_fraction": fraction(stats["alphabetic_words"], words),
        "stop_words": stats["stop_words"],
        "nonblank_lines": stats["nonblank_lines"],
        "duplicate_paragraph_fraction": fraction(stats["duplicate_paragraphs"], stats["paragraphs"]),
        "duplicate_paragraph_char_fraction": fraction(stats["duplicate_paragraph_chars"], chars),
        "duplicate_line_fraction": fraction(stats["duplicate_lines"], stats["nonblank_lines"]),
        "duplicate_line_char_fraction": fraction(stats["duplicate_line_chars"], chars),
        **top,
        **{f"repeated_{name}": np.where(longest >= n, top[name], 0.0) for n, name in zip(TOP_N, top, strict=True)},
        **{
            f"duplicate_{n}_gram_char_fraction": fraction(stats[f"duplicate_{n}_gram_chars"], chars)
            for n in DUPLICATE_N
        },
    }


def quality_rules(t: config.GopherQuality) -> list[Rule]:
    """Whether it reads like text at all: length, word length, symbols, bullets, letters, stop words."""
    family = "gopher_quality"
    return [
        Rule(f"{family}:too_few_words", "non_symbol_words", "min", t.min_words),
        Rule(f"{family}:too_many_words", "non_symbol_words", "max", t.max_words),
        Rule(f"{family}:words_too_short", "mean_word_chars", "min", t.min_mean_word_chars),
        Rule(f"{family}:words_too_long", "mean_word_chars", "max", t.max_mean_word_chars),
        Rule(f"{family}:too_many_hashes", "hash_to_word_ratio", "max", t.max_hash_to_word_ratio),
        Rule(f"{family}:too_many_ellipses", "ellipsis_to_word_ratio", "max", t.max_ellipsis_to_word_ratio),
        Rule(f"{family}:too_many_bullet_lines", "bullet_line_fraction", "max", t.max_bullet_line_fraction),
        Rule(f"{family}:too_many_ellipsis_lines", "ellipsis_line_fraction", "max", t.max_ellipsis_line_fraction),
        Rule(f"{family}:too_few_alphabetic_words", "alphabetic_word_fraction", "min", t.min_alphabetic_word_fraction),
        Rule(f"{family}:too_few_stop_words", "stop_words", "min", t.min_stop_words),
    ]


def repetition_rules(t: config.GopherRepetition) -> list[Rule]:
    """Whether it repeats itself: paragraphs, lines, its commonest n-gram, any n-grams."""
    family = "gopher_repetition"

    def rule(part: str, score: str = "") -> Rule:
        return Rule(f"{family}:{part}s", f"{score}{part}_fraction", "max", getattr(t, f"max_{part}_fraction"))

    return [
        Rule(f"{family}:no_text", "nonblank_lines", "min", t.min_nonblank_lines),
        rule("duplicate_paragraph"),
        rule("duplicate_paragraph_char"),
        rule("duplicate_line"),
        rule("duplicate_line_char"),
        *(rule(f"top_{n}_gram_char", "" if t.unrepeated_top_n_grams else "repeated_") for n in TOP_N),
        *(rule(f"duplicate_{n}_gram_char") for n in DUPLICATE_N),
    ]
