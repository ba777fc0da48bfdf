"""Scores: every statistic of every document, no decision."""

from __future__ import annotations

from collections import Counter
from typing import Any, ClassVar

import pyarrow as pa

from gpu_curate.config import Config
from gpu_curate.document import TextColumn
from gpu_curate.stages import Context, Stage, Stopwatch
from gpu_curate.storage import write_table


class Scores(Stage):
    """Score every document once; decide nothing. A threshold moves without a second pass.

    Reads: documents(text).  Writes: one column per score of `quality.SCORES`; with a language model also `language`
    (ISO 639-1 code or `unknown`) and `language_score` float32.
    Memory: partition text and about 300 bytes a document.  Source and deviations: see quality/.
    """

    name: ClassVar[str] = "scores"
    follows: ClassVar[str | None] = "documents"
    code: ClassVar[tuple[str, ...]] = ("stages.scores", "ops.text_stats", "quality", "text.language")
    on_device: ClassVar[bool] = True

    def settings(self, config: Config) -> Any:
        if config.language.model is None:
            return None
        from gpu_curate.text.language import model_identity

        return {
            "model": model_identity(config.language),
            **config.language.model_dump(include={"min_chars", "min_margin"}),
        }

    def run(self, context: Context, part: str, task: Any) -> dict[str, Any]:
        from gpu_curate.quality import scores

        watch = Stopwatch()
        documents = context.box(self.follows).read_table(part, ["text"])
        text = TextColumn.from_arrow(documents["text"])
        if context.backend == "gpu":
            from gpu_curate.backend import on_device

            stats, how = on_device(_stats, text)
        else:
            stats, how = _stats(text), "cpu"
        columns: dict[str, Any] = dict(scores(stats))
        if context.config.language.model is not None:
            label, score = _languages(context.config, documents["text"].to_pylist())
            columns["language"], columns["language_score"] = label, score
        box = context.box(self.name)
        path = box.path(part, ".parquet")
        write_table(path, pa.table(columns), use_dictionary=["language"] if "language" in columns else False)
        facts = {"documents": len(text), "bytes": text.nbytes, "backend": how, "chars": int(columns["chars"].sum())}
        if "language" in columns:
            facts["languages"] = dict(Counter(columns["language"].to_pylist()))
        return box.commit(part, [path], {**facts, **watch.facts()})


def _stats(text: TextColumn) -> Any:
    from gpu_curate.backend import to_host
    from gpu_curate.ops.text_stats import text_stats

    return {name: to_host(values) for name, values in text_stats(text).items()}


def _languages(config: Config, texts: list[str]) -> tuple[pa.Array, Any]:
    from gpu_curate.text.language import LanguageId

    labels, scores, _ = LanguageId(config.language).predict(texts)
    return pa.array(list(labels), pa.string()), scores
