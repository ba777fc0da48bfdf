"""Clusters of duplicates: how large, across what, whom they cost most, and what holds the giant ones together.

# M members of clusters, K buckets of a component
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa

from gpu_curate.document import ROW_BITS, matching
from gpu_curate.errors import ConfigError
from gpu_curate.inquiry.stored import Array, Stored
from gpu_curate.privacy import cleaned
from gpu_curate.report.samples import Library, excerpt
from gpu_curate.stages.duplicates import FIRST_REFERENCE

GIANT = 20  # members of a component from which bridges are looked for
MAX_MEMBERS = 20_000  # of a component whose bridges are looked for: a few seconds
_BRIDGES = 5


def clusters(stored: Stored, largest: int = 10) -> dict[str, Any]:
    """What the clusters of a run look like.

    Args:
        largest: clusters that are shown with a text.
    Returns:
        run; documents; clusters (of two or more), members, removed {exact, fuzzy}, components;
        sizes: {from, to, clusters, members} in octaves;
        across: for group, source and file {values, clusters, across, share}: clusters with members of two or more of them;
        sources: {source, documents, removed, share, alarm (above dedup.fuzzy.max_source_share)}, the most removed first;
        largest: {cluster, size, exact, fuzzy, groups, sources, files, doc_id, source, path, row, text} of the survivor;
        giants: the largest components {component, members, clusters, bridges: {kind (document | bucket), doc_id or doc_ids,
        cuts_off, text}}: what, taken out, leaves so many members without a chain of shared buckets to the rest; None where
        it has too many members to look.
    Raises:
        ConfigError: the run looked for no duplicates.
    Memory: about 150 bytes a member.
    """
    if not stored.has("duplicates"):
        raise ConfigError(f"{stored.run}: duplicates were not looked for (dedup.exact: false, dedup.fuzzy: null)")
    table = stored.clusters()
    doc_id, cluster, size = (table[name].to_numpy() for name in ("doc_id", "cluster", "size"))
    kind = table["kind"].cast(pa.string()).to_numpy(zero_copy_only=False)
    own = np.flatnonzero((doc_id < FIRST_REFERENCE) & (size > 1))
    several = _several(cluster[own])
    facts: dict[str, Any] = {
        "run": str(stored.run),
        "documents": stored.documents(),
        "clusters": len(np.unique(cluster[size > 1])),
        "members": int((size > 1).sum()),
        "removed": {name: int((kind[own] == name).sum()) for name in ("exact", "fuzzy")},
        "components": len(np.unique(table["component"].to_numpy()[size > 1])),
        "sizes": _octaves(cluster, size),
    }
    groups = _groups(stored, doc_id[own])
    file = doc_id[own] >> ROW_BITS
    source_of = np.array([names[0] for names in stored.file_names()], object)
    source = source_of[file] if len(file) else np.zeros(0, object)
    kinds = {"group": groups, "source": _codes(source), "file": file}
    facts["across"] = {
        name: _across(cluster[own][several], codes[several]) for name, codes in kinds.items() if codes is not None
    }
    facts["sources"] = _sources(stored, source[kind[own] != None])  # noqa: E711  elementwise
    facts["largest"] = _largest(stored, table, largest, kinds, own)
    facts["giants"] = _giants(stored, table)
    return facts


def _several(cluster: Array) -> Array:
    """bool: a member of a cluster that has another of its members here (references apart)."""
    _, inverse, counts = np.unique(cluster, return_inverse=True, return_counts=True)
    several: Array = counts[inverse] > 1
    return several


def _octaves(cluster: Array, size: Array) -> list[dict[str, int]]:
    heads = np.unique(cluster[size > 1], return_index=True)[1]
    sizes = size[size > 1][heads]
    found = []
    low = 2
    while len(sizes) and low <= sizes.max():
        inside = (sizes >= low) & (sizes < 2 * low)
        found.append(
            {"from": low, "to": 2 * low - 1, "clusters": int(inside.sum()), "members": int(sizes[inside].sum())}
        )
        low *= 2
    return found


def _codes(values: Array) -> Array:
    return np.unique(values.astype(str), return_inverse=True)[1] if len(values) else np.zeros(0, np.int64)


def _groups(stored: Stored, doc_ids: Array) -> Array | None:
    """int64 of every member: its group as a number; None where no source has groups. A document without one has -1."""
    if all(s.group_column is None for s in stored.config.sources):
        return None
    names: dict[str, int] = {}
    codes = np.full(len(doc_ids), -1, np.int64)
    for part in stored.parts_with_documents:
        table = stored.table("documents", part, ["doc_id", "group"])
        rows, places = matching(table["doc_id"].to_numpy(), doc_ids)
        if not len(rows):
            continue
        taken = table["group"].combine_chunks().take(pa.array(rows))
        local = np.array([names.setdefault(n, len(names)) for n in taken.dictionary.to_pylist()] + [-1], np.int64)
        codes[places] = local[taken.indices.fill_null(len(local) - 1).to_numpy(zero_copy_only=False)]
    return codes


def _across(cluster: Array, code: Array) -> dict[str, Any]:
    """Clusters with two or more different codes."""
    known = code >= 0
    cluster, code = cluster[known], code[known]
    total = len(np.unique(cluster))
    pairs = np.unique(np.stack([cluster, code], axis=1), axis=0)
    across = int((np.unique(pairs[:, 0], return_counts=True)[1] > 1).sum()) if len(pairs) else 0
    share = across / total if total else 0.0
    return {"values": len(np.unique(code)), "clusters": total, "across": across, "share": share}


def _sources(stored: Stored, removed: Array) -> list[dict[str, Any]]:
    """Share of each source that is removed as duplicates."""
    counts = Counter(removed.tolist())
    limit = stored.config.dedup.fuzzy.max_source_share if stored.config.dedup.fuzzy else 1.0
    told = []
    for name, documents in stored.source_documents().items():
        share = counts[name] / documents if documents else 0.0
        told.append(
            {"source": name, "documents": documents, "removed": counts[name], "share": share, "alarm": share > limit}
        )
    return sorted(told, key=lambda s: -s["share"])


def _largest(stored: Stored, table: Any, limit: int, kinds: dict[str, Any], own: Array) -> list[dict[str, Any]]:
    cluster, size, survivor = (table[name].to_numpy() for name in ("cluster", "size", "survivor"))
    kind = table["kind"].cast(pa.string()).to_numpy(zero_copy_only=False)
    numbers, heads = np.unique(cluster[size > 1], return_index=True)
    sizes = size[size > 1][heads]
    chosen = numbers[np.lexsort((numbers, -sizes))][:limit]
    library = Library(stored.context)
    found = []
    for number in chosen.tolist():
        rows = np.flatnonzero((cluster == number) & (size > 1))
        mine = np.flatnonzero(cluster[own] == number)
        leader = int(survivor[rows[0]])
        document = library.read([leader])[leader]
        found.append(
            {
                "cluster": number,
                "size": int(size[rows[0]]),
                **{name: int((kind[rows] == name).sum()) for name in ("exact", "fuzzy")},
                **{f"{n}s": len(np.unique(codes[mine])) for n, codes in kinds.items() if codes is not None},
                **cleaned({n: getattr(document, n) for n in ("doc_id", "source", "path", "row")}),
                "text": excerpt(document.text),
            }
        )
    return found


# ------------------------------------------------------------------------------------------------------------- bridges


def _giants(stored: Stored, table: Any, limit: int = 3) -> list[dict[str, Any]]:
    """The largest components, with the documents and buckets that hold them together."""
    component, cluster, doc_id = (table[name].to_numpy() for name in ("component", "cluster", "doc_id"))
    numbers, counts = np.unique(component, return_counts=True)
    order = np.lexsort((numbers, -counts))[:limit]
    found = []
    for number, members in zip(numbers[order].tolist(), counts[order].tolist(), strict=True):
        if members < GIANT or stored.config.dedup.fuzzy is None:
            continue
        own = component == number
        ids = doc_id[own & (doc_id < FIRST_REFERENCE)]
        facts = {"component": number, "members": members, "clusters": len(np.unique(cluster[own])), "bridges": None}
        if len(ids) <= MAX_MEMBERS:
            facts["bridges"] = _bridges(stored, ids)
        found.append(facts)
    return found


def _bridges(stored: Stored, ids: Array) -> list[dict[str, Any]]:
    """What, taken out, cuts most members off: articulation points of the graph of documents and their buckets."""
    keys_MB = _buckets(stored, ids)
    M = len(ids)
    neighbours: list[list[int]] = [[] for _ in range(M)]
    for b in range(keys_MB.shape[1]):
        _, inverse, counts = np.unique(keys_MB[:, b], return_inverse=True, return_counts=True)
        number = np.where(counts > 1, len(neighbours) + np.cumsum(counts > 1) - 1, -1)
        neighbours += [[] for _ in range(int((counts > 1).sum()))]
        for i, node in enumerate(number[inverse].tolist()):
            if node >= 0:
                neighbours[i].append(node)
                neighbours[node].append(i)
    cuts = articulation(neighbours, M)
    library = Library(stored.context)
    found = []
    for node, cut in sorted(cuts.items(), key=lambda c: (-c[1], c[0]))[:_BRIDGES]:
        members = [int(ids[node])] if node < M else [int(ids[i]) for i in neighbours[node]]
        document = library.read(members[:1])[members[0]]
        what = {"kind": "document", "doc_id": members[0]} if node < M else {"kind": "bucket", "doc_ids": members[:10]}
        found.append({**what, "cuts_off": cut, "text": excerpt(document.text)})
    return found


def _buckets(stored: Stored, ids: Array) -> Array:
    """uint64 (members, bands + 1): the buckets of documents (in order), and their content; 0 has no meaning of its own."""
    fuzzy = stored.config.dedup.fuzzy
    assert fuzzy is not None
    found = np.empty((len(ids), fuzzy.num_bands + 1), np.uint64)
    for part in stored.parts_with_documents:
        rows, places = matching(stored.columns("documents", part, "doc_id")[0], ids)
        if len(rows):
            (content_N,) = stored.columns("signatures", part, "content_lo")
            found[places, :-1] = stored.bands(part, fuzzy.num_bands)[rows]
            found[places, -1] = content_N[rows]
    return found


def articulation(neighbours: list[list[int]], documents: int) -> dict[int, int]:
    """The nodes of a graph whose removal parts its documents, and how many documents are then not in the largest piece.

    Args:
        neighbours: of every node; nodes 0..documents - 1 are documents, the others are not counted.
    Source: Tarjan 1972, depth-first search with low points; iterative, since a chain may be long.
    """
    n = len(neighbours)
    order, low, size = [-1] * n, [0] * n, [0] * n
    cuts: dict[int, int] = {}
    clock = 0
    for root in range(n):
        if order[root] >= 0:
            continue
        order[root] = low[root] = clock
        clock += 1
        size[root] = int(root < documents)
        pieces: dict[int, list[int]] = {}
        walk = [(root, -1, iter(neighbours[root]))]
        while walk:
            node, parent, rest = walk[-1]
            step = next(rest, None)
            if step is None:
                walk.pop()
                if walk:
                    above = walk[-1][0]
                    size[above] += size[node]
                    low[above] = min(low[above], low[node])
                    if low[node] >= order[above]:
                        pieces.setdefault(above, []).append(size[node])
            elif step == parent:
                continue
            elif order[step] >= 0:
                low[node] = min(low[node], order[step])
            else:
                order[step] = low[step] = clock
                clock += 1
                size[step] = int(step < documents)
                walk.append((step, node, iter(neighbours[step])))
        total = size[root]
        for node, below in pieces.items():
            own = int(node < documents)
            parts = [*below, total - own - sum(below)]
            if sum(p > 0 for p in parts) > 1:
                cuts[node] = total - own - max(parts)
    return cuts
