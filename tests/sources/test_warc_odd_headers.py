"""Archives with headers that are odd in every field: what is read, and what is counted where something is not."""

from __future__ import annotations

import gzip
import io
import time

import lz4.frame
import pytest
from sources.test_warc import ARC_HEAD, HTML, SENTENCE, http, page, read, warc
from warcio.archiveiterator import ArchiveIterator

from gpu_curate.sources.archive.records import ArchiveRecord, records

PLAIN_AND_GZIP = pytest.mark.parametrize("compress", [gzip.compress, lambda d: d], ids=["gz", "plain"])


@pytest.fixture
def archive(tmp_path):
    return tmp_path / "a.arc"


def arc(n: int = 0, header: str | None = None, body: bytes = HTML, end: bytes = b"\n") -> bytes:
    """An ARC record; `header` may name {n} and {length}."""
    block = http(body)
    line = header or "http://e.org/{n} 1.2.3.4 20140216050221 text/html {length}"
    return line.format(n=n, length=len(block)).encode("latin-1") + b"\n" + block + end


# header line → URL, date; None where warcio gives none
URL, DATE = "http://e.org/{n}", "2014-02-16T05:02:21Z"
ODD = {
    "spaces in the URL": ("http://e.org/{n} b c 1.2.3.4 20140216050221 text/html {length}", URL + " b c", DATE),
    "upper case": ("HTTP://E.ORG/{n} 1.2.3.4 20140216050221 text/html {length}", "HTTP://E.ORG/{n}", DATE),
    "no scheme": ("e.org/{n} 1.2.3.4 20140216050221 text/html {length}", "e.org/{n}", DATE),
    "no URL": ("- 1.2.3.4 20140216050221 text/html {length}", "-", DATE),
    "dns": ("dns:e.org 1.2.3.4 20140216050221 text/dns {length}", "dns:e.org", DATE),
    "latin-1": ("http://e.org/{n}\xe9\xfc 1.2.3.4 20140216050221 text/html {length}", URL + "éü", DATE),
    "long URL": (
        "http://e.org/{n}" + "x" * 9000 + " 1.2.3.4 20140216050221 text/html {length}",
        URL + "x" * 9000,
        DATE,
    ),
    "a date in the URL": (
        "http://e.org/{n} 20010101000000 b 1.2.3.4 20140216050221 text/html {length}",
        URL + " 20010101000000 b",
        DATE,
    ),
    "no address": ("http://e.org/{n}  20140216050221 text/html {length}", URL, DATE),
    "address -": ("http://e.org/{n} - 20140216050221 text/html {length}", URL, DATE),
    "a name as address": ("http://e.org/{n} www.e.org 20140216050221 text/html {length}", URL, DATE),
    "IPv6": ("http://e.org/{n} 2001:db8::1 20140216050221 text/html {length}", URL, DATE),
    "field of the address missing": ("http://e.org/{n} 20140216050221 text/html {length}", URL, DATE),
    "short date": ("http://e.org/{n} 1.2.3.4 201402160502 text/html {length}", URL, "2014-02-16T05:02:00Z"),
    "long date": ("http://e.org/{n} 1.2.3.4 20140216050221123 text/html {length}", URL, DATE),
    "a date that is none": ("http://e.org/{n} 1.2.3.4 20149999999999 text/html {length}", URL, "20149999999999"),
    "no date": ("http://e.org/{n} 1.2.3.4  text/html {length}", URL, None),
    "date -": ("http://e.org/{n} 1.2.3.4 - text/html {length}", URL, None),
    "no type": ("http://e.org/{n} 1.2.3.4 20140216050221  {length}", URL, DATE),
    "type with a parameter": ("http://e.org/{n} 1.2.3.4 20140216050221 text/html; charset=utf-8 {length}", URL, DATE),
    "field of the type missing": ("http://e.org/{n} 1.2.3.4 20140216050221 {length}", URL, DATE),
    "length +": ("http://e.org/{n} 1.2.3.4 20140216050221 text/html +{length}", URL, DATE),
    "length 00": ("http://e.org/{n} 1.2.3.4 20140216050221 text/html 00{length}", URL, DATE),
    "CRLF": ("http://e.org/{n} 1.2.3.4 20140216050221 text/html {length}\r", URL, DATE),
    "spaces behind": ("http://e.org/{n} 1.2.3.4 20140216050221 text/html {length}  ", URL, DATE),
    "tabs": ("http://e.org/{n}\t1.2.3.4\t20140216050221\ttext/html\t{length}", URL, DATE),
    "more fields": ("http://e.org/{n} 1.2.3.4 20140216050221 text/html x y {length}", URL, DATE),
    "version 2": ("http://e.org/{n} 1.2.3.4 20140216050221 text/html 200 - - 12345678 x.arc.gz {length}", URL, DATE),
    "version 2, no date": ("http://e.org/{n} 1.2.3.4 - text/html 200 - - 12345678 x.arc.gz {length}", URL, None),
    "version 2, no address": ("http://e.org/{n} - 20140216050221 - 200 ABC - 0 x.arc {length}", URL, DATE),
}
# the block goes up to the next header
NO_LENGTH = {
    "length missing": "http://e.org/{n} 1.2.3.4 20140216050221 text/html",
    "length empty": "http://e.org/{n} 1.2.3.4 20140216050221 text/html ",
    "length -": "http://e.org/{n} 1.2.3.4 20140216050221 text/html -",
    "negative length": "http://e.org/{n} 1.2.3.4 20140216050221 text/html -17",
    "length with letters": "http://e.org/{n} 1.2.3.4 20140216050221 text/html 12x",
    "length of 30 digits": "http://e.org/{n} 1.2.3.4 20140216050221 text/html " + "9" * 30,
    "huge length": "http://e.org/{n} 1.2.3.4 20140216050221 text/html 99999999999999",
    "wrong length": "http://e.org/{n} 1.2.3.4 20140216050221 text/html 9{length}",
    "short length": "http://e.org/{n} 1.2.3.4 20140216050221 text/html 30",
}


