"""Judges in a run: the column, its rules, shares, bands, questions, report; whatever the partitions and the backend."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from corpora import WORDS, sentence

import gpu_curate as gc
from gpu_curate import config
from gpu_curate.api import pipeline
from gpu_curate.errors import ConfigError
from gpu_curate.inquiry.explain import explain
from gpu_curate.inquiry.funnel import funnel
from gpu_curate.inquiry.stored import Stored
from gpu_curate.judges.model import load
from gpu_curate.judges.train import Settings
from gpu_curate.quality.judges import UNSCORED
from gpu_curate.tokenizer.training import train
from gpu_curate.tools.judge_texts import labelled, train_judge

GOOD, BAD = ["theorem", "proof", "therefore"], ["click", "subscribe", "buy"]


def texts(count: int, seed: int, filler: int = 20) -> list[tuple[str, int]]:
    """Texts, and which hold good words: the more, the better."""
    rng = random.Random(seed)
    made = []
    for number in range(count):
        good = rng.random()
        words = sentence(rng).split() * 2 + rng.choices(WORDS, k=filler)
        words += [rng.choice(GOOD if rng.random() < good else BAD) for _ in range(max(8, filler // 12))]
        rng.shuffle(words)
        made.append((f"{' '.join(words)} {number}", int(good > 0.5)))
    return made


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A judge, a tokenizer and two sources: a has 60 documents, one of them without words; b has 30."""
    folder = tmp_path_factory.mktemp("judged")
    rows = texts(240, 1)
    (folder / "labels.jsonl").write_text("".join(json.dumps({"text": t, "label": v}) + "\n" for t, v in rows))
    data, reading = labelled([], [], [str(folder / "labels.jsonl")], "label")
    train_judge(data, reading, Settings(bits=14, folds=4), folder / "my.judge")
    for name, count, seed in (("a", 59, 2), ("b", 30, 3)):
        own = [t for t, _ in texts(count, seed, 500)] + (["\u00a0 \u2003\n"] if name == "a" else [])
        (folder / f"{name}.jsonl").write_text(
            "".join(json.dumps({"text": t, "g": f"g{i % 2}"}) + "\n" for i, t in enumerate(own))
        )
    train([t for t, _ in rows], 400, "<|endoftext|>", folder / "tokenizer.json")
    return folder


def run(folder: Path, out: Path, judge: dict, partition_bytes: int = 1 << 20, **keys: object) -> Path:
    data = {
        "sources": [
            {"name": n, "type": "jsonl", "path": str(folder / f"{n}.jsonl"), "group_column": "g"} for n in ("a", "b")
        ],
        "normalize": None,
        "quality": {"judges": {"edu": {"model": str(folder / "my.judge"), **judge}}},
        "dedup": {"exact": True, "fuzzy": None},
        "tokenizer": {"path": str(folder / "tokenizer.json")},
        "min_tokens": 0,
        "shards": {"validation": {"tokens": 0}},
        "run": {"engine": "inline", "partition_bytes": partition_bytes},
        **keys,
    }
    pipeline.execute(config.parse(data), out)
    return out


def column(run: Path, box: str, name: str) -> np.ndarray:
    """A column of a box in the order of doc_ids: that of rows within a file."""
    parts = sorted(run.glob(f"{box}*/part-*.parquet"))
    documents = next(run.glob("documents*/part-*.parquet")).parent
    values, ids = [], []
    for part in parts:
        own = pq.read_table(part)[name]
        own = own.cast(pa.string()) if pa.types.is_dictionary(own.type) else own
        values.append(own.to_numpy(zero_copy_only=False))
        ids.append(pq.read_table(documents / part.name)["doc_id"].to_numpy())
    return np.concatenate(values)[np.argsort(np.concatenate(ids))]


@pytest.fixture(scope="module")
def made(folder, tmp_path_factory) -> Path:
    return run(folder, tmp_path_factory.mktemp("r") / "r", {"min": 500})


def test_the_column_holds_the_judges_scores(folder, made):
    score_N = column(made, "scores", "judge_edu")
    assert score_N.dtype == np.int32
    all_texts = [json.loads(line)["text"] for n in ("a", "b") for line in (folder / f"{n}.jsonl").open()]
    table = gc.score(all_texts, judges={"edu": folder / "my.judge"})
    assert score_N.tolist() == table["judge_edu"].to_pylist()
    assert (score_N == UNSCORED).sum() == 1
    assert len(set(score_N.tolist())) > 50


