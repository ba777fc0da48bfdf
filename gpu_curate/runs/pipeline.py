"""The run: which boxes there are, what each depends on, what must run, in which order.

Tasks are (box, partition). A box that follows documents gets a task for each of its partitions as soon as that one is
there, so that reading, hashing, scoring and tokenising overlap; the others wait for all they read. A partition whose
receipt is there and whole is not run again.
"""

from __future__ import annotations

import contextlib
import os
import platform
import socket
import time
from collections import deque
from concurrent.futures import BrokenExecutor, Future
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from gpu_curate import __version__
from gpu_curate.compiled import compiled_before
from gpu_curate.config import Config, public
from gpu_curate.device import backend
from gpu_curate.errors import (
    MAX_ATTEMPTS,
    ConfigError,
    CorruptError,
    FatalError,
    GpuCurateError,
    NothingKeptError,
    RetryableError,
)
from gpu_curate.quality import check_survivor
from gpu_curate.runs.engines import Engine, default_workers, make_engine
from gpu_curate.runs.progress import STATUS, Progress, Quiet, recorded
from gpu_curate.runs.split import Earlier, bound_of, changed_sides, earlier_split, with_bound
from gpu_curate.sources.files import is_remote
from gpu_curate.sources.listing import fixed_folder
from gpu_curate.stages import Context, Stage
from gpu_curate.stages.order import BESIDE, all_stages
from gpu_curate.stages.partition_text import without_effect
from gpu_curate.stages.tokens import PROOFS
from gpu_curate.store.artifact import Box
from gpu_curate.store.files import disk_error, publish, read_json, write_json
from gpu_curate.store.fingerprint import code_digest, digest, versions
from gpu_curate.store.lock import lock_holder, refuse_links, remove_temporaries, run_lock
from gpu_curate.store.run_directory import (
    FINGERPRINT,
    LINKS,
    RUN_FILE,
    below,
    disk_bytes,
    latest_shards,
    owner,
    place,
    point,
    read_run_file,
    repair_links,
    shard_sets,
)
from gpu_curate.tokenizer import recall

_ROOTS = ("sources", "normalize", "pii")  # what a run directory is about: another one is another run


def active_stages(config: Config) -> list[Stage]:
    return [s for s in all_stages() if s.active(config)]


def fingerprints(config: Config) -> dict[str, str]:
    """Fingerprint of every box of this config. Looks at the input files; reads none of their content unless asked to.

    Raises:
        ConfigError: an input, a tokenizer or a model is missing.
    """
    if config.dedup.fuzzy is not None:
        check_survivor(config.dedup.fuzzy.keep, config.language.model is not None)
    found: dict[str, str] = {}
    for stage in active_stages(config):
        found[stage.name] = _fingerprint(stage, config, found)
    return found


def _fingerprint(stage: Stage, config: Config, found: dict[str, str]) -> str:
    inputs = stage.inputs(config) if hasattr(stage, "inputs") else None
    upstream = [b for b in ((stage.follows,) if stage.follows else ()) + stage.reads(config) if b is not None]
    return digest(
        {
            "box": stage.name,
            "code": code_digest((*stage.code, "document", "store")),
            "settings": stage.settings(config),
            "libraries": versions(stage.libraries(config)),
            "inputs": inputs,
            "upstream": {b: found[b] for b in upstream},
        }
    )


def pinned(
    config: Config, run: Path, prints: dict[str, str], fresh: bool = False
) -> tuple[Config, dict[str, str], Earlier | None]:
    """The config with the split bound that an earlier set of shards gives it, its fingerprints, and that set.

    A set that this config made without a pin, and whose bound is the same, has the same bytes: it is taken as it is.

    Raises:
        ConfigError: `shards.validation.earlier` names no set that can be kept to.
    """
    earlier = earlier_split(config, run, fresh)
    if earlier is None or not earlier.pinned or earlier.bound is None:
        return config, prints, earlier
    own = run / place(run, "shards", prints["shards"])
    if owner(earlier.folder) == prints["shards"] or bound_of(own) == earlier.bound:
        return config, prints, earlier
    config = with_bound(config, earlier.bound)
    stage = next(s for s in active_stages(config) if s.name == "shards")
    return config, {**prints, "shards": _fingerprint(stage, config, prints)}, earlier


