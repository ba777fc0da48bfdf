"""Take documents out of a run's shards again, and keep them out: `gpu-curate forget`.

A set of shards is never changed under its name, since a loader may have it open: a new set gets the shards that hold nothing
of it as links to the same files, and those that do are written anew. Then it becomes the latest in one step.
The list of forgotten texts stays in the run directory, by content, and is an input of its decisions from then on.

# N documents, D documents of a split's stream, F forgotten texts
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from gpu_curate.errors import ConfigError
from gpu_curate.formats import FORMATS
from gpu_curate.inquiry.locate import by_id, by_place
from gpu_curate.inquiry.stored import Array, Stored
from gpu_curate.loader import PREFIX, read_manifest
from gpu_curate.privacy import cleaned
from gpu_curate.runs.fingerprints import active_stages, fingerprint
from gpu_curate.stages.forgotten import LIST, hashes, remembering
from gpu_curate.stages.part import Part
from gpu_curate.stages.shards import ShardCounts
from gpu_curate.store.artifact import Box
from gpu_curate.store.files import publish, read_json, write_json, write_table
from gpu_curate.store.fingerprint import digest
from gpu_curate.store.lock import lock_holder, refuse_links, run_lock
from gpu_curate.store.receipts import Receipt
from gpu_curate.store.run_directory import FINGERPRINT, FINGERPRINT_CHARS, RUN_FILE, owner, point, shard_sets
from gpu_curate.store.run_directory import place as place_of

RECEIPTS = "forgotten"  # in a run directory: a receipt of every time something was forgotten
PADDING = -1  # doc_id of end-of-text tokens that stand where a document was
_HASH = re.compile(r"[0-9a-f]{32}")
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://\S+")


@dataclass
class _Listed:
    """What a list stands for: hashes of texts, and why each goes."""

    why: dict[tuple[int, int], str] = field(default_factory=dict)  # (high, low) → the entry, or `near ENTRY`
    not_found: list[dict[str, str]] = field(default_factory=list)

    def add(self, content: tuple[int, int], why: str) -> None:
        self.why.setdefault(content, why)


def forget(
    run: str | os.PathLike[str],
    entries: list[str],
    near: bool = False,
    pad: bool = False,
    keep_earlier: bool = False,
    note: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Take documents out of the latest shards of a run, and let no later run keep them.

    Args:
        run: run directory.
        entries: a doc_id, `source:path:row`, URL (of every document that has it), or xxh3-128 of a normalised text in hex, each.
            Every document of an equal text goes.
        near: the near-duplicates of each, too: all of its component.
        pad: end-of-text tokens stand where it was, so that every other token keeps its place and a training run goes on with
            the batches that it would have had.
        keep_earlier: leave the earlier set of shards, which holds them still, in the run directory.
        note: is told what is being done.
    Returns:
        The receipt, which is also written into RUN/forgotten/: documents {doc_id, source, path, row, entry, places: [split,
        position, tokens, files]}; texts (on the list now), tokens, not_found {entry, reason}; shards: those written anew {file,
        old_sha256, new_sha256, old_tokens, new_tokens} (new ones None: nothing was left of it), unchanged; from, to: folders;
        holds_still: what of the run directory has their text still.
    Raises:
        ConfigError: the run is going, its shards are not whole, or no entry is found: nothing is changed then.
    Memory: one shard, and 100 bytes a document of the shards.
    """
    folder = Path(run)
    holder = lock_holder(folder)
    if holder is not None:
        raise ConfigError(
            f"{run}: process {holder} is working in it", "wait for its end, or stop it; nothing was changed"
        )
    stored = Stored(folder)
    for box in ("decisions", "shards"):  # what is written or removed; a run that somebody else made may name any folder
        if stored.context.root(box) != stored.run:
            raise ConfigError(
                f"{run}: its {box} lie in {stored.context.cache}", "run its recipe again; nothing was changed"
            )
    shards = stored.box("shards")
    if not shards.sealed():
        raise ConfigError(f"{run}: its shards are not whole", "run its recipe to the end; nothing was changed")
    note("looking for the documents")
    listed = _resolve(stored, entries)
    if not listed.why:
        reasons = "; ".join(f"{e['entry']}: {e['reason']}" for e in listed.not_found[:5])
        raise ConfigError(f"forget: no entry of the list is found in {run} ({reasons})", "nothing was changed")
    if near:
        _add_near(stored, listed)
    documents = _documents(stored, listed)
    with run_lock(folder):
        refuse_links(folder)
        _write_list(folder, listed)
        note("deciding anew")
        fingerprint_of, folders = _decide(stored)
        note("writing shards")
        edit = _Edit(stored, shards, {d["doc_id"] for d in documents}, pad)
        target = edit.write(_list_identity(folder))
        receipt = {
            "made": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
            "near": near,
            "pad": pad,
            "texts": len(listed.why),
            "documents": [{**d, "places": edit.places.get(d["doc_id"], [])} for d in documents],
            "tokens": edit.removed_tokens,
            "not_found": listed.not_found,
            "shards": edit.changed,
            "unchanged": edit.unchanged,
            "from": shards.folder.name,
            "to": target.name,
        }
        if target != shards.folder:
            _make_latest(folder, target, fingerprint_of, folders, owner(target) or "")
            if not keep_earlier and not shards.folder.is_symlink():
                shutil.rmtree(shards.folder)
        receipt["holds_still"] = _holders(stored, folder, target)
        number = len(list((folder / RECEIPTS).glob("*.json"))) if (folder / RECEIPTS).is_dir() else 0
        write_json(folder / RECEIPTS / f"{number:06d}.json", receipt)
        return receipt | {"receipt": str(folder / RECEIPTS / f"{number:06d}.json")}


