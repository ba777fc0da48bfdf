"""A column normalised against `text.normalize`, one text at a time, which has tests of its own."""

from __future__ import annotations

import unicodedata
import zipfile

import numpy as np
import pytest
import strategies
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu_curate.document import TextColumn
from gpu_curate.ops import normalize as module
from gpu_curate.ops.normalize import BLANKS, FORM, INVALID, classify, normalize_column
from gpu_curate.text import normalize as one
from gpu_curate.text.sections import Normalize

FORMS = ["NFC", "NFD", "NFKC", "NFKD", None]
ALL = [None, *(Normalize(form=form, keep_indentation=keep) for form in FORMS for keep in (False, True))]
NFC = Normalize()
# blanks, line ends, what is deleted, marks of several combining classes, jamo, compatibility characters, plain text
PIECES = [
    *" \t\n\r\v\f\x00\x1f\x7f\x80\x85\x9f\xa0\xad\u1680\u2000\u200a\u200b\u200c\u2028\u2029\u202f\u205f\u3000\ufeff",
    *"ab}~!éA\u212b\xa8\ufdfa\u1100\u1161\u11a8\uac00\u2019\u20ac\u3001\uffe3\ufb01\ufe00\U0001f600\u0378\U000e0001",
    *"\u0301\u0327\u0308\u030a\u05b0\u05b4\u064b\u0651\u094d\u093c\u0e38\u0e48\u302a\u3099\U0001d165\U0001d16e",
    *("  ", "\r\n", "\n\n\n", " \n", "\n  ", "x" * 61, "plain text of words " * 4, "Ж" * 33, "漢字" * 11),
]
TEXTS = st.lists(st.sampled_from(PIECES), max_size=24).map("".join)


def reference(raw: bytes, config: Normalize | None) -> bytes | None:
    """None: not UTF-8."""
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        return None
    return raw if config is None else one.normalize(text, config)


def assert_as_one_by_one(raws: list[bytes], config: Normalize | None, column: TextColumn | None = None) -> None:
    made = normalize_column(TextColumn.from_texts(raws) if column is None else column, config)
    assert len(made.text) == len(made.class_N) == len(made.changed_N) == len(raws)
    assert not made.refused
    for i, raw in enumerate(raws):
        expected = reference(raw, config)
        assert (made.class_N[i] == INVALID) == (expected is None), raw
        assert made.text.raw(i) == (expected or b""), raw
        assert made.changed_N[i] == (expected is not None and expected != raw), raw
        if made.class_N[i] == 0:
            assert expected == raw, raw


@given(texts=st.lists(TEXTS | strategies.texts(8), max_size=8), config=st.sampled_from(ALL))
@settings(max_examples=150, deadline=None)
def test_equals_one_text_at_a_time(texts, config):
    assert_as_one_by_one([t.encode("utf-8", "replace") for t in texts], config)


@given(raws=st.lists(strategies.random_bytes(8), max_size=6), config=st.sampled_from(ALL))
@settings(max_examples=100, deadline=None)
def test_bytes_that_are_no_utf8_are_told(raws, config):
    assert_as_one_by_one(raws, config)


@pytest.mark.soak
def test_equals_one_text_at_a_time_long(soak_cases):
    rng = np.random.default_rng(7)
    pieces = [p.encode() for p in PIECES] + strategies.BROKEN_BYTES[:1]
    for _ in range(soak_cases(20, 20_000)):
        config = ALL[rng.integers(len(ALL))]
        raws = [b"".join(pieces[k] for k in rng.integers(0, len(pieces), rng.integers(0, 40))) for _ in range(20)]
        assert_as_one_by_one(raws, config)


@pytest.mark.parametrize("room", [0, 1, 63, 64, 66, 67, 200])
def test_a_slice_with_and_without_room_behind_it(room):
    """Vectors of 64 bytes never look at a neighbour as if it were the text, nor behind the buffer."""
    raws = [
        b"",
        b"a",
        b"a ",
        b"word " * 30 + b"end",
        "caf\xe9 ".encode() * 20 + b"x",
        b"a\n\nb",
        b"",
        "e\u0301".encode(),
    ]
    for filling in (b"x", b" ", b"\n", b"\xcc\x81", b"\xe3\x80"):
        data = filling * room + b"".join(raws) + filling * room
        lengths = np.array([0, *map(len, raws)], np.int64)
        column = TextColumn(np.frombuffer(data, np.uint8), np.cumsum(lengths) + len(filling) * room)
        for config in ALL:
            assert_as_one_by_one(raws, config, column)


@pytest.mark.parametrize("at", [0, 1, 31, 61, 62, 63, 64, 65, 127, 128])
def test_a_fault_is_seen_wherever_it_falls_in_a_step_of_64_bytes(at):
    faults = [
        "  ",
        " \n",
        "\n\n\n",
        "\t",
        "\r\n",
        "\x7f",
        "\xa0",
        "\x9f",
        "\u2009",
        "\u205f",
        "\u3000",
        "\ufeff",
        "e\u0301",
    ]
    texts = [
        head + "b" * at + fault + "end" + tail for fault in faults for head in ("a", "é") for tail in ("", "’" * 30)
    ]
    raws = [t.encode() for t in texts]
    assert_as_one_by_one(raws, NFC)
    assert classify(TextColumn.from_texts(raws), NFC).all()


