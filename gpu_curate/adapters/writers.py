"""Files that other programs read, from token shards.

    nanogpt          train.bin, val.bin: ids alone (karpathy/nanoGPT, train.py reads them as uint16)
    llmc             NAME_train_000001.bin ...: 256 int32 of header, ids; the first document's shard first (karpathy/llm.c, dataloader.h)
    modded-nanogpt   the same, uint16 only, and every document begins with the end-of-text token, as its reader looks for
                     beginnings (KellerJordan/modded-nanogpt, train_gpt.py)
    megatron         train.bin, train.idx: a sequence a document (NVIDIA, megatron/core/datasets/indexed_dataset.py)
    olmo-core        train/part-000000.npy: ids alone, whole documents a file; .csv.gz beside it: start and end of each
                     (allenai/OLMo-core, olmo_core/data/utils.py)
    litgpt           train/chunk-0-0.bin ..., index.json: litdata's chunks for its TokensLoader, int32 as litgpt writes them
                     (Lightning-AI/litData, streaming/writer.py and item_loader.py)
    datasets         train-BLOCK-KEY.parquet: input_ids and labels of equal length (Hugging Face datasets, `parquet`); KEY is of
                     tokenizer, tokens, block and this code, so what is there already is taken
    stacklm          NAME-train-000001.bin: ids alone, whole documents a file, a beginning-of-text token before each and none behind; .meta
                     beside it (JSON: type, counts, sha256); manifest.json names the sets of a folder, and each set that is written
                     into it is added. Its reader makes position ids anew from the beginnings
    nanochat         shard_00000.parquet ...: texts, the last file is validation (karpathy/nanochat, dataset.py and dataloader.py)

Every writer is followed by a reading of what it wrote, which must give the tokens back.
"""

from __future__ import annotations

import gzip
import hashlib
import itertools
import json
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from gpu_curate.adapters.source import Array, SplitSource, splits_of
from gpu_curate.errors import ConfigError, FatalError
from gpu_curate.formats import FORMATS
from gpu_curate.loader.folder import PREFIX
from gpu_curate.store.files import publish, read_json, write_json

_CODE = 1  # of what decides the bytes of `datasets`
_INT32 = 16  # litdata's number of torch.int
_LEAF = (
    '[1, {"type": null, "context": null, "children_spec": []}]'  # torch's description of one value, as litdata keeps it
)
_GROWING = ("datasets", "stacklm")  # what a folder holds already may stay
_GROUP_ROWS = 1024  # texts of a row group, which nanochat's ranks take in turn


def convert(
    directory: str | Path,
    out: str | Path,
    to: str,
    tokens_per_file: int = 100_000_000,
    block: int = 1024,
    name: str = "shards",
) -> dict[str, Any]:
    """Write every split of a folder of shards as another program reads it, and read it back.

    Args:
        out: a folder that is empty or not there yet; `datasets` takes what is in it, `stacklm` adds to it.
        to: one of WRITERS.
        tokens_per_file: of formats of several files. block: tokens of a row of `datasets`. name: first part of the names of
            llm.c and stacklm.
    Returns:
        {"format", "splits": {name: {"tokens", "documents", "files"}}}.
    Raises:
        ConfigError: no such format; `name` leads elsewhere; `out` holds something; ids that the format cannot hold. FatalError: what was written reads
            otherwise than it should.
    """
    if to not in WRITERS:
        raise ConfigError(f"shards convert: no format {to!r}; there are {', '.join(WRITERS)}")
    if not name or {"/", "\0"} & set(name):
        raise ConfigError(f"shards convert: --name {name!r} is no beginning of a file's name", "files lie in --out")
    if tokens_per_file < 1 or block < 1:
        raise ConfigError(f"shards convert: tokens per file {tokens_per_file} and block {block} must be positive")
    folder = Path(out)
    if to not in _GROWING and folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"{folder}: holds something already", "name a folder that is empty or not there yet")
    sources = splits_of(directory)
    folder.mkdir(parents=True, exist_ok=True)
    facts: dict[str, Any] = {"format": to, "splits": {}}
    options = {"tokens_per_file": tokens_per_file, "block": block, "name": name}
    for source in sources:
        files = WRITERS[to](source, folder, options)
        said = {"tokens": source.length, "documents": len(source.bounds) - 1, "files": [str(f) for f in files]}
        facts["splits"][source.split] = said
    return facts


