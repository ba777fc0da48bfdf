"""Shared n-grams against sets."""

from __future__ import annotations

import numpy as np
import pytest
import reference
import strategies
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu_curate import lsh
from gpu_curate.document import TextColumn
from gpu_curate.errors import ConfigError
from gpu_curate.ops.bands import BandSpec
from gpu_curate.ops.minhash import MinHashSpec
from gpu_curate.ops.ngrams import NgramIndex, coverage, probe
from gpu_curate.ops.ngrams.joint import JointIndex, probe_all
from gpu_curate.ops.words.cpu import CHUNK
from gpu_curate.stages.together import hash_and_probe

PARAGRAPH = "the ferry leaves at nine from the north pier and returns at six in the evening every day of the week"
# Few words, so that texts share n-grams by chance.
TEXTS = st.lists(st.sampled_from(["a", "b", "C", "北", " . "]), max_size=14).map(lambda w: " ".join(w).encode())
# Words of all weights, few enough of each.
SCRIPTS = st.lists(
    st.sampled_from(["a", "B", "北", "京", "か", "ไ", "ไท", "ကို", "한", "가나", "മല", "ꀀ", "."]), max_size=40
)
MIXED = SCRIPTS.map(lambda w: " ".join(w).encode())


def run(documents: list[bytes], items: list[bytes], n: int, whole_items: bool = False, min_unspaced_words: int = 3):
    index = NgramIndex.build(TextColumn.from_texts(items), n, whole_items, min_unspaced_words)
    hits = probe(TextColumn.from_texts(documents), index)
    return index, hits, coverage(hits, index, len(documents))


def assert_equal_to_reference(
    documents: list[bytes], items: list[bytes], n: int, whole_items: bool, least: int = 3
) -> None:
    index, (doc_M, gram_M), (coverage_N, item_N, hits_N) = run(documents, items, n, whole_items, least)
    grams = [reference.item_ngrams(item, n, whole_items, least) for item in items]
    assert index.gram_G.tolist() == sorted(set().union(*grams))
    assert index.item_grams_I.tolist() == [len(g) for g in grams]
    assert index.num_items == len(items)
    for g, value in enumerate(index.gram_G.tolist()):
        members = index.item_E[index.item_offsets[g] : index.item_offsets[g + 1]].tolist()
        assert members == [i for i in range(len(items)) if value in grams[i]]
    assert index.unfindable == sum(not g for g in grams)
    expected = reference.contamination(documents, items, n, whole_items, least)
    assert list(zip(doc_M.tolist(), gram_M.tolist(), strict=True)) == [
        (d, g) for d, (found, _, _) in enumerate(expected) for g, v in enumerate(index.gram_G.tolist()) if v in found
    ]
    assert coverage_N.tolist() == [np.float32(share) for _, share, _ in expected]
    assert item_N.tolist() == [item for _, _, item in expected]
    assert hits_N.tolist() == [len(found) for found, _, _ in expected]
    assert (coverage_N.dtype, item_N.dtype, hits_N.dtype) == (np.float32, np.int64, np.int32)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.one_of(MIXED, TEXTS), max_size=5), st.lists(MIXED, max_size=3), st.sampled_from(["affine", "fmix64"])
)
def test_one_pass_gives_signatures_and_hits(documents, items, family):
    """As `signatures` and `probe` give them, whatever is shorter than a shingle, an anchor or an n-gram."""
    items = [*items, " ".join(f"w{i}" for i in range(20)).encode()]
    text = TextColumn.from_texts([*documents, *items, b"a b", b"x " * CHUNK + items[-1] + b" y" * CHUNK, b""])
    index, spec = NgramIndex.build(TextColumn.from_texts(items), 9), MinHashSpec(5, 16, 7, family)
    fuzzy = lsh.Fuzzy(spec, BandSpec(2, 8))
    hashes, (hits,) = hash_and_probe(text, fuzzy, True, JointIndex.of([index]))
    alone = lsh.hash_documents(text, fuzzy, True)
    assert hashes.keys() == alone.keys()
    assert all(np.array_equal(hashes[name], alone[name]) for name in alone)
    assert [a.tolist() for a in hits] == [a.tolist() for a in probe(text, index)]


# Two words, so that long n-grams recur; a document is in several pieces of the item.
LONG = st.lists(st.sampled_from(["a", "b"]), max_size=60).map(lambda w: " ".join(w).encode())


@settings(max_examples=150, deadline=None)
@given(st.lists(LONG, max_size=4), st.lists(LONG, max_size=3), st.sampled_from([8, 9, 11, 13]), st.randoms())
def test_anchors_miss_nothing(documents, items, n, rng):
    whole = [w for item in items for w in item.split()]
    cut = [b" ".join(whole[i : i + n + 3]) for i in range(0, len(whole), 5)]
    documents = [*documents, b" x ".join(rng.sample(cut, len(cut)))]
    assert_equal_to_reference(documents, items, n, False)