def folders(run: Path, prints: dict[str, str]) -> dict[str, str]:
    """The folder of every box: its plain name, or NAME-FINGERPRINT where the plain one holds something else.

    Shards have their fingerprint in their name always; the plain one is a link to the latest.
    """
    chosen = {}
    for name, print_ in prints.items():
        if name == "shards":
            chosen[name] = place(run, name, print_)
            continue
        taken = owner(run / name) not in (None, print_)
        chosen[name] = f"{name}-{print_[:12]}" if taken else name
    for beside in BESIDE:
        chosen[beside] = chosen["documents"].replace("documents", beside, 1)
    return chosen


def check_run_directory(run: Path, config: Config) -> None:
    """Refuse a run directory that was made from other sources.

    Raises:
        ConfigError: names the file, the first key that differs, and both values.
    """
    path = run / RUN_FILE
    if run.exists() and not run.is_dir():
        raise ConfigError(f"run directory {run} is a file", "choose another folder with --out")
    if not path.exists():
        if run.is_dir() and any(not p.name.startswith(".") for p in run.iterdir()):
            raise ConfigError(
                f"run directory {run} is not empty and has no {RUN_FILE}", "choose an empty folder with --out"
            )
        return
    try:
        before = read_json(path)["config"]
    except (CorruptError, KeyError, TypeError) as e:
        raise ConfigError(f"{path} is not a run file of this program", "choose another folder with --out") from e
    documents = Box(below(run, read_json(path).get("folders", {}).get("documents", "documents")))
    if not any(r.get("documents") for r in documents.receipts()):
        return  # a first try that read nothing: nothing would be mixed
    now = public(config)
    for root in _ROOTS:
        difference = _first_difference(before.get(root), now[root], root)
        if difference is not None:
            key, old, new = difference
            raise ConfigError(
                f"{path} was made with {key} = {old!r}, this config has {new!r}",
                "sources, normalize and pii of a run directory do not change: choose another one with --out",
            )


def _first_difference(old: Any, new: Any, key: str) -> tuple[str, Any, Any] | None:
    if isinstance(old, dict) and isinstance(new, dict):
        for name in sorted(old.keys() | new.keys()):
            if name in ("weight", "tokens", "storage_options"):
                continue
            found = _first_difference(old.get(name), new.get(name), f"{key}.{name}")
            if found is not None:
                return found
        return None
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for i, (a, b) in enumerate(zip(old, new, strict=True)):
            found = _first_difference(a, b, f"{key}.{i}")
            if found is not None:
                return found
        return None
    return None if old == new else (key, old, new)


@dataclass
class _BoxState:
    stage: Stage
    tasks: dict[str, Any] = field(default_factory=dict)  # partition → what run() is told
    prepared: bool = False
    planned: bool = False
    done: dict[str, dict[str, Any]] = field(default_factory=dict)  # partition → receipt
    reused: int = 0
    complete: bool = False
    started: float = 0.0  # its first task was known
    began: float = 0.0  # its first task went to a worker; 0: none did
    finished: float = 0.0
    made: dict[str, tuple[int, int]] = field(default_factory=dict)  # task that is done → partitions, bytes of text


@dataclass
class Outcome:
    """What a run came to."""

    context: Context
    prints: dict[str, str]
    backend: backend.Backend
    wall: dict[str, float]  # box → seconds from the start of its first task to the end of its last, of this run
    waited: dict[str, float]  # box → seconds that its first task waited for a worker
    reused: dict[str, int]
    seconds: float
    warnings: list[str]
    report: str  # folder of its report
    failures: list[str] = field(default_factory=list)  # why a finished run ends with exit status 1


