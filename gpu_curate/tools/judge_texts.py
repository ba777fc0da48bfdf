"""`gpu-curate judge`: labelled texts read from files, judges trained, evaluated and shown."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from gpu_curate import guard
from gpu_curate.document import TextColumn
from gpu_curate.errors import ConfigError
from gpu_curate.judges.evaluate import evaluate, warnings
from gpu_curate.judges.labels import Labelled
from gpu_curate.judges.model import ExactJudge, load
from gpu_curate.judges.train import Settings, heaviest, train
from gpu_curate.sources import Record, Reject
from gpu_curate.sources.files import find, stem
from gpu_curate.sources.jsonl import JsonlReader, JsonlSource
from gpu_curate.sources.parquet import ParquetReader
from gpu_curate.sources.sections import ParquetSource, SourceBase
from gpu_curate.sources.text import TextSource
from gpu_curate.stages.columns import check_columns
from gpu_curate.stages.documents.listing import make_reader
from gpu_curate.stages.rejects import place_of
from gpu_curate.text.normalize import normalizer, well_formed
from gpu_curate.text.sections import Normalize

_BATCH_BYTES = 8 << 20
_SAMPLE_BYTES = 4 << 20  # of texts that are kept to name the heaviest words


@dataclass
class Reading:
    """What was read: counts, and why records were not."""

    documents: int = 0
    bytes_of_text: int = 0
    without_label: int = 0
    without_words: int = 0
    rejected: list[str] = field(default_factory=list)
    sample: list[str] = field(default_factory=list)
    sampled: int = 0


def texts_of(
    paths: list[str], text_column: str, column: str | None, option: str, reading: Reading, max_bytes: int
) -> Iterator[tuple[str, Any]]:
    """Texts of files in sorted order of their paths, with the value of a column; as a run normalises them by default.

    Raises: ConfigError: a path matches nothing, or a column is missing.
    """
    kept: list[Any] = [column] if column is not None else []
    sources: list[tuple[tuple[str, ...], SourceBase]] = [
        (
            tuple(ParquetReader.suffixes),
            ParquetSource(name="parquet", type="parquet", text_column=text_column, keep_columns=kept),
        ),
        (
            tuple(JsonlReader.suffixes),
            JsonlSource(name="jsonl", type="jsonl", text_column=text_column, keep_columns=kept),
        ),
        (("",), TextSource(name="text", type="text")),
    ]
    readers = [make_reader(source) for _, source in sources]
    files = find(paths, (), {}, f"judge: {option}").files
    number_of = [next(n for n, (ends, _) in enumerate(sources) if stem(f.path).endswith(ends)) for f in files]
    if column is not None and 2 in number_of:
        path = files[number_of.index(2)].path
        raise ConfigError(
            f"{option}: {path} has no columns, so no labels", "give JSONL or Parquet, or --good and --bad"
        )
    of_reader = [[f for f, own in zip(files, number_of, strict=True) if own == n] for n in range(len(readers))]
    check_columns([source for _, source in sources], readers, of_reader, {"text_column": "--text-column"})
    change = normalizer(Normalize())
    for file, number in zip(files, number_of, strict=True):
        reader = readers[number]
        for split in guard.splits(reader, file.path, file.size, 1 << 40):
            for item in guard.read(reader, split):
                if isinstance(item, Reject):
                    reading.rejected.append(f"{place_of(file.path, item.row, item.offset)}: {item.reason}")
                if isinstance(item, Record):
                    if reading.bytes_of_text >= max_bytes:
                        return
                    text = change(well_formed(item.text)).decode("utf-8")
                    reading.bytes_of_text += len(text)
                    yield text, item.columns.get(column) if column is not None else None


def _number(value: Any) -> float | None:
    """A label as a number; None: there is none."""
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None


def labelled(
    good: list[str],
    bad: list[str],
    labels: list[str],
    column: str | None,
    text_column: str = "text",
    max_bytes: int = 4 << 30,
) -> tuple[Labelled, Reading]:
    """Labelled texts of files.

    Args:
        good, bad: files of texts of label 1 and 0. labels: files whose `column` is the label of each text.
    Raises:
        ConfigError: neither or both are given; nothing is found; no label is a number.
    Memory: about 1.4 bytes a byte of text.
    """
    if bool(labels) == bool(good or bad) or bool(good) != bool(bad):
        raise ConfigError(
            "judge: texts are told by --good and --bad, or by --labels with --score", "give one of the two"
        )
    if bool(labels) != (column is not None):
        raise ConfigError("judge: --labels and --score belong together", "--labels FILE --score COLUMN")
    reading = Reading()
    made: list[tuple[np.ndarray, ...]] = []
    waiting: list[str] = []
    values: list[float] = []
    nbytes = 0
    odd: Any = None
    each = [(labels, column, "--labels", None)] if labels else [(good, None, "--good", 1.0), (bad, None, "--bad", 0.0)]
    for paths, of, option, fixed in each:
        before = reading.bytes_of_text
        room = before + max_bytes // len(each)
        for text, value in texts_of(paths, text_column, of, option, reading, room):
            label = fixed if fixed is not None else _number(value)
            if label is None:
                reading.without_label += 1
                odd = value if odd is None else odd
                continue
            if not text.strip():
                reading.without_words += 1
                continue
            reading.documents += 1
            waiting.append(text)
            values.append(label)
            nbytes += len(text)
            if nbytes >= _BATCH_BYTES:
                made.append(_columns(waiting))
                _keep_sample(reading, waiting)
                waiting, nbytes = [], 0
    made.append(_columns(waiting))
    _keep_sample(reading, waiting)
    if labels and not reading.documents:
        shown = "" if odd is None else f"; one is {str(odd)[:40]!r}"
        raise ConfigError(
            f"judge: no text of {', '.join(labels)} has a number as {column}{shown}",
            "name the column of the labels: --score",
        )
    hash_W, words_N, key_N, chars_N = (np.concatenate(parts) for parts in zip(*made, strict=True))
    offsets = np.zeros(len(words_N) + 1, np.int64)
    np.cumsum(words_N, out=offsets[1:])
    return Labelled(hash_W, offsets, key_N, chars_N, np.array(values, np.float64)), reading


def _columns(texts: list[str]) -> tuple[np.ndarray, ...]:
    """Word hashes, words, content key and length of some texts."""
    from gpu_curate.ops.content_hash import content_hash
    from gpu_curate.ops.text_stats.cpu import word_hashes

    column = TextColumn.from_texts(texts)
    hash_W, offsets = word_hashes(column)
    key = np.ascontiguousarray(content_hash(column)[:, 1]) if len(column) else np.zeros(0, np.uint64)
    return hash_W, np.diff(offsets), key, np.diff(column.offsets)


def _keep_sample(reading: Reading, texts: list[str]) -> None:
    """Every text of the first batches, then ever fewer, so that all files have some."""
    for text in texts[:: 1 + reading.sampled // (_SAMPLE_BYTES // 4)]:
        if reading.sampled >= _SAMPLE_BYTES:
            return
        reading.sample.append(text)
        reading.sampled += len(text)


def train_judge(data: Labelled, reading: Reading, how: Settings, out: Path, told: Any = None) -> dict[str, Any]:
    """Train, write the file, and say how well it tells texts that it has not seen."""
    made = train(data, how, told)
    facts = evaluate(made.score_N, data, made.rows)
    about = {
        "documents": len(data),
        "good": facts["good"],
        "labels": "classes" if data.classes else "numbers",
        "held_out": facts["texts"],
        "auc": _rounded(facts["auc"]),
        "auc_length": _rounded(facts["auc_length"]),
        "auc_same_length": _rounded(facts["auc_same_length"]),
        "epochs": how.epochs,
        "seed": how.seed,
        "words": heaviest(made.judge, reading.sample),
    }
    judge = ExactJudge(
        made.judge.weights, made.judge.ngrams, made.judge.prior, made.judge.knots_x, made.judge.knots_y, about
    )
    judge.save(out)
    return {
        **facts,
        "judge": str(out),
        "bytes": out.stat().st_size,
        "loss_of_rounding": made.loss_of_rounding,
        "read": _told(reading),
        "words": about["words"],
        "warnings": [*warnings(facts), *_doubts(reading)],
    }


def _told(reading: Reading) -> dict[str, Any]:
    return {
        "documents": reading.documents,
        "without_label": reading.without_label,
        "without_words": reading.without_words,
        "rejected": len(reading.rejected),
    }


def _doubts(reading: Reading) -> list[str]:
    found = list(reading.rejected[:3])
    if len(reading.rejected) > 3:
        found.append(f"{len(reading.rejected)} records could not be read")
    if reading.without_label:
        found.append(f"{reading.without_label:,} texts have no number as label and were left out")
    if reading.without_words:
        found.append(f"{reading.without_words:,} texts have no words and were left out")
    return found


def _rounded(value: Any) -> Any:
    if isinstance(value, tuple | list):
        return [round(v, 4) for v in value]
    return None if value is None else round(value, 4)


def evaluate_judge(path: str, data: Labelled, reading: Reading, good_from: float | None) -> dict[str, Any]:
    """The tables of a judge over labelled texts."""
    judge = load(path)
    score_N = judge.scores(*data.sums(judge.weights, judge.ngrams))
    facts = evaluate(score_N, data, np.arange(len(data)), good_from)
    return {"judge": path, **facts, "read": _told(reading), "warnings": [*warnings(facts), *_doubts(reading)]}


def show_judge(path: str, texts: list[str], text_column: str, max_bytes: int = 16 << 20) -> dict[str, Any]:
    """What a judge is, and its heaviest words: those of its training, or of these texts."""
    judge = load(path)
    words = judge.about.get("words", {"for": [], "against": []})
    if texts:
        sample = [text for text, _ in texts_of(texts, text_column, None, "PATH", Reading(), max_bytes)]
        words = heaviest(judge, sample)
    about = {key: value for key, value in judge.about.items() if key != "words"}
    return {
        "judge": path,
        "weights": len(judge.weights),
        "weight_bits": 8 * judge.weights.itemsize,
        "ngrams": judge.ngrams,
        "prior": judge.prior,
        "lowest": int(judge.knots_y[0]),
        "highest": int(judge.knots_y[-1]),
        "about": about,
        "words": words,
    }


def import_judge(
    path: Path,
    texts: list[str],
    label: str | None,
    out: Path,
    text_column: str = "text",
    bits: int = 22,
    wide: bool = True,
    max_bytes: int = 64 << 20,
) -> dict[str, Any]:
    """A judge of a fastText classifier (a file) or of static embeddings (a folder); how much of its order of the texts is kept
    stands in the judge too."""
    from gpu_curate.judges import fasttext, static

    reading = Reading()
    sample = [text for text, _ in texts_of(texts, text_column, None, "PATH", reading, max_bytes) if text.strip()]
    doubts = _doubts(reading)
    if path.is_dir():
        label = label or "of the head"
        judge, likeness = static.as_judge(path, sample, bits, wide)
    else:
        model = fasttext.read(path, label)
        judge, likeness = fasttext.as_judge(model, sample, bits, wide)
        if model.word_ngrams > judge.ngrams:
            doubts.append(f"the model looks at runs of {model.word_ngrams} words, a judge at {judge.ngrams}")
    about = {
        "imported": path.name,
        "label": label or "the second by name",
        "documents": len(sample),
        "rank_correlation": round(likeness, 4),
        "words": heaviest(judge, sample),
    }
    ExactJudge(judge.weights, judge.ngrams, judge.prior, judge.knots_x, judge.knots_y, about).save(out)
    return {
        "judge": str(out),
        "bytes": out.stat().st_size,
        "model": str(path),
        "label": about["label"],
        "texts": len(sample),
        "rank_correlation": likeness,
        "warnings": doubts,
    }


def cut_offs(
    model: str, paths: list[str], kind: str, unit: str, parts: int, text_column: str = "text", max_bytes: int = 64 << 20
) -> dict[str, Any]:
    """The scores that part a sample into equal parts, the highest first. Raises: ConfigError: no such type, unit or text."""
    from gpu_curate.config.load import parse_section
    from gpu_curate.ops.text_stats import text_stats
    from gpu_curate.quality.judges import COLUMN, UNSCORED, Judge
    from gpu_curate.stages.judged import scores, tables_of

    judges = {"asked": parse_section(Judge, "judge", {"model": model, "type": kind, "unit": unit})}
    tables = tables_of(judges)
    texts = [text for text, _ in texts_of(paths, text_column, None, "PATH", Reading(), max_bytes)]
    stats = text_stats(TextColumn.from_texts(texts), judges=tables)
    score_N = scores(stats, judges, lambda: texts)[f"{COLUMN}asked"]
    known_N = np.sort(score_N[score_N != UNSCORED])[::-1]
    if not len(known_N):
        raise ConfigError(f"no text of {', '.join(paths)} has a score", "check --text-column")
    places = [-(-len(known_N) * part // parts) - 1 for part in range(1, parts)]
    return {
        "judge": model,
        "sample": paths,
        "texts": len(texts),
        "unscored": int((score_N == UNSCORED).sum()),
        "cuts": [[part / parts, int(known_N[place])] for part, place in enumerate(places, 1)],
    }
