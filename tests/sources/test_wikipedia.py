"""Dumps made here and real excerpts: the same records however the file is cut, and damage costs only what it hits."""

import bz2
import gzip
import html
import itertools
import pickle
import re
import tracemalloc
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu_curate.config import WikipediaSource
from gpu_curate.document import MAX_ROWS
from gpu_curate.sources import Record, Reject, Skip
from gpu_curate.sources.bz2_blocks import bz2_blocks
from gpu_curate.sources.wikipedia import WikipediaReader

SITEINFO = """  <siteinfo>
    <sitename>Wikipedia</sitename>
    <base>https://de.wikipedia.org/wiki/Wikipedia:Hauptseite</base>
    <namespaces>
      <namespace key="0" case="first-letter" />
      <namespace key="1" case="first-letter">Diskussion</namespace>
      <namespace key="6" case="first-letter">Datei</namespace>
      <namespace key="14" case="first-letter">Kategorie</namespace>
    </namespaces>
  </siteinfo>
"""


def page(
    number: int,
    text: str | None,
    *,
    title: str | None = None,
    ns: int | None = 0,
    extra: str = "",
    model: str = "wikitext",
) -> str:
    """One page as MediaWiki exports it; `text` None is a self-closing element."""
    title = f"Seite {number}" if title is None else title
    body = (
        '<text bytes="0" xml:space="preserve" />'
        if text is None
        else f'<text xml:space="preserve">{html.escape(text)}</text>'
    )
    return (
        f"  <page>\n    <title>{html.escape(title)}</title>\n"
        + (f"    <ns>{ns}</ns>\n" if ns is not None else "")
        + f"    <id>{number}</id>\n{extra}    <revision>\n      <id>{number + 900}</id>\n"
        f"      <timestamp>2024-01-{number % 28 + 1:02}T00:00:00Z</timestamp>\n      <model>{model}</model>\n"
        f"      {body}\n    </revision>\n  </page>\n"
    )


def dump(pages: list[str], version: str = "0.11", siteinfo: str = SITEINFO) -> str:
    head = f'<mediawiki xmlns="http://www.mediawiki.org/xml/export-{version}/" version="{version}" xml:lang="de">\n'
    return head + siteinfo + "".join(pages) + "</mediawiki>\n"


def multistream(pages: list[str], per_stream: int) -> bytes:
    """As Wikimedia writes it: the head, groups of pages and the end tag, each a stream of its own."""
    head, _, tail = dump([]).partition("</mediawiki>")
    groups = ["".join(pages[i : i + per_stream]) for i in range(0, len(pages), per_stream)]
    return b"".join(bz2.compress(part.encode()) for part in [head, *groups, "</mediawiki>" + tail])


PAGES = [
    page(1, "'''Der Turm''' steht.\n[[Datei:A.jpg|mini|Ein Turm]]"),
    page(2, "#WEITERLEITUNG [[Seite 1]]", extra='    <redirect title="Seite 1" />\n'),
    page(3, "Diskussion", title="Diskussion:Seite 1", ns=1),
    page(4, None),
    page(5, "Größe & <b>Weite</b> <ref>x</ref>{{foo}}."),
    page(6, "{}", model="json"),
    page(7, "{{Infobox}}"),
    page(8, "   \n"),
    *[page(n, f"Absatz {n} mit [[Seite {n - 1}|Text]].\n\n" * (n % 7 + 1)) for n in range(9, 120)],
]
REASONS = Counter({"redirect": 1, "namespace:1": 1, "empty_page": 2, "model:json": 1})


def reader(**options) -> WikipediaReader:
    return WikipediaReader(WikipediaSource(name="w", type="wikipedia", path="x", **options))


def read(path: Path, max_bytes: int = 1 << 40, **options) -> list:
    own = reader(**options)
    splits = own.splits(str(path), path.stat().st_size, max_bytes)
    return [item for split in splits for item in own.read(split)]


