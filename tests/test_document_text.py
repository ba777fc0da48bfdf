"""Documents by reference: the same documents, bytes and shards as with a copy, and nothing else is ever taken for them."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import re
import sys
import types
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from corpora import recipe, write_inputs
from cudasim.device import download, install
from cudasim.module import available
from test_cudf_columns import strings

from gpu_curate import config as configs
from gpu_curate.api import pipeline
from gpu_curate.device import cudf_columns
from gpu_curate.device.runtime import cuda_fault
from gpu_curate.errors import CorruptError, FatalError
from gpu_curate.report.samples import Library
from gpu_curate.runs.checks import without_effect
from gpu_curate.runs.planning import make_plan
from gpu_curate.stages import Context
from gpu_curate.stages import partition_text as document_text
from gpu_curate.stages.documents.counts import DocumentCounts
from gpu_curate.stages.documents.stage import Documents
from gpu_curate.stages.order import intake_of
from gpu_curate.stages.part import make_box
from gpu_curate.stages.partition_text import device_text, host_text, read_origin, text_file
from gpu_curate.store.files import read_json

needs_compiler = pytest.mark.skipif(not available(), reason="no C++ compiler: the emulator compiles kernels with g++")
TYPES = ["parquet"]


def parse(sources: list[dict], **run: Any) -> configs.Config:
    data = {"sources": sources, "normalize": None, "tokenizer": {"path": "x"}}
    return configs.parse({**data, "run": {"partition_bytes": 65536, "by_reference": TYPES, **run}})


def read(folder: Path, sources: list[dict], **run: Any) -> Context:
    """The documents box of some sources."""
    config = parse(sources, **run)
    context = Context.of(folder, config, {"documents": "documents", "rejects": "rejects"})
    make_box(Documents(intake_of(config)), context)
    return context


def paths(context: Context) -> list[Path]:
    """The files of the texts."""
    return [text_file(context.box("documents"), part) for part in context.box("documents").parts()]


def texts(path: Path, numbers: np.ndarray | None = None) -> list[bytes]:
    text = host_text(path, numbers)
    return [text.raw(i) for i in range(len(text))]


def origin(path: Path) -> Any:
    return read_origin(pq.read_schema(path))


def assert_same_documents(copy: Context, reference: Context) -> list[Path]:
    """Every partition, row and receipt of a run by reference is that of one that copies; returns those by reference."""
    a, b = copy.box("documents"), reference.box("documents")
    assert a.parts() == b.parts()
    referring = []
    for part in a.parts():
        assert a.read_table(part).equals(b.read_table(part))
        mine, other = text_file(a, part), text_file(b, part)
        assert origin(mine) is None
        whole = texts(other)
        assert whole == [t.encode() for t in pq.read_table(mine, columns=["text"])["text"].to_pylist()]
        some = np.arange(len(whole))[1::3]
        assert texts(other, some) == texts(mine, some) == [whole[i] for i in some]
        one, two = (box.receipt(part, DocumentCounts) for box in (a, b))
        assert one.more == two.more
        facts = ("documents", "bytes", "sources", "rejected", "skipped")
        assert [getattr(one.counts, f) for f in facts] == [getattr(two.counts, f) for f in facts]
        referring += [other] if origin(other) else []
    return referring


# -------------------------------------------------------------------------------------------------------------- sources

LONG = "Zürich, 漢字 \u2028 " * 400


def parquet(folder: Path, kind: pa.DataType | None = None) -> dict:
    kind = kind or pa.large_string()
    values = [f"row {i} " + LONG[: i % 1999] for i in range(60)] + [""]
    given = [v if i % 5 else None for i, v in enumerate(values)]
    if kind == pa.binary():
        given = [b"\xff\xfe" if i == 8 else v and v.encode() for i, v in enumerate(given)]
    for name, part in (("a", given), ("b", given[::-1]), ("c", [])):
        array = (
            pa.array(part, pa.string()).dictionary_encode() if pa.types.is_dictionary(kind) else pa.array(part, kind)
        )
        table = pa.table({"n": pa.array(range(len(part)), pa.int32()), "text": array})
        pq.write_table(table, folder / f"{name}.parquet", row_group_size=7, data_page_size=1024)
    return {"name": "p", "type": "parquet", "path": str(folder / "*.parquet"), "keep_columns": ["n"]}


def assert_all_by_reference(folder: Path, source: dict, partition_bytes: int) -> None:
    """A source read twice: every partition of the second run refers to it, and nothing else differs from the copy."""
    runs = [
        read(folder / str(i), [source], partition_bytes=partition_bytes, by_reference=r)
        for i, r in enumerate(([], TYPES))
    ]
    assert len(assert_same_documents(*runs)) == len(paths(runs[1])) > 0


@pytest.mark.parametrize("partition_bytes", [65536, 150_000])
@pytest.mark.parametrize(
    "options", [{}, {"max_documents": 31}, {"row_groups": {"every": 3, "offset": 1}}, {"max_bytes": 5000}], ids=str
)
def test_parquet_with_rejects_samples_and_several_files(tmp_path, partition_bytes, options):
    source = {**parquet(tmp_path), **options}
    assert_all_by_reference(tmp_path, source, partition_bytes)


@pytest.mark.parametrize(
    "kind",
    [pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.dictionary(pa.int32(), pa.string())],
    ids=str,
)
def test_every_type_of_column_that_the_reader_takes(tmp_path, kind):
    source = parquet(tmp_path, kind)
    assert assert_same_documents(
        *(read(tmp_path / str(i), [source], by_reference=r) for i, r in enumerate(([], TYPES)))
    )


def test_a_nested_column(tmp_path):
    table = pa.table({"a": [{"b": "x", "c": 1}, None, {"b": "yé", "c": 2}]})
    pq.write_table(table, tmp_path / "n.parquet")
    source = {"name": "n", "type": "parquet", "path": str(tmp_path / "n.parquet"), "text_column": "a.b"}
    runs = [read(tmp_path / str(i), [source], by_reference=r) for i, r in enumerate(([], TYPES))]
    assert len(assert_same_documents(*runs)) == 1


def test_more_text_than_a_partition_goes_on_in_the_next(tmp_path):
    """A column of few different texts is small in the file: one split gives several partitions."""
    table = pa.table({"text": [f"{i % 3} " + "abcdefghi " * 900 for i in range(64)]})
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=16)
    source = {"name": "p", "type": "parquet", "path": str(tmp_path / "t.parquet")}
    runs = [read(tmp_path / str(i), [source], by_reference=r) for i, r in enumerate(([], TYPES))]
    referring = assert_same_documents(*runs)
    assert len(referring) == len(paths(runs[1])) > 4
    assert any("-" in path.stem.removeprefix("part-") for path in referring)


def test_only_the_row_groups_of_the_documents_are_read(tmp_path, monkeypatch):
    context = read(tmp_path / "r", [parquet(tmp_path)])
    asked = []
    real = pq.ParquetFile.iter_batches
    monkeypatch.setattr(
        pq.ParquetFile, "iter_batches", lambda f, n, groups, **o: asked.append(groups) or real(f, n, groups, **o)
    )
    path = paths(context)[0]
    rows = pq.read_table(path)["row"].to_numpy()
    host_text(path, np.flatnonzero(rows == 16)[:1])
    assert asked == [[2]]  # rows 14 to 20


def one_text(folder: Path, text: str) -> dict:
    pq.write_table(pa.table({"text": [text]}), folder / "a.parquet", use_dictionary=False)
    return {"name": "p", "type": "parquet", "path": str(folder / "a.parquet")}


def test_a_partition_by_reference_holds_no_text(tmp_path):
    context = read(tmp_path / "r", [one_text(tmp_path, "a needle in it")])
    (path,) = paths(context)
    assert b"needle" not in path.read_bytes()
    assert pq.read_schema(path).field("text").type == document_text.TYPE
    assert pq.read_table(path)["text"].to_pylist()[0]["bytes"] == 14


@pytest.mark.parametrize("by_reference", [[], ["jsonl"], ["parquet", "jsonl"]])
def test_json_lines_are_copied(tmp_path, by_reference):
    (tmp_path / "a.jsonl").write_text('{"text": "tess wrote"}\n')
    source = {"name": "j", "type": "jsonl", "path": str(tmp_path / "a.jsonl")}
    (path,) = paths(read(tmp_path / "r", [source], by_reference=by_reference))
    assert origin(path) is None
    assert texts(path) == [b"tess wrote"]


def test_texts_that_an_earlier_version_left_in_json_lines_are_made_anew(tmp_path):
    context = read(tmp_path / "r", [one_text(tmp_path, "a needle in it")])
    (path,) = paths(context)
    table = pq.read_table(path)
    stored = {k: v.replace(b'"parquet"', b'"jsonl"') for k, v in table.schema.metadata.items()}
    with pytest.raises(CorruptError, match="JSON Lines files, which this version copies"):
        read_origin(table.replace_schema_metadata(stored).schema)


def test_counting_personal_data_changes_nothing(tmp_path):
    source = one_text(tmp_path, "tess@example.org wrote")
    config = configs.parse({**parse([source]).model_dump(), "pii": {"email": "count"}})
    context = Context.of(tmp_path / "r", config, {"documents": "documents"})
    make_box(Documents(intake_of(config)), context)
    (path,) = paths(context)
    assert origin(path)
    assert texts(path) == [b"tess@example.org wrote"]


def test_row_groups_longer_than_a_partition_are_copied_once(tmp_path):
    rng = np.random.default_rng(3)
    words = ["".join(map(chr, rng.integers(97, 123, 2000))) for _ in range(80)]
    pq.write_table(pa.table({"text": words}), tmp_path / "t.parquet")
    context = read(tmp_path / "r", [{"name": "p", "type": "parquet", "path": str(tmp_path / "t.parquet")}])
    assert [origin(p) for p in paths(context)] == [None] * 3


# -------------------------------------------------------------------------------------------------------- what changed


def rewrite_parquet(path: Path) -> None:
    table = pq.read_table(path)
    values = table["text"].to_pylist()
    values[12] = values[12].upper()
    pq.write_table(table.set_column(1, "text", pa.array(values, pa.large_string())), path, row_group_size=7)


def shorten_parquet(path: Path) -> None:
    pq.write_table(pq.read_table(path).slice(0, 40), path, row_group_size=7)


@pytest.mark.parametrize(
    ("change", "where"),
    [
        (rewrite_parquet, "a.parquet: row 12 .*another text"),
        (shorten_parquet, "a.parquet: row 1 .*the file has 40 rows"),
        (lambda p: p.write_bytes(p.read_bytes()[:-100]), "a.parquet: row 1 "),
        (lambda p: pq.write_table(pq.read_table(p).rename_columns(["n", "body"]), p), "a.parquet: row 1 .*text"),
        (Path.unlink, "a.parquet: row 1 .*No such file"),
    ],
)
def test_a_parquet_source_that_changed_is_named(tmp_path, change, where):
    context = read(tmp_path / "r", [parquet(tmp_path)])
    path = paths(context)[0]
    assert texts(path)
    change(tmp_path / "a.parquet")
    with pytest.raises(FatalError, match=where) as e:
        host_text(path)
    assert "run.by_reference: []" in e.value.hint


# ----------------------------------------------------------------------------------------------------------- whole runs


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("inputs")
    write_inputs(folder, documents=120)
    older = pq.read_table(folder / "corpus" / "a.parquet")["text"].to_pylist()[:3]
    (folder / "older.jsonl").write_text("".join(json.dumps({"text": t}) + "\n" for t in older))
    return folder


def everything(inputs: Path, **run: Any) -> configs.Config:
    data = recipe(
        inputs / "corpus",
        inputs,
        normalize=None,
        references=[
            {
                "name": "bench",
                "path": str(inputs / "bench.jsonl"),
                "text_fields": ["question"],
                "action": "decontaminate",
            },
            {"name": "older", "path": str(inputs / "older.jsonl"), "action": "dedup_against"},
        ],
        quality={"gopher_repetition": "on", "fineweb": "on"},
        dedup={"exact": "compare", "fuzzy": {"verify": "exact", "threshold": 0.6}},
        run={"engine": "inline", "partition_bytes": 65536, "by_reference": TYPES, **run},
    )
    return configs.parse({**data, "tokenizer": {"train": {"vocab_size": 400, "max_bytes": 20000}}})


def contents(run: Path) -> dict[str, object]:
    """Every box after documents, file by file."""
    places = read_json(run / "run.json")["folders"]
    held: dict[str, object] = {}
    for box in ("scores", "signatures", "contamination", "duplicates", "decisions", "tokens", "shards", "tokenizer"):
        for file in sorted((run / places[box]).glob("[!.]*")):
            if file.is_file() and file.name not in ("manifest.json", "encoder.json"):
                held[f"{box}/{file.name}"] = hashlib.sha256(file.read_bytes()).hexdigest()
    return held


@pytest.fixture(scope="module")
def copied(inputs, tmp_path_factory):
    run = tmp_path_factory.mktemp("copied") / "r"
    pipeline.execute(everything(inputs, by_reference=[]), run)
    return run


def test_a_run_by_reference_writes_what_one_with_a_copy_writes(inputs, copied, tmp_path):
    outcome = pipeline.execute(everything(inputs), tmp_path / "r")
    assert contents(tmp_path / "r") == contents(copied)
    assert {bool(origin(p)) for p in paths(outcome.context)} == {True, False}  # .gz and text files are copied
    reports = [read_json(r / "report" / "report.json") for r in (copied, tmp_path / "r")]
    assert len({json.dumps([r[k] for k in ("documents", "tokens", "bytes", "splits", "text")]) for r in reports}) == 1
    before = Context.of(copied, outcome.context.config, read_json(copied / "run.json")["folders"])
    box = before.box("documents")
    ids = np.concatenate([box.read_table(p)["doc_id"].to_numpy() for p in box.parts()])
    assert Library(outcome.context).read(ids) == Library(before).read(ids)
    assert len(Library(before).read(ids)) == len(ids)


def test_languages_of_texts_by_reference(inputs, tmp_path, shared_data):
    pytest.importorskip("fasttext")
    model = str(shared_data("lid/lid.176.ftz"))
    found = []
    for i, by_reference in enumerate(([], TYPES)):
        config = everything(inputs, by_reference=by_reference)
        config = configs.parse({**config.model_dump(exclude_unset=True), "language": {"model": model}})
        pipeline.execute(config, tmp_path / str(i))
        found.append(contents(tmp_path / str(i)))
    assert found[0] == found[1]
    assert "language" in pq.read_schema(tmp_path / "1" / "scores" / "part-000000.parquet").names


def test_partition_size_changes_no_shard(inputs, copied, tmp_path):
    pipeline.execute(everything(inputs, partition_bytes=1 << 20), tmp_path / "r")
    other, mine = contents(copied), contents(tmp_path / "r")
    assert {k: v for k, v in mine.items() if k.startswith("shards/")} == {
        k: v for k, v in other.items() if k.startswith("shards/")
    }


def test_switching_makes_partitions_of_its_own_and_the_same_shards(inputs, tmp_path):
    run = tmp_path / "r"
    before = pipeline.execute(everything(inputs, by_reference=[]), run)
    first = {k: v for k, v in contents(run).items() if k.startswith("shards/")}
    after = pipeline.execute(everything(inputs), run)
    referring = [p for p in paths(after.context) if origin(p)]
    assert not {*referring} & {*paths(before.context)}
    assert {k: v for k, v in contents(run).items() if k.startswith("shards/")} == first


def test_a_source_that_changed_behind_its_date_stops_the_run(inputs, tmp_path):
    file = tmp_path / "a.parquet"
    table = pq.read_table(inputs / "corpus" / "a.parquet")
    plain = {"compression": "none", "use_dictionary": False, "write_statistics": False}
    pq.write_table(table, file, **plain)
    source = {"name": "p", "type": "parquet", "path": str(file)}
    data = {"sources": [source], "normalize": None, "tokenizer": {"path": str(inputs / "tokenizer.json")}}
    config = configs.parse({**data, "run": {"engine": "inline"}})
    pipeline.execute(config, tmp_path / "r")
    stat = file.stat()
    text = pa.array([t[::-1] for t in table["text"].to_pylist()], table["text"].type)
    pq.write_table(table.set_column(table.column_names.index("text"), "text", text), file, **plain)
    assert file.stat().st_size == stat.st_size
    os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    (tmp_path / "r" / "signatures" / ".receipts" / "part-000000.json").unlink()
    with pytest.raises(FatalError, match=r"a\.parquet: row \d+ is not what documents/ was made from"):
        pipeline.execute(config, tmp_path / "r")


# ------------------------------------------------------------------------------------------------------- what is said


def test_what_has_no_effect_is_warned_of_by_name(inputs, tmp_path):
    sources = [{"name": "p", "type": "parquet", "path": str(inputs / "corpus" / "a.parquet")}]
    data = {"sources": sources, "tokenizer": {"path": str(inputs / "tokenizer.json")}}
    assert without_effect(configs.parse(data)) == []  # a default promises nothing
    assert without_effect(configs.parse({**data, "run": {"by_reference": ["parquet"]}})) == []
    told = ["run.by_reference: jsonl has no effect: reading them again in every step costs more than a copy"]
    config = configs.parse({**data, "run": {"engine": "inline", "by_reference": ["jsonl"]}})
    assert without_effect(config) == told
    assert make_plan(config, tmp_path / "r")["warnings"] == told
    assert pipeline.execute(config, tmp_path / "r").warnings == told
    lines = {**data, "sources": [{"name": "j", "type": "jsonl", "path": str(inputs / "corpus" / "b.jsonl")}]}
    told = without_effect(configs.parse({**lines, "run": {"by_reference": ["parquet"]}}))
    assert told == ["run.by_reference: parquet has no effect: no source is of that type"]


def test_plan_counts_no_copy_and_says_what_is_by_reference(inputs, tmp_path):
    plans = [make_plan(everything(inputs, by_reference=r), tmp_path / "r") for r in ([], TYPES)]
    by_name = {s["name"]: s for s in plans[1]["sources"]}
    assert by_name["pq"]["by_reference_bytes"] == by_name["pq"]["text_bytes"] > 0
    assert by_name["tx"]["by_reference_bytes"] == 0
    referred = sum(s["by_reference_bytes"] for s in plans[1]["sources"])
    assert plans[0]["disk_bytes"] - plans[1]["disk_bytes"] == pytest.approx(referred / 2, abs=1)
    assert all(s["by_reference_bytes"] == 0 for s in plans[0]["sources"])


# --------------------------------------------------------------------------------------------- on a device, through cuDF


class Series:
    """The part of cudf.Series that is called, with the same meaning."""

    def __init__(self, values: list[bytes | None]):
        self.values = values

    def __len__(self) -> int:
        return len(self.values)

    def take(self, indices: np.ndarray) -> Series:
        return Series([self.values[i] for i in indices])

    @classmethod
    def from_arrow(cls, array: pa.Array) -> Series:
        return cls(array.cast(pa.large_binary()).to_pylist())

    def to_pylibcudf(self) -> tuple[Any, dict]:
        return strings([v or b"" for v in self.values], nulls=sum(v is None for v in self.values)), {}


class Frame:
    """The part of cudf.DataFrame that is called."""

    def __init__(self, table: pa.Table):
        self.table, self.columns = table, table.column_names

    def __getitem__(self, name: str) -> Series:
        return Series(self.table[name].cast(pa.large_binary()).to_pylist())


class StandIn(types.ModuleType):
    """cuDF's readers over host memory, by pyarrow and json; `fault` changes what they read."""

    __version__ = "stand-in"

    def __init__(self, fault: Any = None):
        super().__init__("cudf")
        self.fault = fault or (lambda values: values)
        self.calls: list[str] = []

    Series = Series

    @staticmethod
    def own(table: pa.Table) -> pa.Table:
        """What is read of a partition's own column."""
        return table

    def get_option(self, name: str) -> bool:
        return {"spill": False}[name]

    def concat(self, series: list[Series]) -> Series:
        return Series([value for one in series for value in one.values])

    def read_parquet(
        self,
        paths: list[str] | str,
        *,
        columns: list[str],
        row_groups: list[list[int]] | None,
        dataset_kwargs: dict | None = None,
        allow_mismatched_pq_schemas: bool = False,
    ) -> Any:
        (column,) = columns
        if isinstance(paths, str):  # the column of a partition that has one
            assert row_groups is None
            return Frame(self.own(pq.read_table(paths, columns=columns)))
        assert dataset_kwargs == {"partitioning": None}
        assert allow_mismatched_pq_schemas
        self.calls.append("parquet")
        values: list[bytes | None] = []
        for path, groups in zip(paths, row_groups, strict=True):
            assert groups
            array = pq.ParquetFile(path).read_row_groups(groups, columns=columns)[column].combine_chunks()
            values += array.cast(pa.large_string()).cast(pa.large_binary()).to_pylist()
        return {column: Series(self.fault(values))}


