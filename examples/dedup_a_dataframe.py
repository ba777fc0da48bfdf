"""Remove the duplicates of a pandas DataFrame: python dedup_a_dataframe.py [FILE.parquet [COLUMN]]"""

import random
import sys

import pandas as pd

import gpu_curate as gc


def made_up() -> pd.DataFrame:
    """1,000 texts, then 100 of them again and 100 with a word changed."""
    rng = random.Random(0)
    words = [f"word{i}" for i in range(2000)]
    texts = [" ".join(rng.choices(words, k=80)) for _ in range(1000)]
    changed = [text.rpartition(" ")[0] + " changed" for text in texts[100:200]]
    return pd.DataFrame({"id": range(1200), "text": [*texts, *texts[:100], *changed]})


if __name__ == "__main__":
    frame = pd.read_parquet(sys.argv[1]) if sys.argv[1:] else made_up()
    column = sys.argv[2] if sys.argv[2:] else "text"

    found = gc.deduplicate(frame[column], keep="first")
    print(found)

    pairs = found.pairs(jaccard=True)
    print(pairs.sort_by("jaccard").slice(0, 3).to_pylist())
    if pairs.num_rows:
        print(found.explain(pairs["text"][-1].as_py()))

    kept = frame[found.keep]
    kept.to_parquet("kept.parquet")
    print(f"kept.parquet: {len(kept):,} of {len(frame):,} rows")
