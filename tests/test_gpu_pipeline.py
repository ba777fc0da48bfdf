"""The GPU backend, on the emulated device: ops dispatch to it, and a whole run writes the bytes of the CPU's."""

from __future__ import annotations

import hashlib
import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow.parquet as pq
import pytest
from corpora import recipe, write_inputs
from cudasim.device import DeviceArray, download, emulated, install, upload
from cudasim.module import available

from gpu_curate import config
from gpu_curate.api import pipeline
from gpu_curate.document import TextColumn
from gpu_curate.errors import DeviceError
from gpu_curate.ops.bands import BandSpec, band_hashes
from gpu_curate.ops.components import Components, band_edges
from gpu_curate.ops.content_hash import content_hash
from gpu_curate.ops.minhash import MinHashSpec, jaccard, jaccard_exact, shingles, signatures
from gpu_curate.ops.ngrams import NgramIndex, coverage, probe
from gpu_curate.ops.text_stats import text_stats
from gpu_curate.ops.words import word_hashes
from gpu_curate.store.files import read_json

pytestmark = pytest.mark.skipif(not available(), reason="no C++ compiler: the emulator compiles kernels with g++")
COLUMN = TextColumn.from_texts([b"one two three four five six", b"", b"one two three four five SIX", b"a b"] * 3)


def everything(column: TextColumn, as_array) -> tuple:
    """Results of every op with a GPU twin; arguments other than the text go through `as_array`."""
    spec = MinHashSpec(shingle_words=2)
    sig_NH, n_shingles_N = signatures(column, spec)
    hash_S, offsets = shingles(column, spec)
    pairs = as_array(np.array([[0, 2], [1, 3], [0, 3]]))
    bands = band_hashes(sig_NH, BandSpec(), as_array(np.arange(len(column)).astype(np.uint64) % np.uint64(2)))
    index = NgramIndex.build(TextColumn.from_texts([b"two three four", b"a b"]), 2)
    hits = probe(column, index)
    results = (sig_NH, n_shingles_N, hash_S, offsets, bands, *word_hashes(column), content_hash(column))
    results = (*results, jaccard(sig_NH, pairs), jaccard_exact(hash_S, offsets, pairs), *hits)
    results = (*results, *coverage(hits, index, len(column)), *text_stats(column).values())
    return (*results, *band_edges(bands[0], n_shingles_N > 0))


def test_every_op_dispatches_to_the_device_and_gives_the_same(monkeypatch):
    install(monkeypatch)
    on_device, on_host = everything(upload(COLUMN), upload), everything(COLUMN, lambda a: a)
    assert all(isinstance(r, DeviceArray) for r in on_device)
    for got, expected in zip(download(on_device), on_host, strict=True):
        assert got.dtype == expected.dtype
        np.testing.assert_array_equal(got, expected)


def test_components_take_bands_from_the_device(monkeypatch):
    install(monkeypatch)
    hash_N, valid_N = np.array([1, 2, 1, 2, 1, 3], np.uint64), np.array([1, 1, 1, 1, 0, 1], np.bool_)
    components = Components(6)
    assert components.add_band(upload(hash_N), upload(valid_N)) == 2
    assert components.labels().tolist() == [0, 1, 0, 1, 4, 5]


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("inputs")
    write_inputs(folder, documents=60)
    return folder


def execute(inputs: Path, run: Path, backend: str, components: str = "auto") -> dict:
    reference = {"name": "bench", "path": str(inputs / "bench.jsonl"), "text_fields": ["question"]}
    data = recipe(
        inputs / "corpus",
        inputs / "tokenizer.json",
        references=[{**reference, "action": "decontaminate"}],
        quality={"gopher_repetition": "on", "fineweb": "on"},
        dedup={"fuzzy": {"components": components}},
        run={"engine": "inline", "partition_bytes": 65536, "backend": backend},
    )
    pipeline.execute(config.parse(data), run)
    return read_json(run / "run.json")