def write(path: Path, data: str | bytes) -> Path:
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


def texts(items: list) -> list[str]:
    return [item.text for item in items if isinstance(item, Record)]


def rejects(items: list) -> list[Reject]:
    return [item for item in items if isinstance(item, Reject)]


FORMS = {
    "wiki-pages-articles.xml": lambda: dump(PAGES).encode(),
    "wiki-pages-articles.xml.bz2": lambda: bz2.compress(dump(PAGES).encode()),
    "wiki-pages-articles-multistream.xml.bz2": lambda: multistream(PAGES, 10),
    "wiki-pages-articles.xml.gz": lambda: gzip.compress(dump(PAGES).encode()),
}


@pytest.mark.parametrize("name", FORMS)
def test_every_form_gives_the_same_records(tmp_path, name):
    items = read(write(tmp_path / name, FORMS[name]()))
    assert not rejects(items)
    assert Counter(i.reason for i in items if isinstance(i, Skip)) == REASONS
    got = texts(items)
    assert got[:3] == ["Der Turm steht.", "Größe & Weite.", ""]
    assert len(got) == 3 + 111
    rows = [item.row for item in items if isinstance(item, Record)]
    assert rows == sorted(set(rows))
    assert rows[-1] < MAX_ROWS


def test_columns_of_a_record(tmp_path):
    items = read(write(tmp_path / "w.xml", dump([page(7, "a {{x}} b", title="Größe? & Maß/A")])))
    assert items == [
        Record(
            items[0].row,
            "a b",
            {
                "title": "Größe? & Maß/A",
                "page_id": "7",
                "url": "https://de.wikipedia.org/wiki/Gr%C3%B6%C3%9Fe%3F_%26_Ma%C3%9F/A",
                "timestamp": "2024-01-08T00:00:00Z",
                "template_gaps": 1,
            },
            "a {{x}} b",
        )
    ]


@pytest.mark.parametrize("name", list(FORMS)[:3])
@pytest.mark.parametrize("max_bytes", [60, 499, 2003])
def test_records_are_the_same_whatever_the_splits(tmp_path, name, max_bytes):
    path = write(tmp_path / name, FORMS[name]())
    splits = reader().splits(str(path), path.stat().st_size, max_bytes)
    assert len(splits) > 1
    assert splits[0].start == 0
    assert splits[-1].stop == path.stat().st_size
    assert all(a.stop == b.start for a, b in itertools.pairwise(splits))
    assert read(path, max_bytes) == read(path)
    for split in splits:  # a row tells the range it came from
        rows = [item.row for item in reader().read(split) if isinstance(item, Record)]
        assert all(row >= split.first_row for row in rows)


def test_multistream_file_is_read_by_stream_without_its_index(tmp_path):
    path = write(tmp_path / "w-multistream.xml.bz2", multistream(PAGES, 10))
    own = reader()
    counts = [sum(1 for _ in own.read(split)) for split in own.splits(str(path), path.stat().st_size, 2000)]
    assert sum(counts) == len(PAGES)
    assert sum(c > 0 for c in counts) > 1
    assert max(counts) < len(PAGES)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(1, 3000), max_size=12), st.integers(50, 5000))
def test_streams_may_cut_a_page_or_a_tag_anywhere(tmp_path_factory, sizes, max_bytes):
    """As pbzip2 writes: streams of a fixed number of bytes, whatever they hold."""
    source = dump(PAGES[:40]).encode()
    pieces, at = [], 0
    for size in sizes:
        pieces.append(source[at : at + size])
        at += size
    pieces.append(source[at:])
    path = write(tmp_path_factory.mktemp("w") / "w.xml.bz2", b"".join(bz2.compress(p) for p in pieces))
    whole = read(path)
    assert texts(whole) == texts(read(write(path.with_name("p.xml"), source)))
    assert not rejects(whole)
    assert read(path, max_bytes) == whole


