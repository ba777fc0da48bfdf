"""What people read in the terminal: progress, tables, summaries. Plain lines where there is no terminal."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from gpu_curate.quality import RULES
from gpu_curate.runs.progress import RUN_LOG, Lines, Step, clock, human_bytes
from gpu_curate.visible import one, say, visible

if TYPE_CHECKING:
    from gpu_curate.runs.pipeline import Outcome

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


def _table(*columns: str, spare: tuple[str, ...] = ()) -> Table:
    """A table whose first column is left-aligned and the others right.

    Args:
        spare: columns that a narrow terminal goes without, the first first.
    """
    table = _Rows(box=None, pad_edge=False, header_style="bold")
    table.spare = spare  # type: ignore[attr-defined]
    for i, column in enumerate(columns):
        left = i == 0
        table.add_column(column, justify="left" if left else "right", no_wrap=not left, overflow="fold")
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


def _show(*tables: Table) -> None:
    width = None if sys.stdout.isatty() or os.environ.get("COLUMNS", "").isdigit() else 120
    console = Console(width=width, highlight=False, emoji=False)
    for table in tables:
        console.print(_fit(table, console))
        console.print()


table, show = _table, _show  # for gpu_curate/commands


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


def print_summary(run: Path, outcome: Outcome, quiet: bool = False, seconds: float | None = None) -> None:
    """What was read, dropped by reason and kept; tokens per split; seconds and MB/s per step; where things are.

    Args:
        quiet: the last lines only; warnings by their number.
        seconds: what the run's clock says.
    """
    from gpu_curate.report.intake import reject_line, sample_line
    from gpu_curate.store.files import read_json

    facts = read_json(run / outcome.report / "report.json")
    if not quiet:
        say()
        _show(_funnel(facts), _splits(facts), _steps(facts))
    for text in facts["warnings"]:
        if not quiet and text not in outcome.warnings and not any(f.startswith(text) for f in facts["failures"]):
            say(f"warning: {one(text)}", file=sys.stderr)
    for text in facts["notes"] if not quiet else []:
        say(f"note: {one(text)}")
    for name, sampled in facts["sampled"].items():
        say(f"sampled   {name}: {sample_line(sampled)}")
    if facts["rejected_by_reason"]:
        folder = run / facts["folders"]["rejects"]
        say(f"rejected  {facts['documents']['rejected']:,} records: {reject_line(facts)}; each is in {folder}")
    if quiet:
        tokens = sum(split["tokens"] for split in facts["splits"].values())
        say(f"kept      {facts['documents']['kept']:,} of {facts['documents']['read']:,} documents, {tokens:,} tokens")
        if facts["warnings"]:
            say(f"warnings  {len(facts['warnings']):,}, in {run / 'report' / 'report.json'}")
    say(f"backend   {facts['backend']['choice']} ({facts['backend']['reason']})")
    tokenizer = facts["tokenizer"]
    if tokenizer:
        say(f"tokenizer {tokenizer['vocab_size']:,} entries, {tokenizer['library']} ({tokenizer['library_reason']})")
    say(f"report    {run / 'report' / 'index.html'}")
    place = outcome.context.folders["shards"]
    say(f"shards    {run / 'shards'}" + (f" (now {place})" if place != "shards" else ""))
    compiled = sum(step.get("compile_seconds", 0.0) for step in facts["steps"])
    if compiled >= 0.1:
        say(f"compiling {compiled:.1f} s of the workers' time, when the kernels were first used; not in MB/s")
    say(f"done in {facts['seconds'] if seconds is None else seconds:,.1f} s")
    for text in facts["failures"]:
        say(f"error: {one(text)}", file=sys.stderr)


def _funnel(facts: dict[str, Any]) -> Table:
    table = _table("documents", "documents", "tokens", "text")
    documents, tokens, nbytes = facts["documents"], facts["tokens"], facts["bytes"]

    def row(name: str, key: str | None, kind: str) -> None:
        def of(unit: dict[str, Any]) -> Any:
            return unit[kind] if key is None else unit["dropped"].get(key, 0)

        table.add_row(name, f"{of(documents):,}", f"{of(tokens):,}", human_bytes(of(nbytes)))

    skipped = facts["skipped"]
    if skipped:  # on purpose, before they were documents: redirects, other namespaces, requests
        table.add_row("records", f"{documents['read'] + sum(skipped.values()):,}", "", "")
        for reason, count in skipped.items():
            table.add_row(f"  skipped: {reason}", f"{count:,}", "", "")
    row("read", None, "read")
    if documents["rejected"]:
        passed = sum(facts["passed_bytes"].values())
        table.add_row("  rejected", f"{documents['rejected']:,}", "", human_bytes(passed) if passed else "")
    for reason in documents["dropped"]:
        row(f"  dropped: {reason}", reason, "dropped")
    row("kept", None, "kept")
    table.columns[0].header = ""
    return table


def _splits(facts: dict[str, Any]) -> Table:
    table = _table("split", "documents", "tokens")
    for name, split in facts["splits"].items():
        table.add_row(name, f"{split['documents']:,}", f"{split['tokens']:,}")
    return table


def _steps(facts: dict[str, Any]) -> Table:
    columns = ("step", "wall s", "worker s", "CPU s", "text", "MB/s per worker", "partitions", "reused", "backend")
    table = _table(*columns, spare=("backend", "text", "reused"))
    for step in facts["steps"]:
        worked = step["seconds"] - step.get("compile_seconds", 0.0)
        speed = f"{step['bytes'] / worked / 1e6:,.1f}" if worked > 0 and step["bytes"] else ""
        table.add_row(
            step["name"],
            f"{step['wall_seconds']:,.2f}",
            f"{step['seconds']:,.2f}",
            f"{step['cpu_seconds']:,.2f}",
            human_bytes(step["bytes"]) if step["bytes"] else "",
            speed,
            f"{step['partitions']:,}",
            f"{step['reused']:,}",
            step["backend"],
        )
    return table


def print_init(recipe: Path, sources: list[Any] | None, left: list[Any]) -> None:
    """What `init` found, and what to do next."""
    if sources is not None:
        table = _table("source", "type", "files", "bytes", "text in")
        for s in sources:
            table.add_row(s.name, s.kind, f"{len(s.files):,}", human_bytes(s.size), s.files[0].text_column or "")
        _show(table)
    for file in left[:5]:
        say(f"not read: {one(file.path)}: {one(file.why_not)}", file=sys.stderr)
    if len(left) > 5:
        say(f"not read: {len(left) - 5:,} more files, see {recipe}", file=sys.stderr)
    say(f"written  {recipe}")
    say(f"next     gpu-curate plan {recipe}")
    say(f"         gpu-curate run {recipe}")


def print_plan(facts: dict[str, Any]) -> None:
    sources = _table("source", "files", "bytes", "tasks", "text (estimate)", "by reference")
    for source in facts["sources"]:
        sources.add_row(
            source["name"],
            f"{source['files']:,}",
            human_bytes(source["bytes"]),
            f"{source['tasks']:,}",
            human_bytes(source["text_bytes"]),
            human_bytes(source["by_reference_bytes"]) if source["by_reference_bytes"] else "no",
        )
    boxes = _table("box", "folder", "partitions there", "state")
    for box in facts["boxes"]:
        boxes.add_row(box["name"], box["folder"], f"{box['partitions']:,}", box["state"])
    _show(sources, boxes)
    for source in facts["sources"]:
        if source["columns"]:
            names = source["columns"][:20] + (["..."] if len(source["columns"]) > 20 else [])
            say(f"columns      {source['name']}: {one(', '.join(names))}")
    for code in facts["code"]:
        package = f" of {code['package']}" if code["package"] else ""
        say(f"code         {one(code['name'])}: {one(code['origin'])}{one(package)}, sha256 {code['sha256'][:12]}")
    own = [rule for rule in facts["rules"] if rule not in RULES]
    if own:
        say(f"own rules    {one(', '.join(own))}")
    say(f"backend      {facts['backend']['choice']} ({facts['backend']['reason']})")
    say(f"workers      {facts['workers']}")
    say(f"peak memory  {human_bytes(facts['peak_memory_bytes'])} in all ({facts['memory_reason']})")
    if facts["peak_device_bytes"]:
        say(f"peak device  {human_bytes(facts['peak_device_bytes'])} a GPU")
    say(
        f"disk         {human_bytes(facts['disk_bytes'])} in {facts['run']}, {human_bytes(facts['disk_free_bytes'])} free"
    )
    split = facts["split"]
    if split is not None and split["pinned"]:
        say(f"validation   keeps the bound {split['bound']} of {split['earlier']} ({split['reason']})")
    elif split is not None:
        say(f"validation   does not keep the bound of {split['earlier']}: {split['reason']}")
    for text in facts["warnings"]:
        say(f"warning: {one(text)}", file=sys.stderr)
    say("nothing was written")


def print_status(facts: dict[str, Any]) -> None:
    running = facts["state"] == "running"
    more = ("MB/s", "left") if running else ()
    table = _table(
        "box", "folder", "partitions", "documents", "text", "CPU s", "disk", *more, spare=("folder", "CPU s", "disk")
    )
    for name, box in facts["boxes"].items():
        of = "" if box["total"] is None or box["total"] == box["partitions"] else f" of {box['total']:,}"
        speed = "" if box["bytes_per_s"] is None else f"{box['bytes_per_s'] / 1e6:,.1f}"
        left = "" if box["left_s"] is None else clock(box["left_s"])
        table.add_row(
            name,
            box["folder"],
            f"{box['partitions']:,}{of}",
            f"{box['documents']:,}" if box["documents"] else "",
            human_bytes(box["bytes"]) if box["bytes"] else "",
            f"{box['cpu_seconds']:,.1f}",
            human_bytes(box["disk_bytes"]),
            *((speed, left) if running else ()),
        )
    if facts["boxes"]:
        _show(table, *([_sets(facts["sets"])] if facts["sets"] else []))
    state = facts["state"]
    if state == "running":
        host = f" on {facts['host']}" if facts["host"] else ""
        state = f"running (process {facts['pid']}{host})"
    elif state != "complete":
        state += f": {one(facts['why'])}" if facts["why"] else ", its recipe goes on where it was"
    after = f", {clock(facts['seconds'])} since its start" if running and facts["seconds"] is not None else ""
    backend = f", backend {facts['backend']['choice']}" if facts["backend"] else ""
    say(f"{facts['run']}: {state}{after}{backend}")
    say(f"shards    {facts['shards'] or 'none yet'}")
    if facts["boxes"]:
        say(
            f"disk      {human_bytes(facts['disk_bytes'])}; "
            f"gpu-curate clean {facts['run']} lists what the latest does not need"
        )


def print_clean(facts: dict[str, Any]) -> None:
    table = _table("folder", "disk", "reason")
    for item in facts["items"]:
        table.add_row(item["folder"], human_bytes(item["disk_bytes"]), item["reason"])
    if facts["items"]:
        _show(table)
    for folder, why in facts["kept"].items():
        say(f"kept  {one(folder)}: {why}")
    size = human_bytes(facts["disk_bytes"])
    if not facts["items"]:
        say(f"{facts['run']}: nothing to remove")
    elif facts["removed"]:
        say(f"{facts['run']}: {size} removed")
    else:
        say(f"{facts['run']}: {size} can go; --yes removes it")


def _sets(sets: list[dict[str, Any]]) -> Table:
    """Sets of shards, the latest first."""
    table = _table("shards", "documents", "tokens", "disk", "report", "against the latest")
    for entry in sets:
        changed = [f"{key}: {new}" for key, (_, new) in entry["differs"].items()]
        more = f" and {len(changed) - 3} more" if len(changed) > 3 else ""
        what = "latest" if entry["latest"] else (", ".join(changed[:3]) + more or "the same recipe")
        table.add_row(
            entry["folder"],
            f"{entry['documents']:,}",
            f"{entry['tokens']:,}",
            human_bytes(entry["disk_bytes"]),
            entry["report"] or "",
            what,
        )
    return table


def print_shards(facts: dict[str, Any]) -> None:
    table = _table("split", "documents", "tokens", "shards", "bytes")
    for name, split in facts["splits"].items():
        documents = "?" if split["documents"] is None else f"{split['documents']:,}"
        table.add_row(name, documents, f"{split['tokens']:,}", f"{split['shards']:,}", human_bytes(split["bytes"]))
    _show(table, *([_sets(facts["sets"])] if facts.get("sets") else []))
    say(f"format      {facts['format']}, {facts['dtype']}")
    if facts["tokenizer"] is not None:
        say(f"vocabulary  {facts['vocab_size']}, EOT {facts['eot_id']}")
        say(f"tokenizer   sha256 {one(facts['tokenizer']['sha256'][:16])}, {one(facts['tokenizer']['path'])}")
    else:
        say("no manifest.json: documents, vocabulary and tokenizer are unknown")


def print_head(documents: list[dict[str, Any]], chars: int) -> None:
    for document in documents:
        where = f"{one(document['source'])}: {one(document['path'])}, row {document['row']}"
        say(f"doc_id {document['doc_id']}  tokens {document['tokens']}  position {document['position']}  {where}")
        ids = " ".join(map(str, document["ids"][:12]))
        say(f"  ids  {ids}{' ...' if len(document['ids']) > 12 else ''}")
        if document.get("text") is not None:
            text = document["text"]
            say("  " + (text[:chars] + (" ..." if len(text) > chars else "")).replace("\n", "\n  "))
        say()


def print_samples(found: list[dict[str, Any]], chars: int) -> None:
    """Documents with what tripped a rule pointed out: in reverse on a terminal, between brackets elsewhere."""
    on, off = ("\x1b[7m", "\x1b[0m") if sys.stdout.isatty() else ("\u27e6", "\u27e7")

    def show(document: dict[str, Any]) -> None:
        text, marks = document["text"], document["marks"]
        start = max(0, marks[0][0] - chars // 4) if marks and marks[0][1] > chars else 0
        stop = start + chars
        pieces, at = ["... " if start else ""], start  # each made visible by itself: the marks are ours
        for low, high in marks:
            if low < stop and high > at:
                low, high = max(low, at), min(high, stop)
                pieces += [visible(text[at:low]), on, visible(text[low:high]), off]
                at = high
        pieces += [visible(text[at:stop]), " ..." if len(text) > stop else ""]
        print("  " + "".join(pieces).replace("\n", "\n  "))

    def where(document: dict[str, Any]) -> str:
        return f"doc_id {document['doc_id']}  {one(document['source'])}: {one(document['path'])}, row {document['row']}"

    for document in found:
        say(f"{where(document)}  {document['chars']:,} characters, {document['tokens']:,} tokens")
        score = f"{document['score']} " if document["score"] is not None else ""
        say(f"  {document['reason']}: {score}({document['why']})")
        show(document)
        if "partner" in document:
            partner = document["partner"]
            similar = f", Jaccard {partner['jaccard']:.3f}" if partner.get("jaccard") is not None else ""
            say(f"  {partner.get('what', 'item of the benchmark')}{similar}: {where(partner)}")
            show(partner)
        say()


def print_doctor(facts: dict[str, Any]) -> None:
    """Plain lines, so that a broken terminal library is reported as well. The remedy is below what it is for."""
    group = None
    for check in facts["checks"]:
        if check["group"] != group:
            group = check["group"]
            say(f"\n{group}")
        status = "not used" if check["status"] == "unused" else check["status"]
        say(f"  {status:<8} {check['name']:<20} {one(check['detail'])}")
        if check["remedy"] and check["status"] not in ("ok", "unused"):
            say(f"  {'':<8} {'':<20} -> {one(check['remedy'])}")
    failed = [c["name"] for c in facts["checks"] if c["status"] == "failed"]
    say(f"\ngpu_curate {facts['version']}: " + (f"FAILED: {', '.join(failed)}" if failed else "usable"))
    lacking = [c["name"] for c in facts["checks"] if c["for_gpu"] and c["status"] != "ok"]
    if not facts.get("gpu_present", True) and not any(
        c["for_gpu"] and c["status"] == "failed" for c in facts["checks"]
    ):
        say("GPU path: not used here: this machine has no NVIDIA GPU")
    else:
        say(f"GPU path: {'usable' if facts['gpu_usable'] else 'not usable: ' + ', '.join(lacking)}")


def print_compare(facts: dict[str, Any], folder: Path) -> None:
    known = ("1 core", "all cores", "NumPy", "GPU", "NeMo Curator")
    ways = [w for w in known if any(w in row["ways"] for row in facts["steps"])]
    others = [w for w in ways if w != "1 core"]
    speeds = _table("MB/s", *ways, *(f"{w} / 1 core" for w in others), *(["break-even"] if "GPU" in ways else []))
    documents = _table("documents/s", *ways)
    for row in facts["steps"]:
        rates = row["ways"]
        speed = [f"{rates[w]['mb_per_s']:,.1f}" if w in rates else "" for w in ways]
        times = [f"{rates[w]['times_one_core']:,.2f} x" if "1 core" in rates and w in rates else "" for w in others]
        price = [f"{row['break_even_price']:,.1f}" if row["break_even_price"] else ""] if "GPU" in ways else []
        speeds.add_row(row["step"], *speed, *times, *price)
        documents.add_row(row["step"], *(f"{rates[w]['documents_per_s']:,.0f}" if w in rates else "" for w in ways))
    _show(speeds, documents)
    sample, machine = facts["sample"], facts["machine"]
    say(f"sample      {sample['documents']:,} documents, {human_bytes(sample['bytes'])}, {sample['files']:,} files")
    say(f"machine     {machine['cpu']}, {machine['cores']} cores; GPU: {machine['gpu'] or 'none'}")
    if machine["gpu"]:
        say("break-even  a GPU-hour is cheaper up to the price of so many core-hours")
    for text in facts["missing"]:
        say(f"missing     {text}")
    for d in facts["differences"]:
        at = f", {d['document']}" if d["document"] else ""
        say(f"DIFFERENT   {d['step']}, {d['backend']}{at}: {d['array']} is {d['value']}, on one core {d['expected']}")
    say(f"arrays      {'all equal' if facts['equal'] else str(len(facts['differences'])) + ' DIFFER'}")
    say(f"written     {folder}/compare.json, compare.csv, compare.png")
