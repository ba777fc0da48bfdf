"""NeMo Curator's classes take our calls, name the columns as we do, and start under Ray as far as a host without a GPU lets them."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
from nemo_curator.backends.ray_actor_pool import RayActorPoolExecutor
from nemo_curator.core.client import RayClient
from nemo_curator.pipeline import Pipeline
from nemo_curator.stages.deduplication.fuzzy.connected_components import ConnectedComponentsStage
from nemo_curator.stages.deduplication.fuzzy.utils import CURATOR_FUZZY_DUPLICATE_GROUP_FIELD
from nemo_curator.stages.deduplication.id_generator import CURATOR_DEDUP_ID_STR
from nemo_curator.tasks import FileGroupTask

from gpu_curate.device import probe
from gpu_curate.errors import DeviceError
from gpu_curate.ops.components import curator


def test_column_names():
    assert (curator.ID, curator.LABEL) == (CURATOR_DEDUP_ID_STR, CURATOR_FUZZY_DUPLICATE_GROUP_FIELD)


@pytest.mark.parametrize(
    ("function", "args", "options"),
    [
        (
            RayClient.__init__,
            (None,),
            {"num_gpus": 1, "num_cpus": 2, "include_dashboard": False, "ray_temp_dir": "/tmp/x"},
        ),
        (RayClient.start, (None,), {}),
        (RayClient.stop, (None,), {}),
        (ConnectedComponentsStage.__init__, (None,), {"output_path": "x"}),
        (RayActorPoolExecutor.__init__, (None,), {"config": {}, "show_progress": False}),
        (Pipeline.__init__, (None,), {"name": "x", "stages": []}),
        (Pipeline.run, (None, None), {"initial_tasks": []}),
        (FileGroupTask.__init__, (None,), {"dataset_name": "edges", "data": ["x"]}),
    ],
    ids=lambda value: getattr(value, "__qualname__", None),
)
def test_signature_takes_our_call(function, args, options):
    inspect.signature(function).bind(*args, **options)


def test_stage_reads_our_columns_and_wants_a_gpu(tmp_path):
    stage = ConnectedComponentsStage(output_path=str(tmp_path / "components"))
    assert [stage.source_field, stage.destination_field] == curator.EDGES.names
    assert stage.resources.gpus == 1
    assert FileGroupTask(dataset_name="edges", data=["x"]).data == ["x"]


def test_executor_reads_our_wait():
    assert "resource_wait_timeout_s" in inspect.getsource(inspect.getmodule(RayActorPoolExecutor))


def test_ray_starts_and_what_stops_it_is_the_missing_driver(tmp_path):
    """Ray is told of a GPU that is not there: everything runs up to the first call of the driver."""
    edges = [(np.array([0, 1]), np.array([1, 2]))]
    if probe.device_ids()[0]:
        assert curator.connect(edges, 4, tmp_path / "work", num_gpus=1)[0].tolist() == [0, 0, 0, 3]
    else:
        with pytest.raises(DeviceError, match=r"(?i)cuda|nccl"):
            curator.connect(edges, 4, tmp_path / "work", num_gpus=1)
