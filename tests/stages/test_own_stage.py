"""A stage in a file of the user's: planned, run in workers, counted, reported, reused and fingerprinted like ours."""

from __future__ import annotations

import importlib
import json
import os
import pickle
import random
import re
import subprocess
import sys

import pyarrow.parquet as pq
import pytest
from corpora import document
from places import ROOT

import gpu_curate as gc
from gpu_curate import config
from gpu_curate.api import pipeline
from gpu_curate.errors import ConfigError
from gpu_curate.runs.cleaning import clean
from gpu_curate.runs.planning import make_plan
from gpu_curate.runs.state import run_state
from gpu_curate.stages.order import stages_of
from gpu_curate.stages.shipped import ship
from gpu_curate.store.files import read_json


@pytest.fixture
def own(tmp_path, monkeypatch):
    """The stage of the documentation as a module of a folder of its own; a helper lies beside it."""
    page = (ROOT / "docs" / "extend.md").read_text()
    block = page.split("<!-- stage example -->")[1].split("<!-- end of stage example -->")[0]
    folder = tmp_path / "mine"
    folder.mkdir()
    text = re.search(r"```python\n(.*)```", block, re.S)[1]
    (folder / "digits.py").write_text(text.replace("import numpy", "import beside\nimport numpy", 1))
    (folder / "beside.py").write_text("ZERO = 0\n")
    monkeypatch.syspath_prepend(str(folder))
    for name in ("digits", "beside"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    yield folder, importlib.import_module("digits")
    for name in ("digits", "beside"):
        sys.modules.pop(name, None)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("own")
    rng = random.Random(8)
    texts = [document(rng, 12) + " 0123456789" * (i % 3 * 30) for i in range(120)]
    (folder / "s.jsonl").write_text("\n".join(json.dumps({"text": t}) for t in texts))
    recipe = {
        "sources": [{"name": "s", "type": "jsonl", "path": str(folder / "s.jsonl")}],
        "tokenizer": {"train": {"vocab_size": 300}},
        "shards": {"validation": {"tokens": 300}},
        "run": {"engine": "inline", "partition_bytes": 65536},
    }
    return recipe, texts


def digits(text):
    return sum(c in "0123456789" for c in text)


def test_a_stage_of_the_users_is_run_counted_reported_and_reused(own, data, tmp_path):
    _, module = own
    recipe, texts = data
    stages = [*gc.STAGES, module.Digits(above=0.1)]
    parsed, run = config.parse({**recipe, "run": {**recipe["run"], "engine": "local", "workers": 2}}), tmp_path / "r"
    before = {b["name"]: b["state"] for b in make_plan(parsed, run, stages=stages)["boxes"]}
    assert before["digits"] == "to do"
    outcome = pipeline.execute(parsed, run, stages=stages)
    parts = len(list((run / "documents").glob("*.parquet")))
    assert parts >= 2
    made = [
        x
        for p in sorted((run / "digits").glob("*.parquet"), key=lambda p: p.stem)
        for x in pq.read_table(p)["digits"].to_pylist()
    ]
    assert made == pytest.approx([digits(t) / len(t) for t in texts], rel=1e-6)
    (step,) = [s for s in read_json(run / "report/report.json")["steps"] if s["name"] == "digits"]
    assert step["counts"] == {"digits": sum(digits(t) for t in texts if digits(t) / len(t) > 0.1)}
    assert (step["documents"], step["partitions"], step["reused"]) == (len(texts), parts, 0)
    assert "step of your own" in (run / "report/index.html").read_text()
    assert run_state(run)["boxes"]["digits"]["partitions"] == parts
    assert {b["name"]: b["state"] for b in make_plan(parsed, run, stages=stages)["boxes"]}["digits"] == "reused"
    again = pipeline.execute(parsed, run, stages=stages)
    assert again.reused["digits"] == parts
    assert again.fingerprint_of == outcome.fingerprint_of
    assert clean(run)["items"] == []
    pipeline.execute(parsed, run)  # without it: ours are as they were, and what nobody needs may go
    assert [i["folder"] for i in clean(run)["items"]] == ["digits"]


def test_its_own_source_what_lies_beside_it_and_its_fields_are_in_its_fingerprint(own, data, tmp_path):
    from gpu_curate.runs.fingerprints import fingerprints

    folder, module = own
    parsed = config.parse(data[0])

    def fingerprint_of(**fields):
        return fingerprints(parsed, None, [*gc.STAGES, module.Digits(**fields)])

    first = fingerprint_of()
    assert fingerprint_of() == first
    assert {n for n, p in fingerprint_of(above=0.3).items() if p != first[n]} == {"digits"}
    for name in ("digits.py", "beside.py"):
        text = (folder / name).read_text()
        (folder / name).write_text(text + "# another line\n")
        assert {n for n, p in fingerprint_of().items() if p != first[n]} == {"digits"}, name
        (folder / name).write_text(text)
    assert fingerprint_of() == first


def test_a_changed_stage_gets_a_folder_of_its_own_and_the_rest_is_reused(own, data, tmp_path):
    folder, module = own
    parsed, run = config.parse(data[0]), tmp_path / "r"
    pipeline.execute(parsed, run, stages=[*gc.STAGES, module.Digits()])
    text = (folder / "digits.py").read_text()
    (folder / "digits.py").write_text(text.replace("c.isdigit()", "c == '0'"))
    os.utime(folder / "digits.py", (1, 1))  # not the time of the compiled one
    outcome = pipeline.execute(parsed, run, stages=[*gc.STAGES, importlib.reload(module).Digits()])
    assert outcome.context.folders["digits"].startswith("digits-")
    assert {n for n, r in outcome.reused.items() if r == 0} == {"digits"}


def test_its_source_travels_to_a_worker_that_does_not_find_it(own, tmp_path):
    _, module = own
    (tmp_path / "shipped").write_bytes(pickle.dumps(ship(module.Digits(above=0.5))))
    code = (
        "import pickle, sys\n"
        "stage = pickle.load(open(sys.argv[1], 'rb')).stage()\n"
        "print(type(stage).__module__, stage.above, stage.name, stage.counts.__name__)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "shipped")], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.stdout.split() == ["digits", "0.5", "digits", "DigitCounts"], done.stderr


class Rejecting(gc.Stage):
    name = "rejecting"
    follows = "documents"

    def make(self, part):
        part.rejects.add(0, "for no reason", b"")
        return gc.Made(gc.Counts())


class Longest(gc.Stage):
    name = "longest"
    inputs = ("decisions",)

    def make(self, part):
        box = part.boxes.box("decisions")
        longest = max(int(box.columns(p, "tokens")[0].max()) for p in box.parts())
        part.path(".txt").write_text(str(longest))
        part.warn(f"the longest has {longest} tokens")
        return gc.Made(gc.Counts(), files=(part.path(".txt"),))


class NoName(gc.Stage):
    pass


class Named(gc.Stage):
    def __init__(self, name, inputs=()):
        self.name, self.inputs = name, inputs


@pytest.mark.parametrize(
    ("stages", "said"),
    [
        ([*gc.STAGES, Named], "Named is a class"),
        ([*gc.STAGES, NoName()], "NoName.name is None"),
        ([*gc.STAGES, Named("Digits!")], "'Digits!'"),
        ([*gc.STAGES, Named("scores")], "there is a scores already"),
        ([*gc.STAGES, Named("texts")], "there is a texts already"),
        ([*gc.STAGES, Named("one"), Named("one")], "there is a one already"),
        ([*gc.STAGES, Named("one", ("two",)), Named("two")], "stage one reads two, which this recipe does not make"),
        ([*gc.STAGES, Named("one", ("contamination",))], "stage one reads contamination"),
        ([*gc.STAGES[1:], Named("one")], "documents is missing"),
        ([*gc.STAGES, "digits"], "'digits' is no stage"),
    ],
)
def test_what_is_no_stage_or_cannot_be_placed_is_refused_before_the_run(data, tmp_path, stages, said):
    with pytest.raises(ConfigError) as e:
        stages_of(config.parse(data[0]), stages)
    assert said in str(e.value)
    with pytest.raises(ConfigError):
        gc.run(data[0], tmp_path / "r", stages=stages)
    assert not (tmp_path / "r").exists()


def test_a_stage_that_stands_in_no_file_is_refused(data, tmp_path):
    space: dict[str, object] = {"__name__": "nowhere"}
    exec("import gpu_curate as gc\nclass Odd(gc.Stage):\n    name = 'odd'\n", space)
    with pytest.raises(ConfigError, match="stands in no file"):
        gc.run(data[0], tmp_path / "r", stages=[*gc.STAGES, space["Odd"]()])


def test_a_stage_that_may_not_reject_says_so(own, data, tmp_path):
    with pytest.raises(gc.GpuCurateError, match="rejecting rejects no documents"):
        pipeline.execute(config.parse(data[0]), tmp_path / "r", stages=[*gc.STAGES, Rejecting()])


def test_a_stage_of_one_task_reads_whole_boxes_and_names_its_files(data, tmp_path):
    outcome = pipeline.execute(config.parse(data[0]), tmp_path / "r", stages=[*gc.STAGES, Longest()])
    longest = (tmp_path / "r/longest/part-000000.txt").read_text()
    assert f"the longest has {longest} tokens" in outcome.warnings
    assert (
        f"the longest has {longest} tokens"
        in pipeline.execute(config.parse(data[0]), tmp_path / "r", stages=[*gc.STAGES, Longest()]).warnings
    )
