"""gpu-curate compare: what it measures adds up, and an array that differs is found and named, on the emulated GPU too."""

from __future__ import annotations

import csv
import json
import random
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace

import numpy as np
import pytest
import yaml
from corpora import document, recipe, write_corpus
from cudasim.device import StrictModule, emulated
from cudasim.module import EmulatedModule, available
from typer.testing import CliRunner

from gpu_curate import cli, config
from gpu_curate.device import backend
from gpu_curate.device.probe import Found
from gpu_curate.device.runtime import Device, source, to_device
from gpu_curate.errors import ConfigError, FatalError
from gpu_curate.runs.engines import LocalEngine
from gpu_curate.tools import compare

emulator = pytest.mark.skipif(not available(), reason="no C++ compiler: the emulator compiles kernels with g++")


@pytest.fixture(autouse=True)
def short_measurements(monkeypatch):
    monkeypatch.setattr(compare, "MIN_SECONDS", 0)
    monkeypatch.setattr(compare, "REPEATS", 1)
    monkeypatch.setattr(backend, "probe_devices", lambda: Found((), "no CUDA device: this is a test"))


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A recipe over a small corpus, with a reference set that two documents hold."""
    folder = tmp_path_factory.mktemp("compare")
    write_corpus(folder / "c", documents=40)
    rng = random.Random(5)
    questions = [document(rng, 3) for _ in range(4)]
    (folder / "bench.jsonl").write_text("".join(json.dumps({"question": q}) + "\n" for q in questions))
    (folder / "c" / "d.jsonl").write_text("".join(json.dumps({"text": f"Yes. {q} No."}) + "\n" for q in questions[:2]))
    reference = {"name": "exam", "path": str(folder / "bench.jsonl"), "text_fields": ["question"]}
    data = recipe(folder / "c", folder / "t.json", references=[{**reference, "action": "decontaminate"}])
    (folder / "r.yaml").write_text(yaml.safe_dump(data))
    return folder, config.parse(data)


def one_core(recipe_, **run):
    return recipe_.model_copy(update={"run": recipe_.run.model_copy(update={"workers": 1, **run})})


def mutated(op: str, old: str, new: str) -> Device:
    """The emulated device with one text of one kernel replaced."""
    assert source(op).count(old) == 1
    device = emulated()

    def load(code: str, name: str, defines: tuple[str, ...]) -> StrictModule:
        if name != f"{op}.cu":
            return device.load(code, name, defines)
        return StrictModule(EmulatedModule(code.replace(old, new), name, defines))

    return replace(device, load=load)


def test_without_a_gpu_it_compares_what_is_there_and_says_what_is_missing(made, tmp_path):
    folder, _ = made
    args = ["compare", str(folder / "r.yaml"), "--out", str(tmp_path / "o"), "--max-bytes", "60000", "--workers", "2"]
    done = CliRunner().invoke(cli.app, args)
    assert done.exit_code == 0, done.output
    assert "missing     GPU: no CUDA device: this is a test" in done.output
    assert "arrays      all equal" in done.output
    facts = json.loads((tmp_path / "o" / "compare.json").read_text())
    assert facts["equal"]
    steps = {row["step"]: row for row in facts["steps"]}
    assert list(steps) == ["content_hash", "words", "signature", "bands", "components", "text_stats", "ngrams", "a partition"]  # fmt: skip
    assert set(steps["signature"]["ways"]) == {"1 core", "all cores", "NumPy"}
    assert set(steps["components"]["ways"]) == {"1 core"}
    assert all(row["break_even_price"] is None for row in facts["steps"])
    parts = ("content_hash", "signature", "bands", "text_stats", "ngrams")
    for way in ("1 core", "all cores"):
        whole = steps["a partition"]["ways"][way]
        assert whole["seconds"] == pytest.approx(sum(steps[s]["ways"][way]["seconds"] for s in parts))
        assert whole["mb_per_s"] == pytest.approx(facts["sample"]["bytes"] / whole["seconds"] / 1e6)
        assert whole["documents_per_s"] == pytest.approx(facts["sample"]["documents"] / whole["seconds"])
    with (tmp_path / "o" / "compare.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == sum(len(row["ways"]) for row in facts["steps"])
    assert {(r["step"], r["way"]) for r in rows} >= {("words", "1 core"), ("signature", "NumPy")}
    if "compare.png" not in str(facts["missing"]):
        assert (tmp_path / "o" / "compare.png").read_bytes().startswith(b"\x89PNG")


def test_the_sample_is_the_head_of_every_source(made, tmp_path):
    _, recipe_ = made
    sample = compare.read_sample(recipe_, tmp_path, 9000)
    text, scope_N, where = compare.documents(sample)
    assert len(text) == len(scope_N) == len(where)
    assert {source_ for source_, _, _ in where} == {"pq", "jl", "tx"}
    per_source = {name: sum(len(text.raw(i)) for i, w in enumerate(where) if w[0] == name) for name in ("pq", "jl")}
    assert all(3000 <= n < 3000 + 4000 for n in per_source.values())
    assert [w[2] for w in where if w[0] == "pq"] == list(range(sum(w[0] == "pq" for w in where)))


@emulator
def test_the_gpu_path_gives_equal_arrays_and_a_price(made, tmp_path):
    facts = compare.compare(one_core(made[1]), tmp_path / "o", 20_000, emulated(checked=True))
    assert facts["equal"]
    assert facts["machine"]["gpu"] == "emulated"
    steps = {row["step"]: row for row in facts["steps"]}
    assert all("GPU" in row["ways"] for row in facts["steps"])
    assert set(steps["copy to the device"]["ways"]) == {"GPU"}
    gpu, core = steps["words"]["ways"]["GPU"], steps["words"]["ways"]["1 core"]
    assert steps["words"]["break_even_price"] == pytest.approx(gpu["mb_per_s"] / core["mb_per_s"])
    ways = ("copy to the device", "content_hash", "signature", "bands", "text_stats", "ngrams")
    assert steps["a partition"]["ways"]["GPU"]["seconds"] == pytest.approx(
        sum(steps[s]["ways"]["GPU"]["seconds"] for s in ways)
    )


@emulator
@pytest.mark.parametrize(
    ("op", "old", "new", "step"),
    [
        ("bands", "u64 h = band + 1;", "u64 h = band;", "bands"),
        ("minhash", "n_words - SHINGLE_WORDS + 1 :", "n_words - SHINGLE_WORDS :", "signature"),
    ],
)
def test_a_broken_kernel_is_named_with_step_document_and_both_values(made, tmp_path, op, old, new, step):
    device = mutated(op, old, new)
    facts = compare.compare(one_core(made[1]), tmp_path / "o", 6000, device)
    assert not facts["equal"]
    first = facts["differences"][0]
    assert (first["step"], first["backend"]) == (step, "GPU")
    assert ": row " in first["document"]
    assert first["value"] != first["expected"]


@emulator
def test_a_difference_is_exit_status_1_and_a_line(made, tmp_path, monkeypatch):
    folder, _ = made
    device = mutated("bands", "u64 h = band + 1;", "u64 h = band;")
    run_both = compare.compare
    monkeypatch.setattr(compare, "compare", lambda *args, **options: run_both(*args, **options, device=device))
    args = ["compare", str(folder / "r.yaml"), "--out", str(tmp_path / "o"), "--max-bytes", "3000", "--workers", "1"]
    done = CliRunner().invoke(cli.app, args)
    assert done.exit_code == 1
    assert "DIFFERENT   bands, GPU, " in done.output
    assert "break-even" in done.output


@emulator
def test_a_batch_that_does_not_fit_the_device_is_halved(made, tmp_path, monkeypatch):
    copied = []

    def small(text, device):
        copied.append(text.nbytes)
        if text.nbytes > 9000:
            raise MemoryError(f"{text.nbytes} bytes")
        return to_device(text, device)

    sample = compare.read_sample(one_core(made[1]), tmp_path, 24_000)
    text, scope_N, where = compare.documents(sample)
    expected, _ = compare.on_one_core(sample, compare.slices(text, scope_N, 2))
    monkeypatch.setattr(compare, "to_device", small)
    found, _ = compare.on_device(sample, text, scope_N, emulated())
    assert copied[0] == text.nbytes > 18_000
    assert list(compare.differences("GPU", found, expected, where)) == []


def test_scopes_reach_the_bands_and_numpy_is_left_out(made, tmp_path):
    data = made[1].model_dump(mode="json")
    data["dedup"]["fuzzy"]["scope"] = "group"
    data["sources"] = data["sources"][:1]
    facts = compare.compare(one_core(config.parse(data)), tmp_path / "o", 20_000)
    assert any(text.startswith("NumPy: it knows no scopes") for text in facts["missing"])
    assert facts["equal"]


def test_without_signatures_or_references_their_steps_are_left_out(made, tmp_path):
    data = made[1].model_dump(mode="json") | {"references": []}
    data["dedup"]["fuzzy"] = None
    facts = compare.compare(one_core(config.parse(data)), tmp_path / "o", 5000)
    assert [row["step"] for row in facts["steps"]] == ["content_hash", "text_stats", "a partition"]


def test_sources_without_a_document_are_one_error(made, tmp_path):
    (tmp_path / "empty.jsonl").write_text("")
    data = recipe(tmp_path, tmp_path / "t.json")
    data["sources"] = [{"name": "e", "type": "jsonl", "path": str(tmp_path / "empty.jsonl")}]
    with pytest.raises(ConfigError, match="no document"):
        compare.compare(one_core(config.parse(data)), tmp_path / "o")
    assert not (tmp_path / "o").exists()


def test_a_worker_that_dies_is_one_error(made, tmp_path, monkeypatch):
    def submit(*args):
        future = Future()
        future.set_exception(BrokenProcessPool("terminated abruptly"))
        return future

    monkeypatch.setattr(LocalEngine, "submit", submit)
    sample = compare.read_sample(made[1], tmp_path, 3000)
    text, scope_N, _ = compare.documents(sample)
    with pytest.raises(FatalError, match="a worker process died") as caught:
        compare.on_all_cores(sample, compare.slices(text, scope_N, 2), 2)
    assert "--max-bytes" in caught.value.hint


def test_every_kind_of_array_names_its_document():
    where = [("s", f"f{d}", 10 + d) for d in range(4)]
    words_N, hits_N = np.array([2, 0, 3, 1]), np.array([0, 2, 0, 1])
    expected = {
        "words": {"hash_W": np.arange(6, dtype=np.uint64), "words_N": words_N},
        "ngrams": {"exam gram_M": np.arange(3), "exam hits_N": hits_N},
        "components": {"low_E": np.array([0, 3]), "high_E": np.array([1, 2]), "pairs_B": np.array([1, 1])},
    }
    cases = [("words", "hash_W", 2, "f2"), ("words", "hash_W", 5, "f3"), ("words", "words_N", 1, "f1")]
    cases += [("ngrams", "exam gram_M", 1, "f1"), ("ngrams", "exam gram_M", 2, "f3"), ("components", "low_E", 1, "f3")]
    for step, array, i, file in cases:
        found = expected[step][array].copy()
        found[i] += 1
        (only,) = compare.differences("GPU", {step: {array: found}}, expected, where)
        assert only.document == f"{file}: row {10 + int(file[1])}"
        assert (only.value, only.expected) == (str(found[i]), str(expected[step][array][i]))
    (shape,) = compare.differences("GPU", {"words": {"hash_W": np.zeros(5, np.uint64)}}, expected, where)
    assert (shape.value, shape.expected) == ("uint64 (5,)", "uint64 (6,)")
    (kind,) = compare.differences("GPU", {"words": {"words_N": words_N.astype(np.int32)}}, expected, where)
    assert kind.value.startswith("int32")
