"""A filter of your own beside the published ones: python your_own_filter.py [FILE.parquet]

The signal is a column of numbers, the filter compares it with a bound: so it can be counted and moved like the others.
"""

import sys
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import gpu_curate as gc

TEXTS = [
    "These are the talks of the day, in order: an opening, two lectures with slides, and a walk to the river. " * 3,
    "That is the list of the numbers that we have, with 555 0100 2024 12 31 4711 0815 99 42 1234567890 at its end. "
    * 3,
    "No.",
]
MAX_DIGIT_FRACTION = 0.2


def digit_fraction(texts: Any) -> Any:
    """float64 of N: share of the characters of each text that are digits; 0.0 for an empty one."""
    chars = pc.utf8_length(texts).to_numpy()
    digits = pc.count_substring_regex(texts, r"\d").to_numpy()
    return np.divide(digits, chars, out=np.zeros(len(chars)), where=chars != 0)


if __name__ == "__main__":
    table = pq.read_table(sys.argv[1]) if sys.argv[1:] else pa.table({"text": TEXTS})
    published = gc.decide(gc.score(table), {"gopher_quality": {"min_words": 20}})
    digits = digit_fraction(table["text"])

    keep = published.keep & (digits <= MAX_DIGIT_FRACTION)
    print(published)
    print(f"my filter drops {int((published.keep & ~keep).sum())} more, {int(keep.sum())} of {len(keep)} are left")
    pq.write_table(table.filter(pa.array(keep)), "filtered.parquet")
