"""Why one document was kept or dropped, by what, beside what, and where its tokens lie: `gpu-curate explain`."""

from __future__ import annotations

import difflib
import re
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from gpu_curate.inquiry.locate import Found, locate
from gpu_curate.inquiry.stored import Stored
from gpu_curate.ops.minhash.plain import FoldTable
from gpu_curate.privacy import cleaned
from gpu_curate.quality import rules
from gpu_curate.quality.columns import PREFIX
from gpu_curate.quality.judges import UNSCORED, JudgeRule
from gpu_curate.report.cuts import cut_texts
from gpu_curate.report.marks import marks
from gpu_curate.report.reasons import meaning
from gpu_curate.report.samples import Document, Library, shared_runs
from gpu_curate.stages.cuts import cuts_of
from gpu_curate.stages.duplicates import read_clusters
from gpu_curate.stages.order import benchmarks_of
from gpu_curate.stages.overlaps import box_of
from gpu_curate.stages.reasons import NOT_DRAWN
from gpu_curate.stages.reference_sets import fields_of
from gpu_curate.stages.rule_values import column_values
from gpu_curate.stages.sections import Reference

DIFF_WORDS = 2000  # of each text that a diff compares; its cost grows with their product
_RUNS = 20  # runs of words shared with a benchmark's item that are told


def explain(stored: Stored, wanted: str | int) -> dict[str, Any]:
    """Everything that the run knows of one document.

    Args:
        wanted: a doc_id, `source:path:row`, a URL or a piece of its text; see `locate.locate`.
    Returns:
        run, doc_id, source, path, row, columns (those that its source carries), chars, bytes, tokens, text (its first MiB);
        kept, reason (mixture:not_drawn of one that passed every rule and is in no shard), why, failing (all rules that fail);
        rules: per rule that is on {rule, score, value, bound, limit, passes}; language, where there is a model;
        partner: what it was dropped for, {doc_id, source, path, row, kind, jaccard (exact), text, diff: pieces
        [same | here | there, text]}; cluster: {component, cluster, size, survivor, kind}; contamination: per set {set,
        coverage, max_coverage, on_match, hits, item, shared: runs of words as the document has them}; marks: spans of the text that its
        reason counts; tokens_at: per place {split, position, tokens, files: [file, first token, tokens]};
        cuts: ranges that were taken out of it {start, end, rule, text}, of a run whose recipe cuts; bytes and tokens are then
        those of what is left, and text, chars and rules those of the text as it was read;
        scanned: {documents, bytes, seconds} where it was looked for by URL or text.
    Raises:
        ConfigError: there is no such document, or more than one.
    """
    found = locate(stored, wanted)
    (decided,) = stored.table("decisions", found.part).slice(found.number, 1).to_pylist()
    partner_id = decided["partner"]
    library = Library(stored.context)
    matched = _contamination(stored, found)
    asked = {
        found.doc_id,
        *([] if partner_id is None else [partner_id]),
        *(i for m in matched for i in m["texts"]),
    }
    documents = library.read(asked)
    document = documents[found.doc_id]
    reason, places = decided["reason"], _tokens_at(stored, found.doc_id)
    failing = stored.failing(decided["failing"])
    if reason is None and not places and stored.not_drawn()["documents"]:
        reason = NOT_DRAWN
    for match in matched:
        texts = [documents[i].text for i in match.pop("texts") if i in documents]
        width = match.pop("ngram_words")
        match["shared"] = [run for text in texts for run in shared_runs(document.text, text, width)][:_RUNS]
        match["text"] = "\n\n".join(texts) if texts else None
    facts = {
        "run": str(stored.run),
        **_place(document),
        "columns": _columns(stored, found),
        "chars": document.chars,
        "bytes": decided["bytes"],
        "tokens": decided["tokens"],
        "kept": reason is None,
        "reason": reason,
        "why": meaning(reason or "kept", stored.config),
        "failing": failing,
        "rules": _rules(stored, found),
        "partner": _partner(stored, document, documents.get(partner_id), failing) if partner_id is not None else None,
        "cluster": _cluster(stored, found.doc_id),
        "contamination": matched,
        "tokens_at": places,
        "text": document.text,
        "marks": marks(document.text, reason) if reason else [],
    }
    if stored.has("cuts"):
        ranges = cuts_of(stored.context, found.part).get(found.number, [])
        texts = cut_texts(document.text, ranges)
        facts["cuts"] = [{**c._asdict(), "text": t} for c, t in zip(ranges, texts, strict=True)]
        for cut in facts["cuts"]:
            del cut["number"]
    return facts | ({} if found.scanned is None else {"scanned": found.scanned})


