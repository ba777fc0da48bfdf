"""gpu_curate.text.pii: what is found, what stays, spans, idempotence, time."""

from __future__ import annotations

import functools
import ipaddress
import itertools
import re
import time

import numpy as np
import orjson
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gpu_curate.config import Pii
from gpu_curate.text import pii
from gpu_curate.text.pii import PiiScanner, email, labels, marks
from gpu_curate.text.pii.iban import mod_97
from gpu_curate.text.pii.spans import PLACEHOLDERS, Span, in_characters, shape

pytest.importorskip("phonenumbers", reason="needs phonenumbers (the extra `pii`)")

ALL = PiiScanner(Pii(email="replace", ip="replace", phone="replace", card="replace", iban="replace"))
COUNT = PiiScanner(Pii(email="count", ip="count", phone="count", card="count", iban="count"))


def found(text: str) -> list[tuple[str, str]]:
    return [(s.kind, text[s.start : s.stop]) for s in COUNT.scrub(text)[2]]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("tess.almeida@example.org", ["tess.almeida@example.org"]),
        ("Write to tess@example.org. Or not.", ["tess@example.org"]),
        ("<a@b.co>, (c+d@e-f.museum); mailto:g_h@i.example", ["a@b.co", "c+d@e-f.museum", "g_h@i.example"]),
        ("bob@müller.de und почта@пример.рф", ["bob@müller.de", "почта@пример.рф"]),
        ("邮箱foo@bar.com请联系", ["foo@bar.com"]),
        ("“quoted@example.net”—then", ["quoted@example.net"]),
        ("a@b.com@c.org", ["a@b.com"]),
        ("x@xn--mller-kva.de", ["x@xn--mller-kva.de"]),
        ("half \ud800 a@b.org", ["a@b.org"]),
        ("'o'neil@example.ie'", ["o'neil@example.ie"]),
    ],
)
def test_email_addresses_are_found(text, expected):
    assert found(text) == [("email", e) for e in expected]


@pytest.mark.parametrize(
    "text",
    [
        "icon@2x.png", "pkg@1.2.3", "@media screen", "user@localhost", "a@b", "@Override public", "x @ y.com", "foo.@bar.com",
        "npm i react@18.2.0", "a" * 65 + "@example.org", "a@-b.com", "https://medium.com/@user.name", "a@b..com",
    ],
)  # fmt: skip
def test_what_only_looks_like_an_email_address_stays(text):
    assert found(text) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2001:db8::", ["2001:db8::"]),
        ("see 2001:db8::1.", ["2001:db8::1"]),
        ("[2001:db8::1]:443, 2a00:1450:4009:80b::200e/64", ["2001:db8::1", "2a00:1450:4009:80b::200e"]),
        ("2001:db8:85a3:8d3:1319:8a2e:370:7348", ["2001:db8:85a3:8d3:1319:8a2e:370:7348"]),
        ("::ffff:8.8.8.8", ["::ffff:8.8.8.8"]),
        ("http://93.184.216.34/x and 203.0.113.7:80", ["93.184.216.34", "203.0.113.7"]),
        ("ping 8.8.8.8, or 8.8.4.4.", ["8.8.8.8", "8.8.4.4"]),
        ("the address 4.31.198.44 answers", ["4.31.198.44"]),
        ("203.0.113.7 - - [10/Oct/2020]", ["203.0.113.7"]),
    ],
)
def test_public_addresses_are_found(text, expected):
    assert found(text) == [("ip", e) for e in expected]


