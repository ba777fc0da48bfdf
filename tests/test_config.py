"""Config: defaults, errors that name file, key, value and remedy."""

from __future__ import annotations

import json
import warnings

import pytest
import yaml
from places import ROOT
from typer.testing import CliRunner

from gpu_curate import cli, config
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
        (with_keys(sources=[{"name": "a", "type": "jsonl", "pth": "x"}]), r"sources\.a\.pth: unknown key"),
        (with_keys(sources=[{"name": "a", "type": "jsnl", "path": "x"}]), r"sources\.a: .*'jsnl'"),
        (with_keys(sources=[{"type": "jsonl", "path": "x"}]), r"sources\.0\.name: missing"),
        (with_keys(shards=None), r"shards: a run always writes shards, so it cannot be off; leave the key out"),
        (with_keys(sources=[{**MINIMAL["sources"][0], "weight": 0.5, "tokens": 7}]), r"a has `weight` and `tokens`"),
        (with_keys(shards={"mixture_tokens": 7}), r"shards\.mixture_tokens is shared out by `weight`, and no source"),
        (with_keys(pii={"phone": True}), r"pii\.phone: .*'off', 'count' or 'replace', got True"),
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


def test_overrides_reach_into_sections_that_are_off_on_or_absent(tmp_path):
    path = tmp_path / "r.yaml"
    path.write_text("sources: [{name: edu, type: parquet}]\ntokenizer: {path: t}\nquality: {c4: on}\nnormalize: null\n")
    c = config.load(path, ["quality.c4.min_sentences=2", "normalize.form=NFKC", "sources.edu.row_groups.every=3"])
    assert (c.quality.c4.min_sentences, c.normalize.form, c.sources[0].row_groups.every) == (2, "NFKC", 3)


