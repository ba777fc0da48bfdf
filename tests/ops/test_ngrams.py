"""Shared n-grams against sets."""

from __future__ import annotations

import numpy as np
import pytest
import reference
import strategies
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu_curate.document import TextColumn
from gpu_curate.errors import ConfigError
from gpu_curate.ops.ngrams import NgramIndex, coverage, probe
from gpu_curate.ops.words.cpu import CHUNK

PARAGRAPH = "the ferry leaves at nine from the north pier and returns at six in the evening every day of the week"
# Few words, so that texts share n-grams by chance.
TEXTS = st.lists(st.sampled_from(["a", "b", "C", "北", " . "]), max_size=14).map(lambda w: " ".join(w).encode())


def run(documents: list[bytes], items: list[bytes], n: int, whole_items: bool = False):
    index = NgramIndex.build(TextColumn.from_texts(items), n, whole_items)
    hits = probe(TextColumn.from_texts(documents), index)
    return index, hits, coverage(hits, index, len(documents))


def assert_equal_to_reference(documents: list[bytes], items: list[bytes], n: int, whole_items: bool) -> None:
    index, (doc_M, gram_M), (coverage_N, item_N, hits_N) = run(documents, items, n, whole_items)
    grams = [reference.item_ngrams(item, n, whole_items) for item in items]
    assert index.gram_G.tolist() == sorted(set().union(*grams))
    assert index.item_grams_I.tolist() == [len(g) for g in grams]
    assert index.num_items == len(items)
    for g, value in enumerate(index.gram_G.tolist()):
        members = index.item_E[index.item_offsets[g] : index.item_offsets[g + 1]].tolist()
        assert members == [i for i in range(len(items)) if value in grams[i]]
    expected = reference.contamination(documents, items, n, whole_items)
    assert list(zip(doc_M.tolist(), gram_M.tolist(), strict=True)) == [
        (d, g) for d, (found, _, _) in enumerate(expected) for g, v in enumerate(index.gram_G.tolist()) if v in found
    ]
    assert coverage_N.tolist() == [np.float32(share) for _, share, _ in expected]
    assert item_N.tolist() == [item for _, _, item in expected]
    assert hits_N.tolist() == [len(found) for found, _, _ in expected]
    assert (coverage_N.dtype, item_N.dtype, hits_N.dtype) == (np.float32, np.int64, np.int32)


@settings(max_examples=100, deadline=None)
@given(st.lists(TEXTS, max_size=6), st.lists(TEXTS, max_size=6), st.integers(1, 5), st.booleans())
def test_hits_and_coverage_equal_sets(documents, items, n, whole_items):
    assert_equal_to_reference(documents, items, n, whole_items)


@settings(max_examples=40, deadline=None)
@given(strategies.documents(), strategies.documents(), st.sampled_from([1, 2, 13]), st.booleans())
def test_hits_and_coverage_equal_sets_on_any_bytes(documents, items, n, whole_items):
    assert_equal_to_reference(documents + items[:1], items, n, whole_items)


