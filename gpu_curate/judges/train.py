"""Training of an exact judge: a linear model over hashed words and word n-grams, by stochastic gradient descent.

A text's output is the mean weight of its features, with `prior` features of weight 0 among them. Steps are AdaGrad's, so rare
words move as far as common ones. Texts come in an order that their content and the seed decide, not the files. Weights become
8 or 16 bits; what turns sums into scores is fitted to texts that the weights have not seen (folds, by content as well).

Source: Duchi et al. 2011, AdaGrad; Platt 1999, probabilities of a linear score, with his targets.

# N texts, W words, F buckets
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpu_curate.errors import ConfigError
from gpu_curate.jit import I64, U64, njit
from gpu_curate.judges.evaluate import rank_correlation
from gpu_curate.judges.labels import Labelled
from gpu_curate.judges.model import ExactJudge
from gpu_curate.ops.judge import RAW_SHIFT, Tables, features, raw_scores
from gpu_curate.ops.judge.cpu import G1, START_1, START_2, START_3
from gpu_curate.ops.mix import fmix64
from gpu_curate.ops.simd import as_input
from gpu_curate.quality.judges import LIMIT

SCALE = 1000  # scores are thousandths
KNOTS = 257
_TRIED = 2000  # texts by which the rounding is chosen
ENOUGH = 20_000  # texts held out: further folds would say the same
_BOUND = 4.0  # of a step's error in standard deviations of the labels, so that one odd label moves little


@dataclass(frozen=True)
class Settings:
    """How to train.

    Args:
        ngrams: longest run of words, 1 to 3. bits: log2 of the buckets. wide: 16-bit weights instead of 8.
        epochs: times that every text is looked at. rate: of the first step. prior: see ExactJudge.
        folds: every one is held out in turn until ENOUGH texts were. seed: of order and folds.
    """

    ngrams: int = 3
    bits: int = 20
    wide: bool = False
    epochs: int = 5
    rate: float = 1.0
    prior: int = 30
    folds: int = 10
    seed: int = 42


@dataclass(frozen=True, eq=False)
class Trained:
    """A judge, and what it says of texts that it has not seen.

    Attributes:
        rows: int64, the texts that were held out. score_N: int32, their scores by models without them.
        loss_of_rounding: 1 - rank correlation between the scores by floats and by integers.
    """

    judge: ExactJudge
    rows: np.ndarray
    score_N: np.ndarray
    loss_of_rounding: float


@njit
def buckets(hash_W: NDArray[np.uint64], first: int, last: int, bits: int, ngrams: int, found: NDArray[np.int64]) -> int:
    """The buckets of all features of the words hash_W[first:last]; returns how many."""
    shift = U64(64) - U64(bits)
    count = I64(0)
    for i in range(first, last):
        x = hash_W[i]
        found[count] = I64((x + START_1) >> shift)
        count += 1
        if ngrams > 1 and i + 1 < last:
            x = x * G1 + hash_W[i + 1]
            found[count] = I64((x + START_2) >> shift)
            count += 1
            if ngrams > 2 and i + 2 < last:
                found[count] = I64((x * G1 + hash_W[i + 2] + START_3) >> shift)
                count += 1
    return count


@njit
def _epoch(
    hash_W: NDArray[np.uint64],
    offsets: NDArray[np.int64],
    value_N: NDArray[np.float64],
    order: NDArray[np.int64],
    bits: int,
    ngrams: int,
    prior: float,
    rate: float,
    logistic: bool,
    weight_F: NDArray[np.float32],
    square_F: NDArray[np.float32],
    bias: float,
    found: NDArray[np.int64],
) -> float:
    """Look at every text of `order` once. Returns the bias."""
    for d in order:
        count = buckets(hash_W, offsets[d], offsets[d + 1], bits, ngrams, found)
        total = 0.0
        for j in range(count):
            total += weight_F[found[j]]
        output = bias + total / (count + prior)
        if logistic:
            error = 1.0 / (1.0 + np.exp(-output)) - value_N[d]
        else:
            error = min(max(output - value_N[d], -_BOUND), _BOUND)
        bias -= 0.1 * rate * error
        step = np.float32(error / np.sqrt(count + prior))
        for j in range(count):
            k = found[j]
            square_F[k] += step * step
            weight_F[k] -= np.float32(rate) * step / np.sqrt(square_F[k] + np.float32(1e-8))
    return bias


def _weights(data: Labelled, value_N: np.ndarray, rows: np.ndarray, how: Settings, logistic: bool) -> np.ndarray:
    """float32 of F, trained on some of the texts."""
    weight_F, square_F = (np.zeros(1 << how.bits, np.float32) for _ in range(2))
    found = np.empty(3 * int(np.diff(data.offsets).max(initial=0)) + 1, np.int64)
    bias = 0.0
    hash_W, offsets, values = as_input(data.hash_W), as_input(data.offsets), as_input(value_N)
    for epoch in range(how.epochs):
        salt = fmix64(np.array([how.seed * 1000 + epoch + 1], np.uint64))[0]
        order = rows[np.lexsort((value_N[rows], fmix64(data.key_N[rows] ^ salt)))]
        order = as_input(order)
        bits, ngrams, prior = how.bits, how.ngrams, float(how.prior)
        inputs = (hash_W, offsets, values, order, bits, ngrams, prior, how.rate, logistic)
        bias = _epoch(*inputs, weight_F, square_F, bias, found)
    return weight_F


def rounded(data: Labelled, weight_F: np.ndarray, rows: np.ndarray, how: Settings) -> tuple[np.ndarray, float]:
    """Integer weights, and what one of them is worth.

    The largest weight fits, or a half, a quarter ... of it, and the few beyond are cut: whatever leaves the order of some of
    the training's texts closest to that of the weights as they are.
    """
    top, kind = (32767, np.int16) if how.wide else (127, np.int8)
    largest = float(np.abs(weight_F).max()) or 1.0
    some = rows[:_TRIED]
    exact_N = _float_outputs(data, weight_F, some, how)
    best: tuple[float, np.ndarray, float] | None = None
    for halves in range(1 if how.wide else 6):
        unit = largest / (1 << halves) / top
        whole = np.clip(np.rint(weight_F / unit), -top, top).astype(kind)
        sum_N, words_N = data.sums(whole, how.ngrams, some)
        likeness = rank_correlation(exact_N, raw_scores(sum_N, words_N, how.ngrams, how.prior).astype(np.float64))
        if best is None or likeness > best[0]:
            best = likeness, whole, unit
    assert best is not None
    return best[1], best[2]


def fold_of(key_N: np.ndarray, folds: int, seed: int) -> np.ndarray:
    """int64 of N: equal contents are in one fold."""
    salt = fmix64(np.array([seed + 0x5EED], np.uint64))[0]
    found: np.ndarray = (fmix64(key_N ^ salt) % np.uint64(folds)).astype(np.int64)
    return found


def train(data: Labelled, how: Settings, progress: Callable[[str], None] | None = None) -> Trained:
    """A judge of N labelled texts.

    Raises:
        ConfigError: no text, one class only, or fewer texts than folds.
    Time: one core; about 20 ns a feature and epoch, once for each fold that is held out and once for all.
    Memory: 8 bytes a word, 8 a bucket.
    """
    logistic, value_N, back = _targets(data)
    fold_N = fold_of(data.key_N, how.folds, how.seed)
    rows, output_N, exact_N = [], [], []
    for fold in range(how.folds):
        held = np.flatnonzero(fold_N == fold)
        rest = np.flatnonzero(fold_N != fold)
        if not len(held) or not len(rest) or len(np.unique(value_N[rest])) < 2:
            continue
        if progress:
            progress(f"fold {fold + 1} of {how.folds}: {len(rest):,} texts, {len(held):,} held out")
        weight_F = _weights(data, value_N, rest, how, logistic)
        whole_F, unit = rounded(data, weight_F, rest, how)
        sum_N, words_N = data.sums(whole_F, how.ngrams, held)
        rows.append(held)
        output_N.append(raw_scores(sum_N, words_N, how.ngrams, how.prior) * unit)
        exact_N.append(_float_outputs(data, weight_F, held, how))
        if sum(map(len, rows)) >= ENOUGH:
            break
    if not rows:
        raise ConfigError(f"{len(data)} texts are too few for {how.folds} folds", "give more texts, or fewer --folds")
    seen, out_N = np.concatenate(rows), np.concatenate(output_N)
    if progress:
        progress(f"all {len(data):,} texts")
    every = np.arange(len(data))
    weights, unit = rounded(data, _weights(data, value_N, every, how, logistic), every, how)
    curve = _probability(out_N, value_N[seen]) if logistic else _line(out_N, value_N[seen], back)
    knots_x, knots_y = _knots(curve, out_N, unit, straight=not logistic)
    judge = ExactJudge(weights, how.ngrams, how.prior, knots_x, knots_y)
    score_N = judge.calibrate(np.rint(out_N / unit).astype(np.int64))
    loss = 1.0 - rank_correlation(out_N, np.concatenate(exact_N))
    return Trained(judge, seen, score_N, loss)


def _targets(data: Labelled) -> tuple[bool, np.ndarray, tuple[float, float]]:
    """Two classes or numbers; what the training aims at; mean and deviation of the labels, by which it is read back."""
    if len(data) == 0:
        raise ConfigError("no labelled text", "check --text-column, and the column of the labels")
    if len(np.unique(data.value_N)) < 2:
        raise ConfigError(
            f"all {len(data)} texts have the label {data.value_N[0]:g}: one class only", "give texts of another one too"
        )
    if data.classes:
        return True, data.value_N, (0.0, 1.0)
    most = float(np.abs(data.value_N).max())
    if most * SCALE > LIMIT:
        raise ConfigError(
            f"a label is {most:g}; labels lie between -{LIMIT // SCALE} and {LIMIT // SCALE}", "scale them down"
        )
    mean, deviation = float(data.value_N.mean()), float(data.value_N.std())
    return False, (data.value_N - mean) / deviation, (mean, deviation)


def _float_outputs(data: Labelled, weight_F: np.ndarray, rows: np.ndarray, how: Settings) -> np.ndarray:
    """The same before 8-bit rounding: with weights of 16 bits, 256 times as fine."""
    unit = max(float(np.abs(weight_F).max()), 1e-30) / 32767
    sum_N, words_N = data.sums(np.rint(weight_F / unit).astype(np.int16), how.ngrams, rows)
    outputs: np.ndarray = sum_N / np.maximum(features(words_N, how.ngrams) + how.prior, 1) * unit
    return outputs


Curve = Callable[[np.ndarray], np.ndarray]


def _probability(out_N: np.ndarray, value_N: np.ndarray) -> Curve:
    """Output → probability of the good class: a logistic curve by Newton's method on Platt's targets."""
    scale = float(out_N.std()) or 1.0
    good, bad = float((value_N == 1).sum()), float((value_N == 0).sum())
    target_N = np.where(value_N == 1, (good + 1) / (good + 2), 1 / (bad + 2))
    x_N2 = np.stack([out_N / scale, np.ones(len(out_N))], axis=1)
    fit = np.zeros(2)
    for _ in range(50):
        p_N = 1 / (1 + np.exp(-np.clip(x_N2 @ fit, -50, 50)))
        curvature = (x_N2 * (p_N * (1 - p_N))[:, None]).T @ x_N2 + 1e-9 * np.eye(2)
        move = np.linalg.solve(curvature, x_N2.T @ (target_N - p_N))
        fit += move
        if float(np.abs(move).max()) < 1e-9:
            break
    slope, start = max(float(fit[0]), 1e-6) / scale, float(fit[1])
    return lambda out: SCALE / (1 + np.exp(-np.clip(slope * out + start, -50, 50)))


def _line(out_N: np.ndarray, value_N: np.ndarray, back: tuple[float, float]) -> Curve:
    """Output → label, a straight line that ends where the labels do."""
    mean, deviation = back
    spread = float(out_N.var())
    slope = float(((out_N - out_N.mean()) * (value_N - value_N.mean())).mean()) / spread if spread else 0.0
    slope = max(slope, 1e-9)
    start = float(value_N.mean()) - slope * float(out_N.mean())
    low, high = (SCALE * (mean + deviation * float(v)) for v in (value_N.min(), value_N.max()))
    return lambda out: np.clip(SCALE * (mean + deviation * (slope * out + start)), low, high)


def _knots(curve: Curve, out_N: np.ndarray, unit: float, straight: bool) -> tuple[np.ndarray, np.ndarray]:
    """The curve at evenly spaced raw scores, a third beyond those that were seen on either side."""
    low, high = float(out_N.min()) / unit, float(out_N.max()) / unit
    margin = (high - low) / 3 + (1 << RAW_SHIFT)
    x_K = np.unique(np.rint(np.linspace(low - margin, high + margin, KNOTS)).astype(np.int64))
    y_K = np.rint(curve(x_K * unit)).astype(np.int64)
    return x_K, np.maximum.accumulate(y_K).astype(np.int32)


def tables(judge: ExactJudge) -> Tables:
    """One judge's weights, for `ops.judge`."""
    return Tables.of([judge.weights], [judge.ngrams])


