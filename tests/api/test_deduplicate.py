"""`gpu_curate.deduplicate` against a plain reference, and against a run of the same documents."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections import defaultdict

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import reference
from corpora import document, edited
from hypothesis import given, settings
from hypothesis import strategies as st
from xxhash import xxh3_128_intdigest

import gpu_curate as gc
from gpu_curate.api import corpus as memory
from gpu_curate.tokenizer.training import train

SHINGLE, BANDS, ROWS, SEED = 2, 6, 2, 42
LSH = {"shingle_words": SHINGLE, "num_bands": BANDS, "rows_per_band": ROWS}


def expected(texts, groups=None, against=()):
    """Survivor of every text (-1: one of `against`), its component and kind, by the definitions."""
    everything = [(t or "").encode() for t in [*texts, *against]]
    n = len(texts)
    keys = [0] * len(everything) if groups is None else [hash(("group", g)) for g in groups]
    content = [xxh3_128_intdigest(t) & (1 << 64) - 1 for t in everything]
    buckets = defaultdict(list)
    for i, text in enumerate(everything):
        if text:
            buckets["content", keys[i], text].append(i)
        if reference.words(text):
            rows = reference.signature(text, SHINGLE, BANDS * ROWS, SEED)
            for b, value in enumerate(reference.band_hashes(rows, BANDS, ROWS)):
                buckets[b, keys[i], value].append(i)
    edges = [(bucket[0], other) for bucket in buckets.values() for other in bucket[1:]]
    component = reference.components(len(everything), edges)
    rank = [(i < n, reference.fmix64(content[i] ^ SEED), i) for i in range(len(everything))]
    best, first_of_content = {}, {}
    for i in sorted(range(len(everything)), key=rank.__getitem__):
        best.setdefault(component[i], i)
        if everything[i]:
            first_of_content.setdefault((component[i], everything[i]), i)
    survivor = [best[component[i]] for i in range(n)]
    kind = []
    for i in range(n):
        copy = first_of_content.get((component[i], everything[i]), i) != i
        kind.append("" if survivor[i] == i else "exact" if copy else "fuzzy")
    return survivor, component[:n], kind


WORDS = st.lists(st.sampled_from(["a", "b", "c", "d", "e", "f"]), max_size=8).map(" ".join)


@settings(max_examples=60, deadline=None)
@given(st.lists(WORDS | st.none(), max_size=12), st.lists(WORDS, max_size=3), st.booleans())
def test_survivors_components_and_kinds_are_those_of_the_definition(texts, against, grouped):
    groups = [len(t or "") % 2 for t in texts] if grouped else None
    against = [] if grouped or not any(against) else against
    made = gc.deduplicate(texts, **LSH, groups=groups, against=against or None)
    survivor, component, kind = expected(texts, groups, against)
    n = len(texts)
    assert made.survivor.tolist() == [s if s < n else -1 for s in survivor]
    assert made.reference.tolist() == [s - n if s >= n else -1 for s in survivor]
    assert made.component.tolist() == component
    assert made.kind.tolist() == kind
    assert made.keep.tolist() == [not k for k in kind]
    assert all(made.keep[i] for i, t in enumerate(texts) if not t)


def corpus(rng, n=300):
    base = [document(rng) for _ in range(n // 3)]
    texts = [*base, *(edited(rng.choice(base), rng, 0.03) for _ in base), *rng.choices(base, k=n // 3), "", "?!"]
    rng.shuffle(texts)
    return texts


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"keep": "longest"},
        {"keep": "highest:words", "verify": "signature", "threshold": 0.9},
        {"verify": "exact", "threshold": 0.95},
        {"verify": "exact", "verify_against": "pair", "threshold": 0.9, "keep": "first"},
        {"exact": "compare"},
        {"exact": False},
    ],
    ids=str,
)
def test_a_run_of_the_same_documents_keeps_the_same(tmp_path, options):
    texts = [t for t in corpus(random.Random(3)) if t]
    (tmp_path / "s.jsonl").write_text("\n".join(json.dumps({"text": t}) for t in texts))
    train(texts[:20], 300, "<|endoftext|>", tmp_path / "tokenizer.json")
    fuzzy = {**options}
    recipe = {
        "sources": [{"name": "s", "type": "jsonl", "path": str(tmp_path / "s.jsonl")}],
        "normalize": None,
        "tokenizer": {"path": str(tmp_path / "tokenizer.json")},
        "min_tokens": 0,
        "dedup": {"exact": fuzzy.pop("exact", True), "fuzzy": fuzzy},
        "shards": {"validation": {"tokens": 0}},
        "run": {"engine": "inline"},
    }
    run = gc.run(recipe, tmp_path / "run")
    decided = run.decisions.to_table()
    made = gc.deduplicate(texts, **options)
    assert decided["keep"].to_pylist() == made.keep.tolist()
    assert 0 < made.keep.sum() < len(texts)
    row = {doc_id: i for i, doc_id in enumerate(decided["doc_id"].to_pylist())}
    for cluster in run.clusters.to_table().to_pylist():
        i = row[cluster["doc_id"]]
        assert made.survivor[i] == row[cluster["survivor"]]
        assert made.component[i] == row[cluster["component"]]
        assert made.kind[i] == (cluster["kind"] or "")


def test_the_definition_in_numpy_and_the_compiled_twin_give_one_result(monkeypatch):
    texts = [*corpus(random.Random(5), 90), "x" * 3000, "中文字符 と かな", "a\u00adb I\u0307"]
    monkeypatch.setattr(memory, "_plain_is_faster", lambda columns: False)
    compiled = gc.deduplicate(texts, verify="signature")
    monkeypatch.setattr(memory, "_plain_is_faster", lambda columns: True)
    plain = gc.deduplicate(texts, verify="signature")
    for name in ("survivor", "component", "kind"):
        assert np.array_equal(getattr(plain, name), getattr(compiled, name))
    assert np.array_equal(plain._corpus.bands_BN, compiled._corpus.bands_BN)
    assert gc.deduplicate([b"\xff a b c", b"\xff a b c"]).keep.tolist() == [True, False]  # not UTF-8: the twin's


def test_batches_change_nothing(monkeypatch):
    texts = corpus(random.Random(6))
    whole = gc.deduplicate(texts)
    told = []
    monkeypatch.setattr("gpu_curate.api.batches.BATCH_BYTES", 999)
    monkeypatch.setattr("gpu_curate.api.batches.BATCH_TEXTS", 2)
    parts = gc.deduplicate(texts, progress=lambda *facts: told.append(facts))
    assert np.array_equal(whole.survivor, parts.survivor)
    size = sum(len(t.encode()) for t in texts)
    assert [t for t in told if t[0] == "hashes"][-1] == ("hashes", size, size)
    assert told[-1] == ("bands", 14, 14)


@pytest.mark.parametrize("owner", [list, pa.array, pd.Series, pl.Series, lambda t: pa.chunked_array([t[:3], t[3:]])])
def test_texts_and_groups_of_any_owner(owner):
    texts = ["one text of words", None, "one text of words", "another one of words", "one text of words"]
    groups = ["x", "y", "y", "x", "x"]
    assert gc.deduplicate(owner(texts)).kind.tolist() == ["", "", "exact", "", "exact"]
    grouped = gc.deduplicate(owner(texts), groups=owner(groups))
    assert grouped.kind.tolist() == ["", "", "", "", "exact"]
    assert gc.deduplicate(texts, groups=[1, 1, 2, 1, 1]).survivor.tolist() == [0, 1, 2, 3, 0]


def test_numbers_given_choose_the_survivor_and_nothing_else_does():
    texts = ["a text that occurs thrice here"] * 3 + ["alone"]
    assert gc.deduplicate(texts, keep=[1.0, 3.0, 2.0, 0.0]).survivor.tolist() == [1, 1, 1, 3]
    assert gc.deduplicate(texts, keep=pd.Series([None, 1, 0, 0])).survivor.tolist() == [1, 1, 1, 3]
    assert gc.deduplicate(texts, keep="first").survivor.tolist() == [0, 0, 0, 3]


def test_pairs_and_explanations_tell_the_similarity():
    words = [f"w{i}" for i in range(100)]
    a, b = " ".join(words), " ".join([*words[:99], "other"])
    made = gc.deduplicate([a, b, a, "alone here"], keep="first", against=[a + " and more"])
    assert made.survivor.tolist() == [-1, -1, -1, 3]
    exact = {
        i: reference.jaccard(*(reference.shingles(t.encode(), 5) for t in (x, a + " and more")))
        for i, x in enumerate([a, b])
    }
    pairs = made.pairs(jaccard=True).to_pylist()
    assert [(p["text"], p["survivor"], p["reference"]) for p in pairs] == [(0, None, 0), (1, None, 0), (2, None, 0)]
    assert [p["jaccard"] for p in pairs[:2]] == [exact[0], exact[1]]
    assert "text 0 of `against`" in str(made.explain(0))
    assert str(made.explain(3)) == "text 3 is kept: it shares no bucket and no content with another"
    alone = gc.deduplicate([a, b, a], keep="first")
    assert [(e.kept, e.kind, e.survivor) for e in map(alone.explain, range(3))] == [
        (True, "", 0),
        (False, "fuzzy", 0),
        (False, "exact", 0),
    ]
    assert alone.explain(2).jaccard == 1.0
    assert alone.explain(2).equal_bands == 14
    assert alone.pairs().column_names == ["text", "survivor", "reference", "kind"]
    with pytest.raises(IndexError, match="text 3: there are 3"):
        alone.explain(3)


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"num_bands": 0}, gc.ConfigError, "num_bands=0"),
        ({"rows_per_band": -1}, gc.ConfigError, "rows_per_band=-1"),
        ({"num_bands": 3.5}, gc.ConfigError, "num_bands=3.5: expected an integer"),
        ({"seed": None}, gc.ConfigError, "seed=None"),
        ({"threshold": "high"}, gc.ConfigError, "threshold='high'"),
        ({"shingle_words": 0}, gc.ConfigError, "shingle_words=0"),
        ({"verify": "full"}, gc.ConfigError, "verify='full': expected one of 'none', 'signature', 'exact'"),
        ({"verify_against": "all"}, gc.ConfigError, "verify_against='all'"),
        ({"threshold": 0}, gc.ConfigError, "threshold=0"),
        ({"threshold": 80}, gc.ConfigError, "threshold=80"),
        ({"keep": "best"}, gc.ConfigError, "keep='best'"),
        ({"keep": "highest:nothing"}, gc.ConfigError, "keep='highest:nothing': no such score"),
        ({"keep": [1]}, gc.InputError, "keep"),
        ({"keep": ["a", "b"]}, gc.InputError, "keep"),
        ({"groups": ["a"]}, gc.InputError, "1 keys for 2 texts"),
        ({"groups": ["a", 1]}, gc.InputError, "groups"),
        ({"groups": "ab"}, gc.InputError, "groups"),
        ({"groups": ["a", "b"], "against": ["c"]}, gc.ConfigError, "groups and against"),
        ({"against": []}, gc.InputError, "against: no text"),
        ({"exact": False, "fuzzy": False}, gc.ConfigError, "nothing is looked for"),
        ({"exact": "yes"}, gc.ConfigError, "exact='yes'"),
    ],
    ids=str,
)
def test_a_wrong_value_is_named(options, error, says):
    with pytest.raises(error, match=says):
        gc.deduplicate(["same words here", "same words here"], **options)


def test_importing_the_package_imports_nothing_and_offers_what_it_names():
    code = (
        "import sys; before = set(sys.modules); import gpu_curate as gc\n"
        "own = {m for m in set(sys.modules) - before if not m.startswith('gpu_curate') and m.partition('.')[0] not in sys.stdlib_module_names}\n"
        "assert not own, own\n"
        "assert {m for m in sys.modules if m.startswith('gpu_curate')} == {'gpu_curate'}\n"
        "missing = [n for n in gc.__all__ if n not in dir(gc)]\n"
        "assert not missing, missing\n"
        "assert callable(gc.deduplicate) and callable(gc.run)\n"
        "import gpu_curate.runs.pipeline, gpu_curate.tokenizer, gpu_curate.quality, gpu_curate.config\n"
        "assert callable(gc.run) and callable(gc.score) and callable(gc.tokenize)\n"
        "assert not {'pydantic', 'pandas', 'rich', 'torch', 'cupy'} & set(sys.modules) - {'pydantic'}\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_no_submodule_has_the_name_of_something_offered():
    from pathlib import Path

    root = Path(gc.__file__).parent
    modules = {p.stem for p in root.glob("*.py")} | {p.name for p in root.iterdir() if p.is_dir()}
    assert not modules & set(gc.__all__)
    with pytest.raises(AttributeError, match="no attribute 'dedupe'"):
        _ = gc.dedupe


def test_a_thousand_texts_are_answered_without_loading_a_compiler():
    code = (
        "import sys, gpu_curate as gc\n"
        "texts = [' '.join(f'w{i * j % 997}' for j in range(150)) for i in range(1000)]\n"
        "assert gc.deduplicate(texts + texts[:10]).keep.sum() <= 1000\n"
        "assert not {'numba', 'pandas', 'pydantic', 'rich'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_column_on_the_device_is_hashed_there(monkeypatch):
    """The device is stood for by NumPy: what runs where is looked at, not the kernels, which tests/ops compares."""
    from gpu_curate.api import batches
    from gpu_curate.document import TextColumn

    texts = corpus(random.Random(8), 60)
    host = gc.deduplicate(texts)
    column = TextColumn.of(texts)
    seen = []

    class OnDevice(TextColumn):
        on_gpu = True

        def slice(self, start, stop):
            return OnDevice(self.chars, self.offsets[start : stop + 1])

    def in_batches(text, run):
        seen.append(len(text))
        assert text.on_gpu
        return run(TextColumn(text.chars, text.offsets))

    monkeypatch.setattr("gpu_curate.device.runtime.in_batches", in_batches)
    monkeypatch.setattr("gpu_curate.device.backend.to_device", lambda a: seen.append("band") or a)
    monkeypatch.setattr(batches, "BATCH_TEXTS", 50)
    monkeypatch.setattr(TextColumn, "batches", lambda self, size: [(0, len(self))])
    made = gc.deduplicate(OnDevice(column.chars, column.offsets))
    assert seen[:2] == [50, len(texts) - 50]
    assert seen.count("band") == 15  # 14 bands, and which texts lie in buckets
    assert np.array_equal(made.survivor, host.survivor)


def test_parquet_columns_are_taken_as_they_are(tmp_path):
    pq.write_table(pa.table({"text": ["a b c d e f"] * 3 + ["z"]}), tmp_path / "t.parquet")
    assert gc.deduplicate(pq.read_table(tmp_path / "t.parquet")["text"]).keep.sum() == 2