@PLAIN_AND_GZIP
@pytest.mark.parametrize("name", ODD)
def test_arc_header_odd_in_one_field_costs_nothing(archive, name, compress):
    line, url, date = ODD[name]
    data = b"".join(map(compress, [ARC_HEAD, arc(0), arc(1, line), arc(2, line), arc(3)]))
    found, rejects, _ = read(archive, data)
    assert rejects == []
    assert [(r.row, r.text) for r in found] == [(n, SENTENCE) for n in (1, 2, 3, 4)]
    assert [r.columns["url"] for r in found[1:3]] == [url.format(n=n) for n in (1, 2)]
    assert [r.columns["date"] for r in found] == ["2014-02-16T05:02:21Z", date, date, "2014-02-16T05:02:21Z"]


@PLAIN_AND_GZIP
@pytest.mark.parametrize("name", NO_LENGTH)
def test_arc_record_without_a_right_length_is_read_up_to_the_next(archive, name, compress):
    line = NO_LENGTH[name]
    for last in (arc(3), b""):
        data = b"".join(map(compress, [ARC_HEAD, arc(0), arc(1, line), arc(2, line), last]))
        found, rejects, _ = read(archive, data)
        wanted = [1, 2, 3, 4] if last else [1, 2, 3]
        if not last and name in ("huge length", "wrong length") and compress is not gzip.compress:
            # nothing tells it from a file that was cut
            assert rejects.pop().reason.startswith("truncated")
            wanted.pop()
        assert [(r.row, r.text) for r in found] == [(n, SENTENCE) for n in wanted]
        assert [r.columns["url"] for r in found] == [f"http://e.org/{n - 1}" for n in wanted]
        assert {(r.row, r.passed_bytes) for r in rejects} == {(None, 0)}
        assert {r.reason.partition(":")[0] for r in rejects} <= {"bad record header", "Content-Length is wrong"}


@PLAIN_AND_GZIP
@pytest.mark.parametrize("name", [*ODD, *NO_LENGTH])
def test_resynchronising_finds_what_parsing_reads(archive, name, compress):
    line = ODD[name][0] if name in ODD else NO_LENGTH[name]
    junk = b"<p>what is left of a page</p>\n" * 3
    members = [ARC_HEAD, arc(0), junk, arc(1, line), arc(2)]
    if name == "no URL":
        members[3] = members[3].replace(b"- 1.2", b"\n- 1.2")
    found, rejects, _ = read(archive, compress(b"".join(members)) if compress is gzip.compress else b"".join(members))
    assert [r.text for r in found] == [SENTENCE] * 3
    gap = next(r for r in rejects if r.row is not None)
    assert (gap.reason, gap.head[:20]) == ("no record header where one is due", junk[:20])
    assert abs(gap.passed_bytes - len(junk)) <= 1


@PLAIN_AND_GZIP
@pytest.mark.parametrize("name", ["plain line", *ODD])
def test_slice_of_an_arc_file_needs_no_filedesc(archive, name, compress):
    line = ODD[name][0] if name in ODD else None
    found, rejects, _ = read(archive, b"".join(map(compress, [arc(0, line), arc(1), arc(2)])))
    assert rejects == []
    assert [(r.row, r.text) for r in found] == [(n, SENTENCE) for n in range(3)]


