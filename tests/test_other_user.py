"""Another user, `umask 077`, a checkout that he cannot write, a folder full of planted modules: a run of a small recipe passes."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

import pytest
import yaml
from corpora import recipe, write_corpus
from places import ROOT
from test_current_folder import plant

from gpu_curate import compiled

NOBODY = 65534
setpriv = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")


@pytest.fixture
def place():
    """A folder of another user's, with a home, data and a recipe."""
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        place.chmod(0o755)
        write_corpus(place / "data", documents=30)
        data = recipe(place / "data", Path("unused")) | {"tokenizer": {"train": {"vocab_size": 400}}}
        (place / "r.yaml").write_text(yaml.safe_dump(data))
        (place / "bin").mkdir()
        (place / "bin" / "gpu-curate").write_text(
            "from gpu_curate.cli import main\nif __name__ == '__main__':\n    main()\n"
        )
        for folder in ("home", "here"):
            (place / folder).mkdir()
        plant(place / "here", place / "here" / "executed")
        for folder in ("home", "here"):
            os.chown(place / folder, NOBODY, NOBODY)
        yield place


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("setpriv") is None, reason="only root can be somebody else")
def test_a_run_as_another_user_with_a_narrow_umask_in_a_hostile_folder(place):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("NUMBA_", "XDG_", "PYTHON"))}
    env |= {
        "HOME": str(place / "home"),
        "TMPDIR": str(place / "here"),
        "PYTHONPATH": f"{ROOT}:{sysconfig.get_path('purelib')}",
    }
    mine = (sys.executable, f"/usr/bin/python{sys.version_info[0]}.{sys.version_info[1]}")
    asked = [
        "sh",
        "-c",
        "sh -c \"exec $0 -P -c 'import numba, pyarrow'\"",
    ]  # a child of a child: as workers are started
    python = next(
        (p for p in mine if not subprocess.run([*setpriv, *asked, p], env=env, capture_output=True).returncode), None
    )
    if python is None:
        pytest.skip("this Python is not for other users")
    if compiled.own_folder().is_dir():  # what this user has compiled, as an image brings it: else it takes a minute
        shutil.copytree(compiled.own_folder(), place / "image", copy_function=shutil.copyfile)
        (place / "image").chmod(0o755)
        env[compiled.IMAGE] = str(place / "image")

    def run(*args: str) -> subprocess.CompletedProcess:
        command = ["sh", "-c", 'umask 077; exec "$@"', "sh", python, str(place / "bin" / "gpu-curate"), *args]
        return subprocess.run(
            [*setpriv, *command], cwd=place / "here", env=env, capture_output=True, text=True, timeout=300
        )

    done = run("run", str(place / "r.yaml"), "--workers", "1")
    assert done.returncode == 0, done.stderr
    verified = run("shards", "verify", "runs/r")
    assert verified.stdout.endswith("every check passed\n"), verified.stderr
    assert not (place / "here" / "executed").exists()
    made = [p for p in (place / "here" / "runs").rglob("*") if not p.is_symlink()]
    assert {(p.stat().st_uid, stat.S_IMODE(p.stat().st_mode)) for p in made} <= {(NOBODY, 0o600), (NOBODY, 0o700)}
    assert [p for p in (place / "home" / ".cache" / "gpu_curate").rglob("*.nbi")]
    assert not [p for p in ROOT.joinpath("gpu_curate").rglob("*") if p.stat().st_uid == NOBODY]


READS_ALL = (
    "--inh-caps=+dac_read_search",
    "--ambient-caps=+dac_read_search",
)  # so that any Python is for him; he writes nothing


@pytest.mark.soak
@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("setpriv") is None, reason="only root can be somebody else")
def test_the_quickstart_as_another_user_from_a_checkout_that_he_cannot_write(place, soak_cases):
    """scripts/quickstart, with `umask 077`, from a folder full of planted modules."""
    if not soak_cases(0, 1):
        pytest.skip("scripts/soak")
    if not (ROOT / ".venv" / "bin" / "gpu-curate").exists():
        pytest.skip("this checkout has no .venv")
    before = {p: p.stat().st_mtime_ns for p in ROOT.joinpath("gpu_curate").rglob("*") if "__pycache__" not in p.parts}
    env = {k: v for k, v in os.environ.items() if not k.startswith(("NUMBA_", "XDG_", "PYTHON", "GPU_CURATE"))}
    env |= {"HOME": str(place / "home"), "TMPDIR": str(place / "home")}
    command = ["sh", "-c", 'umask 077; exec "$@"', "sh", str(ROOT / "scripts" / "quickstart")]
    done = subprocess.run(
        [*setpriv, *READS_ALL, *command], cwd=place / "here", env=env, capture_output=True, text=True, timeout=1200
    )
    assert done.returncode == 0, (done.stdout[-1000:], done.stderr[-2000:])
    assert f"{ROOT} cannot be written" in done.stdout
    assert "every check passed" in done.stdout
    assert not (place / "here" / "executed").exists()
    assert {p: p.stat().st_mtime_ns for p in before} == before
    (run,) = place.joinpath("home").glob("tmp.*/runs/quickstart")
    made = [p for p in run.rglob("*") if not p.is_symlink()]
    assert {(p.stat().st_uid, stat.S_IMODE(p.stat().st_mode)) for p in made} <= {(NOBODY, 0o600), (NOBODY, 0o700)}
