"""Shards: content-keyed shuffle and split, whole documents packed as one stream, cut into files of equal length.

Scale. The order is five arrays on disk, 36 bytes a document, memory-mapped by every worker; making it takes about 250
bytes a kept document in one process. A shard is gathered in a buffer of its own size (200 MB for 100 M tokens), reading the
tokens of its documents from the partitions in the order they lie there. So 2.5 billion tokens (5 GB, 2.4 M documents) need
600 MB for the plan, 90 MB of disk for the order, and one buffer a worker: never all tokens at once.

For 1 trillion tokens (500 M documents of 4 kB of ids, 2 TB in all, 10,000 shards) the order is 18 GB of disk, but making it
in one piece would take 125 GB. So, on paper: cut the key space into 64 ranges; the plan of one range (8 M documents) takes
2 GB, and ranges follow each other in the stream, so each is planned by itself once the token counts before it are summed.
Gathering a shard then reads 50,000 documents spread over all partitions, 4 kB each: on local NVMe 500 M random reads, 20
minutes at 400,000 a second. Storage that dislikes small reads wants one pass more: every tokens partition appends its
documents to the file of their range (sequential reads, 64 append streams of 32 GB), then each range is packed from its own
file. The bytes are the same, since the order is a function of the keys alone.

"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from gpu_curate.document import ROW_BITS
from gpu_curate.errors import FatalError
from gpu_curate.formats import FORMATS
from gpu_curate.privacy import published
from gpu_curate.quality.judges import Judge
from gpu_curate.sources.sections import SourceBase
from gpu_curate.stages import Boxes, Made, Stage
from gpu_curate.stages.part import Part
from gpu_curate.stages.sections import Shards as ShardOptions
from gpu_curate.stages.shard_layout import FIELDS, ORDER, SPLITS, Layout
from gpu_curate.stages.tokens import TokenCounts, open_encoder
from gpu_curate.stages.unknown_tokens import check_unknown
from gpu_curate.store.artifact import Box
from gpu_curate.store.files import publish, read_json, write_json
from gpu_curate.store.fingerprint import versions
from gpu_curate.store.receipts import Counts


class ShardTask(NamedTuple):
    """One shard to write."""

    split: str
    number: int  # in the split
    total: int  # tokens of the split


@dataclass(frozen=True, kw_only=True)
class ShardCounts(Counts):
    """Attributes:
    split: train or validation.
    tokens: in the shard.
    sha256: of the file.
    """

    split: str = "train"
    tokens: int = 0
    sha256: str = ""

    quiet: ClassVar[frozenset[str]] = frozenset({"documents"})


class Shards(Stage):
    """Write the token stream.

    Reads: decisions, tokens, cut_tokens, signatures(content hash), duplicates(train_only), leaks.
    Writes: train_000000.bin, val_000000.bin, ..., documents.parquet, manifest.json (last: its presence says "whole").
    Memory: one shard a worker; about 250 bytes a kept document while the order is made.
    """

    name: ClassVar[str] = "shards"
    counts: ClassVar[type[Counts]] = ShardCounts

    def __init__(
        self,
        options: ShardOptions,
        sources: Sequence[SourceBase],
        train_only: bool,
        neighbours: bool,
        tokenizer: str,
        recipe: dict[str, Any],
        more: tuple[str, ...] = (),
        judges: Mapping[str, Judge] | None = None,
    ):
        """
        Args:
            sources: names, weights, tokens and kept columns count.
            train_only: a reference set keeps documents out of the validation split.
            neighbours: more than one document of a component of duplicates may be kept.
            tokenizer, recipe: for the manifest.
            more: further boxes that it reads: cut_tokens, where something may be cut out of documents; leaks, where held-out
                documents that leak into training are not held out.
            judges: those with bands.
        """
        self.options, self.sources = options, sources
        self.train_only, self.neighbours = train_only, neighbours
        self.tokenizer, self.recipe, self.judges = tokenizer, recipe, dict(judges or {})
        boxes = ["documents", "decisions", "tokens", "signatures", *more]
        boxes += ["duplicates"] if train_only or neighbours else []
        self.inputs = (*boxes, "scores") if self.judges else tuple(boxes)

    def settings(self) -> Any:
        mixture = [(s.name, s.weight, s.tokens) for s in self.sources if s.weight or s.tokens]
        kept = [list(s.kept) for s in self.sources]
        shards = self.options.model_dump(exclude={"validation": {"earlier"}})  # the bound that it names is what counts
        if not self.judges:
            return shards, mixture, kept
        return shards, mixture, kept, {n: [b.model_dump() for b in j.bands] for n, j in self.judges.items()}

    def plan(self, boxes: Boxes) -> Mapping[str, ShardTask | None]:
        box = boxes.box(self.name)
        if box.sealed():
            shutil.rmtree(box.folder / ORDER, ignore_errors=True)  # of a run that was killed just after it was done
            return dict.fromkeys(box.parts())
        check_unknown(boxes)
        leaks = "leaks" in self.inputs
        layout = Layout(boxes, self.options, self.sources, self.train_only, self.neighbours, leaks, self.judges)
        folder = box.folder / ORDER
        folder.mkdir(parents=True, exist_ok=True)
        tasks: dict[str, ShardTask | None] = {}
        size = self.options.tokens_per_shard
        for split, order in layout.splits.items():
            for name in FIELDS:
                with publish(folder / f"{split}.{name}") as temp, temp.open("wb") as f:
                    f.write(order[name].data.cast("B"))  # tofile() does not notice a full disk
            total = int(order["tokens"].sum())
            for number in range(-(-total // size)):
                tasks[f"{SPLITS[split]}-{number:06d}"] = ShardTask(split, number, total)
        write_json(folder / "layout.json", layout.facts)
        return tasks

    def make(self, part: Part) -> Made:
        task: ShardTask = part.task
        size = self.options.tokens_per_shard
        start = task.number * size
        stop = min(start + size, task.total)
        info = _tokens_info(part.boxes)
        tokens = _gather(part.boxes, task.split, start, stop, info)
        if len(tokens) and int(tokens.max()) >= max(info.vocab_size, info.eot_id + 1):
            raise FatalError(
                f"shard {part.name}: token id {int(tokens.max())} is not below the vocabulary of {info.vocab_size}"
            )
        shard_format = FORMATS[self.options.format]
        path = part.box.folder / f"{SPLITS[task.split]}_{task.number:06d}{shard_format.suffix}"
        with publish(path) as temp:
            digest = shard_format.write(temp, tokens)
        paths = [path]
        index = shard_format.index(tokens, info.eot_id)
        if index is not None:
            paths.append(path.with_suffix(shard_format.index_suffix or ""))
            with publish(paths[1]) as temp:
                temp.write_bytes(index)
        counts = ShardCounts(split=task.split, tokens=len(tokens), sha256=digest, bytes=path.stat().st_size)
        return Made(counts, files=tuple(paths))

    def finish(self, boxes: Boxes) -> None:
        box = boxes.box(self.name)
        if not (box.folder / ORDER).exists():  # an earlier run finished it
            return
        layout = read_json(box.folder / ORDER / "layout.json")
        _write_documents(boxes, sorted({c for s in self.sources for c in s.kept}))
        files = boxes.snapshot().files
        info = _tokens_info(boxes)
        names = {f["path"]: n for f, n in zip(files, published_names(files), strict=True)}
        with publish(box.folder / "tokenizer.json") as temp:  # shards can be read without the run
            open_encoder(boxes.box("tokens").folder).save(temp)
        write_json(
            box.folder / "manifest.json",
            {
                "version": 1,
                "format": self.options.format,
                "dtype": info.dtype,
                "eot_id": info.eot_id,
                "vocab_size": info.vocab_size,
                "tokenizer": {"sha256": info.identity, "path": published(self.tokenizer)},
                "tokens_per_shard": self.options.tokens_per_shard,
                "splits": _splits(box, layout["documents"]),
                "shuffle": {
                    "seed": self.options.shuffle_seed,
                    "key": "fmix64(seed ^ xxh3-128 of the text, low half)",
                },
                "split": layout["split"],
                "mixture": layout["mixture"],
                "incomplete_sources": [names.get(path, published(path)) for path in layout["incomplete"]],
                "config": self.recipe,
                "versions": versions(("tokenizers", "pyarrow", "numpy", "xxhash")),
            },
        )
        box.seal([box.folder / name for name in ("documents.parquet", "tokenizer.json", "manifest.json")])
        shutil.rmtree(box.folder / ORDER)


def _splits(box: Box, documents: dict[str, int]) -> dict[str, Any]:
    """The shards of every split, for the manifest."""
    splits = {}
    receipts = list(box.receipts(ShardCounts))
    for split in SPLITS:
        own = [r for r in receipts if r.counts.split == split]
        splits[split] = {
            "tokens": sum(r.counts.tokens for r in own),
            "documents": documents[split],
            "shards": [
                {"file": r.files[0].file, "tokens": r.counts.tokens, "bytes": r.counts.bytes, "sha256": r.counts.sha256}
                for r in own
            ],
        }
    return splits


def published_names(files: list[dict[str, Any]]) -> list[str]:
    """The names of the input files for what goes out with the shards: below their source's folder, distinct in a source."""
    seen: Counter[tuple[str, str]] = Counter()
    names = []
    for file in files:
        name = file["path"] if "://" in file["path"] else published(file["relative"])
        seen[file["source"], name] += 1
        number = seen[file["source"], name]
        names.append(name if number == 1 else f"{name} ({number})")
    return names


