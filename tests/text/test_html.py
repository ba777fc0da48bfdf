"""HTML to text: charsets, the scan for size and depth against a slow one, extraction."""

from __future__ import annotations

import codecs
import contextlib
import re
import time
import zipfile
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu_curate.errors import InputError
from gpu_curate.text.html import (
    MAX_ATTRIBUTES,
    MAX_INLINE_RUN,
    Extraction,
    Limits,
    charset_name,
    check,
    declared_charset,
    decode,
    decoded,
    extract,
    page_text,
)
from gpu_curate.text.html_scan import measure, scan

SENTENCE = "One short paragraph of exactly fifteen words stands here so that it can be counted."
RUSSIAN = "Паром отходит от северного причала в девять часов утра и заходит на четыре острова."


def wrap(body: str, head: str = "<title>t</title>") -> str:
    return f"<html><head>{head}</head><body>{body}</body></html>"


# ---------------------------------------------------------------------------------------------------------- charset


@pytest.mark.parametrize(
    ("label", "name"),
    [
        ("UTF8", "utf-8"),
        (" GB2312 ", "gb18030"),
        ("gbk", "gb18030"),
        ("gb_2312-80", "gb18030"),
        ("ISO-8859-1", "windows-1252"),
        ("latin1", "windows-1252"),
        ("us-ascii", "windows-1252"),
        ("iso-8859-9", "windows-1254"),
        ("tis-620", "windows-874"),
        ("x-sjis", "shift_jis"),
        ("Shift-JIS", "shift_jis"),
        ("ks_c_5601-1987", "euc-kr"),
        ("big5-hkscs", "big5"),
        ("koi8-ru", "koi8-u"),
        ("x-cp1251", "windows-1251"),
        ("cp1251", "windows-1251"),
        ("iso-8859-8-i", "iso-8859-8"),
        ("utf-16", "utf-16le"),
        ('"utf-8"', "utf-8"),
        ("utf-8-sig", "utf-8"),
        # encodings that browsers do not know
        ("IBM855", "cp855"),
        ("csIBM855", "cp855"),
        ("cp-437", "cp437"),
        ("DOS-850", "cp850"),
        ("ibm00858", "cp858"),
        ("IBM866", "ibm866"),
        ("ms1361", "johab"),
        ("x-Johab", "johab"),
        ("x-mac-greek", "mac-greek"),
        ("KOI8-T", "koi8-t"),
        ("hz-gb-2312", "hz"),
        ("cp037", None),  # EBCDIC
        ("utf-32", None),
        # no text encodings of the web
        ("", None),
        (None, None),
        ("none", None),
        ("rot13", None),
        ("hex", None),
        ("unicode_escape", None),
        ("idna", None),
        ("utf-7", None),
        ("euc-tw", None),
        ("a\0b", None),
    ],
)
def test_label_means_what_a_browser_takes_it_for(label, name):
    assert charset_name(label) == name


@pytest.mark.parametrize(
    ("head", "name"),
    [
        (b'<meta charset="windows-1251">', "windows-1251"),
        (b"<META CHARSET=koi8-r>", "koi8-r"),
        (b'<meta http-equiv="Content-Type" content="text/html; charset=gb2312">', "gb18030"),
        (b'<?xml version="1.0" encoding="iso-8859-2"?><html>', "iso-8859-2"),
        (b'<!-- <meta charset="koi8-r"> --><meta charset="euc-jp">', "euc-jp"),
        (b"<!-- unfinished <meta charset=koi8-r>", None),
        (b'<meta charset="utf-16">', "utf-8"),
        (b'<meta name="charset" content="none">', None),
        (b'<meta charset="bogus">', None),
        (b"", None),
    ],
)
def test_declaration_is_found_where_it_counts(head, name):
    assert declared_charset(head) == name


