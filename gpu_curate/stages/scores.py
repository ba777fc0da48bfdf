"""Scores: every statistic of every document, no decision."""

from __future__ import annotations

import unicodedata
from collections import Counter
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from gpu_curate.config import Config, GopherQuality
from gpu_curate.guard import refusal
from gpu_curate.stages import Context, Stage, Stopwatch
from gpu_curate.stages.own_scores import own_identity, own_scores
from gpu_curate.stages.rejects import LateRejects
from gpu_curate.store.files import write_table


class Scores(Stage):
    """Score every document once; decide nothing. A threshold moves without a second pass.

    Reads: documents(text).  Writes: one column per score of `quality.score_types()`, then those of the recipe's own classes; with
    a language model also `language` (ISO 639-1 code or `unknown`) and `language_score` float32.
    Memory: partition text and about 300 bytes a document.  Source and deviations: see quality/.
    """

    name: ClassVar[str] = "scores"
    follows: ClassVar[str | None] = "documents"
    code: ClassVar[tuple[str, ...]] = (
        "stages.scores",
        "stages.own_scores",
        "own_code",
        "stages.rejects",
        "guard",
        "lfs",
        "ops.text_stats",
        "ops.simd",
        "ops.mix",
        "quality",
        "text.language",
        "text.languages",
        "text.scripts",
        "text.normalize",
        "text.swar",
    )
    on_device: ClassVar[bool] = True

    def made_of(self, config: Config, receipt: dict[str, Any]) -> str:
        from gpu_curate.stages.partition_text import text_hash

        return text_hash(receipt)

    def libraries(self, config: Config) -> tuple[str, ...]:
        return ("fasttext-predict",) if config.language.model is not None else ()

    def settings(self, config: Config) -> Any:
        stop_words = {"stop_words": _stop_words(config), "own": own_identity(config)}
        if config.language.model is None and config.language.keep is None:
            return stop_words
        from gpu_curate.text.language import check, model_identity

        check(config.language)
        return {
            **stop_words,
            "model": model_identity(config.language),
            **config.language.model_dump(include={"min_chars", "min_margin"}),
        }

    def run(self, context: Context, part: str, task: Any) -> dict[str, Any]:
        from gpu_curate.device.backend import compute
        from gpu_curate.ops.text_stats import text_stats
        from gpu_curate.quality import scores
        from gpu_curate.stages.partition_text import host_text, verified_text

        watch = Stopwatch()
        config = context.config
        path = verified_text(context.box(self.follows), part)
        stop_words = _stop_words(config)
        stats, how, more = compute(context, path, lambda text: dict(text_stats(text, stop_words).items()))
        columns: dict[str, Any] = dict(scores(stats))
        n = len(columns["chars"])
        rejects = LateRejects(context, self.name, part)
        if config.quality.own:
            columns |= own_scores(config, host_text(path).to_arrow(), rejects)
        if config.language.model is not None:
            texts = host_text(path).to_arrow().to_pylist()
            columns["language"], columns["language_score"] = _languages(config, texts, rejects)
        box = context.box(self.name)
        out = box.path(part, ".parquet")
        write_table(out, pa.table(columns), use_dictionary=["language"] if "language" in columns else False)
        nbytes = context.box(self.follows).receipt(part)["bytes"]  # type: ignore[index]
        facts = {"documents": n, "bytes": nbytes, "backend": how, "chars": int(columns["chars"].sum())}
        late, counts = rejects.write()
        facts.update(more, **counts)
        if "language" in columns:
            facts["languages"] = dict(Counter(columns["language"].to_pylist()))
        return box.commit(part, [out, *late], {**facts, **watch.facts()})


def _stop_words(config: Config) -> tuple[str, ...]:
    """As the text spells them: in its Unicode form."""
    section = config.quality.gopher_quality or GopherQuality()
    form = None if config.normalize is None else config.normalize.form
    return tuple(dict.fromkeys(unicodedata.normalize(form, w) if form else w for w in section.stop_words))


def _languages(config: Config, texts: list[str], rejects: LateRejects) -> tuple[pa.Array, Any]:
    from gpu_curate.text.language import UNKNOWN, LanguageId

    model = LanguageId(config.language, trial=False)  # `settings` has tried it
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