def execute(config: Config, run: Path, progress: Progress | None = None, fresh: bool = False) -> Outcome:
    """Make every box of a run, reusing what is there.

    Args:
        config: the recipe.
        run: run directory; made if missing.
        fresh: choose the validation split anew, not by the bound of the run directory's latest shards.
    Raises:
        ConfigError: before any work.
        FatalError: the run stopped; what is finished is kept and reused by the same call. NothingKeptError, one of them: no
            document was kept; the report is written.
        KeyboardInterrupt: likewise.
    """
    progress = progress or Quiet()
    begun = time.monotonic() - (progress.seconds() if hasattr(progress, "seconds") else 0.0)
    chosen = backend.choose(config.run.backend)
    progress.note(f"backend: {chosen.choice} ({chosen.reason})")
    if not compiled_before():
        progress.note("the first run on a machine compiles its kernels: about a minute of CPU, once")
    check_run_directory(run, config)
    recall(run.glob(PROOFS))
    prints = fingerprints(config)
    _check_output(run, config)
    lacking = _check_columns(config, Box(run / folders(run, prints)["documents"]))
    engine = make_engine(config.run.engine, config.run.workers or default_workers(), list(chosen.devices))
    start = time.perf_counter()
    with (
        contextlib.closing(engine),  # whatever fails before or after the runner, a cluster ends with its run
        run_lock(run, lambda pid: progress.note(f"process {pid} is working in {run}; waiting for it to end")),
        contextlib.ExitStack() as stack,
    ):
        check_run_directory(run, config)  # again: whoever held the lock may have made it
        refuse_links(run)
        remove_temporaries(run)
        repair_links(run)
        config, prints, earlier = pinned(config, run, prints, fresh)
        if earlier is not None and earlier.pinned:
            progress.note(f"validation split: the bound {earlier.bound} of {earlier.folder} ({earlier.reason})")
        places = folders(run, prints)
        facts = _run_file(config, prints, places, chosen, earlier)
        facts["latest"] = read_run_file(run).get("latest")
        write_json(run / RUN_FILE, facts)  # first: it makes the folder a run directory
        try:
            _make_folders(run, prints, places)
        except OSError as e:
            raise disk_error(run, e) from e
        opening = f"backend: {chosen.choice} ({chosen.reason})"
        progress = stack.enter_context(recorded(progress, run, begun, opening))
        context = Context(run, config, places, chosen.choice, chosen.devices)
        runner = _Runner(context, progress, engine)
        for warning in [*without_effect(config), *lacking]:
            runner.warn(warning)
        nothing: NothingKeptError | None = None
        try:
            runner.run()
        except NothingKeptError as e:  # the report says why
            nothing = e
        finally:
            runner.close()
        now = time.perf_counter()
        outcome = Outcome(
            context,
            prints,
            chosen,
            {n: round((s.finished or now) - (s.began or s.started), 3) for n, s in runner.boxes.items() if s.started},
            {n: round(s.began - s.started, 3) for n, s in runner.boxes.items() if s.began},
            {n: s.reused for n, s in runner.boxes.items()},
            now - start,
            runner.warnings,
            place(run, "report", prints["shards"]),
        )
        if nothing is None and earlier is not None:
            _tell_sides(runner, earlier, context.box("shards").folder)
        from gpu_curate.report import write_report
        from gpu_curate.report.intake import reject_line

        facts = write_report(outcome)
        outcome.failures = facts["failures"]
        if nothing is not None:
            latest = latest_shards(run)
            if latest is None:
                point(run, "report", outcome.report)
            rejects = reject_line(facts)
            raise NothingKeptError(
                nothing.message + (f" ({rejects})" if rejects else ""),
                f"no shard was written; why each went is in {run / outcome.report / 'index.html'}"
                + (f"; the latest shards are still those of {latest}" if latest else ""),
            )
        _make_latest(run, outcome, runner)
    return outcome


def _make_latest(run: Path, outcome: Outcome, runner: _Runner) -> None:
    """Let the plain names stand for what this run wrote: a whole set of shards, whose accounts add up, and its report."""
    folders = outcome.context.folders
    facts = read_json(run / RUN_FILE)
    facts["latest"] = {"shards": folders["shards"], "report": outcome.report, "folders": folders}
    linked = all(
        [point(run, name, target) for name, target in zip(LINKS, (folders["shards"], outcome.report), strict=True)]
    )
    write_json(run / RUN_FILE, facts)
    if not linked:
        runner.warn(
            f"{run} has no links: the latest shards are in {run / folders['shards']}, whatever {run / 'shards'} holds"
        )


def _tell_sides(runner: _Runner, earlier: Earlier, shards: Path) -> None:
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


