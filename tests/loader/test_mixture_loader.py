"""MixtureLoader against a plain definition of its order of rows."""

import itertools
import json
import pickle
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from token_shards import EOT, documents, make

from gpu_curate.errors import ConfigError
from gpu_curate.loader import ShardLoader
from gpu_curate.loader.mixture import MixtureLoader

T = 16


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Three sets of shards whose tokens tell them apart, of 900, 300 and 100 rows or so."""
    root = tmp_path_factory.mktemp("m")
    for number, (name, count) in enumerate((("code", 900), ("web", 300), ("wiki", 100))):
        rng = np.random.default_rng(number)
        docs = [(rng.integers(0, 300, 15) + 300 * number).tolist() for _ in range(count)]
        make(root / name, {"train": docs}, per_shard=1000, sources=["a", "b"])
    return {name: root / name for name in ("code", "web", "wiki")}


def plain_order(phases, names, rows):
    """The definition: row after row, the source furthest behind its share. phases: [(first row, {name: weight})]."""
    behind, order = dict.fromkeys(names, Fraction(0)), []
    for n in range(rows):
        weights = next(w for first, w in reversed(phases) if first <= n)
        total = sum(Fraction(w) for w in weights.values())
        shares = {name: Fraction(weights.get(name, 0)) / total for name in names}
        for name in names:
            behind[name] += shares[name]
        chosen = max((name for name in names if shares[name]), key=lambda name: (behind[name], -names.index(name)))
        behind[chosen] -= 1
        order.append(chosen)
    return order


def mixed(folders, B=4, rank=0, world=1, **options):
    options = {"weights": {"code": 4, "web": 3, "wiki": 1}, "max_epochs": 50.0, "as_torch": False, **options}
    return MixtureLoader(folders, "train", B, T, rank, world, **options)


def sources_of(x):
    return [("code", "web", "wiki")[max(t for t in row if t != EOT) // 300] for row in x.tolist()]


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.integers(0, 16), min_size=3, max_size=3).filter(any),
    st.lists(st.integers(0, 16), min_size=3, max_size=3).filter(any),
)
def test_the_order_of_sources_equals_the_definition(folders, first, then):
    # shares in sixteenths and their like are not exact in 2^-32, so the sums are taken as the loader rounds them
    names = ["code", "web", "wiki"]
    phases = {0: dict(zip(names, first, strict=True)), 5: dict(zip(names, then, strict=True))}
    loader = mixed(folders, weights=phases, rows_per_step=8)
    fixed = [
        (int(f), dict(zip(names, w.tolist(), strict=True)))
        for f, w in zip(loader._phases.first_P, loader._phases.weight_PK, strict=True)
    ]
    assert [f for f, _ in fixed] == [0, 40]
    for (_, units), asked in zip(fixed, phases.values(), strict=True):
        assert sum(units.values()) == 1 << 32
        for name in names:  # units of 2^-32, what is left over in the largest
            assert abs(units[name] / (1 << 32) - asked[name] / sum(asked.values())) < 1e-9
            assert (units[name] == 0) == (asked[name] == 0)
    expected = plain_order(fixed, names, 96)
    assert [s for i in range(24) for s in sources_of(loader.batch(i)[0])] == expected


def test_rows_of_a_source_are_those_of_its_own_loader_in_order_and_epoch_after_epoch(folders):
    loader = mixed(folders, shuffle=3)
    got = {name: [] for name in folders}
    for i in range(400):
        x, y = loader.batch(i)
        for name, a, b in zip(sources_of(x), x.tolist(), y.tolist(), strict=True):
            got[name].append((a, b))
    for name, folder in folders.items():
        own = ShardLoader(folder, "train", 1, T, as_torch=False, shuffle=3)
        rows = ((x[0].tolist(), y[0].tolist()) for e in itertools.count() for x, y in own.epoch(e))
        assert got[name] == list(itertools.islice(rows, len(got[name])))
    assert len(got["wiki"]) > 99  # into its second epoch


def test_shares_are_those_asked_for_over_any_range_of_steps(folders):
    weights = {0: {"code": 0.7, "web": 0.2, "wiki": 0.1}, 30: {"web": 0.5, "wiki": 0.5}}
    loader = mixed(folders, weights=weights, rows_per_step=20, steps=50)
    for first, last in ((0, 30), (3, 20), (30, 50), (10, 40)):
        shares = {s.source: s for s in loader.shares(first, last)}
        assert sum(s.rows for s in shares.values()) == 20 * (last - first)
        early = max(min(last, 30) - first, 0) / (last - first)
        for name in folders:
            asked = early * weights[0][name] + (1 - early) * weights[30].get(name, 0)
            assert shares[name].asked == pytest.approx(asked)
            assert abs(shares[name].rows - asked * 20 * (last - first)) <= 2  # each end is off by a row at most
    batches = [loader.batch(i)[0] for i in range(30 * 5, 50 * 5)]
    assert not any("code" in sources_of(x) for x in batches)  # a weight of nothing gives nothing


def test_shares_of_packed_rows_count_tokens_not_padding(folders):
    loader = mixed(folders, packing="pad", weights={"code": 1, "wiki": 1}, steps=100)
    assert {s.source: round(s.share, 2) for s in loader.shares()} == {"code": 0.5, "web": 0.0, "wiki": 0.5}
    short = {"code": folders["code"], "wiki": folders["wiki"]}
    docs = [[1] * 3 for _ in range(200)]
    make(folders["wiki"].parent / "short", {"train": docs})
    short["short"] = folders["wiki"].parent / "short"
    loader = MixtureLoader(
        short, "train", 4, T, weights={"code": 1, "short": 1}, packing="pad", steps=50, max_epochs=9.0
    )
    code, quarter, _ = loader.shares()
    assert quarter.rows == pytest.approx(4 * code.rows, abs=4)  # 4 tokens a row beside 16
    assert code.tokens == pytest.approx(quarter.tokens, rel=0.03)


def test_sources_of_one_run_are_parts(folders):
    parts = {"a": {"directory": folders["code"], "sources": "a"}, "b": {"directory": folders["code"], "sources": ["b"]}}
    loader = MixtureLoader(parts, "train", 2, T, weights={"a": 1, "b": 1}, as_torch=False)
    own = {n: ShardLoader(folders["code"], "train", 1, T, sources=n, as_torch=False) for n in ("a", "b")}
    x = np.concatenate([loader.batch(i)[0] for i in range(10)])
    assert x[0::2].tolist() == [own["a"].batch(i)[0][0].tolist() for i in range(10)]
    assert x[1::2].tolist() == [own["b"].batch(i)[0][0].tolist() for i in range(10)]


@pytest.mark.parametrize("packing", ["stream", "best_fit"])
def test_boundaries_are_those_of_the_sources(folders, packing):
    loader = mixed(folders, boundaries=True, labels="document", packing=packing, shuffle=1)
    counts = dict.fromkeys(folders, 0)
    for i in range(30):
        batch = loader.batch(i)
        edges = batch.cu_seqlens.tolist()
        assert edges == sorted(set(edges))
        assert edges[0] == 0
        assert edges[-1] == 4 * T
        assert batch.max_seqlen == max(b - a for a, b in itertools.pairwise(edges))
        for b, name in enumerate(sources_of(batch.x)):
            own = ShardLoader(
                folders[name],
                "train",
                1,
                T,
                as_torch=False,
                boundaries=True,
                labels="document",
                packing=packing,
                shuffle=1,
            ).batch(counts[name])
            counts[name] += 1
            assert batch.x[b].tolist() == own.x[0].tolist()
            assert batch.y[b].tolist() == own.y[0].tolist()
            assert batch.position_ids[b].tolist() == own.position_ids[0].tolist()
            first = loader.first_document[name]
            assert batch.document_ids[b].tolist() == [d if d < 0 else d + first for d in own.document_ids[0].tolist()]


def test_a_state_goes_on_with_other_ranks_and_batch_sizes_and_twice_in_a_row(folders):
    options = {"rows_per_step": 8, "shuffle": 2, "weights": {0: {"code": 1, "web": 1}, 4: {"wiki": 1, "code": 3}}}
    whole = [x.tolist() for i in range(96) for x in [mixed(folders, 1, **options).batch(i)[0][0]]]
    for (W, B), (W2, B2) in itertools.product([(1, 4), (2, 2), (4, 1), (8, 1)], repeat=2):
        taken, state = [], None
        for world, size, batches in ((W, B, 3), (W2, B2, 2), (W, B, 4)):
            streams = [mixed(folders, size, r, world, **options).batches(state=state) for r in range(world)]
            for _ in range(batches):
                taken += [row.tolist() for stream in streams for row in next(stream)[0]]
            states = [json.loads(json.dumps(stream.state_dict())) for stream in streams]
            assert all(s == states[0] for s in states)
            state = states[0]
        assert taken == whole[: len(taken)]


def test_a_state_of_another_mixture_is_refused(folders):
    state = mixed(folders).state_dict(3)
    for change in ({"weights": {"code": 1}}, {"rows_per_step": 8}, {"shuffle": 1}, {"packing": "best_fit"}):
        with pytest.raises(ConfigError, match=r"state: (weights|rows_per_step|mixture) is"):
            mixed(folders, **change).batches(state=state)


def test_what_runs_out_is_an_error_before_training_or_at_its_row(folders):
    with pytest.raises(
        ConfigError, match=r"source wiki runs out: 99 rows of 16 tokens, .* epochs asked for by step 29"
    ):
        mixed(folders, weights={"wiki": 1}, max_epochs=1.0, steps=30)
    loader = mixed(folders, weights={"wiki": 1}, max_epochs={"wiki": 1.0, "code": 2})
    for i in range(24):
        loader.batch(i)
    with pytest.raises(ConfigError, match="source wiki runs out"):
        loader.batch(24)


def test_more_than_four_epochs_are_a_warning_with_the_paper(folders):
    with pytest.warns(RuntimeWarning, match=r"wiki is taken more than 4 times.*2305.16264"):
        mixed(folders, weights={"wiki": 1}, max_epochs=10.0, steps=120)


def test_a_copy_by_pickle_reads_the_same(folders):
    loader = mixed(folders, rank=1, world=2, shuffle=4)
    copy = pickle.loads(pickle.dumps(loader))
    assert copy.batch(5)[0].tolist() == loader.batch(5)[0].tolist()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"weights": {"code": 0, "web": 0.0}}, "weights from step 0 on sum to nothing"),
        ({"weights": {}}, "weights {}"),
        ({"weights": {"news": 1}}, "no source news; there are code, web, wiki"),
        ({"weights": {"code": -1}}, "code -1, expected a number of 0 or more"),
        ({"weights": {"code": float("nan")}}, "code nan"),
        ({"weights": {"code": "1"}}, "code '1'"),
        ({"weights": {5: {"code": 1}}}, "weights begin at step 5"),
        ({"weights": {0: {"code": 1}, 5: {}}}, "weights from step 5 on sum to nothing"),
        ({"rows_per_step": 0}, "rows_per_step 0"),
        ({"max_epochs": 0}, "max_epochs of code 0"),
        ({"max_epochs": {"news": 2}}, "max_epochs of news"),
    ],
)
def test_odd_arguments_are_named(folders, options, said):
    with pytest.raises(ConfigError, match=said):
        mixed(folders, **options)


def test_odd_sources_are_named(folders, tmp_path):
    with pytest.raises(ConfigError, match="expected a mapping of names"):
        MixtureLoader({}, "train", 1, T, weights={"a": 1})
    with pytest.raises(ConfigError, match="source a: expected directory and sources, got folder"):
        MixtureLoader({"a": {"folder": "x"}}, "train", 1, T, weights={"a": 1})
    make(tmp_path / "other", {"train": documents(60)})
    manifest = json.loads((tmp_path / "other" / "manifest.json").read_text())
    manifest["tokenizer"]["sha256"] = "ab" * 32
    (tmp_path / "other" / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(ConfigError, match="code and other were made with different tokenizers"):
        MixtureLoader({"code": folders["code"], "other": tmp_path / "other"}, "train", 1, T, weights={"code": 1})
