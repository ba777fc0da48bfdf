"""Clusters around survivors: go through the members of a component from the best to the worst; each joins the first
survivor that it resembles enough, or survives itself.

So no two survivors of a component reach the threshold, and every member reaches it with its own. The order is the rank's
alone. A similarity is compared as the quotient of two integers in float64, the same in every implementation.

Source: the leader algorithm: Hartigan 1975, Clustering Algorithms, chapter 3.
Time: members times survivors of their component at worst, 0.04 µs each for sets of 500 shingles, 0.014 µs for 112 rows: a
pair of sets is left as soon as it cannot reach the threshold any more, which the elements of each in 512 ranges of hashes
tell for most. Memory: 512 bytes a survivor of the largest component.

# R members in order of (component, rank), C components, S shingles
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gpu_curate.jit import I64, U64, njit
from gpu_curate.ops.simd import as_input

RANGES = 512  # of the hashes, by their top 9 bits
FEW = 32  # members of a component for which counting the ranges does not pay


@njit
def distinct(
    hash_S: NDArray[np.uint64], offsets: NDArray[np.int64], out_S: NDArray[np.uint64], count_N: NDArray[np.int64]
) -> None:
    """Sort the shingles of every document and leave out repeats: document i is then the next count_N[i] of out_S."""
    place = 0
    for i in range(len(offsets) - 1):
        values = np.sort(hash_S[offsets[i] : offsets[i + 1]])
        first = place
        for value in values:
            if place == first or out_S[place - 1] != value:
                out_S[place] = value
                place += 1
        count_N[i] = place - first


@njit
def _need(a: int, b: int, threshold: float) -> int:
    """The fewest common elements with which sets of a and b elements reach the threshold; min(a, b) + 1 if none does."""
    most = min(a, b)
    need = min(max(int(threshold * (a + b) / (1.0 + threshold)), 1), most)
    while need > 1 and (need - 1) / (a + b - need + 1) >= threshold:
        need -= 1
    while need <= most and need / (a + b - need) < threshold:
        need += 1
    return need


@njit
def _common(value_S: NDArray[np.uint64], i: int, i_stop: int, j: int, j_stop: int, need: int) -> bool:
    """True if two sorted sets have `need` elements in common."""
    common = 0
    while i < i_stop and j < j_stop:
        if common + min(i_stop - i, j_stop - j) < need:
            return False
        x, y = value_S[i], value_S[j]
        common += x == y
        i += x <= y
        j += y <= x
    return common >= need


@njit
def _spread(value_S: NDArray[np.uint64], begin: int, count: int, held: NDArray[np.uint8]) -> bool:
    """Elements of a set in each of RANGES equal ranges of hashes. False if one holds more than a byte can count."""
    held[:] = 0
    for i in range(begin, begin + count):
        place = I64(value_S[i] >> U64(55))
        if held[place] == 255:
            return False
        held[place] += 1
    return True


@njit
def _most(held: NDArray[np.uint8], other: NDArray[np.uint8]) -> int:
    """The most elements that two sets can have in common, by their elements in each range."""
    most = I64(0)
    for k in range(RANGES):
        most += min(held[k], other[k])
    return most


@njit
def _lead_by_sets(
    value_S: NDArray[np.uint64],
    begin_R: NDArray[np.int64],
    count_R: NDArray[np.int64],
    fixed_R: NDArray[np.bool_],
    starts_C1: NDArray[np.int64],
    threshold: float,
    leader_R: NDArray[np.int64],
    survivor: NDArray[np.int64],
    held_LR: NDArray[np.uint8],
) -> int:
    compared = 0
    held = np.zeros(RANGES, np.uint8)
    counted_L = np.zeros(len(held_LR), np.bool_)  # False: a range holds too many elements to be counted
    for c in range(len(starts_C1) - 1):
        survivors = 0
        many = starts_C1[c + 1] - starts_C1[c] > FEW
        for r in range(starts_C1[c], starts_C1[c + 1]):
            leader_R[r] = r
            counted = many and _spread(value_S, begin_R[r], count_R[r], held)
            if not fixed_R[r]:
                for k in range(survivors):
                    s = survivor[k]
                    need = _need(count_R[r], count_R[s], threshold)
                    if need > min(count_R[r], count_R[s]):
                        continue
                    compared += 1
                    if counted and counted_L[k] and _most(held, held_LR[k]) < need:
                        continue
                    if _common(value_S, begin_R[r], begin_R[r] + count_R[r], begin_R[s], begin_R[s] + count_R[s], need):
                        leader_R[r] = s
                        break
            if leader_R[r] == r:
                survivor[survivors] = r
                if many:
                    held_LR[survivors] = held
                    counted_L[survivors] = counted
                survivors += 1
    return compared


@njit
def _lead_by_rows(
    sig_NH: NDArray[np.uint32],
    row_R: NDArray[np.int64],
    fixed_R: NDArray[np.bool_],
    starts_C1: NDArray[np.int64],
    threshold: float,
    leader_R: NDArray[np.int64],
    survivor: NDArray[np.int64],
) -> int:
    compared = 0
    H = sig_NH.shape[1]
    for c in range(len(starts_C1) - 1):
        survivors = 0
        for r in range(starts_C1[c], starts_C1[c + 1]):
            leader_R[r] = r
            if not fixed_R[r]:
                for k in range(survivors):
                    compared += 1
                    equal = 0
                    for h in range(H):
                        equal += sig_NH[row_R[r], h] == sig_NH[row_R[survivor[k]], h]
                    if equal / H >= threshold:
                        leader_R[r] = survivor[k]
                        break
            if leader_R[r] == r:
                survivor[survivors] = r
                survivors += 1
    return compared


def lead_by_sets(
    value_S: np.ndarray,
    begin_R: np.ndarray,
    count_R: np.ndarray,
    fixed_R: np.ndarray,
    starts_C1: np.ndarray,
    threshold: float,
) -> tuple[np.ndarray, int]:
    """Survivors by the exact Jaccard similarity of sets of shingles.

    Args:
        value_S: uint64, the sets one after the other, each sorted, without repeats. May be mapped from a file.
        begin_R, count_R: where the set of each member lies, and its elements (at least 1).
        fixed_R: True for a member that survives whatever it resembles.
        starts_C1: int64 of C + 1, where the members of each component start.
        threshold: above 0.
    Returns:
        leader_R: int64, the member that each belongs to: itself for a survivor; and the pairs that were compared.
    """
    longest = _longest(starts_C1)
    leader_R, survivor = np.empty(len(begin_R), np.int64), np.empty(longest, np.int64)
    held_LR = np.empty(
        (longest if longest > FEW else 0, RANGES), np.uint8
    )  # pages that no survivor needs stay untouched
    compared = _lead_by_sets(
        as_input(value_S),
        as_input(begin_R),
        as_input(count_R),
        as_input(fixed_R),
        as_input(starts_C1),
        threshold,
        leader_R,
        survivor,
        held_LR,
    )
    return leader_R, compared


def lead_by_rows(
    sig_NH: np.ndarray, row_R: np.ndarray, fixed_R: np.ndarray, starts_C1: np.ndarray, threshold: float
) -> tuple[np.ndarray, int]:
    """Survivors by the share of signature rows that agree: see `lead_by_sets`; row_R is each member's row of sig_NH."""
    leader_R, survivor = np.empty(len(row_R), np.int64), np.empty(_longest(starts_C1), np.int64)
    arrays = (as_input(sig_NH), as_input(row_R), as_input(fixed_R), as_input(starts_C1))
    compared = _lead_by_rows(*arrays, threshold, leader_R, survivor)
    return leader_R, compared


def _longest(starts_C1: np.ndarray) -> int:
    return int(np.diff(starts_C1).max(initial=0))
