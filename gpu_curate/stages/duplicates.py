"""Duplicates: exact and fuzzy, band by band, one survivor a component.

# N documents (sources first, then reference sets)
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from gpu_curate import dedup, lsh
from gpu_curate.document import MAX_FILES, ROW_BITS, TextColumn
from gpu_curate.errors import ConfigError
from gpu_curate.ops import components as components_ops
from gpu_curate.ops.components import Components, band_edges
from gpu_curate.stages import Boxes, Made, Stage
from gpu_curate.stages.part import Part
from gpu_curate.stages.partition_text import host_text, verified_text
from gpu_curate.stages.reference_sets import ReferenceCounts
from gpu_curate.stages.sections import Dedup, Fuzzy, Reference
from gpu_curate.stages.signatures import fuzzy_of
from gpu_curate.store.artifact import Box
from gpu_curate.store.files import DISK_ERRORS, disk_error, write_table
from gpu_curate.store.receipts import Counts

FIRST_REFERENCE = MAX_FILES << ROW_BITS  # doc_ids from here up are items of reference sets

CLUSTERS = pa.schema(
    [
        ("doc_id", pa.int64()),
        (
            "component",
            pa.int64(),
        ),  # its first document in the order of the files: all that buckets (or verified pairs) chain
        (
            "cluster",
            pa.int64(),
        ),  # its first document in the order of the files: a survivor and what it stands for; a part of the component
        ("size", pa.int64()),  # of the cluster; 1 for a document that is kept beside others of its component
        ("survivor", pa.int64()),
        ("kind", pa.dictionary(pa.int8(), pa.string())),  # exact | fuzzy; null for the survivor itself
        ("jaccard", pa.float32()),  # to the survivor, where measured
    ]
)


@dataclass(frozen=True, kw_only=True)
class DuplicateCounts(Counts):
    """Attributes:
    candidate_pairs: documents that share a bucket, chained.
    components: clusters of two or more.
    compared_pairs, kept_apart: with verify_against: survivor.
    exact, fuzzy: documents that are duplicates.
    """

    candidate_pairs: int = 0
    components: int = 0
    compared_pairs: int | None = None
    kept_apart: int | None = None
    exact: int = 0
    fuzzy: int = 0

    quiet: ClassVar[frozenset[str]] = frozenset({"bytes"})

    def facts(self) -> dict[str, Any]:
        return {name: value for name, value in super().facts().items() if value is not None}


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
    counts: ClassVar[type[Counts]] = DuplicateCounts
    on_device: ClassVar[bool] = True

    def __init__(self, dedup: Dedup, references: Sequence[Reference]):
        self.section = dedup
        self.references = references
        boxes = ["documents", "signatures"]
        if self._actions:
            boxes += ["references", "reference_signatures"]
        if dedup.fuzzy is not None and dedup.fuzzy.keep.startswith("highest:"):
            boxes.append("scores")
        self.inputs = tuple(boxes)

    @property
    def _actions(self) -> list[tuple[str, str]]:
        """Name and action of the sets that documents are compared with as wholes."""
        return [(r.name, r.action) for r in self.references if r.action != "decontaminate"]

    def settings(self) -> Any:
        fuzzy = self.section.fuzzy
        dropped = {"max_source_share", "components"}
        return {
            "exact": self.section.exact,
            "fuzzy": fuzzy and fuzzy.model_dump(exclude=dropped),
            "actions": self._actions,
        }

    def make(self, part: Part) -> Made:
        corpus = RunCorpus(part.boxes, self.references)
        settings = settings_of(self.section)
        fuzzy = settings.fuzzy
        components = Components(len(corpus))
        copies, originals = dedup.exact_copies(corpus, settings)
        components.add_edges(originals, copies)
        pairs, how = 0, "cpu"
        if fuzzy is not None and not fuzzy.by_pair and _curator_wanted(part.backend, self.section.fuzzy):
            pairs, how = _connect_by_curator(part.boxes, corpus, fuzzy, components), "gpu (NeMo Curator)"
        elif fuzzy is not None:
            pairs, how = dedup.connect_bands(corpus, fuzzy, components), "cpu" if fuzzy.by_pair else part.backend
        label_N = components.labels()
        del components
        found = dedup.clusters(corpus, settings, label_N, copies, originals)
        clusters = _table(corpus, found, dedup.measured(corpus, settings, found))
        train_only = dedup.train_only(corpus, fuzzy, label_N)
        folder = part.box.folder
        paths = (folder / "clusters.parquet", folder / "train_only.parquet")
        write_table(paths[0], clusters, row_group_size=65536)
        write_table(paths[1], pa.table({"doc_id": np.sort(corpus.doc_id_N[train_only])}))
        counts = DuplicateCounts(
            documents=len(corpus),
            backend=how,
            candidate_pairs=int(pairs),
            components=len(np.unique(clusters["cluster"].filter(pc.greater(clusters["size"], 1)).to_numpy())),
            **found.checked,
            **_kind_counts(clusters),
        )
        return Made(counts, files=paths)


def _kind_counts(clusters: pa.Table) -> dict[str, int]:
    counts = {v["values"]: v["counts"] for v in pc.value_counts(clusters["kind"].cast(pa.string())).to_pylist()}
    return {"exact": counts.get("exact", 0), "fuzzy": counts.get("fuzzy", 0)}


def _table(corpus: RunCorpus, found: dedup.Clusters, jaccard: np.ndarray) -> pa.Table:
    """The rows of clusters.parquet, in order of doc_id."""
    doc_id = corpus.doc_id_N
    table = pa.table(
        {
            "doc_id": doc_id[found.member],
            "component": doc_id[found.component],
            "cluster": doc_id[found.cluster],
            "size": found.size,
            "survivor": doc_id[found.survivor],
            "kind": pa.array(found.kind, pa.string()).dictionary_encode().cast(CLUSTERS.field("kind").type),
            "jaccard": pa.array(jaccard, pa.float32(), mask=np.isnan(jaccard)),
        }
    ).cast(CLUSTERS)
    by_id = np.argsort(doc_id[found.member], kind="stable")
    return table if (np.diff(by_id) > 0).all() else table.take(pa.array(by_id))


class RunCorpus:
    """A `dedup.Corpus` of a run's files: all documents in the order of the files, whatever their numbers, then those of the
    reference sets."""

    ops: ModuleType = components_ops

    def __init__(self, boxes: Boxes, references: Sequence[Reference]):
        self.boxes, self._references = boxes, references
        pairs = [("documents", "signatures")]
        if boxes.has("reference_signatures"):
            pairs.append(("references", "reference_signatures"))
        self.parts: list[tuple[Box, Box, str]] = []  # documents box, signatures box, partition
        for documents, signatures in pairs:
            of_documents, of_signatures = boxes.box(documents), boxes.box(signatures)
            self.parts += [
                (of_documents, of_signatures, p) for p in of_documents.parts() if self._compared(documents, p)
            ]
        # Of this object, not of the process: a process may outlive a run, and its folder.
        self._text_column = functools.lru_cache(maxsize=2)(self._read_text)
        self._files = [pq.ParquetFile(s.verified(p, ".parquet"), memory_map=False) for _, s, p in self.parts]
        counts = [f.metadata.num_rows for f in self._files]
        self.starts = np.cumsum([0, *counts])  # of the partitions, as they lie
        self.doc_id_N = np.empty(self.starts[-1], np.int64)
        for (of_documents, _, part), start, stop in zip(self.parts, self.starts[:-1], self.starts[1:], strict=True):
            (self.doc_id_N[start:stop],) = of_documents.columns(part, "doc_id")
        # Number in the corpus → where it lies; None: they lie in order. They do unless files were added to the run.
        self._lies_N: np.ndarray | None = None
        place_N = boxes.snapshot().places(self.doc_id_N)
        if (place_N[1:] <= place_N[:-1]).any():
            self._lies_N = np.argsort(place_N, kind="stable")
        actions = {r.name: r.action for r in references}
        is_reference_N = self.doc_id_N >= FIRST_REFERENCE
        train_only_N = np.zeros(len(self), np.bool_)
        for (of_documents, _, part), start, stop in zip(self.parts, self.starts[:-1], self.starts[1:], strict=True):
            if start < stop and is_reference_N[start]:
                train_only_N[start:stop] = actions[of_documents.counts(part, ReferenceCounts).set] == "train_only"
        self.doc_id_N = self._ordered(self.doc_id_N)
        self.is_reference_N, self.train_only_N = self._ordered(is_reference_N), self._ordered(train_only_N)

    def _ordered(self, lying_N: np.ndarray) -> np.ndarray:
        """Values of the documents as they lie, in the order of the corpus."""
        return lying_N if self._lies_N is None else lying_N[self._lies_N]

    def _places(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Of documents of the corpus: index of their partition, and row in it."""
        lying = numbers if self._lies_N is None else self._lies_N[numbers]
        owner = np.searchsorted(self.starts, lying, side="right") - 1
        return owner, lying - self.starts[owner]

    def _compared(self, box: str, part: str) -> bool:
        if box == "documents":
            return True
        return self._references[int(part)].action != "decontaminate"

    def __len__(self) -> int:
        return len(self.doc_id_N)

    def column(self, name: str, dtype: Any = np.uint64) -> np.ndarray:
        """One column of signatures/ for every document."""
        values = np.empty(len(self), dtype)
        for file, start, stop in zip(self._files, self.starts[:-1], self.starts[1:], strict=True):
            values[start:stop] = file.read([name], use_threads=False)[name].to_numpy()
        return self._ordered(values)

    def texts(self, numbers: np.ndarray) -> list[bytes]:
        """The texts of some documents (sorted numbers are read fastest)."""
        out: list[Any] = [b""] * len(numbers)
        owner, rows = self._places(numbers)
        for part in np.unique(owner):
            where = np.flatnonzero(owner == part)
            column = self._text_column(part)
            for i in where:
                out[i] = column.raw(int(rows[i]))
        return out

    def _read_text(self, part: int) -> TextColumn:
        documents, _, name = self.parts[part]
        return host_text(verified_text(documents, name))

    def signature_rows(self, numbers: np.ndarray) -> np.ndarray:
        """uint32 signatures of some documents."""
        owner, row_in_part = self._places(numbers)
        rows, where = [], []
        for part in np.unique(owner):
            _, signatures, name = self.parts[part]
            column = signatures.read_table(name, ["signature"])["signature"].combine_chunks()
            where.append(np.flatnonzero(owner == part))
            taken = column.take(pa.array(row_in_part[where[-1]]))
            width = column.type.byte_width // 4
            buffer = np.frombuffer(taken.buffers()[1], np.uint32)[taken.offset * width :]
            rows.append(buffer[: len(taken) * width].reshape(-1, width))
        out = np.empty((len(numbers), rows[0].shape[1]), np.uint32)
        out[np.concatenate(where)] = np.concatenate(rows)
        return out

    def score(self, name: str) -> np.ndarray:
        """float64 of N: a column of scores/; 0.0 for a reference."""
        scores = self.boxes.box("scores")
        values = np.zeros(len(self), np.float64)
        for (documents, _, part), start, stop in zip(self.parts, self.starts[:-1], self.starts[1:], strict=True):
            if documents.folder != self.boxes.box("documents").folder:
                continue
            table = scores.read_table(part)
            if name not in table.column_names:
                raise ConfigError(
                    f"dedup.fuzzy.keep: highest:{name}: no such score (there are {', '.join(sorted(table.column_names))})"
                )
            values[start:stop] = table[name].to_numpy()
        return self._ordered(values)

    def place(self, array: np.ndarray) -> Any:
        """The array where the run puts documents."""
        if self.boxes.backend != "gpu":
            return array
        from gpu_curate.device.backend import to_device

        return to_device(array)

    @property
    def scratch(self) -> Path:
        return self.boxes.box("duplicates").folder

    def disk_error(self, error: OSError) -> Exception:
        return disk_error(self.scratch, error) if error.errno in DISK_ERRORS else error