def test_tag_cut_by_streams_of_one_byte(tmp_path):
    source = dump([page(1, "eins"), page(2, "zwei")]).encode()
    at = source.index(b"<page>", source.index(b"<page>") + 1)
    pieces = [source[:at], *(source[i : i + 1] for i in range(at, at + 9)), source[at + 9 :]]
    path = write(tmp_path / "w.xml.bz2", b"".join(map(bz2.compress, pieces)))
    assert texts(read(path)) == ["eins", "zwei"]
    assert read(path, 60) == read(path)


def test_blocks_of_one_stream_are_found_at_any_bit(tmp_path):
    # level 1 makes blocks of 100 kB; they begin at arbitrary bits
    source = "".join(f"{n} {hash((n, 1)) & 0xFFFFFF:x}\n" for n in range(60_000)).encode()
    path = write(tmp_path / "b.bz2", bz2.compress(source, 1))
    with path.open("rb") as f:
        blocks = list(bz2_blocks(f, 0))
    assert len(blocks) > 5
    assert not any(b.problem for b in blocks)
    assert b"".join(b.data for b in blocks) == source
    for block in blocks[1:]:  # a range that begins with a block begins with that block
        with path.open("rb") as f:
            f.seek(block.origin)
            assert next(bz2_blocks(f, block.origin)) == block
            f.seek(block.origin + 1)
            assert next(bz2_blocks(f, block.origin + 1), None) != block


@pytest.mark.parametrize("level", [1, 9])
def test_single_stream_is_read_in_parallel(tmp_path, level):
    pages = [page(n, f"Absatz {n}: " + " ".join(str(n * k % 9973) for k in range(400))) for n in range(300)]
    path = write(tmp_path / "w.xml.bz2", bz2.compress(dump(pages).encode(), level))
    own = reader()
    counts = [sum(1 for _ in own.read(split)) for split in own.splits(str(path), path.stat().st_size, 100_000)]
    assert sum(counts) == 300
    assert sum(c > 0 for c in counts) > 2 or level == 9
    assert read(path, 100_000) == read(path)


@pytest.mark.parametrize("version", ["0.10", "0.11"])
def test_schema_versions(tmp_path, version):
    slots = page(1, "Text.")
    if version == "0.11":  # multi-content revisions name where a text comes from
        slots = slots.replace("<model>", "<origin>901</origin>\n      <model>")
    assert texts(read(write(tmp_path / "w.xml", dump([slots], version)))) == ["Text."]


def test_namespaces_kept_are_chosen(tmp_path):
    path = write(tmp_path / "w.xml", dump(PAGES[:4]))
    assert texts(read(path, namespaces=[1])) == ["Diskussion"]
    assert [i.reason for i in read(path, namespaces=[1]) if isinstance(i, Skip)] == ["namespace:0"] * 3


def test_namespace_is_told_by_the_title_where_ns_is_missing(tmp_path):
    pages = [page(1, "a", ns=None), page(2, "b", title="Kategorie:X", ns=None)]
    items = read(write(tmp_path / "w.xml", dump(pages)))
    assert texts(items) == ["a"]
    assert items[1] == Skip("namespace:14")


def test_redirect_without_its_element_is_told_by_its_text(tmp_path):
    assert read(write(tmp_path / "w.xml", dump([page(1, "#REDIRECT [[Bar]]", title="Foo")]))) == [Skip("redirect")]


def test_last_revision_is_read(tmp_path):
    two = page(1, "alt").replace("</revision>", "</revision>\n<revision><text>neu</text></revision>", 1)
    assert texts(read(write(tmp_path / "w.xml", dump([two])))) == ["neu"]


def test_tables_are_kept_on_request(tmp_path):
    path = write(tmp_path / "w.xml", dump([page(1, "x\n{|\n| a || b\n|}")]))
    assert texts(read(path)) == ["x"]
    assert texts(read(path, keep_tables=True)) == ["x\na\tb"]