@pytest.mark.parametrize(
    "override",
    [
        "nothing",
        "=1",
        "sources.5.path=x",
        "sources.web.path=x",
        f"sources.{'9' * 5000}.path=x",
        "sources.edu.path.deeper=x",
        "sources.edu.path.deeper.still=x",
        "sources.edu.keep_columns.0.x=1",
        "tokenizer.path.0=x",
        "min_tokens=[",
        "min_tokens=2024-99-99",
        "min_tokens=!!int abc",
        "min_tokens={a: 1, a: 2}",
        "min_tokens=*x",
        "min_tokens=" + "[" * 3000,
    ],
)
def test_an_override_that_reaches_nothing_is_an_error(tmp_path, override):
    path = tmp_path / "r.yaml"
    path.write_text("sources: [{name: edu, type: parquet, path: a, keep_columns: [u]}]\ntokenizer: {path: t}\n")
    with pytest.raises(ConfigError, match="--set"):
        config.load(path, [override])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: [", "not YAML"),
        ("- 1", "expected a mapping"),
        ("", "expected a mapping"),
        ("tokenizer: {path: a}\ntokenizer: {path: b}\n", "line 2: key 'tokenizer' is given twice"),
        ("quality: {c4: {on: 1, on: 2}}\n", "line 1: key 'on' is given twice"),
        ("a: &a {b: 1}\nc:\n  <<: *a\n  d: 1\n  d: 2\n", "line 5: key 'd' is given twice"),
        ("10: 1\n0xa: 2\n", "line 2: key 10 is given twice"),
        ("? [a]\n: b\n", "line 1: .*cannot be a key"),
        ("? {a: 1}\n: b\n", "line 1: .*cannot be a key"),
        ("? 2024-01-01\n: b\n", "line 1: .*cannot be a key"),
        ("min_tokens: 2024-99-99\n", "not YAML: month must be"),
        ("min_tokens: !!int abc\n", "not YAML: invalid literal"),
        ("min_tokens: !!timestamp abc\n", "not YAML"),
        ("min_tokens: !!bool abc\n", "not YAML"),
        (f"min_tokens: {'9' * 5000}\n", "not YAML: .*limit"),
        ("min_tokens: " + "[" * 3000 + "]" * 3000, "nested too deep"),
        ("min_tokens: " + "{a: " * 3000 + "}" * 3000, "nested too deep"),
        ("min_tokens: &a [*a]\n", "min_tokens"),
        ("a: !!python/object:os.system x\n", "not YAML"),
        ("<<: 3\n", "line 1: `<<` takes a mapping"),
        ("a: &a {b: 1}\nc: {<<: [*a, 3]}\n", "line 2: `<<` takes a mapping"),
        ("a: 1\n--- \nb: 2\n", "not YAML: .*single document"),
        ("a: \x00\n", "not YAML"),
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


def test_a_merge_key_brings_what_a_section_does_not_say_itself(tmp_path):
    path = tmp_path / "r.yaml"
    path.write_text(
        "sources:\n"
        "  - &s {name: a, type: jsonl, path: x, max_documents: 5, keep_columns: [url]}\n"
        "  - &t {<<: *s, name: b, max_documents: 7}\n"
        "  - {name: c, <<: *t, path: y}\n"
        "tokenizer: {path: t.json}\n"
    )
    a, b, c = config.load(path).sources
    assert (a.max_documents, b.max_documents, c.max_documents) == (5, 7, 7)
    assert [(s.name, s.path, s.keep_columns) for s in (b, c)] == [("b", "x", ["url"]), ("c", "y", ["url"])]


def test_a_merge_of_a_deeper_mapping_that_overrides_a_merge_is_no_repeated_key(tmp_path):
    path = tmp_path / "r.yaml"
    path.write_text(
        "sources:\n"
        "  - {name: a, type: jsonl, path: x, storage_options: {k: &base {u: 1, v: 2}, m: {n: &m {<<: *base, u: 3}}}}\n"
        "  - {name: b, type: jsonl, path: x, storage_options: {<<: *m}}\n"
        "tokenizer: {path: t.json}\n"
    )
    assert config.load(path).sources[1].storage_options == {"u": 3, "v": 2}


def test_the_first_of_merged_mappings_wins_and_a_mapping_that_merges_itself_ends(tmp_path):
    path = tmp_path / "r.yaml"
    path.write_text(
        "sources:\n"
        "  - {name: a, type: jsonl, path: x, storage_options: {k: &k {long: 1, v: 1}, m: &m {long: 2, w: 2}}}\n"
        "  - {name: b, type: jsonl, path: x, storage_options: &o {<<: [*k, *m, *o], x: 3}}\n"
        "tokenizer: {path: t.json}\n"
    )
    assert config.load(path).sources[1].storage_options == {"long": 1, "v": 1, "w": 2, "x": 3}


@pytest.mark.parametrize("name", ["doc_id", "text", "source", "path", "row", "group", "split", "position", "tokens"])
def test_a_kept_column_named_as_one_that_documents_have_is_refused(name):
    source = {"name": "a", "type": "jsonl", "path": "x", "keep_columns": ["url", name]}
    with pytest.raises(ConfigError, match=rf"a\.keep_columns: '{name}' is a column that every document has"):
        config.parse(with_keys(sources=[source]))


def test_a_group_column_may_have_any_name_and_be_kept_under_its_own():
    source = {"name": "a", "type": "jsonl", "path": "x", "group_column": "group", "keep_columns": ["url"]}
    assert config.parse(with_keys(sources=[source])).sources[0].group_column == "group"
    source |= {"group_column": "dump", "keep_columns": ["dump"]}
    assert config.parse(with_keys(sources=[source])).sources[0].keep_columns == ["dump"]


def set_key(key, value):
    """MINIMAL with one more key, given by its path."""
    first, *rest = key.split(".")
    for part in reversed(rest):
        value = {part: value}
    return {**MINIMAL["sources"][0], rest[0]: value[rest[0]]} if first == "source" else {first: value}


def parse_key(key, value):
    section = set_key(key, value)
    return config.parse(with_keys(sources=[section]) if key.startswith("source.") else with_keys(**section))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("dedup.fuzzy.num_bands", 4097),
        ("dedup.fuzzy.rows_per_band", 4097),
        ("dedup.fuzzy.seed", 1 << 64),
        ("shards.shuffle_seed", 1 << 64),
        ("shards.max_epochs", 1000.5),
        ("shards.max_epochs", float("inf")),
        ("shards.mixture_tokens", 10**15 + 1),
        ("source.tokens", 10**15 + 1),
        ("source.weight", float("inf")),
        ("source.weight", float("nan")),
        ("language.min_score", float("nan")),
        ("min_tokens", True),
        ("min_tokens", "64"),
        ("min_tokens", 64.0),
        ("run.workers", True),
        ("source.max_documents", "7"),
        ("source.content_fingerprint", 1),
        ("run.strict", "yess"),
        ("source.weight", True),
        ("source.weight", "0.5"),
        ("quality.c4.min_sentences", "5"),
    ],
)
def test_a_value_out_of_bounds_or_of_another_type_is_named(key, value):
    with pytest.raises(ConfigError, match=rf"{key.removeprefix('source.')}: .*got"):
        parse_key(key, value)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("dedup.fuzzy.num_bands", 4096),
        ("dedup.fuzzy.seed", (1 << 64) - 1),
        ("shards.shuffle_seed", (1 << 64) - 1),
        ("shards.max_epochs", 1000),
        ("source.tokens", 10**15),
        ("source.weight", 2),
    ],
)
def test_a_value_on_its_bound_is_taken(key, value):
    assert parse_key(key, value)


