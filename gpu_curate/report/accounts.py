"""The accounts of a run: documents, tokens and bytes in = kept + dropped by reason + cut + rejected, or the run stops."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

from gpu_curate import __version__
from gpu_curate.config.own import codes
from gpu_curate.errors import FatalError
from gpu_curate.own_code import facts as code_facts
from gpu_curate.report.cuts import cut_facts
from gpu_curate.report.intake import failures, intake, problems
from gpu_curate.report.intake import warnings as intake_warnings
from gpu_curate.report.overlaps import overlap_facts, overlap_notes, overlap_warnings
from gpu_curate.report.reasons import ordered
from gpu_curate.report.scores import spreads
from gpu_curate.report.suits import rule_warnings
from gpu_curate.report.sums import Decided, Read
from gpu_curate.sources.listing import passed_over_sentence
from gpu_curate.stages import Context
from gpu_curate.stages.decisions import DecisionCounts
from gpu_curate.stages.documents.counts import DocumentCounts
from gpu_curate.stages.documents.schema import PASSED_OVER
from gpu_curate.stages.duplicates import DuplicateCounts
from gpu_curate.stages.reasons import OTHER_BITS
from gpu_curate.stages.rejects import REJECTED
from gpu_curate.stages.rule_values import rules_of_run
from gpu_curate.stages.scores import ScoreCounts
from gpu_curate.stages.text_counts import TextCounts
from gpu_curate.stages.tokens import TokenCounts
from gpu_curate.stages.unknown_tokens import MUCH, unknown_share
from gpu_curate.store.files import read_columns, read_json
from gpu_curate.store.fingerprint import versions
from gpu_curate.store.receipts import Counts, total

if TYPE_CHECKING:
    from gpu_curate.config import Config
    from gpu_curate.runs.pipeline import Outcome

LIBRARIES = ("numpy", "numba", "pyarrow", "tokenizers", "gigatoken", "xxhash")


def accounts(outcome: Outcome) -> dict[str, Any]:
    """report.json of a finished run.

    Raises:
        FatalError: documents or tokens in differ from kept + dropped (+ cut, + rejected), or a split from its documents.
    """
    context = outcome.context
    documents = [receipt.counts for receipt in context.receipts("documents", DocumentCounts)]
    decisions = [receipt.counts for receipt in context.receipts("decisions", DecisionCounts)]
    manifest = _manifest(context)
    read, decided = Read.of(documents), Decided.of(decisions, documents)
    by_source, by_reason = decided.by_source, decided.by_reason
    _add_not_drawn(context, manifest, by_reason)
    config, cut = context.config, cut_facts(context)
    units = {
        "documents": _unit(by_reason["documents"], sum(read.rejected.values()), config),
        "tokens": _unit(by_reason["tokens"], 0, config),
        "bytes": _unit(by_reason["bytes_of_text"], 0, config),
    }
    if cut is not None:  # what reasons count is after cuts
        for unit in ("tokens", "bytes"):
            units[unit] |= {"read": units[unit]["read"] + cut[unit], "cut": cut[unit]}
    _check(documents, units, manifest, context)
    _check_sides(context)
    duplicates, contamination = _duplicates(context), overlap_facts(context)
    sources = {
        s.name: _unit(by_source.get(s.name, Counter()), read.rejected.get(s.name, 0), config) for s in config.sources
    }
    said = intake(context, sources)
    warnings = [
        *outcome.warnings,
        *_warnings(context, units, by_source, manifest, duplicates, contamination),
        *_unknown_warnings(context),
        *rule_warnings(context, by_source),
        *intake_warnings({"sources": sources, **said}),
        *_incomplete({f for of in documents for f in of.incomplete}, said),
        *(text for _, text in problems(said)),
    ]
    return {
        "version": __version__,
        "run": str(context.run),
        **units,
        "passed_bytes": dict(sorted(read.passed.items())),
        "charset_evidence": {name: dict(counts.most_common()) for name, counts in sorted(read.evidence.items())},
        "skipped": dict(sorted(read.skipped.items())),
        "rejected_by_source": {name: unit["rejected"] for name, unit in sources.items() if unit["rejected"]},
        "sources": sources,
        **said,
        "failures": failures(said, config),
        "text": _text(context),
        "languages": _languages(context),
        "failing": dict(decided.failing.most_common()),
        "only": dict(decided.only.most_common()),
        "rules": rules_of_run(context),
        "spreads": spreads(context),
        "splits": {n: {"documents": s["documents"], "tokens": s["tokens"]} for n, s in manifest["splits"].items()},
        "split": manifest["split"],
        "mixture": manifest["mixture"],
        "duplicates": duplicates,
        "contamination": contamination,
        **({} if cut is None else {"cuts": cut}),
        "pii": {"counts": dict(read.pii), "samples": dict(read.samples)},
        "markup": _markup(context),
        "special_texts": sum(r.counts.special_texts for r in context.receipts("tokens", TokenCounts)),
        "unknown_tokens": _unknown_tokens(context),
        "steps": _steps(outcome),
        "seconds": round(outcome.seconds, 3),
        "backend": {"choice": outcome.backend.choice, "reason": outcome.backend.reason},
        "tokenizer": _tokenizer(context),
        "passed_over": _passed_over(context),
        "incomplete": sorted({f for of in documents for f in of.incomplete}),
        "warnings": list(dict.fromkeys(warnings)),
        "notes": overlap_notes(units, contamination),
        "versions": {"gpu_curate": __version__, **versions(LIBRARIES)},
        "code": code_facts(codes(config)),
        "fingerprints": outcome.fingerprint_of,
        "folders": context.folders,
    }


def _manifest(context: Context) -> dict[str, Any]:
    """The manifest of the shards; of a run that wrote none, what it would say."""
    path = context.box("shards").folder / "manifest.json"
    if path.exists():
        written: dict[str, Any] = read_json(path)
        return written
    none = {"documents": 0, "tokens": 0}
    validation = context.config.shards.validation
    return {
        "splits": {name: {**none, "shards": []} for name in ("train", "validation")},
        "split": {
            "bound": validation.bound,
            "pinned": validation.bound is not None,
            "tokens_asked": validation.tokens,
            "tokens_wanted": validation.tokens,
            "tokens_held": 0,
            "train_only_documents": 0,
        },
        "mixture": {"sources": [], "not_drawn": {**none, "bytes_of_text": 0}, "repeated": none},
        "incomplete_sources": sorted(
            {f for r in context.receipts("documents", DocumentCounts) for f in r.counts.incomplete}
        ),
    }


def _unit(counts: Counter[str], rejected: int, config: Config) -> dict[str, Any]:
    dropped = {reason: counts[reason] for reason in ordered(counts, config) if reason not in ("kept", REJECTED)}
    kept = counts.get("kept", 0)
    rejected += counts.get(REJECTED, 0)  # by a step behind documents/
    return {"read": kept + sum(dropped.values()) + rejected, "rejected": rejected, "dropped": dropped, "kept": kept}


def _add_not_drawn(context: Context, manifest: dict[str, Any], by_reason: dict[str, Counter[str]]) -> None:
    """Documents that the mixture left out are dropped under `mixture:not_drawn`; repeats are not documents."""
    left = manifest["mixture"]["not_drawn"]
    for unit, count in left.items():
        if count:
            by_reason[unit]["kept"] -= count
            by_reason[unit]["mixture:not_drawn"] += count


def _check(documents: list[DocumentCounts], units: dict[str, Any], manifest: dict[str, Any], context: Context) -> None:
    read = sum(of.documents + sum(of.rejected.values()) for of in documents)
    tokens = sum(r.counts.tokens for r in context.receipts("tokens", TokenCounts))
    repeated = manifest["mixture"]["repeated"]
    held = {unit: sum(s[unit] for s in manifest["splits"].values()) for unit in ("documents", "tokens")}
    for what, left, right in (
        ("documents read", read, units["documents"]["read"]),
        ("tokens made", tokens, units["tokens"]["read"]),
        ("documents in the splits", held["documents"], units["documents"]["kept"] + repeated["documents"]),
        ("tokens in the splits", held["tokens"], units["tokens"]["kept"] + repeated["tokens"]),
    ):
        if left != right:
            raise FatalError(f"the accounts do not add up: {what}: {left} against {right}")


def _check_sides(context: Context) -> None:
    """No cluster of duplicates on both sides of the split. Memory: 17 bytes a kept document."""
    import numpy as np
    import pyarrow.compute as pc

    if not context.has("duplicates") or not (context.box("shards").folder / "documents.parquet").exists():
        return
    clusters = read_columns(context.box("duplicates").folder / "clusters.parquet", ["doc_id", "component"])
    member, component = (clusters[c].to_numpy() for c in ("doc_id", "component"))
    rows = read_columns(context.box("shards").folder / "documents.parquet", ["doc_id", "split"])
    doc_id = rows["doc_id"].to_numpy()
    of_split = [pc.equal(rows["split"], name).to_numpy() for name in ("train", "validation")]
    train, validation = (np.unique(component[np.isin(member, doc_id[own])]) for own in of_split)
    both = np.intersect1d(train, validation)
    if len(both):
        raise FatalError(f"{len(both)} clusters of duplicates lie on both sides of the split, e.g. component {both[0]}")


def _incomplete(files: set[str], read: dict[str, Any]) -> list[str]:
    """A warning if files are cut that gave something."""
    named = {path for files in read["unreadable"].values() for path in files}
    incomplete = [path for path in sorted(files) if path not in named]
    if not incomplete:
        return []
    what = "1 file is" if len(incomplete) == 1 else f"{len(incomplete)} files are"
    return [f"{what} cut or damaged, and read as far as possible: {', '.join(incomplete[:3])}; see rejects/"]


def _passed_over(context: Context) -> dict[str, dict[str, Any]]:
    """Source or reference set → what its patterns hold and is not read, in counts and examples."""
    found: dict[str, dict[str, Any]] = {}
    for box, kind in (("documents", "source"), ("references", "reference")):
        if context.has(box) and (context.box(box).folder / PASSED_OVER).is_file():
            listed = read_json(context.box(box).folder / PASSED_OVER)
            found |= {f"{kind} {name}": facts for name, facts in listed.items()}
    return found


def _warnings(
    context: Context,
    units: dict[str, Any],
    by_source: dict[str, Counter[str]],
    manifest: dict[str, Any],
    duplicates: dict[str, Any],
    contamination: dict[str, Any],
) -> list[str]:
    config = context.config
    found = []
    documents = units["documents"]
    total = documents["read"] - documents["rejected"]
    for reason, count in documents["dropped"].items():
        if total and count == total:
            found.append(f"{reason} dropped all {total:,} documents")
        elif total >= 20 and count > 0.9 * total:
            found.append(f"{reason} dropped {count:,} of {total:,} documents")
    for source in config.sources:
        counts = by_source.get(source.name)
        if counts is None or not sum(counts.values()):
            continue
        copies = sum(counts[r] for r in ("exact_duplicate", "fuzzy_duplicate"))
        share = copies / sum(counts.values())
        fuzzy = config.dedup.fuzzy
        if fuzzy is not None and share > fuzzy.max_source_share:
            found.append(
                f"source {source.name}: {share:.0%} of its documents are duplicates (dedup.fuzzy.max_source_share)"
            )
    for drawn in manifest["mixture"]["sources"]:
        asked = drawn["asked_tokens"]
        if asked is not None and drawn["drawn_tokens"] < asked * 0.99:
            found.append(
                f"source {drawn['source']}: {drawn['drawn_tokens']:,} of the {asked:,} tokens of its share were drawn: "
                f"{drawn['epochs']} epochs of what it has (shards.max_epochs is {config.shards.max_epochs})"
            )
    weighed = {s.name for s in config.sources if s.weight is not None}
    left = manifest["mixture"]["not_drawn"]["tokens"]
    drawn = [d for d in manifest["mixture"]["sources"] if d["source"] in weighed]
    if drawn and config.shards.mixture_tokens is None and left > sum(d["drawn_tokens"] for d in drawn):
        scarcest = max(drawn, key=lambda d: d["epochs"])["source"]
        found.append(
            f"{left:,} tokens were not drawn: source {scarcest} has the fewest for its weight, and without "
            "shards.mixture_tokens none is repeated"
        )
    fuzzy = config.dedup.fuzzy
    if fuzzy is not None and fuzzy.scope == "group":
        found.append(
            "scope: group: near-copies in different groups are not duplicates and may lie on both sides of the split"
        )
    for name, facts in _passed_over(context).items():
        found.append(f"{name}: {passed_over_sentence(facts)}")
    split = manifest["split"]
    if not split["pinned"] and split["tokens_wanted"] < split["tokens_asked"]:
        found.append(
            f"validation holds {split['tokens_held']:,} tokens, not the {split['tokens_asked']:,} asked for: "
            f"shards.validation.max_fraction is {config.shards.validation.max_fraction}"
        )
    found += overlap_warnings(config, contamination, total)
    found += _read_by_cpu(context)
    lost = duplicates.get("lost_clusters", 0)
    if lost:
        found.append(
            f"{lost} cluster{'s' if lost > 1 else ''} of duplicates went whole: the survivor failed another rule"
        )
    return found


def _read_by_cpu(context: Context) -> list[str]:
    """A warning if partitions by reference were not what cuDF read."""
    boxes = ("signatures", "scores", "contamination")
    receipts = [r for box in boxes for r in context.receipts(box, TextCounts)]
    reasons = {r.part: r.counts.read_by_cpu for r in receipts if r.counts.read_by_cpu is not None}
    if not reasons:
        return []
    of, (part, reason) = len(context.box("documents").parts()), min(reasons.items())
    return [f"the CPU read the text of {len(reasons)} of {of} partitions for the GPU, e.g. part-{part}: {reason}"]


def _lost_clusters(context: Context) -> int:
    """Clusters none of whose members was kept, though a dropped copy failed nothing else."""
    import numpy as np

    if not context.receipts("duplicates", DuplicateCounts):
        return 0
    own = np.uint64(sum(1 << OTHER_BITS[r] for r in ("exact_duplicate", "fuzzy_duplicate")))
    clusters = read_columns(context.box("duplicates").folder / "clusters.parquet", ["doc_id", "cluster"])
    doc_id, cluster = (clusters[c].to_numpy() for c in ("doc_id", "cluster"))
    kept, only_copy = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for part in context.box("decisions").parts():
        ids, keep, failing = context.box("decisions").columns(part, "doc_id", "keep", "failing")
        where = np.searchsorted(doc_id, ids)
        where[where == len(doc_id)] = 0
        inside = doc_id[where] == ids if len(doc_id) else np.zeros(len(ids), bool)
        kept.append(cluster[where[inside & keep]])
        only_copy.append(cluster[where[inside & ~keep & (failing & ~own == 0)]])
    return len(np.setdiff1d(np.concatenate(only_copy), np.concatenate(kept)))


def _text(context: Context) -> dict[str, dict[str, int]]:
    """Source → documents, bytes, characters, tokens (without the end-of-text ones) of all it gave, and tokens kept.

    A partition holds one source only, so the receipts tell.
    """
    found: dict[str, Counter[str]] = defaultdict(Counter)
    scores = {r.part: r.counts for r in context.receipts("scores", ScoreCounts)}
    tokens = {r.part: r.counts for r in context.receipts("tokens", TokenCounts)}
    decisions = {r.part: r.counts for r in context.receipts("decisions", DecisionCounts)}
    for receipt in context.receipts("documents", DocumentCounts):
        part, of = receipt.part, receipt.counts
        for source in of.sources if part in decisions else ():  # one, or none in an empty partition
            found[source].update(
                documents=of.documents,
                bytes=of.bytes,
                chars=scores[part].chars,
                tokens=tokens[part].tokens - of.documents,
                tokens_kept=decisions[part].by_reason.tokens.get("kept", 0),
            )
    return {source: dict(counts) for source, counts in found.items()}


def _languages(context: Context) -> dict[str, int]:
    """Documents per language, the commonest first; empty where no model was asked."""
    counts: Counter[str] = Counter()
    for receipt in context.receipts("scores", ScoreCounts):
        counts.update(receipt.counts.languages)
    return dict(counts.most_common())


def _markup(context: Context) -> dict[str, dict[str, int]]:
    """Source → characters of markup and of the text extracted from it, and of a sample of both also the tokens.

    The sample is the first documents of the first partitions, a MiB of markup at most.
    """
    from gpu_curate.stages.documents.schema import MARKUP_SAMPLE_CHARS, MARKUP_SUFFIX
    from gpu_curate.stages.tokens import open_encoder

    found: dict[str, Counter[str]] = defaultdict(Counter)
    pairs: dict[str, list[tuple[str, str]]] = defaultdict(list)
    box = context.box("documents")
    for receipt in box.receipts(DocumentCounts):
        if not receipt.counts.markup:
            continue
        source = next(iter(receipt.counts.sources))
        found[source].update(receipt.counts.markup)
        sampled = any(f.file.endswith(MARKUP_SUFFIX) for f in receipt.files)
        if sampled and sum(len(m) for m, _ in pairs[source]) < 16 * MARKUP_SAMPLE_CHARS:
            pairs[source] += read_json(box.verified(receipt.part, MARKUP_SUFFIX))
    for source, sample in pairs.items() if context.receipts("tokens", TokenCounts) else ():
        from gpu_curate.text.normalize import well_formed  # Numba: most reports do without

        encoder = open_encoder(context.box("tokens").folder)
        for name, texts in (("markup", [m for m, _ in sample]), ("text", [t for _, t in sample])):
            found[source][f"sample_{name}_chars"] = sum(map(len, texts))
            found[source][f"sample_{name}_tokens"] = len(encoder.encode_batch([well_formed(t) for t in texts])[0])
    return {source: dict(counts) for source, counts in found.items()}


def _duplicates(context: Context) -> dict[str, Any]:
    receipts = context.receipts("duplicates", DuplicateCounts)
    if not receipts:
        return {}
    of = receipts[0].counts
    facts = {
        "candidate_pairs": of.candidate_pairs,
        "components": of.components,
        "exact": of.exact,
        "fuzzy": of.fuzzy,
        "compared_pairs": of.compared_pairs,
        "kept_apart": of.kept_apart,
        "lost_clusters": _lost_clusters(context),
    }
    return {name: value for name, value in facts.items() if value is not None}


def _unknown_tokens(context: Context) -> dict[str, Any]:
    """The tokenizer's unknown token, and how often it stands in what was read and in what is kept."""
    of = [receipt.counts for receipt in context.receipts("tokens", TokenCounts)]
    unknown, _, share = unknown_share(context)
    return {
        "token": of[0].unknown_token if of else None,
        "read": sum(c.unknown_tokens for c in of),
        "kept": unknown,
        "share_of_kept": round(share, 6),
        "texts_without_tokens": sum(c.without_tokens for c in of),
    }


