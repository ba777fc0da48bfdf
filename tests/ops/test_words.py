"""Words: the table, the definition on known hard inputs, and the CPU twin against the definition."""

from __future__ import annotations

import ctypes
import importlib.machinery
import importlib.util
import mmap
import sys
import unicodedata
from itertools import pairwise

import numpy as np
import pytest
import reference
import strategies
from hypothesis import example, given, settings
from places import ROOT

from gpu_curate.document import TextColumn
from gpu_curate.ops import words
from gpu_curate.ops.words import cpu

SAME_UNICODE = unicodedata.unidata_version == words.UNICODE_VERSION


def hashes(docs: list[bytes]) -> list[list[int]]:
    hash_W, offsets = words.word_hashes(TextColumn.from_texts(docs))
    return [hash_W[a:b].tolist() for a, b in pairwise(offsets)]


def assert_equal_to_reference(docs: list[bytes]) -> None:
    assert hashes(docs) == [reference.word_hashes(doc) for doc in docs]


# --------------------------------------------------------------------------------------------------------------- table


def test_table_agrees_with_unicodedata():
    if not SAME_UNICODE:
        pytest.skip(f"the table is Unicode {words.UNICODE_VERSION}, this Python has {unicodedata.unidata_version}")
    for cp in range(sys.maxunicode + 1):
        kind, folded = reference.class_and_fold(cp)
        category, lower = unicodedata.category(chr(cp)), chr(cp).lower()
        if cp >= words.TABLE_LIMIT:
            assert (kind == words.SKIP) == (0xE0000 <= cp < 0xE1000)
        elif category == "Cf":
            assert kind == words.SKIP
        elif category[0] in "LMN" or category == "Pc":
            assert kind in (words.WORD, words.UNSPACED)
            assert folded == (ord(lower) if len(lower) == 1 else ord("i") if cp == 0x130 else cp)
        else:
            assert kind == words.SEPARATOR


def test_scripts_without_spaces_are_single_and_no_others():
    """Told by the names of code points, where the table goes by blocks."""
    scripts = ("CJK UNIFIED", "CJK COMPATIBILITY IDEOGRAPH", "HIRAGANA LETTER", "KATAKANA LETTER", "BOPOMOFO LETTER")
    scripts += ("THAI ", "LAO ", "TIBETAN ", "MYANMAR ", "KHMER ", "HALFWIDTH KATAKANA", "HENTAIGANA")
    scripts += ("YI SYLLABLE ", "JAVANESE ", "BALINESE ")
    spaced = ("LATIN ", "GREEK ", "CYRILLIC ", "ARABIC ", "HEBREW ", "DEVANAGARI ", "HANGUL ", "HALFWIDTH HANGUL")
    for cp in range(words.TABLE_LIMIT):
        name = unicodedata.name(chr(cp), "")
        kind = reference.class_and_fold(cp)[0]
        if name.startswith(scripts):
            assert kind != words.WORD, f"U+{cp:04X} {name}"
        elif name.startswith(spaced):
            assert kind != words.UNSPACED, f"U+{cp:04X} {name}"


def test_weights_are_those_of_the_scripts():
    """Of every code point that can begin a word; a single one weighs less than a word, a spaced one at least as much."""
    for cp in range(words.TABLE_LIMIT):
        kind, folded = reference.class_and_fold(cp)
        if kind in (words.WORD, words.UNSPACED):
            weight = reference.word_weight(chr(folded))
            assert words.word_weight(chr(folded)) == words.UNIT * weight, f"U+{cp:04X}"
            if not 0x302A <= cp <= 0x302F:  # tone marks in a row of Han
                assert (kind == words.UNSPACED) == (weight < 1), f"U+{cp:04X}"
    assert all(
        first % 16 == 0 and last % 16 == 15 and 0 < w <= 120 and first >= 0x800
        for first, last, w in words.SCRIPT_WEIGHTS
    )


