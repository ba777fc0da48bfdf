"""`gpu-curate init`: a recipe that `run` takes, written by looking at the files; and the recipes that come with the package."""

from __future__ import annotations

import bz2
import gzip
import json
import subprocess
import sys
import zipfile

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from places import ROOT
from typer.testing import CliRunner

from gpu_curate import cli, config
from gpu_curate.api import pipeline
from gpu_curate.config.yaml import read_yaml
from gpu_curate.errors import ConfigError
from gpu_curate.tools import config_reference as reference
from gpu_curate.tools import recipes

LONG = "A sentence that is long enough to be the text of a document, with some more words. " * 8


def sources_of(text, tmp_path):
    path = tmp_path / "made.yaml"
    path.write_text(text)
    return {s.name: s for s in config.load(path).sources}


def compose(tmp_path, *paths):
    text, _, left = recipes.compose([str(p) for p in paths], "made.yaml")
    return text, sources_of(text, tmp_path), {f.path.rpartition("/")[2]: f.why_not for f in left}


def test_a_folder_of_everything_becomes_a_source_for_each_kind_and_says_what_is_not_read(tmp_path):
    d = tmp_path / "data"
    d.mkdir()
    (d / "a.jsonl").write_text(
        "".join(json.dumps({"id": str(i), "body": f"{i} {LONG}", "url": "u"}) + "\n" for i in range(9))
    )
    (d / "b.jsonl.gz").write_bytes(gzip.compress(json.dumps({"body": LONG}).encode()))
    pq.write_table(pa.table({"doc": [{"title": "t", "text": LONG}] * 3, "n": [1, 2, 3]}), d / "c.parquet")
    (d / "d.txt").write_text(LONG)
    (d / "e.xml.bz2").write_bytes(
        bz2.compress(b'<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/">\n</mediawiki>')
    )
    (d / "f.warc.gz").write_bytes(
        gzip.compress(b"WARC/1.0\r\nWARC-Type: warcinfo\r\nContent-Length: 0\r\n\r\n\r\n\r\n")
    )
    (d / "g.csv").write_text("a,b\n1,2\n")
    (d / "h.bin").write_bytes(bytes(range(256)))
    (d / "i.jsonl").write_bytes(gzip.compress(json.dumps({"body": LONG}).encode()))
    (d / "j.txt").write_text("")
    (d / "k.dat").write_text(json.dumps({"body": LONG}) + "\n")
    (d / "_SUCCESS").write_text("")
    (d / ".hidden.jsonl").write_text("{}")
    _, sources, left = compose(tmp_path, d)
    by_type = {s.type: s for s in sources.values()}
    assert set(by_type) == {"jsonl", "parquet", "text", "wikipedia", "warc"}
    assert by_type["jsonl"].text_column == "body"
    assert by_type["parquet"].text_column == "doc.text"
    assert by_type["text"].path == f"{d}/**/*.txt"
    assert (
        left
        == {
            "g.csv": "a table: convert it to Parquet (pyarrow.csv.read_csv, pyarrow.parquet.write_table)",
            "h.bin": "binary",
            "j.txt": "empty",
            "k.dat": "jsonl data under another name: rename it to end in .jsonl",
        }
        or "k.dat" not in left
    )


@pytest.mark.parametrize(
    ("records", "column"),
    [
        ([{"text": LONG, "title": "t"}], "text"),
        ([{"id": "1" * 40, "data": {"meta": {"url": "u"}, "raw_content": LONG}}], "data.raw_content"),
        ([{"question": "Why?", "reasoning": LONG}], "reasoning"),
        ([{"text": "label", "story": LONG}], "story"),
        ([{"content": "Short but it is the text.", "url": "http://example.com/" + "x" * 60}], "content"),
        ([{"text": None, "body": LONG}, {"text": None, "body": LONG}], "body"),
        ([{"\u6b63\u6587": LONG, "id": 1}], "\u6b63\u6587"),
    ],
)
@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_the_text_column_is_the_one_with_the_text(tmp_path, records, column, kind):
    path = tmp_path / f"a.{kind}"
    if kind == "jsonl":
        path.write_text("".join(json.dumps(r, ensure_ascii=False) + "\n" for r in records))
    else:
        pq.write_table(pa.Table.from_pylist(records), path)
    _, sources, _ = compose(tmp_path, path)
    assert [(s.type, s.text_column) for s in sources.values()] == [(kind, column)]


def test_files_of_one_kind_with_other_columns_are_sources_of_their_own(tmp_path):
    for name, column in (("a", "text"), ("b", "text"), ("c", "body")):
        (tmp_path / f"{name}.jsonl").write_text(json.dumps({column: LONG}) + "\n")
    _, sources, _ = compose(tmp_path, tmp_path)
    found = {(tuple(p.rpartition("/")[2] for p in s.paths), s.text_column) for s in sources.values()}
    assert found == {(("a.jsonl", "b.jsonl"), "text"), (("c.jsonl",), "body")}


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "empty"),
        (b'{"a": 1}\n{"a": 2}\n', "no column with text in its first records"),
        (b'{\n "text": "pretty",\n "b": 1\n}\n', "one JSON object over many lines"),
        (b"PAR1 is not all of it", "unreadable"),
    ],
)
def test_a_file_that_no_reader_takes_is_an_error_that_says_why(tmp_path, content, why):
    (tmp_path / "x.jsonl").write_bytes(content)
    with pytest.raises(ConfigError, match=why):
        recipes.compose([str(tmp_path / "x.jsonl")], "made.yaml")
    with pytest.raises(ConfigError, match="matches no file"):
        recipes.compose([str(tmp_path / "y.jsonl")], "made.yaml")


