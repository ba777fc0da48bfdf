"""gpu_curate.sources.huggingface on local folders, on a stand-in for the hub, and streamed; no network."""

from __future__ import annotations

import json
import pickle
import sys
import types

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gpu_curate.config import HuggingFaceSource
from gpu_curate.errors import ConfigError
from gpu_curate.sources import Record, Reject
from gpu_curate.sources.huggingface import HuggingFaceReader


def parquet(path, texts, rows=2):
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pa.table({"text": pa.array(texts, pa.string()), "url": [f"u{i}" for i in range(len(texts))]})
    pq.write_table(table, path, row_group_size=rows)


def jsonl(path, texts):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps({"text": t}) + "\n" for t in texts))


def source(folder, **keys):
    return HuggingFaceSource(type="huggingface", name="set", dataset=str(folder), **keys)


def records(src):
    reader = pickle.loads(pickle.dumps(HuggingFaceReader(src)))  # it goes to worker processes
    return [
        item for f in reader.files().files for s in reader.splits(f.path, f.size, 1 << 20) for item in reader.read(s)
    ]


def texts(src):
    return [r.text for r in records(src)]


def relative(src):
    return [f.relative for f in HuggingFaceReader(src).files().files]


@pytest.fixture
def sharded(tmp_path):
    parquet(tmp_path / "data/train-00000-of-00002.parquet", ["a", "b", "c", "d", "e"])
    parquet(tmp_path / "data/train-00001-of-00002.parquet", ["f"])
    parquet(tmp_path / "data/test-00000-of-00001.parquet", ["t"])
    (tmp_path / ".cache").mkdir()
    parquet(tmp_path / ".cache/train.parquet", ["hidden"])
    return tmp_path


def test_sharded_layout_gives_splits_in_order(sharded):
    assert texts(source(sharded)) == ["a", "b", "c", "d", "e", "f"]
    assert texts(source(sharded, split="test")) == ["t"]


def test_rows_columns_and_row_group_sampling_are_those_of_the_parquet_reader(sharded):
    src = source(sharded, keep_columns=["url"], row_groups={"every": 2})
    assert records(src) == [
        Record(0, "a", {"url": "u0"}), Record(1, "b", {"url": "u1"}), Record(4, "e", {"url": "u4"}), Record(0, "f", {"url": "u0"}),
    ]  # fmt: skip


def test_declared_configurations(tmp_path):
    parquet(tmp_path / "en/one.parquet", ["en 1"])
    parquet(tmp_path / "en/two.parquet", ["en 2"])
    parquet(tmp_path / "fr/one.parquet", ["fr 1"])
    parquet(tmp_path / "fr/held.parquet", ["fr held"])
    (tmp_path / "README.md").write_text(
        "---\nlicense: mit\nconfigs:\n"
        "- config_name: en\n  default: true\n  data_files: en/*.parquet\n"
        "- config_name: fr\n  data_files:\n  - split: train\n    path: [fr/one.parquet]\n  - split: held\n    path: fr/held*\n"
        "- config_name: dir\n  data_dir: en\n"
        "---\n# A set\n"
    )
    assert texts(source(tmp_path)) == ["en 2", "en 1"][::-1]
    assert texts(source(tmp_path, config="fr")) == ["fr 1"]
    assert texts(source(tmp_path, config="fr", split="held")) == ["fr held"]
    assert texts(source(tmp_path, config="dir")) == ["en 1", "en 2"]
    with pytest.raises(ConfigError, match=r"config 'de' does not exist \(it has en, fr, dir\)"):
        relative(source(tmp_path, config="de"))
    with pytest.raises(ConfigError, match=r"split 'test' does not exist \(it has held, train\)"):
        relative(source(tmp_path, config="fr", split="test"))


def test_missing_configuration_is_an_error_that_names_them(tmp_path):
    parquet(tmp_path / "x/a.parquet", ["x"])
    (tmp_path / "README.md").write_text(
        "---\nconfigs:\n- {config_name: x, data_files: x/*}\n- {config_name: y, data_files: x/*}\n---\n"
    )
    with pytest.raises(ConfigError, match=r"config is missing \(it has x, y\)") as e:
        relative(source(tmp_path))
    assert "config: x" in e.value.hint


def test_folder_as_configuration_where_none_is_declared(tmp_path):
    parquet(tmp_path / "sample/10BT/000.parquet", ["small"])
    parquet(tmp_path / "data/CC/000.parquet", ["large"])
    assert texts(source(tmp_path, config="sample/10BT")) == ["small"]
    with pytest.raises(ConfigError, match=r"config 'nope' does not exist .*folders: data, sample"):
        relative(source(tmp_path, config="nope"))


