"""The self-test of `doctor`: equal on the emulated device, and a wrong twin is named with the place."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from cudasim.device import emulated
from cudasim.module import available

from gpu_curate import backend, selftest
from gpu_curate.errors import DeviceError


@pytest.mark.skipif(not available(), reason="no C++ compiler: the emulator compiles kernels with g++")
def test_every_op_is_compared_and_equal():
    results = selftest.self_test(emulated(checked=True))
    assert [r for r in results if r.difference] == []
    assert {"words", "minhash affine", "minhash fmix64", "bands", "content_hash", "ngrams", "text_stats"} <= {
        r.op for r in results
    }


@pytest.mark.skipif(not available(), reason="no C++ compiler: the emulator compiles kernels with g++")
def test_a_wrong_twin_is_named_with_the_place(monkeypatch):
    right = selftest.content_hash_gpu.content_hash
    wrong = SimpleNamespace(content_hash=lambda *args: right(*args) + np.uint64(1))
    monkeypatch.setattr(selftest, "content_hash_gpu", wrong)
    found = [r for r in selftest.self_test(emulated()) if r.difference]
    assert [r.op for r in found] == ["content_hash"]
    assert found[0].difference.startswith("array 0 at (0, 0): ")


def test_shapes_and_types_count_as_differences():
    a = np.zeros(2, np.int32)
    assert selftest.first_difference((a,), (a,)) is None
    assert "int64 (2,)" in selftest.first_difference((a,), (a.astype(np.int64),))
    assert "(3,)" in selftest.first_difference((a,), (np.zeros(3, np.int32),))


def test_without_a_device_it_is_a_device_error():
    if backend.probe_devices()[0]:
        pytest.skip("this machine has a CUDA device")
    with pytest.raises(DeviceError) as caught:
        selftest.self_test()
    assert caught.value.hint
