#!/usr/bin/env python3
"""Judges: how well they tell 499 human labels apart, beside length, rules and static embeddings; and how fast they are.

    python scripts/bench/judges.py quality LABELS.jsonl       the table of docs/judges.md
    python scripts/bench/judges.py speed [FILE...] [--text-column contents] [--record]     with and without a judge; training

LABELS.jsonl: `text` and `label` (0 or 1). Static embeddings need wordllama.
"""

from __future__ import annotations

import argparse
import functools
import random
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from common import interleaved, quantiles, record

from gpu_curate.document import TextColumn
from gpu_curate.judges.evaluate import auc, evaluate
from gpu_curate.judges.labels import Labelled
from gpu_curate.judges.train import Settings, fold_of, train
from gpu_curate.ops.judge import NONE, Tables, judge_sums
from gpu_curate.ops.text_stats import text_stats
from gpu_curate.tools.judge_texts import Reading, labelled, texts_of


def quality(path: Path) -> None:
    """Print the table: AUC and its interval of every score, all on the same texts, those that learn cross-validated."""
    data, _ = labelled([], [], [str(path)], "label")
    texts = [text for text, _ in texts_of([str(path)], "text", "label", "--labels", Reading(), 1 << 40)]
    good_N = data.value_N > 0
    length_N = np.array([len(t) for t in texts], np.float64)
    print(
        f"{len(texts)} texts, {int(good_N.sum())} good\n\n| score | AUC | 95 % | among texts of one length |\n|---|---|---|---|"
    )

    def row(name: str, score_N: np.ndarray, rows: np.ndarray | None = None) -> None:
        rows = np.arange(len(data)) if rows is None else rows
        facts = evaluate(score_N, data, rows)
        value, low, high = facts["auc"]
        print(f"| {name} | {value:.3f} | {low:.3f} to {high:.3f} | {facts['auc_same_length']:.3f} |", flush=True)

    row("length in characters", length_N)
    kept_N, failed_N = rules(texts)
    row("Gopher rules: kept or dropped", kept_N)
    row("Gopher rules: how many are failed", -failed_N)
    for ngrams in (1, 2, 3):
        made = train(data, Settings(ngrams=ngrams))
        row(f"exact judge, runs of {ngrams}, 8 bits, cross-validated", made.score_N, made.rows)
    made = train(data, Settings(wide=True))
    row("exact judge, runs of 3, 16 bits, cross-validated", made.score_N, made.rows)
    try:
        embedded = embeddings(texts)
    except ImportError as e:
        print(f"(no static embeddings: {e})")
        return
    row("static embeddings (wordllama, 256) + head, cross-validated", head(embedded, data))
    log_length = np.log1p(length_N)[:, None]
    row("the same and log length", head(np.concatenate([embedded, log_length], axis=1), data))
    assert auc(length_N, good_N) is not None


