#!/usr/bin/env python3
"""How often our filters and datatrove's decide alike, and where they do not, which kind of text it is.

    python scripts/bench/agreement.py FILE... [--splitter whitespace|english] [--limit 5000] [--show 3]

FILE: Parquet or JSON Lines (.gz too) with a `text` or `contents` column.
"""

from __future__ import annotations

import argparse
import gzip
import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from gpu_curate import quality
from gpu_curate.config import C4, FineWeb, GopherQuality, GopherRepetition, Quality
from gpu_curate.document import TextColumn
from gpu_curate.ops.text_stats import text_stats

ALL_ON = Quality(gopher_quality=GopherQuality(), gopher_repetition=GopherRepetition(), c4=C4(), fineweb=FineWeb())


def read_texts(path: Path, limit: int | None = None) -> list[str]:
    """The texts of a file, an even sample of `limit` of them if there are more."""
    if path.suffix == ".parquet":
        table = pq.read_table(path)
        texts = table["text" if "text" in table.column_names else "contents"].to_pylist()
    else:
        with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as lines:
            texts = [json.loads(line)["text"] for line in lines]
    if limit is None or len(texts) <= limit:
        return texts
    return [texts[i] for i in np.linspace(0, len(texts) - 1, limit).astype(int)]


@contextmanager
def datatrove_filters(splitter: str) -> Iterator[dict[str, object]]:
    """datatrove's filter of each family with its defaults, in the order of its FineWeb recipe.

    Args:
        splitter: `whitespace`: words are str.split(), sentences those of its WhitespaceTokenizer (whose own words are spaCy's,
            so they are replaced). `english`: its default for English, spaCy.
    """
    from datatrove.pipeline.filters import (
        C4QualityFilter,
        FineWebQualityFilter,
        GopherQualityFilter,
        GopherRepetitionFilter,
    )
    from datatrove.utils import text, word_tokenizers

    class Whitespace(word_tokenizers.WhitespaceTokenizer):
        def word_tokenize(self, text: str) -> list[str]:
            return text.split()

    original = word_tokenizers.load_word_tokenizer
    if splitter == "whitespace":
        tokenizer = Whitespace()
        word_tokenizers.load_word_tokenizer = lambda language: tokenizer
    text.split_into_parts.cache_clear()
    try:
        yield {
            "gopher_repetition": GopherRepetitionFilter(),
            "gopher_quality": GopherQualityFilter(),
            "c4": C4QualityFilter(),
            "fineweb": FineWebQualityFilter(),
        }
    finally:
        word_tokenizers.load_word_tokenizer = original
        text.split_into_parts.cache_clear()


def theirs(texts: list[str], splitter: str) -> dict[str, list[str]]:
    """Family → datatrove's reason for every text, "" where it keeps it. Each filter sees the text as given."""
    from datatrove.data import Document

    with datatrove_filters(splitter) as filters:
        decisions: dict[str, list[str]] = {family: [] for family in filters}
        for i, text in enumerate(texts):
            for family, one in filters.items():
                result = one.filter(Document(text=text, id=str(i)))
                decisions[family].append("" if result is True else result[1])
    return decisions


def ours(texts: list[str]) -> dict[str, list[str]]:
    """Family → our first reason in the family for every text, "" where it keeps it."""
    scores = quality.scores(text_stats(TextColumn.from_texts(texts)))
    decisions = {}
    for family in quality.FAMILIES:
        failing = quality.evaluate(scores, Quality(**{family: getattr(ALL_ON, family)}))
        decisions[family] = [(reason or "").removeprefix(f"{family}:") for reason in quality.reasons(failing)]
    return decisions


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--splitter", choices=["whitespace", "english"], default="whitespace")
    parser.add_argument("--limit", type=int, help="documents per file, evenly sampled")
    parser.add_argument("--show", type=int, default=0, help="texts shown per kind of disagreement")
    args = parser.parse_args()

    texts = [text for path in args.files for text in read_texts(path, args.limit)]
    a, b = ours(texts), theirs(texts, args.splitter)
    print(f"{len(texts)} documents, datatrove's {args.splitter} words")
    print(f"{'family':18} {'agree':>8} {'we drop':>8} {'it drops':>8}   disagreements: ours | datatrove's")
    wrong = np.zeros(len(texts), np.bool_)
    for family in quality.FAMILIES:
        drop_a, drop_b = (np.array([bool(reason) for reason in x[family]]) for x in (a, b))
        differ = drop_a != drop_b
        wrong |= differ
        kinds = Counter((a[family][i] or "keep", b[family][i] or "keep") for i in np.flatnonzero(differ))
        shown = ", ".join(f"{n} x {x} | {y}" for (x, y), n in kinds.most_common(6))
        print(f"{family:18} {1 - differ.mean():8.3%} {drop_a.mean():8.1%} {drop_b.mean():8.1%}   {shown}")
        for kind in kinds:
            same = [i for i in np.flatnonzero(differ) if (a[family][i] or "keep", b[family][i] or "keep") == kind]
            for i in same[: args.show]:
                print(f"    {kind[0]} | {kind[1]}: {texts[i][:400]!r}")
    drop_a, drop_b = (np.any([[bool(r) for r in reasons] for reasons in x.values()], axis=0) for x in (a, b))
    print(f"{'kept or dropped':18} {(drop_a == drop_b).mean():8.3%} {drop_a.mean():8.1%} {drop_b.mean():8.1%}")
    print(f"{'in every family':18} {1 - wrong.mean():8.3%}")


if __name__ == "__main__":
    main()
