"""Small corpora that the tests make, with everything in them that a run has to deal with."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

WORDS = [f"{a}{b}{c}" for a in "bcdfgl" for b in "aeiou" for c in ("", "n", "rk", "st", "ved")]


def sentence(rng: random.Random) -> str:
    return " ".join(rng.choices(WORDS, k=rng.randint(6, 18))).capitalize() + "."


def document(rng: random.Random, sentences: int | None = None) -> str:
    return "\n".join(sentence(rng) for _ in range(sentences or rng.randint(3, 20)))


def edited(text: str, rng: random.Random, rate: float) -> str:
    """A near-duplicate: every word replaced with probability `rate`."""
    return "\n".join(
        " ".join(rng.choice(WORDS) if rng.random() < rate else w for w in line.split(" ")) for line in text.split("\n")
    )


def write_corpus(folder: Path, seed: int = 7, documents: int = 240) -> dict[str, int]:
    """Parquet, JSONL, JSONL.gz and text files below `folder`, with exact and near copies across files.

    Returns:
        what is in it: records, rejects, empties, copies.
    """
    rng = random.Random(seed)
    texts = [document(rng) for _ in range(documents)]
    copies = [rng.choice(texts) for _ in range(documents // 10)]
    near = [edited(rng.choice(texts), rng, 0.01) for _ in range(documents // 10)]
    unicode = ["Ünïcode " + document(rng) + " 漢字かな交じり文 ไทย \u2028 end" for _ in range(5)]
    special = ["A text with <|endoftext|> written in it. " + document(rng)]
    empties = ["", "   \n\t ", "\ufeff"]
    pool = texts + copies + near + unicode + special + empties
    rng.shuffle(pool)
    folder.mkdir(parents=True, exist_ok=True)
    cut = len(pool) // 3
    table = pa.table({"text": pool[:cut], "dump": [f"d{i % 2}" for i in range(cut)]})
    pq.write_table(table, folder / "a.parquet", row_group_size=17)
    lines = [json.dumps({"text": t, "url": f"http://x/{i}"}) for i, t in enumerate(pool[cut : 2 * cut])]
    lines.insert(5, "")
    lines.insert(9, '{"text": "cut')
    lines.insert(11, '{"text": null}')
    (folder / "b.jsonl").write_text("\n".join(lines) + "\n")
    (folder / "c.jsonl.gz").write_bytes(
        gzip.compress("\r\n".join(json.dumps({"text": t}) for t in pool[2 * cut : -8]).encode())
    )
    (folder / "notes").mkdir(exist_ok=True)
    for i, text in enumerate(pool[-8:]):
        (folder / "notes" / f"{i}.txt").write_text(text)
    return {"documents": len(pool), "rejected": 2, "empty": len(empties), "copies": len(copies)}


def texts_of(run: Path) -> dict[int, str]:
    """doc_id → text of every document of a finished run, in the order of its partitions."""
    import gpu_curate as gc

    tables = [t.to_pydict() for t in gc.open_run(run).texts()]
    return {i: text for t in tables for i, text in zip(t["doc_id"], t["text"], strict=True)}


def write_inputs(folder: Path, documents: int) -> None:
    """A corpus, a tokenizer.json trained on its notes, and bench.jsonl: a question taken from it and one that is not."""
    from gpu_curate.tokenizer.training import train

    write_corpus(folder / "corpus", documents=documents)
    notes = [p.read_text() for p in sorted((folder / "corpus" / "notes").iterdir())]
    train(notes, 500, "<|endoftext|>", folder / "tokenizer.json")
    items = [{"question": " ".join(notes[0].split()[:20])}, {"question": "not in the corpus at all " * 4}]
    (folder / "bench.jsonl").write_text("".join(json.dumps(i) + "\n" for i in items))


def recipe(folder: Path, tokenizer: Path, **keys: object) -> dict[str, object]:
    """A recipe over what `write_corpus` wrote; `keys` replace sections."""
    return {
        "sources": [
            {"name": "pq", "type": "parquet", "path": str(folder / "a.parquet"), "group_column": "dump"},
            {"name": "jl", "type": "jsonl", "path": str(folder / "*.jsonl*"), "keep_columns": ["url"]},
            {"name": "tx", "type": "text", "path": str(folder / "notes")},
        ],
        "tokenizer": {"path": str(tokenizer)},
        "min_tokens": 10,
        "shards": {"tokens_per_shard": 7919, "validation": {"tokens": 3000}},
        "run": {"engine": "inline", "partition_bytes": 65536},
        **keys,
    }
