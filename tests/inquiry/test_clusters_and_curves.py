"""clusters, scurve, certificate and budget against plain definitions."""

from __future__ import annotations

import csv
import json
import random
import re
from collections import Counter

import numpy as np
import pytest
from corpora import document
from typer.testing import CliRunner

import gpu_curate as gc
from gpu_curate import cli
from gpu_curate.document import TextColumn
from gpu_curate.errors import ConfigError
from gpu_curate.inquiry.budget import budget, count
from gpu_curate.inquiry.certificate import certificate
from gpu_curate.inquiry.clusters import articulation, clusters
from gpu_curate.inquiry.scurve import advisor, estimates, sample, scurve, wilson
from gpu_curate.inquiry.stored import Stored


def test_clusters_are_counted_by_size_source_and_group(run):
    facts = clusters(Stored(run))
    opened = gc.open_run(run)
    places = {
        r["doc_id"]: r for r in opened.documents.to_table(columns=["doc_id", "source", "path", "group"]).to_pylist()
    }
    members: dict[int, list] = {}
    for row in opened.clusters.to_table().to_pylist():
        if row["size"] > 1:
            members.setdefault(row["cluster"], []).append(row)
    assert facts["clusters"] == len(members)
    assert facts["members"] == sum(map(len, members.values()))
    assert sum(o["clusters"] for o in facts["sizes"]) == len(members)
    kinds = Counter(r["kind"] for own in members.values() for r in own)
    assert facts["removed"] == {"exact": kinds["exact"], "fuzzy": kinds["fuzzy"]}
    across = [c for c, own in members.items() if len({places[r["doc_id"]]["path"] for r in own}) > 1]
    assert facts["across"]["file"]["across"] == len(across) > 0
    with_groups = [{places[r["doc_id"]]["group"] for r in own} - {None} for own in members.values()]
    assert facts["across"]["group"]["across"] == sum(len(g) > 1 for g in with_groups) > 0
    assert facts["across"]["group"]["clusters"] == sum(len(g) > 0 for g in with_groups)
    removed = Counter(places[r["doc_id"]]["source"] for own in members.values() for r in own if r["kind"])
    documents = Counter(p["source"] for p in places.values())
    assert {s["source"]: (s["documents"], s["removed"]) for s in facts["sources"]} == {
        s: (n, removed[s]) for s, n in documents.items()
    }
    assert [c["size"] for c in facts["largest"]] == sorted((len(o) for o in members.values()), reverse=True)[:10]
    assert not any(s["alarm"] for s in facts["sources"])


def pieces_without(neighbours, node, documents):
    """Documents of each piece that is left without a node, by walking."""
    seen, found = {node}, []
    for start in range(documents):
        if start in seen:
            continue
        todo, n = [start], 0
        seen.add(start)
        while todo:
            at = todo.pop()
            n += at < documents
            new = [v for v in neighbours[at] if v not in seen]
            seen |= set(new)
            todo += new
        found.append(n)
    return found


def test_bridges_are_what_parts_the_graph():
    rng = random.Random(3)
    for _ in range(60):
        documents = rng.randint(1, 9)
        buckets = [rng.sample(range(documents), min(documents, rng.randint(2, 3))) for _ in range(rng.randint(0, 8))]
        neighbours = [[] for _ in range(documents + len(buckets))]
        for b, own in enumerate(buckets):
            for d in own:
                neighbours[d].append(documents + b)
                neighbours[documents + b].append(d)
        whole = len(pieces_without(neighbours, -1, documents))
        expected = {}
        for node in range(len(neighbours)):
            if not neighbours[node]:
                continue
            left = pieces_without(neighbours, node, documents)
            own = [n for n in left if n] if whole == 1 else None
            if own is not None and len(own) > 1:
                expected[node] = sum(own) - max(own)
        if whole == 1:
            assert articulation(neighbours, documents) == expected


def test_a_giant_component_names_its_bridge(tmp_path):
    """Two families of near-copies that one document of both joins."""
    rng = random.Random(9)
    a, b = (document(rng, 40).split() for _ in range(2))

    def edited(words, at):
        return " ".join([*words[:at], "changed", *words[at + 1 :]])

    texts = [edited(a, 7 * i) for i in range(15)] + [edited(b, 7 * i) for i in range(15)]
    (tmp_path / "s.jsonl").write_text("".join(json.dumps({"text": t}) + "\n" for t in [*texts, " ".join([*a, *b])]))
    data = {
        "sources": [{"name": "s", "type": "jsonl", "path": str(tmp_path / "s.jsonl")}],
        "tokenizer": {"train": {"vocab_size": 300}},
        "dedup": {"fuzzy": {"num_bands": 40, "rows_per_band": 3}},
        "shards": {"validation": {"tokens": 0}},
        "run": {"engine": "inline"},
    }
    gc.run(data, tmp_path / "r")
    facts = clusters(Stored(tmp_path / "r"))
    assert facts["giants"][0]["members"] == 31
    bridge = facts["giants"][0]["bridges"][0]
    assert (bridge["kind"], bridge["doc_id"], bridge["cuts_off"]) == ("document", 30, 15)
    assert next(s for s in facts["sources"])["alarm"]
    done = CliRunner().invoke(cli.app, ["clusters", str(tmp_path / "r")], catch_exceptions=False)
    assert "ALARM" in done.output
    assert "15 are cut off" in done.output


