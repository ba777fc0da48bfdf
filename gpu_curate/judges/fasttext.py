"""A fastText classifier as an exact judge, or as near to one as it can be.

fastText's output for a text is the mean of the vectors of its features, times the vectors of the labels. For two labels, or for
one of several that are independent (one-vs-all), that is one weight a feature: what a judge has. Words that the model knows keep
their weights. Its word n-grams have no names, only buckets by another hash than ours, so those of the texts that are given get
theirs, and others have none. What differs: rounding; buckets that meet in our table; words that fastText does not know, which
count among our features.

Source: fastText 0.9.2: dictionary.cc (hash, addWordNgrams, getLine), quantmatrix.cc, productquantizer.cc, loss.cc. The file is
looked through by `text.fasttext_file` before anything is taken from it.

# V words, L labels, D dimensions
"""

from __future__ import annotations

import struct
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gpu_curate.errors import ConfigError
from gpu_curate.judges.evaluate import rank_correlation
from gpu_curate.judges.model import ExactJudge
from gpu_curate.ops.judge import MAX_NGRAMS, RAW_SHIFT
from gpu_curate.ops.mix import GOLDEN
from gpu_curate.ops.text_stats import word_hash
from gpu_curate.text import fasttext_file

HIERARCHICAL, SOFTMAX, ONE_VS_ALL = 1, 3, 4  # args.loss; 2 is negative sampling, whose output is as one-vs-all's
MAX_BYTES = 8 << 30
_MASK = (1 << 64) - 1
_SCALE = 1000
_END = "</s>"


@dataclass(frozen=True, eq=False)
class Classifier:
    """What a fastText model says of a text: the mean of `feature` rows, as one number each.

    Attributes:
        words: word → row. value_R: float64, the weight of every row of the input matrix for the label asked for.
        word_ngrams, buckets, minn, maxn: of the model. pruned: bucket → row behind the words; None: none was pruned.
    """

    words: dict[str, int]
    value_R: np.ndarray
    word_ngrams: int
    buckets: int
    minn: int
    maxn: int
    pruned: dict[int, int] | None

    def subwords(self, word: str) -> list[int]:
        """Rows of the character n-grams of a word."""
        if self.maxn <= 0 or word == _END:
            return []
        text = f"<{word}>".encode("utf-8", "surrogatepass")
        starts = [i for i, b in enumerate(text) if b & 0xC0 != 0x80] + [len(text)]
        found = []
        for i in range(len(starts) - 1):
            for n in range(1, self.maxn + 1):
                if i + n >= len(starts):
                    break
                if n < self.minn or (n == 1 and (i == 0 or i + n == len(starts) - 1)):
                    continue
                row = self.row(hash32(text[starts[i] : starts[i + n]]) % self.buckets)
                if row is not None:
                    found.append(row)
        return found

    def row(self, bucket: int) -> int | None:
        """The row of an n-gram's bucket; None: it was pruned away."""
        if self.pruned is None:
            return len(self.words) + bucket
        at = self.pruned.get(bucket)
        return None if at is None else len(self.words) + at

    def ngram_row(self, hashes: list[int]) -> int | None:
        """The row of a run of words, by their hashes."""
        h = signed(hashes[0])
        for other in hashes[1:]:
            h = (h * 116049371 + signed(other)) & _MASK
        return self.row((h & _MASK) % self.buckets)

    def score(self, text: str) -> float:
        """The output for a text, as fastText computes it but for the size of its floats."""
        rows: list[int] = []
        words = [*text.split(), _END]
        for word in words:
            if word in self.words:
                rows.append(self.words[word])
            rows += self.subwords(word)
        if self.word_ngrams > 1:
            hashes = [hash32(w.encode("utf-8", "surrogatepass")) for w in words]
            for i in range(len(words)):
                for n in range(2, self.word_ngrams + 1):
                    row = self.ngram_row(hashes[i : i + n]) if i + n <= len(words) else None
                    if row is not None:
                        rows.append(row)
        return float(self.value_R[rows].mean()) if rows else 0.0


def hash32(text: bytes) -> int:
    """fastText's hash of a word: FNV-1a over signed bytes."""
    h = 2166136261
    for byte in text:
        h = (h ^ (byte if byte < 128 else byte | 0xFFFFFF00)) * 16777619 & 0xFFFFFFFF
    return h


