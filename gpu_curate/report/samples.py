"""A few documents of a finished run, to be looked at. The same run gives the same ones.

Cost: receipts; at most MAX_PARTITIONS partitions of decisions/ (and one column of scores/ for each rule); the row
groups of documents/ that hold a chosen document, one in memory at a time.
"""

from __future__ import annotations

import functools
import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from gpu_curate.document import ROW_BITS
from gpu_curate.ops.mix import fmix64
from gpu_curate.ops.words import UNIT, UNSPACED, fold_table, word_weight
from gpu_curate.quality.columns import PREFIX
from gpu_curate.quality.judges import UNSCORED
from gpu_curate.report.reasons import column_of, group, scored
from gpu_curate.stages import Context
from gpu_curate.stages.contamination import ContaminationCounts
from gpu_curate.stages.decisions import DecisionCounts
from gpu_curate.stages.duplicates import FIRST_REFERENCE, clusters_of
from gpu_curate.stages.overlaps import box_of
from gpu_curate.stages.partition_text import host_text, verified_text
from gpu_curate.stages.rule_values import column_values
from gpu_curate.store.artifact import Box
from gpu_curate.store.snapshot import Snapshot

MAX_PARTITIONS = 6
PER_REASON = 3
PER_REASON_OF_MANY = 2  # of quality rules, where there are more than _MANY reasons: bounds the page
_MANY = 15
EXCERPT_CHARS = 300
_DIFF_WORDS = 2000  # of each text that `differences` compares; its cost grows with their product
_LOOK_CHARS = 1 << 20  # of a text that is searched for an overlap or a difference


@dataclass(frozen=True)
class Document:
    """A document, or an item of a reference set."""

    doc_id: int
    source: str
    path: str
    row: int
    text: str  # its first _LOOK_CHARS characters
    chars: int


@dataclass(frozen=True)
class Drawn:
    """A document chosen to stand for a reason, or for those kept."""

    doc_id: int
    partner: int | None
    jaccard: float | None  # to the partner, where it was measured
    tokens: int
    score: object  # value of the score that failed, for rules that have one


class Library:
    """Documents and reference items by doc_id. Finds a partition by bisection over footers, reads row groups."""

    def __init__(self, context: Context):
        self._context = context

    def read(self, doc_ids: Iterable[int]) -> dict[int, Document]:
        """Those of `doc_ids` that exist."""
        wanted: dict[tuple[str, str], list[int]] = defaultdict(list)
        for doc_id in sorted(set(doc_ids)):
            box = "documents" if doc_id < FIRST_REFERENCE else "references"
            for part in self._holders(box, doc_id):
                wanted[box, part].append(doc_id)
        found: dict[int, Document] = {}
        for (box, part), ids in wanted.items():
            of = self._context.box(box)
            file = pq.ParquetFile(of.verified(part, ".parquet"), memory_map=True)
            texts = verified_text(of, part)
            for number, low, high in _row_groups(file):
                own = [i for i in ids if low <= i <= high]
                if own:
                    found.update((d.doc_id, d) for d in _take(texts, file, number, own))
        return found

    def _holders(self, box: str, doc_id: int) -> list[str]:
        """Partitions that may hold a document: one, where partitions are in the order of doc_ids."""
        if box == "documents" and not self._snapshot.plain:
            tasks = set(self._snapshot.tasks_of(doc_id >> ROW_BITS))
            return [part for part in self._parts(box) if part.partition("-")[0] in tasks]
        part = self._part(box, doc_id)
        return [] if part is None else [part]

    @functools.cached_property
    def _snapshot(self) -> Snapshot:
        return self._context.snapshot()

    def _part(self, box: str, doc_id: int) -> str | None:
        parts = self._parts(box)
        place = bisect_right(parts, doc_id, key=lambda part: self._first(box, part)) - 1
        return parts[place] if place >= 0 else None

    @functools.cache  # noqa: B019  one library a report
    def _parts(self, box: str) -> list[str]:
        """Partitions with a document, in the order of their doc_ids."""
        if not self._context.has(box):
            return []
        of = self._context.box(box)
        return [r.part for r in of.receipts() if r.counts.documents]

    @functools.cache  # noqa: B019
    def _first(self, box: str, part: str) -> int:
        _, first, _ = next(_row_groups(pq.ParquetFile(self._context.box(box).path(part, ".parquet"))))
        return first


