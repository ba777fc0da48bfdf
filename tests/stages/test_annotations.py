"""Annotations that others published: found by URL or hash, bounded like a source's own columns."""

from __future__ import annotations

import hashlib
import json
import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from corpora import document

from gpu_curate import config
from gpu_curate.api import pipeline
from gpu_curate.errors import ConfigError
from gpu_curate.inquiry.explain import explain
from gpu_curate.inquiry.stored import Stored
from gpu_curate.tokenizer.training import train

COUNT = 60
_REASONS = pa.schema([("doc_id", pa.int64()), ("reason", pa.string())])


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Documents with URLs, the last two the same; annotations of every third, in two files, out of order, one key twice."""
    folder = tmp_path_factory.mktemp("annotated")
    rng = random.Random(3)
    texts = [document(rng, 40) for _ in range(COUNT)]
    urls = [f"http://x/{min(i, COUNT - 2)}" for i in range(COUNT)]
    rows = [{"text": t, "url": u if i != 3 else None} for i, (t, u) in enumerate(zip(texts, urls, strict=True))]
    (folder / "a.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    own = [i for i in range(0, COUNT, 3)] + [COUNT - 2]
    rng.shuffle(own)
    table = {
        "url": [urls[i] for i in own] + [f"http://elsewhere/{i}" for i in range(500)] + [None, urls[own[0]]],
        "score": [float(i % 7) for i in own] + [9.0] * 502,
        "kind": [{"label": f"k{i % 2}"} for i in own] + [{"label": "other"}] * 502,
    }
    table = pa.table({**table, "sha": [hashlib.sha256(texts[i].encode()).hexdigest() for i in own] + ["0"] * 502})
    pq.write_table(table.slice(0, 10), folder / "p1.parquet")
    pq.write_table(table.slice(10), folder / "p2.parquet", row_group_size=100)
    train(texts, 400, "<|endoftext|>", folder / "tokenizer.json")
    return folder


def expected() -> dict[int, int]:
    """Document → its score."""
    own = {i: i % 7 for i in range(0, COUNT, 3)}
    return {k: v for k, v in own.items() if k != 3} | {COUNT - 2: (COUNT - 2) % 7, COUNT - 1: (COUNT - 2) % 7}


def run(folder: Path, out: Path, annotation: dict, columns: dict, **keys: object) -> Path:
    data = {
        "sources": [{"name": "a", "type": "jsonl", "path": str(folder / "a.jsonl"), "keep_columns": ["url"]}],
        "normalize": None,
        "annotations": [{"name": "pub", "path": str(folder / "p*.parquet"), **annotation}],
        "quality": {"columns": columns},
        "dedup": {"exact": False, "fuzzy": None},
        "tokenizer": {"path": str(folder / "tokenizer.json")},
        "min_tokens": 0,
        "shards": {"validation": {"tokens": 0}},
        "run": {"engine": "inline", "partition_bytes": 1 << 16},
        **keys,
    }
    pipeline.execute(config.parse(data), out)
    return out


def reasons(run: Path) -> list[str | None]:
    """Of every document, by its row."""
    tables = [pq.read_table(p) for p in run.glob("decisions*/part-*.parquet")]
    assert len(tables) > 1
    table = pa.concat_tables(t.select(["doc_id", "reason"]).cast(_REASONS) for t in tables).sort_by("doc_id")
    return table["reason"].to_pylist()


def test_a_published_score_is_bounded_like_a_column(folder, tmp_path):
    own = run(folder, tmp_path / "r", {"columns": ["score"]}, {"score": {"min": 3, "missing": "drop"}})
    known = expected()
    for number, reason in enumerate(reasons(own)):
        want = "columns:no_score" if number not in known else "columns:min_score" if known[number] < 3 else None
        assert reason == want, number
    facts = json.loads(next(own.glob("report*/report.json")).read_text())
    assert facts["spreads"]["columns:score"]["missing"] == COUNT - len(known)
    told = explain(Stored(own), "a:" + str(folder / "a.jsonl") + ":6")
    rule = next(r for r in told["rules"] if r["rule"] == "columns:min_score")
    assert float(rule["value"]) == 6
    assert rule["passes"]


def test_nested_columns_under_another_name(folder, tmp_path):
    taken = {"columns": [{"column": "kind.label", "as": "kind"}]}
    own = run(folder, tmp_path / "r", taken, {"kind": {"in": ["k0"], "missing": "keep"}})
    known = expected()
    for number, reason in enumerate(reasons(own)):
        label = (COUNT - 2 if number == COUNT - 1 else number) % 2
        assert reason == ("columns:in_kind" if number in known and label else None), number


def test_a_hash_of_the_text_is_a_key(folder, tmp_path):
    taken = {"columns": ["score"], "key": "sha", "by": "text:sha256"}
    own = run(folder, tmp_path / "r", taken, {"score": {"missing": "drop"}})
    known = {*range(0, COUNT, 3), COUNT - 2}
    assert [r is None for r in reasons(own)] == [i in known for i in range(COUNT)]


def test_nothing_found_is_a_warning(folder, tmp_path):
    own = run(folder, tmp_path / "r", {"columns": ["score"], "key": "sha", "by": "text:md5"}, {"score": {"min": 0}})
    facts = json.loads(next(own.glob("report*/report.json")).read_text())
    assert any("annotations.pub: of 60 documents none" in w for w in facts["warnings"])


def test_bad_sections_say_what_is_wrong(folder, tmp_path):
    bounds = {"score": {"min": 3}}
    for annotation, columns, said in (
        ({"columns": ["score"], "by": "uri"}, bounds, "no source carries 'uri'"),
        ({"columns": ["score"], "by": "text:crc"}, bounds, "text:sha256"),
        ({"columns": ["url"]}, {"url": {"in": ["x"]}}, "already"),
        ({"columns": ["scores"]}, {"scores": {"min": 1}}, "scores"),
        ({"columns": ["score"], "key": "uri"}, bounds, "uri"),
        ({"columns": ["score"], "path": str(folder / "none*.parquet")}, bounds, "none"),
        ({"columns": ["score"]}, {"skore": {"min": 1}}, "skore"),
    ):
        with pytest.raises(ConfigError, match=said):
            run(folder, tmp_path / "r", annotation, columns)
