"""MediaWiki XML dumps: pages-articles, multistream or not, .bz2 or plain, schema 0.10 and 0.11, any language.

The file is never parsed as one document. Pages are found by their `<page>` tags ("<" is always escaped inside) and each
is parsed on its own, so that damage costs the page it is in, no entity can be declared, and memory is one page.

A bzip2 file is a row of blocks of at most 900 kB that decompress independently; each starts with the 48 bits of pi at
any bit position. Finding those bits and wrapping a block as a stream of its own (what `bzip2recover` does) lets several
workers read any .bz2 file, with one stream or many, from any byte on, with the standard library and no index. The index
of a multistream dump is therefore not needed and not read.

Source: https://www.mediawiki.org/wiki/Help:Export, export-0.10.xsd, export-0.11.xsd; bzip2 format specification 0.1,
sections 2.2.1 to 2.2.4 (https://github.com/dsnet/compress/blob/master/doc/bzip2-format.pdf).
"""

from __future__ import annotations

import io
import itertools
import re
from collections.abc import Iterator
from typing import ClassVar, Literal, NamedTuple
from urllib.parse import quote
from xml.etree import ElementTree

from pydantic import Field

from gpu_curate.guard import refusal
from gpu_curate.sources import Record, Reject, Skip, Split
from gpu_curate.sources.bz2_blocks import Chunk, bz2_blocks, rows_per_byte, text_of
from gpu_curate.sources.files import compression_of, open_raw, open_stream
from gpu_curate.sources.sections import CompressedSource
from gpu_curate.text.wikitext import extract, is_redirect
from gpu_curate.text.wikitext.tables import Namespaces, language_code

HEAD_BYTES = 200
_HEADER_BYTES = 4 << 20  # siteinfo lies within so much decompressed text
# extracted text per byte read, measured on the English and Latgalian excerpts: 1.5 to 1.7 of .bz2, 0.3 to 0.5 of XML
_TEXT_PER_BZ2_BYTE, _TEXT_PER_XML_BYTE = 2, 0.5
_PAGE_BYTES_LOG2 = 3  # "<page></page>" is longer than 8 bytes, so offset >> 3 is unique


class WikipediaSource(CompressedSource):
    """A MediaWiki XML dump (pages-articles, multistream or not, .bz2 or plain)."""

    gives: ClassVar[tuple[str, ...]] = ("title", "page_id", "url", "timestamp", "template_gaps")

    type: Literal["wikipedia"]
    namespaces: list[int] = Field([0], description="namespace numbers kept")
    keep_tables: bool = Field(False, description="keep the cells of wikitext tables as text")
    max_page_bytes: int = Field(32 << 20, gt=0, description="a page with more bytes of XML is rejected")


class SiteInfo(NamedTuple):
    """What the head of a dump says of its wiki."""

    base: str | None  # URL of pages, up to the title
    namespaces: Namespaces  # and the language of the wiki
    has_root: bool  # there is a <mediawiki> that must be closed at the end
    is_dump: bool  # it looks like one, or cannot be read to tell
    is_wide: bool  # it looks like one in UTF-16 or UTF-32


class _Page(NamedTuple):
    """A page that was found and not yet parsed."""

    row: int
    offset: int
    source: bytes
    site: SiteInfo