def put(monkeypatch: Any, fault: Any = None) -> StandIn:
    """An emulated device, and the stand-in for cuDF."""
    install(monkeypatch)
    cudf = StandIn(fault)
    monkeypatch.setitem(sys.modules, "cudf", cudf)
    monkeypatch.setattr(cudf_columns, "device_reader", lambda: ("cudf", "stand-in"))
    return cudf


def on_device(path: Path) -> tuple[list[bytes], str | None]:
    text, reason = device_text(path)
    assert text.on_gpu
    chars, offsets = download((text.chars, text.offsets))
    return [chars[a:b].tobytes() for a, b in itertools.pairwise(offsets)], reason


@needs_compiler
def test_cudf_reads_the_rows_that_are_documents(tmp_path, monkeypatch):
    (tmp_path / "p").mkdir()
    context = read(tmp_path / "r", [parquet(tmp_path)])
    cudf = put(monkeypatch)
    for path in paths(context):
        assert on_device(path) == (texts(path), None)
    assert set(cudf.calls) == {"parquet"}


def _refused(table: pa.Table) -> pa.Table:
    raise RuntimeError("Parquet header parsing failed")


@needs_compiler
@pytest.mark.parametrize(
    ("own", "why"),
    [
        (_refused, "cuDF: RuntimeError: Parquet header parsing failed"),
        (lambda table: table.slice(1), "cuDF reads {less} texts of"),
        (
            lambda table: pa.table({"text": pa.array(["x"] * len(table))}),
            "cuDF reads {n} texts of {n} bytes where there",
        ),
        (lambda table: table, None),
    ],
)
def test_a_partition_s_own_texts_that_cudf_cannot_read_or_reads_otherwise_are_read_by_the_cpu(
    tmp_path, monkeypatch, own, why
):
    context = read(tmp_path / "r", [parquet(tmp_path)], by_reference=[])
    put(monkeypatch).own = own
    path, receipt = paths(context)[0], next(iter(context.box("documents").receipts()))
    n = len(texts(path))
    text, reason = device_text(path, receipt.counts.bytes)
    assert [text.raw(i) for i in range(len(text))] == texts(path)
    assert reason is None if why is None else reason.startswith(why.format(n=n, less=n - 1))


