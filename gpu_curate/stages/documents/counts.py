"""What became of the items of one partition, for its receipt."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from gpu_curate.sources import Reject, Skip
from gpu_curate.stages.rejects import add_kinds, first_reject, kind_of

_MAX_FILES = 1000  # with rejects, in a receipt


class Counts:
    """What became of the items of one partition, for its receipt."""

    def __init__(self) -> None:
        self.kinds: Counter[str] = Counter()  # rejects by kind of reason
        self.first: dict[str, Any] | None = None
        self.skipped: Counter[str] = Counter()
        self.pii: Counter[str] = Counter()
        self.samples: dict[str, list[str]] = {}
        self.markup: Counter[str] = Counter()
        self.evidence: dict[str, Counter[str]] = {}  # path → what told the charset
        self.passed_bytes = 0
        # path → documents, rejects, skipped records, and of the first reject row, offset and reason
        self.files: dict[str, list[Any]] = {}
        self.empty: dict[str, list[str]] = {}
        self.incomplete: dict[str, None] = {}
        self.stopped: str | None = None

    def document(self, path: str, evidence: str | None = None) -> None:
        self._of(path)[0] += 1
        if evidence is not None:
            self.evidence.setdefault(path, Counter())[evidence] += 1

    def _of(self, path: str) -> list[Any]:
        counts = self.files.get(path)
        if counts is None:
            counts = self.files[path] = [0, 0, 0, None]
        return counts

    def reject(self, reject: Reject, path: str) -> None:
        add_kinds(self.kinds, {kind_of(reject.reason): 1})
        self.first = self.first or first_reject(reject, path)
        counts = self._of(path)
        counts[1] += 1
        if counts[3] is None:
            counts[3] = [reject.row, reject.offset, reject.reason]
        self.passed_bytes += reject.passed_bytes
        if reject.cut:
            self.incomplete[path] = None

    def skip(self, skip: Skip, path: str, source: str) -> None:
        if skip.reason == "empty_file":
            self.empty.setdefault(source, []).append(path)
        self._of(path)[2] += 1
        self.skipped[f"{source}:{skip.reason}"] += 1

    def personal(self, spans: Sequence[Any], text: bytes) -> None:
        """Count the findings in a text, and keep the shape of the first few of each type, to show what was taken for what."""
        from gpu_curate.text.pii.spans import shape

        self.pii.update(span.kind for span in spans)
        for span in spans:
            seen = self.samples.setdefault(span.kind, [])
            if len(seen) < 3:
                seen.append(shape(text[span.start : span.stop].decode("utf-8")))

    def facts(self, source: str) -> dict[str, Any]:
        paths = list(self.files)
        shared = {*paths[:1], *paths[-1:]}  # other partitions may hold more of them
        told = set([p for p in paths if self.files[p][1]][:_MAX_FILES])
        rejected = sum(self.kinds.values())
        return {
            "rejected": {source: rejected} if rejected else {},
            "reject_reasons": dict(self.kinds),
            "first_reject": self.first,
            "passed_bytes": {source: self.passed_bytes} if self.passed_bytes else {},
            "charset_evidence": {source: self.evidence} if self.evidence else {},
            "skipped": dict(self.skipped),
            "pii": dict(self.pii),
            "pii_samples": self.samples,
            "markup": dict(self.markup),
            "incomplete": sorted(self.incomplete),
            "empty_files": self.empty,
            # of the files with rejects, and of those that other partitions share
            "by_file": {p: self.files[p] for p in paths if p in shared or p in told},
            "stopped": self.stopped,
        }
