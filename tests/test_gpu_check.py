"""scripts/gpu_check runs to its end on the emulator, and notices a wrong kernel."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import json
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
from cudasim.module import available
from places import ROOT

from gpu_curate.document import TextColumn
from gpu_curate.ops.bands import gpu as bands_gpu
from gpu_curate.ops.catalogue import OPS
from gpu_curate.ops.content_hash import cpu as content_hash_cpu
from gpu_curate.ops.content_hash import gpu as content_hash_gpu

pytestmark = pytest.mark.skipif(not available(), reason="no C++ compiler: the emulator compiles kernels with g++")


@pytest.fixture(scope="module")
def gpu_check() -> ModuleType:
    loader = importlib.machinery.SourceFileLoader("gpu_check", str(ROOT / "scripts" / "gpu_check"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("gpu_check", loader))
    loader.exec_module(module)
    return module


@pytest.fixture
def few_columns(monkeypatch, gpu_check):
    columns = [("some text", TextColumn.from_texts([b"one two three four five six", b"", b"a b c d e"] * 5))]
    monkeypatch.setattr(gpu_check, "parity_columns", lambda tiny: iter(columns))


def test_runs_to_its_end_on_the_emulator(gpu_check, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("OUT", str(tmp_path))
    assert gpu_check.main(["--emulate"]) == 0
    result = json.loads((tmp_path / "gpu_check.json").read_text())
    compared = {(row["column"], row["op"]) for row in result["parity"]}
    assert {op for _, op in compared} == {*OPS, "signature fmix64", "judge int16"}
    assert len({column for column, _ in compared}) > 20
    assert all(row["equal"] for row in result["parity"])
    assert {"copy_gb_per_s", "host_to_device_gb_per_s", "multiply_adds_per_ns"} == set(result["speed"]["ceilings"])
    first, second = result["speed"]["sizes"]
    assert second["bytes"] > first["bytes"]
    kernels = {k for size in (first, second) for spans in size["kernels_ms"].values() for k in spans}
    assert {"words.hash_words", "minhash.sign_tiles", "ngrams.find_ngrams", "text_stats.read_lines"} <= kernels
    assert "end to end" in capsys.readouterr().out


def test_a_wrong_twin_is_named_and_fails(gpu_check, few_columns, monkeypatch, capsys):
    right = bands_gpu.band_hashes
    monkeypatch.setattr(bands_gpu, "band_hashes", lambda *args: right(*args) ^ np.uint64(1))
    assert gpu_check.main(["--emulate", "--parity-only"]) == 1
    assert "DIFFERENT: bands on 'some text': band_N at (0, 0)" in capsys.readouterr().out


def test_what_there_is_no_time_for_is_said(gpu_check, few_columns, capsys):
    assert gpu_check.main(["--emulate", "--seconds", "-1"]) == 0
    out = capsys.readouterr().out
    assert "1 not made" in out
    assert "skipped, no time left" in out


def test_record_appends_rates_with_the_card(gpu_check, few_columns, tmp_path, monkeypatch):
    import common

    monkeypatch.setattr(common, "RESULTS", tmp_path / "results.csv")
    gpu_check.main(["--emulate", "--out", str(tmp_path / "run.json")])
    assert not (tmp_path / "results.csv").exists()
    gpu_check.main(["--from", str(tmp_path / "run.json"), "--record"])
    rows = (tmp_path / "results.csv").read_text().splitlines()
    assert len(rows) == 1 + 2 * 10
    assert all(",gpu_check," in row and row.endswith(",emulator") for row in rows[1:])


def test_golden_digest_is_the_xxhash_library_s(gpu_check, monkeypatch):
    monkeypatch.setattr(content_hash_gpu, "content_hash", lambda column, device: content_hash_cpu.content_hash(column))
    assert gpu_check.golden_digest(SimpleNamespace(xp=np, upload=np.asarray)) == gpu_check.GOLDEN_DIGEST