@pytest.mark.parametrize("name", list(FORMS))
@pytest.mark.parametrize("lost", [40, 300])
def test_truncated_file_is_kept_up_to_the_cut(tmp_path, name, lost):
    whole = FORMS[name]()
    path = write(tmp_path / name, whole[:-lost])
    items = read(path)
    kept = texts(items)
    full = texts(read(write(tmp_path / ("full-" + name), whole)))
    assert kept == full[: len(kept)]
    assert [r.reason.startswith("truncated at offset") for r in rejects(items)] == [True]
    if name.endswith(".xml"):
        assert len(full) - len(kept) == 1
        assert rejects(items)[0].offset == len(whole) - lost
    if "multistream" in name:
        assert len(full) - len(kept) <= 10
    assert read(path, 1000) == items


def test_file_cut_between_pages_is_truncated_too(tmp_path):
    source = dump(PAGES).partition("</mediawiki>")[0]
    for path in (write(tmp_path / "a.xml", source), write(tmp_path / "a.xml.bz2", bz2.compress(source.encode()))):
        items = read(path)
        assert len(texts(items)) == 114
        assert "truncated at offset" in rejects(items)[0].reason
        assert read(path, 999) == items


def test_excerpt_without_a_root_is_whole(tmp_path):
    items = read(write(tmp_path / "w.xml", "".join(PAGES)))
    assert len(texts(items)) == 114
    assert not rejects(items)


def test_bad_page_costs_only_itself(tmp_path):
    good = [page(n, f"gut {n}") for n in range(4)]
    bad = {
        "stray tag": page(50, "x").replace("</text>", "<b></text>"),
        "entity": page(51, "x").replace(">x<", ">&lol9;<"),
        "control": page(52, "x").replace(">x<", ">\x01<"),
        "no end": page(53, "x").replace("</page>", ""),
        "no title": page(54, "x", title=""),
        "bad number": page(55, "x").replace("<ns>0</ns>", "<ns>null</ns>"),
    }
    source = b"".join(part.encode() for pair in zip(good, list(bad.values())[:4], strict=True) for part in pair)
    source += b"".join(p.encode() for p in list(bad.values())[4:])
    source += page(56, "x").encode().replace(b">x<", b">\xff<") + page(57, "Ende").encode()
    path = write(tmp_path / "w.xml", dump([]).partition("</mediawiki>")[0].encode() + source + b"</mediawiki>")
    items = read(path)
    assert texts(items) == ["gut 0", "gut 1", "gut 2", "gut 3", "Ende"]
    assert len(rejects(items)) == 7
    for reject in rejects(items):
        assert path.read_bytes()[reject.offset :].startswith(reject.head)
        assert reject.head.startswith(b"<page>")
        assert len(reject.head) <= 200
    assert read(path, 100) == items


def test_entities_cannot_be_declared(tmp_path):
    bomb = '<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]>\n'
    inside = page(1, "x").replace(">x<", ">" + bomb + "&b;<")
    items = read(write(tmp_path / "w.xml", bomb + dump([page(1, "x").replace(">x<", ">&b;<"), inside, page(2, "gut")])))
    assert texts(items) == ["gut"]
    assert len(rejects(items)) == 2


def test_deep_xml_is_no_problem(tmp_path):
    deep = page(1, "x").replace(">x<", ">" + "<a>" * 100_000 + "</a>" * 100_000 + "<")
    items = read(write(tmp_path / "w.xml", dump([deep, page(2, "gut")])))
    assert texts(items)[-1] == "gut"


