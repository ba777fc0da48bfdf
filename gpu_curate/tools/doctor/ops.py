"""Every op against stored results of its definition, every kernel against its CPU twin."""

from __future__ import annotations

import hashlib
import importlib
import importlib.metadata
import importlib.util
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from gpu_curate.errors import GpuCurateError
from gpu_curate.tools.doctor.check import REINSTALL, Check, error_text

# sha256 of the arrays of every op over `self_test_column`, made by the plain Python definitions of tests/reference.py and
# tests/ops/text_stats_reference.py (tests/test_doctor.py makes them again).
GOLDEN = {
    "content_hash": "c761de5cc70e2f7c",
    "words": "103a041628af9326",
    "signature": "ded818694f5a999c",
    "signature fmix64": "24e5c3c8166ea920",
    "shingles": "183c570c90fa98ea",
    "bands": "397ebdacb738c704",
    "components": "b1227ef52f7231fc",
    "text_stats": "e19ffa343400a08c",
    "judge": "f7fa018175986f86",
    "judge int16": "f7fa018175986f86",
    "ngrams": "3b3c6f77da7be449",
}


def self_test_column() -> Any:
    """The documents of `selftest`, four times over: so that there are candidate pairs."""
    from gpu_curate.document import TextColumn
    from gpu_curate.tools.selftest import DOCUMENTS

    return TextColumn.from_texts(DOCUMENTS * 4)


def fingerprint(arrays: Mapping[str, Any]) -> str:
    """16 hex digits over names, types, shapes and bytes of arrays."""
    state = hashlib.sha256()
    for name, array in arrays.items():
        state.update(f"{name}{array.dtype.str}{array.shape}".encode() + array.tobytes())
    return state.hexdigest()[:16]


def self_test_inputs() -> Any:
    """What every op of the self-test is run over: the documents of `self_test_column`, the first two of them as a set."""
    from gpu_curate.ops.catalogue import Inputs
    from gpu_curate.ops.ngrams import NgramIndex

    text = self_test_column()
    return Inputs(text, indexes={"items": NgramIndex.build(text.slice(0, 2), 13)})


def cpu_results() -> Iterator[tuple[str, Mapping[str, Any]]]:
    """(op, arrays) of the CPU twins over `self_test_inputs`."""
    from gpu_curate.ops.catalogue import results

    return results(self_test_inputs())


def cpu_ops() -> list[Check]:
    """Every CPU twin against the stored results of the definitions."""
    checks = []
    try:
        for op, arrays in cpu_results():
            got = fingerprint(arrays)
            if got == GOLDEN[op]:
                checks.append(Check("self-test, CPU", op, "ok", "equals the definition"))
            else:
                checks.append(Check("self-test, CPU", op, "failed", f"{got} instead of {GOLDEN[op]}", "a fault of the compiler or the library: try another numba, and report it"))  # fmt: skip
    except Exception as e:
        left = next(op for op in GOLDEN if op not in {c.name for c in checks})
        no_cache = "no locator available" in str(e)
        remedy = "set NUMBA_CACHE_DIR to a folder that is writable" if no_cache else REINSTALL
        checks.append(Check("self-test, CPU", left, "failed", error_text(e), remedy))
    return checks


def kernels() -> list[Check]:
    from gpu_curate.device.probe import device_ids

    devices, reason = device_ids()
    if not devices:
        return [Check("self-test, GPU", "kernels", "missing", f"not run: {reason}", "see the lines on the GPU", True)]
    from gpu_curate.device.runtime import cuda

    return kernel_checks(cuda())


def kernel_checks(device: Any) -> list[Check]:
    """Every kernel on a device against its CPU twin."""
    from gpu_curate.ops.catalogue import comparisons, first_difference

    checks = []
    try:
        for op, got, expected in comparisons(self_test_inputs(), device):
            difference = first_difference(got, expected)
            if difference is None:
                checks.append(Check("self-test, GPU", op, "ok", "equals the CPU", None, True))
            else:
                checks.append(Check("self-test, GPU", op, "failed", difference, "run with --backend cpu, and report it", True))  # fmt: skip
    except Exception as e:
        done = checks[-1].name if checks else "the start"
        remedy = "run with --backend cpu; a driver older than the CUDA runtime compiles kernels that it cannot load"
        checks.append(Check("self-test, GPU", f"after {done}", "failed", error_text(e), remedy, True))
    return checks


def components() -> list[Check]:
    """A few components by NeMo Curator on the first device."""
    from gpu_curate.device.probe import device_ids

    devices, reason = device_ids()
    name = "components (NeMo Curator)"
    if importlib.util.find_spec("nemo_curator") is None:
        reason = "NeMo Curator is not installed"
    if not devices or "NeMo" in reason:
        return [Check("self-test, GPU", name, "missing", f"not run: {reason}", "the CPU builds components as well")]
    import numpy as np

    from gpu_curate.ops.components import Components, curator

    pairs = np.array([[0, 3], [3, 5], [1, 2], [8, 9]], np.int64).T
    expected = Components(10)
    expected.add_edges(pairs[0].copy(), pairs[1].copy())
    try:
        with tempfile.TemporaryDirectory() as folder:
            label_N, _ = curator.connect([(pairs[0].copy(), pairs[1].copy())], 10, Path(folder) / "c", 1)
    except GpuCurateError as e:
        return [Check("self-test, GPU", name, "failed", e.message[-300:], "set dedup.fuzzy.components: cpu")]
    if not np.array_equal(label_N, expected.labels()):
        return [Check("self-test, GPU", name, "failed", f"{label_N.tolist()} instead of {expected.labels().tolist()}", "set dedup.fuzzy.components: cpu")]  # fmt: skip
    return [Check("self-test, GPU", name, "ok", "equals the CPU")]
