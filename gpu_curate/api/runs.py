"""A recipe run from Python, and what lies in a run's folder as tables: `gpu_curate.run` and `open_run`."""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from gpu_curate.errors import ConfigError, FatalError

if TYPE_CHECKING:
    from pyarrow.dataset import Dataset

    from gpu_curate.config import Config
    from gpu_curate.loader import ShardLoader
    from gpu_curate.runs.places import Boxes
    from gpu_curate.stages import Stage
    from gpu_curate.stages.order import OfRecipe


def run(
    recipe: str | os.PathLike[str] | Mapping[str, Any] | Config,
    out: str | os.PathLike[str],
    *,
    overrides: Iterable[str] = (),
    fresh: bool = False,
    trust_code: bool = False,
    progress: Any = None,
    stages: Iterable[OfRecipe | Stage] | None = None,
) -> Run:
    """Run a recipe, as `gpu-curate run` does: the same bytes, and what an earlier call has finished is reused.

    Workers are processes of their own, which import the script that calls this: call it below
    `if __name__ == "__main__":`, or set `run: {engine: inline}`.

    Args:
        recipe: a YAML file, its content as a dict, or a Config.
        out: the run's folder; made if it is missing.
        overrides: "key.path=value", as `--set`.
        fresh: choose the validation split anew.
        trust_code: files of Python that the recipe names are run; their paths are relative to the recipe's folder, of a
            dict to the current one.
        progress: a `gpu_curate.runs.progress.Progress`; None shows bars where standard error is a terminal.
        stages: `[*gpu_curate.STAGES, MyStage()]`: steps of your own behind those that they read.
    Returns:
        Run, with its warnings.
    Raises:
        ConfigError: before any work. FatalError: it stopped, or it finished and a source gave nothing (all else is
            written then, and `open_run(out)` has it).
    """
    from gpu_curate.api.pipeline import execute
    from gpu_curate.config import Config, load, parse
    from gpu_curate.config.own import codes, resolve
    from gpu_curate.stages.order import STAGES

    if getattr(multiprocessing.current_process(), "_inheriting", False):  # as the standard library asks
        raise ConfigError(
            "gpu_curate.run is called again while a worker imports your script",
            'put the call below `if __name__ == "__main__":`',
        )
    options = list(overrides)
    known = codes(recipe) if isinstance(recipe, Config) else []
    if isinstance(recipe, Config):
        recipe = recipe.model_dump(mode="python", by_alias=True) if options else recipe
    if isinstance(recipe, Mapping):
        from gpu_curate.config.load import apply_override

        data = json.loads(json.dumps(dict(recipe), default=os.fspath))
        for option in options:
            apply_override(data, option)
        hints: list[str] = []
        config = parse(data, "recipe", hints)
        for hint in hints:
            warnings.warn(f"recipe: {hint}", FutureWarning, stacklevel=2)
        config = resolve(config, Path(), trust_code or None, known=known)
    elif isinstance(recipe, Config):
        config = resolve(recipe, Path(), trust_code or None)
    else:
        config = load(recipe, options, trust_code=trust_code or None)
    if progress is None and sys.stderr.isatty():
        from gpu_curate.terminal import make_progress

        with make_progress(quiet=False, to_stderr=True) as bars:
            outcome = execute(config, Path(out), bars, fresh, STAGES if stages is None else stages)
    else:
        outcome = execute(config, Path(out), progress, fresh, STAGES if stages is None else stages)
    if outcome.failures:
        raise FatalError("; ".join(outcome.failures), f"all else is written: gpu_curate.open_run({os.fspath(out)!r})")
    return Run(Path(out), tuple(outcome.warnings))


def open_run(folder: str | os.PathLike[str]) -> Run:
    """What lies in a run's folder. Reads run.json; tables are read when they are asked for.

    Raises:
        ConfigError: it is no run's folder.
    """
    from gpu_curate.store.run_directory import RUN_FILE, read_run_file

    if "folders" not in read_run_file(Path(folder)):
        raise ConfigError(f"{os.fspath(folder)}: no run directory (it has no {RUN_FILE} of this program)")
    return Run(Path(folder))


