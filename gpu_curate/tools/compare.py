"""The CPU path and the GPU path over the same sample of a recipe's sources: equal arrays, and what each costs.

    sample      the first documents of every source, read and normalised once by the stages of a run
    1 core      this process, on one slice of the sample after the other
    all cores   a process a core on the same slices, all at the same time
    NumPy       the plain definition of the signatures, on as much of the sample as takes a second or so
    GPU         text resident on the device; the copy there is a step of its own

Every array is compared with that of one core. Seconds are the least of several repeats, after one that is not counted.

Names of arrays end in what their first axis counts: _N documents, _W words, _M n-gram hits, _E candidate pairs.
"""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow.parquet as pq

from gpu_curate import __version__
from gpu_curate.config import Config
from gpu_curate.device import backend
from gpu_curate.device.runtime import Device, to_device, to_host
from gpu_curate.document import TextColumn
from gpu_curate.errors import ConfigError, DeviceError, FatalError, install
from gpu_curate.ops.catalogue import OPS, Inputs
from gpu_curate.runs.engines import LocalEngine
from gpu_curate.runs.workers import CPU, default_workers
from gpu_curate.stages import Context
from gpu_curate.stages.contamination import indexes_of
from gpu_curate.stages.documents.stage import Documents
from gpu_curate.stages.order import benchmarks_of, intake_of
from gpu_curate.stages.part import make_box
from gpu_curate.stages.partition_text import host_text, text_file
from gpu_curate.stages.reference_sets import References
from gpu_curate.stages.signatures import band_spec, minhash_spec, scope_keys
from gpu_curate.store.files import write_json
from gpu_curate.tools.compare_files import COPY, machine_facts, rates_of, table, with_total, write_csv, write_png

SAMPLE_BYTES = 64 << 20
REPEATS = 3
MIN_SECONDS = 0.03  # a shorter measurement is repeated
SLICES_PER_CORE = 2
NUMPY_BYTES = 2 << 20
Arrays = dict[str, np.ndarray]
Measured = tuple[dict[str, Arrays], dict[str, float]]  # step → arrays, step → seconds


class Sample(NamedTuple):
    """Documents of a recipe in a folder of their own. Picklable: it travels to the workers."""

    context: Context
    parts: tuple[str, ...]
    steps: tuple[str, ...]


class Difference(NamedTuple):
    """An element that two ways of computing it disagree on."""

    step: str
    backend: str
    array: str
    document: str
    value: str
    expected: str