def signed(h: int) -> int:
    """A 32-bit hash as fastText adds it up: as an int32, in 64 bits."""
    return h if h < 1 << 31 else (h - (1 << 32)) & _MASK


def read(path: Path, label: str | None = None) -> Classifier:
    """A model's weights for one label against the rest.

    Args:
        label: with or without `__label__`; None: the second of two, by name.
    Raises:
        ConfigError: no such model; it is damaged; it has another loss, more labels than can be told, or no such label.
    """
    try:
        size = path.stat().st_size
        if size > MAX_BYTES:
            raise ConfigError(f"{path} has {size} bytes; models up to {MAX_BYTES} are read")
        with path.open("rb") as f:
            if f.read(4) != struct.pack("<i", fasttext_file.MAGIC):
                raise ConfigError(
                    f"{path} is no fastText model", "give the .bin or .ftz that `fasttext supervised` wrote"
                )
        fasttext_file.check(path)
        return _Parser(path.read_bytes(), path).classifier(label)
    except OSError as e:
        raise ConfigError(f"{path}: {e.strerror or e}") from e
    except fasttext_file.Fault as e:
        raise ConfigError(
            f"{path} cannot be read: {e}", "the file is damaged: get it anew and compare its SHA-256"
        ) from e


class _Parser:
    """Takes a model apart that `fasttext_file.check` has found sound."""

    def __init__(self, data: bytes, path: Path):
        self._data, self._at, self._path = data, 0, path

    def _take(self, form: str) -> tuple[int, ...]:
        values = struct.unpack_from("<" + form, self._data, self._at)
        self._at += struct.calcsize("<" + form)
        return values

    def _array(self, kind: str, count: int) -> np.ndarray:
        found = np.frombuffer(self._data, kind, count, self._at)
        self._at += found.nbytes
        return found

    def classifier(self, label: str | None) -> Classifier:
        _, version, *args = self._take("ii12i")
        self._at += 8
        dim, _, _, _, _, word_ngrams, loss, _, buckets, minn, maxn, _ = args
        _, nwords, nlabels, _, npruned = self._take("iiiqq")
        names = []
        for _ in range(nwords + nlabels):
            end = self._data.index(b"\0", self._at)
            names.append(self._data[self._at : end].decode("utf-8", "replace"))
            self._at = end + 10
        pairs = self._array("<i4", 2 * max(npruned, 0)).reshape(-1, 2).tolist()
        direction_L = self._direction(names[nwords:], label, loss)
        (quantized,) = self._take("?")
        value = self._matrix(bool(quantized), dim)
        (of_outputs,) = self._take("?")
        outputs = self._matrix(bool(of_outputs) and bool(quantized), dim)
        value_R = value @ (direction_L @ outputs)
        words = {name: row for row, name in enumerate(names[:nwords])}
        pruned = None if npruned < 0 else {a: b for a, b in pairs}
        if version == 11:
            maxn = 0
        return Classifier(words, value_R.astype(np.float64), word_ngrams, buckets, minn, maxn, pruned)

    def _direction(self, labels: list[str], label: str | None, loss: int) -> np.ndarray:
        """float64 of L: what an output is multiplied with."""
        if loss == HIERARCHICAL:
            raise ConfigError(
                f"{self._path}: hierarchical softmax is not supported: its score is no sum over words",
                "train with -loss softmax, or score texts with fastText and train a judge on the scores",
            )
        known = [name.removeprefix("__label__") for name in labels]
        wanted = sorted(known)[-1] if label is None and len(known) == 2 else (label or "").removeprefix("__label__")
        if wanted not in known:
            raise ConfigError(
                f"{self._path}: no label {wanted!r}", f"--label is one of {', '.join(sorted(known)[:20])}"
            )
        direction = np.zeros(len(labels))
        direction[known.index(wanted)] = 1.0
        if loss == SOFTMAX:
            if len(labels) != 2:
                raise ConfigError(
                    f"{self._path}: softmax over {len(labels)} labels is no sum over words; two labels are",
                    "train with two labels or -loss ova, or train a judge on fastText's scores",
                )
            direction[1 - known.index(wanted)] = -1.0
        return direction

    def _matrix(self, quantized: bool, dim: int) -> np.ndarray:
        if not quantized:
            rows, columns = self._take("qq")
            return self._array("<f4", rows * columns).reshape(rows, columns).astype(np.float64)
        (normed,) = self._take("?")
        rows, _, codes = self._take("qqi")
        code = self._array("u1", codes).reshape(rows, -1)
        vectors = self._decoded(code, dim)
        if normed:
            vectors *= self._decoded(self._array("u1", rows).reshape(rows, 1), 1)
        return vectors

    def _decoded(self, code: np.ndarray, dim: int) -> np.ndarray:
        """Vectors of product-quantised rows; the codebooks come next in the file."""
        _, parts, of_each, of_last = self._take("4i")
        books = self._array("<f4", 256 * dim).astype(np.float64)
        pieces = []
        for m in range(parts):
            width = of_last if m == parts - 1 else of_each
            book = books[m * 256 * of_each :][: 256 * width].reshape(256, width)
            pieces.append(book[code[:, m]])
        return np.concatenate(pieces, axis=1)


