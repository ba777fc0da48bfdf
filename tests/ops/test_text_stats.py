"""text_stats: every statistic of every document equals the plain definition."""

import random
import time
import unicodedata

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from text_stats_reference import reference

from gpu_curate.document import TextColumn
from gpu_curate.errors import InputError
from gpu_curate.ops import text_stats as op
from gpu_curate.ops.text_stats import NAMES, SCHEMA, text_stats

# what the rules look at, and every kind of character: spaces of 1 to 3 bytes, letters of 1 to 4, ill-formed bytes
PIECES = [
    *"abAZ019.?!#{}-_'\"[]()/:,;\0",
    *"\t\n\r\x0b\x1c \x85\xa0\u1680\u2003\u2028\u3000\ufeff\u200b",
    *"éßЖжİΣ中の。！？։؟।\u2026\u2022\u201c\u201d\u0301١१１𝐀𐐀😀\U00030000\U000e0041\U0010ffff",
    *"渡船カなไกខမབ한ለ가」』”’»（）﴿﴾។؟৷｡〞＂",
    *["。」", "渡船在早上九点从北码头离开。", "フェリーは九時に", "เรือออกเก้าโมง", "한국어는 ", "ไ" * 400, "九" * 1001],
    *["\n", "\n\n", "\n \n", " ", " ", "...", "....", "U.S.", "É.", ". ", ".\n", '."', "[1]", "[edit]", "[12", "1]"],
    *["the", "The", "of", "and", "with ", "have ", "- ", "\u2022 ", "the cat sat on the mat. ", "a b a b "],
    *["lorem ipsum", "Lorem IPSUM ", "javascript", "JavaScript!", "terms of use ", "Privacy Policy", "cookie policy"],
    *["uses cookies", "use of cookies", "use cookies", "cookie", "[citation needed]", "x" * 31, "y" * 63, "z" * 1000],
]
ILL_FORMED = [
    b"\x80",
    b"\xbf",
    b"\xc2",
    b"\xc0\x80",
    b"\xe2\x80",
    b"\xed\xa0\x80",
    b"\xe0\x80\x85",
    b"\xf4\x90\x80\x80",
]
ILL_FORMED += [b"\xf0\x9f\x98", b"\xff", b"\xe3\x80"]
text_bytes = st.lists(st.sampled_from([p.encode() for p in PIECES]), max_size=60).map(b"".join)
any_bytes = st.lists(st.sampled_from([p.encode() for p in PIECES] + ILL_FORMED), max_size=60).map(b"".join)


def assert_equal_to_reference(documents: list[bytes]) -> None:
    stats = text_stats(TextColumn.from_texts(documents))
    assert list(stats) == list(NAMES)
    assert all(stats[name].dtype == SCHEMA[name] and stats[name].shape == (len(documents),) for name in NAMES)
    for i, document in enumerate(documents):
        assert {name: int(stats[name][i]) for name in NAMES} == reference(document), document[:200]


@given(st.lists(st.one_of(text_bytes, any_bytes, st.binary(max_size=200)), max_size=6))
@settings(max_examples=100, deadline=None)
@example([b""])
@example([b"\n", b"\n\n\n", b" ", b"\xe2\x80", b"\xa8 a"])  # a space's bytes shared by two documents are no space
@example([b"  \n a b\n\n a b \n\n", b"a b\n\na b"])  # spaces around the text belong to no paragraph
@example([b"\xed\xa0\x80 a \xf4\x90\x80\x80 \xe0\x81\x81 \xf0\x80\x81\x81 \xc1\x81 \xf5\x80\x80\x80"])  # symbols, all
@example([b"trails off..", b".", b"..", b".. on"])  # nor are the dots of two documents an ellipsis
@example([b"a b\nc d\n\na b\nc d\n\n\na b\nc d", b" a\nb \n\n a\nb "])
@example([b"It is " + b"x" * 1000 + b".", b"It is " + b"x" * 1001 + b".", "It is {}.".format("é" * 1000).encode()])
@example([b"This is cited.[1][edit][citation needed]", b"This is not. [1]", b"Nor is this.[a]", b"[1]", b"a b c[12]."])
@example(["他说：“船来了。”\n九点。\nเรือออก 九 点".encode(), "“a b c.”[3]\n”".encode(), 'x y z.”"\nx y z"”'.encode()])
@example([b"I met J. R. Smith. He left for the U.S. in May. Bye J.", b'He said "no." "Why?" she asked.'])
def test_equals_the_definition(documents):
    assert_equal_to_reference(documents)