@pytest.mark.parametrize(
    "text",
    [
        "std::vector", "::before", "a::b", "abcd::ef", "dead::beef", "std::chrono::seconds", "Foo::Bar::baz()", "x::2001",
        "00:1a:2b:3c:4d:5e", "00:11:22:33:44:55:66:77", "12:30:45", "2024-05-01T12:30:45", "1:2:3:4:5:6:7", "::1", "fe80::1",
        "fc00::1", "ff02::1", "10.0.0.1", "192.168.1.254", "172.16.0.1", "127.0.0.1", "169.254.1.1", "255.255.255.0", "224.0.0.1",
        "0.0.0.0", "v10.4.2", "v10.4.2.1", "version 112.4.2.1", "Chrome/120.0.0.0", "release 120.1.2.3 and 120.1.2.4",
        "Section 1.2.3.4 explains", "see sections 1.2.3.4, 1.2.3.5 and 1.2.3.6", "1.2.3.4 Overview", "6.1.8.67. AVEC", "§ 1.2.3.4",
        "1.3.6.1.4.1.311", "300.1.1.1", "203.0.113.256", "203.0.113.07", "1.2.3", "a203.0.113.7", "203.0.113.7a",
    ],
)  # fmt: skip
def test_what_only_looks_like_an_address_stays(text):
    assert found(text) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("+1-555-0142", ["+1-555-0142"]),
        ("+1 415 555 0142", ["+1 415 555 0142"]),
        ("+44 (0)20 7946 0958 is in London", ["+44 (0)20 7946 0958"]),
        ("+1 415 555 0142 2024", ["+1 415 555 0142"]),
        ("(212) 555-0199 or 415-555-0142, 415.555.0143.", ["(212) 555-0199", "415-555-0142", "415.555.0143"]),
        ("1-800-555-0199", ["1-800-555-0199"]),
        ("Tel: 020 7946 0958 / 020 7946 0959", ["020 7946 0958", "020 7946 0959"]),
        ("give them a call at 262-9181.", ["262-9181"]),
        ("TELEPHONE NO. 86-23-63888888", ["86-23-63888888"]),
        ("Tél. 01 23 45 67 89", ["01 23 45 67 89"]),
        ("Fax 0871 527 8800Whether", ["0871 527 8800"]),
        ("Phone\n0871 527 8800", ["0871 527 8800"]),
    ],
)
def test_phone_numbers_are_found(text, expected):
    assert found(text) == [("phone", e) for e in expected]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("电话：010-62781234", ["010-62781234"]),
        ("手机号：13812345678", ["13812345678"]),
        ("電話番号：03-1234-5678", ["03-1234-5678"]),
        ("전화: 02-123-4567", ["02-123-4567"]),
        ("โทร. 02-123-4567", ["02-123-4567"]),
        ("هاتف: 0112345678", ["0112345678"]),
        ("फोन: 011 2345 6789", ["011 2345 6789"]),
        ("Тел.: 8 (495) 123-45-67", ["8 (495) 123-45-67"]),
        ("Τηλ. 210 1234567", ["210 1234567"]),
        ("טלפון: 03-1234567", ["03-1234567"]),
        ("điện thoại: 024 3825 1234", ["024 3825 1234"]),
        ("tel：010-62781234", ["010-62781234"]),
        # their kin: glued to other words, inflected, in capitals, faxes
        ("我的手机号码是13812345678。", ["13812345678"]),
        ("（联系电话：010-62781234）【传真】010-62781235", ["010-62781234", "010-62781235"]),
        ("電話　03-1234-5678", ["03-1234-5678"]),
        ("代表電話番号は03-1234-5678です", ["03-1234-5678"]),
        ("핸드폰 010-1234-5678, 팩스번호：02-123-4567", ["010-1234-5678", "02-123-4567"]),
        ("เบอร์โทรศัพท์0812345678", ["0812345678"]),
        ("โทร.0812345678", ["0812345678"]),
        ("رقم الهاتف : 0501234567 فاكس: 0112345679", ["0501234567", "0112345679"]),
        ("تلفن همراه: 09121234567", ["09121234567"]),
        ("मोबाइल नंबर: 9812345678", ["9812345678"]),
        ("ফোন নম্বর: 01712345678", ["01712345678"]),
        ("по телефону 8 495 123-45-67", ["8 495 123-45-67"]),
        ("ТЕЛ. 84951234567, ФАКС 84951234568", ["84951234567", "84951234568"]),
        ("номер телефона: «8 495 123-45-67»", []),  # a sign that is neither blank nor colon
        ("«Тел.: 123-45-67»", ["123-45-67"]),
        ("ΤΗΛΕΦΩΝΟ: 2101234567", ["2101234567"]),
        ("טל' 03-1234567", ["03-1234567"]),
        ("SĐT: 0912345678, ĐT 0912345679", ["0912345678", "0912345679"]),
        ("TELÉFONO: 912 345 678", ["912 345 678"]),
        ("TELEFONO 912 345 678 y 912 345 679", ["912 345 678", "912 345 679"]),
        ("Mobiltelefon: 0171 2345678 oder 0171 2345679", ["0171 2345678", "0171 2345679"]),
        ("Telefonnummer: 030 1234567", ["030 1234567"]),
        ("puhelin 09 1234567", ["09 1234567"]),
        ("simu ya mkononi: 0712 345678", ["0712 345678"]),
        ("ტელ: 032 2123456", ["032 2123456"]),
        ("传真：010-62781235、010-62781236，010-62781237", ["010-62781235", "010-62781236", "010-62781237"]),
        ("☎ 010-62781234, 📞: 010-62781235 ☎\ufe0f 010-62781236", ["010-62781234", "010-62781235", "010-62781236"]),
        ("微信号：12345678 QQ：12345678", []),
        ("Tel.\u00a0020 7946 0958", ["020 7946 0958"]),
        # digits and signs of full width and of other scripts
        ("电话：０１０－６２７８１２３４", ["０１０－６２７８１２３４"]),
        (
            "電話：（０３）１２３４－５６７８、０３－１２３４－５６７９。",
            ["（０３）１２３４－５６７８", "０３－１２３４－５６７９"],
        ),
        ("电话：（010）62781234", ["（010）62781234"]),
        ("电话：010－62781234，传真　0１０ 62781235", ["010－62781234", "0１０ 62781235"]),
        ("هاتف: ٠١١٢٣٤٥٦٧٨", ["٠١١٢٣٤٥٦٧٨"]),
        ("تلفن: ۰۲۱-۱۲۳۴۵۶۷۸", ["۰۲۱-۱۲۳۴۵۶۷۸"]),
        ("फोन: ०११ २३४५ ६७८९", ["०११ २३४५ ६७८९"]),
        ("ফোন: ০১৭১২৩৪৫৬৭৮", ["০১৭১২৩৪৫৬৭৮"]),
        ("โทร. ๐๒-๑๒๓-๔๕๖๗", ["๐๒-๑๒๓-๔๕๖๗"]),
        (
            "Tel: 555-0142x 电话：０１０－６２７８１２３４ é +1 415 555 0142",
            ["555-0142", "０１０－６２７８１２３４", "+1 415 555 0142"],
        ),
    ],
)
def test_phone_numbers_after_labels_of_other_languages_are_found(text, expected):
    assert found(text) == [("phone", e) for e in expected]