def test_numbers_of_yaml_are_numbers(tmp_path):
    path = tmp_path / "r.yaml"
    path.write_text(
        "sources: [{name: a, type: jsonl, path: x, weight: 1e-3}]\ntokenizer: {path: t}\n"
        "shards: {tokens_per_shard: 100_000_000, max_epochs: 1.5E+1, validation: {bound: '123456789012e456'}}\n"
    )
    c = config.load(path, ["sources.a.max_documents=7"])
    assert (c.sources[0].weight, c.shards.tokens_per_shard, c.shards.max_epochs) == (0.001, 100_000_000, 15.0)
    path.write_text(path.read_text().replace("'", ""))
    assert config.load(path).shards.validation.bound == "123456789012e456"


def test_words_of_an_identifier_keep_their_digits(tmp_path):
    path = tmp_path / "r.yaml"
    path.write_text("sources: [{name: a, type: jsonl, path: x}]\ntokenizer: {path: t}\n")
    for bound in ("0123456789012345", "1234567890123e12", "123456789e012345", "00000000000000e0"):
        assert config.load(path, [f"shards.validation.bound={bound}"]).shards.validation.bound == bound


@pytest.mark.parametrize(("on", "off"), [("on", "off"), ("yes", "no"), ("True", "FALSE"), ("Yes", "NO"), ("On", "Off")])
def test_the_words_that_switch_mean_what_they_did_in_yaml_1_1(tmp_path, on, off):
    path = tmp_path / "r.yaml"
    path.write_text(
        f"sources: [{{name: a, type: jsonl, path: x, follow_links: {on}, hidden_files: {off},\n"
        f"    storage_options: {{anon: {off}, client_kwargs: {{verify: {on}, ids: [{off}, a]}}}}}}]\ntokenizer: {{path: t}}\n"
        f"dedup: {{exact: {off}, fuzzy: {on}}}\nquality: {{c4: {on}, fineweb: {off}}}\nnormalize: {off}\n"
        f"language: {{model: {off}}}\nmin_tokens: {off}\nrun: {{strict: {on}, by_reference: {off}}}\npii: {{ip: {off}}}\n"
    )
    ours = config.load(path)
    assert ours == config.parse(yaml.safe_load(path.read_text()))
    assert (ours.sources[0].follow_links, ours.sources[0].hidden_files, ours.run.strict) == (True, False, True)
    assert ours.sources[0].storage_options == {"anon": False, "client_kwargs": {"verify": True, "ids": [False, "a"]}}
    assert (ours.dedup.exact, ours.dedup.fuzzy, ours.quality.c4) == (False, config.Fuzzy(), config.C4())
    assert (ours.quality.fineweb, ours.normalize, ours.language.model, ours.min_tokens) == (None, None, None, 0)
    assert config.load(path, [f"dedup.exact={on}"]).dedup.exact is True


