"""What the sources gave and what they did not: rejects by reason, files without a record, sources without a document, samples."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

from gpu_curate.config import Config, SourceBase
from gpu_curate.report.markup import Html, count, table, tag
from gpu_curate.stages import Context
from gpu_curate.stages.decisions import DecisionCounts
from gpu_curate.stages.documents.counts import DocumentCounts, FileCounts
from gpu_curate.stages.rejects import add_kinds, place_of

_MAX_SOURCES = 100


def intake(context: Context, sources: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The part of report.json about what was read.

    Args:
        sources: documents read, rejected, dropped and kept of every source.
    Returns:
        rejected_by_reason: reason without its particulars → records.
        rejects: source → `reasons`, and `first`: place and whole reason of its first reject.
        unreadable: source → path → reason, of files no record of which could be read.
        mostly_rejected: source → path → [documents, rejects, reason], of files that gave fewer documents than rejects.
        empty_files: source → files that hold nothing.  empty_sources: sources that gave no document.
        sampled: source → records read, of how many (None: nobody counted), and by which key.
    """
    rejects: dict[str, dict[str, Any]] = {}
    total: Counter[str] = Counter()
    files: dict[tuple[str, str], FileCounts] = {}  # by source and path
    empty_files: dict[str, list[str]] = defaultdict(list)
    stopped: dict[str, str] = {}
    of_part: dict[str, str] = {}  # a partition holds one source
    for receipt in context.receipts("documents", DocumentCounts):
        of = receipt.counts
        source = next(iter([*of.sources, *of.rejected]), "")
        of_part[receipt.part] = source
        _add(rejects, total, source, of)
        for path, counts in of.by_file.items():
            before = files.get((source, path), FileCounts(0, 0, 0, None))
            files[source, path] = FileCounts(
                before.documents + counts.documents,
                before.rejects + counts.rejects,
                before.skipped + counts.skipped,
                before.first or counts.first,
            )
        for name, paths in of.empty_files.items():
            empty_files[name] += paths
        if of.stopped:
            name = source or next((k.partition(":")[0] for k in of.skipped), "")
            stopped[name] = of.stopped
    for decided in context.receipts("decisions", DecisionCounts):
        if decided.counts.reject_reasons:
            _add(rejects, total, of_part[decided.part], decided.counts)
    unreadable: dict[str, dict[str, str]] = defaultdict(dict)
    mostly: dict[str, dict[str, list[Any]]] = defaultdict(dict)
    for (source, path), (documents, rejected, skipped, first) in sorted(files.items()):
        if first is None:
            continue
        if rejected and not documents and not skipped:
            unreadable[source][path] = first.reason
        elif rejected > documents:
            where = place_of("", first.row, first.offset).removeprefix(": ")
            mostly[source][path] = [documents, rejected, f"{where}: {first.reason}"]
    config = context.config
    return {
        "rejected_by_reason": dict(total.most_common()),
        "rejects": dict(sorted(rejects.items())),
        "unreadable": dict(unreadable),
        "mostly_rejected": dict(mostly),
        "empty_files": dict(empty_files),
        "empty_sources": [s.name for s in config.sources if _gave_nothing(s, sources[s.name])],
        "sampled": _sampled(context, sources, stopped),
    }


def _add(
    rejects: dict[str, dict[str, Any]], total: Counter[str], source: str, of: DocumentCounts | DecisionCounts
) -> None:
    if not of.reject_reasons:
        return
    first = None if of.first_reject is None else vars(of.first_reject)
    own = rejects.setdefault(source, {"reasons": {}, "first": first})
    kinds = Counter(own["reasons"])
    for counts in (kinds, total):
        add_kinds(counts, of.reject_reasons)
    own["reasons"] = dict(kinds.most_common())


def _gave_nothing(source: SourceBase, unit: dict[str, Any]) -> bool:
    return unit["read"] == unit["rejected"] and source.max_documents != 0 and source.max_bytes != 0


def _sampled(
    context: Context, sources: dict[str, dict[str, Any]], stopped: dict[str, str]
) -> dict[str, dict[str, Any]]:
    rows: dict[str, int | None] = {}
    for file in context.snapshot().files:
        known, n = rows.get(file["source"], 0), file.get("rows")
        rows[file["source"]] = None if n is None or known is None else known + n
    found = {}
    for source in context.config.sources:
        by = [f"{key}: {getattr(source, key):,}" for key in [stopped.get(source.name)] if key]
        groups = getattr(source, "row_groups", None)
        if groups is not None and groups.every > 1:
            by.insert(0, f"row_groups: every {groups.every}")
        elif groups is not None and groups.offset:
            by.insert(0, f"row_groups: from {groups.offset} on")
        of = rows.get(source.name)
        if by and sources[source.name]["read"] != of:
            found[source.name] = {"read": sources[source.name]["read"], "of": of, "by": ", ".join(by)}
    return found


