"""A run, from its checks to its shards: everything but the report, which whoever asked for the run writes."""

from __future__ import annotations

import contextlib
import os
import platform
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gpu_curate import __version__
from gpu_curate.compiled import compiled_before
from gpu_curate.config import Config, public
from gpu_curate.config.own import code_lines, codes
from gpu_curate.device import backend
from gpu_curate.errors import NothingKeptError
from gpu_curate.own_code import facts as code_facts
from gpu_curate.runs.checks import check_run_directory, without_effect
from gpu_curate.runs.engines import Engine, make_engine
from gpu_curate.runs.fingerprints import Parts, active_stages, fingerprints, own_fingerprints, parts_of, pinned
from gpu_curate.runs.places import cache_lock, cache_of, check_output, folders, make_folders, write_cache_file
from gpu_curate.runs.plan_files import Planned
from gpu_curate.runs.progress import Progress, Quiet, recorded
from gpu_curate.runs.scheduler import Runner
from gpu_curate.runs.split import Earlier, bound_of, changed_sides
from gpu_curate.runs.workers import default_workers
from gpu_curate.stages import Context, Stage
from gpu_curate.stages.forgotten import list_identity, remembering
from gpu_curate.stages.order import STAGES, OfRecipe, intake_of
from gpu_curate.stages.tokens import PROOFS
from gpu_curate.store.files import disk_error, read_json, temporary_name, write_json
from gpu_curate.store.fingerprint import versions
from gpu_curate.store.lock import refuse_links, remove_temporaries, run_lock
from gpu_curate.store.receipts import Counts
from gpu_curate.store.run_directory import (
    LINKS,
    RUN_FILE,
    place,
    point,
    read_run_file,
    repair_links,
)
from gpu_curate.store.snapshot import snapshot_path, write_snapshot
from gpu_curate.store.verified import recording
from gpu_curate.tokenizer.loading import recall


@dataclass
class Outcome:
    """What a run came to."""

    context: Context
    fingerprint_of: dict[str, str]
    backend: backend.Backend
    wall: dict[str, float]  # box → seconds from the start of its first task to the end of its last, of this run
    waited: dict[str, float]  # box → seconds that its first task waited for a worker
    reused: dict[str, int]
    seconds: float
    warnings: list[str]
    report: str  # folder of its report
    nothing_kept: NothingKeptError | None = None  # why there are no shards
    own: dict[str, type[Counts]] = field(default_factory=dict)  # boxes of the user's stages → class of their counts
    failures: list[str] = field(default_factory=list)  # why a finished run ends with exit status 1


@contextlib.contextmanager
def running(
    config: Config,
    run: Path,
    progress: Progress | None = None,
    fresh: bool = False,
    stages: Iterable[OfRecipe | Stage] = STAGES,
) -> Iterator[Outcome]:
    """Make every box of a run, reusing what is there.

    What is done with the outcome inside belongs to the run: nobody else works in its directory meanwhile. Without an error
    there, `shards` and `report` stand for what this run wrote from then on.

    Args:
        config: the recipe.
        run: run directory; made if missing.
        fresh: number and cut the files anew, and choose the validation split anew, not by the bound of the run directory's
            latest shards.
        stages: ours, `STAGES`, and further ones behind them.
    Raises:
        ConfigError: before any work.
        FatalError: the run stopped; what is finished is kept and reused by the same call.
        KeyboardInterrupt: likewise.
    """
    progress = progress or Quiet()
    begun = time.monotonic() - (progress.seconds() if hasattr(progress, "seconds") else 0.0)
    chosen = backend.choose(config.run.backend)
    compiled = compiled_before()
    opening = _say_first(progress, config, chosen, compiled)
    check_run_directory(run, config)
    check_output(run, config, "run directory")
    recipe, config = config, remembering(config, run)
    known = _list_of(config)
    cache = cache_of(config, run)
    recall((cache or run).glob(PROOFS))
    stages = list(stages)
    planned = Planned(config, run, cache, fresh, stages)
    engine = _engine(config, chosen)
    start = time.perf_counter()
    with (
        contextlib.closing(engine),  # whatever fails before or after the runner, a cluster ends with its run
        run_lock(run, lambda pid: progress.note(f"process {pid} is working in {run}; waiting for it to end")),
        cache_lock(cache, lambda pid: progress.note(f"process {pid} is working in {cache}; waiting for it to end")),
        contextlib.ExitStack() as stack,
    ):
        check_run_directory(run, config)  # again: whoever held the lock may have made it
        refuse_links(run)
        remove_temporaries(run)
        repair_links(run)
        planned.look_again()
        if (now := _list_of(remembering(recipe, run))) != known:  # whoever held the lock has left another list
            config, known = remembering(recipe, run), now
            planned.config, planned.fingerprint_of = config, fingerprints(config, planned.corpus, stages)
        config, fingerprint_of, earlier = pinned(config, run, planned.fingerprint_of, fresh)
        if earlier is not None and earlier.pinned:
            progress.note(f"validation split: the bound {earlier.bound} of {earlier.folder} ({earlier.reason})")
        if said := planned.corpus.news():
            progress.note(said)
        built = active_stages(config, planned.corpus, stages)
        parts = parts_of(built)
        own = own_fingerprints(built, fingerprint_of, parts)
        places = folders(run, own, cache, parts.shared)
        _make_directory(run, _run_file(config, fingerprint_of, places, chosen, earlier), own, parts, planned)
        progress = stack.enter_context(recorded(progress, run, begun, opening))
        context = replace(
            Context.of(run, config, places, chosen.choice, chosen.devices),
            verified=stack.enter_context(recording(temporary_name(run / "verified"))),
            corpus=fingerprint_of["documents"],
            parted=parts.following,
            cache=cache,
            shared=parts.shared,
        )
        runner = Runner(built, context.boxes, progress, engine, parts.kept, compiled)
        for warning in [*without_effect(config), *dict.fromkeys(planned.warnings)]:
            runner.warn(warning)
        outcome = _outcome(context, runner, fingerprint_of, chosen, start)
        if outcome.nothing_kept is None and earlier is not None:
            _tell_sides(runner, earlier, outcome.context.box("shards").folder)
        yield outcome
        if outcome.nothing_kept is None:
            _make_latest(run, outcome, runner)


