"""JSON Lines: what a line is, what is rejected and with which offset, and equal records whatever the ranges."""

from __future__ import annotations

import gzip
import itertools
import json
import random
import time
import zipfile

import pytest
import zstandard

from gpu_curate.config import JsonlSource
from gpu_curate.sources import Record, Reject, Skip, Split, jsonl
from gpu_curate.sources.jsonl import JsonlReader


def reader(**options):
    return JsonlReader(JsonlSource(name="s", type="jsonl", path="x", **options))


def read(path, max_bytes=1 << 30, **options):
    r = reader(**options)
    size = path.stat().st_size
    return [item for split in r.splits(str(path), size, max_bytes) for item in r.read(split)]


def records(items):
    return [i for i in items if isinstance(i, Record)]


def rejects(items):
    return [i for i in items if isinstance(i, Reject)]


def write(tmp_path, data, name="a.jsonl"):
    path = tmp_path / name
    path.write_bytes(data)
    return path


def test_unicode_line_separators_do_not_end_a_record(tmp_path):
    text = "a\u2028b\u0085c\u2029d\x0b\x0c\x1c"
    lines = [json.dumps({"text": text}, ensure_ascii=False), json.dumps({"text": "second"})]
    path = write(tmp_path, "\n".join(lines).encode())
    assert [r.text for r in records(read(path))] == [text, "second"]


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("last", [True, False])
def test_bom_and_crlf_belong_to_no_record(tmp_path, end, last):
    body = end.join(json.dumps({"text": t}) for t in ("one", "two", "three")) + (end if last else "")
    path = write(tmp_path, b"\xef\xbb\xbf" + body.encode())
    assert [r.text for r in records(read(path))] == ["one", "two", "three"]
    assert rejects(read(path)) == []


def test_a_bad_line_is_one_reject_with_row_offset_and_head(tmp_path):
    good = b'{"text": "good"}\n'
    path = write(tmp_path, good + b"\n" + good + b'{"text": "cut\n' + good)
    items = read(path)
    assert [r.row for r in records(items)] == [0, 2, 4]
    (reject,) = rejects(items)
    assert (reject.row, reject.offset, reject.head) == (3, 2 * len(good) + 1, b'{"text": "cut')
    assert "not JSON" in reject.reason


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"other": 1}', "no 'text'"),
        (b'{"text": null}', "null, not a string"),
        (b'{"text": 5}', "a number, not a string"),
        (b'{"text": ["a"]}', "an array, not a string"),
        (b"[1]", "a JSON object was expected, got an array"),
        (b'"text"', "got a string"),
        (b'{"text": "\xff"}', "not UTF-8"),
        (b'{"text": "a"} x', "not JSON"),
        (b'{"text": "' + b"\x01" + b'"}', "not JSON"),
        (b'{"a":' * 100_000, ""),
        (b"\xff\xfe{\x00}\x00", "not UTF-8"),
    ],
)
def test_what_cannot_be_read_says_why(tmp_path, line, reason):
    items = read(write(tmp_path, line + b'\n{"text": "good"}\n'))
    (reject,) = rejects(items)
    assert reason in reject.reason
    assert len(reject.head) <= 200
    assert [r.text for r in records(items)] == ["good"]


def test_lone_surrogate_escapes_are_read(tmp_path):
    items = read(write(tmp_path, rb'{"id":1,"text":"half \ud83c end"}' + b"\n" + rb'{"text":"pair \ud83c\udf0d"}'))
    assert [r.text for r in records(items)] == ["half \ud83c end", "pair \U0001f30d"]


def test_what_the_standard_library_reads_is_read(tmp_path):
    items = read(write(tmp_path, b'{"text": "a", "n": NaN, "big": 123456789012345678901234567890}\n'))
    assert [r.text for r in records(items)] == ["a"]


def test_dotted_keys_reach_into_objects_and_kept_columns_follow(tmp_path):
    line = {"doc": {"body": "text", "meta": {"lang": "en"}}, "url": "u", "a.b": 3}
    path = write(tmp_path, json.dumps(line).encode())
    (record,) = records(read(path, text_column="doc.body", keep_columns=["url", "doc.meta", "a.b", "gone"]))
    assert record.text == "text"
    assert record.columns == {"url": "u", "doc.meta": {"lang": "en"}, "a.b": 3, "gone": None}


@pytest.mark.parametrize("size", [1, 7, 1000, 5000, 1 << 20])
def test_records_are_the_same_whatever_the_ranges(tmp_path, size, monkeypatch):
    monkeypatch.setattr("gpu_curate.sources.jsonl._CHUNK", 257)  # a prime, so that lines straddle chunks
    lines = [json.dumps({"text": "x" * (i * 37 % 300)}) if i % 5 else "" for i in range(211)]
    path = write(tmp_path, "\n".join(lines).encode())
    whole = read(path)
    parts = read(path, max_bytes=size)
    assert parts == whole
    if size < 5000:
        assert len(reader().splits(str(path), path.stat().st_size, size)) > 1


@pytest.mark.parametrize("members", [1, 3])
def test_compressed_files_of_several_members_are_one_stream(tmp_path, members):
    lines = [json.dumps({"text": f"t{i}"}).encode() + b"\n" for i in range(12)]
    groups = [b"".join(lines[i::members]) for i in range(members)]
    expected = [json.loads(line)["text"] for g in groups for line in g.splitlines()]
    gz = write(tmp_path, b"".join(map(gzip.compress, groups)), "a.jsonl.gz")
    zst = write(tmp_path, b"".join(map(zstandard.ZstdCompressor().compress, groups)), "a.jsonl.zst")
    assert [r.text for r in records(read(gz))] == expected
    assert [r.text for r in records(read(zst))] == expected