@pytest.mark.parametrize(
    "text",
    [
        "电话费 12345678 元", "价格：12345678", "邮编：100084123", "编号：12345678", "订单号 12345678", "人口：12345678", "ISBN：9787302123456",
        "отель 1234567", "телефонный 1234567", "мотель: 1234567", "hotel 1234567", "Motel: 1234567", "ที่ 1234567", "CEP 01310-1000",
        "тел 2023-2024", "手机 2024-05-01", "第12345678号", "电话\n\n12345678", "número 12345678", "№ 12345678", "رقم 12345678", "نتت 1234567",
        "价格：１２３４５６７８", "２０２４年１２月３１日", "邮编：１０００８４１２３", "（2024）12345678号", "电话：２０２４－０５－０１", "سنة ١٩٩٩ ٢٠٠٠", "人口 １２３４５６７８",
    ],
)  # fmt: skip
def test_numbers_after_other_words_are_no_phone_numbers(text):
    assert found(text) == []


def test_every_word_of_the_tables_is_a_label():
    for word in sorted(labels.label_words("label")):
        for spelt in (word, word.upper(), word.title()):
            assert found(f"{spelt}: 020 7946 0958") == [("phone", "020 7946 0958")], spelt
            assert found(f"x\n{spelt}：020 7946 0958") == [("phone", "020 7946 0958")], spelt
        cased = word.lower() != word.upper() and not re.search(r"[\W_]", word)
        assert (found(f"λx{word}: 020 7946 0958") == []) or not cased
    assert len(labels.label_words("label")) > 400


