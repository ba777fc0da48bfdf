"""scripts/mutate_kernels: every mutant still changes one place of the code, and is one."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import sys

import pytest
from places import ROOT

PACKAGE = ROOT / "gpu_curate"


@pytest.fixture(scope="module")
def mutate():
    loader = importlib.machinery.SourceFileLoader("mutate_kernels", str(ROOT / "scripts" / "mutate_kernels"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("mutate_kernels", loader))
    sys.modules["mutate_kernels"] = module
    loader.exec_module(module)
    return module


def test_every_mutant_has_its_place(mutate):
    wrong = {m.name: n for m in mutate.MUTANTS if (n := (PACKAGE / m.file).read_text().count(m.old)) != 1}
    assert wrong == {}
    assert all(m.old != m.new for m in mutate.MUTANTS)
    names = [m.name for m in mutate.MUTANTS]
    assert len(set(names)) == len(names) >= 40
    assert {"M09", "M11", "M14", "M15", "M20", "M21"} <= set(names)
    assert all((ROOT / test).exists() for m in mutate.MUTANTS for test in m.tests.split() if test.endswith(".py"))
