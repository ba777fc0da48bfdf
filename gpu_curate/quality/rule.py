"""What a rule and its threshold are, and how a document's words and characters are measured.

The modules of the rules hold sections of the config, so NumPy and the ops are imported where they compute.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from gpu_curate.section import Section

if TYPE_CHECKING:
    import numpy as np

# What a rule was made for; `Rule.suits` tells which languages and scripts that is.
ANY_SCRIPT, SPACED_SCRIPTS, MARKED_SCRIPTS, ENGLISH = (
    "all scripts",
    "scripts with spaces between words",
    "scripts that mark the end of a sentence",
    "English",
)

# As `text.scripts` names them.
UNSPACED_SCRIPTS = frozenset(
    ("Han", "Kana", "Bopomofo", "Thai", "Lao", "Khmer", "Myanmar", "Tibetan", "Tai", "New Tai", "Javanese")
)
UNMARKED_SCRIPTS = frozenset(("Thai", "Lao", "Tibetan"))  # Unicode has no Sentence_Terminal of theirs


def bound(default: float, drops: str, source: str, made_for: str = ANY_SCRIPT) -> Any:
    """A threshold: what it drops (a document on the bound is kept), where its value is from, and which texts it suits."""
    description = f"drops a document with {drops}; null: off; for {made_for}; {source}"
    return Field(default, description=description, json_schema_extra={"made_for": made_for})


@dataclass(frozen=True)
class Rule:
    """One bound on one score. A document fails if its score lies beyond the bound; on it, it passes.

    Args:
        name: `family:rule`, the reason of a dropped document.
        score: a name of `quality.score_types()`.
        bound: `min`: lower scores fail. `max`: higher ones do. (`in`, `no` and `top` are of columns and judges.)
        limit: the bound; None: the rule is off and fails nothing. 0 is a bound like any other.
        key: of the bound in the family's section of the config.
        made_for: one of ANY_SCRIPT, SPACED_SCRIPTS, MARKED_SCRIPTS, ENGLISH.
        at: the bound in the recipe, where that is not `quality.FAMILY.KEY`.
    """

    name: str
    score: str
    bound: Literal["min", "max", "in", "no", "top"]
    limit: float | None
    key: str
    made_for: str
    at: str = ""

    @classmethod
    def of(cls, section: Section, name: str, score: str, key: str) -> Rule:
        """The rule of a key of a section; `min_` or `max_` at its start tells the bound.

        One for English whose bound, or whose stop words, the recipe gives is for what the recipe is for.
        """
        made_for = type(section).model_fields[key].json_schema_extra["made_for"]  # type: ignore[index]  # set by `bound`
        what = "stop_words" if key == "min_stop_words" else key
        if made_for == ENGLISH and getattr(section, what) != getattr(type(section)(), what):
            made_for = ANY_SCRIPT
        return cls(name, score, key[:3], getattr(section, key), key, made_for)  # type: ignore[arg-type]  # set by `bound`

    @property
    def path(self) -> str:
        """Where the recipe gives the bound, as `--set` takes it."""
        return self.at or f"quality.{self.name.partition(':')[0]}.{self.key}"

    @property
    def meaning(self) -> str:
        """What fails, in words; "" if nothing does."""
        if self.limit is None:
            return ""
        limit = str(self.limit) if isinstance(self.limit, int) else f"{self.limit:g}"
        return f"{self.score} {'below' if self.bound == 'min' else 'above'} {limit}"

    def fails(self, scores: Mapping[str, Any]) -> np.ndarray:
        """bool of N."""
        import numpy as np

        score_N: np.ndarray = scores[self.score]
        if self.limit is None:
            return np.zeros(len(score_N), np.bool_)
        return score_N < self.limit if self.bound == "min" else score_N > self.limit

    def suits(self, script: str | None, language: str | None) -> bool | None:
        """Whether it was made for a text of this script (`text.scripts`) and language (ISO 639-1); None: not known."""
        if self.made_for == ENGLISH and language is not None:
            return language == "en"
        if script is None:
            return None
        if self.made_for == ENGLISH:
            return None if script == "Latin" else False
        if self.made_for == SPACED_SCRIPTS:
            return script not in UNSPACED_SCRIPTS
        return self.made_for != MARKED_SCRIPTS or script not in UNMARKED_SCRIPTS


def unwritten_words(stats: Mapping[str, np.ndarray]) -> np.ndarray:
    """int64 of N: words beyond those between spaces, that a reader finds in letters of scripts without spaces."""
    import numpy as np

    from gpu_curate.ops.text_stats import HAN_PARTS, UNSPACED_PARTS, WORD_PARTS

    han, unspaced = (stats[name].astype(np.int64) for name in ("han_letters", "unspaced_letters"))
    return (han * HAN_PARTS + unspaced * UNSPACED_PARTS) // WORD_PARTS


def unwritten_chars(stats: Mapping[str, np.ndarray]) -> np.ndarray:
    """int64 of N: characters that letters of Han, kana, Hangul and Ethiopic stand for beyond themselves."""
    import numpy as np

    from gpu_curate.ops.text_stats import DOUBLE_CHARS, HAN_CHARS

    han, double = (stats[name].astype(np.int64) for name in ("han_letters", "double_letters"))
    return han * (HAN_CHARS - 1) + double * (DOUBLE_CHARS - 1)


def fraction(part_N: np.ndarray, whole_N: np.ndarray) -> np.ndarray:
    """part / whole as float64, the correctly rounded quotient of the two integers; 0.0 where whole is 0."""
    import numpy as np

    out_N = np.zeros(len(part_N), np.float64)
    np.divide(part_N, whole_N, out=out_N, where=whole_N != 0)
    return out_N
