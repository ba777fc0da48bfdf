"""What RMM, CuPy and Dask-CUDA are asked for is there under these names."""

from __future__ import annotations

import inspect

import cupy
import pytest


def test_rmm_has_the_pools_and_cupy_s_allocator():
    import rmm
    from rmm.allocators.cupy import rmm_cupy_allocator

    assert callable(rmm_cupy_allocator)
    for name in ("CudaAsyncMemoryResource", "PoolMemoryResource", "CudaMemoryResource", "set_current_device_resource"):
        assert hasattr(rmm.mr, name)
    said = rmm.mr.CudaAsyncMemoryResource.__doc__ or ""
    assert "initial_pool_size" in said
    assert "release_threshold" in said


def test_cupy_has_what_the_probe_and_the_ring_call():
    for name in ("getDeviceCount", "deviceGetAttribute", "memGetInfo", "CUDARuntimeError"):
        assert hasattr(cupy.cuda.runtime, name)
    for name in ("alloc_pinned_memory", "set_allocator", "Event"):
        assert hasattr(cupy.cuda, name)
    assert cupy.cuda.runtime.CUDARuntimeError.__module__.split(".")[0] in ("cupy", "cupy_backends")
    assert issubclass(cupy.cuda.memory.OutOfMemoryError, MemoryError)


def test_a_cluster_of_dask_cuda_takes_devices_and_resources():
    dask_cuda = pytest.importorskip("dask_cuda")
    from distributed import LocalCluster

    assert issubclass(dask_cuda.LocalCUDACluster, LocalCluster)
    parameters = inspect.signature(dask_cuda.LocalCUDACluster.__init__).parameters
    assert "CUDA_VISIBLE_DEVICES" in parameters
    assert parameters["kwargs"].kind is inspect.Parameter.VAR_KEYWORD  # resources, dashboard_address go to its workers