def _write(path: Path, parts: Iterator[Array | bytes]) -> Path:
    with publish(path) as temp, temp.open("wb") as f:
        for part in parts:
            f.write(part if isinstance(part, bytes) else np.ascontiguousarray(part).data.cast("B"))
    return path


def _same(path: Path, found: Array, source: SplitSource, start: int = 0) -> None:
    """Raises: FatalError: `found` are not tokens start.. of the split."""
    at = start
    for block in source.blocks(start, start + len(found)):
        if not np.array_equal(found[at - start : at - start + len(block)], block):
            raise FatalError(
                f"{path}: reads otherwise than the tokens that were written", "the disk, or its memory, is at fault"
            )
        at += len(block)


def _count(path: Path, found: int, expected: int) -> None:
    if found != expected:
        raise FatalError(f"{path}: holds {found} tokens, expected {expected}")


def _nanogpt(source: SplitSource, out: Path, options: dict[str, Any]) -> list[Path]:
    path = _write(out / f"{PREFIX[source.split]}.bin", source.blocks())
    found = np.memmap(path, source.dtype, "r")
    _count(path, len(found), source.length)
    _same(path, found, source)
    return [path]


def _llmc(source: SplitSource, out: Path, options: dict[str, Any]) -> list[Path]:
    return [path for path, _, _ in _numbered(source, out, options, source.length, source.blocks)]


def _modded(source: SplitSource, out: Path, options: dict[str, Any]) -> list[Path]:
    """The end-of-text token of each document stands before it, not behind: the stream moves on by one."""
    if source.dtype != np.uint16:
        raise ConfigError(
            f"{source.stream.directory}: ids of 32 bits, and modded-nanogpt reads 16", "take llmc or megatron"
        )

    def blocks(start: int, stop: int) -> Iterator[Array]:
        if start == 0:
            yield np.array([source.eot_id], np.uint16)
        yield from source.blocks(max(start - 1, 0), stop - 1)

    return [path for path, _, _ in _numbered(source, out, options, source.length, blocks)]


def _numbered(
    source: SplitSource, out: Path, options: dict[str, Any], length: int, blocks: Callable[[int, int], Iterator[Array]]
) -> list[tuple[Path, int, int]]:
    """llm.c shards of equal length. Returns: path, and the range of tokens in each."""
    made = []
    for number, start in enumerate(range(0, length, options["tokens_per_file"])):
        stop = min(start + options["tokens_per_file"], length)
        path = out / f"{options['name']}_{PREFIX[source.split]}_{number + 1:06d}.bin"
        header = FORMATS["llmc"].header(stop - start, source.dtype)

        def parts(header: bytes = header, start: int = start, stop: int = stop) -> Iterator[Array | bytes]:
            yield header
            yield from blocks(start, stop)

        _write(path, parts())
        found, at = FORMATS["llmc"].open(path, source.dtype, stop - start), 0
        for block in blocks(start, stop):
            if not np.array_equal(found[at : at + len(block)], block):
                raise FatalError(f"{path}: reads otherwise than the tokens that were written")
            at += len(block)
        made.append((path, start, stop))
    return made


def _megatron(source: SplitSource, out: Path, options: dict[str, Any]) -> list[Path]:
    path = _write(out / f"{PREFIX[source.split]}.bin", source.blocks())
    index = FORMATS["megatron"].index_of(np.diff(source.bounds), source.dtype.itemsize)  # type: ignore[attr-defined]
    _write(path.with_suffix(".idx"), iter([index]))
    _same(path, FORMATS["megatron"].open(path, source.dtype, source.length), source)
    return [path, path.with_suffix(".idx")]


def _documents_of_files(source: SplitSource, tokens_per_file: int) -> Iterator[tuple[int, int]]:
    """First and last + 1 document of files of whole documents: one that is longer than a file is one by itself."""
    first, bounds = 0, source.bounds
    while first < len(bounds) - 1:
        last = int(np.searchsorted(bounds, bounds[first] + tokens_per_file, "right")) - 1
        last = max(last, first + 1)
        yield first, last
        first = last


