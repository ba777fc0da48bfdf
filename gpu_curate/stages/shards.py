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

# N kept documents in the order of the stream
"""

from __future__ import annotations

import shutil
from collections import Counter
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from gpu_curate.config import Config, for_publication
from gpu_curate.document import ROW_BITS
from gpu_curate.errors import FatalError, NothingKeptError
from gpu_curate.formats import FORMATS
from gpu_curate.ops.mix import fmix64
from gpu_curate.privacy import published
from gpu_curate.stages import Context, Stage, Stopwatch
from gpu_curate.stages.rejects import REJECTED
from gpu_curate.stages.tokens import check_unknown, lengths, open_encoder
from gpu_curate.store.files import publish, read_json, write_json
from gpu_curate.store.fingerprint import versions

SPLITS = {"train": "train", "validation": "val"}  # split → file name prefix
_ORDER = ".order"
_FIELDS = {"part": "<i4", "offset": "<i8", "tokens": "<i8", "position": "<i8", "doc_id": "<i8"}


class Shards(Stage):
    """Write the token stream.

    Reads: decisions, tokens, signatures(content hash), duplicates(train_only).
    Writes: train_000000.bin, val_000000.bin, ..., documents.parquet, manifest.json (last: its presence says "whole").
    Memory: one shard a worker; about 250 bytes a kept document while the order is made.
    """

    name: ClassVar[str] = "shards"
    code: ClassVar[tuple[str, ...]] = ("stages.shards", "stages.token_copy", "formats", "ops.mix", "privacy")

    def reads(self, config: Config) -> tuple[str, ...]:
        boxes = ["documents", "decisions", "tokens", "signatures"]
        if any(r.action == "train_only" for r in config.references) or keeps_neighbours(config):
            boxes.append("duplicates")
        return tuple(boxes)

    def settings(self, config: Config) -> Any:
        mixture = [(s.name, s.weight, s.tokens) for s in config.sources if s.weight or s.tokens]
        kept = [list(s.kept) for s in config.sources]
        shards = config.shards.model_dump(exclude={"validation": {"earlier"}})  # the bound that it names is what counts
        return shards, mixture, kept

    def plan(self, context: Context) -> dict[str, Any]:
        box = context.box(self.name)
        if box.sealed():
            shutil.rmtree(box.folder / _ORDER, ignore_errors=True)  # of a run that was killed just after it was done
            return dict.fromkeys(box.parts())
        check_unknown(context)
        layout = _Layout(context)
        folder = context.box(self.name).folder / _ORDER
        folder.mkdir(parents=True, exist_ok=True)
        tasks = {}
        size = context.config.shards.tokens_per_shard
        for split, order in layout.splits.items():
            for name in _FIELDS:
                with publish(folder / f"{split}.{name}") as temp, temp.open("wb") as f:
                    f.write(memoryview(order[name]).cast("B"))  # tofile() does not notice a full disk
            total = int(order["tokens"].sum())
            for number in range(-(-total // size)):
                tasks[f"{SPLITS[split]}-{number:06d}"] = {"split": split, "number": number, "total": total}
        write_json(folder / "layout.json", layout.facts)
        return tasks

    def run(self, context: Context, part: str, task: Any) -> dict[str, Any]:
        watch = Stopwatch()
        size = context.config.shards.tokens_per_shard
        start = task["number"] * size
        stop = min(start + size, task["total"])
        info = _tokens_info(context)
        tokens = _gather(context, task["split"], start, stop, info)
        if len(tokens) and int(tokens.max()) >= max(info["vocab_size"], info["eot_id"] + 1):
            raise FatalError(
                f"shard {part}: token id {int(tokens.max())} is not below the vocabulary of {info['vocab_size']}"
            )
        box, shard_format = context.box(self.name), FORMATS[context.config.shards.format]
        path = box.folder / f"{SPLITS[task['split']]}_{task['number']:06d}{shard_format.suffix}"
        with publish(path) as temp:
            digest = shard_format.write(temp, tokens)
        paths = [path]
        index = shard_format.index(tokens, info["eot_id"])
        if index is not None:
            paths.append(path.with_suffix(shard_format.index_suffix or ""))
            with publish(paths[1]) as temp:
                temp.write_bytes(index)
        facts = {"split": task["split"], "tokens": len(tokens), "sha256": digest, "bytes": path.stat().st_size}
        return box.commit(part, paths, {**facts, "backend": "cpu", **watch.facts()})

    def finish(self, context: Context) -> None:
        box = context.box(self.name)
        if not (box.folder / _ORDER).exists():  # an earlier run finished it
            return
        layout = read_json(box.folder / _ORDER / "layout.json")
        _write_documents(context)
        files = context.snapshot().files
        splits = {}
        for split, prefix in SPLITS.items():
            receipts = [box.receipt(p) for p in box.parts() if p.startswith(prefix)]
            splits[split] = {
                "tokens": sum(r["tokens"] for r in receipts),
                "documents": layout["documents"][split],
                "shards": [
                    {"file": r["files"][0]["file"], "tokens": r["tokens"], "bytes": r["bytes"], "sha256": r["sha256"]}
                    for r in receipts
                ],
            }
        info = _tokens_info(context)
        names = {f["path"]: n for f, n in zip(files, published_names(files), strict=True)}
        with publish(box.folder / "tokenizer.json") as temp:  # shards can be read without the run
            open_encoder(context.box("tokens").folder).save(temp)
        write_json(
            box.folder / "manifest.json",
            {
                "version": 1,
                "format": context.config.shards.format,
                "dtype": info["dtype"],
                "eot_id": info["eot_id"],
                "vocab_size": info["vocab_size"],
                "tokenizer": {
                    "sha256": info["identity"],
                    "path": published(context.config.tokenizer.path or "trained"),
                },
                "tokens_per_shard": context.config.shards.tokens_per_shard,
                "splits": splits,
                "shuffle": {
                    "seed": context.config.shards.shuffle_seed,
                    "key": "fmix64(seed ^ xxh3-128 of the text, low half)",
                },
                "split": layout["split"],
                "mixture": layout["mixture"],
                "incomplete_sources": [names.get(path, published(path)) for path in layout["incomplete"]],
                "config": for_publication(context.config),
                "versions": versions(("tokenizers", "pyarrow", "numpy", "xxhash")),
            },
        )
        box.seal([box.folder / name for name in ("documents.parquet", "tokenizer.json", "manifest.json")])
        shutil.rmtree(box.folder / _ORDER)


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


def _tokens_info(context: Context) -> dict[str, Any]:
    receipt = next(context.box("tokens").receipts(), None)
    if receipt is None:
        raise FatalError("tokens: no partition")
    return receipt


def _fate(context: Context) -> str:
    """What became of the documents when none was kept."""
    rejected = sum(sum(r.get("rejected", {}).values()) for r in context.box("documents").receipts())
    dropped: Counter[str] = Counter()
    for receipt in context.box("decisions").receipts():
        dropped.update(receipt["by_reason"]["documents"])
    rejected += dropped.pop(REJECTED, 0)
    told = [f"{sum(dropped.values())} were read", *(f"{reason} dropped {n}" for reason, n in dropped.most_common())]
    return ", ".join(told + ([f"{rejected} rejected"] if rejected else []))


class _Layout:
    """Which documents go where: the two streams, in order."""

    def __init__(self, context: Context):
        config = context.config
        self.context = context
        parts = context.box("documents").parts()
        kept = self._kept(parts)
        by_place = context.snapshot().plain  # then partitions, and so documents, lie in the order of the files
        key, place = kept["key"], kept["place"]
        order = np.argsort(key, kind="stable") if by_place else np.lexsort((place, key))  # equal keys by that order
        kept = {name: values[order] for name, values in kept.items()}
        total = int(kept["tokens"].sum())
        if len(kept["key"]) == 0:
            raise NothingKeptError(f"no document was kept: {_fate(context)}")
        kept["side"] = self._sides(kept) if keeps_neighbours(config) else kept["key"]
        held, self.facts = _split(config, kept, total, self._train_only())
        train = {name: values[~held] for name, values in kept.items()}
        train, mixture = _mix(config, train)
        self.splits = {
            "train": _stream(train),
            "validation": _stream({name: values[held] for name, values in kept.items()}),
        }
        incomplete = sorted({f for r in context.box("documents").receipts() for f in r.get("incomplete", [])})
        self.facts = {
            "split": self.facts,
            "mixture": mixture,
            "documents": {name: len(stream["doc_id"]) for name, stream in self.splits.items()},
            "incomplete": incomplete,
        }

    def _kept(self, parts: list[str]) -> dict[str, np.ndarray]:
        columns: dict[str, list[np.ndarray]] = {
            n: [] for n in ("key", "part", "offset", "tokens", "bytes", "doc_id", "place", "source")
        }
        config, snapshot = self.context.config, self.context.snapshot()
        numbers = {s.name: i for i, s in enumerate(config.sources)}
        seed = np.uint64(config.shards.shuffle_seed)
        for number, part in enumerate(parts):
            self.context.box("tokens").verified(part, ".bin")  # once here, not by every shard that reads a part of it
            table = self.context.box("decisions").read_table(part, ["doc_id", "keep"])
            keep = table["keep"].to_numpy()
            lo, nbytes = self.context.box("signatures").columns(part, "content_lo", "bytes")
            length = lengths(self.context, part)
            starts = np.cumsum(length - 1) - (length - 1)
            sources = self.context.box("documents").read_table(part, ["source"])["source"].combine_chunks()
            names = [numbers[n] for n in sources.dictionary.to_pylist()]
            source = np.array(names, np.int16)[sources.indices.to_numpy()] if len(sources) else np.zeros(0, np.int16)
            columns["key"].append(fmix64(lo[keep] ^ seed))
            columns["part"].append(np.full(int(keep.sum()), number, np.int32))
            columns["offset"].append(starts[keep])
            columns["tokens"].append(length[keep])
            columns["bytes"].append(nbytes[keep])
            columns["doc_id"].append(table["doc_id"].to_numpy()[keep])
            columns["place"].append(snapshot.places(columns["doc_id"][-1]))
            columns["source"].append(source[keep])
        return {name: np.concatenate(arrays) for name, arrays in columns.items()}

    def _sides(self, kept: dict[str, np.ndarray]) -> np.ndarray:
        """What decides the side of the split of every kept document: its key, or the highest of its component.

        Two documents that are kept of one component resemble each other or a third one, so they go together: to training,
        unless the keys of all of them are below the bound. Added data can thus take a document out of validation only.
        """
        path = self.context.box("duplicates").verified_file("000000", "clusters.parquet")
        table = pq.read_table(path, columns=["doc_id", "component"])
        member, component = (table[c].to_numpy() for c in ("doc_id", "component"))
        place = np.minimum(np.searchsorted(member, kept["doc_id"]), max(len(member) - 1, 0))
        side = kept["key"].copy()
        if not len(member):
            return side
        inside = np.flatnonzero(member[place] == kept["doc_id"])
        _, group = np.unique(component[place[inside]], return_inverse=True)
        highest = np.zeros(group.max(initial=-1) + 1, np.uint64)
        np.maximum.at(highest, group, side[inside])
        side[inside] = highest[group]
        return side

    def _train_only(self) -> np.ndarray:
        if not any(r.action == "train_only" for r in self.context.config.references):
            return np.zeros(0, np.int64)
        path = self.context.box("duplicates").verified_file("000000", "train_only.parquet")
        return pq.read_table(path)["doc_id"].to_numpy()


def keeps_neighbours(config: Config) -> bool:
    """True if more than one document of a component of duplicates may be kept."""
    fuzzy = config.dedup.fuzzy
    return fuzzy is not None and fuzzy.verify != "none" and fuzzy.verify_against == "survivor"


def _split(
    config: Config, kept: dict[str, np.ndarray], total: int, train_only: np.ndarray
) -> tuple[np.ndarray, dict[str, Any]]:
    """Which of the kept documents (in order of key) are held out.

    The lowest keys, until they hold the tokens asked for (the text that passes them is the last) or as many as
    `max_fraction` allows (the text that would pass it stays out, with all its copies). The key of the last one is the
    bound: every document of equal or lower key that is not train_only is held out, and stays so when the bound is pinned
    and data is added. Documents of one component count by the highest of their keys (`_Layout._sides`).

    Raises:
        FatalError: nothing would be left to train on.
    """
    options = config.shards.validation
    free = ~np.isin(kept["doc_id"], train_only)
    most = int(options.max_fraction * total)
    wanted = min(options.tokens, most)
    bound = None
    if options.bound is not None:
        bound = np.uint64(int(options.bound, 16))
    elif wanted > 0 and free.any():
        candidates = np.flatnonzero(free)
        candidates = candidates[np.argsort(kept["side"][candidates], kind="stable")]
        keys = kept["side"][candidates]
        last = np.flatnonzero(np.append(keys[1:] != keys[:-1], True))  # equal texts have one key, and go together
        held_tokens = np.cumsum(kept["tokens"][candidates])[last]
        count = min(
            int(np.searchsorted(held_tokens, options.tokens, side="left")) + 1,
            int(np.searchsorted(held_tokens, most, side="right")),
        )
        if count > 0:
            bound = keys[last[count - 1]]
    held = np.zeros(len(free), np.bool_) if bound is None else (kept["side"] <= bound) & free
    if held.all():
        raise FatalError(
            f"all {len(held)} kept documents are held out for validation, none is left to train on",
            "set shards.validation: {tokens: 0}, or another bound; equal texts always lie on one side (dedup.exact: true)",
        )
    return held, {
        "bound": None if bound is None else f"{int(bound):016x}",
        "pinned": options.bound is not None,
        "tokens_asked": options.tokens,
        "tokens_wanted": wanted,
        "tokens_held": int(kept["tokens"][held].sum()),
        "train_only_documents": int((~free).sum()),
    }


def _mix(config: Config, train: dict[str, np.ndarray]) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Draw each source to its share; repeats of a document are further places in the shuffle, not further copies of text.

    Epoch e of a document stands at fmix64(key + e * odd constant); the last, partial epoch takes its lowest keys.
    """
    available = np.bincount(train["source"], weights=train["tokens"], minlength=len(config.sources))
    asked = _shares(config, available)
    limit = config.shards.max_epochs
    wanted = [None if t is None else min(t, limit * float(available[i])) for i, t in enumerate(asked)]
    picked: list[np.ndarray] = []
    keys: list[np.ndarray] = []
    report = []
    for number, source in enumerate(config.sources):
        own = np.flatnonzero(train["source"] == number)
        tokens = train["tokens"][own]
        target = wanted[number]
        drawn = 0
        epoch = 0
        while len(own) and ((target is None and epoch == 0) or (target is not None and drawn < target)):
            key = (
                train["key"][own]
                if epoch == 0
                else fmix64(train["key"][own] + np.uint64(epoch * 0x9E3779B97F4A7C15 % (1 << 64)))
            )
            order = np.argsort(key, kind="stable")
            running = np.cumsum(tokens[order])
            left = running[-1] if target is None else target - drawn
            count = min(int(np.searchsorted(running, left, side="left")) + 1, len(order))
            before = running[count - 2] if count > 1 else 0
            if running[count - 1] - left > left - before:  # without the last document it comes closer
                count -= 1
            if count == 0:
                break
            picked.append(own[order[:count]])
            keys.append(key[order[:count]])
            drawn += int(running[count - 1])
            epoch += 1
        report.append(
            {
                "source": source.name,
                "available_tokens": int(available[number]),
                "asked_tokens": None if target is None else int(asked[number] or 0),
                "drawn_tokens": drawn,
                "epochs": round(drawn / available[number], 4) if available[number] else 0.0,
            }
        )
    if all(t is None for t in wanted):
        return train, _mixture(report, train, np.arange(len(train["key"])))
    chosen, key = np.concatenate(picked), np.concatenate(keys)
    order = np.lexsort((train["place"][chosen], key))
    return {name: values[chosen[order]] for name, values in train.items()}, _mixture(report, train, chosen)


