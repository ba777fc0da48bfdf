"""The sums of a judge, slowly and plainly: the definition in `gpu_curate.ops.judge`, by Python's integers."""

from __future__ import annotations

import re

from gpu_curate.ops.judge import RAW_SHIFT, Tables
from gpu_curate.ops.text_stats import word_hash

GOLDEN = 0x9E3779B97F4A7C15
# what Python calls space, as UTF-8; ill-formed bytes are no space
SPACES = re.compile(b"(?:%s)+" % b"|".join(chr(c).encode() for c in range(0x3001) if chr(c).isspace()))


def buckets(text: bytes, bits: int, ngrams: int) -> list[int]:
    """The bucket of every feature."""
    hashes = [word_hash(word) for word in SPACES.split(text) if word]
    found = []
    for n in range(1, ngrams + 1):
        for i in range(len(hashes) - n + 1):
            x = n
            for h in hashes[i : i + n]:
                x = (x * GOLDEN + h) % 2**64
            found.append(x >> (64 - bits))
    return found


def sums(text: bytes, tables: Tables) -> list[int]:
    """The sum of every judge."""
    rows = zip(tables.begin_J.tolist(), tables.bits_J.tolist(), tables.ngrams_J.tolist(), strict=True)
    return [sum(int(tables.weights[begin + b]) for b in buckets(text, bits, n)) for begin, bits, n in rows]


def raw(text: bytes, weights: list[int], bits: int, ngrams: int, prior: int) -> int:
    """The raw score."""
    found = buckets(text, bits, ngrams)
    total = sum(weights[b] for b in found)
    return (total << RAW_SHIFT) // max(len(found) + prior, 1)
