"""Wikitext extraction against mwparserfromhell: speed on one core, and what the two texts differ in, page by page.

    python scripts/bench/wikitext.py FOLDER_OF_DUMPS [--rounds 3] [--examples 5] [--record]

Speed: `extract` against `mwparserfromhell.parse(page).strip_code()`, the same pages, interleaved, CPU time.

Text: strip_code also keeps what is not prose (the inside of tables and references, file links with their captions,
categories, galleries) and drops every template, so its text is compared twice: as it is, and *pruned*, after the
nodes of those kinds are taken out of its own tree. A page is, by the words of the pruned reference and of ours:

    equal      the same words in the same order
    better     no word of the reference is missing, or those that are missing are residue of markup by its own look
    worse      a word of the reference is missing for which no cause is known

Every difference is filed under a cause that is computed, never looked up by page.
"""

from __future__ import annotations

import argparse
import difflib
import html
import re
import sys
from collections import Counter
from pathlib import Path

import mwparserfromhell
from common import interleaved, machine, quantiles, record
from mwparserfromhell.nodes import Comment, Heading, Tag, Template, Wikilink

from gpu_curate.config import WikipediaSource
from gpu_curate.sources import wikipedia
from gpu_curate.text.wikitext import CATEGORY, FILE, MEDIA, Namespaces, extract, is_redirect

PRUNED_TAGS = {"ref", "references", "table", "gallery", "timeline", "math", "chem", "ce", "hiero", "score", "imagemap"}
LINE_TAGS = {
    "br",
    "p",
    "div",
    "li",
    "dd",
    "dt",
    "hr",
    "blockquote",
    "tr",
    "center",
    "poem",
    "pre",
    "source",
    "syntaxhighlight",
}
WORD = re.compile(r"\w+")
RESIDUE = re.compile(r"\{\{|\}\}|\[\[|\]\]|''|\{\||\|\}|</?\w+[^<>\n]*>|^[|!].*$|__\w+__|&\w+;|\[(?:https?:)?//", re.M)


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


def pruned(source: str, namespaces: Namespaces) -> str:
    """The reference without what is not prose, taken out of its own tree."""
    tree = mwparserfromhell.parse(source)
    prune(tree, namespaces)
    return html.unescape(str(tree.strip_code(normalize=False)))


def prune(tree: mwparserfromhell.wikicode.Wikicode, namespaces: Namespaces) -> None:
    for node in list(tree.nodes):
        if isinstance(node, Wikilink):
            title = str(node.title).strip()
            hidden = not title.startswith(":") and namespaces.number(title) in (FILE, CATEGORY, MEDIA)
            if hidden or (
                node.text is None
                and re.fullmatch(r"[a-z]{2,3}(-[a-z]+)*|simple", title.partition(":")[0])
                and ":" in title
            ):
                tree.remove(node)
            elif node.text is not None:
                prune(node.text, namespaces)
        elif isinstance(node, Tag):
            tag = str(node.tag).lower()
            if tag in PRUNED_TAGS:
                tree.remove(node)
            elif tag in LINE_TAGS and not node.wiki_markup:
                if node.contents is not None:
                    prune(node.contents, namespaces)
                    tree.insert_after(node, "\n")
                tree.insert_before(node, "\n")
            elif node.contents is not None:
                prune(node.contents, namespaces)
        elif isinstance(node, Heading):
            prune(node.title, namespaces)
        elif isinstance(node, Comment):
            tree.remove(node)
        elif isinstance(node, Template):
            tree.replace(node, "\n" if "\n" in str(node) else " ")


def missing(ours: list[str], theirs: list[str]) -> list[str]:
    """Words of the reference that ours does not have, with repetitions."""
    return list((Counter(theirs) - Counter(ours)).elements())


def left_over(text: str) -> Counter[str]:
    """Words on lines of the reference that still hold markup, and on the lines of a table or link it did not parse."""
    words: Counter[str] = Counter()
    inside = ""  # the end that is waited for
    for line in text.split("\n"):
        if inside or RESIDUE.search(line):
            words.update(WORD.findall(line))
        for opening, closing in (("{|", "|}"), ("[[", "]]")):
            if not inside and line.count(opening) > line.count(closing):
                inside = closing
            elif inside == closing and closing in line:
                inside = ""
    return words


def explain(ours: str, theirs: str, lost: list[str]) -> Counter[str]:
    """Why the reference has words that ours has not: residue of markup in the reference, by its own look, or unknown."""
    causes: Counter[str] = Counter()
    residue = left_over(theirs)
    glued = re.sub(r"\W", "", ours)
    for word in lost:
        if residue[word] > 0:
            residue[word] -= 1
            causes["markup left in the reference"] += 1
        elif word in glued:
            causes["the same letters, cut into words otherwise"] += 1
        else:
            causes["unknown"] += 1
    return causes


def compare(pages: list[tuple[str, str, Namespaces]], examples: int) -> Counter[str]:
    """Print what differs; returns the number of pages by verdict."""
    verdicts: Counter[str] = Counter()
    causes: Counter[str] = Counter()
    shown = 0
    for title, source, namespaces in pages:
        got = extract(source, namespaces, title=title)
        ours, plain = WORD.findall(got.text), " ".join(got.text.split())
        raw = reference(source)
        verdicts["equal as it is"] += plain == " ".join(raw.split())
        theirs_text = pruned(source, namespaces)
        theirs = WORD.findall(theirs_text)
        if ours == theirs:
            verdicts["equal"] += 1
            continue
        lost = missing(ours, theirs)
        why = explain(got.text, theirs_text, lost)
        causes.update(why)
        causes["ours only: prose templates, and text that the reference took for a note or table"] += len(
            missing(theirs, ours)
        )
        verdict = "worse" if why["unknown"] else "better"
        verdicts[verdict] += 1
        if verdict == "worse" and shown < examples:
            shown += 1
            print(f"  worse: {title}: missing {[w for w in lost if w not in got.text][:12]}")
            for line in difflib.unified_diff(
                got.text.split("\n"), theirs_text.split("\n"), "ours", "reference", n=0, lineterm=""
            ):
                if line[0] == "+" and len(line) > 1:
                    print("   ", line[:160])
                    break
    print("  causes (words):", dict(causes.most_common()))
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
                f"{len(pages)} pages, {verdicts['equal']} equal, {verdicts['better']} better, {verdicts['worse']} worse"
            )
            record("wikitext", path.name, "Mchar/s", rate["ours"], "mwparserfromhell strip_code", ratio, notes)
    count = total["equal"] + total["better"] + total["worse"]
    print(f"all: {count} pages, equal or better {100 * (count - total['worse']) / max(count, 1):.2f} % {dict(total)}")


if __name__ == "__main__":
    sys.exit(main())