def _make_folders(run: Path, prints: dict[str, str], places: dict[str, str]) -> None:
    for beside in BESIDE:
        (run / places[beside]).mkdir(exist_ok=True)
    for name, print_ in prints.items():
        marker = run / places[name] / FINGERPRINT
        marker.parent.mkdir(parents=True, exist_ok=True)
        if owner(marker.parent) != print_:
            with publish(marker) as temp:
                temp.write_text(print_ + "\n")


def _check_columns(config: Config, documents: Box) -> list[str]:
    """Warnings about columns that are not in the first records, unless these have been read before.

    Raises:
        ConfigError: columns that the recipe names are not there.
    """
    from gpu_curate.stages.columns import check_sources
    from gpu_curate.stages.documents.listing import inventory

    return [] if documents.parts() else check_sources(config, inventory(config))[1]


def _check_output(run: Path, config: Config) -> None:
    """Refuse a run directory that a source would read.

    Raises:
        ConfigError: it lies in a folder, or below a `**` glob, that a source names.
    """
    place = run.resolve()
    for source in config.sources:
        for pattern in source.paths:
            if not pattern or is_remote(pattern):
                continue
            folder = Path(pattern)
            if not folder.is_dir():
                if "**" not in pattern:
                    continue
                folder = Path(fixed_folder(pattern) or ".")
            if place.is_relative_to(folder.resolve()):
                raise ConfigError(
                    f"run directory {run} lies in {folder}, which source {source.name} reads",
                    "choose a folder outside the sources with --out",
                )


def _run_file(
    config: Config, prints: dict[str, str], places: dict[str, str], chosen: backend.Backend, earlier: Earlier | None
) -> dict[str, Any]:
    kept = None if earlier is None or not earlier.pinned else {"bound": earlier.bound, "of": str(earlier.folder)}
    return {
        "version": __version__,
        "config": public(config),
        "fingerprints": prints,
        "folders": places,
        "split": kept,  # the bound that this run was given, and by which shards
        "backend": {"choice": chosen.choice, "reason": chosen.reason},
        "machine": {
            "system": platform.platform(),
            "python": platform.python_version(),
            "cores": default_workers(),
            "pid": os.getpid(),
        },
        "versions": {"gpu_curate": __version__, **versions(("numpy", "numba", "pyarrow", "tokenizers", "gigatoken"))},
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    }


def _run_task(stage: Stage, context: Context, part: str, task: Any) -> dict[str, Any]:
    """What a worker executes."""
    return stage.run(context, part, task)