def test_the_hubs_own_conversion(tmp_path):
    parquet(tmp_path / "default/train/0000.parquet", ["a"])
    parquet(tmp_path / "default/unsupervised/0000.parquet", ["b"])
    (tmp_path / "README.md").write_text("no head")
    assert texts(source(tmp_path / "default", split="unsupervised")) == ["b"]


LAYOUTS = {
    "sharded": ["data/train-00000-of-00002.parquet", "data/train-00001-of-00002.parquet", "data/dev_set-00000-of-00001.parquet"],
    "folders": ["train/a.parquet", "validation/b.parquet", "my-test/c.parquet", "deep/eval_2/d.parquet", "other/e.parquet"],
    "file names": ["train.parquet", "my_valid-1.parquet", "x/test_00.parquet", "training2.parquet", "constraint.parquet"],
    "neither": ["one.parquet", "deep/two.parquet", "retrain.parquet"],
    "json": ["train.jsonl", "test.jsonl"],
    "both": ["train/test.parquet", "test/train.parquet"],
}  # fmt: skip


@pytest.mark.parametrize("layout", LAYOUTS)
def test_conventions_are_those_of_the_library(tmp_path, layout):
    datasets = pytest.importorskip("datasets", reason="needs datasets (the extra `huggingface`)")
    root = tmp_path / "set"
    for name in LAYOUTS[layout]:
        (jsonl if name.endswith(".jsonl") else parquet)(root / name, [name])
    builder = datasets.load_dataset_builder(str(root), cache_dir=str(tmp_path / "cache"))
    expected = {
        str(split): sorted(str(f).removeprefix(str(root) + "/") for f in files)
        for split, files in builder.config.data_files.items()
    }
    assert expected
    ours = {split: relative(source(root, split=split)) for split in expected}
    assert {split: sorted(files) for split, files in ours.items()} == expected
    with pytest.raises(ConfigError) as e:
        relative(source(root, split="no such"))
    assert f"it has {', '.join(sorted(expected))}" in str(e.value)


def test_json_lines_are_read_by_our_reader(tmp_path):
    jsonl(tmp_path / "train.jsonl", ["a", "b"])
    with (tmp_path / "train.jsonl").open("a") as f:
        f.write("{broken\n")
    first, second, third = records(source(tmp_path))
    assert (first.text, second.text) == ("a", "b")
    assert isinstance(third, Reject)
    with pytest.raises(ConfigError, match="row_groups"):
        relative(source(tmp_path, row_groups={"every": 2}))


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"split": "validation"}, r"split 'validation' does not exist \(it has test, train\)"),
        ({"split": "train[:10%]"}, "does not exist"),
        ({"revision": "main"}, "revision 'main': a local folder has none"),
        ({"path": "x"}, "path 'x': a data set has none"),
        ({"streaming": True, "row_groups": {"every": 2}}, "row_groups: a stream has none"),
        ({"config": "fr"}, "config 'fr' does not exist"),
    ],
)
def test_what_is_wrong_is_named_before_any_work(sharded, keys, message):
    with pytest.raises(ConfigError, match=message) as e:
        relative(source(sharded, **keys))
    assert "source set: data set" in str(e.value)


def test_other_formats_are_refused_with_a_way_out(tmp_path):
    (tmp_path / "train.csv").write_text("text\na\n")
    with pytest.raises(ConfigError, match=r"no Parquet or JSON Lines files \(it has .csv\)") as e:
        relative(source(tmp_path))
    assert "streaming: true" in e.value.hint
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match=r"split 'train' does not exist \(it has none\)"):
        relative(source(tmp_path / "empty"))


def test_missing_folder_is_not_looked_for_on_the_hub():
    for name in ("./nowhere", "/nowhere/set", "a/b/c"):
        with pytest.raises(ConfigError, match="no such folder"):
            relative(source(name))


def test_missing_column_is_named(sharded):
    with pytest.raises(ConfigError, match="no column 'body'"):
        records(source(sharded, text_column="body"))


# ----------------------------------------------------------------------------------------------------------- the hub


def fake_hub(monkeypatch, repo_info):
    """A hub that answers `repo_info`, and fails the test if anything else is asked."""
    hub = pytest.importorskip("huggingface_hub", reason="needs huggingface_hub (the extra `huggingface`)")
    from huggingface_hub import errors  # the real errors

    module = types.ModuleType("huggingface_hub")
    module.HfApi = lambda token=None: types.SimpleNamespace(repo_info=repo_info)
    module.errors = errors
    monkeypatch.setitem(sys.modules, "huggingface_hub", module)
    return hub


