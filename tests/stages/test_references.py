"""Reference sets: what matches, what is dropped, what is only kept out of validation, and what is said about it."""

from __future__ import annotations

import gzip
import json
import random
import zipfile

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from corpora import document, edited

from gpu_curate import config
from gpu_curate.api import pipeline
from gpu_curate.document import MAX_FILES, ROW_BITS
from gpu_curate.errors import ConfigError, CorruptError
from gpu_curate.runs import pipeline as runs
from gpu_curate.stages import together
from gpu_curate.stages.reference_sets import items
from gpu_curate.stages.together import hash_and_probe
from gpu_curate.store.files import read_json


def jsonl(path, rows):
    path.write_text("\n".join(json.dumps(r if isinstance(r, dict) else {"text": r}) for r in rows))
    return str(path)


def execute(tmp_path, tokenizer, texts, references, **keys):
    data = {
        "sources": [{"name": "s", "type": "jsonl", "path": jsonl(tmp_path / "s.jsonl", texts)}],
        "tokenizer": {"path": str(tokenizer)},
        "min_tokens": 0,
        "references": references,
        "shards": {"validation": {"tokens": 300, "max_fraction": 0.5}},
        "run": {"engine": "inline"},
        **keys,
    }
    run = tmp_path / "run"
    pipeline.execute(config.parse(data), run)
    return run, read_json(run / "report" / "report.json")


def decisions(run):
    folder = run / read_json(run / "run.json")["folders"]["decisions"]
    return [r for p in sorted(folder.glob("*.parquet")) for r in pq.read_table(p).to_pylist()]


def test_a_planted_benchmark_item_is_found_and_named(tmp_path, tokenizer):
    rng = random.Random(1)
    eval_item = " ".join(f"word{i}" for i in range(20))
    texts = [document(rng) for _ in range(9)] + [document(rng) + "\n" + eval_item.upper() + "!\n" + document(rng)]
    path = jsonl(tmp_path / "eval.jsonl", [{"question": eval_item}, {"question": "Part A."}])
    run, facts = execute(
        tmp_path,
        tokenizer,
        texts,
        [{"name": "e", "path": path, "text_fields": ["question"], "action": "decontaminate"}],
    )
    assert facts["documents"]["dropped"] == {"contaminated": 1}
    row = decisions(run)[9]
    assert row["reason"] == "contaminated"
    assert row["partner"] == MAX_FILES << ROW_BITS
    assert facts["contamination"]["e"]["matches"] == 1


def test_no_hit_is_said_with_a_planted_positive(tmp_path, tokenizer):
    rng = random.Random(2)
    path = jsonl(tmp_path / "e.jsonl", [" ".join(f"w{i}" for i in range(30))])
    _, facts = execute(
        tmp_path, tokenizer, [document(rng) for _ in range(5)], [{"name": "e", "path": path, "action": "decontaminate"}]
    )
    assert any("reference e: 0 hits over 5 documents; a planted copy" in n for n in facts["notes"])
    assert not any("reference e" in w for w in facts["warnings"])


def test_a_set_of_short_items_that_can_match_nothing_is_said(tmp_path, tokenizer):
    path = jsonl(tmp_path / "e.jsonl", ["A.", "Part B."])
    reference = {"name": "e", "path": path, "action": "decontaminate"}
    _, facts = execute(tmp_path, tokenizer, ["Part A. Notes. Part B. More."], [reference])
    assert facts["documents"]["dropped"] == {}
    assert any("no item has 13 words" in w for w in facts["warnings"])
    (tmp_path / "whole").mkdir()
    _, facts = execute(
        tmp_path / "whole", tokenizer, ["Part A. Notes. Part B. More.", "Part C."], [{**reference, "whole_items": True}]
    )
    assert facts["documents"]["dropped"] == {"contaminated": 1}