def test_anchors_miss_nothing_at_any_distance_from_a_chunk_s_end():
    item = " ".join(f"w{i}" for i in range(13)).encode()
    index = NgramIndex.build(TextColumn.from_texts([item]), 13)
    assert index.anchors is not None
    assert (index.anchors.words, index.anchors.step) == (6, 8)
    filler = b"x " * (CHUNK // 2)
    documents = [
        filler[: 2 * k] + item + tail
        for k in range(CHUNK // 2 - 70, CHUNK // 2 + 1, 3)
        for tail in (b"", b" y" * CHUNK)
    ]
    doc_M, _ = probe(TextColumn.from_texts(documents), index)
    assert doc_M.tolist() == list(range(len(documents)))


@settings(max_examples=100, deadline=None)
@given(
    st.lists(MIXED, max_size=5),
    st.lists(st.tuples(st.lists(MIXED, max_size=4), st.sampled_from([1, 2, 3, 5]), st.booleans()), max_size=4),
)
def test_sets_looked_for_together_are_found_as_each_alone(documents, sets):
    text = TextColumn.from_texts([*documents, *(item for items, _, _ in sets for item in items)])
    indexes = [NgramIndex.build(TextColumn.from_texts(items), n, whole, 1) for items, n, whole in sets]
    for index, found in zip(indexes, probe_all(text, JointIndex.of(indexes)), strict=True):
        for ours, alone in zip(found, probe(text, index), strict=True):
            assert ours.tolist() == alone.tolist()


@settings(max_examples=100, deadline=None)
@given(st.lists(TEXTS, max_size=6), st.lists(TEXTS, max_size=6), st.integers(1, 5), st.booleans())
def test_hits_and_coverage_equal_sets(documents, items, n, whole_items):
    assert_equal_to_reference(documents, items, n, whole_items)


@settings(max_examples=200, deadline=None)
@given(st.lists(MIXED, max_size=5), st.lists(MIXED, max_size=5), st.integers(1, 5), st.booleans(), st.integers(1, 4))
def test_hits_and_coverage_equal_sets_in_scripts_of_all_weights(documents, items, n, whole_items, least):
    assert_equal_to_reference([*documents, *items[:2], b" ".join(items)], items, n, whole_items, least)


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


@pytest.mark.parametrize("word", ["w{}", "東{}京", "ไท{} ย", "မြန်မာ{}", "한국{}어", "മല{}യാളം"])
def test_mixed_document_of_several_chunks(word):
    """As above, for n-grams of different numbers of words."""
    item = " ".join(word.format(k) + ("の" * (k % 5)) for k in range(300))
    ahead = CHUNK // 7 - 150
    documents = [" ".join(["filler"] * (ahead + shift)) + " " + item for shift in range(0, 150, 7)]
    _, _, (coverage_N, item_N, hits_N) = run([d.encode() for d in documents], [item.encode()], 13)
    assert (coverage_N == 1).all()
    assert (item_N == 0).all()
    assert (hits_N == len(reference.item_ngrams(item.encode(), 13, False))).all()


WORDS_OF_AN_NGRAM = {
    **{"word": 13, "слово": 13, "كلمة": 13, "שלום": 13, "शब्द": 13, "한국어": 9, "తెలుగు": 9, "ቃላት": 9, "മലയാളം": 7},
    **{"漢": 26, "ꀀ": 26, "ひ": 39, "ㄅ": 39, "ก": 65, "ก็": 33, "བ": 65, "ກ": 71, "ខ": 71, "ꦏ": 71, "မ": 98},
}


@pytest.mark.parametrize(("unit", "words"), WORDS_OF_AN_NGRAM.items())
def test_words_of_an_ngram_in_each_script(unit, words):
    """An item of as many words is found, one of a word less has no n-gram."""
    item = " ".join([unit] * words)
    assert run([f"x {item} y".encode()], [item.encode()], 13)[2][0].tolist() == [1.0]
    short = " ".join([unit] * (words - 1))
    index, _, (coverage_N, _, _) = run([f"x {item} y".encode()], [short.encode()], 13)
    assert (coverage_N.tolist(), index.unfindable) == ([0.0], 1)


NAMES = [
    "กรุงเทพมหานคร",
    "全国人民代表大会常务委员会",
    "中华人民共和国全国人民代表大会常务委员会",
    "中共中央总书记、国家主席、中央军委主席习近平",
    "東京国立博物館・国立西洋美術館",
    "独立行政法人国立高等専門学校機構",
    "公益財団法人東京オリンピック・パラリンピック競技大会組織委員会",
    "ສາທາລະນະລັດ ປະຊາທິປະໄຕ ປະຊາຊົນລາວ",
    "ព្រះរាជាណាចក្រកម្ពុជា រាជធានីភ្នំពេញ",
    "ပြည်ထောင်စု သမ္မတ မြန်မာနိုင်ငံတော်",
    "བོད་རང་སྐྱོང་ལྗོངས་ལྷ་ས་གྲོང་ཁྱེར།",
    "대한민국 국회 문화체육관광위원회",
]


@pytest.mark.parametrize("name", NAMES)
def test_a_long_name_that_texts_share_is_no_ngram(name):
    """13 code points of an unspaced script are no 13 words."""
    item, news = f"{name} (1) {name[::-1]}?", f"2026: {name}. {name[3:]}{name[:3]}"
    assert run([news.encode()], [item.encode()], 13)[2][0].tolist() == [0.0]
    assert run([f"{news}\n{item}".encode()], [f"{item} {item}".encode()], 13)[2][0].tolist() != [1.0]


def test_a_short_whole_item_of_an_unspaced_script_counts_from_its_weight_on():
    """北京 stands in half a corpus, and so does the name of Bangkok; 6 Han characters weigh 3 words."""
    documents = ["北京市海淀区中关村".encode(), "เรียนอยู่ที่กรุงเทพมหานคร".encode()]
    for item, found in (
        ("北京", 0),
        ("海淀区中关", 0),
        ("海淀区中关村", 1),
        ("กรุงเทพมหานคร", 0),
        ("อยู่ที่กรุงเทพมหานคร", 1),
    ):
        assert sum(run(documents, [item.encode()], 13, True)[2][0]) == found, item
    assert run(documents, ["北京".encode()], 13, True, 1)[2][0].tolist() == [1.0, 0.0]


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
