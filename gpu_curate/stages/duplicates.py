"""Duplicates: exact and fuzzy, band by band, one survivor a component.

# N documents (sources first, then reference sets), B bands, E candidate pairs, M members of components of two or more
"""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Iterator
from typing import IO, Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from gpu_curate.config import Config, Fuzzy
from gpu_curate.document import MAX_FILES, ROW_BITS, TextColumn
from gpu_curate.errors import ConfigError
from gpu_curate.ops.components import Components, band_edges
from gpu_curate.ops.components.leaders import distinct, lead_by_rows, lead_by_sets
from gpu_curate.ops.minhash import jaccard, jaccard_exact, shingles
from gpu_curate.ops.mix import fmix64
from gpu_curate.stages import Context, Stage, Stopwatch
from gpu_curate.stages.partition_text import host_text
from gpu_curate.stages.signatures import band_column, minhash_spec
from gpu_curate.store.artifact import Box
from gpu_curate.store.files import DISK_ERRORS, disk_error, write_table

FIRST_REFERENCE = MAX_FILES << ROW_BITS  # doc_ids from here up are items of reference sets
JACCARD_SAMPLE = 10_000  # fuzzy duplicates whose Jaccard similarity to their survivor is measured for the report
_PAIR_BYTES = 256 << 20  # of text held while pairs are compared
_NO_PAIRS = (np.zeros(0, np.int64), np.zeros(0, np.int64))

CLUSTERS = pa.schema(
    [
        ("doc_id", pa.int64()),
        ("component", pa.int64()),  # lowest doc_id in it: all that buckets (or verified pairs) chain
        ("cluster", pa.int64()),  # lowest doc_id in it: a survivor and what it stands for; a part of the component
        ("size", pa.int64()),  # of the cluster; 1 for a document that is kept beside others of its component
        ("survivor", pa.int64()),
        ("kind", pa.dictionary(pa.int8(), pa.string())),  # exact | fuzzy; null for the survivor itself
        ("jaccard", pa.float32()),  # to the survivor, where measured
    ]
)


class Duplicates(Stage):
    """Connect documents of equal content or equal band hash, and name one survivor of each component.

    Reads: signatures, reference_signatures; scores with `keep: highest:SCORE`; documents with `verify: exact`.
    Writes: clusters.parquet (every document of a component of two or more) and train_only.parquet (doc_id of every
    document that matches a `train_only` set, with the rest of its component).
    Memory: about 100 bytes a document at the peak, whatever the number of bands (measured at 1 to 4 million documents, a
    fifth of them duplicates): connecting a band takes 8 for the id, 8 for the band, 12 to sort it, 4 for the component.
    Time: 1.8 CPU seconds per million documents for 14 bands, of which connecting takes 0.5 (scripts/bench/lsh.py).
    Source: Broder 1997; connected components as in Penedo et al. 2024, arXiv:2406.17557, section 3.4.
    Deviates: a document without a shingle can only be an exact duplicate; an empty one is none.
    With `verify` and `verify_against: survivor` a component is only where duplicates are looked for: from its best document
    down, each joins the first survivor that it reaches the threshold with, or survives itself (`ops.components.leaders`).
    So every two documents that are kept of a component are below the threshold, and deduplicating again removes nothing.
    `verify: exact` then keeps the shingles of all members in a file without a name, 8 bytes each.
    """

    name: ClassVar[str] = "duplicates"
    code: ClassVar[tuple[str, ...]] = (
        "stages.duplicates",
        "ops.components",
        "ops.minhash",
        "ops.words",
        "ops.simd",
        "ops.mix",
    )
    on_device: ClassVar[bool] = True

    def active(self, config: Config) -> bool:
        return bool(config.dedup.exact) or config.dedup.fuzzy is not None

    def reads(self, config: Config) -> tuple[str, ...]:
        boxes = ["documents", "signatures"]
        if any(r.action != "decontaminate" for r in config.references):
            boxes += ["references", "reference_signatures"]
        if config.dedup.fuzzy is not None and config.dedup.fuzzy.keep.startswith("highest:"):
            boxes.append("scores")
        return tuple(boxes)

    def settings(self, config: Config) -> Any:
        fuzzy = config.dedup.fuzzy
        dropped = {"max_source_share", "components"}
        return {
            "exact": config.dedup.exact,
            "fuzzy": fuzzy and fuzzy.model_dump(exclude=dropped),
            "actions": [(r.name, r.action) for r in config.references if r.action != "decontaminate"],
        }

    def plan(self, context: Context) -> dict[str, Any]:
        return {"000000": None}

    def run(self, context: Context, part: str, task: Any) -> dict[str, Any]:
        watch = Stopwatch()
        corpus = Corpus(context)
        fuzzy = context.config.dedup.fuzzy
        components = Components(len(corpus))
        copies, originals = _exact_copies(context, corpus) if context.config.dedup.exact else _NO_PAIRS
        components.add_edges(originals, copies)
        pairs, how = _connect_bands(context, corpus, components) if fuzzy is not None else (0, "cpu")
        label_N = components.labels()
        del components
        clusters, checked = _clusters(context, corpus, label_N, copies, originals)
        train_only = _train_only(context, corpus, label_N)
        box = context.box(self.name)
        paths = [box.folder / "clusters.parquet", box.folder / "train_only.parquet"]
        write_table(paths[0], clusters, row_group_size=65536)
        write_table(paths[1], pa.table({"doc_id": corpus.doc_id_N[train_only]}))
        facts = {
            "documents": len(corpus),
            "candidate_pairs": int(pairs),
            "components": len(np.unique(clusters["cluster"].filter(pc.greater(clusters["size"], 1)).to_numpy())),
            **checked,
            "backend": how,
            **_kind_counts(clusters),
        }
        return box.commit(part, paths, {**facts, **watch.facts()})


