"""What near-duplicates this corpus' settings catch, measured on edited copies of its own documents: `gpu-curate scurve`.

# N documents, P pairs of a document and its edited copy, H hashes, B bands of R rows
"""

from __future__ import annotations

import csv
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from gpu_curate.config import Fuzzy
from gpu_curate.document import TextColumn, matching
from gpu_curate.errors import ConfigError
from gpu_curate.inquiry.stored import Array, Stored
from gpu_curate.ops.bands import BandSpec, band_hashes, s_curve
from gpu_curate.ops.minhash import MinHashSpec, jaccard_exact, shingles, signatures
from gpu_curate.ops.mix import fmix64
from gpu_curate.stages.duplicates import FIRST_REFERENCE
from gpu_curate.stages.signatures import fuzzy_of
from gpu_curate.store.files import publish

PAIRS = 12_000
BINS = np.linspace(0, 1, 21)  # of exact similarity
MAX_WORDS = 500  # of a document that is copied: similarity is of sets, and a longer text says the same more slowly
MIN_WORDS = 20
_DOCUMENTS = 2_000  # that copies are made of
_LSH_S_PER_BAND = 0.13e-6  # CPU seconds a document and band to connect: scripts/bench/lsh.py
_Z = 1.959964  # of a 95 % interval
_ROWS = (2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 13, 15, 16, 18, 20)
_MAX_HASHES = 1024
_MOST_MEASURED = 3_000  # pairs of the run from which recall is estimated


def scurve(
    text: TextColumn, fuzzy: Fuzzy, pairs: int = PAIRS, threshold: float | None = None, recall: float = 0.95
) -> dict[str, Any]:
    """The catch rate of edited copies by exact similarity, beside the formula, and which other bands and rows there are.

    Args:
        text: documents of the corpus, as `sample` gives them.
        fuzzy: the recipe's `dedup.fuzzy`.
        pairs: copies made: words replaced by words of other documents, a run of words left out, a run put in; of every
            share, so that similarities lie everywhere from 0 to 1.
        threshold: the similarity from which on copies should be caught, for the advisor; None: the recipe's.
        recall: share of those that should be.
    Returns:
        bands, rows, shingle_words, seed, documents, pairs;
        bins: per twentieth of similarity {from, to, pairs, caught, measured, low, high (95 %, Wilson), formula};
        outside: bins whose interval does not hold the formula, of `tested`;
        advice: see `advisor`.
    Raises:
        ConfigError: fewer than 10 documents of 20 words.
    """
    specs = fuzzy_of(fuzzy)
    own, copies = _edited(text, pairs)
    both = TextColumn.from_texts([*own, *copies])
    n = len(own)
    pairs_P2 = np.stack([np.arange(n), np.arange(n, 2 * n)], axis=1)
    hash_S, offsets = shingles(both, specs.minhash)
    similar_P = np.asarray(jaccard_exact(hash_S, offsets, pairs_P2))
    sig_NH, _ = signatures(both, specs.minhash)
    hash_BN = np.asarray(band_hashes(sig_NH, specs.bands))
    caught_P = (hash_BN[:, :n] == hash_BN[:, n:]).any(axis=0)
    bins = list(_bins(similar_P, caught_P, specs.bands))
    told = [b for b in bins if b["pairs"] >= 30]
    wanted = fuzzy.threshold if threshold is None else threshold
    return {
        "bands": fuzzy.num_bands,
        "rows": fuzzy.rows_per_band,
        "shingle_words": fuzzy.shingle_words,
        "seed": fuzzy.seed,
        "documents": len(text),
        "pairs": n,
        "bins": bins,
        "tested": len(told),
        "outside": sum(not b["low"] <= b["formula"] <= b["high"] for b in told),
        "advice": advisor(text, fuzzy, wanted, recall),
    }


