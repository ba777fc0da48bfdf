"""Documents of a recipe as they are read, without a run directory: `gpu_curate.stream`.

For corpora that never lie on a disk whole: each rank reads parts of its own, normalises, scrubs, applies the rules that look at
one document, and tokenises. What needs the whole corpus (duplicates, benchmarks, mixtures, the split) is not done, and a warning
says so.

# N documents of a batch
"""

from __future__ import annotations

import os
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from gpu_curate.errors import ConfigError, InputError

if TYPE_CHECKING:
    from gpu_curate.config import Config
    from gpu_curate.sources import Record

Array = np.ndarray[Any, np.dtype[Any]]
_PART_BYTES = 1 << 24  # of text read by one rank at a stretch; places count in it, so it never changes
_BATCH_BYTES = 1 << 20  # of text that rules look at together
_PLACES = 32  # bits of a number that count items of a part


class StreamedDocument(NamedTuple):
    """A document that passed.

    Attributes:
        text: normalised. ids: of the tokenizer's dtype, the end-of-text token behind them.
        source, path, row: where it came from.
        number: `start` that goes on behind it.
    """

    text: str
    ids: Array
    source: str
    path: str
    row: int
    number: int


def stream(
    recipe: str | os.PathLike[str] | Mapping[str, Any] | Config,
    rank: int | None = None,
    world_size: int | None = None,
    *,
    start: int = 0,
    overrides: Iterable[str] = (),
) -> DocumentStream:
    """The documents of a recipe that pass its rules, one after the other, for one of several ranks.

    Args:
        recipe: a YAML file, its content as a dict, or a Config.
        rank, world_size: None: RANK and WORLD_SIZE of the environment. Ranks read different parts (about 16 MiB of text each, in
            turn), together all of them. Some rank may get more than another.
        start: `number` of the document after which to go on; of the same recipe, files, rank and world size.
        overrides: "key.path=value", as `--set`.
    Returns:
        an iterator of StreamedDocument; `counts` says what became of what was read.
    Raises:
        ConfigError: the recipe trains a tokenizer or has rules in files of Python; more ranks than parts; files that are not
            there. InputError: with run.strict, a record that cannot be read.
    Memory: about 10 MiB of texts.
    """
    from gpu_curate.loader.arguments import from_environment, integer

    rank = from_environment("RANK", 0) if rank is None else integer("rank", rank)
    world_size = from_environment("WORLD_SIZE", 1) if world_size is None else integer("world_size", world_size)
    start = integer("start", start)
    if not 0 <= rank < world_size or start < 0:
        raise ConfigError(f"rank {rank} must be in 0..{world_size - 1}, start {start} must not be negative")
    return DocumentStream(_config(recipe, overrides), rank, world_size, start)


def _config(recipe: Any, overrides: Iterable[str]) -> Config:
    import json

    from gpu_curate.config import Config, load, parse
    from gpu_curate.config.load import apply_override

    options = list(overrides)
    if isinstance(recipe, Config):
        if not options:
            return recipe
        recipe = recipe.model_dump(mode="python", by_alias=True)
    if isinstance(recipe, Mapping):
        data = json.loads(json.dumps(dict(recipe), default=os.fspath))
        for option in options:
            apply_override(data, option)
        return parse(data, "recipe", [])
    return load(recipe, options)


