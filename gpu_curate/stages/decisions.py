"""Decisions: keep a document, or drop it with the first failing rule as reason and the partner where there is one.

# N documents
"""

from __future__ import annotations

import functools
import operator
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gpu_curate.quality import Quality, evaluate, identity
from gpu_curate.sources import Reject
from gpu_curate.stages import Boxes, Made, Stage
from gpu_curate.stages.cut_tokens import lengths_after_cuts
from gpu_curate.stages.duplicates import FIRST_REFERENCE, clusters_of
from gpu_curate.stages.forgotten import list_identity, listed
from gpu_curate.stages.judged import Thresholds, below_top, thresholds
from gpu_curate.stages.part import Part
from gpu_curate.stages.reasons import FORGOTTEN, OTHER_BITS, in_order, rule_bits
from gpu_curate.stages.rejects import REJECTED, FirstReject, add_kinds, first_reject, kind_of, late_rejects
from gpu_curate.stages.rule_values import check_columns_hold_numbers, reject_wordy, rule_values, with_rules
from gpu_curate.store.receipts import Counts
from gpu_curate.text.sections import Language

SCHEMA = pa.schema(
    [
        ("doc_id", pa.int64()),
        ("keep", pa.bool_()),
        ("reason", pa.dictionary(pa.int16(), pa.string())),  # first failing rule; null if kept
        ("failing", pa.uint64()),  # bit set of all failing rules, see `rules_of_run` and OTHER_BITS
        ("partner", pa.int64()),  # doc_id of the survivor, or of the benchmark item; null without one
        ("tokens", pa.int64()),  # the document's EOT included
        ("bytes", pa.int64()),
    ]
)


@dataclass(frozen=True)
class ByReason:
    """Documents, tokens and bytes of text by the reason that took them; `kept` is one."""

    documents: dict[str, int] = field(default_factory=dict)
    tokens: dict[str, int] = field(default_factory=dict)
    bytes_of_text: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class DecisionCounts(Counts):
    """Of a partition of decisions/.

    Attributes:
        by_reason: by first failing rule.
        by_source: documents by source and reason, with a tab between.
        unknown_tokens: by reason.
        failing, only: documents that fail a rule, and those that fail nothing else.
        reject_reasons, first_reject: of late rejects.
    """

    by_reason: ByReason = ByReason()
    by_source: dict[str, int] = field(default_factory=dict)
    unknown_tokens: dict[str, int] = field(default_factory=dict)
    failing: dict[str, int] = field(default_factory=dict)
    only: dict[str, int] = field(default_factory=dict)
    reject_reasons: dict[str, int] = field(default_factory=dict)
    first_reject: FirstReject | None = None

    quiet: ClassVar[frozenset[str]] = frozenset({"reject_reasons", "first_reject"})


