"""Shingles, signatures and Jaccard: the CPU twin against the definition, and its statistics."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import reference
import strategies
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu_curate.document import TextColumn
from gpu_curate.errors import ConfigError, InputError
from gpu_curate.ops import mix
from gpu_curate.ops.minhash import MinHashSpec, cpu, jaccard, jaccard_exact, shingles, signatures
from gpu_curate.ops.words.cpu import CHUNK

FAMILIES = ["affine", "fmix64"]


def words_text(numbers: np.ndarray) -> str:
    return " ".join(f"w{n}" for n in numbers)


def assert_equal_to_reference(column: TextColumn, spec: MinHashSpec) -> None:
    sig_NH, n_shingles_N = signatures(column, spec)
    assert sig_NH.dtype == np.uint32
    assert sig_NH.shape == (len(column), spec.num_hashes)
    for i in range(len(column)):
        doc = column.raw(i)
        expected = reference.signature(doc, spec.shingle_words, spec.num_hashes, spec.seed, spec.family)
        assert sig_NH[i].tolist() == expected
        assert n_shingles_N[i] == len(reference.shingles(doc, spec.shingle_words))


# ---------------------------------------------------------------------------------------------------------- definition


@pytest.mark.parametrize("seed", [0, 1, 42, (1 << 64) - 1])
def test_splitmix64_equals_the_definition(seed):
    assert mix.splitmix64(seed, 50).tolist() == reference.splitmix64(seed, 50)


def test_splitmix64_gives_its_published_values():
    """First outputs for seed 1234567 as Rosetta Code lists them ("Pseudo-random numbers/Splitmix64")."""
    expected = [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]
    assert mix.splitmix64(1234567, 5).tolist() == expected


@given(st.lists(st.integers(0, (1 << 64) - 1), max_size=20))
def test_fmix64_equals_the_definition(values):
    assert mix.fmix64(np.array(values, np.uint64)).tolist() == [reference.fmix64(v) for v in values]


def test_parameters_are_the_stated_ones():
    stream = reference.splitmix64(7, 20)
    assert MinHashSpec(num_hashes=20, seed=7).parameters().tolist() == [s >> 32 | 1 for s in stream]
    assert MinHashSpec(num_hashes=20, seed=7, family="fmix64").parameters().tolist() == stream


@pytest.mark.parametrize("family", FAMILIES)
def test_signature_golden_values(family):
    """From the plain definition in tests/reference.py, and fixed here so that no version changes them unseen."""
    text = TextColumn.from_texts(["The ferry leaves at nine from the north pier, and returns at six.", "red door", ""])
    sig_NH, n_shingles_N = signatures(text, MinHashSpec(family=family))
    assert n_shingles_N.tolist() == [9, 1, 0]
    assert [[f"{v:08x}" for v in row] for row in sig_NH[:, [0, 1, 55, 56, 111]].tolist()] == GOLDEN[family]


GOLDEN = {
    "affine": [
        ["4f20d003", "0b70da19", "0d7be8d1", "1335691f", "36c7eb19"],
        ["418f9532", "9e38fe22", "86704afa", "411c213a", "8e4a5d7a"],
        ["ffffffff", "ffffffff", "ffffffff", "ffffffff", "ffffffff"],
    ],
    "fmix64": [
        ["0c1e1db7", "0f75c278", "393c02b2", "0060d19c", "29a8aee4"],
        ["5e5625ac", "7f9fb3a7", "1702020c", "dc4fe528", "2db1bf23"],
        ["ffffffff", "ffffffff", "ffffffff", "ffffffff", "ffffffff"],
    ],
}


@pytest.mark.parametrize(
    "change",
    [
        {"shingle_words": 0},
        {"shingle_words": 33},
        {"num_hashes": 0},
        {"seed": -1},
        {"seed": 1 << 64},
        {"family": "oph"},
    ],
)
def test_spec_out_of_range_is_refused(change):
    with pytest.raises(ConfigError, match=next(iter(change))):
        MinHashSpec(**change)


# Words that texts of scripts without spaces are made of, among them the signs that stand between some of them.
UNSPACED = {
    "zh": "人人 有 资格 享有 宣言 所 载 的 权利 和 自由 不 分 种族 肤色 语言 宗教 政治 国籍 社会 出身 财产 身分 任何 区别 ， 。",
    "ja": "すべて 人 は 生まれ ながら に して 自由 で あり かつ 尊厳 と 権利 について 平等 である 理性 良心 を 授けられて 互い 同胞 精神 、 。",
    "th": "มนุษย์ ทั้งหลาย เกิด มา มี อิสระ และ เสมอภาค กัน ใน เกียรติศักดิ์ สิทธิ ต่าง เหตุผล มโนธรรม ควร ปฏิบัติ ต่อ ภราดรภาพ คน",
    "lo": "ມະນຸດ ທຸກ ຄົນ ເກີດ ມາ ມີ ກຽດ ສັກສີ ສິດທິ ເສລີພາບ ແລະ ຄວາມ ສະເໝີ ພາບ ທຸກຄົນ ເຫດຜົນ ວ່າ ປະພຶດ ຕໍ່ ກັນ",
    "km": "មនុស្ស ទាំងអស់ កើត មក មាន សេរីភាព និង សមភាព ក្នុង ផ្នែក សេចក្ដី ថ្លៃថ្នូរ សិទ្ធិ វិចារណញ្ញាណ សតិសម្បជញ្ញៈ គួរ ប្រព្រឹត្ត ចំពោះ គ្នា",
}


@pytest.mark.parametrize("language", UNSPACED)
def test_near_copies_in_scripts_without_spaces_become_candidates(language):
    """5 code points are a shingle there: of 40 pairs with one word in 100 replaced, 39 at least share a band."""
    from gpu_curate.ops.bands import BandSpec, band_hashes

    rng, words = np.random.default_rng(5), UNSPACED[language].split()
    texts = [rng.choice(words, 400) for _ in range(40)]
    copies = [np.where(rng.random(400) < 0.01, rng.choice(words, 400), t) for t in texts]
    column = TextColumn.from_texts(["".join(t) for t in (*texts, *copies)])
    band_BN = band_hashes(signatures(column, MinHashSpec())[0], BandSpec())
    assert (band_BN[:, :40] == band_BN[:, 40:]).any(axis=0).sum() >= 39


# ------------------------------------------------------------------------------------------------------------ equality


@settings(max_examples=60, deadline=None)
@given(
    strategies.columns(5),
    st.sampled_from([1, 2, 3, 5, 13, 32]),
    st.sampled_from([1, 7, 16, 17, 40]),
    st.sampled_from([0, 42, (1 << 64) - 1]),
    st.sampled_from(FAMILIES),
)
def test_equals_the_definition_on_any_bytes(column, shingle_words, num_hashes, seed, family):
    assert_equal_to_reference(column, MinHashSpec(shingle_words, num_hashes, seed, family))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("num_hashes", [1, 8, 55, 56, 57, 111, 112, 113, 127, 128, 129, 240, 256])
def test_any_number_of_rows(family, num_hashes):
    text = TextColumn.from_texts(["", "a", "a b c d", "a b c d e", "the quick brown fox jumps over the lazy dog again"])
    assert_equal_to_reference(text, MinHashSpec(num_hashes=num_hashes, family=family))


@pytest.mark.parametrize("shingle_words", range(1, 33))
def test_any_shingle_width(shingle_words):
    docs = [words_text(np.arange(n)) for n in (0, 1, 4, 5, 6, shingle_words - 1, shingle_words, shingle_words + 1, 67)]
    assert_equal_to_reference(TextColumn.from_texts(docs), MinHashSpec(shingle_words, num_hashes=16))


@pytest.mark.parametrize("shingle_words", [1, 5, 32])
def test_document_of_several_chunks(shingle_words):
    text = " ".join(f"w{n % 977}" for n in range(3 * CHUNK // 4))
    docs = [text, text.replace(" ", ""), text[: CHUNK + 1], "." * CHUNK + "a b", "w " * 3 + "." * CHUNK + " x y"]
    assert_equal_to_reference(TextColumn.from_texts(docs), MinHashSpec(shingle_words, num_hashes=16))


def test_row_does_not_depend_on_how_many_there_are():
    text = TextColumn.from_texts(["the quick brown fox jumps over the lazy dog"])
    for family in FAMILIES:
        full = signatures(text, MinHashSpec(num_hashes=300, family=family))[0]
        for num_hashes in (1, 100, 112):
            part = signatures(text, MinHashSpec(num_hashes=num_hashes, family=family))[0]
            assert np.array_equal(part, full[:, :num_hashes])


def test_no_documents():
    sig_NH, n_shingles_N = signatures(TextColumn.from_texts([]), MinHashSpec())
    assert sig_NH.shape == (0, 112)
    assert n_shingles_N.shape == (0,)


def test_document_without_words_is_told_by_its_count_and_rows():
    sig_NH, n_shingles_N = signatures(TextColumn.from_texts(["", "   ", "-- !", "x"]), MinHashSpec())
    assert n_shingles_N.tolist() == [0, 0, 0, 1]
    assert (sig_NH[:3] == 0xFFFFFFFF).all()
    assert not (sig_NH[3] == 0xFFFFFFFF).all()


def test_short_documents_are_told_apart():
    sig_NH, _ = signatures(
        TextColumn.from_texts(["red door", "blue lamp", "Red  door!", "red", "red door red"]), MinHashSpec()
    )
    assert np.array_equal(sig_NH[0], sig_NH[2])
    assert len({row.tobytes() for row in sig_NH}) == 4


@settings(max_examples=30, deadline=None)
@given(strategies.columns())
def test_splitting_a_column_changes_nothing(column):
    spec, at = MinHashSpec(num_hashes=16), len(column) // 2
    parts = [signatures(part, spec) for part in (column.slice(0, at), column.slice(at, len(column)))]
    for whole, first, second in zip(signatures(column, spec), *parts, strict=True):
        assert np.array_equal(whole, np.concatenate([first, second]))


@settings(max_examples=50, deadline=None)
@given(strategies.columns(), st.sampled_from([1, 2, 5, 32]))
def test_shingles_equal_the_definition(column, shingle_words):
    hash_S, offsets = shingles(column, MinHashSpec(shingle_words))
    assert offsets[0] == 0
    assert offsets[-1] == len(hash_S)
    for i in range(len(column)):
        assert hash_S[offsets[i] : offsets[i + 1]].tolist() == reference.shingles(column.raw(i), shingle_words)


def test_memory_does_not_grow_with_the_length_of_a_document():
    """A fresh process signs one document of 64 MB and takes under 4 MB more than for one of 64 kB."""
    pytest.importorskip("resource", reason="peak memory is asked of the Unix module")
    code = """
