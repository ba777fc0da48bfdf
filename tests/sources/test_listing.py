"""Which files a folder or glob gives: links, loops, hidden names, further names, and what is said of the rest."""

from __future__ import annotations

import gzip
import json

import fsspec
import pytest

from gpu_curate.api.pipeline import execute
from gpu_curate.config import parse
from gpu_curate.errors import ConfigError
from gpu_curate.report.accounts import accounts
from gpu_curate.runs.planning import make_plan
from gpu_curate.sources.files import find

JSON = (".jsonl", ".ndjson", ".json")


def write(root, *names):
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text('{"text": "t"}')


def both(root, pattern="**", **options):
    """A listing of the folder, which a glob must give too."""
    folder = find([str(root)], JSON, {}, "k", **options)
    globbed = find([f"{root}/{pattern}"], JSON, {}, "k", **options)
    assert folder == globbed
    return [f.relative for f in folder.files], folder.passed_over.facts()


def test_links_below_the_folder_are_followed_and_those_that_leave_it_are_named(tmp_path):
    data = tmp_path / "data"
    write(data, "a.jsonl", ".store/b.jsonl")
    write(tmp_path, "disk2/c.jsonl", "disk2/deep/d.jsonl", "single.jsonl")
    (data / "disk2").symlink_to("../disk2")
    (data / "shown").symlink_to(".store")
    (data / "single.jsonl").symlink_to(tmp_path / "single.jsonl")
    (data / "gone.jsonl").symlink_to("nowhere.jsonl")
    names, passed = both(data)
    assert names == ["a.jsonl", "shown/b.jsonl"]
    assert passed["linked"] == {
        "count": 2,
        "examples": [
            f"{data}/disk2 -> {tmp_path}/disk2",
            f"{data}/single.jsonl -> {tmp_path}/single.jsonl",
        ],
    }
    assert passed["dangling_links"] == {"count": 1, "examples": [f"{data}/gone.jsonl"]}
    names, passed = both(data, follow_links=True)
    assert names == ["a.jsonl", "disk2/c.jsonl", "disk2/deep/d.jsonl", "shown/b.jsonl", "single.jsonl"]
    assert "linked" not in passed


@pytest.mark.parametrize("pattern", ["*/c.jsonl", "*2/*.jsonl", "[d]isk2/**/c.jsonl", "*/**"])
def test_every_glob_keeps_the_rule_of_links(tmp_path, pattern):
    data = tmp_path / "data"
    write(data, "x/c.jsonl", "y2/c.jsonl")
    write(tmp_path, "disk2/c.jsonl")
    (data / "disk2").symlink_to("../disk2")
    given = [f"{data}/{pattern}", str(data / "x")]
    listing = find(given, JSON, {}, "k", follow_links=True)
    assert f"{data}/disk2/c.jsonl" in [f.path for f in listing.files]
    if pattern.startswith("["):
        with pytest.raises(ConfigError, match=r"matches no file that is read(.|\n)*follow_links: true"):
            find(given, JSON, {}, "k")
        return
    listing = find(given, JSON, {}, "k")
    assert f"{data}/disk2/c.jsonl" not in [f.path for f in listing.files]
    assert list(listing.passed_over.linked) == [f"{data}/disk2"]


def test_the_folder_that_is_named_may_be_a_link_and_a_file_that_is_named_too(tmp_path):
    write(tmp_path, "real/a.jsonl", "real/.hidden.jsonl")
    (tmp_path / "data").symlink_to("real")
    (tmp_path / "b.jsonl").symlink_to("real/.hidden.jsonl")
    for pattern in ("data", "data/*.jsonl", "data/**/*.jsonl"):
        assert [f.relative for f in find([str(tmp_path / pattern)], JSON, {}, "k").files] == ["a.jsonl"]
    assert len(find([str(tmp_path / "b.jsonl")], JSON, {}, "k").files) == 1
    assert len(find([str(tmp_path / "real/.hidden.jsonl")], JSON, {}, "k").files) == 1


def test_a_loop_is_read_once_and_further_names_are_said(tmp_path):
    data = tmp_path / "data"
    write(data, "a.jsonl", "sub/b.jsonl")
    (data / "sub" / "up").symlink_to("..")
    (data / "again").symlink_to("sub")
    (data / "z.jsonl").symlink_to("a.jsonl")
    names, passed = both(data)
    assert names == ["a.jsonl", "sub/b.jsonl"]
    assert passed["repeated"]["count"] == 3
    assert f"{data}/z.jsonl = {data}/a.jsonl" in passed["repeated"]["examples"]
    assert "repeated" not in find([str(data / "a.jsonl"), f"{data}/./a*.jsonl"], JSON, {}, "k").passed_over.facts()


def test_a_snapshot_of_the_hubs_cache_is_read_through_its_links(tmp_path):
    repository = tmp_path / "datasets--owner--set"
    write(repository, "blobs/0123")
    snapshot = repository / "snapshots" / "abc" / "data"
    snapshot.mkdir(parents=True)
    (snapshot / "train.jsonl").symlink_to("../../../blobs/0123")
    names, passed = both(snapshot)
    assert (names, passed) == (["train.jsonl"], {})


