"""HTML to text: which charset a page is in, whether a parser may be shown it, and the text of its main content.

Pure functions: the same bytes give the same text, whatever was extracted before.
"""

from __future__ import annotations

import codecs
import functools
import importlib
import logging
import re
from importlib import resources
from typing import Any, Literal, NamedTuple

from gpu_curate.errors import InputError

# ---------------------------------------------------------------------------------------------------------- charset

_BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # begins with the mark of UTF-16
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16le"),
    (codecs.BOM_UTF16_BE, "utf-16be"),
)
# Of Python's codecs, those that are no encodings of text, or that let markup hide in letters (utf-7).
_NO_CHARSETS = {
    "charmap",
    "idna",
    "mbcs",
    "oem",
    "punycode",
    "raw-unicode-escape",
    "undefined",
    "unicode-escape",
    "utf-7",
}
_CODE_PAGE = re.compile(r"(?:x-)?(?:cs)?(?:ibm|cp|dos|oem|ms|microsoft-cp)[-_]?0*(\d{3,4})")
_SEVEN_BIT = {"hz": b"~{", "iso2022_kr": b"\x1b$)C"}  # and how they show in text that is all ASCII
_PRESCAN = 16 << 10  # bytes searched for a declaration; the standard asks for 1,024, real heads are longer
_META = re.compile(rb"<meta\b[^>]{0,1000}?\bcharset\s*=\s*[\"']?\s*([\w.:-]{2,40})", re.IGNORECASE)
_XML = re.compile(rb"\s*<\?xml\b[^>]{0,200}?\bencoding\s*=\s*[\"']([\w.:-]{2,40})[\"']", re.IGNORECASE)
_ISO_2022_JP = re.compile(rb"\x1b(?:\$[@B]|\([BJI])")
_CODE = re.compile(rb"<(script|style)\b", re.IGNORECASE)
_TAG = re.compile(rb"<[^<>]*>")
_SAMPLE_BYTES = 64 << 10  # of text; a detector has made up its mind long before


@functools.cache
def _encodings() -> tuple[dict[str, str], dict[str, str]]:
    """charsets.tsv as label → name and name → Python codec."""
    text = resources.files("gpu_curate.text").joinpath("charsets.tsv").read_text(encoding="utf-8")
    labels: dict[str, str] = {}
    python: dict[str, str] = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            name, codec, more = line.split("\t")
            python[name] = codec
            labels |= dict.fromkeys([name, codecs.lookup(codec).name, *more.split()], name)
    return labels, python


def charset_name(label: str | None) -> str | None:
    """The encoding that a charset label means on the web ("GB2312" is gb18030, "latin1" is windows-1252).

    Returns: its WHATWG name; the Python codec's name for one that browsers do not know (IBM855 is cp855, johab, hz, ...);
        None if the label is unknown or names something that is no encoding of pages.
    Source: https://encoding.spec.whatwg.org, section 4.2; Python's codecs.
    """
    return _charset_name((label or "").strip(" \t\r\n\f\"'").lower())


@functools.lru_cache(maxsize=1024)
def _charset_name(label: str) -> str | None:
    labels, _ = _encodings()
    if label in labels:
        return labels[label]
    page = _CODE_PAGE.fullmatch(label)
    for spelling in (label, f"cp{page[1]}" if page else label, label.removeprefix("x-").removeprefix("cs")):
        try:
            codec = codecs.lookup(spelling)
        except (LookupError, ValueError):  # ValueError: a NUL in the label
            continue
        if codec.name in labels:
            return labels[codec.name]
        if _is_charset(codec):
            return codec.name
    return None


def _is_charset(codec: codecs.CodecInfo) -> bool:
    """True for an encoding of text that has ASCII's letters where ASCII has them, as pages need it."""
    if not codec._is_text_encoding or codec.name.replace("_", "-") in _NO_CHARSETS:
        return False
    if codec.name in _SEVEN_BIT:
        return True
    sample = '<meta charset="az_AZ-09">'
    try:
        return codec.decode(sample.encode(), "strict")[0] == sample
    except ValueError:
        return False


def declared_charset(body: bytes) -> str | None:
    """The charset that a page states in its head: `<?xml encoding=`, `<meta charset=` or the http-equiv form."""
    head = body[:_PRESCAN]
    first, *rest = head.split(b"<!--")  # what a comment declares does not count
    found = _XML.match(head) or _META.search(first + b"".join(part.partition(b"-->")[2] for part in rest))
    name = charset_name(found[1].decode("ascii", "replace")) if found else None
    # the declaration could not be read as ASCII if the page really were UTF-16
    return "utf-8" if name in ("utf-16le", "utf-16be") else name


def _sample(body: bytes, html: bool) -> bytes:
    """The start of the text without tags and code, which are ASCII and tell nothing about the encoding."""
    if not html:
        return body[:_SAMPLE_BYTES]
    first, *rest = _CODE.split(body[: 4 * _SAMPLE_BYTES])
    kept = [first]
    for tag, part in zip(rest[::2], rest[1::2], strict=True):
        end = part.lower().find(b"</" + tag.lower())
        if end >= 0:
            kept.append(part[end:])
    return _TAG.sub(b" ", b"".join(kept))[:_SAMPLE_BYTES]


