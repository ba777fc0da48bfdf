"""What people read in the terminal: progress, tables, summaries. Plain lines where there is no terminal."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from gpu_curate.pipeline import Outcome

_LINE_SECONDS = 10.0  # between progress lines where there is no terminal


def human_bytes(n: float) -> str:
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if n < 1000 or unit == "TB":
            return f"{n:.0f} {unit}" if unit == "B" else f"{n:.1f} {unit}"
        n /= 1000
    raise AssertionError


class Lines:
    """Progress as plain lines: a box when it ends, and the boxes under way every ten seconds."""

    def __init__(self, quiet: bool):
        self._quiet = quiet
        self._last = time.monotonic()
        self._begun = time.monotonic()
        self._ended: set[str] = set()

    def note(self, text: str) -> None:
        if not self._quiet:
            print(text, flush=True)

    def warn(self, text: str) -> None:
        print(f"warning: {text}", file=sys.stderr, flush=True)

    def box(self, name: str, done: int, total: int | None, nbytes: int, reused: int) -> None:
        ended = total is not None and done == total
        if ended and name not in self._ended:
            self._ended.add(name)
            self._line(name, done, total, nbytes, reused)
        elif not ended:
            self._ended.discard(name)
            if time.monotonic() - self._last > _LINE_SECONDS:
                self._last = time.monotonic()
                self._line(name, done, total, nbytes, reused)

    def _line(self, name: str, done: int, total: int | None, nbytes: int, reused: int) -> None:
        told = [f"{done} tasks" if total is None else f"{done} of {total} tasks"]
        told += ([human_bytes(nbytes)] if nbytes else []) + ([f"{reused} partitions reused"] if reused else [])
        self.note(f"[{time.monotonic() - self._begun:7.1f} s] {name}: {', '.join(told)}")


class Bars:
    """Progress as bars of a terminal."""

    def __init__(self, console: Console):
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        self._bars = Progress(
            TextColumn("{task.description:<22}"),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TextColumn("{task.fields[size]:>9}"),
            TimeElapsedColumn(),
            console=console,
        )
        self._tasks: dict[str, Any] = {}

    def __enter__(self) -> Bars:
        self._bars.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._bars.stop()

    def note(self, text: str) -> None:
        self._bars.console.print(text, highlight=False, markup=False)

    def warn(self, text: str) -> None:
        self._bars.console.print(f"warning: {text}", style="yellow", highlight=False, markup=False)

    def box(self, name: str, done: int, total: int | None, nbytes: int, reused: int) -> None:
        if name not in self._tasks:
            self._tasks[name] = self._bars.add_task(name, total=None, size="")
        self._bars.update(self._tasks[name], completed=done, total=total, size=human_bytes(nbytes))


@contextlib.contextmanager
def make_progress(quiet: bool) -> Iterator[Lines | Bars]:
    console = Console()
    if console.is_terminal and not quiet:
        with Bars(console) as bars:
            yield bars
    else:
        yield Lines(quiet)


def _table(*columns: str) -> Table:
    """A table whose first column is left-aligned and the others right."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for i, column in enumerate(columns):
        table.add_column(column, justify="left" if i == 0 else "right", no_wrap=i == 0)
    return table


def _show(*tables: Table) -> None:
    console = Console(width=None if sys.stdout.isatty() else 120, highlight=False)
    for table in tables:
        console.print(table)
        console.print()