def _olmo(source: SplitSource, out: Path, options: dict[str, Any]) -> list[Path]:
    files, bounds = [], source.bounds
    for number, (first, last) in enumerate(_documents_of_files(source, options["tokens_per_file"])):
        path = out / PREFIX[source.split] / f"part-{number:06d}.npy"
        start, stop = int(bounds[first]), int(bounds[last])
        _write(path, source.blocks(start, stop))
        table = "".join(
            f"{a - start},{b - start}\n" for a, b in zip(bounds[first:last], bounds[first + 1 : last + 1], strict=True)
        )
        _write(path.with_suffix(".csv.gz"), iter([gzip.compress(table.encode(), mtime=0)]))
        found = np.memmap(path, source.dtype, "r")
        _count(path, len(found), stop - start)
        _same(path, found, source, start)
        files += [path, path.with_suffix(".csv.gz")]
    return files


def _stacklm(source: SplitSource, out: Path, options: dict[str, Any]) -> list[Path]:
    """The end-of-text token of each document stands before it: as beginning-of-text token, from which positions are counted."""
    name, bounds, bos = options["name"], source.bounds, source.eot_id
    same = {
        "version": 1,
        "dtype": source.dtype.name,
        "bos_id": bos,
        "vocab_size": source.vocab_size,
        "tokenizer_sha256": (source.manifest.get("tokenizer") or {}).get("sha256"),
    }
    path = out / "manifest.json"
    manifest = {**same, "sets": {}} if not path.exists() else _json(path)
    for key, value in same.items():
        if manifest.get(key) != value:
            raise ConfigError(f"{path}: {key} is {manifest.get(key)!r}, that of {source.stream.directory} {value!r}")
    if source.split in manifest["sets"].get(name, {}):
        raise ConfigError(f"{path}: has a set {name} already", "give another --name")
    files: list[Path] = []
    for number, (first, last) in enumerate(_documents_of_files(source, options["tokens_per_file"])):
        file = out / f"{name}-{PREFIX[source.split]}-{number + 1:06d}.bin"
        start, stop = int(bounds[first]), int(bounds[last])
        _write(file, itertools.chain([np.array([bos], source.dtype)], source.blocks(start, stop - 1)))
        found = np.memmap(file, source.dtype, "r")
        _count(file, len(found), stop - start)
        _same(file, found[1:], source, start)
        begins = np.flatnonzero(found == bos)
        if not np.array_equal(begins, bounds[first:last] - start):
            raise ConfigError(
                f"{source.stream.directory}: {len(begins)} of token {bos} for {last - first} documents of {file.name}: it stands "
                "in a text, too, or does not end every document",
                "positions are counted from it: take a format that keeps documents apart, megatron or olmo-core",
            )
        meta = {
            **{key: same[key] for key in ("version", "dtype", "bos_id", "vocab_size")},
            "tokens": stop - start,
            "documents": last - first,
            "sha256": _sha256(file),
        }
        write_json(file.with_suffix(".meta"), meta)
        files += [file, file.with_suffix(".meta")]
    said = {"tokens": source.length, "documents": len(bounds) - 1, "files": [f.name for f in files[::2]]}
    manifest["sets"].setdefault(name, {})[source.split] = said
    write_json(path, manifest)  # last: what it names is there
    return [*files, path]