def compare(
    config: Config,
    folder: Path,
    max_bytes: int = SAMPLE_BYTES,
    device: Device | None = None,
    note: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Measure and compare; write compare.json, compare.csv and, with matplotlib, compare.png into `folder`.

    Args:
        config: the recipe; `run.backend: cpu` leaves the GPU out, `gpu` requires it.
        max_bytes: about so much text, in equal parts from every source.
        device: stands for the GPU in tests.
        note: told what is going on.
    Returns:
        What compare.json holds: sample, machine, steps, differences, missing.
    Raises:
        ConfigError: as a run would, or the sample is empty.
    Memory: 300 MB and 8 times the sample; on the device 10 times the sample or a partition, whichever is less.
    """
    missing: list[str] = []
    if device is None:
        device = _device_of(config, missing)
    workers = config.run.workers or default_workers()
    measured: dict[str, dict[str, dict[str, float]]] = {}
    differ: list[Difference] = []
    with tempfile.TemporaryDirectory(prefix="gpu-curate-compare-") as scratch:
        note(f"reading about {max_bytes:,} bytes from {len(config.sources)} sources")
        sample = read_sample(config, Path(scratch), max_bytes)
        text, scope_N, where = documents(sample)
        note(f"{len(text):,} documents, {text.nbytes:,} bytes of text")
        measured.update((step, {}) for step in sample.steps if device is not None or step != COPY)

        def add(
            way: str, found: dict[str, Arrays], seconds: dict[str, float], n: int, nbytes: int, processes: int = 1
        ) -> None:
            for step, s in seconds.items():
                measured[step][way] = rates_of(s, nbytes, n, processes)
            part = {step: {name: expected[step][name][:n] for name in arrays} for step, arrays in found.items()}
            differ.extend(differences(way, found, expected if n == len(text) else part, where))

        note("1 core")
        parts = slices(text, scope_N, workers)
        expected, seconds = on_one_core(sample, parts)
        add("1 core", expected, seconds, len(text), text.nbytes)
        if workers > 1:
            note(f"all {workers} cores")
            add("all cores", *on_all_cores(sample, parts, workers), len(text), text.nbytes, workers)
        else:
            missing.append("all cores: one is all there is, or all that run.workers allows")
        if config.dedup.fuzzy is None:
            missing.append("NumPy: the recipe makes no signatures (dedup.fuzzy)")
        elif scope_N.any():
            missing.append("NumPy: it knows no scopes (dedup.fuzzy.scope: group)")
        else:
            note("NumPy")
            n, nbytes, seconds, found = by_numpy(config, text)
            add("NumPy", found, seconds, n, nbytes)
        if device is not None:
            note("GPU")
            add("GPU", *on_device(sample, text, scope_N, device), len(text), text.nbytes)
            if "components" in sample.steps and getattr(device.xp, "cuda", None) is not None:
                note("NeMo Curator")
                try:
                    found, s = _by_curator(sample, text, expected, Path(scratch))
                    add("NeMo Curator", found, {"components": s}, len(text), text.nbytes)
                except DeviceError as e:
                    missing.append(f"NeMo Curator: {e.message}")
        files = sorted({path for _, path, _ in where})
    result: dict[str, Any] = {
        "version": __version__,
        "sample": {"documents": len(text), "bytes": text.nbytes, "files": len(files), "first_files": files[:20]},
        "machine": machine_facts(workers, device),
        "steps": table(with_total(measured)),
        "equal": not differ,
        "differences": [d._asdict() for d in differ],
        "missing": missing,
    }
    _write(folder, result)
    return result


def _device_of(config: Config, missing: list[str]) -> Device | None:
    """The GPU that the recipe's run would take; None, and a word in `missing`, if it takes none."""
    chosen = backend.choose(config.run.backend)
    if chosen.choice != "gpu":
        missing.append(f"GPU: {chosen.reason}")
        return None
    from gpu_curate.device.runtime import cuda

    return cuda()


def _write(folder: Path, result: dict[str, Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    try:
        write_png(folder / "compare.png", result)
    except ImportError:
        result["missing"].append(f"compare.png: matplotlib is not installed ({install('plot')})")
    write_json(folder / "compare.json", result)
    write_csv(folder / "compare.csv", result)


# ------------------------------------------------------------------------------------------------------------ the sample


def read_sample(config: Config, folder: Path, max_bytes: int) -> Sample:
    """The head of every source and all reference sets, as the stages of a run would write them.

    Raises:
        ConfigError: as a run would, or no document.
    """
    each = max(1, max_bytes // len(config.sources))
    sources = [
        s.model_copy(update={"max_bytes": each if s.max_bytes is None else min(each, s.max_bytes)})
        for s in config.sources
    ]
    config = config.model_copy(update={"sources": sources})
    names = ("documents", "texts", "rejects", "references")
    for name in names:
        (folder / name).mkdir()
    context = Context.of(folder, config, {name: name for name in names})
    searched = bool(benchmarks_of(config))
    make_box(Documents(intake_of(config)), context)
    if searched:
        make_box(References(config.references, config.normalize), context)
    box = context.box("documents")
    parts = tuple(sorted(r.part for r in box.receipts() if r.counts.documents))
    if not parts:
        raise ConfigError("the sources give no document: there is nothing to compare")
    steps = [COPY, "content_hash"]
    if config.dedup.fuzzy is not None:
        steps += ["words", "signature", "bands", "components"]
    steps += ["text_stats"] + (["ngrams"] if searched else [])
    return Sample(context, parts, tuple(steps))


def documents(sample: Sample) -> tuple[TextColumn, np.ndarray, list[tuple[str, str, int]]]:
    """Text, scope key, and (source, path, row) of every document of the sample."""
    box = sample.context.box("documents")
    columns, scopes = [], []
    where: list[tuple[str, str, int]] = []
    for part in sample.parts:
        path = box.path(part, ".parquet")
        columns.append(host_text(text_file(box, part)))
        table = pq.read_table(path, columns=["source", "group", "path", "row"], use_threads=False)
        scopes.append(scope_keys(table, sample.context.config.dedup.fuzzy))
        where += zip(*(table[c].to_pylist() for c in ("source", "path", "row")), strict=True)
    chars = np.concatenate([c.chars[int(c.offsets[0]) : int(c.offsets[-1])] for c in columns])
    lengths = np.concatenate([np.diff(c.offsets) for c in columns])
    return TextColumn(chars, np.concatenate([[0], np.cumsum(lengths)])), np.concatenate(scopes), where


# ------------------------------------------------------------------------------------------------------------- the steps


def inputs_of(context: Context, text: TextColumn, scope_N: Any) -> Inputs:
    """What the ops are run over, as the recipe sets them. Text and scope keys lie on one side, host or device."""
    fuzzy = context.config.dedup.fuzzy
    settings: dict[str, Any] = {} if fuzzy is None else {"minhash": minhash_spec(fuzzy), "bands": band_spec(fuzzy)}
    scoped = fuzzy is not None and fuzzy.scope == "group"
    indexes = {name: index for name, (index, _) in indexes_of(context, benchmarks_of(context.config)).items()}
    return Inputs(text, scope_N if scoped else None, indexes=indexes, **settings)


# ---------------------------------------------------------------------------------------------------------- the backends


def _least(run: Callable[[], Any], synchronize: Callable[[], None] = lambda: None) -> tuple[Any, float]:
    """What `run` returns, and its least seconds of REPEATS after a first."""
    result = run()
    synchronize()
    least, total, done = math.inf, 0.0, 0
    while done < REPEATS or (total < MIN_SECONDS and done < 50):
        start = time.perf_counter()
        run()
        synchronize()
        seconds = time.perf_counter() - start
        least, total, done = min(least, seconds), total + seconds, done + 1
    return result, least


def slices(text: TextColumn, scope_N: np.ndarray, workers: int) -> list[tuple[TextColumn, np.ndarray]]:
    """The sample in SLICES_PER_CORE parts a core. One core and all cores measure the same ones: what fits a core's caches
    is faster, and must be so for both."""
    found = []
    for start, stop in text.batches(max(1, -(-text.nbytes // (workers * SLICES_PER_CORE)))):
        low, high = int(text.offsets[start]), int(text.offsets[stop])
        part = TextColumn(text.chars[low:high], text.offsets[start : stop + 1] - low)
        found.append((part, scope_N[start:stop]))
    return found


def _on_a_slice(sample: Sample, text: TextColumn, scope_N: np.ndarray) -> Measured:
    """Arrays and seconds, in this process, of every step that a run does per partition."""
    made: dict[str, Arrays] = {}
    seconds = {}
    inputs = replace(inputs_of(sample.context, text, scope_N), before=made)
    for step in sample.steps[1:]:
        if OPS[step].per_partition:
            made[step], seconds[step] = _least(partial(OPS[step], inputs))
    return made, seconds


def on_one_core(sample: Sample, parts: list[tuple[TextColumn, np.ndarray]]) -> Measured:
    """Arrays and seconds of every step in this process, slice after slice; components of the whole."""
    made, seconds = _summed([_on_a_slice(sample, *part) for part in parts])
    if "components" in sample.steps:
        whole = replace(inputs_of(sample.context, parts[0][0], None), before=made)
        made["components"], seconds["components"] = _least(partial(OPS["components"], whole))
    return made, seconds


def on_all_cores(sample: Sample, parts: list[tuple[TextColumn, np.ndarray]], workers: int) -> Measured:
    """Arrays and seconds with a process on every core. While a slice is measured the other processes measure theirs.

    Seconds are those of all slices together over the number of processes: none of them is ever idle in between.
    """
    engine = LocalEngine(workers, {})
    try:
        futures = [engine.submit(CPU, _on_a_slice, sample, *part) for part in parts]
        made, seconds = _summed([f.result() for f in futures])
    except BrokenExecutor as e:
        raise FatalError("a worker process died", "out of memory? try a smaller --max-bytes or fewer --workers") from e
    finally:
        engine.close(kill=True)
    return made, {step: s / min(workers, len(parts)) for step, s in seconds.items()}


def _summed(results: list[Measured]) -> Measured:
    """Results and seconds of consecutive slices as those of the whole."""
    return _joined([r[0] for r in results]), {step: sum(r[1][step] for r in results) for step in results[0][1]}


def _joined(parts: list[dict[str, Arrays]]) -> dict[str, Arrays]:
    """Results of consecutive slices as those of the whole."""
    return {s: {name: np.concatenate([p[s][name] for p in parts]) for name in parts[0][s]} for s in parts[0]}


def by_numpy(config: Config, text: TextColumn) -> tuple[int, int, dict[str, float], dict[str, Arrays]]:
    """Documents and bytes taken, seconds and arrays of plain NumPy."""
    from gpu_curate.ops.minhash import plain

    _, n = next(iter(text.batches(NUMPY_BYTES)))
    texts = [text.raw(i).decode() for i in range(n)]
    assert config.dedup.fuzzy is not None  # who asks for it has looked
    spec, bands = minhash_spec(config.dedup.fuzzy), band_spec(config.dedup.fuzzy)
    seconds = {}
    sig_NH, seconds["signature"] = _least(partial(plain.signatures, texts, spec))
    band_BN, seconds["bands"] = _least(partial(plain.band_hashes, sig_NH, bands))
    return n, int(text.offsets[n]), seconds, {"signature": {"sig_N": sig_NH}, "bands": {"band_N": band_BN.T}}


def on_device(sample: Sample, text: TextColumn, scope_N: np.ndarray, device: Device) -> Measured:
    """Arrays, copied back to the host, and seconds of every step on the device, a partition at a time."""
    limit = sample.context.config.run.partition_bytes
    results = []
    for start, stop in text.batches(limit):
        results += _batch_on_device(sample, text.slice(start, stop), scope_N[start:stop], device)
    made, seconds = _summed(results)
    if "components" in sample.steps:
        whole = replace(inputs_of(sample.context, text, None), before=_uploaded(made, device))
        made["components"], seconds["components"] = _least(
            partial(OPS["components"], whole, device), _synchronize(device)
        )
    return made, seconds


def _uploaded(made: dict[str, Arrays], device: Device) -> dict[str, Arrays]:
    """What `components` takes, on the device."""
    return {op: {n: device.upload(a) for n, a in made[op].items()} for op in OPS["components"].after}


def _batch_on_device(sample: Sample, text: TextColumn, scope_N: np.ndarray, device: Device) -> list[Measured]:
    """The batch, or its halves where the device has too little memory for the whole."""
    synchronize = _synchronize(device)
    try:
        seconds: dict[str, float] = {}
        made: dict[str, dict[str, Any]] = {}
        on_gpu, seconds[COPY] = _least(lambda: to_device(text, device), synchronize)
        inputs = replace(inputs_of(sample.context, on_gpu, device.upload(scope_N)), before=made)
        for step in sample.steps[1:]:
            if OPS[step].per_partition:
                made[step], seconds[step] = _least(partial(OPS[step], inputs, device), synchronize)
        return [({s: {n: to_host(a) for n, a in arrays.items()} for s, arrays in made.items()}, seconds)]
    except device.out_of_memory as e:
        if len(text) == 1:
            raise FatalError(f"a document of {text.nbytes} bytes does not fit into device memory: {e}") from e
    made.clear()
    device.release()
    middle = len(text) // 2
    halves = ((0, middle), (middle, len(text)))
    return [r for a, b in halves for r in _batch_on_device(sample, text.slice(a, b), scope_N[a:b], device)]


def _synchronize(device: Device) -> Callable[[], None]:
    """Waits for the device; nothing to wait for where the CPU stands for it."""
    cuda = getattr(device.xp, "cuda", None)
    return (lambda: None) if cuda is None else cuda.Device().synchronize


def _by_curator(
    sample: Sample, text: TextColumn, expected: dict[str, Arrays], folder: Path
) -> tuple[dict[str, Arrays], float]:
    """Labels and seconds of NeMo Curator on one GPU, Ray's start included, over the candidate pairs of one core."""
    if not backend.curator_available(required=False):
        raise DeviceError(f"not installed ({install('curator')})")
    from gpu_curate.ops.components import curator

    found, cuts = expected["components"], np.cumsum(expected["components"]["pairs_B"])[:-1]
    edges = zip(np.split(found["low_E"], cuts), np.split(found["high_E"], cuts), strict=True)
    start = time.perf_counter()
    label_N, _ = curator.connect(edges, len(text), folder / "curator", 1)
    return {"components": {"label_N": label_N}}, time.perf_counter() - start


# -------------------------------------------------------------------------------------------------------------- results


def differences(
    name: str, found: dict[str, Arrays], expected: dict[str, Arrays], where: list[tuple[str, str, int]]
) -> Iterator[Difference]:
    """The first difference of every array that differs in type, shape or an element; `expected` may hold more."""
    for step, arrays in found.items():
        for array, got in arrays.items():
            want = expected[step][array]
            if got.dtype != want.dtype or got.shape != want.shape:
                shapes = f"{got.dtype} {got.shape}", f"{want.dtype} {want.shape}"
                yield Difference(step, name, array, "", *shapes)
            elif not np.array_equal(got, want):
                at = tuple(int(i) for i in np.argwhere(got != want)[0])
                document = _document(step, array, at[0], expected)
                shown = "" if document is None else f"{where[document][1]}: row {where[document][2]}"
                yield Difference(step, name, _element(array, at), shown, str(got[at]), str(want[at]))


def _document(step: str, array: str, i: int, expected: dict[str, Arrays]) -> int | None:
    """The document that element i of an array belongs to; None if to none."""
    owner, _, kind = array.rpartition("_")
    match kind:
        case "N":
            return i
        case "W":
            return int(np.searchsorted(np.cumsum(expected[step]["words_N"]), i, side="right"))
        case "M":
            hits_N = expected[step][f"{owner.rpartition(' ')[0]} hits_N"]
            return int(np.searchsorted(np.cumsum(hits_N), i, side="right"))
        case "E":
            return int(expected[step][array][i])
    return None


def _element(array: str, at: tuple[int, ...]) -> str:
    from gpu_curate.ops.text_stats import NAMES

    column = "" if len(at) == 1 else f", {NAMES[at[1]]}" if array == "stats_N" else f", {at[1]}"
    return f"{array}[{at[0]}{column}]"
