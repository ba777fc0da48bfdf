"""An exact judge: its file, its training, and what it says in integers."""

from __future__ import annotations

import json
import pickle
import random
import struct

import numpy as np
import pytest
from corpora import WORDS
from hypothesis import given, settings
from hypothesis import strategies as st
from ops.judge_reference import raw

from gpu_curate.document import TextColumn
from gpu_curate.errors import ConfigError
from gpu_curate.judges.evaluate import auc, evaluate, rank_correlation, warnings
from gpu_curate.judges.labels import Labelled
from gpu_curate.judges.model import ExactJudge, Fault, identity, load, read
from gpu_curate.judges.train import Settings, fold_of, heaviest, train
from gpu_curate.ops.content_hash import content_hash
from gpu_curate.ops.judge import Tables, judge_sums
from gpu_curate.ops.text_stats.cpu import word_hashes
from gpu_curate.quality.judges import UNSCORED

RNG = np.random.default_rng(8)
GOOD, BAD = ["theorem", "proof", "therefore"], ["click", "subscribe", "buy"]
HOW = Settings(bits=14, folds=4)


def judge(bits: int = 10, wide: bool = False, ngrams: int = 3, prior: int = 5) -> ExactJudge:
    top, kind = (32767, np.int16) if wide else (127, np.int8)
    weights = RNG.integers(-top, top + 1, 1 << bits).astype(kind)
    knots_x = np.array([-50_000, -1_000, 0, 7, 90_000], np.int64)
    return ExactJudge(weights, ngrams, prior, knots_x, np.array([-20, 0, 3, 3, 1000], np.int32), {"documents": 3})


def labelled(texts: list[str], values: list[float]) -> Labelled:
    column = TextColumn.from_texts(texts)
    hash_W, offsets = word_hashes(column)
    key = np.ascontiguousarray(content_hash(column)[:, 1])
    return Labelled(hash_W, offsets, key, np.diff(column.offsets), np.array(values, np.float64))


def two_kinds(count: int = 200, seed: int = 5, long_good: bool = False) -> tuple[list[str], list[float]]:
    """Texts of one vocabulary; those of label 1 hold words of GOOD, the others of BAD."""
    rng = random.Random(seed)
    texts, values = [], []
    for number in range(count):
        good = number % 2
        words = rng.choices(WORDS, k=rng.randint(20, 60) * (3 if long_good and good else 1))
        if not long_good:
            words += rng.choices(GOOD if good else BAD, k=4)
        rng.shuffle(words)
        texts.append(" ".join(words) + f" {number}")
        values.append(float(good))
    return texts, values


# ---------------------------------------------------------------------------------------------------------- scores


def plain_score(own: ExactJudge, text: str) -> int:
    """By Python's integers."""
    if not text.split():
        return UNSCORED
    x = raw(text.encode(), own.weights.tolist(), own.bits, own.ngrams, own.prior)
    xs, ys = own.knots_x.tolist(), own.knots_y.tolist()
    if x <= xs[0]:
        return ys[0]
    for (x0, y0), (x1, y1) in zip(zip(xs, ys, strict=True), zip(xs[1:], ys[1:], strict=True), strict=False):
        if x <= x1:
            return y0 + (x - x0) * (y1 - y0) // (x1 - x0)
    return ys[-1]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.lists(st.sampled_from([*WORDS[:9], "\n", "数据"]), max_size=40).map(" ".join), max_size=8))
def test_scores_equal_the_definition_whatever_the_batch(texts):
    for own in (judge(), judge(12, True, 2, 0)):
        tables = Tables.of([own.weights], [own.ngrams])
        sum_JN, words_N = judge_sums(TextColumn.from_texts(texts), tables)
        whole = own.scores(sum_JN[0], words_N)
        assert whole.dtype == np.int32
        assert whole.tolist() == [plain_score(own, t) for t in texts]
        alone = [judge_sums(TextColumn.from_texts([t]), tables) for t in texts]
        assert [int(own.scores(s[0], w)[0]) for s, w in alone] == whole.tolist()


