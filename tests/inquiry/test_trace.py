"""trace: the pieces of a batch are its tokens, end to end, whatever the loader's order."""

from __future__ import annotations

import json

import numpy as np
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import gpu_curate as gc
from gpu_curate import cli
from gpu_curate.errors import ConfigError
from gpu_curate.trace import trace


@pytest.mark.parametrize(
    "options", [{}, {"shuffle": 3}, {"align_documents": True}, {"shuffle": 1, "align_documents": True}]
)
def test_pieces_are_the_tokens_of_the_batch(run, options):
    documents = {
        r["position"]: r
        for r in pq.read_table(run / "shards" / "documents.parquet").to_pylist()
        if r["split"] == "train"
    }
    for rank in (0, 1):
        loader = gc.ShardLoader(run, "train", 3, 50, rank, 2, as_torch=False, **options)
        for i in (0, 1, loader.batches_per_epoch - 1, loader.batches_per_epoch + 2):
            x, y = loader.batch(i)
            pieces = sorted(loader.trace(i), key=lambda p: (p["row"], p["offset"]))
            for row in range(3):
                own = [p for p in pieces if p["row"] == row]
                ids = np.concatenate([loader.stream.read(p["position"], p["position"] + p["tokens"]) for p in own])
                assert ids[:-1].tolist() == x[row].tolist()
                assert ids[1:].tolist() == y[row].tolist()
                for piece in own:
                    document = documents[piece["position"] - piece["skipped_tokens"]]
                    assert (piece["doc_id"], piece["source_row"]) == (document["doc_id"], document["row"])
                    assert piece["skipped_tokens"] + piece["tokens"] <= piece["document_tokens"] == document["tokens"]


def test_clusters_and_what_is_odd_come_from_the_run_around(run, tmp_path):
    opened = gc.open_run(run)
    sizes = {r["doc_id"]: r["size"] for r in opened.clusters.to_table(columns=["doc_id", "size"]).to_pylist()}
    loader = gc.ShardLoader(run, "train", 64, 100, 0, 1, as_torch=False)
    pieces = loader.trace(0)
    assert {p["doc_id"]: p["cluster_size"] for p in pieces} == {p["doc_id"]: sizes.get(p["doc_id"], 1) for p in pieces}
    assert any(p["cluster_size"] > 1 for p in pieces)
    shares = [p["odd"]["share"] for p in pieces]
    assert shares == sorted(shares)
    odd = pieces[0]
    decided = opened.decisions.to_table().to_pylist()
    scores = opened.scores.to_table().append_column(
        "tokens_per_byte", [[d["tokens"] / max(d["bytes"], 1) for d in decided]]
    )
    number = next(i for i, d in enumerate(decided) if d["doc_id"] == odd["doc_id"])
    assert scores[odd["odd"]["score"]][number].as_py() == pytest.approx(odd["odd"]["value"])
    import shutil

    shutil.copytree(run / "shards", tmp_path / "alone")  # shards without their run
    alone = trace(gc.ShardLoader(tmp_path / "alone", "train", 64, 100, 0, 1, as_torch=False), 0)
    assert {p["doc_id"] for p in alone} == {p["doc_id"] for p in pieces}
    assert not any("odd" in p for p in alone)


def test_the_command_looks_at_all_ranks_of_a_step(run):
    words = [
        "trace",
        str(run),
        "--step",
        "1",
        "--batch-size",
        "2",
        "--seq-len",
        "40",
        "--world-size",
        "2",
        "--accum",
        "3",
    ]
    done = CliRunner().invoke(cli.app, [*words, "--json"], catch_exceptions=False)
    pieces = json.loads(done.output)["pieces"]
    assert {(p["rank"], p["micro_batch"], p["row"]) for p in pieces} == {
        (r, m, b) for r in (0, 1) for m in (0, 1, 2) for b in (0, 1)
    }
    loader = gc.ShardLoader(run, "train", 2, 40, 1, 2, as_torch=False)
    x, _ = loader.batch(3 + 2)
    start = min(p["position"] for p in pieces if (p["rank"], p["micro_batch"], p["row"]) == (1, 2, 0))
    assert loader.stream.read(start, start + 40).tolist() == x[0].tolist()
    assert any(p["text"] for p in pieces)
    shown = CliRunner().invoke(cli.app, words, catch_exceptions=False)
    assert "12 rows" in shown.output
    with pytest.raises(ConfigError, match="numbered from 0"):
        loader.trace(-1)