def _unknown_warnings(context: Context) -> list[str]:
    found = []
    unknown = _unknown_tokens(context)
    if unknown["share_of_kept"] >= MUCH:
        found.append(
            f"{unknown['share_of_kept']:.1%} of the tokens that are kept ({unknown['kept']}) are {unknown['token']!r}: the "
            "tokenizer's vocabulary lacks characters of the text"
        )
    documents = sum(r.counts.documents for r in context.receipts("tokens", TokenCounts))
    without = unknown["texts_without_tokens"]
    if without > documents * MUCH:
        found.append(
            f"the tokenizer makes no token of {without} of {documents} texts: its vocabulary lacks their characters"
        )
    return found


def _tokenizer(context: Context) -> dict[str, Any]:
    receipts = context.receipts("tokens", TokenCounts)
    keys = ("identity", "vocab_size", "eot_id", "dtype", "library", "library_reason")
    return {k: getattr(receipts[0].counts, k) for k in keys} if receipts else {}


def _steps(outcome: Outcome) -> list[dict[str, Any]]:
    """Cost of every box: `seconds` of the workers' time and `cpu_seconds`, reused partitions with what they cost when
    they were made; `wall_seconds` of this run, from the start of the first task to the end of the last, and
    `waited_seconds` before that, when all workers were busy with other steps."""
    steps = []
    for name in outcome.fingerprint_of:
        receipts = outcome.context.receipts(name, outcome.own.get(name, Counts))
        backends = sorted({r.counts.backend for r in receipts})
        steps.append(
            {
                "name": name,
                "seconds": round(sum(r.cost.seconds for r in receipts), 3),
                "cpu_seconds": round(sum(r.cost.cpu_seconds for r in receipts), 3),
                "compile_seconds": round(sum(r.cost.compile_seconds for r in receipts), 3),
                "wall_seconds": outcome.wall.get(name, 0.0),
                "waited_seconds": outcome.waited.get(name, 0.0),
                "bytes": sum(r.counts.bytes for r in receipts),
                "documents": sum(r.counts.documents for r in receipts),
                "partitions": len(receipts),
                "reused": outcome.reused.get(name, 0),
                "backend": "+".join(backends) or outcome.backend.choice,
                **({"counts": total(r.counts for r in receipts)} if name in outcome.own else {}),
            }
        )
    return steps