def test_a_word_that_switches_is_text_where_text_is_wanted(tmp_path):
    path = tmp_path / "r.yaml"
    path.write_text(
        "sources: [{name: no, type: jsonl, path: off, keep_columns: [yes]}]\ntokenizer: {path: t, eot: no}\n"
    )
    c = config.load(path, ["language.keep=[no, en]"])
    assert (c.sources[0].name, c.sources[0].path, c.sources[0].keep_columns) == ("no", "off", ["yes"])
    assert (c.tokenizer.eot, c.language.keep) == ("no", ["no", "en"])


@pytest.mark.parametrize("path", sorted((ROOT / "configs").glob("*.yaml")), ids=lambda p: p.stem)
def test_our_recipes_have_the_values_that_yaml_1_1_gives_them(path):
    assert config.load(path) == config.parse(yaml.safe_load(path.read_text()))


def test_what_is_off_is_off_in_yaml_too(tmp_path):
    path = tmp_path / "r.yaml"
    path.write_text("sources: [{name: a, type: jsonl, path: x}]\ntokenizer: {path: t}\npii: {email: off, ip: count}\n")
    assert config.load(path, ["pii.phone=off"]).pii == config.Pii(ip="count")
    none = config.load(path, ["pii=null", "language=null"])
    assert (none.pii, none.language) == (config.Pii(), config.Language())


@pytest.mark.parametrize("encoding", ["utf-9", "base64", "rot13", "hex", "", "a\0b", "x" * 1000, "é"])
def test_an_encoding_that_decodes_no_text_is_refused(encoding):
    with pytest.raises(ConfigError, match="encoding: not a text encoding"):
        config.parse(with_keys(sources=[{"name": "a", "type": "text", "path": "x", "encoding": encoding}]))


@pytest.mark.parametrize("encoding", ["utf-8", "UTF_8", "latin-1", "shift_jis", "utf-8-sig", "cp1252"])
def test_a_text_encoding_is_taken(encoding):
    source = {"name": "a", "type": "text", "path": "x", "encoding": encoding}
    assert config.parse(with_keys(sources=[source])).sources[0].encoding == encoding


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("language.keep=[false, en]", "language.keep.0: input should be a valid string, got False {no}"),
        ("sources.a.path=False", "sources.a.path: input should be a valid string or a valid list, got False {no}"),
        ("sources.a.keep_columns=[true]", "keep_columns.0: input should be a valid string, got True {yes}"),
        ("tokenizer.eot=false", "tokenizer.eot: input should be a valid string or a valid integer, got False {no}"),
        (
            "min_tokens=064",
            "min_tokens: input should be a valid integer, got '064' (text: write the number without quotes, 64)",
        ),
        ("min_tokens=yes", "min_tokens: input should be a valid integer, got 'yes'"),
        ("pii.email=yes", "pii.email: input should be 'off', 'count' or 'replace', got 'yes'"),
        ("shards.validation.bound=1234567890123456", "(a number to YAML: write text in quotes, '1234567890123456')"),
        ("sources.a.group_column=2024-01-01", "(a date to YAML: write text in quotes, '2024-01-01')"),
        ("min_tokens='64'", "min_tokens: input should be a valid integer, got '64' (text: write the number without"),
        ("pii.email=true", "pii.email: input should be 'off', 'count' or 'replace', got True"),
        ("run.backend=gpuu", "got 'gpuu' (did you mean 'gpu'?)"),
        ("normalize.form=nfc", "got 'nfc' (did you mean 'NFC'?)"),
        ("dedup.exact=comapre", "valid boolean or 'compare', got 'comapre' (did you mean 'compare'?)"),
        ("dedup.fuzzy.keep=longes", "got 'longes' (did you mean 'longest'?)"),
        (
            "run.by_reference=[parqet]",
            "run.by_reference.0: input should be 'parquet' or 'jsonl', got 'parqet' (did you",
        ),
        ("quality.c4=onn", "quality.c4: expected a mapping of keys, got 'onn' (did you mean 'on'?)"),
        (
            "sources.a.type=jsnl",
            "sources.a: type 'jsnl' is not one of parquet, jsonl, text, wikipedia, warc, huggingface (did",
        ),
        (
            "sources.b.path=x",
            "--set sources.b.path=x: 'b' is neither an index below 1 nor a name in the list (it has a)",
        ),
        ("sources.A.path=x", "nor a name in the list (did you mean 'a'?)"),
    ],
)
def test_a_misspelt_choice_and_a_word_that_yaml_takes_for_another_type_come_with_the_remedy(tmp_path, override, said):
    path = tmp_path / "r.yaml"
    path.write_text(json.dumps(MINIMAL))
    hints = {
        "no": "(YAML reads false as this: write a word in quotes, 'false')",
        "yes": "(YAML reads true as this: write a word in quotes, 'true')",
    }
    with pytest.raises(ConfigError) as e:
        config.load(path, [override])
    assert said.format(**hints) in str(e.value)
    assert len(str(e.value).splitlines()) == 1  # not one line for each member of a union


