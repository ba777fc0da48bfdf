"""Parquet by column and row by row: the same files, byte for byte, and the same counts."""

from __future__ import annotations

import datetime
import decimal
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpu_curate import config as configs
from gpu_curate.sources.huggingface import HuggingFaceReader
from gpu_curate.sources.jsonl import JsonlReader
from gpu_curate.sources.parquet import ParquetReader
from gpu_curate.stages import Context
from gpu_curate.stages.documents import columns, writing
from gpu_curate.stages.documents.stage import Documents
from gpu_curate.stages.order import intake_of
from gpu_curate.stages.part import make_box
from gpu_curate.stages.partition_text import host_text, read_origin
from gpu_curate.store.files import read_json

TEXTS = [
    "Plain text of a document.\n\nIts second paragraph",
    " blanks  and\r\nline ends\x00 \u3000",
    "e\u0301 and \u212b change their form, mail a.person@example.org or call +1 202 456 1111",
    "",
    "\ufeff \n",
    "“curly” – नमस्ते 日本語 " * 40,
    None,
    b"broken \xff\xfe bytes",
    b"\xed\xa0\x80 half a pair",
    "long " * 3000,
    "see 8.8.8.8, card 4111 1111 1111 1111",
]


def binary(texts: list[str | bytes | None]) -> pa.Array:
    return pa.array([t.encode() if isinstance(t, str) else t for t in texts], pa.binary())


def strings(texts: list[str | bytes | None], kind: pa.DataType) -> pa.Array:
    """Bytes that are no UTF-8 among them: Arrow does not look."""
    if kind == pa.large_string():
        return binary(texts).cast(pa.large_binary()).view(kind)
    return binary(texts).view(pa.string()) if kind == pa.string() else binary(texts)


def write(
    path: Path, texts: list[str | bytes | None], kind: str, more: dict[str, Any] | None = None, **options: Any
) -> None:
    """A file whose `text` is of some type; `nested` has it in a struct, under `meta.text`."""
    if kind == "dictionary":
        column: Any = strings(texts, pa.string()).dictionary_encode()
    elif kind == "string_view":
        column = pa.array([None if isinstance(t, bytes) else t for t in texts], pa.string_view())
    elif kind == "nested":
        column = pa.StructArray.from_arrays([strings(texts, pa.string()), pa.array(range(len(texts)))], ["text", "n"])
    else:
        column = strings(texts, {"large": pa.large_string(), "binary": pa.binary()}.get(kind, pa.string()))
    table = pa.table({"meta" if kind == "nested" else "text": column, **(more or {})})
    pq.write_table(table, path, **{"row_group_size": 37, **options})


def read(folder: Path, source: dict[str, Any], by_reference: Any = (), **keys: Any) -> Context:
    """The documents of a source, by a run that may have begun before."""
    run = {"partition_bytes": 65536, "by_reference": list(by_reference)}
    config = configs.parse({"sources": [source], "tokenizer": {"path": "x"}, "run": run, **keys})
    context = Context.of(folder, config, {"documents": "documents", "rejects": "rejects"})
    make_box(Documents(intake_of(config)), context)
    return context


def outcome(context: Any) -> dict[str, Any]:
    """Bytes of all files, and what the receipts count."""
    files = {}
    for box in ("documents", "texts", "rejects"):
        for path in sorted((context.run / box).glob("*")):
            if path.is_file() and not path.name.startswith("."):
                files[f"{box}/{path.name}"] = path.read_bytes()
    box = context.box("documents")
    timed = {"seconds", "cpu_seconds", "compile_seconds"}
    receipts = {
        part: {k: v for k, v in read_json(box.folder / ".receipts" / f"part-{part}.json").items() if k not in timed}
        for part in box.parts()
    }
    return {"files": files, "receipts": receipts}


