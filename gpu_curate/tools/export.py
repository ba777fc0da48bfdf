"""Curated text as Parquet or JSON Lines: what was kept, or what was dropped, with its reason and everything known of it.

A file a partition, whole or not there, with receipts: the same call goes on where it was stopped. Same run, same request,
same bytes.

# N documents of a partition, K of them exported
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from gpu_curate.config import did_you_mean
from gpu_curate.errors import ConfigError, FatalError
from gpu_curate.runs.engines import make_engine
from gpu_curate.runs.workers import CPU, default_workers
from gpu_curate.stages import Context
from gpu_curate.stages.cuts import without_cuts
from gpu_curate.stages.documents.schema import SCHEMA
from gpu_curate.stages.duplicates import CLUSTERS, read_clusters
from gpu_curate.stages.order import BESIDE
from gpu_curate.stages.overlaps import box_of
from gpu_curate.stages.partition_text import host_text, verified_text
from gpu_curate.stages.reasons import NOT_DRAWN
from gpu_curate.stages.rule_values import bits_of_run
from gpu_curate.store.artifact import Box
from gpu_curate.store.files import publish, read_json, write_json, write_table
from gpu_curate.store.lock import run_lock
from gpu_curate.store.receipts import Counts, Receipt
from gpu_curate.store.run_directory import FINGERPRINT

VERSION = 1  # of what an export holds
REQUEST = ".request.json"
_ROWS = 16384  # of a row group
What = Literal["kept", "dropped", "all"]
Format = Literal["parquet", "jsonl"]

# Every export's own columns; a source's kept columns follow, then, where asked for, scores and overlaps.
COLUMNS: dict[str, tuple[pa.DataType, str]] = {
    "doc_id": (pa.int64(), "number of the document in the run: file number << 36 | row"),
    "text": (pa.large_string(), "the text as it was tokenised: normalised, personal data replaced, cuts taken out"),
    "source": (pa.string(), "name of the source"),
    "path": (pa.string(), "file it came from"),
    "row": (pa.int64(), "row, line, record or byte offset in that file"),
    "group": (pa.string(), "value of the source's group_column"),
    "split": (pa.string(), "train or validation; null if it is in no shard"),
    "keep": (pa.bool_(), "true: it is in the shards"),
    "reason": (pa.string(), "the first rule it failed; null if kept"),
    "failing": (pa.list_(pa.string()), "all rules that it failed, in the order they are tried"),
    "partner": (pa.int64(), "doc_id of the survivor, or of the item of a reference set; null without one"),
    "cluster": (pa.int64(), "cluster of duplicates that it is in: the lowest doc_id of it; null if in none"),
    "cluster_size": (pa.int64(), "documents in that cluster"),
    "jaccard": (pa.float32(), "similarity to the survivor, where it was measured"),
    "tokens": (pa.int64(), "its tokens, the end-of-text one included"),
    "bytes": (pa.int64(), "bytes of its text"),
}
_CLUSTER = next(n for n in ("cluster", "component") if n in CLUSTERS.names)
_OF_CLUSTERS = ("cluster", "cluster_size", "jaccard")


@dataclass(frozen=True)
class Request:
    """What is exported. Small and picklable: it travels with every partition.

    Args:
        reasons: of dropped documents, `family:rule` or a family; () takes all.
        columns: in their order; all of COLUMNS and of the sources' kept columns by default.
    """

    context: Context
    out: Path
    what: What
    format: Literal["parquet", "jsonl"]
    reasons: tuple[str, ...]
    split: str | None
    sources: tuple[str, ...]
    columns: tuple[str, ...]
    types: dict[str, pa.DataType]  # of every column but COLUMNS

    @property
    def suffix(self) -> str:
        return f".{self.format}"

    def identity(self) -> dict[str, Any]:
        """What the export's bytes depend on, as plain data."""
        boxes = {
            n: self.context.box(n).folder.joinpath(FINGERPRINT).read_text().strip()
            for n in self.context.folders
            if n not in BESIDE
        }
        boxes["documents"] = self.context.corpus or boxes["documents"]  # its folder has those of other inputs, too
        asked = {"what": self.what, "format": self.format, "reasons": list(self.reasons), "split": self.split}
        return {
            "version": VERSION,
            **asked,
            "sources": list(self.sources),
            "columns": list(self.columns),
            "boxes": boxes,
        }