def _tokens_info(boxes: Boxes) -> TokenCounts:
    receipt = next(boxes.box("tokens").receipts(TokenCounts), None)
    if receipt is None:
        raise FatalError("tokens: no partition")
    return receipt.counts


def _order(boxes: Boxes, split: str) -> dict[str, np.ndarray]:
    folder = boxes.box("shards").folder / ORDER
    paths = {name: folder / f"{split}.{name}" for name in FIELDS}
    return {
        name: np.memmap(path, FIELDS[name], "r") if path.stat().st_size else np.zeros(0, FIELDS[name])
        for name, path in paths.items()
    }


def _gather(boxes: Boxes, split: str, start: int, stop: int, info: TokenCounts) -> np.ndarray:
    """Tokens start..stop - 1 of a stream, read partition by partition."""
    from gpu_curate.stages.token_copy import copy  # Numba: a run with nothing to do does without

    order = _order(boxes, split)
    first = int(np.searchsorted(order["position"], start, side="right")) - 1
    last = int(np.searchsorted(order["position"], stop, side="left"))
    own = {name: np.array(values[first:last]) for name, values in order.items()}
    dtype = np.dtype(info.dtype)
    out = np.zeros(stop - start, dtype)
    by_place = np.lexsort((own["offset"], own["part"]))
    parts = boxes.box("documents").parts()
    cuts = np.flatnonzero(np.diff(own["part"][by_place])) + 1
    for group in np.split(by_place, cuts):
        if not len(group):
            continue
        after_cuts, number = divmod(int(own["part"][group[0]]), len(parts))
        path = boxes.box("cut_tokens" if after_cuts else "tokens").path(parts[number], ".bin")
        source = np.memmap(path, dtype.newbyteorder("<"), "r") if path.stat().st_size else np.zeros(0, dtype)
        target = own["position"][group] - start
        copy(source, own["offset"][group], own["tokens"][group], target, dtype.type(info.eot_id), out)
    return out