# Article 2 of the Universal Declaration of Human Rights, its first sentence or half of it; a name that news texts share.
ITEMS = {
    "zh": (
        "人人有资格享有本宣言所载的一切权利和自由,不分种族、肤色、性别、语言、宗教、政治或其他见解、国籍或社会出身",
        "全国人民代表大会常务委员会",
    ),
    "ja": (
        "すべて人は、人種、皮膚の色、性、言語、宗教、政治上その他の意見、国民的もしくは社会的出身、財産、門地その他の地位",
        "独立行政法人国立美術館東京国立近代美術館",
    ),
    "th": (
        "ทุกคนย่อมมีสิทธิและอิสรภาพบรรดาที่กำหนดไว้ในปฏิญญานี้ โดยปราศจากความแตกต่างไม่ว่าชนิดใด ๆ ดังเช่น เชื้อชาติ ผิว",
        "กรุงเทพมหานคร",
    ),
    "lo": (
        "ຄົນຜູ້ໃດກໍ່ອ້າງຕົນໄດ້ວ່າ:ມີສິດ ແລະ ເສລີພາບທຸກຢ່າງທີ່ໄດ້ປ່າວຮ້ອງຢູ່ໃນປະກາດສະບັບນີ້ໂດຍບໍ່ເລືອກໜ້າ ບໍ່ຈຳກັດເຊື້ອຊາດ,ຜິວເນື້ອ",
        "ສາທາລະນະລັດ ປະຊາທິປະໄຕ ປະຊາຊົນລາວ",
    ),
    "km": (
        "មនុស្សម្នាក់ៗ អាចប្រើប្រាស់សិទ្ធិនិងសេរីភាពទាំងអស់ ដែលមានចែងក្នុងសេចក្ដីប្រកាសនេះ ដោយគ្មានការប្រកាន់បែងចែកបែបណាមួយ",
        "ព្រះរាជាណាចក្រកម្ពុជា រាជធានីភ្នំពេញ",
    ),
    "ko": (
        "모든 사람은 인종, 피부색, 성, 언어, 종교, 정치적 또는 기타의 견해, 민족적 또는 사회적 출신, 재산, 출생",
        "대한민국 국회 문화체육관광위원회",
    ),
}


def test_an_ngram_is_as_long_in_every_script(tmp_path, tokenizer):
    """Texts that only name what an item names are kept, verbatim items are found, wrapped anew too."""
    rng = random.Random(6)
    texts, references = [], []
    for language, (item, name) in ITEMS.items():
        half = len(item) // 2
        texts += [
            f"{document(rng)} {item[:half]}\n{item[half:]} {document(rng)}",
            f"{document(rng)} {name} {document(rng)}",
            f"{name}: {document(rng)}",
        ]
        rows = [item, f"{document(rng, 2)} {name} {document(rng, 2)}", f"{name} 1 + 1 = ?"]
        path = jsonl(tmp_path / f"{language}.jsonl", rows)
        references.append({"name": language, "path": path, "action": "decontaminate"})
    run, facts = execute(tmp_path, tokenizer, texts, references)
    assert [r["reason"] for r in decisions(run)] == ["contaminated", None, None] * len(ITEMS)
    for language in ITEMS:
        counts = facts["contamination"][language]
        assert (counts["matches"], counts["items"], counts["items_too_short"]) == (1, 3, 1)
        assert counts["self_test"] == "a planted copy of an item is found"
    assert any("reference th: 1 of 3 items have fewer than 13 words" in w for w in facts["warnings"])


def test_a_name_of_two_characters_is_no_whole_item(tmp_path, tokenizer):
    texts = ["他住在北京市海淀区", "东京和北京都是城市", "中关村街道办事处在海淀区", "上海在南方"]
    path = jsonl(tmp_path / "e.jsonl", ["北京", "中关村街道办事处"])
    reference = {"name": "e", "path": path, "action": "decontaminate", "whole_items": True}
    run, facts = execute(tmp_path, tokenizer, texts, [reference])
    assert [r["reason"] for r in decisions(run)] == [None, None, "contaminated", None]
    assert any("reference e: 1 of 2 items are in a script without spaces" in w for w in facts["warnings"])
    (tmp_path / "one").mkdir()
    _, facts = execute(tmp_path / "one", tokenizer, texts, [{**reference, "min_unspaced_words": 1}])
    assert facts["documents"]["dropped"] == {"contaminated": 3}


