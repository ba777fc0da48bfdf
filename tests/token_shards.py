"""Folders of token shards as the pipeline writes them, from documents given as lists of ids."""

import hashlib
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from gpu_curate.formats import FORMATS

EOT, VOCAB = 999, 1000
TOKENIZER_JSON = b'{"model": {}}'
TOKENIZER = hashlib.sha256(TOKENIZER_JSON).hexdigest()


def make(folder, splits, per_shard=None, format="llmc", dtype=np.uint16, lens=None, sources=None, vocab=None):
    """A shards folder as the pipeline writes it. splits: {name: list of documents (lists of ids without EOT)}.

    lens: explicit shard lengths of the train split; else all shards but the last have per_shard tokens.
    sources: names that the documents have in turn.
    """
    folder.mkdir(exist_ok=True)
    rows = {"split": [], "position": [], "tokens": [], "doc_id": [], "source": [], "path": [], "row": []}
    manifest = {
        "version": 1,
        "format": format,
        "dtype": np.dtype(dtype).name,
        "eot_id": EOT,
        "vocab_size": vocab or VOCAB,
        "tokenizer": {"sha256": TOKENIZER, "path": "tokenizer.json"},
        "tokens_per_shard": per_shard,
        "splits": {},
    }
    streams = {}
    for split, docs in splits.items():
        stream = np.array([t for d in docs for t in (*d, EOT)], dtype)
        position = 0
        for number, d in enumerate(docs):
            values = (
                split,
                position,
                len(d) + 1,
                number << 36,
                (sources or ["s"])[number % len(sources or ["s"])],
                "a.jsonl",
                number,
            )
            for column, value in zip(rows.values(), values, strict=True):
                column.append(value)
            position += len(d) + 1
        sizes = lens if lens and split == "train" else [per_shard or max(len(stream), 1)] * len(stream)
        shards, start = [], 0
        for number, size in enumerate(sizes):
            if start >= len(stream):
                break
            tokens = stream[start : start + size]
            path = folder / f"{'val' if split == 'validation' else split}_{number:06d}.bin"
            digest = FORMATS[format].write(path, tokens)
            index = FORMATS[format].index(tokens, EOT)
            if index is not None:
                path.with_suffix(".idx").write_bytes(index)
            shards.append({"file": path.name, "tokens": len(tokens), "bytes": path.stat().st_size, "sha256": digest})
            start += size
        manifest["splits"][split] = {"tokens": len(stream), "documents": len(docs), "shards": shards}
        streams[split] = stream
    table = pa.table(rows)
    table = table.set_column(0, "split", table["split"].dictionary_encode())
    pq.write_table(table, folder / "documents.parquet")
    (folder / "tokenizer.json").write_bytes(TOKENIZER_JSON)
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return streams


def documents(count, seed=0, longest=40):
    rng = np.random.default_rng(seed)
    return [rng.integers(0, EOT, rng.integers(0, longest)).tolist() for _ in range(count)]