class Decisions(Stage):
    """Apply every threshold to the stored scores. Moving one re-runs this box and the shards, nothing else.

    Reads: documents(doc_id), signatures(bytes), scores, overlaps, duplicates, tokens(lengths), cut_tokens.
    Writes: keep, reason, failing, partner, tokens, bytes, both after cuts. Scores, duplicates and contamination are those of
    the text as it was read; `empty` and `too_few_tokens` are told of what cuts leave.
    Loosening a threshold never adds a drop: survivors are chosen among all documents, before any threshold. The price is
    that a cluster goes with its survivor if the survivor fails a rule; the report counts these.
    """

    name: ClassVar[str] = "decisions"
    counts: ClassVar[type[Counts]] = DecisionCounts
    follows: ClassVar[str | None] = "documents"
    rejects: ClassVar[bool] = True

    def __init__(
        self,
        quality: Quality,
        language: Language,
        min_tokens: int,
        max_coverage: dict[str, float],
        duplicates: bool,
        forget: str | None = None,
        cuts: bool = False,
        annotated: bool = False,
    ):
        """
        Args:
            max_coverage: by reference set that documents are searched for.
            duplicates: any are looked for.
            forget: file of the texts that are not kept (`stages.forgotten`).
            cuts: something may be cut out of documents; then what is left of them is counted.
            annotated: there are columns of `annotations`.
        """
        self.forget = forget
        self.top: Thresholds = {}  # of judges: known once all scores are
        self.quality, self.language, self.min_tokens, self.max_coverage = quality, language, min_tokens, max_coverage
        boxes = ["signatures", "scores", "tokens"]
        if duplicates:
            boxes.append("duplicates")
        if max_coverage:
            boxes.append("overlaps")
        if cuts:
            boxes.append("cut_tokens")
        if annotated:
            boxes.append("annotations")
        self.inputs = tuple(boxes)

    def settings(self) -> Any:
        return {
            "quality": identity(self.quality),
            "language": self.language.model_dump(include={"keep", "min_score"}),
            "min_tokens": self.min_tokens,
            "max_coverage": list(self.max_coverage.items()),
            **({} if self.forget is None else {"forget": list_identity(self.forget)}),
        }

    def prepare(self, boxes: Boxes) -> None:
        check_columns_hold_numbers(boxes, self.quality)
        self.top = thresholds(boxes, self.quality.judges)

    def make(self, part: Part) -> Made:
        boxes, name = part.boxes, part.name
        (doc_id_N,), (nbytes_N,) = part.columns("documents", "doc_id"), part.columns("signatures", "bytes")
        tokens_N, nbytes_N, unknown_N, *_ = lengths_after_cuts(boxes, name, nbytes_N)
        values = rule_values(boxes, name, self.quality)
        values |= below_top(boxes, name, self.quality.judges, self.top, values)
        failing_N = evaluate(values, self.quality).astype(np.uint64)
        partner_N = np.full(len(doc_id_N), -1, np.int64)

        def fail(where: np.ndarray, reason: str, partner: np.ndarray | None = None) -> None:
            failing_N[where] |= np.uint64(1 << OTHER_BITS[reason])
            if partner is not None:
                partner_N[where] = np.where(partner_N[where] < 0, partner[where], partner_N[where])

        bit = rule_bits(self.quality, self.forget)
        if self.forget is not None:
            content = part.columns("signatures", "content_hi", "content_lo")
            failing_N |= listed(self.forget, *content).astype(np.uint64) << np.uint64(bit[FORGOTTEN])
        fail(nbytes_N == 0, "empty")
        if self.language.model is not None and self.language.keep is not None:
            from gpu_curate.text.language import keep_labels

            wanted = pa.array(sorted(keep_labels(self.language) or ()), pa.string())
            languages = part.read("scores", ["language"])["language"].cast(pa.string())
            known = pc.is_in(languages, wanted).to_numpy()
            fail(~known | (values["language_score"] < self.language.min_score), "language")
        if "duplicates" in self.inputs and len(doc_id_N):
            _duplicates(boxes, doc_id_N, fail)
        for reference, limit in self.max_coverage.items():
            coverage, item = part.columns("overlaps", f"coverage_{reference}", f"item_{reference}")
            fail(coverage > np.float32(limit), "contaminated", item)
        fail(tokens_N - 1 < self.min_tokens, "too_few_tokens")
        reject_wordy(values, self.quality, part.rejects)
        late = [late_rejects(boxes, box, name) for box in ("tokens", "cut_tokens", "scores") if box in self.inputs]
        rejects = functools.reduce(operator.or_, late, part.rejects.reasons)
        rejected = np.fromiter(rejects, np.int64)  # what a library could not take is no document, whatever else it is
        failing_N[rejected], partner_N[rejected] = np.uint64(1 << OTHER_BITS[REJECTED]), -1
        reasons = in_order(bit)
        table = _table(reasons, doc_id_N, failing_N, partner_N, tokens_N, nbytes_N)
        table = with_rules(table, self.quality, self.forget)
        return Made(_counts(part, table, reasons, rejects, unknown_N), table)


def _duplicates(boxes: Boxes, doc_id_N: np.ndarray, fail: Callable[[np.ndarray, str, np.ndarray], None]) -> None:
    row, clusters = clusters_of(boxes, doc_id_N)
    kind = clusters["kind"].cast(pa.string()).to_numpy(zero_copy_only=False)
    dropped = np.flatnonzero(kind != None)  # noqa: E711  elementwise
    row = row[dropped]
    survivor = clusters["survivor"].to_numpy()[dropped]
    partner = np.full(len(doc_id_N), -1, np.int64)
    partner[row] = survivor
    of_reference = np.zeros(len(doc_id_N), np.bool_)
    of_reference[row] = survivor >= FIRST_REFERENCE
    exact = np.zeros(len(doc_id_N), np.bool_)
    exact[row] = kind[dropped] == "exact"
    fail((partner >= 0) & of_reference, "reference_duplicate", partner)
    fail((partner >= 0) & ~of_reference & exact, "exact_duplicate", partner)
    fail((partner >= 0) & ~of_reference & ~exact, "fuzzy_duplicate", partner)