def _write_documents(boxes: Boxes, kept_columns: list[str]) -> None:
    """documents.parquet: the token range of every document of both streams, in order."""
    box = boxes.box("shards")
    snapshot = boxes.snapshot()
    files = snapshot.files
    kept = _kept_columns(boxes, kept_columns) if kept_columns else None
    paths = np.array(published_names(files), object)
    names = np.array([f["source"] for f in files], object)
    schema = pa.schema(
        [
            ("split", pa.dictionary(pa.int8(), pa.string())),
            ("position", pa.int64()),
            ("tokens", pa.int64()),
            ("doc_id", pa.int64()),
            ("source", pa.dictionary(pa.int32(), pa.string())),
            ("path", pa.dictionary(pa.int32(), pa.string())),
            ("row", pa.int64()),
            *((c, pa.string()) for c in kept_columns),
        ]
    )
    with (
        publish(box.folder / "documents.parquet") as temp,
        pq.ParquetWriter(temp, schema, compression="zstd") as writer,
    ):
        for split in SPLITS:
            order = _order(boxes, split)
            for start in range(0, len(order["doc_id"]), 1 << 18):
                rows = slice(start, start + (1 << 18))
                doc_id = np.array(order["doc_id"][rows])
                number = snapshot.by_number[doc_id >> ROW_BITS]  # place in the list of files
                columns = {
                    "split": pa.array([split] * len(doc_id), pa.string()).dictionary_encode(),
                    "position": order["position"][rows],
                    "tokens": order["tokens"][rows],
                    "doc_id": doc_id,
                    "source": pa.array(names[number], pa.string()).dictionary_encode(),
                    "path": pa.array(paths[number], pa.string()).dictionary_encode(),
                    "row": doc_id & ((1 << ROW_BITS) - 1),
                }
                if kept is not None:
                    where = pa.array(np.searchsorted(kept["doc_id"].to_numpy(), doc_id))
                    columns.update((c, kept[c].take(where)) for c in kept_columns)
                writer.write_table(pa.table(columns).cast(schema))


def _kept_columns(boxes: Boxes, names: list[str]) -> pa.Table:
    """The source's own columns of every document, by doc_id."""
    box = boxes.box("documents")
    tables = []
    for part in box.parts():
        there = pq.read_schema(box.path(part, ".parquet")).names
        table = box.read_table(part, ["doc_id", *(n for n in names if n in there)])
        columns = [table[n] if n in table.column_names else pa.nulls(table.num_rows, pa.string()) for n in names]
        tables.append(pa.table([table["doc_id"], *columns], names=["doc_id", *names]))
    table = pa.concat_tables(tables)
    doc_id_N = table["doc_id"].to_numpy()
    return table if (doc_id_N[1:] > doc_id_N[:-1]).all() else table.sort_by("doc_id")