@pytest.mark.parametrize("n", [1, 13, 256])
def test_document_of_several_chunks(n):
    """The n-grams of an item lie across the ends of chunks, at every offset of a word."""
    item = " ".join(f"word{k}" for k in range(300))
    documents = [" ".join(["filler"] * (CHUNK // 7 - 150 + shift)) + " " + item for shift in range(0, 150, 7)]
    _, _, (coverage_N, item_N, hits_N) = run([d.encode() for d in documents], [item.encode()], n)
    assert (coverage_N == 1).all()
    assert (item_N == 0).all()
    assert (hits_N == 300 - n + 1).all()


def test_document_that_holds_an_item_is_hit_once_per_ngram_however_often_it_repeats():
    _, (doc_M, gram_M), (coverage_N, _, hits_N) = run([f"{PARAGRAPH}. ".encode() * 50], [PARAGRAPH.encode()], 13)
    assert hits_N.tolist() == [9]
    assert coverage_N.tolist() == [1.0]
    assert gram_M.tolist() == list(range(9))
    assert doc_M.tolist() == [0] * 9


def test_case_punctuation_and_line_breaks_do_not_hide_an_item():
    hidden = PARAGRAPH.upper().replace(" ", ",\n\n")
    assert run([b"x " + hidden.encode() + b" y"], [PARAGRAPH.encode()], 13)[2][0].tolist() == [1.0]


def test_short_items_hit_only_as_whole_items():
    documents = [b"Part A. Notes.", b"Nothing here"]
    assert run(documents, [b"A."], 13)[2][0].tolist() == [0.0, 0.0]
    coverage_N, item_N, hits_N = run(documents, [b"A."], 13, whole_items=True)[2]
    assert (coverage_N.tolist(), item_N.tolist(), hits_N.tolist()) == ([1.0, 0.0], [0, -1], [1, 0])


def test_equal_coverage_goes_to_the_lowest_item():
    a, b = "a b c d", "c d e f"
    _, _, (coverage_N, item_N, _) = run(
        [b"a b c d e f", b"c d e f", b"x c d x"], [a.encode(), b.encode(), a.encode()], 2
    )
    assert coverage_N.tolist() == [1.0, 1.0, np.float32(1 / 3)]
    assert item_N.tolist() == [0, 1, 0]


def test_coverage_is_of_distinct_ngrams():
    _, _, (coverage_N, _, _) = run([b"a a"], [b"a a a a b"], 2)
    assert coverage_N.tolist() == [0.5]  # "a a" of "a a" and "a b"


def test_coverage_compares_shares_not_counts():
    long, short = " ".join(f"l{k}" for k in range(10)), "s0 s1 s2"
    _, _, (coverage_N, item_N, hits_N) = run([b"l0 l1 l2 l3 and s0 s1 s2"], [long.encode(), short.encode()], 2)
    assert (coverage_N.tolist(), item_N.tolist(), hits_N.tolist()) == ([1.0], [1], [5])


@pytest.mark.parametrize("items", [[], [b""], [b"too short"], [b"...", b" "]])
def test_items_without_ngrams_hit_nothing(items):
    index, (doc_M, gram_M), (coverage_N, item_N, hits_N) = run([b"too short", b""], items, 13)
    assert len(index.gram_G) == len(doc_M) == len(gram_M) == 0
    assert (coverage_N.tolist(), item_N.tolist(), hits_N.tolist()) == ([0.0, 0.0], [-1, -1], [0, 0])


def test_no_documents():
    assert [len(part) for part in run([], [PARAGRAPH.encode()], 13)[2]] == [0, 0, 0]


def test_many_items_and_no_hit():
    """20,000 n-grams: the filter lets 1 foreign n-gram in 16 pass, and the full hash turns it away."""
    items = TextColumn.from_texts([" ".join(f"i{k}x{w}" for w in range(20)) for k in range(2500)])
    index = NgramIndex.build(items)
    assert len(index.gram_G) == 2500 * 8
    assert int(np.bitwise_count(index.filter).sum()) <= (1 << index.filter_bits) / 16
    documents = TextColumn.from_texts([" ".join(f"d{k}x{w}" for w in range(200)) for k in range(300)])
    assert len(probe(documents, index)[0]) == 0
    assert len(probe(items, index)[0]) == len(index.gram_G)


def test_more_hits_than_the_first_buffer_holds():
    items = TextColumn.from_texts([" ".join(f"w{w}" for w in range(5000))])
    index = NgramIndex.build(items, 2)
    doc_M, gram_M = probe(TextColumn.from_texts([items.raw(0), b"", items.raw(0)]), index)
    assert doc_M.tolist() == [0] * 4999 + [2] * 4999
    assert gram_M.tolist() == list(range(4999)) * 2


@pytest.mark.parametrize("n", [0, 257])
def test_width_out_of_range_is_refused(n):
    with pytest.raises(ConfigError, match="ngram_words"):
        NgramIndex.build(TextColumn.from_texts([]), n)
