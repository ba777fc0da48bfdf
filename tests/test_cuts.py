"""What cutting ranges out of a text leaves: against the definition, told by words and characters."""

from __future__ import annotations

import unicodedata

import pytest
import reference
import strategies
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu_curate.cuts import BLANKS, joined, merged
from gpu_curate.document import TextColumn
from gpu_curate.ops.words import word_hashes
from gpu_curate.ops.words.places import word_places

RANGES = st.lists(st.tuples(st.integers(-3, 80), st.integers(-3, 80)), max_size=6)


def cut(text: str, *parts: str) -> str:
    """A text without the first place of each part."""
    data = text.encode()
    ranges = [(data.index(p.encode()), data.index(p.encode()) + len(p.encode())) for p in parts]
    return joined(data, ranges).decode()


@pytest.mark.parametrize(
    ("text", "parts", "left"),
    [
        ("One two three.", ["two"], "One three."),
        ("One  two three.", ["two"], "One  three."),
        ("One two\nthree.", ["two"], "One\nthree."),
        ("One.\n\nTwo.\n\nThree.\n", ["Two."], "One.\n\nThree.\n"),
        ("One.\nTwo.\n\nThree.", ["Two."], "One.\n\nThree."),
        ("One.\r\n\r\nTwo.\r\nThree.", ["Two."], "One.\r\n\r\nThree."),
        ("One. Two.\n", ["Two."], "One.\n"),
        (" One. Two.", ["One."], " Two."),
        ("One. Two.", ["One.", "Two."], ""),
        ("  One.\n", ["One."], ""),
        ("abcdef", ["cd"], "ab ef"),  # no word is glued to another
        ("abc\u00adxyzdef", ["xyz"], "abc\u00ad def"),  # nor through what is no separator
        ("他们走了。我们在这里。你好", ["我们在这里。"], "他们走了。你好"),
        ("他们ab我们", ["ab"], "他们我们"),
        ("He said (a quote) twice", ["a quote"], "He said () twice"),
        ("a\u00a0b\u3000c", ["b"], "a\u00a0c"),
        ("a one two b", ["one", "two"], "a b"),  # nothing but blanks between
        ("a one-two b", ["one", "two"], "a - b"),
        ("x\u2029cut y", ["cut"], "x\u2029y"),
    ],
)
def test_what_is_left_reads_on(text, parts, left):
    assert cut(text, *parts) == left


def test_ranges_that_touch_overlap_or_nest_are_one():
    text = b"alpha beta gamma delta"
    assert merged(text, [(6, 10), (11, 16)]) == [(6, 16)]  # a blank between
    assert merged(text, [(6, 9), (8, 12), (7, 8)]) == [(6, 12)]
    assert merged(text, [(6, 9), (9, 12)]) == [(6, 12)]
    assert merged(text, [(3, 3), (9, 4), (30, 40), (-9, 0)]) == []
    assert merged(text, [(-5, 5), (17, 99)]) == [(0, 5), (17, 22)]


def test_no_code_point_is_split():
    text = "aé渡𝄞b".encode()  # 1, 2, 3, 4 and 1 bytes
    for start in range(len(text)):
        for end in range(start + 1, len(text) + 1):
            left = joined(text, [(start, end)]).decode()  # whole code points, or this raises
            (low, high), *_ = merged(text, [(start, end)])
            assert low <= start < end <= high
            assert max(start - low, high - end) < 4
            assert left.replace(" ", "") == text[:low].decode() + text[high:].decode()


@settings(max_examples=300, deadline=None)
@given(strategies.texts(20).map(str.encode), RANGES)
def test_words_of_what_is_left_are_those_of_the_pieces(text, ranges):
    """None is glued, none is new; what lies in no range stays, to the character that is no blank."""
    cuts = merged(text, ranges)
    pieces, at = [], 0
    for start, end in cuts:
        pieces.append(text[at:start])
        at = end
    pieces.append(text[at:])
    left = joined(text, ranges)
    assert reference.words(left) == [w for piece in pieces for w in reference.words(piece)]
    without = [c for piece in pieces for c in piece.decode() if c not in BLANKS]
    assert [c for c in left.decode() if c not in BLANKS] == without
    covered = {i for start, end in ranges for i in range(max(start, 0), min(end, len(text)))}
    assert covered <= {i for start, end in cuts for i in range(start, end)}
    assert joined(text, reversed(ranges)) == left
    if not cuts:
        assert left == text


def test_blanks_are_those_of_python():
    separators = {chr(c) for c in range(0x1C, 0x20)}
    assert {chr(c) for c in range(0x110000) if chr(c).isspace()} - separators == BLANKS
    assert all(unicodedata.category(c) in ("Cc", "Zs", "Zl", "Zp") for c in BLANKS)


@settings(max_examples=200, deadline=None)
@given(strategies.columns())
def test_places_of_words_are_where_their_hashes_come_from(column):
    places = word_places(column)
    hash_W, offsets = word_hashes(column)
    assert places.offsets.tolist() == offsets.tolist()
    assert places.hash_W.tolist() == hash_W.tolist()
    for d in range(len(column)):
        raw = column.raw(d)
        before = 0
        for w in range(offsets[d], offsets[d + 1]):
            start, end = int(places.start_W[w]), int(places.end_W[w])
            assert before <= start < end <= len(raw)
            alone, _ = word_hashes(TextColumn.from_texts([raw[start:end]]))
            assert alone.tolist() == [hash_W[w]]
            before = end


def test_a_word_longer_than_any_buffer_has_its_place():
    text = ("a" * 9000 + " b").encode()
    places = word_places(TextColumn.from_texts([text]))
    assert places.hash_W.tolist() == word_hashes(TextColumn.from_texts([text]))[0].tolist()
    assert (places.start_W.tolist(), places.end_W.tolist()) == ([0, 9001], [9000, 9002])