def _table(
    reasons: dict[str, int],
    doc_id: np.ndarray,
    failing: np.ndarray,
    partner: np.ndarray,
    tokens: np.ndarray,
    nbytes: np.ndarray,
) -> pa.Table:
    code = np.full(len(doc_id), -1, np.int16)
    for number, bit in reversed(list(enumerate(reasons.values()))):
        code[failing >> np.uint64(bit) & np.uint64(1) == 1] = number
    keep = code < 0
    reason = pa.DictionaryArray.from_arrays(pa.array(np.where(keep, 0, code), pa.int16(), mask=keep), list(reasons))
    return pa.table(
        {
            "doc_id": doc_id,
            "keep": keep,
            "reason": reason,
            "failing": failing,
            "partner": pa.array(partner, pa.int64(), mask=partner < 0),
            "tokens": tokens,
            "bytes": nbytes,
        }
    ).cast(SCHEMA)


def _first_reject(part: Part, rejects: dict[int, str]) -> FirstReject:
    number = min(rejects)
    row = part.read("documents", ["path", "row"]).slice(number, 1).to_pylist()[0]
    return first_reject(Reject(row["row"], None, rejects[number]), row["path"])


def _counts(
    part: Part, table: pa.Table, bit: dict[str, int], rejects: dict[int, str], unknown_N: np.ndarray | None
) -> DecisionCounts:
    """What became of the partition: documents, tokens and bytes by reason; the same per source; every failing rule, and
    what it alone takes."""
    sources = part.read("documents", ["source"])["source"].cast(pa.string()).to_pylist()
    reasons = [r or "kept" for r in table["reason"].cast(pa.string()).to_pylist()]
    documents: Counter[str] = Counter(reasons)
    per_source: Counter[str] = Counter(f"{s}\t{r}" for s, r in zip(sources, reasons, strict=True))
    tokens: Counter[str] = Counter()
    nbytes: Counter[str] = Counter()
    for reason, t, b in zip(reasons, table["tokens"].to_pylist(), table["bytes"].to_pylist(), strict=True):
        tokens[reason] += t
        nbytes[reason] += b
    unknown: Counter[str] = Counter()
    if unknown_N is not None:
        for reason, n in zip(reasons, unknown_N.tolist(), strict=True):
            unknown[reason] += n
    kinds: Counter[str] = Counter()
    for reason in rejects.values():
        add_kinds(kinds, {kind_of(reason): 1})
    failing_N = table["failing"].to_numpy()
    failing, only = _failures(failing_N[failing_N != np.uint64(1 << OTHER_BITS[REJECTED])], bit)
    return DecisionCounts(
        documents=len(reasons),
        bytes=sum(nbytes.values()),
        by_reason=ByReason(dict(documents), dict(tokens), dict(nbytes)),
        by_source=dict(per_source),
        unknown_tokens={reason: n for reason, n in unknown.items() if n},
        failing=failing,
        only=only,
        reject_reasons=dict(kinds),
        first_reject=_first_reject(part, rejects) if rejects else None,
    )


def _failures(failing_N: np.ndarray, bit: dict[str, int]) -> tuple[dict[str, int], dict[str, int]]:
    """Documents that fail each rule, and those that fail nothing else: by rule, and by family under the family's name."""
    any_: Counter[str] = Counter()
    only: Counter[str] = Counter()
    sets, counts = np.unique(failing_N, return_counts=True)
    for failing, count in zip(sets.tolist(), counts.tolist(), strict=True):
        names = [name for name, number in bit.items() if failing >> number & 1]
        any_.update(dict.fromkeys(names, count))
        if len(names) == 1:
            only[names[0]] += count
        families = {name.partition(":")[0] for name in names}
        if len(families) == 1 and ":" in names[0]:
            only[families.pop()] += count
    order = (*bit, *dict.fromkeys(name.partition(":")[0] for name in bit if ":" in name))
    return {n: any_[n] for n in bit if any_[n]}, {n: only[n] for n in order if only[n]}
