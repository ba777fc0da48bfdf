"""What became of the items of one partition, for its receipt."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from gpu_curate.sources import Reject, Skip
from gpu_curate.stages.rejects import FirstReject, add_kinds, first_reject, kind_of
from gpu_curate.store.receipts import Counts

_MAX_FILES = 1000  # with rejects, in a receipt


class Place(NamedTuple):
    """Where an item stands in a task, and all that a restart must know to begin with it."""

    piece: int  # index in the task
    items: int  # of the piece that come before it
    documents: int  # what `max_documents` and `max_bytes` have counted before it
    nbytes: int


class RejectAt(NamedTuple):
    """The first reject of a file."""

    row: int | None
    offset: int | None
    reason: str


class FileCounts(NamedTuple):
    """What became of the items of one file, in one partition."""

    documents: int
    rejects: int
    skipped: int
    first: RejectAt | None


@dataclass(frozen=True, kw_only=True)
class DocumentCounts(Counts):
    """Of a partition of documents/.

    Attributes:
        sources: documents by source; a partition has one.
        groups: hash of the groups of the documents.
        rejected, passed_bytes, charset_evidence: by source; of the evidence by file what told the charset, and how often.
        reject_reasons: rejects by kind of reason.
        skipped: records by `source:reason`.
        pii, pii_samples: findings by type, and the shapes of the first.
        markup: characters of markup, and of the text extracted from it.
        incomplete: files that are cut or damaged.
        empty_files: by source.
        by_file: of the files with rejects, and of those that other partitions share.
        stopped: the limit of the source that left something out.
        next: where the next partition of the task begins; None: nowhere.
    """

    sources: dict[str, int] = field(default_factory=dict)
    groups: str = ""
    rejected: dict[str, int] = field(default_factory=dict)
    reject_reasons: dict[str, int] = field(default_factory=dict)
    first_reject: FirstReject | None = None
    passed_bytes: dict[str, int] = field(default_factory=dict)
    charset_evidence: dict[str, dict[str, dict[str, int]]] = field(default_factory=dict)
    skipped: dict[str, int] = field(default_factory=dict)
    pii: dict[str, int] = field(default_factory=dict)
    pii_samples: dict[str, list[str]] = field(default_factory=dict)
    markup: dict[str, int] = field(default_factory=dict)
    incomplete: list[str] = field(default_factory=list)
    empty_files: dict[str, list[str]] = field(default_factory=dict)
    by_file: dict[str, FileCounts] = field(default_factory=dict)
    stopped: str | None = None
    next: Place | None = None


class _File:
    """What became of the items of a file so far."""

    def __init__(self) -> None:
        self.documents = self.rejects = self.skipped = 0
        self.first: RejectAt | None = None


class Tally:
    """Counts what becomes of the items of one partition."""

    def __init__(self) -> None:
        self.kinds: Counter[str] = Counter()  # rejects by kind of reason
        self.first: FirstReject | None = None
        self.skipped: Counter[str] = Counter()
        self.pii: Counter[str] = Counter()
        self.samples: dict[str, list[str]] = {}
        self.markup: Counter[str] = Counter()
        self.evidence: dict[str, Counter[str]] = {}  # path → what told the charset
        self.passed_bytes = 0
        self.files: dict[str, _File] = {}
        self.empty: dict[str, list[str]] = {}
        self.incomplete: dict[str, None] = {}
        self.stopped: str | None = None

    def document(self, path: str, evidence: str | None = None, documents: int = 1) -> None:
        self._of(path).documents += documents
        if evidence is not None:
            self.evidence.setdefault(path, Counter())[evidence] += 1

    def _of(self, path: str) -> _File:
        counts = self.files.get(path)
        if counts is None:
            counts = self.files[path] = _File()
        return counts

    def reject(self, reject: Reject, path: str) -> None:
        add_kinds(self.kinds, {kind_of(reject.reason): 1})
        self.first = self.first or first_reject(reject, path)
        counts = self._of(path)
        counts.rejects += 1
        if counts.first is None:
            counts.first = RejectAt(reject.row, reject.offset, reject.reason)
        self.passed_bytes += reject.passed_bytes
        if reject.cut:
            self.incomplete[path] = None

    def skip(self, skip: Skip, path: str, source: str) -> None:
        if skip.reason == "empty_file":
            self.empty.setdefault(source, []).append(path)
        self._of(path).skipped += 1
        self.skipped[f"{source}:{skip.reason}"] += 1

    def personal(self, spans: Sequence[Any], text: bytes) -> None:
        """Count the findings in a text, and keep the shape of the first few of each type, to show what was taken for what."""
        from gpu_curate.text.pii.spans import shape

        self.pii.update(span.kind for span in spans)
        for span in spans:
            seen = self.samples.setdefault(span.kind, [])
            if len(seen) < 3:
                seen.append(shape(text[span.start : span.stop].decode("utf-8")))

    def counts(self, source: str, documents: int, nbytes: int, groups: str, next_: Place | None) -> DocumentCounts:
        """For the receipt of a partition of `source`."""
        paths = list(self.files)
        shared = {*paths[:1], *paths[-1:]}  # other partitions may hold more of them
        told = set([p for p in paths if self.files[p].rejects][:_MAX_FILES])
        rejected = sum(self.kinds.values())
        return DocumentCounts(
            documents=documents,
            bytes=nbytes,
            sources={source: documents} if documents else {},
            groups=groups,
            rejected={source: rejected} if rejected else {},
            reject_reasons=dict(self.kinds),
            first_reject=self.first,
            passed_bytes={source: self.passed_bytes} if self.passed_bytes else {},
            charset_evidence={source: {p: dict(c) for p, c in self.evidence.items()}} if self.evidence else {},
            skipped=dict(self.skipped),
            pii=dict(self.pii),
            pii_samples=self.samples,
            markup=dict(self.markup),
            incomplete=sorted(self.incomplete),
            empty_files=self.empty,
            by_file={p: FileCounts(**vars(self.files[p])) for p in paths if p in shared or p in told},
            stopped=self.stopped,
            next=next_,
        )