def settings_of(section: Dedup) -> dedup.Settings:
    """What makes a duplicate, as plain values."""
    fuzzy = section.fuzzy
    if fuzzy is None:
        return dedup.Settings(exact=section.exact, fuzzy=None, seed=0)
    return dedup.Settings(
        exact=section.exact,
        fuzzy=fuzzy_of(fuzzy),
        keep=fuzzy.keep,
        seed=fuzzy.seed,
        by_group=fuzzy.scope == "group",
    )


def _connect_by_curator(boxes: Boxes, corpus: RunCorpus, fuzzy: lsh.Fuzzy, components: Components) -> int:
    """All bands through NeMo Curator on every GPU of the run; returns the number of pairs."""
    from gpu_curate.ops.components import curator

    valid = corpus.place(dedup.bucketed(corpus))
    bands = range(fuzzy.bands.num_bands)
    edges = (band_edges(corpus.place(corpus.column(lsh.band_column(b))), valid) for b in bands)
    folder = boxes.box("duplicates").folder / ".curator"
    label_N, pairs = curator.connect(edges, len(corpus), folder, len(boxes.devices), boxes.devices)
    member = np.flatnonzero(label_N != np.arange(len(label_N)))
    components.add_edges(label_N[member], member)
    return pairs


def _curator_wanted(backend: str, fuzzy: Fuzzy | None) -> bool:
    assert fuzzy is not None
    if fuzzy.components == "cpu" or backend != "gpu":
        if fuzzy.components == "curator":
            raise ConfigError(
                "dedup.fuzzy.components: curator needs the GPU backend, this run is on the CPU",
                "set components: auto, or run with --backend gpu",
            )
        return False
    from gpu_curate.device.backend import curator_available

    return curator_available(required=fuzzy.components == "curator")