@settings(max_examples=100, deadline=None)
@given(strategies.documents())
def test_words_weigh_what_the_definition_says(docs):
    hash_W, weight_W, offsets = cpu.weighted_words(TextColumn.from_texts(docs))
    assert [a.tolist() for a in (hash_W, offsets)] == [
        a.tolist() for a in words.word_hashes(TextColumn.from_texts(docs))
    ]
    assert weight_W.tolist() == [words.UNIT * reference.word_weight(w) for doc in docs for w in reference.words(doc)]


@pytest.mark.parametrize("word", ["中", "ไ", "가나다", "മലയാളം", "𠀀", "日本の国", "é", "ꀀ", "Straße"])
@pytest.mark.parametrize("ahead", [*range(0, 40, 3), 39])
def test_weight_of_a_word_at_any_place_of_a_chunk(word, ahead):
    """Words before and after the end of a chunk, cut by it, and behind a cut word of more than a step."""
    doc = ("x" * (cpu.CHUNK - ahead) + word + " " + word + "漢" + word + " " + word * 9).encode()
    _, weight_W, _ = cpu.weighted_words(TextColumn.from_texts([doc]))
    assert weight_W.tolist() == [words.UNIT * reference.word_weight(w) for w in reference.words(doc)]


def test_committed_table_is_what_its_script_makes(tmp_path, monkeypatch):
    if not SAME_UNICODE:
        pytest.skip(f"the table is Unicode {words.UNICODE_VERSION}, this Python has {unicodedata.unidata_version}")
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    loader = importlib.machinery.SourceFileLoader("make_unicode_table", str(ROOT / "scripts" / "make_unicode_table"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    monkeypatch.setattr(module, "TARGET", tmp_path / "table.npz")
    module.main()
    with np.load(tmp_path / "table.npz") as made:
        stage1, stage2 = words.fold_table()
        assert np.array_equal(made["stage1"], stage1)
        assert np.array_equal(made["stage2"], stage2)


def test_folding_grows_text_by_no_more_than_the_stated_factor():
    growth = 0.0
    for cp in range(words.TABLE_LIMIT):
        kind, folded = reference.class_and_fold(cp)
        if kind in (words.WORD, words.UNSPACED):
            size = len(chr(folded).encode()) + 2 * (kind == words.UNSPACED)
            growth = max(growth, size / len(chr(cp).encode()))
    assert growth == words.MAX_FOLD_GROWTH
    folded_bytes = len(cpu.scratch()[0])
    # a cut word of 16 bytes, a sequence that starts in the chunk and ends 3 bytes behind it, one vector store beyond
    assert folded_bytes >= 16 + (cpu.CHUNK + 3) * growth + 2 + cpu.BLOCK


# ---------------------------------------------------------------------------------------------------------- definition


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The quick, brown FOX!", ["the", "quick", "brown", "fox"]),
        ("ΦΘΣ", ["φθσ"]),  # str.lower() gives a final sigma
        ("İa", ["ia"]),  # str.lower() gives i + U+0307
        ("STRASSE straße", ["strasse", "straße"]),
        ("so\u00adft zero\u200bwidth \ufeffbom", ["soft", "zerowidth", "bom"]),
        ("❽ ٣ ½", ["❽", "٣", "½"]),
        ("_x_ a_b", ["_x_", "a_b"]),
        ("3-4 3.14", ["3", "4", "3", "14"]),
        ("a\nb\r\nc\u2028d\u0085e\u00a0f\u3000g", ["a", "b", "c", "d", "e", "f", "g"]),
        ("don't", ["don", "t"]),
        ("渡り鳥 abc北def", ["渡", "り", "鳥", "abc", "北", "def"]),
        ("เรือ", list("เรือ")),  # a combining vowel is a word too
        ("한국어 낱말", ["한국어", "낱말"]),
        ("e\u0301té", ["e\u0301té"]),
        ("\U00020000\U00040000x\U000e0061y", ["\U00020000", "xy"]),
        ("...", []),
        ("", []),
    ],
)
def test_words_of(text, expected):
    assert reference.words(text.encode()) == expected
    assert_equal_to_reference([text.encode()])