BLANKS = "[.:# \\t\u00a0\u3000：．＃∶﹕】\ufe0e\ufe0f\u202f\u2009\u200e\u200f]"


@functools.cache
def label_patterns() -> list[tuple[re.Pattern[str], str, bool]]:
    found = []
    for kind in ("label", "between"):
        for word in labels.label_words(kind):
            anywhere = word.lower() == word.upper() and (len(word) > 2 or word[0] > "\u2e80")
            found += [(spelt, kind, anywhere) for spelt in {word, word.upper(), word.title()}]
    return found


def plain_called(before: str) -> bool:
    """Whether a label ends `before`, words between, blanks and a line end passed over; by the definition."""
    for _ in range(4):
        before = re.sub(rf"\n?{BLANKS}*\Z" if not before.endswith("\n") else r"\n\Z", "", before)
        fits = [
            (len(spelt), kind)
            for spelt, kind, anywhere in label_patterns()
            if before.endswith(spelt)
            and (anywhere or not re.search(r"[^\W\d_]\Z|[\u0300-\u036f]\Z", before[: len(before) - len(spelt)]))
        ]
        if any(kind == "label" for _, kind in fits):
            return True
        if not fits:
            return False
        before = before[: len(before) - max(fits)[0]]
    return False


LABEL_PIECES = ["电话", "手机", "号", "号码", "是", "Tel", "TEL", "Тел", "тел", "номер", "no", "Fax", "fax", "หมายเลข", "โทร", "หาฟ", "điện thoại", "số",
                "نمبر", "هاتف", "رقم", " ", ".", ":", "：", "　", "\n", "】", "（", "«", "x", "ж", "的", "–", "1", "é", "_", "<PHONE>", "\u00a0"]  # fmt: skip


@example(["Тел", "ж"])
@example(["ж", "тел", ":"])
@example(["Tel", "\n", "no", "\n"])
@given(st.lists(st.sampled_from(LABEL_PIECES), max_size=8))
@settings(max_examples=200, deadline=None)
def test_labels_are_found_as_their_definition_says(pieces):
    before = "".join(pieces)
    raw = np.frombuffer(b"\n" * 128 + before.encode() + b"020 7946 0958", np.uint8)
    raw.flags.writeable = False
    assert bool(labels.is_called(raw, 128 + len(before.encode()), *labels.phone_labels())) == plain_called(before)


@pytest.mark.parametrize(
    "text",
    [
        "2024-05-01", "2024-05-01 12:30", "1999-2004", "call 2024-05-01", "phone: 1999-2004", "population 8 336 817", "8336817",
        "+12 345 678 people", "ISBN 978-0-306-40615-7", "ISBN 0-306-40615-2", "ISSN 1234-5679", "3.14159265", "v10.4.2",
        "123-45-6789", "94110-1234", "1234567890123", "12345678", "$1 234 567.89", "911-555-0142", "212-911-0142", "192.168.100.200",
        "part 415-555-0142-B", "x415-555-0142", "/2024/05/01/123456", "0.1234567", "10,000,000", "1 2 3 4 5 6 7 8 9",
        "Teleport 12345678", "phone 123456",
    ],
)  # fmt: skip
def test_other_numbers_are_no_phone_numbers(text):
    assert found(text) == []


def test_payment_cards_need_prefix_grouping_and_checksum():
    cards = ["4111 1111 1111 1111", "4111-1111-1111-1111", "4111111111111111", "3782 822463 10005", "5555555555554444",
             "6011111111111117", "3530111333300000", "30569309025904", "2223003122003222"]  # fmt: skip
    for card in cards:
        assert found(f"pay {card}, now") == [("card", card)]
    others = ["4111 1111 1111 1112", "9111111111111111", "4111 1111-1111 1111", "41111111 11111111", "04111111111111111",
              "4111111111111111.5", "1234567812345670", "x4111111111111111"]  # fmt: skip
    for other in others:
        assert found(f"pay {other}, now") == []


