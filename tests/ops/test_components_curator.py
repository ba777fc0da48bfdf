"""The NeMo Curator glue, with a stand-in for the package in the process that it starts. tests/gpu_contracts has the real one."""

from __future__ import annotations

import os
import tempfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gpu_curate.errors import DeviceError, FatalError
from gpu_curate.ops.components import Components, curator

# Modules of NeMo Curator that are imported, reduced to what is called; components by SciPy, labels made opaque.
STAND_IN = {
    "nemo_curator/__init__.py": "",
    "nemo_curator/backends/__init__.py": "",
    "nemo_curator/backends/ray_actor_pool.py": """
class RayActorPoolExecutor:
    def __init__(self, config=None, ignore_head_node=False, show_progress=True, progress_interval=10.0):
        assert config["resource_wait_timeout_s"] > 5
""",
    "nemo_curator/core/__init__.py": "",
    "nemo_curator/core/client.py": """
import os
class RayClient:
    def __init__(self, num_gpus=None, num_cpus=None, include_dashboard=True, ray_temp_dir="/tmp/ray"):
        assert os.path.isdir(ray_temp_dir) and not include_dashboard and num_cpus > num_gpus
    def start(self):
        assert "DASK_SCHEDULER_ADDRESS" not in os.environ and os.environ["RAY_AUTH_MODE"] == "disabled"
        assert "RAY_ADDRESS" not in os.environ
        print("ray started")
        if os.environ.get("STAND_IN_FAILS"):
            raise RuntimeError("nccl.init: unhandled cuda error")
    def stop(self):
        print("ray stopped")
""",
    "nemo_curator/pipeline.py": """
class Pipeline:
    def __init__(self, name, description=None, stages=None, config=None):
        self.stages = stages
    def run(self, executor=None, initial_tasks=None, checkpoint_path=None):
        assert type(executor).__name__ == "RayActorPoolExecutor"
        return self.stages[0].process_batch(initial_tasks)
""",
    "nemo_curator/tasks.py": """
class FileGroupTask:
    def __init__(self, dataset_name, data):
        self.data = data
""",
    "nemo_curator/stages/__init__.py": "",
    "nemo_curator/stages/deduplication/__init__.py": "",
    "nemo_curator/stages/deduplication/fuzzy/__init__.py": "",
    "nemo_curator/stages/deduplication/fuzzy/connected_components.py": """
import os
import numpy as np, pyarrow as pa, pyarrow.parquet as pq
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components
from nemo_curator.tasks import FileGroupTask
class ConnectedComponentsStage:
    def __init__(self, output_path, source_field=None, destination_field=None, read_kwargs=None, write_kwargs=None):
        self.folder = output_path
        os.makedirs(output_path)
    def process_batch(self, tasks):
        tables = [pq.read_table(t.data[0]) for t in tasks]
        assert all(len(t) and t.schema.field(0).type == pa.int64() for t in tables)
        table = pa.concat_tables(tables)
        a, b = (table[c].to_numpy() for c in ("_curator_dedup_id_x", "_curator_dedup_id_y"))
        vertex, index = np.unique(np.concatenate([a, b]), return_inverse=True)
        n = len(vertex)
        _, label = connected_components(coo_matrix((np.ones(len(a)), (index[:len(a)], index[len(a):])), (n, n)), directed=False)
        label = 1000 - label.astype(np.int64) * 7
        done = []
        for rank in range(2):
            path = f"{self.folder}/{rank}.parquet"
            pq.write_table(pa.table({"_curator_dedup_id": vertex[rank::2], "_duplicate_group_id": label[rank::2]}), path)
            done.append(FileGroupTask("edges", [path]))
        return done
""",
}


@pytest.fixture
def stand_in(tmp_path, monkeypatch):
    for name, text in STAND_IN.items():
        file = tmp_path / "packages" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path / "packages"))
    monkeypatch.setenv("DASK_SCHEDULER_ADDRESS", "tcp://elsewhere:8786")
    monkeypatch.setenv("RAY_ADDRESS", "elsewhere:6379")