def _mixture(sources: list[dict[str, Any]], train: dict[str, np.ndarray], chosen: np.ndarray) -> dict[str, Any]:
    """What was drawn: documents left out, and the places that repeats take, so that the accounts add up."""
    times = np.bincount(chosen, minlength=len(train["key"]))
    left, more = times == 0, times > 1
    return {
        "sources": sources,
        "not_drawn": {
            "documents": int(left.sum()),
            "tokens": int(train["tokens"][left].sum()),
            "bytes_of_text": int(train["bytes"][left].sum()),
        },
        "repeated": {
            "documents": int((times[more] - 1).sum()),
            "tokens": int(((times[more] - 1) * train["tokens"][more]).sum()),
        },
    }


def _shares(config: Config, available: np.ndarray) -> list[float | None]:
    """Tokens wanted of every source; None: all it has, once."""
    weights = [s.weight for s in config.sources]
    wanted: list[float | None] = [s.tokens for s in config.sources]
    given = [w for w in weights if w is not None]
    if given:
        total = config.shards.mixture_tokens
        if total is None:  # as much as no source has to be repeated for
            total = min(
                (available[i] * sum(given) / w for i, w in enumerate(weights) if w is not None and available[i]),
                default=0,
            )
        wanted = [w / sum(given) * total if w is not None else wanted[i] for i, w in enumerate(weights)]
    return [None if w is None else float(w) for w in wanted]