def _place(document: Document) -> dict[str, Any]:
    place = {name: getattr(document, name) for name in ("doc_id", "source", "path", "row")}
    shown: dict[str, Any] = cleaned(place)
    return shown


def _columns(stored: Stored, found: Found) -> dict[str, Any]:
    """What the source carries beside the text."""
    with pq.ParquetFile(stored.path("documents", found.part), memory_map=True) as file:
        fixed = ("doc_id", "text", "source", "path", "row")
        names = [n for n in file.schema_arrow.names if n not in fixed]
        row = file.read(names, use_threads=False).slice(found.number, 1).to_pylist()[0] if names else {}
    shown: dict[str, Any] = cleaned({name: value for name, value in row.items() if value is not None})
    return shown


def _rules(stored: Stored, found: Found) -> list[dict[str, Any]]:
    """Every rule that is on, with the document's value."""
    config = stored.config
    scores = stored.table("scores", found.part).slice(found.number, 1).to_pylist()[0]
    (decided,) = stored.table("decisions", found.part, ["tokens", "failing"]).slice(found.number, 1).to_pylist()
    failing = stored.failing(decided["failing"])
    told = []
    for rule in rules(config.quality):
        if rule.score.startswith(PREFIX):
            name = rule.score.removeprefix(PREFIX)
            value = column_values(stored.context, found.part, [name])[rule.score].text[found.number].as_py()
            value = cleaned({name: value})[name]
            bound = list(getattr(rule, "among", ())) if rule.bound == "in" else rule.limit
            told.append(_rule(rule.name, rule.score, value, rule.bound, bound, rule.name not in failing))
        elif isinstance(rule, JudgeRule):
            value = None if scores[rule.score] == UNSCORED else scores[rule.score]
            told.append(_rule(rule.name, rule.score, value, rule.bound, rule.limit, rule.name not in failing))
        elif rule.limit is not None:
            value = scores[rule.score]
            passes = value >= rule.limit if rule.bound == "min" else value <= rule.limit
            told.append(_rule(rule.name, rule.score, value, rule.bound, rule.limit, passes))
    if config.language.model is not None and config.language.keep is not None:
        value = f"{scores['language']} {scores['language_score']:.2f}"
        limit = f"{', '.join(config.language.keep)} {config.language.min_score:g}"
        told.append(_rule("language", "language", value, "min", limit, "language" not in failing))
    tokens = decided["tokens"] - 1
    told.append(_rule("too_few_tokens", "tokens", tokens, "min", config.min_tokens, "too_few_tokens" not in failing))
    return told


def _rule(name: str, score: str, value: Any, bound: str, limit: Any, passes: bool) -> dict[str, Any]:
    return {"rule": name, "score": score, "value": value, "bound": bound, "limit": limit, "passes": bool(passes)}


def _partner(stored: Stored, document: Document, other: Document | None, failing: list[str]) -> dict[str, Any] | None:
    if other is None:
        return None
    kind = next(
        (name for name in failing if name.endswith("_duplicate")), "contaminated"
    )  # of a duplicate the survivor
    return {
        **_place(other),
        "kind": kind,
        "jaccard": similarity(stored, document.text, other.text),
        "text": other.text,
        "diff": word_diff(document.text, other.text),
    }


def similarity(stored: Stored, a: str, b: str) -> float:
    """Exact Jaccard similarity of the shingles of two texts, of the run's width. By sets of words: Numba takes a second to load."""
    fuzzy = stored.config.dedup.fuzzy
    fold, n = FoldTable(), 5 if fuzzy is None else fuzzy.shingle_words
    sets = []
    for text in (a, b):
        words = text.translate(fold).split()
        width = min(n, len(words))
        sets.append({tuple(words[i : i + width]) for i in range(len(words) - width + 1)} if words else set())
    either = len(sets[0] | sets[1])
    return len(sets[0] & sets[1]) / either if either else 0.0