@needs_compiler
def test_a_device_that_fails_while_cudf_reads_is_no_fault_of_the_text(tmp_path, monkeypatch):
    context = read(tmp_path / "r", [parquet(tmp_path)], by_reference=[])

    def lost(table: pa.Table) -> pa.Table:
        raise RuntimeError("CUDA error encountered at: reader.cu: 700 cudaErrorIllegalAddress")

    from cudasim.device import emulated

    put(monkeypatch).own = lost
    device = replace(emulated(), fault=cuda_fault)
    for module in ("gpu_curate.device.runtime", "gpu_curate.device.cudf_columns"):
        monkeypatch.setattr(f"{module}.cuda", lambda: device)
    with pytest.raises(RuntimeError, match="cudaErrorIllegalAddress"):
        device_text(paths(context)[0])


@needs_compiler
@pytest.mark.parametrize("changed", [[0], [3, 4, 11], list(range(12))])
def test_stored_texts_stand_between_those_that_cudf_reads(tmp_path, monkeypatch, changed):
    """With `normalize`, the texts that it changes are stored; all others are long, so that the partition is not copied."""
    long = "a text that stays as it is " * 20
    rows = [f"{i}  blanks" if i in changed else f"{i} {long}end" for i in range(12)] + [long + "end"] * 12
    pq.write_table(pa.table({"text": rows}), tmp_path / "p.parquet", row_group_size=5)
    source = {"name": "p", "type": "parquet", "path": str(tmp_path / "p.parquet")}
    config = parse([source], by_reference=["parquet"]).model_copy(update={"normalize": configs.Normalize()})
    context = Context.of(tmp_path / "r", config, {"documents": "documents", "rejects": "rejects"})
    make_box(Documents(intake_of(config)), context)
    cudf = put(monkeypatch)
    (path,) = paths(context)
    assert origin(path) is not None
    expected = [r.replace("  ", " ").encode() for r in rows]
    assert texts(path) == expected
    assert on_device(path) == (expected, None)
    assert cudf.calls == ["parquet"]