def _stream(kept: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    position = np.cumsum(kept["tokens"]) - kept["tokens"]
    columns = {**kept, "position": position}
    return {name: np.ascontiguousarray(columns[name], dtype) for name, dtype in _FIELDS.items()}


def _order(context: Context, split: str) -> dict[str, np.ndarray]:
    folder = context.box("shards").folder / _ORDER
    paths = {name: folder / f"{split}.{name}" for name in _FIELDS}
    return {
        name: np.memmap(path, _FIELDS[name], "r") if path.stat().st_size else np.zeros(0, _FIELDS[name])
        for name, path in paths.items()
    }


def _gather(context: Context, split: str, start: int, stop: int, info: dict[str, Any]) -> np.ndarray:
    """Tokens start..stop - 1 of a stream, read partition by partition."""
    from gpu_curate.stages.token_copy import copy  # Numba: a run with nothing to do does without

    order = _order(context, split)
    first = int(np.searchsorted(order["position"], start, side="right")) - 1
    last = int(np.searchsorted(order["position"], stop, side="left"))
    own = {name: np.array(values[first:last]) for name, values in order.items()}
    dtype = np.dtype(info["dtype"])
    out = np.zeros(stop - start, dtype)
    by_place = np.lexsort((own["offset"], own["part"]))
    parts = context.box("documents").parts()
    cuts = np.flatnonzero(np.diff(own["part"][by_place])) + 1
    for group in np.split(by_place, cuts):
        if not len(group):
            continue
        path = context.box("tokens").path(parts[own["part"][group[0]]], ".bin")
        source = np.memmap(path, dtype.newbyteorder("<"), "r") if path.stat().st_size else np.zeros(0, dtype)
        target = own["position"][group] - start
        copy(source, own["offset"][group], own["tokens"][group], target, dtype.type(info["eot_id"]), out)
    return out


def _write_documents(context: Context) -> None:
    """documents.parquet: the token range of every document of both streams, in order."""
    config = context.config
    box = context.box("shards")
    snapshot = context.snapshot()
    files = snapshot.files
    kept_columns = sorted({c for s in config.sources for c in s.kept})
    kept = _kept_columns(context, kept_columns) if kept_columns else None
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
            order = _order(context, split)
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


def _kept_columns(context: Context, names: list[str]) -> pa.Table:
    """The source's own columns of every document, by doc_id."""
    box = context.box("documents")
    tables = []
    for part in box.parts():
        there = pq.read_schema(box.path(part, ".parquet")).names
        table = box.read_table(part, ["doc_id", *(n for n in names if n in there)])
        columns = [table[n] if n in table.column_names else pa.nulls(table.num_rows, pa.string()) for n in names]
        tables.append(pa.table([table["doc_id"], *columns], names=["doc_id", *names]))
    table = pa.concat_tables(tables)
    doc_id_N = table["doc_id"].to_numpy()
    return table if (doc_id_N[1:] > doc_id_N[:-1]).all() else table.sort_by("doc_id")