@pytest.mark.parametrize(
    ("text", "config", "expected"),
    [
        ("", NFC, 0),
        ("Plain text.\n\n Of two paragraphs", NFC, 0),
        ("It’s “curly” – naïve 日本語 한국어 Ελληνικά", NFC, 0),
        ("नमस्ते สวัสดีชื่อ שָׁלוֹם"[:14], NFC, 0),  # marks in order need no closer look
        ("zero\u200bwidth \u2028 \x85 end", NFC, 0),
        (" a", NFC, BLANKS),
        ("a\r\nb", NFC, BLANKS),
        ("a\xa0b", NFC, BLANKS),
        ("\ufeffa", NFC, BLANKS),
        ("a\x9fb", NFC, BLANKS),
        ("a\u3000b", Normalize(form="NFKC"), BLANKS),
        ("e\u0301", NFC, FORM),
        ("e\u0301 ", NFC, BLANKS | FORM),
        ("\u1100\u1161", NFC, FORM),
        ("\u212b", NFC, FORM),
        ("\u05d0\u05b4\u05b0", NFC, FORM),  # marks out of order
        ("\u05d0\u05b4\x00\u05b0", NFC, BLANKS | FORM),  # and once the control between them is gone
        ("\u05d0\u05b0 \n\u05d0\u05b4", NFC, BLANKS),
        ("\u0378", NFC, FORM),  # not known to every Unicode
        ("é", Normalize(form="NFD"), FORM),
        ("ﬁ", NFC, 0),
        ("ﬁ", Normalize(form="NFKC"), FORM),
        (" e\u0301\u0378", Normalize(form=None), BLANKS),
        (" a\r\n e\u0301\ufeff", None, 0),
    ],
)
def test_classes(text, config, expected):
    assert classify(TextColumn.from_texts([text]), config).tolist() == [expected]


@pytest.mark.parametrize("form", FORMS)
def test_every_code_point(form):
    """None that is called clean changes, alone or among others; most of what is assigned is."""
    points = [chr(p) for p in range(0x80, 0x110000) if not 0xD800 <= p < 0xE000]
    clean = classify(TextColumn.from_texts([f"a{c}b" for c in points]), Normalize(form=form)) == 0
    kept = [c for c, ok in zip(points, clean, strict=True) if ok]
    text = "z".join(kept)
    assert one.normalize(text, Normalize(form=form)).decode() == text
    assert len(kept) > {"NFD": 225_000, "NFKD": 221_000}.get(str(form), 236_000)
    if form is not None:
        marks = sorted((c for c in kept if unicodedata.combining(c)), key=unicodedata.combining)
        assert unicodedata.is_normalized(form, "a" + "".join(marks))


def test_official_vectors(shared_data):
    with zipfile.ZipFile(shared_data("patho/unicode-NormalizationTest.zip")) as archive:
        name = next(n for n in archive.namelist() if n.endswith("NormalizationTest.txt"))
        lines = archive.read(name).decode("utf-8").splitlines()
    columns = [line.partition("#")[0].split(";")[:5] for line in lines if line.partition("#")[0].count(";") >= 5]
    raws = ["".join(chr(int(c, 16)) for c in field.split()).encode() for fields in columns for field in fields]
    assert len(raws) > 75_000
    for form in ("NFC", "NFD", "NFKC", "NFKD"):
        assert_as_one_by_one(raws[:: 1 if form == "NFC" else 7], Normalize(form=form))


@pytest.mark.parametrize("at", range(58, 70))
@pytest.mark.parametrize("letter", ["a", "\u00ad", "漢", "😀"])
def test_text_copied_up_to_within_a_character_goes_on_behind_it(at, letter):
    """Columns are copied 64 bytes a step; blanks at the end go, wherever a character lies across a step."""
    for end in ("  ", " \n", "\u00a0 b", ""):  # the last text of a column: there is no room behind it for a step
        assert_as_one_by_one([("a" * at + letter + end).encode()], Normalize())


def test_what_a_text_raises_is_told_with_its_number(monkeypatch):
    def refuse(text: str, config: Normalize) -> bytes:
        raise RecursionError(text)

    monkeypatch.setattr("gpu_curate.ops.normalize.cpu.normalize", refuse)
    made = normalize_column(TextColumn.from_texts(["a", "e\u0301", "b  c"]), NFC)
    assert [made.text.raw(i) for i in range(3)] == [b"a", b"", b"b c"]
    assert {i: type(e) for i, e in made.refused.items()} == {1: RecursionError}


def test_a_clean_column_is_not_copied():
    column = TextColumn.from_texts(["a b", "日本語"])
    assert normalize_column(column, NFC).text is column
    assert normalize_column(column, None).text is column


def test_the_table_is_small_and_of_every_form():
    for form in module.FORMS:
        table = module.forms(form)
        assert table.stage1.shape == (8704,)
        assert table.stage1.max() * 128 + 128 <= len(table.stage2) < 65_536
