"""Which documents go where: the two token streams, in order. Shuffle, split and mixture.

# N kept documents in the order of the stream
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from gpu_curate.errors import FatalError, NothingKeptError
from gpu_curate.ops.mix import fmix64
from gpu_curate.quality.judges import Judge
from gpu_curate.sources.sections import SourceBase
from gpu_curate.stages import Boxes
from gpu_curate.stages.cut_tokens import lengths_after_cuts
from gpu_curate.stages.decisions import DecisionCounts
from gpu_curate.stages.documents.counts import DocumentCounts
from gpu_curate.stages.judged import weights
from gpu_curate.stages.rejects import REJECTED
from gpu_curate.stages.sections import Shards as ShardOptions
from gpu_curate.stages.sections import Validation

SPLITS = {"train": "train", "validation": "val"}  # split → file name prefix
ORDER = ".order"
# part: number of the partition that holds the tokens, those of cut_tokens/ behind those of tokens/
FIELDS = {"part": "<i4", "offset": "<i8", "tokens": "<i8", "position": "<i8", "doc_id": "<i8"}


def _why_nothing(boxes: Boxes) -> str:
    """What became of the documents when none was kept."""
    rejected = sum(sum(r.counts.rejected.values()) for r in boxes.box("documents").receipts(DocumentCounts))
    dropped: Counter[str] = Counter()
    for receipt in boxes.box("decisions").receipts(DecisionCounts):
        dropped.update(receipt.counts.by_reason.documents)
    rejected += dropped.pop(REJECTED, 0)
    told = [f"{sum(dropped.values())} were read", *(f"{reason} dropped {n}" for reason, n in dropped.most_common())]
    return ", ".join(told + ([f"{rejected} rejected"] if rejected else []))


class Layout:
    """Which documents go where: the two streams, in order."""

    def __init__(
        self,
        boxes: Boxes,
        options: ShardOptions,
        sources: Sequence[SourceBase],
        train_only: bool,
        neighbours: bool,
        leaks: bool = False,
        judges: Mapping[str, Judge] | None = None,
    ):
        """Args: as for the stage; leaks: held-out documents that leak go to training. Raises: NothingKeptError."""
        self._boxes, self._options, self._sources, self._judges = boxes, options, sources, judges or {}
        kept = self._kept(boxes.box("documents").parts())
        by_place = boxes.snapshot().plain  # then partitions, and so documents, lie in the order of the files
        key, place = kept["key"], kept["place"]
        order = np.argsort(key, kind="stable") if by_place else np.lexsort((place, key))  # equal keys by that order
        kept = {name: values[order] for name, values in kept.items()}
        total = int(kept["tokens"].sum())
        if len(kept["key"]) == 0:
            raise NothingKeptError(f"no document was kept: {_why_nothing(boxes)}")
        kept["side"] = self._sides(kept) if neighbours else kept["key"]
        held, split = _split(options.validation, kept, total, self._train_only(train_only))
        if leaks:
            moved = np.isin(kept["doc_id"], leaking(boxes, kept["doc_id"][held]))
            held &= ~moved
            split |= {"tokens_held": int(kept["tokens"][held].sum()), "leaking_documents": int(moved.sum())}
        train = {name: values[~held] for name, values in kept.items()}
        train, mixture = _mix(options, sources, train)
        self.splits = {
            "train": _stream(train),
            "validation": _stream({name: values[held] for name, values in kept.items()}),
        }
        receipts = boxes.box("documents").receipts(DocumentCounts)
        self.facts = {
            "split": split,
            "mixture": mixture,
            "documents": {name: len(stream["doc_id"]) for name, stream in self.splits.items()},
            "incomplete": sorted({f for r in receipts for f in r.counts.incomplete}),
        }

    def _kept(self, parts: list[str]) -> dict[str, np.ndarray]:
        columns: dict[str, list[np.ndarray]] = {
            n: [] for n in ("key", "part", "offset", "tokens", "bytes", "doc_id", "place", "source")
        }
        if self._judges:
            columns["weight"] = []
        snapshot = self._boxes.snapshot()
        numbers = {s.name: i for i, s in enumerate(self._sources)}
        seed = np.uint64(self._options.shuffle_seed)
        for number, part in enumerate(parts):
            self._boxes.box("tokens").verified(part, ".bin")  # once here, not by every shard that reads a part of it
            if self._boxes.has("cut_tokens"):
                self._boxes.box("cut_tokens").verified(part, ".bin")
            table = self._boxes.box("decisions").read_table(part, ["doc_id", "keep"])
            keep = table["keep"].to_numpy()
            lo, nbytes = self._boxes.box("signatures").columns(part, "content_lo", "bytes")
            length, nbytes, _, cut, starts = lengths_after_cuts(self._boxes, part, nbytes)
            sources = self._boxes.box("documents").read_table(part, ["source"])["source"].combine_chunks()
            names = [numbers[n] for n in sources.dictionary.to_pylist()]
            source = np.array(names, np.int16)[sources.indices.to_numpy()] if len(sources) else np.zeros(0, np.int16)
            columns["key"].append(fmix64(lo[keep] ^ seed))
            columns["part"].append(np.where(cut[keep], number + len(parts), number).astype(np.int32))
            columns["offset"].append(starts[keep])
            columns["tokens"].append(length[keep])
            columns["bytes"].append(nbytes[keep])
            columns["doc_id"].append(table["doc_id"].to_numpy()[keep])
            columns["place"].append(snapshot.places(columns["doc_id"][-1]))
            columns["source"].append(source[keep])
            if self._judges:
                columns["weight"].append(weights(self._boxes, part, self._judges)[keep])
        return {name: np.concatenate(arrays) for name, arrays in columns.items()}

    def _sides(self, kept: dict[str, np.ndarray]) -> np.ndarray:
        """What decides the side of the split of every kept document: its key, or the highest of its component.

        Two documents that are kept of one component resemble each other or a third one, so they go together: to training,
        unless the keys of all of them are below the bound. Added data can thus take a document out of validation only.
        """
        path = self._boxes.box("duplicates").verified_file("000000", "clusters.parquet")
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

    def _train_only(self, wanted: bool) -> np.ndarray:
        if not wanted:
            return np.zeros(0, np.int64)
        path = self._boxes.box("duplicates").verified_file("000000", "train_only.parquet")
        doc_id: np.ndarray = pq.read_table(path)["doc_id"].to_numpy()
        return doc_id


def leaking(boxes: Boxes, held: np.ndarray) -> np.ndarray:
    """The held-out documents that leak, and those that leak to these. Args: held: doc_ids, all of them."""
    box = boxes.box("leaks")
    tables = [box.read_table(part, ["doc_id", "item"]) for part in box.parts()]
    doc_id, item = (np.concatenate([held[:0], *(t[name].to_numpy() for t in tables)]) for name in ("doc_id", "item"))
    inside: np.ndarray = np.sort(held)
    while True:
        leaks = np.unique(item[~np.isin(doc_id, inside) & np.isin(item, inside)])
        if not len(leaks):
            moved: np.ndarray = np.setdiff1d(held, inside)
            return moved
        inside = np.setdiff1d(inside, leaks)


def _split(
    options: Validation, kept: dict[str, np.ndarray], total: int, train_only: np.ndarray
) -> tuple[np.ndarray, dict[str, Any]]:
    """Which of the kept documents (in order of key) are held out.

    The lowest keys, until they hold the tokens asked for (the text that passes them is the last) or as many as
    `max_fraction` allows (the text that would pass it stays out, with all its copies). The key of the last one is the
    bound: every document of equal or lower key that is not train_only is held out, and stays so when the bound is pinned
    and data is added. Documents of one component count by the highest of their keys (`Layout._sides`).

    Raises:
        FatalError: nothing would be left to train on.
    """
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


def _banded(train: dict[str, np.ndarray]) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """The documents as often as the bands of judges say, in order of key, and of each place which document it is.

    Of a weight of 2.3 there are two copies, and a third where the content's own draw lies below 0.3. Copy c > 0 stands at
    fmix64(key + c * odd constant), another one than that of epochs.
    """
    every = np.arange(len(train["key"]))
    if "weight" not in train:
        return train, every
    whole = np.floor(train["weight"])
    draw = (fmix64(train["key"] ^ np.uint64(0xD6E8FEB86659FD93)) >> np.uint64(11)).astype(np.float64) / (1 << 53)
    times = (whole + (draw < train["weight"] - whole)).astype(np.int64)
    of_N = np.repeat(every, times)
    copy = np.arange(len(of_N)) - np.repeat(np.cumsum(times) - times, times)
    key = train["key"][of_N]
    moved = fmix64(key + copy.astype(np.uint64) * np.uint64(0xC2B2AE3D27D4EB4F))
    key = np.where(copy == 0, key, moved)
    order = np.lexsort((train["place"][of_N], key))
    of_N = of_N[order]
    return {**{name: values[of_N] for name, values in train.items()}, "key": key[order]}, of_N


def _mix(
    options: ShardOptions, sources: Sequence[SourceBase], train: dict[str, np.ndarray]
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Draw each source to its share; repeats of a document are further places in the shuffle, not further copies of text.

    Epoch e of a document stands at fmix64(key + e * odd constant); the last, partial epoch takes its lowest keys. Bands of
    judges come before: their copies count as tokens that a source has.
    """
    single, train, of_N = train, *_banded(train)
    available = np.bincount(train["source"], weights=train["tokens"], minlength=len(sources))
    asked = _shares(options, sources, available)
    limit = options.max_epochs
    wanted = [None if t is None else min(t, limit * float(available[i])) for i, t in enumerate(asked)]
    picked: list[np.ndarray] = []
    keys: list[np.ndarray] = []
    report = []
    for number, source in enumerate(sources):
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
        return train, _mixture(report, single, of_N)
    chosen, key = np.concatenate(picked), np.concatenate(keys)
    order = np.lexsort((train["place"][chosen], key))
    return {name: values[chosen[order]] for name, values in train.items()}, _mixture(report, single, of_N[chosen])


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


def _shares(options: ShardOptions, sources: Sequence[SourceBase], available: np.ndarray) -> list[float | None]:
    """Tokens wanted of every source; None: all it has, once."""
    weights = [s.weight for s in sources]
    wanted: list[float | None] = [s.tokens for s in sources]
    given = [w for w in weights if w is not None]
    if given:
        total = options.mixture_tokens
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
    return {name: np.ascontiguousarray(columns[name], dtype) for name, dtype in FIELDS.items()}