def random_edges(n: int, bands: int, seed: int) -> list[tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(seed)
    pairs = [np.sort(rng.integers(0, n, (k, 2)), axis=1) for k in rng.integers(0, 30, bands)]
    return [(p[:, 0].copy(), p[:, 1].copy()) for p in pairs]


def test_components_equal_the_cpu_ones(stand_in, tmp_path):
    n, edges = 200, random_edges(200, 6, 1)
    label_N, count = curator.connect(edges, n, tmp_path / "work", num_gpus=2)
    components = Components(n)
    for a_E, b_E in edges:
        components.add_edges(a_E, b_E)
    np.testing.assert_array_equal(label_N, components.labels())
    assert count == sum(len(a) for a, _ in edges)
    assert not (tmp_path / "work").exists()


@pytest.mark.parametrize("own", [None, "1"])
def test_its_process_sees_the_run_s_devices_and_this_one_keeps_its_own(stand_in, tmp_path, monkeypatch, own):
    if own is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", own)
    monkeypatch.setenv("STAND_IN_FAILS", "1")  # so that its log is kept in the error
    client = tmp_path / "packages/nemo_curator/core/client.py"
    client.write_text(client.read_text().replace('"ray started"', '"sees", os.environ["CUDA_VISIBLE_DEVICES"]'))
    with pytest.raises(DeviceError, match="sees 0,1"):
        curator.connect([(np.array([0]), np.array([1]))], 2, tmp_path / "work", num_gpus=2, devices=("0", "1"))
    assert os.environ.get("CUDA_VISIBLE_DEVICES") == own


def test_without_an_edge_nothing_is_started(tmp_path):
    none = np.zeros(0, np.int64)
    label_N, count = curator.connect([(none, none), (none, none)], 3, tmp_path / "work", num_gpus=4)
    assert (label_N.tolist(), count) == ([0, 1, 2], 0)


def test_failure_is_a_device_error_with_the_log(stand_in, tmp_path, monkeypatch):
    monkeypatch.setenv("STAND_IN_FAILS", "1")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(DeviceError, match=r"unhandled cuda error") as caught:
        curator.connect([(np.array([0]), np.array([1]))], 2, tmp_path / "work", num_gpus=1)
    assert "components: cpu" in str(caught.value)
    assert list(tmp_path.glob("gc-ray-*")) == []


def test_missing_package_is_a_device_error(tmp_path):
    with pytest.raises(DeviceError, match="nemo_curator"):
        curator.connect([(np.array([0]), np.array([1]))], 2, tmp_path / "work", num_gpus=1)


@pytest.mark.parametrize(("sizes", "num_gpus", "files"), [([5, 0, 3], 2, 4), ([1], 4, 1), ([0], 1, 0), ([7], 1, 1)])
def test_no_edge_file_is_empty_and_all_are_int64(tmp_path, sizes, num_gpus, files):
    edges = [(np.arange(k), np.arange(k) + 1) for k in sizes]
    written, count = curator.write_edges(edges, tmp_path, num_gpus)
    tables = [pq.read_table(f) for f in written]
    assert (len(written), count) == (files, sum(sizes))
    assert all(len(t) and t.schema.equals(curator.EDGES) for t in tables)
    if tables:
        assert pa.concat_tables(tables).column(0).to_pylist() == [i for k in sizes for i in range(k)]


def test_large_bands_are_cut(tmp_path, monkeypatch):
    monkeypatch.setattr(curator, "MAX_FILE_EDGES", 3)
    written, _ = curator.write_edges([(np.arange(10), np.arange(10))], tmp_path, 1)
    assert [len(pq.read_table(f)) for f in written] == [2, 3, 2, 3]


@pytest.mark.parametrize("documents", [[0, 5], [-1, 0], [1, 1]])
def test_labels_of_unknown_documents_stop_the_run(tmp_path, documents):
    pq.write_table(pa.table({curator.ID: documents, curator.LABEL: [0, 0]}), tmp_path / "c.parquet")
    with pytest.raises(FatalError, match="components name documents"):
        curator.labels([tmp_path / "c.parquet"], 5)
