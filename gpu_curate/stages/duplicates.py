"""Duplicates: exact and fuzzy, band by band, one survivor a component.

# N documents (sources first, then reference sets)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from gpu_curate import dedup, lsh
from gpu_curate.document import MAX_FILES, ROW_BITS
from gpu_curate.errors import ConfigError, DeviceError
from gpu_curate.ops.components import Components
from gpu_curate.stages import Boxes, Made, Stage
from gpu_curate.stages.candidates import CONTENT, CandidateCounts
from gpu_curate.stages.part import Part
from gpu_curate.stages.sections import Dedup, Fuzzy, Reference
from gpu_curate.stages.signatures import fuzzy_of
from gpu_curate.store.files import write_table
from gpu_curate.store.receipts import Counts

if TYPE_CHECKING:
    from gpu_curate.stages.run_corpus import RunCorpus

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

    Reads: candidates; signatures and reference_signatures of the documents that share a hash; scores with
    `keep: highest:SCORE`; texts with `verify: exact`.
    Writes: clusters.parquet (every document of a component of two or more) and train_only.parquet (doc_id of every
    document that matches a `train_only` set, with the rest of its component).
    Memory: a seventh of a byte a document, and about 150 bytes one that shares a hash with another.
    Source: Broder 1997; connected components as in Penedo et al. 2024, arXiv:2406.17557, section 3.4.
    Deviates: a document without a shingle can only be an exact duplicate; an empty one is none.
    With `verify` and `verify_against: survivor` a component is only where duplicates are looked for: from its best document
    down, each joins the first survivor that it reaches the threshold with, or survives itself (`ops.components.leaders`).
    So every two documents that are kept of a component are below the threshold, and deduplicating again removes nothing.
    `verify: exact` then keeps the shingles of all members in a file without a name, 8 bytes each.
    """

    name: ClassVar[str] = "duplicates"
    counts: ClassVar[type[Counts]] = DuplicateCounts

    def __init__(self, dedup: Dedup, references: Sequence[Reference]):
        self.section = dedup
        self.references = references
        boxes = ["documents", "signatures", "candidates"]
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

    def takes_devices(self, boxes: Boxes) -> bool:
        return self._by_curator(boxes)

    def _by_curator(self, boxes: Boxes) -> bool:
        """Whether NeMo Curator builds the components. Raises: ConfigError: it is required and cannot."""
        fuzzy = self.section.fuzzy
        return fuzzy is not None and not fuzzy_of(fuzzy).by_pair and _curator_wanted(boxes, fuzzy)

    def make(self, part: Part) -> Made:
        from gpu_curate.stages.run_corpus import RunCorpus  # loads Numba, which a run with nothing to do does without

        settings = settings_of(self.section)
        fuzzy = settings.fuzzy
        corpus = RunCorpus(part.boxes, self.references, 0 if fuzzy is None else fuzzy.bands.num_bands)
        components = Components(len(corpus))
        duplicates, firsts = dedup.exact_duplicates(corpus, settings)
        components.add_edges(firsts, duplicates)
        pairs, how = 0, "cpu"
        if fuzzy is not None:
            pairs, how = self._connect(part, corpus, fuzzy, components)
        label_N = components.labels()
        del components
        found = dedup.clusters(corpus, settings, label_N, duplicates, firsts)
        train_only = dedup.train_only(corpus, label_N)
        jaccard = dedup.measured(corpus, settings, found)
        del label_N, duplicates, firsts  # where all documents are duplicates, each such array is as long as the corpus
        corpus.release()
        clusters = _table(corpus, found, jaccard)
        folder = part.box.folder
        paths = (folder / "clusters.parquet", folder / "train_only.parquet")
        write_table(paths[0], clusters, row_group_size=65536)
        write_table(paths[1], pa.table({"doc_id": np.sort(corpus.doc_id_N[train_only])}))
        counts = DuplicateCounts(
            documents=corpus.documents,
            backend=how,
            candidate_pairs=int(pairs),
            components=len(np.unique(clusters["cluster"].filter(pc.greater(clusters["size"], 1)).to_numpy())),
            **found.checked,
            **_kind_counts(clusters),
        )
        return Made(counts, files=paths)

    def _connect(self, part: Part, corpus: RunCorpus, fuzzy: lsh.Fuzzy, components: Components) -> tuple[int, str]:
        """Connect what bands connect; returns the number of pairs, and by what."""
        assert self.section.fuzzy is not None
        if self._by_curator(part.boxes):
            try:
                return _connect_by_curator(part.boxes, corpus, fuzzy, components), "gpu (NeMo Curator)"
            except DeviceError as e:
                if self.section.fuzzy.components == "curator":
                    raise
                part.warn(f"NeMo Curator failed, the CPU builds the components: {e.message}")
        return dedup.connect_bands(corpus, fuzzy, components), "cpu"


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
        survivors=fuzzy.survivors,
        min_cluster_size=fuzzy.min_cluster_size,
    )


def _connect_by_curator(boxes: Boxes, corpus: RunCorpus, fuzzy: lsh.Fuzzy, components: Components) -> int:
    """All bands through NeMo Curator on every GPU of the run; returns the number of pairs."""
    from gpu_curate.ops.components import curator

    edges = (corpus.equal_band(b) for b in range(fuzzy.bands.num_bands))
    folder = boxes.box("duplicates").folder / ".curator"
    label_N, pairs = curator.connect(edges, len(corpus), folder, len(boxes.devices), boxes.devices)
    member = np.flatnonzero(label_N != np.arange(len(label_N)))
    components.add_edges(label_N[member], member)
    return pairs


def _curator_wanted(boxes: Boxes, fuzzy: Fuzzy) -> bool:
    """`components: auto` takes it where it pays (`curator.pays`), `curator` always."""
    if fuzzy.components == "cpu" or boxes.backend != "gpu":
        if fuzzy.components == "curator":
            raise ConfigError(
                "dedup.fuzzy.components: curator needs the GPU backend, this run is on the CPU",
                "set components: auto, or run with --backend gpu",
            )
        return False
    from gpu_curate.device.backend import curator_available
    from gpu_curate.ops.components import curator

    if fuzzy.components == "curator":
        return curator_available(required=True)
    counted = [receipt.counts.pairs for receipt in boxes.receipts("candidates", CandidateCounts)]
    edges = sum(n for pairs in counted for table, n in pairs if table != CONTENT)
    return curator.pays(edges, len(boxes.devices)) and curator_available(required=False)


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