class DocumentStream:
    """What `stream` gives.

    Attributes:
        counts: read, rejected, dropped {reason: n}, kept: of this rank, so far.
    """

    def __init__(self, config: Config, rank: int, world_size: int, start: int):
        from gpu_curate.quality import rules
        from gpu_curate.stages.documents.intake import Intake
        from gpu_curate.stages.documents.listing import inventory
        from gpu_curate.stages.documents.tasks import read_tasks
        from gpu_curate.text.normalize import normalizer
        from gpu_curate.tokenizer.loading import load

        if config.tokenizer.train is not None:
            raise ConfigError(
                "tokenizer: train reads the whole corpus, and a stream has none",
                "make one first (gpu-curate tokenizer train) and give tokenizer.path",
            )
        if config.quality.own:
            raise ConfigError(
                f"quality.{next(iter(config.quality.own))}: rules of your own are not applied to a stream"
            )
        others = [name for name, judge in config.quality.judges.items() if judge.type != "exact"]
        if others:
            raise ConfigError(f"quality.judges.{others[0]}: only judges of type exact are asked in a stream")
        shares = [name for name, judge in config.quality.judges.items() if judge.top_share is not None]
        if shares:
            raise ConfigError(
                f"quality.judges.{shares[0]}.top_share: a share of all documents, and a stream has not seen them all",
                "give min: a run's report shows which score that is",
            )
        self._config, self._rank, self._world_size, self._start = config, rank, world_size, start
        whole = Intake(config.sources, config.normalize, config.pii, _PART_BYTES, ())
        tasks = read_tasks(whole, inventory(config.sources))
        if world_size > len(tasks):
            raise ConfigError(
                f"stream: {world_size} ranks and {len(tasks)} parts of the input: some rank would read nothing",
                f"use at most {len(tasks)} ranks, or more files",
            )
        self._tasks = tasks[rank::world_size]
        if start >> _PLACES > len(self._tasks):
            raise ConfigError(
                f"stream: start {start} is behind the last part of rank {rank}; of another recipe or rank?"
            )
        self._normalize = normalizer(config.normalize)
        self._scanner = _scanner(config)
        self._language = _languages(config)
        self._rules = bool(rules(config.quality))
        self._encoder = load(config.tokenizer)
        self.counts: dict[str, Any] = {"read": 0, "rejected": 0, "dropped": Counter[str](), "kept": 0}
        left_out = _left_out(config)
        if left_out:
            warnings.warn(
                f"stream: not applied, since they need the whole corpus: {', '.join(left_out)}",
                RuntimeWarning,
                stacklevel=3,
            )

    def __iter__(self) -> Iterator[StreamedDocument]:
        from gpu_curate.sources import Record, Reject
        from gpu_curate.stages.documents.counts import Place
        from gpu_curate.stages.documents.listing import make_reader
        from gpu_curate.stages.documents.reading import TaskItems

        first, passed = self._start >> _PLACES, self._start & ((1 << _PLACES) - 1)
        with tempfile.TemporaryDirectory() as folder:
            for part, task in enumerate(self._tasks[first:], first):
                source = self._config.sources[task.source]
                items = TaskItems(source, make_reader(source), task.pieces, Path(folder) / "reading")
                waiting: list[tuple[int, str, Record]] = []
                nbytes = 0
                for number, (_, piece, item) in enumerate(items.read(Place(0, 0, 0, 0)), 1):
                    if number <= passed:
                        continue
                    if isinstance(item, Reject):
                        self._reject(piece.split.path, item.row, item.reason)
                    elif isinstance(item, Record):
                        waiting.append((part << _PLACES | number, piece.split.path, item))
                        nbytes += len(item.text)
                    if nbytes >= _BATCH_BYTES:
                        yield from self._passing(source, waiting)
                        waiting, nbytes = [], 0
                yield from self._passing(source, waiting)
                passed = 0

    def _reject(self, path: str, row: int | None, reason: str) -> None:
        self.counts["read"] += 1
        self.counts["rejected"] += 1
        if self._config.run.strict:
            raise InputError(f"{path}, row {row}: {reason}")

    def _passing(self, source: Any, waiting: list[tuple[int, str, Record]]) -> Iterator[StreamedDocument]:
        """Those of some records that every rule lets pass, tokenised."""
        from gpu_curate.document import TextColumn

        kept, texts = [], []
        for entry in waiting:
            try:
                text = self._normalize(entry[2].text)
                texts.append(text if self._scanner is None else self._scanner.scrub_all([text]).texts[0])
                kept.append(entry)
            except (ValueError, RuntimeError) as e:
                self._reject(entry[1], entry[2].row, f"{type(e).__name__}: {e}")
        if not kept:
            return
        refused: dict[int, str] = {}
        ids, sizes = self._encoder.encode_column(
            TextColumn.of(pa.array(texts, pa.large_binary()).cast(pa.large_string())), refused
        )
        ends = np.cumsum(sizes)
        reasons = self._reasons(kept, texts, sizes)
        for n, ((number, path, record), text) in enumerate(zip(kept, texts, strict=True)):
            if n in refused:
                self._reject(path, record.row, refused[n])
                continue
            self.counts["read"] += 1
            if reasons[n] is not None:
                self.counts["dropped"][reasons[n]] += 1
                continue
            self.counts["kept"] += 1
            own = np.append(ids[ends[n] - sizes[n] : ends[n]], self._encoder.dtype.type(self._encoder.eot_id))
            yield StreamedDocument(text.decode(), own, source.name, path, record.row, number)

    def _reasons(self, entries: list[tuple[int, str, Record]], texts: list[bytes], sizes: Array) -> list[str | None]:
        """The first failing rule of each, in the order of a run; None: it passes."""
        from gpu_curate.api.statistics import decide, score

        column = pa.array(texts, pa.large_binary()).cast(pa.large_string())
        found: list[str | None] = [None if text else "empty" for text in texts]
        if self._language is not None:
            model, wanted = self._language
            labels, scores, _ = model.predict(column.to_pylist())
            for n, (label, value) in enumerate(zip(labels, scores, strict=True)):
                if found[n] is None and (label not in wanted or value < self._config.language.min_score):
                    found[n] = "language"
        if self._rules:
            quality = self._config.quality
            words = None if quality.gopher_quality is None else _stop_words(self._config)
            judges = {name: judge.model for name, judge in quality.judges.items()}
            table = score(column, stop_words=words, judges=judges)
            for name in quality.columns:
                values = [entry[2].columns.get(name) for entry in entries]
                strings = pa.array([None if v is None else str(v) for v in values], pa.string())
                table = table.append_column(name, strings)
            found = [before or rule for before, rule in zip(found, decide(table, quality).rule, strict=True)]
        return [
            "too_few_tokens" if reason is None and size < self._config.min_tokens else reason
            for reason, size in zip(found, sizes.tolist(), strict=True)
        ]


def _stop_words(config: Config) -> tuple[str, ...]:
    from gpu_curate.stages.scores import _stop_words as as_texts_spell_them

    assert config.quality.gopher_quality is not None
    return as_texts_spell_them(config.quality.gopher_quality, config.normalize)


def _scanner(config: Config) -> Any:
    if not any(v in ("count", "replace") for v in config.pii.model_dump().values()):
        return None
    from gpu_curate.text.pii import PiiScanner

    return PiiScanner(config.pii)


def _languages(config: Config) -> tuple[Any, frozenset[str]] | None:
    if config.language.model is None or config.language.keep is None:
        return None
    from gpu_curate.text.language import LanguageId, keep_labels

    return LanguageId(config.language), frozenset(keep_labels(config.language) or ())


def _left_out(config: Config) -> list[str]:
    """What of a recipe a stream does not do."""
    found = []
    if config.dedup.exact:
        found.append("dedup.exact")
    if config.dedup.fuzzy is not None:
        found.append("dedup.fuzzy")
    if config.references:
        found.append("references")
    if any(judge.bands for judge in config.quality.judges.values()):
        found.append("bands of judges")
    if any(s.weight is not None or s.tokens is not None for s in config.sources):
        found.append("weights of sources")
    if config.shards.validation.tokens:
        found.append("shards.validation")
    return found
