"""Scores: every statistic of every document, no decision."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from gpu_curate.guard import refusal
from gpu_curate.quality.gopher import GopherQuality
from gpu_curate.quality.judges import Judge
from gpu_curate.quality.own import Own
from gpu_curate.stages import Made, Stage
from gpu_curate.stages.judged import identities, tables_of
from gpu_curate.stages.judged import libraries as judge_libraries
from gpu_curate.stages.judged import scores as judge_scores
from gpu_curate.stages.own_scores import own_identity, own_scores
from gpu_curate.stages.part import Part
from gpu_curate.stages.partition_text import text_hash
from gpu_curate.stages.rejects import LateRejects
from gpu_curate.stages.text_counts import TextCounts
from gpu_curate.store.receipts import Counts, Receipt
from gpu_curate.text.sections import Language, Normalize


@dataclass(frozen=True, kw_only=True)
class ScoreCounts(TextCounts):
    """Attributes:
    chars: code points.
    languages: documents by language, where a model was asked.
    """

    chars: int = 0
    languages: dict[str, int] = field(default_factory=dict)

    quiet: ClassVar[frozenset[str]] = frozenset({*TextCounts.quiet, "languages"})


class Scores(Stage):
    """Score every document once; decide nothing. A threshold moves without a second pass.

    Reads: documents(text).  Writes: one column per score of `quality.score_types()`, then those of judges (int32) and of the
    recipe's own classes; with
    a language model also `language` (ISO 639-1 code or `unknown`) and `language_score` float32.
    Memory: partition text and about 300 bytes a document.  Source and deviations: see quality/.
    """

    name: ClassVar[str] = "scores"
    counts: ClassVar[type[Counts]] = ScoreCounts
    follows: ClassVar[str | None] = "documents"
    rejects: ClassVar[bool] = True
    on_device: ClassVar[bool] = True

    def __init__(
        self,
        gopher: GopherQuality | None,
        language: Language,
        normalize: Normalize | None,
        own: Mapping[str, Own],
        judges: Mapping[str, Judge],
    ):
        """
        Args:
            own: the user's own classes, by their names in the recipe.
            judges: learned scores, by their names.
        """
        self.language, self.own, self.judges = language, own, judges
        self.stop_words = _stop_words(gopher or GopherQuality(), normalize)

    def libraries(self) -> tuple[str, ...]:
        return (*(("fasttext-predict",) if self.language.model is not None else ()), *judge_libraries(self.judges))

    def made_of(self, receipt: Receipt[Counts]) -> str:
        return text_hash(receipt)

    def settings(self) -> Any:
        stop_words: dict[str, Any] = {"stop_words": self.stop_words, "own": own_identity(self.own)}
        if self.judges:
            stop_words["judges"] = identities(self.judges)
        if self.language.model is None and self.language.keep is None:
            return stop_words
        from gpu_curate.text.language import check, model_identity

        check(self.language)
        return {
            **stop_words,
            "model": model_identity(self.language),
            **self.language.model_dump(include={"min_letters", "min_margin"}),
        }

    def make(self, part: Part) -> Made:
        from gpu_curate.ops.text_stats import text_stats
        from gpu_curate.quality import scores

        tables = tables_of(self.judges)
        stats, how, more = part.compute(lambda text: dict(text_stats(text, self.stop_words, tables)))
        columns: dict[str, Any] = dict(scores(stats)) | judge_scores(
            stats, self.judges, lambda: part.text().to_arrow().to_pylist()
        )
        if self.own:
            columns |= own_scores(self.own, part.text().to_arrow(), part.rejects)
        languages: dict[str, int] = {}
        if self.language.model is not None:
            texts = part.text().to_arrow().to_pylist()
            columns["language"], columns["language_score"] = _languages(self.language, texts, part.rejects)
            languages = dict(Counter(columns["language"].to_pylist()))
        counts = ScoreCounts(
            documents=len(columns["chars"]),
            bytes=part.counts(str(self.follows), Counts).bytes,
            backend=how,
            chars=int(columns["chars"].sum()),
            languages=languages,
            **more,
        )
        dictionary = ["language"] if "language" in columns else False
        return Made(counts, pa.table(columns), options={"use_dictionary": dictionary})


def _stop_words(section: GopherQuality, normalize: Normalize | None) -> tuple[str, ...]:
    """As the text spells them: in its Unicode form."""
    form = None if normalize is None else normalize.form
    return tuple(dict.fromkeys(unicodedata.normalize(form, w) if form else w for w in section.stop_words))


def _languages(section: Language, texts: list[str], rejects: LateRejects) -> tuple[pa.Array, Any]:
    from gpu_curate.text.language import UNKNOWN, LanguageId

    model = LanguageId(section, trial=False)  # `settings` has tried it
    try:
        labels, scores, _ = model.predict(texts)
    except BaseException as e:
        refusal(e)  # of one of them: which?
        labels, scores = [UNKNOWN] * len(texts), np.zeros(len(texts), np.float32)
        for number, text in enumerate(texts):
            try:
                (labels[number],), scores[number : number + 1], _ = model.predict([text])
            except BaseException as e:
                rejects.add(number, f"its language cannot be told: {refusal(e)}", text.encode("utf-8"))
    return pa.array(list(labels), pa.string()), scores
