"""One allocator for cuDF and CuPy, and what a device needs."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
from corpora import recipe, write_inputs

from gpu_curate import config
from gpu_curate.device import backend, memory, pinned
from gpu_curate.device.probe import Found
from gpu_curate.ops.text_stats import gpu as text_stats
from gpu_curate.runs.planning import make_plan


class FakeRmm:
    """Records what is asked of RMM, in order."""

    def __init__(self, asynchronous: bool = True):
        self.calls: list[tuple[object, ...]] = []

        def resource(**options):
            if not asynchronous:
                raise RuntimeError("cudaMallocAsync not supported with this CUDA driver/runtime version")
            return ("async", options)

        self.rmm = ModuleType("rmm")
        self.rmm.mr = SimpleNamespace(
            CudaAsyncMemoryResource=resource,
            CudaMemoryResource=lambda: "cuda",
            PoolMemoryResource=lambda upstream, **options: ("pool", upstream, options),
            set_current_device_resource=lambda r: self.calls.append(("resource", r)),
        )
        allocators, self.cupy_allocator = ModuleType("rmm.allocators"), ModuleType("rmm.allocators.cupy")
        self.cupy_allocator.rmm_cupy_allocator = "rmm"
        self.modules = {"rmm": self.rmm, "rmm.allocators": allocators, "rmm.allocators.cupy": self.cupy_allocator}

    def cupy(self):
        freed = lambda: self.calls.append(("free",))  # noqa: E731
        return SimpleNamespace(
            cuda=SimpleNamespace(
                set_allocator=lambda a: self.calls.append(("allocator", a)),
                runtime=SimpleNamespace(memGetInfo=lambda: (1, 80_000)),
            ),
            get_default_memory_pool=lambda: SimpleNamespace(free_all_blocks=freed),
        )


@pytest.fixture
def with_rmm(monkeypatch):
    def install(**options):
        fake = FakeRmm(**options)
        for name, module in fake.modules.items():
            monkeypatch.setitem(sys.modules, name, module)
        monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
        return fake

    return install


def test_cupy_and_cudf_share_one_pool_that_gives_back_what_is_above_a_threshold(with_rmm):
    fake = with_rmm()
    release = memory.share_memory(fake.cupy())
    wanted = ("async", {"initial_pool_size": 0, "release_threshold": 8_000})
    assert fake.calls == [("resource", wanted), ("allocator", "rmm")]
    release()
    assert fake.calls[2:] == [("resource", wanted)]  # a pool of its own; the old one goes with its last array


def test_a_driver_without_asynchronous_pools_gets_one_that_grows(with_rmm):
    fake = with_rmm(asynchronous=False)
    memory.share_memory(fake.cupy())()
    assert fake.calls == [("resource", ("pool", "cuda", {"initial_pool_size": 0})), ("allocator", "rmm")]


def test_without_rmm_cupy_keeps_its_own_pool(monkeypatch):
    fake = FakeRmm()
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    memory.share_memory(fake.cupy())()
    assert fake.calls == [("free",)]


class Copies:
    """The part of CuPy that a ring of pinned buffers calls, over NumPy: a buffer may be filled only when it is free."""

    def __init__(self, pinned=True):
        self.pinned, self.sizes, self.begun = pinned, [], []
        self.cuda = SimpleNamespace(
            Event=lambda: self.Event(self),
            alloc_pinned_memory=self.alloc,
            runtime=SimpleNamespace(CUDARuntimeError=ZeroDivisionError),
        )

    def alloc(self, n):
        if not self.pinned:
            raise MemoryError("cudaErrorMemoryAllocation")
        self.sizes.append(n)
        return bytearray(n)

    class Event:
        """A copy reads its source no sooner than somebody waits for it: who fills the source before has spoiled it."""

        def __init__(self, of):
            self.of, self.behind = of, []

        def record(self):
            self.behind, self.of.begun[:] = [*self.of.begun], []

        def synchronize(self):
            for target, source in self.behind:
                target[:] = source
            self.behind = []

    def empty(self, shape, dtype):
        begun = self.begun

        class Array(np.ndarray):
            def set(self, array):
                begun.append((self, array))

        return np.zeros(shape, dtype).view(Array)

    @staticmethod
    def asarray(array):
        return np.array(array)


@pytest.mark.parametrize("n", [0, 1, 999, 1000, 1001, 2000, 4999])
@pytest.mark.parametrize("dtype", [np.uint8, np.int64, np.uint32])
def test_a_large_array_travels_through_two_pinned_buffers_of_fixed_size(monkeypatch, n, dtype):
    monkeypatch.setattr(pinned, "HALF_BYTES", 1000)
    cupy = Copies()
    ring = pinned.PinnedRing(cupy)
    array = np.random.default_rng(n).integers(0, 200, n).astype(dtype)
    for values in (array, array[::2], array[: n // 2 * 2].reshape(2, -1)):
        got = ring.upload(values)
        assert (got.dtype, got.shape) == (values.dtype, values.shape)
        np.testing.assert_array_equal(got, values)
    assert cupy.sizes == ([1000, 1000] if array.nbytes > 1000 else [])


def test_where_no_memory_can_be_pinned_an_array_is_copied_from_where_it_lies(monkeypatch):
    monkeypatch.setattr(pinned, "HALF_BYTES", 1000)
    ring = pinned.PinnedRing(Copies(pinned=False))
    for _ in range(2):
        got = ring.upload(np.arange(5000))
        for target, source in ring._cupy.begun:
            target[:] = source
        np.testing.assert_array_equal(got, np.arange(5000))


def test_the_plan_s_device_memory_holds_what_the_ops_state(tmp_path, monkeypatch):
    write_inputs(tmp_path, documents=300)
    monkeypatch.setattr(backend, "probe_devices", lambda: Found(("a", "b"), "two", frozenset({"b"})))
    data = recipe(tmp_path / "corpus", tmp_path / "tokenizer.json", run={"gpu": {"workers": 2}})
    facts = make_plan(config.parse(data), tmp_path / "r")
    partition = max(s["text_bytes"] for s in facts["sources"])
    assert facts["pinned_bytes"] == (2 + 1) * 64 * 2**20
    one = facts["peak_device_bytes"] / 2
    assert one >= partition + text_stats.FOOTPRINT.of(partition, partition // 2000)
    data["run"]["backend"] = "cpu"
    facts = make_plan(config.parse(data), tmp_path / "r")
    assert (facts["peak_device_bytes"], facts["pinned_bytes"]) == (0, 0)
