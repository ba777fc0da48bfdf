"""The documentation: its code runs, its commands, options, keys and files exist, its links lead somewhere, what is made is current."""

import importlib.machinery
import importlib.util
import json
import random
import re
import shlex
import socket
from types import ModuleType

import pytest
import yaml
from corpora import document
from places import ROOT
from test_cli import commands
from token_shards import documents, make
from typer.testing import CliRunner

from gpu_curate import cli, config
from gpu_curate.quality.rule import ANY_SCRIPT, SPACED_SCRIPTS
from gpu_curate.tools import config_reference

DOCS = ROOT / "docs"
SITE = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
FILES = SITE["extra"]["files"]  # page → file of the repository
PAGES = sorted([*DOCS.rglob("*.md"), *(ROOT / name for name in {"README.md", "SECURITY.md", *FILES.values()})])
named = pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))


def script(name: str) -> ModuleType:
    loader = importlib.machinery.SourceFileLoader(name.split(".")[0], str(ROOT / "scripts" / name))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module


def code(page: str, language: str = "python") -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)


# ------------------------------------------------------------------------------------------------------------- the site


def test_every_page_is_in_the_navigation_and_there():
    def leaves(entry):
        if isinstance(entry, str):
            return [entry]
        return [page for part in (entry.values() if isinstance(entry, dict) else entry) for page in leaves(part)]

    listed = leaves(SITE["nav"])
    assert sorted(listed) == sorted({*listed})
    assert set(listed) == {str(p.relative_to(DOCS)) for p in DOCS.rglob("*.md")} | set(FILES)
    assert all((ROOT / file).exists() for file in FILES.values())


@named
def test_relative_links_lead_to_files_and_headings(page):
    assert script("docs_hooks.py").broken_links(page) == []


@pytest.mark.parametrize(
    ("text", "broken"),
    [
        ("[a](docs/gpu.md)", False),
        ("[a](docs/gpu.md#what-runs-where)", False),
        ("[a](docs/gpu.md#nowhere)", True),
        ("[a](docs/nowhere.md)", True),
        ("`[a](docs/nowhere.md)`", False),
        ("```\n[a](docs/nowhere.md)\n```", False),
        ("[a](https://example.org/)", False),
    ],
)
def test_a_link_that_leads_nowhere_is_found(tmp_path, text, broken):
    hooks = script("docs_hooks.py")
    hooks.ROOT = tmp_path
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "gpu.md").write_text("# GPU\n\n## What runs where\n")
    (tmp_path / "a.md").write_text(text)
    assert bool(hooks.broken_links(tmp_path / "a.md")) == broken


def test_links_between_files_are_links_between_pages_of_the_site():
    class Page:
        class file:
            src_uri = "sources/warc.md"

    turned = script("docs_hooks.py").on_page_markdown(
        "[a](../../CHANGELOG.md#x) [b](../gpu.md) [c](../../pyproject.toml) `[d](../../LICENSE)` [e](../nowhere.md)",
        Page,
        SITE,
        None,
    )
    assert (
        turned == "[a](../changelog.md#x) [b](../gpu.md) c (`pyproject.toml`) `[d](../../LICENSE)` [e](../nowhere.md)"
    )


def test_made_pages_are_current():
    for path, text in script("make_reference").pages().items():
        assert path.read_text() == text, "run scripts/make_reference"
    assert config_reference.markdown().strip() in (DOCS / "config.md").read_text()


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text().splitlines()) < 150


# --------------------------------------------------------------------------------------------- commands, files and recipes


@named
def test_commands_and_their_options_exist(page):
    known = {" ".join(names): {o for p in command.params for o in p.opts} for names, command in commands(cli.app)}
    text = page.read_text()
    for block in re.findall(r"```bash\n(.*?)```", text, re.DOTALL):
        for line in block.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            if words[:1] != ["gpu-curate"] or words[1].startswith("-"):
                continue
            name = next((" ".join(words[1:n]) for n in (3, 2) if " ".join(words[1:n]) in known), None)
            assert name, f"no such command: {line}"
            options = {w.split("=")[0] for w in words if re.match(r"--?[a-z]", w)}
            assert options <= known[name] | {"--help", "-h"}, line
    groups = {name.split()[0] for name in known}
    for command in re.findall(r"`gpu-curate ([a-z]+)", text):
        assert command in groups, command


@named
def test_files_that_are_named_exist(page):
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    for path in re.findall(r"`((?:scripts|configs|docker|tests|gpu_curate|docs)/[\w./-]+)`", text):
        if not re.search(r"NAME|LANGUAGE|N\.", path):
            assert (ROOT / path).exists(), path
    for file, test in re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", text):
        assert f"def {test}(" in (ROOT / file).read_text(), test
    for path in re.findall(r"\b(?:scripts|configs)/[\w./-]*\w", page.read_text()):
        if not re.search(r"NAME|LANGUAGE", path) and "huggingface/fineweb-2" not in page.read_text():
            assert (ROOT / path).exists(), path


def test_the_map_of_files_names_every_module_and_package():
    table = (DOCS / "how-it-works.md").read_text().partition("## File map")[2].partition("## ")[0]
    there = {p.name + ("/" if p.is_dir() else "") for p in (ROOT / "gpu_curate").iterdir() if p.suffix in ("", ".py")}
    assert {
        name for name in there - {"__pycache__/", "configs/"} if not name.startswith("__") and name not in table
    } == set()


