"""The self-test of `doctor`: equal on the emulated device, and a wrong twin is named with the place."""

from __future__ import annotations

import numpy as np
import pytest
from cudasim.device import emulated
from cudasim.module import available

from gpu_curate.device import probe
from gpu_curate.errors import DeviceError
from gpu_curate.ops.catalogue import OPS, first_difference
from gpu_curate.ops.content_hash import gpu
from gpu_curate.tools import selftest


@pytest.mark.skipif(not available(), reason="no C++ compiler: the emulator compiles kernels with g++")
def test_every_op_is_compared_and_equal():
    results = selftest.self_test(emulated(checked=True))
    assert [r for r in results if r.difference] == []
    assert [r.op for r in results if r.op in OPS] == list(OPS)
    assert "signature fmix64" in {r.op for r in results}


@pytest.mark.skipif(not available(), reason="no C++ compiler: the emulator compiles kernels with g++")
def test_a_wrong_twin_is_named_with_the_place(monkeypatch):
    right = gpu.content_hash
    monkeypatch.setattr(gpu, "content_hash", lambda *args: right(*args) + np.uint64(1))
    found = [r for r in selftest.self_test(emulated()) if r.difference]
    assert [r.op for r in found] == ["content_hash"]
    assert found[0].difference.startswith("content_N at (0, 0): ")


def test_shapes_and_types_count_as_differences():
    a = np.zeros(2, np.int32)
    assert first_difference({"a": a}, {"a": a}) is None
    assert "int64 (2,)" in first_difference({"a": a}, {"a": a.astype(np.int64)})
    assert "(3,)" in first_difference({"a": a}, {"a": np.zeros(3, np.int32)})
    assert first_difference({"a": a}, {"b": a}) == "arrays a instead of b"


def test_without_a_device_it_is_a_device_error():
    if probe.device_ids()[0]:
        pytest.skip("this machine has a CUDA device")
    with pytest.raises(DeviceError) as caught:
        selftest.self_test()
    assert caught.value.hint