@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.jsonl.zst"])
def test_a_file_cut_short_keeps_what_came_before_and_is_rejected_once(tmp_path, name):
    import random

    noise = random.Random(1)
    texts = ["".join(noise.choices("abcdefgh", k=2000)) for _ in range(400)]
    data = b"".join(json.dumps({"text": t}).encode() + b"\n" for t in texts)
    packed = gzip.compress(data) if name.endswith("gz") else zstandard.ZstdCompressor().compress(data)
    items = read(write(tmp_path, packed[: len(packed) // 2], name))
    found = [r.text for r in records(items)]
    assert 50 < len(found) < 400
    assert found == texts[: len(found)]
    (reject,) = rejects(items)
    assert "truncated" in reject.reason


@pytest.mark.parametrize("data", [b"", b"\xef\xbb\xbf", b"\n\r\n  \n"])
def test_an_empty_file_is_skipped_as_such(tmp_path, data):
    assert read(write(tmp_path, data)) == [Skip("empty_file")]
    assert read(write(tmp_path, gzip.compress(data), "a.jsonl.gz")) == [Skip("empty_file")]


@pytest.mark.parametrize("max_bytes", [10, 1 << 20])
def test_a_file_that_is_gone_after_planning_is_one_reject_a_split(tmp_path, max_bytes, monkeypatch):
    monkeypatch.setattr("gpu_curate.sources.jsonl._CHUNK", 16)
    path = write(tmp_path, b'{"text": "a"}\n' * 9)
    splits = reader().splits(str(path), path.stat().st_size, max_bytes)
    path.unlink()
    for split in splits:
        (reject,) = reader().read(split)
        assert reject.row == split.first_row
        assert "No such file" in reject.reason


def test_damage_in_the_first_bytes_names_no_row_before_the_first(tmp_path):
    (reject,) = read(write(tmp_path, b"\x1f\x8b\x08\xff" + b"\xff" * 40, "a.jsonl.gz"))
    assert reject.row == 0
    assert reject.reason.startswith("truncated or damaged before the end of the first row: ")


def test_a_split_is_all_a_worker_needs(tmp_path):
    path = write(tmp_path, b'{"text": "a"}\n{"text": "b"}\n')
    assert [r.text for r in reader().read(Split(str(path), 14, 28, 1, 14))] == ["b"]


def test_json_test_suite_is_read_or_rejected_and_never_raises(shared_data, tmp_path):
    with zipfile.ZipFile(shared_data("patho/jsontestsuite.zip")) as archive:
        names = [n for n in archive.namelist() if n.endswith(".json")]
        for i, name in enumerate(names):
            value = archive.read(name)
            line = b'{"text": "good", "value": ' + value.replace(b"\n", b" ") + b"}\n"
            items = read(write(tmp_path, line + b'{"text": "after"}\n', f"{i}.jsonl"))
            assert [r.text for r in records(items)][-1] == "after", name
            if name.rsplit("/")[-1].startswith("y_"):
                assert len(records(items)) == 2, name
    assert len(names) > 300


NUMBERS = ("0", "-0", "-0.0", "1e999", "-1e999", "18446744073709551615", "18446744073709551616", "-9223372036854775809", "9" * 30,
           "1" * 400, "1e-400", "NaN", "Infinity", "-Infinity", "1.0", "01", "1e5", "123456789012345678901234567890.5")  # fmt: skip


@pytest.mark.parametrize(
    "value", [*NUMBERS, '"\\ud800"', '"\\ud83d\\ude00"', '"\\u0000"', '"\t"', '[[1], {"b": null}]', "tru", '{"a": 1, "a": 2}', ""]
)  # fmt: skip
def test_without_orjson_the_same_values_are_read_and_the_same_refused(value):
    from gpu_curate.sources import plain_json

    orjson = pytest.importorskip("orjson")
    line = b'{"text": "t", "n": ' + value.encode() + b"}"

    def read(loads):
        try:
            return repr(loads(line))
        except ValueError:
            return "refused"

    assert read(plain_json.loads) == read(orjson.loads)


def test_blank_lines_in_any_chunks_keep_their_rows():
    """Many blank lines come as one; rows and offsets are those of the plain definition."""
    noise = random.Random(1)
    for _ in range(2000):
        pieces = [b"\n", b" \n", b"\r\n", b"\t", b" ", b"{}\n", b"x"]
        data = b"".join(noise.choice(pieces) for _ in range(noise.randrange(30)))
        cuts = sorted(noise.randrange(len(data) + 1) for _ in range(noise.randrange(6)))
        chunks = [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True) if a < b]
        stop, limit = noise.choice([None, noise.randrange(len(data) + 1)]), noise.choice([3, 1000])
        row, found = -1, {}
        for value in jsonl._lines(iter(chunks), 0, stop, limit):
            row, first = row + value.lines, row + 1
            if value.problem or value.data.strip():
                found[first] = value.offset, bool(value.problem)
        start, expected = 0, {}
        for number, line in enumerate(data.split(b"\n")):
            if (line.strip() or len(line) > limit) and (stop is None or start < stop):
                expected[number] = start, len(line) > limit
            start += len(line) + 1
        assert found == expected, (data, chunks, stop, limit)


def test_a_gigabyte_of_blank_lines_takes_no_time():
    chunks = itertools.repeat(b"\n" * (4 << 20), 256)
    began = time.process_time()
    assert sum(value.lines for value in jsonl._lines(chunks, 0, None, 128 << 20)) == 1 << 30
    assert time.process_time() - began < 20  # 2 s; one by one 600