def _kind_counts(clusters: pa.Table) -> dict[str, int]:
    counts = {v["values"]: v["counts"] for v in pc.value_counts(clusters["kind"].cast(pa.string())).to_pylist()}
    return {"exact": counts.get("exact", 0), "fuzzy": counts.get("fuzzy", 0)}


class Corpus:
    """All documents in one numbering 0..N - 1, in increasing doc_id: the sources', then those of the reference sets."""

    def __init__(self, context: Context):
        self.context = context
        boxes = [("documents", "signatures")]
        if context.has("reference_signatures"):
            boxes.append(("references", "reference_signatures"))
        self.parts: list[tuple[Box, Box, str]] = []  # documents box, signatures box, partition
        for documents, signatures in boxes:
            of_documents, of_signatures = context.box(documents), context.box(signatures)
            self.parts += [
                (of_documents, of_signatures, p) for p in of_documents.parts() if self._compared(documents, p)
            ]
        # Of this object, not of the process: a process may outlive a run, and its folder.
        self._text_column = functools.lru_cache(maxsize=2)(self._read_text)
        self._files = [pq.ParquetFile(s.verified(p, ".parquet"), memory_map=False) for _, s, p in self.parts]
        counts = [f.metadata.num_rows for f in self._files]
        self.starts = np.cumsum([0, *counts])
        self.doc_id_N = np.empty(self.starts[-1], np.int64)
        for (documents, _, part), start, stop in zip(self.parts, self.starts[:-1], self.starts[1:], strict=True):
            self.doc_id_N[start:stop] = documents.read_table(part, ["doc_id"])["doc_id"].to_numpy()
        assert (self.doc_id_N[1:] > self.doc_id_N[:-1]).all(), "partitions out of order"
        actions = {r.name: r.action for r in context.config.references}
        self.is_reference_N = self.doc_id_N >= FIRST_REFERENCE
        self.train_only_N = np.zeros(len(self), np.bool_)
        for (documents, _, part), start, stop in zip(self.parts, self.starts[:-1], self.starts[1:], strict=True):
            if start < stop and self.is_reference_N[start]:
                self.train_only_N[start:stop] = actions[documents.receipt(part)["set"]] == "train_only"  # type: ignore[index]

    def _compared(self, box: str, part: str) -> bool:
        if box == "documents":
            return True
        return self.context.config.references[int(part)].action != "decontaminate"

    def __len__(self) -> int:
        return len(self.doc_id_N)

    def column(self, name: str, dtype: Any = np.uint64) -> np.ndarray:
        """One column of signatures/ for every document."""
        values = np.empty(len(self), dtype)
        for file, start, stop in zip(self._files, self.starts[:-1], self.starts[1:], strict=True):
            values[start:stop] = file.read([name], use_threads=False)[name].to_numpy()
        return values

    def texts(self, numbers: np.ndarray) -> list[bytes]:
        """The texts of some documents (sorted numbers are read fastest)."""
        out: list[Any] = [b""] * len(numbers)
        owner = np.searchsorted(self.starts, numbers, side="right") - 1
        for part in np.unique(owner):
            where = np.flatnonzero(owner == part)
            column = self._text_column(part)
            for i in where:
                out[i] = column.raw(int(numbers[i] - self.starts[part]))
        return out

    def _read_text(self, part: int) -> TextColumn:
        documents, _, name = self.parts[part]
        return host_text(documents.verified(name, ".parquet"))