@given(st.data())
@settings(max_examples=100, deadline=None)
def test_words_lines_and_characters_across_a_block_equal_the_definition(data):
    lead = data.draw(st.integers(40, 70))
    pieces = data.draw(st.lists(st.sampled_from([p.encode() for p in PIECES] + ILL_FORMED), min_size=1, max_size=12))
    filler = data.draw(st.sampled_from([b"x", b"\n", b" ", b"-", "é".encode(), "\u3000".encode()]))
    assert_equal_to_reference([filler * lead + b"".join(pieces), b"".join(pieces) + filler * lead])


@given(st.integers(0, 2**32), st.integers(1, 6), st.integers(0, 200))
@settings(max_examples=60, deadline=None)
def test_repeated_ngrams_equal_the_definition(seed, vocabulary, count):
    rng = random.Random(seed)
    words = [rng.choice(["a", "bb", "ccc", "d.", "é", "#"][:vocabulary]) for _ in range(count)]
    some = " ".join(words).encode()
    assert_equal_to_reference([some, some + b" " + some, b"one " + some + b"\n\n" + some[: len(some) // 2]])


@pytest.mark.parametrize("size", [0, 1, 2, 61, 62, 63, 64, 65, 127, 128, 129, 191, 192, 193])
def test_sizes_around_a_block(size):
    sentence = b"The end... of it is near; the end of it is far. "
    assert_equal_to_reference([(sentence * 5)[:size], b"\n" * size, b"w" * size, b"{" * size, ("é" * size).encode()])


def test_real_documents_equal_the_definition(shared_data):
    texts = pq.read_table(shared_data("docs/ibm_cc100.parquet"))["contents"].to_pylist()[:50]
    assert_equal_to_reference([t.encode() for t in texts])
    assert_equal_to_reference(
        [shared_data("patho/utf8tests.bin").read_bytes(), shared_data("patho/blns.txt").read_bytes()]
    )


def test_no_documents():
    stats = text_stats(TextColumn.from_texts([]))
    assert list(stats) == list(NAMES)
    assert all(len(v) == 0 for v in stats.values())


def test_empty_document_has_zeros():
    stats = text_stats(TextColumn.from_texts(["", "word", ""]))
    assert all(int(v[0]) == 0 and int(v[2]) == 0 for v in stats.values())


def test_slicing_a_column_changes_nothing():
    rng = random.Random(5)
    documents = ["".join(rng.choices(PIECES, k=rng.randrange(40))) for _ in range(97)]
    column = TextColumn.from_texts(documents)
    whole = text_stats(column)
    for start, stop in ((0, 97), (1, 2), (31, 64), (96, 97), (50, 50)):
        part = text_stats(column.slice(start, stop))
        assert all(np.array_equal(part[name], whole[name][start:stop]) for name in NAMES)


def test_bytes_around_a_document_are_not_read_as_text():
    chars = np.frombuffer(b"the {\xe2\x80" + b"\xa8javascript a b c" + b".\nlorem ipsum " * 20, np.uint8)
    inner = TextColumn(chars, np.array([7, 12, 17, 24], np.int64))
    alone = [inner.raw(i) for i in range(3)]
    stats = text_stats(inner)
    for i, document in enumerate(alone):
        assert {name: int(stats[name][i]) for name in NAMES} == reference(document)


@pytest.mark.parametrize("array", ["readonly", "writable", "strided"])
def test_any_kind_of_array_gives_the_same(array):
    data = np.frombuffer(b"The cat sat on the mat. The cat sat.", np.uint8)
    chars = {"readonly": data, "writable": data.copy(), "strided": np.repeat(data, 2)[::2]}[array]
    stats = text_stats(TextColumn(chars, np.array([0, 24, len(data)], np.int64)))
    assert stats["words"].tolist() == [6, 3]


def test_hash_constants_are_the_hashes_of_the_words():
    from gpu_curate.ops.text_stats.characters import hash_bytes

    data = bytes(range(1, 200))
    padded = np.frombuffer(data + bytes(32), np.uint8)
    for size in (0, 1, 7, 8, 9, 15, 16, 17, 31, 32, 33, 199):
        assert int(hash_bytes(padded, 0, size)) == op.word_hash(data[:size])
    assert op.word_hash(b"the") != op.word_hash(b"the\0")


def test_classes_are_those_of_python():
    known = unicodedata if unicodedata.unidata_version == op.UNICODE_VERSION else unicodedata.ucd_3_2_0
    stage1, stage2 = op.character_classes()
    table = stage2.reshape(-1, 256)[stage1].ravel()
    for cp in range(op.TABLE_LIMIT):
        c = chr(cp)
        if known.category(c) != "Cn" or known is unicodedata:
            expected = op.SPACE * c.isspace() | op.ALPHABETIC * c.isalpha()
            assert table[cp] & (op.SPACE | op.ALPHABETIC) == expected, hex(cp)
            assert bool(table[cp] & op.UPPERCASE) == (unicodedata.category(c) == "Lu"), hex(cp)
    assert not any(chr(cp).isspace() or chr(cp).isalpha() for cp in range(op.TABLE_LIMIT, 0x110000, 7))


def test_symbols_and_terminals_are_those_of_datatrove():
    text = pytest.importorskip("datatrove.utils.text", reason="datatrove is not installed")
    stage1, stage2 = op.character_classes()
    table = stage2.reshape(-1, 256)[stage1].ravel()
    symbols = {c for c in text.PUNCTUATION_SET if not c.isspace()}
    assert {chr(cp) for cp in np.flatnonzero(table & op.SYMBOL)} == symbols
    regex = pytest.importorskip("regex", reason="regex is not installed")
    terminal = {chr(cp) for cp in np.flatnonzero(table & op.TERMINAL)}
    assert terminal >= text.TERMINAL_PUNCTUATION
    assert all(regex.match(r"\p{Sentence_Terminal}", c) for c in terminal - text.TERMINAL_PUNCTUATION)
    assert {c for c in terminal if c < "\u0250"} == set(".?!")  # of Latin script


def test_sentence_ends_of_all_scripts_are_known():
    """One of each script that Unicode has a Sentence_Terminal for; Thai, Lao and Tibetan have none."""
    marks = "。．！？｡؟۔।॥။។፧።܀᠃߹᙮᥄᪨᭞᱾꓿꘎꛳꡶꣎꤯꧈꩝꫰꯫𑁇𑂾𑅁𑇅𑈸𑊩𑑋𑗂𑙁𑜼𑱁𖩮𖫵𖬷𛲟︒"
    stats = text_stats(TextColumn.from_texts([f"x{c}\nx{c}」\nx{c}" for c in marks]))
    assert stats["terminal_lines"].tolist() == [3] * len(marks)


def test_letters_measure_by_script():
    stats = text_stats(
        TextColumn.from_texts(["渡船ㄅ", "カナなー", "ไทยលាမབ", "한글ለ", "abжع", "的" * 7 + "ab", "的" * 7 + "abc"])
    )
    assert stats["han_letters"].tolist() == [3, 0, 0, 0, 0, 7, 7]
    assert stats["unspaced_letters"].tolist() == [0, 4, 6, 0, 0, 0, 0]  # U+17B6 is no letter
    assert stats["double_letters"].tolist() == [0, 4, 0, 3, 0, 0, 0]
    assert stats["short_lines"].tolist() == [1, 1, 1, 1, 1, 1, 0]  # 7 * 4 + 2 = 30


@pytest.mark.parametrize("count", [0, 1, 8, 17, 32])
def test_other_stop_words(count):
    words = tuple(f"w{i}" for i in range(count))
    text = "w0 w1 w1 w31 the w5\nw7 x"
    stats = text_stats(TextColumn.from_texts([text, "", "w0"]), words)
    expected = [reference(t.encode(), words)["stop_words"] for t in (text, "", "w0")]
    assert stats["stop_words"].tolist() == expected
    assert expected[0] == sum(i < count for i in (0, 1, 31, 5, 7))


@pytest.mark.parametrize(
    "unit",
    [b"word ", b"a ", b"unbroken", b"line\n", b"a\n\n", b"A.", b"[1]", b"{", b"x cookie", b"\xc2\xa0", b"\x80", b"..."],
)
def test_a_long_document_takes_linear_time(unit):
    def seconds(size: int) -> float:
        column = TextColumn.from_texts([(unit * (size // len(unit) + 1))[:size]])
        best = 1e9
        for _ in range(3):
            start = time.process_time()
            text_stats(column)
            best = min(best, time.process_time() - start)
        return best

    seconds(1000)
    small, large = seconds(250_000), seconds(2_000_000)
    assert large < 8 * 4 * small + 0.05  # 8 x the bytes; 4 for caches and a busy machine; a square would be 64


def test_a_document_above_the_limit_is_an_input_error(monkeypatch):
    monkeypatch.setattr(op, "MAX_DOCUMENT_BYTES", 10)
    assert text_stats(TextColumn.from_texts(["x" * 10]))["chars"].tolist() == [10]
    with pytest.raises(InputError, match=r"document 1 of the column has 11 bytes; .* at most 10"):
        text_stats(TextColumn.from_texts(["short", "x" * 11]))
