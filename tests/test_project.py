"""What a project needs besides its code: a licence, metadata, a Python range that is the same everywhere."""

import re
import tomllib

from places import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def versions() -> list[str]:
    low, high = re.fullmatch(r">=3\.(\d+),<3\.(\d+)", PROJECT["requires-python"]).groups()
    return [f"3.{minor}" for minor in range(int(low), int(high))]


def test_one_range_of_python_versions_stands_everywhere():
    first, last = versions()[0], versions()[-1]
    classified = [c.rpartition(" ")[2] for c in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", c)]
    assert classified == versions()
    for file in ("README.md", "scripts/_environment", "gpu_curate/tools/doctor/machine.py"):
        assert f"{first} to {last}" in (ROOT / file).read_text(), file
    environment = (ROOT / "scripts" / "_environment").read_text()
    assert all(f"python{version}" in environment for version in versions())
    assert f"<= (3, {last[2:]})" in environment


def test_the_licence_is_there_and_named():
    assert PROJECT["license"] == "Apache-2.0"
    assert PROJECT["license-files"] == ["LICENSE"]
    assert "Apache License" in (ROOT / "LICENSE").read_text()
    for name in ("SECURITY.md", "CITATION.cff"):
        assert (ROOT / name).exists()


def test_every_dependency_says_why_it_is_there():
    text = (ROOT / "pyproject.toml").read_text()
    listed = text[text.index("dependencies = [") : text.index("[project.scripts]")]
    reasoned = [line for line in listed.splitlines() if re.match(r'\s+"', line)]
    assert reasoned
    bare = [
        line.strip()
        for line in reasoned
        if "#" not in line and not re.search(r'"(gpu_curate\[|pytest|hypothesis|ruff|[a-z-]+-cu13)', line)
    ]
    assert not bare, bare


def test_types_are_checked_strictly_wherever_the_style_is():
    mypy = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mypy"]
    assert (mypy["strict"], mypy["files"]) == (True, ["gpu_curate"])
    assert not any(override.get("ignore_errors") for override in mypy["overrides"])
    skipped = {module for override in mypy["overrides"] for module in override["module"]}
    assert not {m for m in skipped if m.startswith(("gpu_curate", "*"))}
    for file in ("scripts/test", ".pre-commit-config.yaml", "CONTRIBUTING.md"):
        assert ".venv/bin/python -m mypy" in (ROOT / file).read_text(), file