def _exact_copies(context: Context, corpus: Corpus) -> tuple[np.ndarray, np.ndarray]:
    """Documents whose content (and scope) an earlier document has: (their numbers in order, that document's number).

    Empty documents and those of `train_only` sets equal nothing here.
    """
    nbytes = corpus.column("bytes", np.int64)
    valid = (nbytes > 0) & ~corpus.train_only_N
    del nbytes
    key = corpus.column("content_hi")
    fuzzy = context.config.dedup.fuzzy
    if fuzzy is not None and fuzzy.scope == "group":
        key ^= fmix64(corpus.column("scope"))
    a, b = band_edges(key, valid)
    same = np.ones(len(a), np.bool_)
    for name in ("content_lo", "content_hi", "bytes"):
        values = corpus.column(name)
        same &= values[a] == values[b]
    exact = Components(len(corpus))
    if not same.all():  # two different contents share 64 bits: compare every pair of those buckets
        lo = corpus.column("content_lo")
        for bucket in np.unique(key[a[~same]]):
            members = np.flatnonzero((key == bucket) & valid)
            order = members[np.lexsort((members, lo[members]))]
            alike = lo[order[:-1]] == lo[order[1:]]
            exact.add_edges(order[:-1][alike], order[1:][alike])
        a, b = a[same], b[same]
    del key, valid
    if context.config.dedup.exact == "compare":
        keep = [_equal_texts(corpus, x, y) for x, y in _pair_chunks(corpus, a, b)]
        alike = np.concatenate([*keep, np.zeros(0, np.bool_)])
        a, b = a[alike], b[alike]
    exact.add_edges(a, b)
    label_N = exact.labels()
    copies = np.flatnonzero(label_N != np.arange(len(label_N)))
    return copies, label_N[copies]