HIDDEN = (
    ".git/config.json",
    ".ipynb_checkpoints/a.jsonl",
    "._a.jsonl",
    "_SUCCESS",
    "_temporary/0/p.jsonl",
    "x/.p.jsonl",
)


def test_hidden_names_are_passed_over_and_counted_and_an_option_takes_them(tmp_path):
    write(tmp_path, "a.jsonl", *HIDDEN)
    names, passed = both(tmp_path)
    assert names == ["a.jsonl"]
    assert passed["hidden"]["count"] == len(HIDDEN)
    assert f"{tmp_path}/.git/" in passed["hidden"]["examples"]
    names, passed = both(tmp_path, hidden_files=True)
    assert names == sorted(["a.jsonl", *(n for n in HIDDEN if n.endswith((".jsonl", ".json")))])
    assert passed == {"other_suffixes": {"without a suffix": 1}}
    for written in ("_temporary/**/*.jsonl", "_*/0/*.jsonl", "_temporary"):
        assert len(find([str(tmp_path / written)], JSON, {}, "k").files) == 1
    assert len(find([str(tmp_path / "._*")], JSON, {}, "k").files) == 1


def test_text_sources_pass_over_hidden_names_too(tmp_path):
    write(tmp_path, "a", ".DS_Store", "b/__init__.py")
    assert [f.relative for f in find([str(tmp_path)], (), {}, "k").files] == ["a"]


def test_hidden_names_of_a_server_are_passed_over():
    for name in ("a.jsonl", ".git/b.jsonl", "_c.jsonl"):
        with fsspec.open(f"memory://hidden/{name}", "w") as f:
            f.write("{}")
    for pattern in ("memory://hidden", "memory://hidden/**"):
        listing = find([pattern], JSON, {}, "k")
        assert [f.path for f in listing.files] == ["memory:///hidden/a.jsonl"]
        assert len(listing.passed_over.hidden) == 2
        assert len(find([pattern], JSON, {}, "k", hidden_files=True).files) == 3


def test_files_that_no_reader_takes_are_counted_by_suffix(tmp_path):
    write(tmp_path, "a.jsonl", "b.csv", "sub/c.csv.gz", "d.JSONL.zstd", "e.jsonl.gzip", "README.md", "f")
    names, passed = both(tmp_path)
    assert names == ["a.jsonl", "d.JSONL.zstd", "e.jsonl.gzip"]
    assert passed == {"other_suffixes": {".csv": 1, ".csv.gz": 1, ".md": 1, "without a suffix": 1}}


def test_a_compressed_file_whose_name_says_no_type_is_of_the_configs_type(tmp_path):
    write(tmp_path, "RC_2020-01.zst", "dump.gz", "v1.2.xz", "b.csv.gz", "plain")
    names, _ = both(tmp_path)
    assert names == ["RC_2020-01.zst", "dump.gz", "v1.2.xz"]
    assert len(find([str(tmp_path / "plain")], JSON, {}, "k").files) == 1  # it is named
    with pytest.raises(ConfigError, match="not of this type"):
        find([str(tmp_path / "b.csv.gz")], JSON, {}, "k")


def test_plan_says_what_is_passed_over(tmp_path):
    write(
        tmp_path, "data/a.jsonl", "data/.hidden", "data/b.csv", "bench/q.jsonl", "bench/_old.jsonl", "elsewhere/c.jsonl"
    )
    (tmp_path / "data" / "more").symlink_to("../elsewhere")
    config = parse(
        {
            "sources": [{"name": "s", "type": "jsonl", "path": str(tmp_path / "data")}],
            "references": [{"name": "r", "path": str(tmp_path / "bench"), "action": "decontaminate"}],
            "tokenizer": {"train": {"vocab_size": 300}},
        },
        "r.yaml",
    )
    plan = make_plan(config, tmp_path / "run")
    json.dumps(plan)
    (source,) = plan["sources"]
    assert {k: v.get("count", v) for k, v in source["passed_over"].items()} == {
        "linked": 1,
        "hidden": 1,
        "other_suffixes": {".csv": 1},
    }
    said = [w for w in plan["warnings"] if "passed over" in w]
    assert len(said) == 2
    assert "follow_links: true" in said[0]
    assert "1 files of other types: 1 .csv" in said[0]
    assert said[1].startswith("reference r: passed over: 1 whose names begin")


def test_report_says_what_is_passed_over(tmp_path):
    write(tmp_path, "data/.hidden")
    (tmp_path / "data" / "a.jsonl").write_text("".join(json.dumps({"text": f"word{i} " * 9}) + "\n" for i in range(50)))
    (tmp_path / "data" / "b.jsonl.gz").write_bytes(gzip.compress(b'{"text": "x y z"}\n'))
    config = parse(
        {
            "sources": [{"name": "s", "type": "jsonl", "path": str(tmp_path / "data")}],
            "tokenizer": {"train": {"vocab_size": 300}},
            "min_tokens": 0,
            "run": {"workers": 1, "backend": "cpu"},
        },
        "r.yaml",
    )
    facts = accounts(execute(config, tmp_path / "run"))
    assert facts["passed_over"] == {"source s": {"hidden": {"count": 1, "examples": [f"{tmp_path}/data/.hidden"]}}}
    assert any(w.startswith("source s: passed over: 1 whose names") for w in facts["warnings"])
