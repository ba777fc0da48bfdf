"""A filter of your own beside the published ones: python your_own_filter.py [FILE.parquet]

The class gives a score, a recipe bounds it, and decisions, funnel and report count it like the others:

    quality:
      gopher_quality: on
      your_own_filter.py:Digits: {max: 0.2}        # gpu-curate run recipe.yaml --trust-code
"""

import sys

import pyarrow as pa
import pyarrow.parquet as pq

import gpu_curate as gc

TEXTS = [
    "These are the talks of the day, in order: an opening, two lectures with slides, and a walk to the river. " * 3,
    "That is the list of the keys that we have: a5550100 b20241231 c47110815 d99421234567890 and the e1234567890 to the f987654321. "
    * 3,
    "No.",
]


class Digits(gc.Score):
    """Share of characters that are digits. Fields are parameters, which a recipe gives beside the bounds."""

    name = "digit_fraction"
    alphabet: str = "0123456789"

    def score(self, text: str) -> float:
        return sum(text.count(digit) for digit in self.alphabet) / len(text)


if __name__ == "__main__":
    table = pq.read_table(sys.argv[1]) if sys.argv[1:] else pa.table({"text": TEXTS})

    scores = gc.score(table, own=[Digits])  # once; what follows only compares numbers
    published = gc.decide(scores, {"gopher_quality": {"min_words": 20}})
    mine = gc.decide(scores, {"gopher_quality": {"min_words": 20}, Digits: {"max": 0.2}})
    print(published)
    print(mine)
    print(
        f"my filter drops {int((published.keep & ~mine.keep).sum())} more, {int(mine.keep.sum())} of {len(mine)} are left"
    )
    pq.write_table(table.filter(pa.array(mine.keep)), "filtered.parquet")
