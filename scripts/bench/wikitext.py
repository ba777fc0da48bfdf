"""Wikitext extraction against mwparserfromhell: speed on one core, and what the two texts differ in, page by page.

    python scripts/bench/wikitext.py FOLDER_OF_DUMPS [--rounds 3] [--examples 5] [--record]

Speed: `extract` against `mwparserfromhell.parse(page).strip_code()`, the same pages, interleaved, CPU time.

Text: the words that strip_code keeps and ours has not, by class (tests/text/wikitext_peer.py). A page is worse if one of them
has no class: tests/text/test_wikitext_peer.py asks that none is.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path

import mwparserfromhell
from common import interleaved, machine, quantiles, record

from gpu_curate.config import WikipediaSource
from gpu_curate.sources import wikipedia
from gpu_curate.text.wikitext import extract, is_redirect
from gpu_curate.text.wikitext.tables import Namespaces

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "text"))
from wikitext_peer import lost


def pages_of(path: Path) -> list[tuple[str, str, Namespaces]]:
    """(title, wikitext, namespaces) of the main-namespace pages that are no redirects."""
    reader = wikipedia.WikipediaReader(WikipediaSource(name="bench", type="wikipedia", path=str(path)))
    found: list[tuple[str, str, Namespaces]] = []
    kept = wikipedia.extract
    try:  # the reader's own parsing, with the extraction put aside
        wikipedia.extract = lambda source, namespaces, title, **_: found.append((title, source, namespaces)) or kept("")
        for split in reader.splits(str(path), path.stat().st_size, 1 << 40):
            for _ in reader.read(split):
                pass
    finally:
        wikipedia.extract = kept
    return found


def reference(source: str) -> str:
    return str(mwparserfromhell.parse(source).strip_code())


def compare(pages: list[tuple[str, str, Namespaces]], examples: int) -> Counter[str]:
    """Print what the peer alone has; returns the number of pages by verdict."""
    verdicts: Counter[str] = Counter()
    classes: Counter[str] = Counter()
    total = 0
    for title, source, namespaces in pages:
        why, unknown, words = lost(source, extract(source, namespaces, title=title), namespaces)
        classes += why
        total += words
        verdicts["worse" if unknown else "better" if why else "all words"] += 1
        if unknown and verdicts["worse"] <= examples:
            print(f"  worse: {title}: {dict(unknown.most_common(12))}")
    print(f"  of {total} words of the peer only it has, by class:", dict(classes.most_common()))
    return verdicts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="folder with .xml and .xml.bz2 dumps")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--examples", type=int, default=5, help="worse pages shown a file")
    parser.add_argument("--record", action="store_true", help="append to results.csv")
    options = parser.parse_args()
    total: Counter[str] = Counter()
    print(machine())
    for path in sorted(p for p in options.folder.iterdir() if p.name.endswith((".xml", ".xml.bz2"))):
        pages = [p for p in pages_of(path) if not is_redirect(p[1])]
        if not pages:
            continue
        chars = sum(len(source) for _, source, _ in pages)
        seconds = interleaved(
            {
                "ours": lambda pages=pages: [extract(source, n, title=title) for title, source, n in pages],
                "mwparserfromhell": lambda pages=pages: [reference(source) for _, source, _ in pages],
            },
            options.rounds,
        )
        rate = {name: [chars / 1e6 / s for s in of] for name, of in seconds.items()}
        ratio = quantiles(rate["ours"])[1] / quantiles(rate["mwparserfromhell"])[1]
        print(f"{path.name}: {len(pages)} pages, {chars / 1e6:.2f} M characters")
        print(
            f"  M characters a CPU second: {quantiles(rate['ours'])[1]:.1f}, mwparserfromhell {quantiles(rate['mwparserfromhell'])[1]:.2f}: {ratio:.1f} x"
        )
        verdicts = compare(pages, options.examples)
        print("  pages:", dict(verdicts))
        total.update(verdicts)
        if options.record and len(pages) > 50:
            notes = (
                f"{len(pages)} pages, {verdicts['all words']} with all words, {verdicts['better']} without those of stated "
                f"classes, {verdicts['worse']} worse"
            )
            record("wikitext", path.name, "Mchar/s", rate["ours"], "mwparserfromhell strip_code", ratio, notes)
    print(f"all: {dict(total)}")


if __name__ == "__main__":
    sys.exit(main())
