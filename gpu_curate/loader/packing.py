"""Rows made of pieces of documents: what is in which row, found once and kept on disk.

    stream     documents in order, one behind the other; a row ends wherever it is full
    best_fit   best-fit decreasing: a document of up to T tokens is never cut. A longer one is cut into rows of its own, and
               what is left of it is packed like a document (Ding et al. 2024, arXiv:2404.10830)
    pad        one piece of a document a row

Best fit takes the longest piece first and puts it where the least room is left that suffices; a tree over the T + 1 possible
amounts of room finds that in log T steps, so the index of D documents takes D log T. Rows follow each other as their longest
pieces do in the stream, and pieces within a row as in the stream: where the stream is shuffled, no place is special.

Every token of a document is in exactly one row, as input; its target is the next token of its document.

# D documents, P pieces, R rows, T tokens of a row
"""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

from gpu_curate.errors import ConfigError, FatalError
from gpu_curate.jit import njit
from gpu_curate.loader.rows import Plan
from gpu_curate.store.files import publish

PACKINGS = ("stream", "best_fit", "pad")
_VERSION = 1  # of the file and of what decides the rows
_HEAD_BYTES = 4096
_MOST = (1 << 31) - 1  # documents, rows, tokens of a document

Array = np.ndarray[Any, np.dtype[Any]]


def make_plan(bounds: Array, T: int, packing: str, order: Array | None = None) -> Plan:
    """Rows of T tokens from documents.

    Args:
        bounds: int64 of D + 1, where documents start in the stream, and its length; each has a token or more.
        packing: one of PACKINGS. With `stream`, tokens that do not fill a row at the end are in none.
        order: numbers of the documents that are used, in the order in which they follow each other. None: all, as they lie.
    Raises:
        FatalError: more documents, or more tokens of one, than 2^31 - 1.
    Memory: 8 bytes a piece and 8 a row are kept, 16 bytes a document more while it is made.
    """
    if len(bounds) > _MOST or T > _MOST or (len(bounds) > 1 and int(np.diff(bounds).max()) > _MOST):
        raise FatalError(f"packing: more than {_MOST} documents, or tokens of one", "pack the sources one by one")
    order = np.arange(len(bounds) - 1, dtype=np.int32) if order is None else order.astype(np.int32)
    make = {"stream": _stream, "best_fit": _best_fit, "pad": _pad}[packing]
    return Plan(bounds, *make(bounds, order, T))


def open_plan(folder: Path, name: str, bounds: Array, T: int, packing: str, order: Array | None = None) -> Plan:
    """`make_plan`, kept in a file of `folder`, that is read where it was made of the same documents by the same rules.

    What is damaged or of other documents is made anew. A folder that cannot be written to is a warning: the rows are then
    made in every process.
    """
    digest = _digest(bounds) + ("" if order is None else _digest(order))
    head = {"version": _VERSION, "packing": packing, "seq_len": T, "documents": digest}
    path = folder / f"{name}.rows"
    found = _read(path, head, bounds)
    if found is not None:
        return found
    plan = make_plan(bounds, T, packing, order)
    try:
        _write(path, head, plan)
    except (FatalError, OSError) as e:
        warnings.warn(
            f"{path}: the rows could not be kept ({e}); they are made in every process", RuntimeWarning, stacklevel=2
        )
    return plan


def _digest(array: Array) -> str:
    return xxhash.xxh3_128(np.ascontiguousarray(array, "<i8").data.cast("B")).hexdigest()


def _write(path: Path, head: dict[str, Any], plan: Plan) -> None:
    text = json.dumps({**head, "rows": len(plan.row_R) - 1, "pieces": len(plan.document_P)}).encode()
    with publish(path) as temp, temp.open("wb") as f:
        f.write(text.ljust(_HEAD_BYTES - 1) + b"\n")
        for array, dtype in ((plan.row_R, "<i8"), (plan.document_P, "<u4"), (plan.offset_P, "<u4")):
            f.write(np.ascontiguousarray(array, dtype).data.cast("B"))


