"""What the receipts of a run say in all: what its documents stage read, and what was decided."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

Counts = Mapping[str, Any]  # a receipt
_SAMPLES = 5


@dataclass
class Read:
    """The receipts of the documents stage.

    Attributes:
        rejected, passed: records, and bytes that were passed over, by source.
        skipped: records by reason.
        pii, samples: findings by kind, and the first of each.
        evidence: by source, what told the character set of a page.
    """

    rejected: Counter[str] = field(default_factory=Counter)
    passed: Counter[str] = field(default_factory=Counter)
    skipped: Counter[str] = field(default_factory=Counter)
    pii: Counter[str] = field(default_factory=Counter)
    samples: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    evidence: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))

    @classmethod
    def of(cls, documents: Iterable[Counts]) -> Read:
        sums = cls()
        for receipt in documents:
            sums.rejected.update(receipt.get("rejected", {}))
            sums.passed.update(receipt.get("passed_bytes", {}))
            for source, files in receipt.get("charset_evidence", {}).items():
                for counts in files.values():
                    sums.evidence[source].update(counts)
            sums.skipped.update(receipt.get("skipped", {}))
            sums.pii.update(receipt.get("pii", {}))
            for kind, found in receipt.get("pii_samples", {}).items():
                sums.samples[kind] = (sums.samples[kind] + found)[:_SAMPLES]
        return sums


@dataclass
class Decided:
    """The receipts of the decisions stage.

    Attributes:
        by_reason: documents, tokens and bytes_of_text by reason.
        by_source: documents by source and reason.
        failing, only: documents that fail a rule, and that fail no other.
    """

    by_reason: dict[str, Counter[str]] = field(
        default_factory=lambda: {unit: Counter() for unit in ("documents", "tokens", "bytes_of_text")}
    )
    by_source: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    failing: Counter[str] = field(default_factory=Counter)
    only: Counter[str] = field(default_factory=Counter)

    @classmethod
    def of(cls, decisions: Iterable[Counts], documents: Iterable[Counts]) -> Decided:
        """Args: documents: receipts of the documents, for a run that ended before decisions as there was no text at all."""
        sums = cls()
        ended = True
        for receipt in decisions:
            ended = False
            for unit, counts in receipt["by_reason"].items():
                sums.by_reason[unit].update(counts)
            for key, count in receipt["by_source"].items():
                source, reason = key.split("\t")
                sums.by_source[source][reason] += count
            sums.failing.update(receipt["failing"])
            sums.only.update(receipt["only"])
        for receipt in documents if ended else ():
            sums.by_reason["documents"]["empty"] += receipt["documents"]
            for source, count in receipt["sources"].items():
                sums.by_source[source]["empty"] += count
        return sums
