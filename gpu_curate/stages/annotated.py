"""What annotations say of documents, for those that decide by it; how it was found is `annotations`' own business.

# N documents
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from gpu_curate.stages import Boxes

PART = "000000"  # the one partition of annotations/


def annotations_of(boxes: Boxes, doc_id_N: np.ndarray, names: Sequence[str]) -> dict[str, pa.Array]:
    """The columns of annotations among `names`, of N documents: strings, null where there is nothing."""
    if not boxes.has("annotations") or not len(doc_id_N):
        return {}
    box = boxes.box("annotations")
    there = [n for n in names if n in pq.read_schema(box.path(PART, ".parquet")).names]
    if not there:
        return {}
    table = box.read_table(PART, ["doc_id", *there])
    own = table["doc_id"].to_numpy()
    order = np.argsort(own, kind="stable")
    at = np.minimum(np.searchsorted(own, doc_id_N, sorter=order), max(len(own) - 1, 0))
    place_N = order[at] if len(own) else np.zeros(len(doc_id_N), np.int64)
    missing_N = own[place_N] != doc_id_N if len(own) else np.ones(len(doc_id_N), np.bool_)
    rows = pa.array(place_N, mask=missing_N)
    return {name: table[name].combine_chunks().take(rows) for name in there}
