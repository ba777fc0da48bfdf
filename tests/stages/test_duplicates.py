"""Duplicates with `verify`, against a plain reference: who is kept, who stands for whom, on which side of the split."""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from itertools import combinations, pairwise

import pyarrow.parquet as pq
import pytest
import reference
from corpora import document
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from xxhash import xxh3_128_intdigest

from gpu_curate import config
from gpu_curate.api import pipeline
from gpu_curate.errors import ConfigError
from gpu_curate.store.files import read_json

SHINGLE, BANDS, ROWS, SEED = 2, 12, 2, 42
LSH = {"shingle_words": SHINGLE, "num_bands": BANDS, "rows_per_band": ROWS, "seed": SEED}


def execute(folder, tokenizer, rows, fuzzy, **keys):
    """Run over JSONL rows; returns the run's folder, its decisions and clusters, both by doc_id."""
    folder.mkdir(exist_ok=True)
    rows = [r if isinstance(r, dict) else {"text": r} for r in rows]
    (folder / "s.jsonl").write_text("\n".join(map(json.dumps, rows)))
    data = {
        "sources": [{"name": "s", "type": "jsonl", "path": str(folder / "s.jsonl"), "group_column": "group"}],
        "tokenizer": {"path": str(tokenizer)},
        "min_tokens": 0,
        "dedup": {"fuzzy": {**LSH, **fuzzy}},
        "shards": {"validation": {"tokens": 0}},
        "run": {"engine": "inline"},
        **keys,
    }
    run = folder / "run"
    pipeline.execute(config.parse(data), run)
    folders = read_json(run / "run.json")["folders"]
    decided = [r for p in sorted((run / folders["decisions"]).glob("*.parquet")) for r in pq.read_table(p).to_pylist()]
    clusters = pq.read_table(run / folders["duplicates"] / "clusters.parquet").to_pylist()
    return run, {r["doc_id"]: r for r in decided}, {r["doc_id"]: r for r in clusters}


def chain(rng: random.Random, links: int, words: int, changed: int) -> list[str]:
    """Documents each of which differs from the one before in a few words that follow each other."""
    text = [f"w{rng.randrange(10**6):06}" for _ in range(words)]
    made = [" ".join(text)]
    for i in range(links):
        at = i * changed % (words - changed)
        text[at : at + changed] = [f"w{rng.randrange(10**6):06}" for _ in range(changed)]
        made.append(" ".join(text))
    return made


# ------------------------------------------------------------------------------------------------------ the definition


def similarity(verify: str):
    if verify == "exact":
        sets = {}

        def of(a: str, b: str) -> float:
            for t in (a, b):
                sets.setdefault(t, set(reference.shingles(t.encode(), SHINGLE)))
            return reference.jaccard(sets[a], sets[b])

        return of
    rows = {}

    def estimate(a: str, b: str) -> float:
        for t in (a, b):
            rows.setdefault(t, reference.signature(t.encode(), SHINGLE, BANDS * ROWS, SEED))
        return sum(x == y for x, y in zip(rows[a], rows[b], strict=True)) / (BANDS * ROWS)

    return estimate


def rank(text: str, keep: str) -> tuple:
    random_ = reference.fmix64(xxh3_128_intdigest(text.encode()) & reference.MASK ^ SEED)
    first = {"random": 0, "longest": -len(text), "highest:words": -len(text.split())}[keep]
    return first, random_


def survivors(texts: list[str], verify: str, threshold: float, keep: str) -> dict[str, str]:
    """Every text → the text that is kept for it."""
    texts = sorted(set(texts), key=lambda t: rank(t, keep))
    bands = [
        reference.band_hashes(reference.signature(t.encode(), SHINGLE, BANDS * ROWS, SEED), BANDS, ROWS) for t in texts
    ]
    edges = [e for b in range(BANDS) for e in reference.band_edges([h[b] for h in bands])]
    label = reference.components(len(texts), edges)
    of, like = {}, similarity(verify)
    for component in set(label):
        left = [t for t, c in zip(texts, label, strict=True) if c == component]
        while left:
            best = left[0]
            taken = [t for t in left if t == best or like(best, t) >= threshold]
            of.update(dict.fromkeys(taken, best))
            left = [t for t in left if t not in taken]
    return of


