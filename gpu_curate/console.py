"""What people read in the terminal: progress, tables, summaries. Plain lines where there is no terminal."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table

from gpu_curate.quality import RULES
from gpu_curate.runs.progress import clock, human_bytes
from gpu_curate.terminal import new_table, show
from gpu_curate.visible import one, say, visible

if TYPE_CHECKING:
    from gpu_curate.runs.pipeline import Outcome


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
        show(_funnel(facts), _splits(facts), _steps(facts))
    for text in facts["warnings"]:
        if not quiet and text not in outcome.warnings and not any(f.startswith(text) for f in facts["failures"]):
            say(f"warning: {one(text)}", file=sys.stderr)
    for text in facts["notes"] if not quiet else []:
        say(f"note: {one(text)}")
    for name, sampled in facts["sampled"].items():
        say(f"sampled   {name}: {sample_line(sampled)}")
    if facts["rejected_by_reason"]:
        folder = outcome.context.box("rejects").folder
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
    table = new_table("documents", "documents", "tokens", "text")
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
    if "cuts" in facts:
        cut = facts["cuts"]
        table.add_row(f"  cut out of {cut['documents']:,}", "", f"{cut['tokens']:,}", human_bytes(cut["bytes"]))
    for reason in documents["dropped"]:
        row(f"  dropped: {reason}", reason, "dropped")
    row("kept", None, "kept")
    table.columns[0].header = ""
    return table


def _splits(facts: dict[str, Any]) -> Table:
    table = new_table("split", "documents", "tokens")
    for name, split in facts["splits"].items():
        table.add_row(name, f"{split['documents']:,}", f"{split['tokens']:,}")
    return table


def _steps(facts: dict[str, Any]) -> Table:
    columns = ("step", "wall s", "worker s", "CPU s", "text", "MB/s per worker", "partitions", "reused", "backend")
    table = new_table(*columns, spare=("backend", "text", "reused"))
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
        table = new_table("source", "type", "files", "bytes", "text in")
        for s in sources:
            table.add_row(s.name, s.kind, f"{len(s.files):,}", human_bytes(s.size), s.files[0].text_column or "")
        show(table)
    for file in left[:5]:
        say(f"not read: {one(file.path)}: {one(file.why_not)}", file=sys.stderr)
    if len(left) > 5:
        say(f"not read: {len(left) - 5:,} more files, see {recipe}", file=sys.stderr)
    say(f"written  {recipe}")
    say(f"next     gpu-curate plan {recipe}")
    say(f"         gpu-curate run {recipe}")


def print_plan(facts: dict[str, Any]) -> None:
    sources = new_table("source", "files", "bytes", "tasks", "text (estimate)", "by reference")
    for source in facts["sources"]:
        sources.add_row(
            source["name"],
            f"{source['files']:,}",
            human_bytes(source["bytes"]),
            f"{source['tasks']:,}",
            human_bytes(source["text_bytes"]),
            human_bytes(source["by_reference_bytes"]) if source["by_reference_bytes"] else "no",
        )
    boxes = new_table("box", "folder", "partitions there", "state")
    for box in facts["boxes"]:
        boxes.add_row(box["name"], box["folder"], f"{box['partitions']:,}", box["state"])
    show(sources, boxes)
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
        pinned = human_bytes(facts["pinned_bytes"])
        say(f"peak device  {human_bytes(facts['peak_device_bytes'])} a GPU; {pinned} of host memory pinned")
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
    table = new_table(
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
        show(table, *([_sets(facts["sets"])] if facts["sets"] else []))
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
    table = new_table("folder", "disk", "reason")
    for item in facts["items"]:
        table.add_row(item["folder"], human_bytes(item["disk_bytes"]), item["reason"])
    if facts["items"]:
        show(table)
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
    table = new_table("shards", "documents", "tokens", "disk", "report", "against the latest")
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
    table = new_table("split", "documents", "tokens", "shards", "bytes")
    for name, split in facts["splits"].items():
        documents = "?" if split["documents"] is None else f"{split['documents']:,}"
        table.add_row(name, documents, f"{split['tokens']:,}", f"{split['shards']:,}", human_bytes(split["bytes"]))
    show(table, *([_sets(facts["sets"])] if facts.get("sets") else []))
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
    speeds = new_table("MB/s", *ways, *(f"{w} / 1 core" for w in others), *(["break-even"] if "GPU" in ways else []))
    documents = new_table("documents/s", *ways)
    for row in facts["steps"]:
        rates = row["ways"]
        speed = [f"{rates[w]['mb_per_s']:,.1f}" if w in rates else "" for w in ways]
        times = [f"{rates[w]['times_one_core']:,.2f} x" if "1 core" in rates and w in rates else "" for w in others]
        price = [f"{row['break_even_price']:,.1f}" if row["break_even_price"] else ""] if "GPU" in ways else []
        speeds.add_row(row["step"], *speed, *times, *price)
        documents.add_row(row["step"], *(f"{rates[w]['documents_per_s']:,.0f}" if w in rates else "" for w in ways))
    show(speeds, documents)
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