class _Runner:
    """Submits tasks when what they need is there, and looks after those that fail."""

    def __init__(self, context: Context, progress: Progress, engine: Engine):
        self.context, self.progress, self.engine = context, progress, engine
        self.boxes = {s.name: _BoxState(s) for s in active_stages(context.config)}
        self.warnings: list[str] = []
        self._ready: deque[tuple[str, str]] = deque()
        self._running: dict[Future[Any], tuple[str, str, str]] = {}  # → box, partition, kind
        # Not concurrent.futures.wait: it takes the locks of all futures in a loop, and a signal that interrupts the loop
        # leaves them taken; the pool's own thread, and the interpreter's end with it, would wait for them for ever.
        self._finished: SimpleQueue[Future[Any]] = SimpleQueue()
        self._attempts: dict[tuple[str, str], int] = {}
        self._not_before: dict[tuple[str, str], float] = {}  # when a task may be tried again, by time.monotonic()
        self._crashed: dict[tuple[str, str], int] = {}  # how often a worker died with it, maybe for another task's sake
        self._closed = False
        self._submitted = False

    def run(self) -> None:
        while not all(s.complete for s in self.boxes.values()):
            self._advance()
            self._submit()
            if not self._running:
                if self._ready or all(s.complete for s in self.boxes.values()):
                    time.sleep(self._pause() or 0.0)
                    continue
                stuck = [n for n, s in self.boxes.items() if not s.complete]
                raise FatalError(f"nothing to run but {', '.join(stuck)} not complete")  # our own bug
            self._collect(self._wait())

    def _wait(self) -> set[Future[Any]]:
        """Futures that are done, at least one; none if a task that waits for its next try may begin."""
        done: set[Future[Any]] = set()
        with contextlib.suppress(Empty):
            done.add(self._finished.get(True, self._pause()))
            while True:
                done.add(self._finished.get_nowait())
        return done

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self.engine.close(kill=bool(self._running))

    def warn(self, text: str) -> None:
        if text not in self.warnings:
            self.warnings.append(text)
            self.progress.warn(text)

    # -------------------------------------------------------------------------------------------- what can be done

    def _advance(self) -> None:
        """Plan boxes whose inputs are complete, queue their tasks, finish boxes without tasks left."""
        while True:
            try:
                if not any([self._advance_box(state) for state in self.boxes.values() if not state.complete]):
                    return
            except CorruptError as e:
                if not self._repair(e) and not self._ready and not self._running:
                    raise FatalError(f"{e.message}, and no partition explains it") from e
                return

    def _advance_box(self, state: _BoxState) -> bool:
        """True if the box was completed."""
        reads_there = all(self.boxes[b].complete for b in state.stage.reads(self.context.config))
        if reads_there and not state.prepared:
            state.stage.prepare(self.context)
            state.prepared = True
        if state.stage.follows is not None:
            if reads_there:
                self._follow(state)
            all_known = reads_there and self.boxes[state.stage.follows].complete
        else:
            if reads_there and not state.planned:
                state.started = state.started or time.perf_counter()
                tasks = state.stage.plan(self.context)
                state.planned = True
                for part, task in tasks.items():
                    self._add(state, part, task)
            all_known = state.planned
        if not all_known or len(state.done) < len(state.tasks):
            return False
        state.stage.finish(self.context)
        state.complete = True
        state.finished = time.perf_counter()
        self._tell(state)
        return True

    def _repair(self, error: CorruptError) -> bool:
        """Queue what was found damaged; whoever needs it waits. Returns whether there was anything."""
        self.warn(f"{error.message}; it is made again")
        return self._revive()

    def _follow(self, state: _BoxState) -> None:
        source = self.boxes[state.stage.follows or ""]
        for part, receipt in source.done.items():
            for output in (part, *receipt.get("more", [])):
                if output not in state.tasks:
                    self._add(state, output, None)

    def _add(self, state: _BoxState, part: str, task: Any) -> None:
        state.started = state.started or time.perf_counter()
        state.tasks[part] = task
        receipt = self.context.box(state.stage.name).receipt(part)
        if receipt is not None and all(self._whole(state, output) for output in receipt.get("more", [])):
            state.reused += 1 + len(receipt.get("more", []))
            self._done(state, part, receipt)
        else:
            self._ready.append((state.stage.name, part))

    def _whole(self, state: _BoxState, part: str) -> bool:
        return self.context.box(state.stage.name).receipt(part) is not None

    def _done(self, state: _BoxState, part: str, receipt: dict[str, Any]) -> None:
        state.done[part] = receipt
        box = self.context.box(state.stage.name)
        made = [receipt, *(box.receipt(p) or {} for p in receipt.get("more", []))]
        state.made[part] = (len(made), sum(r.get("bytes", 0) for r in made))
        for text in receipt.get("warnings", []):
            self.warn(text)
        self._tell(state)

    def _tell(self, state: _BoxState) -> None:
        """Tell how many partitions there are of how many; that they are all there, once the box is whole."""
        partitions, sizes = zip(*state.made.values(), strict=True) if state.made else ((), ())
        known = state.complete or state.stage.follows is None or self.boxes[state.stage.follows].complete
        open_tasks = len(state.tasks) - len(state.done)
        if known and not open_tasks and not state.complete:
            return
        done = sum(partitions)
        self.progress.box(state.stage.name, done, done + open_tasks if known else None, sum(sizes), state.reused)

    # --------------------------------------------------------------------------------------------------- the workers

    def _kind(self, name: str) -> str:
        on_device = self.boxes[name].stage.on_device and self.context.backend == "gpu"
        return "gpu" if on_device and self.engine.slots("gpu") else "cpu"

    def _can_run(self, name: str, part: str) -> bool:
        """False while something the task reads is being made again."""
        stage = self.boxes[name].stage
        if not all(self.boxes[b].complete for b in stage.reads(self.context.config)):
            return False
        return stage.follows is None or part.split("-")[0] in self.boxes[stage.follows].done

    def _pause(self) -> float | None:
        """Seconds until the first task may be tried again; None if none waits for that."""
        times = [self._not_before[key] for key in self._ready if key in self._not_before]
        return max(min(times) - time.monotonic(), 0.0) if times else None

    def _alone(self, name: str, part: str) -> bool:
        """True of the last try of a task that workers died with: alone, it is known whose fault it is."""
        return self._crashed.get((name, part), 0) >= MAX_ATTEMPTS - 1

    def _submit(self) -> None:
        if any(self._alone(name, part) for name, part, _ in self._running.values()):
            return
        now = time.monotonic()
        busy = {kind: sum(1 for r in self._running.values() if r[2] == kind) for kind in ("cpu", "gpu")}
        waiting: deque[tuple[str, str]] = deque()
        while self._ready:
            name, part = self._ready.popleft()
            kind = self._kind(name)
            alone = self._alone(name, part)
            early = self._not_before.get((name, part), now) > now
            if early or busy[kind] >= self.engine.slots(kind) or not self._can_run(name, part):
                waiting.append((name, part))
                continue
            self._not_before.pop((name, part), None)
            if alone and self._running:
                waiting.append((name, part))
                continue
            busy[kind] += 1
            state = self.boxes[name]
            if not self._submitted:
                self._submitted = True
                self._begin()
            try:
                future = self.engine.submit(kind, _run_task, state.stage, self.context, part, state.tasks[part])
            except BrokenExecutor:
                waiting.append((name, part))
                self.engine.restart()
                continue
            self._running[future] = (name, part, kind)
            state.began = state.began or time.perf_counter()
            future.add_done_callback(self._finished.put)
            if alone:
                break
        self._ready = waiting + self._ready

    def _begin(self) -> None:
        """Before the first task: workers inherit where what is compiled is kept."""
        from gpu_curate.jit import keep_with_run  # a run with nothing to do, and `status`, do without Numba

        if kept := keep_with_run(self.context.run):
            self.progress.note(kept)

    def _collect(self, done: set[Future[Any]]) -> None:
        broken = False
        for future in done:
            if future not in self._running:
                continue
            name, part, _ = self._running.pop(future)
            state = self.boxes[name]
            try:
                self._done(state, part, future.result())
            except CorruptError as e:
                self._again(name, part, None if self._repair(e) else e)
            except RetryableError as e:
                self.warn(f"{name}, partition {part}: {e.message}; trying again")
                wait = 2.0 ** self._attempts.get((name, part), 0)  # a server that hiccups wants a moment
                self._not_before[name, part] = time.monotonic() + wait
                self._again(name, part, e)
            except BrokenExecutor as e:
                broken = True
                self._crashed[name, part] = self._crashed.get((name, part), 0) + 1
                self._again(name, part, e)
            except GpuCurateError:
                raise
            except MemoryError as e:
                raise FatalError(
                    f"{name}, partition {part}: out of memory", "set a smaller run.partition_bytes or fewer --workers"
                ) from e
            except Exception as e:
                raise FatalError(f"{self._place(name, part)}: {type(e).__name__}: {e}") from e
        if broken:
            for name, part, _ in self._running.values():
                self._again(name, part, None)
            self._running.clear()
            self.warn("a worker process died; its partitions are run again")
            self.engine.restart()

    def _again(self, name: str, part: str, error: BaseException | None) -> None:
        key = (name, part)
        self._attempts[key] = self._attempts.get(key, 0) + (error is not None)
        if self._attempts[key] >= MAX_ATTEMPTS:
            raise FatalError(
                f"{self._place(name, part)}: failed {MAX_ATTEMPTS} times: {error}",
                "if workers are killed for memory, set a smaller run.partition_bytes or fewer --workers",
            ) from error
        self._ready.append(key)

    def _place(self, name: str, part: str) -> str:
        """A task, and what it was at, for a message."""
        at_hand = self.boxes[name].stage.at_hand(self.context, part)
        return f"{name}, partition {part}" + (f", {at_hand}" if at_hand else "")

    def _revive(self) -> bool:
        """Queue every partition whose receipt is gone again (its file was found to be damaged)."""
        revived = False
        for state in self.boxes.values():
            box = self.context.box(state.stage.name)
            for part in list(state.done):
                outputs = (part, *state.done[part].get("more", []))
                if any(box.receipt(p) is None for p in outputs):
                    del state.done[part]
                    state.complete = False
                    self._ready.appendleft((state.stage.name, part))
                    revived = True
        return revived