def _read(path: Path, head: dict[str, Any], bounds: Array) -> Plan | None:
    """The rows of a file; None: there is none, or it is not what it should be."""
    try:
        with path.open("rb") as f:
            facts = json.loads(f.read(_HEAD_BYTES))
        rows, pieces = int(facts["rows"]), int(facts["pieces"])
        if {k: facts.get(k) for k in head} != head or rows < 0 or pieces < 0:
            return None
        if path.stat().st_size != _HEAD_BYTES + 8 * (rows + 1) + 8 * pieces:
            return None
        row_R = np.memmap(path, "<i8", "r", _HEAD_BYTES, (rows + 1,)).view(np.ndarray)
        if pieces == 0:
            return Plan(bounds, row_R, np.zeros(0, np.uint32), np.zeros(0, np.uint32)) if rows == 0 else None
        at = _HEAD_BYTES + 8 * (rows + 1)
        document_P = np.memmap(path, "<u4", "r", at, (pieces,)).view(np.ndarray)
        offset_P = np.memmap(path, "<u4", "r", at + 4 * pieces, (pieces,)).view(np.ndarray)
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    plan = Plan(bounds, row_R, document_P, offset_P)
    return plan if _inside(*plan) else None  # what follows reads by address: a flipped bit must not lead elsewhere


@njit
def _inside(bounds: np.ndarray, row_R: np.ndarray, document_P: np.ndarray, offset_P: np.ndarray) -> bool:
    """True if every row has pieces, and every piece lies in a document."""
    D, P = len(bounds) - 1, len(document_P)
    if row_R[0] != 0 or row_R[-1] != P:
        return False
    for r in range(len(row_R) - 1):
        if row_R[r + 1] <= row_R[r]:
            return False
    for p in range(P):
        d = np.int64(document_P[p])
        if d >= D or bounds[d] + np.int64(offset_P[p]) >= bounds[d + 1]:
            return False
    return True