def detect_charset(body: bytes, html: bool = True) -> str:
    """The likeliest legacy encoding of text that is not UTF-8: the detector of Firefox (chardetng), never UTF-8."""
    from chardetng_py import EncodingDetector

    sample = _sample(body, html)
    detector = EncodingDetector()
    detector.feed(sample, last=len(sample) < _SAMPLE_BYTES)
    return charset_name(detector.guess(tld=None, allow_utf8=False)) or "windows-1252"


class Decoded(NamedTuple):
    """Text, and how its encoding was told."""

    text: str
    charset: str
    # bom, bytes (valid UTF-8, or escape sequences), header, meta, detector, or default (nothing told anything)
    evidence: str


def decode(body: bytes, http_charset: str | None = None, html: bool = True) -> tuple[str, str]:
    """`decoded` without its evidence."""
    return decoded(body, http_charset, html)[:2]


def decoded(body: bytes, http_charset: str | None = None, html: bool = True) -> Decoded:
    """Bytes of a page to text, without mojibake.

    A label is a claim, the bytes are the evidence: servers send `iso-8859-1` for everything and templates are copied
    with their `<meta>`. In order: a byte order mark; UTF-8 if the bytes are (text in a legacy encoding practically never
    is); the HTTP header, then the page's own declaration, each if the bytes agree; the detector.

    Args:
        body: the HTTP body after its transfer and content encodings are undone, any length.
        http_charset: label from the Content-Type header.
        html: look for `<meta>`, and ignore tags when detecting.
    Returns:
        text, and the encoding as `charset_name` calls it. Bytes that the encoding does not have became U+FFFD.
    """
    for bom, name in _BOMS:
        if body.startswith(bom):
            return Decoded(_decode(body[len(bom) :], name), name, "bom")
    http = charset_name(http_charset)
    if http in ("utf-16le", "utf-16be") and body.count(0, 0, 200) > 20:
        return Decoded(_decode(body, http), http, "header")
    if b"\x1b" in body and _ISO_2022_JP.search(body) and body.isascii():
        return Decoded(_decode(body, "iso-2022-jp"), "iso-2022-jp", "bytes")
    if any(mark in body for mark in _SEVEN_BIT.values()) and body.isascii():
        for said, evidence in ((http, "header"), (declared_charset(body) if html else None, "meta")):
            if said in _SEVEN_BIT and "\ufffd" not in (text := _decode(body, said)):
                return Decoded(text, said, evidence)
    try:
        return Decoded(body.decode("utf-8"), "utf-8", "bytes")
    except UnicodeDecodeError:
        pass
    text = body.decode("utf-8", "replace")
    # UTF-8 that was cut, or patched with a few foreign bytes: valid sequences outnumber the bad ones by far
    meta = declared_charset(body) if html else None
    damaged, continued = text.count("\ufffd"), len(body) - len(text)
    if continued > (4 if "utf-8" in (http, meta) else 20) * damaged:
        return Decoded(text, "utf-8", "bytes")
    claims = [c for c in dict.fromkeys((http, meta)) if c and not c.startswith("utf-")]
    detected = None
    if len(claims) == 2:
        detected = detect_charset(body, html)
        claims.sort(key=lambda c: c != detected)
    for name in claims:
        # windows-1252 is what is claimed when nobody thought about it: other letters than Western ones disprove it
        if name == "windows-1252" and not _western(body, html):
            continue
        text = _decode(body, name)
        if text.count("\ufffd") <= 2 + _above_ascii(body) // 50:
            return Decoded(text, name, "header" if name == http else "meta")
    name = detected or detect_charset(body, html)
    # the sample may have nothing but ASCII: what is above lies in tags, scripts or far behind
    return Decoded(_decode(body, name), name, "default" if _sample(body, html).isascii() else "detector")


def _decode(body: bytes, name: str) -> str:
    if name == "windows-1252":
        # the standard maps the five bytes that Python's cp1252 lacks to C1 controls; as text they are nothing
        return body.translate(None, b"\x81\x8d\x8f\x90\x9d").decode("cp1252")
    text = body.decode(_encodings()[1].get(name, name), "replace")
    if name == "euc-jp" and "\ufffd" in text:  # rows that only the larger set has (circled digits, units)
        wider = body.decode("euc_jis_2004", "replace")
        return wider if wider.count("\ufffd") < text.count("\ufffd") else text
    return text


def _above_ascii(body: bytes) -> int:
    return len(body.translate(None, bytes(range(128))))


def _western(body: bytes, html: bool) -> bool:
    """Fewer than two in five letters are above ASCII, as in every language that windows-1252 was made for."""
    sample = _sample(body, html)
    foreign = _above_ascii(sample)
    letters = len(sample.translate(None, bytes(c for c in range(128) if not chr(c).isalpha())))
    return foreign < 0.4 * letters or not foreign


# ------------------------------------------------------------------------------------------------------- extraction