def test_a_folder_that_is_given_as_a_recipe_says_what_to_give(tmp_path):
    with pytest.raises(ConfigError, match=r"a folder, not a recipe\nhint: gpu-curate init"):
        config.load(tmp_path)
    (tmp_path / "web.yaml").write_text("{}")
    with pytest.raises(ConfigError, match=r"hint: name one of its files: web\.yaml"):
        config.load(tmp_path)
    (tmp_path / "run.json").write_text("{}")
    with pytest.raises(ConfigError, match="hint: it is a run directory: gpu-curate status"):
        config.load(tmp_path)


OFF = [
    ("normalize", lambda c: c.normalize is None),
    ("language", lambda c: c.language == config.Language()),
    ("pii", lambda c: c.pii == config.Pii()),
    ("pii.email", lambda c: c.pii.email == "off"),
    ("quality", lambda c: c.quality == config.Quality()),
    ("quality.c4", lambda c: c.quality.c4 is None),
    ("quality.gopher_quality.min_words", lambda c: c.quality.gopher_quality.min_words is None),
    ("dedup", lambda c: c.dedup.exact is False and c.dedup.fuzzy is None),
    ("dedup.exact", lambda c: c.dedup.exact is False),
    ("dedup.fuzzy", lambda c: c.dedup.fuzzy is None),
    ("references", lambda c: c.references == []),
    ("language.model", lambda c: c.language.model is None),
    ("normalize.form", lambda c: c.normalize.form is None),
    ("shards.validation", lambda c: c.shards.validation.tokens == 0),
    ("min_tokens", lambda c: c.min_tokens == 0),
    ("sources.a.keep_columns", lambda c: c.sources[0].keep_columns == []),
    ("sources.w.timeout_s", lambda c: c.sources[1].timeout_s is None),
    ("run.by_reference", lambda c: c.run.by_reference == []),
]


@pytest.mark.parametrize("word", ["null", "off", "false", "'off'", "no", "OFF"])
@pytest.mark.parametrize(("key", "is_off"), OFF, ids=[key for key, _ in OFF])
def test_null_and_off_switch_off_everything_that_can_be(tmp_path, key, is_off, word):
    path = tmp_path / "r.yaml"
    path.write_text(
        "sources:\n"
        "  - {name: a, type: jsonl, path: x, keep_columns: [u]}\n"
        "  - {name: w, type: warc, path: x}\n"
        "tokenizer: {path: t}\n"
        "quality: {gopher_quality: on, c4: on}\n"
        "language: {model: lid.176.ftz}\n"
        "pii: {email: count}\n"
        "references: [{name: b, path: x, action: train_only}]\n"
    )
    on = config.load(path)
    assert not is_off(on)
    if key == "language.model" and word == "'off'":
        return  # a file may have that name
    assert is_off(config.load(path, [f"{key}={word}"]))