@njit
def _stream(bounds: np.ndarray, order: np.ndarray, T: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    total = 0
    for d in order:
        total += bounds[d + 1] - bounds[d]
    rows = total // T
    row_R = np.zeros(rows + 1, np.int64)
    document_P, offset_P = np.empty(len(order) + rows, np.uint32), np.empty(len(order) + rows, np.uint32)
    r, room, p = 0, T, 0
    for d in order:
        offset, length = 0, bounds[d + 1] - bounds[d]
        while offset < length and r < rows:
            document_P[p], offset_P[p] = d, offset
            p += 1
            count = min(room, length - offset)
            offset += count
            room -= count
            if room == 0:
                r += 1
                row_R[r], room = p, T
    return row_R, document_P[:p].copy(), offset_P[:p].copy()


@njit
def _pad(bounds: np.ndarray, order: np.ndarray, T: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    pieces = 0
    for d in order:
        pieces += (bounds[d + 1] - bounds[d] + T - 1) // T
    document_P, offset_P = np.empty(pieces, np.uint32), np.empty(pieces, np.uint32)
    p = 0
    for d in order:
        for offset in range(0, bounds[d + 1] - bounds[d], T):
            document_P[p], offset_P[p] = d, offset
            p += 1
    return np.arange(pieces + 1), document_P, offset_P


@njit
def _by_length(bounds: np.ndarray, order: np.ndarray, T: int) -> np.ndarray:
    """Places in `order` whose document leaves a piece shorter than a row, the longest piece first, equal ones in order."""
    begin = np.zeros(T + 1, np.int64)
    for d in order:
        begin[(bounds[d + 1] - bounds[d]) % T] += 1
    count = 0
    for length in range(T - 1, 0, -1):
        begin[length], count = count, count + begin[length]
    out = np.empty(count, np.int32)
    for i in range(len(order)):
        length = (bounds[order[i] + 1] - bounds[order[i]]) % T
        if length:
            out[begin[length]] = i
            begin[length] += 1
    return out


@njit
def _least_room(there: np.ndarray, leaves: int, length: int) -> int:
    """The least room >= length that some bin has; -1: none. `there` is a tree of `leaves` leaves, root at 1."""
    i = leaves + length
    if not there[i]:
        while i > 1 and (i & 1 or not there[i + 1]):
            i >>= 1
        if i <= 1:
            return -1
        i += 1
        while i < leaves:
            i <<= 1
            if not there[i]:
                i += 1
    return i - leaves


@njit
def _set(there: np.ndarray, i: int, value: bool) -> None:
    there[i] = value
    while i > 1:
        i >>= 1
        now = there[2 * i] or there[2 * i + 1]
        if there[i] == now:
            break
        there[i] = now


@njit
def _bins(bounds: np.ndarray, order: np.ndarray, by_length: np.ndarray, T: int) -> tuple[np.ndarray, np.ndarray]:
    """bin_D: the bin of the rest of each document, -1 without a rest; first_B: the place in `order` of its longest piece."""
    leaves = 1
    while leaves < T + 1:
        leaves *= 2
    there = np.zeros(2 * leaves, np.bool_)
    head = np.full(T + 1, -1, np.int32)  # bins by their room: the last that came in goes out first
    bin_D = np.full(len(order), -1, np.int32)
    first_B, below_B = np.empty(len(by_length), np.int32), np.empty(len(by_length), np.int32)
    bins = 0
    for i in by_length:
        length = (bounds[order[i] + 1] - bounds[order[i]]) % T
        room = _least_room(there, leaves, length)
        if room < 0:
            b, room = bins, T
            first_B[b] = i
            bins += 1
        else:
            b = head[room]
            head[room] = below_B[b]
            if head[room] < 0:
                _set(there, leaves + room, False)
        bin_D[i] = b
        room -= length
        if room > 0:
            below_B[b] = head[room]
            if head[room] < 0:
                _set(there, leaves + room, True)
            head[room] = b
    return bin_D, first_B[:bins].copy()


@njit
def _best_fit(bounds: np.ndarray, order: np.ndarray, T: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    by_length = _by_length(bounds, order, T)
    bin_D, first_B = _bins(bounds, order, by_length, T)
    row_B = np.empty(len(first_B), np.int32)
    rows = 0
    for i in range(len(order)):  # rows in the order of their longest pieces
        rows += (bounds[order[i] + 1] - bounds[order[i]]) // T
        if bin_D[i] >= 0 and first_B[bin_D[i]] == i:
            row_B[bin_D[i]] = rows
            rows += 1
    row_R = np.zeros(rows + 1, np.int64)
    r, pieces = 0, 0
    for i in range(len(order)):
        whole = (bounds[order[i] + 1] - bounds[order[i]]) // T
        for _ in range(whole):
            row_R[r + 1] = 1
            r += 1
        pieces += whole
        if bin_D[i] >= 0:
            row_R[row_B[bin_D[i]] + 1] += 1
            pieces += 1
            if first_B[bin_D[i]] == i:
                r += 1
    row_R = np.cumsum(row_R)
    document_P, offset_P = np.empty(pieces, np.uint32), np.empty(pieces, np.uint32)
    r = 0
    taken_B = np.zeros(len(first_B), np.int32)
    for i in range(len(order)):
        d = order[i]
        whole = (bounds[d + 1] - bounds[d]) // T
        for j in range(whole):
            document_P[row_R[r]], offset_P[row_R[r]] = d, j * T
            r += 1
        b = bin_D[i]
        if b >= 0:
            p = row_R[row_B[b]] + taken_B[b]
            document_P[p], offset_P[p] = d, whole * T
            taken_B[b] += 1
            if first_B[b] == i:
                r += 1
    return row_R, document_P, offset_P


def check_packing(packing: Any) -> str:
    """Raises: ConfigError: no packing of this name."""
    if packing not in PACKINGS:
        raise ConfigError(f"packing {packing!r}: expected {', '.join(PACKINGS[:-1])} or {PACKINGS[-1]}")
    return str(packing)