def test_indexes_are_built_once_and_the_text_read_once_however_many_sets(tmp_path, tokenizer, monkeypatch):
    from gpu_curate.device import backend
    from gpu_curate.ops.ngrams import NgramIndex

    built, read = [], []
    build, compute = NgramIndex.build, backend.compute
    monkeypatch.setattr(NgramIndex, "build", lambda *args: (built.append(1), build(*args))[1])
    monkeypatch.setattr(backend, "compute", lambda *args: (read.append(1), compute(*args))[1])
    monkeypatch.setattr(runs, "compiled_before", lambda: True)  # else the first partitions are made apart
    joined = []
    monkeypatch.setattr(together, "hash_and_probe", lambda *args: (joined.append(1), hash_and_probe(*args))[1])
    rng = random.Random(8)
    references = [
        {"name": f"e{k}", "path": jsonl(tmp_path / f"e{k}.jsonl", [document(rng)]), "action": "decontaminate"}
        for k in range(10)
    ]
    texts = [document(rng, 60) for _ in range(60)]
    run, _ = execute(tmp_path, tokenizer, texts, references, run={"engine": "inline", "partition_bytes": 65536})
    parts = len(list((run / "contamination").glob("*.parquet")))
    assert parts >= 3
    assert len(built) == 10
    assert len(read) == parts  # scores; signatures and contamination share a read
    assert len(joined) == parts


def test_a_run_with_nothing_to_do_tests_no_set_again(tmp_path, tokenizer, monkeypatch):
    from gpu_curate.ops.ngrams import NgramIndex

    rng = random.Random(9)
    path = jsonl(tmp_path / "e.jsonl", [document(rng), "A."])
    reference = {"name": "e", "path": path, "action": "decontaminate"}
    texts = [document(rng) for _ in range(5)]
    run, before = execute(tmp_path, tokenizer, texts, [reference])
    monkeypatch.setattr(NgramIndex, "build", None)
    again = pipeline.execute(config.parse(read_json(run / "run.json")["config"]), run)
    after = read_json(run / "report" / "report.json")
    assert after["contamination"] == before["contamination"]
    assert after["contamination"]["e"]["items_too_short"] == 1
    assert again.reused["contamination"] == 1


@pytest.mark.parametrize(("limit", "dropped"), [(0.0, 2), (0.5, 1), (1.0, 0)])
def test_coverage_limits_differ_in_what_they_drop(tmp_path, tokenizer, limit, dropped):
    words = [f"w{i}" for i in range(40)]  # 28 n-grams
    path = jsonl(tmp_path / "e.jsonl", [" ".join(words)])
    texts = [" ".join(words), "before " + " ".join(words[:20]) + " after", "nothing of it here"]
    reference = {"name": "e", "path": path, "action": "decontaminate", "max_coverage": limit}
    _, facts = execute(tmp_path, tokenizer, texts, [reference], dedup={"fuzzy": None})
    assert facts["documents"]["dropped"] == ({"contaminated": dropped} if dropped else {})


def test_new_documents_that_match_an_older_corpus_are_dropped_with_the_match(tmp_path, tokenizer):
    rng = random.Random(3)
    old = document(rng, 20)
    near = edited(old, rng, 0.005)
    texts = [document(rng), near, old, document(rng)]
    path = jsonl(tmp_path / "old.jsonl", [old])
    run, facts = execute(tmp_path, tokenizer, texts, [{"name": "old", "path": path, "action": "dedup_against"}])
    assert facts["documents"]["dropped"] == {"reference_duplicate": 2}
    rows = decisions(run)
    assert [r["partner"] for r in rows] == [None, MAX_FILES << ROW_BITS, MAX_FILES << ROW_BITS, None]
    clusters = pq.read_table(run / "duplicates" / "clusters.parquet").to_pylist()
    by_id = {r["doc_id"]: r for r in clusters}
    assert by_id[MAX_FILES << ROW_BITS]["kind"] is None
    assert by_id[1]["kind"] == "fuzzy"
    assert 0.5 < by_id[1]["jaccard"] < 1
    assert by_id[2]["jaccard"] == 1.0
    manifest = pq.read_table(run / "shards" / "documents.parquet")
    assert max(manifest["doc_id"].to_pylist()) < MAX_FILES << ROW_BITS