def read_list(path: Path) -> list[str]:
    """The entries of a file, a line each; blank lines and what follows ` #` are left out. Raises: ConfigError."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as e:
        raise ConfigError(f"--list {path}: {e}", "a text file: a doc_id, source:path:row, URL or hash a line") from e
    found = [line.partition(" #")[0].strip() for line in lines]
    entries = list(dict.fromkeys(line for line in found if line and not line.startswith("#")))
    if not entries:
        raise ConfigError(f"--list {path}: it has no entry", "a doc_id, source:path:row, URL or hash a line")
    return entries


# ------------------------------------------------------------------------------------------------------- what is listed


def _resolve(stored: Stored, entries: list[str]) -> _Listed:
    """The texts that entries stand for. What is not found is told, and is no error."""
    listed = _Listed()
    urls = [e for e in entries if _URL.fullmatch(e)]
    hits = _with_urls(stored, urls) if urls else {}
    for entry in entries:
        if _HASH.fullmatch(entry.lower()):
            continue
        if entry in hits:
            for content in hits[entry]:
                listed.add(content, entry)
            continue
        try:
            found = by_id(stored, int(entry)) if entry.isdecimal() else by_place(stored, entry)
        except ConfigError as e:
            listed.not_found.append({"entry": entry, "reason": e.message})
            continue
        if found is None:
            reason = "no document has this URL" if entry in urls else "no doc_id, place, URL or hash of this run"
            listed.not_found.append({"entry": entry, "reason": reason})
            continue
        listed.add(_content(stored, found.part, np.array([found.number]))[0], entry)
    named = {e.lower() for e in entries if _HASH.fullmatch(e.lower())}
    there = _known(stored, named)
    for name in sorted(named):
        value = int(name, 16)
        listed.add((value >> 64, value & ((1 << 64) - 1)), name)
        if name not in there:
            reason = "no document has this hash; it stays on the list, for files that are added"
            listed.not_found.append({"entry": name, "reason": reason})
    return listed


def _content(stored: Stored, part: str, numbers: Array) -> list[tuple[int, int]]:
    hi, lo = stored.columns("signatures", part, "content_hi", "content_lo")
    return [(int(hi[i]), int(lo[i])) for i in numbers]


def _known(stored: Stored, names: set[str]) -> set[str]:
    """Those hashes that a document of the run has."""
    low = np.array([int(name, 16) & ((1 << 64) - 1) for name in names], np.uint64)
    if not len(low):
        return set()

    def of(part: str) -> set[str]:
        hi, lo = stored.columns("signatures", part, "content_hi", "content_lo")
        return {f"{int(hi[i]) << 64 | int(lo[i]):032x}" for i in np.flatnonzero(np.isin(lo, low))}

    return names & set().union(*stored.each(of))


def _with_urls(stored: Stored, urls: list[str]) -> dict[str, list[tuple[int, int]]]:
    """URL → the texts of documents that have it in a column that sources carry, or as their file's path."""
    wanted = pa.array(urls, pa.string())
    fixed = ("doc_id", "text", "source", "row", "group")

    def of(part: str) -> list[tuple[str, tuple[int, int]]]:
        with pq.ParquetFile(stored.path("documents", part), memory_map=True) as file:
            table = file.read([n for n in file.schema_arrow.names if n not in fixed], use_threads=False)
        found: list[tuple[str, tuple[int, int]]] = []
        for name in table.column_names:
            values = table[name].cast(pa.string()) if pa.types.is_dictionary(table[name].type) else table[name]
            if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
                hit = np.flatnonzero(pc.is_in(values.cast(pa.string()), wanted).to_numpy())
                if len(hit):
                    found += zip(values.take(pa.array(hit)).to_pylist(), _content(stored, part, hit), strict=True)
        return found

    hits: dict[str, list[tuple[int, int]]] = {}
    for some in stored.each(of):
        for url, content in some:
            hits.setdefault(url, []).append(content)
    return hits