def test_slice_that_begins_within_a_record_says_how_many_bytes_are_lost(archive):
    data = arc(0)[200:] + arc(1) + arc(2)
    found, (reject,), _ = read(archive, data)
    assert [r.columns["url"] for r in found] == ["http://e.org/1", "http://e.org/2"]
    assert (reject.row, reject.offset, reject.passed_bytes) == (0, 0, len(arc(0)) - 200)


@pytest.mark.parametrize("compress", [gzip.compress, lz4.frame.compress], ids=["gz", "lz4"])
def test_members_bound_what_an_odd_line_costs(archive, compress):
    members = [arc(n, body=HTML + b"<!-- %d -->" % n) for n in range(5)]
    members[1] = b"\x00\x01 broken beyond repair\n" + members[1].partition(b"\n")[2]
    found, rejects, _ = read(archive, b"".join(map(compress, [ARC_HEAD, *members])))
    assert [r.columns["url"] for r in found] == [f"http://e.org/{n}" for n in (0, 2, 3, 4)]
    assert sum(r.passed_bytes for r in rejects) == len(members[1])


def test_what_is_passed_over_is_counted_in_bytes_of_the_file_where_it_cannot_be_unpacked(archive):
    members = [bytearray(gzip.compress(arc(n), 0)) for n in range(4)]
    for n in (1, 2):
        members[n][-6] ^= 1  # the checksum, so that the record is read, then found damaged
        members[n][10:12] = b"\xff\xff"  # no such block
    found, rejects, _ = read(archive, gzip.compress(ARC_HEAD) + b"".join(members))
    assert [r.columns["url"] for r in found] == ["http://e.org/0", "http://e.org/3"]
    assert sum(r.passed_bytes for r in rejects) == len(members[1]) + len(members[2])


def test_time_is_linear_in_odd_arc_lines():
    odd = "http://e.org/{n} 1.2.3.4 20140216050221 text/html "
    for data in (
        ARC_HEAD + b"".join(arc(n, odd + "99999999") for n in range(4000)),
        gzip.compress(ARC_HEAD + b"".join(arc(n, odd + "700000") for n in range(4000))),
        gzip.compress(ARC_HEAD + b"".join(arc(n, odd + "-") for n in range(4000))),
        ARC_HEAD + b"x\n" + b"see: 1 20140216050221 20140216050221 \n" * 30_000,
        ARC_HEAD + b"x\n" + b"a:" + b" 20140216050221" * 100_000,
        ARC_HEAD + b"x\n" + (b"a " * 4000 + b"\n") * 300,
    ):
        start = time.process_time()
        for record in records(io.BytesIO(data)):
            if isinstance(record, ArchiveRecord):
                record.finish()
        assert time.process_time() - start < 5


@pytest.mark.parametrize("name", [*ODD, *NO_LENGTH])
def test_warcio_reads_no_more_of_an_odd_arc_file(archive, name):
    line = ODD[name][0] if name in ODD else NO_LENGTH[name]
    for data in (
        b"".join(map(gzip.compress, [ARC_HEAD, arc(0), arc(1, line), arc(2)])),
        b"".join(map(gzip.compress, [arc(1, line), arc(2)])),
        b"".join([ARC_HEAD, arc(0), arc(1, line), arc(2)]),
    ):
        theirs = []
        try:
            for record in ArchiveIterator(io.BytesIO(data)):
                if record.rec_type == "response":
                    theirs.append(record.raw_stream.read())
        except Exception:  # it stops at the first line that it cannot read
            pass
        assert len(read(archive, data)[0]) >= len(theirs)


# ------------------------------------------------------------------------------------------------------------- WARC

