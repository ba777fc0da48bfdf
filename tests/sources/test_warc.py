"""Web archives: archives made byte by byte here, with every oddity; and real ones where they are at hand."""

from __future__ import annotations

import collections
import gzip
import io
import pickle
import random
import re
import time
import tracemalloc
import zlib
from pathlib import Path

import lz4.frame
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu_curate.config import WarcSource, load
from gpu_curate.errors import ConfigError, InputError
from gpu_curate.sources import Record, Reject, Skip
from gpu_curate.sources import http as web
from gpu_curate.sources.archive.records import ArchiveRecord, records
from gpu_curate.sources.warc import Blocklist, WarcReader, _domain_key, _url_key
from gpu_curate.text.html import Limits

SENTENCE = "The ferry leaves the north pier at nine and calls at four small islands before it turns home."
HTML = f"<html><head><title>t</title></head><body><article><p>{SENTENCE}</p></article></body></html>".encode()


def warc(
    kind: str, block: bytes, url: str = "http://example.org/a", length: int | None = None, extra: str = ""
) -> bytes:
    head = (
        f"WARC/1.0\r\nWARC-Type: {kind}\r\nWARC-Target-URI: {url}\r\nWARC-Date: 2024-05-01T10:20:30Z\r\n"
        f"WARC-Record-ID: <urn:uuid:{len(block)}>\r\n{extra}"
        f"Content-Length: {len(block) if length is None else length}\r\n\r\n"
    )
    return head.encode() + block + b"\r\n\r\n"