def _add_near(stored: Stored, listed: _Listed) -> None:
    """The texts of every document in a component with a listed one."""
    if not stored.has("duplicates"):
        raise ConfigError("forget: --near: the run looked for no duplicates", "run its recipe with dedup.fuzzy")
    table = stored.clusters()
    doc_id, component = (table[name].to_numpy() for name in ("doc_id", "component"))
    own = {d["doc_id"]: d["entry"] for d in _documents(stored, listed)}
    rows = np.flatnonzero(np.isin(doc_id, np.array(list(own), np.int64)))
    why = {int(component[i]): own[int(doc_id[i])] for i in rows}
    members = np.flatnonzero(np.isin(component, np.array(list(why), np.int64)))
    entry_of = {int(doc_id[i]): why[int(component[i])] for i in members}
    for part in stored.parts_with_documents:
        (ids,) = stored.columns("documents", part, "doc_id")
        numbers = np.flatnonzero(np.isin(ids, np.array(list(entry_of), np.int64)))
        for number, content in zip(numbers.tolist(), _content(stored, part, numbers), strict=True):
            listed.add(content, f"near {entry_of[int(ids[number])]}")


def _documents(stored: Stored, listed: _Listed) -> list[dict[str, Any]]:
    """Every document of the run with a listed text: doc_id, source, path, row, entry."""
    low = np.array([lo for _, lo in listed.why], np.uint64)

    def of(part: str) -> list[dict[str, Any]]:
        hi, lo = stored.columns("signatures", part, "content_hi", "content_lo")
        rows = [i for i in np.flatnonzero(np.isin(lo, low)).tolist() if (int(hi[i]), int(lo[i])) in listed.why]
        if not rows:
            return []
        table = stored.table("documents", part, ["doc_id", "source", "path", "row"]).take(rows).to_pylist()
        return [
            {**cleaned(row), "entry": listed.why[int(hi[i]), int(lo[i])]} for i, row in zip(rows, table, strict=True)
        ]

    return [document for some in stored.each(of) for document in some]


