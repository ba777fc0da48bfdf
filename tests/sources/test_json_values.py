"""JSON that is not a record a line: arrays, objects over several lines, UTF-16; what is broken and what is kept."""

from __future__ import annotations

import gzip
import json
import random
import tracemalloc
import zipfile

import orjson
import pytest

from gpu_curate.config import JsonlSource
from gpu_curate.sources import Record, Reject, Skip
from gpu_curate.sources.json_values import values
from gpu_curate.sources.jsonl import JsonlReader

RECORDS = [{"text": f't{i} "q" [x] {{y}} \\ é', "meta": {"a": [1, {"b": [2]}], "c": {}}} for i in range(7)]
LAYOUTS = {
    "one line": json.dumps(RECORDS),
    "pretty": json.dumps(RECORDS, indent=2),
    "tabs": json.dumps(RECORDS, indent="\t"),
    "no indent": json.dumps(RECORDS, indent=0),
    "a record a line": "[\n" + ",\n".join(map(json.dumps, RECORDS)) + "\n]\n",
    "first on the bracket's line": "[" + "\n,".join(map(json.dumps, RECORDS)) + "]",
    "back to back": "".join(map(json.dumps, RECORDS)),
    "pretty objects": "\n".join(json.dumps(r, indent=4) for r in RECORDS),
    "commas and no brackets": ",\n".join(map(json.dumps, RECORDS)),
    "an array a line": "\n".join(json.dumps([r]) for r in RECORDS),
    "one pretty object": json.dumps(RECORDS[0], indent=2),
}


def read(path, data, max_bytes=1 << 30, **options):
    path.write_bytes(data)
    reader = JsonlReader(JsonlSource(name="s", type="jsonl", path=str(path), **options))
    return [i for s in reader.splits(str(path), len(data), max_bytes) for i in reader.read(s)]


def kinds(items):
    return [i.text[:2] if isinstance(i, Record) else i.reason if isinstance(i, Reject) else i for i in items]


@pytest.mark.parametrize("chunk", [1, 7, 100, 1 << 20])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_values_and_their_offsets_are_the_same_whatever_the_chunks(layout, chunk):
    data = LAYOUTS[layout].encode()
    found = list(values((data[i : i + chunk] for i in range(0, len(data), chunk)), 1 << 20))
    assert [json.loads(v.data) for v in found] == RECORDS[: len(found)]
    assert all(data[v.offset :].startswith(v.data) for v in found)


@pytest.mark.parametrize("start", [b"", b"\xef\xbb\xbf", b"\n \r\n"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_gives_its_records(tmp_path, layout, start):
    expected = [Record(i, r["text"]) for i, r in enumerate(RECORDS)]
    if layout == "one pretty object":
        expected = expected[:1]
    for text in (LAYOUTS[layout], LAYOUTS[layout].replace("\n", "\r\n")):
        data = start + text.encode()
        for max_bytes in (1 << 30, 50):
            assert read(tmp_path / "a.json", data, max_bytes) == expected
        assert read(tmp_path / "a.json.gz", gzip.compress(data)) == expected


def test_one_record_a_line_with_commas_never_keeps_the_last_one_only(tmp_path):
    data = b'[\n{"text": "a"},\n{"text": "b"},\n{"text": "c"}\n]\n'
    assert read(tmp_path / "a.jsonl", data) == [Record(0, "a"), Record(1, "b"), Record(2, "c")]


@pytest.mark.parametrize("layout", ["a record a line", "pretty", "tabs", "one line"])
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"text": "t2', '"text": nope"t2'),
        ('"text": "t2', '"text: "t2'),
        ('"text": "t2 \\"q', '"text": "t2 "q'),
        ('"text": "t2', '"text": "t2\n'),
        ('"text": "t2', '"text": {"t2'),
    ],
)
def test_a_broken_record_costs_itself(tmp_path, layout, old, new):
    text = LAYOUTS[layout].replace(old, new)
    assert text != LAYOUTS[layout]
    got = kinds(read(tmp_path / "a.json", text.encode()))
    texts = [g for g in got if len(g) == 2]
    assert len(got) > len(texts)  # it is said
    if layout == "one line" and new != '"text": nope"t2':
        assert texts[:2] == ["t0", "t1"]  # where the rest begins cannot be told
    else:
        assert texts == ["t0", "t1", "t3", "t4", "t5", "t6"]


