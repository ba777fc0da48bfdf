"""FineWeb's own rules.

Source: Penedo et al. 2024, arXiv:2406.17557, section 3.6; the defaults are those of FineWebQualityFilter in datatrove
0.10.1, with which the decisions agree when it splits words at white space. Lines are those that are not blank.

Deviates: lines are compared by 64-bit hashes. (The paper's limit for duplicate lines is 0.1, the released code's 0.01; the
paper's short lines have fewer than 30 characters, the code's at most 30.)
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from gpu_curate import config
from gpu_curate.quality.rule import Rule, fraction


def scores(stats: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The scores of the family from the statistics of N documents (and `nonblank_lines`, which Gopher has too)."""
    lines, text_chars = stats["nonblank_lines"], stats["chars"] - stats["newlines"]
    return {
        "terminal_line_fraction": fraction(stats["terminal_lines"], lines),
        "short_line_fraction": fraction(stats["short_lines"], lines),
        "duplicate_line_text_fraction": fraction(stats["duplicate_line_chars"], text_chars),
        "newline_to_word_ratio": fraction(stats["newlines"], stats["words"]),
    }


def rules(t: config.FineWeb) -> list[Rule]:
    """Whether its lines are sentences: ends, lengths, repeats, and how many there are."""
    return [
        Rule("fineweb:no_text", "nonblank_lines", "min", t.min_nonblank_lines),
        Rule("fineweb:too_few_terminal_lines", "terminal_line_fraction", "min", t.min_terminal_line_fraction),
        Rule("fineweb:too_many_short_lines", "short_line_fraction", "max", t.max_short_line_fraction),
        Rule("fineweb:duplicate_line_chars", "duplicate_line_text_fraction", "max", t.max_duplicate_line_text_fraction),
        Rule("fineweb:too_many_newlines", "newline_to_word_ratio", "max", t.max_newline_to_word_ratio),
    ]
