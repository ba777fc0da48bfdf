"""Wikitext to plain text, by two linear scans and one walk over the lines.

The first scan finds what MediaWiki's preprocessor finds: comments, extension tags and templates. The second runs on
what is left and finds links, tables and HTML tags. Each keeps a stack of open brackets and a list of cuts (start, end,
replacement); closing a bracket replaces the cuts made inside it, so that every character is looked at a fixed number
of times however the markup nests, and markup that never closes costs no more than its own characters.

What goes: templates (but those that carry prose, see `wikitext.yaml`), files with their captions, categories,
interlanguage links, references, tables, galleries, formulas, comments, HTML tags, bold and italic marks, headings without
text below. What stays: the visible text of links, other headings, list items, quotations, code. A template that is dropped
inside a sentence is a *gap*, and named in the result: nothing is lost from a sentence in silence. The punctuation that only
the dropped one needed goes with it.

What MediaWiki translates (names of namespaces, behaviour switches, `#REDIRECT`) and the languages with variants are in
`wikitext.tsv`, made from MediaWiki's own files by scripts/make_wikitext_words.

Source: the grammar is MediaWiki's (Preprocessor_Hash, Parser::doQuotes, Parser::replaceInternalLinks,
Parser::doTableStuff, ConverterRule); what a prose template shows is that template's own documentation.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from gpu_curate.text.wikitext.gaps import fill_gaps
from gpu_curate.text.wikitext.lines import blank_lines, decode_entities, lines_of, with_text_below
from gpu_curate.text.wikitext.links import LinkScan
from gpu_curate.text.wikitext.marks import CONTROL
from gpu_curate.text.wikitext.page import Page
from gpu_curate.text.wikitext.tables import Namespaces, canonical_spaces, wiki_words
from gpu_curate.text.wikitext.variants import without_variants


class Extracted(NamedTuple):
    """The text of a page.

    text: paragraphs and headings separated by newlines; "" for a page without any.
    gaps: names of the templates (or `<math>`) dropped inside a sentence, in order, with repetitions.
    unclosed: brackets, tags and tables that never close, or close without being open. 0 in well-formed wikitext.
    """

    text: str
    gaps: tuple[str, ...] = ()
    unclosed: int = 0


def extract(
    wikitext: str, namespaces: Namespaces | None = None, *, title: str = "", keep_tables: bool = False
) -> Extracted:
    """The readable text of a page.

    Args:
        wikitext: source of the page. Empty gives empty; time and memory are linear in its length, whatever it holds.
        namespaces: of the wiki; None: canonical names and aliases.
        title: what `{{PAGENAME}}` shows.
        keep_tables: the cells of tables are text, one row a line, cells separated by a tab.
    Returns:
        Extracted. Captions of files are dropped with the file, so that a caption never interrupts a sentence.
    """
    if CONTROL.search(wikitext):
        wikitext = CONTROL.sub("", wikitext)
    page = Page(
        wikitext.replace("\r\n", "\n") if "\r" in wikitext else wikitext, namespaces or canonical_spaces(), title
    )
    text = page.without_templates()
    links = LinkScan("\n" + text, page, keep_tables)
    text = links.result()
    if "-{" in text:
        text = without_variants(text, page.namespaces.language)
    text = decode_entities(lines_of(text))
    text, gaps = fill_gaps(text, page.dropped)
    return Extracted(blank_lines(with_text_below(text)), gaps, page.unclosed + links.unclosed)


_REDIRECT = re.compile(r"\s*+[#＃]\s*+([^:\[\]#\n]{1,80})(?<!\s)\s*+:?+\s*+\[\[")


def is_redirect(wikitext: str) -> bool:
    """True if the page is a redirect in any language MediaWiki knows the word of."""
    start = _REDIRECT.match(wikitext)
    return start is not None and start[1].casefold() in wiki_words().redirects