import resource, numpy as np
from gpu_curate.document import TextColumn
from gpu_curate.ops.minhash import MinHashSpec, signatures
chars = np.tile(np.frombuffer(b"seven words of text, not at all long; ", np.uint8), 64_000_000 // 38)
def sign(n):
    signatures(TextColumn(chars, np.array([0, n], np.int64)), MinHashSpec())
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(sign(64_000), sign(len(chars)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    before, after = (int(v) for v in done.stdout.split())
    unit = 1 if sys.platform == "darwin" else 1024  # ru_maxrss is bytes there
    assert (after - before) * unit < 4 << 20


# ------------------------------------------------------------------------------------------------------------- jaccard


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 30).map(lambda v: v << 59 | v), max_size=20), min_size=1, max_size=6), st.data()
)
def test_exact_jaccard_equals_sets(sets, data):
    """The hashes differ mostly in their top bits, so the table has long probe runs."""
    offsets = np.concatenate([[0], np.cumsum([len(s) for s in sets])]).astype(np.int64)
    hash_S = np.array([v & reference.MASK for s in sets for v in s], np.uint64)
    index = st.integers(0, len(sets) - 1)
    pairs = np.array(data.draw(st.lists(st.tuples(index, index), max_size=10)), np.int64).reshape(-1, 2)
    expected = [
        reference.jaccard([v & reference.MASK for v in sets[a]], [v & reference.MASK for v in sets[b]])
        for a, b in pairs
    ]
    assert jaccard_exact(hash_S, offsets, pairs).tolist() == expected