def both(folder: Path, monkeypatch: Any, source: dict[str, Any], **keys: Any) -> dict[str, Any]:
    """The outcome by column; that of the rows is equal."""
    source = {"name": "s", "type": "parquet", **source}
    reader = {"parquet": ParquetReader, "jsonl": JsonlReader, "huggingface": HuggingFaceReader}[source["type"]]
    by_column = outcome(read(folder / "columns", source, **keys))
    with monkeypatch.context() as patch:
        patch.delattr(reader, "read_batches")
        by_row = outcome(read(folder / "rows", source, **keys))
    assert by_column["receipts"] == by_row["receipts"]
    assert by_column["files"].keys() == by_row["files"].keys()
    for name, content in by_row["files"].items():
        assert by_column["files"][name] == content, name
    return by_column


@pytest.fixture(autouse=True)
def taken(monkeypatch):
    """Batches that went by column, so that no test compares the row path with itself."""
    monkeypatch.setattr(ParquetReader, "in_footer", lambda self, path: False)  # no process of their own for footers
    seen: list[int] = []
    prepare = writing.prepare
    monkeypatch.setattr(writing, "prepare", lambda batch, *rest: seen.append(len(batch.texts)) or prepare(batch, *rest))
    return seen


NFC, PII = {"form": "NFC"}, {"email": "replace", "ip": "replace", "phone": "count", "card": "replace"}


@pytest.mark.parametrize("kind", ["string", "large", "binary", "dictionary", "string_view", "nested"])
@pytest.mark.parametrize("normalize", [None, NFC, {"form": "NFKD", "keep_indentation": True}], ids=str)
def test_every_type_of_text(tmp_path, monkeypatch, taken, kind, normalize):
    write(tmp_path / "a.parquet", TEXTS * 20, kind)
    write(tmp_path / "b.parquet", TEXTS[::-1], kind, row_group_size=5)
    source = {"path": str(tmp_path / "*.parquet"), "text_column": "meta.text" if kind == "nested" else "text"}
    made = both(tmp_path, monkeypatch, source, normalize=normalize)
    assert len(made["receipts"]) > 3
    rejected = {"'meta.text' is null" if kind == "nested" else "'text' is null": 21, "not UTF-8": 42}
    if kind == "string_view":
        rejected = {"'text' is null": 63}
    assert sum(r["documents"] for r in made["receipts"].values()) == 21 * 8
    reasons: dict[str, int] = {}
    for receipt in made["receipts"].values():
        for reason, n in receipt["reject_reasons"].items():
            reasons[reason] = reasons.get(reason, 0) + n
    assert reasons == rejected
    assert taken


@pytest.mark.parametrize(
    "limits",
    [{"max_documents": n} for n in (0, 1, 7, 8, 40, 500)] + [{"max_bytes": n} for n in (0, 1, 48, 30_000)],
    ids=str,
)
def test_limits_stop_at_the_same_row(tmp_path, monkeypatch, limits):
    write(tmp_path / "a.parquet", TEXTS * 9, "string")
    write(tmp_path / "b.parquet", TEXTS * 2, "dictionary")
    both(tmp_path, monkeypatch, {"path": str(tmp_path / "*.parquet"), **limits}, normalize=NFC)


def test_personal_data_sampled_row_groups_and_a_group_column(tmp_path, monkeypatch):
    groups = pa.array([None if i % 5 == 0 else f"dump {i // 50}" for i in range(220)])
    write(tmp_path / "a.parquet", TEXTS * 20, "large", {"dump": groups, "id": pa.array(range(220))})
    source = {"path": str(tmp_path / "a.parquet"), "group_column": "dump", "keep_columns": ["id"]}
    made = both(tmp_path, monkeypatch, {**source, "row_groups": {"every": 2, "offset": 1}}, normalize=NFC, pii=PII)
    assert next(iter(made["receipts"].values()))["pii"]["email"] > 1
    table = pq.read_table(tmp_path / "columns" / "documents" / "part-000000.parquet")
    assert table.schema.names == ["doc_id", "source", "path", "row", "group", "dump", "id"]