def test_documents_that_match_a_train_only_set_are_kept_but_never_held_out(tmp_path, tokenizer):
    rng = random.Random(4)
    texts = [document(rng, 12) for _ in range(30)]
    sample = texts[:10] + [edited(t, rng, 0.004) for t in texts[10:15]]
    path = jsonl(tmp_path / "sample.jsonl", sample)
    run, facts = execute(tmp_path, tokenizer, texts, [{"name": "t", "path": path, "action": "train_only"}])
    assert facts["documents"]["dropped"] == {}
    rows = pq.read_table(run / "shards" / "documents.parquet").to_pylist()
    held = {r["doc_id"] for r in rows if r["split"] == "validation"}
    assert held
    assert held.isdisjoint(range(15))
    assert facts["split"]["train_only_documents"] >= 14


def test_a_train_only_set_does_not_join_documents_of_the_corpus(tmp_path, tokenizer):
    rng = random.Random(5)
    a, b = document(rng, 15), document(rng, 15)
    path = jsonl(tmp_path / "both.jsonl", [a, b, a + "\n" + b])
    _, facts = execute(tmp_path, tokenizer, [a, b], [{"name": "t", "path": path, "action": "train_only"}])
    assert facts["documents"]["kept"] == 2


def test_a_set_without_the_fields_asked_for_is_an_error(tmp_path, tokenizer):
    path = jsonl(tmp_path / "e.jsonl", [{"question": "what"}])
    with pytest.raises(ConfigError, match="reference e: no text under answer"):
        execute(
            tmp_path,
            tokenizer,
            ["a"],
            [{"name": "e", "path": path, "text_fields": ["answer"], "action": "decontaminate"}],
        )


def test_a_missing_set_is_an_error_before_any_work(tmp_path, tokenizer):
    with pytest.raises(ConfigError, match=r"reference e: path: .* matches no file"):
        execute(tmp_path, tokenizer, ["a"], [{"name": "e", "path": str(tmp_path / "gone"), "action": "decontaminate"}])
    assert not (tmp_path / "run").exists()


def test_every_format_of_a_set_gives_the_same_items(tmp_path):
    rows = [{"q": "one", "n": 1}, {"q": "two", "deep": {"q": "no"}}]
    jsonl(tmp_path / "a.jsonl", rows)
    (tmp_path / "a.json").write_text(json.dumps({"examples": rows}))
    pq.write_table(pa.table({"q": ["one", "two"]}), tmp_path / "a.parquet")
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.write(tmp_path / "a.json", "x/a.json")
        archive.writestr("readme.md", "not an item")
    for name in ("a.jsonl", "a.json", "a.parquet", "a.zip"):
        assert list(items(str(tmp_path / name), ["q"])) == ["one", "two"], name


def test_every_compression_and_archive_member_gives_the_same_items(tmp_path):
    long = ["w" * 70_000, "x" * 70_000]  # more than one block
    plain = "".join(json.dumps({"q": t}) + "\n" for t in long).encode()
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(plain[:100]) + gzip.compress(plain[100:]))
    pq.write_table(pa.table({"q": long}), tmp_path / "a.pq")
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.write(tmp_path / "a.jsonl.gz", "1.jsonl.gz")
        archive.write(tmp_path / "a.pq", "2.pq")
    assert list(items(str(tmp_path / "a.jsonl.gz"), ["q"])) == long
    assert list(items(str(tmp_path / "a.pq"), ["q"])) == long
    assert list(items(str(tmp_path / "a.zip"), ["q"])) == long * 2


def test_parquet_items_need_none_of_their_fields(tmp_path):
    path = tmp_path / "a.parquet"
    table = {
        "question": [None, "q1", ""],
        "choices": [["a", None, "b"], None, []],
        "doc": [{"body": "d0"}, None, {"body": None}],
        "raw": pa.array([None, "né".encode(), None], pa.binary()),
        "n": [1, 2, 3],
        "dotted.name": ["x", None, "y"],
    }
    pq.write_table(pa.table(table), path)
    fields = ["gone", "question", "choices", "doc.body", "raw", "n", "dotted.name", "doc.gone"]
    assert list(items(str(path), fields)) == ["a", "b", "d0", "x", "q1", "né", "y"]
    assert list(items(str(path), ["gone"])) == []