@st.composite
def corpora(draw):
    """Chains of edits, copies and unrelated texts, in any order."""
    rng = random.Random(draw(st.integers(0, 2**32)))
    texts = []
    for _ in range(draw(st.integers(1, 3))):
        texts += chain(rng, draw(st.integers(0, 5)), draw(st.integers(8, 40)), draw(st.integers(1, 4)))
    texts += draw(st.lists(st.sampled_from(texts), max_size=4))
    texts += draw(st.lists(st.sampled_from(["one two", "three", "three four five"]), max_size=3))
    return draw(st.permutations(texts))


@pytest.mark.soak
@pytest.mark.parametrize("verify", ["exact", "signature"])
def test_survivors_follow_the_definition_whatever_the_order(tmp_path_factory, tokenizer, soak_cases, verify):
    @settings(
        max_examples=soak_cases(12, 300),
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(
        corpora(),
        st.sampled_from([0.3, 0.5, 0.7, 0.8, 1.0]),
        st.sampled_from(["random", "longest", "highest:words"]),
        st.sampled_from([True, False]),
    )
    def check(texts, threshold, keep, exact):
        fuzzy = {"verify": verify, "threshold": threshold, "keep": keep}
        folder = tmp_path_factory.mktemp("r")
        _, decided, clusters = execute(
            folder / "a", tokenizer, texts, fuzzy, dedup={"exact": exact, "fuzzy": {**LSH, **fuzzy}}
        )
        of, like = survivors(texts, verify, threshold, keep), similarity(verify)
        kept = [t for t, row in zip(texts, decided.values(), strict=True) if row["keep"]]
        assert Counter(kept) == Counter({t: 1 for t in of.values()})
        for number, text in enumerate(texts):
            partner = decided[number]["partner"]
            stands = text if partner is None else texts[partner]
            assert stands == of[text]
            assert decided[number]["keep"] == (partner is None)
            assert partner is None or decided[partner]["keep"]
            assert text == stands or like(text, stands) >= threshold  # nothing is removed below the threshold
            if number in clusters:
                mates = [d for d, row in clusters.items() if texts[row["survivor"]] == of[text]]
                row = clusters[number]
                assert (row["size"], row["cluster"]) == (len(mates), min(mates))
                assert row["kind"] == (
                    None if partner is None else decided[number]["reason"].removesuffix("_duplicate")
                )
                if row["jaccard"] is not None:
                    assert row["jaccard"] == pytest.approx(similarity("exact")(text, stands))
        again = execute(folder / "b", tokenizer, kept, fuzzy)[1]
        assert all(row["keep"] for row in again.values())  # deduplicating again removes nothing

    check()


# ------------------------------------------------------------------------------------------------------------- chains


def test_a_chain_is_removed_as_far_as_it_resembles_what_is_kept(tmp_path, tokenizer):
    """Ten versions of one text, each 0.8 like the one before: as pairs all hang together, and the last is unlike the first."""
    texts = chain(random.Random(5), 9, 40, 4)
    exact = similarity("exact")
    assert min(exact(a, b) for a, b in pairwise(texts)) > 0.7 > exact(texts[0], texts[-1])
    fuzzy = {"num_bands": 60, "rows_per_band": 2, "verify": "exact", "threshold": 0.7}
    _, by_pair, _ = execute(tmp_path / "pair", tokenizer, texts, {**fuzzy, "verify_against": "pair"})
    assert sum(r["keep"] for r in by_pair.values()) == 1
    lost = [exact(texts[d], texts[r["partner"]]) for d, r in by_pair.items() if not r["keep"]]
    assert min(lost) < 0.3
    _, decided, clusters = execute(tmp_path / "survivor", tokenizer, texts, fuzzy)
    found = [exact(texts[d], texts[r["partner"]]) for d, r in decided.items() if not r["keep"]]
    assert min(found) >= 0.7
    kept = [texts[d] for d, r in decided.items() if r["keep"]]
    assert 1 < len(kept) < 10
    assert max(exact(a, b) for a, b in combinations(kept, 2)) < 0.7
    assert {r["component"] for r in clusters.values()} == {0}
    assert sum(r["size"] for r in clusters.values() if r["kind"] is None) == len(texts)


@pytest.mark.parametrize("keep", ["first", "longest"])
def test_the_survivor_rule_orders_every_round(tmp_path, tokenizer, keep):
    texts = chain(random.Random(6), 7, 30, 3)
    if keep == "longest":
        texts = [t + " x" * (8 - i) for i, t in enumerate(texts)]
    fuzzy = {"num_bands": 60, "verify": "exact", "threshold": 0.7, "keep": keep}
    _, decided, _ = execute(tmp_path / "r", tokenizer, texts, fuzzy)
    exact, kept = similarity("exact"), []
    for number, text in enumerate(texts):  # in this order they are ranked
        like = next((k for k in kept if exact(texts[k], text) >= 0.7), None)
        assert decided[number]["partner"] == like
        if like is None:
            kept.append(number)


def test_groups_are_apart(tmp_path, tokenizer):
    rows = [{"text": t, "group": g} for g in ("a", "b") for t in chain(random.Random(7), 5, 30, 3)]
    fuzzy = {"num_bands": 60, "verify": "exact", "threshold": 0.7, "scope": "group"}
    _, decided, _ = execute(tmp_path / "r", tokenizer, rows, fuzzy)
    kept = [[d % 6 for d, r in decided.items() if r["keep"] and d // 6 == g] for g in (0, 1)]
    assert kept[0] == kept[1]
    assert 1 < len(kept[0]) < 6
    assert all(r["partner"] is None or r["partner"] // 6 == d // 6 for d, r in decided.items())


@pytest.mark.parametrize("verify", ["none", "exact"])
@pytest.mark.parametrize("action", ["dedup_against", "train_only"])
def test_items_of_a_set_stand_in_no_group_and_meet_all(tmp_path, tokenizer, verify, action):
    """Nearly equal documents of two groups stay apart, and both resemble the item of a set."""
    rng = random.Random(5)
    item, near = chain(rng, 1, 200, 2)
    again = near.replace(near.split()[120], "other")
    alone = " ".join(f"z{rng.randrange(10**6)}" for _ in range(100))
    rows = [{"text": t, "group": g} for t, g in [(near, "a"), (again, "b"), (alone, "a"), (alone, "b"), (item, "c")]]
    (tmp_path / "set.jsonl").write_text(json.dumps({"text": item}) + "\n")
    sets = [{"name": "old", "path": str(tmp_path / "set.jsonl"), "action": action}]
    fuzzy = {"scope": "group", "verify": verify}
    run, decided, clusters = execute(tmp_path / "x", tokenizer, rows, fuzzy, references=sets)
    if action == "dedup_against":
        assert [r["keep"] for r in decided.values()] == [False, False, True, True, False]
        assert len({clusters[d]["survivor"] for d in list(decided)[:2]}) == 1
        assert [clusters[d]["kind"] for d in list(decided) if d in clusters] == ["fuzzy", "fuzzy", "exact"]
    else:
        assert all(r["keep"] for r in decided.values())
        folders = read_json(run / "run.json")["folders"]
        found = pq.read_table(run / folders["duplicates"] / "train_only.parquet")["doc_id"].to_pylist()
        assert found == [list(decided)[i] for i in (0, 1, 4)]


def test_an_older_corpus_takes_what_resembles_any_of_its_documents(tmp_path, tokenizer):
    """Two references of one chain: both are kept, and each takes what is like it, though only one could be the best."""
    texts = chain(random.Random(8), 9, 40, 4)
    (tmp_path / "old.jsonl").write_text("\n".join(json.dumps({"text": t}) for t in (texts[0], texts[9])))
    old = {"name": "old", "path": str(tmp_path / "old.jsonl"), "action": "dedup_against"}
    fuzzy = {"num_bands": 60, "verify": "exact", "threshold": 0.7}
    new = texts[1:9]
    _, decided, clusters = execute(tmp_path / "r", tokenizer, new, fuzzy, references=[old])
    items = sorted(d for d in clusters if d not in decided)
    assert len(items) == 2
    place = {**dict(enumerate(new)), items[0]: texts[0], items[1]: texts[9]}
    exact = similarity("exact")
    for number, row in decided.items():
        near = [i for i in items if exact(place[i], new[number]) >= 0.7]
        assert (row["reason"] == "reference_duplicate") == bool(near)
        assert row["partner"] is None or exact(place[row["partner"]], new[number]) >= 0.7
    assert {r["reason"] for r in decided.values()} > {None, "reference_duplicate"}
    assert [clusters[i]["kind"] for i in items] == [None, None]
    assert [clusters[i]["survivor"] for i in items] == items


# ----------------------------------------------------------------------------------------------------- sides of the split


def sides(run) -> dict[int, str]:
    folder = run / read_json(run / "run.json")["folders"]["shards"]
    return {r["doc_id"]: r["split"] for r in pq.read_table(folder / "documents.parquet").to_pylist()}


@pytest.mark.parametrize("seed", range(4))
def test_what_is_kept_of_one_component_lies_on_one_side(tmp_path, tokenizer, seed):
    rng = random.Random(seed)
    texts = [t for _ in range(25) for t in chain(rng, rng.randrange(1, 7), 30, 5)]
    fuzzy = {"num_bands": 60, "verify": "exact", "threshold": 0.7}
    split = {"shuffle_seed": seed, "validation": {"tokens": 4000, "max_fraction": 0.4}}
    run, _, clusters = execute(tmp_path / "r", tokenizer, texts, fuzzy, shards=split)
    by_component = defaultdict(list)
    for number, side in sides(run).items():
        if number in clusters:
            by_component[clusters[number]["component"]].append(side)
    assert sum(len(s) > 1 for s in by_component.values()) > 10
    assert all(len(set(s)) == 1 for s in by_component.values())
    assert {"train", "validation"} == set(sides(run).values())
    bound = read_json(run / read_json(run / "run.json")["folders"]["shards"] / "manifest.json")["split"]
    assert bound["tokens_held"] <= 0.4 * sum(
        r["tokens"] for r in pq.read_table(run / "shards/documents.parquet").to_pylist()
    )
    pinned = {"shuffle_seed": seed, "validation": {"tokens": 0, "bound": bound["bound"]}}
    again, _, _ = execute(tmp_path / "again", tokenizer, texts, fuzzy, shards=pinned)
    assert sides(again) == sides(run)


def test_a_neighbour_of_a_train_only_item_takes_its_component_along(tmp_path, tokenizer):
    texts = chain(random.Random(9), 9, 40, 4) + [document(random.Random(i)) for i in range(12)]
    (tmp_path / "t.jsonl").write_text(json.dumps({"text": texts[0]}))
    sample = {"name": "t", "path": str(tmp_path / "t.jsonl"), "action": "train_only"}
    fuzzy = {"num_bands": 60, "verify": "exact", "threshold": 0.7}
    split = {"validation": {"tokens": 10**6, "max_fraction": 0.9}}
    run, _, _ = execute(tmp_path / "r", tokenizer, texts, fuzzy, shards=split, references=[sample])
    of_chain = {n: s for n, s in sides(run).items() if n < 10}
    assert len(of_chain) > 1
    assert set(of_chain.values()) == {"train"}
    assert "validation" in sides(run).values()


def test_threshold_of_zero_is_refused():
    data = {
        "sources": [{"name": "s", "type": "jsonl", "path": "x"}],
        "tokenizer": {"path": "t"},
        "dedup": {"fuzzy": {"verify": "exact", "threshold": 0}},
    }
    with pytest.raises(ConfigError, match=r"dedup\.fuzzy\.threshold: .*greater than 0"):
        config.parse(data)


@pytest.mark.parametrize(
    ("fuzzy", "said"),
    [
        ({}, []),
        ({"threshold": 0.7, "verify_against": "survivor"}, []),  # as a run.json has them
        ({"threshold": 0.8, "verify_against": "pair"}, ["verify_against", "threshold"]),
        ({"verify": "exact", "threshold": 0.8, "verify_against": "pair"}, []),
    ],
)
def test_a_threshold_without_verify_is_said_to_have_no_effect(fuzzy, said):
    from gpu_curate.runs.checks import without_effect

    data = {"sources": [{"name": "s", "type": "jsonl", "path": "x"}], "tokenizer": {"path": "t"}}
    told = without_effect(config.parse({**data, "dedup": {"fuzzy": fuzzy}}))
    assert told == [f"dedup.fuzzy.{key} has no effect: dedup.fuzzy.verify is none" for key in said]


@pytest.mark.parametrize("keep", ["random", "first"])
@pytest.mark.parametrize("verify", ["none", "exact"])
@pytest.mark.parametrize(("survivors", "smallest"), [(1, 2), (2, 2), (3, 2), (1, 4), (2, 5), (1, 100)])
def test_as_many_of_a_cluster_are_kept_as_asked_for(tmp_path, tokenizer, verify, keep, survivors, smallest):
    """The best ones by `keep`: those that would survive if the better ones were not there. Small clusters lose nothing."""
    rng = random.Random(4)
    texts = []
    for size in (1, 2, 3, 4, 6):
        (base,) = chain(rng, 0, 60, 1)
        texts += [base] * (size // 3) + [base + f" more{i}" for i in range(size - size // 3)]
    fuzzy = {"verify": verify, "keep": keep}
    _, _, alone = execute(tmp_path / "a", tokenizer, texts, fuzzy)
    more = {"survivors": survivors, "min_cluster_size": smallest}
    _, decided, clusters = execute(tmp_path / "b", tokenizer, texts, {**fuzzy, **more})
    assert {d: c["cluster"] for d, c in alone.items()} == {d: c["cluster"] for d, c in clusters.items()}
    members = defaultdict(list)
    for doc_id, row in alone.items():
        members[row["cluster"]].append(doc_id)
    assert sorted(map(len, members.values())) == [2, 3, 4, 6]
    kept = {d for d, row in decided.items() if row["keep"]}
    for ids in members.values():
        expected = len(ids) if len(ids) < smallest else min(survivors, len(ids))
        mine = sorted(kept & set(ids))
        assert len(mine) == expected
        best = next(d for d in ids if alone[d]["survivor"] == d)
        assert best in mine
        if keep == "first":
            assert mine == sorted(ids)[:expected]
        assert {clusters[d]["survivor"] for d in ids if d not in kept} <= {best}
        assert all(clusters[d]["kind"] is None and clusters[d]["survivor"] == d for d in mine)


def test_what_an_older_corpus_holds_goes_whatever_survives(tmp_path, tokenizer):
    (text,) = chain(random.Random(5), 0, 60, 1)
    (tmp_path / "older.jsonl").write_text(json.dumps({"text": text}))
    older = [{"name": "older", "path": str(tmp_path / "older.jsonl"), "action": "dedup_against"}]
    texts = [text + f" more{i}" for i in range(4)]
    more = {"survivors": 3, "min_cluster_size": 50}
    _, decided, _ = execute(tmp_path / "a", tokenizer, [*texts, "something else entirely"], more, references=older)
    assert sorted(r["keep"] for r in decided.values()) == [False] * 4 + [True]


def test_funnel_refuses_what_was_not_stored(tmp_path, tokenizer):
    from gpu_curate.inquiry.funnel import funnel
    from gpu_curate.inquiry.stored import Stored

    run, _, _ = execute(tmp_path / "a", tokenizer, ["a b c d e f", "a b c d e f"], {"survivors": 2})
    with pytest.raises(ConfigError, match=r"survivors or min_cluster_size is not stored"):
        funnel(Stored(run), without=["exact_duplicate"])