def as_judge(model: Classifier, texts: list[str], bits: int = 20, wide: bool = True) -> tuple[ExactJudge, float]:
    """An exact judge with a model's weights, and the rank correlation of both on the texts (1.0: the same order).

    Args:
        texts: whose word n-grams get their weights. At least some hundred, like those to be scored.
    Raises: ConfigError: no texts.
    """
    if not texts:
        raise ConfigError("no texts", "give files of texts: their word n-grams are those that keep their weights")
    ngrams = min(max(model.word_ngrams, 1), MAX_NGRAMS)
    total_F, times_F = np.zeros(1 << bits), np.zeros(1 << bits)
    for words_of, n, value in _features(model, texts, ngrams):
        x = len(words_of)
        for word in words_of:
            x = (x * GOLDEN + word_hash(word.encode("utf-8", "surrogatepass"))) & _MASK
        bucket = x >> (64 - bits)
        total_F[bucket] += n * value
        times_F[bucket] += n
    weight_F = np.divide(total_F, times_F, out=np.zeros(1 << bits), where=times_F > 0)
    top, kind = (32767, np.int16) if wide else (127, np.int8)
    unit = (float(np.abs(weight_F).max()) or 1.0) / top
    weights = np.rint(weight_F / unit).astype(kind)
    outputs = np.arange(-8.0, 8.01, 0.125)  # beyond these a probability is 0 or 1 by the thousand
    x_K = np.unique(np.rint(outputs / unit * (1 << RAW_SHIFT)).astype(np.int64))
    y_K = np.rint(_SCALE / (1 + np.exp(-x_K * unit / (1 << RAW_SHIFT)))).astype(np.int32)
    judge = ExactJudge(weights, ngrams, 0, x_K, y_K)
    return judge, _likeness(judge, model, texts)


def _features(model: Classifier, texts: list[str], ngrams: int) -> list[tuple[tuple[str, ...], int, float]]:
    """Runs of words, how often they stand in the texts, and their weights; of the words all that the model knows."""
    times: Counter[tuple[str, ...]] = Counter()
    for text in texts:
        words = text.split()
        for n in range(1, ngrams + 1):
            times.update(zip(*(words[i:] for i in range(n)), strict=False))
    for word in model.words:
        times[(word,)] += 1
    found = []
    for words_of, n in times.items():
        if len(words_of) == 1:
            word = words_of[0]
            rows = [model.words[word]] if word in model.words else []
            value = float(model.value_R[rows + model.subwords(word)].sum())
        else:
            hashes = [hash32(w.encode("utf-8", "surrogatepass")) for w in words_of]
            row = model.ngram_row(hashes)
            value = 0.0 if row is None else float(model.value_R[row])
        found.append((words_of, n, value))
    return found


def _likeness(judge: ExactJudge, model: Classifier, texts: list[str]) -> float:
    from gpu_curate.document import TextColumn
    from gpu_curate.ops.judge import Tables, judge_sums, raw_scores

    sum_JN, words_N = judge_sums(TextColumn.from_texts(texts), Tables.of([judge.weights], [judge.ngrams]))
    ours_N = raw_scores(sum_JN[0], words_N, judge.ngrams, judge.prior).astype(np.float64)
    return rank_correlation(ours_N, np.array([model.score(t) for t in texts]))