# ------------------------------------------------------------------------------------------------------- what is said


def sample_line(sampled: dict[str, Any]) -> str:
    """A sampled source in words."""
    read = f"{sampled['read']:,}"
    what = "records read, the rest was left out" if sampled["of"] is None else f"of {sampled['of']:,} records read"
    return f"{read} {what} ({sampled['by']})"


def reject_line(facts: dict[str, Any]) -> str:
    """All rejects by reason in words."""
    shown = list(facts["rejected_by_reason"].items())
    parts = [f"{n:,} {reason}" for reason, n in shown[:8]]
    rest = sum(n for _, n in shown[8:])
    return ", ".join(parts + ([f"{rest:,} for other reasons"] if rest else []))


def warnings(facts: dict[str, Any]) -> list[str]:
    """Warnings about what was read. `facts`: report.json as far as it is made."""
    found = []
    for name, unit in facts["sources"].items():
        if 2 * unit["rejected"] > unit["read"]:
            first = facts["rejects"][name]["first"]
            found.append(
                f"source {name}: {unit['rejected']:,} of {unit['read']:,} records were rejected, the first at "
                f"{place_of(first['path'], first['row'], first['offset'])}: {first['reason']}; see rejects/"
            )
    for name, files in facts["mostly_rejected"].items():
        path, (documents, rejected, reason) = next(iter(files.items()))
        what = "most records of a file" if len(files) == 1 else f"most records of {len(files):,} files"
        found.append(
            f"source {name}: {what} were rejected, e.g. {rejected:,} of {documents + rejected:,} of {path}: "
            f"{reason}; see rejects/"
        )
    for name, paths in facts["empty_files"].items():
        what = f"{paths[0]} is empty" if len(paths) == 1 else f"{len(paths)} files are empty, e.g. {paths[0]}"
        found.append(f"source {name}: {what}: 0 documents")
    return found


def problems(facts: dict[str, Any]) -> list[tuple[str, str]]:
    """What makes a finished run end with exit status 1, each with the key under `run` that allows it."""
    found = []
    for name, files in facts["unreadable"].items():
        path, reason = next(iter(files.items()))
        what = "1 file" if len(files) == 1 else f"{len(files):,} files"
        found.append(
            ("allow_unreadable", f"source {name}: nothing could be read of {what}, e.g. {path}: {reason}; see rejects/")
        )
    found += [("allow_empty", f"source {name}: no document was read") for name in facts["empty_sources"]]
    return found


def failures(facts: dict[str, Any], config: Config) -> list[str]:
    """Those problems that the config does not allow, with what would."""
    return [
        f"{text} (to end with status 0 all the same: run.{key}: true)"
        for key, text in problems(facts)
        if not getattr(config.run, key)
    ]


def rejects_table(facts: dict[str, Any]) -> Html | None:
    """Rejects by source and reason, for the page."""
    if not facts["rejects"]:
        return None
    rows = []
    for source, own in list(facts["rejects"].items())[:_MAX_SOURCES]:
        first = own["first"]
        where = place_of(first["path"], first["row"], first["offset"])
        for i, (reason, n) in enumerate(own["reasons"].items()):
            rows.append(
                [source if i == 0 else "", reason, n, tag("code", f"{where}: {first['reason']}") if i == 0 else ""]
            )
    return tag(
        "div",
        tag("h3", "Rejected records"),
        tag("p", "Records that could not be read, by reason; each is in rejects/ with its place and its first bytes."),
        table(("source", "reason", "records", "the first of the source"), rows, text=(1, 3), class_="wrap"),
    )


def sampled_table(facts: dict[str, Any]) -> Html | None:
    """Sources of which a part was read, for the page."""
    if not facts["sampled"]:
        return None
    rows = [
        [name, count(s["read"]), "not counted" if s["of"] is None else count(s["of"]), s["by"]]
        for name, s in list(facts["sampled"].items())[:_MAX_SOURCES]
    ]
    return tag(
        "div",
        tag("h3", "Sampled sources"),
        tag("p", "Only a part of these was read, as the recipe says."),
        table(("source", "records read", "of", "by"), rows, text=(3,)),
    )
