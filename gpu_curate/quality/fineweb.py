"""FineWeb's own rules.

Source: Penedo et al. 2024, arXiv:2406.17557, section 3.6; the defaults are those of FineWebQualityFilter in datatrove
0.10.1, with which the decisions agree when it splits words at white space. Lines are those that are not blank.

Deviates: lines are compared by 64-bit hashes. A line may end in closing quotes and brackets outside ASCII after its mark
(。」 .”), for which 4 of 380 web pages in English pass where datatrove drops them. A Han letter is 4 characters of a line, one
of kana, Hangul or Ethiopic 2, and letters of scripts without spaces make words (see ops/text_stats). In ASCII nothing
changes. (The paper's limit for duplicate lines is 0.1, the released code's 0.01; the
paper's short lines have fewer than 30 characters, the code's at most 30.)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from gpu_curate.quality.rule import MARKED_SCRIPTS, Rule, bound, fraction, unwritten_words
from gpu_curate.section import Count, Fraction, Ratio, Section

if TYPE_CHECKING:
    import numpy as np


class FineWeb(Section):
    """Penedo et al. 2024, arXiv:2406.17557, section 3.6. Lines that are not blank."""

    min_nonblank_lines: Count | None = bound(1, "fewer lines that hold a word", "datatrove 0.10.1 (empty)")
    min_terminal_line_fraction: Fraction | None = bound(
        0.12, "fewer lines that end in terminal punctuation of any script", "FineWeb, section 3.6", MARKED_SCRIPTS
    )
    max_short_line_fraction: Fraction | None = bound(
        0.67,
        "more lines of at most 30 characters (a Han letter counts 4, of kana, Hangul, Ethiopic 2)",
        "FineWeb, section 3.6",
    )
    max_duplicate_line_text_fraction: Fraction | None = bound(
        0.01, "more of it, line ends not counted, in repeated lines", "datatrove 0.10.1 (FineWeb, section 3.6: 0.1)"
    )
    max_newline_to_word_ratio: Ratio | None = bound(0.3, "more line ends per word", "datatrove 0.10.1")


def scores(stats: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The scores of the family from the statistics of N documents (and `nonblank_lines`, which Gopher has too)."""
    lines, text_chars = stats["nonblank_lines"], stats["chars"] - stats["newlines"]
    return {
        "terminal_line_fraction": fraction(stats["terminal_lines"], lines),
        "short_line_fraction": fraction(stats["short_lines"], lines),
        "duplicate_line_text_fraction": fraction(stats["duplicate_line_chars"], text_chars),
        "newline_to_word_ratio": fraction(stats["newlines"], stats["words"] + unwritten_words(stats)),
    }


def rules(t: FineWeb) -> list[Rule]:
    """Whether its lines are sentences: ends, lengths, repeats, and how many there are."""

    def rule(name: str, score: str, key: str) -> Rule:
        return Rule.of(t, f"fineweb:{name}", score, key)

    return [
        rule("no_text", "nonblank_lines", "min_nonblank_lines"),
        rule("too_few_terminal_lines", "terminal_line_fraction", "min_terminal_line_fraction"),
        rule("too_many_short_lines", "short_line_fraction", "max_short_line_fraction"),
        rule("duplicate_line_chars", "duplicate_line_text_fraction", "max_duplicate_line_text_fraction"),
        rule("too_many_newlines", "newline_to_word_ratio", "max_newline_to_word_ratio"),
    ]
