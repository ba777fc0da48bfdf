"""scripts/gpu_check runs to its end on the emulator, and notices a wrong kernel."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import json
import os
import subprocess
import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
from cudasim.module import available
from fake_cuda import environment
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
    assert list(result["stage"]["seconds"]) == ["read", "copy up", "ops", "copy down", "write"]
    assert result["sanitizer"] is None
    out = capsys.readouterr().out
    assert "end to end" in out
    assert "scores and signatures: " in out


SANITIZER = """#!/usr/bin/env bash
echo "$@" >> "$(dirname "$0")/asked"
while [ "$1" != --seconds ]; do shift; done
exit ${SANITIZER_STATUS:-0}
"""


@pytest.mark.parametrize("status", [0, 86])
def test_it_runs_through_cupy_and_under_the_sanitizer(tmp_path, status):
    """Not emulated: CuPy's names, events, pinned memory and the sanitizer, with a CuPy that stands on the emulator."""
    (tmp_path / "bin").mkdir()
    tool = tmp_path / "bin" / "compute-sanitizer"
    tool.write_text(SANITIZER)
    tool.chmod(0o755)
    env = environment(tmp_path / "machine", ["GPU-a"])
    env |= {"PATH": f"{tool.parent}:{os.environ['PATH']}", "SANITIZER_STATUS": str(status), "OUT": str(tmp_path)}
    script = (
        "import importlib.machinery, importlib.util, sys\n"
        f"loader = importlib.machinery.SourceFileLoader('gpu_check', {str(ROOT / 'scripts' / 'gpu_check')!r})\n"
        "spec = importlib.util.spec_from_loader('gpu_check', loader)\n"
        "check = importlib.util.module_from_spec(spec); loader.exec_module(check)\n"
        "some = check.TextColumn.from_texts([b'one two three four five six', b'', b'a b c d e'] * 5)\n"
        "check.parity_columns = lambda tiny: iter([('some text', some)])\n"
        "sys.exit(check.main(['--tiny']))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == int(status != 0), done.stdout + done.stderr
    result = json.loads((tmp_path / "gpu_check.json").read_text())
    assert result["device"] == "FAKE H200, CUDA 13000, CuPy 14.2.0"
    assert all(row["equal"] for row in result["parity"])
    assert result["stage"]["total_s"] > 0
    assert result["sanitizer"]["ok"] is (status == 0)
    asked = (tmp_path / "bin" / "asked").read_text()
    assert asked.startswith("--tool memcheck --error-exitcode 86 ")
    assert "--tiny --parity-only --no-sanitizer" in asked


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
    assert len(rows) == 1 + 2 * 10 + 1 + 5
    assert all(",gpu_check," in row and row.endswith(",emulator") for row in rows[1:])


def test_golden_digest_is_the_xxhash_library_s(gpu_check, monkeypatch):
    monkeypatch.setattr(content_hash_gpu, "content_hash", lambda column, device: content_hash_cpu.content_hash(column))
    assert gpu_check.golden_digest(SimpleNamespace(xp=np, upload=np.asarray)) == gpu_check.GOLDEN_DIGEST