def test_page_longer_than_the_limit_is_rejected(tmp_path):
    path = write(tmp_path / "w.xml", dump([page(1, "x" * 3_000_000), page(2, "gut")]))
    items = read(path, max_page_bytes=1_500_000)
    assert texts(items) == ["gut"]
    assert "max_page_bytes=1500000" in rejects(items)[0].reason
    endless = write(tmp_path / "e.xml", dump([]).replace("</mediawiki>", "<page>" + "x" * 3_000_000) + page(3, "gut"))
    assert texts(read(endless, max_page_bytes=1_500_000)) == ["gut"]


def test_corrupt_block_costs_its_pages_only(tmp_path):
    whole = multistream(PAGES, 10)
    streams = [m.start() for m in re.finditer(b"BZh91AY&SY", whole)]
    damaged = bytearray(whole)
    damaged[streams[5] + 60] ^= 0xFF
    path = write(tmp_path / "w.xml.bz2", bytes(damaged))
    items = read(path)
    full = texts(read(write(tmp_path / "f.xml.bz2", whole)))
    assert [r.reason for r in rejects(items)] == [f"corrupt bz2 block at byte {streams[5] + 4}"]
    assert texts(items) == [t for t in full if t in texts(items)]
    assert len(full) - len(texts(items)) == 10
    assert read(path, 500) == items


@pytest.mark.parametrize(("name", "data"), [("w.xml", b"<html>no dump</html>"), ("w.xml.bz2", b"\x00" * 5000)])
def test_file_that_is_no_dump_is_rejected(tmp_path, name, data):
    items = read(write(tmp_path / name, data))
    assert [type(i) for i in items] == [Reject]
    assert "not a MediaWiki XML dump" in items[0].reason


@pytest.mark.parametrize("name", ["w.xml", "w.xml.bz2"])
def test_empty_file_gives_nothing(tmp_path, name):
    assert read(write(tmp_path / name, b"")) == []
    assert len(reader().splits(str(tmp_path / name), 0, 1000)) == 1


def test_long_garbage_in_a_bz2_file_is_not_kept_in_memory(tmp_path):
    path = write(
        tmp_path / "w.xml.bz2", bz2.compress(dump(PAGES[:3]).encode()) + b"\0" * (9 << 20) + multistream(PAGES, 9)
    )
    assert len(texts(read(path))) == 1 + 114


def test_more_pages_in_a_block_than_rows_are_rejected_not_numbered_twice(tmp_path, monkeypatch):
    pages = [page(1, "gleich", title="T")] * 3000
    path = write(tmp_path / "w.xml.bz2", multistream(pages, 1500))
    monkeypatch.setattr("gpu_curate.sources.wikipedia.rows_per_byte", lambda size: 1)
    items = read(path)
    rows = [i.row for i in items if isinstance(i, Record)]
    assert len(rows) == len(set(rows))
    assert len(items) == 3000
    assert all("more pages in a bz2 block" in r.reason for r in rejects(items))
    assert rejects(items)
    monkeypatch.undo()
    rows = [i.row for i in read(path)]
    assert len(set(rows)) == 3000


@pytest.mark.parametrize("name", list(FORMS)[:2])
def test_memory_follows_the_page_not_the_file(tmp_path, name):
    pages = [page(n, f"Absatz {n} {n * 7919 % 100_003}. " * 1500) for n in range(300)]
    data = dump(pages).encode()
    data = bz2.compress(data) if name.endswith(".bz2") else data
    path = write(tmp_path / name, data)
    own = reader()
    split = own.splits(str(path), path.stat().st_size, 1 << 40)[0]
    tracemalloc.start()
    try:
        count = sum(1 for _ in own.read(split))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert count == 300
    assert peak < 9 << 20  # of 9.6 MB of XML; a chunk, a block, its bits and the rules of wikitext


def test_remote_file_is_read_by_ranges(tmp_path):
    fsspec = pytest.importorskip("fsspec")
    data = multistream(PAGES, 10)
    with fsspec.open("memory://gpu_curate/w.xml.bz2", "wb") as f:
        f.write(data)
    own, path = reader(), "memory://gpu_curate/w.xml.bz2"
    items = [item for split in own.splits(path, len(data), 2003) for item in own.read(split)]
    assert items == read(write(tmp_path / "w.xml.bz2", data))


