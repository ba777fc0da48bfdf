"""Common Crawl and other web archives: WARC, WET and ARC files as documents."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.util
import io
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np

from gpu_curate.errors import ConfigError, InputError, install
from gpu_curate.guard import refusal
from gpu_curate.sources import Record, Reject, Skip, Split, warc_process
from gpu_curate.sources import http as web
from gpu_curate.sources.archive.records import ArchiveRecord, Broken, records
from gpu_curate.sources.files import is_remote, open_raw, open_stream, stem
from gpu_curate.sources.sections import WarcSource
from gpu_curate.text.html import Extraction, Limits, decoded, page_text
from gpu_curate.xxh3 import xxh3_64_intdigest

_HEAD_BYTES = 64 << 10  # of a response, wherein its HTTP header must end
_HTML = {"text/html", "application/xhtml+xml", "application/vnd.wap.xhtml+xml"}
_KINDS = {"warcinfo", "request", "metadata", "revisit", "resource", "continuation", "conversion", "response"}
_MEDIA = {"application", "audio", "font", "image", "message", "model", "multipart", "text", "video"}
_LOOKS_HTML = re.compile(
    rb"\s*(?:<!--.{0,400}?-->\s*)?<(?:!doctype html|html|head|title|body|meta|script)\b", re.I | re.S
)
_RESPONSE = re.compile(r"application/http\s*;\s*msgtype\s*=\s*\"?response\b", re.IGNORECASE)
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://(?:[^/?#@]*@)?(\[[^\]/?#]*\]|[^/?#:]*)(?::(\d*))?([^#]*)")
_CRAWL = re.compile(rb"^isPartOf:[ \t]*([^\r\n]{1,200})", re.IGNORECASE | re.MULTILINE)
_CONTROLS = bytes(c for c in range(32) if c not in b"\t\n\f\r\x1b")  # no text begins with many of them
HEAD_BYTES = 200  # of a rejected record
_MAX_SPLITS = 16  # of a file: the last decompresses all of it to extract a sixteenth


class Content(NamedTuple):
    """The body of a record that may be a document."""

    url: str
    host: str
    body: bytes
    html: bool
    charset: str | None  # as the header says


class Clock(Protocol):
    """Told when the extraction of a page begins and ends."""

    def start(self, row: int) -> None: ...

    def stop(self) -> None: ...


class WarcReader:
    """Reads .warc, .wet and .arc files: HTML and plain-text responses with status 200, and WET's conversion records.

    Columns: url, domain (host name), date (as in the archive), record_id, charset, dump (the crawl, from the file's
    warcinfo) and truncated (the crawler's reason for cutting the page, where there is one).

    A row is the number of the record in its file, whatever its kind; bytes that are no record count as one. Everything
    that is not a document is a Skip under its own reason: warc_request, warc_metadata, warc_revisit, http_status_4xx,
    content_type_image, url_blocklist, domain_blocklist, no_text, ... What is broken is a Reject: a bad record header (a
    bad line in a good header too, though its record is read), a page beyond a limit, the record at which a file is cut.

    A file with more text than a partition is read by several workers: a split is a range of its bytes, and gives the
    records of the gzip members or frames that begin there (of a plain file: that begin there). To number them it reads all
    before, which takes 1.7 % of the time of extraction. So a file over a network is one split, as is one of a source with
    `max_documents` or `max_bytes`, and no file is more than 16.
    Memory: 2 x max_html_bytes, and 8 bytes per line of a blocklist.
    """

    suffixes: tuple[str, ...] = (".warc", ".wet", ".arc")

    def __init__(self, source: WarcSource):
        """
        Raises:
            ConfigError: a blocklist or a library is missing.
        """
        self.source = source
        limits = Limits(source.max_html_bytes, source.max_html_depth, source.max_html_elements)
        self._how = Extraction(source.extractor, source.favor, source.fallback, limits)
        for module in (source.extractor, "chardetng_py", "brotli"):
            if importlib.util.find_spec(module) is None:
                raise ConfigError(f"source {source.name}: {module} is not installed", install("warc"))
        for key in ("url_blocklist", "domain_blocklist"):
            for path in getattr(source, key):
                if not os.path.isfile(path):
                    raise ConfigError(f"source {source.name}: {key}: {path}: no such file")

    def columns(self, path: str) -> tuple[list[str], None]:
        return ["url", "domain", "date", "record_id", "charset", "dump", "truncated"], None

    def splits(self, path: str, size: int, max_bytes: int) -> list[Split]:
        # text per byte of file, measured on Common Crawl: 1 GB of .warc.gz gives some 100 MB, .wet.gz is text alone
        plain = stem(path) == os.path.basename(path).lower()
        ratio = (1.0 if plain else 2.6) if stem(path).endswith(".wet") else (0.03 if plain else 0.1)
        nbytes = int(size * ratio)
        limited = self.source.max_documents is not None or self.source.max_bytes is not None
        count = 1 if is_remote(path) or limited else min(max(-(-nbytes // max_bytes), 1), _MAX_SPLITS)
        starts = [size * k // count for k in range(count)]
        return [Split(path, a, b, 0, nbytes // count) for a, b in zip(starts, [*starts[1:], -1], strict=True)]

    def read(self, split: Split, skip: int = 0) -> Iterator[Record | Reject | Skip]:
        if self.source.timeout_s is not None:
            return warc_process.read(self.source, split, skip)
        return (item for _, item in self.records(split, split.first_row, skip=skip))

    def records(
        self,
        split: Split,
        first_row: int,
        clock: Clock | None = None,
        refused: Mapping[int, str] = {},
        skip: int = 0,
    ) -> Iterator[tuple[int, Record | Reject | Skip]]:
        """What `read` gives, with the row of each, read in this process and without `timeout_s`.

        Args:
            first_row: records before it are passed over.
            clock: started with the row of a page before it is extracted, stopped after.
            refused: rows of pages that are not to be extracted again, and why.
            skip: so many of the split's items are left out, those before `first_row` among them.
        """
        urls = _blocklist(tuple(self.source.url_blocklist), _url_key)
        domains = _blocklist(tuple(self.source.domain_blocklist), _domain_key)
        dump = None
        items = 0  # of the split, up to the record at hand: one for each bad line of its header, and its own
        with open_raw(split.path, self.source.storage_options) as raw:
            for row, record in enumerate(records(raw)):
                if 0 <= split.stop <= record.origin:
                    return
                passed = row < first_row or record.origin < split.start
                bad_lines = [] if isinstance(record, Broken) else record.bad_lines
                if record.origin >= split.start:
                    items += len(bad_lines) + 1
                    passed = passed or items < skip  # one more if its length is wrong
                if isinstance(record, Broken):
                    if not passed and items > skip:
                        yield row, _reject(row, record)
                    continue
                if not passed:
                    for line in bad_lines[max(skip - (items - len(bad_lines) - 1), 0) :]:
                        reason = "bad line in a record header (the record is read)"
                        yield row, Reject(None, record.offset, reason, line[:HEAD_BYTES])
                kind = _kind(record.fields)
                content: Content | Skip | InputError
                if kind == "warcinfo":
                    found = _CRAWL.search(record.read(64 << 10))
                    dump = found[1].decode("utf-8", "replace").strip() if found else dump
                    content = Skip("warc_warcinfo")
                elif passed or kind not in ("response", "conversion"):
                    content = Skip(f"warc_{kind}" if kind in _KINDS else "warc_unknown_type")
                else:
                    content = self._guarded(record, kind, urls, domains, record.read, record.length)
                broken = record.finish()
                if broken is not None and broken.block is not None and kind in ("response", "conversion"):
                    # all of the record is there, whatever its length should be: two items
                    if record.origin >= split.start:
                        items += 1
                    if not passed:
                        block = io.BytesIO(broken.block)
                        content = self._guarded(record, kind, urls, domains, block.read, len(broken.block))
                        if items - 1 > skip:
                            yield row, _note(row, broken, isinstance(content, Content))
                    broken = None
                if passed or items <= skip:
                    continue
                if broken is not None:
                    yield row, _reject(row, broken)
                elif isinstance(content, Skip):
                    yield row, content
                elif isinstance(content, InputError):
                    yield row, Reject(row, record.offset, content.message, record.head[:HEAD_BYTES])
                elif row in refused:
                    yield row, Reject(row, record.offset, refused[row], record.head[:HEAD_BYTES])
                else:
                    if clock is not None and content.html:
                        clock.start(row)
                    item = self._document(row, record, content, dump)
                    if clock is not None:
                        clock.stop()
                    yield row, item

    def _guarded(self, *args: Any) -> Content | Skip | InputError:
        """`_content`, with what a library raises as the reason against the record."""
        try:
            return self._content(*args)
        except BaseException as e:
            return InputError(refusal(e))

    def _content(
        self,
        record: ArchiveRecord,
        kind: str,
        urls: Blocklist,
        domains: Blocklist,
        read: Callable[[int], bytes],
        length: int,
    ) -> Content | Skip | InputError:
        """The body of a record that may be a document, or why it is none. `read` gives its block, of `length` bytes."""
        url = record.fields.get("warc-target-uri", "").strip("<>")
        host = _host(url)
        if len(urls) and _url_key(url) in urls:
            return Skip("url_blocklist")
        if len(domains) and any(parent in domains for parent in _parents(host)):
            return Skip("domain_blocklist")
        limit = self.source.max_html_bytes
        if kind == "conversion":
            head = web.parse_head(
                b"HTTP/1.1 200\nContent-Type: " + record.fields.get("content-type", "").encode() + b"\n\n"
            )
            block = b""
        else:
            block = read(_HEAD_BYTES)
            head = web.parse_head(block)
        if head is None:
            return Skip("not_http")
        if head.status != 200:
            return Skip(f"http_status_{head.status // 100}xx")
        media = head.media_type or record.fields.get("warc-identified-payload-type", "").lower()
        html = media in _HTML
        if not html and media not in ("", "text/plain"):
            top = media.partition("/")[0]
            return Skip(f"content_type_{top if top in _MEDIA else 'other'}")
        # an encoded body is no longer than the decoded one, but for the sizes of chunks
        if length > limit + (1 << 20):
            return InputError(f"body larger than max_html_bytes={limit}")
        body = block[head.size if block else 0 :] + read(length)
        try:
            body = web.decode_body(body, head, limit)
        except InputError as e:
            return e
        if not media:
            html = _LOOKS_HTML.match(body) is not None
            if not html:
                return Skip("content_type_missing")
        if _is_binary(body):
            return Skip("binary_content")
        return Content(url, host, body, html, head.charset)

    def _document(self, row: int, record: ArchiveRecord, content: Content, dump: str | None) -> Record | Reject | Skip:
        if content.html:
            try:
                text, charset, evidence = page_text(content.body, content.charset, self._how)
            except BaseException as e:
                return Reject(row, record.offset, refusal(e), record.head[:HEAD_BYTES])
        else:
            text, charset, evidence = decoded(content.body, content.charset, html=False)
        if not text.strip():
            return Skip("no_text")
        columns = {
            "url": content.url,
            "domain": content.host,
            "date": record.fields.get("warc-date"),
            "record_id": record.fields.get("warc-record-id", "").strip("<>") or None,
            "charset": charset,
            "dump": dump,
            "truncated": record.fields.get("warc-truncated"),
        }
        return Record(row, text, columns, charset_evidence=evidence)


def _kind(fields: Mapping[str, str]) -> str:
    """A record's type in lower case; where its field is missing or no type, what the block's type says it is."""
    kind = fields.get("warc-type", "").lower()
    if kind not in _KINDS and _RESPONSE.match(fields.get("content-type", "")):
        return "response"
    return kind


def _note(row: int, broken: Broken, document: bool) -> Reject:
    """What is wrong with the length of a record that is read all the same."""
    if document:
        return Reject(None, broken.offset, f"{broken.reason} (the record is read)", broken.head)
    return Reject(row, broken.offset, broken.reason, broken.head)


def _reject(row: int, broken: Broken) -> Reject:
    cut = broken.reason.startswith(
        ("truncated at ", "damaged ")
    )  # what sources.archive says of it, and of nothing else
    return Reject(row, broken.offset, broken.reason, broken.head, cut, broken.passed)


def _is_binary(body: bytes) -> bool:
    """A PDF, an image or the like under a text type. UTF-16 with its byte order mark is text."""
    sample = body[:1024]
    if sample.startswith((b"\xff\xfe", b"\xfe\xff")):
        return False
    return sample.startswith(b"%PDF-") or 20 * (len(sample) - len(sample.translate(None, _CONTROLS))) > len(sample)


# ------------------------------------------------------------------------------------------------------- blocklists


class Blocklist:
    """A set of strings by their 64-bit hashes: 8 bytes an entry, so that lists of millions fit in every worker.

    A string that is not in a list of 10 million is taken for one of it with probability 5e-13.
    """

    def __init__(self, keys: Iterable[str]):
        self._hashes = np.unique(np.fromiter((xxh3_64_intdigest(k.encode()) for k in keys), np.uint64))

    def __len__(self) -> int:
        return len(self._hashes)

    def __contains__(self, key: str) -> bool:
        wanted = np.uint64(xxh3_64_intdigest(key.encode()))
        i = int(np.searchsorted(self._hashes, wanted))
        return i < len(self._hashes) and bool(self._hashes[i] == wanted)


def _blocklist(paths: tuple[str, ...], key: Callable[[str], str]) -> Blocklist:
    """The entries of all files, one a line; blank lines and lines that begin with "#" are not entries.

    A process keeps what it made of a content: files of the same name may be others in its next run.
    """
    return _parsed(paths, tuple(map(_content, paths)), key)


def _content(path: str) -> str:
    """Hash of a file's bytes."""
    with open(path, "rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()


@functools.lru_cache(maxsize=64)
def _parsed(paths: tuple[str, ...], contents: tuple[str, ...], key: Callable[[str], str]) -> Blocklist:
    def keys() -> Iterator[str]:
        for path in paths:
            with open_stream(path) as f:
                content = b"".join(iter(functools.partial(f.read, 1 << 20), b""))
            for line in io.BytesIO(content):
                entry = line.decode("utf-8", "replace").strip()
                if entry and not entry.startswith("#") and (k := key(entry)):
                    yield k

    return Blocklist(keys())


def _host(url: str) -> str:
    """Host name of a URL in lower case and ASCII, without port; "" if there is none."""
    match = _URL.match(url)
    return _ascii_host(match[1]) if match else ""


def _ascii_host(host: str) -> str:
    host = host.lower().rstrip(".")
    if not host.isascii():
        with contextlib.suppress(UnicodeError):
            host = host.encode("idna").decode("ascii")
    return host


def _parents(host: str) -> Iterator[str]:
    """a.b.c, b.c, c"""
    while host:
        yield host
        host = host.partition(".")[2]


def _domain_key(entry: str) -> str:
    host = _host(entry) if "://" in entry else re.split(r"[/:?#]", entry, maxsplit=1)[0]
    return _ascii_host(host.removeprefix("*").lstrip("."))


def _url_key(url: str) -> str:
    """What two spellings of an address share: scheme, "www.", default port, fragment and last slash do not count."""
    match = _URL.match(url if "://" in url else f"http://{url}")
    if match is None:
        return url
    port = f":{match[2]}" if match[2] not in (None, "", "80", "443") else ""
    return _ascii_host(match[1]).removeprefix("www.") + port + match[3].rstrip("/")
