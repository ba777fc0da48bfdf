"""What a recipe says of judges, learned scores, and the rules that it makes of them: `judges:unscored_NAME`, `min_NAME`,
`max_NAME`, `top_NAME`. What a judge is: `gpu_curate.judges`.

# N documents
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field, StringConstraints, model_validator

from gpu_curate.quality.rule import ANY_SCRIPT, SPACED_SCRIPTS, Rule
from gpu_curate.section import Section

if TYPE_CHECKING:
    import numpy as np

FAMILY = "judges"
COLUMN = "judge_"  # a judge's column in scores/ is this and its name
LIMIT = 1_000_000  # scores lie between this and its negative
UNSCORED = -(1 << 31)  # in a column of scores: there is none
BELOW_TOP = "below_top:"  # and a score's name: among the values that rules look at, bool of N

JudgeName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,39}$")]


class Band(Section):
    """Documents of one quality, and how often they are in the training stream."""

    min: int = Field(
        ge=-LIMIT, le=LIMIT, description="lowest score of the band; a document is in the highest that it reaches"
    )
    weight: float = Field(
        ge=0.0,
        le=100.0,
        description="times a document is in the stream; of 2.3 three in ten are there 3 times, the others twice, by content; "
        "0: not drawn",
    )


class Judge(Section):
    """A learned score of every document, stored as the integer column `judge_NAME`, and what it decides."""

    off: ClassVar[dict[str, Any]] = {"bands": []}

    type: Literal["exact", "perplexity"] = Field(
        "exact",
        description="`exact`: of `gpu-curate judge`; `perplexity`: a KenLM model (extra `perplexity`), -1000 x log10 of the "
        "perplexity, so that higher is better here too",
    )
    unit: Literal["document", "paragraph"] = Field(
        "document", description="perplexity: over all words, or the median of the lines"
    )
    model: str = Field(
        min_length=1, description="file of the judge: what `gpu-curate judge train` or `judge import` wrote"
    )
    min: int | None = Field(
        None,
        ge=-LIMIT,
        le=LIMIT,
        description="drops a document with a lower score (thousandths: of a probability, or of the label it was trained on); "
        "null: off",
    )
    max: int | None = Field(None, ge=-LIMIT, le=LIMIT, description="drops a document with a higher score; null: off")
    top_share: float | None = Field(
        None,
        gt=0.0,
        le=1.0,
        description="drops all but this share of the documents, the highest scores; equal scores go together, so a few more "
        "may stay; counted among all documents that were read, whatever other rules say; null: off",
    )
    per: Literal["source", "group", "all"] = Field(
        "source", description="of what top_share is a share: each source, each group of its group_column, or all"
    )
    unscored: Literal["drop", "keep"] = Field(
        "drop", description="what becomes of a document that has no score, as one without words"
    )
    bands: list[Band] = Field(
        [],
        max_length=64,
        description="`[{min: 900, weight: 3}, {min: 500, weight: 1}]`: up-sampling by quality; below the lowest: weight 1",
    )

    @model_validator(mode="after")
    def _sound(self) -> Judge:
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError(f"min={self.min} above max={self.max} drops every document; swap them")
        bounds = [band.min for band in self.bands]
        twice = sorted({b for b in bounds if bounds.count(b) > 1})
        if twice:
            raise ValueError(f"two bands begin at {twice[0]}; leave one out")
        return self


@dataclass(frozen=True)
class JudgeRule(Rule):
    """One bound on a judge's score; a document without a score fails `no` alone. `top`: limit is the share that stays."""

    per: str = ""

    def fails(self, scores: Mapping[str, Any]) -> np.ndarray:
        """bool of N; for `top` the values hold BELOW_TOP and the score's name."""
        if self.bound == "top":
            below_N: np.ndarray = scores[BELOW_TOP + self.score]
            return below_N
        unscored_N: np.ndarray = scores[self.score] == UNSCORED
        return unscored_N if self.bound == "no" else super().fails(scores) & ~unscored_N

    @property
    def meaning(self) -> str:
        if self.bound == "no":
            return f"{self.score}: the judge gives no score"
        if self.bound == "top":
            of = "all documents" if self.per == "all" else f"its {self.per}"
            return f"{self.score} not among the highest {self.limit:.4g} of {of}"
        return super().meaning


def rules(judges: Mapping[str, Judge]) -> Iterator[JudgeRule]:
    """The rules of all judges, in the order of the recipe."""
    for name, judge in judges.items():
        limits: tuple[tuple[str, Literal["no", "min", "max", "top"], Any, str], ...] = (
            ("unscored", "no", 0 if judge.unscored == "drop" else None, "unscored"),
            ("min", "min", judge.min, "min"),
            ("max", "max", judge.max, "max"),
            ("top", "top", judge.top_share, "top_share"),
        )
        for what, bound, limit, key in limits:
            if limit is not None:
                at = f"quality.{FAMILY}.{name}.{key}"
                per = judge.per if bound == "top" else ""
                made_for = ANY_SCRIPT if bound == "no" else SPACED_SCRIPTS
                yield JudgeRule(f"{FAMILY}:{what}_{name}", COLUMN + name, bound, limit, key, made_for, at, per)


def known(score_N: np.ndarray) -> np.ndarray:
    """float64 of N: a judge's scores, NaN where there is none."""
    import numpy as np

    found: np.ndarray = np.where(score_N == UNSCORED, np.nan, score_N.astype(np.float64))
    return found
