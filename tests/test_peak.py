"""The peak of every process of a run, with the default partitions, on files that expand: at most 3 x partition_bytes + 512 MiB.

Each bomb is read by a run of its own, in scripts/soak; in scripts/test a smaller one of each is read, within limits in proportion.
"""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import lz4.frame
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
import zstandard
from places import ROOT

PARTITION_BYTES = 256 << 20
PEAK_BYTES = 3 * PARTITION_BYTES + (512 << 20)
MIB = 1 << 20
CASE_S = 240
COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    ".gz": lambda data: gzip.compress(data, 9),
    ".zst": zstandard.compress,
    ".bz2": bz2.compress,
    ".xz": lambda data: lzma.compress(data, preset=1),
    ".lz4": lz4.frame.compress,
}


def packed(suffix: str, head: bytes, piece: bytes, size: int, tail: bytes = b"") -> bytes:
    """A file of `head`, `piece` over and over up to `size` MiB, and `tail`, compressed in frames of 16 MiB each."""
    block = piece * (16 * MIB // len(piece))
    pack = COMPRESS[suffix]
    if suffix in (".gz", ".lz4", ".zst", ".bz2", ".xz"):
        return pack(head) + pack(block) * (size // 16) + pack(tail)
    raise ValueError(suffix)


def warc(block: bytes, kind: str = "text/html", extra: str = "") -> bytes:
    http = f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\n{extra}\r\n".encode() + block
    head = "WARC/1.0\r\nWARC-Type: response\r\nWARC-Target-URI: http://a/\r\nWARC-Date: 2024-05-01T10:20:30Z\r\nContent-Type: application/http\r\n"
    return f"{head}Content-Length: {len(http)}\r\n\r\n".encode() + http + b"\r\n\r\n"


def parquet(folder: Path, size: int, repeats: int, **options) -> None:
    """A text of `size` MiB, so many times."""
    text = pa.array([os.urandom(8).hex() + "word " * (size * MIB // 5)] * repeats, pa.large_string())
    pq.write_table(pa.table({"text": text}), folder / "a.parquet", compression="zstd", **options)


def zipped(folder: Path, name: str, data: bytes) -> None:
    with zipfile.ZipFile(folder / "r.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, data)


def write(path: Path, data: bytes) -> None:
    path.write_bytes(data)


XML = b"<mediawiki><siteinfo><sitename>W</sitename></siteinfo><page><title>T</title><ns>0</ns><id>1</id><revision><id>1</id><text>"
XML_END = b"</text></revision></page></mediawiki>"
LINE, LINE_END = b'{"text": "', b'"}\n'
# name → source's type, and what writes its file into a folder, for a size in MiB
BOMBS: dict[str, tuple[str, Callable[[Path, int], None]]] = {
    **{f"zeros{s}": ("text", lambda f, n, s=s: write(f / f"a.txt{s}", packed(s, b"", b"\0", n))) for s in COMPRESS},
    **{
        f"one line{s}": ("jsonl", lambda f, n, s=s: write(f / f"a.jsonl{s}", packed(s, LINE, b"word ", n, LINE_END)))
        for s in COMPRESS
    },
    "a line without end": ("jsonl", lambda f, n: write(f / "a.jsonl.zst", packed(".zst", LINE, b"word ", n))),
    "brackets": ("jsonl", lambda f, n: write(f / "a.jsonl.zst", packed(".zst", b'{"text": "a", "n": [', b"[],", n, b"0]}\n"))),
    "deep": ("jsonl", lambda f, n: write(f / "a.jsonl.zst", packed(".zst", b'{"text": "a", "n": ', b"[", n))),
    "one array": ("jsonl", lambda f, n: write(f / "a.json.zst", packed(".zst", b'[{"text": "a"},', b'{"text": "b"}, ', n // 16, b"{}]"))),
    "blank lines": ("jsonl", lambda f, n: write(f / "a.jsonl.gz", packed(".gz", b"", b"\n", n))),
    "one page": ("wikipedia", lambda f, n: write(f / "w.xml.bz2", packed(".bz2", XML, b"word ", n, XML_END))),
    "one tag": ("wikipedia", lambda f, n: write(f / "w.xml.gz", packed(".gz", XML + b"</text><", b"x", n, XML_END))),
    "braces": ("wikipedia", lambda f, n: write(f / "w.xml.gz", packed(".gz", XML, b"{{a|", n, XML_END))),
    "one record": ("warc", lambda f, n: write(f / "a.warc.gz", gzip.compress(warc(b"<p>" + b"word " * (n * MIB // 5))))),
    "a body in gzip": ("warc", lambda f, n: write(f / "a.warc", warc(packed(".gz", b"<p>", b"word ", n), extra="Content-Encoding: gzip\r\n"))),
    "a body in zstd": ("warc", lambda f, n: write(f / "a.warc", warc(packed(".zst", b"<p>", b"word ", n), extra="Content-Encoding: zstd\r\n"))),
    "headers without end": ("warc", lambda f, n: write(f / "a.warc.gz", packed(".gz", b"WARC/1.0\r\n", b"A: b\r\n", n))),
    "one value": ("parquet", lambda f, n: parquet(f, n, 1, use_dictionary=False)),
    "one value in a dictionary": ("parquet", lambda f, n: parquet(f, n, 1)),
    "a value over and over": ("parquet", lambda f, n: parquet(f, 1, n)),
    "a reference of lines": ("zip", lambda f, n: zipped(f, "a.jsonl", (LINE + b"word " * 20 + LINE_END) * (n * MIB // 120))),
    "a reference of one line": ("zip", lambda f, n: zipped(f, "a.jsonl", LINE + b"word " * (n * MIB // 5) + LINE_END)),
    "a reference of brackets": ("zip", lambda f, n: zipped(f, "a.json", b"[" + b"[]," * (n * MIB // 3) + b"0]")),
    "a reference of text": ("zip", lambda f, n: zipped(f, "a.txt", b"word " * (n * MIB // 5))),
}  # fmt: skip


def source(name: str, kind: str, folder: Path, size: int) -> tuple[str, dict]:
    """The section of the recipe that reads a bomb, and that section."""
    folder.mkdir()
    BOMBS[name][1](folder, size)
    if kind == "zip":
        return "references", {"path": str(folder / "r.zip"), "action": "decontaminate"}
    return "sources", {"type": kind, "path": str(folder)}


def peak_of(tmp_path: Path, names: list[str], size: int) -> tuple[int, str, int]:
    """The peak of the largest process of a run, what it said, and its status."""
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain" / "p.jsonl").write_text(
        "".join(json.dumps({"text": f"A text of some words, number {i}."}) + "\n" for i in range(50))
    )
    recipe: dict = {
        "sources": [{"name": "plain", "type": "jsonl", "path": str(tmp_path / "plain")}],
        "references": [],
        "tokenizer": {"train": {"vocab_size": 300}},
        "min_tokens": 0,
        "quality": {"gopher_quality": "off", "gopher_repetition": "off"},
        "run": {"workers": 1},
    }  # fmt: skip
    for number, name in enumerate(names):
        section, entry = source(name, BOMBS[name][0], tmp_path / f"b{number}", size)
        recipe[section].append({"name": f"b{number}", **entry})
    (tmp_path / "r.yaml").write_text(yaml.safe_dump(recipe))
    code = "from gpu_curate.cli import main\nif __name__ == '__main__':\n    main()\n"
    (tmp_path / "run.py").write_text(code)
    # A process in between, so that what it waits for is this run's alone.
    watch = (
        "import json, resource, subprocess, sys\n"
        f"done = subprocess.run(sys.argv[1:], capture_output=True, text=True, timeout={CASE_S})\n"
        "peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss << 10\n"
        "print(json.dumps([peak, done.stdout + done.stderr, done.returncode]))"
    )
    command = [sys.executable, "-c", watch, sys.executable, str(tmp_path / "run.py"), "run", str(tmp_path / "r.yaml"), "-q", "--out", str(tmp_path / "run")]  # fmt: skip
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return tuple(json.loads(done.stdout))


@pytest.mark.soak
@pytest.mark.parametrize("name", BOMBS)
def test_no_process_takes_more_than_three_partitions(name, tmp_path, soak_cases):
    size = soak_cases(0, 1024)
    if not size:
        pytest.skip("scripts/soak")
    peak, said, status = peak_of(tmp_path, [name], size)
    print(f"\n{name}: {peak >> 20} MiB")
    assert "Traceback" not in said, said[-3000:]
    assert peak <= PEAK_BYTES, f"{peak >> 20} MiB"
    assert status in (0, 1, 2), said[-2000:]  # 1: a source of which nothing was read is a failure of its own


QUICK_MIB = 32
QUICK_PEAK_MIB = 3 * QUICK_MIB + 64
QUICK_S = 20
READ = """
import json, re, sys, time
from pathlib import Path
from gpu_curate import config, guard
from gpu_curate.errors import GpuCurateError
from gpu_curate.stages.documents.listing import find_files, make_reader
from gpu_curate.stages.reference_sets import items


def memory(key):
    return int(re.search(rf"{key}:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) >> 10


def read(kind, folder):
    if kind == "zip":
        return sum(1 for _ in items(folder + "/r.zip", ["text"]))
    parsed = config.parse({"sources": [{"name": "s", "type": kind, "path": folder}], "tokenizer": {"path": "gpt2"}})
    reader = make_reader(parsed.sources[0])
    count = 0
    for file in find_files(parsed.sources[0], reader).files:
        for split in guard.splits(reader, file.path, file.size, 1 << 28):
            for item in guard.read(reader, split):
                count += 1
    return count


for kind in ("text", "jsonl", "wikipedia", "warc", "parquet"):
    try:
        read(kind, "none")  # imports
    except GpuCurateError:
        pass
for name, kind, folder in json.loads(sys.argv[1]):
    Path("/proc/self/clear_refs").write_text("5")  # the highest resident memory counts from here
    before, began = memory("VmRSS"), time.monotonic()
    try:
        said = read(kind, folder)
    except GpuCurateError as e:
        said = str(e)[:100]
    print(json.dumps([name, memory("VmHWM") - before, time.monotonic() - began, said]), flush=True)
"""


@pytest.mark.skipif(not os.access("/proc/self/clear_refs", os.W_OK), reason="peaks of one process after the other")
def test_a_small_bomb_of_each_kind_takes_memory_and_time_in_proportion(tmp_path):
    folders = []
    for number, (name, (kind, make)) in enumerate(BOMBS.items()):
        (tmp_path / str(number)).mkdir()
        make(tmp_path / str(number), QUICK_MIB)
        folders.append([name, kind, str(tmp_path / str(number))])
    done = subprocess.run(
        [sys.executable, "-c", READ, json.dumps(folders)],
        env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    found = {name: (mib, round(s, 1), said) for name, mib, s, said in map(json.loads, done.stdout.splitlines())}
    assert found.keys() == BOMBS.keys()
    assert {name: what for name, what in found.items() if what[0] > QUICK_PEAK_MIB or what[1] > QUICK_S} == {}
