"""A step of your own in a run: python your_own_stage.py [RECIPE.yaml]

It reads the texts of every partition, writes a table beside them and counts. The run plans, reuses and reports it like its
own steps: change the word list or this file, and it alone is made again.
"""

import re
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

import gpu_curate as gc


@dataclass(frozen=True, kw_only=True)
class MentionCounts(gc.Counts):
    """What a partition counts beside documents and bytes; the report adds it up."""

    mentions: dict[str, int] = field(default_factory=dict)  # documents by word


@dataclass(frozen=True)
class Mentions(gc.Stage):
    """Which documents mention which words. Reads: documents(text).  Writes: a bool column a word."""

    words: tuple[str, ...]  # the fields are part of the fingerprint

    name = "mentions"
    follows = "documents"  # a partition for each of its partitions, as soon as it is there
    counts = MentionCounts

    def make(self, part: gc.Part) -> gc.Made:
        text = part.text()
        texts = text.to_arrow().to_pylist()
        found = {w: [re.search(rf"\b{re.escape(w)}\b", t) is not None for t in texts] for w in self.words}
        counts = MentionCounts(
            documents=len(texts), bytes=text.nbytes, mentions={word: sum(has) for word, has in found.items()}
        )
        return gc.Made(counts, pa.table({word: pa.array(has, pa.bool_()) for word, has in found.items()}))


def small_recipe() -> dict[str, object]:
    Path("talks.txt").write_text("A walk to the river, and a talk about lamps.")
    Path("ferry.txt").write_text("The ferry leaves at noon. A ferry of lamps.")
    return {
        "sources": [{"name": "texts", "type": "text", "path": "*.txt"}],
        "tokenizer": {"train": {"vocab_size": 300}},
        "min_tokens": 0,
        "shards": {"validation": {"tokens": 0}},
        "run": {"workers": 1},
    }


if __name__ == "__main__":
    run = gc.run(
        sys.argv[1] if sys.argv[1:] else small_recipe(), "run", stages=[*gc.STAGES, Mentions(("ferry", "lamps"))]
    )
    (step,) = [s for s in run.report["steps"] if s["name"] == "mentions"]
    print(f"documents that mention a word: {step['counts']['mentions']}, {step['reused']} partitions reused")
