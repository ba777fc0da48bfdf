"""The rules of C4, as judgements of a document: nothing is edited.

Source: Raffel et al. 2020, arXiv:1910.10683, section 2.2, and the released code (tensorflow/datasets, c4_utils.py).
C4 removes lines (no end mark, fewer than 3 words, a word above 1000 characters, "javascript", a cookie or privacy phrase)
and then drops a document with a line of "lorem ipsum" or "{", or with fewer than 5 sentences left. Here the lines stay in
the text; the scores count what C4 would have left, so the document is dropped or kept as C4 would. `c4_kept_word_fraction`
tells how much of it C4 would have kept.
Agrees with C4QualityFilter of datatrove 0.10.1 and its whitespace tokenizer's sentences.

Deviates from it, on purpose:
    edits       none: in datatrove's pipelines the filters after C4's judge what it has left of the text, here every family
                judges the text as it is.
    lines       end at "\\n" only.
    citations   (`[1]`, `[edit]`, `[citation needed]`) are looked through at the end of a line only, with ASCII digits.
    phrases     ignore the case of ASCII letters only.
    scripts     A line may end in the mark of any script that ends a sentence (。 ؟ ।), and closing quotes and brackets outside
                ASCII may follow it (。」 .”). Of 380 web pages in English 2 more have five sentences so (1 in 190).
                A line of a script without spaces has three words if its letters make as many: see ops/text_stats.
                In ASCII nothing changes.
    sentences   datatrove's English default (spaCy) ends a sentence at a mark that is a word of its own, and knows
                abbreviations; here a sentence ends at any mark but that of an initial (see ops/text_stats).
Not here: the paper's list of obscene words.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pydantic import Field

from gpu_curate.quality.rule import MARKED_SCRIPTS, Rule, bound, fraction
from gpu_curate.section import Count, Section

if TYPE_CHECKING:
    import numpy as np

_COUNTS = ("sentences", "lorem_ipsum_lines", "curly_bracket_lines")


class C4(Section):
    """Raffel et al. 2020, arXiv:1910.10683, section 2.2, and the released code. Judges as C4 would; removes no lines."""

    end_punctuation: bool = Field(
        True,
        description="count only lines that end in one of .?!\"' or another script's mark at the end of a sentence, closing "
        "quotes outside ASCII left out, and not in `...`; false: as FineWeb did (section 3.5)",
    )
    max_lorem_ipsum_lines: Count | None = bound(0, "more lines of `lorem ipsum`", "C4, section 2.2")
    max_curly_bracket_lines: Count | None = bound(0, "more lines with `{`", "C4, section 2.2")
    min_sentences: Count | None = bound(
        5, "fewer sentences in the lines that C4 keeps", "C4's released code", MARKED_SCRIPTS
    )


def scores(stats: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The scores of the family from the statistics of N documents."""
    return {
        **{name: stats[name] for name in (f"c4_{count}" for count in _COUNTS)},
        **{name: stats[name] for name in (f"c4_unended_{count}" for count in _COUNTS)},
        "c4_kept_word_fraction": fraction(stats["c4_kept_words"], stats["words"]),
    }


def rules(t: C4) -> list[Rule]:
    """Placeholder text, code, and too little prose."""
    c4 = "c4" if t.end_punctuation else "c4_unended"
    return [
        Rule.of(t, "c4:lorem_ipsum", f"{c4}_lorem_ipsum_lines", "max_lorem_ipsum_lines"),
        Rule.of(t, "c4:curly_bracket", f"{c4}_curly_bracket_lines", "max_curly_bracket_lines"),
        Rule.of(t, "c4:too_few_sentences", f"{c4}_sentences", "min_sentences"),
    ]
