"""The state of a run directory, for `gpu-curate status`."""

from __future__ import annotations

import socket
import time
from pathlib import Path
from typing import Any

from gpu_curate.errors import ConfigError, CorruptError
from gpu_curate.runs.places import Boxes
from gpu_curate.runs.progress import STATUS
from gpu_curate.stages.order import BESIDE
from gpu_curate.store.artifact import Box
from gpu_curate.store.files import read_json
from gpu_curate.store.lock import lock_holder
from gpu_curate.store.run_directory import RUN_FILE, below, disk_bytes, latest_shards, run_faults, shard_sets


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
    facts: dict[str, Any] = read_json(path)
    kinds = {"folders": dict, "started": str, "backend": dict}
    wrong = [k for k, kind in kinds.items() if not isinstance(facts, dict) or not isinstance(facts.get(k), kind)]
    faults = (
        wrong or run_faults(facts) or [f"folders.{b}" for b in ("shards", "documents") if b not in facts["folders"]]
    )
    if faults:
        raise CorruptError(f"{path} is not a run file of this program ({'; '.join(faults[:3])})", "run again")
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
    lying = Boxes(run, info)
    for name, folder in info["folders"].items():
        receipts = list(lying.box(name).receipts())
        boxes[name] = {
            "folder": folder,
            "partitions": len(receipts),
            "documents": sum(r.counts.documents for r in receipts),
            "bytes": sum(r.counts.bytes for r in receipts),
            "cpu_seconds": round(sum(r.cost.cpu_seconds for r in receipts), 3),
            "disk_bytes": disk_bytes(lying.box(name).folder),
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
