"""Kernels compile for every architecture without spills, and the tests notice a kernel that is broken on purpose."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import nvrtc
import pytest
from cudasim.columns import text
from cudasim.device import StrictModule, emulated, run
from cudasim.module import EmulatedModule, KernelFault, available
from kernel_variants import VARIANTS

import gpu_curate.ops
from gpu_curate.device.runtime import Device, source
from gpu_curate.document import TextColumn
from gpu_curate.ops.bands import BandSpec
from gpu_curate.ops.bands import cpu as bands_cpu
from gpu_curate.ops.bands import gpu as bands_gpu
from gpu_curate.ops.judge import trial
from gpu_curate.ops.minhash import MinHashSpec
from gpu_curate.ops.minhash import cpu as minhash_cpu
from gpu_curate.ops.minhash import gpu as minhash_gpu
from gpu_curate.ops.text_stats import cpu as stats_cpu
from gpu_curate.ops.text_stats import gpu as stats_gpu
from gpu_curate.ops.words import cpu as words_cpu
from gpu_curate.ops.words import gpu as words_gpu

OPS = Path(gpu_curate.ops.__file__).parent


def test_every_kernel_file_has_its_variants():
    assert {p.parent.name for p in OPS.glob("*/kernels.cu")} == set(VARIANTS)


def test_no_kernel_file_includes_anything():
    files = [OPS / "common.cu", *OPS.glob("*/kernels.cu")]
    assert not [p for p in files if any(line.startswith("#include") for line in p.read_text().splitlines())]


@pytest.mark.skipif(nvrtc.library() is None, reason="NVRTC is absent: pip install nvidia-cuda-nvrtc")
@pytest.mark.parametrize("arch", nvrtc.ARCHITECTURES)
@pytest.mark.parametrize("op", VARIANTS)
def test_compiles_without_spills(op, arch):
    for defines in VARIANTS[op]:
        usage = nvrtc.usage(source(op), f"{op}.cu", arch, defines)
        assert usage
        assert [u for u in usage if u.stack_bytes or u.spill_bytes] == []


RNG = np.random.default_rng(9)
COLUMN = TextColumn.from_texts([text(RNG, int(n)) for n in RNG.integers(0, 90, 40)])
SIGNATURES = RNG.integers(0, 2**32, (40, 112), dtype=np.uint32)


def mutated(op: str, old: str, new: str) -> Device:
    """The checked emulator with one text of one kernel file replaced."""
    assert source(op).count(old) == 1, f"{old!r} is not exactly once in {op}"
    device = emulated(checked=True, schedule=3)

    def load(code: str, name: str, defines: tuple[str, ...]) -> StrictModule:
        if name != f"{op}.cu":
            return device.load(code, name, defines)
        return StrictModule(EmulatedModule(code.replace(old, new), name, defines, checked=True, schedule=3))

    return replace(device, load=load)


def words_agree(device: Device) -> bool:
    pairs = zip(run(device, words_gpu.word_hashes, COLUMN), words_cpu.word_hashes(COLUMN), strict=True)
    return all(np.array_equal(a, b) for a, b in pairs)


def signatures_agree(device: Device) -> bool:
    spec = MinHashSpec()
    pairs = zip(run(device, minhash_gpu.signatures, COLUMN, spec), minhash_cpu.signatures(COLUMN, spec), strict=True)
    return all(np.array_equal(a, b) for a, b in pairs)


def bands_agree(device: Device) -> bool:
    spec = BandSpec()
    return np.array_equal(
        run(device, bands_gpu.band_hashes, SIGNATURES, spec, None), bands_cpu.band_hashes(SIGNATURES, spec)
    )


def stats_agree(device: Device) -> bool:
    return np.array_equal(run(device, stats_gpu.text_stats, COLUMN), stats_cpu.text_stats(COLUMN))


def judges_agree(device: Device) -> bool:
    tables = trial()
    got = run(device, lambda text, d: stats_gpu.judge_sums(text, tables, d), COLUMN)
    return np.array_equal(got[0], stats_cpu.judge_sums(COLUMN, tables)[0])


@pytest.mark.skipif(not available(), reason="no C++ compiler: the emulator compiles kernels with g++")
@pytest.mark.parametrize(
    ("op", "agree", "old", "new", "finding"),
    [
        pytest.param("words", words_agree, "(unsigned short)(32 * lane + __ffs(m) - 1);\n  __syncwarp();", "(unsigned short)(32 * lane + __ffs(m) - 1);", "UNINITIALISED", id="words-dropped-syncwarp"),
        pytest.param("minhash", signatures_agree, "staged[warp][lane] = x;\n    __syncwarp();", "staged[warp][lane] = x;", "RACE", id="minhash-dropped-syncwarp"),
        pytest.param("minhash", signatures_agree, "        for (int k = 0; k < LANE_ROWS; k++) best[k] = min(best[k], row_value(y, p[k]));\n      }\n    }\n    __syncwarp();", "        for (int k = 0; k < LANE_ROWS; k++) best[k] = min(best[k], row_value(y, p[k]));\n      }\n    }", "RACE", id="minhash-dropped-second-syncwarp"),
        pytest.param("minhash", signatures_agree, "n_words - SHINGLE_WORDS + 1 :", "n_words - SHINGLE_WORDS :", None, id="minhash-off-by-one"),
        pytest.param("words", words_agree, "if (first >= base && first + 32 <= end)", "if (first + 32 <= end + 32)", "OUT OF BOUNDS", id="words-reads-beyond-the-text"),
        pytest.param("text_stats", stats_agree, "if (i + n > first + size) return;", "if (i + n > first + size + 1) return;", "OUT OF BOUNDS", id="ngrams-off-by-one"),
        pytest.param("judge", judges_agree, "if (lane + o < 32 && other_doc == doc) sum += other;", "if (lane + o < 32) sum += other;", None, id="judge-sums-across-documents"),
        pytest.param("judge", judges_agree, "if (inside && i + 1 < n_words && word_doc[i + 1] == doc) most = 2;", "if (inside && word_doc[i + 1] == doc) most = 2;", "OUT OF BOUNDS", id="judge-reads-beyond-the-words"),
        pytest.param("bands", bands_agree, "u64 h = band + 1;", "u64 h = band;", None, id="bands-wrong-seed"),
        pytest.param("bands", bands_agree, "if (d >= n_docs) return;", "if (d > n_docs) return;", "OUT OF BOUNDS", id="bands-one-thread-too-many"),
    ],
)  # fmt: skip
def test_a_broken_kernel_is_noticed(
    op: str, agree: Callable[[Device], bool], old: str, new: str, finding: str | None
) -> None:
    assert agree(emulated(checked=True, schedule=3))
    device = mutated(op, old, new)
    if finding is None:
        assert not agree(device)
    else:
        with pytest.raises(KernelFault, match=finding):
            agree(device)
