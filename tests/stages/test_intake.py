"""What cannot be read or taken: named, counted, never the end of the run; and runs that keep nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from places import ROOT

from gpu_curate import config, guard
from gpu_curate.api import pipeline
from gpu_curate.errors import ConfigError, FatalError, InputError, NothingKeptError, RetryableError
from gpu_curate.ops.normalize import cpu as column_normalize
from gpu_curate.runs import scheduler
from gpu_curate.sources import Record
from gpu_curate.sources.jsonl import JsonlReader
from gpu_curate.stages.part import Stopwatch
from gpu_curate.stages.rejects import kind_of
from gpu_curate.store.files import read_json
from gpu_curate.text import language, pii
from gpu_curate.tokenizer.backends import Backend
from gpu_curate.tokenizer.training import train

TEXTS = [f"document number {i} about the ferry and its {i * 7} lamps" for i in range(12)]


class Panic(BaseException):
    """What a Rust library raises."""


Panic.__name__ = "PanicException"


class Odd(Exception):
    pass


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    train(TEXTS, 300, "<|endoftext|>", path)
    return path


def jsonl(path: Path, texts, **keys) -> Path:
    path.write_text("".join(json.dumps({"text": t, **keys}) + "\n" for t in texts))
    return path


def recipe(path, tokenizer, /, **keys):
    data = {
        "sources": [{"name": "s", "type": "jsonl", "path": str(path)}],
        "tokenizer": {"path": str(tokenizer)},
        "min_tokens": 0,
        "dedup": {"exact": True, "fuzzy": None},
        "run": {"engine": "inline"},
    }
    return {**data, **keys}


def execute(run, path, tokenizer, /, **keys):
    pipeline.execute(config.parse(recipe(path, tokenizer, **keys)), run)
    return read_json(run / "report" / "report.json")


def rejects(run: Path) -> list[dict]:
    return [json.loads(line) for p in sorted((run / "rejects").glob("*.jsonl")) for line in p.read_text().splitlines()]


def cli(run, path, tokenizer, /, *args, **keys):
    """Exit status, standard output, standard error of `gpu-curate run`."""
    recipe_path = run.parent / f"{run.name}.yaml"
    recipe_path.write_text(yaml.safe_dump(recipe(path, tokenizer, **keys)))
    command = [sys.executable, "-m", "gpu_curate.cli", "run", str(recipe_path), "--out", str(run), *args]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120, check=False)
    return done.returncode, done.stdout, done.stderr


# ------------------------------------------------------------------------------------------------------------ the guard


@pytest.mark.parametrize(
    "error", [Odd("what"), UnicodeDecodeError("utf-8", b"\xff", 0, 1, "odd"), Panic("unwrap"), KeyError(3)]
)
def test_whatever_a_library_raises_is_a_refusal(error):
    assert guard.refusal(error).startswith(type(error).__name__)


@pytest.mark.parametrize(
    "error",
    [MemoryError(), KeyboardInterrupt(), SystemExit(), FatalError("x"), RetryableError("x"), OSError(24, "files")],
)
def test_what_is_no_word_about_the_input_goes_on(error):
    with pytest.raises(type(error)):
        guard.refusal(error)


@pytest.mark.parametrize("error", [Odd("what is this"), Panic("unwrap"), RecursionError("deep"), AssertionError()])
@pytest.mark.parametrize("where", ["splits", "read"])
def test_a_reader_that_fails_on_a_file_costs_that_file(tmp_path, tokenizer, monkeypatch, error, where):
    jsonl(tmp_path / "bad.jsonl", TEXTS[:4])
    jsonl(tmp_path / "good.jsonl", TEXTS[4:])
    split, record = JsonlReader.splits, JsonlReader._records

    def splits(self, path, size, max_bytes):
        if path.endswith("bad.jsonl") and where == "splits":
            raise error
        return split(self, path, size, max_bytes)

    def records(self, lines, split, skip):
        for n, item in enumerate(record(self, lines, split, skip)):
            if split.path.endswith("bad.jsonl") and n == 2:
                raise error
            yield item

    monkeypatch.setattr(JsonlReader, "splits", splits)
    monkeypatch.setattr(JsonlReader, "_records", records)
    facts = execute(tmp_path / "r", tmp_path / "*.jsonl", tokenizer)
    assert facts["documents"] == {"read": 11, "rejected": 1, "dropped": {}, "kept": 10}
    (reject,) = rejects(tmp_path / "r")
    assert (reject["path"], reject["row"]) == (f"{tmp_path}/bad.jsonl", 1)
    assert reject["reason"].startswith(f"unreadable: {type(error).__name__}")
    assert facts["incomplete"] == [f"{tmp_path}/bad.jsonl"]


def odd_parquet(path: Path) -> None:
    """A Parquet file with a column whose name is not UTF-8."""
    pq.write_table(pa.table({"text": TEXTS[:3], "naXXme": [1, 2, 3]}), path)
    path.write_bytes(path.read_bytes().replace(b"naXXme", b"na\xff\xfeme"))


def test_a_column_name_that_is_not_utf8_rejects_the_file_everywhere(tmp_path, tokenizer):
    folder = tmp_path / "data"
    folder.mkdir()
    odd_parquet(folder / "bad.parquet")
    pq.write_table(pa.table({"text": TEXTS}), folder / "good.parquet")
    for source in (
        {"name": "s", "type": "parquet", "path": str(folder)},
        {"name": "s", "type": "huggingface", "dataset": str(folder)},
    ):
        run = tmp_path / source["type"]
        facts = execute(run, "", tokenizer, sources=[source])
        assert facts["documents"] == {"read": 13, "rejected": 1, "dropped": {}, "kept": 12}
        (reject,) = rejects(run)
        assert reject["path"] == f"{folder}/bad.parquet"
        assert "UnicodeDecodeError" in reject["reason"]
        assert facts["failures"] == [
            f"source s: nothing could be read of 1 file, e.g. {folder}/bad.parquet: {reject['reason']}; see rejects/ "
            "(to end with status 0 all the same: run.allow_unreadable: true)"
        ]
    from gpu_curate.runs.planning import make_plan

    parsed = config.parse(recipe("", tokenizer, sources=[source]))
    assert make_plan(parsed, tmp_path / "other")["partitions"] == 1
    from gpu_curate.tools.train_tokenizer import train_from_files

    trained = train_from_files([str(folder)], tmp_path / "t.json", 300, "<|e|>", "text", 1 << 20)
    assert trained["documents"] == 12
    assert [r.startswith(f"{folder}/bad.parquet") for r in trained["rejected"]] == [True]


def test_a_reference_file_that_a_library_refuses_is_an_error_that_names_it(tmp_path, tokenizer):
    odd_parquet(tmp_path / "bench.parquet")
    path = jsonl(tmp_path / "a.jsonl", TEXTS)
    references = [{"name": "b", "path": str(tmp_path / "bench.parquet"), "action": "decontaminate"}]
    with pytest.raises(ConfigError, match=r"reference file .*bench\.parquet cannot be read: UnicodeDecodeError"):
        execute(tmp_path / "r", path, tokenizer, references=references)


@pytest.mark.parametrize("error", [Odd("odd"), Panic("unwrap")])
@pytest.mark.parametrize("step", ["normalize", "pii", "language", "tokens"])
def test_a_document_that_a_step_fails_on_is_rejected_by_name(tmp_path, tokenizer, monkeypatch, step, error):
    bad = TEXTS[5] + " cafe\u0301" if step == "normalize" else TEXTS[5]  # its normal form is another one
    if step == "pii":
        bad += " x@y.example"
    texts = [*TEXTS[:5], bad, *TEXTS[6:]]
    path = jsonl(tmp_path / "a.jsonl", texts)

    def failing(function):
        def fail(self_or_text, *args, **keys):
            if bad.encode() in repr((self_or_text, *args)).encode():
                raise error
            return function(self_or_text, *args, **keys)

        return fail

    keys = {}
    if step == "normalize":
        monkeypatch.setattr(column_normalize, "normalize", failing(column_normalize.normalize))
    elif step == "pii":
        keys["pii"] = {"email": "replace"}
        monkeypatch.setattr(pii.PiiScanner, "_all_in", failing(pii.PiiScanner._all_in))
    elif step == "language":
        keys["language"] = {"model": "lid.176.ftz"}
        pytest.importorskip("fasttext")
        monkeypatch.setattr(language.LanguageId, "_one", failing(language.LanguageId._one))
    else:

        def encode(self, texts):
            if bad in (texts if isinstance(texts, list) else texts.to_arrow().to_pylist()):
                raise error
            return whole(self, texts)

        whole = Backend.encode
        monkeypatch.setattr(Backend, "encode", encode)
    facts = execute(tmp_path / "r", path, tokenizer, **keys)
    assert facts["documents"] == {"read": 12, "rejected": 1, "dropped": {}, "kept": 11}
    assert facts["sources"]["s"]["rejected"] == 1
    assert facts["tokens"]["read"] == facts["tokens"]["kept"] + facts["tokens"]["rejected"]
    (reject,) = rejects(tmp_path / "r")
    assert (reject["path"], reject["row"], reject["source"]) == (str(path), 5, "s")
    assert f"{type(error).__name__}: " in reject["reason"]
    assert reject["head"] == bad
    assert sum(facts["rejected_by_reason"].values()) == 1
    shown = {r["row"] for r in pq.read_table(tmp_path / "r/shards/documents.parquet").to_pylist()}
    assert shown == set(range(12)) - {5}
    with pytest.raises(InputError, match=r"a\.jsonl: row 5"):
        execute(tmp_path / "strict", path, tokenizer, run={"engine": "inline", "strict": True}, **keys)


def test_memory_and_our_own_errors_keep_their_meaning(tmp_path, tokenizer, monkeypatch):
    path = jsonl(tmp_path / "a.jsonl", TEXTS)

    def no_memory(*_):
        raise MemoryError

    monkeypatch.setattr(JsonlReader, "_record", no_memory)
    with pytest.raises(FatalError, match="out of memory"):
        execute(tmp_path / "r", path, tokenizer)


def test_a_text_that_one_library_cannot_take_is_encoded_by_another_with_its_ids(tokenizer, monkeypatch):
    from gpu_curate.config import Tokenizer
    from gpu_curate.document import TextColumn
    from gpu_curate.tokenizer.loading import load

    encoder = load(Tokenizer(path=str(tokenizer), library="gigatoken"))
    texts = [*TEXTS, "x " * 600_000]  # the last in two chunks
    expected = encoder.encode_batch(texts)
    whole = Backend.encode

    def encode(self, some):
        own = some if isinstance(some, list) else some.to_arrow().to_pylist()
        if self.reads_columns and any(t in (TEXTS[3], TEXTS[11]) or len(t) > 10**6 for t in own):
            raise Panic("stack overflow")
        return whole(self, some)

    monkeypatch.setattr(Backend, "encode", encode)
    for found in (encoder.encode_batch(texts), encoder.encode_column(TextColumn.from_texts(texts))):
        assert [a.tolist() for a in found] == [a.tolist() for a in expected]

    def never(self, some):
        if any(t in TEXTS[3] for t in (some if isinstance(some, list) else some.to_arrow().to_pylist())):
            raise Panic("stack overflow")
        return whole(self, some)

    monkeypatch.setattr(Backend, "encode", never)
    refused: dict[int, str] = {}
    ids, lens = encoder.encode_batch(TEXTS, refused)
    assert refused == {3: "gigatoken: PanicException: stack overflow; tokenizers: PanicException: stack overflow"}
    ends = expected[1].cumsum()
    assert lens.tolist() == [0 if i == 3 else n for i, n in enumerate(expected[1][:12])]
    assert ids.tolist() == [*expected[0][: ends[2]].tolist(), *expected[0][ends[3] : ends[11]].tolist()]
    with pytest.raises(InputError, match="text 3 of 12 cannot be encoded: gigatoken"):
        encoder.encode_batch(TEXTS)


def test_a_run_of_blanks_that_tiktoken_cannot_take_has_the_ids_of_the_other_library(tmp_path, tokenizer):
    """tiktoken 0.14 panics at a million blanks under the pattern of o200k."""
    pytest.importorskip("tiktoken")
    import base64

    ranks = tmp_path / "o200k_base.tiktoken"
    ranks.write_text("".join(f"{base64.b64encode(bytes([i])).decode()} {i}\n" for i in range(256)))
    path = jsonl(tmp_path / "a.jsonl", [*TEXTS, "a" + " " * 1_000_000 + "b"])
    keys = {"tokenizer": {"path": f"tiktoken:{ranks}", "library": "tiktoken"}, "normalize": None}
    facts = execute(tmp_path / "r", path, tokenizer, **keys)
    assert facts["documents"]["kept"] == 13
    rows = pq.read_table(tmp_path / "r/shards/documents.parquet").to_pylist()
    assert {r["tokens"] for r in rows if r["row"] == 12} == {1_000_003}


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_a_reader_that_takes_the_process_down_is_tried_again_and_then_named(tmp_path, tokenizer, kind):
    for name, texts in {"a": TEXTS[:6], "fatal": TEXTS[6:]}.items():
        jsonl(tmp_path / f"{name}.jsonl", texts)
        pq.write_table(pa.table({"text": texts}), tmp_path / f"{name}.parquet")
    reader, method = f"{kind.capitalize()}Reader", "read_batches" if kind == "parquet" else "read"
    (tmp_path / "sitecustomize.py").write_text(
        "import os, signal\n"
        f"from gpu_curate.sources.{kind} import {reader}\nread = {reader}.{method}\n"
        "def kill(self, split, skip=0):\n"
        "    if 'fatal' in split.path: os.kill(os.getpid(), signal.SIGSEGV)\n"
        "    return read(self, split, skip)\n"
        f"{reader}.{method} = kill\n"
    )
    path = tmp_path / "r.yaml"
    sources = [{"name": "s", "type": kind, "path": str(tmp_path / f"*.{kind}")}]
    path.write_text(yaml.safe_dump(recipe("", tokenizer, sources=sources, run={"workers": 2})))
    env = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    command = [sys.executable, "-m", "gpu_curate.cli", "run", str(path), "--out", str(tmp_path / "r")]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1
    assert "a worker process died; its partitions are run again" in done.stderr
    assert f"documents, partition 000000, reading {tmp_path}/fatal.{kind}: failed 3 times" in done.stderr
    assert "Traceback" not in done.stderr


# --------------------------------------------------------------------------------------------------------- rejects told


def test_reasons_are_counted_without_their_particulars():
    assert kind_of("not JSON: Expecting value at character 17 of the line") == "not JSON"
    assert kind_of("truncated or damaged after row 3 (offset 17): cut") == "truncated or damaged after row N (offset N)"
    assert kind_of("not utf-8: invalid start byte at byte 5") == "not utf-8"
    assert kind_of("no 'text2' in the object") == "no 'text2' in the object"


ODD_LINES = ['{"text": "good"}', '{"text": null}', '{"other": "x"}', "no JSON", "nor this {"]


def test_rejects_are_told_by_reason_everywhere(tmp_path, tokenizer):
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(ODD_LINES))
    code, out, err = cli(tmp_path / "r", path, tokenizer)
    assert code == 0
    facts = read_json(tmp_path / "r/report/report.json")
    assert facts["rejected_by_reason"] == {
        "not JSON": 2,
        "'text' is null, not a string": 1,
        "no 'text' in the object": 1,
    }
    own = facts["rejects"]["s"]
    assert own["reasons"] == facts["rejected_by_reason"]
    assert own["first"] == {"path": str(path), "row": 1, "offset": 17, "reason": "'text' is null, not a string"}
    line = f"rejected  4 records: 2 not JSON, 1 'text' is null, not a string, 1 no 'text' in the object; each is in {tmp_path}/r/rejects"
    assert line in out
    said = f"source s: 4 of 5 records were rejected, the first at {path}: row 1, byte 17: 'text' is null, not a string"
    assert f"warning: {said}; see rejects/" in err
    page = (tmp_path / "r/report/index.html").read_text()
    assert "Rejected records" in page
    assert "not JSON" in page


def test_rejects_are_listed_within_a_bound_and_all_counted(tmp_path, tokenizer, monkeypatch):
    monkeypatch.setattr("gpu_curate.stages.documents.writing._LEAST_BESIDE_BYTES", 1000)
    (tmp_path / "a.jsonl").write_text("no json\n" * 3000 + json.dumps({"text": "a text that is one"}) + "\n")
    report = execute(
        tmp_path / "r", tmp_path / "a.jsonl", tokenizer, run={"engine": "inline", "partition_bytes": 65536}
    )
    rows = rejects(tmp_path / "r")
    assert 65536 < sum(len(json.dumps(r)) + 1 for r in rows) < 67000
    assert rows[-1]["reason"] == "further rejects of this partition are counted, not listed"
    assert 100 < len(rows) < 2000
    assert (report["documents"]["rejected"], report["rejected_by_reason"]) == (3000, {"not JSON": 3000})


def test_a_file_of_which_most_is_rejected_is_a_warning_of_its_own(tmp_path, tokenizer):
    jsonl(tmp_path / "good.jsonl", TEXTS)
    (tmp_path / "mixed.jsonl").write_text('no JSON\n{"text": "one"}\nnor this\n')
    facts = execute(tmp_path / "r", tmp_path / "*.jsonl", tokenizer)
    (warning,) = [w for w in facts["warnings"] if "most records of a file" in w]
    assert f"e.g. 2 of 3 of {tmp_path}/mixed.jsonl: row 0, byte 0: not JSON" in warning
    assert facts["failures"] == []


def test_a_reason_that_says_truncated_is_not_a_cut_file(tmp_path, tokenizer):
    path = tmp_path / "a.jsonl"
    path.write_text('{"truncated_text": "fine"}\n{"other": "damaged, corrupt"}\n')
    sources = [{"name": "s", "type": "jsonl", "path": str(path), "text_column": "truncated_text"}]
    facts = execute(tmp_path / "r", path, tokenizer, sources=sources)
    assert facts["rejected_by_reason"] == {"no 'truncated_text' in the object": 1}
    assert facts["incomplete"] == []
    assert read_json(tmp_path / "r/shards/manifest.json")["incomplete_sources"] == []


# ------------------------------------------------------------------------------------------------------- exit statuses


def test_an_unreadable_file_and_an_empty_source_end_with_status_1_unless_allowed(tmp_path, tokenizer):
    good = jsonl(tmp_path / "good.jsonl", TEXTS)
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 no Parquet at all PAR1")
    pq.write_table(pa.table({"text": TEXTS[:2]}), tmp_path / "ok.parquet")
    (tmp_path / "none.jsonl").write_text("")
    sources = [
        {"name": "a", "type": "jsonl", "path": str(good)},
        {"name": "b", "type": "parquet", "path": str(tmp_path / "*.parquet")},
        {"name": "c", "type": "jsonl", "path": str(tmp_path / "none.jsonl")},
    ]
    code, out, err = cli(tmp_path / "r", good, tokenizer, sources=sources)
    assert code == 1
    assert "done in" in out
    last = err.strip().splitlines()[-2:]
    assert last[0].startswith(
        f"error: source b: nothing could be read of 1 file, e.g. {tmp_path}/bad.parquet: unreadable: "
    )
    assert last[0].endswith("(to end with status 0 all the same: run.allow_unreadable: true)")
    assert last[1] == (
        "error: source c: no document was read (to end with status 0 all the same: run.allow_empty: true)"
    )
    assert read_json(tmp_path / "r/shards/manifest.json")["splits"]["train"]["documents"] > 0
    for allowed, status in ((["run.allow_empty=true"], 1), (["run.allow_empty=true", "run.allow_unreadable=true"], 0)):
        sets = [a for key in allowed for a in ("--set", key)]
        code, _, err = cli(tmp_path / "r", good, tokenizer, *sets, sources=sources)
        assert code == status, err
    assert "warning: source c: no document was read" in err
    assert "warning: source b: nothing could be read of 1 file" in err


def test_an_empty_file_and_a_cut_file_beside_good_ones_are_warnings(tmp_path, tokenizer):
    import gzip

    jsonl(tmp_path / "good.jsonl", TEXTS)
    (tmp_path / "none.jsonl").write_text("")
    whole = gzip.compress("".join(json.dumps({"text": os.urandom(40).hex()}) + "\n" for _ in range(5000)).encode())
    (tmp_path / "cut.jsonl.gz").write_bytes(whole[: len(whole) // 2])
    facts = execute(tmp_path / "r", tmp_path / "*.jsonl*", tokenizer)
    assert facts["failures"] == []
    assert f"source s: {tmp_path}/none.jsonl is empty: 0 documents" in facts["warnings"]
    assert [w for w in facts["warnings"] if w.startswith("1 file is cut or damaged")]


def test_a_cut_file_of_records_that_are_left_out_is_not_unreadable(tmp_path, tokenizer):
    from sources.test_wikipedia import dump

    page = "<page><title>T{}</title><ns>0</ns><redirect title='U'/><revision><text>x</text></revision></page>"
    (tmp_path / "a.xml").write_text(dump([page.format(i) for i in range(3)]).removesuffix("</mediawiki>\n")[:-13])
    path = jsonl(tmp_path / "good.jsonl", TEXTS)
    sources = [
        {"name": "w", "type": "wikipedia", "path": str(tmp_path / "a.xml")},
        {"name": "s", "type": "jsonl", "path": str(path)},
    ]
    facts = execute(tmp_path / "r", "", tokenizer, sources=sources)
    assert facts["rejected_by_reason"]
    assert facts["unreadable"] == {}
    assert facts["empty_sources"] == ["w"]


@pytest.mark.parametrize(
    ("lines", "keys", "said"),
    [
        (["short", "texts"], {"min_tokens": 1000}, "2 were read, too_few_tokens dropped 2"),
        ([], {}, "0 were read"),
        ([None, None], {}, r"0 were read, 2 rejected \(2 'text' is null, not a string\)"),
        ([" ", "\n"], {"tokenizer": {"train": {"vocab_size": 300}}}, "there is no text to train on"),
        ([None], {"tokenizer": {"train": {"vocab_size": 300}}}, "there is no text to train on"),
    ],
)
def test_a_run_that_keeps_nothing_writes_its_report_and_fails(tmp_path, tokenizer, lines, keys, said):
    path = jsonl(tmp_path / "a.jsonl", lines)
    bench = jsonl(
        tmp_path / "bench.jsonl", ["one question about a ferry that no one ever asked before today in any port at all"]
    )
    references = [{"name": "b", "path": str(bench), "action": "decontaminate"}]
    with pytest.raises(NothingKeptError, match=said):
        execute(tmp_path / "r", path, tokenizer, references=references, dedup={}, **keys)
    facts = read_json(tmp_path / "r/report/report.json")
    assert facts["documents"]["read"] == len(lines)
    assert facts["documents"]["kept"] == 0
    assert facts["documents"]["rejected"] == sum(t is None for t in lines)
    assert "</html>" in (tmp_path / "r/report/index.html").read_text()
    assert not (tmp_path / "r/shards/manifest.json").exists()


# --------------------------------------------------------------------------------------------------------- sampled


def test_a_sampled_source_says_how_much_was_read(tmp_path, tokenizer):
    pq.write_table(pa.table({"text": TEXTS}), tmp_path / "a.parquet", row_group_size=2)
    jsonl(tmp_path / "b.jsonl", TEXTS)
    sources = [
        {"name": "p", "type": "parquet", "path": str(tmp_path / "a.parquet"), "row_groups": {"every": 4}},
        {"name": "m", "type": "parquet", "path": str(tmp_path / "a.parquet"), "max_documents": 3},
        {"name": "j", "type": "jsonl", "path": str(tmp_path / "b.jsonl"), "max_bytes": 100},
        {"name": "w", "type": "jsonl", "path": str(tmp_path / "b.jsonl"), "max_documents": 12},
    ]
    code, out, err = cli(tmp_path / "r", "", tokenizer, sources=sources)
    assert code == 0, err
    facts = read_json(tmp_path / "r/report/report.json")
    assert facts["sampled"] == {
        "p": {"read": 4, "of": 12, "by": "row_groups: every 4"},
        "m": {"read": 3, "of": 12, "by": "max_documents: 3"},
        "j": {"read": 3, "of": None, "by": "max_bytes: 100"},
    }
    assert "sampled   p: 4 of 12 records read (row_groups: every 4)\n" in out
    assert "sampled   j: 3 records read, the rest was left out (max_bytes: 100)\n" in out
    assert "Sampled sources" in (tmp_path / "r/report/index.html").read_text()


# --------------------------------------------------------------------------------------------------- columns before work


def wrong_columns(folder: Path) -> list[dict]:
    """Sources of every kind that names columns, all of them wrong somewhere."""
    pq.write_table(pa.table({"body": TEXTS, "meta": [{"lang": "en"}] * 12}), folder / "p.parquet")
    (folder / "j.jsonl").write_text('{"content": {"body": "x"}, "id": 1}\n' * 3)
    (folder / "hub").mkdir()
    pq.write_table(pa.table({"text": TEXTS}), folder / "hub/train.parquet")
    (folder / "t.txt").write_text("some text")
    parquet = {"type": "parquet", "path": str(folder / "p.parquet")}
    return [
        {"name": "p", **parquet, "group_column": "dump", "keep_columns": ["meta.lang", "meta.script", "lang"]},
        {"name": "j", "type": "jsonl", "path": str(folder / "j.jsonl"), "text_column": "content.text"},
        {"name": "h", "type": "huggingface", "dataset": str(folder / "hub"), "text_column": "body"},
        {"name": "t", "type": "text", "path": str(folder / "t.txt"), "keep_columns": ["url"]},
        {"name": "w", "type": "wikipedia", "path": str(folder / "wiki.xml"), "keep_columns": ["titel"]},
    ]


def test_all_wrong_columns_of_all_sources_are_one_error_before_any_work(tmp_path, tokenizer):
    from gpu_curate.runs.planning import make_plan

    sources = wrong_columns(tmp_path)
    (tmp_path / "wiki.xml").write_text("<mediawiki></mediawiki>")
    parsed = config.parse(recipe("", tokenizer, sources=sources))
    for start in (lambda: pipeline.execute(parsed, tmp_path / "r"), lambda: make_plan(parsed, tmp_path / "r")):
        with pytest.raises(ConfigError) as e:
            start()
        assert e.value.message.splitlines() == [
            f"source p: {tmp_path}/p.parquet has no column 'text' (text_column), 'dump' (group_column), "
            "'meta.script' (keep_columns), 'lang' (keep_columns) (it has body, meta.lang)",
            f"source j: none of the first 3 records of {tmp_path}/j.jsonl has key 'content.text' (text_column) "
            "(they have content, content.body, id)",
            f"source h: {tmp_path}/hub/train.parquet has no column 'body' (text_column) (it has text)",
            f"source t: {tmp_path}/t.txt has no column 'url' (keep_columns) (it has none)",
            f"source w: {tmp_path}/wiki.xml has no column 'titel' (keep_columns) "
            "(it has title, page_id, url, timestamp, template_gaps)",
        ]
        assert not (tmp_path / "r").exists()


def test_files_of_a_source_that_lack_a_column_are_told_together(tmp_path, tokenizer):
    pq.write_table(pa.table({"text": TEXTS, "u": TEXTS}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"text": TEXTS}), tmp_path / "b.parquet")
    pq.write_table(pa.table({"body": TEXTS}), tmp_path / "c.parquet")
    sources = [{"name": "p", "type": "parquet", "path": str(tmp_path / "*.parquet"), "keep_columns": ["u"]}]
    with pytest.raises(ConfigError) as e:
        execute(tmp_path / "r", "", tokenizer, sources=sources)
    assert [line.split(".parquet has ")[1] for line in e.value.message.splitlines()] == [
        "no column 'u' (it has text)",
        "no column 'text', 'u' (it has body)",
    ]


def test_a_key_that_some_records_lack_is_no_error(tmp_path, tokenizer):
    (tmp_path / "0.jsonl").write_text('{"meta": "no text in this file"}\n')
    (tmp_path / "1.jsonl").write_text('{"id": 1}\nno JSON\n' + "".join(json.dumps({"text": t}) + "\n" for t in TEXTS))
    sources = [{"name": "s", "type": "jsonl", "path": str(tmp_path / "*.jsonl"), "keep_columns": ["rare", "id"]}]
    facts = execute(tmp_path / "r", "", tokenizer, sources=sources)
    assert facts["documents"]["kept"] == 12
    (warning,) = [w for w in facts["warnings"] if "rare" in w]
    assert warning == (
        f"source s: none of the first 14 records of {tmp_path}/0.jsonl and 1 other files has key 'rare' (keep_columns) "
        "(they have meta, id, text)"
    )


@pytest.mark.parametrize(
    ("name", "said"), [("a.jsonl", "none of the first 3 records of"), ("a.parquet", "has no column")]
)
def test_a_wrong_text_column_of_tokenizer_train_says_what_there_is(tmp_path, name, said):
    from gpu_curate.tools.train_tokenizer import train_from_files

    if name.endswith("jsonl"):
        (tmp_path / name).write_text('{"body": "x y"}\n' * 3)
    else:
        pq.write_table(pa.table({"body": TEXTS}), tmp_path / name)
    with pytest.raises(ConfigError, match=rf"{said}.*'txt' \(--text-column\) \((they have|it has) body\)"):
        train_from_files([str(tmp_path / name)], tmp_path / "t.json", 300, "<|e|>", "txt", 1 << 20)


def test_the_columns_that_a_format_gives_are_those_it_names(tmp_path):
    from sources.test_warc import page
    from sources.test_wikipedia import PAGES, dump

    from gpu_curate.stages.documents.listing import make_reader

    (tmp_path / "a.warc").write_bytes(page())
    (tmp_path / "a.xml").write_text(dump(PAGES[:5]))
    for kind, name in (("warc", "a.warc"), ("wikipedia", "a.xml")):
        section = {"name": "s", "type": kind, "path": str(tmp_path / name)}
        reader = make_reader(config.parse({"sources": [section], "tokenizer": {"path": "t"}}).sources[0])
        path = str(tmp_path / name)
        items = [i for s in reader.splits(path, 1 << 20, 1 << 30) for i in reader.read(s) if isinstance(i, Record)]
        assert set(items[0].columns) == set(reader.columns(path)[0])


def test_plan_says_what_columns_there_are(tmp_path, tokenizer):
    from gpu_curate.runs.planning import make_plan

    path = jsonl(tmp_path / "a.jsonl", TEXTS, url="x")
    assert make_plan(config.parse(recipe(path, tokenizer)), tmp_path / "r")["sources"][0]["columns"] == ["text", "url"]


def test_a_column_with_a_name_of_ours_is_carried_under_another(tmp_path, tokenizer):
    path = tmp_path / "a.jsonl"
    rows = [{"text": t, "source": f"origin {i}", "meta": {"path": [i]}, "url": "u"} for i, t in enumerate(TEXTS)]
    path.write_text("".join(json.dumps(r) + "\n" for r in rows))
    pq.write_table(pa.table({"text": [t + " too" for t in TEXTS], "tokens": range(12)}), tmp_path / "b.parquet")
    kept = [{"column": "source", "as": "origin"}, {"column": "meta.path", "as": "where"}, "url"]
    sources = [
        {"name": "j", "type": "jsonl", "path": str(path), "keep_columns": kept},
        {
            "name": "p",
            "type": "parquet",
            "path": str(tmp_path / "b.parquet"),
            "keep_columns": [{"column": "tokens", "as": "n"}],
        },
    ]
    execute(tmp_path / "r", "", tokenizer, sources=sources)
    for row in pq.read_table(tmp_path / "r/shards/documents.parquet").to_pylist():
        if row["source"] == "j":
            assert (row["origin"], row["where"], row["url"]) == (f"origin {row['row']}", f"[{row['row']}]", "u")
            assert row["n"] is None
        else:
            assert (row["n"], row["origin"]) == (str(row["row"]), None)


# --------------------------------------------------------------------------------------------------------- the scheduler


def test_plan_does_not_call_a_box_reused_that_is_not_whole(tmp_path, tokenizer):
    from gpu_curate.runs.planning import make_plan
    from gpu_curate.store.artifact import Box

    big = [f"{i} " + "word " * 12_000 for i in range(3)]
    jsonl(tmp_path / "a.jsonl", big)
    jsonl(tmp_path / "b.jsonl", big)
    for name in "ab":  # compressed: a task makes more partitions than the plan foresees
        import gzip

        (tmp_path / f"{name}.jsonl.gz").write_bytes(gzip.compress((tmp_path / f"{name}.jsonl").read_bytes(), 1))
    data = recipe(tmp_path / "*.jsonl.gz", tokenizer, run={"engine": "inline", "partition_bytes": 65536})
    data["sources"][0]["max_documents"] = 4
    parsed = config.parse(data)
    pipeline.execute(parsed, tmp_path / "r")

    def states():
        return {b["name"]: b["state"] for b in make_plan(parsed, tmp_path / "r")["boxes"]}

    assert set(states().values()) == {"reused"}
    documents, scores = Box(tmp_path / "r/documents"), Box(tmp_path / "r/scores")
    assert len(documents.parts()) == 4
    scores.discard("000000-002")
    assert states()["scores"] == "goes on, 1 to do"
    assert states()["tokens"] == "reused"
    documents.discard("000000-003")
    assert states()["documents"] == "goes on, 1 to do"


def test_cpu_seconds_of_a_child_that_ends_are_not_lost():
    code = "import time\nt = time.process_time()\nwhile time.process_time() < t + 0.3: pass\nprint(flush=True)\ninput()"
    child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    child.stdout.readline()
    watch = Stopwatch()
    child.communicate(b"\n")
    assert 0 <= watch.cost().cpu_seconds < 0.25  # what it had used before the watch began is not counted against it
    watch = Stopwatch()
    child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    child.stdout.readline()
    child.communicate(b"\n")
    assert watch.cost().cpu_seconds > 0.3


def test_tasks_that_wait_for_a_server_do_not_hold_up_each_other(tmp_path, tokenizer, monkeypatch):
    for i in range(4):
        jsonl(tmp_path / f"{i}.jsonl", ["w" * 70_000])
    failed = set()
    read = JsonlReader.read

    def hiccup(self, split, skip=0):
        if split.path not in failed:
            failed.add(split.path)
            raise RetryableError(f"{split.path}: connection reset")
        return read(self, split, skip)

    monkeypatch.setattr(JsonlReader, "read", hiccup)
    clock = [0.0]
    slept = []

    class Time:
        perf_counter = staticmethod(time.perf_counter)
        strftime = staticmethod(time.strftime)
        monotonic = staticmethod(lambda: clock[0])

        @staticmethod
        def sleep(seconds):
            slept.append(seconds)
            clock[0] += seconds

    monkeypatch.setattr(scheduler, "time", Time)
    facts = execute(tmp_path / "r", tmp_path / "*.jsonl", tokenizer, run={"engine": "inline", "partition_bytes": 65536})
    assert len(failed) == 4
    assert facts["documents"]["read"] == 4
    assert sum(slept) == pytest.approx(1.0)


@pytest.mark.parametrize("kept", [False, True])
def test_rows_and_kept_values_cut_a_partition_too(tmp_path, tokenizer, monkeypatch, kept):
    """Five million documents of one letter are 5 MB of text and took 2.9 GiB; what is kept beside a text has any length."""
    from gpu_curate.stages.documents import writing

    monkeypatch.setattr(writing, "_LEAST_BESIDE_BYTES", 0)
    monkeypatch.setattr(writing, "ROW_BYTES", 1 if kept else 20_000)
    keys = {"url": "u" * 20_000} if kept else {}
    path = jsonl(tmp_path / "a.jsonl", TEXTS, **keys)
    data = recipe(path, tokenizer, run={"engine": "inline", "partition_bytes": 1 << 16})
    runs = {}
    for name, kept_columns in (("cut", ["url"] * kept), ("whole", [])):
        data["sources"][0]["keep_columns"] = kept_columns
        if name == "whole":
            monkeypatch.setattr(writing, "ROW_BYTES", 1)
        pipeline.execute(config.parse(data), tmp_path / name)
        folder = tmp_path / name / read_json(tmp_path / name / "run.json")["folders"]["documents"]
        parts = sorted(folder.glob("part-*.parquet"), key=lambda p: p.stem)
        runs[name] = [pq.read_table(p)["row"].to_pylist() for p in parts if ".text" not in p.name]
    assert runs["whole"] == [list(range(12))]
    assert [row for part in runs["cut"] for row in part] == list(range(12))
    assert len(runs["cut"]) == 4
    assert (tmp_path / "cut" / "shards" / "train_000000.bin").read_bytes() == (
        tmp_path / "whole" / "shards" / "train_000000.bin"
    ).read_bytes()