FOREIGN = [
    ("IBM855", "cp855", RUSSIAN),
    ("cp737", "cp737", "Το πλοίο φεύγει από τη βόρεια προβλήτα στις εννέα το πρωί."),
    ("cp852", "cp852", "Příliš žluťoučký kůň úpěl ďábelské ódy."),
    ("cp437", "cp437", "Die Fähre verläßt den Pier um neun, ½ Stunde später die zweite: ═══╗"),
    ("cp850", "cp850", "A balsa sai do cais às nove e não volta antes das três."),
    ("cp720", "cp720", "تغادر العبارة الرصيف الشمالي في الساعة التاسعة"),
    ("cp862", "cp862", "המעבורת יוצאת מהרציף הצפוני בשעה תשע"),
    ("johab", "johab", "배는 아홉 시에 북쪽 부두를 떠나 네 섬에 들른다."),
    ("x-mac-greek", "mac-greek", "Το πλοίο φεύγει από τη βόρεια προβλήτα στις εννέα το πρωί."),
    ("koi8-t", "koi8-t", "Китоби нав дар бораи забони тоҷикӣ нашр шуд."),
    ("kz1048", "kz1048", "Кеме солтүстік айлақтан сағат тоғызда шығады."),
    ("euc-jis-2004", "euc_jis_2004", "フェリーは九時に北の桟橋を出ます。"),
    ("hz-gb-2312", "hz", "渡轮九点离开北码头"),
    ("iso-2022-kr", "iso2022_kr", "배는 아홉 시에 북쪽 부두를 떠난다"),
]


@pytest.mark.parametrize(("label", "name", "text"), FOREIGN)
def test_encoding_that_browsers_do_not_know_is_tried_where_it_is_declared(label, name, text):
    plain = wrap(f"<p>{text * 3}</p>")
    meta = wrap(f"<p>{text * 3}</p>", f'<meta http-equiv="Content-Type" content="text/html; charset={label}">')
    assert decoded(plain.encode(name), label) == (plain, name, "header")
    assert decoded(meta.encode(name)) == (meta, name, "meta")
    assert decoded(meta.encode(name), "no-such-thing") == (meta, name, "meta")
    assert decoded(text.encode(name), label, html=False) == (text, name, "header")
    assert decoded(plain.encode(), label) == (plain, "utf-8", "bytes")  # a label is a claim


def test_what_told_the_encoding_is_named():
    russian = wrap(f"<p>{RUSSIAN * 3}</p>").encode("cp1251")
    meta = wrap(f"<p>{RUSSIAN * 3}</p>", '<meta charset="windows-1251">').encode("cp1251")
    for body, header, evidence in (
        (codecs.BOM_UTF8 + b"x", "koi8-r", "bom"),
        (codecs.BOM_UTF32_LE + "aé北".encode("utf-32-le"), None, "bom"),
        (b"ascii", None, "bytes"),
        (RUSSIAN.encode(), "koi8-r", "bytes"),
        ((RUSSIAN * 20).encode()[:-1], None, "bytes"),
        (russian, "windows-1251", "header"),
        (meta, "windows-1251", "header"),
        (meta, None, "meta"),
        (meta, "iso-8859-1", "meta"),
        (russian, None, "detector"),
        (russian, "iso-8859-1", "detector"),
        (b"<p title='\xe9'>ascii</p><script>'\xe9'</script>", None, "default"),
    ):
        assert decoded(body, header).evidence == evidence, (body[:30], header)
    assert decoded(codecs.BOM_UTF32_LE + "aé北".encode("utf-32-le")).text == "aé北"


def test_declaration_is_sought_in_linear_time():
    for hostile in (
        b"<!--" * 50_000,
        b"<meta " * 50_000,
        b"<!-- -->" + b"<!--" * 50_000,
        b"<script" * 50_000 + b"\xe0",
        b"<" * 300_000 + b"\xe0",
    ):
        start = time.process_time()
        decode(hostile)
        assert time.process_time() - start < 2


ENCODED = [("koi8-r", "koi8-r"), ("cp1251", "windows-1251"), ("iso8859-5", "iso-8859-5")]


@pytest.mark.parametrize(("codec", "name"), ENCODED)
def test_header_then_declaration_then_detector(codec, name):
    body = wrap(f"<p>{RUSSIAN * 3}</p>").encode(codec)
    meta = wrap(f"<p>{RUSSIAN * 3}</p>", f'<meta charset="{name}">').encode(codec)
    for page, header in (
        (body, name),
        (meta, None),
        (body, None),
        (meta, "iso-8859-1"),
        (body, "utf-8"),
        (body, "iso-8859-1"),
    ):
        text, found = decode(page, header)
        assert found in (name, "koi8-u")  # the same letters in Russian
        assert RUSSIAN in text
        assert "\ufffd" not in text


