"""max_coverage: which planted benchmark items are found at which limit, and which documents are dropped that are clean.

    python scripts/bench/coverage_limit.py --eval FOLDER --corpus corpus.parquet [--record]

FOLDER holds gsm8k_test.jsonl, HumanEval.jsonl.gz and mmlu_dev_cot_prompts.json (or some of them). Every item of 13 words or
more is planted between two documents of the corpus, one document a kind:

verbatim     as it is                       rewrapped    with a line break every five words
capitals     in upper case                  filler       between 2,000 words of other text
one in 20    one word in 20 replaced        paraphrased  every third word replaced by another of its length class, its
                                                         sentences in reverse order: a machine's, not a writer's
cut short    its first 60 % only            one n-gram   13 words of it, which a page that merely quotes it has

clean: all documents of the corpus, which no item was planted in. Recall is the share of planted documents above a limit;
precision that of planted ones (verbatim to one in 20) among all that are above it, with the clean ones.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import re
from collections.abc import Callable
from pathlib import Path

import common
import numpy as np
import pyarrow.parquet as pq

from gpu_curate.document import TextColumn
from gpu_curate.ops.ngrams import NgramIndex, coverage, probe

LIMITS = (0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.8)
N = 13
DEFAULT = 0.15
FOUND = ("verbatim", "rewrapped", "capitals", "filler", "one in 20")


def gsm8k(folder: Path) -> list[str]:
    lines = (folder / "gsm8k_test.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line)["question"] for line in lines]


def humaneval(folder: Path) -> list[str]:
    with gzip.open(folder / "HumanEval.jsonl.gz", "rt", encoding="utf-8") as file:
        return [json.loads(line)["prompt"] for line in file]


def mmlu(folder: Path) -> list[str]:
    """The questions of the prompts, with their choices."""
    prompts = json.loads((folder / "mmlu_dev_cot_prompts.json").read_text(encoding="utf-8"))
    return [q.strip() for text in prompts.values() for q in re.findall(r"^Q: (.*?)^A: ", text, re.M | re.S)]


SETS: dict[str, tuple[str, Callable[[Path], list[str]]]] = {
    "GSM8K": ("gsm8k_test.jsonl", gsm8k),
    "HumanEval": ("HumanEval.jsonl.gz", humaneval),
    "MMLU": ("mmlu_dev_cot_prompts.json", mmlu),
}


def sets(folder: Path) -> dict[str, list[str]]:
    """The items of the sets that are there."""
    return {name: read(folder) for name, (file, read) in SETS.items() if (folder / file).exists()}


def rewrapped(item: str) -> str:
    words = item.split()
    return "\n".join(" ".join(words[i : i + 5]) for i in range(0, len(words), 5))


def replaced(item: str, every: int, rng: random.Random, pool: list[str]) -> str:
    """One word in `every` is another one, at places that differ from item to item."""
    words = item.split()
    for i in range(rng.randrange(every), len(words), every):
        words[i] = rng.choice(pool)
    return " ".join(words)


def paraphrased(item: str, rng: random.Random, pool: list[str]) -> str:
    sentences = re.split(r"(?<=[.?!])\s+", item)
    return " ".join(replaced(s, 3, rng, pool) for s in reversed(sentences))


def one_gram(item: str, rng: random.Random) -> str:
    words = re.findall(r"\w+", item)
    first = rng.randrange(max(len(words) - N, 0) + 1)
    return " ".join(words[first : first + N])


def planted(items: list[str], texts: list[str], rng: random.Random) -> dict[str, list[str]]:
    """Kind → a document for every item."""
    pool = [w for text in texts[:50] for w in text.split()]

    def between(core: str, words: int = 40) -> str:
        around = [" ".join(rng.choice(texts).split()[:words]) for _ in range(2)]
        return f"{around[0]}\n\n{core}\n\n{around[1]}"

    return {
        "verbatim": [between(i) for i in items],
        "rewrapped": [between(rewrapped(i)) for i in items],
        "capitals": [between(i.upper()) for i in items],
        "filler": [between(i, 1000) for i in items],
        "one in 20": [between(replaced(i, 20, rng, pool)) for i in items],
        "paraphrased": [between(paraphrased(i, rng, pool)) for i in items],
        "cut short": [between(" ".join(i.split()[: int(len(i.split()) * 0.6)])) for i in items],
        "one n-gram": [between(one_gram(i, rng)) for i in items],
    }


def covered(documents: list[str] | TextColumn, index: NgramIndex) -> np.ndarray:
    """Highest share of one item that each document holds."""
    text = documents if isinstance(documents, TextColumn) else TextColumn.from_texts(documents)
    return coverage(probe(text, index), index, len(text))[0]


def measure(items: list[str], clean: TextColumn, texts: list[str], seed: int = 1) -> dict[str, np.ndarray]:
    """Kind → coverage of every document; `items`: how many have an n-gram."""
    index = NgramIndex.build(TextColumn.from_texts(items), N)
    own = [item for item, grams in zip(items, index.item_grams_I.tolist(), strict=True) if grams]
    found = {kind: covered(docs, index) for kind, docs in planted(own, texts, random.Random(seed)).items()}
    return {**found, "clean": covered(clean, index)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--eval", type=Path, required=True)
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--record", action="store_true")
    args = parser.parse_args()
    clean = TextColumn.from_arrow(pq.read_table(args.corpus, columns=["text"])["text"])
    texts = [clean.raw(i).decode() for i in range(0, min(len(clean), 4000), 7)]
    for name, items in sets(args.eval).items():
        found = measure(items, clean, texts)
        most = len(found["verbatim"])
        print(f"\n{name}: {most:,} of {len(items):,} items have {N} words; {len(clean):,} clean documents")
        print("| max_coverage | " + " | ".join((*found, "precision")) + " |")
        print("|---" * (len(found) + 2) + "|")
        for limit in LIMITS:
            above = {kind: int((c > np.float32(limit)).sum()) for kind, c in found.items()}
            hits = sum(above[k] for k in FOUND)
            false = above["clean"] + above["one n-gram"]
            shares = [f"{above[k] / most:.1%}" if k != "clean" else f"{above[k]:,}" for k in found]
            print(f"| {limit:g} | " + " | ".join(shares) + f" | {hits / max(hits + false, 1):.1%} |")
            if args.record and limit == DEFAULT:
                for kind in found:
                    value = above[kind] / (len(clean) if kind == "clean" else most)
                    common.record("coverage", f"{name}: {kind}", "share above 0.15", [value], "", 0.0, f"{most} items")


if __name__ == "__main__":
    main()
