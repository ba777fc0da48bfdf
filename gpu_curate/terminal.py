"""A terminal: bars and lines of progress, tables that fit, the log of what was printed."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, Literal

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from gpu_curate.runs.progress import RUN_LOG, Lines, Step, clock, human_bytes
from gpu_curate.visible import one, visible

_NAME_CHARS = 20  # of the longest name of a box


class Bars:
    """Progress as bars of a terminal, a line a box: how many partitions of how many, text, speed, time left; and one clock.

    Every line fits 80 columns: a narrow terminal has no bars, a narrower one no speed.
    """

    def __init__(self, console: Console, begun: float):
        from rich.progress import Progress, ProgressColumn
        from rich.progress_bar import ProgressBar
        from rich.table import Column

        self._begun = begun
        self._steps: dict[str, Step] = {}
        seconds = self.seconds

        class Of(ProgressColumn):
            """A text made of a box's Step."""

            def __init__(self, tell: Callable[[str, Step], str], width: int, left: bool = False):
                self._tell = tell
                justify: Literal["left", "right"] = "left" if left else "right"
                super().__init__(Column(no_wrap=True, min_width=width, overflow="fold", justify=justify))

            def render(self, task: Any) -> Text:
                return Text(self._tell(task.description, task.fields["step"]))

        class Bar(ProgressColumn):
            """Empty while nobody knows how much there is."""

            def render(self, task: Any) -> ProgressBar:
                step = task.fields["step"]
                known = step.total is not None
                width = 30 if console.width >= 110 else 10
                return ProgressBar(max(step.total or 0, 1), _part(step) if known else 0, width=width)

        class Clocked(Progress):
            """With the run's one clock below the boxes."""

            def get_renderables(self) -> Any:
                if self.tasks:
                    yield self.make_tasks_table(self.tasks)
                yield Text(f"{'run' if self.tasks else 'starting':<{_NAME_CHARS}} {clock(seconds())}")

        columns: list[ProgressColumn] = [Of(lambda name, step: name, _NAME_CHARS, left=True)]
        columns += [Bar()] if console.width >= 80 else []
        columns += [Of(lambda name, step: f"{step.done:,}/{'?' if step.total is None else f'{step.total:,}'}", 9)]
        columns += (
            [Of(lambda name, step: human_bytes(step.nbytes) if step.nbytes else "", 8)] if console.width >= 60 else []
        )
        columns += (
            [Of(lambda name, step: f"{human_bytes(step.rate)}/s" if step.rate else "", 10)]
            if console.width >= 66
            else []
        )
        columns += [Of(lambda name, step: _time_of(step), 12)]
        self._bars = Clocked(*columns, console=console, refresh_per_second=4)
        self._tasks: dict[str, Any] = {}

    def __enter__(self) -> Bars:
        self._bars.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._bars.stop()

    def stop(self) -> None:
        """Leave the terminal as it was."""
        self._bars.stop()

    def seconds(self) -> float:
        return time.monotonic() - self._begun

    def note(self, text: str) -> None:
        self._bars.console.print(visible(text), highlight=False, markup=False)

    def warn(self, text: str) -> None:
        self._bars.console.print(f"warning: {one(text)}", style="yellow", highlight=False, markup=False)

    def box(self, name: str, done: int, total: int | None, nbytes: int, reused: int) -> None:
        now = time.monotonic()
        step = self._steps.setdefault(name, Step(now))
        step.update(done, total, nbytes, reused, now)
        if name not in self._tasks:
            self._tasks[name] = self._bars.add_task(name, total=None, step=step)


def _part(step: Step) -> int:
    """What of a bar is full; a box of no partitions is whole when it is done."""
    return 1 if step.ended and not step.total else step.done


def _time_of(step: Step) -> str:
    if step.ended:
        return f"{step.seconds:,.1f} s" if step.done > step.reused else "reused"
    left = step.left(time.monotonic())
    return "" if left is None else f"{clock(left)} left"


@contextlib.contextmanager
def make_progress(quiet: bool, begun: float | None = None, to_stderr: bool = False) -> Iterator[Lines | Bars]:
    """Bars on a terminal, lines elsewhere.

    Args:
        begun: when the run's clock started, by time.monotonic().
        to_stderr: standard output is for something else.
    """
    begun = time.monotonic() if begun is None else begun
    console = Console(stderr=to_stderr)
    if console.is_terminal and not console.is_dumb_terminal and not quiet:
        with Bars(console, begun) as bars:
            yield bars
    else:
        yield Lines(quiet, sys.stderr if to_stderr else None, None, begun)


class Tee:
    """A text file that writes to two; the second gets no colours."""

    def __init__(self, first: IO[str], second: IO[str]):
        self._first, self._second = first, second

    def write(self, text: str) -> int:
        self._second.write(_ANSI.sub("", text))
        return self._first.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._first, name)


_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class _Rows(Table):
    """A table of plain text: no markup in a name, and nothing that a terminal would obey. Cells are strings, since those
    keep to their column's rules of wrapping."""

    def add_row(self, *cells: Any, **options: Any) -> None:
        super().add_row(*(escape(one(cell)) for cell in cells), **options)


def new_table(*columns: str, spare: tuple[str, ...] = ()) -> Table:
    """A table whose first column is left-aligned and the others right.

    Args:
        spare: columns that a narrow terminal goes without, the first first.
    """
    table = _Rows(box=None, pad_edge=False, header_style="bold")
    table.spare = spare  # type: ignore[attr-defined]  # read by `_fit`
    for i, column in enumerate(columns):
        left = i == 0
        table.add_column(escape(one(column)), justify="left" if left else "right", no_wrap=not left, overflow="fold")
    return table


def _fit(table: Table, console: Console) -> Table:
    """The table so that no number is cut: headers on several lines, then fewer columns; names fold last."""
    spare = list(getattr(table, "spare", ()))
    while console.measure(table, options=console.options.update(width=1000)).maximum > console.width:
        wide = [c for c in table.columns if " " in str(c.header) and c is not table.columns[0]]
        if wide:
            for column in wide:
                column.header = str(column.header).replace(" ", "\n")
        elif spare:
            name = spare.pop(0)
            table.columns = [c for c in table.columns if str(c.header).replace("\n", " ") != name]
            for i, column in enumerate(table.columns):
                column._index = i  # by it rich tells the last column, which has no blank on its right
        else:
            break
    return table


def show(*tables: Table) -> None:
    width = None if sys.stdout.isatty() or os.environ.get("COLUMNS", "").isdigit() else 120
    console = Console(width=width, highlight=False, emoji=False)
    for table in tables:
        console.print(_fit(table, console))
        console.print()


@contextlib.contextmanager
def also_in_log(run: Path) -> Iterator[None]:
    """What is printed inside goes to the run's log, too."""
    with contextlib.ExitStack() as stack:
        from gpu_curate.store.files import open_log

        with contextlib.suppress(OSError):
            log = stack.enter_context(open_log(run / RUN_LOG))
            stack.enter_context(contextlib.redirect_stdout(Tee(sys.stdout, log)))
            stack.enter_context(contextlib.redirect_stderr(Tee(sys.stderr, log)))
        yield