def _how_far(run: Path, boxes: dict[str, dict[str, Any]], complete: bool) -> dict[str, Any]:
    """The state of a run and who works on it; adds to each box of how many partitions it has some, how fast, and how long yet.

    running: a process works in it (on another host: as it said last). stopped: by a signal; failed: by an error, `why`;
    killed: the process is gone and said nothing. complete: its latest shards are whole.
    """
    try:
        said = read_json(run / STATUS)
    except (OSError, CorruptError):
        said = {}
    holder = lock_holder(run)
    elsewhere = said.get("host") not in (None, socket.gethostname())
    state = said.get("state", "running")
    if holder is not None or (elsewhere and state == "running"):
        state = "running"
    elif complete:
        state = "complete"
    elif state == "running":
        state = "killed"
    elif state == "complete":  # its shards are gone, or those of a config that is not made yet
        state = "stopped"
    running = state == "running"
    age = max(0.0, time.time() - said["updated"]) if "updated" in said else 0.0
    for name, box in boxes.items():
        of = said.get("boxes", {}).get(name, {})
        whole = state == "complete"
        box["total"] = box["partitions"] if whole else of.get("total")
        box["bytes_per_s"] = of.get("bytes_per_s") if running else None
        left = of.get("left_s") if running else None
        box["left_s"] = None if left is None else round(max(0.0, left - age), 1)
    return {
        "state": state,
        "pid": (holder or said.get("pid")) if running else None,
        "host": said.get("host") if running else None,
        "seconds": None if "seconds" not in said else round(said["seconds"] + (age if running else 0.0), 1),
        "why": said.get("why"),
    }


