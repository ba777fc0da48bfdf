"""Every word that a peer reads in a page of the real dumps is in our text, but for stated classes."""

from __future__ import annotations

import time
import tracemalloc
from collections import Counter

import pytest

from gpu_curate.config import WikipediaSource
from gpu_curate.sources import wikipedia
from gpu_curate.text.wikitext import extract, is_redirect
from gpu_curate.text.wikitext.tables import Namespaces

pytest.importorskip("mwparserfromhell", reason="needs mwparserfromhell (the extra `test`)")

from wikitext_peer import lost

DUMPS = [
    "aawiki-20260101-pages-meta-current.xml.bz2",
    "enwiki-pages-articles-excerpt.xml.bz2",
    "enwiki-table-markup.xml.bz2",
    "fowiki-dump.xml.bz2",
    "ltgwiki-pages-articles.xml.bz2",
    "tinywiki-latest-pages-articles.xml",
]
SECONDS, BYTES = 1e-6, 60  # a character of a page, at most, and a constant; measured: 0.1e-6 and 12


def pages_of(path, monkeypatch) -> list[tuple[str, str, Namespaces]]:
    """(title, wikitext, namespaces) of the pages of all namespaces that are no redirects, as the reader finds them."""
    source = WikipediaSource(name="peer", type="wikipedia", path=str(path), namespaces=list(range(-2, 3000)))
    found: list[tuple[str, str, Namespaces]] = []

    def keep(text: str, namespaces: Namespaces, *, title: str, **_):
        found.append((title, text, namespaces))
        return extract("")

    monkeypatch.setattr(wikipedia, "extract", keep)
    reader = wikipedia.WikipediaReader(source)
    for split in reader.splits(str(path), path.stat().st_size, 1 << 40):
        for _ in reader.read(split):
            pass
    return [page for page in found if not is_redirect(page[1])]


@pytest.mark.soak
@pytest.mark.parametrize("name", DUMPS)
def test_no_word_that_a_peer_reads_is_lost(name, shared_data, monkeypatch, soak_cases):
    pages = pages_of(shared_data(f"wiki/{name}"), monkeypatch)
    step = max(len(pages) // soak_cases(20, len(pages) or 1), 1)
    total, classes = 0, Counter()
    for title, source, namespaces in pages[::step]:
        start = time.process_time()
        ours = extract(source, namespaces, title=title)
        assert time.process_time() - start < 0.05 + SECONDS * len(source), title
        why, unknown, count = lost(source, ours, namespaces)
        assert not unknown, (title, unknown)
        total += count
        classes += why
    print(f"{name}: {len(pages[::step])} of {len(pages)} pages, {total} words of the peer, not in ours:")
    for reason, count in classes.most_common():
        print(f"  {reason}: {count}, {100 * count / total:.2f} %")


@pytest.mark.soak
def test_memory_is_bounded_by_the_page(shared_data, monkeypatch, soak_cases):
    pages = pages_of(shared_data("wiki/enwiki-pages-articles-excerpt.xml.bz2"), monkeypatch)
    extract("warm")
    tracemalloc.start()
    for title, source, namespaces in pages[:: max(len(pages) // soak_cases(5, len(pages)), 1)]:
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        extract(source, namespaces, title=title)
        assert tracemalloc.get_traced_memory()[1] - before < 200_000 + BYTES * len(source), title
    tracemalloc.stop()