def test_the_curve_is_the_formula_within_its_intervals(run, tmp_path):
    rng = random.Random(1)
    text = TextColumn.from_texts([document(rng, 12) for _ in range(300)])
    fuzzy = gc.Config.model_fields["dedup"].default.fuzzy
    facts = scurve(text, fuzzy, 3000)
    assert sum(b["pairs"] for b in facts["bins"]) == facts["pairs"] == 3000
    assert facts["outside"] <= 3
    steep = [b for b in facts["bins"] if 0.6 <= b["from"] < 0.8]
    assert all(0.05 < b["measured"] < 0.98 for b in steep)
    assert all(b["pairs"] >= 30 for b in facts["bins"][4:])
    assert sample(Stored(run), 50).nbytes == sample(Stored(run), 50).nbytes > 0
    found = estimates(Stored(run))
    measured = [
        j for j in gc.open_run(run).clusters.to_table(columns=["jaccard", "kind"]).to_pylist() if j["kind"] == "fuzzy"
    ]
    assert found["measured"] == len(measured)
    row = next(r for r in found["rows"] if r["threshold"] == 0.8)
    assert row["precision"] == sum(m["jaccard"] >= 0.8 for m in measured) / len(measured)
    assert 0.9 < row["recall"] <= 1
    words = ["scurve", str(run), "--pairs", "300", "--csv", str(tmp_path / "c.csv"), "--threshold", "0.75"]
    done = CliRunner().invoke(cli.app, words, catch_exceptions=False)
    assert "14 x 8 (this recipe)" in done.output
    assert sum(int(r["pairs"]) for r in csv.DictReader((tmp_path / "c.csv").open())) == 300


def test_the_advisor_takes_the_fewest_bands_that_reach_it():
    rng = random.Random(1)
    text = TextColumn.from_texts([document(rng, 5) for _ in range(20)])
    facts = advisor(text, gc.Config.model_fields["dedup"].default.fuzzy, 0.8, 0.95)
    for row in facts["rows"][1:]:
        assert row["at"][2] >= 0.95
        assert 1 - (1 - 0.8 ** row["rows"]) ** (row["bands"] - 1) < 0.95
        assert row["at"][2] == pytest.approx(1 - (1 - 0.8 ** row["rows"]) ** row["bands"])
    with pytest.raises(ConfigError, match="between 0 and 1"):
        advisor(text, gc.Config.model_fields["dedup"].default.fuzzy, 1.0, 0.95)


def test_the_interval_is_wilsons():
    assert wilson(0, 0) == (0.0, 1.0)
    low, high = wilson(8, 10)  # Wilson 1927; as statsmodels 0.14 gives it
    assert (low, high) == (pytest.approx(0.490162, abs=1e-6), pytest.approx(0.943318, abs=1e-6))


def test_lost_words_are_those_in_no_kept_document(run):
    opened = gc.open_run(run)
    decided = opened.decisions.to_table().to_pylist()
    texts = {i: t for table in opened.texts() for i, t in zip(*table.to_pydict().values(), strict=True)}
    stored = Stored(run)

    def words(text):
        return re.findall(r"[^\W_]+|_", text.lower())

    def grams(text):
        w = words(text)
        return [tuple(w[i : i + 5]) for i in range(len(w) - 4)]

    kept = {g for d in decided if d["keep"] for g in grams(texts[d["doc_id"]])}
    expected = {}
    for d in decided:
        if stored.failing(d["failing"]) == ["fuzzy_duplicate"]:
            w, found = words(texts[d["doc_id"]]), grams(texts[d["doc_id"]])
            covered = np.zeros(len(w), bool)
            for i, gram in enumerate(found):
                if gram in kept:
                    covered[i : i + 5] = True
            expected[d["doc_id"]] = (len(w), int((~covered).sum()))
    facts = certificate(stored, worst=1000)
    assert len(expected) >= 3
    assert facts["looked_at"] == facts["removed"] == len(expected)
    assert (facts["words"], facts["lost_words"]) == tuple(np.array(list(expected.values())).sum(axis=0))
    assert {p["doc_id"]: (p["words"], p["lost_words"]) for p in facts["worst"]} == expected
    assert [p["lost_words"] for p in facts["worst"]] == sorted((n for _, n in expected.values()), reverse=True)
    worst = facts["worst"][0]
    assert worst["lost"]
    assert worst["lost"].rstrip(" .…") in texts[worst["doc_id"]]
    done = CliRunner().invoke(cli.app, ["certificate", str(run)], catch_exceptions=False)
    assert "stand in no kept document" in done.output


def test_the_budget_is_the_arithmetic(run):
    facts = budget("1B", gpu="A100", gpus=8, utilisation=0.5)
    assert facts["tokens"] == facts["chinchilla_tokens"] == 20e9
    assert facts["flops"] == 6 * 1e9 * 20e9
    assert facts["gpu_hours"] == pytest.approx(1.2e20 / (312e12 * 0.5) / 3600)
    assert facts["hours"] == facts["gpu_hours"] / 8
    held = gc.open_run(run).report["splits"]["train"]["tokens"]
    of = budget("10k", tokens=str(2 * held), corpus=run)["corpus"]
    assert (of["tokens"], of["epochs"], of["best_params"]) == (held, 2.0, held / 20)
    assert count("--params", "88M") == 88e6
    assert count("--params", "2e9") == 2e9
    for bad in ("", "0", "-1", "1Q", "nan", "1e99"):
        with pytest.raises(ConfigError, match="expected a number above 0"):
            count("--params", bad)
    with pytest.raises(ConfigError, match="did you mean 'h100'"):
        budget("1B", gpu="h10")
    with pytest.raises(ConfigError, match="--utilisation"):
        budget("1B", utilisation=40)
    done = CliRunner().invoke(cli.app, ["budget", "--params", "88M"], catch_exceptions=False)
    assert "1.76 B" in done.output