@pytest.mark.parametrize("partition_bytes", [1 << 16, 100_000])
def test_partitions_change_nothing(folder, made, tmp_path, partition_bytes):
    other = run(folder, tmp_path / "r", {"min": 500}, partition_bytes)
    assert len(list(other.glob("scores*/part-*.parquet"))) > 1
    for box, name in (("scores", "judge_edu"), ("decisions", "reason")):
        assert column(other, box, name).tolist() == column(made, box, name).tolist()


def test_rules_drop_by_name(folder, made):
    score_N, reason_N = column(made, "scores", "judge_edu"), column(made, "decisions", "reason")
    for score, reason in zip(score_N.tolist(), reason_N.tolist(), strict=True):
        want = "judges:unscored_edu" if score == UNSCORED else "judges:min_edu" if score < 500 else None
        assert reason == want or reason == "empty", (score, reason)
    assert 0 < (score_N >= 500).sum() < len(score_N) - 1
    report = next(made.glob("report*/report.json"))
    facts = json.loads(report.read_text())
    assert facts["documents"]["dropped"]["judges:min_edu"] == int(((score_N < 500) & (score_N != UNSCORED)).sum())
    assert facts["spreads"]["judge_edu"]["thresholds"] == [["min 500", 500]]
    page = next(made.glob("report*/index.html")).read_text()
    assert "just below" in page
    assert "just above" in page
    assert "judges:min_edu" in page


def test_unscored_documents_may_stay(folder, tmp_path):
    other = run(folder, tmp_path / "r", {"min": 500, "unscored": "keep"})
    score_N, reason_N = column(other, "scores", "judge_edu"), column(other, "decisions", "reason")
    assert reason_N[score_N == UNSCORED].tolist() in ([None], ["empty"])