def damaged_files(folder):
    """(name, bytes) of files that cannot be read to their end."""
    noise = random.Random(3)
    rows = ["".join(noise.choices("abcdefghijklmnop", k=200)) for _ in range(300)]
    pq.write_table(pa.table({"q": rows}), folder / "t", row_group_size=100, compression="zstd", use_dictionary=False)
    column = pq.read_metadata(folder / "t").row_group(1).column(0)
    data = bytearray((folder / "t").read_bytes())
    middle = column.data_page_offset + column.total_compressed_size // 2
    data[middle : middle + 400] = b"\xaa" * 400
    yield "group.parquet", bytes(data)
    yield "footer.parquet", b"PAR1 nothing"
    pq.write_table(pa.table({"q": pa.array([b"good", b"\xff"], pa.binary()).view(pa.string())}), folder / "t")
    yield "utf8.parquet", (folder / "t").read_bytes()
    lines = "".join(json.dumps({"q": row}) + "\n" for row in rows).encode()
    yield "cut.jsonl.gz", gzip.compress(lines)[:-20]
    yield "bytes.jsonl.gz", b"\x1f\x8b\x08\xff" + b"\xff" * 30
    yield "line.jsonl", lines + b'{"q": "cut'
    yield "deep.jsonl", lines + b'{"q":' * 100_000
    yield "deep.json", b"[" * 100_000
    with zipfile.ZipFile(folder / "t", "w") as archive:
        archive.writestr("a.jsonl", lines)
    packed = bytearray((folder / "t").read_bytes())
    yield "cut.zip", bytes(packed[: len(packed) // 2])
    packed[100:200] = b"\xaa" * 100
    yield "crc.zip", bytes(packed)


def test_a_file_that_cannot_be_read_to_its_end_is_an_error_that_names_it(tmp_path):
    (tmp_path / "t").touch()
    for name, data in damaged_files(tmp_path):
        path = tmp_path / name
        path.write_bytes(data)
        with pytest.raises(ConfigError, match=rf"^reference file \S*{name}.*: .{{5}}"):
            list(items(str(path), ["q"]))


def test_real_benchmarks_are_read(shared_data):
    assert len(list(items(str(shared_data("eval/gsm8k_test.jsonl")), ["question"]))) == 1319
    assert len(list(items(str(shared_data("eval/HumanEval.jsonl.gz")), ["prompt"]))) == 164
    assert len(list(items(str(shared_data("eval/bbh.zip")), ["input"]))) > 6000


def test_a_parquet_reference_whose_pages_end_early_is_an_error(tmp_path):
    """Arrow takes a page that claims no values for the last one of its row group, and says nothing."""
    path = tmp_path / "e.parquet"
    table = pa.table({"text": [f"item {i}" for i in range(300)]})
    pq.write_table(table, path, row_group_size=100, use_dictionary=False, compression="none")
    assert len(list(items(str(path), ["text"]))) == 300
    data = bytearray(path.read_bytes())
    page = pq.ParquetFile(path).metadata.row_group(1).column(0).data_page_offset
    counted = data.index(bytes([0x2C, 0x15, 0xC8, 0x01]), page)  # DataPageHeader: num_values, zigzag 100
    data[counted + 2 : counted + 4] = b"\x80\x00"  # 0, in two bytes
    path.write_bytes(data)
    with pytest.raises(ConfigError, match=r"e\.parquet cannot be read: 200 rows, its footer has 300"):
        list(items(str(path), ["text"]))


def test_a_partition_of_both_is_that_of_each_alone(tmp_path, tokenizer, monkeypatch):
    """Signatures and contamination from one read; each is reused by itself, and one that is gone is made again by itself."""
    from gpu_curate.runs.scheduler import Runner

    rng = random.Random(12)
    texts = [document(rng, 40) for _ in range(60)]
    path = jsonl(tmp_path / "e.jsonl", [texts[3][:400], document(rng)])
    references = [{"name": "e", "path": path, "action": "decontaminate"}]
    keys = {"run": {"engine": "inline", "partition_bytes": 65536}}
    kept, joined = [], []
    for name in ("together", "apart"):
        monkeypatch.setattr(runs, "compiled_before", lambda: True)
        monkeypatch.setattr(together, "hash_and_probe", lambda *args: (joined.append(1), hash_and_probe(*args))[1])
        if name == "apart":
            monkeypatch.setattr(Runner, "_partner", lambda *args: None)
        (tmp_path / name).mkdir()
        run, _ = execute(tmp_path / name, tokenizer, texts, references, **keys)
        folders = read_json(run / "run.json")["folders"]
        files = [p for box in ("signatures", "contamination") for p in sorted((run / folders[box]).glob("part-*"))]
        kept.append({p.name: p.read_bytes() for p in files})
        assert len(kept[-1]) >= 8
    assert kept[0] == kept[1]
    assert len(joined) == len([name for name in kept[0] if name.endswith(".hits")])
    monkeypatch.undo()
    run = tmp_path / "together" / "run"
    part = sorted((run / "contamination").glob("part-*.parquet"))[0]
    part.unlink()
    again = pipeline.execute(config.parse(read_json(run / "run.json")["config"]), run)
    assert again.reused["signatures"] == len(list((run / "signatures").glob("part-*.parquet")))
    assert part.read_bytes() == kept[0][part.name]


def bombs(folder):
    """(name, bytes) of small files that give much: text, items, values; a value in every row."""
    line = b'{"q": "' + b"word " * 20 + b'"}\n'
    tiny = b'{"q":"a"}\n' * (3 << 18)
    long = {"q": ["w" * (1 << 20)] * 200}
    pq.write_table(pa.table(long), folder / "t")
    yield "rows.parquet", (folder / "t").read_bytes()
    for name, data in {
        "lines.jsonl": line * ((130 << 20) // len(line)),
        "line.jsonl": b'{"q": "' + b"word " * (27 << 20) + b'"}',
        "items.jsonl": tiny * 2,
        "text.txt": b"word " * (27 << 20),
        "values.json": b"[" + b"[]," * (15 << 20) + b"0]",
        "record.jsonl": b'{"q": [' + b"[]," * (15 << 20) + b"0]}",
    }.items():
        if name.endswith(".jsonl"):
            yield f"{name}.zst", zstandard.compress(data, 1)
            continue
        with zipfile.ZipFile(folder / "t", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
            archive.writestr(name, data)
        yield f"{name}.zip", (folder / "t").read_bytes()


def test_a_small_file_that_gives_much_is_refused_before_it_takes_the_memory(tmp_path):
    (tmp_path / "t").touch()
    for name, data in bombs(tmp_path):
        path = tmp_path / name
        path.write_bytes(data)
        with pytest.raises(ConfigError, match=r"more than \d+ (bytes|items|characters|values)"):
            for _ in items(str(path), ["q"]):
                pass
        path.unlink()


def test_a_file_of_many_short_items_is_read_whole(tmp_path):
    """What a plain file holds is its owner's, whatever its size; so is what is packed as texts pack."""
    rows = 70_000
    (tmp_path / "a.json").write_text(json.dumps([{"q": str(i)} for i in range(rows)]))
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress("".join(f'{{"q":"{i}"}}\n' for i in range(rows)).encode()))
    for name in ("a.json", "a.jsonl.gz"):
        assert list(items(str(tmp_path / name), ["q"])) == list(map(str, range(rows)))


def test_a_shared_read_that_fails_is_done_again_for_each_alone(tmp_path, tokenizer, monkeypatch):
    rng = random.Random(13)
    failed = []

    def fails_once(*args):
        failed.append(1)
        raise CorruptError("a file differs from its receipt")

    monkeypatch.setattr(runs, "compiled_before", lambda: True)
    monkeypatch.setattr(together, "hash_and_probe", fails_once)
    path = jsonl(tmp_path / "e.jsonl", [document(rng)])
    reference = {"name": "e", "path": path, "action": "decontaminate"}
    run, facts = execute(tmp_path, tokenizer, [document(rng) for _ in range(5)], [reference])
    assert failed == [1]  # the next try makes signatures and contamination apart
    assert facts["documents"]["kept"] == 5
    assert len(decisions(run)) == 5
