"""One partition to make: what its task may read, and how what it made becomes files and a receipt.

The stopwatch, the check of every input against its receipt, the publishing, the warnings and the rejects are here, once for
all stages.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpu_curate.stages.rejects import LateRejects
from gpu_curate.stages.shipped import Shipped
from gpu_curate.store.files import write_table
from gpu_curate.store.receipts import C, Cost, Counts, Receipt

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    from gpu_curate.device.backend import Computed
    from gpu_curate.document import TextColumn
    from gpu_curate.stages import Boxes, Made, Stage
    from gpu_curate.store.artifact import Box


class Part:
    """One partition of a stage's box, for the time of its task.

    Args:
        stage: the stage that makes it.
        boxes: those of the run.
        name: of the partition: "000000".
        task: what the stage's `plan` said of it.
    """

    def __init__(self, stage: Stage, boxes: Boxes, name: str, task: Any = None):
        self.stage, self.boxes, self.name, self.task = stage, boxes, name, task
        self._warnings: list[str] = []
        self._watch = Stopwatch()

    # ------------------------------------------------------------------------------------------------- what it reads

    @property
    def backend(self) -> str:
        """Where documents are put: cpu or gpu."""
        return self.boxes.backend

    def read(self, box: str, columns: list[str] | None = None) -> pa.Table:
        """The partition of the same name in another box. Raises: CorruptError: it differs from its receipt."""
        return self.boxes.box(box).read_table(self.name, columns)

    def columns(self, box: str, *names: str) -> tuple[np.ndarray, ...]:
        """Columns without nulls of the partition of the same name, as NumPy arrays. Raises: CorruptError."""
        return self.boxes.box(box).columns(self.name, *names)

    def counts(self, box: str, kind: type[C]) -> C:
        """What was counted of the partition of the same name. Raises: CorruptError: it has no receipt."""
        return self.boxes.box(box).counts(self.name, kind)

    def text(self) -> TextColumn:
        """The texts of the documents of the box that the stage follows, on the host."""
        from gpu_curate.stages.partition_text import host_text

        return host_text(self._texts)

    def compute(self, function: Callable[[TextColumn], dict[str, Any]]) -> Computed:
        """Arrays made of the texts, where the run puts documents.

        Args:
            function: texts → arrays whose first axis is the document; called with a column on the host or the device,
                more than once where the texts do not fit on the device together.
        Raises: DeviceError.
        """
        from gpu_curate.device.backend import compute
        from gpu_curate.stages.partition_text import device_text, host_text

        path, nbytes = self._texts, self.counts(str(self.stage.follows), Counts).bytes
        return compute(self.backend, lambda: host_text(path), lambda: device_text(path, nbytes), function)

    @cached_property
    def _texts(self) -> Path:
        """The file with the texts of the partition that this one follows."""
        from gpu_curate.stages.partition_text import verified_text

        if self.stage.follows is None:
            raise TypeError(f"stage {self.stage.name} follows no box, so a partition of it has no texts of its own")
        return verified_text(self.boxes.box(self.stage.follows), self.name)

    # --------------------------------------------------------------------------------------------- what becomes of it

    @property
    def box(self) -> Box:
        """Where it is written."""
        return self.boxes.box(self.stage.name)

    def path(self, suffix: str) -> Path:
        """The place of a further file of this partition."""
        return self.box.path(self.name, suffix)

    def warn(self, text: str) -> None:
        """Tell the user, in this run and in every one that reuses the partition."""
        self._warnings.append(text)

    @cached_property
    def rejects(self) -> LateRejects:
        """Documents that the stage's library could not take: they keep their rows, and are counted as rejected."""
        if not self.stage.rejects:
            raise TypeError(f"stage {self.stage.name} rejects no documents (Stage.rejects)")
        return LateRejects(self.boxes, self.stage.name, self.name)

    def publish(self, made: Made, name: str | None = None, whole: bool = True) -> Receipt[Counts]:
        """Write the table and the rejects, and the receipt when all is there.

        Args:
            name: of a further partition of the same task; None: its own.
            whole: False for a receipt that nobody but a restart of the task may see before `Box.promote`.
        """
        box, name = self.box, name or self.name
        files = list(made.files)
        if made.table is not None:
            files.insert(0, box.path(name, ".parquet"))
            write_table(files[0], made.table, **made.options)
        late = self.rejects.write() if "rejects" in vars(self) else None
        if late is not None:
            files.append(late)
        count = self.rejects.count if late is not None else 0
        receipt = Receipt(name, box.written(files), made.counts, self._watch.cost(), tuple(self._warnings), count)
        self._watch = Stopwatch()  # of the task's next partition
        return box.commit(receipt) if whole else box.commit_open(receipt)


def run_task(stage: Stage | Shipped, boxes: Boxes, name: str, task: Any = None) -> Receipt[Counts]:
    """What a worker executes: one partition, made and published."""
    own = stage.stage() if isinstance(stage, Shipped) else stage
    return own.run(Part(own, boxes, name, task))


def make_box(stage: Stage, boxes: Boxes) -> None:
    """Every partition of a box, in this process, one after the other: for tools that need no run."""
    boxes.box(stage.name).folder.mkdir(parents=True, exist_ok=True)
    stage.prepare(boxes)
    tasks = stage.plan(boxes) if stage.follows is None else dict.fromkeys(boxes.box(stage.follows).parts())
    for name, task in tasks.items():
        run_task(stage, boxes, name, task)
    stage.finish(boxes)


class Stopwatch:
    """Wall and CPU seconds since it was made, for a receipt; of child processes too, those that have ended and been waited for.

    What compiling took of the wall time is named, where it took some.
    """

    def __init__(self) -> None:
        self._wall, self._cpu, self._compiled = time.perf_counter(), _cpu_seconds(), _compile_seconds()

    def cost(self) -> Cost:
        return Cost(
            round(time.perf_counter() - self._wall, 6),
            round(max(_cpu_seconds() - self._cpu, 0.0), 6),
            round(_compile_seconds() - self._compiled, 6),
        )


def _compile_seconds() -> float:
    jit = sys.modules.get("gpu_curate.jit")
    return float(jit.compile_seconds()) if jit is not None else 0.0


def _cpu_seconds() -> float:
    ended = os.times()  # a child takes its own past, and that of its children, to whoever waits for it
    total = time.process_time() + ended.children_user + ended.children_system
    ticks = 0
    waiting = _children("self")
    while waiting:
        child = waiting.pop()
        with contextlib.suppress(OSError, ValueError, IndexError):  # it has ended meanwhile
            fields = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()
            ticks += sum(map(int, fields[11:15]))  # utime, stime, cutime, cstime of proc(5)
            waiting += _children(child)
    return total + ticks / os.sysconf("SC_CLK_TCK")


def _children(process: str) -> list[str]:
    """Ids of the children of a process that live. Where the kernel does not list them, none: they count once they have ended."""
    found = []
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{process}/task"):
            with contextlib.suppress(OSError):
                found += Path(f"/proc/{process}/task/{thread}/children").read_text().split()
    return found