def test_reader_is_picklable(tmp_path):
    path = write(tmp_path / "w.xml", dump(PAGES))
    own = pickle.loads(pickle.dumps(reader()))
    assert len(list(own.read(own.splits(str(path), path.stat().st_size, 1 << 30)[0]))) == len(PAGES)


REAL = {  # records, and what is skipped
    "wiki/enwiki-pages-articles-excerpt.xml.bz2": (106, {"redirect": 99, "namespace:4": 1}),
    "wiki/enwiki-table-markup.xml.bz2": (5, {}),
    "wiki/fowiki-dump.xml.bz2": (1, {"namespace:8": 1}),
    "wiki/tinywiki-latest-pages-articles.xml": (7, {"redirect": 1}),
    "wiki/ltgwiki-pages-articles.xml.bz2": (
        903,
        {"redirect": 147, "namespace:4": 28, "namespace:8": 12, "namespace:10": 347, "namespace:14": 539, "namespace:828": 28},
    ),
    "wiki/aawiki-20260101-pages-meta-current.xml.bz2": (
        0,
        {"redirect": 1, "empty_page": 1, "namespace:1": 2, "namespace:2": 174, "namespace:3": 162, "namespace:4": 7}
        | {"namespace:8": 107, "namespace:10": 24, "namespace:14": 29},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REAL)
def test_real_dumps(shared_data, name):
    path = shared_data(name)
    items = read(path)
    count, skipped = REAL[name]
    assert not rejects(items)
    assert Counter(i.reason for i in items if isinstance(i, Skip)) == skipped
    got = texts(items)
    assert len(got) == count
    for mark in ("{{", "}}", "[[", "|thumb", "style=", "<ref", "'''", "{|", "&nbsp;", "&amp;"):
        # the Latgalian article on HTML shows a tag with an attribute, as code
        shown = [i.columns["title"] for i in items if isinstance(i, Record) and mark in i.text]
        assert shown in ([], ["HTML"] if mark == "style=" else []), mark
    if path.stat().st_size < 1 << 20:
        assert read(path, 400_000) == items


@pytest.mark.parametrize(
    ("dbname", "base", "xml_lang", "shown"),
    [
        ("zhwiki", "https://zh.wikipedia.org/wiki/Main", "zh", "a"),
        ("zhwiktionary", "x", "de", "a"),
        (None, "https://zh.wikivoyage.org/wiki/Main", "de", "a"),
        (None, "http://wiki.example.org/Main", "zh", "a"),
        ("gan_wiki", "http://wiki.example.org/Main", "zh", "a"),
        ("commonswiki", "https://commons.wikimedia.org/wiki/Main", "en", "-{zh-hans:a;zh-hant:b}-"),
        ("enwiki", "https://en.wikipedia.org/wiki/Main_Page", "en", "-{zh-hans:a;zh-hant:b}-"),
        ("zh_yuewiki", "https://zh-yue.wikipedia.org/wiki/Main", "yue", "-{zh-hans:a;zh-hant:b}-"),
        (None, "x", None, "a"),
    ],
)
def test_variants_by_the_language_that_the_dump_names(tmp_path, dbname, base, xml_lang, shown):
    name = f"<dbname>{dbname}</dbname>" if dbname else ""
    siteinfo = f"  <siteinfo>\n    <sitename>W</sitename>\n    {name}<base>{base}</base>\n  </siteinfo>\n"
    text = dump([page(1, "-{zh-hans:a;zh-hant:b}-")], siteinfo=siteinfo)
    text = text.replace('xml:lang="de"', f'xml:lang="{xml_lang}"' if xml_lang else "")
    assert texts(read(write(tmp_path / "w.xml", text))) == [shown]
