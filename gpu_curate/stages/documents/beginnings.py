"""What a task with a limit takes over from an earlier one that began with the same pieces; texts that two partitions share.

`max_documents` and `max_bytes` make one task of a source, read in order until the limit. Under another limit, or with files
added behind, its first partitions are the same. They are taken over as they are, and reading goes on behind them, as after a kill.
"""

from __future__ import annotations

from typing import Any

from gpu_curate.stages import Boxes
from gpu_curate.stages.documents.corpus import Corpus, Entry
from gpu_curate.stages.documents.counts import DocumentCounts
from gpu_curate.stages.documents.intake import Intake
from gpu_curate.stages.documents.tasks import refers
from gpu_curate.stages.partition_text import text_file, text_hash
from gpu_curate.store.artifact import Box, link_file


def take_over(boxes: Boxes, intake: Intake, corpus: Corpus) -> None:
    """Let what earlier tasks have begun with stand under the names of the new ones."""
    box = boxes.box("documents")
    for name in sorted(corpus.new):
        task, entry = corpus.tasks[name], corpus.ledger.tasks[name]
        if entry.limits is None or refers(intake, task) or box.open_receipt(name, DocumentCounts) is not None:
            continue
        others = [(n, e) for n, e in corpus.ledger.tasks.items() if n != name and _same_source(e, entry)]
        found = [(n, _beginning(box, intake, n, e, entry, task.source)) for n, e in others]
        before, count = max(found, key=lambda f: f[1], default=("", 0))
        for number in range(count):
            old, new = (n if number == 0 else f"{n}-{number:03d}" for n in (before, name))
            box.adopt(old, new, DocumentCounts, {"key": entry.key}, beside=True, is_open=number == 0)


def _same_source(a: Entry, b: Entry) -> bool:
    return a.source == b.source and a.limits is not None


def _beginning(box: Box, intake: Intake, name: str, old: Entry, new: Entry, index: int) -> int:
    """How many partitions of an earlier task begin the new one, too."""
    source = intake.sources[index]
    equal = 0
    for a, b in zip(_states(old), _states(new), strict=False):
        if a != b:
            break
        equal += 1
    count = 0
    receipt = box.open_receipt(name, DocumentCounts)
    while receipt is not None and receipt.key == old.key and receipt.counts.next is not None:
        place = receipt.counts.next
        if place.piece >= equal and not (place.piece == equal and place.items == 0):
            break
        if source.max_documents is not None and place.documents >= source.max_documents:
            break
        if source.max_bytes is not None and place.nbytes >= source.max_bytes:
            break
        count += 1
        receipt = box.receipt(f"{name}-{count:03d}", DocumentCounts)
    return count


def _states(entry: Entry) -> list[tuple[Any, ...]]:
    """Every piece, and the state of its file."""
    states = entry.states or {}
    return [(states.get(str(p[0])), *p) for p in entry.pieces]


def share_texts(box: Box, corpus: Corpus) -> None:
    """Let texts that earlier partitions have too take no second place on the disk: a kept column was added, a file touched.

    The earlier one gets a link to what was just written. A file system without links keeps both.
    """
    written = {name: box.receipt(name) for name in box.parts() if name.partition("-")[0] in corpus.new}
    texts = {text_hash(receipt): name for name, receipt in written.items() if receipt is not None}
    for receipt in Box(box.folder).receipts() if texts else ():
        name = texts.get(text_hash(receipt))
        before = text_file(box, receipt.part)
        if name is None or receipt.part.partition("-")[0] in corpus.tasks or not before.is_file():
            continue
        now = text_file(box, name)
        if before.stat().st_size == now.stat().st_size and not before.samefile(now):
            link_file(now, before)