def test_utf8_is_taken_for_utf8_whatever_is_claimed():
    body = wrap("<p>Größe, naïve café, 北京</p>", '<meta charset="iso-8859-1">').encode()
    assert decode(body, "windows-1252") == (body.decode(), "utf-8")
    assert decode(b"plain ascii", "gb2312") == ("plain ascii", "utf-8")
    assert decode(b"", None) == ("", "utf-8")


def test_byte_order_mark_wins_and_is_gone():
    assert decode(codecs.BOM_UTF8 + "é".encode(), "iso-8859-1") == ("é", "utf-8")
    assert decode(codecs.BOM_UTF16_LE + "aé北".encode("utf-16-le")) == ("aé北", "utf-16le")
    assert decode(codecs.BOM_UTF16_BE + "aé北".encode("utf-16-be")) == ("aé北", "utf-16be")
    text = wrap("no mark, but the header says it")
    assert decode(text.encode("utf-16-be"), "utf-16be") == (text, "utf-16be")


def test_utf8_with_damage_keeps_its_good_parts():
    body = (RUSSIAN * 20).encode()
    text, name = decode(body[:-2])  # cut inside a character
    assert name == "utf-8"
    assert text == (RUSSIAN * 20)[:-2] + "\ufffd"
    middle = len(RUSSIAN.encode()) * 7
    text, name = decode(body[:middle] + b"\xff\xe9" + body[middle:], "utf-8")
    assert name == "utf-8"
    assert text.replace("\ufffd", "") == RUSSIAN * 20


def test_windows_1252_with_bytes_that_python_does_not_know():
    body = wrap("<p>Der Käufer zahlt 20 \u20ac \u201eheute\u201c</p>").encode("cp1252") + b"\x81\x9d"
    text, name = decode(body, "iso-8859-1")
    assert name == "windows-1252"
    assert "Der Käufer zahlt 20 € „heute“" in text
    assert "\x81" not in text


def test_japanese_escape_sequences_are_decoded_only_in_seven_bit_text():
    text = "フェリーは九時に北の桟橋を出ます。"
    assert decode(text.encode("iso2022_jp")) == (text, "iso-2022-jp")
    assert decode(b"\x1b$B colour of a terminal log " + "é".encode())[1] == "utf-8"


@pytest.mark.parametrize(
    ("language", "codec"),
    [
        ("Russian_Russky", "cp1251"), ("Russian_Russky", "koi8-r"), ("Russian_Russky", "cp866"), ("Ukrainian", "koi8-u"),
        ("Greek_Ellinika", "cp1253"), ("Hebrew_Ivrit", "cp1255"), ("Japanese_Nihongo", "cp932"),
        ("Japanese_Nihongo", "euc-jp"), ("Chinese_Mandarin", "gb18030"), ("Chinese_Mandarin", "big5hkscs"),
        ("Korean_Hankuko", "cp949"), ("Czech", "cp1250"), ("Hungarian_Magyar", "iso8859-2"), ("Turkish_Turkce", "cp1254"),
    ],
)  # fmt: skip
def test_undeclared_legacy_encodings_are_detected(shared_data, language, codec):
    with zipfile.ZipFile(shared_data("lid/udhr.zip")) as z:
        text = z.read(f"udhr/{language}-UTF8").decode("utf-8", "ignore").lstrip("\ufeff")
    text = text.encode(codec, "ignore").decode(codec)
    for page in (text, wrap(f"<p>{text[:3000]}</p>")):
        assert decode(page.encode(codec))[0] == page


def test_real_legacy_texts_decode_without_mojibake(shared_data):
    names = {
        "Latin1": "cp1252",
        "Latin2": "cp1250",
        "Arabic": "cp1256",
        "Greek": "cp1253",
        "Hebrew": "cp1255",
        "EUC": "euc-jp",
        "SJIS": "cp932",
        "GB2312": "gb18030",
        "Turkish": "cp1254",
    }
    right = total = 0
    with zipfile.ZipFile(shared_data("lid/udhr.zip")) as z:
        for path in z.namelist():
            codec = names.get(path.rpartition("-")[2])
            body = z.read(path) if codec else b""
            if not body.isascii():
                total += 1
                right += decode(body, html=False)[0] == body.decode(codec, "replace")
    assert total > 100
    assert right / total > 0.93  # 96 % measured; what is missed are small languages of America written in Latin letters