def sample(stored: Stored, count: int = _DOCUMENTS) -> TextColumn:
    """Documents of a run, its partitions in turn: those of the lowest hash of their content. The same run gives the same."""
    parts = stored.parts_with_documents
    chosen = [parts[i] for i in np.unique(np.linspace(0, len(parts) - 1, min(8, len(parts))).astype(int))]
    texts: list[bytes] = []
    for part in chosen:
        (content,) = stored.columns("signatures", part, "content_lo")
        own = np.sort(np.argsort(fmix64(content), kind="stable")[: -(-count // len(chosen))])
        column = stored.text(part, own)
        texts += [column.raw(i) for i in range(len(column))]
    return TextColumn.from_texts(texts)


def _edited(text: TextColumn, pairs: int) -> tuple[list[str], list[str]]:
    """Documents and edited copies of them. Fixed seed."""
    rng = np.random.default_rng(7)
    words = [re.findall(r"\S+\s*", text.raw(i).decode("utf-8", "replace"))[:MAX_WORDS] for i in range(len(text))]
    words = [w for w in words if len(w) >= MIN_WORDS]
    if len(words) < 10:
        raise ConfigError(
            f"scurve: {len(words)} documents of {MIN_WORDS} words or more, at least 10 are needed",
            "scripts without spaces have few words in this sense; ask a run with more text",
        )
    pool = [w for own in words[:200] for w in own]
    own, copies = [], []
    for i in range(pairs):
        source = words[i % len(words)]
        wanted = rng.random()  # similarity that the edit aims at
        copy = _edit(source, pool, wanted, i // len(words) % 3, rng)
        own.append("".join(source))
        copies.append("".join(copy))
    return own, copies


def _edit(source: list[str], pool: list[str], wanted: float, kind: int, rng: np.random.Generator) -> list[str]:
    """One copy. kind 0: words replaced here and there; 1: a run left out; 2: a run of other words put in."""
    n = len(source)
    if kind == 0:  # a shingle of 5 stays with (1 - e)^5 = q, and the similarity is q / (2 - q)
        rate = 1 - (2 * wanted / (1 + wanted)) ** 0.2
        hit = rng.random(n) < rate
        other = rng.integers(0, len(pool), n)
        return [pool[j] if h else w for w, h, j in zip(source, hit, other, strict=True)]
    if kind == 1:
        run = min(round(n * (1 - wanted)), n - 1)
        at = int(rng.integers(0, n - run + 1))
        return [*source[:at], *source[at + run :]]
    run = min(round(n * (1 / max(wanted, 0.1) - 1)), 4 * n)
    at, of = int(rng.integers(0, n + 1)), int(rng.integers(0, max(len(pool) - run, 1)))
    return [*source[:at], *pool[of : of + run], *source[at:]]


def _bins(similar_P: Array, caught_P: Array, bands: BandSpec) -> Iterator[dict[str, Any]]:
    place_P = np.minimum((similar_P * (len(BINS) - 1)).astype(int), len(BINS) - 2)
    for i in range(len(BINS) - 1):
        inside = place_P == i
        n, caught = int(inside.sum()), int(caught_P[inside].sum())
        low, high = wilson(caught, n)
        formula = float(np.mean(s_curve(similar_P[inside], bands))) if n else None
        rate = caught / n if n else None
        ends = {"from": round(float(BINS[i]), 2), "to": round(float(BINS[i + 1]), 2)}
        yield {**ends, "pairs": n, "caught": caught, "measured": rate, "low": low, "high": high, "formula": formula}


def wilson(hits: int, n: int) -> tuple[float, float]:
    """The 95 % interval of a share. Source: Wilson 1927."""
    if n == 0:
        return 0.0, 1.0
    p, z2 = hits / n, _Z * _Z
    middle, half = p + z2 / (2 * n), _Z * float(np.sqrt(p * (1 - p) / n + z2 / (4 * n * n)))
    return max((middle - half) / (1 + z2 / n), 0.0), min((middle + half) / (1 + z2 / n), 1.0)


# ------------------------------------------------------------------------------------------------------------- advisor


def advisor(text: TextColumn, fuzzy: Fuzzy, threshold: float, recall: float) -> dict[str, Any]:
    """Bands and rows that catch `recall` of the pairs of similarity `threshold`, with what they cost.

    Returns:
        threshold, recall; rows: per rows_per_band {rows, bands, hashes, at: chance at threshold - 0.2, - 0.1, + 0, + 0.1,
        half: the similarity caught half the time, cpu_s (a million documents of this corpus, on one core), disk_bytes (a
        document), own: the recipe's}. The fewest bands that reach it are listed; fewer rows cost less and catch more that
        should stay.
    """
    if not 0 < threshold < 1 or not 0 < recall < 1:
        raise ConfigError(f"scurve: threshold {threshold} and recall {recall} must lie between 0 and 1")
    fixed, per_hash = _seconds(text, fuzzy)

    def row(bands: int, rows: int, own: bool) -> dict[str, Any]:
        spec = BandSpec(bands, rows)
        hashes = bands * rows
        around = [threshold - 0.2, threshold - 0.1, threshold, threshold + 0.1]
        cpu_s = (fixed + per_hash * hashes + _LSH_S_PER_BAND * bands) * 1e6
        return {
            "rows": rows,
            "bands": bands,
            "hashes": hashes,
            "at": [float(s_curve(min(max(s, 0.0), 1.0), spec)) for s in around],
            "half": (1 - 0.5 ** (1 / bands)) ** (1 / rows),
            "cpu_s": cpu_s,
            "disk_bytes": 40 + 8 * bands,
            "own": own,
        }

    found = [row(fuzzy.num_bands, fuzzy.rows_per_band, True)]
    for rows in _ROWS:
        bands = int(np.ceil(np.log(1 - recall) / np.log1p(-(threshold**rows))))
        if bands * rows <= _MAX_HASHES and (bands, rows) != (fuzzy.num_bands, fuzzy.rows_per_band):
            found.append(row(bands, rows, False))
    return {"threshold": threshold, "recall": recall, "rows": found}


def _seconds(text: TextColumn, fuzzy: Fuzzy) -> tuple[float, float]:
    """CPU seconds a document: for its words and shingles, and for each hash. Measured on the sample, the least of three."""

    def least(hashes: int) -> float:
        spec = MinHashSpec(fuzzy.shingle_words, hashes, fuzzy.seed, fuzzy.family)
        taken = []
        for _ in range(4):
            start = time.process_time()
            signatures(text, spec)
            taken.append(time.process_time() - start)
        return min(taken[1:])

    few, many = least(16), least(256)
    per_hash = max(many - few, 0.0) / 240
    return max(few - 16 * per_hash, 0.0) / max(len(text), 1), per_hash / max(len(text), 1)


# ---------------------------------------------------------------------------------------- recall and precision of a run


def estimates(stored: Stored, thresholds: tuple[float, ...] = (0.5, 0.6, 0.7, 0.8, 0.9)) -> dict[str, Any] | None:
    """What a run's own near-duplicates say of recall and precision; None: it measured none.

    Returns:
        measured: fuzzy duplicates whose exact similarity to their survivor is known; direct: of these (a sample) those that
        share a bucket with it; rows: per threshold {threshold, precision: share of the removed that reach it, with its
        interval [low, high]; recall: of the pairs of survivor and copy that reach it, the share that a bucket catches}.
    Recall is Horvitz and Thompson's estimate: a direct pair of similarity s stands for 1 / (1 - (1 - s^r)^b) pairs. It says
    nothing of pairs of a kind that never is caught, so none is given below 0.5.
    """
    fuzzy = stored.config.dedup.fuzzy
    if fuzzy is None or not stored.has("duplicates"):
        return None
    import pyarrow.compute as pc

    table = stored.clusters()
    table = table.filter(pc.equal(table["kind"].cast("string"), "fuzzy")).drop_null()
    doc_id, survivor, similar = (table[name].to_numpy() for name in ("doc_id", "survivor", "jaccard"))
    if not len(doc_id):
        return None
    own = np.argsort(fmix64(doc_id.astype(np.uint64)), kind="stable")[:_MOST_MEASURED]
    own = own[survivor[own] < FIRST_REFERENCE]
    direct = _share_a_bucket(stored, doc_id[own], survivor[own], fuzzy)
    caught = np.asarray(s_curve(similar[own][direct].astype(np.float64), fuzzy_of(fuzzy).bands))
    rows = []
    for threshold in thresholds:
        reach = int((similar >= threshold).sum())
        weights = 1 / caught[similar[own][direct] >= threshold]
        rows.append(
            {
                "threshold": threshold,
                "precision": reach / len(similar),
                "interval": list(wilson(reach, len(similar))),
                "recall": len(weights) / float(weights.sum()) if len(weights) else None,
            }
        )
    return {"measured": len(similar), "direct": int(direct.sum()), "sampled": len(own), "rows": rows}


def _share_a_bucket(stored: Stored, a: Array, b: Array, fuzzy: Fuzzy) -> Array:
    """bool of the pairs: they have an equal band."""
    ids = np.unique(np.concatenate([a, b]))
    keys = np.empty((len(ids), fuzzy.num_bands), np.uint64)
    for part in stored.parts_with_documents:
        (doc_id,) = stored.columns("documents", part, "doc_id")
        rows, places = matching(doc_id, ids)
        if len(rows):
            keys[places] = stored.bands(part, fuzzy.num_bands)[rows]
    shared: Array = (keys[np.searchsorted(ids, a)] == keys[np.searchsorted(ids, b)]).any(axis=1)
    return shared


def write_csv(facts: dict[str, Any], path: Path) -> None:
    """The bins, a row each."""
    with publish(path) as temp, temp.open("w", newline="", encoding="utf-8") as f:
        writer = csv.DictWriter(f, list(facts["bins"][0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(facts["bins"])


def draw(facts: dict[str, Any], path: Path) -> None:
    """Formula and measured rates. Raises: ConfigError: no matplotlib, or no such format."""
    from gpu_curate.inquiry.plot import figure

    spec = BandSpec(facts["bands"], facts["rows"])
    with figure(path) as axes:
        s = np.linspace(0, 1, 201)
        axes.plot(s, s_curve(s, spec), label=f"1 - (1 - s^{facts['rows']})^{facts['bands']}")
        bins = [b for b in facts["bins"] if b["pairs"]]
        x = [(b["from"] + b["to"]) / 2 for b in bins]
        y = [b["measured"] for b in bins]
        errors = [
            [m - b["low"] for m, b in zip(y, bins, strict=True)],
            [b["high"] - m for m, b in zip(y, bins, strict=True)],
        ]
        axes.errorbar(
            x, y, errors, fmt="o", markersize=3, capsize=2, label=f"measured, {facts['pairs']:,} copies, 95 %"
        )
        axes.set_xlabel("Jaccard similarity of a document and its edited copy")
        axes.set_ylabel("share that has a bucket in common")
        axes.legend()