@pytest.mark.parametrize("layout", ["a record a line", "pretty", "one line"])
def test_a_cut_array_keeps_what_came_before_and_is_named(tmp_path, layout):
    text = LAYOUTS[layout]
    for cut in (text.rstrip()[:-1], text[: text.index("t5")]):
        got = kinds(read(tmp_path / "a.json", cut.encode()))
        assert got[:5] == ["t0", "t1", "t2", "t3", "t4"]
        assert "this is a JSON array that" in got[-1] or "not JSON" in got[-1]


def test_broken_lines_are_no_values_over_several_lines(tmp_path):
    lines = [json.dumps({"text": f"t{i}"}) for i in range(4)]
    for broken in ('{"text": "cut', '{"text": "cut",', '{"text": {', "{", '{"text": "a"} x'):
        got = kinds(read(tmp_path / "a.jsonl", "\n".join([broken, *lines]).encode()))
        assert got[1:] == ["t0", "t1", "t2", "t3"]
        assert "not JSON" in got[0] or "this is a JSON" in got[0]
    assert kinds(read(tmp_path / "a.jsonl", ("\n".join(lines[:2]) + "\n[\n").encode()))[:2] == ["t0", "t1"]
    got = kinds(read(tmp_path / "a.jsonl", ('["a", 1]\n' + "\n".join(lines)).encode()))
    assert got == ["a JSON object was expected, got an array", "t0", "t1", "t2", "t3"]


def test_a_wrapper_is_named_with_the_command_that_takes_the_records_out(tmp_path):
    for data in (json.dumps({"n": 1, "data": RECORDS}), json.dumps({"data": RECORDS}, indent=1)):
        (item,) = read(tmp_path / "a.json", data.encode())
        assert "no 'text' in the object; its 'data' is a list of 7 objects" in item.reason
        assert "jq -c '.[\"data\"][]'" in item.reason
    (item,) = read(tmp_path / "a.json", json.dumps({"data": RECORDS}).encode(), max_line_bytes=100)
    assert item.reason.startswith("longer than max_line_bytes (100); its 'data' is a list of objects")


def test_a_long_line_or_element_is_one_reject_and_takes_no_memory(tmp_path, monkeypatch):
    monkeypatch.setattr("gpu_curate.sources.jsonl._CHUNK", 1 << 16)
    long = b'{"text": "' + b"x" * (40 << 20) + b'"}'
    good = b'{"text": "a"}'
    for data, offset, row in (
        (good + b"\n" + long + b"\n" + good + b"\n", len(good) + 1, 1),
        (b"[" + good + b"," + long + b"," + good + b"]", len(good) + 2, 1),
        (b"[\n" + good + b",\n" + long + b",\n" + good + b"]", len(good) + 4, 1),
    ):
        path = tmp_path / "a.jsonl.gz"
        path.write_bytes(gzip.compress(data, 1))
        reader = JsonlReader(JsonlSource(name="s", type="jsonl", max_line_bytes=1 << 20))
        (split,) = reader.splits(str(path), path.stat().st_size, 1 << 30)
        tracemalloc.start()
        items = list(reader.read(split))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 12 << 20
        first, reject, last = items
        assert (first, last) == (Record(0, "a"), Record(2, "a"))
        assert reject[:3] == (row, offset, "longer than max_line_bytes (1048576)")
        assert len(reject.head) <= 200
    assert read(tmp_path / "b.jsonl", good, max_line_bytes=len(good)) == [Record(0, "a")]
    assert isinstance(read(tmp_path / "b.jsonl", good, max_line_bytes=len(good) - 1)[0], Reject)


