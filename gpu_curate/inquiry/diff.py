"""What one run keeps and another does not, by reason, with examples: `gpu-curate diff`.

Documents are the same if they come from the same place: source, path below its folder, and row. A file that only one of the
runs has read is told apart.

# N documents of both runs together, in the order of the first run's doc_ids
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpu_curate.document import ROW_BITS
from gpu_curate.errors import ConfigError
from gpu_curate.inquiry.stored import UNITS, Array, Stored
from gpu_curate.ops.mix import fmix64
from gpu_curate.privacy import cleaned
from gpu_curate.report.samples import Library, excerpt

KEPT = 0  # code of a document that no rule drops
_MASK = (1 << ROW_BITS) - 1


@dataclass(frozen=True)
class _Side:
    """The documents of one run: arrays of its N, in order of `place`."""

    place: Array  # int64: number of the file in both runs' list, then row
    doc_id: Array
    code: Array  # int16: place of its reason among those of both runs, KEPT first
    tokens: Array
    bytes: Array
    content: Array  # uint64: low half of the content hash


def diff(a: Stored, b: Stored, examples: int = 3) -> dict[str, Any]:
    """What became of the same documents in two runs.

    Args:
        examples: documents shown of every pair of fates.
    Returns:
        a, b: {run, kept, documents}; both_kept, both_dropped: {documents, tokens, bytes} (tokens and bytes of `a`);
        changes: per pair of fates where one keeps and the other drops {a, b (a reason or `kept`), documents, tokens, bytes,
        same_text_kept (of these, the other run keeps an equal text of another place), examples: {doc_id_a, doc_id_b, source,
        path, row, text}}, the most documents first; reasons: pairs of reasons of what both drop, where they differ;
        only_a, only_b: documents of files that the other has not read; set: keys in which the recipes differ, [a, b].
    Raises:
        ConfigError: they have no file in common.
    Memory: about 80 bytes a document of each.
    """
    from gpu_curate.inquiry.toggles import plain
    from gpu_curate.store.run_directory import differences

    numbers: dict[tuple[str, str], int] = {}
    for stored in (a, b):
        for name in _names(stored):
            numbers.setdefault(name, len(numbers))
    common = {name for name in set(_names(a)) & set(_names(b)) if name[0]}
    if not common:
        raise ConfigError(
            f"{a.run} and {b.run} have no input file in common, so no document can be compared",
            "files are the same by source and path below its folder",
        )
    names = ["kept", *dict.fromkeys([*a.bits, *b.bits])]
    left, right = (_side(stored, numbers, names) for stored in (a, b))
    both = np.intersect1d(left.place, right.place, assume_unique=True)
    rows_a, rows_b = np.searchsorted(left.place, both), np.searchsorted(right.place, both)
    code_a, code_b = left.code[rows_a], right.code[rows_b]
    kept_a, kept_b = code_a == KEPT, code_b == KEPT
    pair = code_a.astype(np.int64) * len(names) + code_b
    changes, reasons = [], []
    for value in np.unique(pair[code_a != code_b]).tolist():
        where = np.flatnonzero(pair == value)
        own = {"a": names[value // len(names)], "b": names[value % len(names)], **_sums(left, rows_a[where])}
        if "kept" not in (own["a"], own["b"]):
            reasons.append(own)
            continue
        mine, other = (left, right) if own["a"] == "kept" else (right, left)
        content = mine.content[(rows_a if own["a"] == "kept" else rows_b)[where]]
        own["same_text_kept"] = int(np.isin(content, other.content[other.code == KEPT]).sum())
        chosen = where[np.argsort(fmix64(both[where].astype(np.uint64)), kind="stable")][:examples]
        own["examples"] = [(int(left.doc_id[rows_a[i]]), int(right.doc_id[rows_b[i]])) for i in chosen]
        changes.append(own)
    _show_examples(a, changes)
    return {
        "a": _facts(a, left),
        "b": _facts(b, right),
        "both_kept": _sums(left, rows_a[kept_a & kept_b]),
        "both_dropped": _sums(left, rows_a[~kept_a & ~kept_b]),
        "changes": sorted(changes, key=lambda change: -change["documents"]),
        "reasons": sorted(reasons, key=lambda change: -change["documents"]),
        "only_a": _sums(left, np.flatnonzero(~np.isin(left.place, both))),
        "only_b": _sums(right, np.flatnonzero(~np.isin(right.place, both))),
        "set": cleaned(differences(plain(a.config), plain(b.config))),
    }


def _names(stored: Stored) -> list[tuple[str, str]]:
    """Of every file its source and its published name, which is distinct in a source."""
    return [(source, published) for source, _, _, published in stored.file_names()]


def _facts(stored: Stored, side: _Side) -> dict[str, Any]:
    return {"run": str(stored.run), "documents": len(side.place), "kept": int((side.code == KEPT).sum())}


def _side(stored: Stored, numbers: dict[tuple[str, str], int], reasons: list[str]) -> _Side:
    of_file = np.array([numbers[name] for name in _names(stored)], np.int64)
    columns = [
        np.concatenate(arrays)
        for arrays in zip(*stored.each(lambda part: _columns(stored, part, reasons)), strict=True)
    ]
    doc_id = columns[0]
    place = of_file[doc_id >> ROW_BITS] << ROW_BITS | doc_id & _MASK
    order = np.argsort(place, kind="stable")
    return _Side(place[order], *(values[order] for values in columns))


def _columns(stored: Stored, part: str, reasons: list[str]) -> tuple[Array, ...]:
    table = stored.table("decisions", part, ["doc_id", "reason", "tokens", "bytes"])
    reason = table["reason"].combine_chunks()
    codes = np.array([*(reasons.index(name) for name in reason.dictionary.to_pylist()), KEPT], np.int16)
    code = codes[reason.indices.fill_null(len(codes) - 1).to_numpy(zero_copy_only=False)]
    (content,) = stored.columns("signatures", part, "content_lo")
    return (table["doc_id"].to_numpy(), code, table["tokens"].to_numpy(), table["bytes"].to_numpy(), content)


def _sums(side: _Side, rows: Array) -> dict[str, int]:
    sums = (len(rows), int(side.tokens[rows].sum()), int(side.bytes[rows].sum()))
    return dict(zip(UNITS, sums, strict=True))


def _show_examples(a: Stored, changes: list[dict[str, Any]]) -> None:
    """Put places and the start of their text beside the doc_ids that were chosen."""
    ids = {pair[0] for change in changes for pair in change["examples"]}
    documents = Library(a.context).read(ids)
    for change in changes:
        change["examples"] = [
            {
                "doc_id_a": of_a,
                "doc_id_b": of_b,
                **cleaned({name: getattr(documents[of_a], name) for name in ("source", "path", "row")}),
                "text": excerpt(documents[of_a].text),
            }
            for of_a, of_b in change["examples"]
        ]


def lines(facts: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    """The changes as rows of a table: in a, in b, documents, tokens, of these with an equal text kept."""
    for change in facts["changes"]:
        equal = f"{change['same_text_kept']:,}" if change["same_text_kept"] else ""
        yield change["a"], change["b"], f"{change['documents']:,}", f"{change['tokens']:,}", equal
    for change in facts["reasons"]:
        yield change["a"], change["b"], f"{change['documents']:,}", f"{change['tokens']:,}", ""
