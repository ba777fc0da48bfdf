"""Connected components on one GPU or many, by NeMo Curator 1.4 (cuGraph under Ray): edges in, a label per document out.

    write_edges   candidate pairs → Parquet of int64 pairs, at least one file a GPU, none empty
    run           ConnectedComponentsStage under RayActorPoolExecutor, in a process of its own
    labels        its (document, label) rows → the smallest document of the component, for every document

The process of its own keeps Ray's and RAPIDS' environment variables, Ray's shutdown at the end of a pipeline and the
memory of the actors away from the run, which may use Dask. This process must hold no device memory while it runs
(`release_pools`), since Ray does not know of it. Ray nodes without a GPU break the stage: one host, all of its GPUs.

Source: NeMo Curator 1.4.0, `nemo_curator/stages/deduplication/fuzzy/connected_components.py`.
Deviates: its bucket stage is left out (a Python loop, 11 µs and 450 bytes an edge); `band_edges` gives the same pairs.
Its labels are opaque and documents without an edge are absent: both are put right here.

# N documents, E candidate pairs
"""

from __future__ import annotations

import gc
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from gpu_curate.document import is_cupy
from gpu_curate.errors import DeviceError, FatalError
from gpu_curate.store.files import open_fresh

ID, LABEL = "_curator_dedup_id", "_duplicate_group_id"  # Curator's column names
EDGES = pa.schema([(f"{ID}_x", pa.int64()), (f"{ID}_y", pa.int64())])  # cuGraph takes signed integers only
MAX_FILE_EDGES = 50_000_000  # a file is read whole on one GPU
EDGE_DEVICE_BYTES = 150  # upper end of what the stage holds per edge and GPU while it builds its graph
# Where it pays. Measured on one core of this project's benchmark machine: union-find takes 64 ns an edge, writing the edges
# for Curator 57; Ray's start takes a minute. What is left of an edge's time pays for the start from here on, and one GPU
# does not hold the graph of so many.
MIN_EDGES = 8_000_000_000
MIN_GPUS = 2
ACTOR_WAIT_S = 120  # Curator's 5 s is too short for a GPU that another process has just left


def pays(edges: int, num_gpus: int) -> bool:
    """True if components are sooner there by Curator than by union-find on one core: for many edges and more than one GPU."""
    return num_gpus >= MIN_GPUS and edges >= MIN_EDGES


def connect(
    edges: Iterable[tuple[Any, Any]], n: int, folder: Path, num_gpus: int, devices: tuple[str, ...] | None = None
) -> tuple[np.ndarray, int]:
    """Components of documents 0..n - 1.

    Args:
        edges: (a_E, b_E) int64 arrays, one pair a band, NumPy or CuPy.
        folder: for edges and results; emptied first, removed when done.
        num_gpus: how many of this host's GPUs to use.
        devices: which ones its process sees, as in CUDA_VISIBLE_DEVICES; None: those that this process sees.
    Returns:
        label_N: int64, the smallest document of each document's component; and the number of edges. Without an edge
        nothing is started.
    Raises:
        DeviceError: Ray, Curator or a GPU failed; the message ends with the last lines of its log.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    files, count = write_edges(edges, folder / "edges", num_gpus)
    label_N = labels(run(files, folder, num_gpus, devices) if files else [], n)
    shutil.rmtree(folder)
    return label_N, count


def write_edges(edges: Iterable[tuple[Any, Any]], folder: Path, num_gpus: int) -> tuple[list[Path], int]:
    """Write pairs as Parquet; returns the files and the number of edges.

    Each band is cut into equal files, as many as GPUs: Curator deals files out by number, not by size.
    """
    folder.mkdir(parents=True, exist_ok=True)
    files: list[Path] = []
    total = 0
    for a_E, b_E in edges:
        a_E, b_E = (x.get() if is_cupy(x) else x for x in (a_E, b_E))
        pieces = min(len(a_E), max(num_gpus, -(-len(a_E) // MAX_FILE_EDGES)))
        cuts = np.linspace(0, len(a_E), pieces + 1 if pieces else 0).astype(np.int64)
        for start, stop in pairwise(cuts):
            files.append(folder / f"edges_{len(files):06d}.parquet")
            pq.write_table(pa.table([a_E[start:stop], b_E[start:stop]], schema=EDGES), files[-1])
        total += len(a_E)
    return files, total


def run(files: list[Path], folder: Path, num_gpus: int, devices: tuple[str, ...] | None = None) -> list[Path]:
    """Run Curator's stage over edge files; returns its Parquet files of (ID, LABEL) rows.

    Raises:
        DeviceError: it failed.
    """
    release_pools()
    scratch = Path(tempfile.mkdtemp(prefix="gc-ray-"))  # short: Ray puts sockets there, whose paths are limited
    job = {"files": [str(f) for f in files], "folder": str(folder), "num_gpus": num_gpus, "scratch": str(scratch)}
    (folder / "job.json").write_text(json.dumps(job))
    log = folder / "curator.log"
    command = [sys.executable, "-P", "-m", "gpu_curate.ops.components.curator", str(folder / "job.json")]
    try:
        with open_fresh(log) as out:
            status = subprocess.run(
                command, env=environment(devices), stdout=out, stderr=subprocess.STDOUT, check=False
            )
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    done = folder / "done.json"
    if status.returncode or not done.exists():
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
        raise DeviceError(
            f"NeMo Curator's components failed with status {status.returncode} (log: {log}):\n{tail}",
            "dedup.fuzzy.components: cpu does the same on the CPU",
        )
    return [Path(f) for f in json.loads(done.read_text())]


def environment(devices: tuple[str, ...] | None = None) -> dict[str, str]:
    """The variables that Curator's process runs under: none of Dask's or of another Ray. This process keeps its own."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("DASK_", "RAY_", "UCX_"))}
    seen = {} if devices is None else {"CUDA_VISIBLE_DEVICES": ",".join(devices)}
    return (
        kept
        | seen
        | {
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]),  # `ray`
            "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
            "RAY_AUTH_MODE": "disabled",  # else Ray writes a token into the home folder
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_raylet_start_wait_time_s": "180",  # a busy host needs more than the 30 s of the default
            "NO_VCS_VERSION": "1",  # Curator runs git when imported
            "PYTHONSAFEPATH": "1",  # Ray's processes look for modules in the current folder otherwise
        }
    )