class Run:
    """A run's folder: its latest shards, and the partitions that they were made of, as Arrow datasets.

    Rows of documents, scores, signatures and decisions are in one order; doc_id joins them with clusters and tokens.

    Attributes:
        folder: of the run.
        warnings: of the call of `run` that made this.
    """

    def __init__(self, folder: Path, warnings: tuple[str, ...] = ()):
        self.folder, self.warnings = folder, warnings

    def __repr__(self) -> str:
        return f"<run {self.folder}>"

    @cached_property
    def _boxes(self) -> Boxes:
        from gpu_curate.runs.places import Boxes
        from gpu_curate.store.run_directory import read_run_file

        facts = read_run_file(self.folder)
        latest = facts.get("latest")
        return Boxes(self.folder, latest if isinstance(latest, dict) and latest.get("folders") else facts)

    @property
    def shards(self) -> Path:
        """The folder of the latest shards. Raises: ConfigError: there are none yet."""
        from gpu_curate.store.run_directory import latest_shards

        folder = latest_shards(self.folder)
        if folder is None:
            raise ConfigError(f"{self.folder}: no shards yet", "gpu_curate.run with the same recipe goes on")
        return folder

    @cached_property
    def report(self) -> dict[str, Any]:
        """The facts of report.json: documents, tokens and bytes read, dropped by reason and kept, steps, versions."""
        path = self.folder / "report" / "report.json"
        try:
            facts: dict[str, Any] = json.loads(path.read_bytes())
        except FileNotFoundError as e:
            raise ConfigError(f"{path}: no report yet", "gpu_curate.run with the same recipe goes on") from e
        return facts

    @property
    def documents(self) -> Dataset:
        """doc_id, source, path, row, group and kept columns; `texts()` gives the texts, wherever they lie."""
        return self._dataset("documents")

    @property
    def scores(self) -> Dataset:
        """Every statistic, the columns of `gpu_curate.score`."""
        return self._dataset("scores")

    @property
    def decisions(self) -> Dataset:
        """doc_id, keep, reason, failing, partner, tokens, bytes."""
        return self._dataset("decisions")

    @property
    def clusters(self) -> Dataset:
        """Documents of components of two or more: doc_id, component, cluster, size, survivor, kind, jaccard."""
        return self._files([self._box("duplicates").folder / "clusters.parquet"], "duplicates")

    @property
    def tokens(self) -> Dataset:
        """documents.parquet of the shards: which tokens of which shard are which document."""
        return self._files([self.shards / "documents.parquet"], "shards")

    def texts(self) -> Iterator[pa.Table]:
        """doc_id and text of every document as it was read, partition by partition, wherever the text lies. What cuts leave of it
        is in an export.

        Raises: FatalError: a source's file has changed since. Memory: the text of a partition.
        """
        from gpu_curate.stages.partition_text import host_text, verified_text

        box = self._box("documents")
        for part in box.parts():
            doc_id = box.read_table(part, ["doc_id"])["doc_id"]
            yield pa.table({"doc_id": doc_id, "text": host_text(verified_text(box, part)).to_arrow()})

    def funnel(
        self, without: Iterable[str] = (), only: Iterable[str] = (), changes: Iterable[str] = ()
    ) -> dict[str, Any]:
        """What every rule takes, as it is or with other rules and thresholds; see `gpu_curate.inquiry.funnel.funnel`."""
        from gpu_curate.inquiry.funnel import funnel

        return funnel(self._stored, without, only, changes)

    def sweep(
        self, rule: str, start: float, stop: float, step: float, without: Iterable[str] = (), only: Iterable[str] = ()
    ) -> dict[str, Any]:
        """What a rule takes at many thresholds; see `gpu_curate.inquiry.funnel.sweep`."""
        from gpu_curate.inquiry.funnel import sweep

        return sweep(self._stored, rule, start, stop, step, without, only)

    def diff(self, other: Run, examples: int = 3) -> dict[str, Any]:
        """What this run keeps and another does not, and the other way round; see `gpu_curate.inquiry.diff.diff`."""
        from gpu_curate.inquiry.diff import diff

        return diff(self._stored, other._stored, examples)

    def cluster_facts(self, largest: int = 10) -> dict[str, Any]:
        """Sizes, spread and bridges of clusters of duplicates; see `gpu_curate.inquiry.clusters.clusters`."""
        from gpu_curate.inquiry.clusters import clusters

        return clusters(self._stored, largest)

    def certificate(self, most: int = 100_000, worst: int = 10) -> dict[str, Any]:
        """What removing near-duplicates lost; see `gpu_curate.inquiry.certificate.certificate`."""
        from gpu_curate.inquiry.certificate import certificate

        return certificate(self._stored, most, worst)

    def forget(self, entries: Iterable[str], near: bool = False, pad: bool = False) -> dict[str, Any]:
        """Take documents out of the shards again; see `gpu_curate.inquiry.forget.forget`. Open the run anew behind it."""
        from gpu_curate.inquiry.forget import forget

        return forget(self.folder, list(entries), near, pad)

    def explain(self, document: str | int) -> dict[str, Any]:
        """Why a document was kept or dropped; see `gpu_curate.inquiry.explain.explain`."""
        from gpu_curate.inquiry.explain import explain

        return explain(self._stored, document)

    def sql(self, query: str) -> pa.Table:
        """A query over documents, scores, decisions, clusters, contamination, tokens; see `gpu_curate.inquiry.sql`."""
        from gpu_curate.inquiry.sql import sql

        return sql(self._stored, query)

    @cached_property
    def _stored(self) -> Any:
        from gpu_curate.inquiry.stored import Stored

        return Stored(self.folder)

    def loader(self, split: str, batch_size: int, seq_len: int, **options: Any) -> ShardLoader:
        """A ShardLoader of the latest shards; its options and errors are that class's."""
        from gpu_curate.loader import ShardLoader

        return ShardLoader(self.folder, split, batch_size, seq_len, **options)

    def _box(self, name: str) -> Any:
        there = self._boxes.folders
        if name not in there:
            raise ConfigError(f"{self.folder}: this run has no {name} (there are {', '.join(sorted(there))})")
        return self._boxes.box(name)

    def _dataset(self, name: str) -> Dataset:
        box = self._box(name)
        return self._files([box.path(part, ".parquet") for part in box.parts()], name)

    def _files(self, paths: list[Path], name: str) -> Dataset:
        from pyarrow import dataset

        found = [str(path) for path in paths if path.exists()]
        if not found:
            raise ConfigError(f"{self.folder}: no {name} yet", "gpu_curate.run with the same recipe goes on")
        return dataset.dataset(found, format="parquet")
