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
    scripts     without spaces (Chinese, Japanese, Thai, Khmer ...) write a clause or a paragraph as one run. Their letters are
                counted instead, 1.5 (Han) or 4 (the others) to a word, on top of the runs: see ops/text_stats. The mean length
                of words counts a Han letter as 4 characters, one of kana, Hangul or Ethiopic as 2. In ASCII nothing changes.
    n-grams     of such scripts are n-grams of runs; so of a document most of whose words are unwritten an n-gram that occurs
                once is none. datatrove splits Chinese, Japanese, Thai ... by a tokenizer per language.
min_stop_words is for the language of `stop_words`; the bounds on the length of words are for English.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from pydantic import Field, field_validator, model_validator

from gpu_curate.quality.rule import ENGLISH, SPACED_SCRIPTS, Rule, bound, fraction, unwritten_chars, unwritten_words
from gpu_curate.section import Count, Fraction, Ratio, Section

if TYPE_CHECKING:
    import numpy as np


class GopherQuality(Section):
    """Rae et al. 2021, arXiv:2112.11446, section A.1.1. Words are runs without white space; in scripts without spaces
    letters are counted, 1.5 (Han) or 4 (kana, Thai, Lao, Khmer, Burmese, Tibetan) to a word."""

    min_words: Count | None = bound(50, "fewer words, those of symbols alone not counted", "Gopher A.1.1")
    max_words: Count | None = bound(100_000, "more words, those of symbols alone not counted", "Gopher A.1.1")
    min_mean_word_chars: Ratio | None = bound(3.0, "shorter words on average", "Gopher A.1.1", ENGLISH)
    max_mean_word_chars: Ratio | None = bound(10.0, "longer words on average", "Gopher A.1.1", ENGLISH)
    max_hash_to_word_ratio: Ratio | None = bound(0.1, "more `#` per word", "Gopher A.1.1")
    max_ellipsis_to_word_ratio: Ratio | None = bound(0.1, "more `...` and `…` per word", "Gopher A.1.1")
    max_bullet_line_fraction: Fraction | None = bound(0.9, "more lines that start with `-` or `•`", "Gopher A.1.1")
    max_ellipsis_line_fraction: Fraction | None = bound(0.3, "more lines that end with an ellipsis", "Gopher A.1.1")
    min_alphabetic_word_fraction: Fraction | None = bound(0.8, "fewer words that hold a letter", "Gopher A.1.1")
    min_stop_words: Count | None = bound(2, "fewer different ones of `stop_words`", "Gopher A.1.1", ENGLISH)
    stop_words: list[str] = Field(
        ["the", "be", "to", "of", "and", "that", "have", "with"],
        max_length=32,
        description="words that `min_stop_words` looks for, spelt and cased as in the text; those of Gopher A.1.1 are "
        "English; for other languages FineWeb-2 publishes lists (configs/fineweb2_arabic.yaml has one)",
    )

    @field_validator("stop_words")
    @classmethod
    def _are_words(cls, words: list[str]) -> list[str]:
        for word in words:
            if word.split() != [word]:
                raise ValueError(f"{word!r} is not one word: a word of a text holds no white space")
        if len(set(words)) < len(words):
            raise ValueError("a word is named twice")
        return words

    @model_validator(mode="after")
    def _in_order(self) -> GopherQuality:
        for name in ("words", "mean_word_chars"):
            low, high = getattr(self, f"min_{name}"), getattr(self, f"max_{name}")
            if low is not None and high is not None and low > high:
                raise ValueError(f"min_{name}={low} above max_{name}={high} drops every document; swap them")
        asked = self.min_stop_words or 0
        if "stop_words" in self.model_fields_set and asked > len(self.stop_words):
            raise ValueError(
                f"min_stop_words={self.min_stop_words} of {len(self.stop_words)} stop_words drops every document; "
                "name more words, or min_stop_words: null"
            )
        return self


class GopherRepetition(Section):
    """Rae et al. 2021, arXiv:2112.11446, table A1. Fractions of all lines, paragraphs or characters."""

    unrepeated_top_n_grams: bool = Field(
        True,
        description="where no n-gram occurs twice, the first one is the commonest, as in datatrove 0.10.1; this drops most "
        "texts of fewer than 25 words; false: there is none",
    )
    min_nonblank_lines: Count | None = bound(1, "fewer lines that hold a word", "datatrove 0.10.1 (empty)")
    max_duplicate_paragraph_fraction: Fraction | None = bound(0.3, "more repeated paragraphs", "Gopher table A1")
    max_duplicate_paragraph_char_fraction: Fraction | None = bound(
        0.2, "more of it in repeated paragraphs", "Gopher table A1"
    )
    max_duplicate_line_fraction: Fraction | None = bound(0.3, "more repeated lines", "Gopher table A1")
    max_duplicate_line_char_fraction: Fraction | None = bound(0.2, "more of it in repeated lines", "Gopher table A1")
    max_top_2_gram_char_fraction: Fraction | None = bound(
        0.2, "more of it in its commonest 2-gram", "Gopher table A1", SPACED_SCRIPTS
    )
    max_top_3_gram_char_fraction: Fraction | None = bound(
        0.18, "more of it in its commonest 3-gram", "Gopher table A1", SPACED_SCRIPTS
    )
    max_top_4_gram_char_fraction: Fraction | None = bound(
        0.16, "more of it in its commonest 4-gram", "Gopher table A1", SPACED_SCRIPTS
    )
    max_duplicate_5_gram_char_fraction: Fraction | None = bound(
        0.15, "more of it in repeated 5-grams", "Gopher table A1", SPACED_SCRIPTS
    )
    max_duplicate_6_gram_char_fraction: Fraction | None = bound(
        0.14, "more of it in repeated 6-grams", "Gopher table A1", SPACED_SCRIPTS
    )
    max_duplicate_7_gram_char_fraction: Fraction | None = bound(
        0.13, "more of it in repeated 7-grams", "Gopher table A1", SPACED_SCRIPTS
    )
    max_duplicate_8_gram_char_fraction: Fraction | None = bound(
        0.12, "more of it in repeated 8-grams", "Gopher table A1", SPACED_SCRIPTS
    )
    max_duplicate_9_gram_char_fraction: Fraction | None = bound(
        0.11, "more of it in repeated 9-grams", "Gopher table A1", SPACED_SCRIPTS
    )
    max_duplicate_10_gram_char_fraction: Fraction | None = bound(
        0.10, "more of it in repeated 10-grams", "Gopher table A1", SPACED_SCRIPTS
    )