@pytest.mark.parametrize("per", ["source", "group", "all"])
def test_a_top_share_keeps_the_highest_of_each(folder, tmp_path, per):
    other = run(folder, tmp_path / "r", {"top_share": 0.25, "per": per, "unscored": "keep"}, 1 << 16)
    score_N, reason_N = column(other, "scores", "judge_edu"), column(other, "decisions", "reason")
    source, group = ([str(v) for v in column(other, "documents", c)] for c in ("source", "group"))
    keys = {"source": source, "group": list(zip(source, group, strict=True)), "all": [0] * len(source)}[per]
    for key in set(keys):
        own = [s for s, k in zip(score_N.tolist(), keys, strict=True) if k == key and s != UNSCORED]
        limit = sorted(own, reverse=True)[-(-len(own) // 4) - 1]
        dropped = {
            s
            for s, k, r in zip(score_N.tolist(), keys, reason_N.tolist(), strict=True)
            if k == key and r == "judges:top_edu"
        }
        assert dropped == {s for s in own if s < limit}


def test_bands_repeat_documents(folder, tmp_path):
    bands = [{"min": 700, "weight": 2.0}, {"min": 300, "weight": 1.5}, {"min": -1000, "weight": 0.0}]
    other = run(folder, tmp_path / "r", {"bands": bands, "unscored": "keep"})
    score = dict(
        zip(column(other, "documents", "doc_id").tolist(), column(other, "scores", "judge_edu").tolist(), strict=True)
    )
    times = dict.fromkeys(score, 0)
    for doc_id in column_of_shards(other):
        times[doc_id] += 1
    assert {times[d] for d, s in score.items() if s >= 700} == {2}
    assert {times[d] for d, s in score.items() if 300 <= s < 700} == {1, 2}
    assert {times[d] for d, s in score.items() if UNSCORED < s < 300} == {0}
    facts = json.loads(next(other.glob("report*/report.json")).read_text())
    low = sum(UNSCORED < s < 300 for s in score.values())
    assert facts["documents"]["dropped"]["mixture:not_drawn"] == low


def column_of_shards(run: Path) -> list[int]:
    return pq.read_table(next(run.glob("shards*/documents.parquet")))["doc_id"].to_pylist()


def test_questions_are_answered(folder, made):
    stored = Stored(made)
    score_N = column(made, "scores", "judge_edu")
    facts = funnel(stored, changes=["quality.judges.edu.min=700"])
    kept = int((score_N >= 700).sum())
    assert facts["kept"]["documents"] == kept
    without = funnel(stored, without=["judges"])
    assert without["kept"]["documents"] >= len(score_N) - 1
    with pytest.raises(ConfigError, match="what is stored does not tell"):
        funnel(stored, changes=["quality.judges.edu.top_share=0.1"])
    told = explain(stored, str(int(column(made, "documents", "doc_id")[0])))
    rule = next(r for r in told["rules"] if r["rule"] == "judges:min_edu")
    assert rule["value"] == int(score_N[0])
    assert rule["passes"] == (score_N[0] >= 500)


def test_the_model_is_in_the_fingerprint_and_a_threshold_is_not(folder, made, tmp_path):
    prints = json.loads((made / "run.json").read_text())["fingerprints"]
    moved = json.loads((run(folder, tmp_path / "a", {"min": 501}) / "run.json").read_text())["fingerprints"]
    assert moved["scores"] == prints["scores"]
    assert moved["decisions"] != prints["decisions"]
    own = load(str(folder / "my.judge"))
    own.knots_y[-1] += 1
    own.save(folder / "other.judge")
    own.knots_y[-1] -= 1
    other = json.loads(
        (run(folder, tmp_path / "b", {"min": 500, "model": str(folder / "other.judge")}) / "run.json").read_text()
    )["fingerprints"]
    assert other["scores"] != prints["scores"]
    assert other["documents"] == prints["documents"]


def test_bad_sections_say_what_is_wrong(folder, tmp_path):
    for judge, said in (
        ({"min": 600, "max": 500}, "min=600 above max=500"),
        ({"minimum": 3}, "minimum"),
        ({"bands": [{"min": 1, "weight": 1.0}, {"min": 1, "weight": 2.0}]}, "two bands begin at 1"),
        ({"top_share": 0.0}, "greater than 0"),
        ({"model": str(tmp_path / "none.judge")}, "none.judge"),
    ):
        with pytest.raises(ConfigError, match=said):
            run(folder, tmp_path / "r", judge)
    with pytest.raises(ConfigError, match="Edu"):
        config.parse({"sources": [], "quality": {"judges": {"Edu": {"model": "x"}}}})


def test_one_score_for_all_commands(folder, tmp_path):
    from typer.testing import CliRunner

    from gpu_curate.cli import app

    labels = ["--labels", str(folder / "labels.jsonl"), "--score", "label"]
    out = ["--out", str(tmp_path / "x.judge"), "--bits", "12", "--folds", "3", "--json"]
    trained = CliRunner().invoke(app, ["judge", "train", *labels, *out])
    assert trained.exit_code == 0, trained.output
    facts = json.loads(trained.stdout)
    assert facts["auc"][0] > 0.8
    assert facts["read"]["documents"] == 240
    told = CliRunner().invoke(app, ["judge", "eval", str(tmp_path / "x.judge"), *labels])
    assert told.exit_code == 0
    assert "length alone" in told.output
    shown = CliRunner().invoke(app, ["judge", "show", str(tmp_path / "x.judge"), str(folder / "a.jsonl"), "--json"])
    assert set(GOOD) & {w for w, _, _ in json.loads(shown.stdout)["words"]["for"][:10]}
    wrong = CliRunner().invoke(app, ["judge", "train", "--good", str(folder / "a.jsonl")])
    assert wrong.exit_code != 0


def test_texts_without_a_label_are_counted(folder, tmp_path):
    rows = [
        {"text": "alpha beta", "v": 1},
        {"text": "gamma", "v": None},
        {"text": "delta", "v": "x"},
        {"text": " ", "v": 0},
    ]
    path = tmp_path / "l.jsonl"
    path.write_text(
        "".join(json.dumps(r) + "\n" for r in [*rows, {"text": "eta", "v": "0"}, {"text": "t", "v": float("nan")}])
    )
    data, reading = labelled([], [], [str(path)], "v")
    assert (reading.documents, reading.without_label, reading.without_words) == (2, 3, 1)
    assert data.value_N.tolist() == [1.0, 0.0]
    with pytest.raises(ConfigError, match="u"):
        labelled([], [], [str(path)], "u")


def test_a_table_is_decided_by_bounds_and_no_share(folder):
    texts_ = [t for t, _ in texts(20, 9)]
    table = gc.score(texts_, judges={"edu": folder / "my.judge"})
    judge = {"model": str(folder / "my.judge"), "min": 500}
    decided = gc.decide(table, {"judges": {"edu": judge}})
    assert decided.keep.tolist() == [s >= 500 for s in table["judge_edu"].to_pylist()]
    assert set(decided.rule[~decided.keep]) == {"judges:min_edu"}
    with pytest.raises(ConfigError, match="top_share"):
        gc.decide(table, {"judges": {"edu": {**judge, "top_share": 0.5}}})
