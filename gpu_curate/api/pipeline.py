"""A recipe run whole: its boxes, its shards and its report. For the command line, `gpu_curate.run` and the tests."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from gpu_curate.config import Config
from gpu_curate.errors import NothingKeptError
from gpu_curate.runs.pipeline import Outcome, running
from gpu_curate.runs.progress import Progress
from gpu_curate.stages import Stage
from gpu_curate.stages.order import STAGES, OfRecipe
from gpu_curate.store.run_directory import latest_shards, point


def execute(
    config: Config,
    run: Path,
    progress: Progress | None = None,
    fresh: bool = False,
    stages: Iterable[OfRecipe | Stage] = STAGES,
) -> Outcome:
    """Make every box of a run, reusing what is there, and its report.

    Args:
        config, run, progress, fresh, stages: as for `runs.pipeline.running`.
    Raises:
        ConfigError: before any work.
        FatalError: the run stopped; what is finished is kept and reused by the same call. NothingKeptError, one of them: no
            document was kept; the report is written.
        KeyboardInterrupt: likewise.
    """
    with running(config, run, progress, fresh, stages) as outcome:
        from gpu_curate.report import write_report  # not with this module: it takes longer to load than a run to begin

        facts = write_report(outcome)
        outcome.failures = facts["failures"]
        if outcome.nothing_kept is not None:
            raise _nothing_kept(outcome, facts) from outcome.nothing_kept
    return outcome


def _nothing_kept(outcome: Outcome, facts: dict[str, Any]) -> NothingKeptError:
    from gpu_curate.report.intake import reject_line

    run = outcome.context.run
    latest = latest_shards(run)
    if latest is None:
        point(run, "report", outcome.report)
    rejects = reject_line(facts)
    return NothingKeptError(
        str(outcome.nothing_kept and outcome.nothing_kept.message) + (f" ({rejects})" if rejects else ""),
        f"no shard was written; why each went is in {run / outcome.report / 'index.html'}"
        + (f"; the latest shards are still those of {latest}" if latest else ""),
    )
