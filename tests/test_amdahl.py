"""scripts/bench/amdahl.py: its inputs are rows that were measured, and a run with GPUs is never slower than one without."""

from __future__ import annotations

import ast
import importlib.util
import sys

import pytest
from places import ROOT

BENCH = ROOT / "scripts" / "bench"


@pytest.fixture(scope="module")
def amdahl():
    sys.path.insert(0, str(BENCH))
    try:
        spec = importlib.util.spec_from_file_location("amdahl", BENCH / "amdahl.py")
        module = importlib.util.module_from_spec(spec)
        sys.modules["amdahl"] = module
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(BENCH))
    return module


def test_auto_is_never_slower_than_cpu_on_any_node_and_kind_of_source(amdahl):
    made = amdahl.table_of(amdahl.rows(), amdahl.SASS.read_text())
    assert {r["kind"] for r in made} >= {"clean text", "Wikipedia dump", "WARC, trafilatura"}
    assert {(r["cores"], r["gpus"]) for r in made} == set(amdahl.NODES)
    for r in made:
        assert r["auto_mb_per_s"] >= r["cpu_mb_per_s"], r
        assert r["times"] <= r["limit"], r
    assert max(r["times"] for r in made) > 1.2


def test_its_inputs_come_from_results_csv_and_sass_md_alone(amdahl):
    """Every cost follows the rows: half of each row is half of the time. No number in the code is one."""
    table, sass = amdahl.rows(), amdahl.SASS.read_text()
    whole = amdahl.costs(table, sass)
    half = [{**r, "p50": str(float(r["p50"]) / 2)} if r["bench"] == "amdahl" else r for r in table]
    halved = amdahl.costs(half, sass)
    for name in ("cpu", "moved", "feed"):
        assert getattr(halved, name) == pytest.approx(getattr(whole, name) / 2)
    assert amdahl.traffic(sass) > 20
    assert amdahl.traffic("") == 0
    with pytest.raises(LookupError, match="--measure"):
        amdahl.costs([], sass)
    tree = ast.parse((BENCH / "amdahl.py").read_text())
    numbers = {n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, float)}
    assert numbers <= {
        0.0,
        1.0,
        1e6,
        1e9,
        0.33,
        0.5,
        2433.0,
        4370.0,
    }  # units, what is assumed of a device, bytes a page


def test_what_a_device_measured_replaces_what_was_computed(amdahl):
    table, sass = amdahl.rows(), amdahl.SASS.read_text()
    assert not amdahl.costs([r for r in table if r["bench"] != "gpu_check"], sass).measured
    row = {**table[0], "bench": "gpu_check", "unit": "GB/s"}
    steps = {"ops": 20, "copy up": 40, "copy down": 80}
    known = amdahl.costs(table + [{**row, "case": f"stage: {s}", "p50": str(v)} for s, v in steps.items()], sass)
    assert known.measured
    assert known.device == pytest.approx(1 / 20 + 1 / 40 + 1 / 80)


def test_idle_cores_take_what_devices_cannot(amdahl):
    """One slow feeder beside many cores: forced to take everything, it would hold the run up."""
    c = amdahl.Costs(cpu=10.0, moved=5.0, feed=2.0, device=0.1, measured=False)
    alone, _ = amdahl.throughput(c, 64, 0)
    with_one, share = amdahl.throughput(c, 64, 1, processes=1)
    assert with_one > alone
    assert share < 0.2
    forced = 1 / (c.feed + c.device)
    assert forced < alone