def _write_list(run: Path, listed: _Listed) -> None:
    """The run's list and these texts: what was on it stays on it."""
    before = hashes(str(run / LIST)).tolist() if (run / LIST).exists() else []
    values = {(hi << 64) | lo for hi, lo in (*map(tuple, before), *listed.why)}
    with publish(run / LIST) as temp:
        temp.write_text("".join(f"{value:032x}\n" for value in sorted(values)), encoding="utf-8")


def _list_identity(run: Path) -> str:
    return hashlib.sha256((run / LIST).read_bytes()).hexdigest()


# ---------------------------------------------------------------------------------------------------- decided and cut


def _decide(stored: Stored) -> tuple[dict[str, str], dict[str, str]]:
    """Decisions with the list in them, as the next run of the recipe makes them. Returns: fingerprints and folders then."""
    info = read_json(stored.run / RUN_FILE)
    fingerprint_of, folders = dict(info["fingerprints"]), {**info["folders"], **stored.context.folders}
    config = remembering(stored.config, stored.run)
    decisions = next(stage for stage in active_stages(config) if stage.name == "decisions")
    fingerprint_of["decisions"] = fingerprint(decisions, fingerprint_of)
    place = "decisions"
    if owner(stored.run / place) not in (None, fingerprint_of["decisions"]):
        place = f"decisions-{fingerprint_of['decisions'][:FINGERPRINT_CHARS]}"
    folders["decisions"] = place
    folders["rejects"] = folders["documents"].replace("documents", "rejects", 1)
    context = replace(stored.context, config=config, folders=folders)
    box = context.box("decisions")
    box.folder.mkdir(exist_ok=True)
    with publish(box.folder / FINGERPRINT) as temp:
        temp.write_text(fingerprint_of["decisions"] + "\n")
    for part in stored.parts:
        if box.receipt(part) is None:
            decisions.run(Part(decisions, context.boxes, part))
    return fingerprint_of, folders


