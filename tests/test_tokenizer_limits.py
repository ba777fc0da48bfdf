"""A tokenizer.json from somewhere else: refused before it costs much time or memory."""

from __future__ import annotations

import json
import resource
import time

import pytest

from gpu_curate.config import Tokenizer
from gpu_curate.errors import ConfigError
from gpu_curate.tokenizer import limits
from gpu_curate.tokenizer.loading import load, load_beside
from gpu_curate.tokenizer.patterns import CHUNKABLE
from gpu_curate.tokenizer.training import train

EOT = "<|endoftext|>"


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    train(["some text about the ferry"] * 3, 300, EOT, path)
    return json.loads(path.read_bytes())


def replace(old, new, kind="String"):
    return {"type": "Replace", "pattern": {kind: old}, "content": new}


def sequence(*steps, key="normalizers"):
    return {"type": "Sequence", key: list(steps)}


def split(pattern):
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    one = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    return sequence(one, level, key="pretokenizers")


def write(path, data):
    path.write_bytes(data if isinstance(data, bytes) else json.dumps(data).encode())
    return Tokenizer(path=str(path), eot=EOT)


GROWS = "lets a text grow"
COSTLY = {
    "doubling": (lambda t: t.update(normalizer=sequence(*[replace("a", "aa")] * 30)), GROWS),
    "doubling in sequences": (lambda t: t.update(normalizer=sequence(*[sequence(replace("a", "aa"))] * 6)), GROWS),
    "one long content": (lambda t: t.update(normalizer=replace("a", "b" * 40)), GROWS),
    "a pattern": (lambda t: t.update(normalizer=replace("", "b" * 40, "Regex")), GROWS),
    "long prepend": (lambda t: t.update(normalizer={"type": "Prepend", "prepend": "b" * 2000}), "by 2,000 characters"),
    "prepend, then replace": (
        lambda t: t.update(normalizer=sequence({"type": "Prepend", "prepend": "b" * 100}, replace("b", "c" * 20))),
        "by 2,000 characters",
    ),
    "a pattern without end": (
        lambda t: t.update(pre_tokenizer=split("(a|aa|b|.)+$x")),
        "cannot run it|takes more than",
    ),
}


@pytest.mark.parametrize("name", COSTLY)
def test_what_grows_or_does_not_end_is_refused(trained, tmp_path, name, capfd):
    change, said = COSTLY[name]
    data = json.loads(json.dumps(trained))
    change(data)
    begun = time.monotonic()
    with pytest.raises(ConfigError, match=said):
        load(write(tmp_path / "t.json", data))
    assert time.monotonic() - begun < 30
    assert "panicked" not in capfd.readouterr().err


@pytest.mark.parametrize(
    "normalizer",
    [sequence({"type": "Prepend", "prepend": "_"}, replace(" ", "_")), sequence({"type": "NFC"}), replace(" ", "abc")],
)
def test_published_kinds_pass(trained, tmp_path, normalizer):
    assert load(write(tmp_path / "t.json", {**trained, "normalizer": normalizer})).eot_id == 275


def test_files_that_are_too_large_are_refused_before_they_are_read_or_parsed(tmp_path, monkeypatch):
    sparse = tmp_path / "t.json"
    with sparse.open("wb") as f:
        f.truncate(1 << 30)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ConfigError, match="1,073,741,824 bytes"):
        load(Tokenizer(path=str(sparse), eot=EOT))
    merges = b'{"model": {"vocab": {"a": 0}, "merges": [' + b'"a a",' * 10_000_000 + b'"a a"]}}'
    parsed = []
    monkeypatch.setattr(limits.json, "loads", lambda data: parsed.append(data))
    with pytest.raises(ConfigError, match=r"10,000,0.. values"):
        load(write(tmp_path / "m.json", merges))
    assert parsed == []
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 400 << 10