@pytest.mark.parametrize("broken", strategies.BROKEN_BYTES)
def test_ill_formed_bytes_separate_words(broken):
    doc = b"ab" + broken + b" cd"
    tail = [broken[-1:].decode()] if broken[-1:] == b"a" else []
    assert reference.words(doc) == ["ab", *tail, "cd"]
    assert_equal_to_reference([doc, broken, broken + broken, b"ab" + broken])


def test_sequence_cut_by_the_end_of_its_document_is_not_completed_by_the_next():
    assert hashes([b"ab\xe4\xb8", b"\xad cd"]) == [reference.word_hashes(b"ab"), reference.word_hashes(b"cd")]


def test_chinese_sentences_that_differ_in_one_character_share_most_words():
    a, b = "渡船在早上九点从北码头离开然后在傍晚六点回到南岸", "渡船在早上八点从北码头离开然后在傍晚六点回到南岸"
    one, two = hashes([a.encode(), b.encode()])
    assert len(one) == len(two) == len(a)
    assert sum(x != y for x, y in zip(one, two, strict=True)) == 1


def test_word_hash_golden_values():
    """From the plain definition in tests/reference.py, and fixed here so that no version changes them unseen."""
    docs = [
        b"word",
        b"The",
        "Straße".encode(),
        "北".encode(),
        b"a" * 16,
        b"a" * 17,
        b"0123456789abcdef0123456789abcdef",
    ]
    assert [h for (h,) in hashes(docs)] == GOLDEN_WORDS


GOLDEN_WORDS = [
    0xFAF0AE32D47E6985,
    0x28BD703505A24E33,
    0xF620F7E0725B786D,
    0x5E46EA8D2C8CDC44,
    0x4FB3BD63877D02E7,
    0x098CE835C2C8B072,
    0xEC27252BDBCDEBE0,
]


# -------------------------------------------------------------------------------------------------------------- equality


@settings(max_examples=100, deadline=None)
@given(strategies.columns())
@example(strategies.column([t.encode() for t in strategies.AWKWARD_TEXTS]))
@example(strategies.column(strategies.BROKEN_BYTES))
def test_equals_the_definition_on_any_bytes(column):
    hash_W, offsets = words.word_hashes(column)
    assert hash_W.dtype == np.uint64
    assert offsets.dtype == np.int64
    for i in range(len(column)):
        assert hash_W[offsets[i] : offsets[i + 1]].tolist() == reference.word_hashes(column.raw(i))


def test_column_of_no_documents_has_no_words():
    hash_W, offsets = words.word_hashes(TextColumn.from_texts([]))
    assert len(hash_W) == 0
    assert offsets.tolist() == [0]


def test_every_length_around_a_block():
    assert_equal_to_reference([(b"ab, " * 40)[:n] for n in range(140)])
    assert_equal_to_reference([b"x" * n for n in range(140)])
    assert_equal_to_reference([b"." * n + b"x" for n in range(140)])