def export(
    context: Context,
    out: Path,
    what: What = "kept",
    format: Format = "parquet",
    reasons: Iterable[str] = (),
    split: str | None = None,
    sources: Iterable[str] = (),
    columns: Iterable[str] = (),
    workers: int | None = None,
    note: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Write documents of a finished run to `out`, a file a partition that has some.

    Args:
        context: of `finished.open_run`.
        what: kept (in the shards), dropped (by a rule, or not drawn by the mixture), or all.
        reasons: only documents dropped for these, `family:rule` or a whole family.
        split: only documents of this split; of kept ones.
        sources: only of these.
        columns: names of COLUMNS, of kept columns, of scores (`scores`: all of them) and of overlaps with benchmarks
            (coverage_NAME, item_NAME, hits_NAME); () takes COLUMNS and the kept columns.
        note: is told how far it is.
    Returns:
        documents, bytes of text, partitions, reused, files, out.
    Raises:
        ConfigError: a name that does not exist, or `out` holds something else. FatalError: a source's file that texts are
            read from has changed. CorruptError: a partition of the run is damaged; running the recipe again mends it.
    Memory: a partition's text about three times, and 9 bytes a kept document, for each worker.
    """
    request = _request(context, out, what, format, tuple(reasons), split, tuple(sources), tuple(columns))
    identity = request.identity()
    with run_lock(out, lambda pid: note(f"process {pid} is writing to {out}; waiting for it to end")):
        _check_out(out, identity)
        write_json(out / REQUEST, identity)
        parts = context.box("documents").parts()
        box = Box(out)
        done = {p: r for p in parts if (r := box.receipt(p)) is not None}
        reused = len(done)
        for part, receipt in _run_all(request, [p for p in parts if p not in done], workers):
            done[part] = receipt
            note(
                f"{len(done):,} of {len(parts):,} partitions, {sum(r.counts.documents for r in done.values()):,} documents"
            )
        facts = {
            "documents": sum(r.counts.documents for r in done.values()),
            "bytes": sum(r.counts.bytes for r in done.values()),
            "partitions": len(parts),
            "files": sorted(f.file for r in done.values() for f in r.files),
        }
        write_json(out / "export.json", {**{k: v for k, v in identity.items() if k != "boxes"}, **facts})
    return {**facts, "reused": reused, "out": str(out)}


def _run_all(request: Request, parts: list[str], workers: int | None) -> Iterable[tuple[str, Receipt[Counts]]]:
    """Export partitions in worker processes, a few ahead of what is done; one is done in this process."""
    count = min(workers or default_workers(), len(parts))
    engine = make_engine("inline" if count <= 1 else "local", max(count, 1), {})
    waiting = list(reversed(parts))
    running: dict[Future[Any], str] = {}
    whole = False
    try:
        while waiting or running:
            while waiting and len(running) < 2 * count:
                part = waiting.pop()
                running[engine.submit(CPU, export_part, request, part)] = part
            ended: set[Future[Any]] = wait(running, return_when=FIRST_COMPLETED).done
            for future in ended:
                yield running.pop(future), future.result()
        whole = True
    finally:
        engine.close(kill=not whole)


def _check_out(out: Path, identity: dict[str, Any]) -> None:
    """Raises: ConfigError: the folder holds something else."""
    path = out / REQUEST
    if path.exists():
        before = read_json(path)
        key = next((k for k, v in identity.items() if before.get(k) != v), None)
        if key is not None:
            what = "of another state of the run" if key == "boxes" else f"with {key} = {before.get(key)!r}"
            raise ConfigError(f"{out} holds an export {what}", "choose another folder with --out, or delete it")
    elif any(not p.name.startswith(".lock") for p in out.iterdir()):
        raise ConfigError(f"{out} is not empty and no export", "choose an empty folder with --out")


# -------------------------------------------------------------------------------------------------------- what is asked


def _request(
    context: Context, out: Path, what: What, format: Any, reasons: tuple[str, ...], split: str | None,
    sources: tuple[str, ...], columns: tuple[str, ...],
) -> Request:  # fmt: skip
    """Raises: ConfigError: a name that does not exist, or a choice that goes with another one only."""
    known = known_reasons(context)
    for reason in reasons:
        _check_name("--reason", reason, known)
    if reasons and what == "kept":
        raise ConfigError("--reason is of dropped documents", "add --what dropped")
    if split is not None and what == "dropped":
        raise ConfigError("--split is of kept documents", "leave it out, or say --what kept")
    for source in sources:
        _check_name("--source", source, [s.name for s in context.config.sources])
    own, extra = kept_columns(context), _extra_columns(context)
    names: list[str] = []
    for name in columns or [*COLUMNS, *own]:
        if name == "scores":
            names += [n for n in extra if n not in names and extra[n][0] == "scores"]
            continue
        _check_name("--columns", name, [*COLUMNS, *own, *extra, "scores"])
        if name not in names:
            names.append(name)
    types = {**own, **{n: kind for n, (_, kind) in extra.items()}}
    asked = (format, reasons, "validation" if split == "val" else split, sources)
    return Request(context, out, what, *asked, tuple(names), {n: types[n] for n in names if n not in COLUMNS})


def known_reasons(context: Context) -> list[str]:
    """Every reason of a run, and the families that some begin with."""
    reasons = list(bits_of_run(context))
    return [*dict.fromkeys(r.partition(":")[0] for r in reasons if ":" in r), *reasons, NOT_DRAWN]


def _check_name(option: str, name: str, known: list[str]) -> None:
    if name not in known:
        near = did_you_mean(name, known)
        raise ConfigError(f"{option} {name}: no such name{near}", None if near else f"there are {', '.join(known)}")


def kept_columns(context: Context) -> dict[str, pa.DataType]:
    """The sources' own columns in documents/, of all partitions."""
    found: dict[str, pa.DataType] = {}
    box = context.box("documents")
    for part in box.parts():
        for field in pq.read_schema(box.path(part, ".parquet")):
            if field.name not in SCHEMA.names:
                found[_own_name(field.name)] = field.type
    return dict(sorted(found.items()))


def _own_name(name: str) -> str:
    """What a source's column is called in an export that has one of that name itself."""
    return f"column_{name}" if name in COLUMNS else name


def _extra_columns(context: Context) -> dict[str, tuple[str, pa.DataType]]:
    """Name → box and type of what is exported on request: scores, overlaps with benchmarks."""
    found: dict[str, tuple[str, pa.DataType]] = {}
    for box in ("scores", box_of(context)):
        parts = context.box(box).parts() if context.has(box) else []
        for field in pq.read_schema(context.box(box).path(parts[0], ".parquet")) if parts else []:
            kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
            if field.name not in COLUMNS:
                found.setdefault(field.name, (box, kind))
    return found


# -------------------------------------------------------------------------------------------------------- a partition


def export_part(request: Request, part: str) -> Receipt[Counts]:
    """Write the documents of one partition that are asked for; returns the receipt."""
    context, box = request.context, Box(request.out)
    decisions = context.box("decisions").read_table(part)
    doc_id_N = decisions["doc_id"].to_numpy()
    split_N, keep_N = _splits(context, doc_id_N, decisions["keep"].to_numpy(zero_copy_only=False))
    reason_N = decisions["reason"].cast(pa.string()).to_numpy(zero_copy_only=False)
    reason_N[decisions["keep"].to_numpy(zero_copy_only=False) & ~keep_N] = NOT_DRAWN
    rows_K = np.flatnonzero(_chosen(request, part, keep_N, split_N, reason_N))
    files: list[Path] = []
    nbytes = int(decisions["bytes"].to_numpy()[rows_K].sum())
    if len(rows_K):
        decided = decisions.take(pa.array(rows_K))
        own = {
            "split": pa.array(split_N[rows_K], pa.string()),
            "keep": pa.array(keep_N[rows_K]),
            "reason": pa.array(reason_N[rows_K], pa.string()),
            "failing": _failing(decided["failing"].to_numpy(), bits_of_run(context)),
            **{n: decided[n] for n in ("partner", "tokens", "bytes")},
        }
        table = _table(request, part, rows_K, doc_id_N[rows_K], own)
        path = box.path(part, request.suffix)
        _write(path, table, request.format)
        files.append(path)
    return box.commit(Receipt(part, box.written(files), Counts(documents=len(rows_K), bytes=nbytes)))


def _splits(context: Context, doc_id_N: np.ndarray, decided_N: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The split of every document, None where it is in no shard, and whether it is in one."""
    split_N = np.full(len(doc_id_N), None, object)
    path = context.box("shards").folder / "documents.parquet"
    if len(doc_id_N) and path.exists():
        low, high = int(doc_id_N.min()), int(doc_id_N.max())
        by_id = np.argsort(doc_id_N, kind="stable")
        where = [("doc_id", ">=", low), ("doc_id", "<=", high)]
        for batch in pq.read_table(path, columns=["doc_id", "split"], filters=where, use_threads=False).to_batches():
            doc_id_B = batch["doc_id"].to_numpy()
            own_B = np.isin(doc_id_B, doc_id_N)
            rows = by_id[np.searchsorted(doc_id_N, doc_id_B[own_B], sorter=by_id)]
            split_N[rows] = batch["split"].cast(pa.string()).to_numpy(zero_copy_only=False)[own_B]
    keep_N = split_N != None  # noqa: E711  elementwise
    if (keep_N & ~decided_N).any():
        raise FatalError(f"{path}: holds documents that were dropped", "run the recipe again")
    return split_N, keep_N


def _chosen(request: Request, part: str, keep_N: np.ndarray, split_N: np.ndarray, reason_N: np.ndarray) -> np.ndarray:
    """bool of N: what the request asks for."""
    chosen_N = {"kept": keep_N, "dropped": ~keep_N, "all": np.ones(len(keep_N), np.bool_)}[request.what]
    if request.reasons:
        fits = {r for r in {*reason_N} if r is not None and {r, r.partition(":")[0]} & {*request.reasons}}
        chosen_N = chosen_N & np.isin(reason_N.astype(str), sorted(fits))
    if request.split is not None:
        chosen_N = chosen_N & (split_N == request.split)
    if request.sources:
        source = request.context.box("documents").read_table(part, ["source"])["source"].cast(pa.string())
        chosen_N = chosen_N & pc.is_in(source, pa.array(request.sources)).to_numpy()
    return chosen_N


def _failing(failing_K: np.ndarray, bits: dict[str, int]) -> pa.Array:
    """Names of the rules in the bit sets, in the order they are tried."""
    names = {f: [reason for reason, bit in bits.items() if f >> bit & 1] for f in np.unique(failing_K).tolist()}
    return pa.array([names[failing] for failing in failing_K.tolist()], pa.list_(pa.string()))


def _table(request: Request, part: str, rows_K: np.ndarray, doc_id_K: np.ndarray, own: dict[str, Any]) -> pa.Table:
    """The columns asked for, of the rows chosen."""
    context, wanted = request.context, request.columns
    documents = context.box("documents")
    path = documents.verified(part, ".parquet")
    stored = {_own_name(n) if n not in SCHEMA.names else n: n for n in pq.read_schema(path).names}
    plain = [n for n in wanted if n in stored]
    read = pq.read_table(path, columns=[stored[n] for n in plain], use_threads=False).take(pa.array(rows_K))
    columns = {**own, **{n: read[stored[n]] for n in plain}}
    if "text" in wanted:
        read_K = host_text(verified_text(documents, part), rows_K)
        columns["text"] = without_cuts(context, part, rows_K, read_K).to_arrow()
    if set(wanted) & set(_OF_CLUSTERS):
        columns.update(_clusters(context, doc_id_K))
    for box in ("scores", box_of(context)):
        names = [n for n in wanted if n not in columns and n not in COLUMNS and context.has(box)]
        names = [n for n in names if n in pq.read_schema(context.box(box).path(part, ".parquet")).names]
        if names:
            of_box = context.box(box).read_table(part, names).take(pa.array(rows_K))
            columns.update({n: of_box[n] for n in names})
    types = {**{n: kind for n, (kind, _) in COLUMNS.items()}, **request.types}
    schema = pa.schema([pa.field(n, types[n], metadata=_about(n)) for n in wanted])
    nothing = {n: pa.nulls(len(rows_K), types[n]) for n in wanted if n not in columns}  # another source's kept column
    return pa.table({n: _as(columns.get(n, nothing.get(n)), types[n]) for n in wanted}).cast(schema)


def _about(name: str) -> dict[str, str] | None:
    return {"description": COLUMNS[name][1]} if name in COLUMNS else None


def _as(column: Any, kind: pa.DataType) -> Any:
    """A column without its dictionary; a similarity that was not measured is null."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    return column if column.type == kind else column.cast(kind)


def _clusters(context: Context, doc_id_K: np.ndarray) -> dict[str, pa.Array]:
    """Cluster, its size and the similarity to its survivor; null for a document that is alone."""
    kinds = {"cluster": pa.int64(), "cluster_size": pa.int64(), "jaccard": pa.float32()}
    found = {name: np.zeros(len(doc_id_K), kind.to_pandas_dtype()) for name, kind in kinds.items()}
    inside_K = np.zeros(len(doc_id_K), np.bool_)
    found["jaccard"][:] = np.nan
    if context.has("duplicates") and len(doc_id_K):
        clusters = read_clusters(context, int(doc_id_K.min()), int(doc_id_K.max()))
        member = clusters["doc_id"].to_numpy()
        at = np.minimum(np.searchsorted(member, doc_id_K), max(len(member) - 1, 0))
        inside_K = member[at] == doc_id_K if len(member) else inside_K
        of = {"cluster": _CLUSTER, "cluster_size": "size", "jaccard": "jaccard"}
        for name, column in of.items():
            found[name][inside_K] = clusters[column].to_numpy(zero_copy_only=False)[at[inside_K]]
    missing = {name: ~inside_K | (found["cluster_size"] < 2) for name in found}
    missing["jaccard"] = np.isnan(found["jaccard"])
    return {name: pa.array(values, kinds[name], mask=missing[name]) for name, values in found.items()}


def _write(path: Path, table: pa.Table, format: str) -> None:
    if format == "parquet":
        write_table(path, table, row_group_size=_ROWS)
        return
    try:
        import orjson
    except ImportError as e:
        raise ConfigError(f"--format {format}: the package orjson is not installed ({e})", "pip install orjson") from e

    with publish(path) as temp, temp.open("wb") as f:
        for batch in table.to_batches(_ROWS):
            for row in batch.to_pylist():
                f.write(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE))
