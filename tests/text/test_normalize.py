"""gpu_curate.text.normalize against a plain definition, the Unicode consortium's vectors, and the faults users hit."""

from __future__ import annotations

import re
import unicodedata
import zipfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu_curate.config import Normalize
from gpu_curate.text import normalize as module
from gpu_curate.text.normalize import normalizer

FORMS = ["NFC", "NFD", "NFKC", "NFKD", None]
ALL = [Normalize(form=form, keep_indentation=keep) for form in FORMS for keep in (False, True)]
NFC = Normalize()

# blanks, line ends, controls, marks that compose, compatibility characters that make blanks, surrogates, text
ALPHABET = (
    " \t\n\r\x0b\x0c\x00\x01\x1f\x7f\x80\x85\x9f\xa0\xad\u1680\u2000\u2001\u200a\u200b\u2028\u2029"
    "\u202f\u205f\u3000\ufeffab}~!e\u0301\u0327\u0308A\u030a\u212b\xa8\ufdfa\u1100\u1161\u11a8\u2019\u20ac"
    "\u3001\uffe3\ufb01\ufe00\ud83d\ude00\U0001f600"
)
TEXTS = st.text(alphabet=ALPHABET, max_size=40)


def normalize(text: str, config: Normalize) -> str:
    return module.normalize(text, config).decode("utf-8")


def clean(text: str, keep_indentation: bool) -> str:
    """The four steps of the module's docstring, one after the other."""
    text = "".join(c for c in text if c in "\t\n\v\f\r\x85" or not (unicodedata.category(c) == "Cc" or c == "\ufeff"))
    text = re.sub("\r\n|[\r\v\f]", "\n", text)
    text = "".join(" " if unicodedata.category(c) == "Zs" else c for c in text)
    lines = []
    for line in text.split("\n"):
        line = line.rstrip(" \t")
        body = line.lstrip(" \t")
        head = line[: len(line) - len(body)]
        if not keep_indentation:
            head = " " if head else ""
        lines.append(head + re.sub("[ \t]+", " ", body))
    text = re.sub("\n{3,}", "\n\n", "\n".join(lines)).strip("\n")
    return text if keep_indentation else text.strip(" ")


def reference(text: str, config: Normalize) -> str:
    text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    text = clean(text, config.keep_indentation)
    if config.form is not None:
        text = clean(unicodedata.normalize(config.form, text), config.keep_indentation)
    return text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ""),
        (" \n\t\r\n \x0c\ufeff\x00", ""),
        ("a", "a"),
        (" a ", "a"),
        ("a  b\t\tc \t d", "a b c d"),
        ("a\xa0b\u2003c\u3000d\u202fe\u1680f", "a b c d e f"),
        ("a \n b", "a\n b"),
        ("a\r\nb\rc\nd", "a\nb\nc\nd"),
        ("a\n\nb", "a\n\nb"),
        ("a\n\n\nb", "a\n\nb"),
        ("a\n \n\t\n\r\n\nb", "a\n\nb"),
        ("page one\x0cpage two\x0bline", "page one\npage two\nline"),
        ("h\x00e\x00l\x9fo\x7f", "helo"),
        ("\ufeffa\ufeffb", "ab"),
        ("e\x00\u0301", "\xe9"),
        ("cafe\u0301", "caf\xe9"),
        ("half \ud83c end", "half \ufffd end"),
        ("\ud83d\ude00 pair", "\U0001f600 pair"),
        ("\udc00\ud800", "\ufffd\ufffd"),
        ("one\u2028two\u2029three\x85four", "one\u2028two\u2029three\x85four"),
        ("soft\xadhyphen zero\u200bwidth", "soft\xadhyphen zero\u200bwidth"),
    ],
)
def test_examples(text, expected):
    assert normalize(text, NFC) == expected


def test_utf8_bom_and_crlf_give_the_text_of_the_plain_file():
    plain = "first line\nsecond line\n\nnext paragraph"
    assert normalize("\ufeff" + plain.replace("\n", "\r\n") + "\r\n", NFC) == plain


def test_indentation_is_kept_on_request_only():
    code = "\n\n    def f(x):  \n\tif  x:\n\xa0\xa0\x00 \u3000return  1\n"
    assert normalize(code, Normalize(keep_indentation=True)) == "    def f(x):\n\tif x:\n    return 1"
    assert normalize(code, NFC) == "def f(x):\n if x:\n return 1"