def test_ibans_need_length_and_checksum():
    ibans = ["DE89 3704 0044 0532 0130 00", "GB29NWBK60161331926819", "NL95 INGB 0004 5487 74",
             "MT84MALT011000012345MTLCAST001S", "NO93 8601 1117 947", "FR14 2004 1010 0505 0001 3M02 606"]  # fmt: skip
    for iban in ibans:
        assert found(f"to {iban} please") == [("iban", iban)]
    for other in ["DE89 3704 0044 0532 0130 01", "DE89 3704 0044 0532 0130", "XX89370400440532013000", "ADE89370400440532013000",
                  "GB29NWBK601613319268190"]:  # fmt: skip
        assert [kind for kind, _ in found(f"to {other} please")] == []


def test_types_are_off_counted_or_replaced_each_on_its_own():
    text = "a@b.org at 203.0.113.7 or +1 415 555 0142"
    assert PiiScanner(Pii()).scrub(text) == (text, {}, [])
    scanner = PiiScanner(Pii(email="replace", ip="count"))
    scrubbed, counts, spans = scanner.scrub(text)
    assert scrubbed == "<EMAIL> at 203.0.113.7 or +1 415 555 0142"
    assert counts == {"email": 1, "ip": 1}
    assert spans == [Span("email", 0, 7), Span("ip", 11, 22)]


@pytest.mark.parametrize(
    ("text", "scrubbed"),
    [
        ("card 4111 1111 1111 1111 12/25", "card <CARD> 12/25"),
        ("4111 1111 1111 1111 123", "<CARD> 123"),
        ("Order 1234 4111 1111 1111 1111", "Order 1234 <CARD>"),
        ("+1 415 555 0142 4111 1111 1111 1111", "<PHONE> <CARD>"),
        ("4111 1111 1111 1112 123 and 4111 1111 1111 1112", "4111 1111 1111 1112 123 and 4111 1111 1111 1112"),
        ("т@пример.рф4278 5848 4249 1524", "<EMAIL><CARD>"),
        ("т@пример.рфDE89 3704 0044 0532 0130 00", "<EMAIL><IBAN>"),
        ("MT71 MALT 0110 BE68 5390 0754 7034 123", "<IBAN>"),
        ("é\ud800é@x.org", "é\ud800<EMAIL>"),
        ("a@b.\ud800org and", "a@b.\ud800org and"),
    ],
)
def test_what_stands_beside_a_finding_does_not_hide_it(text, scrubbed):
    assert ALL.scrub(text)[0] == scrubbed


def test_spans_count_characters_and_come_in_order():
    text = "日本語 +1 415 555 0142 “é” 😀 a@b.org, 8.8.8.8 — DE89 3704 0044 0532 0130 00 и 4111111111111111"
    scrubbed, counts, spans = ALL.scrub(text)
    assert scrubbed == "日本語 <PHONE> “é” 😀 <EMAIL>, <IP> — <IBAN> и <CARD>"
    assert [text[s.start : s.stop] for s in spans] == [
        "+1 415 555 0142", "a@b.org", "8.8.8.8", "DE89 3704 0044 0532 0130 00", "4111111111111111",
    ]  # fmt: skip
    assert counts == dict.fromkeys(["phone", "email", "ip", "iban", "card"], 1)
    in_bytes = [Span(s.kind, len(text[: s.start].encode()), len(text[: s.stop].encode())) for s in spans]
    assert ALL.scrub_all([b"", text.encode()]).spans == {1: in_bytes}


def test_text_without_findings_is_the_same_object():
    for text in ["", "a", "@", "plain prose of 1999", "x" * 10_000, "C++: std::map<int, a::b> at 12:30:45"]:
        assert ALL.scrub(text)[0] is text
        assert COUNT.scrub(text + " a@b.org")[0] == text + " a@b.org"


@pytest.mark.parametrize("at", range(0, 18))
def test_finding_does_not_depend_on_where_it_starts(at):
    for item in ["+1-555-0142", "(212) 555-0199", "8.8.8.8", "203.0.113.107", "2001:db8::", "2a00:1450:4009:80b:1:2:3:200e",
                 "4111 1111 1111 1111", "MT84 MALT 0110 0001 2345 MTLC AST0 01S", "Tél. 01 23 45 67 89"]:  # fmt: skip
        assert len(found("x" * at + " " + item + " end")) == 1
        assert len(found("x" * at + " " + item)) == 1