def test_kept_columns_of_every_type(tmp_path, monkeypatch):
    n = len(TEXTS)
    when = [None, *(datetime.datetime(2024, 5, d + 1, 3, 4, 5, 678) for d in range(n - 1))]
    more = {
        "string": strings([f"é{i}" for i in range(n)], pa.string()),
        "broken": strings([b"\xff" if i % 3 == 0 else "ok" for i in range(n)], pa.large_string()),
        "int": pa.array([None, *range(-3, n - 4)], pa.int16()),
        "unsigned": pa.array([2**64 - 1] * n, pa.uint64()),
        "flag": pa.array([i % 2 == 0 for i in range(n)]),
        "float": pa.array([0.1, 1e22, -0.0, 1e-7, float("nan"), float("inf"), None, *range(n - 7)], pa.float64()),
        "single": pa.array(np.linspace(0, 1, n).astype(np.float32)),
        "half": pa.array(np.linspace(0, 1, n).astype(np.float16)),
        "when": pa.array(when, pa.timestamp("us", tz="UTC")),
        "day": pa.array([datetime.date(2024, 1, 1)] * n),
        "cents": pa.array([decimal.Decimal("1.50")] * n),
        "list": pa.array([[i, None] for i in range(n)]),
        "pair": pa.array([{"a": i, "b": "ü"} for i in range(n)]),
        "category": pa.array([f"c{i % 2}" for i in range(n)]).dictionary_encode(),
        "view": pa.array([f"v{i}" for i in range(n)], pa.string_view()),
        "none": pa.nulls(n),
        "bytes": pa.array([b"a\xff"] * n),
    }
    write(tmp_path / "a.parquet", TEXTS, "string", more)
    keep = [*more, {"column": "pair.b", "as": "inner"}, {"column": "int", "as": "again"}]
    both(tmp_path, monkeypatch, {"path": str(tmp_path / "a.parquet"), "keep_columns": keep}, normalize=NFC)
    table = pq.read_table(tmp_path / "columns" / "documents" / "part-000000.parquet")
    assert table["float"].to_pylist()[:4] == ["0.1", "1e+22", "-0.0", "1e-07"]
    assert set(table["broken"].to_pylist()) == {None, "ok"}


def test_partitions_are_cut_by_what_stands_beside_the_texts_too(tmp_path, monkeypatch):
    monkeypatch.setattr(writing, "_LEAST_BESIDE_BYTES", 1)
    long = pa.array([None if i % 7 == 0 else "é" * (i % 50) * 40 for i in range(220)])
    write(tmp_path / "a.parquet", [f"text {i}" for i in range(220)], "string", {"long": long, "dump": long})
    source = {"path": str(tmp_path / "a.parquet"), "keep_columns": ["long"], "group_column": "dump"}
    assert len(both(tmp_path, monkeypatch, source, normalize=NFC)["receipts"]) > 5


