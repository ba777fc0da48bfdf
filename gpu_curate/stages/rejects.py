"""Rejects: what could not be read or taken, each with its place and reason, in rejects/ and counted in receipts.

Most are written with documents/. A text that a later step's library cannot take is rejected there (`LateRejects`): it keeps
its row in every box, the step writes the least it can for it, and decisions/ lets it go under `rejected`.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

from gpu_curate.errors import InputError
from gpu_curate.guard import head
from gpu_curate.sources import Reject
from gpu_curate.store.files import publish
from gpu_curate.visible import one

if TYPE_CHECKING:
    from gpu_curate.stages import Boxes

REJECTED = "rejected"  # the reason that decisions/ gives a late reject
_MAX_KINDS = 50  # reasons counted apart in a receipt
_OTHER = "other reasons"
_NUMBER = re.compile(r"(?<![\w'-])\d+")


def kind_of(reason: str) -> str:
    """A reason without what differs from record to record: up to its first colon, numbers as N."""
    return _NUMBER.sub("N", reason.partition(": ")[0])[:120]


def add_kinds(counts: Counter[str], more: dict[str, int]) -> None:
    """Add counts by kind; a kind too many is one of the others."""
    for kind, n in more.items():
        counts[kind if kind in counts or len(counts) < _MAX_KINDS else _OTHER] += n


def place_of(path: str, row: int | None, offset: int | None) -> str:
    """Where a record stands, for a message."""
    where = [] if row is None else [f"row {row}"]
    where += [] if offset is None else [f"byte {offset}"]
    return f"{one(path)}: {', '.join(where)}" if where else one(path)


def write_reject(f: IO[str], source: str, path: str, reject: Reject, **more: int) -> int:
    """One line of rejects/. Returns: its length in characters."""
    row = {
        "source": source,
        "path": path,
        "row": reject.row,
        "offset": reject.offset,
        "reason": reject.reason,
        "head": reject.head.decode("utf-8", "backslashreplace"),
        **more,
    }
    if reject.passed_bytes:
        row["passed_bytes"] = reject.passed_bytes
    return f.write(json.dumps(row, ensure_ascii=False) + "\n")


class LateRejects:
    """The documents of a partition that a step behind documents/ could not take.

    Args:
        box: the step's.
    Raises:
        InputError: when they are written, of the first one, if `run.strict`.
    """

    def __init__(self, boxes: Boxes, box: str, part: str):
        self._boxes, self._box, self._part = boxes, box, part
        self._found: dict[int, Reject] = {}  # by number in the partition

    def add(self, number: int, reason: str, text: bytes) -> None:
        self._found.setdefault(number, Reject(None, None, reason, head(text)))

    @property
    def reasons(self) -> dict[int, str]:
        """Reason by number in the partition."""
        return {number: self._found[number].reason for number in sorted(self._found)}

    @property
    def count(self) -> int:
        return len(self._found)

    def write(self) -> Path | None:
        """Publish them. Returns: the file that the step's receipt has to name; None: there are none."""
        if not self._found:
            return None
        found = dict(sorted(self._found.items()))
        columns = ["doc_id", "source", "path", "row"]
        rows = self._boxes.box("documents").read_table(self._part, columns).take(list(found)).to_pylist()
        path = late_path(self._boxes, self._box, self._part)
        with publish(path) as temp, temp.open("w", encoding="utf-8") as f:
            for (number, reject), row in zip(found.items(), rows, strict=True):
                reject = reject._replace(row=row["row"])
                if self._boxes.strict:
                    raise InputError(
                        f"{place_of(row['path'], row['row'], None)}, doc_id {row['doc_id']}: {reject.reason}",
                        "run.strict is on; without it the document goes to rejects",
                    )
                write_reject(f, row["source"], row["path"], reject, doc_id=row["doc_id"], number=number)
        return path


@dataclass(frozen=True)
class FirstReject:
    """The first reject of a partition: where it stands, and why."""

    path: str
    row: int | None
    offset: int | None
    reason: str


def first_reject(reject: Reject, path: str) -> FirstReject:
    return FirstReject(path, reject.row, reject.offset, reject.reason)


def late_path(boxes: Boxes, box: str, part: str) -> Path:
    """Where a step lists its rejects: below the name of its own folder, so that another fingerprint has another file."""
    return boxes.root(box) / boxes.folders["rejects"] / f"part-{part}.{boxes.folders[box]}.jsonl"


def late_rejects(boxes: Boxes, box: str, part: str) -> dict[int, str]:
    """Reason by number in the partition of the documents that a step rejected. Raises: CorruptError."""
    receipt = boxes.box(box).receipt(part)
    if receipt is None or not receipt.late_rejects:
        return {}
    path = late_path(boxes, box, part)
    name = next(f.file for f in receipt.files if f.file.endswith(path.name))
    text = boxes.box(box).verified_file(part, name).read_text(encoding="utf-8")
    rows = map(json.loads, text.splitlines())
    return {row["number"]: row["reason"] for row in rows}
