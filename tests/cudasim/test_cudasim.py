"""The emulator runs correct kernels correctly, in every schedule, and finds planted bugs."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
import pytest
from cudasim.module import EmulatedModule, KernelFault, available

pytestmark = pytest.mark.skipif(not available(), reason="no C++ compiler: the emulator compiles kernels with g++")
SELFTEST = Path(__file__).with_name("selftest.cu")


@functools.cache
def module(checked: bool) -> EmulatedModule:
    return EmulatedModule(SELFTEST.read_text(), "selftest.cu", checked=checked)


def run(
    kernel: str,
    *args: object,
    grid: int = 1,
    block: int = 32,
    checked: bool,
    shared: int = 0,
    schedule: int = 0,
):
    m = module(checked)
    m.schedule, m.preempt = schedule, 0
    m.get_function(kernel)((grid,), (block,), args, shared_mem=shared)


@pytest.mark.parametrize("checked", [False, True])
@pytest.mark.parametrize("schedule", [0, 1, 2, 3])
@pytest.mark.parametrize(("n", "block"), [(1, 32), (1000, 256), (5001, 1024)])
def test_block_reduction_finds_the_minimum(checked, schedule, n, block):
    values = np.random.default_rng(n).integers(5, 2**32, n, dtype=np.uint32)
    for kernel, shared, grid in (
        ("block_min", 0, 3),
        ("block_min_dynamic", block * 4, -(-n // block)),
    ):
        out = np.full(1, 0xFFFFFFFF, np.uint32)
        run(
            kernel,
            values,
            out,
            np.int64(n),
            grid=grid,
            block=block,
            checked=checked,
            shared=shared,
            schedule=schedule,
        )
        assert out[0] == values.min()


@pytest.mark.parametrize("checked", [False, True])
def test_warp_collectives(checked):
    out = np.zeros(32, np.uint32)
    run("half_masks", out, checked=checked, schedule=3)
    assert (out == np.repeat([15, 31], 16)).all()
    run("reductions", out, checked=checked)
    assert (out == 5 + 4).all()
    run("warp_exchange", out, checked=checked, schedule=2)
    assert (out == (np.arange(32) ^ 1) + 2).all()


def test_shared_atomics_are_no_race():
    out = np.zeros(128, np.uint32)
    run(
        "shared_atomic",
        np.arange(7, 71, dtype=np.uint32),
        out,
        grid=2,
        block=64,
        checked=True,
    )
    assert (out == 7).all()


def zeros(n: int = 256) -> np.ndarray:
    return np.zeros(n, np.uint32)


@pytest.mark.parametrize(
    ("kernel", "args", "grid", "block", "finding"),
    [
        ("bug_no_barrier", (zeros(), zeros()), 1, 256, "RACE"),
        ("bug_reuse", (zeros(), zeros()), 1, 256, "RACE"),
        ("bug_no_syncwarp", (zeros(32),), 1, 32, "RACE"),
        ("bug_global_race", (zeros(2),), 2, 1, "RACE"),
        ("bug_same_cell", (zeros(1),), 1, 64, "RACE"),
        ("bug_bounds", (zeros(64), zeros(64)), 1, 64, "OUT OF BOUNDS"),
        ("bug_unused_read", (zeros(64), zeros(64), np.int32(0)), 1, 64, "OUT OF BOUNDS"),
        ("bug_const_write", (zeros(64), zeros(64)), 1, 64, "OUT OF BOUNDS"),
        (
            "bug_misaligned",
            (np.zeros(64 * 16 + 16, np.uint8), zeros()),
            1,
            64,
            "MISALIGNED",
        ),
        ("bug_divergent_shuffle", (zeros(32),), 1, 32, "deadlock"),
        ("bug_divergent_barrier", (zeros(32),), 1, 32, "divergent __syncthreads"),
        ("bug_uninitialised", (zeros(64),), 1, 64, "UNINITIALISED"),
        ("bug_shift", (zeros(32), np.int32(1)), 1, 32, "SHIFT"),
        ("bug_index", (zeros(32), np.int32(8)), 1, 32, "INDEX"),
    ],
)
def test_checker_finds_planted_bug(kernel, args, grid, block, finding):
    with pytest.raises(KernelFault, match=finding):
        run(kernel, *args, grid=grid, block=block, checked=True)


def test_finding_names_file_and_line():
    with pytest.raises(KernelFault, match=r"at selftest\.cu:\d+"):
        run("bug_bounds", zeros(64), zeros(64), block=64, checked=True)


def test_schedules_alone_expose_a_missing_barrier():
    values, results = np.arange(256, dtype=np.uint32), []
    for schedule in range(3):
        out = zeros()
        run("bug_no_barrier", values, out, block=256, checked=False, schedule=schedule)
        results.append(out)
    assert any((r != results[0]).any() for r in results)


def test_preemption_exposes_a_lost_update():
    out, m = zeros(1), module(True)
    m.schedule, m.preempt = 5, 2
    with pytest.raises(KernelFault, match="RACE"):
        m.get_function("lost_update")((1,), (256,), (out,))
    assert out[0] < 256


def test_wrong_arguments_are_refused():
    kernel = module(False).get_function("bug_shift")
    for args in [
        (zeros(32),),
        (zeros(32), 1),
        (zeros(32), np.int64(1)),
        (np.int32(1), np.int32(1)),
        (zeros(64)[::2], np.int32(1)),
    ]:
        with pytest.raises(TypeError):
            kernel((1,), (32,), args)
    with pytest.raises(KernelFault, match="block of 2048"):
        kernel((1,), (2048,), (zeros(32), np.int32(1)))