# ------------------------------------------------------------------------------------------------------------- scan

VOID = frozenset(
    re.findall(
        r"\w+", "area base basefont bgsound br col embed frame hr img input keygen link meta param source track wbr"
    )
)
RAW = {"script", "style", "textarea", "title", "xmp", "iframe", "noembed", "noframes"}
INLINE = frozenset(
    re.findall(
        r"\w+",
        "a abbr acronym b bdi bdo big cite code del dfn em font i ins kbd label mark q s samp small span strike strong sub "
        "sup time tt u var",
    )
)
PRIORITY = {
    "div": 1,
    "td": 2,
    "th": 2,
    "tr": 3,
    "thead": 4,
    "tbody": 4,
    "tfoot": 4,
    "table": 5,
    "head": 6,
    "body": 6,
    "html": 7,
}
ENDS = {
    "p": {"p"}, "li": {"li", "p"}, "dt": {"dt", "dd", "p"}, "dd": {"dt", "dd", "p"}, "option": {"option"},
    "optgroup": {"option", "optgroup"}, "td": {"td", "th", "p"}, "th": {"td", "th", "p"}, "tr": {"td", "th", "p", "tr"},
    **{n: {"td", "th", "p", "tr", "thead", "tbody", "tfoot"} for n in ("thead", "tbody", "tfoot")},
    "rt": {"rt", "rp"}, "rp": {"rt", "rp"},
}  # fmt: skip


class SlowScan(HTMLParser):
    """The definition of `scan`, on the standard library's tokenizer."""

    def __init__(self) -> None:
        super().__init__()
        self.elements = self.deepest = self.longest = self.attributes = 0
        self.open: list[str] = []
        self.runs = [0]

    def handle_starttag(self, tag, attrs):
        self.elements += 1
        self.attributes = max(self.attributes, len(attrs))
        while self.open and self.open[-1] in ENDS.get(tag, ()):
            self.open.pop()
            self.runs.pop()
        if tag in INLINE:
            self.runs[-1] += 1
            self.longest = max(self.longest, self.runs[-1])
        if tag not in VOID | RAW:
            self.open.append(tag)
            self.runs.append(0)
            self.deepest = max(self.deepest, len(self.open))

    handle_startendtag = handle_starttag

    def handle_endtag(self, tag):
        keep = len(self.open)
        while keep and self.open[keep - 1] != tag and PRIORITY.get(self.open[keep - 1], 0) <= PRIORITY.get(tag, 0):
            keep -= 1
        if keep and self.open[keep - 1] == tag:
            while len(self.open) >= keep:
                left, run = self.open.pop(), self.runs.pop()
                if left in INLINE:
                    self.runs[-1] += run
                    self.longest = max(self.longest, self.runs[-1])


@pytest.mark.parametrize(
    "tag",
    [
        "<p>",
        "<p >",
        "<p a>",
        "<p a=1 b='2 3 4' c=\"5 > 6\" d>",
        "<p a = 1 b= '2' c =3>",
        "<a href=http://e.org/a/b/c/ title=x>",
        "<a href='x'title='y'id=z>",
        "<br/>",
        "<br a b/>",
        "<img\na=1\n\tb=2\n/>",
        "<p a a a a>",
        "<p a='unfinished b c d'>",
        "<p " + " ".join(f"a{n}=b" for n in range(1009)) + ">",
        "<p " + "x " * 1013 + ">",
    ],
)
def test_attributes_are_counted_as_a_tokenizer_does(tag):
    slow = SlowScan()
    slow.feed(f"<div class=a>{tag}text a b c")
    assert measure(f"<div class=a>{tag}text a b c".encode(), 250).attributes == max(slow.attributes, 1)