def test_hub_name_is_pinned_to_its_commit(monkeypatch):
    asked = {}

    def repo_info(name, **keys):
        asked.update(name=name, **keys)
        siblings = [
            types.SimpleNamespace(rfilename="data/train-00000-of-00001.parquet", size=10, blob_id="b1", lfs=None),
            types.SimpleNamespace(
                rfilename="data/test-00000-of-00001.parquet",
                size=20,
                blob_id="b2",
                lfs=types.SimpleNamespace(sha256="s2"),
            ),
            types.SimpleNamespace(rfilename=".gitattributes", size=1, blob_id="b3", lfs=None),
        ]
        return types.SimpleNamespace(id="owner/set", sha="abc123", siblings=siblings)

    fake_hub(monkeypatch, repo_info)
    (file,) = HuggingFaceReader(source("owner/set", revision="v1", split="test")).files().files
    assert asked == {"name": "owner/set", "revision": "v1", "repo_type": "dataset", "files_metadata": True}
    assert file.path == "hf://datasets/owner/set@abc123/data/test-00000-of-00001.parquet"
    assert (file.relative, file.size, file.identity) == ("data/test-00000-of-00001.parquet", 20, "s2")


@pytest.mark.parametrize(
    ("error", "message", "hint"),
    [
        ("RevisionNotFoundError", "revision 'v9' does not exist", "branch"),
        ("RepositoryNotFoundError", "neither a local folder nor a data set", "log"),
        ("GatedRepoError", "access is gated", "hf auth login"),
        ("OfflineModeIsEnabled", "the hub cannot be asked", "hf download"),
        (None, "the hub cannot be asked .OSError: no route", "hf download"),
    ],
)
def test_failures_of_the_hub_say_what_to_do(monkeypatch, error, message, hint):
    hub = pytest.importorskip("huggingface_hub")

    def repo_info(*_, **__):
        if error is None:
            raise OSError("no route")
        kind = getattr(hub.errors, error)
        raised = kind.__new__(kind)  # their constructors ask for a response of the server
        Exception.__init__(raised, "answer")
        raise raised

    fake_hub(monkeypatch, repo_info)
    with pytest.raises(ConfigError, match=message) as e:
        relative(source("owner/set", revision="v9"))
    assert hint in e.value.hint


def test_missing_library_says_what_to_install(monkeypatch, sharded):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    monkeypatch.setitem(sys.modules, "datasets", None)
    assert relative(source(sharded))  # a local folder needs neither
    for src in (source("owner/set"), source(sharded, streaming=True)):
        with pytest.raises(ConfigError, match="is not installed") as e:
            relative(src)
        assert "pip install" in e.value.hint


# ---------------------------------------------------------------------------------------------------------- streaming


@pytest.fixture
def streaming(monkeypatch, tmp_path):
    datasets = pytest.importorskip("datasets", reason="needs datasets (the extra `huggingface`)")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    return lambda folder, **keys: source(folder, streaming=True, **keys)


def test_stream_gives_the_records_of_the_files(sharded, streaming):
    assert texts(streaming(sharded)) == texts(source(sharded))
    shards = relative(streaming(sharded))
    assert shards == ["shard-00000-of-00002", "shard-00001-of-00002"]
    rows = [(r.row, r.columns) for r in records(streaming(sharded, group_column="url"))]
    assert rows == [*((i, {"url": f"u{i}"}) for i in range(5)), (0, {"url": "u0"})]


def test_stream_reads_what_we_do_not(tmp_path, streaming):
    folder = tmp_path / "set"  # the library would take the name of tmp_path itself for a split
    folder.mkdir()
    (folder / "train.csv").write_text("text,n\na,1\n,2\nc,3\n")
    assert records(streaming(folder, keep_columns=["n"])) == [
        Record(0, "a", {"n": 1}), Reject(1, None, "'text' is null"), Record(2, "c", {"n": 3}),
    ]  # fmt: skip
    assert [r.reason for r in records(streaming(folder, text_column="n"))] == ["'n' is int, not a string"] * 3


def test_stream_fails_before_any_work(sharded, streaming, tmp_path):
    with pytest.raises(ConfigError, match=r"split 'dev' does not exist \(it has test, train\)"):
        relative(streaming(sharded, split="dev"))
    with pytest.raises(ConfigError, match=r"no column 'body'"):
        relative(streaming(sharded, text_column="body"))
    with pytest.raises(ConfigError, match="cannot be opened"):
        relative(streaming(tmp_path / "nowhere/at/all"))