def test_a_huge_document_has_the_score_of_its_words():
    own = judge(12, True)
    text = "alpha beta gamma " * 200_000
    sum_JN, words_N = judge_sums(TextColumn.from_texts([text]), Tables.of([own.weights], [3]))
    few = raw(b"alpha beta gamma " * 200, own.weights.tolist(), 12, 3, 0)
    assert abs(int(sum_JN[0][0]) * 4096 // (3 * 600_000 - 3) - few) < abs(few) // 1000
    assert (
        own.scores(sum_JN[0], words_N)[0] == own.calibrate(np.array([(int(sum_JN[0][0]) << 12) // (1_799_997 + 5)]))[0]
    )


# ------------------------------------------------------------------------------------------------------------ file


def test_a_file_gives_the_judge_back_and_the_same_bytes(tmp_path):
    for wide in (False, True):
        own = judge(wide=wide)
        own.save(tmp_path / "a.judge")
        got = load(str(tmp_path / "a.judge"))
        for name in ("weights", "knots_x", "knots_y"):
            np.testing.assert_array_equal(getattr(got, name), getattr(own, name))
        assert (got.ngrams, got.prior, got.about) == (own.ngrams, own.prior, own.about)
        got.save(tmp_path / "b.judge")
        assert (tmp_path / "a.judge").read_bytes() == (tmp_path / "b.judge").read_bytes()


def test_safetensors_reads_the_file(tmp_path):
    safetensors = pytest.importorskip("safetensors.numpy", reason="safetensors is not installed")
    own = judge()
    own.save(tmp_path / "a.judge")
    np.testing.assert_array_equal(safetensors.load_file(tmp_path / "a.judge")["weights"], own.weights)


def changed(data: bytes, **header: object) -> bytes:
    """The file with other entries in its header; None: left out. `meta_` entries are those of __metadata__."""
    (size,) = struct.unpack("<Q", data[:8])
    old = json.loads(data[8 : 8 + size])
    for key, value in header.items():
        table = old["__metadata__"] if key.startswith("meta_") else old
        name = key.removeprefix("meta_")
        table.pop(name, None)
        if value is not None:
            table[name] = value
    text = json.dumps(old).encode()
    return struct.pack("<Q", len(text)) + text + data[8 + size :]


def test_hostile_files_are_refused(tmp_path):
    judge().save(tmp_path / "a.judge")
    data = (tmp_path / "a.judge").read_bytes()
    entry = {"dtype": "I8", "shape": [1024], "data_offsets": [0, 1024]}
    hostile = {
        "pickle": pickle.dumps({"weights": [1]}),
        "torch": b"PK\x03\x04" + data,
        "empty": b"",
        "text": b"hello, this is no judge at all",
        "cut": data[:-1],
        "longer": data + b"\0",
        "header beyond the file": struct.pack("<Q", 1 << 19) + data[8:],
        "header of exabytes": struct.pack("<Q", 1 << 62) + data[8:],
        "nested": struct.pack("<Q", 200_000) + b"[" * 200_000,
        "no format": changed(data, meta_format=None),
        "another version": changed(data, meta_version="2"),
        "float weights": changed(data, weights={**entry, "dtype": "F32"}),
        "no weights": changed(data, weights=None),
        "more arrays": changed(data, more=entry),
        "negative size": changed(data, weights={**entry, "shape": [-1024]}),
        "a size of true": changed(data, weights={**entry, "shape": [True]}),
        "huge": changed(data, weights={**entry, "shape": [1 << 40], "data_offsets": [0, 1 << 40]}),
        "overlap": changed(data, weights={**entry, "data_offsets": [8, 1032]}),
        "no power of two": changed(data, weights={**entry, "shape": [1000], "data_offsets": [0, 1000]}),
        "ngrams": changed(data, meta_ngrams="9"),
        "words for a number": changed(data, meta_prior="ten"),
        "about": changed(data, meta_about="["),
    }
    for name, content in hostile.items():
        with pytest.raises(Fault):
            read(content)
        path = tmp_path / "x.judge"
        path.write_bytes(content)
        with pytest.raises(ConfigError, match="is no judge") as e:
            identity(str(path), "quality.judges.edu.model")
        assert "quality.judges.edu.model" in e.value.message, name
        assert e.value.hint
    with pytest.raises(ConfigError, match=r"nothing\.judge: No such file"):
        load(str(tmp_path / "nothing.judge"))
    steep = judge()
    for knots in ([3, 3, 4, 5, 6], [6, 5, 4, 3, 2]):
        wrong = ExactJudge(steep.weights, 3, 5, np.array(knots, np.int64), steep.knots_y)
        wrong.save(tmp_path / "x.judge")
        with pytest.raises(ConfigError, match="does not increase"):
            load(str(tmp_path / "x.judge"))


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 3000), st.binary(min_size=1, max_size=3))
def test_a_damaged_file_is_refused_or_read_but_nothing_else(at, patch):
    import tempfile
    from pathlib import Path

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.judge"
        judge().save(path)
        data = path.read_bytes()
    data = data[: at % len(data)] + patch + data[at % len(data) + len(patch) :]
    try:
        read(data)
    except Fault:
        return


# -------------------------------------------------------------------------------------------------------- training


def test_training_tells_the_two_kinds_apart_and_names_their_words():
    texts, values = two_kinds()
    made = train(labelled(texts, values), HOW)
    facts = evaluate(made.score_N, labelled(texts, values), made.rows)
    assert facts["auc"][0] > 0.99
    assert facts["auc_length"][2] < 0.75
    assert sorted(made.rows.tolist()) == list(range(len(texts)))
    assert made.loss_of_rounding < 0.02
    words = heaviest(made.judge, texts)
    assert set(GOOD) <= {w for w, _, _ in words["for"][:12]}
    assert set(BAD) <= {w for w, _, _ in words["against"][:12]}
    assert warnings(facts) == []


def test_training_does_not_depend_on_the_order_of_the_texts():
    texts, values = two_kinds(60)
    order = np.random.default_rng(2).permutation(len(texts))
    a = train(labelled(texts, values), HOW).judge
    b = train(labelled([texts[i] for i in order], [values[i] for i in order]), HOW).judge
    np.testing.assert_array_equal(a.weights, b.weights)
    np.testing.assert_array_equal(a.knots_x, b.knots_x)
    assert not np.array_equal(
        a.weights, train(labelled(texts, values), Settings(bits=14, folds=4, seed=1)).judge.weights
    )


def test_equal_texts_are_in_one_fold():
    texts, values = two_kinds(40)
    data = labelled(texts * 3, values * 3)
    fold_N = fold_of(data.key_N, 7, 42)
    assert (fold_N.reshape(3, -1) == fold_N[:40]).all()
    assert len(set(fold_N.tolist())) > 4


def test_numbers_are_learned_as_thousandths():
    texts, values = two_kinds(300)
    rng = random.Random(1)
    values = [4.0 * v + rng.choice([0, 0, 1]) for v in values]
    data = labelled(texts, values)
    made = train(data, HOW)
    assert rank_correlation(made.score_N, data.value_N[made.rows]) > 0.7
    assert made.judge.knots_y[0] == 0
    assert made.judge.knots_y[-1] == 5000
    error = np.abs(made.score_N / 1000 - data.value_N[made.rows]).mean()
    assert error < 0.8


def test_a_judge_of_length_shows_it():
    texts, values = two_kinds(400, long_good=True)
    data = labelled(texts, values)
    made = train(data, HOW)
    facts = evaluate(made.score_N, data, made.rows)
    assert facts["auc_length"][0] > 0.95
    assert any("length alone" in w for w in warnings(facts))


def test_what_cannot_be_trained_says_so():
    texts, values = two_kinds(20)
    for data, said in (
        (labelled([], []), "no labelled text"),
        (labelled(texts, [1.0] * 20), "one class only"),
        (labelled(texts, [*values[:-1], 5e6]), "labels lie between"),
        (labelled(texts[:1] * 2, [0.0, 1.0]), "too few"),
    ):
        with pytest.raises(ConfigError, match=said):
            train(data, HOW)


def test_auc_counts_pairs():
    good = np.array([True, True, False, False, False])
    value, low, high = auc(np.array([3, 1, 1, 0, 2]), good)
    assert value == pytest.approx((3 + 1.5) / 6)
    assert low < value < high
    assert auc(np.array([1, 2]), np.array([True, True])) is None


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=2, max_size=30))
def test_auc_equals_the_pairs_one_by_one(rows):
    score_N, good_N = np.array([s for s, _ in rows]), np.array([g for _, g in rows])
    pairs = [(a > b) + 0.5 * (a == b) for a, x in rows if x for b, y in rows if not y]
    found = auc(score_N, good_N)
    assert (found is None) == (not pairs)
    if pairs:
        assert found[0] == pytest.approx(sum(pairs) / len(pairs))


def test_the_human_labels_are_told_better_than_by_length(shared_data):
    from gpu_curate.tools.judge_texts import labelled as read_labels

    path = shared_data("docs/dclm_majority_data.jsonl")
    data, _ = read_labels([], [], [str(path)], "label")
    made = train(data, Settings())
    facts = evaluate(made.score_N, data, made.rows)
    assert facts["texts"] == 499
    assert facts["auc_length"][0] == pytest.approx(0.763, abs=0.002)
    assert facts["auc"][0] > 0.85
    assert facts["auc"][1] > facts["auc_length"][0]
    assert facts["auc_same_length"] > 0.7