def test_elements_with_too_many_attributes_are_refused_before_a_parser_sees_them():
    most = wrap("<p " + " ".join(f"a{n}=b" for n in range(MAX_ATTRIBUTES)) + f">{SENTENCE}")
    check(most, Extraction())
    for more in (
        wrap("<p " + " ".join(f"a{n}=b" for n in range(80_000)) + f">{SENTENCE}"),
        wrap("<p " + "a " * (MAX_ATTRIBUTES + 1) + f">{SENTENCE}"),
    ):
        start = time.process_time()
        with pytest.raises(InputError, match="html has more than 1000 attributes in one element"):
            page_text(more.encode())
        assert time.process_time() - start < 3  # 17 s for 80,000 without the bound
    check(wrap("</p " + "a " * 5000 + f">{SENTENCE}"), Extraction())  # an end tag has none


def slow_scan(html: str) -> tuple[int, int, int]:
    slow = SlowScan()
    slow.feed(html)
    return slow.elements, slow.deepest, slow.longest


NAMES = sorted(
    {
        "div",
        "p",
        "li",
        "ul",
        "td",
        "th",
        "tr",
        "table",
        "tbody",
        "thead",
        "dl",
        "dt",
        "dd",
        "a",
        "b",
        "span",
        "br",
        "img",
        "option",
        "optgroup",
        "select",
        "h2",
        "body",
        "blockquote",
        "x-custom",
        "ruby",
        "rt",
    }
)
TOKENS = st.one_of(
    st.sampled_from(NAMES).map("<{}>".format),
    st.sampled_from(NAMES).map("</{}>".format),
    st.sampled_from(NAMES).map(lambda n: f"<{n.upper()} class=\"a>b\" title='<i>' hidden>"),
    st.sampled_from(["text ", "a < b ", "<!-- <div> -->", "<!DOCTYPE html>", "<?php x ?>", "\n", "1<2", "</>", "<>"]),
    st.sampled_from(["<script>'<div>'</script>", "<style>a>b{}</style>", "<title>a</title>", "<br/>", "<hr />"]),
)


@settings(max_examples=100, deadline=None)
@given(st.lists(TOKENS, max_size=120).map("".join))
def test_scan_counts_what_the_slow_scan_counts(html):
    assert scan(html.encode(), 500) == slow_scan(html)


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=400), st.integers(1, 9))
def test_scan_takes_any_bytes(data, max_depth):
    elements, depth, run = scan(data, max_depth)
    assert 0 <= run <= elements <= data.count(b"<")
    assert 0 <= depth <= max_depth + 1


@pytest.mark.parametrize(
    "html", ["", "<", "</", "<a", "<!", "<!-", "<!--", "<a b", "<a b=", "<a b='", "<script>", "<script></scrip", "x"]
)
def test_scan_ends_inside_every_construct(html):
    assert scan(html.encode(), 10)[0] <= 1


def test_scan_of_real_markup_is_not_fooled():
    assert scan(wrap("<ul>" + "<li>x" * 1000 + "</ul>").encode(), 250)[1] == 4
    assert scan(wrap("<table>" + "<tr><td>x" * 1000).encode(), 250)[1] == 5
    assert scan(wrap("<p>para" * 1000).encode(), 250)[1] == 3
    assert scan(wrap("<div>" * 240 + "</div>" * 240).encode(), 250)[1] == 242
    assert scan(wrap("<div>" * 5000).encode(), 250)[1] == 251
    assert scan(wrap("<p>" + "<b><i>x</i></b> " * 500).encode(), 250) == (1005, 5, 1000)


def test_scan_bounds_the_depth_that_the_parser_builds():
    from lxml.html import HTMLParser as Parser
    from lxml.html import fromstring

    parser = Parser(encoding="utf-8", remove_comments=True)
    for depth in (1, 50, 200):
        for open_tag, close in (
            ("<div>", "</div>"),
            ("<ul><li>", "</li></ul>"),
            ("<table><tr><td>", "</td></tr></table>"),
            ("<b>", ""),
        ):
            html = wrap(open_tag * depth + "x" + close * depth).encode()
            tree = fromstring(html, parser=parser)
            real = max(len(list(e.iterancestors())) + 1 for e in tree.iter())
            if real < 250:
                assert real <= scan(html, 1000)[1] <= real + 2