def _row_groups(file: pq.ParquetFile) -> Iterator[tuple[int, int, int]]:
    """Number, lowest and highest doc_id of every row group, from the footer."""
    column = file.schema_arrow.get_field_index("doc_id")
    for number in range(file.metadata.num_row_groups):
        statistics = file.metadata.row_group(number).column(column).statistics
        yield number, statistics.min, statistics.max


def _take(texts: Path, file: pq.ParquetFile, row_group: int, doc_ids: Sequence[int]) -> list[Document]:
    columns = ["doc_id", "source", "path", "row"]
    table = file.read_row_group(row_group, columns=columns, use_threads=False)
    ids = table["doc_id"].to_numpy()
    rows = np.flatnonzero(np.isin(ids, doc_ids))
    taken = table.take(pa.array(rows))
    before = sum(file.metadata.row_group(g).num_rows for g in range(row_group))
    column = host_text(texts, rows + before).to_arrow()
    chars = pc.utf8_length(column).to_pylist()
    text = pc.utf8_slice_codeunits(column, 0, _LOOK_CHARS).to_pylist()
    places = (taken[c].cast(pa.string()).to_pylist() for c in ("source", "path"))
    rows_of_file = taken["row"].to_pylist()
    return [Document(*v) for v in zip(taken["doc_id"].to_pylist(), *places, rows_of_file, text, chars, strict=True)]


# ---------------------------------------------------------------------------------------------- documents per reason