@pytest.mark.parametrize("tail", ["é", "北", "\U0001f600", "\u00ad", "É北é"])
def test_non_ascii_at_every_distance_from_the_end_of_the_buffer(tail):
    for n in range(0, 140, 3):
        assert_equal_to_reference([b"a" * n + tail.encode(), b"b " * (n // 2) + tail.encode() + b"c" * (n % 7)])


@pytest.mark.parametrize(
    "piece",
    [
        "a",
        "ab ",
        "é",
        "北",
        "a北",
        "\u00ad",
        "Ⱥ",
        "\U0001f600",
        "abcdefghijklmnop",
        "wörd ",
        "x" * 99 + " ",
        "y" * 3000 + " ",
    ],
    ids=lambda piece: f"{len(piece)} x {piece[:4]!a}",
)
def test_documents_longer_than_a_chunk(piece):
    """Words, sequences and skipped code points that the end of a chunk cuts at every offset."""
    long = piece.encode() * (3 * cpu.CHUNK // len(piece.encode()) + 2)
    assert_equal_to_reference([b"." * shift + long for shift in range(5)])


def test_word_that_ends_at_the_end_of_a_chunk_is_not_joined_to_the_next():
    for n in range(cpu.CHUNK - 20, cpu.CHUNK + 3):
        assert_equal_to_reference(
            [b"a" * n + b" " + b"b" * 20, b"." * n + b"a b", b"a" * n + "\u00ad".encode() + b"b c"]
        )


def test_most_words_that_a_chunk_can_hold_fit_the_scratch():
    for doc in [b"a " * cpu.CHUNK, "a北".encode() * cpu.CHUNK, b"a" + b" a" * cpu.CHUNK, b"_\xff" * cpu.CHUNK]:
        hash_W, _ = words.word_hashes(TextColumn.from_texts([b"x" * (cpu.CHUNK - 17) + doc]))
        assert len(hash_W) == len(reference.words(b"x" * (cpu.CHUNK - 17) + doc))


def test_one_word_of_a_megabyte():
    (found,) = hashes([b"Word" * (1 << 18)])
    assert found == [reference.word_hash("word" * (1 << 18))]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="mprotect of the page behind is done the Linux way")
def test_no_byte_behind_the_buffer_is_read_or_needed():
    """Text up to the last byte of a page whose successor may not be touched: a read there ends the process."""
    page = mmap.PAGESIZE
    region = mmap.mmap(-1, 2 * page)
    address = ctypes.addressof(ctypes.c_char.from_buffer(region))
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.mprotect(ctypes.c_void_p(address + page), ctypes.c_size_t(page), 0) == 0
    chars = np.frombuffer((ctypes.c_uint8 * page).from_address(address), np.uint8)
    doc = "wörd, Ünïcode 北 ".encode() * 9
    for n in range(len(doc)):
        chars[page - n :] = np.frombuffer(doc[len(doc) - n :], np.uint8)
        column = TextColumn(chars, np.array([page - n, page], np.int64))
        assert words.word_hashes(column)[0].tolist() == reference.word_hashes(column.raw(0))


def test_neighbours_of_a_slice_do_not_leak():
    docs = [b"alpha", b"beta ", b"\xe4\xb8", b"\xadgamma", b"", b"delta"]
    whole = TextColumn.from_texts(docs)
    for start in range(len(docs)):
        for stop in range(start, len(docs) + 1):
            hash_W, offsets = words.word_hashes(whole.slice(start, stop))
            assert offsets[0] == 0
            assert hash_W.tolist() == [h for doc in docs[start:stop] for h in reference.word_hashes(doc)]


@settings(max_examples=50, deadline=None)
@given(strategies.columns())
def test_splitting_a_column_changes_nothing(column):
    hash_W, offsets = words.word_hashes(column)
    at = len(column) // 2
    first, second = words.word_hashes(column.slice(0, at)), words.word_hashes(column.slice(at, len(column)))
    assert np.array_equal(hash_W, np.concatenate([first[0], second[0]]))
    assert np.array_equal(np.diff(offsets), np.concatenate([np.diff(first[1]), np.diff(second[1])]))


def test_writable_and_read_only_buffers_run_the_same_compiled_code():
    docs = ["Ein Wort", "zwei Wörter"]
    read_only = TextColumn.from_texts(docs)
    words.word_hashes(read_only)
    compiled = len(cpu.hash_documents.signatures)
    writable = TextColumn(read_only.chars.copy(), read_only.offsets.copy())
    assert np.array_equal(words.word_hashes(writable)[0], words.word_hashes(read_only)[0])
    assert len(cpu.hash_documents.signatures) == compiled


def test_table_of_another_unicode_version_is_refused(monkeypatch):
    words.fold_table.cache_clear()
    monkeypatch.setattr(words, "UNICODE_VERSION", "1.1.5")
    with pytest.raises(words.FatalError, match=r"unicode_fold\.npz is Unicode 14\.0\.0, this code expects 1\.1\.5"):
        words.fold_table()
    monkeypatch.undo()
    words.fold_table()