def test_scan_is_fast_on_hostile_input():
    scan(b"<p>", 250)
    for hostile in (
        b"<div>" * 240 + b"</x>" * 1_000_000,
        b"<!--" * 1_000_000,
        b"<a b='" * 700_000,
        b"<" * 4_000_000,
        b"<script>" + b"</scrip" * 600_000,
    ):
        start = time.process_time()
        scan(hostile, 250)
        assert time.process_time() - start < 3


# ------------------------------------------------------------------------------------------------------- extraction

ALL = [Extraction("trafilatura", f, b) for f in ("precision", "balanced", "recall") for b in (True, False)] + [
    Extraction("resiliparse")
]


@pytest.mark.parametrize("how", ALL, ids=lambda h: "-".join(map(str, h[:3])))
def test_paragraph_comes_out_once(how):  # F11
    shells = [
        "<article><p>{}</p></article>",
        "<!doctype html><html><head><title>x</title></head><body><article><p>{}</p></article></body></html>",
        "<html><body><main><div><div><p>{}</p></div></div></main></body></html>",
        "<!-- a licence comes first --><html><body><div><p>{}</p></div></body></html>",
        "<body><div class=content><section><p>{}</p></section></div>",
        "<?xml version='1.0' encoding='utf-8'?><html xmlns='http://www.w3.org/1999/xhtml'><body><p>{}</p></body></html>",
    ]
    for shell in shells:
        assert page_text(shell.format(SENTENCE).encode(), None, how).text.count(SENTENCE) == 1


@pytest.mark.parametrize("how", [Extraction(), Extraction("resiliparse")], ids=lambda h: h.extractor)
def test_page_without_text_gives_an_empty_text(how):
    for body in (
        "",
        " \n",
        "<html></html>",
        wrap(""),
        wrap("<script>var a = 'text';</script>"),
        "<!-- c -->",
        "\x00",
    ):
        assert page_text(body.encode(), None, how).text == ""


def test_text_does_not_depend_on_the_pages_before():
    pages = [
        wrap(
            f"<article><p>{SENTENCE}</p><p>Paragraph number {n} of the page says so, and says it plainly.</p></article>"
        ).encode()
        for n in range(4)
    ]
    first = [page_text(p).text for p in pages]
    assert [page_text(p).text for p in reversed(pages * 3)] == list(reversed(first * 3))
    assert all(t.count(SENTENCE) == 1 for t in first)  # trafilatura's own deduplication would drop it after three pages


def test_limits_reject_with_their_reason_and_nothing_below_them():  # F10
    small = Extraction(limits=Limits(max_bytes=1000, max_depth=10, max_elements=20))
    cases = {
        "larger than max_html_bytes=1000": ("x" * 1000, "x" * 800),
        "nested deeper than max_html_depth=10": ("<div>" * 9, "<div>" * 8),
        "more elements than max_html_elements=20": ("<p>" * 18, "<p>" * 17),
    }
    for reason, (bad, good) in cases.items():
        with pytest.raises(InputError, match=re.escape(reason)):
            check(wrap(bad), small)
        check(wrap(good, ""), small)
    dense = wrap("<p>" + "<span>x</span> " * (MAX_INLINE_RUN + 1))
    with pytest.raises(InputError, match="inline elements in one block"):
        check(dense, Extraction())
    check(dense, Extraction("resiliparse"))
    check(wrap(("<p>" + "<span>x</span>" * 100) * 200), Extraction())


def test_unclosed_inline_elements_end_in_bounded_time():  # F12
    for body in (
        "<b>" * 400 + "x" * 60_000,
        ("<b>[[" * 240) + "x" * 60_000,
        "<font>" * 200 + "<p>x" * 5000,
        "<i><b>" * 100 + "text " * 10_000,
    ):
        start = time.process_time()
        with contextlib.suppress(InputError):
            page_text(wrap(body).encode())
        assert time.process_time() - start < 5


def test_library_failure_is_an_input_error(monkeypatch):
    import trafilatura

    def fail(*_, **__):
        raise RecursionError

    monkeypatch.setattr(trafilatura, "extract", fail)
    with pytest.raises(InputError, match="trafilatura failed: RecursionError"):
        extract(wrap("x"), Extraction())