def test_estimated_jaccard_is_the_share_of_equal_rows():
    sig_NH = np.zeros((4, 10), np.uint32)
    sig_NH[1, :3] = 5
    sig_NH[2:] = 0xFFFFFFFF
    pairs = np.array([[0, 0], [0, 1], [1, 0], [0, 2], [2, 3]], np.int64)
    assert jaccard(sig_NH, pairs).tolist() == [1.0, 0.7, 0.7, 0.0, 0.0]


@pytest.mark.parametrize("pairs", [[[0, 2]], [[-1, 0]]])
def test_pairs_that_name_no_document_are_refused(pairs):
    pairs = np.array(pairs, np.int64)
    with pytest.raises(InputError, match="there are 2"):
        jaccard(np.zeros((2, 4), np.uint32), pairs)
    with pytest.raises(InputError, match="there are 2"):
        jaccard_exact(np.zeros(0, np.uint64), np.zeros(3, np.int64), pairs)


def test_jaccard_of_no_pairs_is_empty():
    none = np.zeros((0, 2), np.int64)
    assert len(jaccard(np.zeros((2, 4), np.uint32), none)) == 0
    assert len(jaccard_exact(np.zeros(0, np.uint64), np.zeros(3, np.int64), none)) == 0


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("similarity", [0.2, 0.5, 0.8])
@pytest.mark.parametrize("union", [20, 300])
def test_estimate_is_unbiased_with_binomial_variance(family, similarity, union):
    """500 seeds. The mean lies within 3 sigma / sqrt(500); the variance ratio within 4 of its own sigma, sqrt(2 / 499).

    Of sets of `union` words the estimate's sigma is sqrt(J (1 - J) / H): rows agree independently with probability J.
    """
    common = round(similarity * union)
    a, b = np.arange(common), np.arange(union)
    text = TextColumn.from_texts([words_text(a), words_text(b)])
    pair = np.array([[0, 1]], np.int64)
    num_hashes, seeds = 112, 500
    estimates = np.concatenate(
        [
            jaccard(signatures(text, MinHashSpec(1, num_hashes, seed, family))[0], pair)
            for seed in range(1000, 1000 + seeds)
        ]
    )
    variance = similarity * (1 - similarity) / num_hashes
    assert abs(estimates.mean() - similarity) <= 3 * np.sqrt(variance / seeds)
    assert abs(estimates.var(ddof=1) / variance - 1) <= 4 * np.sqrt(2 / (seeds - 1))
    assert jaccard_exact(*shingles(text, MinHashSpec(1)), pair)[0] == similarity


def test_row_kernels_are_compiled_once_for_both_families():
    text = TextColumn.from_texts(["one two three"])
    for family in FAMILIES:
        signatures(text, MinHashSpec(family=family))
    assert len(cpu.sign_documents.signatures) == 1
