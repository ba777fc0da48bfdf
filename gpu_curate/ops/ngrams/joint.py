"""Several indexes looked for at once: the words of a text are hashed and its n-grams made once, however many sets there are.

Equal hashes mean equal words, so what the union of two indexes finds is what either finds. Sets whose n-grams weigh the same and
have anchors of one length go together; others are a group of their own.

# G distinct n-grams of a union, M hits
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpu_curate.document import Array, TextColumn, is_cupy
from gpu_curate.ops.ngrams import NgramIndex, probe
from gpu_curate.ops.ngrams.cpu import joined_anchors


@dataclass(frozen=True)
class JointIndex:
    """Build one with `JointIndex.of`.

    Attributes:
        groups: the union of some indexes, and of each of these its number and the place in it of every n-gram of the
            union (-1: it has it not).
    """

    groups: tuple[tuple[NgramIndex, tuple[tuple[int, NDArray[np.int64]], ...]], ...]
    size: int

    @classmethod
    def of(cls, indexes: Sequence[NgramIndex]) -> JointIndex:
        """Memory: about 40 bytes an n-gram, beside the indexes."""
        alike: dict[tuple[int, int], list[int]] = {}
        for k, index in enumerate(indexes):
            anchor_words = 0 if index.anchors is None else index.anchors.words
            alike.setdefault((index.weight, anchor_words), []).append(k)
        groups = []
        for members in alike.values():
            union = _union([indexes[k] for k in members])
            groups.append((union, tuple((k, _places(union, indexes[k])) for k in members)))
        return cls(tuple(groups), len(indexes))


def _union(indexes: Sequence[NgramIndex]) -> NgramIndex:
    """An index for `probe`; it knows no items."""
    if len(indexes) == 1:
        return indexes[0]
    grams, widths, whole = (
        np.unique(np.concatenate([getattr(index, name) for index in indexes]))
        for name in ("gram_G", "width_K", "whole_K")
    )
    anchors = [index.anchors for index in indexes if index.anchors is not None]
    return NgramIndex.lookup(grams, widths, whole, indexes[0].weight, joined_anchors(anchors))


def _places(union: NgramIndex, index: NgramIndex) -> NDArray[np.int64]:
    place_G = np.full(len(union.gram_G), -1, np.int64)
    place_G[np.searchsorted(union.gram_G, index.gram_G)] = np.arange(len(index.gram_G))
    return place_G


def probe_all(text: TextColumn, joint: JointIndex) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """What `probe` gives for each of the indexes, on the host."""
    return apart(joint, [probe(text, union) for union, _ in joint.groups])


def apart(joint: JointIndex, hits: Sequence[tuple[Array, Array]]) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """The hits of each index, from those of every group."""
    none = np.zeros(0, np.int64)
    found = [(none, none)] * joint.size
    for (_, members), of_group in zip(joint.groups, hits, strict=True):
        doc_M, gram_M = (a.get() if is_cupy(a) else a for a in of_group)
        for k, place_G in members:
            place_M = place_G[gram_M]
            own = place_M >= 0
            found[k] = doc_M[own], place_M[own]  # places rise with those of the union, so the order stays
    return found
