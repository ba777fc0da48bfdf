"""The disk cache of compiled functions goes by all of the package's source, not by one file."""

from __future__ import annotations

import os
import stat
import typing
from pathlib import Path

import pytest
from places import ROOT

from gpu_curate import compiled, jit
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


SCRIPT = """
import os, sys
from pathlib import Path

import os
from pathlib import Path

from gpu_curate import jit
from gpu_curate.runs.engines import LocalEngine
from gpu_curate.runs.workers import CPU


def call(x):
    return twice(x), sum(twice.stats.cache_hits.values()), os.environ["NUMBA_CACHE_DIR"]


@jit.njit
def twice(x):
    return x + x


if __name__ == "__main__":
    assert Path(jit.__file__).is_relative_to(sys.argv[1]), jit.__file__
    twice(3)
    temporary = jit.private_folder
    print(oct(temporary.stat().st_mode & 0o777), len(list(temporary.rglob("*.nbi"))))
    run = Path(sys.argv[2])
    run.mkdir()
    print(jit.keep_with_run(run))
    twice(3.5)
    print(oct((run / jit.CACHE).stat().st_mode & 0o777), len(list((run / jit.CACHE).rglob("*.nbi"))))
    engine = LocalEngine(1, {})
    print(engine.submit(CPU, call, 3.5).result()[1:])
    engine.close()
"""


def test_where_nothing_can_be_written_compiled_functions_are_kept_in_a_private_folder_for_workers_too(tmp_path):
    """Neither beside the source, where a file stands in the way of __pycache__ (so for root, too), nor below HOME."""
    import shutil
    import subprocess
    import sys

    package = tmp_path / "site" / "gpu_curate"
    shutil.copytree(Path(jit.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    for folder in [package.parent, *(p for p in package.rglob("*") if p.is_dir()), package]:
        (folder / "__pycache__").write_text("")
    (tmp_path / "site" / "script.py").write_text(SCRIPT)
    keep = {k: v for k, v in os.environ.items() if not k.startswith(("NUMBA_", "XDG_"))}
    env = {**keep, "HOME": "/proc/nobody", "TMPDIR": str(tmp_path), "PYTHONPATH": str(package.parent)}
    done = subprocess.run(
        [sys.executable, str(tmp_path / "site" / "script.py"), str(package.parent), str(tmp_path / "run")],
        env=env, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    private, said, of_run, in_worker = done.stdout.splitlines()
    assert private.startswith("0o700 ")
    assert int(private.split()[1]) >= 1
    assert f"kept in {tmp_path}/run/.compiled; set NUMBA_CACHE_DIR" in said
    assert of_run == "0o700 1"
    assert in_worker == f"(1, '{tmp_path}/run/.compiled')"  # loaded, not compiled again
    assert not list(tmp_path.glob("gpu_curate-*"))  # the temporary one went with its process


def test_where_there_is_a_place_a_run_keeps_nothing_of_its_own(tmp_path):
    assert jit.private_folder is None
    assert jit.keep_with_run(tmp_path) is None
    assert list(tmp_path.iterdir()) == []


# ------------------------------------------------------------------------------------------- which folders are trusted


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv(compiled.IMAGE, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_compiled_functions_are_kept_in_a_folder_of_the_users_own(home, umask):
    before = os.umask(umask)
    try:
        folder, refused = compiled.choose()
    finally:
        os.umask(before)
    assert refused == []
    assert folder.is_relative_to(home / ".cache" / "gpu_curate")
    assert {stat.S_IMODE(p.stat().st_mode) for p in (folder, folder.parent)} == {0o700}


@pytest.mark.parametrize("mode", [0o777, 0o775, 0o1777, 0o702, 0o720])
def test_a_folder_that_others_can_write_to_is_refused_and_said(home, monkeypatch, tmp_path, mode):
    given = tmp_path / "shared"
    given.mkdir()
    given.chmod(mode)
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(given))
    folder, (said,) = compiled.choose()
    assert folder == compiled.own_folder()
    assert f"{given} can be written by others (mode {mode:04o})" in said
    given.chmod(0o755)
    assert compiled.choose() == (given, [])
    own = compiled.own_folder()
    monkeypatch.delenv("NUMBA_CACHE_DIR")
    for place in (own, own.parent):
        place.chmod(mode)
        folder, (said,) = compiled.choose()
        assert (folder, f"{place} can be written by others" in said) == (None, True)
        place.chmod(0o700)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs another user")
def test_a_folder_of_another_user_is_refused(home, monkeypatch, tmp_path):
    given = tmp_path / "theirs"
    given.mkdir(mode=0o700)
    os.chown(given, 65534, 65534)
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(given))
    _, (said,) = compiled.choose()
    assert "belongs to user 65534" in said


def test_a_link_in_the_place_of_the_own_folder_is_refused(home, tmp_path):
    own = compiled.own_folder()
    own.parent.mkdir(parents=True, mode=0o700)
    own.parent.chmod(0o700)
    (tmp_path / "elsewhere").mkdir()
    own.symlink_to(tmp_path / "elsewhere")
    folder, (said,) = compiled.choose()
    assert (folder, "is a link" in said) == (None, True)


def test_what_an_image_brings_is_copied_and_only_from_where_nobody_else_can_write(home, monkeypatch, tmp_path):
    image = tmp_path / "image"
    (image / "ops").mkdir(parents=True)
    (image / "ops" / "f.nbi").write_bytes(b"index")
    monkeypatch.setenv(compiled.IMAGE, str(image))
    for mode, copied in ((0o777, []), (0o755, ["f.nbi"])):
        image.chmod(mode)
        folder, _ = compiled.choose()
        compiled.bring(folder)
        assert [p.name for p in folder.rglob("*.nbi")] == copied
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert (image / "ops" / "f.nbi").read_bytes() == b"index"


def test_numba_keeps_nothing_beside_the_source_or_in_a_shared_folder(tmp_path):
    import subprocess
    import sys

    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    (tmp_path / "m.py").write_text(
        "from gpu_curate import jit\n@jit.njit\ndef twice(x):\n    return x + x\ntwice(2)\n"
        "from pathlib import Path\nprint(jit.keep_with_run(Path('.')))\nprint(twice._cache._cache_path)\n"
    )
    keep = {k: v for k, v in os.environ.items() if not k.startswith(("NUMBA_", "XDG_"))}
    env = {**keep, "HOME": str(tmp_path), "NUMBA_CACHE_DIR": str(shared), "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, str(tmp_path / "m.py")], env=env, capture_output=True, text=True)
    said, path = done.stdout.splitlines()
    assert f"NUMBA_CACHE_DIR is not used: {shared} can be written by others (mode 0777)" in said
    assert path.startswith(f"{tmp_path}/.cache/gpu_curate/")
    assert list(shared.iterdir()) == []
    assert not list(tmp_path.glob("__pycache__/*.nbi"))


def test_a_compiled_function_keeps_its_signature_for_type_checkers():
    plain, with_options = typing.get_overloads(jit.njit)
    assert plain.__annotations__ == {"function": "Callable[P, R]", "return": "Callable[P, R]"}
    assert with_options.__annotations__["return"] == "Callable[[Callable[P, R]], Callable[P, R]]"