class WikipediaReader:
    """Reads .xml dumps, plain or compressed; .xml.bz2 and plain .xml by several workers.

    Rows: a row grows with the place of the page and is known without counting those before it, so that any range of the
    file can be read alone. In XML it is the byte offset of the page / 8; in .bz2 it is (byte offset of the block that the
    page begins in) * k + (number of the page in the block), where k is the largest power of two that keeps every row
    under 2^36. A page takes more room than one row as long as a block holds fewer than k pages a compressed byte: in a
    file of up to 16 MiB always, in one of 32 GiB (k = 2) as long as pages are not copies of each other; a page beyond
    that is rejected, not numbered twice. Largest file: 64 GiB of .bz2, 512 GiB of XML.

    Skipped, by reason: `redirect`, `namespace:N`, `empty_page`, `model:NAME` (a page that is not wikitext). Of several
    revisions the last one in the file is read. Offsets in rejects count bytes of the file as it lies there if it is
    plain or .bz2 (for a page of a .bz2: of its block), of decompressed text otherwise.
    Columns: title, page_id, url, timestamp, template_gaps (templates dropped inside a sentence).
    Memory: the largest page, at most `max_page_bytes` and a chunk.
    """

    suffixes: tuple[str, ...] = (".xml",)

    def __init__(self, source: WikipediaSource):
        self.source = source
        self._sites: dict[str, SiteInfo] = {}
        self._compressions: dict[str, str] = {}

    def columns(self, path: str) -> tuple[list[str], None]:
        return ["title", "page_id", "url", "timestamp", "template_gaps"], None

    def splits(self, path: str, size: int, max_bytes: int) -> list[Split]:
        """Ranges of bytes, of about `max_bytes` of extracted text. Reads what tells the compression."""
        suffix = self._compression(path)
        if suffix not in ("", ".bz2"):
            return [Split(path, 0, -1, 0, size * _TEXT_PER_BZ2_BYTE)]
        per_byte = _TEXT_PER_BZ2_BYTE if suffix else _TEXT_PER_XML_BYTE
        width = max(int(max_bytes / per_byte), 1)
        count = max(-(-size // width), 1)
        cuts = [size * i // count for i in range(count + 1)]
        slots = rows_per_byte(size)
        return [
            Split(path, a, b, a * slots if suffix else a >> _PAGE_BYTES_LOG2, int((b - a) * per_byte))
            for a, b in itertools.pairwise(cuts)
        ]

    def read(self, split: Split, skip: int = 0) -> Iterator[Record | Reject | Skip]:
        for number, found in enumerate(self._read(split)):
            if number >= skip:  # a page is parsed only here
                yield self._page(*found) if isinstance(found, _Page) else found

    def _read(self, split: Split) -> Iterator[_Page | Reject]:
        suffix = self._compression(split.path)
        options = self.source.storage_options
        site = self._site(split.path)
        if suffix not in ("", ".bz2"):
            with open_stream(split.path, options, self.source.max_window_bytes) as f:
                yield from self._pages(text_of(f, 0, None), split, None, site)
            return
        with open_raw(split.path, options) as f:
            size = f.seek(0, io.SEEK_END)
            stop = size if split.stop < 0 else split.stop
            if split.start >= stop:
                return
            f.seek(split.start)
            chunks = bz2_blocks(f, split.start) if suffix else text_of(f, split.start, stop)
            yield from self._pages(chunks, split._replace(stop=stop), rows_per_byte(size) if suffix else None, site)

    def _compression(self, path: str) -> str:
        """What a file is compressed by, asked once a file and reader."""
        if path not in self._compressions:
            self._compressions[path] = compression_of(path)
        return self._compressions[path]

    def _pages(
        self, chunks: Iterator[Chunk], split: Split, slots: int | None, site: SiteInfo
    ) -> Iterator[_Page | Reject]:
        """The pages that begin in chunks before split.stop; later chunks are read only to end the last of them."""
        stop = split.stop if split.stop >= 0 else None
        scanner = _PageScanner(slots, stop, self.source.max_page_bytes)
        if split.start == 0 and site.is_wide:
            yield Reject(
                None, 0, "a dump in UTF-16 or UTF-32, which MediaWiki does not write: iconv -t UTF-8 (with -f) first"
            )
        elif split.start == 0 and not site.is_dump:
            yield Reject(None, 0, "not a MediaWiki XML dump: neither <mediawiki> nor <page> at its head")
        last = Chunk(-1, b"", "none yet")
        tail = b""
        for chunk in chunks:
            last = chunk
            own = stop is None or chunk.origin < stop
            if chunk.problem:
                yield from scanner.lose(chunk)
                if own:
                    yield Reject(None, chunk.origin, chunk.problem, cut=True)
            else:
                tail = (tail + chunk.data)[-64:]
                for page in scanner.feed(chunk):
                    yield page if isinstance(page, Reject) else _Page(*page, site)
            if not own and not scanner.pending:
                return
        holds_end = not last.problem and (stop is None or last.origin < stop)
        if holds_end and (scanner.open or (site.has_root and not _closes(tail))):
            offset = last.origin if slots else last.origin + len(last.data)
            yield Reject(None, offset, f"truncated at offset {offset}: the dump does not end in </mediawiki>", cut=True)

    def _site(self, path: str) -> SiteInfo:
        """The head of the dump, read once a file and reader."""
        if path not in self._sites:
            suffix, options = self._compression(path), self.source.storage_options
            if suffix in ("", ".bz2"):
                with open_raw(path, options) as f:
                    self._sites[path] = _site_info(bz2_blocks(f, 0) if suffix else text_of(f, 0, None))
            else:
                with open_stream(path, options, self.source.max_window_bytes) as f:
                    self._sites[path] = _site_info(text_of(f, 0, None))
        return self._sites[path]

    def _page(self, row: int, offset: int, source: bytes, site: SiteInfo) -> Record | Reject | Skip:
        try:
            page = ElementTree.fromstring(source)
            title = page.findtext("title") or ""
            number = page.findtext("ns")
            namespace = site.namespaces.number(title) if number is None else int(number)
        except (ElementTree.ParseError, ValueError) as e:
            return Reject(row, offset, f"page is not well-formed: {e}", source[:HEAD_BYTES])
        if not title:
            return Reject(row, offset, "page without a title", source[:HEAD_BYTES])
        if namespace not in self.source.namespaces:
            return Skip(f"namespace:{namespace}")
        if page.find("redirect") is not None:
            return Skip("redirect")
        revision = page.find("revision[last()]")
        wikitext = "" if revision is None else revision.findtext("text") or ""
        if revision is None or not wikitext.strip():
            return Skip("empty_page")
        model = revision.findtext("model", "wikitext")
        if model != "wikitext":
            return Skip(f"model:{model}")
        try:
            if is_redirect(wikitext):
                return Skip("redirect")
            extracted = extract(wikitext, site.namespaces, title=title, keep_tables=self.source.keep_tables)
        except BaseException as e:
            return Reject(row, offset, f"wikitext cannot be extracted: {refusal(e)}", source[:HEAD_BYTES])
        columns = {
            "title": title,
            "page_id": page.findtext("id"),
            "url": site.base and site.base + quote(title.replace(" ", "_"), safe=";@$!*(),/~:"),  # as wfUrlencode
            "timestamp": revision.findtext("timestamp"),
            "template_gaps": len(extracted.gaps),
        }
        return Record(row, extracted.text, columns, wikitext)


# ------------------------------------------------------------------------------------------------------------- pages


class _PageScanner:
    """Finds `<page>...</page>` in chunks of text that may cut it anywhere."""

    def __init__(self, slots: int | None, stop: int | None, max_page_bytes: int):
        self._slots, self._stop, self._max = slots, stop, max_page_bytes
        self._buffer = b""
        self._at = 0  # what lies before in the buffer is done; the open page, if there is one, begins here
        self._scanned = 0  # no tag begins between _at and here but the open page's own
        self._segments: list[list[int]] = []  # of the buffer: where it begins, origin, room, pages that began in it
        self._page: tuple[int | None, int] | None = None  # row and offset of the open page

    @property
    def open(self) -> bool:
        """A page has begun and not ended."""
        return self._page is not None

    @property
    def pending(self) -> bool:
        """The next chunk may end a page that began before `stop`."""
        return self.open or (self._at < len(self._buffer) and self._owned(self._segments[0][1]))

    def _owned(self, origin: int) -> bool:
        return self._stop is None or origin < self._stop

    def lose(self, chunk: Chunk) -> Iterator[Reject]:
        """A chunk is missing: so is the page that runs into it. Truncation is reported once, by the file's last range."""
        if self._page is not None and not chunk.problem.startswith("truncated"):
            head = self._buffer[self._at : self._at + HEAD_BYTES]
            yield Reject(*self._page, f"page runs into damage at byte {chunk.origin}", head, cut=True)
        self._at = self._scanned = len(self._buffer)
        self._page = None

    def feed(self, chunk: Chunk) -> Iterator[tuple[int, int, bytes] | Reject]:
        """(row, offset, source) of the pages that end in `chunk`."""
        self._compact(chunk)
        buffer = self._buffer
        while True:
            if self._page is None:
                start = buffer.find(b"<page>", self._scanned)
                self._at = self._scanned = start if start >= 0 else _tail_start(buffer, self._scanned)
                if start < 0:
                    return
                self._page = self._place(start)
                if self._page is None:  # it belongs to the next range
                    self._at = self._scanned = len(buffer)
                    return
                self._scanned = start + 6
            start = self._at
            end = buffer.find(b"</page>", self._scanned)
            next_start = buffer.find(b"<page>", self._scanned, end if end >= 0 else len(buffer))
            if next_start >= 0:
                problem, self._at = "page does not end before the next begins", next_start
            elif (end if end >= 0 else len(buffer)) - start > self._max:
                problem, self._at = f"page is longer than max_page_bytes={self._max}", end if end >= 0 else len(buffer)
            elif end < 0:
                self._scanned = max(len(buffer) - 6, self._scanned)
                return
            else:
                problem, self._at = "", end + 7
            row, offset = self._page
            if row is None and not problem:
                problem = "more pages in a bz2 block than it has rows: recompress the dump in larger blocks"
            if problem:
                yield Reject(row, offset, problem, buffer[start : start + HEAD_BYTES])
            else:
                yield row, offset, buffer[start : self._at]  # type: ignore[misc]  # with a row: there is no problem
            self._page, self._scanned = None, self._at

    def _compact(self, chunk: Chunk) -> None:
        """Append a chunk, and forget what is done."""
        done = self._at
        for segment in self._segments:
            segment[0] -= done
        self._segments.append([len(self._buffer) - done, chunk.origin, chunk.room, 0])
        while len(self._segments) > 1 and self._segments[1][0] <= 0:
            del self._segments[0]
        self._buffer = self._buffer[done:] + chunk.data
        self._at, self._scanned = 0, self._scanned - done

    def _place(self, at: int) -> tuple[int | None, int] | None:
        """Row and offset of the page that begins in the buffer at `at`; None if it is not of this range."""
        while len(self._segments) > 1 and self._segments[1][0] <= at:
            del self._segments[0]
        segment = self._segments[0]
        start, origin, room, number = segment
        if not self._owned(origin):
            return None
        segment[3] += 1
        if self._slots is None:
            offset = origin + at - start
            return offset >> _PAGE_BYTES_LOG2, offset
        return origin * self._slots + number if number < room * self._slots else None, origin


def _tail_start(buffer: bytes, start: int) -> int:
    """Where a `<page>` begins that the end of the buffer cuts, at `start` or later; else the end of the buffer."""
    return next((len(buffer) - n for n in range(5, 0, -1) if buffer.endswith(b"<page>"[:n], start)), len(buffer))


def _closes(tail: bytes) -> bool:
    """True if the dump ends as it should; of a range shorter than the end tag, if that is a part of it."""
    end = tail.rstrip()
    return end.endswith(b"</mediawiki>") or b"</mediawiki>".endswith(end)


# ---------------------------------------------------------------------------------------------------------- siteinfo

_NAMESPACE = re.compile(r'<namespace key="(-?\d+)"[^>]*>([^<]*)</namespace>')


def _site_info(chunks: Iterator[Chunk]) -> SiteInfo:
    head, readable = b"", True
    for chunk in chunks:
        head += chunk.data
        readable = readable and not chunk.problem
        if len(head) > _HEADER_BYTES or b"<page>" in head or b"</siteinfo>" in head:
            break
    is_dump = b"<mediawiki" in head or b"<page>" in head or not readable
    narrow = head[: 1 << 16].replace(b"\0", b"")
    is_wide = not is_dump and (b"<mediawiki" in narrow or b"<page>" in narrow)
    head = head.partition(b"<page>")[0]
    base, names, database = None, [], ""
    start, end = head.find(b"<siteinfo>"), head.find(b"</siteinfo>")
    if 0 <= start < end:
        try:
            info = ElementTree.fromstring(head[start : end + 11])
        except ElementTree.ParseError:
            pass  # the namespaces of every wiki are known by their English names and aliases
        else:
            main_page = info.findtext("base")
            database = info.findtext("dbname") or ""
            base = main_page and main_page.rpartition("/")[0] + "/"
            for e in info.iterfind("namespaces/namespace"):
                if re.fullmatch(r"-?\d+", e.get("key", "")):
                    names.append((int(e.get("key", "")), e.text or ""))
    language = _language(database, base or "", head[: max(start, 0)])
    return SiteInfo(base, Namespaces.of(names, language), b"<mediawiki" in head, is_dump, is_wide)


_DATABASE = re.compile(r"([a-z_]+?)(?:wiki|wiktionary|wikibooks|wikinews|wikiquote|wikisource|wikiversity|wikivoyage)")
_HOST = re.compile(r"https?://([a-z-]+)\.(?:m\.)?(?:wikipedia|wik[a-z]+)\.org/")
_XML_LANGUAGE = re.compile(rb"""<mediawiki\b[^>]*?\sxml:lang=["']([A-Za-z-]+)["']""")


def _language(database: str, base: str, head: bytes) -> str:
    """The language of a wiki: by the name of its database (zh_yuewiki), its host, or the dump's `xml:lang`; "": unknown."""
    in_head = _XML_LANGUAGE.search(head)
    names = (_DATABASE.fullmatch(database), _HOST.match(base))
    codes = [found[1] for found in names if found] + ([in_head[1].decode()] if in_head else [])
    return next((code for code in map(language_code, codes) if code), "")