def scores(stats: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The scores of both families from the statistics of N documents."""
    import numpy as np

    from gpu_curate.ops.text_stats import DUPLICATE_N, TOP_N

    unwritten = unwritten_words(stats)
    words, lines, chars = stats["words"] + unwritten, stats["lines"], stats["chars"]
    solid, solid_chars = stats["non_symbol_words"] + unwritten, stats["non_symbol_word_chars"] + unwritten_chars(stats)
    longest = stats["longest_repeated_n_gram"]
    found = {n: fraction(stats[f"top_{n}_gram_chars"], chars) for n in TOP_N}
    repeated = {n: np.where(longest >= n, found[n], 0.0) for n in TOP_N}
    hidden = 2 * unwritten > words
    return {
        "non_symbol_words": solid.astype(np.int32),
        "mean_word_chars": fraction(solid_chars, solid),
        "hash_to_word_ratio": fraction(stats["hashes"], words),
        "ellipsis_to_word_ratio": fraction(stats["ellipses"], words),
        "bullet_line_fraction": fraction(stats["bullet_lines"], lines),
        "ellipsis_line_fraction": fraction(stats["ellipsis_lines"], lines),
        "alphabetic_word_fraction": fraction(stats["alphabetic_words"] + unwritten, words),
        "stop_words": stats["stop_words"],
        "nonblank_lines": stats["nonblank_lines"],
        "duplicate_paragraph_fraction": fraction(stats["duplicate_paragraphs"], stats["paragraphs"]),
        "duplicate_paragraph_char_fraction": fraction(stats["duplicate_paragraph_chars"], chars),
        "duplicate_line_fraction": fraction(stats["duplicate_lines"], stats["nonblank_lines"]),
        "duplicate_line_char_fraction": fraction(stats["duplicate_line_chars"], chars),
        **{f"top_{n}_gram_char_fraction": np.where(hidden, repeated[n], found[n]) for n in TOP_N},
        **{f"repeated_top_{n}_gram_char_fraction": repeated[n] for n in TOP_N},
        **{
            f"duplicate_{n}_gram_char_fraction": fraction(stats[f"duplicate_{n}_gram_chars"], chars)
            for n in DUPLICATE_N
        },
    }


def quality_rules(t: GopherQuality) -> list[Rule]:
    """Whether it reads like text at all: length, word length, symbols, bullets, letters, stop words."""

    def rule(name: str, score: str, key: str) -> Rule:
        return Rule.of(t, f"gopher_quality:{name}", score, key)

    return [
        rule("too_few_words", "non_symbol_words", "min_words"),
        rule("too_many_words", "non_symbol_words", "max_words"),
        rule("words_too_short", "mean_word_chars", "min_mean_word_chars"),
        rule("words_too_long", "mean_word_chars", "max_mean_word_chars"),
        rule("too_many_hashes", "hash_to_word_ratio", "max_hash_to_word_ratio"),
        rule("too_many_ellipses", "ellipsis_to_word_ratio", "max_ellipsis_to_word_ratio"),
        rule("too_many_bullet_lines", "bullet_line_fraction", "max_bullet_line_fraction"),
        rule("too_many_ellipsis_lines", "ellipsis_line_fraction", "max_ellipsis_line_fraction"),
        rule("too_few_alphabetic_words", "alphabetic_word_fraction", "min_alphabetic_word_fraction"),
        rule("too_few_stop_words", "stop_words", "min_stop_words"),
    ]


def repetition_rules(t: GopherRepetition) -> list[Rule]:
    """Whether it repeats itself: paragraphs, lines, its commonest n-gram, any n-grams."""
    family = "gopher_repetition"

    def rule(part: str, score: str = "") -> Rule:
        return Rule.of(t, f"{family}:{part}s", f"{score}{part}_fraction", f"max_{part}_fraction")

    def n_grams(what: str) -> list[str]:
        keys = [re.fullmatch(rf"max_({what}_\d+_gram_char)_fraction", key) for key in GopherRepetition.model_fields]
        return [key[1] for key in keys if key]

    return [
        Rule.of(t, f"{family}:no_text", "nonblank_lines", "min_nonblank_lines"),
        rule("duplicate_paragraph"),
        rule("duplicate_paragraph_char"),
        rule("duplicate_line"),
        rule("duplicate_line_char"),
        *(rule(part, "" if t.unrepeated_top_n_grams else "repeated_") for part in n_grams("top")),
        *(rule(part) for part in n_grams("duplicate")),
    ]