def _run_facts(path: Path) -> dict[str, Any]:
    """run.json, as far as its state is told by it. Raises: CorruptError: it is of another kind."""
    facts = read_json(path)
    kinds = {"folders": dict, "started": str, "backend": dict}
    wrong = [k for k, kind in kinds.items() if not isinstance(facts, dict) or not isinstance(facts.get(k), kind)]
    if wrong or not all(isinstance(f, str) for f in facts["folders"].values()) or "shards" not in facts["folders"]:
        raise CorruptError(f"{path} is not a run file of this program ({', '.join(wrong) or 'folders'})", "run again")
    return facts


def run_state(run: Path) -> dict[str, Any]:
    """What is there in a run directory: for `gpu-curate status`.

    Raises:
        ConfigError: no run directory.
    """
    path = run / RUN_FILE
    if not path.exists():
        holder = lock_holder(run)
        if holder is None:
            raise ConfigError(f"{run} is not a run directory: it has no {RUN_FILE}")
        starting = {
            "run": str(run),
            "started": None,
            "complete": False,
            "state": "running",
            "pid": holder,
            "host": None,
        }
        return {**starting, "seconds": None, "why": None, "backend": None, "boxes": {}, "shards": None}
    info = _run_facts(path)
    boxes = {}
    for name, folder in info["folders"].items():
        receipts = list(Box(below(run, folder)).receipts())
        boxes[name] = {
            "folder": folder,
            "partitions": len(receipts),
            "documents": sum(r.get("documents", 0) for r in receipts),
            "bytes": sum(r.get("bytes", 0) for r in receipts),
            "cpu_seconds": round(sum(r.get("cpu_seconds", 0.0) for r in receipts), 3),
            "disk_bytes": disk_bytes(run / folder),
        }
    for beside in BESIDE:
        boxes["documents"]["disk_bytes"] += boxes.pop(beside, {"disk_bytes": 0})["disk_bytes"]
    latest = latest_shards(run)
    complete = Box(below(run, info["folders"]["shards"])).sealed()
    return {
        "run": str(run),
        "started": info["started"],
        "complete": complete,
        **_how_far(run, boxes, complete),
        "backend": info["backend"],
        "boxes": boxes,
        "shards": None if latest is None else str(latest),
        "sets": shard_sets(run),
        "disk_bytes": disk_bytes(run),
    }