class Limits(NamedTuple):
    """What a page may be before a parser sees it. All of them are decided by counting, so they are the same anywhere."""

    max_bytes: int = 4 << 20  # of the decoded page in UTF-8
    max_depth: int = 250  # nested elements; libxml2 gives up at 256 and loses the page
    max_elements: int = 30_000  # start tags


# Inline elements of one block. trafilatura strips their tags, lxml then walks the text nodes once per node: 5,000 take
# 1.3 s, 10,000 take 8 s, 20,000 take 40 s.
MAX_INLINE_RUN = 5_000

# Attributes of one element. libxml2 compares each with all before it: 80,000 take 17 s. With this bound a page of 4 MB whose
# elements have 999 each takes 3.6 s by trafilatura, 1.0 s by resiliparse (one of ordinary text: 1.4 s, 0.1 s). A quote that is
# missing turns words into attributes, some hundred at most.
MAX_ATTRIBUTES = 1_000


class Extraction(NamedTuple):
    """How pages become text."""

    extractor: Literal["trafilatura", "resiliparse"] = "trafilatura"
    favor: Literal["precision", "balanced", "recall"] = "precision"  # trafilatura only
    fallback: bool = True  # trafilatura only: try readability and jusText where its own rules find little
    limits: Limits = Limits()


DEFAULT = Extraction()


class Page(NamedTuple):
    text: str  # empty: nothing worth keeping was found
    charset: str
    evidence: str  # for the charset, as of `Decoded`


def page_text(body: bytes, http_charset: str | None = None, how: Extraction = DEFAULT) -> Page:
    """The main text of an HTML page.

    Args:
        body: the page as sent, any charset. An empty one gives an empty text.
        http_charset: charset of the Content-Type header.
    Raises:
        InputError: the page passes a limit, or the library failed on it; the message is the reason.
    """
    html, charset, evidence = decoded(body, http_charset)
    check(html, how)
    return Page(extract(html, how), charset, evidence)


def check(html: str, how: Extraction) -> None:
    """Refuse a page that a parser could choke on.

    Raises:
        InputError: says which limit.
    """
    from gpu_curate.text.html_scan import measure  # not at the top: plain text needs no Numba

    max_bytes, max_depth, max_elements = how.limits
    data = html.encode("utf-8", "replace")
    if len(data) > max_bytes:
        raise InputError(f"html larger than max_html_bytes={max_bytes}")
    elements, depth, run, attributes = measure(data, max_depth)
    if elements > max_elements:
        raise InputError(f"html has more elements than max_html_elements={max_elements}")
    if depth > max_depth:
        raise InputError(f"html nested deeper than max_html_depth={max_depth}")
    if attributes > MAX_ATTRIBUTES:
        raise InputError(f"html has more than {MAX_ATTRIBUTES} attributes in one element")
    if run > MAX_INLINE_RUN and how.extractor == "trafilatura":
        raise InputError(f"html has more than {MAX_INLINE_RUN} inline elements in one block")


_WHOLE_PAGE = re.compile(r"\s*<(?:html|!doctype html)\b", re.IGNORECASE)


def extract(html: str, how: Extraction) -> str:
    """The main text of decoded HTML, by the library that `how` names. No limits are checked here.

    trafilatura: comments, images, links and metadata are left out, tables are kept, nothing is deduplicated (its
    `deduplicate` remembers earlier pages, so the text would depend on the order they came in).
    resiliparse: main content, without alternative texts, as DCLM (arXiv:2406.11794, section 4.2) ran it.

    Source: FineWeb, arXiv:2406.17557, section 3.2 (trafilatura, favouring precision).
    Deviates: FineWeb had `deduplicate` on. A page that does not begin with `<html` or a doctype (a comment or an XML
    declaration comes first) is given an `<html`.
    Raises:
        InputError: the library failed on the page.
    """
    run = _resiliparse if how.extractor == "resiliparse" else _trafilatura
    module = importlib.import_module("resiliparse.extract.html2text" if run is _resiliparse else "trafilatura")
    if (logger := logging.getLogger("trafilatura")).level == logging.NOTSET:
        logger.setLevel(logging.CRITICAL + 1)  # it warns of every page that it drops; those are counted here
    try:
        return run(module, html, how)
    except MemoryError:
        raise
    except Exception as e:  # whatever the library cannot stand (RecursionError, lxml's own errors) is about this page
        raise InputError(f"{how.extractor} failed: {type(e).__name__}") from e


def _resiliparse(html2text: Any, html: str, how: Extraction) -> str:
    return str(html2text.extract_plain_text(html, main_content=True, alt_texts=False)).strip()


def _trafilatura(trafilatura: Any, html: str, how: Extraction) -> str:
    if not _WHOLE_PAGE.match(html):  # lxml would take it for a fragment and lose the body
        html = "<html>" + html
    text = trafilatura.extract(
        html,
        fast=not how.fallback,
        favor_precision=how.favor == "precision",
        favor_recall=how.favor == "recall",
        include_comments=False,
        deduplicate=False,
    )
    return text or ""