def test_the_written_recipe_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my data").mkdir()
    lines = [json.dumps({"body": f"Document {i}. {LONG}", "url": f"http://x/{i}"}) for i in range(20)]
    (tmp_path / "my data" / "a.jsonl").write_text("\n".join(lines))
    done = CliRunner().invoke(cli.app, ["init", "my data"])
    assert done.exit_code == 0, done.output
    assert "body" in done.output
    assert "gpu-curate run recipe.yaml" in done.output
    again = CliRunner().invoke(cli.app, ["init", "my data"])
    assert isinstance(again.exception, ConfigError)
    assert "recipe.yaml exists" in str(again.exception)
    made = config.load("recipe.yaml", ["run.engine=inline", "tokenizer.train.vocab_size=300"])
    outcome = pipeline.execute(made, tmp_path / "r")
    facts = json.loads((tmp_path / "r" / "report" / "report.json").read_text())
    assert facts["documents"]["read"] == 20
    assert outcome.context.box("shards").sealed()


@pytest.mark.parametrize(
    "value", ["no", "1e3", "2024-01-01", "a b", "x: y", '"', "\u65e5\u672c", "#", "~", "null", "-"]
)
def test_names_come_back_from_yaml_as_they_were(value):
    assert read_yaml(f"a: {recipes._yaml(value)}     # more", "x") == {"a": value}


# --------------------------------------------------------------------------------------------------- shipped recipes


def test_a_shipped_recipe_is_copied_whole_and_a_misspelt_one_suggested(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(cli.app, ["init", "--recipe", "commoncrawl", "--out", "web.yaml"])
    assert done.exit_code == 0, done.output
    assert (tmp_path / "web.yaml").read_text() == (ROOT / "configs" / "commoncrawl.yaml").read_text()
    wrong = CliRunner().invoke(cli.app, ["init", "--recipe", "comoncrawl", "--out", "w.yaml"])
    assert "did you mean 'commoncrawl'?" in str(wrong.exception)
    both = CliRunner().invoke(cli.app, ["init", "x", "--recipe", "commoncrawl"])
    assert "takes no PATH" in str(both.exception)


def test_the_wheel_holds_the_recipes(tmp_path):
    pytest.importorskip("hatchling", reason="needs hatchling, which builds the wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        cwd=ROOT, check=True, capture_output=True, timeout=120,
    )  # fmt: skip
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        held = [n for n in archive.namelist() if n.startswith("gpu_curate/configs/")]
        archive.extractall(tmp_path / "site")
    assert sorted(held) == sorted(f"gpu_curate/configs/{p.name}" for p in (ROOT / "configs").glob("*.yaml"))
    code = "from gpu_curate.tools import recipes; print(recipes.folder(), len(recipes.read('commoncrawl')))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(tmp_path / "site")},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.stdout.startswith(str(tmp_path / "site" / "gpu_curate" / "configs")), done.stderr


@pytest.mark.parametrize("path", sorted((ROOT / "configs").glob("*.yaml")), ids=lambda p: p.stem)
def test_every_recipe_speaks_of_your_own_data_and_fits_the_schema(path):
    jsonschema = pytest.importorskip("jsonschema", reason="needs jsonschema (the extra `test`)")
    text = path.read_text()
    assert "# Your own data: " in text
    assert "huggingface-cli" not in text
    jsonschema.Draft202012Validator(reference.json_schema()).validate(read_yaml(text, path.name))


MINIMAL = {"sources": [{"name": "a", "type": "jsonl", "path": "x.jsonl"}], "tokenizer": {"path": "t.json"}}


@pytest.mark.parametrize(
    ("keys", "fits"),
    [
        ({}, True),
        ({"quality": {"gopher_quality": True, "c4": "off", "fineweb": None, "gopher_repetition": False}}, True),
        ({"quality": {"c4": {"min_sentences": None}}}, True),
        ({"pii": {"email": False, "ip": "replace"}}, True),
        ({"pii": None, "language": None, "normalize": None}, True),
        (
            {"shards": {"tokens_per_shard": "100_000_000"}},
            True,
        ),  # as an editor reads it; the run's reader sees a number
        ({"min_tokens": "64"}, False),
        ({"min_token": 64}, False),
        ({"quality": {"c4": "onn"}}, False),
        ({"pii": {"email": "replce"}}, False),
        ({"run": {"backend": "cuda"}}, False),
        ({"sources": [{"name": "a", "type": "jsnl", "path": "x"}]}, False),
        ({"sources": [{"name": "a", "type": "text", "text_column": "x"}]}, False),
        ({"sources": []}, False),
    ],
)
def test_the_schema_takes_what_the_config_takes(keys, fits):
    jsonschema = pytest.importorskip("jsonschema", reason="needs jsonschema (the extra `test`)")
    schema = reference.json_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    data = {**MINIMAL, **keys}
    assert jsonschema.Draft202012Validator(schema).is_valid(data) == fits
    underscores = any("_" in str(v) for v in keys.get("shards", {}).values())
    if not underscores:
        try:
            config.parse(data)
        except ConfigError:
            assert not fits
        else:
            assert fits


def test_schema_and_reference_are_printed():
    printed = CliRunner().invoke(cli.app, ["config", "schema"])
    assert json.loads(printed.stdout) == reference.json_schema()
    assert CliRunner().invoke(cli.app, ["config", "reference"]).stdout.startswith("## Top level")
