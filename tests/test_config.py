"""Config: defaults, errors that name file, key, value and remedy."""

from __future__ import annotations

import pytest

from gpu_curate import config
from gpu_curate.errors import ConfigError

MINIMAL = {"sources": [{"name": "a", "type": "jsonl", "path": "x.jsonl"}], "tokenizer": {"path": "t.json"}}


def with_keys(**keys):
    return {**MINIMAL, **keys}


def test_sections_left_out_take_the_documented_defaults():
    c = config.parse(MINIMAL)
    assert (c.dedup.fuzzy.num_bands, c.dedup.fuzzy.rows_per_band, c.dedup.fuzzy.shingle_words) == (14, 8, 5)
    assert (c.min_tokens, c.shards.tokens_per_shard, c.shards.validation.tokens) == (64, 100_000_000, 15_000_000)
    assert c.normalize.form == "NFC"
    assert c.quality.gopher_quality is None


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (with_keys(dedpu={}), r"r\.yaml: dedpu: unknown key \(did you mean 'dedup'\?\)"),
        (with_keys(dedup={"fuzzy": {"sede": 1}}), r"dedup\.fuzzy\.sede: unknown key \(did you mean 'seed'\?\)"),
        (with_keys(min_tokens="many"), r"min_tokens: .*integer.*got 'many'"),
        (with_keys(sources=[]), r"sources: .*at least 1"),
        (with_keys(sources=[MINIMAL["sources"][0]] * 2), r"sources: two entries of sources are named 'a'"),
        (with_keys(sources=[{"name": "a", "type": "jsonl", "pth": "x"}]), r"sources\.0\.pth: unknown key"),
        (with_keys(sources=[{"name": "a", "type": "jsnl", "path": "x"}]), r"sources\.0: .*'jsnl'"),
        (with_keys(tokenizer={}), r"tokenizer: give exactly one of `path` and `train`"),
        (
            with_keys(dedup={"fuzzy": {"num_bands": 20, "rows_per_band": 13, "num_hashes": 256}}),
            r"num_bands=20 x rows_per_band=13 needs num_hashes=260, got 256; set num_hashes: 260",
        ),
        (with_keys(dedup={"fuzzy": {"scope": "group"}}), r"scope: group needs group_column .*\['a'\]"),
        ({"tokenizer": {"path": "t"}}, r"sources: missing"),
    ],
)
def test_a_wrong_key_or_value_is_named(data, said):
    with pytest.raises(ConfigError, match=said):
        config.parse(data, "r.yaml")


def test_every_error_of_a_file_is_told_at_once():
    with pytest.raises(ConfigError) as e:
        config.parse(with_keys(dedpu=1, min_tokens=-1))
    assert "dedpu" in str(e.value)
    assert "min_tokens" in str(e.value)


def test_families_are_on_off_or_thresholds():
    c = config.parse(with_keys(quality={"gopher_quality": True, "c4": "off", "fineweb": "on"}))
    assert c.quality.gopher_quality is not None
    assert c.quality.c4 is None
    assert c.quality.fineweb is not None


def test_overrides_reach_into_lists_by_index_and_by_name(tmp_path):
    path = tmp_path / "r.yaml"
    path.write_text("sources: [{name: edu, type: parquet, path: a}]\ntokenizer: {path: t}\n")
    c = config.load(
        path, ["sources.0.max_documents=7", "sources.edu.path='b*.parquet'", "dedup.fuzzy.seed=1", "quality.c4=on"]
    )
    assert (c.sources[0].max_documents, c.sources[0].path, c.dedup.fuzzy.seed) == (7, "b*.parquet", 1)
    assert c.quality.c4 is not None


@pytest.mark.parametrize("override", ["nothing", "=1", "sources.5.path=x", "sources.web.path=x"])
def test_an_override_that_reaches_nothing_is_an_error(tmp_path, override):
    path = tmp_path / "r.yaml"
    path.write_text("sources: [{name: edu, type: parquet, path: a}]\ntokenizer: {path: t}\n")
    with pytest.raises(ConfigError, match="--set"):
        config.load(path, [override])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: [", "not YAML"),
        ("- 1", "expected a mapping"),
        ("", "expected a mapping"),
        ("tokenizer: {path: a}\ntokenizer: {path: b}\n", "line 2: key 'tokenizer' is given twice"),
    ],
)
def test_a_file_that_is_no_recipe_is_named(tmp_path, text, said):
    path = tmp_path / "broken.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=f"broken.yaml.*{said}"):
        config.load(path)


def test_a_missing_recipe_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"nowhere\.yaml: no such file"):
        config.load(tmp_path / "nowhere.yaml")
