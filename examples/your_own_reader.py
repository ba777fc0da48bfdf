"""A reader of your own, of CSV files: python your_own_reader.py [FILE.csv [COLUMN]]

A recipe names the class, and its fields are keys of the source:

    sources:
      - {name: mine, type: your_own_reader.py:Csv, path: "data/*.csv", text_column: body}     # --trust-code
"""

import csv
import io
import sys
from collections.abc import Iterator
from pathlib import Path

import gpu_curate as gc


class Csv(gc.Reader):
    """One document a row; the other columns go with it. A row without text is a reject, and the next one is read."""

    suffixes = (".csv",)
    text_column: str = "text"
    delimiter: str = ","

    def read(self, split: gc.Split) -> Iterator[gc.Record | gc.Reject | gc.Skip]:
        with self.open(split.path) as f, io.TextIOWrapper(f, "utf-8-sig", newline="") as lines:
            for row, columns in enumerate(csv.DictReader(lines, delimiter=self.delimiter)):
                text = columns.pop(self.text_column, None)
                if text is None:
                    yield gc.Reject(row, None, f"no column {self.text_column!r}")
                else:
                    yield gc.Record(row, text, {name: value for name, value in columns.items() if name is not None})


def made_up(path: Path) -> Path:
    """80 rows of which one has no text."""
    rows = [
        [f"https://example.org/{i}", f"Page {i} tells of {i * 7} ferries, and of the {i}th harbour. " * 9]
        for i in range(80)
    ]
    with path.open("w", newline="") as f:
        csv.writer(f).writerows([["url", "body"], *rows[:40], ["https://example.org/none"], *rows[40:]])
    return path


def main() -> None:
    path = Path(sys.argv[1]) if sys.argv[1:] else made_up(Path("made_up.csv"))
    column = sys.argv[2] if sys.argv[2:] else "body"
    keep = [] if sys.argv[1:] else ["url"]
    recipe = {
        "sources": [
            {"name": "mine", "type": f"{__file__}:Csv", "path": str(path), "text_column": column, "keep_columns": keep}
        ],
        "tokenizer": {"train": {"vocab_size": 512}},
        "dedup": {"exact": True, "fuzzy": None},
        "min_tokens": 0,
    }
    run = gc.run(recipe, "run", trust_code=True)
    print(run.report["documents"], run.report["rejected_by_reason"])
    print(run.tokens.to_table().column_names)


if __name__ == "__main__":  # a run's workers import this file
    main()