def contents(run: Path, facts: dict) -> dict[str, object]:
    """What the boxes with a GPU twin and the shards hold."""
    held: dict[str, object] = {}
    for box in ("scores", "signatures", "contamination", "duplicates", "decisions"):
        for file in sorted((run / facts["folders"][box]).glob("*.parquet")):
            held[f"{box}/{file.name}"] = pq.read_table(file).to_pylist()
    for file in sorted((run / facts["folders"]["shards"]).glob("*.bin")):
        held[file.name] = hashlib.sha256(file.read_bytes()).hexdigest()
    return held


@pytest.fixture(scope="module")
def cpu_run(inputs, tmp_path_factory):
    run = tmp_path_factory.mktemp("cpu") / "r"
    return contents(run, execute(inputs, run, "cpu"))


def test_a_run_on_the_device_writes_what_the_cpu_writes(inputs, cpu_run, tmp_path, monkeypatch):
    install(monkeypatch)
    facts = execute(inputs, tmp_path / "r", "gpu")
    assert contents(tmp_path / "r", facts) == cpu_run
    steps = {s["name"]: s["backend"] for s in read_json(tmp_path / "r" / "report" / "report.json")["steps"]}
    assert {steps[s] for s in ("scores", "signatures", "contamination", "candidates")} == {"gpu"}


@pytest.mark.parametrize(("limit", "where"), [(2000, "gpu"), (300, "cpu (device full)")])
def test_a_full_device_is_survived_and_said(inputs, cpu_run, tmp_path, monkeypatch, limit, where):
    """A batch above `limit` bytes does not fit: it is halved; a document that does not fit goes to the CPU."""

    def load(*args: object) -> object:
        module = emulated().load(*args)

        def get_function(kernel: str) -> object:
            def launch(grid: object, block: object, arguments: tuple) -> None:
                if kernel == "mark_documents" and arguments[0][-1] - arguments[0][0] > limit:
                    raise MemoryError("device full")
                module.get_function(kernel)(grid, block, arguments)

            return launch

        return SimpleNamespace(get_function=get_function)

    install(monkeypatch, replace(emulated(), load=load))
    facts = execute(inputs, tmp_path / "r", "gpu")
    assert contents(tmp_path / "r", facts) == cpu_run
    steps = {s["name"]: s["backend"] for s in read_json(tmp_path / "r" / "report" / "report.json")["steps"]}
    assert where in steps["scores"]


def test_a_device_that_cannot_be_used_stops_the_run_with_its_remedy(inputs, tmp_path, monkeypatch):
    """Only a document that does not fit goes to the CPU: another fault there would be hidden, hint and all."""
    install(monkeypatch)

    def spilling(path: Path, nbytes: int) -> object:
        raise DeviceError("cuDF's spilling is on", "switch it off: cudf.set_option('spill', False)")

    monkeypatch.setattr("gpu_curate.stages.partition_text.device_text", spilling)
    with pytest.raises(DeviceError, match=r"spilling is on\nhint: switch it off"):
        execute(inputs, tmp_path / "r", "gpu")


def test_the_pipeline_hands_its_devices_to_curator_and_keeps_the_environment(inputs, tmp_path, monkeypatch):
    from gpu_curate.device import backend
    from gpu_curate.ops.components import curator

    install(monkeypatch)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(backend, "curator_available", lambda required=False: True)
    asked = []

    def connect(edges, n, folder, num_gpus, devices=None):
        asked.append((num_gpus, devices))
        components = Components(n)
        pairs = list(edges)
        for a_E, b_E in pairs:
            components.add_edges(a_E, b_E)
        return components.labels(), sum(len(a) for a, _ in pairs)

    monkeypatch.setattr(curator, "connect", connect)
    execute(inputs, tmp_path / "a", "gpu")
    assert asked == []  # so few edges are connected sooner than Ray starts
    execute(inputs, tmp_path / "r", "gpu", "curator")
    assert asked == [(1, ("0",))]
    assert "CUDA_VISIBLE_DEVICES" not in os.environ  # else the next run of this process would find no device


@pytest.mark.parametrize(
    ("edges", "gpus", "taken"), [(10, 8, False), (8 * 10**9, 1, False), (8 * 10**9 - 1, 8, False), (8 * 10**9, 2, True)]
)
def test_curator_pays_for_many_edges_and_more_than_one_gpu(edges, gpus, taken):
    from gpu_curate.ops.components import curator

    assert curator.pays(edges, gpus) is taken