def rules(texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """Of every text whether both Gopher families keep it, and how many of their rules it fails."""
    import gpu_curate as gc

    decided = gc.decide(gc.score(texts), ["gopher_quality", "gopher_repetition"])
    return decided.keep.astype(np.float64), np.array([len(f) for f in decided.failing], np.float64)


def embeddings(texts: list[str]) -> np.ndarray:
    """float64 of (N, 256): mean token vectors."""
    import wordllama

    # its wheel has weights and tokenizer, and looks for the latter in another folder than it lies in
    model = wordllama.WordLlama.load(cache_dir=Path(wordllama.__file__).parent, disable_download=True)
    return np.asarray(model.embed(texts, norm=True), np.float64)


def head(x: np.ndarray, data: Labelled, strength: float = 1.0) -> np.ndarray:
    """Out-of-fold outputs of a logistic regression (ridge, Newton), by the folds of the exact judge."""
    how = Settings()
    fold_N = fold_of(data.key_N, how.folds, how.seed)
    out_N = np.zeros(len(data))
    for fold in range(how.folds):
        held = fold_N == fold
        mean, deviation = x[~held].mean(0), x[~held].std(0) + 1e-9
        a = np.concatenate([(x - mean) / deviation, np.ones((len(x), 1))], axis=1)
        w = np.zeros(a.shape[1])
        penalty = strength * x.shape[1] / 10 * np.eye(len(w))
        penalty[-1, -1] = 0
        for _ in range(30):
            p = 1 / (1 + np.exp(-np.clip(a[~held] @ w, -30, 30)))
            slope = a[~held].T @ (data.value_N[~held] - p) - penalty @ w
            move = np.linalg.solve((a[~held] * (p * (1 - p))[:, None]).T @ a[~held] + penalty, slope)
            w += move
            if np.abs(move).max() < 1e-8:
                break
        out_N[held] = a[held] @ w
    return out_N


def drawn(count: int, size: int, seed: int = 1) -> list[str]:
    """Texts of about `size` bytes, of words whose frequencies fall like those of English."""
    rng = random.Random(seed)
    letters = "etaoinshrdlucmfwypvbgkjqxz"
    words = ["".join(rng.choices(letters, range(26, 0, -1), k=rng.randint(1, 10))) for _ in range(50_000)]
    weights = [1 / (i + 3) for i in range(len(words))]
    each = size // 6
    pool = rng.choices(words, weights, k=each * 64)
    return [" ".join(pool[(i * 37) % 63 * each :][:each]) + f" {i}" for i in range(count)]


def speed(paths: list[str], text_column: str, write: bool) -> None:
    """CPU seconds of the statistics with and without judges, and of training."""
    texts = (
        [text for text, _ in texts_of(paths, text_column, None, "FILE", Reading(), 20 << 20)]
        if paths
        else drawn(4000, 2500)
    )
    texts = texts * (1 + (8 << 20) // sum(map(len, texts)))
    what = "one core, " + ("the texts of a file" if paths else "drawn words")
    column = TextColumn.from_texts(texts)
    rng = np.random.default_rng(3)
    tables = {
        f"2^{bits} int{width}": Tables.of([rng.integers(-127, 128, 1 << bits).astype(f"int{width}")], [3])
        for bits, width in ((20, 8), (20, 16), (22, 8))
    }
    cases: dict[str, Callable[[], object]] = {}
    cases |= {name: functools.partial(text_stats, column, judges=own) for name, own in tables.items()}
    cases["2^20 int8 alone"] = functools.partial(judge_sums, column, tables["2^20 int8"])
    cases["no judge"] = functools.partial(text_stats, column, judges=NONE)
    seconds = interleaved(cases, 7)
    base = quantiles(seconds["no judge"])[1]
    for name, values in seconds.items():
        middle = quantiles(values)[1]
        print(f"{name}: {column.nbytes / middle / 1e6:.0f} MB/s with all statistics, {middle / base - 1:+.1%}")
        if write:
            rate = [column.nbytes / v / 1e6 for v in values]
            record(
                "judges",
                f"statistics, {name}",
                "MB/s",
                rate,
                "no judge",
                base / middle,
                what,
            )
    train_speed(write)


def train_speed(write: bool, count: int = 100_000) -> None:
    """One epoch over texts of 2 KB."""
    from gpu_curate.tools.judge_texts import _columns

    texts = drawn(count, 2000)
    start = time.process_time()
    parts = [_columns(texts[i : i + 4000]) for i in range(0, count, 4000)]
    hash_W, words_N, key_N, chars_N = (np.concatenate(p) for p in zip(*parts, strict=True))
    hashed = time.process_time() - start
    value_N = (np.arange(count) % 2).astype(np.float64)
    data = Labelled(hash_W, np.concatenate([[0], np.cumsum(words_N)]), key_N, chars_N, value_N)
    few = np.flatnonzero(np.arange(count) < 200)
    small = Labelled(hash_W, data.offsets[:201], key_N[few], chars_N[few], value_N[few])
    train(small, Settings(epochs=1, folds=2))  # compiles
    start = time.process_time()
    train(data, Settings(epochs=1))
    trained = time.process_time() - start
    print(
        f"training: {count} texts of 2 kB: {hashed:.1f} s hashing, {trained:.1f} s learning (folds held out: 20,000 texts)"
    )
    if write:
        record(
            "judges",
            "training, one epoch",
            "texts/s",
            [count / (hashed + trained)],
            "none",
            1.0,
            f"{count} texts of 2 kB",
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["quality", "speed"])
    parser.add_argument("files", type=Path, nargs="*")
    parser.add_argument("--text-column", default="text")
    parser.add_argument("--record", action="store_true")
    given = parser.parse_args()
    if given.what == "quality":
        quality(given.files[0])
    else:
        speed([str(f) for f in given.files], given.text_column, given.record)


if __name__ == "__main__":
    main()