def _engine(config: Config, chosen: backend.Backend) -> Engine:
    processes = chosen.processes(config.run.gpu.workers)
    return make_engine(config.run.engine, config.run.workers or default_workers(), processes)


def _say_first(progress: Progress, config: Config, chosen: backend.Backend, compiled: bool) -> str:
    """What a run says before any work; returns the first line."""
    opening = f"backend: {chosen.choice} ({chosen.reason})"
    progress.note(opening)
    for line in code_lines(config):
        progress.note(line)
    if not compiled:
        progress.note("the first run on a machine compiles its kernels: about a minute of CPU, once")
    return opening


def _list_of(config: Config) -> str | None:
    """What tells the list of forgotten texts; None without one."""
    return None if config.forget is None else list_identity(config.forget)


def _outcome(
    context: Context, runner: Runner, fingerprint_of: dict[str, str], chosen: backend.Backend, start: float
) -> Outcome:
    """Let the runner make everything."""
    nothing: NothingKeptError | None = None
    try:
        runner.run()
    except NothingKeptError as e:  # the report says why
        nothing = e
    finally:
        runner.close()
    now = time.perf_counter()
    return Outcome(
        context,
        fingerprint_of,
        chosen,
        {n: round((s.finished or now) - (s.began or s.started), 3) for n, s in runner.boxes.items() if s.started},
        {n: round(s.began - s.started, 3) for n, s in runner.boxes.items() if s.began},
        {n: s.reused for n, s in runner.boxes.items()},
        now - start,
        runner.warnings,
        place(context.run, "report", fingerprint_of["shards"]),
        nothing,
        {n: s.stage.counts for n, s in runner.boxes.items() if not type(s.stage).__module__.startswith("gpu_curate.")},
    )


def _make_directory(run: Path, facts: dict[str, Any], own: dict[str, str], parts: Parts, planned: Planned) -> None:
    """run.json, the folders of all boxes, and what is known of the files.

    Args:
        facts: of run.json.
        own: fingerprints of the folders.
    """
    cache, corpus, config = planned.cache, planned.corpus, planned.config
    facts["cache"] = None if cache is None else str(cache)
    if cache is None:
        facts["files"] = corpus.numbers
    facts["latest"] = read_run_file(run).get("latest")
    write_json(run / RUN_FILE, facts)  # first: it makes the folder a run directory
    try:
        if cache is not None:
            write_cache_file(cache, corpus.numbers)
        make_folders(run, own, facts["folders"], cache, parts.shared)
        corpus.write((cache or run) / facts["folders"]["documents"])
        snapshot = {**corpus.facts(intake_of(config)), **parts.facts(own)}
        write_snapshot(snapshot_path(run, facts["fingerprints"]["documents"]), snapshot)
    except OSError as e:
        raise disk_error(run, e) from e


def _make_latest(run: Path, outcome: Outcome, runner: Runner) -> None:
    """Let the plain names stand for what this run wrote: a whole set of shards, whose accounts add up, and its report."""
    folders = outcome.context.folders
    facts = read_json(run / RUN_FILE)
    documents = outcome.fingerprint_of["documents"]
    facts["latest"] = {
        "shards": folders["shards"],
        "report": outcome.report,
        "folders": folders,
        "documents": documents,
        "cache": facts["cache"],
    }
    linked = all(
        [point(run, name, target) for name, target in zip(LINKS, (folders["shards"], outcome.report), strict=True)]
    )
    write_json(run / RUN_FILE, facts)
    if not linked:
        runner.warn(
            f"{run} has no links: the latest shards are in {run / folders['shards']}, whatever {run / 'shards'} holds"
        )


def _tell_sides(runner: Runner, earlier: Earlier, shards: Path) -> None:
    """A warning if the split bound is another one than before, or documents changed sides for another reason."""
    if earlier.folder.resolve() == shards.resolve():
        return
    bound, moved = bound_of(shards), changed_sides(earlier.folder, shards)
    if bound != earlier.bound or any(moved.values()):
        what = "is the same" if bound == earlier.bound else f"moved from {earlier.bound} to {bound} ({earlier.reason})"
        runner.warn(
            f"the validation split's bound {what}: against {earlier.folder}, {moved['to_training']} documents went from "
            f"validation to training and {moved['to_validation']} from training to validation"
        )


def _run_file(
    config: Config,
    fingerprint_of: dict[str, str],
    places: dict[str, str],
    chosen: backend.Backend,
    earlier: Earlier | None,
) -> dict[str, Any]:
    kept = None if earlier is None or not earlier.pinned else {"bound": earlier.bound, "of": str(earlier.folder)}
    return {
        "version": __version__,
        "config": public(config),
        "fingerprints": fingerprint_of,
        "folders": places,
        "split": kept,  # the bound that this run was given, and by which shards
        "backend": {"choice": chosen.choice, "reason": chosen.reason},
        "machine": {
            "system": platform.platform(),
            "python": platform.python_version(),
            "cores": default_workers(),
            "pid": os.getpid(),
        },
        "code": code_facts(codes(config)),
        "versions": {"gpu_curate": __version__, **versions(("numpy", "numba", "pyarrow", "tokenizers", "gigatoken"))},
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    }