@pytest.mark.parametrize("key", ["shards", "run"])
def test_what_cannot_be_off_says_what_to_do(key):
    with pytest.raises(ConfigError, match=rf"{key}: a run always .* leave the key out for its defaults.*got None"):
        config.parse(with_keys(**{key: None}))


def test_on_is_a_section_with_its_defaults():
    c = config.parse(with_keys(normalize=True, dedup={"fuzzy": "on"}))
    assert (c.normalize, c.dedup.fuzzy) == (config.Normalize(), config.Fuzzy())


def test_a_kept_column_may_have_another_name():
    source = {"name": "a", "type": "jsonl", "path": "x"}
    kept = ["url", {"column": "source", "as": "origin"}, {"column": "meta.text", "as": "note"}]
    parsed = config.parse(with_keys(sources=[{**source, "keep_columns": kept, "group_column": "url"}])).sources[0]
    assert parsed.kept == {"url": "url", "origin": "source", "note": "meta.text"}
    assert parsed.extra_columns == ["url", "source", "meta.text"]
    assert parsed.model_dump(mode="json")["keep_columns"] == kept
    for wrong, said in (
        ([{"column": "x", "as": "text"}], r"a\.keep_columns: 'text' is a column that every document has"),
        (["source"], r"carry yours under another name: \{column: source, as: source_of_source\}"),
        (["u", {"column": "v", "as": "u"}], r"two entries of a\.keep_columns are named 'u'"),
        ([{"column": "x"}], r"sources\.a\.keep_columns\.0\.as: missing"),
        ([{"column": "x", "to": "y"}], r"keep_columns\.0\.to: unknown key"),
    ):
        with pytest.raises(ConfigError, match=said):
            config.parse(with_keys(sources=[{**source, "keep_columns": wrong}]))


def test_an_earlier_name_of_a_value_is_read_with_a_hint(tmp_path):
    path = tmp_path / "r.yaml"
    path.write_text("sources: [{name: a, type: jsonl, path: x}]\ntokenizer: {path: t}\n")
    with pytest.warns(FutureWarning, match=r"r\.yaml: components: scipy is called cpu now; write components: cpu"):
        fuzzy = config.load(path, ["dedup.fuzzy.components=scipy"]).dedup.fuzzy
    assert fuzzy.components == "cpu"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert config.load(path, ["dedup.fuzzy.components=cpu"]).dedup.fuzzy == fuzzy
        assert config.parse(with_keys(dedup={"fuzzy": {"components": "scipy"}})).dedup.fuzzy == fuzzy  # of an old run
    with pytest.raises(ConfigError, match=r"components: input should be 'auto', 'cpu' or 'curator', got 'spicy'"):
        config.load(path, ["dedup.fuzzy.components=spicy"])


def test_the_command_line_tells_the_hint_of_an_earlier_name(tmp_path):
    (tmp_path / "r.yaml").write_text("sources: [{name: a, type: jsonl, path: x}]\ntokenizer: {path: t}\n")
    told = CliRunner().invoke(cli.app, ["plan", str(tmp_path / "r.yaml"), "--set", "dedup.fuzzy.components=scipy"])
    assert f"warning: {tmp_path / 'r.yaml'}: components: scipy is called cpu now" in told.stderr


def test_a_key_by_its_earlier_name_is_read_with_a_hint(tmp_path):
    path = tmp_path / "r.yaml"
    path.write_text("sources: [{name: a, type: jsonl, path: x}]\ntokenizer: {path: t}\n")
    with pytest.warns(FutureWarning, match="min_chars is called min_letters now; write min_letters: 7"):
        assert config.load(path, ["language.min_chars=7"]).language.min_letters == 7
    assert config.parse(with_keys(language={"min_chars": 8})).language.min_letters == 8  # of an old run
    with pytest.raises(ConfigError, match=r"language\.min_chars: unknown key"):
        config.parse(with_keys(language={"min_chars": 7, "min_letters": 8}))