def draw_samples(context: Context) -> tuple[dict[str, list[Drawn]], list[str]]:
    """Documents for every reason that dropped some, and kept ones, and the partitions they were taken from.

    Partitions: greedily those that serve most reasons. Of a partition: the lowest fmix64(doc_id); of fuzzy duplicates
    the least similar one, the most similar one and the one between.
    """
    box = context.box("decisions")
    counts = {r.part: r.counts.by_reason.documents for r in box.receipts(DecisionCounts)}
    totals: dict[str, int] = defaultdict(int)
    for of_part in counts.values():
        for reason, n in of_part.items():
            totals[reason] += n
    few = len(totals) <= _MANY
    each = {r: PER_REASON if few or group(r) != "quality" else PER_REASON_OF_MANY for r in totals}
    need = {reason: min(each[reason], n) for reason, n in totals.items() if n}
    pools: dict[str, list[Drawn]] = defaultdict(list)
    used: list[str] = []
    while need and len(used) < MAX_PARTITIONS:
        part = max(sorted(counts), key=lambda p: sum(min(n, counts[p].get(r, 0)) for r, n in need.items()))
        own = {r: n for r, n in need.items() if counts[part].get(r, 0)}
        if not own:
            break
        for reason, documents in _draw(context, part, {r: each[r] for r in own}).items():
            pools[reason] += documents
        used.append(part)
        need = {r: n - counts[part].get(r, 0) for r, n in need.items() if n > counts[part].get(r, 0)}
        del counts[part]
    chosen = {reason: documents[: each[reason]] for reason, documents in pools.items()}
    measured = sorted((d for d in pools["fuzzy_duplicate"] if d.jaccard is not None), key=lambda d: d.jaccard or 0.0)
    if len(measured) >= PER_REASON:  # they may be of several partitions
        chosen["fuzzy_duplicate"] = [measured[0], measured[len(measured) // 2], measured[-1]]
    return chosen, sorted(used)


def _draw(context: Context, part: str, wanted: dict[str, int]) -> dict[str, list[Drawn]]:
    table = context.box("decisions").read_table(part, ["doc_id", "reason", "partner", "tokens"])
    doc_id, tokens = (table[c].to_numpy() for c in ("doc_id", "tokens"))
    of_row = table["reason"].combine_chunks()
    codes = of_row.indices.fill_null(-1).to_numpy()
    names = of_row.dictionary.to_pylist()
    jaccard = jaccard_to_survivor(context, doc_id)
    chosen = {}
    for reason, each in wanted.items():
        rows = np.flatnonzero(codes == (-1 if reason == "kept" else names.index(reason)))
        order = rows[np.argsort(fmix64(doc_id[rows].astype(np.uint64)), kind="stable")]
        if reason == "fuzzy_duplicate":
            order = _spread(order, jaccard[order], each)
        order = order[:each]
        score = score_of(context, part, reason, order)
        partner = table["partner"].take(pa.array(order)).to_pylist()
        chosen[reason] = [
            Drawn(int(doc_id[row]), p, None if np.isnan(jaccard[row]) else float(jaccard[row]), int(tokens[row]), s)
            for row, p, s in zip(order, partner, score, strict=True)
        ]
    return chosen


def jaccard_to_survivor(context: Context, doc_id: np.ndarray) -> np.ndarray:
    """float32 of N: similarity to the survivor, NaN where there is none or it was not measured."""
    value = np.full(len(doc_id), np.nan, np.float32)
    if context.has("duplicates") and len(doc_id):
        rows, clusters = clusters_of(context, doc_id)
        value[rows] = clusters["jaccard"].to_numpy()
    return value


def _spread(rows: np.ndarray, jaccard: np.ndarray, each: int) -> np.ndarray:
    """Rows of the lowest to the highest similarity, evenly; those not measured last."""
    measured = np.flatnonzero(~np.isnan(jaccard))
    by_value = measured[np.argsort(jaccard[measured], kind="stable")]
    picked = by_value[np.unique(np.linspace(0, len(by_value) - 1, each).astype(int))] if len(by_value) else by_value
    return np.concatenate([rows[picked], rows[np.isnan(jaccard)]])


def score_of(context: Context, part: str, reason: str, rows: np.ndarray) -> list[object]:
    column = column_of(reason, context.config)
    if column is not None:
        values = column_values(context, part, [column])[PREFIX + column].text.take(pa.array(rows)).to_pylist()
        return [None if value is None else f"{column} = {value[:80]}" for value in values]
    score = scored(reason, context.config)
    if reason != "language" and score is None:
        return [None] * len(rows)
    columns = ["language", "language_score"] if reason == "language" else [str(score)]
    table = context.box("scores").read_table(part, columns).take(pa.array(rows))
    if reason == "language":
        languages, values = (table[c].to_pylist() for c in columns)
        return [f"{label}, score {value:.2f}" for label, value in zip(languages, values, strict=True)]
    values = table.column(0).to_pylist()
    return [f"{columns[0]} = {value:.4g}" if value != UNSCORED else f"{columns[0]}: no score" for value in values]


# ------------------------------------------------------------------------------------------- what two texts share


@functools.cache
def _word_pattern() -> re.Pattern[str]:
    """A word, close to those of ops.words: a code point of a script without spaces, or a run of \\w."""
    stage1, stage2 = fold_table()
    single = stage2.reshape(-1, 256)[stage1].ravel() >> 24 == UNSPACED
    edges = np.flatnonzero(np.diff(single, prepend=False, append=False))
    inside = "".join(f"{chr(a)}-{chr(b - 1)}" for a, b in edges.reshape(-1, 2).tolist())
    return re.compile(f"[{inside}]|[^\\W{inside}]+")


def excerpt(text: str, start: int = 0, length: int = EXCERPT_CHARS) -> str:
    """`length` characters from `start`, with an ellipsis where something was cut."""
    piece = text[start : start + length]
    return f"{'… ' if start else ''}{piece}{' …' if start + length < len(text) else ''}"


def _word_start(text: str, place: int) -> int:
    """The start of the word at `place`, if it is near."""
    before = max(text.rfind(" ", 0, place), text.rfind("\n", 0, place)) + 1
    return before if place - before < 40 else place


def difference(a: str, b: str) -> tuple[list[tuple[str, bool]], list[tuple[str, bool]]]:
    """Excerpts of two texts around their first difference, as pieces (text, differs), word by word."""
    import difflib

    same = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    start = _word_start(a, same - EXCERPT_CHARS // 3) if same > EXCERPT_CHARS // 2 else 0
    # more is compared than is shown, so that what one side has at the end of the excerpt is found on the other one
    words_a, words_b = (re.findall(r"\s+|\S+", t[start : start + 2 * EXCERPT_CHARS]) for t in (a, b))
    pieces: tuple[list[tuple[str, bool]], list[tuple[str, bool]]] = ([], [])
    matcher = difflib.SequenceMatcher(None, words_a, words_b, autojunk=False)
    for kind, a0, a1, b0, b1 in matcher.get_opcodes():
        for side, words in ((0, words_a[a0:a1]), (1, words_b[b0:b1])):
            if words:
                pieces[side].append(("".join(words), kind != "equal"))
    return _cut(pieces[0], start, len(a)), _cut(pieces[1], start, len(b))


def differences(a: str, b: str) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Spans of the words in which two texts differ, of their first _DIFF_WORDS words."""
    import difflib

    spans: tuple[list[tuple[int, int]], list[tuple[int, int]]] = ([], [])
    words = [
        [(m.group(), m.span()) for m, _ in zip(re.finditer(r"\S+", t), range(_DIFF_WORDS), strict=False)]
        for t in (a, b)
    ]
    a_words, b_words = ([w for w, _ in own] for own in words)
    matcher = difflib.SequenceMatcher(None, a_words, b_words, autojunk=False)
    for kind, a0, a1, b0, b1 in matcher.get_opcodes():
        for side, low, high in ((0, a0, a1), (1, b0, b1)):
            if kind != "equal" and high > low:
                spans[side].append((words[side][low][1][0], words[side][high - 1][1][1]))
    return spans


def _cut(pieces: list[tuple[str, bool]], start: int, chars: int) -> list[tuple[str, bool]]:
    """The first EXCERPT_CHARS characters of pieces that begin at `start` of a text of `chars` characters."""
    shown = [("… ", False)] if start else []
    left = EXCERPT_CHARS
    for text, marked in pieces:
        if left > 0:
            shown.append((text[:left], marked))
        left -= len(text)
    return [*shown, (" …", False)] if start + EXCERPT_CHARS < chars else shown


def _ngrams(words: list[str], n: int) -> Iterator[tuple[str, ...]]:
    """From every word on, in order, the run that weighs n words, by rule 1 of ops.ngrams; all words where none does."""
    weights = [word_weight(w) for w in words]
    total, stop = 0, 0
    for start in range(len(words)):
        while total < n * UNIT and stop < len(words):
            total += weights[stop]
            stop += 1
        if total < n * UNIT and start:
            return
        yield tuple(words[start:stop])
        total -= weights[start]


def shared_runs(document: str, item: str, n: int) -> list[str]:
    """The longest runs of words, of n or more, that a document shares with an item, as the document has them, in order.

    Words as in `overlap`, of which this finds every place.
    """
    spans = [(m.start(), m.end()) for m in _word_pattern().finditer(document)]
    words = [document[s:e].lower() for s, e in spans]
    of_item = [m.group().lower() for m in _word_pattern().finditer(item)]
    grams = set(_ngrams(of_item, n))
    sizes = sorted({len(gram) for gram in grams})
    runs: list[list[int]] = []  # first word, word behind the last
    for i, size in ((i, size) for i in range(len(words)) for size in sizes):
        if tuple(words[i : i + size]) in grams:
            if runs and i <= runs[-1][1]:
                runs[-1][1] = max(runs[-1][1], i + size)
            else:
                runs.append([i, i + size])
    return [document[spans[a][0] : spans[b - 1][1]] for a, b in runs]


def overlap(document: str, item: str, n: int) -> tuple[list[tuple[str, bool]], int] | None:
    """Where a document first holds an n-gram of an item: an excerpt in pieces (text, shared), and words shared.

    Words here are runs of \\w in lower case, close to those of ops.words; None where that finds nothing.
    """
    spans = [(m.start(), m.end()) for m in _word_pattern().finditer(document)]
    words = [document[s:e].lower() for s, e in spans]
    of_item = [m.group().lower() for m in _word_pattern().finditer(item)]
    grams: dict[tuple[str, ...], int] = {}
    for i, gram in enumerate(_ngrams(of_item, n)):
        grams.setdefault(gram, i)
    sizes = sorted({len(gram) for gram in grams})
    for i, shared in ((i, size) for i in range(len(words)) for size in sizes):
        at = grams.get(tuple(words[i : i + shared]))
        if at is None:
            continue
        while i + shared < len(words) and at + shared < len(of_item) and words[i + shared] == of_item[at + shared]:
            shared += 1
        start, stop = spans[i][0], spans[i + shared - 1][1]
        left = _word_start(document, max(0, start - EXCERPT_CHARS // 4))
        shown = document[start : min(stop, start + EXCERPT_CHARS)]
        pieces = [
            (("… " if left else "") + document[left:start], False),
            (shown, True),
            (" … " if len(shown) < stop - start else "", False),
            (excerpt(document[stop:], 0, EXCERPT_CHARS // 4), False),
        ]
        return [p for p in pieces if p[0]], shared
    return None


# --------------------------------------------------------------------------------------------------- contamination


def worst_documents(context: Context, name: str, limit: int) -> tuple[list[dict[str, Any]], int, int]:
    """The documents that hold most of one item of a set, and of how many partitions with matches how many were read."""
    box = context.box("contamination")
    matches = {r.part: r.counts.matches.get(name, 0) for r in box.receipts(ContaminationCounts)}
    hit = sorted((p for p, n in matches.items() if n), key=lambda p: (-matches[p], p))
    found: list[tuple[float, int, int, int]] = []
    for part in hit[:MAX_PARTITIONS]:
        columns = (f"coverage_{name}", f"item_{name}", f"hits_{name}")
        coverage, item, hits = context.box(box_of(context)).columns(part, *columns)
        rows = np.flatnonzero(hits > 0)
        rows = rows[np.lexsort((rows, -hits[rows], -coverage[rows]))][:limit]
        doc_id = context.box("documents").read_table(part, ["doc_id"])["doc_id"].to_numpy()
        found += [(float(coverage[r]), int(hits[r]), int(doc_id[r]), int(item[r])) for r in rows]
    found.sort(key=lambda f: (-f[0], -f[1], f[2]))
    keys = ("coverage", "hits", "doc_id", "item")
    return [dict(zip(keys, f, strict=True)) for f in found[:limit]], min(len(hit), MAX_PARTITIONS), len(hit)


# -------------------------------------------------------------------------------------------------------- clusters


@dataclass
class Clusters:
    """What clusters.parquet comes to. Read a row group at a time."""

    sizes: dict[int, int]  # members of a cluster, two or more → clusters
    jaccard: np.ndarray  # fuzzy duplicates in 20 bins of similarity to their survivor
    measured: int
    below_half: int  # of the measured ones
    largest: list[tuple[int, int]]  # size, survivor; the largest first


JACCARD_BINS = 20


def cluster_facts(box: Box, limit: int) -> Clusters:
    """Sizes, similarities and the largest clusters of duplicates/clusters.parquet."""
    file = pq.ParquetFile(box.verified_file("000000", "clusters.parquet"), memory_map=True)
    found = Clusters({}, np.zeros(JACCARD_BINS, np.int64), 0, 0, [])
    sizes: dict[int, int] = defaultdict(int)
    for number in range(file.metadata.num_row_groups):
        table = file.read_row_group(number, use_threads=False)
        doc_id, cluster, size, survivor = (table[c].to_numpy() for c in ("doc_id", "cluster", "size", "survivor"))
        heads = np.flatnonzero((doc_id == cluster) & (size > 1))  # its lowest doc_id stands for a cluster
        for value, n in zip(*np.unique(size[heads], return_counts=True), strict=True):
            sizes[int(value)] += int(n)
        order = heads[np.lexsort((doc_id[heads], -size[heads]))][:limit]
        found.largest += [(int(size[i]), int(survivor[i])) for i in order]
        fuzzy = pc.equal(table["kind"].cast(pa.string()), "fuzzy").fill_null(False)
        values = table["jaccard"].filter(fuzzy).drop_null().to_numpy().astype(np.float64)
        bins = np.minimum(
            (values * JACCARD_BINS + 1e-6).astype(np.int64), JACCARD_BINS - 1
        )  # 0.95 as float32 is below 0.95
        found.jaccard += np.bincount(bins, minlength=JACCARD_BINS)
        found.measured += len(values)
        found.below_half += int((values < 0.5).sum())
    found.sizes = dict(sorted(sizes.items()))
    found.largest = sorted(found.largest, key=lambda x: (-x[0], x[1]))[:limit]
    return found
