"""What mwparserfromhell's strip_code keeps of a page, word by word, and why ours does not.

strip_code keeps what is not prose: the inside of tables and references, files with their captions, categories, galleries. The
words of such nodes are counted by class from its own tree. What is left has to be in our text.
"""

from __future__ import annotations

import html
import re
from collections import Counter
from collections.abc import Iterator

import mwparserfromhell
from mwparserfromhell.nodes import ExternalLink, Heading, Tag, Template, Wikilink

from gpu_curate.text.wikitext import Extracted
from gpu_curate.text.wikitext.tables import CATEGORY, FILE, MEDIA, Namespaces, wikitext_rules

WORD = re.compile(r"\w+")
TAG_CLASSES = dict.fromkeys(wikitext_rules().close.keys() - wikitext_rules().literal_tags, "other extension tags") | {
    "table": "tables",
    "ref": "references",
    "references": "references",
    "gallery": "galleries",
    "math": "formulas",
    "chem": "formulas",
    "ce": "formulas",
    "hiero": "formulas",
}
RESIDUE = re.compile(
    r"\{\{|\}\}|\[\[|\]\]|''|\{\||\|\}|</?\w+[^<>\n]*>|^\s*[|!].*$|&\w+;|\[(?:https?:)?//", re.MULTILINE
)
SWITCH = re.compile(r"__[^\W_a-z][^\Wa-z]{2,40}?__")
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
    "td",
    "th",
    "center",
    "poem",
    "pre",
    "source",
}
Words = Counter[str]


def nodes_that_go(tree: mwparserfromhell.wikicode.Wikicode, namespaces: Namespaces) -> Iterator[tuple[str, object]]:
    """Class and node of what is no prose, the outermost ones."""
    for node in tree.nodes:
        if isinstance(node, Wikilink):
            title = str(node.title).strip()
            number = 0 if title.startswith(":") else namespaces.number(title)
            if number in (FILE, MEDIA):
                yield "files and captions", node
            elif number == CATEGORY:
                yield "categories", node
            elif node.text is None and re.match(r"(?:[a-z]{2,3}(?:-[a-z]+)*|simple)\s*:", title):
                yield "links to other languages", node
            elif node.text is not None:
                yield from nodes_that_go(node.text, namespaces)
        elif isinstance(node, Tag):
            tag = str(node.tag).lower()
            if tag in TAG_CLASSES:
                yield TAG_CLASSES[tag], node
            elif node.contents is not None:
                yield from nodes_that_go(node.contents, namespaces)
        elif isinstance(node, Heading):
            yield "headings without text below", node
        elif isinstance(node, ExternalLink) and node.brackets and node.title is None:
            yield "addresses without text", node


def apart(tree: mwparserfromhell.wikicode.Wikicode) -> None:
    """Blanks where strip_code would join the words around a template, a reference or a line's end."""
    for node in list(tree.nodes):
        if isinstance(node, Template):
            tree.replace(node, "\n" if "\n" in str(node) else " ", recursive=False)
        elif isinstance(node, Tag):
            if node.contents is not None:
                apart(node.contents)
            tag = str(node.tag).lower()
            if tag in TAG_CLASSES or (tag in LINE_TAGS and not node.wiki_markup):
                tree.insert_before(node, "\n", recursive=False)
                tree.insert_after(node, "\n", recursive=False)
        elif isinstance(node, Wikilink) and node.text is not None:
            apart(node.text)


def words_of(node: object) -> Words:
    return Counter(WORD.findall(mwparserfromhell.parse(str(node)).strip_code()))


def left_over(text: str) -> Words:
    """Words on lines of the peer's text that still hold markup, or lie inside a table, link or template that it did not parse."""
    words: Words = Counter()
    inside = ""  # the end that is waited for
    for line in text.split("\n"):
        if inside or RESIDUE.search(line):
            words.update(WORD.findall(line))
        for opening, closing in (("{|", "|}"), ("[[", "]]"), ("{{", "}}")):
            if not inside and line.count(opening) > line.count(closing):
                inside = closing
            elif inside == closing and closing in line:
                inside = ""
    return words


def lost(source: str, ours: Extracted, namespaces: Namespaces) -> tuple[Words, Words, int]:
    """Words that the peer keeps and ours has not: how many by class; those without a class; how many the peer keeps."""
    tree = mwparserfromhell.parse(source)
    apart(tree)
    text = tree.strip_code(normalize=False)
    switches = SWITCH.findall(text)
    text = SWITCH.sub(" ", html.unescape(text))
    theirs = Counter(WORD.findall(text))
    missing = theirs - Counter(WORD.findall(ours.text))
    classes: Words = Counter({"behaviour switches": len(switches)})

    def give(reason: str, words: Words) -> None:
        nonlocal missing
        taken = missing & words
        classes[reason] += taken.total()
        missing = missing - taken

    if missing:
        for reason, node in nodes_that_go(tree, namespaces):
            give(reason, words_of(node))
        give("markup left by the peer", left_over(text))
        written = set(WORD.findall(html.unescape(source)))
        give("words that the peer joins", Counter({w: n for w, n in missing.items() if w not in written}))
        letters = re.sub(r"\W", "", ours.text)
        give("the same letters, other words", Counter({w: n for w, n in missing.items() if w in letters}))
    return +classes, missing, theirs.total() + len(switches)