def word_diff(here: str, there: str) -> list[list[str]]:
    """Two texts word by word, their first DIFF_WORDS words: pieces [same | here | there, text]."""
    a, b = (re.findall(r"\s+|\S+", text)[: 2 * DIFF_WORDS] for text in (here, there))
    pieces = []
    for kind, a0, a1, b0, b1 in difflib.SequenceMatcher(None, a, b, autojunk=False).get_opcodes():
        if kind == "equal":
            pieces.append(["same", "".join(a[a0:a1])])
            continue
        if a1 > a0:
            pieces.append(["here", "".join(a[a0:a1])])
        if b1 > b0:
            pieces.append(["there", "".join(b[b0:b1])])
    return pieces


def _cluster(stored: Stored, doc_id: int) -> dict[str, Any] | None:
    if not stored.has("duplicates"):
        return None
    rows = read_clusters(stored.context, doc_id, doc_id)
    if not rows.num_rows:
        return None
    row = rows.slice(0, 1).to_pylist()[0]
    return {name: row[name] for name in ("component", "cluster", "size", "survivor", "kind")}


def _contamination(stored: Stored, found: Found) -> list[dict[str, Any]]:
    """Per set what the document holds of an item; sets of which it holds nothing are left out."""
    box = box_of(stored.context)
    if not stored.has(box):
        return []
    told = []
    for reference, part in benchmarks_of(stored.config):
        columns = [f"{key}_{reference.name}" for key in ("coverage", "hits", "item")]
        row = stored.table(box, found.part, columns).slice(found.number, 1).to_pylist()[0]
        coverage, hits, item = (row[name] for name in columns)
        if hits:
            told.append(
                {
                    "set": reference.name,
                    "coverage": coverage,
                    "max_coverage": reference.max_coverage,
                    "on_match": reference.on_match,
                    "hits": hits,
                    "item": -1 if item is None else item,
                    "texts": [] if item is None or item < 0 else _texts_of(stored, reference, part, item),
                    "ngram_words": reference.ngram_words,
                }
            )
    return told


def _texts_of(stored: Stored, reference: Reference, part: str, item: int) -> list[int]:
    """doc_ids of the texts of an item: itself, or those of all its fields."""
    if reference.field_weights is None:
        return [item]
    (doc_id_I,) = stored.columns("references", part, "doc_id")
    found: list[int] = doc_id_I[fields_of(stored.context, part)["item"].to_numpy() == item].tolist()
    return found


def _tokens_at(stored: Stored, doc_id: int) -> list[dict[str, Any]]:
    """Where a document's tokens lie in the shards: several places if a mixture repeats it."""
    from gpu_curate.loader import read_manifest

    if not stored.has("shards") or not (path := stored.box("shards").folder / "documents.parquet").exists():
        return []
    manifest = read_manifest(path.parent) or {"splits": {}}
    found = []
    with pq.ParquetFile(path, memory_map=True) as file:
        ids = file.read(["doc_id"])["doc_id"].to_numpy()
        for row in np.flatnonzero(ids == doc_id).tolist():
            entry = _row(file, row, ["split", "position", "tokens"])
            start, stop = entry["position"], entry["position"] + entry["tokens"]
            files, begin = [], 0
            for shard in manifest["splits"].get(entry["split"], {"shards": []})["shards"]:
                low, high = max(start, begin), min(stop, begin + shard["tokens"])
                if low < high:
                    files.append([shard["file"], low - begin, high - low])
                begin += shard["tokens"]
            found.append({**entry, "files": files})
    return found


def _row(file: pq.ParquetFile, row: int, columns: list[str]) -> dict[str, Any]:
    """One row, from the row group that holds it."""
    for number in range(file.metadata.num_row_groups):
        rows = file.metadata.row_group(number).num_rows
        if row < rows:
            table: pa.Table = file.read_row_group(number, columns=columns, use_threads=False)
            return dict(table.slice(row, 1).to_pylist()[0])
        row -= rows
    raise IndexError(row)