def test_without_normalisation_only_surrogates_change():
    leave = normalizer(None)
    assert leave(" a \r\n\xa0\ufeff e\u0301 ").decode() == " a \r\n\xa0\ufeff e\u0301 "
    assert leave("half \ud83c end \ud83d\ude00 ").decode() == "half \ufffd end \U0001f600 "
    assert normalizer(NFC)("a  b") == b"a b"


def test_compatibility_form_leaves_no_pair_of_blanks():
    assert normalize("a \xa8 b", Normalize(form="NFKC")) == "a \u0308 b"
    assert "  " not in normalize("a\xa0\ufdfa", Normalize(form="NFKC"))


def test_clean_text_stays():
    for text in ["plain ascii\n\nwith paragraphs, x = 1.", "It’s “curly” — caf\xe9 naïve 日本語。", "x"]:
        assert normalize(text, NFC) == text


@pytest.mark.parametrize("config", ALL, ids=str)
def test_every_code_point_between_letters_blanks_and_line_ends(config):
    text = "z".join(f"x{c}y {c} \n{c}\n" for c in map(chr, range(0x3100)))
    assert normalize(text, config) == reference(text, config)


def test_every_code_point_there_is():
    text = "z ".join(map(chr, range(0x110000)))
    config = Normalize(form=None)
    assert normalize(text, config) == reference(text, config)


@given(text=TEXTS, config=st.sampled_from(ALL))
@settings(max_examples=100, deadline=None)
def test_equals_the_plain_definition_and_is_idempotent(text, config):
    once = normalize(text, config)
    assert once == reference(text, config)
    assert normalize(once, config) == once
    if config.form is not None:
        assert unicodedata.is_normalized(config.form, once)


@pytest.mark.parametrize("at", [0, 1, 7, 8, 9, 15, 16, 17, 4095])
def test_fault_is_seen_wherever_it_falls_in_a_step_of_eight_bytes(at):
    for fault in [
        "  ",
        " \n",
        "\n\n\n",
        "\t",
        "\r",
        "\x7f",
        "\xa0",
        "\x9f",
        "\u2009",
        "\u205f",
        "\u3000",
        "\u1680",
        "\ufeff",
    ]:
        for head in ("a", "é", "’"):
            text = head + "b" * at + fault + "end"
            assert normalize(text, NFC) == reference(text, NFC) != text


def test_official_vectors(shared_data):
    with zipfile.ZipFile(shared_data("patho/unicode-NormalizationTest.zip")) as archive:
        name = next(n for n in archive.namelist() if n.endswith("NormalizationTest.txt"))
        lines = archive.read(name).decode("utf-8").splitlines()
    cases = 0
    for line in lines:
        line = line.partition("#")[0]
        if line.count(";") < 5:
            continue
        columns = ["".join(chr(int(c, 16)) for c in field.split()) for field in line.split(";")[:5]]
        if any(unicodedata.category(c) == "Cn" for column in columns for c in column):
            continue  # newer than this Python's Unicode tables
        cases += 1
        source, nfc, nfd, nfkc, nfkd = ("q" + c + "q" for c in columns)  # q composes with nothing
        for form, expected in (("NFC", nfc), ("NFD", nfd), ("NFKC", nfkc), ("NFKD", nfkd)):
            assert normalize(source, Normalize(form=form)) == clean(expected, False)
    assert cases > 15_000


@pytest.mark.parametrize(
    ("text", "composed", "compatible"),
    [
        ("ｶﾞｲﾄﾞ", "ｶﾞｲﾄﾞ", "ガイド"),  # half-width kana: the voicing mark is a character of its own
        ("Ａ１！", "Ａ１！", "A1!"),
        ("가\uffa1", "가\uffa1", "가\u1100"),
        ("a\u3000b", "a b", "a b"),
        ("㍿①²ﬁ", "㍿①²ﬁ", "株式会社12fi"),
        ("か\u3099e\u0301", "がé", "がé"),
        ("\u212b", "Å", "Å"),
    ],
)
def test_what_each_form_does_to_width_and_composition(text, composed, compatible):
    """docs/text.md: NFC keeps the width of a character, NFKC does not."""
    for form, expected in (("NFC", composed), ("NFKC", compatible)):
        assert normalizer(Normalize(form=form))(text).decode() == expected
        parts = "NFD" if form == "NFC" else "NFKD"
        assert normalizer(Normalize(form=parts))(text).decode() == unicodedata.normalize("NFD", expected)