class _Edit:
    """A set of shards without some documents.

    Attributes:
        places: doc_id → where its tokens were. changed, unchanged, removed_tokens: as the receipt has them.
    """

    def __init__(self, stored: Stored, old: Box, doc_ids: set[int], pad: bool):
        self._stored, self._old, self._pad = stored, old, pad
        self._manifest = read_manifest(old.folder) or {}
        with pq.ParquetFile(old.folder / "documents.parquet", memory_map=True) as file:
            self._rows = file.read(use_threads=False)
        ids = self._rows["doc_id"].to_numpy()
        self._gone = np.isin(ids, np.array(sorted(doc_ids), np.int64))
        self.places: dict[int, list[dict[str, Any]]] = {}
        self.changed: list[dict[str, Any]] = []
        self.unchanged = 0
        self.removed_tokens = 0

    def write(self, listed: str) -> Path:
        """Write the new set; returns its folder, or the old one if no token of it goes."""
        if not self._gone.any():
            self.unchanged = sum(len(s["shards"]) for s in self._manifest["splits"].values())
            return self._old.folder
        before = owner(self._old.folder) or ""
        fingerprint = digest({"box": "shards", "of": before, "forgotten": listed, "pad": self._pad})
        folder = self._old.folder.parent / place_of(self._old.folder.parent, "shards", fingerprint)
        folder.mkdir(exist_ok=True)
        with publish(folder / FINGERPRINT) as temp:
            temp.write_text(fingerprint + "\n")
        new = Box(folder)
        splits = {name: self._split(new, name, entry) for name, entry in self._manifest["splits"].items()}
        if not splits["train"]["tokens"]:
            shutil.rmtree(folder)
            raise ConfigError("forget: no document would be left to train on", "the shards were not changed")
        write_table(folder / "documents.parquet", self._documents())
        self._copy(self._old.folder / "tokenizer.json", folder / "tokenizer.json")
        forgotten = {"tokens": self.removed_tokens, "padded": self._pad, "from": self._old.folder.name}
        size = self._manifest["tokens_per_shard"] if self._pad else None  # shards are no longer of equal length
        manifest = {**self._manifest, "splits": splits, "tokens_per_shard": size, "forgotten": forgotten}
        write_json(folder / "manifest.json", manifest)
        new.seal([folder / name for name in ("documents.parquet", "tokenizer.json", "manifest.json")])
        return folder

    def _split(self, new: Box, split: str, entry: dict[str, Any]) -> dict[str, Any]:
        """The shards of one split, those that hold nothing of it linked. Returns its entry in the manifest."""
        rows = np.flatnonzero(pc.equal(self._rows["split"].cast(pa.string()), split).to_numpy())
        position, tokens, doc_id = (self._rows[n].to_numpy()[rows] for n in ("position", "tokens", "doc_id"))
        gone = self._gone[rows]
        starts, stops = position[gone], (position + tokens)[gone]
        self.removed_tokens += int(tokens[gone].sum())
        for i in np.flatnonzero(gone).tolist():
            facts = {"split": split, "position": int(position[i]), "tokens": int(tokens[i]), "files": []}
            self.places.setdefault(int(doc_id[i]), []).append(facts)
        shards, begin = [], 0
        receipts = {receipt.files[0].file: receipt for receipt in self._old.receipts(ShardCounts)}
        for shard in entry["shards"]:
            end = begin + shard["tokens"]
            own = (starts < end) & (stops > begin)
            ranges = [
                (max(a, begin) - begin, min(b, end) - begin) for a, b in zip(starts[own], stops[own], strict=True)
            ]
            receipt = receipts[shard["file"]]
            for number, (low, high) in zip(np.flatnonzero(own).tolist(), ranges, strict=True):
                row = np.flatnonzero(gone)[number]
                place = next(
                    p
                    for p in self.places[int(doc_id[row])]
                    if p["position"] == int(position[row]) and p["split"] == split
                )
                place["files"].append([shard["file"], int(low), int(high - low)])
            kept = self._shard(new, shard, receipt, ranges)
            shards += [kept] if kept else []
            begin = end
        documents = int((~gone).sum()) + (int(tokens[gone].sum()) if self._pad else 0)
        return {"tokens": sum(s["tokens"] for s in shards), "documents": documents, "shards": shards}

    def _shard(
        self, new: Box, shard: dict[str, Any], receipt: Receipt[ShardCounts], ranges: list[tuple[Any, Any]]
    ) -> dict[str, Any] | None:
        """One shard, linked or written anew; None if nothing is left of it."""
        files = [entry.file for entry in receipt.files]
        if not ranges:
            for file in files:
                self._copy(self._old.folder / file, new.folder / file)
            new.commit(receipt)
            self.unchanged += 1
            return dict(shard)
        format_, dtype = FORMATS[self._manifest["format"]], np.dtype(self._manifest["dtype"])
        held = np.array(format_.open(self._old.folder / shard["file"], dtype, shard["tokens"]))
        eot = self._manifest["eot_id"]
        keep = np.ones(len(held), np.bool_)
        for low, high in ranges:
            keep[low:high] = False
        if self._pad:
            held[~keep] = eot
        else:
            held = held[keep]
        told = {"file": shard["file"], "old_sha256": shard["sha256"], "old_tokens": shard["tokens"]}
        if not len(held):
            self.changed.append({**told, "new_sha256": None, "new_tokens": 0})
            return None
        path = new.folder / shard["file"]
        with publish(path) as temp:
            sha256 = format_.write(temp, held)
        index = format_.index(held, eot)
        if index is not None:
            with publish(path.with_suffix(format_.index_suffix or "")) as temp:
                temp.write_bytes(index)
        nbytes = path.stat().st_size
        counts = replace(receipt.counts, tokens=len(held), sha256=sha256, bytes=nbytes)
        new.commit(replace(receipt, counts=counts, files=new.written(new.folder / file for file in files)))
        self.changed.append({**told, "new_sha256": sha256, "new_tokens": len(held)})
        return {"file": shard["file"], "tokens": len(held), "bytes": nbytes, "sha256": sha256}

    def _documents(self) -> pa.Table:
        """The rows of documents.parquet, in the order of the streams; positions follow what is left."""
        schema = self._rows.schema
        tables = []
        for split in PREFIX:
            inside = pc.equal(self._rows["split"].cast(pa.string()), split)
            own, gone = self._rows.filter(inside), self._gone[inside.to_numpy()]
            if self._pad:
                tables.append(_padded(own, gone))
                continue
            own = own.filter(pa.array(~gone))
            tokens = own["tokens"].to_numpy()
            place = own.schema.get_field_index("position")
            tables.append(own.set_column(place, "position", [np.cumsum(tokens) - tokens]))
        return pa.concat_tables([table.cast(schema) for table in tables])

    @staticmethod
    def _copy(old: Path, new: Path) -> None:
        """The same file under another name, by a link where the file system has them."""
        new.unlink(missing_ok=True)
        try:
            os.link(old, new)
        except OSError:
            with publish(new) as temp:
                shutil.copyfile(old, temp)