def print_summary(run: Path, outcome: Outcome) -> None:
    """What was read, dropped by reason and kept; tokens per split; seconds and MB/s per step; where things are."""
    from gpu_curate.report.intake import reject_line, sample_line
    from gpu_curate.storage import read_json

    facts = read_json(run / outcome.report / "report.json")
    print()
    _show(_funnel(facts), _splits(facts), _steps(facts))
    for text in facts["warnings"]:
        if text not in outcome.warnings and not any(f.startswith(text) for f in facts["failures"]):
            print(f"warning: {text}", file=sys.stderr)
    for text in facts["notes"]:
        print(f"note: {text}")
    for name, sampled in facts["sampled"].items():
        print(f"sampled   {name}: {sample_line(sampled)}")
    if facts["rejected_by_reason"]:
        folder = run / facts["folders"]["rejects"]
        print(f"rejected  {facts['documents']['rejected']:,} records: {reject_line(facts)}; each is in {folder}")
    print(f"backend   {facts['backend']['choice']} ({facts['backend']['reason']})")
    tokenizer = facts["tokenizer"]
    if tokenizer:
        print(f"tokenizer {tokenizer['vocab_size']} entries, {tokenizer['library']} ({tokenizer['library_reason']})")
    print(f"report    {run / 'report' / 'index.html'}")
    place = outcome.context.folders["shards"]
    print(f"shards    {run / 'shards'}" + (f" (now {place})" if place != "shards" else ""))
    print(f"done in {facts['seconds']:.1f} s")
    for text in facts["failures"]:
        print(f"error: {text}", file=sys.stderr)


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
    table = _table("step", "wall s", "worker s", "CPU s", "text", "MB/s per worker", "partitions", "reused", "backend")
    for step in facts["steps"]:
        speed = f"{step['bytes'] / step['seconds'] / 1e6:,.1f}" if step["seconds"] and step["bytes"] else ""
        table.add_row(
            step["name"],
            f"{step['wall_seconds']:.2f}",
            f"{step['seconds']:.2f}",
            f"{step['cpu_seconds']:.2f}",
            human_bytes(step["bytes"]) if step["bytes"] else "",
            speed,
            str(step["partitions"]),
            str(step["reused"]),
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
        print(f"not read: {file.path}: {file.why_not}", file=sys.stderr)
    if len(left) > 5:
        print(f"not read: {len(left) - 5:,} more files, see {recipe}", file=sys.stderr)
    print(f"written  {recipe}")
    print(f"next     gpu-curate plan {recipe}")
    print(f"         gpu-curate run {recipe}")


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
            print(f"columns      {source['name']}: {', '.join(names)}")
    print(f"backend      {facts['backend']['choice']} ({facts['backend']['reason']})")
    print(f"workers      {facts['workers']}")
    print(f"peak memory  {human_bytes(facts['peak_memory_bytes'])} in all ({facts['memory_reason']})")
    if facts["peak_device_bytes"]:
        print(f"peak device  {human_bytes(facts['peak_device_bytes'])} a GPU")
    print(
        f"disk         {human_bytes(facts['disk_bytes'])} in {facts['run']}, {human_bytes(facts['disk_free_bytes'])} free"
    )
    split = facts["split"]
    if split is not None and split["pinned"]:
        print(f"validation   keeps the bound {split['bound']} of {split['earlier']} ({split['reason']})")
    elif split is not None:
        print(f"validation   does not keep the bound of {split['earlier']}: {split['reason']}")
    for text in facts["warnings"]:
        print(f"warning: {text}", file=sys.stderr)
    print("nothing was written")


def print_status(facts: dict[str, Any]) -> None:
    table = _table("box", "folder", "partitions", "documents", "text", "CPU s", "disk")
    for name, box in facts["boxes"].items():
        table.add_row(
            name,
            box["folder"],
            f"{box['partitions']:,}",
            f"{box['documents']:,}" if box["documents"] else "",
            human_bytes(box["bytes"]) if box["bytes"] else "",
            f"{box['cpu_seconds']:.1f}",
            human_bytes(box["disk_bytes"]),
        )
    _show(table, *([_sets(facts["sets"])] if facts["sets"] else []))
    print(
        f"{facts['run']}: {'complete' if facts['complete'] else 'not complete'}, backend {facts['backend']['choice']}"
    )
    print(f"shards    {facts['shards'] or 'none yet'}")
    print(
        f"disk      {human_bytes(facts['disk_bytes'])}; gpu-curate clean {facts['run']} lists what the latest does not need"
    )


def print_clean(facts: dict[str, Any]) -> None:
    table = _table("folder", "disk", "reason")
    for item in facts["items"]:
        table.add_row(item["folder"], human_bytes(item["disk_bytes"]), item["reason"])
    if facts["items"]:
        _show(table)
    for folder, why in facts["kept"].items():
        print(f"kept  {folder}: {why}")
    size = human_bytes(facts["disk_bytes"])
    if not facts["items"]:
        print(f"{facts['run']}: nothing to remove")
    elif facts["removed"]:
        print(f"{facts['run']}: {size} removed")
    else:
        print(f"{facts['run']}: {size} can go; --yes removes it")


def _sets(sets: list[dict[str, Any]]) -> Table:
    """Sets of shards, the latest first."""
    table = _table("shards", "documents", "tokens", "disk", "report", "against the latest")
    for one in sets:
        changed = [f"{key}: {new}" for key, (_, new) in one["differs"].items()]
        more = f" and {len(changed) - 3} more" if len(changed) > 3 else ""
        what = "latest" if one["latest"] else (", ".join(changed[:3]) + more or "the same recipe")
        table.add_row(
            one["folder"],
            f"{one['documents']:,}",
            f"{one['tokens']:,}",
            human_bytes(one["disk_bytes"]),
            one["report"] or "",
            what,
        )
    return table


def print_shards(facts: dict[str, Any]) -> None:
    table = _table("split", "documents", "tokens", "shards", "bytes")
    for name, split in facts["splits"].items():
        documents = "?" if split["documents"] is None else f"{split['documents']:,}"
        table.add_row(name, documents, f"{split['tokens']:,}", f"{split['shards']:,}", human_bytes(split["bytes"]))
    _show(table, *([_sets(facts["sets"])] if facts.get("sets") else []))
    print(f"format      {facts['format']}, {facts['dtype']}")
    if facts["tokenizer"] is not None:
        print(f"vocabulary  {facts['vocab_size']}, EOT {facts['eot_id']}")
        print(f"tokenizer   sha256 {facts['tokenizer']['sha256'][:16]}, {facts['tokenizer']['path']}")
    else:
        print("no manifest.json: documents, vocabulary and tokenizer are unknown")


def print_head(documents: list[dict[str, Any]], chars: int) -> None:
    for document in documents:
        where = f"{document['source']}: {document['path']}, row {document['row']}"
        print(f"doc_id {document['doc_id']}  tokens {document['tokens']}  position {document['position']}  {where}")
        ids = " ".join(map(str, document["ids"][:12]))
        print(f"  ids  {ids}{' ...' if len(document['ids']) > 12 else ''}")
        if document.get("text") is not None:
            text = document["text"]
            print("  " + (text[:chars] + (" ..." if len(text) > chars else "")).replace("\n", "\n  "))
        print()


def print_samples(found: list[dict[str, Any]], chars: int) -> None:
    """Documents with what tripped a rule pointed out: in reverse on a terminal, between brackets elsewhere."""
    on, off = ("\x1b[7m", "\x1b[0m") if sys.stdout.isatty() else ("\u27e6", "\u27e7")

    def show(document: dict[str, Any]) -> None:
        text, marks = document["text"], document["marks"]
        start = max(0, marks[0][0] - chars // 4) if marks and marks[0][1] > chars else 0
        stop = start + chars
        pieces, at = ["... " if start else ""], start
        for low, high in marks:
            if low < stop and high > at:
                low, high = max(low, at), min(high, stop)
                pieces += [text[at:low], on, text[low:high], off]
                at = high
        pieces += [text[at:stop], " ..." if len(text) > stop else ""]
        print("  " + "".join(pieces).replace("\n", "\n  "))

    def where(document: dict[str, Any]) -> str:
        return f"doc_id {document['doc_id']}  {document['source']}: {document['path']}, row {document['row']}"

    for document in found:
        print(f"{where(document)}  {document['chars']:,} characters, {document['tokens']:,} tokens")
        score = f"{document['score']} " if document["score"] is not None else ""
        print(f"  {document['reason']}: {score}({document['why']})")
        show(document)
        if "partner" in document:
            partner = document["partner"]
            similar = f", Jaccard {partner['jaccard']:.3f}" if partner.get("jaccard") is not None else ""
            print(f"  {partner.get('what', 'item of the benchmark')}{similar}: {where(partner)}")
            show(partner)
        print()


def print_doctor(facts: dict[str, Any]) -> None:
    """Plain lines, so that a broken terminal library is reported as well. The remedy is below what it is for."""
    group = None
    for check in facts["checks"]:
        if check["group"] != group:
            group = check["group"]
            print(f"\n{group}")
        print(f"  {check['status']:<8} {check['name']:<20} {check['detail']}")
        if check["remedy"] and check["status"] != "ok":
            print(f"  {'':<8} {'':<20} -> {check['remedy']}")
    failed = [c["name"] for c in facts["checks"] if c["status"] == "failed"]
    print(f"\ngpu_curate {facts['version']}: " + (f"FAILED: {', '.join(failed)}" if failed else "usable"))
    lacking = [c["name"] for c in facts["checks"] if c["for_gpu"] and c["status"] != "ok"]
    print(f"GPU path: {'usable' if facts['gpu_usable'] else 'not usable: ' + ', '.join(lacking)}")


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
    print(f"sample      {sample['documents']:,} documents, {human_bytes(sample['bytes'])}, {sample['files']:,} files")
    print(f"machine     {machine['cpu']}, {machine['cores']} cores; GPU: {machine['gpu'] or 'none'}")
    if machine["gpu"]:
        print("break-even  a GPU-hour is cheaper up to the price of so many core-hours")
    for text in facts["missing"]:
        print(f"missing     {text}")
    for d in facts["differences"]:
        at = f", {d['document']}" if d["document"] else ""
        print(f"DIFFERENT   {d['step']}, {d['backend']}{at}: {d['array']} is {d['value']}, on one core {d['expected']}")
    print(f"arrays      {'all equal' if facts['equal'] else str(len(facts['differences'])) + ' DIFFER'}")
    print(f"written     {folder}/compare.json, compare.csv, compare.png")