def test_merges_and_entries_are_counted(trained, monkeypatch):
    monkeypatch.setattr(limits, "MAX_MERGES", 2)
    with pytest.raises(ConfigError, match="merges; at most 2"):
        limits.check_costs(trained, "t.json")
    monkeypatch.setattr(limits, "MAX_MERGES", 1000)
    monkeypatch.setattr(limits, "MAX_ENTRIES", 100)
    with pytest.raises(ConfigError, match="entries; at most 100"):
        limits.check_costs(trained, "t.json")


@pytest.mark.parametrize("depth", [900, 100_000])
def test_deep_nesting_is_an_error_and_not_the_end(trained, tmp_path, depth):
    nested = b'{"type": "Sequence", "normalizers": [' * depth + b"]}" * depth
    data = json.dumps({**trained, "normalizer": 0}).encode().replace(b'"normalizer": 0', b'"normalizer": ' + nested)
    with pytest.raises(ConfigError):
        load(write(tmp_path / "t.json", data))


def test_a_trial_is_bounded_in_time_and_memory(monkeypatch, trained):
    inert = json.dumps({**trained, "post_processor": None})
    assert limits.trial(inert, ["a"], "t.json") is None
    monkeypatch.setattr(limits, "TRIAL_S", 0.001)  # no process starts in that
    with pytest.raises(ConfigError, match="to encode 1 short texts takes more than 0 s"):
        limits.trial(inert, ["a"], "t.json")
    monkeypatch.setattr(limits, "TRIAL_S", 20.0)
    monkeypatch.setattr(limits, "TRIAL_MEMORY_BYTES", 200 << 20)
    doubling = json.dumps({**trained, "post_processor": None, "normalizer": sequence(*[replace("a", "aa")] * 30)})
    with pytest.raises(ConfigError, match="MiB of memory"):
        limits.trial(doubling, ["a"], "t.json")


def test_a_tokenizer_of_ours_needs_no_trial(trained):
    assert limits.is_plain(trained, 1000, CHUNKABLE)
    assert not limits.is_plain({**trained, "pre_tokenizer": split("(a+)+$")}, 1000, CHUNKABLE)
    assert not limits.is_plain(trained, 1 << 30, CHUNKABLE)


@pytest.mark.parametrize(
    ("key", "value"),
    [("normalizer", "NFC"), ("normalizer", [1]), ("normalizer", {"type": "Sequence", "normalizers": 3}), ("normalizer", {"type": []}),
     ("normalizer", {"type": "Sequence", "normalizers": [None]}), ("pre_tokenizer", 5), ("pre_tokenizer", {"type": "Split", "pattern": "x"}),
     ("pre_tokenizer", {"type": "Sequence", "pretokenizers": [{"type": "Split"}, "x"]}), ("decoder", "x"), ("post_processor", [])],
)  # fmt: skip
def test_parts_of_another_kind_are_one_error(trained, tmp_path, key, value):
    (tmp_path / "t.json").write_text(json.dumps({**trained, key: value}))
    with pytest.raises(ConfigError, match=rf"not a tokenizer\.json \({key} is of another kind\)"):
        load(Tokenizer(path=str(tmp_path / "t.json"), eot=EOT))


def test_merges_of_another_kind_are_one_error(trained, tmp_path):
    (tmp_path / "t.json").write_text(json.dumps({**trained, "model": {**trained["model"], "merges": 5}}))
    with pytest.raises(ConfigError, match=r"model\.merges is of another kind"):
        load(Tokenizer(path=str(tmp_path / "t.json"), eot=EOT))


def test_a_decoder_that_lets_a_text_grow_is_refused(trained, tmp_path):
    for path, decoder in (
        (tmp_path / "a.json", replace("a", "x" * 100)),
        (tmp_path / "b.json", sequence(*[replace("a", "aaa")] * 4, key="decoders")),
    ):
        path.write_text(json.dumps({**trained, "decoder": decoder}))
        for open_ in (lambda path: load(Tokenizer(path=str(path), eot=EOT)), load_beside):
            with pytest.raises(ConfigError, match="its decoder lets a text grow to"):
                open_(path)
