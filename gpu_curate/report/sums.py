"""What the receipts of a run say in all: what its documents stage read, and what was decided."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from gpu_curate.stages.decisions import DecisionCounts
from gpu_curate.stages.documents.counts import DocumentCounts

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
    def of(cls, documents: Iterable[DocumentCounts]) -> Read:
        sums = cls()
        for of in documents:
            sums.rejected.update(of.rejected)
            sums.passed.update(of.passed_bytes)
            for source, files in of.charset_evidence.items():
                for counts in files.values():
                    sums.evidence[source].update(counts)
            sums.skipped.update(of.skipped)
            sums.pii.update(of.pii)
            for kind, found in of.pii_samples.items():
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
    def of(cls, decisions: Iterable[DecisionCounts], documents: Iterable[DocumentCounts]) -> Decided:
        """Args: documents: receipts of the documents, for a run that ended before decisions as there was no text at all."""
        sums = cls()
        ended = True
        for decided in decisions:
            ended = False
            for unit, counts in vars(decided.by_reason).items():
                sums.by_reason[unit].update(counts)
            for key, count in decided.by_source.items():
                source, reason = key.split("\t")
                sums.by_source[source][reason] += count
            sums.failing.update(decided.failing)
            sums.only.update(decided.only)
        for of in documents if ended else ():
            sums.by_reason["documents"]["empty"] += of.documents
            for source, count in of.sources.items():
                sums.by_source[source]["empty"] += count
        return sums
