"""Files appear whole or not at all; a file that differs from its receipt is found out."""

from __future__ import annotations

import errno
import os
import subprocess
import sys

import pyarrow as pa
import pytest
from places import ROOT

from gpu_curate.errors import ConfigError, CorruptError, FatalError
from gpu_curate.store.artifact import RECEIPTS, Box
from gpu_curate.store.files import publish, write_table
from gpu_curate.store.lock import remove_temporaries, run_lock
from gpu_curate.store.receipts import Counts, Receipt


def test_a_file_appears_only_when_it_is_whole(tmp_path):
    with publish(tmp_path / "a") as temp:
        temp.write_bytes(b"x" * 10)
        assert not (tmp_path / "a").exists()
    assert (tmp_path / "a").read_bytes() == b"x" * 10
    assert os.listdir(tmp_path) == ["a"]


def test_a_failed_write_leaves_the_old_file_and_no_temporary(tmp_path):
    (tmp_path / "a").write_bytes(b"old")
    with pytest.raises(ZeroDivisionError), publish(tmp_path / "a") as temp:
        temp.write_bytes(b"half")
        raise ZeroDivisionError
    assert (tmp_path / "a").read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a"]


def test_a_full_disk_is_a_fatal_error_that_names_the_file(tmp_path):
    with pytest.raises(FatalError, match=r"part\.bin.*nothing was left"), publish(tmp_path / "part.bin") as temp:
        temp.write_bytes(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")
    assert os.listdir(tmp_path) == []


def committed(tmp_path):
    box = Box(tmp_path / "box")
    path = box.path("000000", ".parquet")
    write_table(path, pa.table({"a": [1, 2, 3]}))
    box.commit(Receipt("000000", box.written([path]), Counts(documents=3)))
    return box, path


def test_a_partition_without_a_receipt_does_not_exist(tmp_path):
    box = Box(tmp_path / "box")
    write_table(box.path("000000", ".parquet"), pa.table({"a": [1]}))
    assert box.parts() == []
    assert box.receipt("000000") is None


def test_a_receipt_carries_facts_and_the_table_reads_back(tmp_path):
    box, _ = committed(tmp_path)
    assert box.parts() == ["000000"]
    assert box.receipt("000000").counts.documents == 3
    assert box.read_table("000000")["a"].to_pylist() == [1, 2, 3]


def test_a_shorter_file_is_no_partition(tmp_path):
    box, path = committed(tmp_path)
    path.write_bytes(path.read_bytes()[:-5])
    assert box.receipt("000000") is None


def test_the_receipts_of_a_box_are_those_of_its_whole_partitions_in_order(tmp_path):
    box, path = committed(tmp_path)
    for number in (2, 1):
        box.commit(Receipt(f"{number:06d}", (), Counts(documents=number)))
    assert [(r.part, r.counts.documents) for r in box.receipts()] == [("000000", 3), ("000001", 1), ("000002", 2)]
    path.unlink()
    assert [r.part for r in box.receipts()] == ["000001", "000002"]
    assert list(Box(tmp_path / "none").receipts()) == []


def test_a_changed_byte_is_corrupt_and_the_receipt_goes(tmp_path):
    box, path = committed(tmp_path)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptError, match="differs from its receipt"):
        box.read_table("000000")
    assert box.receipt("000000") is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"part": 1}',
        '{"part": "000000", "files": [], "documents": "many"}',
        '{"part": "000000", "files": [3]}',
    ],
)
def test_a_broken_receipt_is_no_receipt(tmp_path, text):
    box, _ = committed(tmp_path)
    (box.folder / RECEIPTS / "part-000000.json").write_text(text)
    assert box.receipt("000000") is None


def test_temporaries_of_a_killed_process_are_removed(tmp_path):
    (tmp_path / "box").mkdir()
    (tmp_path / "box" / ".part-000000.parquet.tmp-1-2").write_bytes(b"half")
    assert remove_temporaries(tmp_path) == 1
    assert os.listdir(tmp_path / "box") == []


def test_the_lock_of_a_dead_process_is_free_and_a_living_one_is_waited_for(tmp_path):
    code = (
        "import sys, time; sys.path.insert(0, sys.argv[2]); from pathlib import Path; from gpu_curate.store.lock import run_lock\n"
        "with run_lock(Path(sys.argv[1])): print('held', flush=True); time.sleep(float(sys.argv[3]))"
    )
    root = str(ROOT)
    holder = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path), root, "0.5"], stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout.readline() == "held\n"
    waited = []
    with run_lock(tmp_path, waited.append):
        assert holder.wait(5) == 0
    assert waited == [str(holder.pid)]
    killed = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path), root, "60"], stdout=subprocess.PIPE, text=True
    )
    assert killed.stdout.readline() == "held\n"
    killed.kill()
    killed.wait(5)
    with run_lock(tmp_path, waited.append):
        assert len(waited) == 1


def test_a_run_directory_that_cannot_be_made_is_a_config_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="run directory"), run_lock(tmp_path / "file" / "run"):
        pass
