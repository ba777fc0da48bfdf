"""Throughput: what each step cost, and what bounds the run."""

from __future__ import annotations

from typing import Any

from gpu_curate.report.charts import Segment, bar
from gpu_curate.report.markup import Html, count, plural, rate, seconds, section, share, size, table, tag


def steps(facts: dict[str, Any]) -> Html:
    own = facts["steps"]
    longest = max((s["seconds"] for s in own), default=0.0)
    rows = []
    for s in own:
        cpu = min(s["cpu_seconds"], s["seconds"])
        waits = s["seconds"] - cpu
        segments = [
            Segment(cpu, "plain", f"{s['name']}: {seconds(s['cpu_seconds'])} on the CPU"),
            Segment(
                waits, "plain pale", f"{s['name']}: {seconds(waits)} waiting: disk, network, device, other processes"
            ),
        ]
        rows.append(
            [
                [tag("span", s["name"], class_="name"), bar(segments, longest)],
                _digits(s["waited_seconds"]) if s["waited_seconds"] >= 0.005 else None,
                _digits(s["wall_seconds"]),
                _digits(s["seconds"]),
                _digits(s["cpu_seconds"]),
                rate(s["bytes"], s["seconds"]),
                size(s["bytes"]) if s["bytes"] else None,
                s["documents"] or None,
                f"{s['partitions']:,}" + (f" ({s['reused']:,} reused)" if s["reused"] else ""),
                s["backend"],
            ]
        )
    lead = (
        "Worker time of each step, CPU time within it in full colour. “Waited”: before its first task, while all workers "
        "were busy with other steps; “wall”: from its first task to its last. Steps overlap, so wall times do not add up. "
        "MB/s is text per second of one worker."
    )
    columns = (
        "step",
        "waited s",
        "wall s",
        "worker s",
        "CPU s",
        "MB/s per worker",
        "bytes",
        "documents",
        "partitions",
        "where",
    )
    body = [tag("p", bound(facts)), table(columns, rows, class_="sources"), _own_counts(own)]
    return section("throughput", "Throughput", lead, *body)


def _own_counts(own: list[dict[str, Any]]) -> Html | None:
    """What the user's own stages counted."""
    rows = [
        [tag("span", s["name"], class_="name"), key, name, f"{n:,}"]
        for s in own
        for key, value in s.get("counts", {}).items()
        for name, n in (value.items() if isinstance(value, dict) else [("", value)])
    ]
    return table(("step of your own", "counted", "", "in all"), rows, text=(1, 2)) if rows else None


def _digits(s: float) -> str:
    return f"{s:,.2f}" if s < 100 else f"{s:,.0f}"


def bound(facts: dict[str, Any]) -> str:
    """What bounds the run, in a few sentences."""
    own = facts["steps"]
    total = sum(s["seconds"] for s in own)
    wall, read = facts["seconds"], facts["bytes"]["read"]
    if not own or not total:
        return f"The run took {seconds(wall)}."
    slowest = max(own, key=lambda s: s["seconds"])
    cpu = min(slowest["cpu_seconds"], slowest["seconds"])
    said = [
        f"The slowest step is {slowest['name']}: {seconds(slowest['seconds'])} of {seconds(total)} of worker time "
        f"({share(slowest['seconds'], total)}), {share(cpu, slowest['seconds'])} of it on the CPU."
    ]
    reused = sum(s["reused"] for s in own)
    if reused:
        all_ = sum(s["partitions"] for s in own)
        said.append(
            f"This run took {seconds(wall)} and took over {count(reused)} of {plural(all_, 'partition')} from an earlier "
            "one; their seconds are those of the time when they were made."
        )
    elif wall:
        said.append(
            f"The whole run took {seconds(wall)}, {total / wall:.1f} workers busy on average: {rate(read, wall)} MB of "
            "text a second, end to end."
        )
    return " ".join(said)
