"""The scheduler: what must run, in which order.

Tasks are (box, partition). A box that follows documents gets a task for each of its partitions as soon as that one is
there, so that reading, hashing, scoring and tokenising overlap; the others wait for all they read. A partition whose
receipt is there and whole is not run again.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter, deque
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from queue import Empty, SimpleQueue
from typing import Any

from gpu_curate.errors import MAX_ATTEMPTS, CorruptError, DeviceLost, FatalError, GpuCurateError, RetryableError
from gpu_curate.runs.engines import Engine
from gpu_curate.runs.progress import Progress
from gpu_curate.runs.workers import CPU, Place
from gpu_curate.stages import Boxes, Stage
from gpu_curate.stages.documents.stage import Documents
from gpu_curate.stages.part import run_task
from gpu_curate.stages.shipped import Shipped, ship
from gpu_curate.stages.together import run_together
from gpu_curate.store.artifact import Box
from gpu_curate.store.receipts import Counts, Receipt

# One read of the text makes a partition of both, where both are missing and the CPU makes them.
TOGETHER = ("signatures", "contamination")


def _both(name: str, other: str | None) -> list[str]:
    """The boxes whose partition one task makes, in the order in which it does."""
    return [name] if other is None else [n for n in TOGETHER if n in (name, other)]


@dataclass
class _BoxState:
    stage: Stage
    shipped: Stage | Shipped  # what travels to workers
    tasks: dict[str, Any] = field(default_factory=dict)  # partition → what its task is told
    prepared: bool = False
    planned: bool = False
    done: dict[str, Receipt[Counts]] = field(default_factory=dict)  # by partition
    reused: int = 0
    complete: bool = False
    started: float = 0.0  # its first task was known
    began: float = 0.0  # its first task went to a worker; 0: none did
    finished: float = 0.0
    made: dict[str, tuple[int, int]] = field(default_factory=dict)  # task that is done → partitions, bytes of text


class Runner:
    """Submits tasks when what they need is there, and looks after those that fail."""

    def __init__(
        self,
        stages: list[Stage],
        boxes: Boxes,
        progress: Progress,
        engine: Engine,
        kept: frozenset[str] = frozenset(),
        compiled: bool = True,
    ):
        self.of_run, self.progress, self.engine = boxes, progress, engine
        self.boxes = {s.name: _BoxState(s, ship(s)) for s in stages}
        self._kept = kept  # boxes that hold partitions of more than this run
        self._of: dict[tuple[str, str], str] = {}  # box and partition → what it is made of
        self._known: dict[str, dict[str, str]] = {}  # box → what its partitions were made of → partition
        self.warnings: list[str] = []
        self._ready: deque[tuple[str, str]] = deque()
        self._running: dict[Future[Any], tuple[str, str, Place]] = {}  # → box, partition, where
        self._joined: dict[Future[Any], str] = {}  # → further box whose partition the task makes
        # Not concurrent.futures.wait: it takes the locks of all futures in a loop, and a signal that interrupts the loop
        # leaves them taken; the pool's own thread, and the interpreter's end with it, would wait for them for ever.
        self._finished: SimpleQueue[Future[Any]] = SimpleQueue()
        self._attempts: dict[tuple[str, str], int] = {}
        self._not_before: dict[tuple[str, str], float] = {}  # when a task may be tried again, by time.monotonic()
        self._crashed: dict[tuple[str, str], int] = {}  # how often a worker died with it, maybe for another task's sake
        self._off_device: set[tuple[str, str]] = set()  # tasks that a device failed with: the CPU takes them
        self._failures: Counter[str] = Counter()  # device → how often a process that used it failed
        self._takers: dict[str, bool] = {}  # box → its tasks take all devices for themselves
        self._released = False  # the devices were given back: no task needs one any more
        self._closed = False
        self._submitted = False
        # Steps whose kernels one worker has to compile first: the others load what it compiled, and do other work until then.
        self._uncompiled = set() if compiled else {*(s.name for s in stages if s.on_device), "together"}

    def run(self) -> None:
        while not all(s.complete for s in self.boxes.values()):
            self._advance()
            self._release()
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
        reads_there = all(self.boxes[b].complete for b in state.stage.inputs)
        if reads_there and not state.prepared:
            state.stage.prepare(self.of_run)
            state.prepared = True
        if state.stage.follows is not None:
            if reads_there:
                self._follow(state)
            all_known = reads_there and self.boxes[state.stage.follows].complete
        else:
            if reads_there and not state.planned:
                state.started = state.started or time.perf_counter()
                tasks = state.stage.plan(self.of_run)
                state.planned = True
                for part, task in tasks.items():
                    self._add(state, part, task)
            all_known = state.planned
        if not all_known or len(state.done) < len(state.tasks):
            return False
        state.stage.finish(self.of_run)
        state.complete = True
        state.finished = time.perf_counter()
        self._announce(state)
        return True

    def _repair(self, error: CorruptError) -> bool:
        """Queue what was found damaged; whoever needs it waits. Returns whether there was anything."""
        self.warn(f"{error.message}; it is made again")
        return self._queue_lost()

    def _follow(self, state: _BoxState) -> None:
        source = self.boxes[state.stage.follows or ""]
        for part, receipt in source.done.items():
            for output in (part, *receipt.more):
                if output not in state.tasks:
                    self._add(state, output, None)

    def _add(self, state: _BoxState, part: str, task: Any) -> None:
        state.started = state.started or time.perf_counter()
        state.tasks[part] = task
        receipt = self._standing(state, part) or self._adopted(state, part)
        if receipt is not None and all(self._standing(state, further) is not None for further in receipt.more):
            state.reused += 1 + len(receipt.more)
            self._done(state, part, receipt)
        else:
            self._ready.append((state.stage.name, part))

    def _stamp(self, state: _BoxState, part: str) -> dict[str, str]:
        """What the receipt of a partition says it was made of, in a box that holds more than those of this run."""
        stage = state.stage
        if stage.name not in self._kept:
            return {}
        if isinstance(stage, Documents):
            assert stage.corpus is not None
            return {"key": stage.corpus.keys[part.partition("-")[0]]}
        if (stage.name, part) not in self._of:
            followed = self.boxes[stage.follows or ""].stage
            receipt = self.of_run.box(followed.name).receipt(part, followed.counts)
            if receipt is None:
                return {}
            self._of[stage.name, part] = stage.made_of(receipt)
        return {"of": self._of[stage.name, part]}

    def _standing(self, state: _BoxState, part: str) -> Receipt[Counts] | None:
        """The receipt of a partition that is there, whole, and made of what it would be made of now."""
        receipt = self.of_run.box(state.stage.name).receipt(part)
        if receipt is None or any(getattr(receipt, k) != v for k, v in self._stamp(state, part).items()):
            return None
        return receipt

    def _adopted(self, state: _BoxState, part: str) -> Receipt[Counts] | None:
        """The receipt of a partition that was made of the same under another name, and now stands under this one too."""
        name = state.stage.name
        stamp = self._stamp(state, part)
        of = stamp.get("of")
        if of is None:
            return None
        if name not in self._known:
            everything = Box(self.of_run.root(name) / self.of_run.folders[name])
            self._known[name] = {r.of: r.part for r in everything.receipts() if r.of}
        before = self._known[name].get(of)
        return None if before is None else self.of_run.box(name).adopt(before, part, state.stage.counts, stamp)

    def _done(self, state: _BoxState, part: str, receipt: Receipt[Counts]) -> None:
        state.done[part] = receipt
        box = self.of_run.box(state.stage.name)
        further = [r for r in map(box.receipt, receipt.more) if r is not None]
        state.made[part] = (1 + len(receipt.more), sum(r.counts.bytes for r in (receipt, *further)))
        for text in receipt.warnings:
            self.warn(text)
        self._announce(state)

    def _announce(self, state: _BoxState) -> None:
        """Tell how many partitions there are of how many; that they are all there, once the box is whole."""
        partitions, sizes = zip(*state.made.values(), strict=True) if state.made else ((), ())
        known = state.complete or state.stage.follows is None or self.boxes[state.stage.follows].complete
        open_tasks = len(state.tasks) - len(state.done)
        if known and not open_tasks and not state.complete:
            return
        done = sum(partitions)
        self.progress.box(state.stage.name, done, done + open_tasks if known else None, sum(sizes), state.reused)

    # --------------------------------------------------------------------------------------------------- the workers

    def _wants_device(self, name: str, part: str) -> bool:
        """True of a task that has a GPU twin, in a run that has devices, unless a device failed with it."""
        stage = self.boxes[name].stage
        return stage.on_device and self.of_run.backend == "gpu" and (name, part) not in self._off_device

    def _takes_all(self, name: str) -> bool:
        """True if the tasks of a box take all devices for themselves, outside the workers."""
        if name not in self._takers:  # its task is known, so all that it reads is there
            self._takers[name] = self.of_run.backend == "gpu" and self.boxes[name].stage.takes_devices(self.of_run)
        return self._takers[name]

    def _room(self) -> dict[Place, int]:
        """How many more tasks each place takes now."""
        room = self.engine.places()
        held = any(self._takes_all(name) for name, _, _ in self._running.values())
        for *_, place in self._running.values():
            room[place] = room.get(place, 0) - 1
        return {place: 0 if held and place.kind == "gpu" else n for place, n in room.items()}

    def _place(self, name: str, part: str, room: dict[Place, int], stealing: bool) -> Place | None:
        """Where a task may run now; None: it waits."""
        if self._wants_device(name, part) and any(place.kind == "gpu" for place in room):
            free = next((place for place, n in room.items() if place.kind == "gpu" and n > 0), None)
            if free is not None or not stealing:
                return free
        if room[CPU] <= 0 or (self._takes_all(name) and self._on_devices()):
            return None
        return CPU

    def _on_devices(self) -> bool:
        return any(place.kind == "gpu" for *_, place in self._running.values())

    def _can_run(self, name: str, part: str) -> bool:
        """False while something the task reads is being made again."""
        stage = self.boxes[name].stage
        if not all(self.boxes[b].complete for b in stage.inputs):
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
        # What only the CPU can do goes to it first. Then a task that no device is free for goes to a CPU worker that is.
        for stealing in (False, True) if self.engine.steals else (False,):
            if self._submit_some(stealing):
                return

    def _submit_some(self, stealing: bool) -> bool:
        """Submit what there is a place for. True if one of them must run alone."""
        now, room = time.monotonic(), self._room()
        waiting: deque[tuple[str, str]] = deque()
        alone = False
        while self._ready and not alone:
            name, part = self._ready.popleft()
            place = self._place(name, part, room, stealing)
            early = self._not_before.get((name, part), now) > now
            if early or place is None or not self._can_run(name, part):
                waiting.append((name, part))
                continue
            self._not_before.pop((name, part), None)
            compiling = name in self._uncompiled and any(name == other for other, _, _ in self._running.values())
            if compiling or (self._alone(name, part) and self._running):
                waiting.append((name, part))
                continue
            alone = self._alone(name, part)
            room[place] -= 1
            state = self.boxes[name]
            if not self._submitted:
                self._submitted = True
                self._begin()
            other = self._partner(name, part, place, waiting)
            if self._takes_all(name):
                self.engine.release()
            try:
                future = self._start(name, other, part, place)
            except self.engine.worker_died:
                waiting += [(n, part) for n in (name, other) if n is not None]
                self.engine.restart(place)
                alone = False
                continue
            self._running[future] = (name, part, place)
            if other is not None:
                self._joined[future] = other
                self.boxes[other].began = self.boxes[other].began or time.perf_counter()
            state.began = state.began or time.perf_counter()
            future.add_done_callback(self._finished.put)
        self._ready = waiting + self._ready
        return alone

    def _boxes_for(self, names: Sequence[str], part: str, place: Place) -> Boxes:
        """What a task is told of the run. Where it runs says which twin makes it."""
        boxes = self.of_run
        if self.boxes[names[0]].stage.on_device:
            boxes = replace(boxes, backend=place.kind)
        left = {p.device for p in self.engine.places() if p.device}
        if left:
            boxes = replace(boxes, devices=tuple(d for d in boxes.devices if d in left))
        return replace(boxes, stamps={n: self._stamp(self.boxes[n], part) for n in names})

    def _release(self) -> None:
        """Give the devices back once no task needs one: tokens and shards may go on for hours."""
        needed = any(s.stage.on_device and not s.complete for s in self.boxes.values())
        if not needed and not self._released:
            self.engine.release()
        self._released = not needed

    def _start(self, name: str, other: str | None, part: str, place: Place) -> Future[Any]:
        """Give a worker one partition, or one of two boxes. Raises: as a worker's death does."""
        names = _both(name, other)
        boxes = self._boxes_for(names, part, place)
        if other is None:
            state = self.boxes[name]
            return self.engine.submit(place, run_task, state.shipped, boxes, part, state.tasks[part])
        return self.engine.submit(place, run_together, [self.boxes[n].shipped for n in names], boxes, part)

    def _partner(self, name: str, part: str, place: Place, waiting: deque[tuple[str, str]]) -> str | None:
        """The box whose partition the same task makes; it is taken from those that wait. None: the task makes one.

        A task that failed, or whose kernels nobody has compiled yet, is run by itself.
        """
        if name not in TOGETHER or place != CPU or not all(n in self.boxes for n in TOGETHER):
            return None
        other = next(n for n in TOGETHER if n != name)
        keys = [(n, part) for n in TOGETHER]
        if any(key in self._attempts or key in self._crashed or key in self._not_before for key in keys):
            return None
        if self._uncompiled & {*TOGETHER} or ("together" in self._uncompiled and self._joined):
            return None
        state = self.boxes[other]
        if part not in state.tasks or part in state.done or not self._can_run(other, part):
            return None
        for queue in (self._ready, waiting):
            if (other, part) in queue:
                queue.remove((other, part))
                return other
        return None

    def _begin(self) -> None:
        """Before the first task: workers inherit where what is compiled is kept."""
        from gpu_curate.jit import keep_with_run  # a run with nothing to do, and `status`, do without Numba

        if kept := keep_with_run(self.of_run.run):
            self.progress.note(kept)

    def _collect(self, done: set[Future[Any]]) -> None:
        died: list[Place] = []
        for future in done:
            if future not in self._running:
                continue
            name, part, place = self._running.pop(future)
            other = self._joined.pop(future, None)
            names = _both(name, other)
            try:
                made = future.result()
                for own, receipt in zip(names, made if other is not None else [made], strict=True):
                    self._done(self.boxes[own], part, receipt)
                self._uncompiled.discard(name if other is None else "together")
            except CorruptError as e:
                self._retry(names, part, None if self._repair(e) else e)
            except RetryableError as e:
                self.warn(f"{name}, partition {part}: {e.message}; trying again")
                wait = 2.0 ** self._attempts.get((name, part), 0)  # a server that hiccups wants a moment
                self._not_before |= {(own, part): time.monotonic() + wait for own in names}
                self._retry(names, part, e)
            except DeviceLost as e:
                self._lose(name, part, place, e)
            except self.engine.worker_died as e:
                died.append(place)
                self._crashed |= {(own, part): self._crashed.get((own, part), 0) + 1 for own in names}
                self._retry(names, part, e)
                if place.kind == "gpu":
                    self._off_device.add((name, part))
            except GpuCurateError:
                raise
            except MemoryError as e:
                raise FatalError(
                    f"{name}, partition {part}: out of memory", "set a smaller run.partition_bytes or fewer --workers"
                ) from e
            except Exception as e:
                raise FatalError(f"{self._task(name, part)}: {type(e).__name__}: {e}") from e
        for place in dict.fromkeys(died):
            self._requeue([place])
            self.warn(
                f"a worker process{f' of {place}' if place.kind == 'gpu' else ''} died; its partitions are run again"
            )
            self.engine.restart(place)
            if place.kind == "gpu":
                self._count_failure(place, place.device, gone=False)

    def _lose(self, name: str, part: str, place: Place, error: DeviceLost) -> None:
        """CUDA failed in a task: its process is of no more use, and maybe its device is not; the CPU makes the partition."""
        device = place.device or error.device
        self._off_device.add((name, part))
        self._retry([name], part, None)
        self.warn(
            f"{name}, partition {part}: device {device or 0} failed: {error.message}; the CPU makes the partition"
        )
        self.engine.restart(place)
        self._count_failure(place, device, error.gone)

    def _count_failure(self, place: Place, device: str, gone: bool) -> None:
        """Leave a device out at its second failure, or at one that says that it is gone: the first may be one text's."""
        self._failures[device] += 1
        if place not in self.engine.places() or not (gone or self._failures[device] >= self.engine.max_failures):
            return
        self._requeue(self.engine.retire(place, device))
        left = any(p.kind == "gpu" for p in self.engine.places())
        rest = "the others go on" if left else "none is left: the CPU does the rest"
        self.warn(
            f"device {device or 0} is left out for the rest of this run; {rest} (`nvidia-smi` and dmesg say more)"
        )

    def _requeue(self, places: list[Place]) -> None:
        """Queue the tasks again whose worker is no more, without any fault of theirs."""
        for future in [f for f, (*_, place) in self._running.items() if place in places]:
            name, part, _ = self._running.pop(future)
            self._retry(_both(name, self._joined.pop(future, None)), part, None)

    def _retry(self, names: Sequence[str], part: str, error: BaseException | None) -> None:
        """Queue a partition again, of each box that its task was to make."""
        for name in names:
            key = (name, part)
            self._attempts[key] = self._attempts.get(key, 0) + (error is not None)
            if self._attempts[key] >= MAX_ATTEMPTS:
                raise FatalError(
                    f"{self._task(name, part)}: failed {MAX_ATTEMPTS} times: {error}",
                    "if workers are killed for memory, set a smaller run.partition_bytes or fewer --workers",
                ) from error
            self._ready.append(key)

    def _task(self, name: str, part: str) -> str:
        """A task, and what it was at, for a message."""
        at_hand = self.boxes[name].stage.at_hand(self.of_run, part)
        return f"{name}, partition {part}" + (f", {at_hand}" if at_hand else "")

    def _queue_lost(self) -> bool:
        """Queue every partition whose receipt is gone again (its file was found to be damaged)."""
        revived = False
        for state in self.boxes.values():
            box = self.of_run.box(state.stage.name)
            for part in list(state.done):
                if not all(map(box.has, (part, *state.done[part].more))):
                    del state.done[part]
                    state.complete = False
                    self._ready.appendleft((state.stage.name, part))
                    revived = True
        return revived