PIECES = [
    *PLACEHOLDERS.values(), "a@b.org", "8.8.8.8", "1.2.3.4", "203.0.113.7", "10.0.0.1", "2001:db8::1", "::", "+1-555-0142",
    "(212) 555-0199", "415-555-0142", "4111 1111 1111 1111", "4111111111111111", "DE89370400440532013000",
    "DE89 3704 0044 0532 0130 00", "Tel", "phone ", "version ", "section ", "address ", " and ", ", ", " / ", " ", "-", ".", "@",
    "+", ":", "(", ")", "(719-440-1050)", "MT84MALT011000012345MTLCAST001S", "Mobile: ", "电话：", "Тел.", "号", "、", "０１２３４５６７", "（", "）", "－", "٠١٢٣", "é", "is", "0", "'", "%", "/", "\n", "v", "x", "1", "2024", "555", "é", "日本", "b.org", "foo", "<", ">", "ABCD" * 17,
    "::ffff:8.8.8.8", ":ffff:203.0.113.7", "tel\n", "\nfax\n", "no.\n",
]  # fmt: skip


@example("+1-555-0142+1-555-0142")
@example("+1-555-0142(212) 555-0199")
@example("+1-555-0142DE89370400440532013000")
@example("8.8.8.8<EMAIL>1.2.3.4")
@example("8.8.8.8/110.0.0.1")
@example("2024::+1-555-0142")
@example("8.8.8.8::ffff:8.8.8.80")
@example("a@b.org::ffff:8.8.8.8")
@example("2024::ffff:8.8.8.8::")
@example("a@р.рф8.8.216.9")
@example("т@пример.рф4278 5848 4249 1524")
@example("server tess.almeida.of.the.very.long.name.indeed@example.org 4.31.19.44")
@example("Fax 0871 527 8800ip 4.31.19.44")
@example("+1 415 555 0142 4111 1111 1111 1111")
@example("3b23::0000 6577 9507 6557 5879")
@example("tel 2318281-(576)503-3299")
@example("tel 502745 1 980.321.3768")
@example("MT71 MALT 0110 BE68 5390 0754 7034 123")
@given(st.lists(st.sampled_from(PIECES), max_size=14).map("".join))
@settings(max_examples=100, deadline=None)
def test_scrubbing_twice_is_scrubbing_once(text):
    scrubbed, counts, spans = ALL.scrub(text)
    assert ALL.scrub(scrubbed) == (scrubbed, {}, [])
    assert sum(counts.values()) == len(spans)
    assert all(a.stop <= b.start for a, b in itertools.pairwise(spans))
    rebuilt, last = [], 0
    for s in spans:
        rebuilt += [text[last : s.start], PLACEHOLDERS[s.kind]]
        last = s.stop
    assert "".join([*rebuilt, text[last:]]) == scrubbed
    assert COUNT.scrub(text) == (text, counts, spans)


def plain_candidates(raw, emails, numbers, ip):
    """`_candidates` with one pattern a kind over all of the text."""
    text = raw.tobytes()
    rows = [(marks.AT, m.start(), m.end()) for m in re.finditer(rb"@", text) if emails]
    if numbers:
        rows += [(marks.IBAN_START, m.start(), m.start() + 4) for m in re.finditer(rb"(?=[A-Z]{2}\d\d)", text)]
        for m in re.finditer(rb"\d(?:[ \-./()]{0,3}\d)*", text):
            digits = [i for i in range(*m.span()) if text[i : i + 1].isdigit()]
            if any(last - first < 17 for first, last in zip(digits, digits[6:], strict=False)):
                rows.append((marks.RUN, *m.span()))
    if ip:
        quads = re.finditer(rb"(?<!\d)(?=(\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}))", text)
        rows += [(marks.QUAD, *m.span(1)) for m in quads]
        rows += [
            (marks.V6_START, m.start(), m.start() + 3) for m in re.finditer(rb"(?=[23][0-9A-Fa-f]{3}:|::[fF])", text)
        ]
    return np.array(sorted(rows, key=lambda row: row[1:]), np.int64).reshape(-1, 3)