def release_pools() -> None:
    """Give CuPy's and RMM's cached device memory back: that of arrays still in use goes with them."""
    gc.collect()
    if "cupy" in sys.modules:
        import cupy

        try:
            cupy.get_default_memory_pool().free_all_blocks()
            cupy.get_default_pinned_memory_pool().free_all_blocks()
        except cupy.cuda.runtime.CUDARuntimeError:
            return  # imported, but without a device: there is nothing to give back
    if "rmm" in sys.modules:
        import rmm

        rmm.reinitialize(pool_allocator=False)


def labels(files: list[Path], n: int) -> np.ndarray:
    """int64 of n: the smallest document with the same label; itself for a document that Curator does not name.

    Raises:
        FatalError: the files name a document out of 0..n - 1, or one twice.
    """
    label_N = np.arange(n, dtype=np.int64)
    if not files:
        return label_N
    table = pa.concat_tables([pq.read_table(f, columns=[ID, LABEL]) for f in files])
    doc_V, opaque_V = table[ID].to_numpy(), table[LABEL].to_numpy()
    if len(doc_V) and (doc_V.min() < 0 or doc_V.max() >= n or len(np.unique(doc_V)) < len(doc_V)):
        raise FatalError(f"components name documents {doc_V.min()}..{doc_V.max()} in {len(doc_V)} rows, there are {n}")
    _, component_V = np.unique(opaque_V, return_inverse=True)
    smallest = np.full(component_V.max() + 1 if len(component_V) else 0, n, np.int64)
    np.minimum.at(smallest, component_V, doc_V)
    label_N[doc_V] = smallest[component_V]
    return label_N


def _main(job_file: str) -> None:
    """What runs in the process of its own."""
    job = json.loads(Path(job_file).read_text())
    folder = Path(job["folder"])
    from nemo_curator.backends.ray_actor_pool import RayActorPoolExecutor
    from nemo_curator.core.client import RayClient
    from nemo_curator.pipeline import Pipeline
    from nemo_curator.stages.deduplication.fuzzy.connected_components import ConnectedComponentsStage
    from nemo_curator.tasks import FileGroupTask

    gpus = job["num_gpus"]
    client = RayClient(num_gpus=gpus, num_cpus=gpus + 1, include_dashboard=False, ray_temp_dir=job["scratch"])
    client.start()
    try:
        stage = ConnectedComponentsStage(output_path=str(folder / "components"))
        tasks = [FileGroupTask(dataset_name="edges", data=[f]) for f in job["files"]]
        # The executor must be named: with Curator's default the stage finds no RAFT handle.
        executor = RayActorPoolExecutor(config={"resource_wait_timeout_s": ACTOR_WAIT_S}, show_progress=False)
        done = Pipeline(name="components", stages=[stage]).run(executor, initial_tasks=tasks)
        (folder / "done.json").write_text(json.dumps([f for task in done or [] for f in task.data]))
    finally:
        client.stop()


if __name__ == "__main__":
    _main(sys.argv[1])