def garble(values: list[bytes | None]) -> list[bytes | None]:
    return [(b"\xc3" if i == 3 else v) for i, v in enumerate(values)]


def swap(values: list[bytes | None]) -> list[bytes | None]:
    return [values[1], values[0], *values[2:]]


def fail(values: list[bytes | None]) -> list[bytes | None]:
    raise RuntimeError("CUDF failure at: json/nested_json_gpu.cu:1: Parser encountered an\n invalid format")


FAULTS = [
    (garble, r"cuDF reads \d+ of \d+ texts otherwise, first .*, row \d+"),
    (swap, r"cuDF reads 2 of \d+ texts otherwise"),
    (lambda values: values[:-1], r"cuDF reads \d+ texts where there are \d+|\d+ rows where there are \d+"),
    (lambda values: [*values, b"x"], r"cuDF reads \d+ texts where there are \d+|\d+ rows where there are \d+"),
    (lambda values: [None, *values[1:]], "InputError: text has 1 nulls"),
    (fail, "cuDF: RuntimeError: CUDF failure at.* Parser encountered an invalid format"),
]


@needs_compiler
@pytest.mark.parametrize(("fault", "why"), FAULTS)
def test_whatever_cudf_reads_otherwise_is_read_by_the_cpu(tmp_path, monkeypatch, fault, why):
    table = pa.table({"text": [f"text {i}" for i in range(9)]})
    pq.write_table(table, tmp_path / "p.parquet", row_group_size=4)
    context = read(tmp_path / "r", [{"name": "p", "type": "parquet", "path": str(tmp_path / "p.parquet")}])
    put(monkeypatch, fault)
    for path in paths(context):
        found, reason = on_device(path)
        assert found == texts(path)
        assert re.search(why, reason)