def read_clusters(boxes: Boxes, low: int, high: int) -> pa.Table:
    """The rows of clusters.parquet with low <= doc_id <= high; reads only the row groups that may hold them."""
    path = boxes.box("duplicates").verified_file("000000", "clusters.parquet")
    with pq.ParquetFile(path, memory_map=True) as file:
        ids = [file.metadata.row_group(g).column(0).statistics for g in range(file.num_row_groups)]
        # a row group without rows has none
        groups = [g for g, s in enumerate(ids) if s is None or not s.has_min_max or (s.min <= high and s.max >= low)]
        table = file.read_row_groups(groups, use_threads=False)
    start, stop = np.searchsorted(table["doc_id"].to_numpy(), [low, high + 1])  # rows are in order of doc_id
    return table.slice(start, stop - start)


def clusters_of(boxes: Boxes, doc_id_N: np.ndarray) -> tuple[np.ndarray, pa.Table]:
    """The rows of clusters.parquet of N documents, and for each its document's place among these.

    doc_ids of a partition need not be in order, nor follow each other: files were added to the run.
    """
    if not len(doc_id_N):
        return np.zeros(0, np.int64), CLUSTERS.empty_table()
    clusters = read_clusters(boxes, int(doc_id_N.min()), int(doc_id_N.max()))
    member = clusters["doc_id"].to_numpy()
    own = np.isin(member, doc_id_N)
    by_id = np.argsort(doc_id_N, kind="stable")
    return by_id[np.searchsorted(doc_id_N, member[own], sorter=by_id)], clusters.filter(pa.array(own))
