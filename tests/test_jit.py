"""The disk cache of compiled functions goes by all of the package's source, not by one file."""

from __future__ import annotations

from gpu_curate import jit
from gpu_curate.ops import simd
from gpu_curate.text import normalize


def test_every_cached_function_carries_the_digest_of_all_compiled_source():
    for dispatcher in (simd.fmix64, normalize._clean_bytes):
        assert dispatcher._cache._cache_file._source_stamp[1] == jit.source_digest()


def test_a_function_compiled_under_other_source_is_not_loaded(monkeypatch, tmp_path):
    import importlib.util

    source = "from gpu_curate.jit import njit\n\n@njit\ndef twice(x):\n    return x + x\n"
    (tmp_path / "m.py").write_text(source)

    def load():
        spec = importlib.util.spec_from_file_location("m", tmp_path / "m.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        assert module.twice(2) == 4
        return sum(module.twice.stats.cache_hits.values())

    assert load() == 0
    assert load() == 1
    monkeypatch.setattr(jit, "source_digest", lambda: "other")
    assert load() == 0