@needs_compiler
def test_without_cudf_the_host_reads_and_nothing_is_said(tmp_path, monkeypatch):
    context = read(tmp_path / "r", [parquet(tmp_path)])
    install(monkeypatch)
    for path in paths(context):
        assert on_device(path) == (texts(path), None)


@needs_compiler
def test_an_empty_partition_by_reference(tmp_path, monkeypatch):
    pq.write_table(pa.table({"text": pa.array([None], pa.string())}), tmp_path / "a.parquet")
    context = read(tmp_path / "r", [{"name": "p", "type": "parquet", "path": str(tmp_path / "a.parquet")}])
    put(monkeypatch)
    (path,) = paths(context)
    assert origin(path).extents == []
    assert texts(path) == []
    assert on_device(path) == ([], None)


@needs_compiler
@pytest.mark.parametrize("fault", [None, garble, fail], ids=["as it should", "garbled", "error"])
def test_a_run_through_cudf_writes_what_the_cpu_writes(inputs, copied, tmp_path, monkeypatch, fault):
    config = everything(inputs, backend="gpu")
    put(monkeypatch, fault)
    pipeline.execute(config, tmp_path / "r")
    assert contents(tmp_path / "r") == contents(copied)
    report = read_json(tmp_path / "r" / "report" / "report.json")
    steps = {s["name"]: s["backend"] for s in report["steps"]}
    said = [w for w in report["warnings"] if re.match(r"the CPU read the text of \d of \d partitions for the GPU", w)]
    for step in ("scores", "signatures", "contamination"):
        assert ("text read by the CPU" in steps[step]) == (fault is not None), steps[step]
    assert len(said) == (fault is not None)
    assert ("RuntimeError" in "".join(said)) == (fault is fail)


@needs_compiler
def test_a_device_too_small_for_the_column_gets_halves(inputs, copied, tmp_path, monkeypatch):
    def full(values: list[bytes | None]) -> list[bytes | None]:
        raise MemoryError("std::bad_alloc: out_of_memory: CUDA error")

    config = everything(inputs, backend="gpu")
    put(monkeypatch, full)
    pipeline.execute(config, tmp_path / "r")
    assert contents(tmp_path / "r") == contents(copied)
    report = read_json(tmp_path / "r" / "report" / "report.json")
    assert not [w for w in report["warnings"] if "read the text" in w]