def test_a_curator_that_fails_is_replaced_by_the_cpu_unless_it_was_asked_for(inputs, cpu_run, tmp_path, monkeypatch):
    from gpu_curate.device import backend
    from gpu_curate.ops.components import curator

    def connect(*args, **options):
        raise DeviceError("Ray does not start", "dedup.fuzzy.components: cpu does the same on the CPU")

    install(monkeypatch)
    monkeypatch.setattr(backend, "curator_available", lambda required=False: True)
    monkeypatch.setattr(curator, "connect", connect)
    monkeypatch.setattr(curator, "pays", lambda edges, gpus: True)
    facts = execute(inputs, tmp_path / "r", "gpu")
    assert contents(tmp_path / "r", facts) == cpu_run
    (said,) = [w for w in read_json(tmp_path / "r" / "report" / "report.json")["warnings"] if "Curator" in w]
    assert said == "NeMo Curator failed, the CPU builds the components: Ray does not start"
    with pytest.raises(DeviceError, match="Ray does not start"):
        execute(inputs, tmp_path / "c", "gpu", "curator")


def planted(error: Exception, kernel: str | None = None, calls: int = 1) -> object:
    """The emulated device with a fault in the first `calls` launches of a kernel, or of `sort` of candidates for None."""
    left = [calls]

    def load(*args: object) -> object:
        module = emulated().load(*args)

        def get_function(name: str) -> object:
            def launch(grid: object, block: object, arguments: tuple) -> None:
                if name == kernel and left[0]:
                    left[0] -= 1
                    raise error
                module.get_function(name)(grid, block, arguments)

            return launch

        return SimpleNamespace(get_function=get_function)

    return replace(emulated(), load=load, fault=lambda e: isinstance(e, CudaError))


class CudaError(RuntimeError):
    """Stands for what CuPy raises when CUDA fails."""


@pytest.mark.parametrize(
    "error", [CudaError("cudaErrorIllegalAddress: an illegal memory access"), CudaError("cudaErrorECCUncorrectable")]
)
def test_a_device_that_fails_is_named_and_the_cpu_goes_on_with_the_same_bytes(
    inputs, cpu_run, tmp_path, monkeypatch, error
):
    install(monkeypatch, planted(error, "read_lines"))
    facts = execute(inputs, tmp_path / "r", "gpu")
    assert contents(tmp_path / "r", facts) == cpu_run
    report = read_json(tmp_path / "r" / "report" / "report.json")
    said = [w for w in report["warnings"] if "device" in w]
    assert f"scores, partition 000000: device 0 failed: CudaError: {error}; the CPU makes the partition" in said
    assert any(w.startswith("device 0 is left out for the rest of this run; none is left: the CPU does") for w in said)
    assert {s["name"]: s["backend"] for s in report["steps"]}["candidates"] == "cpu"


def test_an_error_of_ours_is_no_fault_of_the_device(inputs, tmp_path, monkeypatch):
    from gpu_curate.errors import FatalError

    install(monkeypatch, planted(ValueError("a bug"), "read_lines"))
    with pytest.raises(FatalError, match="ValueError: a bug"):
        execute(inputs, tmp_path / "r", "gpu")


def test_a_range_of_candidates_that_does_not_fit_is_sorted_by_the_cpu(inputs, cpu_run, tmp_path, monkeypatch):
    from gpu_curate.device import backend

    install(monkeypatch)
    released = []
    monkeypatch.setattr(
        "gpu_curate.device.runtime.cuda", lambda: replace(emulated(), release=lambda: released.append(1))
    )

    def full(array: object) -> object:
        raise MemoryError("device full")

    monkeypatch.setattr(backend, "to_device", full)
    facts = execute(inputs, tmp_path / "r", "gpu")
    assert contents(tmp_path / "r", facts) == cpu_run
    assert released
    steps = {s["name"]: s["backend"] for s in read_json(tmp_path / "r" / "report" / "report.json")["steps"]}
    assert steps["candidates"] == "gpu+cpu (device full)"