def test_a_line_of_millions_of_values_is_rejected_before_it_is_parsed(tmp_path, monkeypatch):
    monkeypatch.setattr("gpu_curate.sources.jsonl._COUNTED_BYTES", 1000)
    monkeypatch.setattr("gpu_curate.sources.jsonl.MAX_VALUES", 100)
    bomb = b'{"text": "a", "x": [' + b"[]," * 1000 + b"0]}\n"
    commas = json.dumps({"text": "," * 3000 + '\\"[' * 99}).encode()
    got = read(tmp_path / "a.jsonl", bomb + commas)
    assert got[0].reason == "more than 100 values in one record"
    assert isinstance(got[1], Record)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be"])
@pytest.mark.parametrize("layout", ["lines", "pretty"])
def test_utf_16_and_utf_32_are_read(tmp_path, encoding, layout):
    text = "\n".join(map(json.dumps, RECORDS)) if layout == "lines" else LAYOUTS[layout]
    text = text.replace("\\u00e9", "é\U0001f30d漢")
    marked = ("\ufeff" if encoding.count("-") == 2 else "") + text
    for data in (text.encode(encoding), marked.encode(encoding)):
        got = read(tmp_path / "a.jsonl", data, 50)
        assert [(i.row, i.text) for i in got] == [(n, r["text"] + "\U0001f30d漢") for n, r in enumerate(RECORDS)]


def expected_texts(data):
    """What the standard library or orjson reads of a file: (texts, number of values that hold none), None for nothing."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        try:
            value = orjson.loads(data)
        except ValueError:
            return None
    found = value if isinstance(value, list) else [value]
    texts = [v["text"] for v in found if isinstance(v, dict) and isinstance(v.get("text"), str)]
    return texts, len(found) - len(texts)


def check(path, data):
    got = read(path, data)
    expected = expected_texts(data)
    if expected is not None:
        texts, others = expected
        assert [i.text for i in got if isinstance(i, Record)] == texts, data[:200]
        if texts or others:
            assert sum(isinstance(i, Reject) for i in got) == others, data[:200]
    elif data.strip() and not any(isinstance(i, Record) for i in got):
        assert any(isinstance(i, (Reject, Skip)) for i in got), data[:200]


def test_whole_files_of_the_json_test_suite_are_read_as_the_standard_library_does(shared_data, tmp_path):
    with zipfile.ZipFile(shared_data("patho/jsontestsuite.zip")) as archive:
        names = [n for n in archive.namelist() if n.endswith(".json")]
        for name in names:
            value = archive.read(name)
            check(tmp_path / "a.json", value)
            check(tmp_path / "a.json", b'[{"text": "a", "v": ' + value + b'},\n{"text": "b"}]')
            good = read(tmp_path / "a.json", b'[\n{"text": "a"},\n{"v": ' + value + b'},\n{"text": "z"}\n]')
            assert Record(0, "a") in good, name
            if b"\n" not in value:
                assert good[-1].text == "z", name
    assert len(names) > 300


@pytest.mark.soak
def test_mutants_of_json_files_lose_nothing_that_the_standard_library_reads(tmp_path, soak_cases):
    noise = random.Random(1)
    seeds = [text.encode() for text in LAYOUTS.values()] + ["\n".join(map(json.dumps, RECORDS)).encode()]
    marks = [b'"', b"\\", b"{", b"}", b"[", b"]", b",", b"\n", b"\0", b"\xff", b" ", b"1", b'{"text": "n"}']
    for _ in range(soak_cases(400, 30_000)):
        data = bytearray(noise.choice(seeds))
        for _ in range(noise.choice([1, 1, 2, 5])):
            at = noise.randrange(len(data) + 1)
            match noise.randrange(3):
                case 0:
                    data[at : at + noise.choice([1, 1, 9, 200])] = b""
                case 1:
                    data[at:at] = noise.choice(marks)
                case _:
                    data[at : at + 1] = noise.choice(marks)
        check(tmp_path / "a.json", bytes(data))