def _equal_texts(corpus: Corpus, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.array([x == y for x, y in zip(corpus.texts(a), corpus.texts(b), strict=True)], np.bool_)


def _chunks(corpus: Corpus, numbers: np.ndarray) -> Iterator[np.ndarray]:
    """Documents in slices whose texts fit in memory; the order stays."""
    owner = np.cumsum(corpus.column("bytes", np.int64)[numbers]) // _PAIR_BYTES
    yield from np.split(numbers, np.flatnonzero(np.diff(owner)) + 1)


def _pair_chunks(corpus: Corpus, a: np.ndarray, b: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Pairs in slices whose texts fit in memory; the order stays."""
    if not len(a):
        return
    nbytes = corpus.column("bytes", np.int64)
    owner = np.cumsum(nbytes[a] + nbytes[b]) // _PAIR_BYTES
    cuts = np.flatnonzero(np.diff(owner)) + 1
    yield from zip(np.split(a, cuts), np.split(b, cuts), strict=True)


def _connect_bands(context: Context, corpus: Corpus, components: Components) -> tuple[int, str]:
    """Connect every pair of documents that shares a bucket (and passes `verify` against each other); returns pairs and
    where it ran."""
    fuzzy = context.config.dedup.fuzzy
    assert fuzzy is not None
    valid = (corpus.column("n_shingles", np.int64) > 0) & ~corpus.train_only_N
    by_pair = fuzzy.verify != "none" and fuzzy.verify_against == "pair"
    if not by_pair and _curator_wanted(context):
        return _connect_by_curator(context, corpus, valid, components), "gpu (NeMo Curator)"
    pairs = 0
    if not by_pair:
        placed = _place(context, valid)
        for b in range(fuzzy.num_bands):
            pairs += components.add_band(_place(context, corpus.column(band_column(b))), placed)
        return pairs, context.backend
    by_content = np.lexsort((corpus.column("content_hi"), corpus.column("content_lo")))
    for b in range(fuzzy.num_bands):
        x, y = _pairs_to_verify(corpus.column(band_column(b)), valid, by_content)
        pairs += len(x)
        label_N = components.labels()
        new = label_N[x] != label_N[y]  # the others would connect nothing
        for p, q in _pair_chunks(corpus, x[new], y[new]):
            alike = _similarity(corpus, p, q, fuzzy) >= fuzzy.threshold
            components.add_edges(p[alike], q[alike])
    return pairs, "cpu"


def _pairs_to_verify(hash_N: np.ndarray, valid: np.ndarray, by_content: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Candidate pairs of one band where a pair may fail: neighbours in a bucket, and everyone with its first document.

    Buckets are in order of content, not of place, so that the pairs do not depend on where documents lie.
    """
    a, b = band_edges(hash_N[by_content], valid[by_content])
    chain = Components(len(hash_N))
    chain.add_edges(a, b)
    first = chain.labels()[b]
    far = first != a
    return by_content[np.concatenate([a, first[far]])], by_content[np.concatenate([b, b[far]])]


def _connect_by_curator(context: Context, corpus: Corpus, valid: np.ndarray, components: Components) -> int:
    """All bands through NeMo Curator on every GPU of the run; returns the number of pairs."""
    from gpu_curate.ops.components import curator

    fuzzy = context.config.dedup.fuzzy
    assert fuzzy is not None
    edges = (
        band_edges(_place(context, corpus.column(band_column(b))), _place(context, valid))
        for b in range(fuzzy.num_bands)
    )
    folder = context.box("duplicates").folder / ".curator"
    label_N, pairs = curator.connect(edges, len(corpus), folder, len(context.devices), context.devices)
    member = np.flatnonzero(label_N != np.arange(len(label_N)))
    components.add_edges(label_N[member], member)
    return pairs


def _place(context: Context, array: np.ndarray) -> Any:
    if context.backend != "gpu":
        return array
    from gpu_curate.device.backend import to_device

    return to_device(array)


def _curator_wanted(context: Context) -> bool:
    fuzzy = context.config.dedup.fuzzy
    assert fuzzy is not None
    if fuzzy.components == "scipy" or context.backend != "gpu":
        if fuzzy.components == "curator":
            raise ConfigError(
                "dedup.fuzzy.components: curator needs the GPU backend, this run is on the CPU",
                "set components: auto, or run with --backend gpu",
            )
        return False
    from gpu_curate.device.backend import curator_available

    return curator_available(required=fuzzy.components == "curator")


def _similarity(corpus: Corpus, a: np.ndarray, b: np.ndarray, fuzzy: Fuzzy) -> np.ndarray:
    """float64 Jaccard similarity of pairs: estimated from signatures, or exact on the sets of shingles."""
    used, inverse = np.unique(np.concatenate([a, b]), return_inverse=True)
    pairs_P2 = inverse.reshape(2, -1).T.astype(np.int64)
    if fuzzy.verify == "signature":
        return jaccard(_signature_rows(corpus, used), pairs_P2)
    hash_S, offsets = shingles(TextColumn.from_texts(corpus.texts(used)), minhash_spec(fuzzy))
    return jaccard_exact(hash_S, offsets, pairs_P2)


def _signature_rows(corpus: Corpus, numbers: np.ndarray) -> np.ndarray:
    owner = np.searchsorted(corpus.starts, numbers, side="right") - 1
    rows = []
    for part in np.unique(owner):
        _, signatures, name = corpus.parts[part]
        column = signatures.read_table(name, ["signature"])["signature"].combine_chunks()
        taken = column.take(pa.array(numbers[owner == part] - corpus.starts[part]))
        width = column.type.byte_width // 4
        buffer = np.frombuffer(taken.buffers()[1], np.uint32)[taken.offset * width :]
        rows.append(buffer[: len(taken) * width].reshape(-1, width))
    return np.ascontiguousarray(np.concatenate(rows))


def _clusters(
    context: Context, corpus: Corpus, label_N: np.ndarray, copies: np.ndarray, originals: np.ndarray
) -> tuple[pa.Table, dict[str, int]]:
    """The members of every component of two or more, in order of doc_id; and what checking against survivors did."""
    shared = np.zeros(len(label_N), np.bool_)
    joined = label_N != np.arange(len(label_N))
    shared[label_N[joined]] = True
    members = np.flatnonzero(shared | joined)
    del shared, joined
    component = label_N[members]
    rank = _rank(context, corpus, members)
    is_reference = corpus.is_reference_N[members]
    content = members.copy()  # documents of equal content have one number: that of the first
    content[np.searchsorted(members, copies)] = originals
    fuzzy = context.config.dedup.fuzzy
    if fuzzy is not None and fuzzy.verify != "none" and fuzzy.verify_against == "survivor":
        leader, checked = _leaders(context, corpus, members, component, rank, content)
    else:
        leader, checked = _best(component, rank), {}
    _, inverse, sizes = np.unique(leader, return_inverse=True, return_counts=True)
    cluster = np.full(len(sizes), np.iinfo(np.int64).max)
    np.minimum.at(cluster, inverse, members)
    survivor = members[leader]
    by_content = np.lexsort((rank, content))
    is_copy = np.empty(len(members), np.bool_)  # a document of equal content ranks before it
    is_copy[by_content] = np.diff(content[by_content], prepend=-1) == 0
    kind = np.where(is_copy, "exact", "fuzzy").astype(object)
    kind[(survivor == members) | is_reference] = None
    survivor[is_reference] = members[is_reference]  # a reference is never dropped
    same = content[np.searchsorted(members, survivor)] == content
    table = pa.table(
        {
            "doc_id": corpus.doc_id_N[members],
            "component": corpus.doc_id_N[component],
            "cluster": corpus.doc_id_N[cluster[inverse]],
            "size": sizes[inverse].astype(np.int64),
            "survivor": corpus.doc_id_N[survivor],
            "kind": pa.array(kind, pa.string()).dictionary_encode().cast(CLUSTERS.field("kind").type),
            "jaccard": _measured(context, corpus, members, survivor, kind, same),
        }
    )
    return table.cast(CLUSTERS), checked


def _best(group: np.ndarray, rank: np.ndarray) -> np.ndarray:
    """For every member the place of the best of its group."""
    order = np.lexsort((rank, group))
    head = np.flatnonzero(np.diff(group[order], prepend=-1))
    best = np.empty(len(group), np.int64)
    best[order] = np.repeat(order[head], np.diff(np.append(head, len(group))))
    return best


def _leaders(
    context: Context,
    corpus: Corpus,
    members: np.ndarray,
    component: np.ndarray,
    rank: np.ndarray,
    content: np.ndarray,
) -> tuple[np.ndarray, dict[str, int]]:
    """For every member the place of the survivor that it reaches the threshold with: itself, or one of its component.

    Equal contents go together, so the best of each is asked for all. References survive whatever they resemble.
    """
    fuzzy = context.config.dedup.fuzzy
    assert fuzzy is not None
    speaker = _best(content, rank)
    asked = np.flatnonzero(speaker == np.arange(len(members)))
    asked = asked[np.lexsort((rank[asked], component[asked]))]
    starts = np.append(np.flatnonzero(np.diff(component[asked], prepend=-1)), len(asked))
    several = np.repeat(np.diff(starts) > 1, np.diff(starts))  # components of one content need no comparison
    leader = np.arange(len(members))
    compared = 0
    if several.any():
        asked = asked[several]
        starts = np.append(np.flatnonzero(np.diff(component[asked], prepend=-1)), len(asked))
        fixed = corpus.is_reference_N[members[asked]]
        by_number = np.sort(members[asked])
        row = np.searchsorted(by_number, members[asked])
        if fuzzy.verify == "signature":
            found, compared = lead_by_rows(_signature_rows(corpus, by_number), row, fixed, starts, fuzzy.threshold)
        else:
            with tempfile.TemporaryFile(dir=context.box("duplicates").folder) as file:
                count = _write_sets(corpus, by_number, fuzzy, file)
                begin = np.cumsum(count) - count
                sets = np.memmap(file, np.uint64, "r")
                found, compared = lead_by_sets(sets, begin[row], count[row], fixed, starts, fuzzy.threshold)
        leader[asked] = asked[found]
    leader = leader[speaker]
    apart = int((leader == np.arange(len(members))).sum()) - len(np.unique(component))
    return leader, {"compared_pairs": compared, "kept_apart": apart}


def _write_sets(corpus: Corpus, numbers: np.ndarray, fuzzy: Fuzzy, file: IO[bytes]) -> np.ndarray:
    """Write the sets of shingles of some documents (in order), each sorted; returns their sizes."""
    counts = []
    try:
        for chunk in _chunks(corpus, numbers):
            hash_S, offsets = shingles(TextColumn.from_texts(corpus.texts(chunk)), minhash_spec(fuzzy))
            out_S, count = np.empty(len(hash_S), np.uint64), np.empty(len(chunk), np.int64)
            distinct(hash_S, offsets, out_S, count)
            file.write(memoryview(out_S[: count.sum()]).cast("B"))
            counts.append(count)
        file.flush()
    except OSError as e:
        if e.errno in DISK_ERRORS:
            raise disk_error(corpus.context.box("duplicates").folder, e) from e
        raise
    return np.concatenate(counts)


def _measured(
    context: Context, corpus: Corpus, members: np.ndarray, survivor: np.ndarray, kind: np.ndarray, same: np.ndarray
) -> pa.Array:
    """Exact Jaccard similarity to the survivor: of its exact copies (`same`), of matches of a reference set, and of a
    sample of the others."""
    fuzzy = context.config.dedup.fuzzy
    value = np.full(len(members), np.nan, np.float32)
    dropped = kind != None  # noqa: E711  elementwise
    value[dropped & same] = 1.0
    if fuzzy is not None:
        of_reference = corpus.is_reference_N[survivor]
        where = np.flatnonzero(dropped & ~same)
        if len(where) > JACCARD_SAMPLE:
            lo = corpus.column("content_lo")[members[where]]
            chosen = np.zeros(len(where), np.bool_)
            chosen[np.argsort(fmix64(lo), kind="stable")[:JACCARD_SAMPLE]] = True
            where = where[chosen | of_reference[where]]
        exact = fuzzy.model_copy(update={"verify": "exact"})
        done = 0
        for a, b in _pair_chunks(corpus, members[where], survivor[where]):
            value[where[done : done + len(a)]] = _similarity(corpus, a, b, exact)
            done += len(a)
    return pa.array(value, pa.float32(), mask=np.isnan(value))


def _rank(context: Context, corpus: Corpus, members: np.ndarray) -> np.ndarray:
    """int64 rank of each member: the lowest of a component survives. References come first, ties end in doc_id order."""
    fuzzy = context.config.dedup.fuzzy
    keep = fuzzy.keep if fuzzy is not None else "random"
    seed = fuzzy.seed if fuzzy is not None else 0
    random = fmix64(corpus.column("content_lo")[members] ^ np.uint64(seed))
    keys: list[np.ndarray] = [members, random]  # least important first
    if keep == "first":
        keys = [members]
    elif keep == "longest":
        keys.append(-corpus.column("bytes", np.int64)[members])
    elif keep.startswith("highest:"):
        keys.append(-_score(context, corpus, keep.removeprefix("highest:"))[members])
    keys.append(~corpus.is_reference_N[members])
    rank = np.empty(len(members), np.int64)
    rank[np.lexsort(keys)] = np.arange(len(members))
    return rank


def _score(context: Context, corpus: Corpus, name: str) -> np.ndarray:
    scores = context.box("scores")
    values = np.zeros(len(corpus), np.float64)
    for (documents, _, part), start, stop in zip(corpus.parts, corpus.starts[:-1], corpus.starts[1:], strict=True):
        if documents.folder != context.box("documents").folder:
            continue
        table = scores.read_table(part)
        if name not in table.column_names:
            raise ConfigError(
                f"dedup.fuzzy.keep: highest:{name}: no such score (there are {', '.join(sorted(table.column_names))})"
            )
        values[start:stop] = table[name].to_numpy()
    return values


def _train_only(context: Context, corpus: Corpus, label_N: np.ndarray) -> np.ndarray:
    """Numbers of the documents that share a bucket or their content with a `train_only` item, and their components."""
    train_only = corpus.train_only_N
    if not train_only.any():
        return np.zeros(0, np.int64)
    lo, nbytes = corpus.column("content_lo"), corpus.column("bytes", np.int64)
    match_N = np.isin(lo, lo[train_only]) & (nbytes > 0)
    fuzzy = context.config.dedup.fuzzy
    if fuzzy is not None:
        valid = corpus.column("n_shingles", np.int64) > 0
        for b in range(fuzzy.num_bands):
            hash_N = corpus.column(band_column(b))
            match_N |= np.isin(hash_N, hash_N[train_only & valid]) & valid
    hit = np.zeros(len(corpus), np.bool_)
    hit[label_N[match_N]] = True
    return np.flatnonzero(hit[label_N] & ~corpus.is_reference_N)


def read_clusters(context: Context, low: int, high: int) -> pa.Table:
    """The rows of clusters.parquet with low <= doc_id <= high; reads only the row groups that may hold them."""
    path = context.box("duplicates").verified_file("000000", "clusters.parquet")
    return pq.read_table(path, filters=[("doc_id", ">=", low), ("doc_id", "<=", high)], use_threads=False)
