"""Whether a fastText model holds together, by its own numbers, before the library reads it.

fastText believes a file: it does not look whether what it reads is there, nor whether a row that a word is sent to exists.
A model without its last rows loads and answers at random; one whose table of pruned n-grams points past its matrix reads,
and with a wrong dimension writes, memory that is not its own, at the text that its author chose. So a model that passes here
reaches only rows that it has. What it costs to load is bounded apart, in `language`.

Source: fastText 0.9.2, the order in which FastText, Dictionary, Matrix, QuantMatrix and ProductQuantizer are saved, and the
indices that `Dictionary::pushHash`, `ProductQuantizer::addcode` and `HierarchicalSoftmaxLoss::buildTree` compute.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

MAGIC = 793712314
VERSION = 12  # the newest that the library reads
SUPERVISED, HIERARCHICAL = 3, 1  # args.model, args.loss
CENTROIDS = 256
LARGEST_WEIGHT = 1e6  # of trained ones: below 1e3. With more, sums pass float32 and NaN becomes an index
LONGEST_NGRAM = 64  # characters of `maxn`, words of `wordNgrams`: what a text costs grows with both
LONGEST_LABEL_BYTES = 256
_PIECE = 1 << 20  # numbers looked at in one step
_INFINITE_COUNT = 10**15  # what the tree of labels takes for "not made yet"


class Fault(ValueError):
    """What a model contradicts itself in."""


class CutShort(Fault):
    """The file ends before what it says itself that it holds."""


@dataclass
class _Dictionary:
    words: int
    labels: int
    pruned: int  # entries of the table of pruned n-grams; -1: none was pruned
    largest_pruned: int  # the last row, behind those of the words, that the table sends to; -1: none


class _Reader:
    """Values of a file in order; little-endian."""

    def __init__(self, model: bytes | mmap.mmap):
        self._model, self._at = model, 0

    def take(self, form: str) -> tuple[int, ...]:
        """Raises: CutShort."""
        begin = self.skip(struct.calcsize("<" + form))
        return struct.unpack_from("<" + form, self._model, begin)

    def skip(self, count: int) -> int:
        """Where the bytes that are passed over begin. Raises: CutShort."""
        begin = self._at
        if begin + count > len(self._model):
            raise CutShort(f"it has {len(self._model)} bytes and says itself that it has {begin + count} or more")
        self._at += count
        return begin

    def text(self) -> int:
        """Length in bytes of a text that ends in NUL. Raises: CutShort."""
        end = self._model.find(b"\0", self._at)
        if end < 0:
            raise CutShort(f"it has {len(self._model)} bytes and ends in the middle of a word")
        length = end - self._at
        self._at = end + 1
        return length

    def pieces(self, count: int, kind: str) -> Iterator[np.ndarray]:
        """`count` numbers, in copies of some each. Raises: CutShort."""
        size = np.dtype(kind).itemsize
        begin = self.skip(count * size)
        for at in range(begin, begin + count * size, _PIECE * size):
            piece = self._model[at : min(at + _PIECE * size, begin + count * size)]
            yield np.frombuffer(piece, kind)

    def weights(self, count: int) -> None:
        """Raises: CutShort, Fault."""
        for piece in self.pieces(count, "<f4"):
            if not bool((np.abs(piece) <= LARGEST_WEIGHT).all()):  # NaN is not
                raise Fault(f"it has weights that are no numbers or above {LARGEST_WEIGHT:g}")

    def flag(self) -> bool:
        (value,) = self.take("B")
        _hold(value < 2, f"a flag is {value}")
        return bool(value)


def _hold(sound: bool, otherwise: str) -> None:
    if not sound:
        raise Fault(otherwise)


def check(path: Path) -> None:
    """Look through a whole file. What begins with another number is left for the library to refuse.

    Time: linear, 1 s for a million words. Memory: 8 MiB; the file is mapped.
    Raises:
        CutShort: it ends too early; the message names both lengths.
        Fault: what in it contradicts what.
    """
    with path.open("rb") as f:
        if f.read(4) == struct.pack("<i", MAGIC):
            with mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) as model:
                _check(_Reader(model))


def _check(reader: _Reader) -> None:
    _, version, *args = reader.take("ii12i")
    reader.skip(8)  # t
    dim, _, _, _, _, word_ngrams, loss, kind, bucket, minn, maxn, _ = args
    _hold(version <= VERSION, f"its version is {version}; {VERSION} is the newest that is known")
    _hold(kind == SUPERVISED, "it is no classifier (a supervised model)")
    _hold(dim > 0, f"its vectors have {dim} dimensions")
    _hold(bucket >= 0, f"it has {bucket} buckets")
    # The library takes a negative length for one of 2^64: a word of n characters then has n * n / 2 n-grams.
    _hold(min(word_ngrams, maxn, minn) >= 0, f"its n-grams have lengths of {word_ngrams}, {minn} and {maxn}")
    _hold(max(word_ngrams, maxn, minn) <= LONGEST_NGRAM, f"its n-grams are longer than {LONGEST_NGRAM}")
    if version == 11:  # as the library: models of that time have no n-grams of characters
        maxn = 0
    hashed = word_ngrams > 1 or maxn > 0
    words = _dictionary(reader, loss)
    _hold(not hashed or bucket > 0, "it has n-grams and no buckets for them")
    quantized = reader.flag()
    _hold(quantized or words.pruned < 0, "its n-grams are pruned and its vectors are not quantized")
    rows = _matrix(reader, quantized, dim)
    if words.pruned < 0:
        needed = words.words + bucket * hashed
    else:
        needed = words.words + words.largest_pruned + 1
    _hold(rows >= needed, f"it has {rows} vectors, and words and n-grams that need {needed}")
    outputs = _matrix(reader, reader.flag() and quantized, dim)
    _hold(outputs == words.labels, f"it has {outputs} outputs for {words.labels} labels")


def _dictionary(reader: _Reader, loss: int) -> _Dictionary:
    """Words, then labels; then the table of pruned n-grams."""
    size, nwords, nlabels, _, pruned = reader.take("iiiqq")
    _hold(
        nwords >= 0 and nlabels > 0 and size == nwords + nlabels,
        f"it has {size} entries, {nwords} words and {nlabels} labels",
    )
    last = _INFINITE_COUNT - 1
    for number in range(size):
        length = reader.text()
        count, kind = reader.take("qb")
        label = number >= nwords
        _hold(kind == label, f"its words and labels are not in order at entry {number}")
        if label:
            _hold(0 < length <= LONGEST_LABEL_BYTES, f"it has a label of {length} bytes")
            if loss == HIERARCHICAL:
                _hold(0 <= count <= last, f"the counts of its labels do not decrease at entry {number}")
                last = count
    largest = -1
    for pairs in reader.pieces(2 * max(pruned, 0), "<i4"):
        rows = pairs[1::2]
        _hold(int(rows.min()) >= 0, "its table of pruned n-grams has negative numbers")
        largest = max(largest, int(rows.max()))
    return _Dictionary(nwords, nlabels, pruned, largest)


def _matrix(reader: _Reader, quantized: bool, dim: int) -> int:
    """How many rows it has."""
    if not quantized:
        rows, columns = reader.take("qq")
        _hold(rows >= 0 and columns == dim, f"it has a matrix of {rows} x {columns} for vectors of {dim} dimensions")
        reader.weights(rows * columns)
        return rows
    normed = reader.flag()
    rows, columns, codes = reader.take("qqi")
    _hold(rows >= 0 and columns == dim, f"it has a matrix of {rows} x {columns} for vectors of {dim} dimensions")
    _hold(codes >= 0, f"a matrix has {codes} codes")
    reader.skip(codes)
    parts = _quantizer(reader, dim)
    _hold(codes == rows * parts, f"a matrix of {rows} rows of {parts} codes has {codes}")
    if normed:
        reader.skip(rows)
        _quantizer(reader, 1)
    return rows


def _quantizer(reader: _Reader, dim: int) -> int:
    """How many codes a row has."""
    dimensions, parts, of_each, of_last = reader.take("4i")
    _hold(
        dimensions == dim and parts > 0 and 0 < of_last <= of_each and (parts - 1) * of_each + of_last == dim,
        f"vectors of {dimensions} dimensions are cut into {parts} parts of {of_each}, the last of {of_last}",
    )
    reader.weights(CENTROIDS * dimensions)
    return parts