def heaviest(judge: ExactJudge, texts: list[str], count: int = 40, least: int = 3) -> dict[str, list[list[Any]]]:
    """The words and pairs of words in some texts that weigh most for and against: [words, weight, times]."""
    from collections import Counter

    from gpu_curate.ops.mix import GOLDEN
    from gpu_curate.ops.text_stats import word_hash

    times: Counter[tuple[str, ...]] = Counter()
    for text in texts:
        words = text.split()
        times.update((w,) for w in words)
        if judge.ngrams > 1:
            times.update(itertools.pairwise(words))
    weighed = []
    for words_of, n in times.items():
        if n >= least and sum(map(len, words_of)) <= 60:
            x = len(words_of)
            for word in words_of:
                x = (x * GOLDEN + word_hash(word.encode("utf-8", "surrogatepass"))) % (1 << 64)
            weight = int(judge.weights[x >> (64 - judge.bits)])
            weighed.append((weight, n, " ".join(words_of)))
    weighed.sort(key=lambda entry: (entry[1] * -1, entry[2]))
    for_ = sorted(weighed, key=lambda entry: -entry[0])[:count]
    against = sorted(weighed, key=lambda entry: entry[0])[:count]
    return {
        "for": [[words, weight, n] for weight, n, words in for_ if weight > 0],
        "against": [[words, weight, n] for weight, n, words in against if weight < 0],
    }