def test_a_damaged_page_loses_the_same_rows(tmp_path, monkeypatch):
    path = tmp_path / "a.parquet"
    texts = [f"document {i} " + "word " * 30 for i in range(3000)]
    write(path, texts, "string", row_group_size=1500, use_dictionary=False, compression="zstd", data_page_size=20_000)
    data = bytearray(path.read_bytes())
    data[len(data) // 3 : len(data) // 3 + 500] = bytes(500)
    path.write_bytes(data)
    made = both(tmp_path, monkeypatch, {"path": str(path)}, normalize=NFC)
    assert sum(sum(r["reject_reasons"].values()) for r in made["receipts"].values()) > 0


def test_a_dictionary_that_would_be_too_much_decoded_is_read_row_by_row(tmp_path, monkeypatch, taken):
    monkeypatch.setattr(columns, "_DECODED_BYTES", 5000)
    write(tmp_path / "a.parquet", ["long " * 300] * 50 + ["short"] * 10, "dictionary", row_group_size=50)
    both(tmp_path, monkeypatch, {"path": str(tmp_path / "a.parquet")}, normalize=NFC)
    assert taken == [10]


def test_a_text_that_the_normaliser_or_the_scanner_refuses(tmp_path, monkeypatch):
    from gpu_curate.text import normalize as one
    from gpu_curate.text.pii import PiiScanner

    normalize, find = one.normalize, PiiScanner._find

    def picky(text: str, config: Any) -> bytes:
        if "\u212b" in text:
            raise RecursionError("too deep")
        return normalize(text, config)

    def fussy(self: PiiScanner, buffer: bytearray) -> Any:
        if b"8.8.8.8" in buffer:
            raise AssertionError("no")
        return find(self, buffer)

    monkeypatch.setattr(one, "normalize", picky)
    monkeypatch.setattr("gpu_curate.ops.normalize.cpu.normalize", picky)
    monkeypatch.setattr(PiiScanner, "_find", fussy)
    write(tmp_path / "a.parquet", TEXTS * 3, "string")
    made = both(tmp_path, monkeypatch, {"path": str(tmp_path / "a.parquet")}, normalize=NFC, pii=PII)
    reasons = made["receipts"]["000000"]["reject_reasons"]
    assert reasons == {"normalize": 3, "'text' is null": 3, "not UTF-8": 6, "pii": 3}


LINES = [
    *([b'{"text": "neighbouring lines %d", "n": %d, "m": {"k": [1, "\xc3\xa9"]}}' % (i, i) for i in range(40)]),
    b"",
    b'{"text": "  blanks\\r\\n  "}',
    b'{"text": "cut',
    *([b'{"text": "more of them", "n": "\\ud800"}'] * 12),
    b'{"text": "half \\ud83c end"}',
    b'{"text": null}',
    *([b'{"text": "a.person@example.org", "n": NaN}'] * 9),
    b'{"text": ""}',
    b'{"text": "e\\u0301", "m": null}',
    b"[1]",
    b'{"text": "\xff"}',
    b'{"text": "%s"}' % (b"long " * 9000),
    b'{"text": "%s"}' % (b"longer " * 19000),
]


@pytest.mark.parametrize("normalize", [None, NFC], ids=str)
@pytest.mark.parametrize("limits", [{}, {"max_documents": 60}, {"max_bytes": 1000}], ids=str)
def test_json_lines(tmp_path, monkeypatch, taken, normalize, limits):
    (tmp_path / "a.jsonl").write_bytes(b"\n".join(LINES * 4))
    (tmp_path / "b.json").write_bytes(b"[" + b",".join(LINES[:40]) + b"]")
    source = {"type": "jsonl", "path": [str(tmp_path / n) for n in ("a.jsonl", "b.json")], "keep_columns": ["n", "m.k"]}
    made = both(tmp_path, monkeypatch, {**source, "group_column": "m.k", **limits}, normalize=normalize, pii=PII)
    assert 40 in taken
    if not limits:
        assert sum(r["documents"] for r in made["receipts"].values()) == 4 * 67 + 40
    rows = pq.read_table(tmp_path / "columns" / "documents" / "part-000000.parquet").to_pylist()
    assert (rows[1]["n"], rows[1]["m.k"], rows[1]["group"]) == ("1", '[1, "é"]', '[1, "é"]')


def test_what_a_reader_raises_comes_behind_what_it_read(tmp_path, monkeypatch):
    (tmp_path / "a.jsonl").write_bytes(b"\n".join(LINES[:40]))
    record = JsonlReader._record

    def fail(self: JsonlReader, row: int, offset: int | None, line: bytes) -> Any:
        if row == 25:
            raise LookupError("no")
        return record(self, row, offset, line)

    monkeypatch.setattr(JsonlReader, "_record", fail)
    made = both(tmp_path, monkeypatch, {"type": "jsonl", "path": str(tmp_path / "a.jsonl")}, normalize=NFC)
    receipt = made["receipts"]["000000"]
    assert (receipt["documents"], receipt["first_reject"]["row"]) == (25, 24)


def test_a_data_set_of_parquet_files(tmp_path, monkeypatch, taken):
    (tmp_path / "set" / "data").mkdir(parents=True)
    write(tmp_path / "set" / "data" / "train-0.parquet", TEXTS * 5, "string")
    source = {"type": "huggingface", "dataset": str(tmp_path / "set")}
    both(tmp_path, monkeypatch, source, normalize=NFC)
    assert taken


@given(
    texts=st.lists(st.sampled_from(TEXTS) | st.text(max_size=30), max_size=60),
    group=st.integers(1, 30),
    normalize=st.sampled_from([None, NFC]),
    limit=st.none() | st.integers(0, 40),
)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_texts(tmp_path_factory, monkeypatch, texts, group, normalize, limit):
    folder = tmp_path_factory.mktemp("any")
    write(folder / "a.parquet", texts, "string", row_group_size=group)
    both(folder, monkeypatch, {"path": str(folder / "a.parquet"), "max_documents": limit}, normalize=normalize)


def test_a_run_goes_on_within_a_batch(tmp_path, monkeypatch):
    """Partitions that are there are passed over, wherever they end."""
    write(tmp_path / "a.parquet", TEXTS * 60, "string", row_group_size=1000)
    source = {"name": "s", "type": "parquet", "path": str(tmp_path / "a.parquet")}
    whole = outcome(read(tmp_path / "whole", source, normalize=NFC))
    flush = writing.PartitionWriter._flush
    for stop in (1, 2):
        calls = itertools.count()

        def cut(self: Any, place: Any, calls: Any = calls, stop: int = stop) -> None:
            if next(calls) == stop:
                raise KeyboardInterrupt
            flush(self, place)

        folder = tmp_path / f"cut-{stop}"
        with monkeypatch.context() as patch:
            patch.setattr(writing.PartitionWriter, "_flush", cut)
            with pytest.raises(KeyboardInterrupt):
                read(folder, source, normalize=NFC)
        assert outcome(read(folder, source, normalize=NFC))["files"] == whole["files"]


def test_texts_that_are_others_than_the_source_are_stored_and_the_rest_is_not(tmp_path, monkeypatch):
    texts = [f"a clean text, number {i}" for i in range(100)]
    texts[7], texts[99] = "two  blanks", " one"
    write(tmp_path / "a.parquet", texts, "string")
    both(tmp_path, monkeypatch, {"path": str(tmp_path / "a.parquet")}, normalize=NFC, by_reference=["parquet"])
    table = pq.read_table(tmp_path / "columns" / "texts" / "part-000000.parquet")
    assert read_origin(table.schema) is not None
    stored = table["stored"].to_pylist()
    assert [i for i, t in enumerate(stored) if t is not None] == [7, 99]
    assert (stored[7], stored[99]) == ("two blanks", "one")
    texts[7], texts[99] = "two blanks", "one"
    path = tmp_path / "columns" / "texts" / "part-000000.parquet"
    for numbers in (
        None,
        np.arange(100),
        np.array([7]),
        np.array([6, 7, 8, 99]),
        np.array([3, 50]),
        np.array([], np.int64),
    ):
        text = host_text(path, numbers)
        wanted = range(100) if numbers is None else numbers.tolist()
        assert [text.raw(i).decode() for i in range(len(text))] == [texts[i] for i in wanted]


def test_a_partition_of_which_much_changes_is_copied(tmp_path, monkeypatch):
    write(tmp_path / "a.parquet", ["as it is", "two  blanks"] * 50, "string")
    both(tmp_path, monkeypatch, {"path": str(tmp_path / "a.parquet")}, normalize=NFC, by_reference=["parquet"])
    table = pq.read_table(tmp_path / "columns" / "texts" / "part-000000.parquet")
    assert read_origin(table.schema) is None
    assert table["text"].to_pylist()[:2] == ["as it is", "two blanks"]


def test_replaced_personal_data_is_stored(tmp_path, monkeypatch):
    texts = [f"a clean text, number {i}" for i in range(100)]
    texts[5] = "mail a.person@example.org"
    write(tmp_path / "a.parquet", texts, "string")
    source = {"path": str(tmp_path / "a.parquet")}
    both(tmp_path, monkeypatch, source, normalize=NFC, by_reference=["parquet"], pii=PII)
    stored = pq.read_table(tmp_path / "columns" / "texts" / "part-000000.parquet")["stored"].to_pylist()
    assert {i: t for i, t in enumerate(stored) if t is not None} == {5: "mail <EMAIL>"}