BLOCK = http(HTML)
LINES = {
    "lower-case version": b"warc/1.0\r\nWARC-Type: response\r\nContent-Length: %d\r\n\r\n",
    "version 0.17": b"WARC/0.17\r\nWARC-Type: response\r\nContent-Length: %d\r\n\r\n",
    "version 1.1": b"WARC/1.1\r\nWARC-Type: response\r\nContent-Length: %d\r\n\r\n",
    "version 2": b"WARC/2\r\nWARC-Type: response\r\nContent-Length: %d\r\n\r\n",
    "more on the version line": b"WARC/1.0 example\r\nWARC-Type: response\r\nContent-Length: %d\r\n\r\n",
    "LF only": b"WARC/1.0\nWARC-Type: response\nContent-Length: %d\n\n",
    "names in lower case": b"WARC/1.0\r\nwarc-type: response\r\ncontent-length: %d\r\n\r\n",
    "names in upper case": b"WARC/1.0\r\nWARC-TYPE: RESPONSE\r\nCONTENT-LENGTH: %d\r\n\r\n",
    "no space behind colons": b"WARC/1.0\r\nWARC-Type:response\r\nContent-Length:%d\r\n\r\n",
    "space before colons": b"WARC/1.0\r\nWARC-Type : response\r\nContent-Length\t: %d\r\n\r\n",
    "folded": b"WARC/1.0\r\nWARC-Type: response\r\nWARC-Target-URI:\r\n http://e.org\r\nContent-Length:\r\n\t%d\r\n\r\n",
    "length +": b"WARC/1.0\r\nWARC-Type: response\r\nContent-Length: +%d\r\n\r\n",
    "length twice": b"WARC/1.0\r\nWARC-Type: response\r\nContent-Length: %d\r\nContent-Length: 3\r\n\r\n",
    "blank line of spaces": b"WARC/1.0\r\nWARC-Type: response\r\nContent-Length: %d\r\n \t\r\n",
    "type missing": b"WARC/1.0\r\nContent-Type: application/http; msgtype=response\r\nContent-Length: %d\r\n\r\n",
    "type misspelt": (
        b"WARC/1.0\r\nWARC-Type: rezponse\r\nContent-Type: application/http;msgtype=response\r\n"
        b"Content-Length: %d\r\n\r\n"
    ),
}
NOTED = {  # the record is read, and something is said
    "a line without a colon": b"WARC/1.0\r\nWARC-Type: response\r\nwhat\r\nContent-Length: %d\r\n\r\n",
    "damaged version": b"XARC/1.0\r\nWARC-Type: response\r\nContent-Length: %d\r\n\r\n",
    "no length": b"WARC/1.0\r\nWARC-Type: response\r\n\r\n",
    "misspelt length": b"WARC/1.0\r\nWARC-Type: response\r\nContent-Lenght: %d\r\n\r\n",
    "empty length": b"WARC/1.0\r\nWARC-Type: response\r\nContent-Length:\r\n\r\n",
    "negative length": b"WARC/1.0\r\nWARC-Type: response\r\nContent-Length: -%d\r\n\r\n",
    "length in words": b"WARC/1.0\r\nWARC-Type: response\r\nContent-Length: many\r\n\r\n",
    "length with a unit": b"WARC/1.0\r\nWARC-Type: response\r\nContent-Length: %d bytes\r\n\r\n",
    "huge length": b"WARC/1.0\r\nWARC-Type: response\r\nContent-Length: 9999999%d\r\n\r\n",
}


def _filled(header: bytes) -> bytes:
    return (header % len(BLOCK) if b"%d" in header else header) + BLOCK + b"\r\n\r\n"


@PLAIN_AND_GZIP
@pytest.mark.parametrize("name", [*LINES, *NOTED])
def test_warc_header_odd_in_one_field_costs_nothing(archive, name, compress):
    odd = _filled(LINES.get(name) or NOTED[name])
    found, rejects, _ = read(archive, b"".join(map(compress, [page(), odd, odd, page()])))
    assert [(r.row, r.text) for r in found] == [(n, SENTENCE) for n in range(4)]
    assert [(r.row, r.passed_bytes) for r in rejects] == ([(None, 0)] * 2 if name in NOTED else [])
    found, _, _ = read(archive, compress(page() + b"junk " * 100 + b"\n" + odd + page()))
    if name != "damaged version":  # known by its second line, where it is due
        assert [r.text for r in found] == [SENTENCE] * 3


@PLAIN_AND_GZIP
def test_record_without_a_length_is_not_given_what_belongs_to_the_next(archive, compress):
    damaged = b"what is this\r\n" + page(b"<p>another page").partition(b"\r\n")[2].replace(
        b"WARC-Type", b"\x00ARC-Type"
    )
    first = warc("response", BLOCK).replace(b"Content-Length", b"Content-Lenght")
    found, rejects, _ = read(archive, compress(first + damaged + page()))
    assert [r.text for r in found] == [SENTENCE] * 2
    assert len(rejects) >= 1


@PLAIN_AND_GZIP
def test_header_in_the_midst_of_a_line_is_found_behind_a_record_that_was_cut(archive, compress):
    cut = page(HTML)[:-60]
    found, (reject,), _ = read(archive, compress(page() + cut + page() + page()))
    assert found[0].text == SENTENCE
    assert [r.text for r in found][-2:] == [SENTENCE] * 2
    assert reject.reason.startswith("Content-Length is wrong")