def http(
    body: bytes, *headers: str, status: str = "200 OK", content_type: str | None = "text/html; charset=utf-8"
) -> bytes:
    lines = [f"HTTP/1.1 {status}", *([f"Content-Type: {content_type}"] if content_type else []), *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def page(body: bytes = HTML, *headers: str, **k: str) -> bytes:
    return warc("response", http(body, *headers, **k))


def chunked(body: bytes, size: int) -> bytes:
    pieces = [body[i : i + size] for i in range(0, len(body), size)]
    return b"".join(b"%x\r\n%s\r\n" % (len(p), p) for p in pieces) + b"0\r\n\r\n"


def read(path, data: bytes | None = None, **config):
    """(records, rejects, Counter of skip reasons); the same from the file in several splits, whatever is wrong with it."""
    if data is not None:
        path.write_bytes(data)
    config = {"timeout_s": None, **config}
    reader = WarcReader(WarcSource(name="cc", type="warc", path=str(path), **config))
    size = path.stat().st_size
    (split,) = reader.splits(str(path), size, 1 << 30)
    items = list(reader.read(split))
    splits = reader.splits(str(path), size, max(1, split.nbytes // 3))
    assert [item for s in splits for item in reader.read(s)] == items
    for skip in {1, len(items) // 2, len(items)}:  # as after a restart
        assert list(reader.read(split, skip)) == items[skip:]
    return (
        [i for i in items if isinstance(i, Record)],
        [i for i in items if isinstance(i, Reject)],
        collections.Counter(i.reason for i in items if isinstance(i, Skip)),
    )


@pytest.fixture
def archive(tmp_path):
    return tmp_path / "a.warc"


# ------------------------------------------------------------------------------------------------ kinds and columns


def test_each_kind_of_record_has_its_own_reason_and_its_row(archive):
    data = (
        warc("warcinfo", b"software: x\r\nisPartOf: CC-MAIN-2024-22\r\n")
        + warc("request", b"GET / HTTP/1.1\r\n\r\n")
        + page()
        + warc("metadata", b"fetchTimeMs: 1")
        + warc("revisit", http(b""))
        + warc("resource", b"<p>x</p>")
        + warc("nonsense", b"?")
        + page(status="301 Moved")
        + page(status="404 Not Found")
        + page(status="503 Busy")
        + page(status="204 No Content")
        + page(b"\x89PNG\r\n", content_type="image/png")
        + page(b"%PDF-1.7", content_type="application/pdf")
        + page(b"{}", content_type="weird/thing")
        + page(b"%PDF-1.7 \x00\x01")
        + page(b"")
        + page(b"plain", content_type=None)
        + warc("response", b"\x00\x01dns answer", url="dns:example.org")
        + page(b"Just plain text.", content_type="text/plain")
        + page(content_type=None)
    )
    records, rejects, skips = read(archive, data)
    assert rejects == []
    assert skips == {
        "warc_warcinfo": 1,
        "warc_request": 1,
        "warc_metadata": 1,
        "warc_revisit": 1,
        "warc_resource": 1,
        "warc_unknown_type": 1,
        "http_status_2xx": 1,
        "http_status_3xx": 1,
        "http_status_4xx": 1,
        "http_status_5xx": 1,
        "content_type_image": 1,
        "content_type_application": 1,
        "content_type_other": 1,
        "content_type_missing": 1,
        "binary_content": 1,
        "no_text": 1,
        "not_http": 1,
    }
    assert [(r.row, r.text) for r in records] == [(2, SENTENCE), (18, "Just plain text."), (19, SENTENCE)]
    assert records[0].columns == {
        "url": "http://example.org/a",
        "domain": "example.org",
        "date": "2024-05-01T10:20:30Z",
        "record_id": f"urn:uuid:{len(http(HTML))}",
        "charset": "utf-8",
        "dump": "CC-MAIN-2024-22",
        "truncated": None,
    }


def test_empty_file_has_no_records(archive):
    assert read(archive, b"") == ([], [], {})
    assert read(archive, gzip.compress(b"")) == ([], [], {})


def test_file_of_another_kind_is_one_reject(archive):
    records, rejects, skips = read(archive, b"id,text\n1,hello\n" * 1000)
    assert (records, skips) == ([], {})
    assert [(r.row, r.offset, r.reason) for r in rejects] == [(0, 0, "not a WARC or ARC file")]


def test_wet_record_is_a_document_with_its_newlines(archive):
    text = "Prima linia\nSegunda linia con eñe\n"
    records, _, skips = read(archive, warc("conversion", text.encode(), extra="Content-Type: text/plain\r\n"))
    assert [r.text for r in records] == [text]
    assert records[0].columns["charset"] == "utf-8"
    _, _, skips = read(archive, warc("conversion", b"x", extra="Content-Type: image/png\r\n"))
    assert skips == {"content_type_image": 1}


def test_uri_in_angle_brackets_and_truncation_mark_are_read(archive):
    data = warc("response", http(HTML), url="<https://Example.ORG:8080/x>", extra="WARC-Truncated: length\r\n")
    (record,), _, _ = read(archive, data)
    assert record.columns["url"] == "https://Example.ORG:8080/x"
    assert record.columns["domain"] == "example.org"
    assert record.columns["truncated"] == "length"


def test_arc_files_of_both_versions_are_read(tmp_path):
    block = http(HTML)
    v1 = b"http://example.org/a b 93.184.216.34 20140216050221 text/html %d\n%s\n" % (len(block), block)
    v2 = b"http://example.org/c 1.2.3.4 20140216050222 text/html 200 - - 0 x.arc %d\n%s\n" % (len(block), block)
    first = b"1 0 Archive\nURL IP-address Archive-date Content-type Archive-length\n"
    data = b"filedesc://x.arc 0.0.0.0 20140216050221 text/plain %d\n%s\n" % (len(first), first) + v1 + v2
    for path, content in ((tmp_path / "x.arc", data), (tmp_path / "x.arc.gz", gzip.compress(data))):
        records, rejects, skips = read(path, content)
        assert rejects == []
        assert skips == {"warc_warcinfo": 1}
        assert [(r.columns["url"], r.columns["date"]) for r in records] == [
            ("http://example.org/a b", "2014-02-16T05:02:21Z"),
            ("http://example.org/c", "2014-02-16T05:02:22Z"),
        ]


# ------------------------------------------------------------------------------------------------------ compression


def _lz4(data: bytes) -> bytes:
    return lz4.frame.compress(data)


def _zstd(data: bytes) -> bytes:
    return zstandard.ZstdCompressor().compress(data)


MEMBERS = [warc("request", b"GET /" + b"x" * n) + page(HTML + b" " * n) for n in (0, 1, 997, 70_001)]


@pytest.mark.parametrize("compress", [gzip.compress, _lz4, _zstd, lambda d: d], ids=["gz", "lz4", "zst", "plain"])
@pytest.mark.parametrize("whole", [False, True], ids=["member per record", "one member"])
def test_every_compression_gives_the_same_records(archive, compress, whole):
    data = compress(b"".join(MEMBERS)) if whole else b"".join(map(compress, MEMBERS))
    records, rejects, skips = read(archive, data)
    assert rejects == []
    assert skips == {"warc_request": 4}
    assert [(r.row, r.text) for r in records] == [(i, SENTENCE) for i in (1, 3, 5, 7)]


@pytest.mark.parametrize("compressed_dictionary", [False, True])
def test_zstd_file_with_its_dictionary_in_the_first_frame(archive, compressed_dictionary):
    random.seed(1)
    samples = [page(HTML + str(random.random()).encode() * 20) for _ in range(200)]
    dictionary = zstandard.train_dictionary(4096, samples)
    content = dictionary.as_bytes()
    if compressed_dictionary:
        content = _zstd(content)
    compressor = zstandard.ZstdCompressor(dict_data=dictionary)
    data = b"\x5d\x2a\x4d\x18" + len(content).to_bytes(4, "little") + content
    data += b"".join(map(compressor.compress, MEMBERS))
    records, rejects, _ = read(archive, data)
    assert rejects == []
    assert [r.row for r in records] == [1, 3, 5, 7]


# ----------------------------------------------------------------------------------------------------------- damage


def _three(compress) -> bytes:
    return b"".join(
        compress(page(HTML + b"<!-- %s -->" % random.Random(n).randbytes(3000).hex().encode())) for n in range(3)
    )


@pytest.mark.parametrize("compress", [gzip.compress, _lz4, _zstd, lambda d: d], ids=["gz", "lz4", "zst", "plain"])
def test_cut_file_keeps_the_records_before_the_cut(archive, compress):  # F06
    data = _three(compress)
    start = time.monotonic()
    records, rejects, _ = read(archive, data[:-40])
    assert time.monotonic() - start < 10
    assert [r.row for r in records] == [0, 1]
    (reject,) = rejects
    assert reject.row == 2
    assert re.fullmatch(r"truncated at offset \d+( of the unpacked file)?", reject.reason)
    assert ("unpacked" in reject.reason) == (compress(b"") != b"")
    assert reject.offset == 2 * len(_three(lambda d: d)) // 3
    cut = int(reject.reason.split()[3])
    if compress in (_lz4, _zstd):  # their first block, and with it the record, is cut
        assert (reject.head, cut) == (b"", reject.offset)
    else:
        assert reject.head.startswith(b"WARC/1.0\r\nWARC-Type: response")
        assert reject.offset < cut < len(_three(lambda d: d))


@pytest.mark.parametrize("compress", [gzip.compress, _lz4, _zstd], ids=["gz", "lz4", "zst"])
def test_every_cut_of_a_compressed_file_is_marked_unless_between_members(archive, compress):
    members = [compress(page()) for _ in range(2)]
    data = b"".join(members)
    for cut in [*range(1, len(data), 7), len(data) - 1]:
        records, rejects, _ = read(archive, data[:cut])
        assert len(records) <= 2
        if cut < 4:  # not even the first bytes that tell the compression
            continue
        at_boundary = cut == len(members[0])
        assert len(rejects) == (0 if at_boundary else 1), cut
        assert at_boundary or "truncated" in rejects[0].reason


def test_member_with_corrupt_bytes_costs_its_own_record_only(archive):
    members = [
        bytearray(gzip.compress(page(HTML + b"<!-- %s -->" % random.Random(n).randbytes(40_000).hex().encode())))
        for n in range(4)
    ]
    for i in range(20_000, 20_100):
        members[1][i] ^= 0x55
    records, rejects, _ = read(archive, b"".join(members))
    assert [r.text for r in records] == [SENTENCE] * 3
    (reject,) = rejects
    assert reject.row == 1
    assert f"byte {len(members[0])} of the file" in reject.reason


def test_bad_header_before_a_record_is_counted_and_the_rest_read(archive):  # F07
    bad_headers = [
        b"WARC/1.0\r\nWARC-Type: response\r\nContent-Length: many\r\n\r\n",
        b"WARC/1.0\r\nWARC-Type: response\r\n\r\nno length\r\n\r\n",
        b"garbage that is no header\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n<p>body without its record</p>\r\n\r\n",
        b"WARC/1.0\r\nContent-Length: 12345678901234567890123\r\n\r\n",
        b"\x00\xff" * 50_000 + b"\n",
    ]
    for bad in bad_headers:
        for data in (page() + bad + page() + page(), b"".join(map(gzip.compress, (page(), bad, page(), page())))):
            records, rejects, _ = read(archive, data)
            assert [r.row for r in records] == [0, 2, 3], bad[:30]
            (reject,) = rejects
            assert (reject.row, reject.offset) == (1, len(page()))
            assert "header" in reject.reason
            assert reject.head == (bad + page())[:200]


def test_bad_line_in_a_header_is_counted_and_the_record_read(archive):
    data = page().replace(b"WARC-Date", b"no colon here\r\nWARC-Date")
    (record,), (reject,), _ = read(archive, data)
    assert record.text == SENTENCE
    assert (reject.row, reject.reason) == (None, "bad line in a record header (the record is read)")
    assert reject.head == b"no colon here\r"


@pytest.mark.parametrize("wrong", [-400, -3, 30, 400, 10**15])
def test_record_of_wrong_length_is_read_up_to_the_next(archive, wrong):
    block = http(HTML)
    bad = warc("response", block, length=max(1, len(block) + wrong))
    for data in (page() + bad + page() + page(), b"".join(map(gzip.compress, (page(), bad, page(), page())))):
        records, rejects, _ = read(archive, data)
        assert [(r.row, r.text) for r in records] == [(n, SENTENCE) for n in range(4)]
        (reject,) = rejects
        assert (reject.row, reject.offset) == (None, len(page()))
        assert re.match(r"Content-Length is wrong: .* \(the record is read\)$", reject.reason)


ARC_HEAD = b"filedesc://x 0.0.0.0 20140216050221 text/plain 6\n1 0 A\n\n"


@pytest.mark.parametrize("compress", [gzip.compress, lambda d: d], ids=["gz", "plain"])
def test_warc_record_where_one_of_an_arc_file_is_due_is_one_reject(archive, compress):
    records, rejects, skips = read(archive, compress(ARC_HEAD) + compress(page()))
    assert (records, skips) == ([], {"warc_warcinfo": 1})
    assert [r.reason for r in rejects] == ["no record header where one is due"]


@pytest.mark.parametrize("compress", [gzip.compress, lambda d: d], ids=["gz", "plain"])
def test_lengths_beyond_the_file_cost_nothing_behind_them(archive, compress):
    for kind in ("response", "request"):
        bad = [warc(kind, http(HTML + b" " * n), length=100_000) for n in range(6)]
        records, rejects, _ = read(archive, compress(b"".join([*bad, page()])))
        documents = range(7) if kind == "response" else [6]
        assert [(r.row, r.text) for r in records] == [(n, SENTENCE) for n in documents]
        assert [r.row for r in rejects] == ([None] * 6 if kind == "response" else list(range(6)))
        assert {r.reason.removesuffix(" (the record is read)") for r in rejects} <= {
            "Content-Length is wrong: it goes beyond the file",
            "Content-Length is wrong: it goes beyond the record",
        }


@pytest.mark.parametrize("zeros", [10, 32_768, 100_000])
def test_zeros_between_members_are_passed_over(archive, zeros):
    members = [gzip.compress(page()) for _ in range(3)]
    for pad in (zeros, 32_768 - len(members[0]) + 5):
        records, rejects, _ = read(archive, members[0] + bytes(pad) + members[1] + members[2])
        assert ([r.row for r in records], rejects) == ([0, 1, 2], [])


def _checked_zstd(data: bytes) -> bytes:
    return zstandard.ZstdCompressor(write_checksum=True).compress(data)


def _checked_lz4(data: bytes) -> bytes:
    return lz4.frame.compress(data, content_checksum=True, block_size=lz4.frame.BLOCKSIZE_MAX4MB)


@pytest.mark.parametrize("compress", [_checked_zstd, _checked_lz4], ids=["zst", "lz4"])
def test_frame_with_corrupt_bytes_costs_its_own_record_only(archive, compress):
    noise = [random.Random(n).randbytes(150_000).hex().encode() for n in range(4)]
    members = [bytearray(compress(page(HTML + b"<!-- %s -->" % n))) for n in noise]
    members[1][len(members[1]) // 2] ^= 0x55
    records, rejects, _ = read(archive, b"".join(members))
    assert [r.text for r in records] == [SENTENCE] * 3
    assert len(rejects) == 1


def test_arc_members_behind_a_damaged_one_are_read(archive):
    members = [ARC_HEAD]
    for n in range(4):
        body = http(HTML + b"<!-- %s -->" % random.Random(n).randbytes(5000).hex().encode())
        members.append(b"http://e.org/%d 1.2.3.4 20140216050221 text/html %d\n" % (n, len(body)) + body + b"\n")
    packed = [bytearray(gzip.compress(m)) for m in members]
    packed[2][3000] ^= 0x55
    records, rejects, _ = read(archive, b"".join(packed))
    assert [r.columns["url"] for r in records] == [f"http://e.org/{n}" for n in (0, 2, 3)]
    assert len(rejects) == 1


def test_damaged_dictionary_is_a_reject(archive):
    content = _zstd(b"x" * 1000)[:-4] + b"abcd"
    data = b"\x5d\x2a\x4d\x18" + len(content).to_bytes(4, "little") + content[:10]
    bad = b"\x37\xa4\x30\xec" + b"no table" * 20  # the mark of a dictionary
    whole = b"\x5d\x2a\x4d\x18" + len(bad).to_bytes(4, "little") + bad + _zstd(page())
    for cut in (data, data + _zstd(page()), whole):
        records, rejects, _ = read(archive, cut)
        assert records == []
        (reject,) = rejects
        assert re.match("damaged dictionary|truncated", reject.reason)


@pytest.mark.parametrize("before_edge", [1, 3, 10, 18, 30])
def test_member_that_begins_at_the_end_of_a_chunk_is_known_as_one(archive, before_edge):
    def bad(size: int) -> bytes:
        block = http(b"a" * size, content_type="text/plain")
        return gzip.compress(warc("response", block, length=len(block) + 60), 0)

    first = bad(32_000)
    first = bad(32_000 + 32_768 - before_edge - len(first))
    records, rejects, _ = read(archive, first + gzip.compress(page(), 0) + gzip.compress(page(), 0))
    assert [r.row for r in records] == [0, 1, 2]
    assert set(records[0].text) == {"a"}
    assert [r.row for r in rejects] == [None]


def test_plain_file_stays_plain_where_a_payload_is_compressed(archive):
    data = page() + warc("resource", gzip.compress(b"hello" * 100), length=20) + page() + page()
    records, rejects, _ = read(archive, data)
    assert [r.row for r in records] == [0, 2, 3]
    assert [r.row for r in rejects] == [1]


@pytest.mark.parametrize(
    "data",
    [
        b"WARC/1.0\n" * 60_000,
        gzip.compress(b"WARC/1.0\r\n") + gzip.compress(b"x", 1) * 60_000,
        b"".join(map(gzip.compress, (page(), b"x" * 20_000))) + gzip.compress(b"\n") * 60_000,
        warc("response", b"ab", length=1) * 30_000,
        _checked_zstd(page())[:-4] + b"abcd" + b"\x28\xb5\x2f\xfd" * 10_000,
        gzip.compress(page())[:-4] + b"abcd" + b"\x1f\x8b\x08\x00" * 10_000,
    ],
    ids=[
        "headers without an end",
        "a header of members of a byte",
        "blank members",
        "wrong lengths",
        "zstd marks",
        "gzip marks",
    ],
)
def test_time_is_linear_in_what_is_no_record(data):
    start = time.process_time()
    for record in records(io.BytesIO(data)):
        if isinstance(record, ArchiveRecord):
            record.finish()
    assert time.process_time() - start < 10


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_bytes_end_and_every_whole_record_behind_them_is_read(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("any") / "a.warc"
    junk = data.draw(
        st.lists(
            st.one_of(
                st.binary(max_size=300),
                st.sampled_from(
                    [b"WARC/1.0\r\n", b"Content-Length: 9\r\n", b"\r\n\r\n", b"\x1f\x8b\x08", page()[:100]]
                ),
            ),
            max_size=8,
        )
    )
    records, rejects, _ = read(path, page() + b"\n".join(junk) + b"\r\n\r\n" + page())
    assert records
    assert len(records) + len(rejects) >= 2 or not b"".join(junk).strip()


def test_mutated_archives_end(archive):
    rng = random.Random(7)
    good = {
        "gz": b"".join(map(gzip.compress, MEMBERS[:3])),
        "lz4": b"".join(map(_lz4, MEMBERS[:3])),
        "zst": b"".join(map(_zstd, MEMBERS[:3])),
    }
    for data in good.values():
        for _ in range(40):
            bad = bytearray(data)
            for _ in range(rng.randrange(1, 6)):
                bad[rng.randrange(len(bad))] = rng.randrange(256)
            read(archive, bytes(bad))


# ------------------------------------------------------------------------------------------------------ HTTP bodies


def test_bodies_are_decoded_whatever_the_header_says(archive):  # F07
    import brotli

    raw_deflate = zlib.compressobj(wbits=-15)
    variants = [
        page(HTML),
        page(gzip.compress(HTML), "Content-Encoding: gzip"),
        page(chunked(HTML, 50), "Transfer-Encoding: chunked"),
        page(HTML, "Transfer-Encoding: chunked"),
        page(HTML, "Content-Encoding: gzip"),
        page(HTML, "Content-Encoding: br"),
        page(HTML, "Content-Encoding: nonsense"),
        page(brotli.compress(HTML), "Content-Encoding: br"),
        page(_zstd(HTML), "content-encoding: zstd"),
        page(zlib.compress(HTML), "Content-Encoding: deflate"),
        page(raw_deflate.compress(HTML) + raw_deflate.flush(), "Content-Encoding: deflate"),
        page(chunked(gzip.compress(HTML), 33), "Content-Encoding: x-gzip", "Transfer-Encoding: Chunked"),
        page(chunked(gzip.compress(HTML), 33), "Transfer-Encoding: gzip, chunked"),
        page(gzip.compress(gzip.compress(HTML)), "Content-Encoding: gzip, gzip"),
        page(chunked(HTML, 64).replace(b"0\r\n\r\n", b""), "Transfer-Encoding: chunked"),
        page(HTML, "a header line without a colon", "Content-Encoding: identity"),
    ]
    records, rejects, skips = read(archive, b"".join(variants))
    assert (rejects, skips) == ([], {})
    assert [r.text for r in records] == [SENTENCE] * len(variants)


def test_cut_gzip_body_is_read_up_to_the_cut(archive):
    paragraphs = b"".join(b"<p>%s</p>" % random.Random(n).randbytes(40).hex().encode() for n in range(100))
    body = gzip.compress(b"<html><body>" + paragraphs)
    (record,), _, _ = read(archive, page(body[: len(body) // 2], "Content-Encoding: gzip"))
    assert random.Random(0).randbytes(40).hex() in record.text
    assert random.Random(99).randbytes(40).hex() not in record.text


@pytest.mark.parametrize("encoding", ["gzip", "br", "zstd", "deflate"])
def test_decompression_bomb_is_rejected_by_size(archive, encoding):
    import brotli

    compress = {"gzip": gzip.compress, "br": brotli.compress, "zstd": _zstd, "deflate": zlib.compress}[encoding]
    data = page(compress(b"<p>" + b"a" * 30_000_000), f"Content-Encoding: {encoding}") + page()
    (record,), (reject,), _ = read(archive, data, max_html_bytes=100_000)
    assert record.row == 1
    assert (reject.row, reject.reason) == (0, "body larger than max_html_bytes=100000")


BOMB = 80 << 20  # of zeros


@pytest.mark.parametrize("compress", [gzip.compress, _lz4, _zstd, lambda d: d], ids=["gz", "lz4", "zst", "plain"])
def test_bomb_of_a_member_costs_bounded_memory(archive, compress):
    head = warc("response", b"", length=BOMB).removesuffix(b"\r\n\r\n") + b"\r\n\r\n"
    for data in (head + bytes(BOMB) + b"\r\n\r\n", head.replace(b"Length", b"Lenght") + bytes(BOMB)):
        archive.write_bytes(compress(data) + compress(page()))
        del data
        with archive.open("rb") as f:
            tracemalloc.start()
            found = 0
            for record in records(f):
                if isinstance(record, ArchiveRecord):
                    record.read(1 << 20)
                    found += record.finish() is None
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
        assert found >= (compress(b"") != b"")
        assert peak < 64 << 20


@pytest.mark.parametrize("encoding", ["gzip", "br", "zstd", "deflate", "gzip, gzip", "zstd, br"])
def test_bomb_of_a_body_costs_bounded_memory(encoding):
    import brotli

    compress = {"gzip": gzip.compress, "br": brotli.compress, "zstd": _zstd, "deflate": zlib.compress}
    body = bytes(64 << 20)
    for name in encoding.split(", "):
        body = compress[name](body)
    head = web.parse_head(b"HTTP/1.1 200 OK\r\nContent-Encoding: " + encoding.encode() + b"\r\n\r\n")
    tracemalloc.start()
    with pytest.raises(InputError, match="body larger than max_html_bytes=1048576"):
        web.decode_body(body, head, 1 << 20)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 << 20


def test_dictionary_that_claims_to_be_huge_is_a_reject(archive):
    frame = zstandard.ZstdCompressor().compress(bytes(100 << 20))
    for data in (b"\xff\xff\xff\xff", len(frame).to_bytes(4, "little") + frame):
        tracemalloc.start()
        found, (reject,), _ = read(archive, b"\x5d\x2a\x4d\x18" + data + _zstd(page()))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert found == []
        assert reject.reason.startswith("damaged dictionary")
        assert peak < 200 << 20


def test_huge_record_is_rejected_without_being_read(archive):
    (record,), (reject,), _ = read(archive, page(b"<p>" + b"a" * 3_000_000) + page(), max_html_bytes=1000)
    assert record.row == 1
    assert reject.reason == "body larger than max_html_bytes=1000"


def test_charset_of_the_header_reaches_the_decoder(archive):
    text = "Паром отходит от северного причала в девять часов и заходит на четыре острова."
    html = f"<html><body><article><p>{text}</p></article></body></html>".encode("koi8-r")
    (record,), _, _ = read(archive, page(html, content_type="text/html;charset=KOI8-R,text/html"))
    assert (record.text, record.columns["charset"]) == (text, "koi8-r")
    (record,), _, _ = read(archive, page(text.encode("cp1251"), content_type="text/plain"))
    assert (record.text, record.columns["charset"]) == (text, "windows-1251")


# ------------------------------------------------------------------------------------------------ limits, backstop


def test_pathological_pages_are_rejected_and_the_rest_read_by_the_same_process(archive):  # F10
    data = (
        page(b"<html><body><ul>" + b"<li>item" * 300_000 + b"</ul>")
        + page(b"<html><body>" + b"<div>" * 5000 + b"x" + b"</div>" * 5000)
        + page(b"<html><body><p>" + b"<span>word</span> " * 20_000)
        + page()
    )
    start = time.monotonic()
    records, rejects, _ = read(archive, data, timeout_s=20)
    assert time.monotonic() - start < 60
    assert [(r.row, r.text) for r in records] == [(3, SENTENCE)]
    assert [r.reason for r in rejects] == [
        "html has more elements than max_html_elements=30000",
        "html nested deeper than max_html_depth=250",
        "html has more than 5000 inline elements in one block",
    ]


def test_the_same_text_with_and_without_the_backstop_and_by_both_extractors(archive):
    for extractor in ("trafilatura", "resiliparse"):
        results = [read(archive, page() * 3, extractor=extractor, timeout_s=t)[0] for t in (None, 20)]
        assert results[0] == results[1]
        assert [r.text for r in results[0]] == [SENTENCE] * 3


# ------------------------------------------------------------------------------------------------------- blocklists


def test_blocklists_leave_out_urls_domains_and_subdomains(archive, tmp_path):
    urls = tmp_path / "urls"
    urls.write_text("# comment\n\nhttps://www.one.example/bad/#top\ntwo.example:80/x?q=1\n", encoding="utf-8")
    domains = tmp_path / "domains.gz"
    domains.write_bytes(gzip.compress("*.blocked.example\nmünchen.example\n.dotted.example\n".encode()))
    addresses = [
        "http://one.example/bad",
        "http://one.example/good",
        "http://two.example/x?q=1",
        "http://two.example/x?q=2",
        "http://blocked.example/",
        "http://a.b.blocked.example:8080/x",
        "http://user:pw@BLOCKED.example./x",
        "http://notblocked.example/",
        "http://xn--mnchen-3ya.example/",
        "http://münchen.example/",
        "http://x.dotted.example/",
    ]
    data = b"".join(warc("response", http(HTML), url=u) for u in addresses)
    records, _, skips = read(archive, data, url_blocklist=[str(urls)], domain_blocklist=[str(domains)])
    assert [r.columns["url"] for r in records] == [addresses[1], addresses[3], addresses[7]]
    assert skips == {"url_blocklist": 2, "domain_blocklist": 6}


def test_missing_blocklist_is_a_config_error_before_anything_is_read(tmp_path):
    source = WarcSource(name="cc", type="warc", path="x.warc", domain_blocklist=[str(tmp_path / "nowhere")])
    with pytest.raises(ConfigError, match=r"source cc: domain_blocklist: .*nowhere: no such file"):
        WarcReader(source)


def test_missing_library_is_a_config_error_with_its_remedy(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "chardetng_py" else True)
    with pytest.raises(ConfigError, match=r"source cc: chardetng_py is not installed\nhint: pip install"):
        WarcReader(WarcSource(name="cc", type="warc", path="x"))


def test_blocklist_holds_its_entries_and_nothing_else():
    keys = [f"host{n}.example" for n in range(5003)]
    entries = Blocklist(keys[::2])
    assert [k in entries for k in keys] == [i % 2 == 0 for i in range(len(keys))]
    assert "x" not in Blocklist([])


@pytest.mark.parametrize(
    "url", ["", "x", "://", "http://", "http://[::1", "http://[::1]:80/x", "mailto:a@b", "http://a b/c", "\x00"]
)
def test_odd_addresses_have_keys(url):
    assert isinstance(_url_key(url), str)
    assert isinstance(_domain_key(url), str)


# ------------------------------------------------------------------------------------------------------------ reader


def test_reader_is_picklable_and_a_file_that_fits_a_partition_is_one_split():
    reader = pickle.loads(pickle.dumps(WarcReader(WarcSource(name="cc", type="warc", path="x"))))
    splits = reader.splits("x/CC-MAIN.warc.gz", 1 << 30, 256 << 20)
    assert [(s.path, s.start, s.stop, s.first_row) for s in splits] == [("x/CC-MAIN.warc.gz", 0, -1, 0)]
    assert 50 << 20 < splits[0].nbytes < 200 << 20


def test_file_with_more_text_than_a_partition_is_several_splits_unless_it_is_remote_or_read_in_part():
    reader = WarcReader(WarcSource(name="cc", type="warc", path="x"))
    splits = reader.splits("x/CC-MAIN.warc.gz", 1 << 30, 32 << 20)
    assert [s.start for s in splits] == [k << 28 for k in range(4)]
    assert [s.stop for s in splits] == [1 << 28, 2 << 28, 3 << 28, -1]
    assert all(s.nbytes <= 32 << 20 for s in splits)
    assert len(reader.splits("x/CC-MAIN.warc.gz", 1 << 40, 1 << 20)) == 16
    assert len(reader.splits("s3://x/CC-MAIN.warc.gz", 1 << 30, 32 << 20)) == 1
    for limit in ({"max_documents": 10}, {"max_bytes": 10}):
        limited = WarcReader(WarcSource(name="cc", type="warc", path="x", **limit))
        assert len(limited.splits("x/CC-MAIN.warc.gz", 1 << 30, 32 << 20)) == 1


@pytest.mark.parametrize("compress", [gzip.compress, _lz4, _zstd, lambda d: d], ids=["gz", "lz4", "zst", "plain"])
def test_splits_share_the_records_of_a_file_and_know_its_crawl(archive, compress):
    info = warc("warcinfo", b"isPartOf: CC-MAIN-2024-22\r\n")
    members = [info, *(page(HTML + b"<!-- %s -->" % random.Random(n).randbytes(500).hex().encode()) for n in range(40))]
    archive.write_bytes(b"".join(map(compress, members)))
    reader = WarcReader(WarcSource(name="cc", type="warc", path="x", timeout_s=None))
    size = archive.stat().st_size
    (whole,) = reader.splits(str(archive), size, size)
    found = [list(reader.read(s)) for s in reader.splits(str(archive), size, whole.nbytes // 4 + 1)]
    assert [5 < len(items) < 15 for items in found] == [True] * 4
    assert [i.row for items in found for i in items if isinstance(i, Record)] == list(range(1, 41))
    assert {i.columns["dump"] for items in found for i in items if isinstance(i, Record)} == {"CC-MAIN-2024-22"}


def test_recipe_for_common_crawl_makes_a_reader(archive):
    config = load(Path(__file__).parents[2] / "configs" / "commoncrawl.yaml")
    (source,) = config.sources
    archive.write_bytes(page())
    reader = WarcReader(source)
    ((row, record),) = reader.records(reader.splits(str(archive), 1, 1)[0], 0)
    assert row == 0
    assert record.text == SENTENCE
    assert {*source.keep_columns, source.group_column} <= set(record.columns)
    assert (source.max_html_bytes, source.max_html_depth, source.max_html_elements) == Limits()


# -------------------------------------------------------------------------------------------------------- real files


REAL = {
    "sample-0000.warc.gz": (22, {"warc_warcinfo": 1, "warc_request": 22, "warc_metadata": 1, "warc_resource": 2}),
    "sample-0001.warc.gz": (15, {"warc_warcinfo": 1, "warc_request": 15, "warc_metadata": 1, "warc_resource": 2}),
    "warcfile.warc.gz": (15, {"warc_warcinfo": 1, "warc_request": 17, "warc_metadata": 16, "no_text": 1}),
    "whirlwind.warc.gz": (1, {"warc_warcinfo": 1, "warc_request": 1, "warc_metadata": 1}),
    "whirlwind.warc.wet.gz": (1, {"warc_warcinfo": 1}),
    "whirlwind.warc.wat.gz": (0, {"warc_warcinfo": 1, "warc_metadata": 1}),
    "warcio/example.warc.gz": (1, {"warc_warcinfo": 2, "warc_request": 2, "warc_revisit": 1}),
    "warcio/example-bad-non-chunked.warc.gz": (1, {"warc_warcinfo": 2, "warc_request": 2, "warc_revisit": 1}),
    "warcio/example-iana.org-chunked.warc": (1, {"warc_warcinfo": 1, "warc_request": 1}),
    "warcio/example-resource.warc.gz": (0, {"warc_warcinfo": 2, "warc_resource": 1}),
    "warcio/example-wrong-chunks.warc.gz": (1, {"warc_request": 1}),
    "warcio/example.arc.gz": (1, {"warc_warcinfo": 1}),
}


@pytest.mark.parametrize("name", REAL)
def test_real_archive_accounts_for_every_record(shared_data, name):
    documents, reasons = REAL[name]
    records, rejects, skips = read(shared_data(f"warc/{name}"))
    assert (len(records), rejects, skips) == (documents, [], reasons)
    for record in records:
        assert record.text.count("\ufffd") == 0
        assert record.columns["url"].startswith("http")
        assert not re.search(r"</?(?:div|p|span|script)\b", record.text)


def test_crawl_samples_are_readable(shared_data):
    texts = "\n".join(r.text for r in read(shared_data("warc/sample-0000.warc.gz"))[0])
    for words in (
        "Hello, visitor! 👋 My name is Luca Soldaini",
        "Here is a table with my 10 most-recent academic ancestors",
        "Dan is an active entrepreneur with several patents",
        "This post is republished from the ACM CSCW Medium.",
    ):
        assert words in texts
    assert not re.search("Ã.|â€|Â[^A-Za-z ]", texts)  # how UTF-8 taken for windows-1252 shows


def test_legacy_encodings_give_the_same_text_from_gzip_and_lz4(shared_data):
    records = read(shared_data("warc/warcfile.warc.gz"))[0]
    assert records == read(shared_data("warc/warcfile.warc.lz4"))[0]
    by_url = {r.columns["url"]: r for r in records}
    russian = by_url["http://01spb.ru/company/"]
    assert russian.columns["charset"] == "windows-1251"
    assert "Стратегия пожарной безопасности" in russian.text
    chinese = by_url["http://0760.jxtdw.com/area/sanxiang/"]  # header gb2312
    assert chinese.columns["charset"] == "gb18030"
    assert "配色工程师" in chinese.text
    assert "香港最快开奖现场" in by_url["http://041696.com/15477/list_6_4.html"].text  # only a meta says so
    assert collections.Counter(r.columns["charset"] for r in records) == {
        "utf-8": 7,
        "gb18030": 5,
        "windows-1252": 2,
        "windows-1251": 1,
    }
    assert {r.columns["dump"] for r in records} == {"CC-MAIN-2020-34"}


def test_wet_and_warc_of_one_page_agree(shared_data):
    (wet,) = read(shared_data("warc/whirlwind.warc.wet.gz"))[0]
    (page_,) = read(shared_data("warc/whirlwind.warc.gz"))[0]
    assert wet.columns["url"] == page_.columns["url"] == "https://an.wikipedia.org/wiki/Escopete"
    words = page_.text.replace("|", " ").split()
    assert sum(w in wet.text for w in words) > 0.95 * len(words)
    assert len(page_.text) < len(wet.text)  # menus are gone


def test_real_cut_archive_is_marked(shared_data):
    records, rejects, _ = read(shared_data("warc/clipped.warc.gz"))
    assert records == []
    assert [r.reason for r in rejects] == ["truncated at offset 75657 of the unpacked file"]


def test_real_archive_with_a_wrong_length_is_read(shared_data):
    (record,), rejects, _ = read(shared_data("warc/warcio/example-trunc.warc"))
    assert record.text.startswith("This domain is established to be used for illustrative examples in documents.")
    reason = "Content-Length is wrong: no record header follows the block (the record is read)"
    assert [(r.row, r.reason) for r in rejects] == [(None, reason)]


@pytest.mark.parametrize(
    "piece",
    [b"A: b\r\n", b"WARC/1.0\r\nContent-Length: 99999999\r\n\r\n", b"http://a/ 1.2.3.4 20240501102030 text/html 9999999\n", b"\nWARC/1.0", b"W"],
    ids=["headers without end", "lengths beyond the file", "ARC lengths beyond the file", "first lines", "half a first line"],
)  # fmt: skip
def test_what_is_no_record_is_passed_over_in_linear_time(piece):
    def seconds(mib):
        raw = gzip.compress(b"WARC/1.0\r\n" * (piece[:1] == b"A") + piece * (mib * (1 << 20) // len(piece)), 1)
        began = time.process_time()
        for record in records(io.BytesIO(raw)):
            if isinstance(record, ArchiveRecord):
                record.finish()
        return time.process_time() - began

    short, long = min(seconds(1) for _ in range(2)), seconds(4)
    assert long < 9 * short + 0.1  # four times the bytes; squared it would be sixteen