def _padded(own: pa.Table, gone: Array) -> pa.Table:
    """Rows in which every token of a forgotten document is an end-of-text token by itself, of doc_id PADDING."""
    tokens, position = own["tokens"].to_numpy(), own["position"].to_numpy()
    times = np.where(gone, tokens, 1)
    row = np.repeat(np.arange(len(tokens)), times)
    inside = np.arange(len(row)) - np.repeat(np.cumsum(times) - times, times)
    wide = own.take(pa.array(row))
    padding = gone[row]
    for name, values in (
        ("position", position[row] + np.where(padding, inside, 0)),
        ("tokens", np.where(padding, 1, tokens[row])),
        ("doc_id", np.where(padding, PADDING, own["doc_id"].to_numpy()[row])),
    ):
        wide = wide.set_column(wide.schema.get_field_index(name), name, [values])
    for name in own.column_names:
        if name not in ("split", "position", "tokens", "doc_id"):  # nothing of where it came from
            place = wide.schema.get_field_index(name)
            empty = pa.scalar(0 if name == "row" else ("" if name in ("source", "path") else None), _plain(wide, name))
            values = pc.if_else(pa.array(padding), empty, wide[name].cast(_plain(wide, name)))
            wide = wide.set_column(place, name, values)
    return wide


def _plain(table: pa.Table, name: str) -> pa.DataType:
    kind = table.schema.field(name).type
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _make_latest(
    run: Path, target: Path, fingerprint_of: dict[str, str], folders: dict[str, str], fingerprint: str
) -> None:
    """Let the plain name stand for the new set. The report stays that of the run, before anything was forgotten."""
    facts = read_json(run / RUN_FILE)
    folders = {**folders, "shards": target.name}
    facts["config"] = {**facts["config"], "forget": str(run / LIST)}
    facts |= {"fingerprints": {**fingerprint_of, "shards": fingerprint}, "folders": folders}
    facts["latest"] = {**(facts.get("latest") or {}), "shards": target.name, "folders": folders}
    point(run, "shards", target.name)
    write_json(run / RUN_FILE, facts)


def _holders(stored: Stored, run: Path, target: Path) -> list[str]:
    """What of the run directory may hold the text or the tokens of what was forgotten."""
    boxes = ["texts", "tokens"] if (run / "texts").exists() else ["documents", "tokens"]
    boxes += [name for name in ("cut_tokens", "held_out") if (run / name).exists()]
    earlier = [s["folder"] for s in shard_sets(run) if s["folder"] != target.name]
    return [*boxes, *earlier]