def _sha256(path: Path) -> str:
    with path.open("rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()


def _json(path: Path) -> dict[str, Any]:
    found = read_json(path)
    if not isinstance(found, dict) or not isinstance(found.get("sets"), dict):
        raise ConfigError(f"{path}: no manifest of sets", "name a folder that is empty or not there yet")
    return found


def _litgpt(source: SplitSource, out: Path, options: dict[str, Any]) -> list[Path]:
    """Chunks of one item each: its count and two offsets of uint32, then ids."""
    folder, files, chunks = out / PREFIX[source.split], [], []
    if source.vocab_size > 1 << 31:
        raise ConfigError(f"{source.stream.directory}: {source.vocab_size} ids, and litgpt's are int32")
    per_file = min(options["tokens_per_file"], 1 << 29)  # offsets are uint32 of bytes
    for number, start in enumerate(range(0, source.length, per_file)):
        stop = min(start + per_file, source.length)
        nbytes = (stop - start) * 4
        path = folder / f"chunk-0-{number}.bin"

        def parts(start: int = start, stop: int = stop, nbytes: int = nbytes) -> Iterator[Array | bytes]:
            yield struct.pack("<3I", 1, 12, 12 + nbytes)
            yield from (block.astype("<i4") for block in source.blocks(start, stop))

        _write(path, parts())
        found = np.memmap(path, "<i4", "r", 12)
        _count(path, len(found), stop - start)
        _same(path, found, source, start)
        files.append(path)
        chunks.append({"chunk_bytes": nbytes, "chunk_size": 1, "dim": stop - start, "filename": path.name})
    config = {
        "chunk_bytes": per_file * 4,
        "chunk_size": None,
        "compression": None,
        "data_format": [f"no_header_tensor:{_INT32}"],
        "data_spec": _LEAF,
        "encryption": None,
        "item_loader": "TokensLoader",
    }
    index = json.dumps({"chunks": chunks, "config": config}, sort_keys=True).encode()
    return [*files, _write(folder / "index.json", iter([index]))]


def _datasets(source: SplitSource, out: Path, options: dict[str, Any]) -> list[Path]:
    """Rows of `block` tokens; labels are the same ids, which models of transformers move by one themselves."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    block = options["block"]
    key = [_CODE, source.manifest["tokenizer"]["sha256"], source.stream.identity(), block]
    digest = hashlib.sha256(json.dumps(key).encode()).hexdigest()[:16]
    path = out / f"{PREFIX[source.split]}-{block}-{digest}.parquet"
    if path.exists():
        return [path]
    rows = source.length // block
    if rows == 0:
        raise ConfigError(
            f"split {source.split} has {source.length} tokens, fewer than a block of {block}", "lower the block"
        )
    type_ = pa.list_(pa.int32())
    per_group = max(1, (1 << 22) // block)
    with (
        publish(path) as temp,
        pq.ParquetWriter(temp, pa.schema([("input_ids", type_), ("labels", type_)]), compression="zstd") as writer,
    ):
        for first in range(0, rows, per_group):
            last = min(first + per_group, rows)
            ids = pa.array(source.stream.read(first * block, last * block).astype(np.int32))
            column = pa.ListArray.from_arrays(pa.array(np.arange(last - first + 1, dtype=np.int32) * block), ids)
            writer.write_table(pa.table({"input_ids": column, "labels": column}))
    at = 0
    for batch in pq.ParquetFile(path).iter_batches(columns=["input_ids"]):
        found = batch.column(0).flatten().to_numpy()
        _same(path, found, source, at)
        at += len(found)
    _count(path, at, rows * block)
    return [path]


def _nanochat(source: SplitSource, out: Path, options: dict[str, Any]) -> list[Path]:
    """Texts by the tokenizer beside the shards. Validation is the last file, whatever its name: it is written behind train."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from gpu_curate.tokenizer.loading import load_beside

    beside = source.stream.directory / "tokenizer.json"
    if not beside.exists():
        raise ConfigError(f"{beside}: no such file; nanochat reads texts, so ids have to be decoded")
    tokenizer = load_beside(beside)
    files: list[Path] = []
    number = len(list(out.glob("shard_*.parquet")))
    first, bounds = 0, source.bounds
    while first < len(bounds) - 1:
        last = int(np.searchsorted(bounds, bounds[first] + options["tokens_per_file"], "right")) - 1
        last = max(last, first + 1) if source.split == "train" else len(bounds) - 1
        path = out / f"shard_{number:05d}.parquet"
        schema = pa.schema([("text", pa.string())])
        with publish(path) as temp, pq.ParquetWriter(temp, schema, compression="zstd") as writer:
            for begin in range(first, last, _GROUP_ROWS):
                end = min(begin + _GROUP_ROWS, last)
                ids = [source.stream.read(int(bounds[d]), int(bounds[d + 1]) - 1).tolist() for d in range(begin, end)]
                texts = tokenizer.decode_batch(ids, skip_special_tokens=False)
                writer.write_table(pa.table({"text": pa.array(texts, pa.string())}, schema))
        if pq.read_metadata(path).num_rows != last - first:
            raise FatalError(f"{path}: holds {pq.read_metadata(path).num_rows} texts, expected {last - first}")
        files.append(path)
        first, number = last, number + 1
    return files


WRITERS: dict[str, Callable[[SplitSource, Path, dict[str, Any]], list[Path]]] = {
    "nanogpt": _nanogpt,
    "llmc": _llmc,
    "modded-nanogpt": _modded,
    "megatron": _megatron,
    "olmo-core": _olmo,
    "litgpt": _litgpt,
    "datasets": _datasets,
    "stacklm": _stacklm,
    "nanochat": _nanochat,
}