def plain_worthy(raw, rows, *_):
    """`_worthy` without any condition on what the candidates say."""
    found = rows[rows[:, 0] == marks.RUN]
    as_what = (marks.CALLED, marks.NORTH_AMERICAN_RUN)
    runs = [(kind, start, stop) for _, start, stop in found for kind in as_what]
    runs += [(marks.CARD_START, i, stop) for _, start, stop in found for i in range(start, stop)]
    return np.concatenate([rows[rows[:, 0] != marks.RUN], np.array(runs, np.int64).reshape(-1, 3)])


def plain_scrub(text):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pii, "candidates_of", plain_candidates)
        patch.setattr(pii, "still_candidates", plain_worthy)
        return ALL.scrub(text)


@example("Tel\n8.8.8.88.8.8.8", 0)
@example("Tel number\n555 123 4567", 0)
@example("(719-440-1050)", 0)
@given(st.lists(st.sampled_from(PIECES), max_size=20).map("".join), st.integers(0, 70))
@settings(max_examples=100, deadline=None)
def test_both_glances_lose_nothing_that_a_pattern_would_find(text, blanks):
    text = " " * blanks + text
    assert ALL.scrub(text) == plain_scrub(text)


def test_both_glances_lose_nothing_on_real_text(shared_data):
    lines = shared_data("docs/dclm_majority_data.jsonl").read_text("utf-8").splitlines()[:150]
    texts = [orjson.loads(line)["text"] for line in lines] + ["\n".join(line[:500] for line in lines)]
    found = sum(bool(ALL.scrub(text)[1]) for text in texts)
    assert found > 5
    assert [ALL.scrub(text) for text in texts] == [plain_scrub(text) for text in texts]


@example(["Tel", "(719-440-1050)1"])
@example(["Tel", "555 123 4567", "555 123 4567"])
@given(st.lists(st.lists(st.sampled_from(PIECES), max_size=6).map("".join), max_size=12))
@settings(max_examples=100, deadline=None)
def test_many_texts_at_once_give_what_each_gives_alone(texts):
    raws = [text.encode() for text in texts]
    scrubbed = ALL.scrub_all(raws)
    alone = [ALL.scrub(text) for text in texts]
    assert scrubbed.texts == [text.encode() for text, _, _ in alone]
    by_index = {index: in_characters(raws[index], spans) for index, spans in scrubbed.spans.items()}
    assert by_index == {index: spans for index, (_, _, spans) in enumerate(alone) if spans}
    assert all(scrubbed.texts[i] is raws[i] for i in range(len(texts)) if i not in scrubbed.spans)


@pytest.mark.parametrize(
    ("left", "right"),
    [("4111 1111", "1111 1111"), ("Tel", "555 123 4567"), ("Tel: ", "555 123 4567"), ("+1 415 555", "0142"), ("a@b", ".org"),
     ("a", "@b.org"), ("8.8.", "8.8"), ("ping 203.0", ".113.7"), ("2001:db8:", ":1"), ("DE89 3704 0044 0532", "0130 00"),
     ("address ", "4.31.19.44"), ("(212)", "555-0199"), ("4", "111111111111111")],
)  # fmt: skip
def test_texts_that_touch_never_join(left, right):
    texts = [t.encode() for t in (left, right, "", right, left)]
    assert ALL.scrub_all(texts) == (texts, {})
    # nor does a neighbour hide a finding
    for whole in [
        "+1 415 555 0142",
        "203.0.113.7",
        "a@b.org",
        "4111111111111111",
        "DE89370400440532013000",
        "2001:db8::1",
    ]:
        scrubbed = ALL.scrub_all([t.encode() for t in (left, whole, right)])
        assert {index: len(spans) for index, spans in scrubbed.spans.items()} == {1: 1}


def test_no_texts_and_empty_texts():
    assert ALL.scrub_all([]) == ([], {})
    assert ALL.scrub_all([b""] * 3) == ([b""] * 3, {})


