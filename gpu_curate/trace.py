"""Which documents stand behind a batch: for a spike of the loss at a step.

Needs the shards and their documents.parquet; what lies in the run directory around them (scores, clusters) is told too, if it
is there.

# B rows of a batch, T tokens of a row, D documents of a split
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gpu_curate.errors import ConfigError
from gpu_curate.privacy import cleaned
from gpu_curate.store.artifact import Box
from gpu_curate.store.run_directory import RUN_FILE, below, read_run_file

if TYPE_CHECKING:
    from gpu_curate.loader import ShardLoader

Array = np.ndarray[Any, np.dtype[Any]]
_FIXED = ("split", "position", "tokens", "doc_id", "source", "path", "row")


def trace(loader: ShardLoader, i: int, decode: Callable[[Iterable[int]], str] | None = None) -> list[dict[str, Any]]:
    """The documents behind every row of micro-batch i of a loader, the odd ones first.

    Args:
        i: as of `ShardLoader.batch`, counted over all epochs.
        decode: ids to text; with it every piece has its text.
    Returns:
        Per piece of a document in a row: row of the batch; offset and tokens, where in that row; position in the split's
        stream; doc_id, source, path, source_row and further columns of documents.parquet; document_tokens, skipped_tokens
        (of the document, before this piece). Row r is its pieces end to end: T tokens of x and the one that y has beyond them.
        If the run directory is there: cluster_size, how many documents it stands for, itself too; odd: {score, value, share}:
        the score whose value the smallest share of the kept documents of its partition reaches, on its side of the median.
        Every document in shards passed every rule of its run.
    Raises:
        ConfigError: i is negative, or there is no documents.parquet.
    Cost: two columns of documents.parquet, one of clusters, and the scores of the partitions that hold a document.
    """
    starts_B = loader.row_starts(i)
    folder, split = loader.stream.directory, loader.stream.split
    pieces = _pieces(folder, split, starts_B, loader.seq_len)
    further = _further(folder, {piece["doc_id"] for piece in pieces})
    for piece in pieces:
        piece.update(further[piece["doc_id"]])
        if decode is not None:
            start = piece["position"]
            piece["text"] = decode(loader.stream.read(start, start + piece["tokens"]))
    return sorted(pieces, key=lambda p: (p.get("odd", {}).get("share", 1.0), p["row"], p["offset"]))


def _pieces(folder: Path, split: str, starts_B: Array, T: int) -> list[dict[str, Any]]:
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    path = folder / "documents.parquet"
    if not path.exists():
        raise ConfigError(f"{path}: no such file; it says which document a token is of")
    with pq.ParquetFile(path, memory_map=True) as file:
        places = file.read(["split", "position", "tokens"])
        own = np.flatnonzero(pc.equal(places["split"].cast("string"), split).to_numpy())
        position_D, tokens_D = (places[name].to_numpy()[own] for name in ("position", "tokens"))
        order = np.argsort(position_D, kind="stable")
        own, position_D, tokens_D = own[order], position_D[order], tokens_D[order]
        pieces, of = [], []
        for row, start in enumerate(starts_B.tolist()):
            d = int(np.searchsorted(position_D, start, side="right")) - 1
            while d < len(own) and position_D[d] < start + T + 1:
                low = max(start, int(position_D[d]))
                high = min(start + T + 1, int(position_D[d] + tokens_D[d]))
                if low < high:
                    skipped = low - int(position_D[d])
                    pieces.append(
                        {
                            "row": row,
                            "offset": low - start,
                            "tokens": high - low,
                            "position": low,
                            "skipped_tokens": skipped,
                        }
                    )
                    of.append(int(own[d]))
                d += 1
        columns = [n for n in file.schema_arrow.names if n not in ("split", "position")]
        rows = _rows(file, sorted(set(of)), columns)
    for piece, number in zip(pieces, of, strict=True):
        facts = cleaned(dict(rows[number]))
        piece |= {"document_tokens": facts.pop("tokens"), "source_row": facts.pop("row"), **facts}
    return pieces


def _rows(file: Any, numbers: list[int], columns: list[str]) -> dict[int, dict[str, Any]]:
    """Rows of a Parquet file by number, from the row groups that hold one."""
    starts = np.cumsum(
        [0, *(file.metadata.row_group(g).num_rows for g in range(file.metadata.num_row_groups))]
    ).tolist()
    found: dict[int, dict[str, Any]] = {}
    for group in sorted({bisect_right(starts, n) - 1 for n in numbers}):
        own = [n for n in numbers if starts[group] <= n < starts[group + 1]]
        table = file.read_row_group(group, columns=columns, use_threads=False)
        found.update(zip(own, table.take([n - starts[group] for n in own]).to_pylist(), strict=True))
    return found


def _further(folder: Path, doc_ids: set[int]) -> dict[int, dict[str, Any]]:
    """What the run directory around the shards says of documents; nothing where there is none, or not that of these shards."""
    told: dict[int, dict[str, Any]] = {doc_id: {} for doc_id in doc_ids}
    run = folder.parent
    facts = read_run_file(run) if (run / RUN_FILE).exists() else {}
    folders = dict((facts.get("latest") or {}).get("folders") or facts.get("folders") or {})
    if folders.get("shards") != folder.name:
        return told
    boxes = {name: Box(below(run, folder)) for name, folder in folders.items()}
    if "duplicates" in boxes:
        _cluster_sizes(boxes["duplicates"].folder / "clusters.parquet", told)
    if {"scores", "decisions"} <= boxes.keys():
        _odd(boxes, told)
    return told


def _cluster_sizes(path: Path, told: dict[int, dict[str, Any]]) -> None:
    import pyarrow.parquet as pq

    for facts in told.values():
        facts["cluster_size"] = 1
    if path.exists():
        with pq.ParquetFile(path, memory_map=True) as file:
            table = file.read(["doc_id", "size"])
        doc_id, size = (table[name].to_numpy() for name in ("doc_id", "size"))
        for row in np.flatnonzero(np.isin(doc_id, list(told))).tolist():
            told[int(doc_id[row])]["cluster_size"] = int(size[row])


def _odd(boxes: dict[str, Box], told: dict[int, dict[str, Any]]) -> None:
    """Of every document the score that is rarest beside those of the kept documents of its partition."""
    wanted = np.array(sorted(told), np.int64)
    # decisions/ has the partitions of this run alone; in the folders of others there may be more
    for part in boxes["decisions"].parts():
        low, high = _ends(boxes["decisions"].path(part, ".parquet"))
        if not ((wanted >= low) & (wanted <= high)).any():
            continue
        decided = _read(boxes["decisions"], part, ["doc_id", "keep", "tokens", "bytes"])
        ids_N = decided["doc_id"].to_numpy()
        rows = np.flatnonzero(np.isin(ids_N, wanted))
        if not len(rows):
            continue
        doc_ids, kept_N = ids_N[rows].tolist(), decided["keep"].to_numpy(zero_copy_only=False)
        scores = _read(boxes["scores"], part, None)
        columns = {n: scores[n].to_numpy() for n in scores.column_names if _is_number(scores.schema.field(n).type)}
        columns["tokens_per_byte"] = decided["tokens"].to_numpy() / np.maximum(decided["bytes"].to_numpy(), 1)
        rarest: dict[int, dict[str, Any]] = {}
        for name, values_N in columns.items():
            sorted_K = np.sort(values_N[kept_N])
            value_R = values_N[rows]
            low_R = np.searchsorted(sorted_K, value_R, side="right") / max(
                len(sorted_K), 1
            )  # kept ones up to this value
            high_R = 1 - np.searchsorted(sorted_K, value_R, side="left") / max(len(sorted_K), 1)
            for doc_id, value, share in zip(doc_ids, value_R.tolist(), np.minimum(low_R, high_R).tolist(), strict=True):
                if doc_id not in rarest or share < rarest[doc_id]["share"]:
                    rarest[doc_id] = {"score": name, "value": value, "share": share}
        for doc_id, odd in rarest.items():
            told[doc_id]["odd"] = odd


def _is_number(type_: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_integer(type_) or pa.types.is_floating(type_))


def _read(box: Box, part: str, columns: list[str] | None) -> Any:
    import pyarrow.parquet as pq

    with pq.ParquetFile(box.path(part, ".parquet"), memory_map=True) as file:
        return file.read(columns, use_threads=False)


def _ends(path: Path) -> tuple[int, int]:
    """Lowest and highest doc_id of a partition, from its footer; (0, -1) of an empty one."""
    import pyarrow.parquet as pq

    with pq.ParquetFile(path, memory_map=True) as file:
        column = file.schema_arrow.get_field_index("doc_id")
        groups = [file.metadata.row_group(g).column(column).statistics for g in range(file.metadata.num_row_groups)]
        known = [s for s in groups if s is not None and s.has_min_max]
        return (min(s.min for s in known), max(s.max for s in known)) if known else (0, -1)
