"""Decisions: keep a document, or drop it with the first failing rule as reason and the partner where there is one.

# N documents
"""

from __future__ import annotations

from collections import Counter
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gpu_curate.config import Config
from gpu_curate.quality import bits, evaluate, identity
from gpu_curate.sources import Reject
from gpu_curate.stages import Context, Stage, Stopwatch
from gpu_curate.stages.contamination import benchmarks
from gpu_curate.stages.duplicates import FIRST_REFERENCE, clusters_of
from gpu_curate.stages.reasons import OTHER_BITS, in_order
from gpu_curate.stages.rejects import REJECTED, LateRejects, add_kinds, first_reject, kind_of, late_rejects
from gpu_curate.stages.rule_values import check_columns_hold_numbers, reject_wordy, rule_values, with_rules
from gpu_curate.stages.tokens import lengths, unknown_tokens
from gpu_curate.store.files import write_table

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


class Decisions(Stage):
    """Apply every threshold to the stored scores. Moving one re-runs this box and the shards, nothing else.

    Reads: documents(doc_id), signatures(bytes), scores, contamination, duplicates, tokens(lengths).
    Writes: keep, reason, failing, partner, tokens, bytes.
    Loosening a threshold never adds a drop: survivors are chosen among all documents, before any threshold. The price is
    that a cluster goes with its survivor if the survivor fails a rule; the report counts these.
    """

    name: ClassVar[str] = "decisions"
    follows: ClassVar[str | None] = "documents"
    code: ClassVar[tuple[str, ...]] = (
        "stages.decisions",
        "stages.rejects",
        "stages.reasons",
        "stages.rule_values",
        "quality",
    )

    def reads(self, config: Config) -> tuple[str, ...]:
        boxes = ["signatures", "scores", "tokens"]
        if config.dedup.exact or config.dedup.fuzzy is not None:
            boxes.append("duplicates")
        if benchmarks(config):
            boxes.append("contamination")
        return tuple(boxes)

    def settings(self, config: Config) -> Any:
        return {
            "quality": identity(config.quality),
            "language": config.language.model_dump(include={"keep", "min_score"}),
            "min_tokens": config.min_tokens,
            "max_coverage": [(r.name, r.max_coverage) for r in benchmarks(config)],
        }

    def prepare(self, context: Context) -> None:
        check_columns_hold_numbers(context)

    def run(self, context: Context, part: str, task: Any) -> dict[str, Any]:
        watch = Stopwatch()
        config = context.config
        doc_id_N = context.box("documents").read_table(part, ["doc_id"])["doc_id"].to_numpy()
        nbytes_N = context.box("signatures").columns(part, "bytes")[0]
        tokens_N = lengths(context, part)
        values = rule_values(context, part)
        failing_N = evaluate(values, config.quality).astype(np.uint64)
        partner_N = np.full(len(doc_id_N), -1, np.int64)

        def fail(where: np.ndarray, reason: str, partner: np.ndarray | None = None) -> None:
            failing_N[where] |= np.uint64(1 << OTHER_BITS[reason])
            if partner is not None:
                partner_N[where] = np.where(partner_N[where] < 0, partner[where], partner_N[where])

        fail(nbytes_N == 0, "empty")
        if config.language.model is not None and config.language.keep is not None:
            from gpu_curate.text.language import keep_labels

            wanted = pa.array(sorted(keep_labels(config.language)), pa.string())
            languages = context.box("scores").read_table(part, ["language"])["language"].cast(pa.string())
            known = pc.is_in(languages, wanted).to_numpy()
            fail(~known | (values["language_score"] < config.language.min_score), "language")
        if context.has("duplicates") and len(doc_id_N):
            self._duplicates(context, doc_id_N, fail)
        if context.has("contamination"):
            box = context.box("contamination")
            for r in benchmarks(config):
                coverage, item = box.columns(part, f"coverage_{r.name}", f"item_{r.name}")
                fail(coverage > np.float32(r.max_coverage), "contaminated", item)
        fail(tokens_N - 1 < config.min_tokens, "too_few_tokens")
        own = LateRejects(context, self.name, part)
        reject_wordy(values, config.quality, own)
        rejects = own.reasons | late_rejects(context, "tokens", part) | late_rejects(context, "scores", part)
        rejected = np.fromiter(rejects, np.int64)  # what a library could not take is no document, whatever else it is
        failing_N[rejected], partner_N[rejected] = np.uint64(1 << OTHER_BITS[REJECTED]), -1
        reasons = in_order(bits(config.quality))
        table = with_rules(_table(reasons, doc_id_N, failing_N, partner_N, tokens_N, nbytes_N), config)
        box = context.box(self.name)
        path = box.path(part, ".parquet")
        write_table(path, table)
        facts = {"documents": len(doc_id_N), "bytes": int(nbytes_N.sum()), "backend": "cpu"}
        if rejects:
            facts |= _rejects(context, part, rejects)
        late, counts = own.write()
        accounts = _accounts(context, part, table, reasons)
        return box.commit(part, [path, *late], {**facts, **counts, **accounts, **watch.facts()})

    def _duplicates(self, context: Context, doc_id_N: np.ndarray, fail: Any) -> None:
        row, clusters = clusters_of(context, doc_id_N)
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


def _rejects(context: Context, part: str, rejects: dict[int, str]) -> dict[str, Any]:
    """What the receipt says of late rejects."""
    kinds: Counter[str] = Counter()
    for reason in rejects.values():
        add_kinds(kinds, {kind_of(reason): 1})
    number = min(rejects)
    row = context.box("documents").read_table(part, ["path", "row"]).slice(number, 1).to_pylist()[0]
    first = first_reject(Reject(row["row"], None, rejects[number]), row["path"])
    return {"reject_reasons": dict(kinds), "first_reject": first}


def _accounts(context: Context, part: str, table: pa.Table, bit: dict[str, int]) -> dict[str, Any]:
    """What became of the partition: documents, tokens and bytes by reason; the same per source; every failing rule, and
    what it alone takes."""
    sources = context.box("documents").read_table(part, ["source"])["source"].cast(pa.string()).to_pylist()
    reasons = [r or "kept" for r in table["reason"].cast(pa.string()).to_pylist()]
    documents: Counter[str] = Counter(reasons)
    per_source: Counter[str] = Counter(f"{s}\t{r}" for s, r in zip(sources, reasons, strict=True))
    tokens: Counter[str] = Counter()
    nbytes: Counter[str] = Counter()
    for reason, t, b in zip(reasons, table["tokens"].to_pylist(), table["bytes"].to_pylist(), strict=True):
        tokens[reason] += t
        nbytes[reason] += b
    unknown: Counter[str] = Counter()
    unknown_N = unknown_tokens(context, part)
    if unknown_N is not None:
        for reason, n in zip(reasons, unknown_N.tolist(), strict=True):
            unknown[reason] += n
    failing = table["failing"].to_numpy()
    failing, only = _failures(failing[failing != np.uint64(1 << OTHER_BITS[REJECTED])], bit)
    return {
        "by_reason": {"documents": dict(documents), "tokens": dict(tokens), "bytes_of_text": dict(nbytes)},
        "by_source": dict(per_source),
        "unknown_tokens": {reason: n for reason, n in unknown.items() if n},
        "failing": failing,
        "only": only,
    }


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