def test_lone_surrogates_in_one_text_leave_the_others_alone():
    texts = [t.encode("utf-8", "surrogatepass") for t in ("é a@b.org", "half \ud800 a@b.org", "plain")]
    assert [t.decode("utf-8", "surrogatepass") for t in ALL.scrub_all(texts).texts] == [
        "é <EMAIL>",
        "half \ud800 <EMAIL>",
        "plain",
    ]


def test_iban_needs_digits_within_reach_whatever_stands_around_it():
    for account in ["ABCDEFGHIJKLMNOPQRSTUVWXYZ", "ABCD123A456B789C012D345E67"]:
        rest = int("".join(str(int(c, 36)) for c in account + "KW00")) % 97
        sparse = f"KW{98 - rest:02}{account}"
        assert mod_97(sparse) == 1
        for text in [sparse, f"12345678 {sparse}", f"{sparse} on 2024-05-01 and 2024-05-02", f"{sparse} 12345678"]:
            assert found(text) == []


DOMAIN_PIECES = [
    "a", "b1", "-", ".", ".", ".com", ".org", "xn--", "xn", "1x", "2x.", "png", "x" * 24, "y" * 25, "z" * 62, "z" * 63,
    "q" * 59, "0", "A",
]  # fmt: skip


@example(["a.com-b.", "org"])
@example(["a.xn--", "q" * 59, "-b"])
@example(["-a.com"])
@given(st.lists(st.sampled_from(DOMAIN_PIECES), min_size=1, max_size=9))
@settings(max_examples=500, deadline=None)
def test_a_domain_of_ascii_is_what_its_labels_say(pieces):
    run = "".join(pieces)
    if not re.match(r"\dx\.", run):
        assert email.domain_size(run.encode()) == email.labels_size(run)


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=100, deadline=None)
def test_public_ipv4_is_what_the_registry_says(value):
    address = ipaddress.IPv4Address(value)
    documentation = any(
        address in ipaddress.ip_network(n) for n in ("192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24")
    )
    special = ["192.0.0.0/24", "198.18.0.0/15", "224.0.0.0/4", "240.0.0.0/4", "100.64.0.0/10"]
    reserved = address.is_private or any(address in ipaddress.ip_network(n) for n in special)
    public = documentation or not reserved
    assert found(f"address {address} answers") == ([("ip", str(address))] if public else [])


@pytest.mark.parametrize(
    ("unit", "times"),
    [("a", 80_000), ("1.", 40_000), ("1", 80_000), ("1 ", 40_000), ("ab:", 30_000), ("2001:", 20_000), ("::", 40_000), ("@", 40_000),
     ("a@a.", 10_000), ("+1", 40_000), ("+1 ", 30_000), ("tel 1", 20_000), ("DE89 ", 10_000), ("4111 ", 10_000), ("(1", 40_000),
     ("é@", 10_000), ("a@" + "b." * 100, 200), ("8.8.8.8 ", 5_000), ("version 1.2.3.4, ", 5_000), ("0x2001ab:cd-", 8_000)],
)  # fmt: skip
def test_time_is_linear(unit, times):
    text = unit * times + "@"
    ALL.scrub("warm +49 30 901820 a@b.org")
    start = time.process_time()
    ALL.scrub(text)
    once = time.process_time() - start
    assert once < 1.0
    short = [(unit * 20).encode()] * (times // 20)
    start = time.process_time()
    ALL.scrub_all(short)
    assert time.process_time() - start < 1.5


@pytest.mark.parametrize("text", ["1234567890" * 500_000, "12 " * 1_700_000, "4111 1111 1111 1112 " * 250_000])
def test_five_megabytes_of_digits_take_no_longer_than_other_text(text):
    ALL.scrub("warm +49 30 901820 a@b.org")
    start = time.process_time()
    assert ALL.scrub(text)[0] is text
    assert time.process_time() - start < 2.0


def test_shape_tells_nothing():
    assert shape("Tess.Almeida+1@example.org") == "xxxx.xxxxxxx+0@xxxxxxx.xxx"
    assert shape("+1 (415) 555-0142") == "+0 (000) 000-0000"