@named
def test_recipes_and_parts_of_them_are_read(page):
    whole = {"sources": [{"name": "s", "type": "text", "path": "x"}], "tokenizer": {"train": {"vocab_size": 300}}}
    for block in re.findall(r"```yaml\n(.*?)```", page.read_text(), re.DOTALL):
        assert config.parse(whole | yaml.safe_load(block)).sources


def test_what_rules_were_made_for_stands_on_the_page_of_the_rules():
    page = (DOCS / "quality-rules.md").read_text().partition("| made for | rules |")[2].partition("\n\n")[0]
    rows = dict(re.findall(r"^\| ((?:all scripts|scripts |English)[^|]*) \| (.*) \|$", page, re.MULTILINE))
    families = {"gopher_quality": config.GopherQuality, "c4": config.C4, "fineweb": config.FineWeb}
    for family, section in families.items():
        for key, field in section.model_fields.items():
            made_for = (field.json_schema_extra or {}).get("made_for")
            if made_for:
                (row,) = [listed for name, listed in rows.items() if name.partition(" (")[0] == made_for]
                part = next(p for p in row.split("; ") if p.startswith(f"`{family}`"))
                assert f"`{key}`" in part, (family, key)
    for key, field in config.GopherRepetition.model_fields.items():
        made_for = (field.json_schema_extra or {}).get("made_for")
        assert made_for in (None, SPACED_SCRIPTS if "gram" in key else ANY_SCRIPT), key


def test_the_walk_from_own_files_to_shards_runs_as_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    texts = [document(random.Random(i), 40) for i in range(40)]
    lines = [json.dumps({"body": text, "id": i}) for i, text in enumerate([*texts, texts[0]])]
    (tmp_path / "data" / "a.jsonl").write_text("\n".join(lines))
    (tmp_path / "data" / "prices.csv").write_text("a,b\n1,2\n")
    ran = set()
    for line in "\n".join(code("your-own-data.md", "bash")).split("\n"):
        words = shlex.split(line, comments=True)[1:]
        if not words:
            continue
        words = words[: words.index(">")] if ">" in words else words
        more = ["--set", "run.engine=inline"] if words[0] == "run" else []
        result = CliRunner().invoke(cli.app, [*words, *more], catch_exceptions=False)
        assert result.exit_code == 0, f"{line}\n{result.output}"
        ran.add(words[0])
    assert {"init", "plan", "run", "shards", "samples", "export", "clean", "config"} <= ran
    assert (tmp_path / "runs" / "recipe" / "shards" / "train_000000.bin").exists()


# ----------------------------------------------------------------------------------------------------- code of the loader


@pytest.fixture
def shards(tmp_path):
    folder = tmp_path / "shards"
    make(folder, {"train": documents(4000, longest=80)}, per_shard=9999)
    return folder


def test_the_code_of_the_readme_runs(shards):
    pandas = pytest.importorskip("pandas")
    first, second = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    names = {"frame": pandas.DataFrame({"text": ["a text", "another text", "a text"]})}
    exec(first, names)
    assert names["frame"]["text"].tolist() == ["a text", "another text"]
    batches = second.index("for x, y in loader.batches")  # has no end
    exec(second[:batches].replace('"runs/quickstart"', repr(str(shards))).replace("1024", "64"), names)
    assert names["x"].shape == (16, 64)
    assert "loader.batches(step=500)" in second
    next(names["loader"].batches(step=500))


def test_the_loaders_page_runs(shards):
    names = {"torch": pytest.importorskip("torch")}
    for block in code("loader.md"):
        if not block.startswith("# train.py"):
            block = block.replace('"runs/quickstart"', repr(str(shards))).replace("1024", "64").replace('"wiki"', '"s"')
            exec(block, names)
    assert names["x"].shape == (16, 64)
    assert names["out"].shape == (2, 4, 64, 16)


def test_the_training_script_of_the_loaders_page_trains_and_says_where_it_is(shards, monkeypatch):
    torch = pytest.importorskip("torch")
    if not torch.distributed.is_available():
        pytest.skip("this torch has no torch.distributed")
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    for name, value in {"RANK": 0, "WORLD_SIZE": 1, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}.items():
        monkeypatch.setenv(name, str(value))
    names = {}
    exec(next(block for block in code("loader.md") if block.startswith("# train.py")), names)
    state = names["train"](shards)
    assert (state["epoch"], state["row"]) == (0, 3 * 4)


def test_the_page_of_python_runs(tmp_path, monkeypatch):
    pytest.importorskip("resiliparse")
    lines = [{"text": f"Line {i} of a file that is not long, but long enough for {i % 7} tokens."} for i in range(60)]
    (tmp_path / "mine.jsonl").write_text("\n".join(map(json.dumps, lines)))
    monkeypatch.chdir(tmp_path)
    names = {}
    for block in code("python.md"):
        exec(block, names)
    assert len(names["lengths"]) == 6
    assert names["scores"].num_rows == 6
    assert names["scrubbed"].texts.to_pylist() == ["write to <EMAIL>"]
    found = names["gc"].deduplicate(names["texts"])
    page = (DOCS / "python.md").read_text()
    assert repr(found) in page
    assert str(found.explain(4)).partition(":")[0] in page
