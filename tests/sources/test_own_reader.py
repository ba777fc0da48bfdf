"""A reader of the user's own, in one file outside the package: read, counted, fingerprinted, and told what it does wrong."""

from __future__ import annotations

import gzip
import json
import random
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml
from corpora import document
from typer.testing import CliRunner

import gpu_curate as gc
from gpu_curate import cli, config, own_code
from gpu_curate.api import pipeline
from gpu_curate.errors import ConfigError, FatalError, InputError
from gpu_curate.runs import finished
from gpu_curate.runs.fingerprints import fingerprints
from gpu_curate.store.files import read_json
from gpu_curate.tools.samples import samples

READER = '''
import gpu_curate as gc


class Lines(gc.Reader):
    """A document a line; in parts of a few lines, so that several workers read a file."""

    suffixes = (".lines",)
    comment: str = "#"
    columns_after: str | None = None

    def splits(self, path, size, max_bytes):
        with self.open(path) as f:
            lines = f.read().split(b"\\\\n")[:-1]
        cuts = range(0, max(len(lines), 1), 20)
        return [gc.Split(path, at, at + 20, at, sum(map(len, lines[at : at + 20])), False) for at in cuts]

    def read(self, split):
        with self.open(split.path) as f:
            for row, line in enumerate(f):
                if not split.start <= row < split.stop:
                    continue
                text = line.decode("utf-8", "replace").rstrip()
                if text.startswith(self.comment):
                    yield gc.Skip("comment")
                elif not text:
                    yield gc.Reject(row, None, "an empty line")
                elif self.columns_after:
                    text, _, url = text.partition(self.columns_after)
                    yield gc.Record(row, text, {"url": url, "length": len(text)})
                else:
                    yield gc.Record(row, text)
'''.replace("\\\\n", "\\n")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Two files of 50 lines, one compressed: documents, a comment, an empty line."""
    folder = tmp_path_factory.mktemp("lines")
    rng = random.Random(2)
    lines = [document(rng).replace("\n", " ") + f"\thttp://x/{i}" for i in range(96)]
    lines[10:10] = ["# a comment"]
    lines[30:30] = [""]
    (folder / "data").mkdir()
    (folder / "data" / "a.lines").write_text("\n".join(lines[:49]) + "\n")
    (folder / "data" / "b.lines.gz").write_bytes(gzip.compress(("\n".join(lines[49:]) + "\n").encode()))
    (folder / "data" / "c.other").write_text("not read")
    return folder, lines


def write(folder: Path, corpus: Path, tokenizer, source=READER, name="my_reader.py", **keys):
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(source)
    of = {"name": "mine", "type": f"{name}:Lines", "path": str(corpus / "data"), "columns_after": "\t", **keys}
    data = {
        "sources": [{k: v for k, v in of.items() if v is not None}],
        "tokenizer": {"path": str(tokenizer)},
        "min_tokens": 0,
        "shards": {"validation": {"tokens": 0}},
        "run": {"engine": "inline", "partition_bytes": 65536},
    }
    (folder / "r.yaml").write_text(yaml.safe_dump(data, sort_keys=False))
    return folder / "r.yaml"


def load(path, *overrides):
    return config.load(path, list(overrides), trust_code=True)


def boxes(run, name):
    folder = read_json(run / "run.json")["folders"][name]
    return [r for p in sorted((run / folder).glob("*.parquet")) for r in pq.read_table(p).to_pylist()]


@pytest.fixture(scope="module")
def reference(tmp_path_factory, corpus, tokenizer):
    folder = tmp_path_factory.mktemp("reference")
    path = write(folder, corpus[0], tokenizer)
    return path, folder / "run", pipeline.execute(load(path), folder / "run")


def test_a_run_reads_by_it_and_counts_everything(reference, corpus):
    _, run, _ = reference
    wanted = [(i, line) for i, line in enumerate(corpus[1]) if line and not line.startswith("#")]
    rows = boxes(run, "documents")
    assert [r["row"] for r in rows] == [i if i < 49 else i - 49 for i, _ in wanted]
    assert [r["url"] for r in rows] == [line.partition("\t")[2] for _, line in wanted]
    assert [int(r["length"]) for r in rows] == [len(line.partition("\t")[0]) for _, line in wanted]
    texts = [t for table in gc.open_run(run).texts() for t in table["text"].to_pylist()]
    assert texts == [line.partition("\t")[0] for _, line in wanted]
    facts = read_json(run / "report" / "report.json")
    assert facts["documents"]["read"] == 97
    assert facts["rejected_by_reason"] == {"an empty line": 1}
    assert facts["skipped"] == {"mine:comment": 1}
    assert facts["code"][0]["name"] == "my_reader.py:Lines"
    manifest = (run / "shards" / "manifest.json").read_text()
    assert "my_reader.py:Lines" in manifest


def test_plan_and_two_workers_from_the_command_line(reference, tmp_path):
    path, run, _ = reference
    options = ["--out", str(tmp_path / "r"), "--set", "run.engine=local", "--workers", "2"]
    for command in ("plan", "run"):
        refused = CliRunner().invoke(cli.app, [command, str(path), *options])
        assert "sources.mine.type: the recipe runs code of" in str(refused.exception)
    plan = CliRunner().invoke(cli.app, ["plan", str(path), *options, "--trust-code"])
    assert plan.exit_code == 0, plan.output
    assert "code         my_reader.py:Lines: " in plan.output
    done = CliRunner().invoke(cli.app, ["run", str(path), *options, "--trust-code"])
    assert done.exit_code == 0, done.output
    for file in sorted((run / "documents").glob("*.parquet")):
        assert (tmp_path / "r" / "documents" / file.name).read_bytes() == file.read_bytes()
    assert (tmp_path / "r" / "shards" / "train_000000.bin").read_bytes() == (
        run / "shards" / "train_000000.bin"
    ).read_bytes()


def test_its_source_and_its_keys_are_in_the_fingerprint(reference, corpus, tokenizer, tmp_path):
    _, _, first = reference
    path = write(tmp_path / "a", corpus[0], tokenizer)
    assert fingerprints(load(path)) == first.fingerprint_of  # in another folder, the same class
    for changed in (
        write(tmp_path / "b", corpus[0], tokenizer, READER + "# changed"),
        write(tmp_path / "c", corpus[0], tokenizer, comment=";"),
    ):
        assert fingerprints(load(changed))["documents"] != first.fingerprint_of["documents"]
    assert fingerprints(load(write(tmp_path / "d", corpus[0], tokenizer, comment="#"))) == first.fingerprint_of


def test_a_finished_run_is_read_without_the_class(reference, tmp_path):
    _, run, _ = reference
    shutil.copytree(run, tmp_path / "r", symlinks=True)
    context = finished.open_run(tmp_path / "r")
    assert samples(context, "kept", 1)[0]["source"] == "mine"
    with pytest.raises(ConfigError, match=r"sources\.mine\.type: my_reader\.py:Lines: this code is not loaded"):
        pipeline.execute(context.config, tmp_path / "r2")


def test_limits_of_every_source_hold(corpus, tokenizer, tmp_path):
    path = write(tmp_path / "a", corpus[0], tokenizer, max_documents=15, keep_columns=["url"])
    pipeline.execute(load(path), tmp_path / "run")
    assert len(boxes(tmp_path / "run", "documents")) == 15


# ------------------------------------------------------------------------------------------------- what is wrong


@pytest.mark.parametrize(
    ("source", "keys", "says"),
    [
        (READER, {"coment": "x"}, r"sources\.mine\.coment: unknown key .did you mean 'comment'"),
        (READER, {"keep_colums": ["x"]}, r"sources\.mine\.keep_colums: unknown key .did you mean 'keep_columns'"),
        (READER, {"comment": 3}, r"sources\.mine\.comment: input should be a valid string, got 3"),
        (READER, {"max_documents": -1}, r"sources\.mine\.max_documents: .*greater than or equal to 0, got -1"),
        (READER, {"type": "my_reader.py:Line"}, r"sources\.mine\.type: \S+my_reader\.py has no class Line .did you mean 'Lines'"),
        (READER, {"type": "my_reader:Lines"}, r"type 'my_reader:Lines' is not one of parquet.*nor PATH\.py:CLASS"),
        (READER, {"type": "my_reader.py:gc"}, r"gc is no reader\nhint: write class gc\(gc\.Reader\)"),
        (READER, {"path": "nowhere/*.lines"}, r"source mine: path: nowhere/\*\.lines matches no file"),
        (READER.replace("comment: str", "weight: str"), {}, r"class Lines: every source has a key weight"),
        (READER.replace('(".lines",)', '".lines"'), {}, r"class Lines: suffixes is '\.lines'\nhint: a tuple"),
        ("import no_such_module", {}, r"my_reader\.py, line 1: ModuleNotFoundError"),
    ],
)  # fmt: skip
def test_a_wrong_class_or_key_is_named(corpus, tokenizer, tmp_path, source, keys, says):
    path = write(tmp_path / "a", corpus[0], tokenizer, source, **keys)
    with pytest.raises(ConfigError, match=says):
        fingerprints(load(path))


BODY = "import gpu_curate as gc\n\nclass Lines(gc.Reader):\n    columns_after: str = ''\n    def read(self, split):\n        "


@pytest.mark.parametrize(
    ("source", "says"),
    [
        (BODY + "yield 'text'", "Lines: read gives str 'text', not gpu_curate.Record, Reject or Skip"),
        (BODY + "yield gc.Record(0, b'text')", r"Lines: \S+a\.lines: a text is bytes b'text', not str"),
        (BODY + "yield gc.Record(1, 'a'); yield gc.Record(1, 'b')", r"a\.lines: row 1 after row 1\nhint: rows are integers that grow"),
        (BODY + "yield gc.Record('1', 'a')", r"row '1' after row -1"),
        (BODY + "yield gc.Record(1 << 36, 'a')", r"row 68719476736 after row -1"),
        (BODY + "yield gc.Record(0, 'a', ['x'])", r"columns are list \['x'\], not a mapping"),
        (BODY + "return\n    def splits(self, path, size, n): return [gc.Split(path, 0, 0, 'a', 0)]", "Lines: splits gives Split"),
        (BODY + "return\n    def splits(self, path, size, n): return [3]", "Lines: splits gives int 3, not gpu_curate.Split"),
    ],
)  # fmt: skip
def test_what_a_reader_gives_wrong_stops_the_run_and_names_it(corpus, tokenizer, tmp_path, source, says):
    path = write(tmp_path / "a", corpus[0], tokenizer, source, path=str(corpus[0] / "data" / "a.lines"))
    with pytest.raises(FatalError, match=says):
        pipeline.execute(load(path), tmp_path / "run")


def test_what_it_raises_about_a_file_is_a_reject_of_that_file(corpus, tokenizer, tmp_path):
    source = READER.replace("text = line", "if row == 5: raise ValueError('torn')\n                text = line")
    path = write(tmp_path / "a", corpus[0], tokenizer, source)
    pipeline.execute(load(path), tmp_path / "run")
    facts = read_json(tmp_path / "run" / "report" / "report.json")
    assert facts["rejected_by_reason"] == {"unreadable": 2, "an empty line": 1}
    assert facts["rejects"]["mine"]["first"]["reason"] == "unreadable: ValueError: torn"
    assert len(facts["incomplete"]) == 2
    with pytest.raises(InputError, match=r"a\.lines: row 4: unreadable: ValueError: torn"):
        pipeline.execute(load(path, "run.strict=true"), tmp_path / "strict")


def test_a_reader_that_skips_is_told_how_many():
    class Many(gc.Reader):
        def read(self, split, skip=0):
            yield from (gc.Record(row, str(row)) for row in range(skip, 10))

    class Plain(gc.Reader):
        def read(self, split):
            yield from (gc.Record(row, str(row)) for row in range(10))

    from gpu_curate.sources.own import Checked

    for kind in (Many, Plain):
        reader = Checked(kind())
        assert [r.row for r in reader.read(gc.Split("p", 0, -1, 0, 0), 7)] == [7, 8, 9]
        assert [r.row for r in reader.read(gc.Split("p", 0, -1, 0, 0))] == list(range(10))


def test_columns_that_it_says_are_checked(corpus, tokenizer, tmp_path):
    source = READER + "\n    def columns(self, path): return ['url', 'length']\n"
    fine = write(tmp_path / "a", corpus[0], tokenizer, source, keep_columns=["url"])
    pipeline.execute(load(fine), tmp_path / "run")
    wrong = write(tmp_path / "b", corpus[0], tokenizer, source, keep_columns=["link"])
    with pytest.raises(
        ConfigError, match=r"source mine: \S+a\.lines has no column 'link' .keep_columns.*it has url, length"
    ):
        pipeline.execute(load(wrong), tmp_path / "run2")


def test_an_entry_point_is_a_type(corpus, tokenizer, tmp_path, monkeypatch):
    site = tmp_path / "site"
    info = site / "lines_of_mine-0.1.dist-info"
    info.mkdir(parents=True)
    (site / "lines_of_mine.py").write_text(READER)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: lines-of-mine\nVersion: 0.1\n")
    (info / "entry_points.txt").write_text("[gpu_curate.readers]\nlines = lines_of_mine:Lines\n")
    monkeypatch.syspath_prepend(str(site))
    own_code.entry_points.cache_clear()
    path = write(tmp_path / "a", corpus[0], tokenizer, type="lines")
    try:
        pipeline.execute(config.load(path), tmp_path / "run")
        assert read_json(tmp_path / "run" / "report" / "report.json")["code"][0]["package"] == "lines-of-mine 0.1"
    finally:
        monkeypatch.undo()
        own_code.entry_points.cache_clear()
    assert finished.open_run(tmp_path / "run").config.sources[0].type == "lines"  # the package is gone
    with pytest.raises(ConfigError, match="type 'lines' is not one of"):
        config.load(path)


def test_a_rule_on_a_column_that_only_it_gives(corpus, tokenizer, tmp_path):
    path = write(tmp_path / "a", corpus[0], tokenizer)
    pipeline.execute(load(path, "quality.columns={length: {min: 300}}"), tmp_path / "run")
    lengths = [int(r["length"]) for r in boxes(tmp_path / "run", "documents")]
    dropped = [r["reason"] == "columns:min_length" for r in boxes(tmp_path / "run", "decisions")]
    assert dropped == [n < 300 for n in lengths]
    assert any(dropped)
    assert (
        json.loads((tmp_path / "run" / "report" / "report.json").read_text())["spreads"]["columns:length"]["missing"]
        == 0
    )
